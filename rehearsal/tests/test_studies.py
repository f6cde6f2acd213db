"""The parts of tuning: values that a search suggests, and what is read from a trial's reports."""

import json
from pathlib import Path
from typing import Any

import pytest

from vertex_rehearsal.api.messages import fill_message, v1
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.tuning import metric_files, parameters
from vertex_rehearsal.tuning.metric_files import MetricFile
from vertex_rehearsal.tuning.studies import Study


def study_spec(**content: Any) -> Any:
    load_methods()
    return fill_message(v1.StudySpec(), {"metrics": [{"metricId": "score"}], **content})


def line(score: Any, step: Any = 0, timestamp: Any = 10.0) -> str:
    return json.dumps({"score": score, "global_step": str(step), "timestamp": timestamp}) + "\n"


@pytest.mark.parametrize(("scale", "share"), [("UNIT_LOG_SCALE", 0.5), ("UNIT_REVERSE_LOG_SCALE", 0.0)])
def test_scales_bend_the_space_towards_their_end(scale: str, share: float) -> None:
    """Half of a logarithmic space is below the geometric mean; of a reversed one, almost nothing is."""
    about = {"parameterId": "x", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1}, "scaleType": scale}
    study = Study(study_spec(parameters=[about], algorithm="RANDOM_SEARCH"), trials=200)
    found = []
    for _ in range(200):
        suggestion = study.ask()
        assert suggestion is not None
        found.append(suggestion.values["x"])
        study.tell(suggestion, [0.0])
    assert all(0.001 <= value <= 1 for value in found)
    assert sum(value < 0.0316 for value in found) / 200 == pytest.approx(share, abs=0.12)
    if scale == "UNIT_REVERSE_LOG_SCALE":
        assert sum(value > 1.001 - 0.0316 for value in found) / 200 == pytest.approx(0.5, abs=0.12)


def test_a_search_learns_from_what_it_is_told() -> None:
    about = {"parameterId": "x", "integerValueSpec": {"minValue": "0", "maxValue": "1000"}}
    spec = study_spec(parameters=[about], metrics=[{"metricId": "score", "goal": "MINIMIZE"}])
    study = Study(spec, trials=60)
    found = []
    for _ in range(60):
        suggestion = study.ask()
        assert suggestion is not None
        found.append(suggestion.values["x"])
        study.tell(suggestion, None if len(found) == 3 else [abs(suggestion.values["x"] - 700.0)])
    late = sorted(abs(value - 700) for value in found[30:])
    assert late[15] < 150, "half of the later values are near the optimum"


def test_one_name_in_two_branches_has_a_range_in_each() -> None:
    def branch(value: str, low: int) -> dict[str, Any]:
        spec = {"parameterId": "depth", "integerValueSpec": {"minValue": str(low), "maxValue": str(low + 1)}}
        return {"parentCategoricalValues": {"values": [value]}, "parameterSpec": spec}

    tree = {
        "parameterId": "kind",
        "categoricalValueSpec": {"values": ["a", "b"]},
        "conditionalParameterSpecs": [branch("a", 1), branch("b", 10)],
    }
    spec = study_spec(parameters=[tree])
    parameters.check_parameters(spec.parameters, "parameters", gridded=False)
    study = Study(spec, trials=20)
    for _ in range(20):
        suggestion = study.ask()
        assert suggestion is not None
        assert suggestion.values["depth"] in {"a": (1, 2), "b": (10, 11)}[suggestion.values["kind"]]
        study.tell(suggestion, [1.0])
    assert len(list(parameters.iter_grid(spec.parameters))) == 4


@pytest.mark.parametrize(("value", "text"), [(16.0, "16"), (0.5, "0.5"), (3, "3"), ("adam", "adam"), (1e-5, "1e-05")])
def test_arguments_are_what_programs_expect(value: Any, text: str) -> None:
    assert parameters.format_argument(value) == text


def test_a_file_that_is_written_anew_loses_nothing_that_was_read(tmp_path: Path) -> None:
    load_methods()
    path = tmp_path / "output.metrics"
    file = MetricFile(path, ["score"])
    file.began_s = 8.0
    assert not file.read()
    path.write_text(line("0.5", 1) + line("0.6", 2)[:-5])
    assert file.read()
    assert not file.read(), "a line that is being written is not taken, and nothing is taken twice"
    path.write_text(line("0.6", 2, 11.5) + line("inf", 3) + line(0.7, 4) + "nonsense\n[1]\n" + line("x", "y"))
    assert file.read()
    assert [(one.step_count, one.metrics[0].value) for one in file.measurements] == [(1, 0.5), (2, 0.6), (4, 0.7)]
    assert file.measurements[1].elapsed_duration.ToMilliseconds() == 3500
    assert file.not_numbers == {"score"}


def test_two_metrics_of_a_step_are_one_measurement(tmp_path: Path) -> None:
    spec = study_spec(metrics=[{"metricId": "a"}, {"metricId": "b", "goal": "MINIMIZE"}])
    path = tmp_path / "output.metrics"
    reports = [{"a": "1", "global_step": "1"}, {"b": "2", "global_step": "1"}, {"a": "3", "global_step": "2"}]
    path.write_text("".join(json.dumps(report) + "\n" for report in reports))
    file = MetricFile(path, ["a", "b"])
    file.read()
    assert [len(one.metrics) for one in file.measurements] == [2, 1]
    final = metric_files.select_final(file.measurements, spec)
    assert [metric_files.get_metric_value(final, name) for name in "ab"] == [1, 2], "the last that has both"


def test_the_median_rule() -> None:
    spec = study_spec(medianAutomatedStoppingSpec={})

    def course(*values: float) -> list[Any]:
        return [
            fill_message(v1.Measurement(), {"stepCount": str(step), "metrics": [{"metricId": "score", "value": value}]})
            for step, value in enumerate(values, 1)
        ]

    completed = [course(0.2, 0.4, 0.9), course(0.4, 0.6, 0.9), course(0.6, 0.8, 0.9)]
    assert not metric_files.is_hopeless(course(0.1), [], spec), "with nothing to compare, there is hope"
    assert not metric_files.is_hopeless([], completed, spec)
    assert not metric_files.is_hopeless(course(0.4), completed, spec), "as good as the median, not strictly below"
    assert metric_files.is_hopeless(course(0.39), completed, spec)
    assert metric_files.is_hopeless(course(0.39, 0.49), completed, spec)
    assert not metric_files.is_hopeless(course(0.55, 0.1), completed, spec), "its best counts"
