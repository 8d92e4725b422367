"""Group commit, deferred sync, and the files of the journal."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from errno import ENOSPC

import pytest

from bookie.ledger.types import Status
from bookie.server.bookie import Bookie
from bookie.server.storage.journal_format import Kind, read_records
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.storages import (
    CONFIG,
    KEY,
    OTHER_KEY,
    HeldExecutor,
    add,
    fence,
    force,
    open_bookie,
    packet_of,
    read,
    turns,
)
from tests.sim.disk import SimulatedDisk


def run(test: Callable[[SimulatedDisk, Bookie, HeldExecutor], Awaitable[None]]) -> None:
    async def main() -> None:
        disk, journal = SimulatedDisk(7), HeldExecutor()
        bookie = await open_bookie(disk, MemoryIndex(), journal_executor=journal)
        disk.trace = []
        await test(disk, bookie, journal)
        await bookie.close()
        assert disk.open_paths == []

    asyncio.run(main())


def syncs(disk: SimulatedDisk) -> int:
    return sum(step == "sync" and path.endswith(".journal") for step, path, _ in disk.trace or [])


def test_adds_of_one_turn_share_an_fsync() -> None:
    async def test(disk: SimulatedDisk, bookie: Bookie, journal: HeldExecutor) -> None:
        answers: list[Status] = []
        for entry_id in range(100):
            bookie.add(packet_of(7, entry_id), KEY, answers.append)
        await turns()
        assert answers == [Status.OK] * 100
        assert syncs(disk) == 1

    run(test)


def test_adds_that_come_while_the_disk_is_busy_are_the_next_batch() -> None:
    async def test(disk: SimulatedDisk, bookie: Bookie, journal: HeldExecutor) -> None:
        answers: list[Status] = []
        journal.is_holding = True
        bookie.add(packet_of(7, 0), KEY, answers.append)
        await turns()
        for entry_id in range(1, 50):
            bookie.add(packet_of(7, entry_id), KEY, answers.append)
            await turns(2)
        assert len(journal.held) == 1
        journal.let_go()
        await turns()
        assert answers == [Status.OK] * 50
        assert syncs(disk) == 2

    run(test)


def test_deferred_sync_is_answered_after_the_write_and_forced_later() -> None:
    async def test(disk: SimulatedDisk, bookie: Bookie, journal: HeldExecutor) -> None:
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        before = syncs(disk)
        for entry_id in (1, 2):
            assert await add(bookie, packet_of(7, entry_id), is_deferred_sync=True) is Status.OK
        assert syncs(disk) == before
        assert await force(bookie) is Status.OK
        assert syncs(disk) == before + 1
        assert await force(bookie) is Status.OK
        assert syncs(disk) == before + 1  # nothing was left to do

    run(test)


def test_a_fence_is_synced_although_adds_are_not() -> None:
    async def main() -> None:
        disk = SimulatedDisk(7)
        bookie = await open_bookie(disk, MemoryIndex(), replace(CONFIG, is_journal_synced=False))
        disk.trace = []
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        assert syncs(disk) == 0
        assert await fence(bookie, 7) is Status.OK
        assert syncs(disk) == 1
        await bookie.close()

    asyncio.run(main())


def test_long_journals_go_on_in_new_files_and_old_ones_go() -> None:
    async def main() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        config = replace(CONFIG, write_cache_bytes_max=1 << 25, flush_interval_s=1e6)
        bookie = await open_bookie(disk, index, config)
        packets = [packet_of(7, n, bytes([n]) * 300_000) for n in range(12)]
        for packet in packets:
            assert await add(bookie, packet) is Status.OK
        files = [name for name in disk.list("journal") if name.endswith(".journal")]
        assert len(files) == 4
        assert all(disk.size(f"journal/{name}") < 2 << 20 for name in files)
        crashed = disk.restart()
        kinds = [record.kind for _, record in read_records(crashed, None)]
        assert kinds == [Kind.MASTER_KEY] + [Kind.ENTRY] * 12
        again = await open_bookie(crashed, index.crash(lambda n: 0), config)
        for entry_id, packet in enumerate(packets):
            assert await read(again, 7, entry_id) == (Status.OK, packet)
        files = [name for name in crashed.list("journal") if name.endswith(".journal")]
        assert len(files) == 1
        await again.close()

    asyncio.run(main())


def test_a_long_queue_is_written_in_batches_of_bounded_size() -> None:
    async def main() -> None:
        disk = SimulatedDisk(7)
        config = replace(CONFIG, write_cache_bytes_max=1 << 25, journal_bytes_max=1 << 25)
        bookie = await open_bookie(disk, MemoryIndex(), config)
        disk.trace = []
        answers: list[Status] = []
        for entry_id in range(10):
            bookie.add(packet_of(7, entry_id, bytes(1 << 20)), KEY, answers.append)
        await turns(50)
        assert answers == [Status.OK] * 10
        assert syncs(disk) == 3
        await bookie.close()

    asyncio.run(main())


def test_a_large_batch_is_written_once_and_a_small_one_into_zeros() -> None:
    async def main() -> None:
        disk = SimulatedDisk(7)
        config = replace(CONFIG, write_cache_bytes_max=1 << 25, journal_bytes_max=1 << 25)
        bookie = await open_bookie(disk, MemoryIndex(), config)
        disk.trace = []
        large = config.journal_preallocation_bytes + (64 << 10)
        assert await add(bookie, packet_of(7, 0, bytes(large))) is Status.OK
        written = sum(count for op, _, count in disk.trace if op == "write")
        assert large < written < large + 2000
        assert [op for op, _, _ in disk.trace if op != "write"] == ["allocate", "sync"]
        disk.trace = []
        assert await add(bookie, packet_of(7, 1, b"small")) is Status.OK
        written = sum(count for op, _, count in disk.trace if op == "write")
        assert written > config.journal_preallocation_bytes
        disk.trace = []
        assert await add(bookie, packet_of(7, 2, b"small")) is Status.OK
        assert sum(count for op, _, count in disk.trace if op == "write") < 2000
        await bookie.close()

    asyncio.run(main())


def test_a_large_batch_without_room_changes_nothing() -> None:
    async def main() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        large = bytes(CONFIG.journal_preallocation_bytes + (64 << 10))
        disk.capacity_bytes = sum(map(len, disk.contents().values())) + 1000
        assert await add(bookie, packet_of(7, 0, large)) is Status.IO_ERROR
        assert bookie.is_read_only
        assert bookie.failure is None
        assert await fence(bookie, 8) is Status.OK
        disk = disk.restart()
        disk.capacity_bytes = None
        again = await open_bookie(disk, index.crash(lambda n: 0))
        assert await read(again, 7, 0) == (Status.NO_ENTRY, b"")
        assert await add(again, packet_of(8, 1)) is Status.FENCED
        await again.close()

    asyncio.run(main())


@pytest.mark.parametrize(("op", "byte_count"), [("write", 40_000), ("allocate", 80_000)])
def test_keys_of_a_batch_that_found_no_room_are_written_with_the_next(
    op: str, byte_count: int
) -> None:
    async def main() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        assert await add(bookie, packet_of(6, 0, bytes(40_000))) is Status.OK
        disk.fail(op, ENOSPC, path="journal/")
        big = bytes(byte_count)
        assert await add(bookie, packet_of(7, 0, big)) is Status.IO_ERROR
        assert bookie.is_read_only
        assert bookie.failure is None
        recovery = {"is_recovery": True, "is_high_priority": True}
        assert await add(bookie, packet_of(7, 0), **recovery) is Status.READ_ONLY
        assert await fence(bookie, 8) is Status.OK  # fits what was made room for before
        again = await open_bookie(disk.restart(), index.crash(lambda n: 0))
        assert await add(again, packet_of(7, 1), OTHER_KEY) is Status.UNAUTHORIZED
        assert await add(again, packet_of(8, 1)) is Status.FENCED
        await again.close()

    asyncio.run(main())


@pytest.mark.parametrize("count", [0, 1, 5])
def test_restarts_without_work_leave_one_file(count: int) -> None:
    async def main() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        for _ in range(count + 1):
            bookie = await open_bookie(disk, index)
            await bookie.close()
            disk, index = disk.restart(), index.crash(lambda n: 0)
        assert len(disk.list("journal")) <= 2
        assert disk.list("entries") == []

    asyncio.run(main())
