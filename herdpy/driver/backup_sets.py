"""Backup sets: backups of all tablespaces of a directory, into a folder with a manifest.

Each is a backup as of its own moment, taken one after the other, and can be restored alone. The
folder is a set when its manifest is durable, which is written last, and behind which the files of a
set that it replaces are removed. Any thread may call.
"""

from typing import TYPE_CHECKING, Protocol

from bookie.runtime.interfaces import Disk
from herdpy.driver import local
from herdpy.driver.dsn import local_path
from herdpy.driver.exports import (
    Progress,
    check_outside,
    file_error,
    write_part,
)
from herdpy.driver.interfaces import Export
from herdpy.errors import OperationalError, ProgrammingError
from herdpy.storage.backup_file import progress_behind, read_backup
from herdpy.storage.backup_set import (
    BACKUP,
    BackupPart,
    BackupSet,
    is_ours,
    part_of,
    read_set,
    write_set,
)
from herdpy.storage.tablespace_list import DEFAULT, TablespaceEntry, decode_list

if TYPE_CHECKING:
    import os


class Exporting(Protocol):
    """A session of `default`: DriverSession.export()."""

    def export(self, kind: str, tablespace: str = "") -> Export: ...


def backup_to_folder(
    session: Exporting,
    path: "str | os.PathLike[str]",
    *,
    outside: str | None,
    overwrite: bool,
    progress: Progress | None,
) -> int:
    """Write a backup set to a folder, made if missing, and return the length of its backups.

    `outside` is a directory that it must not be in: the database's own.
    """
    found, shown = local_path(path, "backup: expected the path of a folder")
    check_outside("backup", shown, outside)
    above, name = local.disk_of_file(found)
    try:
        is_new = not above.exists(name)
        if is_new:
            above.make_directory(name)
            above.sync_directory("")
        try:
            disk = local.disk_of_existing(found)
            return write_backup_set(session, disk, shown, overwrite=overwrite, progress=progress)
        except BaseException:
            if is_new:
                local.remove_folder_quietly(above, name)
            raise
    except OSError as error:
        raise file_error("backup", shown, error) from error


def write_backup_set(
    session: Exporting, disk: Disk, shown: str, *, overwrite: bool, progress: Progress | None
) -> int:
    """Make the folder of a disk a set, all or nothing, durably; OSError or an Error.

    ProgrammingError 58P02: there is one, or files of one, and overwrite is not set; or it holds
    something else.
    """
    old = _checked_names(disk, shown, overwrite=overwrite)
    listed = decode_list(read_export(session.export("tablespaces")))
    parts: list[BackupPart] = []
    written: list[str] = []
    done = 0
    try:
        for entry in listed.present:
            part = _write_one(
                session, entry, disk, shown, written, progress_behind(done, 0, progress)
            )
            if part is not None:
                parts.append(part)
                done += part.byte_count
        disk.sync_directory("")
        write_set(disk, BackupSet(tuple(parts)))
    except BaseException:
        if not _lists(disk, written):
            for name in written:
                local.remove_quietly(disk, name)
        raise
    for name in old:
        if name != BACKUP:
            local.remove_quietly(disk, name)
    return done


def _checked_names(disk: Disk, shown: str, *, overwrite: bool) -> list[str]:
    """Return the files of a set, or of an interrupted one, that are in the folder."""
    names = disk.list("")
    foreign = [name for name in names if not is_ours(name)]
    if foreign:
        raise ProgrammingError(
            f"{shown} holds {foreign[0]!r}, which is no part of a backup: nothing is written to it",
            sqlstate="58P02",
            hint="name a new or an empty folder",
        )
    if names and not overwrite:
        raise ProgrammingError(
            f"{shown} holds a backup already, which is not overwritten",
            sqlstate="58P02",
            hint="name another folder, or say so: overwrite=True, --overwrite",
        )
    return names


def read_export(export: Export) -> bytes:
    """Return all of a short export, and close it."""
    try:
        return b"".join(export.pieces())
    finally:
        export.close()


def _write_one(
    session: Exporting,
    entry: TablespaceEntry,
    disk: Disk,
    shown: str,
    written: list[str],
    progress: Progress | None,
) -> BackupPart | None:
    """Write the backup of a tablespace, and note its names; None: it was dropped meanwhile."""
    try:
        export = session.export("backup", entry.id.hex())
    except OperationalError as error:
        if error.sqlstate == "3D000" and entry.name != DEFAULT:
            return None
        raise
    name = f"{entry.id.hex()}.backup.part"
    written.append(name)
    try:
        length = write_part(export, disk, name, progress)
    finally:
        export.close()
    # Before the manifest lists it: what cannot be read back is no backup.
    content = read_backup(disk.map(name, length).view, f"{shown}/{name}")
    part = part_of(entry, content, length)
    written.append(part.file)
    disk.rename(name, part.file)
    return part


def _lists(disk: Disk, written: list[str]) -> bool:
    """Return whether the manifest may list these files: then they stay, and the set is whole."""
    try:
        return disk.exists(BACKUP) and any(
            part.file in written for part in read_set(disk, "").parts
        )
    except Exception:  # noqa: BLE001 - it cannot be read, and what it lists is not known
        return True
