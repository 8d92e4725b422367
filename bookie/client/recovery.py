"""Runs the machine of bookie/ledger/recovery.py: channels, ticks, and the metadata around it."""

import asyncio
from collections.abc import Callable
from functools import partial

from bookie.client.interfaces import ReadReply
from bookie.client.services import Services, tell, update_metadata
from bookie.errors import (
    BadVersionError,
    BookieError,
    ClientClosedError,
    NoNodeError,
    NotEnoughBookiesError,
)
from bookie.ledger.codec import EntryDigest
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.recovery import (
    Action,
    CloseLedger,
    Damaged,
    FenceBookie,
    Progress,
    ReadEntry,
    Recovery,
    RecoveryFailed,
    WriteEntry,
    closed_metadata,
    opening_metadata,
)
from bookie.ledger.types import BookieId, LedgerMetadata, Status
from bookie.metadata.interfaces import Check
from bookie.metadata.paths import name_of

OnProgress = Callable[[int, int], None]
"""Called with the number of entries recovered so far and the id of the last one."""
_TICK_MIN_S = 0.0125


class RecoveryRunner:
    """One recovery of one ledger. run() once."""

    def __init__(
        self,
        services: Services,
        master_key: bytes,
        digest: EntryDigest,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._services = services
        self._master_key = master_key
        self._digest = digest
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._failed: dict[BookieId, None] = {}
        self._checks: dict[BookieId, asyncio.Task[Check | None]] = {}
        """What holds while a bookie that was chosen stays Active, as it was when it was chosen."""
        self._tick_s = max(services.config.speculative_read_s / SPECULATION_TICKS, _TICK_MIN_S)
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, found: LedgerMetadata, version: int) -> tuple[LedgerMetadata, int]:
        """Recover; return the CLOSED metadata that stands, ours or another's, and its version.

        Errors: LedgerRecoveryError and NotEnoughBookiesError (SAFE: run it again),
        UnauthorizedAccessError, NoSuchLedgerMetadataError (deleted), MetadataStoreError.
        """
        ledgers = self._services.ledgers
        found, version = await update_metadata(ledgers, found, version, opening_metadata)
        try:
            while not found.is_closed:
                close = await self._find_end(found)
                guards = await self._guards(found, close)
                if guards is None:
                    continue
                try:
                    return await update_metadata(
                        ledgers,
                        found,
                        version,
                        lambda metadata, close=close: closed_metadata(metadata, close),
                        guards,
                    )
                except (BadVersionError, NoNodeError) as error:
                    # A Drained bookie is one that no ledger names. Ours may have been written
                    # before, its answer lost: what stands is read after a sync().
                    self._failed[BookieId(name_of(error.path))] = None
                    await self._services.bookies.catch_up()
                    found, version = await ledgers.read(found.ledger_id)
            return found, version
        finally:
            for check in self._checks.values():
                check.cancel()
            await asyncio.gather(*self._checks.values(), return_exceptions=True)

    async def _guards(
        self, metadata: LedgerMetadata, close: CloseLedger
    ) -> tuple[Check, ...] | None:
        """Return what has to hold when the new members are named; None: one of them drains."""
        named = metadata.last_segment.ensemble
        new = {b for segment in close.segments for b in segment.ensemble if b not in named}
        guards: list[Check] = []
        for bookie in sorted(new):
            guard = await self._checks[bookie]
            if guard is None:
                self._failed[bookie] = None
            else:
                guards.append(guard)
        return tuple(guards) if len(guards) == len(new) else None

    async def _find_end(self, metadata: LedgerMetadata) -> CloseLedger:
        config = self._services.config
        self._metadata = metadata
        self._machine = Recovery(
            metadata,
            self._digest,
            self._replace_bookies,
            read_ahead=config.recovery_read_ahead,
            bytes_max=config.read_ahead_bytes_max,
            rank=self._services.health.rank,
        )
        self._outcome: asyncio.Future[CloseLedger] = self._loop.create_future()
        try:
            self._run(self._machine.start())
            self._start_timer()
            return await self._outcome
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._outcome.cancel()
            # Who reads the ledger next would wait for them anew: what has recovered it, mostly.
            for bookie in self._machine.suspects:
                self._services.health.note_slow(bookie)

    def _replace_bookies(
        self, failed_indexes: tuple[int, ...], ensemble: tuple[BookieId, ...]
    ) -> tuple[BookieId, ...] | None:
        for index in failed_indexes:
            self._failed[ensemble[index]] = None
        services = self._services
        writable = tuple(b for b in services.bookies.writable if b not in self._failed)
        try:
            replaced = services.placement.replace(failed_indexes, ensemble, writable)
        except NotEnoughBookiesError:
            return None
        for index in failed_indexes:
            bookie = replaced[index]
            if bookie not in self._checks:
                check = services.bookies.active_check(bookie)
                self._checks[bookie] = self._loop.create_task(check)
        return replaced

    def _run(self, actions: list[Action]) -> None:
        ledger_id = self._metadata.ledger_id
        channels = self._services.channels
        for action in actions:
            match action:
                case ReadEntry(bookie, entry_id, is_fencing):
                    channels.read(
                        bookie,
                        ledger_id,
                        entry_id,
                        partial(self._on_read, bookie, entry_id),
                        fence_key=self._master_key if is_fencing else None,
                        is_high_priority=True,
                    )
                case WriteEntry(bookies, entry_id, packet):
                    channels.add(
                        bookies,
                        ledger_id,
                        entry_id,
                        self._master_key,
                        packet,
                        partial(self._on_write, entry_id),
                        is_recovery=True,
                        is_high_priority=True,
                    )
                case FenceBookie(bookie_index, bookie):
                    channels.read(
                        bookie,
                        ledger_id,
                        -1,
                        partial(self._on_fence, bookie_index),
                        fence_key=self._master_key,
                        is_high_priority=True,
                    )
                case Progress(count, last_entry_id):
                    if self._on_progress is not None:
                        tell(self._on_progress, count, last_entry_id)
                case Damaged(bookie, entry_id):
                    self._services.report_damage(ledger_id, entry_id, bookie)
                case CloseLedger():
                    self._outcome.set_result(action)
                case RecoveryFailed(error):
                    self._outcome.set_exception(error)

    def _on_fence(self, bookie_index: int, reply: ReadReply) -> None:
        if not self._is_ended(reply.status):
            self._run(self._machine.on_fence_reply(bookie_index, reply.status, reply.body))

    def _on_read(self, bookie: BookieId, entry_id: int, reply: ReadReply) -> None:
        if not self._is_ended(reply.status):
            self._run(self._machine.on_read_reply(bookie, entry_id, reply.status, reply.body))

    def _on_write(self, entry_id: int, bookie: BookieId, status: Status) -> None:
        if not self._is_ended(status):
            self._run(self._machine.on_write_reply(entry_id, bookie, status))

    def _is_ended(self, status: Status) -> bool:
        """Pass over replies that no caller waits for any more."""
        if self._outcome.done():
            return True
        if status is Status.CLIENT_CLOSED:
            error: BookieError = ClientClosedError(
                f"ledger {self._metadata.ledger_id}: the client was closed during recovery"
            )
            self._outcome.set_exception(error)
            return True
        return False

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def _on_tick(self) -> None:
        if not self._outcome.done():
            self._run(self._machine.on_tick())
            self._start_timer()
