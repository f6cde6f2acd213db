"""The lstm family: each of its options, its vocabulary, word vectors good and bad, and what is in its bundle."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from samples import DATA, LONG, SUPPORT, bundle, contents, go_on
from tokenizers import Tokenizer

from tagline.data import dataset
from tagline.data.dataset import Dataset, Split
from tagline.errors import BundleError, SpecError
from tagline.models.lstm import Lstm, LstmOptions, usual_epochs
from tagline.models.nn import vocabulary, word_vectors
from tagline.models.nn.recurrent import BidirectionalLstm, PoolingLayer, RecurrentHead, seed_layers
from tagline.prediction.bundle import load_classifier
from tagline.spec import Training
from tagline.storage import addresses

pytestmark = pytest.mark.trains

POOLINGS = ["max", "mean", "max+mean", "attention"]
BUNDLE = {"model.safetensors", "tokenizer.json", "lstm.json"}


@pytest.fixture(scope="module")
def single() -> Dataset:
    return dataset.load(DATA["single"])


def new(data: Dataset, *, training: dict[str, Any] | None = None, **options: Any) -> Lstm:
    settings = Training(**{"epochs": 2, "batch_size": 16, **(training or {})})
    small = {"embedding": "auto" if "vectors" in options else 16, "hidden": 12, "max_tokens": 32, "min_count": 2}
    chosen = LstmOptions(**{**small, **options})
    return Lstm.create(chosen, training=settings, task=data.task, labels=data.labels, pair=data.pair)


def learned(data: Dataset, *, steps: int = 10_000, **settings: Any) -> Lstm:
    return go_on(new(data, **settings), data, steps=steps)


def network(model: Lstm) -> torch.nn.Module:
    assert model.learner
    return model.learner.network


def words_of(model: Lstm) -> dict[str, int]:
    assert model.learner
    return dict(model.learner.tokenizer.get_vocab())


@pytest.mark.parametrize(
    "options",
    [
        {"vocabulary": "letters"}, {"vocabulary_size": 3}, {"embedding": 0}, {"hidden": 0}, {"layers": 0},
        {"dropout": 1.0}, {"word_dropout": -0.1}, {"pooling": "last"}, {"max_tokens": 4}, {"min_count": 0},
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LstmOptions(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"vocabulary": "words"}, {"layers": 2}, {"dropout": 0.0, "word_dropout": 0.0}, {"vocabulary_size": 60},
        {"long_texts": "ends"}, {"long_texts": "windows", "max_tokens": 8}, {"max_batch_tokens": 40},
        *({"pooling": pooling} for pooling in POOLINGS),
    ],
    ids=str,
)  # fmt: skip
def test_with_every_option_it_learns_and_goes_on_to_the_same_bits(
    single: Dataset, tmp_path: Path, options: dict[str, Any]
) -> None:
    texts = [*single.splits["test"].texts, LONG]
    whole = learned(single, **options)
    assert np.array_equal(Lstm.load(bundle(whole, tmp_path / "bundle")).scores(texts), whole.scores(texts))
    stopped = bundle(learned(single, steps=3, **options), tmp_path / "stopped", resumable=True)
    resumed = go_on(Lstm.load(stopped), single)
    assert contents(bundle(resumed, tmp_path / "resumed")) == contents(tmp_path / "bundle")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_like_float32(single: Dataset, precision: str) -> None:
    texts = list(single.splits["train"].texts)
    half, full = (learned(single, training={"precision": chosen}) for chosen in (precision, "float32"))
    assert np.abs(half.scores(texts) - full.scores(texts)).mean() < 0.02


@pytest.mark.parametrize("task", list(DATA))
def test_how_many_tokens_are_computed_at_once_changes_nothing(task: str) -> None:
    data = dataset.load(DATA[task])
    settings = {"training": {"class_weights": "balanced"}, "dropout": 0.0, "word_dropout": 0.0}
    large, small = learned(data, **settings), learned(data, max_batch_tokens=40, **settings)
    texts = list(data.splits["test"].texts)
    assert np.allclose(large.scores(texts), small.scores(texts), atol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_scores_do_not_depend_on_padding(single: Dataset, pooling: str) -> None:
    model = learned(single, steps=2, pooling=pooling, layers=2)
    assert np.allclose(model.scores(["hello", LONG])[0], model.scores(["hello"])[0], atol=1e-6)


def test_its_graph_is_a_copy_that_may_be_moved_elsewhere(single: Dataset) -> None:
    model = learned(single, steps=1)
    before = model.scores(["where is it"])
    for parameter in model.graph().parameters():
        parameter.data.zero_()
    assert model.scores(["where is it"]) == pytest.approx(before)


def test_the_states_are_those_of_packed_sequences() -> None:
    """What padding cannot reach is checked against torch's own way."""
    with seed_layers(0):
        layer, states = BidirectionalLstm(5, 3), torch.randn(4, 7, 5)
    lengths = torch.tensor([7, 1, 4, 6])
    theirs = torch.nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    theirs.load_state_dict(
        {
            name + end: tensor
            for end, lstm in (("", layer.onwards), ("_reverse", layer.backwards))
            for name, tensor in lstm.state_dict().items()
        }
    )
    packed = torch.nn.utils.rnn.pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    places = torch.arange(7)
    found = layer(states, torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places))
    mask = (places < lengths[:, None])[:, :, None]
    assert torch.allclose(found * mask, expected, atol=1e-6)


