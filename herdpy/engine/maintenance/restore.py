"""Restore: makes a database of a backup, in a new directory or in the place of an old database.

Everything is verified before anything is written. A new directory is no database before its last
file is durable: the file RESTORE says so in between, and a restore into it begins again. An old
database is replaced by one rename of its manifest: until then it is whole, from then on the new
one is; segments get numbers that the old ones do not have. A log is not in a backup: the restored
database begins one under a new id, behind the backup's Lsn.

Several backups, one for each tablespace, make a new directory only: the rename of FORMAT decides.
Before a folder is made it is in the list of tablespaces, and UNFINISHED lies in it until the
directory is a database (docs/formats/tablespaces.md); so a restore that begins again knows what it
may remove.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from bookie.runtime.interfaces import DirectoryLock, Disk, DiskLockedError, Rng
from bookie.runtime.os_process import describe_process
from herdpy.engine.maintenance.checkpoint import remove_unlisted
from herdpy.engine.maintenance.directory import (
    DIRECTORY,
    FORMAT,
    FORMAT_VERSION,
    LOCK,
    LOGS,
    MANIFEST,
    RESTORE,
    SEGMENTS,
    begin_tablespace,
    check_format,
    finish_tablespace,
    foreign_names,
    is_finished,
    locked_error,
    make_folders,
    remove_tablespace,
    tablespace_folders,
    write_format,
)
from herdpy.engine.maintenance.file_logs import log_file_paths
from herdpy.engine.maintenance.recovery import open_tables, state_at_checkpoint
from herdpy.engine.state.applier import Applier
from herdpy.errors import (
    CorruptionError,
    Error,
    InvariantViolation,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from herdpy.model.schema import table_from_plain
from herdpy.storage.backup_file import (
    COUNTER_MAX,
    PIECE_BYTES,
    BackupContent,
    Progress,
    crc_of,
    progress_behind,
    read_backup,
)
from herdpy.storage.manifest import FILE_ID_BYTES, Identity, Manifest, ManifestState, renumbered
from herdpy.storage.segment import Segment, segment_header, segment_name, segment_number
from herdpy.storage.tablespace_list import (
    MAKING,
    TABLESPACES,
    TablespaceEntry,
    TablespaceList,
    forget_staged,
    read_list,
    stage_list,
    take_list,
)
from herdpy.storage.verify import check_definition

# What readers of checked bytes say when the checksums are right and the content is forged.
_MADE_UP = (
    ArithmeticError,
    AttributeError,
    InvariantViolation,
    LookupError,
    TypeError,
    ValueError,
)


def verify_backup(view: memoryview, where: str, progress: Progress | None = None) -> BackupContent:
    """Return what a backup holds after reading all of it: blocks, tables, pages and bitmaps.

    CorruptionError names file and offset.
    """
    content = read_backup(view, where, progress)
    listed = content.head.state
    segments = {
        number: Segment.over(
            item.view, f"{where}, segment {number}", number, listed.segment_id(number), None
        )
        for number, item in content.segments.items()
    }
    try:
        for table_id, item in listed.tables.items():
            check_definition(table_id, item.definition)
        tables = open_tables(listed.tables, segments)
        _check_counters(state_at_checkpoint(listed, tables))
        for table in tables.values():
            for entry in table.pages.entries():
                entry.page.verify()
    except _MADE_UP as error:
        raise CorruptionError(
            f"damaged backup {where}: the state in its head is none: {error}",
            hint="the backup does not hold what was written: use another one",
        ) from error
    return content


def _check_counters(applier: Applier) -> None:
    """Raise ValueError for a number that no database comes to, and none could go on from."""
    ids = [number for tx in applier.transactions for number in tx]
    for number in (
        applier.epoch,
        applier.counter,
        applier.next_role_id,
        *applier.reserved.values(),
        *(step for step, _ in applier.set_at.values()),
        *ids,
    ):
        if not 0 <= number < COUNTER_MAX:
            raise ValueError(f"a counter at {number}")


def restore(
    content: BackupContent,
    disk: Disk,
    rng: Rng,
    where: str,
    *,
    is_replacing: bool,
    progress: Progress | None = None,
) -> None:
    """Make the directory of `disk` the database of a verified backup; durable on return.

    ProgrammingError 42P04: there is a database, and is_replacing is not set. OperationalError
    55006: it is open. After any other error the directory is what it was, or half a database that
    says so and wants the same call again. `where` is the directory's name for messages.
    """
    _check_target(disk, where, is_replacing=is_replacing)
    lock = _locked(disk, where)
    try:
        has_database = _check_target(disk, where, is_replacing=is_replacing)
        _announce(disk)
        _remove_others(disk)  # of what was interrupted before
        make_folders(disk)
        disk.sync_directory(DIRECTORY)
        tablespace_id = rng.randbytes(FILE_ID_BYTES)
        state = _write_segments(content, disk, rng, DIRECTORY, tablespace_id, progress)
        _remove_list(disk)
        version = _format_of(state)
        if has_database:
            write_format(disk, version)  # an older herdpy must not meet the new manifest
        Manifest.put(disk, MANIFEST, state, rng).close()
        if not has_database:
            disk.sync_directory("")
            write_format(disk, version)
        _remove_old(disk, state)  # before RESTORE is: without it they would be damage
        disk.unlink(RESTORE)
        disk.sync_directory("")
    finally:
        lock.close()


def _format_of(state: ManifestState) -> int:
    """Return the FORMAT that a directory with these tables has."""
    tables = (table_from_plain(item.definition) for item in state.tables.values())
    return max((table.format_version for table in tables), default=FORMAT_VERSION)


def restore_all(
    contents: Sequence[tuple[TablespaceEntry, BackupContent]],
    disk: Disk,
    rng: Rng,
    where: str,
    *,
    progress: Progress | None = None,
) -> None:
    """Make the directory of `disk` the database of verified backups; durable on return.

    Of each tablespace one, `default` first, under the names and limits of these entries and new
    ids. ProgrammingError 42P04: there is a database; another error as those of restore().
    """
    _check_target(disk, where, is_replacing=False)
    lock = _locked(disk, where)
    try:
        _check_target(disk, where, is_replacing=False)
        _announce(disk)
        _remove_others(disk)
        _remove_list(disk)
        make_folders(disk)
        disk.sync_directory(DIRECTORY)
        entries = [
            msgspec.structs.replace(entry, id=rng.randbytes(FILE_ID_BYTES)) for entry, _ in contents
        ]
        if len(entries) > 1:
            _put_list(disk, 1, [entries[0], *(_with_state(each, MAKING) for each in entries[1:])])
        total = sum(content.byte_count for _, content in contents)
        done, version = 0, FORMAT_VERSION
        for entry, (_, content) in zip(entries, contents, strict=True):
            if entry is not entries[0]:
                begin_tablespace(disk, entry.folder)
            step = progress_behind(done, total, progress)
            state = _write_segments(content, disk, rng, entry.folder, entry.id, step)
            version = max(version, _format_of(state))
            Manifest.put(disk, f"{entry.folder}/MANIFEST", state, rng).close()
            disk.sync_directory(entry.folder)
            done += content.byte_count
        _remove_old(disk, Manifest.read(disk, MANIFEST))  # of what was interrupted before
        if len(entries) > 1:
            _put_list(disk, 2, entries)
        disk.sync_directory("")
        write_format(disk, version)  # this decides
        for entry in entries[1:]:
            finish_tablespace(disk, entry.folder)
        disk.unlink(RESTORE)
        disk.sync_directory("")
    finally:
        lock.close()


def _with_state(entry: TablespaceEntry, state: int) -> TablespaceEntry:
    return msgspec.structs.replace(entry, state=state)


def _put_list(disk: Disk, version: int, entries: Sequence[TablespaceEntry]) -> None:
    stage_list(disk, TablespaceList(version, tuple(entries)))
    take_list(disk)


def _check_target(disk: Disk, where: str, *, is_replacing: bool) -> bool:
    """Return whether there is a database; raise unless it may be written to."""
    names = disk.list("")
    others = _others(disk)
    if others and (FORMAT in names or any(is_finished(disk, each) for each in others)):
        raise NotSupportedError(
            f"{where} has several tablespaces, and is not replaced by a backup",
            hint="Name a new directory.",
        )
    foreign = [name for name in foreign_names(disk) if name not in others]
    if foreign:
        raise OperationalError(
            f"{where} is no herdpy database, it holds {foreign[0]!r}: nothing is written to it",
            sqlstate="58P01",
            hint="name a new or an empty directory",
        )
    if FORMAT in names:
        check_format(disk, where)
    elif RESTORE in names or not disk.exists(MANIFEST):
        return False
    if not is_replacing:
        raise ProgrammingError(
            f"{where} is a database already, and restoring would replace all that is in it",
            sqlstate="42P04",
            hint="name another directory, or say so: replace=True, --replace",
        )
    return FORMAT in names


def _others(disk: Disk) -> list[str]:
    """Return the folders of tablespaces beside `default`, or of what is left of some."""
    found = tablespace_folders(disk)
    try:
        listed = read_list(disk)
    except CorruptionError:  # of what has a folder, and is removed
        return found
    entries = () if listed is None else listed.entries[1:]
    return [*found, *(each.folder for each in entries if each.folder not in found)]


def _remove_others(disk: Disk) -> None:
    """Remove what an interrupted restore has left of tablespaces beside `default`, durably."""
    for folder in _others(disk):
        remove_tablespace(disk, folder)


def _remove_list(disk: Disk) -> None:
    """Remove a list of `default` alone, durably: it has the id of what is to be replaced."""
    forget_staged(disk)
    if disk.exists(TABLESPACES):
        disk.unlink(TABLESPACES)
        disk.sync_directory("")


def _locked(disk: Disk, where: str) -> DirectoryLock:
    try:
        return disk.lock(LOCK, describe_process())
    except DiskLockedError as error:
        raise locked_error(where, error.owner) from error


def _announce(disk: Disk) -> None:
    """Say durably that there may be segments of a restore that did not come to its end.

    Without FORMAT the directory is half a database; with it the old one is there, and whole.
    """
    disk.open(RESTORE, create=True).close()
    disk.sync_directory("")


def _write_segments(
    content: BackupContent,
    disk: Disk,
    rng: Rng,
    folder: str,
    tablespace_id: bytes,
    progress: Progress | None,
) -> ManifestState:
    """Write the segments under numbers that none had here, and return what to list."""
    segments = f"{folder}/segments"
    leftover = max(map(segment_number, disk.list(segments)), default=0)
    listed = content.head.state
    done = 0
    written: list[str] = []
    try:
        for number, segment in sorted(content.segments.items()):
            path = f"{segments}/{segment_name(number + leftover)}"
            written.append(path)
            file = disk.open(path, create=True, exclusive=True)
            try:
                for start in range(0, len(segment.view), PIECE_BYTES):
                    piece = bytes(segment.view[start : start + PIECE_BYTES])
                    file.write_at(start, piece)
                    done += len(piece)
                    if progress is not None:
                        progress(done, content.byte_count)
                file.write_at(0, segment_header(number + leftover, listed.segment_id(number)))
                file.sync()
            finally:
                file.close()
            if crc_of(segment.view) != segment.crc:
                raise CorruptionError(
                    "the backup's file changed while it was being restored",
                    hint="restore again, from a file that no process writes to",
                )
        disk.sync_directory(segments)
    except (OSError, Error):
        for path in written:
            with suppress(OSError):  # unlisted: the next open removes it
                disk.unlink(path)
        raise
    # A tablespace and a log of its own: frames of the original's log are none of it.
    return msgspec.structs.replace(
        renumbered(listed, leftover),
        log_id=rng.randbytes(16),
        identity=Identity(tablespace_id),
    )


def _remove_old(disk: Disk, state: ManifestState) -> None:
    """Remove the files of the database that was replaced, durably."""
    remove_unlisted(disk, SEGMENTS, state)
    for path in log_file_paths(disk, DIRECTORY):
        disk.unlink(path)
    for folder in (SEGMENTS, LOGS):
        disk.sync_directory(folder)
