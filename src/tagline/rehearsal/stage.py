"""What every service of a rehearsal stands on: its settings and directory, what it keeps, its log and its addresses."""

import sys
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagline.rehearsal.access import keyed
from tagline.rehearsal.keeping import Keeping
from tagline.rehearsal.logs import Logs
from tagline.rehearsal.operations import Operations
from tagline.rehearsal.problems import invalid
from tagline.rehearsal.project_file import ProjectFile

if TYPE_CHECKING:
    from tagline.rehearsal.cloud_storage.store import Store
    from tagline.rehearsal.deployments import Deployments
    from tagline.rehearsal.jobs import JobQueue


@dataclass(frozen=True)
class Settings:
    """How a rehearsal is played."""

    directory: Path = Path("rehearsal")
    port: int = 0
    grpc_port: int = 0
    """0: any that is free."""
    tls: bool = False
    is_open: bool = False
    """Whether every process of this machine may ask, without a token."""
    token: str = ""
    """Of this start; the house keeps it."""
    at_once: int = 5
    """Jobs that run at the same time; the others are queued."""
    strict: bool = False
    grace_s: float = 30.0
    """From SIGTERM to SIGKILL."""
    ready_s: float = 600.0
    """In which a model's server must answer that it is healthy."""


@dataclass
class Stage:
    """One rehearsal's things, shared by all its services."""

    settings: Settings
    keeping: Keeping
    logs: Logs
    operations: Operations
    project: ProjectFile
    http_port: int = 0
    grpc_port: int = 0
    upload_model: Callable[[Any], Any] | None = None
    """UploadModelRequest -> the model as it is kept; None as long as no service plays models."""
    jobs: "JobQueue" = field(init=False)
    deployments: "Deployments" = field(init=False)
    store: "Store" = field(init=False)

    @classmethod
    def of(cls, settings: Settings) -> "Stage":
        """A stage whose directory is there."""
        for directory in (settings.directory, settings.directory / "buckets", settings.directory / "jobs"):
            directory.mkdir(parents=True, exist_ok=True)
        project = ProjectFile(settings.directory)
        keeping = Keeping(settings.directory / "rehearsal.sqlite")
        return cls(settings, keeping, Logs(keeping), Operations(keeping, report_bug), project)

    @property
    def address(self) -> str:
        """Where HTTP is answered."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def keyed_address(self) -> str:
        """The same with the token in it, for programs whose clients send an emulator no credentials."""
        return keyed(self.address, self.settings.token)

    @property
    def buckets(self) -> Path:
        """Each bucket is a directory in here, each object a file: what /gcs is on Vertex AI's machines."""
        return self.settings.directory / "buckets"

    def local(self, uri: str, at: str = "") -> Path:
        """The file of a gs:// address, whether it is there or not."""
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        path = (self.buckets / bucket / name).resolve()
        if not uri.startswith("gs://") or not path.is_relative_to(self.buckets.resolve() / bucket) or not bucket:
            raise invalid(at, f'"{uri}" is no address in Cloud Storage.')
        return path

    def mark(self, *parts: str) -> str:
        """By which processes of this rehearsal, or of a part of it, are known."""
        return "".join([f"{self.settings.directory}#", *(f"{part}/" for part in parts)])

    def project_number(self, project: str) -> str:
        """The number of a project, which is the same for the same id everywhere."""
        if project.isdigit():
            return project
        number = str(100_000_000_000 + zlib.crc32(project.encode()))
        self.keeping.run("INSERT OR IGNORE INTO projects (number, id) VALUES (?, ?)", (number, project))
        return number

    def project_id(self, project: str) -> str:
        """The id of a project that is named by its number, if a job has been told it; else what was given."""
        if not project.isdigit():
            return project
        rows = self.keeping.run("SELECT id FROM projects WHERE number = ?", (project,))
        return str(rows[0][0]) if rows else project

    def own_name(self, name: str) -> str:
        """The name of a resource with its project's id, where it came with the project's number."""
        if not name.startswith("projects/"):
            return name
        _, project, *rest = name.split("/")
        return "/".join(["projects", self.project_id(project), *rest])


def report_bug(error: BaseException) -> None:
    """An error that is nobody's but ours, for whoever reads the rehearsal's own output."""
    sys.stderr.write("".join(traceback.format_exception(error)))
