"""BlockingStream: a TCP connection for a program without a loop."""

import mmap
import socket
import struct
from time import monotonic

from bookie.runtime.os_process import processor_count, yield_processor
from bookie.runtime.os_sockets import KeepAlive, set_keep_alive
from bookie.runtime.short_waits import Spinning

_FEW_BYTES = 16 * 1024
_MANY_BYTES = 256 * 1024
"""Python takes memory for as much as is asked for, and so much from the kernel itself, which costs
more than to receive. So it is asked for only where the last bytes filled what was there."""
_CROWDED_S = 50e-6
"""A processor that others had for longer is wanted for more than the answer: no spinning on it."""


def untouched_memory(byte_count: int) -> memoryview:
    """Return memory that takes room only where it was written to, aligned as a page."""
    # This process's alone: shared memory is slower to get.
    return memoryview(mmap.mmap(-1, byte_count, access=mmap.ACCESS_COPY))


class BlockingStream:
    """Bytes to and from one peer. One thread receives at a time, and one sends."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Connect; OSError (TimeoutError after timeout_s)."""
        self._spinning = Spinning()
        self._spin_s = 0.0
        self._room_bytes = _FEW_BYTES  # of the next receive()
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        set_keep_alive(self._socket)

    def set_timeout(self, timeout_s: float | None) -> None:
        """Let receive() raise TimeoutError after so long; None: never. It may be called again."""
        # The kernel's, of receiving alone: Python's asks it first, and ends a long send, too.
        self._socket.settimeout(None)
        timeout = struct.pack("ll", *divmod(round((timeout_s or 0.0) * 1e6), 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)

    def keep_alive(self, keep: KeepAlive) -> None:
        """Notice sooner, or later, than as usual that the peer's machine is gone."""
        set_keep_alive(self._socket, keep)

    def set_spin(self, spin_s: float) -> None:
        """Let receive() look for so long before it sleeps, where that pays; 0: never."""
        self._spin_s = spin_s if processor_count() > 1 else 0.0

    def send(self, data: bytes) -> None:
        """Send all of it; OSError."""
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Wait for bytes and return them; b"" at the end; OSError."""
        byte_count = self._room_bytes
        data = self._look(byte_count) if self._spin_s and self._spinning.begin() else None
        if data is None:
            try:
                data = self._socket.recv(byte_count)
            except BlockingIOError:
                raise TimeoutError("timed out") from None
        self._room_bytes = _MANY_BYTES if len(data) >= _FEW_BYTES else _FEW_BYTES
        return data

    def _look(self, byte_count: int) -> bytes | None:
        """Return what comes before it would pay to sleep, None: nothing has."""
        own = self._socket
        now_s = monotonic()
        end_s = now_s + self._spin_s
        while now_s < end_s:
            try:
                return own.recv(byte_count, socket.MSG_DONTWAIT)
            except BlockingIOError:
                yield_processor()
            looked_s, now_s = now_s, monotonic()
            if now_s - looked_s > _CROWDED_S:
                break
        self._spinning.fail()
        return None

    def receive_into(self, room: memoryview) -> int:
        """Wait for bytes, as receive(), but put them into `room`; their number, 0 at the end."""
        try:
            return self._socket.recv_into(room)
        except BlockingIOError:
            raise TimeoutError("timed out") from None

    def close(self) -> None:
        """Close this process's end; repeatable. Only end() tells a thread that waits in receive."""
        self._socket.close()

    def end(self) -> None:
        """End the connection for all threads and processes that have it; repeatable."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster
        self._socket.close()

    def abandon(self) -> None:
        """End the connection, at any line of any thread."""
        self.end()
