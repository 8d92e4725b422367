"""apply(): the one place where tables, catalog and transactions change, record by record.

The same code runs on a leader after its append, and at recovery over the log; later on followers.
It runs under the tablespace's monitor, in Lsn order, and can be repeated for a record that an
interrupt left half applied: nothing it does is visible before `publish`.

In-transaction records change only the transaction's write set. COMMIT and autocommit records move
changes into memtables, stamped with the next position, and then a new State is published.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from herdpy.engine.state.commit_tokens import CommitTokens
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.page_adoption import (
    Adoption,
    adopt,
    adopt_spilled,
    is_by_rows,
    plan_adoption,
    plan_spilled,
)
from herdpy.engine.state.snapshot_leases import Leases
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.state import State, TableState, new_table
from herdpy.engine.state.transactions import Ahead, OwnVersion, Transaction
from herdpy.errors import InvariantViolation
from herdpy.log.record import (
    Begin,
    BeginLease,
    BeginSpill,
    BeginStage,
    BeginStaging,
    ChangeAccess,
    Commit,
    CommitStaging,
    CreateTable,
    DropTable,
    EndLeases,
    Expire,
    Record,
    Refuse,
    Reserve,
    Rollback,
    RollbackTo,
    Rows,
    SetSequence,
    StageRows,
    StagingRecord,
    TransactionId,
    rows_of,
)
from herdpy.model.access import (
    Changes,
    Fact,
    FactKey,
    Ownership,
    changes_from_plain,
    with_role_ids,
)
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.row_memory import encoded_row_bytes, encoded_rows_bytes, rows_bytes
from herdpy.model.schema import IndexStore, Table, table_from_plain, with_stores
from herdpy.model.types import Key, Row

_new: Any = tuple.__new__  # a NamedTuple without the Python function around it, once per record
_HORIZON_COMMITS_MAX = 64


class Applier:
    """The mutable side of a tablespace: State, open transactions, counters. Monitor only.

    `state` may be read by any thread: it is replaced by one assignment. `registry` says which
    versions are read.
    """

    __slots__ = (
        "_cached_horizon",
        "counter",
        "epoch",
        "leases",
        "next_role_id",
        "next_row_id",
        "next_table_id",
        "planned",
        "registry",
        "reserved",
        "rewriting",
        "sequence_lsn",
        "set_at",
        "state",
        "tokens",
        "transactions",
    )

    def __init__(
        self, state: State, registry: SnapshotRegistry, now_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.state = state
        self.registry = registry
        self.leases = Leases(registry, now_s)
        self.transactions: dict[TransactionId, Transaction] = {}
        self.reserved: dict[int, int] = {}
        """By table id the first row id, of a sequence the first step, that is not reserved yet."""
        self.next_row_id: dict[int, int] = {}
        self.set_at: dict[int, tuple[int, int]] = {}
        """By sequence id the step at which it was set last, and the value there."""
        self.sequence_lsn = state.lsn
        """Where the log has the newest reservation, as far as it is this one's own."""
        self.next_table_id = 1
        self.next_role_id = 1
        self.epoch = 0
        self.counter = 0
        self.tokens = CommitTokens()
        self.planned: Mapping[int, Sequence[Adoption]] = {}
        """What is worked out for the commit of staged or spilled rows that comes next, by table: a
        step for each time that it adopts pages."""
        self.rewriting: set[int] = set()
        """Tables whose pages a compaction is writing anew."""
        self._cached_horizon: tuple[int, list[int]] | None = None

    def _horizon(self) -> list[int] | None:
        position, registry = self.state.position, self.registry
        cached = self._cached_horizon
        if (
            cached is not None
            and len(registry) > _HORIZON_COMMITS_MAX
            and position - cached[0] < _HORIZON_COMMITS_MAX
        ):
            return cached[1]  # stale is safe: what is newer than its last position is kept
        horizon = registry.horizon(position)
        self._cached_horizon = (position, horizon) if horizon is not None else None
        return horizon

    # --- records of open transactions: effective when appended -----------------------------------

    def fill(self, record: Record, lsn: Lsn, transaction: Transaction | None) -> None:
        """Take in what a record changes before its transaction commits; repeatable.

        `transaction` is the leader's object; None at recovery, where Begin makes one.
        """
        if isinstance(record, Rows):
            self._fill_rows(record, lsn, transaction)
        elif isinstance(record, Begin):
            if record.tx not in self.transactions:
                if transaction is None:
                    transaction = Transaction(
                        Durability.SYNC, begun_us=record.at_us, is_autocommit=False
                    )
                transaction.id = record.tx
                self.epoch = max(self.epoch, record.tx[0])
                self.transactions[record.tx] = transaction
        elif isinstance(record, Reserve | SetSequence):
            self._fill_numbers(record, lsn)
        elif isinstance(record, CreateTable):
            table = table_from_plain(record.table)
            newest = max(each.id for each in with_stores([table]))
            self.next_table_id = max(self.next_table_id, newest + 1)
            if record.tx is not None:
                owner = self._open(record.tx)
                owner.define(self._by_name(table, owner), _owner_of(record), record.statement, lsn)
                owner.statement = max(owner.statement, record.statement + 1)
        elif isinstance(record, ChangeAccess) and record.tx is not None:
            owner = self._open(record.tx)
            changed, access = owner.access_changes, self.state.catalog.access

            def before(key: FactKey) -> Fact | None:
                return changed[key] if key in changed else access.fact(key)

            changes, self.next_role_id = with_role_ids(
                changes_from_plain(record.changes), before, self.next_role_id
            )
            owner.define({}, changes, record.statement, lsn)
            owner.statement = max(owner.statement, record.statement + 1)
        elif isinstance(record, DropTable) and record.tx is not None:
            owner = self._open(record.tx)
            name = self._name_of(record.table_id, owner)
            if name is not None:  # else filled in before, of a table this transaction made
                owner.define({name: None}, {}, record.statement, lsn)
            owner.statement = max(owner.statement, record.statement + 1)
        elif isinstance(record, BeginSpill | RollbackTo):
            self._fill_spill(record, self._open(record.tx), lsn)
        elif isinstance(record, Commit | Refuse | CommitStaging) and transaction is not None:
            self.tokens.fill(record, transaction.outcome)
        elif isinstance(record, BeginLease | EndLeases):
            self.leases.fill(record, self.state.catalog.access)
        elif isinstance(record, BeginStage):
            self.next_table_id = max(self.next_table_id, record.stage + 1)
        elif isinstance(record, StageRows) and record.first_row_id:
            stage = self.state.staged.stages.get(record.stage)
            if stage is not None:
                table_id, upto = stage.table.id, record.first_row_id + record.row_count
                self.next_row_id[table_id] = max(self.next_row_id.get(table_id, 1), upto)

    def _fill_numbers(self, record: Reserve | SetSequence, lsn: Lsn) -> None:
        number = record.table_id
        if isinstance(record, SetSequence):
            self.set_at[number] = record.step, record.value
        upto = record.upto if isinstance(record, Reserve) else record.step
        self.reserved[number] = max(upto, self.reserved.get(number, 0))
        self.sequence_lsn = lsn

    def _fill_spill(self, record: BeginSpill | RollbackTo, owner: Transaction, lsn: Lsn) -> None:
        if isinstance(record, RollbackTo):
            owner.roll_back_to(record.statement, lsn, self.state.lsn, self.next_table_id)
            owner.cut = None
            return
        owner.has_spilled = True
        self.next_table_id = max(self.next_table_id, record.stage + 1)
        if record.replaces:
            owner.drop_writes(record.table_id)

    def _fill_rows(self, record: Rows, lsn: Lsn, transaction: Transaction | None) -> None:
        owner = self._open(record.tx) if record.tx is not None else None
        table = self.find_table(record.table_id, owner)
        if table.is_heap and record.inserts:
            last = record.inserts[-1][-1]
            self.next_row_id[table.id] = max(self.next_row_id.get(table.id, 1), int(last or 0) + 1)
        if owner is not None and owner.is_autocommit and owner.cut is None:
            if owner.whole is not None and owner.whole is not record:
                raise InvariantViolation("I4: a statement whose rows came by two records")
            owner.whole = record  # made by the leader, with all rows of the statement in it
        elif owner is not None:
            inserts, changes = rows_of(record, table)
            rows, keys = owner.fresh
            keys = keys if rows is inserts else table.keys_of(inserts)
            is_new = not changes and owner.write_new(table.id, keys, inserts, record.statement)
            if not is_new:
                owner.write(table.id, _effects(inserts, changes, table), record.statement)
            for store in table.stores:
                entries = store_effects(store, inserts, changes)
                owner.write(store.table.id, entries, record.statement)
            owner.statement = max(owner.statement, record.statement + 1)
            if transaction is None:
                byte_count = rows_bytes([*inserts, *(new for _, new in changes)])
                owner.byte_count += byte_count * table.row_copies
                owner.note_logged(lsn, self.state.lsn)
        if record.token is not None and transaction is not None:
            self.tokens.fill(record, transaction.outcome)

    # --- records that end something: effective when the log says so ------------------------------

    def apply(self, record: Record, lsn: Lsn, byte_count: int) -> None:
        """Make a record's effect visible and move State.lsn to it; repeatable.

        byte_count: about what its rows take in memory, if they came with it.
        """
        state = self.state
        if lsn <= state.lsn:
            return
        if isinstance(record, Rows):
            position = state.position
            if record.tx is None:
                position += 1
                self._put_whole(state, record, position, byte_count)
                if record.token is not None:
                    self.tokens.apply(record)
            self.state = _new(State, (position, lsn, state.catalog, state.tables, state.staged))
            return
        if isinstance(record, Commit):
            state = self._apply_commit(record, byte_count)
        elif isinstance(record, CreateTable) and record.tx is None:
            changes = self._by_name(table_from_plain(record.table), None)
            state = self._with_catalog(changes, _owner_of(record), state.position + 1)
        elif isinstance(record, DropTable) and record.tx is None:
            name = self.find_table(record.table_id, None).name
            state = self._with_catalog({name: None}, {}, state.position + 1)
        elif isinstance(record, ChangeAccess) and record.tx is None:
            access, self.next_role_id = with_role_ids(
                changes_from_plain(record.changes), state.catalog.access.fact, self.next_role_id
            )
            state = self._with_catalog({}, access, state.position + 1)
        elif isinstance(record, StagingRecord):
            state = self._apply_staging(record, lsn)
        elif isinstance(record, BeginSpill):
            table = self.find_table(record.table_id, self._open(record.tx))
            state = state._replace(staged=state.staged.begin_spill(record, table))
        elif isinstance(record, RollbackTo | Rollback) and state.staged.stages:
            since = record.statement if isinstance(record, RollbackTo) else 0
            state = state._replace(staged=state.staged.without_spilled(record.tx, since))
        if isinstance(record, Commit | Refuse | Expire):
            self.tokens.apply(record)
        elif isinstance(record, BeginLease | EndLeases):
            self.leases.apply(record, state._replace(lsn=lsn))
        elif isinstance(record, CommitStaging):
            self.tokens.apply(record, is_effective=state.position > self.state.position)
        self.state = State(state.position, lsn, state.catalog, state.tables, state.staged)

    def tables_given_pages(self, record: Record) -> list[int]:
        """Return the tables to which a record gives pages if it comes next, by id; [] for most."""
        staged = self.state.staged
        if isinstance(record, CommitStaging) and staged.can_commit(record):
            job = staged.jobs[record.job]
            is_few = is_by_rows([staged.stages[each] for each in record.stages], job.operation)
            return [] if is_few else [job.table.id]
        if isinstance(record, Commit) and self._open(record.tx).has_spilled:
            return [each for each in staged.spilled_tables(record.tx) if each in self.state.tables]
        return []

    def plan(self, record: Record, tables: Mapping[int, TableState]) -> dict[int, list[Adoption]]:
        """Work out what a record does that gives pages to these tables: for `planned`. Any thread.

        Until it is applied neither these tables nor what is staged for them may change.
        """
        staged = self.state.staged
        if isinstance(record, CommitStaging):
            operation = staged.jobs[record.job].operation
            stages = [staged.stages[number] for number in record.stages]
            return {n: [plan_adoption(table, stages, operation)] for n, table in tables.items()}
        assert isinstance(record, Commit)
        return {n: plan_spilled(table, staged.spilled(record.tx, n)) for n, table in tables.items()}

    def memory_bytes(self, record: Record, byte_count: int) -> int:
        """Return about what a record's rows take in memory, from its length in the log.

        0 for one that has none, or whose rows become visible by a COMMIT.
        """
        if not isinstance(record, Rows) or record.tx is not None:
            return 0
        count, kept_count = len(record.inserts) + len(record.changes), len(record.changes)
        table = self.find_table(record.table_id, None)
        row_length = byte_count // max(count + kept_count, 1)  # of a change, before and after
        return count * encoded_row_bytes(row_length, len(table.columns)) * table.row_copies

    def replay_inserts(self, run: Sequence[tuple[Lsn, Rows, int]]) -> bool:
        """Take a run of records in at once, as fill(), apply() and finish() do; False: nothing did.

        Each is a committed row that is new, of one table; with its position and its bytes.
        """
        state = self.state
        lsn, last, _ = run[-1]
        table_state = state.tables.get(last.table_id)
        if table_state is None or run[0][0] <= state.lsn:
            return False
        table = table_state.table
        if table.indexes:
            return False
        if any(record.table_version != table.version for _, record, _ in run):
            return False
        inserts = [record.inserts[0] for _, record, _ in run]
        rows, _ = rows_of(msgspec.structs.replace(last, inserts=inserts), table)
        keys, cell_count = table.keys_of(rows), len(table.columns)
        byte_count = encoded_rows_bytes([length for _, _, length in run], cell_count)
        if not table_state.memtable.put_run(keys, rows, state.position + 1, byte_count):
            return False
        for _, record, _ in run:
            if table.is_heap:
                self._fill_rows(record, lsn, None)
            if record.token is not None:
                self.tokens.apply(record)
        position = state.position + len(run)
        self.state = _new(State, (position, lsn, state.catalog, state.tables, state.staged))
        return True

    def finish(self, record: Record) -> None:
        """Forget the transaction that an applied COMMIT or ROLLBACK ended; repeatable."""
        if isinstance(record, (Commit, Rollback)):
            transaction = self.transactions.get(record.tx)
            if transaction is not None and transaction.catalog_changes:
                self._forget_dropped(record.tx)
            self.transactions.pop(record.tx, None)
        elif isinstance(record, DropTable) and record.tx is None:
            self._forget_dropped(None)

    def _apply_commit(self, record: Commit, byte_count: int) -> State:
        transaction = self._open(record.tx)
        position = self.state.position + 1
        state = self.state._replace(position=position)
        if transaction.catalog_changes or transaction.access_changes:
            state = self._with_catalog(
                transaction.catalog_changes, transaction.access_changes, position
            )
        if transaction.whole is not None:
            self._put_whole(state, transaction.whole, position, byte_count)
        if transaction.ahead is not None:  # put_ahead() has put them
            tables = {
                number: table._replace(memtable=transaction.ahead.made.get(number, table.memtable))
                for number, table in state.tables.items()
            }
            state = state._replace(tables=tables)
        if transaction.has_spilled:  # behind it, because it puts rows into memtables, too
            state = self._adopt_spilled(state, transaction, position)
        if transaction.ahead is not None:
            return state
        for table_id, writes in transaction.writes.items():
            table_state = state.tables.get(table_id)
            if table_state is not None:  # else created or dropped in this very transaction
                keys, versions = writes.keys(), writes.values()
                self._put(table_state.memtable, transaction, keys, versions, position)
        return state

    def put_ahead(self, record: Commit, rows_at_once: int) -> bool:
        """Put the next changes of a large COMMIT where apply() would; True: apply() may come.

        Until then no reader has the position that they get. The leader's; apply() of this record
        must be the next one of all. Repeatable.
        """
        transaction = self.transactions.get(record.tx)
        if transaction is None:
            return True
        ahead = transaction.ahead
        if ahead is None:
            if transaction.change_count <= rows_at_once:
                return True
            ahead = transaction.ahead = Ahead(transaction.writes, rows_at_once)
        if not ahead.parts:
            return True
        table_id, keys = ahead.parts[0]
        table_state = self.state.tables.get(table_id)
        if table_state is not None:
            memtable = table_state.memtable
        else:  # made by the transaction itself, or dropped
            memtable = ahead.made.setdefault(table_id, Memtable())
        versions = map(transaction.writes[table_id].__getitem__, keys)
        self._put(memtable, transaction, keys, versions, self.state.position + 1)
        ahead.parts.popleft()
        return not ahead.parts

    def _put(
        self,
        memtable: Memtable,
        transaction: Transaction,
        keys: Collection[Key],
        versions: Iterable[OwnVersion],
        position: int,
    ) -> None:
        """Put changes of a transaction, each with its share of the transaction's bytes."""
        row_bytes = transaction.byte_count // max(transaction.change_count, 1)
        rows = [version[1] for version in versions]
        if not memtable.put_new(keys, rows, position, row_bytes):
            changes = zip(keys, rows, strict=True)
            memtable.put_all(changes, position, row_bytes, self._horizon)

    def _apply_staging(self, record: StagingRecord, lsn: Lsn) -> State:
        state = self.state
        if isinstance(record, CommitStaging) and state.staged.can_commit(record):
            job = state.staged.jobs[record.job]
            stages = [state.staged.stages[number] for number in record.stages]
            position = state.position + 1
            planned = self.planned.get(job.table.id)
            adopted = adopt(
                state.tables[job.table.id],
                stages,
                job.operation,
                position,
                self._horizon,
                None if planned is None else planned[0],
                can_adopt_pages=job.table.id not in self.rewriting,
            )
            tables = {**state.tables, job.table.id: adopted}
            state = state._replace(position=position, tables=tables)
        table_id = record.table_id if isinstance(record, BeginStaging) else 0
        table = state.tables[table_id].table if table_id in state.tables else None
        owner_of = state.catalog.access.owner_of
        return state._replace(staged=state.staged.apply(record, table, lsn, owner_of))

    def _adopt_spilled(self, state: State, transaction: Transaction, position: int) -> State:
        """Give what a transaction spilled to its tables, but for those that it dropped.

        What it has changed since, and kept in memory, is later than all of that.
        """
        staged, tables, tx = state.staged, dict(state.tables), transaction.id
        assert tx is not None
        for table_id in staged.spilled_tables(tx):
            if table_id in tables:
                tables[table_id] = adopt_spilled(
                    tables[table_id],
                    staged.spilled(tx, table_id),
                    position,
                    self._horizon,
                    self.planned.get(table_id, ()),
                    can_adopt_pages=table_id not in self.rewriting,
                    newer=transaction.writes.get(table_id, {}),
                )
        return state._replace(tables=tables, staged=staged.without_spilled(tx))

    def _put_whole(self, state: State, record: Rows, position: int, byte_count: int) -> None:
        """Put the rows of an autocommit statement, which came by one record."""
        table_state = state.tables.get(record.table_id)
        if table_state is None:
            raise InvariantViolation(f"I4: rows for table {record.table_id}, which is not there")
        count = len(record.inserts) + len(record.changes)
        memtable, table = table_state.memtable, table_state.table
        row_bytes = byte_count // max(count * table.row_copies, 1)
        if table.indexes:
            self._put_indexed(state, record, table, position, row_bytes)
        if count == 1:
            inserts, changes = rows_of(record, table)
            old, new = changes[0] if changes else (None, inserts[0])
            key = table.key_of(old or new or ())
            if old is None or new is None or table.key_of(new) == key:
                memtable.put_one(key, new, position, row_bytes, self._horizon)
                return
        if not record.changes and len(record.inserts) > 1:
            inserts, _ = rows_of(record, table)
            keys = table.keys_of(inserts)
            if memtable.put_new(keys, inserts, position, row_bytes):
                return
        changed = _effects(*rows_of(record, table), table)
        memtable.put_all(changed, position, row_bytes, self._horizon)

    def _put_indexed(
        self, state: State, record: Rows, table: Table, position: int, row_bytes: int
    ) -> None:
        """Put what the rows of an autocommit statement change in the table's indexes."""
        inserts, changes = rows_of(record, table)
        for store in table.stores:
            memtable = state.tables[store.table.id].memtable
            entries = store_effects(store, inserts, changes)
            memtable.put_all(entries, position, row_bytes, self._horizon)

    def _with_catalog(
        self, changes: dict[str, Table | None], access_changes: Changes, position: int
    ) -> State:
        state = self.state
        catalog = state.catalog.with_changes(
            changes, access_changes, version=state.catalog.version + 1
        )
        if not changes:
            return State(position, state.lsn, catalog, state.tables, state.staged)
        tables: dict[int, TableState] = {}
        for table in with_stores(catalog.tables()):
            found = state.tables.get(table.id)
            if found is None:
                found = new_table(table)
            elif found.table.version != table.version:
                found = found._replace(table=table, pages=found.pages.for_table(table))
            tables[table.id] = found
        staged = state.staged
        if staged.jobs:
            staged = staged.without_tables(state.tables.keys() - tables.keys())
        return State(position, state.lsn, catalog, tables, staged)

    def _open(self, tx: TransactionId) -> Transaction:
        transaction = self.transactions.get(tx)
        if transaction is None:
            raise InvariantViolation(f"I4: a record of transaction {tx}, which is not open")
        return transaction

    def find_table(self, table_id: int, transaction: Transaction | None) -> Table:
        """Return a table, or what an index is kept in, as the transaction has it."""
        if transaction is not None and transaction.catalog_changes:
            for table in with_stores(filter(None, transaction.catalog_changes.values())):
                if table.id == table_id:
                    return table
        table_state = self.state.tables.get(table_id)
        if table_state is not None:
            return table_state.table
        raise InvariantViolation(f"I4: a record names table {table_id}, which is not there")

    def _by_name(self, table: Table, transaction: Transaction | None) -> dict[str, Table | None]:
        """Return what a definition changes: a table of its id has no other name any more."""
        before = self._name_of(table.id, transaction)
        return {table.name: table} if before is None else {before: None, table.name: table}

    def _name_of(self, table_id: int, transaction: Transaction | None) -> str | None:
        """Return the name of a table as the transaction has it; None: it is not there."""
        made = [] if transaction is None else transaction.catalog_changes.values()
        for table in made:
            if table is not None and table.id == table_id:
                return table.name
        found = self.state.tables.get(table_id)
        return None if found is None else found.table.name

    def _forget_dropped(self, ending: TransactionId | None) -> None:
        """Let go of the row ids of tables that are no more; ids of tables do not come again.

        Done where the log says so, and not by a checkpoint: equal logs make equal counters.
        """
        known = set(self.state.tables)
        for tx, transaction in self.transactions.items():
            if tx != ending:
                made = with_stores(transaction.tables_made(self.state.lsn))
                known.update(table.id for table in made)
        for numbers in (self.reserved, self.next_row_id, self.set_at):
            for table_id in numbers.keys() - known:
                del numbers[table_id]

    def new_transaction_id(self) -> TransactionId:
        self.counter += 1
        return (self.epoch, self.counter)


