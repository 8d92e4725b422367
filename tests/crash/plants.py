"""The faults that the simulated crashes have to find (tests/fixtures/plants.py)."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from herdpy.engine import instance, tablespaces
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance import checkpoint, pins, replica
from herdpy.engine.state import transaction_snapshot, transactions
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.commit_tokens import CommitTokens
from herdpy.engine.state.disk_reserve import ReserveFile
from herdpy.engine.state.disk_space import DiskSpace
from herdpy.engine.state.locks import LockTable
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.staged import Stage, Staged
from herdpy.engine.state.state import State
from herdpy.engine.state.tablespace import Entry, Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.tablespaces import Tablespaces
from herdpy.errors import OperationalError
from herdpy.log.file_log import FileLog
from herdpy.log.file_replay import LogReader
from herdpy.log.interfaces import LogSpaceError
from herdpy.log.log_files import LogFile, LogFiles
from herdpy.log.record import Rows
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.storage import arrow_shadows
from herdpy.storage.checkpoint_writer import _Draft
from herdpy.storage.manifest import Pin
from herdpy.storage.segment import SegmentWriter
from herdpy.storage.staged_writer import StageDraft
from herdpy.storage.tablespace_list import (
    LEAVING,
    MAKING,
    NO_LIMITS,
    PRESENT,
    STAGED,
    TABLESPACES,
    TablespaceList,
)
from tests.fixtures.plants import Plant
from tests.fixtures.transaction_plants import (
    keep_a_row,
    see_no_change,
    take_the_snapshot_again,
)
from tests.sim.disk import SimulatedDisk


def _no_directory_sync(right: Any) -> Any:
    def sync_directory(self: SimulatedDisk, path: str) -> None:
        self._step("sync_directory", path, lambda: None)

    return sync_directory


def _unsynced_segment(right: Any) -> Any:
    def finish(self: SegmentWriter) -> int:
        self._flush()
        self._file.close()
        return self._end

    return finish


def _ack_before_sync(right: Any) -> Any:
    def sync_dirty(self: FileLog) -> None:
        self._dirty = None

    return sync_dirty


def _append_over_tail(right: Any) -> Any:
    def replay(self: FileLog, after: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        yield from right(self, after)
        files = self._files.files
        reader = LogReader(
            self._disk, files, log_id=self._log_id, after=after, known_durable_sequence=0
        )
        end = 0
        take = reader._take

        def note(file: LogFile, offset: int, frame: Any) -> Iterator[tuple[Lsn, bytes]]:
            nonlocal end
            end = frame.end if file is files[-1] else 0
            return take(file, offset, frame)

        reader._take = note  # type: ignore[method-assign]
        for _ in reader.records():
            pass
        if files:
            file = files[-1]
            file.handle = self._disk.open(file.path)
            self._room = [file]
            base = self._tail.base._replace(
                slot=0, offset=end, sequence=reader.next_sequence, end=end
            )
            self._tail = self._tail._replace(base=base)

    return replay


def _lost_bitmap(right: Any) -> Any:
    def edit(self: _Draft) -> Any:
        found = right(self)
        if found is None:
            return None
        return type(found)(
            found.table_id,
            definition=found.definition,
            pages_added=found.pages_added,
            pages_removed=found.pages_removed,
        )

    return edit


def _unlogged_rollback(right: Any) -> Any:
    def log_rollback(self: Tablespace, transaction: Any, *, must_log: bool = False) -> None:
        self.applier.transactions.pop(transaction.id, None)

    return log_rollback


def _noted_rows_forgotten(right: Any) -> Any:
    return lambda self: right(self)[1:]


def _noted_too_late(right: Any) -> Any:
    def statement_at(self: Transaction, lsn: Lsn) -> int:
        return right(self, lsn) - 1

    return statement_at


def _half_applied(right: Any) -> Any:
    def put_all(self: Memtable, changes: Any, position: int, row_bytes: int, horizon: Any) -> None:
        for index, change in enumerate(changes):
            right(self, [change], position - index % 2, row_bytes, horizon)

    return put_all


def _unstamped(right: Any) -> Any:
    def init(
        self: LogFile, directory: str, number: int, first_sequence: int, file_id: bytes
    ) -> None:
        right(self, directory, number, first_sequence, bytes([1] * 16))
        self.stamp = 0

    return init


def _not_held(right: Any) -> Any:
    return lambda self, token, position: None


def _pin_of_the_present(right: Any) -> Any:
    return lambda memtables, position: right(memtables, 2**62)


def _unpinned_pages(right: Any) -> Any:
    return classmethod(lambda cls, tables: Pin(tables, ()))


def _staged_pages_forgotten(right: Any) -> Any:
    def in_pages(self: Stage, frozen: Stage, pages: Any) -> Stage:
        return right(self, frozen, self.pages)

    return in_pages


def _adopted_over(right: Any) -> Any:
    def shadows(*_: Any, **__: Any) -> Any:
        return {}

    return shadows


def _adoption_not_listed(right: Any) -> Any:
    def difference(self: _Draft, listed: Any, after: Any) -> Any:
        edit = right(self, listed, after)
        return type(edit)(
            edit.table_id, definition=edit.definition, pages_removed=edit.pages_removed
        )

    return difference


def _cut_ignored(right: Any) -> Any:
    def without_spilled(self: Staged, tx: Any, statement: int = 0) -> Staged:
        return self if statement else right(self, tx)

    return without_spilled


def _kept_after_the_end(right: Any) -> Any:
    def without_spilled(self: Staged, tx: Any, statement: int = 0) -> Staged:
        return right(self, tx, statement) if statement else self

    return without_spilled


def _new_table_spilled_too_early(right: Any) -> Any:
    def adopt_spilled(
        self: Applier, state: State, transaction: Transaction, position: int
    ) -> State:
        made = {} if transaction.ahead is None else transaction.ahead.made
        before = {
            number: table._replace(memtable=Memtable()) if number in made else table
            for number, table in state.tables.items()
        }
        after = right(self, state._replace(tables=before), transaction, position)
        tables = {
            number: table._replace(memtable=made.get(number, table.memtable))
            for number, table in after.tables.items()
        }
        return after._replace(tables=tables)

    return adopt_spilled


def _listed_without_before(right: Any) -> Any:
    return lambda newest, item: right(newest, item)[-1:]


class _Unsynced:
    """A file whose sync does nothing."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def sync(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _run_not_synced(right: Any) -> Any:
    def write(self: StageDraft, writer: SegmentWriter) -> None:
        right(self, writer)
        writer._file = _Unsynced(writer._file)  # type: ignore[assignment]

    return write


