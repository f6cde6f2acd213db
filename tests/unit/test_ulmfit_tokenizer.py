"""Texts as fastai's models read them: rules, words without spaCy, pieces, vocabularies."""

import csv
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagline.errors import SpecError
from tagline.models.ulmfit import tokenizer as fastai_text
from tagline.models.ulmfit.checkpoints import read
from tagline.models.ulmfit.tokenizer import SPECIAL, Lexicon, SentencePieceTokenizer, SpacyTokenizer, mark_text

Fixture = Callable[[str], Path]
MODELS = ("en_forward", "en_backward", "ja_forward")


@pytest.fixture(scope="module")
def words() -> SpacyTokenizer:
    return SpacyTokenizer.from_spacy()


@pytest.fixture(scope="module")
def spacy_tokenizer() -> Any:
    from spacy import blank
    from spacy.symbols import ORTH

    tokenizer: Any = blank("en").tokenizer
    for mark in SPECIAL:
        tokenizer.add_special_case(mark, [{ORTH: mark}])
    return tokenizer


@pytest.mark.parametrize("name", MODELS)
def test_fastai_makes_the_same_ids(fastai: Fixture, name: str) -> None:
    directory = fastai(name)
    lexicon = read(str(directory)).lexicon
    for text in json.loads((directory / "expected.json").read_text("utf-8"))["texts"]:
        line = mark_text(text["raw"])
        assert line == text["after_rules"][-1][1]
        assert lexicon.tokenizer(line) == text["tokens"]
        assert lexicon.ids(text["raw"]) == text["ids"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", MODELS)
def test_fastai_makes_the_same_ids_of_500_texts_of_a_corpus(fastai: Fixture, corpus: Fixture, name: str) -> None:
    directory = fastai(name)
    lexicon = read(str(directory)).lexicon
    check = json.loads((directory / "corpus_check.json").read_text("utf-8"))
    with corpus(check["dataset"]).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))[check["rows_from"] : check["rows_to_exclusive"]]
    sums = [zlib.crc32(np.array(lexicon.ids(row[check["column"]]), "<i4").tobytes()) for row in rows]
    assert sums == check["crc32"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It&#39;s <br /> soooo good", "xxbos xxmaj it&'s \n s xxrep 4 o good"),
        ("no no no no", "xxbos xxwrep 4 no"),
        ("HELP me, John", "xxbos xxup help me, xxmaj john"),
        ("a/b #tag", "xxbos a / b # tag"),
        ("", "xxbos "),
        (("Is it?", "Yes"), "xxbos xxfld 1 xxmaj is it? xxfld 2 xxmaj yes"),
    ],
)
def test_what_the_rules_make_of_a_text(text: Any, expected: str) -> None:
    assert mark_text(text) == expected


ODD = [
    "xxbos don't can't won't shan't I'd've", "xxbos :-) (^_^) <3 :'( ;) foo:)bar", "xxbos (a.b@c.com) http://x.y/z?q=1.",
    "xxbos U.S.A. e.g. 5km 10% $5.00 3-4 well-known x--y", "xxbos \n\n two  spaces\t tab",
    "xxbos ...!!! ''quoted'' `x`", "xxbos ' ''a ''b",
    "xxbos naïve café—dash “curly” l'été", "xxbos 1,000,000.50 a.m. 5pm 12/3/2020", "xxbos xxmaj ma'am y'all o'clock",
    "xxbos ¯\\(ツ)/¯ 👍🏽 日本語 한국어", "xxbos not(c++)and/or,this;that", "xxbos \u00a0 nbsp \u3000 wide",
]  # fmt: skip


@pytest.mark.parametrize("line", ODD)
def test_odd_words_are_cut_as_spacy_cuts_them(words: SpacyTokenizer, spacy_tokenizer: Any, line: str) -> None:
    assert words(line) == [token.text.replace(" ", "▁") for token in spacy_tokenizer(line)]


PARTS = st.sampled_from([
    *"aB1.,'\"!?()-:;/$%@&*_=+<>[]{}#~^| \n\t",
    "n't", "'s", "...", ":)", "can", "don't", "u.s.", "http://", ".com", "—", "’", "é", "日", "\u00a0", "  ",
    "km", "xxmaj",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PARTS, max_size=25).map("".join))
def test_any_words_are_cut_as_spacy_cuts_them(words: SpacyTokenizer, spacy_tokenizer: Any, text: str) -> None:
    line = mark_text(text)
    assert words(line) == [token.text.replace(" ", "▁") for token in spacy_tokenizer(line)]


LONG = [")(", ".,", "a:b", "😀🎉", "'s", "5km.", "a-b", "u.s.", ")a(", "http://x.y/"]


