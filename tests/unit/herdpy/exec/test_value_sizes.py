"""What functions make has at most 64 MiB, refused before it is made; what is smaller is right."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.limits import like_steps_max, regex_bytes_max, value_bytes_max

MIB = 1024 * 1024
BIG = "(SELECT repeat(s, 12 * 1048576) AS big, s, y, id FROM t WHERE id = 1) AS d"  # 48 MiB


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    connection = herdpy.connect(":memory:", autocommit=True, memory_bytes_max=2048 * MIB)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT, y BYTEA)")
    connection.execute("INSERT INTO t VALUES (1, 'abcd', '\\x0102'), (2, NULL, NULL)")
    yield connection
    connection.close()


def outcome(connection: Connection, text: str) -> object:
    try:
        return connection.execute(text).fetchall()
    except herdpy.Error as error:
        return error.sqlstate


TOO_LONG = [
    f"repeat(s, {value_bytes_max // 4 + 1})", "big || big", "concat(big, NULL, big)",
    "concat_ws(big, s, s, s)", "replace(big, 'a', 'bbb')", "replace(s || s, 'a', big)",
    "translate(big, 'ab', 'éé')", "(repeat('\\x01', 2) || big)::text || big",
    "repeat(big, 2)",
]  # fmt: skip
FITS = [
    ("repeat(s, 16 * 1048576)", 64 * MIB), ("big || s", 48 * MIB + 4),
    ("concat(big, NULL, s)", 48 * MIB + 4), ("concat_ws(big, s, s)", 48 * MIB + 8),
    ("replace(big, 'a', 'z')", 48 * MIB), ("replace(s, 'a', big)", 48 * MIB + 3),
    ("replace(s, '', big)", 4),
    ("reverse(big)", 48 * MIB),
]  # fmt: skip


@pytest.mark.parametrize("expression", TOO_LONG)
def test_what_is_too_long_is_refused(connection: Connection, expression: str) -> None:
    assert outcome(connection, f"SELECT length({expression}) FROM {BIG}") == "54000"


@pytest.mark.parametrize(("expression", "length"), FITS)
def test_what_fits_is_made(connection: Connection, expression: str, length: int) -> None:
    assert outcome(connection, f"SELECT octet_length({expression}) FROM {BIG}") == [(length,)]


@pytest.mark.parametrize("word", ["", "DISTINCT "])
def test_an_aggregate_of_texts_is_refused(connection: Connection, word: str) -> None:
    rows = "(VALUES ('a'), ('b'), ('c')) AS v (x)"
    for times, found in ((20, [(60 * MIB + 2,)]), (24, "54000")):
        text = f"SELECT length(string_agg({word}repeat(x, {times * MIB}), ',')) FROM {rows}"
        assert outcome(connection, text) == found


def test_a_regular_expression_reads_no_long_text(connection: Connection) -> None:
    for count, found in ((regex_bytes_max // 8, "22P02"), (regex_bytes_max, "54000")):
        assert outcome(connection, f"SELECT repeat(s, {count})::integer FROM t") == found
    assert outcome(connection, f"SELECT left(big, 3)::integer FROM {BIG}") == "22P02"
    assert outcome(connection, f"SELECT length(reverse('é' || big)) FROM {BIG}") == "54000"
    assert outcome(connection, "SELECT reverse('né' || s) FROM t ORDER BY id") == [
        ("dcbaén",),
        (None,),
    ]
    text = f"SELECT length(decode(repeat('0a', {regex_bytes_max}), 'hex')) FROM t"
    assert outcome(connection, text) == "54000"


def test_a_pattern_is_compared_so_often_at_most(connection: Connection) -> None:
    size = like_steps_max // (2 * MIB)
    for count, found in ((size, [(False,)]), (5 * size, "54000")):
        text = f"SELECT left(big, {MIB}) LIKE '%' || repeat('a', {count}) || 'b' FROM {BIG}"
        assert outcome(connection, text) == found
    assert outcome(connection, "SELECT s LIKE '%bc%', s ILIKE 'A_C%' FROM t ORDER BY id") == [
        (True, True),
        (None, None),
    ]


def test_such_values_are_grouped_and_ordered(connection: Connection) -> None:
    derived = "(SELECT s FROM t) AS d"
    for key in ("d.s || d.s", "upper(d.s)", "replace(d.s, 'a', 'b')"):
        text = f"SELECT {key}, count(*) FROM {derived} GROUP BY {key} ORDER BY {key}"
        found = connection.execute(text).fetchall()
        assert [row[1] for row in found] == [1, 1], key
    text = "SELECT string_agg(s, ',' ORDER BY id) FROM t GROUP BY id ORDER BY string_agg(s, ',')"
    assert outcome(connection, text) == [("abcd",), (None,)]
    text = "SELECT row_number() OVER (ORDER BY string_agg(s, ',')) FROM t GROUP BY id"
    assert outcome(connection, text) == [(1,), (2,)]
