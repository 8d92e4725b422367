"""What PostgreSQL does not read, herdpy does not read either, and then nothing happens.

Texts of other dialects are refused as well; see herdpy/sql/reading/reader.py.
"""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from random import Random

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.sql.reading.tokens import scan

WRONG = [
    "DELETE FROM t,",
    "DELETE FROM t WHERE",
    "DELETE FROM t WHERE id = 1,",
    "DELETE FROM t x y",
    "UPDATE t SET v = 7,",
    "UPDATE t SET v = 7,, id = 3",
    "UPDATE t SET v == 7",
    "UPDATE t SET v = 7 v",
    "UPDATE t, u SET v = 7",
    "INSERT INTO t VALUES (9, 9),",
    "INSERT INTO t VALUES (9, 9),, (10, 10)",
    "INSERT INTO t VALUES (9, 9,)",
    "INSERT INTO t VALUES (9,, 9)",
    "INSERT INTO t VALUES (,9, 9)",
    "INSERT INTO t VALUES 9, 9",
    "INSERT INTO t VALUES (9, 9) (10, 10)",
    "INSERT INTO t (id) VALUES (7) junk",
    "INSERT INTO t (id) VALUES (7) AS new",
    "INSERT INTO t (id,) VALUES (7)",
    "INSERT INTO t SET id = 11",
    "INSERT t VALUES (9, 9)",
    "UPSERT INTO t VALUES (9, 9),",
    "CREATE TABLE x (a INT PRIMARY KEY,, b INT)",
    "CREATE TABLE x (a INT PRIMARY KEY,)",
    "CREATE TABLE x (a INT PRIMARY KEY DESC)",
    "CREATE TABLE x (a INT NOT NULL NULL)",
    "CREATE TABLE x (a INT NULL PRIMARY KEY)",
    "CREATE TABLE x (a INT DEFAULT 1 DEFAULT 2)",
    "CREATE TABLE x (a INT DEFAULT)",
    "CREATE TABLE x (a INT, PRIMARY KEY (a,))",
    "CREATE TABLE x (a INT, PRIMARY KEY ())",
    "DROP TABLE t,",
    "SELECT 1,,2",
    "SELECT ,1",
    "SELECT 1,",
    "SELECT 1 2",
    "SELECT 1 'x'",
    "SELECT v 'x' FROM t",
    "SELECT 'a' 'b'",
    "SELECT coalesce(1,,2)",
    "SELECT coalesce(1,)",
    "SELECT coalesce(,1)",
    "SELECT * FROM t,, u",
    "SELECT * FROM t,",
    "SELECT * FROM t AS",
    "SELECT * FROM t x y",
    "SELECT * FROM t ORDER BY id,",
    "SELECT * FROM t ORDER BY id DESC ASC",
    "SELECT * FROM t ORDER BY id NULLS",
    "SELECT id FROM t GROUP BY id,",
    "SELECT id FROM t GROUP BY id HAVING",
    "SELECT 1 LIMIT",
    "SELECT 1 LIMIT 1 LIMIT 2",
    "SELECT 1 LIMIT 1, 2",
    "SELECT 1 OFFSET",
    "SELECT 1 AS",
    "SELECT 1 IS",
    "SELECT 1 IS NOT",
    "SELECT 1 IN",
    "SELECT 1 IN ()",
    "SELECT 1 IN (1,)",
    "SELECT 1 BETWEEN 1",
    "SELECT 1 NOT",
    "SELECT 1 +",
    "SELECT 1 AND",
    "SELECT CASE WHEN true THEN 1",
    "SELECT CASE END",
    "SELECT CASE WHEN true THEN 1 ELSE END",
    "SELECT CAST(1 AS)",
    "SELECT 1::",
    "SELECT (1,)",
    "SELECT 1 == 1",
    "SELECT 1 <=> NULL",
    "SELECT !true",
    "SELECT true && false || true XOR false",
    "SELECT 7 DIV 2",
    "SELECT 1 < 2 < 3",
    "SELECT 1 < 2 = true",
    "SELECT 1e",
    "SELECT 1x",
    "SELECT 1e+",
    "SELECT %s",
    "SELECT %(a)s",
    "SELECT * FROM t WHERE id in ()",
    "UPDATE t SET v = 1 WHERE id IN ()",
    "SELECT `id` FROM t",
    "SELECT TOP 1 id FROM t",
    "SELECT id FROM t USE INDEX (a)",
    "SELECT 1 UNION",
    "SELECT . 1",
    "WITH a AS (SELECT 1) WITH b AS (SELECT 2) SELECT * FROM b",
    "CREATE TABLE IF EXISTS x (z INT)",
    "CREATE TABLE x y (z INT)",
    "CREATE TABLE x, z INT PRIMARY KEY (z)",
    "CREATE TABLE x (a INT, b INT (c DOUBLE PRECISION))",
    "SELECT 1 UNION ALL ALL SELECT 2",
    "WITH w AS (SELECT 1), SELECT * FROM w",
    "VALUES (1),",
    "VALUES (1), 2",
    "FROM t",
    "SELECT sum(v) OVER (ORDER BY) FROM t",
    "SELECT sum(v) OVER (PARTITION BY id,) FROM t",
    "SELECT count(*,) FROM t",
    "SELECT x.* AS y FROM t x",
    "SELECT * FROM t LEFT ANY JOIN u ON t.id = u.id",
    "SELECT * FROM t OUTER JOIN u ON t.id = u.id",
    "SELECT * FROM t JOIN u ON t.id = u.id AND",
    "SELECT * FROM t JOIN u USING (id,)",
    "SELECT * FROM t JOIN u",
    "SELECT * FROM t CROSS JOIN u ON t.id = u.id",
    "SELECT * FROM t NATURAL CROSS JOIN u",
]
OTHER_DIALECTS = [
    "SELECT * FROM t LEFT INNER JOIN u ON t.id = u.id",
    "WITH a AS (SELECT 1) CREATE TABLE x (a INT)",
    "DELETE t",
    "CREATE TABLE x (a INT, PRIMARY KEY)",
    "SELECT ()",
    "SELECT * FROM t a LEFT SEMI JOIN u b ON a.id = b.id",
    "SELECT * FROM t a LEFT ANTI JOIN u b ON a.id = b.id",
    "SELECT * FROM t a RIGHT SEMI JOIN u b ON a.id = b.id",
    "SELECT * FROM t a ANTI JOIN u b ON a.id = b.id",
    "SELECT * FROM t a ANY JOIN u b ON a.id = b.id",
    "SELECT * FROM t a ASOF JOIN u b ON a.id = b.id",
    "SELECT * FROM t a STRAIGHT_JOIN u b ON a.id = b.id",
    "SELECT * FROM t a LEFT ASOF JOIN u b ON a.id = b.id",
    "SELECT * FROM t a LEFT JOIN LATERAL u b ON a.id = b.id",
    "SELECT * FROM t a POSITIONAL JOIN u b",
    "SELECT * FROM t a CROSS APPLY u b",
    "SELECT * FROM t a INNER HASH JOIN u b ON a.id = b.id",
]
FOREIGN_FUNCTIONS = [
    "nvl(1, 2)", "ifnull(1, 2)", "len('a')", "iff(true, 1, 2)", "if(true, 1, 2)", "ucase('a')",
    "lcase('a')", "instr('ab', 'b')", "isnull(1)", "getdate()", "nvl2(1, 2, 3)",
    "decode(1, 1, 2)", "version()", "truncate(1.5, 1)", "approx_distinct(1)",
    '"LOWER"(\'A\')',
]  # fmt: skip

