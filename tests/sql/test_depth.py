"""Deep statements: what the limit allows always works, all else is 54001 and never a crash."""

from collections.abc import Callable, Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.limits import statement_depth_max

NESTED = {
    "parentheses": lambda n: f"SELECT {'(' * n}1{')' * n}",
    "subqueries": lambda n: f"SELECT {'(SELECT ' * n}1{')' * n}",
    "derived": lambda n: f"SELECT * FROM {'(SELECT * FROM ' * n}t{') AS q' * n}",
    "not": lambda n: f"SELECT {'NOT ' * n}true",
    "minus": lambda n: f"SELECT {'- ' * n}1",
    "case": lambda n: f"SELECT {'CASE WHEN true THEN ' * n}1{' END' * n}",
    "functions": lambda n: f"SELECT {'abs(' * n}1{')' * n}",
}
CHAINS = {
    "plus": lambda n: "SELECT 1" + " + 1" * n,
    "column plus": lambda n: "SELECT id" + " + 1" * n + " FROM t",
    "and": lambda n: "SELECT 1 FROM t WHERE id = 1" + " AND id = 1" * n,
    "concat": lambda n: "SELECT 'a'" + " || 'b'" * n,
    "union": lambda n: "SELECT 1" + " UNION ALL SELECT 1" * n,
    "in": lambda n: f"SELECT id FROM t WHERE id IN (1{', 1' * n})",
}


LONG = {
    "plus": ("SELECT 1" + " + 1" * 1_000, 1_001),
    "minus and plus": ("SELECT x" + " - 1 + 2" * 500 + " FROM n WHERE x = 2", 502),
    "times": ("SELECT x" + " * 1" * 999 + " + 1 FROM n WHERE x = 2", 3),
    "two types": ("SELECT 1" + " + x" * 998 + " + 5000000000 FROM n WHERE x = 2", 5000001997),
    "double": ("SELECT d" + " + d" * 1_000 + " FROM n WHERE x = 2", 500.5),
    "null": ("SELECT x" + " + 1" * 500 + " + y" + " + 1" * 499 + " FROM n WHERE x = 2", None),
    "aggregate": ("SELECT sum(x" + " + 1" * 1_000 + ") FROM n", 1_002),
    "condition": ("SELECT x FROM n WHERE x" + " + 1" * 999 + " = 1001", 2),
    "mixed": ("SELECT sum(x" + " + 1 * 2 - x" * 300 + ") FROM n", 2),
    "concat": ("SELECT length('a'" + " || 'b'" * 998 + " || s) FROM n", 1_000),
    "and": ("SELECT x = 2" + " AND x = 2" * 1_000 + " FROM n", True),
    "or": ("SELECT x = 3" + " OR x = 3" * 1_000 + " FROM n", False),
    "case": ("SELECT CASE x" + "".join(f" WHEN {i} THEN {i}" for i in range(999, -1, -1))
             + " END FROM n", 2),
    "coalesce": ("SELECT coalesce(y" + ", y + 1" * 999 + ", x) FROM n", 2),
}  # fmt: skip


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    yield connection
    connection.close()


@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED)
def test_nesting_up_to_the_limit(connection: Connection, make: Callable[[int], str]) -> None:
    connection.execute(make(statement_depth_max - 2)).fetchall()
    with pytest.raises(herdpy.OperationalError) as caught:
        connection.execute(make(statement_depth_max + 1))
    assert caught.value.sqlstate == "54001"


@pytest.mark.parametrize("count", [90, 150, 400, 600, 1_000, 5_000])
@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS)
def test_chains_work_or_are_refused(
    connection: Connection, make: Callable[[int], str], count: int
) -> None:
    try:
        connection.execute(make(count)).fetchall()
    except herdpy.OperationalError as error:
        assert error.sqlstate == "54001"  # noqa: PT017 - it may also work
    connection.execute("SELECT 1").fetchall()


@pytest.mark.parametrize(("text", "value"), LONG.values(), ids=LONG)
def test_a_thousand_operators_work(connection: Connection, text: str, value: object) -> None:
    connection.execute("CREATE TABLE n (x INTEGER, y INTEGER, d DOUBLE PRECISION, s TEXT)")
    connection.execute("INSERT INTO n VALUES (2, NULL, 0.5, 'c')")
    assert connection.execute(text).fetchall() == [(value,)]


def test_a_long_chain_overflows_where_its_part_does(connection: Connection) -> None:
    text = "SELECT x" + " + 1" * 40 + " - 50" + " + 1" * 40
    connection.execute("CREATE TABLE n (x INTEGER)")
    connection.execute("INSERT INTO n VALUES (2147483607)")
    assert connection.execute(f"{text} FROM n").fetchall() == [(2147483637,)]
    connection.execute("UPDATE n SET x = x + 1")
    for query in (f"{text} FROM n", f"SELECT count({text[7:]}) FROM n"):
        with pytest.raises(herdpy.DataError) as caught:
            connection.execute(query).fetchall()
        assert caught.value.sqlstate == "22003"
