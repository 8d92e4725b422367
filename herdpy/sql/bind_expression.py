"""Expressions: sqlglot's tree to ours, with types decided and implicit casts written out.

Every function returns settled expressions (no pending parameter, no UNKNOWN literal) but bind_open,
whose result the caller settles by context: assign, compare, convert, or settle.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from herdpy.errors import DataError
from herdpy.limits import decimal_precision_max, varchar_length_max
from herdpy.model.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    UNKNOWN,
    Kind,
    SqlType,
    decimal_type,
    varchar_type,
)
from herdpy.sql import conversions, tree
from herdpy.sql.scope import Scope

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max",
}  # fmt: skip
_TYPES = {
    "BOOLEAN": BOOLEAN, "INT": INTEGER, "BIGINT": BIGINT, "DOUBLE": DOUBLE, "TEXT": TEXT,
    "VARCHAR": TEXT, "VARBINARY": BYTEA, "DATE": DATE, "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
}  # fmt: skip
TRUE, FALSE = tree.Literal(BOOLEAN, True), tree.Literal(BOOLEAN, False)


def bind_expression(node: exp.Expr, scope: Scope) -> tree.Expression:
    """Bind one expression; an untyped literal or parameter becomes TEXT."""
    return scope.context.settle(bind_open(node, scope))


def bind_condition(node: exp.Expr, scope: Scope, clause: str) -> tree.Expression:
    """Bind what must be BOOLEAN (42804)."""
    bound = bind_open(node, scope)
    if bound.type.kind not in (Kind.BOOLEAN, Kind.UNKNOWN):
        raise scope.context.error(
            "42804", f"{clause} must be of type boolean, not {str(bound.type).lower()}", node
        )
    return convert(bound, BOOLEAN, node, scope)


def bind_open(node: exp.Expr, scope: Scope) -> tree.Expression:
    """Bind one expression; the result may be an untyped literal or a pending parameter."""
    while isinstance(node, exp.Paren):
        node = node.this
    binder = _BINDERS.get(type(node))
    if binder is None:
        what = node.sql_name() if isinstance(node, exp.Func) else type(node).__name__
        if isinstance(node, exp.Anonymous):
            what = node.name
        if isinstance(node, exp.Func):
            raise scope.context.error("42883", f"function {what.lower()} does not exist", node)
        raise scope.context.error("0A000", f"expression {what} is not supported", node)
    return binder(node, scope)


# --- conversion ----------------------------------------------------------------------------------


def convert(
    expression: tree.Expression, target: SqlType, node: exp.Expr, scope: Scope
) -> tree.Expression:
    """Convert to target without asking whether it is allowed: fold, retarget, or add a Cast."""
    context = scope.context
    source = expression.type
    if isinstance(expression, tree.Literal) and _is_foldable(source, target):
        try:
            value = conversions.convert_constant(expression.value, source, target)  # type: ignore[arg-type]  # no INTERVAL here
        except DataError as error:
            error.position = context.position(node)
            raise
        return tree.Literal(target, value)
    if isinstance(expression, tree.Parameter) and expression.index < 0:
        if _is_retargetable(source, target):
            return context.settle(expression, target)
        expression = context.settle(expression)
    if source == target or (source.kind is target.kind is Kind.TEXT and target.length is None):
        return expression
    return tree.Cast(target, expression)


def assign(
    expression: tree.Expression, target: SqlType, name: str, node: exp.Expr, scope: Scope
) -> tree.Expression:
    """Convert for storing into column `name` (42804). A text's length is checked with the row."""
    if not conversions.is_assignable(expression.type, target):
        raise scope.context.error(
            "42804",
            f'column "{name}" is of type {str(target).lower()}, '
            f"the value of type {str(expression.type).lower()}",
            node,
            "Write a CAST.",
        )
    return convert(expression, TEXT if target.kind is Kind.TEXT else target, node, scope)


def _is_foldable(source: SqlType, target: SqlType) -> bool:
    if source.kind is Kind.UNKNOWN:
        return True
    if target.kind is Kind.TEXT:
        return source.is_integer
    return target.is_numeric and (source.is_integer or source.kind is Kind.DECIMAL)


