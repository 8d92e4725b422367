"""The server's loop looks for the next request before it sleeps: for how long, and for whom."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from bookie.runtime.short_waits import PAUSE_MAX
from herdpy.server.spinning import LoopSpinning


class Turns:
    """A loop of which only the next turns are seen, and its clock: a microsecond each."""

    def __init__(self, step_s: float = 1e-6) -> None:
        self.now_s = 100.0
        self._step_s = step_s
        self._next: deque[Callable[[], Any]] = deque()

    def call_soon(self, callback: Callable[[], Any]) -> None:
        self._next.append(callback)

    def monotonic(self) -> float:
        return self.now_s

    def run(self, turns_max: int = 10_000) -> int:
        """Turn until the loop would sleep; return how often it did not."""
        for number in range(turns_max):
            if not self._next:
                return number
            self.now_s += self._step_s
            self._next.popleft()()
        return turns_max


def spinning(turns: Turns, *, spin_s: float = 50e-6, processors: int = 2) -> LoopSpinning:
    return LoopSpinning(turns, turns.monotonic, spin_s, processors)  # type: ignore[arg-type]


def test_a_request_in_time_ends_it_and_the_next_answer_begins_it() -> None:
    turns = Turns()
    looking = spinning(turns)
    looking.on_receive(1)
    for _ in range(1000):
        looking.on_receive(1)
        looking.on_reply()
        assert turns.run(20) == 20
        looking.on_receive(1)
        assert turns.run() == 1


def test_it_looks_no_longer_than_it_may() -> None:
    turns = Turns()
    looking = spinning(turns)
    looking.on_receive(1)
    looking.on_receive(1)
    looking.on_reply()
    assert 45 <= turns.run() <= 51


def test_it_gives_up_where_nobody_answers_in_time() -> None:
    turns, count = Turns(), 10 * PAUSE_MAX
    looking = spinning(turns)
    turned = 0
    for _ in range(count):
        looking.on_receive(1)
        looking.on_reply()
        turned += turns.run()
    assert 0 < turned < 20 * 50


def test_several_answers_in_one_turn_are_one_wait() -> None:
    turns = Turns()
    looking = spinning(turns)
    looking.on_receive(1)
    for _ in range(10):
        looking.on_receive(1)
        looking.on_reply()
    assert 45 <= turns.run() <= 51


@pytest.mark.parametrize(
    ("speakers", "processors", "is_looking"),
    [(1, 2, True), (2, 2, False), (2, 3, True), (8, 8, False), (7, 8, True), (1, 1, False)],
)
def test_it_leaves_processors_to_those_who_ask(
    speakers: int, processors: int, *, is_looking: bool
) -> None:
    turns = Turns()
    looking = spinning(turns, processors=processors)
    for number in range(100):
        looking.on_receive(number % speakers)
        if number >= speakers:
            looking.on_reply()
            assert bool(turns.run(1)) is is_looking


def test_zero_is_never() -> None:
    turns = Turns()
    looking = spinning(turns, spin_s=0.0)
    for _ in range(10):
        looking.on_receive(1)
        looking.on_reply()
    assert turns.run() == 0


def test_a_clock_that_stands_still_ends_it_too() -> None:
    turns = Turns(step_s=0.0)
    looking = spinning(turns)
    looking.on_receive(1)
    looking.on_receive(1)
    looking.on_reply()
    assert turns.run() <= 51
