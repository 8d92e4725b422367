"""CommitTokens: what became of commits whose clients may ask, as state that the log makes.

A token is (session, counter): a name that the server gave out, and a number of the client's choice
that grows. It is decided by the record that is first in the log: a commit that carries it, or a
REFUSE; a commit behind a REFUSE never reaches the log. Where the database has a secret, its names
are signed by it, and no other name is refused, so that no client fills the state with names that
he made up. Outcomes are kept above the counter that the
client has acknowledged, until EXPIRE takes a whole session away. A name begins with the moment at
which it was made; `horizon` is the newest one that an EXPIRE took, so that a name which is not
here is known to be fresh (later than that) or perhaps expired. Source: ADR 0018.

Monitor of the tablespace; `is_expired` by any thread.
"""

import hashlib
import hmac
from collections.abc import Collection
from enum import Enum
from typing import Any, NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.errors import OperationalError, ProgrammingError, Retry, SerializationError
from herdpy.limits import token_outcomes_max, token_sessions_max
from herdpy.log.record import Commit, CommitStaging, CommitToken, Expire, Refuse, Rows

_STAMP_DIGITS = 14
_NAME_DIGITS = _STAMP_DIGITS + 32
_SIGNATURE_DIGITS = 16
_EXPIRED_MAX = 1_000
"""Of one record."""
_STAMP_MAX = 2**52
"""In the year 2112. By no machine's clock: another one may have made the name (ADR 84)."""
COUNTER_MAX = 2**63 - 1
PlainTokens = list[tuple[str, int, list[tuple[int, bool]]]]
"""Each session, least recently used first: name, acknowledged, (counter, whether it committed)."""


Deciding = Rows | Commit | Refuse | CommitStaging


class Outcome(Enum):
    """What became of a commit."""

    COMMITTED = "committed"
    REFUSED = "refused"
    """It did not happen and never will."""
    UNKNOWN = "unknown"
    """The token has expired: its outcome is not known any more."""


class UsedToken(NamedTuple):
    """What a commit carries; the client needs no outcome up to `acknowledged` any more."""

    token: CommitToken
    acknowledged: int


class _Kept:
    __slots__ = ("acknowledged", "outcomes")

    def __init__(self, acknowledged: int = 0) -> None:
        self.acknowledged = acknowledged
        self.outcomes: dict[int, bool] = {}


