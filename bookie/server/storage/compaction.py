"""Compaction: the entries of several logs that are still pointed to move into a new one.

    NNN.compacting  being written; a start deletes it, nothing points to it
    NNN.compacted   whole, sealed and durable; the index is being switched, entry by entry, from the
                    sources to it; a start goes on with that
    NNN.log         the index points to it; the sources go

An entry is switched only while the index points to a source: one that was added again meanwhile
stays where the newer packet is. From the first damage in a source on its entries are taken as the
index locates them, and the records of all ledgers are written anew; a source with a damaged entry
that the index still points to is kept, and reported. Functions and steps here run in the storage
executor.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress

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
from bookie.server.storage.entry_reads import locations_of, raise_of_process, read_entry
from bookie.server.storage.ledger_record import encode_ledger_body

_log = logging.getLogger(__name__)
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
                elif record.kind == RecordKind.ENTRY and (
                    self._index.get(*record.ids) == record.location
                ):
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
        damaged_count = 0
        for number in self._sources:
            end = 0
            for record in self._sound_records(number):
                if record is None:
                    damaged_count += 1
                    yield from self._located_behind(number, end)
                else:
                    end = record.location
                    yield record
        if damaged_count:  # a damaged record may have been any ledger's
            for ledger_id in self._index.ledger_ids():
                body = ledger_id.to_bytes(8, "big", signed=True)
                yield LogRecord(RecordKind.LEDGER, body, 0, 0, 0, is_damaged=False)

    def _sound_records(self, number: int) -> Iterator[LogRecord | None]:
        """Yield a source's records; None at the end of one that cannot be read on, or whole."""
        try:
            with closing(self._logs.reader(number)) as reader:
                for record in reader.records():
                    if record.is_damaged:
                        break
                    yield record
                else:
                    if reader.is_read_whole:
                        return
        except (OSError, CorruptFileError):
            pass  # of a sector, or the header; if it is more, no entry can be read either
        yield None

    def _located_behind(self, number: int, location_min: int) -> Iterator[LogRecord]:
        """Yield what the index locates in a log behind a location; CorruptFileError: damaged."""
        for ledger_id in self._index.ledger_ids():
            for entry_id, location in locations_of(self._index, ledger_id):
                if location >> 32 == number and location > location_min:
                    try:
                        record = read_entry(self._logs, location, ledger_id, entry_id)
                    except OSError as error:  # of this source: the others are compacted
                        raise_of_process(error)
                        raise CorruptFileError(f"{self._logs.path(number)}: {error}") from error
                    yield record

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
    """Moves the index from the sources to a `.compacted` log; step() until True, then finish().

    What of the log is damaged stays where it is, in the sources.
    """

    def __init__(self, logs: EntryLogs, index: EntryIndex, log_number: int) -> None:
        self._logs = logs
        self._index = index
        self._log_number = log_number
        self._directory = logs.directory_of(log_number)
        self._reader = EntryLogReader(self._directory.disk, log_number, "compacted")
        self._sources = frozenset(self._reader.header.sources)
        self._records = self._reader.records()
        self._damaged_at: int | None = None

    def step(self) -> bool:
        """Switch some thousand entries; no other job may write to the index meanwhile."""
        index = self._index
        moves: list[tuple[int, int, int]] = []
        is_done = True
        for count, record in enumerate(self._records, 1):
            if record.is_damaged:
                self._damaged_at = split_location(record.location)[1]
            elif record.kind == RecordKind.ENTRY:
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
        """Make the switch durable, name the log for good, and remove the sources.

        CorruptFileError: it is damaged; it keeps its name, and the sources stay.
        """
        self._check_whole()
        self._reader.close()
        self._index.sync()
        number, disk = self._log_number, self._directory.disk
        disk.rename(path_of(number, "compacted"), path_of(number))
        self._logs.admit(number, self._directory, "log")
        disk.sync_directory(DIRECTORY)  # the sources are needed until the name is durable
        self._logs.remove_all(sorted(self._sources))

    def _check_whole(self) -> None:
        reader = self._reader
        if not reader.is_read_whole:
            self._damaged_at = reader.offset
        if self._damaged_at is not None:
            self._index.sync()
            raise CorruptFileError(
                f"{reader.path} at offset {self._damaged_at}: expected the records of compacted "
                f"entry logs up to the map, found damage; these logs stay beside it"
            )

    def close(self) -> None:
        self._reader.close()


def finish_interrupted(index: EntryIndex, logs: EntryLogs) -> list[int]:
    """Go on with the switches that a crash interrupted; return those logs that are damaged.

    The index points into these and into their sources: all of them are read as they are.
    """
    damaged: list[int] = []
    for number in logs.numbers("compacted"):
        try:
            with closing(Switch(logs, index, number)) as switch:
                while not switch.step():
                    pass
                switch.finish()
        except CorruptFileError as error:
            _log.error("%s", error)
            damaged.append(number)
        except OSError as error:  # the log is read under the name that it has, and by the sources
            logs.survive(logs.directory_of(number), error)
    return damaged


def live_share(ledger_map: dict[int, int], live: frozenset[int]) -> float:
    """Return which part of a log's bytes belongs to live ledgers; 0 for an empty log."""
    total = sum(ledger_map.values())
    if not total:
        return 0.0
    return sum(size for ledger_id, size in ledger_map.items() if ledger_id in live) / total
