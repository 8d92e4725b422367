"""A full disk as a state: when it begins, what goes on, how it ends; and the reserve."""

import errno
import gc
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bookie.runtime.os_disk import OsDisk, OsFile
from herdpy.config import Config
from herdpy.engine.state import page_adoption
from herdpy.engine.state.disk_reserve import ReserveFile, reserve_bytes_of
from herdpy.engine.state.page_estimate import checkpoint_bytes
from herdpy.errors import DiskFullError, Retry
from tests.fixtures.engines import Engine, engine, rows, run
from tests.fixtures.small_sizes import small_sizes
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

MIB = 1024 * 1024
RESERVE = "default/reserve"
RESERVE_BYTES = 256 * 1024
# The log has room for much more than the tests write, so that only pages can lack it.
CONFIG = Config(log_file_bytes_first=8 * MIB, disk_reserve_bytes=RESERVE_BYTES)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(3)


@pytest.fixture
def db(disk: SimulatedDisk) -> Iterator[Engine]:
    with engine(disk=disk, config=CONFIG) as made:
        yield made


def held(disk: SimulatedDisk) -> int:
    return disk.size(RESERVE) if disk.exists(RESERVE) else 0


def fill(db: Engine, disk: SimulatedDisk, *, left: int = 0, count: int = 40) -> Any:
    """Have a table with rows in pages and more in memory than fit; return the session."""
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY, v TEXT)")
    for key in range(count):
        run(session, "INSERT INTO t VALUES (?, ?)", key, f"{key:04}" * 500)
    db.database.run_checkpoint()
    run(session, "INSERT INTO u VALUES (1, ?)", "x" * 20_000)
    disk.capacity_bytes = disk.used_bytes + left
    db.database.replica.space.look()
    return session


def insert_all(session: Any) -> int:
    """Insert rows until they are refused; return how many were taken."""
    for count in range(10_000):
        try:
            run(session, "INSERT INTO t VALUES (?, ?)", count, f"{count:04}" * 500)
        except DiskFullError:
            return count
    raise AssertionError("the disk never gets full")


def refused(session: Any) -> DiskFullError:
    with pytest.raises(DiskFullError) as caught:
        run(session, "INSERT INTO u VALUES (2, 'y')")
    return caught.value


@pytest.mark.parametrize(
    ("configured", "total", "expected"),
    [
        (64 * MIB, 1 << 40, 64 * MIB),
        (64 * MIB, 256 * MIB, 16 * MIB),
        (64 * MIB, 64 * MIB, 4 * MIB),
        (64 * MIB, 12 * MIB, 2 * MIB),
        (1 * MIB, 12 * MIB, 1 * MIB),
        (0, 1 << 40, 0),
    ],
)
def test_the_reserve_is_less_on_small_disks(configured: int, total: int, expected: int) -> None:
    assert reserve_bytes_of(configured, total) == expected


def test_the_reserve_is_made_once_and_never_written(db: Engine, disk: SimulatedDisk) -> None:
    assert held(disk) == RESERVE_BYTES
    disk.trace = []
    db.reopen()
    steps = [step for step in disk.trace if step[1] == RESERVE]
    assert steps == [("allocate", RESERVE, RESERVE_BYTES)]  # it may be a copy with holes
    disk.unlink(RESERVE)
    disk.trace = []
    db.reopen()
    assert [kind for kind, path, _ in disk.trace if path == RESERVE] == ["open", "allocate"]


@pytest.mark.parametrize("wanted", [0, 4096, 2 * RESERVE_BYTES])
def test_another_setting_changes_the_reserve(disk: SimulatedDisk, wanted: int) -> None:
    with engine(disk=disk, config=CONFIG):
        pass
    config = Config(log_file_bytes_first=64 * 1024, disk_reserve_bytes=wanted)
    with engine(disk=disk, config=config):
        assert held(disk) == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="the calls of Linux")
