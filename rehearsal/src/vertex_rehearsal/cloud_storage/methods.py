"""The methods of the JSON API by the names in Google's reference, with the limits of their emulation."""

from collections.abc import Iterator
from dataclasses import dataclass

_ACL = "Kept and answered; keeps nobody out."
_FILES = "What jobs write below /gcs passes by holds, retention and soft delete."
_KEYS = "Customer-supplied keys are demanded, and content lies on disk as it is; keys of Cloud KMS are refused."
_BUCKET = (
    "Lifecycle rules, logging, websites, CORS, storage classes, Autoclass, locations, turbo replication and requester "
    "pays are checked, kept and answered, without effect. Soft delete is off unless it is set. A default key of Cloud "
    "KMS, hierarchical namespaces and IP filters that are enabled are refused."
)
_LIMITS = {
    "bucketAccessControls": _ACL, "defaultObjectAccessControls": _ACL, "objectAccessControls": _ACL,
    "buckets.insert": _BUCKET, "buckets.patch": _BUCKET, "buckets.update": _BUCKET,
    "buckets.setIamPolicy": "Roles are not looked up. Kept and answered, conditions too; keeps nobody out.",
    "buckets.testIamPermissions": "Whoever asks has them all.",
    "objects.compose": _KEYS, "objects.copy": _KEYS, "objects.insert": f"{_KEYS} {_FILES}",
    "objects.rewrite": f"Done in one call. {_KEYS}", "objects.delete": _FILES,
    "objects.get": "Signatures of signed addresses are not checked.",
    "objects.list": "There are no folders to include as prefixes.",
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
