"""One entry log: a header, then records; a sealed one ends with a map of its ledgers and a trailer.

    header   8s magic "bookieE1" | u32 version | u32 log number | u32 count of source logs |
             u32 each of them (at most 64) | u32 CRC32C of all before; zeros up to 492;
             u64 journal file | u64 offset | u32 CRC32C of both, or zeros
    record   u8 kind, 3 zeros | u32 byte count | u32 CRC32C of the body | u32 check | u64 origin |
             body
    map      for each ledger: i64 ledger id | u64 bytes of its records
    trailer  8s magic "bookieT1" | u32 log number | u32 rows of the map | u64 map offset |
             u32 CRC32C of the map | u32 CRC32C of the trailer before

All integers are big-endian. check is the XOR of the other fields and the log's number. A location
is log number << 32 | offset of the body. origin is the location that the record was first written
at; compaction keeps it, so that of two records of one entry the one of the greater origin is the
newer. Records are of a flush sorted by ledger and entry. Nothing points to a record before the log
was fsynced; nothing is ever overwritten. Format and rules: docs/formats/entry_log.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from struct import Struct, pack
from typing import NamedTuple

from google_crc32c import value

from bookie.errors import CorruptFileError
from bookie.runtime.interfaces import Disk, File

HEADER_BYTES = 512
DIRECTORY = "entries"
VERSION = 1
SOURCES_MAX = 64
NOT_HERE = 0
"""In the index in the place of a location: metadata names this bookie for an entry it has not."""
LOG_NUMBER_MAX = 2**31 - 1  # a location fits a signed 64-bit integer
_MAGIC = b"bookieE1"
_TRAILER_MAGIC = b"bookieT1"
_HEADER = Struct(">8sIII")
_JOURNAL = Struct(">QQ")
_TRAILER = Struct(">8sIIQI")
_TRAILER_BYTES = _TRAILER.size + 4
_CRC = Struct(">I")
_JOURNAL_AT = HEADER_BYTES - _JOURNAL.size - _CRC.size
_RECORD = Struct(">B3xIIIQ")
RECORD_HEADER_BYTES = _RECORD.size
_MAP_ROW = Struct(">qQ")
_SALT = 0x656E7472  # so that zeros are no record
_BUFFER_BYTES = 256 * 1024
READ_BYTES_MIN = 4096
READ_BYTES_MAX = 128 * 1024
_LARGE_BYTES = 16 * 1024  # from here on a write of its own is cheaper than a copy
_WINDOW_BYTES = 1024 * 1024
_ENTRY_IDS = Struct(">qq")


class RecordKind(IntEnum):
    """What a record holds. The numbers are on disk and never used again."""

    ENTRY = 1
    """An entry packet."""
    LEDGER = 2
    """i64 ledger id, then the ledger's record: key, fence, LACs."""
    JOURNAL = 3
    """u64 journal file, u64 offset: what was durable when this flush began."""


class LogHeader(NamedTuple):
    """What the front of a log says."""

    log_number: int
    sources: tuple[int, ...]
    """The logs that compaction took the records from; none for a log of flushes."""
    journal: tuple[int, int] = (0, 0)
    """Journal file and offset before which all was durable when the log was begun; 0, 0: none."""


class LogTrailer(NamedTuple):
    """What the end of a sealed log says."""

    map_offset: int
    map_rows: int
    map_crc: int


class LogRecord(NamedTuple):
    """One record as it was found; `is_damaged`: the body is not what was written."""

    kind: int
    body: bytes
    crc: int
    origin: int
    location: int
    is_damaged: bool

    @property
    def total_bytes(self) -> int:
        """What the record takes in the log."""
        return RECORD_HEADER_BYTES + len(self.body)

    @property
    def ids(self) -> tuple[int, int]:
        """Ledger id and entry id of an ENTRY."""
        return _ENTRY_IDS.unpack_from(self.body)

    @property
    def ledger_id(self) -> int:
        """Of an ENTRY or a LEDGER."""
        return int.from_bytes(self.body[:8], "big", signed=True)

    @property
    def journal(self) -> tuple[int, int]:
        """File and offset of a JOURNAL."""
        file_number, offset = _JOURNAL.unpack(self.body)
        return file_number, offset

    def count_in(self, ledger_bytes: dict[int, int]) -> None:
        """Add its bytes to those of its ledger, as the map has them."""
        if self.kind != RecordKind.JOURNAL:
            ledger_id = self.ledger_id
            ledger_bytes[ledger_id] = ledger_bytes.get(ledger_id, 0) + self.total_bytes


