"""The contract of a launcher, which takes a job to a place, and what it is told about the job.

Files, in the order of their imports:

- local.py: This machine: a run in a process of its own, which goes on when the command that started it has ended.
- vertex.py: Vertex AI: a run as a custom job. At a rehearsal it is the same code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from tagline.jobs.diagnosis.log import Line
from tagline.jobs.prices import Rate
from tagline.jobs.uploads import Upload
from tagline.spec import Spec

StateName = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Job:
    """A training to be taken to a place: everything that the plan depends on, so that the plan is a pure function."""

    name: str
    """Of the run, and by it of the job."""
    spec: Spec
    """As the run will have it: what it reads is where the job can read it."""
    runs: str
    """Where the run will be: a directory, or an address in a bucket."""
    project: str = ""
    command: str = ""
    """What the user typed."""
    uploads: tuple[Upload, ...] = ()
    training_rows: int | None = None
    rate: Rate | None = None
    """How fast an earlier run has learned the same."""
    submission: str = ""
    """Unlike that of any other command: by it a job is found whose creation was not answered."""
    is_resumed: bool = False
    """Whether the run is there already."""
    is_named: bool = False
    """Whether the user has chosen the name: then the job is displayed under it as it is."""

    @property
    def run(self) -> str:
        """The run's own address."""
        return f"{self.runs.rstrip('/')}/{self.name}"


@dataclass(frozen=True)
class JobState:
    """Where a job stands."""

    name: StateName
    detail: str = ""
    """The place's own word for it."""
    message: str = ""
    """Why it failed, in the place's words."""
    started: str = ""
    ended: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.name in ENDED


@dataclass(frozen=True)
class JobDescription:
    """What a job runs, on what, and for how much an hour."""

    machines: tuple[str, ...]
    arguments: tuple[str, ...]
    image: str = ""
    per_hour: float | None = None
    """US dollars for all its machines, by the table; None where that does not say."""
    remark: str = ""
    """What is not known of the price."""


@runtime_checkable
class DescribesJobs(Protocol):
    """A launcher that can tell more of a job than its state."""

    def page(self, handle: str) -> str:
        """The address of the job's page, for a browser."""

    def describe(self, handle: str) -> JobDescription:
        """What the job runs, and on what."""


class Launcher(Protocol):
    """Takes jobs to one place. Handles are strings, and all that has to be remembered of a job."""

    def plan(self, job: Job) -> dict[str, Any]:
        """All that would be done, as JSON has it: pure, so that it can be printed, compared and kept."""

    def submit(self, plan: Mapping[str, Any]) -> str:
        """Do it; returns the job's handle. Called twice with one plan, there is one job."""

    def state(self, handle: str) -> JobState:
        """Where the job stands."""

    def logs(self, handle: str) -> Iterator[Line | None]:
        """What its replicas say, in order, until it has ended; None where there is nothing new."""

    def cancel(self, handle: str) -> None:
        """End it, with what it has saved."""

    def list(self, project: str, region: str) -> list[tuple[str, str, JobState]]:
        """The jobs of Tagline in the place, newest first: handle, run, state."""
