"""Prepared: a statement compiled, planned and turned into functions; and the cache of them.

Key = (text, catalog version, kinds of the parameters). A Prepared is immutable and shared by all
sessions; a transaction with uncommitted DDL uses none of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bookie.runtime.drivers import new_mutex
from herdpy.engine.access.rights import Needs, needs_of
from herdpy.engine.statements.fast_paths import (
    Bind,
    MakeRow,
    NaturalTypes,
    ReadRow,
    compile_bind,
    compile_point_read,
    compile_row,
)
from herdpy.engine.writes.nonblocking import is_short
from herdpy.exec import coerce
from herdpy.exec.interfaces import Interrupt, RowSource
from herdpy.exec.row.select import (
    compile_assignments,
    compile_check_row,
    compile_find,
    compile_insert_rows,
    compile_row_filler,
    compile_row_select,
)
from herdpy.model.types import Physical, Row, SqlType
from herdpy.sql.compile import compile_sql, parameter_kinds, parameter_types
from herdpy.sql.duckdb_text import DuckText, print_query
from herdpy.sql.interfaces import Catalog
from herdpy.sql.parse import too_deep
from herdpy.sql.plan import (
    Compiled,
    DeletePlan,
    ExplainPlan,
    InsertPlan,
    Parameters,
    Plan,
    RowFind,
    RowSelect,
    UpdatePlan,
    VectorSelect,
)
from herdpy.sql.planner import plan_statement
from herdpy.sql.tree import AlterRole, CreateRole, Literal, Parameter, Query

RowFunction = Callable[[RowSource | None, Sequence[Physical], Interrupt], Iterator[tuple[Any, ...]]]
PlanKey = tuple[str, int, Any]


class Prepared:
    """One plan and its functions, each made on first use.

    `version` is the catalog's it was made for; `bind`, `read_row` and `make_row` are shortcuts for
    parameters of exactly the natural types `types`, None where there are none.
    """

    __slots__ = (
        "_cache",
        "_make_row",
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
    )

    def __init__(
        self, compiled: Compiled, version: int = -1, types: NaturalTypes | None = None
    ) -> None:
        self.compiled = compiled
        self.version = version
        self.slots = compiled.slots
        try:
            self.plan: Plan = plan_statement(compiled.statement)
        except RecursionError as error:
            raise too_deep() from error
        self.is_write = isinstance(self.plan, (InsertPlan, UpdatePlan, DeletePlan))
        self.frees_space = isinstance(self.plan, DeletePlan)
        self.columns: tuple[tuple[str, SqlType], ...] | None = None
        self.convert: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
        self._cache: dict[str, Any] = {}
        self._types = types
        self._make_row: MakeRow | None = None
        if isinstance(self.plan, RowSelect | VectorSelect):
            self.columns = self.plan.query.columns
            self.convert = coerce.compile_output([sql_type for _, sql_type in self.columns])
        self.bind: Bind | None = None
        self.read_row: ReadRow | None = None
        if types is not None:
            self.bind = compile_bind(types, self.slots)
            if isinstance(self.plan, RowSelect):
                self.read_row = compile_point_read(self.plan, types, self.slots)

    def values(self, parameters: Parameters, now_us: Callable[[], int]) -> list[Physical]:
        """Return the slots' values; now_us gives the transaction's time where a slot holds it."""
        return coerce.slot_values(self.slots, parameters, now_us) if self.slots else []

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        function = self._cache.get(name)
        if function is None:
            try:
                function = self._cache.setdefault(name, make())
            except (RecursionError, SyntaxError, MemoryError) as error:
                # Python's compiler refuses deep nesting with any of the three.
                raise too_deep() from error
        return function

    @property
    def make_row(self) -> MakeRow | None:
        """The shortcut of an INSERT of one row; made when the statement comes again."""
        types, plan = self._types, self.plan
        if types is not None:
            if isinstance(plan, InsertPlan):
                self._make_row = compile_row(plan, types, self.slots, lambda: self.check(plan))
            self._types = None  # last: threads that meet here make the same twice
        return self._make_row

    @property
    def row_converter(self) -> Callable[[Any, int], Row] | None:
        """f(one item of executemany, now_us) → row, where VALUES is nothing but placeholders."""
        plan = self.plan
        if not isinstance(plan, InsertPlan) or plan.source is not None:
            return None
        statement = plan.statement
        rows = statement.rows or ()
        places = (
            [
                (p.index, slot.source)
                for p, slot in zip(rows[0], self.slots, strict=False)
                if isinstance(p, Parameter)
            ]
            if len(rows) == 1
            else []
        )
        if not places or len(places) != len(statement.ordinals) or len(self.slots) != len(places):
            return None
        if any(pair != (place, place) for place, pair in enumerate(places)):
            return None
        return self._once(
            "convert", lambda: coerce.compile_row_converter(statement.table, statement.ordinals)
        )

    @property
    def needs(self) -> Needs:
        """The rights that the statement takes."""
        return self._once("needs", lambda: needs_of(self.compiled.statement))

    @property
    def is_short(self) -> bool:
        """True for a write of one row at the most, by its key."""
        return self._once("short", lambda: is_short(self.plan))

    @property
    def is_secret(self) -> bool:
        """True when the text holds a password: it is not kept."""
        statement = self.compiled.statement
        return isinstance(statement, CreateRole | AlterRole) and isinstance(
            statement.options.password, Literal
        )

    def select(self, plan: RowSelect) -> RowFunction:
        return self._once("select", lambda: compile_row_select(plan))

    def find(self, plan: RowFind) -> RowFunction:
        return self._once("find", lambda: compile_find(plan))

    def assign(self, plan: UpdatePlan) -> Callable[[Row, Sequence[Physical]], Row]:
        return self._once("assign", lambda: compile_assignments(plan.ref.table, plan.assignments))

    def check(self, plan: "InsertPlan | UpdatePlan") -> Callable[[Row], None]:
        table = plan.statement.table if isinstance(plan, InsertPlan) else plan.ref.table
        return self._once("check", lambda: compile_check_row(table))

    def insert_rows(self, plan: InsertPlan) -> Callable[..., list[Row]]:
        return self._once("insert", lambda: compile_insert_rows(plan))

    def row_filler(self, plan: InsertPlan) -> Callable[[Sequence[Physical], int], Row]:
        statement = plan.statement
        return self._once("fill", lambda: compile_row_filler(statement.table, statement.ordinals))

    def vector_text(self, query: Query) -> DuckText:
        return self._once("vector", lambda: print_query(query))

    def inner_plan(self) -> "Prepared":
        """Return the Prepared of EXPLAIN's statement."""
        if not isinstance(self.plan, ExplainPlan):
            raise TypeError("not an EXPLAIN")
        inner = Prepared.__new__(Prepared)
        statement = self.compiled.statement.statement  # type: ignore[union-attr]  # an Explain
        Prepared.__init__(inner, Compiled(statement, self.compiled.slots))
        return inner


