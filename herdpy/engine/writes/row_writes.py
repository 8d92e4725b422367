"""INSERT, UPSERT, UPDATE and DELETE: find, lock, compare, check, log — in that order.

A write is a plain function, attempt(): it returns the number of rows, or the Ticket of a lock it
must wait for (locks kept, nothing logged), or RESTART when a row it found was changed by another
transaction in the meantime (READ COMMITTED: new snapshot, whole statement again). Everything is
validated before anything is logged, so a statement happens wholly or not at all.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, TypeVar, cast

import msgspec

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.snapshots import Snapshot, TableSnapshot
from herdpy.engine.state.staged import Operation
from herdpy.engine.state.tablespace import Entry, Tablespace
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.writes.unique import Kept, UniqueKeys, unique_keys, without_taken
from herdpy.errors import InternalError, InvariantViolation, ProgrammingError
from herdpy.exec.row.row_check import check_absent, row_bytes, rows_by_key, too_long_change
from herdpy.exec.row.select import Resolve
from herdpy.limits import memory_changes_max, monitor_rows_max, row_bytes_max
from herdpy.log.record import (
    CommitToken,
    Record,
    Reserve,
    Rows,
    TransactionId,
    encode,
    encode_rows,
    many_rows,
)
from herdpy.model.row_memory import row_bytes as one_row_bytes
from herdpy.model.row_memory import rows_bytes
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row
from herdpy.storage.column import Layout, layout_of

T = TypeVar("T")
RESTART: Final = object()
SPILL: Final = object()
"""The changes are too much for memory: spilled_writes.py does the write."""
ROW_ID_RESERVATION: Final = 32
CHECK_ROWS: Final = 1_024
"""Between two looks at the interrupt."""

Change = tuple[Row | None, Row | None]
"""(row before, row after); None before is an insert, None after a delete."""
Compute = Callable[[TableSnapshot], tuple[list[Change], int]]
"""A statement's work on one snapshot: its changes and the number of rows to report."""
Stream = Callable[[TableSnapshot], Iterable[Change]]
"""The same, of which not all is held in memory; each change is a row to report."""
Update = Callable[[TableSnapshot, Sequence[tuple[Row, Row]]], list[Row | None]]
"""What is to be there for each (row that is there, new row); None: the former stays."""
Give = Callable[[TableSnapshot, Sequence[Row]], object]
"""Told the rows that a statement writes, of DELETE those that go, in their order: RETURNING."""
_LOOK_ROWS = 1_024
_LOOK_BYTES = 1024 * 1024
"""Of a stream, and of its texts, between two looks at the memory that its changes take."""
_STEP_ROWS = 16
"""Of a stream, between two looks at the lengths of their texts, of a megabyte at the most each."""
_CHANGE_BYTES = 700
"""Of memory for a changed row beside its cells: tuples, its key and lock, places in dicts."""
_CELL_BYTES = 48


class TooLargeError(Exception):
    """The changes that a write works out do not fit in the memory of its transaction."""


