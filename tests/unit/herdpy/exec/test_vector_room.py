"""What DuckDB makes at once of long texts is refused, or made of fewer rows."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import herdpy
from herdpy.exec.vector.vector_room import batch_rows, room_check
from herdpy.limits import value_bytes_max

_ROWS = 2_048


@pytest.fixture(scope="module")
def connection() -> Iterator[herdpy.Connection]:
    with herdpy.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT, n INTEGER)")
        rows = [(n, f"ab{n}", 100_000) for n in range(_ROWS)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        yield connection


@pytest.mark.parametrize(
    "text",
    [
        "repeat('abc', n)",
        "repeat(s, n)",
        "lpad(s, 10 * n, 'x')",
        "rpad('x', 10 * n, s)",
        "CASE WHEN id >= 0 THEN repeat(s, n) END",
        "replace(repeat(s, n), 'b', 'ccccccccccccccccccccc')",
        "repeat(s, n) || repeat(s, n) || repeat(s, n)",
        "concat(repeat(s, n), repeat(s, n), repeat(s, n))",
    ],
)
def test_long_texts_of_a_whole_vector_are_refused(connection: herdpy.Connection, text: str) -> None:
    with pytest.raises(herdpy.OperationalError, match="of texts at once") as refused:
        connection.execute(f"SELECT max(length({text})) FROM t")
    assert refused.value.sqlstate == "53200"
    few = f"SELECT max(length({text})) FROM (SELECT * FROM t WHERE id < 16) AS t"
    ((length,),) = connection.execute(few).fetchall()
    assert length > 10_000


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("repeat(s, 100000)", 600_000),
        ("lpad(s, 200000, 'x')", 200_000),
        ("replace(repeat(s, 5000), 'b', 'ccccccccccccccccccccc')", 130_000),
        ("repeat(s, 5000) || repeat(s, 5000) || repeat(s, 5000)", 90_000),
        ("concat(repeat(s, 5000), repeat(s, 5000), repeat(s, 5000))", 90_000),
        ("CASE WHEN id >= 0 THEN repeat(s, 100000) END", 600_000),
    ],
)
def test_those_whose_length_is_known_are_made_of_fewer_rows_at_once(
    connection: herdpy.Connection, text: str, longest: int
) -> None:
    found = connection.execute(f"SELECT max(length({text})) FROM t").fetchall()
    assert found == [(longest,)]
    # What follows an aggregate has 2,048 rows.
    grouped = f"SELECT length({text}) FROM (SELECT id, max(s) AS s FROM t GROUP BY id) AS g"
    with pytest.raises(herdpy.OperationalError, match="of texts at once"):
        connection.execute(grouped).fetchall()


def test_one_that_is_too_long_is_told_as_before(connection: herdpy.Connection) -> None:
    with pytest.raises(herdpy.DataError, match="64 MiB") as refused:
        connection.execute("SELECT max(length(repeat(s, 100000000))) FROM t")
    assert refused.value.sqlstate == "54000"


def test_values_of_a_vector_are_added_up() -> None:
    room = room_check(100_000)
    sizes = pa.chunked_array([pa.array([40_000, None, 50_000, value_bytes_max + 1], pa.int64())])
    assert room(sizes) is sizes
    with pytest.raises(ValueError, match=r"herdpy:53200:120,000 bytes .* at most 100,000"):
        room(pa.array([60_000, 60_000], pa.int64()))


@pytest.mark.parametrize(
    ("sql", "values", "parameter", "rows"),
    [
        ("SELECT c0 FROM t1", pa.array(["a" * 100]), 1, 10_240),
        ("SELECT c0 FROM t1", pa.array([1]), "a", 10_240),
        ("SELECT c0 FROM t1", pa.array(["a", "a" * 9_000]), None, 64),
        ("SELECT c0 FROM t1", pa.array(["a" * 9_000] * 2).dictionary_encode(), None, 64),
        ("SELECT $p0 FROM t1", pa.array([1]), "a" * 5_000, 64),
        ("SELECT h_repeat(c0, 2) FROM t1", pa.array(["a"]), None, 64),
        (f"SELECT '{'a' * 9_000}' FROM t1", pa.array([1]), None, 64),
    ],
)
def test_batches_of_results_are_short_where_texts_may_be_long(
    sql: str, values: pa.Array, parameter: object, rows: int
) -> None:
    assert batch_rows(sql, [pa.table({"c0": values})], [parameter]) == rows
