"""What DuckDB makes at once of long texts, which its limit of memory does not count.

DuckDB computes 2,048 values at a time, at up to 64 MiB each: gigabytes beyond its limit. The macros
(sql/macros.py) pass vector_room() the sizes of the values to come, in bytes, of those that are not
small; it returns them, or raises 53200 before the memory is taken. Results that may be as wide come
in short batches: batch_rows().
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from herdpy.exec.vector.arrow_columns import pc
from herdpy.limits import value_bytes_max

_BATCH_ROWS = 10_240  # a multiple of DuckDB's vectors of 2,048 rows
_BATCH_ROWS_WIDE = 64  # which takes DuckDB ten times as long for each row as above: 0.3 µs
_WIDE_BYTES = 4 * 1024
"""Of a text: a batch of shorter ones has 40 MiB."""
_GROWING = re.compile(r"\bh_(?:repeat|lpad|rpad|replace|room|made)\(")


def register(connection: Any, room_bytes: int) -> None:
    """Give a connection of DuckDB, and all its cursors, vector_room(): so much for each vector."""
    connection.create_function(
        "vector_room",
        room_check(room_bytes),
        ["BIGINT"],
        "BIGINT",
        type="arrow",
        null_handling="special",
    )


def room_check(room_bytes: int) -> Callable[[Any], Any]:
    """Return what takes sizes, and returns them where they fit; one that is too long is no part.

    Of that one the macro says so, which has the test.
    """

    def vector_room(sizes: Any) -> Any:
        # Called by DuckDB's threads, and where it computes constants as it plans.
        counted = pc.if_else(pc.greater(sizes, value_bytes_max), pa.scalar(0, pa.int64()), sizes)
        total = pc.sum(counted).as_py() or 0
        if total > room_bytes:
            raise ValueError(
                f"herdpy:53200:{total:,} bytes of texts at once, expected at most {room_bytes:,}"
            )
        return sizes

    return vector_room


def batch_rows(sql: str, tables: Iterable[pa.Table], parameters: Iterable[Any]) -> int:
    """Return how many rows a batch of a query's result may have: few where texts may be long."""
    is_wide = (
        len(sql) > 2 * _WIDE_BYTES
        or _GROWING.search(sql) is not None
        or any(isinstance(value, str | bytes) and len(value) > _WIDE_BYTES for value in parameters)
        or any(_width(column) > _WIDE_BYTES for table in tables for column in table.columns)
    )
    return _BATCH_ROWS_WIDE if is_wide else _BATCH_ROWS


def _width(column: Any) -> float:
    """Return the bytes of a value in the widest page, on average; 0 of numbers."""
    kind = column.type
    if not (pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return 0
    pages: Iterable[Any] = column.chunks
    if pa.types.is_dictionary(kind):
        pages = [page.dictionary for page in pages]
    return max((page.nbytes / max(len(page), 1) for page in pages), default=0)
