"""Tablespace: the owner of one log and the state it makes; the only writer of either.

One monitor guards everything that is not published by a single assignment. A change goes this way:
the statement has done all its work and checks; under the monitor its Entry becomes `_incoming`,
the log takes it, it joins the queue, its in-transaction effects are filled in; outside the monitor
the log is made durable; the next thread to enter the monitor applies what is durable, in order, and
completes the Tickets. An interrupt at any point leaves an Entry that the next one to enter the
monitor carries to its end, or drops if the log has not taken a statement of a transaction, so a
statement happens wholly or not at all.
"""

import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from bookie.runtime.drivers import let_others_in, new_mutex
from bookie.runtime.interfaces import Clock
from bookie.runtime.ticket import Ticket
from herdpy.engine.state.applier import Applier, store_effects
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.commit_tokens import Outcome, is_signed
from herdpy.engine.state.disk_space import DiskSpace
from herdpy.engine.state.error_messages import (
    absent_error,
    closing_error,
    dropped_error,
    follows_error,
    held_error,
    stopped_error,
)
from herdpy.engine.state.locks import LockTable
from herdpy.engine.state.memory import TablespaceMemory
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.memtable_room import MemtableRoom
from herdpy.engine.state.snapshots import Snapshot
from herdpy.engine.state.state import State
from herdpy.engine.state.transaction_snapshot import TransactionSnapshot
from herdpy.engine.state.transactions import Savepoint, Transaction, TransactionState
from herdpy.errors import Error, InternalError, InvariantViolation
from herdpy.limits import (
    monitor_locks_max,
    monitor_rows_alone_max,
    monitor_rows_max,
    record_bytes_max,
    unlogged_bytes_max,
    unlogged_tables_max,
)
from herdpy.log.interfaces import Append, CommitLog, LogSpaceError, Syncer
from herdpy.log.record import (
    Begin,
    BeginLease,
    BeginStaging,
    Change,
    ChangeAccess,
    Commit,
    CommitStaging,
    CommitToken,
    CreateTable,
    DropTable,
    EncodedRows,
    EndLeases,
    EndStaging,
    Expire,
    Noop,
    Record,
    Refuse,
    Reserve,
    Rollback,
    RollbackTo,
    Rows,
    SetSequence,
    TransactionId,
    encode,
)
from herdpy.model.access import Changes, Fact, User, changes_from_plain, facts_to_plain
from herdpy.model.durability import Durability
from herdpy.model.isolation import Isolation
from herdpy.model.lsn import Lsn
from herdpy.model.row_memory import encoded_row_bytes, row_bytes, short_change_bytes
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row

T = TypeVar("T")
_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per row
Definition = CreateTable | DropTable | ChangeAccess

_NOTHING = Noop()  # of an entry that takes just what was noted into the log
_ROLLBACK_BYTES = 64  # more than a ROLLBACK record has
_TRIM_KEYS_MAX = 1000
_FREE_BYTES = 64 * 1024
"""What a transaction may hold without being asked for it."""


class Entry(Append):
    """Records on their way through the log, and the transaction that waits for them.

    The log takes before them what it lacks of their transaction: BEGIN, and rows that were noted.
    """

    __slots__ = (
        "changes",
        "ends",
        "is_filled",
        "is_row",
        "is_void",
        "memtable_bytes",
        "spilling",
        "transaction",
    )

    def __init__(
        self,
        records: Sequence[Record],
        encoded: Sequence[bytes],
        transaction: Transaction,
        *,
        ends: bool,
        memtable_bytes: int = 0,
    ) -> None:
        self.changes = records
        """What `records` are the bytes of, but for rows that their transaction has noted."""
        self.records = tuple(encoded)
        self.lsn = None
        self.transaction = transaction
        self.ends = ends
        self.memtable_bytes = memtable_bytes
        """About how much the memtables grow when it is applied."""
        self.is_filled = False
        self.is_row = False
        """It is the rows of one autocommit statement, of a table with a key."""
        self.is_void = False
        """It commits staged rows that were given up while it was on its way through the log."""
        self.spilling: int | None = None
        """The statement that spills by it: a part of what a ROLLBACK TO of that undoes."""


class Noted(NamedTuple):
    """A row that a statement of a transaction changes, on its way into what the log gets later."""

    transaction: Transaction
    statement: int
    table: Table
    key: Key
    old: Row | None
    row: Row | None
    rows: EncodedRows
    row_count: int
    """Of `rows`, with this row, as its end."""
    end: int
    byte_count: int
    """Of the transaction, with this row."""


class Unpublished(NamedTuple):
    """A manifest edit on its way: whether the manifest has it, and how readers get to see it."""

    is_listed: Callable[[], bool]
    publish: Callable[[], None]


