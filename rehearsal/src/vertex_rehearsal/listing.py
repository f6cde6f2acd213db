"""What lists can be asked for: the fields of their filters, orders and masks, as the reference names them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from vertex_rehearsal import filters
from vertex_rehearsal.api.errors import invalid_argument
from vertex_rehearsal.api.messages import POOL, as_dict, protobuf
from vertex_rehearsal.filters import Comparison, to_snake_case

EQUAL = ("=", "!=")
WILD = (*EQUAL, ":")
ORDERED = (*EQUAL, "<", "<=", ">", ">=")
EVERY = (*ORDERED, ":")
TIME = "google.protobuf.Timestamp"
STRUCT = "google.protobuf.Struct"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
DERIVED = "derived"
"""Where a filter finds what is computed from a resource, and what is noted beside it."""


@dataclass(frozen=True)
class FilterField:
    """A field that a filter may name."""

    operators: tuple[str, ...] = EQUAL
    is_map: bool = False
    """Whether keys may follow its name."""
    derive: Callable[[Any], str] | None = None
    """Computes its value from a resource; where that is None, it is the resource's field of the same name."""
    is_note: bool = False
    """Whether its value is noted beside the resource, which does not hold it."""


@dataclass(frozen=True)
class ListRules:
    """What one list can be asked for."""

    fields: Mapping[str, FilterField] | None = None
    """None: every field of the resource, where the reference names none."""
    orders: tuple[str, ...] | None = None
    """The same for order_by."""


def get_id(resource: Any) -> str:
    """The last part of a resource's name, without a version."""
    return str(resource.name.rpartition("/")[2].partition("@")[0])


def _get_pipeline_name(job: Any) -> str:
    info = job.pipeline_spec.fields["pipelineInfo"].struct_value if job.HasField("pipeline_spec") else protobuf.Struct()
    return str(info.fields["name"].string_value) if "name" in info.fields else ""


def get_base_model_name(model: Any) -> str:
    """What a model was made from, where it came from Model Garden."""
    return str(model.base_model_source.model_garden_source.public_model_name.rpartition("/")[2].partition("@")[0])


LABELS = {"labels": FilterField(WILD, is_map=True)}
JOB = {"display_name": FilterField(WILD), "state": FilterField(), "create_time": FilterField(ORDERED), **LABELS}
NODE = {name: FilterField(EVERY) for name in ("name", "display_name", "schema_title", "create_time", "update_time")}
NODE |= {"metadata": FilterField(EVERY, is_map=True)}
STATE_AND_URI = {"state": FilterField(), "uri": FilterField(EVERY)}
MEMBERSHIP = FilterField(("=",), is_map=True, is_note=True)
"""Whether a resource is one of a set, which services use for what filters ask about other resources."""
LISTS: Mapping[str, ListRules] = {
    "CustomJobs": ListRules(JOB),
    "HyperparameterTuningJobs": ListRules(JOB),
    "BatchPredictionJobs": ListRules(JOB | {"model_display_name": FilterField(is_note=True)}),
    "TrainingPipelines": ListRules(JOB | {"training_task_definition": FilterField(WILD)}),
    "PipelineJobs": ListRules(
        JOB
        | {
            "pipeline_name": FilterField(derive=_get_pipeline_name),
            "pipeline_job_user_id": FilterField(WILD, derive=get_id),
            "update_time": FilterField(ORDERED),
            "end_time": FilterField(ORDERED),
            "template_uri": FilterField(WILD),
            "template_metadata.version": FilterField(WILD),
            "schedule_name": FilterField(),  # not in the reference: Google's SDK lists a schedule's jobs by it
        },
        ("create_time", "update_time", "end_time", "start_time"),
    ),
    "Schedules": ListRules(
        {
            "display_name": FilterField(WILD),
            "state": FilterField(),
            "create_pipeline_job_request": FilterField((":",)),
            "create_time": FilterField(ORDERED),
            "start_time": FilterField(ORDERED),
            "end_time": FilterField(EVERY),
            "next_run_time": FilterField(ORDERED),
        },
        ("create_time", "start_time", "end_time", "next_run_time"),
    ),
    "Models": ListRules(
        {
            "model": FilterField(derive=get_id),
            "display_name": FilterField(),
            "base_model_name": FilterField(("=",), derive=get_base_model_name),
            **LABELS,
        },
        ("display_name", "create_time", "update_time"),
    ),
    "ModelVersions": ListRules(LABELS, ("create_time", "update_time")),
    "Endpoints": ListRules(
        {
            "endpoint": FilterField(derive=get_id),
            "display_name": FilterField(),
            "base_model_name": FilterField(("=",), is_note=True),
            **LABELS,
        },
        ("display_name", "create_time", "update_time"),
    ),
    "Contexts": ListRules(NODE),
    "Artifacts": ListRules(NODE | STATE_AND_URI),
    "Executions": ListRules(NODE | {"state": FilterField()}),
}
"""By the name of what is listed; lists that are not here take every field of their resources."""


