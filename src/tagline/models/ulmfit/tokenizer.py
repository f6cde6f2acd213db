"""Tokenisation as in fastai's language models: marking rules, a tokenizer and a vocabulary. No torch."""

import html
import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from tagline.errors import DataError, PlaceError, SpecError, first_line
from tagline.models.nn.tokens import length_of
from tagline.storage import atomic

if TYPE_CHECKING:
    from tagline.data.texts import Text
    from tagline.models.nn.tokens import Encoded

UNKNOWN, PAD, START, END, FIELD, REPEATED, REPEATED_WORD, CAPITALS, CAPITAL = (
    "xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj",
)  # fmt: skip
SPECIAL = (UNKNOWN, PAD, START, END, FIELD, REPEATED, REPEATED_WORD, CAPITALS, CAPITAL)
PAD_ID = 1
FILLER = "xxfake"
VOCABULARY = "vocab.json"
SPACE = "▁"
MOST_TOKENS, LEAST_COUNT = 60_000, 3
MOST_PIECES, FEWEST_PIECES = 30_000, 29
PIECES_A_CHARACTER = 1.25, 2.0
"""Pieces per distinct character, for few texts and for many: in 600 short Japanese texts, 2.0 made most pieces rare and
left 23 % of a new text unknown; with 1.25 it is 9 %."""
CHARACTERS_A_PIECE = 40
"""Between these bounds, one piece for so many characters of all texts."""
TRAINING_CHARACTERS, LONGEST_LINE = 10_000_000, 5000
"""Characters that pieces are learned from at most, and the length at which lines are cut: longer ones are skipped."""
SAMPLE_TEXTS = 1000
"""Texts whose letters decide the tokenizer."""
EUROPEAN = frozenset({
    "bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "ga", "hr", "hu", "it", "lt", "lv", "mt", "nl", "pl",
    "pt", "ro", "sk", "sl", "sv",
})  # fmt: skip
"""Languages of which SentencePiece should cover all characters; of Japanese or Chinese it leaves out the rarest."""
EXTRA = 'pip install "tagline[ulmfit]"'