class Write:
    """One write statement in execution, across waits and restarts."""

    __slots__ = (
        "_check_interrupt",
        "_memory_bytes_max",
        "_tablespace",
        "_transaction",
        "arbiters",
        "compute",
        "frees_space",
        "give",
        "is_insert",
        "is_part",
        "kept",
        "kept_entries",
        "resolve",
        "resolved_as",
        "seen",
        "stream",
        "table",
        "update",
    )

    def __init__(
        self,
        tablespace: Tablespace,
        transaction: Transaction,
        table: Table,
        compute: Compute | None = None,
        *,
        is_insert: bool,
        memory_bytes_max: int,
        check_interrupt: Callable[[], object],
        resolve: Resolve | None = None,
        resolved_as: Operation | None = None,
        stream: Stream | None = None,
        give: Give | None = None,
        update: Update | None = None,
    ) -> None:
        """compute(source) does the statement's work on one snapshot, without any lock.

        It returns the changes, checked but for duplicate keys, and the number of rows to report.
        In its place stream(source) may yield the changes, when they need not fit in memory.
        check_interrupt is called every some thousand rows, until they are logged.
        With is_insert, a row that is there already is a duplicate (23505), not a change; but with
        `resolve`, of a table with a key, that says what becomes of it; so does a stage of the
        operation `resolved_as`, when rows of a stream do not fit in memory. update() says it for
        all rows at once, of which none comes twice (21000).
        give() is called with each snapshot that the changes are found on. With it, and with
        update(), the changes have to fit in memory.
        """
        self._tablespace = tablespace
        self._transaction = transaction
        self.table = table
        self.compute = compute
        self.stream = stream
        self.give = give
        self.resolve = None if table.is_heap else resolve
        self.resolved_as = None if self.resolve is None else resolved_as
        self.update = update
        self.is_insert = is_insert and self.resolve is None and update is None
        self.kept: Collection[Key] = ()
        """The keys whose rows the last find() has seen, and leaves as they are."""
        self.kept_entries: Kept = []
        """The entries of `arbiters` for which it leaves rows out."""
        self.seen: dict[Key, Row] = {}
        """Rows which it leaves because of what is in them."""
        self.frees_space = False
        """It may use what is kept for a full disk."""
        self.arbiters: Sequence[int] = ()
        """Unique indexes by which new rows are in conflict: left out, or an update of another."""
        self.is_part = False
        """It ends a statement that has logged something before: transaction.cut is that one."""
        self._memory_bytes_max = memory_bytes_max
        self._check_interrupt = check_interrupt

    def find(
        self, source: TableSnapshot, bytes_held: int | None = None
    ) -> tuple[list[Change], int]:
        """Return the changes on one snapshot and the number of rows to report; sets kept and seen.

        bytes_held: by the transaction beside them; None: as now.
        TooLargeError: they do not fit in the transaction's memory.
        """
        if self.compute is not None:
            changes, count = self.compute(source)
        else:
            changes = self._collected(source, bytes_held)
            count = len(changes)
        if self.update is not None:
            arbiter = self.arbiters[0] if self.arbiters else None
            changes, self.seen, written = _updated(changes, source, self.update, arbiter)
        elif self.resolve is not None:
            changes, self.kept, written = _resolved(changes, source, self.resolve)
        elif self.arbiters:
            written = [new for _, new in changes if new is not None]
        else:
            if self.give is not None:
                self.give(source, [new or old or () for old, new in changes])
            return changes, count
        if self.arbiters and self.update is None:
            written, self.kept_entries = without_taken(self.table, written, source, self.arbiters)
            inserts: list[Change] = [(None, new) for new in written]
            changes = inserts
        if self.give is not None:
            self.give(source, written)
        return changes, len(written)

    def changes(self, source: TableSnapshot) -> tuple[Iterable[Change], int | None]:
        """Return the changes, which need not be in memory, and the number of rows to report.

        None: as many as there are changes. Those of a stream are inserts still to be resolved.
        """
        if self.stream is not None and self.give is None and self.update is None:
            return self.stream(source), None
        return self.find(source, 0)  # what the transaction holds goes into stages before them

    def _collected(self, source: TableSnapshot, bytes_held: int | None) -> list[Change]:
        """Return what the stream gives, as long as it fits in the transaction's memory."""
        if self.stream is None:
            raise InternalError("a write without changes")
        changes: list[Change] = []
        held = self._transaction.byte_count if bytes_held is None else bytes_held
        left = self._memory_bytes_max - held
        for part in change_parts(self.table, self.stream(source), _LOOK_ROWS, _LOOK_BYTES):
            cells = sum(len(row) for row in part[-1] if row is not None)
            left -= len(part) * (_CHANGE_BYTES + _CELL_BYTES * cells)
            left -= text_bytes(self.table, part)
            if left < 0:
                raise TooLargeError
            changes += part
        return changes

    def attempt(self) -> "int | Ticket[None] | object":
        """Try once. LogSpaceError: nothing happened, prepare the log and call again.

        MemtableFullError: nor did it; call again when its ticket is done.
        """
        tablespace, table, transaction = self._tablespace, self.table, self._transaction
        wait = self._lock_table()
        if wait is not None:
            return wait
        snapshot = tablespace.snapshot(transaction)
        try:
            snapshot.check_interrupt = self._check_interrupt
            source = snapshot.source(table)
            try:
                changes, count = self.find(source)
            except TooLargeError:
                return SPILL
            if not (changes or self.kept or self.kept_entries or self.seen):
                return count
            if not self.has_room(len(changes)):
                return SPILL
            expected = effects_of(table, self._looking(changes))
            if self.is_insert:
                if not table.is_heap:
                    rows_by_key(table, (new for _, new in changes if new is not None))
                found = {key: source.get(key) for key in self._looking(expected)}
            else:
                found = {
                    key: old or source.get(key) for key, (old, _) in self._looking(expected.items())
                }
            found |= self.seen
            unique: Sequence[UniqueKeys] = ()
            if table.unique_stores:
                unique = unique_keys(table, self._looking(changes))
            count_seen = len(self.seen) + sum(len(keys) for _, keys in self._kept())
            if self.is_part or len(changes) + count_seen > monitor_rows_max:
                wait = self._lock_by_parts(found) or self._lock_kept_by_parts()
                wait = wait or self._lock_unique_by_parts(unique)
                if wait is not None:
                    return wait
                # Other transactions change none of the rows that are locked. One that stays they
                # may delete from here on: that is as if this statement had run before.
                if not self._is_as_found(snapshot, found):
                    return RESTART
                self._check_duplicates(expected, found)
                if not self._are_free(unique, snapshot):
                    return RESTART
                estimate = partial(self._estimate, changes)
                return count if self._log_by_parts(changes, self._log, estimate) else SPILL
            with tablespace.monitor:
                tablespace.enter()
                tablespace.check_writable()
                wait = self._lock(found) or self._lock_kept()
                wait = wait or self._lock_unique(unique)
                if wait is not None:
                    return wait
                if not self._is_as_found(snapshot, found):
                    return RESTART
                self._check_duplicates(expected, found)
                if not self._are_free(unique, snapshot):
                    return RESTART
                if changes and not self._log(changes):
                    return SPILL
                return count
        finally:
            snapshot.close()

    def has_room(self, count: int) -> bool:
        """Return whether so many changes more may be kept in memory.

        Few always may, as by the fast path: each spill takes a table's lock and a stage, so that
        many small statements would cost the more the more there were.
        """
        is_few = count <= monitor_rows_max
        return is_few or count + self._transaction.change_count <= memory_changes_max

    def is_current(self) -> bool:
        """Return whether the table is still there as the statement was planned for it."""
        table, changed = self.table, self._transaction.catalog_changes
        if table.name in changed:
            now = changed[table.name]
        else:
            found = self._tablespace.state.tables.get(table.id)
            now = None if found is None else found.table
        return now is not None and now.id == table.id and now.version == table.version

    def _lock(self, keys: Collection[Key]) -> Ticket[None] | None:
        if self._has_table(len(keys)):
            return None
        return self._tablespace.locks.acquire_rows(self._transaction, self.table.id, keys)

    def _has_table(self, key_count: int) -> bool:
        """Return whether the whole table is locked, so that rows need not be. Monitor held."""
        return False

    def _lock_table(self) -> "Ticket[None] | object | None":
        """Share the table with other writers; RESTART: it is not the one that was planned for."""
        tablespace = self._tablespace
        with tablespace.monitor:
            tablespace.enter()
            tablespace.check_writable()
            wait = tablespace.locks.acquire(self._transaction, (self.table.id,), Mode.SHARED)
            return RESTART if wait is None and not self.is_current() else wait

    def _lock_by_parts(self, keys: Collection[Key]) -> Ticket[None] | None:
        tablespace = self._tablespace
        if tablespace.run_writing(lambda: self._has_table(len(keys))):
            return None
        acquire = tablespace.locks.acquire_rows
        return self._by_parts(keys, partial(acquire, self._transaction, self.table.id))

    def _lock_unique(self, unique: Iterable[UniqueKeys]) -> Ticket[None] | None:
        acquire = self._tablespace.locks.acquire_rows
        for each in unique:
            wait = acquire(self._transaction, each.store.table.id, each.all)
            if wait is not None:
                return wait
        return None

    def _lock_unique_by_parts(self, unique: Iterable[UniqueKeys]) -> Ticket[None] | None:
        acquire = self._tablespace.locks.acquire_rows
        for each in unique:
            lock = partial(acquire, self._transaction, each.store.table.id)
            wait = self._by_parts(each.all, lock)
            if wait is not None:
                return wait
        return None

    def _are_free(self, unique: Iterable[UniqueKeys], snapshot: Snapshot) -> bool:
        """Raise 23505 unless the keys that rows get, which are locked, are free.

        False: a row has one since the snapshot, by which the statement is to be worked out again.
        """
        if not unique:
            return True
        latest = self._tablespace.latest(self._transaction)
        reads_at = self._transaction.reads_at
        try:
            for each in unique:
                # Else the transaction would see the row which had the key, and its own one.
                if isinstance(reads_at, TransactionSnapshot) and reads_at.has_changed(
                    each.store.table.id, latest.state, each.added
                ):
                    return False
                taken = each.first_taken(latest)
                if taken is not None:
                    stores = (self.table.stores[number] for number in self.arbiters)
                    entries = each.store.table
                    is_new = snapshot.source(entries).get(taken) is None
                    if is_new and any(each.store is store for store in stores):
                        return False
                    check_absent(each.store.table, taken, taken)
        finally:
            latest.close()
        return True

    def _kept(self) -> Iterator[tuple[Table, Collection[Key]]]:
        """Yield the keys that are to stay as they are, by what they stand in."""
        yield self.table, self.kept
        yield from self.kept_entries

    def _lock_kept(self) -> Ticket[None] | None:
        for table, keys in self._kept():
            wait = self._lock_stays(table.id, keys)
            if wait is not None:
                return wait
        return None

    def _lock_kept_by_parts(self) -> Ticket[None] | None:
        for table, keys in self._kept():
            wait = self._by_parts(keys, partial(self._lock_stays, table.id))
            if wait is not None:
                return wait
        return None

    def _by_parts(
        self, keys: Iterable[Key], lock: Callable[[list[Key]], Ticket[None] | None]
    ) -> Ticket[None] | None:
        """Lock keys, some for each time that the monitor is held."""
        left = iter(keys)
        while part := list(islice(left, monitor_rows_max)):
            self._check_interrupt()
            wait = self._tablespace.run_writing(partial(lock, part))
            if wait is not None:
                return wait
            self._tablespace.let_others_in()
        return None

    def _is_as_found(self, snapshot: Snapshot, found: dict[Key, Row | None]) -> bool:
        """Return whether what was found in a snapshot is there still, under the locks."""
        tablespace, transaction = self._tablespace, self._transaction
        if tablespace.state.position == snapshot.state.position:
            return True
        latest = tablespace.latest(transaction)
        try:
            if isinstance(transaction.reads_at, TransactionSnapshot):
                read: list[tuple[Table, Iterable[Key]]] = [(self.table, found), *self._kept()]
                changed = transaction.reads_at.has_changed
                return not any(changed(table.id, latest.state, keys) for table, keys in read)
            return self._is_unchanged(latest, found)
        finally:
            latest.close()

    def _looking(self, items: Collection[T]) -> Iterable[T]:
        """Return the items, and look at the interrupt now and then."""
        return items if len(items) <= CHECK_ROWS else looking(items, self._check_interrupt)

    def _lock_stays(self, table_id: int, keys: Iterable[Key]) -> Ticket[None] | None:
        """Wait for the other transactions that are just writing a row that is to stay.

        Whether it stays is known when they have ended. Only then is it locked, because one of
        several that wait may insert it; a row that no transaction writes costs no lock.
        """
        locks, transaction = self._tablespace.locks, self._transaction
        for key in keys:
            if locks.is_taken(transaction, (table_id, key)):
                wait = locks.acquire(transaction, (table_id, key), Mode.EXCLUSIVE)
                if wait is not None:
                    return wait
        return None

    def _is_unchanged(self, now_all: Snapshot, found: dict[Key, Row | None]) -> bool:
        """Return whether every row is as it was found, to the sign of a zero.

        Of rows and entries that stay it counts that they are there.
        """
        for table, keys in self._kept():
            source = now_all.source(table)
            if any(source.get(key) is None for key in keys):
                return False
        latest = now_all.source(self.table)
        has_floats = any(column.type.is_float for column in self.table.columns)
        for key, row in self._looking(found.items()):
            now = latest.get(key)
            if now is row:
                continue
            # By `==`, -0.0 is 0.0, but NaN is not NaN; by their texts neither is so.
            if repr(now) != repr(row) if has_floats else now != row:
                return False
        return True

    def _check_duplicates(
        self, expected: "dict[Key, Change]", found: dict[Key, Row | None]
    ) -> None:
        for key, (old, new) in self._looking(expected.items()):
            if new is not None and old is None:
                check_absent(self.table, key, found[key])

    def _log_by_parts(
        self,
        changes: Sequence[T],
        log: Callable[[Sequence[T], int], bool],
        estimate: Callable[[], int],
    ) -> bool:
        """Log changes, some for each time that the monitor is held; False: too much for memory.

        False, or any error: what was logged is undone. An autocommit statement is still to be
        committed. MemtableFullError: nothing was logged, there is no room for what they take.
        """
        tablespace, transaction = self._tablespace, self._transaction
        statement, byte_count = transaction.statement, transaction.byte_count
        if transaction.is_autocommit:
            tablespace.run(partial(self._check_memtables, estimate()))
        is_logged = False
        try:
            for low in range(0, len(changes), monitor_rows_max):
                self._check_interrupt()
                part = changes[low : low + monitor_rows_max]
                step = partial(log, part, statement)
                write = partial(tablespace.run_writing, partial(self._log_part, step, statement))
                if not with_log_space(tablespace, write, frees_space=self.frees_space):
                    return False
                tablespace.let_others_in()
            is_logged = True
        finally:
            if not is_logged:
                tablespace.undo_cut(transaction)
                transaction.byte_count = byte_count
        if transaction.cut == statement:  # else it logged nothing: an earlier one is to be undone
            transaction.cut = None
        return True

    def _log_part(self, log: Callable[[], bool], statement: int) -> bool:
        """Log a part of the statement's changes, which a ROLLBACK TO undoes. Monitor held."""
        transaction = self._transaction
        if transaction.cut != statement:
            self._tablespace.log_cut(transaction)
            transaction.cut = statement
        return log()

    def _estimate(self, changes: Sequence[Change]) -> int:
        """Return about what changes take in memtables."""
        rows = sum(new is not None for _, new in changes)
        byte_count = rows * len(self.table.columns) * _CELL_BYTES + text_bytes(self.table, changes)
        return byte_count * self.table.row_copies

    def _check_memtables(self, byte_count: int) -> None:
        if not self._tablespace.lets_in(byte_count):
            raise self._tablespace.room.full()

    def _log(self, changes: Sequence[Change], spilling: int | None = None) -> bool:
        """Encode the changes and submit them with what they need around them.

        `spilling`: the statement that they are a part of, which goes on.
        False: the transaction may not hold so much more; nothing has happened.
        """
        before: list[Record] = []
        if self.table.is_heap:
            changes, before = self._number_rows(changes)
        inserts = [new for old, new in changes if old is None and new is not None]
        updates = [change for change in changes if change[0] is not None]
        return self._log_rows(inserts, updates, before, spilling)

    def _log_rows(
        self,
        inserts: Sequence[Row],
        updates: Sequence[Change],
        before: list[Record],
        spilling: int | None = None,
    ) -> bool:
        tablespace, transaction = self._tablespace, self._transaction
        rows: Rows | None = None
        parts: tuple[bytes, ...] = ()
        after: list[Record] = []
        is_short = len(inserts) <= many_rows  # else it is surely more than one record
        is_alone = transaction.is_autocommit and spilling is None
        if is_alone and is_short and not transaction.catalog_changes:
            rows, parts = self._encoded(
                None, inserts, updates, *tablespace.commit_token(transaction)
            )
        if rows is None or len(parts) != 1:
            tx = tablespace.id_of(transaction)
            rows, parts = self._encoded(tx, inserts, updates, statement=spilling)
            if is_alone:
                after = [tablespace.commit_record(transaction)]
        size = _changed_bytes(inserts, updates, sum(map(len, parts))) * self.table.row_copies
        byte_count = transaction.byte_count + size
        if byte_count > transaction.bytes_let and not tablespace.let_have(
            transaction, byte_count, self._memory_bytes_max
        ):
            return False
        if tablespace.check_limit is not None and not self.frees_space:
            tablespace.check_limit(sum(map(len, parts)))
        records: Sequence[Record] = (rows,)
        encoded = parts
        if before or after:
            records = (*before, rows, *after)
            encoded = (*map(encode, before), *parts, *map(encode, after))
        if not is_alone:
            entry = Entry(records, encoded, transaction, ends=False)
            entry.spilling = spilling
            tablespace.submit(entry)
        elif tablespace.lets_in(size):
            entry = Entry(records, encoded, transaction, ends=True, memtable_bytes=size)
            tablespace.submit(entry)
            tablespace.room.left -= size
        else:
            raise tablespace.room.full()
        transaction.byte_count += size
        return True

    def _encoded(
        self,
        tx: TransactionId | None,
        inserts: Sequence[Row],
        updates: Sequence[Change],
        token: CommitToken | None = None,
        acknowledged: int = 0,
        *,
        statement: int | None = None,
    ) -> tuple[Rows, tuple[bytes, ...]]:
        """Return the record and its parts; 54000 to change a row longer than new ones may be."""
        table = self.table
        if statement is None:
            statement = self._transaction.statement
        place = (tx, statement, 0, True, table.id, table.version)
        data: tuple[Any, Any] = (inserts, updates)
        rows = Rows(*place, *data, token, acknowledged)
        try:
            return rows, encode_rows(rows, table)
        except InvariantViolation:
            for old, new in updates:
                if old is not None and row_bytes(old) > row_bytes_max:
                    raise too_long_change(table, old, new) from None
            raise

    def _number_rows(self, changes: Sequence[Change]) -> tuple[list[Change], list[Record]]:
        """Give inserted rows of a heap their row ids, from a logged reservation.

        The counters move when the log has taken the records (Applier.fill), not here.
        """
        applier, table_id = self._tablespace.applier, self.table.id
        count = sum(1 for old, _ in changes if old is None)
        row_id = applier.next_row_id.get(table_id, 1)
        records: list[Record] = []
        if row_id + count > applier.reserved.get(table_id, 1):
            upto = row_id + max(ROW_ID_RESERVATION, count)
            records.append(Reserve(table_id=table_id, upto=upto))
        numbered: list[Change] = []
        for old, new in changes:
            if old is None and new is not None:
                numbered.append((None, (*new[:-1], row_id)))
                row_id += 1
            else:
                numbered.append((old, new))
        return numbered, records


