"""A training that cannot write says so, leaves nothing half-written, and goes on once it can."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tagline as library
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TRAIN = (
    "train",
    str(SUPPORT / "messages.csv"),
    "model.family=linear",
    "model.max_features=8000",
    "training.baseline=false",
)
RUN = "import sys; from tagline.cli import run; import tagline.training, sklearn.metrics, pyarrow.csv; "


def command(*words: str, cwd: Path, before: str) -> "subprocess.CompletedProcess[str]":
    """`tagline WORDS...` as a process, with some Python run before it."""
    code = f"{RUN}{before}\nsys.exit(run(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True, check=False)


def is_whole(run: Run) -> None:
    """Every file can be read, and nothing half-written is left."""
    for read in (run.spec, run.lock, run.events, run.progress, run.attempts):
        read()
    assert run.state().name != "running"  # waiting: not even its lock could be written, to delete it
    assert not list(run.directory.rglob(".tagline-*"))
    assert run.intact_progress()[1] == ""


def goes_on(cwd: Path) -> None:
    """Once it can write again, the same run ends well."""
    [run] = list_runs(cwd / "runs")
    is_whole(run)
    library.train(run.directory, resume=True)
    assert run.state().name == "succeeded"


SMALL_FILES = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
"""


def test_a_file_that_may_not_grow_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    """EFBIG, when a checkpoint is written."""
    stopped = command(*TRAIN, cwd=tmp_path, before=SMALL_FILES)
    assert stopped.returncode == 5, stopped.stderr
    assert "File too large" in stopped.stderr
    goes_on(tmp_path)


FAILING = """
import builtins, errno, os
left = [{count}]
def count(event, details):
    if event == "open" and isinstance(details[0], (str, bytes, os.PathLike)) and "runs" in os.fsdecode(details[0]):
        flags = details[2] if len(details) > 2 and isinstance(details[2], int) else 0
        if flags & (os.O_WRONLY | os.O_RDWR):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.{name}, os.strerror(errno.{name}), os.fsdecode(details[0]))
sys.addaudithook(count)
"""
"""From the file of a run on that is opened for writing as the so-manieth, none can be opened any more."""


ERRORS = ("ENOSPC", "EACCES", "EMFILE")
PLACES = (
    [(name, count) for name in ERRORS for count in range(36)]
    if "TAGLINE_HOSTILE_S" in os.environ
    else [("ENOSPC", 3), ("EACCES", 5), ("ENOSPC", 14), ("EMFILE", 26)]
)
"""Which error, and from which write on; `make hostile` goes through all of them."""


@pytest.mark.parametrize(("name", "count"), PLACES)
def test_from_any_write_on_it_is_said_and_nothing_is_lost(tmp_path: Path, name: str, count: int) -> None:
    stopped = command(*TRAIN, cwd=tmp_path, before=FAILING.format(count=count, name=name))
    if stopped.returncode == 0:  # it has no more writes than these
        is_whole(list_runs(tmp_path / "runs")[0])
        return
    assert stopped.returncode == 5, stopped.stderr
    assert "cannot write runs" in stopped.stderr
    assert os.strerror(getattr(errno, name)) in stopped.stderr
    assert "Traceback" not in stopped.stderr
    if list_runs(tmp_path / "runs"):
        goes_on(tmp_path)


def test_a_reader_of_the_output_that_is_gone_damages_nothing(tmp_path: Path) -> None:
    """EPIPE on standard error, where progress goes."""
    code = f"{RUN}\nsys.exit(run(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", code, *TRAIN], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for _ in process.stderr:
            if list_runs(tmp_path / "runs"):
                break
        process.stderr.close()
        process.stdout.read()
        code_of = process.wait()
    assert code_of in (0, 128 + signal.SIGPIPE)
    if code_of:
        goes_on(tmp_path)
    else:
        is_whole(list_runs(tmp_path / "runs")[0])
