"""`tagline check`: everything that is wrong with a spec and its data."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli import places
from tagline.cli.options import Debug, Json, Overrides, Runs, Source

if TYPE_CHECKING:
    from tagline.data.checks import Finding
    from tagline.data.dataset import Dataset
    from tagline.jobs.prices import Price
    from tagline.spec import Data, Spec


def check(
    source: Source,
    overrides: Overrides = None,
    label_errors: Annotated[
        bool,
        typer.Option("--label-errors", help="Find labels that look wrong by models of parts of the rows."),
    ] = False,
    on: places.On = places.LOCAL,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say all that is wrong with spec, data and place before anything is spent. Exit code 1 if it cannot be trained."""
    from tagline import training
    from tagline.cli import console
    from tagline.data import checks, dataset
    from tagline.data.columns import resolve
    from tagline.errors import DataError
    from tagline.evaluation import gates, metrics
    from tagline.reports import compare, report

    resolved = resolve(source, overrides or ())
    for guess in resolved.guesses:
        console.say(f"guessed {guess}")
    try:
        data = dataset.load(resolved.spec.data)
    except DataError:
        if not json:
            _show_the_rest(resolved.spec.data)
        raise
    metrics.check_monitor(resolved.spec.training.monitor, data.task)
    gates.check_names(resolved.spec.gates, task=data.task, labels=data.labels)
    findings = checks.examine(data)
    if checks.has_few_shots(data) and (measured := compare.with_few_rows(data, runs=runs)):
        findings = [measured if finding.code == measured.code else finding for finding in findings]
    unused = training.find_unused(resolved.spec, data.task)
    findings += [checks.Finding("unused-setting", "warning", message, "leave it out") for message in unused]
    findings += training.examine_model(resolved.spec, data, is_here=on == places.LOCAL)
    places.check(on)
    price, there = _examined(resolved.spec, data, on=on, runs=runs) if on != places.LOCAL else (None, [])
    findings += there
    sizes = {name: len(split) for name, split in data.splits.items()}
    failed = any(finding.severity == "error" for finding in findings)
    suspects = _suspects(resolved.spec, data) if label_errors and not failed else []
    if json:
        console.out_json({
            "ok": not failed, "task": data.task, "labels": list(data.labels), "splits": sizes,
            "guesses": list(resolved.guesses), **report.described(data),
            "findings": [_as_dict(finding) for finding in findings],
            **({"label_errors": suspects} if label_errors else {}), **({"price": price.to_dict()} if price else {}),
        })  # fmt: skip
    else:
        console.show_findings(findings, with_rows=True)
        if label_errors:
            console.show_suspects(suspects)
        for source_file in data.sources:
            console.out(f"{source_file.name}: {source_file.format}, {source_file.encoding.name}")
        shown = ", ".join(f"{rows:,} {name}" for name, rows in sizes.items())
        console.out(f"{len(data):,} rows, task {data.task}, {len(data.labels)} labels; {shown}")
        if price:
            console.out(f"price: {price.sentence()}")
        console.out("this cannot be trained on" if failed else "ready to train")
    if failed:
        raise typer.Exit(1)


def _examined(spec: "Spec", data: "Dataset", *, on: str, runs: str) -> "tuple[Price, list[Finding]]":
    """What a training in a place would cost, and all that is wrong with the place."""
    from tagline.cli import launching

    with places.entered(on):
        rows = len(data.splits["train"])
        job = launching.planned(spec, name="NAME", on=on, rows=rows, runs=runs, is_for_real=True)
        return launching.price_of(job), launching.examined(job)


def _suspects(spec: "Spec", data: "Dataset") -> list[dict[str, Any]]:
    """Rows whose label looks wrong to models that did not learn from them."""
    from tagline.cli import console
    from tagline.training import cross_validation

    found = []
    for number, part in enumerate(cross_validation.parts(spec, data), start=1):
        console.say(f"part {number} of {cross_validation.FOLDS}: {len(part.rows):,} rows looked at")
        found.append(part)
    return cross_validation.suspects(data, found)


def _show_the_rest(data: "Data") -> None:
    """What else is wrong with data that has bad rows."""
    from tagline.cli import console
    from tagline.data import checks, dataset
    from tagline.errors import DataError

    with suppress(DataError):
        readable = dataset.load(data.model_copy(update={"bad_rows": "skip"}))
        found = [finding for finding in checks.examine(readable) if finding.code != "bad-rows"]
        console.show_findings(found, with_rows=True)


def _as_dict(finding: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(finding)  # type: ignore[call-overload, no-any-return]
