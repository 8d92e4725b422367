"""Budgets that all connections of a server share. Any thread, but for Stalled: the loop."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from bookie.runtime.drivers import new_mutex
from herdpy.engine.statements.refusals import Refusals
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.access import User
from herdpy.model.role_settings import OPEN_RESULTS

C = TypeVar("C", bound=Hashable)

RESULTS_OF_TABLESPACE = "results_of_tablespace_max"
"""The name of a tablespace's share in syslimits."""
_RESULTS_SHARE = 0.75
"""Of the open results of a server a tablespace other than `default` may have."""
_RESULTS_KEPT = 0.1
"""Of them, the last ones, `default` alone may have."""


class Budget:
    """A number that may grow to a bound."""

    __slots__ = ("_mutex", "maximum", "refused", "used")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0
        self.refused = 0
        """How often it had no room."""
        self._mutex = new_mutex()

    def take(self, count: int = 1, *, kept: int = 0) -> bool:
        """Add to what is used; False, and nothing is added, when that would be too much.

        kept: how much has to be left.
        """
        with self._mutex:
            if self.used + count > self.maximum - kept:
                self.refused += 1
                return False
            self.used += count
            return True

    def give(self, count: int = 1) -> None:
        with self._mutex:
            self.used -= count


class OpenResults:
    """Results with rows to fetch of one tablespace, and of each of its users.

    Beside `default` a tablespace has a share of those of all connections, and the last are kept for
    `default`: one must not keep out the others, nor the administrator.
    """

    __slots__ = ("_kept", "_mutex", "_of_all", "by_user", "count", "count_max", "refusals")

    def __init__(self, of_all: Budget, refusals: Refusals, *, is_default: bool) -> None:
        self._of_all = of_all
        maximum = of_all.maximum
        self.count_max = maximum if is_default else max(1, int(_RESULTS_SHARE * maximum))
        """How many the tablespace may have."""
        kept = max(1, int(_RESULTS_KEPT * maximum))
        self._kept = 0 if is_default else min(kept, maximum - 1)
        self.count = 0
        self.refusals = refusals
        """Those beyond the maximum of a user's role, too."""
        self.by_user: dict[User, int] = {}
        self._mutex = new_mutex()

    def take(self, user: User | None, user_max: int | None) -> Error | None:
        """Count one more; or say why there may be none."""
        with self._mutex:
            own = 0 if user is None else self.by_user.get(user, 0)
            if user is not None and user_max is not None and own >= user_max:
                self.refusals.add(OPEN_RESULTS, user)
                count, whose = own, f'user "{user.name}"'
                hint = "the limit is open_results of the role"
            elif self.count >= self.count_max < self._of_all.maximum:
                self.refusals.add(RESULTS_OF_TABLESPACE)
                count, whose = self.count, "the tablespace"
                hint = "it has three quarters of results_max"
            elif not self._of_all.take(kept=self._kept):
                count, whose = self._of_all.used, "all connections"
                hint = "the limit is results_max"
            else:
                self.count += 1
                if user is not None:
                    self.by_user[user] = own + 1
                return None
        return OperationalError(
            f"{count} results of {whose} are open",
            sqlstate="53400",
            retry=Retry.SAFE,
            hint=f"try again when others were fetched or closed; {hint}",
        )

    def give(self, user: User | None) -> None:
        self._of_all.give()
        with self._mutex:
            self.count -= 1
            if user is not None:
                left = self.by_user[user] - 1
                if left:
                    self.by_user[user] = left
                else:
                    del self.by_user[user]


class Stalled(Generic[C]):
    """The connections whose peers do not take their answers, the longest stalled first."""

    __slots__ = ("_bytes_max", "_connections", "byte_count")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._connections: dict[C, int] = {}
        self.byte_count = 0

    def add(self, connection: C, byte_count: int) -> list[C]:
        """Note what waits for a peer; return the connections to cut off, to be under the bound."""
        self.remove(connection)
        self._connections[connection] = byte_count
        self.byte_count += byte_count
        gone: list[C] = []
        while self.byte_count > self._bytes_max:
            oldest = next(iter(self._connections))
            self.remove(oldest)
            gone.append(oldest)
        return gone

    def has_room(self, byte_count: int) -> bool:
        """Return whether so much more may wait without a connection being cut off."""
        return self.byte_count + byte_count <= self._bytes_max

    def remove(self, connection: C) -> None:
        """Forget a connection; repeatable."""
        self.byte_count -= self._connections.pop(connection, 0)

    def __len__(self) -> int:
        return len(self._connections)
