"""Numbers: the sequences as one session sees them: nextval(), currval(), lastval(), setval().

A value is given away by a step in memory, below what the log has reserved: the record of a
reservation stands before that of every commit that uses a value of it, so no value comes twice
(ADR 97). The session's thread, without the monitor.
"""

from collections.abc import Callable
from functools import partial

from herdpy.engine.sequences.values import next_value, reserve, set_value
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.errors import LockTimeoutError, ProgrammingError, no_table
from herdpy.model.schema import Table

_VALUES_MIN = 64
"""So many values are kept before those of sequences that are gone are looked for."""


class SessionNumbers:
    """Implements exec.interfaces.Numbers."""

    __slots__ = (
        "_last",
        "_lock_timeout_s",
        "_room",
        "_tablespace",
        "_transaction",
        "_values",
        "is_at_once",
        "numbered_by",
    )

    def __init__(
        self,
        tablespace: Tablespace,
        transaction: Callable[[], Transaction | None],
        lock_timeout_s: Callable[[], float],
    ) -> None:
        """transaction() is the one that takes values, None for what has none yet."""
        self._tablespace = tablespace
        self._transaction = transaction
        self._lock_timeout_s = lock_timeout_s
        self._values: dict[int, int] = {}
        """What the session was given last, by the sequence's id."""
        self._room = _VALUES_MIN
        self.numbered_by: object | None = None
        """As a transaction's, of values that are taken before there is one: of an ingest's rows."""
        self._last: int | None = None
        self.is_at_once = False
        """Nothing waits for the disk: on the server's loop. LogSpaceError: it would have to."""

    def next_value(self, name: str) -> int:
        """Give away the next value; 2200H: there is none.

        MustWaitError: a transaction changes the sequence.
        """
        tablespace = self._tablespace
        with tablespace.monitor:
            tablespace.enter()
            sequence = self._found(name)
            value = self._given(sequence)
        if value is None:
            reserved = partial(self._reserved, name)
            sequence, value = (
                reserved() if self.is_at_once else with_log_space(tablespace, reserved)
            )
        self._note(sequence, value)
        self._last = sequence.id
        return value

    def current_value(self, name: str) -> int:
        """Return what next_value() gave the session last; 55000: it has not."""
        sequence = self._standing(name)
        value = None if sequence is None else self._values.get(sequence.id)
        if value is None:
            raise ProgrammingError(
                f'currval of sequence "{name}" is not yet defined in this session',
                sqlstate="55000",
                hint="nextval() comes first.",
            )
        return value

    def last_value(self) -> int:
        """Return what next_value() gave the session last, of any sequence; 55000."""
        if self._last is None or self._last not in self._standing_ids():
            raise ProgrammingError(
                "lastval is not yet defined in this session",
                sqlstate="55000",
                hint="nextval() comes first.",
            )
        return self._values[self._last]

    def set_value(self, name: str, value: int | None, is_called: bool | None = True) -> int | None:
        """Have the sequence go on behind the value, with is_called False from it on; None: not.

        22003: the value is out of its bounds. MustWaitError as next_value().
        """
        if value is None or is_called is None:
            return None
        sequence = with_log_space(
            self._tablespace, partial(self._set, name, value, is_called=is_called)
        )
        if is_called:
            self._note(sequence, value)
        return value

    def _note(self, sequence: Table, value: int) -> None:
        self._values[sequence.id] = value
        if len(self._values) > self._room:
            standing = self._standing_ids()
            self._values = {key: self._values[key] for key in self._values if key in standing}
            self._room = max(_VALUES_MIN, 2 * len(self._values))

    def check(self) -> None:
        """Raise 40001 when the values that were given last are not to be written. Monitor held."""
        self._tablespace.check_numbers((self._transaction() or self).numbered_by)

    def _given(self, sequence: Table) -> int | None:
        """Give the next reserved value to the transaction; None: there is none. Monitor held."""
        tablespace, holder = self._tablespace, self._transaction() or self
        tablespace.check_numbers(holder.numbered_by)
        value = next_value(tablespace.applier, sequence)
        if value is not None:
            holder.numbered_by = tablespace.applier
        return value

    def _reserved(self, name: str) -> tuple[Table, int]:
        """Reserve values in the log, and give away the first of them."""
        tablespace = self._tablespace
        with tablespace.monitor:
            tablespace.enter()
            sequence = self._found(name)
            reserve(tablespace, sequence)
            value = self._given(sequence)
        assert value is not None
        return sequence, value

    def _set(self, name: str, value: int, *, is_called: bool) -> Table:
        tablespace = self._tablespace
        with tablespace.monitor:
            tablespace.enter()
            sequence = self._found(name)
            set_value(tablespace, sequence, value, is_called=is_called)
        return sequence

    def _found(self, name: str) -> Table:
        """Return the sequence, which no other transaction is changing. Monitor held."""
        tablespace, transaction = self._tablespace, self._transaction()
        if tablespace.locks.is_taken(transaction, (name,)):
            self._wait(name, transaction)
        found = self._standing(name)
        if found is None or found.sequence is None:
            raise no_table(name, (), kind="sequence")
        return found

    def _standing_ids(self) -> set[int]:
        transaction = self._transaction()
        changes = dict(transaction.catalog_changes) if transaction is not None else {}
        tables = self._tablespace.applier.state.catalog.tables()
        found = {table.id for table in tables if table.name not in changes}
        return found.union(table.id for table in changes.values() if table is not None)

    def _standing(self, name: str) -> Table | None:
        transaction = self._transaction()
        if transaction is not None and name in transaction.catalog_changes:
            return transaction.catalog_changes[name]
        return self._tablespace.applier.state.catalog.table(name)

    def _wait(self, name: str, transaction: Transaction | None) -> None:
        if transaction is None:
            raise LockTimeoutError(
                f'sequence "{name}" is being changed by another transaction',
                hint="Do it again when that has ended.",
            )
        wait = self._tablespace.locks.acquire(transaction, (name,), Mode.SHARED)
        if wait is not None:
            raise MustWaitError(wait, self._lock_timeout_s())
