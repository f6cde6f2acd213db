"""Language models in directories, Tagline's and fastai's, read without running code from them."""

import io
import json
import pickle
import pickletools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tagline.errors import SpecError, first_line
from tagline.models.nn.learner import write_tensors
from tagline.models.ulmfit.awd_lstm import LanguageModel, Shape
from tagline.models.ulmfit.tokenizer import (
    SPACE,
    START,
    UNKNOWN,
    VOCABULARY,
    Lexicon,
    SentencePieceTokenizer,
    SpacyTokenizer,
    load_tokenizer,
)
from tagline.storage import addresses

WEIGHTS = ("model.safetensors", "weights.pth")
TORCH_STARTS = (b"PK\x03\x04", b"\x80")
"""First bytes of a zip file, and of a pickle as older versions of torch wrote it."""
VOCABULARIES = (VOCABULARY, "vocab.pkl")
AGAIN = "copy it again; if it is a Git LFS pointer: git lfs pull"
LARGEST = 100_000
"""The upper limit of sizes in a config.json."""
HINT = "a language model's directory holds config.json, vocab.pkl or vocab.json, and weights.pth or model.safetensors"


@dataclass(frozen=True)
class PretrainedLanguageModel:
    """A pretrained language model: its shape, its weights under our names, and its tokenizer and vocabulary."""

    shape: Shape
    weights: Mapping[str, Tensor]
    lexicon: Lexicon
    backwards: bool | None
    """Whether it was trained on reversed texts; None where its directory does not say, as fastai's."""


def read(address: str, *, key: str = "model.pretrained") -> PretrainedLanguageModel:
    """Read the language model in the directory that a setting names."""
    directory = _find_directory(address, key=key)
    config = _read_config(directory)
    lexicon = _load_lexicon(directory)
    known = {field.name for field in fields(Shape)}
    shape = Shape(**{key: value for key, value in config.items() if key in known})
    path = next((directory / name for name in WEIGHTS if (directory / name).is_file()), None)
    if path is None:
        raise SpecError(f"{directory} has no weights.pth or model.safetensors", hint=HINT)
    weights = _load_weights(path, tied=shape.tie_weights)
    if problem := _find_mismatch(shape, weights, tokens=len(lexicon)):
        raise SpecError(f"{path} does not fit its config.json and vocabulary: {problem}", hint=HINT)
    return PretrainedLanguageModel(shape, weights, lexicon, config.get("backwards"))


def lexicon_of(address: str, *, key: str) -> Lexicon:
    """Read only the tokenizer and vocabulary of the language model in the directory that a setting names."""
    return _load_lexicon(_find_directory(address, key=key))


def save(directory: Path, model: LanguageModel, lexicon: Lexicon, *, shape: Shape, backwards: bool) -> None:
    """Write a language model to be shared: JSON, safetensors, and the tokenizer's file."""
    write_tensors(model.state_dict(), directory / "model.safetensors")
    config = asdict(shape) | {"backwards": backwards}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    lexicon.save(directory)


def extend_weights(pretrained: PretrainedLanguageModel, vocabulary: Sequence[str]) -> dict[str, Tensor]:
    """Return the weights for another vocabulary: a known token keeps its vector, a new one starts as their mean."""
    place = {token: number for number, token in enumerate(pretrained.lexicon.vocabulary)}  # the last one of duplicates
    places = torch.tensor([place.get(token, -1) for token in vocabulary])
    weights = dict(pretrained.weights)
    for name in ("encoder.embedding.weight", "matrix", "bias"):
        if name in weights:
            old = weights[name]
            new = old[places.clamp(min=0)].clone()
            new[places < 0] = old.mean(dim=0)
            weights[name] = new
    return weights


def _find_directory(address: str, *, key: str) -> Path:
    problem = f"{key}: there is no directory {address}"
    directory = addresses.fetch_copy(address).expanduser()
    try:
        if directory.is_dir():
            return directory
    except OSError as error:  # a name that no file can have
        raise SpecError(problem, hint=HINT) from error
    raise SpecError(problem, hint=HINT)


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"{directory} has no config.json", hint=HINT) from error
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not JSON: {first_line(error)}", hint=HINT) from error
    if not isinstance(config, dict):
        raise SpecError(f"{path} is no table of names and values", hint=HINT)
    for name, default in asdict(Shape()).items():
        value = config.get(name, default)
        least, most = (0, 1) if isinstance(default, bool | float) else (1, LARGEST)
        is_number = isinstance(value, int | float if isinstance(default, float) else type(default))
        if not is_number or not least <= value <= most:
            raise SpecError(f"{path}: {name} cannot be {value!r}", hint=HINT)
    if config.get("bidir") or config.get("qrnn"):
        raise SpecError(f"{path}: only one-way LSTM models are read, no bidirectional ones and no QRNN")
    return config


def _load_lexicon(directory: Path) -> Lexicon:
    vocabulary, tokenizer = _read_vocabulary(directory), load_tokenizer(directory)
    if isinstance(tokenizer, SpacyTokenizer) and SPACE + START in vocabulary:
        hint = f"copy {SentencePieceTokenizer.FILE} there, with which SentencePiece cuts texts into them"
        raise SpecError(f"{directory} has a vocabulary of pieces, and no {SentencePieceTokenizer.FILE}", hint=hint)
    return Lexicon(tokenizer, vocabulary)


