"""A session's statements: each kind of plan, and what runs it.

Any thread; each is guarded, and run again if its tables were dropped after it was planned.
"""

from collections.abc import Callable, Iterable, Sequence

from herdpy.engine.access.passwords import verifier_of
from herdpy.engine.access.rights import check_superuser
from herdpy.engine.access.roles import Actor
from herdpy.engine.session.fast_path import SessionShort
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.execution import Batch
from herdpy.engine.statements.explain import Measured, check_explainable, explain
from herdpy.engine.statements.plan_cache import Prepared
from herdpy.errors import Error, InternalError, ProgrammingError
from herdpy.exec.result import Result
from herdpy.model.schema import Table
from herdpy.model.settings import OPTIONS, change_option, show_option
from herdpy.model.types import TEXT, Physical
from herdpy.sql.compile import parameter_kinds
from herdpy.sql.plan import (
    ExplainPlan,
    InsertPlan,
    Parameters,
    RowSelect,
    UtilityPlan,
    VectorSelect,
)
from herdpy.sql.tree import (
    AccessStatement,
    AlterRole,
    Begin,
    Commit,
    CreateRole,
    CreateTable,
    DropRole,
    DropTable,
    Kill,
    Rollback,
    SetOption,
    SetSnapshot,
    ShowOption,
    TruncateTables,
)

_SHORT = Kill | Begin | Commit | Rollback | SetOption | ShowOption
_AUDITED = Kill | CreateTable | DropTable | TruncateTables | AccessStatement


