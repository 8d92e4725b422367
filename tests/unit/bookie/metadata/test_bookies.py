"""The directory of bookies: lists that follow the store, and what they do while it is away."""

import asyncio

from bookie.ledger.types import BookieId
from bookie.metadata.bookies import DEFAULT_LOCATION, BookieDirectory
from bookie.metadata.memory import MemoryStore, Plan
from bookie.metadata.service_info import Address, ServiceInfo
from tests.fixtures.metadata import ROOT, MetadataWorld, run

A, B, C = (BookieId(f"127.0.0.{n}:3181") for n in (1, 2, 3))


async def register(
    store: MemoryStore, bookie_id: BookieId, *, is_read_only: bool = False, data: bytes = b""
) -> None:
    below = "available/readonly" if is_read_only else "available"
    await store.create(f"{ROOT}/{below}/{bookie_id}", data, is_ephemeral=True)


async def deregister(store: MemoryStore, bookie_id: BookieId) -> None:
    await store.delete(f"{ROOT}/available/{bookie_id}")


async def settle() -> None:
    await asyncio.sleep(0.01)


def test_lists_follow_the_store() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        await register(store, B)
        directory = BookieDirectory(world.client(), ROOT, {A: "/rack-1"})
        await directory.start()
        assert (directory.writable, directory.read_only) == ((B,), ())
        log: list[tuple[tuple[BookieId, ...], tuple[BookieId, ...]]] = []
        watch = directory.on_change(lambda: log.append((directory.writable, directory.read_only)))
        await register(store, A)
        await settle()
        await register(store, C, is_read_only=True)
        await settle()
        await deregister(store, B)
        await settle()
        assert log == [((A, B), ()), ((A, B), (C,)), ((A,), (C,))]
        assert directory.address_of(B) == ("127.0.0.2", 3181), "it may still serve"
        assert directory.address_of(BookieId("never:1")) is None
        assert directory.location_of(A) == "/rack-1"
        assert directory.location_of(B) == DEFAULT_LOCATION
        watch.close()
        await deregister(store, A)
        await settle()
        assert len(log) == 3
        assert directory.writable == ()
        await directory.close()

    run(scenario)


def test_addresses_come_from_what_a_bookie_published() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        named, silent, damaged = BookieId("one"), BookieId("two"), BookieId("three")
        info = ServiceInfo.of_bookie(Address("10.1.1.1", 4000))
        await register(store, named, data=info.to_bytes())
        await register(store, silent)
        await register(store, damaged, data=b"\xff")
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()
        assert directory.writable == (named, damaged, silent)
        assert directory.address_of(named) == ("10.1.1.1", 4000)
        assert directory.address_of(silent) is None
        assert directory.address_of(damaged) is None
        await deregister(store, named)
        moved = ServiceInfo.of_bookie(Address("10.1.1.2", 4000))
        await register(store, named, data=moved.to_bytes())
        await settle()
        assert directory.address_of(named) == ("10.1.1.2", 4000)
        assert directory.info_of(named) == moved
        await directory.close()

    run(scenario)


def test_a_name_that_is_no_bookie_id_is_no_bookie() -> None:
    """A ledger that was written onto it could not be read: its metadata would be damage."""

    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        await register(store, BookieId("a name:3181"))
        await register(store, BookieId("ReadOnly"))
        await register(store, BookieId("ä:3181"), is_read_only=True)
        await register(store, A)
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()
        assert (directory.writable, directory.read_only) == ((A,), ())
        await directory.close()

    run(scenario)


def test_a_bookie_in_both_lists_takes_no_writes() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()
        await register(store, A)
        await register(store, A, is_read_only=True)
        await settle()
        assert (directory.writable, directory.read_only) == ((), (A,))
        await deregister(store, A)
        await settle()
        assert (directory.writable, directory.read_only) == ((), (A,))
        await directory.close()

    run(scenario)


def test_a_bookie_that_goes_while_the_list_is_read_is_left_out(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()
        bookies = [BookieId(f"b{n}:1") for n in range(10)]

        async def flap(bookie_id: BookieId) -> None:
            for _ in range(5):
                await register(store, bookie_id)
                await asyncio.sleep(0)
                await deregister(store, bookie_id)
            await register(store, bookie_id)

        await asyncio.gather(*(flap(bookie_id) for bookie_id in bookies))
        await settle()
        assert directory.writable == tuple(bookies)
        await directory.close()

    run(scenario, seed=seed)


def test_an_older_answer_never_replaces_a_newer_one() -> None:
    class Slow:
        def plan(self, session_id: int, path: str, *, is_write: bool) -> Plan:
            return Plan(0.05, 0.05)

        def event_s(self, session_id: int, path: str) -> float:
            return 0.05

    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        bookies = world.client()
        for number in range(10):
            await register(bookies, BookieId(f"b{number}:1"))
        store = MemoryStore(world.server, Slow())
        directory = BookieDirectory(store, ROOT)
        starting = asyncio.ensure_future(directory.start())
        # When two of them were read all go: the next reading has less to read, and ends first.
        await asyncio.sleep(0.35)
        await bookies.close()
        await starting
        await asyncio.sleep(5)
        assert directory.writable == ()
        await directory.close()
        await store.close()

    run(scenario)


def test_without_the_store_the_last_answer_stands() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        bookie, store = world.client(), world.client()
        await register(bookie, A)
        directory = BookieDirectory(store, ROOT)
        await directory.start()
        world.server.disconnect(store.session_id)
        await register(world.client(), B)
        world.server.expire(bookie.session_id)
        await asyncio.sleep(100)
        assert directory.writable == (A,)
        world.server.reconnect(store.session_id)
        await settle()
        assert directory.writable == (B,)
        world.server.expire(store.session_id)
        await asyncio.sleep(1)
        await register(world.client(), C)
        await settle()
        assert directory.writable == (B, C), "followed with the next session, too"
        await directory.close()

    run(scenario)


def test_a_lagging_server_is_overtaken_by_refresh() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        directory = BookieDirectory(store, ROOT)
        await directory.start()
        world.server.freeze(store.session_id)
        await register(world.client(), A)
        await settle()
        assert directory.writable == ()
        await directory.refresh()
        assert directory.writable == (A,)
        await directory.close()

    run(scenario)


def test_a_cluster_that_is_not_there_has_no_bookies() -> None:
    async def scenario(world: MetadataWorld) -> None:
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()
        assert (directory.writable, directory.read_only) == ((), ())
        assert await directory.all_known() == ()
        await world.format()
        await register(world.client(), A)
        await settle()
        assert directory.writable == (A,)
        await directory.close()

    run(scenario)


def test_nothing_is_called_after_close() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        directory = BookieDirectory(world.client(), ROOT)
        await directory.start()
        calls: list[int] = []
        directory.on_change(lambda: calls.append(1))
        await register(world.client(), A)
        await directory.close()
        await directory.close()
        await settle()
        assert calls == []

    run(scenario)


def test_a_store_that_closes_first_is_no_error() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        directory = BookieDirectory(store, ROOT)
        await directory.start()
        await register(world.client(), A)
        await asyncio.sleep(0)
        await store.close()
        await settle()
        await directory.close()

    run(scenario)
