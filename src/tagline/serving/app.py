"""The HTTP server: a bundle's answers over the wire, and a page to try them on. Needs no torch."""

import asyncio
import hmac
import ipaddress
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from tagline import __version__
from tagline.errors import RunError, SpecError, TaglineError
from tagline.models import Prediction
from tagline.prediction import signatures
from tagline.prediction.bundle import Bundle, Manifest
from tagline.prediction.predictor import Predictor, plan_workers
from tagline.reports import html
from tagline.serving import prefork, protocol
from tagline.serving.batching import Batcher, ComputeError, ModelUnavailable, QueueFull
from tagline.serving.http import HttpRequest, HttpResponse, HttpServer
from tagline.serving.log import DROP_REASONS, ServerLog
from tagline.serving.metrics import SECONDS, SIZES, Counter, Gauge, Histogram, allocate_slots, format_info
from tagline.serving.protocol import Limits, RefusedRequest

if TYPE_CHECKING:
    from tagline.data.texts import Text

REQUEST_ID = re.compile(r"[\w.:-]{1,128}")
RETRY_AFTER_S = 1
STUCK_S = 2.0
"""A computation that takes longer than this and than a request's time-out is taken to hang."""
LAST_ANSWERS_S = 1.0
"""How long a process that cannot answer any more keeps answering 503 before it exits."""
STOP_S = 5.0
"""Grace period of a shutdown, beyond the time-out of a request."""
ROUTES = ("/explain", "/info", "/metrics", "/openapi.json", "/docs", "/")
"""Fixed routes, beside those that can be configured."""
REFUSALS = {
    400: "a bad request, and what is wrong with it", 401: "the token is missing or wrong",
    403: "the header Host names another server than this one",
    408: "the body did not arrive in time", 413: "a body, a text or a number of instances over the limit",
    429: "too many texts wait already; Retry-After says when to come back", 500: "a fault of the server",
    503: "no answer in time, or none from this process any more; Retry-After says when to come back",
}  # fmt: skip
STATUSES = (200, *REFUSALS)

IN_JSON = json.JSONEncoder(ensure_ascii=False).encode

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
Found = TypeVar("Found")


@dataclass(frozen=True)
class ServerSettings:
    """How a bundle is served; no setting changes an answer."""

    host: str = "127.0.0.1"
    port: int = 8080
    predict_route: str = "/predict"
    health_route: str = "/health"
    token: str = ""
    workers: int = 0
    """Number of processes; 0: one a core, or fewer where several cores compute one text."""
    batch: int = 32
    most_waiting: int = 2000
    """Texts that may wait; more are refused with 429."""
    timeout_s: float = 30.0
    allowed_hosts: tuple[str, ...] = ()
    """Further names accepted in the Host header, such as that of a reverse proxy."""
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    signed_by: tuple[str, ...] = ()
    """Files of public keys, one of which must have signed the bundle; read again at each reload."""

    def __post_init__(self) -> None:
        """Refuse an empty host, which would bind every address."""
        if not self.host.strip():
            hint = "--host 127.0.0.1 is this machine alone, --host 0.0.0.0 every network it is in; is a variable unset?"
            raise SpecError("the host to listen on is empty", hint=hint)

    def is_own_host(self, header: str) -> bool:
        """Return whether a Host header is accepted, against DNS rebinding: a page could bind its name to 127.0.0.1.

        Where other machines can connect, or a token is asked for, that gains nothing, and any name will do.
        """
        if not header or self.token or not _is_loopback(self.host):
            return True
        name = header.rpartition(":")[0] if re.search(r":\d*$", header) else header
        name = name.strip("[]").rstrip(".").lower()
        return _is_loopback(name) or name in (self.host.lower(), *(each.lower() for each in self.allowed_hosts))

    @classmethod
    def of(cls, environment: "os._Environ[str] | dict[str, str]", **given: Any) -> "ServerSettings":
        """Return settings from Vertex AI's environment variables, unless they are given."""
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


