"""A training image on its way: asked for in the registry, built by Cloud Build, pushed, and explained when it fails.

Cloud Build, Artifact Registry and the buckets are the rehearsal's; what builds there is a script that notes its words.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tagline import gcp
from tagline.errors import PlaceError, SpecError
from tagline.gcp import cloud_storage
from tagline.images import cloud_build, dockerfiles, image_builders, image_registries
from tagline.jobs import emulator

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import Rehearsal, rehearsing

BUILDER = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case "$1" in
  info) exit 0 ;;
  images) sed 's/.*/{"Names": ["&"], "Digest": "sha256:0", "Size": 1}/' "$here/built" | paste -sd, | sed 's/.*/[&]/' ;;
  image) grep -qx "$3" "$here/built" ;;
  push) if [ "$2" = --authfile ]; then cp "$3" "$here/login"; fi; grep -q fail "$here/mood" && exit 1 || exit 0 ;;
  build)
    if grep -q fail "$here/mood"; then echo "No matching distribution found for numpy==9"; exit 3; fi
    while grep -q slow "$here/mood"; do sleep 0.1; done
    while [ "$1" != --tag ]; do shift; done; echo "$2" >> "$here/built" ;;
esac
"""
PLACE: dict[str, Any] = {"project": "demo", "region": "us-central1", "bucket": "demo-images", "poll_s": 0.05}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with a builder in it."""
    directory = tmp_path / "tools"
    directory.mkdir()
    for name, content in (("podman", BUILDER), ("built", ""), ("mood", "well"), ("calls", "")):
        (directory / name).write_text(content)
    (directory / "podman").chmod(0o755)
    return directory


@pytest.fixture
def rehearsal(tmp_path: Path, tools: Path) -> Iterator[Rehearsal]:
    """One for each test: what was built, asked and pushed before is part of what they look at."""
    path = f"{tools}:{os.environ['PATH']}"
    with (
        rehearsing(
            tmp_path / "rehearsal", *emulator.start_options(), PATH=path, VERTEX_REHEARSAL_TOKEN="token-4711"
        ) as running,
        gcp.use_rehearsal(running.address, "token-4711"),
    ):
        running.http("POST", "/storage/v1/b?project=demo", {"name": "demo-images"})
        yield running


@pytest.fixture
def mood(tools: Path) -> Path:
    return tools / "mood"


def context(**more: Any) -> dockerfiles.BuildContext:
    return dockerfiles.create_training_context(
        dockerfiles.repository_path("demo", "us-central1"), extras=("train", "vertex"), **more
    )


def test_cloud_build_builds_what_is_not_there_and_nothing_else(rehearsal: Rehearsal, tools: Path) -> None:
    made = context()
    said: list[str] = []
    assert not image_registries.has_image(made.image)
    assert dockerfiles.deliver_image(made, **PLACE, builder="cloud-build", say=said.append) == "cloud-build"
    assert said[:2] == [
        f"building {made.image}: there is no {made.image} yet",
        "made the repository us-central1-docker.pkg.dev/demo/tagline",
    ]
    assert said[2].startswith("Cloud Build makes it: http")
    assert image_registries.has_image(made.image)
    (asked,) = [line for line in (tools / "calls").read_text().splitlines() if line.startswith("build ")]
    assert asked.endswith(f"--tag {made.image} --build-arg BUILDKIT_INLINE_CACHE=1 .")
    said.clear()
    assert dockerfiles.deliver_image(made, **PLACE, builder="cloud-build", say=said.append) == ""
    assert said == []
    newer = context(accelerator="NVIDIA_L4")
    assert dockerfiles.deliver_image(newer, **PLACE, builder="cloud-build", say=said.append) == "cloud-build"
    version = made.facts["torch"].partition("+")[0]
    assert f"torch changed {version}+cpu -> {version}+cu126" in said[0]
    assert not any("made the repository" in line for line in said)
    submitted = gcp.call_rest("cloudbuild", "GET", "v1/projects/demo/locations/us-central1/builds")["builds"][0]
    assert submitted["steps"][0]["args"][-3:] == ["--cache-from", made.image, "."]  # whose layers are used again
    archive = f"gs://demo-images/tagline/images/{newer.image.rpartition(':')[2]}.tar.gz"
    assert [found.address for found in cloud_storage.list_objects(archive)] == [archive]


def test_a_build_that_fails_is_explained_by_the_end_of_its_log(rehearsal: Rehearsal, mood: Path) -> None:
    dockerfiles.deliver_image(built := context(), **PLACE, builder="cloud-build", say=lambda _: None)
    mood.write_text("fail")
    made = context(base="python:3.13-slim")
    with pytest.raises(PlaceError, match=r"Cloud Build could not build \S+: a step of the build failed") as caught:
        dockerfiles.deliver_image(made, **PLACE, builder="cloud-build", say=lambda _: None)
    assert "\n  No matching distribution found for numpy==9" in caught.value.message
    assert caught.value.hint.startswith("the whole log: http")
    last = json.loads(Path(rehearsal.directory / "buckets" / "demo-images/tagline/images/last.json").read_text())
    assert last["image"] == built.image  # what failed is not remembered as built


def test_a_build_that_nobody_waits_for_is_cancelled(rehearsal: Rehearsal, mood: Path) -> None:
    mood.write_text("slow")

    def interrupt(line: str) -> None:
        if "the build is" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dockerfiles.deliver_image(context(base="python:3.14-slim"), **PLACE, builder="cloud-build", say=interrupt)
    found = gcp.call_rest("cloudbuild", "GET", "v1/projects/demo/locations/us-central1/builds")["builds"]
    assert found[0]["status"] == "CANCELLED"


def test_every_end_of_a_build_is_known() -> None:
    from vertex_rehearsal.other_services.cloud_build import ENDED

    assert set(cloud_build.ENDED) == set(ENDED)


def test_at_a_rehearsal_nothing_is_built_unless_a_builder_is_named(
    rehearsal: Rehearsal, tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    made = context(accelerator="NVIDIA_B200")
    said: list[str] = []
    assert dockerfiles.deliver_image(made, **PLACE, say=said.append) == ""
    assert dockerfiles.deliver_image(made, **PLACE, builder="podman", say=said.append) == "podman"
    assert said == [f"building {made.image} with podman"]
    assert dockerfiles.deliver_image(made, **PLACE, builder="podman", say=said.append) == ""
    (asked,) = [line for line in (tools / "calls").read_text().splitlines() if f"--tag {made.image}" in line]
    assert asked.startswith("build --format docker --platform linux/amd64 --tag ")
    assert not any(line.startswith("push") for line in (tools / "calls").read_text().splitlines())
    with pytest.raises(SpecError, match='no builder "kaniko"; there are: auto, cloud-build, docker'):
        dockerfiles.deliver_image(made, **PLACE, builder="kaniko", say=said.append)


def test_a_push_logs_in_with_a_file_that_is_gone_afterwards(
    rehearsal: Rehearsal, tools: Path, mood: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    image_builders.push_image("podman", context().image)
    asked = (tools / "calls").read_text().splitlines()[-1].split()
    assert not Path(asked[2]).exists()
    assert "token-4711" not in " ".join(asked)
    (auth,) = json.loads((tools / "login").read_text())["auths"].items()
    assert auth == ("us-central1-docker.pkg.dev", {"auth": "b2F1dGgyYWNjZXNzdG9rZW46dG9rZW4tNDcxMQ=="})
    mood.write_text("fail")
    with pytest.raises(PlaceError, match=r"podman could not push \S+ \(exit code 1\)"):
        image_builders.push_image("podman", context().image)


class Registry(BaseHTTPRequestHandler):
    """A registry's own protocol: one image for everybody, one that is nobody's business."""

    def do_HEAD(self) -> None:
        known = {"/v2/team/mine/manifests/1": 200, "/v2/team/secret/manifests/1": 401}
        self.send_response(known.get(self.path, 404))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_another_registry_is_asked_by_its_own_protocol() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            host = f"127.0.0.1:{server.server_port}"
            assert image_registries.has_image(f"{host}/team/mine:1")
            assert not image_registries.has_image(f"{host}/team/mine:2")
            with pytest.raises(PlaceError, match=r"does not say whether it has .*: 401 Unauthorized"):
                image_registries.has_image(f"{host}/team/secret:1")
        finally:
            server.shutdown()
            thread.join()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # it does not listen, and nobody else can
        with pytest.raises(PlaceError, match="cannot be asked for"):
            image_registries.has_image(f"127.0.0.1:{deaf.getsockname()[1]}/team/mine:1")


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("python", ("docker.io", "library/python", "latest")),
        ("me/app:2", ("docker.io", "me/app", "2")),
        ("localhost:5000/app", ("localhost:5000", "app", "latest")),
        ("us-docker.pkg.dev/p/r/a/b:t", ("us-docker.pkg.dev", "p/r/a/b", "t")),
        ("gcr.io/p/x@sha256:ab", ("gcr.io", "p/x", "sha256:ab")),
    ],
)
def test_names_are_read_as_docker_reads_them(image: str, parts: tuple[str, str, str]) -> None:
    found = image_registries.ImageName.parse(image)
    assert (found.host, found.path, found.version) == parts


@pytest.mark.parametrize("image", ["", "My/Image:1", "a b", "x:t:u", "host.dev/"])
def test_what_is_no_name_is_refused(image: str) -> None:
    with pytest.raises(SpecError, match="names no image"):
        image_registries.ImageName.parse(image)
