"""Page: at most page_rows_max rows of one table, by column, in Arrow's buffer layout, immutable.

Rows stand in key order, each key once. All numbers are little-endian; docs/formats/page.md:

    offset  width  type   meaning
    0       4      bytes  magic "HDPG"
    4       2      u16    format version, 1
    6       2      u16    zero
    8       4      u32    header length h
    12      4      u32    length of the whole page, a multiple of 64
    16      4      u32    row count, at least 1
    20      4      u32    CRC32C of the seed, of bytes 0 to 20 and of 24 to the data area
    24      h      bytes  header: msgpack of PageHeader
    a = 24 + h up to the next multiple of 64: the data area, buffers at multiples of 64

A buffer is [offset from a, length, CRC32C]; the CRC covers the zero padding behind it too, so that
every byte of a page is under one. It is verified when the buffer is first touched. The seed says
where the page stands (segment.py); it is empty while the page is in no segment, and in FORMAT 1.
A reader's methods raise CorruptionError (file, offset) and may be called from any thread.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter, le, lt
from struct import Struct
from typing import Any, NamedTuple, cast

import google_crc32c
import msgspec

from herdpy.errors import CorruptionError, InvariantViolation, damaged
from herdpy.limits import buffer_alignment_bytes, page_bytes_max, page_rows_max
from herdpy.model.keys import encode_key
from herdpy.model.schema import Table
from herdpy.model.types import FLOAT_KINDS, Key, Kind, Physical, Row, SqlType
from herdpy.storage.column import (
    WIDTHS,
    Cells,
    ColumnBuffers,
    Layout,
    Reader,
    compile_cells,
    constant_reader,
    encode_values,
    int128,
    layout_of,
    numbers,
    pack_bits,
    value_reader,
    zone_of,
)

if sys.byteorder != "little":
    raise ImportError("herdpy.storage maps little-endian pages; this machine is big-endian")

Columns = frozenset[int]
"""Ordinals of columns that a reader of rows looks at."""
_MAGIC = b"HDPG"
_VERSION = 1
_PRELUDE = Struct("<4sHHIII")
_PRELUDE_BYTES = 24
_COLUMN_CHOICES_MAX = 16
_NEAR_ROWS = 8  # where the end of a range is looked for first, and then twice as far
_COLUMN_OVERHEAD_BYTES = 512
"""More than a column's share of header, zones and padding; see split_rows."""


