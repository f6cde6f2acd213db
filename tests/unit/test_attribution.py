"""Which words push an answer."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tagline
from tagline.errors import DataError
from tagline.models.linear import Linear, LinearOptions
from tagline.models.linear.tfidf import Features
from tagline.prediction import attribution

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"


class Keyword:
    """A classifier that answers by one word, and by which side of a pair it stands on."""

    def scores(self, texts: Sequence[Any]) -> np.ndarray:
        sides = [(text,) if isinstance(text, str) else text for text in texts]
        says = np.array([0.9 if "refund" in side[-1] else 0.2 for side in sides])
        return np.stack([says, 1 - says], axis=1).astype(np.float32)


def test_leaving_a_word_out_shows_what_it_did() -> None:
    text = "I want a refund now"
    found = attribution.compute_attributions(Keyword(), text, 0)  # type: ignore[arg-type]
    assert [text[push.start : push.end] for push in found] == text.split()
    assert [push.weight > 1 for push in found] == [False, False, False, True, False]
    assert attribution.compute_attributions(Keyword(), text, 1)[3].weight < -1  # type: ignore[arg-type]


def test_of_a_pair_each_side_is_tried() -> None:
    found = attribution.compute_attributions(Keyword(), ("a refund", "the refund please"), 0)  # type: ignore[arg-type]
    assert [(push.side, push.weight > 1) for push in found] == [
        (0, False),
        (0, False),
        (1, False),
        (1, True),
        (1, False),
    ]


def test_a_long_text_is_cut_into_few_pieces_and_scripts_without_spaces_are_cut_too() -> None:
    text = "word " * 1000
    found = attribution.compute_attributions(Keyword(), text, 0)  # type: ignore[arg-type]
    assert 40 <= len(found) <= attribution.MOST_PIECES
    assert (found[0].start, found[-1].end) == (0, len(text) - 1)
    assert len(attribution.compute_attributions(Keyword(), "部屋がとても綺麗でした", 0)) == 6  # type: ignore[arg-type]
    assert attribution.compute_attributions(Keyword(), "", 0) == []  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    return tagline.train(SUPPORT / "messages.csv", "model.family=linear", runs=tmp_path_factory.mktemp("runs"))


def test_what_words_add_in_family_linear_adds_up_to_all_of_it(linear: tagline.Run) -> None:
    model = Linear.load(linear.bundle)
    assert model.weights is not None
    text = "The App crashed twice, and the refund has not arrived. The app!"
    for label in range(model.labels):
        scores = np.log(model.scores([text])[0].astype(np.float64))
        others = np.delete(np.arange(model.labels), label)
        constant = model.weights[-1, label] - model.weights[-1, others].mean()
        added = sum(push.weight for push in attribution.compute_attributions(model, text, label))
        assert added + constant == pytest.approx(scores[label] - scores[others].mean(), abs=1e-3)
    assert [text[push.start : push.end] for push in attribution.compute_attributions(model, text, 0)][:3] == [
        "The",
        "App",
        "crashed",
    ]


def hotels() -> Linear:
    """Family `linear`, learned from a few words on hotel rooms in Chinese."""
    texts = ["房间设施还可以,服务不错", "房间很干净,服务不错", "设施太旧了,服务很差", "房间太小,设施很差"] * 4
    rows = SimpleNamespace(texts=texts, targets=np.array([0, 0, 1, 1] * 4))
    model = Linear(LinearOptions(), task="single", labels=2, pair=False, class_weights="none")
    for _ in model.fit(rows, [], seed=0):  # type: ignore[arg-type]
        pass
    return model


def test_scripts_without_spaces_are_cut_in_family_linear_too_and_still_add_up() -> None:
    model = hotels()
    assert model.weights is not None
    text = "iPhone 房间设施还可以,服务很差 OK"
    found = attribution.compute_attributions(model, text, 1)
    pieces = ["iPhone", "房间", "设施", "还可", "以", ",", "服务", "很差", "OK"]
    assert [text[push.start : push.end] for push in found] == pieces
    assert pieces[int(np.argmax([push.weight for push in found]))] == "很差"
    other, score = model.scores([text])[0].astype(np.float64)
    constant = model.weights[-1, 1] - model.weights[-1, 0]
    assert sum(push.weight for push in found) + constant == pytest.approx(np.log(score / other), abs=1e-4)


def test_what_a_run_of_characters_adds_goes_to_its_own_characters() -> None:
    options = LinearOptions(words=0, characters=3)
    model = Linear(options, task="multi", labels=1, pair=False, class_weights="none")
    model.features = Features([("characters", [" 房", "还可以"])], np.ones(2, np.float32), options.feature_scope())
    model.weights = np.array([[1.0], [3.0], [0.0]])
    [added] = model.attribute_characters("x 房间还可以", 0)
    assert added * 2**0.5 == pytest.approx([0, 0, 1, 0, 1, 1, 1])


def test_the_same_holds_for_pairs(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "pairs.csv", "model.family=linear", runs=tmp_path)
    model = Linear.load(run.bundle)
    assert model.weights is not None
    pair = ("where is my parcel", "your parcel is with the carrier, where it waits")
    scores = np.log(model.scores([pair])[0].astype(np.float64))
    constant = model.weights[-1, 0] - model.weights[-1, 1:].mean()
    found = attribution.compute_attributions(model, pair, 0)
    assert sum(push.weight for push in found) + constant == pytest.approx(scores[0] - scores[1:].mean(), abs=1e-3)
    assert {push.side for push in found} == {0, 1}


def test_a_predictor_explains_an_answer_and_refuses_a_label_it_does_not_have(linear: tagline.Run) -> None:
    predictor = tagline.load(linear.bundle)
    text = "I was charged twice"
    strongest = max(predictor.explain(text, "billing"), key=lambda push: push.weight)
    assert text[strongest.start : strongest.end] == "charged"
    with pytest.raises(DataError, match='no label "nonsense"'):
        predictor.explain(text, "nonsense")


def test_letters_whose_lower_case_is_longer_do_not_move_the_words(linear: tagline.Run) -> None:
    text = "İİİİ charged İstanbul refund"
    found = tagline.load(linear.bundle).explain(text, "billing")
    assert [text[push.start : push.end] for push in found] == text.split()
