"""Verify: reads pages as no query does, all of them and all that is in them; changes nothing.

Checksums alone prove that a file holds what was written; check_rows() also looks whether what was
written makes sense. Any thread may call; CorruptionError names file and offset.
"""

from itertools import pairwise
from typing import Any

import msgspec

from herdpy.errors import CorruptionError
from herdpy.limits import (
    checks_max,
    columns_max,
    decimal_precision_max,
    identifier_bytes_max,
    indexes_max,
)
from herdpy.model.schema import FillKind, Table, table_from_plain
from herdpy.model.types import FLOAT_KINDS, INTEGER_BOUNDS, INTEGER_KINDS, MOMENT_KINDS, Kind
from herdpy.storage.table_pages import PageEntry

_DEFAULTS: dict[Kind, type[Any]] = {
    Kind.BOOLEAN: bool, Kind.BYTEA: bytes, **dict.fromkeys(FLOAT_KINDS, float),
    **dict.fromkeys((Kind.DECIMAL, Kind.TEXT), str),
    **dict.fromkeys((*INTEGER_KINDS, *MOMENT_KINDS), int),
}  # fmt: skip
"""The class of a column's default as a definition writes it; a kind without one has no column."""


class _PlainType(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    kind: Kind
    precision: int | None
    scale: int | None
    length: int | None


class _PlainColumn(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    id: int
    name: str
    type: _PlainType
    not_null: bool
    default: Any
    default_sql: str | None
    hidden: bool


class _PlainIndex(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    id: int
    name: str
    columns: list[int]
    is_unique: bool
    nulls_distinct: bool
    is_constraint: bool


class _PlainView(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    text: str
    relations: list[tuple[str, int]]


class _PlainCheck(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    text: str
    is_valid: bool


class _PlainSequence(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    kind: Kind
    start: int
    increment: int
    minimum: int
    maximum: int
    cache: int
    cycles: bool


class _PlainFilling(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ordinal: int
    kind: FillKind
    sequence: str
    is_owner: bool


class _PlainValues(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    sequence: _PlainSequence | None
    fillings: list[_PlainFilling]


class _PlainTable(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    id: int
    name: str
    version: int
    key: list[int]
    columns: list[_PlainColumn]
    indexes: list[_PlainIndex] = []
    view: _PlainView | None = None
    checks: list[_PlainCheck] = []
    values: _PlainValues | None = None


def check_definition(table_id: int, plain: list[Any]) -> Table:
    """Return the table that a manifest says it is; ValueError for what no CREATE TABLE makes.

    The definition of a stage has the id of its table, which is older than the stage.
    """
    shape = msgspec.convert(plain, _PlainTable)  # its ValidationError is a ValueError
    ids = {column.id for column in shape.columns}
    names = [shape.name, *(column.name for column in shape.columns)]
    constraints = [each.name for each in (*shape.indexes, *shape.checks)]
    names += constraints
    precisions = [column.type.precision or 1 for column in shape.columns]
    if (
        not 0 < shape.id <= table_id
        or shape.version < 1
        or not 0 < len(shape.columns) <= columns_max + 1
        or len(ids) != len(shape.columns)
        or len({column.name for column in shape.columns}) != len(shape.columns)
        or not shape.key
        or len(set(shape.key)) != len(shape.key)
        or not all(0 <= ordinal < len(shape.columns) for ordinal in shape.key)
        or not all(0 < len(name.encode()) <= identifier_bytes_max for name in names)
        or not all(map(_is_possible, shape.columns))
        or not _are_possible(shape)
        or len(set(constraints)) != len(constraints)
        or len(shape.checks) > checks_max
        or not _has_possible_values(shape)
        or not all(0 < precision <= decimal_precision_max for precision in precisions)
    ):
        raise ValueError(f"table {table_id}: no definition that this herdpy makes: {plain!r:.200}")
    return table_from_plain(plain)


def _is_possible(column: _PlainColumn) -> bool:
    expected = _DEFAULTS.get(column.type.kind)
    return expected is not None and (column.default is None or type(column.default) is expected)


def _has_possible_values(shape: _PlainTable) -> bool:
    """Tell whether a sequence stays in its bounds, and each column has one at the most."""
    values = shape.values
    if values is None:
        return True
    ordinals = [filling.ordinal for filling in values.fillings]
    is_filled = len(set(ordinals)) == len(ordinals) and all(
        0 <= filling.ordinal < len(shape.columns)
        and 0 < len(filling.sequence.encode()) <= identifier_bytes_max
        for filling in values.fillings
    )
    sequence = values.sequence
    if sequence is None:
        return is_filled
    low, high = INTEGER_BOUNDS.get(sequence.kind, (0, 0))
    is_bounded = low <= sequence.minimum <= sequence.start <= sequence.maximum <= high
    is_counting = sequence.increment != 0 and sequence.cache > 0
    return is_bounded and is_counting and not values.fillings and shape.view is None


def _are_possible(shape: _PlainTable) -> bool:
    """Tell whether indexes are of the table's columns, each once, under ids of their own."""
    ids = {index.id for index in shape.indexes}
    return (
        len(ids) == len(shape.indexes) <= indexes_max
        and all(number > shape.id for number in ids)
        and all(
            index.columns
            and len(set(index.columns)) == len(index.columns)
            and all(0 <= ordinal < len(shape.columns) for ordinal in index.columns)
            for index in shape.indexes
        )
    )


def check_rows(entry: PageEntry) -> int:
    """Decode a page and look whether rows, keys and zones agree; return the live rows."""
    page, table = entry.page, entry.page.table
    count = page.row_count
    rows = page.rows(0, count)
    keys = [table.key_of(row) for row in rows]
    if not all(low < high for low, high in pairwise(keys)):
        raise _damage(entry, "its keys do not ascend")
    if (keys[0], keys[-1]) != (entry.low, entry.high):
        raise _damage(entry, "its first and last keys are not those that the manifest names")
    if any(page.find(key) != index for index, key in enumerate(keys)):
        raise _damage(entry, "its index of keys does not find every row")
    for ordinal, column in enumerate(table.columns):
        values = [row[ordinal] for row in rows]
        missing = values.count(None)
        if missing != page.null_count(ordinal) or (missing and column.not_null):
            raise _damage(entry, f'column "{column.name}" has {missing} NULLs, it must not')
        if not all(page.may_hold(ordinal, v, v) for v in values if v is not None and v == v):
            raise _damage(entry, f'column "{column.name}" has values outside of its zone')
    return count - entry.dead_count


def _damage(entry: PageEntry, problem: str) -> CorruptionError:
    return CorruptionError(
        f"page in {entry.page.where} at offset {entry.ref.offset}: {problem}",
        hint="the checksums are right, so a broken herdpy wrote it: restore a backup",
    )
