"""Tablespaces in the metadata store: all or nothing of each, whatever answers are lost."""

import asyncio

import msgspec
import pytest

from bookie.metadata.memory import Fate, MemoryStore, Plan
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.tablespace_nodes import (
    FORMAT,
    HandedOver,
    TablespaceNodes,
    TablespaceRecord,
)
from herdpy.errors import CorruptionError, OperationalError, ProgrammingError
from herdpy.model.lsn import Lsn
from tests.fixtures.chain_nodes import ScriptedLink
from tests.unit.herdpy.cluster.test_listing import World, simulate

RECORD = TablespaceRecord(id="a" * 32, leader="n1", replicas=("n1", "n2"), expected=2)
OTHER = TablespaceRecord(id="b" * 32, leader="n2", replicas=("n2",))
FATES = [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER]


def nodes_of(world: World, link: ScriptedLink | None = None) -> TablespaceNodes:
    return TablespaceNodes(MemoryStore(world.server, link or ScriptedLink()), patience_s=5.0)


async def tree(nodes: TablespaceNodes, path: str = "/herd") -> set[str]:
    """Return the paths of all nodes below one."""
    found = set[str]()
    for name in await nodes._store.children(path):
        found |= {f"{path}/{name}"} | await tree(nodes, f"{path}/{name}")
    return found


def test_a_tablespace_begins_and_ends_with_all_its_nodes() -> None:
    async def body(world: World) -> None:
        nodes = nodes_of(world)
        await nodes.initialize()
        await nodes.initialize()
        empty = await tree(nodes)
        await nodes.create("sales", RECORD, b"\0\xffpassword")
        assert await nodes.names() == ["sales"]
        assert await nodes.password(RECORD.id) == b"\0\xffpassword"
        assert b"70617373" not in (await nodes._store.read(nodes.path("sales")))[0]
        assert (await nodes.read("sales")).record == RECORD
        listing = LedgerListing(nodes._store, nodes.ledgers_path(RECORD.id))
        assert (await listing.read()).epoch == 1
        leader, stat = await nodes._store.read(nodes.leader_path(RECORD.id))
        assert leader == b"n1"
        assert stat.ephemeral_owner == nodes._store.session_id
        await listing.claim(2)
        await listing.add(7)
        await nodes._store.create(f"{nodes.replicas_path(RECORD.id)}/n1")
        assert await nodes.drop("sales", await nodes.read("sales")) == (7,)
        assert await tree(nodes) == empty
        with pytest.raises(OperationalError, match="expected the password") as caught:
            await nodes.password(RECORD.id)
        assert caught.value.sqlstate == "58P01"

    simulate(body)


@pytest.mark.parametrize("fate", [None, *FATES])
def test_a_hand_over_names_the_end_and_takes_the_leader_s_node_away_at_once(
    fate: Fate | None,
) -> None:
    async def body(world: World) -> None:
        link = ScriptedLink()
        nodes = nodes_of(world, link)
        await nodes.initialize()
        await nodes.create("sales", RECORD)
        found = await nodes.read("sales")
        assert (found.record.successor, found.record.log_end) == (None, None)
        handed_over = HandedOver(epoch=1, to="n2", position="12.345.0")
        if fate is not None:
            link.plans = {link._number + 1: Plan(fate=fate, reconnect_s=0.05)}
        assert await nodes.hand_over("sales", found, handed_over)
        assert await nodes._store.exists(nodes.leader_path(RECORD.id)) is None
        now = await nodes.read("sales")
        assert (now.record.successor, now.record.log_end) == ("n2", Lsn(12, 345, 0))
        assert not await nodes.hand_over("sales", found, handed_over)  # not the newest
        assert not await nodes.hand_over("sales", now, handed_over)  # no leader's node
        taken = await nodes.take_over("sales", now, "n2")
        assert taken is not None  # no later leader forgets how far the log goes
        assert (taken.record.successor, taken.record.log_end) == (None, Lsn(12, 345, 0))

    simulate(body)


@pytest.mark.parametrize("position", ["", "1.2", "1.2.x"])
def test_a_hand_over_at_no_position_is_named(position: str) -> None:
    data = msgspec.json.encode(
        {
            "format": FORMAT,
            "id": "a" * 32,
            "leader": "n1",
            "replicas": ["n1"],
            "handed_over": {"epoch": 1, "to": "n2", "position": position},
        }
    )
    with pytest.raises(CorruptionError, match="expected a tablespace, found"):
        TablespaceRecord.of_bytes(data, "/herd/tableSpaces/sales")


@pytest.mark.parametrize("name", ["a b", "ü/..", ".", "..", "a.b", "%2E", "/", "x" * 63, "é\n"])
def test_any_name_is_a_node(name: str) -> None:
    async def body(world: World) -> None:
        nodes = nodes_of(world)
        await nodes.initialize()
        await nodes.create(name, RECORD)
        assert await nodes.names() == [name]
        assert (await nodes.read(name)).record == RECORD

    simulate(body)


