"""Transaction: identity, write set, locks and state of one unit of work.

Threads: fields change under the tablespace's monitor; `writes` may be read without it by the
transaction's own session, because each key's chain changes by one dict store.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.state.commit_tokens import UsedToken
from herdpy.engine.state.locks import Resource, Waiter
from herdpy.engine.state.memtable import Memtable
from herdpy.log.record import EncodedRows, Rows, TransactionId
from herdpy.model.access import Changes, Fact, FactKey
from herdpy.model.durability import Durability
from herdpy.model.governor import Reservation
from herdpy.model.isolation import Isolation
from herdpy.model.lsn import Lsn
from herdpy.model.schema import Table
from herdpy.model.types import Key, Row

if TYPE_CHECKING:
    from herdpy.engine.state.page_adoption import SpilledView
    from herdpy.engine.state.snapshots import FixedState
    from herdpy.engine.state.staged import Stage
    from herdpy.exec.interfaces import Numbers

OwnVersion = tuple[int, Row | None, Any]
"""A change of the transaction itself: (statement, row or None, older OwnVersion | None).

A plain tuple, as a memtable's Version is: the collector of garbage lets go of those.
"""


def own_visible(newest: OwnVersion | None, statement: int) -> OwnVersion | None:
    """Return the newest of the transaction's changes of a row before a statement; None: none."""
    version = newest
    while version is not None and version[0] >= statement:
        version = version[2]
    return version


class Ahead:
    """The changes of a COMMIT on their way into memtables, by parts. Monitor of the tablespace."""

    __slots__ = ("made", "parts")

    def __init__(self, writes: Mapping[int, Iterable[Key]], count_max: int) -> None:
        self.parts = deque(
            (number, keys[low : low + count_max])
            for number, keys in ((number, list(found)) for number, found in writes.items())
            for low in range(0, len(keys), count_max)
        )
        """(table id, keys that are not put yet), at most so many at a time."""
        self.made: dict[int, Memtable] = {}
        """Of tables that the transaction itself makes, by id."""


class Savepoint:
    """A place in a transaction that ROLLBACK TO goes back to. Monitor of the tablespace."""

    __slots__ = ("byte_count", "is_read_only", "is_undone", "name", "parent", "statement")

    def __init__(
        self,
        name: str,
        statement: int,
        byte_count: int,
        parent: "Savepoint | None",
        *,
        is_read_only: bool,
    ) -> None:
        # Constant after __init__.
        self.name = name
        self.statement = statement
        """The first statement behind it."""
        self.byte_count = byte_count
        """What the transaction had in memory."""
        self.parent = parent
        """The one that was the newest before it."""
        self.is_read_only = is_read_only
        """What the transaction was, and is again behind ROLLBACK TO, and behind RELEASE."""
        # Read by any thread, one store.
        self.is_undone = False
        """Another one stands in its place: what came behind it is rolled back."""

    @property
    def depth(self) -> int:
        """How many there are with those before it."""
        count, place = 1, self
        while (place := place.parent) is not None:
            count += 1
        return count


_definitions = count(1)


class Defined(NamedTuple):
    """What one record of a transaction defines; or, without tables, a ROLLBACK TO."""

    lsn: Lsn
    statement: int
    tables: Mapping[str, Table | None] | None
    access: Changes


def _standing(events: Iterable[Defined]) -> list[Defined]:
    """Return what was defined and no ROLLBACK TO behind it has undone."""
    kept: list[Defined] = []
    for event in events:
        if event.tables is not None:
            kept.append(event)
        else:
            kept = [each for each in kept if each.statement < event.statement]
    return kept


class TransactionState(Enum):
    """ACTIVE → COMMITTING → ENDED, or ACTIVE → ENDED (rolled back)."""

    ACTIVE = "active"
    COMMITTING = "committing"
    ENDED = "ended"


