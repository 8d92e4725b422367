"""Checkpoint: move what the memtables hold into a segment, and say so in the manifest.

Steps: freeze (under the monitor, only pointers move) · make the log durable up to there · write one
segment with L0 pages and bitmaps, sync it and its directory · one manifest record · publish (under
the monitor, pointers again) · drop the log before. Statements go on all the while; only one
checkpoint or compaction runs at a time. Every step can fail: then the frozen memtables stay where
readers find them and the next checkpoint takes them along.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.engine.maintenance.directory import upgrade
from herdpy.engine.maintenance.leftovers import segment_files
from herdpy.engine.maintenance.pins import LeaseAt, WrittenPins, write_pins
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.commit_tokens import PlainTokens
from herdpy.engine.state.memtable import Memtable, visible_rows
from herdpy.engine.state.snapshot_leases import SnapshotLease
from herdpy.engine.state.staged import Operation, Stage
from herdpy.engine.state.state import State, TableState
from herdpy.engine.state.tablespace import Tablespace, Unpublished
from herdpy.engine.state.transactions import Defined, OwnVersion, Transaction
from herdpy.errors import DiskFullError, InvariantViolation
from herdpy.limits import page_bytes_max
from herdpy.log.record import TransactionId
from herdpy.model.access import (
    Fact,
    FactKey,
    changes_from_plain,
    changes_to_plain,
    facts_to_plain,
    with_role_ids,
)
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN
from herdpy.model.schema import (
    Table,
    plain_version,
    table_from_plain,
    table_to_plain,
    with_stores,
)
from herdpy.model.types import Key
from herdpy.storage.checkpoint_writer import TableDelta, WrittenDelta, write_delta
from herdpy.storage.manifest import (
    Checkpoint,
    Edit,
    Manifest,
    ManifestState,
    PageRef,
    TableEdit,
    in_edit,
    log_start_of,
)
from herdpy.storage.segment import SegmentFolder, segment_name
from herdpy.storage.staged_writer import StageDelta


class OpenTransaction(msgspec.Struct, array_like=True, frozen=True):
    """A transaction open at the checkpoint: what it wrote before, newest change of each key."""

    id: TransactionId
    begun_us: int
    statement: int
    byte_count: int
    tables: list[tuple[int, list[tuple[Any, ...]]]]
    """(table id, changes as (statement, a position behind them, key, row or None)).

    With one element in place of four the changes are in the manifest's `writes`: who does not know
    these must not go on.
    """
    catalog: list[tuple[str, Any]]
    access: list[Any] = []
    defined: list[tuple[int, list[tuple[str, Any]], list[Any]]] = []
    """How catalog and access came to be so: (statement, tables, changes of access), in order."""


class EngineState(msgspec.Struct, array_like=True, frozen=True):
    """What the engine keeps beside rows and catalog; the manifest carries it as bytes."""

    epoch: int
    counter: int
    reserved: dict[int, int]
    transactions: list[OpenTransaction]
    tokens: PlainTokens = []
    token_horizon: int = 0
    access: list[Any] = []
    staged: list[Any] = []
    leases: list[Any] = []
    staging_runs: list[Any] = []
    next_role_id: int = 1
    spilled: list[Any] = []
    sequences: dict[int, tuple[int, int]] = {}
    """What Applier.set_at is; without any it is left out."""

    def encoded(self) -> bytes:
        fields = msgspec.structs.astuple(self)
        return msgspec.msgpack.encode(fields if self.sequences else fields[:-1])


class OpenAt(NamedTuple):
    """What the monitor must be held for to note of an open transaction."""

    id: TransactionId | None
    begun_us: int
    statement: int
    whole: int
    """The statement before which all have logged the last of their parts."""
    byte_count: int
    writes: dict[int, dict[Key, OwnVersion]]
    listed: dict[int, int]
    listings: int
    defined: list[Defined]


class Frozen(NamedTuple):
    """What one checkpoint writes: fixed under the monitor, immutable from then on."""

    state: State
    engine: bytes
    next_table_id: int
    leases: tuple[SnapshotLease, ...]
    in_memory: tuple[LeaseAt, ...]
    """Those of them that need what memtables hold."""
    writes: dict[str, bytes]
    """What each open transaction has changed since the manifest was told, by its name there."""
    open_at: tuple[OpenAt, ...]


def freeze(tablespace: Tablespace, listed: Mapping[str, Sequence[bytes]] | None = None) -> Frozen:
    """Begin new memtables and note the rest of the state at this Lsn. Takes the monitor.

    `listed`: what the manifest has of transactions.
    """
    with tablespace.settled():
        tablespace.check_checkpoint()
        applier = tablespace.applier
        state = applier.state
        tables = {
            table_id: table_state._replace(
                memtable=Memtable(table_state.memtable.changed_at),
                frozen=(table_state.memtable, *table_state.frozen),
            )
            if len(table_state.memtable)
            else table_state
            for table_id, table_state in state.tables.items()
        }
        open_at = [
            OpenAt(
                transaction.id,
                transaction.begun_us,
                statement := transaction.statement_at(state.lsn),
                statement if transaction.cut is None else min(statement, transaction.cut),
                transaction.byte_count,
                {number: writes.copy() for number, writes in transaction.writes.items()},
                transaction.listed,
                transaction.listings,
                transaction.defined_until(state.lsn),
            )
            for transaction in applier.transactions.values()
        ]
        counters = (applier.epoch, applier.counter, applier.reserved.copy())
        sequences = applier.set_at.copy()
        tokens = (applier.tokens.to_plain(), applier.tokens.horizon)
        leases = tuple(applier.leases)
        in_memory = tuple(LeaseAt(lease.id, lease.state) for lease in leases if not lease.is_pages)
        applier.state = state = state._replace(tables=tables)
        next_table_id, next_role_id = applier.next_table_id, applier.next_role_id
    transactions = [_open_to_plain(item) for item in open_at]
    access = facts_to_plain(state.catalog.access.facts)
    staged, runs = state.staged.to_plain(), state.staged.runs_to_plain()
    spilled = state.staged.spilled_to_plain()
    plain_leases = [lease.to_plain() for lease in leases]
    engine = EngineState(
        *counters,
        transactions,
        *tokens,
        access,
        staged,
        plain_leases,
        runs,
        next_role_id,
        spilled,
        sequences,
    ).encoded()
    writes = {name_of(item.id): _writes_of(item, listed or {}) for item in open_at}
    return Frozen(state, engine, next_table_id, leases, in_memory, writes, tuple(open_at))


def memory_to_write(state: State) -> int:
    """Return about what a checkpoint takes in memory, beside the rows that are there already."""
    rows = sum(len(memtable) for table in state.tables.values() for memtable in table.memtables)
    pieces = max((stage.piece_bytes for stage in state.staged.stages.values()), default=0)
    return _ROW_BYTES * rows + _PIECE_COPIES * pieces + _PAGES_BYTES


def merge_frozen(tablespace: Tablespace) -> None:
    """Make one of the memtables that failed checkpoints left; no other code changes these.

    So no table has more than two, however often a checkpoint fails.
    """
    for table_id, table_state in tablespace.state.tables.items():
        frozen = table_state.frozen
        if len(frozen) < 2:
            continue
        merged = Memtable.merged(frozen)
        with tablespace.monitor:
            tablespace.enter()
            state = tablespace.applier.state
            current = state.tables.get(table_id)
            if current is not None:  # else dropped meanwhile
                tables = {**state.tables, table_id: current._replace(frozen=(merged,))}
                tablespace.applier.state = state._replace(tables=tables)
                # Last, so that no reader makes one of the old state behind it: it would keep the
                # retired ones in memory.
                current.memtable.overlay = None
                tablespace.retire(frozen)


def run_checkpoint(tablespace: Tablespace, manifest: Manifest, disk: Disk, directory: str) -> bool:
    """Write one checkpoint; False when nothing changed since the last. One at a time.

    OSError or an Error: the checkpoint did not happen, or not visibly; the next one repeats it.
    """
    if manifest.failure is not None:
        raise manifest.failure
    finish_listing(tablespace, manifest)
    hint = tablespace.log.replay_hint
    if hint is not None:  # what lies before it is applied, and so in the checkpoint
        tablespace.sync_log()
    merge_frozen(tablespace)
    listed = manifest.state
    frozen = freeze(tablespace, listed.writes)
    state = frozen.state
    if tuple(state.lsn) == tuple(listed.checkpoint_lsn):
        return False
    tablespace.sync_log()
    hint_data = b"" if hint is None else hint.data
    if hint is not None and hint.behind > state.lsn:
        hint_data = listed.replay_hint  # behind a mark, which is no part of the state
    upgrade(disk, manifest, (table_state.table for table_state in state.tables.values()))
    deltas = [
        TableDelta(
            table_state.table,
            table_state.pages,
            visible_rows(table_state.frozen, state.position),
            is_new=_is_new(listed, table_state.table),
            listed=_listed_pages(listed, table_id) if table_state.is_unlisted else None,
        )
        for table_id, table_state in state.tables.items()
    ]
    stages = {n: stage for n, stage in state.staged.stages.items() if stage.pieces}
    stage_deltas = [
        stage_delta(n, stage, is_new=n not in listed.tables) for n, stage in stages.items()
    ]
    number = listed.next_segment
    try:
        folder = SegmentFolder(disk, directory, manifest.new_file_id)
        written = write_delta(folder, number, deltas, stage_deltas)
        pinned = write_pins(folder, number, written, deltas, frozen.in_memory)
        if written.segments or pinned.segments:
            disk.sync_directory(directory)
    except BaseException:
        with suppress(OSError):  # what is written is of no use, and the disk may be full
            remove_unlisted(disk, directory, manifest.state)
        raise
    dropped = tuple(
        TableEdit(table_id, is_dropped=True)
        for table_id in listed.tables
        if table_id not in state.tables and table_id not in state.staged.stages
    )
    lsn = (state.lsn.ledger_id, state.lsn.entry_id, state.lsn.index)
    segments, ids = in_edit((*written.segments, *pinned.segments))
    edit = Checkpoint(
        lsn=lsn,
        position=state.position,
        engine=frozen.engine,
        next_table_id=frozen.next_table_id,
        segments=segments,
        tables=(*written.edits, *dropped),
        log_start=log_start_of(hint_data),
        pins=pinned.pins,
        unpinned=tuple(listed.pins.keys() - {lease.id for lease in frozen.leases}),
        segment_ids=ids,
        writes=frozen.writes,
    )

    def publish_all() -> None:
        publish(tablespace, written, state, pinned)
        note_listed(tablespace, frozen.open_at)

    tablespace.unpublished = Unpublished(
        lambda: tuple(manifest.state.checkpoint_lsn) == lsn, publish_all
    )
    append_edit(disk, directory, manifest, edit)
    finish_listing(tablespace, manifest)
    remove_unlisted(disk, directory, manifest.state)
    tablespace.log.drop_before(state.lsn)
    return True


def append_edit(disk: Disk, directory: str, manifest: Manifest, edit: Edit) -> None:
    """Append the edit that lists what was written; errors as Manifest.append().

    On a full disk, where it has surely had no effect, what was written goes again.
    """
    try:
        manifest.append(edit)
    except DiskFullError:
        with suppress(OSError):
            remove_unlisted(disk, directory, manifest.state)
        raise


def finish_listing(tablespace: Tablespace, manifest: Manifest) -> None:
    """Publish what the manifest lists, though an interrupt came behind the listing; repeatable.

    Without it the next checkpoint would write the same rows once more beside pages that hold them,
    or replace a segment that the manifest on disk names and the one in memory does not.
    """
    manifest.settle()
    left = tablespace.unpublished
    if left is not None:
        if left.is_listed():
            left.publish()
        tablespace.unpublished = None
    with tablespace.monitor:
        tablespace.applier.rewriting.clear()


def publish(
    tablespace: Tablespace, written: WrittenDelta, frozen: State, pinned: WrittenPins
) -> None:
    """Let readers see the new pages instead of the memtables that are in them."""
    with tablespace.monitor:
        tablespace.enter()
        leases = tablespace.applier.leases
        for number, pages in pinned.pages.items():
            leases.settle(number, pages)
        for table_id, pages in written.pages.items():
            leases.in_pages(frozen.tables[table_id], pages)
        state = tablespace.applier.state
        tables = dict(state.tables)
        stages = dict(state.staged.stages)
        retired: list[Memtable] = []
        renewed: list[Memtable] = []
        for table_id, pages in written.pages.items():
            current = tables.get(table_id)
            if current is None:  # dropped meanwhile
                continue
            done, before = frozen.tables[table_id].frozen, frozen.tables[table_id].pages
            # They are `pages` when an interrupt came behind this very assignment; of another
            # definition they are when the table was altered meanwhile, which changes no row.
            if not (current.pages.are_those_of(pages) or current.pages.are_those_of(before)):
                if any(memtable in current.frozen for memtable in done):
                    raise InvariantViolation("I4: a table adopted pages during a checkpoint")
                retired += done
                continue  # nothing of it was written, or it is published; it has adopted since
            kept = tuple(memtable for memtable in current.frozen if memtable not in done)
            retired += done
            renewed.append(current.memtable)
            if pages.table.version != current.table.version:
                pages = pages.for_table(current.table)
            tables[table_id] = TableState(current.table, current.memtable, kept, pages)
        for number, pages in written.staged.items():
            # Else it is committed or given up meanwhile, or this is published already.
            if number in stages and stages[number].pages is not pages:
                stages[number] = stages[number].in_pages(frozen.staged.stages[number], pages)
        staged = state.staged._replace(stages=stages)
        tablespace.applier.state = state._replace(tables=tables, staged=staged)
        for memtable in renewed:
            # Behind the assignment: no reader makes an overlay of the old state after this, which
            # would keep the retired memtables.
            memtable.overlay = None
        tablespace.retire(retired)


def note_listed(tablespace: Tablespace, open_at: Sequence[OpenAt]) -> None:
    """Note what the manifest has of the changes of open transactions; repeatable."""
    with tablespace.monitor:
        for item in open_at:
            transaction = tablespace.applier.transactions.get(item.id or (0, 0))
            # Else what it has was made void since it was looked at.
            if transaction is not None and transaction.listings == item.listings:
                numbers = (*item.writes, *item.listed)
                transaction.listed = dict.fromkeys(numbers, item.whole)


def _is_new(listed: ManifestState, table: Table) -> bool:
    """Return whether the manifest has no table with this id, or another definition of it."""
    known = listed.tables.get(table.id)
    return known is None or plain_version(known.definition) != table.version


def _listed_pages(listed: ManifestState, table_id: int) -> tuple[PageRef, ...]:
    table = listed.tables.get(table_id)
    return () if table is None else table.pages


def stage_delta(number: int, stage: Stage, *, is_new: bool) -> StageDelta:
    """Return what a checkpoint writes of a stage's pieces."""
    return StageDelta(
        number,
        stage.table,
        stage.pages,
        [(piece.data, piece.first_row_id) for piece in stage.pieces],
        keeps_repeats=stage.operation.refuses_repeats,
        is_first_kept=stage.operation is Operation.IGNORE,
        is_new=is_new,
    )


