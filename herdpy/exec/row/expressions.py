"""Bound expressions to Python source with SQL's three-valued logic; None is NULL.

The source reads the row `r` (a physical Row) and the parameters `p`, and names constants and
helpers of the Writer's `space`. Three contexts: `value` gives the value or None, `truth` something
true exactly when the condition is TRUE, `falsity` something true exactly when it is FALSE; the
latter two save most tests for NULL. Floats compare as in PostgreSQL and DuckDB: NaN equals NaN and
is the greatest, -0.0 equals 0.0; arithmetic of DOUBLEs overflows to infinity as DuckDB's does.
Whatever is not a row-path expression (sql/planner.py decides) is an InvariantViolation.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from operator import itemgetter
from typing import Any, NoReturn

from herdpy.errors import DataError, InvariantViolation
from herdpy.exec.coerce import cast_physical
from herdpy.limits import row_nodes_max
from herdpy.model.keys import float_order
from herdpy.model.reals import round_real
from herdpy.model.schema import Table
from herdpy.model.types import (
    BOOLEAN,
    FLOAT_KINDS,
    INTEGER_BOUNDS,
    INTEGER_KINDS,
    Kind,
    SqlType,
)
from herdpy.sql import tree
from herdpy.sql.reading.extent import Budget
from herdpy.sql.tree import Expression

_COMPARISONS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITES = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FLOAT_COMPARISONS = {
    "=": "({a} == {b} or {a} != {a} and {b} != {b})",
    "<>": "({a} != {b} and ({a} == {a} or {b} == {b}))",
    "<": "({a} < {b} if {b} == {b} else {a} == {a})",
    "<=": "({a} <= {b} or {b} != {b})",
    ">": "({a} > {b} if {a} == {a} else {b} == {b})",
    ">=": "({a} >= {b} or {a} != {a})",
}


_SEQUENCE_METHODS = {
    "nextval": "next_value", "currval": "current_value", "lastval": "last_value",
    "setval": "set_value",
}  # fmt: skip
_INFINITY = float("inf")
_SAME_FORM = {*combinations(INTEGER_KINDS, 2), *combinations(FLOAT_KINDS, 2)}
"""Casts that leave the physical value as it is."""


def overflow(type_name: str) -> NoReturn:
    """Raise PostgreSQL's error for integer arithmetic that leaves its type."""
    raise DataError(f"{type_name} out of range", sqlstate="22003")


def _real_of(result: float) -> float:
    """Return the REAL of a result of 64 bits, which is the one that 32 bits alone give."""
    real = round_real(result)
    if real != result and (not real or abs(real) == _INFINITY):
        kind = "underflow" if not real else "overflow"
        raise DataError(f"value out of range: {kind}", sqlstate="22003")
    return real


def _order(value: float | None) -> int | None:
    return None if value is None else float_order(value)


