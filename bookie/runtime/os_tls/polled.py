"""PolledTlsSocket: TLS for a library that polls a socket of its own, such as kazoo.

What a poll says of the socket is not what a reader wants to know: bytes that came may hold no data,
as a ticket for a later session does, and data that were decrypted with others leave nothing behind
that could be polled. wait_ready() here knows both. One thread.
"""

import socket
import ssl
from collections.abc import Sequence
from time import monotonic

from bookie.runtime.os_sockets import wait_ready as wait_sockets

_PIECE_BYTES = 64 * 1024


class PolledTlsSocket:
    """The part of a socket that kazoo uses; not blocking. Data are decrypted by fill()."""

    def __init__(
        self, address: tuple[str, int], timeout_s: float, context: ssl.SSLContext, name: str
    ) -> None:
        """Connect to address and shake hands with `name`; OSError, of which ssl.SSLError is one."""
        plain = socket.create_connection(address, timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._tls = context.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise
        self._tls.setblocking(False)
        self._data = bytearray()
        self._is_over = False

    @property
    def has_data(self) -> bool:
        """Something is to be read now: data, or that there are no more."""
        return bool(self._data) or self._is_over

    def fill(self) -> None:
        """Decrypt what has come; OSError."""
        try:
            while not self._is_over:
                piece = self._tls.recv(_PIECE_BYTES)
                self._data += piece
                self._is_over = not piece
        except ssl.SSLWantReadError:
            pass

    def recv(self, count: int) -> bytes:
        """Return up to `count` bytes, b"" at the end; ssl.SSLWantReadError: there are none yet."""
        if not self.has_data:
            self.fill()
        if not self.has_data:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "no data yet")
        found = bytes(self._data[:count])
        del self._data[:count]
        return found

    def send(self, data: bytes) -> int:
        """Send some of it, and return how much; ssl.SSLWantWriteError: none now; OSError."""
        return self._tls.send(data)

    def fileno(self) -> int:
        return self._tls.fileno()

    def setblocking(self, _: bool) -> None:
        """Do nothing: it never blocks."""

    def close(self) -> None:
        self._tls.close()


AnySocket = socket.socket | PolledTlsSocket


def wait_ready(
    readers: Sequence[AnySocket], writers: Sequence[AnySocket], timeout_s: float | None
) -> tuple[list[AnySocket], list[AnySocket]]:
    """Wait as os_sockets.wait_ready() does; of TLS until there are data. OSError: it has failed."""
    secured = [each for each in readers if isinstance(each, PolledTlsSocket)]
    end_s = None if timeout_s is None else monotonic() + timeout_s
    while True:
        if found := [each for each in secured if each.has_data]:
            return [*found], []
        left_s = None if end_s is None else max(0.0, end_s - monotonic())
        ready, writable = wait_sockets(readers, writers, left_s)
        for each in secured:
            if each in ready:
                each.fill()
        ready = [each for each in ready if each not in secured or each.has_data]
        if ready or writable or left_s == 0.0:
            return ready, writable
