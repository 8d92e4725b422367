"""ThreadDriver and Bell: no wake-up is lost, no wait outlasts its deadline, no death is silent."""

import signal
import threading
from typing import Any

import pytest

from bookie.runtime.drivers import Bell, Mutex, ThreadDriver, new_mutex
from bookie.runtime.interfaces import Clock, Driver, WaitEndedError
from bookie.runtime.os_clock import OsClock
from bookie.runtime.ticket import Ticket

LONG_S = 60.0  # never waited for: a test that reaches it fails


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_us(self) -> int:
        return int(self.now * 1e6)


@pytest.fixture
def driver() -> Driver:
    return ThreadDriver()


def test_mutex() -> None:
    mutex: Mutex | None = new_mutex()
    with mutex:
        assert not mutex.acquire(blocking=False)
    assert isinstance(mutex, Mutex)


def test_bell_keeps_one_ring() -> None:
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(LONG_S)
    assert not bell.wait(0)
    assert not bell.wait(-1.0)
    bell.ring()
    assert bell.wait(None)


def test_bell_between_threads(driver: Driver) -> None:
    ping, pong = driver.new_bell(), driver.new_bell()

    def answer() -> None:
        for _ in range(100):
            assert ping.wait(LONG_S)
            pong.ring()

    worker = driver.spawn("answer", answer)
    for _ in range(100):
        ping.ring()
        assert pong.wait(LONG_S)
    assert worker.join(LONG_S)


def test_bell_with_many_ringers_wakes_after_the_last(driver: Driver) -> None:
    bell = driver.new_bell()
    rung: list[int] = []

    def ring() -> None:
        for i in range(200):
            rung.append(i)
            bell.ring()

    workers = [driver.spawn(f"ringer {i}", ring) for i in range(4)]
    while len(rung) < 800:
        assert bell.wait(LONG_S)
    for worker in workers:
        assert worker.join(LONG_S)


def test_spawn(driver: Driver) -> None:
    bell = driver.new_bell()
    worker = driver.spawn("herdpy-test", lambda: bell.wait(LONG_S))
    assert worker.name == "herdpy-test"
    assert worker.is_alive
    assert not worker.join(0)
    assert "herdpy-test" in {thread.name for thread in threading.enumerate() if thread.daemon}
    bell.ring()
    assert worker.join(LONG_S)
    assert not worker.is_alive


@pytest.mark.parametrize("error", [ValueError("died"), SystemExit(3)])
def test_a_death_is_reported(error: BaseException) -> None:
    deaths: list[tuple[str, BaseException]] = []

    def die() -> None:
        raise error

    driver = ThreadDriver(lambda name, error: deaths.append((name, error)))
    assert driver.spawn("mortal", die).join(LONG_S)
    assert deaths == [("mortal", error)]


def test_a_death_without_listener_reaches_the_excepthook(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda hook: seen.append(hook.exc_type))
    assert driver.spawn("mortal", lambda: 1 // 0).join(LONG_S)
    assert seen == [ZeroDivisionError]


def test_wait_for_a_ticket_of_another_thread(driver: Driver) -> None:
    for _ in range(100):
        ticket: Ticket[int] = Ticket()
        worker = driver.spawn("completer", lambda ticket=ticket: ticket.complete(5))
        assert driver.wait(ticket)
        assert ticket.result() == 5
        assert worker.join(LONG_S)


def test_wait_deadline(driver: Driver) -> None:
    ticket: Ticket[int] = Ticket()
    now = OsClock().monotonic()
    assert not driver.wait(ticket, now - 1)
    assert not driver.wait(ticket, now + 0.002)
    assert OsClock().monotonic() >= now + 0.002
    ticket.complete(1)
    assert driver.wait(ticket, now - 1)  # what is done is done


def test_wait_uses_the_clock_it_was_given() -> None:
    clock = HandClock()
    ticket: Ticket[int] = Ticket()
    assert isinstance(clock, object)
    assert not ThreadDriver(clock=clock).wait(ticket, 100.0)


def test_wait_stop(driver: Driver) -> None:
    ticket: Ticket[int] = Ticket()
    stop: Ticket[None] = Ticket()
    worker = driver.spawn("stopper", lambda: stop.complete(None))
    assert not driver.wait(ticket, OsClock().monotonic() + LONG_S, stop)
    assert worker.join(LONG_S)
    ticket.complete(1)
    assert driver.wait(ticket, None, stop)


def test_waits_leave_nothing_on_a_stop_ticket(driver: Driver) -> None:
    stop: Ticket[None] = Ticket()
    for _ in range(10):
        assert not driver.wait(Ticket(), OsClock().monotonic() + 0.0001, stop)
    assert stop._callbacks == []


def test_an_interrupt_ends_a_wait(driver: Driver) -> None:
    ready, ended = driver.new_bell(), driver.new_bell()

    class Announcing(Ticket[int]):
        def on_done(self, callback: Any) -> None:
            super().on_done(callback)
            ready.ring()

    def interrupt() -> None:
        ready.wait(LONG_S)
        interrupted = False
        while not interrupted:  # a signal just before the system call of the wait is seen behind it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            interrupted = ended.wait(1.0)

    ticket = Announcing()
    worker = driver.spawn("interrupter", interrupt)
    with pytest.raises(KeyboardInterrupt):
        driver.wait(ticket, OsClock().monotonic() + LONG_S)
    ended.ring()
    assert worker.join(LONG_S)
    assert ticket._callbacks == []


def test_run(driver: Driver) -> None:
    first: Ticket[int] = Ticket()
    second: Ticket[int] = Ticket()
    second.complete(2)

    async def add() -> int:
        return await first + await second

    worker = driver.spawn("completer", lambda: first.complete(1))
    assert driver.run(add()) == 3
    assert worker.join(LONG_S)


def test_run_raises_what_the_coroutine_raises(driver: Driver) -> None:
    ticket: Ticket[int] = Ticket()
    ticket.fail(ValueError("no"))

    async def wait() -> int:
        return await ticket

    with pytest.raises(ValueError, match="no"):
        driver.run(wait())


@pytest.mark.parametrize("is_stopped", [False, True])
def test_run_throws_the_end_of_waiting_into_the_coroutine(driver: Driver, is_stopped: bool) -> None:
    stop: Ticket[None] = Ticket()
    if is_stopped:
        stop.complete(None)
    seen: list[bool] = []

    async def patient() -> str:
        try:
            return await Ticket[str]()
        except WaitEndedError as end:
            seen.append(end.is_stopped)
            return "translated"

    async def careless() -> str:
        try:
            return await Ticket[str]()
        finally:
            seen.append(True)

    deadline = None if is_stopped else OsClock().monotonic()
    assert driver.run(patient(), deadline, stop) == "translated"
    assert seen == [is_stopped]
    with pytest.raises(WaitEndedError):
        driver.run(careless(), deadline, stop)
    assert len(seen) == 2


def test_run_closes_the_coroutine_on_interrupt() -> None:
    class Interrupting(ThreadDriver):
        def wait(self, ticket: Any, deadline: Any = None, stop: Any = None) -> bool:
            raise KeyboardInterrupt

    seen: list[type] = []

    async def work() -> None:
        try:
            await Ticket[None]()
        except BaseException as error:
            seen.append(type(error))
            raise

    with pytest.raises(KeyboardInterrupt):
        Interrupting().run(work())
    assert seen == [KeyboardInterrupt]


def test_the_clock_is_a_clock() -> None:
    clock: Clock = OsClock()
    before = clock.monotonic()
    assert clock.monotonic() >= before
    assert clock.wall_us() > 1_600_000_000_000_000
