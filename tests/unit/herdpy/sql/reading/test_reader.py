"""The reader: its trees, its precedence, and that nothing but an Error of ours comes of any text.

Its work is counted in calls of functions, never in time.
"""

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdpy.errors import Error, NotSupportedError, OperationalError, QueryCanceledError
from herdpy.limits import interrupt_nodes, statement_depth_max
from herdpy.sql.compile import compile_sql
from herdpy.sql.reading import read_expression, syntax, tokens
from herdpy.sql.reading.reader import read
from herdpy.sql.reading.tokens import scan
from tests.fixtures.counted_calls import count_calls
from tests.fixtures.sql_catalog import FixedCatalog

# --- trees ---------------------------------------------------------------------------------------


def shape(node: object) -> object:
    """Return a tree as nested tuples, without places and parentheses."""
    if isinstance(node, syntax.Paren):
        return shape(node.operand)
    if isinstance(node, syntax.Node):
        names = [name for name in node.__struct_fields__ if name != "start"]
        return type(node).__name__, *(shape(getattr(node, name)) for name in names)
    if isinstance(node, (list, tuple)):
        return tuple(map(shape, node))  # pyright: ignore[reportUnknownArgumentType]
    return node


def shape_of(text: str) -> object:
    return shape(read(scan(text)))


@pytest.mark.parametrize(
    ("text", "parenthesized"),
    [
        ("a = b IS NULL", "(a = b) IS NULL"),
        ("NOT a = b", "NOT (a = b)"),
        ("NOT a IS NULL AND b", "(NOT (a IS NULL)) AND b"),
        ("a OR b AND c OR d", "(a OR (b AND c)) OR d"),
        ("a < b + c * d ^ e", "a < (b + (c * (d ^ e)))"),
        ("-a ^ b", "(-a) ^ b"),
        ("-a::int", "-(a::int)"),
        ("a - b - c", "(a - b) - c"),
        ("a || b + c", "a || (b + c)"),
        ("a BETWEEN b AND c AND d", "(a BETWEEN b AND c) AND d"),
        ("a BETWEEN b + 1 AND c + 1 = d", "(a BETWEEN b + 1 AND (c + 1)) = d"),
        ("a NOT IN (b, c) = d", "(a NOT IN (b, c)) = d"),
        ("a LIKE b || c ESCAPE d AND e", "(a LIKE (b || c) ESCAPE d) AND e"),
        ("a NOT LIKE b", "NOT (a LIKE b)"),
        ("a = NOT b = c", "a = (NOT (b = c))"),
        ("a AT TIME ZONE 'UTC' + b", "(a AT TIME ZONE 'UTC') + b"),
        ("a IS DISTINCT FROM b + c OR d", "(a IS DISTINCT FROM (b + c)) OR d"),
        ("a = ANY (SELECT 1) AND b", "(a = ANY (SELECT 1)) AND b"),
        ("a || b", "a || b"),
    ],
)
def test_operators_bind_as_in_postgresql(text: str, parenthesized: str) -> None:
    assert shape_of(f"SELECT {text}") == shape_of(f"SELECT {parenthesized}")


def test_intersect_binds_stronger_than_union() -> None:
    found = read(scan("SELECT 1 UNION SELECT 2 INTERSECT SELECT 3 EXCEPT SELECT 4 ORDER BY 1"))
    assert isinstance(found, syntax.SetOperation)
    assert (found.operator, len(found.order)) == ("EXCEPT", 1)
    assert isinstance(found.left, syntax.SetOperation)
    assert found.left.operator == "UNION"
    assert isinstance(found.left.right, syntax.SetOperation)
    assert found.left.right.operator == "INTERSECT"


LEVELS = (("OR",), ("AND",), ("=", "<", ">="), ("||",), ("+", "-"), ("*", "/", "%"), ("^",))
Tree = tuple[Any, ...]


