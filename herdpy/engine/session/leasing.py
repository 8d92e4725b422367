"""Leasing: what a session does with leases: take, use, end; and tables in parts, at one or not.

Under the session's own guard; any thread. take() and end() wait for the log.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from bookie.runtime.ticket import Ticket
from herdpy.engine.access.rights import check_needs, denied
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memtable import SnapshotGoneError
from herdpy.engine.state.snapshot_leases import SnapshotLease, gone_error
from herdpy.engine.state.snapshots import snapshot_too_old
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.execution import Execution
from herdpy.engine.statements.partitions import Part, partitions
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.errors import Error, NotSupportedError, ProgrammingError, SnapshotTooOldError
from herdpy.exec.result import Result
from herdpy.limits import lease_seconds_max, partitions_max
from herdpy.log.record import BeginLease
from herdpy.model.access import SELECT, Rights, User
from herdpy.model.durability import Durability
from herdpy.model.keys import decode_key, encode_key
from herdpy.model.schema import Table
from herdpy.model.types import Key
from herdpy.sql.plan import Parameters, RowSelect, VectorSelect
from herdpy.sql.text import name_text
from herdpy.sql.tree import Query, Select, TableRef, nodes

if TYPE_CHECKING:
    from herdpy.engine.statements.interfaces import DatabaseServices

PlainPart = tuple[bytes | None, bytes | None, int, int]
"""lower <= key < upper (None: open; formats/keys.md), and about how many rows and bytes it has."""


class LeasingPart(NamedTuple):
    """What leasing needs of its session; all but guarded() under its guard."""

    guarded: Callable[[Callable[[], Any], str], Any]
    reading: Callable[[str | None], Transaction | None]
    """What a read at this lease belongs to; None: at none."""
    catalog_of: Callable[[Transaction | None], Catalog]
    prepare: Callable[[str, Parameters, Catalog | None], Prepared]
    now_us: Callable[[], int]
    """The time of the session's transaction, which begins here if it is to."""
    execution: Callable[[Transaction | None], Execution]
    rights: Callable[[], Rights | None]
    user: User | None


class Leasing:
    """See the module."""

    def __init__(self, database: "DatabaseServices", part: LeasingPart) -> None:
        self._database = database
        self._part = part

    def take(self, seconds: float, reuse: str | None = None) -> SnapshotLease:
        """Keep what is committed now until end(), or until it was not used for so long.

        `reuse`: the id of a lease that is returned instead, and counts as used, if it is the
        user's, lives as long and nothing was committed since it was taken. Durable on return.
        DiskFullError, 53400: there is none.
        """
        return self._part.guarded(lambda: self._take(seconds, reuse), "LEASE")

    def use(self, number: str) -> SnapshotLease:
        """Begin the time of a lease anew, and return it; SnapshotTooOldError: it is gone."""
        part = self._part
        return part.guarded(
            lambda: use_lease(self._database, number, part.user, part.rights()), "USE LEASE"
        )

    def end(self, number: str) -> bool:
        """Let a lease go; durable on return. False: it was gone."""
        return self._part.guarded(lambda: self._end(number), "END LEASE")

    def partitions(self, name: str, count: int, lease: str | None = None) -> list[PlainPart]:
        """Cut a table into at most `count` ranges of its key, of about as many rows each."""
        return self._part.guarded(
            lambda: self._partitions(name, count, lease), f"PARTITIONS {name}"
        )

    def read_partition(
        self,
        name: str,
        lower: bytes | None,
        upper: bytes | None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        parameters: Parameters = None,
        lease: str | None = None,
    ) -> Result:
        """Return the rows of a part of a table for which `where` holds, in any order.

        With a lease those of its snapshot. `where` is SQL over the table's own columns.
        """

        def read() -> Result:
            part = self._part
            now_us = part.now_us() if lease is None else self._database.clock.wall_us()
            transaction = part.reading(lease)
            table = self._table(name, transaction)
            text = _select_text(table, columns, where)
            try:
                prepared = part.prepare(text, parameters, part.catalog_of(transaction))
            except Error as error:
                raise _placed(error, where, text) from None
            _check_query(prepared, table)
            values = prepared.values(parameters, lambda: now_us)
            self._database.tablespace.check_running()
            bounds = _bound_key(table, lower), _bound_key(table, upper)
            return part.execution(transaction).select_part(prepared, values, (table, *bounds))

        return self._part.guarded(read, f"READ PARTITION {name}")

    def _take(self, seconds: float, reuse: str | None) -> SnapshotLease:
        database = self._database
        tablespace = database.tablespace
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not 1 <= seconds <= lease_seconds_max:
            raise ProgrammingError(
                f"lease: expected 1 to {lease_seconds_max:,} seconds, found {seconds!r}",
                sqlstate="22023",
            )
        if reuse is not None and self._is_current(reuse, seconds):
            with suppress(SnapshotTooOldError):  # it ends just now
                return tablespace.applier.leases.use(reuse)
        number = database.rng.randbytes(16).hex()
        user = self._part.user
        name = None if user is None else user.name
        record = BeginLease(number, name, float(seconds), tablespace.clock.wall_us())
        self._wait(with_log_space(tablespace, lambda: tablespace.begin_lease(record, user)))
        return tablespace.applier.leases.use(number)

    def _is_current(self, number: str, seconds: float) -> bool:
        """Tell whether one's own lease of so many seconds keeps just what is committed now."""
        tablespace = self._database.tablespace
        lease = tablespace.applier.leases.find(number)
        user = self._part.user
        name = None if user is None else user.name
        if lease is None or lease.owner != name or lease.seconds < seconds:
            return False
        return lease.taken_at == tablespace.state.position

    def _end(self, number: str) -> bool:
        tablespace = self._database.tablespace
        lease = tablespace.applier.leases.find(number)
        if lease is None:
            return False
        _check_owner(lease, self._part.user, self._part.rights())
        ticket = with_log_space(
            tablespace, lambda: tablespace.end_leases([number]), frees_space=True
        )
        if ticket is not None:
            self._wait(ticket)
        elif not lease.is_gone:  # another session is ending it, or a call that was interrupted
            tablespace.sync_log()
        return ticket is not None

    def _wait(self, ticket: Ticket[None]) -> None:
        syncer = self._database.tablespace.syncer
        if syncer is not None:
            syncer.request(Durability.SYNC)
        if not ticket.is_done:
            self._database.driver.wait(ticket)
        ticket.result()

    def _partitions(self, name: str, count: int, lease: str | None) -> list[PlainPart]:
        is_count = isinstance(count, int) and not isinstance(count, bool)
        if not is_count or not 1 <= count <= partitions_max:
            raise ProgrammingError(
                f"partitions: expected a count of 1 to {partitions_max:,}, found {count!r}",
                sqlstate="22023",
            )
        transaction = self._part.reading(lease)
        table = self._table(name, transaction)
        snapshot = self._database.tablespace.snapshot(transaction)
        try:
            parts = partitions(snapshot.source(table), count)
        except SnapshotGoneError:
            raise snapshot_too_old() from None
        finally:
            snapshot.close()
        return [_plain_part(table, each) for each in parts]

    def _table(self, name: str, transaction: Transaction | None) -> Table:
        """Return a table that the session's user may read; 42P01, 42501."""
        catalog = self._part.catalog_of(transaction)
        names = catalog.table_names()
        table = catalog.table(name if name in names else name.lower())
        if table is None or table.name not in names:
            raise ProgrammingError(f'table "{name}" does not exist', sqlstate="42P01")
        rights = self._part.rights()
        if rights is not None:
            check_needs(rights, ((table, SELECT),))
        return table


