"""WriterLac: the LAC of a ledger that is being written, and the two requests that make it known.

The LAC and the length up to it move forward only: with each acknowledged entry or, under deferred
sync, when a force to the whole ensemble has succeeded. An ack quorum of LAC writes makes it known
where no entry carries it. Source: BookKeeper's explicit LAC, ForceLedgerOp (docs/protocols/
writer.md).
"""

from typing import Any, Protocol

from bookie.errors import (
    BookieError,
    ClientClosedError,
    LedgerFencedError,
    WriteError,
)
from bookie.ledger.actions import (
    NOTHING,
    Action,
    Actions,
    Done,
    Failed,
    SendForce,
    SendLac,
    StartTimer,
    Timer,
    WriterOptions,
)
from bookie.ledger.explicit_lac import ExplicitLac
from bookie.ledger.fan_out import FanOut
from bookie.ledger.members import Members
from bookie.ledger.statuses import unauthorized
from bookie.ledger.types import INVALID_ENTRY_ID, BookieId, Status


class LacSealer(Protocol):
    """What is needed of an EntryDigest."""

    def seal_lac(self, ledger_id: int, lac: int) -> bytes: ...


class WriterLac:
    """See the module. `is_idle` says that no entry is pending."""

    __slots__ = (
        "_ack_quorum_size",
        "_explicit",
        "_ledger_id",
        "_options",
        "_question_count",
        "_questions",
        "_sealer",
        "entry_id",
        "length",
    )

    def __init__(
        self, ledger_id: int, ack_quorum_size: int, sealer: LacSealer, options: WriterOptions
    ) -> None:
        self._ledger_id = ledger_id
        self._ack_quorum_size = ack_quorum_size
        self._sealer = sealer
        self._options = options
        self._explicit = ExplicitLac(is_enabled=options.is_lac_explicit)
        self._questions: dict[int, FanOut] = {}
        self._question_count = 0
        self.entry_id: int = INVALID_ENTRY_ID
        self.length = 0
        """Payload up to the LAC."""

    def carried(self) -> None:
        """Take note that a packet with the present LAC is on its way."""
        self._explicit.carried(self.entry_id)

    def acknowledged(self, entry_id: int, length: int, *, is_idle: bool) -> Actions:
        """Move the LAC to the last acknowledged entry, unless that takes a force."""
        if self._options.is_deferred_sync:
            return NOTHING
        return self._move(entry_id, length, is_idle=is_idle)

    def _move(self, entry_id: int, length: int, *, is_idle: bool) -> Actions:
        if entry_id > self.entry_id:
            self.entry_id = entry_id
            self.length = length
        return self._armed(is_idle=is_idle)

    def _armed(self, *, is_idle: bool) -> Actions:
        if self._explicit.should_arm(self.entry_id, is_idle=is_idle):
            return [StartTimer(Timer.EXPLICIT_LAC)]
        return NOTHING

    # --- force ------------------------------------------------------------------------------------

    def force(self, context: Any, members: Members, last: int, length: int) -> Actions:
        """Ask every member; `last` is the last entry acknowledged so far, with its length."""
        if last < 0:
            return [Done(context)]
        request = self._ask(FanOut(members.bookies, members.size, context, last, length))
        return [SendForce(request, members.bookies)]

    def on_force_reply(
        self, request: int, bookie: BookieId, status: Status, *, is_idle: bool
    ) -> Actions:
        question, is_granted = self._decide(request, status)
        if question is None:
            return NOTHING
        if not is_granted:
            where = f"ledger {self._ledger_id}: {bookie} answered {status.name} to a force"
            return [Failed(question.context, fatal_error(where, status) or WriteError(where))]
        actions: list[Action] = []
        if self._options.is_deferred_sync:
            actions += self._move(question.entry_id, question.length, is_idle=is_idle)
        actions.append(Done(question.context))
        return actions

    # --- LAC writes -------------------------------------------------------------------------------

    def write(self, context: Any, members: Members) -> Actions:
        """Write the LAC to the write set of its entry. A context of None gets no answer."""
        lac = self.entry_id
        if lac < 0:
            return [Done(context)]
        bookies = members.write_set_of(lac)
        request = self._ask(FanOut(bookies, self._ack_quorum_size, context, lac))
        return [SendLac(request, lac, self._sealer.seal_lac(self._ledger_id, lac), bookies)]

    def on_lac_reply(
        self, request: int, bookie: BookieId, status: Status, *, is_idle: bool
    ) -> Actions:
        question, is_granted = self._decide(request, status)
        if question is None:
            return NOTHING
        if is_granted:
            self._explicit.carried(question.entry_id)
            return NOTHING if question.context is None else [Done(question.context)]
        where = f"ledger {self._ledger_id}: {bookie} answered {status.name} to a LAC write"
        fatal = fatal_error(where, status)
        if question.context is not None:
            return [Failed(question.context, fatal or WriteError(where))]
        # Behind the last entry for a while no other one makes up for it: readers wait for this.
        return self._armed(is_idle=is_idle) if fatal is None else NOTHING

    def on_timer(self, members: Members, *, is_idle: bool) -> Actions:
        if not self._explicit.on_timer(self.entry_id, is_idle=is_idle):
            return NOTHING
        return self.write(None, members)

    # --- questions --------------------------------------------------------------------------------

    def _ask(self, question: FanOut) -> int:
        self._question_count += 1
        self._questions[self._question_count] = question
        return self._question_count

    def _decide(self, request: int, status: Status) -> tuple[FanOut | None, bool]:
        """Count a reply; return the question if this one decides it, and how."""
        question = self._questions.get(request)
        decision = None if question is None else question.on_reply(status)
        if decision is None:
            return None, False
        del self._questions[request]
        return question, decision

    def fail_all(self, error: BookieError) -> list[Action]:
        """Answer every question that a caller waits for, and forget them all."""
        failed: list[Action] = [
            Failed(question.context, error)
            for question in self._questions.values()
            if question.context is not None
        ]
        self._questions.clear()
        return failed


def fatal_error(where: str, status: Status) -> BookieError | None:
    """Return what ends a handle at once, None for what other bookies may mend."""
    if status is Status.FENCED:
        return LedgerFencedError(f"{where}: fenced: another client recovers the ledger")
    if status is Status.UNAUTHORIZED:
        return unauthorized(where)
    if status is Status.CLIENT_CLOSED:
        return ClientClosedError(f"{where}: the client was closed")
    return None
