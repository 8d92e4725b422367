"""LedgerClient over bookies and a store in memory: open, fence, recover, read, tail, delete."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bookie.client.client import LedgerClient
from bookie.client.read_runners import POLLS_PER_BOOKIE_MAX
from bookie.client.reader import LedgerReader
from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import (
    BookieError,
    BookieUnavailableError,
    ClientClosedError,
    DigestMismatchError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerExistsError,
    LedgerFencedError,
    LedgerRecoveryError,
    MetadataStoreError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NoSuchLedgerMetadataError,
    NotEnoughBookiesError,
    ReadError,
    UnauthorizedAccessError,
)
from bookie.ledger.codec import Entry
from bookie.ledger.types import BookieId, DigestType, EntryId, LedgerState, Status
from bookie.lifecycle.states import Step
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.memory import MemoryStore
from bookie.runtime.os_rng import OsRng
from tests.fixtures.ledger_cluster import ClusterBookie, LedgerCluster, simulate_cluster
from tests.sim.clock import SimulatedClock

PASSWORD = b"secret"
CONFIG = ClientConfig(add_timeout_s=2.0, read_timeout_s=2.0, speculative_read_s=0.5)
ENDED = (LedgerFencedError, LedgerClosedError)


async def fill(writer: LedgerWriter, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await writer.add(b"%d" % number)


async def written(cluster: LedgerCluster, count: int, **options: object) -> LedgerWriter:
    client = await cluster.client(CONFIG)
    writer = await client.create_ledger(password=PASSWORD, **options)
    await fill(writer, count)
    return writer


def payloads(entries: list[Entry]) -> list[bytes]:
    return [bytes(entry.payload) for entry in entries]


def expected(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last + 1)]


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize("digest_type", list(DigestType))
def test_every_digest_type_is_taken_from_the_metadata(digest_type: DigestType) -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5, digest_type=digest_type)
        await writer.close()
        client = await cluster.client(CONFIG)
        wrong = DigestType.CRC32 if digest_type is DigestType.HMAC else DigestType.HMAC
        reader = await client.open(writer.ledger_id, PASSWORD, digest_type=wrong)
        assert payloads(await reader.read(0, 4)) == expected(0, 4)

    simulate_cluster(body)


def test_a_wrong_password_is_refused_before_a_bookie_is_asked() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 1)
        client = await cluster.client(CONFIG)
        for call in (client.open, client.recover):
            with pytest.raises(UnauthorizedAccessError, match="password"):
                await call(writer.ledger_id, b"wrong")
        with pytest.raises(UnauthorizedAccessError):
            await client.open(writer.ledger_id, b"wrong", recover=False)
        assert (await client.metadata(writer.ledger_id)).state is LedgerState.OPEN
        await writer.close()

    simulate_cluster(body)


def test_a_wrong_master_key_ends_recovery_at_once() -> None:
    """The metadata was changed by hand; the bookies still know the first key."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 1)
        await writer.abandon()
        client = await cluster.client(CONFIG)
        ledgers = client.services.ledgers
        metadata, version = await ledgers.read(writer.ledger_id)
        fields = {name: getattr(metadata, name) for name in metadata.__dataclass_fields__}
        await ledgers.write(type(metadata)(**{**fields, "password": b"other"}), version)
        with pytest.raises(UnauthorizedAccessError):
            await client.open(writer.ledger_id, b"other")

    simulate_cluster(body)


def test_a_ledger_that_was_never_there() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        for recover in (True, False):
            with pytest.raises(NoSuchLedgerMetadataError):
                await client.open(4711, PASSWORD, recover=recover)
        await client.delete(4711)

    simulate_cluster(body)


def test_a_ledger_that_a_server_has_not_heard_of_is_found() -> None:
    """The caller was told of it by a client at another server."""

    async def body(cluster: LedgerCluster) -> None:
        store = MemoryStore(cluster.store_server)
        client = await LedgerClient.connect(
            store, rng=OsRng(), clock=SimulatedClock(), config=CONFIG
        )
        cluster.store_server.freeze(store.session_id)
        writer = await written(cluster, 1)
        assert (await client.metadata(writer.ledger_id)).ledger_id == writer.ledger_id
        await writer.close()
        await client.close()
        await store.close()

    simulate_cluster(body)


