"""LAYOUT, INSTANCEID and the making of a cluster; TestLedgerLayout in our words."""

import pytest

from bookie.errors import IllegalOperationError, MetadataStoreError
from bookie.metadata.cluster import (
    LayoutRecord,
    initialize,
    is_initialized,
    new_instance_id,
    read_instance_id,
    read_layout,
    remove,
)
from bookie.metadata.ledger_paths import Layout
from bookie.metadata.memory import Fate
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, SeededRng, metadata, run

GOLDEN = {
    Layout.HIERARCHICAL: b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
    Layout.LONG_HIERARCHICAL: (
        b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1"
    ),
    Layout.FLAT: b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
    Layout.LEGACY_HIERARCHICAL: (
        b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1"
    ),
}


@pytest.mark.parametrize("layout", list(Layout))
def test_golden_bytes_of_the_layout(layout: Layout) -> None:
    assert LayoutRecord(layout).to_bytes() == GOLDEN[layout]
    assert LayoutRecord.from_bytes(GOLDEN[layout]) == LayoutRecord(layout, 1)
    assert LayoutRecord.from_bytes(GOLDEN[layout] + b"\n").layout is layout


def test_the_first_format_of_layouts_is_understood() -> None:
    assert LayoutRecord.from_bytes(b"1\nflat:1").layout is Layout.FLAT
    assert LayoutRecord.from_bytes(b"1\nhierarchical:1").layout is Layout.LEGACY_HIERARCHICAL


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2",
        b"2\n",
        b"2\nname",
        b"2\nname:1",
        b"2\n:1",
        b"3\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:2",
        b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:x",
        b"\xff\xfe",
    ],
)
def test_a_layout_that_is_not_understood_is_refused(data: bytes) -> None:
    with pytest.raises(MetadataStoreError, match="LAYOUT"):
        LayoutRecord.from_bytes(data, "/ledgers/LAYOUT")


def test_initialize_makes_what_a_cluster_needs() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        assert not await is_initialized(store, ROOT)
        instance_id = await initialize(store, ROOT, rng=SeededRng(1))
        assert await is_initialized(store, ROOT)
        assert world.paths() == [
            "/ledgers",
            "/ledgers/INSTANCEID",
            "/ledgers/LAYOUT",
            "/ledgers/available",
            "/ledgers/available/readonly",
        ]
        assert world.node("/ledgers/INSTANCEID")[0] == instance_id.encode()
        assert world.node("/ledgers/LAYOUT")[0] == GOLDEN[Layout.HIERARCHICAL]
        assert world.node("/ledgers/available")[0] == b""
        assert await read_instance_id(store, ROOT) == instance_id
        assert await read_layout(store, ROOT) is Layout.HIERARCHICAL

    run(scenario)


def test_an_instance_id_that_is_no_text_is_one_that_no_cookie_has() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        await initialize(store, ROOT, rng=SeededRng(1))
        await store.write(f"{ROOT}/INSTANCEID", b"\xff", 0)
        assert await read_instance_id(store, ROOT) == "\ufffd"
        with pytest.raises(IllegalOperationError, match="there is a cluster already"):
            await initialize(store, ROOT, rng=SeededRng(2))

    run(scenario)


def test_an_instance_id_is_a_random_uuid() -> None:
    text = new_instance_id(SeededRng(1))
    assert [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]
    assert text[14] == "4"
    assert text[19] in "89ab"
    assert text != new_instance_id(SeededRng(2))


def test_a_cluster_is_made_once_and_below_any_parent() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        await store.create("/a")
        first = await initialize(store, "/a/b/ledgers", rng=SeededRng(1), layout=Layout.FLAT)
        with pytest.raises(IllegalOperationError, match=first):
            await initialize(store, "/a/b/ledgers", rng=SeededRng(2))
        assert await read_instance_id(store, "/a/b/ledgers") == first
        assert await read_layout(store, "/a/b/ledgers") is Layout.FLAT

    run(scenario)


