"""Where the nodes of a tablespace are: connections to a cluster begin at the one that leads.

A Locator is shared by all connections that mean one tablespace. It says which node is to be tried
next, and takes in which one has failed; the node itself decides whether it leads, by taking a
connection or refusing it. With read=follower connections go to one node after the other, with
read=nearest to one as long as it takes them. Any thread, or tasks of one loop, as the Waits of the
caller have it.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from bookie.runtime.drivers import new_mutex
from bookie.runtime.ticket import Ticket
from herdpy.driver.dsn import Address, RemoteTarget, address_of
from herdpy.driver.interfaces import Found, Locator, Pauses, Waits
from herdpy.driver.remote.silences import NodeSilences
from herdpy.errors import (
    Error,
    LogFailedError,
    OperationalError,
    Retry,
)

if TYPE_CHECKING:
    from herdpy.driver.remote.session import RemoteSession

_NOT_LEADING = frozenset(("25006", "57P01", "57P03"))
"""What a node answers, as SAFE, that follows, ends, or is not ready: the statement has not run."""
_UNREACHABLE = frozenset(("08001", "08006"))
_OTHERS_MAY_KNOW = frozenset(("08001", "3D000"))
"""Refusals for good that are about one node: another one may lead all the same."""
Told = list[Address] | Error
"""Nodes to try, in their order, or why there are none."""
_TRIES_OF_READERS = 8
ANSWER_S = 15.0
"""How long an answer is waited for at most, to a question that other connections may have asked."""
_LAST_ANSWER_S = 0.5
"""How long when retry_timeout_s is over."""


def is_not_led(error: Error) -> bool:
    """Return whether a node has refused a statement, which has not run, because it does not lead.

    The log of a leader that was deposed has failed: what comes later it does not run either.
    """
    if isinstance(error, LogFailedError):
        return error.sqlstate == "58030"
    return error.sqlstate in _NOT_LEADING and error.retry is Retry.SAFE


def is_away(error: Error) -> bool:
    """Return whether no leader was to be found: another try, in a moment, may find one."""
    return is_not_led(error) or (error.sqlstate in _UNREACHABLE and error.retry is not Retry.NEVER)


def is_led_no_more(error: Error) -> bool:
    """Return whether the node that answered so leads no more, or is about to end.

    Beside is_not_led(): what became of the statement is for the next leader to say.
    """
    return is_not_led(error) or (isinstance(error, LogFailedError) and error.retry is Retry.UNKNOWN)


class SeedNodes:
    """Locator among nodes that are named: from the last that led on, in their order."""

    def __init__(self, places: Sequence[Address], read: str = "leader") -> None:
        self.silences = NodeSilences()
        self._places = tuple(places)
        self._read = read
        self.tries = len(places) + 1  # an error may name a node beside them
        self._mutex = new_mutex()
        # Under the mutex.
        self._index = 0
        self._named: Address | None = None
        """By a node, and not among the places."""
        self._number = 0

    def locate(self, waits: Waits, limit_s: float) -> Found:
        with self._mutex:
            found = Found(self._named or self._places[self._index], self._number)
            if self._read == "follower":
                self._index = (self._index + 1) % len(self._places)
            return found

    def failed(self, found: Found, error: Error) -> None:
        with self._mutex:
            if found.number != self._number or self._read == "follower":
                return
            self._number += 1
            if self._read == "nearest":
                self._index = (self._index + 1) % len(self._places)
                return
            leader = None if error.leader is None else address_of(error.leader)
            if leader in self._places and leader != found.address:
                self._index, self._named = self._places.index(leader), None
                return
            if self._named is None:  # else the place behind the one that named it is next already
                self._index = (self._index + 1) % len(self._places)
            self._named = None if leader == found.address else leader


class LookedUp:
    """Locator by a directory; one question at a time, whose answer all get that wait for it."""

    def __init__(
        self,
        ask: Callable[[Callable[[Told], object]], object],
        where: str,
        read: str = "leader",
    ) -> None:
        """ask(done) begins to look, and calls done() once, in any thread; `where`, for messages."""
        self.silences = NodeSilences()
        self._ask = ask
        self._where = where
        self._read = read
        # What was known of the leader, and what is true now.
        self.tries = 2 if read == "leader" else _TRIES_OF_READERS
        self._mutex = new_mutex()
        # Under the mutex.
        self._known: list[Address] = []
        """Of what was told, what has not failed since."""
        self._asked: Ticket[Found | Error] | None = None
        self._asked_s = 0.0
        """When it was; by the clock of the caller, which all callers share."""
        self._number = 0

    def locate(self, waits: Waits, limit_s: float) -> Found:
        limit_s, now_s = min(limit_s, ANSWER_S), waits.monotonic()
        with self._mutex:
            if self._known:
                if self._read == "follower":
                    self._known = [*self._known[1:], self._known[0]]
                return Found(self._known[0], self._number)
            asked = self._asked
            is_first = asked is None or now_s - self._asked_s >= ANSWER_S
            if asked is None or is_first:
                asked, self._asked_s = Ticket(), now_s
            self._asked = asked
        if is_first:
            try:
                self._ask(partial(self._answer, asked))
            except BaseException:
                with self._mutex:
                    if self._asked is asked:
                        self._asked = None  # the next one asks anew
                raise
        if not waits.wait(asked, now_s + limit_s):  # the question stays, for others and later
            raise OperationalError(
                f"connect: {self._where} did not tell in {limit_s:.3g} s which node leads",
                sqlstate="08001",
                retry=Retry.SAFE,
                hint="is ZooKeeper running there?",
            )
        found = asked.result()
        if isinstance(found, Error):
            raise copy(found)  # each thread has a traceback of its own
        return found

    def failed(self, found: Found, error: Error) -> None:
        with self._mutex:
            if self._number == found.number:
                self._known = [each for each in self._known if each != found.address]

    def _answer(self, asked: "Ticket[Found | Error]", answer: Told) -> None:
        with self._mutex:
            self._number += 1
            found = answer if isinstance(answer, Error) else Found(answer[0], self._number)
            if self._asked is asked:
                self._asked = None
                self._known = [] if isinstance(answer, Error) else answer
        asked.complete(found)


class LeaderConnector:
    """Connects one session to the leader, again and again. One thread or task at a time."""

    def __init__(
        self,
        target: RemoteTarget,
        locator: Locator,
        waits: Waits,
        connect: "Callable[[RemoteTarget, bool], RemoteSession]",
    ) -> None:
        """connect(target, autocommit) makes a connection to one node."""
        self._target = target
        self._locator = locator
        self._waits = waits
        self._connect = connect
        self._found: Found | None = None
        """Where the connection leads."""

    def connect(self, autocommit: bool, pauses: Pauses | None = None) -> "RemoteSession":
        """Return a connection to the leader; pauses: whose budget there is for its being found.

        OperationalError for which is_away() is true: no node led, in one round of them. Another
        Error: it is not about the node.
        """
        problems: list[Error] = []
        tried: list[Address] = []
        told: list[str] = []
        for _ in range(self._locator.tries):
            # The last try begins at the end of the budget, and is to be answered, too.
            limit_s = ANSWER_S if pauses is None else max(_LAST_ANSWER_S, pauses.left_s)
            found = self._locator.locate(self._waits, limit_s)
            if found.address in tried:
                break  # all that are known were tried, or others are just trying them
            tried.append(found.address)
            node = self._target.at(found.address)
            try:
                session = self._connect(node, autocommit)
            except Error as error:
                if not (is_away(error) or error.sqlstate in _OTHERS_MAY_KNOW):
                    raise
                self._locator.failed(found, error)
                problems.append(error)
                reason = error.message.removeprefix("connect: ").removeprefix(node.where)
                told.append(f"{found.address}: {reason.lstrip()}")
            else:
                self._found = found
                return session
        if not any(map(is_away, problems)):
            raise problems[0]
        if self._target.read != "leader":
            raise OperationalError(
                f"connect: no node of {self._target.where} is there for read={self._target.read} "
                f"now: {'; '.join(told)}",
                sqlstate="25006",
                retry=Retry.SAFE,
                hint="the leader, which read=leader asks, may be there",
            ) from problems[-1]
        raise OperationalError(
            f"connect: no node of {self._target.where} leads now: {'; '.join(told)}",
            sqlstate="08001",
            retry=Retry.SAFE,
            hint="another node takes over soon, if enough of them run; try again",
        ) from problems[-1]

    @property
    def is_silent(self) -> bool:
        """Another connection to the same node, as new as this, has waited for it in vain."""
        return self._found is not None and self._locator.silences.has(self._found)

    def note_silence(self, error: Error) -> None:
        """Take in that the node of the connection said nothing, for as long as it may."""
        if self._found is not None:
            self._locator.silences.note(self._found)
            self._locator.failed(self._found, error)

    def note_refusal(self, error: Error) -> None:
        """Take in that the node of the connection does not lead, or not any more."""
        if self._found is not None:
            self._locator.failed(self._found, error)
