"""Compaction beside the engine: what the maintenance thread does; only the disk notices."""

from collections.abc import Iterator

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.config import Config
from herdpy.engine.database import Database
from herdpy.errors import DiskFullError
from herdpy.limits import l0_runs_max
from tests.fixtures.engines import Engine, engine, rows, run, table
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        yield made


def pages(database: Database):
    (state,) = database.tablespace.state.tables.values()
    return state.pages


def update_in_steps(db: Engine, steps: int, *, per_step: int = 20) -> None:
    session = db.session(autocommit=True)
    for step in range(steps):
        low = step * per_step
        run(session, "UPDATE t SET v = v + 1000 WHERE id BETWEEN ? AND ?", low, low + per_step - 1)
        db.database.run_checkpoint()


def test_no_table_ever_has_more_runs_than_allowed(db: Engine) -> None:
    table(db.session(), *((n, n) for n in range(4000)))
    db.database.run_checkpoint()
    session = db.session(autocommit=True)
    for step in range(12):
        run(session, "UPDATE t SET v = v + 1 WHERE id BETWEEN ? AND ?", step, step + 3)
        db.database.run_checkpoint()
        assert len(pages(db.database).runs) <= l0_runs_max
    expected = rows(session, ALL)
    db.reopen()
    assert rows(db.session(), ALL) == expected


@pytest.mark.parametrize("count", [100, 1200])
def test_compaction_comes_to_an_end_where_few_rows_of_a_dictionary_fill_a_page(
    db: Engine, count: int
) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    text = "x" * 10_000  # the pages are short, because it stands in each of them once
    for low in range(0, 1200, count):
        session.execute_many(
            "INSERT INTO t VALUES (?, ?)", [(number, text) for number in range(low, low + count)]
        )
        db.database.run_checkpoint()
    jobs = 0
    while db.database.run_compaction():
        jobs += 1
        assert jobs < 100
    assert rows(session, "SELECT count(*), min(v) = max(v) FROM t") == [(1200, True)]


def test_a_snapshot_goes_on_reading_the_pages_that_compaction_replaced() -> None:
    with engine(disk=MemoryDisk()) as db:
        table(db.session(), *((n, n) for n in range(100)))
        db.database.run_checkpoint()
        update_in_steps(db, 2)
        cursor = db.session().execute(ALL)
        first = cursor.fetch_many(5)
        found = db.database.tablespace.state.catalog.table("t")
        assert found is not None
        snapshot = db.database.tablespace.snapshot(None)
        before = set(db.disk.list("default/segments"))
        while db.database.run_compaction():
            pass
        assert not before & set(db.disk.list("default/segments"))
        expected = [(n, n + 1000 if n < 40 else n) for n in range(100)]
        assert list(snapshot.source(found).rows()) == expected
        assert [*first, *cursor.rows()] == expected
        assert rows(db.session(), ALL) == expected
        snapshot.close()


def test_a_table_dropped_while_it_is_compacted_stays_dropped() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        table(db.session(), *((n, n) for n in range(100)))
        db.database.run_checkpoint()
        update_in_steps(db, 2)
        session = db.session(autocommit=True)
        seen: list[str] = []

        def on_disk(op: str, path: str) -> None:
            if op == "sync" and "/segments/" in path and not seen:
                seen.append(path)
                run(session, "DROP TABLE t")

        disk.latency = on_disk
        assert db.database.run_compaction()
        assert seen
        disk.latency = None
        assert not db.database.tablespace.state.tables
        db.database.run_checkpoint()
        db.reopen()
        assert not db.database.tablespace.state.tables
        assert not disk.list("default/segments")


def test_a_full_disk_leaves_everything_as_it_was() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        table(db.session(), *((n, n) for n in range(100)))
        db.database.run_checkpoint()
        update_in_steps(db, 2)
        before = pages(db.database)
        expected = rows(db.session(), ALL)
        names = disk.list("default/segments")
        disk.fail("write", 28, path="/segments/")
        with pytest.raises(DiskFullError):
            db.database.run_compaction()
        assert pages(db.database) is before
        assert disk.list("default/segments") == names
        assert db.database.run_compaction()
        assert rows(db.session(), ALL) == expected


def test_the_maintenance_thread_keeps_the_budget_of_compaction() -> None:
    clock = SimulatedClock()
    config = Config(log_file_bytes_first=64 * 1024, compaction_bytes_per_s=64 * 1024)
    with engine(clock=clock, config=config) as db:
        a = db.session()
        for name in ("t", "u"):
            run(a, f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v TEXT)")
            a.execute_many(
                f"INSERT INTO {name} VALUES (?, ?)", [(n, f"{n:0100d}") for n in range(2000)]
            )
        a.commit()
        db.database.run_checkpoint()
        for name in ("t", "u"):
            run(a, f"DELETE FROM {name} WHERE id < 1000")
        a.commit()
        db.database.run_checkpoint()

        def done() -> int:
            return sum(
                all(entry.dead is None for entry in item.pages.entries())
                for item in db.database.tablespace.state.tables.values()
            )

        assert done() == 0
        db.database.run_maintenance_once()
        assert done() == 1
        db.database.run_maintenance_once()
        assert done() == 1  # about 110 KB were written, which is paid off after two seconds
        clock.advance(3.0)
        db.database.run_maintenance_once()
        assert done() == 2


