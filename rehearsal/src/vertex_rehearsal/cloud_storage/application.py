"""Cloud Storage as an ASGI application, and a local server for it."""

import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio.from_thread
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.json_api import JsonApi
from vertex_rehearsal.cloud_storage.messages import StorageRequest, StorageResponse, build_json_error
from vertex_rehearsal.cloud_storage.store import Store
from vertex_rehearsal.cloud_storage.uploads import Uploads
from vertex_rehearsal.cloud_storage.xml_api import XmlApi
from vertex_rehearsal.connections import PREFIX

MOST_AT_ONCE = 200
"""Requests handled concurrently, each in a thread; further ones wait."""
JSON_PATHS = tuple(f"{prefix}/storage/v1/" for prefix in ("", "/upload", "/resumable/upload", "/download", "/batch"))
"""Path prefixes of the JSON API; in any other path, of the XML API, the first segment is a bucket."""

_log = logging.getLogger(__name__)


def create_storage_app(store: Store, *, project: str = "rehearsal") -> Starlette:
    """Return an application for all of Cloud Storage; mount it last, since a bucket may have any name."""
    return Starlette(routes=[Mount("/", app=StorageApp(store, project=project))])


class StorageApp:
    """ASGI application: requests are handled in threads, bodies are streamed in both directions."""

    def __init__(self, store: Store, *, project: str) -> None:
        uploads = Uploads(store)
        self._json = JsonApi(store, uploads)
        self._xml = XmlApi(store, uploads, self._json, project=project)
        self._threads: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(MOST_AT_ONCE)
        body = RequestBody(receive)
        try:
            response = await anyio.to_thread.run_sync(self._handle_request, scope, body, limiter=self._threads)
            await body.discard()  # a client that is still sending would not read the response
        except ClientDisconnect:
            return
        await self._build_response(response, is_head=scope["method"] == "HEAD")(scope, receive, send)

    def _handle_request(self, scope: Scope, body: "RequestBody") -> StorageResponse:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["raw_path"].decode("ascii").removeprefix(scope.get("root_path", ""))
        try:
            request = StorageRequest.of(
                scope["method"],
                path,
                scope["query_string"].decode("latin-1"),
                headers,
                body,
                scheme=scope["scheme"],
                prefix=scope.get("extensions", {}).get(PREFIX, ""),
            )
            api = self._json if f"{path}/".startswith(JSON_PATHS) else self._xml
            return api.handle_request(request)
        except errors.StorageError as error:
            return build_json_error(error)
        except ClientDisconnect:
            raise
        except Exception:
            _log.exception("%s %s failed", scope["method"], path)
            return build_json_error(errors.StorageError(500, "backendError", "We encountered an internal error."))

    def _build_response(self, response: StorageResponse, *, is_head: bool) -> Response:
        headers = dict(response.headers)
        if is_head and not isinstance(response.body, bytes):
            return Response(b"", response.status, headers)
        if isinstance(response.body, bytes):
            return Response(response.body, response.status, headers)
        return StreamingResponse(self._stream_chunks(response.body), response.status, headers)

    async def _stream_chunks(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        end = object()
        while (chunk := await anyio.to_thread.run_sync(next, chunks, end, limiter=self._threads)) is not end:
            assert isinstance(chunk, bytes)
            yield chunk


class RequestBody:
    """A request's body, which a thread iterates over as it arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    def __iter__(self) -> Iterator[bytes]:
        while not self._ended:
            if chunk := anyio.from_thread.run(self._receive_chunk):
                yield chunk

    async def discard(self) -> None:
        """Read and drop the rest of the body."""
        while not self._ended:
            await self._receive_chunk()

    async def _receive_chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._ended = True
            raise ClientDisconnect
        self._ended = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk


@contextmanager
def serve_in_thread(store: Store, *, port: int = 0) -> Iterator[str]:
    """Yield the address of a server on the loopback interface, in a thread that ends with the block."""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(create_storage_app(store), log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="cloud-storage")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
