"""Pages as Arrow: the same values as the rows, zero-copy, and DuckDB understands them."""

import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.model.schema import Column, Table
from herdpy.model.types import BIGINT, DATE, DOUBLE, INTEGER, TEXT, TIMESTAMP, Kind, decimal_type
from herdpy.storage.arrow import (
    LIVE,
    arrow_type,
    batch,
    has_negative_zero,
    live_array,
    masked_live,
    rows_batch,
    scan_table,
)
from herdpy.storage.checkpoint_writer import TableDelta, write_delta
from herdpy.storage.table_pages import TablePages
from tests.fixtures.segments import folder
from tests.fixtures.storage_tables import PLAIN, rows_of, same_rows, table_of

ALL = range(len(PLAIN.columns))


def pages_of(table: Table, *batches: list) -> TablePages:
    disk, pages = MemoryDisk(), TablePages(table)
    for number, rows in enumerate(batches, 1):
        changes = sorted((table.key_of(row), row) for row in rows)
        written = write_delta(folder(disk), number, [TableDelta(table, pages, changes)])
        pages = written.pages[table.id]
    return pages


def logical(value: object, kind: Kind, scale: int | None) -> object:
    """What Arrow gives for a physical value, by another way than the code under test."""
    if value is None:
        return None
    if kind is Kind.DECIMAL:
        sign, digits, _ = Decimal(int(value)).as_tuple()  # type: ignore[call-overload]
        return Decimal((sign, digits, -(scale or 0)))
    return value


def as_rows(table: Table, found: pa.Table) -> list:
    columns = []
    for ordinal, column in enumerate(table.columns):
        array = found.column(f"c{ordinal}")
        if column.type.is_moment:
            array = array.cast(pa.int32() if column.type.kind is Kind.DATE else pa.int64())
        columns.append(array.to_pylist())
    live = found.column(LIVE).to_pylist()
    return [row for row, is_live in zip(zip(*columns, strict=True), live, strict=True) if is_live]


def expected(table: Table, rows: list) -> list:
    types = [column.type for column in table.columns]
    return [
        tuple(logical(v, t.kind, t.scale) for v, t in zip(row, types, strict=True)) for row in rows
    ]


def query(text: str, found: pa.Table) -> list:
    with duckdb.connect() as connection:
        connection.register("found", found)
        return connection.execute(text).fetchall()


@settings(max_examples=80, deadline=None)
@given(rows_of(PLAIN), rows_of(PLAIN, max_size=8), rows_of(PLAIN, max_size=8))
def test_same_as_rows(first: list, second: list, overlay: list) -> None:
    pages = pages_of(PLAIN, first, second)
    delta = rows_batch(PLAIN, ALL, overlay)
    found = scan_table(PLAIN, list(pages.entries()), [delta], ALL)
    found.validate(full=True)
    assert same_rows(as_rows(PLAIN, found), expected(PLAIN, [*pages.rows(), *overlay]))
    for entry in pages.entries():
        batch(entry, ALL).validate(full=True)


def test_zero_copy() -> None:
    table = table_of(BIGINT, TEXT)
    (entry,) = pages_of(table, [(index, str(index)) for index in range(100)]).base
    array = batch(entry, [0]).column(0)
    whole = pa.py_buffer(entry.page.buffer)
    assert whole.address <= array.buffers()[1].address < whole.address + whole.size
    assert batch(entry, [0]).column(0) is not None
    assert entry.page.arrow_cache[(0, False)] is not None


def test_dictionary_and_plain_pages_agree() -> None:
    table = table_of(BIGINT, TEXT)
    first = [(index, f"city{index % 3}" if index % 2 else None) for index in range(100)]
    second = [(1000, "x"), (1001, None)]
    pages = pages_of(table, first, second)
    overlay = rows_batch(table, [0, 1], [(2000, "y"), (2001, None)]).slice(1)
    found = scan_table(table, list(pages.entries()), [overlay], [1, 0])
    found.validate(full=True)
    assert found.schema.names == ["c1", "c0", LIVE]
    assert found.schema.field("c1").type == pa.dictionary(pa.int32(), pa.string())
    texts = [row[1] for row in (*first, *second)] + [None]
    assert found.column("c1").to_pylist() == texts
    counts = query("select c1, count(*) from found group by 1 order by 1 nulls last", found)
    assert counts == [("city0", 17), ("city1", 17), ("city2", 16), ("x", 1), (None, 52)]


