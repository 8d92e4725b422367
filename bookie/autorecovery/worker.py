"""ReplicationWorker: takes tasks, some at once, under each ledger's lock, and makes ledgers whole.

A task goes only when its ledger is whole as checked under the lock, and only at the version that
was read before the check: one that was published again meanwhile stays. What cannot be done now is
given back with a pause and a reason in a status node. The lock of an open ledger is kept for its
grace period; the worker takes other tasks meanwhile. Losing the session loses the locks: metadata
is not changed then, because a collector may have removed what was copied. Where the session ended
while metadata was written the ledger is published again: another worker may have removed its task.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bookie.autorecovery.backoff import BackOff, GracePeriods
from bookie.autorecovery.repair import LedgerLock, Outcome, Repairer, Result
from bookie.autorecovery.tasks import Status, TaskStore
from bookie.config import AutoRecoveryConfig
from bookie.errors import BookieError, ClientClosedError, CorruptFileError
from bookie.ledger.types import BookieId, Segment
from bookie.runtime.interfaces import Clock, Rng

_log = logging.getLogger(__name__)
_LEFT_TO_OTHERS_MAX = 3
"""So often in a row a worker leaves a ledger to others before it says so: mostly one takes it."""


@dataclass(slots=True)
class WorkerFigures:
    """Since the start; named as Apache's metrics where they mean the same."""

    replicated_ledger_count: int = 0
    failed_repair_count: int = 0
    lost_ledger_count: int = 0
    """Repairs that found an entry that no bookie has."""
    entry_count: int = 0
    byte_count: int = 0


