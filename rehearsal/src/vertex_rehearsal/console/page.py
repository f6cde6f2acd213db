"""The page at the rehearsal's root, which asks for everything that it shows at paths of its own."""

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

PIECE = 2**18
Asked = Mapping[str, str]


@cache
def _read_html() -> str:
    return (Path(__file__).parent / "page.html").read_text("utf-8")


@cache
def build_content_policy() -> str:
    """What the page may do: run its own script, wear its own style, and ask its own server."""
    allowed = {
        tag: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(rf"<{tag}>(.*?)</{tag}>", _read_html(), re.S)
        )
        for tag in ("script", "style")
    }
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class ConsolePage:
    """The page, and the answers to what it asks."""

    def __init__(
        self, context: "Context", played: Mapping[str, EmulatedMethod], queue: "JobQueue[Any]", *, ca: str
    ) -> None:
        self._context = context
        self._played = played
        self._store = context.store
        self._ca = ca
        self._browsing = ConsoleApi(context, queue)

    def routes(self) -> list[Route]:
        """All of them, at paths that are no bucket's."""
        answers = {
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
            *(Route(f"/-/{name}", _wrap_handler(how)) for name, how in answers.items()),
        ]

    def _serve_front(self, _: Request) -> Response:
        wanted = "true" if self._context.settings.token else "false"
        headers = {
            "Content-Security-Policy": build_content_policy(),
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
            "Metadata-Flavor": "Google",  # by which Google's libraries know a metadata server
        }
        return HTMLResponse(_read_html().replace('data-token=""', f'data-token="{wanted}"', 1), headers=headers)

    def _get_overview(self, _: Asked) -> Any:
        return self._browsing.get_overview()

    def _list_resources(self, asked: Asked) -> Any:
        before = _parse_number(asked, "before")
        return self._browsing.list_resources(_require_value(asked, "kind"), text=asked.get("text", ""), before=before)

    def _get_resource(self, asked: Asked) -> Any:
        return self._browsing.get_resource(_require_value(asked, "name"))

    def _list_entries(self, asked: Asked) -> Any:
        number = _parse_number(asked, "before")
        return self._browsing.list_entries(
            about=asked.get("about", ""),
            severity=asked.get("severity", ""),
            text=asked.get("text", ""),
            after=_parse_number(asked, "after"),
            before=None if number is None else (_require_value(asked, "moment"), number),
        )

    def _list_buckets(self, asked: Asked) -> Any:
        return self._browsing.list_buckets(after=asked.get("page", ""))

    def _list_objects(self, asked: Asked) -> Any:
        return self._browsing.list_objects(
            _require_value(asked, "bucket"), prefix=asked.get("prefix", ""), page=asked.get("page", "")
        )

    def _download_object(self, asked: Asked) -> Response:
        """An object's bytes as a file to be kept: never as a page, which could ask the rehearsal anything."""
        name, generation = _require_value(asked, "name"), _parse_number(asked, "generation")
        found, file = self._store.read(_require_value(asked, "bucket"), name, generation=generation)
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2] or 'object')}",
            "Content-Length": str(found.size),
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return StreamingResponse(_iter_chunks(file), headers=headers, media_type="application/octet-stream")

    def _describe_clients(self, _: Asked) -> Any:
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

    def _list_methods(self, _: Asked) -> Any:
        rows = list_methods(self._played)
        return [dict(zip(("method", "extent", "limit"), row, strict=True)) for row in rows]


def _wrap_handler(how: Callable[[Asked], Any]) -> Callable[[Request], Response]:
    """A route, run in a thread of its own, whose refusals are as readable as Google's."""

    def handle_request(request: Request) -> Response:
        try:
            found = how(request.query_params)
        except ApiError as problem:
            return JSONResponse(problem.body(), problem.http_status)
        except StorageError as refused:
            return JSONResponse(refused.document(), refused.status)
        return found if isinstance(found, Response) else JSONResponse(found, headers={"Cache-Control": "no-store"})

    return handle_request


def _require_value(asked: Asked, name: str) -> str:
    if not asked.get(name):
        raise invalid_argument(name, f"?{name}= is needed.")
    return asked[name]


def _parse_number(asked: Asked, name: str) -> int | None:
    text = asked.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise invalid_argument(name, f'{name} must be a number, not "{text}".')
    return int(text)


def _iter_chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece
