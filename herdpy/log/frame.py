r"""The log frame: some records that reach the disk together, and what proves them whole.

Little-endian; docs/formats/log_frame.md says the same:

    offset width type  meaning
    0      8     bytes magic 89 48 45 52 44 4C 4F 47 ("\x89HERDLOG")
    8      2     u16   version, 2; 1 in a file that FORMAT 1 began
    10     2     u16   length of this header, 72
    12     4     u32   number of records, at least 1
    16     16    bytes id of the file, as the manifest lists it; version 1: log id
    32     8     u64   number of the file
    40     8     u64   length of the file, so that a cut file shows
    48     8     u64   sequence of the frame; consecutive over all files of a log, from 1
    56     8     u64   highest sequence known durable when this frame was written; lower than it
    64     4     u32   length of the payload
    68     4     u32   CRC32C of log id, the frame's offset in the file (u64), bytes 0 to 67 and the
                       payload; version 1: of bytes 0 to 67 and the payload
    72     n     payload: per record u32 length and the record; then zeros to a multiple of 8

The payload's length and CRC include the zeros. A whole frame has at most frame_bytes_max bytes.
"""

import struct
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import google_crc32c

from herdpy.limits import frame_bytes_max, record_bytes_max

MAGIC = b"\x89HERDLOG"
VERSION, VERSION_WITHOUT_ID = 2, 1
_VERSIONS = (VERSION, VERSION_WITHOUT_ID)
HEADER_BYTES = 72
ALIGNMENT = 8
RECORD_OVERHEAD_BYTES = 4

_HEADER = struct.Struct("<8sHHI16sQQQQI")  # without the CRC
_U32 = struct.Struct("<I")
_length_at = _U32.unpack_from


class Frame(NamedTuple):
    """A valid frame and the offset of the file behind it."""

    sequence: int
    durable_sequence: int
    file_bytes: int
    records: tuple[bytes, ...]
    end: int


class Invalid(NamedTuple):
    """No valid frame of this log and file starts here, because `reason`.

    bytes_needed > 0: the buffer ends before the frame does; decode again with that many bytes.
    """

    reason: str
    bytes_needed: int = 0


def frame_bytes(payload_bytes: int) -> int:
    """Return the length of a frame whose records, with their lengths, take payload_bytes."""
    return HEADER_BYTES + ((payload_bytes + ALIGNMENT - 1) & -ALIGNMENT)


def encode_frame(
    records: Sequence[bytes],
    *,
    log_id: bytes,
    file_id: bytes,
    file_number: int,
    file_bytes: int,
    offset: int,
    sequence: int,
    durable_sequence: int,
) -> bytes:
    """Return a frame for an offset of a file; without a file_id one of FORMAT 1."""
    if len(records) == 1:  # nearly always
        payload = _U32.pack(len(records[0])) + records[0]
    else:
        lengths = map(_U32.pack, map(len, records))
        payload = b"".join(chain.from_iterable(zip(lengths, records, strict=True)))
    payload += bytes(-len(payload) % ALIGNMENT)
    version = VERSION if file_id else VERSION_WITHOUT_ID
    shown_id, seed = _identity(version, log_id, file_id, offset)
    header = _HEADER.pack(
        MAGIC,
        version,
        HEADER_BYTES,
        len(records),
        shown_id,
        file_number,
        file_bytes,
        sequence,
        durable_sequence,
        len(payload),
    )
    crc = google_crc32c.extend(google_crc32c.value(seed + header), payload)
    return b"".join((header, _U32.pack(crc), payload))


def _identity(version: int, log_id: bytes, file_id: bytes, offset: int) -> tuple[bytes, bytes]:
    """Return the id that a frame shows, and what its CRC begins with."""
    if version == VERSION_WITHOUT_ID:
        return log_id, b""
    return file_id, log_id + offset.to_bytes(8, "little")


class Owner(NamedTuple):
    """Whose frame a header says that it is: id of the file (of the log in FORMAT 1), and number."""

    id: bytes
    file_number: int
    end: int
    """Where the next frame would begin, from this one's offset."""


def owner_of(header: bytes) -> Owner | None:
    """Return what a header says before any checksum is looked at; None when it is none."""
    if len(header) < HEADER_BYTES:
        return None
    magic, version, header_bytes, _, found_id, number, *_, length = _HEADER.unpack_from(header)
    is_ours = magic == MAGIC and version in _VERSIONS and header_bytes == HEADER_BYTES
    return Owner(found_id, number, HEADER_BYTES + length) if is_ours else None


def decode_frame(
    buffer: bytes,
    offset: int,
    *,
    log_id: bytes,
    file_id: bytes | None,
    file_number: int,
    sequence: int | None,
    base: int = 0,
) -> Frame | Invalid:
    """Return the frame at offset, or why there is none; any bytes are allowed.

    The buffer begins at offset `base` of the file, whose id is empty in FORMAT 1, and None when it
    is not listed: then every id will do. With a sequence, a valid frame of another sequence is
    Invalid too.
    """
    if len(buffer) - offset < HEADER_BYTES:
        return Invalid("the end of the file", HEADER_BYTES)
    (magic, version, header_bytes, count, found_id, found_number, file_bytes, found, durable,
     payload_bytes) = _HEADER.unpack_from(buffer, offset)  # fmt: skip
    if magic != MAGIC:
        return Invalid("zeros" if magic == bytes(8) else f"no magic but {magic.hex(' ')}")
    versions = _VERSIONS
    if file_id is not None:
        versions = (VERSION if file_id else VERSION_WITHOUT_ID,)
    if version not in versions or header_bytes != HEADER_BYTES:
        return Invalid(f"version {version} with a header of {header_bytes} bytes")
    wanted_id, seed = _identity(
        version, log_id, found_id if file_id is None else file_id, base + offset
    )
    if found_id != wanted_id:
        return Invalid(f"a frame of another file or log, with id {found_id.hex()}")
    if found_number != file_number:
        return Invalid(f"a frame of file number {found_number}")
    start = offset + HEADER_BYTES
    end = start + payload_bytes
    if payload_bytes % ALIGNMENT or end - offset > frame_bytes_max:
        return Invalid(f"a frame with a payload of {payload_bytes} bytes")
    if end > len(buffer):
        return Invalid("a frame that the file ends in", end - offset)
    payload = buffer[start:end]
    crc = google_crc32c.extend(google_crc32c.value(seed + buffer[offset : start - 4]), payload)
    if crc != _U32.unpack_from(buffer, start - 4)[0]:
        return Invalid("a frame with a wrong CRC")
    if sequence is not None and found != sequence:
        return Invalid(f"a frame with sequence {found}")
    records = _split(payload, count)
    if records is None or durable >= found:
        return Invalid("a frame with a right CRC and contradictory fields")
    return Frame(found, durable, file_bytes, records, base + end)


def _split(payload: bytes, count: int) -> tuple[bytes, ...] | None:
    """Return the records; None when they do not fill the payload up to its padding."""
    records: list[bytes] = []
    position, last = 0, len(payload) - RECORD_OVERHEAD_BYTES
    for _ in range(count):
        if position > last:
            return None
        start = position + RECORD_OVERHEAD_BYTES
        position = start + _length_at(payload, position)[0]
        records.append(payload[start:position])
    is_filled = 0 <= len(payload) - position < ALIGNMENT
    is_whole = is_filled and 0 <= max(map(len, records), default=-1) <= record_bytes_max
    return tuple(records) if is_whole else None
