"""Tables and columns as immutable facts, and their plain form for log and manifest."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from herdpy.model.keys import compile_key_of, compile_keys_of
from herdpy.model.types import (
    BOOLEAN,
    KINDS_OF_FORMAT_3,
    Key,
    Kind,
    Physical,
    Row,
    SqlType,
    zero,
)

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
class Index:
    """An index of a table: its own id, of the ids of tables, and ordinals of the columns.

    With `nulls_distinct` a unique one has any number of rows with a NULL. `is_constraint`: it was
    made by UNIQUE in a table's definition.
    """

    id: int
    name: str
    columns: tuple[int, ...]
    is_unique: bool = False
    nulls_distinct: bool = True
    is_constraint: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A CHECK of a table: the text of its condition, over the columns of one row.

    `is_valid`: the rows that were there when it was made are known to fulfil it, too.
    """

    name: str
    text: str
    is_valid: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """What makes a table a view: the text of its query.

    `relations` are the tables and views that the text names, each with the number of visible
    columns that it had then: of later ones the text knows nothing (ADR 94).
    """

    text: str
    relations: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table's definition. `key` holds ordinals in `columns`; never empty.

    Without a primary key the last column is the hidden row id and the key. Ids of tables and of
    columns are never reused. `version` grows with each change of the definition. A view is a table
    without key that never has rows; its columns are those of its query.
    """

    id: int
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    version: int = 1
    indexes: tuple[Index, ...] = ()
    view: View | None = None
    checks: tuple[Check, ...] = ()
    stores: "tuple[IndexStore, ...]" = field(init=False, repr=False, compare=False)
    """Where the entries of the indexes are, in their order."""
    unique_stores: "tuple[IndexStore, ...]" = field(init=False, repr=False, compare=False)
    store: "IndexStore | None" = field(init=False, repr=False, compare=False)
    """The index whose entries are this table's rows; None: it is a table with a name."""
    key_of: Callable[[Row], Key] = field(init=False, repr=False, compare=False)
    keys_of: Callable[[Iterable[Row]], list[Key]] = field(init=False, repr=False, compare=False)
    wide_ordinals: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The DECIMAL columns whose scaled integers may exceed 64 bits (msgpack cannot hold them)."""
    row_copies: int = field(init=False, repr=False, compare=False)
    """How often a row is kept in memory: an index has not more of it than the row itself."""
    is_heap: bool = field(init=False, repr=False, compare=False)
    """True when the key is the hidden row id."""

    def __post_init__(self) -> None:
        wide = [i for i, column in enumerate(self.columns) if _is_wide(column.type)]
        object.__setattr__(self, "wide_ordinals", tuple(wide))
        object.__setattr__(self, "is_heap", self.columns[self.key[0]].hidden)
        kinds = self.key_kinds
        object.__setattr__(self, "key_of", compile_key_of(self.key, kinds))
        object.__setattr__(self, "keys_of", compile_keys_of(self.key, kinds))
        object.__setattr__(self, "row_copies", 1 + len(self.indexes))
        stores = tuple(index_store(self, each) for each in self.indexes)
        object.__setattr__(self, "stores", stores)
        unique = tuple(each for each in stores if each.index.is_unique)
        object.__setattr__(self, "unique_stores", unique)
        object.__setattr__(self, "store", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return (table_from_plain, (table_to_plain(self),))

    @property
    def is_system(self) -> bool:
        """True: the engine makes its rows when it is read; nothing is stored or logged."""
        return self.id < 0

    @property
    def format_version(self) -> int:
        """Which FORMAT a directory has at least that such a table is in."""
        is_of_2 = KINDS_OF_FORMAT_3.isdisjoint(column.type.kind for column in self.columns)
        is_of_2 = is_of_2 and not self.indexes and not self.checks
        return 2 if is_of_2 and self.view is None else 3

    @property
    def kind(self) -> str:
        """What it is called in messages and statements."""
        return "table" if self.view is None else "view"

    @property
    def visible_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def key_kinds(self) -> tuple[Kind, ...]:
        return tuple(self.columns[ordinal].type.kind for ordinal in self.key)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self.columns[ordinal].name for ordinal in self.key)

    def has_rows_of(self, other: "Table") -> bool:
        """Tell whether rows are the same in two definitions: of one table, and its columns."""
        own, others = (
            [(column.id, column.type) for column in each.columns] for each in (self, other)
        )
        return (self.id, self.key, own) == (other.id, other.key, others)

    def ordinal(self, name: str) -> int | None:
        """Return the position of a visible column by its (folded) name, None when there is none."""
        for ordinal, column in enumerate(self.columns):
            if column.name == name and not column.hidden:
                return ordinal
        return None


class IndexPart(NamedTuple):
    """What stands at a place of an index's key: a column's value, or whether that is NULL."""

    ordinal: int
    is_flag: bool


@dataclass(frozen=True, slots=True)
class IndexStore:
    """How an index is kept: its entries are rows of a table that has no name in the catalog.

    An entry has for each indexed column its value, before it whether that is NULL if it may be, and
    then what the primary key has beside. A NULL's value is a zero. All of it is the key: so entries
    lie in the order of the index, each once. The key of a unique one has the values alone, and the
    primary key only of a row with a NULL that counts as distinct.
    """

    index: Index
    table_name: str
    column_names: tuple[str, ...]
    table: Table
    parts: tuple[IndexPart, ...]
    """The leading places of the key: those of the index's columns."""
    entry_of: Callable[[Row], Row] = field(repr=False, compare=False)
    """A row of the indexed table → its entry."""
    key_of: Callable[[Row], Key] = field(repr=False, compare=False)
    """An entry → the key of its row in the indexed table."""
    unique_key_of: Callable[[Row], Key | None] = field(repr=False, compare=False)
    """A row of the indexed table → its entry's key if no other row may have it; else None."""


