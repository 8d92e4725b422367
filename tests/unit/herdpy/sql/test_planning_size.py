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
from herdpy.limits import interrupt_nodes, vector_nodes_max
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.duckdb_text import DuckText, print_query
from herdpy.sql.functions import FUNCTIONS
from herdpy.sql.macros import MACROS
from herdpy.sql.reading import tokens
from tests.fixtures.sql_catalog import FixedCatalog

TABLE = (
    "(VALUES (1, 2::bigint, 1.5, 2.5::double precision, 'a', true, '\\x00'::bytea,"
    " DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00'))"
    " AS t(i, l, m, d, s, b, y, day, at)"
)
ARGUMENTS = {
    "int4": "i", "integer": "i", "decimal": "m", "double": "d", "text": "s", "bytea": "y",
    "timestamp": "at", "interval": "(at - at)",
}  # fmt: skip
# How any value becomes an argument of a kind, using it once.
AS_ARGUMENT = {
    "int4": "CASE WHEN ({0}) IS NULL THEN 1 ELSE i END",
    "integer": "CASE WHEN ({0}) IS NULL THEN 1 ELSE i END",
    "decimal": "CASE WHEN ({0}) IS NULL THEN 1.5 ELSE m END",
    "double": "CASE WHEN ({0}) IS NULL THEN 1.5 ELSE d END",
    "text": "CASE WHEN ({0}) IS NULL THEN 'b' ELSE s END",
    "bytea": "CASE WHEN ({0}) IS NULL THEN y END",
    "timestamp": "CASE WHEN ({0}) IS NULL THEN at END",
    "interval": "CASE WHEN ({0}) IS NULL THEN interval '1 day' ELSE at - at END",
}


def function_forms() -> Iterator[str]:
    """Yield each overload with each argument replaced by what is nested."""
    for overloads in FUNCTIONS.values():
        for function in overloads:
            for place in range(len(function.parameters)):
                arguments = [ARGUMENTS[kind] for kind in function.parameters]
                arguments[place] = AS_ARGUMENT[function.parameters[place]]
                yield f"{function.name}({', '.join(arguments)})"


INTEGER = "CASE WHEN {0} THEN 1 ELSE 2 END"
FORMS = [
    *function_forms(),
    *(INTEGER.replace("{0}", test) for test in (
        "{0} BETWEEN 1 AND 9", "i BETWEEN {0} AND 9", "i BETWEEN 1 AND {0}",
        "{0} BETWEEN SYMMETRIC i AND 9", "i + 1 BETWEEN SYMMETRIC {0} AND 9",
        "i + 1 BETWEEN SYMMETRIC 9 AND {0}", "({0}, 1) < (2, i)", "(1, i) >= ({0}, i + 1)",
        "(i, {0}) <> (1, 2)", "({0}, 1) IN ((1, 2), (2, 1))", "(i + 1, {0}) IN ((1, 2), (2, 1))",
        "i + 1 IN (1, 2.5, {0})", "{0} IN (1, 2.5, 3)", "{0} = ANY (ARRAY[1, 2, 3])",
        "i + 1 <> ALL (ARRAY[1, {0}])", "{0} IS DISTINCT FROM 1", "({0} = 1) IS TRUE",
        "{0} = 1 AND i = 2", "i = 1 OR {0} = 2",
        "{0} IN (SELECT 1)", "{0} < ALL (SELECT 1)", "EXISTS (SELECT {0})",
        "concat({0} = 1, 'a') LIKE 'a%'", "({0} = 1)::text = 'true'",
    )),
    "nullif({0}, 3)", "nullif(i + 1, {0})", "coalesce({0}, i)", "coalesce(i, {0})",
    "coalesce(i + 1, {0}, 3)", "greatest({0}, 1)", "least(i, {0})",
    "CASE {0} WHEN 1 THEN 2 WHEN 2 THEN 3 END", "CASE i + 1 WHEN {0} THEN 2 WHEN 2 THEN 3 END",
    "CASE i + 1 WHEN 1 THEN {0} WHEN 2 THEN 3 END", "CASE i + 1 WHEN 1 THEN 2 ELSE {0} END",
    "({0}) % 7", "7 % ({0})", "({0}) / 3", "round({0} / 3.0)::integer", "-({0})",
    "({0})::text::integer", "({0})::double precision::text::double precision::integer",
    "({0})::numeric(9, 2)::text::numeric(9, 2)::integer", "length(({0})::text)",
    "extract(day FROM day + ({0}))::integer", "(day - (day - ({0})))",
    "extract(epoch FROM interval '1 day' * ({0}))::integer",
    "extract(epoch FROM (interval '1 day' / ({0}))::text::interval)::integer",
    "length(lpad('a', {0}, 'b'))", "length(substring('abc', {0}, 2))",
    "(SELECT {0})", "(SELECT {0} ORDER BY 1)", "(SELECT {0} AS a GROUP BY 1)",
    "(SELECT {0} AS a GROUP BY a ORDER BY a LIMIT 1)", "(SELECT DISTINCT {0} ORDER BY 1)",
    "(SELECT DISTINCT ON (1) {0} ORDER BY 1)",
    "(SELECT coalesce({0}, 1) FROM (VALUES (1)) AS w (a))",
    "CASE WHEN i > 1 THEN (SELECT {0}) END", "coalesce(i, (SELECT {0}))",
]  # fmt: skip


def statement(form: str, depth: int) -> str:
    expression = "i"
    for _ in range(depth):
        expression = form.replace("{0}", expression)
    return f"SELECT {expression} FROM {TABLE}"


def tree_size(node: object) -> int:
    """Count nodes, one that stands in two places twice."""
    if isinstance(node, tuple):
        return sum(map(tree_size, node))
    names = getattr(type(node), "__dataclass_fields__", None)
    if names is None or type(node).__module__ != tree.__name__:
        return 0
    return 1 + sum(tree_size(getattr(node, name)) for name in names)


BODIES = {head.partition("(")[0]: (head, body) for head, body in MACROS}


def macro_parameters(name: str) -> list[str]:
    head = BODIES[name][0]
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
    body = BODIES[name][1]
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
    for depth in (1, 2, 4) if "(i + 1, {0}) IN" in form else (2, 4, 8):
        query, found = printed(statement(form, depth))
        trees.append(tree_size(query))
        texts.append(sum(expanded_size(text.sql) for text in found))
    for sizes in (trees, texts):
        assert sizes[2] - sizes[1] <= 2.3 * (sizes[1] - sizes[0])


REPEATED = [
    ("SELECT i FROM {t} WHERE i IN ({0})", "{n}, "), ("SELECT {0} FROM {t}", "i + 1, "),
    ("SELECT 1 FROM {t} WHERE {0}", "i + 1 = {n} OR "),
    ("SELECT coalesce({0}) FROM {t}", "i + 1, "),
    ("SELECT CASE {0} END FROM {t}", "WHEN i = {n} THEN 1 "),
    ("SELECT CASE i + 1 {0} END FROM {t}", "WHEN {n} THEN 1 "),
    ("SELECT 1 FROM {t} WHERE (i + 1, l + 1) IN ({0})", "({n}, 1), "),
    ("SELECT i + 1 FROM {t} ORDER BY {0}", "1, "), ("SELECT i + 1 FROM {t} GROUP BY {0}", "1, "),
    ("VALUES {0}", "({n}), "), ("SELECT i + 1 = ANY (ARRAY[{0}]) FROM {t}", "{n}, "),
    ("SELECT {0} FROM {t}", "(SELECT 1 FROM (VALUES (1)) AS a, (VALUES (2)) AS b), "),
]  # fmt: skip


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