def _changed_bytes(inserts: Sequence[Row], updates: Sequence[Change], byte_count: int) -> int:
    """Return about what changes take in memory that have so many bytes in the log."""
    if len(inserts) == 1 and not updates:
        return one_row_bytes(inserts[0])

    def encoded(place: int) -> int:
        update = place - len(inserts)
        pair = (None, inserts[place]) if update < 0 else updates[update]
        rows = [row for row in pair if row is not None]
        try:
            return len(msgspec.msgpack.encode(rows))
        except OverflowError:  # a wide DECIMAL, which is text in the log
            return sum(map(row_bytes, rows))

    return rows_bytes([*inserts, *map(itemgetter(1), updates)], byte_count, encoded)


def change_parts(
    table: Table, changes: Iterable[Change], rows_max: int, bytes_max: int
) -> Iterator[list[Change]]:
    """Yield changes in lists of so many at most, and of about so many bytes of texts.

    Not many more than those of a part are taken from the iterable before the part is yielded.
    """
    left = iter(changes)
    has_texts = any(layout_of(column.type) is Layout.BYTES for column in table.columns)
    step = min(_STEP_ROWS, rows_max) if has_texts else rows_max
    part: list[Change] = []
    byte_count = 0
    while some := list(islice(left, min(step, rows_max - len(part)))):
        part += some
        if has_texts:
            byte_count += text_bytes(table, some)
        if len(part) >= rows_max or byte_count >= bytes_max:
            yield part
            part, byte_count = [], 0
    if part:
        yield part


