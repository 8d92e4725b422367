"""Snapshot leases in the engine: over restarts and checkpoints, in memory, as pages, to the end."""

import errno
import gc
import weakref
from typing import Any

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_rng import OsRng
from herdpy.config import Config
from herdpy.engine.maintenance.doctor import examine
from herdpy.engine.maintenance.restore import restore, verify_backup
from herdpy.engine.session.session import Session
from herdpy.engine.state.memtable import Memtable
from herdpy.errors import OperationalError, SnapshotTooOldError
from herdpy.limits import leases_crowded_max, leases_max, leases_of_user_max
from herdpy.model.settings import Settings
from tests.fixtures.digest import lease_rows_of
from tests.fixtures.engines import Engine, engine, rows, run, table
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk


def kept(db: Engine, lease: str) -> list[tuple[str, Any]]:
    space = db.database.tablespace
    found = space.applier.leases.find(lease)
    assert found is not None
    return [(each.name, row[:2]) for each, row in lease_rows_of(space, found)]


def is_pages(db: Engine, lease: str) -> bool:
    found = db.database.tablespace.applier.leases.find(lease)
    return found is not None and found.is_pages


def segments(db: Engine) -> set[str]:
    return set(db.disk.list("default/segments"))


def change_all(session: Session) -> None:
    run(session, "UPDATE t SET v = v + 1000 WHERE id < 5")
    run(session, "DELETE FROM t WHERE id >= 8")
    run(session, "INSERT INTO t VALUES (77, 77)")


@pytest.mark.parametrize("before", [False, True], ids=["rows in memory", "rows in pages"])
@pytest.mark.parametrize("steps", ["", "C", "CC", "CR", "RC", "RRCCR", "MCM", "CMRM"])
def test_a_lease_sees_the_same_rows_whatever_happens(before: bool, steps: str) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        run(session, "CREATE TABLE heap (x BIGINT)")
        run(session, "INSERT INTO heap VALUES (5)")
        if before:
            db.database.run_checkpoint()
            run(session, "UPDATE t SET v = 50 WHERE id = 5")
        lease = session.leasing.take(60).id
        expected = kept(db, lease)
        assert len(expected) == 11
        change_all(session)
        run(session, "DROP TABLE heap")
        for step in (*steps, "R"):
            if step == "C":
                db.database.run_checkpoint()
                assert is_pages(db, lease)
            elif step == "M":
                for n in range(6):
                    run(session, "UPDATE t SET v = ? WHERE id = 1", n)
                    db.database.run_checkpoint()
                while db.database.run_compaction():
                    pass
            else:
                db.reopen()
                session = db.session(autocommit=True)
            assert kept(db, lease) == expected
            run(session, "UPSERT INTO t VALUES (3, 33)")
        with pytest.raises(SnapshotTooOldError):
            session.leasing.use("other")
        assert session.leasing.end(lease)


def test_every_lease_has_its_own_rows() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, (0, 0))
        leases: list[str] = []
        for n in range(1, 7):
            leases.append(session.leasing.take(60).id)
            run(session, "UPSERT INTO t VALUES (?, ?)", n % 3, n)
            if n == 4:
                db.database.run_checkpoint()
        expected = [kept(db, lease) for lease in leases]
        assert len({repr(each) for each in expected}) == 6
        session.leasing.end(leases[1])
        del leases[1], expected[1]
        db.database.run_checkpoint()
        assert [kept(db, lease) for lease in leases] == expected
        db.reopen()
        assert [kept(db, lease) for lease in leases] == expected
        assert sorted(db.database.replica.manifest.state.pins) == sorted(leases)


def test_what_did_not_change_is_not_written_twice() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(100)))
        first = session.leasing.take(60).id
        second = session.leasing.take(60).id
        db.database.run_checkpoint()
        assert len(segments(db)) == 1
        pins = db.database.replica.manifest.state.pins
        assert pins[first] == pins[second]
        third = session.leasing.take(60).id
        run(session, "UPDATE t SET v = 0 WHERE id = 1")
        db.database.run_checkpoint()
        assert db.database.replica.manifest.state.pins[third] == pins[first]


