"""The faults that the simulation of AutoRecovery has to find, each by a checker that it names."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bookie.autorecovery import election
from bookie.autorecovery.backoff import GracePeriods
from bookie.autorecovery.checking import Finding
from bookie.autorecovery.formats import lock_bytes
from bookie.autorecovery.repair import Outcome, Repairer, Result
from bookie.autorecovery.spans import replaced
from bookie.autorecovery.tasks import TaskStore
from bookie.autorecovery.worker import ReplicationWorker
from bookie.errors import NodeExistsError
from bookie.ledger import metadata_codec
from bookie.ledger.types import LedgerMetadata
from bookie.metadata.interfaces import ANY_VERSION
from bookie.metadata.ledger_paths import Layout, ledger_path
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
        self: Repairer, metadata: LedgerMetadata, version: int, finding: Finding, target: Any
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
}
