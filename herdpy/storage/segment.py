"""Segment: a file of pages and deletion bitmaps, written once, synced, then listed and mapped.

docs/formats/segment.md. The file header, 64 bytes, little-endian; parts follow at multiples of 64:

    offset  width  type   meaning
    0       8      bytes  magic "HERDPSEG"
    8       2      u16    format version, 2 (1: without id)
    10      2      u16    zero
    12      4      u32    CRC32C of bytes 0 to 12 and 16 to 64
    16      8      u64    segment number
    24      16     bytes  id of the file, as the manifest lists it
    40      24     bytes  zero

The id and the offset of a part are its seed: they go before the bytes that the CRC of the part's
header covers, and so a part is believed only where it was written. A segment of FORMAT 1 has no
id, and its parts no seed; nothing else differs.

A deletion bitmap has one bit for each row of a page, lowest first; 1 is dead:

    0       4      bytes  magic "HDBM"
    4       4      u32    row count of the page
    8       4      u32    number of dead rows
    12      4      u32    CRC32C of the seed, bytes 0 to 12 and 16 to the end, padding included
    16      n      bytes  bits, then zeros up to a multiple of 64
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

import google_crc32c

from bookie.runtime.interfaces import Disk
from herdpy.errors import InvariantViolation, damaged, expecting_file
from herdpy.storage.manifest import NewSegment
from herdpy.storage.page import aligned, sealed

_HEADER = Struct("<8sHHIQ16s24s")
_MAGIC = b"HERDPSEG"
_VERSION, _VERSION_WITHOUT_ID = 2, 1
_BITMAP = Struct("<4sIII")
_BITMAP_MAGIC = b"HDBM"
_FLUSH_BYTES = 4 * 1024 * 1024


def segment_name(number: int) -> str:
    return f"{number:08d}.segment"


def segment_number(name: str) -> int:
    """Return the number in a file's name, 0 when it is not a segment's."""
    stem, _, kind = name.partition(".")
    return int(stem) if kind == "segment" and stem.isascii() and stem.isdigit() else 0


def segment_header(number: int, file_id: bytes) -> bytes:
    """Return the first bytes of a segment; nothing else in it depends on its number.

    file_id: 16 bytes, or none for a segment of FORMAT 1.
    """
    version = _VERSION if file_id else _VERSION_WITHOUT_ID
    blank = _HEADER.pack(_MAGIC, version, 0, 0, number, file_id, b"")
    crc = google_crc32c.value(blank[:12] + blank[16:])
    return _HEADER.pack(_MAGIC, version, 0, crc, number, file_id, b"")


def _seed_of(file_id: bytes, offset: int) -> bytes:
    return file_id + offset.to_bytes(8, "little") if file_id else b""


class SegmentFolder(NamedTuple):
    """Where new segments go, and how their files get their ids."""

    disk: Disk
    path: str
    new_file_id: Callable[[], bytes]

    def writer(self, number: int) -> "SegmentWriter":
        """Begin a segment; see SegmentWriter."""
        name = segment_name(number)
        path = f"{self.path}/{name}" if self.path else name
        return SegmentWriter(self.disk, path, number, self.new_file_id())


class SegmentWriter:
    """Writes a new segment. The number must not be in use; a leftover of a crash is replaced.

    Any method may raise OSError; then call abandon().
    """

    def __init__(self, disk: Disk, path: str, number: int, file_id: bytes) -> None:
        self.number = number
        self.file_id = file_id
        self._disk = disk
        self._path = path
        with suppress(FileNotFoundError):
            disk.unlink(path)  # not truncated: a reader may still have it mapped
        self._file = disk.open(path, create=True, exclusive=True)
        self._pending: list[bytes | memoryview] = [segment_header(number, file_id)]
        self._written = 0
        self._end = _HEADER.size

    def append_page(self, page: bytes | memoryview) -> tuple[int, int]:
        """Add a page, of whatever seed, and return its (offset, length)."""
        return self._append(sealed(page, _seed_of(self.file_id, self._end)))

    def append_bitmap(self, bits: bytes, row_count: int, dead_count: int) -> tuple[int, int]:
        """Add a deletion bitmap and return its (offset, length)."""
        seed = _seed_of(self.file_id, self._end)
        return self._append([_build_bitmap(bits, row_count, dead_count, seed)])

    def finish(self) -> int:
        """Sync the file and return its length; the caller syncs the directory."""
        self._flush()
        self._file.sync()
        self._file.close()
        return self._end

    def opened(self) -> "Segment":
        return Segment.open(self._disk, self._path, self.number, self._end, self.file_id)

    @property
    def listed(self) -> NewSegment:
        return NewSegment(self.number, self._end, self.file_id)

    def abandon(self) -> None:
        """Remove the file as far as the disk lets us."""
        self._file.close()
        with suppress(OSError):  # unlisted: the next owner of the number replaces it
            self._disk.unlink(self._path)

    def _append(self, part: Sequence[bytes | memoryview]) -> tuple[int, int]:
        """Add the pieces of one part, a multiple of 64 bytes in all."""
        offset = self._end
        self._pending += part
        length = sum(map(len, part))
        self._end = offset + length
        if self._end - self._written >= _FLUSH_BYTES:
            self._flush()
        return offset, length

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._file.write_at(self._written, data)
        self._pending = []
        self._written += len(data)


class Segment:
    """A mapped segment; every view handed out keeps the mapping alive, also after unlink."""

    __slots__ = ("_mapping", "file_id", "number", "path", "view")

    def __init__(
        self, number: int, path: str, mapping: object, view: memoryview, file_id: bytes
    ) -> None:
        self.number = number
        self.path = path
        self.file_id = file_id
        """Empty in FORMAT 1."""
        self._mapping = mapping
        self.view = view

    @classmethod
    def open(cls, disk: Disk, path: str, number: int, byte_count: int, file_id: bytes) -> "Segment":
        """Map a listed segment; CorruptionError if it is no file, too short or another one."""
        with expecting_file(f"segment {path}"):
            found = disk.size(path)
        if found < byte_count or byte_count < _HEADER.size:
            raise damaged(
                f"segment {path} is shorter than the manifest says: "
                f"expected {byte_count}, found {found} bytes (offset {found})"
            )
        mapping = disk.map(path, byte_count)
        return cls.over(mapping.view, path, number, file_id, mapping)

    @classmethod
    def over(
        cls, view: memoryview, path: str, number: int, file_id: bytes, mapping: object
    ) -> "Segment":
        """Return the segment whose bytes are `view`, which `mapping` keeps alive."""
        header, wanted = bytes(view[: _HEADER.size]), segment_header(number, file_id)
        if header != wanted:
            magic, version, _, _, other, found_id, _ = _HEADER.unpack(header)
            raise damaged(
                f"segment {path}, offset 0: expected the header of segment {number}, version "
                f"{_HEADER.unpack(wanted)[1]}, id {file_id.hex() or 'none'}, found {magic!r}, "
                f"version {version}, number {other}, id {found_id.hex()}"
            )
        return cls(number, path, mapping, view, file_id)

    @property
    def byte_count(self) -> int:
        return len(self.view)

    def seed(self, offset: int) -> bytes:
        """Return what the checksum of the part at an offset begins with."""
        return _seed_of(self.file_id, offset)

    def part(self, offset: int, length: int) -> memoryview:
        """Return the bytes of one part; its own CRCs are not checked here."""
        if offset < _HEADER.size or offset % 64 or offset + length > len(self.view):
            raise damaged(
                f"segment {self.path}, offset {offset}: the manifest names a part of {length} "
                f"bytes, but the segment has {len(self.view)}"
            )
        return self.view[offset : offset + length]

    def bitmap(self, offset: int, length: int, row_count: int, dead_count: int) -> bytes:
        """Return the verified bits of a deletion bitmap."""
        data = bytes(self.part(offset, length))
        if len(data) != aligned(_BITMAP.size + (row_count + 7) // 8):
            found = f"{length} bytes"
        else:
            magic, rows, dead, crc = _BITMAP.unpack_from(data)
            bits = data[_BITMAP.size : _BITMAP.size + (row_count + 7) // 8]
            if (
                magic == _BITMAP_MAGIC
                and crc == google_crc32c.value(self.seed(offset) + data[:12] + data[16:])
                and (rows, dead) == (row_count, dead_count)
                and int.from_bytes(bits, "little").bit_count() == dead_count
            ):
                return bits
            found = f"{magic!r}, {rows} rows, {dead} dead, CRC {crc:08x}"
        raise damaged(
            f"damaged deletion bitmap in {self.path} at offset {offset}: expected {row_count} "
            f"rows, {dead_count} dead, found {found}"
        )


def _build_bitmap(bits: bytes, row_count: int, dead_count: int, seed: bytes) -> bytes:
    if int.from_bytes(bits, "little").bit_count() != dead_count:
        raise InvariantViolation(f"deletion bitmap: expected {dead_count} dead rows")
    blank = _BITMAP.pack(_BITMAP_MAGIC, row_count, dead_count, 0)
    rest = bits.ljust(aligned(_BITMAP.size + len(bits)) - _BITMAP.size, b"\0")
    crc = google_crc32c.value(seed + blank[:12] + rest)
    return _BITMAP.pack(_BITMAP_MAGIC, row_count, dead_count, crc) + rest
