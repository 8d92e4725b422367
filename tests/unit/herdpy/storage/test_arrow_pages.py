"""Pages, runs and shadows made of Arrow columns: the same as those made of rows."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from herdpy.model.keys import decode_key
from herdpy.model.schema import Column, Table
from herdpy.model.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    TEXT,
    TIMESTAMP,
    Kind,
    Row,
    SqlType,
    decimal_type,
)
from herdpy.storage.arrow import rows_batch
from herdpy.storage.arrow_pages import build_pages
from herdpy.storage.arrow_runs import staged_runs
from herdpy.storage.arrow_shadows import merged_pages, shadows
from herdpy.storage.arrow_staged import staged_bytes
from herdpy.storage.manifest import PageRef
from herdpy.storage.page import BuiltPage, Page, build_page
from herdpy.storage.table_pages import PageEntry

_TYPES = (
    BIGINT,
    BOOLEAN,
    SqlType(Kind.INTEGER),
    DOUBLE,
    decimal_type(10, 2),
    decimal_type(30, 3),
    TEXT,
    SqlType(Kind.BYTEA),
    TIMESTAMP,
    TEXT,
)
_COLUMNS = tuple(Column(number, f"c{number}", each) for number, each in enumerate(_TYPES, 1))


def _table(*key: int, columns: tuple[Column, ...] = _COLUMNS) -> Table:
    return Table(7, "t", columns, key)


def _value(rng: random.Random, ordinal: int) -> Any:
    makers: list[Callable[[], Any]] = [
        lambda: rng.randrange(-(2**63), 2**63),
        lambda: rng.random() < 0.5,
        lambda: rng.randrange(-(2**31), 2**31),
        lambda: rng.choice([0.0, 1.5, -2.5, float("inf"), float("nan"), -float("inf")]),
        lambda: rng.randrange(-(10**10) + 1, 10**10),
        lambda: rng.randrange(-(10**30) + 1, 10**30),
        lambda: rng.choice(["a", "é" * rng.randrange(40), str(rng.random())]),
        lambda: rng.randbytes(rng.randrange(50)),
        lambda: rng.randrange(0, 10**15),
        lambda: rng.choice(["x", "y", ""]),
    ]
    return makers[ordinal]()


def _rows(rng: random.Random, table: Table, count: int, nulls: float) -> list[Row]:
    found: dict[Any, Row] = {}
    for _ in range(count):
        row = tuple(
            None if i not in table.key and rng.random() < nulls else _value(rng, i)
            for i in range(len(_TYPES))
        )
        found[table.key_of(row)] = row
    return [found[key] for key in sorted(found)]


def _opened(table: Table, built: BuiltPage) -> Page:
    page = Page(memoryview(built.data), table, where="here", row_count=built.row_count)
    page.verify()
    return page


@pytest.mark.parametrize("key", [(0,), (6, 0), (3, 0), (5, 0)])
@pytest.mark.parametrize(("count", "nulls"), [(1, 0.0), (10, 0.5), (5000, 0.2), (4096, 1.0)])
def test_pages_of_columns_are_those_of_rows(
    seed: int, key: tuple[int, ...], count: int, nulls: float
) -> None:
    table = _table(*key)
    rows = _rows(random.Random(seed), table, count, nulls)
    made = list(build_pages(table, rows_batch(table, range(len(_TYPES)), rows).columns))
    pages = [_opened(table, built) for built in made]
    assert repr([row for page in pages for row in page.rows(0, page.row_count)]) == repr(rows)
    expected = [build_page(table, rows[at : at + 4096]) for at in range(0, len(rows), 4096)]
    for one, page, other in zip(made, pages, expected, strict=True):
        assert (one.low_key, one.high_key) == (other.low_key, other.high_key)
        right = _opened(table, other)
        for ordinal in range(len(_TYPES)):
            assert page.zone(ordinal) == right.zone(ordinal)
            assert page.null_count(ordinal) == right.null_count(ordinal)
            assert page.is_dictionary(ordinal) == right.is_dictionary(ordinal)
        for index in range(min(20, page.row_count)):
            assert page.find(table.key_of(page.row(index))) == index


def test_values_too_long_for_a_page_of_so_many_rows() -> None:
    columns = (Column(1, "id", BIGINT, not_null=True), Column(2, "s", TEXT))
    table = _table(0, columns=columns)
    rows: list[Row] = [(number, str(number % 10) * 500_000) for number in range(40)]
    made = [_opened(table, b) for b in build_pages(table, rows_batch(table, [0, 1], rows).columns)]
    assert len(made) > 1
    assert [row for page in made for row in page.rows(0, page.row_count)] == rows


_KEYS: list[tuple[SqlType, Callable[[random.Random], Any]]] = [
    (BIGINT, lambda rng: rng.randrange(9_000)),
    (TEXT, lambda rng: str(rng.randrange(9_000))),
    (DOUBLE, lambda rng: rng.choice([0.0, -0.0, float("nan"), rng.randrange(-999, 999) / 2])),
]


def _entries(table: Table, run: list[BuiltPage]) -> list[PageEntry]:
    kinds = table.key_kinds
    return [
        PageEntry(
            _opened(table, built),
            PageRef(-1, place, len(built.data), built.row_count, built.low_key, built.high_key),
            decode_key(built.low_key, kinds),
            decode_key(built.high_key, kinds),
            None,
        )
        for place, built in enumerate(run)
    ]


def _staged_level(
    rng: random.Random, table: Table, make_key: Callable[[random.Random], Any]
) -> list[PageEntry]:
    """Stage rows in two pieces, compare the run with a model, and mark some rows as dead."""
    is_first_kept = rng.random() < 0.5
    rows: list[Row] = [
        (make_key(rng), rng.random() < 0.5, number)
        for number in range(rng.choice([1, 100, 6_000, 12_000]))
    ]
    cut = rng.randrange(len(rows) + 1)
    pieces = [(staged_bytes(rows_batch(table, [0, 1, 2], r)), 0) for r in (rows[:cut], rows[cut:])]
    [run] = staged_runs(table, pieces, keeps_repeats=False, is_first_kept=is_first_kept)
    net: dict[Any, Row] = {}
    for row in rows:
        if not (is_first_kept and table.key_of(row) in net):
            net[table.key_of(row)] = row
    entries = _entries(table, run)
    stored = [row for entry in entries for row in entry.live_rows(0, entry.row_count)]
    assert repr(stored) == repr([net[key] for key in sorted(net)])
    for entry in entries:
        if rng.random() < 0.3:
            bits = rng.getrandbits(entry.row_count)
            entry.dead = bits.to_bytes((entry.row_count + 7) // 8, "little")
    return entries


@pytest.mark.parametrize("number", range(12))
def test_what_hides_what(seed: int, number: int) -> None:
    rng = random.Random(seed * 100 + number)
    kind, make_key = rng.choice(_KEYS)
    columns = (
        Column(1, "a", kind, not_null=True),
        Column(2, "b", BOOLEAN, not_null=True),
        Column(3, "c", BIGINT),
    )
    table = _table(*rng.choice([(0,), (1, 0)]), columns=columns)
    levels = [_staged_level(rng, table, make_key) for _ in range(rng.randrange(2, 5))]
    for is_first_kept in (False, True):
        newest: dict[Any, tuple[PageEntry, int]] = {}
        expected: dict[PageEntry, int] = {}
        for level in reversed(levels) if is_first_kept else levels:
            for entry in level:
                for index in range(entry.row_count):
                    if entry.is_dead(index):
                        continue
                    key = entry.page.key(index)
                    if key in newest:
                        other, at = newest[key]
                        expected[other] = expected.get(other, 0) | 1 << at
                    newest[key] = (entry, index)
        hidden = shadows(table, levels, is_first_kept=is_first_kept)
        assert hidden == expected
    for entry, bits in hidden.items():
        bits |= int.from_bytes(entry.dead or b"", "little")
        entry.dead = bits.to_bytes((entry.row_count + 7) // 8, "little")
    merged = [_opened(table, built) for built in merged_pages(table, levels)]
    rows = [row for page in merged for row in page.rows(0, page.row_count)]
    wanted = [newest[key][0].page.row(newest[key][1]) for key in sorted(newest)]
    assert repr(rows) == repr(wanted)
    assert all(page.row_count == 4096 for page in merged[:-1])
    low = table.key_of(rows[len(rows) // 3])
    high = table.key_of(rows[len(rows) // 2])
    part = [_opened(table, built) for built in merged_pages(table, levels, low, high)]
    assert [table.key_of(r) for page in part for r in page.rows(0, page.row_count)] == [
        key for key in sorted(newest) if low <= key < high
    ]
