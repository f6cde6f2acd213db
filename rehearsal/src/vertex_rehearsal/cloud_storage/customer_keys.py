"""Customer-supplied encryption keys: an object is readable only with the key that it was written with."""

import base64
import binascii
import hashlib
from collections.abc import Mapping

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.object_settings import ENCRYPTION
from vertex_rehearsal.cloud_storage.records import ObjectRecord

ALGORITHM = "AES256"
PREFIX, SOURCE_PREFIX = "x-goog-encryption-", "x-goog-copy-source-encryption-"


def read_customer_key(headers: Mapping[str, str], prefix: str = PREFIX) -> str:
    """Return the SHA-256 of the key in a request's headers; "" without a key."""
    if f"{prefix}kms-key-name" in headers:
        raise errors.unsupported_feature(f"{prefix}kms-key-name")
    algorithm, key, digest = (headers.get(prefix + part, "") for part in ("algorithm", "key", "key-sha256"))
    if not (algorithm or key or digest):
        return ""
    if algorithm != ALGORITHM:
        raise _key_error("customerEncryptionAlgorithmIsInvalid", "Unsupported encryption algorithm; it must be AES256.")
    try:
        raw = base64.b64decode(key, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != 32:
        raise _key_error("customerEncryptionKeyFormatIsInvalid", "The encryption key must be 32 bytes in base64.")
    if digest != base64.b64encode(hashlib.sha256(raw).digest()).decode():
        message = "The SHA-256 of the encryption key does not match the key."
        raise _key_error("customerEncryptionKeySha256IsInvalid", message)
    return digest


def build_encryption(digest: str) -> dict[str, dict[str, str]]:
    """Return the encryption setting of an object written with a key; empty without one."""
    return {ENCRYPTION: {"encryptionAlgorithm": ALGORITHM, "keySha256": digest}} if digest else {}


def check_customer_key(record: ObjectRecord, digest: str) -> None:
    """Refuse access to an object's content without its key or with another."""
    required = (record.settings.get(ENCRYPTION) or {}).get("keySha256", "")
    if required == digest:
        return
    if not digest:
        message = "The target object is encrypted by a customer-supplied encryption key."
        raise _key_error("resourceIsEncryptedWithCustomerEncryptionKey", message)
    if not required:
        message = "The target object is not encrypted by a customer-supplied encryption key."
        raise _key_error("resourceNotEncryptedWithCustomerEncryptionKey", message)
    message = "The provided encryption key is incorrect."
    raise _key_error("customerEncryptionKeyIsIncorrect", message)


def _key_error(reason: str, message: str) -> errors.StorageError:
    return errors.StorageError(400, reason, message, code=reason[0].upper() + reason[1:])