@dataclass(frozen=True)
class ListQuery:
    """A request for a page, read and found to be sound."""

    passes: Callable[[Any, Mapping[str, Any]], bool]
    """Whether a resource passes the filter, given what is noted beside it."""
    needs_notes: bool
    orders: tuple[tuple[str, bool], ...]
    """Fields, and whether they descend; empty for the newest first."""

    def sort(self, rows: list[tuple[int, Any]]) -> list[tuple[list[Any], int, Any]]:
        """Rows of (number, resource) in their order, each with what it is sorted by; the newest first among equals."""
        paths = [path for path, _ in self.orders]
        keyed = [(_read_keys(resource, paths), number, resource) for number, resource in rows]
        return sorted(keyed, key=cmp_to_key(self.compare))

    def compare(self, one: Sequence[Any], other: Sequence[Any]) -> int:
        """Which of two places (keys, number) comes first: below 0 for the first of them."""
        for (_, descends), mine, theirs in zip(self.orders, one[0], other[0], strict=True):
            if mine != theirs:
                return 1 if (mine > theirs) != descends else -1
        return int(other[1]) - int(one[1])


def compile_query(request: Any, resolve_name: Callable[[str], str]) -> ListQuery:
    """What a List request asks for; INVALID_ARGUMENT where the reference does not know it."""
    kind = _get_resource_type(request)
    rules = LISTS.get(request.DESCRIPTOR.name.removeprefix("List").removesuffix("Request"), ListRules())
    passes = compile_filter(getattr(request, "filter", ""), kind, rules.fields, resolve_name)
    orders = _parse_orders(getattr(request, "order_by", ""), kind, rules.orders)
    needs_notes = any(field.is_note for field in (rules.fields or {}).values()) and bool(request.filter)
    return ListQuery(passes, needs_notes, orders)


def _get_resource_type(request: Any) -> Any:
    """What a list holds: the description of the message that its response repeats."""
    response = POOL.FindMessageTypeByName(request.DESCRIPTOR.full_name.removesuffix("Request") + "Response")
    return next(field.message_type for field in response.fields if field.message_type is not None)


def compile_filter(
    text: str, kind: Any, fields: Mapping[str, FilterField] | None, resolve_name: Callable[[str], str]
) -> Callable[[Any, Mapping[str, Any]], bool]:
    """Whether a resource of a kind passes a filter; one of fields that cannot be asked for is refused."""
    parsed = filters.parse_filter(text, has_wildcards=True, adapt=lambda one: _adapt(one, kind, fields, resolve_name))
    names = {filters.split_path(one.field)[0] for one in parsed.comparisons}
    wanted = [name for name in kind.fields_by_name if name in names]
    derived = {
        name: field.derive for name, field in (fields or {}).items() if field.derive is not None and DERIVED in names
    }

    def passes(resource: Any, notes: Mapping[str, Any]) -> bool:
        if not text.strip():
            return True
        values = {name: derive(resource) for name, derive in derived.items()}
        return parsed(_read_fields(resource, wanted) | {DERIVED: {**notes, **values}})

    return passes


