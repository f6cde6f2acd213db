"""HTTP over connections that stay open, by bytes on real sockets."""

import asyncio
import gc
import json
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvloop

from tagline.serving import http
from tagline.serving.http import HttpRequest, HttpResponse, HttpServer

HANGS_S = 60
"""What has not come by then never will."""
CHUNKED = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


class Desk:
    """Answers each request with what it understood of it, once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.may.set()
        self.seen: list[HttpRequest] = []
        self.clients = HttpServer(self.answer, body_bytes=100)
        self.port = 0

    async def answer(self, request: HttpRequest) -> HttpResponse:
        self.seen.append(request)
        await self.may.wait()
        told = {"method": request.method, "path": request.path, "body": request.body.decode()}
        told |= {"token": request.header(b"authorization")} if b"authorization" in request.headers else {}
        status = request.problem.status if request.problem else 200
        return HttpResponse(json.dumps(told).encode(), status=status, headers={"x-request-id": "7"})

    async def wait_for(self, count: int) -> None:
        while len(self.seen) < count:
            await asyncio.sleep(0.001)


Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(desk: Desk, *, timeout_s: float = 5) -> AsyncIterator[Callable[[], Any]]:
    """A process that serves, told to stop at the end; gives what connects to it."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    is_ready = asyncio.Event()
    serving = asyncio.create_task(desk.clients.serve(listening, is_ready.set, timeout_s=timeout_s))
    await is_ready.wait()
    desk.port = listening.getsockname()[1]

    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Open:
        reader, writer = await asyncio.open_connection("127.0.0.1", desk.port)
        opened.append(writer)
        return reader, writer

    try:
        yield connect
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(serving, HANGS_S)
        while desk.clients.connections:
            await asyncio.sleep(0.001)
    finally:
        for writer in opened:
            writer.close()


def post(body: bytes, *headers: bytes, path: bytes = b"/a", version: bytes = b"1.1") -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST %s HTTP/%s\r\nContent-Length: %d\r\n%s\r\n%s" % (path, version, len(body), lines, body)


