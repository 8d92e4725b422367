"""The syntax tree: what a statement says, before names and types are known.

The reader (reader.py) makes it of tokens, the binder (bind.py and those below it) consumes it.
Names are folded already; `start` is the 0-based character of the text where a node begins, in the
nodes that have one. Lists are never shared between nodes.
"""

from collections.abc import Iterator
from typing import Any

import msgspec


class Node(msgspec.Struct, eq=False):
    """Base of all."""


# --- expressions ---------------------------------------------------------------------------------


class Number(Node):
    """A numeric constant, as written."""

    text: str
    start: int


class String(Node):
    """A string constant; of B'…', X'…' and others `special` says what it is."""

    text: str
    start: int
    special: str | None = None


class Constant(Node):
    """NULL (None), TRUE or FALSE."""

    value: bool | None
    start: int


class Default(Node):
    """DEFAULT, in the place of a value that is stored."""

    start: int


class Placeholder(Node):
    """The index-th placeholder (0-based) of Scanned.placeholders."""

    index: int
    start: int


class Column(Node):
    """A column, with the table's name or alias before it."""

    name: str
    table: str | None
    start: int


class Star(Node):
    """The star of a select list: all columns, or those of a table."""

    table: str | None
    start: int


class Paren(Node):
    """(expression): another thing than the expression alone, to ORDER BY and to AND."""

    operand: Node


class Row(Node):
    """(expression, expression, …)."""

    items: list[Node]


class Array(Node):
    """ARRAY[…]."""

    items: list[Node]
    start: int


class Unary(Node):
    """A prefix: "+", "-", "~" or "not"; or "collate", which follows its operand.

    "not" is also that of NOT IN, NOT LIKE, NOT BETWEEN and IS NOT.
    """

    operator: str
    operand: Node


class Binary(Node):
    """left operator right: symbols, "and", "or", "at time zone", "is [not] distinct from"."""

    operator: str
    left: Node
    right: Node


class Like(Node):
    """operand LIKE pattern, or ILIKE, or SIMILAR TO."""

    operator: str
    operand: Node
    pattern: Node
    escape: Node | None = None


class Is(Node):
    """operand IS NULL, TRUE, FALSE or UNKNOWN."""

    operand: Node
    what: str


class In(Node):
    """operand IN (items), or (query)."""

    operand: Node
    items: list[Node]
    query: "Query | None"


class Between(Node):
    """operand BETWEEN [SYMMETRIC] low AND high."""

    operand: Node
    low: Node
    high: Node
    is_symmetric: bool


class Quantified(Node):
    """operand operator ANY (right), or ALL; `right` is a query or an expression."""

    operator: str
    operand: Node
    right: Node
    is_all: bool


class TypeName(Node):
    """A type: its words in upper case, and the numbers behind; `text` as it is written."""

    name: str
    numbers: list[int]
    text: str
    start: int


class Cast(Node):
    """CAST (operand AS type), operand::type, or type 'operand'."""

    operand: Node
    type: TypeName


class Case(Node):
    """CASE [operand] WHEN … THEN … [ELSE otherwise] END."""

    operand: Node | None
    branches: list[tuple[Node, Node]]
    otherwise: Node | None
    start: int


class SortKey(Node):
    """One item of ORDER BY; nulls_first is always decided."""

    expression: Node
    is_descending: bool
    nulls_first: bool


class Frame(Node):
    """ROWS, RANGE or GROUPS; bounds are (UNBOUNDED, CURRENT ROW or an expression, direction)."""

    kind: str
    first: tuple[Node | str, str]
    last: tuple[Node | str, str] | None


class Window(Node):
    """What stands behind OVER, or behind AS in WINDOW; `base` is the window that it goes on."""

    base: str | None
    partition: list[Node]
    order: list[SortKey]
    frame: Frame | None
    start: int


class Call(Node):
    """A function: name(arguments), a word such as CURRENT_DATE, or EXTRACT and its like.

    `side` is BOTH, LEADING or TRAILING of trim().
    """

    name: str
    arguments: list[Node]
    start: int
    is_star: bool = False
    is_distinct: bool = False
    is_word: bool = False
    side: str | None = None
    order: list[SortKey] = []
    filter: Node | None = None
    over: Window | None = None


class Exists(Node):
    query: "Query"
    start: int


# --- queries -------------------------------------------------------------------------------------


