"""The list of tablespaces: the file TABLESPACES of a database's directory, replaced as a whole.

docs/formats/tablespaces.md. Little-endian:

    offset  width  type   meaning
    0       8      bytes  magic "HERDPTSL"
    8       2      u16    format version 1
    10      2      u16    zero
    12      4      u32    length n of the body
    16      4      u32    CRC32C of bytes 0 to 16 and of the body
    20      n      bytes  body: msgpack of TablespaceList; nothing behind it

A directory without the file has one tablespace, `default`. One edit is one new file
(whole_file.py). CorruptionError names file and offset.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

import msgspec

from bookie.runtime.interfaces import Disk
from herdpy.errors import CorruptionError, InvariantViolation, expecting_file
from herdpy.limits import identifier_bytes_max, tablespaces_max
from herdpy.storage.whole_file import (
    BODY_OFFSET,
    decode_whole,
    encode_whole,
    stage_whole,
    staged_name,
    take_whole,
)

TABLESPACES = "TABLESPACES"
STAGED = staged_name(TABLESPACES)
DEFAULT = "default"
ID_BYTES = 16
_MAGIC = b"HERDPTSL"
_VERSION = 1

BY_FOLDER_HINT = (
    "`herdpy dump --salvage --tablespace FOLDER` saves what is in a folder of 32 hexadecimal "
    "digits, while no process has the directory open."
)
MAKING, PRESENT, LEAVING = 1, 2, 3
"""States of an entry. MAKING and LEAVING: it is no tablespace; its folder is to be removed."""


class TablespaceLimits(msgspec.Struct, array_like=True, frozen=True):
    """What one tablespace may have at most; None: as much as the database."""

    memory_bytes_max: int | None = None
    connections_max: int | None = None
    disk_bytes_max: int | None = None


NO_LIMITS = TablespaceLimits()


class TablespaceEntry(msgspec.Struct, array_like=True, frozen=True):
    """A tablespace. The id is that of its manifest, and never another one's."""

    id: bytes
    name: str
    state: int = PRESENT
    limits: TablespaceLimits = NO_LIMITS

    @property
    def folder(self) -> str:
        """The folder of its files, by its id: another name moves nothing."""
        return DEFAULT if self.name == DEFAULT else self.id.hex()

    @classmethod
    def of_folder(cls, folder: str) -> "TablespaceEntry":
        """Return what is known of a tablespace by its folder: that it is there, and its id."""
        return cls(bytes.fromhex(folder), folder)


class TablespaceList(msgspec.Struct, array_like=True, frozen=True, dict=True):
    """All of them, `default` first; version counts the edits."""

    version: int
    entries: tuple[TablespaceEntry, ...]

    def find(self, name: str) -> TablespaceEntry | None:
        """Return the tablespace of that name."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, TablespaceEntry]:
        return {each.name: each for each in self.present}

    @property
    def present(self) -> list[TablespaceEntry]:
        return [each for each in self.entries if each.state == PRESENT]

    @property
    def leftovers(self) -> list[TablespaceEntry]:
        """Those that are not there yet, or not any more."""
        return [each for each in self.entries if each.state != PRESENT]

    def with_entry(self, entry: TablespaceEntry) -> "TablespaceList":
        """Return the list with an entry in the place of the one of its id, or behind all."""
        entries = list(self.entries)
        for place, each in enumerate(entries):
            if each.id == entry.id:
                entries[place] = entry
                break
        else:
            entries.append(entry)
        return TablespaceList(self.version + 1, tuple(entries))

    def without(self, gone: Sequence[bytes]) -> "TablespaceList":
        """Return the list without the entries of these ids."""
        kept = tuple(each for each in self.entries if each.id not in gone)
        return TablespaceList(self.version + 1, kept)


def only_default(default_id: bytes) -> TablespaceList:
    """Return the list of a directory that has no file of it."""
    return TablespaceList(0, (TablespaceEntry(default_id, DEFAULT),))


def read_list(disk: Disk) -> TablespaceList | None:
    """Return what the file says, None: there is none. CorruptionError; NotSupportedError."""
    if not disk.exists(TABLESPACES):
        return None
    with expecting_file(TABLESPACES):
        data = disk.read(TABLESPACES)
    return decode_list(data)


def stage_list(disk: Disk, listed: TablespaceList) -> None:
    """Write and sync the next list, see stage_whole(); take_list() makes it count."""
    stage_whole(disk, TABLESPACES, encode_list(listed))


def forget_staged(disk: Disk) -> None:
    """Remove what a crash has left of a list that was staged, if the disk lets us."""
    if disk.exists(STAGED):
        with suppress(OSError):  # the next edit does it
            disk.unlink(STAGED)


def take_list(disk: Disk) -> None:
    """Have the staged list count: durable on return. On an error it is not known which one does."""
    take_whole(disk, TABLESPACES)


def encode_list(listed: TablespaceList) -> bytes:
    """Return the bytes of a list, as the file and the wire have them."""
    _check(listed, InvariantViolation)
    return encode_whole(_MAGIC, _VERSION, msgspec.msgpack.encode(listed))


def decode_list(data: bytes) -> TablespaceList:
    """Return the list of these bytes. CorruptionError; NotSupportedError."""
    body = decode_whole(data, TABLESPACES, _MAGIC, _VERSION, _damage)
    try:
        listed = msgspec.msgpack.decode(body, type=TablespaceList)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _damage(BODY_OFFSET, f"malformed: {error}") from error
    _check(listed, lambda problem: _damage(BODY_OFFSET, problem))
    return listed


def _check(listed: TablespaceList, error: Callable[[str], Exception]) -> None:
    """Raise what is wrong with a list, before it is written and after it is read."""
    problem = problem_of(listed)
    if problem is not None:
        raise error(problem)


def problem_of(listed: TablespaceList) -> str | None:
    """Return why it can be no list of tablespaces; None: it can."""
    entries = listed.entries
    if not entries or entries[0].name != DEFAULT or entries[0].state != PRESENT:
        return f"the first tablespace is not {DEFAULT}"
    if len(entries) > tablespaces_max:
        return f"{len(entries)} tablespaces, more than {tablespaces_max}"
    if len({each.id for each in entries}) != len(entries):
        return "two tablespaces have one id"
    names = [each.name for each in listed.present]
    if len(set(names)) != len(names):
        return "two tablespaces have one name"
    for each in entries:
        if len(each.id) != ID_BYTES or not 0 < len(each.name.encode()) <= identifier_bytes_max:
            return f"tablespace {each.name!r} has an id of {len(each.id)} bytes, or no proper name"
        if each.state not in (MAKING, PRESENT, LEAVING):
            return f"tablespace {each.name!r} has state {each.state}"
    return None


def _damage(offset: int, problem: str) -> CorruptionError:
    return CorruptionError(
        f"damaged list of tablespaces {TABLESPACES} at offset {offset}: {problem}",
        hint=f"Put back a copy of the file, or restore backups into new directories. "
        f"{BY_FOLDER_HINT}",
    )
