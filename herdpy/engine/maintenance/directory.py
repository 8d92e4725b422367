"""The layout of a database's directory: what is ours, what a new one has, what we never touch.

Files: FORMAT (what this directory is), LOCK (who has it open), default/MANIFEST, default/log/,
default/segments/, default/temp/; RESTORE while a backup is being restored into it; TABLESPACES
once there are others than `default`, whose folders are called by their ids; UNFINISHED in one of
these while it is made. FORMAT is written last, so that an interrupted creation is begun again and a
directory of another program is never written to. One process at a time, but for check_ours(): it
holds LOCK.
"""

import errno
import re
from collections.abc import Iterable
from contextlib import suppress

from bookie.runtime.interfaces import Disk, Rng
from herdpy.engine.maintenance.file_logs import log_file_paths
from herdpy.engine.maintenance.leftovers import segment_files
from herdpy.engine.state.error_messages import disk_error
from herdpy.errors import (
    CorruptionError,
    Error,
    NotSupportedError,
    OperationalError,
    expecting_file,
    misplaced,
)
from herdpy.model.schema import Table
from herdpy.storage.manifest import FILE_LOG, Identity, Manifest, ManifestState
from herdpy.storage.tablespace_list import (
    BY_FOLDER_HINT,
    MAKING,
    STAGED,
    TABLESPACES,
    TablespaceList,
)

FORMAT_VERSION, FORMAT_VERSION_MAX = 2, 3
"""What a new directory has, and what it has with the first table of a type that 2 does not know."""
FORMAT = "FORMAT"
LOCK = "LOCK"
NODE = "node.json"
"""Of the directory of a cluster's node, which has its copies in folders (cluster/node_identity.py).
"""
RESTORE = "RESTORE"
"""Its presence without FORMAT: a restore has begun and has not come to its end."""
UNFINISHED = "UNFINISHED"
"""Its presence in a folder: CREATE TABLESPACE has not returned; nothing is lost with the folder."""
DIRECTORY = "default"
MANIFEST = f"{DIRECTORY}/MANIFEST"
SEGMENTS = f"{DIRECTORY}/segments"
LOGS = f"{DIRECTORY}/log"
RESERVE = f"{DIRECTORY}/reserve"
PARTS = ("log", "segments", "temp")
PARTS_OF_OTHERS = ("log", "segments")
"""Of a tablespace that is not `default`."""
FORMAT_HINT = (
    "If this is a database, put the file back: a line of text, which for a database of this "
    f"version of herdpy is 'herdpy {FORMAT_VERSION}'."
)
INTERRUPTED_RESTORE_HINT = "Run `herdpy restore` once more; it begins again from the backup."
_FOLDER = re.compile("[0-9a-f]{32}")
_IS_A_DIRECTORY = (errno.EISDIR, errno.EPERM)
"""Of unlink(): which one it is depends on the operating system."""
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
OURS = (FORMAT, f"{FORMAT}.new", LOCK, RESTORE, DIRECTORY, TABLESPACES, STAGED)


def check_ours(disk: Disk, where: str) -> None:
    """Refuse a directory with another program's files, before anything is written to it."""
    names = disk.list("")
    if FORMAT in names:
        check_format(disk, where)
        return
    if RESTORE in names:
        raise OperationalError(
            f"{where} is half a database: restoring a backup into it was interrupted",
            sqlstate="58P01",
            hint=INTERRUPTED_RESTORE_HINT,
        )
    foreign = [name for name in foreign_names(disk) if name not in tablespace_folders(disk)]
    if foreign:
        raise OperationalError(
            f"{where} is no herdpy database: it has no file {FORMAT} but holds {foreign[0]!r}",
            sqlstate="58P01",
            hint="It is the directory of a cluster's node: `herdpy node` runs on it, and programs "
            "connect to that; `herdpy doctor` looks at it while no node does."
            if NODE in foreign
            else "Name an empty or a new directory.",
        )


