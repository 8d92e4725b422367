"""Families of statements, each of any length: wide, deep and long ones, of random expressions.

A family makes two statements of a seed, of about so many bytes and twice as many, that differ in
nothing but how often, or how deep, a part of them stands there.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from herdpy.sql.functions import AGGREGATES
from tests.fixtures.sql_forms import AS_ARGUMENT, FORMS, QUERY_FORMS, TABLE

SCHEMA = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, i INTEGER, l BIGINT, m NUMERIC(10,2),"
    " d DOUBLE PRECISION, s TEXT, b BOOLEAN, y BYTEA, day DATE, at TIMESTAMP)",
    "INSERT INTO t VALUES (1, 1, 2, 1.5, 2.5, 'a', true, '\\x00', DATE '2020-01-01',"
    " TIMESTAMP '2020-01-01 00:00:00'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
)
_ATOMS = ("i", "l", "m", "d", "s", "b", "1", "2.5", "'a'", "NULL", "now()", "day", "y")
_ITEMS = 5  # different expressions in one statement
_DEPTH_MAX = 4
_PARAMETERS_MAX = 60_000


class Pair(NamedTuple):
    """A statement, and one about twice as long."""

    small: str
    large: str
    takes_parameters: bool = False
    fixed: int = 0
    """Characters of both that are there once, or as often."""
    innermost: str | None = None
    """Of forms in one another: a statement of the innermost ones alone, as many of them."""


class Wide(NamedTuple):
    """`item` again and again; {n} is its number, {e} an expression, {c} one without columns."""

    head: str
    item: str
    separator: str = ", "
    tail: str = ""

    def pair(self, chance: random.Random, size: int) -> Pair:
        source = chance.choice(("t", TABLE))
        items = [self._item(chance) for _ in range(_ITEMS)]
        small, large = (self._text(items, source, bytes_) for bytes_ in (size, 2 * size))
        fixed = len(self._text(items, source, 0))
        return Pair(small, large, takes_parameters="?" in self.item, fixed=fixed)

    def _item(self, chance: random.Random) -> str:
        depth = chance.choice((0, 0, 1, 2))
        text = self.item
        if "{e}" in text:
            text = text.replace("{e}", expression(chance, depth))
        if "{c}" in text:
            value = chance.choice(("1", "'a'", "2.5", "NULL"))
            text = text.replace("{c}", chance.choice(_CONSTANT_FORMS).replace("{0}", value))
        if "{aggregate}" in text:
            text = text.replace("{aggregate}", chance.choice(_AGGREGATES))
        return text

    def _text(self, items: Sequence[str], source: str, size: int) -> str:
        head, tail = (text.replace("{t}", source) for text in (self.head, self.tail))
        items = [item.replace("{t}", source) for item in items]
        pieces: list[str] = []
        length = len(head) + len(tail)
        items_max = _PARAMETERS_MAX if "?" in self.item else size
        while length < size and len(pieces) < items_max:
            number = len(pieces)
            pieces.append(items[number % len(items)].replace("{n}", str(10_000 + number)))
            length += len(pieces[-1]) + len(self.separator)
        return f"{head}{self.separator.join(pieces)}{tail}"


class Deep(NamedTuple):
    """Forms in one another; `count` of such items in a list, so that they are long enough."""

    forms: Sequence[str]

    def pair(self, chance: random.Random, size: int) -> Pair:
        form, depth = chance.choice(self.forms), chance.randrange(2, _DEPTH_MAX + 1)
        source = chance.choice(("t", TABLE))
        item = nested(form, depth)
        count = max(1, min(size // len(item), 1_500))
        innermost, small, large = (
            f"SELECT {', '.join([nested(form, levels)] * count)} FROM {source}"
            for levels in (1, depth, 2 * depth)
        )
        # What each level adds is twice as much; the column in the middle, and a comma, are not.
        fixed = len(f"SELECT  FROM {source}") + count * len("i, ")
        return Pair(small, large, fixed=fixed, innermost=innermost)


class Long(NamedTuple):
    """One word, string or comment of any length."""

    head: str
    piece: str
    tail: str

    def pair(self, chance: random.Random, size: int) -> Pair:
        small, large = (
            f"{self.head}{self.piece * (bytes_ // len(self.piece))}{self.tail}"
            for bytes_ in (size, 2 * size)
        )
        return Pair(small.replace("{t}", "t"), large.replace("{t}", "t"))


def nested(form: str, depth: int) -> str:
    text = "i"
    for _ in range(depth):
        text = form.replace("{0}", text)
    return text


def expression(chance: random.Random, depth: int) -> str:
    """Return an expression of forms in one another, which may use an operand several times."""
    text = chance.choice(_ATOMS)
    for _ in range(depth):
        form = chance.choice(FORMS)
        # Forms of functions take anything already, the others an integer.
        text = form.replace("{0}", text if form in _OF_FUNCTIONS else as_integer(text))
    return text


def as_integer(text: str) -> str:
    return AS_ARGUMENT["int4"].format(text)


_OF_FUNCTIONS = frozenset(form for form in FORMS if "CASE WHEN ({0}) IS NULL" in form)
_CONSTANT_FORMS = ("{0}", "({0})::text", "upper(concat({0}, 'x'))", "coalesce({0}, NULL)")
_AGGREGATES = tuple(
    form
    for name in AGGREGATES
    for form in (
        (f"{name}(l)", f"{name}(m)", f"{name}(d + 1)", f"{name}(DISTINCT i)")
        if name not in ("bool_and", "bool_or", "string_agg")
        else (f"{name}(s, ',')",) if name == "string_agg" else (f"{name}(b)",)
    )
)  # fmt: skip
_REPEATED_FORMS = (
    "({0} + {0})", "power({0}, {0})", "lpad(({0})::text, 9, ({0})::text)", "({0} || {0})",
    "CASE WHEN {0} IS NULL THEN {0} ELSE {0} END", "coalesce({0}, {0})", "nullif({0}, {0})",
    "replace(concat({0}), 'a', concat({0}))", "({0} BETWEEN {0} AND {0})", "({0} IN ({0}, {0}))",
)  # fmt: skip
"""Texts that double with each level: they are long before they are deep."""

Make = Callable[[random.Random, int], Pair]
FAMILIES: dict[str, Make] = {
    name: family.pair
    for name, family in {
        "select list": Wide("SELECT ", "{e}", tail=" FROM {t}"),
        "names": Wide("SELECT ", "i AS c{n}", tail=" FROM {t}"),
        "stars": Wide("SELECT ", "*", tail=" FROM {t}"),
        "values": Wide("VALUES ", "({n}, 'a', NULL)"),
        "computed values": Wide("VALUES ", "({c})"),
        "constants in IN": Wide("SELECT i FROM {t} WHERE i IN (", "{n}", tail=")"),
        "texts in IN": Wide("SELECT i FROM {t} WHERE s NOT IN (", "'{n}'", tail=")"),
        "expressions in IN": Wide("SELECT i FROM {t} WHERE concat(i) IN (", "concat({e})",
                                  tail=")"),
        "parameters in IN": Wide("SELECT i FROM t WHERE id IN (", "?", tail=")"),
        "rows in IN": Wide("SELECT i FROM {t} WHERE (i, l) IN (", "({n}, 2)", tail=")"),
        "rows in queries": Wide("SELECT 1 FROM {t} WHERE ", "(i, l) IN (SELECT {n}, 2)", " OR "),
        "joins with names": Wide("SELECT 1 FROM t", " CROSS JOIN (t AS b JOIN t AS c ON false) AS"
                                 " a{n}", ""),
        "GROUP BY": Wide("SELECT count(*) FROM {t} GROUP BY ", "{e}"),
        "ROLLUP": Wide("SELECT count(*) FROM {t} GROUP BY ROLLUP (", "{e}", tail=")"),
        "CUBE": Wide("SELECT count(*) FROM {t} GROUP BY CUBE (", "{e}", tail=")"),
        "GROUPING SETS": Wide("SELECT count(*) FROM {t} GROUP BY GROUPING SETS (", "({e}, i)",
                              tail=")"),
        "several ROLLUPs": Wide("SELECT count(*) FROM {t} GROUP BY ", "ROLLUP (i, l)"),
        "ORDER BY": Wide("SELECT i FROM {t} ORDER BY ", "{e}"),
        "DISTINCT ON": Wide("SELECT DISTINCT ON (", "{e}", tail=") 1 FROM {t}"),
        "AND": Wide("SELECT i FROM {t} WHERE ", "{e} IS NOT NULL", " AND "),
        "OR": Wide("SELECT i FROM {t} WHERE ", "i = {n}", " OR "),
        "AND and OR": Wide("SELECT i FROM {t} WHERE ", "(i = {n} AND s < '{n}')", " OR "),
        "joins": Wide("SELECT 1 FROM t", " JOIN t AS a{n} ON a{n}.id = t.id", ""),
        "commas": Wide("SELECT 1 FROM ", "t AS a{n}", tail=" WHERE false"),
        "derived": Wide("SELECT 1 FROM ", "(SELECT {e} FROM {t}) AS a{n}"),
        "series": Wide("SELECT 1 FROM ", "generate_series(1, {n}) AS a{n}", tail=" WHERE false"),
        "unnest": Wide("SELECT 1 FROM unnest(ARRAY[", "{n}", tail="])"),
        "computed unnest": Wide("SELECT 1 FROM {t}, unnest(ARRAY[", "i + {n}", tail="])"),
        "LATERAL": Wide("SELECT 1 FROM {t}", ", LATERAL (SELECT t.i + {n}) AS a{n}", ""),
        "functions in FROM": Wide("SELECT 1 FROM {t}", ", abs(t.i + {n}) AS a{n}", ""),
        "WITH": Wide("WITH ", "a{n} AS (SELECT {e} FROM {t})", tail=" SELECT 1"),
        "WITH RECURSIVE": Wide("WITH RECURSIVE ", "a{n} AS (SELECT 1 AS n UNION ALL SELECT n + 1"
                               " FROM a{n} WHERE n < 2)", tail=" SELECT 1"),
        "recursive terms": Wide("WITH RECURSIVE a (i) AS (SELECT 1 UNION ALL SELECT a.i FROM a, {t}"
                                " WHERE ", "concat({c}) = 'x'", " OR ", ") SELECT 1 FROM a"),
        "items of WITH RECURSIVE": Wide("WITH RECURSIVE ", "a{n} AS (SELECT {n})",
                                        tail=" SELECT 1"),
        "UNION": Wide("", "SELECT {n} FROM {t}", " UNION ALL "),
        "EXCEPT": Wide("", "SELECT 1", " EXCEPT "),
        "CASE": Wide("SELECT CASE ", "WHEN {e} IS NULL THEN {n}", " ", " END FROM {t}"),
        "CASE of": Wide("SELECT CASE i + 1 ", "WHEN {n} THEN 'a'", " ", " END FROM {t}"),
        "coalesce": Wide("SELECT coalesce(", "concat({e})", tail=") FROM {t}"),
        "concat": Wide("SELECT concat(", "{e}", tail=") FROM {t}"),
        "greatest": Wide("SELECT greatest(", "i + {n}", tail=") FROM {t}"),
        "ARRAY": Wide("SELECT i = ANY (ARRAY[", "{n}", tail="]) FROM {t}"),
        "aggregates": Wide("SELECT ", "{aggregate}", tail=" FROM {t}"),
        "windows": Wide("SELECT ", "sum(l) OVER (PARTITION BY {e} ORDER BY i)", tail=" FROM {t}"),
        "named windows": Wide("SELECT 1 FROM {t} WINDOW ", "w{n} AS (ORDER BY i)"),
        "subqueries": Wide("SELECT ", "(SELECT {e})", tail=" FROM {t}"),
        "late subqueries": Wide("SELECT ", "coalesce(i, (SELECT {n}))", tail=" FROM {t}"),
        "EXISTS": Wide("SELECT 1 FROM t WHERE ", "EXISTS (SELECT 1 FROM t AS a WHERE a.i = t.i)",
                       " OR "),
        "arguments": Wide("SELECT upper(", "'a'", tail=")"),
        "plus": Wide("SELECT i", " + {n}", "", " FROM {t}"),
        "minus and times": Wide("SELECT l", " - 1 * d", "", " FROM {t}"),
        "||": Wide("SELECT s", " || 'a{n}'", "", " FROM {t}"),
        "casts": Wide("SELECT i", "::bigint::integer", "", " FROM {t}"),
        "signs": Wide("SELECT ", "- ", "", "1"),
        "NOT": Wide("SELECT ", "NOT ", "", "true"),
        "parentheses": Wide("SELECT ", "(", "", "1"),
        "closed parentheses": Wide("SELECT 1", ")", ""),
        "LIKE": Wide("SELECT i FROM {t} WHERE ", "s LIKE '%{n}_%'", " OR "),
        "IS NULL": Wide("SELECT i", " IS NULL", "", " FROM {t}"),
        "unknown names": Wide("SELECT ", "x{n}", tail=" FROM {t}"),
        "points": Wide("SELECT a", ".b", "", " FROM {t}"),
        "column names": Wide("SELECT 1 FROM t AS a (", "c{n}", tail=")"),
        "USING": Wide("SELECT 1 FROM t JOIN t AS a USING (", "id", tail=")"),
        "CREATE TABLE": Wide("CREATE TABLE w (", "c{n} VARCHAR({n}) NOT NULL",
                             tail=", PRIMARY KEY (c10000))"),
        "defaults": Wide("CREATE TABLE w (", "c{n} INTEGER DEFAULT {n}", tail=")"),
        "key": Wide("CREATE TABLE w (a INTEGER, PRIMARY KEY (", "a", tail="))"),
        "constraints": Wide("CREATE TABLE w (a INTEGER ", "NOT NULL", " ", ")"),
        "checks": Wide("CREATE TABLE w (a INTEGER, ", "CHECK (a <> {n})", tail=")"),
        "a check": Wide("CREATE TABLE w (a INTEGER, CHECK (", "a <> {n}", " AND ", "))"),
        "ALTER TABLE": Wide("ALTER TABLE t ", "ALTER i SET DEFAULT {n}"),
        "DROP TABLE": Wide("DROP TABLE IF EXISTS ", "a{n}"),
        "TRUNCATE": Wide("TRUNCATE ", "t"),
        "GRANT": Wide("GRANT SELECT ON ", "t", tail=" TO PUBLIC"),
        "rights": Wide("GRANT ", "SELECT", tail=" ON t TO PUBLIC"),
        "roles": Wide("GRANT SELECT ON t TO ", "r{n}"),
        "members": Wide("GRANT ", "r{n}", tail=" TO a"),
        "options": Wide("CREATE ROLE a ", "NOLOGIN", " "),
        "INSERT": Wide("INSERT INTO t (id, i, s) VALUES ", "({n}, {n}, 'a{n}')"),
        "computed INSERT": Wide("INSERT INTO t (id, s) VALUES ", "({n}, {c})"),
        "INSERT of parameters": Wide("INSERT INTO t (id) VALUES ", "(?)"),
        "INSERT of columns": Wide("INSERT INTO t (", "id", tail=") VALUES (1)"),
        "INSERT of a query": Wide("INSERT INTO t (id, i) ", "SELECT {n}, i FROM {t}",
                                  " UNION ALL "),
        "ON CONFLICT": Wide("INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET ",
                            "i = {n}"),
        "ON CONFLICT where": Wide("INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET "
                                  "i = 1 WHERE ", "concat(excluded.s) = '{n}'", " AND "),
        "RETURNING": Wide("UPDATE t SET i = 1 RETURNING ", "{e}"),
        "UPDATE from": Wide("UPDATE t SET i = 1 FROM ", "t AS a{n}", tail=" RETURNING a1.id"),
        "UPDATE": Wide("UPDATE t SET ", "i = {n}"),
        "UPDATE where": Wide("UPDATE t SET i = 1 WHERE ", "concat({e}) = '{n}'", " AND "),
        "DELETE": Wide("DELETE FROM t WHERE id IN (", "{n}", tail=")"),
        "EXPLAIN": Wide("EXPLAIN SELECT ", "{e}", tail=" FROM {t}"),
        "statements": Wide("", "SELECT {n}", "; "),
        "words": Wide("SELECT ", "a", " "),
        "SET": Wide("SET search_path = ", "a{n}"),
        "forms in one another": Deep(FORMS),
        "repeated operands": Deep(_REPEATED_FORMS),
        "queries in one another": Deep(QUERY_FORMS),
        "template": Long("SELECT to_char(at, '", "YYYY-", "') FROM {t}"),
        "to_char": Wide("SELECT ", "to_char(at, 'YYYY-MM {n}')", tail=" FROM {t}"),
        "string": Long("SELECT '", "a", "' FROM {t}"),
        "quotes": Long("SELECT '", "''", "'"),
        "escapes": Long("SELECT E'", "\\n\\x41", "'"),
        "no end": Long("SELECT '", "''", ""),
        "bytes": Long("SELECT '\\x", "00", "'::bytea"),
        "number": Long("SELECT ", "1", ""),
        "fraction": Long("SELECT 0.", "1", ""),
        "exponent": Long("SELECT 1e", "1", ""),
        "text as a number": Long("SELECT CAST('", "1", "' AS INTEGER)"),
        "text as a date": Long("SELECT DATE '", "1", "'"),
        "text as an interval": Long("SELECT INTERVAL '", "1 day ", "'"),
        "text as a timestamp": Long("SELECT TIMESTAMPTZ '", "2020-01-01 ", "'"),
        "computed text as a number": Long("SELECT concat(s, '", "1", "')::integer FROM {t}"),
        "pattern": Long("SELECT concat(s, 'aaaaaa') LIKE '", "%a_", "' FROM {t}"),
        "name": Long("SELECT ", "a", ""),
        "name in quotes": Long('SELECT "', 'a""', '"'),
        "name of a column": Long("CREATE TABLE w (", "a", " INTEGER)"),
        "comment": Long("SELECT 1 /*", "a ", "*/"),
        "comments in one another": Long("SELECT 1 ", "/*", ""),
        "comments": Long("SELECT 1 ", "/**/", ""),
        "lines of comment": Long("SELECT 1 ", "--\n", ""),
        "blanks": Long("SELECT 1", " ", ""),
        "letters": Long("SELECT ", "\U0001f600", ""),
        "dollars": Long("SELECT ", "$a$ ", ""),
        "signs without meaning": Long("SELECT 1 ", "@", ""),
        "semicolons": Long("SELECT 1", ";", ""),
        "zeros": Long("SELECT '", "\0", "'"),
    }.items()
}  # fmt: skip
