"""Makes one ledger whole again: checks it, copies what lacks, writes metadata by compare-and-set.

Shared by replication workers and the tools. A member that is registered, writable and lacks
entries gets them in its place; any other is replaced by a bookie that is no member of the segment:
the worker's own one, or one drawn by the placement policy. The last segment of a ledger that is not
CLOSED is left to its writer until the caller says that its grace period is over; then the ledger is
recovered, which fences it. Nothing here knows of tasks, and of locks only whether the caller holds
one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from bookie.autorecovery.checking import Fault, Finding, LedgerCheck, digest_of
from bookie.autorecovery.copying import Action as CopyAction
from bookie.autorecovery.copying import Copy, CopyEnded, Damaged, ReadEntry, Throttle, WriteEntry
from bookie.autorecovery.spans import open_segment, replaced
from bookie.client.client import LedgerClient
from bookie.client.interfaces import ReadReply
from bookie.client.services import Services, update_metadata
from bookie.config import AutoRecoveryConfig
from bookie.errors import (
    BadVersionError,
    BookieError,
    ClientClosedError,
    NoNodeError,
    NoSuchLedgerMetadataError,
    NotEnoughBookiesError,
)
from bookie.ledger.codec import master_key
from bookie.ledger.entry_read import SPECULATION_TICKS
from bookie.ledger.types import BookieId, LedgerMetadata, Segment, Status
from bookie.metadata.interfaces import Check
from bookie.runtime.interfaces import Clock

Leaving = Callable[[], Awaitable[frozenset[BookieId]]]
"""Answers which registered bookies must be left: nothing is copied there, and all from there."""
_TICK_MIN_S = 0.0125
_BUDGET_S = 0.01
"""Between questions to a bounded throttle: longer, and clients beside it meet bursts."""
_ROUNDS_MAX = 16
"""Checks of one ledger in one repair: each but the last was followed by a copy that succeeded."""


class Result(Enum):
    """How a repair ended."""

    WHOLE = "whole"
    """Every copy is there, as far as was looked."""
    GONE = "gone"
    """The ledger was deleted."""
    OPEN = "open"
    """Its last segment is hurt and not settled: `segment`. Everything else is whole."""
    NO_TARGET = "no target"
    """What is missing cannot be copied to where this repair may copy; others may."""
    UNLOCKED = "unlocked"
    """The ledger's lock was lost meanwhile: see LedgerLock.unsure."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a repair did and why it stopped."""

    result: Result
    reason: str = ""
    is_loss: bool = False
    segment: Segment | None = None
    entry_count: int = 0
    byte_count: int = 0


@dataclass(slots=True)
class LedgerLock:
    """The lock that the caller of a repair holds on the ledger; of one repair, used on its loop."""

    is_held: Callable[[], bool] = lambda: True
    """Answers without I/O. While the lock is held no collector removes what was copied."""
    unsure: BookieId | None = None
    """A target that the metadata may name though the lock was lost before: its copies may have been
    collected. Set also where the repair ends by an error or is cancelled; the caller publishes the
    ledger with it."""


async def no_leaving() -> frozenset[BookieId]:
    return frozenset()


