"""Defects that the simulation found, each as the shortest story that shows it."""

import errno

import pytest

from herdpy.errors import OperationalError
from herdpy.storage.manifest import LogFileBegun, Manifest
from tests.sim.disk import SimulatedDisk


@pytest.mark.parametrize("seed", range(20))
def test_an_edit_whose_sync_failed_is_written_again_at_open(seed: int) -> None:
    # Crash seed 566: the page cache showed the edit, the disk had lost it, the sync of the next
    # open could not bring it back, and after a power failure a hole stood before later edits.
    disk = SimulatedDisk(seed)
    first = Manifest.create(disk, "MANIFEST", bytes(16))
    disk.fail("sync", errno.EIO, path="MANIFEST")
    with pytest.raises(OperationalError):
        first.append(LogFileBegun(1, 1))
    first.close()
    second = Manifest.open(disk, "MANIFEST")
    assert second.state.log_files == ((1, 1),)
    second.append(LogFileBegun(2, 5))
    second.close()
    third = Manifest.open(disk.crash(), "MANIFEST")
    assert third.state.log_files == ((1, 1), (2, 5))
    third.close()
