"""The vector path: printed queries over a DictSource, its lock-down, limits and errors."""

import datetime
import gc
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from herdpy.errors import Error, InterfaceError, InternalError, MemoryLimitError, QueryCanceledError
from herdpy.exec.interfaces import ColumnRange
from herdpy.exec.vector import duck
from herdpy.exec.vector.arrow_rows import rows_reader
from herdpy.exec.vector.duck import VectorEngine, VectorResult, column_ranges, translate_error
from herdpy.model.schema import Column, Table
from herdpy.model.types import (
    BIGINT,
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
)
from herdpy.sql.duckdb_text import DuckTable, DuckText
from herdpy.sql.macros import MACROS, macros_of
from herdpy.sql.tree import Literal, Parameter, TableRef
from tests.fixtures.dict_source import DictSnapshot, DictSource
from tests.fixtures.interrupts import NeverInterrupt

MIB = 1024 * 1024
MONEY = decimal_type(38, 2)
TABLE = Table(
    1,
    "t",
    (
        Column(1, "id", BIGINT, not_null=True),
        Column(2, "i", INTEGER),
        Column(3, "f", BOOLEAN),
        Column(4, "x", DOUBLE),
        Column(5, "m", MONEY),
        Column(6, "s", TEXT),
        Column(7, "b", BYTEA),
        Column(8, "d", DATE),
        Column(9, "at", TIMESTAMP),
    ),
    (0,),
)
ROWS: list[Row] = [
    (1, 2, True, 0.5, 10**37 + 1, "é", b"\0", -1, -1),
    (2, 4, False, None, -150, "b", None, 19782, 10**15),
    (3, None, None, -1.5, None, None, b"z", None, None),
]
LOGICAL = [
    (
        1,
        2,
        True,
        0.5,
        Decimal("100000000000000000000000000000000000.01"),
        "é",
        b"\0",
        datetime.date(1969, 12, 31),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    ),
    (
        2,
        4,
        False,
        None,
        Decimal("-1.50"),
        "b",
        None,
        datetime.date(2024, 2, 29),
        datetime.datetime(2001, 9, 9, 1, 46, 40),
    ),
    (3, None, None, -1.5, None, None, b"z", None, None),
]
SOURCE = DictSource(TABLE, ROWS, dead=2)
REF = TableRef(1, TABLE, "t")
EVERYTHING = DuckText(
    "SELECT c0, c1, c2, c3, c4, c5, c6, c7, c8 FROM t1 WHERE __live ORDER BY c0",
    (DuckTable("t1", REF, tuple(range(9)), ()),),
    (),
)
COLUMNS = tuple((column.name, column.type) for column in TABLE.columns)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VectorEngine]:
    engine = VectorEngine(200 * MIB, 2, str(tmp_path_factory.mktemp("spill")), results_max=4)
    yield engine
    engine.close()


def text(sql: str, *slots: int) -> DuckText:
    return DuckText(sql, (), slots)


def run(
    engine: VectorEngine,
    query: DuckText,
    values: Sequence[Any] = (),
    types: Sequence[SqlType] = (),
    **options: Any,
) -> VectorResult:
    return engine.query(query, DictSnapshot(SOURCE), values, types, NeverInterrupt(), **options)


def test_all_types_logical_and_physical_without_dead_rows(engine: VectorEngine) -> None:
    assert list(run(engine, EVERYTHING).rows()) == LOGICAL
    assert list(run(engine, EVERYTHING).physical_rows()) == ROWS
    reader = run(engine, EVERYTHING, columns=COLUMNS).reader(2)
    batches = list(reader)
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert batches[0].schema.names == [column.name for column in TABLE.columns]


def test_parameters_of_all_types_arrive_as_they_are(engine: VectorEngine) -> None:
    types = [column.type for column in TABLE.columns]
    names = ("BIGINT", "INTEGER", "BOOLEAN", "DOUBLE", "DECIMAL(38,2)", "VARCHAR", "BLOB", "DATE")
    casts = [f"CAST($p{slot} AS {name})" for slot, name in enumerate((*names, "TIMESTAMP"))]
    query = text(f"SELECT {', '.join(casts)}", *range(9))
    for row in ROWS:
        assert list(run(engine, query, row, types).physical_rows()) == [row]


def test_aggregate_over_pages_and_overlay(engine: VectorEngine) -> None:
    query = DuckText(
        "SELECT r1.c2, count(*), CAST(sum(r1.c1) AS BIGINT) FROM"
        " (SELECT c1, c2 FROM t1 WHERE __live) AS r1 WHERE r1.c1 >= $p1"
        " GROUP BY r1.c2 ORDER BY r1.c2",
        (DuckTable("t1", REF, (1, 2), ((1, ">=", Parameter(INTEGER, 1)),)),),
        (1,),
    )
    result = run(engine, query, ["not used", 2], [TEXT, INTEGER])
    assert list(result.rows()) == [(False, 1, 4), (True, 1, 2)]
    assert SOURCE.prunes[-1] == [ColumnRange(1, 2, None)]


