"""Training and prediction while other processes keep cores busy: threads that wait spinning, and as they wait now.

    python benchmarks/busy.py [train] [torch] [float32] [lone] [int8] [workers] [--rounds 3] [--seconds 5] ...

train    rows a second that family `encoder` learns, on the sample data
torch    texts a second that it scores with torch
float32  the same with onnxruntime, in batches
lone     the same, one text after the other, as a server with one client
int8     the same in batches with the form of eight bits, whose texts are computed beside each other, one thread each
workers  rows a second of two workers (gloo) that learn together

Every contestant is a process that stays and works when it is its turn, alone, then beside one and two processes that
compute without end. The fair share is what the other processes leave of the cores, and half of the cores where they
leave less, of what the contestant with the settings of before reaches alone. `--spins` adds other lengths of waiting.

A turn in which others kept the machine busy is taken again until `--patience` is used up; how busy they were in the
turns that count stands beside the figures. Rows for each second of processor time suffer less from them.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from measure import show, write

SUPPORT = Path(__file__).parents[1] / "examples" / "support"
PARTS = ("train", "torch", "float32", "lone", "int8", "workers")
BEFORE, NOW = "spinning", "now"
SPINNING = "300000"
"""What libgomp does by itself: some milliseconds."""
BUSY = (0, 1, 2)
QUIET_CORES = 0.25
"""Of others, at most, in a turn that counts at once."""
WARM_UP_S = 3.0
TEXTS_AT_ONCE = 64
WORKERS = 2
Turn = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; train where none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--spins", nargs="*", default=[], help="further values of GOMP_SPINCOUNT")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for a part to be spent on busy minutes")
    parser.add_argument("--bundle", type=Path, help="to predict with this one instead of training one")
    parser.add_argument("--contestant", nargs=2, metavar=("PART", "BEFORE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.parts if name not in PARTS]:
        parser.error(f"no part {unknown[0]}; there are: {', '.join(PARTS)}")
    if chosen.contestant:
        work_in_turns(chosen.contestant[0], chosen.bundle, is_before=chosen.contestant[1] == BEFORE)
        return
    with tempfile.TemporaryDirectory() as directory:
        for part in chosen.parts or ["train"]:
            bundle = None
            if part not in ("train", "workers"):
                from serving import served_bundle

                bundle = served_bundle(Path(directory), chosen)
            write(f"busy-{part}", measure_part(part, bundle, chosen))


def measure_part(part: str, bundle: Path | None, chosen: argparse.Namespace) -> Any:
    """Every contestant beside every number of busy processes, in turns."""
    settings = {BEFORE: {"GOMP_SPINCOUNT": SPINNING}, NOW: {}}
    settings |= {f"spins {count}": {"GOMP_SPINCOUNT": count} for count in chosen.spins}
    cores = len(os.sched_getaffinity(0))
    turns: dict[int, dict[str, list[Turn]]] = {busy: {name: [] for name in settings} for busy in BUSY}
    with ExitStack() as stack:
        contestants = {
            name: stack.enter_context(_start_contestant(part, name, bundle, environment))
            for name, environment in settings.items()
        }
        for contestant in contestants.values():
            _take_turn(contestant, WARM_UP_S)
        patience = chosen.patience
        for _ in range(chosen.rounds):
            for busy in BUSY:
                for name, contestant in contestants.items():
                    while True:
                        turn = _measure_turn(contestant, busy, chosen.seconds)
                        if turn["others"] <= QUIET_CORES or patience <= 0:
                            break
                        patience -= turn["wall_s"]
                    turns[busy][name].append(turn)
                    print(f"{part} {busy} busy {name:<14}{_describe_turn(turn)}", flush=True)
    idle = statistics.median(turn["rate"] for turn in turns[0][BEFORE])
    tables = []
    for busy in BUSY:
        fair = idle * max(cores - busy, cores / 2) / cores
        title = f"{part}, {busy} busy processes on {cores} cores: {fair:.1f} would be fair"
        found = {"fair share": [fair]}
        found |= {name: [turn["rate"] for turn in each] for name, each in turns[busy].items()}
        tables.append(show(title, "rows/s", found, base="fair share"))
        others = statistics.median(turn["others"] for each in turns[busy].values() for turn in each)
        per_cpu = {name: statistics.median(turn["per_cpu_s"] for turn in each) for name, each in turns[busy].items()}
        print("rows for a second of processor time: " + ", ".join(f"{n} {v:.1f}" for n, v in per_cpu.items()))
        print(f"cores that others kept busy meanwhile: {others:.2f}")
    return {"tables": tables, "turns": turns}


def _describe_turn(turn: Turn) -> str:
    return (
        f"{turn['rate']:>8.1f} rows/s{turn['per_cpu_s']:>8.1f} rows/cpu-s{turn['cores']:>6.2f} cores"
        f"{turn['others']:>6.2f} of others"
    )


def _measure_turn(contestant: "subprocess.Popen[str]", busy: int, seconds: float) -> Turn:
    """One turn beside so many busy processes, and how many cores everybody else used meanwhile."""
    with _busy_processes(busy) as rivals:
        before, begun = _used_s(), time.perf_counter()
        mine = sum(map(_process_s, rivals))
        turn = _take_turn(contestant, seconds)
        mine = sum(map(_process_s, rivals)) - mine + turn["cpu_s"]
        wall = time.perf_counter() - begun
        others = max(_used_s() - before - mine, 0.0) / wall
    return turn | {
        "rate": turn["rows"] / turn["wall_s"],
        "per_cpu_s": turn["rows"] / turn["cpu_s"],
        "cores": turn["cpu_s"] / turn["wall_s"],
        "others": others,
    }


@contextmanager
def _busy_processes(count: int) -> Iterator[Sequence[int]]:
    """So many processes that compute without end, until they are no longer needed."""
    rivals = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield [rival.pid for rival in rivals]
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()


def _used_s() -> float:
    """Seconds of processor time that this machine has used since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[number]) for number in (1, 2, 3, 6, 7)) / os.sysconf("SC_CLK_TCK")


