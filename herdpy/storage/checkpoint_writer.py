"""What a checkpoint writes: one segment with the changed rows as pages, and deletion bitmaps.

Pure of the engine: it takes what changed and returns what to list in the manifest. Its cost is
bounded by the changes. It is run by one thread; nothing it reads changes meanwhile.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from herdpy.errors import InvariantViolation
from herdpy.limits import page_rows_max
from herdpy.model.schema import Table, table_to_plain
from herdpy.model.types import Key, Row
from herdpy.storage.manifest import NewSegment, PageRef, TableEdit
from herdpy.storage.page import build_page, split_rows
from herdpy.storage.segment import Segment, SegmentFolder, SegmentWriter
from herdpy.storage.staged_writer import Draft, StageDelta, StageDraft
from herdpy.storage.table_pages import PageEntry, TablePages


class TableDelta(NamedTuple):
    """One table's changes: (key, row or None for deleted), ascending by key, each key once.

    is_new puts the definition into the edit: the table is new or its definition changed. `listed`
    is given when `before` is not what the manifest lists, but what is to be listed with this.
    """

    table: Table
    before: TablePages
    changes: Sequence[tuple[Key, Row | None]]
    is_new: bool = False
    listed: tuple[PageRef, ...] | None = None


class WrittenDelta(NamedTuple):
    """What to list: segments and edits; what to read from then on, by table id."""

    segments: tuple[NewSegment, ...]
    edits: tuple[TableEdit, ...]
    pages: dict[int, TablePages]
    segment: Segment | None
    staged: dict[int, TablePages]
    """Of stages, by number."""


def write_delta(
    folder: SegmentFolder,
    segment_number: int,
    deltas: Sequence[TableDelta],
    stages: Sequence[StageDelta] = (),
) -> WrittenDelta:
    """Write and sync one segment for all deltas, or nothing when no row changed.

    On return the segment's content is durable; its name is not: the caller syncs the directory,
    then appends the edits to the manifest. On any exception the segment is removed again and
    nothing happened (OSError: the disk's; InvariantViolation: a delta is not in order).
    """
    writer: SegmentWriter | None = None
    drafts: list[_Draft] = []
    staged: dict[int, StageDraft] = {}
    try:
        for delta in deltas:
            draft = _Draft(delta)
            drafts.append(draft)
            if draft.is_writing:
                writer = writer or folder.writer(segment_number)
                draft.write(writer)
        for stage in stages:
            staged[stage.number] = stage_draft = StageDraft(stage)
            writer = writer or folder.writer(segment_number)
            stage_draft.write(writer)
        segments: tuple[NewSegment, ...] = ()
        segment = None
        if writer is not None:
            writer.finish()
            segment = writer.opened()
            segments = (writer.listed,)
        pages = {draft.table.id: draft.pages_after(segment) for draft in drafts}
        stage_pages = {n: draft.pages_over(segment) for n, draft in staged.items() if segment}
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    edits = [edit for draft in drafts if (edit := draft.edit()) is not None]
    edits += [draft.edit() for draft in staged.values()]
    return WrittenDelta(segments, tuple(edits), pages, segment, stage_pages)


def split_evenly(table: Table, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Cut rows into pages as full as can be, but for the last two, which share evenly.

    Else a few rows more than a page holds would leave a tiny page behind, and another one with
    every next merge.
    """
    pieces: list[Sequence[Row]] = list(split_rows(table, rows))
    if len(pieces) > 1 and len(pieces[-1]) * 2 < len(pieces[-2]):
        tail = [*pieces[-2], *pieces[-1]]
        middle = len(tail) // 2
        pieces[-2:] = [*split_rows(table, tail[:middle]), *split_rows(table, tail[middle:])]
    return pieces


def split_for_levels(
    table: Table, rows: Sequence[Row], base: TablePages
) -> Iterator[tuple[Sequence[Row], bool]]:
    """Cut ascending rows into pages, each with whether it belongs to the base.

    A page that overlaps no base page does, if it is about full or the base is empty: small pages
    wait in a run until there are more rows. Rows behind the last base page have pages of their
    own, so that a table that grows at its end is not held up by updates.
    """
    if not base.base:
        for piece in split_rows(table, rows):
            yield piece, True
        return
    cut = bisect_right(rows, base.base[-1].high, key=table.key_of)
    for part in (rows[:cut], rows[cut:]):
        pieces = list(split_rows(table, part))
        for position, piece in enumerate(pieces):
            is_full = position + 1 < len(pieces) or len(piece) * 2 >= page_rows_max
            low, high = table.key_of(piece[0]), table.key_of(piece[-1])
            yield piece, is_full and not base.overlaps(low, high)


class _Draft(Draft):
    """One table's part of the segment while it is written."""

    def __init__(self, delta: TableDelta) -> None:
        super().__init__(delta.table, delta.before.for_table(delta.table))
        self._is_new = delta.is_new
        self._rows: list[Row] = []
        self._listed = delta.listed
        self._after: TablePages | None = None
        dead: dict[PageEntry, bytearray] = {}
        self._in_memory: list[PageEntry] = []
        if delta.listed is not None:
            entries = list(self.before.entries())
            dead = {e: bytearray(e.dead or b"") for e in entries if e.has_unlisted_bitmap}
            self._in_memory = [entry for entry in entries if entry.is_in_memory]
        last: Key | None = None
        locate, highest = self.before.locate, self.before.highest
        for key, row in delta.changes:
            if last is not None and key <= last:
                raise InvariantViolation(f"checkpoint: key {key} follows {last}")
            last = key
            found = locate(key) if key <= highest else None
            if found is not None:
                entry, index = found
                if entry not in dead:
                    dead[entry] = bytearray(entry.dead or bytes((entry.row_count + 7) // 8))
                dead[entry][index >> 3] |= 1 << (index & 7)
            if row is not None:
                self._rows.append(row)
        counts = {entry: int.from_bytes(bits, "little").bit_count() for entry, bits in dead.items()}
        self.removed = {entry: None for entry, n in counts.items() if n == entry.row_count}
        self._dead = [
            (entry, bytes(bits), counts[entry])
            for entry, bits in dead.items()
            if counts[entry] < entry.row_count
        ]

    @property
    def is_writing(self) -> bool:
        return bool(self._rows or self._dead or self._in_memory)

    def write(self, writer: SegmentWriter) -> None:
        for entry, dead, dead_count in self._dead:
            self.mark(writer, entry, dead, dead_count)
        bitmaps = {entry: ref for entry, ref, _ in self.marked}
        for entry in self._in_memory:
            if entry not in self.removed:
                self.copy(writer, entry, bitmaps.get(entry))
        kept = tuple(entry for entry in self.before.base if entry not in self.removed)
        run = 1 + max((entry.ref.run for entry in self.before.entries()), default=0)
        pieces = split_for_levels(self.table, self._rows, TablePages(self.table, kept))
        for rows, is_base in pieces:
            self.add(writer, build_page(self.table, rows), 0 if is_base else run)

    def pages_after(self, segment: Segment | None) -> TablePages:
        self._after = self.before
        if self.is_writing or self.removed:
            self._after = self.pages_over(segment, self._in_memory)
        return self._after

    def edit(self) -> TableEdit | None:
        if self._listed is not None and self._after is not None:
            return self._difference(self._listed, self._after)
        if not (self.is_writing or self.removed or self._is_new):
            return None
        return self.listing(self.table.id, is_new=self._is_new)

    def _difference(self, listed: tuple[PageRef, ...], after: TablePages) -> TableEdit:
        """Return what makes of the pages that are listed those that are there."""
        known = {(ref.segment, ref.offset): ref for ref in listed}
        entries = {entry.place: entry.ref for entry in after.entries()}
        return TableEdit(
            self.table.id,
            definition=table_to_plain(self.table) if self._is_new else None,
            pages_added=tuple(ref for place, ref in entries.items() if place not in known),
            pages_removed=tuple(place for place in known if place not in entries),
            bitmaps=tuple(
                (*place, ref.bitmap)
                for place, ref in entries.items()
                if place in known and ref.bitmap is not None and ref.bitmap != known[place].bitmap
            ),
        )
