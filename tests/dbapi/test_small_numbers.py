"""REAL and SMALLINT through every face of the driver: rows, Arrow, ingest, staging, and pages."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import herdpy

TENTH = 0.10000000149011612
ROWS = [
    (1, TENTH, 7),
    (2, -0.0, -32768),
    (3, math.inf, 32767),
    (4, None, None),
    (5, math.nan, 0),
    (6, 1.401298464324817e-45, -1),
]


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        opened.execute("CREATE TABLE small (id INTEGER PRIMARY KEY, r REAL, i SMALLINT)")
        yield opened
        opened.execute("DROP TABLE small")


def written(rows: Any) -> str:
    """Return rows as a text in which NaN is NaN, and -0.0 not 0.0."""
    return repr([tuple(row) for row in rows])


def test_rows_and_arrow(conn: herdpy.Connection) -> None:
    conn.executemany("INSERT INTO small VALUES (?, ?, ?)", ROWS)
    for _ in range(2):  # in memory, and in pages
        for source in ("small", "(SELECT * FROM small WHERE abs(id) > 0) AS q"):
            cursor = conn.execute(f"SELECT * FROM {source} ORDER BY id")
            assert cursor.description is not None
            assert [column[1] for column in cursor.description] == ["INTEGER", "REAL", "SMALLINT"]
            assert cursor.description[1][1] == herdpy.NUMBER == cursor.description[2][1]
            assert written(cursor.fetchall()) == written(ROWS)
            found = conn.execute(f"SELECT * FROM {source} ORDER BY id").fetch_arrow_table()
            assert found.schema.types == [pa.int32(), pa.float32(), pa.int16()]
            assert written(zip(*found.to_pydict().values(), strict=True)) == written(ROWS)
        conn.checkpoint()


def _ingest(conn: herdpy.Connection, data: pa.Table) -> None:
    conn.ingest("small", data)


def _stage(conn: herdpy.Connection, data: pa.Table) -> None:
    job = conn.begin_staging("small")
    stage = conn.stage(job, 0)
    stage.add(data)
    conn.commit_staging(job, [stage.finish()])


@pytest.mark.parametrize("way", [_ingest, _stage])
@pytest.mark.parametrize(
    ("reals", "integers"),
    [
        (pa.float32(), pa.int16()),
        (pa.float64(), pa.int64()),
        (pa.dictionary(pa.int8(), pa.float32()), pa.uint64()),
    ],
    ids=["own", "wider", "other"],
)
def test_data_of_arrow(
    conn: herdpy.Connection, way: Callable[..., None], reals: Any, integers: Any
) -> None:
    rows = [(a, b, abs(c) if c and pa.types.is_unsigned_integer(integers) else c)
            for a, b, c in ROWS if c != -32768]  # fmt: skip
    ids, numbers, wholes = zip(*rows, strict=True)
    values = pa.array(numbers, pa.float32() if pa.types.is_dictionary(reals) else reals)
    data = pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "r": values.dictionary_encode() if pa.types.is_dictionary(reals) else values,
            "i": pa.array(wholes, integers),
        }
    )
    way(conn, data)
    for _ in range(2):
        assert written(conn.execute("SELECT * FROM small ORDER BY id")) == written(rows)
        conn.checkpoint()


@pytest.mark.parametrize("way", [_ingest, _stage])
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("r", pa.array([1.0, 1e39])),
        ("r", pa.array([1.0, -1e-50])),
        ("i", pa.array([1, 32_768])),
        ("i", pa.array([1.0, 1e9])),
    ],
)
def test_what_does_not_fit(
    conn: herdpy.Connection, way: Callable[..., None], name: str, array: pa.Array
) -> None:
    with pytest.raises(herdpy.DataError, match=f"row 2 of the data: column {name}: ") as caught:
        way(conn, pa.table({"id": [1, 2], name: array}))
    assert caught.value.sqlstate == "22003"


def test_a_float_of_python_is_a_double(conn: herdpy.Connection) -> None:
    conn.executemany("INSERT INTO small VALUES (?, ?, ?)", ROWS)
    for text in (
        "SELECT id FROM small WHERE r = ?",
        "SELECT id FROM (SELECT * FROM small WHERE abs(id) > 0) AS q WHERE r = ?",
    ):
        assert conn.execute(text, (0.1,)).fetchall() == []
        assert conn.execute(text, (TENTH,)).fetchall() == [(1,)]
        assert conn.execute(text, ("0.1",)).fetchall() == [(1,)]
        cast = text.replace("?", "CAST(? AS REAL)")
        assert conn.execute(cast, (0.1,)).fetchall() == [(1,)]
    with pytest.raises(herdpy.DataError) as caught:
        conn.execute("SELECT CAST(? AS REAL)", (1e39,))
    assert caught.value.sqlstate == "22003"
