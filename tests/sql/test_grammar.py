"""Details of PostgreSQL's grammar; the outcomes are those of PostgreSQL 15."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.limits import columns_max

DAY = datetime.timedelta(days=1)
ROWS: list[tuple[str, list[tuple[Any, ...]]]] = [
    # every character above ASCII is a letter, and $ goes on a name
    ("SELECT a$b, \u00e91, x\U0001f600y FROM (SELECT 1 AS a$b, 2 AS \u00e91, 3 AS x\U0001f600y) t",
     [(1, 2, 3)]),
    ("SELECT e\u0301, \u0915\u094d\u0937 FROM (SELECT 1 AS e\u0301, 2 AS \u0915\u094d\u0937) t",
     [(1, 2)]),
    ("SELECT 1 AS \U0001f600", [(1,)]),
    # a fraction of the unit is cut off, but that of a second
    ("SELECT (INTERVAL '1.5' MONTH)::text, (INTERVAL '1.9' YEAR)::text, (INTERVAL '-1.7' MONTH)"
     "::text, INTERVAL '1.5' DAY, INTERVAL '1.5' HOUR, INTERVAL '1.9' SECOND",
     [("1 mon", "1 year", "-1 mons", DAY, datetime.timedelta(hours=1),
       datetime.timedelta(seconds=1.9))]),
    # tests without a right operand follow each other
    ("SELECT 1 IS NULL IS NULL, NULL IS NULL IS TRUE, 1 ISNULL ISNULL, 1 IN (1) IN (true)",
     [(False, True, False, True)]),
    ("SELECT true IS NULL IS DISTINCT FROM true", [(True,)]),
    ("SELECT 'a' LIKE 'b' IS TRUE, true = 'a' LIKE 'b', NOT 1 BETWEEN 0 AND 2 AND true",
     [(False, False, False)]),
    # what follows a query in parentheses is of the query
    ("(SELECT x FROM (VALUES (1), (2)) v(x) LIMIT 1) ORDER BY x DESC", [(2,)]),
    ("(SELECT x, x + 1 AS y FROM (VALUES (1), (2)) v(x)) ORDER BY x + 1 DESC", [(2, 3), (1, 2)]),
    ("WITH a AS (SELECT 1) (SELECT 1) LIMIT 1", [(1,)]),
    ("SELECT a, b, count(*) FROM t GROUP BY (a, b) ORDER BY 1", [(1, 2, 1), (3, 4, 1)]),
    ("SELECT a FROM t GROUP BY ((a)), ((a, b)) ORDER BY 1", [(1,), (3,)]),
    ("SELECT 'ab' ~~ 'a%', 'ab' !~~ 'a%', 'AB' ~~* 'a%', 'AB' !~~* 'a%'",
     [(True, False, True, False)]),
    ("SELECT 1::pg_catalog.int4, CAST('x' AS pg_catalog.text)", [(1, "x")]),
    ("SELECT \"substring\"('abc', 2)", [("bc",)]),
    ("SELECT E'a\\t'\n'b\\t'", [("a\tb\t",)]),
]  # fmt: skip
REFUSED = [
    ("SELECT $1a", "42601"),
    ("SELECT 1\U0001f600", "42601"),
    ("SELECT 1 AS a b$c", "42601"),
    ("SELECT 'a' LIKE 'b' LIKE 'c'", "42601"),
    ("SELECT 'a' LIKE 'b' IN ('x')", "42601"),
    ("SELECT 1 BETWEEN 0 AND 2 BETWEEN true AND true", "42601"),
    ("SELECT 'a' LIKE 'b' ESCAPE 'c' LIKE 'd'", "42601"),
    ("SELECT true IS DISTINCT FROM true IS DISTINCT FROM true", "42601"),
    ("SELECT true IS DISTINCT FROM 1 ISNULL", "42601"),
    ("(SELECT 1 AS a ORDER BY 1) ORDER BY 1", "42601"),
    ("((SELECT 1 AS a) LIMIT 1) LIMIT 2", "42601"),
    ("INSERT INTO t (a) DEFAULT VALUES", "42601"),
    ("SELECT * FROM (t)", "42601"),
    ("SELECT * FROM ((t))", "42601"),
    ("SELECT * FROM (t AS x)", "42601"),
    ("SELECT 'a' ~~ 'b' ESCAPE 'c'", "42601"),
    ("SELECT 1::pg_catalog.integer", "42704"),
    ('SELECT "coalesce"(1)', "42883"),
    ('SELECT "nullif"(1, 2)', "42883"),
    ("SELECT 'a'\nE'b'", "42601"),
]


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    with herdpy.connect(target, autocommit=True) as found:
        found.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER)")
        found.execute("INSERT INTO t VALUES (1, 2), (3, 4)")
        yield found


@pytest.mark.parametrize(("text", "rows"), ROWS)
def test_rows(connection: Connection, text: str, rows: list[tuple[Any, ...]]) -> None:
    assert connection.execute(text).fetchall() == rows


@pytest.mark.parametrize(("text", "sqlstate"), REFUSED)
def test_refused(connection: Connection, text: str, sqlstate: str) -> None:
    with pytest.raises(herdpy.Error) as caught:
        connection.execute(text)
    assert caught.value.sqlstate == sqlstate


@pytest.mark.parametrize("text", ["SELECT \u00e9$", "SHOW \U0001f600", "CREATE ROLE a$\u0301"])
def test_names_of_other_statements_are_the_same(connection: Connection, text: str) -> None:
    try:
        connection.execute(text)
    except herdpy.Error as error:
        assert error.sqlstate in ("42703", "42704")  # noqa: PT017 - names, of nothing


def test_labels_are_no_operators(connection: Connection) -> None:
    items = ", ".join(f"1 AS {word}" for word in ("case", "like", "in", "is", "not") * 300)
    assert connection.execute(f"SELECT {items}").fetchall() == [(1,) * 1_500]
    names = " + ".join(["t.like"] * 900)
    assert connection.execute(f"SELECT {names} FROM (SELECT 1 AS like) t").fetchall() == [(900,)]


@pytest.mark.parametrize("start", ["SELECT ", "INSERT INTO t SELECT ", "VALUES (1), ((SELECT "])
def test_too_many_columns_are_refused_at_the_first_that_is(
    connection: Connection, start: str
) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute(f"{start}{'1, ' * columns_max}2, oops oops oops")
    assert (caught.value.sqlstate, caught.value.position) == (
        "54011", len(start) + 3 * columns_max + 1,
    )  # fmt: skip


def test_long_values(connection: Connection) -> None:
    rows = [(i, f"'{i}", None if i % 3 else Decimal(i) / 100) for i in range(3_000)]
    text = ", ".join("(?, ?, ?::numeric(9,2))" for _ in rows)
    values = [value for row in rows for value in row]
    found = connection.execute(f"VALUES {text}", values).fetchall()
    assert found == rows
    query = f"SELECT sum(a), max(b), sum(c) FROM (VALUES {text}) AS v (a, b, c) WHERE a > 2990"
    assert connection.execute(query, values).fetchall() == [(26955, "'2999", Decimal("89.82"))]
    plain = ", ".join(f"({i}, {'NULL' if i % 2 else i / 4})" for i in range(2_000))
    query = f"VALUES {plain} ORDER BY column1 DESC LIMIT 2"
    assert connection.execute(query).fetchall() == [(1999, None), (1998, Decimal("499.50"))]