def text_bytes(table: Table, changes: Sequence[Change]) -> int:
    """Return how long the texts and byte strings of changes are together."""
    byte_count = 0
    for ordinal, column in enumerate(table.columns):
        if layout_of(column.type) is Layout.BYTES:
            texts = map(itemgetter(ordinal), filter(None, chain.from_iterable(changes)))
            byte_count += sum(map(len, cast("Iterator[str]", filter(None, texts))))
    return byte_count


def _resolved(
    inserts: Sequence[Change], source: TableSnapshot, resolve: Resolve
) -> tuple[list[Change], set[Key], list[Row]]:
    """Return the changes that inserts are, one after the other, by what is there for their keys.

    And the keys whose rows stay, and the rows that are written, in their order. A key that another
    transaction is just writing counts as the snapshot has it: the write waits for the row's lock,
    and is computed again when it came.
    """
    key_of = source.table.key_of
    found: dict[Key, Change] = {}
    kept: set[Key] = set()
    written: list[Row] = []
    for _, new in inserts:
        if new is None:
            raise InvariantViolation("ON CONFLICT: expected inserts, found a delete")
        key = key_of(new)
        if key in found:
            old, there = found[key]
        else:
            old = there = source.get(key)
        after = new if there is None else resolve(there, new)
        if after is not None:
            found[key] = (old, after)
            written.append(after)
        elif key not in found:
            kept.add(key)
    return list(found.values()), kept, written


