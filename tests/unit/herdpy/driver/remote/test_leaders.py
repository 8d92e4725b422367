"""What finds the leader: named nodes, one question for all, sessions that are shared."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import herdpy
from bookie.runtime.ticket import Ticket
from herdpy.driver.dsn import Address, RemoteTarget, ZooKeeper, parse_target
from herdpy.driver.local import ThreadWaiting
from herdpy.driver.remote.leaders import (
    ANSWER_S,
    LeaderConnector,
    LookedUp,
    SeedNodes,
    Told,
    is_away,
    is_led_no_more,
    is_not_led,
)
from herdpy.driver.remote.locators import SharedLocators
from herdpy.driver.remote.session import ThreadWaits
from herdpy.errors import (
    ConnectionLostError,
    Error,
    InternalError,
    LogFailedError,
    OperationalError,
    ProgrammingError,
    Retry,
)
from tests.fixtures.engines import Background

A, B, C, D = (Address(name, 7000) for name in "abcd")
WAITS = ThreadWaits()


def refused(leader: str | None = None) -> Error:
    error = OperationalError("refused", sqlstate="08001", retry=Retry.SAFE)
    error.leader = leader
    return error


def order_of(seeds: SeedNodes, *errors: Error) -> list[Address]:
    """Return which nodes come when each one fails with these."""
    found = [seeds.locate(WAITS, ANSWER_S)]
    for error in errors:
        seeds.failed(found[-1], error)
        found.append(seeds.locate(WAITS, ANSWER_S))
    return [each.address for each in found]


class TestSeedNodes:
    def test_they_come_in_their_order_from_the_last_that_led(self) -> None:
        seeds = SeedNodes([A, B, C])
        assert order_of(seeds, refused()) == [A, B]
        assert order_of(seeds, refused(), refused()) == [B, C, A]

    def test_one_failure_that_many_meet_counts_once(self) -> None:
        seeds = SeedNodes([A, B, C])
        old = seeds.locate(WAITS, ANSWER_S)
        for _ in range(50):
            seeds.failed(old, refused())
        assert seeds.locate(WAITS, ANSWER_S).address == B

    def test_a_node_names_the_leader(self) -> None:
        seeds = SeedNodes([A, B, C])
        assert order_of(seeds, refused("c:7000"), refused()) == [A, C, A]

    def test_a_node_names_a_leader_that_the_url_does_not(self) -> None:
        seeds = SeedNodes([A, B, C])
        assert order_of(seeds, refused("d:7000"), refused(), refused()) == [A, D, B, C]

    @pytest.mark.parametrize("leader", ["a:7000", "?", ""])
    def test_what_a_node_names_in_vain(self, leader: str) -> None:
        assert order_of(SeedNodes([A, B, C]), refused(leader)) == [A, B]


class Directory:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Told], object]] = []
        self.has_asked = threading.Event()
        self.closed: Ticket[None] | None = None

    def ask(self, done: Callable[[Told], object]) -> None:
        self.asked.append(done)
        self.has_asked.set()

    def find(self, root: str, tablespace: str, read: str, done: Callable[[Told], object]) -> None:
        self.ask(done)

    def close(self) -> Ticket[None]:
        self.closed = Ticket()
        return self.closed


class Counted(ThreadWaiting):
    """Tells when so many wait."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.locators = SharedLocators(lambda hosts: Directory())
        self.rng = None
        self._count = count
        self._mutex = threading.Lock()
        self.are_there = threading.Event()

    def open_stream(self, target: RemoteTarget) -> Any:
        raise AssertionError("no connection is made")

    def wait(self, ticket: Ticket[Any], deadline: float) -> bool:
        with self._mutex:
            self._count -= 1
            if not self._count:
                self.are_there.set()
        return super().wait(ticket, deadline)


