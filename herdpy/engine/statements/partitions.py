"""partitions(): cut a table by its key into ranges that hold about as many rows each.

Pages say where rows are; where there are too few of them, keys are drawn out of pages and of what
lies in memory. Bounds lie between keys that are or were there; the first range is open at its
beginning and the last one at its end, so that every row is in exactly one of them at any snapshot.
Any thread, on a snapshot of its own.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from herdpy.engine.state.snapshots import TableSnapshot
from herdpy.model.types import Key
from herdpy.storage.table_pages import PageEntry

_DRAWS = 32
"""Keys that are looked at for each partition, about."""
_ROW_BYTES = 64
"""Of a row in memory, on disk."""


class Part(NamedTuple):
    """Rows with low <= key < high (None: open), estimated."""

    low: Key | None
    high: Key | None
    row_count: int
    byte_count: int


class _Draw(NamedTuple):
    """A key, for so many rows from it on."""

    key: Key
    rows: float
    byte_count: float


def partitions(source: TableSnapshot, count: int) -> list[Part]:
    """Return at most `count` parts in key order, at least one."""
    draws = sorted(_draws(source, count), key=lambda draw: draw.key)
    total = sum(draw.rows for draw in draws)
    cuts: list[Key | None] = [None]
    rows: list[float] = [0.0]
    sizes: list[float] = [0.0]
    seen = 0.0
    for draw in draws:
        # The next part begins where this key brings the parts so far to their share.
        is_share = seen * count >= total * len(cuts)
        last = cuts[-1]
        if is_share and seen and len(cuts) < count and (last is None or last < draw.key):
            cuts.append(draw.key)
            rows.append(0.0)
            sizes.append(0.0)
        seen += draw.rows
        rows[-1] += draw.rows
        sizes[-1] += draw.byte_count
    bounds = pairwise([*cuts, None])
    return [
        Part(low, high, round(part_rows), round(part_bytes))
        for (low, high), part_rows, part_bytes in zip(bounds, rows, sizes, strict=True)
    ]


def _draws(source: TableSnapshot, count: int) -> Iterator[_Draw]:
    pages = source.pages
    entries = list(pages.entries()) if pages is not None else []
    wanted = _DRAWS * count
    live = sum(entry.row_count - entry.dead_count for entry in entries)
    total = max(live + sum(map(len, source.memtables)), 1)
    for entry in entries:
        yield from _draws_of_page(entry, wanted / total)
    step = max(total // wanted, 1)
    for memtable in source.memtables:
        for keys, start, stop in memtable.spans(None, None, low_open=False, high_open=False):
            for at in range(start, stop, step):
                weight = min(step, stop - at)
                yield _Draw(keys[at], weight, weight * _ROW_BYTES)


def _draws_of_page(entry: PageEntry, per_row: float) -> Iterator[_Draw]:
    """Yield keys of a page, the first of them at least."""
    count = entry.row_count
    draws = min(max(round(count * per_row), 1), count)
    live = (count - entry.dead_count) / draws
    for number in range(draws):
        key = entry.low if number == 0 else entry.page.key(number * count // draws)
        yield _Draw(key, live, entry.ref.length * live / count)
