"""What builds container images on this machine, and pushes them: docker, podman or buildah."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tagline.errors import PlaceError, first_line
from tagline.images import image_registries

COMMANDS = {
    "docker": ("docker", "build"),
    "podman": ("podman", "build", "--format", "docker"),  # the other format has no health checks
    "buildah": ("buildah", "build", "--format", "docker"),
}


def find_builder() -> str:
    """The first of docker, podman and buildah that works here, or none."""
    for name in COMMANDS:
        if shutil.which(name) and _is_working(name):
            return name
    return ""


def has_image(name: str, image: str) -> bool:
    """Whether a builder has an image already."""
    return _command_succeeds(
        [name, *(("inspect", "--type", "image") if name == "buildah" else ("image", "inspect")), image]
    )


def build_command(name: str, context: Path, image: str, *, platform: str = "") -> list[str]:
    """What builds an image, for this machine's platform or another."""
    return [*COMMANDS[name], *(("--platform", platform) if platform else ()), "--tag", image, str(context)]


def build_image(name: str, context: Path, image: str, *, platform: str = "") -> None:
    """Build an image; what the builder says goes to standard error."""
    asked = build_command(name, context, image, platform=platform)
    if code := _run_builder(name, asked, dict(os.environ)):
        hint = f"mend what it says, then: {shlex.join(asked)}"
        raise PlaceError(f"{name} could not build {image} (exit code {code})", hint=hint)


def push_image(name: str, image: str) -> None:
    """Push an image to its registry; a token of Google's goes to the builder in a file that is then removed."""
    with image_registries.temporary_login(image) as login:
        asked, environment = [name, "push", image], dict(os.environ)
        if login and name == "docker":
            environment |= {"DOCKER_CONFIG": str(login.parent), "DOCKER_HOST": _find_docker_host()}
        elif login:
            asked = [name, "push", "--authfile", str(login), image]
        done = _run_builder(name, asked, environment)
    if done:
        hint = "whoever runs this needs roles/artifactregistry.writer" if login else f"log in: {name} login"
        raise PlaceError(f"{name} could not push {image} (exit code {done})", hint=hint)


def _run_builder(name: str, asked: list[str], environment: Mapping[str, str]) -> int:
    """The exit code of a builder, whose output goes to standard error."""
    try:
        done = subprocess.run(asked, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    except OSError as error:
        raise PlaceError(f"{name} cannot be started: {first_line(error)}") from error
    return done.returncode


def _find_docker_host() -> str:
    """Where docker's server is, which another directory of settings would forget."""
    if found := os.environ.get("DOCKER_HOST"):
        return found
    asked = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unix:///var/run/docker.sock"


def _is_working(name: str) -> bool:
    """Whether it has what it builds with; docker is a client that may have no server."""
    return _command_succeeds([name, "info"])


def _command_succeeds(asked: list[str]) -> bool:
    try:
        done = subprocess.run(asked, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
