"""Methods and requests of the other services, each a class whose METHODS name its routes and handlers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vertex_rehearsal.api.errors import invalid_argument

VARIABLE = re.compile(r"\{(\w+)(=\*\*)?\}")
MOST_PER_PAGE = 1000
MOST_PERMISSIONS = 100


@dataclass(frozen=True)
class RestMethod:
    """A method over HTTP, by its name in Google's reference."""

    id: str
    """Its name, as `cloudbuild.projects.builds.create`."""
    verb: str
    path: str
    """Its path, as `v1/projects/{project}/builds`; `{image=**}` also matches slashes and colons."""
    handler: str
    """The name of the service's method that handles it."""
    permission: str = ""
    limit: str = ""

    @property
    def extent(self) -> str:
        """How far it is emulated: `played` or `partly`."""
        return "partly" if self.limit else "played"

    @property
    def pattern(self) -> re.Pattern[str]:
        """A pattern of its paths, with a group for each variable."""
        text, end = "", 0
        for variable in VARIABLE.finditer(self.path):
            text += (
                re.escape(self.path[end : variable.start()]) + f"(?P<{variable[1]}>{'.+' if variable[2] else '[^/:]+'})"
            )
            end = variable.end()
        return re.compile(text + re.escape(self.path[end:]))


@dataclass(frozen=True)
class ServiceRequest:
    """A request to one of the other services."""

    path_variables: Mapping[str, str]
    """The variables of its path; `project` is always the project's id, never its number."""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.path_variables[name]

    def get_parameter(self, name: str, default: str = "") -> str:
        """Return a query parameter, given in camelCase or in snake_case."""
        snake = re.sub(r"(?=[A-Z])", "_", name).lower()
        return (self.query.get(name) or self.query.get(snake) or [default])[-1]

    def build_page(self, rows: Sequence[Any], key: str) -> dict[str, Any]:
        """Return a page of rows, according to `pageSize` and `pageToken`."""
        size, token = self.get_parameter("pageSize", "0"), self.get_parameter("pageToken", "0")
        if not size.isdigit():
            raise invalid_argument("page_size", f'page_size must be a number, not "{size}".')
        if not token.isdigit():
            raise invalid_argument("page_token", "The page token is invalid.")
        begin = int(token)
        end = begin + min(int(size) or MOST_PER_PAGE, MOST_PER_PAGE)
        page: dict[str, Any] = {key: list(rows[begin:end])} if rows[begin:end] else {}
        return page | ({"nextPageToken": str(end)} if end < len(rows) else {})

    def filter_permissions(self, permits: Callable[[str], bool]) -> dict[str, Any]:
        """Return the response of `testIamPermissions`: the tested permissions that the caller has."""
        permissions = self.body.get("permissions")
        if not isinstance(permissions, list) or not all(isinstance(each, str) for each in permissions):
            raise invalid_argument("permissions", "A list of permissions is expected.")
        if len(permissions) > MOST_PERMISSIONS:
            raise invalid_argument(
                "permissions", f"At most {MOST_PERMISSIONS} permissions can be tested, not {len(permissions)}."
            )
        if malformed := [each for each in permissions if "*" in each or each.count(".") < 2]:
            raise invalid_argument("permissions", f"Permission {malformed[0]} is not valid for this resource.")
        granted = [permission for permission in permissions if permits(permission)]
        return {"permissions": granted} if granted else {}
