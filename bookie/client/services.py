"""What the runners of one client share, and the compare-and-set loop on a ledger's metadata."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bookie.client.health import BookieHealth
from bookie.client.interfaces import Channels
from bookie.config import ClientConfig
from bookie.errors import MetadataVersionError
from bookie.ledger.placement import Placement
from bookie.ledger.types import BookieId, LedgerMetadata
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.interfaces import Check
from bookie.metadata.ledgers import LedgerManager

_LOG = logging.getLogger("bookie.client")
_CONFLICT_PAUSE_S = 0.01
_CONFLICT_PAUSE_MAX_S = 1.0

OnDamage = Callable[[int, int, BookieId], None]
"""Called with ledger id, entry id (-1: the last one of the bookie) and bookie."""


@dataclass(slots=True)
class Services:
    """One client's parts; they live and end with it."""

    channels: Channels
    ledgers: LedgerManager
    bookies: BookieDirectory
    placement: Placement
    health: BookieHealth
    config: ClientConfig
    on_damage: OnDamage | None = None
    damage_count: int = 0

    def report_damage(self, ledger_id: int, entry_id: int, bookie: BookieId) -> None:
        """Tell that a replica is damaged: another one serves, and the operator should know."""
        self.damage_count += 1
        _LOG.warning(
            "ledger %d: the replica of entry %d on %s is damaged", ledger_id, entry_id, bookie
        )
        if self.on_damage is not None:
            tell(self.on_damage, ledger_id, entry_id, bookie)


def tell(callback: Callable[..., None], *news: Any) -> None:
    """Call a caller's callback; what it raises is logged, and stops nothing that is under way."""
    try:
        callback(*news)
    except Exception:  # noqa: BLE001 - whatever it is, recovery and reads go on
        _LOG.exception("a callback of the ledger client raised")


async def update_metadata(
    ledgers: LedgerManager,
    found: LedgerMetadata,
    version: int,
    change: Callable[[LedgerMetadata], LedgerMetadata | None],
    guards: Sequence[Check] = (),
) -> tuple[LedgerMetadata, int]:
    """Write change(found) over what was found; after a conflict read again and decide again.

    change returns None when nothing is to be written: then what was found stands. Returns what
    stands and its version. Errors: NoSuchLedgerMetadataError, MetadataStoreError, those of guards.
    """
    pause_s = _CONFLICT_PAUSE_S
    while True:
        wanted = change(found)
        if wanted is None:
            return found, version
        try:
            return wanted, await ledgers.write(wanted, version, guards)
        except MetadataVersionError:
            old_version = version
            found, version = await ledgers.read(found.ledger_id)
            if version == old_version:
                # The server that answered is behind.
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _CONFLICT_PAUSE_MAX_S)
