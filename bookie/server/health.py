"""HealthServer: metrics, health and readiness over a few lines of HTTP/1.0.

GET /heartbeat: 200 while the process runs. GET /health: 200, or 503 with the reason, while
requests can be served. GET /ready (and /api/v1/bookie/is_ready, as Apache BookKeeper's): 200 once
the bookie is registered and serves, else 503. GET /metrics: Prometheus' text format. One request
per connection, REQUEST_BYTES_MAX long, within a few seconds; at most CONNECTIONS_MAX at once.
Everything happens on one asyncio loop.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from bookie.server.metrics import ServerMetrics, exposition

_log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 64
_TIMEOUT_S = 5.0
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HealthServer:
    """See the module. `health` and `readiness` return None, or the reason why not."""

    def __init__(
        self,
        metrics: ServerMetrics,
        health: Callable[[], str | None],
        readiness: Callable[[], str | None],
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._server: asyncio.AbstractServer | None = None
        self._connections: dict[_HttpConnection, None] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _HttpConnection(self._connections, self.answer), host, port
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection; idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        ended = [connection.abort() for connection in list(self._connections)]
        if ended:
            await asyncio.wait(ended)
        await server.wait_closed()

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET and HEAD\n"
        match path.partition("?")[0]:
            case "/heartbeat":
                return 200, _TEXT, b"OK\n"
            case "/health":
                return _verdict(self._health())
            case "/ready" | "/api/v1/bookie/is_ready":
                return _verdict(self._readiness())
            case "/metrics":
                try:
                    return 200, _METRICS, exposition(self._metrics)
                except ImportError as error:
                    return 500, _TEXT, f"metrics need prometheus_client: {error}\n".encode()
            case _:
                return 404, _TEXT, b"/heartbeat /health /ready /metrics\n"


def _verdict(reason: str | None) -> tuple[int, str, bytes]:
    return (200, _TEXT, b"OK\n") if reason is None else (503, _TEXT, f"{reason}\n".encode())


class _HttpConnection(asyncio.Protocol):
    """One request, one answer, the end."""

    def __init__(
        self,
        connections: "dict[_HttpConnection, None]",
        answer: Callable[[str, str], tuple[int, str, bytes]],
    ) -> None:
        self._connections = connections
        self._answer = answer
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._connections) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._connections[self] = None
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._received += data
        if len(self._received) > REQUEST_BYTES_MAX:
            self._reply(400, _TEXT, b"the request is too long\n")
        elif b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            words = self._received.split(b"\n", 1)[0].decode("latin-1").split()
            if len(words) < 2:
                self._reply(400, _TEXT, b"expected: GET /path HTTP/1.1\n")
                return
            try:
                status, kind, body = self._answer(words[0], words[1])
            except Exception:  # noqa: BLE001 - a page that breaks is answered, and logged
                _log.exception("GET %s failed", words[1])
                status, kind, body = 500, _TEXT, b"see the log of the bookie\n"
            self._reply(status, kind, b"" if words[0] == "HEAD" else body)

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        assert self._transport is not None
        head = (
            f"HTTP/1.0 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if not self._ended.done():
            self._ended.set_result(None)

    def abort(self) -> "asyncio.Future[None]":
        """Cut the connection off; return what ends with it."""
        if self._transport is not None:
            self._transport.abort()
        return self._ended
