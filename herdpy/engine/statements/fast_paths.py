"""Generated shortcuts for statements that come again and again: parameters, point reads, INSERTs.

Each is a function made once per plan for the exact classes of parameters the plan was compiled
for. It answers None for whatever it was not made for, and the caller takes the general way, which
gives the same result or the error that explains; so a shortcut decides nothing about types.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from herdpy.engine.state.memtable import TRIMMED, visible, visible_in
from herdpy.engine.state.snapshots import PresentRows
from herdpy.engine.state.transactions import own_visible
from herdpy.engine.writes.keyed import ChangeRow, MakeRow
from herdpy.errors import Error
from herdpy.exec.coerce import (
    EXACT_TESTS,
    VALUE_TESTS,
    compile_output,
    default_sources,
    output_converter,
    row_conversion,
    to_physical,
)
from herdpy.exec.interfaces import Interrupt
from herdpy.exec.row.expressions import Writer
from herdpy.exec.row.row_check import check_lines, checks_by_query
from herdpy.exec.row.select import assigned_row
from herdpy.model.keys import float_order, key_source
from herdpy.model.schema import Table
from herdpy.model.types import (
    Kind,
    Physical,
    SqlType,
)
from herdpy.sql.plan import (
    DeletePlan,
    IndexAccess,
    InsertPlan,
    PointAccess,
    RowFind,
    RowSelect,
    Slot,
    UpdatePlan,
)
from herdpy.sql.tree import ColumnRef, Literal, OnConflict, Parameter

if TYPE_CHECKING:
    from herdpy.engine.state.state import State
    from herdpy.engine.state.transactions import Transaction
    from herdpy.exec.interfaces import Numbers
    from herdpy.model.types import Row

NaturalTypes = Sequence[tuple[int | str, SqlType]]
Bind = Callable[[Any], list[Physical] | None]
ReadRow = Callable[[Any, "State", "Transaction | None"], list[tuple[Any, ...]] | None]
"""(parameters, state, transaction) → rows; see compile_point_read."""
MakeRows = Callable[
    [Sequence[Any], int, "Numbers | None", Callable[[Any], object], Callable[["Row"], object]], None
]
"""(rows of parameters, now_us, numbers, prepare, add); see compile_rows."""


# Of a generated function: compiling the source of 20,000 takes seconds.
_parameters_max = 1_000
# By the natural type of a parameter: which Python values surely have it.
_CLASS_TESTS = {
    Kind.BIGINT: EXACT_TESTS[Kind.BIGINT],
    Kind.DOUBLE: EXACT_TESTS[Kind.DOUBLE],
    Kind.BOOLEAN: EXACT_TESTS[Kind.BOOLEAN],
    Kind.UNKNOWN: "($ is None or $.__class__ is str)",
    Kind.BYTEA: EXACT_TESTS[Kind.BYTEA],
    Kind.DECIMAL: "$.__class__ is Decimal",
    Kind.DATE: "$.__class__ is date",
    Kind.TIMESTAMP: "$.__class__ is datetime and $.tzinfo is None",
    Kind.TIMESTAMPTZ: "$.__class__ is datetime and $.tzinfo is not None",
}
# By (natural kind, kind of the slot): when a value is its own physical form. "" is always.
_SAME_TESTS = {
    **{(k, k): "" for k in (Kind.BIGINT, Kind.DOUBLE, Kind.BOOLEAN, Kind.BYTEA)},
    **{(Kind.BIGINT, k): VALUE_TESTS[k] for k in (Kind.SMALLINT, Kind.INTEGER)},
    (Kind.UNKNOWN, Kind.TEXT): f"$ is None or {VALUE_TESTS[Kind.TEXT]}",
}


class _Source(Writer):
    """Lines of one function over the parameters `p`."""

    def __init__(self, table: Table | None = None) -> None:
        import datetime

        super().__init__(table)
        self.space.update(
            date=datetime.date,
            datetime=datetime.datetime,
            Decimal=Decimal,
            float_order=float_order,
        )
        self.lines: list[str] = []

    def made(self, arguments: str) -> Callable[..., Any]:
        return self.function(arguments, self.lines)

    def take(self, types: NaturalTypes, slots: Sequence[Slot]) -> list[str] | None:
        """Write the test of the parameters; return source of each slot's value, None: cannot."""
        if len(types) > _parameters_max:
            return None
        tests: list[str] = []
        stored = {slot.source for slot in slots if slot.column is not None}
        for position, (source, natural) in enumerate(types):
            test = _CLASS_TESTS.get(natural.kind)
            if source != position or test is None:
                return None
            if natural.kind is Kind.DECIMAL and position not in stored:
                return None  # its digits decide about the type of what is computed with it
            tests.append(test.replace("$", f"v{position}"))
        if not types:
            self.lines.append("if p: return None")
            return None if slots else []
        self.lines.append(
            f"if p.__class__ is not tuple and p.__class__ is not list or len(p) != {len(types)}:"
            " return None"
        )
        names = "".join(f"v{position}, " for position in range(len(types)))
        self.lines += [f"{names}= p", f"if not ({' and '.join(tests)}): return None"]
        values: list[str] = []
        for slot in slots:
            if not isinstance(slot.source, int):
                return None
            values.append(self._physical(f"v{slot.source}", types[slot.source][1], slot))
        return values

    def _physical(self, value: str, natural: SqlType, slot: Slot) -> str:
        test = _SAME_TESTS.get((natural.kind, slot.type.kind))
        if test == "":
            return value
        what = slot.what
        sql_type = slot.type

        def convert(given: object) -> Physical:
            return to_physical(given, sql_type, what=what)

        slow = f"{self.name(convert)}({value})"
        if test is None or sql_type.length is not None:
            return slow
        return f"{value} if {test.replace('$', value)} else {slow}"


