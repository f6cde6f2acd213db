"""SHA-256 of files, and one of many files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def files_below(directory: Path) -> list[Path]:
    """Every file below a directory, in a fixed order."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(directory: Path) -> dict[str, str]:
    """The SHA-256 of every file below a directory, by its path there."""
    return {path.relative_to(directory).as_posix(): hash_file(path) for path in files_below(directory)}


def combine_hashes(hashes: Mapping[str, str]) -> str:
    """One SHA-256 of many files, from their names and each one's own."""
    lines = "".join(f"{name}\0{each}\n" for name, each in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
