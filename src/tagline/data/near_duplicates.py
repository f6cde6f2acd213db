"""Texts that are nearly the same: found by MinHash among any number of them, then compared word by word."""

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tagline.data.texts import Text

WORD = re.compile(r"\w+")
SHINGLE = 3
FEWEST_WORDS = 8
FEWEST_LETTERS = 24
"""That a text must have, in words or, without spaces, in letters: of short ones many are alike by nature."""
BANDS, ROWS = 12, 3
"""Texts that share 8 in 10 of their shingles meet in one of the bands 999 times in 1,000; 3 in 10: 28 in 100."""
ALIKE = 0.8
MOST_IN_BUCKET = 50
"""Of texts that all look alike the first few are compared: a form letter is one finding, not a million."""

Shingles = NDArray[np.uint64]


def find_pairs(first: Iterable["Text"], second: Iterable["Text"]) -> list[tuple[int, int, float]]:
    """Texts of the first list with the text of the second that they are most like, and how alike they are."""
    ours, theirs = _hash_long_texts(first), _hash_long_texts(second)
    if not ours or not theirs:
        return []
    my_numbers, their_numbers = list(ours), list(theirs)
    best: dict[int, tuple[float, int]] = {}
    for i, j in _find_candidates(_compute_signatures(list(ours.values())), _compute_signatures(list(theirs.values()))):
        mine, other = my_numbers[i], their_numbers[j]
        alike = _jaccard_similarity(ours[mine], theirs[other])
        if alike >= ALIKE and (alike, -other) > best.get(mine, (0.0, 0)):
            best[mine] = alike, -other
    return [(mine, -other, alike) for mine, (alike, other) in sorted(best.items())]


def cluster_texts(texts: Iterable["Text"]) -> NDArray[np.int64]:
    """A number for each text, the same for those that are nearly the same, if only by way of others."""
    every = list(texts)
    found = np.arange(len(every))
    known = _hash_long_texts(every)
    if not known:
        return found
    numbers, signatures = list(known), _compute_signatures(list(known.values()))
    for i, j in _find_candidates(signatures, signatures):
        first, second = (_find_root(found, numbers[each]) for each in (i, j))
        if first != second and _jaccard_similarity(known[numbers[i]], known[numbers[j]]) >= ALIKE:
            found[max(first, second)] = min(first, second)
    return np.array([_find_root(found, number) for number in range(len(every))], np.int64)


def _find_root(found: NDArray[np.int64], number: int) -> int:
    """The first text of a cluster, to which each of its texts leads."""
    while found[number] != number:
        number = int(found[number])
    return number


def _hash_long_texts(texts: Iterable["Text"]) -> dict[int, Shingles]:
    """The shingles of those texts that are long enough for being alike to mean something."""
    found = ((number, hash_shingles(text)) for number, text in enumerate(texts))
    return {number: each for number, each in found if len(each)}


def hash_shingles(text: "Text") -> Shingles:
    """Every three words in a row, as numbers; four letters in a row where few words are long; none of a short text."""
    joined = text if isinstance(text, str) else "\n".join(text)
    words = WORD.findall(joined.casefold())
    run = "".join(words)
    if len(words) >= FEWEST_WORDS:
        parts = [" ".join(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)]
    elif len(run) >= FEWEST_LETTERS * max(1, len(words) // 2):
        parts = [run[i : i + 4] for i in range(len(run) - 3)]
    else:
        parts = []
    return np.unique(np.array([zlib.crc32(part.encode("utf-8", "surrogatepass")) for part in parts], dtype=np.uint64))


def _compute_signatures(sets: list[Shingles]) -> NDArray[np.uint64]:
    """A few numbers a text, of which two texts share as large a part as of their shingles."""
    flat = np.concatenate(sets)
    starts = np.concatenate([[0], np.cumsum([len(each) for each in sets])[:-1]])
    random = np.random.default_rng(0)
    found = np.empty((len(sets), BANDS * ROWS), dtype=np.uint64)
    for column in range(BANDS * ROWS):
        factor = random.integers(2**64, dtype=np.uint64) | np.uint64(1)
        # The product's upper half: in whole numbers of 64 bits it wraps around, which is what orders shingles anew.
        found[:, column] = np.minimum.reduceat((flat * factor) >> np.uint64(32), starts)
    return found


def _find_candidates(ours: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Pairs whose signatures agree on a whole band, each once."""
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        columns = slice(band * ROWS, (band + 1) * ROWS)
        buckets: dict[bytes, list[int]] = {}
        for number, key in enumerate(_band_keys(theirs[:, columns])):
            bucket = buckets.setdefault(key, [])
            if len(bucket) < MOST_IN_BUCKET:
                bucket.append(number)
        for mine, key in enumerate(_band_keys(ours[:, columns])):
            for other in buckets.get(key, ()):
                if (mine, other) not in seen:
                    seen.add((mine, other))
                    yield mine, other


def _band_keys(values: NDArray[np.uint64]) -> list[bytes]:
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return [row.tobytes() for row in rows]


def _jaccard_similarity(first: Shingles, second: Shingles) -> float:
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared)
