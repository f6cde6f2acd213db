"""Metadata schemas: stored by name and version, for the nodes that name them."""

import re
from typing import TYPE_CHECKING, Any

import yaml

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.metadata.service import check_or_create_id

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

AT = "metadata_schema"
VERSION = re.compile(r"\d+\.\d+\.\d+")


class MetadataSchemas:
    """The RPCs of google.cloud.aiplatform.v1.MetadataService about schemas."""

    LOOKUPS = {"MetadataSchema": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateMetadataSchema": "Nodes are not checked by it.",
        "ListMetadataSchemas": "Without the schemas that every store has at Google (system.Model and its like).",
    }

    def __init__(self, context: "Context") -> None:
        self._context = context

    def create_metadata_schema(self, request: Any) -> Any:
        """Create a schema; its title and version must be unique in the store."""
        store = self._context.database.get(request.parent).name
        schema = v1.MetadataSchema()
        schema.CopyFrom(request.metadata_schema)
        if schema.schema_version and not VERSION.fullmatch(schema.schema_version):
            text = f'"{schema.schema_version}" is no version: three numbers are expected, as 1.0.0.'
            raise invalid_argument(f"{AT}.schema_version", text)
        title = _read_title(schema.schema)
        schema.name = f"{store}/metadataSchemas/{check_or_create_id(request.metadata_schema_id, f'{AT}_id')}"
        schema.create_time.GetCurrentTime()
        with self._context.database.lock:
            for other in self._context.database.list_all(schema.DESCRIPTOR.full_name):
                is_same = (_read_title(other.schema), other.schema_version) == (title, schema.schema_version)
                if is_same and other.name.startswith(f"{store}/"):
                    text = f"{title} {schema.schema_version} is {other.name} already."
                    raise ApiError("ALREADY_EXISTS", text)
            self._context.database.add(schema)
        return schema


def _read_title(text: str) -> str:
    """Return the title in a schema's YAML."""
    at = f"{AT}.schema"
    if not text:
        raise invalid_argument(at, "Required field is not set: schema.")
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise invalid_argument(at, f"The schema is no YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("title"), str):
        raise invalid_argument(at, "The schema must be an object with a title.")
    return str(content["title"])
