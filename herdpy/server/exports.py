"""OpenExport: a backup or a dump on its way to the driver, in pieces that fit the wire.

One thread at a time: that which runs the connection's request. A piece is made when it is asked
for, so that a driver that reads slowly costs no memory.
"""

from collections.abc import Iterator
from typing import Protocol

PIECE_BYTES = 1024 * 1024


class Export(Protocol):
    """What makes the bytes; engine/backup.py and engine/dump.py."""

    @property
    def byte_count(self) -> int: ...

    def pieces(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class OpenExport:
    """See the module."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._pieces = export.pieces()
        self.byte_count = export.byte_count

    def next(self) -> tuple[bytes, bool]:
        """Return the next bytes, about PIECE_BYTES, and whether they are the last."""
        parts: list[bytes] = []
        length = 0
        for part in self._pieces:
            parts.append(part)
            length += len(part)
            if length >= PIECE_BYTES:
                return b"".join(parts), False
        return b"".join(parts), True

    def close(self) -> None:
        """Let the files or the snapshot go; repeatable."""
        self._export.close()
