"""Text to a bound statement: scan, read, bind."""

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from herdpy.errors import Error, InternalError, ProgrammingError
from herdpy.limits import decimal_precision_max
from herdpy.model.types import (
    BIGINT,
    BIGINT_MAX,
    BIGINT_MIN,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    SqlType,
    decimal_type,
)
from herdpy.sql import tree
from herdpy.sql.bind import BINDERS, bind_statement
from herdpy.sql.definitions.alter import bind_alter
from herdpy.sql.plan import Compiled, Parameters, Slot
from herdpy.sql.reading import syntax
from herdpy.sql.reading.extent import too_deep
from herdpy.sql.reading.reader import read
from herdpy.sql.reading.tokens import PLACEHOLDER_HINT, Scanned, scan
from herdpy.sql.roles import read_access_statement
from herdpy.sql.scope import Catalog, StatementContext
from herdpy.sql.statements import read_statement
from herdpy.sql.tablespaces import read_tablespace_statement

__all__ = ["Compiled", "Slot", "compile_sql", "parameter_kinds", "parameter_types"]

_TYPES: dict[type, SqlType] = {
    bool: BOOLEAN, float: DOUBLE, str: UNKNOWN, type(None): UNKNOWN, bytes: BYTEA,
    bytearray: BYTEA, memoryview: BYTEA, datetime.datetime: TIMESTAMP, datetime.date: DATE,
    datetime.timedelta: INTERVAL,
}  # fmt: skip

BINDERS[syntax.Alter] = bind_alter

_statement_shown_max = 500  # characters, in the message of an internal error

# Classes whose values all have one type, and int, whose size must be looked at; neither Decimal
# nor datetime, which is of one type with a time zone and of another without.
_SIMPLE_OR_INT = frozenset({*_TYPES, int}) - {datetime.datetime}


def compile_sql(
    text: str,
    catalog: Catalog,
    parameters: Parameters,
    check_interrupt: Callable[[], object] = lambda: None,
) -> Compiled:
    """Return the bound statement of text.

    The values of parameters are looked at for types only, and for digits of texts beside DECIMALs.
    check_interrupt is called every some hundred tokens, nodes and expressions.

    The result holds for every parameters with equal parameter_types whose texts fit its `numbers`,
    and a catalog of the same version. 07001 when parameters do not match the placeholders.
    """
    types = dict(parameter_types(parameters))
    try:
        scanned = scan(text, check_interrupt)
        _check_parameters(scanned, types, isinstance(parameters, Mapping))
        access = read_access_statement(scanned)
        if access is not None:
            return Compiled(*access)
        tablespace = read_tablespace_statement(scanned)
        if tablespace is not None:
            return Compiled(tablespace, ())
        found = read_statement(scanned)
        if isinstance(found, tree.Statement):
            return Compiled(found, ())
        node = read(found.rest, check_interrupt)
        values: Any = parameters
        context = StatementContext(
            scanned, catalog, types, check_interrupt, lambda source: values[source]
        )
        statement = bind_statement(node, context)
        check_interrupt()
    except (Error, MemoryError):
        raise
    except RecursionError as error:
        raise too_deep() from error
    except Exception as error:
        raise InternalError(
            f"{type(error).__name__} while reading the statement: {error}. This is a bug in "
            f"herdpy; please report it with the statement: {text[:_statement_shown_max]}",
            sqlstate="XX000",
        ) from error
    if found.is_explain:
        statement = tree.Explain(statement, found.is_analyze)
    return Compiled(statement, context.slots, context.numbers)


def parameter_types(parameters: Parameters) -> tuple[tuple[int | str, SqlType], ...]:
    """Return (source, natural type) of each parameter; hashable, part of a plan cache's key.

    str and None are UNKNOWN: their type comes from the statement. 42804 for other classes.
    """
    if parameters is None:
        return ()
    if isinstance(parameters, Mapping):
        return tuple((name, _type_of(parameters[name], name)) for name in sorted(parameters))
    return tuple((index, _type_of(value, index)) for index, value in enumerate(parameters))


def parameter_kinds(parameters: Parameters) -> object:
    """Return something hashable that is equal only where parameter_types is; cheaper than it."""
    if not parameters:
        return None
    if isinstance(parameters, Mapping):
        return parameter_types(parameters)
    kinds = tuple(map(type, parameters))
    if not _SIMPLE_OR_INT.issuperset(kinds):
        return parameter_types(parameters)
    for value in parameters:
        if type(value) is int and not BIGINT_MIN <= value <= BIGINT_MAX:
            return parameter_types(parameters)
    return kinds


def _type_of(value: Any, source: int | str) -> SqlType:
    kind = type(value)
    if kind is int:
        return BIGINT if BIGINT_MIN <= value <= BIGINT_MAX else decimal_type(38, 0)
    known = _TYPES.get(kind)
    if known is TIMESTAMP and value.tzinfo is not None:
        return TIMESTAMPTZ
    if known is not None:
        return known
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        scale = -exponent if isinstance(exponent, int) and exponent < 0 else 0
        zeros = len(digits) - len(bytes(digits).rstrip(b"\0"))
        # Zeros at the end count only while there is room for them.
        scale -= max(min(zeros, scale, len(digits) - decimal_precision_max), 0)
        return decimal_type(decimal_precision_max, min(scale, decimal_precision_max))
    if hasattr(value, "dtype") and hasattr(value, "item"):  # a scalar of numpy
        plain = value.item()
        if type(plain) is not kind:  # numpy.longdouble has no class of Python
            return _type_of(plain, source)
    for base in (
        *(bool, int, float, str, bytes),
        *(datetime.datetime, datetime.date, datetime.timedelta),
    ):
        if isinstance(value, base):
            if base is datetime.datetime and getattr(value, "tzinfo", None) is not None:
                return TIMESTAMPTZ
            return BIGINT if base is int else _TYPES[base]
    name = source + 1 if isinstance(source, int) else f":{source}"
    raise ProgrammingError(
        f"parameter {name}: values of class {kind.__name__} are not supported",
        sqlstate="42804",
        hint="Pass bool, int, float, Decimal, str, bytes, date, datetime, timedelta or None.",
    )


def _check_parameters(
    scanned: Scanned, types: Mapping[int | str, SqlType], is_mapping: bool
) -> None:
    wanted = dict.fromkeys(scanned.placeholders)
    is_named = any(isinstance(source, str) for source in wanted)
    if types and wanted and is_named != is_mapping:
        raise ProgrammingError(
            f"the statement has {':name' if is_named else '?'} placeholders, "
            f"found a {'mapping' if is_mapping else 'sequence'} of parameters",
            sqlstate="07001",
        )
    if wanted.keys() == types.keys():
        return
    if is_named or is_mapping:
        missing = ", ".join(f":{name}" for name in wanted if name not in types)
        unknown = ", ".join(f":{name}" for name in types if name not in wanted)
        parts = (missing and f"missing {missing}", unknown and f"unknown {unknown}")
        raise ProgrammingError(
            f"parameters do not match: {'; '.join(part for part in parts if part)}",
            sqlstate="07001",
            hint=None if wanted else PLACEHOLDER_HINT,
        )
    raise ProgrammingError(
        f"the statement expects {len(wanted)} parameters, found {len(types)}",
        sqlstate="07001",
        hint=None if wanted else PLACEHOLDER_HINT,
    )