def _updated(
    inserts: Sequence[Change], source: TableSnapshot, update: Update, arbiter: int | None
) -> tuple[list[Change], dict[Key, Row], list[Row]]:
    """Return the changes that inserts are, each of which updates the row that is there.

    That is the one of its key, or of its values in the unique index `arbiter`. And the rows that
    stay, and those that are written, in their order; 21000 when a row would be changed twice, or a
    new one changed.
    """
    table, rows = source.table, [new for _, new in inserts if new is not None]
    conflict_of: Callable[[Row], Key | None] = table.key_of
    entries, store = source, None
    if arbiter is not None:
        store, entries = table.stores[arbiter], source.index(arbiter)
        conflict_of = store.unique_key_of
    conflicts = list(map(conflict_of, rows))
    there = [None if key is None else entries.get(key) for key in conflicts]
    if store is not None:
        there = [None if entry is None else source.get(store.key_of(entry)) for entry in there]
    pairs: dict[Key | None, tuple[Row, Row]] = {}  # the first new row for each that is there
    for conflict, old, new in zip(conflicts, there, rows, strict=True):
        if old is not None:
            pairs.setdefault(conflict, (old, new))
    updated = dict(zip(pairs, update(source, list(pairs.values())), strict=True))
    changes: list[Change] = []
    is_held: dict[
        Key, bool
    ] = {}  # what the statement has taken of what is in conflict, or given up
    left: dict[Key, Row | None] = {}  # by the statement, under each key that it has changed
    seen: dict[Key, Row] = {}
    written: list[Row] = []
    has_moved = False
    for conflict, old, new in zip(conflicts, there, rows, strict=True):
        after: Row | None = new
        if conflict is not None and conflict in is_held:
            if is_held[conflict]:
                raise twice_error(table)
            old = None  # the statement has given the row that was there other values
        elif conflict in updated:
            after = updated.pop(conflict)
        elif old is not None:  # it stayed, for the new row before this one
            (after,) = update(source, [(old, new)])
        if after is None:
            if old is not None:
                seen[table.key_of(old)] = old
            continue
        for key, holds in ((conflict, False), (conflict_of(after), True)):
            if key is not None:
                is_held[key] = holds
        changes.append((old, after))
        written.append(after)
        if old is None and table.is_heap:
            continue  # it gets its key when it is logged
        new_key, before = table.key_of(after), None if old is None else table.key_of(old)
        if before is not None and new_key != before:
            has_moved = True
            left[before] = None
        if new_key != before:
            check_absent(table, new_key, left.get(new_key))
        left[new_key] = after
    if has_moved:  # one for each key: a new row may have come in the place of one
        changes = [each for each in effects_of(table, changes).values() if each != (None, None)]
    return changes, {key: row for key, row in seen.items() if key not in left}, written


