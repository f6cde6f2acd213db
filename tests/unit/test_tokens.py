"""Texts as token sequences: what is read of long ones, where special tokens stand, padding, and files on disk."""

import json
import resource
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tagline.errors import PlaceError
from tagline.models.nn import tokens
from tagline.models.nn.tokens import TokenReader

BERT_CLS, BERT_SEP = 2, 3
ROBERTA_CLS, ROBERTA_SEP = 0, 2
WORD = "refund"


@pytest.fixture(scope="module")
def bert(checkpoint: Callable[[str], Path]) -> Any:
    return Tokenizer.from_file(str(checkpoint("bert") / "tokenizer.json"))


@pytest.fixture(scope="module")
def roberta(checkpoint: Callable[[str], Path]) -> Any:
    return Tokenizer.from_file(str(checkpoint("roberta") / "tokenizer.json"))


def read(tokenizer: Any, texts: Iterable[Any], *, max_tokens: int = 12, long_texts: Any = "start") -> list[Any]:
    """The ids of every sequence of every text."""
    found = TokenReader(tokenizer, max_tokens=max_tokens, long_texts=long_texts).read(texts)
    return [[list(ids) for ids, _ in sequences] for sequences in found]


def words(tokenizer: Any, count: int) -> tuple[str, list[int]]:
    """A text of this many different tokens, and their ids."""
    known = [word for word in sorted(tokenizer.get_vocab()) if word.isascii() and word.isalpha() and len(word) > 1]
    text = " ".join(known[:count])
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    assert len(ids) == len(set(ids)) == count
    return text, ids


@pytest.mark.parametrize("long_texts", ["start", "ends", "windows"])
@pytest.mark.parametrize("count", [1, 2, 9, 10])
def test_a_text_that_fits_is_read_whole(bert: Any, long_texts: str, count: int) -> None:
    text, ids = words(bert, count)
    assert read(bert, [text], long_texts=long_texts) == [[[BERT_CLS, *ids, BERT_SEP]]]


@pytest.mark.parametrize("long_texts", ["start", "ends", "windows"])
@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_text_is_its_special_tokens(bert: Any, long_texts: str, text: str) -> None:
    assert read(bert, [text], long_texts=long_texts) == [[[BERT_CLS, BERT_SEP]]]


@pytest.mark.parametrize("long_texts", ["start", "ends", "windows"])
def test_without_special_tokens_an_empty_text_is_one_of_padding(bert: Any, long_texts: Any) -> None:
    facts = json.loads(bert.to_str()) | {"post_processor": None}
    reader = TokenReader(Tokenizer.from_str(json.dumps(facts)), max_tokens=12, long_texts=long_texts, pad=7)
    assert [[list(ids) for ids, _ in some] for some in reader.read(["", WORD])] == [[[7]], [[bert.token_to_id(WORD)]]]


@pytest.mark.parametrize("count", [11, 23, 100])
def test_of_a_long_text_the_start_is_read(bert: Any, count: int) -> None:
    text, ids = words(bert, count)
    assert read(bert, [text]) == [[[BERT_CLS, *ids[:10], BERT_SEP]]]


@pytest.mark.parametrize("count", [11, 23, 100])
def test_of_a_long_text_both_ends_are_read(bert: Any, count: int) -> None:
    text, ids = words(bert, count)
    assert read(bert, [text], long_texts="ends") == [[[BERT_CLS, *ids[:5], *ids[-5:], BERT_SEP]]]
    assert read(bert, [text], long_texts="ends", max_tokens=11) == [[[BERT_CLS, *ids[:5], *ids[-4:], BERT_SEP]]]


@pytest.mark.parametrize("count", [*range(11, 40), 100])
def test_windows_hold_all_of_a_long_text_and_overlap_by_a_quarter(bert: Any, count: int) -> None:
    text, ids = words(bert, count)
    [windows] = read(bert, [text], long_texts="windows")
    assert all(window[0] == BERT_CLS and window[-1] == BERT_SEP and len(window) <= 12 for window in windows)
    inside = [window[1:-1] for window in windows]
    assert list(dict.fromkeys(token for window in inside for token in window)) == ids
    for before, after in pairwise(inside):
        assert len(before) == 10
        assert before[-2:] == after[:2]
        assert len(after) > 2, "a window with nothing new in it"


@pytest.mark.parametrize("max_tokens", [3, 4, 5, 6])
@pytest.mark.parametrize("long_texts", ["start", "ends", "windows"])
def test_very_little_room_is_enough(bert: Any, long_texts: str, max_tokens: int) -> None:
    text, ids = words(bert, 9)
    [sequences] = read(bert, [text], max_tokens=max_tokens, long_texts=long_texts)
    assert all(2 < len(sequence) <= max_tokens for sequence in sequences)
    assert sequences[0][1] == ids[0]


@pytest.mark.parametrize("long_texts", ["ends", "windows"])
def test_special_tokens_stand_where_the_tokenizer_puts_them(roberta: Any, long_texts: str) -> None:
    ids = roberta.encode(f"{WORD} " * 50, add_special_tokens=False).ids
    [sequences] = read(roberta, [f"{WORD} " * 50], long_texts=long_texts)
    for sequence in sequences:
        assert (sequence[0], sequence[-1]) == (ROBERTA_CLS, ROBERTA_SEP)
        assert not {ROBERTA_CLS, ROBERTA_SEP} & set(sequence[1:-1])
    assert sequences[0][1:4] == ids[:3]


def test_of_a_long_pair_the_longer_side_is_cut_first(bert: Any) -> None:
    long, ids = words(bert, 40)
    short, short_ids = words(bert, 2)
    [[(found, types)]] = TokenReader(bert, max_tokens=12, long_texts="start").read([(long, short)])
    assert found == [BERT_CLS, *ids[:7], BERT_SEP, *short_ids, BERT_SEP]
    assert types == [0] * 9 + [1] * 3


@pytest.mark.parametrize("max_tokens", [5, 12, 13])
@pytest.mark.parametrize("first", [0, 1, 4, 5, 6, 30])
@pytest.mark.parametrize("second", [0, 1, 4, 5, 6, 30])
def test_a_long_pair_is_cut_as_the_library_cuts_it(
    bert: Any, roberta: Any, max_tokens: int, first: int, second: int
) -> None:
    pair = words(bert, first)[0], words(bert, second)[0]
    for tokenizer in (bert, roberta):
        theirs = type(tokenizer).from_str(tokenizer.to_str())
        theirs.enable_truncation(max_tokens, strategy="longest_first")
        expected = theirs.encode(*pair)
        [[found]] = TokenReader(tokenizer, max_tokens=max_tokens, long_texts="start").read([pair])
        assert found == (expected.ids, expected.type_ids)


def test_a_pair_of_very_long_texts_is_read(roberta: Any) -> None:
    [[(found, _)]] = TokenReader(roberta, max_tokens=12, long_texts="start").read([("ab" * 100_000, "ba" * 100_000)])
    assert len(found) == 12


def test_a_pair_of_nothing_is_its_special_tokens(bert: Any) -> None:
    assert read(bert, [("", "")]) == [[[BERT_CLS, BERT_SEP, BERT_SEP]]]


