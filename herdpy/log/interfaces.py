"""CommitLog: what the engine needs of a log, whatever keeps it: files, later ledgers.

Positions are compared as Lsns and never computed: how a log numbers its entries is its own.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from herdpy.errors import Error
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn

OnDurable = Callable[[Lsn], object]
"""Told that every record up to a position is durable; by any thread, without a lock of the log."""
OnFailure = Callable[[Error], object]
"""Told that the log stopped for good; as OnDurable."""


class Append:
    """Records that enter the log in one piece and in order; made by the engine, kept by the log.

    `lsn` is the position of the last record, set by CommitLog.append; the records before it have
    the same entry and the indexes before it, or stand in earlier entries.
    """

    __slots__ = ("lsn", "records")

    def __init__(self, records: tuple[bytes, ...]) -> None:
        self.records = records
        self.lsn: Lsn | None = None


class LogSpaceError(Exception):
    """No room is prepared for the append; nothing happened. Call prepare() outside every lock."""

    byte_count = 0
    """Bytes of records that found no room; set by the tablespace."""


class ReplayHint(NamedTuple):
    """Where replay may begin, once everything up to `behind` is in a checkpoint."""

    behind: Lsn
    data: bytes
    """For the log that is opened again; no other code reads it."""


class Syncer(Protocol):
    """Asks the log for durability. Any thread; never with the tablespace's monitor held."""

    def request(self, durability: Durability) -> None:
        """Ask for a pass; returns at once, or after having done it in this thread.

        OS is done on return, or the log has failed. NONE asks for nothing, but bounds what the log
        keeps in memory.
        """
        ...

    def ask(self, durability: Durability) -> None:
        """As request(), of SYNC or NONE, but in another thread if there is one for passes."""
        ...


class CommitLog(Protocol):
    """A sequence of records with a durable prefix.

    Threads: append() under the tablespace's monitor, one caller at a time; write() and sync() by
    any thread (they exclude each other inside); the properties by any thread, without a lock.

    Opening a log where another handle has it takes it over: every later write and sync of the
    former handle fails, every append from when it knows, and nothing of it reaches the log any
    more.
    """

    @property
    def last_lsn(self) -> Lsn:
        """The last record appended; START_LSN when none."""
        ...

    @property
    def durable_lsn(self) -> Lsn:
        """Every record up to here survives a crash."""
        ...

    @property
    def written_lsn(self) -> Lsn:
        """Every record up to here was handed to the operating system."""
        ...

    @property
    def failure(self) -> Error | None:
        """Why the log stopped for good (failed fsync, taken over), or None."""
        ...

    @property
    def failed_after(self) -> Lsn | None:
        """When it has failed: what was appended behind this is not in the log and never will be.

        What lies between it and durable_lsn may be: the next handle's replay tells.
        """
        ...

    @property
    def bytes_appended(self) -> int:
        """Bytes appended since open, frame overhead excluded; for checkpoint triggers."""
        ...

    @property
    def entry_count(self) -> int:
        """Entries of the log since it was begun; a figure for metrics."""
        ...

    @property
    def replay_hint(self) -> ReplayHint | None:
        """Where replay may begin when all that is appended so far is in a checkpoint.

        None: only at its beginning.
        """
        ...

    def start(self, on_durable: OnDurable, on_failure: OnFailure) -> Syncer:
        """Begin to tell what becomes durable, after replay(); return what asks for it.

        on_durable follows each pass of the Syncer, with durable_lsn; a pass that fails is told to
        on_failure instead.
        """
        ...

    def append(self, append: Append, *, is_urgent: bool = False) -> None:
        """Take the records and set append.lsn; no I/O, never waits.

        Repeating the call with the same Append, with no other in between, has no further effect
        (an interrupt may hide whether the first call came through). LogSpaceError: nothing
        happened, call prepare(). is_urgent may use the slack kept for rollbacks and marks.
        Raises `failure` if the log has failed.
        """
        ...

    def has_taken(self, append: Append) -> bool:
        """Tell whether append() took these records, with no other append since."""
        ...

    def prepare(self, byte_count: int, file_bytes_max: int | None = None) -> None:
        """Make room for byte_count bytes of records; does I/O. OSError: nothing changed.

        file_bytes_max: what it may take of the disk, or as much as the records need.
        """
        ...

    def free_spares(self) -> bool:
        """Give up disk space that is kept for later use; False: there was none."""
        ...

    def write(self) -> None:
        """Hand what is appended to the operating system; written_lsn moves."""
        ...

    def sync(self) -> None:
        """Make durable what was appended before the call; durable_lsn moves, no callback runs.

        On an I/O error sets `failure` and raises it; from then on every append and sync raises it.
        """
        ...

    def mark(self) -> None:
        """Leave a durable note that all appended before is durable, if none says so yet; idle work.

        Appends a NOOP record of its own, beside append(). Errors as sync().
        """
        ...

    def replay(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        """Yield every record behind `after` in order; before the first append only.

        CorruptionError (where) for damage inside the durable prefix, or a part that is missing.
        """
        ...

    def drop_before(self, lsn: Lsn) -> None:
        """Forget what lies wholly at or before lsn; keeps whatever it cannot drop whole."""
        ...

    def close(self) -> None:
        """End the Syncer, sync, write a mark, release files; idempotent. Not from a callback."""
        ...
