"""A bundle served by a real process, asked by real requests."""

import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import tagline
from tagline.errors import SpecError
from tagline.serving.app import ServerSettings

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import until
from serving import Server, serving, serving_python

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TEXT = "where is my parcel"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tagline.Run]:
    directory = tmp_path_factory.mktemp("runs")
    files = {"single": "messages.csv", "multi": "messages-multi.csv", "pair": "pairs.csv"}
    return {
        name: tagline.train(SUPPORT / file, "model.family=linear", "model.characters=0", runs=directory)
        for name, file in files.items()
    }


@pytest.fixture(scope="module")
def server(runs: dict[str, tagline.Run]) -> Iterator[Server]:
    with serving(runs["single"].bundle) as found:
        yield found


def test_every_form_of_a_request_is_understood(server: Server) -> None:
    forms: list[Any] = [TEXT, [TEXT], {"text": TEXT}, {"content": TEXT, "mimeType": "text/plain"}]
    status, body = server.ask({"instances": forms, "parameters": {"sets": 0.9}})
    assert status == 200
    assert all(prediction == body["predictions"][0] for prediction in body["predictions"])
    assert body["predictions"][0]["label"] == "delivery"
    assert "delivery" in body["predictions"][0]["set"]
    assert server.ask({"instances": []}) == (200, {"predictions": []})
    status, [ranked] = server.ask({"inputs": TEXT})
    assert (status, ranked[0]["label"], len(ranked)) == (200, "delivery", 6)
    assert server.ask({"inputs": [TEXT, TEXT]})[1] == [ranked, ranked]
    assert server.ask({"inputs": [[TEXT], {"text": TEXT}], "parameters": {"top_k": 2}})[1] == [ranked[:2], ranked[:2]]
    status, automl = server.ask({"instances": [TEXT], "parameters": {"format": "automl"}})
    assert status == 200
    assert automl["predictions"][0]["displayNames"][0] == "delivery"
    assert automl["predictions"][0]["ids"][0] == "2"
    assert automl["predictions"][0]["confidences"][0] == ranked[0]["score"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "must be an object"),
        ({}, 400, "instances"),
        ({"instances": "text"}, 400, "instances must be a list"),
        ({"instances": [3]}, 400, "instances[0] must be a text"),
        ({"instances": ["a", None]}, 400, "instances[1] must be a text"),
        ({"instances": [["a", "b"]]}, 400, "reads no pairs"),
        ({"instances": [["a", "b", "c"]]}, 400, "must be a text"),
        ({"instances": [{"txt": "a"}]}, 400, "must be a text"),
        ({"instances": ["\ud800"]}, 400, "half a character"),
        ({"instances": ["a"] * 1001}, 413, "at most 1,000"),
        ({"instances": ["a" * 100_001]}, 413, "at most 100,000"),
        (b'{"instances": ["' + b"a" * 3_000_000 + b'"]}', 413, "more than 2,097,152 bytes"),
        ({"instances": ["a"], "parameters": 3}, 400, "parameters must be an object"),
        ({"instances": ["a"], "parameters": {"set": 1}}, 400, 'no parameter "set"'),
        ({"instances": ["a"], "parameters": {"sets": "x"}}, 400, "parameters.sets"),
        ({"instances": ["a"], "parameters": {"sets": 0.999}}, 400, "cannot be made"),
        ({"instances": ["a"], "parameters": {"format": "xml"}}, 400, "parameters.format"),
        ({"instances": ["a"], "parameters": {"top_k": 1}}, 400, 'no parameter "top_k"'),
        ({"inputs": "a", "parameters": {"top_k": 0}}, 400, "parameters.top_k"),
        ({"inputs": "a", "parameters": {"format": "automl"}}, 400, 'no parameter "format"'),
        ({"inputs": ["a", None]}, 400, "inputs[1] must be a text"),
    ],
)
def test_a_bad_request_gets_a_status_and_one_sentence(server: Server, body: Any, status: int, said: str) -> None:
    code, answer = server.ask(body)
    assert code == status
    assert said in answer["error"]
    assert server.ask({"instances": [TEXT]})[0] == 200


