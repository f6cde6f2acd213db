"""Detached ed25519 signatures of bundles: made with a private key, verified offline with public ones."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tagline.errors import BundleError, PlaceError, SpecError, first_line
from tagline.prediction.bundle import MANIFEST, SIGNATURE, Bundle
from tagline.storage import addresses, atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

K = TypeVar("K")
PASSWORD = "TAGLINE_KEY_PASSWORD"  # noqa: S105 - the name of the variable
NEW_KEY = "openssl genpkey -algorithm ed25519 -out KEY"
PUBLIC_PART = "openssl pkey -in KEY -pubout -out PUBKEY"
SIGNATURE_BYTES = 64


def sign(bundle: str | Path, *, key: str | Path) -> str:
    """Sign a bundle with an ed25519 private key (PEM or OpenSSH); return the path or address of the signature.

    The signature is of the manifest's bytes; the manifest holds the SHA-256 of every other file that is read.
    """
    private = _load_private_key(Path(key))
    manifests: list[bytes] = []
    Bundle.load(bundle, check=lambda _, manifest: manifests.append(manifest))  # a damaged bundle is not signed
    signature = private.sign(manifests[0])
    target = f"{str(bundle).rstrip('/')}/{SIGNATURE}"
    if addresses.is_remote(bundle):
        addresses.write_bytes(signature, target)
    else:
        with atomic.open_for_writing(Path(target), is_private=False) as file:
            file.write(signature)
    return target


def verify(bundle: str | Path, *, key: str | Path | Sequence[str | Path]) -> Bundle:
    """Return the bundle if one of these ed25519 public keys (PEM or OpenSSH) has signed it, else raise an error."""
    paths = [key] if isinstance(key, str | Path) else list(key)
    keys = [_load_public_key(Path(path)) for path in paths]
    if not keys:
        raise SpecError("there is no key to verify with", hint="name a public key")
    return Bundle.load(bundle, check=lambda directory, manifest: _check_signature(directory, manifest, keys))


def _check_signature(directory: Path, manifest: bytes, keys: "Sequence[Ed25519PublicKey]") -> None:
    """Raise BundleError if none of these keys has signed the manifest."""
    from cryptography.exceptions import InvalidSignature

    path = directory / SIGNATURE
    try:
        if path.is_symlink():
            raise BundleError(f"{path} is a link", hint="put the signature itself there")
        signature = path.read_bytes() if path.stat().st_size == SIGNATURE_BYTES else b""
    except FileNotFoundError as error:
        hint = f"whoever made it signs it with: tagline sign {directory} --key KEY"
        raise BundleError(f"{directory} is not signed: it has no {SIGNATURE}", hint=hint) from error
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    for key in keys:
        try:
            key.verify(signature, manifest)
        except InvalidSignature:
            continue
        return
    hint = "the bundle was changed after it was signed, or signed with another key: do not use it before you know why"
    raise BundleError(f"{directory}: the signature is not that of {MANIFEST} by this key", hint=hint)


def _load_private_key(path: Path) -> "Ed25519PrivateKey":
    from_pem, from_ssh = _import_loaders("load_pem_private_key", "load_ssh_private_key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    content = _read_key(path)
    if b"PUBLIC KEY" in content or content.startswith(b"ssh-"):
        raise SpecError(f"{path} is a public key", hint="name the private one: with the public one, others verify")
    password = os.environ.get(PASSWORD, "").encode() or None
    load = from_ssh if b"OPENSSH" in content else from_pem
    key = _parse_key(path, lambda: load(content, password=password))
    if not isinstance(key, Ed25519PrivateKey):
        raise _make_key_type_error(path)
    return key


def _load_public_key(path: Path) -> "Ed25519PublicKey":
    from_pem, from_ssh = _import_loaders("load_pem_public_key", "load_ssh_public_key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    content = _read_key(path)
    if b"PRIVATE KEY" in content:
        raise SpecError(
            f"{path} is a private key", hint=f"keep it to yourself, and name its public part: {PUBLIC_PART}"
        )
    load = from_ssh if content.startswith(b"ssh-") else from_pem
    key = _parse_key(path, lambda: load(content))
    if not isinstance(key, Ed25519PublicKey):
        raise _make_key_type_error(path)
    return key


def _import_loaders(*names: str) -> list[Callable[..., object]]:
    """Return key loaders of the package cryptography, which is not part of the base install."""
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        problem = "signatures need the package cryptography, which is not installed"
        raise PlaceError(problem, hint='pip install "tagline[sign]"') from error
    return [getattr(serialization, name) for name in names]


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes().strip() + b"\n"
    except FileNotFoundError as error:
        raise SpecError(f"there is no key {path}", hint=f"make one with: {NEW_KEY}; {PUBLIC_PART}") from error
    except OSError as error:
        raise SpecError(f"cannot read the key {path}: {error.strerror}") from error


def _parse_key(path: Path, load: Callable[[], K]) -> K:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load()
    except TypeError as error:  # a password is missing, or given for a key without one
        hint = f"the variable {PASSWORD} holds the password of a key that has one"
        raise SpecError(f"cannot read the key {path}: {first_line(error)}", hint=hint) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        hint = f"keys are PEM or OpenSSH files, made with: {NEW_KEY}; {PUBLIC_PART}"
        raise SpecError(f"cannot read the key {path}: {first_line(error)}", hint=hint) from error


def _make_key_type_error(path: Path) -> SpecError:
    return SpecError(f"{path} is not an ed25519 key", hint=f"make one with: {NEW_KEY}; {PUBLIC_PART}")
