"""What the connector asks about tables: their names, columns and types, by SQL alone.

As of a lease when a job reads at one: the table may have been dropped, or made anew, since.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import herdpy
from pyspark_herdpy.options import Options, known_name, near, wrong
from pyspark_herdpy.types import Column, spark_columns

if TYPE_CHECKING:
    from herdpy.driver.defaults import ColumnDefault

_NOT_ALLOWED = "42501"
_LEASE = re.compile("[0-9a-f]{32}")
_POSITION = re.compile(r"-?[0-9]{1,19}\.-?[0-9]{1,19}\.[0-9]{1,19}")


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


@contextmanager
def seen_at(connection: herdpy.Connection, lease: str | None) -> Generator[None]:
    """Let the statements of a block see what a lease keeps; 72000: it is gone. None: the newest."""
    if lease is None:
        yield
        return
    connection.execute("BEGIN")
    try:
        connection.execute(f"SET TRANSACTION SNAPSHOT '{lease}'")
        yield
    finally:
        connection.rollback()


def lease_at(connection: herdpy.Connection, snapshot: str) -> str | None:
    """Return the lease that keeps just this snapshot, by its id or position; None: none is known.

    22023: it is neither.
    """
    if _LEASE.fullmatch(snapshot):
        return snapshot
    if not _POSITION.fullmatch(snapshot):
        raise wrong(
            f'option "snapshot": expected a position or the id of a lease, found {snapshot!r}',
            "herdpy.spark.commit_position() and Connection.position tell positions, as in"
            " -3.17.0; Connection.lease() has an id.",
        )
    text = "SELECT lease FROM sysleases WHERE position = ? ORDER BY remaining_s DESC LIMIT 1"
    try:
        row = connection.execute(text, (snapshot,)).fetchone()
    except herdpy.Error as error:
        if error.sqlstate != _NOT_ALLOWED:
            raise
        return None  # only superusers see what others keep
    return None if row is None else str(row[0])


def result_columns(connection: herdpy.Connection, options: Options) -> list[Column]:
    """Return what a DataFrame of these options has; 42P01, 42703, 0A000; 72000, 22023: at what."""
    snapshot = options.snapshot
    with seen_at(connection, None if snapshot is None else lease_at(connection, snapshot)):
        return _result_columns(connection, options)


def _result_columns(connection: herdpy.Connection, options: Options) -> list[Column]:
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
