"""CHECKs of a table as what is computed of its rows: their texts, read and bound again."""

from dataclasses import replace

from herdpy.model.schema import Check, Table
from herdpy.sql import tree
from herdpy.sql.bind import bind_row_condition
from herdpy.sql.plan import OverRows
from herdpy.sql.planner import over_rows
from herdpy.sql.reading import syntax
from herdpy.sql.reading.reader import read_condition
from herdpy.sql.reading.tokens import Scanned, scan
from herdpy.sql.scope import StatementContext
from herdpy.sql.text import name_text


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


def columns_in(check: Check) -> set[str]:
    """Return the names of the columns that a CHECK is about."""
    return {node.name for node in _columns(scan(check.text))}


def with_column_name(check: Check, name: str, new_name: str) -> Check:
    """Return a CHECK as it is when a column of its table is called otherwise."""
    scanned = scan(check.text)
    places = [
        node.start if node.table is None else _behind_dot(scanned, node.start)
        for node in _columns(scanned)
        if node.name == name
    ]
    return replace(check, text=_with_names(scanned, places, new_name))


def with_table_name(check: Check, new_name: str) -> Check:
    """Return a CHECK as it is when its table is called otherwise."""
    scanned = scan(check.text)
    places = [node.start for node in _columns(scanned) if node.table is not None]
    return replace(check, text=_with_names(scanned, places, new_name))


def _columns(scanned: Scanned) -> list[syntax.Column]:
    nodes = syntax.walk(read_condition(scanned))
    return [node for node in nodes if isinstance(node, syntax.Column)]


def _behind_dot(scanned: Scanned, start: int) -> int:
    """Return where the name begins that stands behind one and a dot."""
    tokens = scanned.tokens
    index = next(number for number, token in enumerate(tokens) if token.start == start)
    return tokens[index + 2].start


def _with_names(scanned: Scanned, places: list[int], name: str) -> str:
    """Return the text with another name at some places."""
    ends = {token.start: token.end for token in scanned.tokens}
    text = scanned.text
    for place in sorted(set(places), reverse=True):
        text = f"{text[:place]}{name_text(name)}{text[ends[place] :]}"
    return text
