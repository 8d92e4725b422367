"""StreamTransport: a gRPC call in place of a socket, as a ServerConnection sees it.

What the connection writes waits here until the call takes it by next(); above the high-water mark
the connection is told to pause. So a call has a socket's limits and order. On the server's loop.
"""

import asyncio
from collections import deque

_HIGH_WATER = 64 * 1024


class StreamTransport(asyncio.Transport):
    """See the module."""

    def __init__(
        self, protocol: asyncio.Protocol, peer: str, certificate: bytes | None = None
    ) -> None:
        """`certificate` is the client's (DER)."""
        super().__init__({"peername": peer, "protocol": "grpc", "certificate": certificate})
        self._protocol = protocol
        self._outgoing: deque[bytes] = deque()
        self._byte_count = 0
        self._high = _HIGH_WATER
        self._is_paused = False
        self._is_closing = False
        self._changed = asyncio.Event()
        self._task = asyncio.current_task()  # the call's
        self.reads_frames = False
        """The client has sent a frame, so it understands answers in frames."""
        self.may_read = asyncio.Event()
        """Set while the connection takes more."""
        self.may_read.set()

    async def next(self) -> bytes | None:
        """Return what was written next, None when the connection has closed the call."""
        while not self._outgoing:
            if self._is_closing:
                return None
            self._changed.clear()
            await self._changed.wait()
        data = self._outgoing.popleft()
        self._byte_count -= len(data)
        if self._is_paused and self._byte_count <= self._high // 4:
            self._is_paused = False
            self._protocol.resume_writing()
        return data

    # --- the connection's ------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self._outgoing.append(bytes(data))
        self._byte_count += len(data)
        self._changed.set()
        if not self._is_paused and self._byte_count > self._high:
            self._is_paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._byte_count

    def pause_reading(self) -> None:
        self.may_read.clear()

    def resume_reading(self) -> None:
        self.may_read.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """End the call when everything was sent."""
        self._is_closing = True
        self._changed.set()

    def abort(self) -> None:
        """End the call at once, also when its client takes nothing."""
        self._outgoing.clear()
        self._byte_count = 0
        self.close()
        if self._task is not None:
            self._task.cancel()
