"""UserShares: how many connections a user has, and how many of its statements run.

A connection beyond the maximum of the user's role is refused (53300). A statement beyond it waits
for its turn, without a worker; the first to come is the first to run, and one that has waited for a
lock goes before all that have not begun. Who has no maximum is not counted against any. On the
server's loop.
"""

from collections import deque
from collections.abc import Callable

from herdpy.engine.statements.refusals import Refusals
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.access import User
from herdpy.model.role_settings import CONNECTIONS, RUNNING_STATEMENTS, Maxima


class Turn:
    """A statement's wait for its turn, until it is begun or given up."""

    __slots__ = ("start", "user")

    def __init__(self, user: User, start: Callable[[], object]) -> None:
        self.user = user
        self.start = start


class UserShares:
    def __init__(self, maxima_of: Callable[[User], Maxima], refusals: Refusals) -> None:
        self._maxima_of = maxima_of
        self._refusals = refusals
        self.connections: dict[User, int] = {}
        self.running: dict[User, int] = {}
        """Statements that have a worker, or wait for one."""
        self._waiting: dict[User, deque[Turn]] = {}
        self.waiting_count = 0
        """Statements that wait for their turns; any thread."""

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

    # --- statements ------------------------------------------------------------------------------

    def begin(self, user: User, start: Callable[[], object], *, is_again: bool) -> Turn | None:
        """Run start(), now or when a statement of the user ends; then the Turn is returned.

        For each start() that ran there is one end().
        """
        if self._has_room(user):
            self.running[user] = self.running.get(user, 0) + 1
            start()
            return None
        turn = Turn(user, start)
        waiting = self._waiting.setdefault(user, deque())
        if is_again:
            waiting.appendleft(turn)
        else:
            waiting.append(turn)
        self.waiting_count += 1
        self._refusals.add_wait(RUNNING_STATEMENTS, user)
        return turn

    def end(self, user: User) -> None:
        """Count a statement no more, and begin those whose turn it is."""
        _decrement(self.running, user)
        while (waiting := self._waiting.get(user)) and self._has_room(user):
            turn = waiting.popleft()
            self.waiting_count -= 1
            if not waiting:
                del self._waiting[user]
            self.running[user] = self.running.get(user, 0) + 1
            turn.start()

    def give_up(self, turn: Turn) -> bool:
        """Take back a wait; False: it has begun."""
        waiting = self._waiting.get(turn.user)
        if waiting is None or turn not in waiting:
            return False
        waiting.remove(turn)
        self.waiting_count -= 1
        if not waiting:
            del self._waiting[turn.user]
        return True

    def _has_room(self, user: User) -> bool:
        maximum = self._maxima_of(user).get(RUNNING_STATEMENTS)
        return maximum is None or self.running.get(user, 0) < maximum


def _decrement(counts: dict[User, int], user: User) -> None:
    count = counts[user] - 1
    if count:
        counts[user] = count
    else:
        del counts[user]
