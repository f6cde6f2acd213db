"""What a predictor, and a server, do with a model that has no answer."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from samples import SUPPORT

import tagline
from tagline.bundle import Bundle
from tagline.connections import Request
from tagline.decisions import DecisionLayer
from tagline.errors import RunError
from tagline.models import Scores
from tagline.predictor import Predictor
from tagline.server import Metrics, Routes, Served, Settings


class Broken:
    """A model whose weights are no numbers."""

    def scores(self, texts: Sequence[object]) -> Scores:
        return np.full((len(texts), 2), np.nan, np.float32)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_scores_that_are_no_numbers_are_no_answer(task: str) -> None:
    predictor = Predictor(Broken(), DecisionLayer(task=task, labels=("a", "b")), pair=False)  # type: ignore[arg-type]
    with pytest.raises(RunError, match="scores are not numbers"):
        predictor.predict(["where is it"])


def test_a_client_is_not_blamed_for_a_model_without_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = ("model.family=linear", "model.max_features=500", "model.strength=4.0")
    run = tagline.train(SUPPORT / "messages.csv", *quick, runs=tmp_path)
    settings, served = Settings(), Served(Bundle.load(run.bundle), threads=1)
    monkeypatch.setattr(served.predictor, "_classifier", Broken())
    routes = Routes(served, settings, Metrics(served.manifest, settings, processes=1))
    body = json.dumps({"instances": ["where is it"]}).encode()
    answer = asyncio.run(routes.answer(Request("POST", settings.predict_route, {}, True, body)))
    assert answer.status == 500
    assert b"scores are not numbers" in answer.body