class Late(ThreadWaits):
    """Has the time that the test says."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class TestLookedUp:
    @pytest.mark.parametrize("answer", [[A], refused()])
    def test_a_hundred_ask_once(self, answer: Told) -> None:
        directory = Directory()
        looked_up, waits = LookedUp(directory.ask, "it"), Counted(100)
        told: list[Any] = []

        def locate() -> None:
            try:
                told.append(looked_up.locate(waits, ANSWER_S).address)
            except Error as error:
                told.append(error)

        with Background() as background:
            for _ in range(100):
                background.start(locate)
            assert waits.are_there.wait(60)
            (done,) = directory.asked
            done(answer)
        if isinstance(answer, Error):
            assert {str(error) for error in told} == {str(answer)}
            assert len(set(map(id, told))) == 100
        else:
            assert told == [A] * 100

    def test_what_is_known_is_told_until_it_fails(self) -> None:
        directory = Directory()
        looked_up = LookedUp(directory.ask, "it")
        with Background() as background:
            background.start(lambda: looked_up.locate(WAITS, ANSWER_S))
            assert directory.has_asked.wait(60)
            directory.asked.pop()([A])
        old = looked_up.locate(WAITS, ANSWER_S)
        assert (old.address, directory.asked) == (A, [])
        looked_up.failed(old, refused())
        directory.has_asked.clear()
        with Background() as background:
            background.start(lambda: looked_up.locate(WAITS, ANSWER_S))
            assert directory.has_asked.wait(60)
            directory.asked.pop()([B])
        looked_up.failed(old, refused())  # of another, which comes late
        assert looked_up.locate(WAITS, ANSWER_S).address == B

    def test_a_question_that_cannot_be_asked_does_not_stay(self) -> None:
        asked: list[int] = []

        def ask(done: Callable[[Told], object]) -> None:
            asked.append(1)
            if len(asked) == 1:
                raise KeyboardInterrupt
            done([A])

        looked_up = LookedUp(ask, "it")
        with pytest.raises(KeyboardInterrupt):
            looked_up.locate(WAITS, ANSWER_S)
        assert looked_up.locate(WAITS, ANSWER_S).address == A

    def test_a_question_that_no_time_is_left_for_is_the_next_one_s(self) -> None:
        directory = Directory()
        looked_up = LookedUp(directory.ask, "the one at x")
        for _ in range(3):
            with pytest.raises(OperationalError, match="the one at x did not tell in 0 s") as late:
                looked_up.locate(WAITS, 0.0)
            assert (late.value.sqlstate, late.value.retry) == ("08001", Retry.SAFE)
        (done,) = directory.asked
        done([A])
        assert looked_up.locate(WAITS, 0.0).address == A

    def test_a_question_that_is_never_answered_is_asked_again(self) -> None:
        directory, waits = Directory(), Late()
        looked_up = LookedUp(directory.ask, "it")
        for now_s in (0.0, ANSWER_S - 1.0, ANSWER_S, ANSWER_S + 1.0):
            waits.now_s = now_s
            with pytest.raises(OperationalError):
                looked_up.locate(waits, 0.0)
        assert len(directory.asked) == 2
        directory.asked[0]([B])  # of old
        directory.asked[1]([A])
        assert looked_up.locate(waits, 0.0).address == A

    def test_no_more_than_the_budget_that_is_left_is_waited_for(self) -> None:
        url = "herd+zk://127.0.0.1:1/t?retry_timeout_s=0.001"  # no ZooKeeper: it says so after 5 s
        with pytest.raises(OperationalError, match=r"127\.0\.0\.1:1 did not tell in"):
            herdpy.connect(url)


def connector(url: str, connect: Callable[[RemoteTarget, bool], Any]) -> LeaderConnector:
    target = parse_target(url)
    assert isinstance(target, RemoteTarget)
    return LeaderConnector(target, SeedNodes(target.places), WAITS, connect)


class TestConnector:
    def test_one_round_and_what_it_met(self) -> None:
        tried: list[str] = []

        def connect(target: RemoteTarget, autocommit: bool) -> Any:
            tried.append(target.where)
            raise OperationalError(f"connect: {target.host}!", sqlstate="08001", retry=Retry.SAFE)

        with pytest.raises(OperationalError) as caught:
            connector("herd://a,b/t", connect).connect(True)
        assert tried == ["herd://a:7000/t", "herd://b:7000/t"]
        assert (caught.value.sqlstate, caught.value.retry) == ("08001", Retry.SAFE)
        assert caught.value.message == (
            "connect: no node of herd://a:7000,b:7000/t leads now: a:7000: a!; b:7000: b!"
        )

    @pytest.mark.parametrize(
        "error",
        [
            OperationalError("no such user", sqlstate="28000"),
            OperationalError("full", sqlstate="53300", retry=Retry.SAFE),
            ProgrammingError("no"),
        ],
    )
    def test_what_is_not_about_the_node_is_told_at_once(self, error: Error) -> None:
        tried: list[str] = []

        def connect(target: RemoteTarget, autocommit: bool) -> Any:
            tried.append(target.host)
            raise error

        with pytest.raises(type(error)) as caught:
            connector("herd://a,b/t", connect).connect(True)
        assert (caught.value, tried) == (error, ["a"])

    @pytest.mark.parametrize(
        "error",
        [
            ProgrammingError("none of the name", sqlstate="3D000"),
            OperationalError("no TLS", sqlstate="08001"),
        ],
    )
    def test_what_one_node_refuses_for_good_another_may_do(self, error: Error) -> None:
        def connect(target: RemoteTarget, autocommit: bool) -> Any:
            if target.host == "a":
                raise error
            return target.host

        assert connector("herd://a,b/t", connect).connect(True) == "b"

        def refuse(target: RemoteTarget, autocommit: bool) -> Any:
            raise error

        with pytest.raises(type(error)) as caught:  # not to be tried again
            connector("herd://a,b/t", refuse).connect(True)
        assert caught.value is error


@pytest.mark.parametrize(
    ("error", "not_led", "led_no_more", "away"),
    [
        (OperationalError("", sqlstate="25006", retry=Retry.SAFE), True, True, True),
        (InternalError("read-only transaction", sqlstate="25006"), False, False, False),
        (OperationalError("", sqlstate="57P03", retry=Retry.SAFE), True, True, True),
        (OperationalError("", sqlstate="57P01", retry=Retry.SAFE), True, True, True),
        (OperationalError("KILL", sqlstate="57P01"), False, False, False),
        (LogFailedError("stopped", sqlstate="58030", retry=Retry.NEVER), True, True, True),
        (LogFailedError("unknown"), False, True, False),
        (OperationalError("disk", sqlstate="58030"), False, False, False),
        (ConnectionLostError("lost"), False, False, True),
        (OperationalError("refused", sqlstate="08001", retry=Retry.SAFE), False, False, True),
        (OperationalError("no TLS", sqlstate="08001"), False, False, False),
        (OperationalError("locks", sqlstate="55P03", retry=Retry.SAFE), False, False, False),
    ],
)
def test_which_errors_are_about_the_leader(
    error: Error, not_led: bool, led_no_more: bool, away: bool
) -> None:
    assert (is_not_led(error), is_led_no_more(error), is_away(error)) == (
        not_led,
        led_no_more,
        away,
    )


class TestSharedLocators:
    def test_named_nodes_are_remembered(self) -> None:
        locators = SharedLocators(lambda hosts: Directory())
        target = parse_target("herd://a,b/t?tls=off")
        same = parse_target("herd://ada@a,b/t")
        other = parse_target("herd://a,b/u")
        assert isinstance(target, RemoteTarget)
        assert isinstance(same, RemoteTarget)
        assert isinstance(other, RemoteTarget)
        seeds = locators.hold(target, 1)
        assert locators.hold(same, 2) is seeds
        assert locators.hold(other, 3) is not seeds
        assert locators.release(1) is None
        for number in range(256):
            another = parse_target(f"herd://a,b{number}/t")
            assert isinstance(another, RemoteTarget)
            locators.hold(another, 1)
        assert locators.hold(target, 1) is not seeds

    def test_a_session_is_of_all_that_name_the_servers(self) -> None:
        opened: dict[ZooKeeper, Directory] = {}

        def open_directory(zookeeper: ZooKeeper) -> Directory:
            return opened.setdefault(zookeeper, Directory())

        locators = SharedLocators(open_directory)
        target = parse_target("herd+zk://a,b/t")
        other = parse_target("herd+zk://a,b/u?root=/x")
        assert isinstance(target, RemoteTarget)
        assert isinstance(other, RemoteTarget)
        first = locators.hold(target, "one")
        assert locators.hold(target, "two") is first
        assert locators.hold(other, "three") is not first
        servers = ZooKeeper("a:2181,b:2181")
        assert list(opened) == [servers]
        for option in ("zookeeper_login=a", "zookeeper_tls=on", "zookeeper_tls_certificate=a"):
            another = parse_target(f"herd+zk://a,b/t?{option}")
            assert isinstance(another, RemoteTarget)
            assert locators.hold(another, option) is not first
            assert locators.release(option) is not None
        assert len(opened) == 4
        assert locators.release("one") is None
        assert locators.release("two") is None
        assert locators.release("two") is None
        directory = opened.pop(servers)
        assert directory.closed is None
        assert locators.release("three") is directory.closed
        assert directory.closed is not None
        locators.hold(target, "four")
        assert opened[servers] is not directory
