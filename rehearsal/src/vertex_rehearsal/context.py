"""What every service of a rehearsal stands on: its settings and directory, what it keeps, its log and its addresses."""

import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from vertex_rehearsal.access import build_keyed_address
from vertex_rehearsal.api.errors import invalid_argument
from vertex_rehearsal.cloud_storage.records import get_project_number
from vertex_rehearsal.cloud_storage.store import Store
from vertex_rehearsal.database import Database
from vertex_rehearsal.logging.store import Logs
from vertex_rehearsal.operations import Operations
from vertex_rehearsal.project.project_file import ProjectFile
from vertex_rehearsal.settings import Settings


@dataclass(frozen=True)
class Context:
    """What every service of one emulator shares."""

    settings: Settings
    database: Database
    logs: Logs
    operations: Operations
    project: ProjectFile
    store: Store
    http_port: int = 0
    grpc_port: int = 0

    @classmethod
    def create(cls, settings: Settings, *, http_port: int = 0, grpc_port: int = 0) -> "Context":
        """Open everything in the emulator's directory, which is made where it is missing."""
        buckets = settings.directory / "buckets"
        for directory in (settings.directory, buckets, settings.directory / "jobs"):
            directory.mkdir(parents=True, exist_ok=True)
        project = ProjectFile(settings.directory)
        database = Database(settings.directory / "rehearsal.sqlite")
        operations = Operations(database, report_bug)
        return cls(settings, database, Logs(database), operations, project, Store(buckets), http_port, grpc_port)

    def close(self) -> None:
        """Leave its files in order."""
        self.store.close()
        self.database.close()

    @property
    def address(self) -> str:
        """Where HTTP is answered."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def keyed_address(self) -> str:
        """The same with the token in it, for programs whose clients send an emulator no credentials."""
        return build_keyed_address(self.address, self.settings.token)

    @property
    def buckets(self) -> Path:
        """Each bucket is a directory in here, each object a file: what /gcs is on Vertex AI's machines."""
        return self.settings.directory / "buckets"

    @property
    def trusted_roots(self) -> Path:
        """The file of authorities by which a gRPC client trusts Google's hosts that are played here."""
        return self.settings.directory / "certificates" / "roots.pem"

    def resolve_uri(self, uri: str, at: str = "") -> Path:
        """The file of a gs:// address, whether it is there or not."""
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        path = (self.buckets / bucket / name).resolve()
        if not uri.startswith("gs://") or not path.is_relative_to(self.buckets.resolve() / bucket) or not bucket:
            raise invalid_argument(at, f'"{uri}" is no address in Cloud Storage.')
        return path

    def build_mark(self, *parts: str) -> str:
        """By which processes of this rehearsal, or of a part of it, are known."""
        return "".join([f"{self.settings.directory}#", *(f"{part}/" for part in parts)])

    def project_number(self, project: str) -> str:
        """The number of a project, which is the same for the same id everywhere."""
        if project.isdigit():
            return project
        number = get_project_number(project)
        self.database.run("INSERT OR IGNORE INTO projects (number, id) VALUES (?, ?)", (number, project))
        return number

    def project_id(self, project: str) -> str:
        """The id of a project that is named by its number, if a client has been told it; else what was given."""
        return self.database.project_id(project)

    def resolve_name(self, name: str) -> str:
        """The name of a resource with its project's id, where it came with the project's number."""
        return self.database.resolve_name(name)


def report_bug(error: BaseException) -> None:
    """An error that is nobody's but ours, for whoever reads the rehearsal's own output."""
    sys.stderr.write("".join(traceback.format_exception(error)))
