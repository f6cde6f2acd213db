"""Cloud Resource Manager: a project's number, and the caller's permissions in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

CREATED = "2026-01-01T00:00:00Z"


class ResourceManager:
    """The methods of cloudresourcemanager.googleapis.com about projects, in versions 1 and 3."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("cloudresourcemanager.projects.get", "GET", "v1/projects/{project}", "get",
               "resourcemanager.projects.get", "Every project exists."),
        RestMethod("cloudresourcemanager.projects.get (v3)", "GET", "v3/projects/{project}", "get_v3",
               "resourcemanager.projects.get", "Every project exists."),
        RestMethod("cloudresourcemanager.projects.testIamPermissions", "POST",
               "v1/projects/{project}:testIamPermissions", "test"),
        RestMethod("cloudresourcemanager.projects.testIamPermissions (v3)", "POST",
               "v3/projects/{project}:testIamPermissions", "test"),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context

    def get(self, request: ServiceRequest) -> Any:
        """Return a project with its number."""
        project = request["project"]
        return {
            "projectNumber": self._context.project_number(project),
            "projectId": project,
            "lifecycleState": "ACTIVE",
            "name": project,
            "createTime": CREATED,
        }

    def get_v3(self, request: ServiceRequest) -> Any:
        """Return a project in the format of version 3."""
        project = request["project"]
        name = f"projects/{self._context.project_number(project)}"
        return {"name": name, "projectId": project, "state": "ACTIVE", "displayName": project, "createTime": CREATED}

    def test(self, request: ServiceRequest) -> Any:
        """Return the tested permissions that the caller has."""
        return request.filter_permissions(self._context.project.load_current().has_permission)