def path_of(log_number: int, suffix: str = "log") -> str:
    return f"{DIRECTORY}/{log_number:08d}.{suffix}"


def number_of(name: str, suffix: str = "log") -> int | None:
    """Return the number in a log's file name, None for other names."""
    stem, dot, found = name.partition(".")
    return int(stem) if dot and found == suffix and stem.isdecimal() else None


def split_location(location: int) -> tuple[int, int]:
    """Return log number and offset of the body."""
    return location >> 32, location & 0xFFFFFFFF


def _check(kind: int, byte_count: int, crc: int, origin: int, log_number: int) -> int:
    return byte_count ^ crc ^ log_number ^ kind ^ (origin >> 32) ^ (origin & 0xFFFFFFFF) ^ _SALT


def encode_log_header(header: LogHeader) -> bytes:
    number, sources, journal = header
    data = _HEADER.pack(_MAGIC, VERSION, number, len(sources))
    data += pack(f">{len(sources)}I", *sources)
    data = (data + _CRC.pack(value(data))).ljust(HEADER_BYTES, b"\0")
    if journal == (0, 0):
        return data
    position = _JOURNAL.pack(*journal)
    return data[:_JOURNAL_AT] + position + _CRC.pack(value(position))


def decode_log_header(data: bytes, path: str) -> LogHeader:
    """Return the header; CorruptFileError when it is damaged or of another version."""
    if len(data) >= HEADER_BYTES:
        magic, version, number, count = _HEADER.unpack_from(data)
        end = _HEADER.size + 4 * count
        if magic == _MAGIC and count <= SOURCES_MAX:
            (crc,) = _CRC.unpack_from(data, end)
            if crc == value(data[:end]) and version == VERSION:
                sources = Struct(f">{count}I").unpack_from(data, _HEADER.size)
                return LogHeader(number, sources, _decode_journal(data))
    raise CorruptFileError(
        f"{path}: expected the header of an entry log of version {VERSION}, found "
        f"{data[:16].hex()}; its entries cannot be listed, and it is kept"
    )


def _decode_journal(header: bytes) -> tuple[int, int]:
    """Return the journal position of a header; 0, 0 of a damaged one: nothing is read by it."""
    position = header[_JOURNAL_AT : _JOURNAL_AT + _JOURNAL.size]
    (crc,) = _CRC.unpack_from(header, _JOURNAL_AT + _JOURNAL.size)
    if crc != value(position):
        return 0, 0
    file_number, offset = _JOURNAL.unpack(position)
    return file_number, offset


def encode_map(log_number: int, map_offset: int, ledger_bytes: Mapping[int, int]) -> bytes:
    """Return map and trailer of a log whose records end at map_offset."""
    rows = b"".join(_MAP_ROW.pack(*row) for row in sorted(ledger_bytes.items()))
    trailer = _TRAILER.pack(_TRAILER_MAGIC, log_number, len(ledger_bytes), map_offset, value(rows))
    return rows + trailer + _CRC.pack(value(trailer))


def decode_trailer(data: bytes, log_number: int) -> LogTrailer | None:
    """Return what the last bytes of a log say, None when they are no trailer of it."""
    if len(data) != _TRAILER_BYTES:
        return None
    magic, number, rows, offset, map_crc = _TRAILER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _TRAILER.size)
    if magic != _TRAILER_MAGIC or number != log_number or crc != value(data[: _TRAILER.size]):
        return None
    return LogTrailer(offset, rows, map_crc)


