"""Service accounts of IAM: whether one is there, and what whoever asks may do with it."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

ANY_PROJECT = "-"


class ServiceAccounts:
    """The methods of iam.googleapis.com that look at a service account."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("iam.projects.serviceAccounts.get", "GET", "v1/projects/{project}/serviceAccounts/{account}", "get",
               "iam.serviceAccounts.get", "Every account is there, except those that project.json says are missing."),
        RestMethod("iam.projects.serviceAccounts.testIamPermissions", "POST",
               "v1/projects/{project}/serviceAccounts/{account}:testIamPermissions", "test"),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context

    def get(self, asked: ServiceRequest) -> Any:
        """An account; of one that is missing IAM says so only where its project is named."""
        email, project = asked["account"], asked["project"]
        name = f"projects/{project}/serviceAccounts/{email}"
        if not self._is_there(email) and project == ANY_PROJECT:
            text = f"Permission 'iam.serviceAccounts.get' denied on resource (or it may not exist): {name}."
            raise ApiError("PERMISSION_DENIED", text)
        if not self._is_there(email):
            raise ApiError("NOT_FOUND", f"Unknown service account: {name}.")
        number = str(zlib.crc32(email.encode()))
        return {
            "name": name,
            "projectId": project,
            "uniqueId": number,
            "email": email,
            "oauth2ClientId": number,
        }

    def test(self, asked: ServiceRequest) -> Any:
        """Those of the permissions asked about that whoever asks has on an account: on one that is missing, none."""
        permits = self._context.project.load_current().has_permission
        return asked.filter_permissions(lambda permission: self._is_there(asked["account"]) and permits(permission))

    def _is_there(self, email: str) -> bool:
        return email not in self._context.project.load_current().missing_accounts
