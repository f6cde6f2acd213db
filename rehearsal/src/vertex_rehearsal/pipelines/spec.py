"""Validates compiled Kubeflow pipelines and converts values to their parameters' types."""

import json
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.execution import containers, images
from vertex_rehearsal.settings import Settings

AT = "pipeline_job.pipeline_spec"
CONVERSIONS = {
    "NUMBER_INTEGER": int, "NUMBER_DOUBLE": float, "STRING": str, "BOOLEAN": bool, "LIST": list, "STRUCT": dict,
}  # fmt: skip
COMPLETED = "ALL_UPSTREAM_TASKS_COMPLETED"
STRATEGIES = ("", "TRIGGER_STRATEGY_UNSPECIFIED", "ALL_UPSTREAM_TASKS_SUCCEEDED", COMPLETED)


def check_spec(spec: Any, settings: Settings) -> None:
    """Raise ApiError for anything but a compiled pipeline, and for features that are not emulated."""
    if not isinstance(spec, dict) or not spec:
        raise invalid_argument(AT, "Required field is not set: pipeline_spec.")
    version = str(spec.get("schemaVersion", ""))
    if not version.startswith("2.") or version.startswith("2.0"):
        raise ApiError(
            "UNIMPLEMENTED", f'Pipelines of schema version "{version}" are not played: 2.1 is.', f"{AT}.schemaVersion"
        )
    try:
        if not spec["pipelineInfo"]["name"]:
            raise invalid_argument(f"{AT}.pipelineInfo.name", "Required field is not set: name.")
        _check_dag(spec, spec["root"]["dag"], f"{AT}.root")
        for name, component in spec.get("components", {}).items():
            at = f"{AT}.components.{name}"
            if "dag" in component:
                _check_dag(spec, component["dag"], at)
            else:
                _check_executor(get_executor(spec, component), settings, f"{AT}.deploymentSpec.executors")
    except (KeyError, TypeError, AttributeError) as error:
        raise invalid_argument(AT, f"The pipeline's spec is not whole: {type(error).__name__} {error}.") from error


def get_executor(spec: Mapping[str, Any], component: Mapping[str, Any]) -> Any:
    """Return the executor of a component."""
    return spec["deploymentSpec"]["executors"][component["executorLabel"]]


def _check_dag(spec: Mapping[str, Any], dag: Mapping[str, Any], at: str) -> None:
    """Check that the components of all tasks exist and the dependencies have no cycle."""
    tasks = dag["tasks"]
    for name, task in tasks.items():
        here = f"{at}.dag.tasks.{name}"
        if task["componentRef"]["name"] not in spec["components"]:
            raise invalid_argument(
                f"{here}.componentRef.name", f"There is no component {task['componentRef']['name']}."
            )
        for other in find_upstream(task):
            if other not in tasks:
                raise invalid_argument(
                    f"{here}.dependentTasks", f"The task {name} depends on {other}, which is not there."
                )
        strategy = task.get("triggerPolicy", {}).get("strategy", "")
        if strategy not in STRATEGIES:
            raise ApiError("UNIMPLEMENTED", f"The trigger strategy {strategy} is not played.", f"{here}.triggerPolicy")
    try:
        TopologicalSorter({name: find_upstream(task) for name, task in tasks.items()}).prepare()
    except CycleError as error:
        raise invalid_argument(
            f"{at}.dag.tasks", f"These tasks wait for each other: {', '.join(error.args[1])}."
        ) from error


def find_upstream(task: Mapping[str, Any]) -> set[str]:
    """Return a task's dependencies: those it names and those whose outputs or states it uses."""
    found = set(task.get("dependentTasks", ()))
    for kind in ("parameters", "artifacts"):
        for source in task.get("inputs", {}).get(kind, {}).values():
            for how in ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus"):
                if how in source:
                    found.add(source[how]["producerTask"])
    return found


def is_python_component(container: Mapping[str, Any]) -> bool:
    """Whether a container runs a Python function, whose source is in the command."""
    return any("kfp.dsl.executor_main" in str(word) for word in container.get("command", ()))


def runs_as_process(container: Mapping[str, Any]) -> bool:
    """Whether a container's command runs with this machine's Python: a function whose image is not here."""
    return is_python_component(container) and not containers.has_image(container["image"])


def _check_executor(executor: Mapping[str, Any], settings: Settings, at: str) -> None:
    kind = next(iter(executor), "")
    if kind == "importer":
        return
    if kind != "container":
        raise ApiError("UNIMPLEMENTED", f"Executors of the kind {kind} are not played by this rehearsal.", at)
    image = executor["container"]["image"]
    if not is_python_component(executor["container"]) and (reason := images.explain_unrunnable(image, settings)):
        raise ApiError("FAILED_PRECONDITION", f"{reason} Components that are Python functions run everywhere.", at)


def convert_value(value: Any, kind: str, name: str, at: str = "") -> Any:
    """Convert a value to its parameter's type: free-form JSON has only one type of number."""
    convert = CONVERSIONS.get(kind)
    if convert is None or value is None:
        return value
    if convert in (int, float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and (convert is float or float(value).is_integer()):
            return convert(value)
    elif isinstance(value, convert):
        return value
    raise invalid_argument(at, f"{name} is {kind}, not {value!r}.")


def parse_output(text: str, kind: str, name: str) -> Any:
    """Parse a value from the file that a container has written."""
    if kind == "STRING" or kind not in CONVERSIONS:
        return text
    try:
        return convert_value(json.loads(text), kind, name)
    except ValueError as error:
        raise ApiError(
            "INVALID_ARGUMENT", f"The output {name} is {kind}, but the task has written {text!r}."
        ) from error


def resolve_inputs(spec: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pipeline's parameters, with defaults for those that are not set."""
    at = "pipeline_job.runtime_config.parameter_values"
    known = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    if unknown := sorted(set(given) - set(known)):
        raise invalid_argument(
            at, f"The pipeline has no parameter {unknown[0]}; it has {', '.join(sorted(known)) or 'none'}."
        )
    return apply_defaults(known, given, at)


def apply_defaults(known: Mapping[str, Any], given: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Typed values for the parameters that a component knows; one that must be given and is not, is refused."""
    found = {}
    for name, about in known.items():
        if name in given:
            found[name] = convert_value(given[name], about.get("parameterType", ""), name, at)
        elif "defaultValue" in about:
            found[name] = convert_value(about["defaultValue"], about.get("parameterType", ""), name, at)
        elif not about.get("isOptional"):
            raise invalid_argument(at, f"The parameter {name} has no value.")
    return found
