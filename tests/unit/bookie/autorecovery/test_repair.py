"""Repairs of single ledgers on whole bookies, on a simulated loop, without tasks and auditors."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from bookie.autorecovery.auditor import Auditor
from bookie.autorecovery.checking import LedgerCheck
from bookie.autorecovery.manual import ledgers_naming, named, recover_ledger, recover_ledgers
from bookie.autorecovery.repair import Outcome, Repairer, Result
from bookie.autorecovery.tasks import CheckKind, TaskStore, vote_guard
from bookie.autorecovery.worker import ReplicationWorker
from bookie.client.client import LedgerClient
from bookie.client.interfaces import ReadReply
from bookie.config import AutoRecoveryConfig
from bookie.errors import DeposedAuditorError, LedgerFencedError, MetadataStoreError
from bookie.ledger.codec import EntryDigest, master_key
from bookie.ledger.types import (
    BookieId,
    DigestType,
    EntryId,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Segment,
    Status,
)
from bookie.lifecycle.states import Step
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.interfaces import ANY_VERSION, Check, SessionState, VersionedStore
from bookie.metadata.ledger_paths import task_lock_path
from tests.fixtures.metadata import SeededRng
from tests.sim.ledger.plan import WorldPlan
from tests.sim.ledger.world import ROOT, LoopClock, World

PASSWORD = b"secret"
CONFIG = AutoRecoveryConfig(open_ledger_grace_s=5.0, poll_interval_s=0.1, failure_pause_s=10.0)


class Scene:
    """Bookies b0:3181, b1:3181, … and one client of them."""

    def __init__(
        self, world: World, client: LedgerClient, tasks: TaskStore, store: VersionedStore
    ) -> None:
        self.world = world
        self.store = store
        self.client = client
        self.tasks = tasks
        self.clock = LoopClock(world.loop)

    def repairer(self, local: str | None = None, *leaving: str) -> Repairer:
        async def must_leave() -> frozenset[BookieId]:
            return frozenset(BookieId(name) for name in leaving)

        return Repairer(
            self.client,
            self.clock,
            CONFIG,
            local=None if local is None else BookieId(local),
            leaving=must_leave,
        )

    async def repair(self, ledger_id: int, local: str | None = None, **more: Any) -> Outcome:
        return await self.repairer(local).repair(ledger_id, **more)

    async def written(self, count: int, sizes: tuple[int, int, int] = (3, 3, 2)) -> int:
        """Return a closed ledger of so many entries."""
        writer = await self.client.create_ledger(*sizes, password=PASSWORD)
        for number in range(count):
            await writer.add(b"entry %d" % number)
        await writer.close()
        return writer.ledger_id

    async def made(self, state: LedgerState, last: int, *ensemble: int) -> LedgerMetadata:
        """Store metadata of a ledger of which no bookie has heard."""
        metadata = LedgerMetadata(
            ledger_id=LedgerId(-1),
            ensemble_size=len(ensemble),
            write_quorum_size=len(ensemble),
            ack_quorum_size=len(ensemble),
            segments=(Segment(EntryId(0), tuple(bookie(n) for n in ensemble)),),
            digest_type=DigestType.CRC32C,
            password=PASSWORD,
            state=state,
            last_entry_id=EntryId(last),
            length=(last + 1) * 2,
        )
        return (await self.client.services.ledgers.create(metadata))[0]

    async def add(self, ledger_id: int, entry_id: int, *bookies: int) -> None:
        """Let these bookies have an entry of two bytes."""
        digest = EntryDigest.of(DigestType.CRC32C, PASSWORD)
        packet = digest.seal(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * 2, b"xy")
        answers: list[Status] = []
        done = asyncio.get_running_loop().create_future()

        def on_done(_: BookieId, status: Status) -> None:
            answers.append(status)
            if len(answers) == len(bookies):
                done.set_result(None)

        self.client.services.channels.add(
            tuple(bookie(n) for n in bookies),
            ledger_id,
            entry_id,
            master_key(PASSWORD),
            packet,
            on_done,
            is_recovery=True,
        )
        await done
        assert answers == [Status.OK] * len(bookies)

    async def read(
        self, name: str, ledger_id: int, entry_id: int, fence_key: bytes | None = None
    ) -> Status:
        answered: asyncio.Future[ReadReply] = asyncio.get_running_loop().create_future()
        self.client.services.channels.read(
            BookieId(name), ledger_id, entry_id, answered.set_result, fence_key=fence_key
        )
        return (await answered).status

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self.client.services.ledgers.read(ledger_id))[0]

    async def ensembles(self, ledger_id: int) -> list[tuple[str, ...]]:
        return [segment.ensemble for segment in (await self.metadata(ledger_id)).segments]

    async def check_whole(self, ledger_id: int, last: int) -> None:
        """See that every member has every entry up to `last`, where Qw is E."""
        for ensemble in await self.ensembles(ledger_id):
            for name in ensemble:
                for entry_id in range(last + 1):
                    assert await self.read(name, ledger_id, entry_id) is Status.OK

    async def lose(self, name: str) -> None:
        """Let a bookie go for good, and see it deregistered."""
        host = self.world.host(name.partition(":")[0])
        host.is_wanted = False
        host.crash(power=True)
        bookies = self.client.bookies
        await self.until(lambda: name not in (*bookies.writable, *bookies.read_only))

    async def turn_read_only(self, name: str) -> None:
        host = self.world.host(name.partition(":")[0])
        assert host.node is not None
        assert host.service is not None
        service = host.service
        host.node.run(lambda: service.serving.set_read_only(is_read_only=True))
        await self.until(lambda: name not in self.client.bookies.writable)

    async def until(self, is_true: Callable[[], bool]) -> None:
        await self.world.wait_until(is_true, 30.0, "the list of bookies did not follow")


def bookie(number: int) -> BookieId:
    return BookieId(f"b{number}:3181")


def run(bookie_count: int, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    plan = WorldPlan(
        bookie_count=bookie_count,
        sync_s=0.000_5,
        slow_link_share=0.0,
        churn=0.0,
        fault_count=0,
        store_trouble=0.0,
        repeat_share=0.0,
        timeout_s=0.25,
        speculative_read_s=0.06,
        recovery_read_ahead=4,
        is_change_delayed=False,
        explicit_lac=False,
        ledgers=(),
    )
    world = World(1, plan, random.Random(1), None)

    async def live() -> None:
        await world.format()
        for host in world.hosts:
            host.start()
        await world.wait_until(lambda: all(h.is_up for h in world.hosts), 10.0, "no bookies")
        host = world.new_client("client")
        await world.act(host.node, act(host))
        for one in world.hosts:
            await one.stop()

    async def act(host: Any) -> None:
        client = await host.connect()
        tasks = TaskStore(host.store, ROOT)
        await tasks.prepare()
        await scenario(Scene(world, client, tasks, host.store))
        await host.close()

    try:
        world.loop.run_until_complete(live(), time_limit_s=300.0)
        world.loop.check_tasks()
    finally:
        world.close()


# --- where copies go ------------------------------------------------------------------------------


def test_a_lost_member_is_replaced_and_the_new_one_has_everything() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(20)
        (ensemble,) = await scene.ensembles(ledger_id)
        await scene.lose(ensemble[1])
        outcome = await scene.repair(ledger_id)
        assert (outcome.result, outcome.entry_count) == (Result.WHOLE, 20)
        (after,) = await scene.ensembles(ledger_id)
        assert (after[0], after[2]) == (ensemble[0], ensemble[2])
        assert after[1] not in ensemble
        await scene.check_whole(ledger_id, 19)
        assert (await scene.repair(ledger_id)).entry_count == 0

    run(5, scenario)


def test_a_worker_beside_a_bookie_copies_there_and_nowhere_else() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        (ensemble,) = await scene.ensembles(ledger_id)
        others = [bookie(n) for n in range(5) if bookie(n) not in ensemble]
        await scene.lose(ensemble[0])
        member = await scene.repair(ledger_id, ensemble[1])
        assert member.result is Result.NO_TARGET
        assert ensemble[0] in member.reason
        await scene.turn_read_only(others[0])
        assert (await scene.repair(ledger_id, others[0])).result is Result.NO_TARGET
        assert (await scene.repair(ledger_id, others[1])).result is Result.WHOLE
        assert await scene.ensembles(ledger_id) == [(others[1], *ensemble[1:])]

    run(5, scenario)


def test_a_member_that_lacks_entries_gets_them_in_its_place() -> None:
    """Also where there is no other bookie that could replace it."""

    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 2, 0, 1, 2)
        for entry_id in range(3):
            await scene.add(made.ledger_id, entry_id, 0, 1)
        await scene.add(made.ledger_id, 0, 2)
        outcome = await scene.repair(made.ledger_id)
        assert outcome.result is Result.WHOLE
        assert await scene.ensembles(made.ledger_id) == [made.segments[0].ensemble]
        await scene.check_whole(made.ledger_id, 2)

    run(3, scenario)


def test_an_entry_in_the_middle_is_missed_only_by_the_list_of_a_suspect() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 2, 0, 1, 2)
        for entry_id in range(3):
            await scene.add(made.ledger_id, entry_id, 0, 1, *([2] if entry_id != 1 else []))
        assert (await scene.repair(made.ledger_id)).entry_count == 0
        outcome = await scene.repair(made.ledger_id, suspects=(bookie(2),))
        assert (outcome.result, outcome.entry_count) == (Result.WHOLE, 1)
        await scene.check_whole(made.ledger_id, 2)

    run(3, scenario)


def test_what_a_suspect_cannot_list_is_copied_to_another_bookie() -> None:
    """A bookie that lost a ledger directory denies nothing: what it still has ends the segment."""

    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 2, 0, 1, 2)
        for entry_id in range(3):
            await scene.add(made.ledger_id, entry_id, 0, 1, *([2] if entry_id != 1 else []))
        service = scene.world.host("b2").service
        assert service is not None
        storage = service.bookie._storage
        storage.state(made.ledger_id).is_in_limbo = True
        auditor = Auditor(scene.client, scene.tasks, scene.clock, CONFIG)
        await auditor.check_entries(())
        assert await scene.tasks.read(made.ledger_id) is not None
        outcome = await scene.repair(made.ledger_id, suspects=(bookie(2),))
        assert outcome.result is Result.WHOLE
        assert await scene.ensembles(made.ledger_id) == [(bookie(0), bookie(1), bookie(3))]
        await scene.check_whole(made.ledger_id, 2)

    run(4, scenario)


def test_without_a_bookie_to_copy_to_it_says_so() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        await scene.lose(bookie(1))
        outcome = await scene.repair(ledger_id)
        assert outcome.result is Result.NO_TARGET
        assert "in the place of b1:3181" in outcome.reason

    run(3, scenario)


def test_a_ledger_that_was_deleted_is_gone() -> None:
    async def scenario(scene: Scene) -> None:
        assert (await scene.repair(77)).result is Result.GONE

    run(3, scenario)


def test_metadata_without_a_password_is_told() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        ledgers = scene.client.services.ledgers
        found, version = await ledgers.read(ledger_id)
        await ledgers.write(replace(found, password=None), version)
        outcome = await scene.repair(ledger_id)
        assert outcome.result is Result.FAILED
        assert "does not hold the password" in outcome.reason

    run(3, scenario)


# --- fences and losses ----------------------------------------------------------------------------


def test_g15_copies_pass_the_fence() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(4)
        (ensemble,) = await scene.ensembles(ledger_id)
        target = next(bookie(n) for n in range(4) if bookie(n) not in ensemble)
        key = master_key(PASSWORD)
        assert await scene.read(target, ledger_id, -1, fence_key=key) is Status.NO_ENTRY
        await scene.lose(ensemble[0])
        assert (await scene.repair(ledger_id, target)).result is Result.WHOLE
        await scene.check_whole(ledger_id, 3)

    run(4, scenario)


def test_an_open_segment_is_left_until_its_grace_period_is_over() -> None:
    async def scenario(scene: Scene) -> None:
        writer = await scene.client.create_ledger(3, 3, 2, password=PASSWORD)
        for number in range(3):
            await writer.add(b"entry %d" % number)
        lost = writer.metadata.segments[0].ensemble[0]
        await scene.lose(lost)
        outcome = await scene.repair(writer.ledger_id)
        assert outcome.result is Result.OPEN
        assert (await scene.metadata(writer.ledger_id)).state is LedgerState.OPEN
        other = Segment(EntryId(0), tuple(bookie(n) for n in (7, 8, 9)))
        assert (await scene.repair(writer.ledger_id, fence=other)).result is Result.OPEN
        outcome = await scene.repair(writer.ledger_id, fence=outcome.segment)
        assert outcome.result is Result.WHOLE
        assert (await scene.metadata(writer.ledger_id)).last_entry_id == 2
        await scene.check_whole(writer.ledger_id, 2)
        with pytest.raises(LedgerFencedError):
            await writer.add(b"too late")
        await writer.abandon()

    run(5, scenario)


def test_an_open_segment_keeps_a_bookie_that_is_drained_without_fences() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        (segment,) = made.segments

        async def drains() -> frozenset[BookieId]:
            return frozenset({bookie(0)})

        repairer = Repairer(scene.client, scene.clock, CONFIG, leaving=drains, spared=drains)
        outcome = await repairer.repair(made.ledger_id, fence=segment)
        assert outcome.result is Result.WHOLE
        assert (await scene.metadata(made.ledger_id)).state is LedgerState.OPEN
        auditor = Auditor(scene.client, scene.tasks, scene.clock, CONFIG, drains, drains)
        assert await auditor.audit_bookies(()) == frozenset()
        assert [found async for found in scene.tasks.ledger_ids()] == []
        fencing = Repairer(scene.client, scene.clock, CONFIG, leaving=drains)
        assert (await fencing.repair(made.ledger_id, fence=segment)).result is Result.WHOLE
        assert (await scene.metadata(made.ledger_id)).is_closed

    run(4, scenario)


def test_a_drain_that_is_begun_anew_while_a_ledger_is_repaired() -> None:
    """The first one spared open ledgers; the second does not, and is not admitted yet."""

    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        (segment,) = made.segments
        answers = iter([frozenset({bookie(0)}), frozenset[BookieId]()])

        async def drains() -> frozenset[BookieId]:
            return next(answers)

        repairer = Repairer(scene.client, scene.clock, CONFIG, leaving=drains)
        outcome = await repairer.repair(made.ledger_id, fence=segment)
        assert outcome.result is Result.WHOLE
        assert (await scene.metadata(made.ledger_id)).state is LedgerState.OPEN

    run(4, scenario)


def test_g20_an_empty_open_ledger_is_closed_and_copied() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        await scene.lose(bookie(0))
        outcome = await scene.repair(made.ledger_id)
        assert outcome.result is Result.OPEN
        outcome = await scene.repair(made.ledger_id, fence=outcome.segment)
        assert outcome.result is Result.WHOLE
        assert bookie(0) not in (await scene.ensembles(made.ledger_id))[0]
        few = await scene.made(LedgerState.OPEN, -1, 1, 2)
        await scene.lose(bookie(1))
        await scene.lose(bookie(2))
        outcome = await scene.repair(few.ledger_id)
        outcome = await scene.repair(few.ledger_id, fence=outcome.segment)
        assert outcome.result is Result.FAILED
        assert "try again when they are back" in outcome.reason
        for host in scene.world.hosts:
            host.is_wanted = True
            host.start()
        await scene.until(lambda: len(scene.client.bookies.writable) == 5)
        assert (await scene.repair(few.ledger_id)).result is Result.WHOLE

    run(5, scenario)


def test_g23_the_last_entry_of_a_closed_ledger_that_no_bookie_has_is_a_loss() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 0, 0, 1, 2)
        outcome = await scene.repair(made.ledger_id)
        assert (outcome.result, outcome.is_loss) == (Result.FAILED, True)
        assert "entry 0" in outcome.reason
        assert "lost" in outcome.reason
        await scene.lose(bookie(2))
        outcome = await scene.repair(made.ledger_id)
        assert (outcome.result, outcome.is_loss) == (Result.FAILED, False), "b2 may have it"

    run(4, scenario)


def test_a_silent_bookie_decides_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        scene.world.loop.network.block("client", "b1")
        outcome = await scene.repair(ledger_id)
        assert outcome.result is Result.FAILED
        assert "no answer from b1:3181 (TIMED_OUT)" in outcome.reason
        scene.world.loop.network.open("client", "b1")
        await asyncio.sleep(10.0)  # of the simulated clock: the client connects again
        assert (await scene.repair(ledger_id)).result is Result.WHOLE

    run(4, scenario)


# --- tasks ----------------------------------------------------------------------------------------


def test_a_worker_keeps_reasons_pauses_and_clears_them() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 0, 0, 1, 2)
        await scene.tasks.publish(made.ledger_id, (bookie(0),), 1)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        await worker.work_once()
        await worker.work_once()
        (status,) = await scene.tasks.statuses()
        assert (status.worker, status.is_loss, status.failure_count) == ("me", True, 1)
        assert worker.figures.failed_repair_count == 1, "it pauses"
        assert await scene.tasks.locked() == []
        await scene.add(made.ledger_id, 0, 0)
        await asyncio.sleep(CONFIG.failure_pause_s)
        await worker.work_once()
        assert await scene.tasks.read(made.ledger_id) is None
        assert await scene.tasks.statuses() == []
        assert worker.figures.replicated_ledger_count == 1
        await scene.check_whole(made.ledger_id, 0)

    run(3, scenario)


def test_a_worker_of_one_bookie_leaves_to_others_what_it_cannot_copy() -> None:
    """It is no failure of the ledger: three of those end a drain."""

    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        (ensemble,) = await scene.ensembles(ledger_id)
        await scene.lose(ensemble[0])
        await scene.tasks.publish(ledger_id, (BookieId(ensemble[0]),), 1)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(ensemble[1]), "me", scene.clock, SeededRng(1), CONFIG
        )
        for _ in range(2):
            await worker.work_once()
            await asyncio.sleep(CONFIG.failure_pause_s)
        assert await scene.tasks.statuses() == [], "mostly another takes it"
        await worker.work_once()
        (status,) = await scene.tasks.statuses()
        assert (status.worker, status.is_loss, status.failure_count) == ("me", False, 0)
        assert f"this worker copies to {ensemble[1]} alone" in status.reason
        anywhere = ReplicationWorker(
            scene.tasks, scene.repairer(), "other", scene.clock, SeededRng(1), CONFIG
        )
        await scene.lose(next(bookie(n) for n in range(4) if bookie(n) not in ensemble))
        await anywhere.work_once()
        (status,) = await scene.tasks.statuses()
        assert (status.worker, status.failure_count) == ("other", 1)
        await asyncio.sleep(CONFIG.failure_pause_s)
        await worker.work_once()
        assert await scene.tasks.statuses() == [status], "a failure is not hidden"

    run(4, scenario)


def test_a_worker_beside_a_bookie_that_drains_takes_no_task() -> None:
    async def scenario(scene: Scene) -> None:
        whole, made = await scene.written(3), await scene.made(LedgerState.OPEN, -1, 0, 1)
        states = LifecycleStore(scene.store, ROOT)
        await scene.lose(bookie(0))
        await scene.tasks.publish(made.ledger_id, (bookie(0),), 1)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(bookie(2)), "me", scene.clock, SeededRng(1), CONFIG
        )
        await worker.work_once()
        assert await scene.tasks.locked() == [made.ledger_id]  # its grace period
        await states.move(bookie(2), Step.DRAIN, lambda record: record)
        bookies = scene.client.bookies
        await scene.until(lambda: bookie(2) in bookies.read_only)
        await scene.tasks.publish(whole, (bookie(0),), 1)
        await asyncio.sleep(CONFIG.open_ledger_grace_s)
        await worker.work_once()
        assert await scene.tasks.locked() == []
        assert await scene.tasks.workers() == ()
        assert (await scene.metadata(made.ledger_id)).state is LedgerState.OPEN
        await states.move(bookie(2), Step.CANCEL, lambda record: record)
        await worker.work_once()
        assert await scene.tasks.workers() == ("me",)
        assert await scene.tasks.locked() == [made.ledger_id]

    run(4, scenario)


def test_a_damaged_task_is_left_out_and_ends_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        damaged, whole = await scene.written(3), await scene.written(3)
        for ledger_id in (damaged, whole):
            await scene.tasks.publish(ledger_id, (bookie(0),), 1)
        path = scene.tasks.task_path(damaged)
        await scene.store.write(path, b"replica: 1", ANY_VERSION)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        await worker.work_once()
        assert [found async for found in scene.tasks.ledger_ids()] == [damaged]
        assert await scene.tasks.locked() == []

        async def leaving() -> frozenset[BookieId]:
            return frozenset({bookie(0)})

        auditor = Auditor(scene.client, scene.tasks, scene.clock, CONFIG, leaving)
        await auditor.audit_bookies(())
        assert [found async for found in scene.tasks.ledger_ids()] == [damaged, whole]
        assert auditor.figures.unreadable_count == 1

    run(3, scenario)


def test_a_worker_keeps_the_lock_for_the_grace_period() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        await scene.lose(bookie(0))
        await scene.tasks.publish(made.ledger_id, (bookie(0),), 1)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        await worker.work_once()
        await worker.work_once()
        assert await scene.tasks.locked() == [made.ledger_id]
        assert (await scene.metadata(made.ledger_id)).state is LedgerState.OPEN
        await asyncio.sleep(CONFIG.open_ledger_grace_s)
        await worker.work_once()
        assert (await scene.metadata(made.ledger_id)).is_closed
        assert await scene.tasks.locked() == []
        assert await scene.tasks.read(made.ledger_id) is None

    run(4, scenario)


def test_a_cancelled_worker_ends_though_its_store_fails_meanwhile() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, 0, 0, 1, 2)
        await scene.tasks.publish(made.ledger_id, (bookie(0),), 1)
        is_asked = asyncio.Event()

        async def lock(*_: object) -> Any:
            is_asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise MetadataStoreError("the session has ended") from None

        scene.tasks.lock = lock  # type: ignore[method-assign]
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        working = asyncio.create_task(worker.work_once())
        await is_asked.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    run(3, scenario)


@pytest.mark.parametrize("end", ["read", "write", "lost answer", "cancelled"])
def test_a_lock_that_goes_with_its_session_leaves_no_member_without_copies(end: str) -> None:
    """A collector may remove what was copied; the task may be gone, and is published again."""

    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        before = await scene.ensembles(ledger_id)
        await scene.lose(before[0][0])
        await scene.tasks.publish(ledger_id, (before[0][0],), 1)
        ledgers = scene.client.services.ledgers
        write = ledgers.write

        async def end_session() -> None:
            session_id = scene.store.session_id
            scene.world.store_server.expire(session_id)
            await scene.until(lambda: scene.store.session_id != session_id)

        async def write_and_end(*arguments: Any) -> int:
            version = await write(*arguments)
            found = await scene.tasks.read(ledger_id)
            assert found is not None
            await end_session()
            other = TaskStore(scene.store, ROOT)  # finds the ledger whole, for it looks too early
            assert await other.lock(ledger_id, "other")
            assert await other.finish(ledger_id, "other", found[1])
            if end == "lost answer":
                raise MetadataStoreError("what was asked may have been done")
            if end == "cancelled":
                working.cancel()
                await asyncio.sleep(0)
            return version

        async def read_and_end(wanted: int) -> Any:
            found = await TaskStore.read(scene.tasks, wanted)
            await end_session()
            return found

        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        if end == "read":
            scene.tasks.read = read_and_end  # type: ignore[method-assign]
        else:
            ledgers.write = write_and_end  # type: ignore[method-assign]
        working = asyncio.create_task(worker.work_once())
        with suppress(asyncio.CancelledError):
            await working
        assert working.cancelled() == (end == "cancelled")
        if end == "cancelled":
            await worker.close()
        scene.tasks.__dict__.pop("read", None)
        (after,) = await scene.ensembles(ledger_id)
        found = await scene.tasks.read(ledger_id)
        assert found is not None
        if end != "read":
            (target,) = set(after) - set(before[0])
            assert found[0].missing == (target,)
        else:
            assert after == before[0]

    run(5, scenario)


def test_a_lock_that_could_not_be_given_back_goes_with_the_next_round() -> None:
    """A session outlives a store that is silent for longer than its callers wait."""

    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        (before,) = await scene.ensembles(ledger_id)
        await scene.lose(before[0])
        await scene.tasks.publish(ledger_id, (before[0],), 1)
        tasks = TaskStore(scene.store, ROOT, patience_s=0.0)
        session_id = scene.store.session_id

        async def break_and_finish(*arguments: Any) -> bool:
            scene.world.store_server.disconnect(session_id, reconnect_s=None)
            return await TaskStore.finish(tasks, *arguments)

        worker = ReplicationWorker(tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG)
        tasks.finish = break_and_finish  # type: ignore[method-assign]
        with pytest.raises(MetadataStoreError):
            await worker.work_once()
        del tasks.finish  # type: ignore[method-assign]
        scene.world.store_server.reconnect(session_id)
        await scene.until(lambda: scene.store.state is SessionState.CONNECTED)
        assert scene.store.session_id == session_id
        assert await scene.tasks.locked() == [ledger_id]
        await worker.work_once()
        assert await scene.tasks.read(ledger_id) is None
        assert await scene.tasks.locked() == []

    run(5, scenario)


def test_an_open_ledger_that_cannot_be_recovered_counts_its_failures() -> None:
    """Three of them end a drain; and the pauses grow."""

    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        for number in (0, 1):
            await scene.lose(bookie(number))
        await scene.tasks.publish(made.ledger_id, (bookie(0),), 1)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        for _ in range(3):
            await asyncio.sleep(CONFIG.failure_pause_s)
            await worker.work_once()
            await asyncio.sleep(CONFIG.open_ledger_grace_s)
            await worker.work_once()
        (status,) = await scene.tasks.statuses()
        assert status.failure_count == 3
        assert "too few bookies of the last ensemble" in status.reason

    run(4, scenario)


def test_some_ledgers_are_replicated_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        taken_s: list[float] = []
        for count in (1, 4):
            ledger_ids = [await scene.written(3) for _ in range(8)]
            victim = next(iter(scene.client.bookies.writable))
            named = [one for one in ledger_ids if victim in (await scene.ensembles(one))[0]]
            await scene.lose(victim)
            for ledger_id in named:
                await scene.tasks.publish(ledger_id, (victim,), 1)
            config = replace(CONFIG, repairs_at_once=count)
            worker = ReplicationWorker(
                scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), config
            )
            begun_s = scene.clock.monotonic()
            await worker.work_once()
            taken_s.append((scene.clock.monotonic() - begun_s) / len(named))
            assert worker.figures.replicated_ledger_count == len(named)
            for ledger_id in named:
                await scene.check_whole(ledger_id, 2)
        assert taken_s[1] < taken_s[0] / 2

    run(6, scenario)


def test_nothing_is_done_while_it_is_switched_off() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.OPEN, -1, 0, 1)
        await scene.lose(bookie(0))
        await scene.tasks.publish(made.ledger_id, (bookie(0),), 1)
        worker = ReplicationWorker(
            scene.tasks, scene.repairer(), "me", scene.clock, SeededRng(1), CONFIG
        )
        await worker.work_once()
        await scene.tasks.disable()
        await worker.work_once()
        assert await scene.tasks.locked() == [], "given back"
        await asyncio.sleep(CONFIG.open_ledger_grace_s)
        await worker.work_once()
        assert (await scene.metadata(made.ledger_id)).state is LedgerState.OPEN
        await scene.tasks.enable()
        await worker.work_once()
        await worker.close()
        assert await scene.tasks.locked() == []

    run(4, scenario)


# --- the auditor's checks and an operator's hand --------------------------------------------------


def test_each_check_publishes_what_it_is_for() -> None:
    async def scenario(scene: Scene) -> None:
        whole = await scene.written(3)
        middle = await scene.made(LedgerState.CLOSED, 2, 0, 1, 2)
        end = await scene.made(LedgerState.CLOSED, 2, 0, 1, 2)
        for entry_id in range(3):
            for ledger_id, hole in ((middle.ledger_id, 1), (end.ledger_id, 2)):
                has = [0, 1, 2] if entry_id != hole else [0, 1]
                await scene.add(ledger_id, entry_id, *has)
        store = scene.tasks
        auditor = Auditor(scene.client, store, scene.clock, CONFIG)
        await auditor.audit_bookies(())
        assert [ledger_id async for ledger_id in store.ledger_ids()] == []
        await auditor.check_ledgers(())
        assert [ledger_id async for ledger_id in store.ledger_ids()] == [end.ledger_id]
        await auditor.check_entries(())
        found = [ledger_id async for ledger_id in store.ledger_ids()]
        assert found == [middle.ledger_id, end.ledger_id]
        task = await store.read(middle.ledger_id)
        assert task is not None
        assert task[0].missing == (bookie(2),)
        assert auditor.figures.ledger_count == 3
        await scene.lose(bookie(2))
        await auditor.audit_bookies(())
        assert whole in [ledger_id async for ledger_id in store.ledger_ids()]

    run(3, scenario)


def test_an_audit_says_which_bookies_were_away_for_it() -> None:
    """What was lost before the audit, and not for the audit, has not been published."""

    async def scenario(scene: Scene) -> None:
        async def leaving() -> frozenset[BookieId]:
            return frozenset({bookie(1)})

        auditor = Auditor(scene.client, scene.tasks, scene.clock, CONFIG, leaving)
        assert await auditor.audit_bookies(()) == frozenset()
        await scene.lose(bookie(0))
        assert await auditor.audit_bookies(()) == {bookie(0)}

    run(3, scenario)


def test_one_lost_bookie_is_waited_for_though_another_one_drains() -> None:
    async def scenario(scene: Scene) -> None:
        made = await scene.made(LedgerState.CLOSED, -1, 0, 2)
        leaving: set[BookieId] = set()

        async def drains() -> frozenset[BookieId]:
            return frozenset(leaving)

        await scene.tasks.set_lost_bookie_delay(60)
        config = replace(CONFIG, ledger_check_interval_s=0)
        auditor = Auditor(scene.client, scene.tasks, scene.clock, config, drains)
        leading = asyncio.get_running_loop().create_task(auditor.lead(()))
        await asyncio.sleep(2.0)  # of the simulated clock: the first look is over
        await scene.lose(bookie(0))
        leaving.add(bookie(1))
        await asyncio.sleep(30.0)
        assert await scene.tasks.read(made.ledger_id) is None
        await asyncio.sleep(40.0)
        assert await scene.tasks.read(made.ledger_id) is not None
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    run(3, scenario)


def test_the_loss_of_a_bookie_is_noticed_while_all_ledgers_are_checked() -> None:
    """The check waits for a bookie that does not answer, a few ledgers at a time."""

    async def scenario(scene: Scene) -> None:
        lost = await scene.made(LedgerState.CLOSED, 0, 0, 1)
        await scene.add(lost.ledger_id, 0, 0, 1)
        for _ in range(100):
            checked = await scene.made(LedgerState.CLOSED, 0, 1, 2)
            await scene.add(checked.ledger_id, 0, 1, 2)
        silent = scene.world.host("b2").service
        assert silent is not None
        read = silent.bookie.read

        def read_some(ledger_id: int, *rest: Any) -> None:
            if ledger_id % 2:  # so that the connection is not given up
                read(ledger_id, *rest)

        silent.bookie.read = read_some  # type: ignore[method-assign]
        config = replace(CONFIG, ledgers_at_once=2)
        auditor = Auditor(scene.client, scene.tasks, scene.clock, config)
        leading = asyncio.get_running_loop().create_task(auditor.lead(()))
        await asyncio.sleep(2.0)  # of the simulated clock
        await scene.lose(bookie(0))
        await asyncio.sleep(2.0)
        assert await scene.tasks.read(lost.ledger_id) is not None
        assert await scene.tasks.check_time_ms(CheckKind.ALL_LEDGERS) == 0  # it goes on
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    run(4, scenario)


def test_a_check_of_which_the_time_lies_ahead_is_due() -> None:
    """It was noted by a clock that went wrong, maybe by years."""

    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        (before,) = await scene.ensembles(ledger_id)
        await scene.lose(before[0])
        now_ms = scene.clock.wall_us() // 1000
        ahead_ms = now_ms + 2000 * int(CONFIG.ledger_check_interval_s)
        await scene.tasks.set_check_time(CheckKind.ALL_LEDGERS, ahead_ms, ())
        auditor = Auditor(scene.client, scene.tasks, scene.clock, CONFIG)
        leading = asyncio.create_task(auditor.lead(()))
        try:
            await asyncio.sleep(5.0)
            assert await scene.tasks.check_time_ms(CheckKind.ALL_LEDGERS) < ahead_ms
        finally:
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

    run(3, scenario)


def test_what_ends_a_check_ends_the_auditor() -> None:
    async def scenario(scene: Scene) -> None:
        vote = f"{scene.tasks.votes_path}/V_0000000000"
        await scene.store.create(vote)
        auditor = Auditor(scene.client, scene.tasks, scene.clock, CONFIG)
        leading = asyncio.get_running_loop().create_task(auditor.lead(vote_guard(vote)))
        await asyncio.sleep(2.0)  # of the simulated clock: the first look is over
        await scene.store.delete(vote)
        await scene.tasks.forget_check_times()
        await asyncio.sleep(2.0)
        assert leading.done()
        assert isinstance(leading.exception(), DeposedAuditorError)

    run(3, scenario)


def test_a_bookie_that_must_be_left_is_emptied_by_hand_while_it_runs() -> None:
    async def scenario(scene: Scene) -> None:
        closed = await scene.written(6, (3, 2, 2))
        (ensemble,) = await scene.ensembles(closed)
        source = BookieId(ensemble[1])
        opened = await scene.made(LedgerState.OPEN, -1, int(source[1]))
        ledgers = scene.client.services.ledgers
        found = [
            named(m, (source,)) async for m in ledgers_naming(ledgers, (source,), unreadable={})
        ]
        assert [one.metadata.ledger_id for one in found] == [closed, opened.ledger_id]
        assert [one.entry_count for one in found] == [4, 0]
        assert [one.is_open_there for one in found] == [False, True]
        packet_bytes = 32 + 4 + len(b"entry 0")
        assert found[0].byte_count == 4 * packet_bytes
        repairer = scene.repairer(None, source)
        left = await recover_ledger(repairer, opened.ledger_id, will_fence=False)
        assert left.result is Result.OPEN
        for one in found:
            outcome = await recover_ledger(repairer, one.metadata.ledger_id, will_fence=True)
            assert outcome.result is Result.WHOLE
            assert outcome.byte_count == (one.byte_count or 0)
        assert [m async for m in ledgers_naming(ledgers, (source,), unreadable={})] == []
        result = await LedgerCheck(
            scene.client.services,
            await scene.metadata(closed),
            suspects=[bookie(n) for n in range(5)],
        ).run()
        assert (result.findings, result.undecided) == ((), ())

    run(5, scenario)


def test_a_recovery_by_hand_gives_back_what_an_earlier_one_could_not() -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(3)
        assert await scene.tasks.lock(ledger_id, "me")
        assert await scene.tasks.lock(ledger_id + 1, "another")
        found = recover_ledgers(scene.tasks, scene.repairer(), [], "me", will_fence=True)
        assert [one async for one in found] == []
        assert await scene.tasks.locked() == [ledger_id + 1]

    run(3, scenario)


def test_a_recovery_by_hand_that_loses_its_lock_looks_again() -> None:
    """What it copied may have been collected since: whole is what was whole under the lock."""

    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(20)
        (ensemble,) = await scene.ensembles(ledger_id)
        (target,) = {bookie(n) for n in range(4)} - {*ensemble}
        host = scene.world.host(target.partition(":")[0])
        ledgers = scene.client.services.ledgers
        write = ledgers.write

        async def lost_then(*arguments: Any) -> int:
            version = await write(*arguments)
            assert host.node is not None
            assert host.service is not None
            await scene.store.delete(task_lock_path(ROOT, ledger_id))
            await scene.world.act(
                host.node, host.service.collector._storage.delete_ledger(ledger_id)
            )
            return version

        ledgers.write = lost_then  # type: ignore[method-assign]
        ((found, outcome),) = [
            one
            async for one in recover_ledgers(
                scene.tasks, scene.repairer(target, ensemble[1]), [ledger_id], "me", will_fence=True
            )
        ]
        assert outcome is not None
        assert (found, outcome.result, outcome.entry_count) == (ledger_id, Result.WHOLE, 40)
        assert target in (await scene.ensembles(ledger_id))[0]
        await scene.check_whole(ledger_id, 19)
        assert await scene.tasks.locked() == []

    run(4, scenario)


def test_a_target_that_turns_read_only_meanwhile_takes_no_copy() -> None:
    """A recovery's adds pass there; the copies of a worker do not, and find another bookie."""

    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(5, (3, 3, 2))
        (ensemble,) = await scene.ensembles(ledger_id)
        (target,) = {bookie(n) for n in range(4)} - {*ensemble}
        await scene.lose(ensemble[0])
        bookies = scene.client.services.bookies
        active_check = bookies.active_check

        async def then_read_only(bookie_id: BookieId) -> Check | None:
            found = await active_check(bookie_id)
            await scene.turn_read_only(bookie_id)
            return found

        bookies.active_check = then_read_only  # type: ignore[method-assign]
        outcome = await scene.repair(ledger_id, target)
        assert (outcome.result, outcome.entry_count) == (Result.FAILED, 0)
        assert f"{target} does not take the copy (READ_ONLY)" in outcome.reason
        assert await scene.ensembles(ledger_id) == [ensemble]

    run(4, scenario)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_target_of_which_a_drain_began_meanwhile_is_not_named(is_removed: bool) -> None:
    async def scenario(scene: Scene) -> None:
        ledger_id = await scene.written(5, (3, 3, 2))
        (ensemble,) = await scene.ensembles(ledger_id)
        (target,) = {bookie(n) for n in range(4)} - {*ensemble}
        await scene.lose(ensemble[0])
        ledgers, states = scene.client.services.ledgers, LifecycleStore(scene.store, ROOT)
        write = ledgers.write

        async def drained_then(*arguments: Any) -> int:
            # The copy is made; the bookie goes before the metadata names it.
            if (found := await states.find(target)) is not None and found.version is None:
                await states.move(target, Step.DRAIN, lambda record: record)
                await states.move(target, Step.FINISH, lambda record: record)
                if is_removed:
                    await scene.store.delete(states.state_path(target))
                    await scene.store.delete(states.cookie_path(target))
            return await write(*arguments)

        ledgers.write = drained_then  # type: ignore[method-assign]
        outcome = await scene.repair(ledger_id, target)
        assert await scene.ensembles(ledger_id) == [ensemble]
        assert (outcome.result, "is leaving" in outcome.reason) == (Result.FAILED, True)

    run(4, scenario)