class Repairer:
    """See the module.

    local: the one bookie that this worker copies to; None: as the placement policy draws. Used on
    one loop.
    """

    def __init__(
        self,
        client: LedgerClient,
        clock: Clock,
        config: AutoRecoveryConfig,
        *,
        local: BookieId | None = None,
        leaving: Leaving = no_leaving,
        spared: Leaving = no_leaving,
    ) -> None:
        """spared: those of `leaving` for which no open ledger is fenced."""
        self._client = client
        self._services = client.services
        self._clock = clock
        self._config = config
        self._local = local
        self._leaving = leaving
        self._spared = spared
        self._throttle = Throttle(config.copy_bytes_per_s, clock.monotonic())

    async def repair(
        self,
        ledger_id: int,
        suspects: Collection[BookieId] = (),
        *,
        fence: Segment | None = None,
        lock: LedgerLock | None = None,
    ) -> Outcome:
        """Repair a ledger as far as this one can; return how it ended and what was copied.

        fence: an open last segment of which the grace period is over; another one begins its own.
        lock: None: the caller looks at the lock itself when the ledger was found whole.
        Errors are told by Result.FAILED; CancelledError and ClientClosedError are raised.
        """
        tally = _Tally()
        leaving: frozenset[BookieId] | None = None
        try:
            for _ in range(_ROUNDS_MAX):
                # A server behind the one that told of the task might show an older ledger, or none;
                # and of a bookie that is taken for registered, and has no entry to be read, nothing
                # is missed.
                await self._services.bookies.catch_up()
                if leaving is None:
                    # Once: a drain that begins later has its ledgers published anew.
                    leaving = await self._leaving()
                outcome = await self._round(
                    ledger_id, suspects, fence, leaving, lock or LedgerLock(), tally
                )
                if outcome is not None:
                    return tally.told(outcome)
            reason = f"copies are missing again after {_ROUNDS_MAX} rounds of copying"
            return tally.told(Outcome(Result.FAILED, reason))
        except NoSuchLedgerMetadataError:
            return tally.told(Outcome(Result.GONE))
        except ClientClosedError:
            raise
        except BookieError as error:
            return tally.told(Outcome(Result.FAILED, f"{type(error).__name__}: {error}"))

    async def _round(
        self,
        ledger_id: int,
        suspects: Collection[BookieId],
        fence: Segment | None,
        leaving: frozenset[BookieId],
        lock: LedgerLock,
        tally: "_Tally",
    ) -> Outcome | None:
        """Check once and copy what can be; None: something was done, look again."""
        metadata, version = await self._services.ledgers.read(ledger_id)
        result = await LedgerCheck(
            self._services, metadata, leaving=leaving, suspects=suspects
        ).run()
        segment = open_segment(metadata)
        is_hurt = segment is not None and self._is_hurt(segment, await self._fenced_for(leaving))
        if is_hurt and self._may_fence(segment, fence):
            await self._recover(metadata)
            return None
        is_changed = False
        without_target: list[str] = []
        for finding in result.findings:
            if not lock.is_held():
                return _unlocked()
            target = self._target(metadata, finding, leaving)
            if target is None:
                without_target.append(finding.bookie)
                continue
            guard: Check | None = None
            if target != finding.bookie:
                guard = await self._services.bookies.active_check(target)
                if guard is None:
                    return _leaving(target)
            ended = await _CopyRun(
                self._services, metadata, finding, target, self._config, self._throttle, self._clock
            ).run(tally)
            if ended.error is not None:
                return Outcome(Result.FAILED, str(ended.error), ended.is_loss)
            try:
                metadata, version = await self._name(
                    metadata, version, finding, target, guard, lock
                )
            except (BadVersionError, NoNodeError):
                lock.unsure = None  # nothing was written
                return _leaving(target)
            if not lock.is_held():
                return _unlocked()
            lock.unsure = None
            is_changed = True
        if is_changed:
            return None
        if without_target:
            reason = f"no bookie to copy to in the place of {', '.join(without_target)}"
            if self._local is not None:
                reason += f": this worker copies to {self._local} alone, others have not taken it"
            return Outcome(Result.NO_TARGET, reason)
        if result.undecided:
            reason = f"no answer from {', '.join(result.undecided)}"
            return Outcome(Result.FAILED, reason)
        return Outcome(Result.OPEN, segment=segment) if is_hurt else Outcome(Result.WHOLE)

    async def _fenced_for(self, leaving: frozenset[BookieId]) -> frozenset[BookieId]:
        """Return those of `leaving` for which an open ledger is fenced, as it stands now.

        A drain that was begun anew since may be another kind, or not be admitted.
        """
        if not leaving:
            return leaving
        spared = await self._spared()
        return leaving & (await self._leaving() - spared)

    async def _recover(self, metadata: LedgerMetadata) -> None:
        """Fence out the writer and close the ledger; nothing of it is open then."""
        await self._client.recover(metadata.ledger_id, metadata.password or b"")

    def _is_hurt(self, segment: Segment, leaving: Collection[BookieId]) -> bool:
        registered = self._services.bookies.registered
        return any(b not in registered or b in leaving for b in segment.ensemble)

    @property
    def is_local(self) -> bool:
        """Whether it copies to one bookie only: others may copy what it cannot."""
        return self._local is not None

    async def takes_tasks(self) -> bool:
        """Tell whether tasks may be taken: beside a bookie that drains or is Drained, none.

        Its drain may wait for admission, or have failed: it takes no copy all the same. One that is
        writable is not asked for, because a bookie that notices its drain turns read-only.
        """
        local, bookies = self._local, self._services.bookies
        if local is None or local in bookies.writable:
            return True
        return await bookies.active_check(local) is not None

    def _may_fence(self, segment: Segment | None, fence: Segment | None) -> bool:
        """Whether the grace period of this segment is over: its writer has not replaced it."""
        return fence is not None and segment == fence

    def _target(
        self, metadata: LedgerMetadata, finding: Finding, leaving: Collection[BookieId]
    ) -> BookieId | None:
        """Return where the copies of a member go; None: nowhere that this worker may copy to."""
        candidates = tuple(b for b in self._candidates() if b not in leaving)
        if finding.fault is Fault.LACKING and finding.bookie in candidates:
            return finding.bookie
        ensemble = metadata.segment_of(finding.span.first).ensemble
        if self._local is not None:
            is_free = self._local in candidates and self._local not in ensemble
            return self._local if is_free else None
        try:
            index = finding.index
            return self._services.placement.replace((index,), ensemble, candidates)[index]
        except NotEnoughBookiesError:
            return None

    def _candidates(self) -> tuple[BookieId, ...]:
        """Return the bookies that take copies: not those that only answer reads."""
        return self._services.bookies.writable

    async def _name(
        self,
        metadata: LedgerMetadata,
        version: int,
        finding: Finding,
        target: BookieId,
        guard: Check | None,
        lock: LedgerLock,
    ) -> tuple[LedgerMetadata, int]:
        """Let the metadata name the target in the place of the member that it was copied for.

        A Drained bookie is one that no ledger names: BadVersionError or NoNodeError of the guard
        when a drain of the target began since it was asked for.
        """
        if target == finding.bookie:
            return metadata, version

        def named(found: LedgerMetadata) -> LedgerMetadata | None:
            if not lock.is_held():
                return None
            lock.unsure = target  # until the lock is seen to be held after the answer
            return replaced(found, finding.span, finding.bookie, target)

        return await update_metadata(
            self._services.ledgers, metadata, version, named, () if guard is None else (guard,)
        )


