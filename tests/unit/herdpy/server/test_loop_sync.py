"""The server's loop syncs by itself: only behind commits, a fast disk, and no other's request."""

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

import herdpy
from bookie.runtime.short_waits import MEAN_OF, PAUSE_S
from herdpy.errors import LogFailedError
from herdpy.model.durability import Durability
from herdpy.server.loop_sync import STREAK, LoopSync
from tests.fixtures.servers import running_server
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

MAX_S = 0.001


class World:
    """A loop, a syncer and workers, as far as a LoopSync sees them."""

    def __init__(self, sync_s_max: float = MAX_S) -> None:
        self.clock = SimulatedClock()
        self.last_s = 0.0
        self.ended_s: float | None = None  # each commit's is a sync of its own
        self.jobs: list[object] = []
        self.syncer = self  # of the tablespace
        self.syncs = 0
        self.is_shared = False
        self._asked = 0
        self._soon: list[Callable[[], Any]] = []
        self.loop_sync = LoopSync(
            self,  # type: ignore[arg-type]
            self.clock,
            self,  # type: ignore[arg-type]
            self,
            self,
            sync_s_max,
        )

    def call_soon(self, callback: Callable[[], Any]) -> None:
        self._soon.append(callback)

    def run_then_due(self, step: Callable[[], object]) -> None:
        step()

    def request(self, durability: Durability) -> None:
        assert durability is Durability.SYNC
        self.syncs += 1

    def ask(self, durability: Durability) -> None:
        self._asked += 1

    def turn(self) -> None:
        due, self._soon = self._soon, []
        for callback in due:
            callback()

    def commit(self, connection: int = 1, durability: Durability = Durability.SYNC) -> bool:
        """Return whether the loop has synced; else the thread was asked to."""
        before = self.syncs, self._asked
        if not self.is_shared:
            self.ended_s = 1.0 + (self.ended_s or 0.0)
        self.loop_sync.ask(connection, durability)
        self.turn()
        assert (self.syncs, self._asked) in [(before[0] + 1, before[1]), (before[0], before[1] + 1)]
        return self.syncs > before[0]


@pytest.fixture
def world() -> World:
    found = World()
    for number in range(STREAK - 1):
        assert not found.commit(number)
    assert found.commit()
    return found


def test_commits_of_one_turn_share_a_sync(world: World) -> None:
    before = world.syncs
    for number in range(8):
        world.loop_sync.ask(number, Durability.SYNC)
    assert world.syncs == before
    world.turn()
    assert world.syncs == before + 1


def test_what_another_connection_asks_for_ends_it_until_enough_commits_came(world: World) -> None:
    world.loop_sync.asked(2)
    for _ in range(STREAK - 1):
        assert not world.commit(1)
    assert world.commit(1)


def test_what_the_same_connection_asks_for_does_not(world: World) -> None:
    for _ in range(STREAK):
        world.loop_sync.asked(1)
        assert world.commit(1)


def test_nor_hides_what_the_same_connection_asks_for_another(world: World) -> None:
    world.loop_sync.asked(2)
    world.loop_sync.asked(1)
    assert not world.commit(1)


def test_a_statement_on_a_worker_does(world: World) -> None:
    world.jobs.append(None)
    assert not world.commit()
    world.jobs.clear()
    assert world.commit()


def test_behind_slow_syncs_there_is_a_pause(world: World) -> None:
    world.last_s = MAX_S * 2
    assert sum(world.commit() for _ in range(2 * MEAN_OF)) < MEAN_OF
    world.last_s = MAX_S / 2
    for _ in range(MEAN_OF):
        assert not world.commit()  # the thread's syncs count, too
    world.clock.advance(PAUSE_S * 0.99)
    assert not world.commit()
    world.clock.advance(PAUSE_S * 0.02)
    assert world.commit()


def test_behind_one_that_hung_there_is_a_pause(world: World) -> None:
    world.last_s = MAX_S * MEAN_OF * 1.01
    assert not world.commit()


def test_a_slow_moment_of_a_fast_disk_is_none(world: World) -> None:
    for _ in range(10):
        world.last_s = MAX_S * MEAN_OF / 3
        assert world.commit()
        world.last_s = MAX_S / 10
        for _ in range(3 * MEAN_OF):
            assert world.commit()


def test_a_slow_sync_that_many_commits_share_counts_once(world: World) -> None:
    world.last_s = MAX_S * MEAN_OF / 3
    assert world.commit()
    world.is_shared = True
    assert all(world.commit() for _ in range(2 * MEAN_OF))


def test_a_commit_that_does_not_wait_is_left_to_the_syncer(world: World) -> None:
    assert not world.commit(durability=Durability.NONE)


def test_zero_is_never() -> None:
    found = World(0.0)
    found.last_s = 1e-9
    assert not any(found.commit() for _ in range(2 * STREAK))


@pytest.mark.parametrize("loop_sync_us", [0, 1_000_000])
def test_a_server_does_it_and_every_commit_is_there_after_a_power_failure(
    loop_sync_us: int,
) -> None:
    disk = SimulatedDisk(1)
    count = 10 * STREAK
    left = disk
    # Its disk is gone when it closes.
    with suppress(LogFailedError), running_server(disk, loop_sync_us=loop_sync_us) as server:
        hub = server.server._hub
        syncs, sync = 0, hub.default.loop_sync._sync

        def count_sync() -> None:
            nonlocal syncs
            syncs += 1
            sync()

        hub.default.loop_sync._sync = count_sync
        with closing(herdpy.connect(server.url, autocommit=True)) as connection:
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            for number in range(count):
                connection.execute("INSERT INTO t VALUES (?)", (number,))
        assert (syncs > 0) == (loop_sync_us > 0)
        left = disk.crash(1)
    with running_server(left) as server, closing(herdpy.connect(server.url)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(count,)]
