"""UserShares: how many connections a user has, and how much of the workers, beside the others.

A connection beyond the maximum of the user's role is refused (53300). A statement beyond it waits
for its turn, without a worker; the first to come is the first to run, and one that has waited for a
lock goes before all that have not begun. Who has no maximum is not counted against any.

A tablespace other than `default` has a share of the workers for what is outside transactions, too:
its superusers set the maxima of its roles, so these would not keep it from taking all workers. Its
users take turns at that. What is inside a transaction or has waited for a lock takes none of the
share, and goes before all else of its user: it holds locks. On the server's loop.
"""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum

from herdpy.engine.statements.refusals import Refusals
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.access import User
from herdpy.model.role_settings import CONNECTIONS, RUNNING_STATEMENTS, Maxima

WORKERS_OF_TABLESPACE = "workers_of_tablespace"
"""The name of a tablespace's share of the workers in syslimits."""


class Kind(Enum):
    """What a request needs a turn for."""

    URGENT = "urgent"
    """A statement that may hold locks: the maximum of its user's role counts, no share."""
    STATEMENT = "statement"
    """Any other one: both count."""
    OTHER = "other"
    """What is no statement, such as a fetch, outside transactions: the share alone counts."""


class Turn:
    """A request's wait for its turn, until it is begun or given up."""

    __slots__ = ("kind", "number", "start", "user")

    def __init__(self, user: User, kind: Kind, start: Callable[[], object], number: int) -> None:
        self.user = user
        self.kind = kind
        self.start = start
        self.number = number
        """In the order in which they came."""


_Queue = OrderedDict[Turn, None]  # of which one in the middle is given up at once


class _Waiting:
    """The turns of one user, each kind in its order."""

    __slots__ = ("others", "statements", "urgent")

    def __init__(self) -> None:
        self.urgent = _Queue()
        self.statements = _Queue()
        self.others = _Queue()

    def of(self, kind: Kind) -> _Queue:
        match kind:
            case Kind.URGENT:
                return self.urgent
            case Kind.STATEMENT:
                return self.statements
            case Kind.OTHER:
                return self.others

    def __bool__(self) -> bool:
        return bool(self.urgent or self.statements or self.others)