def _unlocked() -> Outcome:
    return Outcome(Result.UNLOCKED, "its lock was lost with the session")


def _leaving(target: BookieId) -> Outcome:
    return Outcome(Result.FAILED, f"the target {target} is leaving: it is no longer Active")


@dataclass(slots=True)
class _Tally:
    """What one repair has copied."""

    entry_count: int = 0
    byte_count: int = 0

    def told(self, outcome: Outcome) -> Outcome:
        return replace(outcome, entry_count=self.entry_count, byte_count=self.byte_count)


class _CopyRun:
    """Runs the machine of copying.py for one member of one span."""

    def __init__(
        self,
        services: Services,
        metadata: LedgerMetadata,
        finding: Finding,
        target: BookieId,
        config: AutoRecoveryConfig,
        throttle: Throttle,
        clock: Clock,
    ) -> None:
        self._services = services
        self._ledger_id = metadata.ledger_id
        self._master_key = master_key(metadata.password or b"")
        self._target = target
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        is_in_place = target == finding.bookie
        self._machine = Copy(
            metadata,
            digest_of(metadata),
            finding.missing(metadata, is_in_place=is_in_place),
            target,
            window=config.copy_window,
            bytes_max=config.copy_bytes_max // config.repairs_at_once,
            throttle=throttle,
            rank=services.health.rank,
        )
        self._ended: asyncio.Future[CopyEnded] = self._loop.create_future()
        tick_s = max(services.config.speculative_read_s / SPECULATION_TICKS, _TICK_MIN_S)
        self._looks_a_tick = max(1, round(tick_s / _BUDGET_S)) if throttle.is_bounded else 1
        self._look_s = tick_s / self._looks_a_tick
        self._look_count = 0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, tally: _Tally) -> CopyEnded:
        try:
            self._start_timer()
            self._do(self._machine.start(self._clock.monotonic()))
            return await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._ended.cancel()
            tally.entry_count += self._machine.entry_count
            tally.byte_count += self._machine.byte_count

    def _do(self, actions: list[CopyAction]) -> None:
        channels = self._services.channels
        for action in actions:
            match action:
                case ReadEntry(bookie, entry_id):
                    on_done = partial(self._on_read, bookie, entry_id)
                    channels.read(bookie, self._ledger_id, entry_id, on_done)
                case WriteEntry(entry_id, packet):
                    channels.add(
                        (self._target,),
                        self._ledger_id,
                        entry_id,
                        self._master_key,
                        packet,
                        partial(self._on_write, entry_id),
                        is_recovery=True,
                    )
                case Damaged(bookie, entry_id):
                    self._services.report_damage(self._ledger_id, entry_id, bookie)
                case CopyEnded():
                    if not self._ended.done():
                        self._ended.set_result(action)

    def _on_read(self, bookie: BookieId, entry_id: int, reply: ReadReply) -> None:
        if not self._is_over(reply.status):
            now_s = self._clock.monotonic()
            self._do(self._machine.on_read(bookie, entry_id, reply.status, reply.body, now_s))

    def _on_write(self, entry_id: int, _: BookieId, status: Status) -> None:
        if not self._is_over(status):
            self._do(self._machine.on_write(entry_id, status, self._clock.monotonic()))

    def _is_over(self, status: Status) -> bool:
        if self._ended.done():
            return True
        if status is Status.CLIENT_CLOSED:
            error = ClientClosedError(
                f"ledger {self._ledger_id}: the client was closed while it was copied"
            )
            self._ended.set_exception(error)
            return True
        return False

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self._look_s, self._on_timer)

    def _on_timer(self) -> None:
        if not self._ended.done():
            self._look_count += 1
            is_tick = self._look_count % self._looks_a_tick == 0
            look = self._machine.on_tick if is_tick else self._machine.on_budget
            self._do(look(self._clock.monotonic()))
            self._start_timer()
