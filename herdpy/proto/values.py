"""Values on the wire: parameters say their own type, rows have that of their columns.

Source: docs/protocols/frames.md, Values. NULL, booleans, integers of 64 bits, doubles, text and
bytes are MessagePack's own. In a parameter everything else is an extension, so that a date is never
taken for a text; in rows, whose columns are known, a DECIMAL, DATE, TIMESTAMP,
TIMESTAMPTZ or INTERVAL is its text.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain, islice
from typing import Annotated, Any, Final

import msgspec

from herdpy.errors import DataError, ProgrammingError
from herdpy.model.python_values import (
    INTEGER_BITS_MAX,
    KIND_CLASSES,
    plain_value,
    shown,
    unicode_text,
)
from herdpy.model.types import Kind

_DECIMAL, _DATE, _TIMESTAMP, _INTEGER, _FOREIGN, _INTERVAL = 1, 2, 3, 4, 5, 6
_NATIVE = (bool, int, float, str, bytes, None.__class__)
_NATIVE_TYPES = frozenset(_NATIVE)
_SEQUENCES = frozenset((tuple, list))
_INT64 = 1 << 63
_FOREIGN_NAME_MAX = 200
ROWS_MAX: Final = 65_536
"""Of one answer that a driver decodes; it asks for no more."""

Wire = Any
"""What msgspec encodes without a hook."""


# --- parameters ----------------------------------------------------------------------------------


def to_wire(parameters: Sequence[Any] | Mapping[str, Any] | None) -> Wire:
    """Return a statement's parameters as they go over the wire.

    DataError for a value that no type can hold, as the database in process raises it.
    """
    if parameters is None:
        return None
    if parameters.__class__ in _SEQUENCES and _NATIVE_TYPES.issuperset(map(type, parameters)):
        try:
            return msgspec.Raw(_encoder.encode(parameters))
        except (OverflowError, UnicodeEncodeError):
            pass  # a large integer, a lone surrogate: below
    if isinstance(parameters, Mapping):
        return {
            # No statement has a name that is no UTF-8, and the server says so.
            str(name).encode(errors="backslashreplace").decode(): _value(
                value, f"parameter :{name}"
            )
            for name, value in parameters.items()
        }
    return [_value(value, index) for index, value in enumerate(parameters)]


def many_to_wire(rows: Sequence[Any]) -> Wire:
    """Return executemany()'s parameters, as to_wire() returns each.

    Most have nothing in them that MessagePack has not itself, and go over as they are.
    """
    if _SEQUENCES.issuperset(map(type, rows)) and _NATIVE_TYPES.issuperset(
        map(type, chain.from_iterable(rows))
    ):
        try:
            return msgspec.Raw(_encoder.encode(rows))
        except (OverflowError, UnicodeEncodeError):
            pass  # a large integer, a lone surrogate: one by one
    return [to_wire(row) for row in rows]


def _value(value: Any, where: "int | str") -> Wire:
    kind = value.__class__
    if kind is str:
        return value if value.isascii() else unicode_text(value, _name(where))
    if kind in _NATIVE:
        if kind is int and not -_INT64 <= value < _INT64:
            if value.bit_length() > INTEGER_BITS_MAX:
                raise DataError(
                    f"{_name(where)}: value {shown(value)} is out of range for every type",
                    sqlstate="22003",
                )
            return msgspec.msgpack.Ext(_INTEGER, str(value).encode())
        return value
    plain = plain_value(value, _name(where))
    kind = plain.__class__
    if kind in _NATIVE:
        return _value(plain, where)
    if kind is Decimal:
        return msgspec.msgpack.Ext(_DECIMAL, str(plain).encode())
    if kind is datetime.datetime:
        return msgspec.msgpack.Ext(_TIMESTAMP, plain.isoformat().encode())
    if kind is datetime.date:
        return msgspec.msgpack.Ext(_DATE, plain.isoformat().encode())
    if kind is datetime.timedelta:
        return msgspec.msgpack.Ext(_INTERVAL, msgspec.to_builtins(plain).encode())
    text = f"{kind.__name__[:_FOREIGN_NAME_MAX]}\0{shown(value)}"
    return msgspec.msgpack.Ext(_FOREIGN, text.encode(errors="replace"))


def _name(where: "int | str") -> str:
    return where if isinstance(where, str) else f"parameter {where + 1}"


class _Foreign:
    """Stands for a value of a class that SQL does not know; its errors name that class."""

    __slots__ = ("shown",)
    shown: str

    def __repr__(self) -> str:
        return self.shown


@lru_cache(maxsize=64)
def _foreign_class(name: str) -> type[_Foreign]:
    # Kept, because a class costs a kilobyte, and a frame has room for millions of extensions.
    return type(name, (_Foreign,), {"__slots__": ()})


def from_extension(code: int, data: memoryview) -> Any:
    """Return the value of an extension; msgspec's ext_hook. ValueError: it is none."""
    text = bytes(data).decode()
    if code == _DECIMAL:
        return _decimal(text)
    if code == _DATE:
        return datetime.date.fromisoformat(text)
    if code == _TIMESTAMP:
        return datetime.datetime.fromisoformat(text)
    if code == _INTEGER:
        if len(text) > _INTEGER_DIGITS_MAX:
            raise ValueError(f"an integer of {len(text)} digits")
        return int(text)
    if code == _INTERVAL:
        return msgspec.convert(text, datetime.timedelta)
    if code == _FOREIGN:
        name, _, shown_as = text.partition("\0")
        foreign = _foreign_class(name[:_FOREIGN_NAME_MAX] or "object")()
        foreign.shown = shown_as
        return foreign
    raise ValueError(f"unknown extension {code}")


