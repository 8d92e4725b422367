"""The faults that the lives of a bookie's storage have to find (tests/fixtures/plants.py)."""

from typing import Any

from bookie.server import bookie
from bookie.server.storage import (
    compaction,
    entry_log,
    flush,
    journal,
    journal_format,
    recovery,
)
from tests.fixtures.plants import Plant
from tests.sim.disk import SimulatedDisk


def _ack_before_fsync(right: Any) -> Any:
    def write(self: Any, records: Any, *, is_synced: bool) -> Any:
        right(self, records, is_synced=False)
        return journal_format.Position(self._number, self._offset)

    return write


def _fence_without_key(right: Any) -> Any:
    def record_of(kind: int, ledger_id: int, rest: bytes) -> Any:
        return right(kind, ledger_id, b"" if kind == journal_format.Kind.FENCE else rest)

    return record_of


def _fence_answered_at_once(right: Any) -> Any:
    def fence(self: Any, ledger_id: int, master_key: bytes, on_done: Any) -> None:
        right(self, ledger_id, master_key, lambda _: None)
        on_done(bookie.Status.OK)

    return fence


def _fence_not_replayed(right: Any) -> Any:
    def apply(self: Any, record: Any) -> Any:
        if record.kind == journal_format.Kind.FENCE:
            ledger_id, _ = journal_format.split_record(record.body)
            if not self._state(ledger_id).exists:
                return False
        return right(self, record)

    return apply


def _mark_before_flush(right: Any) -> Any:
    def flush_wrongly(self: Any, work: Any) -> None:
        self.mark(work.position)
        self.store(work)

    return flush_wrongly


def _no_directory_sync(right: Any) -> Any:
    def sync_directory(self: SimulatedDisk, path: str) -> None:
        self._step("sync_directory", path, lambda: None)

    return sync_directory


def _index_before_log(right: Any) -> Any:
    def store(self: Any, work: Any) -> None:
        sync = entry_log.EntryLogWriter.sync
        entry_log.EntryLogWriter.sync = entry_log.EntryLogWriter.write  # type: ignore[method-assign]
        try:
            right(self, work)
        finally:
            entry_log.EntryLogWriter.sync = sync  # type: ignore[method-assign]
        if self._writer is not None:
            self._writer.sync()

    return store


def _index_not_synced(right: Any) -> Any:
    def finish(self: Any) -> None:
        index, self._index = self._index, _Unsynced()
        right(self)
        self._index = index

    return finish


class _Unsynced:
    def sync(self) -> None:
        pass


def _torn_tail_sealed(right: Any) -> Any:
    def seal(self: Any) -> None:
        self._put(entry_log.encode_map(self.log_number, self.byte_count, self.ledger_bytes))
        self.sync()

    return seal


def _ledgers_not_copied(right: Any) -> Any:
    return lambda self, writer, ledger_id: None


PLANTS: dict[str, Plant] = {
    "ack before fsync": Plant(journal.JournalWriter, "write", _ack_before_fsync),
    "fence without key": Plant(bookie, "record_of", _fence_without_key),
    "fence answered at once": Plant(bookie.Bookie, "fence", _fence_answered_at_once),
    "fence of an unknown ledger not replayed": Plant(
        recovery._Replay, "apply", _fence_not_replayed
    ),
    "mark before flush": Plant(flush.Flusher, "flush", _mark_before_flush),
    "directory not synced": Plant(SimulatedDisk, "sync_directory", _no_directory_sync),
    "index before log": Plant(flush.Flusher, "store", _index_before_log),
    "switch not synced": Plant(compaction.Switch, "finish", _index_not_synced),
    "torn tail sealed": Plant(entry_log.EntryLogWriter, "seal", _torn_tail_sealed),
    "ledgers lost by compaction": Plant(compaction.Compaction, "_copy_ledger", _ledgers_not_copied),
}