def remove_unlisted(disk: Disk, directory: str, state: ManifestState) -> None:
    """Unlink segments that the manifest does not list; readers that map them keep them."""
    listed = {segment_name(number) for number in state.segments}
    for name in segment_files(disk, directory):
        if name not in listed:
            disk.unlink(f"{directory}/{name}")


def name_of(tx: TransactionId | None) -> str:
    """Return by which name the manifest has what a transaction has changed."""
    if tx is None:
        raise InvariantViolation("I11: an open transaction without id in a checkpoint")
    return f"{tx[0]}.{tx[1]}"


def _writes_of(item: OpenAt, listed: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return what the manifest lacks of a transaction's changes; nothing: it has them all.

    [[table id, is all of the table, [[statement, key, row or nil], ...]], ...]. When more was added
    to the manifest than the transaction holds by now, all of it is given anew.
    """
    added = sum(map(len, listed.get(name_of(item.id), ())))
    is_anew = added > max(item.byte_count, _LISTED_BYTES_MIN)
    found: list[Any] = []
    for number in sorted({*item.writes, *item.listed}):
        since = 0 if is_anew else item.listed.get(number, 0)
        rows = [
            (
                version[0],
                _plain_cells(key),
                None if version[1] is None else _plain_cells(version[1]),
            )
            for key, newest in item.writes.get(number, {}).items()
            for version in _versions_of(newest, item)
            if version[0] >= since
        ]
        if rows or (since == 0 and number in item.listed):
            found.append((number, since == 0, rows))
    return msgspec.msgpack.encode(found) if found else b""


def _versions_of(newest: OwnVersion, item: OpenAt) -> list[OwnVersion]:
    """Return what a checkpoint lists of a row's changes, the oldest first.

    All of them: a ROLLBACK TO may come, and then what was there before it counts.
    """
    found: list[OwnVersion] = []
    version: OwnVersion | None = newest
    while version is not None:
        if version[0] < item.statement:
            found.append(version)
        version = version[2]
    return found[::-1]


def _open_to_plain(item: OpenAt) -> OpenTransaction:
    if item.id is None:
        raise InvariantViolation("I11: an open transaction without id in a checkpoint")
    defined = [
        (each.statement, _tables_to_plain(each.tables or {}), changes_to_plain(each.access))
        for each in item.defined
    ]
    catalog: dict[str, Table | None] = {}
    access: dict[FactKey, Fact | None] = {}
    for each in item.defined:
        catalog.update(each.tables or {})
        access.update(each.access)
    tables: list[tuple[int, list[tuple[Any, ...]]]] = [(0, [(0,)])]
    whole = (_tables_to_plain(catalog), changes_to_plain(access), defined)
    return OpenTransaction(item.id, item.begun_us, item.statement, item.byte_count, tables, *whole)


def _tables_to_plain(tables: Mapping[str, Table | None]) -> list[tuple[str, Any]]:
    return [
        (name, None if table is None else table_to_plain(table)) for name, table in tables.items()
    ]


def restore_open(plain: OpenTransaction, added: Sequence[bytes]) -> Transaction:
    """Return the transaction that a checkpoint found open; `added` as the manifest has it."""
    transaction = Transaction(Durability.SYNC, begun_us=plain.begun_us, is_autocommit=False)
    transaction.id = plain.id
    transaction.statement = plain.statement
    transaction.byte_count = plain.byte_count
    transaction.logged = [(plain.statement, START_LSN)]
    tables = {number: rows for number, rows in plain.tables if not any(len(r) == 1 for r in rows)}
    for table_id, rows in tables.items():
        for statement, _, key, row in rows:
            changes = ((_cells(key), None if row is None else _cells(row)),)
            transaction.write(table_id, changes, statement)
    for data in added:
        for table_id, is_all, rows in msgspec.msgpack.decode(data, type=list[_Added]):
            if is_all:
                transaction.writes.pop(table_id, None)
            for statement, key, row in rows:
                changes = ((_cells(key), None if row is None else _cells(row)),)
                transaction.write(table_id, changes, statement)
    return transaction


def _defined_of(plain: OpenTransaction) -> list[tuple[int, list[tuple[str, Any]], list[Any]]]:
    """Return what a transaction has defined, in order; of an older program it is one thing."""
    if not plain.defined and (plain.catalog or plain.access):
        return [(0, plain.catalog, plain.access)]
    return plain.defined


_Added = tuple[int, bool, list[tuple[int, list[Any], list[Any] | None]]]
_LISTED_BYTES_MIN = 64 * 1024
_ROW_BYTES = 180
"""A row's places among the newest versions, in their order, and among the rows to be written."""
_PIECE_COPIES = 4
"""Of what a stage has in memory: as columns, sorted, as pages, and what is not flushed yet."""
_PAGES_BYTES = 2 * page_bytes_max
"""A page that is being built, and what is not flushed of those before it."""
_WIDE_MIN, _WIDE_MAX = -(2**63), 2**63 - 1


def _plain_cells(values: tuple[Any, ...]) -> list[Any]:
    # An integer beyond 64 bits (a wide DECIMAL) becomes [decimal text]; msgpack has no such int.
    return [
        [str(value)] if isinstance(value, int) and not _WIDE_MIN <= value <= _WIDE_MAX else value
        for value in values
    ]


def _cells(plain: list[Any]) -> Any:
    return tuple(int(value[0]) if isinstance(value, list) else value for value in plain)


def without_leases(data: bytes) -> bytes:
    """Return the engine's part of a manifest without leases."""
    if not data:
        return data
    engine = msgspec.msgpack.decode(data, type=EngineState)
    return msgspec.structs.replace(engine, leases=[]).encoded()


def restore_engine(
    applier: Applier,
    data: bytes,
    pinned: Mapping[str, dict[int, TableState]] | None = None,
    writes: Mapping[str, Sequence[bytes]] | None = None,
) -> None:
    """Fill the applier's counters, open transactions and leases from the manifest.

    `writes` is what open transactions have changed, as the manifest has it; `pinned` are the tables
    of each lease. ValueError, LookupError: what no engine writes.
    """
    if not data:
        return
    engine = msgspec.msgpack.decode(data, type=EngineState)
    applier.epoch = engine.epoch
    applier.counter = engine.counter
    applier.reserved = dict(engine.reserved)
    applier.set_at = dict(engine.sequences)
    applier.tokens.restore(engine.tokens, engine.token_horizon)
    state = applier.state
    catalog = state.catalog
    changes, applier.next_role_id = with_role_ids(
        changes_from_plain(engine.access), catalog.access.fact, engine.next_role_id
    )
    access = catalog.access.with_changes(changes)
    applier.leases.restore(engine.leases, pinned or {}, access)
    for plain in engine.transactions:
        added = (writes or {}).get(name_of(plain.id), ())
        applier.transactions[plain.id] = transaction = restore_open(plain, added)
        for statement, named, of_access in _defined_of(plain):
            made = {n: None if each is None else table_from_plain(each) for n, each in named}
            changes, applier.next_role_id = with_role_ids(
                changes_from_plain(of_access),
                access.with_changes(transaction.access_changes).fact,
                applier.next_role_id,
            )
            transaction.define(made, changes, statement, START_LSN)
    tables = {table.id: table for table in catalog.tables()}

    def table_of(tx: TransactionId, table_id: int) -> Table:
        transaction = applier.transactions[tx]
        transaction.has_spilled = True
        made = with_stores(transaction.tables_made(START_LSN))
        dropped = next((table for table in made if table.id == table_id), None)
        return dropped or applier.find_table(table_id, transaction)

    staged = state.staged.restored(
        engine.staged,
        tables,
        engine.staging_runs,
        access.owner_of,
        engine.spilled,
        table_of,
    )
    applier.state = state._replace(catalog=catalog.with_access(access), staged=staged)
