"""AutoRecovery: one candidate for auditor and one worker over a session, started and closed.

Beside a bookie the worker copies to that bookie; alone it places by policy. Whatever ends one of
the two is logged, and it begins anew after a pause: neither ends with the metadata store's silence.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bookie.autorecovery.auditor import Auditor
from bookie.autorecovery.election import Elector
from bookie.autorecovery.repair import Leaving, Repairer
from bookie.autorecovery.tasks import Guard, TaskStore
from bookie.autorecovery.worker import ReplicationWorker
from bookie.client.client import LedgerClient
from bookie.config import AutoRecoveryConfig, ClientConfig
from bookie.errors import BookieError
from bookie.ledger.types import BookieId
from bookie.lifecycle.coordinator import DrainCoordinator
from bookie.lifecycle.operations import NO_WORKERS
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.interfaces import Clock, Rng, Tls
from bookie.server.metrics import Figure

_log = logging.getLogger(__name__)
_PAUSE_S = 1.0
Beside = Callable[[Guard], Coroutine[Any, Any, None]]
MEANINGS = {
    "auditor_NUM_UNDER_REPLICATED_LEDGERS": "ledgers published as under-replicated since the start",
    "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED": "tasks done since the start",
    "replication_worker_NUM_ENTRIES_WRITTEN": "entries copied since the start",
    "replication_worker_NUM_BYTES_WRITTEN": "bytes of packets copied since the start",
    "bookie_autorecovery_is_auditor": "1: this process is the auditor",
    "bookie_autorecovery_audits": "looks for ledgers of lost bookies since the start",
    "bookie_autorecovery_audited_ledgers": "ledgers that the last look or check went through",
    "bookie_autorecovery_unreadable_ledgers": "ledgers that it could not judge",
    "bookie_autorecovery_misplaced_segments": "segments with a write set in one rack",
    "bookie_autorecovery_failed_repairs": "repairs that failed since the start",
    "bookie_autorecovery_losses": "repairs that found an entry that no bookie has",
    "bookie_autorecovery_workers": "registered replication workers, as this auditor saw",
}
"""What figures() returns; the first names are Apache BookKeeper's."""


class AutoRecovery:
    """Made by start(); the owner awaits close() before it closes the store."""

    def __init__(
        self,
        client: LedgerClient,
        tasks: TaskStore,
        auditor: Auditor,
        elector: Elector,
        worker: ReplicationWorker,
    ) -> None:
        self._client = client
        self.tasks = tasks
        self.auditor = auditor
        self.elector = elector
        self.worker = worker
        self._running: list[asyncio.Task[None]] = []

    @staticmethod
    async def start(
        store: VersionedStore,
        root: str,
        name: str,
        *,
        clock: Clock,
        rng: Rng,
        config: AutoRecoveryConfig,
        client_config: ClientConfig | None = None,
        tls: Tls | None = None,
        local: BookieId | None = None,
        leaving: Leaving | None = None,
        beside: Beside | None = None,
    ) -> "AutoRecovery":
        """Return what is at work. `name` stands in votes, locks and statuses.

        local: the bookie of this process. leaving: which bookies must be left, asked before each
        decision; None: those that drain. beside: what the auditor does beside its work, until it is
        cancelled. Errors: MetadataStoreError, CorruptFileError (tasks of a format not known).
        """
        tasks = TaskStore(store, root)
        await tasks.prepare()
        client = await LedgerClient.connect(
            store, rng=rng, clock=clock, config=client_config, root=root, tls=tls
        )
        states = LifecycleStore(store, root)
        leaving = states.leaving if leaving is None else leaving
        repairer = Repairer(
            client, clock, config, local=local, leaving=leaving, spared=states.spared
        )
        auditor = Auditor(client, tasks, clock, config, leaving, states.spared)

        async def lead(guard: Guard) -> None:
            """Audit, and coordinate drains beside it."""
            drains = DrainCoordinator(
                store, root, tasks, guard, rng, clock,
                open_ledger_wait_s=config.open_ledger_grace_s,
            )  # fmt: skip
            loop = asyncio.get_running_loop()
            others = [loop.create_task(_coordinate(drains, tasks, auditor, config.poll_interval_s))]
            if beside is not None:
                others.append(loop.create_task(beside(guard)))
            try:
                await auditor.lead(guard)
            finally:
                for other in others:
                    other.cancel()
                await asyncio.gather(*others, return_exceptions=True)

        elector = Elector(store, tasks, name, lead)
        worker = ReplicationWorker(tasks, repairer, name, clock, rng, config)
        made = AutoRecovery(client, tasks, auditor, elector, worker)
        create_task = asyncio.get_running_loop().create_task
        if config.is_auditor:
            made._running.append(create_task(_keep(elector.run, "auditor")))
        if config.is_worker:
            made._running.append(create_task(_keep(worker.run, "replication worker")))
        return made

    def figures(self) -> list[Figure]:
        """Return what is counted, for the metrics of the process."""
        auditor, worker = self.auditor.figures, self.worker.figures
        values = (
            auditor.published_count,
            worker.replicated_ledger_count,
            worker.entry_count,
            worker.byte_count,
            self.elector.is_leading,
            auditor.audit_count,
            auditor.ledger_count,
            auditor.unreadable_count,
            auditor.misplaced_count,
            worker.failed_repair_count,
            worker.lost_ledger_count,
            auditor.worker_count,
        )
        return [
            Figure(name, meaning, float(value))
            for (name, meaning), value in zip(MEANINGS.items(), values, strict=True)
        ]

    async def close(self) -> None:
        """Stop, give locks back, close the client; idempotent."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.worker.close()
        await self._client.close()


async def _keep(run: Callable[[], Awaitable[None]], what: str) -> None:
    """Run again after each error of the ledger store."""
    while True:
        try:
            await run()
        except BookieError as error:
            _log.warning("the %s begins anew after: %s", what, error)
        await asyncio.sleep(_PAUSE_S)


async def _coordinate(
    drains: DrainCoordinator, tasks: TaskStore, auditor: Auditor, interval_s: float
) -> None:
    """Look at drains and workers again and again; a deposed auditor's guard refuses its writes."""
    looks_without_worker = 0
    while True:
        try:
            auditor.figures.worker_count = len(await tasks.workers())
            looks_without_worker = 0 if auditor.figures.worker_count else looks_without_worker + 1
            if looks_without_worker == 2:  # those that start with the auditor have registered then
                _log.warning("%s", NO_WORKERS)
            await drains.round()
        except BookieError as error:
            _log.warning("a look at the drains ended early: %s", error)
        await asyncio.sleep(interval_s)