def test_states_are_pooled_without_the_padding() -> None:
    states, mask = torch.tensor([[[1.0, -5.0], [3.0, -1.0], [99.0, 99.0]]]), torch.tensor([[1, 1, 0]])
    assert PoolingLayer(2, "max")(states, mask).tolist() == [[3, -1]]
    assert PoolingLayer(2, "mean")(states, mask).tolist() == [[2, -3]]
    assert PoolingLayer(2, "max+mean")(states, mask).tolist() == [[3, -1, 2, -3]]
    attention = PoolingLayer(2, "attention")
    assert attention.attention is not None
    attention.attention.weight.data = torch.tensor([[100.0, 0.0]])
    assert attention(states, mask).tolist() == [[3, -1]]


def test_what_is_drawn_follows_from_the_seed_whatever_was_drawn_before(single: Dataset) -> None:
    found = []
    for before in (1, 2):
        torch.manual_seed(before)
        state = torch.get_rng_state()
        with seed_layers(3):
            RecurrentHead(4, 2, hidden=3)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(learned(single).scores(["hello"]))
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(learned(single, training={"seed": 7}).scores(["hello"]), found[0])


def test_before_it_has_learned_it_has_no_scores_and_can_still_be_saved(single: Dataset, tmp_path: Path) -> None:
    model = new(single)
    with pytest.raises(RuntimeError, match="learned nothing"):
        model.scores(["hello"])
    loaded = Lstm.load(bundle(model, tmp_path / "empty", resumable=True))
    assert {path.name for path in (tmp_path / "empty").iterdir()} == {"lstm.json"}
    with pytest.raises(RuntimeError, match="learned nothing"):
        loaded.scores(["hello"])
    assert np.array_equal(go_on(loaded, single).scores(["hello"]), learned(single).scores(["hello"]))


def test_the_bundle_holds_what_predicting_needs_and_no_more(single: Dataset, tmp_path: Path) -> None:
    model = learned(single, steps=1)
    assert {path.name for path in bundle(model, tmp_path / "bundle").iterdir()} == BUNDLE
    names = {path.name for path in bundle(model, tmp_path / "checkpoint", resumable=True).iterdir()}
    assert names == {*BUNDLE, "optimizer.safetensors"}
    assert Tokenizer.from_file(str(tmp_path / "bundle" / "tokenizer.json")).get_vocab() == words_of(model)


@pytest.mark.parametrize("kind", ["subwords", "words"])
def test_the_vocabulary_is_that_of_the_training_split_alone(single: Dataset, kind: Any) -> None:
    splits = {name: Split([name * 2] * 20, np.arange(20) % 2, np.arange(20)) for name in ("train", "validation")}
    model = new(single, vocabulary=kind)
    next(iter(model.fit(splits["train"], splits["validation"], seed=1)))
    start = vocabulary.WORD_START if kind == "subwords" else ""
    assert f"{start}traintrain" in words_of(model)
    assert not any("d" in token for token in words_of(model) if not token.startswith("["))


@pytest.mark.parametrize("kind", ["subwords", "words"])
def test_the_same_texts_give_the_same_bytes_in_every_process(kind: str) -> None:
    code = f"""
import csv, sys
from tagline.models.nn import vocabulary
texts = [row["message"] for row in csv.DictReader(open({str(SUPPORT / "messages.csv")!r}))]
texts += ["東京は晴れ、大阪は雨。", "今日は東京へ行く", "ｶﾀｶﾅ Ａ", "좋은 영화 좋은 배우"]
sys.stdout.buffer.write(vocabulary.train_tokenizer(texts, {kind!r}, size=900, min_count=1).to_str().encode())
"""
    found = {
        hashlib.sha256(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout).digest()
        for _ in range(3)
    }
    assert len(found) == 1


def test_pieces_of_words_need_no_spaces_and_forms_of_a_letter_are_one() -> None:
    texts = ["東京は晴れです", "大阪は晴れです", "東京は雨です", "ＡＢＣ abc"] * 3
    tokenizer = vocabulary.train_tokenizer(texts, "subwords", size=200, min_count=2)
    assert tokenizer.get_vocab_size() <= 200
    assert tokenizer.encode("東京は晴れです").tokens == ["▁東京は晴れです", vocabulary.END]
    assert vocabulary.UNKNOWN not in tokenizer.encode("大阪は雨").tokens
    assert tokenizer.encode("ＡＢＣ").ids == tokenizer.encode("abc").ids
    assert tokenizer.encode("Ω").tokens[1:] == [vocabulary.UNKNOWN, vocabulary.END]


