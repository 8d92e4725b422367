"""A long call beside the main thread: its value, its error, and an interrupt of the waiting."""

import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import herdpy
from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.os_clock import OsClock
from bookie.runtime.ticket import Ticket
from herdpy.engine.statements.aside import Aside
from tests.fixtures.interrupts import LineInterrupter


class Held:
    """What a call holds."""


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


def asides() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "herdpy-aside"}


@contextmanager
def beside(driver: ThreadDriver | None = None) -> Iterator[Aside]:
    before = {*threading.enumerate()}
    with closing(Aside(driver or ThreadDriver(), OsClock())) as aside:
        yield aside
    assert not asides() - before


def test_the_value_comes_of_another_thread_which_waits_for_the_next_call() -> None:
    with beside() as aside:
        first = aside(threading.get_ident, nothing)
        assert first != threading.get_ident()
        assert aside(threading.get_ident, nothing) == first


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_call_has_held_is_gone_with_its_value(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """The thread that ran it may be kept from going on just behind its end."""
    goes_on = threading.Event()

    class Kept(Ticket[None]):
        def complete(self, value: None) -> None:
            super().complete(value)
            goes_on.wait(10)

    monkeypatch.setattr("herdpy.engine.statements.aside.Ticket", Kept)
    held, made = Held(), Held()
    ends = [weakref.ref(held), weakref.ref(made)]
    values = [made]

    def call(holds: Held) -> Held:
        if fails:
            raise ValueError(repr(holds))
        return values.pop()

    with beside() as aside:
        calls = [partial(call, held)]
        del held, made
        with suppress(ValueError):
            aside(calls.pop(), nothing)
        values.clear()
        assert [each() for each in ends] == [None, None]
        goes_on.set()


def test_another_thread_than_the_main_one_hears_no_signals_and_runs_it_itself() -> None:
    with beside() as aside, ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: (aside(threading.get_ident, nothing), threading.get_ident()))
        used, own = found.result()
        assert used == own


def test_its_error_is_raised_and_does_not_keep_what_the_call_held() -> None:
    held = Held()

    def fail(_held: Held) -> None:
        raise LookupError("here")

    with beside() as aside:
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(LookupError, match="here"):
                aside(partial(fail, held), nothing)
            seen = weakref.ref(held)
            del held
            assert seen() is None
        finally:
            gc.enable()


def test_a_call_behind_the_close_is_run_by_its_caller() -> None:
    """Another thread closes the database between the look at it and the call."""
    with beside() as aside:
        aside(threading.get_ident, nothing)
        aside.close()
        assert aside(threading.get_ident, nothing) == threading.get_ident()


def test_one_that_is_forgotten_leaves_no_thread() -> None:
    before = {*threading.enumerate()}
    aside = Aside(ThreadDriver(), OsClock())
    aside(threading.get_ident, nothing)
    (thread,) = asides() - before
    del aside
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_handler_of_a_signal_may_call_it_while_it_waits() -> None:
    class Handling(ThreadDriver):
        found: tuple[int, ...] = ()

        def wait(self, ticket: Ticket[Any], *more: Any) -> bool:
            if not self.found:
                self.found = (0,)
                self.found = (aside(threading.get_ident, nothing),)
            return super().wait(ticket, *more)

    driver = Handling()
    with beside(driver) as aside:
        begun = aside(threading.get_ident, nothing)
        assert driver.found != (begun,)


def test_an_interrupt_stops_the_call_until_it_has_ended() -> None:
    stops, is_over = list[int](), threading.Event()

    def stop() -> None:
        stops.append(1)
        if len(stops) == 3:  # the first ones may come too early
            is_over.set()

    with beside(Interrupted(1)) as aside:
        with pytest.raises(KeyboardInterrupt):
            aside(is_over.wait, stop)
        assert len(stops) >= 3
        assert is_over.is_set()
        assert aside(lambda: 7, nothing) == 7


def test_an_interrupt_at_any_line_leaves_no_thread_behind() -> None:
    where, n = "first", 1
    while where:
        before = {*threading.enumerate()}
        with closing(Aside(ThreadDriver(), OsClock())) as aside:
            interrupter = LineInterrupter(n)
            with suppress(KeyboardInterrupt), interrupter:
                aside(lambda: 7, lambda: None)
            assert aside(threading.get_ident, nothing) != threading.get_ident()
        for each in asides() - before:  # of one that has not heard of its end yet
            each.join(10)
            assert not each.is_alive(), interrupter.where
        where, n = interrupter.where, n + 1
    assert n > 30


@pytest.mark.parametrize("rows", [0, 1], ids=["the first row", "the next one"])
def test_a_signal_ends_what_duckdb_computes_of_a_short_text(rows: int) -> None:
    """One step of a join of 3,600,000,000 pairs takes minutes, and looks for no signal."""
    raised: list[int] = []

    def interrupt(*_: Any) -> None:
        raised.append(1)
        raise KeyboardInterrupt

    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        given = [(n, f"abc{n % 100}") for n in range(60_000)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", given)
        last = "a.id = 0 OR" if rows else ""
        text = (
            f"SELECT b.id FROM t AS a, t AS b WHERE {last} repeat(a.s, 900) LIKE '%a_%b_%c' || b.s"
        )

        def read() -> None:
            cursor = connection.execute(text)
            while cursor.fetchmany(10_000):
                pass

        connection.execute("SELECT s FROM t ORDER BY upper(s)").fetchone()  # imports are made
        kept = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                read()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, kept)
        assert raised == [1]
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(60_000,)]


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


_AT_EXIT = """
import atexit, sys, herdpy
connection = herdpy.connect(sys.argv[1], autocommit=True)
connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")

@atexit.register
def report():
    print(connection.execute("SELECT sum(v) FROM t").fetchall())

connection.execute("SELECT sum(v) FROM t").fetchall()
"""
_FORKED = """
import os, sys, herdpy
connection = herdpy.connect(sys.argv[1], autocommit=True)
connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(30_000)])
reader = connection.execute("SELECT v FROM t WHERE v % 3 <> 1").fetch_record_batch()
reader.read_next_batch()
if os.fork() == 0:
    try:
        reader.read_next_batch()
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [(_AT_EXIT, "[(None,)]"), (_FORKED, "forked child")],
    ids=["exit", "fork"],
)
def test_where_there_is_no_thread(tmp_path: Path, program: str, expected: str) -> None:
    """Behind DuckDB's own exit handler no thread runs its Python; a forked child has none."""
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert expected in done.stdout, done.stderr