def test_an_empty_root_is_taken_and_a_strange_one_is_not() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        await store.create(ROOT)
        await initialize(store, ROOT, rng=SeededRng(1))
        await store.create("/other/available", make_parents=True)
        with pytest.raises(IllegalOperationError, match="no cluster"):
            await initialize(store, "/other", rng=SeededRng(1))
        assert world.paths("/other") == ["/other/available"]

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_an_initialization_whose_answer_is_lost_is_done_once(fate: Fate) -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        link.fates = [fate, fate]
        store = world.client(link)
        instance_id = await initialize(store, ROOT, rng=SeededRng(1))
        assert await read_instance_id(store, ROOT) == instance_id

    run(scenario)


def test_a_cluster_that_another_made_is_seen_by_a_client_that_lags() -> None:
    """It is not told to remove what it takes for half a cluster."""

    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        world.server.freeze(store.session_id)
        await initialize(world.client(), ROOT, rng=SeededRng(1))
        with pytest.raises(IllegalOperationError, match="there is a cluster already"):
            await initialize(store, ROOT, rng=SeededRng(2))

    run(scenario)


def test_a_registration_that_a_server_has_not_heard_of_keeps_its_cluster() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store, bookie = world.client(), world.client()
        instance_id = await initialize(store, ROOT, rng=SeededRng(1))
        world.server.freeze(store.session_id)
        await bookie.create(f"{ROOT}/available/b1:3181", is_ephemeral=True)
        with pytest.raises(IllegalOperationError, match="b1:3181 registered"):
            await remove(store, ROOT, instance_id)
        assert await is_initialized(store, ROOT)

    run(scenario)


def test_remove_wants_the_instance_and_takes_all() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        instance_id = await initialize(store, ROOT, rng=SeededRng(1))
        manager = world.manager(store)
        await manager.create(metadata())
        await manager.create(metadata(), 2**40)
        with pytest.raises(IllegalOperationError, match="expected instance"):
            await remove(store, ROOT, "another")
        await store.create(f"{ROOT}/foreign")
        with pytest.raises(IllegalOperationError, match="foreign"):
            await remove(store, ROOT, instance_id)
        await manager.read(0)
        await store.delete(f"{ROOT}/foreign")
        await remove(store, ROOT, instance_id)
        assert world.paths() == []

    run(scenario)


@pytest.mark.parametrize("parent", ["available", "available/readonly"])
def test_a_cluster_with_a_registered_bookie_is_not_removed(parent: str) -> None:
    """It would serve old entries as those of new ledgers, whose ids begin at 0 again."""

    async def scenario(world: MetadataWorld) -> None:
        store, bookie = world.client(), world.client()
        instance_id = await initialize(store, ROOT, rng=SeededRng(1))
        await world.manager(store).create(metadata())
        await bookie.create(f"{ROOT}/{parent}/b1:3181", is_ephemeral=True)
        before = world.paths()
        with pytest.raises(IllegalOperationError, match="found b1:3181 registered"):
            await remove(store, ROOT, instance_id)
        assert world.paths() == before
        await bookie.close()
        await remove(store, ROOT, instance_id)
        assert world.paths() == []

    run(scenario)


def test_a_removal_that_was_interrupted_goes_on() -> None:
    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        instance_id = await initialize(store, ROOT, rng=SeededRng(1))
        await store.delete(f"{ROOT}/available/readonly")
        await store.delete(f"{ROOT}/available")
        await remove(store, ROOT, instance_id)
        assert world.paths() == []

    run(scenario)


def test_a_cluster_without_layout_says_what_to_do() -> None:
    async def scenario(world: MetadataWorld) -> None:
        with pytest.raises(IllegalOperationError, match="bookie format"):
            await read_layout(world.client(), ROOT)
        assert await read_instance_id(world.client(), ROOT) is None

    run(scenario)
