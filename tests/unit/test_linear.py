"""The linear family against scikit-learn, the reference."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tagline.errors import BundleError, DataError
from tagline.models import linear
from tagline.models.linear import Linear, LinearOptions
from tagline.models.linear.regression import RegressionProblem, minimise_loss
from tagline.models.linear.tfidf import Features, FeatureScope

TEXTS = [
    "The parcel never arrived.", "Where is my parcel?", "I was charged twice!", "Please refund the charge, please.",
    "The app crashes on start", "app crash after update", "Thank you, great service", "great app, thank you",
] * 4  # fmt: skip
TARGETS = np.array([0, 0, 1, 1, 2, 2, 3, 3] * 4)
WORDS = FeatureScope(words=1, characters=0, max_characters=1000)


def features(*, words: int, characters: int, min_rows: int = 1, max_features: int = 1000) -> Features:
    scope = FeatureScope(words, characters, max_characters=1000)
    return Features.learn(TEXTS, scope, pair=False, min_rows=min_rows, max_features=max_features)


def dense(learned: Features, texts: list[str]) -> np.ndarray:
    starts, columns, values = learned.transform_texts(texts)
    matrix = np.zeros((len(texts), len(learned)))
    for row in range(len(texts)):
        matrix[row, columns[starts[row] : starts[row + 1]]] = values[starts[row] : starts[row + 1]]
    return matrix


def test_word_features_are_those_of_scikit_learn() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    reference = TfidfVectorizer(token_pattern=r"\w{1,100}|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    expected = reference.fit_transform(TEXTS).toarray()
    learned = features(words=2, characters=0)
    assert learned.blocks[0].terms == sorted(reference.vocabulary_)
    assert np.allclose(dense(learned, TEXTS), expected, atol=1e-6)


def test_each_block_of_a_text_has_length_one() -> None:
    learned = features(words=1, characters=3)
    matrix = dense(learned, TEXTS)
    words = len(learned.blocks[0].terms)
    assert np.allclose(np.linalg.norm(matrix[:, :words], axis=1), 1, atol=1e-6)
    assert np.allclose(np.linalg.norm(matrix[:, words:], axis=1), 1, atol=1e-6)


def test_a_text_of_unknown_words_has_no_features() -> None:
    starts, columns, _ = features(words=1, characters=0).transform_texts(["xyzzy", "parcel"])
    assert starts.tolist() == [0, 0, 1]
    assert len(columns) == 1


def test_a_text_in_another_script_is_scored_as_an_empty_one() -> None:
    learned = features(words=2, characters=5)
    assert all(term.strip() for block in learned.blocks for term in block.terms)
    starts, _, _ = learned.transform_texts(["", "🦄🦄🦄", "안녕하세요", "ελληνικά"])
    assert starts.tolist() == [0] * 5


def with_padding_as_a_feature() -> Linear:
    """A model as they were learned before padding alone was left out."""
    options = LinearOptions(words=0, characters=2)
    model = Linear(options, task="single", labels=2, pair=False, class_weights="none")
    model.features = Features([("characters", [" ", " a", "a", "a "])], np.ones(4, np.float32), options.feature_scope())
    model.weights = np.array([[2.0, 0.0], [1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.0]])
    return model


def test_a_bundle_that_knows_padding_answers_as_it_was_measured(tmp_path: Path) -> None:
    with_padding_as_a_feature().save(tmp_path)
    model = Linear.load(tmp_path)
    assert model.scores(["🦄"])[0, 0] == pytest.approx(1 / (1 + np.exp(-2)))
    [added] = model.attribute_characters("a 🦄", 0)
    [[score, other]] = model.scores(["a 🦄"]).astype(np.float64)
    assert added.sum() == pytest.approx(np.log(score / other), abs=1e-5)


def test_however_few_products_are_held_at_once_the_scores_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Linear(LinearOptions(), task="multi", labels=3, pair=False, class_weights="none")
    model.features = features(words=2, characters=4)
    model.weights = np.random.default_rng(0).normal(size=(len(model.features) + 1, 3))
    texts = ["", *TEXTS, "🦄", TEXTS[0] * 20, ""]
    expected = model.scores(texts)
    for most in (1, 100, 1000):
        monkeypatch.setattr(linear, "PRODUCTS_AT_ONCE", most)
        assert np.array_equal(model.scores(texts), expected)


def test_a_bundle_holds_its_weights_once_and_a_checkpoint_all_their_digits(tmp_path: Path) -> None:
    for resumable, kind in ((False, np.float32), (True, np.float64)):
        with_padding_as_a_feature().save(tmp_path, resumable=resumable)
        weights = Linear.load(tmp_path).weights
        assert weights is not None
        assert weights.dtype == kind


def test_names_weights_and_rarities_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with_padding_as_a_feature().save(tmp_path)
    (tmp_path / "vocabulary.json").write_text("[]")
    with pytest.raises(BundleError, match=r"vocabulary\.json is damaged: .* 0 features have names"):
        Linear.load(tmp_path)


def test_learning_goes_on_with_the_features_it_began_with(tmp_path: Path) -> None:
    with_padding_as_a_feature().save(tmp_path, resumable=True)
    model = Linear.load(tmp_path)
    rows = SimpleNamespace(texts=["a", "b a", "a a", "b"], targets=np.array([0, 1, 0, 1]))
    for _ in model.fit(rows, [], seed=0):  # type: ignore[arg-type]
        pass
    assert model.features is not None
    assert model.features.blocks[0].terms == [" ", " a", "a", "a "]


def test_the_most_frequent_features_are_kept() -> None:
    learned = features(words=1, characters=0, max_features=3)
    assert learned.blocks[0].terms == [",", "app", "the"]  # in 12 rows each, all others in 8 or 4


@pytest.mark.parametrize("strength", [1.0, 16.0])
def test_weights_are_those_of_scikit_learns_logistic_regression(strength: float) -> None:
    learned = features(words=1, characters=0)
    problem = RegressionProblem(learned, TEXTS, np.eye(4)[TARGETS], task="single", balanced=False)
    weights, done = problem.start(), False
    while not done:
        weights, _, done = problem.improve(weights, strength=strength)
    reference = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000).fit(dense(learned, TEXTS), TARGETS)
    # scikit-learn leaves the mean of each feature over the labels free; so do these scores
    ours = dense(learned, TEXTS) @ weights[:-1] + weights[-1]
    theirs = reference.decision_function(dense(learned, TEXTS))
    assert np.allclose(ours - ours.mean(1, keepdims=True), theirs - theirs.mean(1, keepdims=True), atol=0.02)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    rows = [i for i in range(len(TEXTS)) if TARGETS[i] != 3 or i < 8]
    texts, targets = [TEXTS[i] for i in rows], TARGETS[rows]
    learned = features(words=1, characters=0)
    problem = RegressionProblem(learned, texts, np.eye(4)[targets], task="single", balanced=True)
    weights, done = problem.start(), False
    while not done:
        weights, _, done = problem.improve(weights, strength=1.0)
    reference = LogisticRegression(class_weight="balanced", tol=1e-8).fit(dense(learned, texts), targets)
    ours = dense(learned, texts) @ weights[:-1] + weights[-1]
    theirs = reference.decision_function(dense(learned, texts))
    assert np.allclose(ours - ours.mean(1, keepdims=True), theirs - theirs.mean(1, keepdims=True), atol=0.02)


def test_descent_finds_the_lowest_point_of_a_narrow_valley() -> None:
    scale = np.geomspace(1, 1e3, 20)

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        away = point - np.arange(20)
        return float((scale * away**2).sum()), 2 * scale * away

    point, value, done = minimise_loss(loss, np.zeros(20), iterations=500, tolerance=1e-4)
    assert done
    assert value < 1e-6
    assert np.allclose(point, np.arange(20), atol=1e-3)


def test_descent_says_when_it_has_not_arrived() -> None:
    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        return float((point**4).sum()), 4 * point**3

    _, _, done = minimise_loss(loss, np.full(3, 100.0), iterations=2, tolerance=1e-9)
    assert not done


def test_a_pair_is_seen_side_by_side_and_by_what_it_shares() -> None:
    pairs = [("where is it", "it is here"), ("who are you", "nobody")] * 3
    learned = Features.learn(pairs, WORDS, pair=True, min_rows=1, max_features=1000)
    terms = {block.name: block.terms for block in learned.blocks}
    assert terms["words of both"] == ["is", "it"]
    assert terms["words added"] == ["here", "nobody"]
    assert set(terms) == {"words of first", "words of second", "words of both", "words added"}


def test_a_feature_stands_in_as_many_rows_as_asked_however_few_there_are() -> None:
    """Of 32 texts 16 is the most that can be asked: some words stand in 12 of them, none in 16."""
    assert features(words=1, characters=0, min_rows=12).blocks[0].terms == [",", "app", "the"]
    with pytest.raises(DataError, match="stands in enough training texts") as error:
        features(words=1, characters=0, min_rows=1000)
    assert "model.min_rows" in (error.value.hint or "")
    learned = Features.learn(["one", "two", "three"], WORDS, pair=False, min_rows=2, max_features=1000)
    assert learned.blocks[0].terms == ["one", "three", "two"]
