"""The console: the HTML page at the emulator's root, and the routes of its JSON API."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from vertex_rehearsal.access import TOKEN_FILE
from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.client_setup import build_client_setup
from vertex_rehearsal.cloud_storage.errors import StorageError
from vertex_rehearsal.console.api import ConsoleApi
from vertex_rehearsal.execution.queue import JobQueue
from vertex_rehearsal.protocol.registry import EmulatedMethod, list_methods

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

CHUNK_BYTES = 2**18
Query = Mapping[str, str]


@cache
def _read_html() -> str:
    return (Path(__file__).parent / "page.html").read_text("utf-8")


@cache
def build_content_policy() -> str:
    """Return the Content-Security-Policy: its own script and style, and requests to its own server only."""
    hashes = {
        tag: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
            for content in re.findall(rf"<{tag}>(.*?)</{tag}>", _read_html(), re.S)
        )
        for tag in ("script", "style")
    }
    return (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class ConsolePage:
    """Serves the page and the API that it calls."""

    def __init__(
        self, context: "Context", methods: Mapping[str, EmulatedMethod], queue: "JobQueue[Any]", *, ca: str
    ) -> None:
        self._context = context
        self._methods = methods
        self._store = context.store
        self._ca = ca
        self._api = ConsoleApi(context, queue)

    def routes(self) -> list[Route]:
        """Return the routes, at paths that are not buckets."""
        handlers = {
            "overview": self._get_overview,
            "resources": self._list_resources,
            "resource": self._get_resource,
            "entries": self._list_entries,
            "buckets": self._list_buckets,
            "objects": self._list_objects,
            "object": self._download_object,
            "clients": self._describe_clients,
            "methods": self._list_methods,
        }
        return [
            Route("/", self._serve_front),
            *(Route(f"/-/{name}", _wrap_handler(handler)) for name, handler in handlers.items()),
        ]

    def _serve_front(self, _: Request) -> Response:
        needs_token = "true" if self._context.settings.token else "false"
        headers = {
            "Content-Security-Policy": build_content_policy(),
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
            "Metadata-Flavor": "Google",  # by which Google's libraries recognise a metadata server
        }
        return HTMLResponse(_read_html().replace('data-token=""', f'data-token="{needs_token}"', 1), headers=headers)

    def _get_overview(self, _: Query) -> Any:
        return self._api.get_overview()

    def _list_resources(self, query: Query) -> Any:
        before = _parse_number(query, "before")
        return self._api.list_resources(_require_value(query, "kind"), text=query.get("text", ""), before=before)

    def _get_resource(self, query: Query) -> Any:
        return self._api.get_resource(_require_value(query, "name"))

    def _list_entries(self, query: Query) -> Any:
        number = _parse_number(query, "before")
        return self._api.list_entries(
            about=query.get("about", ""),
            severity=query.get("severity", ""),
            text=query.get("text", ""),
            after=_parse_number(query, "after"),
            before=None if number is None else (_require_value(query, "moment"), number),
        )

    def _list_buckets(self, query: Query) -> Any:
        return self._api.list_buckets(after=query.get("page", ""))

    def _list_objects(self, query: Query) -> Any:
        return self._api.list_objects(
            _require_value(query, "bucket"), prefix=query.get("prefix", ""), page=query.get("page", "")
        )

    def _download_object(self, query: Query) -> Response:
        """Return an object as an attachment, never as a page, since a page could call the emulator's API."""
        name, generation = _require_value(query, "name"), _parse_number(query, "generation")
        record, file = self._store.read(_require_value(query, "bucket"), name, generation=generation)
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2] or 'object')}",
            "Content-Length": str(record.size),
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return StreamingResponse(_iter_chunks(file), headers=headers, media_type="application/octet-stream")

    def _describe_clients(self, _: Query) -> Any:
        context = self._context
        token = context.settings.token
        return build_client_setup(
            http_port=context.http_port,
            grpc_port=context.grpc_port,
            token=token,
            ca=self._ca,
            token_file=str(context.settings.directory / TOKEN_FILE) if token else "",
            roots=str(context.trusted_roots),
        )

    def _list_methods(self, _: Query) -> Any:
        rows = list_methods(self._methods)
        return [dict(zip(("method", "extent", "limit"), row, strict=True)) for row in rows]


def _wrap_handler(handler: Callable[[Query], Any]) -> Callable[[Request], Response]:
    """Return a route handler, run in a worker thread, with errors in the format of Google's APIs."""

    def handle_request(request: Request) -> Response:
        try:
            content = handler(request.query_params)
        except ApiError as error:
            return JSONResponse(error.body(), error.http_status)
        except StorageError as error:
            return JSONResponse(error.document(), error.status)
        return (
            content if isinstance(content, Response) else JSONResponse(content, headers={"Cache-Control": "no-store"})
        )

    return handle_request


def _require_value(query: Query, name: str) -> str:
    if not query.get(name):
        raise invalid_argument(name, f"?{name}= is needed.")
    return query[name]


def _parse_number(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise invalid_argument(name, f'{name} must be a number, not "{text}".')
    return int(text)


def _iter_chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
