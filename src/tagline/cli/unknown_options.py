"""Suggestions for an unknown option: most often it is a setting of the spec."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from tagline.errors import SpecError, TaglineError

CLOSE = 0.8
"""The similarity, as difflib measures it, from which an option counts as a misspelled setting."""
OTHER_TRAINERS_NAMES = {
    "model": "model.pretrained", "model_name": "model.pretrained", "model_name_or_path": "model.pretrained",
    "max_len": "model.max_tokens", "max_length": "model.max_tokens", "max_seq_length": "model.max_tokens",
    "test_size": "data.test_share", "validation_size": "data.validation_share",
}  # fmt: skip
"""Names of options in other trainers, with the settings they correspond to."""
DEVICE = frozenset({"device", "cuda", "gpu", "cpu"})


def explain_option(error: Any, arguments: Sequence[str]) -> SpecError | None:
    """Return the error for an unknown option that means a setting, or that is not needed; else None."""
    takes_settings = error.ctx is not None and any(param.name == "overrides" for param in error.ctx.command.params)
    option: str = error.option_name
    name = _normalize_option(option)
    if not takes_settings or _is_misspelled_option(
        name, {_normalize_option(each) for each in error.possibilities or ()}
    ):
        return None
    if name in DEVICE:
        hint = "CUDA_VISIBLE_DEVICES= before the command computes without a GPU; CUDA_VISIBLE_DEVICES=1 on the second"
        return SpecError(f"there is no option {option}: the best device that is there is taken", hint=hint)
    value = shlex.quote(_find_value(option, arguments))
    settings = " or ".join(f"{setting}={value}" for setting in find_settings(name))
    if not settings:
        return None
    hint = f"settings of the spec are given as section.key=value: {settings}"
    return SpecError(f"there is no option {option}", hint=hint)


def find_settings(name: str) -> list[str]:
    """Return the settings that an option may mean: by name, another trainer's name, initials, or similarity."""
    known = list(_list_settings())
    if exact := [f"{section}.{key}" for section, key in known if key == name]:
        return exact
    if name in OTHER_TRAINERS_NAMES:
        return [OTHER_TRAINERS_NAMES[name]]
    if abbreviated := [f"{section}.{key}" for section, key in known if "_" in key and name == _take_initials(key)]:
        return abbreviated[:1]
    words = set(name.split("_"))
    within = [(section, key) for section, key in known if words.issuperset(key.split("_"))]
    if within:
        longest = max(within, key=lambda setting: len(setting[1]))
        return [".".join(longest)]
    close = get_close_matches(name, [key for _, key in known], n=1, cutoff=CLOSE)
    return [f"{section}.{key}" for section, key in known if key in close][:1]


def _list_settings() -> Iterator[tuple[str, str]]:
    """Yield section and key of every setting, those of training and of the families first."""
    from tagline import registry, spec

    yield from (("training", key) for key in spec.SECTIONS["training"].model_fields)
    of_families: dict[str, None] = {}
    for family in registry.list_names("models"):
        with suppress(TaglineError):  # a plug-in that cannot be loaded
            of_families |= dict.fromkeys(spec.options_of(family).model_fields)
    yield from (("model", key) for key in of_families)
    for section, kind in spec.SECTIONS.items():
        if section != "training":
            yield from ((section, key) for key in kind.model_fields)


def _normalize_option(option: str) -> str:
    return option.lstrip("-").replace("-", "_").lower()


def _is_misspelled_option(name: str, options: set[str]) -> bool:
    """Return whether a name is closer to an existing option than to any setting."""
    nearest = get_close_matches(name, [*options, *(key for _, key in _list_settings())], n=1, cutoff=CLOSE)
    return bool(nearest) and nearest[0] in options


def _take_initials(key: str) -> str:
    return "".join(word[0] for word in key.split("_"))


def _find_value(option: str, arguments: Sequence[str]) -> str:
    """Return the value given for an option, after it or after its equals sign."""
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option and equals:
            return value
        following = arguments[number + 1 :]
        if name == option and following and not following[0].startswith("--"):
            return following[0]
    return "VALUE"
