"""Errors of Cloud Storage: status, message, the JSON API's reason and the XML API's code."""

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
"""The XML API's default code for each reason of the JSON API."""


class StorageError(Exception):
    """A failed request, with the error that Google's API would return."""

    def __init__(self, status: int, reason: str, message: str, *, code: str = "", location: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.code = code or CODES.get(reason, "InvalidRequest")
        self.location = location
        """The parameter or header at fault, if any."""

    def document(self) -> dict[str, Any]:
        """Return the body of the JSON API's error response."""
        detail = {"message": self.message, "domain": "global", "reason": self.reason}
        if self.location:
            kind = "header" if self.location.startswith("If-") else "parameter"
            detail |= {"locationType": kind, "location": self.location}
        return {"error": {"code": self.status, "message": self.message, "errors": [detail]}}


def invalid_request(message: str, *, location: str = "", code: str = "") -> StorageError:
    """Return the error of an invalid value or body."""
    return StorageError(400, "invalid", message, location=location, code=code)


def missing_parameter(parameter: str) -> StorageError:
    """Return the error of a missing parameter."""
    return StorageError(400, "required", f"Required parameter: {parameter}", location=parameter)


def no_bucket() -> StorageError:
    """Return the error of a bucket that does not exist."""
    return StorageError(404, "notFound", "The specified bucket does not exist.", code="NoSuchBucket")


def no_object(bucket: str, name: str) -> StorageError:
    """Return the error of an object or a generation that does not exist."""
    return StorageError(404, "notFound", f"No such object: {bucket}/{name}")


def unmet_precondition(condition: str) -> StorageError:
    """Return the error of a precondition that does not hold."""
    message = "At least one of the pre-conditions you specified did not hold."
    return StorageError(412, "conditionNotMet", message, location=condition)


def not_modified(condition: str) -> StorageError:
    """Return the error for a reader whose copy is current."""
    return StorageError(304, "notModified", "Not Modified", location=condition)


def unsupported_feature(feature: str) -> StorageError:
    """Return the error of a feature of Cloud Storage that the emulator does not support."""
    return StorageError(501, "notImplemented", f"{feature}: the rehearsal does not play this part of Cloud Storage")
