"""Reports as small as they can be read back, for tests of what reads them."""

from typing import Any

from tagline.evaluation.schema import REPORT_FORMAT, Report


def make_report(test: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A report with these figures of the test split and nothing else worth reading."""
    return {
        "format": REPORT_FORMAT,
        "task": "single",
        "pair": False,
        "labels": ["a", "b"],
        "family": "linear",
        "splits": {},
        "test": test,
        "baselines": {},
        "gates": [],
        "decisions": {},
        "findings": [],
        "advice": [],
        **more,
    }


def change_report(report: Report, **parts: Any) -> Report:
    """The same report with other parts."""
    return Report.model_validate({**report, **parts})


def make_label_figures(f1: float) -> dict[str, Any]:
    """The figures of a label with this F1."""
    return {"precision": f1, "recall": f1, "f1": f1, "support": 1}
