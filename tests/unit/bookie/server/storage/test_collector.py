"""The collector's timers, and what is forgotten from memory, in virtual time."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import replace
from errno import EIO, ENOSPC
from typing import Any

import pytest

from bookie.errors import MetadataStoreError, NoSuchLedgerMetadataError
from bookie.ledger.types import Status
from bookie.runtime.memory_disk import MemoryDisk
from bookie.runtime.os_executors import new_executor
from bookie.server.storage import entry_logs
from bookie.server.storage import ledger_storage as storages
from bookie.server.storage.collector import Holding
from bookie.server.storage.memory_index import MemoryIndex
from tests.fixtures.storages import (
    CONFIG,
    HeldExecutor,
    add,
    fence,
    open_bookie,
    packet_of,
    read,
    turns,
)
from tests.sim.disk import SimulatedDisk
from tests.sim.loop import SimulatedLoop


class Metadata:
    """A LedgerList that counts its calls."""

    def __init__(self, *ledger_ids: int) -> None:
        self.known = list(ledger_ids)
        self.listings = 0
        self.is_broken = False

    async def ledger_ids(self) -> AsyncIterator[int]:
        self.listings += 1
        if self.is_broken:
            raise MetadataStoreError("the connection broke")
        for ledger_id in self.known:
            yield ledger_id

    async def read(self, ledger_id: int) -> Holding:
        if ledger_id not in self.known:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        return Holding(is_closed=False, is_member=True)

    async def sync(self) -> None:
        pass

    async def fresh_id(self) -> int:
        return 1 << 40

    @asynccontextmanager
    async def task_lock(self, ledger_id: int) -> AsyncGenerator[bool]:
        yield True


def simulate(test: object) -> None:
    loop = SimulatedLoop(3)
    try:
        loop.run_until_complete(test())  # type: ignore[operator]
    finally:
        loop.close()


def test_it_collects_and_compacts_by_time_and_goes_on_after_an_error() -> None:
    async def test() -> None:
        config = replace(
            CONFIG,
            gc_interval_s=10.0,
            minor_compaction_interval_s=25.0,
            minor_compaction_threshold=0.6,
            major_compaction_interval_s=10_000.0,
        )
        disk = MemoryDisk()
        bookie = await open_bookie(disk, MemoryIndex(), config)
        metadata = Metadata(7, 8)
        collector = bookie.collector(metadata)
        collector.start()
        for entry_id in range(30):
            for ledger_id in (7, 8):
                status = await add(bookie, packet_of(ledger_id, entry_id, bytes(10_000)))
                assert status is Status.OK
        metadata.is_broken = True
        await asyncio.sleep(11)
        assert metadata.listings == 1
        metadata.is_broken = False
        metadata.known = [8]
        await asyncio.sleep(10)
        assert await read(bookie, 7, 0) == (Status.NO_LEDGER, b"")
        size = sum(disk.size(f"entries/{name}") for name in disk.list("entries"))
        await asyncio.sleep(10)
        assert metadata.listings == 3
        after = sum(disk.size(f"entries/{name}") for name in disk.list("entries"))
        assert after < 0.7 * size
        for entry_id in range(30):
            assert (await read(bookie, 8, entry_id))[0] is Status.OK
        await collector.close()
        await collector.close()
        await asyncio.sleep(100)
        assert metadata.listings == 3
        await bookie.close()

    simulate(test)


def test_a_flush_comes_by_time() -> None:
    async def test() -> None:
        disk = MemoryDisk()
        bookie = await open_bookie(disk, MemoryIndex(), replace(CONFIG, flush_interval_s=5.0))
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        assert disk.list("entries") == []
        await asyncio.sleep(6)
        assert disk.list("entries") == ["00000001.log"]
        await bookie.close()

    simulate(test)


def test_ledgers_at_rest_are_forgotten_and_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storages, "_STATES_MAX", 64)

    async def test() -> None:
        bookie = await open_bookie(MemoryDisk(), MemoryIndex())
        bookie._storage._evict_at = 64
        for ledger_id in range(500):
            assert await add(bookie, packet_of(ledger_id, 3, lac=2)) is Status.OK
            if ledger_id % 5 == 0:
                assert await fence(bookie, ledger_id) is Status.OK
            if ledger_id % 20 == 0:
                await bookie.checkpoint()
        assert len(bookie._storage._states) < 150
        for ledger_id in range(500):
            fenced = Status.FENCED if ledger_id % 5 == 0 else Status.OK
            assert bookie.last_add_confirmed(ledger_id) == 2
            assert (await read(bookie, ledger_id, -1))[1] == packet_of(ledger_id, 3, lac=2)
            assert await add(bookie, packet_of(ledger_id, 4, lac=2)) is fenced
        await bookie.close()

    simulate(test)


class HeldIndex(MemoryIndex):
    """A MemoryIndex whose put() waits while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = threading.Event()
        self.may_go = threading.Event()
        self.may_go.set()

    def put(self, locations: Any, ledgers: Any = (), journal: Any = None) -> None:
        self.is_reached.set()
        self.may_go.wait()
        super().put(locations, ledgers, journal)