def test_a_sparse_copy_of_the_reserve_gets_its_blocks(tmp_path: Path) -> None:
    """What copied a directory may leave holes, which free nothing when they are given up."""
    path = tmp_path / "reserve"
    with path.open("wb") as file:
        file.truncate(MIB)
    assert path.stat().st_blocks == 0
    reserve = ReserveFile(OsDisk(tmp_path), "reserve", MIB)
    reserve.load()
    assert reserve.held_bytes == MIB
    assert not reserve.is_lacking
    assert path.stat().st_blocks * 512 >= MIB


def test_a_copy_of_the_reserve_goes_whose_blocks_find_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(file: OsFile, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    path = tmp_path / "reserve"
    path.write_bytes(bytes(1000))
    monkeypatch.setattr(OsFile, "allocate", no_room)
    reserve = ReserveFile(OsDisk(tmp_path), "reserve", 1000)
    reserve.load()
    assert reserve.held_bytes == 0
    assert reserve.is_lacking
    assert not path.exists()


def test_the_reserve_is_given_up_in_pieces(disk: SimulatedDisk) -> None:
    reserve = ReserveFile(disk, "reserve", 1000)
    reserve.load()
    assert reserve.is_lacking
    assert reserve.fill()
    sizes: list[int] = []
    while reserve.give_up():
        sizes.append(disk.size("reserve") if disk.exists("reserve") else 0)
        assert reserve.is_lacking
    assert sizes == [750, 500, 250, 0]
    disk.capacity_bytes = 999
    assert not reserve.fill()
    assert not disk.exists("reserve")
    disk.capacity_bytes = 1000
    assert reserve.fill()
    assert disk.size("reserve") == reserve.held_bytes == 1000


def test_a_write_is_refused_while_pages_have_no_room(db: Engine, disk: SimulatedDisk) -> None:
    session = fill(db, disk, left=10_000)
    before = rows(session, "SELECT id, length(v) FROM u ORDER BY id")
    error = refused(session)
    assert error.retry is Retry.SAFE
    for part in (":memory:", "10,000 bytes are free", "262,144 of 262,144", "no effect"):
        assert part in error.message
    assert "DELETE" in (error.hint or "")
    assert held(disk) == RESERVE_BYTES  # the write has not used it
    assert rows(session, "SELECT id, length(v) FROM u ORDER BY id") == before
    assert db.database.replica.space.figures().refused == 1
    disk.capacity_bytes = disk.used_bytes + 300_000
    run(session, "INSERT INTO u VALUES (2, 'y')")  # nothing but room was lacking


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE t SET v = 'y' WHERE id = 1",
        "UPSERT INTO t VALUES (1, 'y')",
        "CREATE TABLE w (id BIGINT PRIMARY KEY)",
        "CREATE ROLE r",
    ],
)
def test_what_can_be_refused_is_refused(db: Engine, disk: SimulatedDisk, text: str) -> None:
    session = fill(db, disk)
    with pytest.raises(DiskFullError):
        run(session, text)
    disk.capacity_bytes = None
    run(session, text)


def test_what_frees_space_goes_on(db: Engine, disk: SimulatedDisk) -> None:
    open_one = db.session()
    session = fill(db, disk, left=400_000)
    run(open_one, "INSERT INTO u VALUES (9, 'open')")
    other = db.session()
    run(other, "INSERT INTO u VALUES (10, 'open')")
    disk.capacity_bytes = disk.used_bytes
    db.database.replica.space.look()
    refused(session)
    run(session, "DELETE FROM t WHERE id < 10")
    open_one.commit()
    other.rollback()
    assert db.database.run_checkpoint()
    assert held(disk) < RESERVE_BYTES
    refused(session)  # until the reserve is whole again
    assert rows(session, "SELECT id FROM u ORDER BY id") == [(1,), (9,)]
    assert rows(session, "SELECT count(*) FROM t") == [(30,)]
    run(session, "TRUNCATE TABLE u")
    run(session, "DROP TABLE t")
    assert db.database.run_checkpoint()
    assert held(disk) == RESERVE_BYTES
    run(session, "INSERT INTO u VALUES (2, 'y')")
    db.reopen()
    assert rows(db.session(), "SELECT id FROM u") == [(2,)]