@pytest.mark.parametrize(
    ("operator", "expression", "expected"),
    [
        ("=", Literal(BIGINT, 5), [ColumnRange(0, 5, 5)]),
        ("<", Literal(INTEGER, 5), [ColumnRange(0, None, 5)]),
        (">=", Parameter(BIGINT, 0), [ColumnRange(0, 8, None)]),
        ("<>", Literal(BIGINT, 5), []),
        ("=", Literal(BIGINT, None), []),
        ("=", Parameter(BIGINT, 1), []),
        ("=", Literal(DOUBLE, 5.0), []),  # not comparable with a BIGINT's zone map
        ("=", Literal(decimal_type(5, 1), 50), []),
    ],
)
def test_column_ranges(operator: str, expression: Any, expected: list[ColumnRange]) -> None:
    assert column_ranges(DuckTable("t1", REF, (0,), ((0, operator, expression),)), [8, None]) == (
        expected
    )
    if operator == "=":
        nan = DuckTable("t1", REF, (3,), ((3, "=", Literal(DOUBLE, float("nan"))),))
        assert column_ranges(nan, []) == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 5 // 2, -5 / 2, 5 / 2", (2, -2, 2)),
        ("SELECT CAST('nan' AS DOUBLE) > CAST('inf' AS DOUBLE)", (True,)),
        ("SELECT x FROM (VALUES (1), (NULL)) AS v(x) ORDER BY x DESC LIMIT 1", (None,)),
        ("SELECT x FROM (VALUES (NULL), (1)) AS v(x) ORDER BY x LIMIT 1", (1,)),
        ("SELECT current_setting('TimeZone'), current_setting('threads')", ("UTC", 2)),
        ("SELECT current_setting('python_enable_replacements')", (False,)),
    ],
)
def test_postgresqls_settings_hold_in_every_cursor(
    engine: VectorEngine, sql: str, expected: tuple[Any, ...]
) -> None:
    assert list(run(engine, text(sql)).rows()) == [expected]


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT 1 / 0", "22012"),
        ("SELECT 1 % 0", "22012"),
        ("SELECT 1.0 / 0.0", "22012"),
        ("SELECT CAST(2147483647 AS INTEGER) + CAST(1 AS INTEGER)", "22003"),
        ("SELECT CAST(9223372036854775807 AS BIGINT) * CAST(2 AS BIGINT)", "22003"),
        ("SELECT CAST(sum(x) AS BIGINT) FROM (VALUES (9223372036854775807), (1)) v(x)", "22003"),
        ("SELECT CAST(x AS DECIMAL(4,1)) FROM (VALUES (99999.5)) v(x)", "22003"),
        ("SELECT CAST('x' AS INTEGER)", "22P02"),
        ("SELECT CAST('2020-13-01' AS DATE)", "22008"),
        ("SELECT CAST('infinity' AS DATE)", "22008"),
        ("SELECT (SELECT x FROM (VALUES (1), (2)) v(x))", "21000"),
        ("SELECT 10 / (x - 250000) FROM range(300000) r(x)", "22012"),  # in the middle
        ("SELECT nonsense(1)", "XX000"),
        # Locked down:
        ("SELECT * FROM read_csv('/etc/passwd')", "XX000"),
        ("SELECT * FROM '/etc/passwd'", "XX000"),
        ("COPY (SELECT 1) TO '/tmp/herdpy-must-not-exist'", "XX000"),
        ("SET threads = 1", "XX000"),
        ("SET GLOBAL memory_limit = '1TB'", "XX000"),
        ("SET enable_external_access = true", "XX000"),
        ("INSTALL httpfs", "XX000"),
        ("ATTACH '/tmp/herdpy-must-not-exist.db'", "XX000"),
        ("SELECT * FROM tables", "XX000"),  # a variable of the code that calls DuckDB
    ],
)
def test_errors_have_our_classes_and_free_their_result(
    engine: VectorEngine, sql: str, sqlstate: str
) -> None:
    for _ in range(5):  # more than results_max
        with pytest.raises(Error) as caught:
            list(run(engine, text(sql)).rows())
        assert caught.value.sqlstate == sqlstate
    if sqlstate == "XX000":
        assert sql in (caught.value.hint or "")
    assert list(run(engine, text("SELECT 1")).rows()) == [(1,)]
    assert not Path("/tmp/herdpy-must-not-exist").exists()


