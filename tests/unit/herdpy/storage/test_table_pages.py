"""TablePages and write_delta against a dict: every key has one live copy, in any history."""

import errno
from collections.abc import Iterator
from itertools import chain, cycle, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.errors import CorruptionError, InvariantViolation
from herdpy.limits import page_rows_max
from herdpy.model.schema import Column, Table, table_from_plain
from herdpy.model.types import BIGINT, DOUBLE, INTEGER, TEXT, Key, Row
from herdpy.storage.checkpoint_writer import TableDelta, write_delta
from herdpy.storage.manifest import Checkpoint, Manifest, ManifestState, apply_edit, in_edit
from herdpy.storage.segment import Segment
from herdpy.storage.table_pages import TablePages, merge_chunks
from tests.fixtures.metadata import SeededRng
from tests.fixtures.segments import folder, listed_segments
from tests.fixtures.storage_tables import rows_by_key, table_of
from tests.sim.disk import SimulatedDisk

SINGLE = table_of(BIGINT, TEXT)
COMPOSITE = table_of(BIGINT, TEXT, DOUBLE, key=(1, 2))


class Model:
    """A table kept twice: in pages on a disk, and in a dict."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.disk = MemoryDisk()
        self.folder = folder(self.disk)
        self.pages = TablePages(table)
        self.rows: dict[Key, Row] = {}
        self.state = ManifestState(bytes(16))
        self.lsn = 0

    def checkpoint(self, changes: dict[Key, Row | None]) -> None:
        number = self.state.next_segment
        is_new = self.table.id not in self.state.tables
        delta = TableDelta(self.table, self.pages, sorted(changes.items()), is_new)
        written = write_delta(self.folder, number, [delta])
        self.pages = written.pages[self.table.id]
        self.lsn += 1
        segments, ids = in_edit(written.segments)
        edit = Checkpoint((-1, self.lsn, 0), 0, b"", 100, segments, written.edits, segment_ids=ids)
        self.state = apply_edit(self.state, edit)
        for key, row in changes.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    def reopened(self) -> TablePages:
        segments = listed_segments(self.disk, self.state)
        state = self.state.tables[self.table.id]
        return TablePages.open(table_from_plain(state.definition), state.pages, segments)

    def check(self) -> None:
        for pages in (self.pages, self.reopened()):
            assert dict(rows_by_key(pages, None, None)) == self.rows
            assert sorted(pages.rows()) == sorted(self.rows.values())
            assert pages.live_count == len(self.rows)
            for key, row in self.rows.items():
                assert pages.get(key) == row


def prefix_range(
    rows: dict[Key, Row], low: Key | None, high: Key | None, low_in: bool, high_in: bool
) -> list[tuple[Key, Row]]:
    found = []
    for key, row in sorted(rows.items()):
        if low is not None and (key[: len(low)] < low or (not low_in and key[: len(low)] == low)):
            continue
        if high is not None:
            part = key[: len(high)]
            if part > high or (not high_in and part == high):
                continue
        found.append((key, row))
    return found


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_random_history_single(data: st.DataObject) -> None:
    model = Model(SINGLE)
    change = st.dictionaries(
        st.integers(0, 40).map(lambda number: (number,)), st.none() | st.text("ab", max_size=3)
    )
    for changes in data.draw(st.lists(change, min_size=1, max_size=7)):
        model.checkpoint({k: None if v is None else (k[0], v) for k, v in changes.items()})
        model.check()
    bound = st.none() | st.integers(-1, 41).map(lambda number: (number,))
    check_range(model, data.draw(bound), data.draw(bound), data)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_random_history_composite(data: st.DataObject) -> None:
    model = Model(COMPOSITE)
    key = st.tuples(st.sampled_from(["", "a", "b", "b\0"]), st.sampled_from([-1.5, 0.0, 2.0]))
    change = st.dictionaries(key, st.none() | st.integers(0, 9))
    for changes in data.draw(st.lists(change, min_size=1, max_size=6)):
        rows: dict[Key, Row | None] = {}
        for (text, number), value in changes.items():
            row = (value, text, number)
            rows[COMPOSITE.key_of(row)] = None if value is None else row
        model.checkpoint(rows)
        model.check()
    whole = key.map(lambda pair: COMPOSITE.key_of((0, *pair)))
    bound = st.none() | whole | whole.map(lambda found: found[:1])
    check_range(model, data.draw(bound), data.draw(bound), data)


def check_range(model: Model, low: Key | None, high: Key | None, data: st.DataObject) -> None:
    low_in, high_in = data.draw(st.booleans()), data.draw(st.booleans())
    expected = prefix_range(model.rows, low, high, low_in, high_in)
    for is_reverse in (False, True):
        found = rows_by_key(
            model.pages,
            low,
            high,
            low_inclusive=low_in,
            high_inclusive=high_in,
            is_reverse=is_reverse,
        )
        assert found == (expected[::-1] if is_reverse else expected)


@given(
    st.lists(st.integers(0, 3), max_size=400),
    st.integers(0, 60),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.booleans(),
)
def test_merged_chunks(owners: list[int], runs_of: int, sizes: list[int], is_reverse: bool) -> None:
    """Rows of four sources, in each in order and in chunks of any size, come in one order."""
    sources: list[list[Row]] = [[], [], [], []]
    for number, owner in enumerate(owners):
        # In stretches of one owner, too, so that whole chunks stand alone.
        sources[owners[number // runs_of * runs_of] if runs_of else owner].append((number, "row"))
    if is_reverse:
        for rows in sources:
            rows.reverse()

    def chunks(rows: list[Row]) -> Iterator[list[Row]]:
        rest, lengths = iter(rows), cycle(sizes)
        while chunk := list(islice(rest, next(lengths))):
            yield chunk

    merged = list(merge_chunks(map(chunks, sources), SINGLE.key_of, is_reverse=is_reverse))
    assert [] not in merged
    expected = [(number, "row") for number in range(len(owners))]
    assert list(chain.from_iterable(merged)) == (expected[::-1] if is_reverse else expected)


def test_chunks_that_no_other_source_lies_in_are_passed_on() -> None:
    chunks: list[list[Row]] = [[(1,), (2,)], [(3,), (4,)], [(7,), (9,)]]
    sources = [iter([chunks[0], chunks[2]]), iter([chunks[1]])]
    merged = list(merge_chunks(sources, lambda row: row, is_reverse=False))
    assert [chunks.index(chunk) for chunk in merged] == [0, 1, 2]
    assert all(chunk is chunks[place] for place, chunk in enumerate(merged))


def test_columns_that_are_not_asked_for_are_not_decoded() -> None:
    model = Model(table_of(BIGINT, TEXT, DOUBLE))
    rows: list[Row] = [(number, str(number), number / 2) for number in range(500)]
    model.checkpoint({row[:1]: row for row in rows[::2]})
    model.checkpoint({row[:1]: row for row in rows[1::2]})
    for pages in (model.pages, model.reopened()):
        for wanted in ((), (0,), (1,), (2,), (0, 2), (1, 2)):
            found = chain.from_iterable(pages.range(None, None, columns=frozenset(wanted)))
            shown = [tuple(v if i in (0, *wanted) else None for i, v in enumerate(r)) for r in rows]
            assert list(found) == shown


def bulk(first: int, count: int) -> dict[Key, Row | None]:
    return {(number,): (number, f"row {number}") for number in range(first, first + count)}


def test_big_pages_go_to_base_small_ones_to_runs() -> None:
    model = Model(SINGLE)
    model.checkpoint(bulk(0, 3 * page_rows_max))
    assert (len(model.pages.base), len(model.pages.runs)) == (3, 0)
    model.checkpoint(bulk(100_000, page_rows_max // 2))
    assert (len(model.pages.base), len(model.pages.runs)) == (4, 0)
    model.checkpoint(bulk(200_000, page_rows_max // 2 - 1))
    assert (len(model.pages.base), len(model.pages.runs)) == (4, 1)
    model.checkpoint({(key,): (key, "new") for key in range(0, 3 * page_rows_max, 3)})
    assert (len(model.pages.base), len(model.pages.runs)) == (4, 2)
    assert [entry.dead_count for entry in model.pages.base] == [1366, 1365, 1365, 0]
    assert [page.run for page in model.state.tables[7].pages] == [0, 0, 0, 0, 1, 2]
    model.check()
    keys = [key for key, _ in rows_by_key(model.pages, (500,), (100_005,), high_inclusive=False)]
    assert keys == sorted(key for key in model.rows if (500,) <= key < (100_005,))
    model.checkpoint({(key,): None for key in range(page_rows_max)})
    assert len(model.pages.base) == 3
    model.check()
    model.checkpoint(dict.fromkeys(model.rows))
    assert model.state.segments == {}
    assert list(model.pages.entries()) == []


def test_nothing_is_written_when_nothing_changed() -> None:
    model = Model(SINGLE)
    model.checkpoint({(1,): None})
    assert model.disk.list("") == []
    assert model.state.tables[7].pages == ()
    model.checkpoint({(1,): (1, "a")})
    before, names = model.pages, model.disk.list("")
    written = write_delta(model.folder, 9, [TableDelta(SINGLE, before, [])])
    assert (written.segments, written.edits, written.segment) == ((), (), None)
    assert written.pages == {7: before}
    model.checkpoint({(1,): None})  # the page's last row: the page goes, no file is needed
    assert model.disk.list("") == names
    assert model.state.segments == {}


def test_old_pages_stay_readable_after_unlink() -> None:
    model = Model(SINGLE)
    model.checkpoint(bulk(0, 10))
    old = model.pages
    model.checkpoint({(5,): (5, "new")})
    for name in model.disk.list(""):
        model.disk.unlink(name)
    assert old.get((5,)) == (5, "row 5")
    assert model.pages.get((5,)) == (5, "new")


def test_another_definition_of_the_table() -> None:
    model = Model(SINGLE)
    model.checkpoint(bulk(0, 5))
    wider = Table(7, "t", (*SINGLE.columns, Column(3, "c", INTEGER, default=9)), (0,), version=2)
    delta = TableDelta(wider, model.pages, [((2,), (2, "x", 1))], is_new=True)
    pages = write_delta(model.folder, 2, [delta]).pages[7]
    assert pages.get((1,)) == (1, "row 1", 9)
    assert pages.get((2,)) == (2, "x", 1)


def test_changes_out_of_order() -> None:
    changes: list[Any] = [((2,), (2, "")), ((1,), (1, ""))]
    for wrong in (changes, [changes[0], changes[0]]):
        with pytest.raises(InvariantViolation, match="follows"):
            write_delta(folder(MemoryDisk()), 1, [TableDelta(SINGLE, TablePages(SINGLE), wrong)])


@pytest.mark.parametrize("kind", ["open", "write", "sync"])
def test_failing_disk_leaves_nothing(kind: str) -> None:
    disk = SimulatedDisk(1)
    disk.fail(kind, errno.ENOSPC, times=1)
    delta = TableDelta(SINGLE, TablePages(SINGLE), list(bulk(0, 10).items()))
    with pytest.raises(OSError, match=r"."):
        write_delta(folder(disk), 1, [delta])
    assert disk.list("") == []
    assert write_delta(folder(disk), 1, [delta]).pages[7].get((3,)) == (3, "row 3")


def test_overlapping_pages_are_refused() -> None:
    model = Model(SINGLE)
    model.checkpoint(bulk(0, 10))
    (entry,) = model.pages.base
    with pytest.raises(CorruptionError, match="overlap"):
        TablePages(SINGLE, (entry, entry))


def test_listed_in_the_manifest_after_a_crash() -> None:
    """I10: pages that the manifest names are there after a power loss."""
    for seed in range(30):
        disk = SimulatedDisk(seed)
        manifest = Manifest.create(disk, "MANIFEST", SeededRng(1))
        delta = TableDelta(SINGLE, TablePages(SINGLE), list(bulk(0, 100).items()), is_new=True)
        written = write_delta(folder(disk), 1, [delta])
        disk.sync_directory("")
        segments, ids = in_edit(written.segments)
        edit = Checkpoint((-1, 1, 0), 1, b"", 8, segments, written.edits, segment_ids=ids)
        manifest.append(edit)
        disk = disk.crash()
        state = Manifest.open(disk, "MANIFEST", SeededRng(1)).state
        found = listed_segments(disk, state)
        pages = TablePages.open(SINGLE, state.tables[7].pages, found)
        assert dict(rows_by_key(pages, None, None)) == bulk(0, 100)


def test_pages_of_format_1_in_each_others_place_are_told_by_their_keys() -> None:
    """They have no seed: their first and last keys are compared at first touch."""
    disk = MemoryDisk()
    rows = bulk(10_000, 2 * page_rows_max)
    delta = TableDelta(SINGLE, TablePages(SINGLE), list(rows.items()), is_new=True)
    written = write_delta(folder(disk, has_ids=False), 1, [delta])
    assert written.segments == ((1, disk.size("00000001.segment"), b""),)
    first, second = (entry.ref for entry in written.pages[7].base)
    assert first.length == second.length
    assert dict(rows_by_key(written.pages[7], None, None)) == rows
    data = disk.read("00000001.segment")
    for one, two in ((first, second), (second, first)):
        page = data[two.offset : two.offset + two.length]
        disk.open("00000001.segment").write_at(one.offset, page)
    segment = Segment.open(disk, "00000001.segment", 1, len(data), b"")
    pages = TablePages.open(SINGLE, [first, second], {1: segment})
    for read in (
        lambda: pages.get((10_005,)),
        lambda: list(pages.range((15_001,), (15_002,))),
        lambda: list(pages.rows()),
    ):
        with pytest.raises(CorruptionError, match=r"segment at offset \d+: expected keys from"):
            read()
