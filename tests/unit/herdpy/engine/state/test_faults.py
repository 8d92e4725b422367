"""A failing disk: full, unsynced, read-only; and what is said of it."""

import errno
from collections.abc import Iterator

import pytest

from herdpy.config import Config
from herdpy.engine.state.locks import Mode
from herdpy.errors import (
    DiskFullError,
    Error,
    LogFailedError,
    OperationalError,
    Retry,
    SerializationError,
)
from herdpy.model.durability import Durability
from tests.fixtures.engines import Engine, engine, rows, run, table
from tests.sim.disk import SimulatedDisk

ALL = "SELECT id, v FROM t ORDER BY id"
SMALL = Config(log_file_bytes_first=64 * 1024, log_file_bytes_max=64 * 1024)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(3)


@pytest.fixture
def db(disk: SimulatedDisk) -> Iterator[Engine]:
    with engine(disk=disk, config=SMALL) as made:
        yield made


def used(disk: SimulatedDisk) -> int:
    return sum(len(content) for content in disk.contents().values())


def test_a_full_disk_fails_the_statement_and_nothing_else(db: Engine, disk: SimulatedDisk) -> None:
    a = db.session(autocommit=True)
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    disk.capacity_bytes = used(disk) + 10_000
    keys: list[int] = []

    def fill() -> None:
        for key in range(10_000):
            run(a, "INSERT INTO t VALUES (?, ?)", key, f"{key:04}" * 250)
            keys.append(key)

    with pytest.raises(DiskFullError) as caught:
        fill()
    acknowledged = len(keys)
    assert caught.value.sqlstate == "53100"
    assert caught.value.retry is Retry.SAFE
    assert acknowledged > 10
    assert db.locks == {}
    count = "SELECT count(*) FROM t"
    assert rows(a, count) == [(acknowledged,)]
    with pytest.raises(DiskFullError):
        run(a, "INSERT INTO t VALUES (-1, ?)", "x" * 1000)
    assert db.database.run_checkpoint(), "room is kept for it"
    with pytest.raises(DiskFullError):  # the room that is left is for what frees some
        run(a, "INSERT INTO t VALUES (-1, ?)", "x" * 1000)
    assert rows(a, count) == [(acknowledged,)]
    disk.capacity_bytes = None
    run(a, "INSERT INTO t VALUES (-1, ?)", "x" * 1000)
    db.database.run_checkpoint()
    assert rows(a, count) == [(acknowledged + 1,)]
    db.reopen()
    assert rows(db.session(), count) == [(acknowledged + 1,)]


def test_a_transaction_survives_a_full_disk(db: Engine, disk: SimulatedDisk) -> None:
    a = db.session()
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    a.commit()
    disk.capacity_bytes = used(disk)
    keys: list[int] = []

    def fill() -> None:
        for key in range(10_000):
            run(a, "INSERT INTO t VALUES (?, ?)", key, "x" * 1000)
            keys.append(key)

    with pytest.raises(DiskFullError):
        fill()
    count = len(keys)
    assert a.in_transaction
    try:
        a.commit()
    except DiskFullError:
        disk.capacity_bytes = None
        a.commit()
    assert rows(a, "SELECT count(*) FROM t") == [(count,)]


@pytest.mark.parametrize("kind", ["sync", "write"])
def test_a_failing_log_stops_the_database_until_it_is_opened_again(
    db: Engine, disk: SimulatedDisk, kind: str
) -> None:
    a, b = db.session(), db.session()
    table(a, (1, 10))
    run(b, "INSERT INTO t VALUES (9, 90)")
    run(a, "INSERT INTO t VALUES (2, 20)")
    disk.fail(kind, errno.EIO, path="log/")
    with pytest.raises(LogFailedError) as caught:
        a.commit()
    assert caught.value.sqlstate == "08007"
    assert caught.value.retry is Retry.UNKNOWN
    assert db.locks.keys() == {(1,), (1, (9,))}  # b's
    for session, text in [
        (a, "INSERT INTO t VALUES (3, 30)"),
        (a, ALL),
        (a, "SELECT v FROM t WHERE id = 1"),
        (b, "UPDATE t SET v = 0"),
        (b, ALL),
        (b, "CREATE TABLE u (id BIGINT PRIMARY KEY)"),
        (db.session(autocommit=True), "INSERT INTO t VALUES (4, 40)"),
    ]:
        with pytest.raises(Error, match="the database stopped") as later:
            session.execute(text, ())
        assert later.value.sqlstate == "58030"
        assert later.value.retry is Retry.NEVER
        assert later.value.hint
    with pytest.raises(Error, match="the database stopped"):
        b.commit()
    a.rollback()
    b.rollback()
    db.reopen()
    found = rows(db.session(), ALL)
    assert found in ([(1, 10)], [(1, 10), (2, 20)])
    run(db.session(autocommit=True), "INSERT INTO t VALUES (3, 30)")


def test_a_failing_manifest_is_not_written_again(db: Engine, disk: SimulatedDisk) -> None:
    a = db.session(autocommit=True)
    table(a, (1, 10))
    disk.fail("sync", errno.EIO, path="MANIFEST")
    with pytest.raises(OperationalError):
        db.database.run_checkpoint()
    with pytest.raises(OperationalError, match="manifest"):
        db.database.run_checkpoint()
    run(a, "INSERT INTO t VALUES (2, 20)")  # the log is well
    db.reopen()
    assert rows(db.session(), ALL) == [(1, 10), (2, 20)]


