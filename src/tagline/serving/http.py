"""HTTP/1.1 with keep-alive and pipelining: requests bounded in size and time, answered in order."""

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
"""Limit of a request line with its headers."""
FRAMING_BYTES = 128 * 2**10
"""Limit of everything but the body: request line, headers, chunk sizes and extensions, trailers."""
DISCARDED_BYTES = 32 * 2**20
"""How much of a body that is too large is read and discarded: a client that is still sending would not see the 413."""
LEAVING_S = 3.0
"""How long keep-alive connections may get a last response with `connection: close` after a handover."""
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

Phase = Literal["answer", "body", "head", "idle", "rest"]
"""What a connection waits for: our response, the rest of a body, the rest of a head, the next request; or ("rest") the
client to close: closing first, while it still sends, would reset the connection before the response arrives."""
PATIENCE_S: dict[Phase, float] = {"body": 20.0, "head": 20.0, "idle": 5.0, "rest": 2.0}
"""Time-out of each phase."""


@dataclass(slots=True)
class HttpRequest:
    """A request, with its whole body."""

    method: str
    path: str
    headers: Mapping[bytes, bytes]
    """Keyed by name in lower case."""
    keeps_alive: bool
    body: bytes = b""
    problem: RefusedRequest | None = None
    """Why the body is incomplete."""

    def header(self, name: bytes) -> str:
        """Return the value of a header, or an empty string."""
        return self.headers.get(name, b"").decode("latin-1")


@dataclass(slots=True)
class HttpResponse:
    """A response."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def to_bytes(self, *, has_body: bool, closes: bool) -> bytes:
        """Serialise the response; `closes` announces that the connection ends with it."""
        more = "".join([f"{name}: {value}\r\n" for name, value in self.headers.items()])
        last = "connection: close\r\n" if closes else ""
        head = (
            f"{STATUS_LINES[self.status]}date: {_format_date(int(time.time()))}\r\ncontent-type: {self.kind}\r\n"
            f"content-length: {len(self.body)}\r\n{more}{last}\r\n"
        )
        return head.encode("latin-1") + self.body if has_body else head.encode("latin-1")


Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Handles every request; if it raises, the connection is aborted."""
Check = Callable[[], bool]
"""Returns whether this process can still answer; it shuts down once it cannot."""


