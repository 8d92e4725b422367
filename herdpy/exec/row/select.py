"""Row-path plans to Python functions, generated once per plan: queries, finds and changes of rows.

Everything is physical in and out. Functions for reading take (source, p, interrupt) and return an
iterator; what can be wrong with limits and keys is raised by the call, not by the first row. They
read ahead of the consumer in chunks that double up to 1,024 rows, with interrupt.check() between.
Functions for writing only compute rows: locks, log and memtable are the engine's.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from herdpy.errors import InvariantViolation
from herdpy.exec.coerce import check_row_count, default_sources
from herdpy.exec.interfaces import Interrupt, Numbers, RowSource
from herdpy.exec.row.expressions import Writer
from herdpy.limits import row_nodes_max
from herdpy.model.keys import float_order
from herdpy.model.schema import Table
from herdpy.model.types import Physical, Row, SqlType
from herdpy.sql.plan import (
    Access,
    CountAccess,
    FullAccess,
    IndexAccess,
    InsertPlan,
    OverRows,
    PointAccess,
    RangeAccess,
    RowFind,
    RowSelect,
    SequenceSelect,
    UpdatePlan,
    VectorFind,
)
from herdpy.sql.tree import ColumnRef, Expression, OnConflict, walk

_CHUNK_ROWS_FIRST, _CHUNK_ROWS_MAX = 16, 1024

Reader = Callable[
    [RowSource | None, Sequence[Physical], Interrupt], Iterator[tuple[Any, ...]] | None
]

# --- reading -------------------------------------------------------------------------------------


def compile_row_select(plan: RowSelect) -> Reader:
    """Return the function that yields the query's rows, one tuple of physical values each.

    Of an IndexAccess that is not sure it returns None where the vector path is the faster one.
    Without FROM (plan.ref is None) it does not look at its source.
    """
    table = plan.ref.table if plan.ref is not None else None
    if isinstance(plan.access, IndexAccess) and table is not None:
        return _compile_by_index(
            table,
            plan.access,
            plan.residual,
            plan.outputs,
            is_reverse=plan.is_reverse,
            limit=plan.limit,
            offset=plan.offset,
        )
    ordinals = [item.ordinal if isinstance(item, ColumnRef) else -1 for item in plan.outputs]
    is_whole = table is not None and ordinals == list(range(len(table.columns)))
    return _compile_reader(
        table,
        plan.access,
        plan.residual,
        None if is_whole or not plan.outputs else plan.outputs,
        is_reverse=plan.is_reverse,
        limit=plan.limit,
        offset=plan.offset,
    )


def compile_find(
    plan: RowFind,
) -> Callable[[RowSource, Sequence[Physical], Interrupt], Iterator[Row] | None]:
    """Return the function that yields the whole rows to change; None as compile_row_select()."""
    table = plan.ref.table
    if isinstance(plan.access, IndexAccess):
        return _compile_by_index(table, plan.access, plan.residual, None)
    return _compile_reader(plan.ref.table, plan.access, plan.residual, None)


def _reader_writer(table: Table | None) -> Writer:
    """Return the writer of a function that reads rows, with what its lines call."""
    writer = Writer(table)
    writer.space.update(
        count=_row_count,
        islice=islice,
        chain=chain.from_iterable,
        columns=None,
        float_order=float_order,
        maxsize=sys.maxsize,
    )
    return writer


def _compile_reader(
    table: Table | None,
    access: Access,
    residual: Expression | None,
    outputs: Sequence[Expression] | None,
    *,
    is_reverse: bool = False,
    limit: Expression | None = None,
    offset: Expression | None = None,
) -> Reader:
    writer = _reader_writer(table)
    lines: list[str] = []
    has_limit = limit is not None or offset is not None
    if has_limit:
        lines += _limit_lines(writer, limit, offset)
    found = writer.row(outputs) if outputs is not None else "r"
    condition = writer.truth(residual) if residual is not None else ""
    if table is not None and isinstance(access, PointAccess):
        key, key_lines = _key_source(writer, table, access.key)
        lines += [*key_lines, f"r = source.get({key})"]
        lines.append(f"if r is None{f' or not {condition}' if condition else ''}: return iter(())")
        lines.append(f"rows = ({found},)")
        lines.append(f"return iter({'rows[skip:stop]' if has_limit else 'rows'})")
    elif isinstance(access, CountAccess):
        lines.append("rows = ((source.count(),),)")
        lines.append(f"return iter({'rows[skip:stop]' if has_limit else 'rows'})")
    else:
        names, scan = ["source", "p", "interrupt"], "((),)"
        if table is not None:
            if outputs is not None:
                parts = walk((tuple(outputs), residual))
                columns = {part.ordinal for part in parts if isinstance(part, ColumnRef)}
                if not columns.union(table.key) >= set(range(len(table.columns))):
                    writer.space["columns"] = frozenset(columns)
            more, scan = _scan(writer, table, access, is_reverse=is_reverse)
            lines += more
            names += ["low", "high"] if more else []
        scan = f"iter({scan})"
        if has_limit and not condition:
            scan = f"islice({scan}, skip, stop)"
            names += ["skip", "stop"]
        where = f" if {condition}" if condition else ""
        chunk = "chunk" if found == "r" and not where else f"[{found} for r in chunk{where}]"
        arguments = ", ".join(names)
        writer.space["chunks"] = writer.function(
            arguments, _CHUNKS.format(scan=scan, chunk=chunk).splitlines()
        )
        rows = f"chain(chunks({arguments}))"
        is_late = has_limit and condition
        lines.append(f"return {f'islice({rows}, skip, stop)' if is_late else rows}")
    return writer.function("source, p, interrupt", lines)


def _compile_by_index(
    table: Table,
    access: IndexAccess,
    residual: Expression | None,
    outputs: Sequence[Expression] | None,
    *,
    is_reverse: bool = False,
    limit: Expression | None = None,
    offset: Expression | None = None,
) -> Reader:
    """As _compile_reader(), of the rows of an index's entries, in the order of these."""
    store = table.stores[access.number]
    writer = _reader_writer(table)
    writer.space["key_of"] = store.key_of
    lines: list[str] = []
    has_limit = limit is not None or offset is not None
    if has_limit:
        lines += _limit_lines(writer, limit, offset)
    lines.append(f"entries = source.index({access.number})")
    if isinstance(access.entries, PointAccess):
        key, more = _key_source(writer, store.table, access.entries.key)
        lines += [*more, f"entry = entries.get({key})", "if entry is None: return iter(())"]
        scan, names = "(entry,)", ["source", "entry", "p", "interrupt"]
    else:
        more, scan = _scan(writer, store.table, access.entries, is_reverse=is_reverse)
        scan = scan.replace("source.range", "entries.range")
        lines += more
        names = ["source", "entries", "low", "high", "p", "interrupt"]
        if not access.is_sure:
            lines.append("if source.has_many(entries, low, high): return None")
    found = writer.row(outputs) if outputs is not None else "r"
    where = f" if {writer.truth(residual)}" if residual is not None else ""
    scan = f"filter(None, map(source.get, map(key_of, {scan})))"
    chunk = "chunk" if found == "r" and not where else f"[{found} for r in chunk{where}]"
    arguments = ", ".join(names)
    writer.space["chunks"] = writer.function(
        arguments, _CHUNKS.format(scan=f"iter({scan})", chunk=chunk).splitlines()
    )
    rows = f"chain(chunks({arguments}))"
    lines.append(f"return {f'islice({rows}, skip, stop)' if has_limit else rows}")
    return writer.function("source, p, interrupt", lines)


