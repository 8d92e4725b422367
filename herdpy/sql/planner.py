"""Bound statement to plan: what the row path can do goes there, everything else to the vector path.

exec/row must be able to do all that is_row_expression lets through.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from herdpy.errors import NotSupportedError
from herdpy.limits import interrupt_nodes, row_nodes_max
from herdpy.model.schema import ROWS_AT_HAND, Column, IndexPart, Table
from herdpy.model.types import BIGINT, BOOLEAN, Kind, SqlType, zero
from herdpy.sql import tree
from herdpy.sql.conversions import is_comparable
from herdpy.sql.plan import (
    Access,
    CountAccess,
    DeletePlan,
    ExplainPlan,
    Find,
    FullAccess,
    IndexAccess,
    InsertPlan,
    OverRows,
    Plan,
    PointAccess,
    RangeAccess,
    RowFind,
    RowSelect,
    SelectPlan,
    SequenceSelect,
    UpdatePlan,
    UtilityPlan,
    VectorFind,
    VectorSelect,
)
from herdpy.sql.reading.extent import Budget

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def plan_statement(
    statement: tree.Statement, check_interrupt: Callable[[], object] = lambda: None
) -> Plan:
    """Return the plan of a statement; it depends on nothing else.

    check_interrupt is called every some hundred rows of an INSERT, and parts that are changed.
    """
    if isinstance(statement, tree.SelectStatement):
        return plan_select(statement.query)
    if isinstance(statement, tree.Insert):
        source = _plan_insert_source(statement, check_interrupt)
        returning = _plan_returning(statement, (), check_interrupt)
        update = _plan_conflict_update(statement, check_interrupt)
        return InsertPlan(statement, source, returning, update)
    if isinstance(statement, tree.Update):
        return _plan_update(statement, check_interrupt)
    if isinstance(statement, tree.Delete):
        return _plan_delete(statement, check_interrupt)
    if isinstance(statement, tree.Explain):
        return ExplainPlan(
            plan_statement(statement.statement, check_interrupt), statement.is_analyze
        )
    return UtilityPlan(statement)


# --- expressions ---------------------------------------------------------------------------------


def is_row_expression(expression: tree.Expression | None) -> bool:
    """Tell whether the row path computes it with exactly the vector path's meaning."""
    if isinstance(expression, tree.Atom):
        return expression.type.kind is not Kind.INTERVAL
    if isinstance(expression, tree.Let):
        values = (value for _, value in expression.bindings)
        return all(is_row_expression(part) for part in (*values, expression.body))
    if isinstance(expression, tree.InList):
        parts = (expression.operand, *expression.items)
        return all(is_row_expression(part) for part in parts) and _are_comparable(parts)
    if isinstance(expression, tree.Assign):
        return is_row_expression(expression.operand)
    if isinstance(expression, tree.Cast):
        source = expression.operand.type
        return _is_row_cast(source, expression.type) and is_row_expression(expression.operand)
    if not isinstance(expression, tree.Call):
        return False
    arguments = expression.arguments
    if not all(is_row_expression(part) for part in arguments):
        return False
    if expression.function in COMPARISONS:
        return _are_comparable(arguments)
    if expression.function == "neg" or tree.is_arithmetic(expression.function):
        kinds = {part.type.kind for part in arguments} | {expression.type.kind}
        return len(kinds) == 1 and (expression.type.is_integer or expression.type.is_float)
    return expression.function in ("and", "or", "not", "is_null")


def is_row_value(expression: tree.Expression) -> bool:
    """Tell whether the row path computes it, if need be with values of sequences in it."""
    return is_row_expression(expression) or is_row_expression(_without_calls(expression))


def _without_calls(node: tree.Expression) -> tree.Expression:
    """Return an expression with columns in the place of values of sequences."""
    if isinstance(node, tree.SequenceCall):
        is_of_row = all(map(is_row_expression, node.arguments))
        return tree.ColumnRef(node.type, tree.OUTPUT, 0, "") if is_of_row else node
    if isinstance(node, tree.Call):
        return msgspec.structs.replace(node, arguments=tuple(map(_without_calls, node.arguments)))
    if isinstance(node, tree.Cast):
        return msgspec.structs.replace(node, operand=_without_calls(node.operand))
    return node


