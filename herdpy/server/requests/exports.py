"""OpenExport: a backup or a dump on its way to the driver, in pieces that fit the wire.

One thread at a time: that which runs the connection's request. A piece is made when it is asked
for, so that a driver that reads slowly costs no memory. KeptExports has a tablespace's backups that
have ended, or whose connections did, for a while: who lost the rest of one may go on from where it
was. They go with their tablespace: a name or number leads to those of no other one.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from bookie.runtime.drivers import new_mutex
from herdpy.engine.maintenance.backup import Backup
from herdpy.engine.maintenance.dump import Dump
from herdpy.errors import OperationalError

PIECE_BYTES = 1024 * 1024
KEPT_MAX = 2
"""Backups of one tablespace; each keeps its files on the disk. Beyond it the oldest goes."""
KEPT_S = 60.0


class SnapshotIdentity(NamedTuple):
    """What a backup is of, and what it is called."""

    snapshot: str = ""
    source: str = ""
    position: tuple[int, int, int] = (0, 0, 0)


NO_SNAPSHOT = SnapshotIdentity()


class OpenExport:
    def __init__(self, export: Backup | Dump) -> None:
        self._export = export
        self._pieces = export.pieces()
        self.byte_count = export.byte_count
        self.identity = NO_SNAPSHOT
        if isinstance(export, Backup):
            head = export.head
            self.identity = SnapshotIdentity(
                head.backup_id.hex(), head.state.log_id.hex(), head.state.checkpoint_lsn
            )

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

    def begin_at(self, offset: int) -> None:
        """Begin again, with the byte of an offset; the bytes are those of the first time."""
        self._pieces = _behind(self._export.pieces(), offset)

    def close(self) -> None:
        """Let the files or the snapshot go; repeatable."""
        self._export.close()


def _behind(pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
    for piece in pieces:
        if offset >= len(piece):
            offset -= len(piece)
        else:
            yield piece[offset:]
            offset = 0


class KeptExports:
    """Those of one tablespace. Any thread; close() behind the end of its sessions."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mutex = new_mutex()
        self._kept: dict[str, OpenExport] = {}
        self._is_closed = False

    def keep(self, export: OpenExport) -> None:
        """Keep an export for a while, if it can be gone on with; else close it."""
        name = export.identity.snapshot
        gone: list[OpenExport] = []
        with self._mutex:
            if not name or self._is_closed:
                gone.append(export)
            else:
                self._kept[name] = export
                while len(self._kept) > KEPT_MAX:
                    gone.append(self._kept.pop(next(iter(self._kept))))
                later = self._loop.call_later
                self._loop.call_soon_threadsafe(later, KEPT_S, self._let_go, name, export)
        for each in gone:
            each.close()

    def take(self, snapshot: str, offset: int) -> OpenExport:
        """Return an export that was kept, which goes on at an offset; OperationalError 55000."""
        with self._mutex:
            export = self._kept.pop(snapshot, None)
        if export is None:
            raise OperationalError(
                f"export: the snapshot {snapshot[:64]!r} is not kept: it is under way, or ended "
                f"more than {KEPT_S:g} s ago",
                sqlstate="55000",
                hint="begin a new one",
            )
        export.begin_at(offset)
        return export

    def _let_go(self, name: str, export: OpenExport) -> None:
        with self._mutex:
            if self._kept.get(name) is not export:
                return
            del self._kept[name]
        export.close()

    def close(self) -> None:
        """Let all go, now and from now on."""
        with self._mutex:
            self._is_closed = True
            kept, self._kept = list(self._kept.values()), {}
        for export in kept:
            export.close()
