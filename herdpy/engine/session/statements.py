"""Statements: each kind of plan, and what runs it: the general path. Any thread."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from herdpy.engine.access.passwords import verifier_of
from herdpy.engine.access.rights import check_superuser
from herdpy.engine.access.roles import Actor
from herdpy.engine.session.parts import SessionPart
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.execution import Batch, Execution
from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.engine.statements.plan_cache import Prepared, plan_key
from herdpy.engine.writes.row_writes import looking
from herdpy.errors import Error, InternalError, NotSupportedError, ProgrammingError, loading
from herdpy.exec.result import Result
from herdpy.model.isolation import isolation_of
from herdpy.model.role_settings import capped, check_within
from herdpy.model.schema import Table
from herdpy.model.settings import (
    OPTIONS,
    TRANSACTION_ISOLATION,
    TRANSACTION_READ_ONLY,
    change_option,
    show_option,
    show_truth,
    truth_of,
)
from herdpy.model.types import TEXT, Physical
from herdpy.sql import tree
from herdpy.sql.characteristics import characteristics
from herdpy.sql.plan import (
    Compiled,
    ExplainPlan,
    InsertPlan,
    Parameters,
    RowSelect,
    UtilityPlan,
    VectorSelect,
)

if TYPE_CHECKING:
    from herdpy.engine.statements.explain import Measured


_OF_TRANSACTION = (TRANSACTION_ISOLATION, TRANSACTION_READ_ONLY)


class Statements(SessionPart):
    def execute(self, text: str, parameters: Parameters = None) -> Result:
        """Run one statement, on the general path; run() knows the faster ones."""
        return self._runner.run_planned(lambda: self._execute(text, parameters), text)

    def execute_many(self, text: str, rows: Iterable[Parameters]) -> Result:
        """Run one statement for every set of parameters, all or nothing."""
        items = rows if isinstance(rows, list) else list(rows)
        return self._runner.run_planned(lambda: self._execute_many(text, items), text)

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
            prepared = self._planner.bound(text, parameters)[0]
            plan = prepared.plan
            if isinstance(plan, UtilityPlan):
                return plan.statement.is_instant
            if not isinstance(plan, RowSelect | VectorSelect):
                return False
            if not prepared.needs:  # SELECT 1, but no VALUES of any number of rows
                return isinstance(plan, RowSelect) and plan.ref is None
            tables = [table for table, *_ in prepared.needs if table and table.has_rows]
            return len(prepared.needs) == len(tables) and all(each.is_system for each in tables)

        return self._runner.run_planned(look, text)

    def tables(self) -> list[Table]:
        """Return the tables that the next statement can name, by name; of those with rows."""
        found = self._runner.run(self._planner.visible_tables, "SHOW TABLES")
        return [table for table in found if table.has_rows]

    def _execute(self, text: str, parameters: Parameters) -> Result:
        core, planner = self._core, self._planner
        shared = None if parameters else planner.shared(text)
        if shared is None:
            prepared, values = planner.bound(text, parameters)
        else:
            (text, parameters), prepared, values = shared
        plan = prepared.plan
        statement = prepared.compiled.statement
        core.is_audited = statement.is_audited
        if isinstance(statement, tree.CreateTableAs):
            return self._create_as(statement, prepared, values)
        if isinstance(statement, tree.AlterTable):
            return self._alter(statement, prepared, values)
        if isinstance(plan, UtilityPlan):
            return self._utility(plan, values)
        core.tablespace.check_running()
        core.check_not_lost()
        transaction = core.current_transaction()
        planner.use_lease()
        if prepared.is_write:
            return self._write(prepared, values, lambda: planner.prepare(text, parameters))[0]
        if isinstance(plan, ExplainPlan):
            return self._explain(
                prepared.inner_plan(),
                values,
                lambda: planner.prepare(text, parameters).inner_plan(),
                is_analyze=plan.is_analyze,
            )
        return self._select(transaction, prepared, values)

    def _select(
        self, transaction: Transaction | None, prepared: Prepared, values: list[Physical]
    ) -> Result:
        """Run a query; one that takes values of sequences is a write, too."""
        core, planner = self._core, self._planner
        if not prepared.takes_values:
            return planner.select(transaction, prepared, values)
        self._database.check_room()
        transaction = core.begin_write("nextval() or setval()")
        result = planner.select(transaction, prepared, values)
        core.settle_numbers(transaction)
        core.finish_write(transaction)
        return result

    def _write(
        self, prepared: Prepared, values: list[Physical], prepare_again: Callable[[], Prepared]
    ) -> tuple[Result, float]:
        """Run a write and, for autocommit, its commit; return when it was logged, too."""
        self._database.check_room(frees_space=prepared.frees_space)
        transaction = self._core.begin_write(prepared.compiled.statement)
        execution = self._planner.execution(transaction)
        count = execution.write(transaction, prepared, [values], prepare_again)
        logged_s = self._database.clock.monotonic()
        self._core.finish_write(transaction)
        if execution.returned is None:
            result = Result(row_count=count)
        else:
            columns, rows = execution.returned
            result = Result(columns, iter(rows), row_count=count, is_whole=True)
        result.last_row_id = transaction.last_identity if count else None
        return result, logged_s

    def _execute_many(self, text: str, items: list[Parameters]) -> Result:
        if not items:
            return Result(row_count=0)
        core, planner = self._core, self._planner
        core.check_not_lost()
        prepared = planner.prepare(text, items[0])
        plan = prepared.plan
        if not prepared.is_write:
            raise ProgrammingError("executemany() takes INSERT, UPSERT, UPDATE or DELETE only")
        if prepared.columns is not None:
            raise NotSupportedError(
                "executemany() with RETURNING: a statement has one result",
                hint="execute() each, or one INSERT … VALUES (…), (…) RETURNING …",
            )
        core.current_transaction()
        self._database.check_room(frees_space=prepared.frees_space)
        transaction = core.begin_write(prepared.compiled.statement)
        execution = planner.execution(transaction)
        convert = prepared.row_converter

        def prepare_one(item: Parameters) -> Prepared:
            return planner.prepare(text, item)

        def prepare_all() -> Batch:
            # Item by item: what the parameters are decides about the plan.
            pairs = ((prepare_one(item), item) for item in looking(items, planner.check_interrupt))
            return [(each, each.values(item, core.now_us)) for each, item in pairs]

        # A row that DO UPDATE has changed may be changed by the next item, of another statement.
        if isinstance(plan, InsertPlan) and plan.update is not None:
            count = execution.write_batch(transaction, prepare_all, frees_space=False)
        elif convert is not None:
            count = execution.insert_many(transaction, prepared, convert, items, prepare_one)
        elif isinstance(plan, InsertPlan) and plan.source is None and _are_alike(prepared, items):
            values = [
                prepared.values(item, core.now_us)
                for item in looking(items, planner.check_interrupt)
            ]
            count = execution.write(transaction, prepared, values, lambda: prepare_one(items[0]))
        else:
            count = execution.write_batch(
                transaction, prepare_all, frees_space=prepared.frees_space
            )
        core.finish_write(transaction)
        return Result(row_count=count)

    def _utility(self, plan: UtilityPlan, values: list[Physical]) -> Result:
        core, statement = self._core, plan.statement
        match statement:
            case tree.TransactionStatement():
                core.control(statement)
            case tree.SetOption(name):
                self._set(statement)
                if isinstance(statement, tree.SetConfig):
                    return self._show(name, "set_config")
            case tree.SetCharacteristics(modes):
                for name, value in characteristics(modes):
                    core.settings = change_option(core.settings, core.defaults, name, value)
            case tree.SetSnapshot(lease):
                self._planner.set_snapshot(lease)
            case tree.ShowOption(name):
                return self._show(name)
            case tree.Kill(number):
                check_superuser(self._planner.rights(), "end what others do")
                self._database.kill(core.id, number, is_connection=statement.is_connection)
            case tree.Definition():
                self._define(statement, values)
            case tree.TablespaceStatement():
                self._change_tablespaces(statement)
            case _:
                raise InternalError(f"no way to run {statement.__class__.__name__}")
        return Result()

    def _set(self, statement: tree.SetOption) -> None:
        core, name, value = self._core, statement.name, statement.value
        if name in _OF_TRANSACTION:
            self._set_in_transaction(name, value)
            return
        changed = change_option(core.settings, core.defaults, name, value)
        if value is None:
            changed = capped(changed, core.maxima)
        check_within(changed, core.maxima)
        core.settings = changed

    def _set_in_transaction(self, name: str, value: str | None) -> None:
        """Run SET of what is the transaction's, or RESET, which outside of one does nothing."""
        core = self._core
        if value is None and core.transaction is None:
            return
        isolation, is_read_only = None, None
        if name == TRANSACTION_ISOLATION:
            isolation = core.settings.isolation if value is None else isolation_of(value, name)
        else:
            is_read_only = core.settings.is_read_only if value is None else truth_of(value, name)
        core.set_transaction(tree.TransactionModes(isolation, is_read_only))

    def _show(self, name: str, heading: str | None = None) -> Result:
        if name == "tables":
            tables = self._planner.visible_tables()
            rows = [(table.name,) for table in tables if table.sequence is None]
            return Result((("table_name", TEXT),), iter(rows), row_count=len(rows))
        if name == "all":
            shown = {option: show_option(self._core.settings, option) for option in OPTIONS}
            pairs = list({**shown, **self._transaction_options()}.items())
            return Result((("name", TEXT), ("setting", TEXT)), iter(pairs), row_count=len(pairs))
        if name == "session_authorization":
            row = (self._core.user,)
        elif name in _OF_TRANSACTION:
            row = (self._transaction_options()[name],)
        else:
            row = (show_option(self._core.settings, name),)
        return Result(((heading or name, TEXT),), iter([row]), row_count=1)

    def _transaction_options(self) -> dict[str, str]:
        """Return what the transaction has, or the next one."""
        core = self._core
        return {
            TRANSACTION_ISOLATION: core.transaction_isolation.value,
            TRANSACTION_READ_ONLY: show_truth(core.transaction_is_read_only),
        }

    def _explain(
        self,
        inner: Prepared,
        values: list[Physical],
        prepare_again: Callable[[], Prepared],
        *,
        is_analyze: bool,
    ) -> Result:
        """Show a plan on the data as it was before ANALYZE ran the statement."""
        with loading():
            from herdpy.engine.statements.explain import check_explainable, explain

        check_explainable(inner.plan)
        snapshot = self._core.tablespace.snapshot(self._core.transaction)
        try:
            measured = self._analyze(inner, values, prepare_again) if is_analyze else None
            rows_min = self._database.config.vector_rows_min
            return explain(inner, values, snapshot, measured, rows_min)
        finally:
            snapshot.close()

    def _analyze(
        self, inner: Prepared, values: list[Physical], prepare_again: Callable[[], Prepared]
    ) -> "Measured":
        """Run EXPLAIN's statement, with its effects, and say how long it took."""
        from herdpy.engine.statements.explain import Measured

        core, monotonic = self._core, self._database.clock.monotonic
        begun_s = monotonic()
        if not inner.is_write:
            result = self._select(core.transaction, inner, values)
            try:
                row_count = sum(1 for _ in result.rows())
            finally:
                result.close()
            return Measured(row_count, monotonic() - begun_s, None)
        result, logged_s = self._write(inner, values, prepare_again)
        ended_s = monotonic()
        is_waited = core.transaction is None
        return Measured(
            result.row_count, ended_s - begun_s, ended_s - logged_s if is_waited else None
        )

    def _change_tablespaces(self, statement: tree.TablespaceStatement) -> None:
        core = self._core
        core.check_may_write(statement)
        if core.in_transaction:
            raise ProgrammingError(
                "a statement about tablespaces cannot run inside a transaction",
                sqlstate="25001",
                hint="COMMIT or ROLLBACK first.",
            )
        with loading():
            from herdpy.engine.access.tablespaces import change_tablespaces

        change_tablespaces(self._database, statement, core.identity, self._planner.rights())

    def _define(self, statement: tree.Definition, values: list[Physical]) -> None:
        core, rng = self._core, self._database.rng
        core.check_not_lost()
        self._database.check_room(frees_space=statement.frees_space)
        verifier = None
        if isinstance(statement, tree.CreateRole | tree.AlterRole):
            verifier = verifier_of(statement.options, values, rng)
        core.current_transaction()
        transaction = core.begin_write(statement)
        secret = None if verifier is None else rng.randbytes(32).hex()
        actor = Actor(core.identity, verifier, secret)
        execution = self._planner.execution(transaction)
        if isinstance(statement, tree.CreateIndex):
            execution.create_index(transaction, statement, actor)
        else:
            execution.define(transaction, statement, actor)
        core.finish_write(transaction)
        if transaction.is_autocommit and isinstance(statement, tree.DropRole):
            self._database.end_dropped_users()

    def _begin_parts(self, statement: tree.Definition) -> tuple[Transaction, Execution]:
        """Begin a statement that logs several parts, which core.undo_from undoes until its end."""
        core = self._core
        core.tablespace.check_running()
        core.check_not_lost()
        core.current_transaction()
        self._planner.use_lease()
        self._database.check_room(frees_space=False)
        transaction = core.begin_write(statement, is_of_parts=True)
        core.undo_from = transaction.statement
        return transaction, self._planner.execution(transaction)

    def _create_as(
        self, statement: tree.CreateTableAs, prepared: Prepared, values: list[Physical]
    ) -> Result:
        """Make a table, and insert what its query gives: both or nothing."""
        core = self._core
        transaction, execution = self._begin_parts(statement)
        before = transaction.statement
        try:
            execution.define(transaction, statement, Actor(core.identity, None, None))
        except MustWaitError:  # it has had no effect
            core.undo_from = None
            raise
        count = -1
        table = transaction.catalog_changes.get(statement.table.name)
        if statement.has_data and table is not None and transaction.statement > before:
            ordinals = tuple(range(len(table.visible_columns)))
            target = tree.TableRef(0, table, table.name)
            insert = tree.Insert(target, ordinals, None, statement.query)
            planned = Prepared(Compiled(insert, prepared.slots))
            count = execution.write(transaction, planned, [values], lambda: planned)
        core.undo_from = None
        core.finish_write(transaction)
        return Result(row_count=count)

    def _alter(
        self, statement: tree.AlterTable, prepared: Prepared, values: list[Physical]
    ) -> Result:
        """Change a definition, and what rows it takes: all of it or nothing."""
        core = self._core
        transaction, execution = self._begin_parts(statement)
        actor = Actor(core.identity, None, None)
        try:
            made = execution.begin_alter(transaction, statement, actor)
        except MustWaitError:  # it has had no effect
            core.undo_from = None
            raise
        if made is not None:
            execution.finish_alter(transaction, statement, made, prepared, values, actor)
        core.undo_from = None
        core.finish_write(transaction)
        return Result()


def _are_alike(prepared: Prepared, items: Sequence[Parameters]) -> bool:
    """Return whether one plan does for all sets of parameters."""
    first = plan_key("", items[0])
    return all(plan_key("", item) == first and prepared.holds_for(item) for item in items)