def trees() -> st.SearchStrategy[Tree]:
    leaves: st.SearchStrategy[Tree] = st.sampled_from([("a",), ("1",), ("'x'",), ("?",), ("f(b)",)])

    def grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        binary = st.integers(0, len(LEVELS) - 1).flatmap(
            lambda level: st.tuples(inner, st.sampled_from(LEVELS[level]), inner, st.just(level))
        )
        return binary | st.tuples(st.sampled_from(["NOT", "-"]), inner)

    return st.recursive(leaves, grown, max_leaves=12)


def printed(tree: Tree, *, is_full: bool) -> tuple[str, float]:
    """Return the SQL of a tree, and how strongly it binds; is_full: parentheses everywhere."""
    if len(tree) == 1:
        return tree[0], 99
    if len(tree) == 2:
        sign, (text, inner) = tree[0], printed(tree[1], is_full=is_full)
        level = 20 if sign == "-" else 1.5
        return f"{sign} {text if inner >= level and not is_full else f'({text})'}", level
    left, operator, right, level = tree
    (before, low), (behind, high) = (printed(side, is_full=is_full) for side in (left, right))
    is_comparison = level == 2
    if is_full or low < level or (is_comparison and low == level):
        before = f"({before})"
    if is_full or high <= level:
        behind = f"({behind})"
    return f"{before} {operator} {behind}", level


@settings(max_examples=300, deadline=None)
@given(trees())
def test_parentheses_that_change_nothing(tree: Tree) -> None:
    needed, full = (printed(tree, is_full=is_full)[0] for is_full in (False, True))
    assert shape_of(f"SELECT {needed}") == shape_of(f"SELECT {full}")


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("select a, from t", 'syntax error at or near "from"', 11),
        ("select 1 +", "syntax error at end of input", 11),
        ("select ((select 1) x)", 'syntax error at or near "x"', 20),
        ("select * from ((select 1) q join t on true", "syntax error at end of input", 43),
        ("select a like b escape 'x' escape 'y'", "syntax error at or near \"'y'\"", 35),
        ("update t set a = 1 returning", "syntax error at end of input", 29),
        ("select (select 1 from t for update)", "SELECT with FOR UPDATE is not supported", 25),
    ],
)
def test_where_a_statement_stops_being_one(text: str, message: str, position: int) -> None:
    with pytest.raises(Error) as caught:
        read(scan(text))
    assert (caught.value.message, caught.value.position) == (message, position)


@pytest.mark.parametrize("word", ["INSERT OR REPLACE", "REPLACE"])
def test_replacing_is_told_what_to_write(word: str) -> None:
    with pytest.raises(NotSupportedError) as caught:
        compile_sql(f"{word} INTO t VALUES (1)", FixedCatalog(), None)
    assert "UPSERT" in str(caught.value.hint)
    assert "ON CONFLICT (key) DO UPDATE" in str(caught.value.hint)


@pytest.mark.parametrize("parameters", [None, [1], {"id": 1}])
@pytest.mark.parametrize("style", ["%s", "%(id)s", "{}", "$1", "@id", ":1"])
def test_placeholders_of_others_are_told_ours(style: str, parameters: Any) -> None:
    with pytest.raises(Error) as caught:
        compile_sql(f"SELECT id FROM t WHERE id = {style}", FixedCatalog(), parameters)
    assert caught.value.sqlstate in ("42601", "07001")
    assert "Placeholders are ? or :name" in str(caught.value.hint)


def test_a_number_behind_a_placeholder() -> None:
    with pytest.raises(Error, match='at or near "1"') as caught:
        compile_sql("SELECT id FROM t WHERE id = ?1", FixedCatalog(), [1])
    assert "Placeholders are ? or :name" in str(caught.value.hint)


# --- any text ------------------------------------------------------------------------------------

