"""What the vector path refuses is said in SQL's words, not in DuckDB's."""

import pytest

import herdpy


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("SELECT sum(l) FROM t", "22003",
         "value 9223372036854775808 is out of range for type bigint"),
        ("SELECT count(l::int) FROM t", "22003",
         "value 9223372036854775807 is out of range for type integer"),
        ("SELECT count(l * l) FROM t", "22003", "bigint out of range"),
        ("SELECT count(i + 2147483647) FROM t", "22003", "integer out of range"),
        ("SELECT count(x::decimal(10,2)) FROM t", "22003",
         "value nan is out of range for type decimal(10,2)"),
        ("SELECT count(d::decimal(3,2)) FROM t", "22003",
         "value 99.50 is out of range for type decimal(3,2)"),
        ("SELECT (SELECT i FROM t)", "21000",
         "more than one row returned by a subquery used as an expression"),
        ("SELECT count(i / (i - i)) FROM t", "22012", "division by zero"),
    ],
)  # fmt: skip
def test_an_error_of_the_vector_path(target: str, text: str, state: str, words: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t (i INTEGER, l BIGINT, d DECIMAL(10,2), x DOUBLE PRECISION)"
        )
        connection.execute(
            "INSERT INTO t VALUES (1, 9223372036854775807, 99.5, 'NaN'), (2, 1, 1, 1)"
        )
        with pytest.raises(herdpy.Error) as caught:
            connection.execute(text).fetchall()
    assert (caught.value.sqlstate, caught.value.message) == (state, words)


LONG = "7x" * 3_000


@pytest.mark.parametrize(
    "text",
    [f"SELECT '{LONG}'::{kind}" for kind in ("integer", "double precision", "numeric(9,2)", "date",
                                             "timestamptz", "boolean", "interval")]
    + [f"SELECT count(x::{kind}) FROM s" for kind in ("integer", "double precision", "date",
                                                      "numeric(9,2)", "boolean", "timestamp")]
    + [f"SELECT '\\x{LONG}'::bytea",
       f"SELECT '{'7' * 5_000}'::bigint", f"SELECT 1 AS {LONG} '{LONG}'",
       f"SELECT INTERVAL '{LONG}' DAY", "INSERT INTO s SELECT x FROM s"],
)  # fmt: skip
def test_a_long_value_is_not_shown_whole(target: str, text: str) -> None:
    with herdpy.connect(target, autocommit=True) as connection:
        connection.execute("CREATE TABLE s (x TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO s VALUES (?)", (LONG,))
        with pytest.raises(herdpy.Error) as caught:
            connection.execute(text).fetchall()
    assert len(str(caught.value)) < 500
