"""What stands for values on a pipeline task's command line: `{{$}}`, `{{$.inputs.parameters['x']}}` and others."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vertex_rehearsal.api.errors import Problem

ANY = re.compile(r"\{\{\$(?:\.([^}]*))?\}\}")
INPUT = re.compile(r"inputs\.parameters\['([^']+)'\]")
OUTPUT = re.compile(r"outputs\.parameters\['([^']+)'\]\.output_file")
ARTIFACT = re.compile(r"(inputs|outputs)\.artifacts\['([^']+)'\]\.(uri|path|value|name)")
METADATA = re.compile(r"(inputs|outputs)\.artifacts\['([^']+)'\]\.metadata\['([^']+)'\]")


def as_text(value: Any) -> str:
    """A value inside a text."""
    return value if isinstance(value, str) else json.dumps(value)


def path_of(uri: str) -> str:
    """Where a task finds an object."""
    return uri.replace("gs://", "/gcs/", 1) if uri.startswith("gs://") else uri


def filled(text: str, inputs: Mapping[str, Any]) -> str:
    """A constant of a pipeline with the task's inputs in it."""
    return ANY.sub(lambda found: _value(found, {"inputs": {"parameterValues": inputs}}, {}), text)


def words(template: Sequence[Any], executor_input: Mapping[str, Any], facts: Mapping[str, str]) -> list[str]:
    """A command line with everything in its place; a word that is only there for an input that is not, is left out."""
    found: list[str] = []
    for word in template:
        found += _word(_structured(word), executor_input, facts)
    return found


def _structured(word: Any) -> Any:
    """The compiler writes optional and joined words as JSON in a text."""
    if isinstance(word, str) and word.startswith(('{"IfPresent"', '{"Concat"')):
        try:
            return json.loads(word)
        except ValueError:
            return word
    return word


def _word(word: Any, executor_input: Mapping[str, Any], facts: Mapping[str, str]) -> list[str]:
    word = _structured(word)
    if isinstance(word, str):
        return [ANY.sub(lambda found: _value(found, executor_input, facts), word)]
    if isinstance(word, list):
        return [inner for one in word for inner in _word(one, executor_input, facts)]
    if "Concat" in word:
        return ["".join(inner for one in word["Concat"] for inner in _word(one, executor_input, facts))]
    asked = word["IfPresent"]
    given = executor_input["inputs"]
    is_there = asked["InputName"] in given["parameterValues"] or asked["InputName"] in given["artifacts"]
    return _word(asked["Then"] if is_there else asked.get("Else", []), executor_input, facts)


def _value(found: "re.Match[str]", executor_input: Mapping[str, Any], facts: Mapping[str, str]) -> str:
    asked = found[1]
    if asked is None:
        return json.dumps(executor_input)
    try:
        if asked in facts:
            return facts[asked]
        if match := INPUT.fullmatch(asked):
            return as_text(executor_input["inputs"]["parameterValues"][match[1]])
        if match := OUTPUT.fullmatch(asked):
            return str(executor_input["outputs"]["parameters"][match[1]]["outputFile"])
        if match := ARTIFACT.fullmatch(asked):
            artifact = executor_input[match[1]]["artifacts"][match[2]]["artifacts"][0]
            return path_of(artifact["uri"]) if match[3] in ("path", "value") else str(artifact[match[3]])
        if match := METADATA.fullmatch(asked):
            artifact = executor_input[match[1]]["artifacts"][match[2]]["artifacts"][0]
            return as_text(artifact["metadata"][match[3]])
    except (KeyError, IndexError) as error:
        raise Problem("INVALID_ARGUMENT", f"{found[0]} is not there: {error}.") from error
    raise Problem("UNIMPLEMENTED", f"{found[0]} is not played by this rehearsal.")
