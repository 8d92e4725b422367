"""What the parts of the bookie ask of each other: the wire of the rules, the rules of an index.

BookieService is what dispatch (v3, v2) calls; everything happens on one asyncio loop. EntryIndex is
what the ledger storage calls, from any executor thread.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from bookie.ledger.types import Status

BytesLike = bytes | bytearray | memoryview
OnStatus = Callable[[Status], None]


class BookieService(Protocol):
    """The rules of one bookie, without the wire. Ids of an entry are those inside its packet.

    Each on_done is called exactly once, on the loop, maybe before the call returns when the answer
    is known at once. `packet` may be a view of a receive buffer: what is kept is copied.
    """

    @property
    def is_read_only(self) -> bool: ...

    def add(
        self,
        packet: BytesLike,
        master_key: bytes,
        on_done: OnStatus,
        *,
        is_recovery: bool = False,
        is_deferred_sync: bool = False,
        is_high_priority: bool = False,
    ) -> None:
        """Store an entry; OK after the journal's fsync (deferred: after its write).

        READ_ONLY, TOO_MANY_REQUESTS (write cache or journal queue full), FENCED, UNAUTHORIZED,
        IO_ERROR, BAD_REQUEST.
        """
        ...

    def fence(self, ledger_id: int, master_key: bytes, on_done: OnStatus) -> None:
        """Refuse normal adds from now on; OK after fence and master key are durable (G6).

        TOO_MANY_REQUESTS (records of too many ledgers wait for a flush), UNAUTHORIZED, IO_ERROR,
        BAD_REQUEST.
        """
        ...

    def read(
        self, ledger_id: int, entry_id: int, on_done: Callable[[Status, BytesLike], None]
    ) -> None:
        """Hand out the entry packet (entry_id -1: of the last one held), or the status why not."""
        ...

    def last_add_confirmed(self, ledger_id: int) -> int | None:
        """Return the highest LAC known from entries and explicit LACs; None: unknown ledger.

        May not block: from memory (loaded when the ledger was first touched), else from the index.
        """
        ...

    def watch_lac(self, ledger_id: int, previous_lac: int, callback: Callable[[], None]) -> object:
        """Call back once when the LAC exceeds previous_lac, or the ledger is fenced or closed.

        Returns a token for forget_watch(); the callback may come at once, from within.
        """
        ...

    def forget_watch(self, token: object) -> None: ...

    def write_lac(
        self, ledger_id: int, master_key: bytes, packet: BytesLike, on_done: OnStatus
    ) -> None:
        """Keep the packet, not looked at; OK after the journal's fsync; a fence does not matter.

        READ_ONLY, TOO_MANY_REQUESTS, NO_LEDGER (fenced and deleted), UNAUTHORIZED, IO_ERROR.
        """
        ...

    def read_lac(
        self, ledger_id: int, on_done: Callable[[Status, BytesLike, BytesLike], None]
    ) -> None:
        """Hand out the stored explicit LAC packet and the last entry packet; empty: none.

        Neither: NO_ENTRY, also of an unknown ledger.
        """
        ...

    def force(self, ledger_id: int, on_done: OnStatus) -> None: ...

    def list_entries(
        self, ledger_id: int, on_done: Callable[[Status, Sequence[int]], None]
    ) -> None:
        """Hand out the ids of the entries held, ascending."""
        ...

    def space(self) -> tuple[int, int]:
        """Return (total, free) bytes over the ledger directories."""
        ...


class LedgerRecord(NamedTuple):
    """What the index keeps of a ledger."""

    master_key: bytes
    is_fenced: bool
    explicit_lac: bytes
    """The packet as it came; empty when there is none."""
    last_add_confirmed: int = -1
    """The highest LAC seen in entries and explicit LACs when the record was written."""
    is_in_limbo: bool = False
    """Entries, or the fence, may have been on a directory that was lost: nothing is denied."""


class EntryIndex(Protocol):
    """Where entries lie: (ledger_id, entry_id) -> location. Rebuildable from the entry logs.

    location = log file id << 32 | offset of the packet. Any thread may read; one writes at a time.
    A write is atomic and, after sync(), durable. What cannot be read or written is an OSError, a
    malformed ledger record a CorruptFileError.
    """

    def get(self, ledger_id: int, entry_id: int) -> int | None: ...

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        """Return (entry_id, location) of the entries held of the ids first to first + count - 1."""
        ...

    def last_entry_id(self, ledger_id: int) -> int | None:
        """Return the highest entry id, or None without entries."""
        ...

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Yield the entry ids, ascending."""
        ...

    def put(
        self,
        locations: Sequence[tuple[int, int, int]],
        ledgers: Sequence[tuple[int, LedgerRecord]] = (),
        journal: tuple[int, int] | None = None,
    ) -> None:
        """Set (ledger_id, entry_id, location) and ledger records, all or none.

        journal: with these the index has all that the journal says before this position.
        """
        ...

    def ledger(self, ledger_id: int) -> LedgerRecord | None: ...

    def ledger_ids(self) -> Iterator[int]:
        """Yield the ids of all ledgers with a record, ascending."""
        ...

    @property
    def highest_ledger_id(self) -> int:
        """The highest id that a ledger record was ever put of, deleted since or not; -1: none."""
        ...

    @property
    def is_metadata_older(self) -> bool:
        """Tell what note_metadata() was told last: the metadata store is older than this index."""
        ...

    def note_metadata(self, *, is_older: bool) -> None:
        """Remember it; includes sync(). Not older: the highest id is that of the ledgers here."""
        ...

    @property
    def owner(self) -> str | None:
        """The bookie that the index is of, as set_owner() was told; None: nothing yet."""
        ...

    def set_owner(self, owner: str) -> None:
        """Remember whose index this is; includes sync()."""
        ...

    @property
    def journal_position(self) -> tuple[int, int] | None:
        """The position that put() was told last; None: nothing yet."""
        ...

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the record and every location."""
        ...

    @property
    def is_whole(self) -> bool:
        """Tell whether set_whole() was called; if not, entry logs may hold what this does not."""
        ...

    def set_whole(self) -> None:
        """Remember that everything there is to find is in the index; includes sync()."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...