async def read(reader: asyncio.StreamReader, *, has_body: bool = True) -> tuple[int, dict[str, str], Any]:
    """The next answer: status, headers, body."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANGS_S)).decode()
    first, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"])) if has_body else b"null"
    return int(first.split()[1]), headers, json.loads(body) if headers["content-type"] == "application/json" else body


def run(story: Callable[[Desk, Callable[[], Any]], Any]) -> None:
    async def told() -> None:
        desk = Desk()
        async with served(desk) as connect:
            await asyncio.wait_for(story(desk, connect), HANGS_S)
        assert desk.clients.asking == 0

    uvloop.run(told())


def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    async def story(desk: Desk, connect: Any) -> None:
        reader, writer = await connect()
        desk.may.clear()
        writer.write(post(b"one") + post(b"two") + CHUNKED + b"GET /b%20c?d=e HTTP/1.1\r\n")
        await desk.wait_for(1)
        assert desk.clients.asking == 3, "heads that have come count, answered one by one"
        desk.may.set()
        for said in ("one", "two", "abcde"):
            status, headers, body = await read(reader)
            assert (status, body["body"], "connection" in headers) == (200, said, False)
            assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", headers["date"])
        writer.write(b"X: y\r\n\r\n")
        assert (await read(reader))[2] == {"method": "GET", "path": "/b c", "body": ""}

    run(story)


def test_a_head_request_gets_no_body() -> None:
    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(b"HEAD /a HTTP/1.1\r\n\r\n" + post(b"one"))
        assert int((await read(reader, has_body=False))[1]["content-length"]) > 0
        assert (await read(reader))[2]["body"] == "one"

    run(story)


@pytest.mark.parametrize("request_", [post(b"one", b"Connection: close"), post(b"one", version=b"1.0")])
def test_who_asks_for_one_answer_gets_one(request_: bytes) -> None:
    async def story(desk: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(request_ + post(b"two"))
        assert (await read(reader))[1]["connection"] == "close"
        assert await reader.read() == b""
        assert len(desk.seen) == 1

    run(story)


def test_who_waits_to_be_told_to_send_its_body_is_told() -> None:
    async def story(desk: Desk, connect: Any) -> None:
        reader, writer = await connect()
        head, _, body = post(b"one", b"Expect: 100-continue").partition(b"\r\n\r\n")
        desk.may.clear()
        writer.write(post(b"zero") + head + b"\r\n\r\n")
        await desk.wait_for(1)
        desk.may.set()
        assert (await read(reader))[2]["body"] == "zero", "what was asked before is answered first"
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read(reader))[2]["body"] == "one"

    run(story)


def test_a_body_that_is_too_large_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DISCARDED_BYTES", 10_000)

    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(post(b"x" * 101) + post(b"x" * 100))
        assert (await read(reader))[0] == 413
        assert (await read(reader))[0] == 200
        writer.write(post(b"x" * 300_000))
        status, headers, _body = await read(reader)
        assert (status, headers["connection"]) == (413, "close"), "there is an end to reading too"
        assert await reader.read() == b""

    run(story)


def test_nobody_is_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_patience_in(short: str) -> None:
        for phase in ("head", "body", "idle"):
            monkeypatch.setitem(http.PATIENCE_S, phase, 0.1 if phase == short else HANGS_S)

    async def story(desk: Desk, connect: Any) -> None:
        lose_patience_in("head")
        for sent in (b"", b"POST /a HT", post(b"one")[:20]):
            reader, writer = await connect()
            writer.write(sent)
            with suppress(ConnectionResetError):  # where it was closed before anything came
                assert await reader.read() == b""
        assert desk.seen == []
        lose_patience_in("body")
        reader, writer = await connect()
        writer.write(post(b"one")[:-1])
        status, headers, _ = await read(reader)
        assert (status, headers["connection"]) == (408, "close")
        assert await reader.read() == b""
        lose_patience_in("idle")
        reader, writer = await connect()
        desk.may.clear()
        writer.write(post(b"one"))
        await desk.wait_for(2)
        [asked] = [connection for connection in desk.clients.connections if connection._phase == "answer"]
        assert asked._timer is None
        await asyncio.sleep(0.3)
        desk.may.set()
        assert (await read(reader))[0] == 200, "who waits for us has time"
        assert await reader.read() == b"", "and is not kept for ever after it"

    run(story)


def test_a_head_that_comes_in_small_pieces_is_not_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http.PATIENCE_S, "head", 0.3)

    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        closed = asyncio.create_task(reader.read())
        for _ in range(100):
            if closed.done():
                break
            writer.write(b"x" if _ else b"POST /")
            await asyncio.sleep(0.02)
        assert closed.done()

    run(story)


@pytest.mark.parametrize(
    "sent",
    [b"no request\r\n\r\n", b"POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n",
     b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     b"GET /a HTTP/1.1\r\nX: ".ljust(300_000, b"a")],
)  # fmt: skip
def test_what_is_no_request_is_refused_after_what_was_one(sent: bytes) -> None:
    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(sent)
        status, headers, _body = await read(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert await reader.read() == b""
        reader, writer = await connect()
        writer.write(post(b"one"))
        assert (await read(reader))[0] == 200
        writer.write(sent)
        assert (await read(reader))[0] == 400

    run(story)


def test_who_keeps_sending_what_is_not_wanted_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http.PATIENCE_S, "rest", 0.1)

    async def story(desk: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(b"no request\r\n\r\n")
        assert (await read(reader))[0] == 400
        assert await reader.read() == b"", "it is told at once that nothing follows"
        with suppress(ConnectionError):
            while desk.clients.connections:
                writer.write(b"more of it")
                await writer.drain()
                await asyncio.sleep(0.001)

    run(story)


def test_an_answer_that_is_owed_is_given_before_a_connection_ends() -> None:
    async def story(desk: Desk, connect: Any) -> None:
        desk.may.clear()
        (idle, _), (asked, asking), (coming, sending) = [await connect() for _ in range(3)]
        asking.write(post(b"one") + post(b"two"))
        sending.write(post(b"three")[:-1])
        await desk.wait_for(1)
        while desk.clients.asking < 3:
            await asyncio.sleep(0.001)
        for connection in list(desk.clients.connections):
            connection.finish()
        assert await idle.read() == b""
        desk.may.set()
        sending.write(b"e")
        assert "connection" not in (await read(asked))[1]
        for reader in (asked, coming):
            assert (await read(reader))[1]["connection"] == "close"
            assert await reader.read() == b""

    run(story)


def test_who_is_still_there_when_others_have_taken_over_is_told_so_with_an_answer() -> None:
    async def story(desk: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(post(b"one"))
        assert "connection" not in (await read(reader))[1]
        desk.clients.are_leaving = True
        late, latest = await connect()
        for from_, to in ((reader, writer), (late, latest)):
            to.write(post(b"two")[:10])
            await asyncio.sleep(0.05)
            to.write(post(b"two")[10:])
            assert (await read(from_))[1]["connection"] == "close"
            assert await from_.read() == b""

    run(story)


def test_an_answer_that_takes_too_long_holds_up_no_stop() -> None:
    async def told() -> None:
        desk = Desk()
        desk.may.clear()
        async with served(desk, timeout_s=0.1) as connect:
            reader, writer = await connect()
            writer.write(post(b"one"))
            await desk.wait_for(1)
        assert await reader.read() == b""
        desk.may.set()

    uvloop.run(told())


def test_nobody_waits_for_an_answer_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(desk: Desk, connect: Any) -> None:
        async def fail(_: HttpRequest) -> HttpResponse:
            raise ValueError("a bug")

        desk.clients.answer = fail
        reader, writer = await connect()
        writer.write(post(b"one") + post(b"two"))
        assert await reader.read() == b""
        while desk.clients.connections:
            await asyncio.sleep(0.001)

    run(story)
    gc.collect()
    assert "a bug" in caplog.text


def test_who_goes_away_before_its_body_is_there_is_no_riddle() -> None:
    async def story(desk: Desk, connect: Any) -> None:
        _, writer = await connect()
        writer.write(post(b"one")[:-1])
        while not desk.clients.asking:
            await asyncio.sleep(0.001)
        writer.close()
        await desk.wait_for(1)
        assert desk.seen[0].problem is not None
        assert "went away" in desk.seen[0].problem.message

    run(story)


def test_who_does_not_take_its_answers_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http.PATIENCE_S, "idle", 0.2)

    async def story(desk: Desk, connect: Any) -> None:
        del connect
        large = HttpResponse(b"x" * 2_000_000)

        async def answer(request: HttpRequest) -> HttpResponse:
            desk.seen.append(request)
            return large

        desk.clients.answer = answer
        with socket.create_connection(("127.0.0.1", desk.port)) as stuck:
            stuck.setblocking(False)
            for _ in range(100):
                try:
                    stuck.send(post(b"one"))
                except (BlockingIOError, ConnectionError):
                    break
                await asyncio.sleep(0.01)
            while desk.clients.connections:
                await asyncio.sleep(0.01)
        assert 0 < len(desk.seen) < 20

    run(story)


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"


@pytest.mark.parametrize("piece", [1, 7, 1000])
@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (post(b"one", OFFER[:-2]), "one"),
        (post(b"Upgrade: h2c\r\n\r\n", OFFER[:-2]), "Upgrade: h2c\r\n\r\n"),
        (CHUNKED.replace(b"\r\n\r\n", b"\r\n" + OFFER + b"\r\n", 1), "abcde"),
        (b"POST /a HTTP/1.1\r\n" + OFFER + b"\r\n", ""),
        (post(b"a body\r\n\r\nupgrade: of bytes\r\n"), "a body\r\n\r\nupgrade: of bytes\r\n"),
    ],
)
def test_an_offer_of_another_protocol_changes_no_byte_of_a_request(sent: bytes, body: str, piece: int) -> None:
    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        for whole in (sent, sent, post(b"two")):
            for start in range(0, len(whole), piece):
                writer.write(whole[start : start + piece])
                await asyncio.sleep(0)
        for said in (body, body, "two"):
            assert (await read(reader))[2] == {"method": "POST", "path": "/a", "body": said}

    run(story)


def test_two_lengths_are_refused_behind_an_offer_too() -> None:
    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(post(b"one", OFFER + b"Transfer-Encoding: chunked"))
        assert (await read(reader))[0] == 400

    run(story)


def test_a_trailer_is_no_header() -> None:
    async def story(_: Desk, connect: Any) -> None:
        reader, writer = await connect()
        writer.write(CHUNKED[:-2] + b"Authorization: Bearer t0ken\r\n\r\n" + post(b"two"))
        assert (await read(reader))[2] == {"method": "POST", "path": "/a", "body": "abcde"}
        assert (await read(reader))[2] == {"method": "POST", "path": "/a", "body": "two"}

    run(story)


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (CHUNKED[:-2] + b"X: ", b"a" * 10_000),
        (CHUNKED[:-2], b"X: %s\r\n" % (b"a" * 100) * 100),
        (CHUNKED[:-5], b"1;%s\r\na\r\n" % (b"e" * 1000)),
        (CHUNKED[:-5] + b"1;", b"e" * 10_000),
    ],
)
def test_all_that_surrounds_a_body_has_a_bound(begun: bytes, more: bytes) -> None:
    """A trailer without an end, too many of them, chunks that are hardly more than their own description."""

    async def story(desk: Desk, connect: Any) -> None:
        desk.clients.body_bytes = 10**9
        reader, writer = await connect()
        writer.write(begun)
        answer = asyncio.create_task(read(reader))
        sent = 0
        while not answer.done():
            assert sent < 50 * http.FRAMING_BYTES, "it is read without a limit"
            writer.write(more)
            sent += len(more)
            with suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0)
        status, headers, _ = await answer
        assert (status, headers["connection"]) == (413, "close")

    run(story)
