"""A long call beside the main thread: its value, its error, and an interrupt of the waiting."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import herdpy
from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.ticket import Ticket
from herdpy.engine.statements.aside import run_aside


class Interrupted(ThreadDriver):
    """Its waits are interrupted, as by Ctrl-C, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def wait(self, ticket: Ticket[Any], *more: Any) -> bool:
        if self.left:
            self.left -= 1
            raise KeyboardInterrupt
        return super().wait(ticket, *more)


def nothing() -> None:
    raise AssertionError("it is stopped")


def test_the_value_comes_of_another_thread() -> None:
    assert run_aside(ThreadDriver(), threading.get_ident, nothing) != threading.get_ident()


def test_its_error_is_raised() -> None:
    with pytest.raises(LookupError, match="here"):
        run_aside(ThreadDriver(), lambda: {}["here"], nothing)  # type: ignore[index]


def test_an_interrupt_stops_the_call_until_it_has_ended() -> None:
    stops, is_over = list[int](), threading.Event()

    def stop() -> None:
        stops.append(1)
        if len(stops) == 3:  # the first ones may come too early
            is_over.set()

    with pytest.raises(KeyboardInterrupt):
        run_aside(Interrupted(1), is_over.wait, stop)
    assert len(stops) >= 3
    assert is_over.is_set()


def test_a_long_text_is_planned_aside_and_ended_by_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes while DuckDB plans in another thread stops it there."""
    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        outputs = ", ".join(f"avg(id + {n})" for n in range(150))
        text = f"SELECT {outputs} FROM (SELECT * FROM t ORDER BY upper(s)) AS t"
        assert len(connection.execute(text).fetchall()) == 1
        wait: Callable[..., bool] = ThreadDriver.wait
        raised: list[int] = []

        def interrupted(self: ThreadDriver, ticket: Ticket[Any], *more: Any) -> bool:
            if not raised and threading.current_thread() is threading.main_thread():
                raised.append(1)
                raise KeyboardInterrupt
            return wait(self, ticket, *more)

        monkeypatch.setattr(ThreadDriver, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.execute(f"{text} ")
        assert raised
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
