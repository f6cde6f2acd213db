"""What a predictor, and a server, do with a model that has no answer."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from samples import SUPPORT

import tagline
from tagline.errors import DataError, RunError
from tagline.models import Scores
from tagline.prediction.bundle import Bundle
from tagline.prediction.decisions import DecisionLayer
from tagline.prediction.predictor import Predictor
from tagline.serving import app
from tagline.serving.app import LoadedBundle, ServerMetrics, ServerRoutes, ServerSettings
from tagline.serving.http import HttpRequest, HttpResponse

pytestmark = pytest.mark.trains


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
    quick = ("model.family=linear", "model.max_features=500", "model.strength=4.0", "model.characters=0")
    run = tagline.train(SUPPORT / "messages.csv", *quick, runs=tmp_path)
    settings, served = ServerSettings(), LoadedBundle(Bundle.load(run.bundle), threads=1)
    monkeypatch.setattr(served.predictor, "_classifier", Broken())
    routes = ServerRoutes(
        served, settings, ServerMetrics(served.manifest, settings, processes=1), write_log=lambda *_, **__: None
    )
    body = json.dumps({"instances": ["where is it"]}).encode()
    answer = asyncio.run(routes.answer(HttpRequest("POST", settings.predict_route, {}, True, body)))
    assert answer.status == 500
    assert b"scores are not numbers" in answer.body
    health = asyncio.run(routes.answer(HttpRequest("GET", settings.health_route, {}, True)))
    assert (health.status, b"scores are not numbers" in health.body) == (503, True)


def test_a_process_that_never_ends_explaining_says_that_it_cannot_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ("model.family=linear", "model.max_features=500", "model.strength=4.0", "model.characters=0")
    run = tagline.train(SUPPORT / "messages.csv", *quick, runs=tmp_path)
    monkeypatch.setattr(app, "STUCK_S", 0.1)
    settings, served, may = (
        ServerSettings(timeout_s=0.1),
        LoadedBundle(Bundle.load(run.bundle), threads=1),
        threading.Event(),
    )
    monkeypatch.setattr(served.predictor, "explain", lambda *_: may.wait(60))
    routes = ServerRoutes(
        served, settings, ServerMetrics(served.manifest, settings, processes=1), write_log=lambda *_, **__: None
    )
    body = json.dumps({"instances": ["where is it"], "label": served.manifest.labels[0]}).encode()

    async def answer(method: str, path: str) -> HttpResponse:
        return await routes.answer(HttpRequest(method, path, {}, True, body))

    async def ask() -> None:
        assert (await answer("GET", "/health")).status == 200
        late = await answer("POST", "/explain")
        assert (late.status, b"not explained within 0.1 seconds" in late.body) == (503, True)
        while (await answer("GET", "/health")).status == 200:
            await asyncio.sleep(0.01)
        for path in ("/explain", "/predict"):
            refused = await answer("POST", path)
            assert (refused.status, b"is being replaced" in refused.body) == (503, True)
            assert refused.headers["retry-after"]
        await routes.batcher.close()
        may.set()

    asyncio.run(asyncio.wait_for(ask(), 60))


class Counting:
    """A model that answers every text alike, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def scores(self, texts: Sequence[object]) -> Scores:
        self.asked += texts
        return np.tile(np.array([[0.75, 0.25]], np.float32), (len(texts), 1))


def predictor_of(model: Counting, *, pair: bool = False) -> Predictor:
    return Predictor(model, DecisionLayer(task="single", labels=("a", "b")), pair=pair)  # type: ignore[arg-type]


class Frame:
    """A table as pandas and polars have it: iterating over it gives the names of its columns."""

    def __init__(self, **columns: list[str]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> list[str]:
        return self._columns[name]


@pytest.mark.parametrize("method", ["predict", "stream", "scores"])
@pytest.mark.parametrize(
    ("given", "what"),
    [
        (Frame(message=["hello"], topic=["greeting"]), "as a list, not as Frame: .*with the columns message, topic"),
        (pa.table({"message": ["hello"]}), "as a list, not as Table: .*with the columns message"),
        ({"message": "hello"}, "as a list, not as dict$"),
        ({"hello"}, "as a list, not as set$"),
        (b"hello", "as a list, not as bytes$"),
        (None, "as a list, not as NoneType$"),
        (7, "as a list, not as int$"),
        (np.array("hello"), "as a list, not as ndarray$"),
    ],
    ids=["frame", "table", "dict", "set", "bytes", "none", "int", "scalar"],
)
def test_what_gives_no_texts_is_refused_with_what_to_pass(method: str, given: object, what: str) -> None:
    model = Counting()
    with pytest.raises(DataError, match=what) as caught:
        getattr(predictor_of(model), method)(given)
    assert caught.value.hint.startswith("give ")
    assert model.asked == []


def test_a_table_s_hint_for_pairs_takes_two_columns() -> None:
    with pytest.raises(DataError) as caught:
        predictor_of(Counting(), pair=True).predict(Frame(q=["x"], a=["y"]))  # type: ignore[arg-type]
    assert caught.value.hint == 'give the texts of it: predict(list(zip(table["COLUMN"], table["COLUMN"])))'


@pytest.mark.parametrize(
    "given",
    [
        ["hello", "bye"], ("hello", "bye"), np.array(["hello", "bye"]), np.array(["hello", "bye"], dtype=object),
        {"hello": 1, "bye": 2}.keys(), Frame(message=["hello", "bye"])["message"],
    ],
    ids=["list", "tuple", "array", "objects", "keys", "column"],
)  # fmt: skip
def test_any_sequence_of_texts_is_answered(given: Sequence[str]) -> None:
    model = Counting()
    assert len(predictor_of(model).predict(given)) == 2
    assert model.asked == ["hello", "bye"]
    assert len(list(predictor_of(model).stream(iter(given)))) == 2


def test_a_text_by_itself_is_a_list_of_one_and_no_stream() -> None:
    model = Counting()
    assert len(predictor_of(model).predict("hello")) == 1
    assert model.asked == ["hello"]
    with pytest.raises(DataError, match=r"as a list, not as str$"):
        predictor_of(model).stream("hello")


@pytest.mark.parametrize("value", [float("nan"), 7, None, b"hello", ["hello"]])
def test_a_text_that_is_none_is_named_by_its_number(value: object) -> None:
    with pytest.raises(DataError, match=f"text 2 is {type(value).__name__}, not a text"):
        predictor_of(Counting()).predict(["hello", value])  # type: ignore[list-item]


def test_a_data_frame_of_pandas_is_refused_and_its_column_answered() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"message": ["hello", "bye"], "topic": ["a", "b"]})
    model = Counting()
    with pytest.raises(DataError, match="not as DataFrame: this is a table with the columns message, topic"):
        predictor_of(model).predict(frame)
    assert len(predictor_of(model).predict(frame["message"])) == 2
    assert model.asked == ["hello", "bye"]