def is_short(*parts: object) -> bool:
    """Tell whether the row path computes them by one function, which is compiled in one go."""
    count = 0
    for part in tree.walk(parts):
        if isinstance(part, tree.InList) and not all(map(is_constant, part.items)):
            count += len(part.items)
        elif isinstance(part, tree.Call):
            count += max(len(part.arguments) - 1, 1)
        elif isinstance(part, tree.Cast):
            count += 1
        if count > row_nodes_max:
            return False
    return True


def _are_comparable(parts: Sequence[tree.Expression]) -> bool:
    return all(is_comparable(parts[0].type, part.type) for part in parts)


def _is_row_cast(source: SqlType, target: SqlType) -> bool:
    """Tell whether the cast is one that cannot differ between the paths."""
    if source.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return target.is_moment
    if source.is_float:
        return target.is_float
    return source.is_integer and (target.is_integer or target.is_float)


def conjuncts(where: tree.Expression | None) -> list[tree.Expression]:
    if where is None:
        return []
    if isinstance(where, tree.Call) and where.function == "and":
        return [part for argument in where.arguments for part in conjuncts(argument)]
    return [where]


def column_test(
    conjunct: tree.Expression, relation: int
) -> tuple[int, str, tree.Expression] | None:
    """Return (ordinal, operator, constant) of a test of a bare column of relation, else None."""
    if not isinstance(conjunct, tree.Call) or conjunct.function not in _MIRRORED:
        return None
    left, right = conjunct.arguments
    operator = conjunct.function
    if not isinstance(left, tree.ColumnRef):
        left, right, operator = right, left, _MIRRORED[operator]
    if not isinstance(left, tree.ColumnRef) or left.relation != relation:
        return None
    if not is_comparable(left.type, right.type) or not is_constant(right):
        return None
    return left.ordinal, operator, right


def is_constant(expression: tree.Expression) -> bool:
    return isinstance(expression, (tree.Literal, tree.Parameter))


# --- access --------------------------------------------------------------------------------------


class _Found(NamedTuple):
    """An access, what it leaves of WHERE, and how many columns equality fixes."""

    access: Access
    rest: tree.Expression | None
    fixed_count: int
    has_range: bool


def _plan_access(
    ref: tree.TableRef,
    where: tree.Expression | None,
    order_by: tuple[tree.SortKey, ...] = (),
) -> tuple[Access | None, tree.Expression | None]:
    """Return an access by key or index that gives the wanted order, and what it leaves of where.

    None when neither helps. The primary key is preferred where an index fixes no more columns.
    """
    found = [each for each in _accesses(ref, where) if _direction(order_by, ref, each.access)]
    if not found:
        return None, where
    best = max(found, key=lambda each: (_is_one(each), each.fixed_count, each.has_range))
    return best.access, best.rest


def _is_one(found: _Found) -> bool:
    """Tell whether an access finds one row at the most."""
    access = found.access
    if isinstance(access, IndexAccess):
        return isinstance(access.entries, PointAccess)
    return isinstance(access, PointAccess)


def _accesses(ref: tree.TableRef, where: tree.Expression | None) -> Iterator[_Found]:
    """Yield what the primary key, and each index, make of WHERE, if they help."""
    table = ref.table
    if where is None:
        return
    parts = tuple(IndexPart(ordinal, is_flag=False) for ordinal in table.key)
    found = _by_key(ref, where, parts, len(parts))
    if found is not None:
        yield found
    for number, store in enumerate(table.stores):
        found = _by_key(ref, where, store.parts, len(store.table.key))
        if found is not None:
            entries = found.access
            assert isinstance(entries, PointAccess | RangeAccess)
            yield found._replace(access=IndexAccess(number, entries))


