"""Backups and dumps into files.

A file appears under its name when it is complete, durable and read back; until then it is called
"<name>.part". Any thread may call.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bookie.runtime.interfaces import Disk
from herdpy.driver import local
from herdpy.driver.dsn import local_path
from herdpy.driver.interfaces import Export
from herdpy.engine.state.error_messages import disk_error
from herdpy.errors import Error, OperationalError, ProgrammingError
from herdpy.storage.backup_file import read_backup

if TYPE_CHECKING:
    import os

Progress = Callable[[int, int], object]
"""Called with (bytes done, bytes in all; 0: not known)."""


def export_to_file(
    begin: Callable[[], Export],
    kind: str,
    path: "str | os.PathLike[str]",
    *,
    outside: str | None,
    overwrite: bool,
    progress: Progress | None,
) -> int:
    """Write a "backup" or a "dump" to a file and return its length; `begin` gives what is written.

    `outside` is a directory that the file must not be in: the database's own.
    """
    found, shown = local_path(path, f"{kind}: expected the path of a file")
    disk, name = local.disk_of_file(found)
    check_outside(kind, shown, outside)
    try:
        check_free(disk, name, shown, overwrite=overwrite)
        export = begin()
        try:
            return write_export(
                export, kind, disk, name, shown, overwrite=overwrite, progress=progress
            )
        finally:
            export.close()
    except OSError as error:
        raise file_error(kind, shown, error) from error


def check_outside(kind: str, shown: str, outside: str | None) -> None:
    """Raise 22023 for what lies in the database's own directory."""
    if outside is not None and f"{shown}/".startswith(f"{outside}/"):
        raise ProgrammingError(
            f"{kind}: {shown} lies in the database's own directory {outside}",
            sqlstate="22023",
            hint="name a file somewhere else, best on another disk",
        )


def write_export(
    export: Export,
    kind: str,
    disk: Disk,
    name: str,
    shown: str,
    *,
    overwrite: bool,
    progress: Progress | None,
) -> int:
    """Write an export to a file of a disk, all or nothing, durably; OSError or an Error."""
    part = f"{name}.part"
    try:
        length = write_part(export, disk, part, progress)
        if kind == "backup":
            # Before it has its name: what cannot be read back is no backup.
            read_backup(disk.map(part, length).view, f"{shown}.part")
        check_free(disk, name, shown, overwrite=overwrite)
        disk.rename(part, name)
    except BaseException:
        local.remove_quietly(disk, part)
        raise
    disk.sync_directory("")
    return length


def check_free(disk: Disk, name: str, shown: str, *, overwrite: bool) -> None:
    """Raise 58P02 for a file that exists, unless it may be replaced."""
    if disk.exists(name) and not overwrite:
        raise ProgrammingError(
            f"{shown} exists already and is not overwritten",
            sqlstate="58P02",
            hint="name another file, or say so: overwrite=True, --overwrite",
        )


def write_part(export: Export, disk: Disk, name: str, progress: Progress | None) -> int:
    """Write an export to a new file, durably, and return its length; one that is there goes."""
    local.remove_quietly(disk, name)
    # Never a file that is there already: another user could have made it, or a link to another.
    file = disk.open(name, exclusive=True)
    try:
        offset = 0
        for piece in export.pieces():
            file.write_at(offset, piece)
            offset += len(piece)
            if progress is not None:
                progress(offset, max(offset, export.byte_count))
        file.sync()
    finally:
        file.close()
    return offset


def file_error(what: str, shown: str, error: OSError) -> Error:
    """Return what to raise for a file that could not be read or written."""
    found = disk_error(error)
    if found.sqlstate == "53100":
        return found
    return OperationalError(f"{what}: {shown}: {error.strerror or error}", sqlstate="58030")
