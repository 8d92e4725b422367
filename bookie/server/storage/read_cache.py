"""ReadCache: entries that were read from entry logs lately, and their neighbours; loop only."""

from collections import OrderedDict

_ENTRY_OVERHEAD_BYTES = 350


class ReadCache:
    """(ledger_id, entry_id) -> packet; the least recently used go first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._entry_ids: dict[int, dict[int, None]] = {}  # by ledger
        self.byte_count = 0

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        key = (ledger_id, entry_id)
        packet = self._entries.get(key)
        if packet is not None:
            self._entries.move_to_end(key)
        return packet

    def put(self, ledger_id: int, entry_id: int, packet: bytes) -> None:
        self.drop(ledger_id, entry_id)
        self._entries[ledger_id, entry_id] = packet
        self._entry_ids.setdefault(ledger_id, {})[entry_id] = None
        self.byte_count += len(packet) + _ENTRY_OVERHEAD_BYTES
        while self.byte_count > self._bytes_max and self._entries:
            self.drop(*next(iter(self._entries)))

    def drop(self, ledger_id: int, entry_id: int) -> None:
        old = self._entries.pop((ledger_id, entry_id), None)
        if old is not None:
            self.byte_count -= len(old) + _ENTRY_OVERHEAD_BYTES
            of_ledger = self._entry_ids[ledger_id]
            del of_ledger[entry_id]
            if not of_ledger:
                del self._entry_ids[ledger_id]

    def drop_ledger(self, ledger_id: int) -> None:
        for entry_id in list(self._entry_ids.get(ledger_id, ())):
            self.drop(ledger_id, entry_id)
