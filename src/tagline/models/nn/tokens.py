"""Texts as sequences of token ids, read with the tokenizers library alone and spooled to disk for training."""

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from tagline.models import model_files
from tagline.storage import atomic

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from tagline.data.dataset import Task
    from tagline.data.texts import Text

Ints = NDArray[np.int64]
LongTexts = Literal["start", "ends", "windows"]
Encoded = tuple[Sequence[int], Sequence[int]]
"""A sequence's token ids and token types; the type is 1 in the second text of a pair."""
TEXTS_AT_ONCE, CHARACTERS_AT_ONCE = 1024, 1_000_000


@dataclass(frozen=True)
class Reading:
    """How texts are turned into sequences for a network, and what its logits mean."""

    task: "Task"
    labels: int
    pair: bool
    max_tokens: int
    long_texts: LongTexts
    pad: int
    types: bool = False
    """Whether the network takes token types."""

    def __post_init__(self) -> None:
        numbers = {"labels": (self.labels, 1), "max_tokens": (self.max_tokens, 1), "pad": (self.pad, 0)}
        for name, (value, least) in numbers.items():
            if type(value) is not int or value < least:
                raise ValueError(f"reading.{name} is {value!r}")
        if self.task not in ("single", "multi") or self.long_texts not in get_args(LongTexts):
            raise ValueError(f"reading is for task {self.task!r} and long texts {self.long_texts!r}")


