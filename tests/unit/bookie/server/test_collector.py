"""The collector's timers, and what is forgotten from memory, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bookie.errors import MetadataStoreError, NoSuchLedgerMetadataError
from bookie.ledger.types import Status
from bookie.runtime.memory_disk import MemoryDisk
from bookie.server import storage as storages
from bookie.server.memory_index import MemoryIndex
from tests.fixtures.storages import CONFIG, add, fence, open_bookie, packet_of, read
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

    async def read(self, ledger_id: int) -> object:
        if ledger_id not in self.known:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        return self


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
