"""The messages of Google's APIs, known from their descriptions and kept apart from those that other packages load."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.internal import enum_type_wrapper

POOL = descriptor_pool.DescriptorPool()
"""Of our own: Google's libraries refuse to be imported where somebody else has described their messages."""


def register_files(files: Iterable[Any]) -> None:
    """Know the messages of these files, each of which stands after those that it needs."""
    for file in files:
        try:
            POOL.FindFileByName(file.name)
        except KeyError:
            POOL.AddSerializedFile(file.SerializeToString())


def parse_descriptors(content: bytes) -> list[Any]:
    """Files from the form in which they are kept."""
    return list(descriptor_pb2.FileDescriptorSet.FromString(content).file)


@cache
def message_class(full_name: str) -> Any:
    """The class of a message by its full name; KeyError where there is none."""
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
    """A message as JSON, its fields in camelCase or by their own names; those without presence too, if wanted."""
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=own_names,
        always_print_fields_with_no_presence=with_defaults,
        descriptor_pool=POOL,
    )


def as_text(message: Any, *, enums_as_numbers: bool = False) -> str:
    """A message as the text of its JSON."""
    text: str = json_format.MessageToJson(
        message, use_integers_for_enums=enums_as_numbers, ensure_ascii=False, descriptor_pool=POOL
    )
    return text


def fill_message(message: Any, content: Mapping[str, Any]) -> Any:
    """A message with the fields that JSON gives it; json_format.ParseError where they do not fit."""
    return json_format.ParseDict(content, message, descriptor_pool=POOL, max_recursion_depth=100)