def test_the_pages_and_the_figures_are_there(server: Server) -> None:
    assert server.get("/health") == (200, '{"status": "ready"}')
    assert json.loads(server.get("/info")[1])["labels"][0] == "account"
    assert "<title>Tagline playground</title>" in server.get("/")[1]
    assert "POST /predict" in server.get("/docs")[1]
    document = json.loads(server.get("/openapi.json")[1])
    assert document["paths"]["/predict"]["post"]["requestBody"]["required"]
    said = [each["description"] for each in document["paths"]["/predict"]["post"]["responses"].values()]
    assert len(set(said)) == len(said), "each status says what it means"
    server.ask({"instances": [TEXT]})
    metrics = server.get("/metrics")[1]
    assert 'tagline_answers_total{label="delivery"}' in metrics
    assert 'tagline_requests_total{route="/predict",status="200"}' in metrics
    assert 'tagline_batch_texts_bucket{le="+Inf"}' in metrics


def test_who_asks_at_the_wrong_address_is_told_the_right_one(server: Server) -> None:
    assert server.ask({"inputs": TEXT}, route="/nowhere") == (
        404,
        {"error": "there is no POST /nowhere here; POST /predict answers"},
    )
    answer = httpx.post(server.address, json={"inputs": TEXT}, timeout=60)
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
    assert answer.json() == {"error": "there is no POST / here; POST /predict answers"}
    answer = httpx.post(f"{server.address}/predict/", json={"instances": [TEXT]}, follow_redirects=True, timeout=60)
    assert (answer.status_code, answer.history[0].status_code) == (200, 307)


def test_hugging_faces_own_client_reads_the_answers(server: Server) -> None:
    hub = pytest.importorskip("huggingface_hub")
    client = hub.InferenceClient(model=f"{server.address}/predict")
    found = client.text_classification(TEXT)
    assert (len(found), found[0].label) == (6, "delivery")
    assert client.text_classification(TEXT, top_k=2) == found[:2]


def exchanged(server: Server, request: bytes) -> bytes:
    """What comes back for some bytes, until the server closes the connection."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(2**16), b""))


def test_an_offer_of_another_protocol_is_passed_over(server: Server) -> None:
    """Java's client sends it with its first request; the body belongs to that all the same."""
    body = json.dumps({"instances": [TEXT]}).encode()
    offer = b"Connection: Upgrade, HTTP2-Settings, close\r\nHTTP2-Settings: AAMAAABkAAQ\r\nUpgrade: h2c\r\n"
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    answer = exchanged(server, head + offer + b"\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b'"delivery"' in answer


def test_a_head_without_an_end_is_refused(server: Server) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    long = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 1000) for number in range(60))
    assert exchanged(server, head + long + b"\r\n").startswith(b"HTTP/1.1 200 OK")
    assert b"more than 65,536 bytes" in exchanged(server, head + 4 * long), "whatever else was sent"


def test_a_client_that_goes_away_is_no_bug_of_ours(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["single"].bundle, "--workers", "1") as server:
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        server.wait_for_log("the client went away")
        assert 'status="500"' not in server.get("/metrics")[1]


def test_many_at_once_get_their_own_answers(server: Server, runs: dict[str, tagline.Run]) -> None:
    rows = runs["single"].predictions()
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        for row in range(number, len(rows), 8):
            found[row] = server.ask({"instances": [rows[row]["text"]]})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[row][1]["predictions"][0]["label"] for row in range(len(rows))] == [row["label"] for row in rows]


def test_vertex_says_where_to_listen_and_what_to_serve(runs: dict[str, tagline.Run]) -> None:
    with serving(
        runs["pair"].bundle, AIP_PREDICT_ROUTE="/v1/models/m:predict", AIP_HEALTH_ROUTE="/v1/health"
    ) as server:
        assert server.get("/v1/health")[0] == 200
        status, body = server.ask({"instances": [["is it open?", "yes"]]}, route="/v1/models/m:predict")
        assert (status, "label" in body["predictions"][0]) == (200, True)
        assert server.ask({"instances": ["one text"]}, route="/v1/models/m:predict")[0] == 400
        assert server.stop() == 0


def test_the_route_to_predict_may_be_one_of_ours(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["pair"].bundle, AIP_PREDICT_ROUTE="/", AIP_HEALTH_ROUTE="/") as server:
        status, [ranked] = server.ask({"inputs": ["is it open?", "yes"]}, route="/")
        assert (status, len(ranked)) == (200, 3)
        assert server.get("/") == (200, '{"status": "ready"}')
        assert 'tagline_requests_total{route="/",status="200"}' in server.get("/metrics")[1]


