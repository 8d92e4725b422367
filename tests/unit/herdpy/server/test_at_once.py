"""A server's loop writes rows itself; its answers wait for the disk, and for nothing else."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import herdpy
from bookie.runtime.ticket import Ticket
from tests.fixtures.servers import RunningServer, running_server
from tests.sim.disk import SimulatedDisk
from tests.unit.herdpy.engine.writes.test_nonblocking import HeldDisk

INSERT = "INSERT INTO t VALUES (?, ?)"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@pytest.fixture
def server(disk: SimulatedDisk) -> Iterator[RunningServer]:
    with running_server(disk, loop_sync_us=0) as running:
        with herdpy.connect(running.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            connection.execute(INSERT, (0, 0))
        yield running


def test_rows_are_written_without_a_worker(server: RunningServer) -> None:
    """Now and then one has to be asked, because another thread held the monitor for too long."""
    submitted: list[object] = []
    hub = server.server._hub
    submit = hub.workers.submit

    def note(*arguments: Any, **options: Any) -> Any:
        submitted.append(arguments)
        return submit(*arguments, **options)

    with herdpy.connect(server.url, autocommit=True) as connection:
        hub.workers.submit = note  # type: ignore[method-assign]
        try:
            for number in range(1, 1000):
                submitted.clear()
                assert connection.execute(INSERT, (number, 0)).rowcount == 1
                if not submitted:
                    break
            else:
                pytest.fail("every one of them took a worker")
        finally:
            hub.workers.submit = submit  # type: ignore[method-assign]


def test_others_go_on_while_a_commit_waits_for_the_disk(
    server: RunningServer, disk: SimulatedDisk
) -> None:
    held = HeldDisk(disk)
    with (
        herdpy.connect(server.url, autocommit=True) as writer,
        herdpy.connect(server.url, autocommit=True) as reader,
    ):
        reader.execute("SELECT v FROM t WHERE id = ?", (0,)).fetchall()
        held.hold()
        answered = threading.Event()

        def write() -> None:
            writer.execute(INSERT, (1, 10))
            answered.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            held.until_reached()
            for _ in range(3):
                found = reader.execute("SELECT v FROM t WHERE id = ?", (0,)).fetchall()
                assert found == [(0,)]
            assert reader.execute("SELECT v FROM t WHERE id = ?", (1,)).fetchall() == []
            assert not answered.is_set()
        finally:
            held.release()
            thread.join()
        assert answered.is_set()
        assert reader.execute("SELECT v FROM t WHERE id = ?", (1,)).fetchall() == [(10,)]


def test_a_lost_connection_does_not_lose_its_commit(
    server: RunningServer, disk: SimulatedDisk
) -> None:
    held = HeldDisk(disk)
    writer = herdpy.connect(server.url + "?retry_timeout_s=0", autocommit=True)
    held.hold()
    try:
        session = writer._session.connection
        from herdpy.proto.messages import Execute

        session.start(lambda request: Execute(request, INSERT, [1, 10]))
        held.until_reached()
        writer.close()
    finally:
        held.release()
    with herdpy.connect(server.url, autocommit=True) as reader:
        while reader.execute("SELECT v FROM t WHERE id = ?", (1,)).fetchall() != [(10,)]:
            pass
    # The fixture's close() waits for the session, which has to end.


def test_a_key_that_another_holds_is_waited_for_by_a_worker(server: RunningServer) -> None:
    with (
        herdpy.connect(server.url) as holder,
        herdpy.connect(server.url, autocommit=True) as writer,
    ):
        holder.execute("UPDATE t SET v = v + ? WHERE id = ?", (1, 0))
        answered = threading.Event()

        def write() -> None:
            writer.execute("UPDATE t SET v = v + ? WHERE id = ?", (10, 0))
            answered.set()

        thread = threading.Thread(target=write)
        thread.start()
        holder.execute("SELECT v FROM t WHERE id = ?", (0,)).fetchall()
        assert not answered.is_set()
        holder.commit()
        thread.join()
        assert writer.execute("SELECT v FROM t WHERE id = ?", (0,)).fetchall() == [(11,)]


def test_tickets_of_one_pass_wake_the_loop_once_and_each_job_runs_once(
    server: RunningServer,
) -> None:
    async def run() -> tuple[list[int], int]:
        hub = server.server._hub
        loop, calls, ran = hub.loop, 0, list[int]()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def count(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return call_soon_threadsafe(*arguments, **options)

        tickets, last = [Ticket[None]() for _ in range(5)], asyncio.Event()
        for number, ticket in enumerate(tickets):
            hub.workers.when_done(ticket, partial(ran.append, number))
        tickets.append(Ticket[None]())
        hub.workers.when_done(tickets[-1], last.set)
        loop.call_soon_threadsafe = count  # type: ignore[method-assign]
        try:
            for ticket in tickets:
                ticket.complete(None)
        finally:
            loop.call_soon_threadsafe = call_soon_threadsafe  # type: ignore[method-assign]
        await last.wait()
        return ran, calls

    assert server.call(run) == ([0, 1, 2, 3, 4], 1)


def test_a_job_that_fails_takes_no_other_along(server: RunningServer) -> None:
    failures: list[Any] = []

    async def run() -> None:
        hub, last = server.server._hub, asyncio.Event()
        hub.loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))

        def fail() -> None:
            raise ZeroDivisionError

        tickets = [Ticket[None](), Ticket[None]()]
        hub.workers.when_done(tickets[0], fail)
        hub.workers.when_done(tickets[1], last.set)
        for ticket in tickets:
            ticket.complete(None)
        await last.wait()

    server.call(run)
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


def test_a_commit_that_another_thread_has_applied_and_not_told_yet(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The syncer's thread may stand between the two, while the loop looks what became of it."""
    tablespace = server.engine.default.tablespace
    stands, goes_on = threading.Event(), threading.Event()
    release = tablespace.locks.release_some

    def stand(*arguments: Any) -> bool:
        stands.set()
        assert goes_on.wait(10)
        return release(*arguments)

    with herdpy.connect(server.url, autocommit=True) as connection:
        connection.execute(INSERT, (1, 0))
        (served,) = server.server._hub.connections
        requests = served._requests
        assert requests is not None
        session: Any = requests._session
        attempt = session.attempt

        def attempt_and_wait(*arguments: Any) -> Any:
            begun = attempt(*arguments)
            if begun is not None and begun.outcome is not None:
                monkeypatch.setattr(tablespace.locks, "release_some", stand)
                assert tablespace.syncer is not None
                tablespace.syncer.ask(begun.transaction.durability)
                assert stands.wait(10)
                asyncio.get_running_loop().call_soon(goes_on.set)
            return begun

        monkeypatch.setattr(session, "attempt", attempt_and_wait)
        while not stands.is_set():  # now and then a worker has to be asked
            connection.execute(INSERT, (len(_rows(connection)) + 1, 0))
        monkeypatch.undo()
        assert len(_rows(connection)) > 2


def _rows(connection: herdpy.Connection) -> list[Any]:
    return connection.execute("SELECT id FROM t").fetchall()
