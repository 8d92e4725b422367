"""Backup of an open database: one checkpoint, pinned and read while writers go on.

A backup is the state at one Lsn, the one of its checkpoint: every commit acknowledged before the
backup began is in it, of every transaction all or nothing. Pinning is mapping the segments, which
are immutable and stay readable when a compaction unlinks them. What the checkpoint holds beside
rows (catalog, counters, open transactions) comes along as it is; restoring rolls open transactions
back, as opening after a crash does.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.engine.maintenance.checkpoint import without_leases
from herdpy.engine.maintenance.recovery import open_segments, open_tables
from herdpy.model.lsn import Lsn
from herdpy.storage.backup_file import BackupHead, write_blocks
from herdpy.storage.manifest import ManifestState, without_log, without_pins
from herdpy.storage.segment import Segment
from herdpy.storage.table_pages import PageEntry
from herdpy.storage.tablespace_list import TablespaceList, encode_list


class Listing:
    """The list of tablespaces on its way out, for who backs up each of them."""

    def __init__(self, listed: TablespaceList) -> None:
        self._data = encode_list(listed)
        self.byte_count = len(self._data)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of a list (storage/tablespace_list.py)."""
        yield self._data

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class Backup:
    """A pinned checkpoint on its way out. One thread at a time; close() lets the files go."""

    def __init__(self, head: BackupHead, segments: Mapping[int, Segment]) -> None:
        self.head = head
        self._segments = dict(segments)
        self._entries: dict[int, list[PageEntry]] = {number: [] for number in segments}
        for table in open_tables(head.state.tables, segments).values():
            for entry in table.pages.entries():
                self._entries[entry.ref.segment].append(entry)

    @classmethod
    def pin(
        cls, disk: Disk, directory: str, listed: ManifestState, *, backup_id: bytes, made_us: int
    ) -> "Backup":
        """Map what a manifest lists; no segment may be removed meanwhile.

        CorruptionError: a segment or a bitmap is damaged.
        """
        listed = without_log(without_pins(listed))
        state = msgspec.structs.replace(listed, engine=without_leases(listed.engine))
        software = f"herdpy {version('herdpy-db')}"
        head = BackupHead(backup_id, made_us, software, state)
        return cls(head, open_segments(disk, directory, listed))

    def segments(self) -> frozenset[int]:
        """Return which segments it keeps. Any thread."""
        return frozenset(self._segments.copy())

    @property
    def lsn(self) -> Lsn:
        """Everything up to here is in it, and nothing behind it."""
        return Lsn(*self.head.state.checkpoint_lsn)

    @property
    def byte_count(self) -> int:
        """Bytes of all segments; the backup is a little longer."""
        return sum(self.head.state.segments.values())

    def pieces(self) -> Iterator[bytes]:
        """Yield the backup's bytes (storage/backup_file.py).

        CorruptionError: a page was damaged on the disk; it is found before its segment is sent.
        """
        return write_blocks(
            self.head, [(number, self._reader(number)) for number in sorted(self._segments)]
        )

    def _reader(self, number: int) -> Callable[[], memoryview]:
        def read() -> memoryview:
            for entry in self._entries[number]:
                entry.page.verify()
            return self._segments[number].view

        return read

    def close(self) -> None:
        """Let the files go; repeatable."""
        self._segments.clear()
        self._entries.clear()
