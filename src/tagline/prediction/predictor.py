"""Predictor: predictions from a bundle, for evaluation, command line, server and batch alike. Needs no torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tagline.errors import DataError, RunError, TaglineError, first_line
from tagline.models import Attribution, Prediction, Scorer, Scores
from tagline.models.model_files import MACHINE_ERRORS
from tagline.models.nn import devices
from tagline.prediction import attribution, onnx_runtime
from tagline.prediction.bundle import Bundle
from tagline.prediction.decisions import DecisionLayer
from tagline.storage import inputs

if TYPE_CHECKING:
    from tagline.data.texts import Text

TEXTS_AT_ONCE = 2048
SHOWN_COLUMNS = 5
"""The most columns that the error for a table in place of texts names."""


class Predictor:
    """Predicts with one model and one decision layer."""

    def __init__(self, classifier: Scorer, decisions: DecisionLayer, *, pair: bool, place: Path | None = None) -> None:
        """`place` is the bundle of the model, which its errors then name."""
        self._classifier = classifier
        self._place = place
        self.decisions = decisions
        self.pair = pair

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Load the predictor of the bundle in this directory."""
        return cls.of(Bundle.load(directory))

    @classmethod
    def of(cls, bundle: Bundle, *, threads: int = 0) -> Self:
        """Create a predictor of this bundle; ONNX runs on `threads` threads, 0: one per core."""
        classifier, place = bundle.classifier(threads=threads), bundle.directory
        return cls(classifier, bundle.decisions, pair=bundle.manifest.pair, place=place)

    @property
    def stands_alone(self) -> bool:
        """Whether each text is computed by itself, so that batches gain nothing."""
        return getattr(self._classifier, "stands_alone", False)

    def predict(self, texts: "Sequence[Text] | Text", *, sets: float | None = None) -> list[Prediction]:
        """Return a prediction for each text; a single text gives a list of one.

        `sets=0.95` adds to each a set of labels that holds the truth 95 times in 100.
        """
        if isinstance(texts, str) or self._is_pair(texts):
            texts = [texts]  # type: ignore[list-item]
        self._check_sequence(texts)
        return list(self._iter_predictions(texts, sets=sets, size=TEXTS_AT_ONCE))

    def stream(self, texts: "Iterable[Text]", *, sets: float | None = None) -> Iterator[Prediction]:
        """Yield predictions in the order of the texts, in memory that does not grow with them."""
        self._check_sequence(texts)
        return self._iter_predictions(texts, sets=sets, size=1)  # small at first, for a low latency

    def _iter_predictions(self, texts: "Iterable[Text]", *, sets: float | None, size: int) -> Iterator[Prediction]:
        """Yield predictions in batches of `size` texts, doubled each time up to TEXTS_AT_ONCE."""
        remaining = iter(texts)
        number = 1
        while batch := list(islice(remaining, size)):
            if self.pair:
                batch = [_to_pair(text) for text in batch]
            self._check_texts(batch, first=number)
            number += len(batch)
            size = min(2 * size, TEXTS_AT_ONCE)
            with self._scoring_errors():
                scores = self._classifier.scores(batch)
                _check_finite(scores, hint="train the bundle anew")
                _check_shape(scores, texts=len(batch), labels=len(self.decisions.labels))
            answers = self.decisions.answers(scores)
            yield from self.decisions.predictions(answers, coverage=sets)

    def scores(self, texts: "Sequence[Text]") -> Scores:
        """Return the model's own scores, before the decision layer, for evaluation."""
        self._check_sequence(texts)
        with self._scoring_errors():
            scores = score_texts(self._classifier, texts, labels=len(self.decisions.labels))
            _check_shape(scores, texts=len(texts), labels=len(self.decisions.labels))
        return scores

    def explain(self, text: "Text", label: str) -> list[Attribution]:
        """Return the pieces of a text and how far each moves the answer towards a label."""
        if label not in self.decisions.labels:
            known = ", ".join(self.decisions.labels)
            raise DataError(f'this bundle has no label "{label}"', hint=f"it has: {known}")
        self._check_texts([text], first=1)
        with self._scoring_errors():
            return attribution.compute_attributions(self._classifier, text, self.decisions.labels.index(label))

    @contextmanager
    def _scoring_errors(self) -> Iterator[None]:
        """Translate the errors of the model into a RunError that names its bundle."""
        try:
            yield
        except (TaglineError, MemoryError):
            raise
        except Exception as error:
            if self._place is None or type(error).__name__ in MACHINE_ERRORS:
                raise
            problem = f"the model cannot score texts: {type(error).__name__}: {first_line(error)}"
            hint = f"make {self._place} again, or restore it; if it is as it was made, this is a bug in Tagline"
            raise RunError(problem, hint=hint) from error

    def _check_sequence(self, texts: object) -> None:
        """Raise DataError unless iterating gives the texts: a table, for one, gives the names of its columns."""
        kind = type(texts).__name__
        example = '[("first", "second"), ...]' if self.pair else '["a text", "another"]'
        if (columns := _column_names(texts)) is not None:
            shown = ", ".join(map(str, columns[:SHOWN_COLUMNS])) + (", ..." if len(columns) > SHOWN_COLUMNS else "")
            hint = 'zip(table["COLUMN"], table["COLUMN"])' if self.pair else 'table["COLUMN"]'
            raise DataError(
                f"texts are given as a list, not as {kind}: this is a table with the columns {shown}",
                hint=f"give the texts of it: predict(list({hint}))",
            )
        if isinstance(texts, str | bytes | bytearray | Mapping | set | frozenset) or not _is_iterable(texts):
            raise DataError(f"texts are given as a list, not as {kind}", hint=f"give a list: {example}")

    def _is_pair(self, texts: object) -> bool:
        return self.pair and isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(t, str) for t in texts)

    def _check_texts(self, texts: "Sequence[Text]", *, first: int) -> None:
        """Raise DataError for a value that is not a text, or not a pair of texts, as the model reads them."""
        for number, text in enumerate(texts, start=first):
            if self.pair and not self._is_pair(text):
                raise DataError(
                    f"text {number}: this bundle reads pairs of texts", hint='give two: ("first", "second")'
                )
            if not self.pair and not isinstance(text, str):
                hint = "each text is a str; leave out or fill in what is missing"
                raise DataError(f"text {number} is {type(text).__name__}, not a text", hint=hint)
            sides = (text,) if isinstance(text, str) else text
            if not all(map(inputs.is_utf8, sides)):  # tokenizers do not take it for a string
                raise DataError(f"text {number} holds half a character (a lone surrogate)", hint="mend or replace it")


