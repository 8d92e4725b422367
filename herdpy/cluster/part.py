"""PartMachine: what a node is for one tablespace, and what it does next. No I/O, no clock.

    BOOTING      its copy is opened
    FOLLOWING    the copy takes in what the leader writes
    TAKING_OVER  step by step, until it leads
    LEADING      it serves, and its log is written by it alone
    HANDING_OVER it leads still, and gives the part to another node, step by step
    RESIGNING    whatever it was, it ends that, and closes its copy
    FAILED       it waits, and begins anew; `reason` says why

The owner tells what has happened (on_*), does the actions that it gets back, in their order, and
tells of each its end. One step is under way at a time. The rules are those of
docs/formats/tablespace_nodes.md; the steps of a take-over:

    NAME    stop following; a new epoch in the tablespace's record, by compare-and-set
    CLAIM   the list of ledgers under that epoch; every ledger on it is closed
    LEAD    what is new in the log is taken in, and what was left open is rolled back
    ALONE   the former leader's node is gone from the store, with its session; this node's is there
    SERVE   clients are let in

The steps of a hand-over:

    DRAIN    what clients begin waits; what is open has time to end, and is rolled back then
    CLOSE    the ledger is ended: from here on this node writes nothing more
    LEAVE    the end of the log stands in the tablespace's record, and the leader's node is gone
    TELL     the successor is waited for: clients are told of it when this node stops
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from bookie.metadata.interfaces import SessionState
from herdpy.errors import Error
from herdpy.model.lsn import Lsn


class State(Enum):
    BOOTING = "booting"
    FOLLOWING = "following"
    TAKING_OVER = "taking over"
    LEADING = "leading"
    HANDING_OVER = "handing over"
    RESIGNING = "resigning"
    FAILED = "failed"


class Do(Enum):
    """What the owner is to do; of those above STOP it tells the end by on_done() or on_failed().

    FOLLOW has no end but a failure, or another step.
    """

    OPEN = "open"
    FOLLOW = "follow"
    NAME = "name"
    CLAIM = "claim"
    LEAD = "lead"
    ALONE = "alone"
    SERVE = "serve"
    DRAIN = "drain"
    CLOSE = "close"
    LEAVE = "leave"
    TELL = "tell"
    STOP = "stop"
    """End whatever is under way, serve no client, close the copy, resign; on_stopped()."""


TAKE_OVER = (Do.NAME, Do.CLAIM, Do.LEAD, Do.ALONE, Do.SERVE)
HAND_OVER = (Do.DRAIN, Do.CLOSE, Do.LEAVE, Do.TELL)
_CHANGING_THE_COPY = (Do.OPEN, Do.FOLLOW, Do.LEAD, Do.ALONE, Do.SERVE)
"""Where one of these fails the copy is opened again."""
_ENDED_BY_ANOTHER = (Do.LEAD, Do.ALONE, Do.SERVE, Do.DRAIN, Do.CLOSE)
"""Once another node has named itself these are given up at once."""
_TAKING_NO_PART = (State.BOOTING, State.FOLLOWING, State.FAILED)
_ON_THE_SESSION = (State.LEADING, State.HANDING_OVER, State.TAKING_OVER)
"""What a node is only as long as its session with the metadata store lives."""


class Waits(NamedTuple):
    """Seconds, unless it says otherwise."""

    candidate_s: float = 0.2
    """Between the leader's end and a take-over, at most; each node draws its own."""
    other_s: float = 8.0
    """For a take-over that another node has begun: more than a session lasts."""
    session_s: float = 6.0
    """For the metadata store to answer again, as the session does not live longer without it."""
    other_max_s: float = 300.0
    """It doubles up to there each time that no leader has come of one: a log may be long."""
    successor_s: float = 2.0
    """For the node that was handed the part to have named itself; then any other one does."""
    behind_s: float = 30.0
    """For the own copy to take in what the log has, before a take-over, in which clients wait."""
    hang_timeouts: float = 3.0
    """A leader's node that is there for so many time-outs of its session, behind a take-over that
    it knows of, is that of a process that hangs."""
    again_first_s: float = 0.1
    again_max_s: float = 10.0
    """Before what failed is tried again: it doubles each time, until a part lasted."""


