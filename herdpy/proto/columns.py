"""A result's columns on the wire, and what both sides keep of those that come again and again.

They travel as bytes, made and read once. Source: docs/protocols/frames.md, Done. Any thread.
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from herdpy.errors import ProtocolError
from herdpy.model.types import Kind, SqlType
from herdpy.proto.messages import RESULT_COLUMNS_MAX, Column
from herdpy.proto.values import rows_decoder

_KEPT_MAX = 64
_KEPT_BYTES_MAX = 8192
"""Of the columns of one result: what a peer sends is kept only while it is small."""
_KINDS = {kind.value: kind for kind in Kind}

Columns = tuple[tuple[str, SqlType], ...]
Decode = Callable[[Any], list[tuple[Any, ...]]]

_encode = msgspec.msgpack.Encoder().encode
_Sent = Annotated[tuple[Column, ...], msgspec.Meta(max_length=RESULT_COLUMNS_MAX)]
_decode = msgspec.msgpack.Decoder(_Sent | None).decode


class SentColumns:
    """The server's side: columns by identity, because a plan gives the same ones every time."""

    def __init__(self) -> None:
        # The columns themselves are kept too, so that no others can get their identity.
        self._kept: dict[int, tuple[Columns, msgspec.Raw]] = {}

    def of(self, columns: Columns) -> msgspec.Raw:
        """Return columns as Done carries them."""
        kept = self._kept.get(id(columns))
        if kept is not None:
            return kept[1]
        plain: list[Column] = [
            (name, sql_type.kind.value, sql_type.precision, sql_type.scale, sql_type.length)
            for name, sql_type in columns
        ]
        found = msgspec.Raw(_encode(plain))
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[id(columns)] = columns, found
        return found


def plain_columns(sent: msgspec.Raw) -> tuple[Column, ...]:
    """Return what a Done carries, () for NO_COLUMNS; ProtocolError."""
    try:
        return _decode(sent) or ()
    except (msgspec.MsgspecError, OverflowError) as error:
        raise ProtocolError(
            f"{len(memoryview(sent)):,} bytes that are no columns: {error}"
        ) from None


def read_columns(sent: msgspec.Raw) -> tuple[Columns, Decode]:
    """Return the columns that a Done carries, and the decoder of their rows; ProtocolError."""
    columns = tuple(
        (name, SqlType(_KINDS.get(kind, Kind.UNKNOWN), *rest))
        for name, kind, *rest in plain_columns(sent)
    )
    return columns, rows_decoder(tuple(sql_type.kind for _, sql_type in columns))


class ReceivedColumns:
    """The driver's side."""

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[Columns, Decode]] = {}

    def of(self, sent: msgspec.Raw) -> tuple[Columns, Decode]:
        """Return the same as read_columns()."""
        data = bytes(sent)
        kept = self._kept.get(data)
        if kept is not None:
            return kept
        found = read_columns(sent)
        if len(data) <= _KEPT_BYTES_MAX:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[data] = found
        return found
