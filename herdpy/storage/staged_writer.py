"""Runs of pages of staged rows, each in key order: in the segment of a checkpoint, or in memory.

The runs of a stage are not one table's levels: a key may be in several of them, and the newest
counts (for some operations the first). A checkpoint's thread writes; nothing it reads changes.
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from herdpy.model.keys import decode_key
from herdpy.model.schema import Table, table_to_plain
from herdpy.storage.manifest import PageRef, TableEdit
from herdpy.storage.page import BuiltPage, Page
from herdpy.storage.segment import Segment, SegmentWriter
from herdpy.storage.table_pages import NO_SEGMENT, PageEntry, TablePages, open_entry

Pieces = Sequence[tuple[bytes, int]]
"""Records of staged rows, in order: their data and their first row id."""
_memory_places = count(0, 64)


class StageDelta(NamedTuple):
    """What came to one stage since the last checkpoint."""

    number: int
    """By which the manifest knows the stage, beside the tables."""
    table: Table
    before: TablePages
    pieces: Pieces
    keeps_repeats: bool
    """Rows of one key are not lost, because they are an error to be told."""
    is_first_kept: bool
    """Of several rows of one key the first counts, and not the last."""
    is_new: bool


def write_page(writer: SegmentWriter, built: BuiltPage, run: int) -> PageRef:
    """Add a page to a segment and return the reference to it."""
    place = writer.append_page(built.data)
    return PageRef(writer.number, *place, built.row_count, built.low_key, built.high_key, run)


class StageDraft:
    """One stage's part of a segment while it is written."""

    def __init__(self, delta: StageDelta) -> None:
        self._delta = delta
        self._added: list[PageRef] = []

    def write(self, writer: SegmentWriter) -> None:
        from herdpy.storage.arrow_runs import staged_runs

        delta = self._delta
        newest = max((entry.ref.run for entry in delta.before.entries()), default=0)
        runs = staged_runs(
            delta.table,
            delta.pieces,
            keeps_repeats=delta.keeps_repeats,
            is_first_kept=delta.is_first_kept,
        )
        for run, pages in enumerate(runs, newest + 1):
            for built in pages:
                self._added.append(write_page(writer, built, run))

    def pages_after(self, segment: Segment) -> TablePages:
        """Return the stage's pages over the finished segment."""
        table, before = self._delta.table, self._delta.before
        added = [open_entry(table, ref, {segment.number: segment}) for ref in self._added]
        return TablePages.of_entries(table, [*before.entries(), *added])

    def edit(self) -> TableEdit:
        definition = table_to_plain(self._delta.table) if self._delta.is_new else None
        return TableEdit(self._delta.number, definition=definition, pages_added=tuple(self._added))


def memory_entries(
    table: Table, pieces: Pieces, *, keeps_repeats: bool, is_first_kept: bool
) -> list[list[PageEntry]]:
    """Return runs of pages that no segment has yet."""
    from herdpy.storage.arrow_runs import staged_runs

    kinds = table.key_kinds
    found: list[list[PageEntry]] = []
    for run in staged_runs(table, pieces, keeps_repeats=keeps_repeats, is_first_kept=is_first_kept):
        entries: list[PageEntry] = []
        for built in run:
            low, high = built.low_key, built.high_key
            place = next(_memory_places)
            ref = PageRef(NO_SEGMENT, place, len(built.data), built.row_count, low, high)
            page = Page(memoryview(built.data), table, where="memory", row_count=built.row_count)
            keys = (decode_key(low, kinds), decode_key(high, kinds))
            entries.append(PageEntry(page, ref, *keys, None))
        found.append(entries)
    return found