class PartMachine:
    """See the module. now_s: of any clock, as long as it is one and the same."""

    def __init__(self, draw: Callable[[], float], waits: Waits = Waits()) -> None:  # noqa: B008 - immutable
        """draw() gives chance from 0 to 1."""
        self._draw = draw
        self._waits = waits
        self.state = State.BOOTING
        self.step: Do | None = None
        """What is under way; None: nothing is, or it is FOLLOW's end that is waited for."""
        self.reason: Error | None = None
        """Why it failed last."""
        self.wakes_at_s: float | None = None
        """When on_time() is to be called; None: it need not be."""
        self.epoch = 0
        """Under which it leads, or is about to; the owner sets it when NAME is done."""
        self.is_behind = False
        """The copy has not taken in yet what the log has; the owner sets it before on_time()."""
        self.is_silent = False
        """The leader writes nothing, for longer than it may, and this node could; the owner sets it
        before on_time() and on_silent()."""
        self.is_forced = False
        """It takes over from a leader that is silent, and that may not hear of it."""
        self._behind_until_s = 0.0
        """From then on it takes over all the same."""
        self._is_other_named = False
        """A node has named itself, and no leader's node has come since."""
        self._newest_epoch = 0
        """The newest that any node has named itself with."""
        self._not_before_s = 0.0
        """Until then another node may come to lead that has named itself."""
        self._has_leader = True  # until the store says that there is none
        self._session = SessionState.CONNECTED
        self._again_s = waits.again_first_s
        self._farthest: Lsn | None = None
        """How far any copy has followed."""
        self._other_s = waits.other_s
        self._is_wanted = False
        self._is_successor = False
        """The former leader has handed the part to this node."""
        self._has_handed_over = False
        """Nothing has failed: it opens its copy at once to follow."""

    def begin(self) -> list[Do]:
        """Begin; the first call."""
        return self._do(Do.OPEN)

    # --- what has happened -----------------------------------------------------------------------

    def on_done(self, step: Do, now_s: float) -> list[Do]:
        """Take in that a step is done."""
        if self.step is not step:
            return []
        self.step = None
        if step is Do.OPEN:
            self.state = State.FOLLOWING
            self._look(now_s)
            return self._do(Do.FOLLOW)
        if step is Do.SERVE and self._newest_epoch <= self.epoch:
            self.state, self.reason = State.LEADING, None
            self._again_s = self._waits.again_first_s
            self._is_wanted = False
            return []
        if step in HAND_OVER:
            return self._after(step)
        if self._newest_epoch > self.epoch:
            return self._yield(step, now_s)
        return self._do(TAKE_OVER[TAKE_OVER.index(step) + 1])

    def on_failed(self, step: Do, error: Error, now_s: float, *, is_conflict: bool) -> list[Do]:
        """Take in that a step failed; is_conflict: another node leads, or is about to."""
        if self.step is not step:
            return []
        self.reason = error
        if step is Do.DRAIN and not is_conflict:
            self.state, self.step = State.LEADING, None  # nothing has changed
            return []
        if step in HAND_OVER:
            return self._stop()
        if is_conflict:
            self._let_other(now_s)
        elif step not in _CHANGING_THE_COPY:
            self._not_before_s = max(self._not_before_s, now_s + self._back_off())
        return self._yield(step, now_s)

    def on_stopped(self, now_s: float) -> list[Do]:
        """STOP is done."""
        if self._has_handed_over:
            self._has_handed_over, self.state = False, State.BOOTING
            return self._do(Do.OPEN)
        self.state = State.FAILED
        self.wakes_at_s = now_s + self._back_off()
        return []

    def on_leader(self, now_s: float, *, has_leader: bool) -> list[Do]:
        """Take in that the store has, or has not, the node of a leader."""
        if has_leader:
            self._not_before_s = now_s  # whichever node was to lead does
            self._other_s = self._waits.other_s
            self._is_successor = self._is_other_named = False
        if has_leader != self._has_leader:
            self._has_leader = has_leader
            if not has_leader and self._is_other_named:
                # It has waited for this, and lets the time-out of a hanging leader's session go by.
                other_s = now_s + self._waits.other_s
                self._not_before_s = max(self._not_before_s, other_s)
            self._behind_until_s = now_s + self._waits.behind_s
            if self.state is State.FOLLOWING:
                self._look(now_s)
        return []

    def on_named(self, epoch: int, now_s: float) -> list[Do]:
        """Take in that another node has named itself, under this epoch."""
        self._newest_epoch = max(self._newest_epoch, epoch)
        if self._newest_epoch <= self.epoch:
            return []
        self._is_wanted = self._is_successor = False  # a newer wish, or no need of it
        self._is_other_named = True
        self._let_other(now_s)
        if self.state is State.FOLLOWING:
            self._look(now_s)
        elif self.state is State.LEADING or self.step in _ENDED_BY_ANOTHER:
            return self._stop()
        return []  # a NAME or CLAIM comes to its end first, and so does what was handed over

    def on_handed_over(self, now_s: float, *, is_successor: bool) -> list[Do]:
        """Take in that the leader has handed the part over, to this node or to another one."""
        if is_successor:
            if self.state in _TAKING_NO_PART:
                self._is_successor, self._not_before_s = True, now_s
        else:
            self._not_before_s = max(self._not_before_s, now_s + self._waits.successor_s)
        if self.state is State.FOLLOWING:
            self._look(now_s)
        return []

    def on_successor(self) -> list[Do]:
        """Hand the part over: another node is level, and is to lead; nothing unless it leads."""
        if self.state is not State.LEADING or self._session is not SessionState.CONNECTED:
            return []
        self.state = State.HANDING_OVER
        return self._do(Do.DRAIN)

    def on_session(self, state: SessionState, now_s: float) -> list[Do]:
        """Take in what the session with the store is: LOST ends a leader, or not to hear of it."""
        self._session = state
        if self.state in _ON_THE_SESSION:
            if state is SessionState.LOST:
                return self._stop()
            is_away = state is SessionState.SUSPENDED
            self.wakes_at_s = now_s + self._waits.session_s if is_away else None
            return []
        if state is SessionState.CONNECTED and self.state is State.FOLLOWING:
            self._look(now_s)
        return []

    def on_log_failed(self, error: Error) -> list[Do]:
        """Take in that the leader's log failed: it was fenced, or bookies are away."""
        if self.state is not State.LEADING:
            return []  # a step of a hand-over fails by it
        self.reason = error
        return self._stop()

    def on_wanted(self, now_s: float) -> list[Do]:
        """Lead as soon as it can, also from a leader that lives: an operator wants it."""
        if self.state not in _ON_THE_SESSION:
            self._is_wanted = True
            if self.state is State.FOLLOWING:
                self.wakes_at_s = now_s
        return []

    def on_silent(self, now_s: float) -> list[Do]:
        """Take in that the leader is silent, though its session lives."""
        if self.state is State.FOLLOWING and self._has_leader and self.wakes_at_s is None:
            self._look(now_s)
        return []

    def on_progress(self, position: Lsn) -> None:
        """Take in how far the copy has followed; what failed before is over behind that alone.

        A copy that is opened again has to come as far as it had before it failed.
        """
        if self._farthest is None or position > self._farthest:
            self._farthest = position
            self._again_s = self._waits.again_first_s

    def on_time(self, now_s: float) -> list[Do]:
        """Do what is due at wakes_at_s."""
        if self.wakes_at_s is None or now_s < self.wakes_at_s:
            return []
        self.wakes_at_s = None
        if self.state is State.FAILED:
            self.state = State.BOOTING
            return self._do(Do.OPEN)
        if self.state in _ON_THE_SESSION:
            return self._stop()
        is_called = self._is_wanted or self._is_successor
        is_free = not self._has_leader or is_called or self.is_silent
        if self.state is State.FOLLOWING and is_free:
            if self._session is not SessionState.CONNECTED:
                return []  # until it is
            if self.is_behind and not is_called and now_s < self._behind_until_s:
                # Another copy may be level already; and if this one were overtaken in a take-over,
                # it would be opened anew, and be as far behind as before.
                self.wakes_at_s = now_s + (0.5 + self._draw() / 2) * self._waits.candidate_s
                return []
            self.state, self._is_successor = State.TAKING_OVER, False
            self.is_forced = self._has_leader and not is_called
            return self._do(Do.NAME)
        return []

    # --- what follows ----------------------------------------------------------------------------

    def _do(self, step: Do) -> list[Do]:
        self.step = step
        return [step]

    def _after(self, step: Do) -> list[Do]:
        """Go on behind a step of a hand-over."""
        if step is Do.TELL:
            self._has_handed_over = True
            return self._stop()
        return self._do(HAND_OVER[HAND_OVER.index(step) + 1])

    def _stop(self) -> list[Do]:
        self.state, self.step, self.wakes_at_s = State.RESIGNING, None, None
        return [Do.STOP]

    def _look(self, now_s: float) -> None:
        """Draw when to take over, if no node leads or is about to."""
        self.wakes_at_s = None
        if self._is_successor:
            self.wakes_at_s = now_s
        elif not self._has_leader or self._is_wanted or self.is_silent:
            earliest_s = now_s if self._is_wanted else max(now_s, self._not_before_s)
            self.wakes_at_s = earliest_s + self._draw() * self._waits.candidate_s

    def _yield(self, step: Do, now_s: float) -> list[Do]:
        """Go back behind a step: follow again, if the copy is what it was, and else anew."""
        if step in _CHANGING_THE_COPY:
            return self._stop()
        self.state = State.FOLLOWING
        self._is_wanted = False
        self._look(now_s)
        return self._do(Do.FOLLOW)

    def _let_other(self, now_s: float) -> None:
        """Give another node time to lead, more of it each time that it does not come to that."""
        self._not_before_s = now_s + self._other_s * (1 + self._draw() / 4)
        self._other_s = min(2 * self._other_s, self._waits.other_max_s)

    def _back_off(self) -> float:
        wait_s, self._again_s = self._again_s, min(2 * self._again_s, self._waits.again_max_s)
        return wait_s * (0.5 + self._draw() / 2)
