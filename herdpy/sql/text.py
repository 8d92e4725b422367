"""Text of bound trees: expressions and tables as SQL that a person reads and can run again.

For EXPLAIN and `.schema`, not for execution (that is duckdb_text.py). Implicit casts are printed
like explicit ones, for they are the same node; a subquery is printed as `(subquery 1)` and
collected, so that who prints a plan can show it as a tree of its own.
"""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from herdpy.model.intervals import interval_text
from herdpy.model.reals import real_text
from herdpy.model.schema import Check, Column, FillKind, Index, Table
from herdpy.model.sequences import SequenceDefinition
from herdpy.model.types import TEXT, Kind, Physical, SqlType
from herdpy.sql import tree
from herdpy.sql.reading.words import NO_NAMES
from herdpy.sql.sequences.options import new_sequence

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_EPOCH = datetime.datetime(1970, 1, 1)

_OR, _AND, _NOT, _COMPARISON, _OTHER, _SUM, _PRODUCT, _UNARY, _CAST, _ATOM = range(10)
_BINARY = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _COMPARISON),
    "like": _COMPARISON, "ilike": _COMPARISON, "distinct": _COMPARISON,
    **dict.fromkeys(("date_plus", "date_minus", "date_diff"), _SUM),
    **dict.fromkeys(("timestamp_plus", "timestamp_minus", "timestamp_diff"), _SUM),
    "interval_times": _PRODUCT, "interval_over": _PRODUCT,
    "||": _OTHER, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT,
}  # fmt: skip
_SHOWN = {"round_to": "round", "trunc_to": "trunc"}  # rounding to digits, inside
_ESCAPE = r"'\'"  # what LIKE has unless it says otherwise
_REPEATED_CHARACTERS = 60
"""An operand up to here is shown wherever it stands, though it is computed once."""
_WORDS = {
    "like": "LIKE", "ilike": "ILIKE", "distinct": "IS DISTINCT FROM",
    "date_plus": "+", "date_minus": "-", "date_diff": "-", "timestamp_plus": "+",
    "timestamp_minus": "-", "timestamp_diff": "-", "interval_times": "*", "interval_over": "/",
}  # fmt: skip


