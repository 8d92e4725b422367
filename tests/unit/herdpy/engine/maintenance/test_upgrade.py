"""FORMAT 1 is read as it is, and becomes FORMAT 2 at the next checkpoint, whatever step fails."""

import errno
from typing import Any

import pytest

from bookie.runtime.interfaces import Disk
from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.maintenance.directory import FORMAT, MANIFEST
from herdpy.engine.maintenance.doctor import examine
from herdpy.engine.session.session import Session
from herdpy.errors import CorruptionError, Error
from herdpy.storage.manifest import Manifest
from tests.fixtures.access import run, session_of
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Engine
from tests.fixtures.format_1 import ROW_COUNT, SUM_OF_IDS, files_of, put_on
from tests.sim.disk import SimulatedCrash, SimulatedDisk

ENDINGS = ("killed", "clean")
ROWS = [(ROW_COUNT, SUM_OF_IDS)]
WHAT = "SELECT count(*), sum(id) FROM t WHERE id < 1000"


def left(ending: str, disk: Any = None) -> Any:
    disk = MemoryDisk() if disk is None else disk
    put_on(disk, ending)
    return disk


def formats(disk: Disk) -> tuple[int, int]:
    """Return the numbers that FORMAT and the manifest's header say."""
    return int(disk.read(FORMAT).split()[1]), disk.read(MANIFEST)[8]


def check(root: Session, *, is_written: bool = False) -> None:
    assert run(root, WHAT) == ROWS
    assert run(root, "SELECT id FROM t WHERE id IN (5, 25, 900, 901)") == [(5,)]
    assert run(root, "SELECT v FROM t WHERE id = 5") == [("changed",)]
    users = run(root, "SELECT user_name FROM sysusers ORDER BY 1")
    assert users == [("ann",), ("bob",), ("eve",), ("root",)]
    assert run(root, "SELECT count(*) FROM t WHERE id >= 1000") == [(int(is_written),)]


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_is_read_as_it_is_and_upgraded_by_the_next_checkpoint(ending: str) -> None:
    disk = left(ending)
    assert examine(disk, "x").damages == []
    engine = Engine(disk=disk)
    root = session_of(engine)
    check(root)
    run(root, "INSERT INTO t VALUES (1000, 'new')")
    assert formats(disk) == (1, 1)
    assert engine.database.replica.manifest.state.log_ids == {}
    engine.database.run_checkpoint()
    assert formats(disk) == (2, 2)
    run(root, "UPDATE t SET v = 'x' WHERE id = 1000")
    assert examine(disk, "x").damages == []
    engine.reopen()
    check(session_of(engine), is_written=True)
    state = engine.database.replica.manifest.state
    assert state.segments.keys() > state.segment_ids.keys() > set()  # the old ones stay as they are
    assert len(state.identity.uuid) == 16
    assert set(state.log_ids) <= {number for number, _ in state.log_files}
    engine.database.close()
    assert examine(disk, "x").damages == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_opening_and_closing_alone_leaves_format_1(ending: str) -> None:
    disk = left(ending)
    engine = Engine(disk=disk)
    check(session_of(engine))
    engine.database.close()
    assert formats(disk) == (1, 1)


def test_lease_and_staging_go_on() -> None:
    engine = Engine(disk=left("killed"))
    for _ in range(2):
        ann, bob = (session_of(engine, user) for user in ("ann", "bob"))
        (lease,) = engine.database.tablespace.applier.leases
        assert ann.leasing.use(lease.id).id == lease.id
        with pytest.raises(Error) as caught:
            bob.leasing.use(lease.id)
        assert caught.value.sqlstate == "42501"
        with pytest.raises(Error) as caught:
            bob.staging.abort("job of ann")
        assert caught.value.sqlstate == "42501"
        engine.database.run_checkpoint()
        engine.reopen()
    assert session_of(engine, "ann").staging.abort("job of ann") is None
    root = session_of(engine)
    root.staging.commit("job", [2])
    assert run(root, "SELECT count(*) FROM t WHERE v = 'staged'") == [(2,)]
    engine.database.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_crash_at_every_step(ending: str, *, is_power_lost: bool) -> None:
    step, seen = 0, set()
    while True:
        step += 1
        disk = left(ending, SimulatedDisk(step))
        before = disk.step_count
        disk.crash_at = before + step
        try:
            engine = Engine(disk=disk)
            run(session_of(engine), "INSERT INTO t VALUES (1000, 'new')")
            engine.database.run_checkpoint()
            run(session_of(engine), "UPDATE t SET v = 'x' WHERE id = 1000")
            engine.database.close()
        except SimulatedCrash:
            pass
        except Error as error:
            assert isinstance(error.__cause__, SimulatedCrash)  # noqa: PT017
        else:
            break
        disk = disk.restart(is_power_lost=is_power_lost)
        said, manifest = formats(disk)
        seen.add((said, manifest))
        if said == 1:  # an older herdpy reads all that is there
            assert manifest == 1
            assert not Manifest.read(disk, MANIFEST).log_ids
        assert examine(disk, "x").damages == []
        engine = Engine(disk=disk)
        root = session_of(engine)
        is_written = run(root, "SELECT count(*) FROM t WHERE id = 1000") == [(1,)]
        check(root, is_written=is_written)
        run(root, "UPSERT INTO t VALUES (1000, 'again')")
        engine.database.run_checkpoint()
        assert formats(disk) == (2, 2)
        disk = disk.restart(is_power_lost=True)
        engine = Engine(disk=disk)
        check(session_of(engine), is_written=True)
        engine.database.close()
    assert seen == {(1, 1), (2, 1), (2, 2)}


