"""Validation of specs: every problem at once, each with its key and a suggestion."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import (
    BaseModel,
    ValidationError,
)
from pydantic_core import ErrorDetails

from tagline import registry
from tagline.errors import SpecError
from tagline.spec.sections import (
    DEFAULT_FAMILY,
    RECORDED,
    SECTIONS,
    Choices,
    Decisions,
    Goal,
    Range,
    Spec,
    Tuning,
    options_of,
)
from tagline.spec.toml_values import format_value


def parse(raw: Mapping[str, Any], *, where: str) -> Spec:
    """Validate raw tables and return the spec, or raise one SpecError that lists every problem."""
    spec, problems = try_parse(raw)
    if spec is None:
        raise SpecError.from_problems(where, problems)
    return spec


def try_parse(raw: Mapping[str, Any], *, is_recorded: bool = False) -> tuple[Spec | None, list[str]]:
    """Return the spec, or None and every problem; `is_recorded` says that it is the spec of an existing run."""
    problems = [
        f"{name}: {_suggest_names(name, [*SECTIONS, 'model'], what='section')}"
        for name in raw
        if name not in SECTIONS and name != "model"
    ]
    parts: dict[str, Any] = {name: check_section(name, raw, problems, is_recorded=is_recorded) for name in SECTIONS}
    parts["model"] = _check_model(raw.get("model", {}), problems)
    problems += _check_search(raw.get("tuning"), parts["model"])
    if problems:
        return None, problems
    return Spec(**parts), []


def check_section(name: str, raw: Mapping[str, Any], problems: list[str], *, is_recorded: bool = False) -> Any:
    """Validate one section by itself; its problems are added to the list, and None is returned if there are any."""
    return _validate_section(
        SECTIONS[name], raw.get(name, {}), name, problems, context=RECORDED if is_recorded else None
    )


def _check_model(raw: Any, problems: list[str]) -> BaseModel | None:
    family = raw.get("family", DEFAULT_FAMILY) if isinstance(raw, Mapping) else DEFAULT_FAMILY
    if not isinstance(family, str) or family not in registry.list_implementations("models"):
        problems.append(f"model.family: {registry.explain_unknown('models', str(family))}")
        return None
    checked: BaseModel | None = _validate_section(options_of(family), raw, "model", problems)
    return checked


def check_options(options: type[BaseModel], raw: Any, problems: list[str]) -> Any:
    """Validate a family's `[model]` by itself, as `check_section` does."""
    return _validate_section(options, raw, "model", problems)


def _validate_section(
    section: type[BaseModel], raw: Any, name: str, problems: list[str], *, context: Mapping[str, bool] | None = None
) -> Any:
    try:
        return section.model_validate(_convert_lists(raw), context=context)
    except ValidationError as error:
        problems.extend(_explain_errors(error.errors(include_url=False), section, name))


def _convert_lists(raw: Any) -> Any:
    """Convert TOML's lists to tuples, which a strict and frozen spec accepts."""
    if isinstance(raw, Mapping):
        return {key: _convert_lists(value) for key, value in raw.items()}
    return tuple(map(_convert_lists, raw)) if isinstance(raw, list | tuple) else raw


EXPECTED = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "string_type": "a text", "bool_type": "true or false", "tuple_type": "a list", "dict_type": "a table",
    "model_type": "a table", "greater_than": "greater than {gt}", "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}", "less_than_equal": "at most {le}", "literal_error": "{expected}",
    "finite_number": "a finite number", "too_short": "a longer list",
}  # fmt: skip


def _explain_errors(errors: list[ErrorDetails], section: type[BaseModel], name: str) -> Iterator[str]:
    """Yield one line for each key, merging the errors that pydantic reports for each member of a union."""
    expected_by_key: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for error in errors:
        path, known = _locate_error(error["loc"], section)
        key = ".".join([name, *path])
        if error["type"] == "missing":
            yield f"{key}: needed"
        elif error["type"] == "extra_forbidden":
            yield f"{key}: {_suggest_names(str(error['loc'][-1]), known)}"
        elif error["type"] == "value_error":
            yield f"{key}: {error['ctx']['error']}"
        else:
            expected = EXPECTED.get(error["type"], "").format(**error.get("ctx", {})).replace("'", '"')
            expected_by_key.setdefault(key, []).append(expected or error["msg"].removeprefix("Input should be "))
            values[key] = error["input"]
    for key, phrases in expected_by_key.items():
        yield f"{key}: must be {' or '.join(dict.fromkeys(phrases))}, not {format_value(values[key])}"


def _locate_error(loc: tuple[int | str, ...], section: type[BaseModel]) -> tuple[list[str], list[str]]:
    """Return the part of an error's location that the user typed, and the keys that are valid there."""
    if section is Tuning and loc[:1] == ("search",) and len(loc) > 1:
        kind, inside = (Choices if "choices" in loc[2:] else Range), [str(part) for part in loc[3:4]]
        return ["search", json.dumps(str(loc[1])), *inside], list(kind.model_fields)
    if section is Decisions and loc[:2] == ("thresholds", "goal"):
        return ["thresholds"], list(Goal.model_fields)
    return [str(part) for part in loc[:1]], list(section.model_fields)


def _suggest_names(name: str, known: list[str], *, what: str = "setting") -> str:
    close = get_close_matches(name, known, n=1)
    return f"no such {what}" + (f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}")


def _check_search(tuning: Any, model: BaseModel | None) -> Iterator[str]:
    """Yield a problem for each searched key that the spec does not have.

    It reads the raw table, so that other problems of the section do not hide these.

    """
    search = tuning.get("search") if isinstance(tuning, Mapping) else None
    if not isinstance(search, Mapping):
        return
    known = [f"{name}.{key}" for name in ("data", "training", "decisions") for key in SECTIONS[name].model_fields]
    known += [f"model.{key}" for key in type(model).model_fields] if model else []
    for key in search:
        if key not in known and (model or not key.startswith("model.")):
            yield f"tuning.search.{json.dumps(key)}: {_suggest_names(key, known)}"
