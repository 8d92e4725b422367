"""The one printer: a bound query to DuckDB's text. No text of a user reaches DuckDB unquoted.

Tables, columns and aliases get generated names (t1, c0, r1), literals are printed from their
physical values, parameters are $p<slot>. Every reference to a table is a relation of its own,
registered as `t<id>` with the columns c<ordinal> that DuckTable lists and a last column `__live`.
Conversions are all in the tree; DuckDB's settings do the rest (exec/vector/duck.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from herdpy.errors import InvariantViolation
from herdpy.model.types import Kind, SqlType
from herdpy.sql import tree
from herdpy.sql.planner import COMPARISONS, column_test, conjuncts

_TYPE_NAMES = {
    Kind.BOOLEAN: "BOOLEAN", Kind.INTEGER: "INTEGER", Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE", Kind.TEXT: "VARCHAR", Kind.BYTEA: "BLOB", Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}  # fmt: skip
_INFIX = {*COMPARISONS, "+", "-", "*", "/", "%", "||"}
_AGGREGATES = {"count", "sum", "avg", "min", "max"}


@dataclass(frozen=True, slots=True)
class DuckTable:
    """One relation to register: its name, whose snapshot, which columns, and what pages may miss.

    `prune` are tests (ordinal, operator, constant) that hold for every row this reference gives.
    """

    name: str
    ref: tree.TableRef
    ordinals: tuple[int, ...]
    prune: tuple[tuple[int, str, tree.Expression], ...]


@dataclass(frozen=True, slots=True)
class DuckText:
    """DuckDB's text, the relations it reads, and the slots of its parameters $p<slot>."""

    sql: str
    tables: tuple[DuckTable, ...]
    slots: tuple[int, ...]


def print_query(query: tree.Query) -> DuckText:
    """Return the text of a query for DuckDB."""
    printer = _Printer()
    text = printer.query(query)
    tables = tuple(
        DuckTable(
            f"t{ref.id}",
            ref,
            tuple(sorted(printer.used.get(ref.id, ()))),
            tuple(printer.prune.get(ref.id, ())),
        )
        for ref in printer.refs
    )
    for ref in printer.refs:
        text = text.replace(_mark(ref), _table_text(ref, printer.used.get(ref.id, set())))
    return DuckText(text, tables, tuple(sorted(printer.slots)))


def type_text(sql_type: SqlType) -> str:
    """Return DuckDB's name of a type; VARCHAR(n)'s length is no part of it."""
    if sql_type.kind is Kind.DECIMAL:
        return f"DECIMAL({sql_type.precision},{sql_type.scale})"
    return _TYPE_NAMES[sql_type.kind]


def _mark(ref: tree.TableRef) -> str:
    """Return what stands for a table until its used columns are known; no literal contains it."""
    return f"\0{ref.id}\0"


def _table_text(ref: tree.TableRef, used: set[int]) -> str:
    columns = ", ".join(f"c{ordinal}" for ordinal in sorted(used)) or "__live"
    return f"(SELECT {columns} FROM t{ref.id} WHERE __live) AS r{ref.id}"  # noqa: S608 - integers only


