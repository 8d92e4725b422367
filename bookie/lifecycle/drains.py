"""DrainMachine: what the auditor does about drains, as facts in and decisions out, without I/O.

Drains are admitted one by one, the oldest first, each against all that drain or are lost already.
An admitted bookie that is read-only or away has its ledgers published as tasks until no ledger
names it. Drained takes CLEAN_SCANS scans in a row that found none, each begun after the bookie's
registration was read: a missing task proves nothing, because a worker that counts copies on
read-only bookies (Apache's) removes tasks without a copy. Such a removal is noticed, and the task
published again, each time later. What nothing can be done about ends in DrainingFailed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bookie.ledger.types import BookieId
from bookie.lifecycle.states import DrainLedger, LifecycleRecord, LifecycleState, Step
from bookie.lifecycle.store import Found
from bookie.metadata.bookies import Mode

CLEAN_SCANS = 2
FAILURES_MAX = 3
"""So often a worker may fail with a ledger before it counts as bad."""
CLEARED_MAX = 3
"""After so many removals without a copy the status names the worker."""
_NAMED_IN_REASON_MAX = 20
_BACK_OFF_S = 10.0
_BACK_OFF_MAX_S = 600.0


class Report(NamedTuple):
    """Why workers could not replicate a ledger."""

    reason: str
    failure_count: int
    time_ms: int


class Facts(NamedTuple):
    """What one round read, in this order: states, registrations, tasks, then the scan."""

    now_s: float
    """Seconds that never go back."""
    is_enabled: bool
    """AutoRecovery may copy."""
    founds: Sequence[Found]
    """The bookies that are Draining or DrainingFailed."""
    modes: Mapping[BookieId, Mode]
    tasks: frozenset[int]
    """Ledgers that have a task."""
    holders: Mapping[int, str]
    """The workers that hold locks of ledgers now."""
    reports: Mapping[int, Report]
    named: Mapping[BookieId, tuple[int, ...]]
    """The ledgers that name each bookie, or may."""
    open_last: Mapping[BookieId, frozenset[int]]
    """Of those, the ones whose last segment is open and names it."""
    unreadable: Mapping[int, str]
    waits: Mapping[BookieId, str]
    """Why a drain that was not admitted has to wait; empty: it need not."""


@dataclass(slots=True)
class Publish:
    """Make a task for this ledger, or renew it."""

    ledger_id: int
    bookie_id: BookieId


@dataclass(slots=True)
class Update:
    """Replace the record found, without a step."""

    found: Found
    record: LifecycleRecord


@dataclass(slots=True)
class WriteList:
    """Replace the list of a drain."""

    found: Found
    ledgers: list[DrainLedger]


@dataclass(slots=True)
class Move:
    """Take a step from what was found."""

    found: Found
    step: Step
    record: LifecycleRecord


Decision = Publish | Update | WriteList | Move


@dataclass(slots=True)
class _Ledger:
    """What is remembered of one ledger of a drain."""

    since_s: float
    is_published: bool = False
    next_publish_s: float = 0.0
    cleared_count: int = 0
    cleared_by: str = ""
    holder: str = ""


@dataclass(slots=True)
class _Drain:
    """What is remembered of one drain; lost with the auditor, but for the list."""

    identity: tuple[object, ...]
    clean_scans: int = 0
    ledgers: dict[int, _Ledger] = field(default_factory=dict[int, _Ledger])
    written: list[DrainLedger] | None = None


class DrainMachine:
    """See the module. One for each auditor's term; decide() once a round."""

    def __init__(self, open_ledger_wait_s: float) -> None:
        """open_ledger_wait_s: how long the writer of an open ledger may take to replace the bookie.

        Until then the ledger is only listed; then it has a task (and is fenced by a worker), or
        counts as bad where the drain may not fence.
        """
        self._open_ledger_wait_s = open_ledger_wait_s
        self._drains: dict[BookieId, _Drain] = {}
        self.cleared_count = 0
        """Tasks that were removed while their ledger still named the bookie; for metrics."""

    def knows(self, found: Found) -> bool:
        """Tell whether this drain was seen before: else restore() its list first."""
        drain = self._drains.get(found.bookie_id)
        return drain is not None and drain.identity == _identity(found)

    def restore(self, found: Found, ledgers: Sequence[DrainLedger], now_s: float) -> None:
        """Go on with the drain of an earlier auditor."""
        known = {
            one.ledger_id: _Ledger(
                now_s, cleared_count=one.cleared_count, cleared_by=one.cleared_by
            )
            for one in ledgers
        }
        self._drains[found.bookie_id] = _Drain(_identity(found), ledgers=known)

    def published(self, bookie_id: BookieId, ledger_id: int) -> None:
        """Take note that a Publish was done."""
        drain = self._drains.get(bookie_id)
        if drain is not None and ledger_id in drain.ledgers:
            drain.ledgers[ledger_id].is_published = True

    def list_refused(self, bookie_id: BookieId) -> None:
        """Take note that a WriteList found a conflict: the list is written again."""
        drain = self._drains.get(bookie_id)
        if drain is not None:
            drain.written = None

    def decide(self, facts: Facts) -> list[Decision]:
        """Return what is to be done, in order. A decision that finds a conflict is dropped."""
        self._drains = {
            found.bookie_id: self._drains[found.bookie_id]
            for found in facts.founds
            if self.knows(found)
        }
        decisions: list[Decision] = []
        is_admitting = facts.is_enabled
        waiting: list[Found] = []
        for found in facts.founds:
            if found.record.state is LifecycleState.DRAINING and not found.record.is_admitted:
                waiting.append(found)
            elif self.knows(found):
                decisions += self._go_on(self._drains[found.bookie_id], found, facts)
        for found in sorted(waiting, key=lambda one: (one.record.since_ms, one.bookie_id)):
            reason = facts.waits[found.bookie_id]
            if not facts.is_enabled:
                reason = "AutoRecovery is disabled"
            elif not reason and not is_admitting:
                reason = "waits for its turn: drains are admitted one by one"
            record = found.record
            if not reason and is_admitting:
                is_admitting = False
                count = len(facts.named[found.bookie_id])
                record = replace(
                    record,
                    is_admitted=True,
                    reason="",
                    ledgers_total=count,
                    ledgers_left=count,
                )
            else:
                record = replace(record, reason=reason)
            if record != found.record:
                decisions.append(Update(found, record))
        return decisions

    def _go_on(self, drain: _Drain, found: Found, facts: Facts) -> list[Decision]:
        bookie_id, record = found.bookie_id, found.record
        named = facts.named[bookie_id]
        left = replace(record, ledgers_left=len(named))
        is_draining = record.state is LifecycleState.DRAINING
        if is_draining and facts.modes.get(bookie_id, Mode.AWAY) is Mode.WRITABLE:
            drain.clean_scans = 0
            left = replace(
                left, reason="the bookie is still writable: it has to be read-only or stopped"
            )
            return [Update(found, left)] if left != record else []
        if is_draining and not named:
            drain.clean_scans += 1
            if drain.clean_scans >= CLEAN_SCANS:
                return [Move(found, Step.FINISH, replace(left, reason=""))]
        else:
            drain.clean_scans = 0
        decisions: list[Decision] = []
        bad: dict[int, str] = {}
        drain.ledgers = {
            ledger_id: drain.ledgers.get(ledger_id) or _Ledger(facts.now_s) for ledger_id in named
        }
        notes: dict[int, str] = {}
        for ledger_id, ledger in drain.ledgers.items():
            note, is_bad = self._note(ledger_id, ledger, found, facts)
            notes[ledger_id] = note
            if is_bad:
                bad[ledger_id] = note
            elif is_draining and self._is_due(ledger_id, ledger, found, facts):
                decisions.append(Publish(ledger_id, bookie_id))
        rows = [
            DrainLedger(ledger_id, one.cleared_count, one.cleared_by, notes[ledger_id])
            for ledger_id, one in sorted(drain.ledgers.items())
        ]
        if rows != drain.written:
            drain.written = rows
            decisions.append(WriteList(found, rows))
        if is_draining and named and len(bad) == len(named):
            named_ids = ", ".join(map(str, sorted(bad)[:_NAMED_IN_REASON_MAX]))
            more = len(bad) - _NAMED_IN_REASON_MAX
            reason = (
                f"{len(bad)} ledgers cannot be replicated: {named_ids}"
                f"{f' and {more} more' if more > 0 else ''}; the first: {bad[min(bad)]}"
            )
            decisions.append(Move(found, Step.FAIL, replace(left, reason=reason)))
        elif is_draining:
            left = replace(left, reason=self._warning(drain, facts))
            if left != record:
                decisions.append(Update(found, left))
        elif left != record:
            decisions.append(Update(found, left))
        return decisions

    def _note(
        self, ledger_id: int, ledger: _Ledger, found: Found, facts: Facts
    ) -> tuple[str, bool]:
        """Return what the list says of a ledger, and whether nothing can be done about it."""
        if ledger_id in facts.unreadable:
            return f"ledger {ledger_id}: {facts.unreadable[ledger_id]}", True
        report = facts.reports.get(ledger_id)
        if report is not None and report.time_ms < found.record.since_ms:
            report = None  # of before this drain
        if report is not None and report.failure_count >= FAILURES_MAX:
            return f"ledger {ledger_id}: {report.reason}", True
        if ledger_id in facts.open_last[found.bookie_id]:
            is_over = facts.now_s - ledger.since_s >= self._open_ledger_wait_s
            if not found.record.may_fence:
                return (
                    "open: its writer keeps the bookie, and may not be fenced",
                    is_over,
                )
            if not is_over:
                return "open: its writer has time to replace the bookie before it is fenced", False
        return "" if report is None else report.reason, False

    def _is_due(self, ledger_id: int, ledger: _Ledger, found: Found, facts: Facts) -> bool:
        """Tell whether a task is to be published; take note of one that was cleared."""
        if ledger_id in facts.open_last[found.bookie_id] and (
            not found.record.may_fence or facts.now_s - ledger.since_s < self._open_ledger_wait_s
        ):
            return False
        if ledger_id in facts.tasks:
            ledger.is_published = True
            ledger.holder = facts.holders.get(ledger_id, ledger.holder)
            return False
        if ledger.is_published:
            # The tasks were read before the scan: the worker that removed it had not replaced
            # the bookie.
            ledger.is_published = False
            ledger.cleared_count += 1
            ledger.cleared_by = ledger.holder
            self.cleared_count += 1
            pause_s = min(_BACK_OFF_S * 2 ** (ledger.cleared_count - 1), _BACK_OFF_MAX_S)
            ledger.next_publish_s = facts.now_s + pause_s
        return facts.is_enabled and facts.now_s >= ledger.next_publish_s

    def _warning(self, drain: _Drain, facts: Facts) -> str:
        if not facts.is_enabled:
            return "AutoRecovery is disabled: nothing is copied until it is enabled"
        often = [one for one in drain.ledgers.values() if one.cleared_count >= CLEARED_MAX]
        if not often:
            return ""
        names = ", ".join(sorted({one.cleared_by or "an unknown worker" for one in often}))
        return (
            f"tasks of {len(often)} ledgers were removed {CLEARED_MAX} times or more without a "
            f"copy, by {names}: a worker that counts copies on read-only bookies; stop it"
        )


def _identity(found: Found) -> tuple[object, ...]:
    """Return what tells one drain from a later one of the same bookie."""
    return found.cookie_version, found.record.since_ms, found.record.by