class TokenReader:
    """Tokenises texts into sequences of at most `max_tokens`."""

    def __init__(self, tokenizer: "Tokenizer", *, max_tokens: int, long_texts: LongTexts, pad: int = 0) -> None:
        self._tokenizer = type(tokenizer).from_str(tokenizer.to_str())  # a copy, since its settings are changed
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._long_texts = long_texts
        marks = self._tokenizer.encode("a").special_tokens_mask
        ids = self._tokenizer.encode("a").ids
        first = marks.index(0) if 0 in marks else len(marks)
        self._before = ids[:first]
        self._after = [token for token, mark in zip(ids[first:], marks[first:], strict=True) if mark]
        self._max_tokens = max_tokens
        self._pad = pad
        self._room = max_tokens - len(self._before) - len(self._after)

    def read(self, texts: "Iterable[Text]") -> Iterator[list[Encoded]]:
        """Yield the sequences of each text: one, or the windows of a long text."""
        remaining = iter(texts)
        while portion := _take_portion(remaining):
            is_whole = self._long_texts == "start"
            for encoding in self._tokenizer.encode_batch_fast(portion, add_special_tokens=is_whole):
                sequences = [self._cut_start(encoding)] if is_whole else self._cut_windows(encoding)
                # No network accepts an empty sequence: without special tokens, an empty text is one padding token.
                yield sequences if sequences[0][0] else [([self._pad], [0])]

    def _cut_start(self, encoding: "Encoding") -> Encoded:
        """Return the start of a text that is too long; in a pair the longer text is cut first, to half of the room.

        The library truncates the same way but keeps the overflow, in a pair every piece of one text with every piece of
        the other: for two texts of 50,000 characters that is more than a machine's memory.
        """
        ids, types = encoding.ids, encoding.type_ids
        if len(ids) <= self._max_tokens:
            return ids, types
        sides = encoding.sequence_ids  # None for a special token
        counts = sides.count(0), sides.count(1)
        room = max(self._max_tokens - sides.count(None), 0)
        shorter = min(*counts, room // 2)
        limits = (shorter, room - shorter) if counts[0] <= counts[1] else (room - shorter, shorter)
        for side in (1, 0):  # the second text first, so that the first one's indices stay valid
            if counts[side] > limits[side]:
                first = sides.index(side)
                for row in (ids, types):
                    del row[first + limits[side] : first + counts[side]]
        return ids, types

    def _cut_windows(self, encoding: "Encoding") -> list[Encoded]:
        """Return both ends of a text that is too long, or all of it in windows that overlap by a quarter."""
        ids, room = encoding.ids, self._room
        if len(ids) <= room:
            parts = [ids]
        elif self._long_texts == "ends":
            parts = [ids[: room - room // 2] + ids[len(ids) - room // 2 :]]
        else:
            stride = room - room // 4
            parts = [ids[start : start + room] for start in range(0, len(ids) - room // 4, stride)]
        whole = [[*self._before, *part, *self._after] for part in parts]
        return [(part, [0] * len(part)) for part in whole]


def length_of(text: "Text") -> int:
    """Return the number of characters of a text, or of both texts of a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _take_portion(texts: "Iterator[Text]") -> "list[Text]":
    """Return as many texts as the library should hold at once, since it keeps the whole encoding of long ones too."""
    portion: list[Text] = []
    characters = 0
    for text in texts:
        portion.append(text)
        characters += length_of(text)
        if len(portion) == TEXTS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            break
    return portion


@dataclass(frozen=True)
class Sequences:
    """Token sequences, concatenated; a text is one sequence or several consecutive ones."""

    ids: NDArray[Any]
    types: NDArray[np.uint8] | None
    starts: Ints
    """The start of each sequence, followed by the end of the last one."""
    rows: NDArray[np.int32]
    """The index of the text that each sequence is from."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of each sequence."""
        return (self.starts[1:] - self.starts[:-1]).astype(np.int32)

    def first(self, count: int) -> "Sequences":
        """Return the first `count` sequences."""
        return Sequences(self.ids, self.types, self.starts[: count + 1], self.rows[:count])

    def pad_batch(self, numbers: Ints, *, pad: int, backwards: bool = False) -> dict[str, Ints]:
        """Return these sequences as a padded batch, the inputs of a model's forward pass.

        With `backwards`, each sequence is reversed.
        """
        lengths = self.lengths[numbers]
        shape = (len(numbers), int(lengths.max()))
        inputs = {"input_ids": np.full(shape, pad, np.int64), "attention_mask": np.zeros(shape, np.int64)}
        if self.types is not None:
            inputs["token_type_ids"] = np.zeros(shape, np.int64)
        for place, (start, length) in enumerate(zip(self.starts[numbers].tolist(), lengths.tolist(), strict=True)):
            sequence = self.ids[start : start + length]
            inputs["input_ids"][place, :length] = sequence[::-1] if backwards else sequence
            inputs["attention_mask"][place, :length] = 1
            if self.types is not None:
                inputs["token_type_ids"][place, :length] = self.types[start : start + length]
        return inputs

    def pooled(self, scores: NDArray[np.float32], *, texts: int) -> NDArray[np.float32]:
        """Return the scores of the texts, each the mean over its windows."""
        if len(self) == texts:
            return scores
        starts = np.flatnonzero(np.diff(self.rows, prepend=-1))
        return np.asarray(np.add.reduceat(scores, starts) / np.bincount(self.rows)[:, None], np.float32)


@dataclass(frozen=True)
class PaddedSequences:
    """Sequences that are padded when a batch is made of them."""

    sequences: Sequences
    pad: int

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of each sequence."""
        return self.sequences.lengths

    def arrays(self, numbers: Ints) -> dict[str, Ints]:
        """Return the inputs of the forward pass for these sequences."""
        return self.sequences.pad_batch(numbers, pad=self.pad)

    def pooled(self, scores: NDArray[np.float32], *, texts: int) -> NDArray[np.float32]:
        """Return the scores of the texts, each the mean over its windows."""
        return self.sequences.pooled(scores, texts=texts)


class TokenPreprocessor:
    """Tokenises texts for a network, with the tokenizers library."""

    def __init__(self, tokenizer: "Tokenizer", reading: Reading) -> None:
        self.task, self.labels, self.pair = reading.task, reading.labels, reading.pair
        self.reader = TokenReader(
            tokenizer, max_tokens=reading.max_tokens, long_texts=reading.long_texts, pad=reading.pad
        )
        self._reading = reading

    @classmethod
    def load(cls, directory: Path, facts: str) -> Self:
        """Load it from a family's files: `tokenizer.json`, and `facts`, which has the `reading`."""
        from tokenizers import Tokenizer

        with model_files.translate_errors(directory / facts):
            reading = Reading(**model_files.read_json(directory / facts)["reading"])
        with model_files.translate_errors(directory / "tokenizer.json"):
            return cls(Tokenizer.from_file(str(directory / "tokenizer.json")), reading)

    def read(self, texts: "Sequence[Text]") -> PaddedSequences:
        """Tokenise some texts, in memory."""
        return PaddedSequences(in_memory(self.reader.read(texts), with_types=self._reading.types), self._reading.pad)


def in_memory(texts: Iterable[Sequence[Encoded]], *, with_types: bool) -> Sequences:
    """Collect the sequences of a few texts in memory."""
    ids, types, ends, rows = array("q"), array("B"), array("q", [0]), array("i")
    for row, sequences in enumerate(texts):
        for sequence_ids, sequence_types in sequences:
            ids.extend(sequence_ids)
            types.extend(sequence_types)
            ends.append(len(ids))
            rows.append(row)
    return Sequences(
        np.array(ids, np.int64),
        np.array(types, np.uint8) if with_types else None,
        np.array(ends, np.int64),
        np.array(rows, np.int32),
    )


def on_disk(texts: Iterable[Sequence[Encoded]], *, with_types: bool, vocabulary: int) -> Sequences:
    """Spool the sequences of any number of texts to unnamed temporary files, which vanish with the process."""
    kind = np.uint16 if vocabulary <= 2**16 else np.uint32
    lengths, rows = array("i"), array("i")
    scratch = tempfile.TemporaryFile
    with (
        atomic.disk_errors(Path(tempfile.gettempdir())),
        scratch(prefix=atomic.SCRATCH_PREFIX) as ids_file,
        scratch(prefix=atomic.SCRATCH_PREFIX) as types_file,
    ):
        for row, sequences in enumerate(texts):
            for ids, types in sequences:
                ids_file.write(np.asarray(ids, kind).tobytes())
                types_file.write(np.asarray(types if with_types else (), np.uint8).tobytes())
                lengths.append(len(ids))
                rows.append(row)
        for file in (ids_file, types_file):
            file.flush()
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.frombuffer(lengths, np.int32), out=starts[1:])
        size = (int(starts[-1]),)
        return Sequences(  # a memory map outlives its file handle
            np.memmap(ids_file, kind, mode="r", shape=size),
            np.memmap(types_file, np.uint8, mode="r", shape=size) if with_types else None,
            starts,
            np.array(rows, np.int32),
        )
