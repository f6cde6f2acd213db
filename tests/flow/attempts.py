"""Trainings as processes that start at once, forked from one that has loaded torch; and what to compare of them."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tagline.runs.lookup import list_runs
from tagline.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import free_port

DEADLINE_S = 900.0
ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "examples" / "support"
SMALL = (
    "model.family=encoder", "model.max_tokens=32", "data.fraction=0.4", "training.epochs=3", "training.batch_size=16",
    "training.learning_rate=0.003", "training.evaluate_every=8", "training.log_every=1",
    "training.baseline=false", "training.export=false",
)  # fmt: skip
CHANGES = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"})
SENDS = "http.client.send"
"""To Cloud Storage, where a run is there."""
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
_nursery = multiprocessing.get_context("forkserver")
_nursery.set_forkserver_preload(
    [
        "google.cloud.storage",
        "peft",
        "pyarrow.csv",
        "sklearn.metrics",
        "tagline.cli",
        "tagline.models.encoder",
        "tagline.models.nn.loop",
        "tagline.models.nn.networks",
        "tagline.models.nn.pretrained",
        "tagline.training",
        "torch.distributed",
        "transformers.models.bert.modeling_bert",
    ]
)


@dataclass(frozen=True)
class Attempt:
    """One `tagline` command, running or ended."""

    process: ForkServerProcess
    cwd: Path

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self.cwd.joinpath(f"{self.process.name}.out").read_text()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self.cwd.joinpath(f"{self.process.name}.err").read_text()

    def end(self) -> int:
        """Wait for its end; its exit code, negative if a signal ended it."""
        self.process.join(DEADLINE_S)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError("it hangs: " + self.err)
        assert "Traceback" not in self.err, self.err
        return self.process.exitcode

    def kill(self, *, after_s: float) -> None:
        """End it without a warning, if it has not ended by itself."""
        self.process.join(after_s)
        self.process.kill()
        self.process.join()

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
    # The process that they are forked from may have been started when other variables were set.
    variables = {**os.environ, **(environment or {})}
    process = _nursery.Process(target=_live, args=([*map(str, arguments)], cwd, variables, dies_at, sends), daemon=True)
    for stream in ("out", "err"):
        cwd.joinpath(f"{process.name}.{stream}").touch()
    process.start()
    return Attempt(process, cwd)


def told(sent: int, *arguments: str | Path, before: str = "") -> list[str]:
    """A process's words: `tagline ARGUMENTS...`, which gets a signal at its second step; `before` is done first."""
    return [sys.executable, "-W", "error", "-c", before + TOLD, str(int(sent)), *map(str, arguments)]


def start_workers(
    *arguments: str | Path, cwd: Path, environment: Mapping[str, str] | None = None, dies_at: int = 0
) -> list[Attempt]:
    """Run the same command in two workers, as torchrun would have started them; the main one may die."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    known = {**(environment or {}), **shared}
    main = start(*arguments, cwd=cwd, environment=known | {"RANK": "0", "LOCAL_RANK": "0"}, dies_at=dies_at)
    return [main, start(*arguments, cwd=cwd, environment=known | {"RANK": "1", "LOCAL_RANK": "1"})]


def _live(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], dies_at: int, sends: int) -> None:
    import torch

    from tagline import cli

    name = multiprocessing.current_process().name
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for stream, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{name}.{stream}", os.O_WRONLY | os.O_APPEND), number)
    torch.set_num_threads(1)
    sys.argv = ["tagline", *arguments]
    touched = 0

    def count(event: str, details: Any) -> None:
        nonlocal touched
        if (event in CHANGES and _is_of_a_run(str(details[0]))) or event == SENDS:
            touched += 1
            if touched == dies_at:
                os.kill(os.getpid(), sends or signal.SIGKILL)

    sys.addaudithook(count)
    code = cli.run(arguments)
    Path(f"{name}.touched").write_text(str(touched))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _is_of_a_run(path: str) -> bool:
    """Tagline's own files are not, though they are in src/tagline/runs/, or in a checkout of such a name."""
    return "runs/" in path and not path.startswith(str(ROOT))


def touched(attempt: Attempt) -> int:
    """How many times a command that has ended opened, made, renamed, removed or sent something of its run."""
    return int(attempt.cwd.joinpath(f"{attempt.process.name}.touched").read_text())


def contents(run: Run) -> dict[str, bytes]:
    """Everything a run made that does not hold a time."""
    files = [*run.bundle.rglob("*"), run.directory / "report.json", run.directory / "predictions.jsonl"]
    return {str(path.relative_to(run.directory)): path.read_bytes() for path in files if path.is_file()}


def events(run: Run) -> list[dict[str, Any]]:
    """What happened, without when and where, and without what it took of the machine."""
    without = ("time", "run")
    kept = [event for event in run.events() if event["event"] != "usage"]
    return [{key: value for key, value in event.items() if key not in without} for event in kept]
