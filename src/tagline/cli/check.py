"""`tagline check`: find the problems of a spec and its data."""

from typing import TYPE_CHECKING, Annotated

import typer

from tagline.cli.options import Debug, Json, On, Overrides, Runs, Source

if TYPE_CHECKING:
    from tagline.jobs.preflight import CheckResult


def check(
    source: Source,
    overrides: Overrides = None,
    label_errors: Annotated[
        bool,
        typer.Option("--label-errors", help="Find labels that look wrong by models of parts of the rows."),
    ] = False,
    on: On = "local",
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say all that is wrong with spec, data and place before anything is spent. Exit code 1 if it cannot be trained."""
    from tagline.cli import console
    from tagline.data.columns import resolve
    from tagline.errors import DataError
    from tagline.jobs import preflight
    from tagline.training.preflight import examine_readable_rows

    resolved = resolve(source, overrides or ())
    for guess in resolved.guesses:
        console.say(f"guessed {guess}")
    try:
        result = preflight.examine(resolved, on=on, runs=runs, label_errors=label_errors, say=console.say)
    except DataError:
        if not json:
            console.show_findings(examine_readable_rows(resolved.spec.data), with_rows=True)
        raise
    if json:
        console.out_json(result.to_dict())
    else:
        _show(result)
    if not result.is_ready:
        raise typer.Exit(1)


def _show(result: "CheckResult") -> None:
    """Show the findings, a summary of the data, and the price."""
    from tagline.cli import console

    data = result.data
    console.show_findings(result.findings, with_rows=True)
    if result.label_errors is not None:
        console.show_suspects(result.label_errors)
    for source_file in data.sources:
        console.out(f"{source_file.name}: {source_file.format}, {source_file.encoding.name}")
    sizes = ", ".join(f"{rows:,} {name}" for name, rows in result.rows.items())
    console.out(f"{len(data):,} rows, task {data.task}, {len(data.labels)} labels; {sizes}")
    if result.price:
        console.out(f"price: {result.price.sentence()}")
    console.out("ready to train" if result.is_ready else "this cannot be trained on")
