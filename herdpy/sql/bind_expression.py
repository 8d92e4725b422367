"""Expressions: syntax to the bound tree, with types decided and implicit casts written out.

Every function returns settled expressions (no pending parameter, no UNKNOWN literal) but bind_open,
whose result the caller settles by context: assign, compare, convert, or settle.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from herdpy.errors import DataError
from herdpy.limits import decimal_precision_max, varchar_length_max
from herdpy.model.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    MOMENT_KINDS,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    Kind,
    SqlType,
    decimal_type,
    varchar_type,
)
from herdpy.sql import conversions, tree
from herdpy.sql.reading import syntax
from herdpy.sql.scope import Scope, StatementContext

_VARCHARS = frozenset(("VARCHAR", "CHARACTER VARYING", "CHAR VARYING", "VARCHAR2"))
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))
_ARITHMETIC = frozenset(("+", "-", "*", "/", "%"))
_CHAINED = _ARITHMETIC | {"||", "^"}
_DEPTH_MAX = (
    200  # operators of which each has the one before it as an operand: a tree is hashed in C
)
_NESTED_MAX = 30  # operators; a longer chain is one call, of which GROUP BY knows no beginning
_OTHERS = frozenset(("||", "^", "is distinct from", "is not distinct from"))
_TYPES = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), BOOLEAN),
    **dict.fromkeys(("SMALLINT", "INT2"), SMALLINT),
    **dict.fromkeys(("INTEGER", "INT", "INT4", "INT32"), INTEGER),
    **dict.fromkeys(("BIGINT", "INT8", "INT64", "LONG"), BIGINT),
    **dict.fromkeys(("REAL", "FLOAT4"), REAL),
    **dict.fromkeys(("DOUBLE", "FLOAT", "FLOAT8"), DOUBLE),
    **dict.fromkeys(("TEXT", "STRING", "STR", "CLOB", *_VARCHARS), TEXT),
    **dict.fromkeys(("BYTEA", "BLOB", "VARBINARY"), BYTEA),
    "DATE": DATE, "TIMESTAMP": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMPTZ, "INTERVAL": INTERVAL,
}  # fmt: skip
_KNOWN_TYPES = (
    "Types: boolean, smallint, integer, bigint, real, double precision, decimal(p,s), text, "
    "varchar(n), bytea, date, timestamp, timestamptz."
)
_INSTEAD = {
    **dict.fromkeys(
        ("CHAR", "CHARACTER", "NCHAR", "BPCHAR"),
        "In it blanks at the end do not count, and here they do: write varchar(n) or text.",
    ),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMPTZ"),
        "It has microseconds: write it without digits, and date_trunc() where fewer are wanted.",
    ),
}
"""What is to be done instead, by the name of a type that there is not, or not with numbers."""
_DECIMALS = frozenset(("NUMERIC", "DECIMAL", "DEC", "NUMBER", "FIXED"))
_LABELS = {
    Kind.BOOLEAN: "bool", Kind.SMALLINT: "int2", Kind.INTEGER: "int4", Kind.BIGINT: "int8",
    Kind.REAL: "float4", Kind.DOUBLE: "float8", Kind.TEXT: "text", Kind.BYTEA: "bytea",
}  # fmt: skip
_SHORT_DIGITS = 18  # of a DECIMAL in 64 bits
_REAL_BITS, _DOUBLE_BITS = 24, 53
"""Of float(n): up to how many bits it is a REAL, and a DOUBLE."""
TRUE, FALSE = tree.Literal(BOOLEAN, True), tree.Literal(BOOLEAN, False)
_CONSTANTS = {None: tree.Literal(UNKNOWN, None), True: TRUE, False: FALSE}


def bind_expression(node: syntax.Node, scope: Scope) -> tree.Expression:
    """Bind one expression; an untyped literal or parameter becomes TEXT."""
    return scope.settle(bind_open(node, scope))


def bind_condition(node: syntax.Node, scope: Scope, clause: str) -> tree.Expression:
    """Bind what must be BOOLEAN (42804)."""
    bound = bind_open(node, scope)
    if bound.type.kind not in (Kind.BOOLEAN, Kind.UNKNOWN):
        raise scope.error(
            "42804", f"{clause} must be of type boolean, not {str(bound.type).lower()}", node
        )
    return convert(bound, BOOLEAN, node, scope)


def bind_open(node: syntax.Node, scope: Scope) -> tree.Expression:
    """Bind one expression; the result may be an untyped literal or a pending parameter."""
    node = _bare(node)
    scope.context.budget.spend()
    return BINDERS[type(node)](node, scope)


def _bare(node: syntax.Node) -> syntax.Node:
    while isinstance(node, syntax.Paren):
        node = node.operand
    return node


def _refused(what: str, node: syntax.Node, scope: Scope) -> Exception:
    return scope.error("0A000", f"{what} is not supported", node)


# --- conversion ----------------------------------------------------------------------------------


def convert(
    expression: tree.Expression,
    target: SqlType,
    node: syntax.Node,
    scope: Scope,
    column: str | None = None,
) -> tree.Expression:
    """Convert to target without asking whether it is allowed: fold, retarget, or add a Cast.

    column: the one that the value is stored in, for messages.
    """
    context = scope.context
    source = expression.type
    if isinstance(expression, tree.Literal) and _is_foldable(source, target):
        try:
            value = conversions.convert_constant(expression.value, source, target)
        except DataError as error:
            error.position = context.position(node)
            if column is not None:
                error.message = f"column {column}: {error.message}"
            raise
        return context.settle(tree.Literal(target, value))
    if isinstance(expression, tree.Parameter) and context.is_now(expression):
        if target in (TIMESTAMP, TIMESTAMPTZ):
            return context.now(target)
    elif isinstance(expression, tree.Parameter) and expression.index < 0:
        if _is_retargetable(source, target):
            return context.settle(expression, target, column)
        expression = context.settle(expression, column=column)
    if source == target or (source.kind is target.kind is Kind.TEXT and target.length is None):
        return expression
    operand = context.settle(expression)
    if column is None or source.kind is Kind.INTERVAL:  # which no value of a row is
        return tree.Cast(target, operand)
    return tree.Assign(target, operand, column)


def assign(
    expression: tree.Expression, target: SqlType, name: str, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Convert for storing into column `name` (42804). A text's length is checked with the row."""
    check_assignable(expression.type, target, name, node, scope.context)
    return convert(expression, TEXT if target.kind is Kind.TEXT else target, node, scope, name)


