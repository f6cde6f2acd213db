"""Images built by Cloud Build, with no builder on this machine: submitted, waited for, and explained when they fail."""

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
MOST_LOST = 5
"""Questions in a row without an answer before one gives up: a build goes on without us."""
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
"""Every status in which a build has ended, and what it means."""


def build_request(image: str, source: str, *, logs: str, before: str = "") -> dict[str, Any]:
    """What Cloud Build is asked: `source` is the context's address, `before` an image whose layers may be used."""
    bucket, _, name = source.removeprefix(gcp.SCHEME).partition("/")
    words = ["build", "--tag", image, "--build-arg", "BUILDKIT_INLINE_CACHE=1"]
    words += ["--cache-from", before] if before else []
    return {
        "source": {"storageSource": {"bucket": bucket, "object": name}},
        "steps": [{"name": BUILDER, "env": ["DOCKER_BUILDKIT=1"], "args": [*words, "."]}],
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
    """Build an image and push it; returns when it is in the registry."""
    parent = f"v1/projects/{project}/locations/{region}/builds"
    operation = gcp.call_rest("cloudbuild", "POST", parent, build_request(image, source, logs=logs, before=before))
    begun = operation["metadata"]["build"]
    at = f"{parent}/{begun['id']}"
    say(f"Cloud Build makes it: {begun.get('logUrl', begun['id'])}")
    try:
        ended = _wait_for_build(at, say, poll_s)
    except (KeyboardInterrupt, Interrupted):
        with suppress(PlaceError):  # it may have ended by now
            gcp.call_rest("cloudbuild", "POST", f"{at}:cancel", {})
        raise
    if ended["status"] != "SUCCESS":
        raise _make_build_error(image, ended, logs=logs)


def _wait_for_build(at: str, say: Callable[[str], None], poll_s: float) -> dict[str, Any]:
    """A build once it has ended, whatever the network does meanwhile."""
    lost, seen = 0, ""
    while True:
        try:
            found = gcp.call_rest("cloudbuild", "GET", at)
            lost = 0
        except PlaceError:
            lost += 1
            if lost > MOST_LOST:
                raise
            time.sleep(poll_s)
            continue
        status = found.get("status", "STATUS_UNKNOWN")
        if status not in RUNNING:
            return found
        if status != seen:
            say(f"the build is {status.lower()}")
            seen = status
        time.sleep(poll_s)


def _make_build_error(image: str, build: dict[str, Any], *, logs: str) -> PlaceError:
    why = ENDED.get(build["status"], build["status"].lower())
    if detail := build.get("failureInfo", {}).get("detail") or build.get("statusDetail", ""):
        why = f"{why} ({detail})"
    lines = _read_last_lines(f"{logs.rstrip('/')}/log-{build['id']}.txt")
    said = "".join(f"\n  {line}" for line in lines)
    hint = f"the whole log: {build.get('logUrl', build['id'])}"
    return PlaceError(f"Cloud Build could not build {image}: {why}{said}", hint=hint)


def _read_last_lines(address: str) -> list[str]:
    """The end of a build's log; none where it cannot be had, which must not hide why the build failed."""
    try:
        (found,) = cloud_storage.list_objects(address)[:1] or (None,)
        if found is None:
            return []
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "log"
            cloud_storage.download(found, path)
            lines = path.read_text("utf-8", errors="replace").splitlines()
    except TaglineError:
        return []
    return [line for line in lines if line.strip()][-LAST_LINES:]
