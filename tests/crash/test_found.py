"""Defects that the simulation found, each as the shortest story that shows it."""

import errno
from contextlib import suppress

import pytest

from herdpy.errors import OperationalError
from herdpy.storage.manifest import LogFileBegun, Manifest
from tests.fixtures.engines import Engine, rows, run
from tests.fixtures.metadata import SeededRng
from tests.sim.disk import SimulatedCrash, SimulatedDisk


@pytest.mark.parametrize("seed", range(20))
def test_an_edit_whose_sync_failed_is_written_again_at_open(seed: int) -> None:
    # Crash seed 566: the page cache showed the edit, the disk had lost it, the sync of the next
    # open could not bring it back, and after a power failure a hole stood before later edits.
    disk = SimulatedDisk(seed)
    first = Manifest.create(disk, "MANIFEST", SeededRng(1))
    disk.fail("sync", errno.EIO, path="MANIFEST")
    with pytest.raises(OperationalError):
        first.append(LogFileBegun(1, 1))
    first.close()
    second = Manifest.open(disk, "MANIFEST", SeededRng(1))
    assert second.state.log_files == ((1, 1),)
    second.append(LogFileBegun(2, 5))
    second.close()
    third = Manifest.open(disk.crash(), "MANIFEST", SeededRng(1))
    assert third.state.log_files == ((1, 1), (2, 5))
    third.close()


@pytest.mark.parametrize("seed", range(20))
def test_format_is_durable_before_there_is_data(seed: int) -> None:
    # Crash seed 1001264: killed between FORMAT's rename and the sync of its name, opened again,
    # written to; then the power failed, and data lay in a directory without FORMAT.
    disk = SimulatedDisk(seed)
    made = Engine(disk=disk)
    made.database.close()
    steps = disk.step_count
    for step in range(1, steps + 1):
        disk = SimulatedDisk(seed)
        disk.crash_at = step
        with suppress(SimulatedCrash):
            Engine(disk=disk).database.close()
        survivor = disk.restart(is_power_lost=False)
        again = Engine(disk=survivor)
        session = again.session()
        run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
        session.commit()
        last = Engine(disk=survivor.crash())
        assert rows(last.session(), "SELECT count(*) FROM t") == [(0,)]
