"""What is printed where texts may be long: what is made of them is counted, and what is not."""

import pytest

from herdpy.sql.duckdb_text import DuckText
from tests.unit.herdpy.sql.test_duckdb_text import printed


def _guarded(text: str, *parameters: object) -> DuckText:
    found = printed(text, *parameters).guarded
    assert found is not None
    return found.text(lambda: None)


def test_the_text_for_short_ones_counts_nothing() -> None:
    found = printed("SELECT upper(name) || 'x' FROM t WHERE lower(name) = ?", "a")
    assert "h_made" not in found.sql
    assert "[1]" not in found.sql
    assert found.sql == (
        "SELECT (h_upper(r1.c1) || 'x') AS c0 FROM (SELECT c1 FROM t1 WHERE __live) AS r1"
        " WHERE (lower(r1.c1) = CAST($p0 AS VARCHAR))"
    )


def test_each_text_is_counted_with_all_in_it_once() -> None:
    found = _guarded("SELECT upper(name) || 'x' FROM t WHERE lower(name) = ?", "a")
    assert found.sql == (
        "SELECT (CASE WHEN h_made(2 * coalesce(strlen(r1.c1[1]), 0) + 1"
        " + CAST(hash(r1.c1[1]) & 0 AS BIGINT)) THEN NULL ELSE (h_upper(r1.c1[1]) || 'x') END)"
        " AS c0 FROM (SELECT c1 FROM t1 WHERE __live[1]) AS r1 WHERE ((CASE WHEN"
        " h_made(coalesce(strlen(r1.c1[1]), 0) + CAST(hash(r1.c1[1]) & 0 AS BIGINT)) THEN NULL"
        " ELSE lower(r1.c1[1]) END) = CAST($p0 AS VARCHAR))"
    )
    assert found.guarded is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id + 1, day FROM t",
        "SELECT count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.n > ?",
        "SELECT upper(?)",  # one row
    ],
)
def test_what_has_no_texts_has_one_text(text: str) -> None:
    found = printed(text, *["x"] * text.count("?"))
    assert found.guarded is None or not found.guarded.growth.reads_texts


@pytest.mark.parametrize(
    "text",
    [
        "SELECT name, id FROM t WHERE name = ?",
        "SELECT name, count(*) FROM t GROUP BY name ORDER BY name",
        "SELECT repeat(name, n) FROM t",  # its own macro counts it
        "SELECT length(name), name LIKE 'a%' FROM t",
    ],
)
def test_what_reads_texts_is_guarded_where_a_table_has_long_ones(text: str) -> None:
    guarded = printed(text, *["x"] * text.count("?")).guarded
    assert guarded is not None
    assert not guarded.growth.is_wide(10**6, 32_768)
    assert guarded.growth.is_wide(32_769, 32_769)


def test_what_is_one_text_for_all_rows_is_computed_before() -> None:
    found = _guarded("SELECT upper(?) || n, upper(?) FROM t", "a", "a")
    assert [item.text.sql for item in found.deferred] == [
        "SELECT h_upper(CAST($p0 AS VARCHAR)) AS c0", "SELECT h_upper(CAST($p1 AS VARCHAR)) AS c0"
    ]  # fmt: skip
    assert all(item.text.guarded is None for item in found.deferred)
    assert found.slots == ()
    assert "hash(r1.c3)" in found.sql  # what is counted is another value in each row


def test_a_subquery_of_a_text_runs_once() -> None:
    found = _guarded("SELECT upper((SELECT max(name) FROM t)) || n FROM t")
    assert len(found.deferred) == 1
    assert found.sql.count("SELECT max") == 0


_KEY = (
    "(CASE WHEN h_made(coalesce(strlen(r1.c1[1]), 0) + CAST(hash(r1.c1[1]) & 0 AS BIGINT))"
    " THEN NULL ELSE h_upper(r1.c1[1]) END)"
)


def test_a_key_has_one_text() -> None:
    found = _guarded("SELECT length(upper(name) || 'x'), upper(name) FROM t GROUP BY upper(name)")
    assert found.sql.endswith(" GROUP BY 2")
    found = _guarded("SELECT length(upper(name) || 'x') FROM t GROUP BY upper(name)")
    assert found.sql.endswith(f" GROUP BY {_KEY}")
    # Its length, itself, and how it differs by row.
    assert found.sql.count(_KEY) == 4


def test_many_lengths_are_added_in_parts() -> None:
    names = " || ".join(f"'{number}' || r{number}.name" for number in range(40))
    tables = " CROSS JOIN ".join(f"t r{number}" for number in range(40))
    found = _guarded(f"SELECT {names} FROM {tables}").sql
    counted = found[: found.index(" THEN NULL ")]
    assert counted.count("strlen(") == 40
    assert counted.startswith("SELECT (CASE WHEN h_made((")


def test_both_texts_read_the_same_tables() -> None:
    text = (
        "SELECT a.name || b.code, (SELECT max(code) FROM t WHERE id = a.id)"
        " FROM t a JOIN t b ON a.id = b.n"
    )
    found = printed(text)
    assert found.guarded is not None
    assert _guarded(text).tables == found.tables