def _limit_lines(writer: Writer, limit: Expression | None, offset: Expression | None) -> list[str]:
    """Return lines that make `skip` and `stop` of LIMIT and OFFSET."""
    return [
        f"skip = count({writer.value(offset) if offset else None}, 'OFFSET', 0)",
        f"take = count({writer.value(limit) if limit else None}, 'LIMIT', maxsize)",
        "if not take: return iter(())",
        "stop = min(skip + take, maxsize)",
    ]


# A function of its own, which begins with the first row: a result that is not read holds little.
_CHUNKS = f"""\
scan = {{scan}}
size = {_CHUNK_ROWS_FIRST}
while chunk := list(islice(scan, size)):
    interrupt.check()
    yield {{chunk}}
    size = min(2 * size, {_CHUNK_ROWS_MAX})"""


def _scan(
    writer: Writer, table: Table, access: Access, *, is_reverse: bool
) -> tuple[list[str], str]:
    """Return lines that make the keys `low` and `high`, none for a whole table, and the scan."""
    if not isinstance(access, RangeAccess):
        if not isinstance(access, FullAccess) or (is_reverse and not access.is_ordered):
            raise InvariantViolation(f"row path: cannot scan by {access}")
        if access.is_ordered:
            return [], f"source.range(None, None, is_reverse={is_reverse}, columns=columns)"
        return [], "source.rows(columns)"
    prefix, lines = _key_source(writer, table, access.prefix)
    for bound, expression in (("low", access.low), ("high", access.high)):
        if expression is None:
            lines.append(f"{bound} = {prefix if access.prefix else None}")
            continue
        last, more = _key_source(writer, table, (expression,), first=len(access.prefix))
        lines += [*more, f"{bound} = {prefix} + {last}"]
    low_inclusive = access.low is None or access.low_inclusive
    high_inclusive = access.high is None or access.high_inclusive
    return lines, (
        f"source.range(low, high, low_inclusive={low_inclusive}, "
        f"high_inclusive={high_inclusive}, is_reverse={is_reverse}, columns=columns)"
    )


