"""Differential fuzz: a row-path plan and the printed query give the same rows, or it is a bug."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdpy.errors import DataError
from herdpy.exec.row.select import compile_row_select
from herdpy.exec.vector.duck import VectorEngine
from herdpy.model.reals import round_real
from herdpy.model.schema import Column, Table
from herdpy.model.types import (
    BIGINT,
    BIGINT_MAX,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Kind,
    Row,
    SqlType,
    decimal_type,
)
from herdpy.sql.duckdb_text import print_query
from herdpy.sql.plan import RowSelect
from herdpy.sql.planner import is_row_expression, plan_query
from herdpy.sql.tree import (
    Call,
    Cast,
    ColumnRef,
    Expression,
    InList,
    Literal,
    Output,
    Parameter,
    Query,
    Select,
    SortKey,
    TableRef,
)
from tests.fixtures.dict_source import DictSnapshot, DictSource
from tests.fixtures.interrupts import NeverInterrupt

MONEY = decimal_type(6, 2)
NAN, INF = float("nan"), float("inf")
EDGES: dict[SqlType, tuple[Any, ...]] = {
    BIGINT: (0, 1, -1, 7, 2**31, 2**53 + 1, BIGINT_MAX, -(2**63)),
    INTEGER: (0, 1, -1, 2, 2**31 - 1, -(2**31)),
    SMALLINT: (0, 1, -1, 2, 2**15 - 1, -(2**15)),
    DOUBLE: (0.0, -0.0, 1.0, -2.5, 1e308, 5e-324, INF, -INF, NAN),
    REAL: (0.0, -0.0, 1.0, -2.5, *map(round_real, (0.1, 3e38, 1e-45, 1e-30)), INF, -INF, NAN),
    TEXT: ("", "a", "A", "b", "é", "\U0001f600", "'", "a "),
    BOOLEAN: (True, False),
    BYTEA: (b"", b"\0", b"a", b"\xff"),
    MONEY: (0, 1, -1, 150, 999_999),
    DATE: (0, -1, 19782, -719162),
    TIMESTAMP: (0, -1, 10**15),
    TIMESTAMPTZ: (0, -1, 10**15),
}
TYPES = tuple(EDGES)
TABLE = Table(
    1,
    "t",
    (
        Column(1, "k1", BIGINT, not_null=True),
        Column(2, "k2", DOUBLE, not_null=True),
        *(
            Column(3 + number, f"c{number}", sql_type, not_null=number % 2 == 1)
            for number, sql_type in enumerate((*TYPES, *TYPES))
        ),
    ),
    (0, 1),
)
REF = TableRef(1, TABLE, "t")


def _rows() -> Iterator[Row]:
    keys = itertools.product(EDGES[BIGINT], EDGES[DOUBLE])
    for number, key in enumerate(keys):
        rest: list[Any] = []
        for ordinal, column in enumerate(TABLE.columns[2:]):
            choices = (*EDGES[column.type], *(() if column.not_null else (None,)))
            rest.append(choices[(number * (ordinal + 3) + number // 5) % len(choices)])
        yield (*key, *rest)


SOURCE = DictSource(TABLE, list(_rows()), dead=5)


@pytest.fixture(scope="module")
def engine() -> Iterator[VectorEngine]:
    engine = VectorEngine(200 * 1024 * 1024, 1, None)
    yield engine
    engine.close()


class Scene:
    """Draws expressions and keeps the parameters they use."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.parameters: list[Any] = []
        self.types: list[SqlType] = []

    def value(self, sql_type: SqlType) -> Any:
        return self.draw(st.sampled_from((*EDGES[sql_type], *EDGES[sql_type], None)))

    def constant(self, sql_type: SqlType) -> Expression:
        if self.draw(st.booleans()):
            return Literal(sql_type, self.value(sql_type))
        self.parameters.append(self.value(sql_type))
        self.types.append(sql_type)
        return Parameter(sql_type, len(self.parameters) - 1)

    def column(self, sql_type: SqlType) -> Expression:
        ordinals = [i for i, column in enumerate(TABLE.columns) if column.type == sql_type]
        ordinal = self.draw(st.sampled_from(ordinals))
        return ColumnRef(sql_type, 1, ordinal, TABLE.columns[ordinal].name)

    def expression(self, sql_type: SqlType, depth: int) -> Expression:
        if depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return (self.column if self.draw(st.booleans()) else self.constant)(sql_type)
        if sql_type is BOOLEAN:
            return self.condition(depth)
        if sql_type in (SMALLINT, INTEGER, BIGINT, REAL, DOUBLE):
            if sql_type is not INTEGER and self.draw(st.booleans()):
                return Cast(sql_type, self.expression(INTEGER, depth - 1))
            operator = self.draw(st.sampled_from("+-*"))
            operands = (self.expression(sql_type, depth - 1), self.expression(sql_type, depth - 1))
            return Call(sql_type, operator, operands)
        return self.column(sql_type)

    def condition(self, depth: int) -> Expression:
        kind = self.draw(st.sampled_from(("compare", "compare", "logic", "not", "null", "in")))
        sql_type = self.draw(st.sampled_from(TYPES))
        deeper = depth - 1
        if kind == "logic":
            operator = self.draw(st.sampled_from(("and", "or")))
            count = self.draw(st.integers(2, 3))
            parts = tuple(self.expression(BOOLEAN, deeper) for _ in range(count))
            return Call(BOOLEAN, operator, parts)
        if kind == "not":
            return Call(BOOLEAN, "not", (self.expression(BOOLEAN, deeper),))
        if kind == "null":
            return Call(BOOLEAN, "is_null", (self.expression(sql_type, deeper),))
        left = self.expression(sql_type, deeper)
        if kind == "in":
            make = self.draw(st.sampled_from((self.constant, self.column)))
            items = tuple(make(sql_type) for _ in range(self.draw(st.integers(1, 4))))
            return InList(BOOLEAN, left, items, self.draw(st.booleans()))
        operator = self.draw(st.sampled_from(("=", "<>", "<", "<=", ">", ">=")))
        other = sql_type
        if sql_type.is_integer:
            other = self.draw(st.sampled_from((INTEGER, BIGINT)))
        return Call(BOOLEAN, operator, (left, self.expression(other, deeper)))

    def access(self) -> Expression:
        """Draw tests of the key: equality on its first column, anything on the second."""
        k1, k2 = (ColumnRef(c.type, 1, i, c.name) for i, c in enumerate(TABLE.columns[:2]))
        first = self.draw(st.sampled_from(("=", "=", "<", "<=", ">", ">=")))
        parts: list[Expression] = [Call(BOOLEAN, first, (k1, self.constant(BIGINT)))]
        for _ in range(self.draw(st.integers(0, 2))):
            operator = self.draw(st.sampled_from(("=", "<", "<=", ">", ">=")))
            parts.append(Call(BOOLEAN, operator, (k2, self.constant(DOUBLE))))
        if self.draw(st.booleans()):
            parts.append(self.condition(1))
        return Call(BOOLEAN, "and", tuple(parts))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Query, list[Any], list[SqlType]]:
    scene = Scene(draw)
    by_key = draw(st.booleans())
    where = scene.access() if by_key else scene.condition(3)
    k1, k2 = (ColumnRef(c.type, 1, i, c.name) for i, c in enumerate(TABLE.columns[:2]))
    outputs = [k1, k2, *(scene.expression(draw(st.sampled_from(TYPES)), 2) for _ in range(2))]
    named = tuple(Output(f"o{number}", item) for number, item in enumerate(outputs))
    columns = tuple((output.name, output.expression.type) for output in named)
    is_descending = draw(st.booleans())
    order = tuple(SortKey(key, is_descending, is_descending) for key in (k1, k2))
    limit = Literal(BIGINT, draw(st.sampled_from((1000, 1000, 5, 1, 0))))
    offset = Literal(BIGINT, draw(st.integers(0, 3))) if draw(st.booleans()) else None
    query = Query(Select(named, REF, where), columns, (), order, limit, offset)
    return query, scene.parameters, scene.types


