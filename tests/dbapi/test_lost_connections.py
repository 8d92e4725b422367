"""Connections that are lost between a request and its answer: nothing happens twice, or not at all.

Each kind of call meets each fate of its request; what the program sees is docs/reference/url.md's.
"""

from collections.abc import Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.errors import ConnectionLostError, InternalError, OperationalError, Retry
from herdpy.proto.messages import Commit, Execute, ExecuteMany, Failed, FinishIngest
from tests.fixtures.engines import Background
from tests.fixtures.frame_proxy import Fate, FrameProxy
from tests.fixtures.servers import RunningServer

ALL_FATES = [Fate.LOST, Fate.UNANSWERED, Fate.LATE]
HAPPENED = [Fate.UNANSWERED]


@pytest.fixture
def proxy(server: RunningServer) -> Iterator[FrameProxy]:
    with FrameProxy(server.port) as made, herdpy.connect(server.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT, v BIGINT)")  # without a key: twice would show
        yield made


def rows(server: RunningServer) -> list[tuple[int, ...]]:
    with herdpy.connect(server.url) as conn:
        return conn.execute("SELECT id, v FROM t ORDER BY id, v").fetchall()


def meet(proxy: FrameProxy, kind: type, fate: Fate) -> None:
    proxy.fates.append((kind, fate))


def arrive(proxy: FrameProxy, fate: Fate, sqlstate: str = "40000") -> None:
    """Let a late request arrive, after its question: it must fail."""
    assert proxy.fates == []
    if fate is Fate.LATE:
        proxy.deliver()
        assert isinstance(proxy.late_answer, Failed)
        assert proxy.late_answer.sqlstate == sqlstate


def connect(proxy: FrameProxy, options: str = "", *, autocommit: bool = False) -> Connection:
    return herdpy.connect(proxy.url + options, autocommit=autocommit)


