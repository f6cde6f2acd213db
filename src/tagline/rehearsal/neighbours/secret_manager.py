"""Secret Manager: the secrets of project.json, each in its only version."""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import google_crc32c

from tagline.rehearsal.neighbours.contract import Asked, Method
from tagline.rehearsal.problems import Problem

if TYPE_CHECKING:
    from tagline.rehearsal.stage import Stage


class SecretManager:
    """The method of secretmanager.googleapis.com that gives a secret away."""

    METHODS: Sequence[Method] = (
        Method("secretmanager.projects.secrets.versions.access", "GET",
               "v1/projects/{project}/secrets/{secret}/versions/{version}:access", "access",
               "secretmanager.versions.access", "Secrets are those of project.json, the same in every project, in one "
               "version."),
    )  # fmt: skip

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage

    def access(self, asked: Asked) -> Any:
        """A secret's value."""
        number = self._stage.project_number(asked["project"])
        name = f"projects/{number}/secrets/{asked['secret']}"
        secret = self._stage.project.now().secrets.get(asked["secret"])
        if secret is None:
            raise Problem("NOT_FOUND", f"Secret [{name}] not found or has no versions.")
        if asked["version"] not in ("latest", "1"):
            raise Problem("NOT_FOUND", f"Secret Version [{name}/versions/{asked['version']}] not found.")
        try:
            value = secret.read()
        except OSError as error:
            text = f"The rehearsal cannot read the secret {asked['secret']}: {error.filename}: {error.strerror}"
            raise Problem("FAILED_PRECONDITION", text) from error
        checksum = google_crc32c.value(value)
        payload = {"data": base64.b64encode(value).decode(), "dataCrc32c": str(checksum)}
        return {"name": f"{name}/versions/1", "payload": payload}
