"""The rows that a change of rows gives (RETURNING): all of them at once, within limits.

They are there before the change is logged, and go with its acknowledgement (ADR 92).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from herdpy.errors import OperationalError
from herdpy.exec.result import LogicalRow
from herdpy.limits import returned_bytes_max, returned_rows_max
from herdpy.model.types import Kind, SqlType

_CELL_BYTES = 20
_LONG_CELL_BYTES = 64
"""What a value takes on the wire at most, with its lengths and tags, in the longest form of all."""
_SHORT = frozenset((Kind.BOOLEAN, Kind.INTEGER, Kind.BIGINT, Kind.DOUBLE, Kind.TEXT, Kind.BYTEA))


def check_count(count: int) -> None:
    """Raise 54000 when a statement would give so many rows."""
    if count > returned_rows_max:
        raise OperationalError(
            f"RETURNING would give {count:,} rows, expected at most {returned_rows_max:,}",
            sqlstate="54000",
            hint="Change fewer rows at a time, or SELECT them in the same transaction.",
        )


def collected(rows: Iterable[LogicalRow], types: Sequence[SqlType]) -> list[LogicalRow]:
    """Return the rows of a statement; 54000 when they are too long together."""
    cells = sum(_CELL_BYTES if each.kind in _SHORT else _LONG_CELL_BYTES for each in types)
    texts = [i for i, each in enumerate(types) if each.kind in (Kind.TEXT, Kind.BYTEA)]
    found: list[LogicalRow] = []
    byte_count = 0
    for row in rows:
        byte_count += cells + sum(_length(row[place]) for place in texts)
        if byte_count > returned_bytes_max:
            raise OperationalError(
                f"RETURNING would give more than {returned_bytes_max:,} bytes",
                sqlstate="54000",
                hint="Name fewer columns, change fewer rows at a time, or SELECT them in the same "
                "transaction.",
            )
        found.append(row)
    return found


def _length(value: Any) -> int:
    """Return the bytes of a text in UTF-8, or of a byte string; 0 of NULL."""
    if value is None:
        return 0
    return len(value.encode()) if isinstance(value, str) and not value.isascii() else len(value)
