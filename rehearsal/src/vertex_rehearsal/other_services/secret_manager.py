"""Secret Manager: the secrets of project.json, each with a single version."""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import google_crc32c

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest
from vertex_rehearsal.project.project import Secret

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context


class SecretManager:
    """The methods of secretmanager.googleapis.com about versions of secrets."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("secretmanager.projects.secrets.versions.get", "GET",
               "v1/projects/{project}/secrets/{secret}/versions/{version}", "get", "secretmanager.versions.get",
               "Secrets are those of project.json, the same in every project, in one version."),
        RestMethod("secretmanager.projects.secrets.versions.access", "GET",
               "v1/projects/{project}/secrets/{secret}/versions/{version}:access", "access",
               "secretmanager.versions.access", "Secrets are those of project.json, the same in every project, in one "
               "version."),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context

    def get(self, request: ServiceRequest) -> Any:
        """Return a version of a secret, without its value."""
        name, _ = self._find_secret(request)
        return {"name": f"{name}/versions/1", "state": "ENABLED"}

    def access(self, request: ServiceRequest) -> Any:
        """Return a secret's value."""
        name, secret = self._find_secret(request)
        try:
            value = secret.read()
        except OSError as error:
            text = f"The rehearsal cannot read the secret {request['secret']}: {error.filename}: {error.strerror}"
            raise ApiError("FAILED_PRECONDITION", text) from error
        checksum = google_crc32c.value(value)
        payload = {"data": base64.b64encode(value).decode(), "dataCrc32c": str(checksum)}
        return {"name": f"{name}/versions/1", "payload": payload}

    def _find_secret(self, request: ServiceRequest) -> tuple[str, Secret]:
        """Return the full name of a secret, and the secret."""
        number = self._context.project_number(request["project"])
        name = f"projects/{number}/secrets/{request['secret']}"
        secret = self._context.project.load_current().secrets.get(request["secret"])
        if secret is None:
            raise ApiError("NOT_FOUND", f"Secret [{name}] not found or has no versions.")
        if request["version"] not in ("latest", "1"):
            raise ApiError("NOT_FOUND", f"Secret Version [{name}/versions/{request['version']}] not found.")
        return name, secret
