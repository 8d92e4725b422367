"""Runs of pages of staged rows, each in key order: in the segment of a checkpoint, or in memory.

The runs of a stage are not one table's levels: a key may be in several of them, and the newest
counts (for some operations the first). A checkpoint's thread writes; nothing it reads changes.
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from herdpy.model.keys import decode_key
from herdpy.model.schema import Table, table_to_plain
from herdpy.storage.manifest import BitmapRef, PageRef, TableEdit
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


class Draft:
    """What becomes of a table's pages while a segment is written; `before` are those of now."""

    def __init__(self, table: Table, before: TablePages) -> None:
        self.table = table
        self.before = before
        self.added: list[PageRef] = []
        self.marked: list[tuple[PageEntry, BitmapRef, bytes]] = []
        """Pages that stay, with more dead rows."""
        self.removed: dict[PageEntry, None] = {}

    def add(self, writer: SegmentWriter, built: BuiltPage, run: int) -> None:
        place = writer.append_page(built.data)
        ends = built.low_key, built.high_key
        self.added.append(PageRef(writer.number, *place, built.row_count, *ends, run))

    def copy(self, writer: SegmentWriter, entry: PageEntry, bitmap: BitmapRef | None) -> None:
        """Write a page as it is."""
        offset, length = writer.append_page(entry.page.buffer)
        place = {"segment": writer.number, "offset": offset, "length": length, "bitmap": bitmap}
        self.added.append(msgspec.structs.replace(entry.ref, **place))

    def mark(self, writer: SegmentWriter, entry: PageEntry, dead: bytes, count: int) -> None:
        """Write which rows of a page are dead, so many."""
        place = writer.append_bitmap(dead, entry.row_count, count)
        self.marked.append((entry, BitmapRef(writer.number, *place, count), dead))

    def pages_over(self, segment: Segment | None, gone: Iterable[PageEntry] = ()) -> TablePages:
        """Return the pages when the segment is finished; `gone` go beside those removed."""
        changed = {entry: entry.with_bitmap(ref, dead) for entry, ref, dead in self.marked}
        left = self.removed.keys() | set(gone)
        kept = [changed.get(each, each) for each in self.before.entries() if each not in left]
        segments = {} if segment is None else {segment.number: segment}
        added = [open_entry(self.table, ref, segments) for ref in self.added]
        return TablePages.of_entries(self.table, kept + added)

    def listing(self, table_id: int, *, is_new: bool = False) -> TableEdit:
        """Return what to list in the manifest, with the definition when it is new."""
        return TableEdit(
            table_id,
            definition=table_to_plain(self.table) if is_new else None,
            pages_added=tuple(self.added),
            pages_removed=tuple(entry.place for entry in self.removed),
            bitmaps=tuple((*entry.place, ref) for entry, ref, _ in self.marked),
        )


class StageDraft(Draft):
    """One stage's part of a segment while it is written."""

    def __init__(self, delta: StageDelta) -> None:
        super().__init__(delta.table, delta.before)
        self._delta = delta

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
                self.add(writer, built, run)

    def edit(self) -> TableEdit:
        return self.listing(self._delta.number, is_new=self._delta.is_new)


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
