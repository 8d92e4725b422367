"""The pool: who gets a connection, in what state it comes back, and what is run again."""

import threading
from collections.abc import Callable, Iterator

import pytest

import herdpy
from herdpy.driver.connection import Connection
from herdpy.errors import InterfaceError, OperationalError, ProgrammingError, Retry
from herdpy.proto.messages import Commit, Execute
from tests.fixtures.engines import Background
from tests.fixtures.frame_proxy import Fate, FrameProxy
from tests.fixtures.servers import RunningServer


@pytest.fixture
def pool(server: RunningServer) -> Iterator[herdpy.Pool]:
    with herdpy.connect(server.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT, v BIGINT)")
    with herdpy.Pool(server.url, connections_max=2, timeout_s=30) as made:
        yield made


def count(pool: herdpy.Pool) -> int:
    with pool.connection() as conn:
        row = conn.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return row[0]


def test_a_block_commits_or_rolls_back(pool: herdpy.Pool) -> None:
    with pool.connection() as conn:
        conn.execute("INSERT INTO t VALUES (1, 1)")

    def fail() -> None:
        with pool.connection() as conn:
            conn.execute("INSERT INTO t VALUES (2, 2)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert count(pool) == 1
    assert pool.connection_count == 1, "one after the other needs one connection"


def test_a_connection_comes_back_as_it_was_made(pool: herdpy.Pool) -> None:
    with pool.connection() as conn:
        first = conn
        before = conn.execute("SHOW lock_timeout").fetchone()
        conn.rollback()
        conn.autocommit = True
        conn.execute("SET lock_timeout = '7s'")
    with pool.connection() as conn:
        assert conn is first
        assert conn.autocommit is False
        assert conn.execute("SHOW lock_timeout").fetchone() == before


@pytest.mark.parametrize(
    "text",
    [
        "SET lock_timeout = '7s';",
        "set/* a */session--b\n lock_timeout/**/to '7s'",
        "/* c */ SET SESSION lock_timeout = '7s'",
        "SET TIME ZONE 'UTC'",
        "SET SESSION/**/TIME /**/ ZONE 'UTC'",
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET transaction_isolation = 'repeatable read'",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET default_transaction_isolation = 'repeatable read'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "RESET/**/lock_timeout",
        "RESET TIME ZONE",
    ],
)
def test_whatever_was_set_is_taken_back(pool: herdpy.Pool, text: str) -> None:
    with pool.connection() as conn:
        first = conn
        before = conn.execute("SHOW ALL").fetchall()
        conn.execute(text)
    with pool.connection() as conn:
        assert conn is first, "it could not be reset"
        assert conn.execute("SHOW ALL").fetchall() == before


def test_a_closed_connection_is_replaced(pool: herdpy.Pool) -> None:
    with pytest.raises(InterfaceError), pool.connection() as conn:
        conn.close()
    assert pool.connection_count == 0
    assert count(pool) == 0


def test_who_waits_longest_is_first(server: RunningServer) -> None:
    order: list[int] = []
    with herdpy.Pool(server.url, connections_max=1) as pool, Background() as background:
        with pool.connection():
            for number in range(3):

                def wait(number: int = number) -> None:
                    with pool.connection():
                        order.append(number)

                background.start(wait)
                until(lambda number=number: pool.waiting_count > number)
        background.join()
        assert order == [0, 1, 2]
        assert pool.connection_count == 1


def test_nobody_waits_for_ever(server: RunningServer) -> None:
    with herdpy.Pool(server.url, connections_max=1, timeout_s=0.01) as pool:
        with (
            pool.connection(),
            pytest.raises(OperationalError, match="in use") as caught,
            pool.connection(),
        ):
            pass
        assert (caught.value.sqlstate, caught.value.retry) == ("53300", Retry.SAFE)
        with pool.connection():
            pass


def test_close_tells_those_who_wait(pool: herdpy.Pool) -> None:
    errors: list[Exception] = []

    def wait() -> None:
        try:
            with pool.connection():
                pass
        except InterfaceError as error:
            errors.append(error)

    with Background() as background, pool.connection(), pool.connection():
        background.start(wait)
        until(lambda: pool.waiting_count == 1)
        pool.close()
        background.join()
        assert "closed" in str(errors[0])
    assert pool.connection_count == 0
    with pytest.raises(InterfaceError, match="closed"), pool.connection():
        pass


def test_a_target_that_is_not_there_leaves_room() -> None:
    with herdpy.Pool("herd://127.0.0.1:1", connections_max=1) as pool:
        for _ in range(3):
            with pytest.raises(OperationalError, match="cannot be reached"), pool.connection():
                pass
        assert pool.connection_count == 0


@pytest.mark.parametrize("options", [{"connections_max": 0}, {"timeout_s": -1}])
def test_what_is_no_pool(options: dict[str, float]) -> None:
    with pytest.raises(ProgrammingError, match="expected connections_max"):
        herdpy.Pool(":memory:", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("kind", [Execute, Commit])
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED])
def test_run_repeats_what_surely_did_not_happen(
    server: RunningServer, pool: herdpy.Pool, autocommit: bool, kind: type, fate: Fate
) -> None:
    attempts = 0

    def transfer(conn: Connection) -> None:
        nonlocal attempts
        attempts += 1
        conn.execute("INSERT INTO t VALUES (1, 1)")
        conn.execute("INSERT INTO t VALUES (2, 2)")

    with (
        FrameProxy(server.port) as proxy,
        herdpy.Pool(proxy.url, autocommit=autocommit) as through,
    ):
        with through.connection() as conn:
            conn.execute("SELECT 1").fetchall()
        proxy.fates.append((kind, fate))
        through.run(transfer)
        assert proxy.fates == []
    assert count(pool) == 2
    # The first statement runs again by itself, if the transaction begins with it.
    is_repeated_below = kind is Execute and not autocommit
    is_settled = kind is Commit and fate is Fate.UNANSWERED
    assert attempts == (1 if is_repeated_below or is_settled else 2)


def test_run_does_not_repeat_a_mistake(pool: herdpy.Pool) -> None:
    attempts = 0

    def wrong(conn: Connection) -> None:
        nonlocal attempts
        attempts += 1
        conn.execute("SELEKT")

    with pytest.raises(ProgrammingError):
        pool.run(wrong)
    assert attempts == 1


def test_deadlocks_are_run_again(pool: herdpy.Pool) -> None:
    with pool.connection() as conn:
        conn.execute("CREATE TABLE a (id BIGINT PRIMARY KEY, v BIGINT)")
        conn.executemany("INSERT INTO a VALUES (?, 0)", [(0,), (1,)])
    both = threading.Barrier(2)

    def transfer(first: int) -> None:
        is_new = True

        def work(conn: Connection) -> None:
            nonlocal is_new
            conn.execute("UPDATE a SET v = v + 1 WHERE id = ?", (first,))
            if is_new:
                is_new = False
                both.wait(30)  # each has its first row: one of them has to give way
            conn.execute("UPDATE a SET v = v + 1 WHERE id = ?", (1 - first,))

        pool.run(work)

    with Background() as background:
        background.start(lambda: transfer(0))
        background.start(lambda: transfer(1))
    with pool.connection() as conn:
        assert conn.execute("SELECT v FROM a ORDER BY id").fetchall() == [(2,), (2,)]


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.001)
