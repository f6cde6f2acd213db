"""Stored model versions: names, aliases, lookup and the location of their files."""

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
"""How long a request waits for its operation to finish: clients poll an unfinished one only after a second."""


def parse_name(context: "Context", name: str, at: str = "name") -> tuple[str, str]:
    """Split a model's name into the name without version and the version or alias, which may be empty."""
    match = NAME.fullmatch(name)
    if not match:
        raise invalid_argument(
            at, f'Invalid resource name "{name}": projects/PROJECT/locations/REGION/models/MODEL is expected.'
        )
    _, project, *rest = match[1].split("/")
    return "/".join(["projects", context.project_id(project), *rest]), match[3] or ""


def list_versions(context: "Context", plain: str) -> list[Any]:
    """Return every stored version of a model, oldest first."""
    return [model for model in context.database.list_all(KIND) if model.name.startswith(f"{plain}@")]


def find_version(context: "Context", name: str, at: str = "name") -> Any:
    """Return a stored model version by its number or alias; the default version if none is named."""
    plain, version = parse_name(context, name, at)
    for model in list_versions(context, plain):
        if (version or DEFAULT) in (model.version_id, *model.version_aliases):
            return model
    raise not_found_error(name)


def get_model_name(model: Any) -> str:
    """Return the name of the model that a stored version belongs to."""
    return str(model.name).partition("@")[0]


def get_storage_uri(context: "Context", model: Any) -> str:
    """Return the URI of a stored version's files; "" if it has none."""
    if not model.artifact_uri:
        return ""
    _, project, _, _, _, last = model.name.split("/")
    return f"gs://{bucket_of(context, project)}/{last.replace('@', '/')}"


def bucket_of(context: "Context", project: str) -> str:
    """Return the bucket that holds the files of a project's models."""
    return f"rehearsal-models-{context.project_number(project)}"


def check_mask(changes: Any, mask: Any, at: str, allowed: Sequence[str]) -> list[str]:
    """Return the fields in an update mask; raise INVALID_ARGUMENT for unknown fields and invalid values."""
    fields = [path.split(".")[0] for path in mask.paths]
    if not fields:
        raise invalid_argument("update_mask", "Required field is not set: update_mask.")
    for field in fields:
        if field not in allowed:
            raise invalid_argument("update_mask", f'"{field}" cannot be changed; {", ".join(allowed)} can.')
    named = type(changes)(display_name=changes.display_name if "display_name" in fields else "-")
    if "labels" in fields:
        named.labels.update(changes.labels)
    validation.check_name_and_labels(named, at)
    return fields


def copy_field_value(target: Any, source: Any, field: str) -> None:
    """Copy a field's value from one message to another, even if it is empty."""
    target.ClearField(field)
    copy = type(source)()
    copy.CopyFrom(source)
    for name in copy.DESCRIPTOR.fields_by_name:
        if name != field:
            copy.ClearField(name)
    target.MergeFrom(copy)