def test_jobs_hold_what_they_take_and_a_compaction_waits_for_it(db: Engine) -> None:
    session, database = db.session(), db.database
    memory, jobs = database.memory, database.memory.jobs
    table(session, *((n, n) for n in range(2000)))
    assert (jobs.bytes_used, jobs.bytes_peak) == (0, 0)
    database.run_checkpoint()
    assert jobs.bytes_peak > 2000 * 100
    run(session, "DELETE FROM t WHERE id < 1000")
    session.commit()
    database.run_checkpoint()
    dead = sum(entry.dead_count for entry in pages(database).entries())
    jobs.bytes_peak = 0
    other = memory.transactions.reserve("another")
    other.hold(database.config.memory_bytes_max)
    database.run_maintenance_once()
    assert sum(entry.dead_count for entry in pages(database).entries()) == dead > 0
    other.close()
    database.run_maintenance_once()
    assert sum(entry.dead_count for entry in pages(database).entries()) == 0
    assert jobs.bytes_peak > 2000 * 100
    assert jobs.bytes_used == 0


def test_the_records_of_a_long_transaction_do_not_wait_in_memory_for_its_end(db: Engine) -> None:
    session, log = db.session(), db.database.tablespace.log
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    session.commit()
    written = [log.written_lsn]
    for number in range(60):
        run(session, "INSERT INTO t VALUES (?, ?)", number, "x" * 100_000)
        if number % 20 == 0:
            db.database.run_maintenance_once()
        if log.written_lsn > written[-1]:
            written.append(log.written_lsn)
    assert len(written) > 2
    session.rollback()


def test_the_row_ids_of_dropped_tables_are_forgotten(db: Engine) -> None:
    session, open_one = db.session(autocommit=True), db.session()
    for _ in range(20):
        run(session, "CREATE TABLE h (v BIGINT)")
        run(session, "INSERT INTO h VALUES (1)")
        run(session, "DROP TABLE h")
    run(session, "CREATE TABLE kept (v BIGINT)")
    run(session, "INSERT INTO kept VALUES (1)")
    run(open_one, "CREATE TABLE made (v BIGINT)")
    run(open_one, "INSERT INTO made VALUES (1)")
    applier = db.database.tablespace.applier
    assert len(applier.reserved) == len(applier.next_row_id) == 2
    for each, name in ((open_one, "made"), (session, "kept")):
        run(each, f"INSERT INTO {name} VALUES (2)")
        assert sorted(rows(each, f"SELECT v FROM {name}")) == [(1,), (2,)]
    open_one.commit()
    db.reopen()
    assert len(db.database.tablespace.applier.reserved) == 2
    session = db.session(autocommit=True)
    for name in ("made", "kept"):
        run(session, f"INSERT INTO {name} VALUES (3)")
        assert sorted(rows(session, f"SELECT v FROM {name}")) == [(1,), (2,), (3,)]


def test_an_idle_log_is_handed_to_the_operating_system() -> None:
    clock = SimulatedClock()
    disk = SimulatedDisk(1)
    db = Engine(clock=clock, disk=disk)
    session = db.session(autocommit=True)
    table(session, (1, 1))
    session.begin("none")
    run(session, "UPDATE t SET v = 2")
    session.commit()
    log = db.database.tablespace.log
    db.database.run_maintenance_once()
    assert log.written_lsn < log.last_lsn
    clock.advance(1.0)
    db.database.run_maintenance_once()
    assert log.written_lsn == log.last_lsn
    killed = Engine(disk=disk.crash(is_power_lost=False))
    assert rows(killed.session(), ALL) == [(1, 2)]
    killed.database.close()


def test_an_idle_log_is_marked_once() -> None:
    clock = SimulatedClock()
    disk = SimulatedDisk(1)
    with engine(clock=clock, disk=disk) as db:
        a = db.session(autocommit=True)
        table(a, (1, 1))
        run(a, "UPDATE t SET v = 2")
        db.database.run_maintenance_once()
        log = db.database.tablespace.log
        appended = disk.step_count
        db.database.run_maintenance_once()  # no time has passed, so it is not idle
        assert disk.step_count == appended
        clock.advance(1.0)
        db.database.run_maintenance_once()
        assert disk.step_count > appended
        marked = disk.step_count
        for _ in range(3):
            clock.advance(1.0)
            db.database.run_maintenance_once()
        assert disk.step_count == marked
        assert log.failure is None
        run(a, "UPDATE t SET v = 3")
        assert rows(a, ALL) == [(1, 3)]


def test_what_the_log_has_grown_by_is_in_a_checkpoint_after_a_while() -> None:
    clock = SimulatedClock()
    config = Config(
        log_file_bytes_first=64 * 1024, checkpoint_interval_s=20.0, checkpoint_log_bytes=64 * 1024
    )
    with engine(clock=clock, config=config) as db:
        database = db.database

        def is_all_in_a_checkpoint() -> bool:
            clock.advance(10.0)
            database.run_maintenance_once()
            listed = database.replica.manifest.state.checkpoint_lsn
            return tuple(listed) == tuple(database.tablespace.state.lsn)

        def grow(count: int) -> None:
            for number in range(count):
                run(a, "UPDATE t SET v = ?", number)

        a = db.session(autocommit=True)
        table(a, (1, 1))
        grow(200)
        assert [is_all_in_a_checkpoint() for _ in range(2)] == [False, True]
        is_all_in_a_checkpoint()
        grow(200)
        # By the age of the last one, whenever the log grew.
        assert is_all_in_a_checkpoint()
        grow(200)
        assert [is_all_in_a_checkpoint() for _ in range(2)] == [False, True]
        ended_s = database.replica.checkpoints.ended_s
        assert [is_all_in_a_checkpoint() for _ in range(3)] == [True, True, True]
        assert database.replica.checkpoints.ended_s == ended_s, "nothing was written since"
        grow(1)
        assert [is_all_in_a_checkpoint() for _ in range(3)] == [False] * 3, "it is next to nothing"
