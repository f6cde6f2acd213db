"""HTTP/JSON, by the rules of the methods."""

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

from vertex_rehearsal.access import LOOPBACK, has_token, is_own_origin, is_token, split_key
from vertex_rehearsal.api import transcoding, v1beta1
from vertex_rehearsal.api.errors import Problem
from vertex_rehearsal.connections import HAS_KEY, PREFIX, Drop
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.project.faults import Dropped
from vertex_rehearsal.protocol.dispatch import THREADS, Dispatcher, unauthenticated

if TYPE_CHECKING:
    from vertex_rehearsal.protocol.metadata_server import MetadataServer

RPC_PATHS = re.compile(r"/(v1|v1beta1|v2|ui)/")
STORAGE_PATHS = ("/storage", "/upload/storage", "/download/storage", "/batch/storage", "/resumable/upload/storage")
"""Of Cloud Storage's JSON API. Its XML API has every path that begins with a bucket's name."""
ENUMS_AS_NUMBERS = "enum-encoding=int"
ISOLATION = ((b"content-security-policy", b"sandbox; default-src 'none'"), (b"x-content-type-options", b"nosniff"))


class HttpDoor:
    """HTTP/JSON, by the rules of the methods."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._routes = transcoding.Routes(dispatcher.methods.values())
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
        in_beta = v1beta1.is_beta(path)
        kind = request.headers.get("content-type", "")
        try:
            route, named = self._routes.find(request.method, v1beta1.as_v1(path))
            handler = self._dispatcher.handler(route.method)
            message = self._dispatcher.ready(transcoding.request_of(route, named, request.url.query, body, kind))
        except Problem as problem:
            if not in_beta:
                raise
            raise v1beta1.refused(problem, path) from problem
        numbers = ENUMS_AS_NUMBERS in unquote(request.url.query)
        if route.method.answers_stream:
            if route.method.kind == "stream_stream":
                raise Problem("UNIMPLEMENTED", f"{route.method.path} is played over gRPC alone.")
            return StreamingResponse(
                self._parts(handler(message, lambda: True), numbers), media_type="application/json"
            )
        answer = await anyio.to_thread.run_sync(handler, message, limiter=self._threads)
        return _as_http(answer, numbers, in_beta=self._dispatcher.beta.speaks_beta(answer, asked=in_beta))

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
    return Response(v1beta1.json_told(text) if in_beta else text, media_type="application/json")


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
        return None if has_token(request.headers.get("authorization", ""), self._token) else unauthenticated()


def isolated(app: ASGIApp) -> ASGIApp:
    """What is kept for others, as nothing that a browser would run in our own page's name."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *ISOLATION]}
            await send(message)

        await app(scope, receive, sent)

    return answer


def application(
    dispatcher: Dispatcher, *, metadata: "MetadataServer", own: list[Route], storage: ASGIApp | None = None
) -> ASGIApp:  # fmt: skip
    """Everything that is answered on the HTTP port. `storage` plays Cloud Storage, whose paths it gets unchanged."""
    door = HttpDoor(dispatcher)
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
    return Guard(Starlette(routes=routes), token=dispatcher.context.settings.token, open_paths=("/computeMetadata/",))
