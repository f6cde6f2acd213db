"""Several workers reach what one process reaches, and end in order however one of them ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attempts import SMALL, SUPPORT, contents, events, start, start_workers, touched
from safetensors.numpy import load_file

from rehearsing import free_port
from tagline.errors import SpecError
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run
from tagline.training import preflight, spec_sources

Checkpoints = Callable[[str], Path]
MESSAGES, MULTI = SUPPORT / "messages.csv", SUPPORT / "messages-multi.csv"


@pytest.fixture(scope="module")
def small(checkpoint: Checkpoints) -> list[str]:
    """Settings of a training that takes a second, rounded the same way in every process."""
    return [*SMALL, f"model.pretrained={checkpoint('bert')}", "training.precision=float32"]


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        # Of 247 rows batches of 41 and one of a single row: shares of 21 and 20, then of 1 and none.
        (MESSAGES, ["training.class_weights=balanced", "training.batch_size=41"]),
        (MULTI, ["model.max_batch_tokens=128", "training.class_weights=balanced"]),
        (MESSAGES, ["training.sharding=full", "training.batch_size=41"]),
        (
            MESSAGES,
            [
                "model.lora=4",
                "model.long_texts=windows",
                "model.max_tokens=16",
                "training.sharding=full",
                "data.fraction=0.2",
            ],
        ),
    ],
)
def test_two_workers_learn_what_one_learns(small: list[str], tmp_path: Path, data: Path, settings: list[str]) -> None:
    one = start("train", data, *small, *settings, cwd=tmp_path / "one")
    two = start_workers("train", data, *small, *settings, cwd=tmp_path / "two")
    assert [one.end(), *(worker.end() for worker in two)] == [0, 0, 0], two[0].err + two[1].err
    assert two[1].err == two[1].out == ""
    learned_alike(two[0].run, one.run)
    weights, expected = (load_file(each.bundle / "model.safetensors") for each in (two[0].run, one.run))
    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        if "key.bias" not in name:  # a softmax does not feel it, so that it learns from rounding alone
            np.testing.assert_allclose(tensor, expected[name], atol=5e-4, err_msg=name)


@pytest.mark.parametrize("sharding", ["none", "full"])
@pytest.mark.parametrize("kind", ["model.head=lstm", "model.family=lstm"])
def test_two_workers_learn_the_lstm_that_one_learns(small: list[str], tmp_path: Path, kind: str, sharding: str) -> None:
    settings = [*small, kind, f"training.sharding={sharding}", "training.batch_size=41"]
    if kind == "model.family=lstm":
        without = [setting for setting in settings if not setting.startswith(("model.pretrained", "model.family"))]
        settings = [*without, kind, "model.hidden=16", "model.dropout=0.0", "model.word_dropout=0.0"]
    one = start("train", MESSAGES, *settings, cwd=tmp_path / "one")
    two = start_workers("train", MESSAGES, *settings, cwd=tmp_path / "two")
    assert [one.end(), *(worker.end() for worker in two)] == [0, 0, 0], two[0].err + two[1].err
    learned_alike(two[0].run, one.run)
    weights, expected = (load_file(each.bundle / "model.safetensors") for each in (two[0].run, one.run))
    for name, tensor in weights.items():
        if "key.bias" not in name:
            np.testing.assert_allclose(tensor, expected[name], atol=1e-3, err_msg=name)
    if kind == "model.family=lstm":
        assert (two[0].run.bundle / "tokenizer.json").read_bytes() == (one.run.bundle / "tokenizer.json").read_bytes()


def test_workers_that_share_a_model_evaluate_texts_of_any_length(small: list[str], tmp_path: Path) -> None:
    """They go through its layers together, so one with long texts must not need more passes than one with short."""
    rows = [f"{'word ' * (60 if number % 2 else 2)}{number},{'ab'[number % 3 > 0]}" for number in range(80)]
    for name, part in (("train", rows[:40]), ("validation", rows[40:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *part]) + "\n")
    settings = [
        f"data.validation={tmp_path / 'validation.csv'}",
        "training.sharding=full",
        "training.epochs=1",
        "model.max_batch_tokens=64",
        "data.fraction=1.0",
        "data.test_share=0",
    ]
    two = start_workers("train", tmp_path / "train.csv", *small, *settings, cwd=tmp_path / "two")
    assert [worker.end() for worker in two] == [0, 0], two[0].err + two[1].err


def learned_alike(run: Run, other: Run) -> None:
    """Every loss and every figure of validation is the same but for rounding."""
    for mine, theirs in zip(events(run), events(other), strict=True):
        assert {**mine, "figures": 0, **numbers(theirs)} == {**theirs, "figures": 0, **numbers(theirs)}
        assert numbers(mine) == pytest.approx(numbers(theirs), rel=1e-3, abs=2e-3)  # a row of validation is 0.013


def numbers(event: dict[str, Any]) -> dict[str, Any]:
    """What may differ in its last digits."""
    return event.get("figures", {}) | {key: event[key] for key in ("loss", "value") if key in event}


def test_a_model_that_workers_share_is_resumed_to_the_very_same_end(small: list[str], tmp_path: Path) -> None:
    command = ["train", str(MESSAGES), *small, "training.sharding=full", "data.fraction=0.2"]
    whole = start_workers(*command, cwd=tmp_path / "whole")
    assert [worker.end() for worker in whole] == [0, 0]
    killed = start_workers(*command, cwd=tmp_path / "killed", dies_at=touched(whole[0]) // 2)
    assert [worker.end() for worker in killed] == [-signal.SIGKILL, 5]
    assert "another worker is gone" in killed[1].err
    resumed = start_workers("train", "--resume", "last", cwd=tmp_path / "killed")
    assert [worker.end() for worker in resumed] == [0, 0], resumed[0].err
    assert contents(resumed[0].run) == contents(whole[0].run)
    assert events(resumed[0].run) == events(whole[0].run)


LONG = ("training.epochs=12", "training.evaluate_every=12", "training.log_every=12")
DEADLINE_S = 300.0


class Launched:
    """`tagline train ... --workers 2`, a process whose workers are processes too."""

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path,
        by: Sequence[str] = ("-m", "tagline"),
        under: Sequence[str] = (),
        **more: str,
    ) -> None:
        cwd.mkdir(exist_ok=True)
        self.cwd, self.deadline = cwd, time.monotonic() + DEADLINE_S
        self.process = subprocess.Popen(
            [*under, sys.executable, *by, *map(str, arguments)],
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"} | more,
        )

    def worker(self, rank: int) -> int:
        """The process of a worker, which is learning."""
        self.wait_for("evaluation")
        found = {name: pid for pid in self.workers() if (name := said_to(pid, "RANK"))}
        return found[str(rank)]

    def workers(self) -> list[int]:
        own = self.process.pid
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]

    def wait_for(self, kind: str) -> None:
        while not any(event["event"] == kind for run in list_runs(self.cwd / "runs") for event in run.events()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < self.deadline, f"no {kind}"
            time.sleep(0.02)

    def end(self) -> tuple[int, str, str]:
        """Its exit code, standard output and standard error; no process of it is left."""
        workers = self.workers()
        try:
            out, err = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        for noise in ("Traceback", "Warning", "gloo", "torch", "W1", "E1"):
            assert noise not in err, err
        return self.process.returncode, out, err

    @property
    def run(self) -> Run:
        [run] = list_runs(self.cwd / "runs")
        return run


def said_to(pid: int, name: str) -> str:
    """A variable of a process's environment."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return next((line.partition("=")[2] for line in variables if line.startswith(f"{name}=")), "")


