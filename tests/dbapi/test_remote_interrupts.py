"""Ctrl-C at every line of the driver, and cursors left open, over a real connection."""

import gc
import threading
from contextlib import closing
from typing import Any

import pytest

import herdpy
from herdpy import errors
from herdpy.driver.remote import session as remote_session
from herdpy.server.requests import requests
from tests.fixtures.interrupts import LineInterrupter
from tests.fixtures.servers import RunningServer

pytestmark = pytest.mark.sync_face

ROWS = 3000
"""More than come with the answer."""


def filled(url: str) -> herdpy.Connection:
    connection = herdpy.connect(url, autocommit=True)
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"v{n}") for n in range(ROWS)])
    return connection


def read_all(connection: herdpy.Connection) -> None:
    cursor = connection.execute("SELECT id, v FROM t ORDER BY id")
    found = cursor.fetchmany(1500)
    found += cursor.fetchall()
    assert found == [(n, f"v{n}") for n in range(ROWS)]


@pytest.mark.parametrize(
    ("within", "lines_min"), [("/herdpy/driver/remote", 100), ("/bookie/runtime/os_stream", 5)]
)
def test_an_interrupt_at_every_line_of_the_driver(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, within: str, lines_min: int
) -> None:
    """The session goes on as if nothing had been; nothing hangs."""
    # So long it waits for an answer whose bytes the interrupt has swallowed.
    monkeypatch.setattr(remote_session, "_INTERRUPTED_S", 0.25)
    with closing(filled(server.url)):
        connection = herdpy.connect(server.url, autocommit=True)
        number = 0
        while True:
            number += 1
            interrupter = LineInterrupter(number, within=within)
            try:
                with interrupter:
                    read_all(connection)
            except KeyboardInterrupt:
                pass
            if not interrupter.where:
                break
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (ROWS,)
        connection.close()
    assert number > lines_min


def test_cursors_that_nobody_closed_leave_no_result_open(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RESULTS_MAX", 20)
    with closing(filled(server.url)) as connection:
        for _ in range(50):
            assert connection.execute("SELECT id FROM t").fetchone() is not None
        gc.collect()
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (ROWS,)


def test_a_cancel_in_the_middle_of_a_send_of_its_own_thread(server: RunningServer) -> None:
    """As a signal handler does it."""
    with closing(filled(server.url)) as connection:
        session: Any = connection._session
        session = getattr(session, "_session", session)
        send = session._stream.send
        sent: list[bytes] = []

        def send_and_cancel(data: bytes) -> None:
            session._stream.send = send
            session._running = 1  # what a request of another thread would be
            done = threading.Event()
            connection.cancel()
            done.set()
            sent.append(data)
            send(data)

        session._stream.send = send_and_cancel
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (ROWS,)
        assert len(sent) == 1
        assert not session._cancels


def test_a_cancel_right_behind_the_sending_is_heard(server: RunningServer) -> None:
    with closing(filled(server.url)) as connection:
        connection.execute("SET statement_timeout = '20s'")
        session: Any = connection._session
        session = getattr(session, "_session", session)
        send = session._stream.send

        def send_and_cancel(data: bytes) -> None:
            session._stream.send = send
            send(data)
            other = threading.Thread(target=connection.cancel)
            other.start()
            other.join()

        session._stream.send = send_and_cancel
        with pytest.raises(errors.QueryCanceledError, match="cancel"):
            connection.execute("SELECT count(*) FROM t a, t b, t c, t d WHERE a.id + d.id = -1")
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (ROWS,)


@pytest.mark.parametrize("size", [10, 40_000_000])
def test_the_last_words_of_a_server_are_heard(server: RunningServer, size: int) -> None:
    """A drained server closes an idle connection; the next request says that it did not run."""
    with closing(filled(f"{server.url}?retry_timeout_s=0")) as connection:
        server.call(lambda: server.server.drain(30))
        with pytest.raises(errors.OperationalError) as caught:
            connection.execute("INSERT INTO t VALUES (?, ?)", (ROWS, "x" * size))
        assert caught.value.retry is errors.Retry.SAFE
