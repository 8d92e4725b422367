"""Types of herdpy and of Spark for programs: what the connector does by itself, in their hands.

Shown to users as herdpy.spark. Needs no session and no server.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from pyspark_herdpy import types
from pyspark_herdpy.catalog import quoted
from pyspark_herdpy.options import known_name, near, wrong


def sql_type(kind: DataType) -> str:
    """Return the SQL type for values of a type of Spark: "NUMERIC(10,2)"; 0A000: there is none."""
    return types.sql_type(None, kind)


def spark_schema(description: Sequence[Sequence[Any]]) -> StructType:
    """Return the schema of a result by its Cursor.description; 0A000: Spark cannot hold it."""
    return StructType([StructField(*column) for column in types.spark_columns(description)])


def create_table(table: str, schema: StructType, key_columns: Sequence[str] = ()) -> str:
    """Return the CREATE TABLE IF NOT EXISTS that the option createTable runs; 0A000, 42703."""
    keys: list[str] = []
    for given in key_columns:
        key = known_name(given, schema.names)
        if key is None:
            raise wrong(
                f'the DataFrame has no column "{given}"', near(given, schema.names), "42703"
            )
        keys.append(key)
    parts = [
        f"{quoted(item.name)} {types.sql_type(item.name, item.dataType)}" for item in schema.fields
    ]
    if keys:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    return f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({', '.join(parts)})"