class HttpServer:
    """The connections of one process."""

    def __init__(self, answer: Answer, *, body_bytes: int) -> None:
        self.answer = answer
        self.body_bytes = body_bytes
        """Limit of a request body."""
        self.connections: set[HttpConnection] = set()
        self.asking = 0
        """Requests whose head has been read and whose response has not been written."""
        self.are_leaving = False
        """Whether the next response of each connection closes it, so that clients reconnect to the new processes."""

    async def serve(
        self, on: socket.socket, ready: prefork.Ready, *, timeout_s: float, can_answer: Check = lambda: True
    ) -> None:
        """Serve until SIGTERM, SIGINT or `prefork.LEAVE`, then shut down gracefully within `timeout_s`.

        A process that cannot answer any more shuts down by itself, so that another replaces it.
        """
        loop = asyncio.get_running_loop()
        is_stopping = asyncio.Event()
        listening = await loop.create_server(lambda: HttpConnection(self, loop), sock=on, backlog=prefork.BACKLOG)

        def leave() -> None:
            listening.close()
            self.are_leaving = True
            loop.call_later(LEAVING_S, is_stopping.set)

        def send_heartbeat() -> None:
            ready()
            if not can_answer():
                is_stopping.set()
            loop.call_later(prefork.BEAT_S, send_heartbeat)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, is_stopping.set)
        loop.add_signal_handler(prefork.LEAVE, leave)
        send_heartbeat()
        try:
            await is_stopping.wait()
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
    """One client connection: requests are answered in order, and every wait has a time-out."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self._parser = self._create_parser()
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._request_bytes = 0
        """Bytes of the incoming request, head and body."""
        self._body = bytearray()
        self._body_bytes = 0
        self._incoming: HttpRequest | None = None
        """The request whose body is still being read."""
        self._queue: deque[HttpRequest] = deque()
        """Requests not answered yet; the first is being answered."""
        self._answering: asyncio.Task[None] | None = None
        """Referenced here because the event loop keeps only a weak reference to a task."""
        self._phase: Phase = "idle"
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = True
        """Whether a head is being read; a new connection counts as one that has begun."""
        self._owes_continue = False
        self._is_reframed = False
        """Whether the body of the incoming request is read by a second parser, see `_feed_parser`."""
        self._ignores_input = False
        """Whether further input is ignored."""
        self._is_cut_short = False
        """Whether the client may still be sending a request that was refused."""
        self._is_ending = False
        """Whether the connection closes after the responses that are due."""
        self._is_write_blocked = False
        """Whether the client does not read its responses: the write buffer is full."""
        self._is_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client connects."""
        self._transport = transport
        self._server.connections.add(self)
        self._update_phase()

    def data_received(self, data: bytes) -> None:
        """Called with each piece of input."""
        if self._ignores_input:
            return
        self._request_bytes += len(data)
        if self._incoming is None:
            self._head_bytes += len(data) if (end := data.find(b"\r\n\r\n")) < 0 else end
            if self._head_bytes > HEAD_BYTES:
                self._refuse_data(f"What stands before the body has more than {HEAD_BYTES:,} bytes.")
                return
        try:
            self._feed_parser(data)
        except httptools.HttpParserError:
            self._refuse_data("Invalid HTTP request received.")
        else:
            if self._incoming is not None and self._request_bytes - self._body_bytes > FRAMING_BYTES:
                self._refuse_request(
                    RefusedRequest(413, f"what surrounds the body has more than {FRAMING_BYTES:,} bytes")
                )
                return
            self._update_phase()

    def _feed_parser(self, data: bytes) -> None:
        """Feed the parser, which stops after a head with an `Upgrade` header, as Java's own client sends for HTTP/2.

        No upgrade is supported, and a server may ignore the offer (RFC 9110, 7.8). What follows is a body framed by
        that head, and is read by a new parser that is given only the framing headers.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            incoming = self._incoming
            if incoming is None:
                raise httptools.HttpParserError("another protocol") from stopped
            self._parser = self._create_parser()
            names = [name for name in (b"transfer-encoding", b"content-length") if name in self._headers]
            framing = b"".join(name + b": " + self._headers[name] + b"\r\n" for name in names)
            self._parser.feed_data(incoming.method.encode() + b" / HTTP/1.1\r\n" + framing + b"\r\n")
            self._feed_parser(data[stopped.args[0] :])

    def _create_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Input after a request with `connection: close` is read and ignored: its response would not arrive otherwise.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def on_message_begin(self) -> None:
        """Called by the parser when a request begins."""
        self._has_begun = True
        if self._incoming is None:
            self._url, self._headers = b"", {}

    def on_url(self, url: bytes) -> None:
        """Called by the parser with each piece of the request target."""
        if self._incoming is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header; of several with one name the first counts. Trailers are ignored."""
        if self._incoming is not None:
            return
        name = name.lower()
        if name == b"transfer-encoding" and name in self._headers:
            self._headers[name] += b", " + value
        self._headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        """Called by the parser when the head is complete."""
        if self._ignores_input:
            return
        if self._is_reframed:
            self._is_reframed = False
            return
        path = (httptools.parse_url(self._url).path or b"/").decode("latin-1")
        keeps_alive = self._parser.should_keep_alive() and self._parser.get_http_version() != "1.0"
        method = self._parser.get_method().decode("ascii")
        self._incoming = HttpRequest(method, unquote(path) if "%" in path else path, self._headers, keeps_alive)
        self._body, self._body_bytes = bytearray(), 0
        self._owes_continue = self._headers.get(b"expect", b"").lower() == b"100-continue"
        self._is_reframed = self._parser.should_upgrade()
        self._server.asking += 1

    def on_body(self, body: bytes) -> None:
        """Called by the parser with each piece of the body."""
        if self._incoming is None:
            return
        self._body_bytes += len(body)
        if self._body_bytes <= self._server.body_bytes:
            self._body += body
        elif self._body_bytes > self._server.body_bytes + DISCARDED_BYTES:
            self._refuse_request(self._make_size_error())

    def on_message_complete(self) -> None:
        """Called by the parser when the request is complete."""
        if self._is_reframed:  # only its head is complete
            return
        self._has_begun, self._head_bytes, self._request_bytes = False, 0, 0
        if self._incoming is None:
            return
        if self._body_bytes > self._server.body_bytes:
            self._incoming.problem = self._make_size_error()
        self._ignores_input = not self._incoming.keeps_alive
        self._enqueue_request(self._incoming)

    def pause_writing(self) -> None:
        """Called when the write buffer is full."""
        self._is_write_blocked = True
        self._update_phase()

    def resume_writing(self) -> None:
        """Called when the write buffer has drained."""
        self._is_write_blocked = False
        self._update_phase()

    def connection_lost(self, _: Exception | None) -> None:
        """Called when the connection is closed or lost."""
        self._server.connections.discard(self)
        del self._parser  # it refers to this connection
        if self._incoming is not None:
            self._refuse_request(RefusedRequest(400, "the client went away before its body was there"))
        self._update_phase()

    def finish(self) -> None:
        """Close the connection after the responses that are due."""
        self._is_ending = True
        self._update_phase()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _make_size_error(self) -> RefusedRequest:
        return RefusedRequest(413, f"the body has more than {self._server.body_bytes:,} bytes")

    def _refuse_data(self, message: str) -> None:
        """Answer input that is no HTTP request, and close the connection."""
        if self._incoming is not None:
            self._refuse_request(RefusedRequest(400, message))
            return
        self._ignores_input = self._is_cut_short = True
        if not self._queue:
            response = HttpResponse(message.encode(), "text/plain; charset=utf-8", 400)
            self._transport.write(response.to_bytes(has_body=True, closes=True))
        self._update_phase()

    def _refuse_request(self, problem: RefusedRequest) -> None:
        """Refuse the incoming request without reading the rest of it, and close the connection."""
        assert self._incoming is not None
        self._incoming.problem = problem
        self._ignores_input = self._is_cut_short = True
        self._enqueue_request(self._incoming)
        self._update_phase()

    def _enqueue_request(self, request: HttpRequest) -> None:
        """Add a request to the queue, and start answering if it is the first."""
        request.body = bytes(self._body)
        self._body = bytearray()
        self._incoming, self._owes_continue = None, False
        self._queue.append(request)
        if len(self._queue) == 1:
            self._answering = self._loop.create_task(self._answer_requests())

    async def _answer_requests(self) -> None:
        """Answer the queued requests in order."""
        try:
            while self._queue:
                request = self._queue[0]
                response = await self._server.answer(request)
                self._queue.popleft()
                self._server.asking -= 1
                self._is_ending |= self._server.are_leaving  # not without a response: the client would not reconnect
                if not self._transport.is_closing():
                    has_body = request.method != "HEAD"
                    self._transport.write(response.to_bytes(has_body=has_body, closes=self._is_at_end()))
        finally:
            if self._queue:  # the handler raised or was cancelled: there is no response to send
                self._server.asking -= len(self._queue)
                self._queue.clear()
                self.abort()
        self._update_phase()

    def _is_at_end(self) -> bool:
        return (self._is_ending or self._ignores_input) and not self._queue and self._incoming is None

    def _update_phase(self) -> None:
        """Set the time-out for what the connection waits for now, or close it if nothing is left to do."""
        phase: Phase = "answer" if self._queue else "body" if self._incoming else "head" if self._has_begun else "idle"
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
        if self._owes_continue and not self._queue:
            self._owes_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._is_paused != (self._is_write_blocked or len(self._queue) > 1):
            self._is_paused = not self._is_paused
            (self._transport.pause_reading if self._is_paused else self._transport.resume_reading)()

    def _time_out(self) -> None:
        self._timer = None
        if self._incoming is not None:
            patience_s = PATIENCE_S["body"]
            self._refuse_request(RefusedRequest(408, f"the body did not come within {patience_s:g} seconds"))
        elif self._is_write_blocked:
            self._transport.abort()
        else:
            self._transport.close()


@lru_cache(maxsize=1)
def _format_date(second: int) -> str:
    """Format a time for the `date` header."""
    return formatdate(second, usegmt=True)
