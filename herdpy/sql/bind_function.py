"""Calls of functions: names to overloads of functions.py, and those with rules of their own.

Those that give rows are bound as queries of their own: generate_series(), unnest(), and any other
function in FROM, of one row. They may name columns of what stands before them in FROM.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from herdpy.errors import did_you_mean
from herdpy.limits import decimal_precision_max, template_characters_max
from herdpy.model.python_values import shortened
from herdpy.model.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    SqlType,
    decimal_type,
)
from herdpy.sql import conversions, tree
from herdpy.sql.bind_expression import (
    arithmetic,
    bind_expression,
    bind_open,
    compare,
    convert,
    let,
    make_comparable,
    met_by,
    unify,
)
from herdpy.sql.conversions import as_decimal, operand_type, untyped_number
from herdpy.sql.functions import (
    AGGREGATES,
    BY_SPELLING,
    EXTRACT_FIELDS,
    FUNCTIONS,
    INTERVAL_FIELDS,
    INTERVAL_TRUNCS,
    PARAMETER_TYPES,
    RANKINGS,
    ROW_VALUES,
    SETS,
    SPECIAL,
    TRUNC_UNITS,
    resolve,
)
from herdpy.sql.reading import syntax
from herdpy.sql.reading.char_templates import template_text
from herdpy.sql.scope import Scope
from herdpy.sql.sequences.binding import BINDERS as SEQUENCE_BINDERS

_TYPE_NAMES = {
    Kind.BOOLEAN: "boolean", Kind.SMALLINT: "smallint", Kind.INTEGER: "integer",
    Kind.BIGINT: "bigint",
    Kind.REAL: "real", Kind.DOUBLE: "double precision", Kind.DECIMAL: "numeric", Kind.TEXT: "text",
    Kind.BYTEA: "bytea", Kind.DATE: "date", Kind.TIMESTAMP: "timestamp without time zone",
    Kind.TIMESTAMPTZ: "timestamp with time zone",
    Kind.INTERVAL: "interval", Kind.UNKNOWN: "unknown",
}  # fmt: skip


_KNOWN = frozenset(
    (
        *FUNCTIONS, *SPECIAL, *BY_SPELLING, *AGGREGATES, *RANKINGS, *ROW_VALUES, *SETS,
        "current_timestamp",
    )
)  # fmt: skip
# What others have under these names, and we do not.
TRIMS = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_REFUSED = {
    "row": "a row as a value", "json_extract": "json_extract()",
    "json_extract_path": "json_extract_path()", "regexp_like": "regexp_like()",
    "json_extract_path_text": "json_extract_path_text()",
    "current_user": "current_user (SHOW session_authorization)",
    "session_user": "session_user (SHOW session_authorization)",
    "current_role": "current_role", "user": "user", "localtime": "localtime",
    "current_time": "current_time", "current_catalog": "current_catalog",
    "current_schema": "current_schema",
}  # fmt: skip


def is_known(name: str) -> bool:
    """Tell whether there is a function of that name."""
    return name in _KNOWN


def unknown_function(name: str, node: syntax.Node, scope: Scope, types: str = "") -> Exception:
    """Return the 42883 of a function that there is not, with a suggestion."""
    hint = None
    if name in FUNCTIONS:
        forms = (f"{name}({', '.join(item.parameters)})" for item in FUNCTIONS[name])
        hint = f"There is {' and '.join(forms)}."
    elif name not in _KNOWN:
        hint = did_you_mean(name, _KNOWN, cutoff=0.75)
    return scope.error("42883", f"function {name}({types}) does not exist", node, hint)


def call(
    name: str, arguments: list[tree.Expression], node: syntax.Node, scope: Scope
) -> tree.Expression:
    """Return the call of the overload that fits; arguments may be open."""
    found = resolve(name, [argument.type for argument in arguments])
    if found is None:
        types = ", ".join(_TYPE_NAMES[argument.type.kind] for argument in arguments)
        raise unknown_function(name, node, scope, types)
    parts: list[tree.Expression] = []
    for kind, argument in zip(found.parameters, arguments, strict=True):
        target = PARAMETER_TYPES.get(kind)
        if target is None and argument.type.kind is Kind.UNKNOWN:
            target = INTEGER
        parts.append(
            scope.settle(argument) if target is None else convert(argument, target, node, scope)
        )
    return tree.Call(found.result_type([part.type for part in parts]), name, tuple(parts))


def bind_function(node: syntax.Call, scope: Scope) -> tree.Expression:
    context, name = scope.context, BY_SPELLING.get(node.name, node.name)
    if name in _REFUSED and (node.is_word or name not in ("user", "localtime")):
        raise context.error("0A000", f"{_REFUSED[name]} is not supported", node)
    if not is_known(name):
        raise unknown_function(node.name, node, scope)
    if name in SETS:
        return _bind_set(node, scope)
    if node.is_star:
        raise context.error("42883", f"function {node.name}(*) does not exist", node)
    if node.is_distinct or node.order:
        word = "DISTINCT" if node.is_distinct else "ORDER BY"
        raise context.error("42809", f"{word}: {node.name} is no aggregate", node)
    special = _SPECIAL_BINDERS.get(name)
    if special is not None:
        counts, binder = special
        if len(node.arguments) not in counts:
            raise unknown_function(node.name, node, scope)
        return binder(node, scope)
    return call(name, _bound(node, scope), node, scope)


def _bind_set(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Return the column of a select list's rows of a function; 0A000 where there are none."""
    found = scope.sets.get(node.start)
    if found is None:
        where = scope.clause or "this place"
        raise scope.error(
            "0A000",
            f"set-returning functions are not allowed in {where}",
            node,
            f"Put it into FROM: … FROM {node.name}(…) AS x",
        )
    return found