@pytest.fixture(scope="module")
def long(small: list[str]) -> list[str]:
    """A training that is still going on a while after its first evaluation."""
    return ["train", str(MESSAGES), *small, *LONG]


@pytest.fixture(scope="module")
def undisturbed(long: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What two workers make of it."""
    main, other = start_workers(*long, cwd=tmp_path_factory.mktemp("undisturbed"))
    assert (main.end(), other.end()) == (0, 0)
    return main.run


def test_a_worker_that_is_killed_is_started_again(long: list[str], undisturbed: Run, tmp_path: Path) -> None:
    launched = Launched(*long, "--workers", "2", "--json", cwd=tmp_path)
    os.kill(launched.worker(1), signal.SIGKILL)
    code, out, err = launched.end()
    assert code == 0, err
    assert "warning: worker 1 was killed by signal 9; starting all of them again" in err
    assert err.count("going on from step") == 1
    assert json.loads(out)["report"] == undisturbed.report().to_dict()
    assert contents(launched.run) == contents(undisturbed)
    assert events(launched.run) == events(undisturbed)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_stop_all_workers_stop_after_saving(
    long: list[str], undisturbed: Run, tmp_path: Path, sent: int, code: int
) -> None:
    launched = Launched(*long, "--workers", "2", cwd=tmp_path)
    launched.wait_for("evaluation")
    launched.process.send_signal(sent)
    ended, out, err = launched.end()
    assert (ended, out) == (code, ""), err
    assert err.count("stopped:") == err.count(f"next: tagline train --resume runs/{launched.run.name}") == 1
    assert launched.run.state().name == "cancelled"
    if sent == signal.SIGTERM:
        main, other = start_workers("train", "--resume", "last", cwd=tmp_path)
        assert (main.end(), other.end()) == (0, 0), main.err
        assert contents(launched.run) == contents(undisturbed)
        assert events(launched.run) == events(undisturbed)
    else:
        alone = start("train", "--resume", "last", cwd=tmp_path)
        assert alone.end() == 0, alone.err
        learned_alike(launched.run, undisturbed)


def test_an_error_of_one_worker_ends_all_and_is_said_once(long: list[str], tmp_path: Path) -> None:
    """A limit on the size of files stands in for a disk that is full; it is the main worker that writes."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000));"
        "from tagline.cli import main; main()"
    )
    launched = Launched(*long, "--workers", "2", "--json", cwd=tmp_path, by=("-c", code))
    ended, out, err = launched.end()
    assert ended == 5, err
    assert json.loads(out)["error"]["type"] == "PlaceError"
    assert err.count("cannot write") == err.count("error:") == 1
    assert err.count("run runs/") == 1
    assert launched.run.state().name == "failed"


