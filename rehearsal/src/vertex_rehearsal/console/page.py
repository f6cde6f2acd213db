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
from vertex_rehearsal.api.errors import Problem, invalid
from vertex_rehearsal.client_setup import directions
from vertex_rehearsal.cloud_storage.errors import Refused
from vertex_rehearsal.console.api import Browsing
from vertex_rehearsal.execution.queue import JobQueue
from vertex_rehearsal.protocol.registry import Played, listing

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

PIECE = 2**18
Asked = Mapping[str, str]


@cache
def _html() -> str:
    return (Path(__file__).parent / "page.html").read_text("utf-8")


@cache
def policy() -> str:
    """What the page may do: run its own script, wear its own style, and ask its own server."""
    allowed = {
        tag: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(rf"<{tag}>(.*?)</{tag}>", _html(), re.S)
        )
        for tag in ("script", "style")
    }
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Page:
    """The page, and the answers to what it asks."""

    def __init__(self, context: "Context", played: Mapping[str, Played], queue: "JobQueue[Any]", *, ca: str) -> None:
        self._context = context
        self._played = played
        self._store = context.store
        self._ca = ca
        self._browsing = Browsing(context, queue)

    def routes(self) -> list[Route]:
        """All of them, at paths that are no bucket's."""
        answers = {
            "overview": self._overview, "resources": self._resources, "resource": self._resource,
            "entries": self._entries, "buckets": self._buckets, "objects": self._objects, "object": self._object,
            "clients": self._clients, "methods": self._methods,
        }  # fmt: skip
        return [Route("/", self._front), *(Route(f"/-/{name}", _answering(how)) for name, how in answers.items())]

    def _front(self, _: Request) -> Response:
        wanted = "true" if self._context.settings.token else "false"
        headers = {
            "Content-Security-Policy": policy(), "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache",
            "Referrer-Policy": "no-referrer",
            "Metadata-Flavor": "Google",  # by which Google's libraries know a metadata server
        }  # fmt: skip
        return HTMLResponse(_html().replace('data-token=""', f'data-token="{wanted}"', 1), headers=headers)

    def _overview(self, _: Asked) -> Any:
        return self._browsing.overview()

    def _resources(self, asked: Asked) -> Any:
        before = _number(asked, "before")
        return self._browsing.resources(_needed(asked, "kind"), text=asked.get("text", ""), before=before)

    def _resource(self, asked: Asked) -> Any:
        return self._browsing.resource(_needed(asked, "name"))

    def _entries(self, asked: Asked) -> Any:
        number = _number(asked, "before")
        return self._browsing.entries(
            about=asked.get("about", ""), severity=asked.get("severity", ""), text=asked.get("text", ""),
            after=_number(asked, "after"), before=None if number is None else (_needed(asked, "moment"), number),
        )  # fmt: skip

    def _buckets(self, asked: Asked) -> Any:
        return self._browsing.buckets(after=asked.get("page", ""))

    def _objects(self, asked: Asked) -> Any:
        return self._browsing.objects(
            _needed(asked, "bucket"), prefix=asked.get("prefix", ""), page=asked.get("page", "")
        )

    def _object(self, asked: Asked) -> Response:
        """An object's bytes as a file to be kept: never as a page, which could ask the rehearsal anything."""
        name, generation = _needed(asked, "name"), _number(asked, "generation")
        found, file = self._store.read(_needed(asked, "bucket"), name, generation=generation)
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2] or 'object')}",
            "Content-Length": str(found.size), "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
        }  # fmt: skip
        return StreamingResponse(_pieces(file), headers=headers, media_type="application/octet-stream")

    def _clients(self, _: Asked) -> Any:
        context = self._context
        token = context.settings.token
        return directions(
            http_port=context.http_port, grpc_port=context.grpc_port, token=token, ca=self._ca,
            token_file=str(context.settings.directory / TOKEN_FILE) if token else "",
        )  # fmt: skip

    def _methods(self, _: Asked) -> Any:
        rows = listing(self._played)
        return [dict(zip(("method", "extent", "limit"), row, strict=True)) for row in rows]


def _answering(how: Callable[[Asked], Any]) -> Callable[[Request], Response]:
    """A route, run in a thread of its own, whose refusals are as readable as Google's."""

    def answer(request: Request) -> Response:
        try:
            found = how(request.query_params)
        except Problem as problem:
            return JSONResponse(problem.body(), problem.http_status)
        except Refused as refused:
            return JSONResponse(refused.document(), refused.status)
        return found if isinstance(found, Response) else JSONResponse(found, headers={"Cache-Control": "no-store"})

    return answer


def _needed(asked: Asked, name: str) -> str:
    if not asked.get(name):
        raise invalid(name, f"?{name}= is needed.")
    return asked[name]


def _number(asked: Asked, name: str) -> int | None:
    text = asked.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise invalid(name, f'{name} must be a number, not "{text}".')
    return int(text)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece
