"""The rows of syslimits and syswaits: how much of each limit is used, and who waits for what.

The engine knows its own limits and waits; a server adds what it bounds beside. Rows are made when
they are asked for, without any lock but the monitor's for who holds a lock. Any thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from herdpy.limits import leases_max, stagings_max
from herdpy.model.access import User
from herdpy.model.governor import AccountFigures
from herdpy.model.role_settings import (
    LEASES,
    OPEN_RESULTS,
    SIZES,
    STAGINGS,
    TIMEOUTS,
)
from herdpy.model.types import Row
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.engine.database import Database
    from herdpy.engine.session.session import Session

CONNECTIONS_MAX = "connections_of_tablespace_max"
"""What syslimits calls the limit of a tablespace: a server has one of all connections."""
MEMORY_OF_TABLESPACE = "memory_of_tablespace"
"""What it calls the part of a node's memory that a copy may have."""
WAITS_FOR: tuple[str, ...] = (
    "lock", "memory", "result", "tablespace_turn", "turn", "worker",
)  # fmt: skip
_HOLDERS_SHOWN_MAX = 10
_MS_PER_S = 1_000
_US_PER_MS = 1_000


class LimitRow(NamedTuple):
    """One limit; of a user's role, or of all with user "". Fields that nothing counts are 0."""

    name: str
    user: str
    share: int
    """How much there may be."""
    used: int
    refused: int = 0
    waits: int = 0
    """How many have had to wait, those that wait now included."""


class WaitRow(NamedTuple):
    """A session whose statement waits."""

    session: int
    statement: int | None
    """None: it has not begun."""
    waits_for: str
    """One of WAITS_FOR."""
    waited_s: float
    held_by: tuple[int, ...] = ()
    """Sessions that hold what it waits for."""


class LimitRows:
    """Where rows come from; sources are added before the first row is asked for."""

    def __init__(self) -> None:
        self._limits: list[Callable[[], Iterable[LimitRow]]] = []
        self._waits: list[Callable[[], Iterable[WaitRow]]] = []

    def add(
        self,
        limits: Callable[[], Iterable[LimitRow]],
        waits: Callable[[], Iterable[WaitRow]],
    ) -> None:
        """Have these asked, too."""
        self._limits.append(limits)
        self._waits.append(waits)

    def limits(self) -> list[LimitRow]:
        """Return the limits; what two sources count of one is the greater, what it refused all."""
        found: dict[tuple[str, str], LimitRow] = {}
        for source in self._limits:
            for row in source():
                other = found.get((row.name, row.user))
                if other is not None:
                    refused, waits = row.refused + other.refused, row.waits + other.waits
                    used = max(row.used, other.used)
                    row = row._replace(used=used, refused=refused, waits=waits)
                found[row.name, row.user] = row
        return sorted(found.values())

    def waits(self) -> Iterator[WaitRow]:
        """Yield who waits, as each source has it."""
        for source in self._waits:
            yield from source()

    def limit_rows(self) -> Iterator[Row]:
        """Yield the rows of syslimits."""
        yield from self.limits()


def shown_waits(databases: Sequence["Database"]) -> list[WaitRow]:
    """Return who waits in these, each session once, the longest wait first.

    What a server knows is of all tablespaces: sessions of others are left out, as waiters and as
    holders.
    """
    shown = {session.id for database in databases for session in database.sessions()}
    found: dict[int, WaitRow] = {}
    for database in databases:
        for row in database.limits.waits():
            if row.session in shown and row.session not in found:
                held_by = tuple(number for number in row.held_by if number in shown)
                found[row.session] = row._replace(held_by=held_by)
    return sorted(found.values(), key=lambda row: -row.waited_s)


def wait_rows(waits: Iterable[WaitRow]) -> Iterator[Row]:
    """Yield the rows of syswaits."""
    for row in waits:
        held_by = listed(row.held_by) or None
        yield row.session, row.statement, row.waits_for, row.waited_s, held_by


