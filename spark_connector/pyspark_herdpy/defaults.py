"""Columns' defaults as Spark knows them, for INSERT INTO a view that names some columns only.

Spark completes such rows itself, before the source is asked, with what the schema's metadata says,
and else with NULL.
"""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark

if TYPE_CHECKING:
    from herdpy.driver.defaults import ColumnDefault

KEY = "CURRENT_DEFAULT"
"""Spark's name of it: the text of a constant expression."""
_NOW_IN_UTC = "to_utc_timestamp(current_timestamp(), current_timezone())"
_NOW: dict[type[spark.DataType], str] = {
    spark.TimestampType: "current_timestamp()",
    spark.TimestampNTZType: f"CAST({_NOW_IN_UTC} AS TIMESTAMP_NTZ)",
    spark.DateType: f"CAST({_NOW_IN_UTC} AS DATE)",
}


def with_default(field: spark.StructField, default: "ColumnDefault | None") -> spark.StructField:
    """Return a column of a schema that says its default; as it is, if it has none."""
    if default is None:
        return field
    text = _NOW.get(type(field.dataType)) if default.is_now else _literal(default.value)
    if text is None:
        return field
    return spark.StructField(field.name, field.dataType, field.nullable, {KEY: text})


def _literal(value: Any) -> str | None:
    make = _LITERALS.get(type(value))
    return None if make is None else make(value)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _moment(value: datetime.datetime) -> str:
    kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
    return f"{kind} '{value.isoformat(' ')}'"


_LITERALS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: str(value).upper(),
    int: str,
    float: lambda value: f"double('{value!r}')",
    Decimal: lambda value: f"{value:f}BD",
    str: _text,
    bytes: lambda value: f"X'{value.hex()}'",
    datetime.date: lambda value: f"DATE '{value.isoformat()}'",
    datetime.datetime: _moment,
}
