"""sum() of DOUBLEs is -0 where all of them are, wherever they lie: in pages, in memory, own."""

import random
from collections.abc import Iterator, Sequence

import pytest

import herdpy

GROUPS = 12


@pytest.fixture
def conn() -> Iterator[herdpy.Connection]:
    with herdpy.connect(":memory:", autocommit=True) as opened:
        opened.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INTEGER, x DOUBLE, y DOUBLE)")
        yield opened


def total(values: Sequence[float | None]) -> str | None:
    found = [value for value in values if value is not None]
    return repr(sum(found, -0.0)) if found else None


def check(conn: herdpy.Connection, rows: dict[int, tuple[int, float | None, float | None]]) -> None:
    """Compare sums in all places where one may stand with those of the rows."""
    groups = sorted({g for g, _, _ in rows.values()})
    for place, name in ((1, "x"), (2, "y")):
        by_group = {g: total([row[place] for row in rows.values() if row[0] == g]) for g in groups}
        some = {
            g: total([row[place] for n, row in rows.items() if row[0] == g and n % 2])
            for g in groups
        }
        everything = total([row[place] for row in rows.values()])

        def found(text: str, name: str = name) -> list[tuple[object, ...]]:
            cursor = conn.execute(text.format(x=name))
            return [
                tuple(repr(v) if isinstance(v, float) else v for v in row)
                for row in cursor.fetchall()
            ]

        assert found("SELECT count(*), sum({x}) FROM t") == [(len(rows), everything)]
        expected = [(g, by_group[g], some[g]) for g in groups]
        columns = "sum({x}), sum({x}) FILTER (WHERE id % 2 = 1)"
        text = "SELECT g, " + columns + " FROM t GROUP BY g ORDER BY g"
        assert found(text) == expected
        zero = [(g, by_group[g]) for g in groups if by_group[g] in ("0.0", "-0.0")]
        text = "SELECT g, sum({x}) FROM t GROUP BY g HAVING sum({x}) = 0 ORDER BY g"
        assert found(text) == zero
        text = "SELECT DISTINCT g, sum({x}) OVER (PARTITION BY g) FROM t ORDER BY g"
        assert found(text) == [(g, by_group[g]) for g in groups]
        text = "SELECT g, (SELECT sum(i.{x}) FROM t AS i WHERE i.g = o.g) FROM t AS o ORDER BY g"
        assert list(dict.fromkeys(found(text))) == [(g, by_group[g]) for g in groups]
        text = "SELECT g, sum(v) FROM (SELECT g, {x} AS v FROM t) AS q GROUP BY g ORDER BY g"
        assert found(text) == [(g, by_group[g]) for g in groups]
        text = "SELECT g, sum(-{x}) FROM t GROUP BY g ORDER BY g"
        opposite = {
            g: total([None if r[place] is None else -r[place] for r in rows.values() if r[0] == g])  # type: ignore[operator]
            for g in groups
        }
        assert found(text) == [(g, opposite[g]) for g in groups]
    text = "SELECT g, sum(x), sum(y) FROM t GROUP BY g ORDER BY g"
    both = [
        (g, *(total([row[p] for row in rows.values() if row[0] == g]) for p in (1, 2)))
        for g in groups
    ]
    assert [
        tuple(repr(v) if isinstance(v, float) else v for v in row)
        for row in conn.execute(text).fetchall()
    ] == both


def put(
    conn: herdpy.Connection,
    rows: dict[int, tuple[int, float | None, float | None]],
    changes: dict[int, tuple[int, float | None, float | None]],
) -> None:
    conn.executemany("UPSERT INTO t VALUES (?, ?, ?, ?)", [(n, *row) for n, row in changes.items()])
    rows.update(changes)


@pytest.mark.parametrize("seed", range(2))
def test_sums_wherever_rows_lie(conn: herdpy.Connection, seed: int) -> None:
    rng = random.Random(seed)
    rows: dict[int, tuple[int, float | None, float | None]] = {}

    def some(numbers: Sequence[int], choices: Sequence[float | None]) -> None:
        ys = (0.0, 1.5, -1.5, None)
        changes = {n: (n % GROUPS, rng.choice(choices), rng.choice(ys)) for n in numbers}
        put(conn, rows, changes)

    some(range(5000), (0.0, None, 2.5, -2.5))
    check(conn, rows)  # in memory, without -0
    conn.checkpoint()
    check(conn, rows)  # in pages
    put(conn, rows, {n: (n % GROUPS, -0.0, 0.0) for n in range(5000) if n % GROUPS == 3})
    check(conn, rows)  # a group that is -0, in memory over pages
    conn.checkpoint()
    check(conn, rows)
    some(range(4500, 6000), (0.0, -0.0, None))
    check(conn, rows)
    conn.execute("DELETE FROM t WHERE g = 3")
    rows = {n: row for n, row in rows.items() if row[0] != 3}
    check(conn, rows)  # -0 is left in rows that are dead
    conn.checkpoint()
    check(conn, rows)


def test_sums_of_own_writes(conn: herdpy.Connection) -> None:
    rows: dict[int, tuple[int, float | None, float | None]] = {}
    put(conn, rows, {n: (n % 4, 0.0, 1.0) for n in range(5000)})
    conn.checkpoint()
    conn.execute("BEGIN")
    before = dict(rows)
    put(conn, rows, dict.fromkeys(range(6000, 6010), (9, -0.0, -0.0)))
    check(conn, rows)
    conn.execute("ROLLBACK")
    check(conn, before)


def test_a_column_that_pages_lack(conn: herdpy.Connection) -> None:
    conn.executemany("INSERT INTO t VALUES (?, ?, 1.0, 1.0)", [(n, n) for n in range(10)])
    conn.checkpoint()
    conn.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, x DOUBLE DEFAULT '-0')")
    conn.executemany("INSERT INTO u (id) VALUES (?)", [(n,) for n in range(10)])
    joined = "SELECT sum(t.x), sum(u.x), sum(t.x + u.x) FROM t JOIN u ON t.id = u.id"
    for _ in range(2):
        assert repr(conn.execute(joined).fetchall()) == "[(10.0, -0.0, 10.0)]"
        conn.checkpoint()
