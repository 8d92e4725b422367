"""What is in a tree is found, and each of its parts looked at once, however often it is asked."""

import sys
from types import FrameType

from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from tests.fixtures.sql_catalog import FixedCatalog
from tests.fixtures.sql_forms import TABLE


def expression(text: str) -> tree.Expression:
    statement = compile_sql(f"SELECT {text} FROM {TABLE}", FixedCatalog(), ()).statement
    assert isinstance(statement, tree.SelectStatement)
    body = statement.query.body
    assert isinstance(body, tree.Select)
    return body.outputs[0].expression


def subqueries(text: str) -> list[tree.Query]:
    return [
        part.query for part in tree.walk(expression(text)) if isinstance(part, tree.ScalarSubquery)
    ]


def test_parts_are_found_but_in_queries() -> None:
    has_call = tree.PartSearch(lambda part: isinstance(part, tree.Call))
    assert has_call(expression("CASE WHEN b THEN i ELSE -i END"))
    assert not has_call(expression("CASE WHEN b THEN i ELSE 2 END"))
    assert not has_call(expression("(SELECT i + 1)"))
    assert has_call(expression("sum(i) OVER (PARTITION BY l ORDER BY i + 1)"))  # in a SortKey


def test_each_part_is_looked_at_once() -> None:
    looked_at: list[int] = []

    def is_wanted(part: tree.Expression) -> bool:
        looked_at.append(id(part))
        return False

    whole = expression("upper(lower(upper(lower(upper(s)))))")
    search = tree.PartSearch(is_wanted)
    for part in tree.walk(whole):
        assert not search(part)
    assert len(looked_at) == len(set(looked_at)) == len(list(tree.walk(whole)))


def test_names_of_the_queries_around() -> None:
    names = tree.OuterNames()
    outer, inner = subqueries("(SELECT a + (SELECT a) FROM (VALUES (1)) AS w (a) LIMIT 1)")
    assert not names.of(outer)
    assert {space for space, _ in names.of(inner)} == {"relation"}
    (correlated,) = subqueries("(SELECT i)")
    assert len(names.of(correlated)) == 1
    outer, inner = subqueries("(WITH w AS (SELECT 1 AS x) SELECT (SELECT x FROM w) FROM w)")
    assert not names.of(outer)
    assert {space for space, _ in names.of(inner)} == {"cte"}
    (ordered,) = subqueries("(SELECT 1 AS a UNION SELECT 2 ORDER BY a LIMIT 1)")
    assert not names.of(ordered)


def test_a_long_chain_needs_no_stack() -> None:
    (query,) = subqueries(f"(SELECT i{' UNION ALL SELECT 1' * 100} LIMIT 1)")
    limit, depth = sys.getrecursionlimit(), 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + 30)
    try:
        assert len(tree.OuterNames().of(query)) == 1
    finally:
        sys.setrecursionlimit(limit)
