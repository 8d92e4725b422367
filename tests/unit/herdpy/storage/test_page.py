"""Pages: what is built is read back, found by key, bounded by zones; every damaged byte is seen."""

import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdpy.errors import CorruptionError, InvariantViolation
from herdpy.limits import page_bytes_max, page_rows_max
from herdpy.model.keys import decode_key
from herdpy.model.schema import Column, Table
from herdpy.model.types import BIGINT, DOUBLE, INTEGER, REAL, TEXT
from herdpy.storage.column import _cut, _upper_bound, pack_bits, unpack_bits
from herdpy.storage.page import Page, build_page, split_rows
from tests.fixtures.storage_tables import KEYS, PLAIN, TEXTS, rows_of, same_rows, table_of


def open_page(data: bytes, table: Table) -> Page:
    return Page(memoryview(data), table, where="x.segment", base_offset=64)


def touch_all(page: Page) -> None:
    """Read everything that a page holds."""
    rows = page.rows(0, page.row_count)
    for row in rows:
        page.find(page.table.key_of(row))
    for ordinal in range(len(page.table.columns)):
        page.zone(ordinal)
        page.buffers(ordinal)


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    table = KEYS[name]
    rows = data.draw(rows_of(table))
    built = build_page(table, rows)
    assert len(built.data) % 64 == 0
    page = open_page(built.data, table)
    assert page.row_count == built.row_count == len(rows)
    assert same_rows(page.rows(0, len(rows)), rows)
    assert same_rows([page.row(index) for index in range(len(rows))], rows)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert same_rows(page.rows(start, stop), rows[start:stop])
    keys = [table.key_of(row) for row in rows]
    assert [page.key(index) for index in range(len(rows))] == keys
    assert decode_key(built.low_key, table.key_kinds) == keys[0]
    assert decode_key(built.high_key, table.key_kinds) == keys[-1]
    for index, key in enumerate(keys):
        assert page.find(key) == index
    absent = table.key_of(data.draw(rows_of(table, max_size=1))[0])
    assert page.find(absent) == (keys.index(absent) if absent in keys else -1)
    for width in range(len(absent) + 1):
        bound = absent[:width]
        first = sum(key[:width] < bound for key in keys)
        assert page.lower_bound(bound, True) == first
        last = sum(key[:width] <= bound for key in keys)
        assert page.lower_bound(bound, False) == last
        begin = data.draw(st.integers(0, first))
        assert page.lower_bound(bound, True, begin) == first
        assert page.lower_bound(bound, False, begin) == last
        assert page.lower_bound(bound, True, last) == last


@settings(max_examples=100, deadline=None)
@given(rows_of(PLAIN))
def test_zones_bound_every_value(rows: list) -> None:
    page = open_page(build_page(PLAIN, rows).data, PLAIN)
    for ordinal in range(len(PLAIN.columns)):
        values = [row[ordinal] for row in rows if row[ordinal] is not None]
        assert page.null_count(ordinal) == len(rows) - len(values)
        zone = page.zone(ordinal)
        for value in values:
            assert page.may_hold(ordinal, value, value)
            if zone is not None and value == value:
                assert zone[0] <= value
                assert zone[1] is None or value <= zone[1]
        if zone is not None and any(value != value for value in values):
            assert zone[1] is None
        if not values:
            assert zone is None
            assert not page.may_hold(ordinal, None, None)


def test_zones_leave_pages_out() -> None:
    table = table_of(BIGINT, TEXT, DOUBLE)
    rows = [(index, f"k{index:03d}" + "y" * 60, float(index)) for index in range(100, 200)]
    page = open_page(build_page(table, rows).data, table)
    assert page.zone(0) == (100, 199)
    assert page.may_hold(0, 150, None)
    assert not page.may_hold(0, None, 99)
    assert not page.may_hold(0, 200, 300)
    assert not page.may_hold(1, "k2", None)
    assert page.may_hold(1, "k199", None)
    assert not page.may_hold(2, 199.5, None)
    nan = open_page(build_page(table, [(1, "", math.nan), (2, "", 5.0)]).data, table)
    assert nan.zone(2) == (5.0, None)
    assert nan.may_hold(2, 6.0, None)
    assert not nan.may_hold(2, None, 4.0)
    only_nan = open_page(build_page(table, [(1, "", math.nan)]).data, table)
    assert only_nan.zone(2) is None
    assert only_nan.may_hold(2, 6.0, None)


