"""Recovery: what the manifest and the log behind its checkpoint say, and the beginning of writing.

restore() is what every copy of a tablespace does, and it writes no record; lead() is for the one
that appends: a new epoch, ROLLBACK of what was left open. resume() is both, for a tablespace whose
sessions go on. follow() is what a copy does that another one leads, until it is to take_over().
"""

import gc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock, Disk
from herdpy.engine.maintenance.checkpoint import remove_unlisted, restore_engine
from herdpy.engine.maintenance.file_logs import LogSite, LogSource
from herdpy.engine.maintenance.leftovers import check_leftovers
from herdpy.engine.maintenance.page_commits import Maintenance, commit_at_rest
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.staged import Staged
from herdpy.engine.state.state import State, TableState
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import CorruptionError, DiskFullError
from herdpy.log.followed_log import FollowedLog
from herdpy.log.interfaces import Append, CommitLog, LogSpaceError
from herdpy.log.record import NOOP, EndStaging, Record, Rows, decode
from herdpy.model.lsn import Lsn
from herdpy.model.schema import table_from_plain
from herdpy.storage.manifest import ManifestState
from herdpy.storage.manifest import TableState as Listed
from herdpy.storage.segment import Segment, segment_name
from herdpy.storage.table_pages import TablePages

_RUN_RECORDS_MAX = 512
_RUN_BYTES_MAX = 1024 * 1024
"""Records taken in at once, which stay in memory until then: so many, or the bytes of them."""
_HOLD_BYTES = 64 * 1024
"""Of records that a copy that follows applies while the monitor is held; or one of any length."""


class Restored(NamedTuple):
    """A log that is replayed, and the state at its end, with what is open then."""

    log: CommitLog
    applier: Applier


def restore(
    site: LogSite,
    logs: LogSource,
    registry: SnapshotRegistry,
    clock: Clock,
    *,
    is_restoring: bool = False,
) -> Restored:
    """Read manifest and log, and return what they say.

    CorruptionError names file and offset; nothing is skipped or guessed, and nothing on the disk
    has been changed: the manifest was loaded and not hardened, and everything is read before the
    first write. `is_restoring`: leftovers.py.
    """
    disk, directory, listed = site.disk, site.directory, site.manifest.state
    segments = open_segments(disk, f"{directory}/segments", listed)
    state = state_of(listed, open_tables(listed.tables, segments))
    pinned = open_pins(listed, segments)
    log = logs.open(site)
    check_leftovers(disk, directory, listed, is_restoring=is_restoring)
    applier = Applier(state, registry, clock.monotonic)
    try:
        applier.next_table_id = listed.next_table_id
        restore_engine(applier, listed.engine, pinned, listed.writes)
        with _no_collections():
            apply_records(applier, log.replay(state.lsn))
        site.manifest.harden()  # what was read is acted upon from here on
        remove_unlisted(disk, f"{directory}/segments", site.manifest.state)
    except BaseException:
        applier.leases.let_go()
        raise
    return Restored(log, applier)


def lead(tablespace: Tablespace) -> None:
    """Begin to write behind a log that was just replayed: under a new epoch, with nothing open."""
    applier = tablespace.applier
    applier.next_row_id = dict(applier.reserved)
    applier.epoch, applier.counter = applier.epoch + 1, 0
    end_abandoned(tablespace, abandoned(applier))


def follow(
    tablespace: Tablespace,
    maintenance: Maintenance,
    memory: TablespaceMemory,
    records: Sequence[tuple[Lsn, bytes]],
    check: Callable[[], object],
) -> None:
    """Apply records that others have written, behind all that the copy has, in their order.

    A commit that gives pages to tables waits for what is under way with these, as on the copy that
    leads. What that wait raises, check() or a checkpoint, has let nothing be applied of it: what is
    before it is. CorruptionError: a record cannot be read, or does not fit; the copy has stopped.
    """
    first = 0
    while first < len(records):
        part = records[first : _end_of_part(records, first)]
        count = _take_in(tablespace, part, is_giving_pages=False)
        first += count
        if count < len(part):
            _follow_commit(tablespace, maintenance, memory, part[count : count + 1], check)
            first += 1
        tablespace.let_others_in()


def _end_of_part(records: Sequence[tuple[Lsn, bytes]], first: int) -> int:
    """Return behind which record the monitor is let go, that is taken before `first`."""
    byte_count, place = 0, first
    while place < len(records) and (place == first or byte_count < _HOLD_BYTES):
        byte_count += len(records[place][1])
        place += 1
    return place


