"""The bytes of a journal file: a header, then batches of records, each batch at a multiple of 512.

    file header   8s  magic "bookieJ1" | u32 version | u64 file number | u32 CRC32C of these 20
                  bytes; zeros up to 512
    batch header  4s  magic "BATC" | u32 CRC32C of the rest of the header and of the table |
                  u64 file number | u64 own offset | u64 durable offset | u32 record count |
                  u32 byte count of the bodies
    table         for each record: u32 kind | u32 byte count | u32 CRC32C of the body
    bodies        one behind the other; zeros up to the next multiple of 512

All integers are big-endian. The durable offset says that everything before it in this file was
fsynced when the batch was written: this is what tells a torn tail from damage in the middle. The
file's number and the offset in every batch keep what a recycled file held before from counting.
A file that has a successor ends with a batch of one END record; it is fsynced before anything is
written to the successor. Format and rules: docs/formats/journal.md.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct, pack
from typing import NamedTuple

from google_crc32c import extend, value

from bookie.errors import CorruptFileError
from bookie.runtime.interfaces import Disk, File

BLOCK_BYTES = 512
VERSION = 1
DIRECTORY = "journal"
_FILE_MAGIC = b"bookieJ1"
_BATCH_MAGIC = b"BATC"
_FILE_HEADER = Struct(">8sIQ")
_CRC = Struct(">I")
_BATCH_HEADER = Struct(">4sIQQQII")
_BATCH_CHECKED_AT = 8
_TABLE_ROW_BYTES = 12
_RECORDS_MAX = 1 << 20
_LEDGER_ID = Struct(">q")
_WINDOW_BYTES = 1024 * 1024
_LARGE_BYTES = 16 * 1024  # from here on a write of its own is cheaper than a copy


class Kind(IntEnum):
    """What a record says. The numbers are on disk and never used again."""

    ENTRY = 1
    """The entry packet as it came."""
    MASTER_KEY = 2
    """i64 ledger id, then the key."""
    FENCE = 3
    """i64 ledger id, then the master key: one record, so that none is there without the other."""
    EXPLICIT_LAC = 4
    """i64 ledger id, then the LAC packet as it came."""
    END = 5
    """The next file goes on; no body."""


class Position(NamedTuple):
    """A place in the journal; of two, the greater one is the later one."""

    file_number: int
    offset: int


NOWHERE = Position(0, 0)
"""Before every file."""


class Record(NamedTuple):
    """One record; `crc` is that of the body."""

    kind: int
    crc: int
    body: bytes


def record_of(kind: Kind, ledger_id: int, rest: bytes) -> Record:
    """Return a record about a ledger."""
    body = _LEDGER_ID.pack(ledger_id) + rest
    return Record(kind, value(body), body)


def split_record(body: bytes) -> tuple[int, bytes]:
    """Return ledger id and the rest of a record about a ledger."""
    return _LEDGER_ID.unpack_from(body)[0], body[_LEDGER_ID.size :]


def path_of(file_number: int) -> str:
    return f"{DIRECTORY}/{file_number:08d}.journal"


def number_of(name: str) -> int | None:
    """Return the number in a journal file's name, None for other names."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "journal" and stem.isdecimal() else None


def encode_file_header(file_number: int) -> bytes:
    header = _FILE_HEADER.pack(_FILE_MAGIC, VERSION, file_number)
    return (header + _CRC.pack(value(header))).ljust(BLOCK_BYTES, b"\0")


def decode_file_header(data: bytes) -> int | None:
    """Return the file's number, or None when this is no header of a version we read."""
    if len(data) < BLOCK_BYTES:
        return None
    magic, version, number = _FILE_HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _FILE_HEADER.size)
    if magic != _FILE_MAGIC or crc != value(data[: _FILE_HEADER.size]):
        return None
    if version != VERSION:
        raise CorruptFileError(
            f"journal file {number}: expected version {VERSION}, found {version}; it was written "
            f"by a newer bookie, start that one"
        )
    return number