def check_format(disk: Disk, where: str) -> None:
    """Raise unless FORMAT says what this herdpy can read."""
    with expecting_file(f"{where}/{FORMAT}"):
        text = disk.read(FORMAT)
    words = text.split()
    if len(words) != 2 or words[0] != b"herdpy" or not words[1].isdigit() or not int(words[1]):
        raise CorruptionError(
            f"{where}/{FORMAT}, offset 0: expected 'herdpy {FORMAT_VERSION}', found {text[:40]!r}",
            hint=FORMAT_HINT,
        )
    if int(words[1]) > FORMAT_VERSION_MAX:
        raise NotSupportedError(
            f"{where} has format {int(words[1])}; this herdpy reads up to {FORMAT_VERSION_MAX} "
            f"(offset 0 of {FORMAT})",
            hint="Open it with the newer herdpy that wrote it.",
        )


def create_if_new(disk: Disk, rng: Rng, log_kind: str = FILE_LOG) -> None:
    """Make the database of a directory that check_ours() let pass, if there is none yet."""
    if disk.exists(FORMAT):
        if disk.exists(f"{FORMAT}.new"):  # of a step to another format that was cut short
            with suppress(OSError):
                disk.unlink(f"{FORMAT}.new")
        return
    _check_nothing_in(disk, log_kind)
    make_folders(disk)
    disk.sync_directory(DIRECTORY)
    if disk.exists(MANIFEST):
        Manifest.open(disk, MANIFEST, rng, log_kind).close()  # durable from here on
    else:
        Manifest.create(disk, MANIFEST, rng, log_kind).close()
    disk.sync_directory("")
    write_format(disk)


def upgrade(disk: Disk, manifest: Manifest, tables: Iterable[Table]) -> None:
    """Make FORMAT 2 of a database that is FORMAT 1; repeatable after an error or a crash.

    And FORMAT 3 of one that gets the first of such tables (ADR 93).

    FORMAT comes first: from its rename on no older herdpy opens the directory, and before it
    nothing is there that one could not read. What FORMAT 1 wrote is read as it is, file by file,
    until a checkpoint or a compaction writes it anew.
    """
    if not manifest.is_current:
        _raise_format(disk, FORMAT_VERSION)
        manifest.upgrade()
    version = max((table.format_version for table in tables), default=FORMAT_VERSION)
    if version > FORMAT_VERSION:
        _raise_format(disk, version)


def _raise_format(disk: Disk, version: int) -> None:
    """Say that the database is of a format, where it says an older one; a node's copy says none."""
    if disk.exists(FORMAT) and int(disk.read(FORMAT).split()[1]) < version:
        write_format(disk, version)


def write_format(disk: Disk, version: int = FORMAT_VERSION) -> None:
    """Say that the directory is a database, durably: the last step of making one."""
    file = disk.open(f"{FORMAT}.new", create=True)
    try:
        text = f"herdpy {version}\n".encode()
        file.truncate(0)
        file.write_at(0, text)
        file.sync()
    finally:
        file.close()
    disk.rename(f"{FORMAT}.new", FORMAT)
    disk.sync_directory("")


def _check_nothing_in(disk: Disk, log_kind: str) -> None:
    """Raise unless the directory is as an interrupted creation leaves it; reads only.

    FORMAT is written before anything is logged. With data in the directory its absence is damage,
    and what format it named is not known.
    """
    has_manifest = disk.exists(MANIFEST) and not Manifest.read(disk, MANIFEST, log_kind).is_empty
    found: list[str] = []
    if has_manifest or log_file_paths(disk, DIRECTORY) or segment_files(disk, SEGMENTS):
        found.append(DIRECTORY)
    found += tablespace_folders(disk)
    if found:
        raise CorruptionError(
            f"{FORMAT} is missing, though there is data under {found[0]}/", hint=FORMAT_HINT
        )


def make_folders(disk: Disk, folder: str = DIRECTORY) -> bool:
    """Make those of a tablespace that are missing; the caller syncs their names. False: none was.

    DuckDB spills for all tablespaces to the one folder of `default`.
    """
    parts = PARTS if folder == DIRECTORY else PARTS_OF_OTHERS
    paths = (folder, *(f"{folder}/{part}" for part in parts))
    missing = [path for path in paths if not disk.exists(path)]
    for path in missing:
        disk.make_directory(path)
    return bool(missing)


def locked_error(where: str, owner: str) -> OperationalError:
    return OperationalError(
        f"{where} is open in another process ({owner.strip() or 'unknown'})",
        sqlstate="55006",
        hint="Close it there first, or name the URL of the server that serves it, such as "
        "herd://localhost:7000; within one process, connect() as often as you like.",
    )


