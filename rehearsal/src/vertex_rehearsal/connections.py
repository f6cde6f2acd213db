"""Connections that can be closed without an answer, as happens when a network is lost."""

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "rehearsal.transport"
PREFIX, HAS_KEY = "rehearsal.prefix", "rehearsal.has_key"
"""Extensions of a request's scope: the part of its address that carried a token, and whether it was the right one."""


class TransportProtocol(HttpToolsProtocol):
    """HTTP whose requests know the connection that they came by."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Remember it."""
        super().connection_made(transport)
        app: ASGIApp = self.app

        async def with_transport(scope: Scope, receive: Receive, send: Send) -> Any:
            scope.setdefault("extensions", {})[EXTENSION] = transport
            return await app(scope, receive, send)

        self.app = with_transport


class DropConnection(Response):
    """No answer at all: the connection is closed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Close it, and wait until the server has noticed, who would answer else."""
        scope["extensions"][EXTENSION].abort()
        while (await receive())["type"] != "http.disconnect":
            pass
