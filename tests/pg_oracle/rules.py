"""Every kind of expression that is generated: operators, functions, casts, predicates, aggregates.

Functions come from herdpy/sql/functions.py with each type that they take, casts from all pairs of
types, so that what is added there is generated here.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from herdpy.model.types import (
    FLOAT_KINDS,
    INTEGER_KINDS,
    MOMENT_KINDS,
    NUMERIC_KINDS,
    Kind,
    SqlType,
    decimal_type,
)
from herdpy.sql.functions import (
    AGGREGATES,
    BY_SPELLING,
    EXTRACT_FIELDS,
    FUNCTIONS,
    INTERVAL_FIELDS,
    INTERVAL_TRUNCS,
    RANKINGS,
    TRUNC_UNITS,
    resolve,
)
from tests.pg_oracle.values import DECIMAL_TYPES, KINDS, NAMES, K, quoted

_WHOLE = INTEGER_KINDS
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


class Choice(NamedTuple):
    """An argument that is one of these texts."""

    texts: tuple[str, ...]


Argument = Kind | Choice


class Rule(NamedTuple):
    """One kind of expression over arguments of these kinds."""

    label: str
    result: Kind
    arguments: tuple[Argument, ...]
    template: str
    """With {0}, {1} … for the arguments; {{0}} of aggregates is OVER or nothing."""
    is_row: bool = False
    """Whether herdpy's row path may compute it."""
    allows_aggregates: bool = True
    """Whether an argument may be one."""
    is_rare: bool = False
    """Whether it always differs by design: each of a few does for all, and hides the others."""


def _names(kinds: Iterable[Kind]) -> str:
    return ", ".join(NAMES[kind] for kind in kinds)


# --- operators -----------------------------------------------------------------------------------


def _wider(left: Kind, right: Kind) -> Kind:
    """Return the type that two types of numbers have in common."""
    return max(left, right, key=(*INTEGER_KINDS, K.DECIMAL, K.REAL, K.DOUBLE).index)


def _operated(left: Kind, right: Kind) -> Kind:
    """Return the type of an operator's result over two types of numbers."""
    wider = _wider(left, right)
    return K.DOUBLE if wider is K.REAL and left is not right else wider


def _arithmetic() -> Iterator[Rule]:
    for left, right in product(NUMERIC_KINDS, repeat=2):
        wider = _operated(left, right)
        for sign in "+-*/%^":
            if sign == "%" and wider in FLOAT_KINDS:
                continue
            label = f"{NAMES[left]} {sign} {NAMES[right]}"
            is_row = sign in "+-*" and left is right and left is not K.DECIMAL
            result = K.DOUBLE if sign == "^" else wider
            exponent = Choice(("2", "0.5", "3", "-1", "0")) if sign == "^" else right
            if sign == "^" and right is not K.DECIMAL:
                exponent = Choice(
                    tuple(f"CAST({text} AS {NAMES[right]})" for text in ("2", "0", "-1", "3"))
                )
            is_rare = sign in "/^" and K.DECIMAL in (left, right) and wider is K.DECIMAL
            text = f"({{0}} {sign} {{1}})"
            yield Rule(label, result, (left, exponent), text, is_row, is_rare=is_rare)
    for kind in (*NUMERIC_KINDS, K.INTERVAL):
        is_row = kind not in (K.DECIMAL, K.INTERVAL)
        yield Rule(f"- {NAMES[kind]}", kind, (kind,), "(- {0})", is_row)
        if kind is not K.INTERVAL:
            yield Rule(f"+ {NAMES[kind]}", kind, (kind,), "(+ {0})", is_row)


