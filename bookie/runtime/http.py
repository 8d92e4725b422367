"""HttpServer: probes, scrapers and a management API over a few lines of HTTP/1.0.

Pages answer GET and HEAD at once and are open to all. An Api answers what needs a role: its calls
are coroutines, may have a body and take longer, a few at a time. One request per connection; head
and body have limits, and must have come within a few seconds; a peer that does not take its answer
is cut off. At most CONNECTIONS_MAX at once: one more takes the place of the oldest whose request
has not come whole, of the address that has most. Everything happens on one asyncio loop, so a page
has to be made fast.
"""

import asyncio
import contextlib
import json
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, unquote

from bookie.peer_shares import PeerShares, origin_of
from bookie.runtime.interfaces import Tls, context_of
from bookie.runtime.metrics import exposition

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
"""Of the head: the request's line and headers."""
BODY_BYTES_MAX = 256 * 1024
CONNECTIONS_MAX = 64
CONNECTIONS_OF_ADDRESS_MAX = 32
"""Of one address, whose requests have not come whole."""
API_CALLS_MAX = 4
"""Calls of an Api under way; more are answered 503."""
API_GETS_MAX = 3
"""Of them those that only look: one place is left for changes."""
API_TIMEOUT_S = 60.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_TIMEOUT_S = 5.0
_FIELDS_MAX = 100
_TLS_PIECE_BYTES = 16 * 1024
"""A TLS record's content."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH = re.compile(r"[0-9]{1,9}")
_VERSION = re.compile(r"HTTP/1\.[0-9]")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Page(NamedTuple):
    """What answers a request."""

    status: int
    content_type: str
    body: bytes
    allow: str = ""
    """Of a 405: the methods that there are."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came; `path` is decoded, parameters may repeat."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By lower-case name; one that came twice is joined by a comma."""
    body: bytes = b""
    certificate_name: str | None = None
    """The common name of the certificate that the client showed; it was verified."""


class Api(Protocol):
    """What answers requests that need a role."""

    def owns(self, path: str) -> bool:
        """Tell whether requests for this path are the Api's, whatever their method."""
        ...

    def refusal(self, request: Request) -> Page | None:
        """Return why the client may not ask this; None: it may. Before its body is read."""
        ...

    def call(self, request: Request) -> Awaitable[Page]: ...

    def close(self) -> Awaitable[None]:
        """Give back what outlives a call; the server calls it at its end."""
        ...


def verdict(reason: str | None) -> Page:
    """Return the page of a probe: 200 without a reason against it, else 503 and the reason."""
    return Page(200, TEXT, b"OK\n") if reason is None else Page(503, TEXT, f"{reason}\n".encode())


