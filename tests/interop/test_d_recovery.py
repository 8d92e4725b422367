"""(d) Apache recovers what we left open, we recover what Apache left open, live writers fenced."""

import pytest

from bookie.errors import LedgerFencedError
from tests.fixtures.bookie_processes import client_of, in_loop
from tests.interop.apache import Program, Release, run_program
from tests.interop.conftest import World
from tests.interop.test_b_ours_on_apache import add_all, payload


@pytest.fixture(scope="module")
def world(each_world: World) -> World:
    return each_world


def test_apache_recovers_what_our_dead_writer_left(world: World, release: Release) -> None:
    async def leave_open() -> int:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2)
            await add_all(writer, 150)
            await writer.abandon()
            return writer.ledger_id

    ledger = in_loop(leave_open)
    opened, read = run_program(release, "Reader", uri=world.cluster.uri, ledger=ledger, recover=1)
    assert (opened["lac"], opened["length"], opened["is_closed"]) == (149, 15_000, True)
    assert read == {"read": 150, "bytes": 15_000, "wrong": 0}


def test_we_recover_what_apaches_dead_writer_left(world: World, release: Release) -> None:
    written = run_program(release, "Writer", uri=world.cluster.uri, count=150, close=0)

    async def recover() -> None:
        async with client_of(world.cluster) as client:
            metadata = await client.recover(written[0]["ledger"])
            assert (metadata.last_entry_id, metadata.length) == (149, 15_000)
            reader = await client.open(metadata.ledger_id)
            entries = await reader.read(0, 149)
            assert [bytes(e.payload) for e in entries] == [payload(n) for n in range(150)]

    in_loop(recover)


def test_apache_fences_our_live_writer(world: World, release: Release) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2)
            await add_all(writer, 30)
            import asyncio

            opened = (
                await asyncio.to_thread(
                    run_program, release, "Reader", uri=world.cluster.uri,
                    ledger=writer.ledger_id, recover=1,
                )
            )[0]  # fmt: skip
            assert (opened["lac"], opened["is_closed"]) == (29, True)
            with pytest.raises(LedgerFencedError):
                await writer.add(b"too late")
            await writer.abandon()

    in_loop(case)


def test_we_fence_apaches_live_writer(world: World, release: Release) -> None:
    with Program(
        release, "Writer", uri=world.cluster.uri, count=100_000, pace_ms=2, window=10
    ) as writer:
        ledger = writer.until("ledger")
        writer.until("added", value=50)

        async def recover() -> int:
            async with client_of(world.cluster) as client:
                return (await client.recover(ledger)).last_entry_id

        last = in_loop(recover)
        assert writer.until("error") == -101
        lines = writer.finish()
    acknowledged = max(line["added"] for line in lines if "added" in line)
    assert 50 <= acknowledged <= last


def test_an_empty_ledger_is_recovered_by_either(world: World, release: Release) -> None:
    theirs = run_program(release, "Writer", uri=world.cluster.uri, count=0, close=0)

    async def case() -> int:
        async with client_of(world.cluster) as client:
            metadata = await client.recover(theirs[0]["ledger"])
            assert (metadata.last_entry_id, metadata.length) == (-1, 0)
            writer = await client.create_ledger(3, 3, 2)
            await writer.abandon()
            return writer.ledger_id

    ledger = in_loop(case)
    opened = run_program(release, "Reader", uri=world.cluster.uri, ledger=ledger, recover=1)[0]
    assert (opened["lac"], opened["length"], opened["is_closed"]) == (-1, 0, True)