_WORDS = """SELECT FROM t WHERE id name x n AND OR NOT NULL TRUE IN LIKE BETWEEN IS DISTINCT CASE
WHEN THEN ELSE END ( ( ) ) , , . * + - / % = < <> :: || 1 2.5 'a' "n" ? :p count sum OVER PARTITION
BY ORDER GROUP HAVING LIMIT OFFSET JOIN LEFT ON USING NATURAL UNION ALL INTERSECT EXCEPT VALUES WITH
AS INSERT INTO UPDATE SET DELETE CREATE TABLE DROP PRIMARY KEY INTEGER INTERVAL DATE EXISTS CAST
EXTRACT year TRIM SUBSTRING FOR FETCH FIRST ROWS ONLY CONFLICT DO NOTHING ANY ARRAY [ ] { } ; $ @ !
FILTER WINDOW NULLS DEFAULT ESCAPE COLLATE AT TIME ZONE TRUNCATE EXPLAIN UPSERT ROW LATERAL ~"""
WORDS = _WORDS.split()


@settings(max_examples=1_500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    text = " ".join(words)
    for begin in ("", "SELECT ", "SELECT id FROM "):
        try:
            parameters = {"p": 1} if ":p" in text else [1] * text.count("?")
            compile_sql(begin + text, FixedCatalog(), parameters)
        except Error as error:
            assert error.sqlstate != "XX000", (begin + text, error)  # noqa: PT017 - it may be read


@settings(max_examples=1_000, deadline=None)
@given(st.text(alphabet="eEbB'\"$/*-:?.x1_ \n;[({\\é²٣\0", max_size=40))
def test_any_characters_are_read_or_refused(text: str) -> None:
    try:
        found = scan(text).tokens
    except Error as error:
        assert error.sqlstate in ("42601", "22025", "22021", "54001")  # noqa: PT017
        return
    ends = [0, *(token.end for token in found)]
    assert all(a <= token.start < token.end for a, token in zip(ends, found, strict=False))


# --- how much work -------------------------------------------------------------------------------


def deep(opening: str, middle: str, closing: str) -> Callable[[int], str]:
    inner = f"{opening * statement_depth_max}{middle}{closing * statement_depth_max}"
    return lambda n: "SELECT " + ", ".join([inner] * n)


FAMILIES: dict[str, Callable[[int], str]] = {
    "parentheses": deep("(", "1", ")"),
    "queries": deep("(SELECT ", "1", ")"),
    "queries in parentheses": deep("((SELECT 1) + ", "1", ")"),
    "tables": lambda n: "SELECT * FROM " + ", ".join(
        ["(" * (statement_depth_max - 1) + "t" + " JOIN u ON a)" * (statement_depth_max - 1)] * n
    ),
    "cases": deep("CASE WHEN a THEN ", "1", " END"),
    "calls": deep("f(", "1", ")"),
    "signs": lambda n: "SELECT " + ", ".join(["- " * statement_depth_max + "1"] * n),
    "conditions": lambda n: "SELECT 1 WHERE a = 1" + " AND b <> 'x' OR c" * n,
    "operators": lambda n: "SELECT " + ", ".join(["a + b * c || d"] * n),
    "lists": lambda n: "SELECT a IN (" + ", ".join(["1"] * n) + ")",
    "rows": lambda n: "INSERT INTO t VALUES " + ", ".join(["(?, 'a', 1 + 1, DEFAULT)"] * n),
    "joins": lambda n: "SELECT 1 FROM t" + " LEFT JOIN u ON a = b" * n,
    "unions": lambda n: "SELECT 1" + " UNION ALL SELECT 1 INTERSECT SELECT 2" * n,
    "withs": lambda n: "WITH " + ", ".join(f"w{i} AS (SELECT 1)" for i in range(n)) + " SELECT 1",
    "columns": lambda n: "CREATE TABLE t (" + ", ".join(f"c{i} INT" for i in range(n)) + ")",
    "comments": lambda n: "SELECT 1" + " /* ' /* */ */ -- x\n" * n,
    "strings": lambda n: "SELECT 'a'" + "\n'b''c'" * n,
    "wrong": lambda n: "SELECT 1" + ", (1" * 20 + ", 1" * n,
}  # fmt: skip


def calls_of(text: str) -> int:
    """Return how many functions are called while a text is read."""

    def run() -> None:
        with contextlib.suppress(Error):
            read(scan(text))

    return count_calls(run)


@pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES)
def test_work_grows_as_the_text_does(make: Callable[[int], str]) -> None:
    counts = [calls_of(make(n)) for n in (100, 200, 400)]
    assert counts[1] <= 2.3 * counts[0]
    assert counts[2] <= 2.3 * counts[1]


