"""HttpServer: a few pages over a few lines of HTTP/1.0, for probes and scrapers.

GET and HEAD only. One request per connection, REQUEST_BYTES_MAX long, within a few seconds; at
most CONNECTIONS_MAX at once. Everything happens on one asyncio loop, so a page has to be made fast.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from bookie.runtime.metrics import exposition

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 64
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_TIMEOUT_S = 5.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Page(NamedTuple):
    """What answers a request."""

    status: int
    content_type: str
    body: bytes


def verdict(reason: str | None) -> Page:
    """Return the page of a probe: 200 without a reason against it, else 503 and the reason."""
    return Page(200, TEXT, b"OK\n") if reason is None else Page(503, TEXT, f"{reason}\n".encode())


def metrics_page(families: "Callable[[], Iterable[Metric]]") -> Page:
    """Return the page for Prometheus."""
    try:
        return Page(200, _METRICS, exposition(families))
    except ImportError as error:
        return Page(500, TEXT, f"metrics need prometheus_client: {error}\n".encode())


class HttpServer:
    """See the module. `page` makes the page of a path (with its query), None: there is none.

    `paths` is what a 404 names.
    """

    def __init__(self, page: Callable[[str], Page | None], paths: str) -> None:
        self._page = page
        self._paths = paths
        self._server: asyncio.AbstractServer | None = None
        self._connections: dict[_HttpConnection, None] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. OSError when it is taken."""
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

    def answer(self, method: str, path: str) -> Page:
        """Return the answer to a request; a page that breaks is a 500, and logged."""
        if method not in ("GET", "HEAD"):
            return Page(405, TEXT, b"only GET and HEAD\n")
        try:
            page = self._page(path)
        except Exception:  # noqa: BLE001 - a page that breaks is answered, and logged
            _log.exception("GET %s failed", path)
            return Page(500, TEXT, b"see the server's log\n")
        if page is None:
            return Page(404, TEXT, f"{self._paths}\n".encode())
        return page


class _HttpConnection(asyncio.Protocol):
    """One request, one answer, the end."""

    def __init__(
        self,
        connections: "dict[_HttpConnection, None]",
        answer: Callable[[str, str], Page],
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
            self._reply(Page(400, TEXT, b"the request is too long\n"))
        elif b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            words = self._received.split(b"\n", 1)[0].decode("latin-1").split()
            if len(words) < 2:
                self._reply(Page(400, TEXT, b"expected: GET /path HTTP/1.1\n"))
                return
            page = self._answer(words[0], words[1])
            if words[0] == "HEAD":
                page = page._replace(body=b"")
            self._reply(page)

    def _reply(self, page: Page) -> None:
        assert self._transport is not None
        status, kind, body = page
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
