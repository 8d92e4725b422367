"""(b) Our client on Apache's bookies."""

import asyncio

import pytest

from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import LedgerFencedError, UnauthorizedAccessError
from bookie.ledger.record_frame import split
from bookie.ledger.types import DigestType, Status
from tests.fixtures.bookie_processes import client_of, in_loop
from tests.interop.apache import ApacheBookie, Release, run_program
from tests.interop.conftest import World


@pytest.fixture(scope="module", autouse=True)
def bookies(theirs: list[ApacheBookie]) -> list[ApacheBookie]:
    return theirs


def payload(entry_id: int, byte_count: int = 100) -> bytes:
    """The same as Peer.payload in java/Peer.java."""
    pattern = b"entry-%d;" % entry_id
    return (pattern * (byte_count // len(pattern) + 1))[:byte_count]


async def add_all(writer: LedgerWriter, count: int, byte_count: int = 100) -> None:
    await asyncio.gather(*(writer.add(payload(n, byte_count)) for n in range(count)))


@pytest.mark.parametrize("digest", list(DigestType))
def test_write_close_read(world: World, current: Release, digest: DigestType) -> None:
    async def case() -> int:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2, digest, b"secret")
            await add_all(writer, 300, 1000)
            await writer.close()
            reader = await client.open(writer.ledger_id, b"secret")
            entries = await reader.read(0, reader.lac)
            assert [bytes(e.payload) for e in entries] == [payload(n, 1000) for n in range(300)]
            with pytest.raises(UnauthorizedAccessError):
                await client.open(writer.ledger_id, b"wrong")
            return writer.ledger_id

    ledger = in_loop(case)
    name = "MAC" if digest is DigestType.HMAC else digest.name
    read = run_program(
        current, "Reader", uri=world.cluster.uri, ledger=ledger, digest=name, password="secret"
    )[1]
    assert read == {"read": 300, "bytes": 300_000, "wrong": 0}


def test_recovery_fences_a_live_writer(world: World) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as one, client_of(world.cluster) as two:
            writer = await one.create_ledger(3, 3, 2)
            await add_all(writer, 50)
            metadata = await two.recover(writer.ledger_id)
            assert (metadata.last_entry_id, metadata.length) == (49, 5000)
            with pytest.raises(LedgerFencedError):
                await writer.add(b"too late")
            await writer.abandon()

    in_loop(case)


def test_striped_ledger(world: World) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 2, 2)
            await add_all(writer, 100)
            await writer.abandon()
            reader = await client.open(writer.ledger_id)
            assert reader.lac == 99
            entries = await reader.read(0, 99)
            assert [bytes(e.payload) for e in entries] == [payload(n) for n in range(100)]

    in_loop(case)


def test_records_in_frames(world: World) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2)
            records = [b"record %d" % n for n in range(5000)]
            positions = await writer.append_many(records)
            assert len(positions) == 5000
            await writer.close()
            reader = await client.open(writer.ledger_id)
            entries = await reader.read(0, reader.lac)
            found = [bytes(r) for entry in entries for r in split(entry.payload)]
            assert found == records

    in_loop(case)


def test_deferred_sync_and_force(world: World) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2, is_deferred_sync=True)
            await add_all(writer, 20)
            assert writer.lac == -1
            await writer.force()
            assert writer.lac == 19
            await writer.close()
            assert (await client.metadata(writer.ledger_id)).last_entry_id == 19

    in_loop(case)


def test_explicit_lac(world: World) -> None:
    async def case() -> None:
        config = ClientConfig(explicit_lac_interval_s=0.05)
        async with client_of(world.cluster, config) as client:
            writer = await client.create_ledger(3, 3, 2)
            await add_all(writer, 10)
            reader = await client.open(writer.ledger_id, recover=False)
            news = await reader.read_next(9, 20)
            assert news.lac == 9
            await writer.close()

    in_loop(case)


def test_given_ids(world: World) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2, are_ids_given=True)
            await asyncio.gather(*(writer.add(payload(n), n) for n in (2, 0, 1)))
            await writer.close()
            reader = await client.open(writer.ledger_id)
            entries = await reader.read(0, 2)
            assert [bytes(e.payload) for e in entries] == [payload(n) for n in range(3)]

    in_loop(case)


def test_space_and_entry_lists(world: World, bookies: list[ApacheBookie]) -> None:
    async def case() -> None:
        async with client_of(world.cluster) as client:
            channels = client.services.channels
            loop = asyncio.get_running_loop()
            for bookie in client.bookies.writable:
                answered = loop.create_future()
                channels.info(bookie, answered.set_result)
                info = await answered
                assert info.status is Status.OK
                assert 0 < info.free_bytes <= info.total_bytes

    in_loop(case)


def test_an_apache_bookie_dies_under_our_writer(
    world: World, current: Release, bookies: list[ApacheBookie]
) -> None:
    """Without a replacement the writer goes on with two of three (docs/protocols/writer.md)."""

    async def case() -> int:
        async with client_of(world.cluster) as client:
            writer = await client.create_ledger(3, 3, 2)
            await add_all(writer, 20)
            bookies[0].kill()
            for number in range(20, 60):
                await writer.add(payload(number))
            await writer.close()
            return writer.ledger_id

    ledger = in_loop(case)
    read = run_program(current, "Reader", uri=world.cluster.uri, ledger=ledger)[1]
    assert read == {"read": 60, "bytes": 6000, "wrong": 0}
