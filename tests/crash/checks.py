"""Checks: what must be true of a database between two statements, and right after recovery."""

import random

import msgspec

from herdpy.engine.database import Database
from herdpy.engine.maintenance.checkpoint import EngineState
from herdpy.engine.maintenance.recovery import apply_records
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.state import State
from herdpy.engine.state.tablespace import Tablespace
from herdpy.log.file_replay import LogReader
from herdpy.log.log_files import LogFile
from herdpy.log.record import Begin, Commit, CommitToken, Rollback, TransactionId, decode
from herdpy.model.lsn import START_LSN, Lsn
from herdpy.model.settings import Settings
from herdpy.storage.manifest import ManifestState
from tests.crash.model import SHAPES, Model
from tests.crash.world import World, content_of
from tests.fixtures.digest import state_digest
from tests.fixtures.memory_log import MemoryLog
from tests.sim.clock import SimulatedClock


def read_log(database: Database, after: Lsn) -> list[tuple[Lsn, bytes]]:
    """Write what is queued; return what a fresh reader finds behind `after` in the files."""
    database.tablespace.log.write()
    listed = database.replica.manifest.state
    folder = f"{database.entry.folder}/log"
    reader = LogReader(
        database.disk,
        [LogFile(folder, *each) for each in listed.listed_log_files],
        log_id=listed.log_id,
        after=after,
        known_durable_sequence=0,
    )
    return list(reader.records())


def check_open_transactions(database: Database) -> None:
    """I4: what the log shows open is what the engine has open: no end goes unlogged."""
    listed = database.replica.manifest.state
    shown: set[TransactionId] = set()
    for tx in open_at_checkpoint(listed):
        shown.add(tx)
    for _, data in read_log(database, Lsn(*listed.checkpoint_lsn)):
        record = decode(data)
        if isinstance(record, Begin):
            shown.add(record.tx)
        elif isinstance(record, Commit | Rollback):
            shown.discard(record.tx)
    applier = database.tablespace.applier
    found = set(applier.transactions)
    spilled = {stage.tx for stage in applier.state.staged.stages.values() if stage.tx is not None}
    assert spilled <= found, f"stages of transactions that have ended: {sorted(spilled - found)}"
    assert found == shown, (
        f"I4: open in the engine but not in the log: {sorted(found - shown)}; "
        f"open in the log but not in the engine: {sorted(shown - found)}"
    )


def check_locks(world: World) -> None:
    """Between statements only open transactions hold locks, and none waits."""
    held = world.database.tablespace.locks.held()
    owners = {id(owner) for holders in held.values() for owner in holders}
    known = {id(c.session.transaction) for c in world.connections if c.work is not None}
    assert owners <= known, f"locks without an owner: {list(held)[:10]}"


def open_at_checkpoint(listed: ManifestState) -> list[TransactionId]:
    if not listed.engine:
        return []
    engine = msgspec.msgpack.decode(listed.engine, type=EngineState)
    return [transaction.id for transaction in engine.transactions]


def check_recovered(world: World) -> None:
    """After recovery nothing is open, no lock is held or waited for, nothing is registered."""
    database = world.database
    tablespace = database.tablespace
    is_room_certain = not world.shared.is_filled or world.style.is_freeing_certain
    if is_room_certain:  # else its ROLLBACK waits for room
        assert not tablespace.applier.transactions, "a transaction is open after recovery"
    assert not tablespace.locks.held(), f"locks after recovery: {tablespace.locks.held()}"
    world.check_registry("snapshots registered after recovery")
    check_open_transactions(database)


def check_survived(world: World) -> None:
    """What is there is what a crash, or an opening of the log, may leave of what was there."""
    check_recovered(world)
    world.leases.survive(world.database)
    database = world.database
    world.model.survive(found_content(database), found_tokens(database))
    check_filled(world)
    check_digest(database)
    check_reads(database, world.rng, world.model, with_vector=world.with_vector)


def check_unchanged(world: World) -> None:
    """Behind a clean close and open everything is there."""
    check_filled(world)
    found = found_content(world.database)
    assert found == world.model.visible.plain(), "a clean close and open changed the content"
    assert found_tokens(world.database) == world.model.visible.tokens
    check_recovered(world)
    world.leases.check(world.database)


