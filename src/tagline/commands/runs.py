"""The runs that are here: listed, shown, reported and deleted; the functions of `tagline.runs`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tagline.errors import RunError
from tagline.evaluation.metrics import headline
from tagline.evaluation.schema import Report
from tagline.runs import resource_usage
from tagline.runs.formats import RunState
from tagline.runs.lookup import find_run, list_runs
from tagline.runs.run import Run
from tagline.storage import addresses


@dataclass(frozen=True)
class RunView:
    """One run: its state, figures and use of the machine."""

    run: Run
    state: RunState
    report: Report | None
    restarts: int
    lost_minutes: float
    usage: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that `tagline runs show --json` prints."""
        return {
            "name": self.run.name,
            "directory": self.run.address,
            **_describe_state(self.state),
            "lock": self.run.lock(),
            "restarts": self.restarts,
            "lost_minutes": self.lost_minutes,
            "report": self.report.to_dict() if self.report else None,
            "usage": self.usage,
        }


def list_(*, runs: str | Path = "runs") -> list[dict[str, Any]]:
    """Every run, oldest first: its name, directory, state, family and figures."""
    known = list_runs(runs)
    return addresses.run_concurrently(_describe_run, known)


def show(run: str | Path = "last", *, runs: str | Path = "runs") -> RunView:
    """One run: its state, figures and use of the machine."""
    found = find_run(str(run), runs)
    state, report_found = found.state(), found.report()
    restarts, lost_minutes = found.restarts()
    return RunView(found, state, report_found, restarts, lost_minutes, resource_usage.summarize_usage(found.events()))


def report(run: str | Path = "last", *, output: str | Path | None = None, runs: str | Path = "runs") -> Report:
    """A run's report; it is written to `output` too: .html, .md or .json."""
    return save_report(run, output, runs=runs)[0]


def save_report(run: str | Path, output: str | Path | None, *, runs: str | Path) -> tuple[Report, str]:
    """A run's report, and the file that holds it: `output`, or the run's own page."""
    from tagline.reports import html

    found = find_run(str(run), runs)
    facts = found.report()
    if facts is None:
        state = found.state()
        raise RunError(f"run {found.name} has no report: it is {state.name}", hint=state.reason)
    if output is None:
        return facts, f"{found.address}/report.html"
    spec, lock = found.spec_text(), found.lock()
    with found.reading("events.jsonl"):
        usage = resource_usage.describe_summary(resource_usage.summarize_usage(found.events()))
    with found.reading("report.json"):
        html.save_report(facts, str(output), name=found.name, spec=spec, lock=lock, usage=usage)
    return facts, str(output)


def delete(*names: str | Path, runs: str | Path = "runs") -> list[str]:
    """Delete runs with all that is in them; returns their names."""
    found = [find_run(str(name), runs) for name in names]
    for run in found:
        run.delete()
    return [run.name for run in found]


def _describe_run(run: Run) -> dict[str, Any]:
    """Describe a run for a list; a damaged one is listed as failed."""
    family, figures = "", dict[str, float]()
    try:
        state, found = run.state(), run.report()
        with run.reading("report.json"):
            if found:
                family, figures = found.family, dict(headline(found))
    except RunError as error:
        state, family, figures = RunState("failed", created="", reason=error.message), "", {}
    return {
        "name": run.name,
        "directory": run.address,
        **_describe_state(state),
        "family": family or None,
        "figures": figures,
    }


def _describe_state(state: RunState) -> dict[str, str]:
    facts = asdict(state)
    return {"state": facts.pop("name"), **facts}
