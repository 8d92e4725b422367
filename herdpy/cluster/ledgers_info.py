"""LedgersInfo: which ledgers are the log of a tablespace, and under which epoch they are written.

One node of the store, changed by compare-and-set only; docs/formats/ledgers_info.md has its bytes.
"""

import msgspec

from herdpy.cluster.json_nodes import read_node
from herdpy.errors import CorruptionError

FORMAT = 1


class LedgersInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version of the list. `with_*` return the next one."""

    format: int = FORMAT
    """Of the records in the ledgers."""
    epoch: int
    """Of who may change the list: rises with each claim."""
    ledgers: tuple[int, ...] = ()
    """Ids, ascending; the last one is written."""
    first: int | None = None
    """The first ledger that was ever listed; None: there was none."""
    base: str = ""
    """The snapshot that the log begins behind; "": it begins with nothing."""

    @staticmethod
    def of_bytes(data: bytes, path: str) -> "LedgersInfo":
        """Read a node; CorruptionError: it is malformed, OperationalError: of a newer herdpy."""
        found = read_node(data, path, LedgersInfo, FORMAT, "a list of ledgers")
        ids = found.ledgers
        if list(ids) != sorted(set(ids)) or (ids and found.first is None):
            raise CorruptionError(f"{path}: expected ascending ids, found {list(ids)!r:.80}")
        return found

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    def with_epoch(self, epoch: int) -> "LedgersInfo":
        return msgspec.structs.replace(self, epoch=epoch)

    def with_ledger(self, ledger_id: int) -> "LedgersInfo":
        first = ledger_id if self.first is None else self.first
        return msgspec.structs.replace(self, ledgers=(*self.ledgers, ledger_id), first=first)
