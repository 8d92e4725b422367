"""Cuts a stream of bytes into frames: int32 length (big-endian), then that many bytes.

The limit counts the length field, too, as BookKeeper's does. A length is checked before anything
is kept for it, and what is kept never exceeds what arrived: a peer that announces much and sends
little costs little. Work is linear in the bytes received, however they are chopped up. Source:
docs/formats/wire_v3.md, Framing.
"""

import struct

from bookie.errors import FrameTooLargeError

LENGTH_BYTES = 4
_unpack = struct.Struct(">I").unpack_from
BytesLike = bytes | bytearray | memoryview


class FrameSplitter:
    """One direction of one connection. After FrameTooLargeError only a new splitter helps."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._partial = bytearray()
        self.is_partial = False
        """A frame has begun and is perhaps not whole."""
        # Of the whole partial frame with its length field; 4 while that is not complete.
        self._needed = LENGTH_BYTES

    @property
    def buffered_byte_count(self) -> int:
        """What is kept of a frame that is not whole yet."""
        return len(self._partial)

    def feed(self, data: BytesLike) -> list[memoryview]:
        """Take what arrived; return the frames that are whole now, without their length.

        A frame inside `data` is a view of it, so `data` must not be changed while frames are in
        use. FrameTooLargeError at once when a length field is negative or above the limit; the
        frames before it are lost with the connection.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        position = self._complete_partial(view, frames) if self._partial else 0
        self.is_partial = bool(self._partial)
        end = len(view)
        while end - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            (length,) = _unpack(view, position)
            if length + LENGTH_BYTES > self.frame_bytes_max:
                self._refuse(length)
            if start + length > end:
                self._needed = LENGTH_BYTES + length
                break
            position = start + length
            frames.append(view[start:position])
        if position < end:
            self._partial += view[position:]
            self.is_partial = True
        return frames

    def hand_over(self, bytes_min: int, bytes_max: int) -> tuple[bytearray, int] | None:
        """Hand over a frame of such a length that is not whole: what came of it, and its length.

        Both with the length field. The caller takes the rest of its bytes, too, and feeds only
        what comes behind them. None: there is no such frame.
        """
        partial, needed = self._partial, self._needed
        if len(partial) < LENGTH_BYTES or not bytes_min <= needed <= bytes_max:
            return None
        self._partial = bytearray()
        self._needed = LENGTH_BYTES
        return partial, needed

    def _complete_partial(self, view: memoryview, frames: list[memoryview]) -> int:
        """Add to the partial frame what belongs to it; return how much of view that was."""
        partial = self._partial
        position = 0
        if len(partial) < LENGTH_BYTES:
            position = LENGTH_BYTES - len(partial)
            partial += view[:position]
            if len(partial) < LENGTH_BYTES:
                return len(view)
            (length,) = _unpack(partial)
            if length + LENGTH_BYTES > self.frame_bytes_max:
                self._refuse(length)
            self._needed = LENGTH_BYTES + length
        missing = self._needed - len(partial)
        piece = view[position : position + missing]
        partial += piece
        if len(piece) == missing:
            frames.append(memoryview(partial)[LENGTH_BYTES:])
            self._partial = bytearray()
            self._needed = LENGTH_BYTES
        return position + len(piece)

    def _refuse(self, length: int) -> None:
        signed = length - (1 << 32) if length >> 31 else length
        raise FrameTooLargeError(
            f"a frame of {signed} bytes was announced; expected 0 to"
            f" {self.frame_bytes_max - LENGTH_BYTES} (frame_bytes_max is {self.frame_bytes_max})"
        )
