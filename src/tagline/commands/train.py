"""A training, here or as a job elsewhere, as events; tagline.train is the same to its end, tagline.plan its plan."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tagline import registry, training
from tagline import spec as specs
from tagline.data.columns import ResolvedSpec
from tagline.errors import SpecError
from tagline.jobs import launch, places, plans
from tagline.jobs.launch import LaunchEvent, SpecGuessed
from tagline.jobs.plans import Plan
from tagline.jobs.prices import Price
from tagline.jobs.records import find_or_create_run
from tagline.models.nn.workers import join_workers
from tagline.runs.events import Event
from tagline.runs.lookup import find_run
from tagline.runs.names import check_name, choose_name, list_names
from tagline.runs.run import Run
from tagline.storage import addresses, atomic
from tagline.system import extras
from tagline.training import cluster, learning_curve
from tagline.training import preflight as training_preflight
from tagline.training.spec_sources import SpecSource, resolve_source

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class TrainingWarned:
    """A warning about this machine or its workers."""

    message: str


@dataclass(frozen=True)
class TrainingBegun:
    """Training begins in this process; its own events follow."""


TrainingEvent = LaunchEvent | TrainingWarned | TrainingBegun | Event
"""What a training yields, with the run's own events as in `events.jsonl`."""


@dataclass(frozen=True)
class TrainingRequest:
    """What to train, how, and where."""

    source: SpecSource | None = None
    overrides: tuple[str, ...] = ()
    resume: str | None = None
    """The run to resume, in place of a source."""
    learning_curve: bool = False
    name: str = ""
    workers: int | None = None
    """Number of processes on this machine; None: one a GPU."""
    on: str = places.LOCAL
    detach: bool = False
    runs: str = "runs"
    command: str = "tagline.train"
    """The command recorded in the run."""
    arguments: tuple[str, ...] = ()
    """Command line arguments for each of several workers; without them this process trains alone."""
    job: str = ""
    """The job that this process belongs to; restarted, it resumes the run it had begun."""

    @property
    def is_here(self) -> bool:
        """Whether the training runs in the foreground on this machine."""
        return self.on == places.LOCAL and not self.detach

    def check(self) -> None:
        """Refuse contradictory arguments."""
        if (self.source is None) == (self.resume is None):
            hint = "tagline train DATA, tagline train SPEC, or tagline train --resume RUN"
            raise SpecError("train takes a spec, a data file, or a run to resume: one of them", hint=hint)
        if self.name:
            check_name(self.name)
            if self.resume is not None:
                raise SpecError("a resumed run keeps its name", hint="leave out --name")
        places.check_place(self.on)

    def check_elsewhere(self) -> None:
        """Refuse arguments that apply to a foreground training alone."""
        if self.workers is not None or self.learning_curve:
            hint = "vertex.workers says how many machines; a learning curve is made here, without --detach"
            raise SpecError("--workers and --learning-curve are about this machine and this process", hint=hint)

    def find(self) -> ResolvedSpec | Run:
        """Return the run to resume, or the spec of a new one."""
        if self.resume is not None:
            return find_run(self.resume, self.runs)
        return self.resolve()

    def resolve(self) -> ResolvedSpec:
        """Return the spec of a new run."""
        assert self.source is not None
        return resolve_source(self.source, self.overrides)


@extras.explain_missing_packages()
def train(
    source: SpecSource | None = None,
    *overrides: str,
    resume: bool | str | Path = False,
    learning_curve: bool = False,
    name: str = "",
    workers: int | None = None,
    on: str = places.LOCAL,
    detach: bool = False,
    yes: bool = False,
    runs: str | Path = "runs",
) -> Run:
    """Train a classifier, measure it, and bundle it; returns the run.

    `source` is a spec, its tables, a spec file or a data file. `resume` goes on with a run: its name or path, or True
    where `source` is that run. `workers` is the number of processes on this machine; None trains in this one. `on` is
    "local", "rehearsal" or "vertex"; on Vertex AI nothing is submitted without `yes=True`, since it costs money. With
    `detach` the run is returned as soon as its job is submitted.
    """
    if resume and overrides:
        raise SpecError("a resumed run takes its spec from the run", hint="start anew to change a setting")
    resumed = source if resume is True else resume or None
    is_here = on == places.LOCAL and not detach
    request = TrainingRequest(
        None if resume is True else source,
        overrides,
        resume=None if resumed is None else str(resumed),
        learning_curve=learning_curve,
        name=name,
        workers=workers or 1 if is_here else workers,
        on=on,
        detach=detach,
        runs=str(runs),
    )
    if is_here and (request.workers or 1) > 1:
        return _train_with_workers(request)
    run = _exhaust(run_training(request, confirm=lambda _: yes))
    assert run is not None
    return run


def plan(
    source: SpecSource | None = None,
    *overrides: str,
    resume: str | Path | None = None,
    name: str = "",
    on: str = places.VERTEX,
    runs: str | Path = "runs",
) -> Plan:
    """Return what `train` with the same arguments would submit, and its price, without any network request."""
    resumed = None if resume is None else str(resume)
    request = TrainingRequest(source, overrides, resume=resumed, name=name, on=on, runs=str(runs))
    return _exhaust(make_plan(request))


