"""Access to the emulator: its token, the token file, and URLs that contain the token."""

import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

TOKEN_FILE = "token"  # noqa: S105 - its name
"""The token file in the emulator's directory, readable only by its owner."""
KEY_PATH = "/-/key/"
KEYED = re.compile(rf"({KEY_PATH}([^/]*))(/.*)?")
LOOPBACK = re.compile(r"(localhost|[\w-]+\.localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


def build_keyed_address(address: str, token: str) -> str:
    """Return an address with the token in it, for clients that cannot be given credentials."""
    return f"{address}{KEY_PATH}{quote(token, safe='')}" if token else address


def split_key(path: str) -> tuple[str, str, str]:
    """Split a quoted path into the prefix with the token, the token, and the rest of the path."""
    match = KEYED.fullmatch(path)
    return (match[1], unquote(match[2]), match[3] or "/") if match else ("", "", path)


def tokens_equal(given: str, token: str) -> bool:
    """Compare a token in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def has_token(authorization: str, token: str) -> bool:
    """Whether an Authorization header contains the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and tokens_equal(given.strip(), token)


def is_own_origin(origin: str, host: str) -> bool:
    """Whether an Origin header is the address that the request was sent to."""
    return origin in (f"http://{host}", f"https://{host}")


def keep_token(directory: Path) -> str:
    """Return the token, from the environment, an earlier start or newly generated, and store it."""
    path = directory / TOKEN_FILE
    kept = _read_private(path)
    token = os.environ.get("VERTEX_REHEARSAL_TOKEN") or kept or secrets.token_urlsafe(24)
    if token != kept:
        write_private(path, token)
    return token


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def _read_private(path: Path) -> str:
    """Return the content of a file that only the current user can read and write; "" for any other file."""
    with suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid == os.geteuid() and not about.st_mode & 0o077:
                return file.read().strip()
    return ""
