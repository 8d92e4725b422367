"""Compaction: rows stay what they are, runs stay few, and it comes to an end."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.limits import l0_runs_max, page_rows_max
from herdpy.model.schema import Table, table_from_plain
from herdpy.model.types import BIGINT, DOUBLE, TEXT, Key, Row
from herdpy.storage.checkpoint_writer import TableDelta, write_delta
from herdpy.storage.compaction import job_bytes, plan_job, plan_runs, sparse_segments, write_job
from herdpy.storage.manifest import Checkpoint, Compaction, ManifestState, apply_edit, in_edit
from herdpy.storage.segment import segment_name
from herdpy.storage.table_pages import TablePages
from tests.fixtures.segments import folder, listed_segments
from tests.fixtures.small_sizes import small_sizes
from tests.fixtures.storage_tables import rows_by_key, table_of

SINGLE = table_of(BIGINT, TEXT)
COMPOSITE = table_of(BIGINT, TEXT, DOUBLE, key=(1, 2))
JOBS_MAX = 200
BESIDE_PAGES_BYTES = 256
"""The segment's header, and what an edit has beside its pages; an estimate leaves 16 KiB for it."""


class Store:
    """One table on a disk and in a dict, checkpointed and compacted as the engine does it."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.disk = MemoryDisk()
        self.folder = folder(self.disk)
        self.pages = TablePages(table)
        self.rows: dict[Key, Row] = {}
        self.state = ManifestState(bytes(16))
        self.checkpoint_bytes = 0
        self.compaction_bytes = 0

    def checkpoint(self, changes: dict[Key, Row | None]) -> None:
        job = plan_runs(self.pages)
        if job is not None:
            self._run(job)
        is_new = self.table.id not in self.state.tables
        delta = TableDelta(self.table, self.pages, sorted(changes.items()), is_new)
        written = write_delta(self.folder, self.state.next_segment, [delta])
        self.pages = written.pages[self.table.id]
        self.checkpoint_bytes += sum(each.byte_count for each in written.segments)
        lsn = (-1, self.state.checkpoint_lsn[1] + 1, 0)
        segments, ids = in_edit(written.segments)
        edit = Checkpoint(lsn, 0, b"", 100, segments, written.edits, segment_ids=ids)
        self._apply(edit)
        for key, row in changes.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        assert len(self.pages.runs) <= l0_runs_max

    def compact(self) -> bool:
        job = plan_job(self.pages, sparse_segments(self.state))
        if job is not None:
            self._run(job)
        return job is not None

    def compact_all(self) -> None:
        for _ in range(JOBS_MAX):
            if not self.compact():
                return
        pytest.fail("compaction does not come to an end")

    def _run(self, job: Any) -> None:
        before = self.pages
        written = write_job(self.folder, self.state.next_segment, before, job)
        self.compaction_bytes += written.byte_count
        self.pages = written.pages
        segments, ids = in_edit(written.segments)
        edit = Compaction(segments, (written.edit,), ids)
        self._apply(edit)
        taken = written.byte_count + len(msgpack.encode(edit))
        assert taken <= job_bytes(before, job) + BESIDE_PAGES_BYTES

    def _apply(self, edit: Any) -> None:
        self.state = apply_edit(self.state, edit)
        listed = {segment_name(number) for number in self.state.segments}
        for name in self.disk.list(""):
            if name not in listed:
                self.disk.unlink(name)

    def reopened(self) -> TablePages:
        segments = listed_segments(self.disk, self.state)
        state = self.state.tables[self.table.id]
        return TablePages.open(table_from_plain(state.definition), state.pages, segments)

    def check(self) -> None:
        for pages in (self.pages, self.reopened()):
            assert dict(rows_by_key(pages, None, None)) == self.rows
            assert pages.live_count == len(self.rows)
            for key in list(self.rows)[:50]:
                assert pages.get(key) == self.rows[key]


def row(number: int, text: str = "x") -> Row:
    return (number, text)


@settings(max_examples=150)
@given(st.data())
def test_rows_stay_what_they_are(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from([SINGLE, COMPOSITE]))

    def make(number: int, text: str) -> Row:
        return (number, text) if table is SINGLE else (len(text), f"k{number % 7}", float(number))

    numbers = st.integers(0, 150)
    change = st.dictionaries(numbers, st.none() | st.text("ab", max_size=3), max_size=60)
    with small_sizes():
        store = Store(table)
        for changes in data.draw(st.lists(change, min_size=1, max_size=12)):
            store.checkpoint(
                {
                    table.key_of(make(number, text or "")): text
                    if text is None
                    else make(number, text)
                    for number, text in changes.items()
                }
            )
            for _ in range(data.draw(st.integers(0, 2))):
                store.compact()
            store.check()
        store.compact_all()
        store.check()


def test_a_page_with_a_fifth_dead_is_written_anew_and_its_segment_goes() -> None:
    store = Store(SINGLE)
    store.checkpoint({(n,): row(n) for n in range(page_rows_max)})
    store.checkpoint({(n,): None for n in range(page_rows_max // 5)})
    assert not store.compact()
    store.checkpoint({(n,): None for n in range(page_rows_max // 4)})
    assert store.compact()
    store.check()
    (entry,) = store.pages.entries()
    assert entry.dead is None
    assert list(store.state.segments) == [4]
    assert store.disk.list("") == [segment_name(4)]


def test_rows_over_a_page_join_it_and_l0_is_left_without_them() -> None:
    store = Store(SINGLE)
    store.checkpoint({(2 * n,): row(2 * n) for n in range(2 * page_rows_max)})
    # Into the first page's range only: it is compacted, the second page stays as it is.
    store.checkpoint({(2 * n + 1,): row(2 * n + 1) for n in range(page_rows_max // 3)})
    second = store.pages.base[1]
    assert len(store.pages.runs) == 1
    assert store.compact()
    assert not store.pages.runs
    assert store.pages.base[-1] is second
    assert len(store.pages.base) == 3
    store.check()


def test_a_table_that_grows_at_its_end_in_small_steps_has_full_pages() -> None:
    store = Store(SINGLE)
    step = page_rows_max // 8
    for start in range(0, 8 * page_rows_max, step):
        changes: dict[Key, Row | None] = {(n,): row(n) for n in range(start, start + step)}
        changes[0,] = row(0, f"as of {start}")
        store.checkpoint(changes)
        while store.compact():
            pass
    store.check()
    assert len(store.pages.base) <= 2 * 8
    written = store.checkpoint_bytes + store.compaction_bytes
    assert written < 8 * store.checkpoint_bytes


def test_a_tiny_first_page_is_merged_with_its_neighbour() -> None:
    store = Store(SINGLE)
    store.checkpoint({(n,): row(n) for n in range(10)})
    store.checkpoint({(n,): row(n) for n in range(10, 3000)})
    assert len(store.pages.base) == 2
    store.compact_all()
    assert [entry.row_count for entry in store.pages.base] == [3000]
    store.check()


def test_what_is_left_in_a_file_of_garbage_moves_out() -> None:
    table = table_of(BIGINT, TEXT)
    store = Store(table)
    wide = "x" * 300
    # Sixteen pages in one file; all but the first are emptied.
    store.checkpoint({(n,): row(n, f"{wide}{n}") for n in range(8 * page_rows_max)})
    pages = store.pages.base
    kept = pages[0].row_count
    store.checkpoint({(n,): None for n in range(kept, 8 * page_rows_max)})
    assert sorted(store.state.segments) == [1]
    assert store.compact()
    assert sorted(store.state.segments) == [2]
    assert not store.compact()
    store.check()


def test_random_updates_are_not_written_over_and_over(seed: int) -> None:
    """The figure of docs/adr/0006: what one changed row costs in pages, all told."""
    rng = random.Random(seed)
    store = Store(SINGLE)
    total, changed = 100_000, 2_000
    store.checkpoint({(n,): row(n, f"text of the row {n}") for n in range(total)})
    store.checkpoint_bytes = store.compaction_bytes = 0
    for turn in range(40):
        keys = rng.sample(range(total), changed)
        store.checkpoint({(n,): row(n, f"text {turn} of {n}") for n in keys})
        for _ in range(4):
            store.compact()
    store.check()
    rows_bytes = sum(e.ref.length for e in store.pages.entries()) / len(store.rows)
    changed_bytes = 40 * changed * rows_bytes
    amplification = (store.checkpoint_bytes + store.compaction_bytes) / changed_bytes
    print(f"write amplification of random updates: {amplification:.1f}")
    assert amplification < 8
