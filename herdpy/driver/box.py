"""Box: the result of conn.sql(), which prints as a table and can be iterated.

The statement has run when the Box is made; only the rows that are shown have been read. Text from
the database never reaches the terminal raw: control characters are written as escapes. A table is
never wider than asked for: long text is cut with an ellipsis, numbers never are, and when even
that is too wide, columns are left out of the middle, and a line below says how many.
"""

import io
from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from herdpy.driver.cursor import Cursor
from herdpy.driver.types import NUMBER, STRING, Description
from herdpy.model.printable import escaped
from herdpy.model.reals import real_text
from herdpy.model.types import Kind

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ROWS_SHOWN_MAX = 40
BYTES_SHOWN_MAX = 24
TEXT_WIDTH_MIN = 8
"""Text is cut to so many characters before a column is left out."""

_CUT = "…"
_NULL = "NULL"


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

    def to_polars(self) -> "pl.DataFrame":
        """Return the result as a polars.DataFrame; before it was printed or iterated."""
        return self._cursor.to_polars()

    def show(self) -> None:
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
            return self._footer()
        return f"{render(description, self._head()[:ROWS_SHOWN_MAX])}\n{self._footer()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table as notebooks show it: every column, as many rows as in print."""
        description = self._cursor.description
        footer = f"<p>{escape(self._footer())}</p>"
        if description is None:
            return footer
        sides = ["right" if _is_number(column[1]) else "left" for column in description]
        head = "".join(
            f'<th style="text-align:{side}">{escape(escaped(column[0]))}<br>'
            f"<small>{escape(column[1].lower())}</small></th>"
            for column, side in zip(description, sides, strict=True)
        )
        body = "".join(
            f"<tr>{''.join(map(_html_cell, row, sides))}</tr>"
            for row in readable(description, self._head()[:ROWS_SHOWN_MAX])
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{footer}"

    def _footer(self) -> str:
        if self._cursor.description is None:
            count = self._cursor.rowcount
            return "ok" if count < 0 else count_text(count)
        count = len(self._head())
        if count > ROWS_SHOWN_MAX:
            return f"the first {ROWS_SHOWN_MAX} rows; there are more"
        return count_text(count)

    def _head(self) -> list[tuple[Any, ...]]:
        # One row more than is shown tells whether there are more.
        if self._shown is None:
            self._shown = list(islice(self._cursor, ROWS_SHOWN_MAX + 1))
        return self._shown


def _html_cell(value: object, side: str) -> str:
    text = escape(display(value))
    return f'<td style="text-align:{side}">{f"<i>{text}</i>" if value is None else text}</td>'


def count_text(count: int, noun: str = "row") -> str:
    """Return "1 row", "2 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def render(
    description: Sequence[Description], rows: Sequence[Sequence[Any]], *, width: int | None = None
) -> str:
    """Return the rows as a table no wider than `width` characters (the terminal by default)."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(make_table(description, rows, console.width))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def make_table(
    description: Sequence[Description],
    rows: Sequence[Sequence[Any]],
    width: int,
    *,
    remedy: str = "",
) -> Table:
    """Return the rows as a table for a rich console of `width` characters.

    remedy: what to say of how to see all columns where some are left out.
    """
    cells = [[display(value) for value in row] for row in readable(description, rows)]
    columns = [
        _Column.of(description[ordinal], [row[ordinal] for row in cells])
        for ordinal in range(len(description))
    ]
    shown, widths = _fit(columns, width)
    table = Table(box=box.ROUNDED, header_style="", border_style="dim", caption_justify="left")
    left_out = len(columns) - sum(ordinal is not None for ordinal in shown)
    if left_out:
        text = f"{left_out} of {count_text(len(columns), 'column')} left out at …"
        table.caption = Text(f"{text}{f' ({remedy})' if remedy else ''}", style="dim")
    for ordinal, column_width in zip(shown, widths, strict=True):
        column = columns[ordinal] if ordinal is not None else None
        table.add_column(
            Text(_CUT) if column is None else _header(column, column_width),
            justify="right" if column is not None and column.is_number else "left",
            width=column_width,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row, texts in zip(rows, cells, strict=True):
        table.add_row(
            *(
                Text(_CUT if ordinal is None else texts[ordinal], style=_style(row, ordinal))
                for ordinal in shown
            )
        )
    return table


def _header(column: "_Column", width: int) -> Text:
    # Both lines are cut by hand: rich would wrap them, or cut them as one.
    lines = [Text(column.name, style="bold"), Text(column.kind, style="dim")]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _style(row: Sequence[Any], ordinal: int | None) -> str:
    return "dim italic" if ordinal is not None and row[ordinal] is None else ""


class _Column(NamedTuple):
    name: str
    kind: str
    is_number: bool
    natural: int
    """The width at which nothing is cut."""
    least: int
    """The width at which the column is still worth showing."""

    @classmethod
    def of(cls, described: Description, cells: Sequence[str]) -> "_Column":
        name, code = escaped(described[0]), described[1]
        widest = max(map(cell_len, cells), default=0)
        natural = max(widest, cell_len(name), len(code))
        least = widest if code != STRING and code != "BYTEA" else min(widest, TEXT_WIDTH_MIN)
        least = min(natural, max(least, TEXT_WIDTH_MIN // 2))
        return cls(name, code.lower(), _is_number(code), natural, least)


def _is_number(code: str) -> bool:
    return code == NUMBER and code != "BOOLEAN"


def _fit(columns: Sequence[_Column], width: int) -> tuple[list[int | None], list[int]]:
    """Return which columns to show (None: some are left out here) and the width of each."""
    shown: list[int | None] = list(range(len(columns)))

    def cost(widths: Sequence[int]) -> int:
        return 1 + sum(3 + (1 if at is None else widths[at]) for at in shown)

    least = [column.least for column in columns]
    while cost(least) > width and len(shown) > 3:
        middle = len(shown) // 2
        if None in shown:  # drop the neighbour on the longer side
            middle = shown.index(None)
            is_left_longer = middle > len(shown) - 1 - middle
            del shown[middle - 1 if is_left_longer else middle + 1]
        else:
            shown[middle] = None
    room = width - 1 - 3 * len(shown)
    cap = max((column.natural for column in columns), default=1)
    while cap > 1 and sum(_capped(columns, at, cap) for at in shown) > room:
        cap -= 1
    return shown, [_capped(columns, at, cap) for at in shown]


def _capped(columns: Sequence[_Column], ordinal: int | None, cap: int) -> int:
    if ordinal is None:
        return 1
    column = columns[ordinal]
    return max(1, min(column.natural, max(column.least, cap)))


def readable(
    description: Sequence[Description], rows: Sequence[Sequence[Any]]
) -> Sequence[Sequence[Any]]:
    """Return rows for people: of a REAL the number of its own digits, 0.1 for 0.10000000149."""
    places = [place for place, column in enumerate(description) if column[1] == Kind.REAL.name]
    if not places:
        return rows
    shown = [list(row) for row in rows]
    for row in shown:
        for place in places:
            row[place] = None if row[place] is None else float(real_text(row[place]))
    return shown


def display(value: object) -> str:
    """Return one value on one line, as SQL writes it."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        head = value[:BYTES_SHOWN_MAX].hex()
        return f"\\x{head}{_CUT if len(value) > BYTES_SHOWN_MAX else ''}"
    return escaped(str(value))
