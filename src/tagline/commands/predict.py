"""Answers of a bundle for texts, or for the rows of a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tagline.commands.bundles import Say, fetch_bundle
from tagline.data.writers import ESCAPE_FORMULAS, EscapeFormulas
from tagline.errors import SpecError
from tagline.models import Prediction
from tagline.prediction import files
from tagline.prediction.bundle import Bundle
from tagline.prediction.predictor import Predictor

if TYPE_CHECKING:
    from tagline.data.texts import Text


@overload
def predict(
    bundle: str | Path, texts: "Sequence[Text] | Text", *, sets: float | None = None, runs: str | Path = "runs"
) -> list[Prediction]: ...


@overload
def predict(
    bundle: str | Path,
    *,
    input: str,
    text: Sequence[str] = (),
    sets: float | None = None,
    runs: str | Path = "runs",
) -> list[dict[str, Any]]: ...


@overload
def predict(
    bundle: str | Path,
    *,
    input: str,
    output: str | Path,
    text: Sequence[str] = (),
    sets: float | None = None,
    escape_formulas: EscapeFormulas = "ours",
    workers: int | None = None,
    runs: str | Path = "runs",
) -> dict[str, Any]: ...


def predict(
    bundle: str | Path,
    texts: "Sequence[Text] | Text | None" = None,
    *,
    input: str | None = None,  # noqa: A002 - the option's name
    output: str | Path | None = None,
    text: Sequence[str] = (),
    sets: float | None = None,
    escape_formulas: EscapeFormulas = "ours",
    workers: int | None = None,
    runs: str | Path = "runs",
) -> list[Prediction] | list[dict[str, Any]] | dict[str, Any]:
    """Predict the labels of texts, or of the rows of the file `input`.

    Returns a prediction for each text; for a file its rows with their answers, or with `output` how many were written
    there. `text` names the text column of the file, two columns for a pair. `sets=0.95` adds to each answer a
    conformal prediction set, which holds the true label 95 times in 100. To ask a bundle again and again, `load` it.
    """
    opened = open_bundle(
        bundle,
        has_texts=texts is not None,
        source=input,
        output=output,
        text=text,
        escape_formulas=escape_formulas,
        runs=runs,
    )
    if input is None:
        if texts is None:
            raise SpecError("no text to answer", hint="give texts, or a file as input")
        return Predictor.of(opened).predict(texts, sets=sets)
    if output is None:
        return list(files.predict_rows(opened, input, text=text, sets=sets))
    last = files.predict_file(
        opened, input, output, text=text, sets=sets, workers=workers or 0, escape_formulas=escape_formulas
    )
    return {key: value for key, value in last.items() if key != "event"}


def open_bundle(
    bundle: str | Path,
    *,
    has_texts: bool,
    source: str | None,
    output: str | Path | None,
    text: Sequence[str],
    escape_formulas: str,
    runs: str | Path,
    say: Say = lambda _: None,
) -> Bundle:
    """Load the bundle, after checking the arguments."""
    if source and has_texts:
        raise SpecError("predict takes texts or --input, not both")
    if (output or text) and not source:
        raise SpecError("--output and --text go with --input", hint="tagline predict BUNDLE --input FILE --output FILE")
    if escape_formulas not in ESCAPE_FORMULAS:
        raise SpecError(f"--escape-formulas is {escape_formulas}", hint=f"one of: {', '.join(ESCAPE_FORMULAS)}")
    return Bundle.load(fetch_bundle(bundle, runs, say=say))
