"""Levels of pages that overlap: which rows hide others, and all of them as one level.

The key space is cut where pages begin, so that a few hundred thousand rows are looked at at a time,
or, of long ones, so many that their pages have some eight megabytes.
Any thread.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from herdpy.limits import page_bytes_max, page_rows_max
from herdpy.model.schema import Table
from herdpy.model.types import Key
from herdpy.storage.arrow import ALL_LIVE, bits_array, column_array, pc
from herdpy.storage.arrow_keys import comparable, repeats, sorted_order
from herdpy.storage.arrow_pages import build_pages
from herdpy.storage.page import BuiltPage
from herdpy.storage.table_pages import PageEntry

_PART_PAGES = 64
_PART_BYTES = 8 * 1024 * 1024

Shadows = dict[PageEntry, int]
"""Bits of rows, the lowest first."""


def shadows(
    table: Table, levels: Sequence[Sequence[PageEntry]], *, is_first_kept: bool = False
) -> Shadows:
    """Return the live rows whose key has a live row in a later level (or in an earlier one).

    The entries of a level are disjoint, and in key order.
    """
    found: Shadows = {}
    level_of = {entry: place for place, level in enumerate(levels) for entry in level}
    for low, high, entries in _parts(levels):
        if len({level_of[entry] for entry in entries}) < 2:
            continue
        _look(table, low, high, entries, found, is_first_kept=is_first_kept)
    return found


_Part = tuple[Key, Key, list[PageEntry]]


def _parts(levels: Sequence[Sequence[PageEntry]]) -> Iterator[_Part]:
    """Yield ranges of keys (from, to; () is open) with the entries that reach into them.

    Entries in the order of their levels; nothing for a range without any.
    """
    order = {entry: place for place, level in enumerate(levels) for entry in level}
    entries = sorted(order, key=lambda entry: entry.low)
    open_now: list[PageEntry] = []
    low: Key = ()
    begun = begun_bytes = 0
    for place, entry in enumerate(entries):
        is_gap = all(each.high < entry.low for each in open_now)
        is_much = begun >= _PART_PAGES or begun_bytes >= _PART_BYTES
        if open_now and (is_gap or is_much) and entry.low > low:
            yield low, entry.low, sorted(open_now, key=order.__getitem__)
            open_now = [each for each in open_now if each.high >= entry.low]
            low, begun, begun_bytes = entry.low, 0, 0
        elif not open_now:
            low = entry.low
        open_now.append(entry)
        begun += 1
        begun_bytes += entry.ref.length
        if place + 1 == len(entries):
            yield low, (), sorted(open_now, key=order.__getitem__)


def _look(
    table: Table,
    low: Key,
    high: Key,
    entries: Sequence[PageEntry],
    found: Shadows,
    *,
    is_first_kept: bool,
) -> None:
    slices = _slices(low, high, entries)
    if len(slices) < 2:
        return
    columns = [
        pa.concat_arrays([_plain(entry, ordinal, start, stop) for entry, start, stop in slices])
        for ordinal in table.key
    ]
    live = pa.concat_arrays([_live(entry, start, stop) for entry, start, stop in slices])
    positions = None
    keys = comparable(table, columns)
    if not pc.all(live).as_py():
        positions = pc.indices_nonzero(live)
        keys = [key.take(positions) for key in keys]
    order = sorted_order(keys)
    if order is None:
        return
    is_repeat = repeats([key.take(order) for key in keys])
    if is_repeat is None:
        return
    if not is_first_kept:
        is_repeat = pa.concat_arrays([is_repeat.slice(1), pa.array([False])])
    dead = order.filter(is_repeat)
    if positions is not None:
        dead = positions.take(dead)
    _mark(pc.sort_indices(dead), dead, slices, found)


def _slices(low: Key, high: Key, entries: Sequence[PageEntry]) -> list[tuple[PageEntry, int, int]]:
    """Return the rows of entries within a range: (entry, start, stop)."""
    found: list[tuple[PageEntry, int, int]] = []
    for entry in entries:
        start = entry.page.lower_bound(low, is_inclusive=True) if low else 0
        stop = entry.page.lower_bound(high, is_inclusive=True) if high else entry.row_count
        if start < stop:
            found.append((entry, start, stop))
    return found


def merged_pages(
    table: Table, levels: Sequence[Sequence[PageEntry]], low: Key = (), high: Key = ()
) -> Iterator[BuiltPage]:
    """Yield the live rows of levels as full pages, ascending by key; no key lives twice.

    Only keys from `low` up to, and not with, `high`; () is open.
    """
    rest: list[Any] | None = None
    ordinals = range(len(table.columns))
    for begin, end, entries in _parts(levels):
        begin = max(begin, low)
        end = min(end, high) if end and high else end or high
        slices = _slices(begin, end, entries) if not end or begin < end else []
        if not slices:
            continue
        live = pa.concat_arrays([_live(*each) for each in slices])
        columns = [
            pa.concat_arrays([_plain(s[0], i, s[1], s[2]) for s in slices]) for i in ordinals
        ]
        if not pc.all(live).as_py():
            columns = [array.filter(live) for array in columns]
        order = sorted_order(comparable(table, [columns[each] for each in table.key]))
        if order is not None:
            columns = [array.take(order) for array in columns]
        if rest is not None:
            columns = [pa.concat_arrays(list(pair)) for pair in zip(rest, columns, strict=True)]
        count = len(columns[0])
        whole = count - count % page_rows_max
        if sum(array.slice(whole).nbytes for array in columns) >= page_bytes_max // 2:
            whole = count  # rows so long fill pages before they are many
        yield from build_pages(table, [array.slice(0, whole) for array in columns])
        rest = [pa.concat_arrays([array.slice(whole)]) for array in columns]
    if rest is not None:
        yield from build_pages(table, rest)


def _mark(
    order: Any, dead: Any, slices: Sequence[tuple[PageEntry, int, int]], found: Shadows
) -> None:
    """Set the bits of rows, given by their places in the slices one behind the other."""
    places: list[int] = dead.take(order).to_pylist()
    at = begin = 0
    for entry, start, stop in slices:
        end = begin + stop - start
        flags = bytearray((entry.row_count + 7) // 8)
        first = at
        while at < len(places) and places[at] < end:
            row = places[at] - begin + start
            flags[row >> 3] |= 1 << (row & 7)
            at += 1
        if at > first:
            found[entry] = found.get(entry, 0) | int.from_bytes(flags, "little")
        begin = end


def _plain(entry: PageEntry, ordinal: int, start: int, stop: int) -> Any:
    array: Any = column_array(entry, ordinal).slice(start, stop - start)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _live(entry: PageEntry, start: int, stop: int) -> Any:
    if entry.dead is None:
        return ALL_LIVE.slice(0, stop - start)
    dead = int.from_bytes(entry.dead, "little")
    bits = (((1 << entry.row_count) - 1) ^ dead) >> start & ((1 << (stop - start)) - 1)
    return bits_array(bits, stop - start)
