"""MemoryLog: a CommitLog that lives and dies with its process; all it takes is durable at once.

For tests and for ":memory:" databases. Each append is an entry of its own. Unlike other logs it
may be replayed at any time; what drop_before() does not drop stays in memory.
"""

from collections.abc import Iterator

from bookie.runtime.drivers import new_mutex
from herdpy.errors import Error, InvariantViolation
from herdpy.log.interfaces import Append
from herdpy.model.lsn import FILE_LEDGER_ID, START_LSN, Lsn


class MemoryLog:
    """CommitLog over a list of (append, lsn of its last record)."""

    def __init__(self, log_id: bytes) -> None:
        self._log_id = log_id
        # Guarded by _mutex; the last entry is never dropped, it knows the position.
        self._mutex = new_mutex()
        self._entries: list[tuple[Append, Lsn]] = []
        self._bytes_appended = 0

    @property
    def log_id(self) -> bytes:
        return self._log_id

    @property
    def last_lsn(self) -> Lsn:
        entries = self._entries
        return entries[-1][1] if entries else START_LSN

    @property
    def durable_lsn(self) -> Lsn:
        return self.last_lsn

    @property
    def written_lsn(self) -> Lsn:
        return self.last_lsn

    @property
    def failure(self) -> Error | None:
        return None

    @property
    def bytes_appended(self) -> int:
        return self._bytes_appended

    @property
    def place(self) -> tuple[int, int, int, int] | None:
        return None

    def append(self, append: Append, *, is_urgent: bool = False) -> None:
        if not append.records:
            raise InvariantViolation("log: an append without records")
        with self._mutex:
            last = self._entries[-1] if self._entries else None
            if last is None or last[0] is not append:
                entry_id = (last[1] if last else START_LSN).entry_id + 1
                lsn = Lsn(FILE_LEDGER_ID, entry_id, len(append.records) - 1)
                self._bytes_appended += sum(map(len, append.records))
                self._entries.append((append, lsn))  # the moment of effect
            append.lsn = self._entries[-1][1]

    def has_taken(self, append: Append) -> bool:
        entries = self._entries
        return bool(entries) and entries[-1][0] is append

    def prepare(self, byte_count: int) -> None:
        """Do nothing: memory needs no room made."""

    def free_spares(self) -> bool:
        return False

    def write(self) -> None:
        """Do nothing: what is appended is written."""

    def sync(self) -> None:
        """Do nothing: what is appended is durable."""

    def mark(self) -> None:
        """Do nothing: nothing here survives to be doubted."""

    def replay(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        for append, last in tuple(self._entries):
            for index, record in enumerate(append.records):
                lsn = Lsn(last.ledger_id, last.entry_id, index)
                if lsn > after:
                    yield lsn, record

    def drop_before(self, lsn: Lsn) -> None:
        with self._mutex:
            entries = self._entries
            self._entries = [item for item in entries[:-1] if item[1] > lsn] + entries[-1:]

    def close(self) -> None:
        """Do nothing: the memory goes with the object."""
