"""Connections that can be closed without a response, to simulate a network failure."""

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "rehearsal.transport"
PREFIX, HAS_KEY = "rehearsal.prefix", "rehearsal.has_key"
"""Extensions of a request's scope: the part of its path with the token, and whether the token is valid."""


class TransportProtocol(HttpToolsProtocol):
    """HTTP protocol that gives requests access to their connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client connects: remember the transport."""
        super().connection_made(transport)
        app: ASGIApp = self.app

        async def with_transport(scope: Scope, receive: Receive, send: Send) -> Any:
            scope.setdefault("extensions", {})[EXTENSION] = transport
            return await app(scope, receive, send)

        self.app = with_transport


class DropConnection(Response):
    """A response that closes the connection without sending anything."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Close the connection and wait until the server has noticed, since it would send a response otherwise."""
        scope["extensions"][EXTENSION].abort()
        while (await receive())["type"] != "http.disconnect":
            pass
