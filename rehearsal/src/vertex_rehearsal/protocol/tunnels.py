"""HTTP CONNECT tunnels, through which gRPC clients reach the emulated services at Google's host names."""

import asyncio
from typing import Any

from vertex_rehearsal.connections import TransportProtocol

EMULATED_HOSTS = frozenset({"cloudresourcemanager.googleapis.com"})
"""Hosts that clients always call over gRPC by name and that are emulated; connections to others are passed on."""
MOST_HEAD_BYTES = 8192


class TunnelProtocol(TransportProtocol):
    """HTTP with support for CONNECT, with which gRPC opens a tunnel through a proxy."""

    def __init__(self, *values: Any, tls_port: int, **named: Any) -> None:
        super().__init__(*values, **named)
        self._tls_port = tls_port
        self._head: bytes | None = b""
        """The beginning of a request that may be a CONNECT; None once the kind is known."""

    def data_received(self, data: bytes) -> None:
        """Open a tunnel if the first request is a CONNECT; handle all others as HTTP."""
        if self._head is None:
            super().data_received(data)
            return
        self._head += data
        is_tunnel = self._head.startswith(b"CONNECT ")
        if is_tunnel and b"\r\n\r\n" in self._head:
            self._open_tunnel(self._head)
        elif (not is_tunnel and not b"CONNECT ".startswith(self._head)) or len(self._head) > MOST_HEAD_BYTES:
            received, self._head = self._head, None
            super().data_received(received)

    def _open_tunnel(self, head: bytes) -> None:
        host, _, port = head.split(b" ", 2)[1].decode("latin-1").rpartition(":")
        host = host.strip("[]")
        target = ("127.0.0.1", self._tls_port) if host in EMULATED_HOSTS else (host, int(port) if port.isdigit() else 0)
        client, rest = self.transport, head.partition(b"\r\n\r\n")[2]
        self._unset_keepalive_if_required()
        self.connections.discard(self)  # a graceful shutdown must not wait for tunnels
        client.pause_reading()
        task = asyncio.get_running_loop().create_task(_join_host(client, target, rest))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class TunnelEnd:
    """One end of a tunnel, which forwards received data to the other end."""

    def __init__(self, other: Any) -> None:
        self._other = other

    def connection_made(self, transport: Any) -> None:
        """Called when the connection is made."""

    def data_received(self, data: bytes) -> None:
        """Forward data to the other end."""
        self._other.write(data)

    def pause_writing(self) -> None:
        """Pause reading at the other end (back-pressure)."""
        self._other.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading at the other end."""
        self._other.resume_reading()

    def eof_received(self) -> bool:
        """Close the connection when one end closes."""
        return False

    def connection_lost(self, _: Exception | None) -> None:
        """Close the other end when the connection is lost."""
        self._other.close()


async def _join_host(client: Any, target: tuple[str, int], rest: bytes) -> None:
    loop = asyncio.get_running_loop()
    try:
        host, _ = await loop.create_connection(lambda: TunnelEnd(client), *target)  # type: ignore[type-var]
    except (OSError, OverflowError) as error:
        client.write(f"HTTP/1.1 502 Bad Gateway\r\n\r\n{error}".encode())
        client.close()
        return
    client.set_protocol(TunnelEnd(host))
    client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    if rest:
        host.write(rest)
    client.resume_reading()
