"""A server's loop writes rows itself; its answers wait for the disk, and for nothing else."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import herdpy
from tests.fixtures.servers import RunningServer, running_server
from tests.sim.disk import SimulatedDisk
from tests.unit.herdpy.engine.test_at_once import HeldDisk

INSERT = "INSERT INTO t VALUES (?, ?)"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@pytest.fixture
def server(disk: SimulatedDisk) -> Iterator[RunningServer]:
    with running_server(disk) as running:
        with herdpy.connect(running.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
            connection.execute(INSERT, (0, 0))
        yield running


def test_rows_are_written_without_a_worker(server: RunningServer) -> None:
    """Now and then one has to be asked, because somebody held the monitor for too long."""
    submitted: list[object] = []
    hub = server.server._hub
    submit = hub.submit

    def note(*arguments: Any, **options: Any) -> Any:
        submitted.append(arguments)
        return submit(*arguments, **options)

    with herdpy.connect(server.url, autocommit=True) as connection:
        hub.submit = note  # type: ignore[method-assign]
        try:
            for number in range(1, 1000):
                submitted.clear()
                assert connection.execute(INSERT, (number, 0)).rowcount == 1
                if not submitted:
                    break
            else:
                pytest.fail("every one of them took a worker")
        finally:
            hub.submit = submit  # type: ignore[method-assign]


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