def _of_moments() -> Iterator[Rule]:
    small = Choice(("1", "-1", "30", "365", "CAST(7 AS integer)"))
    pairs: list[tuple[Kind, str, Argument, str, Kind]] = [
        (K.DATE, "+", small, "integer", K.DATE), (K.DATE, "-", small, "integer", K.DATE),
        (K.DATE, "-", K.DATE, "date", K.INTEGER),
    ]  # fmt: skip
    for kind in MOMENT_KINDS:
        result = K.TIMESTAMP if kind is K.DATE else kind
        pairs += [(kind, sign, K.INTERVAL, "interval", result) for sign in "+-"]
        for other in MOMENT_KINDS:
            if (kind, other) != (K.DATE, K.DATE):
                pairs.append((kind, "-", other, NAMES[other], K.INTERVAL))
    pairs += [(K.INTERVAL, sign, K.INTERVAL, "interval", K.INTERVAL) for sign in "+-"]
    for kind in NUMERIC_KINDS:
        pairs += [(K.INTERVAL, sign, kind, NAMES[kind], K.INTERVAL) for sign in "*/"]
    for left, sign, right, name, result in pairs:
        label = f"{NAMES[left]} {sign} {name}"
        yield Rule(label, result, (left, right), f"({{0}} {sign} {{1}})")
    yield Rule("integer + date", K.DATE, (small, K.DATE), "({0} + {1})")
    for kind in MOMENT_KINDS:
        result = K.TIMESTAMP if kind is K.DATE else kind
        yield Rule(f"interval + {NAMES[kind]}", result, (K.INTERVAL, kind), "({0} + {1})")
    for kind in NUMERIC_KINDS:
        label = f"{NAMES[kind]} * interval"
        yield Rule(label, K.INTERVAL, (kind, K.INTERVAL), "({0} * {1})")
    for kind in MOMENT_KINDS:
        result = K.TIMESTAMPTZ if kind is K.TIMESTAMP else K.TIMESTAMP
        label = f"{NAMES[kind]} AT TIME ZONE"
        yield Rule(label, result, (kind,), "({0} AT TIME ZONE 'UTC')")


def _comparable() -> list[tuple[Kind, Kind]]:
    pairs = [(kind, kind) for kind in KINDS]
    for group in (NUMERIC_KINDS, MOMENT_KINDS):
        pairs += [(left, right) for left, right in product(group, repeat=2) if left is not right]
    return pairs


def _comparisons() -> Iterator[Rule]:
    for left, right in _comparable():
        names = f"{NAMES[left]}, {NAMES[right]}"
        is_row = (left is right or {left, right} <= set(_WHOLE)) and left is not K.INTERVAL
        for sign in COMPARISONS:
            label = f"{sign} ({names})"
            yield Rule(label, K.BOOLEAN, (left, right), f"({{0}} {sign} {{1}})", is_row)
        for word in ("", "NOT "):
            test = f"({{0}} IS {word}DISTINCT FROM {{1}})"
            yield Rule(f"IS {word}DISTINCT FROM ({names})", K.BOOLEAN, (left, right), test)
    for kind in KINDS:
        is_row, name = kind is not K.INTERVAL, NAMES[kind]
        pair, triple = (kind, kind), (kind, kind, kind)
        for word in ("", "NOT "):
            between = f"({{0}} {word}BETWEEN {{1}} AND {{2}})"
            yield Rule(f"{word}BETWEEN ({name})", K.BOOLEAN, triple, between, is_row)
            symmetric = f"({{0}} {word}BETWEEN SYMMETRIC {{1}} AND {{2}})"
            yield Rule(f"{word}BETWEEN SYMMETRIC ({name})", K.BOOLEAN, triple, symmetric, is_row)
            one_of = f"({{0}} {word}IN ({{1}}, {{2}}))"
            yield Rule(f"{word}IN ({name})", K.BOOLEAN, triple, one_of, is_row)
            yield Rule(
                f"IS {word}NULL ({name})", K.BOOLEAN, (kind,), f"({{0}} IS {word}NULL)", is_row
            )
        for sign, word in (("=", "ANY"), ("<>", "ALL"), ("<", "ANY"), (">=", "ALL")):
            array = f"({{0}} {sign} {word} (ARRAY[{{1}}, {{2}}]))"
            yield Rule(f"{sign} {word} (ARRAY of {name})", K.BOOLEAN, triple, array, is_row)
        row = "(({0}, {1}) = ({2}, {3}))"
        yield Rule(f"row = row ({name})", K.BOOLEAN, (kind, K.INTEGER, *pair[:1], K.INTEGER), row)
        row = "(({0}, {1}) < ({2}, {3}))"
        yield Rule(f"row < row ({name})", K.BOOLEAN, (kind, K.TEXT, kind, K.TEXT), row)
    row = "(({0}, {1}) IN (({2}, {3}), ({4}, {5})))"
    yield Rule("row IN (rows)", K.BOOLEAN, (K.INTEGER, K.TEXT) * 3, row)


def _logic() -> Iterator[Rule]:
    one, two = (K.BOOLEAN,), (K.BOOLEAN, K.BOOLEAN)
    yield Rule("AND", K.BOOLEAN, two, "({0} AND {1})", True)
    yield Rule("OR", K.BOOLEAN, two, "({0} OR {1})", True)
    yield Rule("NOT", K.BOOLEAN, one, "(NOT {0})", True)
    for what, word in product(("TRUE", "FALSE", "UNKNOWN"), ("", "NOT ")):
        yield Rule(f"IS {word}{what}", K.BOOLEAN, one, f"({{0}} IS {word}{what})")


