"""Columns of a page: how values of each type become buffers of Arrow's layout, and back.

docs/formats/page.md, "Layouts". Buffers of data, after the validity bitmap (1 = not NULL, lowest
bit first), which is there only when a value is NULL; under a NULL stands any value:
BITS one bitmap · INT16 … INT128, FLOAT32, FLOAT64 little-endian values · BYTES int32 offsets, one
more than values, and the bytes they cut · BYTES as dictionary int32 indices, then offsets and
bytes of the distinct values.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, NamedTuple, cast
from weakref import ReferenceType, ref

from bookie.runtime.drivers import new_mutex
from herdpy.model.keys import float_order
from herdpy.model.types import Kind, Physical, SqlType

_ZONE_BYTES_MAX = 32


class Layout(IntEnum):
    """The physical form of a column's values; the numbers are on disk."""

    BITS = 1
    INT32 = 2
    INT64 = 3
    INT128 = 4
    FLOAT64 = 5
    BYTES = 6
    FLOAT32 = 7
    INT16 = 8


FLOATS = (Layout.FLOAT32, Layout.FLOAT64)
WIDTHS = {
    Layout.INT16: 2, Layout.INT32: 4, Layout.INT64: 8, Layout.INT128: 16, Layout.FLOAT32: 4,
    Layout.FLOAT64: 8,
}  # fmt: skip
_LAYOUTS = {
    Kind.BOOLEAN: Layout.BITS,
    Kind.SMALLINT: Layout.INT16,
    Kind.INTEGER: Layout.INT32,
    Kind.DATE: Layout.INT32,
    Kind.BIGINT: Layout.INT64,
    Kind.TIMESTAMP: Layout.INT64,
    Kind.TIMESTAMPTZ: Layout.INT64,
    Kind.REAL: Layout.FLOAT32,
    Kind.DOUBLE: Layout.FLOAT64,
    Kind.TEXT: Layout.BYTES,
    Kind.BYTEA: Layout.BYTES,
}


def layout_of(sql_type: SqlType) -> Layout:
    """Return how a column of this type is laid out."""
    if sql_type.kind is Kind.DECIMAL:
        return Layout.INT64 if (sql_type.precision or 38) <= 18 else Layout.INT128
    return _LAYOUTS[sql_type.kind]


class ColumnBuffers(NamedTuple):
    """A column's verified buffers; validity is None when no value is NULL."""

    layout: Layout
    is_dictionary: bool
    null_count: int
    validity: memoryview | None
    data: list[memoryview]


_BIT_DIGITS = bytes.maketrans(bytes(range(256)), b"01" + b"x" * 254)