def test_a_name_and_an_id_are_given_once() -> None:
    async def body(world: World) -> None:
        nodes = nodes_of(world)
        await nodes.initialize()
        await nodes.create("sales", RECORD)
        before = await tree(nodes)
        for name, record in (("sales", OTHER), ("other", RECORD)):
            with pytest.raises(ProgrammingError) as caught:
                await nodes.create(name, record)
            assert caught.value.sqlstate == "42P04"
            assert await tree(nodes) == before

    simulate(body)


def test_without_a_cluster_nothing_is_written() -> None:
    async def body(world: World) -> None:
        nodes = nodes_of(world)
        for act in (nodes.names, lambda: nodes.create("sales", RECORD)):
            with pytest.raises(OperationalError, match="expected a folder") as caught:
                await act()
            assert caught.value.sqlstate == "58P01"
        assert await nodes._store.exists("/herd") is None
        with pytest.raises(ProgrammingError) as missing:
            await nodes.read("sales")
        assert missing.value.sqlstate == "3D000"

    simulate(body)


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("number", range(1, 16))
def test_a_lost_request_or_answer_changes_nothing_of_the_outcome(fate: Fate, number: int) -> None:
    async def body(world: World) -> None:
        link = ScriptedLink()
        link.plans[number] = Plan(fate=fate, reconnect_s=0.2)
        nodes, watcher = nodes_of(world, link), nodes_of(world)
        await nodes.initialize()
        empty = await tree(watcher)
        await nodes.create("sales", RECORD)
        taken = await nodes.take_over("sales", await nodes.read("sales"), "n2")
        assert taken is not None
        assert (taken.record.leader, taken.record.epoch) == ("n2", 2)
        assert await nodes.read("sales") == taken
        assert await nodes.drop("sales", taken) == ()
        assert await tree(watcher) == empty

    simulate(body)


def test_of_two_nodes_that_take_over_at_once_one_does() -> None:
    async def body(world: World) -> None:
        nodes = [nodes_of(world) for _ in range(3)]
        await nodes[0].initialize()
        await nodes[0].create("sales", RECORD)
        found = await nodes[0].read("sales")
        taken = await asyncio.gather(
            *(each.take_over("sales", found, f"n{n}") for n, each in enumerate(nodes))
        )
        (winner,) = [each for each in taken if each is not None]
        assert await nodes[0].read("sales") == winner
        assert winner.record.epoch == 2

    simulate(body)


def test_what_has_changed_is_not_dropped() -> None:
    async def body(world: World) -> None:
        nodes, other = nodes_of(world), nodes_of(world)
        await nodes.initialize()
        await nodes.create("sales", RECORD)
        found = await nodes.read("sales")
        assert await other.take_over("sales", found, "n2") is not None
        before = await tree(nodes)
        assert await nodes.drop("sales", found) is None
        assert await tree(nodes) == before
        assert await nodes.take_over("sales", found, "n1") is None

    simulate(body)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"id": "a"}', RECORD.to_bytes()[:-1] + b', "colour": 1}']
)
def test_a_malformed_node_is_named(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="/herd/x: expected a tablespace"):
        TablespaceRecord.of_bytes(data, "/herd/x")


def test_a_newer_format_is_refused() -> None:
    data = msgspec.structs.replace(RECORD, format=FORMAT + 1).to_bytes()[:-1] + b', "colour": 1}'
    with pytest.raises(OperationalError) as caught:
        TablespaceRecord.of_bytes(data, "/herd/x")
    assert caught.value.sqlstate == "0A000"


def test_an_older_format_is_refused() -> None:
    """It had the password, for all to read that find leaders."""
    data = RECORD.to_bytes()[:-1].replace(b'"format":2', b'"format":1') + b',"password":"00ff"}'
    with pytest.raises(OperationalError, match="format 1, and this herdpy reads 2") as caught:
        TablespaceRecord.of_bytes(data, "/herd/x")
    assert caught.value.sqlstate == "0A000"
    assert "00ff" not in f"{caught.value} {caught.value.hint}"


def test_a_malformed_password_is_named_and_not_shown() -> None:
    async def body(world: World) -> None:
        nodes = nodes_of(world)
        await nodes.initialize()
        await nodes.create("sales", RECORD, b"secret")
        path = nodes.secret_path(RECORD.id)
        assert (await nodes._store.read(path))[0] == b'{"format":1,"password":"736563726574"}'
        for data in (b'{"format":1,"password":"geheim"}', b'{"format":1,"password":["geheim"]}'):
            await nodes._store.write(path, data, -1)
            with pytest.raises(CorruptionError, match="expected a password of ledgers") as caught:
                await nodes.password(RECORD.id)
            assert "geheim" not in str(caught.value)

    simulate(body)


def test_the_bytes_are_those_of_the_page() -> None:
    record = TablespaceRecord(id="0" * 32, leader="n1", epoch=3, replicas=("n1", "n2"), expected=2)
    data = (
        b'{"format":2,"id":"00000000000000000000000000000000","leader":"n1","epoch":3,'
        b'"replicas":["n1","n2"],"expected":2}'
    )
    assert record.to_bytes() == data
    assert TablespaceRecord.of_bytes(data, "/herd/x") == record
