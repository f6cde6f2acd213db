"""A pipeline that runs: its tasks in their order, each of them a custom job, with what they hand to each other."""

import json
import math
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagline.rehearsal import conditions, environments, pipeline_specs, placeholders
from tagline.rehearsal.environments import Environment
from tagline.rehearsal.jobs import ENDED, state_of
from tagline.rehearsal.messages import as_dict, fill, v1
from tagline.rehearsal.operations import new_id
from tagline.rehearsal.performances import Ending
from tagline.rehearsal.problems import Problem
from tagline.rehearsal.replicas import Job
from tagline.rehearsal.stage import report_bug

if TYPE_CHECKING:
    from tagline.rehearsal.stage import Stage

FAIL_FAST = 2
MACHINE = "e2-standard-4"
"""What Vertex AI gives to tasks that ask for nothing."""
Artifacts = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Outcome:
    """How a task ended, and what it gives."""

    state: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Artifacts = field(default_factory=dict)
    problem: Problem | None = None


@dataclass(frozen=True)
class Scope:
    """What the tasks of one DAG see: its own inputs, and the outcomes of each other."""

    parameters: Mapping[str, Any]
    artifacts: Artifacts
    parent: str
    outcomes: Mapping[str, "Future[Outcome]"]


class PipelineRun:
    """One pipeline job; `run` plays it in the thread that calls it, the rest may be called from any other."""

    def __init__(self, job: Any, spec: Mapping[str, Any], parameters: Mapping[str, Any], stage: "Stage") -> None:
        self.name = job.name
        self._id = job.name.rpartition("/")[2]
        self._parent = job.name.partition("/pipelineJobs/")[0]
        self._spec = spec
        self._parameters = parameters
        self._stage = stage
        self._root = job.runtime_config.gcs_output_directory.rstrip("/")
        self._fails_fast = job.runtime_config.failure_policy == FAIL_FAST
        self._created = job.create_time.ToJsonString()
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[str, Future[Any]]] = {}
        """Custom jobs that have not ended: the tasks that they are, and who waits for them."""
        self._failed: list[tuple[str, Problem]] = []
        self._interrupted = threading.Event()
        self._stopped = ""

    def run(self) -> Ending:
        """Play the pipeline to its end."""
        outcome = self._dag(self._spec["root"]["dag"], self._parameters, {}, "")
        if self._stopped:
            return Ending("FAILED", Problem("ABORTED", self._stopped))
        if self._interrupted.is_set():
            return Ending("CANCELLED", Problem("CANCELLED", "CANCELED"))
        if self._failed:
            names = ", ".join(name for name, _ in self._failed)
            causes = " ".join(f"{name}: {problem.message}" for name, problem in self._failed)
            said = f"The DAG failed because some tasks failed. The failed tasks are: [{names}]. {causes}"
            return Ending("FAILED", Problem("FAILED_PRECONDITION", said))
        return Ending("FAILED", outcome.problem) if outcome.problem else Ending("SUCCEEDED")

    def cancel(self) -> None:
        """Begin no more tasks, end those that run."""
        self._interrupted.set()
        with self._lock:
            names = list(self._jobs)
        for name in names:
            self._stage.jobs.cancel(name)

    def stop(self, reason: str) -> None:
        """Wait for nothing any more: the rehearsal stops, and the jobs of tasks have been ended."""
        self._stopped = reason
        self._interrupted.set()
        with self._lock:
            waiting = dict(self._jobs)
            self._jobs.clear()
        for name, (_, ended) in waiting.items():
            self._stage.jobs.forget_queued(name)
            ended.set_result(None)

    def follow(self, job: Any) -> None:
        """Take note of a custom job's new state, if it is a task's."""
        with self._lock:
            task, ended = self._jobs.get(job.name, ("", None))
            if ended is None:
                return
            if state_of(job) in ENDED:
                del self._jobs[job.name]
        if state_of(job) in ENDED:
            ended.set_result(job)
        elif state_of(job) == "RUNNING":
            self._record(task, "RUNNING")

    def _dag(
        self, dag: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts, parent: str
    ) -> Outcome:  # fmt: skip
        """Run the tasks of a DAG, each as soon as those are done that it waits for."""
        tasks = dag["tasks"]
        outcomes: dict[str, Future[Outcome]] = {name: Future() for name in tasks}
        scope = Scope(parameters, artifacts, parent, outcomes)
        for name, task in tasks.items():
            threading.Thread(target=self._play, args=(name, task, scope), daemon=True).start()
        states = {name: outcome.result().state for name, outcome in outcomes.items()}
        bad = next((state for state in ("FAILED", "CANCELLED") if state in states.values()), "")
        if not bad:
            return Outcome("SUCCEEDED", *_outputs(dag.get("outputs", {}), outcomes))
        causes = {name: outcomes[name].result().problem for name, state in states.items() if state == bad}
        said = " ".join(f"{name}: {problem.message}" if problem else f"{name}." for name, problem in causes.items())
        return Outcome(bad, problem=Problem("FAILED_PRECONDITION", f"Tasks that have {bad.lower()}: {said}"))

    def _play(self, name: str, task: Mapping[str, Any], scope: Scope) -> None:
        """One task from waiting to its end, whatever that is."""
        for other in pipeline_specs.upstream(task):
            scope.outcomes[other].result()
        number = new_id()
        outcome = self._ended(name, number, scope.parent, lambda: self._triggered(name, number, task, scope))
        scope.outcomes[name].set_result(outcome)

    def _ended(self, name: str, number: str, parent: str, work: Callable[[], Outcome]) -> Outcome:
        """Do a task's work, and write down what came of it, whatever that is."""
        problem = None
        try:
            outcome = work()
        except Problem as found:
            problem = found
        except Exception as error:
            report_bug(error)
            problem = Problem("INTERNAL", f"{type(error).__name__}: {error}")
        if problem is not None:
            self._failed.append((name, problem))
            outcome = Outcome("FAILED", problem=problem)
        self._begin(name, number, parent)
        self._record(number, outcome.state, outcome)
        return outcome

    def _component(self, task: Mapping[str, Any]) -> Any:
        return self._spec["components"][task["componentRef"]["name"]]

    def _triggered(self, name: str, number: str, task: Mapping[str, Any], scope: Scope) -> Outcome:
        """Run a task, if those before it and its condition say so."""
        policy = task.get("triggerPolicy", {})
        if self._interrupted.is_set():
            return Outcome("CANCELLED")
        if policy.get("strategy") != pipeline_specs.COMPLETED:
            before = [scope.outcomes[other].result().state for other in pipeline_specs.upstream(task)]
            if any(state != "SUCCEEDED" for state in before) or (self._fails_fast and self._failed):
                return Outcome("NOT_TRIGGERED")
        parameters, artifacts = self._inputs(task, scope)
        condition = policy.get("condition", "")
        if condition and not conditions.holds(condition, parameters):
            return Outcome("NOT_TRIGGERED")
        if "parameterIterator" in task or "artifactIterator" in task:
            self._begin(name, number, scope.parent)
            self._record(number, "RUNNING")
            return self._loop(name, number, task, parameters, artifacts)
        return self._once(name, number, task, parameters, artifacts, scope.parent)

    def _once(
        self, name: str, number: str, task: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts,
        parent: str,
    ) -> Outcome:  # fmt: skip
        """A task with its inputs: a DAG of its own, or something that runs."""
        component = self._component(task)
        known = component.get("inputDefinitions", {}).get("parameters", {})
        parameters = pipeline_specs.with_defaults(known, parameters, f"tasks.{name}.inputs")
        self._begin(name, number, parent, parameters, artifacts)
        if "dag" in component:
            self._record(number, "RUNNING")
            return self._dag(component["dag"], parameters, artifacts, number)
        executor = pipeline_specs.executor_of(self._spec, component)
        if "importer" in executor:
            return self._import(executor["importer"], component, parameters)
        retries = task.get("retryPolicy", {})
        left = int(retries.get("maxRetryCount", 0))
        pause_s = float(str(retries.get("backoffDuration", "0s")).removesuffix("s") or 0)
        while True:
            outcome = self._execute(name, number, executor["container"], component, parameters, artifacts)
            if outcome.state != "FAILED":
                return outcome
            if not left or self._interrupted.wait(pause_s):
                self._failed.append((name, outcome.problem or Problem("UNKNOWN", "It failed.")))
                return outcome
            left -= 1
            self._say(f"Task {name} failed and is tried again: {outcome.problem}", name, "WARNING")

    def _loop(
        self, name: str, number: str, task: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts
    ) -> Outcome:  # fmt: skip
        """A task once for each item, as many at a time as its policy says; what they give becomes lists."""
        items, key, are_artifacts = _items(task, parameters, artifacts)
        limit = int(task.get("iteratorPolicy", {}).get("parallelismLimit", 0)) or max(1, len(items))
        places = threading.Semaphore(limit)
        outcomes: list[Future[Outcome]] = [Future() for _ in items]

        def once(index: int, item: Any) -> None:
            with places:
                inner, each = new_id(), f"{name}-{index}"
                given = parameters if are_artifacts else {**parameters, key: item}
                things = {**artifacts, key: [item]} if are_artifacts else artifacts

                def work() -> Outcome:
                    if self._interrupted.is_set():
                        return Outcome("CANCELLED")
                    return self._once(each, inner, task, given, things, number)

                outcomes[index].set_result(self._ended(each, inner, number, work))

        for index, item in enumerate(items):
            threading.Thread(target=once, args=(index, item), daemon=True).start()
        ended = [outcome.result() for outcome in outcomes]
        for bad in ("FAILED", "CANCELLED"):
            if problem := next((outcome for outcome in ended if outcome.state == bad), None):
                return Outcome(bad, problem=problem.problem)
        names = {key for outcome in ended for key in outcome.parameters}
        things = {key for outcome in ended for key in outcome.artifacts}
        return Outcome(
            "SUCCEEDED", {key: [outcome.parameters.get(key) for outcome in ended] for key in names},
            {key: [one for outcome in ended for one in outcome.artifacts.get(key, ())] for key in things},
        )  # fmt: skip

    def _inputs(self, task: Mapping[str, Any], scope: Scope) -> tuple[dict[str, Any], Artifacts]:
        """What a task gets, from the DAG around it and from other tasks."""
        sources = task.get("inputs", {})
        parameters: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for key, source in sources.get("parameters", {}).items():
            if "runtimeValue" in source:
                constants[key] = source["runtimeValue"]["constant"]
            elif (value := self._parameter(source, scope)) is not _MISSING:
                parameters[key] = _selected(value, source.get("parameterExpressionSelector", ""))
        known = self._component(task).get("inputDefinitions", {}).get("parameters", {})
        for key, about in known.items():
            if key in parameters:
                parameters[key] = pipeline_specs.typed(parameters[key], about.get("parameterType", ""), key)
        for key, value in constants.items():
            parameters[key] = placeholders.filled(value, parameters) if isinstance(value, str) else value
        artifacts: dict[str, Any] = {}
        for key, source in sources.get("artifacts", {}).items():
            if "componentInputArtifact" in source:
                if source["componentInputArtifact"] in scope.artifacts:
                    artifacts[key] = scope.artifacts[source["componentInputArtifact"]]
            else:
                made = source["taskOutputArtifact"]
                given = scope.outcomes[made["producerTask"]].result().artifacts
                artifacts[key] = _of(given, made["outputArtifactKey"], made["producerTask"])
        return parameters, artifacts

    def _parameter(self, source: Mapping[str, Any], scope: Scope) -> Any:
        if "componentInputParameter" in source:
            return scope.parameters.get(source["componentInputParameter"], _MISSING)
        if "taskOutputParameter" in source:
            made = source["taskOutputParameter"]
            given = scope.outcomes[made["producerTask"]].result().parameters
            return _of(given, made["outputParameterKey"], made["producerTask"])
        if "taskFinalStatus" in source:
            producer = source["taskFinalStatus"]["producerTask"]
            outcome = scope.outcomes[producer].result()
            status = {"state": outcome.state, "pipelineJobResourceName": self.name, "pipelineTaskName": producer}
            problem = outcome.problem
            return status | ({"error": {"code": problem.number, "message": problem.message}} if problem else {})
        raise Problem("UNIMPLEMENTED", f"Inputs that come by {', '.join(source)} are not played by this rehearsal.")

    def _import(
        self, importer: Mapping[str, Any], component: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Outcome:  # fmt: skip
        """An artifact that is there already."""
        uri = importer["artifactUri"]
        where = uri["constant"] if "constant" in uri else parameters[uri["runtimeParameter"]]
        (key,) = component["outputDefinitions"]["artifacts"]
        metadata = importer.get("metadata", {})
        return Outcome("SUCCEEDED", artifacts={key: [self._artifact(key, where, importer["typeSchema"], metadata)]})

    def _artifact(self, key: str, uri: str, kind: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        name = f"{self._parent}/metadataStores/default/artifacts/{new_id()}"
        title = {"schemaTitle": kind.get("schemaTitle", "system.Artifact")}
        return {"name": name, "uri": uri, "type": title, "metadata": dict(metadata), "displayName": key}

    def _execute(
        self, name: str, number: str, container: Mapping[str, Any], component: Mapping[str, Any],
        parameters: Mapping[str, Any], artifacts: Artifacts,
    ) -> Outcome:  # fmt: skip
        """Run a container's command as a custom job, and read what it leaves."""
        base = f"{self._root}/{self._id}/{number}"
        definitions = component.get("outputDefinitions", {})
        files = {key: placeholders.path_of(f"{base}/{key}") for key in definitions.get("parameters", {})}
        made = {
            key: [self._artifact(key, f"{base}/{key}", about.get("artifactType", {}), {})]
            for key, about in definitions.get("artifacts", {}).items()
        }
        executor_input = {
            "inputs": {"parameterValues": parameters, "artifacts": _listed(artifacts)},
            "outputs": {
                "parameters": {key: {"outputFile": path} for key, path in files.items()}, "artifacts": _listed(made),
                "outputFile": placeholders.path_of(f"{base}/executor_output.json"),
            },
        }  # fmt: skip
        directory = self._stage.local(base)
        directory.mkdir(parents=True, exist_ok=True)
        job = self._submit(name, number, container, executor_input)
        if job is None:
            return Outcome("FAILED", problem=Problem("ABORTED", self._stopped))
        if state_of(job) != "SUCCEEDED":
            state = "CANCELLED" if state_of(job) == "CANCELLED" else "FAILED"
            return Outcome(state, problem=Problem("FAILED_PRECONDITION", str(job.error.message)))
        return self._left(directory, definitions, made)

    def _submit(
        self, name: str, number: str, container: Mapping[str, Any], executor_input: Mapping[str, Any]
    ) -> Any | None:  # fmt: skip
        """The custom job of a task once it has ended; None where the rehearsal stops before."""
        facts = {
            "pipeline_job_name": self._id, "pipeline_job_uuid": self._id, "pipeline_job_resource_name": self.name,
            "pipeline_task_name": name, "pipeline_task_uuid": number, "pipeline_root": self._root,
            "pipeline_job_create_time_utc": self._created, "pipeline_job_schedule_time_utc": self._created,
        }  # fmt: skip
        job = v1.CustomJob(display_name=f"{self._id}-{name}"[-128:])
        pool = job.job_spec.worker_pool_specs.add(replica_count=1)
        pool.machine_spec.machine_type = MACHINE
        pool.container_spec.image_uri = container["image"]
        pool.container_spec.command.extend(placeholders.words(container.get("command", ()), executor_input, facts))
        pool.container_spec.args.extend(placeholders.words(container.get("args", ()), executor_input, facts))
        for variable in container.get("env", ()):
            pool.container_spec.env.add(name=variable["name"], value=variable.get("value", ""))
        ended: Future[Any] = Future()
        as_process = pipeline_specs.runs_as_process(container)
        directory = self._stage.settings.directory.resolve() / "jobs" / self._id / number
        variables = self._environment(directory) if as_process else {}

        def first(kept: Any) -> None:
            with self._lock:
                self._jobs[kept.name] = (number, ended)
            self._record(number, "PENDING", job=kept.name)

        def played(kept: Any) -> Job:
            return Job(kept.name, kept.job_spec, variables=tuple(variables.items()), as_process=as_process)

        try:
            kept = self._stage.jobs.submit(self._parent, job, first=first, played=played)
            if self._interrupted.is_set():
                self._stage.jobs.cancel(kept.name)
            return ended.result()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _environment(self, directory: Path) -> dict[str, str]:
        """A Python of the task's own, so that what its command installs stays in it."""
        environment = Environment(directory / "environment", self._stage.settings.strict)
        environment.create()
        path = f"{environment.python.parent}:{environments.inherited()['PATH']}"
        return {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}

    def _left(self, directory: Path, definitions: Mapping[str, Any], made: Mapping[str, Any]) -> Outcome:
        """What a task has left: its outputs, in files of their own or in the one of Kubeflow's executor."""
        written: dict[str, Any] = {}
        if (file := directory / "executor_output.json").is_file():
            try:
                written = json.loads(file.read_text())
            except ValueError as error:
                raise Problem("INVALID_ARGUMENT", f"executor_output.json is no JSON: {error}.") from error
        parameters = dict(written.get("parameterValues", {}))
        for key, about in definitions.get("parameters", {}).items():
            kind = about.get("parameterType", "")
            if key in parameters:
                parameters[key] = pipeline_specs.typed(parameters[key], kind, key)
            elif (directory / key).is_file():
                parameters[key] = pipeline_specs.parsed((directory / key).read_text(), kind, key)
            elif not about.get("isOptional"):
                raise Problem("INVALID_ARGUMENT", f"The task has not written its output {key}.")
        artifacts = {}
        for key, ours in made.items():
            theirs = written.get("artifacts", {}).get(key, {}).get("artifacts", ours)
            artifacts[key] = [{**ours[0], **one, "type": ours[0]["type"]} for one in theirs]
        return Outcome("SUCCEEDED", parameters, artifacts)

    def _begin(
        self, name: str, number: str, parent: str, parameters: Mapping[str, Any] | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:  # fmt: skip
        """Write a task down, unless it has been."""
        with self._stage.keeping.change(self.name) as job:
            details = job.job_detail.task_details
            if any(str(detail.task_id) == number for detail in details):
                return
            detail = details.add(task_id=int(number), task_name=name, parent_task_id=int(parent or 0))
            detail.state = v1.PipelineTaskDetail.PENDING
            detail.create_time.GetCurrentTime()
            detail.start_time.CopyFrom(detail.create_time)
            fill(detail.execution.metadata, {f"input:{key}": _json(value) for key, value in (parameters or {}).items()})
            _write_artifacts(detail.inputs, artifacts or {})

    def _record(self, number: str, state: str, outcome: Outcome | None = None, *, job: str = "") -> None:
        """Write down a task's new state, and all that came of it."""
        with self._stage.keeping.change(self.name) as kept:
            detail = next(detail for detail in kept.job_detail.task_details if str(detail.task_id) == number)
            detail.state = v1.PipelineTaskDetail.State.Value(state)
            if not detail.pipeline_task_status or detail.pipeline_task_status[-1].state != detail.state:
                detail.pipeline_task_status.add(state=detail.state).update_time.GetCurrentTime()
            if job:
                detail.executor_detail.container_detail.main_job = job
            if outcome is None:
                return
            detail.end_time.GetCurrentTime()
            if outcome.problem:
                detail.error.CopyFrom(outcome.problem.status())
            given = {f"output:{key}": _json(value) for key, value in outcome.parameters.items()}
            fill(detail.execution.metadata, as_dict(detail.execution.metadata) | given)
            _write_artifacts(detail.outputs, outcome.artifacts)
            name = detail.task_name
        why = f" {outcome.problem.message}" if outcome.problem else ""
        self._say(f"Task {name} is {state}.{why}", name, "ERROR" if state == "FAILED" else "INFO")

    def _say(self, text: str, task: str, severity: str) -> None:
        """A line of the pipeline's own log."""
        say(self._stage, self.name, text, severity, task=task)


def say(stage: "Stage", name: str, text: str, severity: str = "INFO", *, task: str = "") -> None:
    """Write an entry about a pipeline job."""
    _, project, _, region, _, number = name.split("/")
    labels = {"pipeline_job_id": number, "location": region, "resource_container": project}
    stage.logs.write([{
        "logName": f"projects/{project}/logs/aiplatform.googleapis.com%2Fpipeline_job", "severity": severity,
        "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": labels},
        "jsonPayload": {"message": text, **({"taskName": task} if task else {})},
    }])  # fmt: skip


_MISSING: Any = object()


def _of(given: Mapping[str, Any], key: str, task: str) -> Any:
    if key not in given:
        raise Problem("INVALID_ARGUMENT", f"The task {task} gives no {key}.")
    return given[key]


def _listed(artifacts: Artifacts) -> dict[str, Any]:
    return {key: {"artifacts": list(ones)} for key, ones in artifacts.items()}


def _write_artifacts(place: Any, artifacts: Artifacts) -> None:
    for key, ones in artifacts.items():
        for one in ones:
            written = place[key].artifacts.add(
                name=one["name"], uri=one["uri"], display_name=one.get("displayName", ""),
                schema_title=one["type"].get("schemaTitle", ""),
            )  # fmt: skip
            fill(written.metadata, _json(one.get("metadata", {})))


def _json(value: Any) -> Any:
    """A value as Google's JSON takes it: numbers that are none become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_json(one) for one in value]
    return {key: _json(one) for key, one in value.items()} if isinstance(value, dict) else value


def _selected(value: Any, selector: str) -> Any:
    """A part of a value, as `parseJson(string_value)["a"]` asks for it."""
    if not selector:
        return value
    found = re.fullmatch(r'parseJson\(string_value\)((?:\["[^"]+"\])*)', selector)
    if not found:
        raise Problem("UNIMPLEMENTED", f"The selector {selector} is not played by this rehearsal.")
    value = json.loads(value) if isinstance(value, str) else value
    for key in re.findall(r'\["([^"]+)"\]', found[1]):
        if not isinstance(value, dict) or key not in value:
            raise Problem("INVALID_ARGUMENT", f"{selector}: there is no {key} in {value!r}.")
        value = value[key]
    return value


def _items(
    task: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts
) -> tuple[Sequence[Any], str, bool]:  # fmt: skip
    """What a loop goes over, the input that takes each, and whether they are artifacts."""
    if "artifactIterator" in task:
        iterator = task["artifactIterator"]
        return artifacts[iterator["items"]["inputArtifact"]], iterator["itemInput"], True
    iterator = task["parameterIterator"]
    items = iterator["items"]
    found = json.loads(items["raw"]) if "raw" in items else parameters[items["inputParameter"]]
    if isinstance(found, str):
        found = json.loads(found)
    if not isinstance(found, list):
        raise Problem("INVALID_ARGUMENT", f"A loop goes over a list, not over {found!r}.")
    return found, iterator["itemInput"], False


def _outputs(
    definitions: Mapping[str, Any], outcomes: Mapping[str, "Future[Outcome]"]
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """What a DAG gives, out of what its tasks gave; of several branches, that of the one that ran."""
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
