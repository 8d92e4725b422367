"""System tables: what the engine knows of itself, as tables that SELECT reads and nothing writes.

Their ids are below 0. Rows are made when a statement first reads the table, and stay so for that
statement. A user's own table of such a name, of a directory older than the system table, hides it.
"""

from collections.abc import Callable, Iterable

from herdpy.model.schema import Column, Table
from herdpy.model.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, Row, SqlType

SystemRows = Callable[[], Iterable[Row]]
"""Makes the rows of one system table, in their physical form; any thread."""


def _table(number: int, name: str, *columns: tuple[str, SqlType], key: int = 1) -> Table:
    """Return a table whose first `key` columns are its primary key."""
    return Table(
        id=-number,
        name=name,
        columns=tuple(
            Column(place, column, sql_type, not_null=place <= key)
            for place, (column, sql_type) in enumerate(columns, 1)
        ),
        key=tuple(range(key)),
    )


SYSCLIENTS = _table(
    1,
    "sysclients",
    ("id", BIGINT),
    ("protocol", TEXT),
    ("address", TEXT),
    ("client", TEXT),
    ("connected_at", TIMESTAMP),
    ("in_transaction", BOOLEAN),
)
"""Sessions: KILL CONNECTION takes their ids."""
SYSSTATEMENTS = _table(
    2,
    "sysstatements",
    ("id", BIGINT),
    ("client_id", BIGINT),
    ("started_at", TIMESTAMP),
    ("running_s", DOUBLE),
    ("text", TEXT),
)
"""Statements that run or wait: KILL STATEMENT takes their ids."""

SYSTEM_TABLES: dict[str, Table] = {table.name: table for table in (SYSCLIENTS, SYSSTATEMENTS)}