def cannot_open_error(where: str, error: OSError) -> Error:
    if error.errno == errno.ENOENT:
        return OperationalError(
            f"{where} cannot be opened: {error.strerror} ({error.filename})", sqlstate="58P01"
        )
    return misplaced(f"{error.filename}", error) or disk_error(error)


def make_tablespace(
    disk: Disk, folder: str, tablespace_id: bytes, rng: Rng, log_kind: str = FILE_LOG
) -> None:
    """Make the files of an empty tablespace in a folder that is not there; durable on return.

    It is unfinished until finish_tablespace().
    """
    begin_tablespace(disk, folder)
    state = ManifestState(rng.randbytes(16), identity=Identity(tablespace_id, log_kind))
    Manifest.put(disk, f"{folder}/MANIFEST", state, rng).close()
    disk.sync_directory(folder)
    disk.sync_directory("")


def begin_tablespace(disk: Disk, folder: str) -> None:
    """Make the folders of a tablespace that is unfinished until finish_tablespace()."""
    disk.make_directory(folder)
    disk.open(f"{folder}/{UNFINISHED}", create=True).close()
    disk.sync_directory(folder)  # before there is anything that it tells of
    make_folders(disk, folder)


def finish_tablespace(disk: Disk, folder: str) -> None:
    """Say durably that it has been made, once the list says so; repeatable."""
    if disk.exists(f"{folder}/{UNFINISHED}"):
        disk.unlink(f"{folder}/{UNFINISHED}")
        disk.sync_directory(folder)


def remove_tablespace(disk: Disk, folder: str) -> None:
    """Remove the folder of a tablespace that is none, as far as it is there; durable on return.

    With all that is in it, also what is not ours: its name is an id, which no other program gives.
    """
    if disk.exists(folder):
        _empty(disk, folder, but=UNFINISHED)
        disk.sync_directory(folder)
        finish_tablespace(disk, folder)  # last: what is left behind a crash is still unfinished
        disk.remove_directory(folder)
    disk.sync_directory("")


def _empty(disk: Disk, path: str, but: str | None = None) -> None:
    """Remove what is in a folder, `but` one name of it."""
    for name in disk.list(path):
        if name == but:
            continue
        below = f"{path}/{name}"
        try:
            disk.unlink(below)
        except OSError as error:
            if error.errno not in _IS_A_DIRECTORY:
                raise
            try:
                disk.remove_directory(below)
            except OSError as full:  # not so of a link, behind which nothing is ours
                if full.errno not in _NOT_EMPTY:
                    raise
                _empty(disk, below)
                disk.remove_directory(below)


def check_listed(disk: Disk, listed: TablespaceList) -> None:
    """Raise CorruptionError where the list cannot be that of the directory; reads only.

    A folder is in the list before it is there, and until it is gone; and one that is being made is
    UNFINISHED until the list says that it is there. Else the list is lost or older.
    """
    folders = {each.folder for each in listed.entries}
    for name in tablespace_folders(disk):
        if name not in folders:
            raise _older_list(f"it does not list the tablespace in folder {name}")
    for each in listed.leftovers:
        if each.state == MAKING and is_finished(disk, each.folder):
            raise _older_list(
                f'it says that tablespace "{each.name}" in folder {each.folder} is being made, '
                "which was finished"
            )


def _older_list(problem: str) -> CorruptionError:
    return CorruptionError(
        f"{TABLESPACES}, offset 0: {problem}: it is missing, or older than the directory",
        hint=f"Put the {TABLESPACES} back that belongs to the directory, or restore a backup into "
        f"a new one. {BY_FOLDER_HINT}",
    )


def is_finished(disk: Disk, folder: str) -> bool:
    """Return whether what is in a folder is more than an interrupted making of it has left."""
    is_there = any(disk.exists(f"{folder}/{name}") for name in ("MANIFEST", *PARTS_OF_OTHERS))
    return is_there and not disk.exists(f"{folder}/{UNFINISHED}")


def foreign_names(disk: Disk) -> list[str]:
    """Return what lies in the directory beside `default` and the files of a database."""
    return [name for name in disk.list("") if name not in OURS]


def tablespace_folders(disk: Disk) -> list[str]:
    """Return the folders of tablespaces other than `default`, whatever a list says."""
    names = disk.list("")
    return [n for n in names if _FOLDER.fullmatch(n) and disk.exists(f"{n}/MANIFEST")]
