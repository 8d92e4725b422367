"""Which nodes deviate, and moving a cluster to secured and back while it lives."""

import asyncio
from typing import Any

import pytest

from bookie.errors import IllegalOperationError, StoreAccessError
from bookie.metadata.acl import ANYONE, OPEN, AclEntry, Readable, StoreAccess, acl_for, acl_of
from bookie.metadata.acl_walk import (
    UNREADABLE,
    Deviation,
    all_open,
    find_deviations,
    set_acls,
)
from bookie.metadata.memory import MemoryStore
from bookie.metadata.zookeeper_login import Login
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, run

ADA, BOB = Login("digest", "ada", "x").identity, Login("sasl", "bob", "x").identity
ADAS, BOBS = acl_for([ADA]), acl_for([BOB])


def client(world: MetadataWorld, *identities: Any, is_secured: bool = False) -> MemoryStore:
    store = MemoryStore(world.server, None, StoreAccess(identities, is_secured))
    world._stores.append(store)
    return store


async def ledgers(store: MemoryStore, count: int, directories: int = 3) -> None:
    for n in range(count):
        await store.create(f"{ROOT}/00/{n % directories:04d}/L{n:04d}", make_parents=True)


def always(acl: Any) -> Any:
    return acl if callable(acl) else lambda _: acl


async def deviations(store: MemoryStore, expected: Any) -> tuple[list[Deviation], int]:
    found: list[Deviation] = []
    total = await find_deviations(store, ROOT, always(expected), found.append)
    return found, total


def total_of(world: MetadataWorld) -> int:
    return len(world.paths(ROOT)) + 1


def test_a_cluster_that_is_as_expected() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        store = client(world, ADA)
        await ledgers(store, 500)
        assert await deviations(store, OPEN) == ([], total_of(world))

    run(test)


def test_nodes_that_are_alike_are_one_line() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        store = client(world, ADA)
        await ledgers(store, 500)
        assert (await deviations(store, ADAS))[0] == [Deviation(f"{ROOT}/…", total_of(world), OPEN)]
        await store.write_acl(f"{ROOT}/00/0001/L0001", ADAS)
        found, total = await deviations(store, ADAS)
        assert sum(each.nodes for each in found) == total - 1
        assert Deviation(f"{ROOT}/00/0001/…", 166, OPEN) in found
        assert Deviation(f"{ROOT}/00/0001", 1, OPEN) in found
        assert Deviation(f"{ROOT}/00/…", 169 + 167, OPEN) in found or len(found) < 12
        found, _ = await deviations(store, OPEN)
        assert found == [Deviation(f"{ROOT}/00/0001/…", 1, ADAS)]

    run(test)


def test_what_others_may_not_read_is_told_as_that() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        ada = client(world, ADA)
        await ledgers(ada, 20)
        await ada.write_acl(f"{ROOT}/00/0001", ADAS)
        found, _ = await deviations(client(world), OPEN)
        assert found == [Deviation(f"{ROOT}/00/…", 1, UNREADABLE)]

    run(test)


def test_more_kinds_than_are_kept_are_told_one_by_one() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        store = client(world, ADA)
        await ledgers(store, 150, 1)
        for n in range(150):
            acl = acl_of([*ADAS, AclEntry("sasl", f"user{n}")])
            await store.write_acl(f"{ROOT}/00/0000/L{n:04d}", acl)
        found, _ = await deviations(store, OPEN)
        assert sum(each.nodes for each in found) == len(found) == 150

    run(test)


def test_secured_and_back() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        ada, other = client(world, ADA), client(world)
        await ledgers(ada, 300)
        wanted = ada.access.secured_acl
        dry = await set_acls(ada, ROOT, wanted, is_dry=True)
        assert (dry.changed, dry.refused) == (total_of(world), 0)
        assert (await deviations(ada, OPEN))[0] == []
        done = await set_acls(ada, ROOT, wanted)
        assert (done.nodes, done.changed, done.refused) == (total_of(world), total_of(world), 0)
        assert (await deviations(ada, wanted))[0] == []
        for path in (ROOT, f"{ROOT}/00/0000/L0000"):
            with pytest.raises(StoreAccessError):
                await other.read(path)
        assert (await set_acls(ada, ROOT, wanted)).changed == 0
        back = await set_acls(ada, ROOT, always(OPEN))
        assert back.changed == total_of(world)
        assert (await deviations(other, OPEN))[0] == []

    run(test)


def test_an_interrupted_run_goes_on() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        ada = MemoryStore(world.server, link, StoreAccess((ADA,)))
        world._stores.append(ada)
        await ledgers(client(world), 300)
        running = asyncio.ensure_future(set_acls(ada, ROOT, always(ADAS)))
        while sum(is_write for _, is_write in link.asked) < 100:  # noqa: ASYNC110 - of the link
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        left = sum(each.nodes for each in (await deviations(ada, ADAS))[0])
        assert 0 < left < total_of(world)
        assert (await set_acls(ada, ROOT, always(ADAS))).changed == left
        assert (await deviations(ada, ADAS))[0] == []

    run(test)


def test_lost_answers_and_broken_connections_are_waited_out() -> None:
    async def test(world: MetadataWorld) -> None:
        from bookie.metadata.memory import Fate

        await world.format()
        link = ScriptedLink()
        ada = MemoryStore(world.server, link, StoreAccess((ADA,)))
        world._stores.append(ada)
        await ledgers(client(world), 100)
        link.fate_of = lambda path, is_write: (
            (Fate.LOSE_ANSWER if len(link.asked) % 2 else Fate.LOSE_REQUEST)
            if len(link.asked) % 37 == 0
            else Fate.ANSWERED
        )
        await set_acls(ada, ROOT, always(ADAS))
        link.fate_of = lambda path, is_write: Fate.ANSWERED
        assert (await deviations(ada, ADAS))[0] == []

    run(test)


