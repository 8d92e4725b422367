"""Types of herdpy and of Spark, one into the other; the table of docs/guides/spark.md.

Arrow is between them: herdpy's results have just the Arrow types that Spark expects of these.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import types as spark

from pyspark_herdpy.options import known_name, near, wrong

Column = tuple[str, spark.DataType]

_BY_CODE: dict[str, spark.DataType] = {
    "BOOLEAN": spark.BooleanType(),
    "SMALLINT": spark.ShortType(),
    "INTEGER": spark.IntegerType(),
    "BIGINT": spark.LongType(),
    "REAL": spark.FloatType(),
    "DOUBLE": spark.DoubleType(),
    "TEXT": spark.StringType(),
    "UNKNOWN": spark.StringType(),
    "BYTEA": spark.BinaryType(),
    "DATE": spark.DateType(),
    "TIMESTAMP": spark.TimestampNTZType(),
    "TIMESTAMPTZ": spark.TimestampType(),
}
_SQL: dict[type[spark.DataType], Callable[[Any], str]] = {
    spark.BooleanType: lambda _: "BOOLEAN",
    spark.ByteType: lambda _: "SMALLINT",
    spark.ShortType: lambda _: "SMALLINT",
    spark.IntegerType: lambda _: "INTEGER",
    spark.LongType: lambda _: "BIGINT",
    spark.FloatType: lambda _: "REAL",
    spark.DoubleType: lambda _: "DOUBLE PRECISION",
    spark.DecimalType: lambda kind: f"NUMERIC({kind.precision},{kind.scale})",
    spark.StringType: lambda _: "TEXT",
    spark.CharType: lambda kind: f"VARCHAR({kind.length})",
    spark.VarcharType: lambda kind: f"VARCHAR({kind.length})",
    spark.BinaryType: lambda _: "BYTEA",
    spark.DateType: lambda _: "DATE",
    spark.TimestampNTZType: lambda _: "TIMESTAMP",
    spark.TimestampType: lambda _: "TIMESTAMPTZ",
}
_NUMBERS = {"SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"}
_LOCAL = {"DATE", "TIMESTAMP"}
"""Without a time zone; to and from TIMESTAMPTZ it takes one, and Spark's is not herdpy's."""
_CASTS = {"DATE": "date", "TIMESTAMP": "timestamp_ntz", "TIMESTAMPTZ": "timestamp"}


def spark_columns(description: Sequence[Sequence[Any]]) -> list[Column]:
    """Return names and Spark's types of a result; 0A000 for what Spark cannot hold."""
    return [(item[0], _spark_type(item)) for item in description]


def _spark_type(item: Sequence[Any]) -> spark.DataType:
    name, code, _, _, precision, scale, _ = item
    if code == "DECIMAL":
        return spark.DecimalType(precision or 38, scale or 0)
    found = _BY_CODE.get(code)
    if found is None:
        raise wrong(
            f'column "{name}" is of type {code.lower()}, which Spark cannot hold',
            'Leave it out by the option "columns", or cast it in a "query".',
            "0A000",
        )
    return found


def sql_type(name: str | None, kind: spark.DataType) -> str:
    """Return the SQL type for a column of Spark, or for no column's type; 0A000: there is none."""
    make = _SQL.get(type(kind))
    if make is None:
        where = "" if name is None else f'column "{name}": '
        raise wrong(
            f"{where}Spark's type {kind.simpleString()} has no counterpart in herdpy",
            "Turn it into columns of simple types, or into a string by to_json().",
            "0A000",
        )
    return make(kind)


def check_written(name: str, kind: spark.DataType, code: str) -> None:
    """Raise 42804 when a column of Spark does not go into a column of the kind `code`."""
    if isinstance(kind, spark.NullType):
        return
    given = sql_type(name, kind).split("(")[0].replace("DOUBLE PRECISION", "DOUBLE")
    given = {"NUMERIC": "DECIMAL", "VARCHAR": "TEXT"}.get(given, given)
    if {given, code} <= _CASTS.keys() and (given in _LOCAL) is not (code in _LOCAL):
        raise wrong(
            f'column "{name}" of the table is of type {code.lower()}, the DataFrame has'
            f" {kind.simpleString()}: one of them has a time zone",
            "Cast it in Spark, by its session's time zone:"
            f' df.withColumn("{name}", col("{name}").cast("{_CASTS[code]}")).',
            "42804",
        )
    fits = given == code or any({given, code} <= group for group in (_NUMBERS, _LOCAL))
    if not fits:
        raise wrong(
            f'column "{name}" of the table is of type {code.lower()}, the DataFrame has'
            f" {kind.simpleString()}",
            f'Cast it: df.withColumn("{name}", col("{name}").cast(…)).',
            "42804",
        )


def chosen(columns: Sequence[Column], schema: spark.StructType, what: str) -> list[str]:
    """Return the names that a schema given by the program selects; 42703, 42804."""
    known = dict(columns)
    names: list[str] = []
    for item in schema.fields:
        name = known_name(item.name, known)
        if name is None:
            raise wrong(
                f'{what} has no column "{item.name}"', near(item.name, list(known)), "42703"
            )
        kind = known[name]
        if kind != item.dataType:
            raise wrong(
                f'column "{name}" of {what} is {kind.simpleString()} in Spark, the schema says'
                f" {item.dataType.simpleString()}",
                "Give it that type, or no schema, and cast in Spark.",
                "42804",
            )
        names.append(name)
    return names
