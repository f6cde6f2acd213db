"""Pretrained word vectors, from a text file as GloVe and word2vec write it or from a NumPy array."""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from tagline.errors import SpecError, first_line
from tagline.storage import addresses

Address = str | Path
Floats = NDArray[np.float32]
GZIP = b"\x1f\x8b"
FORMS = "a text file with a word and its numbers a line, or x.npy with its words, one a line, in x.txt"


def is_array(path: Address) -> bool:
    """Return whether this is a NumPy array, whose words are in a file beside it."""
    return str(path).endswith(".npy")


def words_of(path: Address) -> str:
    """Return the path of the file with an array's words."""
    return str(path).removesuffix(".npy") + ".txt"


def read_width(path: Address) -> int:
    """Return the dimension of the vectors."""
    if is_array(path):
        return int(_load_array(path).shape[1])
    with _open_lines(path) as lines:
        first, second = next(lines, b"").split(), next(lines, b"")
    if first and first[0].startswith(GZIP):
        raise SpecError(f"model.vectors: {path} is a gzip file", hint="unpack it: gunzip FILE")
    if _is_header(first):
        size = int(first[1])
        if second.strip() and len(second.rsplit(maxsplit=size)) != size + 1:  # before memory is allocated for so many
            raise _line_error(path, 2, f"has not {size} numbers after its word")
        return size
    if len(first) < 2:
        raise _line_error(path, 1, "is no word with its numbers")
    return len(first) - 1


def read(path: Address, words: Container[str]) -> dict[str, Floats]:
    """Return the vectors of the words that the file has; the first one where a word occurs twice."""
    rows = _rows_of_array(path, words) if is_array(path) else _rows_of_text(path, words)
    vectors: dict[str, Floats] = {}
    for number, word, values in rows:
        if not np.isfinite(values).all():
            raise _line_error(path, number, f"has a number for {word} that is not finite")
        vectors.setdefault(word, values)
    return vectors


def _rows_of_text(path: Address, words: Container[str]) -> Iterator[tuple[int, str, Floats]]:
    size = read_width(path)
    with _open_lines(path) as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and _is_header(line.split()):
                continue
            fields = line.rsplit(maxsplit=size)  # some words of the large files have spaces in them
            if len(fields) != size + 1:
                raise _line_error(path, number, f"has not {size} numbers after its word")
            if (known := fields[0].decode("utf-8", "replace").lower()) in words:
                try:
                    yield number, known, np.array(fields[1:], np.float32)
                except ValueError as error:
                    raise _line_error(path, number, f"has not {size} numbers after its word") from error


def _rows_of_array(path: Address, words: Container[str]) -> Iterator[tuple[int, str, Floats]]:
    array, words_path = _load_array(path), words_of(path)
    number = 0
    with _open_lines(words_path) as lines:
        for number, line in enumerate(lines, start=1):
            if number > len(array):
                break
            if (known := line.decode("utf-8", "replace").strip().lower()) in words:
                yield number, known, np.array(array[number - 1], np.float32)
    if number != len(array):
        raise SpecError(f"model.vectors: {words_path} must have a word for each of the {len(array)} rows of {path}")


def _load_array(path: Address) -> NDArray[Any]:
    try:
        array: Any = np.load(_fetch_path(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise SpecError(f"model.vectors: cannot read {path}: {error}", hint=f"give {FORMS}") from error
    if isinstance(array, np.ndarray) and array.ndim == 2 and array.size and np.issubdtype(array.dtype, np.floating):
        return array
    raise SpecError(f"model.vectors: {path} is not a table of numbers, a row a word", hint=f"give {FORMS}")


@contextmanager
def _open_lines(path: Address) -> Iterator[Iterator[bytes]]:
    """Open a file as an iterator of its lines."""
    try:
        with _fetch_path(path).open("rb") as file:
            yield file
    except (OSError, ValueError) as error:  # a name that no file can have raises ValueError
        why = getattr(error, "strerror", None) or first_line(error)
        raise SpecError(f"model.vectors: cannot read {path}: {why}", hint=f"give {FORMS}") from error


def _fetch_path(path: Address) -> Path:
    return addresses.fetch_copy(path).expanduser()


def _is_header(fields: Sequence[bytes]) -> bool:
    """Return whether this is word2vec's header: the number of words, and of values for each."""
    return len(fields) == 2 and all(field.isdigit() and len(field) < 10 for field in fields) and int(fields[1]) > 0


def _line_error(path: Address, line: int, what: str) -> SpecError:
    return SpecError(f"model.vectors: {path}:{line} {what}", hint=f"give {FORMS}")
