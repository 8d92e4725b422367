"""A small file of one checked body, which is replaced as a whole.

Little-endian:

    offset  width  type   meaning
    0       8      bytes  magic
    8       2      u16    format version
    10      2      u16    zero
    12      4      u32    length n of the body
    16      4      u32    CRC32C of bytes 0 to 16 and of the body
    20      n      bytes  body; nothing behind it

A new file is written beside the old one, synced, and renamed into its place: before the rename the
old one counts, behind it the new one.
"""

from collections.abc import Callable
from contextlib import suppress
from struct import Struct

import google_crc32c

from bookie.runtime.interfaces import DISK_FULL, Disk
from herdpy.errors import CorruptionError, DiskFullError, NotSupportedError

Damage = Callable[[int, str], CorruptionError]
"""Makes the error of an offset and a problem."""

_HEAD = Struct("<8sHHI")
_CRC_BYTES = 4
BODY_OFFSET = _HEAD.size + _CRC_BYTES


def encode_whole(magic: bytes, version: int, body: bytes) -> bytes:
    """Return the bytes of a file."""
    head = _HEAD.pack(magic, version, 0, len(body))
    return head + google_crc32c.value(head + body).to_bytes(_CRC_BYTES, "little") + body


def decode_whole(data: bytes, name: str, magic: bytes, version: int, damage: Damage) -> bytes:
    """Return the body of the file `name`. CorruptionError; NotSupportedError: it is newer."""
    if len(data) < BODY_OFFSET:
        raise damage(len(data), f"expected {BODY_OFFSET} bytes or more, found {len(data)}")
    found_magic, found_version, zero, length = _HEAD.unpack_from(data)
    if found_magic != magic:
        raise damage(0, f"expected {magic!r}, found {found_magic!r}")
    head, body = data[: _HEAD.size], data[BODY_OFFSET:]
    found = int.from_bytes(data[_HEAD.size : BODY_OFFSET], "little")
    if found_version == version and len(body) != length:
        at = min(BODY_OFFSET + length, len(data))
        raise damage(at, f"expected a body of {length} bytes, found {len(body)}")
    if google_crc32c.value(head + body) != found:
        raise damage(_HEAD.size, "the checksum is not that of header and body")
    if found_version != version or zero:
        raise NotSupportedError(
            f"{name} has version {found_version}; this herdpy reads {version} (offset 8)",
            hint="Read it with the newer herdpy that wrote it.",
        )
    return body


def stage_whole(disk: Disk, name: str, data: bytes) -> None:
    """Write and sync the next file beside the one that counts; take_whole() makes it count.

    DiskFullError, OSError: nothing has changed.
    """
    staged = staged_name(name)
    with suppress(FileNotFoundError):
        disk.unlink(staged)
    try:
        file = disk.open(staged, create=True, exclusive=True)
        try:
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
    except OSError as error:
        with suppress(OSError):  # on a full disk it would stay, and take room
            disk.unlink(staged)
        if error.errno in DISK_FULL:
            raise DiskFullError(f"{name}: no space left on the disk") from error
        raise


def take_whole(disk: Disk, name: str) -> None:
    """Have the staged file count: durable on return. On an error it is not known which one does."""
    disk.rename(staged_name(name), name)
    disk.sync_directory("")


def staged_name(name: str) -> str:
    return f"{name}.new"