def compile_bind(types: NaturalTypes, slots: Sequence[Slot]) -> Bind | None:
    """Return f(parameters) → the slots' values; None where only the general way knows.

    f answers None for parameters whose natural types are not exactly `types`.
    """
    source = _Source()
    values = source.take(types, slots)
    if values is None:
        return None
    source.lines.append(f"return [{', '.join(values)}]")
    return source.made("p")


def compile_row(plan: InsertPlan, types: NaturalTypes, slots: Sequence[Slot]) -> MakeRow | None:
    """Return f(parameters, now_us, numbers) → (key, the row of VALUES), checked; of a keyed table.

    f answers None for parameters whose natural types are not exactly `types`, and raises what the
    general way does for values that do not fit. None instead of f: values that are computed,
    several rows, CHECKs by a query, a statement that minds keys that are there, or gives rows.
    """
    statement = plan.statement
    table, rows = statement.table, statement.rows
    if plan.source is not None or rows is None or len(rows) != 1 or table.is_heap:
        return None
    if statement.on_conflict is not OnConflict.FAIL or table.wide_ordinals:
        return None
    if plan.returning is not None or checks_by_query(table):
        return None
    source = _Source()
    values = source.take(types, slots)
    if values is None:
        return None
    parts = default_sources(table, source.space)
    for ordinal, expression in zip(statement.ordinals, rows[0], strict=True):
        if isinstance(expression, Parameter):
            parts[ordinal] = values[expression.index]
        elif isinstance(expression, Literal) and expression.value is None:
            parts[ordinal] = "None"
        else:
            return None
    source.lines += [
        f"r = ({', '.join(parts)},)",
        *check_lines(source, table),
        f"return {key_source(table.key, table.key_kinds)}, r",
    ]
    return source.made("p, now_us, numbers")