def _key_source(
    writer: Writer, table: Table, parts: Sequence[Expression], *, first: int = 0
) -> tuple[str, list[str]]:
    """Return source of a canonical key tuple, and lines before it that end the call on NULL."""
    lines: list[str] = []
    names: list[str] = []
    for position, part in enumerate(parts, first):
        column = table.columns[table.key[position]]
        is_alike = part.type.kind is column.type.kind and part.type.scale == column.type.scale
        if not is_alike and not (part.type.is_integer and column.type.is_integer):
            raise InvariantViolation(f"row path: key {column.name} {column.type} by {part.type}")
        name = writer.temporary()
        lines += [f"{name} = {writer.value(part)}", f"if {name} is None: return iter(())"]
        names.append(f"float_order({name})" if column.type.is_float else name)
    return f"({''.join(f'{name}, ' for name in names)})", lines


def compile_sequence_select(
    plan: SequenceSelect,
) -> Callable[[Row, Sequence[Physical], Numbers], tuple[Any, ...]]:
    """Return f(row of the source, p, numbers) → row of the query."""
    writer = Writer(None)
    return writer.function("r, p, numbers", [f"return {writer.row(plan.outputs)}"])


def compile_over_rows(
    plan: OverRows,
) -> Callable[[Sequence[Row], Sequence[Physical]], list[tuple[Any, ...] | None]]:
    """Return f(rows, p) → what is computed of each row; None: it does not meet the condition."""
    writer = Writer(plan.ref.table)
    found = writer.row(plan.values)
    if plan.where is not None:
        found = f"{found} if {writer.truth(plan.where)} else None"
    return writer.function("rows, p", [f"return [{found} for r in rows]"])


def _row_count(value: Any, word: str, default: int) -> int:
    if value is None:  # LIMIT NULL is no limit
        return default
    check_row_count(value, word)
    return value


# --- writing -------------------------------------------------------------------------------------


MakeNewRows = Callable[[Sequence[Physical], int, Numbers | None], list[Row]]
_VALUES_PER_OPERATOR = 8
"""Which take CPython's compiler as long."""


def compile_insert_rows(
    plan: InsertPlan, check_interrupt: Callable[[], object] = lambda: None
) -> MakeNewRows:
    """Return f(p, now_us, numbers) → whole rows of INSERT … VALUES, defaults filled in, unchecked.

    The hidden row id of a table without primary key stays None. check_interrupt is called for each
    function that the rows are made by.
    """
    statement = plan.statement
    if statement.rows is None:
        raise InvariantViolation("row path: INSERT … SELECT has no rows of its own")
    functions: list[MakeNewRows] = []
    left = iter(statement.rows)
    while rows := _some_rows(plan, left):
        check_interrupt()
        functions.append(rows)
    if len(functions) == 1:
        return functions[0]

    def made(p: Sequence[Physical], now_us: int, numbers: Numbers | None = None) -> list[Row]:
        return list(chain.from_iterable(rows(p, now_us, numbers) for rows in functions))

    return made