KNOWN = [
    "INSERT INTO t (id, v) VALUES (10, 1), (11, DEFAULT)",
    "INSERT INTO t SELECT id + 100, v FROM u WHERE id > 1",
    "UPDATE t SET v = v + 1 WHERE id IN (1, 2) AND v IS NOT NULL",
    "DELETE FROM t WHERE id BETWEEN 5 AND 7 OR v = (SELECT max(v) FROM u)",
    "SELECT a.id, count(*) AS n FROM t a LEFT JOIN u b ON a.id = b.id GROUP BY a.id ORDER BY 1",
    "WITH w (a) AS (VALUES (1), (2)) SELECT sum(a) OVER (ORDER BY a) FROM w LIMIT 1 OFFSET 1",
    "SELECT CASE WHEN v > 1 THEN 'a' ELSE 'b' END, CAST(v AS TEXT), -1.5e3, id::bigint FROM t",
    "SELECT id FROM t UNION ALL SELECT v FROM u ORDER BY id DESC NULLS LAST",
    "CREATE TABLE IF NOT EXISTS x (a INT NOT NULL DEFAULT 1, b VARCHAR(3), PRIMARY KEY (a, b))",
    "SELECT extract(year FROM now()), substring('abc' FROM 2 FOR 1), trim(both 'x' FROM 'xax')",
    "SELECT * FROM (SELECT 1 AS a) q JOIN (t JOIN u USING (id)) ON true WHERE NOT a = 2",
    "SELECT interval '1' day + date '2020-01-01', timestamp '2020-01-01' > now(), 'a' LIKE 'b'",
]


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    connection.execute("CREATE TABLE u (id INTEGER PRIMARY KEY, v INTEGER)")
    connection.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    yield connection
    connection.close()