def test_it_ends_by_itself_and_the_log_says_so(
    db: Engine, disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "herdpy")
    session = fill(db, disk)
    space = db.database.replica.space
    refused(session)
    assert db.database.run_checkpoint()  # in the reserve
    refused(session)
    assert space.figures().since_us is not None
    (begun,) = [record.message for record in caplog.records]
    assert "is full" in begun
    assert "53100" in begun
    disk.capacity_bytes = None
    db.database.run_maintenance_once()
    assert not space.is_full
    assert space.figures().since_us is None
    assert held(disk) == RESERVE_BYTES
    ended = caplog.records[-1].message
    assert "has room again" in ended
    assert len(caplog.records) == 2


@pytest.mark.parametrize("beside", [0, 100_000])
def test_room_that_a_step_needs_does_not_fill_the_reserve(
    db: Engine, disk: SimulatedDisk, beside: int
) -> None:
    session = fill(db, disk)
    space = db.database.replica.space
    space.make_room(beside)  # as a checkpoint or compaction does that runs
    assert held(disk) < RESERVE_BYTES
    figures = space.figures()
    missing = RESERVE_BYTES - held(disk)
    disk.capacity_bytes = disk.used_bytes + missing + figures.needed_bytes + beside
    refused(session)
    assert held(disk) < RESERVE_BYTES
    disk.capacity_bytes = None  # there is room for the step, and for all else
    run(session, "INSERT INTO u VALUES (2, 'y')")
    assert held(disk) == RESERVE_BYTES
    space.given_back()


def test_maintenance_frees_what_was_deleted(db: Engine, disk: SimulatedDisk) -> None:
    session = fill(db, disk, count=400)
    run(session, "DELETE FROM t WHERE id % 16 <> 0")
    refused(session)
    used = disk.used_bytes
    for _ in range(5):  # a checkpoint writes bitmaps, a compaction moves what is left
        db.database.run_maintenance_once()
    assert disk.used_bytes < used - 400_000
    run(session, "INSERT INTO u VALUES (2, 'y')")
    assert held(disk) == RESERVE_BYTES
    db.reopen()
    assert rows(db.session(), "SELECT count(*), sum(id) FROM t") == [(25, 4_800)]


def test_a_compaction_does_not_begin_without_room(db: Engine, disk: SimulatedDisk) -> None:
    session = fill(db, disk, count=400)
    run(session, "DELETE FROM t WHERE id % 3 = 0")
    db.database.run_checkpoint()
    disk.trace = []
    assert not db.database.run_compaction()  # two thirds of 800 kB would have to move
    assert [path for kind, path, _ in disk.trace if "/segments/" in path] == []
    disk.capacity_bytes = None
    assert db.database.run_compaction()


def half_deleted(db: Engine, disk: SimulatedDisk, left: int) -> Any:
    """Have pages of which half is garbage, and so many bytes left; return the session."""
    session = fill(db, disk, count=60)
    disk.capacity_bytes = None
    run(session, "DELETE FROM t WHERE id % 2 = 0")
    db.database.run_checkpoint()
    disk.capacity_bytes = disk.used_bytes + left
    db.database.replica.space.look()
    return session


def test_a_compaction_makes_no_disk_full(db: Engine, disk: SimulatedDisk) -> None:
    """What it would take of the reserve is wanted for statements that have room as it is."""
    session = half_deleted(db, disk, 40_000)
    space = db.database.replica.space
    disk.trace = []
    assert not db.database.run_compaction()  # some 70 kB would have to be written
    assert [path for kind, path, _ in disk.trace if path == RESERVE] == []
    assert not space.is_full
    run(session, "INSERT INTO u VALUES (2, 'y')")
    with pytest.raises(DiskFullError):
        space.log_room(30_000)  # a statement needs what is garbage now
    assert db.database.run_compaction()
    space.log_room(30_000)
    assert held(disk) == RESERVE_BYTES


