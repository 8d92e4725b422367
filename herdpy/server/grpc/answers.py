"""Answers: what a call's connection has answered, in place of a socket's transport.

An answer waits here until the call takes it by next(); above the high-water mark the connection is
told to pause. So a call has a socket's limits and order. On the server's loop.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from herdpy.proto import herdpy_pb2 as pb

if TYPE_CHECKING:
    from herdpy.server.connection import ServerConnection

_HIGH_WATER = 64 * 1024


class Answers(asyncio.Transport):
    def __init__(
        self, connection: "ServerConnection", peer: str, certificate: bytes | None
    ) -> None:
        """`certificate` is the client's (DER)."""
        super().__init__({"peername": peer, "protocol": "grpc", "certificate": certificate})
        self._connection = connection
        self._waiting: deque[tuple[Any, int]] = deque()
        self._byte_count = 0
        self._high = _HIGH_WATER
        self._is_paused = False
        self._is_closing = False
        self._changed = asyncio.Event()
        self._task = asyncio.current_task()  # the call's
        self.may_read = asyncio.Event()
        """Set while the connection takes more."""
        self.may_read.set()

    async def next(self) -> Any:
        """Return the next answer, None when the connection has closed the call."""
        while not self._waiting:
            if self._is_closing:
                return None
            self._changed.clear()
            await self._changed.wait()
        answer, byte_count = self._waiting.popleft()
        self._byte_count -= byte_count
        if self._is_paused and self._byte_count <= self._high // 4:
            self._is_paused = False
            self._connection.resume_writing()
        return answer

    # --- the connection's ------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        byte_count = _byte_count(data)
        self._waiting.append((data, byte_count))
        self._byte_count += byte_count
        self._changed.set()
        if not self._is_paused and self._byte_count > self._high:
            self._is_paused = True
            self._connection.pause_writing()

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
        self._waiting.clear()
        self._byte_count = 0
        self.close()
        if self._task is not None:
            self._task.cancel()


def _byte_count(answer: Any) -> int:
    """Return what an answer counts for; a message itself nothing: its call has one at a time."""
    if isinstance(answer, bytes):
        return len(answer)
    return answer.ByteSize() if isinstance(answer, pb.SessionReply) else 0
