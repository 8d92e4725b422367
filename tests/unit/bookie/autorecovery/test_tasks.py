"""Tasks, locks and the other nodes below `underreplication`, over a memory store with faults."""

import asyncio

import pytest

from bookie.autorecovery import formats
from bookie.autorecovery.formats import Task
from bookie.autorecovery.operations import ReplicationOperations
from bookie.autorecovery.tasks import STATUS_TEXT_MAX, CheckKind, Status, TaskStore, vote_guard
from bookie.errors import (
    CorruptFileError,
    DeposedAuditorError,
    MetadataStoreError,
    NoSuchBookieError,
)
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.metadata.cluster import read_instance_id
from bookie.metadata.memory import Fate
from bookie.server.cluster_ledgers import ClusterLedgers
from tests.fixtures.metadata import ROOT, MetadataWorld, ScriptedLink, SeededRng, run

A, B = BookieId("127.0.0.1:3181"), BookieId("127.0.0.2:3181")
BASE = f"{ROOT}/underreplication"
LONG_ID = 0x4AFE_BEEF_0000_FEED


def below(world: MetadataWorld) -> list[str]:
    return [path for path in world.paths() if path.startswith(f"{BASE}/ledgers/")]


async def prepared(world: MetadataWorld, link: ScriptedLink | None = None) -> TaskStore:
    await world.format()
    tasks = TaskStore(world.client(link), ROOT)
    await tasks.prepare()
    return tasks


def test_bytes_are_those_of_apache() -> None:
    assert Task((A,), 1_700_000_000_000).to_bytes() == (
        b'replica: "127.0.0.1:3181"\nctime: 1700000000000\n'
    )
    assert Task((A, B)).to_bytes() == b'replica: "127.0.0.1:3181"\nreplica: "127.0.0.2:3181"\n'
    assert Task.from_bytes(b'replica: "127.0.0.1:3181"\n', "x") == Task((A,), None)
    assert formats.layout_bytes() == b'type: "BASIC"\nversion: 1\n'
    assert formats.lock_bytes("host") == b'bookieId: "host"\n'
    assert formats.holder_of(b'bookieId: "host"\n') == "host"
    assert formats.holder_of(b"something else\xff\n") == "something else\N{REPLACEMENT CHARACTER}"
    assert formats.vote_bytes("b:1") == b'bookieId: "b:1"\n'
    assert formats.candidate_of(b'bookieId: "b:1"\n', "x") == "b:1"
    assert formats.check_time_bytes(300) == b"\x08\xac\x02"
    assert formats.check_time_of(b"\x08\xac\x02", "x") == 300


@pytest.mark.parametrize("data", [b"\xff", b"replica: 1", b'unknown: "x"', b'replica: "\\q"'])
def test_damaged_tasks_are_told(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="the/node: expected a Underrep"):
        Task.from_bytes(data, "the/node")


def test_a_layout_of_another_kind_is_refused() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await world.format()
        store = world.client()
        data = b'type: "FANCY"\nversion: 2\n'
        await store.create(f"{BASE}/LAYOUT", data, make_parents=True)
        with pytest.raises(CorruptFileError, match="expected the layout BASIC 1, found FANCY 2"):
            await TaskStore(store, ROOT).prepare()

    run(scenario)


def test_the_delay_is_there_from_the_start() -> None:
    """Apache's shell reads it before it asks for an audit."""

    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        assert (await world.client().read(f"{BASE}/lostBookieRecoveryDelay"))[0] == b"0"
        await tasks.set_lost_bookie_delay(7)
        await tasks.prepare()
        assert await tasks.lost_bookie_delay_s() == 7

    run(scenario)


def test_a_task_is_published_merged_done_and_leaves_nothing() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        assert tasks.task_path(LONG_ID).endswith(f"4afe/beef/0000/feed/urL{LONG_ID}")
        assert tasks.task_path(7) == f"{BASE}/ledgers/0000/0000/0000/0007/urL0000000007"
        await tasks.publish(7, (A,), 1)
        await tasks.publish(LONG_ID, (B,), 2)
        assert await tasks.read(7) == (Task((A,), 1), 0)
        await tasks.publish(7, (B, A), 3)
        assert await tasks.read(7) == (Task((A, B), 1), 1)
        assert [ledger_id async for ledger_id in tasks.ledger_ids()] == [7, LONG_ID]
        for ledger_id, version in ((LONG_ID, 0), (7, 1)):
            assert await tasks.lock(ledger_id, "me")
            assert await tasks.finish(ledger_id, "me", version)
            assert await tasks.lock(ledger_id, "me")
            assert await tasks.finish(ledger_id, "me", version), "removed by hand: it is done"
            assert await tasks.locked() == []
        assert below(world) == []

    run(scenario)


