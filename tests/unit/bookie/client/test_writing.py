"""The writer with bookies, store and recoverers of the product: what was acknowledged stays."""

import asyncio

import pytest

from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import (
    BookieError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataVersionError,
    WriteError,
)
from bookie.ledger.record_frame import split
from bookie.ledger.types import EntryId, LedgerMetadata, LedgerState
from tests.fixtures.ledger_cluster import LedgerCluster, simulate_cluster

PASSWORD = b"secret"
CONFIG = ClientConfig(add_timeout_s=2.0, read_timeout_s=2.0, speculative_read_s=0.5)


async def payloads(cluster: LedgerCluster, ledger_id: int) -> list[bytes]:
    """Recover the ledger as another client and return all that is in it."""
    client = await cluster.client(CONFIG)
    reader = await client.open(ledger_id, PASSWORD)
    if reader.lac < 0:
        return []
    return [bytes(entry.payload) for entry in await reader.read(0, reader.lac)]


async def add_all(writer: LedgerWriter, first: int, last: int) -> list[int]:
    """Add numbers at once; return those that were acknowledged."""
    results = await asyncio.gather(
        *(writer.add(b"%d" % n) for n in range(first, last + 1)), return_exceptions=True
    )
    for result in results:
        assert isinstance(result, int | BookieError)
    return [result for result in results if isinstance(result, int)]


def test_records_of_append_many_are_read_where_it_said() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD)
        records = [b"%05d" % n * 40 for n in range(2000)]
        positions = await writer.append_many(records)
        await writer.close()
        reader = await client.open(writer.ledger_id, PASSWORD)
        entries = {
            entry.entry_id: split(entry.payload) for entry in await reader.read(0, reader.lac)
        }
        assert [entries[p.entry_id][p.number] for p in positions] == records
        assert len(entries) < 10

    simulate_cluster(body)


def test_cluster_3_of_three_machines_one_dies_and_writing_goes_on() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD)
        await add_all(writer, 0, 9)
        await cluster.bookies["b1"].kill()
        assert await add_all(writer, 10, 28) == list(range(10, 29))
        await asyncio.sleep(3)  # longer than an add may take
        assert await add_all(writer, 29, 29) == [29]  # late errors count at the next add
        assert writer.missing_bookies == ("b1",)
        await cluster.bookies["b1"].start()
        await asyncio.sleep(0.5)
        assert await add_all(writer, 30, 39) == list(range(30, 40))
        assert writer.missing_bookies == ()
        await writer.abandon()
        assert await payloads(cluster, writer.ledger_id) == [b"%d" % n for n in range(40)]

    for seed in range(5):
        simulate_cluster(body, 3, seed)


def test_a_bookie_whose_disk_fills_up_is_replaced_and_still_read() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD)
        (spare,) = set(cluster.bookies) - set(writer.metadata.last_segment.ensemble)
        full = cluster.bookies[writer.metadata.last_segment.ensemble[1]]
        assert await add_all(writer, 0, 9) == list(range(10))
        assert full.bookie is not None
        full.bookie.set_read_only(is_read_only=True)
        assert await add_all(writer, 10, 19) == list(range(10, 20))
        await asyncio.sleep(1)
        assert await add_all(writer, 20, 20) == [20]
        assert spare in writer.metadata.last_segment.ensemble
        assert full.bookie_id not in writer.metadata.last_segment.ensemble
        await writer.close()
        assert await payloads(cluster, writer.ledger_id) == [b"%d" % n for n in range(21)]

    simulate_cluster(body, 4)


def test_two_of_three_die_and_what_was_acknowledged_is_recovered_later() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD)
        acknowledged = await add_all(writer, 0, 9)
        for name in ("b0", "b2"):
            await cluster.bookies[name].kill()
        acknowledged += await add_all(writer, 10, 19)
        assert isinstance(writer.error, WriteError)
        await writer.abandon()
        for name in ("b0", "b2"):
            await cluster.bookies[name].start()
        found = await payloads(cluster, writer.ledger_id)
        assert found == [b"%d" % n for n in range(len(found))]
        assert len(found) >= len(acknowledged)

    for seed in range(5):
        simulate_cluster(body, 3, seed)


def test_every_acknowledged_entry_survives_a_change_of_each_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(4, 3, 2, password=PASSWORD)
        acknowledged: list[int] = []
        for number in range(3):
            adds = asyncio.ensure_future(add_all(writer, 21 * number, 21 * number + 19))
            await asyncio.sleep(0)
            victim = cluster.bookies[writer.metadata.last_segment.ensemble[number]]
            await victim.kill()
            acknowledged += await adds
            acknowledged.append(await writer.add(b"%d" % (21 * number + 20)))
            await victim.start()
        assert acknowledged == list(range(63))
        await writer.close()
        assert len(writer.metadata.segments) > 1
        assert await payloads(cluster, writer.ledger_id) == [b"%d" % n for n in range(63)]

    for seed in range(5):
        simulate_cluster(body, 6, seed)


