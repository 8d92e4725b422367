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