@pytest.fixture
def threads() -> Any:
    with new_executor("storage", 3) as executor:
        yield executor


@pytest.mark.parametrize("is_compaction", [False, True])
def test_g18_a_log_that_a_flush_filled_and_left_is_not_taken_for_empty(
    threads: Executor, *, is_compaction: bool
) -> None:
    """The index points to a flush's logs only in its end; until then it is not known what lives."""

    async def test() -> None:
        index = HeldIndex()
        config = replace(CONFIG, entry_log_bytes_max=1 << 16)
        bookie = await open_bookie(MemoryDisk(), index, config, storage_executor=threads)
        for entry_id in range(6):
            assert await add(bookie, packet_of(7, entry_id, bytes(20_000))) is Status.OK
        index.is_reached.clear()
        index.may_go.clear()
        flush = asyncio.create_task(bookie.checkpoint())
        await asyncio.get_running_loop().run_in_executor(threads, index.is_reached.wait)
        collector = bookie.collector(Metadata(7))
        work = collector.compact(1.01) if is_compaction else collector.collect()
        collection = asyncio.create_task(work)
        while not bookie._storage.write_lock._waiters:  # type: ignore[attr-defined]
            await turns(1)
        index.may_go.set()
        await flush
        await collection
        for entry_id in range(6):
            assert (await read(bookie, 7, entry_id))[0] is Status.OK
        await bookie.close()

    asyncio.run(test())


def test_a_ledger_made_again_is_not_read_from_what_was_cached_of_the_old_one() -> None:
    async def test() -> None:
        executor = HeldExecutor()
        bookie = await open_bookie(MemoryDisk(), MemoryIndex(), storage_executor=executor)
        for entry_id in range(3):
            assert await add(bookie, packet_of(7, entry_id, b"old")) is Status.OK
        await bookie.checkpoint()
        assert (await read(bookie, 7, 0))[1] == packet_of(7, 0, b"old")  # cached from here on
        executor.is_holding = True
        late = asyncio.create_task(read(bookie, 7, 1))  # answered after the ledger has gone
        await turns()
        held, executor.held = executor.held, []
        executor.is_holding = False
        results = [(future, job()) for future, job in held]
        assert await bookie.collect(Metadata()) == [7]
        for future, result in results:
            future.set_result(result)
        await late
        for entry_id in range(3):
            assert await add(bookie, packet_of(7, entry_id, b"new")) is Status.OK
        await bookie.checkpoint()
        for entry_id in range(3):
            assert (await read(bookie, 7, entry_id))[1] == packet_of(7, entry_id, b"new")
        await bookie.close()

    asyncio.run(test())