def _adapt(
    comparison: Comparison, kind: Any, fields: Mapping[str, FilterField] | None, resolve_name: Callable[[str], str]
) -> Comparison:
    """A comparison whose field stands as its message has it; what a kind of resource cannot be asked is refused."""
    if not comparison.operator:
        raise invalid_argument(
            "filter", f'Invalid filter: "{comparison.value}" is no comparison, as display_name="x" is.'
        )
    keys = [to_snake_case(key) for key in filters.split_path(comparison.field)[:1]]
    keys += filters.split_path(comparison.field)[1:]
    name = ".".join(map(to_snake_case, keys))
    field = _find_field(keys, name, kind, fields)
    operators = EVERY if field is None else field.operators
    if comparison.operator not in operators:
        text = f'"{comparison.field}" cannot be compared by {comparison.operator}; {" ".join(operators)} can.'
        raise invalid_argument("filter", f"Invalid filter: {text}")
    if field is not None and (field.is_note or field.derive is not None):
        return replace(comparison, field=f"{DERIVED}.{name}")
    _check_value(comparison, keys, kind)
    path = ".".join([keys[0], *map(json.dumps, keys[1:])])
    return replace(comparison, field=path, value=resolve_name(comparison.value))


def _find_field(
    keys: Sequence[str], name: str, kind: Any, fields: Mapping[str, FilterField] | None
) -> FilterField | None:
    """The rules of a field; None where it is one of a resource of which everything can be asked."""
    if fields is None:
        if keys[0] not in kind.fields_by_name:
            known = ", ".join(sorted(kind.fields_by_name))
            raise invalid_argument("filter", f'Invalid filter: {kind.name} has no field "{name}"; it has {known}.')
        return None
    found = fields.get(name) or fields.get(keys[0])
    if found is None or (len(keys) > 1 and name not in fields and not found.is_map):
        raise invalid_argument(
            "filter", f'Invalid filter: a list of {kind.name} cannot be filtered by "{name}"; by {", ".join(fields)}.'
        )
    return found


def _check_value(comparison: Comparison, keys: Sequence[str], kind: Any) -> None:
    """A time or a state that a comparison names is one."""
    field = kind.fields_by_name.get(keys[0])
    if field is None or len(keys) > 1 or (comparison.operator == ":" and comparison.value == "*"):
        return
    if field.enum_type is not None and comparison.value not in field.enum_type.values_by_name:
        known = ", ".join(field.enum_type.values_by_name)
        raise invalid_argument("filter", f'Invalid filter: "{comparison.value}" is no {field.name}; {known} are.')
    if field.message_type is not None and field.message_type.full_name == TIME:
        if not RFC_3339.fullmatch(comparison.value):
            text = f'"{comparison.value}" is no time as RFC 3339 writes it: 2026-03-01T12:00:00Z.'
            raise invalid_argument("filter", f"Invalid filter: {text}")
        filters.parse_timestamp(comparison.value)


def _read_fields(resource: Any, names: Sequence[str]) -> dict[str, Any]:
    """Some fields of a resource as JSON, those without presence with their defaults."""
    part = type(resource)()
    for name in names:
        field = resource.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated or not field.has_presence:
            if field.message_type is None and not field.is_repeated:
                setattr(part, name, getattr(resource, name))
            else:
                getattr(part, name).MergeFrom(getattr(resource, name))
        elif resource.HasField(name):
            copy_field(resource, part, field)
    found: dict[str, Any] = as_dict(part, own_names=True, with_defaults=True)
    return found


def copy_field(source: Any, target: Any, field: Any) -> None:
    """Give a message another's value of a field that is set."""
    if field.message_type is not None and not field.is_repeated:
        getattr(target, field.name).CopyFrom(getattr(source, field.name))
    elif field.is_repeated:
        getattr(target, field.name).MergeFrom(getattr(source, field.name))
    else:
        setattr(target, field.name, getattr(source, field.name))


def _parse_orders(text: str, kind: Any, allowed: tuple[str, ...] | None) -> tuple[tuple[str, bool], ...]:
    """`display_name, create_time desc` as fields and whether they descend."""
    found = []
    for part in text.split(",") if text.strip() else ():
        words = part.split()
        if not words or len(words) > 2 or words[1:] not in ([], ["asc"], ["desc"]):
            raise invalid_argument("order_by", f'"{part.strip()}" is no order: FIELD or FIELD desc is expected.')
        path = ".".join(map(to_snake_case, filters.split_path(words[0])))
        known = tuple(kind.fields_by_name) if allowed is None else allowed
        if (path if allowed is not None else path.partition(".")[0]) not in known:
            text = f'A list of {kind.name} cannot be ordered by "{path}"; by {", ".join(known)}.'
            raise invalid_argument("order_by", text)
        found.append((path, words[1:] == ["desc"]))
    return tuple(found)