@pytest.mark.parametrize("kind", ["write", "sync", "sync_directory", "open", "map"])
def test_a_checkpoint_that_fails_is_repeated(db: Engine, disk: SimulatedDisk, kind: str) -> None:
    a = db.session(autocommit=True)
    table(a, (1, 10), (2, 20))
    db.database.run_checkpoint()
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    disk.fail(kind, errno.EIO, path="segments")
    with pytest.raises(OperationalError):
        db.database.run_checkpoint()
    disk.heal()
    run(a, "UPDATE t SET v = 21 WHERE id = 2")
    assert rows(a, ALL) == [(1, 11), (2, 21)]
    db.database.run_checkpoint()
    assert rows(a, ALL) == [(1, 11), (2, 21)]
    db.reopen()
    assert rows(db.session(), ALL) == [(1, 11), (2, 21)]


@pytest.mark.parametrize("kind", ["open", "write", "sync", "make_directory", "rename"])
def test_a_directory_that_cannot_be_written_is_refused_and_left_alone(kind: str) -> None:
    disk = SimulatedDisk(1)
    disk.fail(kind, errno.EROFS, times=100)
    with pytest.raises(OperationalError) as caught:
        Engine(disk=disk)
    assert caught.value.sqlstate == "25006"
    assert disk.open_paths == []
    disk.heal()
    with engine(disk=disk) as db:
        table(db.session(), (1, 10))


def test_a_read_only_disk_refuses_to_open_and_changes_nothing(disk: SimulatedDisk) -> None:
    with engine(disk=disk) as db:
        table(db.session(), (1, 10))
    before = disk.contents()
    for kind in ("open", "write", "sync", "truncate", "rename", "unlink"):
        disk.fail(kind, errno.EROFS, times=100)
    with pytest.raises(OperationalError) as caught:
        Engine(disk=disk)
    assert caught.value.sqlstate == "25006"
    assert disk.contents() == before


def test_a_torn_tail_is_cut(db: Engine, disk: SimulatedDisk) -> None:
    a = db.session(autocommit=True)
    table(a, (1, 10))
    after = disk.crash(5)
    (path,) = [p for p in after.contents() if "/log/" in p]
    content = after.contents()[path]
    end = len(content.rstrip(b"\0"))
    after.open(path).write_at(end + 40, b"half a frame of a commit no client was told of")
    with engine(disk=after, config=SMALL) as db2:
        session = db2.session(autocommit=True)
        assert rows(session, ALL) == [(1, 10)]
        run(session, "INSERT INTO t VALUES (2, 20)")
        db2.reopen()
        assert rows(db2.session(), ALL) == [(1, 10), (2, 20)]
    with pytest.raises(LogFailedError):  # its disk is gone
        db.database.close()


def test_a_waiter_for_a_lock_is_told_that_the_log_failed(db: Engine) -> None:
    a, b = db.session(autocommit=True), db.session()
    table(a, (1, 10))
    a.execute("BEGIN")
    run(a, "UPDATE t SET v = 11 WHERE id = 1")
    tablespace = db.database.tablespace
    run(b, "INSERT INTO t VALUES (2, 20)")
    waiting = tablespace.open_transactions()[-1]
    key = (tablespace.state.catalog.table("t").id, (1,))  # type: ignore[union-attr]
    with tablespace.monitor:
        wait = tablespace.locks.acquire(waiting, key, Mode.EXCLUSIVE)
        assert wait is not None
        assert not wait.is_done
    tablespace.stop(LogFailedError("the disk is gone"))
    assert wait.is_done, "nothing else would wake it"
    with pytest.raises(Error, match="the database stopped"):
        run(b, "UPDATE t SET v = 12 WHERE id = 1")


def test_transaction_memory_is_limited() -> None:
    config = Config(log_file_bytes_first=64 * 1024, transaction_memory_bytes=50_000)
    with engine(config=config) as db:
        a = db.session()
        table(a, (1, 10))
        run(a, "INSERT INTO t VALUES (2, 20)")
        many = [(i, i) for i in range(10, 1000)]
        a.execute_many("INSERT INTO t VALUES (?, ?)", many)
        transaction = a.transaction
        assert transaction is not None
        assert transaction.has_spilled
        assert transaction.byte_count == 0
        a.commit()
        assert rows(a, ALL) == [(1, 10), (2, 20), *many]


def test_an_engine_that_breaks_stops_and_recovers(
    db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = db.session()
    table(a, (1, 10))
    run(a, "INSERT INTO t VALUES (2, 20)")
    monkeypatch.setattr("herdpy.engine.state.applier.Applier.apply", None)
    with pytest.raises(TypeError):
        a.commit()
    monkeypatch.undo()
    with pytest.raises(Error, match="the database stopped"):
        rows(db.session(), ALL)
    db.reopen()
    assert rows(db.session(), ALL) in ([(1, 10), (2, 20)], [(1, 10)])


def test_a_transaction_behind_a_commit_whose_sync_fails_never_commits(
    db: Engine, disk: SimulatedDisk
) -> None:
    """Its rows wait in the queue behind a COMMIT when the log stops: its own must not succeed."""
    a, b = db.session(), db.session()
    run(a, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    a.commit()
    run(b, "INSERT INTO t VALUES (1, 'b')")
    tablespace = db.database.tablespace
    (transaction,) = tablespace.open_transactions()
    outcome = tablespace.commit(transaction)
    run(a, "INSERT INTO t VALUES (2, 'a')")
    disk.fail("sync", errno.EIO)
    assert tablespace.syncer is not None
    tablespace.syncer.request(Durability.SYNC)
    with pytest.raises(LogFailedError) as unknown:
        outcome.result()
    assert unknown.value.retry is Retry.UNKNOWN
    with pytest.raises(SerializationError, match="before its COMMIT was in it") as caught:
        a.commit()
    assert caught.value.retry is Retry.SAFE
    disk.heal()
    db.reopen()
    assert (2, "a") not in rows(db.session(), ALL)
