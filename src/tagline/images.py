"""Container images: what a Dockerfile says, a tag that names the contents, and whoever can build it here."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tagline import storage, wheels
from tagline.errors import PlaceError, SpecError, first_line

NAME = "tagline-serving"
BASE = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
"""Any image with this Python, its module venv, and useradd will do."""
BUILDERS = {
    "docker": ("docker", "build"),
    "podman": ("podman", "build", "--format", "docker"),  # the other format has no health checks
    "buildah": ("buildah", "build", "--format", "docker"),
}
PORT = 8080
HEALTHY = (
    "import os, urllib.request as r; e = os.environ; "
    "r.urlopen('http://127.0.0.1:' + e['AIP_HTTP_PORT'] + e.get('AIP_HEALTH_ROUTE', '/health'), timeout=4)"
)


def dockerfile(wheel: str, *, base: str, signature: str) -> str:
    """The image of a server; what changes least comes first, so that its layers are used again."""
    check_base(base)
    return f"""{signature}: a server of the bundle beside this file. There is no torch in it.
FROM {base}
RUN useradd --system --no-create-home --uid 10001 tagline
COPY requirements.txt /opt/
RUN python3 -m venv /opt/tagline && /opt/tagline/bin/pip install --no-cache-dir --requirement /opt/requirements.txt
COPY {wheel} /opt/
RUN /opt/tagline/bin/pip install --no-cache-dir --no-deps --no-index /opt/{wheel}
COPY bundle /bundle
ENV PATH=/opt/tagline/bin:/usr/local/bin:/usr/bin:/bin AIP_HTTP_PORT={PORT} PYTHONUNBUFFERED=1
EXPOSE {PORT}
USER 10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD {json.dumps(["python3", "-c", HEALTHY])}
CMD ["tagline", "serve", "/bundle"]
"""


def check_base(base: str) -> None:
    """An image's name goes into a line of its own."""
    if (
        not base
        or not storage.is_utf8(base)
        or any(not character.isprintable() or character == " " for character in base)
    ):
        raise SpecError(f"{base!r} names no image", hint=f"such as {BASE}")


def tag(context: Path) -> str:
    """A name that changes when anything does that goes into the image."""
    files = storage.files_below(context)
    hashes = {path.relative_to(context).as_posix(): storage.sha256(path) for path in files}
    return f"{NAME}:{wheels.digest(hashes)[:16]}"


def builder() -> str:
    """The first of docker, podman and buildah that works here, or none."""
    for name in BUILDERS:
        if shutil.which(name) and _works(name):
            return name
    return ""


def command(name: str, context: Path, image: str) -> list[str]:
    """What builds it."""
    return [*BUILDERS[name], "--tag", image, str(context)]


def build(name: str, context: Path, image: str) -> None:
    """Build the image; what the builder says goes to standard error."""
    asked = command(name, context, image)
    try:
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    except OSError as error:
        raise PlaceError(f"{name} cannot be started: {first_line(error)}") from error
    if done.returncode:
        hint = f"the context is there; mend what it says, then: {shlex.join(asked)}"
        raise PlaceError(f"{name} could not build {image} (exit code {done.returncode})", hint=hint)


def _works(name: str) -> bool:
    """Whether it has what it builds with; docker is a client that may have no server."""
    try:
        done = subprocess.run([name, "info"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