def test_a_client_that_could_not_connect_leaves_no_watches_in_the_store() -> None:
    async def body(cluster: LedgerCluster) -> None:
        store = MemoryStore(cluster.store_server)
        cluster.store_server.disconnect(store.session_id)
        with pytest.raises(MetadataStoreError):
            await LedgerClient.connect(store, rng=OsRng(), clock=SimulatedClock())
        assert store.watches == []
        await store.close()

    simulate_cluster(body)


def test_4_2_create_asks_no_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        for bookie in cluster.bookies.values():
            await bookie.kill(is_registered=True)
        client = await cluster.client(CONFIG)
        writer = await client.create_ledger(3, 3, 2)
        metadata = await client.metadata(writer.ledger_id)
        assert metadata.state is LedgerState.OPEN
        assert [segment.first_entry_id for segment in metadata.segments] == [0]
        assert set(metadata.last_segment.ensemble) == set(cluster.bookies)
        await writer.abandon()

    simulate_cluster(body)


def test_locations_keep_write_sets_apart() -> None:
    """Placement by racks is a matter of configuration: it is enough to say where bookies are."""

    async def body(cluster: LedgerCluster) -> None:
        racks = {BookieId(f"b{n}"): f"/rack-{n % 2}" for n in range(6)}
        client = await cluster.client(CONFIG, locations=racks)
        for _ in range(10):
            writer = await client.create_ledger(4, 2, 2)
            ensemble = writer.metadata.last_segment.ensemble
            for first in range(4):
                assert racks[ensemble[first]] != racks[ensemble[(first + 1) % 4]]
            await writer.abandon()

    simulate_cluster(body, 6)


def test_4_5_delete_removes_the_metadata_and_asks_no_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        await writer.close()
        client = await cluster.client(CONFIG)
        for bookie in cluster.bookies.values():
            await bookie.kill(is_registered=True)
        await client.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedgerMetadataError):
            await client.metadata(writer.ledger_id)
        await client.delete(writer.ledger_id)

    simulate_cluster(body)


def test_not_enough_bookies_says_how_many_there_are() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        with pytest.raises(NotEnoughBookiesError, match=r"4.*3|3.*4"):
            await client.create_ledger(4, 3, 2)
        await cluster.add_bookie()
        writer = await client.create_ledger(4, 3, 2)
        assert await writer.add(b"x") == 0
        await writer.close()

    simulate_cluster(body)


def test_given_ids_wrong_quorums_and_the_list_of_ledgers() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client = await cluster.client(CONFIG)
        for sizes in ((3, 2, 3), (2, 3, 1), (3, 3, 0)):
            with pytest.raises(IncorrectParameterError):
                await client.create_ledger(*sizes)
        writers = [await client.create_ledger(1, 1, 1, ledger_id=n) for n in (5, 2**40, 9)]
        with pytest.raises(LedgerExistsError):
            await client.create_ledger(1, 1, 1, ledger_id=9)
        assert [ledger_id async for ledger_id in client.ledger_ids()] == [5, 9, 2**40]
        for writer in writers:
            await writer.close()

    simulate_cluster(body)


# --- fencing --------------------------------------------------------------------------------------


def test_basic_fencing() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert reader.lac == 9
        with pytest.raises(ENDED):
            await writer.add(b"too late")
        with pytest.raises(ENDED):
            await writer.add(b"later still")
        await writer.abandon()

    simulate_cluster(body)


def test_opening_without_recovery_fences_nothing() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        assert not reader.is_closed
        assert reader.length is None
        assert await writer.add(b"still writing") == 10
        assert await reader.read_last_confirmed() == 9
        await writer.close()

    simulate_cluster(body)


def test_many_open_at_once_and_all_agree() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 20)
        adding = [asyncio.ensure_future(writer.add(b"%d" % n)) for n in range(20, 60)]
        clients = [await cluster.client(CONFIG) for _ in range(5)]
        readers = await asyncio.gather(
            *(client.open(writer.ledger_id, PASSWORD) for client in clients)
        )
        acked = [r for r in await asyncio.gather(*adding, return_exceptions=True) if type(r) is int]
        assert len({(reader.lac, reader.length) for reader in readers}) == 1
        assert readers[0].lac >= max(acked, default=19)
        read = await readers[0].read(0, readers[0].lac)
        assert payloads(read) == expected(0, readers[0].lac)
        await writer.abandon()

    for seed in range(8):
        simulate_cluster(body, 5, seed)


