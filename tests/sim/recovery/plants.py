"""The faults that the simulation of AutoRecovery has to find, each by a checker that it names."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bookie.autorecovery import election, manual
from bookie.autorecovery.backoff import GracePeriods
from bookie.autorecovery.checking import Finding
from bookie.autorecovery.formats import lock_bytes
from bookie.autorecovery.repair import Outcome, Repairer, Result
from bookie.autorecovery.replicas import LedgerReplicas, _replicas
from bookie.autorecovery.spans import replaced
from bookie.autorecovery.tasks import TaskStore
from bookie.autorecovery.worker import ReplicationWorker
from bookie.client.recovery import RecoveryRunner
from bookie.errors import CorruptFileError, NodeExistsError
from bookie.ledger import metadata_codec
from bookie.ledger.types import BookieId, LedgerMetadata, Status
from bookie.lifecycle import operations as lifecycle_operations
from bookie.lifecycle.coordinator import DrainCoordinator
from bookie.lifecycle.drains import DrainMachine, Facts
from bookie.lifecycle.operations import Operations
from bookie.lifecycle.scan import Scan
from bookie.metadata.interfaces import ANY_VERSION
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.memory import MemoryStore
from bookie.server.lifecycle_watch import LifecycleWatch
from bookie.server.storage import collector, ledger_storage
from bookie.server.storage.ledger_storage import LedgerStorage
from bookie.server.storage.scrubber import Fetched
from tests.fixtures.plants import Plant
from tests.sim.ledger.world import ROOT


def _task_deleted_early(right: Any) -> Any:
    async def settle(
        self: ReplicationWorker, ledger_id: int, version: int, outcome: Outcome
    ) -> Any:
        return await right(self, ledger_id, version, replace(outcome, result=Result.WHOLE))

    return settle


def _lock_not_ephemeral(right: Any) -> Any:
    async def lock(self: TaskStore, ledger_id: int, owner: str) -> bool:
        path = f"{self._locks}/urL{ledger_id:010d}"
        try:
            await self._store.create(path, lock_bytes(owner))
        except NodeExistsError:
            return False
        return True

    return lock


def _grace_skipped(right: Any) -> Any:
    return lambda self, now_s: right(self, float("inf"))


async def _set(self: Repairer, metadata: LedgerMetadata) -> None:
    """Write metadata over whatever is there."""
    store: Any = self._services.ledgers._store
    path = ledger_path(ROOT, Layout.HIERARCHICAL, metadata.ledger_id)
    await store.write(path, metadata_codec.encode(metadata), ANY_VERSION)


def _metadata_by_plain_set(right: Any) -> Any:
    async def name(
        self: Repairer,
        metadata: LedgerMetadata,
        version: int,
        finding: Finding,
        target: Any,
        guard: Any,
        lock: Any,
    ) -> Any:
        wanted = replaced(metadata, finding.span, finding.bookie, target)
        if wanted is not None:
            await _set(self, wanted)
        return wanted or metadata, version + 1

    return name


def _copy_only_to_the_lac(right: Any) -> Any:
    def missing(self: Finding, metadata: LedgerMetadata, *, is_in_place: bool) -> Iterator[int]:
        entry_ids = right(self, metadata, is_in_place=is_in_place)
        return (e for e in entry_ids if e < metadata.last_entry_id or not metadata.is_closed)

    return missing


def _fence_skipped(right: Any) -> Any:
    async def recover(self: Repairer, metadata: LedgerMetadata) -> None:
        bookies = self._services.bookies
        ensemble = metadata.last_segment.ensemble
        for index, member in enumerate(ensemble):
            if member not in (*bookies.writable, *bookies.read_only):
                ensemble = self._services.placement.replace((index,), ensemble, bookies.writable)
        first = metadata.last_segment.first_entry_id
        await _set(self, metadata.with_ensemble(first, ensemble))

    return recover


def _read_only_target(right: Any) -> Any:
    return lambda self: (*right(self), *self._services.bookies.read_only)


def _drained_by_missing_task(right: Any) -> Any:
    def decide(self: DrainMachine, facts: Facts) -> Any:
        """Take a ledger of which the task is gone for one that is replicated."""
        seen = vars(self).setdefault("seen_tasks", set())
        seen.update(facts.tasks)
        named = {
            bookie_id: tuple(n for n in ledgers if n in facts.tasks or n not in seen)
            for bookie_id, ledgers in facts.named.items()
        }
        return right(self, facts._replace(named=named))

    return decide


def _scan_before_read_only(right: Any) -> Any:
    """Let a scan count that was begun while the bookie took entries still."""
    return lambda self, facts: right(self, facts._replace(modes={}))


_LAG_S = 1.5
"""As long as a server may be behind that has not lost its leader: longer than two rounds."""


def _scan_without_sync(right: Any) -> Any:
    async def look(self: DrainCoordinator) -> Any:
        """Scan by a session that lags behind, another one than reads the registrations.

        Within one session nothing that was read gets older: a scan by the auditor's own needs no
        sync() to be newer than the registration that was read before.
        """
        store: Any = self._store
        server = store._server
        mine = vars(self)
        if "follower" not in mine:
            follower = mine["follower"] = MemoryStore(server)
            mine["since_s"] = -_LAG_S
            self._ledgers._store = _Unsynced(follower)  # type: ignore[assignment]
        now_s = asyncio.get_running_loop().time()
        if now_s >= mine["since_s"] + _LAG_S:
            mine["since_s"] = now_s
            server.thaw(mine["follower"].session_id)
            server.freeze(mine["follower"].session_id)
        return await right(self)

    return look


class _Unsynced:
    """A store of which sync() does nothing."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def sync(self, path: str) -> None:
        del path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _cookie_gone_while_running(right: Any) -> Any:
    async def read(self: Any) -> bool:
        on_gone, self._on_gone = self._on_gone, lambda: None
        try:
            return bool(await right(self))
        finally:
            self._on_gone, self._is_gone = on_gone, False

    return read


