"""Commits whose rows stay in pages: what has to be at rest while one is logged or applied.

What adopting pages means is worked out before the record is applied, so that this takes no longer
than that of a row: with checkpoints and compactions held off, and with little in memtables. It is
one rule for the copy that leads, which logs such a commit, and for those that follow, which are
given it. A recovery needs none: it checkpoints and compacts nothing. Source: ADR 0025, 0057.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.state.page_adoption import Adoption, is_at_rest
from herdpy.engine.state.state import TableState
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import OperationalError, Retry

Planned = Mapping[int, Sequence[Adoption]]
"""By table, a step for each time that it adopts pages."""
_PART_BYTES = 24 * 1024 * 1024
"""The keys of some pages of several levels: as they are, sorted, and their order."""
_PIECE_COPIES = 4
"""Of rows that are in no page: as columns, sorted, and as pages in memory."""
_ATTEMPTS_MAX = 10


class Maintenance(Protocol):
    """Checkpoints and compactions of one tablespace. Any thread."""

    def run_checkpoint(self, check: Callable[[], object] | None = None) -> bool: ...

    def without_maintenance(
        self, check: Callable[[], object] | None = None
    ) -> AbstractContextManager[None]: ...


def commit_at_rest(
    tablespace: Tablespace,
    maintenance: Maintenance,
    memory: TablespaceMemory,
    table_ids: Collection[int],
    plan: Callable[[Mapping[int, TableState]], Planned | None],
    commit: Callable[[], object],
    *,
    check: Callable[[], object] | None = None,
) -> None:
    """Have a commit that gives pages to tables be applied as planned; no other one writes to them.

    plan(tables) works out the steps, and raises what forbids them; None: the tables' memtables have
    to become pages first. commit() has the record applied, or what it raises says that it was not.
    check() raises when the caller is not to wait any longer for maintenance.
    40001: checkpoints did not get done what it needs; nothing has happened. What a checkpoint
    raises, too.
    """
    is_planned = True
    for _ in range(_ATTEMPTS_MAX):
        if not is_planned or not all(map(is_at_rest, _tables(tablespace, table_ids).values())):
            maintenance.run_checkpoint(check)
        with maintenance.without_maintenance(check):
            tables = _tables(tablespace, table_ids)
            if any(table.frozen for table in tables.values()):
                continue  # another one's checkpoint has failed meanwhile
            with memory.job("a commit of pages", _memory_to_plan(tablespace)):
                planned = plan(tables)
            is_planned = planned is not None
            if planned is None:
                continue
            applier = tablespace.applier
            try:
                applier.planned = planned
                commit()
                return
            finally:
                applier.planned = {}
    raise OperationalError(
        f"{_ATTEMPTS_MAX} checkpoints have not written all that the commit needs in pages",
        sqlstate="40001",
        retry=Retry.SAFE,
    )


def _memory_to_plan(tablespace: Tablespace) -> int:
    """Return about what it takes to work out a commit: keys of one part, pages of what has none."""
    return _PART_BYTES + _PIECE_COPIES * tablespace.state.staged.piece_bytes


def _tables(tablespace: Tablespace, table_ids: Collection[int]) -> dict[int, TableState]:
    """Return those of the tables that are there: others the transaction itself makes, or drops."""
    tables = tablespace.state.tables
    return {number: tables[number] for number in table_ids if number in tables}
