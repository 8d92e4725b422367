"""LedgerChain: the ledgers that are the log of a tablespace, for the node that has claimed them.

    chain = LedgerChain(client, listing, tablespace=uuid, password=b"secret")
    await chain.claim(epoch)               # fences whichever node wrote before
    async for ledger_id, entry_id, payload in chain.entries(after): ...
    await chain.begin()                    # a new ledger, listed, with its header durable
    chain.send(payload, on_added)
    last = await chain.end()               # what CLOSED says, whichever client wrote it

The rules are those of docs/formats/ledgers_info.md. One asyncio loop; begin(), end() and claim()
one at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from bookie.client.client import LedgerClient
from bookie.client.record_frames import join, split
from bookie.client.writer import LedgerWriter
from bookie.errors import BookieError, ClientClosedError, NoSuchLedgerMetadataError
from herdpy.cluster.continuity import (
    End,
    beyond_end,
    check_beginning,
    check_header,
    end_before_first,
    missing,
)
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.observability.figures import LogFigures
from herdpy.errors import CorruptionError
from herdpy.log.ledger_log import OnAdded
from herdpy.log.record import NOOP, BeginLedger, encode
from herdpy.model.lsn import Lsn

_READ_AT_ONCE = 64
"""Metadata of so many ledgers are asked for together: a log that keeps all has ever more."""


@dataclass(frozen=True, slots=True)
class Quorums:
    """On how many bookies a ledger lies, each entry, and how many of those acknowledge it.

    While fewer bookies than `ensemble` take writes a ledger lies on those that do, if they are
    `ack` at least.
    """

    ensemble: int = 3
    write: int = 3
    ack: int = 2


class LedgerChain:
    """See the module. `ends` has the last entry of each ledger that is CLOSED, by id."""

    def __init__(
        self,
        client: LedgerClient,
        listing: LedgerListing,
        *,
        tablespace: bytes,
        password: bytes = b"",
        quorums: Quorums | None = None,
        figures: LogFigures | None = None,
    ) -> None:
        self._client = client
        self._listing = listing
        self._tablespace = tablespace
        self._password = password
        self._quorums = quorums or Quorums()
        self._figures = figures or LogFigures()
        self._has_begun = False
        self._epoch = 0
        self._writer: LedgerWriter | None = None
        self._refusal: BookieError | None = None
        """Of an entry of the ledger that is written: those behind it would get its number."""
        self._changing = asyncio.Lock()
        """Held by claim(), begin() and end(), to the end of what a cancelled one cleans up."""
        self.ends: dict[int, int] = {}

    @property
    def ledgers(self) -> tuple[int, ...]:
        """The ids of all listed ledgers, ascending, as last read."""
        return self._listing.info.ledgers

    # --- what is there ---------------------------------------------------------------------------

    async def claim(self, epoch: int) -> None:
        """Claim the list and close every ledger on it, where its log ends.

        From here on no older epoch lists or drops one. ClaimLostError: an epoch as new has done so.
        """
        async with self._changing:
            await self._listing.claim(epoch)
            self._epoch = epoch
            ledgers = self.ledgers
            for first in range(0, len(ledgers), _READ_AT_ONCE):
                some = ledgers[first : first + _READ_AT_ONCE]
                known = await asyncio.gather(*map(self._closed_end, some))
                for ledger_id, last in zip(some, known, strict=True):
                    self.ends[ledger_id] = await self._recover(ledger_id) if last is None else last

    async def _closed_end(self, ledger_id: int) -> int | None:
        """Return the last entry of a ledger, None: it is not CLOSED."""
        try:
            metadata = await self._client.metadata(ledger_id)
        except NoSuchLedgerMetadataError:
            raise missing(self._listing.path, ledger_id) from None
        return metadata.last_entry_id if metadata.is_closed else None

    async def _recover(self, ledger_id: int) -> int:
        last = await self._closed_end(ledger_id)
        if last is not None:
            return last
        try:
            metadata = await self._client.recover(ledger_id, self._password)
        except NoSuchLedgerMetadataError:
            raise missing(self._listing.path, ledger_id) from None
        self._figures.recovered += 1
        return metadata.last_entry_id

    async def entries(self, after: Lsn) -> AsyncIterator[tuple[int, int, list[bytes]]]:
        """Yield (ledger, entry, records) of each entry at or behind a position, without headers.

        The ledgers are those that were CLOSED by claim(). CorruptionError: one is gone, or does not
        go on where the one before it ends.
        """
        info = self._listing.info
        check_beginning(info, self._listing.path, after)
        if after.ledger_id >= 0:
            self._check_end(after)
        before = end_before_first(info, after)
        for ledger_id in self.ledgers:
            last = self.ends[ledger_id]
            if ledger_id >= after.ledger_id:
                async for found in self._entries_of(ledger_id, last, before, after):
                    yield found
            before = (ledger_id, last)

    def _check_end(self, after: Lsn) -> None:
        """Raise CorruptionError when what a checkpoint has is not in the log, or was never."""
        ledgers = self.ledgers
        is_dropped = bool(ledgers) and after.ledger_id < ledgers[0]
        if is_dropped or after.entry_id <= self.ends.get(after.ledger_id, -1):
            return
        last = ledgers[-1] if ledgers else -1
        ledger_id = after.ledger_id if after.ledger_id in self.ends else last
        raise beyond_end(self._listing.path, after, (ledger_id, self.ends.get(ledger_id, -1)))

    async def _entries_of(
        self, ledger_id: int, last: int, before: End | None, after: Lsn
    ) -> AsyncIterator[tuple[int, int, list[bytes]]]:
        if last < 0:
            raise CorruptionError(
                f"ledger {ledger_id} is listed and has no entry: expected at least its header"
            )
        try:
            reader = await self._client.open(ledger_id, self._password)
        except NoSuchLedgerMetadataError:
            raise missing(self._listing.path, ledger_id) from None
        try:
            (header,) = await reader.read(0, 0)
            check_header(ledger_id, split(header.payload), before)
            first = after.entry_id if ledger_id == after.ledger_id else 1
            if max(first, 1) <= last:
                async for entry in reader.entries(max(first, 1), last):
                    yield ledger_id, entry.entry_id, split(entry.payload)
        finally:
            await reader.close()

    # --- writing ---------------------------------------------------------------------------------

    async def begin(self) -> int:
        """Make the next ledger, list it, and return its id; its entry 0 is its header.

        The one before it was ended. ClaimLostError: another epoch has claimed the list. Any error
        leaves the list as it was, but for one whose answer the store never gave.
        """
        async with self._changing:
            return await self._begin()

    async def _begin(self) -> int:
        info, width = self._listing.info, self._width()
        previous = info.ledgers[-1] if info.ledgers else -1
        if info.ledgers and previous not in self.ends:  # listed by a begin() that was cut short
            self.ends[previous] = await self._recover(previous)
        header = BeginLedger(self._epoch, previous, self.ends.get(previous, -1))
        writer = await self._create(width, self._epoch)
        ledger_id, is_listing = writer.ledger_id, False
        try:
            await writer.add(join([encode(header)]))
            is_listing = True
            await self._listing.add(ledger_id)
        except BaseException:
            await writer.abandon()
            with suppress(BookieError):
                if not is_listing or not await self._listing.may_be_listed(ledger_id, self._epoch):
                    await self._client.delete(ledger_id)
            raise
        self._writer, self._refusal = writer, None
        self._figures.rolls += self._has_begun
        self._has_begun = True
        return ledger_id

    async def _create(self, width: int, epoch: int) -> LedgerWriter:
        return await self._client.create_ledger(
            width,
            min(self._quorums.write, width),
            self._quorums.ack,
            password=self._password,
            custom={"tablespace": self._tablespace, "epoch": str(epoch).encode()},
        )

    async def probe(self, epoch: int, timeout_s: float) -> None:
        """Find out whether this node could write the log: write a ledger that is deleted again.

        Nothing is claimed. epoch: of the node that leads: an orphan of a newer one is not left.
        BookieError, TimeoutError: it could not in that time.
        """
        async with asyncio.timeout(timeout_s):
            writer = await self._create(self._width(), epoch)
            try:
                await writer.add(NOOP)
            finally:
                await writer.abandon()
                with suppress(BookieError):
                    await self._client.delete(writer.ledger_id)

    def _width(self) -> int:
        """Return on how many bookies the next ledger lies: on few rather than on none."""
        wanted, live = self._quorums.ensemble, len(self._client.bookies.writable)
        return max(self._quorums.ack, min(wanted, live))

    @property
    def is_narrow(self) -> bool:
        """The ledger that is written lies on fewer bookies than wanted, and there are enough now.

        It is to be ended: the next one has them all.
        """
        writer = self._writer
        return writer is not None and writer.metadata.ensemble_size < self._width()

    @property
    def is_missing(self) -> bool:
        """A bookie of the ledger that is written does not answer."""
        writer = self._writer
        return writer is not None and bool(writer.missing_bookies)

    def send(self, payload: bytes, on_added: OnAdded) -> None:
        """Add an entry; on_added is called once, in the order of the calls."""
        writer, refusal = self._writer, self._refusal
        if writer is None:
            refusal = ClientClosedError("the ledger was let go of")
        elif refusal is None:
            try:
                writer.add_nowait(payload, on_added)
            except BookieError as error:
                refusal = self._refusal = error
        if refusal is not None:
            on_added(-1, refusal)

    async def end(self) -> int:
        """End the ledger that is written, and return its last entry.

        That is what its CLOSED metadata say, whichever client wrote them: what is behind is surely
        not in the log. Until it returns nothing is known of entries that were not added.
        """
        async with self._changing:
            writer, ledger_id = self._writer, self.ledgers[-1]
            if writer is not None:
                with suppress(BookieError):  # then it is recovered, as by any other client
                    await writer.close()
                self._writer = None
            last = self.ends[ledger_id] = await self._recover(ledger_id)
            return last

    async def abandon(self) -> None:
        """Let go of the ledger that is written, without ending it; repeatable."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.abandon()
