"""Compaction: which pages of a table are worth writing anew, and the writing of them.

Three kinds of work, all of which leave the live rows as they are:

- *stretches*: adjacent base pages are merged with the L0 rows of their key range into full,
  disjoint base pages. Worth it for a page whose dead rows, or whose L0 rows, are a fifth of it,
  and for small neighbours that fit into one page.
- *runs*: L0 runs of like size become one run, as soon as there are as many as allowed. It costs
  what lies in L0 and not what lies under it, so random updates of a big table do not rewrite the
  table at every fourth checkpoint. Pages that overlap no base page join the base.
- *moves*: what is left in a segment that is mostly garbage is copied as it is, so that the file
  can go.

Pure of the engine; one thread at a time, nothing it reads changes meanwhile.
"""

from bisect import bisect_right
from collections.abc import Sequence, Set
from typing import NamedTuple

from herdpy.limits import l0_runs_max, page_bytes_max, page_rows_max
from herdpy.model.keys import decode_key
from herdpy.model.types import Key, Row
from herdpy.storage.checkpoint_writer import split_evenly, split_for_levels
from herdpy.storage.manifest import BitmapRef, ManifestState, NewSegment, TableEdit
from herdpy.storage.page import build_page
from herdpy.storage.segment import Segment, SegmentFolder, SegmentWriter
from herdpy.storage.staged_writer import Draft
from herdpy.storage.table_pages import PageEntry, TablePages

_WORTH_SHARE = 0.2
"""Of a page's rows: with so many dead, or so many L0 rows over it, it is written anew."""
_SMALL_SHARE = 0.25
"""Of page_rows_max: smaller pages are merged with neighbours if they fit into one page."""
_SPARSE_SHARE = 0.3
"""Of a segment's bytes: with less than this in use, the rest moves out."""
_SPARSE_BYTES_MIN = 1024 * 1024
"""Of garbage in a segment: with less, it may stay."""
_URGENT_SHARE = 0.5
"""Of a table's rows: with so many in L0, compaction does not wait for its budget."""
_BITMAP_BYTES = 640
"""Of a page at most, with header and alignment."""
_LISTED_BYTES = 128
"""Of the manifest at most, beside two keys, for a page that goes and the one that comes for it."""
_UNEVEN = 1.25
"""What is alive of a page may have the longer rows."""
_JOB_PAGES_MAX = 32
_MANY_ROWS = 50_000
_MANY_BYTES = 8 * 1024 * 1024
"""Of pages: rows beyond this, or so many, are merged as Arrow columns, part by part."""
_JOB_BYTES_MAX = 32 * 1024 * 1024
_COPIES = 5
"""Of what is merged at one time: as in its pages, as columns, sorted, as rows, as a new page."""
_ROW_BYTES = 300
"""Of memory for a row as Python objects, beside its texts."""


class Job(NamedTuple):
    """One piece of work on one table, small enough to be done at once.

    stretches are ranges of positions in TablePages.base, ascending and apart; runs are positions
    in TablePages.runs; moves are entries that lie, or whose bitmap lies, in a sparse segment; thins
    are entries that are written anew where they are in the key's order, without their dead rows.
    All but one of these are empty. score says how much it is worth; is_urgent, that it should not
    wait for a budget.
    """

    stretches: tuple[tuple[int, int], ...] = ()
    runs: tuple[int, ...] = ()
    moves: tuple[PageEntry, ...] = ()
    thins: tuple[PageEntry, ...] = ()
    score: float = 0.0
    is_urgent: bool = False


class WrittenJob(NamedTuple):
    """What to list in the manifest, and what to read from then on."""

    segments: tuple[NewSegment, ...]
    edit: TableEdit
    pages: TablePages

    @property
    def byte_count(self) -> int:
        return sum(segment.byte_count for segment in self.segments)


# --- choosing ------------------------------------------------------------------------------------