class ReplicationWorker:
    """See the module. run() until it is cancelled, then close()."""

    def __init__(
        self,
        tasks: TaskStore,
        repairer: Repairer,
        name: str,
        clock: Clock,
        rng: Rng,
        config: AutoRecoveryConfig,
    ) -> None:
        """`name` stands in locks and statuses; no other that locks in this session has it."""
        self._tasks = tasks
        self._repairer = repairer
        self._name = name
        self._clock = clock
        self._rng = rng
        self._config = config
        self._back_off = BackOff(config.failure_pause_s)
        self._for_others = BackOff(config.failure_pause_s)
        """Of ledgers that cannot be copied to this worker's own bookie: no failure of theirs."""
        self._grace = GracePeriods(config.open_ledger_grace_s)
        self._held: dict[int, None] = {}
        """Ledgers that this worker has locked."""
        self.unsure: dict[int, BookieId] = {}
        """By ledger: targets that may have been named without the lock. This worker publishes them,
        as nothing else than an auditor does."""
        self._publishing = asyncio.Lock()
        self.figures = WorkerFigures()

    async def run(self) -> None:
        """Work for ever; what the store or bookies refuse is tried again."""
        while True:
            try:
                await self.work_once()
            except ClientClosedError:
                raise
            except BookieError as error:
                _log.warning("replication worker %s goes on after: %s", self._name, error)
            await asyncio.sleep(self._config.poll_interval_s * (0.5 + self._rng.random()))

    async def work_once(self) -> None:
        """Look at every task once, in random order."""
        await self._publish_unsure()
        await self._give_back_left()
        if not await self._repairer.takes_tasks():
            await self._give_back_all()
            await self._tasks.unregister_worker(self._name)
            return
        await self._tasks.register_worker(self._name)
        if not await self._tasks.is_enabled():
            await self._give_back_all()
            return
        await self._work_on(self._grace.due(self._clock.monotonic()))
        found = [ledger_id async for ledger_id in self._tasks.ledger_ids()]
        await self._forget_removed(found)
        locked = set(await self._tasks.locked())
        await self._work_on(
            {
                ledger_id: None
                for ledger_id in self._shuffled(found)
                if ledger_id not in locked and ledger_id not in self._grace
            }
        )

    async def _work_on(self, ledgers: Mapping[int, Segment | None]) -> None:
        """Do the tasks of these ledgers, a few together: most of a small one is waiting.

        By ledger: the open segment of which the grace period is over, or None.
        """
        waiting = iter(ledgers.items())

        async def work() -> None:
            for ledger_id, fence in waiting:
                if fence is None and not self._is_due(ledger_id):
                    continue
                if not (await self._repairer.takes_tasks() and await self._tasks.is_enabled()):
                    return
                await self._work(ledger_id, fence)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(ledgers), self._config.repairs_at_once)):
                    group.create_task(work())
        except ExceptionGroup as errors:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # before 3.13 a TaskGroup forgets that
                raise asyncio.CancelledError from errors
            raise errors.exceptions[0] from None

    def _is_due(self, ledger_id: int) -> bool:
        now_s = self._clock.monotonic()
        return self._back_off.is_due(ledger_id, now_s) and self._for_others.is_due(ledger_id, now_s)

    async def close(self) -> None:
        """Give locks and registration back, if the store answers; else the session's end does."""
        try:
            await self._publish_unsure()
            await self._give_back_all()
            await self._tasks.unregister_worker(self._name)
        except BookieError:
            pass

    async def _give_back_all(self) -> None:
        for ledger_id in list(self._held):
            await self._give_back(ledger_id)

    async def _give_back_left(self) -> None:
        """Give back the locks of ledgers that were left while the store was silent.

        Where the session outlived that they are there still, and keep every worker away.
        """
        for ledger_id in list(self._held):
            if ledger_id not in self._grace:
                await self._give_back(ledger_id)

    async def _give_back(self, ledger_id: int) -> None:
        await self._tasks.unlock(ledger_id, self._name)
        self._forget(ledger_id)

    def _forget(self, ledger_id: int) -> None:
        self._grace.end(ledger_id)
        self._held.pop(ledger_id, None)

    async def _forget_removed(self, found: Collection[int]) -> None:
        """Stop waiting for ledgers of which the task is gone."""
        known = set(found)
        for ledger_id in self._grace.ledger_ids:
            if ledger_id not in known:
                await self._give_back(ledger_id)

    def _shuffled(self, ledger_ids: Collection[int]) -> list[int]:
        """Return them in random order: workers then seldom want the same one."""
        return sorted(ledger_ids, key=lambda _: self._rng.random())

    async def _work(self, ledger_id: int, fence: Segment | None) -> None:
        """Take one ledger's lock, unless it is kept since before, and do its task."""
        self._held[ledger_id] = None  # before the answer: where that is lost the lock may be there
        is_kept = False
        session_id = self._tasks.session_id
        lock = LedgerLock(lambda: self._tasks.session_id == session_id)
        try:
            if not await self._tasks.lock(ledger_id, self._name):
                self._forget(ledger_id)  # another has it
                return
            try:
                found = await self._tasks.read(ledger_id)
            except CorruptFileError as error:
                _log.error("ledger %d: its task is left out: %s", ledger_id, error)
                self._back_off.failed(ledger_id, self._clock.monotonic())
                return
            if found is None:
                return
            task, version = found
            _log.info("ledger %d: replicating, %s missing", ledger_id, ", ".join(task.missing))
            outcome = await self._repairer.repair(ledger_id, task.missing, fence=fence, lock=lock)
            is_kept = await self._settle(ledger_id, version, outcome)
        finally:
            if lock.unsure is not None:
                self.unsure[ledger_id] = lock.unsure
            if ledger_id in self._held and not is_kept:
                await self._give_back(ledger_id)
        await self._publish_unsure()

    async def _settle(self, ledger_id: int, version: int, outcome: Outcome) -> bool:
        """Act on what a repair found; True: the lock is kept for a grace period."""
        now_s = self._clock.monotonic()
        self.figures.entry_count += outcome.entry_count
        self.figures.byte_count += outcome.byte_count
        match outcome.result:
            case Result.WHOLE | Result.GONE:
                is_removed = await self._tasks.finish(ledger_id, self._name, version)
                self._back_off.succeeded(ledger_id)
                self._for_others.succeeded(ledger_id)
                if is_removed:
                    self._forget(ledger_id)
                    await self._tasks.clear_report(ledger_id)
                    self.figures.replicated_ledger_count += 1
                    _log.info("ledger %d is %s: its task is done", ledger_id, outcome.result.value)
            case Result.OPEN:
                # Neither success nor failure: a ledger that could not be recovered goes on pausing.
                assert outcome.segment is not None
                self._grace.begin(ledger_id, outcome.segment, now_s)
                return True
            case Result.NO_TARGET:
                if self._repairer.is_local:
                    if self._for_others.failed(ledger_id, now_s) >= _LEFT_TO_OTHERS_MAX:
                        await self._report(ledger_id, outcome, is_first_only=True)
                else:
                    self._back_off.failed(ledger_id, now_s)
                    await self._report(ledger_id, outcome)
            case Result.UNLOCKED:
                _log.warning("ledger %d is left: %s", ledger_id, outcome.reason)
            case Result.FAILED:
                self._back_off.failed(ledger_id, now_s)
                self.figures.failed_repair_count += 1
                self.figures.lost_ledger_count += outcome.is_loss
                log = _log.error if outcome.is_loss else _log.warning
                log("ledger %d is not replicated: %s", ledger_id, outcome.reason)
                await self._report(ledger_id, outcome)
        return False

    async def _publish_unsure(self) -> None:
        """Publish ledgers whose new member may lack entries. MetadataStoreError: call it again."""
        async with self._publishing:  # repairs that end together publish each of theirs once
            while self.unsure:
                ledger_id, bookie = next(iter(self.unsure.items()))
                try:
                    await self._tasks.publish(ledger_id, (bookie,), self._clock.wall_us() // 1000)
                except CorruptFileError as error:  # a task that an operator has to remove
                    _log.error("ledger %d: its task is left as it is: %s", ledger_id, error)
                if self.unsure.get(ledger_id) == bookie:  # else another repair ended so meanwhile
                    del self.unsure[ledger_id]

    async def _report(
        self, ledger_id: int, outcome: Outcome, *, is_first_only: bool = False
    ) -> None:
        status = Status(
            ledger_id,
            self._name,
            outcome.reason,
            outcome.is_loss,
            self._back_off.count_of(ledger_id),
            self._clock.wall_us() // 1000,
        )
        if not await self._tasks.report(status, is_first_only=is_first_only):
            _log.warning("ledger %d: there are too many statuses to keep its own", ledger_id)
