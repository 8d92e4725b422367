"""DatabaseStats: what the engine says of its work and its state, for metrics and status pages.

Timed holds what took how long, added to by any thread; stats_of() reads the state at one moment,
without the tablespace's monitor, so the numbers may differ by what happens meanwhile.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bookie.runtime.interfaces import Clock
from bookie.runtime.metrics import Histogram
from herdpy.model.lsn import Lsn

if TYPE_CHECKING:
    from herdpy.engine.database import Database

T = TypeVar("T")


class Timed:
    """How long one kind of work took. Any thread.

    No lock, so that an interrupt cannot leave one behind on the way of every commit: of two that
    end at the same instant in two threads one may go uncounted.
    """

    __slots__ = ("_clock", "_ended_s", "histogram", "last_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram()
        self._ended_s: float | None = None
        self.last_s = 0.0
        """How long the newest one took."""

    def measure(self, step: Callable[[], T]) -> T:
        """Run a step and note how long it took, if it came to its end."""
        begun_s = self._clock.monotonic()
        result = step()
        self._ended_s = ended_s = self._clock.monotonic()
        self.last_s = ended_s - begun_s
        self.histogram.observe(self.last_s)
        return result

    @property
    def last_success_us(self) -> int | None:
        """When the last one ended well, by the wall clock as it is now; None: never."""
        if self._ended_s is None:
            return None
        ago_s = self._clock.monotonic() - self._ended_s
        return self._clock.wall_us() - int(ago_s * 1e6)


class DatabaseStats(NamedTuple):
    """A database at one moment."""

    last_lsn: Lsn
    durable_lsn: Lsn
    log_entries: int
    log_bytes: int
    """Appended since the database was opened."""
    tables: int
    pages: int
    memtable_rows: int
    memtable_bytes: int
    version_bytes: int
    """Of row versions that only old snapshots need."""
    sessions: int
    statements: int
    """That run or wait."""
    transactions: int
    """That have written and not ended."""
    leases: int
    """Snapshots that are kept."""
    checkpoint_error: str | None
    failure: str | None
    """Why nothing can be written any more, None while all is well."""


def stats_of(database: "Database") -> DatabaseStats:
    """Return the figures now. Any thread."""
    tablespace = database.tablespace
    states = list(tablespace.state.tables.values())
    memtables = [table for state in states for table in (state.memtable, *state.frozen)]
    sessions = database.sessions()
    log = tablespace.log
    failure = tablespace.failure or log.failure
    checkpoint_error = database.checkpoint_error
    return DatabaseStats(
        last_lsn=log.last_lsn,
        durable_lsn=log.durable_lsn,
        log_entries=log.entry_count,
        log_bytes=log.bytes_appended,
        tables=len(states),
        pages=sum(
            len(level) for state in states for level in (state.pages.base, *state.pages.runs)
        ),
        memtable_rows=sum(map(len, memtables)),
        memtable_bytes=sum(memtable.byte_count for memtable in memtables),
        version_bytes=tablespace.version_bytes(),
        sessions=len(sessions),
        statements=sum(session.running is not None for session in sessions),
        transactions=len(tablespace.applier.transactions),
        leases=len(tablespace.applier.leases),
        checkpoint_error=None if checkpoint_error is None else checkpoint_error.message,
        failure=None if failure is None else failure.message,
    )
