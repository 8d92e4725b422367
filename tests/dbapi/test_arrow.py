"""Results as Arrow, pandas and polars: the same rows as fetchall(), however the table lies."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import herdpy
from herdpy.config import Config

COUNT = Config().vector_rows_min + 500


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    """A table that is big enough for whole columns, in pages, runs and memory, with dead rows."""
    with herdpy.connect(target, autocommit=True) as opened:
        opened.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, b BOOLEAN, n DECIMAL(10, 2), w DECIMAL(30, 3),"
            " s TEXT, few TEXT, y BYTEA, da DATE, ts TIMESTAMP, d DOUBLE)"
        )
        opened.ingest("t", map(row_of, range(COUNT)))
        opened.checkpoint()
        opened.execute("DELETE FROM t WHERE id % 100 = 7")
        opened.checkpoint()
        opened.execute("UPDATE t SET s = 'changed' WHERE id % 1000 = 8")
        opened.execute("DELETE FROM t WHERE id = 5000")
        opened.ingest("t", [row_of(COUNT + 5)])
        yield opened


def row_of(number: int) -> dict[str, Any]:
    is_null = number % 13 == 0
    row: dict[str, Any] = {
        "b": number % 2 == 0,
        "n": Decimal(number) / 100,
        "w": Decimal(number * 10**18) / 1000,
        "s": f"text {number}",
        "few": f"few {number % 3}",
        "y": number.to_bytes(3, "big"),
        "da": datetime.date(2020, 1, 1) + datetime.timedelta(number % 1000),
        "ts": datetime.datetime(2020, 1, 1) + datetime.timedelta(microseconds=number),
        "d": number / 3,
    }
    return {"id": number, **(dict.fromkeys(row) if is_null else row)}


def by_key(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "SELECT id, ts, id, few FROM t",
        "SELECT id, d * 2, upper(s) FROM t",
        "SELECT id, s FROM t ORDER BY id",
        "SELECT id, s FROM t ORDER BY id DESC",
        "SELECT id FROM t ORDER BY id LIMIT 11000 OFFSET 5",
        "SELECT id, few FROM t WHERE id >= 100",
        "SELECT id, n FROM t WHERE few = 'few 1'",
    ],
)
@pytest.mark.parametrize("is_inside", [False, True])
def test_arrow_and_rows_are_the_same(conn: herdpy.Connection, text: str, is_inside: bool) -> None:
    if is_inside:
        conn.execute("BEGIN")
        conn.execute("UPDATE t SET few = 'few 1', n = 0 WHERE id = 123")
        conn.execute("DELETE FROM t WHERE id BETWEEN 9000 AND 9100")
    rows = conn.execute(text).fetchall()
    table = conn.execute(text).fetch_arrow_table()
    found = [tuple(row.values()) for row in table.rename_columns(unique(table)).to_pylist()]
    if "ORDER BY" in text:
        assert found == rows
    assert by_key(found) == by_key(rows)
    batches = list(conn.execute(text).fetch_record_batch(1_000))
    assert max(batch.num_rows for batch in batches) <= 1_000
    assert {batch.schema for batch in batches} == {table.schema}
    assert sum(batch.num_rows for batch in batches) == len(rows)


def unique(table: Any) -> list[str]:
    return [f"c{place}" for place in range(table.num_columns)]


def test_what_was_fetched_outlives_the_connection(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, s TEXT)")
        conn.ingest("u", ({"id": number, "s": str(number)} for number in range(COUNT)))
        conn.checkpoint()
        table = conn.execute("SELECT * FROM u").fetch_arrow_table()
    assert [row["s"] for row in table.to_pylist()] == [str(number) for number in range(COUNT)]


def test_a_reader_keeps_its_snapshot(conn: herdpy.Connection, target: str) -> None:
    reader = conn.execute("SELECT id FROM t").fetch_record_batch(500)
    count = reader.read_next_batch().num_rows
    conn.execute("DELETE FROM t WHERE id > 100")
    conn.checkpoint()
    count += sum(batch.num_rows for batch in reader)
    assert count == sum(1 for number in range(COUNT) if number % 100 != 7) - 1 + 1


def test_a_reader_of_a_closed_cursor_ends(conn: herdpy.Connection) -> None:
    cursor = conn.execute("SELECT id FROM t")
    reader = cursor.fetch_record_batch(500)
    reader.read_next_batch()
    cursor.close()
    assert conn.execute("SELECT count(*) FROM t WHERE id < 3").fetchone() == (3,)


@pytest.mark.sync_face("herdpy.aio has no sql()")
def test_pandas_and_polars(conn: herdpy.Connection) -> None:
    frame = conn.execute("SELECT id, few, d FROM t").to_df()
    assert frame["id"].sum() == conn.execute("SELECT sum(id) FROM t").fetchone()[0]
    polars = pytest.importorskip("polars")
    found = conn.sql("SELECT id, few, d FROM t").to_polars()
    assert isinstance(found, polars.DataFrame)
    assert found["id"].sum() == frame["id"].sum()
    assert conn.execute("SELECT 1 AS x").to_polars().rows() == [(1,)]