def _by_key(
    ref: tree.TableRef,
    where: tree.Expression,
    parts: Sequence[IndexPart],
    width: int,
) -> _Found | None:
    """Return the access by the leading parts of a key of a width, whose flags are of NULLs."""
    rest = conjuncts(where)
    fixed: list[tree.Expression] = []
    fixed_count = 0
    for place, part in enumerate(parts):
        if len(fixed) > place:
            continue  # the value behind a flag
        constant = _take_test(rest, ref.id, part.ordinal, "=")
        if constant is not None:
            fixed += [_NOT_NULL, constant] if part.is_flag else [constant]
        elif part.is_flag and _take_is_null(rest, ref.id, part.ordinal):
            column = ref.table.columns[part.ordinal]
            fixed += [_NULL, tree.Literal(column.type, zero(column.type.kind))]
        else:
            break
        fixed_count += 1
    if len(fixed) == width:
        return _Found(PointAccess(tuple(fixed)), _conjunction(rest), fixed_count, False)
    if len(fixed) == len(parts):
        access = RangeAccess(tuple(fixed))
        return _Found(access, _conjunction(rest), fixed_count, False)
    part = parts[len(fixed)]
    low_inclusive, high_inclusive = True, True
    low = _take_test(rest, ref.id, part.ordinal, ">=")
    if low is None:
        low, low_inclusive = _take_test(rest, ref.id, part.ordinal, ">"), False
    high = _take_test(rest, ref.id, part.ordinal, "<=")
    if high is None:
        high, high_inclusive = _take_test(rest, ref.id, part.ordinal, "<"), False
    has_range = low is not None or high is not None
    if not fixed and not has_range:
        return None
    if has_range and part.is_flag:
        fixed.append(_NOT_NULL)
    access = RangeAccess(
        tuple(fixed), low, low is None or low_inclusive, high, high is None or high_inclusive
    )
    return _Found(access, _conjunction(rest), fixed_count, has_range)


_NULL, _NOT_NULL = tree.Literal(BOOLEAN, True), tree.Literal(BOOLEAN, False)


def _take_is_null(rest: list[tree.Expression], relation: int, ordinal: int) -> bool:
    for index, conjunct in enumerate(rest):
        if isinstance(conjunct, tree.Call) and conjunct.function == "is_null":
            (operand,) = conjunct.arguments
            if isinstance(operand, tree.ColumnRef) and (
                (operand.relation, operand.ordinal) == (relation, ordinal)
            ):
                del rest[index]
                return True
    return False


def _take_test(
    rest: list[tree.Expression], relation: int, ordinal: int, operator: str
) -> tree.Expression | None:
    for index, conjunct in enumerate(rest):
        test = column_test(conjunct, relation)
        if test is not None and test[:2] == (ordinal, operator):
            del rest[index]
            return test[2]
    return None


def _conjunction(parts: list[tree.Expression]) -> tree.Expression | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    return tree.Call(parts[0].type, "and", tuple(parts))


# --- queries -------------------------------------------------------------------------------------


def plan_select(query: tree.Query) -> SelectPlan:
    """Return the plan of a query whose select list may take values of sequences."""
    body = query.body
    if isinstance(body, tree.Select):
        taking = {o for o, output in enumerate(body.outputs) if _takes_values(output.expression)}
        if taking:
            return _plan_sequence_select(query, body, taking)
    return plan_query(query)


def _takes_values(expression: tree.Expression) -> bool:
    return any(isinstance(part, tree.SequenceCall) for part in tree.walk(expression, is_deep=False))


def _plan_sequence_select(query: tree.Query, body: tree.Select, taking: set[int]) -> SequenceSelect:
    """Return the plan of a query that takes values of sequences in some of its outputs.

    0A000 where these would have to be known before the rows are.
    """
    keys = (*body.group_by, *body.distinct_on, *(key.expression for key in query.order_by))
    if body.is_distinct or any(
        tree.output_ordinal(key) in taking or _takes_values(key) for key in keys
    ):
        raise sequence_refusal()
    inner = [
        tree.Output(output.name, tree.Literal(BIGINT, None)) if place in taking else output
        for place, output in enumerate(body.outputs)
    ]

    def taken(node: tree.Expression) -> tree.Expression:
        """Return an expression over what the source gives."""
        if isinstance(node, tree.Literal | tree.Parameter):
            return node
        if isinstance(node, tree.SequenceCall | tree.Call) and _takes_values(node):
            return msgspec.structs.replace(node, arguments=tuple(map(taken, node.arguments)))
        if isinstance(node, tree.Cast) and _takes_values(node):
            return msgspec.structs.replace(node, operand=taken(node.operand))
        inner.append(tree.Output(f"s{len(inner)}", node))
        return tree.ColumnRef(node.type, tree.OUTPUT, len(inner) - 1, "")

    outputs = tuple(
        taken(output.expression)
        if place in taking
        else tree.ColumnRef(output.expression.type, tree.OUTPUT, place, output.name)
        for place, output in enumerate(body.outputs)
    )
    if not (all(map(is_row_value, outputs)) and is_short(outputs)):
        raise sequence_refusal()
    columns = tuple((output.name, output.expression.type) for output in inner)
    select = msgspec.structs.replace(body, outputs=tuple(inner))
    source = msgspec.structs.replace(query, body=select, columns=columns)
    return SequenceSelect(plan_query(source), query.columns, outputs)