def test_a_recovery_beside_a_live_writer_keeps_every_acknowledged_entry() -> None:
    """ADR 0012: whether the writer or the recovery decides the end."""
    outcomes: list[object] = []

    async def body(cluster: LedgerCluster, recovers_after_s: float) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD)
        await add_all(writer, 0, 4)
        adds = asyncio.ensure_future(add_all(writer, 5, 60))
        other = await cluster.client(CONFIG)

        async def recover() -> LedgerMetadata:
            await asyncio.sleep(recovers_after_s)
            return await other.recover(writer.ledger_id, PASSWORD)

        recovering = asyncio.ensure_future(recover())
        acknowledged = await adds
        closed = await asyncio.gather(writer.close(), return_exceptions=True)
        metadata = await recovering
        assert metadata.is_closed
        assert metadata.last_entry_id >= 4 + len(acknowledged)
        outcomes.extend(closed)
        if closed == [None]:
            assert metadata.last_entry_id == writer.lac
        else:
            assert isinstance(closed[0], LedgerFencedError | MetadataVersionError)
        found = await payloads(cluster, writer.ledger_id)
        assert found == [b"%d" % n for n in range(metadata.last_entry_id + 1)]
        await writer.abandon()

    for seed in range(20):
        simulate_cluster(lambda cluster, s=seed: body(cluster, s / 10_000), 3, seed)
    assert 0 < outcomes.count(None) < len(outcomes), "only one of them ever decided"


def test_adr_0012_close_in_the_middle_of_a_recovery_that_stops_there() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD)
        await add_all(writer, 0, 9)
        ledgers = client.services.ledgers
        metadata, version = await ledgers.read(writer.ledger_id)
        await ledgers.write(metadata.with_state(LedgerState.IN_RECOVERY), version)
        with pytest.raises(LedgerFencedError, match="open it with recovery"):
            await writer.close()
        assert (await client.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
        assert len(await payloads(cluster, writer.ledger_id)) == 10
        await writer.close()  # the recovery ended where the writer does
        with pytest.raises(LedgerClosedError):
            await writer.add(b"late")

    simulate_cluster(body)


def test_explicit_lac_reaches_a_reader_and_outlives_a_restart() -> None:
    """ExplicitLacTest: without another entry, within 20 ms of virtual time, durably."""

    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(ClientConfig(explicit_lac_interval_s=0.01))
        writer = await client.create_ledger(password=PASSWORD)
        for n in range(5):
            await writer.add(b"%d" % n)
        reader = await (await cluster.client(CONFIG)).open(
            writer.ledger_id, PASSWORD, recover=False
        )
        await asyncio.sleep(0.02)
        assert await reader.read_last_confirmed() == 4
        for bookie in cluster.bookies.values():
            await bookie.kill()
            await bookie.start()
        again = await (await cluster.client(CONFIG)).open(writer.ledger_id, PASSWORD, recover=False)
        assert await again.read_last_confirmed() == 4
        await writer.close()

    simulate_cluster(body)


def test_4_8_deferred_sync_recovers_to_what_was_forced_or_beyond() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD, is_deferred_sync=True)
        await add_all(writer, 0, 4)
        assert writer.lac == -1
        await writer.force()
        assert writer.lac == 4
        await add_all(writer, 5, 9)
        await writer.close()
        metadata = await client.metadata(writer.ledger_id)
        assert metadata.last_entry_id == EntryId(4)
        assert await payloads(cluster, writer.ledger_id) == [b"%d" % n for n in range(5)]

    simulate_cluster(body)


@pytest.mark.parametrize("will_add", [False, True])
def test_4_8_deferred_sync_a_bookie_that_restarted_before_the_force_fails_it(
    will_add: bool,
) -> None:
    """It may have lost what it acknowledged without fsync, and its force would say OK."""

    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD, is_deferred_sync=True)
        await add_all(writer, 0, 4)
        for bookie in cluster.bookies.values():
            await bookie.kill()
            await bookie.start()
        await asyncio.sleep(30)
        if will_add:
            with pytest.raises(WriteError):
                await writer.add(b"5")
        for _ in range(2):
            with pytest.raises(WriteError):
                await writer.force()
        assert writer.lac == -1
        await writer.close()

    simulate_cluster(body)


def test_4_8_deferred_sync_a_restart_after_the_force_is_no_failure() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(password=PASSWORD, is_deferred_sync=True)
        await add_all(writer, 0, 4)
        await writer.force()
        for bookie in cluster.bookies.values():
            await bookie.kill()
            await bookie.start()
        await asyncio.sleep(30)
        await add_all(writer, 5, 9)
        await writer.force()
        assert writer.lac == 9
        await writer.close()

    simulate_cluster(body)