def test_a_compaction_that_waits_for_its_budget_leaves_the_reserve(disk: SimulatedDisk) -> None:
    with engine(disk=disk, config=CONFIG, clock=SimulatedClock()) as db:
        session = half_deleted(db, disk, 1 * MIB)
        assert db.database.run_compaction()  # is paid for by time that does not pass
        run(session, "DELETE FROM t WHERE id % 4 = 1")
        db.database.run_checkpoint()
        run(session, "INSERT INTO u VALUES (2, ?)", "x" * 20_000)
        disk.capacity_bytes = disk.used_bytes
        replica = db.database.replica
        assert replica.space.look()
        disk.trace = []
        for task in replica.tasks(list, list):
            if task.name == "a compaction":
                task.run()
        assert [path for kind, path, _ in disk.trace if path == RESERVE] == []
        assert db.database.run_compaction()


@pytest.mark.parametrize("step", ["run_checkpoint", "run_compaction"])
def test_what_finds_no_room_keeps_no_pages(db: Engine, disk: SimulatedDisk, step: str) -> None:
    """Its frames have pages, whose files take room on the disk until no process maps them."""
    session = half_deleted(db, disk, 10 * MIB)
    run(session, "INSERT INTO u VALUES (2, 'y')")
    disk.fail("write", errno.ENOSPC, path="MANIFEST", times=100)
    gc.collect()
    gc.disable()  # an idle process does not collect, nor one that has closed the database
    try:
        left = error_of(getattr(db.database, step))
        assert left() is None
    finally:
        gc.enable()
        disk.heal()


def test_a_closed_database_keeps_no_pages(disk: SimulatedDisk) -> None:
    """The process may be idle from then on, and another one may want the room."""
    with engine(disk=disk, config=CONFIG) as db:
        session = half_deleted(db, disk, 10 * MIB)
        run(session, "DELETE FROM t WHERE id BETWEEN 0 AND 50 AND id % 4 = 1")
        assert rows(session, "SELECT count(*), sum(id) FROM t WHERE id % 2 = 1") == [(17, 575)]
        (memtable,) = (
            weakref.ref(each.memtable)
            for each in db.database.tablespace.state.tables.values()
            if each.memtable.overlay is not None
        )
        gc.collect()
        gc.disable()
        try:
            del session
            db.close()
            assert memtable() is None
        finally:
            gc.enable()


def error_of(step: Callable[[], object]) -> "weakref.ref[DiskFullError]":
    try:
        step()
    except DiskFullError as error:
        return weakref.ref(error)
    raise AssertionError("there was room")


def test_a_compaction_begins_only_with_room_for_its_edit(disk: SimulatedDisk) -> None:
    """The manifest names every page that is moved, with its first and its last key."""
    config = Config(log_file_bytes_first=8 * MIB, disk_reserve_bytes=0)
    with small_sizes(), engine(disk=disk, config=config) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (k TEXT PRIMARY KEY)")
        run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY, v TEXT)")
        for key in range(320):
            run(session, "INSERT INTO t VALUES (?)", f"{key:04}" * 20)
            run(session, "INSERT INTO u VALUES (?, ?)", key, f"{key:04}" * 110)
        db.database.run_checkpoint()
        run(session, "DROP TABLE u")
        db.database.run_checkpoint()  # most of the segment is garbage now
        for left in range(0, MIB, 500):
            disk.capacity_bytes = disk.used_bytes + left
            if db.database.run_compaction():  # else it has not begun
                break
        else:
            pytest.fail("there is never room enough")
        assert disk.list("default/segments") == ["00000002.segment"]


def test_a_checkpoint_does_not_begin_without_room(db: Engine, disk: SimulatedDisk) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    db.database.run_checkpoint()
    for key in range(60):
        run(session, "INSERT INTO t VALUES (?, ?)", key, f"{key:04}" * 2000)
    disk.capacity_bytes = disk.used_bytes  # another program was faster than all looks
    disk.trace = []
    for _ in range(3):
        with pytest.raises(DiskFullError):
            db.database.run_checkpoint()
        db.database.run_maintenance_once()  # which meets the same, and goes on
    assert [path for kind, path, _ in disk.trace if "/segments/" in path] == []
    assert held(disk) == RESERVE_BYTES  # is of no use, and kept
    run(session, "DELETE FROM t WHERE id < 50")
    assert db.database.run_checkpoint()
    assert rows(session, "SELECT count(*) FROM t") == [(10,)]


