"""The two doors to what is played: HTTP/JSON and gRPC, from one handler a method."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio.to_thread
import grpc
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tagline.rehearsal import beta, transcoding
from tagline.rehearsal.access import LOOPBACK, TOKEN_FILE, has_token, is_own_origin, is_token, split_key
from tagline.rehearsal.admission import Admission, Call
from tagline.rehearsal.connections import HAS_KEY, PREFIX, Drop
from tagline.rehearsal.faults import Dropped
from tagline.rehearsal.messages import message_class
from tagline.rehearsal.methods import Method
from tagline.rehearsal.permissions import api_of, names_of, permission_of
from tagline.rehearsal.problems import Problem, not_played
from tagline.rehearsal.services import Played
from tagline.rehearsal.stage import Stage, report_bug

if TYPE_CHECKING:
    from tagline.rehearsal.metadata_server import MetadataServer

THREADS = 512
"""Requests that are answered at once, at each door: a prediction holds its thread as long as the model takes."""
LARGEST_MESSAGE = 64 * 2**20
RPC_PATHS = re.compile(r"/(v1|v1beta1|v2|ui)/")
STORAGE_PATHS = ("/storage", "/upload/storage", "/download/storage", "/batch/storage", "/resumable/upload/storage")
"""Of Cloud Storage's JSON API. Its XML API has every path that begins with a bucket's name."""
ENUMS_AS_NUMBERS = "enum-encoding=int"
ISOLATION = ((b"content-security-policy", b"sandbox; default-src 'none'"), (b"x-content-type-options", b"nosniff"))


class Doors:
    """What both doors share: the methods, who answers them, and how requests are made ready."""

    def __init__(
        self, stage: Stage, played: Mapping[str, Played], handlers: Mapping[str, Callable[..., Any]],
        admission: Admission,
    ) -> None:  # fmt: skip
        self.stage = stage
        self.methods = {path: known.method for path, known in played.items()}
        self._handlers = handlers
        self._admission = admission
        self.beta = beta.Operations()

    def handler(self, method: Method) -> Callable[..., Any]:
        """Who answers a method, for those who may call it; UNIMPLEMENTED with its name where nobody does."""
        found = self._handlers.get(method.path)
        if found is None:
            raise not_played(method.path)

        def admitted(request: Any, *more: Any) -> Any:
            return self._admission.perform(_call_of(method, request), lambda: found(request, *more))

        return admitted

    def ready(self, request: Any) -> Any:
        """A request whose names hold the project's id, where they came with its number."""
        for field, value in request.ListFields():
            if isinstance(value, str) and value.startswith("projects/"):
                setattr(request, field.name, self.stage.own_name(value))
        return request


def _call_of(method: Method, request: Any) -> Call:
    fields = request.ListFields() if hasattr(request, "ListFields") else ()  # a stream of requests has none
    texts = [value for _, value in fields if isinstance(value, str)]
    texts += [value for field, values in fields if field.name == "resource_names" for value in values]
    resource = next((text for text in texts if text.startswith("projects/")), "")
    return Call(api_of(method), names_of(method), permission_of(method), resource)


class HttpDoor:
    """HTTP/JSON, by the rules of the methods."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._routes = transcoding.Routes(doors.methods.values())
        self._threads = anyio.CapacityLimiter(THREADS)

    async def answer(self, request: Request) -> Response:
        """The answer to one request."""
        try:
            return await self._answered(request, await request.body())
        except Problem as problem:
            return refusal(problem)
        except (Dropped, ClientDisconnect):  # or nobody is there to be answered
            return Drop()
        except Exception as error:  # a bug of ours is this request's, not the server's
            report_bug(error)
            return refusal(Problem("INTERNAL", f"{type(error).__name__}: {error}"))

    async def _answered(self, request: Request, body: bytes) -> Response:
        path = request.scope["path"]
        in_beta = beta.is_beta(path)
        kind = request.headers.get("content-type", "")
        try:
            route, named = self._routes.find(request.method, beta.as_v1(path))
            handler = self._doors.handler(route.method)
            message = self._doors.ready(transcoding.request_of(route, named, request.url.query, body, kind))
        except Problem as problem:
            if not in_beta:
                raise
            raise beta.refused(problem, path) from problem
        numbers = ENUMS_AS_NUMBERS in unquote(request.url.query)
        if route.method.answers_stream:
            if route.method.kind == "stream_stream":
                raise Problem("UNIMPLEMENTED", f"{route.method.path} is played over gRPC alone.")
            return StreamingResponse(
                self._parts(handler(message, lambda: True), numbers), media_type="application/json"
            )
        answer = await anyio.to_thread.run_sync(handler, message, limiter=self._threads)
        return _as_http(answer, numbers, in_beta=self._doors.beta.speaks_beta(answer, asked=in_beta))

    async def _parts(self, messages: Iterator[Any], numbers: bool) -> AsyncIterator[bytes]:
        """A stream as Google's HTTP APIs write it: a JSON list whose items come one after another."""
        before = b"["
        async for message in iterate_in_threadpool(messages):
            yield before + transcoding.json_of(message, enums_as_numbers=numbers)
            before = b","
        yield b"]" if before == b"," else b"[]"


def _as_http(message: Any, numbers: bool, *, in_beta: bool) -> Response:
    if message.DESCRIPTOR.full_name == transcoding.RAW_BODY:
        return Response(message.data, media_type=message.content_type)
    text = transcoding.json_of(message, enums_as_numbers=numbers)
    return Response(beta.json_told(text) if in_beta else text, media_type="application/json")