def _read_keys(resource: Any, paths: Sequence[str]) -> list[Any]:
    """What a resource is sorted by: values of one type each, in a form that JSON keeps."""
    names = list(dict.fromkeys(path.partition(".")[0] for path in paths))
    values = _read_fields(resource, names)
    keys: list[Any] = []
    for path in paths:
        value = filters.get_path(values, path)
        field = resource.DESCRIPTOR.fields_by_name.get(path)
        if value is None:
            keys.append([])
        elif field is not None and field.message_type is not None and field.message_type.full_name == TIME:
            moment = getattr(resource, path)
            keys.append([1, moment.seconds, moment.nanos])
        elif isinstance(value, int | float):
            keys.append([0, value])
        else:
            keys.append([2, str(value)])
    return keys


def encode_place(keys: Sequence[Any], number: int) -> str:
    """A page token of an ordered list: the place after which the next page begins."""
    return json.dumps([keys, number], separators=(",", ":")).encode().hex()


def decode_place(token: str, orders: int) -> tuple[list[Any], int] | None:
    """The place of a page token, None for the first page; INVALID_ARGUMENT where it is not one of such a list."""
    if not token:
        return None
    try:
        keys, number = json.loads(bytes.fromhex(token))
        if len(keys) == orders and all(isinstance(key, list) for key in keys):
            return keys, int(number)
    except (ValueError, TypeError, RecursionError) as error:
        raise invalid_argument("page_token", "The page token is invalid.") from error
    raise invalid_argument("page_token", "The page token is of a list in another order.")


def check_read_mask(request: Any) -> None:
    """The read mask of a list names fields of its resources."""
    if not _has_mask(request):
        return
    kind = _get_resource_type(request)
    for path in request.read_mask.paths:
        if path != "*" and not _has_path(kind, path.split(".")):
            raise invalid_argument("read_mask", f'{kind.name} has no field "{path}".')


def apply_read_mask(request: Any, response: Any) -> None:
    """Leave of the listed resources what the request's mask names; all of it where there is no mask."""
    if not _has_mask(request) or "*" in request.read_mask.paths:
        return
    kind = _get_resource_type(request)
    for field in response.DESCRIPTOR.fields:
        if field.message_type is kind:
            for resource in getattr(response, field.name):
                kept = type(resource)()
                for path in request.read_mask.paths:
                    _copy_path(resource, kept, path.split("."))
                resource.CopyFrom(kept)


def _has_mask(request: Any) -> bool:
    return "read_mask" in request.DESCRIPTOR.fields_by_name and request.HasField("read_mask")


def _has_path(kind: Any, keys: Sequence[str]) -> bool:
    if kind.full_name == STRUCT:
        return True
    field = kind.fields_by_name.get(keys[0])
    if field is None or len(keys) == 1:
        return field is not None
    if field.message_type is None or (field.is_repeated and not field.message_type.GetOptions().map_entry):
        return False
    return field.message_type.GetOptions().map_entry or _has_path(field.message_type, keys[1:])


def _copy_path(source: Any, target: Any, keys: Sequence[str]) -> None:
    """Copy what stands at a path from one message to another of its type."""
    if source.DESCRIPTOR.full_name == STRUCT:
        key = next((key for key in source.fields if to_snake_case(key) == to_snake_case(keys[0])), "")
        if key and len(keys) == 1:
            target.fields[key].CopyFrom(source.fields[key])
        elif key:
            _copy_path(source.fields[key].struct_value, target.fields[key].struct_value, keys[1:])
        return
    field = source.DESCRIPTOR.fields_by_name[keys[0]]
    if field.has_presence and not source.HasField(field.name):
        return
    if len(keys) == 1:
        target.ClearField(field.name)
        copy_field(source, target, field)
    elif field.is_repeated:  # a map, one entry of which is asked for
        entries, kept, key = getattr(source, field.name), getattr(target, field.name), ".".join(keys[1:])
        if key in entries and field.message_type.fields_by_name["value"].message_type is not None:
            kept[key].CopyFrom(entries[key])
        elif key in entries:
            kept[key] = entries[key]
    else:
        _copy_path(getattr(source, field.name), getattr(target, field.name), keys[1:])