def test_other_errors_by_their_text() -> None:
    full = translate_error("IO Error: Could not write file: No space left on device", "")
    assert (full.sqlstate, full.retry.value) == ("53100", "safe")
    assert translate_error("Out of Memory Error: failed to allocate", "").sqlstate == "53200"
    assert translate_error("INTERRUPT Error: Interrupted!", "").sqlstate == "57014"


def test_an_unexpected_type_is_an_internal_error(engine: VectorEngine) -> None:
    with pytest.raises(InternalError, match=r'"n".*expected int64, found int32'):
        list(run(engine, text("SELECT 1"), columns=[("n", BIGINT)]).rows())
    assert list(run(engine, text("SELECT NULL"), columns=[("n", BIGINT)]).rows()) == [(None,)]


def test_unfinished_results_are_limited(engine: VectorEngine) -> None:
    many = text("SELECT x FROM range(100000) r(x)")
    results = [run(engine, many) for _ in range(4)]
    firsts = [next(result.rows()) for result in results]
    assert firsts == [(0,)] * 4
    with pytest.raises(MemoryLimitError, match="at most 4 unfinished") as caught:
        run(engine, many)
    assert caught.value.sqlstate == "53200"
    assert "Fetch" in (caught.value.hint or "")
    results[0].close()
    results[0].close()
    with pytest.raises(InterfaceError, match="closed before"):
        next(results[0].rows())
    result = run(engine, many)
    assert len(list(result.rows())) == 100_000  # read to its end: closed by itself
    assert list(result.rows()) == []
    results[1] = run(engine, many)
    del results[1]  # forgotten: counts no more
    gc.collect()
    run(engine, many).close()
    for result in results:
        result.close()


def test_cancel(engine: VectorEngine) -> None:
    interrupt = NeverInterrupt(after=0)
    with pytest.raises(QueryCanceledError, match="by the test"):
        engine.query(text("SELECT 1"), DictSnapshot(), (), (), interrupt)
    assert interrupt.callback is None
    interrupt = NeverInterrupt(after=3)
    result = engine.query(text("FROM range(1000000)"), DictSnapshot(), (), (), interrupt)
    assert interrupt.callback is None  # between two calls there is nothing to stop
    with pytest.raises(QueryCanceledError, match="by the test"):
        list(result.rows())
    assert interrupt.callback is None