class EntryLogWriter:
    """Appends to one new log; one thread at a time. After an OSError it is only good for close().

    What it wrote counts once sync() and the sync of the directory have returned.
    """

    def __init__(
        self,
        disk: Disk,
        log_number: int,
        *,
        suffix: str = "log",
        sources: Sequence[int] = (),
        journal: tuple[int, int] = (0, 0),
    ) -> None:
        self._disk = disk
        self.log_number = log_number
        self.path = path_of(log_number, suffix)
        self._file: File = disk.open(self.path, create=True, exclusive=True)
        self._buffer: list[bytes] = []
        self._buffer_bytes = 0
        self._written = 0
        self.byte_count = 0
        """Length of the log so far, with what is still in the buffer."""
        self.ledger_bytes: dict[int, int] = {}
        self._is_named = False
        self._is_dirty = True
        self._settled: tuple[int, dict[int, int]] = (0, {})  # byte_count, ledger_bytes
        self._put(encode_log_header(LogHeader(log_number, tuple(sources), journal)))

    def _put(self, data: bytes) -> None:
        self._buffer.append(data)
        self._buffer_bytes += len(data)
        self.byte_count += len(data)

    def append(
        self, kind: int, ledger_id: int, body: bytes, crc: int, origin: int | None = None
    ) -> int:
        """Append a record and return its location; not durable yet."""
        byte_count = len(body)
        number = self.log_number
        location = number << 32 | (self.byte_count + RECORD_HEADER_BYTES)
        if origin is None:
            origin = location
        check = _check(kind, byte_count, crc, origin, number)
        self._buffer.append(_RECORD.pack(kind, byte_count, crc, check, origin))
        total = RECORD_HEADER_BYTES + byte_count
        self.byte_count += total
        sizes = self.ledger_bytes
        sizes[ledger_id] = sizes.get(ledger_id, 0) + total
        if byte_count >= _LARGE_BYTES:
            self.write()
            self._file.write_at(self._written, body)
            self._written += byte_count
            return location
        self._buffer.append(body)
        self._buffer_bytes += total
        if self._buffer_bytes >= _BUFFER_BYTES:
            self.write()
        return location

    def append_journal(self, position: tuple[int, int]) -> None:
        """Append the journal file and offset before which all was durable; the map has it not."""
        body = _JOURNAL.pack(*position)
        kind, byte_count, crc = RecordKind.JOURNAL, len(body), value(body)
        origin = self.log_number << 32 | (self.byte_count + RECORD_HEADER_BYTES)
        check = _check(kind, byte_count, crc, origin, self.log_number)
        self._put(_RECORD.pack(kind, byte_count, crc, check, origin) + body)

    def write(self) -> None:
        """Hand the buffer to the operating system."""
        if self._buffer:
            self._is_dirty = True
            data = b"".join(self._buffer)
            self._buffer.clear()
            self._buffer_bytes = 0
            self._file.write_at(self._written, data)
            self._written += len(data)

    def sync(self) -> None:
        """Make everything appended durable, and the log's name."""
        self.write()
        if self._is_dirty:
            self._file.sync()
            self._is_dirty = False
        if not self._is_named:
            self._disk.sync_directory(DIRECTORY)
            self._is_named = True

    def settle(self) -> None:
        """Keep what was sync()ed: the index points to it."""
        self._settled = (self.byte_count, dict(self.ledger_bytes))

    @property
    def has_settled_records(self) -> bool:
        return self._settled[0] > HEADER_BYTES

    def roll_back(self) -> None:
        """Forget what was appended since the last settle(); no sync() may have failed since."""
        byte_count, ledger_bytes = self._settled
        self._file.truncate(byte_count)
        self._buffer.clear()
        self._buffer_bytes = 0
        self._written = self.byte_count = byte_count
        self.ledger_bytes = dict(ledger_bytes)
        self._is_dirty = True

    def seal(self) -> None:
        """Write map and trailer; durable on return. Nothing is appended afterwards.

        The records are durable before there is a trailer that speaks of them.
        """
        self.sync()
        self._put(encode_map(self.log_number, self.byte_count, self.ledger_bytes))
        self.sync()

    def close(self) -> None:
        self._file.close()


def read_records(file: File, locations: Sequence[int], path: str | None = None) -> list[LogRecord]:
    """Return the record at the first location, and those of the others that lie close behind it.

    The locations are of one log, ascending; messages call it `path`, or as the file is called. Of
    the others only whole, undamaged records of at most 128 KiB together come back. CorruptFileError
    names file and offset when there is no record at the first one, or its bytes are wrong.
    """
    path = file.path if path is None else path
    log_number, at = split_location(locations[0])
    start = at - RECORD_HEADER_BYTES
    if start < HEADER_BYTES:
        raise CorruptFileError(f"{path} at offset {at}: no record can begin there")
    last = split_location(locations[-1])[1] if len(locations) > 1 else at
    try:
        data = file.read_at(start, min(last - start + READ_BYTES_MIN, READ_BYTES_MAX))
    except OSError:  # maybe of a sector behind the record
        data = file.read_at(start, RECORD_HEADER_BYTES)
    first = _parse(data, 0, log_number, start)
    if isinstance(first, int):
        data = file.read_at(start, first)
        first = _parse(data, 0, log_number, start)
    if not isinstance(first, LogRecord) or first.is_damaged:
        raise CorruptFileError(
            f"{path} at offset {at}: the record is damaged; a running bookie copies the entry "
            f"anew from another one"
        )
    records = [first]
    for location in locations[1:]:
        offset = split_location(location)[1] - RECORD_HEADER_BYTES - start
        record = _parse(data, offset, log_number, start)
        if not isinstance(record, LogRecord):
            break
        if not record.is_damaged:
            records.append(record)
    return records