def _column_names(texts: object) -> list[object] | None:
    """Return the columns of a table of any package; None for any other value."""
    for name in ("column_names", "columns"):  # pyarrow and datasets; pandas and polars
        columns = getattr(texts, name, None)
        if columns is not None and not callable(columns) and _is_iterable(columns):
            return list(columns)
    return None


def _is_iterable(value: object) -> bool:
    """Return whether a value can be iterated over; a zero-dimensional array has `__iter__` and cannot."""
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _to_pair(text: Any) -> Any:
    """Convert a pair from JSON, which has no tuples, such as those in predictions.jsonl."""
    return tuple(text) if isinstance(text, list) else text


def score_texts(classifier: Scorer, texts: "Sequence[Text]", *, labels: int) -> Scores:
    """Return the model's own scores of any number of texts, before the decision layer."""
    remaining = iter(texts)
    parts = [classifier.scores(some) for some in iter(lambda: list(islice(remaining, TEXTS_AT_ONCE)), [])]
    scores = np.concatenate(parts) if parts else np.zeros((0, labels), dtype=np.float32)
    _check_finite(scores, hint="lower training.learning_rate")
    return scores


def _check_shape(scores: Scores, *, texts: int, labels: int) -> None:
    if scores.shape != (texts, labels):
        raise ValueError(f"scores of the shape {scores.shape} are not those of {texts} texts and {labels} labels")


def _check_finite(scores: Scores, *, hint: str) -> None:
    if not np.isfinite(scores).all():
        raise RunError("the model's scores are not numbers", hint=hint)


def plan_workers(bundle: Bundle, workers: int = 0) -> tuple[int, int]:
    """Return the number of processes (`workers`, if given) for a bundle's predictions, and of threads for each."""
    cores = devices.core_count()
    if bundle.needs_torch:
        return workers or 1, 0
    threads_per_text = onnx_runtime.choose_thread_count(bundle.directory, bundle.manifest.runtime, cores=cores)
    processes = workers or max(cores // threads_per_text, 1)
    return processes, max(min(threads_per_text, cores // processes), 1)


def load(bundle: str | Path) -> Predictor:
    """Load the predictor of a bundle, given its directory."""
    return Predictor.load(bundle)