class LoadedBundle:
    """A bundle that is loaded and ready to answer, with its number of threads in each process."""

    def __init__(self, bundle: Bundle, *, threads: int) -> None:
        self.manifest = bundle.manifest
        self.threads = threads
        self.predictor = Predictor.of(bundle, threads=threads)
        self.probe()  # the first answer takes longest: it is nobody's

    def probe(self) -> None:
        """Predict a text that every model can answer."""
        text = ("a first text", "a second text") if self.predictor.pair else "a text"
        self.predictor.predict([text])

    def predict(self, texts: "Sequence[Text]", sets: float | None) -> list[Prediction]:
        """Return the predictions, the same as those of every other interface."""
        return self.predictor.predict(texts, sets=sets)


class ServerMetrics:
    """The server's Prometheus metrics."""

    def __init__(self, manifest: Manifest, settings: ServerSettings, *, processes: int) -> None:
        paths = dict.fromkeys((settings.predict_route, settings.health_route, *ROUTES))
        kinds = [{"route": path, "status": str(status)} for path in paths for status in STATUSES]
        self.requests = Counter("tagline_requests_total", "requests by route and status", kinds)
        self.answers = Counter(
            "tagline_answers_total", "answers by label", [{"label": name} for name in manifest.labels]
        )
        self.seconds = Histogram("tagline_request_seconds", "time to answer a request", SECONDS)
        self.batches = Histogram("tagline_batch_texts", "texts computed together", SIZES)
        self.waiting = Gauge("tagline_waiting_texts", "texts that wait to be computed")
        reasons = [{"reason": reason} for reason in DROP_REASONS]
        self.dropped_lines = Counter("tagline_log_lines_dropped_total", "lines that the log has no room for", reasons)
        self._figures = (self.requests, self.answers, self.seconds, self.batches, self.waiting, self.dropped_lines)
        self.slots = allocate_slots(self._figures, processes=processes + 1)
        self.slots.own = processes  # of the parent, which supervises the others and writes the log
        self._about = {"family": manifest.family, "fingerprint": manifest.fingerprint[:16], "version": __version__}

    def render_text(self) -> str:
        """Render the metrics of all processes together."""
        lines = [line for each in self._figures for line in each.format_lines()]
        lines += format_info("tagline_info", "what is served", self._about)
        return "\n".join(lines) + "\n"


