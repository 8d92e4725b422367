"""Parameters of a statement, out of their bytes, in bounded memory: docs/protocols/frames.md.

A message keeps them as bytes until its statement runs. Small ones are then simply read; larger ones
are first charged for: a byte can become 88 of a list in memory, and 64 MiB of them more than a
server has. Values are no containers, and none is made of what claims to hold others. Any thread.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from herdpy.errors import OperationalError, ProtocolError
from herdpy.limits import parameters_max
from herdpy.proto.values import from_extension

SMALL_BYTES: Final = 16 * 1024
"""Of parameters that are not charged for: 64 workers can hold 100 MB of them at the very worst."""
VALUE_BYTES: Final = 72
"""Of memory that a value takes at most beside its text, with its place in a list."""
_OTHER_BYTES = 120
"""Of one that is no number and no text."""
ROW_BYTES: Final = 88
NAMED_ROW_BYTES: Final = 240
"""Of a dict, whose entries take NAME_BYTES each."""
NAME_BYTES: Final = 100

_AT_ONCE_BYTES = 1024

Charge = Callable[[int], None]
"""Asked for so many bytes of memory before they are used; raises when there are not so many."""
Parameters = list[Any] | dict[str, Any]  # or a tuple

_Plain = None | bool | int | float | str
_one = msgspec.msgpack.Decoder(Parameters | None, ext_hook=from_extension).decode
_row = msgspec.msgpack.Decoder(Parameters, ext_hook=from_extension).decode
_many = msgspec.msgpack.Decoder(list[Parameters], ext_hook=from_extension).decode
_value = msgspec.msgpack.Decoder(ext_hook=from_extension).decode
_values = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_named_values = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


def decode_parameters(data: msgspec.Raw, charge: Charge) -> Parameters | None:
    """Return the parameters of one statement; ProtocolError, 54023, or what `charge` raises."""
    view = memoryview(data)
    try:
        if len(view) <= SMALL_BYTES:
            return _one(view)
        is_map, count = _header(view)
        _check_count(count)
        charge(count * (VALUE_BYTES + NAME_BYTES * is_map) + 2 * len(view))
        return _checked_row(view, is_map=is_map)
    except _UNREADABLE as error:
        raise _no_parameters(view, error) from None


def decode_small_parameters(data: msgspec.Raw) -> Parameters | None:
    """Return parameters at once, None when they are too large for that; ProtocolError."""
    view = memoryview(data)
    if len(view) > _AT_ONCE_BYTES:
        return None
    try:
        return _one(view)
    except _UNREADABLE as error:
        raise _no_parameters(view, error) from None


def decode_items(data: msgspec.Raw, charge: Charge) -> list[Parameters]:
    """Return the parameters of executemany(); ProtocolError, 54023, or what `charge` raises."""
    view = memoryview(data)
    try:
        if len(view) <= SMALL_BYTES:
            return _many(view)
        return _large_items(view, charge)
    except _UNREADABLE as error:
        raise _no_parameters(view, error) from None


def _large_items(view: memoryview, charge: Charge) -> list[Parameters]:
    is_map, row_count = _header(view)
    if is_map:
        raise ValueError("expected an array of arrays or maps")
    first = view[_header_bytes(view[0]) :]
    is_named, width = _header(first)
    _check_count(width)
    charge(_memory_bytes(row_count, row_count * width, is_named=is_named) + 2 * len(view))
    try:
        return _plain_decoder(is_named, width)(view)
    except msgspec.ValidationError:
        pass  # dates, bytes, longer rows: one by one
    charge(row_count * ROW_BYTES + row_count * width * (_OTHER_BYTES - VALUE_BYTES))
    rows = _values(view)
    more = -row_count * width  # values beyond those that were charged for
    items: list[Parameters] = []
    for raw in rows:
        row_view = memoryview(raw)
        is_row_named, count = _header(row_view)
        _check_count(count)
        more += count
        if is_row_named is not is_named:
            charge(_memory_bytes(1, count, is_named=True))
        elif more > 0:
            charge(_memory_bytes(0, more, is_named=is_named) + more * (_OTHER_BYTES - VALUE_BYTES))
            more = 0
        items.append(_checked_row(row_view, is_map=is_row_named))
    return items


def _memory_bytes(row_count: int, value_count: int, *, is_named: bool) -> int:
    if is_named:
        return row_count * NAMED_ROW_BYTES + value_count * (VALUE_BYTES + NAME_BYTES)
    return row_count * ROW_BYTES + value_count * VALUE_BYTES


@lru_cache(maxsize=64)
def _plain_decoder(is_named: bool, width: int) -> Callable[[Any], Any]:
    """Return what reads rows of at most so many values that need no look at each."""
    bound = msgspec.Meta(max_length=width)
    # Tuples of such values are nothing that the collector of garbage looks at twice.
    row: Any = dict[str, _Plain] if is_named else tuple[_Plain, ...]
    kind: Any = list[Annotated[row, bound]]  # type: ignore[valid-type]  # made at run time
    return msgspec.msgpack.Decoder(kind).decode


def _checked_row(view: memoryview, *, is_map: bool) -> Parameters:
    """Return parameters of which none is a container; ValueError for others."""
    if len(view) <= SMALL_BYTES:
        row: Any = _row(view)
        if _CONTAINERS.isdisjoint(map(type, row.values() if is_map else row)):
            return row
        raise ValueError("a value that is a container")
    if is_map:
        return {name: _checked(raw) for name, raw in _named_values(view).items()}
    return [_checked(raw) for raw in _values(view)]


def _checked(raw: msgspec.Raw) -> Any:
    view = memoryview(raw)
    if _is_container(view[0]):
        raise ValueError("a value that is a container")
    return _value(view)


def _is_container(byte: int) -> bool:
    return 0x80 <= byte <= 0x9F or 0xDC <= byte <= 0xDF


def _header(view: memoryview) -> tuple[bool, int]:
    """Return whether it is a map, and how many entries it has; ValueError for other values."""
    if not len(view) or not _is_container(view[0]):
        raise ValueError("expected an array or a map")
    byte = view[0]
    if byte < 0xDC:
        return byte < 0x90, byte & 0x0F
    return byte >= 0xDE, int.from_bytes(view[1 : _header_bytes(byte)], "big")


def _header_bytes(byte: int) -> int:
    return 1 if byte < 0xDC else 5 if byte & 1 else 3


def _check_count(count: int) -> None:
    if count > parameters_max:
        raise OperationalError(
            f"{count:,} parameters, at most {parameters_max:,} are allowed", sqlstate="54023"
        )


def _no_parameters(view: memoryview, error: Exception) -> ProtocolError:
    return ProtocolError(f"{len(view):,} bytes that are no parameters: {error}")


_CONTAINERS = frozenset((list, dict))
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError)
