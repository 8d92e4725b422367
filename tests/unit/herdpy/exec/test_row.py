"""The row path: generated functions against results worked out by hand."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from herdpy.errors import DataError, Error, IntegrityError, InvariantViolation, QueryCanceledError
from herdpy.exec.row.expressions import Writer
from herdpy.exec.row.row_check import compile_check_row
from herdpy.exec.row.select import (
    compile_assignments,
    compile_find,
    compile_insert_rows,
    compile_row_filler,
    compile_row_select,
)
from herdpy.limits import key_bytes_max, row_nodes_max
from herdpy.model.schema import Column, Table
from herdpy.model.types import (
    BIGINT,
    BIGINT_MAX,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    Row,
    SqlType,
    decimal_type,
    varchar_type,
)
from herdpy.sql.plan import (
    Access,
    FullAccess,
    InsertPlan,
    PointAccess,
    RangeAccess,
    RowFind,
    RowSelect,
    UpdatePlan,
)
from herdpy.sql.tree import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    InList,
    Insert,
    Literal,
    Parameter,
    Query,
    Select,
    TableRef,
)
from tests.fixtures.dict_source import DictSource
from tests.fixtures.interrupts import NeverInterrupt

NAN, INF = float("nan"), float("inf")
PAIRS = Table(
    1,
    "pairs",
    (
        Column(1, "a", BIGINT, not_null=True),
        Column(2, "x", DOUBLE, not_null=True),
        Column(3, "note", TEXT),
    ),
    (0, 1),
)
ROWS: list[Row] = [
    (1, -INF, "a"),
    (1, 0.0, None),
    (1, 2.5, "c"),
    (1, NAN, "d"),
    (2, 1.0, "e"),
    (3, 1.0, "f"),
    (3, 7.0, "g"),
]
SOURCE = DictSource(PAIRS, ROWS)
REF = TableRef(1, PAIRS, "pairs")
A, X, NOTE = (
    ColumnRef(column.type, 1, ordinal, column.name) for ordinal, column in enumerate(PAIRS.columns)
)


def long(value: int | None) -> Literal:
    return Literal(BIGINT, value)


def double(value: float | None) -> Literal:
    return Literal(DOUBLE, value)


def call(function: str, *arguments: Expression, sql_type: SqlType = BOOLEAN) -> Call:
    return Call(sql_type, function, arguments)


def select(
    access: Access,
    *,
    residual: Expression | None = None,
    outputs: Sequence[Expression] = (A, X, NOTE),
    is_reverse: bool = False,
    limit: Expression | None = None,
    offset: Expression | None = None,
) -> RowSelect:
    query = Query(Select((), REF), ())
    return RowSelect(query, REF, access, residual, tuple(outputs), is_reverse, limit, offset)


def run(plan: RowSelect, *parameters: Any, source: Any = SOURCE) -> list[tuple[Any, ...]]:
    return list(compile_row_select(plan)(source, parameters, NeverInterrupt()))


def test_point_by_parameters() -> None:
    plan = select(
        PointAccess((Parameter(BIGINT, 1), Parameter(DOUBLE, 0))),
        outputs=(NOTE, Parameter(BIGINT, 1)),
    )
    assert run(plan, 2.5, 1) == [("c", 1)]
    assert run(plan, -0.0, 1) == [(None, 1)]  # -0.0 is the key 0.0
    assert run(plan, -NAN, 1) == [("d", 1)]  # one NaN
    assert run(plan, 2.5, 2) == []
    assert run(plan, None, 1) == []
    assert run(plan, 2.5, None) == []


def test_point_with_residual_limit_and_offset() -> None:
    point = PointAccess((long(1), double(2.5)))
    assert run(select(point)) == [(1, 2.5, "c")]
    assert run(select(point, residual=call("=", NOTE, Literal(TEXT, "c")))) == [(1, 2.5, "c")]
    assert run(select(point, residual=call("<>", NOTE, Literal(TEXT, "c")))) == []
    assert run(select(point, limit=long(0))) == []
    assert run(select(point, limit=long(1), offset=long(0))) == [(1, 2.5, "c")]
    assert run(select(point, offset=long(1))) == []


def values(expected: str) -> list[Row]:
    """Return the rows by the letters of their notes; - is the row without one."""
    return [row for letter in expected for row in ROWS if (row[2] or "-") == letter]


RANGES: list[tuple[RangeAccess, str]] = [
    (RangeAccess((long(1),)), "a-cd"),
    (RangeAccess((long(4),)), ""),
    (RangeAccess((long(None),)), ""),
    (RangeAccess((), long(2)), "efg"),
    (RangeAccess((), long(1), low_inclusive=False), "efg"),
    (RangeAccess((), None, True, long(2)), "a-cde"),
    (RangeAccess((), None, True, long(2), high_inclusive=False), "a-cd"),
    (RangeAccess((), long(1), False, long(3), False), "e"),
    (RangeAccess((), long(3), True, long(1)), ""),
    (RangeAccess((), long(None)), ""),
    (RangeAccess((), None, True, long(None)), ""),
    (RangeAccess((long(1),), double(0.0)), "-cd"),
    (RangeAccess((long(1),), double(-0.0), low_inclusive=False), "cd"),
    (RangeAccess((long(1),), None, True, double(2.5), False), "a-"),
    (RangeAccess((long(1),), None, True, double(NAN)), "a-cd"),
    (RangeAccess((long(1),), double(INF), low_inclusive=False), "d"),  # NaN is the greatest
    (RangeAccess((long(3),), double(1.0), False, double(7.0)), "g"),
]


@pytest.mark.parametrize(("access", "expected"), RANGES)
def test_range(access: RangeAccess, expected: str) -> None:
    assert repr(run(select(access))) == repr(values(expected))
    assert repr(run(select(access, is_reverse=True))) == repr(values(expected[::-1]))


@pytest.mark.parametrize("access", [FullAccess(), FullAccess(is_ordered=True), RangeAccess(())])
def test_what_conditions_and_outputs_look_at_is_asked_for(access: Access) -> None:
    is_late = call(">", NOTE, Literal(TEXT, "c"))
    assert run(select(access, residual=is_late, outputs=(A,))) == [(1,), (2,), (3,), (3,)]
    assert run(select(access, residual=call("=", X, double(1.0)), outputs=(NOTE,))) == [
        ("e",), ("f",),
    ]  # fmt: skip
    assert run(select(access, outputs=(call("=", NOTE, NOTE),)))[0] == (True,)


def test_limit_and_offset() -> None:
    limit, offset = Parameter(BIGINT, 0), Parameter(BIGINT, 1)
    for residual in (None, call(">", A, long(1))):
        plan = select(FullAccess(is_ordered=True), residual=residual, limit=limit, offset=offset)
        everything = ROWS if residual is None else values("efg")
        for take, skip in itertools.product((0, 1, 2, 100, None, BIGINT_MAX), repeat=2):
            end = None if take is None else (skip or 0) + take
            assert run(plan, take, skip) == everything[skip or 0 : end]
        with pytest.raises(DataError) as caught:
            compile_row_select(plan)(SOURCE, (-1, 0), NeverInterrupt())  # the call itself
        assert caught.value.sqlstate == "2201W"
        with pytest.raises(DataError) as caught:
            compile_row_select(plan)(SOURCE, (1, -1), NeverInterrupt())
        assert caught.value.sqlstate == "2201X"


class Endless(DictSource):
    """A table without end that counts what is read of it."""

    read_count = 0

    def rows(self, columns: frozenset[int] | None = None) -> Iterator[Row]:
        for number in itertools.count():
            self.read_count += 1
            yield (number, 0.0, None)


def test_a_scan_reads_little_ahead_and_stops_when_cancelled() -> None:
    source = Endless(PAIRS, [])
    residual = call(">=", A, long(5))
    plan = select(FullAccess(), residual=residual, outputs=(A,), limit=long(2))
    assert run(plan, source=source) == [(5,), (6,)]
    assert source.read_count <= 16
    never = select(FullAccess(), residual=call("<", A, long(0)))
    rows = compile_row_select(never)(source, (), NeverInterrupt(after=10))
    with pytest.raises(QueryCanceledError):
        next(rows)
    assert source.read_count < 10_000


def test_without_from_there_is_one_row() -> None:
    limit = Parameter(BIGINT, 0)
    query = Query(Select((), None), ())
    for residual, take, expected in (
        (None, None, [(7, 2)]),
        (call("=", Parameter(BIGINT, 1), long(2)), 1, [(7, 2)]),
        (call("=", Parameter(BIGINT, 1), long(3)), 1, []),
        (None, 0, []),
    ):
        outputs = (long(7), Parameter(BIGINT, 1))
        plan = RowSelect(query, None, FullAccess(), residual, outputs, False, limit, None)
        assert run(plan, take, 2, source=None) == expected


def test_find_yields_whole_rows() -> None:
    residual = call("is_null", NOTE)
    find = compile_find(RowFind(REF, RangeAccess((long(1),)), residual))
    assert list(find(SOURCE, (), NeverInterrupt())) == [(1, 0.0, None)]
    find = compile_find(RowFind(REF, PointAccess((long(2), double(1.0))), None))
    assert list(find(SOURCE, (), NeverInterrupt())) == [(2, 1.0, "e")]


@pytest.mark.parametrize(
    "access",
    [
        PointAccess((Literal(TEXT, "1"), double(1.0))),
        RangeAccess((Literal(decimal_type(5, 2), 100),)),
        RangeAccess((long(1),), long(1)),
    ],
)
def test_a_key_of_another_type_is_a_bug_of_the_planner(access: Access) -> None:
    with pytest.raises(InvariantViolation):
        compile_row_select(select(access))


# --- expressions ---------------------------------------------------------------------------------


def evaluate(expression: Expression, row: Row = (), *parameters: Any) -> Any:
    writer = Writer(None)
    value = writer.value(expression)
    truth, falsity = writer.truth(expression), writer.falsity(expression)
    is_boolean = expression.type is BOOLEAN
    found = writer.function("r, p", [f"return {value}, {truth}, {falsity}"])(row, parameters)
    if is_boolean:
        assert (bool(found[1]), bool(found[2])) == (found[0] is True, found[0] is False)
    return found[0]


THREE = (True, False, None)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(THREE, repeat=2)))
@pytest.mark.parametrize("form", ["column", "parameter", "literal", "computed"])
def test_three_valued_logic(left: bool | None, right: bool | None, form: str) -> None:
    def node(value: bool | None, index: int) -> Expression:
        if form == "column":
            return ColumnRef(BOOLEAN, 1, index, "f")
        if form == "parameter":
            return Parameter(BOOLEAN, index)
        if form == "literal":
            return Literal(BOOLEAN, value)
        return call("not", call("not", Literal(BOOLEAN, value)))

    a, b = node(left, 0), node(right, 1)
    pair = (left, right)

    def result(expression: Expression) -> Any:
        return evaluate(expression, pair, *pair)

    known_and = False if False in pair else None if None in pair else True
    known_or = True if True in pair else None if None in pair else False
    assert result(call("and", a, b)) is known_and
    assert result(call("or", a, b)) is known_or
    assert result(call("not", a)) is (None if left is None else not left)
    assert result(call("not", call("and", a, b))) is (None if known_and is None else not known_and)
    assert result(call("and", a, b, call("or", b, a))) is known_and
    assert result(call("is_null", a)) is (left is None)
    assert result(call("=", a, b)) is (None if None in pair else left is right)
    assert result(call("<", a, b)) is (None if None in pair else (not left and right))
    expected = None if None in pair else left is right
    assert result(InList(BOOLEAN, a, (b,), False)) is expected
    assert result(InList(BOOLEAN, a, (b, call("not", b)), False)) is (
        None if None in pair else True
    )
    assert result(InList(BOOLEAN, a, (b,), True)) is (None if expected is None else not expected)


ORDERED = (-INF, -1.5, -0.0, 2.0, INF, NAN)


@pytest.mark.parametrize(("i", "j"), list(itertools.product(range(len(ORDERED)), repeat=2)))
def test_doubles_compare_with_nan_greatest(i: int, j: int) -> None:
    a, b = Parameter(DOUBLE, 0), Parameter(DOUBLE, 1)
    # Another NaN object and the other zero, as `is` and hash() see a difference.
    pair = (ORDERED[i], 0.0 if j == 2 else float(str(ORDERED[j])))
    expected = {"=": i == j, "<>": i != j, "<": i < j, "<=": i <= j, ">": i > j, ">=": i >= j}
    for function, result in expected.items():
        assert evaluate(call(function, a, b), (), *pair) is result
        assert evaluate(call(function, a, Literal(DOUBLE, pair[1])), (), *pair) is result
        assert evaluate(call(function, a, double(None)), (), *pair) is None
    assert evaluate(InList(BOOLEAN, a, (b, double(None)), False), (), *pair) is (
        True if i == j else None
    )


def test_in_list_with_nulls() -> None:
    one_two = (long(1), long(2))
    column = ColumnRef(BIGINT, 1, 0, "a")
    for items, value, expected in (
        (one_two, 1, True),
        (one_two, 3, False),
        (one_two, None, None),
        ((*one_two, long(None)), 1, True),
        ((*one_two, long(None)), 3, None),
        ((Parameter(BIGINT, 0), long(2)), 9, True),
        ((Parameter(BIGINT, 1), long(2)), 9, None),
        ((column, long(2)), 7, True),
        ((call("+", column, long(1), sql_type=BIGINT), long(2)), 7, False),
    ):
        assert evaluate(InList(BOOLEAN, column, items, False), (value,), 9, None) is expected
        negated = evaluate(InList(BOOLEAN, column, items, True), (value,), 9, None)
        assert negated is (None if expected is None else not expected)


@pytest.mark.parametrize(("sql_type", "top"), [(INTEGER, 2**31 - 1), (BIGINT, 2**63 - 1)])
def test_integer_arithmetic_stays_in_its_type(sql_type: SqlType, top: int) -> None:
    a, b = Parameter(sql_type, 0), Parameter(sql_type, 1)

    def result(function: str, *operands: int | None) -> Any:
        nodes = (a, b)[: len(operands)]
        return evaluate(Call(sql_type, function, nodes), (), *operands)

    assert result("+", top - 1, 1) == top
    assert result("-", -top, 1) == -top - 1
    assert result("*", -1, top) == -top
    assert result("neg", top) == -top
    assert result("+", None, 1) is None
    assert result("*", 1, None) is None
    assert result("neg", None) is None
    for function, operands in (
        ("+", (top, 1)),
        ("-", (-top, 2)),
        ("*", (top, 2)),
        ("*", (-top - 1, -1)),
        ("neg", (-top - 1,)),
    ):
        with pytest.raises(DataError, match=f"{sql_type} out of range".lower()) as caught:
            result(function, *operands)
        assert caught.value.sqlstate == "22003"


def test_nested_arithmetic_and_casts() -> None:
    a = ColumnRef(INTEGER, 1, 0, "i")
    total = Call(BIGINT, "*", (Cast(BIGINT, a), Call(BIGINT, "+", (Cast(BIGINT, a), long(1)))))
    assert evaluate(total, (2**31 - 1,)) == (2**31 - 1) * 2**31
    assert evaluate(total, (None,)) is None
    half = Call(DOUBLE, "*", (Cast(DOUBLE, a), double(0.5)))
    assert evaluate(call("<", half, double(2.0)), (3,)) is True
    assert evaluate(call("<", half, double(2.0)), (None,)) is None
    assert evaluate(Call(DOUBLE, "*", (double(1e308), double(10.0)))) == INF  # as DuckDB does
    assert evaluate(Cast(INTEGER, long(7))) == 7
    with pytest.raises(DataError):
        evaluate(Cast(INTEGER, Parameter(BIGINT, 0)), (), 2**31)
    assert evaluate(Cast(varchar_type(2), Parameter(TEXT, 0)), (), "abc") == "ab"


@pytest.mark.parametrize(
    "expression",
    [
        call("like", NOTE, NOTE),
        Call(DOUBLE, "/", (X, X)),
        Call(decimal_type(5, 2), "+", (Literal(decimal_type(5, 2), 1),) * 2),
        Call(DOUBLE, "+", (A, X)),
        call("=", A, X),
        call("=", A, NOTE),
        InList(BOOLEAN, A, (NOTE,), False),
        call("<", Literal(decimal_type(5, 2), 1), Literal(decimal_type(5, 1), 1)),
    ],
)
def test_what_is_no_row_expression_is_refused(expression: Expression) -> None:
    with pytest.raises(InvariantViolation):
        Writer(PAIRS).value(expression)


def test_text_of_a_program_never_becomes_source() -> None:
    evil = "\"'\\\n); import os #"
    assert evaluate(call("=", Literal(TEXT, evil), Parameter(TEXT, 0)), (), evil) is True


# --- writing -------------------------------------------------------------------------------------

WIDE = Table(
    2,
    "wide",
    (
        Column(1, "i", INTEGER),
        Column(2, "name", varchar_type(3), not_null=True),
        Column(3, "m", decimal_type(4, 2), default=150),
        Column(4, "at", TIMESTAMP, default_sql="CURRENT_TIMESTAMP"),
        Column(5, "day", DATE, default_sql="CURRENT_DATE"),
        Column(6, "_rowid", BIGINT, not_null=True, hidden=True),
    ),
    (5,),
)


WIDE_REF = TableRef(1, WIDE, "wide")


def test_insert_rows_fill_defaults() -> None:
    rows = (
        (Literal(TEXT, "a"), Parameter(INTEGER, 0)),
        (Parameter(TEXT, 1), Call(INTEGER, "+", (Parameter(INTEGER, 0), Literal(INTEGER, 1)))),
    )
    make = compile_insert_rows(InsertPlan(Insert(WIDE_REF, (1, 0), rows, None), None))
    day = 86_400_000_000
    expected = [(5, "a", 150, day + 7, 1, None), (6, "b", 150, day + 7, 1, None)]
    assert make([5, "b"], day + 7) == expected
    query = Query(Select((), None), (("name", TEXT), ("i", INTEGER)))
    source = RowSelect(query, None, FullAccess(), None, (), False, None, None)
    fill = compile_row_filler(InsertPlan(Insert(WIDE_REF, (1, 0), None, query), source))
    assert fill(("z", 9), -1) == (9, "z", 150, -1, -1, None)


def test_many_rows_are_made_by_several_functions() -> None:
    computed = Call(INTEGER, "+", (Parameter(INTEGER, 0), Literal(INTEGER, 1)))
    rows = tuple((Literal(TEXT, str(n)), computed) for n in range(2 * row_nodes_max))
    looks: list[int] = []
    plan = InsertPlan(Insert(WIDE_REF, (1, 0), rows, None), None)
    make = compile_insert_rows(plan, lambda: looks.append(1))
    assert 4 <= len(looks) <= 16
    found = make([5], 7)
    assert [row[:2] for row in found] == [(6, str(n)) for n in range(2 * row_nodes_max)]


def test_assignments_read_the_old_row() -> None:
    assignments = ((1, Cast(DOUBLE, A)), (0, Parameter(BIGINT, 0)))
    found = RowFind(REF, PointAccess((long(2), double(1.0))), None)
    swap = compile_assignments(UpdatePlan(REF, found, assignments))
    assert swap((1, 2.5, "c"), [8]) == (8, 1.0, "c")


GOOD = (1, "abc", 9999, 0, 0, 7)


@pytest.mark.parametrize(
    ("ordinal", "value", "sqlstate"),
    [
        (0, 2**31, "22003"),
        (0, -(2**31) - 1, "22003"),
        (1, None, "23502"),
        (1, "abcd", "22001"),
        (2, 10_000, "22003"),
        (2, -10_000, "22003"),
        (3, 2**70, ""),
    ],
)
def test_check_row(ordinal: int, value: Any, sqlstate: str) -> None:
    check = compile_check_row(WIDE)
    check(GOOD)
    check((None, "é" * 3, None, None, None, 7))
    row = (*GOOD[:ordinal], value, *GOOD[ordinal + 1 :])
    if not sqlstate:  # dates and times come from Python's or DuckDB's, which have their own range
        check(row)
        return
    with pytest.raises(Error, match=WIDE.columns[ordinal].name) as caught:
        check(row)
    assert caught.value.sqlstate == sqlstate
    if sqlstate == "23502":
        assert isinstance(caught.value, IntegrityError)
        assert "wide" in str(caught.value)


def test_check_row_limits_the_key() -> None:
    columns = (Column(1, "a", TEXT, not_null=True), Column(2, "b", BYTEA, not_null=True))
    check = compile_check_row(Table(3, "keys", columns, (0, 1)))
    check(("a" * (key_bytes_max - 6), b""))
    for row in (
        ("a" * (key_bytes_max - 5), b""),
        ("\U0001f600" * (key_bytes_max // 4), b""),
        ("", b"\0" * (key_bytes_max // 2)),
        ("é" * (key_bytes_max // 3), b"x" * (key_bytes_max // 2)),
    ):
        with pytest.raises(Error, match="key of table") as caught:
            check(row)
        assert caught.value.sqlstate == "54000"
