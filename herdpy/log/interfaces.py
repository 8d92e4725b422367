"""CommitLog: what the engine needs of a log, whatever keeps it (memory, file, later ledgers)."""

from collections.abc import Iterator
from typing import Protocol

from herdpy.errors import Error
from herdpy.model.lsn import Lsn


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


class CommitLog(Protocol):
    """A sequence of records with a durable prefix.

    Threads: append() under the tablespace's monitor, one caller at a time; write() and sync() by
    any thread (they exclude each other inside); the properties by any thread, without a lock.
    """

    @property
    def log_id(self) -> bytes:
        """16 random bytes that every frame carries."""
        ...

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
        """Why the log stopped for good (failed fsync), or None."""
        ...

    @property
    def bytes_appended(self) -> int:
        """Bytes appended since open, frame overhead excluded; for checkpoint triggers."""
        ...

    @property
    def place(self) -> tuple[int, int, int, int] | None:
        """Where the newest frame begins, None when there is no file yet.

        (file number, offset, sequence, length of the file).

        replay() may begin there when everything before that frame is in a checkpoint.
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

    def prepare(self, byte_count: int) -> None:
        """Make room for byte_count bytes of records; does I/O. OSError: nothing changed."""
        ...

    def free_spares(self) -> bool:
        """Remove the files that are kept for later use; False: there were none."""
        ...

    def write(self) -> None:
        """Hand what is appended to the operating system; written_lsn moves."""
        ...

    def sync(self) -> None:
        """Make durable what was appended before the call; durable_lsn moves.

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

        CorruptionError (file, offset) for damage inside the durable prefix or a missing file.
        """
        ...

    def drop_before(self, lsn: Lsn) -> None:
        """Forget what lies wholly at or before lsn; keeps whatever it cannot drop whole."""
        ...

    def close(self) -> None:
        """Sync, write a mark, release files; idempotent."""
        ...