def test_a_task_that_was_published_again_stays() -> None:
    """Even with the same bookies: one of them was lost again after the worker had looked."""

    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        await tasks.publish(7, (A,), 1)
        await tasks.publish(7, (A,), 2)
        assert await tasks.lock(7, "me")
        assert not await tasks.finish(7, "me", 0)
        assert await tasks.read(7) == (Task((A,), 1), 1)
        assert await tasks.locked() == [7]

    run(scenario)


def test_a_task_that_is_made_anew_is_another_one() -> None:
    """Between a removal of which the answer was lost and the question whether it was done."""

    async def scenario(world: MetadataWorld) -> None:
        link, store = ScriptedLink(), world.client()
        tasks, other = await prepared(world, link), TaskStore(store, ROOT)
        await tasks.publish(7, (A,), 1)
        assert await tasks.lock(7, "me")
        removed = asyncio.Event()
        watch = store.watch(tasks.task_path(7), removed.set)
        link.fates = [Fate.LOSE_ANSWER]
        finishing = asyncio.create_task(tasks.finish(7, "me", 0))
        await removed.wait()
        watch.close()
        assert not finishing.done()
        await other.publish(7, (A,), 2)
        assert not await finishing
        assert await tasks.read(7) == (Task((A,), 2), 0)
        assert await tasks.locked() == []

    run(scenario)


def test_only_the_owner_of_the_lock_removes_a_task() -> None:
    """A worker that lost its session lost its lock: what it found out is old."""

    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        await tasks.publish(7, (A,), 1)
        found = await tasks.read(7)
        assert found is not None
        assert not await tasks.finish(7, "me", found[1])
        assert await TaskStore(world.client(), ROOT).lock(7, "me")
        assert not await tasks.finish(7, "me", found[1]), "in another session"
        assert await tasks.locked() == [7]
        assert await tasks.read(7) == found

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
def test_lost_answers_change_nothing(fate: Fate) -> None:
    async def scenario(world: MetadataWorld) -> None:
        link = ScriptedLink()
        tasks = await prepared(world, link)
        link.fates = [fate] * 3
        await tasks.publish(7, (A,), 1)
        found = await tasks.read(7)
        assert found is not None
        assert found[0] == Task((A,), 1)
        link.fates = [fate]
        assert await tasks.lock(7, "me")
        assert await tasks.locked() == [7]
        link.fates = [fate]
        assert await tasks.finish(7, "me", found[1])
        assert await tasks.locked() == []
        assert await tasks.lock(7, "me")
        link.fates = [fate]
        await tasks.unlock(7, "me")
        assert await tasks.locked() == []
        assert below(world) == []

    run(scenario)


def test_a_lock_goes_with_its_session_and_is_of_one() -> None:
    async def scenario(world: MetadataWorld) -> None:
        ours = await prepared(world)
        store = world.client()
        theirs = TaskStore(store, ROOT)
        assert await theirs.lock(7, "them")
        assert await theirs.lock(7, "them"), "it is theirs already"
        assert not await ours.lock(7, "us")
        await ours.unlock(7, "us")
        data, stat = world.node(f"{BASE}/locks/urL0000000007")
        assert data == b'bookieId: "them"\n'
        assert stat.ephemeral_owner == store.session_id
        await store.close()
        assert await ours.lock(7, "us")

    run(scenario)


def test_the_collector_and_a_worker_of_one_session_keep_each_other_away() -> None:
    async def scenario(world: MetadataWorld) -> None:
        await prepared(world)
        store = world.client()
        worker = TaskStore(store, ROOT)
        manager = world.manager(store)
        ledgers = ClusterLedgers(store, ROOT, manager, A, None)
        async with ledgers.task_lock(7) as is_ours:
            assert is_ours
            assert not await worker.lock(7, A)
            await worker.unlock(7, A)
            assert await worker.locked() == [7]
        assert await worker.locked() == []
        assert await worker.lock(7, A)
        async with ledgers.task_lock(7) as is_ours:
            assert not is_ours
        assert await worker.locked() == [7]

    run(scenario)