def test_what_is_added_while_a_ledger_is_removed_leaves_nothing_in_the_index() -> None:
    """A writer may go on after its ledger was deleted, and may fill a cache just then."""

    async def test() -> None:
        executor = HeldExecutor()
        index = MemoryIndex()
        bookie = await open_bookie(MemoryDisk(), index, storage_executor=executor)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        await bookie.checkpoint()
        executor.is_holding = True
        removal = asyncio.create_task(bookie._storage.delete_ledger(7))
        await turns()
        for entry_id in range(1, 9):  # more than half a cache: the caches are swapped
            assert await add(bookie, packet_of(7, entry_id, bytes(20_000))) is Status.OK
        assert bookie._storage._flushing is not None
        executor.let_go()
        await removal
        await bookie.checkpoint()
        assert list(index.entry_ids(7)) == []
        assert await read(bookie, 7, 0) == (Status.NO_LEDGER, b"")
        await bookie.close()

    asyncio.run(test())


def test_g16_g17_a_fence_that_comes_while_a_ledger_is_removed_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """States of ledgers at rest are forgotten, but not that of one that is being removed."""
    monkeypatch.setattr(storages, "_STATES_MAX", 4)

    async def test() -> None:
        executor = HeldExecutor()
        bookie = await open_bookie(MemoryDisk(), MemoryIndex(), storage_executor=executor)
        assert await add(bookie, packet_of(7, 0)) is Status.OK
        await bookie.checkpoint()
        executor.is_holding = True
        removal = asyncio.create_task(bookie._storage.delete_ledger(7))
        await turns()
        bookie._storage._evict_at = 4
        for ledger_id in range(100, 110):
            assert await add(bookie, packet_of(ledger_id, 0)) is Status.OK
        assert await fence(bookie, 7) is Status.OK
        executor.let_go()
        await removal
        assert await add(bookie, packet_of(7, 1)) is Status.FENCED
        await bookie.close()

    asyncio.run(test())


def test_a_full_disk_is_collected_and_gets_room_again() -> None:
    """What is collected needs no flush, which a full disk refuses."""

    async def test() -> None:
        disk = SimulatedDisk(7)
        bookie = await open_bookie(disk, MemoryIndex())
        for ledger_id in (7, 8):
            for entry_id in range(20):
                packet = packet_of(ledger_id, entry_id, bytes(20_000))
                assert await add(bookie, packet) is Status.OK
            await bookie.checkpoint()
        assert await add(bookie, packet_of(7, 20)) is Status.OK
        assert await add(bookie, packet_of(8, 20)) is Status.OK
        before = disk.list("entries")
        disk.capacity_bytes = sum(map(len, disk.contents().values()))
        with pytest.raises(OSError):
            await bookie.checkpoint()
        assert bookie.is_read_only
        assert await bookie.collect(Metadata(8)) == [7]
        assert len(disk.list("entries")) < len(before)
        await bookie.checkpoint()
        assert not bookie.is_read_only
        assert await add(bookie, packet_of(8, 21)) is Status.OK
        assert (await read(bookie, 8, 20))[0] is Status.OK
        assert await read(bookie, 7, 20) == (Status.NO_LEDGER, b"")
        await bookie.close()

    asyncio.run(test())