@pytest.mark.parametrize("kind", ["write", "sync", "rename"])
def test_a_disk_that_fails_in_the_upgrade(kind: str) -> None:
    for seed, path in enumerate(("FORMAT.new", "MANIFEST.new")):
        disk = left("killed", SimulatedDisk(seed))
        engine = Engine(disk=disk)
        run(session_of(engine), "INSERT INTO t VALUES (1000, 'new')")
        engine.database.tablespace.log.sync()
        disk.fail(kind, errno.EIO, times=1, path=path)
        with pytest.raises((Error, OSError)):
            engine.database.run_checkpoint()
        disk = disk.restart(is_power_lost=False)
        engine = Engine(disk=disk)
        check(session_of(engine), is_written=True)
        run(session_of(engine), "UPSERT INTO t VALUES (1000, 'again')")
        engine.database.run_checkpoint()
        assert formats(disk) == (2, 2)
        engine.database.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_backup_of_format_1(ending: str) -> None:
    disk = MemoryDisk()
    restored(files_of(ending)["backup"], disk)
    assert formats(disk) == (2, 2)
    assert examine(disk, "x").damages == []
    engine = Engine(disk=disk)
    root = session_of(engine)
    assert run(root, WHAT) == [(ROW_COUNT - 1, SUM_OF_IDS - 701)]
    run(root, "INSERT INTO t VALUES (701, 'in the log')")
    engine.database.run_checkpoint()
    again = MemoryDisk()
    restored(backed_up(engine.database), again)
    check(session_of(Engine(disk=again)))
    other = engine.database.replica.manifest.state.identity
    assert Manifest.read(again, MANIFEST).identity != other


def test_a_backup_in_the_place_of_format_1() -> None:
    made = Engine()
    run(session_of(made), "CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    data = backed_up(made.database)
    step = 0
    while True:
        step += 1
        disk = left("killed", SimulatedDisk(step))
        disk.crash_at = disk.step_count + step
        try:
            restored(data, disk, is_replacing=True)
        except SimulatedCrash:
            pass
        else:
            break
        disk = disk.restart(is_power_lost=True)
        said, manifest = formats(disk)
        assert said >= manifest
        engine = Engine(disk=disk)
        assert run(session_of(engine), "SELECT count(*) FROM t") in ([(1,)], [(ROW_COUNT,)])
    assert step > 10


def test_a_directory_with_several_tablespaces_is_refused() -> None:
    engine = Engine()
    engine.database.close()
    engine.disk.open("TABLESPACES", create=True).close()
    with pytest.raises(CorruptionError, match=r"TABLESPACES at offset 0"):
        engine.open()


def test_a_segment_of_another_database_is_refused() -> None:
    made = [Engine(), Engine()]
    for each in made:
        root = session_of(each)
        run(root, "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        run(root, f"INSERT INTO t VALUES (1, '{made.index(each)}')")
        each.database.run_checkpoint()
        each.database.close()
    path = "default/segments/00000001.segment"
    data = made[1].disk.read(path)
    assert len(data) == made[0].disk.size(path)
    made[0].disk.open(path).write_at(0, data)
    with pytest.raises(CorruptionError, match=f"segment {path}, offset 0.* id "):
        made[0].open()
    assert any(path in each for each in examine(made[0].disk, "x").damages)