def test_fencing_outlives_a_restart_of_the_bookies() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        client = await cluster.client(CONFIG)
        await client.recover(writer.ledger_id, PASSWORD)
        for bookie in cluster.bookies.values():
            await bookie.kill()
            await bookie.start()
        with pytest.raises(BookieError):
            await writer.add(b"after the restart")
        await writer.abandon()
        assert (await client.metadata(writer.ledger_id)).last_entry_id == 2

    simulate_cluster(body)


def test_fencing_with_a_hung_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 50)
        cluster.bookies["b1"].answers.hold("read")
        cluster.bookies["b1"].answers.hold("fence")
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert reader.lac == 49
        assert payloads(await reader.read(0, 49)) == expected(0, 49)
        await writer.abandon()

    simulate_cluster(body)


def test_writing_after_the_ledger_was_deleted() -> None:
    """TestFencing.testWriteAfterDeleted: adds go on, what needs the metadata does not."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        await client.delete(writer.ledger_id)
        assert await writer.add(b"unaware") == 5
        with pytest.raises(BookieError):
            await writer.close()
        with pytest.raises(NoSuchLedgerMetadataError):
            await client.open(writer.ledger_id, PASSWORD)

    simulate_cluster(body)


# --- recovery -------------------------------------------------------------------------------------


def test_recovery_after_a_rolling_restart() -> None:
    """LedgerRecoveryTest.testLedgerRecoveryWithRollingRestart."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 20)
        for name in sorted(cluster.bookies):
            await cluster.bookies[name].kill()
            await writer.add(b"while %s is away" % name.encode())
            await cluster.bookies[name].start()
            await asyncio.sleep(30)
        await writer.abandon()
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert reader.lac == 22
        assert len(await reader.read(0, 22)) == 23

    simulate_cluster(body)


def test_recovery_with_a_slow_bookie() -> None:
    """LedgerRecoveryTest.testLedgerRecoveryWithSlowBookie: its adds and reads never come back."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 20)
        slow = cluster.bookies[writer.metadata.segments[0].ensemble[0]]
        for name in ("add", "read", "fence"):
            slow.answers.hold(name)
        await writer.abandon()
        client = await cluster.client(CONFIG)
        began_at = asyncio.get_running_loop().time()
        assert (await client.recover(writer.ledger_id, PASSWORD)).last_entry_id == 19
        assert asyncio.get_running_loop().time() - began_at < 0.5

    simulate_cluster(body)


def test_an_empty_ledger_recovers_to_nothing() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 0)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert (reader.lac, reader.length, reader.is_closed) == (-1, 0, True)
        assert [entry async for entry in reader.tail()] == []
        await writer.abandon()

    simulate_cluster(body)


def test_4_6_recovering_a_closed_ledger_changes_nothing() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        await writer.close()
        client = await cluster.client(CONFIG)
        _, version = await client.services.ledgers.read(writer.ledger_id)
        metadata = await client.recover(writer.ledger_id, PASSWORD)
        assert (metadata.last_entry_id, metadata.length) == (2, 3)
        assert (await client.services.ledgers.read(writer.ledger_id))[1] == version

    simulate_cluster(body)


def test_recovery_with_all_bookies_down_leaves_it_in_recovery_and_may_be_repeated() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        await writer.abandon()
        for bookie in cluster.bookies.values():
            await bookie.kill()
        client = await cluster.client(CONFIG)
        with pytest.raises(LedgerRecoveryError, match="b0 UNAVAILABLE"):
            await client.recover(writer.ledger_id, PASSWORD)
        assert (await client.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
        for bookie in cluster.bookies.values():
            await bookie.start()
        await client.bookies.refresh()
        await asyncio.sleep(5)
        assert (await client.recover(writer.ledger_id, PASSWORD)).last_entry_id == 2

    simulate_cluster(body)


def test_progress_counts_what_is_re_added() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 30)
        await writer.abandon()
        seen: list[tuple[int, int]] = []
        client = await cluster.client(CONFIG)
        await client.recover(writer.ledger_id, PASSWORD, lambda *what: seen.append(what))
        assert seen[-1][1] == 29
        assert [count for count, _ in seen] == sorted(count for count, _ in seen)

    simulate_cluster(body)


def test_callbacks_that_raise_hurt_neither_recovery_nor_reads() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 30)
        await writer.abandon()
        answers = cluster.bookies["b1"].answers
        whole = answers.read

        def damaged(ledger_id, entry_id, on_done):
            whole(ledger_id, entry_id, lambda s, p: on_done(s, bytes(p)[:-1] + b"?"))

        answers.read = damaged

        def fail(*_: int | str) -> None:
            raise RuntimeError("a caller's mistake")

        client = await cluster.client(CONFIG, on_damage=fail)
        assert (await client.recover(writer.ledger_id, PASSWORD, fail)).last_entry_id == 29
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert len(await reader.read(0, 29)) == 30
        assert client.services.damage_count > 0

    simulate_cluster(body)


def test_a_bookie_that_reads_but_takes_no_writes_is_replaced_in_recovery() -> None:
    """LedgerRecovery2Test, testCanReadLacButCantWrite and its neighbours."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 30)
        await writer.abandon()
        refusing = writer.metadata.segments[0].ensemble[:2]
        for name in refusing:
            cluster.bookies[name].answers.forced["add"] = Status.IO_ERROR
        client = await cluster.client(CONFIG)
        metadata = await client.recover(writer.ledger_id, PASSWORD)
        assert metadata.last_entry_id == 29
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert payloads(await reader.read(0, 29)) == expected(0, 29)
        assert not set(refusing) & set(metadata.last_segment.ensemble)

    simulate_cluster(body, 5)


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("is_early", [False, True])
def test_a_recovery_names_no_bookie_that_drains_meanwhile(is_removed: bool, is_early: bool) -> None:
    """It takes a recovery's adds, and is Drained before the metadata names it."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 8, ensemble_size=2, write_quorum_size=2)
        await writer.abandon()
        lost, _ = members = writer.metadata.last_segment.ensemble
        await cluster.bookies[lost].kill()
        client = await cluster.client(CONFIG)
        (other,) = {*cluster.bookies} - {*members}
        target = BookieId(other)
        states = LifecycleStore(cluster.store, "/ledgers")
        answers = cluster.bookies[target].answers.hold("add")
        recovering = asyncio.ensure_future(client.recover(writer.ledger_id, PASSWORD))
        if is_early:
            await states.move(target, Step.DRAIN, lambda record: record)
        await cluster.bookies[target].answers.wait_held("add")
        if not is_early:
            await states.move(target, Step.DRAIN, lambda record: record)
        found = await states.move(target, Step.FINISH, lambda record: record)
        await cluster.bookies[target].deregister()
        if is_removed:
            await states.remove(found)
        third = await cluster.add_bookie()
        for answer in answers:
            answer()
        metadata = await recovering
        await cluster.bookies.pop(target).kill(is_registered=True)
        assert metadata.last_entry_id == 7
        named = {b for segment in metadata.segments for b in segment.ensemble}
        assert target not in named
        assert third.bookie_id in named
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert payloads(await reader.read(0, 7)) == expected(0, 7)

    simulate_cluster(body)


def test_recovery_without_a_spare_bookie_goes_on_with_the_quorum() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 30)
        await writer.abandon()
        await cluster.bookies["b2"].kill()
        client = await cluster.client(CONFIG)
        metadata = await client.recover(writer.ledger_id, PASSWORD)
        assert metadata.last_entry_id == 29
        assert len(metadata.segments) == 1

    simulate_cluster(body)


def test_recovery_meets_a_close_by_the_writer() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        client = await cluster.client(CONFIG)
        closing = asyncio.ensure_future(writer.close())
        metadata = await client.recover(writer.ledger_id, PASSWORD)
        await asyncio.gather(closing, return_exceptions=True)
        stands = await client.metadata(writer.ledger_id)
        assert metadata.last_entry_id == stands.last_entry_id == 9
        assert stands.is_closed

    for seed in range(10):
        simulate_cluster(body, 3, seed)


def test_a_ledger_deleted_while_it_is_recovered() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        await writer.abandon()
        answers = [bookie.answers for bookie in cluster.bookies.values()]
        held = [answer.hold("fence") for answer in answers]
        client = await cluster.client(CONFIG)
        recovering = asyncio.ensure_future(client.recover(writer.ledger_id, PASSWORD))
        await cluster.bookies["b0"].answers.wait_held("fence")
        await client.delete(writer.ledger_id)
        for answer, fences in zip(answers, held, strict=True):
            answer.held.clear()
            for fence in fences:
                fence()
        with pytest.raises(NoSuchLedgerMetadataError):
            await recovering

    simulate_cluster(body)


def test_closing_the_client_ends_a_recovery() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        await writer.abandon()
        for bookie in cluster.bookies.values():
            bookie.answers.hold("fence")
        client = await cluster.client(CONFIG)
        recovering = asyncio.ensure_future(client.recover(writer.ledger_id, PASSWORD))
        await cluster.bookies["b0"].answers.wait_held("fence")
        await client.close()
        with pytest.raises(ClientClosedError):
            await recovering
        with pytest.raises(ClientClosedError):
            await client.open(writer.ledger_id, PASSWORD)

    simulate_cluster(body)


# --- reading --------------------------------------------------------------------------------------


async def opened(cluster: LedgerCluster, count: int) -> tuple[LedgerClient, LedgerReader]:
    writer = await written(cluster, count)
    await writer.close()
    client = await cluster.client(CONFIG)
    return client, await client.open(writer.ledger_id, PASSWORD)


def test_4_7_ranges_are_checked_and_unconfirmed_reads_are_not() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        # G21: the LAC that the bookies know is behind; the last entry is not confirmed to readers.
        assert reader.lac == 3
        for first, last in ((-1, 2), (3, 2), (0, 4)):
            with pytest.raises(IncorrectParameterError):
                await reader.read(first, last)
        assert payloads(await reader.read_unconfirmed(0, 4)) == expected(0, 4)
        with pytest.raises(NoSuchEntryError):
            await reader.read_unconfirmed(4, 5)
        await writer.close()

    simulate_cluster(body)


def test_g21_the_lac_may_be_minus_one_with_data_there() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 1)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        assert reader.lac == -1
        assert payloads(await reader.read_unconfirmed(0, 0)) == [b"0"]
        await writer.close()

    simulate_cluster(body)


def test_a_long_range_is_streamed() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 500)
        seen = [bytes(entry.payload) async for entry in reader.entries(0, 499)]
        assert seen == expected(0, 499)

    simulate_cluster(body)


def test_a_damaged_replica_is_replaced_by_another_and_reported() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 9)
        await writer.close()
        bookie = cluster.bookies["b1"]
        whole = bookie.answers.read

        def damaged(ledger_id, entry_id, on_done):
            whole(ledger_id, entry_id, lambda s, p: on_done(s, bytes(p)[:-1] + b"?"))

        bookie.answers.read = damaged
        reports: list[tuple[int, int, str]] = []
        client = await cluster.client(CONFIG, on_damage=lambda *what: reports.append(what))
        reader = await client.open(writer.ledger_id, PASSWORD)
        assert payloads(await reader.read(0, 8)) == expected(0, 8)
        assert reports
        assert {(ledger_id, name) for ledger_id, _, name in reports} == {(writer.ledger_id, "b1")}
        assert client.services.damage_count == len(reports)

    simulate_cluster(body)


def test_an_entry_damaged_on_a_disk_is_read_elsewhere_and_counted_by_its_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 0)
        for number in range(9):
            await writer.add(b"entry %d" % number * 100)
        await writer.close()
        broken = cluster.bookies["b1"]
        await broken.kill()  # in good order: everything is in its entry log
        log = "entries/00000001.log"
        for number in range(3):  # of these it is the first one asked for one
            broken._disk.flip(log, broken._disk.contents()[log].index(b"entry %d" % number))
        await broken.start()
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        found = payloads(await reader.read(0, 8))
        assert found == [b"entry %d" % n * 100 for n in range(9)]
        assert broken.bookie is not None
        assert broken.bookie.figures()["bookie_damaged_reads"] == 1

    simulate_cluster(body)


def test_damage_on_every_replica_is_said() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        await writer.close()
        for bookie in cluster.bookies.values():
            bookie.answers.read = lambda _, __, on_done: on_done(Status.OK, b"junk" * 20)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        with pytest.raises(DigestMismatchError):
            await reader.read(0, 0)

    simulate_cluster(body)


def test_reads_survive_all_replicas_but_one() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 30)
        cluster.bookies["b0"].answers.forced["read"] = Status.IO_ERROR
        await cluster.bookies["b1"].kill()
        assert payloads(await reader.read(0, 29)) == expected(0, 29)
        await cluster.bookies["b2"].kill()
        with pytest.raises((ReadError, BookieUnavailableError)):
            await reader.read(0, 29)

    simulate_cluster(body)


def test_4_7_no_such_entry_only_when_every_replica_says_so() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 3)
        with pytest.raises(NoSuchEntryError):
            await reader.read_unconfirmed(7, 7)
        cluster.bookies["b1"].answers.forced["read"] = Status.IO_ERROR
        with pytest.raises(ReadError):
            await reader.read_unconfirmed(7, 7)

    simulate_cluster(body)


def test_speculative_reads_go_on_without_a_hung_bookie_and_remember_it() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 30)
        cluster.bookies["b0"].answers.hold("read")
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        assert payloads(await reader.read(0, 29)) == expected(0, 29)
        assert 0.4 < loop.time() - began_at < 1.5
        began_at = loop.time()
        assert payloads(await reader.read(0, 29)) == expected(0, 29)
        assert loop.time() - began_at < 0.4, "b0 is asked last by now"

    simulate_cluster(body)


@pytest.mark.parametrize("name", ["b0", "b1", "b2"])
def test_who_recovers_past_a_hung_bookie_does_not_wait_for_it_to_read(name: str) -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 20)
        for request in ("add", "read", "fence"):
            cluster.bookies[name].answers.hold(request)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        began_at = asyncio.get_running_loop().time()
        assert payloads(await reader.read(0, 19)) == expected(0, 19)
        assert asyncio.get_running_loop().time() - began_at < 0.4
        await writer.abandon()

    simulate_cluster(body, 3)


def test_a_late_answer_still_wins_when_the_others_fail() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 1)
        held = cluster.bookies["b0"].answers.hold("read")
        for name in ("b1", "b2"):
            cluster.bookies[name].answers.forced["read"] = Status.IO_ERROR
        reading = asyncio.ensure_future(reader.read(0, 0))
        await asyncio.sleep(1.5)
        assert not reading.done()
        held[0]()
        assert payloads(await reading) == [b"0"]

    simulate_cluster(body)


def test_reads_go_to_writable_bookies_first() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client, reader = await opened(cluster, 30)
        bookie = cluster.bookies["b0"]
        await bookie.deregister()
        await bookie.register(is_read_only=True)
        await asyncio.sleep(1)
        assert client.bookies.read_only == ("b0",)
        bookie.answers.calls.clear()
        assert payloads(await reader.read(0, 29)) == expected(0, 29)
        assert "read" not in bookie.answers.calls

    simulate_cluster(body)


def test_striping_spreads_reads_over_the_ensemble() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 30)
        for bookie in cluster.bookies.values():
            bookie.answers.calls.clear()
        await reader.read(0, 29)
        assert [b.answers.calls.count("read") for b in cluster.bookies.values()] == [10, 10, 10]

    simulate_cluster(body)


def test_4_7_a_reader_follows_a_segment_that_was_moved() -> None:
    """Re-replication put b3 in the place of b0, which has lost everything."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5, ensemble_size=1, write_quorum_size=1,
                               ack_quorum_size=1)  # fmt: skip
        await writer.close()
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD)
        (old,) = reader.metadata.segments[0].ensemble
        (new, *_) = sorted(set(cluster.bookies) - {old})
        packets: list[bytes] = []
        statuses: list[Status] = []
        for entry_id in range(5):
            cluster.bookies[old].answers.read(
                writer.ledger_id, entry_id, lambda _, packet: packets.append(bytes(packet))
            )
        await asyncio.sleep(1)
        for packet in packets:
            cluster.bookies[new].answers.add(packet, b"k" * 20, statuses.append, is_recovery=True)
        await asyncio.sleep(1)
        assert statuses == [Status.OK] * 5
        ledgers = client.services.ledgers
        metadata, version = await ledgers.read(writer.ledger_id)
        ensemble = (cluster.bookies[new].bookie_id,)
        await ledgers.write(metadata.with_ensemble(EntryId(0), ensemble), version)
        cluster.bookies[old].answers.forced["read"] = Status.NO_LEDGER
        assert payloads(await reader.read(0, 4)) == expected(0, 4)

    simulate_cluster(body)