@pytest.mark.parametrize("text", WRONG)
def test_syntax_error(connection: Connection, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute(text)
    assert caught.value.sqlstate == "42601"
    assert connection.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, 1), (2, 2)]
    assert not caplog.records


@pytest.mark.parametrize("text", OTHER_DIALECTS)
def test_other_dialects(connection: Connection, text: str) -> None:
    with pytest.raises(herdpy.Error) as caught:
        connection.execute(text)
    assert caught.value.sqlstate in ("42601", "0A000")


@pytest.mark.parametrize("call", FOREIGN_FUNCTIONS)
def test_functions_of_other_dialects(connection: Connection, call: str) -> None:
    with pytest.raises(herdpy.Error) as caught:
        connection.execute(f"SELECT {call}")
    assert caught.value.sqlstate in ("42883", "42601")
    name = call.partition("(")[0].strip('"')
    assert f"function {name}(" in caught.value.message or caught.value.sqlstate == "42601"


def test_suggestions_are_close(connection: Connection) -> None:
    for call, hint in (
        ("version()", None),
        ("uper('a')", "Did you mean upper?"),
        ("lenght('a')", "Did you mean length?"),
        ("frobnicate(1)", None),
    ):
        with pytest.raises(herdpy.ProgrammingError) as caught:
            connection.execute(f"SELECT {call}")
        assert caught.value.hint == hint
        assert caught.value.position == 8


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM ordrs", "DROP TABLE ordrs", "GRANT SELECT ON ordrs TO PUBLIC",
        "REVOKE SELECT ON ordrs FROM PUBLIC", "ALTER TABLE ordrs OWNER TO o",
    ],
)  # fmt: skip
def test_a_table_that_is_nearly_named(connection: Connection, statement: str) -> None:
    connection.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    connection.execute("CREATE ROLE o")
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute(statement)
    assert (caught.value.sqlstate, caught.value.hint) == ("42P01", 'Did you mean "orders"?')


def test_a_system_table_that_is_nearly_named(connection: Connection) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute("SELECT * FROM syslimit")
    assert caught.value.hint == 'Did you mean "syslimits"?'


@pytest.mark.parametrize("call", ["ingest", "partitions"])
def test_a_call_nearly_names_a_table(connection: Connection, call: str) -> None:
    connection.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    with pytest.raises(herdpy.ProgrammingError) as caught:
        getattr(connection, call)("ordrs", [{"id": 1}] if call == "ingest" else 2)
    assert (caught.value.sqlstate, caught.value.hint) == ("42P01", 'Did you mean "orders"?')


