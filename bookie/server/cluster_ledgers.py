"""ClusterLedgers: the ledgers of the one cluster that a bookie's cookie names.

A metadata store that lost its data, was restored empty or was formatted anew under a running bookie
knows none of its ledgers. That is no reason to remove what may be all that is left of them.
"""

from collections.abc import AsyncIterator

from bookie.errors import MetadataStoreError
from bookie.metadata.cluster import read_instance_id, read_layout
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledgers import LedgerManager


class ClusterLedgers:
    """A LedgerList that fails when the store no longer holds the cluster.

    `instance_id`: what the cluster said when the bookie started; None when it has none.
    """

    def __init__(
        self, store: VersionedStore, root: str, ledgers: LedgerManager, instance_id: str | None
    ) -> None:
        self._store = store
        self._root = root
        self._ledgers = ledgers
        self._instance_id = instance_id

    async def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers; MetadataStoreError or IllegalOperationError in the end."""
        async for ledger_id in self._ledgers.ledger_ids():
            yield ledger_id
        # After the list, in the same session: whatever took ledgers out of it is seen here, too.
        await self._check()

    async def read(self, ledger_id: int) -> object:
        """Return the metadata; NoSuchLedgerMetadataError, MetadataStoreError."""
        return await self._ledgers.read(ledger_id)

    async def _check(self) -> None:
        found = await read_instance_id(self._store, self._root)
        if found != self._instance_id:
            raise MetadataStoreError(
                f"{self._root}: expected the cluster {self._instance_id}, found {found}; nothing "
                f"is collected: restore the metadata, or stop and format this bookie"
            )
        if found is None:  # formatted by old tools, or gone
            await read_layout(self._store, self._root)
