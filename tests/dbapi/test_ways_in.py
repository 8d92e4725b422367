"""A value becomes the same whichever way it comes in: over every transport, by every call.

The rows are (value of Python, type of the column, what is stored or the SQLSTATE), the columns of
the matrix the ways of writing.
"""

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import herdpy

VALUES: list[tuple[Any, str, Any]] = [
    (1.005, "NUMERIC(10,2)", Decimal("1.01")),
    (-2.675, "NUMERIC(10,2)", Decimal("-2.68")),
    (0.1 + 0.2, "NUMERIC(38,20)", Decimal("0.3")),
    (1e15, "NUMERIC(38,10)", Decimal(10**15)),
    (123456789.123456789, "NUMERIC(38,20)", Decimal("123456789.123457")),
    (1.23456789012345e17, "NUMERIC(20,3)", "22003"),
    (5e-20, "NUMERIC(9,9)", Decimal(0)),
    (4.5e-7, "NUMERIC(20,20)", Decimal("0.00000045")),
    (1e300, "NUMERIC(38,0)", "22003"),
    (float("nan"), "NUMERIC(38,0)", "22003"),
    (float("-inf"), "NUMERIC(38,0)", "22003"),
    (Decimal("1.005"), "NUMERIC(10,2)", Decimal("1.01")),
    (7, "NUMERIC(38,20)", Decimal(7)),
    ("1.23e2", "NUMERIC(38,20)", Decimal(123)),
    ("1.2e17", "NUMERIC(20,3)", "22003"),
    ("1e-400", "NUMERIC(10,2)", Decimal(0)),
    ("1e400", "NUMERIC(10,2)", "22003"),
    ("1e400", "DOUBLE PRECISION", "22003"),
    ("-1e-400", "DOUBLE PRECISION", "22003"),
    ("4e-324", "DOUBLE PRECISION", 5e-324),
    (Decimal("1e-400"), "DOUBLE PRECISION", "22003"),
    (Decimal("0.1"), "DOUBLE PRECISION", 0.1),
    (2**80, "DOUBLE PRECISION", float(2**80)),
    (0.1, "REAL", 0.10000000149011612),
    (np.float32(0.1), "REAL", 0.10000000149011612),
    (16_777_217, "REAL", 16_777_216.0),
    (2**53 + 2**29 + 1, "REAL", 2.0**53 + 2**30),  # rounded once
    (Decimal("1.00000005960464477540"), "REAL", 1 + 2.0**-23),
    ("7.038531e-26", "REAL", 7.038530691851209e-26),
    (1e39, "REAL", "22003"),
    (-1e-46, "REAL", "22003"),
    ("1e39", "REAL", "22003"),
    (Decimal("1e-50"), "REAL", "22003"),
    (float("-inf"), "REAL", float("-inf")),
    (2.5, "SMALLINT", 2),
    (Decimal("2.5"), "SMALLINT", 3),
    (np.int16(-32768), "SMALLINT", -32768),
    (" 7 ", "SMALLINT", 7),
    (32_768, "SMALLINT", "22003"),
    (1e10, "SMALLINT", "22003"),
    ("-32769", "SMALLINT", "22003"),
    (2.5, "INTEGER", 2),
    (Decimal("2.5"), "INTEGER", 3),
    ("\ud800", "BYTEA", "22021"),
    ("\ud800", "INTEGER", "22021"),
    (datetime.timedelta(days=-1, seconds=5), "TEXT", "-1 days +00:00:05"),
]

Connection = Any


@pytest.fixture
def conn(target: str) -> Iterator[Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        yield opened


def _execute(conn: Connection, value: Any) -> None:
    conn.execute("INSERT INTO t VALUES (1, ?)", (value,))


def _named(conn: Connection, value: Any) -> None:
    conn.execute("INSERT INTO t VALUES (1, :value)", {"value": value})


def _again(conn: Connection, value: Any) -> None:
    """Insert by a plan that came before."""
    for _ in range(3):
        conn.execute("INSERT INTO t VALUES (?, ?)", (1, value))
        conn.execute("DELETE FROM t")
    conn.execute("INSERT INTO t VALUES (?, ?)", (1, value))


def _executemany(conn: Connection, value: Any) -> None:
    conn.executemany("INSERT INTO t VALUES (?, ?)", [(1, value)])


def _executemany_after_none(conn: Connection, value: Any) -> None:
    conn.executemany("INSERT INTO t VALUES (?, ?)", [(2, None), (1, value)])
    conn.execute("DELETE FROM t WHERE id = 2")


def _several_rows(conn: Connection, value: Any) -> None:
    conn.execute("INSERT INTO t VALUES (2, NULL), (1, ?)", (value,))
    conn.execute("DELETE FROM t WHERE id = 2")


def _upsert(conn: Connection, value: Any) -> None:
    conn.execute("UPSERT INTO t VALUES (1, ?)", (value,))


def _update(conn: Connection, value: Any) -> None:
    conn.execute("INSERT INTO t VALUES (1, NULL)")
    conn.execute("UPDATE t SET v = ? WHERE id = 1", (value,))


def _update_by_vector(conn: Connection, value: Any) -> None:
    conn.execute("INSERT INTO t VALUES (1, NULL)")
    conn.execute("UPDATE t SET v = ? WHERE abs(id) = 1", (value,))


def _ingest(conn: Connection, value: Any) -> None:
    conn.ingest("t", [{"id": 1, "v": value}])


WAYS: list[Callable[[Connection, Any], None]] = [
    _execute, _named, _again, _executemany, _executemany_after_none, _several_rows, _upsert,
    _update, _update_by_vector, _ingest,
]  # fmt: skip


def _outcome(conn: Connection, way: Callable[[Connection, Any], None], value: Any) -> Any:
    conn.execute("DELETE FROM t")
    try:
        way(conn, value)
    except herdpy.Error as error:
        return error.sqlstate
    return conn.execute("SELECT v FROM t").fetchall()


@pytest.mark.parametrize(("value", "kind", "expected"), VALUES, ids=repr)
def test_a_value_is_stored_alike(conn: Connection, value: Any, kind: str, expected: Any) -> None:
    conn.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {kind})")
    wanted = expected if isinstance(expected, str) and expected[:2] == "22" else [(expected,)]
    found = {way.__name__: _outcome(conn, way, value) for way in WAYS}
    assert found == dict.fromkeys(found, wanted)


