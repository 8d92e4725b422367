"""What changed rows take in memory, in an open transaction or a memtable: about, and soon told.

A row is a tuple with an object for each cell, under a key in a dict, within a version; a
transaction has a lock for it, too. What is measured is what tracemalloc sees of all that, to within
a third. Objects that rows share (NULL, truth values, small integers, a constant of the statement)
count once. Many rows are told by some of them and by the length of them all in the log, so that a
long one among short ones counts, seen or not.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from sys import getsizeof

from herdpy.model.types import Row

ROW_BYTES = 285
"""Beside tuple and cells: the version, the key, their places in dicts and lists."""
short_change_bytes = 200
"""In the log: encoded_row_bytes() tells enough then, though they are of the row before, too."""
_TUPLE_BYTES = 56  # beside its items
_ITEM_BYTES = 8
_OBJECT_BYTES = 32  # of a cell, beside its content
_SAMPLE_ROWS = 64
_SINGLETONS = (None, True, False, *range(-5, 257), "", *map(chr, range(256)), b"")
_SHARED = frozenset(map(id, _SINGLETONS))
"""Objects of which CPython has one each: no row takes memory for them."""


def encoded_row_bytes(byte_count: int, cell_count: int) -> int:
    """Return about what a row takes, from its length in the log.

    A cell of one byte there (NULL, a truth value, a small integer) is an object that all share.
    """
    objects = min(max(byte_count - cell_count, 0) // 2, cell_count)
    return (
        ROW_BYTES + _TUPLE_BYTES + _ITEM_BYTES * cell_count + _OBJECT_BYTES * objects + byte_count
    )


def encoded_rows_bytes(byte_counts: Sequence[int], cell_count: int) -> int:
    """Return the sum of encoded_row_bytes() of rows."""
    if min(byte_counts) >= 3 * cell_count:  # each cell of each row is an object of its own
        held = encoded_row_bytes(3 * cell_count, cell_count) - 3 * cell_count
        return held * len(byte_counts) + sum(byte_counts)
    return sum(encoded_row_bytes(byte_count, cell_count) for byte_count in byte_counts)


def row_bytes(row: Row) -> int:
    """Return about what one row takes; of a deletion, the key."""
    held = sum([getsizeof(value) for value in row if id(value) not in _SHARED])
    return ROW_BYTES + _TUPLE_BYTES + _ITEM_BYTES * len(row) + held


def rows_bytes(
    rows: Sequence[Row | None],
    byte_count: int = 0,
    encoded_bytes: Callable[[int], int] | None = None,
) -> int:
    """Return about what rows take; None: a deletion, which has a key alone.

    byte_count is the length of all of them in the log, and encoded_bytes(i) that of the one at i.
    """
    row_count = len(rows)
    step = -(-row_count // _SAMPLE_ROWS) or 1
    sample = rows[::step]
    there = [row for row in sample if row is not None]
    cells = list(chain.from_iterable(there))
    distinct = dict(zip(map(id, cells), cells, strict=True))
    held = sum(map(getsizeof, distinct.values())) + sum(map(getsizeof, there))
    if step == 1 or encoded_bytes is None:
        return ROW_BYTES * row_count + held * row_count // max(len(sample), 1)
    seen = sum(map(encoded_bytes, range(0, row_count, step)))
    return ROW_BYTES * row_count + max(byte_count + (held - seen) * row_count // len(sample), 0)
