"""The HTTP server: HTTP/JSON transcoding, authentication and routing to the emulated services."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vertex_rehearsal.access import LOOPBACK, has_token, is_own_origin, split_key, tokens_equal
from vertex_rehearsal.api import transcoding, v1beta1
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.connections import HAS_KEY, PREFIX, DropConnection
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.project.faults import ConnectionDropped
from vertex_rehearsal.protocol.dispatch import THREADS, Dispatcher, unauthenticated_error

if TYPE_CHECKING:
    from vertex_rehearsal.protocol.metadata_server import MetadataServer

RPC_PATHS = re.compile(r"/(v1|v1beta1|v2|ui)/")
STORAGE_PATHS = ("/storage", "/upload/storage", "/download/storage", "/batch/storage", "/resumable/upload/storage")
"""Path prefixes of Cloud Storage's JSON API; paths of its XML API begin with a bucket's name."""
ENUMS_AS_NUMBERS = "enum-encoding=int"
ISOLATION = ((b"content-security-policy", b"sandbox; default-src 'none'"), (b"x-content-type-options", b"nosniff"))


class HttpHandler:
    """Answers HTTP/JSON requests by the HTTP rules of the RPC methods."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._routes = transcoding.RouteTable(dispatcher.methods.values())
        self._threads = anyio.CapacityLimiter(THREADS)

    async def answer(self, request: Request) -> Response:
        """Answer a request; errors become JSON error responses."""
        try:
            return await self._handle_rpc(request, await request.body())
        except ApiError as problem:
            return build_error_response(problem)
        except (ConnectionDropped, ClientDisconnect):  # a fault, or the client has gone
            return DropConnection()
        except Exception as error:  # a bug must fail this request only, not the server
            report_bug(error)
            return build_error_response(ApiError("INTERNAL", f"{type(error).__name__}: {error}"))

    async def _handle_rpc(self, request: Request, body: bytes) -> Response:
        path = request.scope["path"]
        in_beta = v1beta1.is_beta(path)
        kind = request.headers.get("content-type", "")
        try:
            route, named = self._routes.match_route(request.method, v1beta1.as_v1(path))
            handler = self._dispatcher.find_handler(route.method)
            message = self._dispatcher.normalise_names(
                transcoding.parse_request(route, named, request.url.query, body, kind)
            )
        except ApiError as problem:
            if not in_beta:
                raise
            raise v1beta1.translate_error(problem, path) from problem
        numbers = ENUMS_AS_NUMBERS in unquote(request.url.query)
        if route.method.answers_stream:
            if route.method.kind == "stream_stream":
                raise ApiError("UNIMPLEMENTED", f"{route.method.path} is played over gRPC alone.")
            return StreamingResponse(
                self._stream_json(handler(message, lambda: True), numbers), media_type="application/json"
            )
        answer = await anyio.to_thread.run_sync(handler, message, limiter=self._threads)
        return _build_http_response(answer, numbers, in_beta=self._dispatcher.beta.speaks_beta(answer, asked=in_beta))

    async def _stream_json(self, messages: Iterator[Any], numbers: bool) -> AsyncIterator[bytes]:
        """Yield a stream as Google's HTTP APIs write it: a JSON list sent item by item."""
        separator = b"["
        async for message in iterate_in_threadpool(messages):
            yield separator + transcoding.format_json(message, enums_as_numbers=numbers)
            separator = b","
        yield b"]" if separator == b"," else b"[]"


def _build_http_response(message: Any, numbers: bool, *, in_beta: bool) -> Response:
    if message.DESCRIPTOR.full_name == transcoding.RAW_BODY:
        return Response(message.data, media_type=message.content_type)
    text = transcoding.format_json(message, enums_as_numbers=numbers)
    return Response(v1beta1.rewrite_json_types(text) if in_beta else text, media_type="application/json")


def build_error_response(problem: ApiError) -> Response:
    """Return the JSON response for an error."""
    return JSONResponse(problem.body(), problem.http_status)


class AuthMiddleware:
    """Rejects requests from other origins and requests without the token in a header or in the URL."""

    def __init__(self, app: ASGIApp, *, token: str, open_paths: tuple[str, ...]) -> None:
        self._app = app
        self._token = token
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with an error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        prefix, key, raw_path = split_key(scope["raw_path"].decode("latin-1"))
        is_keyed = bool(self._token) and tokens_equal(key, self._token)
        extensions = {**scope.get("extensions", {}), PREFIX: prefix, HAS_KEY: is_keyed}
        path = unquote(raw_path) if prefix else scope["path"]
        scope = {**scope, "path": path, "raw_path": raw_path.encode("latin-1"), "extensions": extensions}
        if problem := self._check_request(Request(scope), is_keyed=is_keyed):
            await build_error_response(problem)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_request(self, request: Request, *, is_keyed: bool) -> ApiError | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not LOOPBACK.fullmatch(host):
            return ApiError("PERMISSION_DENIED", f'The rehearsal is at localhost alone, not at "{host}".')
        if origin is not None and not is_own_origin(origin, host):
            return ApiError("PERMISSION_DENIED", f'Pages of "{origin}" may not ask the rehearsal.')
        path = request.scope["path"]
        if not self._token or is_keyed or path == "/" or path.startswith(self._open_paths):
            return None
        return None if has_token(request.headers.get("authorization", ""), self._token) else unauthenticated_error()


def sandbox_app(app: ASGIApp) -> ASGIApp:
    """Wrap an app with headers that stop browsers from running stored content in the console's origin."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *ISOLATION]}
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer


def create_http_app(
    dispatcher: Dispatcher, *, metadata: "MetadataServer", own_routes: list[Route], storage: ASGIApp | None = None
) -> ASGIApp:
    """Create the app of the HTTP port. `storage` is the Cloud Storage app, which gets its paths unchanged."""
    handler = HttpHandler(dispatcher)
    storage = sandbox_app(storage) if storage else None

    async def respond_404(request: Request) -> Response:
        return build_error_response(
            ApiError("NOT_FOUND", f"{request.method} {request.url.path} is no method of a played API.")
        )

    async def dispatch_request(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if RPC_PATHS.match(path) and not path.startswith(STORAGE_PATHS):
            await (await handler.answer(Request(scope, receive)))(scope, receive, send)
        elif storage is not None:
            await storage(scope, receive, send)
        else:
            await (await respond_404(Request(scope)))(scope, receive, send)

    routes = [*own_routes, Route("/computeMetadata{rest:path}", metadata.handle_request), Mount("", dispatch_request)]
    return AuthMiddleware(
        Starlette(routes=routes), token=dispatcher.context.settings.token, open_paths=("/computeMetadata/",)
    )