def name_text(name: str) -> str:
    """Return a name as SQL reads it back, quoted only where it has to be."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in NO_NAMES and name != "values":
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def type_text(sql_type: SqlType) -> str:
    """Return a type under the name that CREATE TABLE takes."""
    return "DOUBLE PRECISION" if sql_type.kind is Kind.DOUBLE else str(sql_type)


def literal_text(value: Physical | tuple[int, int, int], sql_type: SqlType) -> str:
    kind = sql_type.kind
    if value is None:
        return "NULL"
    if isinstance(value, tuple):
        return f"INTERVAL '{interval_text(value)}'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        return f"'{escaped}'"
    if isinstance(value, int):
        return _integer_text(value, sql_type)
    text = real_text(value) if kind is Kind.REAL else repr(value)
    is_finite = value - value == 0
    return text if is_finite else f"'{text}'::{type_text(sql_type)}"


def _integer_text(value: int, sql_type: SqlType) -> str:
    if sql_type.kind is Kind.DATE:
        return f"DATE '{_EPOCH.date() + datetime.timedelta(days=value)}'"
    if sql_type.kind is Kind.TIMESTAMP:
        return f"TIMESTAMP '{_EPOCH + datetime.timedelta(microseconds=value)}'"
    if sql_type.kind is Kind.TIMESTAMPTZ:
        return f"TIMESTAMPTZ '{_EPOCH + datetime.timedelta(microseconds=value)}+00'"
    scale = sql_type.scale if sql_type.kind is Kind.DECIMAL else None
    if not scale:
        return str(value)
    digits = str(abs(value)).rjust(scale + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def create_table_text(
    table: Table, sequence_of: Callable[[str], SequenceDefinition | None] = lambda _: None
) -> str:
    """Return the CREATE TABLE that makes an equal table, without semicolon.

    sequence_of() gives the sequences of identity columns by name, None where it does not know.
    """
    keys = () if table.is_heap else table.key
    lines = [
        _column_text(column, sequence_of, is_key=ordinal in keys)
        for ordinal, column in enumerate(table.columns)
        if not column.hidden
    ]
    if keys:
        lines.append(f"PRIMARY KEY ({', '.join(map(name_text, table.key_names))})")
    for index in table.indexes:
        if index.is_constraint:
            nulls = "" if index.nulls_distinct else " NULLS NOT DISTINCT"
            columns = _indexed_text(table, index)
            lines.append(f"CONSTRAINT {name_text(index.name)} UNIQUE{nulls} ({columns})")
    lines += [_check_text(check) for check in table.checks if check.is_valid]
    body = ",\n    ".join(lines)
    return f"CREATE TABLE {name_text(table.name)} (\n    {body}\n)"


def _create_index_texts(table: Table) -> Iterator[str]:
    """Yield CREATE INDEX of those that are not made with the table, without semicolon."""
    for index in table.indexes:
        if not index.is_constraint:
            yield (
                f"CREATE {'UNIQUE ' if index.is_unique else ''}INDEX {name_text(index.name)} "
                f"ON {name_text(table.name)} ({_indexed_text(table, index)})"
                f"{'' if index.nulls_distinct else ' NULLS NOT DISTINCT'}"
            )


def later_texts(table: Table) -> Iterator[str]:
    """Yield what is made behind the rows, without semicolon: indexes, and CHECKs not VALID."""
    yield from _create_index_texts(table)
    for check in table.checks:
        if not check.is_valid:
            yield f"ALTER TABLE {name_text(table.name)} ADD {_check_text(check)} NOT VALID"


def _check_text(check: Check) -> str:
    return f"CONSTRAINT {name_text(check.name)} CHECK ({check.text})"


def _indexed_text(table: Table, index: Index) -> str:
    return ", ".join(name_text(table.columns[ordinal].name) for ordinal in index.columns)


def _column_text(
    column: Column, sequence_of: Callable[[str], SequenceDefinition | None], *, is_key: bool
) -> str:
    text = f"{name_text(column.name)} {type_text(column.type)}"
    if column.not_null and not is_key:
        text += " NOT NULL"
    if column.filling is not None:
        text += _filling_text(column, sequence_of(column.filling.sequence))
    elif column.default_sql is not None:
        text += f" DEFAULT {column.default_sql}"
    elif column.default is not None:
        text += f" DEFAULT {literal_text(column.default, column.type)}"
    return text


def _filling_text(column: Column, sequence: SequenceDefinition | None) -> str:
    """Return what fills a column, as its definition has it, with the sequence's known options."""
    filling = column.filling
    assert filling is not None
    if filling.kind is FillKind.NONE:
        return ""
    if filling.kind is FillKind.DEFAULT:
        return f" DEFAULT nextval({literal_text(name_text(filling.sequence), TEXT)})"
    word = "ALWAYS" if filling.kind is FillKind.ALWAYS else "BY DEFAULT"
    options = "" if sequence is None else options_text(sequence, column.type.kind)
    return f" GENERATED {word} AS IDENTITY{f' ({options})' if options else ''}"


def options_text(sequence: SequenceDefinition, kind: Kind) -> str:
    """Return the options that make a sequence; those that it has anyway are left out."""
    usual = new_sequence(sequence.kind, {"INCREMENT": sequence.increment})
    parts = [] if sequence.kind is kind else [f"AS {sequence.kind.name}"]
    for word, value, default in (
        ("INCREMENT BY", sequence.increment, 1),
        ("MINVALUE", sequence.minimum, usual.minimum),
        ("MAXVALUE", sequence.maximum, usual.maximum),
        ("START WITH", sequence.start, None),
        ("CACHE", sequence.cache, 1),
    ):
        if default is None:
            default = sequence.minimum if sequence.increment > 0 else sequence.maximum
        if value != default:
            parts.append(f"{word} {value}")
    return " ".join([*parts, "CYCLE"] if sequence.cycles else parts)


def _is_own_result(node: tree.Cast) -> bool:
    """Tell whether the cast only gives a call the type that its SQL name has anyway."""
    operand = node.operand
    if isinstance(operand, tree.Aggregate | tree.Window):
        return operand.function == "sum" and node.type.kind is Kind.BIGINT
    return isinstance(operand, tree.Call) and operand.function in _SHOWN


