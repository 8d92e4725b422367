"""Where the leader of a tablespace is, as the metadata store has it."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from bookie.errors import StoreUnreachableError
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.memory import Fate, MemoryStore
from herdpy.cluster.leader_lookup import LeaderLookup, Told
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.errors import CorruptionError, Error, OperationalError, ProgrammingError, Retry
from tests.fixtures.metadata import MetadataWorld, ScriptedLink
from tests.fixtures.metadata import run as run_metadata

ID = "0123456789abcdef0123456789abcdef"
NODE = {"format": 1, "id": "n1", "addresses": {"herd": "h:7000"}}


class Cluster:
    """One tablespace, led by n1; `find` asks by a client of its own."""

    def __init__(self, world: MetadataWorld) -> None:
        self.world = world
        self.store = world.client()
        self.nodes = TablespaceNodes(self.store)
        self.link = ScriptedLink()
        self.opened: list[MemoryStore] = []
        self.lookup = LeaderLookup(self._open, "the store", patience_s=2.0)

    async def make(self, **node: object) -> None:
        await self.nodes.initialize()
        await self.nodes.create("a/b", TablespaceRecord(id=ID, leader="n1", replicas=("n1",)))
        data = msgspec.json.encode(NODE | node)
        await self.store.create("/herd/nodes/n1", data, is_ephemeral=True)

    async def _open(self) -> VersionedStore:
        self.opened.append(self.world.client(self.link))
        return self.opened[-1]

    async def find(self, name: str = "a/b", root: str = "/herd") -> str:
        return await self.lookup.find(root, name)


def run(body: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main(world: MetadataWorld) -> None:
        cluster = Cluster(world)
        await body(cluster)
        await cluster.lookup.close()

    run_metadata(main)


def test_the_leader_is_found_by_one_session() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make(more={"x": 1})
        assert cluster.opened == []
        found = await asyncio.gather(*(cluster.find() for _ in range(3)))
        assert found == ["h:7000"] * 3
        assert len(cluster.opened) == 1

    run(body)


@pytest.mark.parametrize("has_tls", [True, False])
def test_a_node_says_whether_it_has_tls(has_tls: bool) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make(has_tls=has_tls)
        for read in ("leader", "nearest"):
            found = await cluster.lookup.find_nodes("/herd", "a/b", read)
            assert found == [("h:7000", has_tls)]

    run(body)


def test_fields_that_a_newer_herdpy_adds_are_left_alone() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make()
        path = cluster.nodes.path("a/b")
        data, stat = await cluster.store.read(path)
        more = msgspec.json.decode(data) | {"more": [1]}
        await cluster.store.write(path, msgspec.json.encode(more), stat.version)
        assert await cluster.find() == "h:7000"

    run(body)


async def error_of(finding: Awaitable[str]) -> Error:
    try:
        found = await finding
    except Error as error:
        return error
    raise AssertionError(f"found {found}")


def test_what_is_not_there() -> None:
    async def body(cluster: Cluster) -> None:
        none = await error_of(cluster.find())
        assert (none.sqlstate, type(none)) == ("58P01", OperationalError)
        await cluster.make()
        other = await error_of(cluster.find("other"))
        assert (other.sqlstate, type(other)) == ("3D000", ProgrammingError)
        await cluster.store.delete("/herd/nodes/n1")
        gone = await error_of(cluster.find())
        assert (gone.sqlstate, gone.retry) == ("57P03", Retry.SAFE)
        assert "node n1 leads it, and /herd/nodes/n1 is gone" in gone.message
        await cluster.store.delete(cluster.nodes.leader_path(ID))
        unled = await error_of(cluster.find())
        assert (unled.sqlstate, unled.retry) == ("57P03", Retry.SAFE)
        assert 'tablespace "a/b": no node leads it now' in unled.message

    run(body)


@pytest.mark.parametrize(
    ("node", "kind", "words"),
    [
        ({"addresses": {}}, OperationalError, "names no address for herd://"),
        ({"addresses": 5}, CorruptionError, "/herd/nodes/n1: expected a node"),
        ({"format": 2}, OperationalError, "it has format 2, and this herdpy reads 1"),
    ],
)
def test_nodes_that_do_not_tell(node: dict[str, object], kind: type[Error], words: str) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make(**node)
        found = await error_of(cluster.find())
        assert type(found) is kind
        assert words in found.message

    run(body)


def test_lost_answers_are_asked_for_again_and_a_store_that_is_away_is_told() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make()
        fates = [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST]
        cluster.link.fate_of = lambda path, is_write: fates.pop() if fates else Fate.ANSWERED
        assert await cluster.find() == "h:7000"
        cluster.link.fate_of = lambda path, is_write: Fate.LOSE_REQUEST
        away = await error_of(cluster.find())
        assert (away.sqlstate, away.retry) == ("08001", Retry.SAFE)
        assert "the store does not tell which node leads 'a/b'" in away.message
        cluster.link.fate_of = lambda path, is_write: Fate.ANSWERED
        assert await cluster.find() == "h:7000"

    run(body)


def test_a_store_that_was_not_reached_is_opened_by_the_next_question() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make()
        stores = [cluster.world.client()]

        async def open_store() -> VersionedStore:
            if len(opened) == 0:
                opened.append(1)
                raise StoreUnreachableError("none")
            return stores[0]

        opened: list[int] = []
        lookup = LeaderLookup(open_store, "the store")
        assert (await error_of(lookup.find("/herd", "a/b"))).sqlstate == "08001"
        assert await lookup.find("/herd", "a/b") == "h:7000"
        await lookup.close()

    run(body)


def test_questions_that_are_begun_are_answered_also_by_close() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.make()
        told: asyncio.Queue[Told] = asyncio.Queue()
        cluster.lookup.begin("/herd", "a/b", "leader", told.put_nowait)
        assert await told.get() == [("h:7000", None)]
        cluster.lookup.begin("/herd", "other", "leader", told.put_nowait)
        error = await told.get()
        assert isinstance(error, Error)
        assert error.sqlstate == "3D000"
        cluster.link.fate_of = lambda path, is_write: Fate.LOSE_REQUEST
        cluster.lookup.begin("/herd", "a/b", "leader", told.put_nowait)
        await asyncio.sleep(0.1)
        await cluster.lookup.close()
        closed = told.get_nowait()
        assert isinstance(closed, Error)
        assert closed.sqlstate == "08003"

    run(body)