def compile_rows(table: Table, ordinals: Sequence[int]) -> MakeRows:
    """Return f(rows of parameters, now_us, numbers, prepare, add): adds each row, checked.

    It runs once for each thousand rows of executemany's INSERT. What has not as many values as
    there are ordinals, or is neither tuple nor list, is given to prepare(), which says why.
    """
    source = Writer(None)
    lines, row, exact = row_conversion(table, ordinals, source.space)
    head = [
        "kind = values.__class__",
        "is_sequence = kind is tuple or kind is list",
        f"if not is_sequence or len(values) != {len(ordinals)}: prepare(values)",
        *lines[:1],
    ]
    lines = [*lines[1:], f"r = {row}", *check_lines(source, table)]
    if exact:
        lines = [
            f"if kind is tuple and {exact}:",
            "    r = values",
            *indented(check_lines(source, table, is_exact=True)),
            "else:",
            *indented(lines),
        ]
    body = indented([*head, *lines, "add(r)"])
    return source.function("items, now_us, numbers, prepare, add", ["for values in items:", *body])


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines of source one level further in."""
    return [f"    {line}" for line in lines]


_LOOKUP = """\
version = None
if transaction is not None:
    writes = transaction.writes.get({table_id})
    if writes is not None:
        version = own_visible(writes.get(key), transaction.statement)
if version is None:
    table = state.tables.get({table_id})
    if table is None: return None
    position = state.position
    version = table.memtable.chains.get(key)
    if version is not None and version[0] > position: version = visible(version, position)
    if version is None and table.frozen: version = visible_in(table.frozen, key, position)
    if version is None:
        place = table.pages.locate(key)
        if place is None: return {absent}
        {from_page}
    if version is TRIMMED: return None
{found}"""
"""Behind it `version` is that of a memtable, or None behind what a page has."""


def compile_point_read(
    plan: RowSelect, types: NaturalTypes, slots: Sequence[Slot]
) -> ReadRow | None:
    """Return f(parameters, state, transaction) → the rows, logical, at most one.

    It reads one immutable State without registering: where the version it needs was pruned
    meanwhile it answers None, and the caller asks again with the newest State. None instead of f:
    the plan is no plain point read.
    """
    access = plan.access
    outputs = [item.ordinal for item in plan.outputs if isinstance(item, ColumnRef)]
    is_plain = plan.residual is None and plan.limit is None and plan.offset is None
    if not is_plain or not isinstance(access, PointAccess) or len(outputs) < len(plan.outputs):
        return None
    if plan.ref is None:
        return None
    table = plan.ref.table
    source = _Source()
    values = source.take(types, slots)
    if values is None or not _take_key(source, table, access, values, absent="[]"):
        return None
    types_out = [table.columns[ordinal].type for ordinal in outputs]
    converters = [output_converter(sql_type) for sql_type in types_out]
    is_whole = outputs == list(range(len(table.columns)))
    get = "row(place[1])" if is_whole else f"cells(place[1], {source.name(tuple(outputs))})"
    from_row = from_cells = "r"
    if any(converters) or not is_whole:
        from_row = _logical(source, outputs, converters)
    if any(converters):
        from_cells = _logical(source, range(len(outputs)), converters)
    from_page = f"r = place[0].page.{get}; return [{from_cells}]"
    found = f"r = version[1]\nreturn [] if r is None else [{from_row}]"
    text = _LOOKUP.format(table_id=table.id, found=found, from_page=from_page, absent="[]")
    source.lines += text.splitlines()
    return source.made("p, state, transaction")


FewRowsReader = Callable[
    [PresentRows, Sequence[Physical], Interrupt], Iterator[tuple[Any, ...]] | None
]
_FEW_ROWS = 64
"""As many as an index read gives here: the server's loop waits for it."""


class _NoInterrupt:
    """Of what takes no longer than some rows do."""

    def check(self) -> None: ...
    def on_cancel(self, callback: Callable[[], object] | None) -> None: ...


_NO_INTERRUPT = _NoInterrupt()


