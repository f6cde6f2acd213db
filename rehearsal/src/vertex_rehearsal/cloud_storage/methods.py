"""The methods of the JSON API by the names in Google's reference, with the limits of their emulation."""

from collections.abc import Iterator
from dataclasses import dataclass

_ACL = "Stored and returned; not enforced."
_FILES = "Writes of jobs below /gcs bypass holds, retention and soft delete."
_KEYS = "Customer-supplied keys are required, but content is stored unencrypted; keys of Cloud KMS are refused."
_BUCKET = (
    "Lifecycle rules, logging, websites, CORS, storage classes, Autoclass, locations, turbo replication and requester "
    "pays are validated, stored and returned, without effect. Soft delete is off by default. A default key of Cloud "
    "KMS, hierarchical namespaces and enabled IP filters are refused."
)
_LIMITS = {
    "bucketAccessControls": _ACL, "defaultObjectAccessControls": _ACL, "objectAccessControls": _ACL,
    "buckets.insert": _BUCKET, "buckets.patch": _BUCKET, "buckets.update": _BUCKET,
    "buckets.setIamPolicy": "Stored and returned with conditions; roles are not resolved, and nothing is enforced.",
    "buckets.testIamPermissions": "The caller has all permissions.",
    "objects.compose": _KEYS, "objects.copy": _KEYS, "objects.insert": f"{_KEYS} {_FILES}",
    "objects.rewrite": f"Done in one call. {_KEYS}", "objects.delete": _FILES,
    "objects.get": "Signatures of signed URLs are not verified.",
    "objects.list": "Without folders as prefixes (`includeFoldersAsPrefixes`).",
}  # fmt: skip
_LISTS = "delete get insert list patch update"
_PLAYED = {
    "bucketAccessControls": _LISTS,
    "buckets": (
        "delete get getIamPolicy getStorageLayout insert list lockRetentionPolicy patch restore setIamPolicy "
        "testIamPermissions update"
    ),
    "defaultObjectAccessControls": _LISTS,
    "objectAccessControls": _LISTS,
    "objects": "compose copy delete get insert list move patch restore rewrite update",
    "projects.serviceAccount": "get",
}
_NOT_PLAYED = {
    "anywhereCaches": "disable get insert list pause resume update",
    "buckets": "relocate",
    "channels": "stop",
    "folders": "delete deleteRecursive get insert list rename",
    "managedFolders": "delete get getIamPolicy insert list setIamPolicy testIamPermissions",
    "notifications": "delete get insert list",
    "objects": "bulkRestore getIamPolicy setIamPolicy testIamPermissions watchAll",
    "operations": "advanceRelocateBucket cancel get list",
    "projects.hmacKeys": "create delete get list update",
}


@dataclass(frozen=True)
class StorageMethod:
    """A method of Cloud Storage's JSON API."""

    id: str
    """Its name, as `storage.objects.insert`."""
    is_played: bool
    limit: str = ""

    @property
    def extent(self) -> str:
        """How far it is emulated: `played`, `partly` or `not`."""
        return "not" if not self.is_played else "partly" if self.limit else "played"


def list_storage_methods() -> Iterator[StorageMethod]:
    """Iterate over all methods, unsupported ones last."""
    for resource, verbs in _PLAYED.items():
        for verb in verbs.split():
            limit = _LIMITS.get(f"{resource}.{verb}", _LIMITS.get(resource, ""))
            yield StorageMethod(f"storage.{resource}.{verb}", is_played=True, limit=limit)
    for resource, verbs in _NOT_PLAYED.items():
        for verb in verbs.split():
            yield StorageMethod(f"storage.{resource}.{verb}", is_played=False)
