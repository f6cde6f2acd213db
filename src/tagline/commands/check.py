"""Everything that is wrong with a spec, its data and its place, and the price."""

from pathlib import Path

from tagline.jobs import places, preflight
from tagline.jobs.preflight import CheckResult
from tagline.system import extras
from tagline.training.spec_sources import SpecSource, resolve_source


@extras.explain_missing_packages()
def check(
    source: SpecSource,
    *overrides: str,
    label_errors: bool = False,
    on: str = places.LOCAL,
    runs: str | Path = "runs",
) -> CheckResult:
    """Check a spec, its data, its model and its place before anything is spent, and price it.

    `label_errors` looks for labels that look wrong, by models of parts of the rows. `on` is "local", "rehearsal" or
    "vertex".
    """
    return preflight.examine(resolve_source(source, overrides), on=on, runs=str(runs), label_errors=label_errors)