class CancelsItself(NeverInterrupt):
    """Calls DuckDB's interrupt as another thread would: in the middle of the query."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False

    def check(self) -> None:
        if self.is_armed and self.callback is not None:
            self.callback()  # type: ignore[operator]  # a cursor's interrupt


def test_cancel_by_duckdbs_interrupt_ends_the_stream(engine: VectorEngine) -> None:
    interrupt = CancelsItself()
    sql = "SELECT a.x FROM range(3000) a(x), range(3000) b(y) WHERE a.x <> b.y"
    result = engine.query(text(sql), DictSnapshot(), (), (), interrupt)
    interrupt.is_armed = True
    with pytest.raises(QueryCanceledError) as caught:
        list(result.rows())
    assert caught.value.sqlstate == "57014"


def test_memory_is_limited_and_spilling_can_be_off() -> None:
    engine = VectorEngine(20 * MIB, 1, None)
    sql = "SELECT x, count(*) FROM range(5000000) r(x) GROUP BY x"
    with pytest.raises(MemoryLimitError) as caught:
        run(engine, text(sql))
    assert caught.value.sqlstate == "53200"
    assert list(run(engine, text("SELECT 1")).rows()) == [(1,)]
    engine.close()


def test_macros_are_made_as_queries_take_them() -> None:
    """All of them would take a first query some 75 ms."""
    engine = VectorEngine(50 * MIB, 1, None)
    results = [run(engine, text("SELECT x FROM range(100000) r(x)"))]
    for sql, expected in (
        ("SELECT h_sqrt(4.0)", 2.0),
        ("SELECT h_is_whole(2.0)", True),
        ("SELECT h_whole(2.5), h_sqrt(9.0)", 2),  # which calls another one
    ):
        assert next(run(engine, text(sql)).rows())[0] == expected
    assert engine._macros == macros_of("h_sqrt h_whole")
    assert len(list(results[0].rows())) == 100_000  # which was open meanwhile
    engine.close()


def test_macros_whose_making_is_interrupted_are_made_by_the_next_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(dict[str, tuple[str, str]]):
        def items(self) -> Any:
            yield next(iter(MACROS.items()))
            monkeypatch.undo()
            raise KeyboardInterrupt

    engine = VectorEngine(50 * MIB, 1, None)
    monkeypatch.setattr(duck, "MACROS", Interrupted(MACROS))
    query = text("SELECT h_blanks() IS NULL, h_sqrt(4.0), h_room(1)")
    with pytest.raises(KeyboardInterrupt):
        run(engine, query)
    assert list(run(engine, query).rows()) == [(False, 2.0, 1)]
    engine.close()


def test_what_duckdb_says_as_it_begins_is_an_error_of_ours() -> None:
    engine = VectorEngine(50 * MIB, -5, None)
    with pytest.raises(Error) as caught:
        run(engine, text("SELECT 1"))
    assert not isinstance(caught.value, duckdb.Error)
    engine.close()


@pytest.mark.parametrize("name", MACROS)
def test_a_macro_is_made_with_all_that_it_calls(name: str) -> None:
    taken = macros_of(f"SELECT {name}(1)")
    assert name in taken
    assert {each for part in taken for each in macros_of(MACROS[part][1])} <= taken
    assert macros_of("SELECT h_unknown(1), 'h_'") == frozenset()


def test_close_ends_everything_and_stays() -> None:
    engine = VectorEngine(50 * MIB, 0, None)
    result = run(engine, text("SELECT x FROM range(100000) r(x)"))
    next(rows := result.rows())
    engine.close()
    engine.close()
    with pytest.raises(InterfaceError, match="closed before"):
        list(rows)
    with pytest.raises(InterfaceError):
        run(engine, text("SELECT 1"))
    VectorEngine(50 * MIB, 0, None).close()  # never used


class ClosesEngine(NeverInterrupt):
    """Closes the engine at one of its checks, as another thread could."""

    def __init__(self, engine: VectorEngine, at: int) -> None:
        super().__init__()
        self._engine = engine
        self._at = at

    def check(self) -> None:
        super().check()
        if self.check_count == self._at:
            self._engine.close()


def test_close_while_a_query_runs() -> None:
    many = text("SELECT x FROM range(100000) r(x)")
    engine = VectorEngine(50 * MIB, 1, None)
    with pytest.raises(InterfaceError, match="closed before"):
        engine.query(many, DictSnapshot(), (), (), ClosesEngine(engine, 1))
    engine = VectorEngine(50 * MIB, 1, None)
    result = engine.query(many, DictSnapshot(), (), (), ClosesEngine(engine, 3))
    with pytest.raises(InterfaceError, match="closed before"):
        list(result.rows())  # never fewer rows without a word


class Failed:
    """A connection to a DuckDB, and its cursors, that fail as DuckDB does."""

    def __init__(self, right: Any, message: str) -> None:
        self._right = right
        self._message = message

    def cursor(self) -> "Failed":
        return Failed(self._right.cursor(), self._message)

    def sql(self, _query: str, **_: Any) -> Any:
        raise duckdb.FatalException(self._message)

    def execute(self, query: str) -> Any:
        return self.sql(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)


INVALIDATED = (
    "FATAL Error: Failed: database has been invalidated because of a previous fatal error. The "
    "database must be restarted prior to being used again."
)


@pytest.mark.parametrize(
    ("message", "sqlstate", "retry"),
    [
        ("INTERNAL Error: Attempted to access index 3 within vector of size 3", "XX000", "NEVER"),
        (INVALIDATED, "58000", "SAFE"),
    ],
)
def test_a_duckdb_that_has_failed_is_followed_by_another(
    message: str, sqlstate: str, retry: str
) -> None:
    engine = VectorEngine(200 * MIB, 1, None)
    query = text("SELECT range FROM range(200000)")
    going_on = iter(run(engine, query).rows())
    next(going_on)
    failed = engine._connection = Failed(engine._connection, message)
    with pytest.raises(Error) as caught:
        run(engine, query)
    assert (caught.value.sqlstate, caught.value.retry.name) == (sqlstate, retry)
    assert len(list(run(engine, query).rows())) == 200_000
    again = engine._connection
    engine._broke(failed)  # as another query of it finds out late
    assert engine._connection is again
    assert sum(1 for _ in going_on) == 199_999  # what DuckDB can still give it has
    engine._connection = Failed(again, message)
    assert engine.usage() == (0, 0)
    assert len(list(run(engine, query).rows())) == 200_000
    engine.close()


def test_rows_reader_makes_batches() -> None:
    reader = rows_reader(COLUMNS, iter(LOGICAL), 2)
    assert [batch.num_rows for batch in reader] == [2, 1]
    table = rows_reader(COLUMNS, iter(LOGICAL), 100).read_all()
    assert [tuple(row.values()) for row in table.to_pylist()] == LOGICAL
    assert rows_reader(COLUMNS, iter(()), 100).read_all().schema.field("m").type == (
        pa.decimal128(38, 2)
    )
    assert duckdb.__version__ >= "2"
