"""Containers through podman or docker, where one of them works."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

PATIENCE_S = 20.0


@cache
def engine() -> str:
    """podman or docker, whichever works here; "" where neither does."""
    for name in ("podman", "docker"):
        found = shutil.which(name)
        if found and _works([found, "info"]):
            return found
    return ""


def _is_podman() -> bool:
    return Path(engine()).name == "podman"


def has_image(image: str) -> bool:
    """Whether this machine has the image already."""
    return bool(engine()) and _works([engine(), "image", "inspect", image])


def is_ours(image: str) -> bool:
    """Whether an image is one of Tagline's, whose program is installed here: its path's last part says so."""
    return image.rpartition("/")[2].startswith("tagline-")


def can_play(image: str) -> bool:
    """Whether a program of this image can run here at all."""
    return is_ours(image) or bool(engine())


def are_made_of(image: str) -> bool:
    """Whether programs of an image run as containers: where it is on this machine, or is not one of ours."""
    return has_image(image) or not is_ours(image)


def command(
    image: str, name: str, *, entrypoint: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str],
    buckets: Path,
) -> list[str]:  # fmt: skip
    """What runs an image; the buckets are at /gcs in it, and its network is this machine's loopback."""
    found = [engine(), "run", "--rm", "--name", name, "--network=host", "--volume", f"{buckets}:/gcs"]
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


def remove(name: str) -> None:
    """End a container, if it is still there: ending the client alone would leave it."""
    at_once = ["--time", "0"] if _is_podman() else []  # docker asks nobody
    _works([engine(), "rm", "--force", *at_once, name])


def _works(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
