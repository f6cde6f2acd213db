"""Would more data help?"""

from pathlib import Path

import numpy as np
import pytest

import tagline
from tagline import learning_curve
from tagline.runs import list_runs

SUPPORT = Path(__file__).parents[2] / "examples" / "support"


def curve(values: list[float], width: float = 0.02) -> dict[str, object]:
    rows = [500 * 2**number for number in range(len(values))]
    return learning_curve.fitted(
        [{"rows": n, "value": v, "interval": [v - width, v + width]} for n, v in zip(rows, values, strict=True)]
    )


def test_a_power_law_is_found_again() -> None:
    rows = np.array([500.0, 1000, 2000, 4000])
    values = 1 - (0.05 + 3 * rows**-0.5)
    assert learning_curve._predicted(rows, values, np.array([8000.0]))[0] == pytest.approx(
        1 - (0.05 + 3 * 8000**-0.5), abs=0.003
    )


def test_a_curve_that_still_rises_says_that_more_would_help() -> None:
    found = curve([0.60, 0.70, 0.78, 0.84])
    [expected] = found["expected"]  # type: ignore[misc]
    assert expected["rows"] == 8000
    assert 0.86 < expected["value"] < 0.93
    assert expected["interval"][0] < expected["value"] < expected["interval"][1]
    assert "would probably help" in str(found["sentence"])


def test_a_flat_curve_says_that_it_would_not_and_noise_is_no_gain() -> None:
    assert "hardly help" in str(curve([0.84, 0.85, 0.85, 0.85], width=0.002)["sentence"])
    falling = curve([0.86, 0.84, 0.85, 0.83])
    assert falling["gain"] <= 0.02  # type: ignore[operator]


def test_it_is_measured_on_parts_and_added_to_the_report_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages.csv", "model.family=linear", runs=tmp_path)
    before = run.report()
    assert before is not None
    events = learning_curve.measure(run)
    next(event for event in events if event["event"] == "step")
    events.close()  # type: ignore[attr-defined]
    assert run.report() == before
    list(learning_curve.measure(run))
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
    assert [event["event"] for event in learning_curve.measure(run)] == ["phase"] * 3 + ["curve"]


@pytest.mark.parametrize(
    "values", [[0.9, 0.9, 0.9, 0.85], [0.2, 0.1, 0.3, 0.9], [1.0, 1.0, 1.0, 1.0], [0.8, 0.85, 0.9, 0.8]]
)
def test_a_curve_that_does_not_rise_promises_nothing_impossible(values: list[float]) -> None:
    found = curve(values)
    [expected] = found["expected"]  # type: ignore[misc]
    low, high = expected["interval"]
    assert low <= expected["value"] <= high <= 1
    if values[-1] <= min(values[:-1]):
        assert "would probably help" not in str(found["sentence"])
