"""LedgerTail: the log of a tablespace as a node has it that follows.

    tail = LedgerTail(client, store, listing, password=b"secret")
    async for run in tail.runs(after):     # [(Lsn, record), ...], as they are confirmed, for ever
        ...

It fences nothing. A ledger is left only when its metadata are CLOSED and its last entry was handed
out, and the next one is entered at its header, which has to name that end. One long poll is under
way at a time. One asyncio loop.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from bookie.client.client import LedgerClient
from bookie.client.reader import LedgerReader
from bookie.client.record_frames import split
from bookie.errors import BookieError, NoSuchLedgerError, NoSuchLedgerMetadataError
from bookie.errors import Retry as BookieRetry
from bookie.metadata.interfaces import VersionedStore
from herdpy.cluster.continuity import (
    End,
    beyond_end,
    check_beginning,
    check_header,
    end_before_first,
    missing,
)
from herdpy.cluster.ledgers_info import LedgersInfo
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.staleness import Staleness
from herdpy.cluster.takeover.silence import Silence
from herdpy.errors import Error
from herdpy.model.lsn import Lsn

Run = list[tuple[Lsn, bytes]]
_PACE_S = 0.01
"""Between two long polls: with one for each commit of a busy leader followers and bookies took more
of the machine than the commits."""
_RUN_RECORDS = 512
_RUN_BYTES = 1024 * 1024
"""A run has so many records, or bytes of them, and what its last entry has beyond."""
_AGAIN_S = 0.05
_AGAIN_S_MAX = 2.0
_LOOK_S = 0.5
"""How often the end of the log is looked for, to know how old what the copy has is."""
_IDLE_LOOK_S = 6.0
"""How often while no reader asks: each look costs a store two requests, and bookies one each. Less
than what readers allow who say nothing of it (MAX_STALENESS_S)."""
_LIST_S = 1.0
"""How often the list is read again, at least, while the log ends with a CLOSED ledger."""


class LedgerTail:
    """See the module. runs() once at a time; close() ends what it has open."""

    def __init__(
        self,
        client: LedgerClient,
        store: VersionedStore,
        listing: LedgerListing,
        *,
        password: bytes = b"",
        staleness: Staleness | None = None,
        silence: Silence | None = None,
    ) -> None:
        """Both are told what look_for_end() finds, and what was handed out and taken."""
        self._store = store
        self._staleness = staleness
        self._silence = silence
        self._client = client
        self._listing = listing
        self._password = password
        self._changed = asyncio.Event()
        self._watch = store.watch(listing.path, self._changed.set)
        self._reader: LedgerReader | None = None
        self._pause_s = _AGAIN_S
        self._is_last = False  # the ledger that is read is the last one listed
        self.is_level = False
        """All that the log was known to have was handed out."""

    async def runs(self, after: Lsn) -> AsyncGenerator[Run]:
        """Yield what the log has behind a position, in order, in runs; it waits for more.

        Broken connections are waited out. CorruptionError: a ledger is missing, or does not go on
        where the one before it ends, or the log ends before `after`; OperationalError 58P01: the
        tablespace is not there any more.
        """
        info = await self._list()
        check_beginning(info, self._listing.path, after)
        before = end_before_first(info, after)
        done: int | None = None
        last = after
        while True:
            self._changed.clear()
            info = await self._list()
            following = [each for each in info.ledgers if done is None or each > done]
            if done is None:
                following = [each for each in following if each >= after.ledger_id]
                self._check_there(info.ledgers, after)
            self.is_level = not following
            if not following:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LIST_S):
                        await self._changed.wait()
                continue
            done = following[0]
            if done == after.ledger_id:
                before = None  # its header was looked at when the copy entered it
            self._is_last = len(following) == 1
            async with aclosing(self._runs_of(done, before, after)) as runs:
                async for run in runs:
                    yield run
                    last = run[-1][0]
            before = self._end_of(done, max(last, after))

    async def look_for_end(self) -> None:
        """Look for the end of the log again and again, beside runs(), until it is cancelled.

        No look counts that the store, or a quorum of the bookies, did not answer.
        """
        staleness, silence = self._staleness, self._silence
        assert staleness is not None
        listing = LedgerListing(self._store, self._listing.path)  # whose calls are one at a time
        while True:
            sent_s, again_s = staleness.now_s(), _AGAIN_S
            is_wanted = staleness.is_asked or (silence is not None and silence.is_suspicious)
            if not is_wanted and staleness.lag_s() < _IDLE_LOOK_S - _LOOK_S:
                await asyncio.sleep(_LOOK_S)
                continue
            with suppress(BookieError, Error):
                ledgers = (await listing.read()).ledgers
                reader = self._reader
                if not ledgers:
                    self._saw_end(sent_s, (-1, -1))
                    again_s = _LOOK_S
                elif reader is not None and reader.ledger_id == ledgers[-1]:
                    lac = await reader.read_last_confirmed()
                    self._saw_end(sent_s, (ledgers[-1], lac))
                    again_s = _LOOK_S
            await asyncio.sleep(again_s)

    def _saw_end(self, sent_s: float, end: End) -> None:
        assert self._staleness is not None
        self._staleness.saw_end(sent_s, end)
        if self._silence is not None:
            self._silence.looked(sent_s, end)

    def _took(self, ledger_id: int, entry_id: int) -> None:
        if self._staleness is not None:
            self._staleness.took((ledger_id, entry_id))
        if self._silence is not None:
            self._silence.saw((ledger_id, entry_id))

    async def _list(self) -> LedgersInfo:
        """Read the list; a store that is away is waited for."""
        while True:
            try:
                found = await self._listing.read()
            except BookieError as error:
                await self._wait_out(error)
            else:
                self._pause_s = _AGAIN_S
                return found

    async def _wait_out(self, error: BookieError) -> None:
        """Wait before what failed is tried again, ever longer until something succeeds.

        The error is raised when another try would not help.
        """
        if error.retry is BookieRetry.NEVER:
            raise error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _AGAIN_S_MAX)

    def _check_there(self, ledgers: tuple[int, ...], after: Lsn) -> None:
        """Raise CorruptionError when the ledger of a position is none of the log's."""
        if after.ledger_id < 0 or after.ledger_id in ledgers:
            return
        if not ledgers or after.ledger_id > ledgers[0]:
            raise beyond_end(self._listing.path, after, (ledgers[-1] if ledgers else -1, -1))

    def _end_of(self, ledger_id: int, after: Lsn) -> End:
        reader = self._reader
        assert reader is not None
        end = (ledger_id, reader.lac)
        if ledger_id == after.ledger_id and after.entry_id > reader.lac:
            raise beyond_end(self._listing.path, after, end)
        return end

    async def _runs_of(self, ledger_id: int, before: End | None, after: Lsn) -> AsyncGenerator[Run]:
        """Yield what a ledger has behind a position, until it is CLOSED and all was handed out."""
        is_first = ledger_id == after.ledger_id
        next_entry = max(after.entry_id, 1) if is_first else 0
        await self._close_reader()
        while True:
            try:
                reader = await self._opened(ledger_id)
                self.is_level = self._is_last and next_entry > reader.lac
                self._took(ledger_id, next_entry - 1)
                async with aclosing(_confirmed(reader, next_entry)) as confirmed:
                    async for entries in confirmed:
                        if next_entry == 0:
                            check_header(ledger_id, entries.pop(0)[1], before)
                            next_entry = 1
                        run = [
                            (lsn, record)
                            for entry_id, records in entries
                            for index, record in enumerate(records)
                            if (lsn := Lsn(ledger_id, entry_id, index)) > after
                        ]
                        next_entry = entries[-1][0] + 1 if entries else next_entry
                        self.is_level = self._is_last and next_entry > reader.lac
                        self._pause_s = _AGAIN_S
                        if run:
                            yield run
                        self._took(ledger_id, next_entry - 1)
                self._took(ledger_id, reader.lac)
                return
            except (NoSuchLedgerMetadataError, NoSuchLedgerError):
                raise missing(self._listing.path, ledger_id) from None
            except BookieError as error:
                await self._close_reader()
                await self._wait_out(error)

    async def _opened(self, ledger_id: int) -> LedgerReader:
        if self._reader is None:
            self._reader = await self._client.open(ledger_id, self._password, recover=False)
        return self._reader

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def close(self) -> None:
        """Let go of what is open; repeatable, behind the end of runs()."""
        self._watch.close()
        await self._close_reader()


async def _confirmed(
    reader: LedgerReader, first: int
) -> AsyncGenerator[list[tuple[int, list[bytes]]]]:
    """Yield (entry, records) of a ledger from one on, together what is there together."""
    entries: list[tuple[int, list[bytes]]] = []
    record_count = byte_count = 0
    async for entry in reader.tail(first, pace_s=_PACE_S):
        records = split(entry.payload)
        entries.append((entry.entry_id, records))
        record_count += len(records)
        byte_count += len(entry.payload)
        is_full = byte_count >= _RUN_BYTES or record_count >= _RUN_RECORDS
        if entry.entry_id >= reader.lac or is_full:
            yield entries
            entries, record_count, byte_count = [], 0, 0
