"""The lock of one ledger against replication workers: an ephemeral node (BookKeeper's).

Workers and a bookie's collector may share one session, so a lock is its owner's by both: the
session, and the content, which names the owner.
"""

from bookie.errors import NodeExistsError, NoNodeError
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.patience import BROKEN, Patience, ask

VERSION = 0
"""Of a lock's node: it is written once, by its create."""


async def take(store: VersionedStore, path: str, data: bytes, patience_s: float) -> bool:
    """Make a lock's node; False: another session or another owner has it. MetadataStoreError.

    True as well where the owner that `data` names has it in this session already.
    """
    patience = Patience(store, patience_s)
    while True:
        try:
            await store.create(path, data, is_ephemeral=True, make_parents=True)
            return True
        except NodeExistsError:
            return await owns(store, path, data, patience_s)
        except BROKEN as error:
            await patience.again(error)


async def give_back(store: VersionedStore, path: str, data: bytes, patience_s: float) -> None:
    """Remove a lock's node if it is this owner's, in this session. MetadataStoreError."""
    patience = Patience(store, patience_s)
    while True:
        try:
            if await owns(store, path, data, patience_s):
                await store.delete(path)
            return
        except NoNodeError:
            return
        except BROKEN as error:
            await patience.again(error)


async def owns(store: VersionedStore, path: str, data: bytes, patience_s: float) -> bool:
    """Tell whether the owner that `data` names has the lock in this session. MetadataStoreError."""

    async def question() -> bool:
        await store.sync(path)
        try:
            found, stat = await store.read(path)
        except NoNodeError:
            return False
        return found == data and stat.ephemeral_owner == store.session_id

    return await ask(store, patience_s, question)