def _token_of_rows_lost(right: Any) -> Any:
    def apply(self: CommitTokens, record: Any, *, is_effective: bool = True) -> None:
        if not isinstance(record, Rows):
            right(self, record, is_effective=is_effective)

    return apply


def _listed_too_late(right: Any) -> Any:
    def begin(
        self: LogFiles, bytes_min: int, first_sequence: int, *, bytes_max: int | None = None
    ) -> LogFile:
        late, self._late = getattr(self, "_late", None), None
        if late is not None:
            late()
        file = self._make(bytes_min, first_sequence, bytes_max)
        self.files = [*self.files, file]
        say = self.listing.log_file_begun
        self._late = lambda: say(file.number, file.first_sequence, file.byte_count, file.file_id)
        return file

    return begin


def _reserve_not_filled(right: Any) -> Any:
    def fill(self: ReserveFile) -> bool:
        if not self.held_bytes:
            return right(self)
        self.is_lacking = False
        return True

    return fill


def _nothing_given_up(right: Any) -> Any:
    return lambda self: False


def _nothing_refused(right: Any) -> Any:
    return lambda self: None


def _full_for_ever(right: Any) -> Any:
    def become(self: DiskSpace, *, is_full: bool) -> None:
        right(self, is_full=is_full or self.is_full)

    return become


def _refused_and_carried_on(right: Any) -> Any:
    def append(self: Tablespace, entry: Entry, *, is_urgent: bool = False) -> None:
        try:
            right(self, entry, is_urgent=is_urgent)
        except LogSpaceError:
            if entry.ends:
                self._incoming = entry  # whoever enters the monitor next puts it into the log
            raise

    return append


def _not_logged(right: Any) -> Any:
    return lambda self, transaction, name: transaction.note_savepoint(name)


