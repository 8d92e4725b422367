"""Findings about transactions: what a result shows after ROLLBACK, and writes that meet others."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import herdpy

ServeCall = Callable[..., Any]
COUNT = 2_000
PAD = "x" * 2_200
"""Makes the rows more than a server sends before it is asked for them."""
QUERIES = {
    "rows": "SELECT id, v, pad FROM t",
    "key-order": "SELECT id, v, pad FROM t WHERE id >= 0 ORDER BY id",
    "vector": "SELECT t.id, t.v, t.pad FROM t JOIN t AS u ON u.id = t.id",
}


@pytest.fixture(params=["embedded", "server"])
def target(request: pytest.FixtureRequest, serve: ServeCall, tmp_path: Path) -> str:
    if request.param == "embedded":
        return str(tmp_path / "embedded")
    url: str = serve().url
    return url


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, pad TEXT)")
        rows = [(number, "real", PAD) for number in range(COUNT)]
        conn.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        yield conn


def state_of(act: Callable[[], Any]) -> str:
    """Return the SQLSTATE of an error, or what came instead of one."""
    try:
        found = act()
    except herdpy.Error as error:
        return str(error.sqlstate)
    return f"{found!r:.80}"


@pytest.mark.finding("E8")
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_no_row_that_was_rolled_back_is_delivered(conn: herdpy.Connection, query: str) -> None:
    conn.execute("BEGIN")
    conn.execute("UPDATE t SET v = 'ghost'")
    cursor = conn.execute(query)
    conn.rollback()
    assert state_of(lambda: cursor.fetchmany(10)) == "24000"
    assert state_of(cursor.fetchall) == "24000"  # and it does not look like the end, afterwards
    assert conn.execute("SELECT count(*) FROM t WHERE v = 'real'").fetchone() == (COUNT,)


@pytest.mark.finding("E8")
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_a_result_half_fetched_ends_with_its_rollback(conn: herdpy.Connection, query: str) -> None:
    conn.execute("BEGIN")
    conn.execute("UPDATE t SET v = 'ghost'")
    cursor = conn.execute(query)
    assert cursor.fetchone() is not None
    conn.execute("ROLLBACK")
    assert state_of(cursor.fetchall) == "24000"


@pytest.mark.finding("E8")
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_arrow_batches_end_with_their_rollback(conn: herdpy.Connection, query: str) -> None:
    conn.execute("BEGIN")
    conn.execute("UPDATE t SET v = 'ghost'")
    cursor = conn.execute(query)
    conn.rollback()
    assert state_of(lambda: cursor.fetch_record_batch(100).read_all()) == "24000"


@pytest.mark.finding("E8")
def test_a_result_ends_with_a_rollback_that_an_error_makes(
    conn: herdpy.Connection, target: str
) -> None:
    """Two transactions lock each other out; one of them is rolled back, and its result ends."""
    states: dict[str, str] = {}

    def run(mine: herdpy.Connection, wanted: int, met: threading.Barrier) -> None:
        mine.execute("BEGIN")
        mine.execute("UPDATE t SET v = 'ghost' WHERE id = ?", (3 - wanted,))
        cursor = mine.execute("SELECT id, v, pad FROM t")
        met.wait()
        lost = state_of(lambda: mine.execute("UPDATE t SET v = 'x' WHERE id = ?", (wanted,)))
        states[lost if lost == "40P01" else "granted"] = state_of(cursor.fetchall)
        mine.rollback()

    with herdpy.connect(target, autocommit=True) as other:
        met = threading.Barrier(2)
        thread = threading.Thread(target=run, args=(other, 1, met))
        thread.start()
        run(conn, 2, met)
        thread.join()
    assert states["40P01"] == "24000", "the transaction that was rolled back by the deadlock"
    assert states["granted"].startswith("[(0, 'real'"), "the one that went on"


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_a_result_goes_on_behind_a_commit(conn: herdpy.Connection, query: str) -> None:
    conn.execute("BEGIN")
    conn.execute("UPDATE t SET v = 'new'")
    cursor = conn.execute(query)
    first = cursor.fetchmany(10)
    conn.commit()
    assert {row[1] for row in first + cursor.fetchall()} == {"new"}


def test_a_result_without_own_writes_goes_on_behind_a_rollback(conn: herdpy.Connection) -> None:
    conn.execute("CREATE TABLE other (id BIGINT PRIMARY KEY)")
    conn.execute("BEGIN")
    conn.execute("INSERT INTO other VALUES (1)")
    cursor = conn.execute("SELECT id, v, pad FROM t")
    conn.rollback()
    assert len(cursor.fetchall()) == COUNT
