"""Budgets that all connections of a server share, and what tablespaces and users have of them.

Those who may log in must not take the server from the others. What a user may have of a budget is a
matter of its role where roles have such a maximum; but the superusers of a tablespace set those of
its roles, so a limit of a role is none of a tablespace. Hence shares that nothing sets: see Share.
Any thread, but for Stalled: the loop.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from bookie.runtime.drivers import new_mutex
from herdpy.errors import Error, OperationalError, Retry
from herdpy.model.access import User
from herdpy.model.role_settings import OPEN_RESULTS
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.engine.database import Database

C = TypeVar("C", bound=Hashable)

_TABLESPACE_SHARE = 0.75
"""Of what all connections may have, a tablespace other than `default` may have."""
_USER_SHARE = 0.5
"""Of it, a user who is no superuser of `default` may have."""
_KEPT_SHARE = 0.1
"""Of it, the last is kept for superusers of `default`."""


def tablespace_share(maximum: int) -> int:
    """Return how much of what there is once one tablespace other than `default` may have."""
    return max(1, int(_TABLESPACE_SHARE * maximum))


class Names(NamedTuple):
    """What syslimits calls the limit of all, of a tablespace and of a user."""

    of_all: str
    of_tablespace: str
    of_user: str


RESULTS = Names("results_max", "results_of_tablespace_max", OPEN_RESULTS)
REQUEST_BYTES = Names(
    "request_bytes_max", "request_bytes_of_tablespace_max", "request_bytes_of_user_max"
)
PARAMETER_BYTES = Names(
    "parameter_bytes_max", "parameter_bytes_of_tablespace_max", "parameter_bytes_of_user_max"
)


class Full(NamedTuple):
    """Why there is no room: the limit that is used up."""

    limit: str
    whose: str
    used: int
    maximum: int
    hint: str
    """What the limit is."""


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


class Share:
    """What one tablespace, and each of its users, has of a budget.

    Beside `default` a tablespace may have three quarters, and so may each of several on a node. The
    last tenth is kept for superusers of `default`, on a node of the tablespace itself, who have to
    see, and end, those who took the rest.
    """

    __slots__ = ("_database", "_kept", "_mutex", "_of_all", "by_user", "maximum", "names", "used",
                 "user_max")  # fmt: skip

    def __init__(
        self,
        of_all: Budget,
        names: Names,
        database: "Database",
        *,
        is_alone: bool = True,
        is_halved: bool = False,
    ) -> None:
        """is_alone: the tablespace `default` may have all of it, and not three quarters.

        is_halved: a user may have half; else what take() is told.
        """
        self._of_all = of_all
        self._database = database
        self.names = names
        maximum = of_all.maximum
        self.maximum = maximum
        """How much the tablespace may have."""
        self.resize(is_alone=is_alone)
        self.user_max = max(1, int(_USER_SHARE * maximum)) if is_halved else None
        """How much a user may have who is no superuser of `default`; None: see take()."""
        self._kept = min(max(1, int(_KEPT_SHARE * maximum)), maximum - 1)
        self.used = 0
        self.by_user: dict[User, int] = {}
        self._mutex = new_mutex()

    def resize(self, *, is_alone: bool) -> None:
        """Let the tablespace have all of it, or three quarters; what it holds it keeps."""
        maximum = self._of_all.maximum
        has_all = is_alone and self._database.name == DEFAULT
        self.maximum = maximum if has_all else tablespace_share(maximum)

    def take(self, user: User | None, count: int = 1, user_max: int | None = None) -> Full | None:
        """Take so much for a user, None: for who did not log in; or say why that is too much.

        user_max: what the user's role may have.
        """
        of_all, names = self._of_all, self.names
        is_administrator = self.is_administrator(user)
        if user_max is None and not is_administrator:
            user_max = self.user_max
        with self._mutex:
            own = 0 if user is None else self.by_user.get(user, 0)
            if user is not None and user_max is not None and own + count > user_max:
                self._database.refusals.add(names.of_user, user)
                hint = (
                    f"the limit is {names.of_user} of the role"
                    if self.user_max is None
                    else f"a user other than a superuser of {DEFAULT} has half of {names.of_all}"
                )
                return Full(names.of_user, f'user "{user.name}"', own, user_max, hint)
            if self.used + count > self.maximum < of_all.maximum:
                self._database.refusals.add(names.of_tablespace)
                name = self._database.name
                whose, which = f'tablespace "{name}"', f"a tablespace other than {DEFAULT}"
                if name == DEFAULT:
                    whose, which = "the tablespace", "each of several tablespaces on a node"
                hint = f"{which} has three quarters of {names.of_all}"
                return Full(names.of_tablespace, whose, self.used, self.maximum, hint)
            kept = 0 if is_administrator else self._kept
            if not of_all.take(count, kept=kept):
                return full_of_all(of_all, names, kept)
            self._add(user, count)
        return None

    def carry(self, user: User | None, count: int) -> None:
        """Count as the user's what was taken of the budget before it was known whose it is."""
        with self._mutex:
            self._add(user, count)

    def give(self, user: User | None, count: int = 1) -> None:
        self._of_all.give(count)
        with self._mutex:
            self._add(user, -count)

    def _add(self, user: User | None, count: int) -> None:
        self.used += count
        if user is not None:
            own = self.by_user.get(user, 0) + count
            if own:
                self.by_user[user] = own
            else:
                self.by_user.pop(user, None)

    def is_administrator(self, user: User | None) -> bool:
        """Return whether a user has what is kept, and may have all."""
        return self._database.is_administrator(None if user is None else user.name)


def full_of_all(budget: Budget, names: Names, kept: int = 0) -> Full:
    """Return what it means that a budget has no room, so much of which is kept for others."""
    hint = f"the server's limit is {names.of_all}"
    if kept:
        hint += f", of which the last tenth is kept for superusers of {DEFAULT}"
    return Full(names.of_all, "all connections", budget.used, budget.maximum, hint)


class Account:
    """What one connection has of a budget: of the whole of it until it is known whose it is.

    One thread at a time.
    """

    __slots__ = ("_names", "_of_all", "_share", "_user", "used")

    def __init__(self, of_all: Budget, names: Names) -> None:
        self._of_all = of_all
        self._names = names
        self._share: Share | None = None
        self._user: User | None = None
        self.used = 0

    def enter(self, share: Share, user: User | None) -> "Account":
        """Have what it holds, and will take, counted in the share of a tablespace; itself."""
        self._share, self._user = share, user
        share.carry(user, self.used)
        return self

    def take(self, count: int) -> Full | None:
        """Take so much; or say why that is too much."""
        if self._share is not None:
            full = self._share.take(self._user, count)
        else:
            full = None if self._of_all.take(count) else full_of_all(self._of_all, self._names)
        if full is None:
            self.used += count
        return full

    def give(self, count: int) -> None:
        """Give back to what it was taken of."""
        self.used -= count
        if self._share is not None:
            self._share.give(self._user, count)
        else:
            self._of_all.give(count)


def too_many_results(full: Full) -> Error:
    """Return what the statement hears whose result may not be open beside the others."""
    return OperationalError(
        f"{full.used} results of {full.whose} are open",
        sqlstate="53400",
        retry=Retry.SAFE,
        hint=f"try again when others were fetched or closed; {full.hint}",
    )


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
