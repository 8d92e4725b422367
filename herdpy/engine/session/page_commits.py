"""Commits whose rows stay in pages: of what a job has staged, and of what a transaction spilled.

What adopting pages means is worked out before the commit is logged, so that its record takes no
longer to apply than that of a row: under the tables' locks, with checkpoints and compactions held
off, and when no snapshot lease needs what memtables hold. Source: ADR 0025, 0057.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.page_adoption import FEW_ROWS, Adoption, spilled_view
from herdpy.engine.state.state import TableState
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.interfaces import DatabaseServices
from herdpy.errors import InvariantViolation, OperationalError, Retry

_PART_BYTES = 24 * 1024 * 1024
"""The keys of some pages of several levels: as they are, sorted, and their order."""
_PIECE_COPIES = 4
"""Of rows that are in no page: as columns, sorted, and as pages in memory."""
Planned = Mapping[int, Sequence[Adoption]]
"""By table, a step for each time that it adopts pages."""
_ATTEMPTS_MAX = 10
_ATTEMPTS_BESIDE_LEASES = 2
"""Behind these a commit lets sessions that take leases wait: beside them it might not end."""


def commit_by_pages(
    database: DatabaseServices,
    transaction: Transaction,
    table_ids: Collection[int],
    plan: Callable[[Mapping[int, TableState]], Planned | None],
    submit: Callable[[Planned], bool],
    settle: Callable[[], object],
) -> None:
    """Log a commit that gives pages to tables, which the transaction has locked, and wait for it.

    plan(tables) works out the steps, and raises what forbids them; None: the tables' memtables have
    to become pages first. submit(planned) logs the commit if may_adopt() lets it, and says whether
    it has; settle() waits for it.
    40001: checkpoints did not get done what it needs; nothing has happened.
    """
    tablespace = database.tablespace
    is_planned = True
    for attempt in range(_ATTEMPTS_MAX):
        if attempt == _ATTEMPTS_BESIDE_LEASES:
            tablespace.delay_leases(transaction)
        leases = tablespace.applier.leases
        if leases.needs_memory and not leases.has_versions:
            tablespace.sync_log()  # one is in the log, and waits for the disk
        tables = _tables(database, table_ids)
        is_much = any(len(each.memtable) > FEW_ROWS or each.frozen for each in tables.values())
        if is_much or leases.has_versions or not is_planned:
            database.run_checkpoint()
        with database.without_maintenance():
            tables = _tables(database, table_ids)
            if any(table.frozen for table in tables.values()):
                continue  # another one's checkpoint has failed meanwhile
            with database.memory.job("a commit of pages", _memory_to_plan(tablespace)):
                planned = plan(tables)
            is_planned = planned is not None
            if planned is None:
                continue

            try:
                step = partial(submit, planned)
                if with_log_space(tablespace, step, frees_space=True):
                    settle()  # before what is planned is taken away: it may be applied only now
                    return
            finally:
                tablespace.applier.planned = {}
    raise OperationalError(
        f"{_ATTEMPTS_MAX} checkpoints have not written all that the commit, or snapshot leases, "
        "need in pages",
        sqlstate="40001",
        retry=Retry.SAFE,
    )


def _memory_to_plan(tablespace: Tablespace) -> int:
    """Return about what it takes to work out a commit: keys of one part, pages of what has none."""
    return _PART_BYTES + _PIECE_COPIES * tablespace.state.staged.piece_bytes


def may_adopt(tablespace: Tablespace, planned: Planned) -> bool:
    """Have the next commit adopt what is planned. Monitor held.

    False: it may not, because a lease has come that a checkpoint must write.
    """
    if tablespace.applier.leases.needs_memory:
        return False
    tablespace.applier.planned = planned
    return True


def commit_spilled(
    database: DatabaseServices, transaction: Transaction, settle: Callable[[], object]
) -> None:
    """Commit a transaction that has spilled, and wait for it."""
    tablespace = database.tablespace
    cut = partial(tablespace.run, partial(tablespace.log_cut, transaction))
    with_log_space(tablespace, cut, frees_space=True)
    tablespace.apply_log()
    tx = transaction.id
    if tx is None:
        raise InvariantViolation("I11: a transaction without id has spilled")

    def plan(tables: Mapping[int, TableState]) -> Planned:
        staged = tablespace.state.staged
        return {
            number: spilled_view(
                table, staged.spilled(tx, number), transaction.views.get(number)
            ).steps
            for number, table in tables.items()
        }

    def submit(planned: Planned) -> bool:
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            if not may_adopt(tablespace, planned):
                return False
            tablespace.log_commit(transaction)
            return True

    commit_by_pages(
        database,
        transaction,
        tablespace.state.staged.spilled_tables(tx),
        plan,
        submit,
        settle,
    )


def _tables(database: DatabaseServices, table_ids: Collection[int]) -> dict[int, TableState]:
    """Return those of the tables that are there: others the transaction itself makes, or drops."""
    tables = database.tablespace.state.tables
    return {number: tables[number] for number in table_ids if number in tables}