def test_a_lock_that_went_with_its_session_is_not_given_back_from_another() -> None:
    """The collector, too, leaves the lock of a worker that took it meanwhile."""

    async def scenario(world: MetadataWorld) -> None:
        worker = await prepared(world)
        store = world.client()
        manager = world.manager(store)
        ledgers = ClusterLedgers(store, ROOT, manager, A, None)
        async with ledgers.task_lock(7) as is_ours:
            assert is_ours
            world.server.expire(store.session_id)
            assert await worker.lock(7, B)
        assert await worker.locked() == [7]

    run(scenario)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_lock_that_a_collector_could_not_give_back_goes_with_the_next_pass(
    is_taken: bool,
) -> None:
    """A session outlives a store that is silent for longer than its callers wait."""

    async def scenario(world: MetadataWorld) -> None:
        worker = await prepared(world)
        link = ScriptedLink()
        store = world.client(link)
        instance_id = await read_instance_id(store, ROOT)
        ledgers = ClusterLedgers(store, ROOT, world.manager(store), A, instance_id)
        session_id = store.session_id

        async def hold() -> None:
            async with ledgers.task_lock(7):
                assert is_taken
                world.server.disconnect(session_id, reconnect_s=None)

        if not is_taken:
            link.fates = [Fate.LOSE_ANSWER]
            link.reconnect_s = None
        with pytest.raises(MetadataStoreError):
            await hold()
        world.server.reconnect(session_id)
        await asyncio.sleep(1.0)
        assert store.session_id == session_id
        assert await worker.locked() == [7]
        assert [ledger_id async for ledger_id in ledgers.ledger_ids()] == []
        assert await worker.lock(7, B)

    run(scenario)


def test_a_deposed_auditor_writes_nothing() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        store = world.client()
        vote = await store.create(f"{BASE}/auditorelection/V_", is_ephemeral=True, is_sequence=True)
        guard = vote_guard(vote)
        await tasks.publish(7, (A,), 1, guard)
        await tasks.set_check_time(CheckKind.ENTRIES, 5, guard)
        await tasks.announce(b"me", guard)
        await store.delete(vote)
        before = world.paths()
        for write in (
            lambda: tasks.publish(7, (B,), 1, guard),
            lambda: tasks.publish(8, (B,), 1, guard),
            lambda: tasks.set_check_time(CheckKind.ENTRIES, 6, guard),
            lambda: tasks.set_check_time(CheckKind.PLACEMENT, 6, guard),
            lambda: tasks.announce(b"me again", guard),
        ):
            with pytest.raises(DeposedAuditorError, match="another auditor acts"):
                await write()
        assert world.paths() == before
        assert await tasks.read(7) == (Task((A,), 1), 0)
        assert await tasks.check_time_ms(CheckKind.ENTRIES) == 5

    run(scenario)


def test_what_waits_is_listed_and_filtered() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        await tasks.publish(7, (A,), 1)
        await tasks.publish(8, (A, B), 2)
        await tasks.publish(9, (B,), 3)
        assert await tasks.lock(8, "worker")
        await tasks.report(Status(9, "worker", "no bookie to copy to", False, 2, 5))
        store = world.client()
        lifecycle = Operations(store, ROOT, SeededRng(1), world.clock)
        asked = ReplicationOperations(store, ROOT, lifecycle)

        async def listed(
            missing: BookieId | None = None, not_missing: BookieId | None = None
        ) -> list[int]:
            rows = await asked.under_replicated(missing, not_missing)
            return [row["ledger_id"] for row in rows]

        assert await listed() == [7, 8, 9]
        assert await listed(missing=A) == [7, 8]
        assert await listed(not_missing=A) == [9]
        assert await listed(missing=B, not_missing=A) == [9]
        rows = await asked.under_replicated()
        assert [row["is_locked"] for row in rows] == [False, True, False]
        assert [row["reason"] for row in rows] == [None, None, "no bookie to copy to"]
        assert rows[1] | {"missing": [A, B], "since_ms": 2} == rows[1]
        with pytest.raises(NoSuchBookieError, match="bookie typo: expected one that this cluster"):
            await listed(missing=BookieId("typo"))

    run(scenario)


