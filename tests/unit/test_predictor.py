"""What a predictor does with a model that has no answer."""

from collections.abc import Sequence

import numpy as np
import pytest

from tagline.decisions import DecisionLayer
from tagline.errors import RunError
from tagline.models import Scores
from tagline.predictor import Predictor


class Broken:
    """A model whose weights are no numbers."""

    def scores(self, texts: Sequence[object]) -> Scores:
        return np.full((len(texts), 2), np.nan, np.float32)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_scores_that_are_no_numbers_are_no_answer(task: str) -> None:
    predictor = Predictor(Broken(), DecisionLayer(task=task, labels=("a", "b")), pair=False)  # type: ignore[arg-type]
    with pytest.raises(RunError, match="scores are not numbers"):
        predictor.predict(["where is it"])
