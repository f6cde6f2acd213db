"""Trainings as processes of their own, and what to compare of them."""

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagline.runs.lookup import list_runs
from tagline.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1]))
from python_processes import start_python
from rehearsing import free_port

DEADLINE_S = 900.0
ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "examples" / "support"
SMALL = (
    "model.family=encoder", "model.max_tokens=32", "data.fraction=0.4", "training.epochs=3", "training.batch_size=16",
    "training.learning_rate=0.003", "training.evaluate_every=8", "training.log_every=1",
    "training.baseline=false", "training.export=false",
)  # fmt: skip
TOLD = """
import os, sys
from tagline.cli import run
number, sys.argv = int(sys.argv[1]), ["tagline", *sys.argv[2:]]
written = 0
def count(event, details):
    global written
    if event == "open" and "a" in str(details[1]) and str(details[0]).endswith("events.jsonl"):
        written += 1
        if written == 4:  # the run has started, its first step was taken and measured: this is the second
            os.kill(os.getpid(), number)
if number:
    sys.addaudithook(count)
sys.exit(run(sys.argv[1:]))
"""
"""Runs a command that sends itself a signal while it learns."""
COUNTED = """
import os, signal, sys
from pathlib import Path
import torch
from tagline import cli
dies_at, sends, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sys.argv = ["tagline", *sys.argv[4:]]
torch.set_num_threads(1)
OWN_FILES = str(Path(cli.__file__).parents[3])
CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
touched = 0
def count(event, details):
    global touched
    # Tagline's own files are not a run's, though some are in src/tagline/runs/. Of a run in Cloud Storage, what is sent
    # there counts.
    is_of_a_run = event in CHANGES and "runs/" in (path := str(details[0])) and not path.startswith(OWN_FILES)
    if is_of_a_run or event == "http.client.send":
        touched += 1
        if touched == dies_at:
            os.kill(os.getpid(), sends or signal.SIGKILL)
sys.addaudithook(count)
code = cli.run(sys.argv[1:])
Path(f"{name}.touched").write_text(str(touched))
sys.exit(code)
"""
"""Runs a command until a run is touched for so many times, and says at its end how often it was."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Attempt:
    """One `tagline` command, running or ended."""

    process: "subprocess.Popen[bytes]"
    cwd: Path
    name: str
    """Of the files that it writes."""

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self.cwd.joinpath(f"{self.name}.out").read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self.cwd.joinpath(f"{self.name}.err").read_text()

    def end(self) -> int:
        """Wait for its end; its exit code, negative if a signal ended it."""
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("it hangs: " + self.err) from None
        assert "Traceback" not in self.err, self.err
        return code

    def kill(self, *, after_s: float) -> None:
        """End it without a warning, if it has not ended by itself."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(after_s)
        self.process.kill()
        self.process.wait()

    @property
    def run(self) -> Run:
        """The only run in its directory."""
        [run] = list_runs(self.cwd / "runs")
        return run


def start(
    *arguments: str | Path, cwd: Path, environment: Mapping[str, str] | None = None, dies_at: int = 0, sends: int = 0
) -> Attempt:
    """Run `tagline ARGUMENTS...`; with `dies_at`, until the run is touched for so many times."""
    cwd.mkdir(exist_ok=True)
    name = f"process-{next(_numbers)}"
    with cwd.joinpath(f"{name}.out").open("wb") as out, cwd.joinpath(f"{name}.err").open("wb") as err:
        process = start_python(
            "-c", COUNTED, dies_at, int(sends), name, *arguments,
            cwd=cwd, env=os.environ | (environment or {}), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )  # fmt: skip
    return Attempt(process, cwd, name)


def told(sent: int, *arguments: str | Path, before: str = "") -> list[str]:
    """Python's words for `tagline ARGUMENTS...`, which gets a signal at its second step; `before` is done first."""
    return ["-W", "error", "-c", before + TOLD, str(int(sent)), *map(str, arguments)]


def start_workers(
    *arguments: str | Path, cwd: Path, environment: Mapping[str, str] | None = None, dies_at: int = 0
) -> list[Attempt]:
    """Run the same command in two workers, as torchrun would have started them; the main one may die."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    known = {**(environment or {}), **shared}
    main = start(*arguments, cwd=cwd, environment=known | {"RANK": "0", "LOCAL_RANK": "0"}, dies_at=dies_at)
    return [main, start(*arguments, cwd=cwd, environment=known | {"RANK": "1", "LOCAL_RANK": "1"})]


def touched(attempt: Attempt) -> int:
    """How many times a command that has ended opened, made, renamed, removed or sent something of its run."""
    return int(attempt.cwd.joinpath(f"{attempt.name}.touched").read_text())


def contents(run: Run) -> dict[str, bytes]:
    """Everything a run made that does not hold a time."""
    files = [*run.bundle.rglob("*"), run.directory / "report.json", run.directory / "predictions.jsonl"]
    return {str(path.relative_to(run.directory)): path.read_bytes() for path in files if path.is_file()}


def events(run: Run) -> list[dict[str, Any]]:
    """What happened, without when and where, and without what it took of the machine."""
    without = ("time", "run")
    kept = [event for event in run.events() if event["event"] != "usage"]
    return [{key: value for key, value in event.items() if key not in without} for event in kept]