_INTEGER_DIGITS_MAX = 4000  # Python refuses to read more


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"no decimal: {text[:40]!r}") from None


# --- rows ----------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder(decimal_format="string")

encode_rows: Callable[[list[tuple[Any, ...]]], bytes] = _encoder.encode
"""Return rows, logical, as one MessagePack array of arrays."""


class RowsEncoder:
    """Encodes the next rows of an iterator up to a number of rows and, about, of bytes."""

    def __init__(
        self, bytes_max: int, rows_max: int, taken: list[tuple[Any, ...]] | None = None
    ) -> None:
        """With `taken` the rows are put there, too."""
        self._bytes_max = bytes_max
        self._rows_max = rows_max
        self._parts: list[bytes] = []
        self._taken = taken
        self.count = 0

    def take(self, rows: Iterator[tuple[Any, ...]]) -> bool:
        """Take rows until there are enough; True: there are no more."""
        byte_count, chunk_rows = 0, _FIRST_CHUNK_ROWS
        while byte_count < self._bytes_max and self.count < self._rows_max:
            wanted = min(chunk_rows, self._rows_max - self.count)
            chunk = list(islice(rows, wanted))
            if chunk:
                self.count += len(chunk)
                if self._taken is not None:
                    self._taken += chunk
                part = _encoder.encode(chunk)[_header_bytes(len(chunk)) :]
                self._parts.append(part)
                byte_count += len(part)
                # As many as fit, by the rows so far, but never many more at once than before.
                room = (self._bytes_max - byte_count) * self.count // max(byte_count, 1)
                chunk_rows = max(1, min(4 * chunk_rows, room, _CHUNK_ROWS_MAX))
            if len(chunk) < wanted:
                return True
        return False

    def finish(self) -> bytes:
        """Return the MessagePack array of what was taken."""
        return b"".join((_ARRAY32, self.count.to_bytes(4, "big"), *self._parts))


_FIRST_CHUNK_ROWS, _CHUNK_ROWS_MAX = 16, 1024
_ARRAY32 = b"\xdd"


def _header_bytes(count: int) -> int:
    """Return how long the header of a MessagePack array is."""
    return 1 if count < 16 else 3 if count < 65_536 else 5


@lru_cache(maxsize=1024)
def rows_decoder(kinds: tuple[Kind, ...]) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Return the function from encode_rows()'s bytes to rows of columns of these kinds.

    It raises msgspec.ValidationError or DecodeError for other bytes, and for more than ROWS_MAX.
    """
    columns = tuple(KIND_CLASSES[kind] | None if kind in KIND_CLASSES else Any for kind in kinds)
    row: Any = tuple[columns]  # type: ignore[valid-type]  # made at run time
    rows: Any = Annotated[list[row], msgspec.Meta(max_length=ROWS_MAX)]
    return msgspec.msgpack.Decoder(rows).decode


def check_statement(text: object) -> str:
    """Return a statement's text if it can be sent; the errors are those of the engine."""
    if not isinstance(text, str):
        raise ProgrammingError(
            f"expected a statement's text, found {text.__class__.__name__}", sqlstate="42601"
        )
    return text
