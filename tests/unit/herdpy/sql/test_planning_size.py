"""Whatever a statement nests or repeats, what is made of it grows as its text does.

Counted are nodes of the bound tree as a tree (one that stands twice counts twice), characters of
DuckDB's text with all macros put in, and for the scanner characters looked at: never time.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from herdpy.engine.access.rights import needs_of
from herdpy.errors import OperationalError, ProgrammingError, QueryCanceledError
from herdpy.limits import (
    interrupt_nodes,
    vector_correlated_max,
    vector_differences_max,
    vector_nodes_max,
    vector_subqueries_max,
    vector_text_max,
)
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.duckdb_text import DuckText, print_query
from herdpy.sql.macros import MACROS
from herdpy.sql.printed_size import printed_size
from herdpy.sql.reading import tokens
from tests.fixtures.counted_calls import count_calls
from tests.fixtures.sql_catalog import FixedCatalog
from tests.fixtures.sql_forms import FORMS, QUERY_FORMS, REPEATED, TABLE


def statement(form: str, depth: int) -> str:
    expression = "i"
    for _ in range(depth):
        expression = form.replace("{0}", expression)
    return f"SELECT {expression} FROM {TABLE}"


def tree_size(node: object) -> int:
    """Count nodes, one that stands in two places twice."""
    if isinstance(node, tuple):
        return sum(map(tree_size, node))
    if not isinstance(node, tree.Node):
        return 0
    return 1 + sum(map(tree_size, tree.parts(node)))


def macro_parameters(name: str) -> list[str]:
    head = MACROS[name][0]
    return [part.strip() for part in head.partition("(")[2].rstrip(")").split(",") if part.strip()]


def expanded_size(text: str) -> int:
    """Return the length of a text once DuckDB has put the macros in."""
    total, position = 0, 0
    for call in re.finditer(r"'(?:[^']|'')*'|\b(h_\w+)\(", text):
        if call.start() < position or call[1] is None:
            continue
        total += call.start() - position
        arguments, position = arguments_of(text, call.end())
        total += macro_size(call[1], [expanded_size(argument) for argument in arguments])
    return total + len(text) - position


def arguments_of(text: str, position: int) -> tuple[list[str], int]:
    """Return the arguments behind a "(", and where its ")" ends."""
    depth, begin, found = 1, position, list[str]()
    for piece in re.compile(r"'(?:[^']|'')*'|[(\[,)\]]").finditer(text, position):
        mark = piece[0]
        if mark in "([":
            depth += 1
        elif mark in ")]":
            depth -= 1
        if (mark == "," and depth == 1) or depth == 0:
            found.append(text[begin : piece.start()])
            begin = piece.end()
        if depth == 0:
            return [item for item in found if item.strip()], begin
    raise AssertionError(f"unbalanced: {text[position:]}")


def macro_size(name: str, sizes: list[int]) -> int:
    """Return the length of a macro's text with arguments of these lengths."""
    body = MACROS[name][1]
    for parameter, size in zip(macro_parameters(name), sizes, strict=True):
        body = re.sub(rf"'(?:[^']|'')*'|\b{parameter}\b", marked(parameter, size), body)
    return expanded_size(body)


def marked(parameter: str, size: int) -> Callable[[re.Match[str]], str]:
    return lambda found: "#" * size if found[0] == parameter else found[0]


def printed(text: str) -> tuple[tree.Query, list[DuckText]]:
    compiled = compile_sql(text, FixedCatalog(), ())
    assert isinstance(compiled.statement, tree.SelectStatement)
    query = compiled.statement.query
    texts = [print_query(query)]
    for found in texts:
        texts += (item.text for item in found.deferred)
    return query, texts


@pytest.mark.parametrize("form", FORMS)
def test_nested_expressions_grow_as_their_text(form: str) -> None:
    trees: list[int] = []
    texts: list[int] = []
    # A row in a row is a lambda in two lambdas: DuckDB may not read eight of them.
    is_big = "(i + 1, {0}) IN" in form
    for depth in (1, 2, 4) if is_big else (2, 4, 8):
        query, found = printed(statement(form, depth))
        trees.append(tree_size(query))
        texts.append(sum(expanded_size(text.sql) for text in found))
    for sizes in (trees, texts):
        assert sizes[2] - sizes[1] <= 2.3 * (sizes[1] - sizes[0])


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("form", dict.fromkeys([*FORMS, *QUERY_FORMS]))
def test_each_level_takes_as_many_calls_to_be_printed(form: str, *, is_guarded: bool) -> None:
    def counted(depth: int) -> int:
        query, _ = printed(statement(form, depth))
        return count_calls(lambda: print_query(query, is_guarded=is_guarded))

    is_big = "(i + 1, {0}) IN" in form  # as above
    counts = [counted(depth) for depth in ((1, 2, 4) if is_big else (2, 4, 8))]
    assert counts[2] - counts[1] <= 2.3 * (counts[1] - counts[0])