_PATTERNS = Choice(
    ("'a%'", "'%b%'", "'_'", "'%'", "''", "'A_'", "'%é'", "'a\\_b%'", "'%\\%'", "'__%'")
)


def _texts() -> Iterator[Rule]:
    for operator, word in product(("LIKE", "ILIKE"), ("", "NOT ")):
        test = f"({{0}} {word}{operator} {{1}})"
        yield Rule(f"{word}{operator}", K.BOOLEAN, (K.TEXT, _PATTERNS), test)
        patterns = Choice(("'a!%'", "'!_%'", "'%!!'", "'ab'"))
        escaped = f"({{0}} {word}{operator} {{1}} ESCAPE '!')"
        yield Rule(f"{word}{operator} ESCAPE", K.BOOLEAN, (K.TEXT, patterns), escaped)
        computed = f"({{0}} {word}{operator} {{1}} || '%')"
        yield Rule(f"{word}{operator} computed", K.BOOLEAN, (K.TEXT, K.TEXT), computed)
    for kind in KINDS:
        if kind is not K.BYTEA:
            yield Rule(f"text || {NAMES[kind]}", K.TEXT, (K.TEXT, kind), "({0} || {1})")
        if kind not in (K.BYTEA, K.TEXT):
            yield Rule(f"{NAMES[kind]} || text", K.TEXT, (kind, K.TEXT), "({0} || {1})")
    yield Rule("bytea || bytea", K.BYTEA, (K.BYTEA, K.BYTEA), "({0} || {1})")


def _choices() -> Iterator[Rule]:
    for kind in KINDS:
        name, two, three = NAMES[kind], (kind, kind), (kind, kind, kind)
        case = "CASE WHEN {0} THEN {1} ELSE {2} END"
        yield Rule(f"CASE ({name})", kind, (K.BOOLEAN, kind, kind), case)
        case = "CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END"
        yield Rule(f"CASE without ELSE ({name})", kind, (K.BOOLEAN, kind) * 2, case)
        case = "CASE {0} WHEN {1} THEN 1 WHEN {2} THEN 2 ELSE 3 END"
        yield Rule(f"CASE of ({name})", K.INTEGER, three, case)
        yield Rule(f"coalesce({name})", kind, two, "coalesce({0}, {1})")
        yield Rule(f"nullif({name})", kind, two, "nullif({0}, {1})")
        for word in ("greatest", "least"):
            yield Rule(f"{word}({name})", kind, three, f"{word}({{0}}, {{1}}, {{2}})")
        yield Rule(f"concat({name})", K.TEXT, (K.TEXT, kind), "concat({0}, {1}, 'z')")
        yield Rule(f"concat_ws({name})", K.TEXT, (kind, kind), "concat_ws('-', {0}, {1})")
        yield Rule(f"pg_typeof({name})", K.TEXT, (kind,), "pg_typeof({0})::text", False, False)
    for left, right in _comparable():
        if left is not right:
            wider = _wider(left, right) if left in NUMERIC_KINDS else K.TIMESTAMPTZ
            if K.TIMESTAMPTZ not in (left, right) and left not in NUMERIC_KINDS:
                wider = K.TIMESTAMP
            names = f"{NAMES[left]}, {NAMES[right]}"
            yield Rule(f"coalesce({names})", wider, (left, right), "coalesce({0}, {1})")
            yield Rule(f"nullif({names})", left, (left, right), "nullif({0}, {1})")
            yield Rule(f"greatest({names})", wider, (left, right), "greatest({0}, {1})")
            case = "CASE WHEN {0} THEN {1} ELSE {2} END"
            yield Rule(f"CASE ({names})", wider, (K.BOOLEAN, left, right), case)


# --- casts ---------------------------------------------------------------------------------------


def _casts() -> Iterator[Rule]:
    for source, target in product(KINDS, repeat=2):
        names = DECIMAL_TYPES if target is K.DECIMAL else (NAMES[target],)
        is_row = any(
            {source, target} <= {*group}
            for group in (
                (*_WHOLE, *FLOAT_KINDS),
                MOMENT_KINDS,
            )
        )
        label = f"CAST({NAMES[source]} AS {NAMES[target]})"
        texts = Choice(names)
        yield Rule(label, target, (source, texts), "CAST({0} AS {1})", is_row)
    for source in KINDS:
        label = f"CAST({NAMES[source]} AS varchar)"
        yield Rule(label, K.TEXT, (source, Choice(("3", "1", "20"))), "({0})::varchar({1})")


_NUMBER_TEXTS = (
    " 12 ",
    "+7",
    "-0",
    "12.0",
    "",
    "1e3",
    ".5",
    "5.",
    ".",
    "1e400",
    "-1e-400",
    "inf",
    "-Infinity",
    " nan ",
    "1 2",
    "--1",
    "+",
    "1e",
    "2147483648",
    "1,5",
    "9223372036854775808",
    "-9223372036854775808",
    "0.5",
    "1.5",
    "2.5",
    "-2.5",
    "99999.995",
    "0000012",
    "1e-3",
    "12e2",
    "١",
    "3\t",
    "0.000004",
    "0.000005",
)
_DAY_TEXTS = (
    " 2024-02-29 ",
    "2024-2-9",
    "2024-02-30",
    "2024-13-01",
    "2023-02-29",
    "",
    "x",
    "2024-02",
    "0001-01-01",
    "9999-12-31",
    "0000-01-01",
    "2024-02-29x",
    "1900-02-29",
)
_CLOCK_TEXTS = (
    "2024-02-29T12:34",
    "2024-02-29 12:34:56.123456",
    "2024-02-29 23:59:59.999999",
    "2024-02-29 24:00:01",
    "2024-02-29 12:60",
    "2024-02-29 1:02:03",
    "2024-02-29 12",
)
_READABLE: dict[Kind, tuple[str, ...]] = {
    K.BOOLEAN: (
        "yes",
        " TRUE ",
        "tru",
        "2",
        "",
        "of",
        "o",
        "N",
        "1",
        "0",
        "oN",
        "t ",
    ),
    **dict.fromkeys(NUMERIC_KINDS, _NUMBER_TEXTS),
    K.TEXT: ("a", "", " é "),
    K.BYTEA: (r"\x00FF", r"\x0", r"\xzz", "abc", "é", r"\x", "", r"\\x61"),
    K.DATE: _DAY_TEXTS,
    K.TIMESTAMP: (*_DAY_TEXTS, *_CLOCK_TEXTS),
    K.TIMESTAMPTZ: (
        *_DAY_TEXTS,
        *_CLOCK_TEXTS,
        "2024-02-29 12:34+02",
        "2024-02-29 12:34:56-05:30",
        "2024-02-29 12:34Z",
        "2024-02-29 12:34 UTC",
        "2024-02-29 12:34+15:59",
        "2024-02-29 12:34+16",
        "2024-02-29 00:30+0130",
    ),
    K.INTERVAL: (
        "1 day",
        "-1 day",
        "1 year 2 mons 3 days 04:05:06.789",
        "1 week",
        "90 minutes",
        "1.5 hours",
        "01:02",
        "-01:02:03",
        "1 day -01:02",
        "5",
        "1.5",
        "",
        "x",
        "1 foo",
        "3 days ago",
        "2 hrs 3 mins 4 secs",
        "-1 mons +2 days",
        "100 ms",
        "7 us",
        "1 d 2 h",
        "1 years",
        "1 day 2 days",
        "  2 days  ",
        "1day",
        "0.000001 s",
        "25:00",
        "1:60",
    ),
}
"""Texts that a type may be read from, or nearly."""


def _readings() -> Iterator[Rule]:
    for kind, texts in _READABLE.items():
        name = NAMES[kind]
        names = DECIMAL_TYPES if kind is K.DECIMAL else (name,)
        arguments = (Choice(tuple(map(quoted, texts))), Choice(names))
        yield Rule(f"{name} of a constant text", kind, arguments, "CAST({0} AS {1})")
        computed = "CAST(concat({0}) AS {1})"
        yield Rule(f"{name} of a computed text", kind, arguments, computed)


# --- functions -----------------------------------------------------------------------------------

