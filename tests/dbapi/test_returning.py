"""RETURNING: the rows of a change, over every way to the database."""

import datetime
from collections.abc import Iterator
from decimal import Decimal

import pytest

import herdpy
from herdpy.errors import NotSupportedError, OperationalError
from herdpy.limits import returned_bytes_max, returned_rows_max
from herdpy.proto.values import ROWS_MAX

DAY = datetime.date(2024, 2, 29)


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as made:
        made.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, n DECIMAL(30, 2), day DATE, b BYTEA)"
        )
        yield made


def count(conn: herdpy.Connection) -> int:
    return conn.execute("SELECT count(*) FROM t").fetchall()[0][0]


def test_a_cursor_has_columns_rows_and_the_number_of_rows_written(
    conn: herdpy.Connection,
) -> None:
    cursor = conn.cursor()
    cursor.execute(
        "INSERT INTO t VALUES (?, 'a', 1.5, ?, ?), (2, NULL, NULL, NULL, NULL) "
        "RETURNING *, id + 1 AS next",
        (1, DAY, b"\0"),
    )
    assert [column[:2] for column in cursor.description or ()] == [
        ("id", "BIGINT"),
        ("v", "TEXT"),
        ("n", "DECIMAL"),
        ("day", "DATE"),
        ("b", "BYTEA"),
        ("next", "BIGINT"),
    ]
    assert cursor.rowcount == 2
    assert cursor.fetchone() == (1, "a", Decimal("1.50"), DAY, b"\0", 2)
    assert cursor.fetchmany(5) == [(2, None, None, None, None, 3)]
    assert cursor.fetchone() is None
    assert cursor.rowcount == 2
    cursor.execute("UPDATE t SET v = 'c' WHERE id = ? RETURNING upper(v), day", (1,))
    assert (cursor.rowcount, cursor.fetchall()) == (1, [("C", DAY)])
    cursor.execute("DELETE FROM t WHERE id = 7 RETURNING id")
    assert (cursor.rowcount, cursor.fetchall()) == (0, [])
    assert list(cursor.execute("DELETE FROM t WHERE id < 3 RETURNING id, v")) == [
        (1, "c"),
        (2, None),
    ]
    cursor.execute("INSERT INTO t (id) VALUES (1)")
    assert (cursor.description, cursor.rowcount) == (None, 1)


def test_the_same_statement_again_gives_its_own_rows(conn: herdpy.Connection) -> None:
    for number in range(4):
        cursor = conn.execute("INSERT INTO t (id, v) VALUES (?, ?) RETURNING id, v", (number, "x"))
        assert cursor.fetchall() == [(number, "x")]
    for number in range(4):
        cursor = conn.execute("UPDATE t SET v = ? WHERE id = ? RETURNING v", (str(number), number))
        assert (cursor.rowcount, cursor.fetchall()) == (1, [(str(number),)])


def test_rows_are_arrow_too(conn: herdpy.Connection) -> None:
    cursor = conn.execute("INSERT INTO t (id, n) VALUES (1, 2), (2, 3.25) RETURNING id, n")
    table = cursor.fetch_arrow_table()
    assert table.to_pydict() == {"id": [1, 2], "n": [Decimal("2.00"), Decimal("3.25")]}


def test_many_sets_of_parameters_are_refused(conn: herdpy.Connection) -> None:
    with pytest.raises(NotSupportedError, match="RETURNING") as caught:
        conn.executemany("INSERT INTO t (id) VALUES (?) RETURNING id", [(1,), (2,)])
    assert caught.value.sqlstate == "0A000"
    assert count(conn) == 0