@pytest.mark.parametrize(("form", "item"), REPEATED)
def test_repeated_parts_grow_as_their_text(form: str, item: str) -> None:
    def text(count: int) -> str:
        items = "".join(item.replace("{n}", str(10_000 + n)) for n in range(count))
        return form.replace(
            "{0}", items.strip().removesuffix(",").removesuffix("OR").rstrip()
        ).replace("{t}", TABLE)

    (query, texts), (big_query, big_texts) = printed(text(50)), printed(text(100))
    assert tree_size(big_query) <= 2.3 * tree_size(query)
    small_size, big_size = (sum(expanded_size(t.sql) for t in ts) for ts in (texts, big_texts))
    assert big_size <= 2.3 * small_size


def test_equal_constants_of_a_list_are_one() -> None:
    query, (text,) = printed(f"SELECT i IN ({', '.join(['1'] * 2_000)}) FROM {TABLE}")
    assert tree_size(query) < 100
    assert text.sql.count("'1'") < 5


def test_a_long_list_is_one_value() -> None:
    items = ", ".join(map(str, range(50_000)))
    _, (text,) = printed(f"SELECT i FROM {TABLE} WHERE i NOT IN ({items})")
    assert len(text.sql) < 2_000
    assert [len(item.items) for item in text.lists] == [50_000]


# --- the backstop --------------------------------------------------------------------------------


def test_more_than_duckdb_should_read_is_refused() -> None:
    query = compile_sql(
        f"SELECT * FROM (VALUES {', '.join(['(1 + 1)'] * (vector_nodes_max // 2))}) AS v",
        FixedCatalog(),
        (),
    ).statement
    assert isinstance(query, tree.SelectStatement)
    with pytest.raises(OperationalError) as caught:
        print_query(query.query)
    assert caught.value.sqlstate == "54001"
    assert caught.value.hint is not None


def refusal(text: str) -> str | None:
    """Return what print_query refuses (54001), None for nothing."""
    query = compile_sql(text, FixedCatalog(), ()).statement
    assert isinstance(query, tree.SelectStatement)
    try:
        print_query(query.query)
    except OperationalError as error:
        return f"{error.sqlstate} {error.message}"
    return None


def test_means_count_for_what_duckdb_does_with_all_of_them() -> None:
    def means(count: int) -> str:
        return f"SELECT {', '.join(f'avg(i + {n})' for n in range(count))} FROM {TABLE}"

    assert refusal(means(200)) is None
    found = refusal(means(240))
    assert found is not None
    assert found.startswith("54001 ")


@pytest.mark.parametrize(
    ("head", "item", "separator", "tail", "maximum"),
    [
        ("SELECT ", "(SELECT i + {n})", ", ", f" FROM {TABLE}", vector_correlated_max),
        (f"SELECT 1 FROM {TABLE} WHERE ", "EXISTS (SELECT 1 FROM leg WHERE no = i)", " OR ", "",
         vector_correlated_max),
        (f"SELECT 1 FROM {TABLE} WHERE ", "i IN (SELECT no FROM leg WHERE no < i)", " AND ", "",
         vector_correlated_max),
        ("SELECT ", "(SELECT max(no) + {n} FROM leg)", ", ", "", vector_subqueries_max),
        (f"SELECT 1 FROM {TABLE} WHERE ", "i > ALL (SELECT no FROM leg)", " AND ", "",
         vector_subqueries_max),
        ("SELECT 0 EXCEPT ", "SELECT {n}", " EXCEPT ", "", vector_differences_max),
        ("SELECT 0 INTERSECT ", "SELECT {n}", " INTERSECT ", "", vector_differences_max),
    ],
)  # fmt: skip
def test_what_duckdb_plans_in_more_than_linear_time_has_a_limit(
    head: str, item: str, separator: str, tail: str, maximum: int
) -> None:
    def text(count: int) -> str:
        return head + separator.join(item.replace("{n}", str(n)) for n in range(count)) + tail

    assert refusal(text(maximum)) is None
    found = refusal(text(maximum + 1))
    assert found is not None
    assert found.startswith(f"54001 statement is too big: more than {maximum} ")


