"""Bundles as commands take them: by path, by address, or by the run that made them."""

from collections.abc import Callable
from pathlib import Path

from tagline.errors import RunError
from tagline.runs import lookup
from tagline.runs.run import Run

Say = Callable[[str], None]


def locate_bundle(name: str | Path, runs: str | Path, *, say: Say = lambda _: None) -> str | Path:
    """Return a bundle's directory or its address in Cloud Storage."""
    return lookup.locate_bundle(_resolve_last(str(name), runs, say), runs)


def fetch_bundle(name: str | Path, runs: str | Path, *, say: Say = lambda _: None) -> Path:
    """Return a bundle's directory on this machine, downloading it if it is in Cloud Storage."""
    return lookup.find_bundle(_resolve_last(str(name), runs, say), runs)


def _resolve_last(name: str, runs: str | Path, say: Say) -> str:
    """Resolve `last` to the newest run that has a bundle, naming newer ones without."""
    if name != "last":
        return name
    run, without = lookup.find_last_with_bundle(runs)
    if without:
        states = ", ".join(f"{each.name} ({_describe_state(each)})" for each in without)
        say(f"last is {run.name}, the newest run with a bundle; newer ones have none: {states}")
    return run.address


def _describe_state(run: Run) -> str:
    try:
        return run.state().name
    except RunError:
        return "damaged"