def compile_index_read(
    plan: RowSelect, types: NaturalTypes, slots: Sequence[Slot], reader: FewRowsReader
) -> ReadRow | None:
    """Return f(parameters, state, transaction) → the few rows of some entries of an index.

    As compile_point_read(), by the plan's reader of the general path. f answers None for more rows,
    for what the transaction itself has written, and for what ends in an error.
    """
    access = plan.access
    if not isinstance(access, IndexAccess) or plan.ref is None or access.is_sure:
        return None
    if plan.residual is not None or plan.limit is not None or plan.offset is not None:
        return None
    bind = compile_bind(types, slots)
    if bind is None:
        return None
    table = plan.ref.table
    convert = compile_output([sql_type for _, sql_type in plan.query.columns])

    def read_rows(
        parameters: Any, state: "State", transaction: "Transaction | None"
    ) -> list[tuple[Any, ...]] | None:
        if transaction is not None and transaction.writes:
            return None
        try:
            values = bind(parameters)
            if values is None or table.id not in state.tables:
                return None
            found = reader(PresentRows(table, state), values, _NO_INTERRUPT)
            rows = None if found is None else list(islice(found, _FEW_ROWS + 1))
        except Error:
            return None
        if rows is None or len(rows) > _FEW_ROWS:
            return None
        return rows if convert is None else list(map(convert, rows))

    return read_rows


def compile_change(
    plan: UpdatePlan | DeletePlan, types: NaturalTypes, slots: Sequence[Slot]
) -> ChangeRow | None:
    """Return f(parameters, state, transaction) → (key, row before, row after or None).

    Of an UPDATE or DELETE of the row with one key, which an UPDATE keeps; the row after is checked.
    f answers None when there is no such row, for parameters whose natural types are not exactly
    `types`, and where the version it needs was pruned; it raises what the general path does for
    values that do not fit.
    """
    find, table = plan.find, plan.ref.table
    if not isinstance(find, RowFind) or not isinstance(find.access, PointAccess):
        return None
    if find.residual is not None or table.is_heap or table.wide_ordinals:
        return None
    source = _Source(table)
    values = source.take(types, slots)
    if values is None or not _take_key(source, table, find.access, values, absent="None"):
        return None
    change = ["return key, r, None"]
    if isinstance(plan, UpdatePlan):
        if any(ordinal in table.key for ordinal, _ in plan.assignments) or checks_by_query(table):
            return None
        new = assigned_row(source, table, plan.assignments)
        change = [
            f"p = [{', '.join(values)}]",
            *source.prelude,
            "old = r",
            f"r = {new}",
            *check_lines(source, table),
            "return key, old, r",
        ]
        source.prelude = []  # over the parameters as the slots have them
    found = ["if version is not None:", "    r = version[1]", "    if r is None: return None"]
    text = _LOOKUP.format(
        table_id=table.id,
        found="\n".join([*found, *change]),
        from_page="r = place[0].page.row(place[1])",
        absent="None",
    )
    source.lines += text.splitlines()
    return source.made("p, state, transaction")


def _take_key(
    source: _Source, table: Table, access: PointAccess, values: Sequence[str], *, absent: str
) -> bool:
    """Write `key`, a tuple; a NULL in it returns `absent`. False: it is not of parameters only."""
    names: list[str] = []
    for ordinal, part in zip(table.key, access.key, strict=True):
        if not isinstance(part, Parameter):
            return False
        name = f"c{len(names)}"
        source.lines += [f"{name} = {values[part.index]}", f"if {name} is None: return {absent}"]
        is_float = table.columns[ordinal].type.is_float
        names.append(f"float_order({name})" if is_float else name)
    source.space.update(
        TRIMMED=TRIMMED, own_visible=own_visible, visible=visible, visible_in=visible_in
    )
    source.lines.append(f"key = ({', '.join(names)},)")
    return True


def _logical(source: _Source, places: Iterable[int], converters: Sequence[Any]) -> str:
    """Return source of the tuple of logical values of `r`; a converter of None changes nothing."""
    parts = [
        f"r[{place}]"
        if convert is None
        else f"None if r[{place}] is None else {source.name(convert)}(r[{place}])"
        for place, convert in zip(places, converters, strict=True)
    ]
    return f"({', '.join(parts)},)"
