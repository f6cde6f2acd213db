"""The contract of a launcher, which submits jobs to a place, and the types it uses.

Files, in the order of their imports:

- local.py: The launcher for this machine: a run in a detached process, which outlives the command that started it.
- vertex.py: The launcher for Vertex AI: a run as a custom job, on Vertex AI itself and at a rehearsal.
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
    """A training to be submitted: everything that the plan depends on, so that the plan is a pure function."""

    name: str
    """The run's name, from which the job's is made."""
    spec: Spec
    """As the run will have it, with addresses that the job can read."""
    runs: str
    """The directory of the run: on this machine, or in a bucket."""
    project: str = ""
    command: str = ""
    """The command that the user typed."""
    uploads: tuple[Upload, ...] = ()
    training_rows: int | None = None
    rate: Rate | None = None
    """The measured rate of an earlier run of the same training."""
    submission: str = ""
    """An idempotency key, unique to the command: it finds a job whose creation got no answer."""
    is_resumed: bool = False
    """Whether the run exists already."""
    is_named: bool = False
    """Whether the user has chosen the name: the job's display name is then exactly this."""

    @property
    def run(self) -> str:
        """The run's address."""
        return f"{self.runs.rstrip('/')}/{self.name}"


@dataclass(frozen=True)
class JobState:
    """Where a job stands."""

    name: StateName
    detail: str = ""
    """The place's own name of the state."""
    message: str = ""
    """The place's message about a failure."""
    started: str = ""
    ended: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.name in ENDED


@dataclass(frozen=True)
class JobDescription:
    """A job's command, machines and hourly price."""

    machines: tuple[str, ...]
    arguments: tuple[str, ...]
    image: str = ""
    per_hour: float | None = None
    """US dollars for all its machines; None where the table has no price."""
    remark: str = ""
    """What is unknown about the price."""


@runtime_checkable
class DescribesJobs(Protocol):
    """A launcher that can describe jobs beyond their state."""

    def page(self, handle: str) -> str:
        """Return the address of the job's page, for a browser."""

    def describe(self, handle: str) -> JobDescription:
        """Return the job's command, machines and hourly price."""


class Launcher(Protocol):
    """Submits jobs to one place. A handle is a string, and the only thing to store about a job."""

    def plan(self, job: Job) -> dict[str, Any]:
        """Return everything that would be done, as JSON: a pure function, so that plans can be printed and compared."""

    def submit(self, plan: Mapping[str, Any]) -> str:
        """Carry out a plan and return the job's handle. Idempotent: submitting a plan twice creates one job."""

    def state(self, handle: str) -> JobState:
        """Return the job's state."""

    def logs(self, handle: str) -> Iterator[Line | None]:
        """Yield the log lines of its replicas in order until it has ended; None where there is nothing new."""

    def cancel(self, handle: str) -> None:
        """Cancel the job, which keeps its last checkpoint."""

    def list(self, project: str, region: str) -> list[tuple[str, str, JobState]]:
        """Return Tagline's jobs in the place, newest first: handle, run, state."""