def problem(status: int, message: str, retry: str = "never") -> Page:
    """Return what the server itself says against a request to an Api.

    Errors of an Api have the same form, with a class and a code of their own.
    """
    record = {"error": _REASONS[status], "code": None, "retry": retry, "message": message}
    return Page(status, JSON, json.dumps(record).encode() + b"\n")


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

    def __init__(
        self, page: Callable[[str], Page | None], paths: str, api: Api | None = None
    ) -> None:
        self._page = page
        self._paths = paths
        self._api = api
        self._server: asyncio.AbstractServer | None = None
        self._connections: dict[_HttpConnection, None] = {}
        self.unanswered: PeerShares[_HttpConnection] = PeerShares(
            CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX
        )
        """Those whose request has not come whole."""
        self._calls: dict[asyncio.Task[None], str] = {}
        """Those under way, with their methods."""

    async def start(self, host: str, port: int, tls: Tls | None = None) -> int:
        """Listen; return the port. OSError when it is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _HttpConnection(self, self._connections, tls), host, port
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection and call; idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        ended = [connection.abort() for connection in list(self._connections)]
        if ended:
            await asyncio.wait(ended)
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        if self._api is not None:
            await self._api.close()
        await server.wait_closed()

    def answer(self, method: str, path: str) -> Page:
        """Return the page of a path; one that breaks is a 500, and logged."""
        if method not in ("GET", "HEAD"):
            return Page(405, TEXT, b"only GET and HEAD\n", "GET, HEAD")
        try:
            page = self._page(path)
        except Exception:  # noqa: BLE001 - a page that breaks is answered, and logged
            _log.exception("GET %s failed", path)
            return Page(500, TEXT, b"see the server's log\n")
        if page is None:
            return Page(404, TEXT, f"{self._paths}\n".encode())
        return page

    def api_of(self, path: str) -> Api | None:
        """Return the Api if the path is its own."""
        return self._api if self._api is not None and self._api.owns(path) else None

    def begin(
        self, api: Api, request: Request, reply: Callable[[Page], None]
    ) -> asyncio.Task[None] | None:
        """Call the Api; reply comes later. None: at once, for too many calls are under way."""
        methods = list(self._calls.values())
        looks = request.method == "GET"
        if len(methods) >= API_CALLS_MAX or (looks and methods.count("GET") >= API_GETS_MAX):
            reply(
                problem(
                    503,
                    f"expected fewer than {API_CALLS_MAX} calls under way, and of them fewer than "
                    f"{API_GETS_MAX} GET, found {len(methods)} and {methods.count('GET')}; ask "
                    "again later",
                    "safe",
                )
            )
            return None
        task = asyncio.get_running_loop().create_task(_call(api, request, reply))
        self._calls[task] = request.method
        task.add_done_callback(lambda done: self._calls.pop(done, None))
        return task


async def _call(api: Api, request: Request, reply: Callable[[Page], None]) -> None:
    try:
        async with asyncio.timeout(API_TIMEOUT_S):
            page = await api.call(request)
    except TimeoutError:
        page = problem(
            504,
            f"expected an end within {API_TIMEOUT_S:g} s, found none; what was asked for may have "
            "happened: look before you repeat it",
            "unknown",
        )
    except Exception:  # noqa: BLE001 - a call that breaks is answered, and logged
        _log.exception("%s %s failed", request.method, request.path)
        page = problem(
            500, "the call broke by a defect, and may have happened; see the log", "unknown"
        )
    reply(page)


class _Tls:
    """The server's end of TLS between bytes and bytes.

    The loop's own TLS tells of a connection only after its handshake: those that begin none would
    be neither counted nor timed.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        """What is to be sent after each call, also after one that failed."""
        self._object = context.wrap_bio(self._incoming, self.outgoing, server_side=True)
        self._is_handshake_over = False

    def opened(self, data: bytes) -> bytes:
        """Return what the client said by these bytes; SSLError ends the connection."""
        self._incoming.write(data)
        found = bytearray()
        try:
            if not self._is_handshake_over:
                self._object.do_handshake()
                self._is_handshake_over = True
            while piece := self._object.read(_TLS_PIECE_BYTES):
                found += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # needs more; or the client says no more, and takes its answer yet
        return bytes(found)

    def sealed_last(self, data: bytes) -> bytes:
        """Return data, the last there is, as it is to be sent, and that it was the last."""
        self._object.write(data)
        with contextlib.suppress(ssl.SSLError):  # it wants to read the client's end, too
            self._object.unwrap()
        return self.outgoing.read()

    def client_name(self) -> str | None:
        """Return the common name of the client's certificate, which TLS has verified."""
        certificate: Any = self._object.getpeercert()
        for part in (certificate or {}).get("subject", ()):
            for name, value in part:
                if name == "commonName":
                    return str(value)
        return None


