"""Values passed between the tasks of a pipeline: outcomes, inputs, loop items and outputs."""

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.pipelines import placeholders, spec

Artifacts = Mapping[str, Sequence[Mapping[str, Any]]]
_MISSING: Any = object()


@dataclass(frozen=True)
class TaskOutcome:
    """How a task ended, with its outputs."""

    state: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Artifacts = field(default_factory=dict)
    problem: ApiError | None = None


@dataclass(frozen=True)
class DagScope:
    """The values visible to the tasks of one DAG: its inputs and the outcomes of its tasks."""

    pipeline: str
    """The pipeline job's name."""
    parameters: Mapping[str, Any]
    artifacts: Artifacts
    parent: str
    """The task that the DAG belongs to; "" for the pipeline's root DAG."""
    outcomes: Mapping[str, "Future[TaskOutcome]"]


def new_artifact(
    parent: str, key: str, uri: str, kind: Mapping[str, Any], metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """An artifact as tasks are told of it, with a name in the metadata store of the region that is `parent`."""
    name = f"{parent}/metadataStores/default/artifacts/{new_id()}"
    title = {"schemaTitle": kind.get("schemaTitle", "system.Artifact")}
    return {"name": name, "uri": uri, "type": title, "metadata": dict(metadata or {}), "displayName": key}


def resolve_inputs(
    task: Mapping[str, Any], component: Mapping[str, Any], scope: DagScope
) -> tuple[dict[str, Any], Artifacts]:
    """Resolve a task's inputs from its DAG and from other tasks."""
    sources = task.get("inputs", {})
    parameters: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for key, source in sources.get("parameters", {}).items():
        if "runtimeValue" in source:
            constants[key] = source["runtimeValue"]["constant"]
        elif (value := _resolve_parameter(source, scope)) is not _MISSING:
            parameters[key] = _select_part(value, source.get("parameterExpressionSelector", ""))
    known = component.get("inputDefinitions", {}).get("parameters", {})
    for key, about in known.items():
        if key in parameters:
            parameters[key] = spec.convert_value(parameters[key], about.get("parameterType", ""), key)
    for key, value in constants.items():
        parameters[key] = placeholders.fill_constant(value, parameters) if isinstance(value, str) else value
    artifacts: dict[str, Any] = {}
    for key, source in sources.get("artifacts", {}).items():
        if "componentInputArtifact" in source:
            if source["componentInputArtifact"] in scope.artifacts:
                artifacts[key] = scope.artifacts[source["componentInputArtifact"]]
        else:
            made = source["taskOutputArtifact"]
            given = scope.outcomes[made["producerTask"]].result().artifacts
            artifacts[key] = _get_output(given, made["outputArtifactKey"], made["producerTask"])
    return parameters, artifacts


def _resolve_parameter(source: Mapping[str, Any], scope: DagScope) -> Any:
    if "componentInputParameter" in source:
        return scope.parameters.get(source["componentInputParameter"], _MISSING)
    if "taskOutputParameter" in source:
        made = source["taskOutputParameter"]
        given = scope.outcomes[made["producerTask"]].result().parameters
        return _get_output(given, made["outputParameterKey"], made["producerTask"])
    if "taskFinalStatus" in source:
        producer = source["taskFinalStatus"]["producerTask"]
        outcome = scope.outcomes[producer].result()
        status = {"state": outcome.state, "pipelineJobResourceName": scope.pipeline, "pipelineTaskName": producer}
        problem = outcome.problem
        return status | ({"error": {"code": problem.number, "message": problem.message}} if problem else {})
    raise ApiError("UNIMPLEMENTED", f"Inputs that come by {', '.join(source)} are not played by this rehearsal.")


def _get_output(given: Mapping[str, Any], key: str, task: str) -> Any:
    if key not in given:
        raise ApiError("INVALID_ARGUMENT", f"The task {task} gives no {key}.")
    return given[key]


def _select_part(value: Any, selector: str) -> Any:
    """Return the part of a value that a selector such as `parseJson(string_value)["a"]` refers to."""
    if not selector:
        return value
    found = re.fullmatch(r'parseJson\(string_value\)((?:\["[^"]+"\])*)', selector)
    if not found:
        raise ApiError("UNIMPLEMENTED", f"The selector {selector} is not played by this rehearsal.")
    value = json.loads(value) if isinstance(value, str) else value
    for key in re.findall(r'\["([^"]+)"\]', found[1]):
        if not isinstance(value, dict) or key not in value:
            raise ApiError("INVALID_ARGUMENT", f"{selector}: there is no {key} in {value!r}.")
        value = value[key]
    return value


def resolve_items(
    task: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts
) -> tuple[Sequence[Any], str, bool]:
    """Return a loop's items, the input that each is passed to, and whether they are artifacts."""
    if "artifactIterator" in task:
        iterator = task["artifactIterator"]
        return artifacts[iterator["items"]["inputArtifact"]], iterator["itemInput"], True
    iterator = task["parameterIterator"]
    items = iterator["items"]
    found = json.loads(items["raw"]) if "raw" in items else parameters[items["inputParameter"]]
    if isinstance(found, str):
        found = json.loads(found)
    if not isinstance(found, list):
        raise ApiError("INVALID_ARGUMENT", f"A loop goes over a list, not over {found!r}.")
    return found, iterator["itemInput"], False


def collect_outputs(
    definitions: Mapping[str, Any], outcomes: Mapping[str, "Future[TaskOutcome]"]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a DAG's outputs from those of its tasks; of alternative branches, from the one that ran."""
    parameters: dict[str, Any] = {}
    for key, source in definitions.get("parameters", {}).items():
        one = source.get("valueFromParameter")
        selectors = [one] if one else source.get("valueFromOneof", {}).get("parameterSelectors", ())
        for selector in selectors:
            given = outcomes[selector["producerSubtask"]].result().parameters
            if selector["outputParameterKey"] in given:
                parameters[key] = given[selector["outputParameterKey"]]
    artifacts: dict[str, Any] = {}
    for key, source in definitions.get("artifacts", {}).items():
        for selector in source.get("artifactSelectors", ()):
            given_artifacts = outcomes[selector["producerSubtask"]].result().artifacts
            if selector["outputArtifactKey"] in given_artifacts:
                artifacts[key] = given_artifacts[selector["outputArtifactKey"]]
    return parameters, artifacts