def _bound(node: syntax.Call, scope: Scope) -> list[tree.Expression]:
    return [bind_open(item, scope) for item in node.arguments]


# --- with rules of their own ---------------------------------------------------------------------


def _bind_type_of(node: syntax.Call, scope: Scope) -> tree.Expression:
    operand = bind_open(node.arguments[0], scope)
    if any(isinstance(p, (tree.Aggregate, tree.Window)) for p in tree.walk(operand)):
        raise scope.error("0A000", "pg_typeof of an aggregate", node)
    kind = operand.type
    shown = "character varying" if kind.length is not None else _TYPE_NAMES[kind.kind]
    return tree.Literal(TEXT, shown)


def _bind_coalesce(node: syntax.Call, scope: Scope) -> tree.Expression:
    parts = _bound(node, scope)
    return coalesce(node.name, unify(parts, node, scope, node.name.upper()))


def coalesce(name: str, parts: Sequence[tree.Expression]) -> tree.Expression:
    """Return coalesce, greatest or least of parts of one type; those among them become one."""
    kind, flat = parts[0].type, list[tree.Expression]()
    for part in parts:
        if isinstance(part, tree.Call) and part.function == name and part.type == kind:
            flat += part.arguments
        else:
            flat.append(part)
    return tree.Call(kind, name, tuple(flat))


def _bind_nullif(node: syntax.Call, scope: Scope) -> tree.Expression:
    left, right = (bind_open(item, scope) for item in node.arguments)

    def case(left: tree.Expression, right: tree.Expression) -> tree.Expression:
        test = compare("=", left, right, node, scope)
        shown, _ = make_comparable("=", left, right, node, scope)
        if left.type.kind is not Kind.UNKNOWN and left.type != shown.type:
            shown = scope.settle(left)
        # PostgreSQL compares an integer with no other number: there, and here, it becomes one.
        if left.type.is_numeric and right.type.is_numeric and left.type.kind is not Kind.REAL:
            target = operand_type(left.type, right.type) or left.type
            if target.kind is not left.type.kind and not target.is_integer:
                shown = convert(left, target, node, scope)
        return tree.Case(shown.type, ((test, tree.Literal(shown.type, None)),), shown)

    return case(left, right) if isinstance(left, tree.Atom) else let((left, right), (), case)


