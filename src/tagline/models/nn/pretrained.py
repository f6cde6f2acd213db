"""Pretrained encoders: found by name, on the hub or in a directory, and loaded without running remote code."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from tagline import registry
from tagline.errors import PlaceError, SpecError, first_line
from tagline.storage import addresses, hashing

Pooling = Literal["mean", "first"]
HINT = 'name an encoder such as "bert-base-uncased" or "roberta-base", or the packaged "minilm"'
BUNDLE_MODEL_TYPE = "tagline"
"""The model type in a bundle's `config.json`."""
PROBE_TOKENS = 5
"""Tokens that an encoder is tried on before it is fine-tuned."""
PADDING_TOLERANCE = 1e-4
"""How far its states with and without padding may differ, relative to the largest."""
HUB_FILES = [
    "config.json", "*token*", "vocab.json", "*.txt", "*.model", "model*.safetensors*", "1_Pooling/config.json",
]  # fmt: skip


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder ready to be fine-tuned."""

    encoder: Any
    tokenizer: Any
    """A `tokenizers.Tokenizer`."""
    pooling: Pooling
    """The pooling of token states that its authors used."""
    pad: int
    most_tokens: int

    @property
    def has_types(self) -> bool:
        """Whether it has token types, which tell the two texts of a pair apart."""
        return getattr(self.encoder.config, "type_vocab_size", 0) > 1


def load(name: str, *, dropout: float, max_tokens: int) -> PretrainedEncoder:
    """Load the encoder of `model.pretrained`; raise SpecError if it cannot read so many tokens at once."""
    directory = find_encoder(name)
    _check_weights(directory, name)
    with _translate_errors(name), _silence_transformers():
        config = read_config(directory)
        # Bidirectional encoders are pretrained with masked tokens. A decoder's first token would see no other.
        if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder:
            raise SpecError(f"model.pretrained: {name} ({config.model_type}) is not an encoder", hint=HINT)
        for key, value in config.to_dict().items():
            if "dropout" in key and isinstance(value, float):
                setattr(config, key, dropout)
        encoder, info = AutoModel.from_pretrained(
            directory,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(
            directory, config=config, local_files_only=True, trust_remote_code=False
        )
        pooling, most = _read_pooling(directory), min(_count_positions(encoder), int(tokenizer.model_max_length))
    if missing := sorted(key for key in info["missing_keys"] if not key.startswith("pooler.")):
        raise SpecError(f"model.pretrained: {name} lacks {len(missing)} of its weights, first {missing[0]}", hint=HINT)
    _check_tokenizer(tokenizer, encoder, name)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (config.pad_token_id or 0)
    if max_tokens > most:
        raise SpecError(f"model.max_tokens: {name} reads {most} tokens at most", hint=f"set model.max_tokens={most}")
    encoder = without_pooler(encoder)
    _check_numbers(encoder, name)
    _check_reading(encoder, name, pad=pad)
    return PretrainedEncoder(encoder, tokenizer.backend_tokenizer, pooling, pad, most)


def from_config(directory: Path) -> Any:
    """Create the encoder that `config.json` describes, with random weights."""
    with _silence_transformers():
        config = read_config(directory)
        encoder = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)  # type: ignore[no-untyped-call]
        return without_pooler(encoder)


def write_config(encoder: Any, directory: Path) -> None:
    """Write a bundle's `config.json`: the encoder's, under a model type that transformers refuses to load.

    transformers does not know a bundle's head: loaded as its own model, a bundle got a random head and LABEL_0.
    """
    content = {"model_type": BUNDLE_MODEL_TYPE, "encoder": json.loads(encoder.config.to_json_string())}
    (directory / "config.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def read_config(directory: Path) -> Any:
    """Return the encoder's configuration from a directory, in a bundle's form or in transformers'."""
    content = json.loads((directory / "config.json").read_text("utf-8"))
    if not (isinstance(content, dict) and content.get("model_type") == BUNDLE_MODEL_TYPE):
        return AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    inner = dict(content["encoder"])
    return AutoConfig.for_model(inner.pop("model_type"), **inner)


def without_pooler(encoder: Any) -> Any:
    """Return the encoder without its pooler, which only pretraining uses."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


def find_encoder(name: str) -> Path:
    """Return the directory of an encoder, downloaded if it is a name on the hub."""
    if name in registry.PACKAGED:
        return _find_package(name)
    path = addresses.fetch_copy(name).expanduser()
    try:
        if path.is_dir():
            return path
    except OSError as error:  # a name that no file can have
        raise SpecError(f"model.pretrained: there is no directory {name}", hint=HINT) from error
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise SpecError(f"model.pretrained: there is no directory {name}", hint=HINT)
    return _download_encoder(name)


def _find_package(name: str) -> Path:
    """Return a packaged encoder's directory once every file has its published hash; the package is not imported."""
    module, hashes = registry.PACKAGED[name]
    package = find_spec(module)
    if package is None or package.origin is None:
        raise PlaceError(f"the encoder {name} is not installed", hint='pip install "tagline[train]"')
    directory = Path(package.origin).parent / "model"
    hint = "install it anew: pip install --force-reinstall " + module.replace("_", "-")
    present = {path.relative_to(directory).as_posix(): path for path in hashing.files_below(directory)}
    for file, sha256 in hashes.items():
        if file not in present or hashing.hash_file(present[file]) != sha256:
            raise PlaceError(f"{directory / file} is not the file that was published", hint=hint)
    if added := sorted(file for file in present.keys() - hashes if not file.startswith(".")):
        raise PlaceError(f"{directory / added[0]} is no file of the encoder {name}", hint=hint)
    return directory


