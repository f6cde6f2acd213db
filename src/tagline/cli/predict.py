"""`tagline predict`: predict the labels of texts."""

import sys
from collections.abc import Iterator
from itertools import tee
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli.options import BundleName, Debug, Json, Runs

if TYPE_CHECKING:
    from tagline.models import Prediction
    from tagline.prediction.bundle import Bundle

SHOWN_KEYS = 5
"""Names of ignored columns that are listed."""


def predict(
    bundle: BundleName,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts; pairs two by two; none: standard input."),
    ] = None,
    source: Annotated[str | None, typer.Option("--input", metavar="FILE", help="A file with a row a text.")] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help=".jsonl, .csv, .tsv or .parquet.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="COLUMN", help="The text column; twice for a pair.")
    ] = None,
    sets: Annotated[
        float | None,
        typer.Option("--sets", metavar="SHARE", help="0.95: add a set of labels that holds the truth 95 times in 100."),
    ] = None,
    escape_formulas: Annotated[
        str,
        typer.Option(
            "--escape-formulas",
            metavar="ours|all|none",
            help="In .csv and .tsv, put ' before what a spreadsheet would run: in our columns, or in yours too.",
        ),
    ] = "ours",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes that answer a file; one a core.")
    ] = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Answer texts given as arguments, lines of standard input, or rows of a file."""
    from tagline.cli import console
    from tagline.commands.predict import open_bundle
    from tagline.prediction import files

    opened = open_bundle(
        bundle,
        has_texts=bool(texts),
        source=source,
        output=output,
        text=text or (),
        escape_formulas=escape_formulas,
        runs=runs,
        say=console.say,
    )
    if source and output:
        options = {"text": text or [], "sets": sets, "workers": workers or 0, "escape_formulas": escape_formulas}
        _answer_file(opened, source, output, as_json=json, **options)
    elif source:
        answered = files.predict_rows(opened, source, text=text or (), sets=sets)
        if json:
            console.out_json(list(answered))
        else:
            for row in answered:
                console.out_json(row, indent=None)
    else:
        _answer_texts(opened, texts, sets=sets, as_json=json)


def _answer_file(bundle: "Bundle", source: str, output: str, *, as_json: bool, **options: Any) -> None:
    """Predict the rows of a file into another, with a progress display."""
    from tagline.cli import console
    from tagline.prediction import files

    event: dict[str, Any] = {}
    with console.RowProgress() as progress:
        for event in files.predict_file_events(bundle, source, output, **options):
            progress.show(event)
    if as_json:
        console.out_json({key: value for key, value in event.items() if key != "event"})
        return
    console.say(f"wrote {output}: {event['rows']:,} rows")
    if warning := event.get("encoding"):
        console.say(f"{source} {warning}; if that is so, save it as UTF-8 and predict again")
    if event["bad_rows"]:
        rows = "1 row" if event["bad_rows"] == 1 else f"{event['bad_rows']:,} rows"
        console.say(f"{rows} could not be read: {event['bad_rows_in']} says where and why")
    if ignored := event.get("left_out"):
        more = f" and {len(ignored) - SHOWN_KEYS:,} more" if len(ignored) > SHOWN_KEYS else ""
        console.say(f"left out, since the first rows do not have them: {', '.join(ignored[:SHOWN_KEYS])}{more}")


def _answer_texts(bundle: "Bundle", texts: list[str] | None, *, sets: float | None, as_json: bool) -> None:
    """Predict each text as soon as it is read."""
    from tagline.cli import console
    from tagline.prediction.predictor import Predictor

    predictor = Predictor.of(bundle)
    shown, predicted = tee(_read_texts(texts, pair=predictor.pair))
    if as_json:
        console.out_json([prediction.to_dict() for prediction in predictor.stream(predicted, sets=sets)])
        return
    for text, prediction in zip(shown, predictor.stream(predicted, sets=sets), strict=True):
        console.out(_format_prediction(text, prediction))


def _read_texts(texts: list[str] | None, *, pair: bool) -> Iterator[Any]:
    """Yield the texts to predict, from the arguments or else the lines of standard input; pairs two by two."""
    from tagline.errors import SpecError

    if not texts and (sys.stdin is None or sys.stdin.isatty()):
        raise SpecError("no text to answer", hint='tagline predict BUNDLE "a text", or pipe lines of text in')
    lines = map(_as_utf8, texts) if texts else _read_lines()
    if not pair:
        yield from lines
        return
    unpaired = SpecError("this bundle reads pairs, and the last text has no second", hint="give them two by two")
    if texts and len(texts) % 2:
        raise unpaired
    for first in lines:
        second = next(lines, None)
        if second is None:
            raise unpaired
        yield first, second


def _as_utf8(text: str) -> str:
    """Decode an argument of arbitrary bytes as a line of standard input is decoded."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_lines() -> Iterator[str]:
    from tagline.data.readers import LONGEST_RECORD, row_too_long_error

    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    number = 0
    while line := sys.stdin.readline(LONGEST_RECORD + 1):
        number += 1
        if len(line) > LONGEST_RECORD:
            raise row_too_long_error("standard input", number)
        yield line.rstrip("\r\n")


def _format_prediction(text: Any, prediction: "Prediction") -> str:
    from tagline.cli import console

    shown = text if isinstance(text, str) else " ⇄ ".join(text)
    if prediction.labels is not None:
        answer = ", ".join(f"{label} {prediction.scores[label]:.2f}" for label in prediction.labels) or "(no label)"
    else:
        answer = f"{prediction.label}  {prediction.score:.2f}"
    if prediction.set is not None:
        answer += f"  {{{', '.join(prediction.set)}}}"
    answer = console.one_line(answer)  # one line of output per text
    abstained = "  (would rather not say)" if prediction.abstained else ""
    return (
        f"{answer}{abstained}  {console.shorten_text(shown, max(20, console.get_terminal_width() - len(answer) - 4))}"
    )