def check_assignable(
    source: SqlType, target: SqlType, name: str, node: syntax.Node, context: StatementContext
) -> None:
    """Raise 42804 unless values of source may be stored in column `name`."""
    if not conversions.is_assignable(source, target):
        raise context.error(
            "42804",
            f'column "{name}" is of type {str(target).lower()}, '
            f"the value of type {str(source).lower()}",
            node,
            "Write a CAST.",
        )


def _is_foldable(source: SqlType, target: SqlType) -> bool:
    if source.kind is Kind.UNKNOWN:
        return True
    if target.kind is Kind.TEXT:
        return source.is_integer
    if source.is_moment:
        return target.is_moment
    return target.is_numeric and (source.is_integer or source.kind is Kind.DECIMAL)


def _is_retargetable(source: SqlType, target: SqlType) -> bool:
    """Tell whether converting the Python value to target equals a cast of it to target."""
    if source.kind is Kind.UNKNOWN or source.kind is target.kind:
        return True
    if source.is_integer:
        return target.is_numeric
    return (source.kind, target.kind) in (
        (Kind.DOUBLE, Kind.REAL),
        (Kind.DECIMAL, Kind.REAL),
        (Kind.DECIMAL, Kind.DOUBLE),
        (Kind.DATE, Kind.TIMESTAMP),
        (Kind.DATE, Kind.TIMESTAMPTZ),
        (Kind.TIMESTAMP, Kind.TIMESTAMPTZ),
        (Kind.TIMESTAMPTZ, Kind.TIMESTAMP),
    )


def unify(
    parts: Sequence[tree.Expression], node: syntax.Node, scope: Scope, what: str
) -> list[tree.Expression]:
    """Convert all parts to their common type (TEXT when all are untyped); 42804 without one."""
    target: SqlType | None = None
    for part in parts:
        if part.type.kind is not Kind.UNKNOWN:
            found = part.type if target is None else conversions.common_type(target, part.type)
            if found is None:
                raise scope.error(
                    "42804", f"{what}: types {target} and {part.type} do not match".lower(), node
                )
            target = found
    target = target or TEXT
    for part in parts:
        target = met_by(target, part, scope.context)
    return [convert(part, target, node, scope) for part in parts]


def met_by(target: SqlType, part: tree.Expression, context: StatementContext) -> SqlType:
    """Return the type that values of target and a part have in common, where it is untyped."""
    own = context.beside(target, part) if part.type.kind is Kind.UNKNOWN else target
    return target if own is target else conversions.common_type(target, own) or target


def type_label(node: syntax.TypeName) -> str:
    """Return PostgreSQL's own name of a type, as the output of a cast is called."""
    if node.name in _DECIMALS or node.name in _VARCHARS:
        return "numeric" if node.name in _DECIMALS else "varchar"
    kind = _float_type(node.numbers[0]).kind if node.name == "FLOAT" and node.numbers else None
    return _LABELS.get(kind or _TYPES.get(node.name, UNKNOWN).kind, node.name.lower())


def _float_type(bits: int) -> SqlType:
    """Return the type of float(bits)."""
    return REAL if bits <= _REAL_BITS else DOUBLE