def _definitions_stay(right: Any) -> Any:
    return lambda events: [each for each in events if each.tables is not None]


def _pages_tell_nothing(right: Any) -> Any:
    return lambda seen, now, key, position: False


def _pages_tell_all(right: Any) -> Any:
    return lambda seen, now, key, position: right(
        seen._replace(frozen=(), memtable=Memtable()), now, key, position
    )


def _log_given_up(right: Any) -> Any:
    def free_spares(self: LogFiles) -> bool:
        self.drop(self.files[:-1])
        return right(self)

    return free_spares


def _no_estimate(right: Any) -> Any:
    return lambda applier, enough: 0


def _leaves_files(right: Any) -> Any:
    return lambda disk, directory, state: None


class _FirstSyncLost:
    """A disk that does not sync the directory of a list of tablespaces the first time."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self._is_due = disk.exists(TABLESPACES)

    def sync_directory(self, path: str) -> None:
        if path or not self._is_due:
            self._disk.sync_directory(path)
        else:
            self._is_due = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def _list_believed(right: Any) -> Any:
    def open_(self: Instance) -> None:
        disk = self.disk
        self.disk = _FirstSyncLost(disk)  # type: ignore[assignment]
        try:
            right(self)
        finally:
            self.disk = disk

    return open_


def _list_not_synced(right: Any) -> Any:
    return lambda disk: disk.rename(STAGED, TABLESPACES)


def _name_not_synced(right: Any) -> Any:
    def alter(
        self: Tablespaces, name: str, new_name: str | None, limits: Mapping[str, int | None]
    ) -> None:
        take = tablespaces.take_list
        tablespaces.take_list = _list_not_synced(take)
        try:
            right(self, name, new_name, limits)
        finally:
            tablespaces.take_list = take

    return alter


class _UnsyncedNames:
    """A disk that makes no names durable."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def sync_directory(self, path: str) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def _listed_before_the_folder(right: Any) -> Any:
    def write(self: Tablespaces, listed: TablespaceList) -> None:
        for entry in listed.leftovers:
            listed = listed.with_entry(msgspec.structs.replace(entry, state=PRESENT))
        right(self, listed)

    return write


def _folder_not_synced(right: Any) -> Any:
    return lambda disk, *more: right(_UnsyncedNames(disk), *more)


def _removed_before_the_list(right: Any) -> Any:
    def take(self: Tablespaces, listed: TablespaceList) -> None:
        for entry in listed.leftovers:
            if entry.state == LEAVING:
                tablespaces.remove_tablespace(self._disk, entry.folder)
        right(self, listed)

    return take


def _leftover_forgotten(right: Any) -> Any:
    return lambda self, entry: True


def _leftover_taken(right: Any) -> Any:
    def read(disk: Any) -> Any:
        listed = right(disk)
        for entry in listed.leftovers if listed is not None else ():
            if entry.state == MAKING:
                listed = listed.with_entry(msgspec.structs.replace(entry, state=PRESENT))
        return listed

    return read


def _limits_lost(right: Any) -> Any:
    return lambda self, name, new_name, limits: right(
        self, name, new_name, limits or msgspec.structs.asdict(NO_LIMITS)
    )


def _roles_not_synced(right: Any) -> Any:
    def begin_access(self: Database, facts: Any) -> None:
        tablespace = self.tablespace
        if facts:
            with_log_space(tablespace, partial(tablespace.log_access, facts))
            tablespace.request(Durability.NONE)
            tablespace.apply_rest()

    return begin_access


def _memory_kept(right: Any) -> Any:
    return lambda self: None


def _doubt_forgotten(right: Any) -> Any:
    def take(self: Tablespaces, listed: TablespaceList) -> None:
        try:
            right(self, listed)
        except OperationalError:
            self._list_failure = None
            self._doubtful = set()
            raise

    return take