@pytest.mark.parametrize("fate", ALL_FATES)
class TestOutsideTransactions:
    def test_a_write_happens_once(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        with connect(proxy, autocommit=True) as conn:
            conn.execute("INSERT INTO t VALUES (0, 0)")
            meet(proxy, Execute, fate)
            cursor = conn.execute("INSERT INTO t VALUES (?, ?)", (1, 1))
            assert cursor.rowcount == (-1 if fate in HAPPENED else 1)
            arrive(proxy, fate)
            conn.execute("INSERT INTO t VALUES (2, 2)")
        assert rows(server) == [(0, 0), (1, 1), (2, 2)]

    def test_rows_of_a_write_are_not_asked_for_twice(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        with connect(proxy, autocommit=True) as conn:
            meet(proxy, Execute, fate)
            text = "INSERT INTO t VALUES (?, ?) RETURNING id, v + 1"
            if fate in HAPPENED:
                with pytest.raises(ConnectionLostError, match="has happened") as caught:
                    conn.execute(text, (1, 1))
                assert caught.value.retry is Retry.NEVER
            else:
                assert conn.execute(text, (1, 1)).fetchall() == [(1, 2)]
            arrive(proxy, fate)
        assert rows(server) == [(1, 1)]

    def test_many_rows_happen_once(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        with connect(proxy, autocommit=True) as conn:
            meet(proxy, ExecuteMany, fate)
            conn.executemany("INSERT INTO t VALUES (?, 0)", ((n,) for n in range(3)))
            arrive(proxy, fate)
        assert rows(server) == [(0, 0), (1, 0), (2, 0)]

    def test_a_definition_happens_once(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        with connect(proxy, autocommit=True) as conn:
            meet(proxy, Execute, fate)
            conn.execute("CREATE TABLE u (id BIGINT)")  # twice would be an error
            arrive(proxy, fate, "42P07")

    def test_an_update_counts_once(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        with connect(proxy, autocommit=True) as conn:
            conn.execute("INSERT INTO t VALUES (1, 0)")
            for _ in range(3):
                meet(proxy, Execute, fate)
                conn.execute("UPDATE t SET v = v + 1")
                if fate is Fate.LATE:
                    break
            arrive(proxy, fate)
        assert rows(server) == [(1, 1 if fate is Fate.LATE else 3)]

    def test_an_ingest_happens_once_or_can_be_repeated(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        data = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
        with connect(proxy, autocommit=True) as conn:
            meet(proxy, FinishIngest, fate)
            if fate in HAPPENED:
                assert conn.ingest("t", data) == 2
            else:
                with pytest.raises(ConnectionLostError) as caught:
                    conn.ingest("t", data)
                assert caught.value.retry is Retry.SAFE
                arrive(proxy, fate)
                assert conn.ingest("t", data) == 2
        assert rows(server) == [(1, 1), (2, 2)]

    def test_a_read_runs_again_and_leaves_nothing_in_the_log(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        if fate is Fate.LATE:
            return
        appended = server.engine.database.tablespace.log.last_lsn
        for autocommit in (False, True):
            with connect(proxy, autocommit=autocommit) as conn:
                meet(proxy, Execute, fate)
                assert conn.execute("SELECT 1 + 1").fetchall() == [(2,)]
        assert server.engine.database.tablespace.log.last_lsn == appended

    def test_the_first_statement_of_a_transaction_runs_again(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        if fate is Fate.LATE:
            return  # it waits for its session's end, as any transaction's row does
        with connect(proxy) as conn:
            meet(proxy, Execute, fate)
            assert conn.execute("INSERT INTO t VALUES (1, 1)").rowcount == 1
            conn.commit()
        assert rows(server) == [(1, 1)]


@pytest.mark.parametrize("fate", ALL_FATES)
class TestInTransactions:
    @pytest.mark.parametrize("is_text", [False, True])
    def test_a_commit_is_settled(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate, is_text: bool
    ) -> None:
        with connect(proxy) as conn:
            conn.execute("INSERT INTO t VALUES (1, 1)")
            meet(proxy, Execute if is_text else Commit, fate)

            def commit() -> None:
                if is_text:
                    conn.execute("COMMIT")
                else:
                    conn.commit()

            if fate in HAPPENED:
                commit()
            else:
                with pytest.raises(ConnectionLostError, match="rolled back") as caught:
                    commit()
                assert caught.value.retry is Retry.SAFE
            assert not conn.in_transaction
            arrive(proxy, fate, "57P01")
            conn.execute("INSERT INTO t VALUES (2, 2)")
            conn.commit()
        assert rows(server) == ([(1, 1)] if fate in HAPPENED else []) + [(2, 2)]

    def test_a_statement_ends_the_transaction_and_says_so(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        if fate is Fate.LATE:
            return
        with connect(proxy) as conn:
            conn.execute("INSERT INTO t VALUES (1, 1)")
            meet(proxy, Execute, fate)
            with pytest.raises(ConnectionLostError) as caught:
                conn.execute("INSERT INTO t VALUES (2, 2)")
            assert (caught.value.sqlstate, caught.value.retry) == ("08006", Retry.SAFE)
            assert conn.in_transaction
            with pytest.raises(InternalError) as again:
                conn.execute("INSERT INTO t VALUES (3, 3)")
            assert (again.value.sqlstate, again.value.retry) == ("25P02", Retry.SAFE)
            conn.rollback()
            assert not conn.in_transaction
            conn.execute("INSERT INTO t VALUES (4, 4)")
            conn.commit()
        assert rows(server) == [(4, 4)]

    def test_commit_of_a_lost_transaction_is_no_success(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        if fate is Fate.LATE:
            return
        with connect(proxy) as conn:
            conn.execute("INSERT INTO t VALUES (1, 1)")
            meet(proxy, Execute, fate)
            with pytest.raises(ConnectionLostError):
                conn.execute("SELECT 1")
            with pytest.raises(ConnectionLostError, match="rolled back"):
                conn.commit()
            conn.execute("INSERT INTO t VALUES (2, 2)")
            conn.commit()
        assert rows(server) == [(2, 2)]

    def test_a_block_raises_once_and_the_next_one_works(
        self, server: RunningServer, proxy: FrameProxy, fate: Fate
    ) -> None:
        with connect(proxy, autocommit=True) as conn:
            meet(proxy, Commit, fate)

            def transfer() -> None:
                with conn.transaction():
                    conn.execute("INSERT INTO t VALUES (1, 1)")

            if fate in HAPPENED:
                transfer()
            else:
                with pytest.raises(ConnectionLostError) as caught:
                    transfer()
                assert caught.value.retry is Retry.SAFE
                transfer()
            arrive(proxy, fate, "57P01")
        assert rows(server) == [(1, 1)]


def test_a_checkpoint_between_commit_and_question(server: RunningServer, proxy: FrameProxy) -> None:
    with connect(proxy) as conn, herdpy.connect(server.url, autocommit=True) as other:
        for number in range(4):
            conn.execute("INSERT INTO t VALUES (?, 0)", (number,))
            meet(proxy, Commit, Fate.UNANSWERED)
            conn.commit()
            other.checkpoint()
    assert [row[0] for row in rows(server)] == [0, 1, 2, 3]


def test_an_idle_connection_that_was_lost_is_not_noticed(
    server: RunningServer, proxy: FrameProxy
) -> None:
    with connect(proxy, autocommit=True) as conn:
        conn.execute("SET lock_timeout = '7s'")
        before = conn.execute("SHOW lock_timeout").fetchone()
        for number in range(3):
            proxy.cut()
            conn.execute("INSERT INTO t VALUES (?, 0)", (number,))
        assert conn.execute("SHOW lock_timeout").fetchone() == before
        conn.execute("RESET lock_timeout")
        proxy.cut()
        assert conn.execute("SHOW lock_timeout").fetchone() != before
        assert proxy.connection_count == 5
    assert len(rows(server)) == 3


def test_what_transactions_are_outlives_a_connection(
    server: RunningServer, proxy: FrameProxy
) -> None:
    with connect(proxy, autocommit=True) as conn:

        def check(level: str, *, is_read_only: bool) -> None:
            for _ in range(2):
                assert (conn.isolation_level.lower(), conn.read_only) == (level, is_read_only)
                shown = conn.execute("SHOW transaction_isolation").fetchone()
                read_only = conn.execute("SHOW transaction_read_only").fetchone()
                assert (shown, read_only) == ((level,), ("on" if is_read_only else "off",))
                proxy.cut()

        conn.execute(
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        )
        check("repeatable read", is_read_only=True)
        conn.execute("SET default_transaction_isolation = 'read committed'")
        check("read committed", is_read_only=True)
        conn.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        check("repeatable read", is_read_only=True)
        conn.read_only = False
        check("repeatable read", is_read_only=False)
        conn.execute("SET transaction_read_only TO DEFAULT")  # of no transaction: of nothing
        conn.execute("INSERT INTO t VALUES (1, 1)")
    assert rows(server) == [(1, 1)]


def test_an_idle_transaction_that_was_lost_is(server: RunningServer, proxy: FrameProxy) -> None:
    with connect(proxy) as conn:
        conn.execute("INSERT INTO t VALUES (1, 1)")
        proxy.cut()
        with pytest.raises(ConnectionLostError):
            conn.execute("INSERT INTO t VALUES (2, 2)")
        conn.rollback()
    assert rows(server) == []


def test_nobody_answers(server: RunningServer, proxy: FrameProxy) -> None:
    with connect(proxy, "?retry_timeout_s=0.05") as conn:
        conn.execute("INSERT INTO t VALUES (1, 1)")
        proxy.target_port, port = 1, proxy.target_port
        meet(proxy, Commit, Fate.UNANSWERED)
        with pytest.raises(ConnectionLostError) as caught:
            conn.commit()
        assert (caught.value.sqlstate, caught.value.retry) == ("08007", Retry.UNKNOWN)
        with pytest.raises(OperationalError) as again:
            conn.execute("INSERT INTO t VALUES (2, 2)")
        assert again.value.sqlstate in ("08001", "08006")
        proxy.target_port = port
        conn.rollback()
        conn.execute("INSERT INTO t VALUES (3, 3)")
        conn.commit()
    assert rows(server) == [(1, 1), (3, 3)]


def test_without_retries_a_lost_connection_stays_lost(
    server: RunningServer, proxy: FrameProxy
) -> None:
    with connect(proxy, "?retry_timeout_s=0", autocommit=True) as conn:
        proxy.cut()
        for _ in range(2):
            with pytest.raises(ConnectionLostError) as caught:
                conn.execute("INSERT INTO t VALUES (1, 1)")
            assert caught.value.retry is Retry.UNKNOWN
    assert rows(server) == []
    assert proxy.connection_count == 1


def test_a_fetch_that_is_lost_can_be_repeated(server: RunningServer, proxy: FrameProxy) -> None:
    with connect(proxy, autocommit=True) as conn:
        conn.execute("CREATE TABLE w (s TEXT)")
        conn.executemany("INSERT INTO w VALUES (?)", [("x" * 1000,)] * 6000)  # several pieces
        cursor = conn.execute("SELECT s FROM w")
        cursor.fetchone()
        proxy.cut()
        with pytest.raises(ConnectionLostError) as caught:
            cursor.fetchall()
        assert caught.value.retry is Retry.SAFE
        assert len(conn.execute("SELECT s FROM w").fetchall()) == 6000


def test_what_was_killed_does_not_run_again(server: RunningServer, proxy: FrameProxy) -> None:
    endless = "SELECT count(*) FROM n a, n b, n c WHERE a.id + b.id + c.id = -1"
    with connect(proxy, autocommit=True) as victim, herdpy.connect(server.url) as killer:
        victim.execute("CREATE TABLE n (id BIGINT PRIMARY KEY)")
        victim.executemany("INSERT INTO n VALUES (?)", [(n,) for n in range(3000)])

        def kill() -> None:
            found: list[tuple[int]] = []
            while not found:  # until it runs
                found = killer.execute(
                    "SELECT client_id FROM sysstatements WHERE text = ?", (endless,)
                ).fetchall()
            killer.execute(f"KILL CONNECTION {found[0][0]}")

        with Background() as background:
            background.start(kill)
            with pytest.raises(OperationalError) as caught:
                victim.execute(endless).fetchall()
            background.join()
        assert (caught.value.sqlstate, caught.value.retry) == ("57P01", Retry.NEVER)
        assert victim.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("text", ["-- done\nCOMMIT", "/* done */ END WORK;"])
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
def test_a_commit_behind_a_comment_is_one(
    server: RunningServer, proxy: FrameProxy, fate: Fate, text: str
) -> None:
    """What it is says the grammar, not the first word: a commit is never told as lost."""
    with connect(proxy) as conn:
        conn.execute("INSERT INTO t VALUES (1, 1)")
        meet(proxy, Execute, fate)
        if fate in HAPPENED:
            conn.execute(text)
        else:
            with pytest.raises(ConnectionLostError) as caught:
                conn.execute(text)
            assert caught.value.retry is Retry.SAFE
        assert not conn.in_transaction or fate is Fate.LOST
    assert rows(server) == ([(1, 1)] if fate in HAPPENED else [])


def test_an_option_behind_a_comment_is_set_again(server: RunningServer, proxy: FrameProxy) -> None:
    with connect(proxy, autocommit=True) as conn:
        conn.execute("/* slow */ SET lock_timeout = '7s'")
        meet(proxy, Execute, Fate.LOST)
        assert conn.execute("SHOW lock_timeout").fetchall() == [("7s",)]
