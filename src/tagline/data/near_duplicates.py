"""Near duplicates: candidates by MinHash, verified by the Jaccard similarity of their shingles."""

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
"""Minimum length of a text, in words or, without spaces, in letters: short texts are often alike by chance."""
BANDS, ROWS = 12, 3
"""Texts that share 8 in 10 of their shingles share a band's bucket 999 times in 1,000; 3 in 10: 28 in 100."""
ALIKE = 0.8
MOST_IN_BUCKET = 50
"""Of many texts in a bucket the first few are compared: a form letter should be one finding, not a million."""

Shingles = NDArray[np.uint64]


def find_pairs(first: Iterable["Text"], second: Iterable["Text"]) -> list[tuple[int, int, float]]:
    """Return for texts of the first list the most similar text of the second list, and their similarity."""
    first_shingles, second_shingles = _hash_long_texts(first), _hash_long_texts(second)
    if not first_shingles or not second_shingles:
        return []
    first_numbers, second_numbers = list(first_shingles), list(second_shingles)
    best: dict[int, tuple[float, int]] = {}
    for i, j in _find_candidates(
        _compute_signatures(list(first_shingles.values())), _compute_signatures(list(second_shingles.values()))
    ):
        number, other = first_numbers[i], second_numbers[j]
        similarity = _jaccard_similarity(first_shingles[number], second_shingles[other])
        if similarity >= ALIKE and (similarity, -other) > best.get(number, (0.0, 0)):
            best[number] = similarity, -other
    return [(number, -other, similarity) for number, (similarity, other) in sorted(best.items())]


def cluster_texts(texts: Iterable["Text"]) -> NDArray[np.int64]:
    """Return a cluster number for each text, the same for near duplicates, if only by way of other texts."""
    all_texts = list(texts)
    parents = np.arange(len(all_texts))
    shingles = _hash_long_texts(all_texts)
    if not shingles:
        return parents
    numbers, signatures = list(shingles), _compute_signatures(list(shingles.values()))
    for i, j in _find_candidates(signatures, signatures):
        first, second = (_find_root(parents, numbers[each]) for each in (i, j))
        if first != second and _jaccard_similarity(shingles[numbers[i]], shingles[numbers[j]]) >= ALIKE:
            parents[max(first, second)] = min(first, second)
    return np.array([_find_root(parents, number) for number in range(len(all_texts))], np.int64)


def _find_root(parents: NDArray[np.int64], number: int) -> int:
    """Return the first text of a cluster, which all of its texts lead to."""
    while parents[number] != number:
        number = int(parents[number])
    return number


def _hash_long_texts(texts: Iterable["Text"]) -> dict[int, Shingles]:
    """Return the shingles of the texts that are long enough for similarity to be meaningful."""
    hashed = ((number, hash_shingles(text)) for number, text in enumerate(texts))
    return {number: shingles for number, shingles in hashed if len(shingles)}


def hash_shingles(text: "Text") -> Shingles:
    """Return hashes of all three-word shingles; of four-letter ones if words are few and long; none of a short text."""
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
    """Return MinHash signatures: two texts share the same part of their signatures as of their shingles."""
    flat = np.concatenate(sets)
    starts = np.concatenate([[0], np.cumsum([len(shingles) for shingles in sets])[:-1]])
    random = np.random.default_rng(0)
    signatures = np.empty((len(sets), BANDS * ROWS), dtype=np.uint64)
    for column in range(BANDS * ROWS):
        factor = random.integers(2**64, dtype=np.uint64) | np.uint64(1)
        # The upper half of the product, which wraps around at 64 bits: this permutes the shingles.
        signatures[:, column] = np.minimum.reduceat((flat * factor) >> np.uint64(32), starts)
    return signatures


def _find_candidates(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Yield the pairs whose signatures agree on a whole band, each once."""
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        columns = slice(band * ROWS, (band + 1) * ROWS)
        buckets: dict[bytes, list[int]] = {}
        for number, key in enumerate(_band_keys(second[:, columns])):
            bucket = buckets.setdefault(key, [])
            if len(bucket) < MOST_IN_BUCKET:
                bucket.append(number)
        for number, key in enumerate(_band_keys(first[:, columns])):
            for other in buckets.get(key, ()):
                if (number, other) not in seen:
                    seen.add((number, other))
                    yield number, other


def _band_keys(values: NDArray[np.uint64]) -> list[bytes]:
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return [row.tobytes() for row in rows]


def _jaccard_similarity(first: Shingles, second: Shingles) -> float:
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared)