def make_plan(request: TrainingRequest) -> Generator[LaunchEvent, None, Plan]:
    """Plan a request: yield what was guessed for it, and return the plan."""
    request.check()
    request.check_elsewhere()
    if request.on == places.LOCAL:
        raise SpecError("--plan is about a job elsewhere", hint="add --on vertex, or --on rehearsal")
    is_file = isinstance(request.source, str | Path)
    found = plans.resolve_without_network(str(request.source), request.overrides) if is_file else request.find()
    return (yield from launch.plan(found, on=request.on, runs=request.runs, name=request.name, command=request.command))


def run_training(
    request: TrainingRequest, *, confirm: Callable[[Price], bool], say: Say = lambda _: None
) -> Generator[TrainingEvent, None, Run | None]:
    """Train as requested, as events; returns the run, or None where other processes have trained it.

    `confirm` and `say` are those of `tagline.jobs.launch.launch`.
    """
    request.check()
    if request.is_here:
        return (yield from _train_here(request))
    request.check_elsewhere()
    if request.on == places.LOCAL:
        if request.resume is not None:
            raise SpecError("a run that is resumed here stays with its command", hint="leave out --detach")
        return (
            yield from launch.launch_here(
                request.resolve(), runs=request.runs, name=request.name, command=request.command
            )
        )
    with places.enter(request.on, stays=request.detach, say=say) as stays:
        return (
            yield from launch.launch(
                request.find(),
                on=request.on,
                confirm=confirm,
                runs=request.runs,
                name=request.name,
                detach=request.detach,
                stays=stays,
                command=request.command,
                say=say,
            )
        )


def _train_here(request: TrainingRequest) -> Generator[TrainingEvent, None, Run | None]:
    """Train in this process, or in several workers that each run the same command line."""
    found: Run | ResolvedSpec
    found = request.resolve() if request.resume is None else find_or_create_run(request.resume, request.runs)
    machines = cluster.Cluster.from_environment(os.environ)
    spec = found.spec() if isinstance(found, Run) else found.spec
    uses_device = registry.find("models", spec.model.family).uses_device
    if warning := cluster.check_accelerators(os.environ, uses_device=uses_device):
        yield TrainingWarned(warning)
    can_share = training_preflight.can_share(spec)
    if request.arguments and (count := cluster.count_workers(request.workers, machines, can_share=can_share)):
        training_preflight.check_sharing(spec)
        _refuse_curve(request.learning_curve)
        for line in cluster.launch_workers(request.arguments, count=count, cluster=machines):
            yield TrainingWarned(line)
        return None
    return (yield from _train_in_process(found, request))


def _train_in_process(
    found: Run | ResolvedSpec, request: TrainingRequest
) -> Generator[TrainingEvent, None, Run | None]:
    """Train in this process, alone or as one of several workers; only the main one has events and a run."""
    here = join_workers()
    with_curve = request.learning_curve
    _refuse_curve(with_curve and here.size > 1)
    address = ""
    events: Iterator[Event]
    if isinstance(found, Run) and with_curve and found.state().name == "succeeded":
        events, address = iter(()), found.address
    elif isinstance(found, Run):
        events = training.resume_run(found, job=request.job)
    else:
        for guess in found.guesses if here.is_main else ():
            yield SpecGuessed(guess)
        events = training.start_run(
            found.spec, runs=request.runs, command=request.command, job=request.job, name=request.name
        )
    yield TrainingBegun()
    for event in events:
        if here.is_main:
            address = event.get("run", address)
            yield event
    if not here.is_main:
        return None
    if with_curve:
        yield from learning_curve.measure_curve(find_run(address, request.runs))
    return find_run(address, request.runs)


def _train_with_workers(request: TrainingRequest) -> Run:
    """Train in several workers, each started with the request as a command line."""
    with _as_file(request.source) as source:
        if request.resume is not None:
            name, words = request.resume, ["--resume", request.resume]
        else:
            taken = [] if addresses.is_remote(request.runs) else list_names(addresses.require_local(request.runs))
            name = request.name or choose_name(taken)
            words = [source, *request.overrides, "--name", name]
        curve = ["--learning-curve"] if request.learning_curve else []
        arguments = ("train", *words, *curve, "--workers", str(request.workers), "--runs", request.runs)
        _exhaust(run_training(replace(request, arguments=arguments), confirm=lambda _: False))
    return find_run(name, request.runs)


@contextmanager
def _as_file(source: SpecSource | None) -> Iterator[str]:
    """Provide a source as a path that another process can read."""
    if source is None or isinstance(source, str | Path):
        yield str(source)
        return
    with tempfile.TemporaryDirectory(prefix=atomic.SCRATCH_PREFIX) as directory:
        path = Path(directory) / "tagline.toml"
        path.write_text(specs.to_toml(resolve_source(source).spec), "utf-8")
        yield str(path)


def _refuse_curve(is_asked: bool) -> None:
    """Refuse a learning curve with several workers: its trainings run in one process."""
    if is_asked:
        hint = "train with the workers first, then: tagline train --resume last --learning-curve"
        raise SpecError("--learning-curve takes one process", hint=hint)


def _exhaust(events: Generator[object, None, T]) -> T:
    """Exhaust a generator and return its return value."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            result: T = end.value
            return result
