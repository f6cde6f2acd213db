"""Word attributions of an answer: exact if the classifier can compute them, else by occlusion."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tagline.models import Attribution, Explainable, Scorer

if TYPE_CHECKING:
    from tagline.data.texts import Text

# Scripts without spaces between words are cut into pieces of two characters.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
PIECE = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W{UNSPACED}]+|[^\w\s]+")
MOST_PIECES = 48
"""A longer text is cut into this many pieces of several words each: every piece is one more text to score."""
TINY = 1e-7


def compute_attributions(classifier: Scorer, text: "Text", label: int) -> list[Attribution]:
    """Return how far each piece of a text moves the answer towards a label, in log-odds."""
    sides = (text,) if isinstance(text, str) else text
    if isinstance(classifier, Explainable):
        return [
            Attribution(*match.span(), float(added[slice(*match.span())].sum()), side)
            for side, added in enumerate(classifier.attribute_characters(text, label))
            for match in PIECE.finditer(sides[side], 0, len(added))
        ]
    pieces = [(side, start, end) for side, part in enumerate(sides) for start, end in _split_pieces(part, len(sides))]
    without = [_drop_piece(text, *piece) for piece in pieces]
    scores = np.clip(classifier.scores([text, *without])[:, label].astype(np.float64), TINY, 1 - TINY)
    log_odds = np.log(scores / (1 - scores))
    return [
        Attribution(start, end, float(log_odds[0] - left_out), side)
        for (side, start, end), left_out in zip(pieces, log_odds[1:], strict=True)
    ]


def _split_pieces(text: str, sides: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each piece of a text."""
    spans = [match.span() for match in PIECE.finditer(text)]
    spans_per_piece = -(-len(spans) * sides // MOST_PIECES) or 1
    for first in range(0, len(spans), spans_per_piece):
        group = spans[first : first + spans_per_piece]
        yield group[0][0], group[-1][1]


def _drop_piece(text: "Text", side: int, start: int, end: int) -> Any:
    if isinstance(text, str):
        return text[:start] + text[end:]
    return tuple(part[:start] + part[end:] if number == side else part for number, part in enumerate(text))
