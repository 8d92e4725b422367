"""The bookie's loop writes the journal by itself: behind fast syncs, and where few others wait."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from errno import EIO

from bookie.config import BookieConfig
from bookie.ledger.types import Status
from bookie.runtime.short_waits import MEAN_OF, PAUSE_S
from bookie.server.bookie import Bookie
from bookie.server.storage.journal import _OTHERS_WAIT_S, _STREAK
from bookie.server.storage.journal_format import Kind, read_records
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.storages import (
    CONFIG,
    KEY,
    HeldExecutor,
    add,
    force,
    open_bookie,
    packet_of,
    read,
    turns,
)
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk

MAX_US = 1_000


class World:
    """A bookie, its disk whose syncs take sync_s, and an executor that counts what it is given."""

    def __init__(self, config: BookieConfig) -> None:
        self.config = config
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(7)
        self.disk.latency = self._wait_for_disk
        self.journal = HeldExecutor()
        self.sync_s = 0.0001
        self.bookie: Bookie
        self._entry_id = 0

    def _wait_for_disk(self, op: str, path: str) -> None:
        if op == "sync":
            self.clock.advance(self.sync_s)

    async def open(self, batches: int = _STREAK) -> "World":
        self.bookie = await open_bookie(
            self.disk, MemoryIndex(), self.config, journal_executor=self.journal, clock=self.clock
        )
        for _ in range(batches):
            assert not await self.is_on_loop()
        return self

    async def is_on_loop(self, payload: bytes = b"") -> bool:
        """Add an entry, and return whether the loop has written it; else the executor was asked."""
        answers: list[Status] = []
        self.journal.is_holding = True
        self.bookie.add(packet_of(7, self._entry_id, payload), KEY, answers.append)
        self._entry_id += 1
        await turns(5)
        is_on_loop = not self.journal.held
        assert answers == [Status.OK] * is_on_loop
        self.journal.let_go()
        await turns(5)
        assert answers == [Status.OK]
        return is_on_loop


def run(test: Callable[[World], Awaitable[None]], **settings: object) -> None:
    async def main() -> None:
        config = replace(CONFIG, journal_loop_sync_us=MAX_US, **settings)  # type: ignore[arg-type]
        world = await World(config).open()
        await test(world)
        await world.bookie.close()
        assert world.disk.open_paths == []

    asyncio.run(main())


def test_fast_syncs_are_done_on_the_loop_and_are_durable() -> None:
    async def test(world: World) -> None:
        assert await world.is_on_loop()
        crashed = world.disk.restart()
        kinds = [record.kind for _, record in read_records(crashed, None)]
        assert kinds == [Kind.MASTER_KEY] + [Kind.ENTRY] * (_STREAK + 1)

    run(test)


def test_without_the_setting_it_is_always_a_thread() -> None:
    async def test(world: World) -> None:
        for _ in range(2 * _STREAK):
            assert not await world.is_on_loop()

    async def main() -> None:
        world = await World(replace(CONFIG, journal_loop_sync_us=0)).open()
        await test(world)
        await world.bookie.close()

    asyncio.run(main())


def test_adds_of_one_turn_share_a_sync() -> None:
    async def test(world: World) -> None:
        answers: list[Status] = []
        world.journal.is_holding = True
        world.disk.trace = []
        for entry_id in range(100, 150):
            world.bookie.add(packet_of(7, entry_id), KEY, answers.append)
        await turns(5)
        assert (answers, world.journal.held) == ([Status.OK] * 50, [])
        assert [step for step, *_ in world.disk.trace].count("sync") == 1

    run(test)


def test_a_slow_disk_is_the_threads_for_a_while() -> None:
    async def test(world: World) -> None:
        assert await world.is_on_loop()
        world.sync_s = MEAN_OF * 2 * MAX_US / 1e6  # one of them is more than the mean may be
        assert await world.is_on_loop()  # it was not known before
        world.sync_s = 0.0001
        assert not await world.is_on_loop()
        for _ in range(5 * MEAN_OF):  # the mean is small again
            await world.is_on_loop()
        assert not await world.is_on_loop()
        world.clock.advance(PAUSE_S)
        assert await world.is_on_loop()

    run(test)


def test_many_reads_are_not_delayed_by_syncs() -> None:
    async def test(world: World) -> None:
        assert await world.is_on_loop()
        many = round(2 * _OTHERS_WAIT_S / world.sync_s)
        for _ in range(4 * MEAN_OF):
            for _ in range(many):
                status, _data = await read(world.bookie, 7, 0)
                assert status is Status.OK
            await world.is_on_loop()
        assert not await world.is_on_loop()
        for _ in range(4 * MEAN_OF):
            await world.is_on_loop()
        assert await world.is_on_loop()

    run(test)


def test_long_batches_and_new_files_are_the_threads() -> None:
    async def test(world: World) -> None:
        assert not await world.is_on_loop(bytes(100_000))
        seen: list[str] = []
        latency = world.disk.latency
        assert latency is not None

        def note(op: str, path: str) -> None:
            if path.endswith(".journal"):
                seen.append(op)
            latency(op, path)

        world.disk.latency = note
        kinds = set[tuple[bool, bool]]()
        for _ in range(60):  # each 20 kB: room has to be made for some, and a file ends
            seen.clear()
            kinds.add((await world.is_on_loop(bytes(20_000)), "truncate" in seen))
        assert kinds == {(True, False), (False, False), (False, True)}

    run(test)


def test_a_failed_write_on_the_loop_is_final() -> None:
    async def main() -> None:
        config = replace(CONFIG, journal_loop_sync_us=MAX_US)
        world = await World(config).open()
        assert await world.is_on_loop()

        def fail(op: str, path: str) -> None:
            if op == "sync":
                raise OSError(EIO, "injected")

        world.disk.latency = fail
        answers: list[Status] = []
        world.journal.is_holding = True
        for entry_id in (100, 101):
            world.bookie.add(packet_of(7, entry_id), KEY, answers.append)
        await turns(5)
        assert answers == [Status.IO_ERROR] * 2
        assert isinstance(world.bookie.failure, OSError)
        world.disk.latency = None
        world.journal.let_go()
        assert await add(world.bookie, packet_of(7, 102)) is Status.IO_ERROR
        assert await force(world.bookie) is Status.IO_ERROR
        await world.bookie.close()

    asyncio.run(main())


def test_what_comes_while_the_thread_writes_is_written_behind_its_answers() -> None:
    async def main() -> None:
        world = await World(replace(CONFIG, journal_loop_sync_us=MAX_US)).open(_STREAK - 1)
        order: list[int] = []
        world.journal.is_holding = True
        world.bookie.add(packet_of(7, 100), KEY, lambda _: order.append(100))
        await turns(5)
        assert len(world.journal.held) == 1  # the last one of the streak
        world.bookie.add(packet_of(7, 101), KEY, lambda _: order.append(101))
        world.journal.let_go()
        world.journal.is_holding = True
        await turns(5)
        assert (order, world.journal.held) == ([100, 101], [])
        await world.bookie.close()

    asyncio.run(main())
