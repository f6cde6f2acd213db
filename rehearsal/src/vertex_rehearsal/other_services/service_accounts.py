"""Service accounts of IAM: whether an account exists, and the caller's permissions on it."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

ANY_PROJECT = "-"


class ServiceAccounts:
    """The methods of iam.googleapis.com about service accounts."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("iam.projects.serviceAccounts.get", "GET", "v1/projects/{project}/serviceAccounts/{account}", "get",
               "iam.serviceAccounts.get", "Every account exists, except the missing ones of project.json."),
        RestMethod("iam.projects.serviceAccounts.testIamPermissions", "POST",
               "v1/projects/{project}/serviceAccounts/{account}:testIamPermissions", "test"),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context

    def get(self, request: ServiceRequest) -> Any:
        """Return an account; like IAM, reports a missing one as NOT_FOUND only if its project is named."""
        email, project = request["account"], request["project"]
        name = f"projects/{project}/serviceAccounts/{email}"
        if not self._exists(email) and project == ANY_PROJECT:
            text = f"Permission 'iam.serviceAccounts.get' denied on resource (or it may not exist): {name}."
            raise ApiError("PERMISSION_DENIED", text)
        if not self._exists(email):
            raise ApiError("NOT_FOUND", f"Unknown service account: {name}.")
        number = str(zlib.crc32(email.encode()))
        return {
            "name": name,
            "projectId": project,
            "uniqueId": number,
            "email": email,
            "oauth2ClientId": number,
        }

    def test(self, request: ServiceRequest) -> Any:
        """Return the tested permissions that the caller has on an account; none on a missing one."""
        permits = self._context.project.load_current().has_permission
        return request.filter_permissions(lambda permission: self._exists(request["account"]) and permits(permission))

    def _exists(self, email: str) -> bool:
        return email not in self._context.project.load_current().missing_accounts