@pytest.mark.parametrize(
    ("name", "value"), [("AIP_PREDICT_ROUTE", "predict"), ("AIP_HEALTH_ROUTE", "health"), ("AIP_HTTP_PORT", "²")]
)
def test_an_environment_that_makes_no_sense_is_said(name: str, value: str) -> None:
    with pytest.raises(SpecError, match=f'{name} is "{value}"'):
        ServerSettings.of({name: value})


def test_a_token_is_asked_for(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["multi"].bundle, TAGLINE_TOKEN="s3cret") as server:
        assert server.get("/health")[0] == 200
        assert server.ask({"instances": ["a"]})[0] == 401
        assert server.ask({"instances": ["a"]}, headers={"Authorization": "Bearer wrong"})[0] == 401
        status, body = server.ask({"instances": ["a"]}, headers={"Authorization": "Bearer s3cret"})
        assert (status, "labels" in body["predictions"][0]) == (200, True)
        assert (
            server.ask({"instances": ["a"]}, headers={"Authorization": "bEARER s3cret", "Host": "any.name"})[0] == 200
        )
        assert server.ask({"instances": ["a"]}, headers={"Authorization": "Basic s3cret"})[0] == 401
        assert server.ask({"instances": ["a"]}, headers={"Authorization": "s3cret"})[0] == 401
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = b'13\r\n{"instances":["a"]}\r\n0\r\n'
        assert exchanged(server, head + chunks + b"\r\n").startswith(b"HTTP/1.1 401 ")
        trailer = b"Authorization: Bearer s3cret\r\n\r\n"
        assert exchanged(server, head + chunks + trailer).startswith(b"HTTP/1.1 401 "), "what comes after the body"
        assert exchanged(server, head[:-2] + trailer + chunks + b"\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_token_may_have_any_letters(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["single"].bundle, "--workers", "1", TAGLINE_TOKEN="geheim-é") as server:
        for token, status in (("geheim-é".encode(), 200), ("geheim-é".encode("latin-1"), 200), (b"geheim-e", 401)):
            answer = httpx.post(
                f"{server.address}/predict", json={"instances": [TEXT]}, headers={"Authorization": b"Bearer " + token}
            )
            assert answer.status_code == status


def test_a_page_elsewhere_cannot_ask_by_a_name_of_its_own(server: Server, runs: dict[str, tagline.Run]) -> None:
    """Its name may be bound to 127.0.0.1 after the browser has loaded it (DNS rebinding)."""
    body = {"instances": [TEXT]}
    own = ("localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:1234", "[::1]", "[::1]:8080", "localhost.:1")
    for host in own:
        assert server.ask(body, headers={"Host": host})[0] == 200, host
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"):
        status, answer = server.ask(body, headers={"Host": host})
        assert (status, answer["error"]) == (
            403,
            f'this server is not "{host}"; --allow-host makes it so, or a token in TAGLINE_TOKEN',
        )
    for path in ("/", "/info", "/health"):
        assert httpx.get(server.address + path, headers={"Host": "evil.example"}).status_code == 403
    assert ServerSettings(allowed_hosts=("Proxy.example",)).is_own_host("proxy.example:443")
    assert ServerSettings(host="0.0.0.0").is_own_host("any.example"), "other machines can ask it anyway"


@pytest.mark.parametrize("host", ["", "  "])
def test_an_empty_host_is_not_every_host(tagline: Any, runs: dict[str, Any], host: str) -> None:
    done = tagline("serve", runs["single"].bundle, "--host", host)
    assert done.code == 2
    assert "the host to listen on is empty" in done.err


def test_a_page_runs_and_shows_nothing_that_it_did_not_bring(server: Server) -> None:
    for path in ("/", "/docs"):
        policy = httpx.get(server.address + path).headers["content-security-policy"]
        assert "'sha256-" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


def test_told_to_stop_it_finishes_what_it_has_and_ends_with_0(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["single"].bundle) as server:
        found: list[Any] = []
        many = {"instances": [f"{TEXT} number {number} " * 20 for number in range(900)]}
        thread = threading.Thread(target=lambda: found.append(server.ask(many)))
        thread.start()
        while 'route="/predict"' not in server.get("/metrics")[1] and thread.is_alive():
            if server.get("/metrics")[1].find("tagline_batch_texts_count 0") == -1:
                break  # it is being computed
        server.process.send_signal(signal.SIGTERM)
        assert server.stop() == 0  # told twice, as by who stops a whole group of processes
        thread.join()
        assert found[0][0] == 200
        assert len(found[0][1]["predictions"]) == 900


def test_told_to_stop_once_more_when_it_has_stopped_it_still_ends_with_0(runs: dict[str, tagline.Run]) -> None:
    code = "import sys; from tagline.cli import run; code = run(sys.argv[1:]); sys.stdin.read(); sys.exit(code)"
    with serving_python("-c", code, "serve", str(runs["single"].bundle), "--port", "{port}") as server:
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log('"stopped"')
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(timeout=180) == 0


def test_a_new_bundle_takes_the_place_of_the_old_one_and_nobody_notices(
    runs: dict[str, tagline.Run], tmp_path: Path
) -> None:
    """Four connections that are kept open ask all the time, and each request is answered: by the old or by the new."""
    place = tmp_path / "bundle"
    shutil.copytree(runs["single"].bundle, place)
    kinds: list[list[str]] = [[] for _ in range(4)]
    is_over = threading.Event()

    def ask(kind: list[str]) -> None:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            while not is_over.is_set():
                answer = client.post("/predict", json={"instances": [TEXT]})
                assert answer.status_code == 200
                kind.append("multi" if "labels" in answer.json()["predictions"][0] else "single")

    with serving(place, "--workers", "2") as server, ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, kind) for kind in kinds]
        try:
            shutil.rmtree(place)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log("reload failed")
            assert all(kind == "single" for each in kinds for kind in each), "what cannot be loaded changes nothing"
            shutil.copytree(runs["multi"].bundle, place)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log('"reloaded"')
            until(
                lambda: all("multi" in each[-1:] for each in kinds) or any(task.done() for task in asking),
                "everybody to be answered by the new bundle",
            )
        finally:
            is_over.set()
        for task in asking:
            task.result()
        assert all("multi" in each[-1:] for each in kinds)
        assert server.stop() == 0


