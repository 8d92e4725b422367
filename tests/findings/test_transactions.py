"""Findings about transactions: what a result shows after ROLLBACK, and writes that meet others."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
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


class Waiting:
    """A statement in a thread of its own, which has run for a while: it waits, or computes."""

    def __init__(self, target: str, watch: herdpy.Connection, statement: str) -> None:
        self.found = ""
        self._conn = herdpy.connect(target, autocommit=True)
        self._thread = threading.Thread(target=self._run, args=(statement,))
        self._thread.start()
        query = "SELECT 1 FROM sysstatements WHERE text = ? AND running_s > 0.3"
        while self._thread.is_alive() and not watch.execute(query, (statement,)).fetchall():
            pass

    def _run(self, statement: str) -> None:
        self.found = state_of(lambda: self._conn.execute(statement).rowcount)

    def end(self) -> str:
        """Return what came of it: its row count, or its SQLSTATE."""
        self._thread.join()
        self._conn.close()
        return self.found


@pytest.fixture
def watch(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE e (id BIGINT PRIMARY KEY, x DOUBLE, n BIGINT)")
        conn.execute("INSERT INTO e VALUES (1, 0.0, 0), (2, 0.0, 0)")
        yield conn


NOTHING = [
    "INSERT INTO e VALUES (1, 5.0, 5) ON CONFLICT DO NOTHING",
    "INSERT INTO e VALUES (1, 5.0, 5), (2, 5.0, 5) ON CONFLICT DO NOTHING",
    "INSERT INTO e SELECT id, 5.0, 5 FROM e WHERE id = 2 UNION ALL SELECT 1, 5.0, 5"
    " ON CONFLICT DO NOTHING",
]


@pytest.mark.finding("E9")
@pytest.mark.parametrize("statement", NOTHING, ids=["one", "several", "select"])
def test_on_conflict_waits_for_an_uncommitted_delete(
    target: str, watch: herdpy.Connection, statement: str
) -> None:
    watch.execute("BEGIN")
    watch.execute("DELETE FROM e WHERE id = 1")
    with herdpy.connect(target, autocommit=True, lock_timeout_s=0.01) as other:
        assert state_of(lambda: other.execute(statement).rowcount) == "55P03"
        many = statement.replace("1, 5.0, 5", "?, 5.0, 5", 1)
        assert state_of(lambda: other.executemany(many, [(1,), (2,)]).rowcount) == "55P03"
    watch.rollback()


@pytest.mark.parametrize("statement", NOTHING, ids=["one", "several", "select"])
@pytest.mark.parametrize(
    ("end", "count"),
    [pytest.param("COMMIT", "1", marks=pytest.mark.finding("E9")), ("ROLLBACK", "0")],
)
def test_on_conflict_does_what_the_end_of_the_delete_says(
    target: str, watch: herdpy.Connection, statement: str, end: str, count: str
) -> None:
    with herdpy.connect(target, autocommit=True) as deleting:
        deleting.execute("BEGIN")
        deleting.execute("DELETE FROM e WHERE id = 1")
        waiting = Waiting(target, watch, statement)
        deleting.execute(end)
        assert waiting.end() == count
    row = (1, 5.0, 5) if end == "COMMIT" else (1, 0.0, 0)
    assert watch.execute("SELECT * FROM e ORDER BY id").fetchall() == [row, (2, 0.0, 0)]


@pytest.mark.parametrize(("end", "count"), [("COMMIT", "0"), ("ROLLBACK", "1")])
def test_on_conflict_does_what_the_end_of_an_insert_says(
    target: str, watch: herdpy.Connection, end: str, count: str
) -> None:
    with herdpy.connect(target, autocommit=True) as inserting:
        inserting.execute("BEGIN")
        inserting.execute("INSERT INTO e VALUES (3, 1.0, 1)")
        waiting = Waiting(target, watch, "INSERT INTO e VALUES (3, 5.0, 5) ON CONFLICT DO NOTHING")
        inserting.execute(end)
        assert waiting.end() == count


def test_on_conflict_waits_for_no_row_that_is_not_written(
    target: str, watch: herdpy.Connection
) -> None:
    watch.execute("BEGIN")
    watch.execute(NOTHING[0])
    with herdpy.connect(target, autocommit=True, lock_timeout_s=0.01) as other:
        assert other.execute("UPDATE e SET n = 1 WHERE id = 1").rowcount == 1
        assert other.execute(NOTHING[1]).rowcount == 0
    watch.rollback()


SLOW = (
    "UPDATE e SET n = n + 1 WHERE id = (SELECT 1 + count(*) FROM s a, s b, s c "
    "WHERE (a.id * b.id + c.id) % 1000 = 1001)"
)


@pytest.mark.finding("E10")
def test_a_change_of_sign_of_zero_is_a_change(tmp_path: Path) -> None:
    """One statement commits -0.0 while another, which has read 0.0, still looks for its row."""
    target = str(tmp_path / "db")
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE e (id BIGINT PRIMARY KEY, x DOUBLE, n BIGINT)")
        conn.execute("INSERT INTO e VALUES (1, 0.0, 0)")
        conn.execute("CREATE TABLE s (id BIGINT PRIMARY KEY)")
        conn.executemany("INSERT INTO s VALUES (?)", [(number,) for number in range(600)])
        waiting = Waiting(target, conn, SLOW)
        conn.execute("UPDATE e SET x = ? WHERE id = 1", (-0.0,))
        assert waiting.end() == "1"
        ((found, count),) = conn.execute("SELECT x, n FROM e WHERE id = 1").fetchall()
        assert (math.copysign(1.0, found), count) == (-1.0, 1)


class SqlFrames:
    """Counts the functions of herdpy.sql that the thread enters in the block."""

    def __enter__(self) -> "SqlFrames":
        self.names: list[str] = []
        folder = str(Path(herdpy.__file__).parent / "sql")

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(folder):
                self.names.append(frame.f_code.co_name)

        sys.setprofile(note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


OTHER_DEFINITIONS = {
    "create": ["CREATE TABLE other (id BIGINT PRIMARY KEY)"],
    "drop": ["DROP TABLE there"],
    "truncate": ["TRUNCATE there"],
}
WARM = {
    "insert": "INSERT INTO p VALUES (?, 0)",
    "update": "UPDATE p SET v = v + 1 WHERE id = ?",
    "read": "SELECT v FROM p WHERE id = ?",
    "general": "SELECT count(*) FROM p WHERE v > ?",
}


@pytest.mark.finding("E11")
@pytest.mark.parametrize("warm", WARM.values(), ids=WARM.keys())
@pytest.mark.parametrize("others", OTHER_DEFINITIONS.values(), ids=OTHER_DEFINITIONS.keys())
def test_a_plan_stays_when_other_tables_change(
    tmp_path: Path, warm: str, others: list[str]
) -> None:
    path = str(tmp_path / "db")
    with (
        herdpy.connect(path, autocommit=True, durability="none") as conn,
        herdpy.connect(path, autocommit=True, durability="none") as other,
    ):
        conn.execute("CREATE TABLE there (id BIGINT PRIMARY KEY)")
        conn.execute("CREATE TABLE p (id BIGINT PRIMARY KEY, v BIGINT)")
        for number in range(5):
            conn.execute(warm, (number,)).close()
        with SqlFrames() as before:
            conn.execute(warm, (5,)).close()
        for definition in others:
            other.execute(definition)
        with SqlFrames() as frames:
            conn.execute(warm, (6,)).close()
        assert len(frames.names) == len(before.names), f"planned again by {frames.names[:5]}"


def test_a_plan_goes_with_its_table(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with (
        herdpy.connect(path, autocommit=True) as conn,
        herdpy.connect(path, autocommit=True) as other,
    ):
        conn.execute("CREATE TABLE p (id BIGINT PRIMARY KEY, v BIGINT)")
        read, write = "SELECT * FROM p WHERE id = ?", "INSERT INTO p VALUES (?, ?)"
        for number in range(3):
            conn.execute(write, (number, 10))
            assert conn.execute(read, (number,)).fetchall() == [(number, 10)]
        other.execute("DROP TABLE p")
        assert state_of(lambda: conn.execute(write, (7, 10))) == "42P01"
        other.execute("CREATE TABLE q (id BIGINT PRIMARY KEY)")
        assert state_of(lambda: conn.execute(read, (7,))) == "42P01"
        other.execute("CREATE TABLE p (id BIGINT PRIMARY KEY, w TEXT, v TEXT DEFAULT 'd')")
        conn.execute("INSERT INTO p (id, w) VALUES (1, 'w')")
        assert conn.execute(read, (1,)).fetchall() == [(1, "w", "d")]
        assert state_of(lambda: conn.execute(write, (2, "x")).rowcount) == "1"