def _stage(conn: Connection, data: pa.Table) -> None:
    job = conn.begin_staging("t")
    stage = conn.stage(job, 0)
    stage.add(data)
    conn.commit_staging(job, [stage.finish()])


def _ingest_arrow(conn: Connection, data: pa.Table) -> None:
    conn.ingest("t", data)


NUMBERS = [1.005, 0.1 + 0.2, -123456789.123456789, 1e15, 5e-20, None, 2.675, 1e-7]


@pytest.mark.parametrize("way", [_stage, _ingest_arrow])
@pytest.mark.parametrize("kind", ["NUMERIC(38,20)", "NUMERIC(10,2)"])
@pytest.mark.parametrize(
    ("arrow", "digits"), [(pa.float64(), 15), (pa.float32(), 6)], ids=["double", "real"]
)
def test_arrow_floats_are_stored_as_parameters_are(
    conn: Connection,
    way: Callable[[Connection, pa.Table], None],
    kind: str,
    arrow: pa.DataType,
    digits: int,
) -> None:
    numbers = [n for n in NUMBERS if kind == "NUMERIC(38,20)" or n is None or abs(n) < 1e7]
    floats = [None if n is None else float(np.float32(n) if digits == 6 else n) for n in numbers]
    conn.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {kind})")
    way(conn, pa.table({"id": range(len(floats)), "v": pa.array(floats, arrow)}))
    stored = conn.execute("SELECT v FROM t ORDER BY id").fetchall()
    texts = [None if number is None else f"{number:.{digits}g}" for number in floats]
    cast = [conn.execute(f"SELECT ?::{kind}", (text,)).fetchall()[0] for text in texts]
    assert stored == cast


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string()])
def test_arrow_text_beyond_a_double_is_refused(conn: Connection, arrow: pa.DataType) -> None:
    conn.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v DOUBLE PRECISION)")
    for way in (_stage, _ingest_arrow):
        with pytest.raises(herdpy.DataError) as caught:
            way(conn, pa.table({"id": [1], "v": pa.array(["1e-400"], arrow)}))
        assert caught.value.sqlstate == "22003"


def test_a_read_finds_what_was_written(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v NUMERIC(38,20), d DOUBLE PRECISION)")
    for number in (0.1 + 0.2, 1.005, 1e15):
        conn.execute("DELETE FROM t")
        conn.execute("INSERT INTO t VALUES (1, ?, ?)", (number, number))
        text = "SELECT v = ?::float8::numeric(38,20), v = d::numeric(38,20) FROM t"
        assert conn.execute(text, (number,)).fetchall() == [(True, True)]


def test_rows_staged_for_one_commit_have_one_time(conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, z TIMESTAMPTZ DEFAULT now())")
    job = conn.begin_staging("t")
    stage = conn.stage(job, 0)
    for number in range(5):
        stage.add(pa.table({"id": [number]}))
    conn.commit_staging(job, [stage.finish()])
    assert conn.execute("SELECT count(DISTINCT z) FROM t").fetchall() == [(1,)]


def test_intervals_go_both_ways(conn: Connection) -> None:
    moments = [
        datetime.timedelta(0),
        datetime.timedelta(days=1, microseconds=1),
        datetime.timedelta(days=-400, hours=3),
        datetime.timedelta(microseconds=-1),
        datetime.timedelta(days=106_751_990),
    ]
    for value in moments:
        cursor = conn.execute("SELECT ? AS i, ? = interval '0', NULL::interval", (value, value))
        assert cursor.description[0][:2] == ("i", "INTERVAL")
        assert cursor.fetchall() == [(value, value == moments[0], None)]
    table = conn.execute("SELECT ? AS i", (moments[1],)).fetch_arrow_table()
    assert table.schema.field("i").type == pa.duration("us")
    assert table.to_pydict() == {"i": [moments[1]]}
    for text in ("? > interval '1 day' + '1 sec'", "? IN ('1 day', NULL)", "? IS NULL"):
        conn.execute(f"SELECT 1 WHERE {text}", (moments[1],)).fetchall()
    with pytest.raises(herdpy.DataError) as caught:
        conn.execute("SELECT ?", (datetime.timedelta.max,)).fetchall()
    assert caught.value.sqlstate == "22008"
