"""Dump: tables, views, roles and rights of one snapshot as SQL that makes them again.

It holds no lock and writers go on; what it shows is one position. Rows come in key order, so that
equal databases have equal dumps. Every INSERT has at most a few hundred rows; a script of them is
no transaction of its own.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import version

from herdpy.engine.access.text import right_texts, role_texts
from herdpy.engine.access.view_text import create_view_text, in_order
from herdpy.engine.maintenance.directory import DIRECTORY
from herdpy.engine.state.snapshots import Snapshot
from herdpy.model.reals import real_text
from herdpy.model.schema import FillKind, Table
from herdpy.model.types import Kind, Physical, Row, SqlType
from herdpy.sql.sequences.text import create_sequence_texts, set_sequence_texts
from herdpy.sql.text import create_table_text, later_texts, literal_text, name_text

_ROWS_MAX = 200
_INSERT_CHARACTERS = 64 * 1024
"""A statement with more is ended; its last row may be longer."""


class Dump:
    """A dump on its way out. One thread at a time; close() lets the snapshot go."""

    byte_count = 0
    """How long it will be is not known."""

    def __init__(
        self,
        snapshot: Snapshot,
        last_value: Callable[[Table], tuple[int, bool]],
        tablespace: str = DIRECTORY,
    ) -> None:
        """`tablespace` is its name, which GRANT says.

        last_value() says of a sequence what setval() takes; which may be later than the snapshot.
        """
        self._last_value = last_value
        self._snapshot = snapshot
        self._tablespace = tablespace
        self.row_counts: dict[str, int] = {}
        """Rows of the tables that are written, by name."""

    def pieces(self) -> Iterator[bytes]:
        """Yield UTF-8 text, a statement at a time.

        SnapshotTooOldError: the database needed the memory of what was yet to be read.
        """
        state = self._snapshot.state
        ledger, entry, index = state.lsn
        yield f"-- herdpy {version('herdpy-db')}, position {ledger}.{entry}.{index}\n".encode()
        yield from _statements(role_texts(state.catalog))
        tables = state.catalog.tables()
        yield from _statements(create_sequence_texts(tables))
        sequences = {table.name: table.sequence for table in tables}
        for table in tables:
            # Not of the system's, which are made of other things.
            if table.id in state.tables and table.has_rows:
                yield f"\n{create_table_text(table, sequences.get)};\n".encode()
                yield from self._inserts(table)
                yield from _statements(later_texts(table))
        yield from _statements(set_sequence_texts(tables, self._last_value))
        for table in in_order(state.catalog.tables()):
            yield f"\n{create_view_text(table, state.catalog)};\n".encode()
        yield from _statements(right_texts(state.catalog, self._tablespace))

    def _inserts(self, table: Table) -> Iterator[bytes]:
        shown = [i for i, column in enumerate(table.columns) if not column.hidden]
        names = ", ".join(name_text(table.columns[i].name) for i in shown)
        is_always = any(
            column.filling is not None and column.filling.kind is FillKind.ALWAYS
            for column in table.columns
        )
        overriding = " OVERRIDING SYSTEM VALUE" if is_always else ""
        head = f"INSERT INTO {name_text(table.name)} ({names}){overriding} VALUES\n"
        lines: list[str] = []
        length = 0
        count = 0
        for row in self._snapshot.source(table).range(None, None):
            line = _row_text(row, shown, table)
            lines.append(line)
            count += 1
            length += len(line)
            if len(lines) == _ROWS_MAX or length > _INSERT_CHARACTERS:
                yield _insert(head, lines)
                lines, length = [], 0
        if lines:
            yield _insert(head, lines)
        self.row_counts[table.name] = count

    def close(self) -> None:
        """Let the snapshot go; repeatable."""
        self._snapshot.close()


def _statements(texts: Iterator[str]) -> Iterator[bytes]:
    """Yield statements with an empty line before the first."""
    before = "\n"
    for text in texts:
        yield f"{before}{text};\n".encode()
        before = ""


def _insert(head: str, lines: list[str]) -> bytes:
    body = ",\n".join(lines)
    return f"{head}{body};\n".encode()


def _row_text(row: Row, shown: list[int], table: Table) -> str:
    cells = [_cell_text(row[i], table.columns[i].type) for i in shown]
    return f"  ({', '.join(cells)})"


def _cell_text(value: Physical, sql_type: SqlType) -> str:
    # Quoted, because -0.0 without quotes is a decimal's zero, which has no sign.
    if isinstance(value, float):
        return f"'{real_text(value) if sql_type.kind is Kind.REAL else repr(value)}'"
    return literal_text(value, sql_type)