def _owner_of(record: CreateTable) -> Changes:
    if record.owner is None:
        return {}
    fact = Ownership(table_from_plain(record.table).id, record.owner)
    return {fact.key: fact}


def store_effects(
    store: IndexStore, inserts: Sequence[Row], changes: Sequence[tuple[Row | None, Row | None]]
) -> Iterable[tuple[Key, Row | None]]:
    """Return (key, new row or None) of an index, of the changes of its table's rows."""
    entry_of, table = store.entry_of, store.table
    changed: list[tuple[Row | None, Row | None]] = []
    for old, new in changes:
        before = None if old is None else entry_of(old)
        after = None if new is None else entry_of(new)
        if before != after:
            changed.append((before, after))
    return _effects(list(map(entry_of, inserts)), changed, table)


def _effects(
    inserts: Sequence[Row], changes: Sequence[tuple[Row | None, Row | None]], table: Table
) -> Iterable[tuple[Key, Row | None]]:
    """Return (key, new row or None); a re-keyed row gives two.

    Old keys go before new ones come, so that UPDATE k = k + 1 over neighbours keeps them all, and
    an insert what another row has given up.
    """
    key_of = table.key_of
    if len(inserts) == 1 and not changes:
        return ((key_of(inserts[0]), inserts[0]),)
    pairs = zip(table.keys_of(inserts), inserts, strict=True)
    return chain(_gone(changes, key_of), pairs, _come(changes, key_of)) if changes else pairs


def _gone(
    changes: Iterable[tuple[Row | None, Row | None]], key_of: Callable[[Row], Key]
) -> Iterable[tuple[Key, None]]:
    for old, new in changes:
        if old is not None:
            old_key = key_of(old)
            if new is None or key_of(new) != old_key:
                yield old_key, None


def _come(
    changes: Iterable[tuple[Row | None, Row | None]], key_of: Callable[[Row], Key]
) -> Iterable[tuple[Key, Row]]:
    return ((key_of(new), new) for _, new in changes if new is not None)