def test_the_log_leaves_room_for_the_pages(disk: SimulatedDisk) -> None:
    config = Config(log_file_bytes_first=64 * 1024, disk_reserve_bytes=RESERVE_BYTES)
    with engine(disk=disk, config=config) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        disk.capacity_bytes = disk.used_bytes + MIB
        count = insert_all(session)
        assert count > 150
        assert held(disk) == RESERVE_BYTES
        space = db.database.replica.space.figures()
        assert space.needed_bytes < space.free_bytes + RESERVE_BYTES
        assert db.database.run_checkpoint()
        assert rows(session, "SELECT count(*) FROM t") == [(count,)]


def test_a_log_file_of_what_frees_space_leaves_what_is_lent(disk: SimulatedDisk) -> None:
    config = Config(log_file_bytes_first=64 * 1024, disk_reserve_bytes=RESERVE_BYTES)
    with engine(disk=disk, config=config) as db:
        session = db.session(autocommit=True)
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        for key in range(60):
            run(session, "INSERT INTO t VALUES (?, ?)", key, f"{key:04}" * 250)
        assert len(disk.list("default/log")) == 2  # the second one has 128 KiB, a third has 256
        disk.capacity_bytes = disk.used_bytes + 700_000
        space = db.database.replica.space
        assert space.lend(400_000)
        db.database.tablespace.prepare_log(130_000)
        assert len(disk.list("default/log")) == 3
        assert disk.space()[1] - space.figures().needed_bytes >= 400_000
        assert held(disk) == RESERVE_BYTES
        space.given_back()


def test_a_full_disk_is_closed_and_opened(db: Engine, disk: SimulatedDisk) -> None:
    session = fill(db, disk)
    refused(session)
    for _ in range(3):
        db.reopen()
        session = db.session(autocommit=True)
        assert rows(session, "SELECT count(*) FROM t") == [(40,)]
        assert rows(session, "SELECT id FROM u") == [(1,)]
        assert db.database.replica.space.is_full
        refused(session)
        run(session, "DELETE FROM t WHERE id = -1")
    disk.capacity_bytes = None
    run(session, "INSERT INTO u VALUES (2, 'y')")


def test_without_a_reserve_writes_are_refused_just_so(disk: SimulatedDisk) -> None:
    config = Config(log_file_bytes_first=8 * MIB, disk_reserve_bytes=0)
    with engine(disk=disk, config=config) as db:
        session = fill(db, disk)
        refused(session)
        assert not disk.exists(RESERVE)
        run(session, "TRUNCATE TABLE u")
        disk.capacity_bytes = None
        run(session, "INSERT INTO u VALUES (2, 'y')")


def test_an_edit_without_room_leaves_no_segment(db: Engine, disk: SimulatedDisk) -> None:
    fill(db, disk, left=400_000)
    names = disk.list("default/segments")
    disk.fail("write", errno.ENOSPC, path="MANIFEST", times=100)
    with pytest.raises(DiskFullError):
        db.database.run_checkpoint()
    disk.heal()
    assert disk.list("default/segments") == names
    assert not disk.exists("default/MANIFEST.new")


def test_staged_rows_wait_and_their_commit_does_not(db: Engine, disk: SimulatedDisk) -> None:
    session = fill(db, disk, left=400_000)
    staging = session.staging
    batch = pa.record_batch({"id": [70, 71], "v": ["a", "b"]})
    for job in ("whole", "half"):
        staging.begin("t", "append", job)
    number, _ = staging.begin_stage("whole", "0", "0")
    staging.add(number, 0, batch)
    staging.finish_stage(number)
    disk.capacity_bytes = disk.used_bytes
    db.database.replica.space.look()
    with pytest.raises(DiskFullError):
        staging.begin_stage("half", "0", "0")
    with pytest.raises(DiskFullError):
        staging.begin("t", "append", "new")
    staging.abort("half")
    staging.commit("whole", [number])
    assert rows(session, "SELECT count(*) FROM t") == [(42,)]


