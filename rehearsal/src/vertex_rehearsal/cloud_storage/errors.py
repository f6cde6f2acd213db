"""Why a request is refused: the status, Google's reason in the JSON API, Google's code in the XML API, one message."""

from typing import Any

CODES = {
    "notFound": "NoSuchKey",
    "invalid": "InvalidArgument",
    "required": "InvalidArgument",
    "parseError": "MalformedXML",
    "conflict": "BucketAlreadyOwnedByYou",
    "conditionNotMet": "PreconditionFailed",
    "requestedRangeNotSatisfiable": "InvalidRange",
    "notImplemented": "NotImplemented",
    "objectUnderActiveHold": "ObjectUnderActiveHold",
    "backendError": "InternalError",
    "uploadTooLarge": "EntityTooLarge",
    "methodNotAllowed": "MethodNotAllowed",
}
"""The XML API's code where a refusal does not bring its own."""


class StorageError(Exception):
    """A request that is not fulfilled, and what Google would say to it."""

    def __init__(self, status: int, reason: str, message: str, *, code: str = "", location: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.code = code or CODES.get(reason, "InvalidRequest")
        self.location = location
        """The parameter at fault, where there is one."""

    def document(self) -> dict[str, Any]:
        """The body of the JSON API's answer."""
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        if self.location:
            kind = "header" if self.location.startswith("If-") else "parameter"
            detail |= {"locationType": kind, "location": self.location}
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}


def invalid_request(message: str, *, location: str = "", code: str = "") -> StorageError:
    """The request says something that cannot be."""
    return StorageError(400, "invalid", message, location=location, code=code)


def missing_parameter(parameter: str) -> StorageError:
    """The request lacks a parameter."""
    return StorageError(400, "required", f"Required parameter: {parameter}", location=parameter)


def no_bucket() -> StorageError:
    """There is no bucket of this name."""
    return StorageError(404, "notFound", "The specified bucket does not exist.", code="NoSuchBucket")


def no_object(bucket: str, name: str) -> StorageError:
    """There is no such object, or not in this generation."""
    return StorageError(404, "notFound", f"No such object: {bucket}/{name}")


def unmet_precondition(condition: str) -> StorageError:
    """A precondition that does not hold."""
    message = "At least one of the pre-conditions you specified did not hold."
    return StorageError(412, "conditionNotMet", message, location=condition)


def not_modified(condition: str) -> StorageError:
    """A reader already has what is there."""
    return StorageError(304, "notModified", "Not Modified", location=condition)


def unsupported_feature(what: str) -> StorageError:
    """Cloud Storage can do this, the rehearsal cannot."""
    return StorageError(501, "notImplemented", f"{what}: the rehearsal does not play this part of Cloud Storage")
