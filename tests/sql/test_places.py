"""Each kind of expression in each clause: DuckDB reads some of their texts in some clauses only."""

from collections.abc import Iterator

import pytest

import herdpy

EXPRESSIONS = (
    "{x}::text",
    "power({x}, 2)",
    "lpad({x}::text, 9, 'a')",
    "nullif({x}, 2.5)",
    "{x}::decimal(10,2)",
    "coalesce({x} + 1, {x} * 2, 0)",
    "CASE {x} + 1 WHEN 2 THEN 1 WHEN 3 THEN 2 ELSE 0 END",
    "{x}::integer",
    "round({x}::decimal(10,2), 1)",
    "({x} + 1) IN (1, 2, 3.5)",
    "({x} + 1) BETWEEN SYMMETRIC 3 AND 1",
    "{x}::bigint % 3",
    "{x}::text LIKE 'a!%' ESCAPE '!'",
    "({x} > 1 AND 1 / ({x}::integer + 9) > 0 AND {x} < 9)",
    "({x} > 5 OR 10 / ({x}::integer + 10) > 0)",
    "{x}::decimal(10,2) / 3",
    "{t} + INTERVAL '1 day' * {x}::integer",
    "extract(day from {t})",
    "({x} > 5 OR (SELECT max(n) FROM s) > 1)",
    "{x} IN (SELECT n FROM s)",
)
ROW = {"x": "x", "t": "t"}
GREATEST = {"x": "max(x)", "t": "max(t)"}
LEFT = {"x": "a.x", "t": "a.t"}
RIGHT = {"x": "b.x", "t": "b.t"}
PLACES = (
    ("SELECT {0} FROM r", ROW),
    ("SELECT id FROM r WHERE ({0}) IS NOT NULL", ROW),
    ("SELECT {0} AS e, count(*) FROM r GROUP BY 1 ORDER BY e", ROW),
    ("SELECT g FROM r GROUP BY g HAVING ({0}) IS NOT NULL", GREATEST),
    ("SELECT g, {0} FROM r GROUP BY g HAVING ({0}) IS NOT NULL ORDER BY {0}", GREATEST),
    ("SELECT {0} FROM r HAVING ({0}) IS NOT NULL", GREATEST),
    ("SELECT g FROM r GROUP BY g HAVING max(({0})::text) > ''", ROW),
    ("SELECT (SELECT {0} FROM r u HAVING ({0}) IS NOT NULL)", GREATEST),
    ("SELECT id FROM r ORDER BY {0}, id", ROW),
    ("SELECT DISTINCT {0} FROM r", ROW),
    ("SELECT a.id FROM r a JOIN r b ON a.id = b.id AND ({0}) IS NOT NULL", RIGHT),
    ("SELECT a.id FROM r a LEFT JOIN r b ON ({0}) IS NOT NULL", LEFT),
    ("SELECT max(({0})::text), count(*) FILTER (WHERE ({0}) IS NOT NULL) FROM r", ROW),
    ("SELECT row_number() OVER (PARTITION BY {0} ORDER BY {0}) FROM r", ROW),
    ("SELECT max(({0})::text) OVER (ORDER BY id) FROM r", ROW),
    ("SELECT g, rank() OVER (ORDER BY {0}), (SELECT max(n) FROM s) FROM r GROUP BY g", GREATEST),
    (
        "SELECT id, EXISTS (SELECT rank() OVER (ORDER BY s.n + 1) FROM s), "
        "rank() OVER (ORDER BY {0}) FROM r",
        ROW,
    ),
    ("SELECT {0} FROM r UNION SELECT {0} FROM r ORDER BY 1", ROW),
)


@pytest.fixture(scope="module")
def connection() -> Iterator[herdpy.Connection]:
    with herdpy.connect(":memory:", autocommit=True) as connection:
        columns = "id BIGINT PRIMARY KEY, g TEXT, x DOUBLE PRECISION, t TIMESTAMP"
        connection.execute(f"CREATE TABLE r ({columns})")
        rows = [(1, "a", -1.5, "2024-01-01"), (2, "b", 2.5, "2024-01-02"), (3, "a", 2.5, None)]
        connection.executemany("INSERT INTO r VALUES (?, ?, ?, CAST(? AS TIMESTAMP))", rows)
        connection.execute("CREATE TABLE s (n BIGINT PRIMARY KEY)")
        connection.execute("INSERT INTO s VALUES (1), (2)")
        yield connection


@pytest.mark.parametrize(("place", "names"), PLACES)
def test_an_expression_may_stand_there(
    connection: herdpy.Connection, place: str, names: dict[str, str]
) -> None:
    for expression in EXPRESSIONS:
        connection.execute(place.format(expression.format(**names))).fetchall()


def test_having_counts() -> None:
    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute("CREATE TABLE r (id BIGINT PRIMARY KEY, g TEXT, x DOUBLE PRECISION)")
        connection.execute("INSERT INTO r VALUES (1, 'a', 1), (2, 'b', 2.5), (3, 'b', 3)")
        for condition in ("max(x)::text = '3'", "nullif(max(x), 1) > 1", "power(max(x), 2) > 1"):
            found = connection.execute(f"SELECT g FROM r GROUP BY g HAVING {condition}")
            assert found.fetchall() == [("b",)]
