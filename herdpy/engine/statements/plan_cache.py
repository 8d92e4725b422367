"""Prepared: a statement compiled, planned and turned into functions; and the caches of them.

Key = (text, kinds of the parameters). A plan holds for every catalog that has the tables it was
bound to under their names; so DDL on other tables, and GRANT, leave it as it is. A Prepared is
shared by all sessions; a transaction with uncommitted DDL uses none of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from bookie.runtime.drivers import new_mutex
from herdpy.engine.access.rights import Needs, needs_of
from herdpy.engine.state.snapshots import PresentRows
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.engine.statements.fast_paths import (
    Bind,
    MakeRows,
    NaturalTypes,
    ReadRow,
    compile_bind,
    compile_change,
    compile_index_read,
    compile_point_read,
    compile_row,
    compile_rows,
)
from herdpy.engine.writes.keyed import change_row, insert_row
from herdpy.engine.writes.nonblocking import is_short
from herdpy.errors import loading
from herdpy.exec import coerce
from herdpy.exec.interfaces import Interrupt, RowSource
from herdpy.exec.row.select import compile_row_select
from herdpy.model.schema import Table
from herdpy.model.types import Physical, SqlType
from herdpy.sql.conversions import text_number
from herdpy.sql.plan import (
    Compiled,
    DeletePlan,
    ExplainPlan,
    InsertPlan,
    Numbers,
    Parameters,
    Plan,
    RowSelect,
    SequenceSelect,
    UpdatePlan,
    VectorSelect,
)
from herdpy.sql.planner import plan_statement
from herdpy.sql.reading.extent import too_deep
from herdpy.sql.scope import Catalog
from herdpy.sql.tree import (
    AlterRole,
    CreateRole,
    Literal,
    Parameter,
    Query,
    SequenceCall,
    walk,
)

if TYPE_CHECKING:
    from types import ModuleType

    from herdpy.sql.duckdb_text import DuckText

P = ParamSpec("P")
T = TypeVar("T")
PlanKey = tuple[str, Any]
BoundTables = tuple[tuple[str, Table | None], ...]
"""What the catalog had under each name that the statement asked for."""
WriteRow = Callable[[Tablespace, Transaction, Any, int], bool]
"""(tablespace, transaction, parameters, memory_bytes_max) → logged; see writes/keyed.py."""


class Prepared:
    """One plan and its functions, each made on first use.

    `version` is that of the last catalog it was found to hold for: who has one of another version
    asks is_current(). `bind`, `read_row` and `write_row` are fast paths for parameters of exactly
    the natural types `types`, None where there are none.
    """

    __slots__ = (
        "_cache",
        "_tables",
        "_types",
        "bind",
        "columns",
        "compiled",
        "convert",
        "frees_space",
        "is_write",
        "plan",
        "read_row",
        "slots",
        "version",
        "write_row",
    )

    def __init__(
        self,
        compiled: Compiled,
        version: int = -1,
        types: NaturalTypes | None = None,
        tables: BoundTables = (),
        check_interrupt: Callable[[], object] = lambda: None,
    ) -> None:
        self.compiled = compiled
        self.version = version
        self._tables = tables
        self.slots = compiled.slots
        try:
            self.plan: Plan = plan_statement(compiled.statement, check_interrupt)
        except RecursionError as error:
            raise too_deep() from error
        self.is_write = isinstance(self.plan, (InsertPlan, UpdatePlan, DeletePlan))
        self.frees_space = compiled.statement.frees_space
        self.columns: tuple[tuple[str, SqlType], ...] | None = None
        self.convert: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
        self._cache: dict[object, Any] = {}
        self._types = types
        self.write_row: WriteRow | None = None
        if isinstance(self.plan, RowSelect | VectorSelect | SequenceSelect):
            self.columns = self.plan.columns
        elif isinstance(self.plan, (InsertPlan, UpdatePlan, DeletePlan)):
            self.columns = None if self.plan.returning is None else self.plan.returning.columns
        if self.columns is not None:
            self.convert = coerce.compile_output([sql_type for _, sql_type in self.columns])
        self.bind: Bind | None = None
        self.read_row: ReadRow | None = None
        if types is not None:
            self.bind = compile_bind(types, self.slots)
            if isinstance(self.plan, RowSelect):
                plan, slots = self.plan, self.slots
                self.read_row = compile_point_read(plan, types, slots) or compile_index_read(
                    plan, types, slots, self._read_few
                )

    def _read_few(
        self, source: PresentRows, values: Sequence[Physical], interrupt: Interrupt
    ) -> Iterator[tuple[Any, ...]] | None:
        """Read by an index: its reader asks of a source no more than PresentRows has."""
        plan = self.plan
        assert isinstance(plan, RowSelect)
        return self.once(compile_row_select, plan)(cast("RowSource", source), values, interrupt)

    def is_current(self, catalog: Catalog) -> bool:
        """Return whether the plan holds for a catalog: it has the very tables it was bound to.

        Any thread: what another one notes of its own catalog meanwhile is as true.
        """
        if self.version == catalog.version:
            return True
        for name, table in self._tables:
            if catalog.table(name) != table:
                return False
        self.version = catalog.version
        return True

    def holds_for(self, parameters: Parameters) -> bool:
        """Return whether texts beside DECIMALs have the types that the plan was bound for."""
        numbers = self.compiled.numbers
        return not numbers or number_types(numbers, parameters) == [own for *_, own in numbers]

    def values(self, parameters: Parameters, now_us: Callable[[], int]) -> list[Physical]:
        """Return the slots' values; now_us gives the transaction's time where a slot holds it."""
        return coerce.slot_values(self.slots, parameters, now_us) if self.slots else []

    def once(self, make: Callable[P, T], *parts: P.args, **more: P.kwargs) -> T:
        """Return what make() returns of parts of this plan, which it is called with once.

        The first part decides: it is the plan's own, so that none after it has its id.
        """
        key = (make, id(parts[0]) if parts else 0)
        function = self._cache.get(key)
        if function is None:
            try:
                function = self._cache.setdefault(key, make(*parts, **more))
            except (RecursionError, SyntaxError, MemoryError) as error:
                # Python's compiler refuses deep nesting with any of the three.
                raise too_deep() from error
        return function

    def new_write_row(self) -> WriteRow | None:
        """Make `write_row`, when the statement comes again; None: there is no such fast path."""
        types, plan = self._types, self.plan
        if types is not None:
            if isinstance(plan, InsertPlan):
                make = compile_row(plan, types, self.slots)
                if make is not None:
                    self.write_row = partial(insert_row, plan.statement.table, make)
            elif isinstance(plan, UpdatePlan | DeletePlan) and self.is_short:
                change = compile_change(plan, types, self.slots)
                if change is not None:
                    self.write_row = partial(change_row, plan.ref.table, change)
            self._types = None  # last: threads that meet here make the same twice
        return self.write_row

    @property
    def row_converter(self) -> MakeRows | None:
        """What makes the rows of executemany, where VALUES is nothing but placeholders."""
        plan = self.plan
        if not isinstance(plan, InsertPlan) or plan.source is not None:
            return None
        statement = plan.statement
        rows, places = statement.rows or (), list(range(len(statement.ordinals)))
        if len(rows) != 1 or not places or [slot.source for slot in self.slots] != places:
            return None
        if [part.index if isinstance(part, Parameter) else None for part in rows[0]] != places:
            return None
        return self.once(compile_rows, statement.table, statement.ordinals)

    @property
    def takes_values(self) -> bool:
        """True for a query that gives values of sequences away, or sets one."""
        plan = self.plan
        return isinstance(plan, SequenceSelect) and self.once(_takes_values, plan)

    @property
    def needs(self) -> Needs:
        """The rights that the statement takes."""
        return self.find_needs(lambda: None)

    def find_needs(self, check_interrupt: Callable[[], object]) -> Needs:
        """Return the rights that the statement takes; a cancel ends the looking for them."""
        return self.once(needs_of, self.compiled.statement, check_interrupt)

    @property
    def is_short(self) -> bool:
        """True for a write of one row at the most, by its key."""
        return self.once(is_short, self.plan)

    @property
    def is_secret(self) -> bool:
        """True when the text holds a password: it is not kept."""
        statement = self.compiled.statement
        return isinstance(statement, CreateRole | AlterRole) and isinstance(
            statement.options.password, Literal
        )

    def vector_text(self, query: Query, check_interrupt: Callable[[], object]) -> "DuckText":
        with loading():
            from herdpy.sql.duckdb_text import print_query

        return self.once(print_query, query, check_interrupt)

    def inner_plan(self) -> "Prepared":
        if not isinstance(self.plan, ExplainPlan):
            raise TypeError("not an EXPLAIN")
        inner = Prepared.__new__(Prepared)
        statement = self.compiled.statement.statement  # type: ignore[union-attr]  # an Explain
        Prepared.__init__(inner, Compiled(statement, self.compiled.slots))
        return inner


class PlanCache:
    """The prepared statements of one tablespace by key, within the room of all tablespaces.

    `latest` has the one prepared last for each text; who takes it asks whether it is current and
    lets its `bind` judge the parameters. Plans of two tablespaces never mix: tables of both may
    have one id, and their catalogs one version.
    """

    def __init__(self, room: "PlanRoom") -> None:
        self._room = room
        self._entries: dict[PlanKey, Prepared] = {}  # changed under the room's mutex
        self.latest: dict[str, Prepared] = {}

    def get(self, key: PlanKey) -> Prepared | None:
        return self._entries.get(key)

    def put(self, key: PlanKey, prepared: Prepared) -> None:
        self._room.put(self, key, prepared)

    def clear(self) -> None:
        """Forget all of them: the tablespace is closed."""
        self._room.clear(self)

    def __len__(self) -> int:
        return len(self._entries)

    # --- for the room, under its mutex -----------------------------------------------------------

    def keep(self, key: PlanKey, prepared: Prepared) -> None:
        self._entries[key] = self.latest[key[0]] = prepared

    def drop(self, key: PlanKey) -> None:
        gone = self._entries.pop(key, None)
        if gone is not None and self.latest.get(key[0]) is gone:  # else it has one for others
            del self.latest[key[0]]


class PlanRoom:
    """How many statements all tablespaces keep, and bytes of their text; the oldest go first."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._mutex = new_mutex()
        self._byte_count = 0
        self._kept: dict[tuple[PlanCache, PlanKey], None] = {}
        """The oldest first."""

    def put(self, cache: PlanCache, key: PlanKey, prepared: Prepared) -> None:
        with self._mutex:
            if self._entries_max == 0 or len(key[0]) > self._bytes_max:
                return
            kept = self._kept
            if (cache, key) not in kept:
                self._byte_count += len(key[0])
                kept[cache, key] = None
            cache.keep(key, prepared)
            while len(kept) > self._entries_max or self._byte_count > self._bytes_max:
                self._drop(*next(iter(kept)))

    def clear(self, cache: PlanCache) -> None:
        with self._mutex:
            for other, key in list(self._kept):
                if other is cache:
                    self._drop(cache, key)

    def _drop(self, cache: PlanCache, key: PlanKey) -> None:
        del self._kept[cache, key]
        self._byte_count -= len(key[0])
        cache.drop(key)