def _is_retargetable(source: SqlType, target: SqlType) -> bool:
    """Tell whether converting the Python value to target equals a cast of it to target."""
    if source.kind is Kind.UNKNOWN or source.kind is target.kind:
        return True
    if source.is_integer:
        return target.is_numeric
    return (source.kind, target.kind) in (
        (Kind.DECIMAL, Kind.DOUBLE),
        (Kind.DATE, Kind.TIMESTAMP),
    )


def unify(
    parts: Sequence[tree.Expression], node: exp.Expr, scope: Scope, what: str
) -> list[tree.Expression]:
    """Convert all parts to their common type (TEXT when all are untyped); 42804 without one."""
    target: SqlType | None = None
    for part in parts:
        if part.type.kind is not Kind.UNKNOWN:
            found = part.type if target is None else conversions.common_type(target, part.type)
            if found is None:
                raise scope.context.error(
                    "42804", f"{what}: types {target} and {part.type} do not match".lower(), node
                )
            target = found
    return [convert(part, target or TEXT, node, scope) for part in parts]


def bind_type(node: Any, scope: Scope) -> SqlType:
    """Return the SqlType of an exp.DataType (0A000 for types that there are not)."""
    name = node.this.name if hasattr(node.this, "name") else str(node.this)
    try:
        arguments = [int(str(item.this.this)) for item in node.expressions]
    except ValueError:
        raise scope.context.error("42601", f"type {name}: expected numbers in ()", node) from None
    if name == "VARCHAR" and len(arguments) == 1:
        if not 1 <= arguments[0] <= varchar_length_max:
            raise scope.context.error(
                "22023", f"varchar length must be 1 to {varchar_length_max}, not {arguments[0]}"
            )
        return varchar_type(arguments[0])
    if name == "DECIMAL":
        precision, scale = (*arguments, *((18, 3)[len(arguments) :] if not arguments else (0, 0)))[
            :2
        ]
        if not (1 <= precision <= decimal_precision_max and 0 <= scale <= precision):
            raise scope.context.error(
                "22023",
                f"numeric({precision},{scale}): expected a precision of 1 to "
                f"{decimal_precision_max} and a scale of 0 to it",
            )
        return decimal_type(precision, scale)
    if name not in _TYPES or arguments:
        raise scope.context.error(
            "0A000",
            f"type {node.sql('postgres').lower()} is not supported",
            node,
            "Types: boolean, integer, bigint, double precision, decimal(p,s), text, varchar(n), "
            "bytea, date, timestamp.",
        )
    return _TYPES[name]


# --- leaves --------------------------------------------------------------------------------------


def _bind_literal(node: Any, scope: Scope) -> tree.Expression:
    if node.is_string or isinstance(node, exp.ByteString):
        return tree.Literal(UNKNOWN, node.this)
    value, kind = conversions.number_constant(node.this)
    return tree.Literal(kind, value)


def _bind_column(node: Any, scope: Scope) -> tree.Expression:
    if isinstance(node.this, exp.Star):
        raise scope.context.error("42601", "* stands for columns of a select list only", node)
    return scope.column(node)


def _bind_cast(node: Any, scope: Scope) -> tree.Expression:
    scope.context.only(node, ("this", "to", "_type"), "CAST")
    operand, target = bind_open(node.this, scope), bind_type(node.to, scope)
    if not conversions.is_castable(operand.type, target):
        raise scope.context.error(
            "42846", f"cannot cast type {operand.type} to {target}".lower(), node
        )
    if target.length is not None:  # an explicit cast cuts, where an assignment refuses
        return tree.Cast(target, convert(operand, TEXT, node, scope))
    return convert(operand, target, node, scope)


# --- operators -----------------------------------------------------------------------------------


