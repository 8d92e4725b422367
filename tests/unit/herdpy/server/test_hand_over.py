"""What a server does while its node hands over: what is not begun waits, what is open ends."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import herdpy
from herdpy.cluster.served_part import Leader as KnownLeader
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.staleness import Staleness
from herdpy.cluster.tenure import Tenure
from herdpy.errors import Error, OperationalError, Retry
from tests.fixtures.servers import RunningServer, running_server
from tests.unit.herdpy.server.test_tenures import Asking


class Part(ServedPart):
    """Tells when something waits to begin."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__("default", "n1", Staleness(lambda: 0.0))
        self.tenure = Tenure(lambda: 0.0, loop.call_soon)
        self.tenure.renew(0.0, 1000.0)
        self.lead(self.tenure)
        self.waits = threading.Semaphore(0)

    def wait_to_begin(self, callback: Any) -> None:
        super().wait_to_begin(callback)
        self.waits.release()


class Leader:
    def __init__(self, server: RunningServer, part: Part) -> None:
        self.server = server
        self.part = part
        self.url = f"{server.url}?retry_timeout_s=0"

    def on_loop(self, call: Any) -> Any:
        async def run() -> Any:
            return call()

        return self.server.call(run)

    def until_waiting(self) -> None:
        assert self.part.waits.acquire(timeout=30)

    def drain(self, timeout_s: float, check: Any = lambda: None) -> None:
        self.server.call(lambda: self.server.server.drain_transactions(timeout_s, check))

    def move(self) -> None:
        """End, as a leader that has handed over to n2."""

        def move() -> None:
            self.part.tenure.end()
            self.part.leader = KnownLeader("n2", "127.0.0.1:7")
            self.part.leave()

        self.on_loop(move)
        self.server.call(lambda: self.server.server.close())


@pytest.fixture
def leader() -> Iterator[Leader]:
    made: list[Part] = []

    def new_part(loop: asyncio.AbstractEventLoop) -> ServedPart:
        made.append(Part(loop))
        return made[0]

    with running_server(new_part=new_part) as server:
        with herdpy.connect(server.url, autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
            conn.execute("INSERT INTO t VALUES (1, 'a')")
            conn.execute("SELECT v FROM t WHERE id = 1").fetchall()
        yield Leader(server, made[0])


STATEMENTS = ("SELECT v FROM t WHERE id = 1", "SELECT v FROM t", "INSERT INTO t VALUES (2, 'b')")


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_waits_goes_on_when_the_hand_over_is_given_up(leader: Leader, text: str) -> None:
    with herdpy.connect(leader.url, autocommit=True) as conn:
        leader.on_loop(leader.part.defer)
        asking = Asking(lambda: conn.execute(text).rowcount)
        leader.until_waiting()
        assert asking.is_alive()
        leader.drain(0.0)  # what waits is nothing that is waited for
        leader.on_loop(leader.part.go_on)
        assert not isinstance(asking.result(), Error)


@pytest.mark.parametrize("text", STATEMENTS)
@pytest.mark.parametrize("autocommit", [True, False])
def test_what_waits_is_told_where_to_go_and_has_not_run(
    leader: Leader, text: str, autocommit: bool
) -> None:
    before = leader.server.engine.default.tablespace.state.lsn
    with herdpy.connect(leader.url, autocommit=autocommit) as conn:
        leader.on_loop(leader.part.defer)
        asking = Asking(lambda: conn.execute(text))
        leader.until_waiting()
        leader.move()
        error = asking.result()
    assert isinstance(error, OperationalError)
    assert (error.sqlstate, error.retry, error.leader) == ("25006", Retry.SAFE, "127.0.0.1:7")
    assert "node n2 at 127.0.0.1:7 leads it now" in error.message
    assert leader.server.engine.default.tablespace.state.lsn == before


def test_an_open_transaction_ends_as_it_likes(leader: Leader) -> None:
    with herdpy.connect(leader.url) as conn, herdpy.connect(leader.url, autocommit=True) as other:
        conn.execute("INSERT INTO t VALUES (2, 'b')")
        leader.on_loop(leader.part.defer)
        asking = Asking(lambda: other.execute("INSERT INTO t VALUES (3, 'c')"))
        leader.until_waiting()
        draining = Asking(lambda: leader.drain(60.0))
        conn.execute("INSERT INTO t VALUES (4, 'd')")
        conn.commit()
        assert draining.result() is None
        assert asking.is_alive()
        leader.on_loop(leader.part.go_on)
        asking.result()
        assert other.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,), (3,), (4,)]


def test_a_transaction_that_stays_open_is_told_40001(leader: Leader) -> None:
    conn = herdpy.connect(leader.url)
    with herdpy.connect(leader.url, autocommit=True) as other:
        conn.execute("INSERT INTO t VALUES (2, 'b')")
        leader.on_loop(leader.part.defer)
        leader.drain(0.0)
        leader.on_loop(leader.part.go_on)
        with pytest.raises(Error) as caught:
            conn.execute("INSERT INTO t VALUES (3, 'c')")
        conn.close()
        assert (caught.value.sqlstate, caught.value.retry) == ("40001", Retry.SAFE)
        assert other.execute("SELECT id FROM t").fetchall() == [(1,)]  # its locks are gone, too


def test_what_waits_can_be_cancelled_and_its_client_can_go(leader: Leader) -> None:
    with herdpy.connect(leader.url, autocommit=True) as conn:
        leader.on_loop(leader.part.defer)
        asking = Asking(lambda: conn.execute("INSERT INTO t VALUES (2, 'b')"))
        leader.until_waiting()
        conn.cancel()
        assert asking.result().sqlstate == "57014"
        begin = Asking(lambda: conn.execute("BEGIN"))
        leader.until_waiting()
        conn.cancel()
        assert begin.result().sqlstate == "57014"
        gone = herdpy.connect(leader.url, autocommit=True)
        asking = Asking(lambda: gone.execute("INSERT INTO t VALUES (2, 'b')"))
        leader.until_waiting()
        gone.close()
        asking.result()
        leader.on_loop(leader.part.go_on)
        assert conn.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_a_drain_ends_when_the_hand_over_must_not_go_on(leader: Leader) -> None:
    def check() -> None:
        raise OperationalError("the wish is gone", sqlstate="55000")

    with herdpy.connect(leader.url) as conn:
        conn.execute("INSERT INTO t VALUES (2, 'b')")
        leader.on_loop(leader.part.defer)
        with pytest.raises(OperationalError, match="the wish is gone"):
            leader.drain(60.0, check)
        leader.on_loop(leader.part.go_on)
        conn.commit()
