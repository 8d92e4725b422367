"""Rows on paper: as a box that fits the terminal, as CSV, as JSON, or line by line.

A box shows the first rows_max rows and says how many more there are; the other modes are for
programs and give every row as it streams. NULL is NULL in a box and on lines, nothing in CSV
(csv_text.py), null in JSON; NaN and infinities, which JSON does not have, are strings there, as
are decimals, whose digits a reader of JSON would lose.
"""

import datetime
import json
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.text import Text

from herdpy.cli.csv_text import csv_line
from herdpy.driver.box import count_text, display, make_table, readable
from herdpy.driver.types import Description
from herdpy.model.intervals import interval_text, of_timedelta

MODES = ("box", "csv", "json", "line")
CHUNK_ROWS = 1_000
COUNTED_ROWS_MAX = 1_000_000
"""Rows behind the shown ones are counted up to here."""

Fetch = Callable[[int], Sequence[Sequence[Any]]]
"""Returns up to so many of the next rows; none at the end."""


def write_rows(
    console: Console, description: Sequence[Description], fetch: Fetch, mode: str, rows_max: int
) -> str:
    """Write a result in one of MODES; return what to say below a box, else ""."""

    def shown(count: int) -> Sequence[Sequence[Any]]:
        return readable(description, fetch(count))

    if mode == "csv":
        _write_csv(console, description, shown)
    elif mode == "json":
        _write_json(console, description, shown)
    elif mode == "line":
        _write_lines(console, description, shown)
    else:
        return _write_box(console, description, shown, rows_max)
    return ""


def _chunks(fetch: Fetch) -> Iterator[Sequence[Sequence[Any]]]:
    while rows := fetch(CHUNK_ROWS):
        yield rows


def _write(console: Console, text: str) -> None:
    console.out(text, end="", highlight=False)


def _write_exact(console: Console, text: str) -> None:
    """Write text as it is, for a file or another program; a terminal gets no control characters."""
    if console.is_terminal:
        _write(console, text)
    else:
        console.file.write(text)


def _write_box(
    console: Console, description: Sequence[Description], fetch: Fetch, rows_max: int
) -> str:
    if [column[:2] for column in description] == [("plan", "TEXT")]:  # of EXPLAIN, which is no data
        for rows in _chunks(fetch):
            for (line,) in rows:
                console.print(Text(line))
        return ""
    rows = fetch(rows_max) if rows_max else [row for chunk in _chunks(fetch) for row in chunk]
    table = make_table(description, rows, console.width, remedy=".mode line shows them")
    console.print(table)
    if not rows_max or len(rows) < rows_max:
        return count_text(len(rows))
    more = 0
    for chunk in _chunks(fetch):
        more += len(chunk)
        if more > COUNTED_ROWS_MAX:
            return f"{count_text(rows_max)} shown, more than {COUNTED_ROWS_MAX:,} are not"
    if not more:
        return count_text(len(rows))
    return f"{count_text(rows_max)} shown, {more:,} more (.rows {rows_max + more} shows them)"


def _write_csv(console: Console, description: Sequence[Description], fetch: Fetch) -> None:
    _write_exact(console, csv_line(column[0] for column in description))
    for rows in _chunks(fetch):
        lines = (csv_line(None if v is None else plain_text(v) for v in row) for row in rows)
        _write_exact(console, "".join(lines))


def _write_json(console: Console, description: Sequence[Description], fetch: Fetch) -> None:
    names = [column[0] for column in description]
    separator = "["
    for rows in _chunks(fetch):
        for row in rows:
            record = dict(zip(names, map(_json_value, row), strict=True))
            _write(console, f"{separator}{json.dumps(record, ensure_ascii=False)}")
            separator = ",\n "
    _write(console, "[]\n" if separator == "[" else "]\n")


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return plain_text(value)


def plain_text(value: object) -> str:
    """Return a value that is not NULL as text of full length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime.timedelta):
        return interval_text(of_timedelta(value))
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _write_lines(console: Console, description: Sequence[Description], fetch: Fetch) -> None:
    names = [display(column[0]) for column in description]
    width = max(map(len, names))
    is_first = True
    for rows in _chunks(fetch):
        for row in rows:
            lines = [
                f"{name:>{width}} = {display(value)}\n"
                for name, value in zip(names, row, strict=True)
            ]
            _write(console, ("" if is_first else "\n") + "".join(lines))
            is_first = False