def test_two_keys_of_one_column(connection: Connection) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute("CREATE TABLE x (a INT PRIMARY KEY PRIMARY KEY)")
    assert caught.value.sqlstate == "42P16"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("now() AT TIME ZONE 'CET'", "AT TIME ZONE takes 'UTC', and no other time zone"),
        ("overlay('abc' PLACING 'x' FROM 1)", "function overlay() does not exist"),
        ("1 & 2", "the operator & is not supported"),
        ("'a' ~ 'b'", "the operator ~ is not supported"),
        ("(1, 2)", "a row as a value is not supported"),
        ("B'01'", "a B'…' string is not supported"),
        ("decode(1, 1, 2)", "function decode(integer, integer, integer) does not exist"),
    ],
)
def test_messages_have_the_words_of_the_user(
    connection: Connection, expression: str, words: str
) -> None:
    with pytest.raises(herdpy.Error) as caught:
        connection.execute(f"SELECT {expression}")
    assert caught.value.message == words
    assert caught.value.position is None or caught.value.position >= 8


def _pieces(text: str) -> list[str]:
    return [text[token.start : token.end] for token in scan(text).tokens]


def test_mutated_statements_fail_as_errors_of_ours(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Tokens are left out, doubled, swapped, put in: herdpy.Error may come of it, no other."""
    random = Random(20_251)
    known = [_pieces(text) for text in KNOWN]
    other = herdpy.connect(":memory:", autocommit=True)
    for table in ("t", "u"):
        other.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, v INTEGER)")
        other.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    accepted, refused = 0, Counter[str]()
    for _ in range(3_000):
        pieces = list(random.choice(known))
        place, way = random.randrange(len(pieces)), random.randrange(4)
        if way == 0:
            del pieces[place]
        elif way == 1:
            pieces.insert(place, pieces[place])
        elif way == 2:
            where = random.randrange(len(pieces))
            pieces[place], pieces[where] = pieces[where], pieces[place]
        else:
            pieces.insert(place, random.choice(random.choice(known)))
        try:
            other.execute(" ".join(pieces))
            accepted += 1
        except herdpy.Error as error:
            refused[error.sqlstate] += 1
    other.close()
    assert accepted > 50
    assert "XX000" not in refused
    assert refused["42601"] > 500
    assert not caplog.records


def test_numbers_without_a_class_of_python(connection: Connection) -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(herdpy.ProgrammingError) as caught:
        connection.execute("SELECT ?", [numpy.longdouble("1.1")])
    assert caught.value.sqlstate == "42804"


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("SELECT 1 IS NULL IS NULL, 1 IS NULL IS DISTINCT FROM NULL", (False, True)),
        ("SELECT ((SELECT 1) UNION (SELECT 1)), ((SELECT 1) + 1)", (1, 2)),
        ("SELECT - - 1, +-1, NOT NOT true", (1, -1, True)),
        ('SELECT 1 AS when, 2 AS "when", 3 AS date, 4 value', (1, 2, 3, 4)),
        ("SELECT .5, 1., 1.e1, 'a'\n'b', int '3'", (Decimal("0.5"), 1, 10, "ab", 3)),
        ("SELECT 1 BETWEEN SYMMETRIC 2 AND 0 AND true, 1 ISNULL OR 1 NOTNULL", (True, True)),
        ("SELECT count(*) FROM ((VALUES (1), (2))) q", (2,)),
        ("SELECT 1 IN ((SELECT 1)), 'a' NOT LIKE 'b' || 'c' ESCAPE '#'", (True, True)),
    ],
)
def test_what_postgresql_reads(connection: Connection, text: str, row: tuple[object, ...]) -> None:
    assert connection.execute(text).fetchall() == [row]
