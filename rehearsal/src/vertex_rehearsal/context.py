"""The context shared by all services: settings, directory, database, operations, logs and addresses."""

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
    """The resources shared by all services of one emulator."""

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
        """Open the emulator's directory, creating it if it is missing."""
        buckets = settings.directory / "buckets"
        for directory in (settings.directory, buckets, settings.directory / "jobs"):
            directory.mkdir(parents=True, exist_ok=True)
        project = ProjectFile(settings.directory)
        database = Database(settings.directory / "rehearsal.sqlite")
        operations = Operations(database, report_bug)
        return cls(settings, database, Logs(database), operations, project, Store(buckets), http_port, grpc_port)

    def close(self) -> None:
        """Close the files."""
        self.store.close()
        self.database.close()

    @property
    def address(self) -> str:
        """The HTTP address."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def keyed_address(self) -> str:
        """The HTTP address with the token, for programs whose clients send no credentials to an emulator."""
        return build_keyed_address(self.address, self.settings.token)

    @property
    def buckets(self) -> Path:
        """The directory of the buckets, each a directory with a file per object, like /gcs on Vertex AI's machines."""
        return self.settings.directory / "buckets"

    @property
    def trusted_roots(self) -> Path:
        """The file of root certificates with which gRPC clients trust the emulated Google hosts."""
        return self.settings.directory / "certificates" / "roots.pem"

    def resolve_uri(self, uri: str, at: str = "") -> Path:
        """Return the file of a gs:// URI, which need not exist."""
        bucket, _, name = uri.removeprefix("gs://").partition("/")
        path = (self.buckets / bucket / name).resolve()
        if not uri.startswith("gs://") or not path.is_relative_to(self.buckets.resolve() / bucket) or not bucket:
            raise invalid_argument(at, f'"{uri}" is no address in Cloud Storage.')
        return path

    def build_mark(self, *parts: str) -> str:
        """Return the mark of the processes of this emulator or of a part of it."""
        return "".join([f"{self.settings.directory}#", *(f"{part}/" for part in parts)])

    def project_number(self, project: str) -> str:
        """Return the number of a project, which depends only on its id."""
        if project.isdigit():
            return project
        number = get_project_number(project)
        self.database.run("INSERT OR IGNORE INTO projects (number, id) VALUES (?, ?)", (number, project))
        return number

    def project_id(self, project: str) -> str:
        """Return the id of a project given by a number that clients have seen; any other value unchanged."""
        return self.database.project_id(project)

    def resolve_name(self, name: str) -> str:
        """Return a resource name with the project's number replaced by its id."""
        return self.database.resolve_name(name)


def report_bug(error: BaseException) -> None:
    """Write the traceback of an internal error to the emulator's output."""
    sys.stderr.write("".join(traceback.format_exception(error)))
