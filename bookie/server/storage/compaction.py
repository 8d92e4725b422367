"""Compaction: the entries of several logs that are still pointed to move into a new one.

    NNN.compacting  being written; a start deletes it, nothing points to it
    NNN.compacted   whole, sealed and durable; the index is being switched, entry by entry, from the
                    sources to it; a start goes on with that
    NNN.log         the index points to it; the sources go

An entry is switched only while the index points to a source: one that was added again meanwhile
stays where the newer packet is. Sources that cannot be read whole are not compacted: what is
damaged is kept, and reported. A record with a damaged body does not count when the index points to
it no more: the scrub has put another in its place. Functions and steps here run in the storage
executor.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress

from google_crc32c import value

from bookie.errors import CorruptFileError
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
from bookie.server.storage.entry_reads import locations_of
from bookie.server.storage.ledger_record import encode_ledger_body

_SWITCH_BATCH = 4096


class Compaction:
    """Copies what lives of `sources` into a new log; step() until it is done, then finish()."""

    def __init__(self, logs: EntryLogs, index: EntryIndex, sources: Sequence[int]) -> None:
        self._logs = logs
        self._index = index
        self._sources = tuple(sources)
        self.log_number = logs.new_number()
        self._directory = logs.best_directory() or logs.directories[0]
        self._writer: EntryLogWriter | None = None
        self._copied_ledgers: set[int] = set()
        self._records = self._live_records()

    def step(self, byte_count: int) -> bool:
        """Read about so many bytes of the sources; True when all are copied.

        CorruptFileError: a source is damaged; nothing happened but for abandon(). OSError. The new
        log may lie in another directory than the sources.
        """
        done = 0
        for record in self._records:
            done += record.total_bytes
            with self._writing() as writer:
                if record.kind == RecordKind.LEDGER:
                    self._copy_ledger(writer, record.ledger_id)
                elif self._index.get(*record.ids) == record.location:
                    writer.append(
                        record.kind, record.ledger_id, record.body, record.crc, record.origin
                    )
            if done >= byte_count:
                return False
        return True

    @contextmanager
    def _writing(self) -> Generator[EntryLogWriter]:
        """Give the writer; what fails here is the directory of the new log, not a source."""
        try:
            if self._writer is None:
                self._writer = EntryLogWriter(
                    self._directory.disk,
                    self.log_number,
                    suffix="compacting",
                    sources=self._sources,
                )
            yield self._writer
        except OSError as error:
            self._directory.note_failure(error)
            raise

    def _live_records(self) -> Iterator[LogRecord]:
        for number in self._sources:
            reader = self._logs.reader(number)
            try:
                located: frozenset[int] | None = None
                for record in reader.records():
                    if not record.is_damaged:
                        yield record
                        continue
                    if located is None:
                        located = self._located_in(number)
                    if record.kind != RecordKind.ENTRY or record.location in located:
                        raise CorruptFileError(
                            f"{reader.path} at offset {split_location(record.location)[1]}: the "
                            f"record is damaged; the log is kept as it is"
                        )
                if not reader.is_read_whole:
                    raise CorruptFileError(
                        f"{reader.path} at offset {reader.offset}: expected records up to the map, "
                        f"found none; the log is kept as it is"
                    )
            finally:
                reader.close()

    def _located_in(self, number: int) -> frozenset[int]:
        """Return where the index points to in a log.

        Goes through all of the index, for damaged logs only: a map that a start has made of a
        damaged log may miss ledgers.
        """
        return frozenset(
            location
            for ledger_id in self._index.ledger_ids()
            for location in locations_of(self._index, ledger_id)
            if location >> 32 == number
        )

    def _copy_ledger(self, writer: EntryLogWriter, ledger_id: int) -> None:
        """Write what the index knows of the ledger: at least what the source's record says."""
        ledger = self._index.ledger(ledger_id)
        if ledger is not None and ledger_id not in self._copied_ledgers:
            self._copied_ledgers.add(ledger_id)
            body = encode_ledger_body(ledger_id, ledger)
            writer.append(RecordKind.LEDGER, ledger_id, body, value(body))

    def seal(self) -> None:
        """Make the new log whole and durable, ready for the switch."""
        number, disk = self.log_number, self._directory.disk
        with self._writing() as writer:
            writer.seal()
            writer.close()
            disk.rename(path_of(number, "compacting"), path_of(number, "compacted"))
            disk.sync_directory(DIRECTORY)
        self._logs.admit(number, self._directory, "compacted")

    def abandon(self) -> None:
        """Give up before seal(); the sources stay."""
        self._records = iter(())
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                self._directory.disk.unlink(path_of(self.log_number, "compacting"))


class Switch:
    """Moves the index from the sources to a `.compacted` log; step() until True, then finish()."""

    def __init__(self, logs: EntryLogs, index: EntryIndex, log_number: int) -> None:
        self._logs = logs
        self._index = index
        self._log_number = log_number
        self._directory = logs.directory_of(log_number)
        self._reader = EntryLogReader(self._directory.disk, log_number, "compacted")
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
        number, disk = self._log_number, self._directory.disk
        disk.rename(path_of(number, "compacted"), path_of(number))
        self._logs.admit(number, self._directory, "log")
        disk.sync_directory(DIRECTORY)  # the sources are needed until the name is durable
        self._logs.remove_all(sorted(self._sources))

    def _check_whole(self) -> None:
        if not self._reader.is_read_whole:
            self._reader.close()
            raise CorruptFileError(
                f"{self._reader.path} at offset {self._reader.offset}: expected records up to the "
                f"map, found none; restore the file, or format this bookie"
            )

    def close(self) -> None:
        self._reader.close()


def finish_interrupted(index: EntryIndex, logs: EntryLogs) -> None:
    """Go on with the switches that a crash interrupted."""
    for number in logs.numbers("compacted"):
        switch = Switch(logs, index, number)
        try:
            while not switch.step():
                pass
            switch.finish()
        except OSError as error:  # the log is read under the name that it has, and by the sources
            logs.survive(logs.directory_of(number), error)
        finally:
            switch.close()


def live_share(ledger_map: dict[int, int], live: frozenset[int]) -> float:
    """Return which part of a log's bytes belongs to live ledgers; 0 for an empty log."""
    total = sum(ledger_map.values())
    if not total:
        return 0.0
    return sum(size for ledger_id, size in ledger_map.items() if ledger_id in live) / total
