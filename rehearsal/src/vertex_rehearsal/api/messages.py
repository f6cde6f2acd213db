"""The message classes of Google's APIs, built from descriptors in a separate descriptor pool."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.internal import enum_type_wrapper

POOL = descriptor_pool.DescriptorPool()
"""A separate pool: Google's libraries fail to import if their messages are registered already."""


def register_files(files: Iterable[Any]) -> None:
    """Register the messages of files, which must be ordered after their dependencies."""
    for file in files:
        try:
            POOL.FindFileByName(file.name)
        except KeyError:
            POOL.AddSerializedFile(file.SerializeToString())


def parse_descriptors(content: bytes) -> list[Any]:
    """Parse serialised file descriptors."""
    return list(descriptor_pb2.FileDescriptorSet.FromString(content).file)


@cache
def message_class(full_name: str) -> Any:
    """Return the class of a message by its full name; raise KeyError if there is none."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


class Messages:
    """The messages and enumerations of one API by their short names: `v1.CustomJob`, `v1.JobState`."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        full = f"{self._package}.{name}"
        try:
            found: Any = message_class(full)
        except KeyError:
            try:
                found = enum_type_wrapper.EnumTypeWrapper(POOL.FindEnumTypeByName(full))
            except KeyError:
                raise AttributeError(f"{self._package} has no {name}") from None
        setattr(self, name, found)
        return found


v1 = Messages("google.cloud.aiplatform.v1")
logging = Messages("google.logging.v2")
longrunning = Messages("google.longrunning")
location = Messages("google.cloud.location")
protobuf = Messages("google.protobuf")
rpc = Messages("google.rpc")


def as_dict(message: Any, *, own_names: bool = False, with_defaults: bool = False) -> Any:
    """Return a message as JSON, with field names in camelCase or as defined, optionally with default values."""
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=own_names,
        always_print_fields_with_no_presence=with_defaults,
        descriptor_pool=POOL,
    )


def as_text(message: Any, *, enums_as_numbers: bool = False) -> str:
    """Return a message as JSON text."""
    text: str = json_format.MessageToJson(
        message, use_integers_for_enums=enums_as_numbers, ensure_ascii=False, descriptor_pool=POOL
    )
    return text


def fill_message(message: Any, content: Mapping[str, Any]) -> Any:
    """Fill a message from JSON and return it; raise json_format.ParseError if a field does not fit."""
    return json_format.ParseDict(content, message, descriptor_pool=POOL, max_recursion_depth=100)
