"""HTTP/1.1 over connections that stay open: requests read within bounds of size and time, answered in their order."""

import asyncio
import signal
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Literal
from urllib.parse import unquote

import httptools

from tagline.serving import prefork
from tagline.serving.protocol import RefusedRequest

HEAD_BYTES = 64 * 2**10
"""Of what stands before a body."""
FRAMING_BYTES = 128 * 2**10
"""Of all in a request that is no body: request line, headers, sizes and extensions of chunks, trailers."""
DISCARDED_BYTES = 32 * 2**20
"""Of a body that is too large, read and forgotten: a client that still sends would not see why it is refused."""
LEAVING_S = 3.0
"""In which connections that are kept open get their last answer, once other processes have taken over."""
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

Phase = Literal["answer", "body", "head", "idle", "rest"]
"""What a connection waits for: our answer, the rest of a body, the rest of what stands before it, the next request;
or that a client that was cut short goes: the answer does not arrive over one that is closed while more comes."""
PATIENCE_S: dict[Phase, float] = {"body": 20.0, "head": 20.0, "idle": 5.0, "rest": 2.0}
"""Who takes longer holds a connection for nothing."""


@dataclass(slots=True)
class HttpRequest:
    """What was asked."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    """By names in lower case."""
    keeps_alive: bool
    body: bytes = b""
    problem: RefusedRequest | None = None
    """Why its body is not all there."""

    def header(self, name: bytes) -> str:
        """The value of a header; empty where there is none."""
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True)
class HttpResponse:
    """What is answered."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def to_bytes(self, *, has_body: bool, closes: bool) -> bytes:
        """As it goes over the wire."""
        more = "".join([f"{name}: {value}\r\n" for name, value in self.headers.items()])
        last = "connection: close\r\n" if closes else ""
        head = (
            f"{STATUS_LINES[self.status]}date: {_format_date(int(time.time()))}\r\ncontent-type: {self.kind}\r\n"
            f"content-length: {len(self.body)}\r\n{more}{last}\r\n"
        )
        return head.encode("latin-1") + self.body if has_body else head.encode("latin-1")


Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""What answers a request, whatever it is; where it fails, the connection ends."""
Check = Callable[[], bool]
"""Whether this process can answer; once it cannot, it ends."""


class HttpServer:
    """All who are connected to a process."""

    def __init__(self, answer: Answer, *, body_bytes: int) -> None:
        self.answer = answer
        self.body_bytes = body_bytes
        """Of a body, at most."""
        self.connections: set[HttpConnection] = set()
        self.asking = 0
        """Requests whose head has come and whose answer has not gone."""
        self.are_leaving = False
        """Whether each is told with its next answer to connect again: to the processes that have taken over."""

    async def serve(
        self, on: socket.socket, ready: prefork.Ready, *, timeout_s: float, can_answer: Check = lambda: True
    ) -> None:
        """Serve until SIGTERM, Ctrl-C or `prefork.LEAVE`, and then finish what is there, within this time.

        A process that cannot answer any more does the same by itself, so that another takes its place.
        """
        loop = asyncio.get_running_loop()
        is_told = asyncio.Event()
        listening = await loop.create_server(lambda: HttpConnection(self, loop), sock=on, backlog=prefork.BACKLOG)

        def leave() -> None:
            listening.close()
            self.are_leaving = True
            loop.call_later(LEAVING_S, is_told.set)

        def beat() -> None:
            ready()
            if not can_answer():
                is_told.set()
            loop.call_later(prefork.BEAT_S, beat)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, is_told.set)
        loop.add_signal_handler(prefork.LEAVE, leave)
        beat()
        try:
            await is_told.wait()
            listening.close()
            for connection in list(self.connections):
                connection.finish()
            ends = loop.time() + timeout_s
            while self.connections and loop.time() < ends:
                await asyncio.sleep(0.01)
        finally:
            listening.close()
            for connection in list(self.connections):
                connection.abort()


class HttpConnection(asyncio.Protocol):
    """A client: what it asks is answered one by one, and it is never waited for without an end."""

    def __init__(self, clients: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._clients, self._loop = clients, loop
        self._parser = self._create_parser()
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._request_bytes = 0
        """Of the request that is coming, whatever part of it they are."""
        self._body = bytearray()
        self._body_bytes = 0
        self._coming: HttpRequest | None = None
        """Whose body is not all there."""
        self._asked: deque[HttpRequest] = deque()
        """What is not answered yet; the first is being answered."""
        self._answering: asyncio.Task[None] | None = None
        """Kept, because nobody else keeps it."""
        self._phase: Phase = "idle"
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = True
        """Whether a head has; who connects and says nothing is waited for as if it had."""
        self._owes_continue = False
        self._is_reframed = False
        """Whether the parser has left the body of the request that is coming to another one."""
        self._is_deaf = False
        """Whether what comes is passed over."""
        self._is_cut_short = False
        """Whether the client may still be sending what is not waited for."""
        self._is_ending = False
        """Whether it ends when nothing is owed any more."""
        self._is_stuck = False
        """Whether the client does not take what it is sent."""
        self._is_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there."""
        self._transport = transport
        self._clients.connections.add(self)
        self._update_phase()

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        if self._is_deaf:
            return
        self._request_bytes += len(data)
        if self._coming is None:
            self._head_bytes += len(data) if (end := data.find(b"\r\n\r\n")) < 0 else end
            if self._head_bytes > HEAD_BYTES:
                self._refuse_data(f"What stands before the body has more than {HEAD_BYTES:,} bytes.")
                return
        try:
            self._feed_parser(data)
        except httptools.HttpParserError:
            self._refuse_data("Invalid HTTP request received.")
        else:
            if self._coming is not None and self._request_bytes - self._body_bytes > FRAMING_BYTES:
                self._refuse_request(
                    RefusedRequest(413, f"what surrounds the body has more than {FRAMING_BYTES:,} bytes")
                )
                return
            self._update_phase()

    def _feed_parser(self, data: bytes) -> None:
        """Feed the parser, which stops behind a head that offers another protocol, as Java's own client does HTTP/2.

        There is no other protocol here, and a server may pass over the offer (RFC 9110, 7.8). What follows is a body of
        the length that the head has told, and is read by a new parser that is told only that.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            coming = self._coming
            if coming is None:
                raise httptools.HttpParserError("another protocol") from stopped
            self._parser = self._create_parser()
            names = [name for name in (b"transfer-encoding", b"content-length") if name in self._headers]
            framing = b"".join(name + b": " + self._headers[name] + b"\r\n" for name in names)
            self._parser.feed_data(coming.method.encode() + b" / HTTP/1.1\r\n" + framing + b"\r\n")
            self._feed_parser(data[stopped.args[0] :])

    def _create_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What is sent behind a last request is read and passed over: the answer to that would not arrive otherwise.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._has_begun = True
        if self._coming is None:
            self._url, self._headers = b"", {}

    def on_url(self, url: bytes) -> None:
        """A piece of its address."""
        if self._coming is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of it; of several with one name the first counts. Trailers behind the body do not."""
        if self._coming is not None:
            return
        name = name.lower()
        if name == b"transfer-encoding" and name in self._headers:
            self._headers[name] += b", " + value
        self._headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        """Its head is there."""
        if self._is_deaf:
            return
        if self._is_reframed:
            self._is_reframed = False
            return
        path = (httptools.parse_url(self._url).path or b"/").decode("latin-1")
        keeps_alive = self._parser.should_keep_alive() and self._parser.get_http_version() != "1.0"
        method = self._parser.get_method().decode("ascii")
        self._coming = HttpRequest(method, unquote(path) if "%" in path else path, self._headers, keeps_alive)
        self._body, self._body_bytes = bytearray(), 0
        self._owes_continue = self._headers.get(b"expect", b"").lower() == b"100-continue"
        self._is_reframed = self._parser.should_upgrade()
        self._clients.asking += 1

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        if self._coming is None:
            return
        self._body_bytes += len(body)
        if self._body_bytes <= self._clients.body_bytes:
            self._body += body
        elif self._body_bytes > self._clients.body_bytes + DISCARDED_BYTES:
            self._refuse_request(self._make_size_error())

    def on_message_complete(self) -> None:
        """All of it is there."""
        if self._is_reframed:  # only its head is
            return
        self._has_begun, self._head_bytes, self._request_bytes = False, 0, 0
        if self._coming is None:
            return
        if self._body_bytes > self._clients.body_bytes:
            self._coming.problem = self._make_size_error()
        self._is_deaf = not self._coming.keeps_alive
        self._enqueue_request(self._coming)

    def pause_writing(self) -> None:
        """The client takes nothing."""
        self._is_stuck = True
        self._update_phase()

    def resume_writing(self) -> None:
        """It does again."""
        self._is_stuck = False
        self._update_phase()

    def connection_lost(self, _: Exception | None) -> None:
        """Nobody is there any more."""
        self._clients.connections.discard(self)
        del self._parser  # which refers to this connection
        if self._coming is not None:
            self._refuse_request(RefusedRequest(400, "the client went away before its body was there"))
        self._update_phase()

    def finish(self) -> None:
        """End it when nothing is owed any more."""
        self._is_ending = True
        self._update_phase()

    def abort(self) -> None:
        """End it as it is."""
        self._transport.abort()

    def _make_size_error(self) -> RefusedRequest:
        return RefusedRequest(413, f"the body has more than {self._clients.body_bytes:,} bytes")

    def _refuse_data(self, message: str) -> None:
        """Answer what is no request, and end it."""
        if self._coming is not None:
            self._refuse_request(RefusedRequest(400, message))
            return
        self._is_deaf = self._is_cut_short = True
        if not self._asked:
            response = HttpResponse(message.encode(), "text/plain; charset=utf-8", 400)
            self._transport.write(response.to_bytes(has_body=True, closes=True))
        self._update_phase()

    def _refuse_request(self, problem: RefusedRequest) -> None:
        """Answer a request whose body is not waited for any longer, and end it."""
        assert self._coming is not None
        self._coming.problem = problem
        self._is_deaf = self._is_cut_short = True
        self._enqueue_request(self._coming)
        self._update_phase()

    def _enqueue_request(self, request: HttpRequest) -> None:
        """Have a request answered when its turn comes."""
        request.body = bytes(self._body)
        self._body = bytearray()
        self._coming, self._owes_continue = None, False
        self._asked.append(request)
        if len(self._asked) == 1:
            self._answering = self._loop.create_task(self._answer_requests())

    async def _answer_requests(self) -> None:
        """Answer what was asked, one after the other."""
        try:
            while self._asked:
                request = self._asked[0]
                response = await self._clients.answer(request)
                self._asked.popleft()
                self._clients.asking -= 1
                self._is_ending |= self._clients.are_leaving  # not before: who is told nothing would not ask again
                if not self._transport.is_closing():
                    has_body = request.method != "HEAD"
                    self._transport.write(response.to_bytes(has_body=has_body, closes=self._is_at_end()))
        finally:
            if self._asked:  # there is no answer, not even an error: nobody is left to wait for one
                self._clients.asking -= len(self._asked)
                self._asked.clear()
                self.abort()
        self._update_phase()

    def _is_at_end(self) -> bool:
        return (self._is_ending or self._is_deaf) and not self._asked and self._coming is None

    def _update_phase(self) -> None:
        """Wait for what comes next, no longer than that may take; or for nothing."""
        phase: Phase = "answer" if self._asked else "body" if self._coming else "head" if self._has_begun else "idle"
        if self._is_at_end() and not self._transport.is_closing():
            if self._is_cut_short:
                phase = "rest"
                if self._phase != "rest":
                    self._transport.write_eof()
            else:
                self._transport.close()
        if phase != self._phase or self._transport.is_closing():
            self._phase = phase
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if self._transport.is_closing():
            return
        if self._timer is None and phase != "answer":
            self._timer = self._loop.call_later(PATIENCE_S[phase], self._time_out)
        if self._owes_continue and not self._asked:
            self._owes_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._is_paused != (self._is_stuck or len(self._asked) > 1):
            self._is_paused = not self._is_paused
            (self._transport.pause_reading if self._is_paused else self._transport.resume_reading)()

    def _time_out(self) -> None:
        self._timer = None
        if self._coming is not None:
            patience_s = PATIENCE_S["body"]
            self._refuse_request(RefusedRequest(408, f"the body did not come within {patience_s:g} seconds"))
        elif self._is_stuck:
            self._transport.abort()
        else:
            self._transport.close()


@lru_cache(maxsize=1)
def _format_date(second: int) -> str:
    """As the header `date` has it."""
    return formatdate(second, usegmt=True)
