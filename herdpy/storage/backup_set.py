"""The manifest of a backup set: the file BACKUP of a folder of backups, one for each tablespace.

docs/formats/backup_set.md. Little-endian:

    offset  width  type   meaning
    0       8      bytes  magic "HERDPBKS"
    8       2      u16    format version 1
    10      2      u16    zero
    12      4      u32    length n of the body
    16      4      u32    CRC32C of bytes 0 to 16 and of the body
    20      n      bytes  body: msgpack of BackupSet; nothing behind it

The backups beside it (backup_file.py) are called by their ids. They are durable before the manifest
is, which is replaced as a whole (whole_file.py): the set is what the manifest lists.
CorruptionError names file and offset.
"""

import re

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.errors import CorruptionError, InvariantViolation, expecting_file
from herdpy.storage.backup_file import BackupContent
from herdpy.storage.tablespace_list import PRESENT, TablespaceEntry, TablespaceList, problem_of
from herdpy.storage.whole_file import (
    BODY_OFFSET,
    decode_whole,
    encode_whole,
    stage_whole,
    staged_name,
    take_whole,
)

BACKUP = "BACKUP"
STAGED = staged_name(BACKUP)
_MAGIC = b"HERDPBKS"
_VERSION = 1
_BACKUP_ID_BYTES = 16
_SHA256_BYTES = 32
_FILE = re.compile(r"[0-9a-f]{32}\.backup(\.part)?")
_PART_HINT = (
    "Put back the file, or restore the other tablespaces one by one: "
    "`herdpy restore --tablespace NAME`."
)


class BackupPart(msgspec.Struct, array_like=True, frozen=True):
    """The backup of one tablespace: which one it is of, and what proves that it is this file."""

    entry: TablespaceEntry
    """As the list of tablespaces had it when the set was begun."""
    backup_id: bytes
    byte_count: int
    """Length of the file."""
    sha256: bytes
    """Of all before its last block, which has it, too."""

    @property
    def file(self) -> str:
        return backup_name(self.backup_id)


class BackupSet(msgspec.Struct, array_like=True, frozen=True):
    """All of them, `default` first."""

    parts: tuple[BackupPart, ...]

    def find(self, tablespace: str) -> BackupPart | None:
        """Return the backup of the tablespace of that name."""
        return next((part for part in self.parts if part.entry.name == tablespace), None)


def backup_name(backup_id: bytes) -> str:
    return f"{backup_id.hex()}.backup"


def is_ours(name: str) -> bool:
    """Return whether a file of that name in the folder of a set is one of sets."""
    return name in (BACKUP, STAGED) or _FILE.fullmatch(name) is not None


def read_set(disk: Disk, where: str) -> BackupSet:
    """Return what the manifest in a folder says. CorruptionError; NotSupportedError."""
    name = f"{where}/{BACKUP}"

    def damage(offset: int, problem: str) -> CorruptionError:
        return CorruptionError(
            f"damaged manifest of a backup set {name} at offset {offset}: {problem}",
            hint="Use another set; each FILE.backup beside it can be restored alone.",
        )

    with expecting_file(name):
        data = disk.read(BACKUP)
    body = decode_whole(data, name, _MAGIC, _VERSION, damage)
    try:
        found = msgspec.msgpack.decode(body, type=BackupSet)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise damage(BODY_OFFSET, f"malformed: {error}") from error
    problem = _problem_of(found)
    if problem is not None:
        raise damage(BODY_OFFSET, problem)
    return found


def write_set(disk: Disk, made: BackupSet) -> None:
    """Have the folder be this set, whose backups are durable: durable on return.

    DiskFullError, OSError: it is what it was, or this set.
    """
    problem = _problem_of(made)
    if problem is not None:
        raise InvariantViolation(problem)
    stage_whole(disk, BACKUP, encode_whole(_MAGIC, _VERSION, msgspec.msgpack.encode(made)))
    take_whole(disk, BACKUP)


def _problem_of(found: BackupSet) -> str | None:
    problem = problem_of(TablespaceList(0, tuple(part.entry for part in found.parts)))
    if problem is not None:
        return problem
    if len({part.backup_id for part in found.parts}) != len(found.parts):
        return "two tablespaces have one backup"
    for part in found.parts:
        name = part.entry.name
        if part.entry.state != PRESENT:
            return f"tablespace {name!r} has state {part.entry.state}"
        if len(part.backup_id) != _BACKUP_ID_BYTES or len(part.sha256) != _SHA256_BYTES:
            return f"the backup of tablespace {name!r} has no proper id or checksum"
        if part.byte_count < 1:
            return f"the backup of tablespace {name!r} has {part.byte_count} bytes"
    return None


def part_of(entry: TablespaceEntry, content: BackupContent, byte_count: int) -> BackupPart:
    """Return what to list of a backup that was read back. CorruptionError: it is of another one."""
    found = content.head.state.identity.uuid
    if found != entry.id:
        raise CorruptionError(
            f'the backup of tablespace "{entry.name}": expected that of {entry.id.hex()}, found '
            f"that of {found.hex()}",
            hint="The server gave the backup of another tablespace: begin again.",
        )
    return BackupPart(entry, content.head.backup_id, byte_count, content.sha256)


def missing_part_error(part: BackupPart, where: str) -> CorruptionError:
    return CorruptionError(
        f'{where}: the backup of tablespace "{part.entry.name}" is missing: expected the file '
        f"{part.file} of {part.byte_count:,} bytes, found none",
        hint=_PART_HINT,
    )


def check_part(part: BackupPart, content: BackupContent, byte_count: int, where: str) -> None:
    """Raise CorruptionError for a whole backup that is not the one that the manifest lists."""
    found = BackupPart(part.entry, content.head.backup_id, byte_count, content.sha256)
    of = content.head.state.identity.uuid
    if found == part and of == part.entry.id:
        return
    raise CorruptionError(
        f'{where}/{part.file} is not the backup of tablespace "{part.entry.name}": expected '
        f"backup {part.backup_id.hex()} of tablespace {part.entry.id.hex()} with "
        f"{part.byte_count:,} bytes, found {found.backup_id.hex()} of {of.hex()} with "
        f"{byte_count:,} bytes"
        + (", of other content" if found.backup_id == part.backup_id else ""),
        hint=_PART_HINT,
    )
