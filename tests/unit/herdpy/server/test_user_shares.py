"""What a user may have at a server: its settings, its connections, its statements that run."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import herdpy
from herdpy.engine.statements.refusals import Refusals
from herdpy.errors import Error
from herdpy.model.access import User
from herdpy.model.role_settings import CONNECTIONS, RUNNING_STATEMENTS, Maxima
from herdpy.server.user_shares import WORKERS_OF_TABLESPACE, Kind, Turn, UserShares
from tests.fixtures.engines import Background
from tests.fixtures.servers import RunningServer, running_server

ANN, EVE, BOB = User("ann", 1), User("eve", 2), User("bob", 3)


class Shares(UserShares):
    """UserShares with maxima that a test sets; `begun` are the statements in their order."""

    def __init__(self, usual_max: int | None = None, **maxima: int) -> None:
        self.maxima: dict[User, Maxima] = {ANN: maxima}
        self.refusals = Refusals()
        super().__init__(lambda user: self.maxima.get(user, {}), self.refusals, usual_max)
        self.begun: list[str] = []

    def run(
        self,
        name: str,
        user: User = ANN,
        kind: Kind = Kind.STATEMENT,
        *,
        is_again: bool = False,
    ) -> Turn | None:
        return self.begin(user, kind, lambda: self.begun.append(name), is_again=is_again)

    def ended(self, user: User = ANN, kind: Kind = Kind.STATEMENT) -> list[str]:
        """End one; return what has begun because of it."""
        before = len(self.begun)
        self.end(user, kind)
        return self.begun[before:]


def test_a_connection_beyond_the_maximum_is_refused() -> None:
    shares = Shares(connections=2)
    assert [shares.admit(user) for user in (ANN, EVE, ANN, EVE, EVE)] == [None] * 5
    refusal = shares.admit(ANN)
    assert refusal is not None
    assert (refusal.sqlstate, "2 of 2" in refusal.message) == ("53300", True)
    shares.leave(ANN)
    assert shares.admit(ANN) is None
    assert shares.connections == {ANN: 2, EVE: 3}
    assert [shares.refusals.count(CONNECTIONS, user) for user in (ANN, EVE)] == [1, 0]


def test_statements_take_turns() -> None:
    shares = Shares(running_statements=2)
    turns = [shares.run(name) for name in "abcde"]
    shares.run("x", EVE)
    assert (shares.begun, shares.waiting_count) == (["a", "b", "x"], 3)
    dropped = turns[3]
    assert dropped is not None
    assert shares.give_up(dropped)
    assert not shares.give_up(dropped)
    shares.run("behind a lock", kind=Kind.URGENT, is_again=True)
    shares.end(ANN, Kind.STATEMENT)
    assert shares.begun == ["a", "b", "x", "behind a lock"]
    shares.maxima[ANN] = {RUNNING_STATEMENTS: 1}
    shares.end(ANN, Kind.STATEMENT)
    assert (shares.running[ANN], shares.waiting_count) == (1, 2)
    shares.maxima[ANN] = {}
    shares.end(ANN, Kind.URGENT)
    assert shares.begun[-2:] == ["c", "e"]
    for user in (ANN, ANN, EVE):
        shares.end(user, Kind.STATEMENT)
    assert (shares.running, shares.waiting_count) == ({}, 0)
    waits = [shares.refusals.wait_count(RUNNING_STATEMENTS, user) for user in (ANN, EVE)]
    assert waits == [4, 0]


def test_what_may_hold_locks_goes_before_all_else_of_its_user() -> None:
    shares = Shares(running_statements=1)
    shares.run("a")
    shares.run("usual")
    shares.run("in a transaction", kind=Kind.URGENT)
    shares.run("behind a lock", kind=Kind.URGENT, is_again=True)
    assert [shares.ended(kind=kind) for kind in (Kind.STATEMENT, Kind.URGENT, Kind.URGENT)] == [
        ["behind a lock"], ["in a transaction"], ["usual"],
    ]  # fmt: skip


def test_a_tablespace_has_a_share_of_the_workers() -> None:
    shares = Shares(usual_max=2)
    turns = [shares.run(name) for name in "abcd"]
    assert (shares.begun, shares.usual_count, shares.waiting_count) == (["a", "b"], 2, 2)
    assert shares.run("in a transaction", kind=Kind.URGENT) is None
    assert shares.run("of another user", EVE) is not None
    assert shares.refusals.wait_count(WORKERS_OF_TABLESPACE) == 3
    assert shares.refusals.wait_count(RUNNING_STATEMENTS, ANN) == 0
    assert shares.ended(kind=Kind.URGENT) == []  # it had no place of the share
    dropped = turns[2]
    assert dropped is not None
    assert shares.waits_for_tablespace(dropped)
    assert shares.give_up(dropped)
    assert shares.ended() == ["d"]
    assert shares.ended() == ["of another user"]
    assert (shares.ended(), shares.ended(EVE)) == ([], [])
    assert (shares.usual_count, shares.running, shares.waiting_count) == (0, {}, 0)


def test_users_of_a_tablespace_get_its_places_in_turn() -> None:
    shares = Shares(usual_max=1)
    shares.run("first")
    for name in ("ann 1", "ann 2", "ann 3"):
        shares.run(name)
    shares.run("eve 1", EVE)
    shares.run("bob 1", BOB)
    shares.run("eve 2", EVE)
    order = [ANN, ANN, EVE, BOB, ANN, EVE]
    found = [name for user in order for name in shares.ended(user)]
    assert found == ["ann 1", "eve 1", "bob 1", "ann 2", "eve 2", "ann 3"]


def test_a_user_at_its_own_maximum_leaves_places_to_others() -> None:
    shares = Shares(usual_max=2, running_statements=1)
    turns = [shares.run("ann 1"), shares.run("ann 2")]
    assert turns[1] is not None
    assert not shares.waits_for_tablespace(turns[1])
    assert shares.refusals.wait_count(RUNNING_STATEMENTS, ANN) == 1
    shares.run("eve 1", EVE)
    fetch = shares.run("ann's fetch", kind=Kind.OTHER)
    assert fetch is not None
    assert shares.waits_for_tablespace(fetch)  # fetches are no statements
    shares.run("eve 2", EVE)
    assert shares.begun == ["ann 1", "eve 1"]
    assert shares.ended(EVE) == ["ann's fetch"]
    assert shares.ended(kind=Kind.OTHER) == ["eve 2"]
    assert shares.ended() == ["ann 2"]


def test_a_users_fetches_and_statements_begin_in_their_order() -> None:
    shares = Shares(usual_max=1)
    shares.run("first")
    kinds = [Kind.STATEMENT, Kind.OTHER, Kind.OTHER, Kind.STATEMENT]
    for number, kind in enumerate(kinds):
        shares.run(f"{number}", kind=kind)
    assert [shares.ended(kind=kind) for kind in (Kind.STATEMENT, *kinds)] == [
        ["0"], ["1"], ["2"], ["3"], [],
    ]  # fmt: skip
    assert (shares.usual_count, shares.running) == (0, {})


# --- at a server ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(workers=8) as running:
        with herdpy.connect(running.url, autocommit=True) as first:
            first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            first.execute("INSERT INTO t SELECT i, i FROM (VALUES (1), (2)) AS v(i)")
            first.execute("CREATE USER root PASSWORD 'password' SUPERUSER")
            first.execute("CREATE USER ann PASSWORD 'password'")
            first.execute("GRANT SELECT, UPDATE ON t TO ann")
        yield running


@pytest.fixture(params=["tcp", "grpc"])
def url(request: pytest.FixtureRequest, server: RunningServer) -> str:
    return server.url if request.param == "tcp" else server.grpc_url


def log_in(url: str, user: str, **options: Any) -> herdpy.Connection:
    at = f"{url.replace('://', f'://{user}@')}/?retry_timeout_s=0"
    options = {"autocommit": True, **options}
    return herdpy.connect(at, password="password", **options)


def shown(connection: herdpy.Connection, *names: str) -> list[str]:
    return [connection.execute(f"SHOW {name}").fetchall()[0][0] for name in names]


def sqlstate_of(function: Callable[[], object]) -> str | None:
    try:
        function()
    except Error as error:
        return error.sqlstate
    return None


TIMEOUTS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")


def test_what_a_served_session_begins_with(server: RunningServer, url: str) -> None:
    with log_in(url, "root") as root:
        assert shown(root, *TIMEOUTS) == ["30s", "0", "600s"]
        root.execute("ALTER ROLE ann SET lock_timeout = '4s'")
        root.execute("ALTER ROLE ann SET MAXIMUM statement_timeout = '50s'")
        with log_in(url, "ann") as ann:
            assert shown(ann, *TIMEOUTS) == ["4s", "50s", "600s"]
            ann.execute("SET lock_timeout = '1h'")
            ann.execute("RESET lock_timeout")
            assert shown(ann, "lock_timeout") == ["4s"]
        with log_in(url, "ann", lock_timeout_s=9, idle_in_transaction_timeout_s=0) as ann:
            assert shown(ann, *TIMEOUTS) == ["9s", "50s", "0"]
        for asked in (51, 0):
            assert sqlstate_of(lambda s=asked: log_in(url, "ann", statement_timeout_s=s)) == "42501"
    with herdpy.connect(":memory:") as embedded:
        assert shown(embedded, *TIMEOUTS) == ["0", "0", "0"]


def test_connections_of_a_user_have_a_limit(server: RunningServer, url: str) -> None:
    with log_in(url, "root") as root:
        root.execute("ALTER ROLE ann CONNECTION LIMIT 3")
        held = [log_in(url, "ann") for _ in range(3)]
        assert [sqlstate_of(lambda: log_in(url, "ann")) for _ in range(5)] == ["53300"] * 5
        root.execute("SELECT 1")
        held.pop().close()
        while sqlstate_of(lambda: held.append(log_in(url, "ann"))) is not None:
            pass  # the server sees the end of the other one a moment later
        root.execute("ALTER ROLE ann CONNECTION LIMIT 0")
        assert held[0].execute("SELECT 1").fetchone() == (1,)
        assert sqlstate_of(lambda: log_in(url, "ann")) == "53300"
        root.execute("ALTER ROLE ann CONNECTION LIMIT -1")
        held.append(log_in(url, "ann"))
    for each in held:
        each.close()


@contextmanager
def held_turns(server: RunningServer, count: int) -> Iterator[None]:
    """Have so many statements of ann run, as it were."""
    workers, is_over = server.server._workers, threading.Event()
    shares = server.server._hub.default.shares

    async def begin() -> None:
        (user,) = (each for each in shares.connections if each.name == "ann")

        def start() -> None:
            job = workers.submit(is_over.wait, is_urgent=False)
            job.add_done_callback(lambda _: shares.end(user, Kind.STATEMENT))

        for _ in range(count):
            assert shares.begin(user, Kind.STATEMENT, start) is None

    server.call(begin)
    try:
        yield
    finally:
        is_over.set()


def until_waiting(server: RunningServer, count: int) -> None:
    while server.server._hub.default.shares.waiting_count != count:
        pass


def test_statements_of_a_user_take_turns(server: RunningServer, url: str) -> None:
    with log_in(url, "root") as root:
        root.execute("ALTER ROLE ann SET MAXIMUM running_statements = 2")
        waiting = [log_in(url, "ann") for _ in range(6)]
        found: list[int] = []

        def read(connection: herdpy.Connection) -> None:
            found.append(connection.execute("SELECT count(*) FROM t").fetchall()[0][0])

        with Background() as background, held_turns(server, 2):
            for each in waiting:
                background.start(lambda each=each: read(each))
            until_waiting(server, 6)
            assert root.execute("SELECT count(*) FROM t").fetchone() == (2,)
            assert found == []
            assert server.server._workers.usual_count == 2
        assert found == [2] * 6
        assert server.server._hub.default.shares.running == {}
    for each in waiting:
        each.close()


def test_a_wait_for_a_turn_is_cancelled_and_ends_with_its_connection(
    server: RunningServer, url: str
) -> None:
    errors: list[str | None] = []
    with log_in(url, "root") as root:
        root.execute("ALTER ROLE ann SET MAXIMUM running_statements = 1")
        cancelled, killed, kept = (log_in(url, "ann") for _ in range(3))
        query = "SELECT id FROM sysclients WHERE user_name = 'ann' ORDER BY id"
        numbers = [number for (number,) in root.execute(query).fetchall()]
        with Background() as background, held_turns(server, 1):
            for count, each in enumerate((cancelled, killed), 1):
                background.start(
                    lambda each=each: errors.append(
                        sqlstate_of(lambda: each.execute("SELECT count(*) FROM t"))
                    )
                )
                until_waiting(server, count)
            cancelled.cancel()
            until_waiting(server, 1)
            root.execute(f"KILL CONNECTION {numbers[1]}")
            until_waiting(server, 0)
        assert sorted(map(str, errors)) == ["57014", "57P01"]
        assert kept.execute("SELECT count(*) FROM t").fetchone() == (2,)
        assert cancelled.execute("SELECT count(*) FROM t").fetchone() == (2,)
    for each in (cancelled, killed, kept):
        each.close()


def test_a_statement_behind_a_lock_takes_a_turn_again(server: RunningServer, url: str) -> None:
    with log_in(url, "root") as root:
        root.execute("ALTER ROLE ann SET MAXIMUM running_statements = 1")
        waiter, other = log_in(url, "ann"), log_in(url, "ann")
        root.execute("BEGIN")
        root.execute("UPDATE t SET v = 7 WHERE id = 1")
        with Background() as background:
            update = "UPDATE t SET v = v + 1 WHERE id = 1"
            background.start(lambda: waiter.execute(update))
            while server.server._workers.parked_count != 1:
                pass
            # While it waits for the lock it has no turn.
            assert other.execute("SELECT count(*) FROM t").fetchone() == (2,)
            with held_turns(server, 1):
                root.execute("COMMIT")
                until_waiting(server, 1)
        assert root.execute("SELECT v FROM t WHERE id = 1").fetchone() == (8,)
        assert server.server._hub.default.shares.running == {}
    for each in (waiter, other):
        each.close()