class PlanCache:
    """Prepared statements by key, bounded by count and by bytes of text; the oldest go first.

    `latest` has the one prepared last for each text; who takes it compares its version and lets
    its `bind` judge the parameters.
    """

    __slots__ = ("_byte_count", "_bytes_max", "_entries", "_entries_max", "_mutex", "latest")

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries: dict[PlanKey, Prepared] = {}
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._byte_count = 0
        self._mutex = new_mutex()
        self.latest: dict[str, Prepared] = {}

    def get(self, key: PlanKey) -> Prepared | None:
        return self._entries.get(key)

    def put(self, key: PlanKey, prepared: Prepared) -> None:
        with self._mutex:
            if self._entries_max == 0 or len(key[0]) > self._bytes_max:
                return
            if key not in self._entries:
                self._byte_count += len(key[0])
            self._entries[key] = self.latest[key[0]] = prepared
            while len(self._entries) > self._entries_max or self._byte_count > self._bytes_max:
                oldest = next(iter(self._entries))
                del self._entries[oldest]
                self.latest.pop(oldest[0], None)
                self._byte_count -= len(oldest[0])

    def __len__(self) -> int:
        return len(self._entries)


def plan_key(text: str, catalog: Catalog, parameters: Parameters) -> PlanKey:
    """Return the cache key; what decides the types of the parameters is part of it."""
    return (text, catalog.version, parameter_kinds(parameters) if parameters else None)


def prepare(
    text: str, catalog: Catalog, parameters: Parameters, check_interrupt: Callable[[], object]
) -> Prepared:
    compiled = compile_sql(text, catalog, parameters, check_interrupt)
    if catalog.version < 0 or isinstance(parameters, Mapping):
        return Prepared(compiled)
    return Prepared(compiled, catalog.version, parameter_types(parameters))
