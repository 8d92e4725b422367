"""What a bookie owes by its ledgers' metadata, and the other copies of its entries.

The other half of the bookie's scrub (server/storage/scrubber.py), which knows neither metadata's
format nor the wire of a client.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

from bookie.autorecovery.checking import digest_of, setter
from bookie.autorecovery.spans import entries_at, spans_of
from bookie.client.client import LedgerClient
from bookie.client.interfaces import ReadReply
from bookie.errors import IllegalOperationError
from bookie.ledger.codec import EntryDigest, master_key
from bookie.ledger.distribution import write_set
from bookie.ledger.entry_read import EntryRead, Outcome
from bookie.ledger.statuses import NEGATIVES
from bookie.ledger.types import BookieId, LedgerMetadata, Status
from bookie.server.storage.bad_entries import Fate
from bookie.server.storage.scrubber import Duty, Fetched

_ANSWERS = frozenset({*NEGATIVES, Status.OK, Status.IO_ERROR})
"""Of a bookie that looked: it denies the entry, or has it and cannot read it."""


class LedgerReplicas:
    """Duties of one bookie, over a client of its cluster. On the client's loop."""

    def __init__(self, client: LedgerClient, bookie_id: BookieId) -> None:
        self._services = client.services
        self._bookie_id = bookie_id

    def ledger_ids(self) -> AsyncIterator[int]:
        return self._services.ledgers.ledger_ids()

    async def read(self, ledger_id: int) -> Duty:
        await self._services.bookies.catch_up()  # a server that lags names members of before
        metadata, _ = await self._services.ledgers.read(ledger_id)
        try:
            digest = digest_of(metadata)
        except IllegalOperationError:  # of an old format, without the password
            digest = None
        spans = spans_of(metadata)
        last = spans[-1].last if spans else -1

        def required() -> Iterator[int]:
            for span in spans:
                if self._bookie_id in span.ensemble:
                    yield from entries_at(metadata, span, span.ensemble.index(self._bookie_id))

        def is_mine(entry_id: int) -> bool:
            is_end = metadata.is_closed and entry_id > last
            return not is_end and self._bookie_id in _replicas(metadata, entry_id)

        async def fetch(entry_id: int) -> Fetched:
            if digest is None:
                reason = "its metadata is of an old format, without what verifies a copy"
                return Fetched(None, reason=reason)
            return await self._fetch(metadata, digest, entry_id)

        return Duty(
            ledger_id=ledger_id,
            master_key=master_key(metadata.password or b""),
            digest=digest,
            required=required,
            is_mine=is_mine,
            is_settled=lambda entry_id: entry_id <= last,
            fetch=fetch,
        )

    async def _fetch(self, metadata: LedgerMetadata, digest: EntryDigest, entry_id: int) -> Fetched:
        """Ask the other bookies of the write set, one after another, the healthy ones first."""
        services, ledger_id = self._services, metadata.ledger_id
        others = [b for b in _replicas(metadata, entry_id) if b != self._bookie_id]
        if not others:
            return Fetched(None, Fate.LOST, "no other bookie was to have it")
        others.sort(key=services.health.rank)
        read = EntryRead(entry_id, tuple(others), len(others))
        is_answered = True
        while (bookie := read.ask()) is not None:
            reply = await self._read(bookie, ledger_id, entry_id)
            is_answered = is_answered and reply.status in _ANSWERS
            if not read.on_reply(bookie, reply.status, reply.body, digest, ledger_id):
                services.report_damage(ledger_id, entry_id, bookie)
            if read.is_decided:
                break
        if read.outcome is Outcome.FOUND:
            return Fetched(bytes(read.packet))
        fate = Fate.UNREADABLE if is_answered else Fate.UNMENDED
        if read.outcome is Outcome.ABSENT:
            fate = Fate.LOST
        return Fetched(None, fate, str(read.error(ledger_id)))

    async def _read(self, bookie: BookieId, ledger_id: int, entry_id: int) -> ReadReply:
        answered: asyncio.Future[ReadReply] = asyncio.get_running_loop().create_future()
        self._services.channels.read(bookie, ledger_id, entry_id, setter(answered))
        return await answered


def _replicas(metadata: LedgerMetadata, entry_id: int) -> tuple[BookieId, ...]:
    """Return the write set of an entry."""
    ensemble = metadata.segment_of(entry_id).ensemble
    indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
    return tuple(ensemble[index] for index in indexes)
