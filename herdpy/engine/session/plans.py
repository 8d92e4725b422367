"""A session's plans: what a statement's text means now, to this user, in this transaction.

The catalog and the rights that it sees, the plan cache, and the lease that it may read at. All
runs under the mutex; who may not run a statement gets no plan of it (42501).
"""

from herdpy.engine.access.rights import check_needs, current_access, rights_of
from herdpy.engine.session.guard import SessionGuard
from herdpy.engine.session.leasing import use_lease
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.snapshot_leases import SnapshotLease
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.execution import Execution
from herdpy.engine.statements.plan_cache import Prepared, plan_key, prepare
from herdpy.errors import InternalError, ProgrammingError
from herdpy.model.access import TABLE_RIGHTS, Rights
from herdpy.model.schema import Table
from herdpy.model.types import Physical
from herdpy.sql.plan import Parameters


class SessionPlans(SessionGuard):
    """See the module."""

    def _catalog(self) -> Catalog:
        catalog = self._tablespace.state.catalog
        transaction = self._transaction
        if transaction is not None and transaction.lease is not None:
            return transaction.lease.state.catalog
        if transaction is not None and transaction.catalog_changes:
            return catalog.with_changes(
                transaction.catalog_changes, transaction.access_changes, version=-1
            )
        return catalog

    def _catalog_of(self, transaction: Transaction | None) -> Catalog:
        if transaction is not None and transaction.lease is not None:
            return transaction.lease.state.catalog
        return self._catalog()

    def _rights(self) -> Rights | None:
        """Return what the session's user may do, None for all."""
        return rights_of(current_access(self._tablespace, self._transaction), self.identity)

    def _authorize(self, prepared: Prepared) -> Prepared:
        """Return the statement, unless the session's user may not run it (42501)."""
        if self.user is not None:
            self._gate.check(prepared, current_access(self._tablespace, self._transaction))
        return prepared

    @property
    def is_superuser(self) -> bool:
        """The session's user may do everything now. Any thread."""
        return self._database.is_superuser(self.user)

    def _visible_tables(self) -> list[Table]:
        """Return the tables that the session's user has any right on, by name."""
        tables, rights = self._catalog().tables(), self._rights()
        if rights is None or rights.is_superuser:
            return tables
        return [table for table in tables if rights.of(table.id) & TABLE_RIGHTS]

    def _table_for(self, name: str, rights_needed: int) -> Table:
        """Return a table on which the session's user has these rights."""
        catalog = self._catalog()
        names = catalog.table_names()
        table = catalog.table(name if name in names else name.lower())
        if table is None or table.name not in names:
            raise ProgrammingError(f'table "{name}" does not exist', sqlstate="42P01")
        rights = self._rights()
        if rights is not None:
            check_needs(rights, ((table, rights_needed),))
        return table

    def _prepare(
        self, text: str, parameters: Parameters, catalog: Catalog | None = None
    ) -> Prepared:
        catalog = self._catalog() if catalog is None else catalog
        if catalog.version < 0:
            return self._authorize(prepare(text, catalog, parameters, self._check_interrupt))
        cache = self._database.plans
        key = plan_key(text, parameters)
        prepared = cache.get(key)
        if prepared is None or not (
            prepared.version == catalog.version or prepared.is_current(catalog)
        ):
            prepared = prepare(text, catalog, parameters, self._check_interrupt)
            if not prepared.is_secret:
                cache.put(key, prepared)
        return self._authorize(prepared)

    def _bound(self, text: str, parameters: Parameters) -> tuple[Prepared, list[Physical]]:
        """Return the plan and its values; the plan used last for the text binds fast, or not."""
        latest = self._database.plans.latest.get(text)
        if latest is not None and latest.bind is not None:
            transaction = self._transaction
            is_changed = transaction is not None and (
                transaction.catalog_changes or transaction.lease
            )
            catalog = self._tablespace.applier.state.catalog
            is_current = latest.version == catalog.version or latest.is_current(catalog)
            if is_current and not is_changed:
                values = latest.bind(parameters)
                if values is not None:
                    return self._authorize(latest), values
        prepared = self._prepare(text, parameters)
        return prepared, prepared.values(parameters, self._now_us)

    def _now_us(self) -> int:
        """Return the time of the transaction, which begins here if it is to.

        An autocommit statement is a transaction: its time is fixed by the first call.
        """
        if self._transaction is None and not self._autocommit:
            self._open_transaction(self._settings.durability)
        transaction = self._transaction or self._statement
        return self._autocommit_us() if transaction is None else transaction.begun_us

    def _execution(self, transaction: Transaction | None) -> Execution:
        if self._interrupt is None:
            raise InternalError("a statement without interrupt")
        return Execution(
            self._database, transaction, self._interrupt, self._settings.lock_timeout_s
        )

    def _leased(self, number: str) -> SnapshotLease:
        return use_lease(self._database, number, self.identity, self._rights())

    def _use_lease(self) -> None:
        """Note that the transaction's lease is used, if it has one; SnapshotTooOldError."""
        transaction = self._transaction
        if transaction is not None and transaction.lease is not None:
            self._leased(transaction.lease.id)

    def _set_snapshot(self, number: str) -> None:
        self._check_not_lost()
        if not self._autocommit and self._transaction is None:
            self._open_transaction(self._settings.durability)
        transaction = self._transaction
        if transaction is None:
            raise InternalError(
                "SET TRANSACTION SNAPSHOT: there is no transaction", sqlstate="25P01", hint="BEGIN."
            )
        if transaction.id is not None or transaction.statement > 1 or transaction.lease:
            raise InternalError(
                "SET TRANSACTION SNAPSHOT comes first in a transaction",
                sqlstate="25001",
                hint="COMMIT or ROLLBACK, and begin another one.",
            )
        transaction.lease = self._leased(number)

    def _reading(self, lease: str | None) -> Transaction | None:
        """Return what a read by the driver's own call belongs to."""
        self._check_not_lost()
        if lease is None:
            self._use_lease()
            return self._transaction
        reading = self._tablespace.begin(self._settings.durability, is_autocommit=True)
        reading.lease = self._leased(lease)
        return reading
