"""Calls of functions: sqlglot's many classes to names, and names to overloads of functions.py."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from herdpy.errors import ProgrammingError
from herdpy.limits import decimal_precision_max
from herdpy.model.types import (
    DATE,
    INTEGER,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    decimal_type,
)
from herdpy.sql import tree
from herdpy.sql.bind_expression import (
    BINDERS,
    WORDS,
    bind_open,
    bind_positive,
    compare,
    convert,
    let,
    make_comparable,
    text_constant,
    unify,
)
from herdpy.sql.functions import (
    BY_SPELLING,
    EXTRACT_FIELDS,
    FUNCTIONS,
    INTERVAL_FIELDS,
    INTERVAL_TRUNCS,
    PARAMETER_TYPES,
    SPECIAL,
    TRUNC_UNITS,
    resolve,
)
from herdpy.sql.scope import Scope

# sqlglot's class: our name, and where its arguments are, in order.
_CLASSES: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Abs: ("abs", ("this",)), exp.Ceil: ("ceil", ("this",)), exp.Floor: ("floor", ("this",)),
    exp.Sign: ("sign", ("this",)), exp.Sqrt: ("sqrt", ("this",)), exp.Cbrt: ("cbrt", ("this",)),
    exp.Exp: ("exp", ("this",)), exp.Ln: ("ln", ("this",)),
    exp.Pow: ("power", ("this", "expression")), exp.Pi: ("pi", ()),
    exp.Degrees: ("degrees", ("this",)), exp.Radians: ("radians", ("this",)),
    exp.Sin: ("sin", ("this",)), exp.Cos: ("cos", ("this",)), exp.Tan: ("tan", ("this",)),
    exp.Asin: ("asin", ("this",)), exp.Acos: ("acos", ("this",)), exp.Atan: ("atan", ("this",)),
    exp.Atan2: ("atan2", ("this", "expression")), exp.Rand: ("random", ()),
    exp.Lower: ("lower", ("this",)), exp.Upper: ("upper", ("this",)),
    exp.Length: ("length", ("this",)), exp.ByteLength: ("octet_length", ("this",)),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Left: ("left", ("this", "expression")), exp.Right: ("right", ("this", "expression")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.Reverse: ("reverse", ("this",)), exp.Repeat: ("repeat", ("this", "times")),
    exp.StrPosition: ("strpos", ("this", "substr")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
    exp.Ascii: ("ascii", ("this",)), exp.Chr: ("chr", ("expressions",)),
    exp.Translate: ("translate", ("this", "from_", "to")), exp.MD5: ("md5", ("this",)),
    exp.Hex: ("to_hex", ("this",)), exp.LowerHex: ("to_hex", ("this",)),
    exp.Encode: ("encode", ("this", "charset")), exp.Decode: ("decode", ("this", "charset")),
    exp.JustifyDays: ("justify_days", ("this",)), exp.JustifyHours: ("justify_hours", ("this",)),
    exp.JustifyInterval: ("justify_interval", ("this",)),
    exp.TimestampFromParts: ("make_timestamp", ("year", "month", "day", "hour", "min", "sec")),
    exp.DateFromParts: ("make_date", ("year", "month", "day")),
}  # fmt: skip
_SPECIAL_NAMES: dict[type[exp.Expr], str] = {
    exp.Coalesce: "coalesce", exp.Nullif: "nullif", exp.Greatest: "greatest", exp.Least: "least",
    exp.Concat: "concat", exp.ConcatWs: "concat_ws", exp.Trim: "btrim", exp.Mod: "mod",
    exp.CurrentTimestamp: "current_timestamp", exp.CurrentDate: "current_date", exp.Round: "round",
    exp.Localtimestamp: "localtimestamp", exp.TimestampTrunc: "date_trunc",
    exp.DateTrunc: "date_trunc",
    exp.Extract: "extract", exp.Trunc: "trunc", exp.Log: "log", exp.Pad: "lpad",
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max",
    exp.GroupConcat: "string_agg", exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or",
    exp.Stddev: "stddev", exp.StddevPop: "stddev_pop", exp.StddevSamp: "stddev_samp",
    exp.Variance: "variance", exp.VariancePop: "var_pop", exp.RowNumber: "row_number",
    exp.Rank: "rank", exp.DenseRank: "dense_rank", exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist", exp.Ntile: "ntile", exp.Lag: "lag", exp.Lead: "lead",
    exp.FirstValue: "first_value", exp.LastValue: "last_value", exp.NthValue: "nth_value",
}  # fmt: skip
_TYPE_NAMES = {
    Kind.BOOLEAN: "boolean", Kind.INTEGER: "integer", Kind.BIGINT: "bigint",
    Kind.DOUBLE: "double precision", Kind.DECIMAL: "numeric", Kind.TEXT: "text",
    Kind.BYTEA: "bytea", Kind.DATE: "date", Kind.TIMESTAMP: "timestamp without time zone",
    Kind.TIMESTAMPTZ: "timestamp with time zone",
    Kind.INTERVAL: "interval", Kind.UNKNOWN: "unknown",
}  # fmt: skip


_KNOWN = frozenset(
    (*FUNCTIONS, *SPECIAL, *BY_SPELLING, *_SPECIAL_NAMES.values(), "pg_typeof", "var_samp")
)
# What has an error of its own: 0A000, not "does not exist".
_REFUSED_NAMES = frozenset(("row", "grouping"))


def unknown_name(functions: Sequence[tuple[str, int]]) -> ProgrammingError | None:
    """Return the 42883 of the first (name, 1-based position) that is no function, if any."""
    for name, position in functions:
        if name not in _KNOWN and name not in _REFUSED_NAMES:
            return ProgrammingError(
                f"function {name}() does not exist",
                sqlstate="42883",
                position=position,
                hint=_suggested(name),
            )
    return None


def _suggested(name: str) -> str | None:
    close = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.75)
    return f"Did you mean {close[0]}?" if close and close[0] != name else None


def unknown_function(name: str, node: exp.Expr, scope: Scope, types: str = "") -> Exception:
    """Return the 42883 of a function that there is not, with a suggestion."""
    hint = None
    if name in FUNCTIONS:
        forms = (f"{name}({', '.join(item.parameters)})" for item in FUNCTIONS[name])
        hint = f"There is {' and '.join(forms)}."
    elif name not in _KNOWN:
        hint = _suggested(name)
    return scope.context.error("42883", f"function {name}({types}) does not exist", node, hint)


def call(
    name: str, arguments: list[tree.Expression], node: exp.Expr, scope: Scope
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
            scope.context.settle(argument)
            if target is None
            else convert(argument, target, node, scope)
        )
    return tree.Call(found.result_type([part.type for part in parts]), name, tuple(parts))


def _arguments(node: exp.Expr, keys: tuple[str, ...]) -> Iterator[exp.Expr]:
    for key in keys:
        value = node.args.get(key)
        if isinstance(value, list):
            yield from value
        elif value is not None:
            yield value


def _bind_class(node: Any, scope: Scope) -> tree.Expression:
    name, keys = _CLASSES[type(node)]
    if name == "sqrt" and scope.context.called(node) is None:
        return bind_positive(node, scope)  # see parse()
    scope.context.only(node, (*keys, "charset", "safe"), f"{name}()")
    return call(name, [bind_open(item, scope) for item in _arguments(node, keys)], node, scope)


def _bind_anonymous(node: Any, scope: Scope) -> tree.Expression:
    name = str(node.name)
    if not node.args.get("quoted"):
        name = name.lower()
    name = BY_SPELLING.get(name, name)
    if name == "row":
        raise scope.context.error("0A000", "rows as values are not supported", node)
    if name == "pg_typeof" and len(node.expressions) == 1:
        operand = bind_open(node.expressions[0], scope)
        if any(isinstance(p, (tree.Aggregate, tree.Window)) for p in tree.walk(operand)):
            raise scope.context.error("0A000", "pg_typeof of an aggregate", node)
        kind = operand.type
        shown = "character varying" if kind.length is not None else _TYPE_NAMES[kind.kind]
        return tree.Literal(TEXT, shown)
    if name not in FUNCTIONS:
        raise unknown_function(name, node, scope)
    return call(name, [bind_open(item, scope) for item in node.expressions], node, scope)


# --- with rules of their own ---------------------------------------------------------------------


def _bind_coalesce(node: Any, scope: Scope) -> tree.Expression:
    name = _SPECIAL_NAMES[type(node)]
    nodes = [*_arguments(node, ("this", "expressions"))]
    parts = unify([bind_open(item, scope) for item in nodes], node, scope, name.upper())
    return coalesce(name, parts)


def coalesce(name: str, parts: Sequence[tree.Expression]) -> tree.Expression:
    """Return coalesce, greatest or least of parts of one type; those among them become one."""
    kind, flat = parts[0].type, list[tree.Expression]()
    for part in parts:
        if isinstance(part, tree.Call) and part.function == name and part.type == kind:
            flat += part.arguments
        else:
            flat.append(part)
    return tree.Call(kind, name, tuple(flat))


def _bind_nullif(node: Any, scope: Scope) -> tree.Expression:
    left, right = bind_open(node.this, scope), bind_open(node.expression, scope)

    def case(left: tree.Expression, right: tree.Expression) -> tree.Expression:
        test = compare("=", left, right, node, scope)
        shown, _ = make_comparable("=", left, right, node, scope)
        if left.type.kind is not Kind.UNKNOWN and left.type != shown.type:
            shown = scope.context.settle(left)
        return tree.Case(shown.type, ((test, tree.Literal(shown.type, None)),), shown)

    return case(left, right) if isinstance(left, tree.Atom) else let((left, right), (), case)


def as_text(expression: tree.Expression, node: exp.Expr, scope: Scope) -> tree.Expression:
    """Convert to TEXT as output does, where a BOOLEAN is t or f."""
    if expression.type.kind is Kind.BOOLEAN:
        word = tree.Cast(TEXT, scope.context.settle(expression))
        return tree.Call(TEXT, "left", (word, tree.Literal(INTEGER, 1)))
    return convert(expression, TEXT, node, scope)


def _bind_concat(node: Any, scope: Scope) -> tree.Expression:
    if not node.args.get("safe"):  # 'a' 'b', on two lines in PostgreSQL
        text = "".join(str(item.this) for item in node.expressions)
        return text_constant(text, node, scope)
    name = _SPECIAL_NAMES[type(node)]
    parts = [as_text(bind_open(item, scope), item, scope) for item in node.expressions]
    if name == "concat_ws" and len(parts) < 2:
        raise unknown_function(name, node, scope, "text")
    return tree.Call(TEXT, name, tuple(parts))


def _bind_trim(node: Any, scope: Scope) -> tree.Expression:
    scope.context.only(node, ("this", "expression", "position"), "trim()")
    position = str(node.args.get("position") or "BOTH").upper()
    name = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}[position]
    text = bind_open(node.this, scope)
    characters = node.args.get("expression")
    given = bind_open(characters, scope) if characters else tree.Literal(TEXT, " ")
    return call(name, [text, given], node, scope)


def _bind_pad(node: Any, scope: Scope) -> tree.Expression:
    name = "lpad" if node.args.get("is_left") else "rpad"
    fill = node.args.get("fill_pattern")
    parts = [bind_open(node.this, scope), bind_open(node.expression, scope)]
    parts.append(bind_open(fill, scope) if fill else tree.Literal(TEXT, " "))
    return call(name, parts, node, scope)


def _bind_log(node: Any, scope: Scope) -> tree.Expression:
    if node.args.get("expression") is None:
        return call("log", [bind_open(node.this, scope)], node, scope)
    if scope.context.called(node) == "log10":
        return call("log10", [bind_open(node.expression, scope)], node, scope)
    raise unknown_function("log", node, scope, "numeric, numeric")


def _bind_round(node: Any, scope: Scope) -> tree.Expression:
    """Bind round and trunc; with a number of digits, which must be a constant, of DECIMAL only."""
    name = _SPECIAL_NAMES[type(node)]
    scope.context.only(node, ("this", "decimals"), f"{name}()")
    operand = bind_open(node.this, scope)
    if node.args.get("decimals") is None:
        return call(name, [operand], node, scope)
    digits = bind_open(node.args["decimals"], scope)
    if operand.type.is_integer:
        target = decimal_type(10 if operand.type.kind is Kind.INTEGER else 19, 0)
        operand = convert(operand, target, node, scope)
    if operand.type.kind is not Kind.DECIMAL:
        error = unknown_function(name, node, scope, f"{_TYPE_NAMES[operand.type.kind]}, integer")
        raise error
    if digits.type.kind not in (Kind.INTEGER, Kind.BIGINT, Kind.UNKNOWN):
        raise unknown_function(name, node, scope, f"numeric, {_TYPE_NAMES[digits.type.kind]}")
    if not isinstance(digits, tree.Literal) or not isinstance(digits.value, int):
        raise scope.context.error("0A000", f"{name}: the number of digits must be constant", node)
    precision, scale = operand.type.precision or decimal_precision_max, operand.type.scale or 0
    shown = min(max(digits.value, 0), decimal_precision_max)
    whole = min(precision - scale + 1, decimal_precision_max - shown)
    if whole < 1:
        raise scope.context.error("22003", f"{name}: the result would have scale {shown}", node)
    operand = scope.context.settle(operand)
    result = decimal_type(whole + shown, shown)
    if digits.value >= scale:
        return convert(operand, result, node, scope)
    places = tree.Literal(INTEGER, max(digits.value, -decimal_precision_max))
    return tree.Cast(result, tree.Call(result, f"{name}_to", (operand, places)))


def _bind_now(node: Any, scope: Scope) -> tree.Expression:
    if node.this is not None:
        name = _SPECIAL_NAMES[type(node)]
        raise scope.context.error("0A000", f"{name} with a number of digits", node)
    if isinstance(node, exp.CurrentTimestamp):
        return scope.context.now()
    now = scope.context.now(TIMESTAMP)
    return tree.Cast(DATE, now) if isinstance(node, exp.CurrentDate) else now


def _bind_date_trunc(node: Any, scope: Scope) -> tree.Expression:
    scope.context.only(node, ("this", "unit"), "date_trunc()")
    unit = str(node.args["unit"].name).lower()
    operand = bind_open(node.this, scope)
    if unit not in TRUNC_UNITS and f"{unit}s" in TRUNC_UNITS:
        unit += "s"
    if unit not in TRUNC_UNITS:
        raise scope.context.error(
            "22023", f'date_trunc: unit "{unit}" is not one of {", ".join(TRUNC_UNITS)}', node
        )
    if operand.type.kind is Kind.INTERVAL:
        if unit not in INTERVAL_TRUNCS:
            raise _no_unit("date_trunc", unit, node, scope)
        operand = scope.context.settle(operand)
        return tree.Call(INTERVAL, f"trunc_interval:{unit}", (operand,))
    if not (operand.type.is_moment or operand.type.kind is Kind.UNKNOWN):
        types = f"unknown, {_TYPE_NAMES[operand.type.kind]}"
        raise unknown_function("date_trunc", node, scope, types)
    result = TIMESTAMP if operand.type == TIMESTAMP else TIMESTAMPTZ
    return tree.Call(result, f"date_trunc:{unit}", (convert(operand, result, node, scope),))


def _no_unit(name: str, unit: str, node: Any, scope: Scope) -> Exception:
    return scope.context.error("0A000", f"{name}: an interval has no {unit}", node)


def _bind_extract(node: Any, scope: Scope) -> tree.Expression:
    scope.context.only(node, ("this", "expression"), "extract()")
    field = str(node.this.name).lower()
    for plural in (f"{field}s", field.removesuffix("s")):
        field = plural if field not in EXTRACT_FIELDS and plural in EXTRACT_FIELDS else field
    operand = bind_open(node.expression, scope)
    if field not in EXTRACT_FIELDS:
        raise scope.context.error(
            "22023", f'extract: field "{field}" is not one of {", ".join(EXTRACT_FIELDS)}', node
        )
    result = decimal_type(20, EXTRACT_FIELDS[field][1])
    if operand.type.kind is Kind.INTERVAL:
        if field not in INTERVAL_FIELDS:
            raise _no_unit("extract", field, node, scope)
        operand = scope.context.settle(operand)
        return tree.Call(result, f"extract_interval:{field}", (operand,))
    if not operand.type.is_moment:
        raise unknown_function("extract", node, scope, _TYPE_NAMES[operand.type.kind])
    if operand.type.kind is Kind.DATE and field in (
        "hour",
        "minute",
        "second",
        "milliseconds",
        "microseconds",
    ):
        raise scope.context.error("0A000", f"extract: a date has no {field}", node)
    return tree.Call(result, f"extract:{field}", (scope.context.settle(operand),))


def _bind_interval(node: Any, scope: Scope) -> tree.Expression:
    """Refuse INTERVAL before what is no string; of INTERVAL '…' sql/tokens.py makes a cast."""
    raise scope.context.error("42601", "INTERVAL takes a string, as in INTERVAL '1 day'", node)


def _bind_unknown(node: Any, scope: Scope) -> tree.Expression:
    called = "if" if isinstance(node, exp.If) else scope.context.called(node)
    if called is None:  # an operator or a construct, which sqlglot has a function for
        what = WORDS.get(type(node), "this expression")
        raise scope.context.error("0A000", f"{what} is not supported", node)
    raise unknown_function(called, node, scope)


_BINDERS: dict[type[exp.Expr], Callable[[Any, Scope], tree.Expression]] = {
    **dict.fromkeys(_CLASSES, _bind_class),
    exp.Anonymous: _bind_anonymous,
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), _bind_coalesce),
    exp.Nullif: _bind_nullif,
    exp.Concat: _bind_concat,
    exp.ConcatWs: _bind_concat,
    exp.Trim: _bind_trim,
    exp.Pad: _bind_pad,
    exp.Log: _bind_log,
    exp.Round: _bind_round,
    exp.Trunc: _bind_round,
    **dict.fromkeys((exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp), _bind_now),
    exp.TimestampTrunc: _bind_date_trunc,
    exp.DateTrunc: _bind_date_trunc,
    exp.Extract: _bind_extract,
    exp.Interval: _bind_interval,
    exp.Func: _bind_unknown,
}
BINDERS.update(_BINDERS)