def use_lease(
    database: "DatabaseServices", number: str, user: User | None, rights: Rights | None
) -> SnapshotLease:
    """Return a lease that one may read at, its time begun anew; SnapshotTooOldError, 42501."""
    leases = database.tablespace.applier.leases
    lease = leases.find(number)
    if lease is None:
        raise gone_error(number)
    _check_owner(lease, user, rights)
    return leases.use(number)


def _check_owner(lease: SnapshotLease, user: User | None, rights: Rights | None) -> None:
    """Raise 42501. A name is enough: what a user owns ends in the log before she is dropped."""
    name = None if user is None else user.name
    if rights is not None and not rights.is_superuser and lease.owner != name:
        raise denied("use a snapshot lease", "It is another user's.")


def _plain_part(table: Table, part: Part) -> PlainPart:
    """Return a part with its bounds at rest."""
    kinds = [table.columns[ordinal].type.kind for ordinal in table.key]
    low, high = part.low, part.high
    return (
        None if low is None else encode_key(low, kinds),
        None if high is None else encode_key(high, kinds),
        part.row_count,
        part.byte_count,
    )


def _bound_key(table: Table, bound: bytes | None) -> Key | None:
    """Return a bound of a part; ProgrammingError 22023 for what is no key of the table."""
    if bound is None:
        return None
    try:
        return decode_key(bound, [table.columns[ordinal].type.kind for ordinal in table.key])
    except ValueError as error:
        raise ProgrammingError(
            f'a partition that is not of table "{table.name}": {error}',
            sqlstate="22023",
            hint="the table was made anew since: ask for its partitions again",
        ) from error


def _select_text(table: Table, columns: Sequence[str] | None, where: str | None) -> str:
    """Return the SELECT of a part's rows."""
    names = [column.name for column in table.visible_columns] if columns is None else columns
    if not names:
        raise ProgrammingError("read_partition: expected a column or more", sqlstate="22023")
    outputs = ", ".join(map(name_text, names))
    text = f"SELECT {outputs} FROM {name_text(table.name)}"  # noqa: S608 - of quoted names
    return text if where is None else f"{text} WHERE (\n{where}\n)"


def _placed(error: Error, where: str | None, text: str) -> Error:
    """Return an error whose position is one in `where`, if it is about that."""
    if error.position is not None:
        position = error.position - text.find("(\n") - 2
        error.position = position if where is not None and position > 0 else None
    return error


def _check_query(prepared: Prepared, table: Table) -> None:
    """Raise unless it is a SELECT of rows of this one table, which may be cut into parts."""
    plan = prepared.plan
    is_query = isinstance(plan, RowSelect | VectorSelect)
    if not is_query or not _is_plain(plan.query, table):
        raise NotSupportedError(
            "read_partition: `where` is one condition on the table's own columns, without "
            "subqueries",
            hint="run the SELECT itself, under SET TRANSACTION SNAPSHOT",
        )


def _is_plain(query: Query, table: Table) -> bool:
    """Tell whether a query gives columns of the table's rows that fit a condition on each."""
    body = query.body
    if not isinstance(body, Select) or not isinstance(body.source, TableRef):
        return False
    plain = Query(Select(body.outputs, body.source, body.where), query.columns)
    if plain != query or body.source.table != table:
        return False
    return not any(isinstance(node, Query) for node in nodes((body.where, body.outputs)))
