"""The printed text, run on DuckDB with the settings of the vector path."""

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from herdpy.exec.vector.vector_room import register
from herdpy.limits import value_bytes_max
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.duckdb_text import DuckText, print_query
from herdpy.sql.macros import MACROS
from herdpy.sql.plan import UpdatePlan, VectorFind
from herdpy.sql.planner import plan_statement
from tests.fixtures.sql_catalog import LEG, FixedCatalog, T

DAY = datetime.date(2013, 1, 1)
AT = datetime.datetime(2013, 1, 1, 12)
T_ROWS = [
    (1, "a", 1.5, 10, True, Decimal("1.50"), "x", b"1", DAY, AT),
    (2, "b", 2.5, 20, False, Decimal("2.50"), "y", b"2", DAY, AT),
    (3, "a", None, None, None, None, None, None, None, None),
    (4, "it's", float("nan"), -7, True, Decimal("-3.25"), "z", b"\xff", DAY, AT),
]
LEG_ROWS = [("JFK", DAY, 1, 5), ("JFK", DAY, 2, None), ("LGA", DAY, 3, 7)]
ROWS = {T.name: T_ROWS, LEG.name: LEG_ROWS}
ARROW = [
    pa.int64(), pa.string(), pa.float64(), pa.int32(), pa.bool_(), pa.decimal128(10, 2),
    pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"),
]  # fmt: skip
ARROW_TYPES = {T.name: ARROW, LEG.name: [pa.string(), pa.date32(), pa.int32(), pa.int64()]}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    register(connection, value_bytes_max)
    for head, body in MACROS.values():
        connection.execute(f"CREATE MACRO {head} AS {body}")
    connection.execute("SET GLOBAL integer_division = true")
    yield connection
    connection.close()


@pytest.fixture
def cursor(connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    cursor = connection.cursor()
    yield cursor
    cursor.close()


def printed(text: str, *parameters: object) -> DuckText:
    statement = compile_sql(text, FixedCatalog(), parameters).statement
    plan = plan_statement(statement)
    if isinstance(plan, UpdatePlan):
        assert isinstance(plan.find, VectorFind)
        return print_query(plan.find.query)
    assert isinstance(statement, tree.SelectStatement)
    return print_query(statement.query)


def run(cursor: duckdb.DuckDBPyConnection, text: str, *parameters: object) -> list[Any]:
    """Run over the rows above and one dead row per table."""
    found = printed(text, *parameters)
    for table in found.tables:
        name = table.ref.table.name
        rows, types = ROWS[name], ARROW_TYPES[name]
        columns = {
            f"c{ordinal}": pa.array([row[ordinal] for row in [*rows, rows[0]]], types[ordinal])
            for ordinal in table.ordinals
        }
        columns["__live"] = pa.array([True] * len(rows) + [False])
        cursor.register(table.name, pa.table(columns))
    values = {f"p{slot}": parameters[slot] for slot in found.slots}
    return cursor.execute(found.sql, values).fetchall()


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        ("select count(*) from t", (), [(4,)]),
        (
            "select name, count(*), sum(n) from t group by name order by name",
            (),
            [("a", 2, 10), ("b", 1, 20), ("it's", 1, -7)],
        ),
        (
            "select name, count(x) c from t group by 1 having count(*) > 1 order by c desc limit 3",
            (),
            [("a", 1)],
        ),
        ("select sum(price), min(price), max(name), avg(n) from t where id <> 4", (),
         [(Decimal("4.00"), Decimal("1.50"), "b", Decimal(15))]),
        ("select id from t order by n", (), [(4,), (1,), (2,), (3,)]),
        ("select id from t order by n desc", (), [(3,), (2,), (1,), (4,)]),
        ("select id from t order by x, id limit 2 offset 1", (), [(2,), (4,)]),
        ("select distinct name from t where name < ? order by 1", ("c",), [("a",), ("b",)]),
        ("select id from t where name = 'it''s'", (), [(4,)]),
        ("select id from t where name like 'i_''%' or name ilike 'B'", (), [(2,), (4,)]),
        ("select id from t where x is null and not (n is not null)", (), [(3,)]),
        ("select id from t where n in (10, ?) and id not in (2, 3)", (20,), [(1,)]),
        ("select id from t where price > 1.5 and price < 2.501", (), [(2,)]),
        ("select id from t where x = 'NaN'", (), [(4,)]),
        ("select id from t where raw = '\\xff'", (), [(4,)]),
        ("select id from t where day = '2013-01-01' and at > '2013-01-01 11:59:59' order by id", (),
         [(1,), (2,), (4,)]),
        ("select -7 / 2, -7 % 3, 2147483647 + 1::bigint", (), [(-3, -1, 2147483648)]),
        ("select price * 2, price + 1.125, n * price from t where id = 2", (),
         [(Decimal("5.00"), Decimal("3.625"), Decimal("50.00"))]),
        ("select case when flag then 'y' when not flag then 'n' end from t order by id", (),
         [("y",), ("n",), (None,), ("y",)]),
        ("select flag is true, flag is not true from t where id = 3", (), [(False, True)]),
        ("select cast(name as varchar(2)), n::text, '7'::int from t where id = 4", (),
         [("it", "-7", 7)]),
        ("select t.id, leg.no from t join leg on leg.no = t.id where t.n > 5 and no < 3 order by 1",
         (), [(1, 1), (2, 2)]),
        ("select t.id, leg.no from t left join leg on leg.no = t.id order by 1 desc", (),
         [(4, None), (3, 3), (2, 2), (1, 1)]),
        ("select a.id from t a cross join leg b where a.id = 1 limit 2", (), [(1,), (1,)]),
        ("values (1, 'a'), (?, null)", (2,), [(1, "a"), (2, None)]),
        ("select -9223372036854775808, 9223372036854775807, '\x01', 'é😀'", (),
         [(-(2**63), 2**63 - 1, "\x01", "é😀")]),
        ("update leg set delay = delay / 2 where delay > 5", (), [("LGA", DAY, 3, 3)]),
    ],
)  # fmt: skip
def test_runs(
    cursor: duckdb.DuckDBPyConnection, text: str, parameters: tuple[object, ...], expected: Any
) -> None:
    found = run(cursor, text, *parameters)
    if "order by" not in text:
        found.sort()
    assert found == expected