class _Printer:
    """Prints one query and gathers what it uses."""

    def __init__(self) -> None:
        self.refs: list[tree.TableRef] = []
        self.used: dict[int, set[int]] = {}
        self.prune: dict[int, list[tuple[int, str, tree.Expression]]] = {}
        self.slots: set[int] = set()

    # --- queries ---

    def query(self, query: tree.Query) -> str:
        body = query.body
        if query.ctes or isinstance(body, tree.SetOperation):
            raise InvariantViolation(f"printer: {type(body).__name__} or WITH is not printed yet")
        parts = [self._values(body) if isinstance(body, tree.Values) else self._select(body)]
        if query.order_by:
            parts.append(f"ORDER BY {', '.join(map(self.sort_key, query.order_by))}")
        if query.limit is not None:
            parts.append(f"LIMIT {self.expression(query.limit)}")
        if query.offset is not None:
            parts.append(f"OFFSET {self.expression(query.offset)}")
        return " ".join(parts)

    def _select(self, select: tree.Select) -> str:
        outputs = ", ".join(
            f"{self.expression(output.expression)} AS c{number}"
            for number, output in enumerate(select.outputs)
        )
        parts = [f"SELECT {'DISTINCT ' if select.is_distinct else ''}{outputs}"]
        if select.source is not None:
            parts.append(f"FROM {self.relation(select.source)}")
            self._add_prunes(select.source, conjuncts(select.where))
        if select.where is not None:
            parts.append(f"WHERE {self.expression(select.where)}")
        if select.group_by:
            parts.append(f"GROUP BY {', '.join(map(self.expression, select.group_by))}")
        if select.having is not None:
            parts.append(f"HAVING {self.expression(select.having)}")
        return " ".join(parts)

    def _values(self, values: tree.Values) -> str:
        rows = ", ".join(f"({', '.join(map(self.expression, row))})" for row in values.rows)
        names = ", ".join(f"c{number}" for number in range(len(values.names)))
        return f"SELECT * FROM (VALUES {rows}) AS v({names})"  # noqa: S608 - printed by us

    def relation(self, relation: tree.Relation) -> str:
        if isinstance(relation, tree.TableRef):
            self.refs.append(relation)
            return _mark(relation)
        if isinstance(relation, tree.Derived):
            return f"({self.query(relation.query)}) AS r{relation.id}"
        if isinstance(relation, tree.Join):
            left, right = self.relation(relation.left), self.relation(relation.right)
            if relation.condition is None:
                return f"{left} CROSS JOIN {right}"
            condition = self.expression(relation.condition)
            return f"({left} {relation.kind.value} JOIN {right} ON {condition})"
        raise InvariantViolation(f"printer: {type(relation).__name__} is not printed yet")

    def _add_prunes(self, source: tree.Relation, tests: list[tree.Expression]) -> None:
        """Note the WHERE conjuncts for tables that no outer join below WHERE fills with NULLs."""
        if isinstance(source, tree.TableRef):
            found = (column_test(test, source.id) for test in tests)
            self.prune.setdefault(source.id, []).extend(test for test in found if test)
        elif isinstance(source, tree.Join):
            if source.kind in (tree.JoinKind.INNER, tree.JoinKind.CROSS, tree.JoinKind.LEFT):
                self._add_prunes(source.left, tests)
            if source.kind in (tree.JoinKind.INNER, tree.JoinKind.CROSS, tree.JoinKind.RIGHT):
                self._add_prunes(source.right, tests)

    def sort_key(self, key: tree.SortKey) -> str:
        direction = "DESC" if key.is_descending else "ASC"
        nulls = "FIRST" if key.nulls_first else "LAST"
        # A bare constant would be taken for an output's number.
        return f"({self.expression(key.expression)}) {direction} NULLS {nulls}"

    # --- expressions ---

    def expression(self, expression: tree.Expression) -> str:
        return _PRINTERS[type(expression)](self, expression)

    def literal(self, literal: tree.Literal) -> str:
        return literal_text(literal)

    def parameter(self, parameter: tree.Parameter) -> str:
        self.slots.add(parameter.index)
        return f"CAST($p{parameter.index} AS {type_text(parameter.type)})"

    def column(self, ref: tree.ColumnRef) -> str:
        self.used.setdefault(ref.relation, set()).add(ref.ordinal)
        return f"r{ref.relation}.c{ref.ordinal}"

    def cast(self, cast: tree.Cast) -> str:
        text = f"CAST({self.expression(cast.operand)} AS {type_text(cast.type)})"
        return text if cast.type.length is None else f"substr({text}, 1, {cast.type.length})"

    def call(self, call: tree.Call) -> str:
        name = call.function
        arguments = [self.expression(argument) for argument in call.arguments]
        if name in ("and", "or"):
            return f"({f' {name.upper()} '.join(arguments)})"
        if name in _INFIX:
            return f"({arguments[0]} {name} {arguments[1]})"
        if name in ("like", "ilike"):
            return f"({arguments[0]} {name.upper()} {arguments[1]} ESCAPE '\\')"
        if name == "is_null":
            return f"({arguments[0]} IS NULL)"
        if name == "not":
            return f"(NOT {arguments[0]})"
        if name == "neg":
            return f"(- {arguments[0]})"
        raise InvariantViolation(f"printer: function {name} is not on the list")

    def case(self, case: tree.Case) -> str:
        branches = " ".join(
            f"WHEN {self.expression(condition)} THEN {self.expression(result)}"
            for condition, result in case.branches
        )
        otherwise = f" ELSE {self.expression(case.otherwise)}" if case.otherwise else ""
        return f"CASE {branches}{otherwise} END"

    def in_list(self, node: tree.InList) -> str:
        items = ", ".join(map(self.expression, node.items))
        word = "NOT IN" if node.is_negated else "IN"
        return f"({self.expression(node.operand)} {word} ({items}))"

    def aggregate(self, node: tree.Aggregate) -> str:
        if node.function not in _AGGREGATES or node.filter is not None or node.order:
            raise InvariantViolation(f"printer: aggregate {node.function} is not printed yet")
        arguments = ", ".join(map(self.expression, node.arguments)) or "*"
        return f"{node.function}({'DISTINCT ' if node.is_distinct else ''}{arguments})"


_PRINTERS: dict[type[tree.Expression], Callable[[_Printer, Any], str]] = {
    tree.Literal: _Printer.literal,
    tree.Parameter: _Printer.parameter,
    tree.ColumnRef: _Printer.column,
    tree.Cast: _Printer.cast,
    tree.Call: _Printer.call,
    tree.Case: _Printer.case,
    tree.InList: _Printer.in_list,
    tree.Aggregate: _Printer.aggregate,
}


def literal_text(literal: tree.Literal) -> str:
    """Return a physical constant of any column type as DuckDB's text, with exactly its type."""
    value, kind = literal.value, literal.type.kind
    name = type_text(literal.type)
    if value is None:
        return f"CAST(NULL AS {name})"
    if kind is Kind.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind is Kind.TEXT:
        text = str(value).replace("'", "''")
        return f"'{text}'"
    if kind is Kind.BYTEA and isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if kind is Kind.DECIMAL and isinstance(value, int):
        scale = literal.type.scale or 0
        digits = str(abs(value)).rjust(scale + 1, "0")
        point = len(digits) - scale
        sign = "-" if value < 0 else ""
        fraction = f".{digits[point:]}" if scale else ""
        return f"CAST('{sign}{digits[:point]}{fraction}' AS {name})"
    if kind is Kind.DATE:
        return f"CAST(DATE '1970-01-01' + {value} AS DATE)"
    if kind is Kind.TIMESTAMP:
        return f"make_timestamp({value})"
    return f"CAST('{value!r}' AS {name})"  # INTEGER, BIGINT, DOUBLE (also nan, inf)
