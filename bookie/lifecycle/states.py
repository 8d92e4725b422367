"""The lifecycle of one bookie as a machine without I/O: its states, its steps, what is refused.

No state node means ACTIVE. A bookie that is not ACTIVE takes no ordinary adds; DRAINED promises
that no ledger names the bookie, but for those whose loss an operator accepted by their ids.
Source: BP-4 of Apache BookKeeper, never built there (docs/protocols/lifecycle.md, ADR 0048).
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from bookie.errors import IllegalOperationError
from bookie.ledger.types import BookieId


class LifecycleState(Enum):
    """The values are those of the state node."""

    ACTIVE = "Active"
    DRAINING = "Draining"
    DRAINING_FAILED = "DrainingFailed"
    DRAINED = "Drained"


class Step(Enum):
    """What moves a bookie from one state to another; the values say it in messages."""

    DRAIN = "drain"
    CANCEL = "cancel"
    FINISH = "finish (by the auditor)"
    FAIL = "fail (by the auditor)"
    MARK_DRAINED = "mark-drained"


TRANSITIONS = {
    (LifecycleState.ACTIVE, Step.DRAIN): LifecycleState.DRAINING,
    (LifecycleState.DRAINING, Step.FINISH): LifecycleState.DRAINED,
    (LifecycleState.DRAINING, Step.FAIL): LifecycleState.DRAINING_FAILED,
    (LifecycleState.DRAINING, Step.CANCEL): LifecycleState.ACTIVE,
    (LifecycleState.DRAINING_FAILED, Step.DRAIN): LifecycleState.DRAINING,
    (LifecycleState.DRAINING_FAILED, Step.MARK_DRAINED): LifecycleState.DRAINED,
    (LifecycleState.DRAINING_FAILED, Step.CANCEL): LifecycleState.ACTIVE,
    (LifecycleState.DRAINED, Step.CANCEL): LifecycleState.ACTIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRecord:
    """What the state node says of a bookie; an ACTIVE one has none."""

    state: LifecycleState = LifecycleState.ACTIVE
    since_ms: int = 0
    """When the state was entered, by the clock of the process that wrote it."""
    by: str = ""
    """Which process or operator entered the state."""
    may_fence: bool = True
    """False: open ledgers whose writer is silent are left, and the drain fails because of them."""
    is_admitted: bool = False
    """The auditor let the drain begin; until then it waits, for `reason`."""
    reason: str = ""
    """Why the drain waits, what it warns of, or why it failed."""
    ledgers_total: int | None = None
    """How many ledgers named the bookie when its drain was admitted; None: not counted yet."""
    ledgers_left: int | None = None
    """How many did at the last scan."""
    accepted_loss: tuple[int, ...] = ()
    """Ledgers that may go on naming a bookie that was marked Drained; ascending."""


ACTIVE = LifecycleRecord()


class DrainLedger(NamedTuple):
    """What the list of a drain says of one ledger."""

    ledger_id: int
    cleared_count: int = 0
    """How often its task was removed while the ledger still named the bookie."""
    cleared_by: str = ""
    """The last holder seen of a task that was removed so; empty: none was seen."""
    problem: str = ""
    """Why it cannot be replicated; empty: nothing is known against it."""


def after(bookie_id: BookieId, state: LifecycleState, step: Step) -> LifecycleState:
    """Return the state that follows, or raise IllegalOperationError naming what is allowed."""
    found = TRANSITIONS.get((state, step))
    if found is None:
        allowed = ", ".join(
            f"{other.value} to {target.value}"
            for (source, other), target in TRANSITIONS.items()
            if source is state
        )
        raise IllegalOperationError(
            f"bookie {bookie_id} is {state.value}: {step.value} is not possible; from "
            f"{state.value} there is: {allowed}"
        )
    return found
