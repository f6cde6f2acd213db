"""Containers through podman or docker, where one of them works."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0


@cache
def find_engine() -> str:
    """podman or docker, whichever works here; "" where neither does."""
    for name in ("podman", "docker"):
        found = shutil.which(name)
        if found and _succeeds([found, "info"]):
            return found
    return ""


@cache
def find_builder() -> str:
    """What builds images here: podman, docker or buildah; "" where none of them works."""
    buildah = shutil.which("buildah")
    return find_engine() or (buildah if buildah and _succeeds([buildah, "info"]) else "") or ""


@dataclass(frozen=True)
class LocalImage:
    """An image of this machine, under one of its names."""

    name: str
    digest: str
    size: int


def list_images() -> list[LocalImage]:
    """Every image of this machine, once for each of its names; none where nobody keeps any."""
    kind = Path(find_builder()).name
    if not kind:
        return []
    form = ["--no-trunc", "--digests", "--format", "{{json .}}"] if kind == "docker" else ["--format", "json"]
    words = ["--json"] if kind == "buildah" else form
    done = subprocess.run(
        [find_builder(), "images", *words], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    if kind == "docker":
        return [
            LocalImage(f"{row['Repository']}:{row['Tag']}", row["ID"], 0)
            for row in map(json.loads, done.stdout.splitlines())
        ]
    rows = json.loads(done.stdout or "[]") or []
    return [found for row in rows for found in _iter_images({key.lower(): value for key, value in row.items()})]


def _iter_images(row: Mapping[str, Any]) -> Iterator[LocalImage]:
    size = row.get("size", 0)
    for name in row.get("names") or ():
        yield LocalImage(name, row["digest"], size if isinstance(size, int) else 0)  # buildah has a text for it


def _is_podman() -> bool:
    return Path(find_engine()).name == "podman"


def has_image(image: str) -> bool:
    """Whether this machine has the image already."""
    return bool(find_engine()) and _succeeds([find_engine(), "image", "inspect", image])


def build_run_command(
    image: str,
    name: str,
    *,
    entrypoint: Sequence[str],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    buckets: Path,
) -> list[str]:
    """What runs an image; the buckets are at /gcs in it, and its network is this machine's loopback."""
    found = [find_engine(), "run", "--rm", "--name", name, "--network=host", "--volume", f"{buckets}:/gcs"]
    if metrics := environment.get("CLOUD_ML_HP_METRIC_FILE"):  # which is read outside while it is written
        found += ["--volume", f"{Path(metrics).parent}:{Path(metrics).parent}"]
    for key, value in environment.items():  # by the environment, where a list of processes shows no secret
        found += ["--env", f"{key}={value}" if key in os.environ else key]
    if entrypoint:
        if _is_podman():
            found += ["--entrypoint", json.dumps(list(entrypoint))]
        else:  # docker takes one word, and the rest as arguments
            found += ["--entrypoint", entrypoint[0]]
            arguments = [*entrypoint[1:], *arguments]
    return [*found, image, *arguments]


def remove_container(name: str) -> None:
    """End a container, if it is still there: ending the client alone would leave it."""
    at_once = ["--time", "0"] if _is_podman() else []  # docker asks nobody
    _succeeds([find_engine(), "rm", "--force", *at_once, name])


def _succeeds(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
