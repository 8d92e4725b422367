"""A statement takes processor time and memory in proportion to its text, and no branch too many."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import herdpy

_CHILD = """
import resource, sys
seconds, byte_count = int(sys.argv[1]), int(sys.argv[2])
import herdpy
connection = herdpy.connect(sys.argv[3], autocommit=True)
connection.execute("SELECT power(x, 1.0) FROM (VALUES (2.0::double precision)) AS t(x)").fetchall()
used = resource.getrusage(resource.RUSAGE_SELF)
spent = int(used.ru_utime + used.ru_stime)
resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 1))
with open("/proc/self/statm") as file:
    held = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + byte_count, held + byte_count))
try:
    print(connection.execute(sys.stdin.read()).fetchall(), flush=True)
except herdpy.Error as error:
    print(error.sqlstate, flush=True)
"""
_GIB = 1 << 30


def answer(statement: str, tmp_path: Path, *, seconds: int = 8) -> str:
    """Return the rows or SQLSTATE that a process with limited time and memory comes to; or none."""
    arguments = (str(seconds), str(2 * _GIB), str(tmp_path / "data"))
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, *arguments],
        input=statement,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    return child.stdout.strip()


def nested(form: str, depth: int) -> str:
    expression = "x"
    for _ in range(depth):
        expression = form.format(expression)
    return expression


@pytest.mark.finding("S1")
@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("CASE WHEN {0} BETWEEN SYMMETRIC 1 AND 9 THEN 1 ELSE 2 END", "[(1,)]"),
        ("CASE WHEN {0} BETWEEN 1 AND 9 THEN 1 ELSE 2 END", "[(1,)]"),
        ("CASE {0} WHEN 3 THEN 5 WHEN 4 THEN 6 ELSE 1 END", "[(1,)]"),
        ("nullif({0}, 7)", "[(1,)]"),
        ("coalesce(NULL, {0}, x + 1)", "[(1,)]"),
        ("CASE WHEN ({0}, 1) IN ((1, 1), (2, 2)) THEN 1 ELSE 2 END", "[(1,)]"),
    ],
)
def test_a_nested_expression_is_planned_once(form: str, row: str, tmp_path: Path) -> None:
    depth = 20 if "((" not in form else 15  # of brackets at most 32
    text = f"SELECT {nested(form, depth)} FROM (VALUES (1)) AS t(x)"
    assert answer(text, tmp_path) == row


@pytest.mark.finding("S2")
@pytest.mark.parametrize(
    ("form", "kind", "row"),
    [
        ("power({0}, 1.0)", "double precision", "[(2.0,)]"),
        ("({0})::text::integer", "integer", "[(2,)]"),
        ("lpad({0}, 3, 'a')", "text", "[('aa2',)]"),
    ],
)
def test_an_argument_of_a_function_is_not_multiplied(
    form: str, kind: str, row: str, tmp_path: Path
) -> None:
    text = f"SELECT {nested(form, 30)} FROM (VALUES ('2'::{kind})) AS t(x)"
    assert answer(text, tmp_path) == row


@pytest.mark.finding("S3")
def test_opened_dollar_quotes_are_read_once(tmp_path: Path) -> None:
    text = "SELECT " + " ".join(f"$t{number}$" for number in range(20_000))
    assert answer(text, tmp_path) == "42601"


@pytest.mark.finding("S3")
def test_a_long_list_is_read_in_memory_that_it_is_worth(tmp_path: Path) -> None:
    items = ",".join(map(str, range(1, 150_001)))
    text = f"SELECT x FROM (VALUES (0), (1)) AS t(x) WHERE x IN ({items})"
    assert answer(text, tmp_path, seconds=60) == "[(1,)]"


@pytest.mark.finding("Q8")
@pytest.mark.parametrize(
    "expression",
    [
        "CASE WHEN x > 100 THEN (SELECT y FROM u) ELSE 1 END = 1",
        "CASE WHEN x > 100 THEN (SELECT y FROM u WHERE y >= t.x - 9) ELSE 1 END = 1",
        "CASE WHEN x > 100 THEN (SELECT 1 / (y - 1) FROM u WHERE y = 1) ELSE 1 END = 1",
        "coalesce(x, (SELECT y FROM u)) = x",
        "coalesce(x, (SELECT 1 / (y - 1) FROM u WHERE y = 1)) = x",
        "x > 0 OR (SELECT y FROM u) = 1",
        "x > 0 OR (SELECT 1 / (y - 1) FROM u WHERE y = 1) = 1",
        "NOT (x < 0 AND (SELECT y FROM u) = 1)",
    ],
)
def test_a_subquery_whose_value_is_not_used_raises_nothing(expression: str, tmp_path: Path) -> None:
    connection = herdpy.connect(str(tmp_path / "data"), autocommit=True)
    try:
        connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE u (y INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1), (2)")
        connection.execute("INSERT INTO u VALUES (1), (2)")
        found: object
        try:
            found = connection.execute(f"SELECT {expression} FROM t").fetchall()
        except herdpy.Error as error:
            found = error.sqlstate
        assert found == [(True,), (True,)]
        try:
            found = connection.execute(f"SELECT x FROM t WHERE {expression} ORDER BY x").fetchall()
        except herdpy.Error as error:
            found = error.sqlstate
        assert found == [(1,), (2,)]
    finally:
        connection.close()


@pytest.mark.finding("Q8")
def test_a_subquery_whose_value_is_used_still_raises(tmp_path: Path) -> None:
    connection = herdpy.connect(str(tmp_path / "data"), autocommit=True)
    connection.execute("CREATE TABLE u (y INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO u VALUES (1), (2)")
    found: list[str | None] = []
    for taken in ("y > 100", "y > 1"):
        for inner in ("SELECT y FROM u", "SELECT 1 / (y - 1) FROM u WHERE y = 1"):
            try:
                connection.execute(f"SELECT CASE WHEN {taken} THEN ({inner}) END FROM u").fetchall()
                found.append(None)
            except herdpy.Error as error:
                found.append(error.sqlstate)
    connection.close()
    assert found == [None, None, "21000", "22012"]


@pytest.mark.finding("S1")
@pytest.mark.parametrize(
    ("item", "separator", "head"),
    [
        ("(SELECT x + {n})", ", ", "SELECT"),
        ("EXISTS (SELECT 1 FROM (VALUES ({n})) AS u (y) WHERE y = x)", " OR ", "SELECT"),
    ],
)
def test_many_subqueries_of_outer_columns_are_refused(
    item: str, separator: str, head: str, tmp_path: Path
) -> None:
    items = separator.join(item.replace("{n}", str(number)) for number in range(100))
    assert answer(f"{head} {items} FROM (VALUES (1)) AS t(x)", tmp_path) == "54001"


@pytest.mark.finding("S2")
@pytest.mark.parametrize(
    "expression",
    [
        "repeat(x, 67108865)",
        "repeat(x, 67108860) || 'abcdef'",
        "replace(repeat(x, 40000000), x, 'bb')",
    ],
)
def test_a_value_of_more_than_64_mib_is_not_made(expression: str, tmp_path: Path) -> None:
    text = f"SELECT length({expression}) FROM (VALUES ('a')) AS t(x)"
    assert answer(text, tmp_path) == "54000"
