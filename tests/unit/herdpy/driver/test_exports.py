"""The file of a backup on a disk that fails or loses power: a whole one, or none."""

import errno

import pytest

from bookie.runtime.mapping import ViewMapping
from herdpy.driver.exports import write_export
from herdpy.engine.database import Database
from herdpy.engine.maintenance.restore import verify_backup
from herdpy.errors import CorruptionError
from tests.fixtures.backups import backed_up
from tests.fixtures.engines import Engine, engine, run
from tests.sim.disk import SimulatedCrash, SimulatedDisk


def filled() -> Engine:
    db = Engine()
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, b BYTEA)")
    for i in range(3):
        run(session, "INSERT INTO t VALUES (?, ?)", i, bytes([i]) * 900_000)
    return db


def write(database: Database, disk: SimulatedDisk) -> int:
    backup = database.backup()
    try:
        return write_export(backup, "backup", disk, "b", "/b", overwrite=True, progress=None)
    finally:
        backup.close()


def with_old(seed: int, old: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    if old:
        file = disk.open("b", create=True)
        file.write_at(0, old)
        file.sync()
        file.close()
        disk.sync_directory("")
    return disk


def test_a_crash_at_every_step() -> None:
    with engine() as other:
        old = backed_up(other.database)
    db = filled()
    for before in (b"", old):
        step, is_crashed = 0, True
        found: set[str] = set()
        while is_crashed:
            step += 1
            disk = with_old(step, before)
            disk.crash_at = disk.step_count + step
            try:
                write(db.database, disk)
                is_crashed = False
            except SimulatedCrash:
                disk = disk.restart()
            if not disk.exists("b"):
                found.add("none")
            elif disk.read("b") == before:
                found.add("old")
            else:
                verify_backup(memoryview(disk.read("b")), "b")
                found.add("new")
        assert found == {"old" if before else "none", "new"}
        assert step > 5
    db.database.close()


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename", "map"])
def test_a_failing_disk(kind: str) -> None:
    db = filled()
    disk = with_old(1, b"old")
    disk.fail(kind, errno.ENOSPC if kind in ("open", "write") else errno.EIO)
    with pytest.raises(OSError, match=r"No space|Input/output"):
        write(db.database, disk)
    disk.heal()
    assert disk.list("") == ["b"]
    assert disk.read("b") == b"old"
    length = write(db.database, disk)
    assert length == disk.size("b") == len(disk.read("b"))
    db.database.close()


class LyingDisk(SimulatedDisk):
    """Shows other bytes than were written."""

    def map(self, path: str, byte_count: int) -> ViewMapping:
        file = self.open(path)
        file.write_at(byte_count // 2, b"?")
        file.close()
        return super().map(path, byte_count)


def test_what_cannot_be_read_back_gets_no_name() -> None:
    db = filled()
    disk = LyingDisk(1)
    with pytest.raises(CorruptionError, match=r"damaged backup /b\.part"):
        write(db.database, disk)
    assert disk.list("") == []
    db.database.close()


def test_a_full_disk_of_the_database_makes_no_backup_and_no_harm() -> None:
    disk = SimulatedDisk(1)
    db = Engine(disk=disk)
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    for kind, code in (("write", errno.ENOSPC), ("sync_directory", errno.EIO)):
        run(session, "INSERT INTO t VALUES (?, 0)", disk.step_count)
        disk.fail(kind, code, path="/segments", times=9)  # also behind the reserve that is given up
        with pytest.raises(Exception, match=r"disk|device|segments"):
            write(db.database, SimulatedDisk(2))
        disk.heal()
        run(session, "UPDATE t SET v = v + 1")
        target = SimulatedDisk(3)
        write(db.database, target)
        verify_backup(memoryview(target.read("b")), "b")
    db.database.close()
