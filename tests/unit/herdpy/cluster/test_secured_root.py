"""A cluster that is secured in its metadata store: what it makes, what others can do."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from bookie.errors import StoreAccessError
from bookie.metadata.acl import OPEN, AclEntry, Permission, StoreAccess, acl_for, acl_of
from bookie.metadata.acl_walk import Deviation, all_open, find_deviations, set_acls
from bookie.metadata.interfaces import Delete, VersionedStore, Write
from bookie.metadata.memory import MemoryStore
from bookie.metadata.zookeeper_login import Login
from herdpy.cli.cluster.making import create_tablespace
from herdpy.cluster.handover.wish import Wish, WishRecord
from herdpy.cluster.leader_lookup import LeaderLookup
from herdpy.cluster.part import State
from herdpy.cluster.registration import NodeRecord
from herdpy.cluster.tablespace_nodes import TablespaceNodes, readable
from herdpy.errors import OperationalError, ProgrammingError
from tests.fixtures.node_cluster import PASSWORD, ROOT, NodeCluster

T = TypeVar("T")
ID = "a" * 32
NODES, APP = Login("digest", "herd", "n").identity, Login("digest", "app", "a").identity
ACCESS = StoreAccess((NODES,), is_secured=True, readable=readable(ROOT, (APP,)))
OURS = acl_for([NODES])
FOR_READERS = acl_of([*OURS, AclEntry(*APP, int(Permission.READ))])
READER, UNAUTHENTICATED = StoreAccess((APP,)), StoreAccess()


class World:
    """Two nodes, and a tablespace on them."""

    def __init__(self) -> None:
        self.cluster = NodeCluster(ACCESS)
        for name in ("n1", "n2"):
            self.cluster.node(name)
        self.cluster.create("sales", "n1", "n2", tablespace_id=ID)
        self.cluster.until(lambda: State.LEADING in self.parts().values())
        self.cluster.until(lambda: State.FOLLOWING in self.parts().values())

    def parts(self) -> dict[str, State]:
        return {node.id: node.parts.get("sales", State.BOOTING) for node in self.cluster.nodes}

    def leader(self) -> str:
        return next(name for name, part in self.parts().items() if part is State.LEADING)

    def ask(
        self, body: Callable[[MemoryStore], Coroutine[Any, Any, T]], access: StoreAccess = ACCESS
    ) -> T:
        async def asked() -> T:
            store = self.cluster.store(access)
            try:
                return await body(store)
            finally:
                await store.close()

        return self.cluster.thread.call(asked())

    def deviations(self) -> list[Deviation]:
        async def look(store: MemoryStore) -> list[Deviation]:
            found: list[Deviation] = []
            await find_deviations(store, ROOT, store.access.secured_acl, found.append)
            return found

        return self.ask(look)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        made.cluster.close()


def test_all_that_a_cluster_makes_is_secured(world: World) -> None:
    """Also what a hand-over, a replica and a second life make."""
    assert world.deviations() == []
    other = "n2" if world.leader() == "n1" else "n1"
    paths = TablespaceNodes(world.cluster.bookies.store, ROOT)
    seen: list[str] = []

    async def wish(store: MemoryStore) -> None:
        made = Wish(store, paths.wish_path(ID))
        epoch = (await TablespaceNodes(store, ROOT).read("sales")).record.epoch
        await made.make(WishRecord(leader=other, epoch=epoch))
        for path in (paths.wish_path(ID), paths.secret_path(ID), paths.replica_path(ID, "n1")):
            seen.append(path)
            assert (await store.read_acl(path))[0] == OURS
        for path in (paths.path("sales"), paths.node_path("n1")):
            assert (await store.read_acl(path))[0] == FOR_READERS
        while world.parts()[other] is not State.LEADING:
            await store.sync(ROOT)
        assert (await store.read_acl(paths.leader_path(ID)))[0] == FOR_READERS

    world.ask(wish)
    assert len(seen) == 3
    assert world.deviations() == []


def test_what_a_reader_sees_is_what_a_driver_needs(world: World) -> None:
    async def find(store: MemoryStore) -> str:
        async def opened() -> VersionedStore:
            return store

        return await LeaderLookup(opened, "the store").find(ROOT, "sales")

    leader = world.leader()
    assert world.ask(find, READER) == f"{leader}:7000"
    with pytest.raises(OperationalError, match="does not let this program read") as caught:
        world.ask(find, UNAUTHENTICATED)
    assert caught.value.sqlstate == "42501"
    assert "zookeeper_login" in str(caught.value.hint)

    async def no_tablespace(store: MemoryStore) -> str:
        async def opened() -> VersionedStore:
            return store

        return await LeaderLookup(opened, "the store").find(ROOT, "other")

    with pytest.raises(ProgrammingError, match='"other" does not exist'):
        world.ask(no_tablespace, READER)


def test_a_node_that_would_make_open_ones_does_not_start(world: World) -> None:
    """One forgotten option, and all could say where its leader is, or read the password."""
    world.cluster.access = StoreAccess((NODES,))
    with pytest.raises(OperationalError, match="would be open to all") as caught:
        world.cluster.node("n3")
    assert caught.value.sqlstate == "55000"
    assert "--zk-enable-security" in str(caught.value.hint)

    async def create(store: MemoryStore) -> None:
        await create_tablespace(store, ROOT, "more", ("n1",))

    with pytest.raises(OperationalError, match="would be open to all"):
        world.ask(create, StoreAccess((NODES,)))
    assert world.deviations() == []


async def open_ledgers(store: MemoryStore) -> None:
    await store.write_acl("/ledgers", OPEN)


def test_nor_does_it_where_only_the_cluster_is_secured(world: World) -> None:
    world.ask(open_ledgers)
    world.cluster.access = StoreAccess((NODES,))
    with pytest.raises(OperationalError, match="/secrets: it is secured"):
        world.cluster.node("n3")
    assert world.deviations() == []


def test_ledgers_that_bookies_cannot_read_are_not_made(world: World) -> None:
    world.ask(open_ledgers)
    with pytest.raises(OperationalError, match="bookies could not read") as caught:
        world.cluster.node("n3")
    assert "bookie acl set secured" in str(caught.value.hint)


def test_a_cluster_that_is_to_be_secured_has_secured_nodes_before(world: World) -> None:
    """And one whose ledgers are secured is written to by no open node."""

    async def open_all(store: MemoryStore) -> None:
        await set_acls(store, ROOT, all_open)

    world.ask(open_all)
    world.cluster.node("n3")
    world.cluster.access = StoreAccess((NODES,))
    with pytest.raises(OperationalError, match=r"/ledgers: it is secured"):
        world.cluster.node("n4")


def _attacks(store: MemoryStore, paths: TablespaceNodes) -> list[Awaitable[object]]:
    leader, record = paths.leader_path(ID), paths.path("sales")
    secret = paths.secret_path(ID)
    return [
        store.read(secret),
        store.multi([Write(secret, b"")]),
        store.delete(secret),
        store.write(leader, b"n9", -1),
        store.delete(leader),
        store.multi([Write(record, b"x"), Delete(leader)]),
        store.write(record, b"x", -1),
        store.delete(record),
        store.create(f"{ROOT}/leaders/{'b' * 32}", b"n9", is_ephemeral=True),
        store.create(f"{ROOT}/nodes/n9", b"{}", is_ephemeral=True),
        store.create(paths.wish_path(ID), b"{}", is_ephemeral=True),
        store.delete(paths.node_path("n1")),
        store.write(paths.node_path("n1"), b"{}", -1),
        store.read(paths.ledgers_path(ID)),
        store.write(paths.ledgers_path(ID), b"{}", -1),
        store.read(paths.replica_path(ID, "n1")),
        store.write_acl(leader, OPEN),
        store.write_acl(secret, OPEN),
        store.write_acl(ROOT, OPEN),
        store.create(f"{ROOT}/more"),
        store.delete(f"{ROOT}/cluster"),
    ]


@pytest.mark.parametrize("access", [UNAUTHENTICATED, READER])
def test_others_change_nothing_and_read_no_secret(world: World, access: StoreAccess) -> None:
    async def attack(store: MemoryStore) -> int:
        refused = 0
        for case in _attacks(store, TablespaceNodes(store, ROOT)):
            with pytest.raises(StoreAccessError):
                await case
            refused += 1
        return refused

    before = world.leader()
    assert world.ask(attack, access) == 21
    assert world.leader() == before


def test_a_stranger_cannot_even_look(world: World) -> None:
    async def look(store: MemoryStore) -> None:
        paths = TablespaceNodes(store, ROOT)
        for case in (
            store.read(paths.path("sales")),
            store.read(paths.leader_path(ID)),
            store.read(paths.node_path("n1")),
            store.children(f"{ROOT}/nodes"),
            store.children(ROOT),
        ):
            with pytest.raises(StoreAccessError):
                await case

    world.ask(look, UNAUTHENTICATED)


def test_what_readers_may_read_holds_no_secret(world: World) -> None:
    """Neither the ledgers' password, nor what a login is made of."""

    async def everything(store: MemoryStore, path: str = ROOT) -> list[bytes]:
        found: list[bytes] = []
        try:
            found.append((await store.read(path))[0])
        except StoreAccessError:
            pass
        for folder in ("tableSpaces", "leaders", "nodes") if path == ROOT else ():
            for name in await store.children(f"{path}/{folder}"):
                found += await everything(store, f"{path}/{folder}/{name}")
        return found

    async def password(store: MemoryStore) -> bytes:
        return await TablespaceNodes(store, ROOT).password(ID)

    seen = b"\n".join(world.ask(everything, READER))
    assert b"sales" not in seen
    assert b'"leader"' in seen
    assert world.ask(password) == PASSWORD
    for text in (PASSWORD, PASSWORD.hex().encode()):
        assert text not in seen
    assert b"password" not in seen
    assert NODES.id.partition(":")[2].encode() not in seen


def test_a_node_says_who_it_is_in_the_store(world: World) -> None:
    async def read(store: MemoryStore) -> NodeRecord:
        path = TablespaceNodes(store, ROOT).node_path("n1")
        return NodeRecord.of_bytes((await store.read(path))[0], path)

    record = world.ask(read)
    assert record.zookeeper_logins == (NODES.label(),)
    assert record.zookeeper_readers == (APP.label(),)
    assert record.makes_secured_nodes
