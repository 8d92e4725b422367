"""System tables: what the engine knows of itself, as tables that SELECT reads and nothing writes.

Their ids are below 0. Rows are made when a statement first reads the table, and stay so for that
statement. A user's own table of such a name, of a directory older than the system table, hides it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from herdpy.model.schema import Column, Table
from herdpy.model.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, Row, SqlType

if TYPE_CHECKING:
    from herdpy.engine.state.catalog import Catalog

SystemRows = Callable[["Catalog"], Iterable[Row]]
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
    ("user_name", TEXT),
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

SYSUSERS = _table(
    3,
    "sysusers",
    ("user_name", TEXT),
    ("is_superuser", BOOLEAN),
    ("can_create_roles", BOOLEAN),
    ("has_password", BOOLEAN),
    ("valid_until", TIMESTAMP),
)
"""The roles that can log in; valid_until is NULL for ever."""
SYSROLES = _table(
    4,
    "sysroles",
    ("role_name", TEXT),
    ("can_login", BOOLEAN),
    ("is_superuser", BOOLEAN),
    ("can_create_roles", BOOLEAN),
)
"""Users and other roles."""
SYSMEMBERS = _table(
    5, "sysmembers", ("role_name", TEXT), ("member_name", TEXT), ("is_admin", BOOLEAN), key=2
)
"""Who is in which role."""
SYSGRANTS = _table(
    6,
    "sysgrants",
    ("grantee", TEXT),
    ("object_type", TEXT),
    ("object_name", TEXT),
    ("privilege", TEXT),
    ("is_grantable", BOOLEAN),
    ("is_owner", BOOLEAN),
    key=4,
)
"""Rights, one a row; object_type is table or tablespace."""

SYSLEASES = _table(
    7,
    "sysleases",
    ("lease", TEXT),
    ("user_name", TEXT),
    ("position", TEXT),
    ("taken_at", TIMESTAMP),
    ("seconds", DOUBLE),
    ("remaining_s", DOUBLE),
    ("is_in_pages", BOOLEAN),
)
"""Snapshots that are kept; is_in_pages: by the disk, and nothing in memory."""

SYSSTAGINGS = _table(
    8,
    "sysstagings",
    ("job", TEXT),
    ("table_name", TEXT),
    ("operation", TEXT),
    ("user_name", TEXT),
    ("begun_at", TIMESTAMP),
    ("stages", BIGINT),
    ("finished_stages", BIGINT),
    ("row_count", BIGINT),
    ("byte_count", BIGINT),
)
"""Jobs that stage rows and have not committed; row_count is that of all their stages."""

SYSTEM_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        SYSCLIENTS,
        SYSSTATEMENTS,
        SYSUSERS,
        SYSROLES,
        SYSMEMBERS,
        SYSGRANTS,
        SYSLEASES,
        SYSSTAGINGS,
    )
}