def _follow_commit(
    tablespace: Tablespace,
    maintenance: Maintenance,
    memory: TablespaceMemory,
    records: Sequence[tuple[Lsn, bytes]],
    check: Callable[[], object],
) -> None:
    """Apply the one record, which gives pages to tables."""
    applier = tablespace.applier
    record = decode(records[0][1])

    def commit() -> None:
        check()
        _take_in(tablespace, records, is_giving_pages=True)

    commit_at_rest(
        tablespace,
        maintenance,
        memory,
        applier.tables_given_pages(record),
        partial(applier.plan, record),
        commit,
        check=check,
    )


def _take_in(
    tablespace: Tablespace, records: Sequence[tuple[Lsn, bytes]], *, is_giving_pages: bool
) -> int:
    """Apply records, up to one that gives pages to tables if none is to; return how many."""
    log, applier = tablespace.log, tablespace.applier
    assert isinstance(log, FollowedLog)
    try:
        with tablespace.monitor:
            # What is followed is durable; said first, as sessions tell the lesser of the two.
            tablespace.durable_lsn = records[-1][0]
            count = apply_records(
                applier, records, None if is_giving_pages else applier.tables_given_pages
            )
    except BaseException as error:
        tablespace.stop(error)  # no checkpoint has a part of a record
        raise
    if count:
        byte_count = sum(len(data) for _, data in records[:count] if data != NOOP)
        log.took(records[count - 1][0], byte_count)
    return count


def runs_of(records: Iterator[tuple[Lsn, bytes]]) -> Iterator[list[tuple[Lsn, bytes]]]:
    """Yield records of a log in runs of a length that is taken in at once."""
    run: list[tuple[Lsn, bytes]] = []
    byte_count = 0
    for lsn, data in records:
        run.append((lsn, data))
        byte_count += len(data)
        if len(run) == _RUN_RECORDS_MAX or byte_count >= _RUN_BYTES_MAX:
            yield run
            run, byte_count = [], 0
    if run:
        yield run


def take_over(tablespace: Tablespace, log: CommitLog, epoch: int) -> None:
    """Lead a copy that followed to the end of a log that was claimed under this epoch.

    Where it cannot write it does not come to lead: the log's error is raised.
    """
    log.prepare(0)  # the first ledger of the epoch
    applier = tablespace.applier
    applier.next_row_id = dict(applier.reserved)
    applier.leases.begin_anew()
    left = abandoned(applier)
    tablespace.lead(log, epoch)
    end_abandoned(tablespace, left)
    if log.failure is not None:
        raise log.failure


def resume(tablespace: Tablespace, found: Restored) -> None:
    """Go on with a tablespace that is held, behind another log; Tablespace.resume() says how."""
    log, applier = found
    applier.next_row_id = dict(applier.reserved)
    if tablespace.space is not None:
        tablespace.space.spares = log  # the former one's are its own now
    end = log.last_lsn
    while True:
        _fill_up(tablespace, found)
        left = abandoned(applier)
        epoch = max(applier.epoch, tablespace.applier.epoch) + 1
        if tablespace.resume(log, applier, end, epoch):
            break
    end_abandoned(tablespace, left)


def _fill_up(tablespace: Tablespace, found: Restored) -> None:
    """Give away all positions that were seen and are not in the log: none comes a second time."""
    log, applier = found
    while log.last_lsn < tablespace.state.lsn:
        filler = Append((NOOP,))
        try:
            log.append(filler, is_urgent=True)
        except LogSpaceError:
            step = partial(log.prepare, len(NOOP))
            if tablespace.space is None:
                step()
            else:
                tablespace.space.freeing(step)
            continue
        log.write()  # an entry of its own
        apply_records(applier, [(log.last_lsn, NOOP)])


class Abandoned(NamedTuple):
    """What a log leaves open that no session can go on with."""

    transactions: list[Transaction]
    statements: list[str]
    """Staging jobs of single statements."""


def abandoned(applier: Applier) -> Abandoned:
    jobs = [job.name for job in applier.state.staged.jobs.values() if job.is_statement]
    return Abandoned(list(applier.transactions.values()), jobs)


def end_abandoned(tablespace: Tablespace, left: Abandoned) -> None:
    """Roll it back, or give it up, through the log; on a full disk when there is room."""
    with tablespace.monitor:
        for transaction in left.transactions:
            tablespace.log_rollback(transaction)
            tablespace.end(transaction)
    tablespace.retry_rollbacks()
    if left.statements:
        with suppress(DiskFullError, LogSpaceError):  # then it ends by its time-out
            end = partial(tablespace.log_alone, EndStaging(left.statements))
            with_log_space(tablespace, end, frees_space=True)


def state_of(listed: ManifestState, found: dict[int, TableState]) -> State:
    """Return the State of these tables and stages; restore_engine() fills in the rest."""
    tables = {number: item for number, item in found.items() if item.table.id == number}
    stages = {number: item.pages for number, item in found.items() if number not in tables}
    stores = {index.id for item in tables.values() for index in item.table.indexes}
    catalog = Catalog(1, (item.table for number, item in tables.items() if number not in stores))
    lsn = Lsn(*listed.checkpoint_lsn)
    staged = Staged.of_pages(stages)
    return State(max(listed.position, 1), lsn, catalog, tables, staged)