class Query(Node, kw_only=True):
    """Base of queries, with what may stand around any of them.

    limit None: all rows. Both are with_ of the whole, also where it is a set operation.
    """

    with_: "With | None" = None
    order: list[SortKey] = []
    limit: Node | None = None
    offset: Node | None = None

    @property
    def has_tail(self) -> bool:
        return bool(self.order) or self.limit is not None or self.offset is not None


class Output(Node):
    """One item of a select list."""

    expression: Node
    alias: str | None


class GroupingSets(Node):
    """SETS, ROLLUP or CUBE of items, each some keys or, of SETS, others of these; (): no key."""

    kind: str
    items: "list[list[Node] | GroupingSets]"
    start: int


class Select(Query):
    """SELECT; `sources` are the items of FROM between commas, `distinct_on` None: no DISTINCT.

    GROUP BY has keys and GroupingSets; `is_group_distinct`: of equal sets one counts.
    """

    outputs: list[Output]
    is_distinct: bool
    distinct_on: list[Node]
    sources: "list[FromItem]"
    where: Node | None
    group_by: list[Node]
    having: Node | None
    windows: list[tuple[str, Window]]
    is_group_distinct: bool = False


class Values(Query):
    rows: list[list[Node]]


class SetOperation(Query):
    """left UNION | INTERSECT | EXCEPT [ALL] right."""

    operator: str
    is_all: bool
    left: Query
    right: Query


class Subquery(Query):
    """(query), as an expression or with a tail of its own."""

    query: Query


class WithItem(Node):
    """name (columns) AS (query)."""

    name: str
    columns: list[str]
    query: Query
    start: int


class With(Node):
    """WITH [RECURSIVE] items."""

    items: list[WithItem]
    is_recursive: bool


class TableName(Node):
    """A table, or a WITH item, with its alias and the names that this gives to columns."""

    name: str
    start: int
    alias: str | None = None
    columns: list[str] = []


class Derived(Node):
    """A query in FROM; `is_lateral`: it may name columns of the items before it."""

    query: Query
    alias: str
    columns: list[str]
    is_lateral: bool = False


class FunctionItem(Node):
    """A function in FROM, which may name columns of the items before it."""

    call: Call
    has_ordinality: bool = False
    alias: str | None = None
    columns: list[str] = []


class Join(Node):
    """left kind JOIN right; `using` None: none, and `condition` then, unless it is natural."""

    kind: str
    left: "FromItem"
    right: "FromItem"
    condition: Node | None
    using: list[str] | None
    is_natural: bool


FromItem = TableName | Derived | FunctionItem | Join

# --- statements ----------------------------------------------------------------------------------


class Conflict(Node):
    """ON CONFLICT [(columns)] DO NOTHING or UPDATE; or UPSERT, which is to REPLACE the row.

    assignments and where are of DO UPDATE, as in Update.
    """

    action: str
    columns: list[tuple[str, int]]
    start: int
    assignments: list[tuple[str, int, Node]] = []
    where: Node | None = None


class Insert(Node):
    """INSERT; `columns` None: all of them, `source` None: DEFAULT VALUES."""

    with_: With | None
    table: TableName
    columns: list[tuple[str, int]] | None
    source: Query | None
    conflict: Conflict | None
    returning: list[Output] | None
    overriding: str | None = None
    """SYSTEM or USER, of OVERRIDING … VALUE."""


class Update(Node):
    """UPDATE table SET column = value …; assignments are (column, its start, value)."""

    table: TableName
    assignments: list[tuple[str, int, Node]]
    sources: list[FromItem]
    where: Node | None
    returning: list[Output] | None


class Delete(Node):
    """DELETE FROM table; `sources` are the items of USING."""

    table: TableName
    sources: list[FromItem]
    where: Node | None
    returning: list[Output] | None


OptionValue = int | bool | TypeName | tuple[str, str] | str | None


class SequenceOptions(Node):
    """Options of a sequence by their first words, in the order in which they stand.

    None: NO MINVALUE or NO MAXVALUE, OWNED BY NONE, RESTART without a value.
    """

    found: dict[str, OptionValue]
    start: int


class Identity(Node):
    """GENERATED … AS IDENTITY of a column."""

    is_always: bool
    options: SequenceOptions
    start: int


class CreateSequence(Node):
    name: TableName
    options: SequenceOptions
    if_not_exists: bool


class AlterSequence(Node):
    name: TableName
    options: SequenceOptions
    if_exists: bool


class ColumnDefinition(Node):
    """A column of CREATE TABLE; key_count is how often PRIMARY KEY stands there."""

    name: str
    start: int
    type: TypeName
    is_not_null: bool
    key_count: int
    default: Node | None
    identity: Identity | None = None


class Unique(Node):
    """UNIQUE of a table's definition, with its constraint's name if it has one."""

    columns: list[tuple[str, int]]
    nulls_distinct: bool
    name: str | None
    start: int


class PrimaryKey(Node):
    """ADD [CONSTRAINT name] PRIMARY KEY (columns)."""

    columns: list[tuple[str, int]]
    start: int


class Check(Node):
    """CHECK (condition), with its constraint's name if it has one; `text` is the condition's."""

    condition: Node
    text: str
    name: str | None
    start: int


class CreateTable(Node):
    """CREATE TABLE; each of `keys` is a PRIMARY KEY (…) of the table."""

    table: TableName
    columns: list[ColumnDefinition]
    keys: list[list[tuple[str, int]]]
    uniques: list[Unique]
    checks: list[Check]
    if_not_exists: bool


class RenameTo(Node):
    """RENAME TO of a table, view or index."""

    name: str
    start: int


class RenamePart(Node):
    """RENAME [COLUMN], or RENAME CONSTRAINT, name TO another one."""

    name: str
    start: int
    new_name: str
    is_constraint: bool


class AddColumn(Node):
    """ADD [COLUMN], with what is unique or checked in it."""

    column: ColumnDefinition
    uniques: list[Unique]
    checks: list[Check]
    if_not_exists: bool


class AddConstraint(Node):
    """ADD of a constraint; of a CHECK `is_valid` False is NOT VALID."""

    constraint: Unique | Check | PrimaryKey
    is_valid: bool


class AddIdentity(Node):
    """ALTER [COLUMN] name ADD GENERATED … AS IDENTITY."""

    name: str
    start: int
    identity: "Identity"


class AlterColumn(Node):
    """ALTER [COLUMN]: of default, is_not_null and type what is there is set.

    `has_default`: the default, with None it goes. `using` is an expression over the old row.
    """

    name: str
    start: int
    has_default: bool = False
    default: Node | None = None
    is_not_null: bool | None = None
    type: TypeName | None = None
    using: Node | None = None


class ValidateConstraint(Node):
    name: str
    start: int


class DropPart(Node):
    """DROP [COLUMN], or DROP CONSTRAINT."""

    name: str
    start: int
    is_constraint: bool
    if_exists: bool
    is_cascade: bool


Alteration = (
    RenameTo | RenamePart | AddColumn | AddConstraint | AlterColumn | ValidateConstraint | DropPart
)


class Alter(Node):
    """ALTER TABLE, VIEW or INDEX, which `kind` says; a rename is the only one of its actions."""

    kind: str
    table: TableName
    if_exists: bool
    actions: list[Alteration]


class CreateIndex(Node):
    """CREATE INDEX; without a name it gets one."""

    name: str | None
    start: int
    table: TableName
    columns: list[tuple[str, int]]
    is_unique: bool
    nulls_distinct: bool
    if_not_exists: bool


class DropIndex(Node):
    names: list[tuple[str, int]]
    if_exists: bool


class CreateTableAs(Node):
    """CREATE TABLE … AS query [WITH [NO] DATA]; `columns` None: as the query calls them."""

    table: TableName
    columns: list[tuple[str, int]] | None
    query: Query
    if_not_exists: bool
    has_data: bool


class CreateView(Node):
    """CREATE [OR REPLACE] VIEW; `columns` None: as the query calls them. `text` is the query's."""

    name: TableName
    columns: list[tuple[str, int]] | None
    query: Query
    text: str
    or_replace: bool


class DropTables(Node):
    """DROP TABLE, DROP VIEW or DROP SEQUENCE; `kind` as Table.kind."""

    tables: list[TableName]
    if_exists: bool
    is_cascade: bool
    kind: str


class Truncate(Node):
    """TRUNCATE; restarts: with RESTART IDENTITY."""

    tables: list[TableName]
    restarts: bool


# --- walking -------------------------------------------------------------------------------------


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes in it, in no certain order."""
    pending: list[Any] = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, Node):
            yield item
            pending += msgspec.structs.astuple(item)
        elif isinstance(item, (list, tuple)):
            pending += item


def start_of(node: Node) -> int | None:
    """Return the 0-based character where the first part of a node stands that knows its own."""
    starts = (getattr(part, "start", None) for part in walk(node))
    return min((start for start in starts if start is not None), default=None)