def test_the_text_for_duckdb_has_a_limit() -> None:
    def text(count: int) -> str:
        return f"SELECT {', '.join(f'stddev(l + {n})' for n in range(count))} FROM {TABLE}"

    (one,), (two,) = printed(text(1))[1], printed(text(2))[1]
    count = vector_text_max // (printed_size(two.sql) - printed_size(one.sql))
    assert refusal(text(count * 9 // 10)) is None
    assert refusal(text(count * 11 // 10)) is not None


@pytest.mark.parametrize(
    ("expression", "maximum"),
    [
        ("s::integer", 1_300), ("s::bigint", 1_300), ("s::float8", 2_200),
        ("s::numeric(9,2)", 7_000), ("s::date", 4_000), ("s::timestamp", 4_200),
        ("s::timestamptz", 6_000), ("s::interval", 2_100), ("sum(s::interval)", 11_000),
        ("avg(s::interval)", 17_000), ("(at - at)::text", 5_500),
    ],
)  # fmt: skip
def test_casts_are_short_in_duckdbs_words(expression: str, maximum: int) -> None:
    _, (text,) = printed(f"SELECT {expression} FROM {TABLE}")
    _, (empty,) = printed(f"SELECT i FROM {TABLE}")
    assert printed_size(text.sql) - printed_size(empty.sql) <= maximum


@pytest.mark.parametrize(
    ("item", "never"),
    [
        ("i + {n}", "r1.c0"), ("d - i * d", "r1.c3"), ("count(*) + {n}", "count(*)"),
        ("(i + 1) * {n}", "r1.c0"),
    ],
)  # fmt: skip
def test_a_long_chain_stands_where_duckdb_seeks_no_common_parts(item: str, never: str) -> None:
    def text(count: int) -> str:
        chain = " + ".join(item.replace("{n}", str(n)) for n in range(count))
        return printed(f"SELECT {chain} FROM {TABLE}")[1][0].sql

    assert "CASE" not in text(20)
    assert f"(CASE WHEN {never} IS DISTINCT FROM {never} THEN NULL ELSE (" in text(80)


def test_arms_of_a_union_stand_one_behind_the_other() -> None:
    _, (text,) = printed(" UNION ALL ".join(f"SELECT {n}" for n in range(50)))
    assert text.sql.count("SELECT *") == 1
    _, (text,) = printed("(SELECT 1 UNION SELECT 2 LIMIT 1) UNION SELECT 3")
    assert text.sql.count("SELECT *") == 2


def test_a_cancel_ends_planning_wherever_it_comes() -> None:
    calls: list[int] = []

    def cancelled_after(limit: int) -> Callable[[], None]:
        def check() -> None:
            calls.append(1)
            if len(calls) > limit:
                raise QueryCanceledError("stop")

        return check

    text = f"SELECT * FROM (VALUES {'(1), ' * (3 * interrupt_nodes)}(1)) AS v"
    statement = compile_sql(text, FixedCatalog(), (), cancelled_after(1_000_000)).statement
    assert isinstance(statement, tree.SelectStatement)
    compiling = len(calls)
    needs_of(statement, cancelled_after(1_000_000))
    authorizing = len(calls) - compiling
    print_query(statement.query, cancelled_after(1_000_000))
    printing = len(calls) - compiling - authorizing
    assert compiling > 12  # each of three passes asks every 1,024 pieces, tokens or nodes
    assert min(authorizing, printing) > 2
    for limit in range(compiling):
        calls.clear()
        with pytest.raises(QueryCanceledError):
            compile_sql(text, FixedCatalog(), (), cancelled_after(limit))
        assert len(calls) == limit + 1


# --- the scanner ---------------------------------------------------------------------------------

OPENINGS = [
    "$t{n}$ ", "${n}$ ", "$$ ", "$t$ ", "$", "/*", "/* */", "*/", "/* '", "'", "''",
    "e'\\'' ", "e'\\' ", '"', '""', "--\n", "-- $a$\n", "$a$'$a$", "U&'a", "b'",
    "$t{n}$ '", '"$a$" ', "e", "\\",
]  # fmt: skip


class Counting:
    """A pattern that counts the characters it goes over, to the end of the text for no match."""

    def __init__(self, pattern: re.Pattern[str], count: list[int]) -> None:
        self._pattern, self._count = pattern, count

    def _counted(self, method: str, text: str, position: int) -> re.Match[str] | None:
        found = getattr(self._pattern, method)(text, position)
        self._count[0] += (found.end() if found else len(text)) - position + 1
        return found

    def search(self, text: str, position: int = 0) -> re.Match[str] | None:
        return self._counted("search", text, position)

    def match(self, text: str, position: int = 0) -> re.Match[str] | None:
        return self._counted("match", text, position)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        self._count[0] += len(text)
        return self._pattern.finditer(text)


@pytest.mark.parametrize("opening", OPENINGS)
def test_the_scanner_reads_each_character_some_times(
    opening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = [0]
    for name in ("_TOKEN", "_COMMENT_MARKS", "_DOLLAR_MARKS"):
        pattern: Any = getattr(tokens, name)
        monkeypatch.setattr(tokens, name, Counting(pattern, count))

    def work(copies: int) -> tuple[int, int]:
        text = "SELECT " + "".join(opening.replace("{n}", str(n)) for n in range(copies))
        count[0] = 0
        with contextlib.suppress(OperationalError, ProgrammingError):
            tokens.scan(text + " " * 2_000)
        return count[0], len(text) + 2_000

    for copies in (500, 1_000, 2_000):
        looked_at, length = work(copies)
        assert looked_at <= 8 * length


def test_no_pattern_of_the_scanner_looks_for_what_it_has_read() -> None:
    """A backreference makes one search quadratic where Counting cannot see it."""
    for pattern in (tokens._TOKEN, tokens._DOLLAR_MARKS, tokens._COMMENT_MARKS, tokens._ESCAPE):
        assert not re.search(r"\(\?P=|\\[1-9]|\.\*\?", pattern.pattern)
