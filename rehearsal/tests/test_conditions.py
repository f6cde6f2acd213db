"""The small languages in compiled pipelines: conditions, and what stands for values on a command line."""

import json
from typing import Any

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.pipelines import conditions, placeholders, spec

INPUTS = {"word": "good", "number": 3, "share": 0.5, "flag": True, "quoted": "it's"}
X = "inputs.parameter_values['{}']".format


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"{X('word')} == 'good'", True),
        (f"!({X('word')} == 'good')", False),
        (f"{X('quoted')} == 'it\\'s'", True),
        (f"int({X('number')}) > 2 && double({X('share')}) <= 0.5", True),
        (f"int({X('number')}) < -2 || {X('flag')} == true", True),
        (f"!({X('word')} == 'good') && !({X('number')} == 3)", False),
        (f"{X('number')} != 3 || ({X('word')} != 'x' && string({X('number')}) == '3')", True),
    ],
)
def test_conditions(condition: str, expected: bool) -> None:
    assert conditions.evaluate_condition(condition, INPUTS) is expected


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("size(inputs.parameter_values['word']) > 1", "UNIMPLEMENTED"), ("", "UNIMPLEMENTED"),
        ("(true", "UNIMPLEMENTED"), ("true true", "UNIMPLEMENTED"), ("int 3", "UNIMPLEMENTED"),
        (f"{X('nobody')} == 1", "INVALID_ARGUMENT"), (f"{X('word')} > 1", "INVALID_ARGUMENT"),
        (f"int({X('word')}) > 1", "INVALID_ARGUMENT"),
    ],
)  # fmt: skip
def test_conditions_that_are_not_understood_are_said(condition: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        conditions.evaluate_condition(condition, INPUTS)
    assert caught.value.code == code


ARTIFACT = {"name": "artifacts/1", "uri": "gs://bucket/rows", "metadata": {"count": 2}}
EXECUTOR_INPUT: dict[str, Any] = {
    "inputs": {"parameterValues": {"word": "a {{$}} b", "number": 3}, "artifacts": {"rows": {"artifacts": [ARTIFACT]}}},
    "outputs": {"parameters": {"out": {"outputFile": "/gcs/b/out"}}, "artifacts": {}, "outputFile": "/gcs/b/x.json"},
}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("plain", ["plain"]),
        ("{{$.inputs.parameters['word']}}!", ["a {{$}} b!"]),
        ("{{$.inputs.parameters['number']}}", ["3"]),
        ("{{$.inputs.artifacts['rows'].uri}}", ["gs://bucket/rows"]),
        ("{{$.inputs.artifacts['rows'].path}}", ["/gcs/bucket/rows"]),
        ("{{$.inputs.artifacts['rows'].metadata['count']}}", ["2"]),
        ("{{$.outputs.parameters['out'].output_file}}", ["/gcs/b/out"]),
        ("{{$.pipeline_job_name}}", ["job"]),
        ("{{$}}", [json.dumps(EXECUTOR_INPUT)]),
        ('{"Concat": ["--word=", "{{$.inputs.parameters[\'number\']}}"]}', ["--word=3"]),
        (
            '{"IfPresent": {"InputName": "number", "Then": ["--n", "{{$.inputs.parameters[\'number\']}}"]}}',
            ["--n", "3"],
        ),
        ('{"IfPresent": {"InputName": "nobody", "Then": ["--n"], "Else": ["--none"]}}', ["--none"]),
        ('{"IfPresent": {"InputName": "nobody", "Then": ["--n"]}}', []),
    ],
)
def test_words(word: str, expected: list[str]) -> None:
    assert placeholders.render_command([word], EXECUTOR_INPUT, {"pipeline_job_name": "job"}) == expected


@pytest.mark.parametrize(
    ("word", "code"),
    [("{{$.inputs.parameters['nobody']}}", "INVALID_ARGUMENT"), ("{{$.json_escape[1]}}", "UNIMPLEMENTED")],
)
def test_words_that_cannot_be_filled_are_said(word: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        placeholders.render_command([word], EXECUTOR_INPUT, {})
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [(3.0, "NUMBER_INTEGER", 3), (3, "NUMBER_DOUBLE", 3.0), (True, "BOOLEAN", True), ([1], "LIST", [1]),
     (None, "STRING", None), ("x", "TASK_FINAL_STATUS", "x")],
)  # fmt: skip
def test_values_have_the_types_of_their_parameters(value: Any, kind: str, expected: Any) -> None:
    found = spec.convert_value(value, kind, "x")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(3.5, "NUMBER_INTEGER"), (float("inf"), "NUMBER_INTEGER"), (True, "NUMBER_INTEGER"), (1, "STRING")],
)
def test_values_of_another_type_are_refused(value: Any, kind: str) -> None:
    with pytest.raises(ApiError, match=f"x is {kind}"):
        spec.convert_value(value, kind, "x")


def test_outputs_are_parsed_by_type() -> None:
    assert spec.parse_output("3", "STRING", "x") == "3"
    assert spec.parse_output("3", "NUMBER_DOUBLE", "x") == 3.0
    with pytest.raises(ApiError, match="the task has written 'three'"):
        spec.parse_output("three", "NUMBER_INTEGER", "x")
