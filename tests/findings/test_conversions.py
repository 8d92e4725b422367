"""Findings about conversions, now(), intervals: the same value whichever way it comes in."""

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import herdpy


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Any]:
    opened = herdpy.connect(tmp_path / "db", autocommit=True)
    yield opened
    opened.close()


def answer(connection: Any, text: str, *parameters: Any) -> Any:
    """Return the rows, or the SQLSTATE of what was raised instead; a raw Python error's name."""
    try:
        cursor = connection.execute(text, parameters)
        return cursor.fetchall() if cursor.description else cursor.rowcount
    except herdpy.Error as error:
        return error.sqlstate
    except Exception as error:
        return type(error).__name__


@pytest.mark.finding("Q1")
def test_a_double_becomes_a_numeric_by_its_decimal_digits(connection: Any) -> None:
    text = "SELECT 1e15::float8::numeric(38,10), 100::float8::numeric(38,30)"
    text += ", 1.005::float8::numeric(10,2), 0.1::float8::numeric(38,25)"
    assert answer(connection, text) == [
        (Decimal("1000000000000000"), Decimal(100), Decimal("1.01"), Decimal("0.1"))
    ]
    text = "SELECT count(*) FROM (VALUES (0.3::float8), (123456789.7::float8)) AS v (d)"
    text += " WHERE d::numeric(38,20)::text NOT LIKE '%000000000'"
    assert answer(connection, text) == [(0,)]


@pytest.mark.finding("Q1")
@pytest.mark.parametrize("number", [1.005, 0.1 + 0.2, 123456789012345.6, 2.675, -1.005])
def test_a_double_is_stored_alike_on_every_way(connection: Any, number: float) -> None:
    expected = Decimal(f"{number:.15g}")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n NUMERIC(38,20))")
    connection.execute("INSERT INTO t VALUES (1, ?)", (number,))
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(2, number)])
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(3, None), (4, number)])
    connection.execute("INSERT INTO t VALUES (5, 0), (6, ?)", (number,))
    connection.execute("UPDATE t SET n = ? WHERE id = 5", (number,))
    connection.execute("INSERT INTO t SELECT 7, ?::float8", (number,))
    connection.ingest("t", [{"id": 8, "n": number}])
    rows = answer(connection, "SELECT id, n FROM t WHERE n IS NOT NULL ORDER BY id")
    assert {row[1] for row in rows} == {expected}, rows
    assert [row[0] for row in rows] == [1, 2, 4, 5, 6, 7, 8]
    assert answer(connection, "SELECT count(*) FROM t WHERE n = ?", expected) == [(7,)]


@pytest.mark.finding("Q2")
def test_string_agg_without_separator(connection: Any) -> None:
    values = "(VALUES ('a'), ('b')) AS v (s)"
    assert answer(connection, f"SELECT string_agg(s, NULL ORDER BY s) FROM {values}") == [("ab",)]
    assert answer(connection, f"SELECT string_agg(s, ? ORDER BY s) FROM {values}", None) == [
        ("ab",)
    ]


@pytest.mark.finding("Q3")
@pytest.mark.parametrize("text", ["1e400", "-1e400", "10e400", "1e-400", "1e-99999", "2e-324"])
def test_text_beyond_a_double_is_refused(connection: Any, text: str) -> None:
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, d DOUBLE PRECISION)")
    assert answer(connection, f"SELECT '{text}'::float8") == "22003"
    assert answer(connection, f"SELECT ('{text}' || '')::float8") == "22003"
    assert answer(connection, "SELECT ?::float8", text) == "22003"
    assert answer(connection, "INSERT INTO t VALUES (1, ?)", text) == "22003"
    assert answer(connection, f"INSERT INTO t VALUES (1, '{text}')") == "22003"
    assert answer(connection, "SELECT '4e-324'::float8 > 0") == [(True,)]


@pytest.mark.finding("Q7")
def test_a_statement_has_one_time(connection: Any) -> None:
    connection.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TIMESTAMPTZ DEFAULT now(), b TIMESTAMPTZ)"
    )
    for number in range(20):
        connection.execute("INSERT INTO t (id, b) VALUES (?, now())", (number,))
    assert answer(connection, "SELECT count(*) FROM t WHERE a <> b") == [(0,)]
    text = "SELECT now()::timestamp = localtimestamp, now() = CASE WHEN true THEN now() END"
    found = {row for _ in range(20) for row in answer(connection, text)}
    assert found == {(True, True)}


