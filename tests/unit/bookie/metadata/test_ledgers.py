"""The ledger manager: tokens, compare-and-set, iteration, deletion; with answers lost on the way.

LedgerMetadataCreationTest, MetadataUpdateLoopTest and LedgerManagerIteratorTest, in our words.
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from bookie.errors import (
    ClientClosedError,
    IllegalOperationError,
    LedgerExistsError,
    MetadataStoreError,
    MetadataVersionError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger import metadata_codec
from bookie.ledger.types import BookieId, EntryId, LedgerId, LedgerMetadata, LedgerState, Segment
from bookie.metadata.cluster import initialize
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.memory import Fate
from bookie.metadata.memory_server import Lag
from tests.fixtures.metadata import (
    ROOT,
    MetadataWorld,
    ScriptedLink,
    SeededRng,
    metadata,
    run,
)

Change = Callable[[LedgerMetadata], LedgerMetadata | None]
"""None: it is so already."""


async def update(manager: LedgerManager, ledger_id: int, change: Change) -> None:
    """Read, change, compare-and-set, until it holds: how every client changes metadata."""
    while True:
        found, version = await manager.read(ledger_id)
        changed = change(found)
        if changed is None:
            return
        try:
            await manager.write(changed, version)
            return
        except MetadataVersionError:
            continue


# --- create ---------------------------------------------------------------------------------------


def test_4_2_create_gives_id_version_and_token() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager = world.manager(world.client())
        created, version = await manager.create(metadata("a:1", "b:1"))
        assert (created.ledger_id, version) == (0, 0)
        assert created.creator_token is not None
        assert created.creator_token > 0
        data, stat = world.node(f"{ROOT}/00/0000/L0000")
        assert metadata_codec.decode(LedgerId(0), data, stat.ctime_ms) == replace(
            created, ctime_ms=stat.ctime_ms
        )
        found, version = await manager.read(0)
        assert version == 0
        assert found.segments == created.segments

    run(scenario)


def test_4_2_an_explicit_id_that_is_taken_is_refused() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager = world.manager(world.client())
        await manager.create(metadata(), 5)
        with pytest.raises(LedgerExistsError, match="ledger 5"):
            await manager.create(metadata(), 5)

    run(scenario)


def test_4_2_a_generated_id_that_is_taken_is_replaced_by_the_next() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager = world.manager(world.client())
        await manager.create(metadata("a:1"), 0)
        await manager.create(metadata("a:1"), 1)
        created, _ = await manager.create(metadata("b:1"))
        assert created.ledger_id == 2
        assert (await manager.read(0))[0].segments[0].ensemble == ("a:1",)

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
@pytest.mark.parametrize("ledger_id", [None, 9])
@pytest.mark.parametrize("lag_s", [0.0, math.inf])
def test_a_create_whose_answer_is_lost_is_told_by_its_token(
    fate: Fate, ledger_id: int | None, lag_s: float
) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        link.lag_s = lag_s
        manager = world.manager(world.client(link))
        seen: list[str] = []

        def once(path: str, is_write: bool) -> Fate:
            if is_write and "/L" in path and not seen:
                seen.append(path)
                return fate
            return Fate.ANSWERED

        link.fate_of = once
        created, version = await manager.create(metadata(), ledger_id)
        assert seen
        assert (created.ledger_id, version) == (ledger_id or 0, 0)
        found, version = await manager.read(created.ledger_id)
        assert (found.creator_token, version) == (created.creator_token, 0)

    run(scenario)


def test_another_creator_of_the_same_id_is_not_taken_for_us() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        ours, theirs = world.manager(world.client(link), 1), world.manager(world.client(), 2)
        await theirs.create(metadata("a:1"), 3)
        link.fates = [Fate.LOSE_REQUEST]
        # Equal in all but the token: the request was lost, theirs is there.
        with pytest.raises(LedgerExistsError):
            await ours.create(metadata("a:1"), 3)

    run(scenario)


def test_two_creators_of_one_id_and_one_wins_whatever_is_lost(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        chance = random.Random(seed)

        def fate(path: str, is_write: bool) -> Fate:
            return chance.choice([*Fate, Fate.ANSWERED, Fate.ANSWERED])

        for ledger_id in range(20):
            results: list[object] = []

            async def create(number: int, ledger_id: int, results: list[object]) -> None:
                link = ScriptedLink()
                link.fate_of = fate
                manager = world.manager(world.client(link), number, layout=Layout.HIERARCHICAL)
                try:
                    results.append((await manager.create(metadata(), ledger_id))[0].creator_token)
                except LedgerExistsError:
                    results.append(None)

            await asyncio.gather(
                *(create(100 * ledger_id + n, ledger_id, results) for n in range(3))
            )
            data, _ = world.node(ledger_path(ROOT, Layout.HIERARCHICAL, ledger_id))
            stored = metadata_codec.decode(LedgerId(ledger_id), data).creator_token
            assert [result for result in results if result is not None] == [stored]

    run(scenario, seed=seed)


def test_the_time_of_creation_is_the_nodes_unless_it_is_to_be_stored() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        now_ms = world.clock.wall_us() // 1000
        plain = world.manager(world.client())
        await plain.create(metadata(), 1)
        found, _ = await plain.read(1)
        assert (found.ctime_ms, found.is_ctime_stored) == (now_ms, False)
        storing = world.manager(world.client(), is_ctime_stored=True)
        await storing.create(metadata(), 2)
        world.clock.advance(5)
        found, _ = await plain.read(2)
        assert (found.ctime_ms, found.is_ctime_stored) == (now_ms, True)

    run(scenario)


def test_no_cluster_is_said_so() -> None:
    async def scenario(world: MetadataWorld) -> None:
        with pytest.raises(IllegalOperationError, match="bookie format"):
            await world.manager(world.client()).create(metadata())

    run(scenario)


def test_a_store_that_stays_silent_ends_the_patience() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        manager = world.manager(store)
        await manager.create(metadata(), 1)
        found, version = await manager.read(1)
        world.server.disconnect(store.session_id)
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        for question in (
            manager.read(1),
            manager.write(found, version),
            manager.create(metadata(), 2),
            manager.delete(1),
        ):
            before_s = loop.time()
            with pytest.raises(MetadataStoreError, match="look before asking again"):
                await question
            assert 30 <= loop.time() - before_s <= 33
        assert loop.time() - begin_s < 140

    run(scenario)


def test_a_store_that_is_closed_does_not_wait() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        manager = world.manager(store)
        await manager.create(metadata(), 1)
        world.server.disconnect(store.session_id)
        question = asyncio.ensure_future(manager.read(1))
        await asyncio.sleep(3)
        await store.close()
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        with pytest.raises(ClientClosedError):
            await question
        assert loop.time() - before_s <= 2

    run(scenario)


# --- write ----------------------------------------------------------------------------------------


def test_write_is_compare_and_set_and_forgets_the_token() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager = world.manager(world.client())
        created, version = await manager.create(metadata())
        closed = created.closed(EntryId(7), 70)
        assert await manager.write(closed, version) == 1
        with pytest.raises(MetadataVersionError, match="ledger 0"):
            await manager.write(created.with_state(LedgerState.IN_RECOVERY), version)
        found, version = await manager.read(0)
        assert (found.last_entry_id, found.length, found.creator_token, version) == (7, 70, 0, 1)
        await manager.delete(0)
        with pytest.raises(NoSuchLedgerMetadataError):
            await manager.write(closed, 1)
        with pytest.raises(NoSuchLedgerMetadataError):
            await manager.read(0)

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_write_whose_answer_is_lost_is_done_once(fate: Fate, count: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        manager = world.manager(world.client(link))
        created, version = await manager.create(metadata())
        link.fates = [fate] * count
        assert await manager.write(created.closed(EntryId(7), 70), version) == 1
        assert (await manager.read(0))[1] == 1

    run(scenario)


def test_a_lost_write_that_another_overtook_is_a_conflict() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        link.reconnect_s = 5.0
        ours, theirs = world.manager(world.client(link)), world.manager(world.client())
        created, version = await ours.create(metadata())
        link.fates = [Fate.LOSE_ANSWER]
        write = asyncio.ensure_future(ours.write(created.closed(EntryId(7), 70), version))
        await asyncio.sleep(1)
        # Ours is done; then theirs, at the next version.
        await theirs.write(created.closed(EntryId(8), 80), 1)
        with pytest.raises(MetadataVersionError):
            await write
        assert (await ours.read(0))[0].last_entry_id == 8

    run(scenario)


def test_a_lost_write_never_undoes_what_came_after_it() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        link.reconnect_s = 5.0
        ours, theirs = world.manager(world.client(link)), world.manager(world.client())
        created, version = await ours.create(metadata())
        link.fates = [Fate.LOSE_REQUEST]
        write = asyncio.ensure_future(ours.write(created.closed(EntryId(7), 70), version))
        await asyncio.sleep(1)
        await theirs.write(created.with_state(LedgerState.IN_RECOVERY), version)
        with pytest.raises(MetadataVersionError):
            await write
        found, version = await ours.read(0)
        assert (found.state, version) == (LedgerState.IN_RECOVERY, 1)

    run(scenario)


def test_a_lost_write_of_a_ledger_that_was_deleted_says_so() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        link.reconnect_s = 5.0
        ours, theirs = world.manager(world.client(link)), world.manager(world.client())
        created, version = await ours.create(metadata())
        link.fates = [Fate.LOSE_ANSWER]
        write = asyncio.ensure_future(ours.write(created, version))
        await asyncio.sleep(1)
        await theirs.delete(0)
        with pytest.raises(NoSuchLedgerMetadataError):
            await write

    run(scenario)


def test_a_stale_read_after_a_lost_answer_is_not_believed() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        store = world.client(link)
        manager = world.manager(store)
        created, version = await manager.create(metadata())
        link.fates = [Fate.LOSE_ANSWER]
        link.lag_s = math.inf  # the server that it comes back to shows what was before the write
        assert await manager.write(created.closed(EntryId(1), 1), version) == 1
        assert link.fates == []

    run(scenario)


def test_conflicting_updates_both_take_place() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        one, two = world.manager(world.client()), world.manager(world.client())
        await one.create(metadata("a:1", "b:1"))

        def replaced(old: str, new: str) -> Change:
            def change(found: LedgerMetadata) -> LedgerMetadata:
                ensemble = tuple(
                    BookieId(new) if bookie == old else bookie
                    for bookie in found.last_segment.ensemble
                )
                return found.with_ensemble(EntryId(0), ensemble)

            return change

        await asyncio.gather(
            update(one, 0, replaced("a:1", "c:1")), update(two, 0, replaced("b:1", "d:1"))
        )
        found, version = await one.read(0)
        assert (found.segments, version) == ((Segment(EntryId(0), ("c:1", "d:1")),), 2)  # type: ignore[arg-type]

    run(scenario)


def test_hammered_metadata_takes_every_change_once_whatever_is_lost(seed: int) -> None:
    writers, rounds = 8, 10

    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        await world.manager(world.client()).create(metadata())
        chance = random.Random(seed)
        losses: list[Fate] = []

        def fate(path: str, is_write: bool) -> Fate:
            drawn = chance.choices(list(Fate), [8, 1, 1])[0]
            losses.append(drawn)
            return drawn

        async def hammer(number: int) -> None:
            link = ScriptedLink()
            link.fate_of = fate
            store = world.client(link)
            manager = world.manager(store, number)
            key = f"writer-{number}"

            def added(done: int) -> Change:
                def change(found: LedgerMetadata) -> LedgerMetadata | None:
                    text = found.custom.get(key, b"") + b"%d" % done
                    if b"%d" % done in found.custom.get(key, b""):
                        return None  # a conflict was with ourselves
                    return replace(found, custom=found.custom | {key: text})

                return change

            for done in range(rounds):
                await update(manager, 0, added(done))
                if done % 4 == number % 4:
                    world.server.freeze(store.session_id)
                elif done % 5 == number % 5:
                    world.server.expire(store.session_id)

        await asyncio.gather(*(hammer(number) for number in range(writers)))
        found, version = await world.manager(world.client()).read(0)
        assert found.custom == {f"writer-{n}": b"0123456789" for n in range(writers)}
        assert version == writers * rounds
        assert {Fate.LOSE_ANSWER, Fate.LOSE_REQUEST} <= set(losses)

    run(scenario, seed=seed)


# --- delete and list ------------------------------------------------------------------------------


def test_delete_takes_the_empty_parents_along() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager = world.manager(world.client())
        before = world.paths()
        for ledger_id in (1, 2, 2**40):
            await manager.create(metadata(), ledger_id)
        await manager.delete(1)
        assert f"{ROOT}/00/0000/L0002" in world.paths()
        await manager.delete(2)
        await manager.delete(2**40)
        assert world.paths() == before
        await manager.delete(2)  # not there: success

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_a_delete_whose_answer_is_lost(fate: Fate) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        manager = world.manager(world.client(link))
        await manager.create(metadata(), 1)
        link.fates = [fate]
        await manager.delete(1)
        assert not [path for path in world.paths() if "/L0" in path]

    run(scenario)


def test_creators_and_removers_of_one_directory(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()

        async def work(number: int) -> None:
            manager = world.manager(world.client(), number)
            for step in range(20):
                await manager.create(metadata(), 100 * number + step)
                await manager.delete(100 * number + step)

        before = world.paths()
        await asyncio.gather(*(work(number) for number in range(4)))
        assert world.paths() == before

    run(scenario, seed=seed)


async def listed(manager: LedgerManager) -> list[int]:
    return [ledger_id async for ledger_id in manager.ledger_ids()]


def test_iteration_over_no_ledgers() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        assert await listed(world.manager(world.client())) == []

    run(scenario)


@pytest.mark.parametrize("layout", list(Layout))
def test_iteration_is_ascending_over_all_trees_and_skips_what_is_no_ledger(layout: Layout) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        manager = world.manager(store, layout=layout)
        short = [0, 1, 9_999, 10_000, 99_999_999, 100_000_000, 2**31 - 2]
        long = [2**31 - 1, 2**32, 2**40, 2**63 - 1]
        has_long = layout in (Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL)
        ledger_ids = short + long if has_long else short
        for ledger_id in sorted(ledger_ids, key=lambda n: n % 7):
            await manager.create(metadata(), ledger_id)
        for path in (
            "cookies/127.0.0.1:3181",
            "available/127.0.0.1:3181",
            "underreplication/ledgers/0000/0000/0000/0000/urL0000000001",
            "idgen/ID-0000000005",
            "idgen-long/HOB-0000000001/ID-0000000001",
            "disableHealthCheck",
            "ID-0000000003",
            "00/0000/other",
            "00/other/L0000",
            "other/0000/L0000",
        ):
            await store.create(f"{ROOT}/{path}", make_parents=True)
        assert await listed(manager) == ledger_ids

    run(scenario)


def test_iteration_while_ledgers_come_and_go(seed: int) -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager, other = world.manager(world.client(), 1), world.manager(world.client(), 2)
        kept = list(range(0, 50_000, 1000))
        for ledger_id in kept:
            await manager.create(metadata(), ledger_id)
        is_over = False

        async def disturb() -> None:
            number = 1
            while not is_over:
                await other.create(metadata(), number)
                await other.delete(number)
                number = (number + 7001) % 50_000 // 1000 * 1000 + 1

        disturbing = asyncio.ensure_future(disturb())
        found = await listed(manager)
        is_over = True
        await disturbing
        assert [ledger_id for ledger_id in found if ledger_id % 1000 == 0] == kept
        assert found == sorted(set(found))

    run(scenario, seed=seed)


def test_iteration_misses_nothing_on_a_server_that_lags_or_a_connection_that_breaks() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        store = world.client(link)
        manager, other = world.manager(store), world.manager(world.client())
        await manager.create(metadata(), 1)
        world.server.freeze(store.session_id)
        await other.create(metadata(), 2)
        await other.create(metadata(), 10**8)
        chance = random.Random(1)
        link.fate_of = lambda path, is_write: chance.choice(list(Fate))
        assert await listed(manager) == [1, 2, 10**8]

    run(scenario)


def test_iteration_that_goes_on_at_a_server_that_lags_misses_nothing() -> None:
    """A new session may begin at a server that is behind the first one."""

    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        link = ScriptedLink()
        store = world.client(link)
        manager, other = world.manager(store), world.manager(world.client())
        await manager.create(metadata(), 1)
        before = Lag(world.server.tree.copy(), math.inf)
        await other.create(metadata(), 2)
        cuts: list[str] = []

        def cut_once(path: str, is_write: bool) -> Fate:
            if path.endswith("/00/0000") and not cuts:
                cuts.append(path)
                asyncio.get_running_loop().call_soon(
                    lambda: world.server.disconnect(store.session_id, reconnect_s=0.1, lag=before)
                )
            return Fate.ANSWERED

        link.fate_of = cut_once
        assert await listed(manager) == [1, 2]
        assert cuts

    run(scenario)


def test_iteration_that_cannot_go_on_fails_and_does_not_end() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        manager = world.manager(store)
        for ledger_id in (1, 10**8):
            await manager.create(metadata(), ledger_id)
        found: list[int] = []

        async def iterate() -> None:
            async for ledger_id in manager.ledger_ids():
                found.append(ledger_id)
                world.server.disconnect(store.session_id)

        with pytest.raises(MetadataStoreError):
            await iterate()
        assert found == [1]

    run(scenario)


def test_watching_a_ledger() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        manager, other = world.manager(world.client()), world.manager(world.client())
        rings: list[int] = []
        with pytest.raises(IllegalOperationError, match="read it"):
            manager.watch(0, lambda: rings.append(1))
        created, version = await other.create(metadata())
        await manager.read(0)
        watch = manager.watch(0, lambda: rings.append(1))
        await other.write(created.with_state(LedgerState.IN_RECOVERY), version)
        await asyncio.sleep(0.1)
        assert len(rings) == 1
        await other.delete(0)
        await asyncio.sleep(0.1)
        assert len(rings) == 2
        watch.close()

    run(scenario)


def test_an_id_that_the_layout_cannot_say_is_that_of_no_ledger() -> None:
    """A bookie may have been sent any id; what no metadata knows is collected."""

    async def scenario(world: MetadataWorld) -> None:
        store = world.client()
        await initialize(store, ROOT, rng=SeededRng(1), layout=Layout.FLAT)
        with pytest.raises(NoSuchLedgerMetadataError, match="in a FLAT layout"):
            await world.manager(store).read(1 << 40)

    run(scenario)