def _parse(data: bytes, offset: int, log_number: int, base: int) -> LogRecord | int | None:
    """Return the record, the bytes it needs when data ends before, or None for no record."""
    if len(data) - offset < RECORD_HEADER_BYTES:
        return None
    kind, byte_count, crc, check, origin = _RECORD.unpack_from(data, offset)
    if check != _check(kind, byte_count, crc, origin, log_number):
        return None
    start = offset + RECORD_HEADER_BYTES
    end = start + byte_count
    if end > len(data):
        return RECORD_HEADER_BYTES + byte_count
    body = data[start:end]
    location = log_number << 32 | (base + start)
    return LogRecord(kind, body, crc, origin, location, value(body) != crc)


class EntryLogReader:
    """Reads one log from front to end; close() when done."""

    def __init__(self, disk: Disk, log_number: int, suffix: str = "log") -> None:
        self.path = path_of(log_number, suffix)
        self._file = disk.open(self.path)
        try:
            self.byte_count = self._file.size()
            self.header = decode_log_header(self._file.read_at(0, HEADER_BYTES), self.path)
            if self.header.log_number != log_number:
                raise CorruptFileError(
                    f"{self.path}: its header is that of log {self.header.log_number}; it is kept"
                )
            tail_at = max(self.byte_count - _TRAILER_BYTES, HEADER_BYTES)
            self._trailer = decode_trailer(self._file.read_at(tail_at, _TRAILER_BYTES), log_number)
            self.offset = HEADER_BYTES
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    @property
    def is_sealed(self) -> bool:
        return self._trailer is not None

    def ledger_map(self) -> dict[int, int] | None:
        """Return bytes by ledger id as the map says; None: not sealed, or the map is damaged."""
        trailer = self._trailer
        if trailer is None:
            return None
        data = self._file.read_at(trailer.map_offset, trailer.map_rows * _MAP_ROW.size)
        if len(data) != trailer.map_rows * _MAP_ROW.size or value(data) != trailer.map_crc:
            return None
        return dict(_MAP_ROW.iter_unpack(data))

    def records(self, offset: int = HEADER_BYTES) -> Iterator[LogRecord]:
        """Yield the records, damaged ones too, up to the map, or to where no record begins.

        From `offset` on, which is behind a record; the attribute is behind the last one yielded.
        """
        end = self._trailer.map_offset if self._trailer else self.byte_count
        number = self.header.log_number
        window, start = b"", offset
        self.offset = offset
        while True:
            record = _parse(window, self.offset - start, number, start)
            if not isinstance(record, LogRecord):
                start = self.offset
                window = self._file.read_at(start, min(_WINDOW_BYTES, end - start))
                record = _parse(window, 0, number, start)
                if isinstance(record, int) and record <= end - start:
                    window = self._file.read_at(start, record)
                    record = _parse(window, 0, number, start)
                if not isinstance(record, LogRecord):
                    return
            self.offset += record.total_bytes
            yield record

    @property
    def is_read_whole(self) -> bool:
        """Tell, after records(), whether they reached the map."""
        return self._trailer is not None and self.offset == self._trailer.map_offset


def seal_leftover(disk: Disk, log_number: int, records_end_min: int) -> bool:
    """Seal the log that a crash left open; False: it is damaged before records_end_min, and kept.

    What follows the last whole record, or a torn one behind records_end_min, was never pointed to
    and is cut off.
    """
    reader = EntryLogReader(disk, log_number)
    ledger_bytes: dict[int, int] = {}
    end = HEADER_BYTES
    try:
        for record in reader.records():
            if record.is_damaged and reader.offset > records_end_min:
                break
            end = reader.offset
            record.count_in(ledger_bytes)
    finally:
        reader.close()
    if end < records_end_min:
        return False
    file = disk.open(reader.path)
    try:
        file.truncate(end)
        file.sync()
        file.write_at(end, encode_map(log_number, end, ledger_bytes))
        file.sync()
    finally:
        file.close()
    return True


def sync_log(disk: Disk, log_number: int) -> None:
    """Make what can be read of a log durable."""
    file = disk.open(path_of(log_number))
    try:
        file.sync()
    finally:
        file.close()
