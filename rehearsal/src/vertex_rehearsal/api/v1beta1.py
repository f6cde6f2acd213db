"""Translates v1beta1 requests and responses to and from v1, whose handlers answer them."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from vertex_rehearsal.api.errors import ApiError

PATHS = ("/v1beta1/", "/google.cloud.aiplatform.v1beta1.")
"""Prefixes of v1beta1's paths over HTTP and gRPC."""
OPERATION = "google.longrunning.Operation"
TYPE = "type.googleapis.com/google.cloud.aiplatform.v1."
BETA_TYPE = "type.googleapis.com/google.cloud.aiplatform.v1beta1."
LIMIT = "Of v1beta1 this rehearsal plays what v1 has, too."


def is_beta(path: str) -> bool:
    """Whether a path belongs to v1beta1, over HTTP or gRPC."""
    return path.startswith(PATHS)


def as_v1(path: str) -> str:
    """Return the same path in v1."""
    return path.replace("v1beta1", "v1", 1) if is_beta(path) else path


def translate_error(problem: ApiError, asked: str) -> ApiError:
    """Translate an error of v1 for a v1beta1 client: methods and fields that v1 lacks may exist in v1beta1."""
    if problem.code == "NOT_FOUND" and as_v1(asked) in problem.message:
        return ApiError("UNIMPLEMENTED", f"{asked} is not played. {LIMIT}")
    if problem.message.endswith("Cannot find field."):
        return ApiError("UNIMPLEMENTED", f"{problem.message} {LIMIT}", problem.field)
    return problem


def check_fields(request: Any) -> None:
    """Raise an error if a request has fields that v1 lacks, which would be ignored."""
    for message in _iter_messages(request):
        for unknown in UnknownFieldSet(message):
            name = message.DESCRIPTOR.name
            raise ApiError("UNIMPLEMENTED", f"Field {unknown.field_number} of {name} is not played. {LIMIT}")


def _iter_messages(message: Any) -> Iterator[Any]:
    """Yield a message and all messages inside it."""
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
    """Tracks operations started through v1beta1, which clients poll by names and paths without a version."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def speaks_beta(self, answer: Any, *, asked: bool) -> bool:
        """Whether a response must use v1beta1's type names; `asked` tells whether the request was in v1beta1."""
        if answer.DESCRIPTOR.full_name != OPERATION:
            return asked
        if asked:
            self._names.add(answer.name)
        return answer.name in self._names


def rewrite_json_types(text: bytes) -> bytes:
    """Replace v1's type names in JSON by v1beta1's."""
    return text.replace(f'"@type": "{TYPE}'.encode(), f'"@type": "{BETA_TYPE}'.encode())


def rewrite_types(answer: Any) -> Any:
    """Replace v1's type names in a response by v1beta1's: those of an operation's metadata and response."""
    if answer.DESCRIPTOR.full_name != OPERATION:
        return answer
    found = type(answer)()
    found.CopyFrom(answer)
    for field in ("metadata", "response"):
        if found.HasField(field):
            inside = getattr(found, field)
            inside.type_url = inside.type_url.replace(TYPE, BETA_TYPE)
    return found
