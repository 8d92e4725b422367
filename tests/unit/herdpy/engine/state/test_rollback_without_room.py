"""Rollbacks that the log has no room for: nothing is forgotten, and the database still opens."""

import errno

import pytest

from herdpy.config import Config
from herdpy.errors import DiskFullError
from tests.fixtures.engines import Engine, rows, run, table
from tests.sim.disk import SimulatedDisk

SMALL = Config(log_file_bytes_first=4096, log_file_bytes_max=4096)


@pytest.mark.parametrize("has_room_again", [False, True])
def test_a_rollback_without_room_is_kept_by_checkpoints_and_logged_later(
    has_room_again: bool,
) -> None:
    disk = SimulatedDisk(1)
    engine = Engine(disk=disk, config=SMALL)
    tablespace = engine.database.tablespace
    owner = engine.session()
    table(owner, (1, 1))
    run(owner, "INSERT INTO t VALUES (2, 2)")
    disk.fail("open", errno.ENOSPC, path="log/", times=10**6)
    others = []
    while True:
        other = engine.session()
        try:
            run(other, "INSERT INTO t VALUES (?, 1)", 100 + len(others))
        except DiskFullError:
            other.rollback()
            break
        others.append(other)
    for other in others:
        other.rollback()
        tablespace.log.write()
    owner.rollback()
    assert tablespace.applier.transactions  # some ROLLBACK found no room
    assert engine.locks == {}
    engine.database.run_checkpoint()
    if has_room_again:
        disk.heal()
        engine.database.run_maintenance_once()
        assert not tablespace.applier.transactions
    again = Engine(disk=disk.crash(), config=SMALL)
    assert rows(again.session(), "SELECT id FROM t") == [(1,)]


def test_a_full_disk_opens_after_a_crash_with_an_open_transaction() -> None:
    disk = SimulatedDisk(1)
    engine = Engine(disk=disk)
    session = engine.session()
    table(session, (1, 1))
    run(session, "INSERT INTO t VALUES (2, 2)")
    engine.database.tablespace.log.sync()
    full = disk.crash(is_power_lost=False)
    full.capacity_bytes = sum(map(len, full.contents().values()))
    again = Engine(disk=full)
    assert rows(again.session(), "SELECT id FROM t") == [(1,)]
    full.capacity_bytes = None
    again.database.run_maintenance_once()
    assert not again.database.tablespace.applier.transactions
    run(again.session(), "INSERT INTO t VALUES (2, 3)")