class Writer:
    """Writes source for the expressions of one generated function.

    `space` is the function's globals; `prelude` are statements over `p` to run before the rows.
    """

    def __init__(self, table: Table | None) -> None:
        self.space: dict[str, Any] = {"overflow": overflow, "real_of": _real_of, "to_order": _order}
        self.prelude: list[str] = []
        self._table = table  # the relation every ColumnRef refers to
        self._temporary_count = 0
        self._budget = Budget(lambda: None, row_nodes_max, "operators")
        self._variables: dict[int, str] = {}  # the temporaries of those that are bound

    @property
    def operator_count(self) -> int:
        return self._budget.count

    def name(self, value: object) -> str:
        """Put a constant into space and return its name."""
        name = f"k{len(self.space)}"
        self.space[name] = value
        return name

    def value(self, node: Expression) -> str:
        """Return source that yields the value, None for NULL; evaluated anew at each use."""
        match node:
            case tree.Literal(value=value):
                # Other constants by name: `5 is None` would be a SyntaxWarning.
                return str(value) if value is None or value.__class__ is bool else self.name(value)
            case tree.Parameter(index=index):
                return f"p[{index}]"
            case tree.ColumnRef(ordinal=ordinal):
                return f"r[{ordinal}]"
            case tree.Variable(index=index):
                return self._variables[index]
            case tree.Assign(operand=operand, column=column):
                return self.assigned(self.value(operand), operand.type, node.type, column)
            case tree.Cast(operand=operand):
                return self._cast(operand, node.type)
            case tree.InList():
                return self._in_list(node)
            case tree.Let():
                return self._let(node, self.value)
            case tree.Call():
                return self._call(node)
            case tree.SequenceCall():
                return self._sequence_call(node)
            case _:
                raise _unsupported(node)

    def _sequence_call(self, node: tree.SequenceCall) -> str:
        """Return source over `numbers`, a Numbers of exec/interfaces.py."""
        method = _SEQUENCE_METHODS[node.function]
        name = [self.name(node.name)] if node.name else []
        return f"numbers.{method}({', '.join((*name, *map(self.value, node.arguments)))})"

    def row(self, nodes: Sequence[Expression]) -> str:
        """Return source of the tuple of values."""
        return f"({''.join(f'{self.value(node)}, ' for node in nodes)})"

    def function(self, parameters: str, lines: Sequence[str]) -> Any:
        body = "".join(f"    {line}\n" for line in (*self.prelude, *lines))
        exec(f"def function({parameters}):\n{body}", self.space)  # noqa: S102 - our own text
        return self.space["function"]

    def truth(self, node: Expression) -> str:
        """Return source that is true exactly when the condition is TRUE."""
        match node:
            case tree.Call(function="and", arguments=parts):
                return f"({' and '.join(map(self.truth, parts))})"
            case tree.Call(function="or", arguments=parts):
                return f"({' or '.join(map(self.truth, parts))})"
            case tree.Call(function="not", arguments=(operand,)):
                return self.falsity(operand)
            case tree.Call(function=function, arguments=(left, right)) if function in _COMPARISONS:
                return self._compare(function, left, right)
            case tree.Call(function="is_null", arguments=(operand,)):
                return f"({self.value(operand)} is None)"
            case tree.Let():
                return self._let(node, self.truth)
            case _:
                return f"({self.value(node)} is True)"

    def falsity(self, node: Expression) -> str:
        """Return source that is true exactly when the condition is FALSE."""
        match node:
            case tree.Call(function="and", arguments=parts):
                return f"({' or '.join(map(self.falsity, parts))})"
            case tree.Call(function="or", arguments=parts):
                return f"({' and '.join(map(self.falsity, parts))})"
            case tree.Call(function="not", arguments=(operand,)):
                return self.truth(operand)
            case tree.Call(function=function, arguments=(left, right)) if function in _COMPARISONS:
                return self._compare(_OPPOSITES[function], left, right)
            case tree.Call(function="is_null", arguments=(operand,)):
                return f"({self.value(operand)} is not None)"
            case tree.Let():
                return self._let(node, self.falsity)
            case _:
                return f"({self.value(node)} is False)"

    def _let(self, node: tree.Let, context: Callable[[Expression], str]) -> str:
        """Return source that computes the values first, and then the body in a context."""
        sources = [f"({self.value(value)})" for _, value in node.bindings]
        names = [self.temporary() for _ in sources]
        for (index, _), name in zip(node.bindings, names, strict=True):
            self._variables[index] = name
        return _sequence(list(zip(names, sources, strict=True)), context(node.body))

    def _arithmetic(self, node: tree.Call) -> str:
        """Return source of operators that are applied from the left.

        What several have found is a local, so that CPython's limit of nesting is not theirs.
        """
        steps: list[tuple[str, str]] = []
        left, *rest = node.arguments
        source = ""
        for operator, right in zip(node.function, rest, strict=True):
            if source:
                name, index = self.temporary(), -1 - len(self._variables)
                steps.append((name, source))
                self._variables[index] = name
                left = tree.Variable(node.type, index)
            nulls, a, b = self._operands(left, right)
            result = self._checked(f"{a} {operator} {b}", node.type)
            source = f"(None if {nulls} else {result})" if nulls else f"({result})"
        return _sequence(steps, source) if steps else source

    def _call(self, node: tree.Call) -> str:
        function, parts = node.function, node.arguments
        self._budget.spend(max(len(parts) - 1, 1))
        if function in ("and", "or"):
            return self._connect(parts, stop="False" if function == "and" else "True")
        if function == "not":
            temporary, source = self._operand(parts[0])
            return f"(None if ({source}) is None else not {temporary})"
        if function == "is_null":
            return self.truth(node)
        if function in _COMPARISONS:
            nulls, a, b = self._operands(*parts)
            comparison = _comparison(function, a, b, parts)
            return f"(None if {nulls} else {comparison})" if nulls else f"({comparison})"
        if any(part.type.kind is not node.type.kind for part in parts):
            raise _unsupported(node)
        if tree.is_arithmetic(function):
            return self._arithmetic(node)
        if function != "neg":
            raise _unsupported(node)
        nulls, a, _ = self._operands(parts[0], tree.Literal(parts[0].type, 0))
        result = self._checked(f"-{a}", node.type)
        return f"(None if {nulls} else {result})" if nulls else f"({result})"

    def _checked(self, source: str, sql_type: SqlType) -> str:
        if sql_type.kind is Kind.DOUBLE:
            return source
        if sql_type.kind is Kind.REAL:
            return f"real_of({source})"
        if sql_type.kind not in INTEGER_BOUNDS:
            raise InvariantViolation(f"row path: no arithmetic on {sql_type}")
        low, high = INTEGER_BOUNDS[sql_type.kind]
        result = self.temporary()
        name = self.name(str(sql_type).lower())
        return f"{result} if {low} <= ({result} := {source}) <= {high} else overflow({name})"

    def _compare(self, function: str, left: Expression, right: Expression) -> str:
        """Return source of a comparison that is false when an operand is NULL."""
        nulls, a, b = self._operands(left, right)
        comparison = _comparison(function, a, b, (left, right))
        return f"(not ({nulls}) and {comparison})" if nulls else f"({comparison})"

    def _operands(self, left: Expression, right: Expression) -> tuple[str, str, str]:
        """Return source of "one is NULL" ("" for never), and a name for each operand after it."""
        a, a_source = self._operand(left)
        b, b_source = self._operand(right)
        tests = [
            f"({source} is None)" if _is_simple(node) else f"(({source}) is None)"
            for source, node in ((a_source, left), (b_source, right))
            if not _is_simple(node) or self._is_nullable(node)
        ]
        # An operand that may overflow is evaluated beside a NULL too, as DuckDB does.
        return (" or " if _is_simple(right) else " | ").join(tests), a, b

    def _operand(self, node: Expression) -> tuple[str, str]:
        """Return a name to use after source was evaluated; the same when it costs nothing."""
        source = self.value(node)
        if _is_simple(node):
            return source, source
        temporary = self.temporary()
        return temporary, f"{temporary} := {source}"

    def _is_nullable(self, node: Expression) -> bool:
        if isinstance(node, tree.Literal):
            return node.value is None
        if isinstance(node, tree.ColumnRef) and self._table is not None:
            return not self._table.columns[node.ordinal].not_null
        return True

    def _connect(self, parts: tuple[Expression, ...], *, stop: str) -> str:
        """Return source of AND (stop False) or OR (stop True) with three values."""
        names = [self.temporary() for _ in parts]
        stops = (
            f"({n} := {self.value(part)}) is {stop}" for n, part in zip(names, parts, strict=True)
        )
        nulls = " or ".join(f"{name} is None" for name in names)
        return f"({stop} if {' or '.join(stops)} else None if {nulls} else {stop == 'False'})"

    def _in_list(self, node: tree.InList) -> str:
        if not all(isinstance(item, (tree.Literal, tree.Parameter)) for item in node.items):
            index = -1 - len(self._variables)  # an item may be a list with an operand of its own
            operand = tree.Variable(node.operand.type, index)
            tests = tuple(tree.Call(BOOLEAN, "=", (operand, item)) for item in node.items)
            found = tree.Let(BOOLEAN, ((index, node.operand),), tree.Call(BOOLEAN, "or", tests))
            return self.value(_negated_if(node.is_negated, found))
        for item in node.items:
            _require_alike(node.operand.type, item.type)
        # No source per item: compiling it takes seconds for lists of many thousands.
        slots = [item.index for item in node.items if isinstance(item, tree.Parameter)]
        fixed = tuple(item.value for item in node.items if isinstance(item, tree.Literal))
        values = self.name(fixed)
        if slots:
            several = self.name(itemgetter(*slots, slots[0]))  # a tuple of one slot, too
            values = f"{several}(p) + {values}"
        members = self.temporary()
        convert = "to_order" if node.operand.type.is_float else ""
        self.prelude.append(
            f"{members} = frozenset({f'map({convert}, {values})' if convert else values})"
        )
        name, source = self._operand(node.operand)
        found, missed = ("False", "True") if node.is_negated else ("True", "False")
        return (
            f"(None if ({source}) is None else {found} if {convert}({name}) in {members}"
            f" else None if None in {members} else {missed})"
        )

    def _cast(self, operand: Expression, to_type: SqlType) -> str:
        from_type = operand.type
        source = self.value(operand)
        if from_type == to_type or (from_type.kind, to_type.kind) in _SAME_FORM:
            return source
        convert = self.name(_caster(from_type, to_type))
        return f"{convert}({source})"

    def assigned(self, source: str, from_type: SqlType, to_type: SqlType, column: str) -> str:
        """Return source of a value converted to the type of the column that it is stored in.

        The ranges of integers and the lengths of texts are checked with the row.
        """
        is_same = from_type == to_type or from_type.kind is to_type.kind is Kind.TEXT
        if is_same or (from_type.is_integer and to_type.is_integer):
            return source
        convert = self.name(_assigner(from_type, to_type, column))
        return f"{convert}({source})"

    def temporary(self) -> str:
        """Return a new name for a local variable."""
        self._temporary_count += 1
        return f"t{self._temporary_count}"


