"""The closed list of what differs from PostgreSQL: docs/reference/sql.md, each line with a test."""

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.sql.functions import FUNCTIONS, SPECIAL
from tests.style.test_layers import ROOT


def _nested(depth: int) -> str:
    """Return simple CASEs, each in a branch of another."""
    text = "3"
    for _ in range(depth):
        text = f"CASE a + 1 WHEN 1 THEN {text} WHEN 2 THEN 2 END"
    return text


PAGE = ROOT / "docs" / "reference" / "sql.md"

# Sentence of the page: statements, each with its rows or its SQLSTATE.
DEVIATIONS: dict[str, list[tuple[str, Any]]] = {
    "A right on the tablespace holds for all of its tables; there are no schemas and no rights on"
    " columns. REVOKE by an owner or a superuser takes a right away, of every grantor, and REVOKE"
    " of a role takes no CASCADE. There is no SET ROLE and no current_user.": [
        ("CREATE TABLE t (a INT)", None), ("CREATE USER ann", None),
        ("GRANT SELECT ON TABLESPACE default TO ann", None),
        ("SELECT object_name FROM sysgrants", [("default",)]),
        ("GRANT USAGE ON SCHEMA s TO ann", "0A000"), ("GRANT SELECT (a) ON t TO ann", "0A000"),
        ("CREATE ROLE staff", None), ("REVOKE staff FROM ann CASCADE", "0A000"),
        ("SET ROLE staff", "0A000"), ("SELECT current_user", "0A000"),
    ],
    "A failed statement is undone alone; its transaction goes on. After 40001, 40P01 and 25P03 it"
    " was rolled back: everything but ROLLBACK and COMMIT is refused with 25P02, and COMMIT fails,"
    " too.": [
        ("BEGIN", None), ("SELECT 1 / 0", "22012"), ("SELECT 2", [(2,)]), ("COMMIT", None),
    ],
    # With cursors that are read on: tests/findings/test_transactions.py.
    "A result is read on behind COMMIT, and behind ROLLBACK (or an error that rolls back), as it"
    " was when its statement ran; PostgreSQL closes its cursors at both. Only a result that shows"
    " what its transaction wrote itself ends with a rollback: the next fetch fails with 24000. Rows"
    " that the driver has already got from a server stay readable.": [
        ("CREATE TABLE t (a INT)", None), ("BEGIN", None), ("INSERT INTO t VALUES (1)", None),
        ("SELECT a FROM t", [(1,)]), ("ROLLBACK", None), ("SELECT a FROM t", []),
    ],
    "sum of INTEGER and BIGINT is BIGINT, 22003 beyond; PostgreSQL's sum(bigint) is numeric.": [
        ("SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS v (x)", "22003"),
    ],
    "A quotient of DECIMALs and avg have the scale max(16, those of the operands), 22003 beyond 38"
    " digits; PostgreSQL's scale depends on the values.": [
        ("SELECT 1.0 / 3", [(Decimal("0.3333333333333333"),)]),
        ("SELECT avg(x) FROM (VALUES (1), (2)) AS v (x)", [(Decimal("1.5000000000000000"),)]),
    ],
    "DECIMAL has at most 38 digits; numeric without digits is refused where it would need a guess,"
    " and there is no numeric NaN.": [
        ("CREATE TABLE x (a NUMERIC)", "0A000"),
        ("SELECT CAST(random() AS numeric)", "0A000"),
        ("SELECT 'NaN'::numeric(5,2)", "22P02"),
    ],
    "sqrt, exp, ln, log, power, stddev and variance compute in DOUBLE, of DECIMALs too; there is no"
    " log(b, x).": [
        ("SELECT sqrt(2.0)", [(math.sqrt(2),)]),
        ("SELECT stddev(x) FROM (VALUES (1), (3)) AS v (x)", [(math.sqrt(2),)]),
        ("SELECT log(2.0, 8.0)", "42883"),
    ],
    "DOUBLE arithmetic that overflows gives Infinity instead of 22003, and NaN / 0 is 22012.": [
        ("SELECT 1e308::float8 * 10", [(math.inf,)]),
        ("SELECT 'NaN'::float8 / 0", "22012"),
    ],
    "date_part is DECIMAL, as extract is.": [
        ("SELECT date_part('year', DATE '2020-01-02')", [(Decimal(2020),)]),
    ],
    "Dates and timestamps are of the years 1 to 9999, written as 2024-01-31 and"
    " 2024-01-31 23:59:58.123456; other forms are 22007.": [
        ("SELECT '20240131'::date", "22007"),
        ("SELECT 'infinity'::timestamp", "22007"),
        ("SELECT DATE '9999-12-31' + 1", "22008"),
    ],
    "The time zone of every session is UTC: SET TIME ZONE and AT TIME ZONE take no other (0A000), "
    "and a zone in a text is an offset, UTC, GMT or Z (22007).": [
        ("SET TIME ZONE 'Europe/Rome'", "0A000"),
        ("SET timezone = '+02'", "0A000"),
        ("SET TIME ZONE 'UTC'", None),
        ("SELECT now() AT TIME ZONE 'Europe/Rome'", "0A000"),
        ("SELECT '2024-01-31 12:00 Europe/Rome'::timestamptz", "22007"),
        ("SELECT '2024-01-31 12:00 CET'::timestamptz", "22007"),
    ],
    "An interval is no type of a column (0A000); a result counts its months as 30 days, as a "
    "timedelta of Python, and ends at 292,000 years (22008).": [
        ("CREATE TABLE x (a INTERVAL)", "0A000"),
        ("SELECT INTERVAL '1 month 1 day'", [(datetime.timedelta(days=31),)]),
        ("SELECT (INTERVAL '1 month 1 day')::text", [("1 mon 1 day",)]),
        ("SELECT INTERVAL '300000 years'", "22008"),
        ("SELECT (INTERVAL '300000 years')::text", [("300000 years",)]),
    ],
    "A DECIMAL has the scale of its type: the values of a column of VALUES, of CASE, coalesce,"
    " greatest, least and UNION all have the largest scale of them, also as text; in PostgreSQL"
    " each keeps its own.": [
        ("SELECT a::text FROM (VALUES (1.5), (2.25)) AS v (a)", [("1.50",), ("2.25",)]),
        ("SELECT coalesce(1.5, 2.25)::text", [("1.50",)]),
        ("SELECT (CASE WHEN true THEN 1.5 ELSE 2.25 END)::text", [("1.50",)]),
        ("SELECT a::text FROM (SELECT 1.5 AS a UNION SELECT 2.25) AS q ORDER BY a",
         [("1.50",), ("2.25",)]),
    ],
    "Text compares by code point, as with the collation C; upper and lower know all of Unicode, a"
    " character at a time as the C library does: upper('ß') is 'ß'.": [
        ("SELECT 'a' > 'Z', upper('é')", [(True, "É")]),
        ("SELECT upper('ß'), lower('ẞ'), upper('ŉ')", [("ß", "ß", "ŉ")]),
    ],
    "A LIKE pattern that ends in its escape character is 22025 even where no row reaches the end;"
    " ESCAPE takes a constant.": [
        ("SELECT 'x' LIKE 'a\\'", "22025"),
        ("SELECT 'x' LIKE 'a' ESCAPE lower('A')", "0A000"),
    ],
    "Refused with 0A000: an aggregate over columns of an outer query alone, DISTINCT in a window,"
    " RANGE offsets but for whole numbers, a separator of string_agg that is no constant.": [
        ("SELECT (SELECT max(v.a)) FROM (VALUES (1)) AS v (a)", "0A000"),
        ("SELECT a FROM (VALUES (1)) AS v (a) GROUP BY a"
         " HAVING EXISTS (SELECT b FROM (VALUES (1)) AS w (b) WHERE b = max(v.a))", "0A000"),
        ("SELECT count(DISTINCT a) OVER () FROM (VALUES (1)) AS v (a)", "0A000"),
        ("SELECT sum(a) OVER (ORDER BY a RANGE 1.5 PRECEDING) FROM (VALUES (1.5)) AS v (a)",
         "0A000"),
        ("SELECT string_agg(a, a) FROM (VALUES ('x')) AS v (a)", "0A000"),
    ],
    "round(x, n) and trunc(x, n) need a constant n.": [
        ("SELECT round(1.25, a) FROM (VALUES (1)) AS v (a)", "0A000"),
    ],
    "A numeric constant of more than 38 digits is exact where it is converted at once, 22003 "
    "elsewhere; DECIMALs that are compared or added are brought to the larger scale, 22003 "
    "beyond 38 digits.": [
        ("SELECT 1e50::float8", [(1e50,)]),
        ("SELECT 1e50", "22003"),
        ("SELECT 1 WHERE 1.5 > 1e37", "22003"),
    ],
    "Text too long for varchar(n) is 22001, even if only by blanks at its end.": [
        ("CREATE TABLE x (a VARCHAR(2))", None),
        ("INSERT INTO x VALUES ('ab ')", "22001"),
    ],
    "There are no $$…$$ and no U&'…' strings.": [
        ("SELECT $$a$$", "0A000"),
        ("SELECT U&'a'", "0A000"),
    ],
    "A row is no value: (a, b) IN (query) and (a, b) = (query) are 0A000, and a table's name "
    "is no value (42703).": [
        ("SELECT 1 WHERE (1, 2) IN (SELECT 1, 2)", "0A000"),
        ("SELECT 1 WHERE (1, 2) = (SELECT 1, 2)", "0A000"),
        ("SELECT v FROM (VALUES (1)) AS v (a)", "42703"),
    ],
    "A text that is computed reads as an interval with its units from years to microseconds in this"
    " order, from months to days without fractions; constants and parameters as everywhere, but "
    "for 1-2 (years and months) and decades and longer (22007).": [
        ("SELECT (a || ' days')::interval FROM (VALUES (2)) AS v (a)",
         [(datetime.timedelta(days=2),)]),
        ("SELECT a::interval FROM (VALUES ('1 day 1 month')) AS v (a)", "22007"),
        ("SELECT '1 day 1.5 months'::interval::text", [("1 mon 16 days",)]),
        ("SELECT 'P1DT2H'::interval::text", [("1 day 02:00:00",)]),
        ("SELECT INTERVAL '1-2'", "22007"),
    ],
    "The seconds of make_timestamp are below 60 (22008).": [
        ("SELECT make_timestamp(2020, 1, 1, 0, 0, 60)", "22008"),
    ],
    "string_agg(DISTINCT …) without ORDER BY joins in no certain order.": [
        ("SELECT length(string_agg(DISTINCT a, ',')) FROM (VALUES ('b'), ('a'), ('b')) AS v (a)",
         [(3,)]),
    ],
    "SET in a transaction stays after its ROLLBACK.": [
        ("BEGIN", None),
        ("SET statement_timeout = '5s'", None),
        ("ROLLBACK", None),
        ("SHOW statement_timeout", [("5s",)]),
    ],
    # Beside another transaction: tests/findings/test_transactions.py.
    "ON CONFLICT DO NOTHING waits for a transaction that is just writing a row with the key, as in"
    " PostgreSQL; the row that it has waited for stays locked until its own transaction ends, also"
    " when it is left as it is.": [
        ("CREATE TABLE t (a INT PRIMARY KEY)", None), ("INSERT INTO t VALUES (1)", None),
        ("INSERT INTO t VALUES (1), (2) ON CONFLICT DO NOTHING", None),
        ("SELECT a FROM t ORDER BY a", [(1,), (2,)]),
    ],
    "TRUNCATE takes the right DELETE, and ON CONFLICT DO NOTHING no right on the columns it "
    "names.": [
        ("CREATE TABLE x (a INTEGER)", None),
        ("TRUNCATE x", None),
        ("DROP TABLE x", None),
    ],
    "Refused with 0A000, too: ON CONFLICT DO UPDATE, DROP TABLE of several tables or with CASCADE, "
    "SET LOCAL, and transactions that are READ ONLY.": [
        ("CREATE TABLE x (a INTEGER)", None),
        ("INSERT INTO x VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2", "0A000"),
        ("DROP TABLE x, x", "0A000"),
        ("DROP TABLE x CASCADE", "0A000"),
        ("SET LOCAL statement_timeout = '1s'", "0A000"),
        ("BEGIN READ ONLY", "0A000"),
    ],
    "Statements are nested at most 32 deep, and an expression has at most 1,000 operators and "
    "50,000 AND and OR, a query 1,000 UNION and their like; what is beyond is refused before it "
    "is read (54001). A chain of operators other than `||` and the `+ - *` of INTEGER, BIGINT and "
    "DOUBLE (of DECIMALs or dates, say), and a query of UNIONs, may be refused from about 100 on. "
    "Of a chain of more than 30 GROUP BY knows only the whole.": [
        ("SELECT 1" + " + 1" * 1_001, "54001"), ("SELECT true" + " OR true" * 50_001, "54001"),
        ("SELECT 1" + " UNION SELECT 1" * 1_001, "54001"),
        (f"SELECT {'(' * 33}1{')' * 33}", "54001"),
        ("SELECT 0.5" + " - 0.5 + 0.5" * 50, [(Decimal("0.5"),)]),
        ("SELECT 0.5" + " - 0.5 + 0.5" * 500, "54001"),
        (f"SELECT a{' + 1' * 30} FROM (VALUES (1)) AS v (a) GROUP BY a + 1", [(31,)]),
        (f"SELECT a{' + 1' * 31} FROM (VALUES (1)) AS v (a) GROUP BY a + 1", "42803"),
        (f"SELECT a{' + 1' * 31} FROM (VALUES (1)) AS v (a) GROUP BY a{' + 1' * 31}", [(32,)]),
    ],
    "INTERVAL '1 day' DAY, a text that names its units itself beside a unit, is 0A000.": [
        ("SELECT INTERVAL '1 day' DAY", "0A000"),
        ("SELECT INTERVAL '1' DAY = INTERVAL '1 day'", [(True,)]),
    ],
    "A statement has at most 4,000,000 expressions, and of a query on the vector path at most "
    "250,000 reach DuckDB; long lists of constants behind IN, and long VALUES of nothing else, do "
    "not count. A CASE with an operand that is computed, a coalesce of such arguments or a row in "
    "IN lists counts twice for every other "
    "that it stands in as a later part (54001).": [
        (f"SELECT {_nested(4)} FROM (VALUES (1)) AS v (a)", [(2,)]),
        (f"SELECT {_nested(20)} FROM (VALUES (1)) AS v (a)", "54001"),
    ],
    "AND, OR and IN as a value, in a select list say, or in ON and FILTER may compute what stands "
    "behind the operand that decides, and raise its errors; in WHERE, HAVING and the conditions of "
    "CASE they stop there.": [
        ("CREATE TABLE y (a INTEGER)", None), ("INSERT INTO y VALUES (0), (5)", None),
        ("SELECT a <> 0 AND 10 / a > 1 FROM y", "22012"),
        ("SELECT a IN (0, 10 / a) FROM y", "22012"),
        ("SELECT count(*) FILTER (WHERE a <> 0 AND 10 / a > 1) FROM y", "22012"),
        ("SELECT a FROM y WHERE a <> 0 AND 10 / a > 1", [(5,)]),
        ("SELECT a FROM y WHERE a IN (0, 10 / a)", [(0,)]),
        ("SELECT a FROM y GROUP BY a HAVING a <> 0 AND 10 / a > 1", [(5,)]),
        ("SELECT CASE WHEN a <> 0 AND 10 / a > 1 THEN 1 END FROM y", [(None,), (1,)]),
        ("DROP TABLE y", None),
    ],
    "Of a subquery in a later branch of CASE, of coalesce, AND or OR that names columns of the "
    "query around it, errors but 21000 are raised even where its value is not used. More than "
    "four such subqueries in one AND or OR of a select list are all computed.": [
        ("SELECT coalesce(a, (SELECT 1 / (a - b) FROM (VALUES (1)) AS w (b))) "
         "FROM (VALUES (1)) AS v (a)", "22012"),
        ("SELECT coalesce(a, (SELECT b FROM (VALUES (1), (2)) AS w (b) WHERE b >= a)) "
         "FROM (VALUES (1)) AS v (a)", [(1,)]),
    ],
    "A table has at least one column.": [
        ("CREATE TABLE x ()", "54011"),
    ],
}  # fmt: skip


@pytest.fixture
def connection(target: str) -> Iterator[Connection]:
    connection = herdpy.connect(target, autocommit=True)
    yield connection
    connection.close()


@pytest.mark.parametrize("sentence", DEVIATIONS)
def test_deviation(connection: Connection, sentence: str) -> None:
    for text, expected in DEVIATIONS[sentence]:
        if isinstance(expected, str):
            with pytest.raises(herdpy.Error) as caught:
                connection.execute(text).fetchall()
            assert caught.value.sqlstate == expected, text
        else:
            cursor = connection.execute(text)
            if expected is not None:
                assert cursor.fetchall() == expected, text


def test_the_page_lists_exactly_these() -> None:
    section = PAGE.read_text().split("## What differs from PostgreSQL\n")[1].split("\n## ")[0]
    listed = [item.replace("\n  ", " ").strip() for item in section.split("\n- ")[1:]]
    assert listed == [sentence.replace("\n", " ") for sentence in DEVIATIONS]


def test_the_page_lists_every_function() -> None:
    page = PAGE.read_text()
    for name in (*FUNCTIONS, *SPECIAL):
        assert f"`{name}" in page, name
