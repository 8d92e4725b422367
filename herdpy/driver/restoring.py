"""Databases out of backups, and out of backup sets. Any thread may call."""

from typing import TYPE_CHECKING

from bookie.runtime.interfaces import Disk
from herdpy.driver import local
from herdpy.driver.dsn import local_path
from herdpy.driver.exports import Progress, file_error
from herdpy.engine.maintenance.restore import restore as restore_one
from herdpy.engine.maintenance.restore import restore_all, verify_backup
from herdpy.engine.state.error_messages import disk_error
from herdpy.errors import NotSupportedError, OperationalError, ProgrammingError, closest
from herdpy.storage.backup_file import BackupContent, progress_behind
from herdpy.storage.backup_set import (
    BACKUP,
    BackupPart,
    BackupSet,
    check_part,
    missing_part_error,
    read_set,
)
from herdpy.storage.tablespace_list import DEFAULT, TablespaceEntry

if TYPE_CHECKING:
    import os


def restore(
    backup: "str | os.PathLike[str]",
    directory: "str | os.PathLike[str]",
    *,
    tablespace: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> None:
    """Make `directory` (made if missing) the database of a backup.

    `backup` is a file, of one tablespace, or a folder that backup_all() has made, of all: then the
    directory gets all of them, with their names, limits and rights; or, with `tablespace`, the one
    of that name as its `default` (3D000: the folder has none).

    The whole backup is verified before anything is written: CorruptionError. A database that is
    there already is replaced only with replace=True (42P04), all at once, by one tablespace only
    (0A000), and never while it is open (55006). `progress` is called with (bytes done, bytes in
    all): first for reading, then for writing. Another error leaves the directory as it was, or
    saying that it is half a database.
    """
    file, shown = local_path(backup, "restore: expected the path of a file")
    disk, name = local.disk_of_file(file)
    path, where = local_path(directory, "restore: expected a directory to restore to")
    is_set = disk.exists(name) and not disk.is_file(name)
    is_all = is_set and tablespace is None
    if is_all and replace:
        raise NotSupportedError(
            f"restore: {shown} is the backup of all tablespaces, which replaces no database",
            hint="Name a new directory; or one tablespace of the backup: --tablespace NAME.",
        )
    if not is_set and tablespace is not None:
        raise ProgrammingError(
            f"restore: {shown} is the backup of one tablespace, of which none can be named",
            sqlstate="22023",
            hint="Leave `tablespace` out; a folder that `herdpy backup --all` made has several.",
        )
    try:
        if is_set:
            found = verify_set(local.disk_of_existing(file), shown, tablespace, progress)
        else:
            mapping = disk.map(name, disk.size(name))
            found = [(TablespaceEntry(b"", DEFAULT), verify_backup(mapping.view, shown, progress))]
    except OSError as error:
        raise file_error("restore", shown, error) from error
    try:
        there, rng = local.disk_of_directory(path), local.new_rng()
        if is_all:
            restore_all(found, there, rng, where, progress=progress)
        else:
            _, content = found[0]
            restore_one(content, there, rng, where, is_replacing=replace, progress=progress)
    except OSError as error:
        raise disk_error(error) from error


def verify_set(
    disk: Disk, shown: str, tablespace: str | None, progress: Progress | None = None
) -> list[tuple[TablespaceEntry, BackupContent]]:
    """Return what the set in the folder of a disk holds, after reading all that is returned.

    CorruptionError names the file that is damaged, missing or another one's; 58P01: it is no set;
    3D000: it has no `tablespace`, which is None for all.
    """
    if not disk.exists(BACKUP):
        raise OperationalError(
            f"restore: {shown} is no backup: it has no file {BACKUP}, which is written last",
            sqlstate="58P01",
            hint="Name a folder that `herdpy backup --all` has made, or a file.",
        )
    return _verified(disk, shown, _chosen(read_set(disk, shown), tablespace, shown), progress)


def _chosen(found: BackupSet, tablespace: str | None, shown: str) -> tuple[BackupPart, ...]:
    if tablespace is None:
        return found.parts
    part = found.find(tablespace)
    if part is None:
        names = [each.entry.name for each in found.parts]
        close = closest(tablespace[:63], names[:50])
        raise OperationalError(
            f'restore: {shown} has no backup of tablespace "{tablespace[:63]}"',
            sqlstate="3D000",
            hint=f'Did you mean "{close}"?' if close else f"It has {len(names):,}: {names[:10]}.",
        )
    return (part,)


def _verified(
    disk: Disk, shown: str, parts: tuple[BackupPart, ...], progress: Progress | None
) -> list[tuple[TablespaceEntry, BackupContent]]:
    """Read all of these backups; CorruptionError names the one that is damaged or missing."""
    for part in parts:
        if not disk.exists(part.file):
            raise missing_part_error(part, shown)
    total = sum(part.byte_count for part in parts)
    done = 0
    contents: list[tuple[TablespaceEntry, BackupContent]] = []
    for part in parts:
        length = disk.size(part.file)
        name = f'{shown}/{part.file} of tablespace "{part.entry.name}"'
        content = verify_backup(
            disk.map(part.file, length).view, name, progress_behind(done, total, progress)
        )
        check_part(part, content, length, shown)
        contents.append((part.entry, content))
        done += length
    return contents
