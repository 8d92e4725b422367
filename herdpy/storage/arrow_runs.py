"""Staged rows as runs of pages: sorted by key, of several rows of one key one. Any thread."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from herdpy.model.schema import Table
from herdpy.storage.arrow import arrow_type, pc
from herdpy.storage.arrow_keys import comparable, repeats, sorted_order
from herdpy.storage.arrow_pages import build_pages
from herdpy.storage.arrow_staged import staged_batches
from herdpy.storage.page import BuiltPage

Columns = list[Any]  # arrays of one length, one for each column of the table


def staged_runs(
    table: Table,
    pieces: Sequence[tuple[bytes, int]],
    *,
    keeps_repeats: bool,
    is_first_kept: bool,
) -> list[list[BuiltPage]]:
    """Return the runs of pages of records (their data and first row id), in the order of these.

    Of several rows of one key the last one counts, or the first. With keeps_repeats the others are
    not lost, but make a second run. CorruptionError: a record is none.
    """
    columns = _columns(table, pieces)
    if not len(columns[0]):
        return []
    keys = comparable(table, [columns[ordinal] for ordinal in table.key])
    order = sorted_order(keys)
    if order is None:
        return [list(build_pages(table, columns))]
    columns = [array.take(order) for array in columns]
    is_repeat = repeats([key.take(order) for key in keys])
    if is_repeat is None:
        return [list(build_pages(table, columns))]
    is_replaced = pa.concat_arrays([is_repeat.slice(1), pa.array([False])])
    dropped = is_repeat if keeps_repeats or is_first_kept else is_replaced
    runs = [_filtered(columns, pc.invert(dropped))]
    if keeps_repeats:
        runs.append(_filtered(columns, pc.and_not(is_repeat, is_replaced)))
    return [list(build_pages(table, run)) for run in runs]


def _filtered(columns: Columns, kept: Any) -> Columns:
    return [array.filter(kept) for array in columns]


def _columns(table: Table, pieces: Sequence[tuple[bytes, int]]) -> Columns:
    """Return whole rows by column; those that no record gives are NULL, row ids are counted."""
    batches = [
        (batch, first_row_id)
        for data, first_row_id in pieces
        for batch in staged_batches(table, data)
    ]
    count = sum(batch.num_rows for batch, _ in batches)
    found: Columns = []
    for ordinal, column in enumerate(table.columns):
        kind: Any = arrow_type(column.type)
        name = f"c{ordinal}"
        if batches and name in batches[0][0].schema.names:
            parts = [batch.column(name) for batch, _ in batches]
        elif column.hidden:
            parts = [_counted(first, batch.num_rows) for batch, first in batches]
        else:
            parts = [pa.nulls(count, kind)]
        found.append(pa.concat_arrays(parts) if parts else pa.array([], kind))
    return found


def _counted(first: int, count: int) -> Any:
    return pa.array(range(first, first + count), pa.int64())
