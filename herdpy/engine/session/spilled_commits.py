"""The commit of what a transaction spilled, whose rows stay in pages. Source: ADR 0057."""

from collections.abc import Callable, Mapping
from functools import partial

from herdpy.engine.maintenance.page_commits import Planned, commit_at_rest
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.page_adoption import spilled_view
from herdpy.engine.state.state import TableState
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.interfaces import DatabaseServices
from herdpy.errors import InvariantViolation


def commit_spilled(
    database: DatabaseServices, transaction: Transaction, settle: Callable[[], object]
) -> None:
    """Commit a transaction that has spilled, and wait for it by settle()."""
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

    def log() -> None:
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            tablespace.log_commit(transaction)

    def commit() -> None:
        with_log_space(tablespace, log, frees_space=True)
        settle()  # before what is planned is taken away: it may be applied only now

    table_ids = tablespace.state.staged.spilled_tables(tx)
    commit_at_rest(tablespace, database, database.memory, table_ids, plan, commit)
