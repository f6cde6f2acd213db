"""The HTTP server: a bundle's answers over the wire, and a page to try them on. Needs no torch."""

import asyncio
import hmac
import json
import math
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tagline import __version__, pages, prefork, prometheus, wire
from tagline.bundle import Bundle, Manifest
from tagline.errors import SpecError, TaglineError
from tagline.models import Prediction
from tagline.predictor import Predictor, shared_out
from tagline.prometheus import SECONDS, SIZES, Count, Histogram, Level
from tagline.queueing import Batcher, Full
from tagline.wire import Limits, Refused

if TYPE_CHECKING:
    from tagline.texts import Text

REQUEST_ID = re.compile(r"[\w.:-]{1,128}")
HEAD_TIMEOUT_S = 20.0
"""To send what stands before a body."""
HEAD_BYTES = 64 * 2**10
"""Of what stands before a body."""
UPGRADE = re.compile(rb"(?im)^upgrade:.*\r\n")
"""A header that offers another protocol; there is none here, and a server may pass over it (RFC 9110, 7.8)."""
BODY_TIMEOUT_S = 20.0
"""To send a body; who takes longer holds a connection for nothing."""
DISCARDED_BYTES = 32 * 2**20
"""Of a body that is too large, read and forgotten: a client that still sends would not see why it is refused."""
RETRY_AFTER_S = 1
LEAVING_S = 3.0
"""In which connections that are kept open get their last answer, once other processes have taken over."""
ROUTES = ("/explain", "/info", "/metrics", "/openapi.json", "/docs", "/")
"""Beside those whose names can be set."""
STATUSES = (200, 400, 401, 408, 413, 429, 500, 503)


@dataclass(frozen=True)
class Settings:
    """How a bundle is served; nothing here changes an answer."""

    host: str = "127.0.0.1"
    port: int = 8080
    predict_route: str = "/predict"
    health_route: str = "/health"
    token: str = ""
    workers: int = 0
    """Processes; 0: one a core, or fewer where several cores work on one text."""
    batch: int = 32
    most_waiting: int = 2000
    """Texts; more are refused with 429."""
    timeout_s: float = 30.0
    limits: Limits = Limits()  # noqa: RUF009 - frozen

    @classmethod
    def of(cls, environment: "os._Environ[str] | dict[str, str]", **given: Any) -> "Settings":
        """What Vertex AI's environment says, unless it is given."""
        port = environment.get("AIP_HTTP_PORT", "")
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise SpecError(f'AIP_HTTP_PORT is "{port}", which is no port')
        for name in ("AIP_PREDICT_ROUTE", "AIP_HEALTH_ROUTE"):
            route = environment.get(name, "")
            if route and not route.startswith("/"):
                raise SpecError(f'{name} is "{route}", which is no path', hint="a path begins with /")
        named = {
            "host": "0.0.0.0" if port else "",  # noqa: S104 - inside Vertex's container, whose network is its own
            "port": int(port) if port else 0,
            "predict_route": environment.get("AIP_PREDICT_ROUTE", ""),
            "health_route": environment.get("AIP_HEALTH_ROUTE", ""),
            "token": environment.get("TAGLINE_TOKEN", ""),
        }
        chosen = {name: value for name, value in named.items() if value}
        return cls(**chosen | {name: value for name, value in given.items() if value is not None})


class Served:
    """A bundle, loaded and ready to answer; so many `threads` work for it in each process."""

    def __init__(self, bundle: Bundle, *, threads: int) -> None:
        self.manifest = bundle.manifest
        self.threads = threads
        self.predictor = Predictor.of(bundle, threads=threads)
        text = ("a first text", "a second text") if self.predictor.pair else "a text"
        self.predictor.predict([text])  # the first answer takes longest: it is nobody's

    def predict(self, texts: "Sequence[Text]", sets: float | None) -> list[Prediction]:
        """The answers, as every other door gives them."""
        return self.predictor.predict(texts, sets=sets)


