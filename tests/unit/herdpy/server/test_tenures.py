"""What a server tells while it has no tenure: nothing that another node may have changed."""

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import herdpy
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.staleness import Staleness
from herdpy.cluster.tenure import Tenure
from herdpy.errors import OperationalError, Retry
from tests.fixtures.servers import RunningServer, running_server

LONG_S = 1000.0


class Watched(Tenure):
    """Tells when an answer, or a login, waits, and when it waits no more."""

    __slots__ = ("covers_count", "forgotten", "waits")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(lambda: 0.0, loop.call_soon)
        self.waits: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.forgotten: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.covers_count: int | None = None
        """How many more answers and logins it covers until it lapses; None: any number."""

    def holds(self) -> bool:
        if self.covers_count == 0:
            self.until_s, self.covers_count = -1.0, None
        elif self.covers_count is not None:
            self.covers_count -= 1
        return super().holds()

    def forget(self, callback: Callable[[], None]) -> None:
        super().forget(callback)
        self.forgotten.put(None)

    def wait(self, callback: Callable[[], None]) -> None:
        super().wait(callback)
        self.waits.put(None)


class Leader:
    """A server, whose tenure the test holds."""

    def __init__(self, server: RunningServer, tenure: Watched) -> None:
        self.server = server
        self.tenure = tenure
        self.renew()

    def on_loop(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return call()

        return self.server.call(run)

    def renew(self) -> None:
        self.on_loop(lambda: self.tenure.renew(0.0, LONG_S))

    def lapse(self) -> None:
        def lapse() -> None:
            self.tenure.until_s = -1.0

        self.on_loop(lapse)

    def until_waiting(self) -> None:
        self.tenure.waits.get(timeout=30)


@contextmanager
def leading(
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Generator[Leader]:
    """Give a leader, whose server runs on such a loop."""
    made: list[Watched] = []

    def new_part(loop: asyncio.AbstractEventLoop) -> ServedPart:
        made.append(Watched(loop))
        part = ServedPart("default", "n1", Staleness(lambda: 0.0))
        part.lead(made[0])
        return part

    with running_server(new_part=new_part, new_loop=new_loop) as server:
        yield Leader(server, made[0])


@pytest.fixture
def leader() -> Iterator[Leader]:
    with leading() as found:
        yield found


class Asking(threading.Thread):
    """A client's thread; `found` is what came of its question."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.found: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.found = self._ask()
        except herdpy.Error as error:
            self.found = error

    def result(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        return self.found


STATEMENTS = {
    "a row by its key": "SELECT v FROM t WHERE id = 1",
    "a query": "SELECT count(*) FROM t",
    "a write": "INSERT INTO t VALUES (2, 'b')",
    "a refusal": "INSERT INTO t VALUES (1, 'a')",
    "nothing": "UPDATE t SET v = 'x' WHERE id = 77",
    "an error of its text": "SELECT missing FROM t",
}
FAILING = ("a refusal", "an error of its text")


@pytest.mark.parametrize("scheme", ["herd", "herd+grpc"])
@pytest.mark.parametrize("kind", STATEMENTS)
def test_every_answer_waits_for_a_tenure(leader: Leader, kind: str, scheme: str) -> None:
    url = leader.server.url if scheme == "herd" else leader.server.grpc_url
    with herdpy.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        conn.execute("INSERT INTO t VALUES (1, 'a')")
        conn.execute("SELECT v FROM t WHERE id = 1").fetchall()
        leader.lapse()
        asking = Asking(lambda: conn.execute(STATEMENTS[kind]).rowcount)
        leader.until_waiting()
        assert asking.is_alive()
        leader.renew()
        assert isinstance(asking.result(), herdpy.Error) == (kind in FAILING)


def test_what_a_held_answer_was_about_is_not_known_when_the_server_ends(leader: Leader) -> None:
    url = f"{leader.server.url}?retry_timeout_s=0"
    with herdpy.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        leader.lapse()
        asking = Asking(lambda: conn.execute("INSERT INTO t VALUES (1)"))
        leader.until_waiting()
        leader.on_loop(leader.tenure.end)
        leader.server.call(lambda: leader.server.server.close())
        found = asking.result()
    assert isinstance(found, OperationalError)
    assert (found.sqlstate, found.retry) == ("57P01", Retry.UNKNOWN)


def test_a_login_waits_for_a_tenure(leader: Leader) -> None:
    leader.lapse()
    asking = Asking(lambda: herdpy.connect(leader.server.url, autocommit=True))
    leader.until_waiting()
    assert asking.is_alive()
    leader.renew()
    with asking.result() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_what_is_held_for_a_client_goes_with_it(leader: Leader) -> None:
    conn = herdpy.connect(f"{leader.server.url}?retry_timeout_s=0", autocommit=True)
    leader.lapse()
    asking = Asking(lambda: conn.execute("SELECT 1").fetchone())
    leader.until_waiting()
    leader.on_loop(lambda: next(iter(leader.server.server._hub.connections)).cut_off("a test"))
    assert isinstance(asking.result(), herdpy.Error)
    assert leader.on_loop(lambda: leader.tenure.waiting_count) == 0


def test_one_that_fails_keeps_none_of_the_others(leader: Leader) -> None:
    def fail() -> None:
        raise MemoryError

    with herdpy.connect(leader.server.url, autocommit=True) as conn:
        leader.lapse()
        leader.on_loop(lambda: leader.tenure.wait(fail))
        leader.until_waiting()
        asking = Asking(lambda: conn.execute("SELECT 1").fetchone())
        leader.until_waiting()
        leader.renew()
        assert asking.result() == (1,)
