"""Runs a pipeline job: each task as soon as its dependencies are done."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.execution.queue import Ending, JobQueue
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.pipelines import conditions, task_values
from vertex_rehearsal.pipelines import spec as pipeline_specs
from vertex_rehearsal.pipelines.task_details import TaskDetails
from vertex_rehearsal.pipelines.task_jobs import TaskJobs
from vertex_rehearsal.pipelines.task_values import Artifacts, DagScope, TaskOutcome, new_artifact
from vertex_rehearsal.training.runner import JobRunner

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

FAIL_FAST = 2


class PipelineRun:
    """Runs one pipeline job; `run` blocks the calling thread, the other methods are thread-safe."""

    def __init__(
        self,
        job: Any,
        spec: Mapping[str, Any],
        parameters: Mapping[str, Any],
        context: "Context",
        queue: JobQueue[JobRunner],
    ) -> None:
        self.name = job.name
        self._spec = spec
        self._parameters = parameters
        self._parent = job.name.partition("/pipelineJobs/")[0]
        self._fails_fast = job.runtime_config.failure_policy == FAIL_FAST
        self._details = TaskDetails(job.name, context)
        self._jobs = TaskJobs(job, self._details, context, queue)
        self._failed: list[tuple[str, ApiError]] = []
        self._interrupted = threading.Event()
        self._stopped = ""

    def run(self) -> Ending:
        """Run the pipeline to its end."""
        outcome = self._run_dag(self._spec["root"]["dag"], self._parameters, {}, "")
        if self._stopped:
            return Ending("FAILED", ApiError("ABORTED", self._stopped))
        if self._interrupted.is_set():
            return Ending("CANCELLED", ApiError("CANCELLED", "CANCELED"))
        if self._failed:
            names = ", ".join(name for name, _ in self._failed)
            causes = " ".join(f"{name}: {problem.message}" for name, problem in self._failed)
            said = f"The DAG failed because some tasks failed. The failed tasks are: [{names}]. {causes}"
            return Ending("FAILED", ApiError("FAILED_PRECONDITION", said))
        return Ending("FAILED", outcome.problem) if outcome.problem else Ending("SUCCEEDED")

    def cancel(self) -> None:
        """Start no more tasks and end the running ones."""
        self._interrupted.set()
        self._jobs.cancel()

    def stop(self, reason: str) -> None:
        """Stop waiting: the emulator stops and has already ended the tasks' jobs."""
        self._stopped = reason
        self._interrupted.set()
        self._jobs.stop(reason)

    def update_job(self, job: Any) -> None:
        """Handle a new state of a custom job if it belongs to a task."""
        self._jobs.update_job(job)

    def _run_dag(
        self, dag: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts, parent: str
    ) -> TaskOutcome:
        """Run the tasks of a DAG, each as soon as its dependencies are done."""
        tasks = dag["tasks"]
        outcomes: dict[str, Future[TaskOutcome]] = {name: Future() for name in tasks}
        scope = DagScope(self.name, parameters, artifacts, parent, outcomes)
        for name, task in tasks.items():
            threading.Thread(target=self._run_task, args=(name, task, scope), daemon=True).start()
        states = {name: outcome.result().state for name, outcome in outcomes.items()}
        bad = next((state for state in ("FAILED", "CANCELLED") if state in states.values()), "")
        if not bad:
            return TaskOutcome("SUCCEEDED", *task_values.collect_outputs(dag.get("outputs", {}), outcomes))
        causes = {name: outcomes[name].result().problem for name, state in states.items() if state == bad}
        said = " ".join(f"{name}: {problem.message}" if problem else f"{name}." for name, problem in causes.items())
        return TaskOutcome(bad, problem=ApiError("FAILED_PRECONDITION", f"Tasks that have {bad.lower()}: {said}"))

    def _run_task(self, name: str, task: Mapping[str, Any], scope: DagScope) -> None:
        """One task from waiting to its end, whatever that is."""
        for other in pipeline_specs.find_upstream(task):
            scope.outcomes[other].result()
        number = new_id()
        outcome = self._run_and_record(
            name, number, scope.parent, lambda: self._apply_trigger_policy(name, number, task, scope)
        )
        scope.outcomes[name].set_result(outcome)

    def _run_and_record(self, name: str, number: str, parent: str, work: Callable[[], TaskOutcome]) -> TaskOutcome:
        """Run a task and store its outcome, also if it fails."""
        problem = None
        try:
            outcome = work()
        except ApiError as found:
            problem = found
        except Exception as error:
            report_bug(error)
            problem = ApiError("INTERNAL", f"{type(error).__name__}: {error}")
        if problem is not None:
            self._failed.append((name, problem))
            outcome = TaskOutcome("FAILED", problem=problem)
        self._details.begin_task(name, number, parent)
        self._details.record_state(number, outcome.state, outcome)
        return outcome

    def _get_component(self, task: Mapping[str, Any]) -> Any:
        return self._spec["components"][task["componentRef"]["name"]]

    def _apply_trigger_policy(self, name: str, number: str, task: Mapping[str, Any], scope: DagScope) -> TaskOutcome:
        """Run a task if its trigger policy and its condition allow it."""
        policy = task.get("triggerPolicy", {})
        if self._interrupted.is_set():
            return TaskOutcome("CANCELLED")
        if policy.get("strategy") != pipeline_specs.COMPLETED:
            before = [scope.outcomes[other].result().state for other in pipeline_specs.find_upstream(task)]
            if any(state != "SUCCEEDED" for state in before) or (self._fails_fast and self._failed):
                return TaskOutcome("NOT_TRIGGERED")
        parameters, artifacts = task_values.resolve_inputs(task, self._get_component(task), scope)
        condition = policy.get("condition", "")
        if condition and not conditions.evaluate_condition(condition, parameters):
            return TaskOutcome("NOT_TRIGGERED")
        if "parameterIterator" in task or "artifactIterator" in task:
            self._details.begin_task(name, number, scope.parent)
            self._details.record_state(number, "RUNNING")
            return self._run_loop(name, number, task, parameters, artifacts)
        return self._run_once(name, number, task, parameters, artifacts, scope.parent)

    def _run_once(
        self,
        name: str,
        number: str,
        task: Mapping[str, Any],
        parameters: Mapping[str, Any],
        artifacts: Artifacts,
        parent: str,
    ) -> TaskOutcome:
        """Run a task with its inputs, as a nested DAG or a component."""
        component = self._get_component(task)
        known = component.get("inputDefinitions", {}).get("parameters", {})
        parameters = pipeline_specs.apply_defaults(known, parameters, f"tasks.{name}.inputs")
        self._details.begin_task(name, number, parent, parameters, artifacts)
        if "dag" in component:
            self._details.record_state(number, "RUNNING")
            return self._run_dag(component["dag"], parameters, artifacts, number)
        executor = pipeline_specs.get_executor(self._spec, component)
        if "importer" in executor:
            return self._import_artifact(executor["importer"], component, parameters)
        retries = task.get("retryPolicy", {})
        left = int(retries.get("maxRetryCount", 0))
        pause_s = float(str(retries.get("backoffDuration", "0s")).removesuffix("s") or 0)
        while True:
            outcome = self._jobs.run(name, number, executor["container"], component, parameters, artifacts)
            if outcome.state != "FAILED":
                return outcome
            if not left or self._interrupted.wait(pause_s):
                self._failed.append((name, outcome.problem or ApiError("UNKNOWN", "It failed.")))
                return outcome
            left -= 1
            self._details.write_entry(f"Task {name} failed and is tried again: {outcome.problem}", name, "WARNING")

    def _run_loop(
        self, name: str, number: str, task: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts
    ) -> TaskOutcome:
        """Run a task once per item, limited by its concurrency policy; collect the outputs in lists."""
        items, key, are_artifacts = task_values.resolve_items(task, parameters, artifacts)
        limit = int(task.get("iteratorPolicy", {}).get("parallelismLimit", 0)) or max(1, len(items))
        places = threading.Semaphore(limit)
        outcomes: list[Future[TaskOutcome]] = [Future() for _ in items]

        def run_item(index: int, item: Any) -> None:
            with places:
                inner, each = new_id(), f"{name}-{index}"
                given = parameters if are_artifacts else {**parameters, key: item}
                things = {**artifacts, key: [item]} if are_artifacts else artifacts

                def work() -> TaskOutcome:
                    if self._interrupted.is_set():
                        return TaskOutcome("CANCELLED")
                    return self._run_once(each, inner, task, given, things, number)

                outcomes[index].set_result(self._run_and_record(each, inner, number, work))

        for index, item in enumerate(items):
            threading.Thread(target=run_item, args=(index, item), daemon=True).start()
        ended = [outcome.result() for outcome in outcomes]
        for bad in ("FAILED", "CANCELLED"):
            if problem := next((outcome for outcome in ended if outcome.state == bad), None):
                return TaskOutcome(bad, problem=problem.problem)
        names = {key for outcome in ended for key in outcome.parameters}
        things = {key for outcome in ended for key in outcome.artifacts}
        return TaskOutcome(
            "SUCCEEDED",
            {key: [outcome.parameters.get(key) for outcome in ended] for key in names},
            {key: [one for outcome in ended for one in outcome.artifacts.get(key, ())] for key in things},
        )

    def _import_artifact(
        self, importer: Mapping[str, Any], component: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> TaskOutcome:
        """Import an existing artifact."""
        uri = importer["artifactUri"]
        where = uri["constant"] if "constant" in uri else parameters[uri["runtimeParameter"]]
        (key,) = component["outputDefinitions"]["artifacts"]
        metadata = importer.get("metadata", {})
        return TaskOutcome(
            "SUCCEEDED", artifacts={key: [new_artifact(self._parent, key, where, importer["typeSchema"], metadata)]}
        )
