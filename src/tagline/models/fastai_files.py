"""Language models in directories: ours, and those that fastai wrote, read without running anything of theirs."""

import json
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tagline import storage
from tagline.errors import SpecError, first_line
from tagline.models.awd_lstm import LanguageModel, Shape
from tagline.models.fastai_text import VOCABULARY, Lexicon, cutter_in
from tagline.models.learner import write

WEIGHTS = ("model.safetensors", "weights.pth")
VOCABULARIES = (VOCABULARY, "vocab.pkl")
HINT = "a language model's directory holds config.json, vocab.pkl or vocab.json, and weights.pth or model.safetensors"


@dataclass(frozen=True)
class Pretrained:
    """A language model as it was read: its sizes, its weights under our names, and what it reads texts with."""

    shape: Shape
    weights: Mapping[str, Tensor]
    lexicon: Lexicon
    backwards: bool | None
    """The direction it was trained in, where its directory says so; fastai's files do not."""


def read(address: str, *, key: str = "model.pretrained") -> Pretrained:
    """The language model in the directory that this setting names."""
    directory = storage.fetched(address).expanduser()
    if not directory.is_dir():
        raise SpecError(f"{key}: there is no directory {address}", hint=HINT)
    config = _config(directory)
    vocabulary = _vocabulary(directory)
    weights = _weights(directory)
    known = {name.name for name in fields(Shape)}
    shape = Shape(**{key: value for key, value in config.items() if key in known})
    problem = _mismatch(shape, weights, tokens=len(vocabulary))
    if problem:
        where = directory / next(name for name in WEIGHTS if (directory / name).is_file())
        raise SpecError(f"{where} does not fit its config.json and vocabulary: {problem}", hint=HINT)
    return Pretrained(shape, weights, Lexicon(cutter_in(directory), vocabulary), config.get("backwards"))


def save(directory: Path, model: LanguageModel, lexicon: Lexicon, *, shape: Shape, backwards: bool) -> None:
    """A language model to be shared: JSON, safetensors, and the cutter's own file."""
    write(model.state_dict(), directory / "model.safetensors")
    config = asdict(shape) | {"backwards": backwards}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    lexicon.save(directory)


def extended(found: Pretrained, vocabulary: Sequence[str]) -> dict[str, Tensor]:
    """The weights for another vocabulary: a token that was known keeps its vector, any other starts as their mean."""
    place = {token: number for number, token in enumerate(found.lexicon.vocabulary)}  # the last, where it stands twice
    places = torch.tensor([place.get(token, -1) for token in vocabulary])
    weights = dict(found.weights)
    for name in ("encoder.embedding.weight", "matrix", "bias"):
        if name in weights:
            old = weights[name]
            new = old[places.clamp(min=0)].clone()
            new[places < 0] = old.mean(dim=0)
            weights[name] = new
    return weights


def _config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"{directory} has no config.json", hint=HINT) from error
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} is not JSON: {first_line(error)}", hint=HINT) from error
    if not isinstance(config, dict):
        raise SpecError(f"{path} is no table of names and values", hint=HINT)
    for name, default in asdict(Shape()).items():
        value = config.get(name, default)
        if not isinstance(value, int | float if isinstance(default, float) else type(default)) or value < 0:
            raise SpecError(f"{path}: {name} cannot be {value!r}", hint=HINT)
    if config.get("bidir") or config.get("qrnn"):
        raise SpecError(f"{path}: only one-way LSTM models are read, no bidirectional ones and no QRNN")
    return config


class _Strings(pickle.Unpickler):
    """Admits what needs no class: a list of strings, and no object that could run anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it wants {module}.{name}")


def _vocabulary(directory: Path) -> list[str]:
    path = next((directory / name for name in VOCABULARIES if (directory / name).is_file()), None)
    if path is None:
        raise SpecError(f"{directory} has no vocabulary", hint=HINT)
    hint = "save it as plain words: pickle.dump(list(dls.vocab), file), or json.dump(list(dls.vocab), file)"
    try:
        with path.open("rb") as file:
            found = json.load(file) if path.suffix == ".json" else _Strings(file).load()
    except Exception as error:  # a hostile pickle can raise anything
        raise SpecError(f"{path} was not read: {first_line(error)}", hint=hint) from error
    if not isinstance(found, list) or not found or not all(isinstance(token, str) for token in found):
        raise SpecError(f"{path} is no list of words", hint=hint)
    return found


def _weights(directory: Path) -> dict[str, Tensor]:
    """Weights under our names, whichever file holds them."""
    path = next((directory / name for name in WEIGHTS if (directory / name).is_file()), None)
    if path is None:
        raise SpecError(f"{directory} has no weights.pth or model.safetensors", hint=HINT)
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise SpecError(f"{path} is damaged: {first_line(error)}", hint="copy it again") from error
    return _renamed(_torch_file(path), path)


def _torch_file(path: Path) -> Mapping[str, Any]:
    """A file of `torch.save` that holds tensors and nothing that could run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "fastcore" in str(error):
            hint = "save it without: learn.save(NAME, with_opt=False)"
            raise SpecError(f"{path} holds its optimizer too, as objects that are not read", hint=hint) from error
        problem = f"{path} holds more than weights, which could run anything, and is not read"
        raise SpecError(problem, hint="save the weights alone: torch.save(model.state_dict(), FILE)") from error
    except (RuntimeError, OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        problem = f"{path} is damaged, or no file of torch.save: {first_line(error)}"
        raise SpecError(problem, hint="copy it again") from error
    found = found.get("model", found) if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise SpecError(f"{path} holds no weights by name", hint=HINT)
    return found


def _renamed(found: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """fastai's names as ours. What it stores a second time is left out: the tied embedding, and of old versions the
    recurrent weights as they were last dropped."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in found.items():
        parts = name.split(".")
        if parts[:2] == ["0", "rnns"]:
            leaf = parts[-1].removesuffix("_raw")
            if leaf == "weight_hh_l0" and not parts[-1].endswith("_raw"):
                continue
            renamed[f"encoder.layers.{parts[2]}.lstm.{leaf}"] = tensor
    if "0.encoder.weight" not in found or not any(name.endswith("weight_hh_l0") for name in renamed):
        raise SpecError(f"{path} is no AWD-LSTM language model of fastai's", hint=HINT)
    renamed["encoder.embedding.weight"] = found["0.encoder.weight"]
    for old, new in (("1.decoder.weight", "matrix"), ("1.decoder.bias", "bias")):
        if old in found:
            renamed[new] = found[old]
    if "matrix" in renamed and torch.equal(renamed["matrix"], renamed["encoder.embedding.weight"]):
        del renamed["matrix"]
    return {name: tensor.float() for name, tensor in renamed.items()}


def _mismatch(shape: Shape, weights: Mapping[str, Tensor], *, tokens: int) -> str:
    """What does not fit, or nothing."""
    with torch.device("meta"):
        right = LanguageModel(shape, tokens=tokens).state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in right.items()}
    there = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name, size in expected.items():
        if name not in there:
            return f"there is no {name}"
        if there[name] != size:
            return f"{name} is {_size(there[name])}, and should be {_size(size)}"
    if extra := sorted(there.keys() - expected.keys()):
        return f"there is also {extra[0]}"
    return ""


def _size(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))