def test_no_more_characters_and_words_are_kept_than_there_is_room_for() -> None:
    texts = ["".join(map(chr, range(0x4E00, 0x4E00 + 500))) + "一一 一一"] * 2
    for kind in ("subwords", "words"):
        assert vocabulary.train_tokenizer(texts, kind, size=40, min_count=1).get_vocab_size() <= 40  # type: ignore[arg-type]
    assert "一" in vocabulary.train_tokenizer(texts, "subwords", size=40, min_count=1).get_vocab()


@pytest.mark.parametrize("kind", ["subwords", "words"])
@pytest.mark.parametrize("texts", [["", ""], [" ", "\0"], ["!", "?"]])
def test_from_texts_without_words_it_learns_that_there_are_none(single: Dataset, kind: Any, texts: list[str]) -> None:
    split = Split(texts, np.array([0, 1]), np.arange(2))
    model = new(single, vocabulary=kind)
    for _ in model.fit(split, split, seed=1):
        pass
    assert np.isfinite(model.scores(["", "hello", "!" * 1000])).all()


def test_the_two_texts_of_a_pair_are_told_apart() -> None:
    model = learned(dataset.load(DATA["pair"]))
    one, other = model.scores([("refund", "parcel"), ("parcel", "refund")])
    assert not np.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("long_texts", ["ends", "windows"])
def test_only_the_start_of_a_pair_can_be_read(long_texts: str) -> None:
    with pytest.raises(SpecError, match=r"model\.long_texts.*single texts"):
        new(dataset.load(DATA["pair"]), long_texts=long_texts)


