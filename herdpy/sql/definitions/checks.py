"""CHECKs of a table as what is computed of its rows: their texts, read and bound again."""

from herdpy.model.schema import Table
from herdpy.sql import tree
from herdpy.sql.bind import bind_row_condition
from herdpy.sql.plan import OverRows
from herdpy.sql.planner import over_rows
from herdpy.sql.reading.reader import read_condition
from herdpy.sql.reading.tokens import scan
from herdpy.sql.scope import StatementContext


class _NoTables:
    """A catalog for what names no table; implements sql.scope.Catalog."""

    @property
    def version(self) -> int:
        return 0

    def table(self, name: str) -> None:
        return None

    def table_names(self) -> tuple[str, ...]:
        return ()


def plan_checks(table: Table) -> OverRows:
    """Return how the conditions of a table's CHECKs are computed, by name of the CHECK.

    In that order PostgreSQL tests them. By row path if it can compute all of them.
    """
    outputs: list[tree.Output] = []
    for check in sorted(table.checks, key=lambda check: check.name):
        scanned = scan(check.text)
        context = StatementContext(scanned, _NoTables(), {})
        condition = bind_row_condition(read_condition(scanned), table, context)
        outputs.append(tree.Output(check.name, condition))
    ref = tree.TableRef(0, table, table.name)
    return over_rows(ref, tuple(outputs), (), None, lambda: None)
