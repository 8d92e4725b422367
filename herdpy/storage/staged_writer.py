"""What a checkpoint writes of staged rows: runs of pages, each in key order, in its segment.

The runs of a stage are not one table's levels: a key may be in several of them, and the newest
counts. Run by the thread that writes the checkpoint; nothing it reads changes meanwhile.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from herdpy.model.schema import Table, table_to_plain
from herdpy.model.types import Key, Row
from herdpy.storage.manifest import PageRef, TableEdit
from herdpy.storage.page import build_page, split_rows
from herdpy.storage.segment import Segment, SegmentWriter
from herdpy.storage.table_pages import TablePages, open_entry


class StageDelta(NamedTuple):
    """What came to one stage since the last checkpoint."""

    number: int
    """By which the manifest knows the stage, beside the tables."""
    table: Table
    before: TablePages
    pieces: Sequence[Callable[[], list[Row]]]
    """The rows that came, in order."""
    keeps_repeats: bool
    """Rows of one key are all kept, in runs of their own, because they are an error to be told."""
    is_first_kept: bool
    """Of several rows of one key the first counts, and not the last."""
    is_new: bool


class StageDraft:
    """One stage's part of a segment while it is written."""

    def __init__(self, delta: StageDelta) -> None:
        self._delta = delta
        self._added: list[PageRef] = []

    def write(self, writer: SegmentWriter, number: int) -> None:
        delta = self._delta
        run = 1 + max((entry.ref.run for entry in delta.before.entries()), default=0)
        rows: dict[Key, Row] = {}
        repeats: dict[Key, Row] = {}
        key_of = delta.table.key_of
        for read in delta.pieces:
            for row in read():
                key = key_of(row)
                if key not in rows:
                    rows[key] = row
                elif delta.keeps_repeats:
                    repeats[key] = row
                elif not delta.is_first_kept:
                    rows[key] = row
        for found in (rows, repeats):
            if found:
                self._write_run(writer, number, run, [found[key] for key in sorted(found)])
                run += 1

    def _write_run(self, writer: SegmentWriter, number: int, run: int, rows: Sequence[Row]) -> None:
        for piece in split_rows(self._delta.table, rows):
            built = build_page(self._delta.table, piece)
            place = writer.append(built.data)
            self._added.append(
                PageRef(number, *place, built.row_count, built.low_key, built.high_key, run)
            )

    def pages_after(self, segment: Segment) -> TablePages:
        """Return the stage's pages over the finished segment."""
        table, before = self._delta.table, self._delta.before
        added = [open_entry(table, ref, {segment.number: segment}) for ref in self._added]
        return TablePages.of_entries(table, [*before.entries(), *added])

    def edit(self) -> TableEdit:
        definition = table_to_plain(self._delta.table) if self._delta.is_new else None
        return TableEdit(self._delta.number, definition=definition, pages_added=tuple(self._added))
