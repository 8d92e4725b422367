"""CHECKs of a table that the row path does not compute: a query over the rows that are written."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herdpy.errors import IntegrityError, loading
from herdpy.exec.row.row_check import violated_check
from herdpy.model.schema import Table
from herdpy.model.types import Row

if TYPE_CHECKING:
    from herdpy.engine.state.snapshots import Snapshot
    from herdpy.engine.statements.interrupt import StatementInterrupt
    from herdpy.exec.vector.duck import VectorEngine


class QueryChecks:
    """The CHECKs of one table as a query; made once for a plan, used by any thread."""

    def __init__(
        self, table: Table, error_of: Callable[[Table, str], IntegrityError] = violated_check
    ) -> None:
        """error_of: what is raised, by table and name of the CHECK."""
        with loading():
            from herdpy.sql.definitions.checks import plan_checks
            from herdpy.sql.duckdb_text import print_query

        self._table = table
        self._error_of = error_of
        self._plan = plan_checks(table)
        query = self._plan.query
        self._text = None if query is None else print_query(query)

    @property
    def is_by_query(self) -> bool:
        """False: the row path computes them, with all else that a row must fulfil."""
        return self._text is not None

    def run(
        self,
        rows: Sequence[Row],
        engine: "VectorEngine",
        snapshot: "Snapshot",
        interrupt: "StatementInterrupt",
    ) -> None:
        """Raise 23514 for the first row that violates one, by the first of these."""
        if self._text is None or not rows:
            return
        at_hand = snapshot.with_rows(self._plan.ref.table, rows)
        columns = self._plan.columns
        found = engine.query(self._text, at_hand, [], [], interrupt, columns=columns)
        try:
            for answers in found.physical_rows():
                if False in answers:
                    raise self._error_of(self._table, columns[answers.index(False)][0])
        finally:
            found.close()
