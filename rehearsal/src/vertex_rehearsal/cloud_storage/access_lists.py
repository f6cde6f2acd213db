"""The JSON API's methods for access control lists: of buckets, of their new objects, and of objects."""

from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import access_controls, errors, resources
from vertex_rehearsal.cloud_storage.access_controls import Entry
from vertex_rehearsal.cloud_storage.bucket_settings import DEFAULT_ACL
from vertex_rehearsal.cloud_storage.field_masks import select_fields
from vertex_rehearsal.cloud_storage.json_values import parse_body
from vertex_rehearsal.cloud_storage.messages import StorageRequest, StorageResponse, build_json_response
from vertex_rehearsal.cloud_storage.object_settings import ACL
from vertex_rehearsal.cloud_storage.preconditions import Preconditions
from vertex_rehearsal.cloud_storage.store import Store

Edit = Callable[[list[Entry]], list[Entry]]
Render = Callable[[list[Entry]], list[dict[str, Any]]]


class AccessLists:
    """Handles requests for access control lists; each kind of list is read and changed entry by entry."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def handle_bucket(self, request: StorageRequest, bucket: str, which: str, entity: str = "") -> StorageResponse:
        """Handle `b/BUCKET/acl` and `b/BUCKET/defaultObjectAcl`, or one entry of it."""
        bucket_record = self._store.bucket(bucket)
        access_controls.check_in_use(bucket_record)
        is_default = which == DEFAULT_ACL
        read = access_controls.get_default_acl if is_default else access_controls.get_bucket_acl
        build = resources.build_default_acl if is_default else resources.build_bucket_acl
        roles = access_controls.OBJECT_ROLES if is_default else access_controls.BUCKET_ROLES
        kind = "objectAccessControls" if is_default else "bucketAccessControls"
        if edit := _read_edit(request, entity, roles):

            def change(settings: dict[str, Any]) -> dict[str, Any]:
                entries = edit(read(bucket_record))
                return settings | {which: access_controls.check_public(bucket_record, entries)}

            bucket_record = self._store.change_bucket(bucket, change, Preconditions.of(request.query))
        return _build_response(
            request, read(bucket_record), entity, kind, lambda entries: build(bucket_record, entries, request.base)
        )

    def handle_object(self, request: StorageRequest, bucket: str, name: str, entity: str = "") -> StorageResponse:
        """Handle `b/BUCKET/o/OBJECT/acl`, or one entry of it."""
        bucket_record = self._store.bucket(bucket)
        access_controls.check_in_use(bucket_record)
        generation = request.read_number("generation")
        if edit := _read_edit(request, entity, access_controls.OBJECT_ROLES):

            def change(settings: dict[str, Any]) -> dict[str, Any]:
                entries = edit(access_controls.get_object_acl(bucket_record, settings))
                return settings | {ACL: access_controls.check_public(bucket_record, entries)}

            record = self._store.change(
                bucket, name, change, generation=generation, preconditions=Preconditions.of(request.query)
            )
        else:
            record = self._store.get(bucket, name, generation=generation)
        entries = access_controls.get_object_acl(bucket_record, record.settings)
        return _build_response(
            request,
            entries,
            entity,
            "objectAccessControls",
            lambda chosen: resources.build_object_acl(record, chosen, request.base),
        )


def is_full(request: StorageRequest) -> bool:
    """Return whether the request asks for resources with their access control lists (`projection=full`)."""
    projection = request.query.get("projection", "noAcl")
    if projection not in ("full", "noAcl"):
        message = f"Invalid value for 'projection': '{projection}'; it is full or noAcl."
        raise errors.invalid_request(message, location="projection")
    return projection == "full"


def read_bucket_acls(request: StorageRequest, resource: Mapping[str, Any], project: str) -> dict[str, list[Entry]]:
    """Return the access control lists that a request sets on a bucket."""
    lists: dict[str, list[Entry]] = {}
    if resource.get(ACL) is not None:
        lists[ACL] = access_controls.parse_entries(resource[ACL], access_controls.BUCKET_ROLES)
    if resource.get(DEFAULT_ACL) is not None:
        lists[DEFAULT_ACL] = access_controls.parse_entries(resource[DEFAULT_ACL], access_controls.OBJECT_ROLES)
    if request.query.get("predefinedAcl"):
        lists[ACL] = access_controls.expand_bucket_acl(request.query["predefinedAcl"], project)
    if request.query.get("predefinedDefaultObjectAcl"):
        predefined = request.query["predefinedDefaultObjectAcl"]
        lists[DEFAULT_ACL] = access_controls.expand_default_acl(predefined, project)
    return lists


def _read_edit(request: StorageRequest, entity: str, roles: tuple[str, ...]) -> Edit | None:
    """Return the change that a request makes to a list; None for one that reads it."""
    match request.method:
        case "GET" | "HEAD":
            return None
        case "DELETE" if entity:

            def remove(entries: list[Entry]) -> list[Entry]:
                removed = access_controls.get_entry(entries, entity)
                return [entry for entry in entries if entry is not removed]

            return remove
        case "POST" if not entity:
            resource = parse_body(request.document())
        case "PUT" | "PATCH" if entity:
            resource = {**parse_body(request.document()), "entity": entity}
        case _:
            raise errors.StorageError(405, "methodNotAllowed", f"{request.method} is not allowed here.")
    entry = access_controls.parse_entry(resource, roles)

    def put(entries: list[Entry]) -> list[Entry]:
        if entity and request.method == "PATCH":
            access_controls.get_entry(entries, entity)
        return access_controls.put_entry(entries, entry)

    return put


def _build_response(
    request: StorageRequest, entries: list[Entry], entity: str, kind: str, build: Render
) -> StorageResponse:
    fields = request.query.get("fields", "")
    match request.method:
        case "DELETE":
            return StorageResponse(204)
        case "GET" | "HEAD" if not entity:
            document: Any = {"kind": f"storage#{kind}", "items": build(entries)}
            return build_json_response(select_fields(document, fields, "acls"))
        case "POST":
            (rendered,) = build(entries[-1:])
        case _:
            (rendered,) = build([access_controls.get_entry(entries, entity)])
    return build_json_response(select_fields(rendered, fields, "acl"))
