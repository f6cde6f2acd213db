"""Clients that mean harm, or more of them than there is room for, and a system that fails under the server.

Each client gets a status, and the next is served. `make hostile` does all of it longer: 10,000 bad bodies, two minutes
of ten times what the server can do, and two minutes of processes that are stopped, killed and reloaded under load.
"""

import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import mean
from typing import Any

import httpx
import pytest

import tagline

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import until
from serving import CLOSED, Server, serving, serving_python

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
OVERLOAD_S = float(os.environ.get("TAGLINE_HOSTILE_S", "3"))
BODIES = 10_000 if "TAGLINE_HOSTILE_S" in os.environ else 1000
TEXT = "where is my parcel"
REFUSALS = {400, 408, 413, 429, 503}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tagline.Run]:
    directory = tmp_path_factory.mktemp("runs")
    return {
        name: tagline.train(SUPPORT / name, "model.family=linear", "model.characters=0", runs=directory)
        for name in ("messages.csv", "messages-multi.csv", "pairs.csv")
    }


@pytest.fixture(scope="module")
def server(runs: dict[str, tagline.Run]) -> Iterator[Server]:
    with serving(runs["messages.csv"].bundle) as found:
        yield found


def malformed(draw: random.Random) -> bytes:
    """A body that is wrong in one of the ways that bodies are wrong."""
    good = json.dumps({"instances": [TEXT, TEXT], "parameters": {"sets": 0.9}}).encode()
    odd: list[Any] = [None, True, -1, 1e400, "", [], {}, [[]], {"text": 3}, [TEXT] * 3, "\ud800", "x" * 200_000]
    match draw.randrange(7):
        case 0:
            return good[: draw.randrange(len(good))]
        case 1:
            broken = bytearray(good)
            for _ in range(draw.randint(1, 8)):
                broken[draw.randrange(len(broken))] = draw.randrange(256)
            return bytes(broken)
        case 2:
            return json.dumps({"instances": [draw.choice(odd)], "parameters": draw.choice([*odd, {}])}).encode()
        case 3:
            return json.dumps({draw.choice(["instances", "inputs", "x"]): draw.choice(odd)}).encode()
        case 4:
            return draw.choice([b"[", b'{"a":', b'{"instances":[']) * draw.randint(1, 50_000)
        case 5:
            return b'{"instances": ["' + bytes(draw.randrange(128, 256) for _ in range(20)) + b'"]}'
        case _:
            return draw.randbytes(draw.randint(0, 500))


def test_malformed_bodies_get_4xx_and_the_next_good_one_is_answered(server: Server) -> None:
    draw = random.Random(7)
    seen: Counter[int] = Counter()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        for number in range(BODIES):
            body = malformed(draw)
            answer = client.post("/predict", content=body)
            seen[answer.status_code] += 1
            assert answer.status_code == 200 or answer.status_code in REFUSALS, body[:200]
            assert answer.status_code == 200 or isinstance(answer.json()["error"], str)
            if number % 100 == 0:
                assert client.post("/predict", json={"instances": [TEXT]}).json()["predictions"][0]["label"]
    assert seen[400] > BODIES / 2
    assert seen[200] < BODIES / 4, "some are good by chance"