def test_a_process_that_is_killed_is_replaced(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["single"].bundle, "--workers", "2") as server:
        first = server.children
        assert len(first) == 2
        os.kill(int(first[0]), signal.SIGKILL)
        server.wait_for_log("a process ended")
        for _ in range(20):
            assert server.ask({"instances": [TEXT]})[0] == 200
        until(lambda: len(server.children) == 2, "another process in its place")
        assert first[0] not in server.children
        assert server.stop() == 0


def test_processes_go_when_their_parent_is_killed(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["single"].bundle, "--workers", "2") as server:
        children = server.children
        assert len(children) == 2
        server.process.kill()
        until(lambda: not any(map(is_alive, children)), "the processes to go")


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second where it goes while it is read
        return False


def test_figures_are_those_of_all_processes(runs: dict[str, tagline.Run]) -> None:
    with serving(runs["single"].bundle, "--workers", "3") as server:
        for _ in range(30):
            server.ask({"instances": [TEXT, TEXT]})
        for _ in range(5):
            shown = server.get("/metrics")[1]
            assert 'tagline_requests_total{route="/predict",status="200"} 30' in shown
            assert "tagline_request_seconds_count 30" in shown
            counted = re.findall(r"tagline_answers_total\{.*\} (\d+)", shown)
            assert sum(map(int, counted)) == 60


def test_a_client_that_sends_slowly_or_goes_away_harms_nobody(server: Server) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    held = []
    for number in range(50):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
            if number % 2
            else b"POST /pre"
        )
        held.append(connection)
    assert server.ask({"instances": [TEXT]})[0] == 200
    for connection in held:
        connection.close()
    assert server.ask({"instances": [TEXT]})[0] == 200


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["serve"], 2, "no bundle to serve"),
        (["serve", "nowhere"], 4, "there is no run or bundle nowhere"),
    ],
)
def test_what_cannot_be_served_is_said(tagline: Any, arguments: list[str], code: int, said: str) -> None:
    done = tagline(*arguments)
    assert done.code == code
    assert said in done.err


def test_a_port_in_use_is_said(server: Server, runs: dict[str, Any], tagline: Any) -> None:
    done = tagline("serve", runs["single"].bundle, "--port", server.address.rsplit(":", 1)[1])
    assert done.code == 5
    assert "cannot serve on" in done.err
