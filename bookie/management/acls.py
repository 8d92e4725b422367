"""What registered bookies say of their logins in ZooKeeper, before a cluster's ACLs are set."""

from typing import NamedTuple

from bookie.ledger.types import BookieId
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.interfaces import VersionedStore


class Readiness(NamedTuple):
    """What registered bookies say of their logins."""

    locked_out: list[BookieId]
    """They say of none of the store's logins: with secured nodes they may lose access."""
    open_makers: list[BookieId]
    """They log in, and make open nodes."""
    secured_makers: list[BookieId]


async def ask_readiness(store: VersionedStore, root: str) -> Readiness:
    """Return what the registered bookies publish; Apache's say nothing of logins."""
    ours = {identity.label() for identity in store.access.identities}
    directory = BookieDirectory(store, root)
    await directory.start()
    try:
        found = Readiness([], [], [])
        for bookie_id in sorted(directory.registered):
            info = directory.info_of(bookie_id)
            is_known = info is not None and bool(info.logins & ours)
            if not is_known:
                found.locked_out.append(bookie_id)
            if info is not None and info.makes_secured_nodes:
                found.secured_makers.append(bookie_id)
            elif is_known:
                found.open_makers.append(bookie_id)
        return found
    finally:
        await directory.close()