class Tablespace:
    """Methods say whether they expect the monitor held."""

    def __init__(
        self,
        name: str,
        log: CommitLog,
        clock: Clock,
        applier: Applier,
        space: DiskSpace | None = None,
        memory: TablespaceMemory | None = None,
    ) -> None:
        """Without `memory` there is no bound: for a state that is looked at and thrown away."""
        # Constant after __init__.
        self.name = name
        self.space = space
        self.memory = memory
        self.room = MemtableRoom(2**62 if memory is None else memory.memtable_share_bytes)
        self.clock = clock
        self.check_limit: Callable[[int], object] | None = None
        """Raises when the tablespace may not write so many bytes more; None: it has no limit.

        Set by its owner. What one writer has asked for is counted for the next only when the log
        has it: with the monitor held in between, nothing is missed.
        """
        self.monitor = new_mutex()
        self.registry = applier.registry
        # Replaced by resume(), under the monitor; the syncer is set first by start().
        self.log = log
        self.applier = applier
        self.syncer: Syncer | None = None
        # By the thread that checkpoints or compacts.
        self.unpublished: Unpublished | None = None
        # Monitor.
        self.locks = LockTable()
        self.durable_lsn = applier.state.lsn  # as far as the log has told; read by any thread
        self.failure: Error | None = None
        self.is_held = False  # see hold()
        self.follows = False
        self.why_follows: Callable[[], Error] = follows_error
        """What a write is told while it follows."""
        """Held to take in what others write, until lead()."""
        self._is_closing = False  # see end_hold()
        self._incoming: Entry | Noted | None = None
        self._noted: dict[Transaction, None] = {}  # with rows that the log does not have yet
        self._unlogged: dict[Transaction, None] = {}  # rolled back, but the log does not say so
        self._queue: deque[Entry] = deque()
        self.has_others: Callable[[], bool] = lambda: True
        """More than one session is open: set by the database, once."""
        self.others_run: Callable[[], bool] = lambda: True
        """More than one session runs a statement, which may want the monitor: set with it."""
        self.is_applying = False  # by any thread
        """A part of a large COMMIT is applied: the next to enter the monitor goes on with it."""
        self._retired: list[tuple[weakref.ref[Memtable], int]] = []
        """Memtables that went into pages, with the first snapshot token that cannot have them."""

    def start(self) -> None:
        """Have the log tell what becomes durable, once it is replayed."""
        log = self.log
        self.syncer = log.start(self.on_durable, partial(self._on_failure, log))
        self.on_durable(log.durable_lsn)

    # --- reading: no monitor -----------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.applier.state

    def snapshot(self, transaction: Transaction | None) -> Snapshot:
        """Return what a statement of the transaction reads: the one place that chooses it."""
        fixed = None
        if transaction is not None:
            transaction.has_read = True
            fixed = transaction.reads_at
        return Snapshot(self.registry, self._read_state, transaction, fixed=fixed)

    def latest(self, transaction: Transaction) -> Snapshot:
        """Return what is there now, whatever the transaction reads: for a write under its locks."""
        return Snapshot(self.registry, self._read_state, transaction)

    def _read_state(self) -> State:
        return self.applier.state

    def isolate(self, transaction: Transaction, isolation: Isolation) -> None:
        """Give a transaction its level, before its first statement."""
        transaction.isolation = isolation
        transaction.reads_at = None
        if isolation is Isolation.REPEATABLE_READ:
            transaction.reads_at = TransactionSnapshot(
                self.registry, lambda: self.applier, self.clock
            )

    # --- versions: take the monitor themselves -------------------------------------------------

    def retire(self, memtables: Sequence[Memtable]) -> None:
        """Note memtables that the State does not have any more. Monitor held, State replaced."""
        token = self.registry.new_token()
        self._retired = [item for item in self._retired if item[0]() is not None]
        self._retired += [(weakref.ref(memtable), token) for memtable in memtables]
        for memtable in memtables:
            memtable.overlay = None  # which has it, too

    def version_bytes(self) -> int:
        """Return about how much memory goes to versions that no new snapshot needs; any thread."""
        current = sum(
            memtable.superseded_bytes
            for item in self.state.tables.values()
            for memtable in item.memtables
        )
        held = [reference() for reference, _ in self._retired]
        return current + sum(memtable.byte_count for memtable in held if memtable is not None)

    def limit_versions(self, bytes_max: int) -> None:
        """Give up versions, and the oldest snapshots that need them, until they fit."""
        count = 1
        while self.version_bytes() > bytes_max:
            if not self._trim_versions():
                return
            self._give_up_retired()
            if self.version_bytes() <= bytes_max:
                return
            if not self.registry.evict_oldest(self.state.position, count):
                return
            count *= 2

    def memtable_bytes(self) -> int:
        """Return about how much memory memtables take; any thread."""
        return sum(
            memtable.byte_count
            for item in self.state.tables.values()
            for memtable in item.memtables
        )

    def measure_memtables(self) -> None:
        """Note how much memtables take, with what is on its way to them. Monitor held."""
        byte_count = self.memtable_bytes() + sum(entry.memtable_bytes for entry in self._queue)
        memory = self.memory
        if memory is None:
            self.room.measured(byte_count)
            return
        memory.memtables.set(byte_count)
        self.room.measured(byte_count, sum(memory.memtables_of_others()), memory.share)

    def lets_in(self, byte_count: int) -> bool:
        """Return whether memtables may take so many bytes more now, by the newest measure.

        Monitor held; the caller takes them off `room.left` then. False: the write has to wait.
        """
        if byte_count <= self.room.left:
            return True
        self.measure_memtables()
        return self.room.lets_in(byte_count)

    def _trim_versions(self) -> bool:
        """Drop the versions that no snapshot needs; holds the monitor for a moment at a time.

        False: a reader was entering, so it is not known what it needs; try again later.
        """
        for table in self.state.tables.values():
            for memtable in (table.memtable, *table.frozen):
                keys = memtable.superseded_keys() if memtable.superseded_bytes else []
                for start in range(0, len(keys), _TRIM_KEYS_MAX):
                    with self.monitor:
                        self.enter()
                        horizon = self.registry.horizon(self.applier.state.position)
                        if horizon is None:
                            return False
                        memtable.trim_all(keys[start : start + _TRIM_KEYS_MAX], horizon)
        return True

    def _give_up_retired(self) -> None:
        for reference, token in self._retired:
            memtable = reference()
            if memtable is not None and not self.registry.has_before(token):
                memtable.give_up()

    # --- writing: monitor held by the caller ---------------------------------------------------

    def enter(self) -> None:
        """Finish what an interrupt left; the first call of a thread that has taken the monitor."""
        entry = self._incoming
        if entry is not None:
            self._take(entry)
        if self._queue:
            self.drain()

    def id_of(self, transaction: Transaction) -> TransactionId:
        """Return the id that the transaction's records have, from the first one on."""
        if transaction.id is None:
            transaction.id = self.applier.new_transaction_id()
        return transaction.id

    def check_writable(self) -> None:
        """Raise why nothing can be written: the tablespace is held, or it stopped."""
        if self.is_held:
            raise self.why_follows() if self.follows else held_error()
        failure = self.log.failure or self.failure
        if failure is not None:
            raise stopped_error(failure)

    def check_checkpoint(self) -> None:
        """Raise why the state is not what its log says: it is held between two logs, or stopped."""
        if self.follows:
            self.check_running()
        else:
            self.check_writable()

    def check_open(self) -> None:
        """Raise when it is being closed, for what would wait for other work; any thread."""
        if self._is_closing:
            raise closing_error(self.name)

    def check_running(self) -> None:
        """Raise why the tablespace stopped, as far as it knows by itself; any thread."""
        failure = self.failure  # once: the log may be opened anew meanwhile
        if failure is not None:
            raise stopped_error(failure)

    def submit(self, entry: Entry, *, is_urgent: bool = False) -> None:
        """Put an entry into the log and fill in its effects.

        LogSpaceError or the log's failure: nothing happened.
        """
        if entry.transaction.cut is not None:
            self._cut(entry, is_urgent=is_urgent)
        self._append(entry, is_urgent=is_urgent)
        self._fill(entry)
        try:
            self.drain()
        except MemoryError:
            pass  # the entry is in the log: what waits in the queue is for the next who comes

    def _cut(self, entry: Entry, *, is_urgent: bool) -> None:
        """Undo a statement that was left half spilled, unless the entry is a part of it."""
        transaction = entry.transaction
        record = entry.changes[-1] if entry.changes else None
        if isinstance(record, Rollback) or transaction.cut == entry.spilling:
            return
        self.log_cut(transaction, is_urgent=is_urgent)

    def log_cut(self, transaction: Transaction, *, is_urgent: bool = False) -> None:
        """Log ROLLBACK TO for a statement that was left half spilled; repeatable. Monitor held.

        LogSpaceError or the log's failure: it is tried again before the transaction's next entry.
        """
        statement, tx = transaction.cut, transaction.id
        if statement is None or transaction.state is not TransactionState.ACTIVE:
            return
        if tx is None or tx not in self.applier.transactions:  # it has not come to the log
            transaction.cut = None
            return
        entry = self._rollback_to(transaction, statement)
        self._append(entry, is_urgent=is_urgent)
        self._fill(entry)

    def _rollback_to(self, transaction: Transaction, statement: int) -> Entry:
        record = RollbackTo(tx=self.id_of(transaction), statement=statement)
        return Entry([record], [encode(record)], transaction, ends=False)

    def log_noted(self, transaction: Transaction) -> None:
        """Have the log take what a transaction has noted; nothing to do for most. Monitor held."""
        if transaction.has_unlogged:
            self.id_of(transaction)
            self.submit(Entry((_NOTHING,), (), transaction, ends=False))

    def _append(self, entry: Entry, *, is_urgent: bool = False) -> None:
        """Put an entry into the log; until it is filled in, enter() carries it on."""
        transaction = entry.transaction
        if transaction.id is None:
            self._check_open(transaction)
        elif isinstance(entry.changes[-1], Rollback):
            self.check_writable()
        else:
            self._check_open(transaction)
            self._complete(entry)
        self._incoming = entry
        try:
            self.log.append(entry, is_urgent=is_urgent)
        except Exception as error:
            if isinstance(error, LogSpaceError):
                error.byte_count = sum(map(len, entry.records))
            self._incoming = None
            raise

    def _check_open(self, transaction: Transaction) -> None:
        """Raise why nothing more of a transaction can get into the log, or be noted for it."""
        if self.failure is not None or self.log.failure is not None or self.is_held:
            self.check_writable()
        if transaction.is_undone:
            raise transaction.abort_error or absent_error()
        if transaction.numbered_by is not None:  # no call for the others: each INSERT comes here
            self.check_numbers(transaction.numbered_by)

    def check_numbers(self, numbered_by: object | None) -> None:
        """Raise 40001 when sequences gave a transaction values before the log was opened anew.

        What was reserved for them may be lost, and come again. Monitor held.
        """
        if numbered_by is not None and numbered_by is not self.applier:
            raise absent_error()

    def _complete(self, entry: Entry) -> None:
        """Put before an entry what the log lacks of its transaction."""
        transaction = entry.transaction
        before = transaction.unlogged()
        if transaction.id is not None and transaction.id not in self.applier.transactions:
            begin = Begin(tx=transaction.id, at_us=transaction.begun_us)
            entry.changes = (begin, *entry.changes)
            before = [encode(begin), *before]
        if before:
            entry.records = (*before, *entry.records)

    def submit_definitions(
        self,
        transaction: Transaction,
        *definitions: Definition,
        numbers: Sequence[Reserve | SetSequence] = (),
    ) -> None:
        """Log one statement's definitions; their transaction is filled in. Monitor held.

        `numbers` are of sequences that it makes.
        """
        records: list[Record] = list(definitions)
        is_alone = transaction.is_autocommit and transaction.token is None and len(definitions) == 1
        is_alone = is_alone and not numbers
        if not is_alone:
            tx = self.id_of(transaction)
            records = [msgspec.structs.replace(item, tx=tx) for item in definitions]
            records += numbers
            if transaction.is_autocommit:
                records.append(self.commit_record(transaction))
        encoded = [encode(item) for item in records]
        if transaction.is_autocommit:
            for item in definitions:
                if isinstance(item, ChangeAccess):
                    self._end_owned(changes_from_plain(item.changes), transaction)
        self.submit(Entry(records, encoded, transaction, ends=transaction.is_autocommit))

    def begin_definition(self, transaction: Transaction, record: CreateTable) -> None:
        """Log a definition whose statement goes on to log rows; end_definition() ends it.

        Until then transaction.cut says that the statement is to be undone. Monitor held.
        """
        self.log_cut(transaction)
        statement = transaction.statement
        transaction.cut = statement
        entry = Entry([record], [encode(record)], transaction, ends=False)
        entry.spilling = statement
        self.submit(entry)
        transaction.statement = statement  # which goes on

    def end_definition(self, transaction: Transaction, statement: int) -> None:
        """Have a statement that began with a definition stand; repeatable. Takes the monitor."""
        with self.monitor:
            self.enter()
            transaction.statement = max(transaction.statement, statement + 1)
            transaction.cut = None

    def log_change(
        self,
        transaction: Transaction,
        table: Table,
        key: Key,
        old: Row | None,
        new: Row | None,
        memory_bytes_max: int,
    ) -> bool:
        """Log one row's change, whose key is locked; False: nothing happened, it is too much.

        old None: an INSERT. The table has a key, which the change keeps, and its rows are in the
        log as they are. Errors of submit(), commit_token() and check_limit().
        """
        if not transaction.is_autocommit:
            if transaction.cut is not None:
                return False  # the log has to get the end of an earlier statement first
            return self._note_change(transaction, table, key, old, new, memory_bytes_max)
        token: tuple[CommitToken | None, int] = (None, 0)
        if transaction.token is not None:
            token = self.applier.tokens.check_commit(transaction.token)
        inserts: list[Row] = [new] if old is None and new is not None else []
        changes: list[Change] = [] if old is None else [(old, new)]
        statement = transaction.statement
        record = Rows(None, statement, 0, True, table.id, table.version, inserts, changes, *token)
        data = encode(record)
        size = row_bytes(new or key) * table.row_copies
        if len(data) > record_bytes_max or size > memory_bytes_max:
            return False
        room = self.room
        if size > room.left and not self.lets_in(size):
            return False
        if self.check_limit is not None and new is not None:
            self.check_limit(len(data))
        entry = Entry((record,), (data,), transaction, ends=True, memtable_bytes=size)
        entry.is_row = True
        self.submit(entry)
        room.left -= size
        transaction.byte_count += size
        return True

    def _note_change(
        self,
        transaction: Transaction,
        table: Table,
        key: Key,
        old: Row | None,
        new: Row | None,
        memory_bytes_max: int,
    ) -> bool:
        """Note a transaction's change for the log, as log_change().

        The transaction has changed no row of the key before: that makes the order of what is noted
        one with any other. The log gets it with the transaction's next entry, or here, before
        another row, when it is too much to wait for that.
        """
        self._check_open(transaction)
        kept = transaction.new_rows if old is None else transaction.changed_rows
        rows = kept.get(table.id)
        if rows is None:
            if (
                sum(len(t.new_rows) + len(t.changed_rows) for t in self._noted)
                >= unlogged_tables_max
            ):
                return False
            self._noted[transaction] = None
            rows = kept[table.id] = EncodedRows(table, is_inserts=old is None)
        start = rows.end
        end = rows.put((old, new) if old is not None or new is None else new)
        if end > unlogged_bytes_max:
            if not rows.count:
                return False
            if self.check_limit is not None and new is not None:
                self.check_limit(end)
            self.log_noted(transaction)
            return self._note_change(transaction, table, key, old, new, memory_bytes_max)
        length = end - start
        if length <= short_change_bytes:
            size = encoded_row_bytes(length, len(new or key))
        else:
            size = row_bytes(new or key)
        byte_count = transaction.byte_count + size * table.row_copies
        if byte_count > transaction.bytes_let and not self.let_have(
            transaction, byte_count, memory_bytes_max
        ):
            return False
        change = (transaction, transaction.statement, table, key, old, new)
        noted = _new(Noted, (*change, rows, rows.count + 1, end, byte_count))
        self._incoming = noted
        self._note(noted)
        return True

    def let_have(self, transaction: Transaction, byte_count: int, bytes_max: int) -> bool:
        """Let a transaction have so many bytes of changes in all; False: over its share.

        Nothing has changed then, and refusal() says why. Any thread, the transaction's own.
        """
        if byte_count > bytes_max:
            return False
        held = transaction.held
        if held is None and byte_count > _FREE_BYTES and self.memory is not None:
            holder = f"transaction {transaction.id or ''}".strip()
            held = transaction.held = self.memory.transactions.reserve(holder)
        if held is not None and not held.grow_to(byte_count):
            return False
        transaction.bytes_let = min(_FREE_BYTES if held is None else held.byte_count, bytes_max)
        return True

    def finish(self) -> None:
        """Apply what an interrupt, or a lack of memory, has left of what is durable."""
        if self._queue:
            self._apply_all()

    @property
    def rows_at_once(self) -> int:
        """How many rows of an INSERT, or of a COMMIT, may be dealt with while it is held."""
        return monitor_rows_max if self.has_others() else monitor_rows_alone_max

    @property
    def locks_at_once(self) -> int:
        """How many locks may be given back while it is held."""
        return monitor_locks_max if self.has_others() else monitor_rows_alone_max

    def let_others_in(self) -> None:
        """Let others have the monitor between two parts of a statement, if any may want it."""
        if self.others_run():
            let_others_in()

    def apply_rest(self) -> None:
        """Go on with a large COMMIT, some rows for each time that the monitor is held."""
        if self.is_applying:
            self._apply_all()

    def _apply_all(self) -> None:
        """Apply all that is durable, some rows for each time that the monitor is held.

        Only the holder of the monitor can tell whether that is all: another thread that has just
        ended the large COMMIT may still be applying what is behind it. Waits; takes the monitor.
        """
        while True:
            self.let_others_in()
            with self.monitor:
                self.enter()
                if not self.is_applying:
                    return

    def _note(self, noted: Noted) -> None:
        """Fill in a row that was noted; repeatable."""
        transaction, statement, table, key, old, row, rows, row_count, end, byte_count = noted
        if transaction.statement == statement:
            transaction.write_row(table.id, key, row)
            for store in table.stores:
                entries = store.table
                if old is None and row is not None:  # as store_effects() has it
                    entry = store.entry_of(row)
                    transaction.write_row(entries.id, entries.key_of(entry), entry)
                else:
                    effects = store_effects(store, (), ((old, row),))
                    transaction.write(entries.id, effects, statement)
            rows.count = row_count
            rows.end = end
            transaction.byte_count = byte_count
            transaction.statement = statement + 1
        self._incoming = None

    def _take(self, entry: Entry | Noted) -> None:
        """Carry on with what an interrupt left, wherever it came; repeatable.

        A statement of a transaction that the log has not taken is dropped instead: its program saw
        the interrupt, and may run it again in the same transaction. A row that was noted stays so.
        """
        if isinstance(entry, Noted):
            self._note(entry)
            return
        is_statement = not entry.ends and not isinstance(entry.changes[-1], Rollback)
        if is_statement and not self.log.has_taken(entry):
            self._incoming = None
            return
        try:
            self.log.append(entry, is_urgent=True)
        except Exception:  # noqa: BLE001 - the log did not take it, so it never happened
            self._incoming = None
            return
        self._fill(entry)

    def _fill(self, entry: Entry) -> None:
        """Queue what the log has taken and fill in-transaction effects; repeatable."""
        if entry.ends:
            entry.transaction.state = TransactionState.COMMITTING
        queue = self._queue
        if not queue or queue[-1] is not entry:
            queue.append(entry)
        if not entry.is_filled:
            if entry.is_row:  # as fill() has it: nothing but a token counts before the log says so
                (record,) = entry.changes
                if isinstance(record, Rows) and record.token is not None:
                    self.applier.tokens.fill(record, entry.transaction.outcome)
            else:
                lsn = _lsn(entry)
                fill = self.applier.fill
                for record in entry.changes:
                    fill(record, lsn, entry.transaction)
                if entry.transaction.id is not None:
                    entry.transaction.note_logged(lsn, self.applier.state.lsn)
                    self._noted.pop(entry.transaction, None)
            entry.is_filled = True
        self._incoming = None

    @contextmanager
    def settled(self) -> Generator[None]:
        """Hold the monitor while no COMMIT is applied in part: memtables have whole ones only."""
        while True:
            self.apply_rest()
            with self.monitor:
                self.enter()
                if not self.is_applying:
                    yield
                    return

    def drain(self) -> None:
        """Apply what the log has made durable, in order, and tell those who wait; repeatable."""
        queue, applier = self._queue, self.applier
        while queue:
            entry = queue[0]
            lsn = entry.lsn or _lsn(entry)
            is_waited = entry.ends and entry.transaction.durability is Durability.SYNC
            if is_waited and lsn > self.durable_lsn:
                failure = self.failure or self.log.failure
                if failure is None or self.is_held:
                    return
                if lsn > self.log.durable_lsn:  # else the log has not come to tell it
                    self._fail(failure)
                    return
            if lsn > applier.state.lsn:
                # Only the entry's last record can end anything; the others ride on its Lsn.
                record = entry.changes[-1]
                if isinstance(record, CommitStaging):
                    entry.is_void = not applier.state.staged.can_commit(record)
                try:
                    if isinstance(record, Commit) and not applier.put_ahead(
                        record, self.rows_at_once
                    ):
                        self.is_applying = True
                        return
                    applier.apply(record, lsn, entry.memtable_bytes)
                except MemoryError:
                    raise  # as an interrupt: the next to enter the monitor goes on
                except Exception as error:
                    self.is_applying = False  # this part would fail again
                    self._fail(_as_error(error))
                    raise
            for record in entry.changes:
                if record.__class__ is not Rows:
                    applier.finish(record)
            if entry.ends:
                entry.transaction.state = TransactionState.ENDED
                # As _release() does, without its call.
                few = monitor_locks_max
                if len(entry.transaction.locks) > few:
                    few = self.locks_at_once
                if not self.locks.release_some(entry.transaction, few):
                    self.is_applying = True
                    return
                if entry.transaction.held is not None:
                    entry.transaction.give_back()
                if entry.transaction.reads_at is not None:
                    entry.transaction.reads_at.let_go()
                # Before it leaves the queue, so that its session is surely told. And not earlier
                # than here: who goes on with it must not see in between that there is no more.
                self.is_applying = False
                entry.transaction.outcome.complete(None)
            queue.popleft()

    def end(self, transaction: Transaction) -> None:
        """Mark a transaction as over and release its locks; repeatable."""
        transaction.state = TransactionState.ENDED
        transaction.new_rows, transaction.changed_rows = {}, {}
        self._noted.pop(transaction, None)
        self._release(transaction)

    def _release(self, transaction: Transaction) -> None:
        """Let what waits for an ended transaction go on; repeatable."""
        self.locks.release_all(transaction)
        if transaction.held is not None:
            transaction.give_back()
        if transaction.reads_at is not None:
            transaction.reads_at.let_go()

    def _fail(self, error: Error) -> None:
        """Stop: what is not applied fails with the error, or SAFE when the log surely lacks it."""
        if self.failure is None:
            self.failure = error
        self._complete_applying()
        self.is_applying = False  # not even where memory lacked: nothing more is applied
        self.locks.wake_all()  # each tries again, and is told
        end = self.log.failed_after
        while self._queue:
            entry = self._queue[0]
            transaction = entry.transaction
            if entry.ends:
                is_absent = end is not None and _lsn(entry) > end
                self._undo(transaction, absent_error() if is_absent else error)
            elif transaction.state is TransactionState.ACTIVE:
                # Its session is told, whatever it does next: a COMMIT above all.
                transaction.abort_error = absent_error()
                self._undo(transaction, transaction.abort_error)
            self._queue.popleft()

    def _complete_applying(self) -> None:
        """End what is applied in part: no other change may get its position. Monitor held."""
        try:
            while self.is_applying:
                self.drain()
        except Exception:  # noqa: BLE001, S110 - drain() has stopped the tablespace for it
            pass

    def _undo(self, transaction: Transaction, error: Error) -> None:
        """End a transaction under its session, with the error for the caller that waits."""
        transaction.is_undone = True
        self.end(transaction)
        transaction.outcome.fail(error)

    def stop(self, cause: BaseException) -> None:
        """Take the tablespace to FAILED after an internal error; repeatable."""
        with self.monitor:
            self._fail(_as_error(cause))

    def on_durable(self, lsn: Lsn) -> None:
        """Take in that the log is durable up to lsn; the log's callback.

        MemoryError: what is not applied yet is, by the next to enter the monitor. Any other error
        stops the tablespace: a syncer that dies must not leave a committer waiting.
        """
        try:
            with self.monitor:
                self.durable_lsn = max(lsn, self.durable_lsn)
                if self._incoming is not None:
                    self._take(self._incoming)
                self.drain()
                is_part = self.is_applying
            if is_part:
                self._apply_all()
        except MemoryError:
            raise  # what is not applied stays in the queue
        except Exception as error:
            self.stop(error)
            raise

    def _on_failure(self, log: CommitLog, error: Error) -> None:
        self.on_durable(log.durable_lsn)  # what became durable before counts
        with self.monitor:
            is_replaced = self.is_held and not self._is_closing
            if log is self.log and not is_replaced:
                self._fail(error)

    def request(self, durability: Durability) -> None:
        """Ask the log for durability, if it has been started."""
        if self.syncer is not None:
            self.syncer.request(durability)

    def prepare_log(self, byte_count: int) -> None:
        """Make room for records that may use what is kept for a full disk; errors as the log's."""
        log, space = self.log, self.space
        if space is None:
            log.prepare(byte_count)
        else:
            space.freeing(partial(log.prepare, byte_count, space.file_room()))

    def sync_log(self, upto: Lsn | None = None) -> None:
        """Make durable and apply what is in the log; nothing to do when `upto` is durable.

        Waits, without the monitor. The log's failure is raised.
        """
        if upto is None or upto > self.durable_lsn:
            self.log.sync()
            self.on_durable(self.log.durable_lsn)

    def apply_log(self) -> None:
        """Make durable and apply all that is in the log, as sync_log(), if any of it is not yet."""
        if self.applier.state.lsn < self.log.last_lsn:
            self.sync_log()

    # --- another log: take the monitor themselves ----------------------------------------------

    def hold(self) -> None:
        """Let nothing more into the log, until resume(); repeatable.

        Writes fail SAFE, reads go on, and a COMMIT in the log waits: it may still become durable.
        """
        with self.monitor:
            if self._incoming is not None:
                self._take(self._incoming)
            self.is_held = True

    def follow(self) -> None:
        """Take in what others write, and let no statement write, until lead(); nothing was open."""
        with self.monitor:
            self.is_held = self.follows = True

    def lead(self, log: CommitLog, epoch: int) -> None:
        """Write behind a log whose every record the state has, and which was replayed; once.

        It was held and followed, so that nothing of its own is under way. The caller rolls back
        what the state has open.
        """
        with self.monitor:
            self.enter()
            applier = self.applier
            if log.last_lsn != applier.state.lsn:
                raise InvariantViolation(
                    f"I1: a log that ends at {log.last_lsn} behind a state at {applier.state.lsn}"
                )
            if applier.epoch >= epoch and self.log is not log:
                raise InvariantViolation(
                    f"I3: epoch {epoch} was claimed, and the log has transactions of epoch "
                    f"{applier.epoch}"
                )
            applier.epoch, applier.counter = epoch, 0
            if self.log is not log:
                self.log = log
                self.syncer = log.start(self.on_durable, partial(self._on_failure, log))
            self.durable_lsn = max(self.durable_lsn, log.durable_lsn)
            self.is_held = self.follows = False

    def end_hold(self) -> None:
        """Tell COMMITs whose log has failed, or will, what a stopped log tells; repeatable.

        For a tablespace that closes: while it is held, nothing else would end their waits.
        """
        with self.monitor:
            self._is_closing, log = True, self.log
        if log.failure is not None:
            self._on_failure(log, log.failure)

    def resume(self, log: CommitLog, applier: Applier, end: Lsn, epoch: int) -> bool:
        """Go on with another log and the state that it gives; repeatable after an interrupt.

        False: nothing has happened, as State.lsn is behind the log's last position. What does not
        wait for the disk is applied while the tablespace is held, too, and a COMMIT that is applied
        in part is ended here. The caller gives these positions away, and calls again.

        What was appended before and lies up to `end` is in the log, and so in that state: it is
        acknowledged. What lies behind `end` never happened, and neither did open transactions:
        40001. The opener of the log rolls back what the state has open. The log's replay is done.
        InvariantViolation: the log lacks what was durable; the tablespace stays held.
        """
        with self.monitor:
            self._complete_applying()
            before = self.applier
            if end < self.durable_lsn:
                raise InvariantViolation(
                    f"I1: a log that ends at {end} after {self.durable_lsn} was durable"
                )
            if log.last_lsn < before.state.lsn:  # no position is used twice
                return False
            if applier is not before:
                self._replace_applier(applier, epoch)
            if self.log is not log:
                self.log = log
                self.syncer = log.start(self.on_durable, partial(self._on_failure, log))
                self.durable_lsn = max(self.durable_lsn, log.durable_lsn)
            self.unpublished = None
            self._unlogged.clear()
            self.locks.wake_all()  # each tries again, and is told
            self._decide_queue(end)
            # COMMITTING ones were in the queue.
            for owner in (*before.transactions.values(), *self.locks.owners()):
                if isinstance(owner, Transaction) and owner.state is TransactionState.ACTIVE:
                    owner.abort_error = absent_error()
                    self._undo(owner, owner.abort_error)
            self.failure = None
            self.is_held = False
            return True

    def _replace_applier(self, applier: Applier, epoch: int) -> None:
        """Let readers see another state, at a position of its own."""
        before = self.applier.state
        state = applier.state
        catalog = state.catalog
        version = max(catalog.version, before.catalog.version) + 1
        applier.state = state._replace(
            position=max(state.position, before.position) + 1,
            catalog=Catalog(version, catalog.tables(), catalog.access),
        )
        applier.epoch, applier.counter = epoch, 0
        applier.leases.take_over(self.applier.leases)
        self.applier = applier
        self.retire(
            [
                memtable
                for table in before.tables.values()
                for memtable in (table.memtable, *table.frozen)
            ]
        )

    def _decide_queue(self, end: Lsn) -> None:
        """Tell those who wait what the log has of theirs, and what it has not; repeatable."""
        commits = self.applier.state.staged.commits
        self.is_applying = False  # not even where memory lacked: the other state has it
        while self._queue:
            entry = self._queue[0]
            record, lsn = entry.changes[-1], _lsn(entry)
            if not entry.ends:
                pass  # its transaction is open
            elif lsn > end:
                self._undo(entry.transaction, absent_error())
            else:
                if isinstance(record, CommitStaging):
                    commit = commits.get(record.job)
                    entry.is_void = commit is None or commit.lsn != lsn
                self.end(entry.transaction)
                entry.transaction.outcome.complete(None)
            self._queue.popleft()

    # --- transactions: take the monitor themselves ---------------------------------------------

    def begin(
        self, durability: Durability, *, is_autocommit: bool, begun_us: int | None = None
    ) -> Transaction:
        """Return a transaction that begins now, or began at begun_us."""
        begun_us = self.clock.wall_us() if begun_us is None else begun_us
        return Transaction(durability, begun_us=begun_us, is_autocommit=is_autocommit)

    def commit_record(self, transaction: Transaction) -> Commit:
        """Return the COMMIT of a transaction that has an id, with its token. Monitor held.

        Raises when the token is decided already, or has expired.
        """
        if transaction.id is None:
            raise InvariantViolation("I4: a commit of a transaction without id")
        token, acknowledged = self.commit_token(transaction)
        return Commit(tx=transaction.id, token=token, acknowledged=acknowledged)

    def commit_token(self, transaction: Transaction) -> tuple[CommitToken | None, int]:
        """Return the token that the transaction's commit carries, and what is acknowledged.

        Monitor held. Raises when the token is decided already, or has expired.
        """
        used = transaction.token
        return (None, 0) if used is None else self.applier.tokens.check_commit(used)

    def commit(self, transaction: Transaction) -> Ticket[None]:
        """Log COMMIT (once) and return the Ticket of its outcome; ask the syncer afterwards.

        A transaction that logged nothing ends at once. LogSpaceError: prepare and call again.
        MemtableFullError: nothing happened, call again when its ticket is done.
        Raises when the transaction's token is decided already; the transaction stays open.
        """
        with self.monitor:
            self.enter()
            self.log_commit(transaction)
        self.apply_rest()
        return transaction.outcome

    def log_commit(self, transaction: Transaction) -> None:
        """Log COMMIT, once, as commit(). Monitor held."""
        if transaction.state is not TransactionState.ACTIVE:
            return
        if transaction.is_undone:
            raise transaction.abort_error or absent_error()
        if transaction.id not in self.applier.transactions and not transaction.has_unlogged:
            transaction.outcome.complete(None)
            self.end(transaction)
            return
        size = transaction.byte_count
        if size and not self.lets_in(size):
            raise self.room.full()
        self.id_of(transaction)
        record = self.commit_record(transaction)
        if transaction.access_changes:
            self._end_owned(transaction.access_changes, transaction)
        data = encode(record)
        self.submit(Entry([record], [data], transaction, ends=True, memtable_bytes=size))
        self.room.left -= size

    def make_savepoint(self, transaction: Transaction, name: str) -> None:
        """Note where the transaction is. LogSpaceError: prepare and call again.

        Rows that are noted are logged before: the log has those of several statements together,
        and a ROLLBACK TO goes by statements.
        """
        with self.monitor:
            self.enter()
            self._check_open(transaction)
            self.log_noted(transaction)
            transaction.note_savepoint(name)

    def roll_back_to(self, transaction: Transaction, savepoint: Savepoint) -> None:
        """Undo what a transaction has done behind a savepoint, which stays.

        Locks and reservations stay, too. LogSpaceError: prepare and call again.
        """
        with self.monitor:
            self.enter()
            self._check_open(transaction)
            if transaction.cut is not None or transaction.statement > savepoint.statement:
                self.submit(self._rollback_to(transaction, savepoint.statement))
            transaction.return_to(savepoint)

    def rollback(self, transaction: Transaction, reason: Exception | None = None) -> None:
        """Undo everything, through the log if the transaction is in it; repeatable, never waits.

        On a log that failed, or has no room left even for this, the rollback needs no record:
        recovery rolls back every transaction without COMMIT.
        """
        with self.monitor:
            self.enter()
            if transaction.state is TransactionState.ENDED:
                self._release(transaction)  # an interrupt may have come before it
            if transaction.state is not TransactionState.ACTIVE:
                return
            if reason is not None:  # first: a cursor reads both without the monitor
                transaction.abort_error = reason
            transaction.is_undone = True
            if transaction.id is not None and transaction.id in self.applier.transactions:
                self.log_rollback(transaction)
            if len(transaction.locks) <= self.locks_at_once:
                self.end(transaction)
                return
        while not self.run(partial(self.locks.release_some, transaction, self.locks_at_once)):
            if self.has_others():  # of a session that is closed no statement runs
                let_others_in()
        self.run(partial(self.end, transaction))

    def decide(self, token: CommitToken) -> "Outcome | Ticket[None]":
        """Return what became of a token; or the Ticket to wait for before asking again.

        An unused token is refused, and counts as refused when that is durable; but
        of a session that has no name of this database's making nothing is known, nor kept.
        LogSpaceError: prepare and call again.
        """
        with self.monitor:
            self.enter()
            self.check_writable()
            found = self.applier.tokens.find(token)
            if found is not None:
                return found
            secret = self.applier.state.catalog.access.login_secret
            if secret is not None and not is_signed(token[0], secret):
                return Outcome.UNKNOWN
            self.applier.tokens.check_refusal(token)
            return self._submit_alone(Refuse(token=token))

    def log_alone(self, record: Expire | EndStaging) -> None:
        """Log what the database decides by itself, and no caller waits for.

        LogSpaceError, or the log's failure: nothing happened.
        """
        with self.monitor:
            self.enter()
            self._submit_alone(record, Durability.NONE)

    def tick(self) -> None:
        """Log that the log is written, on the way that every commit takes; does not wait for it.

        LogSpaceError, or why nothing can be written: nothing happened.
        """
        with self.monitor:
            self.enter()
            self.check_writable()
            self._submit_alone(_NOTHING, Durability.NONE)
        self.request(Durability.SYNC)

    def log_access(self, facts: Sequence[Fact]) -> Ticket[None]:
        """Log roles as a statement of its own; return the Ticket of its outcome.

        LogSpaceError, or the log's failure: nothing happened.
        """
        asker = Transaction(Durability.SYNC, begun_us=self.clock.wall_us(), is_autocommit=True)
        with self.monitor:
            self.enter()
            self.check_writable()
            self.submit_definitions(asker, ChangeAccess(None, 0, facts_to_plain(facts)))
        return asker.outcome

    def undo_cut(self, transaction: Transaction) -> None:
        """Undo a statement that was left half logged; what fails is done with the next entry."""
        try:
            with self.monitor:
                self.enter()
                self.log_cut(transaction, is_urgent=True)
        except (Error, LogSpaceError):
            pass

    def check_user(self, user: User | None) -> None:
        """Raise 57P01 for a user who was dropped, as far as the log goes. Monitor held."""
        if user is None:
            return
        access = self.applier.state.catalog.access
        dropping = (name for entry in self._queue for name in access.dropped_by(_access_of(entry)))
        if not access.has(user) or user.name in dropping:
            raise dropped_error(user.name)

    def _end_owned(self, changes: Changes, transaction: Transaction) -> None:
        """Log the end of what roles have in leases and stagings, before their own. Monitor held.

        So a role that gets the name later owns nothing of it. What is logged and not applied yet
        counts, too.
        """
        applier = self.applier
        access = applier.state.catalog.access
        gone = {access.user(name) for name in access.dropped_by(changes)}
        if not gone:
            return
        coming = [record for entry in self._queue for record in entry.changes]
        leases = [each.id for each in applier.leases if each.owner in gone and not each.is_ended]
        leases += [
            each.id
            for each in coming
            if isinstance(each, BeginLease) and access.owner_of(each.owner, each.owner_id) in gone
        ]
        jobs = [each.name for each in applier.state.staged.jobs.values() if each.user in gone]
        jobs += [
            each.job
            for each in coming
            if isinstance(each, BeginStaging) and access.owner_of(each.user, each.user_id) in gone
        ]
        records: list[Record] = [EndLeases(leases)] if leases else []
        if jobs:
            records.append(EndStaging(jobs))
        for record in records:
            self._submit_alone(record, transaction.durability)

    def begin_lease(
        self, record: BeginLease, user: User | None, maximum: int | None = None
    ) -> Ticket[None]:
        """Log a lease of the state behind all that is in the log; return the Ticket to wait for.

        `maximum`: how many the user's role may have.

        57P01: its user was dropped. 53400: there are as many as may be. LogSpaceError: prepare and
        call again.
        """
        with self.monitor:
            self.enter()
            self.check_writable()
            self.check_user(user)
            self.applier.leases.check_room(user, maximum)
            return self._submit_alone(record)

    def end_leases(self, ids: Sequence[str] | None) -> Ticket[None] | None:
        """End these leases, or for None those that were not used for so long; None: there are none.

        LogSpaceError, or the log's failure: nothing happened.
        """
        with self.monitor:
            self.enter()
            due = self.applier.leases.due(ids)
            return self._submit_alone(EndLeases(due)) if due else None

    def _submit_alone(
        self, record: Record, durability: Durability = Durability.SYNC
    ) -> Ticket[None]:
        """Log a record as a transaction of its own; return the Ticket of its outcome."""
        asker = Transaction(durability, begun_us=self.clock.wall_us(), is_autocommit=True)
        self.submit(Entry([record], [encode(record)], asker, ends=True))
        return asker.outcome

    def log_numbers(self, *records: Reserve | SetSequence) -> None:
        """Log what is given away of sequences, which a later record may use. Monitor held.

        LogSpaceError, or why nothing can be written: nothing happened.
        """
        self.check_writable()
        asker = Transaction(Durability.NONE, begun_us=self.clock.wall_us(), is_autocommit=True)
        self.submit(Entry(records, [encode(each) for each in records], asker, ends=True))

    def settle_numbers(self, transaction: Transaction) -> Ticket[None] | None:
        """Return what to wait for until all that sequences gave away is durable; None: it is.

        40001: what they gave the transaction is not there any more. LogSpaceError, or why nothing
        can be written: nothing happened.
        """
        with self.monitor:
            self.enter()
            self.check_numbers(transaction.numbered_by)
            if self.applier.sequence_lsn <= self.durable_lsn:
                return None
            return self._submit_alone(_NOTHING)

    def leave_queues(self, transaction: Transaction) -> None:
        """Stop waiting for locks, after a statement that failed; repeatable.

        Also ends what an interrupt left: an ended transaction gives its locks back.
        """
        with self.monitor:
            self.enter()
            if transaction.state is TransactionState.ENDED:
                self._release(transaction)
            else:
                self.locks.abandon(transaction)

    def log_rollback(self, transaction: Transaction) -> None:
        """Append ROLLBACK, which no caller waits for. Monitor held.

        Without room for it the transaction stays among the open ones, ended and without locks:
        checkpoints go on listing it, so that its records find it at recovery, and
        retry_rollbacks() logs its end later.
        """
        tx = transaction.id
        if tx is None:
            raise InvariantViolation("I4: a rollback of a transaction without id")
        record = Rollback(tx=tx)
        entry = Entry([record], [encode(record)], transaction, ends=False)
        try:
            self.submit(entry, is_urgent=True)
        except (Error, LogSpaceError):
            self._unlogged[transaction] = None

    def retry_rollbacks(self) -> None:
        """Log the rollbacks that found no room; takes the monitor, and gives up without a word."""
        if not self._unlogged:
            return
        try:
            self.prepare_log(_ROLLBACK_BYTES * len(self._unlogged))
        except (Error, OSError):
            return
        with self.monitor:
            self.enter()
            for transaction in list(self._unlogged):
                del self._unlogged[transaction]
                self.log_rollback(transaction)

    def open_transactions(self) -> list[Transaction]:
        """Return those that have written and not ended."""
        with self.monitor:
            noted = (transaction for transaction in self._noted if transaction.has_unlogged)
            return list(dict.fromkeys((*self.applier.transactions.values(), *noted)))

    def run(self, step: Callable[[], T]) -> T:
        """Run a plain function under the monitor, after finishing what was left."""
        with self.monitor:
            self.enter()
            return step()

    def run_writing(self, step: Callable[[], T]) -> T:
        """Run what logs something under the monitor; raises why nothing can be written."""
        with self.monitor:
            self.enter()
            self.check_writable()
            return step()


def _access_of(entry: Entry) -> Changes:
    """Return what an entry that ends something changes of access."""
    if not entry.ends:
        return {}
    alone = entry.changes[-1]
    if isinstance(alone, ChangeAccess):
        return changes_from_plain(alone.changes)
    return entry.transaction.access_changes


def _as_error(cause: BaseException) -> Error:
    return cause if isinstance(cause, Error) else InternalError(f"the engine broke: {cause!r}")


def _lsn(entry: Entry) -> Lsn:
    if entry.lsn is None:
        raise InternalError("an entry in the queue has no position in the log")
    return entry.lsn
