"""Whether texts are English, and what that means for an encoder that has read nothing else."""

import re
from collections.abc import Iterable, Iterator

from tagline import registry
from tagline.data.checks import Finding
from tagline.data.texts import Text

PLAIN_LETTERS = 0.97
"""Of the letters are plain Latin ones in English; French has more accents, and other scripts hardly any."""
USUAL = frozenset((
    "the", "and", "to", "of", "that", "it", "for", "you", "with", "my", "this", "have", "are", "not", "from", "they",
    "will", "been", "were", "your", "what", "how", "which", "when",
))  # fmt: skip
"""Words that English hardly does without, and few other languages have."""
USUAL_SHARE, FEWEST_WORDS = 0.03, 300
"""Of a text's words: English corpora of eight kinds have 0.17 to 0.28 of them, French reviews 0.009. Of fewer words in
plain letters nobody can tell."""
WORD = re.compile(r"[^\W\d_]+")
LOOKED_AT = 1000
"""Characters at the beginning of each text."""


def check_language(pretrained: str, texts: Iterable[Text]) -> Iterator[Finding]:
    """What is doubtful about an encoder for such texts: those that come as a package have read English alone."""
    if pretrained in registry.PACKAGED and not are_english(texts):
        yield Finding(
            "language",
            "warning",
            f"{pretrained} has read English, and these texts do not look English",
            "if they are not, name an encoder that has read their language, such as "
            "model.pretrained=xlm-roberta-base; compare it with family linear, which needs none",
        )


def are_english(texts: Iterable[Text]) -> bool:
    """Whether these texts are in plain letters, and the most usual words of English stand in them often enough."""
    looked_at = list(cut_beginnings(texts))
    words = [word for text in looked_at for word in WORD.findall(text.lower())]
    is_usual = sum(word in USUAL for word in words) >= USUAL_SHARE * len(words)
    return are_in_plain_letters(looked_at) and (is_usual or len(words) < FEWEST_WORDS)


def are_in_plain_letters(texts: Iterable[Text]) -> bool:
    """Whether nearly all letters are plain Latin ones."""
    letters = plain = 0
    for text in cut_beginnings(texts):
        found = [character for character in text if character.isalpha()]
        letters += len(found)
        plain += sum(map(str.isascii, found))
    return plain >= PLAIN_LETTERS * letters


def cut_beginnings(texts: Iterable[Text]) -> Iterator[str]:
    """As much of each text, and of each of a pair, as is looked at."""
    for text in texts:
        for side in (text,) if isinstance(text, str) else text:
            yield side[:LOOKED_AT]
