"""EXPLAIN [ANALYZE]: the plan as an indented tree, one row of text per line.

A line is a step; what stands deeper below it feeds it. Constants that are parameters are printed as
they were written (?1, :name). Page counts are those of the snapshot that the tree is made of: for
the row path the pages that the key's range touches, for the vector path those that the zone maps
leave. ANALYZE has run the statement and adds what was measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from herdpy.engine.statements.plan_cache import Prepared
from herdpy.errors import ProgrammingError, loading
from herdpy.exec.interfaces import ColumnRange
from herdpy.exec.result import Result
from herdpy.model.keys import canonical_key
from herdpy.model.schema import Table
from herdpy.model.types import TEXT, Key, Physical
from herdpy.sql import tree
from herdpy.sql.duckdb_text import DuckTable, print_query
from herdpy.sql.plan import (
    NOW,
    Access,
    CountAccess,
    DeletePlan,
    Find,
    IndexAccess,
    InsertPlan,
    OverRows,
    Plan,
    PointAccess,
    RangeAccess,
    RowFind,
    SelectPlan,
    SequenceSelect,
    Slot,
    UpdatePlan,
    VectorSelect,
)
from herdpy.sql.reading.extent import too_deep
from herdpy.sql.text import ExpressionPrinter, name_text
from herdpy.storage.table_pages import PageEntry

if TYPE_CHECKING:
    from herdpy.engine.state.snapshots import Snapshot, TableSnapshot

_INDENT = "  "
_VECTOR_PATH = "Vector path (DuckDB over the pages)"
_ROW_PATH = "Row path"


@dataclass(frozen=True, slots=True)
class Measured:
    """What ANALYZE found out. log_wait_s is None when nothing had to wait for the log."""

    row_count: int
    time_s: float
    log_wait_s: float | None


def explain(
    inner: Prepared,
    values: Sequence[Physical],
    snapshot: "Snapshot",
    measured: Measured | None,
    vector_rows_min: int,
) -> Result:
    """Return the lines of the plan of EXPLAIN's statement, one row each."""
    printer = _PlanPrinter(inner.plan, inner.slots, values, snapshot, vector_rows_min)
    lines = printer.lines()
    if measured is not None:
        lines += _measured_lines(measured, printer)
    return Result((("plan", TEXT),), iter([(line,) for line in lines]), row_count=len(lines))


def _measured_lines(measured: Measured, printer: "_PlanPrinter") -> list[str]:
    lines = [f"Rows: {measured.row_count:,}", f"Time: {_milliseconds(measured.time_s)}"]
    if printer.pages_total:
        lines.append(f"Pages read: {printer.pages_read:,} of {printer.pages_total:,}")
    if measured.log_wait_s is not None:
        lines.append(f"Log wait: {_milliseconds(measured.log_wait_s)}")
    return lines


def _is_call(part: tree.Expression) -> bool:
    return isinstance(part, tree.SequenceCall)


def _milliseconds(time_s: float) -> str:
    return f"{time_s * 1000:,.3f} ms" if time_s < 0.01 else f"{time_s * 1000:,.1f} ms"


def check_explainable(plan: Plan) -> None:
    """Raise 42601 for a statement that has no plan to show."""
    if not isinstance(plan, SelectPlan | InsertPlan | UpdatePlan | DeletePlan):
        raise ProgrammingError(
            "EXPLAIN takes SELECT, INSERT, UPSERT, UPDATE or DELETE", sqlstate="42601"
        )


