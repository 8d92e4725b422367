"""Replica.reopen(): a tablespace is held and resumed behind another log, and sessions go on.

The log is cut at a drawn position behind what was durable, as the disk may have lost it: what it
still has is acknowledged once, what it lacks fails SAFE, open transactions get 40001, no position
goes back, and the state equals that of a fresh start from the same disk.
"""

import gc
import random
import threading
from collections.abc import Callable, Iterator
from errno import EIO
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from bookie.runtime.ticket import Ticket
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.engine.maintenance.file_logs import LogSite, LogSource, open_file_log
from herdpy.engine.maintenance.recovery import restore
from herdpy.engine.session.session import Session
from herdpy.engine.state import tablespace as tablespace_module
from herdpy.engine.state.locks import Owner
from herdpy.engine.state.page_adoption import FEW_ROWS
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.writes.spilled_writes import SpilledWrite
from herdpy.errors import (
    CorruptionError,
    Error,
    IntegrityError,
    InvariantViolation,
    LogFailedError,
    OperationalError,
    Retry,
    SerializationError,
    SnapshotTooOldError,
)
from herdpy.log.interfaces import CommitLog
from herdpy.log.syncer import unmeasured
from herdpy.model.settings import Settings
from herdpy.storage.manifest import FILE_LOG, Manifest
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Background, Engine, WatchedDriver, engine, rows, run, table
from tests.fixtures.memory_log import MemoryLog, MemoryStore
from tests.fixtures.metadata import SeededRng
from tests.sim.disk import SimulatedDisk

_SEEDS = 25


class Pending:
    """A transaction whose COMMIT is in the log, and not durable when its log is lost."""

    def __init__(self, database: Database, key: int) -> None:
        self.key = key
        self.session = session_of(database)
        run(self.session, "INSERT INTO t VALUES (?, 0)", key)
        tablespace = database.tablespace
        (transaction,) = (each for each in tablespace.open_transactions() if has(each, key))
        self.ticket: Ticket[None] = tablespace.commit(transaction)
        assert transaction.outcome is self.ticket
        assert not self.ticket.is_done
        self.lsn = tablespace.log.last_lsn

    def error(self) -> Error | None:
        try:
            self.ticket.result()
        except Error as error:
            return error
        return None


def has(transaction: object, key: int) -> bool:
    writes = getattr(transaction, "writes", {})
    return any((key,) in changes for changes in writes.values())


def session_of(database: Database) -> Session:
    return database.session(Settings(lock_timeout_s=30))


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    fresh = SimulatedDisk()
    disk._hand_over(fresh)
    return fresh


class FileHome:
    """A database whose log is files."""

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.open_log = open_file_log

    def cut(self, rng: random.Random) -> None:
        """Lose some of the newest writes to the log that were not synced, the first in part."""
        for path, node in self.disk._names.items():
            if "/log/" in path and node.unsynced:
                kept = rng.randrange(len(node.unsynced) + 1)
                changes, lost = node.unsynced[:kept], node.unsynced[kept:]
                if lost:
                    changes.append(lost[0].part(0, rng.randrange(lost[0].byte_count)))
                node.cached = node.durable.copy()
                node.unsynced.clear()
                for change in changes:
                    node.apply(change)

    def copy_log(self) -> Callable[[LogSite], CommitLog]:
        return open_file_log


class MemoryHome:
    """A database whose log is a list in memory."""

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.store = MemoryStore()

    def open_log(self, _: LogSite) -> CommitLog:
        return MemoryLog(self.store)

    def cut(self, rng: random.Random) -> None:
        owner = self.store.owner
        assert owner is not None
        self.store.entries += owner._queue[: rng.randrange(len(owner._queue) + 1)]

    def copy_log(self) -> Callable[[LogSite], CommitLog]:
        copy = MemoryStore()
        copy.entries = list(self.store.entries)
        return lambda _: MemoryLog(copy)


Home = FileHome | MemoryHome
HOMES: dict[str, Callable[[int], Home]] = {"files": FileHome, "memory": MemoryHome}


def fresh_digest(home: Home, db: Engine) -> str:
    """Return the digest of what another process would find on the disk now, before it writes."""
    db.database.tablespace.sync_log()
    disk = copy_of(home.disk)
    manifest = Manifest.load(disk, "default/MANIFEST", SeededRng())
    site = LogSite(disk, "default", manifest, db.config, None, unmeasured)
    log, applier = restore(site, LogSource(FILE_LOG, home.copy_log()), SnapshotRegistry(), db.clock)
    try:
        return state_digest(Tablespace("default", log, db.clock, applier))
    finally:
        log.close()
        manifest.close()