def _download_encoder(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise SpecError(f"model.pretrained: the Hugging Face hub has no {name} for you", hint=HINT) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        hint = 'is there a network? without one: pretrained = "minilm", or a directory'
        raise PlaceError(f"cannot fetch {name} from the Hugging Face hub: {first_line(error)}", hint=hint) from error


def _check_weights(directory: Path, name: str) -> None:
    """Raise SpecError if the weights are missing or a pickle, which can run arbitrary code when it is loaded."""
    if not (directory / "config.json").is_file():
        raise SpecError(f"model.pretrained: {name} is not an encoder: it has no config.json", hint=HINT)
    if any(directory.glob("*.safetensors")):
        return
    hint = (
        "if it has a pytorch_model.bin, convert that once, where you trust it: python -c 'from transformers import "
        f'AutoModel; AutoModel.from_pretrained("{name}").save_pretrained("DIRECTORY")\', and copy the tokenizer files'
    )
    raise SpecError(f"model.pretrained: {name} has no weights as safetensors", hint=hint)


def _check_tokenizer(tokenizer: Any, encoder: Any, name: str) -> None:
    """Raise SpecError if the tokenizers library cannot run the tokenizer, or if it is missing or of other weights."""
    if not tokenizer.is_fast:
        hint = "save it with a tokenizer.json: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        raise SpecError(f"model.pretrained: {name} has no fast tokenizer", hint=hint)
    vocabulary, known = tokenizer.get_vocab(), len(encoder.get_input_embeddings().weight)
    hint = "copy the files of its own tokenizer there: tokenizer.json and tokenizer_config.json"
    if len(vocabulary) <= len(tokenizer.all_special_ids):  # transformers makes one up where the files are missing
        raise SpecError(f"model.pretrained: {name} has no tokenizer", hint=hint)
    if max(vocabulary.values()) >= known:
        problem = f"model.pretrained: {name} knows {known} tokens, and its tokenizer has {max(vocabulary.values()) + 1}"
        raise SpecError(problem, hint=hint)


def _check_numbers(encoder: Any, name: str) -> None:
    for key, tensor in encoder.state_dict().items():
        if not tensor.isfinite().all():
            raise SpecError(f"model.pretrained: {name} has weights that are not finite, first {key}", hint=HINT)


def _check_reading(encoder: Any, name: str, *, pad: int) -> None:
    """Raise SpecError if the encoder takes padding for text, or does not accept any number of tokens.

    FNet has no mask, and ConvBERT mixes neighbours despite it; Nystromformer has fixed lengths, and SqueezeBERT no
    state but its pooler's.
    """
    if "attention_mask" not in signature(encoder.forward).parameters:
        raise SpecError(f"model.pretrained: {name} takes padding for text: it has no mask", hint=HINT)
    ids = torch.arange(PROBE_TOKENS).unsqueeze(0)
    mask = torch.ones_like(ids)
    padded_inputs = [
        torch.cat(pair, dim=1) for pair in ((ids, torch.full_like(ids, pad)), (mask, torch.zeros_like(mask)))
    ]
    try:
        with torch.inference_mode():
            alone = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            padded = encoder(input_ids=padded_inputs[0], attention_mask=padded_inputs[1]).last_hidden_state[
                :, :PROBE_TOKENS
            ]
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise SpecError(f"model.pretrained: {name} does not read texts: {first_line(error)}", hint=HINT) from error
    if (alone - padded).abs().max() > PADDING_TOLERANCE * alone.abs().max():
        raise SpecError(f"model.pretrained: {name} takes padding for text: answers would depend on it", hint=HINT)


def _count_positions(encoder: Any) -> int:
    """Return the number of positions of the encoder; RoBERTa and its kin start counting after the padding token."""
    most: int = getattr(encoder.config, "max_position_embeddings", None) or 2**30
    offset = getattr(getattr(encoder, "embeddings", None), "padding_idx", None)
    return most if offset is None else most - offset - 1


def _read_pooling(directory: Path) -> Pooling:
    """Return the pooling in sentence-transformers' configuration; without one the first token, as for BERT."""
    path = directory / "1_Pooling" / "config.json"
    if not path.is_file():
        return "first"
    config = json.loads(path.read_text("utf-8"))
    is_first = config.get("pooling_mode") == "cls" or config.get("pooling_mode_cls_token")  # new form, old form
    return "first" if is_first else "mean"


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Translate transformers' errors into a SpecError."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:  # damaged files, and those of another version, can raise anything
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, which Tagline does not run"
        elif "ignore_mismatched_sizes" in str(error):
            reason = "its weights are not of the sizes that its config.json says"
        else:
            reason = first_line(error)
        raise SpecError(f"model.pretrained: cannot load {name}: {reason}", hint=HINT) from error


@contextmanager
def _silence_transformers() -> Iterator[None]:
    """Silence transformers' log lines and progress bars; problems are raised instead."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