def plan_key(text: str, parameters: Parameters) -> PlanKey:
    """Return the cache key; what decides the types of the parameters is part of it."""
    return (text, load_compiler().parameter_kinds(parameters) if parameters else None)


def number_types(numbers: Numbers, parameters: Parameters) -> list[SqlType]:
    """Return the types of texts beside DECIMALs; 22003 for a number that none holds."""
    given: Any = parameters
    return [text_number(given[source], target) for source, target, _ in numbers]


@cache
def load_compiler() -> "ModuleType":
    """Return herdpy.sql.compile, which no connection needs before its first statement.

    Any thread: a process that is about to have many at once loads it before.
    """
    with loading():
        from herdpy.sql import compile as module

    return module


def _takes_values(plan: SequenceSelect) -> bool:
    calls = (part for part in walk(plan.outputs) if isinstance(part, SequenceCall))
    return any(call.function in ("nextval", "setval") for call in calls)


class _AskedCatalog:
    """A catalog that notes what it was asked for; implements sql.scope.Catalog."""

    __slots__ = ("_catalog", "found", "version")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.version = catalog.version
        self.found: dict[str, Table | None] = {}

    def table(self, name: str) -> Table | None:
        table = self.found[name] = self._catalog.table(name)
        return table

    def table_names(self) -> Sequence[str]:
        return self._catalog.table_names()  # for a hint of an error, which is not kept


def prepare(
    text: str, catalog: Catalog, parameters: Parameters, check_interrupt: Callable[[], object]
) -> Prepared:
    compiler, asked = load_compiler(), _AskedCatalog(catalog)
    compiled = compiler.compile_sql(text, asked, parameters, check_interrupt)
    types = None
    # The digits of texts are looked at in the general way alone.
    if not (isinstance(parameters, Mapping) or compiled.numbers):
        types = compiler.parameter_types(parameters)
    prepared = Prepared(
        compiled, catalog.version, types, tuple(asked.found.items()), check_interrupt
    )
    prepared.find_needs(check_interrupt)
    return prepared
