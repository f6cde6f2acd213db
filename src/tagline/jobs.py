"""Jobs: what a run remembers of the job that does it, how it is watched, why it failed, and where it goes next."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tagline import custom_jobs, failures, mirrors, registry, remedies
from tagline.errors import RunError
from tagline.failures import Failure, Line
from tagline.launchers import Job, Launcher, State
from tagline.mirrors import MirroredRun
from tagline.runs import JOB, Run

NO_ROOM = ("quota", "capacity")
"""Why a job failed that may find room elsewhere."""


@dataclass(frozen=True)
class Record:
    """A job, as its run remembers it."""

    place: str
    handle: str
    run: str
    """The run's address."""
    submitted: str
    rehearsal: str = ""
    """Where the rehearsal is, if it is there."""

    def launcher(self) -> Launcher:
        """Who knows about it."""
        return launcher_of(self.place)


def launcher_of(place: str, say: Callable[[str], None] = lambda _: None) -> Launcher:
    """Who takes jobs to a place; a rehearsal is one of Vertex AI."""
    made: Launcher = registry.find("launchers", "vertex" if place == "rehearsal" else place)(say)
    return made


def remember(run: Run, record: Record) -> None:
    """Keep it in the run."""
    run.write_json(JOB, asdict(record))


def recalled(run: Run) -> Record | None:
    """The job of a run; None if it was trained right here."""
    found = run.read_json(JOB)
    try:
        return None if found is None else Record(**found)
    except TypeError as error:
        hint = "tagline jobs list --on vertex shows what runs"
        raise RunError(f"{run.address}/{JOB} is damaged: {error}", hint=hint) from error


class Watch:
    """Follows one job: what it says, and how its state changes."""

    def __init__(self, launcher: Launcher, handle: str) -> None:
        self._launcher = launcher
        self._handle = handle
        self.state = State("waiting")

    def events(self) -> Iterator[Line | State]:
        """Lines as they come, and the state whenever it has changed, to the end."""
        yield from self._changed()
        for line in self._launcher.logs(self._handle):
            if line is None:
                yield from self._changed()
            else:
                yield line
        yield from self._changed()

    def _changed(self) -> Iterator[State]:
        now = self._launcher.state(self._handle)
        if now != self.state:
            self.state = now
            yield now


def explained(launcher: Launcher, handle: str, run: Run | None) -> Failure:
    """Why a job failed, from all that it has said; what to run next is what the user typed, with other settings."""
    lines = (line for line in launcher.logs(handle) if line is not None)
    spec = run.spec() if run else None
    found = failures.explain(lines, message=launcher.state(handle).message, spec=spec)
    typed = str(run.lock().get("command", "")) if run else ""
    if not typed.startswith("tagline train ") or "--resume" in typed:
        return found
    return replace(found, command=found.command.replace(remedies.again(), typed))


def brought_home(record: Record, state: State, runs: Path, *, reason: str = "") -> Run:
    """The run of a job that has ended, here. One whose process could not say how it ended is told so first."""
    run = MirroredRun.at(record.run)
    if state.name in ("failed", "cancelled") and run.state().name in ("waiting", "running"):
        run.set_state(state.name, reason=reason or state.message or state.detail)
    return mirrors.bring_home(record.run, runs)


def elsewhere(job: Job) -> Job | None:
    """The same job where the first of its fallbacks says; None if there is none."""
    place = job.spec.vertex
    if not place.fallbacks:
        return None
    first, *rest = place.fallbacks
    moved = custom_jobs.moved(place, first).model_copy(update={"fallbacks": tuple(rest)})
    return replace(job, spec=job.spec.model_copy(update={"vertex": moved}), is_resumed=True)
