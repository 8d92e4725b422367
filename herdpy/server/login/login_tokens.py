"""Tokens: what a login gave out, to be shown instead of the password for a while.

A token counts until its time is over, its user is dropped, or her password changes or may not be
used any more, or the server ends; and only over TLS with the client certificate that it was given
to, if there was one. The server keeps its hash. A password that was proved in a call counts as a
token, too: deriving its key is made to be dear, and the next call with it does without. Of it the
server keeps a hash under a key of this process. On the server's loop.
"""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bookie.runtime.interfaces import Clock, Rng
from herdpy.engine.access.passwords import Login
from herdpy.errors import OperationalError
from herdpy.model.access import User

if TYPE_CHECKING:
    from herdpy.engine.database import Database

TOKENS_MAX = 10_000
"""Beyond it the oldest one of the tablespace that has most counts no more."""
TOKENS_OF_DEFAULT_KEPT = 1_000
"""So many of `default` give way to none of other tablespaces."""
TOKENS_OF_USER_MAX = 100
"""Beyond it the user's oldest one counts no more."""
_SECRET_BYTES = 32


class Proven(NamedTuple):
    """What a user of a tablespace has proved: how she could log in then.

    Names say neither whose that is: a tablespace, and a user, may get the name of another one.
    """

    tablespace_id: bytes
    """TablespaceEntry.id."""
    login: Login

    @property
    def user(self) -> User:
        return self.login.user

    def counts(self, now: "Proven | None") -> bool:
        """Return whether it does, `now` being how the user of both names may log in now."""
        return now == self and self.login.may_login


def proven_of(database: "Database", user: str) -> Proven | None:
    """Return what a proof of a tablespace's user would be good for; None: there is no such user."""
    login = database.login(user)
    return None if login is None else Proven(database.entry.id, login)


class _Given(NamedTuple):
    proven: Proven
    certificate: bytes
    until_s: float

    @property
    def key(self) -> tuple[bytes, str]:
        return self.proven.tablespace_id, self.proven.user.name


class Tokens:
    def __init__(
        self,
        login_in: Callable[[bytes, str], Proven | None],
        clock: Clock,
        rng: Rng,
        lifetime_s: float,
        default_id: Callable[[], bytes],
    ) -> None:
        """login_in(id of a tablespace, user) tells how a user may log in now.

        default_id() gives the id of `default`, whose first one may come later.
        """
        self.lifetime_s = lifetime_s
        self._login_in = login_in
        self._clock = clock
        self._rng = rng
        self._secret = rng.randbytes(_SECRET_BYTES)  # of the passwords' hashes
        self._given: dict[bytes, _Given] = {}  # the oldest first, by hash
        self._default_id = default_id
        self._of_users: Counter[tuple[bytes, str]] = Counter()
        self._of_tablespaces: Counter[bytes] = Counter()

    def give(self, proven: Proven, certificate: bytes) -> str:
        """Return a new token of a user who has proved the password of this login."""
        token = urlsafe_b64encode(self._rng.randbytes(_SECRET_BYTES)).decode().rstrip("=")
        self._keep(_hash(token), _Given(proven, certificate, 0.0))
        return token

    def remember(self, proven: Proven, password: str, certificate: bytes) -> None:
        """Note that a user has proved the password of this login by this very text."""
        key = self._hash_of(proven.tablespace_id, proven.user.name, password)
        self._keep(key, _Given(proven, certificate, 0.0))

    def _keep(self, key: bytes, given: _Given) -> None:
        user = given.key
        self._drop_expired()
        if key in self._given:
            self._drop(key)
        while len(self._given) >= TOKENS_MAX:
            most = self._who_gives_way()
            self._drop(next(key for key, each in self._given.items() if each.key[0] == most))
        while self._of_users[user] >= TOKENS_OF_USER_MAX:
            self._drop(next(key for key, each in self._given.items() if each.key == user))
        until_s = self._clock.monotonic() + self.lifetime_s
        self._given[key] = given._replace(until_s=until_s)
        self._of_users[user] += 1
        self._of_tablespaces[user[0]] += 1

    def _who_gives_way(self) -> bytes:
        """Return the tablespace that has most of what any of them may have."""
        counts = dict(self._of_tablespaces)
        default_id = self._default_id()
        if default_id in counts:
            counts[default_id] -= TOKENS_OF_DEFAULT_KEPT
        return max(counts, key=counts.__getitem__)

    def has_given(self, token: str) -> bool:
        """Return whether a token is one of these, whatever it proves."""
        return _hash(token) in self._given

    def proven_by(self, token: str, certificate: bytes) -> Proven:
        """Return what a token proves; OperationalError 28000: it is not valid any more."""
        found = self._proven_by(_hash(token), certificate)
        if found is not None:
            return found
        raise OperationalError(
            "the token is none, its time is over, or its user was dropped or has another password",
            sqlstate="28000",
            hint="call Login for another one",
        )

    def remembered(
        self, tablespace_id: bytes, user: str, password: str, certificate: bytes
    ) -> Proven | None:
        """Return what a password proves, if it was proved lately; None: it has to be."""
        return self._proven_by(self._hash_of(tablespace_id, user, password), certificate)

    def _proven_by(self, key: bytes, certificate: bytes) -> Proven | None:
        self._drop_expired()
        given = self._given.get(key)
        if given is not None and hmac.compare_digest(given.certificate, certificate):
            if given.proven.counts(self._login_in(*given.key)):
                return given.proven
            self._drop(key)
        return None

    def _hash_of(self, tablespace_id: bytes, user: str, password: str) -> bytes:
        text = f"{tablespace_id.hex()}\0{user}\0{password}".encode(errors="surrogatepass")
        return hmac.digest(self._secret, text, hashlib.sha256)

    def _drop_expired(self) -> None:
        now_s = self._clock.monotonic()
        while self._given:
            key, oldest = next(iter(self._given.items()))
            if oldest.until_s > now_s:
                return
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        user = self._given.pop(key).key
        _count_down(self._of_users, user)
        _count_down(self._of_tablespaces, user[0])

    def __len__(self) -> int:
        return len(self._given)


def _count_down(counts: Counter[Any], key: Any) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
