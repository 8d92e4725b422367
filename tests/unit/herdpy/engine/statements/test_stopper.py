"""A statement that cannot look is stopped again and again, until the call has ended."""

import pytest

from bookie.runtime.drivers import ThreadDriver
from herdpy.engine.statements.interrupt import StatementInterrupt
from herdpy.engine.statements.stopper import Stopper
from herdpy.errors import QueryCanceledError


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def time_us(self) -> int:
        return 0


class QuietDriver(ThreadDriver):
    """Starts no thread: the test does what the stopper's does."""

    def spawn(self, name: str, function: object) -> object:  # type: ignore[override]
        return None


def stopper(clock: Clock) -> Stopper:
    return Stopper(QuietDriver(clock=clock), clock)  # type: ignore[arg-type]


def test_a_cancel_is_repeated_until_the_call_has_ended() -> None:
    clock, stops = Clock(), list[int]()
    watching = stopper(clock)
    interrupt = StatementInterrupt(clock, 0.0)  # type: ignore[arg-type]
    interrupt.watch = watching.watch
    interrupt.on_cancel(lambda: stops.append(1))
    assert watching.stop_late() is None  # nothing to stop, nothing to come again for
    interrupt.cancel()
    assert len(stops) == 1
    for number in range(2, 5):
        assert watching.stop_late() is not None
        assert len(stops) == number
    interrupt.on_cancel(None)
    assert watching.stop_late() is None
    assert len(stops) == 4
    interrupt.on_cancel(lambda: stops.append(2))  # the next call: stopped at once, and again
    assert watching.stop_late() is not None
    assert stops[4:] == [2, 2]


def test_a_statement_is_stopped_behind_its_deadline() -> None:
    clock, stops = Clock(), list[int]()
    watching = stopper(clock)
    interrupt = StatementInterrupt(clock, 5.0)  # type: ignore[arg-type]
    interrupt.watch = watching.watch
    interrupt.on_cancel(lambda: stops.append(1))
    assert watching.stop_late() == pytest.approx(5.0)
    clock.now_s += 4.0
    assert watching.stop_late() == pytest.approx(1.0)
    assert not stops
    clock.now_s += 2.0
    assert watching.stop_late() is not None
    assert watching.stop_late() is not None
    assert len(stops) == 2
    with pytest.raises(QueryCanceledError):
        interrupt.check()
