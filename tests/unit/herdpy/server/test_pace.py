"""Requests over gRPC beside answers over sockets: how many of one caller are taken up a second."""

import asyncio

import pytest

from herdpy.server.pace import BESIDE_S, CALL, Pace

PER_S = 500
BURST = 10
"""Of 20 ms."""


class World:
    """A clock, and answers over sockets, that only the test moves."""

    def __init__(self) -> None:
        self.now_s, self.answers = 100.0, 0
        self.pace = Pace(lambda: self.now_s, lambda: self.answers, PER_S)

    def answer(self) -> None:
        self.answers += 1

    def delays(self, count: int, caller: str = "ada@default", each: int = 1) -> list[float]:
        return [self.pace.delay_s(caller, each) for _ in range(count)]


def test_no_request_waits_while_no_socket_is_answered() -> None:
    world = World()
    assert world.delays(10 * PER_S) == [0.0] * (10 * PER_S)
    assert world.pace.waits == 0


def test_beside_a_socket_requests_beyond_the_first_few_have_their_distance() -> None:
    world = World()
    world.answer()
    found = world.delays(BURST + 3)
    assert found[:BURST] == [0.0] * BURST
    assert [round(delay_s * PER_S, 6) for delay_s in found[BURST:]] == [1, 2, 3]
    assert world.pace.waits == 3


def test_in_a_second_a_caller_has_its_number_however_it_asks() -> None:
    world = World()
    taken_up: list[float] = []
    for _ in range(3 * PER_S):
        world.answer()
        world.now_s += 0.3 / PER_S
        taken_up.append(world.now_s + world.pace.delay_s("ada@default"))
    for start in range(0, len(taken_up), 100):
        within = [each for each in taken_up if 0 <= each - taken_up[start] < 1.0]
        assert len(within) <= PER_S + BURST


def test_another_caller_does_not_wait_for_it() -> None:
    world = World()
    world.answer()
    world.delays(10 * BURST)
    assert world.delays(BURST, "bob@default") == [0.0] * BURST


def test_what_is_owed_is_forgotten_when_sockets_are_silent() -> None:
    world = World()
    world.answer()
    world.delays(10 * PER_S)
    world.now_s += BESIDE_S
    assert world.delays(PER_S) == [0.0] * PER_S
    world.answer()
    assert world.delays(1) == [0.0]


def test_callers_that_need_not_wait_are_forgotten() -> None:
    world = World()
    for number in range(50_000):
        world.answer()
        world.now_s += 1.0 / PER_S
        world.pace.delay_s(f"192.0.2.{number}")
    assert len(world.pace._due_s) <= 1_100


def test_wait_waits_as_long_as_it_says() -> None:
    world = World()
    world.answer()
    world.delays(BURST)

    async def wait() -> float:
        slept: list[float] = []
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await world.pace.wait("ada@default")
        slept.append(loop.time() - begun_s)
        return slept[0]

    assert asyncio.run(wait()) >= 0.9 / PER_S


def test_a_call_counts_as_several_requests() -> None:
    world = World()
    world.answer()
    assert world.delays(BURST // CALL, each=CALL) == [0.0] * (BURST // CALL)
    assert world.delays(1, each=CALL) == [pytest.approx(2 / PER_S)]


def test_a_limit_of_none_is_no_limit() -> None:
    world = World()
    world.pace.per_s = 0
    world.answer()
    assert world.delays(10 * PER_S) == [0.0] * (10 * PER_S)
