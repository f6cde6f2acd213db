"""`tagline evaluate`: evaluate a bundle on a file."""

from typing import Annotated

import typer

from tagline.cli.options import BundleName, Debug, Json, Overrides, Runs


def evaluate(
    bundle: BundleName,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file of labelled text.")],
    overrides: Overrides = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="The report as .html, .md or .json.")
    ] = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a bundle on every row of a file. Columns are those it was trained on, or given as data.KEY=VALUE."""
    from tagline.cli import console
    from tagline.commands.evaluate import evaluate as evaluate_bundle
    from tagline.evaluation import gates

    report = evaluate_bundle(bundle, data, *(overrides or ()), output=output, runs=runs, say=console.say)
    for finding in report.findings:
        console.say(finding.message, lead=f"! {finding.severity} ")
    if json:
        console.out_json(report.to_dict())
    else:
        console.show_report(report)
        if output:
            console.out(f"report   {output}")
    gates.enforce_gates(report.gates, hint="tagline evaluate --output report.html shows where it fails")