def _collects_while_a_recovery_writes(right: Any) -> Any:
    return lambda holding: holding is not None and not holding.is_member


def _lost_directory_denies(right: Any) -> Any:
    def read(self: LedgerStorage, ledger_id: int, entry_id: int, on_done: Any) -> None:
        def tell(status: Status, packet: Any) -> None:
            on_done(Status.NO_ENTRY if status is Status.IO_ERROR else status, packet)

        right(self, ledger_id, entry_id, tell)

    return read


def _by_hand_without_lock(right: Any) -> Any:
    async def recover(
        tasks: TaskStore, repairer: Repairer, ledger_id: int, owner: str, *, will_fence: bool
    ) -> Outcome:
        return await manual.recover_ledger(repairer, ledger_id, will_fence=will_fence)

    return recover


def _all_loss_accepted(right: Any) -> Any:
    """Take the loss of some ledgers for that of all."""
    return lambda bookie_id, named, accepted: right(bookie_id, () if accepted else named, accepted)


def _unverified_copy(right: Any) -> Any:
    async def fetch(
        self: LedgerReplicas, metadata: LedgerMetadata, digest: Any, entry_id: int
    ) -> Fetched:
        """Take the first packet that another bookie gives."""
        for bookie in _replicas(metadata, entry_id):
            if bookie != self._bookie_id:
                reply = await self._read(bookie, metadata.ledger_id, entry_id)
                if reply.status is Status.OK:
                    return Fetched(bytes(reply.body))
        return Fetched(None, reason="no other bookie has it")

    return fetch


def _damage_denied(right: Any) -> Any:
    def read_entries(*arguments: Any) -> Any:
        try:
            return right(*arguments)
        except CorruptFileError:
            return []

    return read_entries


def _nothing_seen(right: Any) -> Any:
    async def scanned(self: Operations, bookie_id: BookieId) -> Scan:
        return Scan({bookie_id: ()}, {}, 0)

    return scanned


def _named_without_guard(right: Any) -> Any:
    async def name(
        self: Repairer,
        metadata: LedgerMetadata,
        version: int,
        finding: Finding,
        target: Any,
        guard: Any,
        lock: Any,
    ) -> Any:
        return await right(self, metadata, version, finding, target, None, lock)

    return name


def _closed_without_guards(right: Any) -> Any:
    async def guards(self: RecoveryRunner, metadata: LedgerMetadata, close: Any) -> Any:
        return ()

    return guards


def _by_hand_fences(right: Any) -> Any:
    return lambda repairer, ledger_id, *, will_fence: right(repairer, ledger_id, will_fence=True)


_LOST = ("drained", "durability")
PLANTS: dict[str, Plant] = {
    "task deleted early": Plant(ReplicationWorker, "_settle", _task_deleted_early, ("task",)),
    "lock not ephemeral": Plant(TaskStore, "lock", _lock_not_ephemeral, ("liveness",)),
    "grace period skipped": Plant(GracePeriods, "due", _grace_skipped, ("grace",)),
    "metadata by plain set": Plant(
        Repairer, "_name", _metadata_by_plain_set, ("metadata", "durability", "fence", "copy")
    ),
    "copy only to the LAC": Plant(Finding, "missing", _copy_only_to_the_lac, ("copy",)),
    "deposed auditor acts": Plant(election, "vote_guard", lambda _: lambda _: (), ("auditor",)),
    "fence skipped": Plant(Repairer, "_recover", _fence_skipped, ("fence",)),
    "read-only target": Plant(Repairer, "_candidates", _read_only_target, ("target",)),
    "Drained by missing task": Plant(DrainMachine, "decide", _drained_by_missing_task, _LOST),
    "scan before read-only": Plant(DrainMachine, "decide", _scan_before_read_only, _LOST),
    "scan without sync": Plant(DrainCoordinator, "round", _scan_without_sync, _LOST),
    "cookie gone while running": Plant(
        LifecycleWatch, "_read", _cookie_gone_while_running, ("cookie",)
    ),
    "collects while a recovery writes": Plant(
        collector, "_is_unneeded", _collects_while_a_recovery_writes, ("whole", "durability")
    ),
    "lost directory answers NoEntry": Plant(
        LedgerStorage, "read", _lost_directory_denies, ("durability", "agreement", "reading")
    ),
    "recovery by hand without its lock": Plant(
        manual, "_recover_locked", _by_hand_without_lock, ("whole", "durability", "liveness")
    ),
    "loss of ledgers not named": Plant(
        lifecycle_operations, "_expect_none_left", _all_loss_accepted, ("drained",)
    ),
    "forgotten without a scan": Plant(Operations, "scanned", _nothing_seen, ("drained",)),
    "scrub puts an unverified copy": Plant(
        LedgerReplicas, "_fetch", _unverified_copy, ("rot", "whole")
    ),
    "damaged entry is denied": Plant(ledger_storage, "read_entries", _damage_denied, ("rot",)),
    "target named without a look at its state": Plant(
        Repairer, "_name", _named_without_guard, ("drained",)
    ),
    "recovery ends on a bookie that drains": Plant(
        RecoveryRunner, "_guards", _closed_without_guards, ("drained",)
    ),
    "recovery by hand fences though it may not": Plant(
        manual, "recover_ledger", _by_hand_fences, ("grace",)
    ),
}
