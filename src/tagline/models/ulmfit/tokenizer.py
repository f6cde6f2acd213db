"""Text as fastai's language models read it: marked by rules, cut into tokens, numbered by a vocabulary. No torch."""

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
"""In few texts and in many: of two a character in 600 short Japanese texts most were rare, and 23 % of a new text was
unknown; of 1.25 it is 9 %."""
CHARACTERS_A_PIECE = 40
"""Between the two: one piece for so many characters of all the texts together."""
LEARNED_FROM, LONGEST_LINE = 10_000_000, 5000
"""Characters of which pieces are learned at most, and of each line then: SentencePiece passes over longer ones."""
LOOKED_AT = 1000
"""Texts whose letters tell how they are cut."""
EUROPEAN = frozenset({
    "bg", "cs", "da", "de", "el", "en", "es", "et", "fi", "fr", "ga", "hr", "hu", "it", "lt", "lv", "mt", "nl", "pl",
    "pt", "ro", "sk", "sl", "sv",
})  # fmt: skip
"""Languages whose characters SentencePiece should all know; of Japanese or Chinese it leaves out the rarest."""
EXTRA = 'pip install "tagline[ulmfit]"'

LITERALS = (
    ("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), ("\\n", "\n"), ("quot;", "'"),
    ("<br />", "\n"), ('\\"', '"'), ("<unk>", UNKNOWN), (" @.@ ", "."), (" @-@ ", "-"), ("...", " …"),
)  # fmt: skip
"""What is left of HTML and of other tools' marks; the order matters."""
SAME_CHARACTER = re.compile(r"(\S)\1{2,}")
SAME_WORD = re.compile(r"(?:\s|^)(\w+)\s+((?:\1\s+)+)\1(\s|\W|$)")
SPACED = re.compile(r"([/#\\])")
SPACES = re.compile(r" {2,}")
ALL_CAPITALS = re.compile(r"(\s|^)([A-Z][^a-z\s]*)(?=\s|$)")
ONE_CAPITAL = re.compile(r"(\s|^)([A-Z][^A-Z\s]*)(?=\s|$)")
CHUNK = re.compile(r"\s+|\S+")
CACHED_CHUNKS, LONGEST_CACHED = 200_000, 100
REACH, LONGEST_ADDRESS = 32, 2000
"""Characters at either end of a chunk in which a prefix or a suffix is looked for, and of an address of the web. No
rule of spaCy's for the ends is as long, but for one of dots, of which `mark_text` leaves no such run; its rule for
addresses takes time that grows with the square of their length."""


def mark_text(text: "Text") -> str:
    """A text after fastai's eight rules, in their order; the two of a pair are joined as its columns are."""
    line = text if isinstance(text, str) else f"{FIELD} 1 {text[0]} {FIELD} 2 {text[1]}"
    for old, new in LITERALS:
        line = line.replace(old, new)
    line = html.unescape(line)
    line = SAME_CHARACTER.sub(lambda found: f" {REPEATED} {len(found[0])} {found[1]} ", line)
    line = SAME_WORD.sub(lambda found: f" {REPEATED_WORD} {len(found[2].split()) + 2} {found[1]} {found[3]}", line)
    line = SPACES.sub(" ", SPACED.sub(r" \1 ", line))
    for pattern, mark in ((ALL_CAPITALS, CAPITALS), (ONE_CAPITAL, CAPITAL)):
        line = pattern.sub(partial(_lower_word, mark=mark), line)
    return f"{START} {line.lower().strip()}"


def _lower_word(found: re.Match[str], *, mark: str) -> str:
    before, word = found[1], found[2].lower()
    return f"{before}{mark} {word}" if len(word) > 1 else before + word


class TextTokenizer(Protocol):
    """What cuts a marked text into tokens."""

    def __call__(self, line: str) -> list[str]:
        """The tokens of a marked text."""

    def save(self, directory: Path) -> None:
        """Write what `load_tokenizer` needs to cut in the same way."""


class _Chunk(NamedTuple):
    """Characters between spaces: the parts they are cut into, and the tokens that those make by themselves."""

    parts: tuple[str, ...]
    tokens: tuple[str, ...]


class SpacyTokenizer:
    """spaCy's rules for English words, run without spaCy: they are taken from it once, and saved with the model.

    A run of characters that are no space is looked up among the special cases; where it is none it loses what the
    prefix and suffix patterns match, end by end, until nothing more comes off, and the rest is cut at infixes.
    """

    FILE = "words.json"

    def __init__(self, patterns: Mapping[str, str], special: Mapping[str, Sequence[str]]) -> None:
        self.patterns = dict(patterns)
        self.special = {key: tuple(parts) for key, parts in special.items()}
        self._longest_special = max(map(len, self.special), default=0)
        self._prefix, self._suffix, self._infix, self._address = (
            re.compile(patterns[name]) for name in ("prefix", "suffix", "infix", "address")
        )
        # A special case that the patterns cut is found again among the parts, wherever they stand.
        self._hidden: dict[tuple[str, ...], str] = {}
        for key in self.special:
            if self._prefix.search(key) or self._suffix.search(key) or self._infix.search(key):
                self._hidden[tuple(self._split_chunk(key, special={}))] = key
        self._longest_hidden = max(map(len, self._hidden), default=0)
        self._linked = {pair for parts in self._hidden for pair in pairwise(parts)}
        self._cached = lru_cache(CACHED_CHUNKS)(self._cut_chunk)

    @classmethod
    def from_spacy(cls) -> Self:
        """The rules of the spaCy that is installed, with fastai's own marks among the special cases."""
        try:
            from spacy import blank
            from spacy.symbols import ORTH
        except ImportError as error:
            raise PlaceError("a word model needs spaCy's rules, and spaCy is not installed", hint=EXTRA) from error
        rules: Any = blank("en").tokenizer
        found = {
            "prefix": rules.prefix_search,
            "suffix": rules.suffix_search,
            "infix": rules.infix_finditer,
            "address": rules.url_match,
        }
        special = {key: tuple(part[ORTH] for part in parts) for key, parts in rules.rules.items()}
        patterns = {name: method.__self__.pattern for name, method in found.items()}
        return cls(patterns, special | {mark: (mark,) for mark in SPECIAL})

    def __call__(self, line: str) -> list[str]:
        """The words of a marked text; white space that is more than the one between two words is a token too."""
        tokens: list[str] = []
        run: list[_Chunk] = []
        after_word = False
        for chunk in CHUNK.findall(line):
            is_space = chunk.isspace()
            whole = chunk[1:] if is_space and after_word and chunk[0] == " " else chunk
            if whole:
                cut = self._cached(whole) if len(whole) <= LONGEST_CACHED else self._cut_chunk(whole)
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
        """The tokens of chunks between which a special case may seem to stand: it is none, but no other overlaps it."""
        if len(run) < 2:
            return run[0].tokens if run else ()
        parts = [part for chunk in run for part in chunk.parts]
        spaces = set(accumulate(len(chunk.parts) for chunk in run))
        return list(self._merge_special(parts, spaces=spaces))

    def _split_chunk(self, chunk: str, *, special: Mapping[str, Sequence[str]]) -> list[str]:
        """A chunk as it is cut from both ends, then in the middle; of a long one each cut looks at its ends alone."""
        before: list[str] = []
        after: list[str] = []
        start, stop, size = 0, len(chunk), -1

        def is_special(first: int, end: int) -> bool:
            return end - first <= self._longest_special and chunk[first:end] in special

        while start < stop and stop - start != size and not is_special(start, stop):
            size = stop - start
            found = self._prefix.match(chunk[start : min(start + REACH, stop)])
            front = found.end() if found else 0
            if front and is_special(start + front, stop):
                before.append(chunk[start : start + front])
                start += front
                break
            found = self._suffix.search(chunk[max(start + front, stop - REACH) : stop])
            back = found.end() - found.start() if found else 0
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
        for found in self._infix.finditer(rest):
            if found.start() == 0:
                continue
            parts += [part for part in (rest[start : found.start()], found[0]) if part]
            start = found.end()
        return [*parts, rest[start:]] if rest[start:] else parts

    def _merge_special(self, parts: Sequence[str], *, spaces: Collection[int] = ()) -> Iterator[str]:
        """The parts, with those that make a special case put in its form; the longest wins, then the first.

        One that has a space inside, before the parts at `spaces`, keeps its form, and keeps others from theirs.
        """
        runs = [
            (start, end)
            for start in range(len(parts))
            for end in range(start + 1, min(len(parts), start + self._longest_hidden) + 1)
            if tuple(parts[start:end]) in self._hidden
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
            yield from self.special[self._hidden[tuple(parts[place:end])]] if place in taken else parts[place:end]
            place = end

    def save(self, directory: Path) -> None:
        """The rules as JSON."""
        facts = {"patterns": self.patterns, "special": self.special}
        (directory / self.FILE).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, re.error) as error:
            raise SpecError(f"{path} is damaged: {first_line(error)}", hint="copy it again") from error


class SentencePieceTokenizer:
    """A SentencePiece model."""

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
        """A unigram model as fastai trains one, with its marks among the pieces; of very many texts, of some."""
        trainer = _import_sentencepiece().SentencePieceTrainer
        words: set[str] = set()
        characters: set[str] = set()
        length = 0
        model = io.BytesIO()
        # Files named to SentencePiece would leave their names in the model.
        with tempfile.TemporaryFile("w+", encoding="utf-8", prefix=atomic.SCRATCH_PREFIX) as file:
            every = 1 + sum(map(length_of, texts())) // LEARNED_FROM
            for line in map(mark_text, islice(texts(), 0, None, every)):
                words.update(line.split())
                characters.update(line)
                length += len(line)
                for start in range(0, len(line), LONGEST_LINE):
                    file.write(line[start : start + LONGEST_LINE].replace("\n", " ") + "\n")
            file.seek(0)
            # A quarter of the words, as fastai has it; where texts have no spaces that says nothing, characters do.
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
        """The pieces of a marked text."""
        pieces: list[str] = self._processor.EncodeAsPieces(line)
        return pieces

    def save(self, directory: Path) -> None:
        """The model as SentencePiece writes it."""
        (directory / self.FILE).write_bytes(self.content)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model, of whoever wrote it."""
        return cls(path.read_bytes(), where=str(path))


def _import_sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError as error:
        raise PlaceError("this model needs SentencePiece", hint=EXTRA) from error
    return sentencepiece


def choose_tokenizer(texts: "Callable[[], Iterable[Text]]", *, language: str) -> TextTokenizer:
    """What cuts texts of this language, or of the one they look like: English into words, any other into pieces."""
    from tagline.data.language_check import are_in_plain_letters

    code = language.partition("-")[0]
    # What a text in plain letters may be in beside English, words suit as well as pieces.
    is_english = are_in_plain_letters(islice(texts(), LOOKED_AT)) if language == "auto" else code == "en"
    return SpacyTokenizer.from_spacy() if is_english else SentencePieceTokenizer.learn(texts, european=code in EUROPEAN)


def load_tokenizer(directory: Path) -> TextTokenizer:
    """The cutter that stands in a model's directory; without one it is a word model of fastai's, cut as spaCy does."""
    if (directory / SentencePieceTokenizer.FILE).is_file():
        return SentencePieceTokenizer.load(directory / SentencePieceTokenizer.FILE)
    if (directory / SpacyTokenizer.FILE).is_file():
        return SpacyTokenizer.load(directory / SpacyTokenizer.FILE)
    return SpacyTokenizer.from_spacy()


class Lexicon:
    """A cutter and a vocabulary: texts in, token numbers out."""

    def __init__(self, cutter: TextTokenizer, vocabulary: Sequence[str]) -> None:
        self.cutter = cutter
        self.vocabulary = list(vocabulary)
        self._number = {token: number for number, token in enumerate(self.vocabulary) if token != FILLER}

    @classmethod
    def learn(cls, texts: "Iterable[Text]", cutter: TextTokenizer) -> Self:
        """The tokens that stand often enough in these texts, most frequent first, after fastai's marks."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(cutter(mark_text(text)))
        frequent = [token for token, count in counts.most_common() if count >= LEAST_COUNT and token not in SPECIAL]
        vocabulary = [*SPECIAL, *frequent][:MOST_TOKENS]
        return cls(cutter, vocabulary + [FILLER] * (8 - len(vocabulary) % 8))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """What `save` wrote."""
        return cls(load_tokenizer(directory), json.loads((directory / VOCABULARY).read_text("utf-8")))

    def save(self, directory: Path) -> None:
        """The vocabulary, and what cuts texts into its tokens."""
        (directory / VOCABULARY).write_text(json.dumps(self.vocabulary, ensure_ascii=False) + "\n", "utf-8")
        self.cutter.save(directory)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def ids(self, text: "Text") -> list[int]:
        """The numbers of a text's tokens; one that is not in the vocabulary is unknown, which is number 0."""
        number = self._number.get
        return [number(token, 0) for token in self.cutter(mark_text(text))]

    def known_share(self, texts: "Iterable[Text]") -> float:
        """Of all tokens of these texts but the mark that each begins with."""
        ids = [number for text in texts for number in self.ids(text)[1:]]
        return sum(map(bool, ids)) / max(len(ids), 1)

    def read(self, texts: "Iterable[Text]", *, most: int) -> "Iterator[list[Encoded]]":
        """Each text as one sequence; of one that is too long for any model, the end."""
        for text in texts:
            ids = self.ids(text)[-most:]
            yield [(ids, [0] * len(ids))]
