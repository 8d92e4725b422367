"""Values, rows and columns as herdpy.proto writes them, from and to those of the frames.

The frame's side is what msgspec decodes without a type: lists, maps, and Ext for the parameters
that say their class (values.py). Nothing is interpreted here, so nothing can be lost. Any thread.
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from herdpy.model.schema import Table, table_from_plain
from herdpy.proto import herdpy_pb2 as pb
from herdpy.proto.columns import plain_columns
from herdpy.proto.messages import NO_COLUMNS
from herdpy.proto.values import from_extension

_INT64 = 1 << 63
_EXTENSIONS = {
    1: "decimal",
    2: "date",
    3: "timestamp",
    4: "big_integer",
    5: "foreign",
    6: "interval",
}
_CODES = {name: code for code, name in _EXTENSIONS.items()}
_FIELDS: dict[type, str] = {bool: "boolean", float: "double", str: "text", bytes: "bytea"}


class UntypedError(Exception):
    """What herdpy.proto has no message for; it travels as a frame."""


def to_value(item: Any) -> pb.Value:
    """Return one value; UntypedError for a list or map."""
    kind = item.__class__
    if kind is int:
        if not -_INT64 <= item < _INT64:
            return pb.Value(big_integer=str(item))
        return pb.Value(integer=item)
    if item is None:
        return pb.Value()
    if kind is msgspec.msgpack.Ext:
        name = _EXTENSIONS.get(item.code)
        if name is None:
            raise UntypedError
        return _value(name, bytes(item.data).decode())
    if kind is datetime.datetime:  # of a row: a TIMESTAMPTZ, which MessagePack has itself
        return pb.Value(text=item.isoformat())
    field = _FIELDS.get(kind)
    if field is None:
        raise UntypedError
    return _value(field, item)


def _value(field: str, item: Any) -> pb.Value:
    fields: dict[str, Any] = {field: item}
    return pb.Value(**fields)


def from_value(value: pb.Value) -> Any:
    """Return what msgspec encodes."""
    name = value.WhichOneof("kind")
    if name is None:
        return None
    item: Any = getattr(value, name)
    code = _CODES.get(name)
    return item if code is None else msgspec.msgpack.Ext(code, item.encode())


def to_rows(rows: Iterable[Iterable[Any]]) -> list[pb.Row]:
    return [pb.Row(values=map(to_value, row)) for row in rows]


def from_rows(rows: Iterable[pb.Row]) -> list[list[Any]]:
    return [[from_value(value) for value in row.values] for row in rows]


def from_parameters(parameters: pb.Parameters) -> list[Any] | dict[str, Any]:
    """Return the parameters of a message that has some; [] when no kind is set."""
    if parameters.WhichOneof("kind") == "named":
        return {name: from_value(item) for name, item in parameters.named.values.items()}
    return [from_value(item) for item in parameters.positional.values]


def to_columns(sent: msgspec.Raw) -> pb.Columns | None:
    """Return the columns of an answer, which are MessagePack still; None: it has none."""
    if sent == NO_COLUMNS:
        return None
    found: list[Any] = list(plain_columns(sent))
    return pb.Columns(
        columns=[
            pb.Column(name=name, kind=kind, precision=precision, scale=scale, length=length)
            for name, kind, precision, scale, length in found
        ]
    )


def from_columns(columns: pb.Columns) -> list[list[Any]]:
    return [
        [
            column.name,
            int(column.kind),
            column.precision if column.HasField("precision") else None,
            column.scale if column.HasField("scale") else None,
            column.length if column.HasField("length") else None,
        ]
        for column in columns.columns
    ]


def to_position(lsn: Sequence[int]) -> pb.Position:
    """Return an Lsn, or what msgpack made of one."""
    ledger, entry, index = lsn
    return pb.Position(ledger=ledger, entry=entry, index=index)


def from_position(position: pb.Position) -> list[int]:
    return [position.ledger, position.entry, position.index]


def to_decoded_rows(rows: bytes | msgspec.Raw) -> list[pb.Row]:
    """Return the rows of an answer, which are MessagePack still."""
    return to_rows(msgspec.msgpack.decode(rows))


def to_table(plain: list[Any]) -> pb.Table:
    """Return a table as docs/formats/record.md writes one; what is hidden is left out."""
    table: Table = table_from_plain(plain)
    columns = [
        pb.TableColumn(
            column=pb.Column(
                name=column.name,
                kind=column.type.kind.value,  # type: ignore[arg-type]  # the same numbers
                precision=column.type.precision,
                scale=column.type.scale,
                length=column.type.length,
            ),
            is_not_null=column.not_null,
        )
        for column in table.visible_columns
    ]
    key = [table.columns[ordinal] for ordinal in table.key]
    names = [column.name for column in key if not column.hidden]
    return pb.Table(name=table.name, columns=columns, primary_key=names)


def to_python(value: pb.Value) -> Any:
    """Return a parameter as the engine takes it; ValueError: its text is none of its class."""
    item = from_value(value)
    if isinstance(item, msgspec.msgpack.Ext):
        return from_extension(item.code, memoryview(item.data))
    return item