def as_text(expression: tree.Expression, node: syntax.Node, scope: Scope) -> tree.Expression:
    """Convert to TEXT as output does, where a BOOLEAN is t or f."""
    if expression.type.kind is Kind.BOOLEAN:
        word = tree.Cast(TEXT, scope.settle(expression))
        return tree.Call(TEXT, "left", (word, tree.Literal(INTEGER, 1)))
    return convert(expression, TEXT, node, scope)


def _bind_concat(node: syntax.Call, scope: Scope) -> tree.Expression:
    parts = [as_text(bind_open(item, scope), item, scope) for item in node.arguments]
    if node.name == "concat_ws" and len(parts) < 2:
        raise unknown_function(node.name, node, scope, "text")
    return tree.Call(TEXT, node.name, tuple(parts))


def _bind_trim(node: syntax.Call, scope: Scope) -> tree.Expression:
    name = TRIMS.get(node.side or "", "btrim") if node.name == "trim" else node.name
    return _with_blanks(name, node, scope, 2)


def _with_blanks(name: str, node: syntax.Call, scope: Scope, count: int) -> tree.Expression:
    """Return a call whose last argument, the characters, is a blank where it is not there."""
    parts = _bound(node, scope)
    if len(parts) < count:
        parts.append(tree.Literal(TEXT, " "))
    return call(name, parts, node, scope)


def _bind_mod(node: syntax.Call, scope: Scope) -> tree.Expression:
    left, right = _bound(node, scope)
    return arithmetic("%", left, right, node, scope)


