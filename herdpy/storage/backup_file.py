"""Backup file: a checkpoint as one stream of checked blocks, written once and read back whole.

docs/formats/backup.md. Numbers are little-endian. Blocks follow each other without gaps:

    offset  width  type   meaning
    0       4      bytes  magic "HBK" and version 0x01
    4       4      u32    kind: 1 head, 2 segment, 3 end
    8       8      u64    number of the segment; 0 for the other kinds
    16      8      u64    length n of the body
    24      4      u32    zero
    28      4      u32    CRC32C of the block's offset in the file (u64) and of bytes 0 to 28
    32      n      bytes  body
    32+n    4      u32    CRC32C of the body

First a head (msgpack of BackupHead), then the segments that its state lists, ascending, each as its
file is, then an end (msgpack of BackupEnd), and nothing behind it. There are no names in it: what
is restored is called by its number. CorruptionError names file and offset. No I/O, no threads.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple, TypeVar

import google_crc32c
import msgspec

from herdpy.errors import CorruptionError, InvariantViolation
from herdpy.model.lsn import FILE_LEDGER_ID
from herdpy.storage.manifest import LogDurable, ManifestState, apply_edit, check_ids, without_log

T = TypeVar("T")
Progress = Callable[[int, int], object]
"""Called with (bytes done, bytes in all; 0: how many there are is not known)."""

PIECE_BYTES = 1024 * 1024
COUNTER_MAX = 2**62
"""More than any position, id or epoch of a real database comes to."""
_BLOCK = Struct("<4sIQQI")
_CRC_BYTES = 4
_HEAD_BYTES = _BLOCK.size + _CRC_BYTES
_MAGIC = b"HBK\x01"
_KIND_HEAD, _KIND_SEGMENT, _KIND_END = 1, 2, 3
_HINT = "the backup does not hold what was written: use another one"


def progress_behind(done: int, total: int, progress: Progress | None) -> Progress | None:
    """Return a progress that goes on behind so many bytes, of `total`; None: of None."""
    return None if progress is None else lambda more, _: progress(done + more, total)


class BackupHead(msgspec.Struct, array_like=True, frozen=True):
    """What was backed up: by whom, when, and everything but the rows.

    backup_id is 16 random bytes; made_us are microseconds since 1970; state.log_id is that of the
    original, and its log files are none.
    """

    backup_id: bytes
    made_us: int
    software: str
    state: ManifestState


class BackupEnd(msgspec.Struct, array_like=True, frozen=True):
    """Proof that nothing is missing: segments and their bytes, SHA-256 of all before this block."""

    segment_count: int
    byte_count: int
    sha256: bytes


class BackedUpSegment(NamedTuple):
    """A segment's bytes in the file, and the CRC32C that they were found to have."""

    view: memoryview
    crc: int


class BackupContent(NamedTuple):
    """A verified backup; the views end with the mapping of its file."""

    head: BackupHead
    segments: dict[int, BackedUpSegment]
    sha256: bytes
    """Of all before the last block."""

    @property
    def byte_count(self) -> int:
        return sum(len(segment.view) for segment in self.segments.values())


def write_blocks(
    head: BackupHead, segments: Sequence[tuple[int, Callable[[], memoryview]]]
) -> Iterator[bytes]:
    """Yield the bytes of a backup, in pieces of at most PIECE_BYTES.

    Segments are (number, its bytes, asked for when their turn comes), ascending by number.
    """
    writer = _Writer()
    yield from writer.block(_KIND_HEAD, 0, memoryview(msgspec.msgpack.encode(head)))
    byte_count = 0
    for number, view_of in segments:
        view = view_of()
        byte_count += len(view)
        yield from writer.block(_KIND_SEGMENT, number, view)
    end = BackupEnd(len(segments), byte_count, writer.sha256())
    yield from writer.block(_KIND_END, 0, memoryview(msgspec.msgpack.encode(end)))


class _Writer:
    def __init__(self) -> None:
        self._offset = 0
        self._digest = hashlib.sha256()

    def sha256(self) -> bytes:
        return self._digest.digest()

    def block(self, kind: int, number: int, body: memoryview) -> Iterator[bytes]:
        yield self._sent(_block_head(self._offset, kind, number, len(body)))
        crc = 0
        for start in range(0, len(body), PIECE_BYTES):
            piece = bytes(body[start : start + PIECE_BYTES])
            crc = google_crc32c.extend(crc, piece)
            yield self._sent(piece)
        yield self._sent(crc.to_bytes(_CRC_BYTES, "little"))

    def _sent(self, data: bytes) -> bytes:
        self._offset += len(data)
        self._digest.update(data)
        return data


def _block_head(offset: int, kind: int, number: int, length: int) -> bytes:
    head = _BLOCK.pack(_MAGIC, kind, number, length, 0)
    crc = google_crc32c.value(offset.to_bytes(8, "little") + head)
    return head + crc.to_bytes(_CRC_BYTES, "little")