def sequence_refusal() -> NotSupportedError:
    """Return the refusal of a value of a sequence where it cannot be taken row by row."""
    return NotSupportedError(
        "a value of a sequence is not supported here",
        hint="Take it in VALUES, in SET, in the list of the outermost SELECT, or by DEFAULT, alone "
        "or in sums and products.",
    )


def plan_query(query: tree.Query) -> RowSelect | VectorSelect:
    """Return the row path's plan where there is one, else VectorSelect."""
    return _plan_row_select(query) or VectorSelect(query)


def _plan_row_select(query: tree.Query) -> RowSelect | None:
    body = query.body
    if query.ctes or not isinstance(body, tree.Select):
        return None
    if body.is_grouped or body.having is not None or body.is_distinct or body.distinct_on:
        return None
    outputs = tuple(output.expression for output in body.outputs)
    bounds = [bound for bound in (query.limit, query.offset) if bound is not None]
    counted = _counted_table(query, body)
    if counted is not None and all(map(is_row_expression, bounds)):
        return RowSelect(query, counted, CountAccess(), None, (), False, query.limit, query.offset)
    if not all(is_row_expression(part) for part in (*outputs, *bounds)):
        return None  # an aggregate is no row expression
    if body.source is None:
        if not (body.where is None or is_row_expression(body.where)):
            return None
        if not is_short(outputs, body.where):
            return None
        keys_are_row = all(is_row_expression(key.expression) for key in query.order_by)
        if not keys_are_row:
            return None
        return RowSelect(
            query, None, FullAccess(), body.where, outputs, False, query.limit, query.offset
        )
    if not isinstance(body.source, tree.TableRef):
        return None
    ref = body.source
    access, residual = _plan_access(ref, body.where, query.order_by)
    if residual is not None and not is_row_expression(residual):
        return None
    direction = _direction(query.order_by, ref, access)
    if not direction or not is_short(outputs, residual):
        return None
    if isinstance(access, IndexAccess) and residual is None and query.limit is not None:
        access = msgspec.structs.replace(access, is_sure=True)
    is_scan = access is None and residual is not None and query.limit is None
    if access is None:
        access = FullAccess(is_ordered=bool(query.order_by))
    return RowSelect(
        query, ref, access, residual, outputs, direction < 0, query.limit, query.offset, is_scan
    )


def _counted_table(query: tree.Query, body: tree.Select) -> tree.TableRef | None:
    """Return the table of SELECT count(*) FROM table, whose answer takes no row."""
    expressions = [output.expression for output in body.outputs]
    is_count = expressions == [tree.Aggregate(BIGINT, "count", ())]
    is_bare = is_count and body.where is None and not query.order_by
    return body.source if is_bare and isinstance(body.source, tree.TableRef) else None