class Transaction:
    """One transaction. `id` is None until its first record is logged."""

    __slots__ = (
        "__weakref__",
        "abort_error",
        "access_changes",
        "ahead",
        "begun_us",
        "byte_count",
        "bytes_let",
        "catalog_changes",
        "changed_rows",
        "cut",
        "defined",
        "definition",
        "durability",
        "fresh",
        "has_read",
        "has_spilled",
        "held",
        "id",
        "is_autocommit",
        "is_loss_told",
        "is_read_only",
        "is_undone",
        "isolation",
        "last_identity",
        "listed",
        "listings",
        "locks",
        "logged",
        "new_rows",
        "numbered_by",
        "numbers",
        "outcome",
        "reads_at",
        "savepoint",
        "state",
        "statement",
        "token",
        "views",
        "voided",
        "waits_for",
        "whole",
        "writes",
    )

    def __init__(self, durability: Durability, *, begun_us: int, is_autocommit: bool) -> None:
        # Constant after __init__.
        self.durability = durability
        self.begun_us = begun_us
        self.is_autocommit = is_autocommit
        # Set by its session, before its first statement.
        self.isolation = Isolation.READ_COMMITTED
        self.reads_at: FixedState | None = None
        """What it reads instead of the present: a lease's, or what its own snapshot has."""
        # By its session.
        self.numbers: Numbers | None = None
        """The sequences, of which its statements take values."""
        self.last_identity: Any = None
        """What its last statement has inserted last, an int of the column that a sequence fills."""
        self.is_read_only = False
        """Its statements write nothing: READ ONLY."""
        self.has_read = False
        """A statement of it has read."""
        self.is_loss_told = False
        """The program has heard why it was rolled back under it (abort_error)."""
        self.savepoint: Savepoint | None = None
        """The newest one."""
        # Monitor of the tablespace.
        self.id: TransactionId | None = None
        self.state = TransactionState.ACTIVE
        self.is_undone = False
        """Rolled back, or stopped with its tablespace: what shows its writes shows them no more."""
        self.statement = 1
        self.writes: dict[int, dict[Key, OwnVersion]] = {}
        self.catalog_changes: dict[str, Table | None] = {}
        self.access_changes: dict[FactKey, Fact | None] = {}
        self.defined: list[Defined] = []
        """How both came, in order, as far as a checkpoint or a ROLLBACK TO may ask for it."""
        self.definition = 0
        """Another one, of all transactions, whenever catalog_changes or access_changes do."""
        self.byte_count = 0
        self.held: Reservation | None = None
        """What it has of the tablespace's memory; None: next to nothing."""
        self.bytes_let = 0
        """So many bytes may byte_count be without asking; see Tablespace.let_have()."""
        self.logged: list[tuple[int, Lsn]] = []
        """(a statement, where the log has all before it), as far as checkpoints may ask for it."""
        self.listed: dict[int, int] = {}
        """By table, the statement before which the manifest has its changes; 0: it has others."""
        self.listings = 0
        """How often what the manifest has was made void."""
        self.new_rows: dict[int, EncodedRows] = {}
        """By table, what its last statements inserted and the log does not have yet."""
        self.changed_rows: dict[int, EncodedRows] = {}
        self.has_spilled = False
        """Some of its changes are, or were, in stages (staged.py)."""
        self.ahead: Ahead | None = None
        """Its COMMIT is being applied by parts."""
        self.cut: int | None = None
        """A statement that has begun to spill: if it does not end well the log gets a ROLLBACK TO
        it, before anything else of the transaction."""
        self.voided: list[tuple[int, int, Lsn]] = []
        """(statement, stage, where the log says so): what statements from this one on spilled into
        stages before that one is void, which State perhaps does not know yet."""
        self.views: dict[int, SpilledView] = {}
        """Of tables, by id: what was last seen of what it has spilled."""
        self.whole: Rows | None = None
        """An autocommit statement's rows instead of `writes`: no statement reads what it wrote."""
        self.fresh: tuple[Sequence[Row], Sequence[Key]] = ((), ())
        """The rows of the INSERT that is being logged, and their keys."""
        self.locks: list[Resource] = []
        self.waits_for: Waiter | None = None
        self.numbered_by: object | None = None
        """The applier whose sequences gave it values; another one may give them, too."""
        self.outcome: Ticket[None] = Ticket()
        self.abort_error: Exception | None = None
        self.token: UsedToken | None = None

    @property
    def is_used(self) -> bool:
        """A statement has written in it, or it reads at a state of its own."""
        return (
            self.id is not None
            or self.statement > 1
            or self.savepoint is not None
            or (self.reads_at is not None and self.reads_at.is_taken)
        )

    @property
    def reads_lease(self) -> bool:
        """It reads at a snapshot lease, and can write nothing."""
        return self.reads_at is not None and self.reads_at.is_read_only

    def write(
        self,
        table_id: int,
        changes: Iterable[tuple[Key, Row | None]],
        statement: int,
    ) -> None:
        """Stamp changes into the write set; applying the same record again changes nothing.

        A row that a statement puts under a key stays, though the statement takes away the row that
        was there before: the parts of a long statement are applied one by one at recovery, and the
        removal may be in a later one.
        """
        table = self.writes.get(table_id)
        if table is None:
            table = self.writes.setdefault(table_id, {})
        for key, row in changes:
            older = table.get(key)
            if older is not None and older[0] == statement:
                if older[1] is row or (row is None and older[1] is not None):
                    continue
                older = older[2]
            table[key] = (statement, row, older)

    def write_row(self, table_id: int, key: Key, row: Row | None) -> None:
        """Stamp one change of the statement, as write() does."""
        table = self.writes.get(table_id)
        if table is None or key in table:
            self.write(table_id, ((key, row),), self.statement)
        else:
            table[key] = (self.statement, row, None)

    def write_new(
        self, table_id: int, keys: Sequence[Key], rows: Sequence[Row], statement: int
    ) -> bool:
        """Stamp new rows, as write() does, if it wrote none of the keys; False: nothing happened.

        The keys are distinct.
        """
        table = self.writes.get(table_id)
        if table is None:
            table = self.writes.setdefault(table_id, {})
        if table and not table.keys().isdisjoint(keys):
            return False
        table.update(zip(keys, zip(repeat(statement), rows, repeat(None)), strict=False))
        return True

    @property
    def change_count(self) -> int:
        """How many changed rows it has in memory."""
        return sum(map(len, self.writes.values()))

    def drop_writes(self, table_id: int) -> None:
        """Forget the changes of a table, which are in stages now; who reads has the former dict."""
        gone = self.writes.get(table_id)
        if gone is not None:
            self.byte_count -= self.byte_count * len(gone) // max(self.change_count, 1)
            self.writes = {key: kept for key, kept in self.writes.items() if key != table_id}
            self._unlist([table_id])
            self.bytes_let = 0
            if self.held is not None:
                self.held.shrink_to(self.byte_count)

    def roll_back_to(self, statement: int, lsn: Lsn, applied: Lsn, next_stage: int) -> None:
        """Forget what statements from this one on have changed and defined; repeatable.

        By the record at lsn; applied: State is not of an earlier position. Who reads has the former
        dicts.
        """
        if self.defined:
            done = [each for each in self.defined if each.lsn <= applied]
            rest = self.defined[len(done) :]
            self.defined = [*_standing(done), *rest, Defined(lsn, statement, None, {})]
            self._fold()
        if self.has_spilled:
            kept = [each for each in self.voided if each[0] < statement and each[2] > applied]
            self.voided = [*kept, (statement, next_stage, lsn)]
        writes: dict[int, dict[Key, OwnVersion]] = {}
        for table_id, table in self.writes.items():
            if all(version[0] < statement for version in table.values()):
                writes[table_id] = table
                continue
            found = ((key, own_visible(version, statement)) for key, version in table.items())
            writes[table_id] = {key: version for key, version in found if version is not None}
            self._unlist([table_id])
        self.writes = writes

    def has_voided(self, number: int, stage: "Stage") -> bool:
        """Return whether a ROLLBACK TO has undone what a stage of it has."""
        return any(stage.statement >= low and number < end for low, end, _ in self.voided)

    def find_savepoint(self, name: str) -> Savepoint | None:
        """Return the newest of a name; None: there is none."""
        found = self.savepoint
        while found is not None and found.name != name:
            found = found.parent
        return found

    def note_savepoint(self, name: str) -> None:
        """Make a savepoint before the next statement."""
        self.savepoint = Savepoint(
            name,
            self.statement,
            self.byte_count,
            self.savepoint,
            is_read_only=self.is_read_only,
        )

    def return_to(self, savepoint: Savepoint) -> None:
        """Go on at this savepoint, when what came behind it is rolled back."""
        name, statement, byte_count = savepoint.name, savepoint.statement, savepoint.byte_count
        self.is_read_only = savepoint.is_read_only
        again = Savepoint(
            name, statement, byte_count, savepoint.parent, is_read_only=self.is_read_only
        )
        # First: the cursors that began behind it end. At once: an interrupt between the two would
        # have those that begin later end, too.
        savepoint.is_undone, self.savepoint = True, again
        self.byte_count = min(self.byte_count, byte_count)
        self.bytes_let = 0
        if self.held is not None:
            self.held.shrink_to(self.byte_count)

    def _unlist(self, table_ids: Iterable[int]) -> None:
        """Have the next checkpoint list all that is changed of these tables; repeatable."""
        self.listed = {**self.listed, **dict.fromkeys(table_ids, 0)}
        self.listings += 1

    def give_back(self) -> None:
        """Give its memory back to the tablespace; repeatable."""
        held = self.held
        if held is not None:
            held.close()
            self.held = None
            self.bytes_let = 0

    @property
    def has_unlogged(self) -> bool:
        """The log does not have yet what its last statements changed."""
        return any(rows.count for rows in (*self.new_rows.values(), *self.changed_rows.values()))

    def unlogged(self) -> list[bytes]:
        """Return the records of what the log does not have yet."""
        found = (*self.new_rows.values(), *self.changed_rows.values())
        return [rows.record(self.id, self.statement - 1) for rows in found if rows.count]

    def note_logged(self, lsn: Lsn, applied: Lsn) -> None:
        """Note that the log has all statements by now; repeatable.

        applied: no checkpoint is of an earlier position.
        """
        marks = self.logged
        if not marks or marks[-1][1] < lsn:
            marks = [*marks, (self.statement, lsn)]
        while len(marks) > 1 and marks[1][1] <= applied:
            marks = marks[1:]
        self.logged = marks
        self.new_rows, self.changed_rows = {}, {}

    def statement_at(self, lsn: Lsn) -> int:
        """Return the statement before which all are at or before lsn, for a checkpoint."""
        return next((statement for statement, at in reversed(self.logged) if at <= lsn), 1)

    def define(
        self, tables: Mapping[str, Table | None], access: Changes, statement: int, lsn: Lsn
    ) -> None:
        """Note tables made or (None) dropped, and changes of roles and rights.

        Again for the same record changes nothing.
        """
        self.defined.append(Defined(lsn, statement, tables, access))
        self.catalog_changes.update(tables)
        self.access_changes.update(access)
        self.definition = next(_definitions)

    def _fold(self) -> None:
        """Work out anew what is changed of catalog and access."""
        standing = _standing(self.defined)
        self.catalog_changes = _tables_of(standing)
        self.access_changes = _access_of(standing)
        self.definition = next(_definitions)

    def defined_until(self, lsn: Lsn) -> list[Defined]:
        """Return what counts at lsn of what was defined at or before it, for a checkpoint."""
        return _standing(each for each in self.defined if each.lsn <= lsn)

    def access_until(self, lsn: Lsn) -> dict[FactKey, Fact | None]:
        """Return the changes of access at or before lsn."""
        return _access_of(self.defined_until(lsn))

    def catalog_until(self, lsn: Lsn) -> dict[str, Table | None]:
        """Return the catalog changes at or before lsn."""
        return _tables_of(self.defined_until(lsn))

    def tables_made(self, lsn: Lsn) -> Iterable[Table]:
        """Yield the tables that it has made, those that it dropped again among them.

        As of lsn, and all that it makes behind that: a ROLLBACK TO may bring them back.
        """
        ahead = (each for each in self.defined if each.lsn > lsn)
        for each in chain(self.defined_until(lsn), ahead):
            yield from (table for table in (each.tables or {}).values() if table is not None)

    def changes_until(self, lsn: Lsn) -> dict[int, list[tuple[Key, OwnVersion]]]:
        """Return each key's newest change at or before lsn, for a checkpoint."""
        statement = self.statement_at(lsn)
        result: dict[int, list[tuple[Key, OwnVersion]]] = {}
        for table_id, table in self.writes.items():
            found = ((key, own_visible(version, statement)) for key, version in table.items())
            result[table_id] = [(key, version) for key, version in found if version is not None]
        return result


def _tables_of(defined: Iterable[Defined]) -> dict[str, Table | None]:
    found: dict[str, Table | None] = {}
    for each in defined:
        found.update(each.tables or {})
    return found


def _access_of(defined: Iterable[Defined]) -> dict[FactKey, Fact | None]:
    found: dict[FactKey, Fact | None] = {}
    for each in defined:
        found.update(each.access)
    return found