def test_from_the_top_down_nothing_open_is_missed() -> None:
    """A process without a login makes nodes as long as it can; none of them stays open."""

    async def test(world: MetadataWorld) -> None:
        await world.format()
        ada, other = client(world, ADA), client(world)
        await ledgers(ada, 50)
        for n in range(20):
            await other.create(f"{ROOT}/00/empty{n}")

        async def intrude() -> None:
            for n in range(10_000):
                try:
                    await other.create(f"{ROOT}/00/empty{n % 20}/x{n}")
                except StoreAccessError:
                    pass
                await asyncio.sleep(0)

        intruding = asyncio.ensure_future(intrude())
        await asyncio.sleep(0)
        await set_acls(ada, ROOT, always(ADAS))
        intruding.cancel()
        await asyncio.gather(intruding, return_exceptions=True)
        assert (await deviations(ada, ADAS))[0] == []

    run(test)


def test_nodes_that_come_and_go_meanwhile_do_no_harm() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        ada, twin = client(world, ADA), client(world, ADA, is_secured=True)
        await ledgers(ada, 200)

        async def live() -> None:
            for n in range(200):
                await twin.delete(f"{ROOT}/00/{n % 3:04d}/L{n:04d}")
                await twin.create(f"{ROOT}/00/{n % 3:04d}/L{n + 5000:04d}")

        await asyncio.gather(live(), set_acls(ada, ROOT, always(ADAS)), deviations(ada, ADAS))
        assert (await deviations(ada, ADAS))[0] == []

    run(test)


def test_what_belongs_to_others_is_named_and_the_rest_is_done() -> None:
    async def test(world: MetadataWorld) -> None:
        await world.format()
        ada, bob = client(world, ADA), client(world, BOB, is_secured=True)
        await ledgers(ada, 30)
        await bob.create(f"{ROOT}/00/0000/bobs")
        await bob.create(f"{ROOT}/00/0000/bobs/child")
        dry = await set_acls(ada, ROOT, always(ADAS), is_dry=True)
        done = await set_acls(ada, ROOT, always(ADAS))
        for outcome in (dry, done):
            paths = [f"{ROOT}/00/0000/bobs"]
            assert (outcome.refused, outcome.refused_paths) == (1, paths)
            assert outcome.changed == total_of(world) - 2
        both = client(world, ADA, BOB)
        assert (await set_acls(both, ROOT, always(ADAS))).changed == 2

    run(test)


def test_a_new_password_by_two_logins() -> None:
    async def test(world: MetadataWorld) -> None:
        new = Login("digest", "ada", "new").identity
        await world.format()
        old, both, only_new = client(world, ADA), client(world, ADA, new), client(world, new)
        await set_acls(old, ROOT, old.access.secured_acl)
        await set_acls(both, ROOT, both.access.secured_acl)
        assert await only_new.children(ROOT) == await old.children(ROOT)
        await set_acls(only_new, ROOT, only_new.access.secured_acl)
        with pytest.raises(StoreAccessError):
            await old.children(ROOT)

    run(test)


def test_no_root_is_told() -> None:
    async def test(world: MetadataWorld) -> None:
        store = client(world, ADA)
        for question in (set_acls(store, ROOT, all_open), deviations(store, ADAS)):
            with pytest.raises(IllegalOperationError, match="expected a cluster's node"):
                await question

    run(test)


@pytest.mark.parametrize("path", ["/herd/nodes-of-more", "/herd", "/herd/secrets/a", "/nodes"])
def test_only_what_is_below_a_path_may_be_read(path: str) -> None:
    found = Readable((ANYONE,), ("/herd/nodes",))
    assert found.covers("/herd/nodes")
    assert found.covers("/herd/nodes/n1")
    assert not found.covers(path)


def test_nodes_that_others_may_read_are_told_apart_by_their_paths() -> None:
    """The same ACL is right below one directory, and wrong below the next."""

    async def test(world: MetadataWorld) -> None:
        await world.format()
        store = MemoryStore(
            world.server, None, StoreAccess((ADA,), True, Readable((BOB,), (f"{ROOT}/00/0001",)))
        )
        world._stores.append(store)
        await ledgers(client(world), 30)
        wanted = store.access.secured_acl
        shared = acl_of([*ADAS, AclEntry("sasl", "bob", 1)])
        await set_acls(store, ROOT, wanted)
        assert await deviations(store, wanted) == ([], total_of(world))
        assert (await store.read_acl(f"{ROOT}/00/0001/L0001"))[0] == shared
        assert (await store.read_acl(f"{ROOT}/00/0000/L0000"))[0] == ADAS
        await store.write_acl(f"{ROOT}/00/0001/L0001", ADAS)
        await store.write_acl(f"{ROOT}/00/0000/L0000", shared)
        found, _ = await deviations(store, wanted)
        assert sorted(found) == [
            Deviation(f"{ROOT}/00/0000/…", 1, shared), Deviation(f"{ROOT}/00/0001/…", 1, ADAS)
        ]  # fmt: skip
        bob = client(world, BOB)
        assert await bob.children(f"{ROOT}/00/0001") == await store.children(f"{ROOT}/00/0001")
        for question in (bob.children(f"{ROOT}/00/0002"), bob.delete(f"{ROOT}/00/0001/L0004")):
            with pytest.raises(StoreAccessError):
                await question

    run(test)