_KINDS_OF: dict[str, tuple[Kind, ...]] = {
    "int4": (K.INTEGER,), "int8": (K.BIGINT,), "integer": _WHOLE, "decimal": (K.DECIMAL,),
    "real": (K.REAL,), "double": NUMERIC_KINDS, "text": (K.TEXT,), "bytea": (K.BYTEA,),
    "timestamp": (K.TIMESTAMP, K.DATE), "interval": (K.INTERVAL,),
}  # fmt: skip
_SAMPLE_TYPES = {kind: SqlType(kind) for kind in KINDS} | {K.DECIMAL: decimal_type(12, 4)}
_COUNTS = Choice(("0", "1", "2", "3", "5", "-1", "-2", "20"))
_ARGUMENTS: dict[tuple[str, int], Choice] = {
    ("left", 1): _COUNTS, ("right", 1): _COUNTS, ("substring", 1): _COUNTS,
    ("substring", 2): _COUNTS, ("lpad", 1): _COUNTS, ("rpad", 1): _COUNTS, ("repeat", 1): _COUNTS,
    ("split_part", 2): Choice(("1", "2", "-1", "0", "3")),
    ("chr", 0): Choice(("65", "233", "0", "-1", "1114112", "128512", "55296", "10")),
    ("make_date", 0): Choice(("2024", "1", "9999", "0", "1900")),
    ("make_date", 1): Choice(("2", "12", "13", "0", "1")),
    ("make_date", 2): Choice(("29", "31", "1", "0", "28")),
    ("make_timestamp", 0): Choice(("2024", "1", "9999", "1969")),
    ("make_timestamp", 1): Choice(("2", "12", "13", "1")),
    ("make_timestamp", 2): Choice(("29", "31", "1", "28")),
    ("make_timestamp", 3): Choice(("0", "23", "24", "12")),
    ("make_timestamp", 4): Choice(("0", "59", "60", "30")),
    ("make_timestamp", 5): Choice(("0", "59.999999", "1.5", "30.25::float8", "-1")),
    ("encode", 1): Choice(("'hex'", "'HEX'")), ("decode", 1): Choice(("'hex'",)),
    ("decode", 0): Choice(("'00ff'", "'6'", "' 61 62'", "'zz'", "''")),
    ("power", 1): Choice(("2", "0", "-1", "0.5", "3", "'NaN'::float8", "1000")),
    ("exp", 0): Choice(("0", "1", "-1", "700", "-800", "1.5", "'NaN'::float8", "2.5::float8")),
    ("asin", 0): Choice(("0", "1", "-1", "0.5", "2", "0.25::float8", "1::bigint")),
    ("acos", 0): Choice(("0", "1", "-1", "0.5", "-1.5", "0.25::float8", "1::bigint")),
}  # fmt: skip
"""Arguments for which values of the whole type would mostly be errors, or huge."""


_OF_DECIMALS = frozenset(("sqrt", "exp", "ln", "log", "log10", "power"))
_OF_INTEGERS = frozenset(
    ("substring", "left", "right", "lpad", "rpad", "repeat", "split_part", "chr", "make_date",
     "make_timestamp")
)  # fmt: skip


def _functions() -> Iterator[Rule]:
    names = {name: name for name in FUNCTIONS} | BY_SPELLING
    names |= {"log10": "log10", "trim": "btrim"}
    for written, name in names.items():
        if name in ("random", "pi"):
            continue
        seen: set[tuple[Kind, ...]] = set()
        for function in FUNCTIONS[name]:
            for kinds in _argument_kinds(function.parameters):
                found = resolve(name, [_SAMPLE_TYPES[kind] for kind in kinds])
                if found is None or kinds in seen:
                    continue
                seen.add(kinds)
                result = found.result_type([_SAMPLE_TYPES[kind] for kind in kinds]).kind
                yield _call(written, name, kinds, result)
    yield Rule("pi()", K.DOUBLE, (), "pi()")
    yield Rule("random()", K.BOOLEAN, (), "(random() BETWEEN 0 AND 0.9999999999999999)")


def _argument_kinds(parameters: tuple[str, ...]) -> list[tuple[Kind, ...]]:
    """Return the kinds of arguments: of several that are all taken, one at a time is another."""
    choices = [_KINDS_OF[parameter] for parameter in parameters]
    first = tuple(kinds[0] for kinds in choices)
    found = [first]
    for place, kinds in enumerate(choices):
        found += [(*first[:place], kind, *first[place + 1 :]) for kind in kinds[1:]]
    return found


def _call(written: str, name: str, kinds: tuple[Kind, ...], result: Kind) -> Rule:
    arguments: list[Argument] = []
    for place, kind in enumerate(kinds):
        special = _ARGUMENTS.get((name, place))
        if special is not None and kind not in (K.INTEGER, K.TEXT):
            texts = tuple(
                text if "::" in text else f"CAST({text} AS {NAMES[kind]})"
                for text in special.texts
                if kind is not K.BIGINT or "." not in text
            )
            special = Choice(texts)
        arguments.append(special or kind)
    places = ", ".join(f"{{{place}}}" for place in range(len(kinds)))
    # PostgreSQL has them for numeric, and takes no bigint for an integer.
    is_rare = name in _OF_DECIMALS and K.DECIMAL in kinds and not {*FLOAT_KINDS} & {*kinds}
    is_rare |= name in _OF_INTEGERS and K.BIGINT in kinds
    label, text = f"{written}({_names(kinds)})", f"{written}({places})"
    return Rule(label, result, tuple(arguments), text, is_rare=is_rare)


