"""The serving image: its Dockerfile and context as a whole, its tag, and what builds it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tagline
from tagline.errors import PlaceError
from tagline.exports import pack
from tagline.images import dockerfiles, wheels

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
BASE = "python:3.12-slim"
BUILDER = """#!/bin/sh
echo "$0 $*" >> "$(dirname "$0")/calls"
case "$1" in info) exit {info} ;; *) echo building; exit {build} ;; esac
"""
Golden = Callable[[str, str], None]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    run = tagline.train(
        SUPPORT / "messages.csv", "model.family=linear", "model.characters=0", "training.baseline=false", runs=directory
    )
    return run.bundle


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a builder on an otherwise empty path: a script that writes down what it is asked."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("sh", "dirname"):
        (place / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(place))

    def one(name: str, *, info: int = 0, build: int = 0) -> Path:
        (place / name).write_text(BUILDER.format(info=info, build=build))
        (place / name).chmod(0o755)
        return place / "calls"

    return one


def test_the_context_holds_what_the_dockerfile_names(golden: Golden, bundle: Path, tmp_path: Path) -> None:
    found = pack.pack(bundle, "image", output=tmp_path / "out", base=BASE, build=False)
    wheel = wheels.build_wheel().file
    text = (tmp_path / "out" / "Dockerfile").read_text()
    golden("Dockerfile.txt", text.replace(wheel, "WHEEL"))
    copied = [line.split()[1] for line in text.splitlines() if line.startswith("COPY ")]
    assert sorted(copied) == ["bundle", "requirements.txt", wheel]
    outside = [name for name in found["files"] if not name.startswith("bundle/")]
    assert sorted(outside) == ["Dockerfile", "requirements.txt", wheel]
    assert found["next"] == f"docker build --tag {found['image']} {tmp_path / 'out'}"


def test_the_base_image_is_named_by_its_digest_where_one_is_known() -> None:
    assert dockerfiles.pin_base("3.11").startswith("python:3.11-slim@sha256:")
    assert dockerfiles.pin_base("3.99") == "python:3.99-slim"
    assert dockerfiles.pin_base(dockerfiles.PYTHON) == dockerfiles.BASE
    for digest in dockerfiles.DIGESTS.values():
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)


def test_the_tag_changes_with_what_goes_in_and_with_nothing_else(bundle: Path, tmp_path: Path) -> None:
    packed = [
        pack.pack(bundle, "image", output=tmp_path / name, base=base, build=False)
        for name, base in (("one", BASE), ("two", BASE), ("three", "python:3.13-slim"))
    ]
    tags = [found["image"] for found in packed]
    assert tags[0] == tags[1] == dockerfiles.compute_tag(tmp_path / "one")
    assert tags[2] != tags[0]
    (tmp_path / "one" / "requirements.txt").write_text("numpy==1.26\n")
    assert dockerfiles.compute_tag(tmp_path / "one") != tags[0]
    name, _, digest = tags[0].partition(":")
    assert (name, len(digest)) == (dockerfiles.NAME, 16)


def test_it_is_built_by_the_first_builder_that_works(
    bundle: Path, tmp_path: Path, install: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    install("docker", info=1)  # a client without its server
    calls = install("podman")
    found = pack.pack(bundle, "image", output=tmp_path / "out")
    assert found["built_by"] == "podman"
    assert found["next"] == f"podman run --publish 8080:8080 {found['image']}"
    asked = [line.partition("/bin/")[2] for line in calls.read_text().splitlines()]
    build = f"podman build --format docker --tag {found['image']} {tmp_path / 'out'}"
    assert asked == ["docker info", "podman info", build]
    captured = capfd.readouterr()
    assert (captured.out, "building" in captured.err) == ("", True)


def test_a_build_that_fails_leaves_the_context_and_the_command(
    bundle: Path, tmp_path: Path, install: Callable[..., Path]
) -> None:
    install("buildah", build=125)
    with pytest.raises(PlaceError, match=r"buildah could not build tagline-serving:\w+ \(exit code 125\)") as caught:
        pack.pack(bundle, "image", output=tmp_path / "out")
    assert "buildah build --format docker" in caught.value.hint
    assert (tmp_path / "out" / "Dockerfile").exists()


def test_without_a_builder_the_command_is_said(bundle: Path, tmp_path: Path, install: Callable[..., Path]) -> None:
    found = pack.pack(bundle, "image", output=tmp_path / "out")
    assert (found["built_by"], found["next"].startswith("docker build")) == ("", True)
