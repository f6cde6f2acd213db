"""v1beta1, as far as v1 has the same: asked in its names, answered by v1's handlers, told in its names again."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from vertex_rehearsal.api.errors import ApiError

PATHS = ("/v1beta1/", "/google.cloud.aiplatform.v1beta1.")
"""How they begin over HTTP and over gRPC."""
OPERATION = "google.longrunning.Operation"
TYPE = "type.googleapis.com/google.cloud.aiplatform.v1."
BETA_TYPE = "type.googleapis.com/google.cloud.aiplatform.v1beta1."
LIMIT = "Of v1beta1 this rehearsal plays what v1 has, too."


def is_beta(path: str) -> bool:
    """Whether a path is one of v1beta1's, over HTTP or over gRPC."""
    return path.startswith(PATHS)


def as_v1(path: str) -> str:
    """The same path in v1."""
    return path.replace("v1beta1", "v1", 1) if is_beta(path) else path


def translate_error(problem: ApiError, asked: str) -> ApiError:
    """A problem of v1 with what was asked of v1beta1: what v1 does not know may well be there."""
    if problem.code == "NOT_FOUND" and as_v1(asked) in problem.message:
        return ApiError("UNIMPLEMENTED", f"{asked} is not played. {LIMIT}")
    if problem.message.endswith("Cannot find field."):
        return ApiError("UNIMPLEMENTED", f"{problem.message} {LIMIT}", problem.field)
    return problem


def check_fields(request: Any) -> None:
    """Refuse a request with fields that v1 does not have, which would have no effect."""
    for message in _iter_messages(request):
        for unknown in UnknownFieldSet(message):
            name = message.DESCRIPTOR.name
            raise ApiError("UNIMPLEMENTED", f"Field {unknown.field_number} of {name} is not played. {LIMIT}")


def _iter_messages(message: Any) -> Iterator[Any]:
    """A message, and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = [one for one in value.values() if hasattr(one, "ListFields")]
        else:
            values = value if field.is_repeated else [value]
        for each in values:
            yield from _iter_messages(each)


class BetaOperations:
    """The operations that were begun in v1beta1: clients ask for them by names and paths without a version."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def speaks_beta(self, answer: Any, *, asked: bool) -> bool:
        """Whether an answer is to be in v1beta1's names; `asked`: whether the question was."""
        if answer.DESCRIPTOR.full_name != OPERATION:
            return asked
        if asked:
            self._names.add(answer.name)
        return answer.name in self._names


def rewrite_json_types(text: bytes) -> bytes:
    """An answer's JSON with the types of v1beta1."""
    return text.replace(f'"@type": "{TYPE}'.encode(), f'"@type": "{BETA_TYPE}'.encode())


def rewrite_types(answer: Any) -> Any:
    """An answer with the types of v1beta1: operations name those of their metadata and their response."""
    if answer.DESCRIPTOR.full_name != OPERATION:
        return answer
    found = type(answer)()
    found.CopyFrom(answer)
    for field in ("metadata", "response"):
        if found.HasField(field):
            inside = getattr(found, field)
            inside.type_url = inside.type_url.replace(TYPE, BETA_TYPE)
    return found