@given(TEXTS, st.text(max_size=5))
def test_bounds_of_strings(text: str, more: str) -> None:
    assert _cut(text) <= text
    assert len(_cut(text).encode()) <= 32
    bound = _upper_bound(text)
    if bound is not None:
        assert text <= bound
        assert len(bound.encode()) <= 35
    raw = text.encode(errors="surrogatepass")
    bound = _upper_bound(raw)
    assert bound is None or raw <= bound


def test_bounds_of_strings_at_the_edges() -> None:
    assert _upper_bound("\U0010ffff" * 9) is None
    assert _upper_bound("a" + "\U0010ffff" * 8) == "b"
    assert _upper_bound("\ud7ff" * 11) == "\ud7ff" * 9 + "\ue000"
    assert _upper_bound(b"\xff" * 33) is None
    assert _upper_bound(b"a" * 31 + b"\xff\xff") == b"a" * 30 + b"b"


@given(st.lists(st.booleans(), min_size=1, max_size=200), st.data())
def test_bits(flags: list[bool], data: st.DataObject) -> None:
    bits = pack_bits(bytes(flags))
    start = data.draw(st.integers(0, len(flags)))
    stop = data.draw(st.integers(start, len(flags)))
    assert unpack_bits(bits, start, stop) == flags[start:stop]


def test_dictionary_only_where_it_pays() -> None:
    table = table_of(BIGINT, TEXT, TEXT)
    rows = [(index, f"city{index % 5}" if index % 3 else None, str(index)) for index in range(100)]
    page = open_page(build_page(table, rows).data, table)
    assert page.is_dictionary(1)
    assert not page.is_dictionary(2)
    assert page.rows(0, 100) == rows
    assert page.zone(1) == ("city0", "city4")
    assert [page.row(index) for index in range(100)] == rows


def test_pages_that_were_read_do_not_keep_the_words_of_their_dictionaries() -> None:
    table = table_of(BIGINT, TEXT)
    rows = [(index, f"{index % 1000} {'x' * 100}") for index in range(page_rows_max)]
    data = build_page(table, rows).data
    pages = [open_page(data, table) for _ in range(100)]
    tracemalloc.start()
    try:
        for page in pages:
            assert page.is_dictionary(1)
            for start in range(0, page_rows_max, 1024):
                assert page.rows(start, start + 1024) == rows[start : start + 1024]
            assert page.row(7) == rows[7]
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    words_bytes = 1000 * 150  # of one page
    assert kept < len(pages) * words_bytes / 4
    assert peak < len(pages) * words_bytes / 2


def test_columns_by_id() -> None:
    old = table_of(BIGINT, TEXT)
    data = build_page(old, [(1, "x"), (2, "y")]).data
    columns = (old.columns[0], Column(9, "z", INTEGER, default=42), Column(10, "n", TEXT))
    page = open_page(data, Table(7, "t", columns, (0,)))
    assert page.rows(0, 2) == [(1, 42, None), (2, 42, None)]
    assert page.row(1) == (2, 42, None)
    assert page.zone(1) == (42, 42)
    assert page.may_hold(1, 42, None)
    assert not page.may_hold(1, 43, None)
    assert not page.may_hold(2, None, None)
    assert page.buffers(1) is None