def _process_s(pid: int) -> float:
    """And that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _start_contestant(
    part: str, name: str, bundle: Path | None, environment: Mapping[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """A process that works when it is told to."""
    command = [__file__, "--contestant", part, name, *(["--bundle", str(bundle)] if bundle else [])]
    if part == "workers":
        threads = {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // WORKERS))}
        environment = {**environment, **threads}
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}", *command]
    process = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _take_turn(contestant: "subprocess.Popen[str]", seconds: float) -> Turn:
    assert contestant.stdin
    assert contestant.stdout
    contestant.stdin.write(f"{seconds}\n")
    contestant.stdin.flush()
    line = contestant.stdout.readline()
    if not line:
        sys.exit("a contestant has ended; what it said is above")
    turn: Turn = json.loads(line)
    return turn


def work_in_turns(part: str, bundle: Path | None, *, is_before: bool) -> None:
    """Work for as many seconds as each line of standard input says, and answer with what was done."""
    work = WORK[part](bundle, is_before)
    if os.environ.get("RANK", "0") != "0":
        for _ in work:  # it waits for the first worker in every step
            pass
    for line in sys.stdin:
        rows, begun, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begun < float(line):
            rows += next(work)
        wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        if part == "workers":
            cpu_s *= WORKERS
        print(json.dumps({"rows": rows, "wall_s": wall_s, "cpu_s": cpu_s}), flush=True)


def learn(_: Path | None, __: bool) -> Iterator[int]:
    """Rows of each step."""
    from tagline.data import dataset
    from tagline.models.encoder import Encoder, EncoderOptions
    from tagline.models.nn.workers import join_workers
    from tagline.spec import Data, Training

    join_workers()
    source = str(SUPPORT / "messages.csv")
    data = dataset.load(Data(train=source, text="message", labels="topic", validation_share=0, test_share=0))
    model = Encoder.create(
        EncoderOptions(), training=Training(epochs=1000), task=data.task, labels=data.labels, pair=False
    )
    before = 0
    for step in model.fit(data.splits["train"], data.select(), seed=42):
        yield step.rows - before
        before = step.rows


def score_with_torch(bundle: Path | None, _: bool) -> Iterator[int]:
    """Texts of each batch."""
    from tagline.models.encoder import Encoder

    assert bundle
    return _score(Encoder.load(bundle), TEXTS_AT_ONCE)


def score_with_onnx(bundle: Path | None, is_before: bool, *, precision: Any, at_once: int) -> Iterator[int]:
    """Texts of each batch."""
    from tagline.prediction import onnx_runtime

    assert bundle
    if is_before:
        onnx_runtime.WAITING.clear()
    return _score(onnx_runtime.OnnxScorer(bundle, "encoder", precision), at_once)


def _score(scorer: Any, at_once: int) -> Iterator[int]:
    from serving import sample_texts

    texts = sample_texts()
    while True:
        for first in range(0, len(texts) - at_once, at_once):
            scorer.scores(texts[first : first + at_once])
            yield at_once


WORK: dict[str, Any] = {
    "train": learn,
    "workers": learn,
    "torch": score_with_torch,
    "float32": lambda b, old: score_with_onnx(b, old, precision="float32", at_once=TEXTS_AT_ONCE),
    "lone": lambda b, old: score_with_onnx(b, old, precision="float32", at_once=1),
    "int8": lambda b, old: score_with_onnx(b, old, precision="int8", at_once=TEXTS_AT_ONCE),
}


if __name__ == "__main__":
    main()