def _bind_connective(node: Any, scope: Scope) -> tree.Expression:
    """Bind a chain of AND or of OR as one call, however long it is."""
    kind, parts = type(node), list[tree.Expression]()
    name = "and" if kind is exp.And else "or"
    while type(node) is kind:
        parts.append(bind_condition(node.expression, scope, f"argument of {name.upper()}"))
        node = node.this
    parts.append(bind_condition(node, scope, f"argument of {name.upper()}"))
    return tree.Call(BOOLEAN, name, tuple(reversed(parts)))


def negate(expression: tree.Expression) -> tree.Expression:
    if isinstance(expression, tree.InList):
        return tree.InList(BOOLEAN, expression.operand, expression.items, not expression.is_negated)
    return tree.Call(BOOLEAN, "not", (expression,))


def _bind_not(node: Any, scope: Scope) -> tree.Expression:
    return negate(bind_condition(node.this, scope, "argument of NOT"))


def _bind_comparison(node: Any, scope: Scope) -> tree.Expression:
    left, right = bind_open(node.this, scope), bind_open(node.expression, scope)
    return compare(_COMPARISONS[type(node)], left, right, node, scope)


def compare(
    operator: str,
    left: tree.Expression,
    right: tree.Expression,
    node: exp.Expr,
    scope: Scope,
) -> tree.Expression:
    """Return left operator right with both sides made comparable (42883)."""
    left, right = make_comparable(operator, left, right, node, scope)
    return tree.Call(BOOLEAN, operator, (left, right))


def make_comparable(
    operator: str,
    left: tree.Expression,
    right: tree.Expression,
    node: exp.Expr,
    scope: Scope,
) -> tuple[tree.Expression, tree.Expression]:
    unknown = (left.type.kind is Kind.UNKNOWN, right.type.kind is Kind.UNKNOWN)
    if any(unknown):
        target = TEXT if all(unknown) else right.type if unknown[0] else left.type
        target = TEXT if target.kind is Kind.TEXT else target
    elif conversions.is_comparable(left.type, right.type):
        return scope.context.settle(left), scope.context.settle(right)
    else:
        # A constant that means the same in the column's type leaves the column bare, so that the
        # key and zone maps can be used.
        for constant, other in ((left, right), (right, left)):
            if _means_same(constant, other.type):
                return (
                    convert(left, other.type, node, scope),
                    convert(right, other.type, node, scope),
                )
        common = conversions.common_type(left.type, right.type)
        if common is None:
            raise _no_operator(operator, left, right, node, scope)
        target = common
    return convert(left, target, node, scope), convert(right, target, node, scope)


def _means_same(constant: tree.Expression, target: SqlType) -> bool:
    if not isinstance(constant, tree.Literal) or not isinstance(constant.value, int):
        return False
    if not (constant.type.is_integer or constant.type.kind is Kind.DECIMAL):
        return False
    if not (target.is_integer or target.kind is Kind.DECIMAL):
        return False
    return conversions.is_exact(constant.value, constant.type, target)


def _no_operator(
    operator: str,
    left: tree.Expression,
    right: tree.Expression,
    node: exp.Expr,
    scope: Scope,
) -> Exception:
    return scope.context.error(
        "42883",
        f"operator does not exist: {left.type} {operator} {right.type}".lower(),
        node,
        "Write a CAST to make the types match.",
    )