def test_a_pair_has_types_where_the_encoder_knows_them(bert: Any) -> None:
    reader = TokenReader(bert, max_tokens=12, long_texts="start")
    pairs = [("refund", "refund please"), ("hello", "")]
    padded = tokens.in_memory(reader.read(pairs), with_types=True).pad_batch(np.arange(2), pad=0)
    assert padded["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 0, 0]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]
    assert "token_type_ids" not in tokens.in_memory(reader.read(pairs), with_types=False).pad_batch(np.arange(2), pad=0)


@pytest.mark.parametrize("long_texts", ["start", "ends", "windows"])
@pytest.mark.parametrize("text", ["a" * 200_000, f"{WORD} " * 28_600, "👩‍👩‍👧" * 40_000], ids=["a", "words", "emoji"])
def test_a_text_of_200000_characters_is_read(bert: Any, roberta: Any, long_texts: str, text: str) -> None:
    for tokenizer in (bert, roberta):
        [sequences] = read(tokenizer, [text], max_tokens=64, long_texts=long_texts)
        assert len(sequences) == 1 or long_texts == "windows"
        assert all(len(sequence) <= 64 for sequence in sequences)


def test_special_tokens_that_a_user_types_do_not_move_the_real_ones(bert: Any) -> None:
    for long_texts in ("start", "ends", "windows"):
        [sequences] = read(bert, ["[SEP] [CLS] hello [PAD] [MASK]"], long_texts=long_texts)
        assert all((sequence[0], sequence[-1]) == (BERT_CLS, BERT_SEP) for sequence in sequences)


def test_the_tokenizer_given_is_not_changed(bert: Any) -> None:
    before = bert.to_str()
    read(bert, ["a" * 500, "b"])
    assert bert.to_str() == before


def test_a_tokenizer_that_was_saved_with_padding_and_truncation_reads_all_the_same(bert: Any) -> None:
    """As sentence-transformers saves it."""
    text, ids = words(bert, 9)
    other = Tokenizer.from_str(bert.to_str())
    other.enable_padding(length=128)
    other.enable_truncation(4)
    for long_texts in ("start", "ends", "windows"):
        assert read(other, [text], long_texts=long_texts) == [[[BERT_CLS, *ids, BERT_SEP]]]


def test_more_texts_than_are_read_at_once_keep_their_order(bert: Any) -> None:
    count = 2 * tokens.TEXTS_AT_ONCE + 3
    found = read(bert, (str(number % 10) for number in range(count)))
    alone = {str(digit): read(bert, [str(digit)])[0] for digit in range(10)}
    assert found == [alone[str(number % 10)] for number in range(count)]


def test_of_long_texts_few_are_read_at_once(bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["parcel " * 20, "a", ("where is it " * 3, "there"), "", "b " * 50, "c"]
    expected = read(bert, texts)
    monkeypatch.setattr(tokens, "CHARACTERS_AT_ONCE", 100)
    assert read(bert, texts) == expected
    remaining = iter(texts)
    assert [len(tokens._take_portion(remaining)) for _ in range(4)] == [1, 4, 1, 0]


@pytest.mark.parametrize("pad", [0, 1])
def test_shorter_sequences_are_filled_up_with_the_padding_token(pad: int) -> None:
    found = tokens.in_memory([[([5, 6, 7], [0, 0, 0])], [([8], [0])]], with_types=False)
    padded = found.pad_batch(np.array([1, 0]), pad=pad)
    assert padded["input_ids"].tolist() == [[8, pad, pad], [5, 6, 7]]
    assert padded["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]


sequence = st.lists(st.integers(0, 70_000), min_size=1, max_size=20).map(lambda ids: (ids, [1] * len(ids)))


@given(texts=st.lists(st.lists(sequence, min_size=1, max_size=3), min_size=1, max_size=10), with_types=st.booleans())
def test_what_is_kept_on_disk_is_what_would_be_in_memory(texts: Any, with_types: bool) -> None:
    on_disk = tokens.on_disk(texts, with_types=with_types, vocabulary=70_001)
    in_memory = tokens.in_memory(texts, with_types=with_types)
    assert len(on_disk) == len(in_memory) == sum(map(len, texts))
    assert on_disk.rows.tolist() == [row for row, sequences in enumerate(texts) for _ in sequences]
    assert on_disk.lengths.tolist() == [len(ids) for sequences in texts for ids, _ in sequences]
    every = np.arange(len(on_disk))
    for name, array in in_memory.pad_batch(every, pad=0).items():
        assert np.array_equal(on_disk.pad_batch(every, pad=0)[name], array)


@pytest.mark.parametrize(("vocabulary", "kind"), [(600, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_a_token_takes_as_few_bytes_as_the_vocabulary_allows(vocabulary: int, kind: Any) -> None:
    found = tokens.on_disk([[([0, vocabulary - 1], [0, 0])]], with_types=False, vocabulary=vocabulary)
    assert found.ids.dtype == kind
    assert found.ids.tolist() == [0, vocabulary - 1]


def test_what_is_kept_on_disk_has_no_name_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = tokens.on_disk([[([1, 2], [0, 0])]], with_types=True, vocabulary=9)
    assert list(tmp_path.iterdir()) == []
    assert found.ids.tolist() == [1, 2]


def test_a_full_disk_is_said() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(PlaceError, match="cannot write"):
            tokens.on_disk([[([1] * 1000, [0] * 1000)]] * 10, with_types=False, vocabulary=9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