@pytest.mark.finding("Q11")
def test_timestamp_differences_stand_anywhere(connection: Any) -> None:
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, z TIMESTAMPTZ, s TEXT)")
    connection.execute("INSERT INTO t VALUES (1, now(), ''), (2, '2020-01-01 00:00:00Z', '')")
    where = "WHERE now() - z > interval '1 day'"
    assert answer(connection, f"SELECT id FROM t {where}") == [(2,)]
    assert answer(connection, f"UPDATE t SET s = (z - '2019-12-31 00:00Z')::text {where}") == 1
    assert answer(connection, "SELECT s FROM t WHERE id = 2") == [("1 day",)]
    ordered = "SELECT id FROM t ORDER BY now() - z DESC"
    assert answer(connection, ordered) == [(2,), (1,)]
    assert answer(connection, "SELECT max(z) - min(z) > '1 year' FROM t") == [(True,)]
    grouped = "SELECT count(*) FROM t GROUP BY z - z"
    assert answer(connection, grouped) == [(2,)]
    assert answer(connection, f"DELETE FROM t {where}") == 1


@pytest.mark.finding("Q11")
def test_fields_of_an_interval(connection: Any) -> None:
    text = "SELECT extract(day FROM interval '3 days 4 hours')"
    text += ", extract(epoch FROM timestamp '2020-01-02' - timestamp '2020-01-01' + '1 hour')"
    assert answer(connection, text) == [(Decimal(3), Decimal(90000))]


@pytest.mark.finding("Q12")
def test_intervals_are_compared_and_chosen_from(connection: Any) -> None:
    text = "SELECT interval '1 day' = NULL, interval '1 day' IN ('24:00', '2 days')"
    text += ", (coalesce(NULL, interval '1 mon -2 days'))::text, nullif(interval '1 day', '24:00')"
    text += ", greatest(interval '29 days', '1 month'), interval '1 day' * 1.5"
    assert answer(connection, text) == [
        (
            None, True, "1 mon -2 days", None, datetime.timedelta(days=30),
            datetime.timedelta(days=1, hours=12),
        )
    ]  # fmt: skip
    ordered = "SELECT x::text FROM (VALUES (interval '2 days'), ('1 hour')) AS v (x) ORDER BY x"
    assert answer(connection, ordered) == [("01:00:00",), ("2 days",)]


@pytest.mark.finding("Q13")
def test_a_lone_surrogate_is_no_bytes(connection: Any) -> None:
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, b BYTEA)")
    assert answer(connection, "INSERT INTO t VALUES (1, ?)", "\ud800") == "22021"
    assert answer(connection, "SELECT ?::bytea", "\ud800") == "22021"
    assert answer(connection, "SELECT ?::integer", "\ud800") == "22021"


@pytest.mark.finding("D5")
def test_a_short_varchar_takes_default_null(connection: Any) -> None:
    created = "CREATE TABLE t (id INTEGER PRIMARY KEY, v VARCHAR(2) DEFAULT NULL)"
    assert answer(connection, created) == -1
    assert answer(connection, "INSERT INTO t (id) VALUES (1)") == 1
    assert answer(connection, "SELECT v FROM t") == [(None,)]
    too_long = "CREATE TABLE u (id INTEGER PRIMARY KEY, v VARCHAR(2) DEFAULT 'abc')"
    assert answer(connection, too_long) == "22001"


@pytest.mark.finding("N12")
def test_an_interval_is_a_result_under_its_own_name(connection: Any) -> None:
    cursor: Any = None
    said = ""
    try:
        cursor = connection.execute("SELECT interval '1 day 2 hours'")
    except herdpy.Error as error:
        said = str(error)
    assert "numeric" not in said
    assert cursor is not None
    assert cursor.description[0][:2] == ("interval", "INTERVAL")
    assert cursor.fetchall() == [(datetime.timedelta(days=1, hours=2),)]


@pytest.mark.finding("Q11", "Q12")
def test_intervals_over_the_network(serve: Callable[..., Any]) -> None:
    with herdpy.connect(serve().url, autocommit=True) as connection:
        text = "SELECT now() - (now() - ?), ? * 2, interval '1 day' < '25:00'"
        day = datetime.timedelta(days=1, microseconds=7)
        assert answer(connection, text, day, day) == [(day, 2 * day, True)]
        assert answer(connection, "SELECT ? + date '2020-01-01'", day) == [
            (datetime.datetime(2020, 1, 2, microsecond=7),)
        ]
