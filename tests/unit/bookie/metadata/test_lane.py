"""The one ordered queue: order over delays, waiters before the next event, errors and clear()."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bookie.metadata.lane import Lane, Turns
from tests.fixtures.versioned_stores import until
from tests.sim.loop import SimulatedLoop

Scenario = Callable[[], Coroutine[Any, Any, None]]


def run_real(scenario: Scenario) -> None:
    asyncio.run(scenario())


def run_simulated(scenario: Scenario) -> None:
    loop = SimulatedLoop(1)
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


@pytest.fixture(params=[run_real, run_simulated])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return request.param


def new_lane() -> Lane:
    return Lane(contextvars.copy_context())


def test_a_waiter_goes_on_before_the_next_event(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        lane = new_lane()
        log: list[str] = []
        answered = asyncio.get_running_loop().create_future()

        async def ask() -> None:
            await answered
            log.append("answer")

        asking = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        lane.post(0.0, lambda: answered.set_result(None))
        lane.post(0.0, lambda: log.append("event"))
        await asking
        await until(lambda: len(log) == 2)
        assert log == ["answer", "event"]

    run(scenario)


def test_a_short_delay_waits_for_a_long_one(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        lane, loop = new_lane(), asyncio.get_running_loop()
        log: list[tuple[int, float]] = []
        begin_s = loop.time()
        for number, delay_s in enumerate((0.02, 0.0, 0.01, 0.03, 0.0)):
            lane.post(delay_s, lambda number=number: log.append((number, loop.time())))
        await until(lambda: len(log) == 5)
        assert [number for number, _ in log] == [0, 1, 2, 3, 4]
        assert log[0][1] >= begin_s + 0.02
        assert log[3][1] >= begin_s + 0.03

    run(scenario)


def test_what_is_posted_from_within_comes_last(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        lane = new_lane()
        log: list[str] = []

        def first() -> None:
            lane.post(0.0, lambda: log.append("third"))
            log.append("first")

        lane.post(0.0, first)
        lane.post(0.0, lambda: log.append("second"))
        await until(lambda: len(log) == 3)
        assert log == ["first", "second", "third"]

    run(scenario)


def test_clear_forgets_also_from_within(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        lane = new_lane()
        log: list[str] = []

        def cut() -> None:
            lane.clear()
            lane.post(0.0, lambda: log.append("after"))

        lane.post(0.0, cut)
        lane.post(0.0, lambda: log.append("lost"))
        lane.post(0.01, lambda: log.append("lost too"))
        await until(lambda: len(log) > 0)
        await asyncio.sleep(0.05)
        assert log == ["after"]
        lane.post(0.0, lambda: log.append("lost again"))
        lane.clear()
        await asyncio.sleep(0.01)
        assert log == ["after"]

    run(scenario)


def test_an_error_does_not_stop_the_lane() -> None:
    async def scenario() -> None:
        reports: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(context["exception"]))
        lane = new_lane()
        error = RuntimeError("broken")
        log: list[str] = []

        def fail() -> None:
            raise error

        lane.post(0.0, fail)
        lane.post(0.0, lambda: log.append("next"))
        await until(lambda: len(log) == len(reports) == 1)
        assert (log, reports) == (["next"], [error])

    run_real(scenario)


def test_a_loop_turns_as_long_as_it_runs_what_it_was_given_in_time() -> None:
    given: list[Callable[[], None]] = []
    now_s = 10.0
    turns = Turns(given.append, lambda: now_s)
    assert turns.are_within(3.0)
    now_s = 12.9
    assert turns.are_within(3.0)
    assert len(given) == 1  # one at a time is under way
    now_s = 13.0
    assert not turns.are_within(3.0)
    now_s = 100.0
    assert not turns.are_within(3.0)
    given.pop()()
    assert turns.are_within(3.0)
    assert len(given) == 1
