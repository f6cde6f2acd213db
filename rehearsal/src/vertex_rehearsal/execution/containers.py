"""Runs and removes containers through podman or docker, and lists images."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

COMMAND_TIMEOUT_S = 20.0


@cache
def find_engine() -> str:
    """Return the path of podman or docker, whichever works; "" if neither does."""
    for name in ("podman", "docker"):
        engine = shutil.which(name)
        if engine and _succeeds([engine, "info"]):
            return engine
    return ""


@cache
def find_builder() -> str:
    """Return the path of podman, docker or buildah, whichever can build images; "" if none works."""
    buildah = shutil.which("buildah")
    return find_engine() or (buildah if buildah and _succeeds([buildah, "info"]) else "") or ""


@dataclass(frozen=True)
class LocalImage:
    """A local image under one of its names."""

    name: str
    digest: str
    size: int


def list_images() -> list[LocalImage]:
    """Return every local image, once per name; an empty list without a container engine."""
    kind = Path(find_builder()).name
    if not kind:
        return []
    form = ["--no-trunc", "--digests", "--format", "{{json .}}"] if kind == "docker" else ["--format", "json"]
    options = ["--json"] if kind == "buildah" else form
    completed = subprocess.run(
        [find_builder(), "images", *options], capture_output=True, text=True, check=True, timeout=COMMAND_TIMEOUT_S
    )
    if kind == "docker":
        return [
            LocalImage(f"{row['Repository']}:{row['Tag']}", row["ID"], 0)
            for row in map(json.loads, completed.stdout.splitlines())
        ]
    rows = json.loads(completed.stdout or "[]") or []
    return [image for row in rows for image in _iter_images({key.lower(): value for key, value in row.items()})]


def _iter_images(row: Mapping[str, Any]) -> Iterator[LocalImage]:
    size = row.get("size", 0)
    for name in row.get("names") or ():
        yield LocalImage(name, row["digest"], size if isinstance(size, int) else 0)  # buildah gives the size as text


def _is_podman() -> bool:
    return Path(find_engine()).name == "podman"


def has_image(image: str) -> bool:
    """Whether the image is available locally."""
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
    """Return the command that runs an image on the host's network, with the buckets mounted at /gcs."""
    command = [find_engine(), "run", "--rm", "--name", name, "--network=host", "--volume", f"{buckets}:/gcs"]
    if metrics := environment.get("CLOUD_ML_HP_METRIC_FILE"):  # read on the host while the container writes it
        command += ["--volume", f"{Path(metrics).parent}:{Path(metrics).parent}"]
    for key, value in environment.items():  # by name, so that the list of processes shows no secret
        command += ["--env", f"{key}={value}" if key in os.environ else key]
    if entrypoint:
        if _is_podman():
            command += ["--entrypoint", json.dumps(list(entrypoint))]
        else:  # docker takes one word, and the rest as arguments
            command += ["--entrypoint", entrypoint[0]]
            arguments = [*entrypoint[1:], *arguments]
    return [*command, image, *arguments]


def remove_container(name: str) -> None:
    """Kill and remove a container if it still exists; it outlives the client that started it."""
    at_once = ["--time", "0"] if _is_podman() else []  # docker kills at once by default
    _succeeds([find_engine(), "rm", "--force", *at_once, name])


def _succeeds(command: Sequence[str]) -> bool:
    try:
        completed = subprocess.run(command, capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0
