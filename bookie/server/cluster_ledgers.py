"""ClusterLedgers: the ledgers of the one cluster that a bookie's cookie names.

A metadata store that lost its data, was restored empty or was formatted anew under a running bookie
knows none of its ledgers. That is no reason to remove what may be all that is left of them.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from bookie.errors import (
    MetadataFormatError,
    MetadataStoreError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.types import BookieId
from bookie.metadata import task_locks
from bookie.metadata.cluster import read_instance_id, read_layout
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledger_paths import task_lock_path
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.patience import PATIENCE_S, ask
from bookie.server.storage.collector import Holding

_log = logging.getLogger(__name__)


class ClusterLedgers:
    """A LedgerList that fails when the store no longer holds the cluster.

    `instance_id`: what the cluster said when the bookie started; None when it has none.
    """

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        ledgers: LedgerManager,
        bookie_id: BookieId,
        instance_id: str | None,
    ) -> None:
        self._store = store
        self._root = root
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._instance_id = instance_id
        self._passes = 0
        self._locks: dict[tuple[str, bytes], None] = {}
        """Path and content of the task locks that are ours, or may be."""

    async def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers; MetadataStoreError or IllegalOperationError in the end.

        A pass begins with this: locks that an earlier one could not give back go first.
        """
        for lock in list(self._locks):
            await self._give_back(lock)
        async for ledger_id in self._ledgers.ledger_ids():
            yield ledger_id
        # After the list, in the same session: whatever took ledgers out of it is seen here, too.
        await self._check()

    async def read(self, ledger_id: int) -> Holding:
        """NoSuchLedgerMetadataError, MetadataFormatError, MetadataStoreError."""
        found, _ = await self._ledgers.read(ledger_id)
        is_member = any(self._bookie_id in segment.ensemble for segment in found.segments)
        return Holding(found.is_closed, is_member)

    async def named_ledger_ids(self) -> frozenset[int]:
        """Return the ledgers of which metadata, as it is now, gives this bookie a part, or may."""
        named: list[int] = []
        async for ledger_id in self.ledger_ids():
            try:
                is_member = (await self.read(ledger_id)).is_member
            except NoSuchLedgerMetadataError:
                continue
            except MetadataFormatError as error:
                _log.warning("%s: it may name this bookie", error)
                is_member = True
            if is_member:
                named.append(ledger_id)
        return frozenset(named)

    async def sync(self) -> None:
        """Make sure that what is read from here on is not older than this call."""
        await ask(self._store, PATIENCE_S, lambda: self._store.sync(self._root))

    async def fresh_id(self) -> int:
        """Return an id that no ledger has had; it is used up."""
        return await self._ledgers.fresh_id()

    @asynccontextmanager
    async def task_lock(self, ledger_id: int) -> AsyncGenerator[bool]:
        """Hold the lock of BookKeeper's replication workers; False: one of them has it."""
        path = task_lock_path(self._root, ledger_id)
        # Of this pass alone, and not the name of a worker that shares this session.
        data = f'bookieId: "{self._bookie_id} collects {self._passes}"\n'.encode()
        self._passes += 1
        lock = path, data
        self._locks[lock] = None  # before the answer: where that is lost the lock may be there
        try:
            yield await task_locks.take(self._store, path, data, PATIENCE_S)
        finally:
            await self._give_back(lock)

    async def _give_back(self, lock: tuple[str, bytes]) -> None:
        await task_locks.give_back(self._store, *lock, PATIENCE_S)
        self._locks.pop(lock, None)

    async def _check(self) -> None:
        found = await read_instance_id(self._store, self._root)
        if found != self._instance_id:
            raise MetadataStoreError(
                f"{self._root}: expected the cluster {self._instance_id}, found {found}; nothing "
                f"is collected: restore the metadata, or stop and format this bookie"
            )
        if found is None:  # formatted by old tools, or gone
            await read_layout(self._store, self._root)