class ServerRoutes:
    """The handlers of all routes."""

    def __init__(
        self, served: LoadedBundle, settings: ServerSettings, metrics: ServerMetrics, *, write_log: Callable[..., None]
    ) -> None:
        self.served = served
        self.settings = settings
        self.metrics = metrics
        self._write_log = write_log
        self.clients = HttpServer(self.answer, body_bytes=settings.limits.body_bytes)
        self._is_given_up = False
        """Whether this process has stopped answering."""
        self._is_own_host = lru_cache(maxsize=64)(settings.is_own_host)
        self._tokens = _encode_token(settings.token)
        self.batcher = Batcher(
            served.predict,
            threads=1,
            most_waiting=settings.most_waiting,
            batch=1 if served.predictor.stands_alone else settings.batch,
            quick=served.manifest.runtime == "int8" and served.threads == 1,
            observe_batch=metrics.batches.observe,
            observe_waiting=metrics.waiting.set,
            probe=served.probe,
            stuck_after_s=max(settings.timeout_s, STUCK_S),
        )
        # Configured routes come last: they replace fixed ones of the same path.
        got = {
            "/": self.playground,
            "/docs": self.docs,
            "/openapi.json": self.openapi,
            "/metrics": self.export_metrics,
            "/info": self.info,
            settings.health_route: self.health,
        }
        posted = {"/explain": self.explain, settings.predict_route: self.predict}
        self._routes: dict[tuple[str, str], Handler] = {("POST", path): handler for path, handler in posted.items()}
        for path, handler in got.items():
            self._routes["GET", path] = self._routes["HEAD", path] = handler

    async def serve(self, on: socket.socket, ready: prefork.Ready) -> None:
        """Serve until told to stop."""
        await self.clients.serve(on, ready, timeout_s=self.settings.timeout_s, can_answer=self._check_batcher)
        await self.batcher.close()

    def _check_batcher(self) -> bool:
        """Return whether the model can still answer; if not, fail the requests that are waiting."""
        problem = self.batcher.problem
        if problem and not self._is_given_up:
            self._is_given_up = True
            self._write_log("a process cannot answer", problem=problem, status=500)
            self.clients.are_leaving = True
            self.batcher.abandon()
            asyncio.get_running_loop().call_later(LAST_ANSWERS_S, self._drop_clients)
        return not problem

    def _drop_clients(self) -> None:
        """Drop connections that are still open: the replacement starts only when this process has exited."""
        for connection in list(self.clients.connections):
            connection.abort()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request, errors included, and record it in metrics and log with its request id."""
        handler = self._routes.get((request.method, request.path))
        if handler is None:
            return self._refuse_route(request)
        if not self._is_own_host(request.header(b"host")):
            handler = self._refuse_host
        begun = time.perf_counter()
        given = request.header(b"x-request-id")
        request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        problem = ""
        try:
            response = await handler(request)
        except RefusedRequest as refused:
            problem = refused.message
            response = _error_response(refused.status, problem)
        except TaglineError as error:
            problem = error.message
            response = _error_response(
                500 if isinstance(error, RunError) else 400, problem
            )  # a model's fault is nobody else's
        except asyncio.CancelledError:
            raise
        except ComputeError as error:
            problem = str(error)
            response = _error_response(500, "the model failed on this text; the log has the request's id")
        except BaseException as error:  # a bug of ours, or a panic in native code, is this request's, not the server's
            problem = f"{type(error).__name__}: {error}"
            response = _error_response(500, "this is a bug in Tagline; the log has the request's id")
        seconds = time.perf_counter() - begun
        response.headers["x-request-id"] = request_id
        path, status = request.path, response.status
        self.metrics.requests.add(path, str(status))
        if path == self.settings.predict_route:
            self.metrics.seconds.observe(seconds)
        if path == self.settings.predict_route or status >= 500:
            facts = {"id": request_id, "path": path, "status": status, "ms": round(1000 * seconds, 2)}
            self._write_log("request", **facts, **({"problem": problem} if problem else {}))
        return response

    def _refuse_route(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the route with or without a trailing slash, or refuse the method or path."""
        other = request.path[:-1] if request.path.endswith("/") else f"{request.path}/"
        if (request.method, other) in self._routes:
            return HttpResponse(b"", status=307, headers={"location": other})
        asked = f"{request.method} {request.path}"[:200]
        allowed = [method for method, path in self._routes if path == request.path]
        said = f"there is no {asked} here; POST {self.settings.predict_route} answers"
        response = _error_response(405 if allowed else 404, said)
        if allowed:
            response.headers["allow"] = ", ".join(allowed)
        return response

    async def predict(self, request: HttpRequest) -> HttpResponse:
        """Handle POST /predict."""
        asked = protocol.parse_request(
            self._read_body(request), pair=self.served.predictor.pair, limits=self.settings.limits
        )
        found = await self._predict_texts(asked) if asked.texts else []
        for prediction in found:
            for label in prediction.labels if prediction.labels is not None else (str(prediction.label),):
                self.metrics.answers.add(label)
        return _json_response(protocol.format_answer(asked, found))

    async def _predict_texts(self, asked: protocol.PredictRequest) -> list[Prediction]:
        others, timeout_s = self.clients.asking - 1, self.settings.timeout_s
        return await self._await_result(
            self.batcher.ask(asked.texts, sets=asked.sets, beside=others, timeout_s=timeout_s),
            full="too many texts are waiting; try again in a moment",
            late=f"no answer within {timeout_s:g} seconds; try again, or send fewer texts",
        )

    async def _await_result(self, computing: Awaitable[Found], *, full: str, late: str) -> Found:
        """Return what the batcher computes, or raise the refusal that says why not."""
        try:
            return await computing
        except QueueFull as error:
            raise RefusedRequest(429, full) from error
        except TimeoutError as error:
            raise RefusedRequest(503, late) from error
        except ModelUnavailable as error:
            raise RefusedRequest(503, "this process cannot answer any more and is being replaced; try again") from error

    async def explain(self, request: HttpRequest) -> HttpResponse:
        """Handle POST /explain: the attribution of each word of a text to a label."""
        body = self._read_body(request)
        asked = protocol.parse_request(body, pair=self.served.predictor.pair, limits=self.settings.limits)
        label = json.loads(body).get("label")
        if len(asked.texts) != 1 or label not in self.served.manifest.labels:
            raise RefusedRequest(400, "explain takes one instance and a label of this bundle")
        # A text is scored as often as it has words, so that one is explained at a time.
        compute = partial(self.served.predictor.explain, asked.texts[0], label)
        pushes = await self._await_result(
            self.batcher.compute_beside(compute, timeout_s=self.settings.timeout_s),
            full="other texts are being explained; try again in a moment",
            late=f"not explained within {self.settings.timeout_s:g} seconds",
        )
        return _json_response({"pushes": [[push.start, push.end, round(push.weight, 4), push.side] for push in pushes]})

    async def health(self, _: HttpRequest) -> HttpResponse:
        """Handle GET /health: 200 once the model can answer, 503 when it cannot any more."""
        problem = self.batcher.problem
        return _error_response(503, problem) if problem else _json_response({"status": "ready"})

    async def _refuse_host(self, request: HttpRequest) -> HttpResponse:
        host = request.header(b"host")[:200]
        raise RefusedRequest(403, f'this server is not "{host}"; --allow-host makes it so, or a token in TAGLINE_TOKEN')

    async def info(self, _: HttpRequest) -> HttpResponse:
        """Handle GET /info: what is served."""
        return _json_response(_describe_bundle(self.served))

    async def export_metrics(self, _: HttpRequest) -> HttpResponse:
        """Handle GET /metrics, for Prometheus."""
        return HttpResponse(self.metrics.render_text().encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def playground(self, _: HttpRequest) -> HttpResponse:
        """Handle GET /: the playground."""
        columns = self.served.manifest.spec["data"]["text"]
        return _html_response(
            html.render_playground_page(
                _describe_bundle(self.served),
                predict_route=self.settings.predict_route,
                needs_token=bool(self.settings.token),
                text=[columns] if isinstance(columns, str) else columns,
            )
        )

    async def openapi(self, _: HttpRequest) -> HttpResponse:
        """Handle GET /openapi.json."""
        return _json_response(_build_openapi(self.served, self.settings))

    async def docs(self, _: HttpRequest) -> HttpResponse:
        """Handle GET /docs: the routes as a page."""
        return _html_response(html.render_api_page(_build_openapi(self.served, self.settings)))

    def _read_body(self, request: HttpRequest) -> bytes:
        """Return the body of a request that is authorised and complete."""
        if self.settings.token and not self._has_token(request.headers.get(b"authorization", b"")):
            raise RefusedRequest(401, "give the header: Authorization: Bearer TOKEN")
        if request.problem is not None:
            raise request.problem
        return request.body

    def _has_token(self, header: bytes) -> bool:
        """Return whether a header holds the token, by a comparison in constant time."""
        scheme, _, given = header.partition(b" ")
        matches = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        return scheme.lower() == b"bearer" and any(matches)


def _encode_token(token: str) -> list[bytes]:
    """Encode a token as clients send it: in UTF-8 or, by some libraries, in Latin-1."""
    encoded = [token.encode("utf-8", "surrogateescape")]
    try:
        return [*encoded, token.encode("latin-1")]
    except UnicodeEncodeError:
        return encoded


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(IN_JSON(value).encode(), status=status)


def _html_response(text: str) -> HttpResponse:
    headers = {"content-security-policy": html.read_content_policy(text), "x-content-type-options": "nosniff"}
    return HttpResponse(text.encode(), "text/html; charset=utf-8", headers=headers)


def _error_response(status: int, message: str) -> HttpResponse:
    response = _json_response({"error": message}, status)
    if status in (429, 503):
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def _describe_bundle(served: LoadedBundle) -> dict[str, Any]:
    manifest, layer = served.manifest, served.predictor.decisions
    return {
        "tagline": __version__,
        "family": manifest.family,
        "task": manifest.task,
        "pair": manifest.pair,
        "labels": list(manifest.labels),
        "fingerprint": manifest.fingerprint,
        "figures": manifest.figures,
        "thresholds": list(layer.thresholds),
        "abstain_below": layer.abstain_below,
        "sets": bool(layer.floors),
    }


def _build_openapi(served: LoadedBundle, settings: ServerSettings) -> dict[str, Any]:
    """Return the routes as an OpenAPI document."""
    problem = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    refused = {
        str(status): {"description": why, "content": _json_content({"schema": problem})}
        for status, why in REFUSALS.items()
    }
    text = ["a first text", "a second text"] if served.manifest.pair else "a text"
    answer = protocol.answer_schema(served.manifest.labels, task=served.manifest.task)
    inputs = {"type": "array", "description": "to inputs: labels with their scores"}
    pushes = {"type": "object", "properties": {"pushes": {"type": "array"}}, "required": ["pushes"]}
    label = {"type": "string", "enum": list(served.manifest.labels)}
    explained = {
        "type": "object",
        "required": ["instances", "label"],
        "properties": {
            "instances": {
                "type": "array",
                "items": protocol.text_schema(pair=served.manifest.pair),
                "minItems": 1,
                "maxItems": 1,
            },
            "label": label,
        },
    }

    def describe_post(summary: str, schema: Any, example: Any, answers: Any) -> dict[str, Any]:
        return {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": _json_content({"schema": schema, "example": example})},
                "responses": {
                    "200": {"description": "answers", "content": _json_content({"schema": answers})},
                    **refused,
                },
            }
        }

    def describe_get(summary: str, kind: str) -> dict[str, Any]:
        return {"get": {"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {}}}}}}

    return {
        "openapi": "3.1.0",
        "info": {"title": "Tagline", "version": __version__},
        "paths": {
            settings.predict_route: describe_post(
                "Answers for texts.",
                protocol.request_schema(settings.limits, pair=served.manifest.pair),
                {"instances": [text], "parameters": {}},
                {"anyOf": [answer, inputs]},
            ),
            "/explain": describe_post(
                "The words that push a text towards a label.",
                explained,
                {"instances": [text], "label": served.manifest.labels[0]},
                pushes,
            ),
            settings.health_route: {
                "get": {
                    "summary": "Whether it can answer.",
                    "responses": {
                        "200": {"description": "it can", "content": _json_content({})},
                        "503": {
                            "description": "this process cannot any more",
                            "content": _json_content({"schema": problem}),
                        },
                    },
                }
            },
            "/info": describe_get("What is served.", "application/json"),
            "/metrics": describe_get("For Prometheus.", "text/plain"),
        },
    }


def _json_content(content: Any) -> dict[str, Any]:
    return {"application/json": content}


def open_bundle(bundle: str | Path, settings: ServerSettings) -> Bundle:
    """Open the bundle, verifying its signature where one is required."""
    return signatures.verify(bundle, key=settings.signed_by) if settings.signed_by else Bundle.load(bundle)


def serve(bundle: str | Path, settings: ServerSettings | None = None) -> None:
    """Serve a bundle until told to stop."""
    chosen = settings or ServerSettings.of(os.environ)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not survive a fork; processes are enough
    processes, threads = plan_workers(open_bundle(bundle, chosen), chosen.workers)
    sockets = prefork.bind_sockets(chosen.host, chosen.port, count=processes)
    log = ServerLog()

    def prepare() -> prefork.Work:
        opened = open_bundle(bundle, chosen)
        # Threads do not survive a fork, and torch has some whatever it is told: then each process loads for itself.
        loaded = LoadedBundle(opened, threads=threads) if threads == 1 and not opened.needs_torch else None
        metrics = ServerMetrics(opened.manifest, chosen, processes=processes)
        log.count_dropped = metrics.dropped_lines.add

        def work(on: socket.socket, number: int, ready: prefork.Ready) -> None:
            log.detach()
            metrics.slots.own = number
            routes = ServerRoutes(loaded or LoadedBundle(opened, threads=threads), chosen, metrics, write_log=log.write)
            uvloop.run(routes.serve(on, ready))

        return work

    address = f"http://{chosen.host}:{sockets[0].getsockname()[1]}"
    crew = prefork.WorkerPool(sockets, prepare, say=log.write, grace_s=chosen.timeout_s + STOP_S)
    try:
        crew.run(started=lambda: log.write("serving", address=address, bundle=str(bundle), processes=processes))
        log.write("stopped")
    finally:
        log.close()
