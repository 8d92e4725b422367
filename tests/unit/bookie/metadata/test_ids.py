"""Ledger ids: TestZkLedgerIdGenerator and TestLongZkLedgerIdGenerator, in our words."""

import asyncio

import pytest

from bookie.errors import LedgerIdOverflowError
from bookie.metadata.ids import LedgerIds
from bookie.metadata.interfaces import Create, Delete
from bookie.metadata.ledger_paths import SHORT_ID_LIMIT, Layout
from bookie.metadata.memory import Fate, MemoryStore
from bookie.metadata.memory_tree import SERVER
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, run


def ids_of(store: MemoryStore, layout: Layout = Layout.HIERARCHICAL) -> LedgerIds:
    return LedgerIds(store, ROOT, layout, 30.0)


def set_counter(world: MetadataWorld, path: str, number: int) -> None:
    world.server.tree._nodes[path].created_count = number


def test_ids_begin_at_zero_and_leave_nothing_behind() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        ids = ids_of(world.client())
        assert [await ids.generate() for _ in range(3)] == [0, 1, 2]
        assert world.paths(f"{ROOT}/idgen") == []
        assert world.node(f"{ROOT}/idgen")[1].ephemeral_owner == 0

    run(scenario)


def test_many_generators_never_give_out_an_id_twice(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        found: list[int] = []

        async def generate() -> None:
            ids = ids_of(world.client())
            found.extend([await ids.generate() for _ in range(100)])

        await asyncio.gather(*(generate() for _ in range(5)))
        assert sorted(found) == list(range(500))

    run(scenario, seed=seed)


def test_lost_answers_waste_ids_and_repeat_none() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        ids = ids_of(world.client(link))
        found = [await ids.generate()]
        link.fates = [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST]
        found.append(await ids.generate())
        found.append(await ids.generate())
        assert found == [0, 2, 3]

    run(scenario)


def test_short_ids_used_up_begin_the_long_ones() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        ids = ids_of(world.client())
        await ids.generate()
        set_counter(world, f"{ROOT}/idgen", SHORT_ID_LIMIT - 1)
        assert await ids.generate() == SHORT_ID_LIMIT - 1
        # 2**31 - 1 itself, and the negative numbers after it, are no ids.
        assert await ids.generate() == 1 << 32
        assert await ids.generate() == (1 << 32) + 1
        assert world.paths(f"{ROOT}/idgen-long") == [f"{ROOT}/idgen-long/HOB-0000000001"]
        another = ids_of(world.client())
        assert await another.generate() == (1 << 32) + 2

    run(scenario)


def test_negative_numbers_are_the_end_of_the_short_ids() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        ids = ids_of(world.client())
        await ids.generate()
        set_counter(world, f"{ROOT}/idgen", 2**31)
        assert await ids.generate() == 1 << 32

    run(scenario)


def test_presence_of_idgen_long_means_long_ids() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        await store.create(f"{ROOT}/idgen-long")
        assert await ids_of(store).generate() == 1 << 32

    run(scenario)


def test_a_full_upper_half_is_followed_by_the_next_and_three_are_kept() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        ids = ids_of(world.client())
        parent = f"{ROOT}/idgen-long"
        await world.client().create(parent)
        found: list[int] = []
        for high in range(1, 6):
            found.append(await ids.generate())
            set_counter(world, f"{parent}/HOB-{high:010d}", SHORT_ID_LIMIT)
        assert found == [high << 32 for high in range(1, 6)]
        assert await ids.generate() == 6 << 32
        assert await ids.generate() == (6 << 32) + 1
        assert world.paths(parent) == [f"{parent}/HOB-{high:010d}" for high in (4, 5, 6)]

    run(scenario)


def test_a_stale_list_of_upper_halves_is_not_believed() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        parent = f"{ROOT}/idgen-long"
        for high in range(1, 4):
            await store.create(f"{parent}/HOB-{high:010d}", make_parents=True)
        lagging = world.client()
        assert await ids_of(lagging).generate() == 3 << 32
        world.server.freeze(lagging.session_id)
        await store.delete(f"{parent}/HOB-0000000001")
        await store.create(f"{parent}/HOB-0000000004")
        assert await ids_of(lagging).generate() == 4 << 32

    run(scenario)


def test_an_upper_half_that_was_removed_meanwhile_is_not_made_again() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        parent = f"{ROOT}/idgen-long"
        link = ScriptedLink()
        other = world.client()
        await other.create(f"{parent}/HOB-0000000001", make_parents=True)

        def overtake(path: str, is_write: bool) -> Fate:
            if is_write and path == f"{parent}/HOB-0000000001/ID-":
                # Just before our request arrives, three upper halves are used up.
                tree = world.server.tree
                tree.apply([Delete(f"{parent}/HOB-0000000001")], SERVER, 0)
                tree.apply([Create(f"{parent}/HOB-0000000004")], SERVER, 0)
            return Fate.ANSWERED

        link.fate_of = overtake
        assert await ids_of(world.client(link)).generate() == 4 << 32
        assert world.paths(parent) == [f"{parent}/HOB-0000000004"]

    run(scenario)


def test_other_names_below_idgen_long_are_passed_over() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        for name in ("HOB-x", "HOB--5", "other", "HOB-0000000007"):
            await store.create(f"{ROOT}/idgen-long/{name}", make_parents=True)
        assert await ids_of(store).generate() == 7 << 32

    run(scenario)


@pytest.mark.parametrize("layout", [Layout.FLAT, Layout.LEGACY_HIERARCHICAL])
def test_layouts_without_long_paths_end_with_the_short_ids(layout: Layout) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        ids = ids_of(world.client(), layout)
        first = await ids.generate()
        parent = ROOT if layout is Layout.FLAT else f"{ROOT}/idgen"
        assert first == world.server.tree._nodes[parent].created_count - 1
        set_counter(world, parent, SHORT_ID_LIMIT)
        with pytest.raises(LedgerIdOverflowError):
            await ids.generate()

    run(scenario)


def test_long_ids_end_too() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        path = f"{ROOT}/idgen-long/HOB-{SHORT_ID_LIMIT - 1:010d}"
        await store.create(path, make_parents=True)
        ids = ids_of(store)
        assert await ids.generate() == (SHORT_ID_LIMIT - 1) << 32
        set_counter(world, path, SHORT_ID_LIMIT)
        with pytest.raises(LedgerIdOverflowError):
            await ids.generate()

    run(scenario)
