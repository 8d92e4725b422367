"""ResultPlaces: how many results of big queries are unfinished, whose they are, who gives way.

Each keeps a snapshot and some MB of DuckDB's until its last row was read or it was closed. A server
gives each user a share and the superusers of `default` the last places; where all are taken a
statement waits, before it has had any effect, and meanwhile a result that nothing was read of for
`unread_s` is ended. A database that only its own program uses has neither shares nor waits: one too
many is refused (53200).

Any thread; its mutex is held for no wait, and nothing is called under it.
"""

import weakref
from collections import deque
from typing import NamedTuple, Protocol

from bookie.runtime.drivers import new_mutex
from bookie.runtime.interfaces import Clock
from bookie.runtime.ticket import Ticket
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.engine.statements.refusals import Refusals
from herdpy.errors import Error, MemoryLimitError, OperationalError, Retry
from herdpy.model.access import User
from herdpy.model.role_settings import OPEN_RESULTS

_RESERVED = 2
"""The last places, for superusers of `default` and sessions without a user there."""
_SHARE = 0.75
"""Of the places one user may have, unless its role says otherwise."""
_GRANT_S = 1.0
"""For so long a place is kept for the one who was told that it came free."""


class Holder(NamedTuple):
    """Who asks for a place."""

    session: int
    user: User | None
    is_administrator: bool
    """A superuser of `default`, or has all rights there, as no user."""
    refusals: Refusals
    """Of the session's tablespace, whose user it is: another one's of that name is another."""
    maximum: int | None = None
    """Of the user's role."""

    def shares_with(self, other: "Holder") -> bool:
        """Return whether both are one user's, or of a session without one."""
        if self.user is None:
            return self.session == other.session
        return self.user == other.user and self.refusals is other.refusals


class Endable(Protocol):
    """A result; a weak reference to it must be possible."""

    def end(self, error: Error) -> None:
        """Close it: who reads on gets the error. Any thread."""
        ...


class Place:
    """One unfinished result. close() by any thread, the rest by the thread that reads."""

    __slots__ = ("_places", "holder", "result", "used_s")

    def __init__(self, places: "ResultPlaces", holder: Holder, used_s: float) -> None:
        self._places = places
        self.holder = holder
        self.used_s = used_s
        """When it was read last, by Clock.monotonic()."""
        self.result: _Watch | None = None
        """Weak: a result that its program forgets is gone at once, and the place with it."""

    def watch(self, result: Endable) -> None:
        """Be the place of a result, as long as it is there."""
        self.result = _Watch(result, self._places.abandoned.append)
        self.result.place = self

    def read(self) -> None:
        """Note that the result is being read."""
        self.used_s = self._places.now_s()

    def close(self) -> None:
        """Give the place back; repeatable."""
        self._places.give(self)


class _Watch(weakref.ref[Endable]):
    """A weak reference that knows the place of its result.

    Its callback may run wherever the collector of garbage does: so it takes no lock, and is no
    code of Python, in which the interpreter could raise and drop a KeyboardInterrupt.
    """

    __slots__ = ("place",)
    place: Place


class _Wait(NamedTuple):
    session: int
    ticket: Ticket[None]
    since_s: float
    """Once nothing has awaited the ticket for a moment, the statement was given up."""
    limit: int
    """Of the places that it may have."""