def test_g18_numbers_of_removed_logs_are_not_given_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A log that a crash left open is told from an old one by its number."""

    async def test() -> None:
        disk, index = SimulatedDisk(7), MemoryIndex()
        bookie = await open_bookie(disk, index)
        for _ in range(2):
            assert await add(bookie, packet_of(7, 0)) is Status.OK
            await bookie.checkpoint()
            await bookie.close()
            bookie = await open_bookie(disk, index)
        assert disk.list("entries") == ["00000001.log", "00000002.log"]
        assert await bookie.collect(Metadata()) == [7]
        assert disk.list("entries") == []
        assert await add(bookie, packet_of(8, 0)) is Status.OK
        disk = disk.restart(is_power_lost=False)
        disk.fail("write", EIO, path="entries/", after=1)  # of the log's end
        with pytest.raises(OSError):
            await open_bookie(disk, index)
        assert disk.list("entries") == ["00000003.log"]
        disk = disk.restart(is_power_lost=False)
        bookie = await open_bookie(disk, index)
        assert "damaged" not in caplog.text
        assert (await read(bookie, 8, 0))[0] is Status.OK
        await bookie.close()

    asyncio.run(test())


def _log_bytes(disk: SimulatedDisk) -> int:
    return sum(disk.size(f"entries/{name}") for name in disk.list("entries"))


class FailingIndex(MemoryIndex):
    """A MemoryIndex whose put() or sync() fails `failures` times; what was put stays."""

    def __init__(self, *, is_put_whole: bool) -> None:
        super().__init__()
        self.failures = 0
        self._is_put_whole = is_put_whole

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(EIO, "the index cannot be written")

    def put(self, locations: Any, ledgers: Any = (), journal: Any = None) -> None:
        if not self._is_put_whole:
            self._fail()
        super().put(locations, ledgers, journal)

    def sync(self) -> None:
        self._fail()
        super().sync()


@pytest.mark.parametrize("is_put_whole", [False, True])
@pytest.mark.parametrize("is_log_new", [False, True])
@pytest.mark.parametrize("is_crash", [False, True])
def test_a_flush_whose_index_fails_leaves_nothing_in_the_log(
    *, is_put_whole: bool, is_log_new: bool, is_crash: bool
) -> None:
    """It is tried again every few seconds, and would fill the disk with what nothing points to."""

    async def test() -> None:
        disk, index = SimulatedDisk(7), FailingIndex(is_put_whole=is_put_whole)
        bookie = await open_bookie(disk, index)
        if not is_log_new:
            assert await add(bookie, packet_of(7, 0, bytes(20_000))) is Status.OK
            await bookie.checkpoint()
        before = _log_bytes(disk)
        assert await add(bookie, packet_of(7, 1, bytes(20_000))) is Status.OK
        index.failures = 4
        for _ in range(4):
            with pytest.raises(OSError):
                await bookie.checkpoint()
            assert _log_bytes(disk) == before
            assert await read(bookie, 7, 1) == (Status.OK, packet_of(7, 1, bytes(20_000)))
            assert await add(bookie, packet_of(8, 1, b"after it")) is Status.OK
        if not is_crash:
            await bookie.checkpoint()
        found = index.crash(lambda count: count)
        again = await open_bookie(disk.restart(), found)
        for entry_id in range(int(is_log_new), 2):
            packet = packet_of(7, entry_id, bytes(20_000))
            assert await read(again, 7, entry_id) == (Status.OK, packet)
        assert (await read(again, 8, 1))[0] is Status.OK
        await again.close()

    asyncio.run(test())


def test_what_is_kept_of_the_maps_of_logs_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_logs, "_MAP_ROWS_MAX", 12)

    async def test() -> None:
        bookie = await open_bookie(MemoryDisk(), MemoryIndex())
        logs = bookie._storage.logs
        for first in range(0, 80, 8):
            for ledger_id in range(first, first + 8):
                assert await add(bookie, packet_of(ledger_id, 0)) is Status.OK
            await bookie.checkpoint()
            bookie._storage.flusher.seal()
        assert await bookie.collect(Metadata(*range(0, 80, 2))) == list(range(1, 80, 2))
        assert len(logs._maps) == 1
        assert [len(logs.ledger_map(n) or ()) for n in logs.numbers()] == 10 * [8]
        assert await bookie.collect(Metadata()) == list(range(0, 80, 2))
        assert (logs.numbers(), logs._map_rows) == ([], 0)
        await bookie.close()

    simulate(test)


def test_a_removal_that_fails_does_not_keep_the_logs_of_those_before_it() -> None:
    class FullIndex(MemoryIndex):
        def delete_ledger(self, ledger_id: int) -> None:
            if ledger_id == 8:
                raise OSError(ENOSPC, "no room for the removal")
            super().delete_ledger(ledger_id)

    async def test() -> None:
        disk = MemoryDisk()
        bookie = await open_bookie(disk, FullIndex())
        for ledger_id in (7, 8):
            assert await add(bookie, packet_of(ledger_id, 0)) is Status.OK
            await bookie.checkpoint()
            bookie._storage.flusher.seal()
        with pytest.raises(OSError, match="no room"):
            await bookie.collect(Metadata())
        assert disk.list("entries") == ["00000002.log"]
        assert (await read(bookie, 8, 0))[0] is Status.OK
        await bookie.close()

    simulate(test)
