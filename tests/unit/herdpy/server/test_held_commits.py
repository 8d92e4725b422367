"""A COMMIT that waits for the log is not taken back: what ends other statements does not end it."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

import herdpy
from tests.fixtures.engines import Background
from tests.fixtures.held_disk import HeldDisk
from tests.fixtures.servers import RunningServer, running_server
from tests.sim.disk import SimulatedDisk

Ending = Callable[[herdpy.Connection, herdpy.Connection, int], object]


class Held:
    """A server whose log is held, and a COMMIT that waits for it."""

    def __init__(self, server: RunningServer, disk: HeldDisk) -> None:
        self.disk = disk
        self.url = f"{server.url}/?retry_timeout_s=0"
        self.administrator = herdpy.connect(server.url, autocommit=True)
        self.administrator.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        self.errors: list[herdpy.Error] = []

    def commit(self, connection: herdpy.Connection) -> None:
        try:
            connection.commit()
        except herdpy.Error as error:
            self.errors.append(error)

    def commits(self) -> list[tuple[int, int]]:
        query = "SELECT id, client_id FROM sysstatements WHERE text = 'COMMIT'"
        return self.administrator.execute(query).fetchall()

    def rows(self) -> list[tuple[int]]:
        return self.administrator.execute("SELECT id FROM t").fetchall()


@pytest.fixture
def held() -> Iterator[Held]:
    disk = SimulatedDisk(1)
    with running_server(disk, workers=2) as server:
        found = Held(server, HeldDisk(disk))
        try:
            yield found
        finally:
            found.disk.release()
            found.administrator.close()


def cancel(connection: herdpy.Connection, _administrator: herdpy.Connection, _: int) -> None:
    connection.cancel()


def kill(_: herdpy.Connection, administrator: herdpy.Connection, number: int) -> None:
    administrator.execute(f"KILL STATEMENT {number}")


def time_out(_: herdpy.Connection, administrator: herdpy.Connection, number: int) -> None:
    query = f"SELECT running_s FROM sysstatements WHERE id = {number}"
    while administrator.execute(query).fetchone()[0] < 0.05:
        pass


@pytest.mark.parametrize("end", [cancel, kill, time_out])
def test_the_answer_is_that_of_the_log(held: Held, end: Ending) -> None:
    with herdpy.connect(held.url) as connection, Background() as background:
        connection.execute("INSERT INTO t VALUES (1)")
        if end is time_out:
            connection.execute("SET statement_timeout = '20ms'")
        held.disk.hold()
        background.start(lambda: held.commit(connection))
        held.disk.until_reached()
        while not (found := held.commits()):
            pass
        end(connection, held.administrator, found[0][0])
        assert held.commits() == found
        held.disk.release()
        background.join()
        assert held.errors == []
        assert held.rows() == [(1,)]


def test_a_connection_that_is_killed_is_not_told_that_it_was_rolled_back(held: Held) -> None:
    with closing(herdpy.connect(held.url)) as connection, Background() as background:
        connection.execute("INSERT INTO t VALUES (1)")
        held.disk.hold()
        background.start(lambda: held.commit(connection))
        held.disk.until_reached()
        while not (found := held.commits()):
            pass
        held.administrator.execute(f"KILL CONNECTION {found[0][1]}")
        background.join()  # while the log is held
        [error] = held.errors
        assert error.sqlstate == "57P01"
        assert error.hint == "look whether what ran has happened before repeating it"
        held.disk.release()
        while held.commits():
            pass
        assert held.rows() == [(1,)]