def encode_batch(position: Position, durable_offset: int, records: Sequence[Record]) -> bytes:
    """Return the batch that stands at position, padded."""
    return b"".join(batch_pieces(position, durable_offset, records))


def batch_pieces(position: Position, durable_offset: int, records: Sequence[Record]) -> list[bytes]:
    """Return the batch in pieces to write one behind the other; large bodies are not copied."""
    numbers: list[int] = []
    body_bytes = 0
    for kind, crc, body in records:
        byte_count = len(body)
        numbers += (kind, byte_count, crc)
        body_bytes += byte_count
    table = pack(f">{len(numbers)}I", *numbers)
    number, offset = position
    head = (number, offset, durable_offset, len(records), body_bytes)
    checked = _BATCH_HEADER.pack(_BATCH_MAGIC, 0, *head)[_BATCH_CHECKED_AT:]
    crc = extend(value(checked), table)
    small: list[bytes] = [_BATCH_HEADER.pack(_BATCH_MAGIC, crc, *head), table]
    pieces: list[bytes] = []
    for record in records:
        body = record.body
        if len(body) < _LARGE_BYTES:
            small.append(body)
        else:
            if small:  # an empty piece would be a system call for nothing
                pieces.append(b"".join(small))
                small = []
            pieces.append(body)
    small.append(bytes(-(_BATCH_HEADER.size + len(table) + body_bytes) % BLOCK_BYTES))
    pieces.append(b"".join(small))
    return pieces


class Batch(NamedTuple):
    """A batch whose header and table are right; `records` ends before the first damaged body."""

    offset: int
    end: int
    durable_offset: int
    records: list[Record]
    damaged_at: int | None
    """Offset in the file of the first body that is not what was written."""


class JournalFileReader:
    """Reads one file; `number` is None when the header is not (yet) valid."""

    def __init__(self, disk: Disk, file_number: int) -> None:
        self.path = path_of(file_number)
        self._expected = file_number
        self._file: File = disk.open(self.path)
        try:
            self.byte_count = self._file.size()
            self.is_begun = decode_file_header(self._file.read_at(0, BLOCK_BYTES)) == file_number
        except BaseException:
            self._file.close()
            raise
        self._start = 0
        self._window = b""

    def close(self) -> None:
        self._file.close()

    def _read(self, offset: int, byte_count: int) -> bytes:
        end = offset + byte_count
        if offset < self._start or end > self._start + len(self._window):
            self._window = self._file.read_at(offset, max(byte_count, _WINDOW_BYTES))
            self._start = offset
        at = offset - self._start
        return self._window[at : at + byte_count]

    def batch(self, offset: int) -> Batch | None:
        """Return the batch at offset; None when there is none whose header is right."""
        header = self._read(offset, _BATCH_HEADER.size)
        if len(header) < _BATCH_HEADER.size or header[:4] != _BATCH_MAGIC:
            return None
        _, crc, number, own, durable, count, body_bytes = _BATCH_HEADER.unpack(header)
        if number != self._expected or own != offset or not 0 < count <= _RECORDS_MAX:
            return None
        table = self._read(offset + _BATCH_HEADER.size, count * _TABLE_ROW_BYTES)
        if crc != extend(value(header[_BATCH_CHECKED_AT:]), table):
            return None
        at = offset + _BATCH_HEADER.size + len(table)
        end = at + body_bytes
        end += -end % BLOCK_BYTES
        records: list[Record] = []
        for kind, byte_count, body_crc in Struct(">III").iter_unpack(table):
            body = self._read(at, byte_count)
            if len(body) != byte_count or value(body) != body_crc:
                return Batch(offset, end, durable, records, at)
            records.append(Record(kind, body_crc, body))
            at += byte_count
        return Batch(offset, end, durable, records, None)

    def is_durable_beyond(self, offset: int) -> int | None:
        """Return the offset of a later batch that says that bytes at offset were fsynced."""
        at = offset - offset % BLOCK_BYTES + BLOCK_BYTES
        while at < self.byte_count:
            window = self._file.read_at(at, _WINDOW_BYTES)
            found = window.find(_BATCH_MAGIC)
            while found >= 0:
                if found % BLOCK_BYTES == 0:
                    batch = self.batch(at + found)
                    if batch is not None and batch.durable_offset > offset:
                        return at + found
                found = window.find(_BATCH_MAGIC, found + 1)
            at += _WINDOW_BYTES
        return None


