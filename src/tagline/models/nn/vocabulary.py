"""A tokenizer learned from the training texts: pieces of words for any language, or whole words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from tagline.data.texts import Text

Kind = Literal["subwords", "words"]
PAD, UNKNOWN, END = "[PAD]", "[UNK]", "[SEP]"
WORD_START = "▁"
"""What a piece begins with that a word begins with."""
MOST_TEXTS = 200_000
"""More are not read for it: the pieces of these are those of the others too."""
MOST_CHARACTERS = 20_000


def train_tokenizer(texts: "Sequence[Text]", kind: Kind, *, size: int, min_count: int) -> "Tokenizer":
    """The most frequent pieces or words; the same texts give the same ones in the same order, whatever the process."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    some = texts[:: 1 + (len(texts) - 1) // MOST_TEXTS]
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    special = [PAD, UNKNOWN, END]
    if kind == "words":
        tokenizer = Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
        trainer: trainers.Trainer = trainers.WordLevelTrainer(
            vocab_size=size, min_frequency=min_count, special_tokens=special, show_progress=False
        )
    else:
        # Of the library's ways this one alone gives the same pieces every time, if it need not choose the characters.
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=True))
        split.append(pre_tokenizers.Metaspace(WORD_START))
        counts: Counter[str] = Counter()
        for part in _iter_texts(some):
            counts.update(normalizer.normalize_str(part))
        least = min(min_count, 2)  # a character that is rare may be all there is of a word
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
    tokenizer.train_from_iterator(_iter_texts(some), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(  # an empty text has a token too
        single=f"$A {END}", pair=f"$A {END} $B:1 {END}:1", special_tokens=[(END, special.index(END))]
    )
    return tokenizer


def _iter_texts(texts: "Sequence[Text]") -> Iterator[str]:
    """The texts, of a pair both."""
    for text in texts:
        for part in (text,) if isinstance(text, str) else text:
            yield part[:MOST_CHARACTERS]
