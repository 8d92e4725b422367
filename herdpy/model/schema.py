"""Tables and columns as immutable facts, and their plain form for log and manifest."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from herdpy.model.keys import compile_key_of, compile_keys_of
from herdpy.model.types import Key, Kind, Physical, Row, SqlType

ROW_ID_NAME = "_rowid"
ROWS_AT_HAND = -1_000_000
"""The id of what is a table to a query of a statement alone: rows that it is about to write."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `default` is physical, of the column's type; None means no default (NULL).

    `default_sql` is the text of a default that is computed per row (CURRENT_TIMESTAMP), else None.
    A hidden column (the row id of a table without primary key) is not part of SELECT *.
    """

    id: int
    name: str
    type: SqlType
    not_null: bool = False
    default: Physical = None
    default_sql: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table's definition. `key` holds ordinals in `columns`; never empty.

    Without a primary key the last column is the hidden row id and the key. Ids of tables and of
    columns are never reused. `version` grows with each change of the definition.
    """

    id: int
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    version: int = 1
    key_of: Callable[[Row], Key] = field(init=False, repr=False, compare=False)
    keys_of: Callable[[Iterable[Row]], list[Key]] = field(init=False, repr=False, compare=False)
    wide_ordinals: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The DECIMAL columns whose scaled integers may exceed 64 bits (msgpack cannot hold them)."""
    is_heap: bool = field(init=False, repr=False, compare=False)
    """True when the key is the hidden row id."""

    def __post_init__(self) -> None:
        wide = [i for i, column in enumerate(self.columns) if _is_wide(column.type)]
        object.__setattr__(self, "wide_ordinals", tuple(wide))
        object.__setattr__(self, "is_heap", self.columns[self.key[0]].hidden)
        kinds = self.key_kinds
        object.__setattr__(self, "key_of", compile_key_of(self.key, kinds))
        object.__setattr__(self, "keys_of", compile_keys_of(self.key, kinds))

    def __reduce__(self) -> tuple[Any, ...]:
        return (table_from_plain, (table_to_plain(self),))

    @property
    def is_system(self) -> bool:
        """True: the engine makes its rows when it is read; nothing is stored or logged."""
        return self.id < 0

    @property
    def visible_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def key_kinds(self) -> tuple[Kind, ...]:
        return tuple(self.columns[ordinal].type.kind for ordinal in self.key)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.columns[ordinal].name for ordinal in self.key)

    def ordinal(self, name: str) -> int | None:
        """Return the position of a visible column by its (folded) name, None when there is none."""
        for ordinal, column in enumerate(self.columns):
            if column.name == name and not column.hidden:
                return ordinal
        return None


def _is_wide(sql_type: SqlType) -> bool:
    return sql_type.kind is Kind.DECIMAL and (sql_type.precision is None or sql_type.precision > 18)


def table_to_plain(table: Table) -> list[Any]:
    """Return lists, numbers, strings and bytes only, for msgpack; see docs/formats/record.md."""
    return [
        table.id,
        table.name,
        table.version,
        list(table.key),
        [
            [
                column.id,
                column.name,
                [
                    column.type.kind.value,
                    column.type.precision,
                    column.type.scale,
                    column.type.length,
                ],
                column.not_null,
                # A decimal's scaled integer may exceed 64 bits, which msgpack cannot hold.
                str(column.default)
                if column.type.kind is Kind.DECIMAL and column.default is not None
                else column.default,
                column.default_sql,
                column.hidden,
            ]
            for column in table.columns
        ],
    ]


def table_from_plain(plain: list[Any]) -> Table:
    """Invert table_to_plain; any malformed input is a ValueError."""
    try:
        table_id, name, version, key, columns = plain
        return Table(
            id=table_id,
            name=name,
            version=version,
            key=tuple(key),
            columns=tuple(_column_from_plain(item) for item in columns),
        )
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"malformed table definition: {error}") from error


def _column_from_plain(plain: list[Any]) -> Column:
    column_id, name, (kind, precision, scale, length), not_null, default, default_sql, hidden = (
        plain
    )
    sql_type = SqlType(Kind(kind), precision, scale, length)
    if sql_type.kind is Kind.DECIMAL and default is not None:
        default = int(default)
    return Column(column_id, name, sql_type, not_null, default, default_sql, hidden)