@pytest.fixture(scope="module")
def short(small: list[str]) -> list[str]:
    """A training for when only its end matters."""
    return ["train", str(MESSAGES), *small, "training.epochs=1"]


@pytest.fixture(scope="module")
def ended(short: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What two workers make of it."""
    main, other = start_workers(*short, cwd=tmp_path_factory.mktemp("ended"))
    assert (main.end(), other.end()) == (0, 0)
    return main.run


def test_an_outer_torchrun_may_start_the_workers(short: list[str], ended: Run, tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tagline")
    launched = Launched(*short, cwd=tmp_path, by=torchrun)
    code, _, err = launched.end()
    assert code == 0, err
    assert contents(launched.run) == contents(ended)


def test_two_machines_find_each_other_by_what_vertex_says(short: list[str], ended: Run, tmp_path: Path) -> None:
    port = free_port()
    machines = [
        Launched(*short, "--workers", "1", cwd=tmp_path / pool, CLUSTER_SPEC=spec)
        for pool, spec in cluster_specs("127.0.1.1", "127.0.1.2", port=port).items()
    ]
    ends_like(ended, machines)


def test_two_networks_with_their_own_addresses_work_as_two_machines(
    short: list[str], ended: Run, tmp_path: Path, namespaces: list[str]
) -> None:
    specs = cluster_specs("10.213.7.9", "10.213.7.10", port=2222)
    machines = [
        Launched(*short, "--workers", "1", cwd=tmp_path / pool, under=["ip", "netns", "exec", name], CLUSTER_SPEC=spec)
        for name, (pool, spec) in zip(namespaces, specs.items(), strict=True)
    ]
    ends_like(ended, machines)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them; skips the test where they cannot be made."""
    names = [f"tagline-{os.getpid()}-{end}" for end in "ab"]
    ends = [f"tl{os.getpid() % 10**6}{end}" for end in "ab"]
    script = f"set -e; ip link add {ends[0]} type veth peer name {ends[1]};"
    for name, end, address in zip(names, ends, ("10.213.7.9", "10.213.7.10"), strict=True):
        script += (
            f"ip netns add {name}; ip link set {end} netns {name}; ip -n {name} link set lo up;"
            f"ip -n {name} address add {address}/24 dev {end}; ip -n {name} link set {end} up;"
        )
    made = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    try:
        if made.returncode:
            pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", ends[0]], capture_output=True, check=False)


def cluster_specs(main: str, other: str, *, port: int) -> dict[str, str]:
    """What Vertex AI tells each of two machines, beside a reduction server that is none."""
    cluster = {"workerpool0": [f"{main}:{port}"], "workerpool1": [f"{other}:{port}"], "workerpool2": ["none:1"]}
    return {
        pool: json.dumps({"cluster": cluster, "environment": "cloud", "task": {"type": pool, "index": 0}})
        for pool in ("workerpool0", "workerpool1")
    }


def ends_like(run: Run, machines: Sequence[Launched]) -> None:
    for machine in machines:
        code, _, err = machine.end()
        assert code == 0, err
    main, other = machines
    assert contents(main.run) == contents(run)
    assert not list_runs(other.cwd / "runs")


def test_work_that_cannot_be_shared_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refused = start("train", MESSAGES, "model.family=linear", "--workers", "2", cwd=tmp_path)
    assert refused.end() == 2
    assert "family linear learns in one process" in refused.err
    assert not (tmp_path / "runs").exists()


def test_data_that_can_be_read_only_once_is_not_shared(small: list[str]) -> None:
    spec = spec_sources.resolve_spec(MESSAGES, small)
    preflight.check_sharing(spec)
    piped = spec.model_copy(update={"data": spec.data.model_copy(update={"train": "-"})})
    with pytest.raises(SpecError, match="every worker reads the data, and - can be read only once"):
        preflight.check_sharing(piped)


def test_there_may_be_more_workers_than_rows(small: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("text,label\nyes please,yes\nno thanks,no\nyes,yes\n")
    main, other = start_workers("train", data, *small, "data.fraction=1", cwd=tmp_path)
    assert (main.end(), other.end()) == (0, 0), main.err + other.err