def listed(sessions: Sequence[int]) -> str:
    """Return the numbers of sessions for people: the first ten, and how many more there are."""
    shown = ", ".join(map(str, sessions[:_HOLDERS_SHOWN_MAX]))
    more = len(sessions) - _HOLDERS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def engine_limits(database: "Database") -> Iterator[LimitRow]:
    """Yield the limits of one database."""
    results, tablespace, refused = database.results, database.tablespace, database.refusals.count
    yield LimitRow(
        "vector_results", "", results.count_max, results.used, results.refused, results.waits
    )
    connections_max = database.entry.limits.connections_max
    if connections_max is not None:
        count = len(database.sessions())
        yield LimitRow(CONNECTIONS_MAX, "", connections_max, count, refused(CONNECTIONS_MAX))
    config, instance = database.config, database.instance
    memory, spilled = database.vectors.usage_of(None)
    for name, share, used in (
        ("vector_bytes_max", config.vector_bytes_max, memory),
        ("vector_spill_bytes_max", config.vector_spill_bytes_max, spilled),
    ):
        # Of DuckDB's instance for all, whoever shows it.
        of_all = instance.resources.refusals.count(name) if database.name == DEFAULT else 0
        yield LimitRow(name, "", share, used, refused(name) + of_all)
    leases = [lease.owner for lease in tablespace.applier.leases]
    jobs = [job.user for job in list(tablespace.state.staged.jobs.values())]
    yield LimitRow(LEASES, "", leases_max, len(leases), refused(LEASES))
    yield LimitRow(STAGINGS, "", stagings_max, len(jobs), refused(STAGINGS))
    yield from _memory(database)
    held = {
        # Of this tablespace: another one may have a user of the same name and number.
        OPEN_RESULTS: Counter(
            each.user for each in results.holders if each.refusals is database.refusals
        ),
        LEASES: Counter(leases),
        STAGINGS: Counter(jobs),
    }
    for user, setting, maximum in role_maxima(database, held):
        yield LimitRow(setting, user.name, maximum, held[setting][user], refused(setting, user))
    for user, setting, maximum in role_maxima(database, SIZES):
        place = SIZES.index(setting)
        used = database.vectors.usage_of(user)[place]
        yield LimitRow(setting, user.name, maximum, used, refused(setting, user))
    yield from _timeouts(database)


def _memory(database: "Database") -> Iterator[LimitRow]:
    """Yield the limits of memory: of all, of what its kinds have, of a copy what is the node's."""
    memory, bytes_max = database.memory, database.config.memory_bytes_max

    def row(name: str, account: AccountFigures) -> LimitRow:
        share = bytes_max if account.bytes_max is None else account.bytes_max
        return LimitRow(name, "", share, account.bytes_used, account.refused, account.waits)

    all_of_it, *kinds = memory.kinds()
    if memory.is_of_node:
        yield row("memory", memory.node_figures())
        yield row(MEMORY_OF_TABLESPACE, all_of_it)
    else:
        yield row("memory", all_of_it)
    for account in kinds:
        yield row(f"memory_{account.path.rpartition('/')[2]}", account)


def _timeouts(database: "Database") -> Iterator[LimitRow]:
    """Yield the time-outs, in milliseconds: the longest there is now, and what they have ended."""
    refused = database.refusals.count
    longest: dict[tuple[str, str], float] = {}
    for session in database.sessions():
        for setting, seconds in session.times_s():
            for user in {"", session.user or ""}:
                key = setting, user
                longest[key] = max(longest.get(key, 0.0), seconds)
    for setting in TIMEOUTS:
        # A server has a default, which it shows; here there is none.
        longest_ms = int(longest.get((setting, ""), 0.0) * _MS_PER_S)
        yield LimitRow(setting, "", 0, longest_ms, refused(setting))
    for user, setting, maximum_us in role_maxima(database, TIMEOUTS):
        longest_ms = int(longest.get((setting, user.name), 0.0) * _MS_PER_S)
        share = maximum_us // _US_PER_MS
        yield LimitRow(setting, user.name, share, longest_ms, refused(setting, user))


def role_maxima(database: "Database", settings: Iterable[str]) -> Iterator[tuple[User, str, int]]:
    """Yield the users whose roles have maxima of these settings, with setting and maximum."""
    for user, maxima in database.tablespace.state.catalog.access.limited_users():
        yield from ((user, setting, maxima[setting]) for setting in settings if setting in maxima)


def engine_waits(database: "Database") -> Iterator[WaitRow]:
    """Yield who waits for a lock, or for the place of a result."""
    now_s = database.clock.monotonic()
    sessions = database.sessions()
    for session in sessions:
        wait, running = session.waiting, session.running
        if wait is None or running is None:
            continue
        held_by: Iterable[int] = ()
        if wait.what == "lock":
            held_by = _lock_holders(database, session, sessions)
        elif wait.what == "result":
            held_by = dict.fromkeys(each.session for each in database.results.holders)
        waited_s = max(0.0, now_s - wait.since_s)
        yield WaitRow(session.id, running.id, wait.what, waited_s, tuple(held_by))


def _lock_holders(
    database: "Database", session: "Session", sessions: list["Session"]
) -> Iterator[int]:
    """Yield the sessions that hold, or wait before it for, what a session waits for."""
    tablespace = database.tablespace
    transaction = session.transaction or session.statement
    if transaction is None:
        return
    with tablespace.monitor:
        owners = set(map(id, tablespace.locks.in_the_way_of(transaction)))
    for other in sessions:
        if owners & {id(other.transaction), id(other.statement)}:
            yield other.id
