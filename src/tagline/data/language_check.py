"""Whether texts are English, and a warning if an encoder pretrained on English alone is to read others."""

import re
from collections.abc import Iterable, Iterator

from tagline import registry
from tagline.data.checks import Finding
from tagline.data.texts import Text

PLAIN_LETTERS = 0.97
"""The share of letters that are plain Latin ones in English; French has more accents, other scripts hardly any."""
USUAL = frozenset((
    "the", "and", "to", "of", "that", "it", "for", "you", "with", "my", "this", "have", "are", "not", "from", "they",
    "will", "been", "were", "your", "what", "how", "which", "when",
))  # fmt: skip
"""Words that are frequent in English and rare in other languages."""
USUAL_SHARE, FEWEST_WORDS = 0.03, 300
"""The least share of such words: English corpora of eight kinds have 0.17 to 0.28 of them, French reviews 0.009. With
fewer words in plain letters there is too little to decide on."""
WORD = re.compile(r"[^\W\d_]+")
LOOKED_AT = 1000
"""Characters read from the beginning of each text."""


def check_language(pretrained: str, texts: Iterable[Text]) -> Iterator[Finding]:
    """Yield a warning if texts do not look English and the encoder is a packaged one, pretrained on English alone."""
    if pretrained in registry.PACKAGED and not are_english(texts):
        yield Finding(
            "language",
            "warning",
            f"{pretrained} has read English, and these texts do not look English",
            "if they are not, name an encoder that has read their language, such as "
            "model.pretrained=xlm-roberta-base; compare it with family linear, which needs none",
        )


def are_english(texts: Iterable[Text]) -> bool:
    """Return whether texts are in plain letters and contain the most usual English words often enough."""
    beginnings = list(cut_beginnings(texts))
    words = [word for text in beginnings for word in WORD.findall(text.lower())]
    is_usual = sum(word in USUAL for word in words) >= USUAL_SHARE * len(words)
    return are_in_plain_letters(beginnings) and (is_usual or len(words) < FEWEST_WORDS)


def are_in_plain_letters(texts: Iterable[Text]) -> bool:
    """Return whether nearly all letters are plain Latin ones."""
    letters = plain = 0
    for text in cut_beginnings(texts):
        alphabetic = [character for character in text if character.isalpha()]
        letters += len(alphabetic)
        plain += sum(map(str.isascii, alphabetic))
    return plain >= PLAIN_LETTERS * letters


def cut_beginnings(texts: Iterable[Text]) -> Iterator[str]:
    """Yield the beginning of each text, and of both texts of a pair, that is read."""
    for text in texts:
        for side in (text,) if isinstance(text, str) else text:
            yield side[:LOOKED_AT]