class ExpressionPrinter:
    """Prints expressions of one statement. `subqueries` are those met so far, in order."""

    def __init__(self, aliases: Mapping[int, str], parameters: Sequence[str]) -> None:
        """Name relations by id, and parameters by slot; without aliases columns stand alone."""
        self._aliases = aliases
        self._parameters = parameters
        self._variables: dict[int, tuple[str, int]] = {}
        self.subqueries: list[tree.Query] = []

    def text(self, expression: tree.Expression) -> str:
        return self._print(expression)[0]

    def list_text(self, expressions: Sequence[tree.Expression]) -> str:
        return ", ".join(map(self.text, expressions))

    def sort_text(
        self, keys: Sequence[tree.SortKey], names: Mapping[tree.Expression, str] | None = None
    ) -> str:
        """Return the items of an ORDER BY; NULLS FIRST and LAST only where not the default.

        What `names` has is called by its name.
        """
        items: list[str] = []
        for key in keys:
            name = (names or {}).get(key.expression)
            item = self.text(key.expression) if name is None else name_text(name)
            item += " DESC" if key.is_descending else ""
            if key.nulls_first != key.is_descending:
                item += " NULLS FIRST" if key.nulls_first else " NULLS LAST"
            items.append(item)
        return ", ".join(items)

    def _inside(self, expression: tree.Expression, level: int) -> str:
        """Return the text, in parentheses when it binds less than `level`."""
        text, own = self._print(expression)
        return text if own >= level else f"({text})"

    def _print(self, expression: tree.Expression) -> tuple[str, int]:
        printer = _PRINTERS.get(type(expression))
        if printer is None:  # a node newer than this printer: EXPLAIN need not fail for it
            return f"{type(expression).__name__.lower()}(…)", _ATOM
        return printer(self, expression)

    def literal(self, node: tree.Literal) -> tuple[str, int]:
        text = literal_text(node.value, node.type)
        return text, _UNARY if text.startswith("-") else _ATOM

    def parameter(self, node: tree.Parameter) -> tuple[str, int]:
        return self._parameters[node.index], _ATOM

    def column(self, node: tree.ColumnRef) -> tuple[str, int]:
        alias = self._aliases.get(node.relation)
        name = name_text(node.name)
        return (name if alias is None else f"{name_text(alias)}.{name}"), _ATOM

    def variable(self, node: tree.Variable) -> tuple[str, int]:
        return self._variables[node.index]

    def let(self, node: tree.Let) -> tuple[str, int]:
        """Return the body with its values put in; long ones, which SQL cannot name, before it."""
        named: list[str] = []
        for index, value in node.bindings:
            found = self._print(value)
            if len(found[0]) > _REPEATED_CHARACTERS:
                named.append(f"v{index} = {found[0]}")
                found = f"v{index}", _ATOM
            self._variables[index] = found
        body, level = self._print(node.body)
        return (f"(LET {', '.join(named)} IN {body})", _ATOM) if named else (body, level)

    def call(self, node: tree.Call) -> tuple[str, int]:
        name, arguments = node.function, node.arguments
        if name in ("and", "or"):
            level = _AND if name == "and" else _OR
            parts = [self._inside(part, level + 1) for part in arguments]
            return f" {name.upper()} ".join(parts), level
        if name == "||" or tree.is_arithmetic(name):
            operators = ["||"] * (len(arguments) - 1) if name == "||" else name
            text, level = self._print(arguments[0])
            for operator, argument in zip(operators, arguments[1:], strict=True):
                own = _BINARY[operator]
                left = text if level >= own else f"({text})"
                text, level = f"{left} {operator} {self._inside(argument, own + 1)}", own
            return text, level
        if name in _BINARY:
            level = _BINARY[name]
            left = self._inside(arguments[0], level + (level == _COMPARISON))
            word = _WORDS.get(name, name)
            text = f"{left} {word} {self._inside(arguments[1], level + 1)}"
            if len(arguments) > 2:  # the escape character of LIKE
                escape = self._inside(arguments[2], level + 1)
                text += "" if escape == _ESCAPE else f" ESCAPE {escape}"
            return text, level
        if name == "not":
            negated = arguments[0]
            if isinstance(negated, tree.Call) and negated.function == "is_null":
                operand = self._inside(negated.arguments[0], _OTHER)
                return f"{operand} IS NOT NULL", _COMPARISON
            return f"NOT {self._inside(negated, _NOT)}", _NOT
        if name == "is_null":
            return f"{self._inside(arguments[0], _OTHER)} IS NULL", _COMPARISON
        if name == "neg":
            return f"-{self._inside(arguments[0], _CAST)}", _UNARY
        name, _, unit = _SHOWN.get(name, name).partition(":")
        first = f"'{unit}', " if unit else ""
        return f"{name}({first}{self.list_text(arguments)})", _ATOM

    def cast(self, node: tree.Cast) -> tuple[str, int]:
        if _is_own_result(node):
            return self._print(node.operand)
        return f"{self._inside(node.operand, _CAST)}::{type_text(node.type)}", _CAST

    def sequence_call(self, node: tree.SequenceCall) -> tuple[str, int]:
        name = [literal_text(node.name, TEXT)] if node.name else []
        arguments = ", ".join((*name, *map(self.text, node.arguments)))
        return f"{node.function}({arguments})", _ATOM

    def case(self, node: tree.Case) -> tuple[str, int]:
        branches = " ".join(
            f"WHEN {self.text(condition)} THEN {self.text(result)}"
            for condition, result in node.branches
        )
        otherwise = f" ELSE {self.text(node.otherwise)}" if node.otherwise is not None else ""
        return f"CASE {branches}{otherwise} END", _ATOM

    def in_list(self, node: tree.InList) -> tuple[str, int]:
        word = "NOT IN" if node.is_negated else "IN"
        operand = self._inside(node.operand, _OTHER)
        return f"{operand} {word} ({self.list_text(node.items)})", _COMPARISON

    def subquery(self, query: tree.Query) -> str:
        if query not in self.subqueries:
            self.subqueries.append(query)
        return f"(subquery {self.subqueries.index(query) + 1})"

    def in_query(self, node: tree.InQuery) -> tuple[str, int]:
        word = "NOT IN" if node.is_negated else "IN"
        return f"{self._inside(node.operand, _OTHER)} {word} {self.subquery(node.query)}", (
            _COMPARISON
        )

    def row_in_query(self, node: tree.RowInQuery) -> tuple[str, int]:
        return f"({self.list_text(node.operands)}) IN {self.subquery(node.query)}", _COMPARISON

    def quantified(self, node: tree.Quantified) -> tuple[str, int]:
        word = f"{node.operator} {'ALL' if node.is_all else 'ANY'}"
        return f"{self._inside(node.operand, _OTHER)} {word} {self.subquery(node.query)}", (
            _COMPARISON
        )

    def aggregate(self, node: tree.Aggregate) -> tuple[str, int]:
        inner = self.list_text(node.arguments) or "*"
        if node.is_distinct:
            inner = f"DISTINCT {inner}"
        if node.order:
            inner += f" ORDER BY {self.sort_text(node.order)}"
        return f"{node.function}({inner}){self._filter(node.filter)}", _ATOM

    def window(self, node: tree.Window) -> tuple[str, int]:
        inner = self.list_text(node.arguments) or ("*" if node.function == "count" else "")
        if node.is_distinct:
            inner = f"DISTINCT {inner}"
        parts: list[str] = []
        if node.partition:
            parts.append(f"PARTITION BY {self.list_text(node.partition)}")
        if node.order:
            parts.append(f"ORDER BY {self.sort_text(node.order)}")
        if node.frame is not None:
            parts.append(node.frame)
        call = f"{node.function}({inner}){self._filter(node.filter)}"
        return f"{call} OVER ({' '.join(parts)})", _ATOM

    def _filter(self, condition: tree.Expression | None) -> str:
        return "" if condition is None else f" FILTER (WHERE {self.text(condition)})"


_PRINTERS: dict[type[tree.Expression], Callable[[ExpressionPrinter, Any], tuple[str, int]]] = {
    tree.Literal: ExpressionPrinter.literal,
    tree.Parameter: ExpressionPrinter.parameter,
    tree.ColumnRef: ExpressionPrinter.column,
    tree.Call: ExpressionPrinter.call,
    tree.SequenceCall: ExpressionPrinter.sequence_call,
    tree.Variable: ExpressionPrinter.variable,
    tree.Let: ExpressionPrinter.let,
    tree.Cast: ExpressionPrinter.cast,
    tree.Assign: ExpressionPrinter.cast,
    tree.Case: ExpressionPrinter.case,
    tree.InList: ExpressionPrinter.in_list,
    tree.ScalarSubquery: lambda printer, node: (printer.subquery(node.query), _ATOM),
    tree.Exists: lambda printer, node: (f"EXISTS {printer.subquery(node.query)}", _ATOM),
    tree.InQuery: ExpressionPrinter.in_query,
    tree.RowInQuery: ExpressionPrinter.row_in_query,
    tree.Quantified: ExpressionPrinter.quantified,
    tree.Aggregate: ExpressionPrinter.aggregate,
    tree.Window: ExpressionPrinter.window,
}
