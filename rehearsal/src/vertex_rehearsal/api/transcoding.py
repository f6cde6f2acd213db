"""Transcodes HTTP requests to messages and messages to JSON by the HTTP rules of Google's APIs."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from google.protobuf import json_format

from vertex_rehearsal.api.errors import ApiError, invalid_argument, not_found_error, unimplemented_error
from vertex_rehearsal.api.messages import as_text, fill_message, message_class
from vertex_rehearsal.api.methods import HttpRule, RpcMethod

VARIABLE = re.compile(r"\{([\w.]+)(?:=([^}]+))?\}")
UNKNOWN = re.compile(r'Message type "(?P<type>[\w.]+)" has no field named "(?P<name>.*?)" at "(?P<at>.*?)"', re.S)
FAILED = re.compile(r"Failed to parse (?P<field>\S+) field: (?P<why>.*)", re.S)
IAM = re.compile(r"/v1/projects/.*:(getIamPolicy|setIamPolicy|testIamPermissions)")
RAW_BODY = "google.api.HttpBody"
FIELD_MASK = "google.protobuf.FieldMask"


@dataclass(frozen=True)
class HttpRoute:
    """A compiled HTTP rule."""

    pattern: re.Pattern[str]
    fields: tuple[str, ...]
    rule: HttpRule
    method: RpcMethod

    @classmethod
    def from_rule(cls, method: RpcMethod, rule: HttpRule) -> "HttpRoute":
        """The regular expression for `/v1/{name=projects/*/locations/*/customJobs/*}:cancel`."""
        pattern, fields, end = "", [], 0
        for found in VARIABLE.finditer(rule.uri):
            shape = re.escape(found[2] or "*").replace(r"\*\*", ".+").replace(r"\*", "[^/:]+")
            pattern += re.escape(rule.uri[end : found.start()]) + f"({shape})"
            fields.append(found[1])
            end = found.end()
        return cls(re.compile(pattern + re.escape(rule.uri[end:])), tuple(fields), rule, method)


class RouteTable:
    """The HTTP rules of all methods."""

    def __init__(self, methods: Iterable[RpcMethod]) -> None:
        routes = [HttpRoute.from_rule(method, rule) for method in methods for rule in method.rules]
        routes.sort(key=lambda route: len(VARIABLE.sub("", route.rule.uri)), reverse=True)  # the most specific first
        self._by_verb: dict[str, list[HttpRoute]] = {}
        for route in routes:
            self._by_verb.setdefault(route.rule.verb, []).append(route)

    def match_route(self, verb: str, path: str) -> tuple[HttpRoute, Mapping[str, str]]:
        """Return the route of a request and the values in its path."""
        for route in self._by_verb.get(verb, ()):
            if found := route.pattern.fullmatch(path):
                return route, dict(zip(route.fields, map(unquote, found.groups()), strict=True))
        if found := IAM.fullmatch(path):  # also for resources without rules in Google's libraries
            raise unimplemented_error(f"/google.iam.v1.IAMPolicy/{found[1][0].upper()}{found[1][1:]}")
        raise not_found_error(f"{verb} {path}")


def parse_request(route: HttpRoute, named: Mapping[str, str], query: str, body: bytes, content_type: str = "") -> Any:
    """Parse an HTTP request into a message."""
    message = message_class(route.method.request)()
    content: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if not key.startswith("$") and key not in ("alt", "key", "prettyPrint", "fields", "userProject", "quotaUser"):
            _put_value(content, key.split("."), value, message.DESCRIPTOR)
    raw = next((f.name for f in message.DESCRIPTOR.fields if _is_raw(f)), None)
    if raw and not _wraps_raw_body(body, raw):
        for key, value in named.items():
            _put_value(content, key.split("."), value, message.DESCRIPTOR)
        parse_message(content, message)
        getattr(message, raw).content_type = content_type
        getattr(message, raw).data = body
        return message
    if route.rule.body and body.strip():
        given = _parse_json(body)
        if route.rule.body == "*":
            content.update(given)
        else:
            content[route.rule.body] = given
    for key, value in named.items():
        _put_value(content, key.split("."), value, message.DESCRIPTOR)
    return parse_message(content, message)


def format_json(message: Any, *, enums_as_numbers: bool = False) -> bytes:
    """Return a message as Google's HTTP APIs write it."""
    return as_text(message, enums_as_numbers=enums_as_numbers).encode()


def _is_raw(field: Any) -> bool:
    return field.message_type is not None and field.message_type.full_name == RAW_BODY


def _wraps_raw_body(body: bytes, field: str) -> bool:
    """Parse a raw body, which Google's REST client wraps in the request's JSON and other clients send as it is."""
    try:
        content = json.loads(body)
    except ValueError:
        return False
    return isinstance(content, dict) and bool({field, _to_camel_case(field)} & set(content))


def _parse_json(body: bytes) -> Any:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
    if not isinstance(content, dict):
        raise ApiError("INVALID_ARGUMENT", "Invalid JSON payload received. An object is expected.")
    return content


def _put_value(content: dict[str, Any], keys: Sequence[str], value: str, descriptor: Any) -> None:
    """Set a value of the path or the query in the JSON request; a repeated one becomes a list."""
    key = keys[0]
    field = next((f for f in descriptor.fields if key in (f.name, f.json_name)), None)
    if len(keys) > 1:
        inner = field.message_type if field is not None else None
        if inner is None or not isinstance(content.setdefault(key, {}), dict):
            raise invalid_argument(".".join(keys), f'Unknown name "{".".join(keys)}": Cannot bind query parameter.')
        _put_value(content[key], keys[1:], value, inner)
        return
    typed: Any = value
    if field is not None and field.type == field.TYPE_BOOL:
        typed = {"true": True, "false": False}.get(value, value)
    if field is not None and field.message_type is not None and field.message_type.full_name == FIELD_MASK:
        typed = _to_camel_case(value)  # the JSON form; Google accepts both
    if field is not None and field.is_repeated and field.message_type is None:
        content.setdefault(key, []).append(typed)
    else:
        content[key] = typed


def parse_message(content: Mapping[str, Any], message: Any, *, at: str = "") -> Any:
    """Parse JSON into a message; raise INVALID_ARGUMENT with the field's name if it does not fit."""
    try:
        return fill_message(message, content)
    except (json_format.ParseError, RecursionError) as error:
        text = str(error)
    if found := UNKNOWN.search(text):
        inside = found["at"].partition(".")[2]
        field = ".".join(part for part in (at, inside) if part)
        where = f" at '{field}'" if field else ""
        name = found["name"]
        raise invalid_argument(
            f"{field}.{name}" if field else name,
            f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.',
        )
    path = [at] if at else []
    while found := FAILED.match(text):  # from the outermost field inwards
        path.append(found["field"])
        text = found["why"]
    field = ".".join(path)
    raise invalid_argument(field, f"Invalid value at '{field}': {text}")


def _to_camel_case(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)
