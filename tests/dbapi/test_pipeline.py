"""Statements that go together: their results, their transaction, and what an error stops."""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.pipeline import STATEMENTS_MAX
from herdpy.errors import ConnectionLostError, Retry
from herdpy.proto.messages import Commit, ExecuteAll
from herdpy.server.requests import requests
from tests.fixtures.frame_proxy import Fate, FrameProxy
from tests.fixtures.servers import RunningServer

INSERT = "INSERT INTO t VALUES (?, ?)"


@pytest.fixture
def conn(target: str) -> Iterator[herdpy.Connection]:
    with herdpy.connect(target, autocommit=True) as made:
        made.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        yield made


def ids(conn: herdpy.Connection) -> list[int]:
    return [row[0] for row in conn.execute("SELECT id FROM t ORDER BY id").fetchall()]


def test_results_are_there_behind_the_block(conn: herdpy.Connection) -> None:
    count = 2 * STATEMENTS_MAX + 1
    with conn.pipeline() as pipe:
        inserted = [pipe.execute(INSERT, (n, str(n))) for n in range(count)]
        one = pipe.execute("SELECT v FROM t WHERE id = ?", (7,))
        last = pipe.execute("SELECT id, v FROM t ORDER BY id")  # more than comes at once
        named = pipe.execute("SELECT id FROM t WHERE v = :v", {"v": "9"})
        with pytest.raises(herdpy.ProgrammingError, match="no result"):
            last.fetchall()
    assert not conn.in_transaction
    assert [cursor.rowcount for cursor in inserted] == [1] * count
    assert one.fetchall() == [("7",)]
    assert last.fetchall() == [(n, str(n)) for n in range(count)]
    assert named.fetchone() == (9,)


def test_sync_hands_out_what_has_come(conn: herdpy.Connection) -> None:
    with conn.pipeline() as pipe:
        pipe.execute(INSERT, (1, "a"))
        found = pipe.execute("SELECT id FROM t")
        pipe.sync()
        assert found.fetchall() == [(1,)]
        pipe.execute(INSERT, (2, "a"))
        assert conn.in_transaction
    assert ids(conn) == [1, 2]


def test_nothing_runs_behind_an_error_and_the_own_transaction_is_taken_back(
    conn: herdpy.Connection,
) -> None:
    with pytest.raises(herdpy.IntegrityError), conn.pipeline() as pipe:  # noqa: PT012 - a block
        first = pipe.execute("SELECT 1")
        pipe.execute(INSERT, (1, "a"))
        pipe.execute(INSERT, (1, "b"))
        behind = pipe.execute("SELECT 2")
    assert first.fetchall() == [(1,)]
    with pytest.raises(herdpy.ProgrammingError, match="no result"):
        behind.fetchall()
    assert not conn.in_transaction
    assert ids(conn) == []


def test_an_open_transaction_goes_on_behind_an_error(conn: herdpy.Connection) -> None:
    with conn.transaction():
        conn.execute(INSERT, (1, "a"))
        with conn.pipeline() as pipe:
            pipe.execute(INSERT, (2, "a"))
            pipe.execute("SELECT nothing FROM t")
            pipe.execute(INSERT, (3, "a"))
            with pytest.raises(herdpy.ProgrammingError) as caught:
                pipe.sync()
            assert caught.value.sqlstate == "42703"
            pipe.execute(INSERT, (4, "a"))
        assert conn.in_transaction
    assert ids(conn) == [1, 2, 4]


def test_without_autocommit_it_does_not_commit(conn: herdpy.Connection) -> None:
    conn.autocommit = False
    with conn.pipeline() as pipe:
        pipe.execute(INSERT, (1, "a"))
    assert conn.in_transaction
    conn.rollback()
    assert ids(conn) == []
    conn.rollback()


def test_an_error_of_the_program_takes_the_block_back(conn: herdpy.Connection) -> None:
    with pytest.raises(ZeroDivisionError), conn.pipeline() as pipe:  # noqa: PT012 - a block
        pipe.execute(INSERT, (1, "a"))
        pipe.sync()
        pipe.execute(INSERT, (2, "a"))
        raise ZeroDivisionError
    assert ids(conn) == []


@pytest.mark.parametrize(
    "text", ["COMMIT", "/* a */ ROLLBACK", "BEGIN", "SET lock_timeout = '1s'",
             "CREATE TABLE u (a INT)", "COMMIT AND CHAIN", "KILL 1"]
)  # fmt: skip
def test_statements_about_the_transaction_are_refused(conn: herdpy.Connection, text: str) -> None:
    with conn.pipeline() as pipe, pytest.raises(herdpy.NotSupportedError, match="pipeline"):
        pipe.execute(text)


def test_a_syntax_error_comes_in_its_turn(conn: herdpy.Connection) -> None:
    with pytest.raises(herdpy.ProgrammingError), conn.pipeline() as pipe:
        pipe.execute("SELEKT 1")


def test_large_answers_are_bounded_together(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_ANSWERS_BYTES_MAX", 100_000)
    with herdpy.connect(server.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        conn.executemany(INSERT, [(n, str(n) * 30_000) for n in range(9)])
        for text in ("SELECT v FROM t WHERE id = ?", "SELECT v FROM t WHERE id + 0 = ?"):
            with pytest.raises(herdpy.OperationalError) as caught, conn.pipeline() as pipe:
                found = [pipe.execute(text, (n,)) for n in range(9)]
            assert caught.value.sqlstate == "54000"
            assert [each.fetchall() for each in found[:3]] == [
                [(str(n) * 30_000,)] for n in range(3)
            ]
            assert found[3].description is None
            assert not conn.in_transaction


# --- lost connections ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ExecuteAll, Commit])
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
def test_a_lost_connection(server: RunningServer, kind: type, fate: Fate) -> None:
    """Its transaction surely did not happen, or its COMMIT is settled by its token."""
    with FrameProxy(server.port) as proxy, herdpy.connect(proxy.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT, v TEXT)")
        proxy.fates.append((kind, fate))
        is_settled = kind is Commit and fate is Fate.UNANSWERED
        if is_settled:
            with conn.pipeline() as pipe:
                pipe.execute(INSERT, (1, "a"))
        else:
            with pytest.raises(ConnectionLostError) as caught, conn.pipeline() as pipe:
                pipe.execute(INSERT, (1, "a"))
            assert caught.value.retry is Retry.SAFE
        assert proxy.fates == []
        assert not conn.in_transaction
        assert conn.execute("SELECT id FROM t").fetchall() == ([(1,)] if is_settled else [])


def test_the_whole_of_it_runs_again_where_it_begins_the_transaction(server: RunningServer) -> None:
    with FrameProxy(server.port) as proxy, herdpy.connect(proxy.url) as conn:
        conn.execute("CREATE TABLE t (id BIGINT, v TEXT)")
        conn.commit()
        proxy.fates.append((ExecuteAll, Fate.UNANSWERED))
        with conn.pipeline() as pipe:
            counts = [pipe.execute(INSERT, (n, "a")) for n in range(3)]
        assert [cursor.rowcount for cursor in counts] == [1, 1, 1]
        conn.commit()
        assert conn.execute("SELECT count(*) FROM t").fetchall() == [(3,)]
