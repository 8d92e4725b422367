"""The rows of systablespaces: which tablespaces there are, their limits, what each has now.

A session of `default` sees all of them, one of another tablespace its own. Any thread.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from herdpy.model.types import Row
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.engine.database import Database
    from herdpy.engine.instance import TablespaceState


def visible_states(database: "Database") -> "list[TablespaceState]":
    """Return the tablespaces that sessions of one may know of."""
    states = database.instance.states()
    if database.name == DEFAULT:
        return states
    return [state for state in states if state.entry.name == database.name]


def tablespace_rows(database: "Database") -> Iterator[Row]:
    """Yield a row for each tablespace that the sessions of one may know of."""
    for entry, opened, opening_error in visible_states(database):
        error = opening_error
        limits = entry.limits
        used: tuple[int | None, ...] = (None, None, None)
        if opened is not None:
            memory = sum(each.bytes_used for each in opened.memory.kinds()[1:])
            used = len(opened.sessions()), memory, opened.replica.disk_bytes()
            error = opened.failure
        state = "failed" if error is not None else "closed" if opened is None else "open"
        message = None if error is None else error.message
        shown_limits = limits.connections_max, limits.memory_bytes_max, limits.disk_bytes_max
        yield entry.name, entry.id.hex(), state, *shown_limits, *used, message
