"""A tokenizer trained on the training texts: subwords for any language, or whole words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tagline.data.texts import Text

Kind = Literal["subwords", "words"]
PAD, UNKNOWN, END = "[PAD]", "[UNK]", "[SEP]"
WORD_START = "▁"
"""Prefix of a piece at the start of a word."""
MOST_TEXTS = 200_000
"""Texts that the tokenizer is trained on at most; more hardly change the pieces."""
MOST_CHARACTERS = 20_000


def train_tokenizer(texts: "Sequence[Text]", kind: Kind, *, size: int, min_count: int) -> "Tokenizer":
    """Train a tokenizer of the most frequent pieces or words; the same texts give the same one in every process."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    sample = texts[:: 1 + (len(texts) - 1) // MOST_TEXTS]
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    special = [PAD, UNKNOWN, END]
    if kind == "words":
        tokenizer = Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
        trainer: trainers.Trainer = trainers.WordLevelTrainer(
            vocab_size=size, min_frequency=min_count, special_tokens=special, show_progress=False
        )
    else:
        # Of the library's models only BPE is reproducible, given a fixed alphabet.
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=True))
        split.append(pre_tokenizers.Metaspace(WORD_START))
        counts: Counter[str] = Counter()
        for part in _iter_texts(sample):
            counts.update(normalizer.normalize_str(part))
        least = min(min_count, 2)  # a rare character may be a whole word
        frequent = sorted((c for c in counts if counts[c] >= least), key=lambda c: (-counts[c], c))
        characters = sorted({WORD_START, *frequent[: size // 2]})
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_count,
            special_tokens=special,
            show_progress=False,
            initial_alphabet=characters,
            limit_alphabet=len(characters),
        )
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.train_from_iterator(_iter_texts(sample), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(  # so that an empty text has a token too
        single=f"$A {END}", pair=f"$A {END} $B:1 {END}:1", special_tokens=[(END, special.index(END))]
    )
    return tokenizer


def _iter_texts(texts: "Sequence[Text]") -> Iterator[str]:
    """Yield every text, and both texts of a pair."""
    for text in texts:
        for part in (text,) if isinstance(text, str) else text:
            yield part[:MOST_CHARACTERS]
