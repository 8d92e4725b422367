"""Flusher: a cache's entries into the entry log, and then, in this order: fsync, index, mark.

Runs in the storage executor, one call at a time. What is durable at each moment: entries in the
log before the index points to them; the index before the mark says that the journal is not needed;
the mark before journal files go. A crash between two of these steps leaves more than is needed,
never less.

Flushes go to one log until it is long enough, then to the next one, maybe in another directory. A
directory that fails or is full is left at once: the flush is written anew to another one, and fails
only when it failed in all of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from google_crc32c import value

from bookie.errors import BookieError
from bookie.runtime.interfaces import Disk
from bookie.server.interfaces import EntryIndex, LedgerRecord
from bookie.server.storage import journal as journals
from bookie.server.storage.directories import NO_SPACE, LedgerDirectory, worst_of
from bookie.server.storage.entry_log import EntryLogWriter, RecordKind
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.journal import Mark
from bookie.server.storage.journal_format import NOWHERE, Position
from bookie.server.storage.ledger_record import encode_ledger_body


class FlushInput(NamedTuple):
    """What a flush makes durable; not changed until it is done."""

    entries: Mapping[int, Mapping[int, tuple[bytes, int]]]
    ledgers: Sequence[tuple[int, LedgerRecord]]
    position: Position
    """Every journal record before it is in the entries and ledgers of this flush or earlier."""


class Flusher:
    """The open entry log and the ways into it; `disk` has the journal."""

    def __init__(self, disk: Disk, logs: EntryLogs, index: EntryIndex, log_bytes_max: int) -> None:
        self._disk = disk
        self._logs = logs
        self._index = index
        self._log_bytes_max = log_bytes_max
        self._directory: LedgerDirectory | None = None
        """Where flushes go now."""
        self._writer: EntryLogWriter | None = None
        """The log that is open there."""
        self._marked = Position(0, 0)
        self._stored: FlushInput | None = None
        """In logs and index, and not marked."""

    @property
    def open_log_number(self) -> int | None:
        """The log that grows: neither collected nor compacted."""
        return None if self._writer is None else self._writer.log_number

    def flush(self, work: FlushInput) -> None:
        """Make everything durable in entry logs and index, and the mark after it.

        After an OSError the next call gets the same work again. Nothing points into what this call
        wrote, and that call writes it elsewhere; or all but the mark is done, and it only marks.
        """
        if work is not self._stored:  # else only the mark failed
            self.store(work)
            self._stored = work
        self.mark(work.position)
        self._stored = None

    def store(self, work: FlushInput) -> None:
        """Make everything durable in entry logs and index."""
        if not work.entries and not work.ledgers:
            return
        locations = self._write_logs_somewhere(work)
        position = work.position if work.position > NOWHERE else None
        try:
            self._index.put(locations, work.ledgers, position)
            self._index.sync()
        except OSError:
            # Whatever the index points to: it will be put again, by the next try or a replay.
            self._give_up(is_log_sound=True)
            raise
        if self._writer is not None and self._directory is not None:
            self._writer.settle()
            self._directory.note_success()

    def _write_logs_somewhere(self, work: FlushInput) -> list[tuple[int, int, int]]:
        """Write into the log at hand, and where that fails anew into another directory's."""
        failures: dict[LedgerDirectory, OSError] = {}
        while True:
            directory = self._choose(failures)
            if directory is None:
                raise worst_of(failures)
            try:
                return self._write_logs(work, failures)
            except OSError as error:
                failed = self._directory
                if failed is None:
                    raise
                failures[failed] = error
                failed.note_failure(error)
                self._give_up(is_log_sound=error.errno in NO_SPACE)

    def _choose(self, failures: Mapping[LedgerDirectory, OSError]) -> LedgerDirectory | None:
        """Stay in the directory at hand while it is good and its log open; else go to the best."""
        at_hand = self._directory
        if at_hand is not None and self._writer is not None and at_hand.is_good:
            return at_hand
        best = self._logs.best_directory(failures)
        if best is None:  # the next flush may find room in the log at hand
            return None
        if best is not at_hand:
            self._leave()
        self._directory = best
        return best

    def _leave(self) -> None:
        """End the log of a directory that is left; one that takes no map is kept without."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):
                writer.seal()
            writer.close()

    def _write_logs(
        self, work: FlushInput, failures: Mapping[LedgerDirectory, OSError]
    ) -> list[tuple[int, int, int]]:
        locations: list[tuple[int, int, int]] = []
        records = dict(work.ledgers)
        writer = self._log(work.position)
        for ledger_id in sorted(work.entries.keys() | records.keys()):
            if ledger_id in records:
                body = encode_ledger_body(ledger_id, records[ledger_id])
                writer.append(RecordKind.LEDGER, ledger_id, body, value(body))
            entries = work.entries.get(ledger_id, {})
            for entry_id in sorted(entries):
                packet, crc = entries[entry_id]
                if writer.byte_count + len(packet) > self._log_bytes_max:
                    writer = self._next_log(failures, work.position)
                location = writer.append(RecordKind.ENTRY, ledger_id, packet, crc)
                locations.append((ledger_id, entry_id, location))
        if work.position > NOWHERE:
            writer.append_journal(work.position)
        writer.sync()
        return locations

    def _log(self, position: Position) -> EntryLogWriter:
        writer = self._writer
        if writer is None:
            if self._directory is None:
                raise RuntimeError("flush: no directory was chosen")
            writer = self._writer = self._logs.begin(self._directory, position)
        return writer

    def _next_log(
        self, failures: Mapping[LedgerDirectory, OSError], position: Position
    ) -> EntryLogWriter:
        """End the log at hand, and begin one where the next is to be."""
        self.seal()
        self._choose(failures)
        return self._log(position)

    def seal(self) -> None:
        """End the open log; the next flush begins another."""
        if self._writer is not None:
            self._writer.seal()
            self._writer.close()
            self._writer = None

    def _give_up(self, *, is_log_sound: bool) -> None:
        """Take back what this flush appended, so that tries leave nothing; or go on in a new log.

        After a failed fsync what the file holds is unknown: it stays as it is, because earlier
        flushes are pointed to, has no map, and is never collected. A full disk is no such failure.
        """
        writer = self._writer
        if writer is None:
            return
        if is_log_sound and writer.has_settled_records:
            try:
                writer.roll_back()
            except OSError:
                pass
            else:
                return
        self._writer = None
        writer.close()
        if not writer.has_settled_records:
            with suppress(OSError):  # nothing points to it: it is collected, or a start seals it
                self._logs.remove(writer.log_number)

    def mark(self, position: Position) -> None:
        """Persist the mark and drop the journal files before it; it never goes back (G18)."""
        if position < self._marked:
            raise BookieError(
                f"journal mark: expected one not before {self._marked}, found {position}"
            )
        writer = self._writer
        if writer is None:
            log_end = (self._logs.next_number, 0)
        else:
            log_end = (writer.log_number, writer.byte_count)
        if self._index.journal_position != position:  # by it an older copy of the index is known
            self._index.put((), (), position)
            self._index.sync()
        journals.write_mark(self._disk, Mark(position, *log_end))
        self._marked = position
        journals.drop_before(self._disk, position)

    def close(self) -> None:
        """Give the file back as it is; idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
