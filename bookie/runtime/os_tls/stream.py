"""TlsStream: TLS over a TCP connection for a program without a loop.

Unlike ssl.SSLSocket it lets one thread send while another waits for bytes: TLS itself is done in
memory under a lock that no thread holds while it waits for the network.
"""

import ssl
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from bookie.runtime.os_stream import BlockingStream

_PIECE_BYTES = 256 * 1024
_RECORD_BYTES = 16 * 1024
"""One read gives no more than a record of TLS holds; see os_stream.py about asking for more."""
T = TypeVar("T")


class TlsStream(BlockingStream):
    """One thread receives at a time, and one sends; ssl.SSLError is an OSError."""

    def __init__(
        self, host: str, port: int, timeout_s: float, context: ssl.SSLContext, name: str
    ) -> None:
        """Connect to host and shake hands with `name`; OSError (TimeoutError after timeout_s)."""
        super().__init__(host, port, timeout_s)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._lock = threading.Lock()  # of the three
        self._order = threading.Lock()  # records go in the order in which they were made
        try:
            self._shake_hands()
        except BaseException:
            self.end()
            raise

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._take()
            except ssl.SSLError:
                self._flush()  # tell the peer why
                raise
        self._flush()

    @property
    def peer_certificate(self) -> bytes:
        """The peer's certificate, as DER."""
        found = self._tls.getpeercert(binary_form=True)
        assert found is not None  # every context here asks for one
        return found

    def send(self, data: bytes) -> None:
        """Send all of it; OSError."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            with self._order:
                with self._lock:
                    self._tls.write(view[start : start + _PIECE_BYTES])
                    records = self._outgoing.read()
                super().send(records)

    def receive(self) -> bytes:
        """Wait for bytes and return them; b"" at the end; OSError."""
        return self._read(lambda: self._tls.read(_RECORD_BYTES), b"")

    def receive_into(self, room: memoryview) -> int:
        """Wait for bytes and put them into `room`; their number, 0 at the end; OSError."""
        return self._read(lambda: cast("int", self._tls.read(len(room), room)), 0)

    def _read(self, read: Callable[[], T], end: T) -> T:
        while True:
            with self._lock:
                try:
                    return read()
                except ssl.SSLWantReadError:
                    has_answer = self._outgoing.pending > 0
                except ssl.SSLZeroReturnError:
                    return end
            if has_answer:  # TLS itself has something to say
                self._flush()
            self._take()

    def _take(self) -> None:
        data = super().receive()
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def _flush(self) -> None:
        with self._order:
            with self._lock:
                records = self._outgoing.read()
            if records:
                super().send(records)
