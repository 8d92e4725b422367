"""Names, constants, escapes and messages as PostgreSQL 15 has them."""

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import herdpy
from herdpy import Connection


@pytest.fixture
def connection() -> Iterator[Connection]:
    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT DEFAULT 'none', w TEXT)")
        yield connection


def outcome(connection: Connection, text: str) -> object:
    """Return the rows, or the SQLSTATE: the error as it is shown would fail the test otherwise."""
    try:
        return connection.execute(text).fetchall()
    except herdpy.Error as error:
        return error.sqlstate
    except Exception as error:
        return repr(error)


def error_of(connection: Connection, text: str) -> tuple[str, str]:
    """Return the message and the hint of a refused statement."""
    try:
        connection.execute(text)
    except herdpy.Error as error:
        return error.message, error.hint or ""
    return "", ""


@pytest.mark.finding("Q4")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-('-9223372036854775808'::bigint)", "22003"),
        ("-((-2147483648)::integer)", "22003"),
        ("-(CASE WHEN true THEN -2147483648 END)", "22003"),
        ("pg_typeof(- -2147483648)", [("bigint",)]),
        ("pg_typeof(-(-9223372036854775808))", [("numeric",)]),
        ("pg_typeof(-(2147483648))", [("integer",)]),
    ],
)
def test_signs_are_range_checked(connection: Connection, text: str, expected: object) -> None:
    assert outcome(connection, f"SELECT {text}") == expected


@pytest.mark.finding("Q5")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"E'\u061'", "22025"),
        (r"E'\U0000006'", "22025"),
        (r"E'\udb99'", "42601"),
        (r"E'\ude00'", "42601"),
        (r"E'\udb99\u0061'", "42601"),
        (r"E'\U00110000'", "42601"),
        (r"E'\xff'", "22021"),
        (r"E'\xed\xa0\x80'", "22021"),
        (r"E'a\vb'", [("avb",)]),
    ],
)
def test_escapes_are_postgresqls(connection: Connection, text: str, expected: object) -> None:
    assert outcome(connection, f"SELECT {text}") == expected


@pytest.mark.finding("Q6")
@pytest.mark.parametrize("function", ["var_pop", "stddev_pop"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_variance_of_what_is_not_finite_is_nan(
    connection: Connection, function: str, value: str
) -> None:
    ((found,),) = connection.execute(f"SELECT {function}('{value}'::float8)").fetchall()
    assert math.isnan(found)


@pytest.mark.finding("Q6")
@pytest.mark.parametrize("offset", [1e6, -1e9, 1e12, 1e13])
@pytest.mark.parametrize("cast", ["::float8", ""])
def test_a_variance_keeps_its_digits(connection: Connection, offset: float, cast: str) -> None:
    """Youngs-Cramer, PostgreSQL's algorithm, is exact to a few units in the last place here."""
    numbers = [int(offset) + step for step in (3, 4, 6, 7, 11)]
    rows = ", ".join(f"({number}{cast})" for number in numbers)
    found = connection.execute(f"SELECT var_pop(x), var_samp(x) FROM (VALUES {rows}) AS q (x)")
    mean = Fraction(sum(numbers), len(numbers))
    squares = sum((number - mean) ** 2 for number in numbers)
    for value, expected in zip(found.fetchall()[0], (squares / 5, squares / 4), strict=True):
        assert abs(Fraction(value) / expected - 1) < Fraction(1, 10**14)


NAMES = {
    "power(2, 3)": "power", "pow(2, 3)": "pow", "mod(5, 3)": "mod",
    "rpad('a', 3)": "rpad", "ltrim(' a')": "ltrim", "rtrim(' a')": "rtrim",
    "trim(leading from ' a')": "ltrim", "substr('abc', 2)": "substr",
    "char_length('a')": "char_length", "ceiling(1.5)": "ceiling",
    "date_part('year', now())": "date_part", "current_timestamp": "current_timestamp",
    "true": "?column?", "'1'::text::int": "int4", "'1'::character varying": "varchar",
    "(SELECT * FROM (VALUES (1)) AS q (z))": "z", "(VALUES (1))": "column1",
    "CASE WHEN true THEN '1' ELSE 1::text END": "case",
    "(CASE WHEN true THEN 1 END)::text": "text", "position('b' in 'ab')": "position",
    "now() AT TIME ZONE 'UTC'": "timezone", "var_samp(2)": "var_samp",
}  # fmt: skip


@pytest.mark.finding("Q9")
@pytest.mark.parametrize("expression", NAMES)
def test_a_column_has_postgresqls_name(connection: Connection, expression: str) -> None:
    described = connection.execute(f"SELECT {expression}").description
    assert [column[0] for column in described or ()] == [NAMES[expression]]


@pytest.mark.finding("Q9")
def test_a_name_is_found_by_the_query_around(connection: Connection) -> None:
    assert outcome(connection, "SELECT ltrim FROM (SELECT ltrim(' a')) AS q") == [("a",)]


@pytest.mark.finding("Q10")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("power(0, '-inf')", "2201F"),
        ("power('-inf'::float8, 0.5)", "2201F"),
        ("upper('straße')", [("STRAßE",)]),
        ("+true", "42883"),
        ("+'a'::text", "42883"),
        ("+DATE '2020-01-01'", "42883"),
        ("+'x'", "22P02"),
        ("chr(-1)", "22023"),
        ("sum('-0'::float8)::text", [("-0",)]),
    ],
)
def test_functions_and_signs(connection: Connection, text: str, expected: object) -> None:
    assert outcome(connection, f"SELECT {text}") == expected