def owners_of(tablespace: Tablespace) -> list[Owner]:
    with tablespace.monitor:
        return tablespace.locks.owners()


def keys_of(session: Session) -> list[int]:
    found = [key for (key,) in rows(session, "SELECT id FROM t ORDER BY id")]
    session.rollback()
    return found


@pytest.mark.parametrize("number", range(_SEEDS))
@pytest.mark.parametrize("kind", HOMES)
def test_a_cut_log_decides_every_commit(kind: str, number: int, seed: int) -> None:
    rng = random.Random(seed * 1000 + number)
    home = HOMES[kind](rng.getrandbits(32))
    with engine(disk=home.disk, logs=LogSource(FILE_LOG, home.open_log)) as db:
        database, tablespace = db.database, db.database.tablespace
        reader, writer = session_of(database), session_of(database)
        table(reader, (1, 0), (2, 0))
        run(writer, "INSERT INTO t VALUES (50, 0)")
        if rng.random() < 0.5:
            database.run_checkpoint()
        tablespace.sync_log()
        pending: list[Pending] = []
        for key in range(100, 100 + rng.randrange(1, 7)):
            pending.append(Pending(database, key))
            if rng.random() < 0.3:
                run(writer, "INSERT INTO t VALUES (?, 0)", key + 500)
            if kind == "files" and rng.random() < 0.7:
                tablespace.log.write()
        before, durable = tablespace.state, tablespace.durable_lsn
        home.cut(rng)

        database.reopen()

        state = tablespace.state
        assert state.position > before.position
        assert state.catalog.version > before.catalog.version
        assert state.lsn >= before.lsn
        assert tablespace.durable_lsn >= durable
        assert state_digest(tablespace) == fresh_digest(home, db)
        found = keys_of(reader)
        acknowledged: list[bool] = []
        for each in pending:
            assert each.ticket.is_done
            error = each.error()
            acknowledged.append(error is None)
            if error is not None:
                assert (error.sqlstate, error.retry) == ("40001", Retry.SAFE)
        assert acknowledged == sorted(acknowledged, reverse=True)  # the log has a prefix
        assert found == [1, 2, *(p.key for p, ok in zip(pending, acknowledged, strict=True) if ok)]
        assert not db.locks
        with pytest.raises(SerializationError):
            run(writer, "INSERT INTO t VALUES (51, 0)")
        writer.rollback()
        for each, ok in zip(pending, acknowledged, strict=True):
            if ok:
                with pytest.raises(IntegrityError):
                    run(each.session, "INSERT INTO t VALUES (?, 1)", each.key)
                each.session.rollback()
            else:
                with pytest.raises(SerializationError):  # its COMMIT was never answered
                    each.session.commit()
                run(each.session, "INSERT INTO t VALUES (?, 1)", each.key)
                each.session.commit()
        expected = keys_of(reader)
        assert expected == [1, 2, *(p.key for p in pending)]
        database.run_checkpoint()
        assert state_digest(tablespace) == fresh_digest(home, db)
        db.reopen()
        assert keys_of(session_of(db.database)) == expected


def _lose_what_is_not_synced(home: FileHome) -> None:
    for node in home.disk._names.values():
        node.cached = node.durable.copy()
        node.unsynced.clear()


def test_positions_that_were_seen_are_not_used_again(seed: int) -> None:
    home = FileHome(seed)
    with engine(disk=home.disk) as db:
        tablespace = db.database.tablespace
        a = session_of(db.database)
        table(a)
        seen = []
        for key in range(5):
            run(a, "INSERT INTO t VALUES (?, 0)", key)
            tablespace.log.write()
            seen.append(tablespace.state.lsn)
        _lose_what_is_not_synced(home)
        db.database.reopen()
        assert tablespace.state.lsn >= seen[-1]
        b = session_of(db.database)
        run(b, "INSERT INTO t VALUES (9, 0)")
        assert tablespace.state.lsn > seen[-1]
        b.commit()
        assert keys_of(b) == [9]
        assert state_digest(tablespace) == fresh_digest(home, db)


