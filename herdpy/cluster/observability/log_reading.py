"""LogReading: the log of a tablespace as a tool has it, which neither follows nor leads.

    reading = LogReading(client, listing, tablespace=uuid, password=b"secret")
    await reading.ledgers()                # each ledger, as its metadata and its bookies say
    await reading.links()                  # each ledger's header, and what is wrong with it
    async for lsn, record in reading.records(await reading.before(None)): ...

It fences nothing and writes nothing: what is written meanwhile is seen or not. One asyncio loop.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from bookie.client.client import LedgerClient
from bookie.client.reader import LedgerReader
from bookie.client.record_frames import split
from bookie.errors import BookieError, NoSuchLedgerMetadataError, StoreError
from bookie.errors import Retry as BookieRetry
from herdpy.cluster.continuity import NOTHING, End, check_header, missing
from herdpy.cluster.listing import LedgerListing
from herdpy.errors import CorruptionError, Error, ProgrammingError
from herdpy.log.record import BeginLedger
from herdpy.model.lsn import START_LSN, Lsn

MISSING = "missing"
"""The state of a ledger that is listed, and that BookKeeper has not."""
_LEDGERS_SHOWN = 8


class LedgerFacts(NamedTuple):
    """A ledger of the log."""

    id: int
    epoch: int | None
    """Of the leader that made it; None: its metadata do not say."""
    state: str
    """open, in_recovery, closed, or missing."""
    first_entry: int | None
    """0, which is its header; None: it has no entry, or it is not known."""
    last_entry: int | None
    """Of one that is not closed the last that is confirmed; None as of first_entry."""
    byte_count: int | None
    """Of its entries up to there; None: not known, for its bookies do not answer."""
    ensembles: tuple[tuple[int, tuple[str, ...]], ...]
    """From which entry on it lies on which bookies."""
    quorums: tuple[int, int, int]
    """Ensemble, write, ack."""


class Link(NamedTuple):
    """A ledger of the chain, and how it goes on behind the one before."""

    ledger_id: int
    header: BeginLedger | None
    """None: it could not be read, or is none, or does not name the end before it."""
    problem: Error | None
    """None: the chain is whole here."""


class LogReading:
    """See the module."""

    def __init__(
        self, client: LedgerClient, listing: LedgerListing, *, tablespace: str, password: bytes
    ) -> None:
        self._client = client
        self._listing = listing
        self._tablespace = tablespace.encode()
        self._password = password

    async def ledgers(self) -> list[LedgerFacts]:
        """Return the facts of each listed ledger, ascending; bookies that are away are let be.

        BookieError: the metadata store gives no answer; OperationalError 58P01: no such log.
        """
        return [await self._facts(each) for each in (await self._listing.read()).ledgers]

    async def _facts(self, ledger_id: int) -> LedgerFacts:
        try:
            found = await self._client.metadata(ledger_id)
        except NoSuchLedgerMetadataError:
            return LedgerFacts(ledger_id, None, MISSING, None, None, None, (), (0, 0, 0))
        epoch = found.custom.get("epoch", b"")
        last: int | None = found.last_entry_id
        byte_count: int | None = found.length
        if not found.is_closed:
            last, byte_count = await self._confirmed(ledger_id)
        return LedgerFacts(
            id=ledger_id,
            epoch=int(epoch) if epoch.isdigit() else None,
            state=found.state.name.lower(),
            first_entry=None if last is None or last < 0 else 0,
            last_entry=None if last is None or last < 0 else last,
            byte_count=byte_count,
            ensembles=tuple((each.first_entry_id, each.ensemble) for each in found.segments),
            quorums=(found.ensemble_size, found.write_quorum_size, found.ack_quorum_size),
        )

    async def _confirmed(self, ledger_id: int) -> tuple[int | None, int | None]:
        """Return up to where a ledger that is written is confirmed, and its bytes; None: unknown.

        It may have been closed, or deleted, since.
        """
        try:
            async with self._opened(ledger_id) as reader:
                if reader.lac < 0:
                    return -1, 0
                (entry,) = await reader.read(reader.lac, reader.lac)
                return entry.entry_id, entry.length
        except BookieError:
            return None, None

    @asynccontextmanager
    async def _opened(self, ledger_id: int) -> AsyncGenerator[LedgerReader]:
        reader = await self._client.open(ledger_id, self._password, recover=False)
        try:
            yield reader
        finally:
            await reader.close()

    # --- the chain -------------------------------------------------------------------------------

    async def links(self) -> list[Link]:
        """Return each listed ledger with its header, ascending, and what is wrong with it.

        Behind a break it goes on with the end that is there. Errors as ledgers(), and BookieError:
        too few bookies answer, so that nothing is known of the chain.
        """
        info = await self._listing.read()
        before: End | None = NOTHING if info.ledgers[:1] == (info.first,) else None
        found: list[Link] = []
        epoch = 0
        for place, ledger_id in enumerate(info.ledgers):
            is_last = place + 1 == len(info.ledgers)
            link, before = await self._link(ledger_id, before, epoch, is_last=is_last)
            found.append(link)
            if link.header is not None:
                epoch = link.header.epoch
        return found

    async def _link(
        self, ledger_id: int, before: End | None, epoch: int, *, is_last: bool
    ) -> tuple[Link, End | None]:
        """Return a link, and its end; None: it is not known."""
        header: BeginLedger | None = None
        end: End | None = None
        try:
            metadata = await self._client.metadata(ledger_id)
            if metadata.is_closed:
                end = (ledger_id, metadata.last_entry_id)
                if end[1] < 0:
                    raise CorruptionError(
                        f"ledger {ledger_id} is closed and has no entry: expected its header"
                    )
            async with self._opened(ledger_id) as reader:
                # It was on a quorum before the ledger was listed, also where no bookie says so.
                (entry,) = await reader.read_unconfirmed(0, 0)
            header = check_header(ledger_id, split(entry.payload), before)
            self._check_owner(ledger_id, metadata.custom, header, epoch)
            if end is None and not is_last:
                raise CorruptionError(
                    f"ledger {ledger_id} is {metadata.state.name.lower()}, and the log goes on "
                    "behind it: expected it to be closed"
                )
        except NoSuchLedgerMetadataError:
            return Link(ledger_id, None, missing(self._listing.path, ledger_id)), None
        except BookieError as error:
            if error.retry is not BookieRetry.NEVER or isinstance(error, StoreError):
                raise
            return Link(ledger_id, None, CorruptionError(f"ledger {ledger_id}: {error}")), end
        except CorruptionError as error:
            return Link(ledger_id, header, error), end
        return Link(ledger_id, header, None), end

    def _check_owner(
        self, ledger_id: int, custom: dict[str, bytes], header: BeginLedger, epoch: int
    ) -> None:
        """Raise CorruptionError when it is another tablespace's, or of an older epoch."""
        wanted = {"tablespace": self._tablespace, "epoch": str(header.epoch).encode()}
        found = {name: custom.get(name) for name in wanted}
        if found != wanted:
            raise CorruptionError(
                f"ledger {ledger_id}: expected metadata of tablespace {self._tablespace.decode()} "
                f"under epoch {header.epoch}, as its header has it, found {found!r:.160}"
            )
        if header.epoch < epoch:
            raise CorruptionError(
                f"ledger {ledger_id} is of epoch {header.epoch}, and one before it of {epoch}: "
                "epochs only rise"
            )

    # --- records ---------------------------------------------------------------------------------

    async def before(self, wanted: Lsn | None) -> Lsn:
        """Return the position behind which reading begins, so that a record at `wanted` is read.

        None: with the last ledger. ProgrammingError 22023: the log has no such position; else as
        ledgers().
        """
        ledgers = (await self._listing.read()).ledgers
        if wanted is None:
            return Lsn(ledgers[-1], 0, -1) if ledgers else START_LSN
        ledger_id, entry_id, index = wanted
        if ledger_id not in ledgers:
            raise _no_position(wanted, f"the log has ledgers {_shown(ledgers)}")
        try:
            metadata = await self._client.metadata(ledger_id)
        except NoSuchLedgerMetadataError:
            raise missing(self._listing.path, ledger_id) from None
        if metadata.is_closed and entry_id > metadata.last_entry_id:
            raise _no_position(wanted, f"that ledger ends with entry {metadata.last_entry_id}")
        return Lsn(ledger_id, entry_id, index - 1)

    async def records(self, after: Lsn) -> AsyncGenerator[tuple[Lsn, bytes]]:
        """Yield what the log has behind a position of before(), up to what is confirmed now.

        Without headers. CorruptionError: the log is not whole; else as links().
        """
        before: End | None = None  # whichever it is: the first ledger is entered on request
        for ledger_id in (await self._listing.read()).ledgers:
            if ledger_id < after.ledger_id:
                continue
            try:
                async with self._opened(ledger_id) as reader:
                    last = reader.lac
                    is_first = ledger_id == after.ledger_id
                    first = max(after.entry_id, 1) if is_first else 0
                    if first <= last:
                        async for entry in reader.entries(first, last):
                            found = split(entry.payload)
                            if entry.entry_id == 0:
                                check_header(ledger_id, found, before)
                                continue
                            for index, record in enumerate(found):
                                lsn = Lsn(ledger_id, entry.entry_id, index)
                                if lsn > after:
                                    yield lsn, record
            except NoSuchLedgerMetadataError:
                raise missing(self._listing.path, ledger_id) from None
            before = (ledger_id, last)


def _no_position(wanted: Lsn, why: str) -> ProgrammingError:
    return ProgrammingError(
        f"position {wanted}: expected one in the log, and {why}",
        sqlstate="22023",
        hint="`herdpy log ledgers` shows which entries there are",
    )


def _shown(ledgers: tuple[int, ...]) -> str:
    if len(ledgers) <= _LEDGERS_SHOWN:
        return ", ".join(map(str, ledgers)) or "none"
    return f"{ledgers[0]} to {ledgers[-1]}, {len(ledgers)} of them"