def test_pages_of_a_lease_go_when_it_has_ended() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(100)))
        lease = session.leasing.take(60)
        db.database.run_checkpoint()
        (old,) = segments(db)
        run(session, "UPDATE t SET v = v + 1")
        db.database.run_checkpoint()
        while db.database.run_compaction():
            pass
        assert old in segments(db)
        reader = session.leasing.read_partition("t", None, None, lease=lease.id)
        session.leasing.end(lease.id)
        db.database.run_maintenance_once()
        assert old not in segments(db)
        assert not db.database.replica.manifest.state.pins
        # Who reads already reads on.
        assert sorted(reader.rows()) == [(n, n) for n in range(100)]


def test_pages_of_a_dropped_table_go_with_the_lease() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(100)))
        lease = session.leasing.take(60).id
        run(session, "DROP TABLE t")
        db.database.run_checkpoint()
        assert len(kept(db, lease)) == 100
        assert len(segments(db)) == 1
        session.leasing.end(lease)
        db.database.run_maintenance_once()
        assert not segments(db)


def test_memory_goes_with_the_checkpoint() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(100)))
        space = db.database.tablespace
        (item,) = space.state.tables.values()
        memtable: weakref.ref[Memtable] = weakref.ref(item.memtable)
        del item
        lease = session.leasing.take(60).id
        run(session, "UPDATE t SET v = 0")
        assert space.version_bytes() > 0
        db.database.run_checkpoint()
        run(session, "UPDATE t SET v = 1")
        gc.collect()
        assert memtable() is None
        assert space.version_bytes() == 0
        assert [row for _, row in kept(db, lease)] == [(n, n) for n in range(100)]


def test_a_lease_is_never_given_up_for_memory() -> None:
    with engine(config=Config(memory_bytes_max=64 * 1024 * 1024)) as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(100)))
        lease = session.leasing.take(60).id
        space = db.database.tablespace
        reader, other = space.snapshot(None), None
        run(session, "UPDATE t SET v = 0")
        other = space.snapshot(None)
        run(session, "UPDATE t SET v = 1")
        space.limit_versions(0)
        with pytest.raises(SnapshotTooOldError):
            other.check()
        reader.check()  # it reads what the lease keeps
        assert [row for _, row in kept(db, lease)] == [(n, n) for n in range(100)]
        reader.close()
        other.close()


def test_it_ends_when_nobody_has_used_it_for_its_seconds() -> None:
    clock = SimulatedClock()
    with engine(clock=clock) as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        lease = session.leasing.take(10).id
        clock.advance(9)
        db.database.run_maintenance_once()
        session.leasing.use(lease)
        clock.advance(9)
        db.database.run_maintenance_once()
        result = session.leasing.read_partition("t", None, None, lease=lease)
        clock.advance(100)
        db.database.run_maintenance_once()  # a result is open: it is being used
        assert list(result.rows()) == [(1, 1)]
        result.close()
        clock.advance(9)
        db.database.run_maintenance_once()
        db.reopen()  # its time begins anew
        session = db.session(autocommit=True)
        clock.advance(9)
        db.database.run_maintenance_once()
        session.leasing.use(lease)
        clock.advance(10)
        db.database.run_maintenance_once()
        with pytest.raises(SnapshotTooOldError):
            session.leasing.use(lease)
        # Also where nothing else is written: what it kept can go.
        assert rows(session, "SELECT lease FROM sysleases") == []
        db.reopen()
        with pytest.raises(SnapshotTooOldError):
            db.session(autocommit=True).leasing.use(lease)


def test_there_are_not_more_than_so_many() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        leases = [session.leasing.take(60).id for _ in range(leases_max)]
        with pytest.raises(OperationalError) as caught:
            session.leasing.take(60)
        assert caught.value.sqlstate == "53400"
        found = rows(session, "SELECT count(*), min(seconds), max(user_name) FROM sysleases")
        assert found == [(leases_max, 60.0, None)]
        session.leasing.end(leases[0])
        session.leasing.take(60)