def check_filled(world: World) -> None:
    """No value of a sequence is in two rows, of those that are there or ever survived."""
    snapshot = world.database.tablespace.snapshot(None)
    try:
        catalog = snapshot.state.catalog
        for table in catalog.tables():
            if table.identity is None:
                continue
            filling = table.columns[table.identity].filling
            sequence = None if filling is None else catalog.table(filling.sequence)
            assert sequence is not None, f"{table.name}: its sequence is not there"
            rows = list(snapshot.source(table).range(None, None))
            values = [row[table.identity] for row in rows]
            assert len(set(values)) == len(values), f"{table.name}: a value twice"
            for value, row in zip(values, rows, strict=True):
                assert isinstance(value, int)
                before = world.filled.setdefault((sequence.id, value), row[-1])
                assert before == row[-1], f"{table.name}: value {value} again, of another row"
    finally:
        snapshot.close()


def check_reads(database: Database, rng: random.Random, model: Model, *, with_vector: bool) -> None:
    """Points, ranges and, if asked, the vector path show the same rows as the full scan."""
    tablespace = database.tablespace
    snapshot = tablespace.snapshot(None)
    try:
        for table in snapshot.state.catalog.tables():
            source = snapshot.source(table)
            rows = list(source.range(None, None))
            keys = [table.key_of(row) for row in rows]
            assert keys == sorted(set(keys)), f"{table.name}: keys out of order or twice"
            assert rows[::-1] == list(source.range(None, None, is_reverse=True))
            for key, row in zip(keys, rows, strict=True):
                assert source.get(key) == row, f"{table.name}: point read of {key} differs"
            if not table.is_heap and rows:
                low, high = sorted(rng.choices(keys, k=2))
                found = list(source.range(low, high))
                assert found == [row for row in rows if low <= table.key_of(row) <= high]
                gone = (-7, *keys[0][1:])
                assert source.get(gone) is None, f"{table.name}: a row that was never written"
    finally:
        snapshot.close()
    if with_vector:
        _check_vector(database, model)


def _check_vector(database: Database, model: Model) -> None:
    session = database.session(Settings(), autocommit=True)
    try:
        for name, rows in model.visible.plain().items():
            if name not in SHAPES:
                continue
            place = SHAPES[name].width - 2
            text = f"SELECT count(*), sum(v), count(DISTINCT k), min(k) FROM {name}"
            result = session.execute(text)
            found = list(result.rows())
            result.close()
            keys = [row[0] for row in rows]
            total = sum(row[place] for row in rows) if rows else None
            expected = [(len(rows), total, len(set(keys)), min(keys, default=None))]
            assert found == expected, f"{text}: expected {expected}, found {found}"
    finally:
        session.close()


def found_content(database: Database) -> dict[str, list[tuple[object, ...]]]:
    snapshot = database.tablespace.snapshot(None)
    try:
        return content_of(snapshot)
    finally:
        snapshot.close()


def found_tokens(database: Database) -> frozenset[CommitToken]:
    """Return the tokens whose commits happened, as the database would answer."""
    plain = database.tablespace.applier.tokens.to_plain()
    return frozenset(
        (name, n) for name, _, outcomes in plain for n, happened in outcomes if happened
    )


def has_whole_log(database: Database) -> bool:
    files = database.replica.manifest.state.log_files
    return bool(files) and files[0][0] == 1  # numbers count from 1 and are used once


def replayed(records: list[tuple[Lsn, bytes]]) -> Tablespace:
    """Return a tablespace made from empty by these records alone."""
    applier = Applier(State(1, START_LSN, Catalog(1, ()), {}), SnapshotRegistry())
    return replayed_behind(applier, records)


def replayed_behind(applier: Applier, records: list[tuple[Lsn, bytes]]) -> Tablespace:
    """Return a tablespace after applying the records behind its state."""
    after = applier.state.lsn
    apply_records(applier, (item for item in records if item[0] > after))
    return Tablespace("replay", MemoryLog(), SimulatedClock(), applier)


def check_digest(database: Database) -> None:
    """I6: the state equals that of a replay from empty, where the whole log is still there."""
    if not has_whole_log(database):
        return
    records = read_log(database, START_LSN)
    expected = state_digest(replayed(records))
    found = state_digest(database.tablespace)
    assert found == expected, "I6: replay from empty gives another state than the one found"