LITERALS = (
    ("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), ("\\n", "\n"), ("quot;", "'"),
    ("<br />", "\n"), ('\\"', '"'), ("<unk>", UNKNOWN), (" @.@ ", "."), (" @-@ ", "-"), ("...", " …"),
)  # fmt: skip
"""Remains of HTML and of other tools' marks, with replacements; the order matters."""
SAME_CHARACTER = re.compile(r"(\S)\1{2,}")
SAME_WORD = re.compile(r"(?:\s|^)(\w+)\s+((?:\1\s+)+)\1(\s|\W|$)")
SPACED = re.compile(r"([/#\\])")
SPACES = re.compile(r" {2,}")
ALL_CAPITALS = re.compile(r"(\s|^)([A-Z][^a-z\s]*)(?=\s|$)")
ONE_CAPITAL = re.compile(r"(\s|^)([A-Z][^A-Z\s]*)(?=\s|$)")
CHUNK = re.compile(r"\s+|\S+")
CACHED_CHUNKS, LONGEST_CACHED = 200_000, 100
REACH, LONGEST_ADDRESS = 32, 2000
"""Characters at either end of a chunk that are searched for a prefix or suffix, and the longest URL that is matched. No
prefix or suffix rule of spaCy's is longer, but for runs of dots, which `mark_text` removes; its rule for URLs takes
time quadratic in their length."""


def mark_text(text: "Text") -> str:
    """Apply fastai's eight marking rules, in order; the texts of a pair are joined as fastai joins columns."""
    line = text if isinstance(text, str) else f"{FIELD} 1 {text[0]} {FIELD} 2 {text[1]}"
    for old, new in LITERALS:
        line = line.replace(old, new)
    line = html.unescape(line)
    line = SAME_CHARACTER.sub(lambda match: f" {REPEATED} {len(match[0])} {match[1]} ", line)
    line = SAME_WORD.sub(lambda match: f" {REPEATED_WORD} {len(match[2].split()) + 2} {match[1]} {match[3]}", line)
    line = SPACES.sub(" ", SPACED.sub(r" \1 ", line))
    for pattern, mark in ((ALL_CAPITALS, CAPITALS), (ONE_CAPITAL, CAPITAL)):
        line = pattern.sub(partial(_lower_word, mark=mark), line)
    return f"{START} {line.lower().strip()}"


def _lower_word(match: re.Match[str], *, mark: str) -> str:
    before, word = match[1], match[2].lower()
    return f"{before}{mark} {word}" if len(word) > 1 else before + word


class TextTokenizer(Protocol):
    """A tokenizer of marked texts."""

    def __call__(self, line: str) -> list[str]:
        """Return the tokens of a marked text."""

    def save(self, directory: Path) -> None:
        """Write the file that `load_tokenizer` reads."""


class _Chunk(NamedTuple):
    """A run of characters between spaces: the parts it is split into, and its tokens."""

    parts: tuple[str, ...]
    tokens: tuple[str, ...]


class SpacyTokenizer:
    """spaCy's rules for English words, run without spaCy: they are read from it once, and saved with the model.

    A run of non-space characters is looked up among the special cases; if it is none, prefixes and suffixes are split
    off until no more match, and the rest is split at infixes.
    """

    FILE = "words.json"

    def __init__(self, patterns: Mapping[str, str], special: Mapping[str, Sequence[str]]) -> None:
        self.patterns = dict(patterns)
        self.special = {key: tuple(parts) for key, parts in special.items()}
        self._longest_special = max(map(len, self.special), default=0)
        self._prefix, self._suffix, self._infix, self._address = (
            re.compile(patterns[name]) for name in ("prefix", "suffix", "infix", "address")
        )
        # A special case that the patterns split is recognised again among the parts.
        self._split_special: dict[tuple[str, ...], str] = {}
        for key in self.special:
            if self._prefix.search(key) or self._suffix.search(key) or self._infix.search(key):
                self._split_special[tuple(self._split_chunk(key, special={}))] = key
        self._longest_split_special = max(map(len, self._split_special), default=0)
        self._linked = {pair for parts in self._split_special for pair in pairwise(parts)}
        self._cached = lru_cache(CACHED_CHUNKS)(self._cut_chunk)

    @classmethod
    def from_spacy(cls) -> Self:
        """Read the rules of the installed spaCy, with fastai's marks among the special cases."""
        try:
            from spacy import blank
            from spacy.symbols import ORTH
        except ImportError as error:
            raise PlaceError("a word model needs spaCy's rules, and spaCy is not installed", hint=EXTRA) from error
        rules: Any = blank("en").tokenizer
        methods = {
            "prefix": rules.prefix_search,
            "suffix": rules.suffix_search,
            "infix": rules.infix_finditer,
            "address": rules.url_match,
        }
        special = {key: tuple(part[ORTH] for part in parts) for key, parts in rules.rules.items()}
        patterns = {name: method.__self__.pattern for name, method in methods.items()}
        return cls(patterns, special | {mark: (mark,) for mark in SPECIAL})

    def __call__(self, line: str) -> list[str]:
        """Return the words of a marked text; white space beyond one space between words is a token too."""
        tokens: list[str] = []
        run: list[_Chunk] = []
        after_word = False
        for chunk in CHUNK.findall(line):
            is_space = chunk.isspace()
            kept = chunk[1:] if is_space and after_word and chunk[0] == " " else chunk
            if kept:
                cut = self._cached(kept) if len(kept) <= LONGEST_CACHED else self._cut_chunk(kept)
                if run and (run[-1].parts[-1], cut.parts[0]) not in self._linked:
                    tokens.extend(self._join_chunks(run))
                    run = []
                run.append(cut)
            after_word = not is_space
        tokens.extend(self._join_chunks(run))
        return [token.replace(" ", SPACE) for token in tokens]

    def _cut_chunk(self, chunk: str) -> "_Chunk":
        parts = tuple(self._split_chunk(chunk, special=self.special))
        return _Chunk(parts, parts if len(parts) == 1 else tuple(self._merge_special(parts)))

    def _join_chunks(self, run: "Sequence[_Chunk]") -> Sequence[str]:
        """Return the tokens of chunks that a special case seems to span; it only blocks others that overlap it."""
        if len(run) < 2:
            return run[0].tokens if run else ()
        parts = [part for chunk in run for part in chunk.parts]
        spaces = set(accumulate(len(chunk.parts) for chunk in run))
        return list(self._merge_special(parts, spaces=spaces))

    def _split_chunk(self, chunk: str, *, special: Mapping[str, Sequence[str]]) -> list[str]:
        """Split a chunk from both ends, then in the middle; only the ends of a long one are searched."""
        before: list[str] = []
        after: list[str] = []
        start, stop, size = 0, len(chunk), -1

        def is_special(first: int, end: int) -> bool:
            return end - first <= self._longest_special and chunk[first:end] in special

        while start < stop and stop - start != size and not is_special(start, stop):
            size = stop - start
            match = self._prefix.match(chunk[start : min(start + REACH, stop)])
            front = match.end() if match else 0
            if front and is_special(start + front, stop):
                before.append(chunk[start : start + front])
                start += front
                break
            match = self._suffix.search(chunk[max(start + front, stop - REACH) : stop])
            back = match.end() - match.start() if match else 0
            if back and is_special(start, stop - back):
                after.append(chunk[stop - back : stop])
                stop -= back
                break
            if front and back and front + back > size:
                back = 0
            before += [chunk[start : start + front]] if front else []
            after += [chunk[stop - back : stop]] if back else []
            start, stop = start + front, stop - back
        return [*before, *self._split_middle(chunk[start:stop], special=special), *reversed(after)]

    def _split_middle(self, rest: str, *, special: Mapping[str, Sequence[str]]) -> list[str]:
        if rest in special:
            return list(special[rest])
        if not rest or (len(rest) <= LONGEST_ADDRESS and self._address.match(rest)):
            return [rest] if rest else []
        parts: list[str] = []
        start = 0
        for match in self._infix.finditer(rest):
            if match.start() == 0:
                continue
            parts += [part for part in (rest[start : match.start()], match[0]) if part]
            start = match.end()
        return [*parts, rest[start:]] if rest[start:] else parts

    def _merge_special(self, parts: Sequence[str], *, spaces: Collection[int] = ()) -> Iterator[str]:
        """Yield the parts, with runs that make a special case replaced by its tokens; the longest wins, then the first.

        A run across a space, before the parts at `spaces`, is not replaced, and blocks the runs that overlap it.
        """
        runs = [
            (start, end)
            for start in range(len(parts))
            for end in range(start + 1, min(len(parts), start + self._longest_split_special) + 1)
            if tuple(parts[start:end]) in self._split_special
        ]
        taken: dict[int, int] = {}
        seen: set[int] = set()
        for start, end in sorted(runs, key=lambda run: (run[0] - run[1], run[0])):
            is_whole = not any(start < space < end for space in spaces)
            if is_whole and start not in seen and end - 1 not in seen:
                taken[start] = end
            seen.update(range(start, end))
        place = 0
        while place < len(parts):
            end = taken.get(place, place + 1)
            yield from (
                self.special[self._split_special[tuple(parts[place:end])]] if place in taken else parts[place:end]
            )
            place = end

    def save(self, directory: Path) -> None:
        """Write the rules as JSON."""
        facts = {"patterns": self.patterns, "special": self.special}
        (directory / self.FILE).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load the file that `save` wrote."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, re.error) as error:
            raise SpecError(f"{path} is damaged: {first_line(error)}", hint="copy it again") from error


class SentencePieceTokenizer:
    """A tokenizer that runs a SentencePiece model."""

    FILE = "spm.model"

    def __init__(self, content: bytes, *, where: str = FILE) -> None:
        self.content = content
        self._processor: Any = _import_sentencepiece().SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(content)
        except (RuntimeError, ValueError) as error:
            hint = "it is the file that SentencePiece calls *.model; copy it again, as bytes"
            raise SpecError(f"{where} is no SentencePiece model", hint=hint) from error

    @classmethod
    def learn(cls, texts: "Callable[[], Iterable[Text]]", *, european: bool) -> Self:
        """Train a unigram model as fastai does, with its marks among the pieces; very many texts are sampled."""
        trainer = _import_sentencepiece().SentencePieceTrainer
        words: set[str] = set()
        characters: set[str] = set()
        length = 0
        model = io.BytesIO()
        # SentencePiece would store the name of an input file in the model.
        with tempfile.TemporaryFile("w+", encoding="utf-8", prefix=atomic.SCRATCH_PREFIX) as file:
            stride = 1 + sum(map(length_of, texts())) // TRAINING_CHARACTERS
            for line in map(mark_text, islice(texts(), 0, None, stride)):
                words.update(line.split())
                characters.update(line)
                length += len(line)
                for start in range(0, len(line), LONGEST_LINE):
                    file.write(line[start : start + LONGEST_LINE].replace("\n", " ") + "\n")
            file.seek(0)
            # A quarter of the words, as in fastai; for texts without spaces the number of characters decides.
            few, many = (int(pieces * len(characters)) for pieces in PIECES_A_CHARACTER)
            least = min(max(few, length // CHARACTERS_A_PIECE), many) + FEWEST_PIECES
            size = min(MOST_PIECES, max(len(words) // 4, least))
            try:
                trainer.Train(
                    sentence_iterator=iter(file),
                    model_writer=model,
                    vocab_size=-(-size // 8) * 8,
                    model_type="unigram",
                    character_coverage=0.99999 if european else 0.9998,
                    hard_vocab_limit=False,
                    user_defined_symbols=[SPACE + mark for mark in SPECIAL],
                    unk_id=len(SPECIAL),
                    pad_id=-1,
                    bos_id=-1,
                    eos_id=-1,
                    num_threads=1,
                    minloglevel=2,
                    max_sentence_length=20480,
                )
            except RuntimeError as error:
                raise DataError(f"no pieces can be learned from these texts: {first_line(error)}") from error
        return cls(model.getvalue())

    def __call__(self, line: str) -> list[str]:
        """Return the pieces of a marked text."""
        pieces: list[str] = self._processor.EncodeAsPieces(line)
        return pieces

    def save(self, directory: Path) -> None:
        """Write the model in SentencePiece's format."""
        (directory / self.FILE).write_bytes(self.content)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load a model, Tagline's or another."""
        return cls(path.read_bytes(), where=str(path))


def _import_sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError as error:
        raise PlaceError("this model needs SentencePiece", hint=EXTRA) from error
    return sentencepiece


def choose_tokenizer(texts: "Callable[[], Iterable[Text]]", *, language: str) -> TextTokenizer:
    """Return a tokenizer for the given or detected language: words for English, pieces for any other."""
    from tagline.data.language_check import are_in_plain_letters

    code = language.partition("-")[0]
    # Other languages in plain letters are served as well by words as by pieces.
    is_english = are_in_plain_letters(islice(texts(), SAMPLE_TEXTS)) if language == "auto" else code == "en"
    return SpacyTokenizer.from_spacy() if is_english else SentencePieceTokenizer.learn(texts, european=code in EUROPEAN)


def load_tokenizer(directory: Path) -> TextTokenizer:
    """Load the tokenizer of a model's directory; without its file, it is fastai's word model with spaCy's rules."""
    if (directory / SentencePieceTokenizer.FILE).is_file():
        return SentencePieceTokenizer.load(directory / SentencePieceTokenizer.FILE)
    if (directory / SpacyTokenizer.FILE).is_file():
        return SpacyTokenizer.load(directory / SpacyTokenizer.FILE)
    return SpacyTokenizer.from_spacy()


class Lexicon:
    """A tokenizer with a vocabulary: texts in, token numbers out."""

    def __init__(self, tokenizer: TextTokenizer, vocabulary: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = list(vocabulary)
        self._number = {token: number for number, token in enumerate(self.vocabulary) if token != FILLER}

    @classmethod
    def learn(cls, texts: "Iterable[Text]", tokenizer: TextTokenizer) -> Self:
        """Collect the tokens that are frequent enough in these texts, most frequent first, after fastai's marks."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenizer(mark_text(text)))
        frequent = [token for token, count in counts.most_common() if count >= LEAST_COUNT and token not in SPECIAL]
        vocabulary = [*SPECIAL, *frequent][:MOST_TOKENS]
        return cls(tokenizer, vocabulary + [FILLER] * (8 - len(vocabulary) % 8))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote."""
        return cls(load_tokenizer(directory), json.loads((directory / VOCABULARY).read_text("utf-8")))

    def save(self, directory: Path) -> None:
        """Write the vocabulary and the tokenizer's file."""
        (directory / VOCABULARY).write_text(json.dumps(self.vocabulary, ensure_ascii=False) + "\n", "utf-8")
        self.tokenizer.save(directory)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def ids(self, text: "Text") -> list[int]:
        """Return the numbers of a text's tokens; 0 is a token that is not in the vocabulary."""
        number = self._number.get
        return [number(token, 0) for token in self.tokenizer(mark_text(text))]

    def known_share(self, texts: "Iterable[Text]") -> float:
        """Return the share of these texts' tokens that are known, without the mark that each text begins with."""
        ids = [number for text in texts for number in self.ids(text)[1:]]
        return sum(map(bool, ids)) / max(len(ids), 1)

    def read(self, texts: "Iterable[Text]", *, most: int) -> "Iterator[list[Encoded]]":
        """Yield each text as one sequence; of a text that is too long, the end."""
        for text in texts:
            ids = self.ids(text)[-most:]
            yield [(ids, [0] * len(ids))]