KINDS = {
    "numbers": ("BIGINT", lambda n: n * 7919),
    "texts": ("TEXT", lambda n: f"{n:06}" * 40),
    "other letters": ("TEXT", lambda n: f"ü€{n}" * 30),
    "bytes": ("BYTEA", lambda n: n.to_bytes(4, "big") * 100),
    "nulls": ("DOUBLE", lambda n: None if n % 2 else n / 3),
    "wide numbers": ("DECIMAL(38, 0)", lambda n: 10**37 + n),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_is_not_below_what_is_written(
    db: Engine, disk: SimulatedDisk, kind: str
) -> None:
    type_name, value = KINDS[kind]
    session = db.session(autocommit=True)
    run(session, f"CREATE TABLE t (id BIGINT PRIMARY KEY, v {type_name})")
    for step in range(3):
        items = [(n, value(n)) for n in range(step * 400, step * 400 + 600)]
        session.execute_many("UPSERT INTO t VALUES (?, ?)", items)
        run(session, "DELETE FROM t WHERE id % 5 = ?", step)
        estimate = checkpoint_bytes(db.database.tablespace.applier, 0)
        before = set(disk.list("default/segments"))
        assert db.database.run_checkpoint()
        new = set(disk.list("default/segments")) - before
        written = sum(disk.size(f"default/segments/{name}") for name in new)
        assert written <= estimate <= 5 * written + 64 * 1024
        assert checkpoint_bytes(db.database.tablespace.applier, 0) == 0


def listed_and_segments(disk: SimulatedDisk) -> int:
    names = ("MANIFEST", *(f"segments/{name}" for name in disk.list("default/segments")))
    return sum(disk.size(f"default/{name}") for name in names)


@pytest.mark.parametrize("what", ["rows", "a lease", "an adoption", "a stage"])
def test_the_estimate_has_the_keys_of_the_manifest(
    db: Engine, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It names each page with its first and its last key."""
    monkeypatch.setattr(page_adoption, "FEW_ROWS", 0)  # so that commits adopt pages
    session = db.session(autocommit=True)
    names = [f"t{number}" for number in range(16)]
    for name in names:
        run(session, f"CREATE TABLE {name} (id TEXT PRIMARY KEY)")
    key = "k" * 8_000
    if what == "a lease":
        for name in names:
            run(session, f"INSERT INTO {name} VALUES (?)", key)
        db.database.run_checkpoint()
        session.leasing.take(60)
        run(session, "INSERT INTO t0 VALUES ('a')")
    elif what == "rows":
        for name in names:
            run(session, f"INSERT INTO {name} VALUES (?)", key)
    else:
        batch = pa.record_batch({"id": [key]})
        staged: list[tuple[str, int]] = []
        for name in names:
            session.staging.begin(name, "append", name)
            number, _ = session.staging.begin_stage(name, "0", "0")
            session.staging.add(number, 0, batch)
            session.staging.finish_stage(number)
            staged.append((name, number))
        if what == "an adoption":
            db.database.run_checkpoint()
            for name, number in staged:
                session.staging.commit(name, [number])
    applier = db.database.tablespace.applier
    estimates = [checkpoint_bytes(applier, enough) for enough in (0, 1 << 40)]
    before = listed_and_segments(disk)
    assert db.database.run_checkpoint()
    written = listed_and_segments(disk) - before
    assert written > 200_000
    assert written <= min(estimates) <= max(estimates) <= 5 * written


def test_an_open_transaction_counts(db: Engine) -> None:
    session = db.session()
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    session.commit()
    db.database.run_checkpoint()
    session.execute_many("INSERT INTO t VALUES (?, ?)", [(n, f"{n:04}" * 250) for n in range(200)])
    assert checkpoint_bytes(db.database.tablespace.applier, 0) > 40_000
    session.rollback()
    assert checkpoint_bytes(db.database.tablespace.applier, 0) == 0