def test_a_ledger_deleted_under_a_reader() -> None:
    async def body(cluster: LedgerCluster) -> None:
        client, reader = await opened(cluster, 5)
        await client.delete(reader.ledger_id)
        for bookie in cluster.bookies.values():
            bookie.answers.forced["read"] = Status.NO_LEDGER
        with pytest.raises(NoSuchLedgerMetadataError):
            await reader.read(0, 4)

    simulate_cluster(body)


def test_bookies_that_lost_a_ledger_which_is_not_deleted() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 5)
        for bookie in cluster.bookies.values():
            bookie.answers.forced["read"] = Status.NO_LEDGER
        with pytest.raises(NoSuchLedgerError):
            await reader.read(0, 4)

    simulate_cluster(body)


def test_the_client_keeps_no_list_of_readers_that_need_no_end() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        following = await client.open(writer.ledger_id, PASSWORD, recover=False)
        assert client._readers == {following: None}
        await writer.close()
        assert [entry.entry_id async for entry in following.tail()] == list(range(5))
        assert client._readers == {}
        settled = await client.open(writer.ledger_id, PASSWORD)
        assert client._readers == {}
        await client.close()
        with pytest.raises(ClientClosedError):
            await settled.read(0, 4)

    simulate_cluster(body)


def test_a_range_given_up_early_asks_for_no_more() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 200)
        for bookie in cluster.bookies.values():
            bookie.answers.calls.clear()
        entries = reader.entries(0, 199)
        assert (await anext(entries)).entry_id == 0
        await entries.aclose()
        await asyncio.sleep(5)
        asked = sum(b.answers.calls.count("read") for b in cluster.bookies.values())
        assert asked <= 8

    simulate_cluster(body)


