"""`tagline compare`: compare runs, with tests of significance."""

from typing import Annotated

import typer

from tagline.cli.options import Debug, Json, Runs


def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Two runs or more, by path or name.")],
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write it as a page too.")] = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs on their test rows, which must be the same: a table, and whether the best is really better."""
    from tagline.cli import console
    from tagline.commands.compare import compare as compare_runs

    comparison = compare_runs(*names, html=html, runs=runs)
    if json:
        console.out_json(comparison)
        return
    console.show_comparison(comparison)
    if html:
        console.out(f"page     {html}")
