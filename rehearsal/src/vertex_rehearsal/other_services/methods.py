"""What a neighbour is: a class whose METHODS say what is asked of it, and who answers."""

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
    """A method over HTTP, by the name that Google's reference gives it."""

    id: str
    """cloudbuild.projects.builds.create."""
    verb: str
    path: str
    """v1/projects/{project}/builds; `{image=**}` takes slashes and colons too."""
    answer: str
    """The name of the neighbour's method that answers."""
    permission: str = ""
    limit: str = ""

    @property
    def extent(self) -> str:
        """played or partly."""
        return "partly" if self.limit else "played"

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a path looks like, with a group for each variable."""
        text, end = "", 0
        for found in VARIABLE.finditer(self.path):
            text += re.escape(self.path[end : found.start()]) + f"(?P<{found[1]}>{'.+' if found[2] else '[^/:]+'})"
            end = found.end()
        return re.compile(text + re.escape(self.path[end:]))


@dataclass(frozen=True)
class ServiceRequest:
    """What a request says."""

    named: Mapping[str, str]
    """The variables of its path; `project` is always the project's id."""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.named[name]

    def get_parameter(self, name: str, default: str = "") -> str:
        """A parameter of the query; in camelCase, or as its field is called."""
        snake = re.sub(r"(?=[A-Z])", "_", name).lower()
        return (self.query.get(name) or self.query.get(snake) or [default])[-1]

    def build_page(self, rows: Sequence[Any], key: str) -> dict[str, Any]:
        """A page of rows, as `pageSize` and `pageToken` ask."""
        size, token = self.get_parameter("pageSize", "0"), self.get_parameter("pageToken", "0")
        if not size.isdigit():
            raise invalid_argument("page_size", f'page_size must be a number, not "{size}".')
        if not token.isdigit():
            raise invalid_argument("page_token", "The page token is invalid.")
        begin = int(token)
        end = begin + min(int(size) or MOST_PER_PAGE, MOST_PER_PAGE)
        found: dict[str, Any] = {key: list(rows[begin:end])} if rows[begin:end] else {}
        return found | ({"nextPageToken": str(end)} if end < len(rows) else {})

    def filter_permissions(self, permits: Callable[[str], bool]) -> dict[str, Any]:
        """What every `testIamPermissions` answers: those of the permissions asked about that whoever asks has."""
        given = self.body.get("permissions")
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise invalid_argument("permissions", "A list of permissions is expected.")
        if len(given) > MOST_PERMISSIONS:
            raise invalid_argument(
                "permissions", f"At most {MOST_PERMISSIONS} permissions can be tested, not {len(given)}."
            )
        if wild := [one for one in given if "*" in one or one.count(".") < 2]:
            raise invalid_argument("permissions", f"Permission {wild[0]} is not valid for this resource.")
        found = [permission for permission in given if permits(permission)]
        return {"permissions": found} if found else {}
