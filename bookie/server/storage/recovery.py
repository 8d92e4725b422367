"""What a bookie does before it serves: finish what a crash interrupted, replay the journal, flush.

Order of effects: entry logs are sealed, the journal is replayed into entry logs and index, a new
journal file is begun, the mark moves to it, old journal files go. Until the mark has moved a crash
leads back to the same start. Blocks; runs in the storage executor.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import NamedTuple

from bookie.config import BookieConfig
from bookie.errors import CorruptFileError
from bookie.runtime.interfaces import Clock, Disk
from bookie.server.interfaces import EntryIndex, LedgerRecord
from bookie.server.storage import entry_log
from bookie.server.storage import journal as journals
from bookie.server.storage.compaction import finish_interrupted
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_log import RecordKind, seal_leftover, sync_log
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.entry_reads import locations_of, read_entry
from bookie.server.storage.flush import Flusher, FlushInput
from bookie.server.storage.journal import JournalWriter, Mark
from bookie.server.storage.journal_format import (
    DIRECTORY,
    NOWHERE,
    Kind,
    Position,
    Record,
    check_reached,
    read_records,
    split_record,
)
from bookie.server.storage.ledger_record import decode_ledger_body, merge_ledger_records
from bookie.server.storage.ledger_state import LedgerState
from bookie.server.storage.write_cache import WriteCache

_NO_MARK = Mark(NOWHERE, 0, 0)
_SCAN_BATCH = 4096
_REBUILD_BATCH = 50_000
"""Entries that rebuild_index() holds before it writes them: a log may have ten millions."""


class LostDirectories(NamedTuple):
    """What is known when a ledger directory is gone for good."""

    named_ledger_ids: frozenset[int]
    """All ledgers that metadata, read after the loss, gives this bookie a part of."""


class Recovered(NamedTuple):
    """What start-up leaves: an open journal, and the logs."""

    writer: JournalWriter
    logs: EntryLogs
    replayed_records: int
    unsealed_logs: tuple[int, ...]
    """Logs that are kept as they are: damaged, or given up after a failed write."""
    rebuilt: "RebuildReport | None"
    """What was found when the index was lost, or an older copy, and had to be made anew."""
    limbo_count: int
    """Ledgers that a lost directory put in limbo at this start."""


def recover(
    disk: Disk,
    index: EntryIndex,
    clock: Clock,
    config: BookieConfig,
    ledgers: Sequence[LedgerDirectory] = (),
    lost: LostDirectories | None = None,
    owner: str = "",
) -> Recovered:
    """Bring disks and index to where everything acknowledged is in entry logs and index.

    `disk` has the journal; `ledgers` the entry logs, by default in the same place. An index that
    was lost, or is older than the mark, is made anew from the entry logs first. `lost`: a ledger
    directory is gone for good; the ledgers that may have been there are in limbo before this
    returns. `owner`: which bookie this is; an index of another one is refused, empty: none is.
    """
    _check_owner(index, owner)
    directories = tuple(ledgers) or (LedgerDirectory(disk),)
    _make_directory(disk, DIRECTORY)
    for directory in directories:
        try:
            _make_directory(directory.disk, entry_log.DIRECTORY)
        except OSError as error:
            if len(directories) == 1 or not directory.disk.exists(entry_log.DIRECTORY):
                raise
            directory.note_failure(error)
    mark = journals.read_mark(disk)
    logs = EntryLogs(directories)
    # The open log's number was used, though its directory may be lost now.
    logs.open(1 if mark is None else max(1, mark.log_number + (mark.log_bytes > 0)))
    is_index_lost = not index.is_whole or _is_older(index, mark)
    limbo: list[int] = []
    if lost is not None:
        referred = _missing_logs(index, logs)
        logs.skip_numbers(referred.last_number)
        if not is_index_lost:
            limbo = referred.ledger_ids
    if mark is None and (logs.numbers() or logs.numbers("compacted")):
        raise CorruptFileError(
            f"{DIRECTORY}: expected the journal's mark beside entry logs, found none; the journal "
            f"was lost, and with it what was acknowledged last: restore it, or format this bookie"
        )
    durable = _durable_position(None if is_index_lost else index, logs, mark or _NO_MARK)
    if durable.file_number > (mark or _NO_MARK).position.file_number:
        check_reached(disk, durable)
    damaged = finish_interrupted(index, logs)
    leftovers = _seal_leftovers(logs, None if is_index_lost else index, mark or _NO_MARK)
    unsealed = (*damaged, *leftovers)
    rebuilt = None
    if is_index_lost and mark is not None:  # else the bookie has not served
        rebuilt = _make_anew(directories, index, is_loss_known=lost is not None)
        if lost is not None:  # nothing here says any more what was on that directory
            limbo = sorted(lost.named_ledger_ids)
    flusher = Flusher(disk, logs, index, config.entry_log_bytes_max)
    if lost is not None:
        for records in _records_anew(index, limbo):
            flusher.store(FlushInput({}, records, Position(0, 0)))
    if not index.is_whole:
        index.set_whole()  # before the mark says that the bookie serves
    replay = _Replay(index, config.write_cache_bytes_max)
    count = 0
    writer = JournalWriter(
        disk, clock, config.journal_bytes_max, config.journal_preallocation_bytes
    )
    try:
        for _, record in read_records(disk, mark.position if mark else None, durable):
            count += 1
            if replay.apply(record):
                flusher.store(replay.take())
        flusher.store(replay.take())
        flusher.seal()
        flusher.close()
        position = writer.begin(journals.next_number(disk, mark))
        flusher.mark(position)
    except BaseException:
        flusher.close()
        writer.close()
        raise
    return Recovered(writer, logs, count, unsealed, rebuilt, len(limbo))


def _check_owner(index: EntryIndex, owner: str) -> None:
    """Refuse the index of another bookie: it would deny what this one acknowledged."""
    if index.owner is None and owner:
        index.set_owner(owner)
    elif owner and index.owner != owner:
        raise CorruptFileError(
            f"index: expected that of {owner}, found that of {index.owner}; give this bookie its "
            f"own --data, or move the index away: the next start makes a new one"
        )


def _is_older(index: EntryIndex, mark: Mark | None) -> bool:
    """Tell whether the index is a copy of before the mark: it lacks what the journal has not."""
    position = index.journal_position  # None: of a bookie that did not keep it yet
    return mark is not None and position is not None and position < mark.position


def _durable_position(index: EntryIndex | None, logs: EntryLogs, mark: Mark) -> Position:
    """Return up to where the journal was durable, by index and logs: an older copy ends before it.

    Only what was flushed behind the mark can know more than it does.
    """
    found: tuple[int, int] = NOWHERE
    if index is not None:
        found = index.journal_position or NOWHERE
    for number in logs.numbers():
        if number >= mark.log_number:
            start = mark.log_bytes if number == mark.log_number else 0
            try:
                found = max(found, _last_journal(logs, number, start))
            except (CorruptFileError, OSError):  # what it means is told where logs are sealed
                continue
    return Position(*found)


def _last_journal(logs: EntryLogs, number: int, start: int) -> tuple[int, int]:
    """Return the greatest journal position that a log names from an offset on."""
    with closing(logs.reader(number)) as reader:
        found = reader.header.journal
        with suppress(OSError):  # what it means is told where logs are sealed
            if not reader.header.sources:
                for record in reader.records(max(start, entry_log.HEADER_BYTES)):
                    if record.kind == RecordKind.JOURNAL and not record.is_damaged:
                        found = max(found, record.journal)
    return found


def _make_directory(disk: Disk, path: str) -> None:
    if not disk.exists(path):
        disk.make_directory(path)
    disk.sync_directory("")  # the process that made it may have been stopped before this


class _MissingLogs(NamedTuple):
    """What the index says of logs that are not there."""

    ledger_ids: list[int]
    last_number: int
    """The greatest number that it refers to; 0: none."""


def _missing_logs(index: EntryIndex, logs: EntryLogs) -> _MissingLogs:
    present = {*logs.numbers(), *logs.numbers("compacted")}
    ledger_ids: list[int] = []
    last_number = 0
    for ledger_id in index.ledger_ids():
        numbers = {n >> 32 for _, n in locations_of(index, ledger_id) if n != entry_log.NOT_HERE}
        last_number = max([last_number, *numbers])
        if not numbers <= present:
            ledger_ids.append(ledger_id)
    return _MissingLogs(ledger_ids, last_number)


def _records_anew(
    index: EntryIndex, limbo: Sequence[int]
) -> Iterator[list[tuple[int, LedgerRecord]]]:
    """Yield the records of all ledgers, in parts, with those in limbo marked, known before or not.

    Of all: the lost directory may have had the only log that says of a ledger that it is fenced.
    """
    marked = frozenset(limbo)
    ids = iter(sorted(marked.union(index.ledger_ids())))
    while batch := list(islice(ids, _SCAN_BATCH)):
        records: list[tuple[int, LedgerRecord]] = []
        for ledger_id in batch:
            known = index.ledger(ledger_id) or LedgerRecord(b"", False, b"")
            is_in_limbo = known.is_in_limbo or ledger_id in marked
            records.append((ledger_id, known._replace(is_in_limbo=is_in_limbo)))
        yield records


class _Replay:
    """Collects the records of the journal as a bookie would have flushed them."""

    def __init__(self, index: EntryIndex, bytes_max: int) -> None:
        self._index = index
        self._bytes_max = bytes_max
        self._cache = WriteCache(bytes_max)
        self._states: dict[int, LedgerState] = {}

    def apply(self, record: Record) -> bool:
        """Take a record; True: time to flush."""
        kind, crc, body = record
        if kind == Kind.ENTRY:
            ledger_id = int.from_bytes(body[:8], "big", signed=True)
            entry_id = int.from_bytes(body[8:16], "big", signed=True)
            state = self._state(ledger_id)
            state.lac = max(state.lac, int.from_bytes(body[16:24], "big", signed=True))
            self._cache.put(ledger_id, entry_id, body, crc)
        else:
            ledger_id, rest = split_record(body)
            state = self._state(ledger_id)
            if kind == Kind.EXPLICIT_LAC:
                state.set_explicit_lac(rest)
            elif kind in (Kind.MASTER_KEY, Kind.FENCE):
                if any(rest) or not state.master_key:
                    state.master_key = rest
                state.is_fenced = state.is_fenced or kind == Kind.FENCE
            else:
                raise CorruptFileError(
                    f"journal: expected records of kind 1 to 5, found {kind}; it was written by a "
                    f"newer bookie, start that one"
                )
        return self._cache.byte_count >= self._bytes_max or len(self._states) > 100_000

    def _state(self, ledger_id: int) -> LedgerState:
        state = self._states.get(ledger_id)
        if state is None:
            state = LedgerState(ledger_id, self._index.ledger(ledger_id), -1)
            self._states[ledger_id] = state
        return state

    def take(self) -> FlushInput:
        ledgers = tuple([(ledger_id, s.record()) for ledger_id, s in self._states.items()])
        work = FlushInput(self._cache.ledgers, ledgers, Position(0, 0))
        self._cache = WriteCache(self._bytes_max)
        self._states = {}
        return work


def _seal_leftovers(logs: EntryLogs, index: EntryIndex | None, mark: Mark) -> tuple[int, ...]:
    """Seal what the last process left open; return what cannot be sealed. index None: it was lost.

    A log without its header goes only when the index says that nothing points to it: one that
    compaction made may be newer than the mark's.
    """
    kept: list[int] = []
    headerless: list[int] = []
    replaced: set[int] = set()  # by a compaction that came to its end
    for number in logs.numbers():
        try:
            reader = logs.reader(number)
        except CorruptFileError:
            if (number, 0) >= (mark.log_number, mark.log_bytes):
                headerless.append(number)
            else:
                kept.append(number)
            continue
        reader.close()
        directory = logs.directory_of(number)
        sources = reader.header.sources
        try:
            if reader.is_sealed:
                if number >= mark.log_number:
                    # A process that was killed may have left its trailer in the system's cache.
                    sync_log(directory.disk, number)
                replaced.update(sources)
                continue
            end_min = mark.log_bytes if number == mark.log_number else 0
            if (
                number < mark.log_number
                or sources  # its name says that it was durable with its map
                or not seal_leftover(directory.disk, number, end_min)
            ):
                kept.append(number)
        except OSError as error:  # full, or read only: what is there is served
            logs.survive(directory, error)
            kept.append(number)
    unneeded = {*headerless, *replaced.intersection(logs.numbers())}
    if unneeded:
        unneeded -= _located_logs(logs, index, unneeded)
        logs.remove_all(sorted(unneeded))
    return tuple(sorted({*kept, *headerless} - unneeded))


def _located_logs(logs: EntryLogs, index: EntryIndex | None, numbers: set[int]) -> set[int]:
    """Return the logs that the index points to; when it was lost, all that have records."""
    if index is None:
        return {
            number
            for number in numbers
            if logs.directory_of(number).disk.size(entry_log.path_of(number))
            > entry_log.HEADER_BYTES
        }
    found: set[int] = set()
    for ledger_id in index.ledger_ids():
        found.update(
            number
            for number in {n >> 32 for _, n in locations_of(index, ledger_id)}
            if number in numbers
        )
    return found


def _make_anew(
    directories: Sequence[LedgerDirectory], index: EntryIndex, *, is_loss_known: bool
) -> "RebuildReport":
    """Fill a new index in the place of one that was lost, or an older copy of it.

    Until it is whole, or the mark is told to it, again at each start.

    is_loss_known: every ledger that counts goes in limbo, so what the logs do not say is no denial.

    Without it the bookie would deny what it acknowledged and forget its fences, as a wiped one.
    """
    report = rebuild_index(directories, index)
    if report.damage and not is_loss_known:
        more = len(report.damage) - 1
        raise CorruptFileError(
            f"the index was lost, or is an older copy, and the entry logs do not say all that was "
            f"in it: {report.damage[0]}{f', and {more} more places' if more else ''}; this bookie "
            f"would deny entries that it acknowledged: restore the index, or format this bookie"
        )
    return report


class RebuildReport(NamedTuple):
    """What rebuild_index() found."""

    logs: int
    entries: int
    ledgers: int
    damage: tuple[str, ...]
    """One line for each place where an entry may be missing from the index."""


def rebuild_index(directories: Sequence[LedgerDirectory], index: EntryIndex) -> RebuildReport:
    """Fill an index from the entry logs; what is there already from them does no harm.

    What is only in the journal is added by the next start. Ledgers that were deleted come back,
    and go with the next garbage collection. Of two records of one entry the newer one counts.
    """
    logs = EntryLogs(directories)
    logs.open()
    damage: list[str] = []
    entries = 0
    numbers = sorted({*logs.numbers(), *logs.numbers("compacted")})
    ledgers: dict[int, LedgerRecord] = {}
    try:
        for number in numbers:
            entries += _rebuild_from(logs, number, index, ledgers, damage)
        index.put((), sorted(ledgers.items()))
        index.sync()
    finally:
        logs.close()
    return RebuildReport(len(numbers), entries, len(ledgers), tuple(damage))


def _rebuild_from(
    logs: EntryLogs,
    number: int,
    index: EntryIndex,
    ledgers: dict[int, LedgerRecord],
    damage: list[str],
) -> int:
    try:
        reader = logs.reader(number)
    except CorruptFileError as error:
        damage.append(str(error))
        return 0
    count = 0
    found: dict[tuple[int, int], tuple[int, int]] = {}  # ids -> origin, location
    try:
        for record in reader.records():
            if record.kind == RecordKind.JOURNAL:  # no entry lacks, whether it is damaged or not
                continue
            if record.is_damaged:
                damage.append(f"{reader.path} at offset {record.location & 0xFFFFFFFF}: damaged")
            elif record.kind == RecordKind.ENTRY:
                count += 1
                known = found.get(record.ids)
                if known is None or known[0] < record.origin:
                    found[record.ids] = (record.origin, record.location)
                if len(found) >= _REBUILD_BATCH:
                    _put_newer(logs, index, found)
            elif record.kind == RecordKind.LEDGER:
                ledger_id, ledger = decode_ledger_body(record.body)
                before = ledgers.get(ledger_id)
                ledgers[ledger_id] = (
                    ledger if before is None else merge_ledger_records(before, ledger)
                )
        if not reader.is_read_whole:
            damage.append(
                f"{reader.path}: {'damaged' if reader.is_sealed else 'not sealed'}, no records "
                f"behind offset {reader.offset} of {reader.byte_count}"
            )
    finally:
        reader.close()
    _put_newer(logs, index, found)
    return count


def _put_newer(
    logs: EntryLogs, index: EntryIndex, found: dict[tuple[int, int], tuple[int, int]]
) -> None:
    index.put(
        [
            (ledger_id, entry_id, location)
            for (ledger_id, entry_id), (origin, location) in found.items()
            if _is_newer(logs, index, ledger_id, entry_id, origin)
        ]
    )
    found.clear()


def _is_newer(
    logs: EntryLogs, index: EntryIndex, ledger_id: int, entry_id: int, origin: int
) -> bool:
    known = index.get(ledger_id, entry_id)
    if known is None:
        return True
    try:
        return read_entry(logs, known, ledger_id, entry_id).origin <= origin
    except (FileNotFoundError, CorruptFileError):  # its log went, or is damaged there
        return True