class SessionStatements(SessionShort):
    """See the module."""

    def execute(self, text: str, parameters: Parameters = None) -> Result:
        """Run one statement, on the general path; run() knows the faster ones."""
        return self._planned(lambda: self._execute(text, parameters), text)

    def execute_many(self, text: str, rows: Iterable[Parameters]) -> Result:
        """Run one statement for every set of parameters, all or nothing."""
        items = list(rows)
        return self._planned(lambda: self._execute_many(text, items), text)

    def execute_all(
        self, statements: Sequence[tuple[str, Parameters]]
    ) -> tuple[list[Result], Error | None]:
        """Run statements up to the first that fails; return the results, and its error."""
        results: list[Result] = []
        for text, parameters in statements:
            try:
                results.append(self.execute(text, parameters))
            except Error as error:
                return results, error
        return results, None

    def is_introspection(self, text: str, parameters: Parameters = None) -> bool:
        """Tell whether a statement takes no longer than system tables are long.

        It reads nothing but them, KILLs, or is about the session's own options or transaction.
        """

        def look() -> bool:
            prepared = self._bound(text, parameters)[0]
            plan = prepared.plan
            if isinstance(plan, UtilityPlan):
                return isinstance(plan.statement, _SHORT)
            if not isinstance(plan, RowSelect | VectorSelect):
                return False
            if not prepared.needs:  # SELECT 1, but no VALUES of any number of rows
                return isinstance(plan, RowSelect) and plan.ref is None
            return all(table is not None and table.is_system for table, _ in prepared.needs)

        return self._planned(look, text)

    def tables(self) -> list[Table]:
        """Return the tables that the next statement can name, by name."""
        return self._guarded(self._visible_tables, "SHOW TABLES")

    def _execute(self, text: str, parameters: Parameters) -> Result:
        prepared, values = self._bound(text, parameters)
        plan = prepared.plan
        self.is_audited = isinstance(plan, UtilityPlan) and isinstance(plan.statement, _AUDITED)
        if not prepared.is_write and isinstance(plan, UtilityPlan):
            return self._utility(plan, values)
        self._tablespace.check_running()
        self._check_not_lost()
        if not self._autocommit and self._transaction is None:
            self._open_transaction(self._settings.durability)
        self._use_lease()
        if prepared.is_write:
            return self._write(prepared, [values], lambda: self._prepare(text, parameters))
        if isinstance(plan, RowSelect):
            return self._execution(self._transaction).select_rows(prepared, plan, values)
        if isinstance(plan, VectorSelect):
            return self._execution(self._transaction).select_vector(prepared, plan.query, values)
        if isinstance(plan, ExplainPlan):
            return self._explain(
                prepared.inner_plan(),
                values,
                lambda: self._prepare(text, parameters).inner_plan(),
                is_analyze=plan.is_analyze,
            )
        raise InternalError(f"no way to run {plan.__class__.__name__}")

    def _execute_many(self, text: str, items: list[Parameters]) -> Result:
        if not items:
            return Result(row_count=0)
        self._check_not_lost()
        prepared = self._prepare(text, items[0])
        plan = prepared.plan
        if isinstance(plan, RowSelect | VectorSelect | ExplainPlan | UtilityPlan):
            raise ProgrammingError("executemany() takes INSERT, UPSERT, UPDATE or DELETE only")
        if self._transaction is None and not self._autocommit:
            self._open_transaction(self._settings.durability)
        self._database.check_room(frees_space=prepared.frees_space)
        convert = prepared.row_converter
        if convert is not None:
            transaction = self._own_or_statement()
            count = self._execution(transaction).insert_many(
                transaction, prepared, convert, items, lambda item: self._prepare(text, item)
            )
            return self._written(transaction, count)
        if isinstance(plan, InsertPlan) and plan.source is None and _are_alike(items):
            values = [prepared.values(item, self._now_us) for item in items]
            return self._write(prepared, values, lambda: self._prepare(text, items[0]))

        def prepare_all() -> Batch:
            # Item by item: what the parameters are decides about the plan.
            pairs = ((self._prepare(text, item), item) for item in items)
            return [(each, each.values(item, self._now_us)) for each, item in pairs]

        transaction = self._own_or_statement()
        count = self._execution(transaction).write_batch(
            transaction, prepare_all, frees_space=prepared.frees_space
        )
        return self._written(transaction, count)

    def _utility(self, plan: UtilityPlan, values: list[Physical]) -> Result:
        statement = plan.statement
        if isinstance(statement, Begin):
            self._begin(None)
        elif isinstance(statement, Commit):
            self._commit()
        elif isinstance(statement, Rollback):
            self._rollback()
        elif isinstance(statement, SetOption):
            self._settings = change_option(
                self._settings, self._defaults, statement.name, statement.value
            )
        elif isinstance(statement, SetSnapshot):
            self._set_snapshot(statement.lease)
        elif isinstance(statement, ShowOption):
            return self._show(statement.name)
        elif isinstance(statement, Kill):
            check_superuser(self._rights(), "end what others do")
            self._database.kill(self.id, statement.number, is_connection=statement.is_connection)
        elif isinstance(statement, CreateTable | DropTable | TruncateTables | AccessStatement):
            self._check_not_lost()
            self._define(statement, values)
        else:
            raise InternalError(f"no way to run {statement.__class__.__name__}")
        return Result()

    def _show(self, name: str) -> Result:
        if name == "tables":
            rows = [(table.name,) for table in self._visible_tables()]
            return Result((("table_name", TEXT),), iter(rows), row_count=len(rows))
        if name == "all":
            pairs = [(option, show_option(self._settings, option)) for option in OPTIONS]
            return Result((("name", TEXT), ("setting", TEXT)), iter(pairs), row_count=len(pairs))
        if name == "session_authorization":
            row = (self.user,)
        else:
            row = (show_option(self._settings, name),)
        return Result(((name, TEXT),), iter([row]), row_count=1)

    def _explain(
        self,
        inner: Prepared,
        values: list[Physical],
        prepare_again: Callable[[], Prepared],
        *,
        is_analyze: bool,
    ) -> Result:
        """Show a plan on the data as it was before ANALYZE ran the statement."""
        check_explainable(inner.plan)
        snapshot = self._tablespace.snapshot(self._transaction)
        try:
            measured = self._analyze(inner, values, prepare_again) if is_analyze else None
            rows_min = self._database.config.vector_rows_min
            return explain(inner, values, snapshot, measured, rows_min)
        finally:
            snapshot.close()

    def _analyze(
        self, inner: Prepared, values: list[Physical], prepare_again: Callable[[], Prepared]
    ) -> Measured:
        """Run EXPLAIN's statement, with its effects, and say how long it took."""
        monotonic, plan = self._clock.monotonic, inner.plan
        begun_s = monotonic()
        if isinstance(plan, RowSelect | VectorSelect):
            execution = self._execution(self._transaction)
            if isinstance(plan, RowSelect):
                result = execution.select_rows(inner, plan, values)
            else:
                result = execution.select_vector(inner, plan.query, values)
            try:
                row_count = sum(1 for _ in result.rows())
            finally:
                result.close()
            return Measured(row_count, monotonic() - begun_s, None)
        self._database.check_room(frees_space=inner.frees_space)
        transaction = self._own_or_statement()
        row_count = self._execution(transaction).write(transaction, inner, [values], prepare_again)
        logged_s = monotonic()
        self._written(transaction, row_count)
        ended_s = monotonic()
        is_waited = transaction.is_autocommit
        return Measured(row_count, ended_s - begun_s, ended_s - logged_s if is_waited else None)

    def _write(
        self,
        prepared: Prepared,
        values: list[list[Physical]],
        prepare_again: Callable[[], Prepared],
    ) -> Result:
        """Run a write and, for autocommit, its commit."""
        self._database.check_room(frees_space=prepared.frees_space)
        transaction = self._own_or_statement()
        count = self._execution(transaction).write(transaction, prepared, values, prepare_again)
        return self._written(transaction, count)

    def _written(self, transaction: Transaction, count: int) -> Result:
        if transaction.is_autocommit:
            self._finish_autocommit(transaction)
        self._database.after_write()
        return Result(row_count=count)

    def _define(
        self,
        statement: CreateTable | DropTable | TruncateTables | AccessStatement,
        values: list[Physical],
    ) -> None:
        verifier = None
        if isinstance(statement, CreateRole | AlterRole):
            verifier = verifier_of(statement.options, values, self._database.rng)
        if not self._autocommit and self._transaction is None:
            self._open_transaction(self._settings.durability)
        transaction = self._own_or_statement()
        secret = None if verifier is None else self._database.rng.randbytes(32).hex()
        actor = Actor(self.identity, verifier, secret)
        self._execution(transaction).define(transaction, statement, actor)
        if transaction.is_autocommit:
            self._finish_autocommit(transaction)
            if isinstance(statement, DropRole):
                self._database.end_dropped_users()


def _are_alike(items: Sequence[Parameters]) -> bool:
    """Return whether one plan does for all sets of parameters."""
    kinds = None if items[0] is None else parameter_kinds(items[0])
    return all((None if item is None else parameter_kinds(item)) == kinds for item in items)
