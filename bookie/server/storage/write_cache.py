"""WriteCache: entries that are not in an entry log yet, by ledger; readable from the add on.

Two exist: one takes adds while the other is flushed. Used on the loop; the flushing one is not
changed while an executor reads it.
"""

from collections.abc import Iterator

_ENTRY_OVERHEAD_BYTES = 200  # measured: bytes object, tuple, dictionary slot


class WriteCache:
    """(ledger_id, entry_id) -> (packet, CRC32C of the packet)."""

    __slots__ = ("_bytes_max", "byte_count", "ledgers")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.byte_count = 0
        self.ledgers: dict[int, dict[int, tuple[bytes, int]]] = {}

    @property
    def is_empty(self) -> bool:
        return not self.ledgers

    def has_room(self, packet_bytes: int) -> bool:
        """Tell whether a packet fits; one that is larger than the cache fits an empty one."""
        grown = self.byte_count + packet_bytes + _ENTRY_OVERHEAD_BYTES
        return grown <= self._bytes_max or not self.ledgers

    def put(self, ledger_id: int, entry_id: int, packet: bytes, crc: int) -> None:
        """Keep an entry, in place of one of the same ids."""
        entries = self.ledgers.get(ledger_id)
        if entries is None:
            entries = self.ledgers[ledger_id] = {}
        self.byte_count += len(packet) + _ENTRY_OVERHEAD_BYTES
        if entry_id in entries:
            self.byte_count -= len(entries[entry_id][0]) + _ENTRY_OVERHEAD_BYTES
        entries[entry_id] = (packet, crc)

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        entries = self.ledgers.get(ledger_id)
        if entries is None:
            return None
        found = entries.get(entry_id)
        return None if found is None else found[0]

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Yield the ids of a ledger's entries, in no order."""
        return iter(self.ledgers.get(ledger_id, ()))

    def drop_ledger(self, ledger_id: int) -> None:
        for packet, _ in self.ledgers.pop(ledger_id, {}).values():
            self.byte_count -= len(packet) + _ENTRY_OVERHEAD_BYTES
