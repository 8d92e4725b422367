"""Compaction: the entries of several logs that are still pointed to move into a new one.

    NNN.compacting  being written; a start deletes it, nothing points to it
    NNN.compacted   whole, sealed and durable; the index is being switched, entry by entry, from the
                    sources to it; a start goes on with that
    NNN.log         the index points to it; the sources go

An entry is switched only while the index points to a source: one that was added again meanwhile
stays where the newer packet is. Sources that cannot be read whole are not compacted: what is
damaged is kept, and reported. Functions and steps here run in the storage executor.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from google_crc32c import value

from bookie.errors import CorruptFileError
from bookie.runtime.interfaces import Disk
from bookie.server.interfaces import EntryIndex
from bookie.server.storage.entry_log import (
    DIRECTORY,
    EntryLogReader,
    EntryLogWriter,
    LogRecord,
    RecordKind,
    path_of,
    split_location,
)
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.ledger_record import encode_ledger_body

_SWITCH_BATCH = 4096


class Compaction:
    """Copies what lives of `sources` into a new log; step() until it is done, then finish()."""

    def __init__(
        self, disk: Disk, logs: EntryLogs, index: EntryIndex, sources: Sequence[int]
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._index = index
        self._sources = tuple(sources)
        self.log_number = logs.new_number()
        self._writer: EntryLogWriter | None = None
        self._copied_ledgers: set[int] = set()
        self._records = self._live_records()

    def step(self, byte_count: int) -> bool:
        """Read about so many bytes of the sources; True when all are copied.

        CorruptFileError: a source is damaged; nothing happened but for abandon(). OSError.
        """
        if self._writer is None:
            self._writer = EntryLogWriter(
                self._disk, self.log_number, suffix="compacting", sources=self._sources
            )
        done = 0
        for record in self._records:
            done += record.total_bytes
            if record.kind == RecordKind.LEDGER:
                self._copy_ledger(self._writer, record.ledger_id)
            elif self._index.get(*record.ids) == record.location:
                self._writer.append(
                    record.kind, record.ledger_id, record.body, record.crc, record.origin
                )
            if done >= byte_count:
                return False
        return True

    def _live_records(self) -> Iterator[LogRecord]:
        for number in self._sources:
            reader = self._logs.reader(number)
            try:
                for record in reader.records():
                    if record.is_damaged:
                        raise CorruptFileError(
                            f"{reader.path} at offset {split_location(record.location)[1]}: the "
                            f"record is damaged; the log is kept as it is"
                        )
                    yield record
                if not reader.is_read_whole:
                    raise CorruptFileError(
                        f"{reader.path} at offset {reader.offset}: expected records up to the map, "
                        f"found none; the log is kept as it is"
                    )
            finally:
                reader.close()

    def _copy_ledger(self, writer: EntryLogWriter, ledger_id: int) -> None:
        """Write what the index knows of the ledger: at least what the source's record says."""
        ledger = self._index.ledger(ledger_id)
        if ledger is not None and ledger_id not in self._copied_ledgers:
            self._copied_ledgers.add(ledger_id)
            body = encode_ledger_body(ledger_id, ledger)
            writer.append(RecordKind.LEDGER, ledger_id, body, value(body))

    def seal(self) -> None:
        """Make the new log whole and durable, ready for the switch."""
        if self._writer is None:
            raise RuntimeError("compaction: seal() before step()")
        self._writer.seal()
        self._writer.close()
        number = self.log_number
        self._disk.rename(path_of(number, "compacting"), path_of(number, "compacted"))
        self._logs.sync()
        self._logs.admit(number, "compacted")

    def abandon(self) -> None:
        """Give up before seal(); the sources stay."""
        self._records = iter(())
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                self._disk.unlink(path_of(self.log_number, "compacting"))


class Switch:
    """Moves the index from the sources to a `.compacted` log; step() until True, then finish()."""

    def __init__(self, disk: Disk, logs: EntryLogs, index: EntryIndex, log_number: int) -> None:
        self._disk = disk
        self._logs = logs
        self._index = index
        self._log_number = log_number
        self._reader = EntryLogReader(disk, log_number, "compacted")
        self._sources = frozenset(self._reader.header.sources)
        self._records = self._reader.records()

    def step(self) -> bool:
        """Switch some thousand entries; no other job may write to the index meanwhile."""
        index = self._index
        moves: list[tuple[int, int, int]] = []
        is_done = True
        for count, record in enumerate(self._records, 1):
            if record.kind == RecordKind.ENTRY:
                ledger_id, entry_id = record.ids
                location = index.get(ledger_id, entry_id)
                if location is not None and split_location(location)[0] in self._sources:
                    moves.append((ledger_id, entry_id, record.location))
            if count >= _SWITCH_BATCH:
                is_done = False
                break
        if moves:
            index.put(moves)
        return is_done

    def finish(self) -> None:
        """Make the switch durable, name the log for good, and remove the sources."""
        self._check_whole()
        self._reader.close()
        self._index.sync()
        number = self._log_number
        self._disk.rename(path_of(number, "compacted"), path_of(number))
        self._logs.admit(number, "log")
        self._logs.sync()  # the sources are needed as long as the name is not durable
        for source in sorted(self._sources):
            with suppress(FileNotFoundError):  # an interrupted finish() had begun
                self._logs.remove(source)
        self._logs.sync()

    def _check_whole(self) -> None:
        if not self._reader.is_read_whole:
            self._reader.close()
            raise CorruptFileError(
                f"{self._reader.path} at offset {self._reader.offset}: expected records up to the "
                f"map, found none; restore the file, or format this bookie"
            )

    def close(self) -> None:
        self._reader.close()


def finish_interrupted(disk: Disk, index: EntryIndex, logs: EntryLogs) -> None:
    """Go on with the switches that a crash interrupted."""
    for number in logs.numbers("compacted"):
        switch = Switch(disk, logs, index, number)
        try:
            while not switch.step():
                pass
            switch.finish()
        finally:
            switch.close()


def live_share(ledger_map: dict[int, int], live: frozenset[int]) -> float:
    """Return which part of a log's bytes belongs to live ledgers; 0 for an empty log."""
    total = sum(ledger_map.values())
    if not total:
        return 0.0
    return sum(size for ledger_id, size in ledger_map.items() if ledger_id in live) / total


def leftover_names(disk: Disk) -> list[str]:
    """Return the names of logs that are neither finished nor plain; empty at rest."""
    return [name for name in disk.list(DIRECTORY) if not name.endswith(".log")]
