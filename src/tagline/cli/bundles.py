"""A bundle by its path, its address, or the run that made it, as commands take it."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tagline.runs.run import Run


def locate_bundle(name: str, runs: str) -> str | Path:
    """Where a bundle is: its directory, or its address in Cloud Storage."""
    from tagline.runs import remote

    return remote.bundle_place(_resolve_last(name, runs), runs)


def fetch_bundle(name: str, runs: str) -> Path:
    """A bundle's directory on this machine, copied here if it is in Cloud Storage."""
    from tagline.runs import remote

    return remote.find_bundle(_resolve_last(name, runs), runs)


def _describe_state(run: "Run") -> str:
    from tagline.errors import RunError

    try:
        return run.state().name
    except RunError:
        return "damaged"


def _resolve_last(name: str, runs: str) -> str:
    """For `last` the newest run that has a bundle; newer ones that have none are named."""
    from tagline.cli import console
    from tagline.runs import remote

    if name != "last":
        return name
    run, without = remote.find_last_with_bundle(runs)
    if without:
        states = ", ".join(f"{each.name} ({_describe_state(each)})" for each in without)
        console.say(f"last is {run.name}, the newest run with a bundle; newer ones have none: {states}")
    return run.address