def sparse_segments(state: ManifestState) -> frozenset[int]:
    """Return the segments of which little is in use."""
    used: dict[int, int] = dict.fromkeys(state.segments, 0)
    for table in state.tables.values():
        for page in table.pages:
            used[page.segment] += page.length
            if page.bitmap is not None:
                used[page.bitmap.segment] += page.bitmap.length
    return frozenset(
        number
        for number, byte_count in state.segments.items()
        if used[number] < byte_count * _SPARSE_SHARE
        and byte_count - used[number] >= _SPARSE_BYTES_MIN
    )


def plan_job(pages: TablePages, sparse: Set[int] = frozenset()) -> Job | None:
    """Return the work most worth doing on a table, None when there is none."""
    return _plan_stretches(pages) or plan_runs(pages) or _plan_moves(pages, sparse)


def plan_runs(pages: TablePages) -> Job | None:
    """Return the merge of runs that makes room for one more, None when there is room."""
    runs = pages.runs
    if len(runs) < l0_runs_max:
        return None
    counts = [sum(entry.row_count - entry.dead_count for entry in run) for run in runs]
    order = sorted(range(len(runs)), key=lambda position: counts[position])
    # Two at least, and then every run that is not bigger than all before it together: a row is
    # written again only when its run has about doubled.
    needed = len(runs) - l0_runs_max + 2
    total = sum(counts[position] for position in order[:needed])
    while needed < len(order) and counts[order[needed]] <= total:
        total += counts[order[needed]]
        needed += 1
    return Job(runs=tuple(sorted(order[:needed])), score=1.0, is_urgent=True)


def _plan_moves(pages: TablePages, sparse: Set[int]) -> Job | None:
    moves: list[PageEntry] = []
    byte_count = 0
    for entry in pages.entries() if sparse else ():
        bitmap = entry.ref.bitmap
        if entry.ref.segment in sparse or (bitmap is not None and bitmap.segment in sparse):
            byte_count += entry.ref.length if entry.ref.segment in sparse else 0
            if moves and byte_count > _JOB_BYTES_MAX:
                break
            moves.append(entry)
    return Job(moves=tuple(moves)) if moves else None


def bytes_out_of(pages: TablePages) -> dict[int, int]:
    """Return for each segment what jobs write to move a table's pages out of it, by its number.

    As job_bytes(), with what the manifest takes.
    """
    found: dict[int, int] = {}
    for entry in pages.entries():
        bitmap = entry.ref.bitmap
        byte_count = _live_bytes(entry) if _is_worth_thinning(entry) else _whole_bytes(entry)
        for number in {entry.ref.segment, bitmap.segment if bitmap else entry.ref.segment}:
            found[number] = found.get(number, 0) + byte_count
    return found


def job_out_of(pages: TablePages, segment: int) -> Job | None:
    """Return the next job that moves a table's pages out of a segment, None when none is there.

    Pages with many dead rows are written without them, the others are copied; rows of other
    pages stay where they are, so that this takes no more than what is alive of the segment.
    """
    chosen: list[PageEntry] = []
    byte_count = 0
    for entry in pages.entries():
        if entry.ref.segment == segment and _is_worth_thinning(entry):
            byte_count += entry.ref.length
            if chosen and (byte_count > _JOB_BYTES_MAX or len(chosen) >= _JOB_PAGES_MAX):
                break
            chosen.append(entry)
    return Job(thins=tuple(chosen)) if chosen else _plan_moves(pages, {segment})


def job_bytes(pages: TablePages, job: Job) -> int:
    """Return about what a job is going to write, rather too much.

    In its segment, and in the manifest, which names each page with its first and last key.
    """
    found = sum(map(_whole_bytes, job.moves)) + sum(map(_live_bytes, job.thins))
    found += sum(_live_bytes(entry) for position in job.runs for entry in pages.runs[position])
    for start, stop in job.stretches:
        found += sum(map(_live_bytes, pages.base[start:stop]))
        low = pages.base[start].low if start else ()
        high = pages.base[stop].low if stop < len(pages.base) else ()
        for run in pages.runs:
            for entry in run:
                if (rows := _rows_between(entry, low, high)) is not None:
                    found += entry.ref.length * (rows[1] - rows[0]) // entry.row_count
                    found += _BITMAP_BYTES + _listed_bytes(entry)
    return found