def open_segments(disk: Disk, directory: str, listed: ManifestState) -> dict[int, Segment]:
    """Map every segment that a manifest lists, by number."""
    return {
        number: Segment.open(
            disk,
            f"{directory}/{segment_name(number)}",
            number,
            byte_count,
            listed.segment_id(number),
        )
        for number, byte_count in listed.segments.items()
    }


def open_tables(
    listed: Mapping[int, Listed], segments: Mapping[int, Segment]
) -> dict[int, TableState]:
    """Return tables that a manifest lists, by number, with no changes behind its checkpoint.

    Tables have their ids; what has another number than its table's id is a stage of that table.
    """
    tables: dict[int, TableState] = {}
    for table_id, item in listed.items():
        table = table_from_plain(item.definition)
        tables[table_id] = TableState(
            table, Memtable(), (), TablePages.open(table, item.pages, segments)
        )
    return tables


def open_pins(
    listed: ManifestState, segments: Mapping[int, Segment]
) -> dict[str, dict[int, TableState]]:
    """Return the tables of each lease."""
    return {name: open_tables(pin.tables, segments) for name, pin in listed.pins.items()}


def state_at_checkpoint(
    listed: ManifestState,
    tables: dict[int, TableState],
    pinned: Mapping[str, dict[int, TableState]] | None = None,
) -> Applier:
    """Return everything that a manifest says; ValueError when the engine's part is malformed."""
    applier = Applier(state_of(listed, tables), SnapshotRegistry())
    applier.next_table_id = listed.next_table_id
    restore_engine(applier, listed.engine, pinned, listed.writes)
    return applier


class _Collections:
    """Whether the interpreter looks for cycles of garbage: not while any database is replayed."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._replays: set[object] = set()
        self._were_on = False

    def stop(self, replay: object) -> None:
        with self._mutex:
            if not self._replays:
                self._were_on = gc.isenabled()
            self._replays.add(replay)
            gc.disable()

    def go_on(self, replay: object) -> None:
        """Also behind a stop() that Ctrl-C has cut short."""
        with self._mutex:
            self._replays.discard(replay)
            if not self._replays and self._were_on:
                self._were_on = False
                gc.enable()


_collections = _Collections()


@contextmanager
def _no_collections() -> Generator[None]:
    """Let the interpreter look for no cycles of garbage: of rows alone there are none.

    It would visit the rows again and again, for a third of the time that replay takes.
    """
    replay = object()
    try:
        _collections.stop(replay)
        yield
    finally:
        _collections.go_on(replay)


def apply_records(
    applier: Applier,
    records: Iterable[tuple[Lsn, bytes]],
    is_apart: Callable[[Record], object] | None = None,
) -> int:
    """Apply records of a log in their order, and return how many; CorruptionError: a malformed one.

    Up to, and without, the first for which is_apart() says so.
    """
    count = 0
    run: list[tuple[Lsn, Rows, int]] = []
    for lsn, data in records:
        try:
            record = decode(data)
        except ValueError as error:
            raise _unreadable(lsn, len(data), error) from error
        if (
            isinstance(record, Rows)
            and record.tx is None
            and not record.changes
            and len(record.inserts) == 1
        ):
            if run and (record.table_id != run[0][1].table_id or len(run) == _RUN_RECORDS_MAX):
                _apply_run(applier, run)
                run = []
            run.append((lsn, record, len(data)))
            count += 1
            continue
        if run:
            _apply_run(applier, run)
            run = []
        if is_apart is not None and is_apart(record):
            return count
        _apply(applier, lsn, record, len(data))
        count += 1
    if run:
        _apply_run(applier, run)
    return count


def _apply_run(applier: Applier, run: Sequence[tuple[Lsn, Rows, int]]) -> None:
    try:
        is_done = applier.replay_inserts(run)
    except ValueError:
        is_done = False  # and nothing has happened: one by one says which it is
    if not is_done:
        for lsn, record, byte_count in run:
            _apply(applier, lsn, record, byte_count)


def _apply(applier: Applier, lsn: Lsn, record: Record, byte_count: int) -> None:
    try:
        applier.fill(record, lsn, None)
        applier.apply(record, lsn, applier.memory_bytes(record, byte_count))
        applier.finish(record)
    except ValueError as error:
        raise _unreadable(lsn, byte_count, error) from error


def _unreadable(lsn: Lsn, byte_count: int, error: ValueError) -> CorruptionError:
    return CorruptionError(
        f"log record {lsn} of {byte_count} bytes cannot be read: {error}",
        hint="The frame's checksum is right, so a newer or a broken herdpy wrote it.",
    )