class CommitTokens:
    def __init__(self) -> None:
        self._sessions: dict[str, _Kept] = {}  # least recently used first
        self._pending: dict[CommitToken, Ticket[None]] = {}  # in the log, not applied
        self.horizon = 0

    # --- questions -------------------------------------------------------------------------------

    def is_expired(self, session: str) -> bool:
        """Return True for a name of which nothing can be said any more; it may not commit."""
        return not self._keeps(session) and stamp_of(session) <= self.horizon

    def find(self, token: CommitToken) -> "Outcome | Ticket[None] | None":
        """Return the outcome, a Ticket to wait for before asking again, or None: undecided."""
        pending = self._pending.get(token)
        if pending is not None:
            return pending
        session, counter = token
        kept = self._sessions.get(session)
        if kept is None:
            return Outcome.UNKNOWN if self.is_expired(session) else None
        if counter <= kept.acknowledged:
            return Outcome.UNKNOWN
        committed = kept.outcomes.get(counter)
        if committed is None:
            return None
        return Outcome.COMMITTED if committed else Outcome.REFUSED

    def check_commit(self, used: UsedToken) -> "tuple[CommitToken, int]":
        """Return the token, and what is acknowledged, for a COMMIT; raise unless it may have it."""
        session, counter = used.token
        kept = self._sessions.get(session)
        if kept is None and self.is_expired(session):
            raise expired_error()
        if used.token in self._pending or (
            kept is not None and (counter <= kept.acknowledged or counter in kept.outcomes)
        ):
            raise SerializationError(
                "COMMIT: the commit token is decided already: the client asked what became of this "
                "commit before it came here, and was told that it did not happen",
                sqlstate="40000",
                hint="run the transaction again, with a new token",
            )
        if kept is not None and len(kept.outcomes) >= token_outcomes_max:  # else it is surely fine
            _check_outcomes(kept, used.acknowledged)
        return used.token, used.acknowledged

    def check_refusal(self, token: CommitToken) -> None:
        """Raise unless an unused token may be refused."""
        # Names that this database gives are behind the horizon, wherever that has come to.
        if stamp_of(token[0]) > max(_STAMP_MAX, self.horizon + 1):
            raise ProgrammingError(
                "a commit token: expected a session that a server named, found one that would have "
                "been named behind the year 2112",
                sqlstate="22023",
            )
        kept = self._sessions.get(token[0])
        if kept is None and len(self._sessions) >= 2 * token_sessions_max:
            raise OperationalError(
                f"outcomes of {len(self._sessions)} sessions are kept, more are not allowed",
                sqlstate="53400",
                retry=Retry.SAFE,
            )
        if kept is not None:
            _check_outcomes(kept, 0)

    def to_expire(self, live: set[str], busy: Collection[str]) -> list[str]:
        """Return the sessions to take away, least recently used first, when there are too many.

        None of `live`. `busy` are those in a transaction: one of which nothing is kept could not
        commit behind the horizon, so none is taken that was named when it was, or later, until
        twice as many as may be are kept. Without the monitor this may see too few.
        """
        count = len(self._sessions)
        if count <= token_sessions_max:
            return []
        new = [] if count >= 2 * token_sessions_max else [n for n in busy if not self._keeps(n)]
        stamp_end = min(map(stamp_of, new), default=None)
        names = list(self._sessions)[: count - token_sessions_max // 2]
        old = (n for n in names if stamp_end is None or stamp_of(n) < stamp_end)
        return [name for name in old if name not in live][:_EXPIRED_MAX]

    def _keeps(self, session: str) -> bool:
        return session in self._sessions

    # --- records ---------------------------------------------------------------------------------

    def fill(self, record: "Deciding", ticket: Ticket[None]) -> None:
        """Note that the log has taken what decides a token; repeatable."""
        if record.token is not None:
            self._pending[record.token] = ticket

    def apply(self, record: "Deciding | Expire", *, is_effective: bool = True) -> None:
        """Take in what the log says; repeatable. Not effective: a commit that came too late."""
        if isinstance(record, Expire):
            for session in record.sessions:
                self._sessions.pop(session, None)
                self.horizon = max(self.horizon, stamp_of(session))
        elif isinstance(record, Rows | Commit | CommitStaging):
            if record.token is not None:
                acknowledged = record.acknowledged
                self._decide(record.token, is_committed=is_effective, acknowledged=acknowledged)
        else:
            self._decide(record.token, is_committed=False, acknowledged=0)

    def _decide(self, token: CommitToken, *, is_committed: bool, acknowledged: int) -> None:
        session, counter = token
        kept = self._sessions.pop(session, None) or _Kept()
        if counter > kept.acknowledged:
            kept.outcomes.setdefault(counter, is_committed)
        if acknowledged > kept.acknowledged:
            kept.acknowledged = acknowledged
            for old in [each for each in kept.outcomes if each <= acknowledged]:
                del kept.outcomes[old]
        self._sessions[session] = kept  # behind all others
        self._pending.pop(token, None)

    # --- checkpoints -----------------------------------------------------------------------------

    def to_plain(self) -> PlainTokens:
        """Return what is decided, for a checkpoint or a digest."""
        return [
            (session, kept.acknowledged, sorted(kept.outcomes.items()))
            for session, kept in self._sessions.items()
        ]

    def restore(self, plain: PlainTokens, horizon: int) -> None:
        self.horizon = horizon
        for session, acknowledged, outcomes in plain:
            kept = self._sessions[session] = _Kept(acknowledged)
            kept.outcomes.update(outcomes)


def new_session_name(now_us: int, horizon: int, random: bytes, secret: bytes | None = None) -> str:
    """Return a name that is not expired; `random` is 16 bytes that cannot be guessed.

    By the database's secret, half of them give way to a signature, which cannot be guessed either.
    """
    name = f"{max(now_us, horizon + 1):0{_STAMP_DIGITS}x}{random.hex()}"
    if secret is None:
        return name
    name = name[:-_SIGNATURE_DIGITS]
    return name + _signature(name, secret)


def is_signed(session: str, secret: bytes) -> bool:
    """Return whether the name was made by this secret."""
    name, signature = session[:-_SIGNATURE_DIGITS], session[-_SIGNATURE_DIGITS:]
    return hmac.compare_digest(signature, _signature(name, secret))


def _signature(name: str, secret: bytes) -> str:
    # The secret also makes the salts of users that are not there (proto/scram.py), which any client
    # may see: the first word keeps the two apart.
    digest = hmac.new(secret, b"session " + name.encode(), hashlib.sha256)
    return digest.hexdigest()[:_SIGNATURE_DIGITS]


def stamp_of(session: str) -> int:
    """Return the moment in a name, microseconds since 1970; 0 for what is no name."""
    try:
        return int(session[:_STAMP_DIGITS], 16)
    except ValueError:
        return 0


def checked_token(session: Any, counter: int) -> CommitToken:
    """Return a token that a client asks about; ProgrammingError 22023 for what is none."""
    is_name = len(session) == _NAME_DIGITS and all(c in "0123456789abcdef" for c in session)
    if not is_name or not 0 < counter <= COUNTER_MAX:
        raise ProgrammingError(
            "a commit token: expected a session that this server named and a positive counter",
            sqlstate="22023",
        )
    return session, counter


def _check_outcomes(kept: _Kept, acknowledged: int) -> None:
    """Raise when more are kept of a session than may be, but for those that are acknowledged."""
    if sum(counter > acknowledged for counter in kept.outcomes) >= token_outcomes_max:
        raise OperationalError(
            f"the outcomes of {token_outcomes_max} commits of one session are kept, more are "
            "not allowed",
            sqlstate="53400",
            hint="let the client acknowledge the answers that it has",
        )


def expired_error() -> OperationalError:
    """Return what a session's statement says whose name has expired; it had no effect."""
    return OperationalError(
        "the session was idle for so long that its commit tokens have expired",
        sqlstate="57P05",
        retry=Retry.SAFE,
        hint="connect again; the driver does so by itself outside transactions",
    )
