"""Would more data help?"""

from pathlib import Path

import numpy as np
import pytest

import tagline
from tagline.evaluation.schema import CurvePoint, LearningCurve
from tagline.runs.lookup import list_runs
from tagline.training import learning_curve

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"


def curve(values: list[float], width: float = 0.02) -> LearningCurve:
    rows = [500 * 2**number for number in range(len(values))]
    return learning_curve.fit_curve(
        [CurvePoint(rows=n, value=v, interval=[v - width, v + width]) for n, v in zip(rows, values, strict=True)]
    )


def test_a_power_law_is_found_again() -> None:
    rows = np.array([500.0, 1000, 2000, 4000])
    values = 1 - (0.05 + 3 * rows**-0.5)
    [[found]] = learning_curve._predict_values(rows, values[None], np.array([8000.0]))
    assert found == pytest.approx(1 - (0.05 + 3 * 8000**-0.5), abs=0.003)


def test_a_curve_that_still_rises_says_that_more_would_help() -> None:
    found = curve([0.60, 0.70, 0.78, 0.84])
    [expected] = found.expected
    assert expected.rows == 8000
    assert 0.86 < expected.value < 0.93
    assert expected.interval[0] < expected.value < expected.interval[1]
    assert "would probably help" in found.sentence


def test_a_forecast_is_no_surer_than_the_points_it_is_made_of() -> None:
    for width in (0.01, 0.07):
        [expected] = curve([0.60, 0.70, 0.78, 0.84], width=width).expected
        assert expected.interval[1] - expected.interval[0] > 1.5 * width


def test_points_far_from_their_curve_make_the_forecast_less_sure() -> None:
    [near], [far] = curve([0.60, 0.70, 0.78, 0.84]).expected, curve([0.60, 0.78, 0.70, 0.84]).expected
    assert far.interval[1] - far.interval[0] > 2 * (near.interval[1] - near.interval[0])


@pytest.mark.parametrize(
    ("values", "width", "got"),
    [
        ([0.613, 0.684, 0.746, 0.773], 0.070, 0.733),
        ([0.564, 0.494, 0.552, 0.588], 0.100, 0.597),
        ([0.584, 0.553, 0.552, 0.615], 0.078, 0.693),
        ([0.540, 0.657, 0.510, 0.674], 0.100, 0.726),
    ],
)
def test_doublings_that_were_tried_lie_inside_and_nothing_is_promised(
    values: list[float], width: float, got: float
) -> None:
    found = curve(values, width=width)
    [expected] = found.expected
    assert expected.interval[0] < got < expected.interval[1]
    assert expected.interval[0] < values[-1]
    assert "cannot be told" in found.sentence


def test_nine_in_ten_true_values_lie_inside() -> None:
    random, rows = np.random.default_rng(1), 500 * 2.0 ** np.arange(5)
    truth = 1 - (0.1 + 2 * rows**-0.35)
    inside = 0
    for _ in range(40):
        values = random.binomial(300, truth[:4]) / 300
        [expected] = curve(values.tolist(), width=1.96 * 0.5 / np.sqrt(300)).expected
        inside += expected.interval[0] <= truth[4] <= expected.interval[1]
    assert inside >= 36


def test_a_flat_curve_says_that_it_would_not_and_noise_is_no_gain() -> None:
    assert "hardly help" in str(curve([0.85, 0.851, 0.85, 0.851], width=0.002)["sentence"])
    assert "cannot be told" in str(curve([0.85, 0.851, 0.85, 0.851], width=0.05)["sentence"])
    falling = curve([0.86, 0.84, 0.85, 0.83])
    assert falling["gain"] <= 0.02  # type: ignore[operator]


def test_it_is_measured_on_parts_and_added_to_the_report_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages.csv", "model.family=linear", "model.characters=0", runs=tmp_path)
    before = run.report()
    assert before is not None
    events = learning_curve.measure_curve(run)
    next(event for event in events if event["event"] == "step")
    events.close()  # type: ignore[attr-defined]
    assert run.report() == before
    list(learning_curve.measure_curve(run))
    report = run.report()
    assert report is not None
    points = report["learning_curve"]["points"]
    assert [point["rows"] for point in points] == sorted(point["rows"] for point in points)
    assert (len(points), points[-1]["rows"]) == (4, before["splits"]["train"])
    assert points[0]["rows"] == pytest.approx(before["splits"]["train"] / 8, abs=6)
    assert "Would more data help?" in (run.directory / "report.html").read_text()
    parts = list_runs(run.directory / learning_curve.DIRECTORY)
    assert [part.state().name for part in parts] == ["succeeded"] * 3
    assert not any(part.bundle.exists() for part in parts)
    assert [event["event"] for event in learning_curve.measure_curve(run)] == ["phase"] * 3 + ["curve"]


@pytest.mark.parametrize(
    "values", [[0.9, 0.9, 0.9, 0.85], [0.2, 0.1, 0.3, 0.9], [1.0, 1.0, 1.0, 1.0], [0.8, 0.85, 0.9, 0.8]]
)
def test_a_curve_that_does_not_rise_promises_nothing_impossible(values: list[float]) -> None:
    found = curve(values)
    [expected] = found.expected
    low, high = expected.interval
    assert 0 <= low <= expected.value <= high <= 1
    if values[-1] <= min(values[:-1]):
        assert "would probably help" not in found.sentence