def test_no_user_takes_them_from_all_others() -> None:
    with engine() as db:
        root = db.session(autocommit=True)
        run(root, "CREATE USER ann")
        run(root, "CREATE USER bob")
        run(root, "GRANT SELECT ON TABLESPACE default TO PUBLIC")
        settings = Settings()
        ann = db.database.session(settings, autocommit=True, user="ann")
        leases = [ann.leasing.take(60).id for _ in range(leases_of_user_max)]
        with pytest.raises(OperationalError) as caught:
            ann.leasing.take(60)
        assert caught.value.sqlstate == "53400"
        bob = db.database.session(settings, autocommit=True, user="bob")
        of_bob = [bob.leasing.take(60).id for _ in range(leases_crowded_max)]
        with pytest.raises(OperationalError) as caught:
            bob.leasing.take(60)  # what is left is for those who have hardly any
        assert "4 of them user 'bob'" in str(caught.value)
        root.leasing.take(60)
        for lease in (leases.pop(), leases.pop(), *of_bob):
            root.leasing.end(lease)
        ann.leasing.take(60)


def test_a_lease_is_given_again_while_nothing_is_committed() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        first = session.leasing.take(60).id
        other = session.leasing.take(600).id
        assert other != first
        assert session.leasing.take(60, first).id == first
        assert session.leasing.take(60, other).id == other  # it lives longer, which does no harm
        assert session.leasing.take(90, first).id != first
        assert db.session(autocommit=True).leasing.take(60, first).id == first
        db.database.run_checkpoint()
        assert session.leasing.take(60, first).id == first
        run(session, "UPDATE t SET v = 2")
        newest = session.leasing.take(60, first).id
        assert newest != first
        session.leasing.end(newest)
        assert session.leasing.take(60, newest).id != newest
        db.reopen()
        again = db.session(autocommit=True)
        assert again.leasing.take(60, first).id != first  # of before: not known any more


def test_a_lease_of_another_user_is_not_given() -> None:
    with engine() as db:
        root = db.session(autocommit=True)
        run(root, "CREATE USER ann")
        run(root, "GRANT SELECT ON TABLESPACE default TO ann")
        lease = root.leasing.take(60).id
        ann = db.database.session(Settings(), autocommit=True, user="ann")
        assert ann.leasing.take(60, lease).id != lease


def test_a_checkpoint_that_fails_keeps_them() -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        lease = session.leasing.take(60).id
        expected = kept(db, lease)
        for times in range(4):
            change_all(session)
            run(session, "DELETE FROM t WHERE id = 77")
            disk.fail("open", errno.EIO, path="/segments/", times=10**9)
            with pytest.raises(OperationalError):
                db.database.run_checkpoint()
            disk.heal()
            assert kept(db, lease) == expected
            if times == 1:
                db.reopen()
                session = db.session(autocommit=True)
        db.database.run_checkpoint()
        assert is_pages(db, lease)
        db.reopen()
        assert kept(db, lease) == expected


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize(
    ("operation", "after"), [("open", 1), ("write", 1), ("sync", 1), ("sync_directory", 0)]
)
def test_a_checkpoint_that_fails_half_way(error: int, operation: str, after: int) -> None:
    disk = SimulatedDisk(1)
    with engine(disk=disk) as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        lease = session.leasing.take(60).id
        expected = kept(db, lease)
        change_all(session)
        # For good: a checkpoint tries again with the room that is kept for it.
        disk.fail(operation, error, path="default/segments", after=after, times=10**9)
        with pytest.raises(OperationalError):
            db.database.run_checkpoint()
        disk.heal()
        assert not segments(db), "a full disk stays full"
        assert kept(db, lease) == expected
        db.database.run_checkpoint()
        assert is_pages(db, lease)
        db.reopen()
        assert kept(db, lease) == expected


def test_a_lease_begun_while_a_checkpoint_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        leases: list[str] = []
        expected: list[Any] = []
        append = db.database.replica.manifest.append

        def between(edit: Any) -> Any:
            change_all(session)
            leases.append(session.leasing.take(60).id)
            expected.append(kept(db, leases[-1]))
            run(session, "DELETE FROM t WHERE id = 77")
            return append(edit)

        monkeypatch.setattr(db.database.replica.manifest, "append", between)
        for _ in range(3):
            db.database.run_checkpoint()
            assert [kept(db, lease) for lease in leases] == expected
        monkeypatch.undo()
        while db.database.run_compaction():
            pass
        assert [kept(db, lease) for lease in leases] == expected
        db.database.run_checkpoint()
        db.reopen()
        assert [kept(db, lease) for lease in leases] == expected


