"""What holds data is its owner's alone; what a user names is as their umask says."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import SUPPORT

import tagline
from tagline.cli import run as run_command
from tagline.storage import atomic

pytestmark = pytest.mark.trains

QUICK = (
    "model.family=linear",
    "model.max_features=60",
    "model.characters=0",
    "model.strength=4.0",
    "training.baseline=false",
)


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_and_its_bundle_are_their_owners_alone(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages.csv", *QUICK, runs=tmp_path / "runs")
    assert mode(tmp_path / "runs") == 0o700
    for path in (run.directory, *run.directory.rglob("*")):
        if path.name != atomic.LOCK:
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_of_runs_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o750)
    with atomic.writing_directory(tmp_path / "runs" / "one") as scratch:
        (scratch / "file").write_text("text")
    assert mode(tmp_path / "runs") == 0o750
    assert mode(tmp_path / "runs" / "one") == 0o700


def test_a_file_that_was_shared_stays_shared(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "state.json", "{}")
    assert mode(tmp_path / "state.json") == 0o600
    (tmp_path / "state.json").chmod(0o640)
    atomic.write_text(tmp_path / "state.json", "{}")
    assert mode(tmp_path / "state.json") == 0o640


@pytest.mark.parametrize(
    ("umask", "file", "directory"), [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750), (0o077, 0o600, 0o700)]
)
def test_what_a_user_names_is_as_the_umask_says(tmp_path: Path, umask: int, file: int, directory: int) -> None:
    os.umask(umask)
    assert run_command(["init", str(SUPPORT / "messages.csv"), "--output", str(tmp_path / "tagline.toml")]) == 0
    assert mode(tmp_path / "tagline.toml") == file
    with atomic.writing_directory(tmp_path / "made", is_private=False) as scratch:
        (scratch / "inner").mkdir(mode=0o700)
        (scratch / "inner" / "file").touch(mode=0o600)
    assert mode(tmp_path / "made") == mode(tmp_path / "made" / "inner") == directory
    assert mode(tmp_path / "made" / "inner" / "file") == file


def test_the_umask_of_the_process_is_never_changed(tmp_path: Path) -> None:
    """Not even for a moment, in which another thread's file would be everybody's."""
    is_over = threading.Event()
    seen: set[int] = set()

    def watch() -> None:
        while not is_over.is_set():
            status = Path("/proc/self/status").read_text()
            seen.add(int(status.partition("Umask:")[2].split()[0], 8))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(200):
            atomic.write_text(tmp_path / str(number), "text", is_private=bool(number % 2))
    finally:
        is_over.set()
        watcher.join()
    assert seen == {0o022}


def test_no_module_reads_the_umask_by_setting_it() -> None:
    src = Path(tagline.__file__).parent
    setting = [path.name for path in src.rglob("*.py") if "os.umask(" in path.read_text()]
    assert setting == []


def test_the_store_of_the_emulator_is_its_owners_alone(tmp_path: Path) -> None:
    place = tmp_path / "rehearsal"
    words = [
        "-m",
        "tagline",
        "rehearsal",
        "start",
        "--directory",
        str(place),
        "--port",
        "0",
        "--grpc-port",
        "0",
        "--detach",
    ]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    try:
        assert mode(place) == 0o700
        for path in place.rglob("*"):
            if path.name != "rehearsal.lock" and not path.is_symlink():
                assert mode(path) & 0o077 == 0, path
    finally:
        stop = ["-m", "tagline", "rehearsal", "stop", "--directory", str(place)]
        subprocess.run([sys.executable, *stop], check=True, capture_output=True)
