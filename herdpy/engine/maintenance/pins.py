"""Pins: what a checkpoint writes so that the leases taken since the last one need no memory.

For each lease the rows that lie in memory at its position go over the pages of its tables, as far
as these rows are not the checkpoint's own. Called by the checkpoint; nothing that it reads
loses a version meanwhile, because the leases hold them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from herdpy.engine.state.memtable import visible_rows
from herdpy.engine.state.state import State
from herdpy.model.schema import table_to_plain
from herdpy.storage.checkpoint_writer import TableDelta, WrittenDelta, write_delta
from herdpy.storage.manifest import NewSegment, Pin
from herdpy.storage.manifest import TableState as Listed
from herdpy.storage.segment import SegmentFolder
from herdpy.storage.table_pages import TablePages


class LeaseAt(NamedTuple):
    """A lease that needs versions in memory, by its id, and what it sees."""

    id: str
    state: State


class WrittenPins(NamedTuple):
    """What to list: segments, and by lease its pin; and what to read then on."""

    segments: tuple[NewSegment, ...]
    pins: dict[str, Pin]
    pages: dict[str, dict[int, TablePages]]
    """Of each lease, by table id."""


_Made = tuple[TableDelta, TablePages]


def write_pins(
    folder: SegmentFolder,
    segment_number: int,
    written: WrittenDelta,
    deltas: Sequence[TableDelta],
    leases: Sequence[LeaseAt],
) -> WrittenPins:
    """Write what leases see that is in no page; `written` is what a checkpoint made of `deltas`.

    Segments get the numbers behind the checkpoint's, which begin at `segment_number`. Their content
    is durable on return. On any exception some may be left, which are not listed.
    """
    number = segment_number + len(written.segments)
    segments: list[NewSegment] = []
    pins: dict[str, Pin] = {}
    pages: dict[str, dict[int, TablePages]] = {}
    made: dict[int, _Made] = {
        delta.table.id: (delta, written.pages[delta.table.id]) for delta in deltas
    }
    for lease in leases:
        found: dict[int, TablePages] = {}
        missing: list[TableDelta] = []
        for table_id, item in lease.state.tables.items():
            rows = visible_rows(item.memtables, lease.state.position)
            listed = () if item.is_unlisted else None
            delta = TableDelta(item.table, item.pages, rows, listed=listed)
            same = _find(made.get(table_id), delta)
            if not delta.changes and not item.is_unlisted:
                found[table_id] = item.pages
            elif same is not None:
                found[table_id] = same
            else:
                missing.append(delta)
        added = write_delta(folder, number, missing)
        number += len(added.segments)
        segments += added.segments
        found |= added.pages
        made |= {delta.table.id: (delta, added.pages[delta.table.id]) for delta in missing}
        pages[lease.id] = found
        pins[lease.id] = Pin.of({table_id: _listed(each) for table_id, each in found.items()})
    return WrittenPins(tuple(segments), pins, pages)


def _find(made: _Made | None, wanted: TableDelta) -> TablePages | None:
    """Return the pages of a delta that was written, if it is the wanted one."""
    if made is None or made[0].before is not wanted.before:
        return None
    rows, others = wanted.changes, made[0].changes
    if len(rows) != len(others) or any(
        row is not other or key != other_key
        for (key, row), (other_key, other) in zip(rows, others, strict=True)
    ):
        return None
    return made[1]


def _listed(pages: TablePages) -> Listed:
    refs = sorted((entry.ref for entry in pages.entries()), key=lambda ref: (ref.run, ref.low_key))
    return Listed(table_to_plain(pages.table), tuple(refs))