def test_result_types_are_those_of_the_tree(cursor: duckdb.DuckDBPyConnection) -> None:
    text = (
        "select sum(n), sum(x), sum(price), avg(n), count(*), min(day), max(at), min(raw) "
        "from t where id > 0"
    )
    run(cursor, text)
    assert [str(item[1]) for item in cursor.description or ()] == [
        "BIGINT", "DOUBLE", "DECIMAL(38,2)", "DECIMAL(38,16)", "BIGINT", "DATE",
        "TIMESTAMP", "BLOB",
    ]  # fmt: skip


def test_only_used_columns_are_asked_for() -> None:
    found = printed("select sum(x) from t where n > 5 group by name")
    assert [(table.name, table.ordinals) for table in found.tables] == [("t1", (1, 2, 3))]
    assert printed("select count(*) from t").tables[0].ordinals == ()


def test_each_reference_is_a_relation_of_its_own() -> None:
    found = printed("select count(*) from t a join t b on a.id = b.n")
    assert [(table.name, table.ordinals) for table in found.tables] == [("t1", (0,)), ("t2", (3,))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select count(*) from t where n > 5 and 7 >= x", [[(3, ">"), (2, "<=")]]),
        ("select count(*) from t where n > 5 or x < 3", [[]]),
        ("select count(*) from t where not n > 5", [[]]),
        ("select count(*) from t where n <> 5", [[]]),
        ("select count(*) from t where n > id", [[]]),
        ("select count(*) from t where price > 1.005", [[]]),
        ("select 1 from t join leg on true where n > 5 and no < 3", [[(3, ">")], [(2, "<")]]),
        ("select 1 from t left join leg on true where n > 5 and no < 3", [[(3, ">")], []]),
        ("select 1 from t right join leg on true where n > 5 and no < 3", [[], [(2, "<")]]),
        ("select 1 from t full join leg on true where n > 5 and no < 3", [[], []]),
    ],
)
def test_prunes(text: str, expected: list[list[tuple[int, str]]]) -> None:
    found = printed(text)
    assert [[test[:2] for test in table.prune] for table in found.tables] == expected


@pytest.mark.parametrize("call", ["sum(x)", "avg(price)", "var_pop(x)", "sum(x) OVER ()"])
def test_a_subquery_in_an_aggregate_stands_few_times_in_the_text(call: str) -> None:
    # The macros of an aggregate use what it found many times.
    inner = call.replace("(x)", "(x + (SELECT 12345678))").replace(
        "(price)", "(price + (SELECT 12345678))"
    )
    assert printed(f"SELECT {inner} FROM t").sql.count("12345678") <= 4


def test_a_long_chain_is_flat_in_the_text() -> None:
    text = printed(f"SELECT count('a'{' || code' * 999}), sum(n{' + 1 - 2' * 499} * 3) FROM t").sql
    depth = deepest = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    assert deepest < 10


def test_sums_of_columns_have_a_plain_text() -> None:
    found = printed("SELECT sum(x), sum(x * 2), sum(DISTINCT x) FILTER (WHERE n > 1) FROM t")
    assert "\0" not in found.sql + found.plain_sql
    assert found.sql.count("signbit") == 3
    assert found.plain_sql.count("signbit") == 1  # of x * 2, which may be -0 where x is not
    assert [table.summed for table in found.tables] == [(2,)]


def test_sums_of_other_relations_have_none() -> None:
    text = (
        "SELECT sum(v) OVER (ORDER BY sum(w)) FROM (SELECT x AS v, x AS w FROM t) AS q GROUP BY v"
    )
    found = printed(text)
    assert "\0" not in found.sql
    assert found.plain_sql == found.sql
    assert [table.summed for table in found.tables] == [()]


@pytest.mark.parametrize(
    ("operands", "names"),
    [
        ("repeat('x', 300000) || id::TEXT", [["a1"], ["a0"]]),
        ("id::TEXT || repeat('x', 300000)", [["a0"], ["a1"]]),
        ("repeat('x', 300000) || repeat('y', 300000)", [["a0", "a1"]]),
        ("repeat('x', CAST(random() AS INTEGER)) || id::TEXT", [["a0", "a1"]]),
    ],
)
def test_a_wide_constant_stands_beside_nothing_that_each_row_has(
    operands: str, names: list[list[str]]
) -> None:
    """In one struct DuckDB would copy it for every row, before it can be refused."""
    text = printed(f"SELECT {operands} FROM t").sql
    structs = re.findall(r"struct_pack\(([^\0]*?)\], lambda", text)
    assert [re.findall(r"\b(a[0-9]) :=", each) for each in structs] == names