def test_build_refuses() -> None:
    table = table_of(BIGINT, TEXT)
    for rows in (
        [],
        [(1, "a"), (1, "b")],
        [(2, "a"), (1, "b")],
        [(2**63, "a")],
        [(None, "a")],
        [("1", "a")],
        [(1, b"a")],
        [(1, 5)],
        [(1, "\ud800")],
        [(index, "") for index in range(page_rows_max + 1)],
    ):
        if rows == [(None, "a")]:  # NOT NULL is the engine's check, but a key is never NULL
            with pytest.raises((InvariantViolation, TypeError)):
                build_page(table, rows)
            continue
        with pytest.raises(InvariantViolation):
            build_page(table, rows)


def test_zones_of_reals_know_nan() -> None:
    table = table_of(BIGINT, REAL)
    nan = open_page(build_page(table, [(1, math.nan), (2, 5.0)]).data, table)
    assert nan.zone(1) == (5.0, None)
    assert nan.may_hold(1, 6.0, None)
    only_nan = open_page(build_page(table, [(1, math.nan)]).data, table)
    assert only_nan.zone(1) is None
    assert only_nan.may_hold(1, 6.0, None)


def test_split_rows() -> None:
    table = table_of(BIGINT, TEXT)
    rows = [(index, "x") for index in range(10_000)]
    pieces = list(split_rows(table, rows))
    assert [len(piece) for piece in pieces] == [4096, 4096, 1808]
    assert [row for piece in pieces for row in piece] == rows
    wide = [(index, "é" * 500_000) for index in range(20)]
    pieces = list(split_rows(table, wide))
    assert [row for piece in pieces for row in piece] == wide
    assert len(pieces) == 3
    assert all(len(build_page(table, piece).data) <= page_bytes_max for piece in pieces)
    assert list(split_rows(table, [])) == []


@pytest.mark.parametrize("name", ["bigint", "composite"])
def test_every_flipped_bit_is_seen(name: str) -> None:
    table = KEYS[name]
    rows = {
        "bigint": [
            (1, None, True, 1.5, "low", b"\0", 3, 4, 5, 10**30, 6, 0.5, 7),
            (2, 3, None, -0.0, "low", None, 3, 4, None, None, 7, None, None),
        ],
        "composite": [(1, "a", 2.0, 3), (2, "b", None, 3)],
    }[name]
    data = build_page(table, rows).data
    touch_all(open_page(data, table))
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptionError, match=r"x\.segment at offset \d+"):
            touch_all(open_page(bytes(damaged), table))


def test_other_page_than_listed() -> None:
    table = table_of(BIGINT)
    data = build_page(table, [(1,), (2,)]).data
    with pytest.raises(CorruptionError, match="expected table 8"):
        touch_all(open_page(data, table_of(BIGINT, table_id=8)))
    with pytest.raises(CorruptionError, match="expected 3 rows"):
        Page(memoryview(data), table, where="x", row_count=3).find((1,))
    for size in (0, 10, 64, len(data) - 64):
        with pytest.raises(CorruptionError):
            touch_all(open_page(data[:size], table))
    with pytest.raises(CorruptionError, match='column "a": expected INTEGER'):
        touch_all(open_page(data, table_of(INTEGER)))


def test_golden_bytes() -> None:
    table = table_of(BIGINT, TEXT)
    data = build_page(table, [(1, "a"), (2, None)]).data
    golden = bytearray(384)
    for offset, text in GOLDEN:
        golden[offset : offset + len(text) // 2] = bytes.fromhex(text)
    assert data == golden
    assert open_page(bytes(golden), table).rows(0, 2) == [(1, "a"), (2, None)]


GOLDEN = (
    (0, "48445047010000003c000000800100000200000089e305ea"),
    (24, "93079299010303c200c2010291930010ce4ebfc96499020606c201c2a161a161"),
    (56, "93934001ce77c6046593cc800ccee83992c493ccc001cea553d0a690"),
    (128, "01000000000000000200000000000000"),
    (192, "01"),  # validity of b
    (256, "000000000100000001000000"),
    (320, "61"),
)