def check_reached(disk: Disk, durable: Position) -> None:
    """Check that the journal has the file of a position that was durable; CorruptFileError."""
    if not disk.exists(path_of(durable.file_number)):
        raise CorruptFileError(
            f"{path_of(durable.file_number)}: expected the file up to which index or entry logs "
            f"have the journal, found none; the journal is an older copy, or they are left of a "
            f"bookie that was here before: restore the newer journal, or format this bookie, its "
            f"index too, and let its ledgers be replicated again"
        )


def read_records(
    disk: Disk, mark: Position | None, durable: Position = NOWHERE
) -> Iterator[tuple[Position, Record]]:
    """Yield the records from mark on (None: from the first file), and end at the torn tail.

    durable: everything before it was fsynced. CorruptFileError when something that was fsynced is
    missing or damaged.
    """
    names = disk.list(DIRECTORY)
    numbers = sorted(n for n in map(number_of, names) if n is not None)
    if mark is not None:
        numbers = [n for n in numbers if n >= mark.file_number]
        if not numbers or numbers[0] != mark.file_number:
            raise CorruptFileError(
                f"{path_of(mark.file_number)}: the journal's mark names it, and it is missing; "
                f"entries may be lost: restore the file, or format this bookie and let its ledgers "
                f"be replicated again"
            )
    must_begin = mark is not None
    for index, number in enumerate(numbers):
        start = mark.offset if mark and number == mark.file_number else BLOCK_BYTES
        durable_offset = durable.offset if number == durable.file_number else 0
        is_ended = yield from _read_file(
            disk, number, start, must_begin=must_begin, durable_offset=durable_offset
        )
        rest = numbers[index + 1 :]
        if not is_ended:
            _check_unused(disk, number, rest)
            return
        if not rest or rest[0] != number + 1:
            raise CorruptFileError(
                f"{path_of(number + 1)}: {path_of(number)} says that it goes on there, and it is "
                f"missing; restore the file, or format this bookie"
            )
        must_begin = True


def _read_file(
    disk: Disk, number: int, offset: int, *, must_begin: bool, durable_offset: int
) -> Iterator[tuple[Position, Record]]:
    """Yield the records of one file and return whether it ends with END."""
    reader = JournalFileReader(disk, number)
    try:
        if not reader.is_begun:
            if must_begin:
                raise _damage(reader.path, 0, "the header is not that of the file")
            return False
        if reader.byte_count < offset:
            raise _damage(reader.path, reader.byte_count, f"the mark has all before {offset}")
        while True:
            batch = reader.batch(offset)
            if batch is None:
                broken_at = offset
                break
            for record in batch.records:
                if record.kind == Kind.END:
                    return True
                yield Position(number, offset), record
            if batch.damaged_at is not None:
                broken_at = batch.damaged_at
                break
            offset = batch.end
        if broken_at < durable_offset:
            raise _damage(reader.path, broken_at, f"index or logs have all before {durable_offset}")
        proof = reader.is_durable_beyond(broken_at)
        if proof is not None:
            raise _damage(
                reader.path, broken_at, f"the batch at {proof} says that this was on disk"
            )
        return False
    finally:
        reader.close()


def _check_unused(disk: Disk, number: int, later: Sequence[int]) -> None:
    """Check that nothing was written behind a file without END; one may have been made."""
    for other in later:
        reader = JournalFileReader(disk, other)
        try:
            if reader.is_begun and reader.batch(BLOCK_BYTES) is not None:
                raise _damage(path_of(number), 0, f"it has no end, but {reader.path} goes on")
        finally:
            reader.close()


def _damage(path: str, offset: int, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} at offset {offset}: expected what was written, found damage ({found}); "
        f"acknowledged entries may be lost: restore the file, or format this bookie and let its "
        f"ledgers be replicated again"
    )