def _some_rows(plan: InsertPlan, left: Iterator[tuple[Expression, ...]]) -> MakeNewRows | None:
    """Return what makes the next rows, as many as are compiled in one go; None behind the last."""
    statement, writer = plan.statement, Writer(None)
    defaults = default_sources(statement.table, writer.space)
    rows: list[str] = []
    for expressions in left:
        parts = list(defaults)
        for ordinal, expression in zip(statement.ordinals, expressions, strict=True):
            parts[ordinal] = writer.value(expression)
        rows.append(f"({', '.join(parts)},)")
        values = len(rows) * len(parts)
        if writer.operator_count + values // _VALUES_PER_OPERATOR >= row_nodes_max // 2:
            break
    if not rows:
        return None
    return writer.function("p, now_us, numbers=None", [f"return [{', '.join(rows)}]"])


Resolve = Callable[[Row, Row], Row | None]
"""(the row that is there, the new one) → the row that is to be there; None: it stays."""


def resolver(plan: InsertPlan) -> Resolve | None:
    """Return what an INSERT makes of rows whose keys are there; None: it is not for one to say."""
    statement = plan.statement
    match statement.on_conflict if statement.is_by_key else OnConflict.FAIL:
        case OnConflict.FAIL | OnConflict.UPDATE:
            return None
        case OnConflict.SKIP:
            return lambda _there, _new: None
        case OnConflict.REPLACE:
            return lambda _there, new: new


def compile_row_filler(
    plan: InsertPlan,
) -> Callable[[Sequence[Physical], int, Numbers | None], Row]:
    """Return f(values of the source, now_us, numbers) → whole row, not yet checked.

    The values are converted to the types of their columns.
    """
    statement, source = plan.statement, plan.source
    if source is None:
        raise InvariantViolation("row path: VALUES are whole rows")
    writer = Writer(None)
    parts = default_sources(statement.table, writer.space)
    types = [found for _, found in source.columns]
    _put_values(writer, statement.table, parts, statement.ordinals, types)
    return writer.function("values, now_us, numbers=None", [f"return ({', '.join(parts)},)"])


def compile_row_changer(
    plan: UpdatePlan, find: VectorFind
) -> Callable[[Sequence[Physical], Row], Row]:
    """Return f(values of the query, old row) → new row, not yet checked."""
    ordinals = [ordinal for ordinal, _ in plan.assignments]
    first = len(plan.ref.table.key)
    types = [found for _, found in find.query.columns[first : first + find.value_count]]
    return _row_changer(plan.ref.table, ordinals, types)


def compile_conflict_changer(
    plan: InsertPlan, update: OverRows
) -> Callable[[Sequence[Physical], Row], Row]:
    """Return f(new values, the row that is there) → what is to be there, not yet checked."""
    assignments = () if plan.statement.update is None else plan.statement.update.assignments
    ordinals = [ordinal for ordinal, _ in assignments]
    return _row_changer(plan.statement.table, ordinals, [value.type for value in update.values])


def _row_changer(
    table: Table, ordinals: Sequence[int], types: Sequence[SqlType]
) -> Callable[[Sequence[Physical], Row], Row]:
    writer = Writer(None)
    parts = [f"r[{ordinal}]" for ordinal in range(len(table.columns))]
    _put_values(writer, table, parts, ordinals, types)
    return writer.function("values, r", [f"return ({', '.join(parts)},)"])


def _put_values(
    writer: Writer,
    table: Table,
    parts: list[str],
    ordinals: Sequence[int],
    types: Sequence[SqlType],
) -> None:
    for position, (ordinal, found) in enumerate(zip(ordinals, types, strict=True)):
        column = table.columns[ordinal]
        parts[ordinal] = writer.assigned(f"values[{position}]", found, column.type, column.name)


def compile_assignments(
    plan: UpdatePlan,
) -> Callable[[Row, Sequence[Physical], Numbers | None], Row]:
    """Return f(old row, p, numbers) → new row, unchecked; all assignments read the old row."""
    writer = Writer(plan.ref.table)
    new = assigned_row(writer, plan.ref.table, plan.assignments)
    return writer.function("r, p, numbers=None", [f"return {new}"])


def assigned_row(
    writer: Writer, table: Table, assignments: Sequence[tuple[int, Expression]]
) -> str:
    parts = [f"r[{ordinal}]" for ordinal in range(len(table.columns))]
    for ordinal, expression in assignments:
        parts[ordinal] = writer.value(expression)
    return f"({', '.join(parts)},)"
