"""Build images with Cloud Build, without a builder on this machine: submit, wait, and explain failures."""

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tagline import gcp
from tagline.errors import Interrupted, PlaceError, TaglineError
from tagline.gcp import cloud_storage

BUILDER = "gcr.io/cloud-builders/docker"
MACHINE = "E2_HIGHCPU_8"
DISK_GB = 100
TIMEOUT_S = 3600
POLL_S = 5.0
MAX_POLL_FAILURES = 5
"""Consecutive failed polls that are tolerated: the build itself goes on."""
LAST_LINES = 20
RUNNING = ("STATUS_UNKNOWN", "PENDING", "QUEUED", "WORKING")
ENDED = {
    "SUCCESS": "it is built",
    "FAILURE": "a step of the build failed",
    "INTERNAL_ERROR": "Cloud Build itself failed",
    "TIMEOUT": f"it took longer than {TIMEOUT_S // 60} minutes",
    "CANCELLED": "somebody cancelled it",
    "EXPIRED": "it waited too long to begin",
}
"""The final statuses of a build, with their meaning."""


def build_request(image: str, source: str, *, logs: str, before: str = "") -> dict[str, Any]:
    """Return the request to Cloud Build; `source` is the context's address, `before` an image for the layer cache."""
    bucket, _, name = source.removeprefix(gcp.SCHEME).partition("/")
    arguments = ["build", "--tag", image, "--build-arg", "BUILDKIT_INLINE_CACHE=1"]
    arguments += ["--cache-from", before] if before else []
    return {
        "source": {"storageSource": {"bucket": bucket, "object": name}},
        "steps": [{"name": BUILDER, "env": ["DOCKER_BUILDKIT=1"], "args": [*arguments, "."]}],
        "images": [image],
        "timeout": f"{TIMEOUT_S}s",
        "options": {"machineType": MACHINE, "diskSizeGb": str(DISK_GB), "logging": "GCS_ONLY"},
        "logsBucket": logs.removeprefix(gcp.SCHEME),
        "tags": ["tagline"],
    }


def build_image(
    image: str,
    source: str,
    *,
    project: str,
    region: str,
    logs: str,
    before: str = "",
    say: Callable[[str], None],
    poll_s: float = POLL_S,
) -> None:
    """Build an image, push it, and return when it is in the registry."""
    parent = f"v1/projects/{project}/locations/{region}/builds"
    operation = gcp.call_rest("cloudbuild", "POST", parent, build_request(image, source, logs=logs, before=before))
    build = operation["metadata"]["build"]
    resource = f"{parent}/{build['id']}"
    say(f"Cloud Build makes it: {build.get('logUrl', build['id'])}")
    try:
        ended = _wait_for_build(resource, say, poll_s)
    except (KeyboardInterrupt, Interrupted):
        with suppress(PlaceError):  # it may have ended by now
            gcp.call_rest("cloudbuild", "POST", f"{resource}:cancel", {})
        raise
    if ended["status"] != "SUCCESS":
        raise _make_build_error(image, ended, logs=logs)


def _wait_for_build(resource: str, say: Callable[[str], None], poll_s: float) -> dict[str, Any]:
    """Poll a build until it has ended, tolerating network errors."""
    failures, reported = 0, ""
    while True:
        try:
            build = gcp.call_rest("cloudbuild", "GET", resource)
            failures = 0
        except PlaceError:
            failures += 1
            if failures > MAX_POLL_FAILURES:
                raise
            time.sleep(poll_s)
            continue
        status = build.get("status", "STATUS_UNKNOWN")
        if status not in RUNNING:
            return build
        if status != reported:
            say(f"the build is {status.lower()}")
            reported = status
        time.sleep(poll_s)


def _make_build_error(image: str, build: dict[str, Any], *, logs: str) -> PlaceError:
    why = ENDED.get(build["status"], build["status"].lower())
    if detail := build.get("failureInfo", {}).get("detail") or build.get("statusDetail", ""):
        why = f"{why} ({detail})"
    lines = _read_last_lines(f"{logs.rstrip('/')}/log-{build['id']}.txt")
    log_lines = "".join(f"\n  {line}" for line in lines)
    hint = f"the whole log: {build.get('logUrl', build['id'])}"
    return PlaceError(f"Cloud Build could not build {image}: {why}{log_lines}", hint=hint)


def _read_last_lines(address: str) -> list[str]:
    """Return the last lines of a build's log; [] if it cannot be read, so as not to hide the build's own failure."""
    try:
        (blob,) = cloud_storage.list_objects(address)[:1] or (None,)
        if blob is None:
            return []
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "log"
            cloud_storage.download(blob, path)
            lines = path.read_text("utf-8", errors="replace").splitlines()
    except TaglineError:
        return []
    return [line for line in lines if line.strip()][-LAST_LINES:]