def _bind_arithmetic(node: Any, scope: Scope) -> tree.Expression:
    operator = _ARITHMETIC[type(node)]
    left, right = bind_open(node.this, scope), bind_open(node.expression, scope)
    if left.type.kind is Kind.UNKNOWN and right.type.is_numeric:
        left = convert(left, right.type, node, scope)
    elif right.type.kind is Kind.UNKNOWN and left.type.is_numeric:
        right = convert(right, left.type, node, scope)
    if not (left.type.is_numeric and right.type.is_numeric):
        raise _no_operator(operator, left, right, node, scope)
    common = conversions.common_type(left.type, right.type)
    if common is not None and common.kind is not Kind.DECIMAL:
        if operator == "%" and common is DOUBLE:
            raise _no_operator(operator, left, right, node, scope)
        parts = (convert(left, common, node, scope), convert(right, common, node, scope))
        return tree.Call(common, operator, parts)
    if operator in "/%":
        raise scope.context.error("0A000", f"numeric {operator} is not supported yet", node)
    left, right = scope.context.settle(left), scope.context.settle(right)
    left_type, right_type = (conversions.as_decimal(side.type) for side in (left, right))
    (left_whole, left_scale), (right_whole, right_scale) = map(
        conversions.digits, (left_type, right_type)
    )
    if operator == "*":
        scale, whole = left_scale + right_scale, left_whole + right_whole
    else:
        scale, whole = max(left_scale, right_scale), max(left_whole, right_whole) + 1
    if scale > decimal_precision_max:
        raise scope.context.error("22003", f"numeric result would have scale {scale}", node)
    result = decimal_type(min(whole + scale, decimal_precision_max), scale)
    parts = (convert(left, left_type, node, scope), convert(right, right_type, node, scope))
    return tree.Cast(result, tree.Call(result, operator, parts))


def _bind_negative(node: Any, scope: Scope) -> tree.Expression:
    operand = bind_open(node.this, scope)
    value = operand.value if isinstance(operand, tree.Literal) else None
    if isinstance(value, (int, float)) and operand.type.is_numeric:
        return tree.Literal(operand.type, -value)
    if not operand.type.is_numeric:
        raise scope.context.error(
            "42883", f"operator does not exist: - {operand.type}".lower(), node
        )
    return tree.Call(operand.type, "neg", (scope.context.settle(operand),))


def _bind_text_operator(node: Any, scope: Scope) -> tree.Expression:
    name = {exp.DPipe: "||", exp.Like: "like", exp.ILike: "ilike"}[type(node)]
    sides = (bind_open(node.this, scope), bind_open(node.expression, scope))
    kinds = {side.type.kind for side in sides}
    if not kinds <= {Kind.TEXT, Kind.UNKNOWN}:
        raise _no_operator(name, *sides, node, scope)
    parts = tuple(convert(side, TEXT, node, scope) for side in sides)
    return tree.Call(TEXT if name == "||" else BOOLEAN, name, parts)


def _bind_is(node: Any, scope: Scope) -> tree.Expression:
    if isinstance(node.expression, exp.Null):
        result: tree.Expression = tree.Call(
            BOOLEAN, "is_null", (bind_expression(node.this, scope),)
        )
    elif isinstance(node.expression, exp.Boolean):
        operand = bind_condition(node.this, scope, "argument of IS")
        wanted = operand if node.expression.this else negate(operand)
        result = tree.Case(BOOLEAN, ((wanted, TRUE),), FALSE)
    else:
        raise scope.context.error("0A000", "IS takes NULL, TRUE or FALSE", node)
    return negate(result) if node.args.get("negate") else result


def _bind_in(node: Any, scope: Scope) -> tree.Expression:
    scope.context.only(node, ("this", "expressions"), "IN")
    operand = bind_open(node.this, scope)
    items = [bind_open(item, scope) for item in node.expressions]
    pairs = [make_comparable("=", operand, item, node, scope) for item in items]
    if any(left != pairs[0][0] for left, _ in pairs):  # no one type of the operand fits all items
        tests = tuple(tree.Call(BOOLEAN, "=", pair) for pair in pairs)
        return tree.Call(BOOLEAN, "or", tests)
    return tree.InList(BOOLEAN, pairs[0][0], tuple(right for _, right in pairs), False)


def _bind_between(node: Any, scope: Scope) -> tree.Expression:
    scope.context.only(node, ("this", "low", "high"), "BETWEEN")
    operand = bind_open(node.this, scope)
    low, high = bind_open(node.args["low"], scope), bind_open(node.args["high"], scope)
    tests = (
        compare(">=", operand, low, node, scope),
        compare("<=", operand, high, node, scope),
    )
    return tree.Call(BOOLEAN, "and", tests)


