"""now() and its like stand still in a transaction; random() draws per row, and rows are logged."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

import herdpy
from herdpy.driver.connection import Connection


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    connection.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, r DOUBLE PRECISION,"
        " at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, day DATE DEFAULT CURRENT_DATE)"
    )
    yield connection
    connection.close()


def only(connection: Connection, text: str) -> object:
    ((value,),) = connection.execute(text).fetchall()
    return value


def test_now_is_the_transactions(connection: Connection) -> None:
    connection.execute("BEGIN")
    first = only(connection, "SELECT now()")
    texts = "SELECT current_timestamp", "SELECT localtimestamp::timestamptz", "SELECT now() FROM t"
    for text in texts:
        connection.execute("INSERT INTO t (id) SELECT count(*) FROM t")
        assert {value for (value,) in connection.execute(text).fetchall()} == {first}
    assert only(connection, "SELECT current_date") == first.date()  # type: ignore[attr-defined]
    assert only(connection, "SELECT DISTINCT at::timestamptz FROM t") == first
    connection.execute("COMMIT")
    assert only(connection, "SELECT now()") > first  # type: ignore[operator]


def test_now_begins_a_transaction_without_autocommit(target: str) -> None:
    connection = herdpy.connect(target)
    first = only(connection, "SELECT now()")
    assert only(connection, "SELECT now()") == first
    connection.rollback()
    assert only(connection, "SELECT now()") > first  # type: ignore[operator]
    connection.close()


def test_now_in_both_paths(connection: Connection) -> None:
    connection.execute("INSERT INTO t (id) VALUES (1)")
    assert only(connection, "SELECT id FROM t WHERE at <= now() AND id = 1") == 1
    assert only(connection, "SELECT count(*) FROM t WHERE at <= now()") == 1
    assert only(connection, "SELECT extract(year FROM now()) >= 2020")


def test_default_in_some_rows_only(connection: Connection) -> None:
    fixed = datetime.datetime(2020, 1, 2, 3, 4, 5)
    connection.execute(
        "INSERT INTO t VALUES (1, 0, ?, DEFAULT), (2, 0, DEFAULT, ?)", (fixed, fixed)
    )
    assert only(connection, "SELECT at FROM t WHERE id = 1") == fixed
    assert only(connection, "SELECT day FROM t WHERE id = 2") == fixed.date()
    assert only(connection, "SELECT count(*) FROM t WHERE at > DATE '2021-01-01'") == 1


def test_random_is_drawn_per_row_and_kept(tmp_path: Path) -> None:
    connection = herdpy.connect(str(tmp_path / "db"), autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, r DOUBLE PRECISION)")
    connection.execute("INSERT INTO t VALUES (1, random()), (2, random())")
    connection.execute("INSERT INTO t SELECT id + 10, random() FROM t")
    connection.execute("UPDATE t SET r = random() WHERE id = 1")
    rows = connection.execute("SELECT id, r FROM t ORDER BY id").fetchall()
    assert len({r for _, r in rows}) == 4
    assert all(0 <= r < 1 for _, r in rows)
    connection.close()
    connection = herdpy.connect(str(tmp_path / "db"), autocommit=True)
    assert connection.execute("SELECT id, r FROM t ORDER BY id").fetchall() == rows
    connection.close()


@pytest.mark.parametrize(
    "text",
    [
        # Each is false for every row, but for some with two draws, or raises then.
        "coalesce(CASE WHEN random() < 0.5 THEN 1 END, 9) IS NULL",
        "(CASE WHEN random() < 0.5 THEN 1e300::float8 ELSE 1 END)::text NOT IN ('1', '1e+300')",
    ],
)
def test_random_is_drawn_once_inside_a_function(connection: Connection, text: str) -> None:
    connection.execute("INSERT INTO t (id) SELECT a FROM (VALUES (1), (2), (3), (4)) AS v (a)")
    query = f"SELECT count(*) FROM t AS a, t AS b, t AS c, t AS d, t AS e WHERE {text}"
    assert only(connection, query) == 0


@pytest.mark.parametrize(
    "text",
    [
        # Each is false for every row, but for some with two draws.
        "floor(random() * 4) NOT BETWEEN 0 AND 3",
        "nullif(floor(random() * 2), 1) = 1",
        "CASE floor(random() * 2) WHEN 0 THEN FALSE WHEN 1 THEN FALSE ELSE TRUE END",
    ],
)
def test_random_is_drawn_once_for_an_operand(connection: Connection, text: str) -> None:
    connection.execute("INSERT INTO t (id) SELECT a FROM (VALUES (1), (2), (3), (4)) AS v (a)")
    query = f"SELECT count(*) FROM t AS a, t AS b, t AS c, t AS d, t AS e WHERE {text}"
    assert only(connection, query) == 0