def test_a_worker_is_seen_while_its_session_lives() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks, others = await prepared(world), world.client()
        assert await tasks.workers() == ()
        assert await tasks.lock(8, "Apache's")
        asked = ReplicationOperations(
            others, ROOT, Operations(others, ROOT, SeededRng(1), world.clock)
        )
        other = TaskStore(others, ROOT)
        names = ("10.0.0.4:3181", "a/host named .. & %2F")
        for _ in range(2):  # as a worker does at each look
            for name in names:
                await other.register_worker(name)
        assert await tasks.workers() == names
        status = await asked.status()
        assert (status["workers"], status["other_lock_holders"]) == ([*names], ["Apache's"])
        await tasks.unregister_worker(names[0])
        assert await tasks.workers() == names, "it is another session's"
        await other.unregister_worker(names[1])
        assert await tasks.workers() == names[:1]
        world.server.expire(others.session_id)
        assert await tasks.workers() == ()

    run(scenario)


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_worker_whose_answer_is_lost_is_registered_once(fate: Fate) -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world, link := ScriptedLink())
        link.fates = [fate]
        await tasks.register_worker("w")
        assert await tasks.workers() == ("w",)

    run(scenario)


def test_checks_of_which_the_times_are_forgotten_are_due() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        await tasks.set_check_time(CheckKind.ALL_LEDGERS, 5, ())
        await tasks.set_check_time(CheckKind.PLACEMENT, 5, ())
        await tasks.forget_check_times()
        assert [await tasks.check_time_ms(kind) for kind in CheckKind] == [0, 0, 0]
        await tasks.forget_check_times()
        await tasks.set_check_time(CheckKind.ALL_LEDGERS, 6, ())
        assert await tasks.check_time_ms(CheckKind.ALL_LEDGERS) == 6

    run(scenario)


def test_two_publish_and_a_third_prunes_at_once() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = [await prepared(world)]
        tasks += [TaskStore(world.client(), ROOT) for _ in range(2)]
        for round_ in range(20):
            assert await tasks[2].lock(7, "me")
            assert await tasks[0].lock(8, "me")
            await tasks[0].publish(7, (A,), round_)
            await asyncio.gather(
                tasks[0].publish(8, (A,), round_),
                tasks[1].publish(8, (B,), round_),
                tasks[2].finish(7, "me", 0),
            )
            found = await tasks[0].read(8)
            assert found is not None
            assert set(found[0].missing) == {A, B}
            assert await tasks[0].finish(8, "me", found[1])
        assert below(world) == []

    run(scenario)


def test_the_switch_the_delay_and_statuses() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        assert await tasks.is_enabled()
        await tasks.disable()
        await tasks.disable()
        assert not await tasks.is_enabled()
        await tasks.enable()
        await tasks.enable()
        assert await tasks.is_enabled()
        assert await tasks.lost_bookie_delay_s() == 0
        await tasks.set_lost_bookie_delay(30)
        await tasks.set_lost_bookie_delay(30)
        data, stat = world.node(f"{BASE}/lostBookieRecoveryDelay")
        assert (data, stat.version) == (b"30", 2), "the same again is a change, too"
        assert await tasks.statuses() == []
        status = Status(7, "w", "because", is_loss=True, failure_count=3, time_ms=9)
        assert await tasks.report(Status(7, "w", "x" * 9999, False, 1, 1))
        assert len((await tasks.statuses())[0].reason) == STATUS_TEXT_MAX
        assert await tasks.report(status)
        assert await tasks.statuses() == [status]
        await tasks.clear_report(7)
        await tasks.clear_report(7)
        assert await tasks.statuses() == []

    run(scenario)


def test_statuses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookie.autorecovery.tasks.STATUS_COUNT_MAX", 2)

    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        made = [await tasks.report(Status(n, "w", "r", False, 1, 1)) for n in range(4)]
        assert made == [True, True, False, False]
        assert await tasks.report(Status(1, "w", "newer", False, 2, 2)), "one that is there"

    run(scenario)


def test_a_delay_that_is_no_number_is_told() -> None:
    async def scenario(world: MetadataWorld) -> None:
        tasks = await prepared(world)
        await world.client().write(f"{BASE}/lostBookieRecoveryDelay", b"soon", 0)
        with pytest.raises(CorruptFileError, match="expected seconds, found b'soon'"):
            await tasks.lost_bookie_delay_s()

    run(scenario)