def refusal(problem: Problem) -> Response:
    """A problem as HTTP answers it."""
    return JSONResponse(problem.body(), problem.http_status)


class Guard:
    """Keeps out pages of other origins, and clients without the token: in a header, or in the address itself."""

    def __init__(self, app: ASGIApp, *, token: str, open_paths: tuple[str, ...]) -> None:
        self._app = app
        self._token = token
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        prefix, key, raw_path = split_key(scope["raw_path"].decode("latin-1"))
        is_keyed = bool(self._token) and is_token(key, self._token)
        extensions = {**scope.get("extensions", {}), PREFIX: prefix, HAS_KEY: is_keyed}
        path = unquote(raw_path) if prefix else scope["path"]
        scope = {**scope, "path": path, "raw_path": raw_path.encode("latin-1"), "extensions": extensions}
        if problem := self._problem(Request(scope), is_keyed=is_keyed):
            await refusal(problem)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, request: Request, *, is_keyed: bool) -> Problem | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not LOOPBACK.fullmatch(host):
            return Problem("PERMISSION_DENIED", f'The rehearsal is at localhost alone, not at "{host}".')
        if origin is not None and not is_own_origin(origin, host):
            return Problem("PERMISSION_DENIED", f'Pages of "{origin}" may not ask the rehearsal.')
        path = request.scope["path"]
        if not self._token or is_keyed or path == "/" or path.startswith(self._open_paths):
            return None
        return None if has_token(request.headers.get("authorization", ""), self._token) else _unauthenticated()


def isolated(app: ASGIApp) -> ASGIApp:
    """What is kept for others, as nothing that a browser would run in our own page's name."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *ISOLATION]}
            await send(message)

        await app(scope, receive, sent)

    return answer


def _unauthenticated() -> Problem:
    return Problem(
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials: the rehearsal's token is needed, which is in the file "
        f"{TOKEN_FILE} in its directory; tagline rehearsal status --json says how clients pass it.",
    )


def application(
    doors: Doors, *, metadata: "MetadataServer", own: list[Route], storage: ASGIApp | None = None
) -> ASGIApp:  # fmt: skip
    """Everything that is answered on the HTTP port. `storage` plays Cloud Storage, whose paths it gets unchanged."""
    door = HttpDoor(doors)
    storage = isolated(storage) if storage else None

    async def unknown(request: Request) -> Response:
        return refusal(Problem("NOT_FOUND", f"{request.method} {request.url.path} is no method of a played API."))

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if RPC_PATHS.match(path) and not path.startswith(STORAGE_PATHS):
            await (await door.answer(Request(scope, receive)))(scope, receive, send)
        elif storage is not None:
            await storage(scope, receive, send)
        else:
            await (await unknown(Request(scope)))(scope, receive, send)

    routes = [*own, Route("/computeMetadata{rest:path}", metadata.answer), Mount("", dispatch)]
    return Guard(Starlette(routes=routes), token=doors.stage.settings.token, open_paths=("/computeMetadata/",))


class GrpcDoor(grpc.GenericRpcHandler):  # type: ignore[misc]
    """gRPC, by the methods' paths."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors

    def service(self, call: Any) -> Any:
        """Who answers a call."""
        method, in_beta = self._doors.methods.get(beta.as_v1(call.method)), beta.is_beta(call.method)
        if method is None:
            return None  # gRPC's own UNIMPLEMENTED, "Method not found!"
        token = self._doors.stage.settings.token
        given = dict(call.invocation_metadata).get("authorization", "")
        may_ask = not token or has_token(given, token)

        def unary(request: Any, context: Any) -> Any:
            with _guarded(context):
                if not may_ask:
                    raise _unauthenticated()
                handler = self._doors.handler(method)
                if in_beta:
                    beta.check(request)
                answer = handler(self._doors.ready(request))
                return beta.told(answer) if self._doors.beta.speaks_beta(answer, asked=in_beta) else answer

        def stream(request: Any, context: Any) -> Iterator[Any]:
            with _guarded(context):
                if not may_ask:
                    raise _unauthenticated()
                handler = self._doors.handler(method)
                given = request if method.kind == "stream_stream" else self._doors.ready(request)
                yield from handler(given, context.is_active)

        make = getattr(grpc, f"{method.kind}_rpc_method_handler")
        answer = stream if method.answers_stream else unary
        return make(answer, message_class(method.request).FromString, lambda message: message.SerializeToString())


class _guarded:  # noqa: N801 - a context manager
    """Problems as gRPC says them, with their details."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return
        if isinstance(error, Dropped):  # as gRPC's own clients say it when a connection is lost
            error = Problem("UNAVAILABLE", "Socket closed")
        if not isinstance(error, Problem):
            report_bug(error)
            error = Problem("INTERNAL", f"{type(error).__name__}: {error}")
        if error.field or error.cause:
            self._context.set_trailing_metadata((("grpc-status-details-bin", error.status().SerializeToString()),))
        self._context.abort(getattr(grpc.StatusCode, error.code), error.message)


def grpc_server(doors: Doors, *, port: int, certificate: tuple[bytes, bytes] | None) -> tuple[Any, int]:
    """A server, not started yet, and its port; `certificate` is a key and its chain, for TLS."""
    options = [
        ("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ("grpc.so_reuseport", 0),
    ]  # fmt: skip
    server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[GrpcDoor(doors)], options=options)
    address = f"127.0.0.1:{port}"
    if certificate is None:
        return server, server.add_insecure_port(address)
    return server, server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
