"""Access control lists of buckets and objects: checked, kept and answered. They keep nobody out: all may do all."""

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
"""Whoever asks, by the number of the bucket's project: nobody is told apart here."""
BUCKET_ROLES = ("OWNER", "WRITER", "READER")
OBJECT_ROLES = ("OWNER", "READER")

Entry = dict[str, str]

_OWNERS, _EDITORS, _VIEWERS = (f"project-{team}-{{number}}" for team in ("owners", "editors", "viewers"))
_PRIVATE = ((_OWNERS, "OWNER"), (_EDITORS, "OWNER"), (_VIEWERS, "READER"))
_SELF = (f"user-{ACCOUNT}", "OWNER")
_OF_BUCKETS = {
    "authenticatedRead": ((_OWNERS, "OWNER"), ("allAuthenticatedUsers", "READER")),
    "private": ((_OWNERS, "OWNER"),),
    "projectPrivate": _PRIVATE,
    "publicRead": ((_OWNERS, "OWNER"), ("allUsers", "READER")),
    "publicReadWrite": ((_OWNERS, "OWNER"), ("allUsers", "WRITER")),
}
_OF_OBJECTS = {
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
    """The entries that a predefined list of a bucket stands for."""
    return _expand(predefined, _OF_BUCKETS, project, location)


def expand_object_acl(predefined: str, project: str, *, location: str = "predefinedAcl") -> list[Entry]:
    """The entries that a predefined list of an object stands for."""
    return _expand(predefined, _OF_OBJECTS, project, location)


def expand_default_acl(predefined: str, project: str, *, location: str = "predefinedDefaultObjectAcl") -> list[Entry]:
    """The entries that a predefined list of a bucket's new objects stands for."""
    entries = _expand(predefined, _OF_OBJECTS, project, location)
    return [
        entry for entry in entries if entry["entity"] != get_account(project)
    ]  # who makes an object is added to it then


def get_bucket_acl(holder: BucketRecord) -> list[Entry]:
    """Who has which role in a bucket."""
    return holder.settings.get(ACL) or _expand("projectPrivate", _OF_BUCKETS, holder.project)


def get_default_acl(holder: BucketRecord) -> list[Entry]:
    """Who has which role in new objects of a bucket, beside the one who makes them."""
    found = holder.settings.get(DEFAULT_ACL)
    return expand_default_acl("projectPrivate", holder.project) if found is None else found


def get_object_acl(holder: BucketRecord, settings: Mapping[str, Any]) -> list[Entry]:
    """Who has which role in an object."""
    return settings.get(ACL) or _expand("projectPrivate", _OF_OBJECTS, holder.project)


def get_account(project: str) -> str:
    """Whoever asks, as an entity."""
    return f"user-{ACCOUNT.format(number=get_project_number(project))}"


def complete_acl(holder: BucketRecord, settings: dict[str, Any]) -> dict[str, Any]:
    """A new object's settings, with the entries that its bucket has for new objects."""
    if ACL in settings or DEFAULT_ACL not in holder.settings:
        return settings
    return settings | {ACL: [*get_default_acl(holder), _make_entry(get_account(holder.project), "OWNER")]}


def parse_entries(given: Any, roles: Sequence[str]) -> list[Entry]:
    """The entries that a resource brings."""
    if not isinstance(given, list) or not all(isinstance(entry, Mapping) for entry in given):
        raise errors.invalid_request("Invalid value for 'acl': a list of entries is wanted.", location="acl")
    return [parse_entry(entry, roles) for entry in given]


def parse_entry(given: Mapping[str, Any], roles: Sequence[str]) -> Entry:
    """One entry, with nothing but its entity and its role."""
    entity = given.get("entity")
    if not isinstance(entity, str) or not _ENTITY.fullmatch(entity):
        raise errors.invalid_request(f"Invalid value for 'entity': '{entity}'.", location="entity")
    return _make_entry(entity, require_choice("role", given.get("role"), tuple(roles)))


def put_entry(entries: Sequence[Entry], entry: Entry) -> list[Entry]:
    """The entries with another one, in place of an earlier one of its entity."""
    return [*(each for each in entries if each["entity"] != entry["entity"]), entry]


def get_entry(entries: Sequence[Entry], entity: str) -> Entry:
    """The entry of an entity."""
    for entry in entries:
        if entry["entity"] == entity:
            return entry
    raise errors.StorageError(404, "notFound", f"The specified ACL entity does not exist: {entity}")


def check_in_use(holder: BucketRecord) -> None:
    """Refuse access control lists where the whole bucket has the same."""
    if holder.has_uniform_access:
        message = "Cannot use ACL API when uniform bucket-level access is enabled."
        raise errors.invalid_request(message, location="iamConfiguration.uniformBucketLevelAccess")


def check_public(holder: BucketRecord, entries: Sequence[Entry]) -> list[Entry]:
    """Entries that may be set; refuses to make public what the bucket keeps from it."""
    check_in_use(holder)
    if holder.prevents_public_access and any(entry["entity"] in policies.PUBLIC for entry in entries):
        raise errors.StorageError(412, "conditionNotMet", policies.PUBLIC_ACCESS_PREVENTED)
    return list(entries)


def build_entry(entry: Entry, *, kind: str, path: str, base: str, owned: Mapping[str, str]) -> dict[str, Any]:
    """An entry as a resource; `path` is that of its list, `owned` names bucket, object and generation."""
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
