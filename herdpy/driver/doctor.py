"""The doctor, and salvage, for a directory of this machine. Any thread may call."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bookie.runtime.interfaces import DirectoryLock, DiskLockedError
from herdpy.driver import local
from herdpy.driver.dsn import local_path
from herdpy.driver.exports import Progress
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    FORMAT,
    LOCK,
    NODE,
    cannot_open_error,
    locked_error,
)
from herdpy.engine.maintenance.doctor import Report
from herdpy.engine.maintenance.doctor import examine as examine_disk
from herdpy.engine.maintenance.salvage import Salvage
from herdpy.errors import loading

if TYPE_CHECKING:
    import os


def examine(directory: "str | os.PathLike[str]", progress: Progress | None = None) -> Report:
    """Verify every file of a database and return what was found; no file of it is changed.

    The directory of a cluster's node, too, while no node runs there; of the copies in it what their
    logs have behind the checkpoints is not there. OperationalError 55006: a process has it open;
    58P01: there is none.
    """
    path, where = local_path(directory, "doctor: expected a directory")
    try:
        disk = local.disk_of_existing(path)
        lock = _lock(disk, where)
        try:
            if disk.exists(NODE):
                with loading():
                    from herdpy.cluster.observability.node_directory import examine_node

                report = examine_node(
                    disk, lambda folder: local.disk_of_existing(f"{path}/{folder}"), where, progress
                )
                report.notes += local.exposed(disk, where)
                return report
            report = examine_disk(disk, where, progress)
            if disk.exists(FORMAT) or disk.exists(DIRECTORY):  # else the files are somebody else's
                report.notes += local.exposed(disk, where)
            return report
        finally:
            lock.close()
    except OSError as error:
        raise cannot_open_error(where, error) from error


@contextmanager
def salvaging(
    directory: "str | os.PathLike[str]",
    progress: Progress | None = None,
    tablespace: str | None = None,
) -> Generator[Salvage]:
    """Read what is whole of a tablespace, and give it as a dump; no file of it is changed.

    It is held until the block ends. CorruptionError: nothing can be read. Errors as examine().
    """
    path, where = local_path(directory, "dump: expected a directory")
    try:
        disk = local.disk_of_existing(path)
        lock = _lock(disk, where)
        try:
            found = Salvage.begin(disk, where, progress, tablespace)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise cannot_open_error(where, error) from error
    try:
        yield found
    finally:
        found.close()
        lock.close()


def _lock(disk: local.OsDisk, where: str) -> DirectoryLock:
    """Keep others from opening it."""
    try:
        return disk.hold(LOCK)
    except DiskLockedError as error:
        raise locked_error(where, error.owner) from error