def _direction(
    order_by: tuple[tree.SortKey, ...], ref: tree.TableRef, access: Access | None
) -> int:
    """Return 1 or -1 when the order of an access, forward or backward, is the wanted one; else 0.

    Columns that equality fixes may stand anywhere or be missing; what follows the last key column
    is without effect, as keys are unique. Of an index NULLs are the last, which is the order that
    ORDER BY has.
    """
    if any(not isinstance(key.expression, tree.ColumnRef) for key in order_by):
        return 0
    table = ref.table
    places = [IndexPart(ordinal, is_flag=False) for ordinal in table.key]
    entries = access
    if isinstance(access, IndexAccess):
        entries = access.entries
        parts = table.stores[access.number].parts
        known = {part.ordinal for part in parts}
        places = [*parts, *(part for part in places if part.ordinal not in known)]
    fixed_count = 0
    if isinstance(entries, PointAccess):
        fixed_count = len(places)
    elif isinstance(entries, RangeAccess):
        fixed_count = len(entries.prefix)
    fixed = {part.ordinal for part in places[:fixed_count] if not part.is_flag}
    open_columns = [part.ordinal for part in places[fixed_count:] if not part.is_flag]
    direction = 0
    for sort_key in order_by:
        expression = sort_key.expression
        if not open_columns:
            break
        if not isinstance(expression, tree.ColumnRef) or expression.relation != ref.id:
            return 0
        if expression.ordinal in fixed:
            continue
        wanted = -1 if sort_key.is_descending else 1
        if expression.ordinal != open_columns[0] or direction == -wanted:
            return 0
        column = table.columns[expression.ordinal]
        may_be_null = not (column.not_null or expression.ordinal in table.key)
        if may_be_null and sort_key.nulls_first != sort_key.is_descending:
            return 0
        direction = wanted
        del open_columns[0]
    return direction or 1


# --- changes -------------------------------------------------------------------------------------


def _plan_insert_source(
    statement: tree.Insert, check_interrupt: Callable[[], object]
) -> SelectPlan | None:
    if statement.source is not None:
        return plan_select(statement.source)
    rows = statement.rows or ()
    for number, row in enumerate(rows):
        if number % interrupt_nodes == 0:
            check_interrupt()
        if not all(map(is_row_value, row)):
            break
        if not (all(isinstance(value, tree.Atom) for value in row) or is_short(row)):
            break
    else:
        return None
    names = tuple(statement.table.columns[ordinal].name for ordinal in statement.ordinals)
    plain = tuple(tuple(map(to_assign, row)) for row in rows)
    types = [[value.type for value in row] for row in plain]
    if any(found != types[0] for found in types):  # a column of VALUES has one type
        plain, types = rows, [[value.type for value in row] for row in rows]
    columns = tuple(zip(names, types[0], strict=True))
    if len(plain) == 1 and any(map(_takes_values, plain[0])):
        outputs = tuple(map(tree.Output, names, plain[0]))
        return plan_select(tree.Query(tree.Select(outputs, None), columns))
    return VectorSelect(tree.Query(tree.Values(plain, names), columns))


def to_assign(value: tree.Expression) -> tree.Expression:
    """Return what a query computes of a value to be stored; the conversion is the row path's."""
    return value.operand if isinstance(value, tree.Assign) else value


def _plan_update(statement: tree.Update, check_interrupt: Callable[[], object]) -> UpdatePlan:
    ref, assignments = statement.target, statement.assignments
    values = tuple(value for _, value in assignments)
    joined = _joined_columns(statement)
    is_alone = statement.source is None
    if is_alone and all(map(is_row_value, values)) and is_short(values):
        find = _plan_find(ref, statement.where)
    else:
        computed = tuple(map(to_assign, values))
        find = _vector_find(ref, statement.where, computed, statement.source, joined)
    returning = _plan_returning(statement, joined, check_interrupt)
    return UpdatePlan(ref, find, assignments, returning)


def _plan_delete(statement: tree.Delete, check_interrupt: Callable[[], object]) -> DeletePlan:
    ref, joined = statement.target, _joined_columns(statement)
    if statement.source is None:
        find = _plan_find(ref, statement.where)
    else:
        find = _vector_find(ref, statement.where, (), statement.source, joined)
    return DeletePlan(ref, find, _plan_returning(statement, joined, check_interrupt))


def _joined_columns(statement: tree.Update | tree.Delete) -> tuple[tree.ColumnRef, ...]:
    """Return the columns of joined rows that RETURNING names, each once."""
    joined = tree.relation_ids(statement.source)
    found = (
        part
        for part in tree.walk(statement.returning)
        if isinstance(part, tree.ColumnRef) and part.relation in joined
    )
    return tuple(dict.fromkeys(found))


