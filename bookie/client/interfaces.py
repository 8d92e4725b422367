"""Channels: requests to bookies, as the machines' runners see them.

Everything happens on one asyncio loop. Each call is answered by exactly one on_done, never from
within the call. There are no retries: silence becomes TIMED_OUT, a bookie that is not registered
or not reachable UNAVAILABLE.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bookie.ledger.types import BookieId, Status

BytesLike = bytes | bytearray | memoryview
OnStatus = Callable[[Status], None]


@dataclass(frozen=True, slots=True)
class ReadReply:
    """Answer to a read. Empty body with OK: a long poll without news."""

    status: Status
    entry_id: int = -1
    body: BytesLike = b""
    """The whole entry packet, digest not yet verified."""
    max_lac: int | None = None


@dataclass(frozen=True, slots=True)
class LacReply:
    """Answer to READ_LAC: packets as stored, not yet verified; empty when there is none."""

    status: Status
    lac_body: BytesLike = b""
    last_entry_body: BytesLike = b""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """Answer to GET_BOOKIE_INFO, in bytes."""

    status: Status
    total_bytes: int = 0
    free_bytes: int = 0


class Channels(Protocol):
    """One connection or more to every bookie that is asked. See the module."""

    def add(
        self,
        bookies: tuple[BookieId, ...],
        ledger_id: int,
        entry_id: int,
        master_key: bytes,
        packet: BytesLike,
        on_done: Callable[[BookieId, Status], None],
        *,
        is_recovery: bool = False,
        is_high_priority: bool = False,
        is_deferred_sync: bool = False,
    ) -> None:
        """Send one entry to each of `bookies` (encoded once); on_done once for each of them.

        is_high_priority: read-only bookies take it as well, as a ledger's recovery needs.
        """
        ...

    def read(
        self,
        bookie: BookieId,
        ledger_id: int,
        entry_id: int,
        on_done: Callable[[ReadReply], None],
        *,
        fence_key: bytes | None = None,
        previous_lac: int | None = None,
        wait_ms: int | None = None,
        is_piggyback: bool = False,
        is_high_priority: bool = False,
    ) -> None:
        """Read one entry (-1: the last one held). fence_key fences with that master key.

        previous_lac makes it a long poll, at most wait_ms long, on top of the read time-out.
        """
        ...

    def read_lac(
        self, bookie: BookieId, ledger_id: int, on_done: Callable[[LacReply], None]
    ) -> None: ...

    def write_lac(
        self,
        bookie: BookieId,
        ledger_id: int,
        master_key: bytes,
        lac: int,
        packet: BytesLike,
        on_done: OnStatus,
    ) -> None: ...

    def force(self, bookie: BookieId, ledger_id: int, on_done: OnStatus) -> None:
        """Make durable on this bookie all that it acknowledged of the ledger."""
        ...

    def break_count(self, bookie: BookieId, ledger_id: int) -> int:
        """Return how often the ledger's connection to this bookie has ended so far.

        While it stays the same the bookie has not restarted, and has lost nothing that it
        acknowledged without fsync.
        """
        ...

    def info(self, bookie: BookieId, on_done: Callable[[BookieInfo], None]) -> None: ...

    def list_entries(
        self, bookie: BookieId, ledger_id: int, on_done: Callable[[Status, bytes], None]
    ) -> None:
        """Ask which entries the bookie holds; the bytes are docs/formats/availability.md's."""
        ...