class ColumnHeader(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One column of a page; buffers are validity (only when null_count > 0), then the data's.

    low and high bound every value that is neither NULL nor NaN; None is no bound. INT128 bounds
    are 16 bytes.
    """

    id: int
    kind: int
    layout: int
    is_dictionary: bool
    null_count: int
    has_nan: bool
    low: Any
    high: Any
    buffers: list[tuple[int, int, int]]


class PageHeader(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The header. key_index: sorted u32 CRC32Cs of the keys' bytes, u16 row of each; or nothing."""

    table_id: int
    columns: list[ColumnHeader]
    key_index: list[tuple[int, int, int]]


class BuiltPage(NamedTuple):
    """A page ready to be written, with its first and last key as bytes."""

    data: bytes
    row_count: int
    low_key: bytes
    high_key: bytes


def aligned(byte_count: int) -> int:
    """Return byte_count rounded up to the alignment of buffers."""
    return -(-byte_count // buffer_alignment_bytes) * buffer_alignment_bytes


def integer_key(table: Table) -> int | None:
    """Return the key's ordinal when the key is one column held as int16, int32 or int64."""
    if len(table.key) != 1:
        return None
    (ordinal,) = table.key
    layout = layout_of(table.columns[ordinal].type)
    return ordinal if layout in (Layout.INT16, Layout.INT32, Layout.INT64) else None


_SPLIT_ROWS = 64
_SHORT_LENGTH_MAX = 1024

# --- building ------------------------------------------------------------------------------------


def split_rows(table: Table, rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Cut rows into pieces that build_page accepts: by count, and by bytes before encoding.

    Rows are taken a few at a time as they are needed: no more than those and one piece are held.
    """
    layouts = [layout_of(column.type) for column in table.columns]
    strings = [ordinal for ordinal, layout in enumerate(layouts) if layout is Layout.BYTES]
    row_bytes = sum(WIDTHS.get(layout, 5) for layout in layouts) + 7 + len(layouts) // 8
    room = page_bytes_max - 1024 - _COLUMN_OVERHEAD_BYTES * len(layouts)
    rows = iter(rows)
    piece: list[Row] = []
    used = 0
    while chunk := list(islice(rows, _SPLIT_ROWS)):
        texts: Iterator[Any] = chain.from_iterable(map(itemgetter(i), chunk) for i in strings)
        lengths = list(map(len, filter(None, texts)))
        size = row_bytes * len(chunk) + 4 * sum(lengths)
        is_short = max(lengths, default=0) <= _SHORT_LENGTH_MAX
        if is_short and used + size <= room and len(piece) + len(chunk) <= page_rows_max:
            piece += chunk  # nearly always: what comes now, at once
            used += size
            continue
        for row in chunk:
            size = row_bytes + sum(_string_bytes(row[ordinal]) for ordinal in strings)
            if piece and (len(piece) == page_rows_max or used + size > room):
                yield piece
                piece, used = [], 0
            piece.append(row)
            used += size
    if piece:
        yield piece


def _string_bytes(value: Any) -> int:
    """Return how many bytes a string takes at most; only long ones are worth encoding for it."""
    if not value:
        return 0
    is_long = isinstance(value, str) and len(value) > _SHORT_LENGTH_MAX
    return len(value.encode()) if is_long else 4 * len(value)  # a character's most


def build_page(table: Table, rows: Sequence[Row]) -> BuiltPage:
    """Return the page of these rows, which ascend by key; InvariantViolation if they do not."""
    if not 0 < len(rows) <= page_rows_max:
        raise InvariantViolation(f"page: expected 1 to {page_rows_max} rows, found {len(rows)}")
    heap = Heap()
    headers: list[ColumnHeader] = []
    columns = list(zip(*rows, strict=True))
    for column, values in zip(table.columns, columns, strict=True):
        try:
            headers.append(_encode_column(column.id, column.type, values, heap))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InvariantViolation(
                f'page: column "{column.name}" of table "{table.name}" holds a value '
                f"that is not physical {column.type}: {error}"
            ) from error
    ordinal = integer_key(table)
    keys = None if ordinal is not None else [table.key_of(row) for row in rows]
    values = columns[ordinal] if ordinal is not None else keys
    if not all(map(lt, values, islice(values, 1, None))):  # type: ignore[arg-type]  # one of them
        raise InvariantViolation(f'page: rows of table "{table.name}" do not ascend by key')
    ends = (table.key_of(rows[0]), table.key_of(rows[-1]))
    return finish_page(table, heap, headers, len(rows), keys, ends)


def finish_page(
    table: Table,
    heap: "Heap",
    headers: list[ColumnHeader],
    row_count: int,
    keys: Sequence[Key] | None,
    ends: tuple[Key, Key],
) -> BuiltPage:
    """Return the page of columns that are in `heap`; ends are its first and its last key.

    keys: those of all rows, in order, None when integer_key() says that no index is needed.
    """
    kinds = table.key_kinds
    index: list[tuple[int, int, int]] = []
    if keys is not None:
        hashes = [google_crc32c.value(encode_key(key, kinds)) for key in keys]
        pairs = sorted((value << 16) | row for row, value in enumerate(hashes))
        index.append(heap.add(array("I", [pair >> 16 for pair in pairs]).tobytes()))
        index.append(heap.add(array("H", [pair & 0xFFFF for pair in pairs]).tobytes()))
    header = msgspec.msgpack.encode(PageHeader(table.id, headers, index))
    area = aligned(_PRELUDE_BYTES + len(header))
    total = area + heap.byte_count
    if total > page_bytes_max:
        raise InvariantViolation(f"page: expected at most {page_bytes_max} bytes, found {total}")
    prelude = _PRELUDE.pack(_MAGIC, _VERSION, 0, len(header), total, row_count)
    rest = header.ljust(area - _PRELUDE_BYTES, b"\0")
    crc = google_crc32c.value(prelude + rest).to_bytes(4, "little")
    data = b"".join([prelude, crc, rest, *heap.parts])
    return BuiltPage(data, row_count, encode_key(ends[0], kinds), encode_key(ends[1], kinds))


def sealed(page: bytes | memoryview, seed: bytes) -> list[bytes | memoryview]:
    """Return the pieces of a page for the place that `seed` says; its buffers are not read."""
    header_length = _PRELUDE.unpack_from(page)[3]
    area = aligned(_PRELUDE_BYTES + header_length)
    head = bytes(page[:area])
    crc = google_crc32c.value(seed + head[:20] + head[24:]).to_bytes(4, "little")
    return [head[:20], crc, head[24:], memoryview(page)[area:]]


class Heap:
    """Collects the buffers of a page under construction."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.byte_count = 0

    def add(self, data: bytes) -> tuple[int, int, int]:
        padded = data.ljust(aligned(len(data)), b"\0")
        entry = (self.byte_count, len(data), google_crc32c.value(padded))
        self.parts.append(padded)
        self.byte_count += len(padded)
        return entry


_FILLERS: dict[Kind, Physical] = {Kind.BOOLEAN: False, Kind.TEXT: "", Kind.BYTEA: b""}


def _encode_column(
    column_id: int, sql_type: SqlType, values: tuple[Physical, ...], heap: Heap
) -> ColumnHeader:
    layout = layout_of(sql_type)
    buffers: list[tuple[int, int, int]] = []
    present: Sequence[Any] = values
    filled: Sequence[Any] = values
    null_count = 0
    try:  # nearly every column has no NULL, and encoding finds out for nothing
        data = encode_values(layout, sql_type.kind, filled)
    except TypeError:
        flags = bytes([value is not None for value in values])
        null_count = flags.count(0)
        if not null_count:
            raise
        buffers.append(heap.add(pack_bits(flags)))
        present = [value for value in values if value is not None]
        filler = _FILLERS.get(sql_type.kind, 0)
        filled = [filler if value is None else value for value in values]
        data = encode_values(layout, sql_type.kind, filled)
    is_dictionary = False
    if sql_type.kind is Kind.TEXT:
        distinct = dict.fromkeys(present)
        if 0 < len(distinct) <= len(values) // 4:
            is_dictionary = True
            position = {value: index for index, value in enumerate(distinct)}
            indices = array("i", [position.get(value, 0) for value in filled])
            data = [indices.tobytes(), *encode_values(layout, Kind.TEXT, list(distinct))]
            present = list(distinct)
    buffers.extend(heap.add(part) for part in data)
    has_nan, low, high = zone_of(layout, present)
    return ColumnHeader(
        column_id,
        sql_type.kind.value,
        layout,
        is_dictionary,
        null_count,
        has_nan,
        low,
        high,
        buffers,
    )


# --- reading -------------------------------------------------------------------------------------

_HEADER_DECODER = msgspec.msgpack.Decoder(PageHeader)


class Page:
    """A reader of one page; nothing is checked or decoded before it is needed.

    Constant after __init__: buffer, table, where, base_offset. What is decoded is kept, by one
    assignment each; two threads that decode the same thing at once get equal results.
    """

    __slots__ = (
        "_area",
        "_chosen_cells",
        "_columns",
        "_ends",
        "_expected_rows",
        "_finder",
        "_header",
        "_key_cells",
        "_key_numbers",
        "_readers",
        "_row_cells",
        "_row_count",
        "_seed",
        "arrow_cache",
        "base_offset",
        "buffer",
        "table",
        "where",
    )

    def __init__(
        self,
        buffer: memoryview,
        table: Table,
        *,
        where: str,
        base_offset: int = 0,
        row_count: int | None = None,
        seed: bytes = b"",
        ends: tuple[Key, Key] | None = None,
    ) -> None:
        """Keep what is needed to read the page later.

        `ends` are its first and last key, compared at first touch where no seed says its place.
        """
        self._seed = seed
        self._ends = ends
        self.buffer = buffer
        self.table = table
        self.where = where
        self.base_offset = base_offset
        self.arrow_cache: dict[Any, Any] = {}
        """Arrays over this page's buffers, filled by storage/arrow.py."""
        self._expected_rows = row_count
        self._header: PageHeader | None = None
        self._columns: dict[int, ColumnHeader] = {}
        self._area = 0
        self._row_count = 0
        self._readers: list[Reader | None] = [None] * len(table.columns)
        self._row_cells: tuple[Cells, tuple[Any, ...]] | None = None
        self._key_cells: dict[int, tuple[Cells, tuple[Any, ...]]] = {}
        """By how many of the key's columns."""
        self._chosen_cells: dict[tuple[int, ...], tuple[Cells, tuple[Any, ...]]] = {}
        self._finder: Callable[[Key], int] | None = None
        self._key_numbers: memoryview | None = None

    @property
    def row_count(self) -> int:
        self.check_header()
        return self._row_count

    def find(self, key: Key) -> int:
        """Return the row of a whole canonical key, -1 when it is not here."""
        finder = self._finder
        if finder is None:
            finder = self._finder = self._make_finder()
        return finder(key)

    def row(self, index: int) -> Row:
        cells = self._row_cells
        if cells is None:
            cells = compile_cells([self._reader(i) for i in range(len(self._readers))])
            self._row_cells = cells
        return cells[0](cells[1], index)

    def cells(self, index: int, ordinals: tuple[int, ...]) -> Row:
        """Return some columns of one row; the others are not touched."""
        cells = self._chosen_cells.get(ordinals)
        if cells is None:
            cells = compile_cells([self._reader(ordinal) for ordinal in ordinals])
            if len(self._chosen_cells) < _COLUMN_CHOICES_MAX:
                self._chosen_cells[ordinals] = cells
        return cells[0](cells[1], index)

    def rows(self, start: int, stop: int, columns: Columns | None = None) -> list[Row]:
        """Return rows start to stop (exclusive), decoded column by column.

        Of `columns` (None: all) only; in the places of the others stands None.
        """
        nothing = [None] * (stop - start)
        slices = [
            self._reader(i).slice(start, stop) if columns is None or i in columns else nothing
            for i in range(len(self._readers))
        ]
        return list(zip(*slices, strict=True))

    def key(self, index: int) -> Key:
        """Return the canonical key of one row; reads the key's columns only."""
        cells, views = self._cells_of_key(len(self.table.key))
        return cells(views, index)

    def _cells_of_key(self, width: int) -> tuple[Cells, tuple[Any, ...]]:
        """Return what reads the first columns of a row's canonical key."""
        cells = self._key_cells.get(width)
        if cells is None:
            key, kinds = self.table.key[:width], self.table.key_kinds
            wraps = ["float_order" if kind in FLOAT_KINDS else "" for kind in kinds[:width]]
            cells = self._key_cells[width] = compile_cells([self._reader(i) for i in key], wraps)
        return cells

    def lower_bound(self, bound: Key, is_inclusive: bool, first: int = 0) -> int:
        """Return the first row not before a key or prefix; exclusive: the first past all with it.

        For an upper bound the end of the range is lower_bound(high, not high_inclusive, start):
        of the rows from `first` on, near which it is looked for first.
        """
        width = len(bound)
        search = bisect_left if is_inclusive else bisect_right
        if width == 1:
            keys = self._key_numbers
            if keys is None and integer_key(self.table) is not None:
                keys = self._open_key_numbers()
            if keys is not None:
                return search(keys, cast("tuple[int]", bound)[0], first)
        cells, views = self._cells_of_key(width)
        end, step = self.row_count, _NEAR_ROWS
        is_before = lt if is_inclusive else le
        while first and first + step < end:
            if not is_before(cells(views, first + step), bound):
                end = first + step
                break
            first += step + 1
            step *= 2
        return search(range(end), bound, first, key=lambda index: cells(views, index))

    def null_count(self, ordinal: int) -> int:
        header = self._column_header(ordinal)
        if header is not None:
            return header.null_count
        return self.row_count if self.table.columns[ordinal].default is None else 0

    def zone(self, ordinal: int) -> tuple[Physical, Physical] | None:
        """Return (low, high) around every value; high None: no upper bound. None: not known.

        NULLs are not looked at; a column of nothing but NULLs has no zone. The bounds of strings
        are cut to 32 bytes and may lie outside of the values.
        """
        header = self._column_header(ordinal)
        if header is None:
            default = self.table.columns[ordinal].default
            return None if default is None or default != default else (default, default)
        if header.low is None:
            return None
        if header.layout == Layout.INT128:
            return int128(header.low), int128(header.high)
        return header.low, header.high

    def may_hold(self, ordinal: int, low: Physical, high: Physical) -> bool:
        """Return False only if surely no row has low <= column <= high (None = open)."""
        zone = self.zone(ordinal)
        if zone is None:
            # NULLs alone answer no comparison; NaNs alone have no zone either, but may.
            return self.null_count(ordinal) < self.row_count
        least, most = cast("tuple[Any, Any]", zone)
        if high is not None and least > high:
            return False
        return low is None or most is None or not most < low

    def buffers(self, ordinal: int) -> ColumnBuffers | None:
        """Return the verified buffers of a column, None when the page does not have it."""
        header = self._column_header(ordinal)
        if header is None:
            return None
        views = [self._buffer(entry) for entry in header.buffers]
        validity = views.pop(0) if header.null_count else None
        layout = Layout(header.layout)
        count = self._row_count
        sizes = [(count + 7) // 8] if layout is Layout.BITS else [count * WIDTHS.get(layout, 4)]
        if layout is Layout.BYTES:
            if header.is_dictionary:
                sizes.append(len(views[1]) if len(views) == 3 else -1)
            else:
                sizes[0] += 4
            sizes.append(len(views[-1]))
        if [len(view) for view in views] != sizes:
            raise self._damage(0, f"column {header.id} does not have the buffers of its layout")
        return ColumnBuffers(layout, header.is_dictionary, header.null_count, validity, views)

    def is_dictionary(self, ordinal: int) -> bool:
        header = self._column_header(ordinal)
        return header is not None and header.is_dictionary

    def verify(self) -> None:
        """Check every checksum of the page, also of what was not read yet."""
        header = self._header or self._open()
        for column in header.columns:
            for entry in column.buffers:
                self._buffer(entry)
        for entry in header.key_index:
            self._buffer(entry)
        for ordinal in range(len(self.table.columns)):
            self.buffers(ordinal)

    def for_table(self, table: Table) -> "Page":
        """Return a reader of the page by another definition of its table (the key is the same)."""
        return self._over(table, self._ends)

    def check_header(self) -> None:
        """Verify the header, and by it where the page stands."""
        if self._header is None:
            self._open()

    # --- inside ---

    def _over(self, table: Table, ends: tuple[Key, Key] | None) -> "Page":
        return Page(
            self.buffer,
            table,
            where=self.where,
            base_offset=self.base_offset,
            row_count=self._expected_rows,
            seed=self._seed,
            ends=ends,
        )

    def _damage(self, offset: int, problem: str) -> CorruptionError:
        return damaged(
            f"damaged page in {self.where} at offset {self.base_offset + offset}: {problem}"
        )

    def _open(self) -> PageHeader:
        buffer = self.buffer
        if len(buffer) < _PRELUDE_BYTES:
            raise self._damage(0, f"expected at least {_PRELUDE_BYTES} bytes, found {len(buffer)}")
        magic, version, _, header_length, total, row_count = _PRELUDE.unpack_from(buffer)
        if magic != _MAGIC:
            raise self._damage(0, f"expected magic {_MAGIC!r}, found {magic!r}")
        area = aligned(_PRELUDE_BYTES + header_length)
        if total != len(buffer) or area > total:
            raise self._damage(8, f"expected {len(buffer)} bytes, found {total} (header {area})")
        covered = self._seed + bytes(buffer[:20]) + bytes(buffer[_PRELUDE_BYTES:area])
        expected = int.from_bytes(buffer[20:24], "little")
        found = google_crc32c.value(covered)
        if found != expected:
            raise self._damage(
                20,
                f"header CRC: expected {expected:08x}, found {found:08x}: damaged, or written for "
                "another place",
            )
        if version != _VERSION:
            raise self._damage(4, f"expected format version {_VERSION}, found {version}")
        try:
            header = _HEADER_DECODER.decode(buffer[_PRELUDE_BYTES : _PRELUDE_BYTES + header_length])
        except msgspec.DecodeError as error:
            raise self._damage(_PRELUDE_BYTES, f"malformed header: {error}") from error
        if header.table_id != self.table.id:
            raise self._damage(
                _PRELUDE_BYTES, f"expected table {self.table.id}, found {header.table_id}"
            )
        if row_count != (self._expected_rows or row_count):
            raise self._damage(16, f"expected {self._expected_rows} rows, found {row_count}")
        if self._ends is not None:
            alone = self._over(self.table, None)
            found_ends = (alone.key(0), alone.key(row_count - 1))
            if found_ends != self._ends:
                raise self._damage(
                    0,
                    f"expected keys from {self._ends[0]} to {self._ends[1]}, found "
                    f"{found_ends[0]} to {found_ends[1]}",
                )
        self._area = area
        self._row_count = row_count
        self._columns = {column.id: column for column in header.columns}
        self._header = header  # last: a thread that sees it sees the rest
        return header

    def _column_header(self, ordinal: int) -> ColumnHeader | None:
        if self._header is None:
            self._open()
        column = self.table.columns[ordinal]
        header = self._columns.get(column.id)
        if header is not None and (
            header.kind != column.type.kind.value or header.layout != layout_of(column.type)
        ):
            raise self._damage(
                _PRELUDE_BYTES,
                f'column "{column.name}": expected {column.type}, found kind {header.kind} '
                f"in layout {header.layout}",
            )
        return header

    def _buffer(self, entry: tuple[int, int, int]) -> memoryview:
        offset, length, expected = entry
        start = self._area + offset
        stop = start + aligned(length)
        if stop > len(self.buffer):
            raise self._damage(start, f"buffer of {length} bytes ends behind the page")
        found = google_crc32c.value(bytes(self.buffer[start:stop]))
        if found != expected:
            raise self._damage(start, f"buffer CRC: expected {expected:08x}, found {found:08x}")
        return self.buffer[start : start + length]

    def _reader(self, ordinal: int) -> Reader:
        reader = self._readers[ordinal]
        if reader is None:
            reader = self._readers[ordinal] = self._make_reader(ordinal)
        return reader

    def _make_reader(self, ordinal: int) -> Reader:
        buffers = self.buffers(ordinal)
        column = self.table.columns[ordinal]
        if buffers is None:
            return constant_reader(column.default)
        return value_reader(buffers, column.type.kind)

    def _open_key_numbers(self) -> memoryview:
        """Return the keys of a table whose key is one integer."""
        buffers = self.buffers(self.table.key[0])
        if buffers is None or buffers.validity is not None:
            raise self._damage(_PRELUDE_BYTES, "the key's column is missing or has NULLs")
        self._key_numbers = found = numbers(buffers)
        return found

    def _make_finder(self) -> Callable[[Key], int]:
        header = self._header or self._open()
        if integer_key(self.table) is not None:
            return _integer_finder(self._open_key_numbers())
        if len(header.key_index) != 2:
            raise self._damage(_PRELUDE_BYTES, "the index of the keys is missing")
        hashes = self._buffer(header.key_index[0]).cast("I")
        places = self._buffer(header.key_index[1]).cast("H")
        if not len(hashes) == len(places) == self._row_count:
            raise self._damage(_PRELUDE_BYTES, "the index of the keys has not one entry per row")
        kinds = self.table.key_kinds

        def find(key: Key) -> int:
            wanted = google_crc32c.value(encode_key(key, kinds))
            for position in range(bisect_left(hashes, wanted), len(hashes)):
                if hashes[position] != wanted:
                    break
                if self.key(places[position]) == key:
                    return places[position]
            return -1

        return find


def _integer_finder(view: memoryview) -> Callable[[Key], int]:
    last = len(view) - 1
    low, high = view[0], view[last]
    span = max(high - low, 1)

    def find(key: Key) -> int:
        (value,) = cast("tuple[int]", key)
        if not low <= value <= high:
            return -1
        # Keys are often dense: the straight line through the ends hits at once.
        guess = (value - low) * last // span
        if view[guess] == value:
            return guess
        index = bisect_left(view, value)
        return index if view[index] == value else -1

    return find