_DIGITS = Choice(("0", "1", "2", "-1", "4", "6"))


def _specials() -> Iterator[Rule]:
    """The functions with rules of their own: functions.SPECIAL."""
    two_texts = (K.TEXT, K.TEXT)
    yield Rule("position(text IN text)", K.INTEGER, two_texts, "position({0} IN {1})")
    for side in ("BOTH", "LEADING", "TRAILING"):
        characters = Choice(("'a'", "'a '", "'%x'", "''"))
        trim = f"trim({side} {{1}} FROM {{0}})"
        yield Rule(f"trim({side} FROM)", K.TEXT, (K.TEXT, characters), trim)
        yield Rule(f"trim({side})", K.TEXT, (K.TEXT,), f"trim({side} FROM {{0}})")
    for name in ("btrim", "ltrim", "rtrim", "trim"):
        yield Rule(f"{name}(text)", K.TEXT, (K.TEXT,), f"{name}({{0}})")
    for name in ("lpad", "rpad"):
        yield Rule(f"{name}(text, integer)", K.TEXT, (K.TEXT, _COUNTS), f"{name}({{0}}, {{1}})")
    for left, right in product((*INTEGER_KINDS, K.DECIMAL), repeat=2):
        label, pair = f"mod({_names((left, right))})", (left, right)
        yield Rule(label, _wider(left, right), pair, "mod({0}, {1})")
    for name in ("round", "trunc"):
        for kind in (K.DECIMAL, *INTEGER_KINDS):
            label = f"{name}({NAMES[kind]}, n)"
            yield Rule(label, K.DECIMAL, (kind, _DIGITS), f"{name}({{0}}, {{1}})")
    for text in ("now() = current_timestamp", "localtimestamp = now() AT TIME ZONE 'UTC'",
                 "current_date = now()::date"):  # fmt: skip
        yield Rule(f"{text}", K.BOOLEAN, (), f"({text})")
    for kind in (*MOMENT_KINDS, K.INTERVAL):
        units = INTERVAL_TRUNCS if kind is K.INTERVAL else TRUNC_UNITS
        result = K.TIMESTAMPTZ if kind is K.DATE else kind
        for unit in units:
            label = f"date_trunc('{unit}', {NAMES[kind]})"
            yield Rule(label, result, (kind,), f"date_trunc('{unit}', {{0}})")
        fields = INTERVAL_FIELDS if kind is K.INTERVAL else EXTRACT_FIELDS
        clock = ("hour", "minute", "second", "milliseconds", "microseconds")
        for field in fields:
            if kind is not K.DATE or field not in clock:
                label = f"extract({field} FROM {NAMES[kind]})"
                yield Rule(label, K.DECIMAL, (kind,), f"extract({field} FROM {{0}})")
        label = f"date_part({NAMES[kind]})"
        yield Rule(label, K.DECIMAL, (Choice(("'year'", "'month'", "'day'", "'epoch'")), kind),
                   "date_part({0}, {1})")  # fmt: skip


# --- subqueries ----------------------------------------------------------------------------------

_QUERY = "SELECT o.{column} FROM w AS o WHERE o.id < 6"
_CORRELATED = "SELECT o.{column} FROM w AS o WHERE o.i <= {{1}}"
_COLUMN_OF = {
    K.BOOLEAN: "b", K.SMALLINT: "h", K.INTEGER: "i", K.BIGINT: "l", K.REAL: "f", K.DOUBLE: "d",
    K.DECIMAL: "n", K.TEXT: "s", K.BYTEA: "y", K.DATE: "a", K.TIMESTAMP: "p", K.TIMESTAMPTZ: "z",
}  # fmt: skip


SUBQUERY = "(query of "
"""How labels of scalar subqueries begin."""


