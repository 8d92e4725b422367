"""Reads and runs *.test files: statements, the errors they raise, queries and the rows they give.

Blocks are separated by empty lines, # begins a comment:
    statement ok | statement error <SQLSTATE>, then the text;
    query [rowsort], then the text, ----, and the rows, values in PostgreSQL's text form between
    " | ". `rowsort` sorts both sides. DOUBLEs compare to 12 digits, DECIMALs to 10 places.
{tablespace} is the name of the one that the suite runs in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from herdpy.exec.coerce import format_text
from herdpy.model.python_values import kind_of
from herdpy.model.types import Kind
from tests.fixtures.engines import TABLESPACE


@dataclass(frozen=True)
class Block:
    """One block of a file; `rows` is None for statements, `sqlstate` None for success."""

    line: int
    text: str
    sqlstate: str | None
    rows: list[str] | None
    is_sorted: bool


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks of a file; a malformed one is a ValueError."""
    blocks: list[Block] = []
    text = path.read_text().replace("{tablespace}", TABLESPACE or "default")
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        if not lines[index] or lines[index].startswith("#"):
            index += 1
            continue
        first, head = index + 1, lines[index].split()
        index += 1
        body: list[str] = []
        while index < len(lines) and lines[index] and lines[index] != "----":
            body.append(lines[index])
            index += 1
        rows = None
        if index < len(lines) and lines[index] == "----":
            index += 1
            rows = []
            while index < len(lines) and lines[index]:
                rows.append(lines[index])
                index += 1
        if head[0] == "query" and rows is not None:
            blocks.append(Block(first, "\n".join(body), None, rows, "rowsort" in head))
        elif head[:2] == ["statement", "error"] and len(head) == 3:
            blocks.append(Block(first, "\n".join(body), head[2], None, False))
        elif head == ["statement", "ok"] and rows is None:
            blocks.append(Block(first, "\n".join(body), None, None, False))
        else:
            raise ValueError(f"{path.name}:{first}: {' '.join(head)} is no block")
    return blocks


def shown(value: Any, code: str | None = None) -> str:
    """Return a value as psql shows it; code: that of its column, which of a REAL has to be told."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    return format_text(value, Kind.REAL if code == Kind.REAL.name else kind_of(value))


def is_same(value: Any, expected: str, code: str | None = None) -> bool:
    """Tell whether a value is the expected text, numbers within what text can tell."""
    if shown(value, code) == expected:
        return True
    if expected == "NULL" or value is None or code == Kind.REAL.name:
        return False
    if isinstance(value, float):
        return math.isclose(value, float(expected), rel_tol=1e-12)
    if isinstance(value, Decimal):
        return abs(value - Decimal(expected)) < Decimal("0.0000000001")
    return False


def difference(rows: list[tuple[Any, ...]], block: Block, description: Sequence[Any]) -> str | None:
    """Return what differs from the expected rows of a query of that description, or None."""
    codes = [column[1] for column in description]
    expected = list(block.rows or ())
    if block.is_sorted:
        rows = sorted(rows, key=lambda row: list(map(shown, row, codes)))
        expected = sorted(expected, key=lambda line: line.split(" | "))
    wanted = [line.split(" | ") for line in expected]
    is_equal = len(rows) == len(wanted) and all(
        len(row) == len(line) and all(map(is_same, row, line, codes))
        for row, line in zip(rows, wanted, strict=True)
    )
    if is_equal:
        return None
    found = "\n".join(" | ".join(map(shown, row, codes)) for row in rows)
    return f"expected\n{chr(10).join(expected)}\nfound\n{found}"