def pack_bits(flags: bytes) -> bytes:
    """Return flags (bytes 0 or 1, at least one) as an Arrow bitmap, lowest bit first."""
    number = int(flags[::-1].translate(_BIT_DIGITS), 2)
    return number.to_bytes((len(flags) + 7) // 8, "little")


def unpack_bits(data: bytes | memoryview, start: int, stop: int) -> list[bool]:
    """Return bits start to stop (exclusive) of a bitmap."""
    if stop <= start:
        return []
    number = int.from_bytes(data[start >> 3 : (stop + 7) >> 3], "little") >> (start & 7)
    count = stop - start
    return [digit == "1" for digit in f"{number:0{count}b}"[: -count - 1 : -1]]


def encode_values(layout: Layout, kind: Kind, values: Sequence[Any]) -> list[bytes]:
    """Return the data buffers of values without NULL; TypeError when there is one."""
    if layout is Layout.INT64:
        return [array("q", values).tobytes()]
    if layout is Layout.INT32:
        return [array("i", values).tobytes()]
    if layout is Layout.INT16:
        return [array("h", values).tobytes()]
    if layout is Layout.FLOAT64:
        return [array("d", values).tobytes()]
    if layout is Layout.FLOAT32:
        return [array("f", values).tobytes()]
    if layout is Layout.BITS:
        return [pack_bits(bytes(values))]
    if layout is Layout.INT128:
        if None in values:
            raise TypeError("NULL")
        return [b"".join([value.to_bytes(16, "little", signed=True) for value in values])]
    if kind is Kind.TEXT:
        text = "".join(values)
        data = text.encode()
        if len(data) != len(text):
            values = [value.encode() for value in values]
    else:
        data = b"".join(values)
    return [array("i", accumulate(map(len, values), initial=0)).tobytes(), data]


def zone_of(layout: Layout, present: Sequence[Any]) -> tuple[bool, Any, Any]:
    """Return (has NaN, low, high) of values without NULL, as the header keeps them."""
    has_nan = False
    if layout in FLOATS and (total := sum(present)) != total:  # or inf - inf
        numbers = [value for value in present if value == value]
        has_nan, present = len(numbers) < len(present), numbers
    if not present:
        return has_nan, None, None
    low, high = min(present), max(present)
    if layout is Layout.INT128:
        low, high = (value.to_bytes(16, "little", signed=True) for value in (low, high))
        return False, low, high
    if layout is Layout.BYTES:
        return False, _cut(low), _upper_bound(high)
    return has_nan, low, None if has_nan else high


def _cut(value: Any) -> Any:
    """Return at most the first 32 bytes of a string, whole characters; never above the value."""
    if isinstance(value, str):
        return value.encode()[:_ZONE_BYTES_MAX].decode(errors="ignore")
    return value[:_ZONE_BYTES_MAX]


def _upper_bound(value: Any) -> Any:
    """Return a short string not below value and all that begin like it, None if there is none."""
    prefix = _cut(value)
    if len(prefix) == len(value):
        return value
    while prefix:
        if isinstance(prefix, str):
            code = ord(prefix[-1]) + 1
            code = 0xE000 if code == 0xD800 else code  # surrogates are no characters
            follower = chr(code) if code <= 0x10FFFF else None
        else:
            follower = bytes([prefix[-1] + 1]) if prefix[-1] < 255 else None
        prefix = prefix[:-1]
        if follower is not None:
            return cast(Any, prefix) + follower
    return None


class Reader(NamedTuple):
    """A column's decoders: Python source of the value of row i, and the values of a slice of rows.

    The source names what it reads {0}, {1} …, which are `views`; see compile_cells.
    """

    source: str
    views: tuple[Any, ...]
    slice: Callable[[int, int], Sequence[Physical]]


Cells = Callable[[tuple[Any, ...], int], tuple[Any, ...]]
"""A function of (the views of all columns, row) that returns one row's cells."""


def compile_cells(
    readers: Sequence[Reader], wraps: Sequence[str] | None = None
) -> tuple[Cells, tuple[Any, ...]]:
    """Return the function for these columns and its views; wraps are function names or "".

    Pages of one shape share the function: a point read then touches little beside its views,
    which is a third of its time when the page is not in the processor's cache.
    """
    views: list[Any] = []
    parts: list[str] = []
    for reader, wrap in zip(readers, wraps or [""] * len(readers), strict=True):
        names = [f"v[{len(views) + position}]" for position in range(len(reader.views))]
        parts.append(f"{wrap}({reader.source.format(*names)})")
        views.extend(reader.views)
    return _compile("".join(f"{part}, " for part in parts)), tuple(views)


@lru_cache(maxsize=1024)
def _compile(cells: str) -> Cells:
    names = {"int128": int128, "float_order": float_order}
    return eval(f"lambda v, i: ({cells})", names)  # noqa: S307 - built from the sources below


_CASTS = {
    Layout.INT16: "h", Layout.INT32: "i", Layout.INT64: "q", Layout.FLOAT32: "f",
    Layout.FLOAT64: "d",
}  # fmt: skip
_TEXT_SOURCE = "str({1}[{0}[i] : {0}[i + 1]], 'utf-8')"
_BYTES_SOURCE = "bytes({1}[{0}[i] : {0}[i + 1]])"
_WORD_SOURCE = "str({2}[{1}[{0}[i]] : {1}[{0}[i] + 1]], 'utf-8')"


def numbers(buffers: ColumnBuffers) -> memoryview:
    """Return the values of a column of INT16, INT32, INT64, FLOAT32 or FLOAT64."""
    return buffers.data[0].cast(_CASTS[buffers.layout])  # type: ignore[call-overload]  # five formats


def int128(data: bytes | memoryview) -> int:
    return int.from_bytes(data, "little", signed=True)


def constant_reader(value: Physical) -> Reader:
    """Return the reader of a column that a page lacks."""
    return Reader("{0}", (value,), lambda start, stop: [value] * (stop - start))


def value_reader(buffers: ColumnBuffers, kind: Kind) -> Reader:
    """Return the reader of a column over its verified buffers."""
    reader = _present_reader(buffers, kind)
    validity = buffers.validity
    if validity is None:
        return reader
    place = f"{{{len(reader.views)}}}"
    return Reader(
        f"{reader.source} if {place}[i >> 3] >> (i & 7) & 1 else None",
        (*reader.views, validity),
        lambda start, stop: [
            value if is_valid else None
            for value, is_valid in zip(
                reader.slice(start, stop), unpack_bits(validity, start, stop), strict=True
            )
        ],
    )


def _present_reader(buffers: ColumnBuffers, kind: Kind) -> Reader:
    layout, data = buffers.layout, buffers.data
    first = data[0]
    if layout in _CASTS:
        view = numbers(buffers)
        return Reader("{0}[i]", (view,), lambda start, stop: view[start:stop].tolist())
    if layout is Layout.BITS:
        return Reader(
            "{0}[i >> 3] >> (i & 7) & 1 == 1",
            (first,),
            lambda start, stop: unpack_bits(first, start, stop),
        )
    if layout is Layout.INT128:
        return Reader(
            "int128({0}[16 * i : 16 * i + 16])",
            (first,),
            lambda start, stop: [int128(first[16 * i : 16 * i + 16]) for i in range(start, stop)],
        )
    if not buffers.is_dictionary:
        views = (first.cast("i"), data[1])
        if kind is Kind.TEXT:
            return Reader(_TEXT_SOURCE, views, lambda start, stop: _texts(*views, start, stop))
        return Reader(_BYTES_SOURCE, views, lambda start, stop: _byte_strings(*views, start, stop))
    offsets, indices = data[1].cast("i"), first.cast("i")
    words_of = _words_reader(offsets, data[2])

    def slice_of(start: int, stop: int) -> list[str]:
        words = words_of()
        return [words[index] for index in indices[start:stop]]

    return Reader(_WORD_SOURCE, (indices, offsets, data[2]), slice_of)


class _Words(list[str]):
    """The decoded words of a dictionary."""

    __slots__ = ("__weakref__", "byte_count")

    def __init__(self, words: list[str], heap_bytes: int) -> None:
        super().__init__(words)
        self.byte_count = heap_bytes + _WORD_BYTES * len(words)


class _RecentWords:
    """Keeps the words that were decoded last: who reads a page comes back to it.

    Kept by each page, they would be the larger part of a table that is read as a whole.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._kept: deque[_Words] = deque()
        self._byte_count = 0

    def add(self, words: _Words) -> None:
        """Keep them in place of older ones, unless they are too many; any thread."""
        if words.byte_count > _RECENT_BYTES_MAX // 4:  # a page may have some megabytes of them
            return
        if not self._mutex.acquire(blocking=False):  # a signal's handler may come in between
            return
        try:
            self._kept.append(words)
            self._byte_count += words.byte_count
            while self._byte_count > _RECENT_BYTES_MAX:
                self._byte_count -= self._kept.popleft().byte_count
        finally:
            self._mutex.release()


_WORD_BYTES = 64  # of an object, and its place in a list
_RECENT_BYTES_MAX = 2 * 1024 * 1024
_recent_words = _RecentWords()


def _words_reader(offsets: memoryview, heap: memoryview) -> Callable[[], list[str]]:
    """Return what gives the words of a dictionary, decoded anew when that was long ago."""
    kept: ReferenceType[_Words] | None = None

    def words_of() -> list[str]:
        nonlocal kept
        words = None if kept is None else kept()
        if words is None:
            words = _Words(_texts(offsets, heap, 0, len(offsets) - 1), len(heap))
            kept = ref(words)
            _recent_words.add(words)
        return words

    return words_of


def _byte_strings(offsets: memoryview, heap: memoryview, start: int, stop: int) -> list[bytes]:
    return [bytes(heap[offsets[i] : offsets[i + 1]]) for i in range(start, stop)]


def _texts(offsets: memoryview, heap: memoryview, start: int, stop: int) -> list[str]:
    cuts = offsets[start : stop + 1].tolist()
    base = cuts[0]
    data = bytes(heap[base : cuts[-1]])
    ends = islice(cuts, 1, None)
    if data.isascii():  # then characters are bytes, and one decoding serves all
        text = data.decode()
        return [text[a - base : b - base] for a, b in zip(cuts, ends, strict=False)]
    return [data[a - base : b - base].decode() for a, b in zip(cuts, ends, strict=False)]
