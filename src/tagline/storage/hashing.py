"""SHA-256 of files, and a combined one of many files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def files_below(directory: Path) -> list[Path]:
    """Return every file below a directory, in a fixed order."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a directory, by relative path."""
    return {path.relative_to(directory).as_posix(): hash_file(path) for path in files_below(directory)}


def combine_hashes(hashes: Mapping[str, str]) -> str:
    """Return one SHA-256 of many files, from their names and hashes."""
    lines = "".join(f"{name}\0{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
