"""Which language the packaged encoders have read, and whether texts are in it."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from tagline import registry
from tagline.checks import Finding
from tagline.texts import Text

USUAL = frozenset((
    "the", "and", "to", "of", "that", "it", "for", "you", "with", "my", "this", "have", "are", "not", "from", "they",
    "will", "been", "were", "your", "what", "how", "which", "when",
))  # fmt: skip
"""Words that English hardly does without, and few other languages have."""
USUAL_SHARE = 0.03
"""Of a text's words. English corpora of seven kinds have 0.17 to 0.28 of them, French reviews 0.009."""
FEWEST_WORDS = 300
"""With fewer nobody can tell."""
WORD = re.compile(r"[^\W\d_]+")


def doubts(pretrained: str, texts: Iterable[Text]) -> Iterator[Finding]:
    """What is doubtful about an encoder for such texts: those that come as a package have read English alone."""
    if pretrained in registry.PACKAGED and not are_english(texts):
        yield Finding(
            "language", "warning", f"{pretrained} has read English, and these texts do not look English",
            "if they are not, name an encoder that has read their language, such as "
            "model.pretrained=xlm-roberta-base; compare it with family linear, which needs none",
        )  # fmt: skip


def are_english(texts: Iterable[Text]) -> bool:
    """Whether the most usual words of English stand in these texts often enough; few words are taken for English."""
    sides = chain.from_iterable((text,) if isinstance(text, str) else text for text in texts)
    words = [word for side in sides for word in WORD.findall(side.lower())]
    return len(words) < FEWEST_WORDS or sum(word in USUAL for word in words) >= USUAL_SHARE * len(words)
