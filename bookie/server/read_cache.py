"""ReadCache: entries that were read from entry logs lately, and their neighbours; loop only."""

from collections import OrderedDict

_ENTRY_OVERHEAD_BYTES = 250


class ReadCache:
    """(ledger_id, entry_id) -> packet; the least recently used go first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.byte_count = 0

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        key = (ledger_id, entry_id)
        packet = self._entries.get(key)
        if packet is not None:
            self._entries.move_to_end(key)
        return packet

    def put(self, ledger_id: int, entry_id: int, packet: bytes) -> None:
        key = (ledger_id, entry_id)
        self.drop(ledger_id, entry_id)
        self._entries[key] = packet
        self.byte_count += len(packet) + _ENTRY_OVERHEAD_BYTES
        while self.byte_count > self._bytes_max and self._entries:
            _, old = self._entries.popitem(last=False)
            self.byte_count -= len(old) + _ENTRY_OVERHEAD_BYTES

    def drop(self, ledger_id: int, entry_id: int) -> None:
        old = self._entries.pop((ledger_id, entry_id), None)
        if old is not None:
            self.byte_count -= len(old) + _ENTRY_OVERHEAD_BYTES
