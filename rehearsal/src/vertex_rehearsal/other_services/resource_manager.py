"""Cloud Resource Manager: a project's number, and what whoever asks may do in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

CREATED = "2026-01-01T00:00:00Z"


class ResourceManager:
    """The methods of cloudresourcemanager.googleapis.com about projects, in both of their versions."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("cloudresourcemanager.projects.get", "GET", "v1/projects/{project}", "get",
               "resourcemanager.projects.get", "Every project is there."),
        RestMethod("cloudresourcemanager.projects.get (v3)", "GET", "v3/projects/{project}", "get_v3",
               "resourcemanager.projects.get", "Every project is there."),
        RestMethod("cloudresourcemanager.projects.testIamPermissions", "POST",
               "v1/projects/{project}:testIamPermissions", "test"),
        RestMethod("cloudresourcemanager.projects.testIamPermissions (v3)", "POST",
               "v3/projects/{project}:testIamPermissions", "test"),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context

    def get(self, asked: ServiceRequest) -> Any:
        """A project, with its number."""
        project = asked["project"]
        return {
            "projectNumber": self._context.project_number(project),
            "projectId": project,
            "lifecycleState": "ACTIVE",
            "name": project,
            "createTime": CREATED,
        }

    def get_v3(self, asked: ServiceRequest) -> Any:
        """The same, as version 3 says it."""
        project = asked["project"]
        name = f"projects/{self._context.project_number(project)}"
        return {"name": name, "projectId": project, "state": "ACTIVE", "displayName": project, "createTime": CREATED}

    def test(self, asked: ServiceRequest) -> Any:
        """Those of the permissions asked about that whoever asks has."""
        return asked.filter_permissions(self._context.project.load_current().has_permission)