def job_memory_bytes(pages: TablePages, job: Job) -> int:
    """Return about what a job takes in memory while it is written, one part after the other."""
    entries = [*job.moves, *job.thins]
    entries += [entry for position in job.runs for entry in pages.runs[position]]
    for start, stop in job.stretches:
        entries += pages.base[start:stop]
    rows = min(sum(entry.row_count for entry in entries), _MANY_ROWS)
    return _COPIES * min(job_bytes(pages, job), _MANY_BYTES) + _ROW_BYTES * rows


def _is_worth_thinning(entry: PageEntry) -> bool:
    return entry.dead_count >= entry.row_count * _WORTH_SHARE


def _live_bytes(entry: PageEntry) -> int:
    """Return about how long a page is without its dead rows, whose lengths are not known."""
    alive = (entry.row_count - entry.dead_count) / entry.row_count
    likely = int(entry.ref.length * min(_UNEVEN * alive, 1.0))
    return likely + _BITMAP_BYTES + _listed_bytes(entry)


def _whole_bytes(entry: PageEntry) -> int:
    bitmap = entry.ref.bitmap
    return entry.ref.length + (bitmap.length if bitmap else 0) + _listed_bytes(entry)


def _listed_bytes(entry: PageEntry) -> int:
    """Return what the manifest takes for writing a page anew: the keys may be other ones then."""
    return _LISTED_BYTES + 2 * max(len(entry.ref.low_key), len(entry.ref.high_key))


def _plan_stretches(pages: TablePages) -> Job | None:
    base = pages.base
    if not base:
        return None
    over = _rows_over(pages)
    scores = [
        max(entry.dead_count, over[position]) / entry.row_count
        for position, entry in enumerate(base)
    ]
    for start, stop in _small_stretches(pages):
        for position in range(start, stop):
            scores[position] = max(scores[position], _WORTH_SHARE)
    wanted = [position for position, score in enumerate(scores) if score >= _WORTH_SHARE]
    if not wanted:
        return None
    wanted.sort(key=lambda position: -scores[position])
    chosen: list[int] = []
    byte_count = 0
    for position in wanted[:_JOB_PAGES_MAX]:
        byte_count += base[position].ref.length
        if chosen and byte_count > _JOB_BYTES_MAX:
            break
        chosen.append(position)
    in_runs = sum(e.row_count - e.dead_count for run in pages.runs for e in run)
    return Job(
        stretches=_stretches_of(sorted(chosen)),
        score=scores[wanted[0]],
        is_urgent=in_runs > _URGENT_SHARE * pages.live_count,
    )