def _plan_returning(
    statement: tree.Insert | tree.Update | tree.Delete,
    joined: tuple[tree.ColumnRef, ...],
    check_interrupt: Callable[[], object],
) -> OverRows | None:
    if statement.returning is None:
        return None
    return over_rows(statement.target, statement.returning, joined, None, check_interrupt)


def _plan_conflict_update(
    statement: tree.Insert, check_interrupt: Callable[[], object]
) -> OverRows | None:
    update, target = statement.update, statement.target
    if update is None:
        return None
    outputs = tuple(
        tree.Output(f"o{number}", to_assign(value))
        for number, (_, value) in enumerate(update.assignments)
    )
    excluded = tuple(
        tree.ColumnRef(column.type, update.excluded, ordinal, column.name)
        for ordinal, column in enumerate(target.table.columns)
    )
    return over_rows(target, outputs, excluded, update.where, check_interrupt)


def over_rows(
    target: tree.TableRef,
    outputs: tuple[tree.Output, ...],
    others: tuple[tree.ColumnRef, ...],
    where: tree.Expression | None,
    check_interrupt: Callable[[], object],
) -> OverRows:
    """Return how outputs are computed over rows of a table, with columns of others behind them."""
    table = target.table
    width = len(table.columns)
    more = [Column(0, other.name, other.type) for other in others]
    number = Column(0, "", BIGINT, not_null=True, hidden=True)
    columns, key = (*table.columns, *more, number), width + len(more)
    ref = tree.TableRef(target.id, Table(ROWS_AT_HAND, table.name, columns, (key,)), target.alias)
    places = {
        (other.relation, other.ordinal): tree.ColumnRef(other.type, ref.id, place, other.name)
        for place, other in enumerate(others, width)
    }
    look = Budget(check_interrupt).spend
    values = tree.with_columns(tuple(output.expression for output in outputs), places, look)
    conditions = () if where is None else tree.with_columns((where,), places, look)
    condition = conditions[0] if conditions else None
    parts = (*values, *conditions)
    if all(map(is_row_expression, parts)) and is_short(parts):
        return OverRows(ref, outputs, values, condition, None)
    numbered = tree.Output("", tree.ColumnRef(BIGINT, ref.id, key, ""))
    shown = tuple(map(tree.Output, (output.name for output in outputs), values))
    shown = shown if where is None else (*shown, numbered)
    query = tree.Query(
        tree.Select(shown, ref, condition),
        tuple((output.name, output.expression.type) for output in shown),
        order_by=(tree.SortKey(numbered.expression, False, False),),
    )
    return OverRows(ref, outputs, values, condition, query)


def _plan_find(ref: tree.TableRef, where: tree.Expression | None) -> Find:
    access, residual = _plan_access(ref, where)
    if not (residual is None or (is_row_expression(residual) and is_short(residual))):
        return _vector_find(ref, where, ())
    if access is None:
        by_vector = _vector_find(ref, where, ()) if residual is not None else None
        return RowFind(ref, FullAccess(), residual, by_vector)
    if isinstance(access, IndexAccess):
        return RowFind(ref, access, residual, _vector_find(ref, where, ()))
    return RowFind(ref, access, residual)


def _vector_find(
    ref: tree.TableRef,
    where: tree.Expression | None,
    values: tuple[tree.Expression, ...],
    source: tree.Relation | None = None,
    joined: tuple[tree.ColumnRef, ...] = (),
) -> VectorFind:
    """Return the find by a query; with what is joined each row is found once, by one of those."""
    columns = ref.table.columns
    keys = tuple(
        tree.ColumnRef(columns[ordinal].type, ref.id, ordinal, columns[ordinal].name)
        for ordinal in ref.table.key
    )
    outputs = tuple(
        tree.Output(f"o{number}", expression)
        for number, expression in enumerate((*keys, *values, *joined))
    )
    shown = tuple((output.name, output.expression.type) for output in outputs)
    if source is None:
        select = tree.Select(outputs, ref, where)
    else:
        both = tree.Join(tree.JoinKind.CROSS, ref, source, None)
        select = tree.Select(outputs, both, where, distinct_on=keys)
    return VectorFind(ref, tree.Query(select, shown), len(values))