def _bind_case(node: Any, scope: Scope) -> tree.Expression:
    conditions: list[tree.Expression] = []
    operand = bind_open(node.this, scope) if node.this is not None else None
    for branch in node.args["ifs"]:
        if operand is None:
            conditions.append(bind_condition(branch.this, scope, "CASE/WHEN"))
        else:
            wanted = bind_open(branch.this, scope)
            conditions.append(compare("=", operand, wanted, branch, scope))
    results = [bind_open(branch.args["true"], scope) for branch in node.args["ifs"]]
    default = node.args.get("default")
    results.append(bind_open(default, scope) if default else tree.Literal(UNKNOWN, None))
    results = unify(results, node, scope, "CASE")
    branches = tuple(zip(conditions, results[:-1], strict=True))
    return tree.Case(results[0].type, branches, results[-1] if default else None)


# --- aggregates ----------------------------------------------------------------------------------


def _bind_aggregate(node: Any, scope: Scope) -> tree.Expression:
    name = _AGGREGATES[type(node)]
    scope.context.only(node, ("this", "big_int"), name)
    if scope.clause is not None:
        raise scope.context.error(
            "42803", f"aggregate {name} is not allowed in {scope.clause}", node
        )
    scope.has_aggregates = True
    inner, is_distinct = node.this, False
    if isinstance(inner, exp.Star):
        if name != "count":
            raise scope.context.error("42883", f"function {name}(*) does not exist", node)
        return tree.Aggregate(BIGINT, "count", ())
    if isinstance(inner, exp.Distinct):
        scope.context.only(inner, ("expressions",), "DISTINCT")
        if len(inner.expressions) != 1:
            raise scope.context.error("0A000", f"{name}(DISTINCT) takes one argument", node)
        inner, is_distinct = inner.expressions[0], True
    scope.clause = "the argument of another"
    argument = bind_expression(inner, scope)
    scope.clause = None
    kind = argument.type
    if name == "count":
        return tree.Aggregate(BIGINT, name, (argument,), is_distinct)
    if name in ("min", "max"):
        result = TEXT if kind.kind is Kind.TEXT else kind
        return tree.Aggregate(result, name, (argument,), is_distinct)
    if not kind.is_numeric:
        raise scope.context.error("42883", f"function {name}({kind}) does not exist".lower(), node)
    if name == "avg" and kind.kind is Kind.DECIMAL:
        raise scope.context.error("0A000", "avg(numeric) is not supported yet", node)
    result = DOUBLE
    if name == "sum" and kind.kind is not Kind.DOUBLE:
        result = BIGINT
        if kind.kind is Kind.DECIMAL:
            result = decimal_type(decimal_precision_max, kind.scale or 0)
    call = tree.Aggregate(result, name, (argument,), is_distinct)
    # DuckDB sums integers in 128 bits; the cast makes it a BIGINT, or 22003.
    return tree.Cast(BIGINT, call) if result is BIGINT else call


_BINDERS: dict[type[exp.Expr], Callable[[Any, Scope], tree.Expression]] = {
    exp.Literal: _bind_literal,
    exp.ByteString: lambda node, scope: tree.Literal(UNKNOWN, node.this),
    exp.Null: lambda node, scope: tree.Literal(UNKNOWN, None),
    exp.Boolean: lambda node, scope: TRUE if node.this else FALSE,
    exp.Placeholder: lambda node, scope: scope.context.parameter(node),
    exp.Column: _bind_column,
    exp.Cast: _bind_cast,
    exp.And: _bind_connective,
    exp.Or: _bind_connective,
    exp.Not: _bind_not,
    exp.Neg: _bind_negative,
    exp.DPipe: _bind_text_operator,
    exp.Like: _bind_text_operator,
    exp.ILike: _bind_text_operator,
    exp.Is: _bind_is,
    exp.In: _bind_in,
    exp.Between: _bind_between,
    exp.Case: _bind_case,
    **dict.fromkeys(_COMPARISONS, _bind_comparison),
    **dict.fromkeys(_ARITHMETIC, _bind_arithmetic),
    **dict.fromkeys(_AGGREGATES, _bind_aggregate),
}