def index_store(table: Table, index: Index) -> IndexStore:
    """Return how an index of a table is kept."""
    parts: list[IndexPart] = []
    columns: list[Column] = []
    sources: list[str] = []
    space: dict[str, object] = {}
    places: dict[int, int] = {}  # of a column of the table, where its value stands

    def add(sql_type: SqlType, source: str) -> None:
        number = len(columns) + 1
        columns.append(Column(number, f"c{number}", sql_type, not_null=True))
        sources.append(source)

    def zero_of(sql_type: SqlType) -> str:
        name = f"zero{len(space)}"
        space[name] = zero(sql_type.kind)
        return name

    nullable = [o for o in index.columns if not (table.columns[o].not_null or o in table.key)]
    has_null = " or ".join(f"r[{ordinal}] is None" for ordinal in nullable)
    for ordinal in index.columns:
        column, source = table.columns[ordinal], f"r[{ordinal}]"
        if ordinal in nullable:
            parts.append(IndexPart(ordinal, is_flag=True))
            add(BOOLEAN, f"{source} is None")
            source = f"({zero_of(column.type)} if {source} is None else {source})"
        parts.append(IndexPart(ordinal, is_flag=False))
        places[ordinal] = len(columns)
        add(column.type, source)
    for ordinal in table.key:
        if ordinal not in places:
            places[ordinal] = len(columns)
            add(table.columns[ordinal].type, f"r[{ordinal}]")
    key = tuple(range(len(parts) if index.is_unique else len(columns)))
    has_distinct = index.is_unique and index.nulls_distinct and bool(nullable)
    if has_distinct:
        first = len(columns)
        for ordinal in table.key:
            column = table.columns[ordinal]
            source = f"(r[{ordinal}] if {has_null} else {zero_of(column.type)})"
            add(column.type, source)
        key = (*key, *range(first, len(columns)))
    made = Table(index.id, index.name, tuple(columns), key)
    space["entry_of"] = entry_of = eval(f"lambda r: ({', '.join(sources)},)", space)  # noqa: S307 - built from integers
    space["key_of"] = made.key_of
    unique = "key_of(entry_of(r))" if index.is_unique else "None"
    if has_distinct:
        unique = f"None if {has_null} else {unique}"
    store = IndexStore(
        index,
        table.name,
        tuple(table.columns[ordinal].name for ordinal in index.columns),
        made,
        tuple(parts),
        entry_of,
        compile_key_of([places[ordinal] for ordinal in table.key], table.key_kinds),
        eval(f"lambda r: {unique}", space),  # noqa: S307 - as above
    )
    object.__setattr__(made, "store", store)
    return store


def with_stores(tables: Iterable[Table]) -> Iterator[Table]:
    """Yield tables, and behind each what its indexes are kept in."""
    for table in tables:
        yield table
        for store in table.stores:
            yield store.table


def _is_wide(sql_type: SqlType) -> bool:
    return sql_type.kind is Kind.DECIMAL and (sql_type.precision is None or sql_type.precision > 18)


def table_to_plain(table: Table) -> list[Any]:
    """Return lists, numbers, strings and bytes only, for msgpack; see docs/formats/record.md."""
    indexes = [
        [each.id, each.name, each.columns, each.is_unique, each.nulls_distinct, each.is_constraint]
        for each in table.indexes
    ]
    view, checks = table.view, table.checks
    more: list[Any] = [
        indexes,
        None if view is None else [view.text, [list(each) for each in view.relations]],
        [[each.name, each.text, each.is_valid] for each in checks],
    ]
    while more and not more[-1]:  # what is at the end and empty is left out
        del more[-1]
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
        *more,
    ]


def plain_version(plain: list[Any]) -> int:
    """Return the version of a definition in its plain form."""
    return plain[2]


def table_from_plain(plain: list[Any]) -> Table:
    """Invert table_to_plain; any malformed input is a ValueError."""
    try:
        table_id, name, version, key, columns, *rest = plain
        indexes: list[Any] = rest[0] if rest else []
        view: list[Any] | None = rest[1] if len(rest) > 1 else None
        checks: list[Any] = rest[2] if len(rest) > 2 else []
        return Table(
            id=table_id,
            name=name,
            version=version,
            key=tuple(key),
            columns=tuple(_column_from_plain(item) for item in columns),
            indexes=tuple(_index_from_plain(item) for item in indexes),
            view=None if view is None else _view_from_plain(view),
            checks=tuple(_check_from_plain(item) for item in checks),
        )
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"malformed table definition: {error}") from error


def _index_from_plain(plain: list[Any]) -> Index:
    index_id, name, columns, is_unique, nulls_distinct, is_constraint = plain
    return Index(index_id, name, tuple(columns), is_unique, nulls_distinct, is_constraint)


def _view_from_plain(plain: list[Any]) -> View:
    text, relations = plain
    return View(text, tuple((name, count) for name, count in relations))


def _check_from_plain(plain: list[Any]) -> Check:
    name, text, is_valid = plain
    return Check(name, text, is_valid)


def _column_from_plain(plain: list[Any]) -> Column:
    column_id, name, (kind, precision, scale, length), not_null, default, default_sql, hidden = (
        plain
    )
    sql_type = SqlType(Kind(kind), precision, scale, length)
    if sql_type.kind is Kind.DECIMAL and default is not None:
        default = int(default)
    return Column(column_id, name, sql_type, not_null, default, default_sql, hidden)
