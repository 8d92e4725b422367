"""System tables: what the engine knows of itself, as tables that SELECT reads and nothing writes.

Their ids are below 0. Rows are made when a statement first reads the table, and stay so for that
statement. A user's own table of such a name, of a directory older than the system table, hides it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from herdpy.model.schema import Column, Table
from herdpy.model.types import BIGINT, BOOLEAN, DOUBLE, TEXT, TIMESTAMP, Row

if TYPE_CHECKING:
    from herdpy.engine.state.catalog import Catalog

SystemRows = Callable[["Catalog"], Iterable[Row]]
"""Makes the rows of one system table, in their physical form; any thread."""


_TYPES = {
    "bigint": BIGINT, "boolean": BOOLEAN, "double": DOUBLE, "text": TEXT, "timestamp": TIMESTAMP,
}  # fmt: skip


def _table(number: int, name: str, columns: str, *, key: int = 1) -> Table:
    """Return a table of `column type, …`, whose first `key` columns are its primary key."""
    return Table(
        id=-number,
        name=name,
        columns=tuple(
            Column(place, column, _TYPES[type_name], not_null=place <= key)
            for place, (column, type_name) in enumerate(map(str.split, columns.split(",")), 1)
        ),
        key=tuple(range(key)),
    )


SYSTEM_TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        # Sessions: KILL CONNECTION takes their ids.
        _table(
            1, "sysclients",
            "id bigint, protocol text, address text, client text, connected_at timestamp, "
            "in_transaction boolean, user_name text, tablespace text, "
            "snapshot_at timestamp",
        ),
        # Statements that run or wait: KILL STATEMENT takes their ids.
        _table(
            2, "sysstatements",
            "id bigint, client_id bigint, started_at timestamp, running_s double, text text, "
            "tablespace text",
        ),
        # The roles that can log in; valid_until is NULL for ever.
        _table(
            3, "sysusers",
            "user_name text, is_superuser boolean, can_create_roles boolean, has_password boolean, "
            "valid_until timestamp",
        ),
        # Users and other roles.
        _table(
            4, "sysroles",
            "role_name text, can_login boolean, is_superuser boolean, can_create_roles boolean",
        ),
        # Who is in which role.
        _table(
            5, "sysmembers", "role_name text, member_name text, is_admin boolean", key=2,
        ),
        # Rights, one a row; object_type is table, view or tablespace.
        _table(
            6, "sysgrants",
            "grantee text, object_type text, object_name text, privilege text, "
            "is_grantable boolean, is_owner boolean", key=4,
        ),
        # Snapshots that are kept; is_in_pages: by the disk, and nothing in memory.
        _table(
            7, "sysleases",
            "lease text, user_name text, position text, taken_at timestamp, seconds double, "
            "remaining_s double, is_in_pages boolean",
        ),
        # Jobs that stage rows and have not committed; row_count is that of all their stages.
        _table(
            8, "sysstagings",
            "job text, table_name text, operation text, user_name text, begun_at timestamp, "
            "stages bigint, finished_stages bigint, row_count bigint, byte_count bigint",
        ),
        # What sessions of a role begin with, and may have at most, as ALTER ROLE takes it.
        _table(
            9, "sysrolesettings",
            "role_name text, setting text, default_value text, maximum text", key=2,
        ),
        # Who holds how much of the budget, one row an account: model/governor.py.
        _table(
            10, "sysmemory",
            "account text, bytes_used bigint, bytes_max bigint, bytes_peak bigint, "
            "holders bigint, refused bigint, waits bigint, waited_s double",
        ),
        # Background work that has failed, and not been done since.
        _table(
            11, "sysmaintenance",
            "task text, failures bigint, error text, failed_at timestamp, retry_in_s double",
        ),
        # Limits, of all (user_name is empty) and of users whose roles have some.
        _table(
            12, "syslimits",
            "name text, user_name text, share bigint, used bigint, refused bigint, waits bigint",
            key=2,
        ),
        # Sessions whose statements wait: for what, and who holds it.
        _table(
            13, "syswaits",
            "client_id bigint, statement_id bigint, waits_for text, waited_s double, held_by text",
        ),
        # The disk of each tablespace, as it was last looked at: disk_space.py.
        _table(
            14, "sysdisks",
            "tablespace text, is_full boolean, full_since timestamp, total_bytes bigint, "
            "free_bytes bigint, needed_bytes bigint, reserve_bytes bigint, "
            "reserve_held_bytes bigint, refused bigint",
        ),
        # Which tablespaces there are: their limits, and what those that are open have now.
        _table(
            15, "systablespaces",
            "tablespace text, id text, state text, connections_max bigint, "
            "memory_bytes_max bigint, disk_bytes_max bigint, sessions bigint, memory_bytes bigint, "
            "disk_bytes bigint, error text, leader text, epoch bigint, replicas text, "
            "expected_replicas bigint",
        ),
        # The nodes of the cluster: cluster_rows.py, as the two below.
        _table(
            16, "sysnodes",
            "node_id text, address text, has_tls boolean, version text, is_this boolean",
        ),
        # What each node has said of its copy.
        _table(
            17, "systablespacereplicastate",
            "tablespace text, id text, node_id text, part text, position text, lag_s double, "
            "said_at timestamp", key=3,
        ),
        # Where the logs of this node end.
        _table(
            18, "syslog",
            "tablespace text, id text, node_id text, ledger bigint, entry bigint, "
            "last_position text, part text", key=3,
        ),
        # Views, each with its query as SQL.
        _table(20, "sysviews", "view_name text, owner_name text, columns text, definition text"),
        # Sequences, and how far they are; last_value is NULL before the first.
        _table(
            21, "syssequences",
            "sequence_name text, owner_name text, data_type text, start_value bigint, "
            "min_value bigint, max_value bigint, increment_by bigint, cycle boolean, "
            "cache_size bigint, last_value bigint, owned_by text",
        ),
    )
}  # fmt: skip
