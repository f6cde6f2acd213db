"""Gates: what they ask for, and what happens where it is not reached."""

import pytest

from tagline import spec as specs
from tagline.errors import CheckFailed, SpecError
from tagline.evaluation import gates
from tagline.spec import Gates

FIGURES = {
    "accuracy": 0.9, "macro_f1": 0.75, "log_loss": 0.4, "ece": 0.05, "mcc": None,
    "per_label": {
        "urgent": {"precision": 1.0, "recall": 0.8, "f1": 0.89, "support": 10},
        "absent": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0},
    },
}  # fmt: skip


def test_figures_are_held_against_what_is_wanted() -> None:
    wanted = Gates(accuracy=0.9, macro_f1=0.8, log_loss=0.5, ece=0.01, per_label_recall={"urgent": 0.9})
    found = {each["gate"]: each["passed"] for each in gates.evaluate_gates(wanted, FIGURES)}
    assert found == {
        "accuracy": True,
        "macro_f1": False,
        "log_loss": True,
        "ece": False,
        "per_label_recall.urgent": False,
    }


def test_a_figure_that_cannot_be_measured_is_not_reached() -> None:
    [result] = gates.evaluate_gates(Gates(mcc=0.1), FIGURES)
    assert not result["passed"]
    assert gates.format_result(result) == "mcc cannot be measured, at least 0.1 is wanted"


def test_a_label_without_test_rows_is_not_measured() -> None:
    [result] = gates.evaluate_gates(Gates(per_label_recall={"absent": 0.1}), FIGURES)
    assert (result["reached"], result["passed"]) == (None, False)


def test_a_model_that_never_abstains_answers_everything() -> None:
    found = gates.evaluate_gates(Gates(coverage=0.9, accuracy_of_answered=0.9), FIGURES)
    assert [each["reached"] for each in found] == [1.0, 0.9]


def test_no_gate_is_no_result_and_stops_nothing() -> None:
    assert gates.evaluate_gates(Gates(), FIGURES) == []
    gates.enforce_gates([], hint="")


def test_all_that_is_not_reached_is_said_at_once() -> None:
    failed = gates.evaluate_gates(Gates(macro_f1=0.8, ece=0.01, accuracy=0.5), FIGURES)
    with pytest.raises(CheckFailed) as stopped:
        gates.enforce_gates(failed, hint="saved")
    assert stopped.value.message.splitlines() == [
        "2 gates of 3 not passed:",
        "  macro_f1 is 0.750, at least 0.8 is wanted",
        "  ece is 0.050, at most 0.01 is wanted",
    ]
    assert stopped.value.exit_code == 1


def test_a_gate_on_what_is_not_there_is_refused_before_training() -> None:
    with pytest.raises(SpecError) as refused:
        gates.check_names(Gates(mcc=0.5, per_label_f1={"urgnt": 0.5}), task="multi", labels=("urgent",))
    assert refused.value.problems == (
        "gates.mcc: a figure of task single; this data is multi",
        'gates.per_label_f1: there is no label "urgnt"; there are: urgent',
    )


def test_gates_of_labels_are_written_in_toml_and_on_the_command_line() -> None:
    raw = specs.apply_overrides(
        {"data": {"train": "x.csv"}, "gates": {"macro_f1": 0.8, "per_label_recall": {"urgent": 0.9}}},
        ["gates.per_label_recall.not urgent=0.5", "gates.accuracy=0.7", "gates.per_label_f1.'a=b'=0.25"],
    )
    found = specs.parse(raw, where="a test").gates
    assert (found.macro_f1, found.accuracy) == (0.8, 0.7)
    assert found.per_label_recall == {"urgent": 0.9, "not urgent": 0.5}
    assert found.per_label_f1 == {"a=b": 0.25}
    assert specs.parse(raw, where="a test").fingerprint() == specs.defaults({"train": "x.csv"}).fingerprint()


@pytest.mark.parametrize("wrong", ["gates.macro_f1=1.2", "gates.macro=0.8", "gates.per_label_recall.x=high"])
def test_a_gate_that_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(SpecError, match="gates"):
        specs.parse(specs.apply_overrides({"data": {"train": "x.csv"}}, [wrong]), where="a test")
