"""Build and push container images on this machine with docker, podman or buildah."""

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
    "podman": ("podman", "build", "--format", "docker"),  # the OCI format has no health checks
    "buildah": ("buildah", "build", "--format", "docker"),
}


def find_builder() -> str:
    """Return the first of docker, podman and buildah that works on this machine; "" if none does."""
    for name in COMMANDS:
        if shutil.which(name) and _is_working(name):
            return name
    return ""


def has_image(name: str, image: str) -> bool:
    """Return whether a builder has an image already."""
    return _command_succeeds(
        [name, *(("inspect", "--type", "image") if name == "buildah" else ("image", "inspect")), image]
    )


def build_command(name: str, context: Path, image: str, *, platform: str = "") -> list[str]:
    """Return the command that builds an image, for this machine's platform or another."""
    return [*COMMANDS[name], *(("--platform", platform) if platform else ()), "--tag", image, str(context)]


def build_image(name: str, context: Path, image: str, *, platform: str = "") -> None:
    """Build an image; the builder's output goes to standard error."""
    command = build_command(name, context, image, platform=platform)
    if code := _run_builder(name, command, dict(os.environ)):
        hint = f"mend what it says, then: {shlex.join(command)}"
        raise PlaceError(f"{name} could not build {image} (exit code {code})", hint=hint)


def push_image(name: str, image: str) -> None:
    """Push an image to its registry; for Google's, the builder gets a token in a temporary file."""
    with image_registries.temporary_login(image) as login:
        command, environment = [name, "push", image], dict(os.environ)
        if login and name == "docker":
            environment |= {"DOCKER_CONFIG": str(login.parent), "DOCKER_HOST": _find_docker_host()}
        elif login:
            command = [name, "push", "--authfile", str(login), image]
        code = _run_builder(name, command, environment)
    if code:
        hint = "whoever runs this needs roles/artifactregistry.writer" if login else f"log in: {name} login"
        raise PlaceError(f"{name} could not push {image} (exit code {code})", hint=hint)


def _run_builder(name: str, command: list[str], environment: Mapping[str, str]) -> int:
    """Run a builder and return its exit code; its output goes to standard error."""
    try:
        result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    except OSError as error:
        raise PlaceError(f"{name} cannot be started: {first_line(error)}") from error
    return result.returncode


def _find_docker_host() -> str:
    """Return the address of docker's daemon, which another DOCKER_CONFIG would lose."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    command = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unix:///var/run/docker.sock"


def _is_working(name: str) -> bool:
    """Return whether a builder works; docker may be a client without a daemon."""
    return _command_succeeds([name, "info"])


def _command_succeeds(command: list[str]) -> bool:
    try:
        result = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0