class Metrics:
    """What Prometheus is told."""

    def __init__(self, manifest: Manifest, settings: Settings, *, processes: int) -> None:
        paths = dict.fromkeys((settings.predict_route, settings.health_route, *ROUTES))
        kinds = [{"route": path, "status": str(status)} for path in paths for status in STATUSES]
        self.requests = Count("tagline_requests_total", "requests by route and status", kinds)
        self.answers = Count("tagline_answers_total", "answers by label", [{"label": name} for name in manifest.labels])
        self.seconds = Histogram("tagline_request_seconds", "time to answer a request", SECONDS)
        self.batches = Histogram("tagline_batch_texts", "texts computed together", SIZES)
        self.waiting = Level("tagline_waiting_texts", "texts that wait to be computed")
        self._figures = (self.requests, self.answers, self.seconds, self.batches, self.waiting)
        self.slots = prometheus.shared(self._figures, processes=processes)
        self._about = {"family": manifest.family, "fingerprint": manifest.fingerprint[:16], "version": __version__}

    def text(self) -> str:
        """All of it, of all processes."""
        lines = [line for each in self._figures for line in each.lines()]
        lines += prometheus.fact("tagline_info", "what is served", self._about)
        return "\n".join(lines) + "\n"


class Routes:
    """What is answered at each address."""

    def __init__(self, served: Served, settings: Settings, metrics: Metrics) -> None:
        self.served = served
        self.settings = settings
        self.metrics = metrics
        self._explaining = 0
        """Texts that are being explained: each is scored as often as it has words, so that few are at once."""
        self.batcher = Batcher(
            served.predict, threads=1, most_waiting=settings.most_waiting,
            batch=1 if served.predictor.stands_alone else settings.batch,
            quick=served.manifest.runtime == "int8" and served.threads == 1,
            see_batch=metrics.batches.see, see_waiting=metrics.waiting.set,
        )  # fmt: skip

    async def predict(self, request: Request) -> Response:
        """Answers for texts."""
        asked = wire.parse(await self._body(request), pair=self.served.predictor.pair, limits=self.settings.limits)
        timeout_s = self.settings.timeout_s
        others = len(request.app.state.requests) - 1
        found = await _answered(self.batcher, asked.texts, sets=asked.sets, beside=others, timeout_s=timeout_s)
        for prediction in found:
            for label in prediction.labels if prediction.labels is not None else (str(prediction.label),):
                self.metrics.answers.add(label)
        return _json(wire.answer(asked, found))

    async def explain(self, request: Request) -> Response:
        """The words that push a text towards a label: for the page."""
        body = await self._body(request)
        asked = wire.parse(body, pair=self.served.predictor.pair, limits=self.settings.limits)
        label = json.loads(body).get("label")
        if len(asked.texts) != 1 or label not in self.served.manifest.labels:
            raise Refused(400, "explain takes one instance and a label of this bundle")
        if self._explaining:
            raise Refused(429, "other texts are being explained; try again in a moment")
        self._explaining += 1
        try:
            pushes = await asyncio.to_thread(self.served.predictor.explain, asked.texts[0], label)
        finally:
            self._explaining -= 1
        return _json({"pushes": [[push.start, push.end, round(push.weight, 4), push.side] for push in pushes]})

    async def health(self, _: Request) -> Response:
        """200 once it can answer."""
        return _json({"status": "ready"})

    async def info(self, _: Request) -> Response:
        """What is served."""
        return _json(_info(self.served))

    async def measured(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def playground(self, _: Request) -> Response:
        """A page to try it on."""
        columns = self.served.manifest.spec["data"]["text"]
        page = pages.playground(
            _info(self.served), predict_route=self.settings.predict_route, needs_token=bool(self.settings.token),
            text=[columns] if isinstance(columns, str) else columns,
        )  # fmt: skip
        return Response(page, media_type="text/html")

    async def described(self, _: Request) -> Response:
        """These routes, for programs."""
        return _json(_openapi(self.served, self.settings))

    async def docs(self, _: Request) -> Response:
        """These routes, for people."""
        return Response(pages.api_page(_openapi(self.served, self.settings)), media_type="text/html")

    async def _body(self, request: Request) -> bytes:
        _authorise(request, self.settings.token)
        return await _body(request, self.settings.limits.body_bytes)


def application(served: Served, settings: Settings, metrics: Metrics) -> Starlette:
    """A bundle's routes as an application."""
    routes = Routes(served, settings, metrics)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await routes.batcher.close()

    # The first that fits answers, so that routes whose names are set come before those of the same name.
    posted = [(settings.predict_route, routes.predict), ("/explain", routes.explain)]
    got = [
        (settings.health_route, routes.health), ("/info", routes.info), ("/metrics", routes.measured),
        ("/openapi.json", routes.described), ("/docs", routes.docs), ("/", routes.playground),
    ]  # fmt: skip
    found = [
        Route(path, _guarded(answer, path, routes), methods=[method])
        for method, answers in (("POST", posted), ("GET", got))
        for path, answer in answers
    ]

    def nowhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        asked = f"{request.method} {request.url.path}"[:200]
        response = _error(error.status_code, f"there is no {asked} here; POST {settings.predict_route} answers")
        response.headers.update(error.headers or {})
        return response

    app = Starlette(routes=found, lifespan=lifespan, exception_handlers={404: nowhere, 405: nowhere})
    app.state.is_leaving = False
    app.state.requests = ()
    return app


def _guarded(
    answer: Callable[[Request], Awaitable[Response]], path: str, routes: Routes
) -> Callable[[Request], Awaitable[Response]]:
    """A route whose errors are answers, and which is counted, timed, named and written down."""

    async def guarded(request: Request) -> Response:
        begun = time.perf_counter()
        given = request.headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        problem = ""
        try:
            response = await answer(request)
        except Refused as refused:
            problem = refused.message
            response = _error(refused.status, problem)
        except TaglineError as error:
            problem = error.message
            response = _error(400, problem)
        except ClientDisconnect:
            problem = "the client went away before its body was there"
            response = _error(400, problem)
        except Exception as error:  # a bug of ours is this request's, not the server's
            problem = f"{type(error).__name__}: {error}"
            response = _error(500, "this is a bug in Tagline; the log has the request's id")
        seconds = time.perf_counter() - begun
        response.headers["x-request-id"] = request_id
        if request.app.state.is_leaving:
            response.headers["connection"] = "close"
        routes.metrics.requests.add(path, str(response.status_code))
        if path == routes.settings.predict_route:
            routes.metrics.seconds.see(seconds)
        if path == routes.settings.predict_route or response.status_code >= 500:
            _log(
                "request", id=request_id, path=path, status=response.status_code, ms=round(1000 * seconds, 2),
                **({"problem": problem} if problem else {}),
            )  # fmt: skip
        return response

    return guarded


async def _body(request: Request, most: int) -> bytes:
    """The whole body, unless it is too large or too slow."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > most + DISCARDED_BYTES:
                    break
    except TimeoutError as error:
        raise Refused(408, f"the body did not come within {BODY_TIMEOUT_S:g} seconds") from error
    if size > most:
        raise Refused(413, f"the body has more than {most:,} bytes")
    return b"".join(parts)


async def _answered(
    batcher: Batcher, texts: "list[Text]", *, sets: float | None, beside: int, timeout_s: float
) -> list[Prediction]:  # fmt: skip
    if not texts:
        return []
    try:
        async with asyncio.timeout(timeout_s):
            return await batcher.ask(texts, sets=sets, beside=beside)
    except Full as error:
        raise Refused(429, "too many texts are waiting; try again in a moment") from error
    except TimeoutError as error:
        raise Refused(503, f"no answer within {timeout_s:g} seconds; try again, or send fewer texts") from error


def _authorise(request: Request, token: str) -> None:
    if not token:
        return
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {token}".encode()):
        raise Refused(401, "give the header: Authorization: Bearer TOKEN")


def _json(value: Any) -> Response:
    return Response(json.dumps(value, ensure_ascii=False).encode(), media_type="application/json")


def _error(status: int, message: str) -> Response:
    response = _json({"error": message})
    response.status_code = status
    if status in (429, 503):
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def _info(served: Served) -> dict[str, Any]:
    manifest, layer = served.manifest, served.predictor.decisions
    return {
        "tagline": __version__, "family": manifest.family, "task": manifest.task, "pair": manifest.pair,
        "labels": list(manifest.labels), "fingerprint": manifest.fingerprint, "figures": manifest.figures,
        "thresholds": list(layer.thresholds), "abstain_below": layer.abstain_below, "sets": bool(layer.floors),
    }  # fmt: skip


def _openapi(served: Served, settings: Settings) -> dict[str, Any]:
    """The routes as an OpenAPI document."""
    problem = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    refused = {"description": "refused", "content": _as_json({"schema": problem})}
    text = ["a first text", "a second text"] if served.manifest.pair else "a text"
    answer = wire.answer_schema(served.manifest.labels, task=served.manifest.task)
    inputs = {"type": "array", "description": "to inputs: labels with their scores"}
    pushes = {"type": "object", "properties": {"pushes": {"type": "array"}}, "required": ["pushes"]}
    label = {"type": "string", "enum": list(served.manifest.labels)}
    explained = {
        "type": "object",
        "required": ["instances", "label"],
        "properties": {
            "instances": {
                "type": "array",
                "items": wire.text_schema(pair=served.manifest.pair),
                "minItems": 1,
                "maxItems": 1,
            },
            "label": label,
        },
    }

    def posted(summary: str, schema: Any, example: Any, answers: Any) -> dict[str, Any]:
        return {"post": {
            "summary": summary,
            "requestBody": {"required": True, "content": _as_json({"schema": schema, "example": example})},
            "responses": {
                "200": {"description": "answers", "content": _as_json({"schema": answers})},
                **dict.fromkeys(map(str, STATUSES[1:]), refused),
            },
        }}  # fmt: skip

    def got(summary: str, kind: str) -> dict[str, Any]:
        return {"get": {"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {}}}}}}

    return {
        "openapi": "3.1.0",
        "info": {"title": "Tagline", "version": __version__},
        "paths": {
            settings.predict_route: posted(
                "Answers for texts.", wire.request_schema(settings.limits, pair=served.manifest.pair),
                {"instances": [text], "parameters": {}}, {"anyOf": [answer, inputs]},
            ),
            "/explain": posted(
                "The words that push a text towards a label.", explained,
                {"instances": [text], "label": served.manifest.labels[0]}, pushes,
            ),
            settings.health_route: got("200 once it can answer.", "application/json"),
            "/info": got("What is served.", "application/json"),
            "/metrics": got("For Prometheus.", "text/plain"),
        },
    }  # fmt: skip


def _as_json(content: Any) -> dict[str, Any]:
    return {"application/json": content}


def _log(event: str, **facts: Any) -> None:
    """A line of JSON on standard error, as Cloud Logging reads it."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    severity = "ERROR" if facts.get("status", 0) >= 500 else "INFO"
    sys.stderr.write(json.dumps({"time": stamp, "severity": severity, "event": event, **facts}) + "\n")


class _Impatient(HttpToolsProtocol):
    """A connection that is closed when a request's head does not come in time, or has no end: uvicorn would wait."""

    _patience: asyncio.TimerHandle | None = None
    _is_head = True
    """Whether what comes next stands before a body."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        if self._is_head:
            head, end, rest = data.partition(b"\r\n\r\n")
            self._head_bytes += len(head)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response(f"What stands before the body has more than {HEAD_BYTES:,} bytes.")
                return
            if b"upgrade" in head.lower():  # as Java's own client offers HTTP/2: the parser would expect no body
                data = UPGRADE.sub(b"", head + end) + rest
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self._done()
        self._is_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Its body is there too."""
        self._is_head, self._head_bytes = True, 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._done()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._done()
        self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _done(self) -> None:
        if self._patience:
            self._patience.cancel()


class _Server(uvicorn.Server):
    """A server that finishes what it has when told to stop, and says when it has begun."""

    def __init__(self, app: Starlette, ready: prefork.Ready, *, timeout_s: float) -> None:
        super().__init__(uvicorn.Config(
            app, http=_Impatient, ws="none", log_level="warning", access_log=False, lifespan="on", server_header=False,
            timeout_graceful_shutdown=math.ceil(timeout_s),
        ))  # fmt: skip
        self._app = app
        app.state.requests = self.server_state.tasks  # a task each, from when its head has come
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(prefork.LEAVE, self._leave)
        self._ready()

    def _leave(self) -> None:
        """Others serve now: whoever is still connected here is told to come again with the next answer."""
        for each in self.servers:
            each.close()
        self._app.state.is_leaving = True
        asyncio.get_running_loop().call_later(LEAVING_S, lambda: self.handle_exit(signal.SIGTERM, None))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end it in order and with success."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(bundle: str | Path, settings: Settings | None = None) -> None:
    """Serve a bundle until told to stop."""
    chosen = settings or Settings.of(os.environ)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not survive a fork; processes are enough
    processes, threads = shared_out(Bundle.load(bundle), chosen.workers)
    sockets = prefork.bound(chosen.host, chosen.port, count=processes)

    def prepare() -> prefork.Work:
        opened = Bundle.load(bundle)
        # Threads do not survive a fork, and torch has some whatever it is told: then each process loads for itself.
        loaded = Served(opened, threads=threads) if threads == 1 and not opened.needs_torch else None
        metrics = Metrics(opened.manifest, chosen, processes=processes)

        def work(on: socket.socket, number: int, ready: prefork.Ready) -> None:
            metrics.slots.own = number
            app = application(loaded or Served(opened, threads=threads), chosen, metrics)
            _Server(app, ready, timeout_s=chosen.timeout_s).run(sockets=[on])

        return work

    address = f"http://{chosen.host}:{sockets[0].getsockname()[1]}"
    crew = prefork.Crew(sockets, prepare, say=_log)
    _log("serving", address=address, bundle=str(bundle), processes=processes)
    crew.run()
    _log("stopped")
