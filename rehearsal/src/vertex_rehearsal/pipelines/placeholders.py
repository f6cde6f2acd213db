"""What stands for values on a pipeline task's command line: `{{$}}`, `{{$.inputs.parameters['x']}}` and others."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vertex_rehearsal.api.errors import ApiError

ANY = re.compile(r"\{\{\$(?:\.([^}]*))?\}\}")
INPUT = re.compile(r"inputs\.parameters\['([^']+)'\]")
OUTPUT = re.compile(r"outputs\.parameters\['([^']+)'\]\.output_file")
ARTIFACT = re.compile(r"(inputs|outputs)\.artifacts\['([^']+)'\]\.(uri|path|value|name)")
METADATA = re.compile(r"(inputs|outputs)\.artifacts\['([^']+)'\]\.metadata\['([^']+)'\]")


def format_value(value: Any) -> str:
    """Format a value for insertion into a string."""
    return value if isinstance(value, str) else json.dumps(value)


def get_mount_path(uri: str) -> str:
    """Return the path at which a task finds an object."""
    return uri.replace("gs://", "/gcs/", 1) if uri.startswith("gs://") else uri


def fill_constant(text: str, inputs: Mapping[str, Any]) -> str:
    """Replace the placeholders in a constant by the task's inputs."""
    return ANY.sub(lambda found: _resolve_placeholder(found, {"inputs": {"parameterValues": inputs}}, {}), text)


def render_command(template: Sequence[Any], executor_input: Mapping[str, Any], facts: Mapping[str, str]) -> list[str]:
    """Replace the placeholders in a command line; omit arguments that depend on a missing input."""
    found: list[str] = []
    for word in template:
        found += _render_word(_decode_word(word), executor_input, facts)
    return found


def _decode_word(word: Any) -> Any:
    """Expand an optional or concatenated argument, which the compiler writes as JSON in a string."""
    if isinstance(word, str) and word.startswith(('{"IfPresent"', '{"Concat"')):
        try:
            return json.loads(word)
        except ValueError:
            return word
    return word


def _render_word(word: Any, executor_input: Mapping[str, Any], facts: Mapping[str, str]) -> list[str]:
    word = _decode_word(word)
    if isinstance(word, str):
        return [ANY.sub(lambda found: _resolve_placeholder(found, executor_input, facts), word)]
    if isinstance(word, list):
        return [inner for one in word for inner in _render_word(one, executor_input, facts)]
    if "Concat" in word:
        return ["".join(inner for one in word["Concat"] for inner in _render_word(one, executor_input, facts))]
    asked = word["IfPresent"]
    given = executor_input["inputs"]
    is_there = asked["InputName"] in given["parameterValues"] or asked["InputName"] in given["artifacts"]
    return _render_word(asked["Then"] if is_there else asked.get("Else", []), executor_input, facts)


def _resolve_placeholder(found: "re.Match[str]", executor_input: Mapping[str, Any], facts: Mapping[str, str]) -> str:
    asked = found[1]
    if asked is None:
        return json.dumps(executor_input)
    try:
        if asked in facts:
            return facts[asked]
        if match := INPUT.fullmatch(asked):
            return format_value(executor_input["inputs"]["parameterValues"][match[1]])
        if match := OUTPUT.fullmatch(asked):
            return str(executor_input["outputs"]["parameters"][match[1]]["outputFile"])
        if match := ARTIFACT.fullmatch(asked):
            artifact = executor_input[match[1]]["artifacts"][match[2]]["artifacts"][0]
            return get_mount_path(artifact["uri"]) if match[3] in ("path", "value") else str(artifact[match[3]])
        if match := METADATA.fullmatch(asked):
            artifact = executor_input[match[1]]["artifacts"][match[2]]["artifacts"][0]
            return format_value(artifact["metadata"][match[3]])
    except (KeyError, IndexError) as error:
        raise ApiError("INVALID_ARGUMENT", f"{found[0]} is not there: {error}.") from error
    raise ApiError("UNIMPLEMENTED", f"{found[0]} is not played by this rehearsal.")
