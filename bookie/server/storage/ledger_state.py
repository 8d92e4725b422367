"""LedgerState: what the bookie knows of one ledger while it is in memory; one per ledger (G16).

Used on the loop only. A state may be forgotten when it is not pinned: nothing of it is unflushed,
no request is under way, no long poll watches.
"""

from collections.abc import Callable
from struct import Struct

from bookie.server.interfaces import LedgerRecord

_LAC = Struct(">qq")
LAC_PACKET_BYTES_MIN = _LAC.size


class LacWatch:
    """A token of watch_lac()."""

    __slots__ = ("callback", "ledger_id", "previous_lac")

    def __init__(self, ledger_id: int, previous_lac: int, callback: Callable[[], None]) -> None:
        self.ledger_id = ledger_id
        self.previous_lac = previous_lac
        self.callback = callback


class LedgerState:
    """The one descriptor of a ledger."""

    __slots__ = (
        "explicit_lac",
        "is_dirty",
        "is_fence_durable",
        "is_fenced",
        "is_in_limbo",
        "is_key_queued",
        "lac",
        "last_entry_id",
        "ledger_id",
        "master_key",
        "next_read",
        "read_ahead",
        "requests",
        "watches",
    )

    def __init__(self, ledger_id: int, record: LedgerRecord | None, last_entry_id: int) -> None:
        self.ledger_id = ledger_id
        self.last_entry_id = last_entry_id
        """Highest entry id held; -1: none."""
        self.master_key = b"" if record is None else record.master_key
        """Empty: not known yet."""
        self.is_fenced = record is not None and record.is_fenced
        self.is_fence_durable = self.is_fenced
        self.is_in_limbo = record is not None and record.is_in_limbo
        """A lost directory may have had entries of it, or its fence."""
        self.explicit_lac = b"" if record is None else record.explicit_lac
        self.lac = -1 if record is None else record.last_add_confirmed
        self.is_key_queued = bool(self.master_key)
        """The journal, or the index, has the key."""
        self.is_dirty = False
        """The index does not have all of the record."""
        self.requests = 0
        """Journal records under way; the state stays in memory."""
        self.next_read = -1
        """The entry behind the last one that was read from an entry log."""
        self.read_ahead = 1
        """Entries that the next read in order takes from there."""
        self.watches: list[LacWatch] | None = None

    @property
    def exists(self) -> bool:
        """Tell whether anything was, or may have been, written to or fenced in this ledger."""
        return bool(
            self.master_key or self.last_entry_id >= 0 or self.is_fenced or self.is_in_limbo
        )

    @property
    def is_pinned(self) -> bool:
        return self.is_dirty or self.requests > 0 or bool(self.watches)

    def record(self) -> LedgerRecord:
        return LedgerRecord(
            self.master_key, self.is_fenced, self.explicit_lac, self.lac, self.is_in_limbo
        )

    def accepts(self, master_key: bytes) -> bool:
        """Check the key of a write. The first one binds; an all-zero one may be replaced once."""
        known = self.master_key
        if known == master_key:
            return bool(master_key)
        return bool(master_key) and not any(known)

    def set_explicit_lac(self, packet: bytes) -> None:
        """Keep the packet if it is not older than the one held."""
        _, lac = _LAC.unpack_from(packet)
        if self.explicit_lac and _LAC.unpack_from(self.explicit_lac)[1] > lac:
            return
        self.explicit_lac = packet
        self.lac = max(self.lac, lac)

    def take_watches(self, lac: int) -> list[LacWatch]:
        """Remove and return the watches that wait for less than lac."""
        watches = self.watches or []
        due = [w for w in watches if w.previous_lac < lac]
        self.watches = [w for w in watches if w.previous_lac >= lac] or None
        return due