def test_more_than_it_can_do_is_refused_and_what_is_answered_is_right(runs: dict[str, tagline.Run]) -> None:
    """Ten clients for each that the server has room for, each asking for many texts at once, with no pause."""
    rows = runs["messages.csv"].predictions()
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    seen: Counter[int] = Counter()
    problems: list[Any] = []
    is_over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            while not is_over.is_set() and not problems:
                try:
                    answer = client.post("/predict", json={"instances": texts * 5})
                except httpx.HTTPError as error:
                    problems.append(error)
                    return
                seen[answer.status_code] += 1
                if answer.status_code == 200:
                    if [each["label"] for each in answer.json()["predictions"]] != labels * 5:
                        problems.append("a wrong answer")
                elif answer.status_code not in (429, 503) or "retry-after" not in answer.headers:
                    problems.append((answer.status_code, answer.text))

    with serving(runs["messages.csv"].bundle, "--workers", "1", "--timeout", "60") as server:
        clients = [threading.Thread(target=ask) for _ in range(40)]
        for client in clients:
            client.start()
        try:
            until(lambda: problems or (seen[200] and seen[429] + seen[503]), "answers, and more than it has room for")
            memory = []
            for _ in range(40):
                memory.append(sum(measure_memory(server)))
                time.sleep(OVERLOAD_S / 40)
        finally:
            is_over.set()
            for client in clients:
                client.join()
        assert problems == []
        until(lambda: server.ask({"instances": [TEXT]})[0] == 200, "it to recover")
        assert max(memory[len(memory) // 2 :]) < max(memory[: len(memory) // 2]) + 60e6, memory
        assert server.stop() == 0


def measure_memory(server: Server) -> list[float]:
    """Bytes in memory of a server and of each of its processes that has not just ended."""
    found = []
    for pid in (server.process.pid, *server.children):
        with suppress(FileNotFoundError, ProcessLookupError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            found += [pages * os.sysconf("SC_PAGE_SIZE")] if pages else []  # one that has ended has none
    return found


IMPATIENT = """
import os, sys
from tagline.serving import http as connections; from tagline.serving import app as server
class Patience(dict):
    def __getitem__(self, phase):
        return 0.3 if phase == "head" and not os.path.exists(sys.argv[3]) else 60.0
connections.PATIENCE_S = Patience()
server.serve(sys.argv[1], server.ServerSettings(port=int(sys.argv[2]), workers=1))
"""
"""A server that hardly waits for a head, until there is a file."""


def test_a_head_that_never_ends_is_not_waited_for(runs: dict[str, tagline.Run], tmp_path: Path) -> None:
    bundle, patient = str(runs["messages.csv"].bundle), tmp_path / "patient"
    with serving_python("-c", IMPATIENT, bundle, "{port}", str(patient)) as server:
        place = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        for sent in (b"POST /predict HTTP/1.1\r\nHost:", b""):
            with socket.create_connection(place, timeout=60) as slow:
                assert is_closed(slow, after=sent)
        patient.touch()  # so that who asks below is served however slow it is
        with httpx.Client(base_url=server.address, timeout=60) as client:
            for _ in range(2):
                assert client.post("/predict", json={"instances": [TEXT]}).status_code == 200
        assert server.stop() == 0


def is_closed(connection: socket.socket, *, after: bytes) -> bool:
    """Whether the other end closes a connection, if it has not even before something is sent."""
    try:
        connection.sendall(after)
        return connection.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


@pytest.mark.parametrize("kind", ["messages.csv", "messages-multi.csv", "pairs.csv"])
def test_the_server_does_what_its_own_document_says(kind: str, runs: dict[str, tagline.Run], tmp_path: Path) -> None:
    with serving(runs[kind].bundle, "--workers", "1") as server:
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{server.address}/openapi.json",
            "--checks",
            "all",
            "--max-examples",
            "15",
            "--generation-deterministic",
            "--no-color",
            "--request-timeout",
            "60",
            "--suppress-health-check",
            "too_slow",
        ]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        assert server.ask({"instances": []}) == (200, {"predictions": []})


def place_of(server: Server) -> tuple[str, int]:
    return "127.0.0.1", int(server.address.rpartition(":")[2])


def ask_many(server: Server, count: int) -> int:
    """How many of so many bad requests, each with a long line in the log, are answered."""
    body = json.dumps({"instances": [TEXT], "parameters": {"x" * 100: 1}}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {'i' * 128}\r\nContent-Length: {len(body)}\r\n"
    request = head.encode() + b"\r\n" + body
    last = request.replace(b"Host:", b"Connection: close\r\nHost:")
    with socket.create_connection(place_of(server), timeout=60) as connection:
        sending = threading.Thread(target=connection.sendall, args=(request * (count - 1) + last,))
        sending.start()
        found = b"".join(iter(lambda: connection.recv(2**16), b""))
        sending.join()
    return found.count(b"HTTP/1.1 400 ")


def counted(server: Server, name: str) -> int:
    """The value of a counter."""
    shown = server.get("/metrics")[1]
    return sum(int(line.rpartition(" ")[2]) for line in shown.splitlines() if line.startswith(name))


def broken_stderr(kind: str, opened: ExitStack) -> int:
    """Somewhere to write that cannot be written to."""
    if kind == "closed":
        return CLOSED
    if kind == "disk full":
        return opened.enter_context(Path("/dev/full").open("wb")).fileno()
    if kind == "read-only":
        return opened.enter_context(Path("/dev/null").open("rb")).fileno()
    reading, writing = os.pipe()
    opened.callback(os.close, writing)
    if kind == "reader gone":
        os.close(reading)
    else:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        opened.callback(os.close, reading)
    return writing


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("disk full", "write_failed"), ("reader gone", "write_failed"), ("never read", "queue_full"),
     ("read-only", "write_failed"), ("closed", "")],
)  # fmt: skip
def test_a_log_that_cannot_be_written_takes_no_answer_away(
    runs: dict[str, tagline.Run], kind: str, reason: str
) -> None:
    with ExitStack() as opened:
        stderr = broken_stderr(kind, opened)
        with serving(runs["messages.csv"].bundle, "--workers", "1", stderr=stderr) as server:
            count = 2000 if kind == "never read" else 100
            assert ask_many(server, count) == count
            assert server.ask({"instances": [TEXT]})[0] == 200
            if reason:
                name = f'tagline_log_lines_dropped_total{{reason="{reason}"}}'
                until(lambda: counted(server, name), "dropped lines to be counted")
            assert server.stop() == 0


def test_a_file_of_the_log_that_may_not_grow_takes_no_answer_away(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["messages.csv"].bundle, "--workers", "1") as server:
        size = len(server.said())
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, size))
        assert ask_many(server, 100) == 100
        until(lambda: counted(server, "tagline_log_lines_dropped_total"), "dropped lines to be counted")
        assert len(server.said()) == size
        assert server.stop() == 0


def test_too_many_open_files_are_survived_by_workers_and_by_who_starts_them(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["messages.csv"].bundle, "--workers", "1") as server:
        [worker] = map(int, server.children)
        most = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (30, most[1]))
        with ExitStack() as opened:
            for _ in range(60):
                with suppress(OSError):
                    opened.enter_context(socket.create_connection(place_of(server), timeout=60))
        until(lambda: is_answered(server), "it to answer again")
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, most[1]))
        os.kill(worker, signal.SIGKILL)
        server.wait_for_log("a process cannot be started")
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, most)
        until(lambda: is_answered(server), "another process in its place")
        assert server.stop() == 0


def is_answered(server: Server) -> bool:
    with suppress(OSError):
        return server.ask({"instances": [TEXT]})[0] == 200
    return False


def test_whatever_happens_in_a_reload_the_old_bundle_goes_on_answering(
    runs: dict[str, tagline.Run], tmp_path: Path
) -> None:
    place, kept = tmp_path / "bundle", tmp_path / "kept"
    shutil.copytree(runs["messages.csv"].bundle, place)
    weights, manifest = max(place.glob("*.safetensors")), place / "tagline.json"
    with serving(place, "--workers", "1") as server:
        workers, failures = server.children, 0

        def fails(file: Path, spoil: Callable[[Path], object], then: Callable[[], object] = lambda: None) -> None:
            nonlocal failures
            file.rename(kept)
            spoil(file)
            server.process.send_signal(signal.SIGHUP)
            then()
            failures += 1
            until(lambda: server.said().count("reload failed") == failures, "the log to say so")
            until(lambda: server.children == workers, "the process that loaded it to go")
            assert server.ask({"instances": [TEXT]})[0] == 200
            shutil.rmtree(file) if file.is_dir() else file.unlink()
            kept.rename(file)

        def kill_loader() -> None:
            until(lambda: len(server.children) == 2, "the process that loads it to hang")
            os.kill(int((set(server.children) - set(workers)).pop()), signal.SIGKILL)

        fails(weights, Path.mkdir)  # which not even root can read as a file
        fails(weights, lambda file: file.write_bytes(b"no weights"))
        fails(weights, lambda file: file.symlink_to(file.name))
        fails(weights, os.mkfifo)
        fails(manifest, os.mkfifo, kill_loader)  # as the system does when there is no memory
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log('"reloaded"')
        until(lambda: not set(workers) & set(server.children), "the old processes to go")
        assert server.ask({"instances": [TEXT]})[0] == 200
        manifest.unlink()
        os.mkfifo(manifest)  # the one file that is waited for: others must be regular files
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(server.children) == 2, "the process that loads it to hang")
        assert server.stop() == 0, "who hangs while loading holds up no end"


def test_processes_that_die_or_stop_are_replaced_however_often(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["messages.csv"].bundle, "--workers", "2") as server:
        for told in (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP):
            before = until(lambda: len(server.children) == 2 and server.children, "two processes")
            for pid in before:
                os.kill(int(pid), told)
            until(lambda before=before: not set(before) & set(server.children), "other processes in their place")
            assert is_answered(server)
        until(lambda: len(server.children) == 2, "two processes")
        for pid in server.children:
            os.kill(int(pid), signal.SIGSTOP)
        assert server.stop() == 0


FAILING = """
import os, re, sys, time
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tagline.prediction import predictor; from tagline.serving import prefork; from tagline.serving import app as server
prefork.FROZEN_S = 3.0
tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
predict, explain = server.LoadedBundle.predict, predictor.Predictor.explain
def fall_asleep():
    print(f"asleep {os.getpid()}", file=sys.stderr, flush=True)
    time.sleep(3600)
def failing(self, texts, sets):
    for text in texts:
        tokenizer.encode(text)
        if text == "sleep":
            fall_asleep()
        if text == "freeze":
            re.match("(y+y+)+z", "y" * 100)
    return predict(self, texts, sets)
server.LoadedBundle.predict = failing
predictor.Predictor.explain = lambda self, text, label: fall_asleep() if text == "sleep" else explain(self, text, label)
server.serve(sys.argv[1], server.ServerSettings(port=int(sys.argv[2]), workers=int(sys.argv[3]), timeout_s=3.0))
"""
"""A server whose model panics, never ends, or never lets any other thread run, depending on the text."""


def test_a_panic_or_an_endless_regex_is_answered_and_the_next_request_is_too(runs: dict[str, tagline.Run]) -> None:
    with serving_python("-c", FAILING, str(runs["messages.csv"].bundle), "{port}", "1") as server:
        workers = server.children
        status, answer = server.ask({"instances": ["x" * 3000]})
        assert (status, answer["error"]) == (500, "the model failed on this text; the log has the request's id")
        server.wait_for_log("PanicException: Onig: Regex search error")
        assert server.ask({"instances": [TEXT]})[0] == 200
        assert (server.get("/health")[0], server.children) == (200, workers)

        with suppress(OSError):  # nobody in that process can say anything any more
            server.ask({"instances": ["freeze"]})
        until(lambda: is_replaced(server, workers), "another process in its place")
        until(lambda: is_answered(server), "it to answer again")
        assert server.stop() == 0


@pytest.mark.parametrize(("route", "neighbours"), [("/predict", {503}), ("/explain", {200, 429})])
def test_a_text_without_an_end_is_refused_and_its_process_replaced_each_time(
    runs: dict[str, tagline.Run], route: str, neighbours: set[int]
) -> None:
    """The only process hangs, twice; nobody is left without an answer, and nobody waits longer than a request may."""
    with serving_python("-c", FAILING, str(runs["messages.csv"].bundle), "{port}", "1") as server:
        for times in (1, 2):
            workers = server.children
            with ThreadPoolExecutor(8) as pool:
                stuck = pool.submit(post, server, route, "sleep")
                until(lambda times=times: len(asleep(server)) == times, "it to hang")
                others = [pool.submit(post, server, to, TEXT) for to in ("/predict", route, "/predict", route)]
                refused = stuck.result()
                assert refused.status_code == 503
                for answer in (refused, *(other.result() for other in others)):
                    assert answer.status_code in neighbours | {503}, answer.text
                    assert answer.status_code == 200 or "retry-after" in answer.headers
            until(lambda workers=workers: is_replaced(server, workers), "another process in its place", patience_s=60)
            limit = "has not finished computing within 3 seconds"
            until(lambda limit=limit: limit in server.said(), "the log to say so", patience_s=60)
            until(server.is_answering, "it to be healthy again", patience_s=60)
            assert post(server, "/predict", TEXT).status_code == post(server, "/explain", TEXT).status_code == 200
        assert server.stop() == 0


def test_texts_without_an_end_take_no_process_away_for_good(runs: dict[str, tagline.Run]) -> None:
    with serving_python("-c", FAILING, str(runs["messages.csv"].bundle), "{port}", "2") as server:
        workers = server.children
        with ThreadPoolExecutor(8) as pool:
            while set(workers) & set(server.children):  # until both have hung
                answers = list(pool.map(lambda route: post(server, route, "sleep"), ("/predict", "/explain") * 4))
                assert {answer.status_code for answer in answers} <= {429, 503}
                until(lambda: not asleep(server) & set(server.children), "those that hang to end", patience_s=60)
                until(lambda: len(server.children) == 2, "two processes", patience_s=60)
        assert asleep(server) >= set(workers)
        for route in ("/predict", "/explain") * 5:
            assert post(server, route, TEXT).status_code == 200
        assert server.stop() == 0


def asleep(server: Server) -> set[str]:
    """The processes that have been given a text without an end."""
    return set(re.findall(r"asleep (\d+)\n", server.said()))


def post(server: Server, route: str, text: str) -> httpx.Response:
    """What a server answers over a connection of its own."""
    body = {"instances": [text]} | ({"label": "billing"} if route == "/explain" else {})
    return httpx.post(server.address + route, json=body, timeout=60)


def is_replaced(server: Server, workers: list[str]) -> bool:
    return bool(server.children) and not set(workers) & set(server.children)


def test_processes_stopped_killed_and_reloaded_under_load_give_no_wrong_answer(runs: dict[str, tagline.Run]) -> None:
    """Each client is answered rightly, or its connection is closed; and nobody waits for ever."""
    rows = runs["messages.csv"].predictions()
    draw = random.Random(7)
    seen: Counter[str] = Counter()
    wrong: list[Any] = []
    is_over = threading.Event()

    def ask(first: int) -> None:
        number = first
        while not is_over.is_set():
            row = rows[number % len(rows)]
            number += 1
            try:
                status, answer = server.ask({"instances": [row["text"]]})
            except OSError as error:  # its process was killed
                seen[type(error).__name__] += 1
                if isinstance(error, TimeoutError):
                    wrong.append("nobody answered for a minute")
                continue
            seen[str(status)] += 1
            if status == 200 and answer["predictions"][0]["label"] != row["label"]:
                wrong.append((row, answer))
            elif status not in (200, 429, 503):
                wrong.append((status, answer))

    with serving(runs["messages.csv"].bundle, "--workers", "2") as server:
        clients = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for client in clients:
            client.start()
        memory, ends = [], time.monotonic() + OVERLOAD_S
        try:
            for number in range(10_000):
                until(lambda: len(server.children) >= 2, "two processes")
                if number % 3 < 2:
                    with suppress(ProcessLookupError):
                        os.kill(int(draw.choice(server.children)), (signal.SIGSTOP, signal.SIGKILL)[number % 3])
                else:
                    server.process.send_signal(signal.SIGHUP)
                memory.append(mean(measure_memory(server)))
                is_over.wait(1 if OVERLOAD_S > 60 else 0.5)
                if (time.monotonic() > ends and seen["200"] > 20) or wrong:
                    break
        finally:
            is_over.set()
            for client in clients:
                client.join()
        assert wrong == []
        until(lambda: is_answered(server) and len(server.children) == 2, "it to recover")
        half = len(memory) // 2
        assert max(memory[half:]) < max(memory[:half]) + 30e6, memory
        assert server.stop() == 0
