"""Models: uploaded with a copy of their files, kept in versions with aliases, and found by either."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import invalid_argument, not_found_error
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

NAME = re.compile(r"(projects/[^/]+/locations/[^/]+/models/([^/@]+))(?:@([^/@]+))?")
DEFAULT = "default"
INPUTS = ("jsonl", "csv", "file-list")
KIND = "google.cloud.aiplatform.v1.Model"
QUICK_S = 0.5
"""So long an upload is waited for: a client that is told of an unfinished one asks again after a second."""


def parse_name(context: "Context", name: str, at: str = "name") -> tuple[str, str]:
    """The name of a model without its version, and the version or alias, which may be empty."""
    found = NAME.fullmatch(name)
    if not found:
        raise invalid_argument(
            at, f'Invalid resource name "{name}": projects/PROJECT/locations/REGION/models/MODEL is expected.'
        )
    _, project, *rest = found[1].split("/")
    return "/".join(["projects", context.project_id(project), *rest]), found[3] or ""


def list_versions(context: "Context", plain: str) -> list[Any]:
    """Every version of a model as it is kept, oldest first."""
    return [model for model in context.database.list_all(KIND) if model.name.startswith(f"{plain}@")]


def find_version(context: "Context", name: str, at: str = "name") -> Any:
    """A version of a model as it is kept, by its number or an alias; the default one where none is named."""
    plain, wanted = parse_name(context, name, at)
    for model in list_versions(context, plain):
        if (wanted or DEFAULT) in (model.version_id, *model.version_aliases):
            return model
    raise not_found_error(name)


def get_model_name(model: Any) -> str:
    """The name of a kept version's model."""
    return str(model.name).partition("@")[0]


def get_storage_uri(context: "Context", model: Any) -> str:
    """The copy of a kept version's files; "" where it has none."""
    if not model.artifact_uri:
        return ""
    _, project, _, _, _, last = model.name.split("/")
    return f"gs://{bucket_of(context, project)}/{last.replace('@', '/')}"


def bucket_of(context: "Context", project: str) -> str:
    """The bucket that holds the copies of a project's models."""
    return f"rehearsal-models-{context.project_number(project)}"


def check_mask(given: Any, mask: Any, at: str, allowed: Sequence[str]) -> list[str]:
    """The fields that a mask names; one that cannot be changed, or to something that cannot be, is refused."""
    fields = [path.split(".")[0] for path in mask.paths]
    if not fields:
        raise invalid_argument("update_mask", "Required field is not set: update_mask.")
    for field in fields:
        if field not in allowed:
            raise invalid_argument("update_mask", f'"{field}" cannot be changed; {", ".join(allowed)} can.')
    named = type(given)(display_name=given.display_name if "display_name" in fields else "-")
    if "labels" in fields:
        named.labels.update(given.labels)
    validation.check_name_and_labels(named, at)
    return fields


def copy_field_value(kept: Any, given: Any, field: str) -> None:
    """Give a message another's value of a field, be it empty."""
    kept.ClearField(field)
    one = type(given)()
    one.CopyFrom(given)
    for name in one.DESCRIPTOR.fields_by_name:
        if name != field:
            one.ClearField(name)
    kept.MergeFrom(one)