PLANTS: dict[str, Plant] = {
    "no directory fsync": Plant(SimulatedDisk, "sync_directory", _no_directory_sync),
    "manifest before segment": Plant(SegmentWriter, "finish", _unsynced_segment),
    "ack before sync": Plant(FileLog, "_sync_dirty", _ack_before_sync),
    "log file listed too late": Plant(LogFiles, "begin", _listed_too_late),
    "append over a cut tail": Plant(FileLog, "replay", _append_over_tail),
    "lost bitmap": Plant(_Draft, "edit", _lost_bitmap),
    "unlogged rollback": Plant(Tablespace, "log_rollback", _unlogged_rollback),
    "noted rows forgotten": Plant(Transaction, "unlogged", _noted_rows_forgotten),
    "open transaction not whole": Plant(Transaction, "statement_at", _noted_too_late),
    "half-applied commit": Plant(Memtable, "put_all", _half_applied),
    "token of rows lost": Plant(CommitTokens, "apply", _token_of_rows_lost),
    "pages of a stage forgotten": Plant(Stage, "in_pages", _staged_pages_forgotten),
    "adopted rows hide nothing": Plant(arrow_shadows, "shadows", _adopted_over),
    "adopted pages not listed": Plant(_Draft, "_difference", _adoption_not_listed),
    "statement cut ignored": Plant(Staged, "without_spilled", _cut_ignored),
    "spilled stage kept after its end": Plant(Staged, "without_spilled", _kept_after_the_end),
    "spilled rows of a new table lost": Plant(
        Applier, "_adopt_spilled", _new_table_spilled_too_early
    ),
    "changes before a cut not listed": Plant(checkpoint, "_versions_of", _listed_without_before),
    "spilled run listed before sync": Plant(StageDraft, "write", _run_not_synced),
    "reused file not stamped": Plant(LogFile, "__init__", _unstamped),
    "lease not held": Plant(SnapshotRegistry, "hold", _not_held),
    "lease of the present": Plant(pins, "visible_rows", _pin_of_the_present),
    "pages of a lease unlinked": Plant(Pin, "of", _unpinned_pages),
    "reserve not filled again": Plant(ReserveFile, "fill", _reserve_not_filled),
    "reserve not given up": Plant(ReserveFile, "give_up", _nothing_given_up),
    "full disk refuses nothing": Plant(DiskSpace, "check_room", _nothing_refused),
    "full disk for ever": Plant(DiskSpace, "_become", _full_for_ever),
    "refused write carried on": Plant(Tablespace, "_append", _refused_and_carried_on),
    "log given up on a full disk": Plant(LogFiles, "free_spares", _log_given_up),
    "no estimate of pages": Plant(replica, "checkpoint_bytes", _no_estimate),
    "savepoint that keeps a row": Plant(Transaction, "roll_back_to", keep_a_row),
    "noted rows on both sides of a savepoint": Plant(Tablespace, "make_savepoint", _not_logged),
    "definitions not undone": Plant(transactions, "_standing", _definitions_stay),
    "snapshot not kept over a wait": Plant(LockTable, "acquire", take_the_snapshot_again),
    "changed row written over": Plant(TransactionSnapshot, "has_changed", see_no_change),
    "moved row taken as unchanged": Plant(transaction_snapshot, "_has_moved", _pages_tell_nothing),
    "deleted row of memory taken as unchanged": Plant(
        transaction_snapshot, "_has_moved", _pages_tell_all
    ),
    "checkpoint leaves files": Plant(checkpoint, "remove_unlisted", _leaves_files),
    "list of tablespaces not synced": Plant(tablespaces, "take_list", _list_not_synced),
    "list of tablespaces believed before sync": Plant(Instance, "_open", _list_believed),
    "name acknowledged before sync": Plant(Tablespaces, "alter", _name_not_synced),
    "tablespace listed before its folder": Plant(Tablespaces, "_write", _listed_before_the_folder),
    "folder of a tablespace not synced": Plant(tablespaces, "make_tablespace", _folder_not_synced),
    "folder removed before the list says so": Plant(Tablespaces, "_take", _removed_before_the_list),
    "leftover of a tablespace forgotten": Plant(Tablespaces, "_removes", _leftover_forgotten),
    "leftover taken for a tablespace": Plant(instance, "read_list", _leftover_taken),
    "limits lost by a new name": Plant(Tablespaces, "alter", _limits_lost),
    "first roles of a tablespace not synced": Plant(Database, "begin_access", _roles_not_synced),
    "memory of a dropped tablespace kept": Plant(TablespaceMemory, "close", _memory_kept),
    "tablespace in doubt served": Plant(Tablespaces, "_take", _doubt_forgotten),
}
