"""Runs the machines of reading: one range, one long poll, one question for the LAC.

Each is made for one use on the running loop; what it had asked for when it is closed is answered
to no caller. Rules: docs/protocols/reading.md.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from functools import partial

from bookie.client.interfaces import LacReply, ReadReply
from bookie.client.services import Services
from bookie.errors import BookieError
from bookie.ledger import reader as range_machine
from bookie.ledger import tail as tail_machine
from bookie.ledger.codec import Entry, EntryDigest
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.lac import LacQuery
from bookie.ledger.types import BookieId, LedgerMetadata, Status

SPECULATIVE_POLL_S = 1.5
"""Ask the next bookie for news, too, after this long without any."""
POLLS_PER_BOOKIE_MAX = 4
"""Of one reader; a bookie that answers none of them is passed over."""


class RangeRunner:
    """One range being read. Iterate entries() once; close() in any case."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        digest: EntryDigest,
        first: int,
        last: int,
    ) -> None:
        config = services.config
        self._services = services
        self._ledger_id = metadata.ledger_id
        self._loop = asyncio.get_running_loop()
        self._machine = range_machine.RangeRead(
            metadata,
            digest,
            first,
            last,
            entries_max=config.read_ahead_max,
            bytes_max=config.read_ahead_bytes_max,
            rank=services.health.rank,
            is_asking_all=config.speculative_read_s == 0,
        )
        self._delivered: deque[Entry] = deque()
        self._ended: range_machine.ReadEnded | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = config.speculative_read_s / SPECULATION_TICKS

    @property
    def max_lac(self) -> int:
        return self._machine.max_lac

    async def entries(self) -> AsyncIterator[Entry]:
        self._run(self._machine.start())
        if self._tick_s > 0 and self._ended is None:
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        while True:
            while self._delivered:
                entry = self._delivered.popleft()
                yield entry
                if self._ended is None:
                    self._run(self._machine.taken(entry))
            if self._ended is not None:
                if self._ended.error is not None:
                    raise self._ended.error
                return
            self._waiter = self._loop.create_future()
            await self._waiter

    def _run(self, actions: list[range_machine.Action]) -> None:
        for action in actions:
            if type(action) is range_machine.AskEntry:
                bookie, entry_id = action
                on_done = partial(self._on_read, bookie, entry_id)
                self._services.channels.read(bookie, self._ledger_id, entry_id, on_done)
            elif type(action) is range_machine.DeliverEntry:
                self._delivered.append(action.entry)
            elif type(action) is range_machine.ReadEnded:
                self._ended = action
            elif type(action) is range_machine.ReportDamage:
                self._services.report_damage(self._ledger_id, action.entry_id, action.bookie)
            elif type(action) is range_machine.ReportSlow:
                self._services.health.note_slow(action.bookie)
        if self._delivered or self._ended is not None:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_read(self, bookie: BookieId, entry_id: int, reply: ReadReply) -> None:
        self._run(self._machine.on_reply(bookie, entry_id, reply.status, reply.body, reply.max_lac))

    def _on_tick(self) -> None:
        self._timer = None
        if self._ended is None:
            self._run(self._machine.on_tick())
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def end(self, error: BookieError) -> None:
        """Let the caller get this error instead of more entries."""
        self._delivered.clear()
        self._ended = range_machine.ReadEnded(error)
        self._wake()

    def close(self) -> None:
        if self._ended is None:
            self._ended = range_machine.ReadEnded(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PollRunner:
    """One long poll under way; `outcome` is done when it has ended. close() in any case."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        machine: tail_machine.TailPoll,
        wait_ms: int,
        polls: Counter[BookieId],
    ) -> None:
        self._services = services
        self._ledger_id = metadata.ledger_id
        self._machine = machine
        self._wait_ms = wait_ms
        self._polls = polls
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tail_machine.PollEnded] = self._loop.create_future()
        self._tick_s = SPECULATIVE_POLL_S / SPECULATION_TICKS
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        self._run(machine.start())

    def _run(self, actions: list[tail_machine.Action]) -> None:
        for action in actions:
            match action:
                case tail_machine.Poll():
                    self._poll(action)
                case tail_machine.PollEnded():
                    self.outcome.set_result(action)
                case range_machine.ReportDamage(bookie, entry_id):
                    self._services.report_damage(self._ledger_id, entry_id, bookie)

    def _poll(self, poll: tail_machine.Poll) -> None:
        if self._polls[poll.bookie] >= POLLS_PER_BOOKIE_MAX:
            refused = ReadReply(Status.TOO_MANY_REQUESTS)
            self._loop.call_soon(self._on_reply, poll.bookie_index, refused)
            return
        self._polls[poll.bookie] += 1

        def on_done(reply: ReadReply) -> None:
            self._polls[poll.bookie] -= 1
            self._on_reply(poll.bookie_index, reply)

        self._services.channels.read(
            poll.bookie,
            self._ledger_id,
            -1,
            on_done,
            previous_lac=poll.previous_lac,
            wait_ms=self._wait_ms,
            is_piggyback=True,
        )

    def _on_reply(self, bookie_index: int, reply: ReadReply) -> None:
        if not self.outcome.done():
            self._run(
                self._machine.on_reply(
                    bookie_index, reply.status, reply.entry_id, reply.body, reply.max_lac
                )
            )

    def _on_tick(self) -> None:
        if not self.outcome.done():
            self._run(self._machine.on_tick())
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def close(self) -> None:
        self._timer.cancel()
        self.outcome.cancel()


async def query_lac(services: Services, metadata: LedgerMetadata, digest: EntryDigest) -> int:
    """Ask all of the last ensemble for the LAC, without fencing, until none can hide (G3).

    An open ledger's LAC may be behind its data (G21): -1 while only the first entry is there.
    """
    query = LacQuery(metadata, digest, is_fencing=False)
    decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_reply(index: int, reply: LacReply) -> None:
        is_deciding = query.on_reply(index, reply.status, reply.last_entry_body, reply.lac_body)
        if is_deciding and not decided.done():
            decided.set_result(None)

    for index, bookie in enumerate(query.bookies):
        services.channels.read_lac(bookie, metadata.ledger_id, partial(on_reply, index))
    await decided
    for bookie in query.damaged:
        services.report_damage(metadata.ledger_id, -1, bookie)
    if query.error is not None:
        raise query.error
    # The ensemble began after entries that are acknowledged (G2).
    return max(query.lac, metadata.last_segment.first_entry_id - 1)
