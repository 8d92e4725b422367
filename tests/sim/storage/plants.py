"""The faults that the lives of a bookie's storage have to find (tests/fixtures/plants.py)."""

from typing import Any

from bookie.server import bookie
from bookie.server.storage import (
    bad_entries,
    collector,
    compaction,
    entry_log,
    entry_logs,
    flush,
    journal,
    journal_format,
    ledger_storage,
    recovery,
    scrubber,
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


def _damage_overlooked(right: Any) -> Any:
    return lambda self: None


def _nothing_behind(right: Any) -> Any:
    return lambda self, number, location_min: iter(())


def _ledgers_not_copied(right: Any) -> Any:
    return lambda self, writer, ledger_id: None


def _denied(right: Any) -> Any:
    return lambda self, ledger_id: ledger_storage.Status.NO_ENTRY


def _no_limbo(right: Any) -> Any:
    return lambda index, limbo: right(index, ())


def _failure_ignored(right: Any) -> Any:
    def first_try(self: Any, work: Any) -> Any:
        failures: dict[Any, OSError] = {}
        self._choose(failures)
        try:
            return self._write_logs(work, failures)
        except OSError:
            self._give_up(is_log_sound=True)
            return []

    return first_try


def _first_directory_always(right: Any) -> Any:
    def best_directory(self: Any, avoided: Any = ()) -> Any:
        first = self.directories[-1]
        return None if first in avoided else first

    return best_directory


def _not_asked_again(right: Any) -> Any:
    async def remove(self: Any, ledger_id: int) -> bool:
        async with self._ledgers.task_lock(ledger_id):
            await self._storage.delete_ledger(ledger_id)
        return True

    return remove


def _open_ones_too(right: Any) -> Any:
    return lambda holding: holding is not None and not holding.is_member


def _older_metadata_believed(right: Any) -> Any:
    async def is_metadata_recent(self: Any, last_id: int, local: Any) -> bool:
        return True

    return is_metadata_recent


def _damage_believed(right: Any) -> Any:
    return lambda index, logs, ledger_id, entry_id, digest: None


def _ordinary_add(right: Any) -> Any:
    async def put(self: Any, packet: bytes, master_key: bytes) -> Any:
        add = self._add
        self._add = lambda *some, is_recovery, **more: add(*some, is_recovery=False, **more)
        try:
            return await right(self, packet, master_key)
        finally:
            self._add = add

    return put


def _missing_not_noted(right: Any) -> Any:
    async def note_missing(self: Any, ledger_id: int, entry_ids: Any) -> None:
        pass

    return note_missing


def _loss_not_told(right: Any) -> Any:
    def note(self: Any, entry_id: int, reason: str, fate: Any) -> None:
        if fate is not bad_entries.Fate.LOST:
            right(self, entry_id, reason, fate)

    return note


def _not_added(right: Any) -> Any:
    async def put(self: Any, packet: bytes, master_key: bytes) -> Any:
        return scrubber.Status.OK

    return put


PLANTS: dict[str, Plant] = {
    "damage taken for sound": Plant(scrubber, "problem_of", _damage_believed),
    "mended by an ordinary add": Plant(scrubber.Scrubber, "_put", _ordinary_add),
    "mended without an add": Plant(scrubber.Scrubber, "_put", _not_added),
    "missing entry denied": Plant(ledger_storage.LedgerStorage, "note_missing", _missing_not_noted),
    "lost entry not reported": Plant(bad_entries.BadLedger, "note", _loss_not_told),
    "lost directory answers NoEntry": Plant(ledger_storage.LedgerStorage, "_denial", _denied),
    "lost directory forgotten": Plant(recovery, "_records_anew", _no_limbo),
    "failed directory believed": Plant(flush.Flusher, "_write_logs_somewhere", _failure_ignored),
    "full directory stops the others": Plant(
        entry_logs.EntryLogs, "best_directory", _first_directory_always
    ),
    "copy removed without asking again": Plant(
        collector.Collector, "_remove_unneeded", _not_asked_again
    ),
    "copy of an open ledger removed": Plant(collector, "_is_unneeded", _open_ones_too),
    "older metadata believed": Plant(
        collector.Collector, "_is_metadata_recent", _older_metadata_believed
    ),
    "ack before fsync": Plant(journal.JournalWriter, "write", _ack_before_fsync),
    "fence without key": Plant(bookie, "record_of", _fence_without_key),
    "fence answered at once": Plant(bookie.Bookie, "fence", _fence_answered_at_once),
    "fence of an unknown ledger not replayed": Plant(
        recovery._Replay, "apply", _fence_not_replayed
    ),
    "mark before flush": Plant(flush.Flusher, "flush", _mark_before_flush),
    "directory not synced": Plant(SimulatedDisk, "sync_directory", _no_directory_sync),
    "index before log": Plant(flush.Flusher, "store", _index_before_log),
    "damaged switch finished": Plant(compaction.Switch, "_check_whole", _damage_overlooked),
    "damaged log cut off": Plant(compaction.Compaction, "_located_behind", _nothing_behind),
    "switch not synced": Plant(compaction.Switch, "finish", _index_not_synced),
    "torn tail sealed": Plant(entry_log.EntryLogWriter, "seal", _torn_tail_sealed),
    "ledgers lost by compaction": Plant(compaction.Compaction, "_copy_ledger", _ledgers_not_copied),
}
