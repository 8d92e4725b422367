"""Box: the result of conn.sql(), which prints as a table and can be iterated.

The statement has run when the Box is made; only the rows that are shown have been read. Text from
the database never reaches the terminal raw: control characters are written as escapes.
"""

import io
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from herdpy.driver.cursor import Cursor
from herdpy.driver.types import NUMBER, Description

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ROWS_SHOWN_MAX = 40
BYTES_SHOWN_MAX = 24
COLUMN_WIDTH_MIN = 8


class Box:
    """Rows of one statement: print it, iterate it, or turn it into Arrow or pandas."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._shown: list[tuple[Any, ...]] | None = None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self)

    def fetch_arrow_table(self) -> "pa.Table":
        """Return the result as a pyarrow.Table; before it was printed or iterated."""
        return self._cursor.fetch_arrow_table()

    def to_df(self) -> "pd.DataFrame":
        """Return the result as a pandas.DataFrame; before it was printed or iterated."""
        return self._cursor.to_df()

    def show(self) -> None:
        """Print the table."""
        print(self)  # noqa: T201 - what the method is for

    def close(self) -> None:
        """Drop the rows that were not read."""
        self._cursor.close()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield all rows; those already shown first. A second pass yields only those."""
        return chain(self._head(), self._cursor)

    def __str__(self) -> str:
        description = self._cursor.description
        if description is None:
            count = self._cursor.rowcount
            return "ok" if count < 0 else f"{count} row{'' if count == 1 else 's'}"
        rows = self._head()
        text = render(description, rows[:ROWS_SHOWN_MAX])
        if len(rows) > ROWS_SHOWN_MAX:
            return f"{text}\nthe first {ROWS_SHOWN_MAX} rows; there are more"
        return f"{text}\n{len(rows)} row{'' if len(rows) == 1 else 's'}"

    __repr__ = __str__

    def _head(self) -> list[tuple[Any, ...]]:
        # One row more than is shown tells whether there are more.
        if self._shown is None:
            self._shown = list(islice(self._cursor, ROWS_SHOWN_MAX + 1))
        return self._shown


def render(
    description: Sequence[Description], rows: Sequence[Sequence[Any]], *, width: int | None = None
) -> str:
    """Return the rows as a table no wider than `width` characters (the terminal by default).

    Columns that do not fit are left out of the middle, long values are cut with an ellipsis.
    """
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    ordinals: list[int | None] = list(range(len(description)))
    columns_max = max(2, console.width // COLUMN_WIDTH_MIN)
    if len(ordinals) > columns_max:
        half = columns_max // 2
        ordinals = [*ordinals[:half], None, *ordinals[len(ordinals) - (columns_max - half - 1) :]]
    table = Table(box=box.ROUNDED, header_style="")
    for ordinal in ordinals:
        if ordinal is None:
            table.add_column(Text("…"), no_wrap=True)
            continue
        name, code = description[ordinal][:2]
        table.add_column(
            Text(f"{_printable(name)}\n{code.lower()}"),
            justify="right" if code == NUMBER and code != "BOOLEAN" else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(
            *(Text("…" if ordinal is None else display(row[ordinal])) for ordinal in ordinals)
        )
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def display(value: object) -> str:
    """Return one value on one line, as SQL people write it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        head = value[:BYTES_SHOWN_MAX].hex()
        return f"\\x{head}{'…' if len(value) > BYTES_SHOWN_MAX else ''}"
    return _printable(str(value))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
