"""(e) Long-poll tailing: Apache's reader behind our writer, ours behind Apache's."""

import asyncio

import pytest

from tests.fixtures.bookie_processes import client_of, in_loop
from tests.interop.apache import Program, Release
from tests.interop.conftest import World
from tests.interop.test_b_ours_on_apache import payload

COUNT = 120


@pytest.fixture(scope="module")
def world(each_world: World) -> World:
    return each_world


def test_apache_tails_our_writer(world: World, release: Release) -> None:
    async def case() -> list[dict[str, object]]:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2)
            await writer.add(payload(0))
            with Program(
                release, "Tailer", uri=world.cluster.uri, ledger=writer.ledger_id
            ) as tailer:
                tailer.until("opened")
                for number in range(1, COUNT):
                    await writer.add(payload(number))
                    await asyncio.sleep(0.005)
                await writer.close()
                return await asyncio.to_thread(tailer.finish)

    lines = in_loop(case)
    seen = [line for line in lines if "entry" in line]
    assert [line["entry"] for line in seen] == list(range(COUNT)), lines[-3:]
    assert all(line["is_right"] for line in seen)
    assert lines[-1] == {"seen": COUNT, "is_closed": True}


def test_we_tail_apaches_writer(world: World, release: Release) -> None:
    async def case() -> list[bytes]:
        async with client_of(world.cluster) as client:
            with Program(
                release, "Writer", uri=world.cluster.uri, count=COUNT, pace_ms=5
            ) as writer:
                ledger = await asyncio.to_thread(writer.until, "ledger")
                reader = await client.open(ledger, recover=False)
                found: list[bytes] = []
                async with asyncio.timeout(60):
                    async for entry in reader.tail():
                        assert entry.entry_id == len(found)
                        found.append(bytes(entry.payload))
                await asyncio.to_thread(writer.finish)
                return found

    assert in_loop(case) == [payload(n) for n in range(COUNT)]