def _stretches_of(positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    stretches: list[tuple[int, int]] = []
    for position in positions:
        if stretches and stretches[-1][1] == position:
            stretches[-1] = (stretches[-1][0], position + 1)
        else:
            stretches.append((position, position + 1))
    return tuple(stretches)


def _small_stretches(pages: TablePages) -> list[tuple[int, int]]:
    """Return neighbours, a small one among them, that surely fit into one page."""
    found: list[tuple[int, int]] = []
    start = rows = byte_count = 0
    has_small = False

    def finish(stop: int) -> None:
        if has_small and stop - start > 1:
            found.append((start, stop))

    for position, entry in enumerate(pages.base):
        live = entry.row_count - entry.dead_count
        # build_page may need room for four bytes where the page has one character.
        size = 4 * entry.ref.length
        if rows + live > page_rows_max or byte_count + size > page_bytes_max:
            finish(position)
            start, rows, byte_count, has_small = position, 0, 0, False
        rows += live
        byte_count += size
        # A page of a dictionary may be short, and its rows too long for a page together: whether
        # they fit is known when it was tried.
        has_small = has_small or (live < page_rows_max * _SMALL_SHARE and not entry.is_settled)
    finish(len(pages.base))
    return found


def _rows_over(pages: TablePages) -> list[int]:
    """Return how many live L0 rows lie over each base page, up to the next page.

    Those behind the last base page are not over it: pages of their own will take them.
    """
    base = pages.base
    over = [0] * len(base)
    for run in pages.runs:
        lows = [entry.low for entry in run]
        before = [0]
        for entry in run:
            before.append(before[-1] + entry.row_count - entry.dead_count)
        # What comes before the first base page belongs to it.
        starts = [0, *(_count_before(run, lows, before, entry.low) for entry in base[1:])]
        end = _count_before(run, lows, before, base[-1].high)
        for position, start in enumerate(starts):
            stop = starts[position + 1] if position + 1 < len(starts) else max(end, start)
            over[position] += stop - start
    return over


def _count_before(run: Sequence[PageEntry], lows: list[Key], before: list[int], key: Key) -> int:
    position = bisect_right(lows, key) - 1
    if position < 0:
        return 0
    entry = run[position]
    if key > entry.high:
        return before[position + 1]
    index = entry.page.lower_bound(key, is_inclusive=True)
    if entry.dead is None:
        return before[position] + index
    dead = int.from_bytes(entry.dead, "little") & ((1 << index) - 1)
    return before[position] + index - dead.bit_count()


# --- writing -------------------------------------------------------------------------------------


def write_job(
    folder: SegmentFolder, segment_number: int, before: TablePages, job: Job
) -> WrittenJob:
    """Write and sync the segment of a job.

    As with write_delta the caller syncs the directory, then appends the edit to the manifest; on
    any exception the segment is removed again and nothing happened.
    """
    writer = folder.writer(segment_number)
    try:
        draft = _Draft(before, writer)
        for start, stop in job.stretches:
            draft.merge_stretch(start, stop)
        if job.runs:
            draft.merge_runs(job.runs)
        for entry in job.moves:
            draft.move(entry)
        for entry in job.thins:
            draft.thin(entry)
        draft.write_bitmaps()
        if not draft.added and not draft.marked:  # nothing but dead rows was in those pages
            writer.abandon()
            return draft.finish(None, ())
        writer.finish()
        return draft.finish(writer.opened(), (writer.listed,))
    except BaseException:
        writer.abandon()
        raise


def _rows_between(entry: PageEntry, low: Key, high: Key) -> tuple[int, int] | None:
    """Return which rows have keys from low to high (exclusive; () is open), None: none has."""
    if (high and entry.low >= high) or (low and entry.high < low):
        return None
    page = entry.page
    start = page.lower_bound(low, is_inclusive=True) if low else 0
    stop = page.lower_bound(high, is_inclusive=True) if high else entry.row_count
    return (start, stop) if start < stop else None


def _is_much(parts: Sequence[tuple[PageEntry, int, int]]) -> bool:
    """Return whether these rows are more than should be Python objects at one time."""
    rows = sum(stop - start for _, start, stop in parts)
    byte_count = sum(
        entry.ref.length * (stop - start) // entry.row_count for entry, start, stop in parts
    )
    return rows > _MANY_ROWS or byte_count > _MANY_BYTES


class _Draft(Draft):
    """The pages of one table while a job is written."""

    def __init__(self, before: TablePages, writer: SegmentWriter) -> None:
        super().__init__(before.table, before)
        self._writer = writer
        self._dead: dict[PageEntry, int] = {}  # bits of pages in runs of which rows were taken
        self._settled: set[tuple[int, int]] = set()  # places of pages that were not to be merged

    def merge_stretch(self, start: int, stop: int) -> None:
        """Write base pages start to stop anew, with the rows that runs have in their range."""
        base = self.before.base
        low = base[start].low if start else ()
        high = base[stop].low if stop < len(base) else ()
        taken = [
            (entry, *found)
            for run in self.before.runs
            for entry in run
            if (found := _rows_between(entry, low, high)) is not None
        ]
        parts = [(entry, 0, entry.row_count) for entry in base[start:stop]] + taken
        first = len(self.added)
        if _is_much(parts):
            self._merge_many([base[start:stop], *self.before.runs], low, high, 0)
        else:
            rows: list[Row] = []
            for entry in base[start:stop]:
                rows.extend(entry.live_rows(0, entry.row_count))
            for entry, begin, end in taken:
                rows.extend(entry.live_rows(begin, end))
            rows.sort(key=self.table.key_of)
            for piece in split_evenly(self.table, rows):
                self.add(self._writer, build_page(self.table, piece), 0)
        is_tried = not taken and all(entry.dead is None for entry in base[start:stop])
        if is_tried and len(self.added) - first >= stop - start:
            self._settled.update((ref.segment, ref.offset) for ref in self.added[first:])
        self.removed.update(dict.fromkeys(base[start:stop]))
        for entry, begin, end in taken:
            self._take(entry, begin, end)

    def merge_runs(self, positions: Sequence[int]) -> None:
        """Write these runs anew as one; what lies over no base page joins the base."""
        runs = [self.before.runs[position] for position in positions]
        if _is_much([(entry, 0, entry.row_count) for run in runs for entry in run]):
            self._merge_many(runs, (), (), max(run[0].ref.run for run in runs))
            self.removed.update(dict.fromkeys(entry for run in runs for entry in run))
            return
        rows: list[Row] = []
        for position in positions:
            for entry in self.before.runs[position]:
                rows.extend(entry.live_rows(0, entry.row_count))
                self.removed[entry] = None
        rows.sort(key=self.table.key_of)
        number = max(self.before.runs[position][0].ref.run for position in positions)
        base = TablePages(self.table, self.before.base)
        for piece, is_base in split_for_levels(self.table, rows, base):
            self.add(self._writer, build_page(self.table, piece), 0 if is_base else number)

    def _merge_many(
        self, levels: Sequence[Sequence[PageEntry]], low: Key, high: Key, number: int
    ) -> None:
        """Write many rows without a Python object for each value, and not all of them at once.

        Pages that overlap base pages are of run `number`; 0: none does but those that go.
        """
        from herdpy.storage.arrow_shadows import merged_pages

        table, base = self.table, TablePages(self.table, self.before.base)
        kinds = table.key_kinds
        for built in merged_pages(table, levels, low, high):
            ends = decode_key(built.low_key, kinds), decode_key(built.high_key, kinds)
            is_full = built.row_count * 2 >= page_rows_max
            is_base = not number or not base.base or (is_full and not base.overlaps(*ends))
            self.add(self._writer, built, 0 if is_base else number)

    def move(self, entry: PageEntry) -> None:
        """Copy a page with its bitmap: its buffers with their CRCs, its header for its new place.

        CorruptionError: the header is damaged, which a new CRC would hide.
        """
        entry.page.check_header()
        bitmap = entry.ref.bitmap
        if bitmap is not None and entry.dead is not None:
            number, dead_count = self._writer.number, bitmap.dead_count
            place = self._writer.append_bitmap(entry.dead, entry.row_count, dead_count)
            bitmap = BitmapRef(number, *place, dead_count)
        self.removed[entry] = None
        self.copy(self._writer, entry, bitmap)

    def thin(self, entry: PageEntry) -> None:
        """Write a page without its dead rows, of the run that it was of."""
        self.removed[entry] = None
        for piece in split_evenly(self.table, entry.live_rows(0, entry.row_count)):
            self.add(self._writer, build_page(self.table, piece), entry.ref.run)

    def _take(self, entry: PageEntry, start: int, stop: int) -> None:
        """Note that rows of a page in a run are somewhere else now."""
        dead = self._dead.get(entry)
        if dead is None:
            dead = int.from_bytes(entry.dead or b"", "little")
        self._dead[entry] = dead | ((1 << stop) - (1 << start))

    def write_bitmaps(self) -> None:
        """Mark what was taken out of pages that stay; pages with nothing left go."""
        for entry, bits in self._dead.items():
            count = bits.bit_count()
            if count == entry.row_count:
                self.removed[entry] = None
            elif count > entry.dead_count:
                dead = bits.to_bytes((entry.row_count + 7) // 8, "little")
                self.mark(self._writer, entry, dead, count)

    def finish(self, segment: Segment | None, segments: tuple[NewSegment, ...]) -> WrittenJob:
        pages = self.pages_over(segment)
        for entry in pages.entries() if self._settled else ():
            if entry.place in self._settled:
                entry.is_settled = True
        return WrittenJob(segments, self.listing(self.table.id), pages)