class UserShares:
    def __init__(
        self,
        maxima_of: Callable[[User], Maxima],
        refusals: Refusals,
        usual_max: int | None = None,
    ) -> None:
        """usual_max: the tablespace's share of the workers; None: it may have all."""
        self._maxima_of = maxima_of
        self._refusals = refusals
        self.connections: dict[User, int] = {}
        self.running: dict[User, int] = {}
        """Statements that have a worker, or wait for one."""
        self.usual_max = usual_max
        self.usual_count = 0
        """What has a worker of the share, or waits for one; also counted where there is none."""
        self._waiting: OrderedDict[User, _Waiting] = OrderedDict()
        """By users, in the order in which they get places of the share."""
        self._last_number = 0
        self.waiting_count = 0
        """Requests that wait for their turns; any thread."""

    # --- connections -----------------------------------------------------------------------------

    def admit(self, user: User) -> Error | None:
        """Count a connection of a user; or say why there may be no more of them."""
        count = self.connections.get(user, 0)
        maximum = self._maxima_of(user).get(CONNECTIONS)
        if maximum is not None and count >= maximum:
            self._refusals.add(CONNECTIONS, user)
            return OperationalError(
                f'too many connections of user "{user.name}": {count} of {maximum} are open',
                sqlstate="53300",
                retry=Retry.SAFE,
                hint="close some, or share them by a pool; the limit is that of the role: "
                "ALTER ROLE … CONNECTION LIMIT",
            )
        self.connections[user] = count + 1
        return None

    def leave(self, user: User) -> None:
        """Count a connection no more that admit() has counted."""
        _decrement(self.connections, user)

    # --- turns -----------------------------------------------------------------------------------

    def begin(
        self, user: User, kind: Kind, start: Callable[[], object], *, is_again: bool = False
    ) -> Turn | None:
        """Run start(), now or when something else ends; then the Turn is returned.

        For each start() that ran there is one end(). is_again: it has waited for a lock.
        """
        has_room = kind is Kind.OTHER or self._has_room(user)
        if has_room and (self.usual_max is None or kind is Kind.URGENT or self._has_place()):
            self._start(user, kind, start)
            return None
        if has_room:
            self._refusals.add_wait(WORKERS_OF_TABLESPACE)
        else:
            self._refusals.add_wait(RUNNING_STATEMENTS, user)
        self._last_number += 1
        turn = Turn(user, kind, start, self._last_number)
        waiting = self._waiting.get(user)
        if waiting is None:
            waiting = self._waiting[user] = _Waiting()
        queue = waiting.of(kind)
        queue[turn] = None
        if is_again:
            queue.move_to_end(turn, last=False)
        self.waiting_count += 1
        return turn

    def end(self, user: User, kind: Kind) -> None:
        """Count a request no more, and begin those whose turn it is."""
        if kind is not Kind.OTHER:
            _decrement(self.running, user)
        if kind is not Kind.URGENT:
            self.usual_count -= 1
        waiting = self._waiting.get(user)
        if waiting is not None:
            while waiting.urgent and self._has_room(user):
                self._start_turn(next(iter(waiting.urgent)))
            if self.usual_max is None:
                while waiting.statements and self._has_room(user):
                    self._start_turn(next(iter(waiting.statements)))
        if self._waiting and self.usual_max is not None:
            self._fill_share()

    def resize(self, usual_max: int | None) -> None:
        """Have another share of the workers from now on; what has a worker keeps it."""
        self.usual_max = usual_max
        self._fill_share()

    def give_up(self, turn: Turn) -> bool:
        """Take back a wait; False: it has begun."""
        waiting = self._waiting.get(turn.user)
        if waiting is None or turn not in waiting.of(turn.kind):
            return False
        self._forget(turn)
        return True

    def waits_for_tablespace(self, turn: Turn) -> bool:
        """Return whether a turn waits for the tablespace's share, and not for its user's own turn.

        Any thread.
        """
        if self.usual_max is None or turn.kind is Kind.URGENT:
            return False
        return turn.kind is Kind.OTHER or self._has_room(turn.user)

    def _fill_share(self) -> None:
        """Give the places of the share that are free to users in turn, one to each."""
        while self._has_place():
            turn = next(filter(None, map(self._next_usual, self._waiting)), None)
            if turn is None:
                return
            self._start_turn(turn)
            if turn.user in self._waiting:
                self._waiting.move_to_end(turn.user)

    def _next_usual(self, user: User) -> Turn | None:
        """Return what a user would have begin, in a place of the share."""
        waiting = self._waiting[user]
        other = next(iter(waiting.others), None)
        statement = next(iter(waiting.statements), None)
        if statement is None or not self._has_room(user):
            return other
        return statement if other is None or statement.number < other.number else other

    def _start_turn(self, turn: Turn) -> None:
        self._forget(turn)
        self._start(turn.user, turn.kind, turn.start)

    def _forget(self, turn: Turn) -> None:
        waiting = self._waiting[turn.user]
        del waiting.of(turn.kind)[turn]
        self.waiting_count -= 1
        if not waiting:
            del self._waiting[turn.user]

    def _start(self, user: User, kind: Kind, start: Callable[[], object]) -> None:
        if kind is not Kind.OTHER:
            self.running[user] = self.running.get(user, 0) + 1
        if kind is not Kind.URGENT:
            self.usual_count += 1
        start()

    def _has_place(self) -> bool:
        return self.usual_max is None or self.usual_count < self.usual_max

    def _has_room(self, user: User) -> bool:
        maximum = self._maxima_of(user).get(RUNNING_STATEMENTS)
        return maximum is None or self.running.get(user, 0) < maximum


def _decrement(counts: dict[User, int], user: User) -> None:
    count = counts[user] - 1
    if count:
        counts[user] = count
    else:
        del counts[user]