def bind_type(node: syntax.TypeName, scope: Scope) -> SqlType:
    """Return the SqlType of a type's name (0A000 for types that there are not)."""
    numbers = node.numbers
    if node.name in _VARCHARS and len(numbers) == 1:
        if not 1 <= numbers[0] <= varchar_length_max:
            raise scope.error(
                "22023", f"varchar length must be 1 to {varchar_length_max}, not {numbers[0]}"
            )
        return varchar_type(numbers[0])
    if node.name in _DECIMALS:
        if not 1 <= len(numbers) <= 2:
            raise scope.error(
                "0A000",
                "numeric needs its digits: one value may not need more of them than another",
                node,
                "Write numeric(precision, scale).",
            )
        precision, scale = (*numbers, 0)[:2]
        if not (1 <= precision <= decimal_precision_max and 0 <= scale <= precision):
            raise scope.error(
                "22023",
                f"numeric({precision},{scale}): expected a precision of 1 to "
                f"{decimal_precision_max} and a scale of 0 to it",
            )
        return decimal_type(precision, scale)
    if node.name == "FLOAT" and len(numbers) == 1:
        if not 1 <= numbers[0] <= _DOUBLE_BITS:
            raise scope.error(
                "22023", f"precision for type float must be 1 to {_DOUBLE_BITS} bits", node
            )
        return _float_type(numbers[0])
    if node.name not in _TYPES or numbers:
        raise scope.error(
            "0A000",
            f"type {node.text.lower()} is not supported",
            node,
            _INSTEAD.get(node.name, _KNOWN_TYPES),
        )
    return _TYPES[node.name]


def sort_keys(
    items: Sequence[syntax.SortKey], bind: Callable[[syntax.Node], tree.Expression]
) -> tuple[tree.SortKey, ...]:
    """Return the items of an ORDER BY, whose expressions bind() binds."""
    return tuple(
        tree.SortKey(bind(item.expression), item.is_descending, item.nulls_first) for item in items
    )


# --- leaves --------------------------------------------------------------------------------------


def _bind_string(node: syntax.String, scope: Scope) -> tree.Expression:
    if node.special is not None:
        raise _refused(node.special, node, scope)
    if "\0" in node.text:
        message = "text cannot hold the character NUL"
        raise DataError(message, sqlstate="22021", position=scope.context.position(node))
    return tree.Literal(UNKNOWN, node.text)


def _bind_number(node: syntax.Number, scope: Scope) -> tree.Expression:
    value, kind = conversions.number_constant(node.text)
    return tree.Literal(kind, value)


def _bind_default(node: syntax.Default, scope: Scope) -> tree.Expression:
    raise scope.error("42601", "DEFAULT stands for a whole value only", node)


def _bind_cast(node: syntax.Cast, scope: Scope) -> tree.Expression:
    operand = bind_open(node.operand, scope)
    if node.type.name in _DECIMALS and not node.type.numbers:
        target = _unbounded(operand, node, scope)
    else:
        target = bind_type(node.type, scope)
    if not conversions.is_castable(operand.type, target):
        raise scope.error("42846", f"cannot cast type {operand.type} to {target}".lower(), node)
    if target.length is not None:  # an explicit cast cuts, where an assignment refuses
        return tree.Cast(target, convert(operand, TEXT, node, scope))
    return convert(operand, target, node, scope)


def _unbounded(operand: tree.Expression, node: syntax.Node, scope: Scope) -> SqlType:
    """Return the DECIMAL that holds the operand as it is, for a CAST to numeric without digits."""
    if operand.type.is_integer or operand.type.kind is Kind.DECIMAL:
        return conversions.as_decimal(operand.type)
    if isinstance(operand, tree.Literal):
        if operand.value is None:
            return decimal_type(decimal_precision_max, 0)
        _, kind = conversions.number_constant(str(operand.value).strip().lstrip("+-"))
        if kind.is_integer or kind.kind is Kind.DECIMAL:
            return conversions.as_decimal(kind)
    raise scope.error(
        "0A000",
        f"CAST of {operand.type} to numeric without digits".lower(),
        node,
        "Write numeric(precision, scale).",
    )


# --- operators -----------------------------------------------------------------------------------


def _bind_binary(node: syntax.Binary, scope: Scope) -> tree.Expression:
    operator = node.operator
    if operator in ("and", "or"):
        return _bind_connective(node, operator, scope)
    if operator == "at time zone":
        return _bind_at_zone(node, scope)
    is_comparison = operator in _COMPARISONS
    if is_comparison and isinstance(node.left, syntax.Row) and isinstance(node.right, syntax.Row):
        return _compare_rows(operator, node.left, node.right, node, scope)
    if not is_comparison and operator not in _ARITHMETIC and operator not in _OTHERS:
        raise _refused(f"the operator {operator}", node, scope)
    chain = [node]  # from its last operator to the first: without recursion
    while isinstance(left := _bare(chain[-1].left), syntax.Binary) and left.operator in _CHAINED:
        chain.append(left)
    bound, depth = bind_open(left, scope), 0
    for node in reversed(chain):
        scope.context.budget.spend()
        operated = _operated(node, bound, bind_open(node.right, scope), scope)
        bound = _joined(operated) if len(chain) > _NESTED_MAX else operated
        depth += bound is operated
        if depth > _DEPTH_MAX:
            raise scope.context.error(
                "54001", f"more than {_DEPTH_MAX} operators that cannot be computed in a row", node
            )
    return bound


def _joined(call: tree.Expression) -> tree.Expression:
    """Return a call of operators whose first operand is one, too, as one of all operands."""
    first = call.arguments[0] if isinstance(call, tree.Call) else None
    if not isinstance(call, tree.Call) or not isinstance(first, tree.Call):
        return call
    if first.type != call.type:
        return call
    arguments = (*first.arguments, *call.arguments[1:])
    if call.function == first.function == "||":
        return tree.Call(call.type, "||", arguments)
    if tree.is_arithmetic(call.function) and tree.is_arithmetic(first.function):
        return tree.Call(call.type, first.function + call.function, arguments)
    return call


