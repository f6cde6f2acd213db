"""Access control lists of buckets and objects: validated, stored and returned, but not enforced."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vertex_rehearsal.cloud_storage import errors, policies
from vertex_rehearsal.cloud_storage.bucket_settings import DEFAULT_ACL
from vertex_rehearsal.cloud_storage.json_values import require_choice
from vertex_rehearsal.cloud_storage.object_settings import ACL
from vertex_rehearsal.cloud_storage.records import BucketRecord, get_project_number

ACCOUNT = "{number}-compute@developer.gserviceaccount.com"
"""The only caller that is known, by the number of the bucket's project: callers are not told apart."""
BUCKET_ROLES = ("OWNER", "WRITER", "READER")
OBJECT_ROLES = ("OWNER", "READER")

Entry = dict[str, str]

_OWNERS, _EDITORS, _VIEWERS = (f"project-{team}-{{number}}" for team in ("owners", "editors", "viewers"))
_PRIVATE = ((_OWNERS, "OWNER"), (_EDITORS, "OWNER"), (_VIEWERS, "READER"))
_SELF = (f"user-{ACCOUNT}", "OWNER")
_BUCKET_LISTS = {
    "authenticatedRead": ((_OWNERS, "OWNER"), ("allAuthenticatedUsers", "READER")),
    "private": ((_OWNERS, "OWNER"),),
    "projectPrivate": _PRIVATE,
    "publicRead": ((_OWNERS, "OWNER"), ("allUsers", "READER")),
    "publicReadWrite": ((_OWNERS, "OWNER"), ("allUsers", "WRITER")),
}
_OBJECT_LISTS = {
    "authenticatedRead": (_SELF, ("allAuthenticatedUsers", "READER")),
    "bucketOwnerFullControl": (_SELF, (_OWNERS, "OWNER")),
    "bucketOwnerRead": (_SELF, (_OWNERS, "READER")),
    "private": (_SELF,),
    "projectPrivate": (*_PRIVATE, _SELF),
    "publicRead": (_SELF, ("allUsers", "READER")),
}
_ENTITY = re.compile(
    r"allUsers|allAuthenticatedUsers|(?:user|group)-[^\s@]+(?:@[^\s@]+)?|domain-[^\s@]+\.[^\s@]+"
    r"|project-(?:owners|editors|viewers)-\S+"
)


def expand_bucket_acl(predefined: str, project: str, *, location: str = "predefinedAcl") -> list[Entry]:
    """Return the entries of a bucket's predefined list."""
    return _expand(predefined, _BUCKET_LISTS, project, location)


def expand_object_acl(predefined: str, project: str, *, location: str = "predefinedAcl") -> list[Entry]:
    """Return the entries of an object's predefined list."""
    return _expand(predefined, _OBJECT_LISTS, project, location)


def expand_default_acl(predefined: str, project: str, *, location: str = "predefinedDefaultObjectAcl") -> list[Entry]:
    """Return the entries of a predefined list for a bucket's new objects."""
    entries = _expand(predefined, _OBJECT_LISTS, project, location)
    return [
        entry for entry in entries if entry["entity"] != get_account(project)
    ]  # the owner is added when an object is created


def get_bucket_acl(bucket_record: BucketRecord) -> list[Entry]:
    """Return the entries of a bucket."""
    return bucket_record.settings.get(ACL) or _expand("projectPrivate", _BUCKET_LISTS, bucket_record.project)


def get_default_acl(bucket_record: BucketRecord) -> list[Entry]:
    """Return a bucket's entries for new objects, without that of an object's owner."""
    entries = bucket_record.settings.get(DEFAULT_ACL)
    return expand_default_acl("projectPrivate", bucket_record.project) if entries is None else entries


