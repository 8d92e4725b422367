"""Tables of long texts as DuckDB gets them; with and without guards a query gives the same rows."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import herdpy
from herdpy.exec.vector import wide_texts
from herdpy.exec.vector.wide_texts import in_short_batches, longest_of, longest_text
from herdpy.limits import value_bytes_max
from herdpy.sql.text_growth import Growth, GrowthOfQuery


@pytest.mark.parametrize(
    ("column", "longest"),
    [
        (pa.array(["a", None, "éé"]), 4),
        (pa.array([b"abc", b""]), 3),
        (pa.array(["a" * 9, "b"]).dictionary_encode(), 9),
        (pa.array([None, None], pa.string()), 0),
        (pa.array([], pa.string()), 0),
        (pa.array([1, 2]), 0),
    ],
)
def test_the_longest_text_of_tables(column: pa.Array, longest: int) -> None:
    assert longest_text([pa.table({"c0": [1]}), pa.table({"c0": column})]) == longest


def test_the_longest_of_parameters() -> None:
    assert longest_of(["abc", b"abcd", 7, None]) == 4
    assert longest_of(["éa"]) == 8
    assert longest_of([["a", "abc"], "a"]) == 3
    assert longest_of([]) == 0


def test_batches_are_short_and_texts_are_lists() -> None:
    words = pa.array(["a", None, "b"] * 1_000)
    table = pa.table({"c0": words, "c1": words.dictionary_encode(), "c2": list(range(3_000)),
                      "__live": [True] * 3_000})  # fmt: skip
    found = in_short_batches(table, value_bytes_max // 400)
    assert {batch.num_rows for batch in found.to_batches()} == {100}
    assert found.column("c0").to_pylist() == [[word] for word in words.to_pylist()]
    assert found.column("c1").to_pylist() == [[word] for word in words.to_pylist()]
    assert found.column("c2").to_pylist() == list(range(3_000))
    assert found.column("__live").to_pylist() == [[True]] * 3_000
    assert in_short_batches(table, value_bytes_max).column("c0").num_chunks == 3_000
    assert in_short_batches(table, 0).column("c0").num_chunks == 2
    assert in_short_batches(table.slice(0, 0), 1).num_rows == 0


def test_there_are_not_too_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_texts, "_BATCHES_MAX", 10)
    table = pa.table({"c0": ["a"] * 1_001, "__live": [True] * 1_001})
    assert in_short_batches(table, value_bytes_max).column("c0").num_chunks == 10


_TEXTS = (
    "upper(s)", "lower(v || ?)", "s || '-' || v", "concat(s, id, v)", "concat_ws(',', s, v, ?)",
    "replace(s, 'a', ?)", "replace(s, v, 'xyz')", "translate(s, 'ab', 'ba')", "left(s, id)",
    "right(s, 2)", "substring(s, id, 2)", "trim(s)", "reverse(s)", "split_part(s, 'b', 2)",
    "lpad(v, 5, s)", "rpad(s, id, ?)", "repeat(s, id)", "coalesce(nullif(s, ?), v, 'none')",
    "greatest(s, v)", "least(upper(s), ?)", "CASE WHEN id % 2 = 0 THEN upper(s) ELSE v END",
    "CASE s WHEN ? THEN 'it' ELSE s || s END", "encode(b, 'hex')", "cast(b AS text)",
    "encode(cast(s AS bytea), 'hex')", "encode(decode(encode(b, 'hex'), 'hex'), 'hex')",
    "upper(?) || id", "trim(upper(?))", "cast(id AS text) || random() * 0",
    "(SELECT max(s) FROM t) || id", "upper((SELECT max(o.s) FROM t o WHERE o.id = t.id))",
    "md5(s) || chr(64 + id)", "cast(upper(s) AS varchar(2))",
)  # fmt: skip
_QUERIES = (
    "SELECT id, {0} FROM t ORDER BY id",
    "SELECT {0} AS w, count(*) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT DISTINCT {0} FROM t ORDER BY 1",
    "SELECT id FROM t WHERE {0} > 'a' AND id > 1 ORDER BY id",
    "SELECT max(length(w)), min(w) FROM (SELECT {0} AS w FROM t) s",
    "SELECT string_agg(coalesce({0}, '-'), ',' ORDER BY id) || 'x' FROM t",
    "SELECT t.id, u.id FROM t JOIN (SELECT id, {0} AS w FROM t) u ON u.w = t.s ORDER BY 1, 2",
    "SELECT id, row_number() OVER (PARTITION BY {0} ORDER BY id) FROM t ORDER BY id",
    "WITH c AS (SELECT id, {0} AS w FROM t) SELECT a.w || b.w FROM c a, c b ORDER BY a.id, b.id",
    "SELECT {0} FROM t UNION SELECT s FROM t ORDER BY 1",
)


@pytest.fixture(scope="module")
def connection() -> Iterator[herdpy.Connection]:
    with herdpy.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT, v VARCHAR(9), b BYTEA)")
        rows = [
            (1, "abc", "b", b"\x00a"), (2, "ABC", None, None), (3, None, "x", b""),
            (4, "éßa b", "abc", b"\\"), (5, "", "", b"xyz"), (6, " ab ", "b", b"ab"),
        ]  # fmt: skip
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        yield connection


def _found(connection: herdpy.Connection, text: str) -> object:
    try:
        return connection.execute(text, ("b",) * text.count("?")).fetchall()
    except herdpy.Error as error:
        return error.sqlstate


@pytest.mark.parametrize("query", _QUERIES)
def test_guards_change_no_result(
    connection: herdpy.Connection, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    plain = [_found(connection, query.format(text)) for text in _TEXTS]
    assert sum(isinstance(rows, list) for rows in plain) > len(_TEXTS) * 0.8
    growth = GrowthOfQuery.growth
    monkeypatch.setattr(
        GrowthOfQuery, "growth", lambda self, **options: growth(self, **options) or Growth()
    )
    monkeypatch.setattr(Growth, "is_wide", lambda *_: True)
    guarded = [_found(connection, query.format(text) + " ") for text in _TEXTS]  # planned anew
    for text, expected, found in zip(_TEXTS, plain, guarded, strict=True):
        assert found == expected, text


def test_short_texts_are_not_counted(
    connection: herdpy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def is_wide(self: Growth, longest: int, of_tables: int) -> bool:
        asked.append(longest)
        return was(self, longest, of_tables)

    was = Growth.is_wide
    monkeypatch.setattr(Growth, "is_wide", is_wide)
    monkeypatch.setattr("herdpy.exec.vector.duck.in_short_batches", None)
    connection.execute("SELECT max(upper(s)) FROM t").fetchall()
    connection.execute("SELECT max(s || ?) FROM t", ("x" * 9_000,)).fetchall()
    assert asked == [7, 9_000]
    with pytest.raises(TypeError):
        connection.execute("SELECT max(s || ?) FROM t", ("x" * 33_000,))
