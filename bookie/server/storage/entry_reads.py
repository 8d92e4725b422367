"""Entries as the index locates them: read from the logs for a request, and checked one by one.

Everything here runs in an executor thread. A log may be removed between the look-up and the read:
then the index, which was changed before, is asked again; only what the index still points to, and
what is not the entry's record there, is a problem.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from bookie.errors import CorruptFileError, DigestMismatchError
from bookie.ledger.codec import EntryDigest
from bookie.server.interfaces import EntryIndex
from bookie.server.storage.directories import OF_PROCESS
from bookie.server.storage.entry_log import (
    NOT_HERE,
    READ_BYTES_MAX,
    READ_BYTES_MIN,
    LogRecord,
    RecordKind,
    split_location,
)
from bookie.server.storage.entry_logs import EntryLogs

_TRIES = 5
_SCAN_BATCH = 4096
_MERGE_MAX = 512
"""Entry ids that one step of a check takes up."""
NOT_IN_INDEX = "the index does not have it"
MISSING = "it is to be here by its ledger's metadata, and is not"


def locations_of(index: EntryIndex, ledger_id: int) -> Iterator[tuple[int, int]]:
    """Yield entry id and location of a ledger's entries, by ascending ids."""
    ids = index.entry_ids(ledger_id)
    while batch := list(islice(ids, _SCAN_BATCH)):
        yield from index.locations(ledger_id, batch[0], batch[-1] - batch[0] + 1)


def read_entries(
    index: EntryIndex, logs: EntryLogs, ledger_id: int, entry_id: int, count: int
) -> list[tuple[int, int, bytes]]:
    """Return ids and packet of the entry and some of the count - 1 that follow; empty: no entry.

    CorruptFileError: the index points to something else, or knows it as missing; OSError.
    """
    for _ in range(_TRIES):
        found = index.locations(ledger_id, entry_id, count)
        if not found or found[0][0] != entry_id:
            return []
        if found[0][1] == NOT_HERE:
            raise CorruptFileError(
                f"ledger {ledger_id} entry {entry_id}: {MISSING}; another bookie's copy is used, "
                f"and the scrub copies it here"
            )
        locations = _of_one_log([location for _, location in found])
        try:
            records = logs.read(locations)
        except FileNotFoundError:
            continue  # compaction moved it since the look-up
        wanted = {location: found_id for found_id, location in found}
        packets: list[tuple[int, int, bytes]] = []
        for record in records:
            ids = (ledger_id, wanted[record.location])
            if _is_entry(record, *ids):
                packets.append((*ids, record.body))
        if not packets or packets[0][1] != entry_id:
            raise _other_record(logs, locations[0], ledger_id, entry_id)
        return packets
    raise CorruptFileError(
        f"ledger {ledger_id} entry {entry_id}: the index points to an entry log that is missing"
    )


def read_entry(logs: EntryLogs, location: int, ledger_id: int, entry_id: int) -> LogRecord:
    """Return the record at a location; CorruptFileError: it is damaged, or another one; OSError."""
    record = logs.read((location,))[0]
    if not _is_entry(record, ledger_id, entry_id):
        raise _other_record(logs, location, ledger_id, entry_id)
    return record


def _is_entry(record: LogRecord, ledger_id: int, entry_id: int) -> bool:
    return record.kind == RecordKind.ENTRY and record.ids == (ledger_id, entry_id)


def _other_record(
    logs: EntryLogs, location: int, ledger_id: int, entry_id: int
) -> CorruptFileError:
    number, offset = split_location(location)
    return CorruptFileError(
        f"{logs.path(number)} at offset {offset}: expected ledger {ledger_id} entry {entry_id}, "
        f"found another record; stop the bookie and move its index away: the next start makes a "
        f"new one"
    )


def _of_one_log(locations: Sequence[int]) -> Sequence[int]:
    """Return the first locations that ascend within one log."""
    for position in range(1, len(locations)):
        before, here = locations[position - 1], locations[position]
        if here < before or here >> 32 != before >> 32:
            return locations[:position]
    return locations


def problem_of(
    index: EntryIndex, logs: EntryLogs, ledger_id: int, entry_id: int, digest: EntryDigest | None
) -> str | None:
    """Say what is wrong with one entry on the disks; None: nothing.

    NOT_IN_INDEX: it is not there; MISSING: and it is known that it should be.

    digest None: what the entry's writer sealed cannot be verified, only what the bookie wrote.
    """
    before: int | None = None
    problem: str | None = None
    for _ in range(_TRIES):
        location = index.get(ledger_id, entry_id)
        if location is None:
            return NOT_IN_INDEX
        if location == NOT_HERE:
            return MISSING
        if location == before:
            break
        try:
            record = read_entry(logs, location, ledger_id, entry_id)
            if digest is not None:
                digest.open(record.body, ledger_id, entry_id)
        except (OSError, CorruptFileError, DigestMismatchError) as error:
            raise_of_process(error)
            problem, before = str(error), location
            if isinstance(error, FileNotFoundError):
                problem = (
                    f"{logs.path(split_location(location)[0])}: the index points to this entry "
                    f"log, and it is missing; give all --ledgers of the bookie, or restore it"
                )
        else:
            return None
    return problem