def shown(rows: list[tuple[Any, ...]]) -> list[str]:
    """Compare by text: NaN equals NaN there, and -0.0 is not 0.0."""
    return [repr(tuple(row)) for row in rows]


@given(scenes())
def test_row_path_and_vector_path_agree(
    engine: VectorEngine, scene: tuple[Query, list[Any], list[SqlType]]
) -> None:
    query, parameters, types = scene
    plan = plan_query(query)
    assert isinstance(plan, RowSelect)
    interrupt = NeverInterrupt()
    try:
        by_rows = list(compile_row_select(plan)(SOURCE, parameters, interrupt))
        result = engine.query(
            print_query(query),
            DictSnapshot(SOURCE),
            parameters,
            types,
            interrupt,
            columns=query.columns,
        )
        by_vectors = list(result.physical_rows())
    except DataError as error:
        # Which operand of AND, and of which row, is computed at all is not promised.
        if error.sqlstate != "22003":
            raise
        return
    assert shown(by_rows) == shown(by_vectors)


@pytest.mark.parametrize("sql_type", [INTEGER, BIGINT])
@pytest.mark.parametrize("operator", ["+", "-", "*"])
def test_both_paths_overflow_at_the_same_operands(
    engine: VectorEngine, sql_type: SqlType, operator: str
) -> None:
    edges = EDGES[sql_type]
    columns = tuple(
        Column(number, name, sql_type, not_null=True) for number, name in ((1, "a"), (2, "b"))
    )
    outcomes: list[tuple[Any, Any]] = []
    for pair in itertools.product(edges, repeat=2):
        table = Table(9, "pair", columns, (0,))
        source = DictSource(table, [pair])
        ref = TableRef(1, table, "pair")
        a, b = (ColumnRef(sql_type, 1, ordinal, "x") for ordinal in (0, 1))
        total = Call(sql_type, operator, (a, b))
        assert is_row_expression(total)
        query = Query(Select((Output("x", total),), ref), (("x", sql_type),))
        plan = plan_query(query)
        assert isinstance(plan, RowSelect)
        found: list[Any] = []
        for path in ("row", "vector"):
            try:
                if path == "row":
                    rows = compile_row_select(plan)(source, (), NeverInterrupt())
                else:
                    result = engine.query(
                        print_query(query), DictSnapshot(source), (), (), NeverInterrupt()
                    )
                    rows = result.physical_rows()
                found.append(list(rows))
            except DataError as error:
                found.append(error.sqlstate)
        assert found[0] == found[1], pair
        outcomes.append((found[0], found[1]))
    assert ("22003", "22003") in outcomes
    assert sql_type.kind in (Kind.INTEGER, Kind.BIGINT)