def crc_of(view: memoryview) -> int:
    crc = 0
    for start in range(0, len(view), PIECE_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[start : start + PIECE_BYTES]))
    return crc


def read_backup(view: memoryview, where: str, progress: Progress | None = None) -> BackupContent:
    """Verify every byte of a backup and return what is in it; CorruptionError."""
    reader = _Reader(view, where, progress or (lambda *_: None))
    kind, _, body, _ = reader.block()
    if kind != _KIND_HEAD:
        raise reader.damage(0, f"expected a head first, found a block of kind {kind}")
    head = reader.decoded(body, BackupHead)
    listed = _checked_state(head.state, reader)
    segments: dict[int, BackedUpSegment] = {}
    for number, byte_count in sorted(listed.segments.items()):
        start = reader.offset
        kind, found, body, crc = reader.block()
        if (kind, found, len(body)) != (_KIND_SEGMENT, number, byte_count):
            raise reader.damage(
                start,
                f"expected segment {number} of {byte_count} bytes, found kind {kind}, number "
                f"{found}, {len(body)} bytes",
            )
        segments[number] = BackedUpSegment(body, crc)
    start, sha256 = reader.offset, reader.sha256()
    content = BackupContent(head, segments, sha256)
    kind, _, body, _ = reader.block()
    if kind != _KIND_END:
        raise reader.damage(start, f"expected the end, found a block of kind {kind}")
    if reader.decoded(body, BackupEnd) != BackupEnd(len(segments), content.byte_count, sha256):
        raise reader.damage(start, "the end does not fit what stands before it")
    if reader.offset != len(view):
        raise reader.damage(reader.offset, f"{len(view) - reader.offset} bytes behind the end")
    return content


class _Reader:
    def __init__(self, view: memoryview, where: str, progress: Progress) -> None:
        self.offset = 0
        self._view = view
        self._where = where
        self._progress = progress
        self._digest = hashlib.sha256()

    def damage(self, offset: int, problem: str) -> CorruptionError:
        return CorruptionError(
            f"damaged backup {self._where} at offset {offset}: {problem}", hint=_HINT
        )

    def sha256(self) -> bytes:
        return self._digest.digest()

    def block(self) -> tuple[int, int, memoryview, int]:
        """Return the next block's (kind, number, body, CRC of the body), all verified."""
        start, view = self.offset, self._view
        body_start = start + _HEAD_BYTES
        head = bytes(view[start:body_start])
        if len(head) < _HEAD_BYTES:
            raise self.damage(start, f"expected a block, found the end of {len(view)} bytes")
        magic, kind, number, length, _ = _BLOCK.unpack_from(head)
        if magic != _MAGIC:
            raise self.damage(start, f"expected magic {_MAGIC!r}, found {magic!r}")
        if head != _block_head(start, kind, number, length):
            raise self.damage(start, "the head of the block has a wrong CRC")
        body_end = body_start + length
        if body_end + _CRC_BYTES > len(view):
            raise self.damage(
                start, f"a block of {length} bytes; the file ends at {len(view)}: it was cut"
            )
        self._take(head)
        body = view[body_start:body_end]
        crc = 0
        for offset in range(0, length, PIECE_BYTES):
            piece = bytes(body[offset : offset + PIECE_BYTES])
            crc = google_crc32c.extend(crc, piece)
            self._take(piece)
        tail = bytes(view[body_end : body_end + _CRC_BYTES])
        if tail != crc.to_bytes(_CRC_BYTES, "little"):
            raise self.damage(
                body_start,
                f"CRC of the body: expected {int.from_bytes(tail, 'little'):08x}, found {crc:08x}",
            )
        self._take(tail)
        return kind, number, body, crc

    def decoded(self, body: memoryview, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(body, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.damage(self.offset, f"a block that cannot be read: {error}") from error

    def _take(self, data: bytes) -> None:
        self._digest.update(data)
        self.offset += len(data)
        self._progress(self.offset, len(self._view))


def _checked_state(state: ManifestState, reader: _Reader) -> ManifestState:
    try:
        check_ids(state)
        fitting = apply_edit(state, LogDurable(0))
    except InvariantViolation as error:
        raise reader.damage(0, f"its state contradicts itself: {error}") from error
    numbers = [*state.segments, state.next_segment - 1]
    ledger, entry, index = state.checkpoint_lsn
    counts = (entry, index, state.position, state.next_table_id, state.next_segment)
    if (
        state != without_log(state)
        or state.pins
        or ledger != FILE_LEDGER_ID
        or not all(0 <= count < COUNTER_MAX for count in counts)
        or max(state.tables, default=0) >= state.next_table_id
        or min(state.tables, default=1) < 1
        or state.segments != fitting.segments
        or min(numbers) < 0
        or max(numbers) != state.next_segment - 1
        or 0 in state.segments
    ):
        raise reader.damage(0, "its state contradicts itself: files or numbers it cannot have")
    return state
