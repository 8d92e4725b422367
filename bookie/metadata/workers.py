"""Which replication workers run: each keeps an ephemeral node while its session lives.

The nodes are ours. Apache BookKeeper's workers keep none: they are seen only by the locks of the
ledgers that they copy at the moment.
"""

from urllib.parse import quote, unquote

from bookie.errors import NoNodeError
from bookie.metadata import task_locks
from bookie.metadata.interfaces import VersionedStore
from bookie.metadata.ledger_paths import WORKERS
from bookie.metadata.paths import join
from bookie.metadata.patience import ask

_FRONT = "W_"


async def register(store: VersionedStore, root: str, name: str, patience_s: float) -> None:
    """Make a worker's node unless there is one; to be repeated, for it goes with the session.

    One of an earlier session of the same name is left until that session has ended.
    """
    path = _path(root, name)
    if await ask(store, patience_s, lambda: store.exists(path)) is None:
        await task_locks.take(store, path, name.encode(), patience_s)


async def unregister(store: VersionedStore, root: str, name: str, patience_s: float) -> None:
    """Remove a worker's node, if it is this session's."""
    await task_locks.give_back(store, _path(root, name), name.encode(), patience_s)


async def registered(store: VersionedStore, root: str, patience_s: float) -> tuple[str, ...]:
    """Return the names of the workers that are registered, sorted. MetadataStoreError."""
    try:
        found = await ask(store, patience_s, lambda: store.children(join(root, WORKERS)))
    except NoNodeError:
        return ()
    return tuple(sorted(unquote(one.removeprefix(_FRONT)) for one in found))


def _path(root: str, name: str) -> str:
    return join(join(root, WORKERS), _FRONT + quote(name, safe=""))