def test_a_commit_that_is_applied_in_part_counts_as_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not wait for the disk, which has lost it: the log goes on behind its position."""
    monkeypatch.setattr(tablespace_module, "monitor_rows_max", 2)
    home = FileHome(1)
    with engine(disk=home.disk) as db:
        session = db.session(durability="none")
        run(session, "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
        session.commit()
        for key in range(9):
            run(session, "INSERT INTO t VALUES (?, 0)", key)
        run(session, "SAVEPOINT a")  # the log has the rows
        tablespace = db.database.tablespace
        tablespace.sync_log()
        tablespace.has_others = lambda: True
        assert session.transaction is not None
        with tablespace.monitor:
            tablespace.enter()
            tablespace.log_commit(session.transaction)
        assert tablespace.is_applying
        seen = tablespace.log.last_lsn
        _lose_what_is_not_synced(home)
        # The thread that tells it of the log's end, and would go on, stands still.
        monkeypatch.setattr(tablespace, "on_durable", lambda lsn: None)
        db.database.reopen()
        monkeypatch.undo()
        # The ROLLBACK of what was open has a position of its own, and not the lost COMMIT's.
        assert tablespace.log.last_lsn > seen
        assert keys_of(session_of(db.database)) == []


def test_while_it_is_held_writes_fail_safe_and_reads_go_on() -> None:
    with engine() as db:
        a, b = session_of(db.database), session_of(db.database)
        table(a, (1, 0))
        run(b, "INSERT INTO t VALUES (2, 0)")
        commit = Pending(db.database, 3)
        db.database.tablespace.hold()
        assert keys_of(a) == [1]
        for text in ("INSERT INTO t VALUES (4, 0)", "CREATE TABLE u (id BIGINT PRIMARY KEY)"):
            with pytest.raises(OperationalError) as caught:
                run(a, text)
            assert (caught.value.sqlstate, caught.value.retry) == ("57P03", Retry.SAFE)
            a.rollback()
        assert not commit.ticket.is_done
        b.rollback()  # needs no record
        db.database.reopen()
        assert commit.ticket.is_done
        run(b, "INSERT INTO t VALUES (2, 0)")
        b.commit()
        run(a, "INSERT INTO t VALUES (4, 0)")
        a.commit()
        assert keys_of(a) == [1, 2, *([] if commit.error() else [3]), 4]


def test_a_log_that_is_taken_over_decides_nothing_while_held(seed: int) -> None:
    home = FileHome(seed)
    with engine(disk=home.disk) as db:
        tablespace = db.database.tablespace
        table(session_of(db.database), (1, 0))
        written = Pending(db.database, 2)
        tablespace.log.write()
        tablespace.hold()
        open_file_log(db.database.replica._site)
        assert tablespace.log.failure is not None
        tablespace.on_durable(tablespace.durable_lsn)  # enters, and finds the log stopped
        assert not written.ticket.is_done
        db.database.reopen()
        assert written.error() is None


def test_a_log_that_lacks_what_was_durable_is_refused(seed: int) -> None:
    home = MemoryHome(seed)
    with engine(disk=home.disk, logs=LogSource(FILE_LOG, home.open_log)) as db:
        a = session_of(db.database)
        table(a, (1, 0), (2, 0))
        entries = home.store.entries
        home.store.entries = entries[:-1]
        with pytest.raises(InvariantViolation, match="I1"):
            db.database.reopen()
        with pytest.raises(OperationalError) as caught:
            run(a, "INSERT INTO t VALUES (3, 0)")
        assert caught.value.sqlstate == "57P03"
        a.rollback()
        home.store.entries = entries
        db.database.reopen()
        run(a, "INSERT INTO t VALUES (3, 0)")
        a.commit()
        assert keys_of(a) == [1, 2, 3]


def test_damage_keeps_it_held_until_it_is_mended(seed: int) -> None:
    disk = SimulatedDisk(seed)
    with engine(disk=disk) as db:
        a = session_of(db.database)
        table(a, (1, 0))
        db.database.run_checkpoint()
        (path,) = (each for each in disk.contents() if "/segments/" in each)
        disk.flip(path, 3)
        with pytest.raises(CorruptionError):
            db.database.reopen()
        assert db.database.tablespace.is_held
        disk.flip(path, 3)
        db.database.reopen()
        assert keys_of(a) == [1]


def test_after_a_failed_sync_the_sessions_go_on(seed: int) -> None:
    disk = SimulatedDisk(seed)
    with engine(disk=disk) as db:
        a = session_of(db.database)
        table(a, (1, 0))
        run(a, "INSERT INTO t VALUES (2, 0)")
        disk.fail("sync", EIO, path="/log/")
        with pytest.raises(LogFailedError) as caught:
            a.commit()
        assert caught.value.retry is Retry.UNKNOWN
        with pytest.raises(LogFailedError):
            run(a, "INSERT INTO t VALUES (3, 0)")
        a.rollback()
        db.database.reopen()
        found = keys_of(a)
        assert found in ([1], [1, 2])
        run(a, "INSERT INTO t VALUES (3, 0)")
        a.commit()
        assert keys_of(a) == [*found, 3]
        db.reopen()
        assert keys_of(session_of(db.database)) == [*found, 3]


def test_what_was_never_written_fails_safe_when_the_log_stops(seed: int) -> None:
    disk = SimulatedDisk(seed)
    with engine(disk=disk) as db:
        tablespace = db.database.tablespace
        table(session_of(db.database), (1, 0))
        first = Pending(db.database, 2)
        second: list[Pending] = []

        def meanwhile(op: str, path: str) -> None:
            if op == "sync" and not second:
                second.append(Pending(db.database, 3))

        disk.latency = meanwhile
        disk.fail("sync", EIO, path="/log/")
        with pytest.raises(LogFailedError):
            tablespace.log.sync()
        disk.latency = None
        assert tablespace.log.failed_after == first.lsn < second[0].lsn
        tablespace.stop(LogFailedError("the log stopped"))
        with pytest.raises(LogFailedError):
            first.ticket.result()
        with pytest.raises(SerializationError) as caught:
            second[0].ticket.result()
        assert caught.value.retry is Retry.SAFE


def test_a_statement_that_waits_for_a_lock_is_told() -> None:
    with engine(is_threaded=True) as db, Background() as background:
        a, b = session_of(db.database), session_of(db.database)
        table(a, (1, 0))
        run(b, "INSERT INTO t VALUES (2, 0)")  # its records come before those of the lock's owner
        run(a, "UPDATE t SET v = 1 WHERE id = 1")
        told: list[Error] = []

        def wait() -> None:
            try:
                run(b, "UPDATE t SET v = 2 WHERE id = 1")
            except Error as error:
                told.append(error)

        tablespace = db.database.tablespace
        background.start(wait)
        while not any(owner.waits_for for owner in owners_of(tablespace)):
            pass
        db.database.reopen()
        background.join()
        assert isinstance(told[0], SerializationError)
        for session in (a, b):
            session.rollback()
        run(b, "UPDATE t SET v = 2 WHERE id = 1")
        b.commit()
        assert rows(a, "SELECT v FROM t") == [(2,)]


def spill_and_reopen(
    monkeypatch: pytest.MonkeyPatch, db: Engine, session: Session, then: Callable[[int], int]
) -> None:
    """See a statement told 40001 under which the log is opened anew, and then(stage) run.

    then() gets the number of its stage, and gives the one that it goes on with.
    """
    begin = SpilledWrite._begin

    def begin_and_reopen(self: SpilledWrite, *given: Any) -> int:
        number = begin(self, *given)
        monkeypatch.undo()
        db.database.reopen()
        return then(number)

    monkeypatch.setattr(SpilledWrite, "_begin", begin_and_reopen)
    with pytest.raises(SerializationError) as caught:
        run(session, "UPDATE t SET v = 1")
    assert caught.value.retry is Retry.SAFE
    session.rollback()
    assert rows(session, "SELECT sum(v) FROM t") == [(0,)]


@pytest.fixture(params=[False, True], ids=["transaction", "autocommit"])
def spilling(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, Session]]:
    """A session whose next UPDATE of all rows spills."""
    config = Config(transaction_memory_bytes=20_000, log_file_bytes_first=64 * 1024)
    with engine(config=config) as db:
        session = db.session(autocommit=request.param)
        table(session, *((number, 0) for number in range(400)))
        if not request.param:
            session.commit()
        yield db, session


def test_a_statement_that_spills_is_told(
    monkeypatch: pytest.MonkeyPatch, spilling: tuple[Engine, Session]
) -> None:
    """Its stage is gone with its transaction: sim-server, seed 10001228."""
    db, session = spilling
    spill_and_reopen(monkeypatch, db, session, lambda number: number)
    run(session, "UPDATE t SET v = 2")
    assert rows(session, "SELECT sum(v) FROM t") == [(800,)]


def test_a_statement_that_spills_adds_nothing_to_what_has_its_stage_s_number_by_now(
    monkeypatch: pytest.MonkeyPatch, spilling: tuple[Engine, Session]
) -> None:
    """Where the log has lost the stage, the number is given again."""
    db, session = spilling
    other = db.session(autocommit=True)
    run(other, "CREATE TABLE u (id TEXT PRIMARY KEY)")

    def begin_another(_number: int) -> int:
        other.staging.begin("u", "upsert", "load")
        return other.staging.begin_stage("load", "0", "0")[0]

    spill_and_reopen(monkeypatch, db, session, begin_another)
    (stage,) = db.database.tablespace.state.staged.stages.values()
    assert stage.row_count == 0


@pytest.mark.parametrize("goes_on_by", ["rows", "its end"])
def test_an_ingest_goes_on_in_no_other_one_s_stage(seed: int, goes_on_by: str) -> None:
    """The beginning of its stage was lost with the log: the next ingest gets the number."""

    def batch(first: int, value: int) -> pa.RecordBatch:
        ids = range(first, first + FEW_ROWS + 1)
        return pa.record_batch({"id": ids, "v": [value] * len(ids)})

    disk = SimulatedDisk(seed)
    with engine(disk=disk) as db:
        a, b = db.session(autocommit=True), db.session(autocommit=True)
        table(a)
        lost = a.begin_ingest("t", "append")
        lost.add(batch(0, 1))
        disk.fail("write", EIO, times=10**6, path="/log/")
        with pytest.raises(OperationalError):
            run(b, "INSERT INTO t VALUES (-1, 0)")
        disk.heal()
        db.database.reopen()
        other = b.begin_ingest("t", "append")
        other.add(batch(1_000_000, 2))
        go_on = partial(lost.add, batch(100_000, 1)) if goes_on_by == "rows" else lost.finish
        with pytest.raises(SerializationError) as caught:
            go_on()
        assert caught.value.retry is Retry.SAFE
        lost.abort()
        other.add(batch(2_000_000, 2))
        assert other.finish() == 2 * (FEW_ROWS + 1)
        found = rows(a, "SELECT v, count(*) FROM t GROUP BY v")
        assert found == [(2, 2 * (FEW_ROWS + 1))]
        assert db.database.tablespace.state.staged.jobs == {}


def test_the_reason_is_told_though_the_log_s_failure_was_there_when_it_was_asked_for() -> None:
    """The failure goes when all transactions are undone, in one hold of the monitor."""
    with engine() as db:
        session = session_of(db.database)
        table(session, (1, 0))
        session.commit()
        run(session, "UPDATE t SET v = 1")
        tablespace, transaction = db.database.tablespace, session.transaction
        assert transaction is not None
        tablespace.failure = OperationalError("the log is gone")
        monitor = tablespace.monitor

        class Reopening:
            """The monitor, which a thread that opens the log anew has had until now."""

            def __enter__(self) -> None:
                tablespace.monitor = monitor
                tablespace.failure = None
                db.database.reopen()
                monitor.acquire()

            def __exit__(self, *error: object) -> None:
                monitor.release()

        tablespace.monitor = Reopening()  # type: ignore[assignment]
        with pytest.raises(SerializationError):
            session.check_not_undone(transaction)
        session.rollback()


def test_a_commit_that_waits_for_its_sync_is_answered_once(seed: int) -> None:
    disk = SimulatedDisk(seed)
    with engine(disk=disk, is_threaded=True) as db, Background() as background:
        a = session_of(db.database)
        table(a, (1, 0))
        entered, may_go_on = threading.Event(), threading.Event()
        run(a, "INSERT INTO t VALUES (2, 0)")

        def hold(op: str, path: str) -> None:
            if op == "sync" and "/log/" in path and threading.current_thread().name == "committer":
                entered.set()
                assert may_go_on.wait(30)

        disk.latency = hold
        background.start(a.commit, "committer")
        assert entered.wait(30)
        background.start(db.database.reopen, "reopener")
        while not db.database.tablespace.is_held:
            pass
        may_go_on.set()
        background.join()
        disk.latency = None
        assert keys_of(a) == [1, 2]


def close(database: Database, driver: WatchedDriver) -> None:
    """Close it in a thread of its own, and see that it waits for no commit."""
    closer = threading.Thread(target=database.close, name="closer", daemon=True)
    closer.start()
    while closer.is_alive() and driver.waits.empty():
        pass
    assert driver.waits.empty(), "close() waits for a commit"
    closer.join()


def test_a_database_that_stays_held_is_closed(seed: int) -> None:
    """A COMMIT that its log cannot answer any more waits for no resume() that never comes."""
    is_broken = False

    def open_log(site: LogSite) -> CommitLog:
        log = open_file_log(site)  # takes over
        if is_broken:
            raise OSError(EIO, "the disk failed")
        return log

    driver = WatchedDriver()
    db = Engine(disk=SimulatedDisk(seed), driver=driver, logs=LogSource(FILE_LOG, open_log))
    database = db.database
    table(session_of(database), (1, 0))
    written = Pending(database, 2)
    database.tablespace.log.write()
    unwritten = Pending(database, 3)
    is_broken = True
    with pytest.raises(OperationalError):
        database.reopen()
    assert not written.ticket.is_done
    close(database, driver)
    unknown, safe = written.error(), unwritten.error()
    assert isinstance(unknown, LogFailedError)
    assert unknown.retry is Retry.UNKNOWN
    assert isinstance(safe, SerializationError)
    assert safe.retry is Retry.SAFE
    is_broken = False
    db.open()
    assert keys_of(session_of(db.database)) == [1, 2]
    db.database.close()


def test_a_reopening_that_fails_while_the_database_closes() -> None:
    is_closing = threading.Event()
    driver = WatchedDriver()

    def open_log(site: LogSite) -> CommitLog:
        log = open_file_log(site)  # takes over
        if is_closing.is_set():
            raise OSError(EIO, "the disk failed")
        return log

    db = Engine(driver=driver, logs=LogSource(FILE_LOG, open_log))
    database = db.database
    table(session_of(database), (1, 0))
    commit = Pending(database, 2)
    refused: list[Error] = []

    class Late:
        """Reopens the database when close() has told all to stop; put among its sessions."""

        def cancel(self) -> None:
            pass

        def close(self) -> None:
            is_closing.set()
            try:
                database.reopen()
            except OperationalError as error:
                refused.append(error)

    late: Any = Late()
    database._sessions = {-1: late, **database._sessions}
    close(database, driver)
    assert len(refused) == 1
    assert commit.error() is not None


def test_a_lease_and_its_readers_go_on(seed: int) -> None:
    for has_checkpoint in (False, True):
        with engine(disk=SimulatedDisk(seed)) as db:
            a = session_of(db.database)
            table(a, (1, 0))
            lease = a.leasing.take(60.0)
            reader = session_of(db.database)
            run(reader, "BEGIN")
            run(reader, f"SET TRANSACTION SNAPSHOT {lease.id!r}")
            assert rows(reader, "SELECT id FROM t") == [(1,)]
            run(a, "INSERT INTO t VALUES (2, 0)")
            a.commit()
            if has_checkpoint:
                db.database.run_checkpoint()
            db.database.reopen()
            run(a, "DELETE FROM t WHERE id = 1")
            a.commit()
            db.database.run_maintenance_once()
            assert rows(reader, "SELECT id FROM t") == [(1,)]
            assert keys_of(a) == [2]
            assert a.leasing.end(lease.id)
            with pytest.raises(SnapshotTooOldError):
                rows(reader, "SELECT id FROM t")
            reader.rollback()
            gc.collect()
            assert len(db.database.tablespace.registry) == 0


class _WatchedMutex:
    """A mutex that tells when a thread has to wait for it."""

    def __init__(self, mutex: Any, told: threading.Event) -> None:
        self._mutex = mutex
        self._told = told

    def __enter__(self) -> None:
        if not self._mutex.acquire(blocking=False):
            self._told.set()
            self._mutex.acquire()

    def __exit__(self, *error: object) -> None:
        self._mutex.release()


def test_a_log_file_is_listed_before_the_manifest_is_read_again() -> None:
    """A statement makes one while the log is opened anew: which waits for it, or it is refused."""
    disk = SimulatedDisk(5)
    with engine(disk=disk) as db:
        session = session_of(db.database)
        table(session, (1, 0))
        log = db.database.tablespace.log
        told = threading.Event()
        log._files_lock = _WatchedMutex(log._files_lock, told)  # type: ignore[attr-defined]
        reopening = Background()
        begun: list[str] = []

        def watch(op: str, path: str) -> None:
            if op == "allocate" and not begun:
                begun.append(path)
                reopening.start(db.database.reopen)
                assert told.wait(60)
            elif op == "read" and path.endswith("MANIFEST"):
                told.set()

        disk.latency = watch
        log.prepare(10 * 1024 * 1024)
        reopening.join()
        disk.latency = None
        run(session, "INSERT INTO t VALUES (2, 0)")
        session.commit()
        assert keys_of(session) == [1, 2]
        db.reopen()
        assert keys_of(session_of(db.database)) == [1, 2]
