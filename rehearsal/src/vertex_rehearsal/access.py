"""Who may ask a rehearsal: its token, the file that holds it, and addresses that carry it."""

import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

TOKEN_FILE = "token"  # noqa: S105 - its name
"""In a rehearsal's directory; only its owner reads it."""
KEY_PATH = "/-/key/"
KEYED = re.compile(rf"({KEY_PATH}([^/]*))(/.*)?")
LOOPBACK = re.compile(r"(localhost|[\w-]+\.localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


def build_keyed_address(address: str, token: str) -> str:
    """An address that carries the token, for clients that can be given an address and no credentials."""
    return f"{address}{KEY_PATH}{quote(token, safe='')}" if token else address


def split_key(path: str) -> tuple[str, str, str]:
    """The prefix of a quoted path that carries a token, that token, and the path without it."""
    found = KEYED.fullmatch(path)
    return (found[1], unquote(found[2]), found[3] or "/") if found else ("", "", path)


def tokens_equal(given: str, token: str) -> bool:
    """Whether this is the token, in a time that tells nothing about it."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def has_token(authorization: str, token: str) -> bool:
    """Whether an Authorization header holds the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and tokens_equal(given.strip(), token)


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a page that sends this Origin was served at the very address that it asks."""
    return origin in (f"http://{host}", f"https://{host}")


def keep_token(directory: Path) -> str:
    """The token of the rehearsal in a directory: of the environment, of an earlier start, or a new one; it is kept."""
    path = directory / TOKEN_FILE
    kept = _read_private(path)
    token = os.environ.get("VERTEX_REHEARSAL_TOKEN") or kept or secrets.token_urlsafe(24)
    if token != kept:
        write_private(path, token)
    return token


def write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable by its owner alone whatever stood there before."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def _read_private(path: Path) -> str:
    """What a file holds that nobody but its owner, who is us, could have read or written; else nothing."""
    with suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid == os.geteuid() and not about.st_mode & 0o077:
                return file.read().strip()
    return ""
