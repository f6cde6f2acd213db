"""The HTTP server: a bundle's answers over the wire, and a page to try them on. Needs no torch."""

import asyncio
import hmac
import json
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, Request, Response

from tagline import __version__, pages, wire
from tagline.bundle import Bundle, Manifest
from tagline.errors import PlaceError, SpecError, TaglineError
from tagline.models import Prediction
from tagline.predictor import Predictor
from tagline.prometheus import SECONDS, SIZES, Count, Histogram, gauge
from tagline.queueing import Batcher, Full
from tagline.wire import Limits, Refused

if TYPE_CHECKING:
    from tagline.texts import Text

REQUEST_ID = re.compile(r"[\w.:-]{1,128}")
BODY_TIMEOUT_S = 20.0
"""To send a body; who takes longer holds a connection for nothing."""
DISCARDED_BYTES = 32 * 2**20
"""Of a body that is too large, read and forgotten: a client that still sends would not see why it is refused."""
RETRY_AFTER_S = 1


@dataclass(frozen=True)
class Settings:
    """How a bundle is served; nothing here changes an answer."""

    host: str = "127.0.0.1"
    port: int = 8080
    predict_route: str = "/predict"
    health_route: str = "/health"
    token: str = ""
    threads: int = 2
    batch: int = 32
    most_waiting: int = 2000
    """Texts; more are refused with 429."""
    timeout_s: float = 30.0
    limits: Limits = Limits()  # noqa: RUF009 - frozen

    @classmethod
    def of(cls, environment: "os._Environ[str] | dict[str, str]", **given: Any) -> "Settings":
        """What Vertex AI's environment says, unless it is given."""
        port = environment.get("AIP_HTTP_PORT", "")
        if port and not (port.isdigit() and 0 < int(port) < 65536):
            raise SpecError(f'AIP_HTTP_PORT is "{port}", which is no port')
        named = {
            "host": "0.0.0.0" if port else "",  # noqa: S104 - inside Vertex's container, whose network is its own
            "port": int(port) if port else 0,
            "predict_route": environment.get("AIP_PREDICT_ROUTE", ""),
            "health_route": environment.get("AIP_HEALTH_ROUTE", ""),
            "token": environment.get("TAGLINE_TOKEN", ""),
            "threads": os.cpu_count() or 1,
        }
        chosen = {name: value for name, value in named.items() if value}
        return cls(**chosen | {name: value for name, value in given.items() if value is not None})


class Served:
    """The bundle that is served now; another can take its place between two batches."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.predictor, self.manifest = self._loaded()

    def _loaded(self) -> tuple[Predictor, Manifest]:
        bundle = Bundle.load(self.directory)
        predictor = Predictor.of(bundle, threads=1)  # batches beside each other, rather than threads in a batch
        text = ("a first text", "a second text") if predictor.pair else "a text"
        predictor.predict([text])  # the first answer takes longest: it is nobody's
        return predictor, bundle.manifest

    def reload(self) -> None:
        """Serve what stands in the bundle's directory now; what cannot be served changes nothing."""
        self.predictor, self.manifest = self._loaded()

    def predict(self, texts: "Sequence[Text]", sets: float | None) -> list[Prediction]:
        """The answers, as every other door gives them."""
        return self.predictor.predict(texts, sets=sets)


class Metrics:
    """What Prometheus is told."""

    def __init__(self) -> None:
        self.requests = Count("tagline_requests_total", "requests by route and status")
        self.answers = Count("tagline_answers_total", "answers by label")
        self.seconds = Histogram("tagline_request_seconds", "time to answer a request", SECONDS)
        self.batches = Histogram("tagline_batch_texts", "texts computed together", SIZES)

    def text(self, batcher: Batcher, manifest: Manifest) -> str:
        """All of it."""
        while batcher.batch_sizes:
            self.batches.see(batcher.batch_sizes.popleft())
        lines = [line for each in (self.requests, self.answers, self.seconds, self.batches) for line in each.lines()]
        lines += gauge("tagline_waiting_texts", "texts that wait for a thread", batcher.waiting)
        about = {"family": manifest.family, "fingerprint": manifest.fingerprint[:16], "version": __version__}
        lines += gauge("tagline_info", "what is served", 1, about)
        return "\n".join(lines) + "\n"


class Routes:
    """What is answered at each address."""

    def __init__(self, served: Served, settings: Settings) -> None:
        self.served = served
        self.settings = settings
        self.metrics = Metrics()
        self._explaining = 0
        """Texts that are being explained: each is scored as often as it has words, so that few are at once."""
        self.batcher = Batcher(
            served.predict, threads=settings.threads, most_waiting=settings.most_waiting, batch=settings.batch
        )  # fmt: skip

    async def predict(self, request: Request) -> Response:
        """Answers for texts."""
        asked = wire.parse(await self._body(request), pair=self.served.predictor.pair, limits=self.settings.limits)
        timeout_s = self.settings.timeout_s
        found = await _answered(self.batcher, asked.texts, sets=asked.sets, timeout_s=timeout_s)
        for prediction in found:
            for label in prediction.labels if prediction.labels is not None else (str(prediction.label),):
                self.metrics.answers.add(label=label)
        return _json(wire.answer(asked, found))

    async def explain(self, request: Request) -> Response:
        """The words that push a text towards a label: for the page."""
        body = await self._body(request)
        asked = wire.parse(body, pair=self.served.predictor.pair, limits=self.settings.limits)
        label = json.loads(body).get("label")
        if len(asked.texts) != 1 or label not in self.served.manifest.labels:
            raise Refused(400, "explain takes one instance and a label of this bundle")
        if self._explaining >= self.settings.threads:
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
        text = self.metrics.text(self.batcher, self.served.manifest)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def playground(self, _: Request) -> Response:
        """A page to try it on."""
        columns = self.served.manifest.spec["data"]["text"]
        page = pages.playground(
            _info(self.served), predict_route=self.settings.predict_route, needs_token=bool(self.settings.token),
            text=[columns] if isinstance(columns, str) else columns,
        )  # fmt: skip
        return Response(page, media_type="text/html")

    async def _body(self, request: Request) -> bytes:
        _authorise(request, self.settings.token)
        return await _body(request, self.settings.limits.body_bytes)


