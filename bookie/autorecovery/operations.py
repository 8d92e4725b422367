"""What operators ask about replication, one JSON model behind commands and HTTP.

Every method returns what json can say. Used on one asyncio loop. Errors: MetadataStoreError,
CorruptFileError, and those that a method names.
"""

from typing import Any

from bookie.autorecovery.election import current_auditor
from bookie.autorecovery.formats import Task
from bookie.autorecovery.tasks import TaskStore
from bookie.errors import CorruptFileError, IllegalOperationError, IncorrectParameterError
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.metadata.interfaces import VersionedStore

DELAY_S_MAX = 10 * 365 * 86400
_HOLDERS_ASKED_MAX = 100
Json = dict[str, Any]


class ReplicationOperations:
    """See the module."""

    def __init__(self, store: VersionedStore, root: str, lifecycle: Operations) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self.tasks = TaskStore(store, root)

    async def under_replicated(
        self,
        missing: BookieId | None = None,
        not_missing: BookieId | None = None,
        *,
        after: int = -1,
        limit: int | None = None,
    ) -> list[Json]:
        """Return the ledgers that wait for replication, ascending, and why some of them wait.

        missing: only those of which this bookie's copy is missing; not_missing: is not. after:
        only ids above it. limit: at most so many; None: all. NoSuchBookieError for an id that the
        cluster does not know.
        """
        unseen = dict.fromkeys(one for one in (missing, not_missing) if one is not None)
        records: list[Json] = []
        statuses = {status.ledger_id: status for status in await self.tasks.statuses()}
        locked = set(await self.tasks.locked())
        async for ledger_id in self.tasks.ledger_ids():
            if ledger_id <= after:
                continue
            if limit is not None and len(records) == limit:
                break
            damage = None
            try:
                found = await self.tasks.read(ledger_id)
            except CorruptFileError as error:
                found, damage = (Task((), None), 0), str(error)
            if found is None:
                continue  # done since it was listed
            task, _ = found
            for bookie_id in task.missing:
                unseen.pop(bookie_id, None)
            if missing is not None and missing not in task.missing:
                continue
            if not_missing is not None and not_missing in task.missing:
                continue
            status = statuses.get(ledger_id)
            records.append(
                {
                    "ledger_id": ledger_id,
                    "missing": list(task.missing),
                    "since_ms": task.ctime_ms,
                    "is_locked": ledger_id in locked,
                    "failures": status.failure_count if status is not None else 0,
                    "is_loss": status.is_loss if status is not None else False,
                    "reason": damage or (status.reason if status is not None else None),
                }
            )
        await self._lifecycle.expect_known(unseen)
        return records

    async def bad_ledgers(self, *, only_losses: bool = False) -> list[Json]:
        """Return the ledgers that workers could not replicate, ascending, and why.

        is_loss: no bookie that answers has some entry. The store keeps 1,000 of them.
        """
        return [
            {
                "ledger_id": status.ledger_id,
                "is_loss": status.is_loss,
                "reason": status.reason,
                "failures": status.failure_count,
                "worker": status.worker,
                "time_ms": status.time_ms,
            }
            for status in await self.tasks.statuses()
            if status.is_loss or not only_losses
        ]

    async def auditor(self) -> str | None:
        """Return the auditor's name; None: there is none."""
        return await current_auditor(self._store, self.tasks)

    async def audit(self, *, is_checking: bool = False) -> str:
        """Let the auditor look now and return its name; IllegalOperationError without one.

        is_checking: the periodic checks that are not switched off are due now as well.
        """
        name = await self.auditor()
        if name is None:
            raise IllegalOperationError(
                "expected an auditor, found none; start `bookie autorecovery`, or bookies with "
                "--autorecovery"
            )
        if is_checking:
            await self.tasks.forget_check_times()
        await self.tasks.request_audit()
        return name

    async def set_delay(self, delay_s: int) -> None:
        """Set how long one lost bookie is waited for; IncorrectParameterError."""
        if not 0 <= delay_s <= DELAY_S_MAX:
            raise IncorrectParameterError(
                f"delay: expected 0 to {DELAY_S_MAX} seconds, found {delay_s}"
            )
        await self.tasks.set_lost_bookie_delay(delay_s)

    async def switch(self, *, is_on: bool) -> None:
        """Let AutoRecovery work in the whole cluster, or stop it."""
        await (self.tasks.enable() if is_on else self.tasks.disable())

    async def status(self) -> Json:
        """Return whether AutoRecovery is on, who audits and who copies, and how much waits.

        other_lock_holders: of the first 100 locks; workers of Apache's that copy now, recovery by
        hand, collectors.
        """
        waiting = [ledger_id async for ledger_id in self.tasks.ledger_ids()]
        statuses = await self.tasks.statuses()
        workers, locked = await self.tasks.workers(), await self.tasks.locked()
        holders = (await self.tasks.holders(locked[:_HOLDERS_ASKED_MAX])).values()
        return {
            "is_enabled": await self.tasks.is_enabled(),
            "auditor": await self.auditor(),
            "workers": list(workers),
            "other_lock_holders": sorted({*holders} - {*workers}),
            "delay_s": await self.tasks.lost_bookie_delay_s(),
            "under_replicated": len(waiting),
            "locked": len(locked),
            "failing": len(statuses),
            "lost": sum(found.is_loss for found in statuses),
        }
