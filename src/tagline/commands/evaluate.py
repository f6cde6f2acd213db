"""A bundle measured on other data, by the name of the bundle or of its run."""

from pathlib import Path

from tagline.commands.bundles import Say, fetch_bundle
from tagline.evaluation.schema import Report
from tagline.reports import evaluate as measuring
from tagline.reports import html


def evaluate(
    bundle: str | Path,
    data: str | Path,
    *overrides: str,
    output: str | Path | None = None,
    runs: str | Path = "runs",
    say: Say = lambda _: None,
) -> Report:
    """Measure a bundle on every row of a file; returns the report.

    Columns are those that the bundle was trained on, unless they are given as data.KEY=VALUE. The report is written to
    `output` too: .html, .md or .json. `say` is told which run `last` is.
    """
    if output:
        html.check_form(str(output))
    report = measuring.evaluate(fetch_bundle(bundle, runs, say=say), data, *overrides)
    if output:
        html.save_report(report, str(output), name=f"{bundle} on {data}")
    return report