def test_closing_a_reader_ends_its_reads() -> None:
    async def body(cluster: LedgerCluster) -> None:
        _, reader = await opened(cluster, 5)
        for bookie in cluster.bookies.values():
            bookie.answers.hold("read")
        reading = asyncio.ensure_future(reader.read(0, 4))
        await asyncio.sleep(0.1)
        await reader.close()
        with pytest.raises(ClientClosedError):
            await reading
        with pytest.raises(ClientClosedError):
            await reader.read(0, 4)
        await reader.close()

    simulate_cluster(body)


# --- the LAC and the tail -------------------------------------------------------------------------


def test_4_7_read_lac_needs_coverage_and_passes_over_damage() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        client = await cluster.client(CONFIG)
        cluster.bookies["b0"].answers.forced["read_lac"] = Status.IO_ERROR
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        assert reader.lac == 8
        cluster.bookies["b1"].answers.forced["read_lac"] = Status.IO_ERROR
        with pytest.raises(ReadError, match="b1 IO_ERROR"):
            await reader.read_last_confirmed()
        await writer.close()

    simulate_cluster(body)


def test_the_explicit_lac_is_seen_by_read_lac() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 10)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        assert reader.lac == 8
        await writer.write_lac()
        assert await reader.read_last_confirmed() == 9
        await writer.close()

    simulate_cluster(body)