def get_object_acl(bucket_record: BucketRecord, settings: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of an object."""
    return settings.get(ACL) or _expand("projectPrivate", _OBJECT_LISTS, bucket_record.project)


def get_account(project: str) -> str:
    """Return the caller as an entity."""
    return f"user-{ACCOUNT.format(number=get_project_number(project))}"


def complete_acl(bucket_record: BucketRecord, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a new object's settings with its bucket's default entries added."""
    if ACL in settings or DEFAULT_ACL not in bucket_record.settings:
        return settings
    return settings | {ACL: [*get_default_acl(bucket_record), _make_entry(get_account(bucket_record.project), "OWNER")]}


def parse_entries(value: Any, roles: Sequence[str]) -> list[Entry]:
    """Return the validated entries of a resource."""
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise errors.invalid_request("Invalid value for 'acl': a list of entries is wanted.", location="acl")
    return [parse_entry(entry, roles) for entry in value]


def parse_entry(resource: Mapping[str, Any], roles: Sequence[str]) -> Entry:
    """Return an entry reduced to its validated entity and role."""
    entity = resource.get("entity")
    if not isinstance(entity, str) or not _ENTITY.fullmatch(entity):
        raise errors.invalid_request(f"Invalid value for 'entity': '{entity}'.", location="entity")
    return _make_entry(entity, require_choice("role", resource.get("role"), tuple(roles)))


def put_entry(entries: Sequence[Entry], entry: Entry) -> list[Entry]:
    """Return the entries with one added, or replaced if its entity has one."""
    return [*(each for each in entries if each["entity"] != entry["entity"]), entry]


def get_entry(entries: Sequence[Entry], entity: str) -> Entry:
    """Return the entry of an entity; 404 if there is none."""
    for entry in entries:
        if entry["entity"] == entity:
            return entry
    raise errors.StorageError(404, "notFound", f"The specified ACL entity does not exist: {entity}")


def check_in_use(bucket_record: BucketRecord) -> None:
    """Refuse access control lists in a bucket with uniform bucket-level access."""
    if bucket_record.has_uniform_access:
        message = "Cannot use ACL API when uniform bucket-level access is enabled."
        raise errors.invalid_request(message, location="iamConfiguration.uniformBucketLevelAccess")


def check_public(bucket_record: BucketRecord, entries: Sequence[Entry]) -> list[Entry]:
    """Return entries that may be set; refuse public ones where public access prevention is enforced."""
    check_in_use(bucket_record)
    if bucket_record.prevents_public_access and any(entry["entity"] in policies.PUBLIC for entry in entries):
        raise errors.StorageError(412, "conditionNotMet", policies.PUBLIC_ACCESS_PREVENTED)
    return list(entries)


def build_entry(entry: Entry, *, kind: str, path: str, base: str, owned: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry as a resource; `path` is that of its list, `owned` names bucket, object and generation."""
    entity = entry["entity"]
    etag = base64.b64encode(f"{path}/{entity}/{entry['role']}".encode()[-24:]).decode()
    extra: dict[str, Any] = {}
    if entity.startswith(("user-", "group-")) and "@" in entity:
        extra["email"] = entity.partition("-")[2]
    elif entity.startswith("domain-"):
        extra["domain"] = entity.removeprefix("domain-")
    elif entity.startswith("project-"):
        _, team, number = entity.split("-", 2)
        extra["projectTeam"] = {"projectNumber": number, "team": team}
    resource = {"kind": f"storage#{kind}", **entry, **extra, **owned, "etag": etag}
    if kind == "bucketAccessControl" or "object" in owned:
        resource |= {"id": "/".join([*owned.values(), entity]), "selfLink": f"{base}/storage/v1/{path}/{entity}"}
    return resource


def _expand(
    predefined: str, known: Mapping[str, Sequence[tuple[str, str]]], project: str, location: str = ""
) -> list[Entry]:
    require_choice(location, predefined, tuple(known))
    number = get_project_number(project)
    return [_make_entry(entity.format(number=number), role) for entity, role in known[predefined]]


def _make_entry(entity: str, role: str) -> Entry:
    return {"entity": entity, "role": role}