class _PlanPrinter:
    """Prints one plan; counts the pages on the way."""

    def __init__(
        self,
        plan: Plan,
        slots: Sequence[Slot],
        values: Sequence[Physical],
        snapshot: "Snapshot",
        vector_rows_min: int,
    ) -> None:
        self._plan = plan
        self._vector_rows_min = vector_rows_min
        self._values = values
        self._snapshot = snapshot
        aliases = dict(_aliases(plan))
        self._has_aliases = len(aliases) > 1
        self._printer = ExpressionPrinter(
            aliases if self._has_aliases else {}, [_slot_text(slot) for slot in slots]
        )
        self._duck_tables: dict[int, DuckTable] = {}
        self._cte_names = {cte.id: cte.name for cte in _ctes(plan)}
        self._lines: list[str] = []
        self.pages_total = 0
        self.pages_read = 0

    def lines(self) -> list[str]:
        self._statement(self._plan)
        printed = 0
        subqueries = self._printer.subqueries  # grows while they are printed
        while printed < len(subqueries):
            printed += 1
            self._add(0, f"Subquery {printed}")
            self._query(1, subqueries[printed - 1])
        return self._lines

    def _add(self, depth: int, text: str) -> None:
        self._lines.append(f"{_INDENT * depth}{text}")

    # --- statements ---

    def _statement(self, plan: Plan) -> None:
        if isinstance(plan, SelectPlan):
            self._select(0, plan)
        elif isinstance(plan, InsertPlan):
            self._insert(plan)
        elif isinstance(plan, UpdatePlan):
            self._add(0, f"Update {name_text(plan.ref.table.name)}")
            self._set(1, plan.ref.table, plan.assignments)
            self._returning(plan.returning)
            self._find(plan.find)
        elif isinstance(plan, DeletePlan):
            self._add(0, f"Delete rows of {name_text(plan.ref.table.name)}")
            self._returning(plan.returning)
            self._find(plan.find)

    def _insert(self, plan: InsertPlan) -> None:
        statement = plan.statement
        word = "Upsert" if statement.on_conflict is tree.OnConflict.REPLACE else "Insert"
        tail = ", on conflict nothing" if statement.on_conflict is tree.OnConflict.SKIP else ""
        self._add(0, f"{word} into {name_text(statement.table.name)}{tail}")
        if statement.update is not None and plan.update is not None:
            self._add(1, f"On conflict update{self._path_of(plan.update)}")
            depth = self._filter(2, statement.update.where)
            self._set(depth, statement.table, statement.update.assignments)
        self._returning(plan.returning)
        if plan.source is not None:
            self._select(1, plan.source)
            return
        count = len(statement.rows or ())
        self._add(1, _ROW_PATH)
        self._add(2, f"Values: {count:,} {'row' if count == 1 else 'rows'}")

    def _set(
        self, depth: int, table: Table, assignments: Sequence[tuple[int, tree.Expression]]
    ) -> None:
        changes = [
            f"{name_text(table.columns[ordinal].name)} = {self._printer.text(value)}"
            for ordinal, value in assignments
        ]
        self._add(depth, f"Set: {', '.join(changes)}")

    def _returning(self, plan: OverRows | None) -> None:
        if plan is not None:
            path = self._path_of(plan)
            self._add(1, f"Returning: {self._outputs_text(plan.outputs)}{path}")

    def _path_of(self, plan: OverRows) -> str:
        """Return how a line says which path computes something of rows at hand."""
        if plan.query is None:
            return ""
        self._note_tables(plan.query)
        return ", by the vector path"

    def _is_big(self, ref: tree.TableRef | None) -> bool:
        if ref is None:
            return False
        return self._snapshot.source(ref.table).row_count_guess >= self._vector_rows_min

    def _has_many(self, ref: tree.TableRef | None, access: Access) -> bool:
        """Tell whether an index has so many entries that the rows are scanned instead."""
        if ref is None or not isinstance(access, IndexAccess) or access.is_sure:
            return False
        entries = access.entries
        if isinstance(entries, PointAccess):
            return False
        table = ref.table.stores[access.number].table
        bounds = self._bounds(table, entries.prefix, entries.low, entries.high)
        source = self._snapshot.source(ref.table)
        return bounds is not None and source.has_many(source.index(access.number), *bounds)

    def _find(self, find: Find) -> None:
        if isinstance(find, RowFind) and (
            (find.is_scan and self._is_big(find.ref)) or self._has_many(find.ref, find.access)
        ):
            find = find.found_by_vector()
        if isinstance(find, RowFind):
            self._add(1, _ROW_PATH)
            self._access(2, find.ref, find.access, find.residual, is_reverse=False)
        else:
            self._vector(1, find.query)

    def _select(self, depth: int, plan: SelectPlan) -> None:
        if isinstance(plan, SequenceSelect):
            calls = (each for each in plan.outputs if any(map(_is_call, tree.walk(each))))
            self._add(depth, f"Values of sequences ({self._printer.list_text(tuple(calls))})")
            self._select(depth + 1, plan.source)
            return
        if (
            isinstance(plan, VectorSelect)
            or (plan.is_scan and self._is_big(plan.ref))
            or self._has_many(plan.ref, plan.access)
        ):
            self._vector(depth, plan.query)
            return
        self._add(depth, _ROW_PATH)
        depth = self._limit(depth + 1, plan.limit, plan.offset)
        self._output(depth, plan.query.body)
        if plan.ref is None:
            self._filter(depth + 1, plan.residual)
            return
        self._access(depth + 1, plan.ref, plan.access, plan.residual, is_reverse=plan.is_reverse)

    # --- row path ---

    def _access(
        self,
        depth: int,
        ref: tree.TableRef,
        access: Access,
        residual: tree.Expression | None,
        *,
        is_reverse: bool,
    ) -> None:
        depth = self._filter(depth, residual)
        table = _table_text(ref)
        source = self._snapshot.source(ref.table)
        names = [name_text(name) for name in ref.table.key_names]
        if isinstance(access, PointAccess):
            pairs = zip(names, access.key, strict=True)
            tests = [f"{name} = {self._printer.text(part)}" for name, part in pairs]
            text = f"Point lookup on {table} by key ({', '.join(tests)})"
            bounds = self._bounds(ref.table, access.key, None, None)
        elif isinstance(access, IndexAccess):
            self._index(depth, ref, access, is_reverse=is_reverse)
            return
        elif isinstance(access, CountAccess):
            self._add(depth, f"Row count of {table}")
            return
        elif isinstance(access, RangeAccess):
            text = f"Key range on {table}: {' AND '.join(self._range_tests(access, names))}"
            bounds = self._bounds(ref.table, access.prefix, access.low, access.high)
        else:
            text = f"Full scan of {table}{', in key order' if access.is_ordered else ''}"
            bounds = ((), ())
        if is_reverse:
            text += ", backward"
        self._add(depth, f"{text}; {self._touched(source, bounds)}")

    def _index(
        self, depth: int, ref: tree.TableRef, access: IndexAccess, *, is_reverse: bool
    ) -> None:
        """Show which entries of an index are read; each leads to its row by key."""
        store, entries = ref.table.stores[access.number], access.entries
        columns, text = ref.table.columns, self._printer.text
        fixed = entries.key if isinstance(entries, PointAccess) else entries.prefix
        tests: list[str] = []
        is_null = False
        for part, value in zip(store.parts, fixed, strict=False):
            name = name_text(columns[part.ordinal].name)
            if part.is_flag:
                is_null = isinstance(value, tree.Literal) and bool(value.value)
                if is_null:
                    tests.append(f"{name} IS NULL")
            elif not is_null:
                tests.append(f"{name} = {text(value)}")
            else:
                is_null = False
        low = high = None
        if isinstance(entries, RangeAccess):
            low, high = entries.low, entries.high
            names = [name_text(columns[part.ordinal].name) for part in store.parts]
            tests += self._range_tests(entries, names)[len(fixed) :]
        source = self._snapshot.source(ref.table).index(access.number)
        bounds = self._bounds(store.table, fixed, low, high)
        line = f"Index {name_text(store.index.name)} of {_table_text(ref)}: {' AND '.join(tests)}"
        backward = ", backward" if is_reverse else ""
        self._add(depth, f"{line}{backward}; {self._touched(source, bounds)}")

    def _range_tests(self, access: RangeAccess, names: Sequence[str]) -> list[str]:
        text = self._printer.text
        tests = [f"{name} = {text(part)}" for name, part in zip(names, access.prefix, strict=False)]
        if access.low is not None or access.high is not None:
            name = names[len(access.prefix)]
            if access.low is not None:
                tests.append(f"{name} {'>=' if access.low_inclusive else '>'} {text(access.low)}")
            if access.high is not None:
                sign = "<=" if access.high_inclusive else "<"
                tests.append(f"{name} {sign} {text(access.high)}")
        return tests

    def _bounds(
        self,
        table: Table,
        prefix: Sequence[tree.Expression],
        low: tree.Expression | None,
        high: tree.Expression | None,
    ) -> tuple[Key, Key] | None:
        """Return the key prefixes that an access lies between; None when it can find nothing."""
        kinds = table.key_kinds
        found: list[Key] = []
        for bound in (low, high):
            parts = [*prefix, *([bound] if bound is not None else [])]
            constants = [self._constant(part) for part in parts]
            if None in constants:
                return None
            found.append(canonical_key(tuple(constants), kinds[: len(constants)]))
        return found[0], found[1]

    def _constant(self, expression: tree.Expression) -> Any:
        if isinstance(expression, tree.Literal):
            return expression.value
        return self._values[expression.index] if isinstance(expression, tree.Parameter) else None

    def _touched(self, source: "TableSnapshot", bounds: tuple[Key, Key] | None) -> str:
        def is_touched(entry: PageEntry) -> bool:
            if bounds is None:
                return False
            low, high = bounds
            return entry.high[: len(low)] >= low and entry.low[: len(high)] <= high

        entries = list(source.pages.entries()) if source.pages is not None else []
        return self._pages_text(source, len(entries), sum(map(is_touched, entries)))

    def _pages_text(self, source: "TableSnapshot", total: int, read: int) -> str:
        self.pages_total += total
        self.pages_read += read
        in_memory = source.row_count_guess - (source.pages.live_count if source.pages else 0)
        parts: list[str] = []
        if total:
            parts.append(f"{read:,} of {total:,} {'page' if total == 1 else 'pages'}")
        if in_memory or not total:
            parts.append(f"{in_memory:,} {'change' if in_memory == 1 else 'changes'} in memory")
        return ", ".join(parts)

    # --- steps that both paths have ---

    def _limit(
        self, depth: int, limit: tree.Expression | None, offset: tree.Expression | None
    ) -> int:
        if limit is None and offset is None:
            return depth
        parts = [f"Limit {self._printer.text(limit)}"] if limit is not None else []
        if offset is not None:
            parts.append(f"{'offset' if parts else 'Offset'} {self._printer.text(offset)}")
        self._add(depth, ", ".join(parts))
        return depth + 1

    def _filter(self, depth: int, condition: tree.Expression | None) -> int:
        if condition is None:
            return depth
        self._add(depth, f"Filter: {self._printer.text(condition)}")
        return depth + 1

    def _output(self, depth: int, body: tree.Body) -> None:
        if isinstance(body, tree.Select):
            self._add(depth, f"Output: {self._outputs_text(body.outputs)}")

    def _outputs_text(self, outputs: Sequence[tree.Output]) -> str:
        texts: list[str] = []
        named = self._named(outputs)
        for output in outputs:
            text, expression = self._printer.text(output.expression), output.expression
            own = expression.name if isinstance(expression, tree.ColumnRef) else text.split("(")[0]
            is_named = output.name not in (own, "?column?") and expression in named
            texts.append(f"{text} AS {name_text(output.name)}" if is_named else text)
        return ", ".join(texts)

    def _named(self, outputs: Sequence[tree.Output]) -> dict[tree.Expression, str]:
        """Return the computed outputs that other steps can call by their name."""
        return {
            output.expression: output.name
            for output in outputs
            if not isinstance(output.expression, tree.ColumnRef | tree.Literal | tree.Parameter)
        }

    def _sort_text(self, query: tree.Query) -> str:
        names = self._named(query.body.outputs) if isinstance(query.body, tree.Select) else {}
        return self._printer.sort_text(query.order_by, names)

    # --- vector path ---

    def _note_tables(self, query: tree.Query) -> None:
        try:
            tables = print_query(query).all_tables
        except RecursionError as error:
            raise too_deep() from error
        self._duck_tables.update({table.ref.id: table for table in tables})

    def _vector(self, depth: int, query: tree.Query) -> None:
        self._note_tables(query)
        self._add(depth, _VECTOR_PATH)
        self._query(depth + 1, query)

    def _query(self, depth: int, query: tree.Query) -> None:
        depth = self._limit(depth, query.limit, query.offset)
        body = query.body
        if query.order_by:
            self._add(depth, f"Sort by {self._sort_text(query)}")
            depth += 1
        if isinstance(body, tree.Select):
            self._select_body(depth, body)
        elif isinstance(body, tree.SetOperation):
            self._add(depth, f"{body.operator.capitalize()}{' all' if body.is_all else ''}")
            self._query(depth + 1, body.left)
            self._query(depth + 1, body.right)
        elif isinstance(body, tree.Series):
            bounds = map(self._printer.text, (body.start, body.stop, body.step))
            self._add(depth, "Series from {} to {} by {}".format(*bounds))
        else:
            count = len(body.rows)
            self._add(depth, f"Values: {count:,} {'row' if count == 1 else 'rows'}")
        for cte in query.ctes:
            word = "With recursive" if cte.is_recursive else "With"
            self._add(depth, f"{word} {name_text(cte.name)}")
            self._query(depth + 1, cte.query)

    def _select_body(self, depth: int, select: tree.Select) -> None:
        if select.distinct_on:
            shown = tree.resolved(select.distinct_on, select.outputs)
            self._add(depth, f"Distinct on {self._printer.list_text(shown)}")
            depth += 1
        elif select.is_distinct:
            self._add(depth, "Distinct")
            depth += 1
        self._output(depth, select)
        depth += 1
        if select.having is not None:
            self._add(depth, f"Having: {self._printer.text(select.having)}")
            depth += 1
        if select.is_grouped:
            names = self._named(select.outputs)
            keys = [
                name_text(names[key]) if key in names else self._printer.text(key)
                for key in tree.resolved(select.group_by, select.outputs)
            ]
            if select.grouping_sets:
                keys = [f"({', '.join(keys[i] for i in each)})" for each in select.grouping_sets]
            word = "Group by sets" if select.grouping_sets else "Group by"
            self._add(depth, f"{word} {', '.join(keys)}")
            depth += 1
        elif any(_has_aggregate(output.expression) for output in select.outputs):
            self._add(depth, "Aggregate all rows")
            depth += 1
        depth = self._filter(depth, select.where)
        if select.source is not None:
            self._relation(depth, select.source)

    def _relation(self, depth: int, relation: tree.Relation) -> None:
        if isinstance(relation, tree.TableRef):
            self._scan(depth, relation)
        elif isinstance(relation, tree.Derived):
            alias = name_text(relation.alias)
            if relation.view is None:
                text = f"{'Lateral' if relation.is_lateral else 'Derived'} table {alias}"
            else:
                name = name_text(relation.view.name)
                text = f"View {name if alias == name else f'{name} {alias}'}"
            self._add(depth, text)
            self._query(depth + 1, relation.query)
        elif isinstance(relation, tree.CteRef):
            name = name_text(self._cte_names.get(relation.cte, relation.alias))
            alias = name_text(relation.alias)
            self._add(depth, f"Rows of {name}{'' if alias == name else f' {alias}'}")
        else:
            condition = relation.condition
            kind = relation.kind.value.capitalize()
            on = "" if condition is None else f" on {self._printer.text(condition)}"
            self._add(depth, f"{kind} join{on}")
            self._relation(depth + 1, relation.left)
            self._relation(depth + 1, relation.right)

    def _scan(self, depth: int, ref: tree.TableRef) -> None:
        source = self._snapshot.source(ref.table)
        duck = self._duck_tables.get(ref.id)
        tests = duck.prune if duck is not None else ()
        ranges: list[ColumnRange] = []
        if duck is not None:
            with loading():
                from herdpy.exec.vector import load_duckdb

                load_duckdb()
                from herdpy.exec.vector.duck import column_ranges

                ranges = column_ranges(duck, self._values)
        entries = list(source.pages.entries()) if source.pages is not None else []
        kept = sum(
            all(entry.page.may_hold(item.ordinal, item.low, item.high) for item in ranges)
            for entry in entries
        )
        columns = ref.table.columns
        visible = len(ref.table.visible_columns)
        used = len(duck.ordinals) if duck is not None else visible
        text = f"Scan of {_table_text(ref)}: {used} of {visible} columns, "
        text += self._pages_text(source, len(entries), kept)
        self._add(depth, text)
        if kept < len(entries):
            pruned_by = {item.ordinal for item in ranges}
            conjuncts = [
                f"{name_text(columns[ordinal].name)} {operator} {self._printer.text(constant)}"
                for ordinal, operator, constant in tests
                if ordinal in pruned_by
            ]
            left_out = len(entries) - kept
            self._add(depth + 1, f"Zone maps leave out {left_out:,}: {' AND '.join(conjuncts)}")


def _slot_text(slot: Slot) -> str:
    if slot.source == NOW:
        return NOW
    return f"?{slot.source + 1}" if isinstance(slot.source, int) else f":{slot.source}"


def _table_text(ref: tree.TableRef) -> str:
    name, alias = name_text(ref.table.name), name_text(ref.alias)
    return name if alias == name else f"{name} {alias}"


def _has_aggregate(expression: tree.Expression) -> bool:
    own = tree.nodes(expression, is_deep=False)
    return any(isinstance(node, tree.Aggregate) for node in own)


def _aliases(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield (id, alias) of every relation of the plan whose columns it names."""
    hidden = None
    if isinstance(plan, InsertPlan):
        update = plan.statement.update
        if update is not None:
            yield update.excluded, "excluded"
        elif plan.returning is None:
            hidden = plan.statement.target.id
    for node in tree.nodes(plan):
        if isinstance(node, tree.TableRef | tree.Derived | tree.CteRef) and node.id != hidden:
            yield node.id, node.alias


def _ctes(plan: Plan) -> Iterator[tree.Cte]:
    return (node for node in tree.nodes(plan) if isinstance(node, tree.Cte))
