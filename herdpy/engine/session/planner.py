"""Planner: what a statement's text means now, to a session's user, in its transaction.

The catalog and the rights that it sees, the plan cache, and the lease that it may read at. All
runs under the mutex, as a part of a statement; a user without the rights gets no plan (42501).
"""

from typing import NamedTuple

from herdpy.engine.access.rights import Gate, check_needs, current_access, denied, rights_of
from herdpy.engine.session.core import SessionCore
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.snapshot_leases import SnapshotLease, gone_error, not_here_error
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.execution import Execution, Part
from herdpy.engine.statements.plan_cache import (
    PlanKey,
    Prepared,
    number_types,
    plan_key,
    prepare,
)
from herdpy.engine.statements.result_places import Holder
from herdpy.engine.statements.shared_plans import is_shared
from herdpy.errors import Error, InternalError, no_table, not_a
from herdpy.exec.result import Result
from herdpy.limits import own_plan_text_max, own_plans_max
from herdpy.model.access import TABLE_RIGHTS, Rights, User
from herdpy.model.role_settings import OPEN_RESULTS
from herdpy.model.schema import Table
from herdpy.model.types import Physical
from herdpy.sql.plan import Parameters
from herdpy.sql.reading.literals import Split

_NEVER_SHARED = ("42601", "0A000")
"""Errors of a text with placeholders that are not about what the catalog has, or the values."""


class Shared(NamedTuple):
    """A statement as its shared plan has it: text and parameters, the plan, and its values."""

    split: Split
    prepared: Prepared
    values: list[Physical]


class _OwnPlans(NamedTuple):
    """What a transaction that defines tables has planned since it defined the last one."""

    definition: int
    base: Catalog
    catalog: Catalog
    plans: dict[PlanKey, Prepared]
    latest: dict[str, Prepared]