def twice_error(table: Table) -> ProgrammingError:
    return ProgrammingError(
        f'ON CONFLICT DO UPDATE cannot change a row of table "{table.name}" a second time',
        sqlstate="21000",
        hint="Ensure that no two rows of one statement have the same key.",
    )


def looking(items: Iterable[T], check_interrupt: Callable[[], object]) -> Iterator[T]:
    """Yield the items, and call check_interrupt before every some thousand of them."""
    left = iter(items)
    for item in left:
        check_interrupt()
        yield item
        yield from islice(left, CHECK_ROWS - 1)


def effects_of(table: Table, changes: Iterable[Change]) -> "dict[Key, Change]":
    """Return per key what the statement finds there and what it leaves there."""
    key_of, is_heap = table.key_of, table.is_heap
    effects: dict[Key, Change] = {}
    for old, new in changes:
        if old is None and is_heap:
            continue
        if old is not None:
            key = key_of(old)
            moved_here = effects[key][1] if key in effects else None
            effects[key] = (old, moved_here)
            if new is not None:
                _move(table, effects, key_of(new), new)
        elif new is not None:
            key = key_of(new)
            effects[key] = (effects[key][0] if key in effects else None, new)
    return effects


def _move(table: Table, effects: "dict[Key, Change]", key: Key, row: Row) -> None:
    there = effects.get(key)
    if there is not None:
        check_absent(table, key, there[1])
    effects[key] = (there[0] if there is not None else None, row)
