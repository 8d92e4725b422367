"""The rows of systablespaces: which tablespaces there are, their limits, what each has now.

Superusers of `default` see all of them, all others their own. Any thread.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdpy.engine.cluster_view import leadership_columns
from herdpy.model.types import Row

if TYPE_CHECKING:
    from herdpy.engine.database import Database
    from herdpy.engine.tablespaces import TablespaceState


def visible_states(database: "Database", user: str | None) -> "list[TablespaceState]":
    """Return the tablespaces that a user of one may know of; None: a session without one."""
    states = database.instance.tablespaces.states()
    if database.is_administrator(user):
        return states
    # Not by its name, which ALTER TABLESPACE changes in the list first.
    return [state for state in states if state.entry.id == database.entry.id]


def tablespace_rows(database: "Database") -> Iterator[Row]:
    """Yield a row for each tablespace that the superusers of one may know of."""
    database.memory.governor.settle()  # once: it measures every tablespace
    for entry, opened, opening_error in visible_states(database, None):
        error = opening_error
        limits = entry.limits
        used: tuple[int | None, ...] = (None, None, None)
        if opened is not None:
            of_queries, _ = opened.vectors.usage()
            memory, disk = opened.memory.bytes_held() + of_queries, opened.replica.disk_bytes()
            used = len(opened.sessions()), memory, disk
            error = opened.failure
        state = "failed" if error is not None else "closed" if opened is None else "open"
        message = None if error is None else error.message
        shown_limits = limits.connections_max, limits.memory_bytes_max, limits.disk_bytes_max
        shown = entry.name, entry.id.hex(), state, *shown_limits, *used, message
        yield *shown, *leadership_columns(database.instance.cluster)