def _operated(
    node: syntax.Binary, left: tree.Expression, right: tree.Expression, scope: Scope
) -> tree.Expression:
    operator = node.operator
    if operator in _COMPARISONS:
        return compare(operator, left, right, node, scope)
    if operator in _ARITHMETIC:
        return arithmetic(operator, left, right, node, scope)
    if operator == "||":
        return _concatenation(left, right, node, scope)
    if operator == "^":
        return _power(left, right, node, scope)
    test = tree.Call(BOOLEAN, "distinct", make_comparable("=", left, right, node, scope))
    return test if operator == "is distinct from" else negate(test)


def _power(
    left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tree.Expression:
    if not all(side.type.is_numeric or side.type.kind is Kind.UNKNOWN for side in (left, right)):
        raise no_operator("^", left, right, node, scope)
    parts = (convert(left, DOUBLE, node, scope), convert(right, DOUBLE, node, scope))
    return tree.Call(DOUBLE, "power", parts)


def _bind_connective(node: syntax.Node, name: str, scope: Scope) -> tree.Expression:
    """Bind a chain of AND or of OR as one call, however long it is."""
    operands: list[syntax.Node] = []
    while isinstance(node, syntax.Binary) and node.operator == name:
        operands.append(node.right)
        node = node.left
    operands.append(node)
    what = f"argument of {name.upper()}"
    parts = [bind_condition(operand, scope, what) for operand in reversed(operands)]
    return tree.Call(BOOLEAN, name, tuple(parts))


def _bind_unary(node: syntax.Unary, scope: Scope) -> tree.Expression:
    if node.operator == "not":
        return negate(bind_condition(node.operand, scope, "argument of NOT"))
    if node.operator == "-":
        return _bind_negative(node, scope)
    if node.operator in ("~", "collate"):
        raise _refused("the operator ~" if node.operator == "~" else "COLLATE", node, scope)
    operand = bind_open(node.operand, scope)
    if operand.type.kind is Kind.UNKNOWN:
        return convert(operand, DOUBLE, node, scope)
    if not operand.type.is_numeric:
        raise _no_sign("+", operand, node, scope)
    return operand


def negate(expression: tree.Expression) -> tree.Expression:
    if isinstance(expression, (tree.InList, tree.InQuery)):
        return replace(expression, is_negated=not expression.is_negated)
    return tree.Call(BOOLEAN, "not", (expression,))


def _bind_quantified(node: syntax.Quantified, scope: Scope) -> tree.Expression:
    """Bind ANY and ALL over an ARRAY as a chain of tests, over a query as a Quantified."""
    operator, items = node.operator, node.right
    if operator not in _COMPARISONS:
        word = f"{operator.upper()} {'ALL' if node.is_all else 'ANY'}"
        raise _refused(word, node, scope)
    while isinstance(items, syntax.Paren):
        items = items.operand
    if not isinstance(items, syntax.Array):
        return QUERY_BINDERS["quantified"](node, scope)
    left = bind_open(node.operand, scope)
    rights = [bind_open(item, scope) for item in items.items]
    name = "and" if node.is_all else "or"

    def test(left: tree.Expression) -> tree.Expression:
        return _chain(name, [compare(operator, left, right, node, scope) for right in rights])

    return let((left,), rights, test) if len(rights) > 1 else test(left)


def _chain(name: str, tests: Sequence[tree.Expression]) -> tree.Expression:
    if len(tests) == 1:
        return tests[0]
    return tree.Call(BOOLEAN, name, tuple(tests)) if tests else (TRUE if name == "and" else FALSE)


def let(
    values: Sequence[tree.Expression],
    others: Sequence[tree.Expression],
    build: Callable[..., tree.Expression],
    index: int | None = None,
) -> tree.Expression:
    """Return build(*values), where the values may stand several times and are computed once.

    All values are computed, and before everything else; `others` is what build() brings in
    besides them. `index` is known to be above those of the Lets in all of these.
    """
    if all(isinstance(value, tree.Atom) for value in values):
        return build(*values)
    if index is None:
        index = tree.let_index((*values, *others))
    bindings: list[tuple[int, tree.Expression]] = []
    names: list[tree.Expression] = []
    for value in values:
        if isinstance(value, tree.Atom):
            names.append(value)
        else:
            names.append(tree.Variable(value.type, index + len(bindings)))
            bindings.append((index + len(bindings), value))
    body = build(*names)
    return tree.Let(body.type, tuple(bindings), body)


def _compare_rows(
    operator: str, left: syntax.Row, right: syntax.Row, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Compare rows item by item, as SQL defines it: later ones where the first are equal."""
    lefts, rights = ([bind_open(item, scope) for item in row.items] for row in (left, right))
    _check_width(lefts, rights, node, scope)
    sides = list(zip(lefts, rights, strict=True))
    if operator in ("=", "<>"):
        tests = [compare(operator, a, b, node, scope) for a, b in sides]
        return _chain("and" if operator == "=" else "or", tests)
    result = compare(operator, *sides[-1], node, scope)
    index = tree.let_index((*lefts, *rights))
    for pair in reversed(sides[:-1]):

        def test(
            a: tree.Expression, b: tree.Expression, rest: tree.Expression = result
        ) -> tree.Expression:
            less, equal = (compare(sign, a, b, node, scope) for sign in (operator[0], "="))
            return _chain("or", (less, _chain("and", (equal, rest))))

        result = let(pair, (), test, index)
        index += len(pair)
    return result


def _check_width(
    left: Sequence[tree.Expression],
    right: Sequence[tree.Expression],
    node: syntax.Node,
    scope: Scope,
) -> None:
    if len(left) != len(right) or not left:
        raise scope.error("42601", "rows of unequal length are compared", node)


def _row_in(node: syntax.In, left: syntax.Row, scope: Scope) -> tree.Expression:
    """Bind row IN (rows): its first item is computed once, the others where that one is found."""
    lefts = [bind_open(item, scope) for item in left.items]
    rows = [
        [bind_open(item, scope) for item in (row.items if isinstance(row, syntax.Row) else ())]
        for row in node.items
    ]
    for row in rows:
        _check_width(lefts, row, node, scope)

    def tests(*lefts: tree.Expression) -> tree.Expression:
        found = (
            _chain(
                "and", [compare("=", a, b, node, scope) for a, b in zip(lefts, row, strict=True)]
            )
            for row in rows
        )
        return _chain("or", list(found))

    if len(rows) == 1 or all(isinstance(left, tree.Atom) for left in lefts):
        return tests(*lefts)
    index = tree.let_index([part for row in (lefts, *rows) for part in row])

    def with_first(first: tree.Expression) -> tree.Expression:
        inner = let(lefts[1:], (), lambda *rest: tests(first, *rest), index)
        heads = [row[0] for row in rows]
        if not isinstance(inner, tree.Let) or not all(isinstance(b, tree.Atom) for b in heads):
            return inner
        found = _chain("or", [compare("=", first, head, node, scope) for head in heads])
        return _chain("and", (found, inner))

    return let(lefts[:1], (), with_first, index + len(lefts))


def compare(
    operator: str, left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Return left operator right with both sides made comparable (42883)."""
    left, right = make_comparable(operator, left, right, node, scope)
    return tree.Call(BOOLEAN, operator, (left, right))


def make_comparable(
    operator: str, left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tuple[tree.Expression, tree.Expression]:
    unknown = (left.type.kind is Kind.UNKNOWN, right.type.kind is Kind.UNKNOWN)
    if any(unknown):
        target, untyped = (right.type, left) if unknown[0] else (left.type, right)
        own = scope.context.beside(target, untyped)
        if own is not target:
            number = convert(untyped, own, node, scope)
            sides = (number, right) if unknown[0] else (left, number)
            return make_comparable(operator, *sides, node, scope)
        target = TEXT if target.kind in (Kind.TEXT, Kind.UNKNOWN) else target
    elif conversions.is_comparable(left.type, right.type):
        return scope.settle(left), scope.settle(right)
    else:
        # A constant that means the same in the column's type leaves the column bare, so that the
        # key and zone maps can be used.
        for constant, other in ((left, right), (right, left)):
            if _means_same(constant, other.type):
                return (
                    convert(left, other.type, node, scope),
                    convert(right, other.type, node, scope),
                )
        common = conversions.operand_type(left.type, right.type)
        if common is None:
            raise no_operator(operator, left, right, node, scope)
        target = common
        if {left.type, right.type} == {TIMESTAMP, TIMESTAMPTZ}:
            # They are the same numbers: a column stays bare, for its key and its zone maps.
            target = next((x.type for x in (left, right) if isinstance(x, tree.ColumnRef)), common)
    return convert(left, target, node, scope), convert(right, target, node, scope)


def _means_same(constant: tree.Expression, target: SqlType) -> bool:
    if not isinstance(constant, tree.Literal) or not isinstance(constant.value, int):
        return False
    if not (constant.type.is_integer or constant.type.kind is Kind.DECIMAL):
        return False
    if not (target.is_integer or target.kind in (Kind.DECIMAL, Kind.REAL)):
        return False
    return conversions.is_exact(constant.value, constant.type, target)


def no_operator(
    operator: str, left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> Exception:
    return scope.error(
        "42883",
        f"operator does not exist: {left.type} {operator} {right.type}".lower(),
        node,
        "Write a CAST to make the types match.",
    )


def arithmetic(
    operator: str, left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Return left operator right for numbers and moments (42883)."""
    moments = (*MOMENT_KINDS, Kind.INTERVAL)
    if left.type.kind in moments or right.type.kind in moments:
        return _moment_arithmetic(operator, left, right, node, scope)
    if left.type.kind is Kind.UNKNOWN and right.type.is_numeric:
        left = convert(left, scope.context.beside(right.type, left), node, scope)
    elif right.type.kind is Kind.UNKNOWN and left.type.is_numeric:
        right = convert(right, scope.context.beside(left.type, right), node, scope)
    if not (left.type.is_numeric and right.type.is_numeric):
        raise no_operator(operator, left, right, node, scope)
    common = conversions.operand_type(left.type, right.type)
    if common is not None and common.kind is not Kind.DECIMAL:
        if operator == "%" and common.is_float:
            raise no_operator(operator, left, right, node, scope)
        parts = (convert(left, common, node, scope), convert(right, common, node, scope))
        return tree.Call(common, operator, parts)
    left, right = scope.settle(left), scope.settle(right)
    left_type, right_type = (conversions.as_decimal(side.type) for side in (left, right))
    (left_whole, left_scale), (right_whole, right_scale) = map(
        conversions.digits, (left_type, right_type)
    )
    if operator == "/":
        scale = conversions.quotient_scale(left_scale, right_scale)
        parts = (convert(left, left_type, node, scope), convert(right, right_type, node, scope))
        return tree.Call(decimal_type(decimal_precision_max, scale), "/", parts)
    if operator == "%":
        if common is None:
            raise no_operator(operator, left, right, node, scope)
        parts = (convert(left, common, node, scope), convert(right, common, node, scope))
        return tree.Cast(common, tree.Call(common, "%", parts))
    if operator == "*":
        scale, whole = left_scale + right_scale, left_whole + right_whole
    else:
        scale, whole = max(left_scale, right_scale), max(left_whole, right_whole) + 1
    if scale > decimal_precision_max:
        raise scope.error(
            "22003",
            f"numeric result would have scale {scale}, at most {decimal_precision_max} digits fit",
            node,
            "Round an operand: round(x, 6), or CAST it.",
        )
    result = decimal_type(min(whole + scale, decimal_precision_max), scale)
    if whole + scale > _SHORT_DIGITS:
        # DuckDB computes in 64 bits, and fails, where both operands are of 64 bits.
        left_type = decimal_type(max(left_whole + left_scale, _SHORT_DIGITS + 1), left_scale)
    parts = (convert(left, left_type, node, scope), convert(right, right_type, node, scope))
    return tree.Cast(result, tree.Call(result, operator, parts))


def _moment_arithmetic(
    operator: str, left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Return what a date, timestamp or interval is part of.

    date ± integer, date - date, moment ± interval, timestamp - timestamp, interval ± interval,
    interval * number, interval / number. An untyped literal beside an interval is one, too, or the
    number; added to a timestamp it is an interval, taken from one a timestamp.
    """
    kinds = (left.type.kind, right.type.kind)
    moments = MOMENT_KINDS
    if Kind.INTERVAL in kinds and not (kinds[0] in moments or kinds[1] in moments):
        return _interval_arithmetic(operator, left, right, node, scope)
    if operator == "+" and kinds[1] in moments:
        left, right, kinds = right, left, (kinds[1], kinds[0])
    if operator == "+" and kinds[1] is Kind.UNKNOWN and kinds[0] is not Kind.DATE:
        right = convert(right, INTERVAL, node, scope)
        kinds = (kinds[0], Kind.INTERVAL)
    if operator in "+-" and kinds[0] is Kind.DATE and right.type.is_integer:
        parts = (scope.settle(left), scope.settle(right))
        return tree.Call(DATE, "date_plus" if operator == "+" else "date_minus", parts)
    if operator in "+-" and kinds[0] in moments and kinds[1] is Kind.INTERVAL:
        result = TIMESTAMPTZ if kinds[0] is Kind.TIMESTAMPTZ else TIMESTAMP
        moment = convert(left, result, node, scope)
        name = "timestamp_plus" if operator == "+" else "timestamp_minus"
        return tree.Call(result, name, (moment, scope.settle(right)))
    if operator == "-" and Kind.UNKNOWN in kinds:
        known = left.type if kinds[1] is Kind.UNKNOWN else right.type
        if known.kind in moments:
            left, right = convert(left, known, node, scope), convert(right, known, node, scope)
            kinds = (known.kind, known.kind)
    if operator == "-" and kinds == (Kind.DATE, Kind.DATE):
        parts = (scope.settle(left), scope.settle(right))
        return tree.Call(INTEGER, "date_diff", parts)
    if operator == "-" and kinds[0] in moments and kinds[1] in moments:
        parts = (convert(left, TIMESTAMP, node, scope), convert(right, TIMESTAMP, node, scope))
        return tree.Call(INTERVAL, "timestamp_diff", parts)
    raise no_operator(operator, left, right, node, scope)


def _interval_arithmetic(
    operator: str, left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Return interval ± interval, interval * number, number * interval, interval / number."""
    if operator in "+-" and {left.type.kind, right.type.kind} <= {Kind.INTERVAL, Kind.UNKNOWN}:
        parts = (convert(left, INTERVAL, node, scope), convert(right, INTERVAL, node, scope))
        return tree.Call(INTERVAL, operator, parts)
    if operator == "*" and left.type.kind is not Kind.INTERVAL:
        left, right = right, left
    is_number = right.type.is_numeric or right.type.kind is Kind.UNKNOWN
    if operator not in "*/" or left.type.kind is not Kind.INTERVAL or not is_number:
        raise no_operator(operator, left, right, node, scope)
    name = "interval_times" if operator == "*" else "interval_over"
    parts = (scope.settle(left), convert(right, DOUBLE, node, scope))
    return tree.Call(INTERVAL, name, parts)


_UTC_NAMES = frozenset(("utc", "gmt", "z", "zulu", "uct", "etc/utc", "+00", "+00:00", "0"))


def _bind_at_zone(node: syntax.Binary, scope: Scope) -> tree.Expression:
    """Bind moment AT TIME ZONE 'UTC': a TIMESTAMP gets the zone, any other loses it."""
    zone = node.right
    if not isinstance(zone, syntax.String) or zone.text.lower() not in _UTC_NAMES:
        raise scope.error(
            "0A000", "AT TIME ZONE takes 'UTC', and no other time zone", node, "Add an interval."
        )
    operand = bind_open(node.left, scope)
    if not (operand.type.is_moment or operand.type.kind is Kind.UNKNOWN):
        raise no_operator("AT TIME ZONE", operand, tree.Literal(TEXT, ""), node, scope)
    if operand.type == TIMESTAMP:
        return convert(operand, TIMESTAMPTZ, node, scope)
    return convert(convert(operand, TIMESTAMPTZ, node, scope), TIMESTAMP, node, scope)


def _bind_negative(node: syntax.Unary, scope: Scope) -> tree.Expression:
    written = _signed_number(node)
    if written is not None:  # the signs are part of what decides about the type
        value, kind = conversions.number_constant(written)
        return tree.Literal(kind, value)
    operand = bind_open(node.operand, scope)
    if operand.type.kind is Kind.UNKNOWN:
        raise scope.error(
            "42725", "operator is not unique: - unknown", node, "Write a CAST to a type of numbers."
        )
    if not (operand.type.is_numeric or operand.type.kind is Kind.INTERVAL):
        raise _no_sign("-", operand, node, scope)
    if isinstance(operand, tree.Literal) and isinstance(operand.value, (int, float)):
        try:
            value = conversions.negate_constant(operand.value, operand.type)
        except DataError as error:
            error.position = scope.context.position(node)
            raise
        return tree.Literal(operand.type, value)
    return tree.Call(operand.type, "neg", (scope.settle(operand),))


def _signed_number(node: syntax.Node) -> str | None:
    """Return a numeric constant behind signs and parentheses as one text, None for other nodes."""
    is_negative = False
    while isinstance(node, syntax.Paren) or (
        isinstance(node, syntax.Unary) and node.operator == "-"
    ):
        is_negative ^= isinstance(node, syntax.Unary)
        node = node.operand
    if not isinstance(node, syntax.Number):
        return None
    return f"-{node.text}" if is_negative else node.text


def _no_sign(sign: str, operand: tree.Expression, node: syntax.Node, scope: Scope) -> Exception:
    message = f"operator does not exist: {sign} {operand.type}".lower()
    return scope.error("42883", message, node)


def _concatenation(
    left: tree.Expression, right: tree.Expression, node: syntax.Node, scope: Scope
) -> tree.Expression:
    sides = (left, right)
    kinds = {side.type.kind for side in sides}
    if Kind.BYTEA in kinds and kinds <= {Kind.BYTEA, Kind.UNKNOWN}:
        return tree.Call(BYTEA, "||", tuple(convert(side, BYTEA, node, scope) for side in sides))
    if not kinds & {Kind.TEXT, Kind.UNKNOWN} or Kind.BYTEA in kinds:
        raise no_operator("||", *sides, node, scope)
    return tree.Call(TEXT, "||", tuple(convert(side, TEXT, node, scope) for side in sides))


def _bind_like(node: syntax.Like, scope: Scope) -> tree.Expression:
    """Bind LIKE and ILIKE, with ESCAPE (a constant; by default a backslash)."""
    name, escape = node.operator, "\\"
    if name == "similar":
        raise _refused("SIMILAR TO", node, scope)
    if node.escape is not None:
        if not isinstance(node.escape, syntax.String):
            raise scope.error("0A000", "ESCAPE takes a constant", node)
        escape = node.escape.text
        if len(escape) > 1:
            raise scope.error(
                "22025", f"ESCAPE must be one character or none, found {len(escape)}", node
            )
    sides = (bind_open(node.operand, scope), bind_open(node.pattern, scope))
    if not {side.type.kind for side in sides} <= {Kind.TEXT, Kind.UNKNOWN}:
        raise no_operator(name, *sides, node, scope)
    text, pattern = (convert(side, TEXT, node, scope) for side in sides)
    if isinstance(pattern, tree.Literal) and escape and _ends_in_escape(pattern.value, escape):
        raise scope.error("22025", "LIKE pattern must not end with escape character", node)
    return tree.Call(BOOLEAN, name, (text, pattern, tree.Literal(TEXT, escape)))


def _ends_in_escape(pattern: object, escape: str) -> bool:
    text = str(pattern or "")
    rest = text.rstrip(escape)
    return (len(text) - len(rest)) % 2 == 1


def _bind_is(node: syntax.Is, scope: Scope) -> tree.Expression:
    if node.what in ("NULL", "UNKNOWN"):
        operand = bind_expression(node.operand, scope)
        return tree.Call(BOOLEAN, "is_null", (operand,))
    operand = bind_condition(node.operand, scope, "argument of IS")
    wanted = operand if node.what == "TRUE" else negate(operand)
    return tree.Case(BOOLEAN, ((wanted, TRUE),), FALSE)


def _bind_in(node: syntax.In, scope: Scope) -> tree.Expression:
    if node.query is not None:
        return QUERY_BINDERS["in"](node, scope)
    if isinstance(node.operand, syntax.Row):
        return _row_in(node, node.operand, scope)
    operand = bind_open(node.operand, scope)
    bound = [bind_open(item, scope) for item in node.items]
    # A constant is compared with once; a Literal is small, so that its hash is.
    items = [*dict.fromkeys(item for item in bound if isinstance(item, tree.Literal))]
    items += [item for item in bound if not isinstance(item, tree.Literal)]
    items = _as_reals(operand, items, node, scope)
    pairs = [make_comparable("=", operand, item, node, scope) for item in items]
    if all(left == pairs[0][0] for left, _ in pairs):
        return tree.InList(BOOLEAN, pairs[0][0], tuple(right for _, right in pairs), False)

    def tests(operand: tree.Expression) -> tree.Expression:  # no one type of it fits all items
        return _chain("or", [compare("=", operand, item, node, scope) for item in items])

    return let((operand,), items, tests)


def _as_reals(
    operand: tree.Expression, items: list[tree.Expression], node: syntax.Node, scope: Scope
) -> list[tree.Expression]:
    """Return items of IN with those that are no columns as REALs, where that is what they are.

    As in PostgreSQL, which makes an array of several such items, of their type in common.
    """
    fixed = [
        not any(isinstance(part, tree.ColumnRef) for part in tree.walk(item)) for item in items
    ]
    pairs = list(zip(items, fixed, strict=True))
    kinds = {operand.type.kind, *(item.type.kind for item, is_fixed in pairs if is_fixed)}
    if sum(fixed) < 2 or Kind.REAL not in kinds or Kind.DOUBLE in kinds:
        return items
    return [
        convert(item, REAL, node, scope) if is_fixed and item.type.is_numeric else item
        for item, is_fixed in pairs
    ]


def _bind_between(node: syntax.Between, scope: Scope) -> tree.Expression:
    operand = bind_open(node.operand, scope)
    low, high = bind_open(node.low, scope), bind_open(node.high, scope)

    def test(
        operand: tree.Expression, low: tree.Expression, high: tree.Expression
    ) -> tree.Expression:
        at_least = compare(">=", operand, low, node, scope)
        return _chain("and", (at_least, compare("<=", operand, high, node, scope)))

    if node.is_symmetric:  # both bounds are needed, whichever is the lower
        return let(
            (operand, low, high), (), lambda x, a, b: _chain("or", (test(x, a, b), test(x, b, a)))
        )
    if isinstance(operand, tree.Atom):
        return test(operand, low, high)
    return let((operand, low), (high,), lambda x, a: test(x, a, high))


def _bind_case(node: syntax.Case, scope: Scope) -> tree.Expression:
    branches, default = node.branches, node.otherwise
    operand: tree.Expression | None = None
    if node.operand is None:
        wanted = [bind_condition(value, scope, "CASE/WHEN") for value, _ in branches]
    else:
        operand = bind_open(node.operand, scope)
        wanted = [bind_open(value, scope) for value, _ in branches]
    results = [bind_open(result, scope) for _, result in branches]
    results.append(bind_open(default, scope) if default else tree.Literal(UNKNOWN, None))
    results = unify(results, node, scope, "CASE")

    def case(conditions: Sequence[tree.Expression]) -> tree.Expression:
        pairs = tuple(zip(conditions, results[:-1], strict=True))
        return tree.Case(results[0].type, pairs, results[-1] if default else None)

    def simple(operand: tree.Expression) -> tree.Expression:
        pairs = zip(wanted, branches, strict=True)
        return case([compare("=", operand, value, branch[0], scope) for value, branch in pairs])

    if operand is None:
        return case(wanted)
    if len(branches) == 1:
        return simple(operand)
    return let((operand,), (*wanted, *results), simple)


def _refuse(what: str) -> Callable[[Any, Scope], tree.Expression]:
    def refuse(node: syntax.Node, scope: Scope) -> tree.Expression:
        raise _refused(what, node, scope)

    return refuse


BINDERS: dict[type[syntax.Node], Callable[[Any, Scope], tree.Expression]] = {
    syntax.Number: _bind_number,
    syntax.String: _bind_string,
    syntax.Constant: lambda node, scope: _CONSTANTS[node.value],
    syntax.Default: _bind_default,
    syntax.Placeholder: lambda node, scope: scope.context.parameter(node),
    syntax.Column: lambda node, scope: scope.column(node),
    syntax.Cast: _bind_cast,
    syntax.Unary: _bind_unary,
    syntax.Binary: _bind_binary,
    syntax.Row: _refuse("a row as a value"),
    syntax.Array: _refuse("ARRAY[] as a value"),
    syntax.Like: _bind_like,
    syntax.Is: _bind_is,
    syntax.In: _bind_in,
    syntax.Between: _bind_between,
    syntax.Quantified: _bind_quantified,
    syntax.Case: _bind_case,
}

QUERY_BINDERS: dict[str, Callable[[Any, Scope], tree.Expression]] = {}
"""Binders of "in" and "quantified" over queries; bind_query.py, which is above, puts them here."""