def application(served: Served, settings: Settings) -> FastAPI:
    """A bundle's routes as an application."""
    routes = Routes(served, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await routes.batcher.close()

    app = FastAPI(title="Tagline", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    for method, path, answer in (
        ("POST", settings.predict_route, routes.predict),
        ("POST", "/explain", routes.explain),
        ("GET", settings.health_route, routes.health),
        ("GET", "/info", routes.info),
        ("GET", "/metrics", routes.measured),
    ):
        summary = (answer.__doc__ or "").split("\n")[0]
        guarded = _guarded(answer, path, routes)
        app.add_api_route(path, guarded, methods=[method], summary=summary, response_model=None)
    described = app.openapi
    app.openapi = lambda: _described(described(), served, settings)  # type: ignore[method-assign]

    async def docs(_: Request) -> Response:
        return Response(pages.api_page(app.openapi()), media_type="text/html")

    for path, answer in (("/docs", docs), ("/", routes.playground)):
        app.add_route(path, _guarded(answer, path, routes), methods=["GET"], include_in_schema=False)
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
        except Exception as error:  # a bug of ours is this request's, not the server's
            problem = f"{type(error).__name__}: {error}"
            response = _error(500, "this is a bug in Tagline; the log has the request's id")
        seconds = time.perf_counter() - begun
        response.headers["x-request-id"] = request_id
        routes.metrics.requests.add(route=path, status=str(response.status_code))
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
    batcher: Batcher, texts: "list[Text]", *, sets: float | None, timeout_s: float
) -> list[Prediction]:  # fmt: skip
    if not texts:
        return []
    try:
        async with asyncio.timeout(timeout_s):
            return await batcher.ask(texts, sets=sets)
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


def _described(document: dict[str, Any], served: Served, settings: Settings) -> dict[str, Any]:
    """OpenAPI's document with the bodies, which are read by `wire` and not by the framework."""
    problem = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    refused = {"description": "refused", "content": {"application/json": {"schema": problem}}}
    operation = document["paths"][settings.predict_route]["post"]
    request = wire.request_schema(settings.limits)
    text = ["a first text", "a second text"] if served.manifest.pair else "a text"
    content = {"schema": request, "example": {"instances": [text], "parameters": {}}}
    operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    answer = wire.answer_schema(served.manifest.labels, task=served.manifest.task)
    inputs = {"type": "array", "description": "to inputs: labels with their scores"}
    schema = {"anyOf": [answer, inputs]}
    operation["responses"] = {
        "200": {"description": "answers", "content": {"application/json": {"schema": schema}}},
        **dict.fromkeys(("400", "401", "408", "413", "429", "500", "503"), refused),
    }
    label = {"type": "string", "enum": list(served.manifest.labels)}
    explain = document["paths"]["/explain"]["post"]
    body = {
        "type": "object",
        "required": ["instances", "label"],
        "properties": {"instances": {"type": "array", "items": wire.TEXT_SCHEMA, "maxItems": 1}, "label": label},
    }
    content = {"schema": body, "example": {"instances": [text], "label": served.manifest.labels[0]}}
    explain["requestBody"] = {"required": True, "content": {"application/json": content}}
    explain["responses"] |= dict.fromkeys(("400", "401", "408", "413", "429", "500"), refused)
    return document


def _log(event: str, **facts: Any) -> None:
    """A line of JSON on standard error, as Cloud Logging reads it."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    severity = "ERROR" if facts.get("status", 0) >= 500 else "INFO"
    sys.stderr.write(json.dumps({"time": stamp, "severity": severity, "event": event, **facts}) + "\n")


class _Server(uvicorn.Server):
    """A server that finishes what it has when told to stop, and serves a new bundle when told to reload."""

    def __init__(self, config: uvicorn.Config, served: Served) -> None:
        super().__init__(config)
        self._served = served

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end it in order and with success; SIGHUP reloads."""
        before = {
            number: signal.signal(number, self._told)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }  # fmt: skip
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP:
            self.handle_exit(number, frame)
            return
        with suppress(RuntimeError):  # no loop: it is not serving yet
            loop = asyncio.get_running_loop()
            loop.call_soon_threadsafe(lambda: loop.run_in_executor(None, self._reload))

    def _reload(self) -> None:
        try:
            self._served.reload()
        except TaglineError as error:
            _log("reload failed", problem=error.message, serving=self._served.manifest.fingerprint[:16], status=500)
        else:
            _log("reloaded", fingerprint=self._served.manifest.fingerprint[:16])


def serve(bundle: str | Path, settings: Settings | None = None) -> None:
    """Serve a bundle until told to stop."""
    chosen = settings or Settings.of(os.environ)
    served = Served(Path(bundle))
    config = uvicorn.Config(
        application(served, chosen), host=chosen.host, port=chosen.port, log_level="warning", access_log=False,
        timeout_graceful_shutdown=int(chosen.timeout_s), lifespan="on", server_header=False, loop="auto", http="auto",
    )  # fmt: skip
    server = _Server(config, served)
    _log("serving", address=f"http://{chosen.host}:{chosen.port}", bundle=str(bundle), family=served.manifest.family)
    try:
        server.run()
    except SystemExit as error:  # uvicorn has said why it could not start
        hint = "is something else listening there? --port takes another"
        raise PlaceError(f"cannot serve on {chosen.host}:{chosen.port}", hint=hint) from error
    _log("stopped")
