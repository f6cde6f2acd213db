"""What every test may ask for: the sample data, the real corpora, small encoders, and the command line as a process."""

import csv
import json
import os
import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from python_processes import run_python

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "examples" / "support"
FIXTURES = Path(os.environ.get("TAGLINE_FIXTURES", ROOT.parent / "shared" / "fixtures"))
os.environ["NO_GCE_CHECK"] = "true"  # else Google's packages look for a metadata server for seconds
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell's background: processes under test would not hear it
    signal.signal(signal.SIGINT, signal.default_int_handler)
CORPORA = Path(os.environ.get("TAGLINE_DATA", ROOT.parent / "shared" / "data"))


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def support() -> Path:
    """The directory of the sample data."""
    return SUPPORT


@pytest.fixture
def corpus() -> Callable[[str], Path]:
    """A file of the real corpora; skips the test where they are missing."""

    def find(name: str) -> Path:
        path = CORPORA / name
        if not path.exists():
            pytest.skip(f"{path} is missing (set TAGLINE_DATA)")
        return path

    return find


@pytest.fixture(scope="session")
def fastai() -> Callable[[str], Path]:
    """A directory of models that fastai itself wrote; skips the test where they are missing."""

    def find(name: str) -> Path:
        path = FIXTURES / "fastai" / name
        if not path.exists():
            pytest.skip(f"{path} is missing (set TAGLINE_FIXTURES)")
        return path

    return find


@pytest.fixture
def tagline(tmp_path: Path) -> Callable[..., Result]:
    """Run `tagline ARGUMENTS...` as a process of its own, in an empty directory."""

    def run(*arguments: str | Path, stdin: str | bytes = b"", cwd: Path = tmp_path) -> Result:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        done = run_python("-W", "error", "-m", "tagline", *arguments, given=content, cwd=cwd)
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in result.err, result.err
        return result

    return run


@dataclass(frozen=True)
class Kind:
    """What is particular about an architecture."""

    tokenizer: str
    """wordpiece, bytes or unigram"""
    special: tuple[str, str, str, str, str]
    """As they are numbered from 0."""
    roles: tuple[str, str, str, str, str] = ("pad", "unk", "cls", "sep", "mask")
    config: Mapping[str, Any] = field(default_factory=dict)


MOST_TOKENS = 64
BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
ANGLE_ROLES = ("cls", "pad", "sep", "unk", "mask")
AFTER_PADDING = MOST_TOKENS + 2
"""Positions where the first one has the number after the padding token's."""
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS = {
    "bert": Kind("wordpiece", BRACKETS),
    "roberta": Kind("bytes", ANGLES, ANGLE_ROLES, {"max_position_embeddings": AFTER_PADDING, "pad_token_id": 1}),
    "deberta-v2": Kind(  # as DeBERTa-v3 is set up
        "unigram", ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"), ("pad", "cls", "sep", "unk", "mask"),
        {
            "type_vocab_size": 0, "position_biased_input": False, "relative_attention": True, "position_buckets": 16,
            "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True, "pad_token_id": 0,
        },
    ),
    "modernbert": Kind(
        "bytes", BRACKETS,
        config={
            "local_attention": 16, "global_attn_every_n_layers": 2, "pad_token_id": 0, "bos_token_id": 2,
            "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3,
        },
    ),
    "distilbert": Kind("wordpiece", BRACKETS, config={"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
    "albert": Kind("wordpiece", BRACKETS, config={"embedding_size": 16, "num_hidden_layers": 6}),
    "mpnet": Kind("wordpiece", ANGLES, ANGLE_ROLES, {"max_position_embeddings": AFTER_PADDING, "pad_token_id": 1}),
}  # fmt: skip


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A directory with a small pretrained encoder of this architecture, its weights random; made when asked for."""

    @cache
    def make(name: str) -> Path:
        directory = tmp_path_factory.mktemp("checkpoint") / name
        save_checkpoint(directory, name, KINDS[name])
        return directory

    return make


def save_checkpoint(directory: Path, name: str, kind: Kind) -> None:
    """Written by transformers itself: config.json, model.safetensors, tokenizer.json ..."""
    import torch
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = trained_tokenizer(kind)
    special = {f"{role}_token": token for role, token in zip(kind.roles, kind.special, strict=True)}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=MOST_TOKENS, **special)
    fast.save_pretrained(directory)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": MOST_TOKENS, **SIZES, **kind.config}
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # DeBERTa's module uses torch.jit
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.for_model(name, **sizes)).save_pretrained(directory)


def trained_tokenizer(kind: Kind) -> Any:
    """A tokenizer that has read the sample messages."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    numbers = {role: (token, number) for number, (role, token) in enumerate(zip(kind.roles, kind.special, strict=True))}
    with (SUPPORT / "messages.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["message"] for row in csv.DictReader(file)]
    if kind.tokenizer == "wordpiece":
        numbered = {piece: number for number, piece in enumerate(pieces(texts, kind.special, inside="##"))}
        tokenizer = Tokenizer(models.WordPiece(numbered, unk_token=numbers["unk"][0]))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.add_special_tokens(list(kind.special))
    elif kind.tokenizer == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            initial_alphabet=alphabet, vocab_size=600, special_tokens=list(kind.special), show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
    else:
        scored = [(piece, -float(number)) for number, piece in enumerate(pieces(texts, kind.special, start="▁"))]
        tokenizer = Tokenizer(models.Unigram(scored, unk_id=numbers["unk"][1]))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.add_special_tokens(list(kind.special))
    processor = processors.RobertaProcessing if kind.special == ANGLES else processors.BertProcessing
    tokenizer.post_processor = processor(numbers["sep"], numbers["cls"])
    return tokenizer


def pieces(texts: list[str], special: tuple[str, ...], *, start: str = "", inside: str = "") -> list[str]:
    """The most frequent words, and characters for the others; trainers would number them anew in every process."""
    words = Counter(re.findall(r"\w+|[^\w\s]", " ".join(texts).lower()))
    characters = sorted({character for word in words for character in word})
    frequent = sorted((word for word in words if len(word) > 1), key=lambda word: (-words[word], word))[:400]
    return [*special, *(start + part for part in [*frequent, *characters]), *(inside + part for part in characters)]