class ResultPlaces:
    def __init__(self, clock: Clock, count_max: int) -> None:
        self.now_s = clock.monotonic
        self.count_max = count_max
        self.unread_s = 0.0
        """Set by a server; 0: no shares and no waits."""
        self.abandoned: deque[_Watch] = deque()
        """Of results that were collected: their places are given back by the next who comes."""
        # Own mutex.
        self._mutex = new_mutex()
        self._places: dict[Place, None] = {}
        self._waiting: deque[_Wait] = deque()
        self._granted: dict[int, float] = {}  # to a session, since when
        self.refused = 0
        self.waits = 0
        self.ended = 0
        """Of those that were not read while others waited."""

    @property
    def used(self) -> int:
        return len(self._places)

    @property
    def waiting(self) -> list[int]:
        """The sessions that wait, the first to come first."""
        return [wait.session for wait in list(self._waiting) if wait.ticket.is_awaited]

    @property
    def holders(self) -> list[Holder]:
        return [place.holder for place in list(self._places)]

    def take(self, holder: Holder, *, may_wait: bool) -> Place:
        """Take a place, perhaps one of a result that is ended for it.

        53200, 53400: there is none. MustWaitError: there may be one soon; nothing has happened.
        """
        now_s = self.now_s()
        gone: Endable | None = None
        wait: Ticket[None] | None = None
        with self._mutex:
            self._drop_gone(now_s)
            self._check_share(holder)
            was_granted = self._granted.pop(holder.session, None) is not None
            reserved = 0 if holder.is_administrator else min(_RESERVED, self.count_max - 1)
            limit = self.count_max - (reserved if self.unread_s else 0)
            taken = len(self._places) + len(self._granted)
            is_behind = self._waiting and not was_granted and not holder.is_administrator
            if taken >= limit or is_behind:
                unread = self._unread(now_s) if self.unread_s else None
                if unread is not None:
                    gone = self._end(unread)
                elif not (self.unread_s and may_wait):
                    self.refused += 1
                    raise _too_many(self.count_max)
                else:
                    self.waits += 1
                    wait = Ticket()
                    self._waiting.append(_Wait(holder.session, wait, now_s, limit))
            place = Place(self, holder, now_s)
            if wait is None:
                self._places[place] = None
        if wait is not None:
            raise MustWaitError(wait, 2 * self.unread_s, self._late, "result")
        if gone is not None:
            gone.end(_unread_error(self.unread_s))
        return place

    def give(self, place: Place) -> None:
        """Take a place back; repeatable."""
        with self._mutex:
            if self._places.pop(place, self) is self:
                return
            wake = self._grant_next(self.now_s())
        if wake is not None:
            wake.complete(None)

    def end_all(self, refusals: Refusals, error: Error) -> None:
        """Take back the places of a tablespace that is closed, and end what it had in them.

        refusals: as its holders have them. Who reads on gets the error. Repeatable.
        """
        with self._mutex:
            own = [each for each in self._places if each.holder.refusals is refusals]
        for place in own:
            result = None if place.result is None else place.result()
            if result is not None:
                result.end(error)
            place.close()

    def look_after(self) -> None:
        """Wake who waits when a result was not read for long enough; by the maintenance thread."""
        if not self._waiting:
            return
        with self._mutex:
            now_s = self.now_s()
            self._drop_gone(now_s)
            wake = self._grant_next(now_s)
        if wake is not None:
            wake.complete(None)

    # --- under the mutex -------------------------------------------------------------------------

    def _check_share(self, holder: Holder) -> None:
        """Raise 53400 when the user, or the session without one, has its share already."""
        maximum = holder.maximum
        if maximum is None:
            if not self.unread_s:
                return
            maximum = max(1, int(_SHARE * self.count_max))
        own = sum(place.holder.shares_with(holder) for place in self._places)
        if own >= maximum:
            self.refused += 1
            if holder.maximum is not None and holder.user is not None:
                holder.refusals.add(OPEN_RESULTS, holder.user)
            whose = "this connection" if holder.user is None else f'user "{holder.user.name}"'
            raise OperationalError(
                f"{own} unfinished results of big queries are {whose}'s, more than {maximum} are "
                "not allowed",
                sqlstate="53400",
                retry=Retry.SAFE,
                hint="Fetch results to their ends or close their cursors.",
            )

    def _unread(self, now_s: float) -> Place | None:
        """Return the result that was not read for longest, if that is long enough."""
        oldest = min(self._places, key=lambda place: place.used_s, default=None)
        if oldest is None or oldest.result is None or now_s - oldest.used_s < self.unread_s:
            return None
        return oldest

    def _end(self, place: Place) -> Endable | None:
        """Take the place of a result; return the result, which has to be ended."""
        del self._places[place]
        self.ended += 1
        return None if place.result is None else place.result()

    def _grant_next(self, now_s: float) -> Ticket[None] | None:
        """Keep a place for the first who waits and may have it; return what tells that one."""
        taken = len(self._places) + len(self._granted)
        may_end = self._unread(now_s) is not None
        for wait in list(self._waiting):
            if not wait.ticket.is_awaited and now_s - wait.since_s >= _GRANT_S:
                self._waiting.remove(wait)
            elif taken < wait.limit or (may_end and not self._granted):
                self._waiting.remove(wait)
                self._granted[wait.session] = now_s
                return wait.ticket
        return None

    def _drop_gone(self, now_s: float) -> None:
        """Take back the places of forgotten results, and of those who were told and did not come.

        Their statements were cancelled.
        """
        while self.abandoned:
            self._places.pop(self.abandoned.popleft().place, None)
        for session, since_s in list(self._granted.items()):
            if now_s - since_s >= _GRANT_S:
                del self._granted[session]

    def _late(self) -> Error:
        return _too_many(self.count_max)


def _too_many(count_max: int) -> Error:
    return MemoryLimitError(
        f"expected at most {count_max} unfinished results of big queries",
        hint="Fetch results to the end or close their cursors, or raise vector_results_max.",
    )


def _unread_error(unread_s: float) -> Error:
    return MemoryLimitError(
        f"the result was ended: nothing was read of it for {unread_s:g} s, and others waited for "
        "its place",
        hint="Fetch results to their ends; SELECT … LIMIT gives them piece by piece.",
    )