@pytest.mark.finding("Q14")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a%' LIKE 'aé%' ESCAPE 'é'", True),
        ("'ab' LIKE 'aé%' ESCAPE 'é'", False),
        ("'aé' LIKE 'aéé' ESCAPE 'é'", True),
        (r"'a\' LIKE 'a\' ESCAPE 'é'", True),
        ("'a😀' LIKE 'a_' ESCAPE '😀'", True),
        ("'ab' ILIKE 'aa%' ESCAPE 'A'", False),
    ],
)
def test_any_character_escapes(connection: Connection, text: str, expected: bool) -> None:
    assert outcome(connection, f"SELECT {text}") == [(expected,)]


@pytest.mark.finding("Q15")
@pytest.mark.parametrize("key", ["r", "1"])
def test_a_window_function_is_no_group(connection: Connection, key: str) -> None:
    text = f"SELECT rank() OVER (ORDER BY id) AS r FROM t GROUP BY {key}"
    assert outcome(connection, text) == "42P20"


@pytest.mark.finding("Q16")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (v) SELECT 1e50",
        "SELECT 1e50 UNION SELECT 1e50",
        f"SELECT {'9' * 39} EXCEPT SELECT 1.5::float8",
    ],
)
def test_a_constant_of_too_many_digits(connection: Connection, text: str) -> None:
    assert outcome(connection, text) == "22003"


@pytest.mark.finding("N3")
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (id) VALUES (1)",
    ],
)
def test_no_hint_loses_columns(connection: Connection, text: str) -> None:
    connection.execute("INSERT INTO t VALUES (1, 'kept', 'kept')")
    _, hint = error_of(connection, text)
    assert "UPSERT" not in hint
    assert "ON CONFLICT DO NOTHING" in hint


WORDS = {
    "INSERT OR REPLACE INTO t VALUES (1)": "OR REPLACE",
    "SELECT * FROM t TABLESAMPLE SYSTEM (10)": "TABLESAMPLE",
    "CREATE UNIQUE INDEX CONCURRENTLY i ON t (v)": "INDEX CONCURRENTLY",
    "CREATE MATERIALIZED VIEW w AS SELECT 1": "CREATE MATERIALIZED VIEW",
    "CREATE TEMPORARY TABLE x (a INT)": "CREATE TEMPORARY TABLE",
    "SELECT id FROM t LIMIT 10 PERCENT": "PERCENT",
    "SELECT * FROM t PIVOT (count(*) FOR id IN (1))": "PIVOT",
    "SELECT v @> 'a' FROM t": "@>",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM t": "WITHIN GROUP",
    "SELECT * FROM t SORT BY id": "SORT BY",
    "DELETE FROM t ORDER BY id": "ORDER BY",
    "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE v = 'a'": "ON DUPLICATE KEY UPDATE",
}


@pytest.mark.finding("N9")
@pytest.mark.parametrize("text", WORDS)
def test_a_refusal_has_the_words_of_the_statement(connection: Connection, text: str) -> None:
    message, _ = error_of(connection, text)
    shouted = re.findall(r"[A-Z]{2,}", message)
    assert WORDS[text] in message
    assert [word for word in shouted if word not in text] == []


@pytest.mark.finding("N9")
@pytest.mark.parametrize("placeholder", ["%s", "%(id)s"])
def test_placeholders_of_other_drivers_are_known(connection: Connection, placeholder: str) -> None:
    _, hint = error_of(connection, f"SELECT * FROM t WHERE id = {placeholder}")
    assert "?" in hint
    assert ":name" in hint


@pytest.mark.finding("N9")
def test_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "base.db"
    path.write_bytes(b"")
    message = ""
    try:
        herdpy.connect(str(path))
    except herdpy.Error as error:
        message = error.message
    assert "is a file" in message
