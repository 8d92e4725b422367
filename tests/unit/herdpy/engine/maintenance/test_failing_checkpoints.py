"""Checkpoints that fail again and again: what waits for them is bounded, and nothing is lost."""

import errno

import pytest

from herdpy.config import Config
from herdpy.engine.state.memtable import TRIMMED, Memtable, Version
from herdpy.errors import MemoryLimitError, OperationalError
from tests.fixtures.engines import Engine, engine, rows, run, table
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

ALL = "SELECT id, v FROM t ORDER BY id"


def failing(disk: SimulatedDisk) -> None:
    disk.fail("open", errno.EIO, path="/segments/", times=10**9)


def fail_once(db: Engine) -> None:
    with pytest.raises(OperationalError) as caught:
        db.database.run_checkpoint()
    assert caught.value.sqlstate == "58030"


def test_a_table_has_a_bounded_number_of_memtables() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        session = db.session(autocommit=True)
        table(session, *((n, 0) for n in range(5)))
        db.database.run_checkpoint()
        failing(disk)
        space = db.database.tablespace
        found = space.state.catalog.table("t")
        assert found is not None
        held = [space.snapshot(None)]
        expected = [rows(session, ALL)]
        for step in range(12):
            run(session, "UPDATE t SET v = ? WHERE id <> ?", step, step % 5)
            run(session, "UPSERT INTO t VALUES (?, ?)", 100 + step // 2, step)
            run(session, "DELETE FROM t WHERE id = ?", 98 + step // 2)
            held.append(space.snapshot(None))
            expected.append(rows(session, ALL))
            fail_once(db)
            assert len(space.state.tables[found.id].frozen) <= 2
            assert rows(session, ALL) == expected[-1]
            vector = held[-1].source(found).arrow([0, 1], [])
            assert vector.num_rows >= len(expected[-1])
        for snapshot, seen in zip(held, expected, strict=True):
            assert list(snapshot.source(found).rows()) == seen
        disk.heal()
        assert db.database.run_checkpoint()
        for snapshot, seen in zip(held, expected, strict=True):
            assert list(snapshot.source(found).rows()) == seen
            snapshot.close()
        assert rows(session, ALL) == expected[-1]
        db.reopen()
        assert rows(db.session(), ALL) == expected[-1]


def versions(memtables: list[Memtable], key: int) -> list[tuple[int, object]]:
    """What the memtables, newest first, know of a key; ends at TRIMMED."""
    found: list[tuple[int, object]] = []
    for memtable in memtables:
        node: Version | None = memtable.chains.get((key,))
        while node is not None:
            found.append((node[0], node[1]))
            if node is TRIMMED:
                return found
            node = node[2]
    return found


def test_a_merged_memtable_reads_like_its_parts() -> None:
    parts: list[Memtable] = []
    position = 0
    for part in range(4):
        memtable = Memtable()
        for key in range(part, 12, part + 1):
            for _ in range(3):
                position += 1
                row = None if position % 7 == 0 else (key, position)
                # With a horizon nothing older than it is kept, and TRIMMED says so.
                horizon = [position] if key % 4 == 3 else None
                memtable.put((key,), row, position, 16, horizon)
        parts.insert(0, memtable)
    merged = Memtable.merged(parts)
    for key in range(12):
        assert versions([merged], key) == versions(parts, key)
    (found,) = merged.spans(None, None, low_open=False, high_open=False)
    assert found == ([(key,) for key in range(12)], 0, 12)
    assert merged.byte_count == sum(part.byte_count for part in parts)
    assert merged.byte_count > merged.superseded_bytes > 0
    merged.trim_all(merged.superseded_keys(), [position])
    assert merged.superseded_bytes == 0
    assert all(len([v for v in versions([merged], k) if v[0] >= 0]) == 1 for k in range(12))


def test_writes_are_refused_when_twice_the_budget_waits() -> None:
    disk = SimulatedDisk(1)
    clock = SimulatedClock()
    config = Config(memory_bytes_max=16 * 2**20, memtable_share=0.05, log_file_bytes_first=2**20)
    with engine(disk=disk, clock=clock, config=config) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        db.database.run_checkpoint()
        failing(disk)
        written = 0

        def insert() -> None:
            nonlocal written
            pairs = [(written + n, f"{n:01000}") for n in range(100)]  # no text is shared
            session.execute_many("INSERT INTO t VALUES (?, ?)", pairs)
            written += 100

        while written < 700:  # below twice the budget
            insert()
        fail_once(db)

        def insert_until_refused() -> None:
            while written < 2500:
                insert()

        with pytest.raises(MemoryLimitError) as caught:
            insert_until_refused()
        assert "disk failed" in caught.value.message
        for text in ("INSERT INTO t VALUES (-1, '')", "DELETE FROM t WHERE id = 1"):
            with pytest.raises(MemoryLimitError):
                run(session, text)
        assert rows(session, "SELECT count(*) FROM t") == [(written,)]
        disk.heal()
        clock.advance(60.0)
        db.database.run_maintenance_once()
        insert()
        assert rows(session, "SELECT count(*) FROM t") == [(written,)]


def test_the_maintenance_thread_waits_longer_after_each_failure() -> None:
    disk = SimulatedDisk(1)
    clock = SimulatedClock()
    config = Config(log_file_bytes_first=64 * 1024, checkpoint_log_bytes=64 * 1024)
    with engine(disk=disk, clock=clock, config=config) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        run(session, "INSERT INTO t VALUES (1, ?)", "x" * 100_000)
        failing(disk)
        failures = 0
        for _ in range(240):  # two minutes
            try:
                db.database.run_maintenance_once()
            except OperationalError:
                failures += 1
            clock.advance(0.5)
        assert 5 <= failures <= 15
        disk.heal()
        clock.advance(20.0)
        db.database.run_maintenance_once()
        assert db.database.replica.checkpoint_error is None