def test_many_sets_of_parameters_update_what_the_earlier_ones_left(
    conn: herdpy.Connection,
) -> None:
    text = "INSERT INTO t (id, v, n) VALUES (?, ?, 1) ON CONFLICT (id) DO UPDATE SET n = t.n + 1"
    cursor = conn.executemany(text, [(1, "a"), (1, "b"), (2, "c"), (1, "d")])
    assert cursor.rowcount == 4
    found = conn.execute("SELECT id, v, n FROM t ORDER BY id").fetchall()
    assert found == [(1, "a", Decimal(3)), (2, "c", Decimal(1))]
    text += ", v = upper(excluded.v) || t.v WHERE t.id < ?"
    assert conn.executemany(text, [(1, "x", 2), (2, "y", 2), (1, "z", 2)]).rowcount == 2
    found = conn.execute("SELECT id, v, n FROM t ORDER BY id").fetchall()
    assert found == [(1, "ZXa", Decimal(5)), (2, "c", Decimal(1))]
    text = "UPDATE t SET n = t.n + o.n + ? FROM t AS o WHERE o.id = t.id AND t.id = ?"
    assert conn.executemany(text, [(1, 1), (1, 1), (1, 9)]).rowcount == 2
    assert conn.execute("SELECT n FROM t WHERE id = 1").fetchall() == [(Decimal(23),)]


def test_statements_of_a_pipeline_give_rows(conn: herdpy.Connection) -> None:
    with conn.pipeline() as pipe:
        one = pipe.execute("INSERT INTO t (id) VALUES (1) RETURNING id")
        two = pipe.execute("DELETE FROM t RETURNING id, v")
    assert (one.rowcount, one.fetchall()) == (1, [(1,)])
    assert (two.rowcount, two.fetchall()) == (1, [(1, None)])


def test_rows_stay_readable_behind_the_end_of_the_transaction(conn: herdpy.Connection) -> None:
    conn.execute("BEGIN")
    cursor = conn.execute("INSERT INTO t (id) VALUES (1), (2) RETURNING id")
    conn.rollback()
    assert cursor.fetchall() == [(1,), (2,)]
    assert count(conn) == 0


def test_more_rows_than_come_with_an_answer(conn: herdpy.Connection) -> None:
    conn.execute("INSERT INTO t (id) VALUES (0), (1), (2), (3), (4), (5), (6), (7)")
    for shift in (8, 64, 512):
        ones = ", ".join(f"({n})" for n in range(8))
        values = f"(VALUES {ones}) AS o (k)"
        text = f"INSERT INTO t (id, v) SELECT id + {shift} * k, 'x' FROM t, {values} WHERE k > 0"
        conn.execute(text)
    cursor = conn.execute("UPDATE t SET v = 'y' RETURNING id, v")
    assert cursor.rowcount == 4096
    assert sorted(cursor.fetchall()) == [(n, "y") for n in range(4096)]


def test_what_is_too_much_is_refused_before_anything_is_written(conn: herdpy.Connection) -> None:
    assert returned_rows_max <= ROWS_MAX
    conn.execute("INSERT INTO t (id, v) VALUES (1, ?)", ("ä" * 400_000,))
    times = returned_bytes_max // 800_000
    three = "(VALUES (1), (2), (3), (4), (5), (6), (7), (8)) AS o (k)"
    text = f"INSERT INTO t (id, v) SELECT id + k, v FROM t, {three} WHERE k <= ? RETURNING v"
    with pytest.raises(OperationalError, match="more than") as caught:
        conn.execute(text, (times + 1,))
    assert caught.value.sqlstate == "54000"
    assert count(conn) == 1
    assert len(conn.execute(text, (times,)).fetchall()) == times
    with pytest.raises(OperationalError, match="more than"):
        conn.execute("DELETE FROM t RETURNING v || v")
    assert count(conn) == 1 + times


def test_too_many_rows(conn: herdpy.Connection) -> None:
    conn.executemany("INSERT INTO t (id) VALUES (?)", [(n,) for n in range(returned_rows_max + 1)])
    with pytest.raises(OperationalError, match="rows, expected at most") as caught:
        conn.execute("UPDATE t SET v = 'x' RETURNING id")
    assert caught.value.sqlstate == "54000"
    assert conn.execute("SELECT count(v) FROM t").fetchall() == [(0,)]
    cursor = conn.execute("DELETE FROM t WHERE id > 0 RETURNING id")
    assert (cursor.rowcount, len(cursor.fetchall())) == (returned_rows_max, returned_rows_max)
