"""send(): one request with a body to one URL; of the answer nothing but its status is read.

No redirect is followed and no proxy asked: what is signed for one receiver goes to no other.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from bookie.errors import IncorrectParameterError

ANSWER_BYTES_MAX = 1024
"""Until the end of the status line, or of an interim answer."""
INTERIM_ANSWERS_MAX = 8
"""Before the last answer. Without a limit a receiver could keep this loop busy."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})( [^\r\n]*)?\r?")
_HOST = re.compile(r"[0-9A-Za-z._:-]+")
_PATH = re.compile(r"[!-~]*")
_PORTS = {"http": 80, "https": 443}


class Url(NamedTuple):
    """Where a request goes."""

    scheme: str
    host: str
    port: int
    path: str
    """With the query; it may hold a secret, so that only `origin` is shown."""

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @staticmethod
    def of(text: str) -> "Url":
        """Read it; IncorrectParameterError, which does not show the path."""
        try:
            parts = urlsplit(text)
            default = _PORTS.get(parts.scheme)
            port = default if default is None or parts.port is None else parts.port
            (parts.hostname or "").encode("idna")  # as connecting does
        except ValueError:  # of the port, of brackets, of the host
            parts, port = urlsplit(""), None
        host, path = parts.hostname or "", parts.path or "/"
        if parts.query:
            path += f"?{parts.query}"
        is_named = bool(_HOST.fullmatch(host)) and "@" not in parts.netloc and not parts.fragment
        if not port or not is_named or not _PATH.fullmatch(path):
            raise IncorrectParameterError(
                "webhook: expected http://host:port/path or https://…, in ASCII, without user, "
                f"password and fragment, found another text that begins with {text[:8]!r}"
            )
        return Url(parts.scheme, host, port, path)


class _Answer(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self._received = bytearray()
        self._interim_count = 0
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        self._received += data
        while not self.status.done():
            line, end, _ = bytes(self._received).partition(b"\n")
            if not (end or len(line) > ANSWER_BYTES_MAX):
                return
            match = _STATUS.fullmatch(line)
            if match is None:
                self.status.set_exception(ConnectionError("the answer is not HTTP's"))
            elif not match[1].startswith(b"1"):
                self.status.set_result(int(match[1]))
            elif self._interim_count == INTERIM_ANSWERS_MAX:
                self.status.set_exception(ConnectionError("too many interim answers"))
            else:  # an interim answer: the last one follows
                head, end, rest = bytes(self._received).partition(b"\r\n\r\n")
                if end:
                    self._interim_count += 1
                    self._received = bytearray(rest)
                elif len(head) > ANSWER_BYTES_MAX:
                    self.status.set_exception(ConnectionError("an interim answer has no end"))
                else:
                    return

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.status.done():
            self.status.set_exception(exc or ConnectionError("the connection ended unanswered"))


async def send(
    method: str,
    url: Url,
    headers: Mapping[str, str],
    body: bytes,
    tls: ssl.SSLContext | None,
    timeout_s: float,
) -> int:
    """Return the status of the answer. OSError; TimeoutError (one, too) after timeout_s in all."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    lines = [
        f"{method} {url.path} HTTP/1.1",
        f"Host: {host}:{url.port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    async with asyncio.timeout(timeout_s):
        context = tls if url.scheme == "https" else None
        try:
            request = "\r\n".join([*lines, "", ""]).encode("ascii") + body
            transport, answer = await asyncio.get_running_loop().create_connection(
                lambda: _Answer(request), url.host, url.port, ssl=context
            )
        except OSError:
            raise  # of which a certificate's is a ValueError, too
        except ValueError as error:  # IDNA's UnicodeError is one; another for a NUL
            raise OSError(f"{url.host!r}: expected a host's name in ASCII, found none") from error
        try:
            return await answer.status
        finally:
            transport.abort()
