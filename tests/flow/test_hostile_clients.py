"""Clients that mean harm, or more of them than there is room for: each gets a status, and the next is served.

`make hostile` does all of it longer: 10,000 bad bodies, and two minutes of ten times what the server can do.
"""

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tagline

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import until
from serving import Server, serving, serving_python

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
OVERLOAD_S = float(os.environ.get("TAGLINE_HOSTILE_S", "3"))
BODIES = 10_000 if "TAGLINE_HOSTILE_S" in os.environ else 1000
TEXT = "where is my parcel"
REFUSALS = {400, 408, 413, 429, 503}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tagline.Run]:
    directory = tmp_path_factory.mktemp("runs")
    return {
        name: tagline.train(SUPPORT / name, "model.family=linear", runs=directory)
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

    with serving(runs["messages.csv"].bundle, "--workers", "1", "--timeout", "2") as server:
        clients = [threading.Thread(target=ask) for _ in range(40)]
        for client in clients:
            client.start()
        try:
            until(lambda: problems or (seen[200] and seen[429] + seen[503]), "answers, and more than it has room for")
            memory = []
            for _ in range(40):
                memory.append(resident(server))
                time.sleep(OVERLOAD_S / 40)
        finally:
            is_over.set()
            for client in clients:
                client.join()
        assert problems == []
        until(lambda: server.ask({"instances": [TEXT]})[0] == 200, "it to recover")
        assert max(memory[len(memory) // 2 :]) < max(memory[: len(memory) // 2]) + 60e6, memory
        assert server.stop() == 0


def resident(server: Server) -> float:
    """Bytes in memory of a server and its processes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in (server.process.pid, *server.children)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


IMPATIENT = """
import os, sys
from tagline import connections, server
class Patience(dict):
    def __getitem__(self, phase):
        return 0.3 if phase == "head" and not os.path.exists(sys.argv[3]) else 60.0
connections.PATIENCE_S = Patience()
server.serve(sys.argv[1], server.Settings(port=int(sys.argv[2]), workers=1))
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
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.address}/openapi.json", "--checks", "all",
            "--max-examples", "15", "--generation-deterministic", "--no-color", "--request-timeout", "60",
            "--suppress-health-check", "too_slow",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        assert server.ask({"instances": []}) == (200, {"predictions": []})
