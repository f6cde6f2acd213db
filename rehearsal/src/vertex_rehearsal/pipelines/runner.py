"""A pipeline that runs: its tasks in their order, each as soon as those are done that it waits for."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import Problem
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.execution.queue import Ending, JobQueue
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.pipelines import conditions, task_values
from vertex_rehearsal.pipelines import spec as pipeline_specs
from vertex_rehearsal.pipelines.task_details import TaskDetails
from vertex_rehearsal.pipelines.task_jobs import TaskJobs
from vertex_rehearsal.pipelines.task_values import Artifacts, Outcome, Scope, new_artifact
from vertex_rehearsal.training.runner import JobRunner

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

FAIL_FAST = 2


class PipelineRun:
    """One pipeline job; `run` plays it in the thread that calls it, the rest may be called from any other."""

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
        self._jobs.cancel()

    def stop(self, reason: str) -> None:
        """Wait for nothing any more: the rehearsal stops, and the jobs of tasks have been ended."""
        self._stopped = reason
        self._interrupted.set()
        self._jobs.stop(reason)

    def follow(self, job: Any) -> None:
        """Take note of a custom job's new state, if it is a task's."""
        self._jobs.follow(job)

    def _dag(
        self, dag: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts, parent: str
    ) -> Outcome:  # fmt: skip
        """Run the tasks of a DAG, each as soon as those are done that it waits for."""
        tasks = dag["tasks"]
        outcomes: dict[str, Future[Outcome]] = {name: Future() for name in tasks}
        scope = Scope(self.name, parameters, artifacts, parent, outcomes)
        for name, task in tasks.items():
            threading.Thread(target=self._play, args=(name, task, scope), daemon=True).start()
        states = {name: outcome.result().state for name, outcome in outcomes.items()}
        bad = next((state for state in ("FAILED", "CANCELLED") if state in states.values()), "")
        if not bad:
            return Outcome("SUCCEEDED", *task_values.outputs_of(dag.get("outputs", {}), outcomes))
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
        self._details.begin(name, number, parent)
        self._details.record(number, outcome.state, outcome)
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
        parameters, artifacts = task_values.inputs_of(task, self._component(task), scope)
        condition = policy.get("condition", "")
        if condition and not conditions.holds(condition, parameters):
            return Outcome("NOT_TRIGGERED")
        if "parameterIterator" in task or "artifactIterator" in task:
            self._details.begin(name, number, scope.parent)
            self._details.record(number, "RUNNING")
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
        self._details.begin(name, number, parent, parameters, artifacts)
        if "dag" in component:
            self._details.record(number, "RUNNING")
            return self._dag(component["dag"], parameters, artifacts, number)
        executor = pipeline_specs.executor_of(self._spec, component)
        if "importer" in executor:
            return self._import(executor["importer"], component, parameters)
        retries = task.get("retryPolicy", {})
        left = int(retries.get("maxRetryCount", 0))
        pause_s = float(str(retries.get("backoffDuration", "0s")).removesuffix("s") or 0)
        while True:
            outcome = self._jobs.run(name, number, executor["container"], component, parameters, artifacts)
            if outcome.state != "FAILED":
                return outcome
            if not left or self._interrupted.wait(pause_s):
                self._failed.append((name, outcome.problem or Problem("UNKNOWN", "It failed.")))
                return outcome
            left -= 1
            self._details.say(f"Task {name} failed and is tried again: {outcome.problem}", name, "WARNING")

    def _loop(
        self, name: str, number: str, task: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Artifacts
    ) -> Outcome:  # fmt: skip
        """A task once for each item, as many at a time as its policy says; what they give becomes lists."""
        items, key, are_artifacts = task_values.items_of(task, parameters, artifacts)
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

    def _import(
        self, importer: Mapping[str, Any], component: Mapping[str, Any], parameters: Mapping[str, Any]
    ) -> Outcome:  # fmt: skip
        """An artifact that is there already."""
        uri = importer["artifactUri"]
        where = uri["constant"] if "constant" in uri else parameters[uri["runtimeParameter"]]
        (key,) = component["outputDefinitions"]["artifacts"]
        metadata = importer.get("metadata", {})
        return Outcome(
            "SUCCEEDED", artifacts={key: [new_artifact(self._parent, key, where, importer["typeSchema"], metadata)]}
        )