@pytest.mark.parametrize("part", LONG)
def test_long_chunks_are_cut_as_spacy_cuts_them(words: SpacyTokenizer, spacy_tokenizer: Any, part: str) -> None:
    line = mark_text(f"before {part * 150} after")
    assert words(line) == [token.text.replace(" ", "▁") for token in spacy_tokenizer(line)]


class Counting:
    """A pattern, and how many characters it was given to look at."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.seen = pattern, 0

    def match(self, string: str) -> re.Match[str] | None:
        self.seen += len(string)
        return self.pattern.match(string)

    def search(self, string: str) -> re.Match[str] | None:
        self.seen += len(string)
        return self.pattern.search(string)


@pytest.mark.parametrize("part", LONG)
def test_work_grows_with_a_chunk_and_not_with_its_square(part: str) -> None:
    words, long = SpacyTokenizer.from_spacy(), part * 3000
    found = {name: Counting(getattr(words, name)) for name in ("_prefix", "_suffix", "_address")}
    for name, counting in found.items():
        setattr(words, name, counting)
    assert "".join(words(long)) == long
    assert sum(counting.seen for counting in found.values()) < 80 * len(long)
    assert words._cached.cache_info().currsize == 0  # what is as long does not come again


def test_a_long_word_of_capitals_is_looked_at_once() -> None:
    """With a pattern that goes back for every letter this takes ten minutes."""
    assert mark_text("ACGT" * 25_000 + "b") == "xxbos " + "acgt" * 25_000 + "b"


def test_saved_rules_cut_as_before_and_need_no_spacy(words: SpacyTokenizer, tmp_path: Path) -> None:
    words.save(tmp_path)
    again = SpacyTokenizer.load(tmp_path / "words.json")
    for line in ODD:
        assert again(line) == words(line)


def test_a_vocabulary_has_the_frequent_tokens_after_the_marks(words: SpacyTokenizer) -> None:
    lexicon = Lexicon.learn(["the cat sat"] * 3 + ["the dog"] * 2, words)
    assert lexicon.vocabulary[:9] == list(SPECIAL)
    assert lexicon.vocabulary[9:12] == ["the", "cat", "sat"]
    assert len(lexicon) % 8 == 0
    assert lexicon.ids("the dog xxfake") == [2, 9, 0, 0]


def test_pieces_are_learned_and_know_the_marks() -> None:
    texts = [f"今日は天気が良いです。{number}番目の文。" for number in range(60)] + ["とても良いホテルでした！"] * 20
    pieces = SentencePieceTokenizer.learn(lambda: texts, european=False)
    assert pieces(mark_text("良い天気"))[0] == "▁xxbos"
    assert "".join(pieces(mark_text("良い天気"))).endswith("良い天気")
    again = SentencePieceTokenizer.learn(lambda: texts, european=False)
    assert again.content == pieces.content


def test_pieces_are_learned_of_texts_of_any_length() -> None:
    """SentencePiece itself passes over lines of more than 20 kB, without a word."""
    long = "".join(f"{number}日目は良い天気でした。" for number in range(700))
    pieces = SentencePieceTokenizer.learn(lambda: [long, long], european=False)
    assert "<unk>" not in pieces(mark_text(long))
    assert len(pieces(mark_text(long))) > 1000


def test_of_very_many_texts_pieces_are_learned_of_some_that_lie_all_over(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number} cats and {number} dogs went out" for number in range(400)]
    monkeypatch.setattr(fastai_text, "TRAINING_CHARACTERS", 1 + sum(map(len, texts)) // 4)
    some = SentencePieceTokenizer.learn(lambda: texts, european=True)
    monkeypatch.undo()
    assert some.content == SentencePieceTokenizer.learn(lambda: texts[::4], european=True).content


def test_few_texts_without_spaces_leave_little_of_a_new_one_unknown() -> None:
    """Pieces that hardly any text has would be unknown, all of their characters with them."""
    random = Random(0)
    kanji = [chr(number) for number in random.sample(range(0x4E00, 0x5000), 300)]
    terms = ["".join(random.choices(kanji, k=random.randint(1, 3))) for _ in range(600)]
    rarity = [1 / (1 + number) for number in range(len(terms))]
    texts = ["".join(random.choices(terms, rarity, k=8)) + "。" for _ in range(800)]
    few, new = texts[:400], texts[600:]
    lexicon = Lexicon.learn(few, SentencePieceTokenizer.learn(lambda: few, european=False))
    ids = [number for text in new for number in lexicon.ids(text)]
    assert ids.count(0) / len(ids) < 0.08


def test_what_is_no_sentencepiece_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "spm.model"
    path.write_bytes(b"not a model")
    with pytest.raises(SpecError, match=r"spm\.model is no SentencePiece model"):
        SentencePieceTokenizer.load(path)
