"""What changes of rows compute of rows at hand: by row path or by DuckDB, it is the same."""

from collections.abc import Iterator
from typing import Any

import pytest

import herdpy

ROWS = """(1, 5, 9000000000, 0.5, 1.25, 12345678901234567890.123, 'a', true, '2024-02-29',
           '2024-02-29 12:30:00.5', '2024-02-29 12:30:00+00', '\\x00ff'),
          (2, -7, -9000000000, 'NaN', -1.25, -0.001, 'ä€', false, '0001-01-01',
           '0001-01-01 00:00:00', '9999-12-31 23:59:59+00', ''),
          (3, 0, 0, '-0', 0, 0, '', NULL, '9999-12-31', '1969-12-31 23:59:59.999999', NULL, NULL),
          (4, 2147483647, 1, 'Infinity', NULL, NULL, NULL, true, NULL, NULL, NULL, '\\x01'),
          (5, NULL, NULL, NULL, 99999.99, 1, 'null', NULL, NULL, NULL, NULL, NULL)"""
COLUMNS = (
    "id INTEGER PRIMARY KEY, i INTEGER, b BIGINT, x DOUBLE PRECISION, n NUMERIC(7, 2),"
    " wide NUMERIC(30, 3), s VARCHAR(9), f BOOLEAN, d DATE, at TIMESTAMP, z TIMESTAMPTZ, raw BYTEA"
)
NAMES = ("id", "i", "b", "x", "n", "wide", "s", "f", "d", "at", "z", "raw")
OUTPUTS = (
    *NAMES, "id * 2 + 1", "-b", "x * x - 0.5::float8", "i IS NULL", "x = 'NaN'", "x < 1e3::float8",
    "NOT f", "f AND i > 0", "f OR i > 0", "s = 'a'", "s < 'b'", "n > 1.0", "wide >= 1", "at = at",
    "b IN (1, 9000000000, NULL)", "x NOT IN (0, 'NaN')", "i BETWEEN -7 AND 5", "CAST(i AS BIGINT)",
    "CAST(i AS DOUBLE PRECISION)", "(id, i) = (3, 0)", "NULL::text", "now() > at",
)  # fmt: skip
SETS = (
    "i = excluded.id - t.id + 3", "b = t.b - excluded.b", "x = excluded.x * t.x", "n = excluded.id",
    "wide = excluded.wide", "s = excluded.s", "f = t.f AND excluded.f", "d = excluded.d",
    "at = t.at", "z = excluded.z", "raw = excluded.raw",
)  # fmt: skip
WHERES = ("t.id <> 3", "t.x = excluded.x OR excluded.b IS NULL", "t.f")


@pytest.fixture
def conn() -> Iterator[herdpy.Connection]:
    with herdpy.connect(autocommit=True) as made:
        for name in ("t", "new"):
            made.execute(f"CREATE TABLE {name} ({COLUMNS})")
            made.execute(f"INSERT INTO {name} VALUES {ROWS}")
        made.execute("DELETE FROM t WHERE id = 5")
        yield made


def given(conn: herdpy.Connection, text: str, *, by_vector: bool) -> list[tuple[Any, ...]]:
    """Return the rows of a change that is taken back, each sure to be computed by one path."""
    plan = "\n".join(line for (line,) in conn.execute(f"EXPLAIN {text}").fetchall())
    lines = [line for line in plan.split("\n") if "Returning" in line or "On conflict" in line]
    assert ("by the vector path" in lines[0]) is by_vector
    conn.execute("BEGIN")
    found = conn.execute(text).fetchall()
    conn.execute("ROLLBACK")
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t SELECT id + 10, i, b, x, n, wide, s, f, d, at, z, raw FROM new",
        "UPDATE t SET s = s",
        "DELETE FROM t",
    ],
)
def test_returning(conn: herdpy.Connection, text: str, is_checkpointed: bool) -> None:
    if is_checkpointed:
        conn.checkpoint()
    outputs = ", ".join(OUTPUTS)
    by_row = given(conn, f"{text} RETURNING {outputs}", by_vector=False)
    by_vector = given(conn, f"{text} RETURNING {outputs}, length('x')", by_vector=True)
    assert len(by_row) >= 4
    assert repr([(*row, 1) for row in by_row]) == repr(by_vector)


@pytest.mark.parametrize("where", WHERES)
def test_do_update(conn: herdpy.Connection, where: str) -> None:
    head = f"INSERT INTO t SELECT * FROM new ON CONFLICT (id) DO UPDATE SET {', '.join(SETS)}"
    tail = f"RETURNING {', '.join(NAMES)}"
    by_row = given(conn, f"{head} WHERE {where} {tail}", by_vector=False)
    by_vector = given(conn, f"{head} WHERE ({where}) AND length('x') = 1 {tail}", by_vector=True)
    assert 3 <= len(by_row) <= 5
    assert repr(by_row) == repr(by_vector)
