"""Ctrl-C while a checkpoint or compaction writes the manifest, and then the next one fails, too."""

import errno
from collections.abc import Callable

import pytest

from herdpy.engine.database import Database
from herdpy.errors import DiskFullError
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.interrupts import LineInterrupter
from tests.sim.disk import SimulatedCrash, SimulatedDisk

STEPS = range(1, 4)  # of the next checkpoint, while it replaces a file

Work = Callable[[Database], object]

WORKS: dict[str, Work] = {
    "checkpoint": Database.run_checkpoint,
    "compaction": Database.run_compaction,
}


def interrupted(n: int, work: Work) -> tuple[SimulatedDisk, Engine, str]:
    """Return a database whose work was interrupted before the n-th line of the manifest."""
    disk = SimulatedDisk(n)
    db = Engine(disk=disk)
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    for key in range(3):
        run(session, "INSERT INTO t VALUES (?, 0)", key)
        run(session, "UPDATE t SET v = v + 1 WHERE id = 0")
        db.database.run_checkpoint()
    run(session, "INSERT INTO t VALUES (3, 0)")
    interrupter = LineInterrupter(n, within="/storage/manifest.py")
    try:
        with interrupter:
            work(db.database)
    except KeyboardInterrupt:
        pass
    run(session, "INSERT INTO t VALUES (4, 0)")
    return disk, db, interrupter.where


EXPECTED = [(0, 3), (1, 0), (2, 0), (3, 0), (4, 0)]


def check(disk: SimulatedDisk, where: str) -> None:
    db = Engine(disk=disk)
    assert rows(db.session(), "SELECT id, v FROM t ORDER BY id") == EXPECTED, where
    db.database.run_checkpoint()
    db.reopen()
    assert rows(db.session(), "SELECT id, v FROM t ORDER BY id") == EXPECTED, where
    db.database.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WORKS)
def test_a_full_disk_afterwards(name: str) -> None:
    n, where = 0, "first"
    while where:
        n += 1
        disk, db, where = interrupted(n, WORKS[name])
        disk.fail("write", errno.ENOSPC, path="/segments/", times=9)
        with pytest.raises(DiskFullError):
            db.database.run_checkpoint()
        disk.heal()
        check(disk.crash(), where)
    assert n > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WORKS)
def test_a_crash_afterwards(name: str) -> None:
    n, where = 0, "first"
    while where:
        n += 1
        for step in STEPS:
            disk, db, where = interrupted(n, WORKS[name])
            disk.crash_at = disk.step_count + step
            try:
                db.database.run_checkpoint()
            except SimulatedCrash:
                pass
            check(disk.crash(), f"{where}, step {step}")
    assert n > 10
