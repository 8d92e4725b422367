"""FollowedLog: the log as a copy has it that follows: what others have written, and nothing else.

It is behind the copy, not before it: took() says how far the copy is. All that it has been given
was durable before.
"""

from collections.abc import Iterator

from herdpy.errors import Error, InvariantViolation
from herdpy.log.interfaces import Append, OnDurable, OnFailure, ReplayHint, Syncer
from herdpy.model.durability import Durability
from herdpy.model.lsn import START_LSN, Lsn


class FollowedLog:
    """Implements CommitLog, and is its own Syncer; took() by one thread at a time."""

    def __init__(self) -> None:
        self.last_lsn = START_LSN
        self.bytes_appended = 0
        """Bytes of the records that were taken."""
        self.entry_count = 0
        self.failure: Error | None = None
        self.failed_after: Lsn | None = None

    @property
    def durable_lsn(self) -> Lsn:
        return self.last_lsn

    @property
    def written_lsn(self) -> Lsn:
        return self.last_lsn

    @property
    def replay_hint(self) -> ReplayHint | None:
        return None

    def replay(self, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        """Begin behind a checkpoint: what comes next is taken in as it is followed."""
        self.last_lsn = after
        return iter(())

    def start(self, on_durable: OnDurable, on_failure: OnFailure) -> Syncer:
        return self

    def took(self, lsn: Lsn, byte_count: int) -> None:
        """Note that the copy has all records up to there, byte_count more than before."""
        self.last_lsn = lsn
        self.bytes_appended += byte_count

    # --- what only the copy that leads does ------------------------------------------------------

    def append(self, append: Append, *, is_urgent: bool = False) -> None:
        raise InvariantViolation("I7: a copy that follows writes nothing")

    def has_taken(self, append: Append) -> bool:
        return False

    def prepare(self, byte_count: int, file_bytes_max: int | None = None) -> None:
        raise InvariantViolation("I7: a copy that follows makes no room in the log")

    # --- nothing to be done ----------------------------------------------------------------------

    def request(self, durability: Durability) -> None:
        """Do nothing: what there is, is durable; as the five below."""

    ask = request

    def write(self) -> None: ...

    def sync(self) -> None: ...

    def mark(self) -> None: ...

    def drop_before(self, lsn: Lsn) -> None: ...

    def free_spares(self) -> bool:
        return False

    def close(self) -> None: ...