def test_the_lac_travels_with_what_is_read() -> None:
    """TestPiggybackLAC: reading an old entry tells the newest LAC."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 2)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        assert reader.lac == 0
        await fill(writer, 10, 2)
        await reader.read(0, 0)
        assert reader.lac == 10
        await writer.close()

    simulate_cluster(body)


async def collect(entries: AsyncIterator[Entry], into: list[bytes]) -> None:
    async for entry in entries:
        into.append(bytes(entry.payload))


@pytest.mark.parametrize("is_parallel", [False, True])
def test_a_tail_sees_every_entry_once_and_ends_with_the_ledger(is_parallel: bool) -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        seen: list[bytes] = []
        tailing = asyncio.ensure_future(collect(reader.tail(is_parallel=is_parallel), seen))
        for first in range(3, 43, 4):
            await fill(writer, 4, first)
            await asyncio.sleep(0.3)
            assert seen == expected(0, first + 2), "all but the last are confirmed"
        await writer.close()
        await tailing
        assert seen == expected(0, 42)
        assert reader.is_closed

    simulate_cluster(body)


def test_a_paced_tail_reads_together_what_comes_one_behind_the_other() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        seen: list[bytes] = []
        tailing = asyncio.ensure_future(collect(reader.tail(pace_s=0.1), seen))
        for number in range(3, 1_003):
            await fill(writer, 1, number)
            await asyncio.sleep(0.001)
        assert len(seen) > 800, "it follows meanwhile"
        await writer.close()
        await tailing
        assert seen == expected(0, 1_002)
        polls = sum(long_polls(each) for each in cluster.bookies.values())
        assert polls < 60

    simulate_cluster(body)


def long_polls(bookie: ClusterBookie) -> int:
    """Return how many the bookie has answered."""
    assert bookie.server is not None
    return bookie.server.metrics.long_poll.success_count


def test_a_tail_ends_when_another_client_recovers_the_ledger() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client, other = await cluster.client(CONFIG), await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        seen: list[bytes] = []
        tailing = asyncio.ensure_future(collect(reader.tail(2), seen))
        await asyncio.sleep(0.5)
        await other.recover(writer.ledger_id, PASSWORD)
        await tailing
        assert seen == expected(2, 4)
        await writer.abandon()

    simulate_cluster(body)


def test_a_tail_goes_over_an_ensemble_change() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        seen: list[bytes] = []
        tailing = asyncio.ensure_future(collect(reader.tail(), seen))
        for step in range(3):
            await asyncio.sleep(1)
            await cluster.bookies[writer.metadata.last_segment.ensemble[step]].kill()
            await fill(writer, 5, 5 + 5 * step)
        await writer.close()
        await tailing
        assert len(writer.metadata.segments) > 1
        assert seen == expected(0, 19)

    simulate_cluster(body, 6)


def test_a_tail_of_a_deleted_ledger_says_so() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        tailing = asyncio.ensure_future(collect(reader.tail(), []))
        await asyncio.sleep(0.5)
        await client.delete(writer.ledger_id)
        with pytest.raises(NoSuchLedgerMetadataError):
            await tailing
        await writer.abandon()

    simulate_cluster(body)


def test_a_tail_of_a_closed_reader_ends_with_an_error() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        tailing = asyncio.ensure_future(collect(reader.tail(), []))
        await asyncio.sleep(0.5)
        await client.close()
        with pytest.raises(ClientClosedError):
            await tailing
        await writer.abandon()

    simulate_cluster(body)


def test_4_7_a_long_poll_brings_the_entry_or_no_news_in_its_time() -> None:
    """TestReadLastConfirmedAndEntry: no news after the waiting time of E - Qa + 1 bookies."""

    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        loop = asyncio.get_running_loop()
        for is_parallel, longest_s in ((True, 1.2), (False, 3.0)):
            began_at = loop.time()
            news = await reader.read_next(4, 1.0, is_parallel=is_parallel)
            assert (news.lac, news.entry) == (3, None)
            assert 1.0 <= loop.time() - began_at < longest_s
        waiting = asyncio.ensure_future(reader.read_next(4, 60.0))
        await asyncio.sleep(1)
        began_at = loop.time()
        await writer.add(b"5")
        news = await waiting
        assert loop.time() - began_at < 0.5
        assert news.lac == 4
        assert news.entry is not None
        assert bytes(news.entry.payload) == b"4"
        # Confirmed by now: read without waiting.
        assert (await reader.read_next(4, 60.0)).entry is not None
        await writer.close()

    simulate_cluster(body)


def test_a_long_poll_goes_on_without_a_hung_or_failing_bookie() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 5)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        ensemble = writer.metadata.segments[0].ensemble
        # Asked first for entry 4, since entry 5 goes to it first; it hears nothing of entry 5.
        first = cluster.bookies[ensemble[5 % 3]]
        first.answers.hold("add")
        first.answers.hold("read")
        waiting = asyncio.ensure_future(reader.read_next(4, 30.0))
        await asyncio.sleep(0.1)
        await writer.add(b"5")
        news = await waiting
        assert news.lac == 4
        await writer.abandon()

    simulate_cluster(body)


def test_polls_do_not_pile_up_at_a_bookie_that_answers_none() -> None:
    async def body(cluster: LedgerCluster) -> None:
        writer = await written(cluster, 3)
        client = await cluster.client(CONFIG)
        reader = await client.open(writer.ledger_id, PASSWORD, recover=False)
        hung = cluster.bookies["b1"]
        hung.answers.add = lambda *_, **__: None  # it hears of no entry, so it has no news
        seen: list[bytes] = []
        tailing = asyncio.ensure_future(collect(reader.tail(is_parallel=True), seen))
        channels = client.services.channels
        most = 0
        for number in range(3, 43):
            await writer.add(b"%d" % number)
            await asyncio.sleep(0.01)
            (connection,) = channels._connections[hung.bookie_id]
            most = max(most, len(connection.polls))
        assert seen == expected(0, 41)
        assert most == POLLS_PER_BOOKIE_MAX
        await writer.close()
        await tailing
        assert seen == expected(0, 42)

    simulate_cluster(body)
