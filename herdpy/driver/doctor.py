"""The doctor for a directory of this machine. Any thread may call."""

import errno
from typing import TYPE_CHECKING

from bookie.runtime.interfaces import DirectoryLock, DiskLockedError
from herdpy.driver import local
from herdpy.driver.dsn import local_path
from herdpy.driver.exports import Progress
from herdpy.engine.maintenance.directory import LOCK, cannot_open_error, locked_error
from herdpy.engine.maintenance.doctor import Report
from herdpy.engine.maintenance.doctor import examine as examine_disk

if TYPE_CHECKING:
    import os

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


def examine(directory: "str | os.PathLike[str]", progress: Progress | None = None) -> Report:
    """Verify every file of a database and return what was found; no file of it is changed.

    OperationalError 55006: a process has it open; 58P01: there is none.
    """
    path, where = local_path(directory, "doctor: expected a directory")
    try:
        disk = local.disk_of_existing(path)
        lock = _lock(disk, where)
        try:
            report = examine_disk(disk, where, progress)
            report.notes += local.exposed(disk, where)
            return report
        finally:
            if lock is not None:
                lock.close()
    except OSError as error:
        raise cannot_open_error(where, error) from error


def _lock(disk: local.OsDisk, where: str) -> DirectoryLock | None:
    """Keep others from opening it; where nothing can be written no other process can either."""
    if disk.exists(LOCK):
        try:
            return disk.hold(LOCK)
        except DiskLockedError as error:
            raise locked_error(where, error.owner) from error
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
    return None