def test_a_backup_is_without_leases() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        first = session.leasing.take(60).id
        db.database.run_checkpoint()
        run(session, "UPDATE t SET v = 0")
        session.leasing.take(60)
        db.database.run_checkpoint()
        while db.database.run_compaction():
            pass
        backup = db.database.backup()
        data = b"".join(backup.pieces())
        backup.close()
        content = verify_backup(memoryview(data), "a backup")
        assert set(content.segments) < set(db.database.replica.manifest.state.segments)
        disk = MemoryDisk()
        restore(content, disk, OsRng(), "a copy", is_replacing=False)
        with engine(disk=disk) as copy:
            other = copy.session(autocommit=True)
            assert rows(other, "SELECT DISTINCT v FROM t") == [(0,)]
            assert rows(other, "SELECT count(*) FROM sysleases") == [(0,)]
            with pytest.raises(SnapshotTooOldError):
                other.leasing.use(first)
        assert [row for _, row in kept(db, first)] == [(n, n) for n in range(10)]


def test_the_doctor_reads_what_only_a_lease_needs() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(100)))
        session.leasing.take(60)
        db.database.run_checkpoint()
        (old,) = segments(db)
        run(session, "DROP TABLE t")
        session.leasing.take(60)
        db.database.run_checkpoint()
    report = examine(db.disk, "a database")
    assert (report.damages, report.page_count, report.row_count) == ([], 1, 0)
    path = f"default/segments/{old}"
    file = db.disk.open(path)
    size = db.disk.size(path)
    file.write_at(size // 2, bytes([db.disk.read(path)[size // 2] ^ 1]))
    file.close()
    (damage,) = examine(db.disk, "a database").damages
    assert old in damage


def test_a_table_that_is_gone_is_read_at_a_lease() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(10)))
        lease = session.leasing.take(60).id
        run(session, "TRUNCATE t")
        run(session, "INSERT INTO t VALUES (1, 11)")
        for _ in range(3):
            (part,) = session.leasing.partitions("t", 1, lease)
            result = session.leasing.read_partition("t", *part[:2], lease=lease)
            assert sorted(result.rows()) == [(n, n) for n in range(10)]
            run(session, "BEGIN")
            run(session, f"SET TRANSACTION SNAPSHOT '{lease}'")
            assert rows(session, "SELECT count(*) FROM t") == [(10,)]
            assert rows(session, "SELECT v FROM t WHERE id = ?", 7) == [(7,)]
            run(session, "COMMIT")
            assert rows(session, "SELECT v FROM t WHERE id = ?", 1) == [(11,)]
            db.database.run_checkpoint()
            db.reopen()
            session = db.session(autocommit=True)


def test_statements_are_planned_with_the_tables_of_then() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, (1, 1))
        lease = session.leasing.take(60).id
        run(session, "DROP TABLE t")
        run(session, "CREATE TABLE t (id TEXT PRIMARY KEY)")
        run(session, "INSERT INTO t VALUES ('new')")
        for _ in range(2):
            for _ in range(3):  # also by plans that are kept
                assert rows(session, "SELECT * FROM t") == [("new",)]
                run(session, "BEGIN")
                run(session, f"SET TRANSACTION SNAPSHOT '{lease}'")
                assert rows(session, "SELECT * FROM t") == [(1, 1)]
                assert rows(session, "SELECT id FROM t WHERE id = ?", 1) == [(1,)]
                run(session, "COMMIT")
            db.reopen()
            session = db.session(autocommit=True)


def test_a_compaction_before_its_pages_are_written() -> None:
    with engine() as db:
        session = db.session(autocommit=True)
        table(session, *((n, n) for n in range(50)))
        for n in range(4):
            db.database.run_checkpoint()
            run(session, "UPDATE t SET v = v + 1 WHERE id % 4 = ?", n)
        lease = session.leasing.take(60).id
        expected = kept(db, lease)
        old = segments(db)
        assert db.database.run_compaction()
        assert old - segments(db), "no file has gone, so nothing is tried here"
        assert kept(db, lease) == expected
        run(session, "UPDATE t SET v = 0")
        db.database.run_checkpoint()
        assert is_pages(db, lease)
        db.reopen()
        assert kept(db, lease) == expected