def _bind_round(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Bind round and trunc; with a number of digits, which must be a constant, of DECIMAL only."""
    name = node.name
    operand, *more = (bind_open(item, scope) for item in node.arguments)
    if not more:
        return call(name, [operand], node, scope)
    digits = more[0]
    if operand.type.is_integer:
        operand = convert(operand, as_decimal(operand.type), node, scope)
    elif operand.type.kind is Kind.UNKNOWN and isinstance(operand, tree.Literal):
        own = untyped_number(operand.value, decimal_type(decimal_precision_max, 0))
        operand = convert(operand, own, node, scope)
    if operand.type.kind is not Kind.DECIMAL:
        error = unknown_function(name, node, scope, f"{_TYPE_NAMES[operand.type.kind]}, integer")
        raise error
    if not (digits.type.is_integer or digits.type.kind is Kind.UNKNOWN):
        raise unknown_function(name, node, scope, f"numeric, {_TYPE_NAMES[digits.type.kind]}")
    if not isinstance(digits, tree.Literal) or not isinstance(digits.value, int):
        raise scope.error("0A000", f"{name}: the number of digits must be constant", node)
    precision, scale = operand.type.precision or decimal_precision_max, operand.type.scale or 0
    shown = min(max(digits.value, 0), decimal_precision_max)
    whole = min(precision - scale + 1, decimal_precision_max - shown)
    if whole < 1:
        raise scope.error("22003", f"{name}: the result would have scale {shown}", node)
    operand = scope.settle(operand)
    result = decimal_type(whole + shown, shown)
    if digits.value >= scale:
        return convert(operand, result, node, scope)
    places = tree.Literal(INTEGER, max(digits.value, -decimal_precision_max))
    return tree.Cast(result, tree.Call(result, f"{name}_to", (operand, places)))


def _bind_now(node: syntax.Call, scope: Scope) -> tree.Expression:
    if node.name in ("now", "current_timestamp"):
        return scope.context.now()
    now = scope.context.now(TIMESTAMP)
    return tree.Cast(DATE, now) if node.name == "current_date" else now


def _bind_date_trunc(node: syntax.Call, scope: Scope) -> tree.Expression:
    first, second, *zone = node.arguments
    if zone:
        raise scope.error("0A000", "date_trunc with a time zone is not supported", node)
    unit = _word_of(first, node, scope)
    operand = bind_open(second, scope)
    if unit not in TRUNC_UNITS and f"{unit}s" in TRUNC_UNITS:
        unit += "s"
    if unit not in TRUNC_UNITS:
        raise scope.error(
            "22023", f'date_trunc: unit "{unit}" is not one of {", ".join(TRUNC_UNITS)}', node
        )
    if operand.type.kind is Kind.INTERVAL:
        if unit not in INTERVAL_TRUNCS:
            raise _no_unit("date_trunc", unit, node, scope)
        operand = scope.settle(operand)
        return tree.Call(INTERVAL, f"trunc_interval:{unit}", (operand,))
    if not (operand.type.is_moment or operand.type.kind is Kind.UNKNOWN):
        types = f"unknown, {_TYPE_NAMES[operand.type.kind]}"
        raise unknown_function("date_trunc", node, scope, types)
    result = TIMESTAMP if operand.type == TIMESTAMP else TIMESTAMPTZ
    return tree.Call(result, f"date_trunc:{unit}", (convert(operand, result, node, scope),))


def _word_of(node: syntax.Node, call: syntax.Call, scope: Scope) -> str:
    """Return the constant that says which field or unit is meant."""
    if not isinstance(node, syntax.String):
        raise scope.error("0A000", f"{call.name} takes a constant as its first", call)
    return node.text.lower()


def _no_unit(name: str, unit: str, node: syntax.Node, scope: Scope) -> Exception:
    return scope.error("0A000", f"{name}: an interval has no {unit}", node)


def _bind_extract(node: syntax.Call, scope: Scope) -> tree.Expression:
    first, second = node.arguments
    field = _word_of(first, node, scope)
    for plural in (f"{field}s", field.removesuffix("s")):
        field = plural if field not in EXTRACT_FIELDS and plural in EXTRACT_FIELDS else field
    operand = bind_open(second, scope)
    if field not in EXTRACT_FIELDS:
        raise scope.error(
            "22023", f'extract: field "{field}" is not one of {", ".join(EXTRACT_FIELDS)}', node
        )
    result = decimal_type(20, EXTRACT_FIELDS[field][1])
    if operand.type.kind is Kind.INTERVAL:
        if field not in INTERVAL_FIELDS:
            raise _no_unit("extract", field, node, scope)
        operand = scope.settle(operand)
        return _part(node, tree.Call(result, f"extract_interval:{field}", (operand,)))
    if not operand.type.is_moment:
        raise unknown_function("extract", node, scope, _TYPE_NAMES[operand.type.kind])
    if operand.type.kind is Kind.DATE and field in (
        "hour",
        "minute",
        "second",
        "milliseconds",
        "microseconds",
    ):
        raise scope.error("0A000", f"extract: a date has no {field}", node)
    return _part(node, tree.Call(result, f"extract:{field}", (scope.settle(operand),)))


def _part(node: syntax.Call, found: tree.Expression) -> tree.Expression:
    """Return what extract() gives, which date_part() gives as a DOUBLE."""
    return tree.Cast(DOUBLE, found) if node.name == "date_part" else found


def _bind_to_char(node: syntax.Call, scope: Scope) -> tree.Expression:
    """Bind to_char() of a moment by a constant template."""
    first, second = node.arguments
    operand = bind_open(first, scope)
    if operand.type.is_numeric or operand.type.kind is Kind.INTERVAL:
        what = _TYPE_NAMES[operand.type.kind]
        raise scope.error("0A000", f"to_char of {what} is not supported", node)
    if not operand.type.is_moment:
        raise unknown_function(node.name, node, scope, f"{_TYPE_NAMES[operand.type.kind]}, text")
    if not isinstance(second, syntax.String) or second.special is not None:
        raise scope.error("0A000", "to_char takes a constant as its second", node)
    template = second.text
    if len(template) > template_characters_max or template_text(template) is None:
        raise scope.error(
            "0A000", f"to_char by '{shortened(template)}' is not supported", second, _TEMPLATES
        )
    if not template:
        return tree.Literal(TEXT, None)
    target = TIMESTAMP if operand.type == TIMESTAMP else TIMESTAMPTZ
    parts = (convert(operand, target, node, scope), tree.Literal(TEXT, template))
    return tree.Call(TEXT, "to_char", parts)


_TEMPLATES = (
    "Patterns: YYYY, MM, DD, HH24, HH12, MI, SS, MS, US, AM, Month, Mon, Day, Dy, DDD, D, ID, IW, "
    'IYYY, WW, W, Q, CC, with FM; other letters stand in "double quotes".'
)
_ANY = range(1, 100_000)
_SPECIAL_BINDERS: dict[str, tuple[range, Callable[[syntax.Call, Scope], tree.Expression]]] = {
    "pg_typeof": (range(1, 2), _bind_type_of),
    **dict.fromkeys(("coalesce", "greatest", "least"), (_ANY, _bind_coalesce)),
    "nullif": (range(2, 3), _bind_nullif),
    **dict.fromkeys(("concat", "concat_ws"), (_ANY, _bind_concat)),
    **dict.fromkeys(("trim", "btrim", "ltrim", "rtrim"), (range(1, 3), _bind_trim)),
    **dict.fromkeys(
        ("lpad", "rpad"), (range(2, 4), lambda node, scope: _with_blanks(node.name, node, scope, 3))
    ),
    **dict.fromkeys(("round", "trunc"), (range(1, 3), _bind_round)),
    "position": (range(2, 3), lambda node, scope: call("strpos", _bound(node, scope), node, scope)),
    "mod": (range(2, 3), _bind_mod),
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "localtimestamp"), (range(1), _bind_now)
    ),
    "date_trunc": (range(2, 4), _bind_date_trunc),
    "to_char": (range(2, 3), _bind_to_char),
    **dict.fromkeys(("extract", "date_part"), (range(2, 3), _bind_extract)),
    **SEQUENCE_BINDERS,
}
"""By name: how many arguments there may be, and what binds the call."""


# --- functions that give rows --------------------------------------------------------------------

_ORDINALITY = "ordinality"
_NO_SETS = (syntax.Query, syntax.Case)
_CHOOSING = frozenset(("coalesce", "greatest", "least", "nullif"))


def bind_table_function(
    node: syntax.Call, name: str, scope: Scope, *, has_ordinality: bool
) -> tree.Query:
    """Return the rows of a call in FROM; a function that gives one value calls its column `name`.

    The scope has what the arguments may name.
    """
    if node.name in AGGREGATES:
        message = "aggregate functions are not allowed in functions in FROM"
        raise scope.error("42803", message, node)
    scope.clause = "functions in FROM"
    if node.name == "generate_series":
        return _series(node, name, scope, has_ordinality=has_ordinality)
    if node.name == "unnest":
        return _unnested(node, name, scope, has_ordinality=has_ordinality)
    outputs = [tree.Output(name, bind_expression(node, scope))]
    if has_ordinality:
        outputs.append(tree.Output(_ORDINALITY, tree.Literal(BIGINT, 1)))
    columns = tuple((output.name, output.expression.type) for output in outputs)
    return tree.Query(tree.Select(tuple(outputs), None), columns)


def calls_of_sets(nodes: Sequence[syntax.Output]) -> list[syntax.Call]:
    """Return the calls in a select list that give rows, where they may stand."""
    return [call for output in nodes for call in _sets_in(output)]


def _sets_in(node: syntax.Node) -> Iterator[syntax.Call]:
    pending: list[Any] = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, syntax.Call) and item.name in SETS:
            yield item
        elif isinstance(item, syntax.Call) and (item.name in _CHOOSING or item.name in AGGREGATES):
            continue
        elif isinstance(item, syntax.Node) and not isinstance(item, _NO_SETS):
            pending += msgspec.structs.astuple(item)
        elif isinstance(item, (list, tuple)):
            pending += item


def _series(node: syntax.Call, name: str, scope: Scope, *, has_ordinality: bool) -> tree.Query:
    parts = [bind_open(item, scope) for item in node.arguments]
    types = ", ".join(str(part.type).lower() for part in parts)
    if not 2 <= len(parts) <= 3 or node.is_star or node.is_distinct or node.order:
        raise unknown_function(node.name, node, scope, types)
    if len(parts) == 2:
        parts.append(tree.Literal(INTEGER, 1))
    kinds = {part.type.kind for part in parts[: len(node.arguments)]} - {Kind.UNKNOWN}
    if kinds <= {Kind.SMALLINT}:
        message = f"function generate_series({types}) is not unique"
        raise scope.error("42725", message, node, "CAST an argument: generate_series(1::int, …).")
    moment = _moment(parts)
    if moment is not None:
        targets: list[SqlType] = [moment, moment, INTERVAL]
    elif Kind.DECIMAL in kinds:
        targets = [_decimal(parts, scope)] * 3
    else:
        targets = [BIGINT if Kind.BIGINT in kinds else INTEGER] * 3
    allowed = (
        all(
            part.type.is_integer or part.type.kind in (Kind.DECIMAL, Kind.UNKNOWN) for part in parts
        )
        if moment is None
        else len(node.arguments) == 3
    )
    if not allowed:
        raise unknown_function(node.name, node, scope, types)
    start, stop, step = (
        scope.settle(convert(part, target, node, scope))
        for part, target in zip(parts, targets, strict=True)
    )
    columns = ((name, start.type), *(((_ORDINALITY, BIGINT),) if has_ordinality else ()))
    return tree.Query(tree.Series(start, stop, step, has_ordinality), columns)


def _moment(parts: Sequence[tree.Expression]) -> SqlType | None:
    """Return of which type a series of moments is, as PostgreSQL chooses; None: of numbers."""
    start, stop, step = parts
    kinds = {start.type.kind, stop.type.kind}
    if step.type.kind not in (Kind.INTERVAL, Kind.UNKNOWN) or not any(
        part.type.is_moment for part in (start, stop)
    ):
        return None
    if not all(part.type.is_moment or part.type.kind is Kind.UNKNOWN for part in (start, stop)):
        return None
    is_plain = Kind.TIMESTAMP in kinds and Kind.TIMESTAMPTZ not in kinds
    return TIMESTAMP if is_plain else TIMESTAMPTZ


def _decimal(parts: Sequence[tree.Expression], scope: Scope) -> SqlType:
    """Return the DECIMAL that holds all of them, of whatever digits."""
    found: SqlType | None = None
    for part in parts:
        if part.type.is_numeric and not part.type.is_float:
            own = conversions.as_decimal(part.type)
            found = own if found is None else conversions.common_type(found, own) or found
    assert found is not None
    for part in parts:
        found = met_by(found, part, scope.context)
    return found


def _unnested(node: syntax.Call, name: str, scope: Scope, *, has_ordinality: bool) -> tree.Query:
    """Bind unnest(ARRAY[…], …), whose items are known, as VALUES."""
    arrays: list[list[tree.Expression]] = []
    for item in node.arguments:
        while isinstance(item, syntax.Paren):
            item = item.operand
        if not isinstance(item, syntax.Array):
            raise scope.error(
                "0A000", "unnest of what is no array constructor", node, "Write unnest(ARRAY[…])."
            )
        if not item.items:
            raise scope.error("42P18", "cannot determine type of empty array", item)
        parts = [bind_open(part, scope) for part in item.items]
        arrays.append(unify(parts, node, scope, "ARRAY"))
    if not arrays or node.is_star or node.is_distinct or node.order:
        raise unknown_function(node.name, node, scope)
    types = [array[0].type for array in arrays]
    rows: list[tuple[tree.Expression, ...]] = []
    for number, row in enumerate(zip_longest(*arrays), 1):
        rest = (tree.Literal(BIGINT, number),) if has_ordinality else ()
        shown = (
            tree.Literal(kind, None) if part is None else part
            for part, kind in zip(row, types, strict=True)
        )
        rows.append((*shown, *rest))
    names = [name if len(arrays) == 1 else node.name] * len(arrays)
    columns = tuple(zip(names, types, strict=True))
    if has_ordinality:
        columns = (*columns, (_ORDINALITY, BIGINT))
    shown_names = tuple(f"column{number}" for number in range(1, len(columns) + 1))
    return tree.Query(tree.Values(tuple(rows), shown_names), columns)