def _subqueries() -> Iterator[Rule]:
    for kind, column in _COLUMN_OF.items():
        name = NAMES[kind]
        for what, arguments, text in (
            ("query", (kind,), _QUERY), ("correlated query", (kind, K.INTEGER), _CORRELATED)
        ):  # fmt: skip
            query = text.format(column=column)
            for word in ("", "NOT "):
                test = f"({{0}} {word}IN ({query}))"
                yield Rule(f"{word}IN ({what} of {name})", K.BOOLEAN, arguments, test, False, False)
            for word in ("", "NOT "):
                row = query.replace("SELECT ", "SELECT o.id, ", 1)
                test = f"(({{1}} % 4, {{0}}) {word}IN ({row}))"
                label = f"(integer, {name}) {word}IN ({what})"
                yield Rule(label, K.BOOLEAN, (kind, K.INTEGER), test, False, False)
            for test in ("= ANY", "<> ANY", "< ALL", ">= ANY", "<> ALL"):
                label, whole = f"{test} ({what} of {name})", f"({{0}} {test} ({query}))"
                yield Rule(label, K.BOOLEAN, arguments, whole, False, False)
        scalar = f"(SELECT o.{column} FROM w AS o WHERE o.id = {{0}})"
        yield Rule(f"{SUBQUERY}{name})", kind, (K.INTEGER,), scalar, False, False)
        exists = f"EXISTS (SELECT 1 FROM w AS o WHERE o.{column} = {{0}})"
        yield Rule(f"EXISTS ({name})", K.BOOLEAN, (kind,), exists, False, False)
        for word in ("UNION", "UNION ALL", "INTERSECT", "EXCEPT"):
            two = f"(SELECT count(o.x) FROM (SELECT {{0}} AS x {word} SELECT {{1}}) AS o)"
            yield Rule(f"{word} ({name})", K.BIGINT, (kind, kind), two, False, False)
        first = (
            "(SELECT o.x FROM (VALUES ({0}), ({1})) AS o (x) ORDER BY x DESC NULLS LAST LIMIT 1)"
        )
        yield Rule(f"VALUES ({name})", kind, (kind, kind), first, False, False)
        lateral = "(SELECT o.x FROM (VALUES ({0})) AS v (y), LATERAL (SELECT v.y AS x) AS o)"
        yield Rule(f"LATERAL ({name})", kind, (kind,), lateral, False, False)
        last = (
            "(SELECT o.x FROM unnest(ARRAY[{0}, {1}]) WITH ORDINALITY AS o (x, n)"
            " ORDER BY n DESC LIMIT 1)"
        )
        yield Rule(f"unnest ({name})", kind, (kind, kind), last, False, False)
        if kind is not K.DECIMAL:  # whose scale grows
            for word in ("UNION", "UNION ALL"):
                recursive = (
                    f"(WITH RECURSIVE r (n, x) AS (SELECT 1, {{0}} {word} SELECT n + 1, {{1}}"
                    " FROM r WHERE n < 3) SELECT x FROM r ORDER BY n DESC LIMIT 1)"
                )
                label = f"WITH RECURSIVE {word} ({name})"
                yield Rule(label, kind, (kind, kind), recursive, False, False)
        sets = (
            f"(SELECT count(*) FROM (SELECT o.{column}, grouping(o.{column}) FROM w AS o"
            f" WHERE o.id < {{0}} GROUP BY CUBE (o.{column}, o.i)) AS o)"
        )
        yield Rule(f"CUBE ({name})", K.BIGINT, (K.INTEGER,), sets, False, False)
        count = f"(SELECT count(*) FROM w AS o WHERE o.{column} > {{0}})"
        yield Rule(f"(count of query by {name})", K.BIGINT, (kind,), count, False, False)


def _series() -> Iterator[Rule]:
    for kind in (K.INTEGER, K.BIGINT):
        text = (
            "(SELECT CAST(sum(o.x * o.n) AS bigint) FROM generate_series({0} % 20, {1} % 20,"
            " nullif({2} % 3, 0)) WITH ORDINALITY AS o (x, n))"
        )
        label = f"generate_series ({NAMES[kind]})"
        yield Rule(label, K.BIGINT, (kind, kind, K.INTEGER), text, False, False)
    text = (
        "(SELECT max(o.x) FROM generate_series({0}, {0} + interval '40 days', CASE WHEN {1} % 2 = 0"
        " THEN interval '1 month' ELSE interval '35 hours' END) AS o (x))"
    )
    yield Rule(
        "generate_series (timestamp)", K.TIMESTAMP, (K.TIMESTAMP, K.INTEGER), text, False, False
    )