def test_live() -> None:
    table = table_of(BIGINT, TEXT)
    pages = pages_of(table, [(index, "") for index in range(10)], [(3, "new"), (9, "new")])
    base, run = pages.entries()
    assert live_array(base).to_pylist() == [index not in (3, 9) for index in range(10)]
    assert live_array(base) is live_array(base)
    assert live_array(run) is None
    assert masked_live(run, 0b10).to_pylist() == [True, False]
    assert masked_live(base, 1).to_pylist() == [index not in (0, 3, 9) for index in range(10)]
    live = {run: masked_live(run, 0b10)}
    overlay = rows_batch(table, [0], [(9, "newest"), (50, "dead")])
    overlay = overlay.append_column(LIVE, pa.array([True, False]))
    found = scan_table(table, [base, run], [overlay], [0], live)
    assert query(f"select c0 from found where {LIVE} order by 1", found) == [
        (index,) for index in range(10)
    ]


def test_without_pages_and_columns() -> None:
    found = scan_table(PLAIN, [], [], ALL)
    assert found.num_rows == 0
    assert found.schema.field("c8").type == arrow_type(decimal_type(12, 2)) == pa.decimal64(12, 2)
    table = table_of(BIGINT)
    (entry,) = pages_of(table, [(1,), (2,)]).base
    assert scan_table(table, [entry], [], []).column(LIVE).to_pylist() == [True, True]


def test_columns_that_a_page_lacks() -> None:
    old = table_of(BIGINT)
    pages = pages_of(old, [(1,), (2,)])
    columns = (
        *old.columns,
        Column(2, "b", TEXT),
        Column(3, "c", decimal_type(38, 2), default=150),
        Column(4, "d", DATE, default=1),
    )
    table = Table(7, "t", columns, (0,), version=2)
    found = scan_table(table, list(pages.for_table(table).entries()), [], range(4))
    assert found.column("c1").to_pylist() == [None, None]
    assert found.column("c2").to_pylist() == [Decimal("1.50")] * 2
    assert found.column("c3").to_pylist() == [datetime.date(1970, 1, 2)] * 2


@pytest.mark.parametrize("precision", [12, 38])
def test_duckdb_reads_every_type(precision: int) -> None:
    table = table_of(BIGINT, INTEGER, DOUBLE, decimal_type(precision, 2), DATE, TIMESTAMP)
    rows = [(index, index, index / 2, index * 100 + 25, index, index * 10**6) for index in range(9)]
    found = scan_table(table, list(pages_of(table, rows).entries()), [], range(6))
    text = f"select sum(c0), sum(c2), sum(c3), max(c4), max(c5) from found where {LIVE}"
    assert query(text, found) == [
        (
            36,
            18.0,
            Decimal("38.25"),
            datetime.date(1970, 1, 9),
            datetime.datetime(1970, 1, 1, 0, 0, 8),
        )
    ]


def test_negative_zeros() -> None:
    table = table_of(BIGINT, DOUBLE, DOUBLE)
    rows = [(index, (0.0, None, -1.5, float("nan"))[index % 4], None) for index in range(9000)]
    pages = pages_of(table, rows, [(8999, -0.0, None)])
    first, second, third, run = pages.entries()
    assert not has_negative_zero([first, second, third], [], 1)
    assert not has_negative_zero([first, second, third, run], [], 2)
    for _ in range(2):
        assert has_negative_zero([first, run], [], 1)
    overlay = rows_batch(table, [2], [(1, None, 0.0), (2, None, -0.0), (3, None, -0.0)])
    assert has_negative_zero([first], [overlay], 2)
    assert not has_negative_zero([first], [overlay.slice(0, 1), overlay.slice(0, 0)], 2)
