"""Findings about the rules of rows: one rule and one wording, whichever way a row is written."""

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import herdpy

ROW_BYTES = 1_990_000


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    """Return SQLSTATE and message of an error; a success is ("", what it gave)."""
    try:
        found = act()
    except herdpy.Error as error:
        return error.sqlstate or "", error.message
    return "", repr(found)


def stage(conn: Any, data: pa.Table, operation: str = "append") -> None:
    job = conn.begin_staging("t", operation=operation)
    with conn.stage(job, 0) as rows:
        rows.add(data)
        token = rows.finish()
    conn.commit_staging(job, [token])


@pytest.mark.finding("H1")
def test_a_large_ingest_has_the_limit_of_a_row() -> None:
    with herdpy.connect(":memory:", autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, b TEXT)")
        count = 10_001
        data = pa.table(
            {
                "id": pa.array(range(count), pa.int64()),
                "n": pa.array([0] * count, pa.int64()),
                "b": pa.array(["f"] * (count - 1) + ["x" * ROW_BYTES]),
            }
        )
        sqlstate, message = refusal(lambda: conn.ingest("t", data))
        assert sqlstate == "54000", "the row was taken"
        assert "row 10,001 of the data" in message
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


@pytest.mark.finding("H1")
def test_staged_rows_have_the_limit_of_a_row() -> None:
    with herdpy.connect(":memory:", autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, b TEXT)")
        data = pa.table({"id": [1], "n": [0], "b": ["x" * ROW_BYTES]})
        staged = refusal(lambda: stage(conn, data))[0]
        changed = refusal(lambda: conn.execute("UPDATE t SET n = 1 WHERE id = 1"))[0]
        assert (staged, changed) == ("54000", "")


@pytest.mark.finding("H1")
def test_a_staged_update_makes_no_row_that_is_too_long() -> None:
    """Each part has its length; the row that they make has not."""
    with herdpy.connect(":memory:", autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b TEXT)")
        conn.execute("INSERT INTO t VALUES (1, ?, 'b')", ("x" * 900_000,))
        data = pa.table({"id": [1], "b": ["y" * 900_000]})
        assert refusal(lambda: stage(conn, data, "update"))[0] == "54000"
        assert conn.execute("SELECT b FROM t").fetchall() == [("b",)]


@pytest.mark.finding("H4")
@pytest.mark.parametrize(
    ("kind", "value", "arrow"),
    [("INTEGER", 2**31, pa.int64()), ("DECIMAL(6,2)", 12345.5, pa.float64())],
)
def test_one_mistake_has_one_wording(kind: str, value: Any, arrow: pa.DataType) -> None:
    insert = "INSERT INTO t (id, v) VALUES (?, ?)"
    with herdpy.connect(":memory:", autocommit=True) as conn:
        conn.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {kind})")
        conn.execute("INSERT INTO t VALUES (0, 0)")
        data = pa.table({"id": [1], "v": pa.array([value], arrow)})
        ways: list[Callable[[], object]] = [
            lambda: conn.execute(insert, (1, value)),
            lambda: conn.execute(insert, (1, value)),
            lambda: conn.execute(f"INSERT INTO t (id, v) VALUES (1, {value})"),
            lambda: conn.executemany(insert, [(1, value)]),
            lambda: conn.execute("INSERT INTO t (id, v) SELECT 1, ?", (value,)),
            lambda: conn.execute("INSERT INTO t (id, v) SELECT id + 1, ? FROM t", (value,)),
            lambda: conn.execute("UPDATE t SET v = ? WHERE id = 0", (value,)),
            lambda: conn.execute("UPDATE t SET v = v + ? WHERE abs(id) = 0", (value,)),
            lambda: conn.ingest("t", data),
            lambda: stage(conn, data),
        ]
        found = {
            (sqlstate, re.sub(r"^row [\d,]+ of the data: ", "", message))
            for sqlstate, message in map(refusal, ways)
        }
        wording = f"column v: value {value} is out of range for type {kind}"
        assert found == {("22003", wording)}