def raise_of_process(error: Exception) -> None:
    """Raise what this process lacks: it says nothing of what is on the disk."""
    if isinstance(error, OSError) and error.errno in OF_PROCESS:
        raise error


class LogStep(NamedTuple):
    """What one step of the check of a log did."""

    byte_count: int
    next_offset: int
    """Where the next step goes on; 0: this was the last one."""
    problem: str | None


def check_log(logs: EntryLogs, number: int, offset: int, byte_count_max: int) -> LogStep:
    """Read about so many bytes of a log from an offset on; up to the first problem.

    A problem is what keeps the log from being read from front to end, as the index is made anew of
    it. OSError: of this process.
    """
    try:
        reader = logs.reader(number)
    except FileNotFoundError:  # collected, or compacted
        return LogStep(0, 0, None)
    except (OSError, CorruptFileError) as error:
        raise_of_process(error)
        return LogStep(0, 0, str(error))
    path = logs.path(number)
    try:
        for record in reader.records(offset):
            if record.is_damaged:
                at = split_location(record.location)[1]
                problem = f"{path} at offset {at}: the record is damaged"
                return LogStep(reader.offset - offset, 0, problem)
            if reader.offset - offset >= byte_count_max:
                return LogStep(reader.offset - offset, reader.offset, None)
        problem = None
        if not reader.is_read_whole or reader.ledger_map() is None:
            problem = f"{path} at offset {reader.offset}: expected the map of ledgers, found none"
        return LogStep(reader.offset - offset, 0, problem)
    except OSError as error:
        raise_of_process(error)
        return LogStep(0, 0, str(error))
    finally:
        reader.close()


class CheckStep(NamedTuple):
    """What one step of a check did."""

    entry_count: int
    byte_count: int
    """Read from the logs."""
    damaged: tuple[int, ...]
    """Entries that the index locates where there is something else, or knows as missing."""
    missing: tuple[int, ...]
    """Required entries that the index does not have."""
    is_last: bool


class EntryCheck:
    """Checks all entries of one ledger in ascending order; step() until the last one.

    required: ascending ids of the entries that must be here. One thread at a time.
    """

    def __init__(
        self,
        index: EntryIndex,
        logs: EntryLogs,
        ledger_id: int,
        *,
        required: Iterable[int] = (),
        digest: EntryDigest | None = None,
    ) -> None:
        self._index = index
        self._logs = logs
        self._ledger_id = ledger_id
        self._digest = digest
        self._held = index.entry_ids(ledger_id)
        self._required = iter(required)
        self._next_held = next(self._held, None)
        self._next_required = next(self._required, None)
        self._located: deque[tuple[int, int]] = deque()
        """Entry id and location of what is to be read next."""

    def step(self, byte_count_max: int) -> CheckStep:
        """Read until about so many bytes were read, or some hundred ids were gone through."""
        damaged: list[int] = []
        missing: list[int] = []
        if not self._located:
            missing = self._take_up()
        entry_count = byte_count = 0
        while self._located and byte_count < byte_count_max:
            entries, read_bytes = self._read(damaged)
            entry_count += entries
            byte_count += read_bytes
        is_last = not self._located and self._next_held is None and self._next_required is None
        return CheckStep(entry_count, byte_count, tuple(damaged), tuple(missing), is_last)

    def _take_up(self) -> list[int]:
        """Merge held and required ids for a while; locate the held, return what is missing."""
        held: list[int] = []
        missing: list[int] = []
        for _ in range(_MERGE_MAX):
            mine, required = self._next_held, self._next_required
            if mine is not None and (required is None or mine <= required):
                held.append(mine)
                self._next_held = next(self._held, None)
                if mine == required:
                    self._next_required = next(self._required, None)
            elif required is not None:
                missing.append(required)
                self._next_required = next(self._required, None)
            else:
                break
        if held:
            span = held[-1] - held[0] + 1
            self._located.extend(self._index.locations(self._ledger_id, held[0], span))
        return missing

    def _read(self, damaged: list[int]) -> tuple[int, int]:
        """Read and verify what lies close together; return the entries and bytes of that."""
        located = self._located
        locations = _of_one_log([location for _, location in located])
        byte_count = min(locations[-1] - locations[0] + READ_BYTES_MIN, READ_BYTES_MAX)
        try:
            records = self._logs.read(locations)
        except (OSError, CorruptFileError):
            records = []
        found = {record.location: record for record in records}
        if records and records[0].total_bytes > byte_count:
            byte_count += records[0].total_bytes  # it was read in two goes
        entry_count = 0
        while located and (entry_count == 0 or located[0][1] in found):
            entry_id, location = located.popleft()
            entry_count += 1
            record = found.get(location)
            if record is None or not self._is_sound(record, entry_id):
                problem = problem_of(
                    self._index, self._logs, self._ledger_id, entry_id, self._digest
                )
                byte_count += READ_BYTES_MIN
                if problem not in (None, NOT_IN_INDEX):  # else moved, or deleted, meanwhile
                    damaged.append(entry_id)
        return entry_count, byte_count

    def _is_sound(self, record: LogRecord, entry_id: int) -> bool:
        if not _is_entry(record, self._ledger_id, entry_id):
            return False
        try:
            if self._digest is not None:
                self._digest.open(record.body, self._ledger_id, entry_id)
        except DigestMismatchError:
            return False
        return True
