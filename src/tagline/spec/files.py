"""Spec files: read with overrides, and written with comments."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
)
from pydantic.json_schema import models_json_schema

from tagline import registry
from tagline.errors import SpecError
from tagline.spec.problems import parse, try_parse
from tagline.spec.sections import DEFAULT_FAMILY, SECTIONS, Spec, options_of
from tagline.spec.toml_values import format_value


def load(path: Path, overrides: Sequence[str] = ()) -> Spec:
    """Read a spec file, apply `section.key=value` overrides, and report every problem at once."""
    return parse(read(path, overrides), where=str(path))


def loads(text: str, *, where: str) -> Spec:
    """Parse a spec from a string, as `to_toml` writes it."""
    return parse(tomllib.loads(text), where=where)


def load_recorded(path: Path) -> Spec:
    """Read the spec of an existing run, which may have settings that a new spec may not have."""
    spec, problems = try_parse(read(path), is_recorded=True)
    if spec is None:
        raise SpecError.from_problems(str(path), problems)
    return spec


def read(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the raw tables of a spec file with the overrides applied, not yet validated."""
    try:
        raw = tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError as error:
        hint = "tagline init DATA writes one from your data"
        raise SpecError(f"there is no spec {path}", hint=hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read the spec {path}: {error}") from error
    except (ValueError, RecursionError) as error:  # ValueError: not TOML, or a number of too many digits
        hint = "a text needs quotes in TOML, and a section stands in brackets: https://toml.io"
        raise SpecError(f"{path} is not TOML: {error}", hint=hint) from error
    return apply_overrides(raw, overrides)


def apply_overrides(raw: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of the raw tables with `section.key=value` applied; a value that is not TOML is a string.

    Changing the family drops the options of the family in the file.

    """
    tables = {name: dict(table) if isinstance(table, Mapping) else table for name, table in raw.items()}
    families = [text.partition("=")[2].strip(" \"'") for text in overrides if re.match(r"\s*model\.family\s*=", text)]
    model = tables.get("model", {})
    if families and isinstance(model, dict) and model.get("family", families[-1]) != families[-1]:
        tables["model"] = {}
    for text in overrides:
        # A label may contain an equals sign; the value of a gate, a number, does not.
        key, equals, value = text.rpartition("=") if text.startswith("gates.per_label_") else text.partition("=")
        section, dot, leaf = key.strip().partition(".")
        if not (equals and dot and section and leaf):
            raise SpecError(f'cannot understand "{text}"', hint=_override_hint(key.strip(), value))
        table = tables.setdefault(section, {})
        if not isinstance(table, dict):
            raise SpecError(f'cannot set {key}: "{section}" is not a section')
        name, dot, label = leaf.partition(".")
        if section in ("data", "gates", "vertex") and dot:  # gates.per_label_recall.urgent=0.9, data.label_names.0=bad
            by_label = table.get(name, {})
            table[name] = {
                **(by_label if isinstance(by_label, Mapping) else {}),
                _strip_quotes(label): _parse_value(value),
            }
        else:
            table[leaf] = _parse_value(value)
    return tables


def _strip_quotes(text: str) -> str:
    """Return a name without a pair of quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def defaults(data: Mapping[str, Any]) -> Spec:
    """Return a spec for this `[data]` with every other setting at its default."""
    return parse({"data": data}, where="the spec")


def to_toml(spec: Spec, *, comments: bool = False, with_place: bool = True) -> str:
    """Return the spec as TOML with every default written out, and if requested with each key's meaning in a comment."""
    sections = [name for name in type(spec).model_fields if with_place or name != "vertex"]
    return "\n".join(_format_section(name, getattr(spec, name), comments=comments) for name in sections)


def iter_keys(spec: Spec) -> Iterator[tuple[str, Any]]:
    """Yield every `section.key` of a spec with its value."""
    for section in type(spec).model_fields:
        part = getattr(spec, section)
        for key in type(part).model_fields:
            yield f"{section}.{key}", getattr(part, key)


def json_schema() -> dict[str, Any]:
    """Return a JSON schema of the TOML file, for editors."""
    families = [options_of(name) for name in registry.list_names("models")]
    parts, definitions = models_json_schema([(part, "validation") for part in (*SECTIONS.values(), *families)])
    sections: dict[str, Any] = {name: parts[section, "validation"] for name, section in SECTIONS.items()}
    sections["model"] = {"anyOf": [parts[family, "validation"] for family in families]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tagline.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: sections[name] for name in Spec.model_fields},
        "required": ["data"],
        "$defs": definitions["$defs"],
    }


def _override_hint(key: str, value: str) -> str:
    """Return a suggestion for a malformed override: the section of a bare key, or else the correct form."""
    parts = {**SECTIONS, "model": options_of(DEFAULT_FAMILY)}
    known = [(section, name) for section, part in parts.items() for name in part.model_fields]
    close = get_close_matches(key, [name for _, name in known], n=1) if "." not in key else []
    suggestions = [f"{section}.{name}={value}" for section, name in known if name in close]
    if suggestions:
        return f"did you mean {' or '.join(suggestions)}?"
    return "a setting is changed as section.key=value, for example training.epochs=5"


def _parse_value(text: str) -> Any:
    """Parse a value typed on the command line; a lone space or tab is a string, since it may be a separator."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        parsed = {}
    return parsed["value"] if len(parsed) == 1 else text.strip() or text


def _format_section(name: str, part: BaseModel, *, comments: bool) -> str:
    lines = [f"[{name}]"]
    tables: list[str] = []
    for key, field in type(part).model_fields.items():
        value = getattr(part, key)
        if isinstance(value, Mapping):
            tables += (
                [f"[{name}.{key}]", *(f"{format_value(k)} = {format_value(v)}" for k, v in value.items())]
                if value
                else []
            )
            continue
        line = f"{key} = {format_value(value)}"
        lines.append(f"{line:<34} # {field.description}" if comments and field.description else line)
    return "\n".join([*lines, *tables, ""])