_SCALAR_GROUPS: dict[str, tuple[Rule, ...]] = {
    "arithmetic": tuple(_arithmetic()),
    "moments and intervals": tuple(_of_moments()),
    "comparisons": tuple(_comparisons()),
    "logic": tuple(_logic()),
    "text operators": tuple(_texts()),
    "conditional": tuple(_choices()),
    "casts": tuple(_casts()),
    "texts that are read": tuple(_readings()),
    "functions": tuple(_functions()),
    "special functions": tuple(_specials()),
}
SCALARS: tuple[Rule, ...] = tuple(rule for rules in _SCALAR_GROUPS.values() for rule in rules)
SUBQUERIES: tuple[Rule, ...] = (*_subqueries(), *_series())


# --- aggregates and windows ----------------------------------------------------------------------


def _aggregates() -> Iterator[Rule]:
    yield Rule("count(*)", K.BIGINT, (), "count(*){tail}")
    for written in AGGREGATES:
        if written == "string_agg":
            continue
        if written in ("bool_and", "bool_or"):
            kinds = (K.BOOLEAN,)
        elif written == "count":
            kinds = KINDS
        elif written in ("min", "max"):
            kinds = tuple(kind for kind in KINDS if kind not in (K.BOOLEAN, K.BYTEA))
        else:
            kinds = NUMERIC_KINDS
            kinds += (K.INTERVAL,) if written in ("sum", "avg") else ()
        for kind, word in product(kinds, ("", "DISTINCT ")):
            label = f"{written}({word}{NAMES[kind]})"
            result = kind if written in ("min", "max", "sum", "bool_and", "bool_or") else K.DOUBLE
            if written == "count" or (written == "sum" and kind in INTEGER_KINDS[:2]):
                result = K.BIGINT
            elif written == "avg":
                result = kind if kind in (K.DOUBLE, K.INTERVAL) else K.DECIMAL
                result = K.DOUBLE if kind is K.REAL else result
            # PostgreSQL's are numeric, of as many digits as the values tell.
            is_rare = kind not in FLOAT_KINDS and result in (K.DOUBLE, K.DECIMAL)
            is_rare &= written not in ("min", "max", "sum")
            text = f"{written}({word}{{0}}){{tail}}"
            yield Rule(label, result, (kind,), text, is_rare=is_rare)
    text = "string_agg({0}, {1} ORDER BY q.id){tail}"
    yield Rule("string_agg(text)", K.TEXT, (K.TEXT, Choice(("','", "''", "NULL"))), text)
    text = "string_agg({0}, ',' ORDER BY {1} DESC NULLS LAST, q.id){tail}"
    yield Rule("string_agg(text ORDER BY)", K.TEXT, (K.TEXT, K.INTEGER), text)
    text = "string_agg(DISTINCT {0}, ',' ORDER BY {0}){tail}"
    yield Rule("string_agg(DISTINCT text)", K.TEXT, (Choice(("q.s", "q.t", "upper(q.s)")),), text)


AGGREGATE_RULES: tuple[Rule, ...] = tuple(_aggregates())


def _windows() -> Iterator[Rule]:
    for rule in AGGREGATE_RULES:
        if "DISTINCT" not in rule.label and "string_agg" not in rule.label:
            yield rule._replace(label=f"{rule.label} OVER")
    for name, sql_type in RANKINGS.items():
        yield Rule(f"{name}() OVER", sql_type.kind, (), f"{name}(){{tail}}")
    yield Rule("ntile() OVER", K.INTEGER, (Choice(("1", "3", "20")),), "ntile({0}){tail}")
    for kind in KINDS:
        for name in ("first_value", "last_value"):
            yield Rule(f"{name}({NAMES[kind]}) OVER", kind, (kind,), f"{name}({{0}}){{tail}}")
        for name in ("lag", "lead"):
            yield Rule(f"{name}({NAMES[kind]}) OVER", kind, (kind,), f"{name}({{0}}){{tail}}")
            label, text = f"{name}({NAMES[kind]}, n, default) OVER", f"{name}({{0}}, {{1}}, {{2}})"
            yield Rule(label, kind, (kind, Choice(("1", "2", "0")), kind), f"{text}{{tail}}")
        arguments = (kind, Choice(("1", "2", "5")))
        label = f"nth_value({NAMES[kind]}) OVER"
        yield Rule(label, kind, arguments, "nth_value({0}, {1}){tail}")


WINDOW_RULES: tuple[Rule, ...] = tuple(_windows())
GROUPS: dict[str, tuple[Rule, ...]] = {
    **_SCALAR_GROUPS,
    "subqueries": SUBQUERIES,
    "aggregates": AGGREGATE_RULES,
    "windows": WINDOW_RULES,
}