def test_the_fewer_rows_the_more_epochs() -> None:
    found = [usual_epochs(rows, batch_size=32) for rows in (1, 300, 3_000, 30_000, 3_000_000)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 40
    assert found[-1] == 5


TEXT_FILES = {
    "glove": "refund 1 2 3\nparcel -1 .5 1e-2\n. . . 7 7 7\n",
    "word2vec": "3 3\nrefund 1 2 3 \nParcel -1 0.5 0.01 \nzebra 0 0 0 \n",
    "tabs and a second time": "refund\t1\t2\t3\r\nparcel\t-1\t0.5\t0.01\r\nrefund\t9\t9\t9\r\n",
}


@pytest.mark.parametrize("form", [*TEXT_FILES, "npy"])
@pytest.mark.parametrize("kind", ["subwords", "words"])
def test_known_words_start_from_the_vectors_of_others(single: Dataset, tmp_path: Path, form: str, kind: Any) -> None:
    path = tmp_path / ("x.npy" if form == "npy" else "x.vec")
    if form == "npy":
        np.save(path, np.array([[1, 2, 3], [-1, 0.5, 0.01]], np.float16))
        path.with_suffix(".txt").write_text("refund\nparcel\n")
    else:
        path.write_text(TEXT_FILES[form])
    model = new(single, vectors=str(path), vocabulary=kind)
    train = single.splits["train"]
    learner = model._create_learner(train.texts)
    table, numbers = learner.network.get_parameter("embedding.weight"), learner.tokenizer.get_vocab()
    start = vocabulary.WORD_START if kind == "subwords" else ""
    assert table.shape[1] == 3
    assert table[numbers[f"{start}refund"]].tolist() == [1, 2, 3]
    assert table[numbers[f"{start}parcel"]].tolist() == pytest.approx([-1, 0.5, 0.01], abs=1e-4)
    assert 0.5 < max(map(abs, table[numbers[vocabulary.UNKNOWN]].tolist())) < 10  # as far from 0 as those
    path.unlink()
    assert np.isfinite(
        go_on(Lstm.load(bundle(_with(model, learner), tmp_path / "b")), single, steps=1).scores(["x"])
    ).all()


def _with(model: Lstm, learner: Any) -> Lstm:
    model.learner = learner
    return model


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r"x\.vec:1 is no word with its numbers"),
        ("refund\n", r"x\.vec:1 is no word with its numbers"),
        ("refund 1 2\nparcel 1\n", r"x\.vec:2 has not 2 numbers"),
        ("refund 1 2\n\nparcel 1 2\n", r"x\.vec:2 has not 2 numbers"),
        ("2 3\nparcel 1 2 3\nrefund 1 2\n", r"x\.vec:3 has not 3 numbers"),
        ("refund 1 two\n", r"x\.vec:1 has not 2 numbers"),
        ("refund 1 nan\n", r"x\.vec:1 has a number for refund that is not finite"),
        ("zebra 1 2\n", r"has none of the words of the training texts"),
    ],
)
def test_a_malformed_file_of_vectors_is_named_with_its_line(
    single: Dataset, tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "x.vec"
    path.write_text(content)
    with pytest.raises(SpecError, match=complaint):
        new(single, vectors=str(path))._create_learner(single.splits["train"].texts)


def test_a_missing_or_unfit_array_of_vectors_is_said(single: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for value, complaint in (
        (None, "cannot read"),
        (np.zeros(3), "not a table"),
        (np.array([[{}]]), "cannot read"),
        (np.zeros((2, 0)), "not a table"),
        (np.array([["a"]]), "not a table"),
    ):
        if value is not None:
            np.save(path, value, allow_pickle=True)
        with pytest.raises(SpecError, match=complaint):
            new(single, vectors=str(path))
    np.save(path, np.zeros((2, 3)))
    model = new(single, vectors=str(path))
    for beside, complaint in (
        (None, "x.txt: No such file"),
        ("refund\n", "a word for each"),
        ("a\nb\nc\n", "for each"),
    ):
        if beside is not None:
            path.with_suffix(".txt").write_text(beside)
        with pytest.raises(SpecError, match=complaint):
            model._create_learner(single.splits["train"].texts)
    with pytest.raises(SpecError, match=r"cannot read .*no\.vec: No such file"):
        new(single, vectors=str(tmp_path / "no.vec"))


def test_vectors_are_fetched_from_a_bucket_with_their_words(
    single: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    (tmp_path / "x.txt").write_text("refund\n")
    monkeypatch.setattr(addresses, "fetch_copy", lambda address: tmp_path / str(address).removeprefix("gs://bucket/"))
    model = new(single, vectors="gs://bucket/x.npy")
    learner = model._create_learner(single.splits["train"].texts)
    number = learner.tokenizer.token_to_id(f"{vocabulary.WORD_START}refund")
    assert learner.network.get_parameter("embedding.weight")[number].tolist() == [1, 1, 1]


def test_another_size_than_that_of_the_vectors_is_refused(single: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "x.vec"
    path.write_text("refund 1 2 3\n")
    with pytest.raises(SpecError, match=r"model\.embedding: .* has 3 numbers a word, not 4"):
        new(single, vectors=str(path), embedding=4)
    assert new(single, vectors=str(path), embedding=3).embedding == 3


def test_of_a_file_of_vectors_only_the_words_asked_for_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.vec"
    path.write_text("".join(f"word{number} {number} 1\n" for number in range(1000)))
    assert {word: values.tolist() for word, values in word_vectors.read(path, {"word7", "no"}).items()} == {
        "word7": [7, 1]
    }


def test_the_rate_can_be_the_users_own(single: Dataset) -> None:
    for rate, expected in ((1e-3, 1e-3), ("auto", None)):
        model = new(single, training={"learning_rate": rate, "warmup_share": 0.0})
        step = next(iter(model.fit(single.splits["train"], single.splits["validation"], seed=42)))
        assert expected is None or step.settings["learning_rate"] == expected
        assert step.settings["learning_rate"] > 0


def test_weights_are_plain_names(single: Dataset, tmp_path: Path) -> None:
    found = load_file(bundle(learned(single, steps=1), tmp_path / "b") / "model.safetensors")
    assert {name.partition(".")[0] for name in found} == {"embedding", "head"}


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("v.txt", b"2 300000000\nparcel 1 2 3\nwhere 4 5 6\n", "v.txt:2 has not 300000000 numbers"),
        ("v.txt.gz", b"\x1f\x8b\x08\x00 more", "is a gzip file"),
        ("a\0b", None, "cannot read"),
    ],
)
def test_vectors_that_are_something_else_are_named(
    tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SpecError, match=complaint):
        word_vectors.read(tmp_path / name, {"parcel"})


def test_an_archive_of_arrays_is_no_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", a=np.ones((2, 3)))
    (tmp_path / "v.npz").rename(tmp_path / "v.npy")
    with pytest.raises(SpecError, match="is not a table of numbers"):
        word_vectors.read_width(tmp_path / "v.npy")


def test_a_checkpoint_without_its_words_is_damaged(single: Dataset, tmp_path: Path) -> None:
    directory = bundle(learned(single, steps=1), tmp_path / "kept", resumable=True)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(BundleError, match="is damaged"):
        load_classifier("lstm", directory)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "lstm.json"])
@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"[" * 100_000, b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_damaged_checkpoint_is_named(single: Dataset, tmp_path: Path, name: str, content: bytes) -> None:
    directory = bundle(learned(single, steps=1), tmp_path / "kept", resumable=True)
    (directory / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"kept/{re.escape(name)} is damaged"):
        load_classifier("lstm", directory)