@pytest.mark.parametrize("name", ["parentheses", "queries", "cases", "calls", "tables", "signs"])
def test_reading_needs_no_stack(name: str) -> None:
    statement, limit, depth = scan(FAMILIES[name](2)), sys.getrecursionlimit(), 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + 30)
    try:
        found = read(statement)
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(found, syntax.Select)


def test_joins_nested_without_parentheses_are_limited() -> None:
    fine = "SELECT 1 FROM t" + " JOIN t" * statement_depth_max + " ON true" * statement_depth_max
    assert isinstance(read(scan(fine)), syntax.Select)
    with pytest.raises(OperationalError) as caught:
        read(scan("SELECT 1 FROM t" + " JOIN t" * 10_000 + " ON true" * 10_000))
    assert caught.value.sqlstate == "54001"


@pytest.mark.parametrize("name", ["rows", "lists", "operators", "conditions", "joins", "columns"])
def test_a_cancel_is_noticed_within_some_hundred_nodes(name: str) -> None:
    text = FAMILIES[name](1_500)
    statement = scan(text)
    count, looks = len(statement.tokens), list[int]()
    read(statement, lambda: looks.append(1))
    assert len(looks) >= count // (8 * interrupt_nodes)
    looks.clear()
    scan(text, lambda: looks.append(1))
    assert len(looks) >= count // interrupt_nodes

    def stop() -> None:
        raise QueryCanceledError("now")

    for reading in (lambda: read(statement, stop), lambda: scan(text, stop)):
        with pytest.raises(QueryCanceledError):
            reading()


def test_tokens_and_nodes_have_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = scan(FAMILIES["rows"](300))
    monkeypatch.setattr(read_expression, "statement_nodes_max", 500)
    with pytest.raises(OperationalError, match="more than 500 expressions") as caught:
        read(statement)
    assert (caught.value.sqlstate, caught.value.hint is None) == ("54001", False)
    monkeypatch.setattr(tokens, "statement_tokens_max", 1_000)
    with pytest.raises(OperationalError, match="more than 1,000 words and signs") as caught:
        scan(statement.text)
    assert (caught.value.sqlstate, caught.value.hint is None) == ("54001", False)


def test_a_comment_ends_with_any_line_end() -> None:
    assert shape_of("SELECT 1 -- x\r + 1") == shape_of("SELECT 1 + 1")
    assert shape_of("SELECT 'a'\r'b'") == shape_of("SELECT 'ab'")


def test_only_ascii_letters_make_keywords() -> None:
    assert shape_of("SELECT 1 l\u0131m\u0131t") == shape_of("SELECT 1 AS l\u0131m\u0131t")


@pytest.mark.parametrize(
    "text", ["SELECT ((SELECT 5) OFFSET 0 ROWS = 5)", "SELECT ((SELECT 5) LIMIT 1, 2)"]
)
def test_the_tail_of_a_query_is_no_operand(text: str) -> None:
    with pytest.raises(Error) as caught:
        read(scan(text))
    assert caught.value.sqlstate == "42601"


@pytest.mark.parametrize(
    "text", ["SELECT {}", "SELECT 1 AS {}", "SELECT 1 x {}", "SELECT t.{} FROM t"]
)
def test_messages_are_short(text: str) -> None:
    with pytest.raises(Error) as caught:
        read(scan(text.format("a" * 100_000)))
    assert len(str(caught.value)) < 400
