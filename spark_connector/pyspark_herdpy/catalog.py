"""What the connector asks about tables: their names, columns and types, by SQL alone."""

from typing import TYPE_CHECKING

import herdpy
from pyspark_herdpy.options import Options, known_name, near, wrong
from pyspark_herdpy.types import Column, spark_columns

if TYPE_CHECKING:
    from herdpy.driver.defaults import ColumnDefault


def quoted(name: str) -> str:
    """Return a name as SQL text that means just it."""
    return '"' + name.replace('"', '""') + '"'


def find_table(connection: herdpy.Connection, given: str) -> str | None:
    """Return a table's name as the catalog has it, None when there is none."""
    names = {row[0] for row in connection.execute("SHOW TABLES").fetchall()}
    return next((name for name in (given, given.lower()) if name in names), None)


def table_name(connection: herdpy.Connection, given: str) -> str:
    """Return a table's name as the catalog has it; 42P01 when there is none."""
    found = find_table(connection, given)
    if found is None:
        names = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        raise wrong(f'table "{given}" does not exist', near(given, names), "42P01")
    return found


def columns_of(connection: herdpy.Connection, table: str) -> list[Column]:
    """Return all columns of a table that there is."""
    cursor = connection.execute(f"SELECT * FROM {quoted(table)} LIMIT 0")  # noqa: S608 - quoted
    return spark_columns(cursor.description or ())


def defaults_of(connection: herdpy.Connection, given: str) -> "dict[str, ColumnDefault]":
    """Return the defaults of a table's columns by name; {}: the user may do nothing with it."""
    found = find_table(connection, given)
    return {} if found is None else connection.column_defaults(found)


def result_columns(connection: herdpy.Connection, options: Options) -> list[Column]:
    """Return what a DataFrame of these options has; 42P01, 42703, 0A000."""
    if options.query is not None:
        # On a line of its own: the query may end with a comment.
        text = f"SELECT * FROM (\n{options.query}\n) AS q LIMIT 0"  # noqa: S608 - the user's own
        found = spark_columns(connection.execute(text).description or ())
        names = [name for name, _ in found]
        if twice := [name for name in names if names.count(name) > 1]:
            raise wrong(
                f'the query has column "{twice[0]}" twice', "Name each: id AS first_id.", "42702"
            )
        return found
    table = table_name(connection, options.table or "")
    if options.columns is None:
        return columns_of(connection, table)
    cursor = connection.execute(f"SELECT * FROM {quoted(table)} LIMIT 0")  # noqa: S608 - quoted
    described = {item[0]: item for item in cursor.description or ()}
    items = []
    for given in options.columns:
        name = known_name(given, described)
        if name is None:
            hint = near(given, list(described))
            raise wrong(f'table "{table}" has no column "{given}"', hint, "42703")
        if described[name] in items:
            raise wrong(f'option "columns" names column "{name}" twice', None, "42701")
        items.append(described[name])
    return spark_columns(items)
