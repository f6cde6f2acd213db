"""Bundle in, predictions out: what evaluation, command line, server and batch all use. Needs no torch."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tagline import compiled, storage, words
from tagline.bundle import Bundle
from tagline.decisions import DecisionLayer
from tagline.errors import DataError, RunError
from tagline.models import Prediction, Push, Scorer, Scores

if TYPE_CHECKING:
    from tagline.texts import Text

TEXTS_AT_ONCE = 2048


class Predictor:
    """Answers of one model under one decision layer."""

    def __init__(self, classifier: Scorer, decisions: DecisionLayer, *, pair: bool) -> None:
        self._classifier = classifier
        self.decisions = decisions
        self.pair = pair

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """A predictor of the bundle in this directory."""
        return cls.of(Bundle.load(directory))

    @classmethod
    def of(cls, bundle: Bundle, *, threads: int = 0) -> Self:
        """A predictor of this bundle; `threads` work on a batch together where it can be told, 0: one a core."""
        return cls(bundle.classifier(threads=threads), bundle.decisions, pair=bundle.manifest.pair)

    @property
    def stands_alone(self) -> bool:
        """Whether each text is computed by itself, so that there is nothing to gain from several at once."""
        return getattr(self._classifier, "stands_alone", False)

    def predict(self, texts: "Sequence[Text] | Text", *, sets: float | None = None) -> list[Prediction]:
        """An answer for each text; a text by itself is a list of one.

        `sets=0.95` adds to each a set of labels that holds the truth 95 times in 100.
        """
        listed: Sequence[Text] = [texts] if isinstance(texts, str) or self._is_pair(texts) else list(texts)  # type: ignore[list-item]
        return list(self._answered(listed, sets=sets, size=TEXTS_AT_ONCE))

    def stream(self, texts: "Iterable[Text]", *, sets: float | None = None) -> Iterator[Prediction]:
        """Answers in the order of the texts, in memory that does not grow with them."""
        return self._answered(texts, sets=sets, size=1)  # a few at first: whoever waits for an answer gets it soon

    def _answered(self, texts: "Iterable[Text]", *, sets: float | None, size: int) -> Iterator[Prediction]:
        """Answers to so many texts first, then to twice as many, up to what is computed at once."""
        remaining = iter(texts)
        number = 1
        while some := list(islice(remaining, size)):
            if self.pair:
                some = [_as_pair(text) for text in some]
            self._check(some, first=number)
            number += len(some)
            size = min(2 * size, TEXTS_AT_ONCE)
            scores = self._classifier.scores(some)
            _insist_on_numbers(scores, hint="train the bundle anew")
            answers = self.decisions.answers(scores)
            yield from self.decisions.predictions(answers, coverage=sets)

    def scores(self, texts: "Sequence[Text]") -> Scores:
        """The model's own scores, before the decision layer, for measuring."""
        return scored(self._classifier, texts, labels=len(self.decisions.labels))

    def explain(self, text: "Text", label: str) -> list[Push]:
        """The pieces of a text and how far each moves the answer towards a label."""
        if label not in self.decisions.labels:
            known = ", ".join(self.decisions.labels)
            raise DataError(f'this bundle has no label "{label}"', hint=f"it has: {known}")
        self._check([text], first=1)
        return words.pushes(self._classifier, text, self.decisions.labels.index(label))

    def _is_pair(self, texts: object) -> bool:
        return self.pair and isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(t, str) for t in texts)

    def _check(self, texts: "Sequence[Text]", *, first: int) -> None:
        """Refuse what the model has not learned to read."""
        for number, text in enumerate(texts, start=first):
            if self.pair and not self._is_pair(text):
                raise DataError(
                    f"text {number}: this bundle reads pairs of texts", hint='give two: ("first", "second")'
                )
            if not self.pair and not isinstance(text, str):
                raise DataError(f"text {number} is {type(text).__name__}, not a text")
            sides = (text,) if isinstance(text, str) else text
            if not all(map(storage.is_utf8, sides)):  # tokenizers would call it no string
                raise DataError(f"text {number} holds half a character (a lone surrogate)", hint="mend or replace it")


def _as_pair(text: Any) -> Any:
    """A pair as it comes from JSON, which knows no tuples: predictions.jsonl holds such."""
    return tuple(text) if isinstance(text, list) else text


def scored(classifier: Scorer, texts: "Sequence[Text]", *, labels: int) -> Scores:
    """The model's own scores of any number of texts, before the decision layer."""
    remaining = iter(texts)
    parts = [classifier.scores(some) for some in iter(lambda: list(islice(remaining, TEXTS_AT_ONCE)), [])]
    scores = np.concatenate(parts) if parts else np.zeros((0, labels), dtype=np.float32)
    _insist_on_numbers(scores, hint="lower training.learning_rate")
    return scores


def _insist_on_numbers(scores: Scores, *, hint: str) -> None:
    if not np.isfinite(scores).all():
        raise RunError("the model's scores are not numbers", hint=hint)


def shared_out(bundle: Bundle, workers: int = 0) -> tuple[int, int]:
    """Into how many processes to share a bundle's work, unless told, and how many threads to give each."""
    cores = len(os.sched_getaffinity(0))
    if bundle.needs_torch:
        return workers or 1, 0
    together = compiled.threads_on_a_text(bundle.directory, bundle.manifest.runtime, cores=cores)
    processes = workers or max(cores // together, 1)
    return processes, max(min(together, cores // processes), 1)


def load(bundle: str | Path) -> Predictor:
    """A predictor of a bundle, given its directory."""
    return Predictor.load(bundle)
