"""OpenExport: a backup or a dump on its way to the driver, in pieces that fit the wire.

One thread at a time: that which runs the connection's request. A piece is made when it is asked
for, so that a driver that reads slowly costs no memory; one that reads no more is ended after a
while, because files that were deleted meanwhile are kept for it. KeptExports has a tablespace's
backups that have ended, or whose connections did, for a while: a client that lost the rest of one
may go on from where it was. They go with their tablespace: a name or number leads to those of no
other one.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock
from herdpy.engine.maintenance.backup import Backup, Listing
from herdpy.engine.maintenance.dump import Dump
from herdpy.errors import OperationalError, Retry

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
    def __init__(self, export: Backup | Dump | Listing, clock: Clock) -> None:
        self._export = export
        self._clock = clock
        # Own mutex, which the reading thread holds while a piece is made.
        self._mutex = new_mutex()
        self._read_s = clock.monotonic()
        self._is_watched = True
        self._idle_s: float | None = None  # it was ended, as nothing was read for so long
        self._pieces = export.pieces()
        self.byte_count = export.byte_count
        self.identity = NO_SNAPSHOT
        if isinstance(export, Backup):
            head = export.head
            self.identity = SnapshotIdentity(
                head.backup_id.hex(), head.state.log_id.hex(), head.state.checkpoint_lsn
            )

    def next(self) -> tuple[bytes, bool]:
        """Return the next bytes, about PIECE_BYTES, and whether they are the last.

        OperationalError 55000: it was ended.
        """
        with self._mutex:
            if self._idle_s is not None:
                raise OperationalError(
                    f"export: it was ended, because nothing was read of it for {self._idle_s:g} s",
                    sqlstate="55000",
                    retry=Retry.SAFE,
                    hint="begin a new one; the server's limit is unread_export_timeout_s",
                )
            try:
                return self._next()
            finally:
                self._read_s = self._clock.monotonic()

    def _next(self) -> tuple[bytes, bool]:
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
        with self._mutex:
            self._pieces = _behind(self._export.pieces(), offset)
            self._read_s, self._is_watched = self._clock.monotonic(), True

    def end_if_unread(self, idle_s: float) -> float | None:
        """Let it go when nothing was read for so long; return in how many seconds to look again.

        None: never. Any thread; never waits.
        """
        if not self._mutex.acquire(False):  # a piece is being made
            return idle_s
        try:
            if not self._is_watched:
                return None
            left_s = self._read_s + idle_s - self._clock.monotonic()
            if left_s > 0:
                return left_s
            self._idle_s, self._is_watched = idle_s, False
            self._export.close()
            return None
        finally:
            self._mutex.release()

    def keep(self) -> None:
        """Be looked at no more until begin_at(): KeptExports lets it go."""
        with self._mutex:
            self._is_watched = False

    def close(self) -> None:
        """Let the files or the snapshot go; repeatable."""
        self.keep()
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

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_s: Callable[[], float]) -> None:
        """`idle_s` tells for how long nothing may be read of one that is under way."""
        self._loop = loop
        self._idle_s = idle_s
        self._mutex = new_mutex()
        self._kept: dict[str, OpenExport] = {}
        self._is_closed = False

    def watch(self, export: OpenExport) -> None:
        """Have an export that begins, or goes on, ended when nothing is read of it."""
        self._loop.call_soon_threadsafe(self._look, export)

    def _look(self, export: OpenExport) -> None:
        again_s = export.end_if_unread(self._idle_s())
        if again_s is not None:
            self._loop.call_later(again_s, self._look, export)

    def keep(self, export: OpenExport) -> None:
        """Keep an export for a while, if it can be gone on with; else close it."""
        export.keep()
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
