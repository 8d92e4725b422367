"""Constants mean exactly what is written, or are refused: nothing of them is lost on the way."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

import herdpy
from herdpy.driver.connection import Connection

NINES = "9" * 38


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    with herdpy.connect(target, autocommit=True) as found:
        found.execute("CREATE TABLE n (d DECIMAL(38,2), x DOUBLE PRECISION, i INTEGER)")
        yield found


LONG = "123456789012345678901234567890123456.789"


@pytest.mark.parametrize("value", [LONG, f"-{LONG}", "1.00500000000000000000000000000000000000000",
                                   "0.0049999999999999999999999999999999999999999"])  # fmt: skip
def test_a_long_number_is_stored_as_its_text_is(connection: Connection, value: str) -> None:
    connection.execute(f"INSERT INTO n (d) VALUES ({value}), ('{value}')")
    connection.execute("INSERT INTO n (d) VALUES (?)", (Decimal(value),))
    connection.execute("INSERT INTO n (d) SELECT 0")
    connection.execute(f"UPDATE n SET d = {value} WHERE d = 0 AND i IS NULL")
    connection.execute(f"INSERT INTO n (d) SELECT CAST({value} AS DECIMAL(38,2))")
    found = {row[0] for row in connection.execute("SELECT d FROM n")}
    assert len(found) == 1
    (only,) = found
    assert abs(only - Decimal(value)) <= Decimal("0.005")


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT 0{NINES}.12 = {NINES}.13",
        f"SELECT {NINES}.5",
        f"SELECT -{NINES}.5",
        f"SELECT '' || {NINES}.5",
        f"SELECT {NINES}.5 + 1",
        f"SELECT abs({NINES}.5)",
        f"SELECT CASE WHEN TRUE THEN {NINES}.5 END",
        f"SELECT coalesce({NINES}.5, 1)",
        f"SELECT max({NINES}.5)",
        f"SELECT * FROM (VALUES ({NINES}.5), (1)) AS v (a)",
        f"VALUES ({NINES}.5)",
        f"SELECT a FROM (SELECT {NINES}.5 AS a) AS q",
        f"SELECT 1 WHERE {NINES}.5 IN (1, 2)",
        f"SELECT 1 WHERE {NINES}.5 BETWEEN 1 AND 2",
        f"SELECT '{NINES}.5'::numeric AS a",
        f"SELECT {NINES}.5::text",
        f"SELECT {NINES}.5 UNION SELECT 1",
        f"INSERT INTO n (d) VALUES ({NINES})",
        f"INSERT INTO n (i) VALUES ({NINES}.5)",
        "SELECT 1e50",
        "SELECT 1e-500",
        "SELECT 1e-500::float8",
        "SELECT 1e999999999",
        f"SELECT 1{'0' * 500}",
    ],
)
def test_a_number_that_no_decimal_holds_is_refused(connection: Connection, text: str) -> None:
    with pytest.raises(herdpy.DataError) as caught:
        connection.execute(text).fetchall()
    assert caught.value.sqlstate == "22003"


def test_a_double_takes_a_number_of_any_length(connection: Connection) -> None:
    connection.execute(f"INSERT INTO n (x) VALUES (1e50), (-1e-50), ({NINES}.5)")
    rows = connection.execute("SELECT x FROM n WHERE x < 1e60 AND x <> 1e-60 ORDER BY x").fetchall()
    assert rows == [(-1e-50,), (1e38,), (1e50,)]
    assert connection.execute(f"SELECT {NINES}.5::float8, sqrt(1e50)").fetchall() == [(1e38, 1e25)]


# What PostgreSQL 15 adds to 2020-03-31 00:00:00, or its SQLSTATE.
INTERVALS = {
    "1 day 02:03:04": "2020-04-01 02:03:04", "2 days 03:00": "2020-04-02 03:00:00",
    "1 month ago": "2020-02-29 00:00:00", "1 day -02:00": "2020-03-31 22:00:00",
    "1 mon 1": "2020-04-30 00:00:01", "1 day garbage": "22007", "1 day; x": "22007",
    "1 day 1 day": "22007", "1 02:03:04": "2020-04-01 02:03:04", "1 hour 02:03": "22007",
    "-1 day 02:00": "2020-03-30 02:00:00", "1 year 2 mons ago": "2019-01-31 00:00:00",
    "1": "2020-03-31 00:00:01", "": "22007", "ago": "22007",
    "1 sec 2 ms": "2020-03-31 00:00:01.002",
    "1.5 sec 2 ms": "22007", "1day2hours": "2020-04-01 02:00:00",
    "1 day-2": "22007", "1 ago": "22007",
    "0.123457 s": "2020-03-31 00:00:00.123457", "1 ys": "22007", "1 2": "22007",
}  # fmt: skip


@pytest.mark.parametrize("spelling", ["INTERVAL '{}'", "'{}'::interval", "CAST('{}' AS interval)"])
@pytest.mark.parametrize(("text", "expected"), INTERVALS.items())
def test_an_interval_is_read_whole(
    connection: Connection, spelling: str, text: str, expected: str
) -> None:
    try:
        query = f"SELECT (TIMESTAMP '2020-03-31' + {spelling.format(text)})::text"
        found = connection.execute(query).fetchall()[0][0]
    except herdpy.Error as error:
        found = error.sqlstate
    assert found == expected


def test_an_interval_with_its_unit_behind_it(connection: Connection) -> None:
    text = "SELECT (DATE '2020-01-01' + INTERVAL '2' DAY)::text,"
    text += " (INTERVAL '1' HOUR + DATE '2020-01-01')::text"

    assert connection.execute(text).fetchall() == [("2020-01-03 00:00:00", "2020-01-01 01:00:00")]
    for refused, state in (
        ("INTERVAL '1 day 2' HOUR", "0A000"), ("INTERVAL 1 DAY", "42601"),
        ("INTERVAL -1 DAY", "42601"),
    ):  # fmt: skip
        with pytest.raises(herdpy.Error) as caught:
            connection.execute(f"SELECT DATE '2020-01-01' + {refused}")
        assert caught.value.sqlstate == state


def test_explain_prints_an_interval_exactly(connection: Connection) -> None:
    connection.execute("CREATE TABLE s (t TIMESTAMP)")
    text = "EXPLAIN SELECT t FROM s WHERE t > t + INTERVAL '-1 day -1234567.123456 seconds'"
    lines = connection.execute(text).fetchall()
    assert "INTERVAL '-1 days -342:56:07.123456'" in str(lines)


@pytest.mark.parametrize(
    ("text", "state"),
    [(r"E'\0'", "22021"), (r"E'a\000b'", "22021"), (r"E'\x00'::bytea", "22021"),
     (r"E'\u0000' || 'a'", "42601")],
)  # fmt: skip
def test_a_text_holds_no_nul(connection: Connection, text: str, state: str) -> None:
    with pytest.raises(herdpy.Error) as caught:
        connection.execute(f"SELECT {text}")
    assert caught.value.sqlstate == state


def test_a_decimal_parameter_may_end_in_many_zeros(connection: Connection) -> None:
    connection.execute("INSERT INTO n (d) VALUES (1.5)")
    value = (Decimal("1.5" + "0" * 40),)
    for query in ("SELECT d FROM n WHERE d = ?", "SELECT max(d) FROM n WHERE d = ?"):
        assert connection.execute(query, value).fetchall() == [(Decimal("1.50"),)]
    (shown,) = connection.execute("SELECT ?", (Decimal("1.50"),)).fetchall()[0]
    assert str(shown) == "1.50"


def test_lists_of_many_parameters(connection: Connection) -> None:
    connection.execute("INSERT INTO n (i) VALUES (1), (7), (NULL)")
    query = f"SELECT i FROM n WHERE i IN ({', '.join('?' * 3000)}, 7) LIMIT 9"
    assert connection.execute(query, range(100, 3100)).fetchall() == [(7,)]
    assert connection.execute("SELECT i FROM n WHERE i IN (?) LIMIT 9", (1,)).fetchall() == [(1,)]
    query = "SELECT i FROM n WHERE i NOT IN (?, ?, 5) LIMIT 9"
    assert connection.execute(query, (1, 2)).fetchall() == [(7,)]
    assert connection.execute(query, (1, None)).fetchall() == []


def test_an_untyped_constant_beside_a_decimal_has_its_own_digits(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:

        def rows(text: str) -> list[tuple[object, ...]]:
            return sorted(connection.execute(text).fetchall())

        connection.execute("CREATE TABLE u (id INTEGER PRIMARY KEY, n NUMERIC(6,2))")
        connection.execute("INSERT INTO u VALUES (1, 1.56), (2, '1.555'), (3, 1.5), (4, NULL)")
        for test in ("n = '1.555'", "n IN ('1.564', '2')", "n BETWEEN '1.559' AND '1.5599'"):
            assert rows(f"SELECT id FROM u WHERE {test}") == []
        found = rows("SELECT id FROM u WHERE n = '1.56' OR n < '1.555' OR '1.4999' = n")
        assert found == [(1,), (2,), (3,)]
        values = (
            "n + '1.555', n * '1.001', '0.001' - n, coalesce('1.555', n), "
            "CASE WHEN n > '1.559' THEN '1.555' ELSE n END, n IS DISTINCT FROM '1.564'"
        )
        assert rows(f"SELECT {values} FROM u WHERE id = 1") == [
            (*map(Decimal, ("3.115", "1.56156", "-1.559", "1.555", "1.555")), True)
        ]
        united = rows(
            "SELECT n FROM u WHERE id = 3 UNION SELECT '1.555' "
            "UNION ALL SELECT a FROM (VALUES ('1.125'), (1.5)) AS v (a)"
        )
        assert united == [(Decimal(text),) for text in ("1.125", "1.5", "1.5", "1.555")]
        query = "(SELECT n FROM u WHERE id = 1)"
        tests = f"'1.555' IN {query}, '1.555' < ALL {query}, '1.56' = ANY {query}"
        assert rows(f"SELECT {tests}") == [(False, True, True)]
        assert rows("SELECT round('2.3456', 2), trunc('2.3456', 3)") == [
            (Decimal("2.35"), Decimal("2.345"))
        ]
        with pytest.raises(herdpy.Error) as caught:
            connection.execute("SELECT n + 'a' FROM u").fetchall()
        assert caught.value.sqlstate == "22P02"