class Planner:
    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._database = core.database
        self._tablespace = core.tablespace
        self.gate = Gate(core.identity)
        self._own: _OwnPlans | None = None

    # --- what the session sees -------------------------------------------------------------------

    def catalog_of(self, transaction: Transaction | None) -> Catalog:
        catalog = self._tablespace.state.catalog
        if transaction is None:
            return catalog
        taken = None if transaction.reads_at is None else transaction.reads_at.taken
        if taken is not None:
            catalog = taken.catalog
        if not transaction.catalog_changes:
            return catalog
        own = self._own
        if own is None or own.definition != transaction.definition or own.base is not catalog:
            changed = catalog.with_changes(
                transaction.catalog_changes, transaction.access_changes, version=-1
            )
            own = self._own = _OwnPlans(transaction.definition, catalog, changed, {}, {})
        return own.catalog

    def rights(self) -> Rights | None:
        """Return what the session's user may do, None for all."""
        core = self._core
        return rights_of(current_access(self._tablespace, core.transaction), core.identity)

    def owns(self, owner: User | None) -> bool:
        """Tell whether the session may do what the owner of a lease or of a staging may."""
        if owner == self._core.identity:
            return True
        rights = self.rights()
        return rights is None or rights.is_superuser

    def visible_tables(self) -> list[Table]:
        """Return the tables and views that the session's user has any right on, by name."""
        tables, rights = self.catalog_of(self._core.transaction).tables(), self.rights()
        if rights is None or rights.is_superuser:
            return tables
        return [table for table in tables if rights.of(table.id) & TABLE_RIGHTS]

    def table(self, name: str, rights_needed: int, catalog: Catalog | None = None) -> Table:
        """Return a table on which the session's user has these rights; 42P01, 42809, 42501."""
        catalog = catalog or self.catalog_of(self._core.transaction)
        names = {each.name for each in catalog.tables()}
        table = catalog.table(name if name in names else name.lower())
        if table is None or table.name not in names:
            raise no_table(name, names)
        if not table.has_rows:
            raise not_a("table", table.name)
        access = current_access(self._tablespace, self._core.transaction)
        rights = rights_of(access, self._core.identity)
        if rights is not None:
            check_needs(rights, ((table, rights_needed, None),), access)
        return table

    # --- plans -----------------------------------------------------------------------------------

    def prepare(
        self, text: str, parameters: Parameters, catalog: Catalog | None = None
    ) -> Prepared:
        """Return the plan of a statement that the session's user may run."""
        catalog = catalog or self.catalog_of(self._core.transaction)
        own, key = self._own, plan_key(text, parameters)
        if catalog.version < 0:
            if own is None or own.catalog is not catalog:
                return self._authorize(prepare(text, catalog, parameters, self._look))
            return self._authorize(self._prepare_own(own, key, text, parameters))
        cache = self._database.plans
        prepared = cache.get(key)
        if prepared is not None and not prepared.holds_for(parameters):
            key = (text, (key[1], *number_types(prepared.compiled.numbers, parameters)))
            prepared = cache.get(key)
        if prepared is None or not prepared.is_current(catalog):
            prepared = prepare(text, catalog, parameters, self._look)
            if not prepared.is_secret:
                cache.put(key, prepared)
        return self._authorize(prepared)

    def _prepare_own(
        self, own: "_OwnPlans", key: PlanKey, text: str, parameters: Parameters
    ) -> Prepared:
        """As prepare(), in a transaction that has defined tables itself."""
        prepared = own.plans.get(key)
        if prepared is None or not prepared.holds_for(parameters):
            prepared = prepare(text, own.catalog, parameters, self._look)
            if not prepared.is_secret and len(text) <= own_plan_text_max:
                if len(own.plans) >= own_plans_max:
                    own.plans.clear()
                    own.latest.clear()
                own.plans[key] = own.latest[text] = prepared
        return prepared

    def bound(self, text: str, parameters: Parameters) -> tuple[Prepared, list[Physical]]:
        """Return the plan and its values; the plan used last for the text binds fast, or not."""
        transaction, latest = self._core.transaction, None
        if transaction is not None and transaction.catalog_changes:
            own, catalog = self._own, self.catalog_of(transaction)
            if own is not None and own.catalog is catalog:
                latest = own.latest.get(text)
        elif transaction is None or not transaction.reads_at:
            latest = self._database.plans.latest.get(text)
            if latest is not None and not latest.is_current(self._tablespace.applier.state.catalog):
                latest = None
        if latest is not None and latest.bind is not None:
            values = latest.bind(parameters)
            if values is not None:
                return self._authorize(latest), values
        prepared = self.prepare(text, parameters)
        return prepared, prepared.values(parameters, self._core.now_us)

    def shared(self, text: str) -> "Shared | None":
        """Return the plan that a statement without parameters shares with others, and its values.

        None: it is to be planned as it stands, if only to say what is wrong with it.
        """
        plans = self._database.shared_plans
        split = plans.find(text)
        if split is None:
            return None
        try:
            prepared, values = self.bound(*split)
        except Error as error:
            if error.sqlstate in _NEVER_SHARED:
                plans.give_up(split)
            return None
        if is_shared(prepared, split.values):
            return Shared(split, prepared, values)
        plans.give_up(split)
        return None

    def _authorize(self, prepared: Prepared) -> Prepared:
        """Return the statement, unless the session's user may not run it (42501)."""
        if self._core.user is not None:
            self.gate.check(prepared, current_access(self._tablespace, self._core.transaction))
        return prepared

    def check_interrupt(self) -> None:
        """Raise why the statement that runs must end, if it must."""
        interrupt = self._core.interrupt
        if interrupt is not None:
            interrupt.check()

    def _look(self) -> None:
        """As check_interrupt(), and ask for memory until the next look."""
        self.check_interrupt()
        self._core.planning.look()

    def execution(self, transaction: Transaction | None) -> Execution:
        """Return what runs a plan in a transaction."""
        core = self._core
        if core.interrupt is None:
            raise InternalError("a statement without interrupt")
        lock_timeout_s = core.settings.lock_timeout_s
        return Execution(
            core.database,
            transaction,
            core.interrupt,
            lock_timeout_s,
            self._look,
            self.holder,
            numbers=core.numbers,
        )

    def holder(self) -> Holder:
        """Return who has the results of the session's queries."""
        core = self._core
        database = self._database
        is_administrator = database.is_administrator(core.user)
        maximum = core.maxima.get(OPEN_RESULTS)
        return Holder(core.id, core.identity, is_administrator, database.refusals, maximum)

    def select(
        self,
        transaction: Transaction | None,
        prepared: Prepared,
        values: list[Physical],
        part: Part | None = None,
    ) -> Result:
        """Run a query; its result cannot be read when the session has ended."""
        result = self.execution(transaction).select(prepared, values, part)
        result.ended = self._core.ended
        return result

    # --- leases ----------------------------------------------------------------------------------

    def lease(self, number: str) -> SnapshotLease:
        """Return a lease that the user may read at, used now; SnapshotTooOldError, 42501."""
        leases = self._tablespace.applier.leases
        lease = leases.find(number)
        if lease is None:
            raise not_here_error(number) if self._tablespace.follows else gone_error(number)
        if not self.owns(lease.owner):
            raise other_owner_error()
        return leases.use(number)

    def use_lease(self) -> None:
        """Note that the transaction's lease is used, if it has one; SnapshotTooOldError."""
        transaction = self._core.transaction
        if transaction is not None and isinstance(transaction.reads_at, SnapshotLease):
            self.lease(transaction.reads_at.id)

    def set_snapshot(self, number: str) -> None:
        """Have the transaction, which begins here if it is to, read at a lease."""
        self._core.check_not_lost()
        if self._core.tablespace.follows:  # its uses are the leader's to count
            raise self._core.tablespace.why_follows()
        transaction = self._core.current_transaction()
        if transaction is None:
            raise InternalError(
                "SET TRANSACTION SNAPSHOT: there is no transaction", sqlstate="25P01", hint="BEGIN."
            )
        if transaction.is_used:
            raise InternalError(
                "SET TRANSACTION SNAPSHOT comes first in a transaction",
                sqlstate="25001",
                hint="COMMIT or ROLLBACK, and begin another one.",
            )
        transaction.reads_at = self.lease(number)

    def reading(self, lease: str | None) -> Transaction | None:
        """Return what a read by the driver's own call belongs to: at this lease, None: at none."""
        core = self._core
        core.check_not_lost()
        if lease is None:
            self.use_lease()
            return core.transaction
        reading = self._tablespace.begin(core.settings.durability, is_autocommit=True)
        reading.reads_at = self.lease(lease)
        return reading


def other_owner_error() -> Error:
    """Return the refusal of a lease of another user."""
    return denied("use a snapshot lease", "It is another user's.")