class _HttpConnection(asyncio.Protocol):
    """One request, one answer, the end."""

    def __init__(
        self,
        server: HttpServer,
        connections: "dict[_HttpConnection, None]",
        tls: Tls | None,
    ) -> None:
        self._http = server
        self._tls = None if tls is None else _Tls(context_of(tls))
        self._connections = connections
        self._received = bytearray()
        self._request: Request | None = None
        """Of an Api, once its head was read; then the body is waited for."""
        self._body_bytes = 0
        self.is_answering = False
        self._look: asyncio.Task[None] | None = None
        """The call of a GET, which is of use to its client only."""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        unanswered, peer = self._http.unanswered, transport.get_extra_info("peername")
        # Not the newest gives way: those that say nothing would keep probes out.
        gone = unanswered.add(self, origin_of(str(peer[0]) if peer else ""))
        if gone is None and len(self._connections) >= CONNECTIONS_MAX:
            gone = unanswered.give_way()
        self._connections[self] = None
        if gone is not None:
            self._connections.pop(gone)
            gone.abort()
            if gone is self:  # all others are being answered
                return
        self._allow(_TIMEOUT_S)

    def _allow(self, seconds: float) -> None:
        """Cut the connection off when it lasts longer than this from now."""
        assert self._transport is not None
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self.is_answering:
            return
        if self._tls is not None:
            try:
                data = self._tls.opened(data)
            except ssl.SSLError as error:
                _log.debug("TLS failed: %s", error)
                self._transport.write(self._tls.outgoing.read())
                self._transport.close()
                return
            self._transport.write(self._tls.outgoing.read())
            if not data:
                return
        self._received += data
        if self._request is None:
            self._read_head()
        else:
            self._read_body(self._request)

    def _read_head(self) -> None:
        ends = [
            (at, mark) for mark in (b"\r\n\r\n", b"\n\n") if (at := self._received.find(mark)) >= 0
        ]
        at, mark = min(ends, default=(len(self._received), b""))
        if at > REQUEST_BYTES_MAX:
            self._reply(Page(400, TEXT, b"the request is too long\n"))
            return
        if not mark:
            return
        head = bytes(self._received[:at])
        del self._received[: at + len(mark)]
        lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not _VERSION.fullmatch(words[2]):
            self._reply(Page(400, TEXT, b"expected: GET /path HTTP/1.1\n"))
            return
        method, target = words[0], words[1]
        path, _, query = target.partition("?")
        path = unquote(path, errors="replace")
        api = self._http.api_of(path)
        if api is None:
            page = self._http.answer(method, target)
            self._reply(page._replace(body=b"") if method == "HEAD" else page)
            return
        headers = _headers(lines[1:])
        length = "0" if headers is None else headers.get("content-length", "0")
        if headers is None or "\r" in head.decode("latin-1").replace("\r\n", ""):
            self._reply(problem(400, "expected headers of the form Name: value, found another"))
        elif "transfer-encoding" in headers or not _LENGTH.fullmatch(length):
            self._reply(
                problem(
                    400,
                    "expected one Content-Length of at most 9 digits and no Transfer-Encoding, "
                    "found another; send the body in one piece",
                )
            )
        else:
            self._expect(api, method, path, query, headers, int(length))

    def _expect(
        self, api: Api, method: str, path: str, query: str, headers: dict[str, str], length: int
    ) -> None:
        """Refuse, or wait for the body of a request to the Api."""
        assert self._transport is not None
        try:
            parameters = tuple(parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX))
        except ValueError:
            self._reply(problem(400, f"expected at most {_FIELDS_MAX} parameters, found more"))
            return
        name = None if self._tls is None else self._tls.client_name()
        request = Request(method, path, parameters, headers, certificate_name=name)
        refusal = api.refusal(request)
        if refusal is not None:
            self._reply(refusal)
        elif length > BODY_BYTES_MAX:
            self._reply(
                problem(413, f"expected a body of at most {BODY_BYTES_MAX} bytes, found {length}")
            )
        else:
            self._request, self._body_bytes = request, length
            self._read_body(request)

    def _read_body(self, request: Request) -> None:
        if len(self._received) < self._body_bytes:
            return
        api = self._http.api_of(request.path)
        assert api is not None
        self._is_answered()
        self._allow(API_TIMEOUT_S + _TIMEOUT_S)
        body = bytes(self._received[: self._body_bytes])
        call = self._http.begin(api, replace(request, body=body), self._reply)
        self._look = call if request.method == "GET" else None

    def _reply(self, page: Page) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._is_answered()
        self._allow(_TIMEOUT_S)
        status, kind, body, allow = page
        head = (
            f"HTTP/1.0 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n"
            "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
        )
        if status == 401:
            head += "WWW-Authenticate: Bearer\r\n"
        if allow:
            head += f"Allow: {allow}\r\n"
        answer = f"{head}\r\n".encode() + body
        self._transport.write(answer if self._tls is None else self._tls.sealed_last(answer))
        self._transport.close()

    def _is_answered(self) -> None:
        """Note that the request has come whole."""
        self.is_answering = True
        self._http.unanswered.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.pop(self, None)
        self._http.unanswered.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.cancel()
        if not self._ended.done():
            self._ended.set_result(None)

    def abort(self) -> "asyncio.Future[None]":
        """Cut the connection off; return what ends with it."""
        if self._transport is not None:
            self._transport.abort()
        return self._ended


def _headers(lines: list[str]) -> dict[str, str] | None:
    """Return the headers by lower-case name; None when a line is none (a fold, too)."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            return None
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers
