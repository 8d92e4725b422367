"""What execution gets of SQL: slots for parameters, compiled statements, and plans. All frozen.

Row path or vector path is decided here and nowhere else. "Row-path expression" means an expression
for which planner.is_row_expression holds; exec/row can do exactly those. Constants in accesses are
row-path expressions without columns; one that yields NULL at run time makes the access empty.
"""

from collections.abc import Mapping, Sequence

from herdpy.model.types import SqlType
from herdpy.sql.tree import Expression, Insert, Node, Output, Query, Statement, TableRef

Parameters = Sequence[object] | Mapping[str, object] | None


NOW = "now()"
"""The source of the slot that holds the transaction's time; no placeholder can have this name."""


class Slot(Node, frozen=True):
    """One converted parameter: its source and the type to convert to.

    The source is a 0-based position, a name, or NOW. `column` is the one that it is stored in.
    """

    source: int | str
    type: SqlType
    column: str | None = None

    @property
    def parameter(self) -> str:
        """The parameter as messages name it."""
        source = self.source
        return f"parameter {source + 1}" if isinstance(source, int) else f"parameter :{source}"

    @property
    def what(self) -> str:
        """What messages about the value name: its column, otherwise the parameter."""
        return self.parameter if self.column is None else f"column {self.column}"


Numbers = tuple[tuple[int | str, SqlType, SqlType], ...]
"""Parameters that may be texts beside DECIMALs: the source, the DECIMAL, and the type of the
parameter that a statement is bound for (conversions.text_number)."""


class Compiled(Node, frozen=True):
    """A bound statement; tree.Parameter.index counts `slots`."""

    statement: Statement
    slots: tuple[Slot, ...]
    numbers: Numbers = ()


# --- accesses ------------------------------------------------------------------------------------


class PointAccess(Node, frozen=True):
    """The row of one key: a constant per key column, in key order, comparable with its kind."""

    key: tuple[Expression, ...]


class RangeAccess(Node, frozen=True):
    """Rows whose key begins with `prefix` and whose next key column lies between low and high.

    In key order. None is open; with both open there is a prefix, which is shorter than the key.
    """

    prefix: tuple[Expression, ...]
    low: Expression | None = None
    low_inclusive: bool = True
    high: Expression | None = None
    high_inclusive: bool = True


class FullAccess(Node, frozen=True):
    """Every row; in key order when is_ordered, else in any."""

    is_ordered: bool = False


class CountAccess(Node, frozen=True):
    """No rows but how many there are, as the one row of the query."""


class IndexAccess(Node, frozen=True):
    """Rows that an index has between bounds, in its order; `number` is its place in Table.stores.

    `entries` is an access to the index's entries: constants for its key, of which flags of NULL are
    a part. Where there are too many entries the vector path is the faster one, unless `is_sure`.
    """

    number: int
    entries: PointAccess | RangeAccess
    is_sure: bool = False


Access = PointAccess | RangeAccess | FullAccess | CountAccess | IndexAccess

# --- plans ---------------------------------------------------------------------------------------


class RowSelect(Node, frozen=True):
    """A query by row path: access, then residual (None = all), outputs, offset, limit.

    is_reverse asks for descending key order; it comes only with an ordered access. Without FROM
    `ref` is None, and there is one row without columns.
    """

    query: Query
    ref: TableRef | None
    access: Access
    residual: Expression | None
    outputs: tuple[Expression, ...]
    is_reverse: bool
    limit: Expression | None
    offset: Expression | None
    is_scan: bool = False
    """True when it filters every row: with many of them the vector path is the faster one."""

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]:
        return self.query.columns


class VectorSelect(Node, frozen=True):
    """A query by vector path (duckdb_text.print_query)."""

    query: Query

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]:
        return self.query.columns


class SequenceSelect(Node, frozen=True):
    """A query that takes values of sequences: row by row, over what `source` gives.

    `outputs` are row-path expressions with SequenceCalls among them; their columns are outputs of
    the source.
    """

    source: RowSelect | VectorSelect
    columns: tuple[tuple[str, SqlType], ...]
    outputs: tuple[Expression, ...]


SelectPlan = RowSelect | VectorSelect | SequenceSelect


class VectorFind(Node, frozen=True):
    """The rows to change, found by a query: key columns in key order, then `value_count` values.

    The values are the new ones of UpdatePlan's assignments, in their order. Behind them are those
    columns of joined rows that RETURNING names.
    """

    ref: TableRef
    query: Query
    value_count: int = 0


class RowFind(Node, frozen=True):
    """The rows to change, found by row path; with `by_vector` better so where rows are many."""

    ref: TableRef
    access: Access
    residual: Expression | None
    by_vector: VectorFind | None = None

    @property
    def is_scan(self) -> bool:
        """It filters every row, and the vector path is the faster one where rows are many."""
        return self.by_vector is not None and not isinstance(self.access, IndexAccess)

    def found_by_vector(self) -> VectorFind:
        """Return how the vector path finds the rows, where it may."""
        if self.by_vector is None:
            raise ValueError("a RowFind without vector path")
        return self.by_vector


Find = RowFind | VectorFind


class OverRows(Node, frozen=True):
    """What is computed of rows that a statement has at hand: by row path, or by `query`.

    The query reads the rows as the table of `ref`, in whose last column they are numbered, and
    gives the values in that order. With a condition it gives the number behind them, for the rows
    that meet it; the row path gives None for the others. `outputs` are the values as written.
    """

    ref: TableRef
    outputs: tuple[Output, ...]
    values: tuple[Expression, ...]
    where: Expression | None
    query: Query | None

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]:
        return tuple((output.name, output.expression.type) for output in self.outputs)


class InsertPlan(Node, frozen=True):
    """INSERT or UPSERT: `source` yields the rows; None when statement.rows are row-path.

    `update` computes the new values of DO UPDATE of rows there with new ones behind them.
    """

    statement: Insert
    source: SelectPlan | None
    returning: OverRows | None = None
    update: OverRows | None = None


class UpdatePlan(Node, frozen=True):
    """UPDATE. A VectorFind with values yields the new ones, else `assignments` compute them."""

    ref: TableRef
    find: Find
    assignments: tuple[tuple[int, Expression], ...]
    returning: OverRows | None = None


class DeletePlan(Node, frozen=True):
    ref: TableRef
    find: Find
    returning: OverRows | None = None


class ExplainPlan(Node, frozen=True):
    plan: "Plan"
    is_analyze: bool


class UtilityPlan(Node, frozen=True):
    """A statement that needs no rows: DDL, transactions, SET, SHOW."""

    statement: Statement


Plan = SelectPlan | InsertPlan | UpdatePlan | DeletePlan | ExplainPlan | UtilityPlan
