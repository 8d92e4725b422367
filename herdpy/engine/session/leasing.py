"""Leasing: what a session does with leases: take, use, end; and tables in parts, at one or not.

Each call is a statement of the session; any thread. take() and end() wait for the log.
"""

from collections.abc import Sequence
from contextlib import suppress

from herdpy.engine.access.rights import denied
from herdpy.engine.session.parts import SessionPart, statement
from herdpy.engine.session.planner import other_owner_error
from herdpy.engine.state.log_space import with_log_space
from herdpy.engine.state.memtable import SnapshotGoneError
from herdpy.engine.state.snapshot_leases import SnapshotLease
from herdpy.engine.state.snapshots import snapshot_too_old
from herdpy.engine.statements.partitions import Part, partitions
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.errors import Error, NotSupportedError, ProgrammingError, SnapshotTooOldError
from herdpy.exec.result import Result
from herdpy.limits import lease_seconds_max, partitions_max
from herdpy.log.record import BeginLease
from herdpy.model.access import SELECT, plain_user
from herdpy.model.durability import Durability
from herdpy.model.keys import decode_key, encode_key
from herdpy.model.role_settings import LEASES
from herdpy.model.schema import Table
from herdpy.model.types import Key
from herdpy.sql.plan import Parameters, RowSelect, VectorSelect
from herdpy.sql.text import name_text
from herdpy.sql.tree import Query, Select, TableRef, nodes

PlainPart = tuple[bytes | None, bytes | None, int, int]
"""lower <= key < upper (None: open; formats/keys.md), and about how many rows and bytes it has."""


class Leasing(SessionPart):
    @statement("LEASE")
    def take(self, seconds: float, reuse: str | None = None) -> SnapshotLease:
        """Keep what is committed now until end(), or until it was not used for so long.

        `reuse`: the id of a lease that is returned instead, and counts as used, if it is the
        user's, lives as long and nothing was committed since it was taken. Durable on return.
        42501: the user may read no table. DiskFullError, 53400: there is none.
        """
        core, tablespace = self._core, self._tablespace
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not 1 <= seconds <= lease_seconds_max:
            raise ProgrammingError(
                f"lease: expected 1 to {lease_seconds_max:,} seconds, found {seconds!r}",
                sqlstate="22023",
            )
        if reuse is not None and self._is_current(reuse, seconds):
            with suppress(SnapshotTooOldError):  # it ends just now
                return tablespace.applier.leases.use(reuse)
        rights = self._planner.rights()
        if rights is not None and not rights.may_read_any:
            raise denied("take a snapshot lease", "It takes SELECT on some table.")
        number = core.database.rng.randbytes(16).hex()
        owner, owner_id = plain_user(core.identity)
        at_us = tablespace.clock.wall_us()
        record = BeginLease(number, owner, float(seconds), at_us, owner_id)
        core.database.check_room()
        maximum = core.maxima.get(LEASES)
        with core.database.refusals.counted(LEASES, core.identity):
            ticket = with_log_space(
                tablespace, lambda: tablespace.begin_lease(record, core.identity, maximum)
            )
        core.wait_for(ticket, Durability.SYNC)
        return tablespace.applier.leases.use(number)

    @statement("USE LEASE")
    def use(self, number: str) -> SnapshotLease:
        """Begin the time of a lease anew, and return it; SnapshotTooOldError: it is gone."""
        return self._planner.lease(number)

    @statement("END LEASE")
    def end(self, number: str) -> bool:
        """Let a lease go; durable on return. False: it was gone."""
        tablespace = self._tablespace
        lease = tablespace.applier.leases.find(number)
        if lease is None:
            return False
        if not self._planner.owns(lease.owner):
            raise other_owner_error()
        ticket = with_log_space(
            tablespace, lambda: tablespace.end_leases([number]), frees_space=True
        )
        if ticket is not None:
            self._core.wait_for(ticket, Durability.SYNC)
        elif not lease.is_gone:  # another session is ending it, or a call that was interrupted
            tablespace.sync_log()
        return ticket is not None

    @statement("PARTITIONS {0}")
    def partitions(self, name: str, count: int, lease: str | None = None) -> list[PlainPart]:
        """Cut a table into at most `count` ranges of its key, of about as many rows each."""
        is_count = isinstance(count, int) and not isinstance(count, bool)
        if not is_count or not 1 <= count <= partitions_max:
            raise ProgrammingError(
                f"partitions: expected a count of 1 to {partitions_max:,}, found {count!r}",
                sqlstate="22023",
            )
        transaction = self._planner.reading(lease)
        table = self._planner.table(name, SELECT, self._planner.catalog_of(transaction))
        snapshot = self._tablespace.snapshot(transaction)
        try:
            parts = partitions(snapshot.source(table), count)
        except SnapshotGoneError:
            raise snapshot_too_old() from None
        finally:
            snapshot.close()
        return [_plain_part(table, each) for each in parts]

    @statement("READ PARTITION {0}")
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
        core, planner = self._core, self._planner
        now_us = core.now_us() if lease is None else core.database.clock.wall_us()
        transaction = planner.reading(lease)
        catalog = planner.catalog_of(transaction)
        table = planner.table(name, SELECT, catalog)
        text = _select_text(table, columns, where)
        try:
            prepared = planner.prepare(text, parameters, catalog)
        except Error as error:
            raise _placed(error, where, text) from None
        _check_query(prepared, table)
        values = prepared.values(parameters, lambda: now_us)
        self._tablespace.check_running()
        bounds = _bound_key(table, lower), _bound_key(table, upper)
        return planner.select(transaction, prepared, values, (table, *bounds))

    def _is_current(self, number: str, seconds: float) -> bool:
        """Tell whether one's own lease of so many seconds keeps just what is committed now."""
        lease = self._tablespace.applier.leases.find(number)
        if lease is None or lease.owner != self._core.identity or lease.seconds < seconds:
            return False
        return lease.taken_at == self._tablespace.state.position


def _plain_part(table: Table, part: Part) -> PlainPart:
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