def _sequence(steps: Sequence[tuple[str, str]], last: str) -> str:
    """Return source that gives locals their values, one after the other, and yields the last."""
    return f"({''.join(f'{name} := {source}, ' for name, source in steps)}{last})[-1]"


def _caster(from_type: SqlType, to_type: SqlType) -> Any:
    return lambda value: cast_physical(
        value, from_type, to_type, is_assignment=False, what=f"CAST to {to_type}"
    )


def _assigner(from_type: SqlType, to_type: SqlType, column: str) -> Any:
    what = f"column {column}"
    return lambda value: cast_physical(value, from_type, to_type, is_assignment=True, what=what)


def _comparison(function: str, a: str, b: str, operands: tuple[Expression, ...]) -> str:
    left, right = operands
    _require_alike(left.type, right.type)
    if left.type.is_float:
        return _FLOAT_COMPARISONS[function].format(a=a, b=b)
    return f"{a} {_COMPARISONS[function]} {b}"


def _require_alike(left: SqlType, right: SqlType) -> None:
    """Raise unless the physical forms of the two types compare as the values do."""
    is_alike = left.kind is right.kind and left.scale == right.scale
    if not is_alike and not (left.is_integer and right.is_integer):
        raise InvariantViolation(f"row path: compares {left} with {right} without a cast")


def _is_simple(node: Expression) -> bool:
    return isinstance(node, tree.Atom)


def _negated_if(is_negated: bool, node: Expression) -> Expression:
    return tree.Call(BOOLEAN, "not", (node,)) if is_negated else node


def _unsupported(node: Expression) -> InvariantViolation:
    detail = node.function if isinstance(node, tree.Call) else ""
    return InvariantViolation(f"row path: got {node.__class__.__name__} {detail} of {node.type}")
