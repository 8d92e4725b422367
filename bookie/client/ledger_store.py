"""Questions of a writer to the metadata store, each with one answer that its machine can use.

A write that was refused, or whose answer was lost, is decided by what is there now (ADR 0009):
the answer is that metadata with its version, never an older one than is known to exist.
"""

import asyncio
from typing import NamedTuple, Protocol

from bookie.errors import BookieError, MetadataVersionError, Retry
from bookie.ledger.types import LedgerId, LedgerMetadata

PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
STALE_READINGS_MAX = 20
"""Half a minute of readings that are older than what is known; then the store is taken for ill."""


class LedgerStore(Protocol):
    """What is needed of a LedgerManager."""

    async def read(self, ledger_id: LedgerId) -> tuple[LedgerMetadata, int]: ...

    async def write(self, metadata: LedgerMetadata, version: int) -> int:
        """Compare-and-set; MetadataVersionError when the version is another."""
        ...


class Written(NamedTuple):
    """The write is in the store at this version."""

    version: int


class Found(NamedTuple):
    """This is in the store."""

    metadata: LedgerMetadata
    version: int


Answer = Written | Found | BookieError


async def write(store: LedgerStore, metadata: LedgerMetadata, version: int) -> Answer:
    """Compare-and-set at `version`, or find out what is there; an error: nothing can be said."""
    try:
        return Written(await store.write(metadata, version))
    except MetadataVersionError as error:
        return await _find(store, metadata.ledger_id, version + 1, error)
    except BookieError as error:
        if error.retry is Retry.NEVER:
            return error
        return await _find(store, metadata.ledger_id, version, error)


async def read(store: LedgerStore, ledger_id: LedgerId) -> Answer:
    try:
        return Found(*await store.read(ledger_id))
    except BookieError as error:
        return error


async def _find(store: LedgerStore, ledger_id: LedgerId, oldest: int, error: BookieError) -> Answer:
    """Read until the version is `oldest` or newer; `error` is the answer when that stays away."""
    pause = PAUSE_S
    for _ in range(STALE_READINGS_MAX):
        answer = await read(store, ledger_id)
        if not isinstance(answer, Found) or answer.version >= oldest:
            return answer
        await asyncio.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_S)
    return error