class _StringUnpickler(pickle.Unpickler):
    """An unpickler that refuses every class, so that it loads a list of strings and nothing that runs code."""

    def __init__(self, content: bytes) -> None:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument) > len(content):  # type: ignore[arg-type]
                raise pickle.UnpicklingError(
                    "it numbers more objects than it can hold"
                )  # a number would allocate gigabytes
        super().__init__(io.BytesIO(content))

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it wants {module}.{name}")


def _read_vocabulary(directory: Path) -> list[str]:
    path = next((directory / name for name in VOCABULARIES if (directory / name).is_file()), None)
    if path is None:
        raise SpecError(f"{directory} has no vocabulary", hint=HINT)
    hint = "save it as plain words: pickle.dump(list(dls.vocab), file), or json.dump(list(dls.vocab), file)"
    try:
        content = path.read_bytes()
        vocabulary = json.loads(content) if path.suffix == ".json" else _StringUnpickler(content).load()
    except Exception as error:  # a hostile pickle can raise anything
        raise SpecError(f"{path} was not read: {first_line(error)}", hint=hint) from error
    if not isinstance(vocabulary, list) or not vocabulary or not all(isinstance(token, str) for token in vocabulary):
        raise SpecError(f"{path} is no list of words", hint=hint)
    if vocabulary[0] != UNKNOWN:
        start = f"{vocabulary[0]!r:.40}"
        raise SpecError(f"{path} begins with {start}, and a vocabulary of fastai 2 with {UNKNOWN}", hint=hint)
    return vocabulary


def _load_weights(path: Path, *, tied: bool) -> dict[str, Tensor]:
    """Load weights under our names, from either kind of file."""
    if path.suffix == ".safetensors":
        try:
            weights = load_file(path)
        except (SafetensorError, OSError) as error:
            raise SpecError(f"{path} is damaged: {first_line(error)}", hint=AGAIN) from error
    else:
        weights = _rename_weights(_load_torch_file(path), path, tied=tied)
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            hint = "it was saved after its training had failed: save it anew"
            raise SpecError(f"{path}: {name} holds numbers that are not finite", hint=hint)
    return weights


def _load_torch_file(path: Path) -> Mapping[str, Any]:
    """Load a file of `torch.save` that holds tensors alone, without running code from it."""
    try:
        with path.open("rb") as file:
            start = file.read(24)
        if not start.startswith(TORCH_STARTS):
            raise SpecError(f"{path} is no file of torch.save: it begins with {start!r}", hint=AGAIN)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "fastcore" in str(error):
            hint = "save it without: learn.save(NAME, with_opt=False)"
            raise SpecError(f"{path} holds its optimizer too, as objects that are not read", hint=hint) from error
        problem = f"{path} holds more than weights, which could run anything, and is not read"
        raise SpecError(problem, hint="save the weights alone: torch.save(model.state_dict(), FILE)") from error
    except (RuntimeError, OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        problem = f"{path} is damaged, or no file of torch.save: {first_line(error)}"
        raise SpecError(problem, hint=AGAIN) from error
    content = content.get("model", content) if isinstance(content, Mapping) else content
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise SpecError(f"{path} holds no weights by name", hint=HINT)
    return content


def _rename_weights(weights: Mapping[str, Tensor], path: Path, *, tied: bool) -> dict[str, Tensor]:
    """Return fastai's weights under our names, without duplicates: the tied embedding, and the recurrent weights after
    dropout that old versions stored."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        parts = name.split(".")
        if parts[:2] == ["0", "rnns"]:
            leaf = parts[-1].removesuffix("_raw")
            if leaf == "weight_hh_l0" and not parts[-1].endswith("_raw"):
                continue
            renamed[f"encoder.layers.{parts[2]}.lstm.{leaf}"] = tensor
    if "0.encoder.weight" not in weights or not any(name.endswith("weight_hh_l0") for name in renamed):
        raise SpecError(f"{path} is no AWD-LSTM language model of fastai's", hint=HINT)
    renamed["encoder.embedding.weight"] = weights["0.encoder.weight"]
    for old, new in (("1.decoder.weight", "matrix"), ("1.decoder.bias", "bias")):
        if old in weights:
            renamed[new] = weights[old]
    if tied and "matrix" in renamed and torch.equal(renamed["matrix"], renamed["encoder.embedding.weight"]):
        del renamed["matrix"]
    return {name: tensor.float() for name, tensor in renamed.items()}


def _find_mismatch(shape: Shape, weights: Mapping[str, Tensor], *, tokens: int) -> str:
    """Return the first mismatch of names or sizes, or an empty string."""
    with torch.device("meta"):
        model = LanguageModel(shape, tokens=tokens).state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in model.items()}
    present = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name, size in expected.items():
        if name not in present:
            return f"there is no {name}"
        if present[name] != size:
            return f"{name} is {_format_size(present[name])}, and should be {_format_size(size)}"
    if extra := sorted(present.keys() - expected.keys()):
        return f"there is also {extra[0]}"
    return ""


def _format_size(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))
