"""Binding: types, slots, errors with positions."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from herdpy.errors import Error, QueryCanceledError
from herdpy.model.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    SqlType,
    decimal_type,
    varchar_type,
)
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql, parameter_kinds
from herdpy.sql.plan import Compiled, Parameters, Slot
from tests.fixtures.sql_catalog import FixedCatalog


def compiled(text: str, parameters: Parameters = None) -> Compiled:
    return compile_sql(text, FixedCatalog(), parameters)


def output(expression: str, parameters: Parameters = None) -> tree.Expression:
    """Return the first output of SELECT expression FROM t."""
    statement = compiled(f"select {expression} from t", parameters).statement
    assert isinstance(statement, tree.SelectStatement)
    assert isinstance(statement.query.body, tree.Select)
    return statement.query.body.outputs[0].expression


@pytest.mark.parametrize(
    ("text", "sqlstate", "position"),
    [
        ("select nme from t", "42703", 8),
        ("select t.nme from t", "42703", 8),
        ("select u.name from t", "42P01", 8),
        ("select name from tt", "42P01", 18),
        ("select day from t join leg on true", "42702", 8),
        ("select 1 from t join t on true", "42712", 22),
        ("select name = n from t", "42883", 8),
        ("select 1 from t where name = 5", "42883", 23),
        ("select 1 from t where flag = 1", "42883", 23),
        ("select name + 1 from t", "42883", 8),
        ("select foo(n) from t", "42883", 8),
        ("select sum(name) from t", "42883", 8),
        ("select 1 from t where n", "42804", 23),
        ("select 1 from t where n = 'abc'", "22P02", 23),
        ("select 1 from t where day = '2024-02-30'", "22008", 23),
        ("select 1 from t where day = 'soon'", "22007", 23),
        ("select 1 from t where n = 1 or x", "42804", 32),
        ("select count(*) from t where count(*) > 1", "42803", 30),
        ("select sum(count(*)) from t", "42803", 12),
        ("select name, x from t group by name", "42803", 14),
        ("select name from t order by 2", "42P10", 29),
        ("select cast(day as boolean) from t", "42846", 13),
        ("insert into t (id, nam) values (1, 2)", "42703", 20),
        ("insert into t (id, id) values (1, 2)", "42701", 13),
        ("insert into t (id, name) values (1)", "42601", 34),
        ("insert into t (id, n) values (1, 99999999999)", "22003", 34),
        ("insert into t (id, flag) values (1, 1)", "42804", 37),
        ("update t set nam = 1", "42703", 14),
        ("update t set n = 1, n = 2", "42601", 21),
        ("drop table tt", "42P01", 12),
        ("create table a (x int, x text)", "42701", 24),
        ("create table a (x int, primary key (y))", "42703", 14),
        ("create table a (x int primary key, y int primary key)", "42P16", 36),
        ("create table a (x int default 'abc')", "22P02", 31),
        ("create table a (x int default 1 + 1)", "0A000", 31),
        ("create table a (x int unique, unique (y))", "42703", 39),
        ("create index on t (zzz)", "42703", 20),
        ("create table a (x int references t)", "0A000", 23),
        ("create table a (x int check (y > 1))", "42703", 30),
        ("alter table t add n int", "42701", 19),
        ("select * from t for update", "0A000", 17),
        ("select * from s.t", "0A000", 15),
        ("insert into t (id) values (1) on conflict (n) do nothing", "42P10", 44),
        ("insert into t (id) values (1) returning nam", "42703", 41),
        ("update t set n = 1 returning count(*)", "42803", 30),
        ("select a from from", "42601", 15),
    ],
)
def test_errors(text: str, sqlstate: str, position: int) -> None:
    with pytest.raises(Error) as caught:
        compiled(text)
    assert (caught.value.sqlstate, caught.value.position) == (sqlstate, position)


@pytest.mark.parametrize("text", ["select nme from t", "update t set nmae = 1"])
def test_unknown_column_has_a_suggestion(text: str) -> None:
    with pytest.raises(Error, match='Did you mean "name"'):
        compiled(text)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1", INTEGER),
        ("2147483648", BIGINT),
        ("9223372036854775808", decimal_type(19, 0)),
        ("1.50", decimal_type(3, 2)),
        ("1e3", decimal_type(4, 0)),
        ("'x'", TEXT),
        ("null", TEXT),
        ("n + 1", INTEGER),
        ("n + id", BIGINT),
        ("n + x", DOUBLE),
        ("x + 1.5", DOUBLE),
        ("n * price", decimal_type(20, 2)),
        ("price + 1.125", decimal_type(12, 3)),
        ("n / 2", INTEGER),
        ("n + '5'", INTEGER),
        ("name || 'x'", TEXT),
        ("code", varchar_type(3)),
        ("n > 5 and not flag", BOOLEAN),
        ("case when flag then n else id end", BIGINT),
        ("count(*)", BIGINT),
        ("sum(n)", BIGINT),
        ("sum(x)", DOUBLE),
        ("sum(price)", decimal_type(38, 2)),
        ("avg(n)", decimal_type(38, 16)),
        ("min(code)", TEXT),
        ("max(day)", DATE),
        ("'2024-01-31'::date", DATE),
        ("cast(name as varchar(2))", varchar_type(2)),
    ],
)
def test_types(expression: str, expected: SqlType) -> None:
    assert output(expression).type == expected


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("day", "'1970-01-02'", 1),
        ("at", "'1970-01-01 00:00:01.5'", 1_500_000),
        ("at", "'1969-12-31 23:59:59.999999'", -1),
        ("price", "'12.345'", 1235),
        ("price", "-12.345", -1235),
        ("price", "7", 700),
        ("x", "0.1", 0.1),
        ("n", "2.5", 3),
        ("raw", "'\\xff00'", b"\xff\x00"),
        ("flag", "'yes'", True),
        ("name", "5", "5"),
        ("n", "null", None),
        ("n", "default", None),
    ],
)
def test_assigned_constants_are_physical(column: str, text: str, value: object) -> None:
    statement = compiled(f"insert into t (id, {column}) values (1, {text}), (2, null)").statement
    assert isinstance(statement, tree.Insert)
    assert statement.rows is not None
    cell = statement.rows[0][1]
    assert isinstance(cell, tree.Literal)
    assert cell.value == value
    assert type(cell.value) is type(value)


@pytest.mark.parametrize(
    ("where", "value", "slot"),
    [
        ("id = ?", 5, BIGINT),
        ("n = ?", 5, BIGINT),
        ("id = ?", "5", BIGINT),
        ("id = ?", None, BIGINT),
        ("x = ?", 5, DOUBLE),
        ("name = ?", "5", TEXT),
        ("code = ?", "5", TEXT),
        ("day = ?", date(2024, 1, 1), DATE),
        ("at = ?", date(2024, 1, 1), TIMESTAMP),
        ("at = ?", datetime(2024, 1, 1), TIMESTAMP),
        ("raw = ?", b"x", BYTEA),
        ("flag = ?", True, BOOLEAN),
        ("flag = ?", "true", BOOLEAN),
        ("price = ?", Decimal("1.234"), decimal_type(38, 3)),
        ("price = ?", 5, decimal_type(21, 2)),
        ("? is null", "x", TEXT),
    ],
)
def test_slots(where: str, value: object, slot: SqlType) -> None:
    assert compiled(f"select id from t where {where}", [value]).slots == (Slot(0, slot),)


def test_a_name_in_two_contexts_has_two_slots_and_in_one_context_one() -> None:
    found = compiled("select id from t where id = :v and x = :v and id <> :v", {"v": 5})
    assert set(found.slots) == {Slot("v", BIGINT), Slot("v", DOUBLE)}


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("select ?", [], "expects 1 parameters, found 0"),
        ("select 1", [5], "expects 0 parameters, found 1"),
        ("select ?, ?", [1, 2, 3], "expects 2 parameters, found 3"),
        ("select :a", {"b": 1}, "missing :a; unknown :b"),
        ("select :a", [1], "a sequence of parameters"),
        ("select ?", {"a": 1}, "a mapping of parameters"),
    ],
)
def test_parameters_must_match(text: str, parameters: Any, message: str) -> None:
    with pytest.raises(Error, match=message) as caught:
        compiled(text, parameters)
    assert caught.value.sqlstate == "07001"


def test_parameters_of_unknown_class_are_refused() -> None:
    with pytest.raises(Error, match="parameter 2: values of class object") as caught:
        compiled("select ?, ?", [1, object()])
    assert caught.value.sqlstate == "42804"


def test_parameter_kinds_differ_where_types_do() -> None:
    assert parameter_kinds([Decimal("1.5")]) != parameter_kinds([Decimal("1.25")])
    assert parameter_kinds([2**70]) != parameter_kinds([1])
    assert parameter_kinds([True]) != parameter_kinds([1])
    assert parameter_kinds([1, "x", None]) == parameter_kinds([2, "y", None])
    assert parameter_kinds({"a": 1}) == parameter_kinds({"a": 7})


def test_create_table() -> None:
    statement = compiled(
        "create table if not exists A (b varchar(10) not null default 'x', a bigint,"
        " d numeric(10,2) default 1.5, at timestamp default current_timestamp, primary key (a, b))"
    ).statement
    assert isinstance(statement, tree.CreateTable)
    assert (statement.name, statement.key, statement.if_not_exists) == ("a", (1, 0), True)
    b, a, d, at = statement.columns
    assert (b.type, b.not_null, b.default) == (varchar_type(10), True, "x")
    assert (a.type, a.not_null) == (BIGINT, True)
    assert (d.default, at.default_sql) == (150, "CURRENT_TIMESTAMP")


def test_create_table_without_key_has_a_hidden_row_id() -> None:
    statement = compiled("create table a (x int)").statement
    assert isinstance(statement, tree.CreateTable)
    last = statement.columns[-1]
    assert (last.name, last.type, last.hidden, last.not_null) == ("_rowid", BIGINT, True, True)
    assert statement.key == (1,)


def test_hidden_columns_have_no_name() -> None:
    assert len(compiled("select * from heap").statement.query.columns) == 1  # type: ignore[union-attr]
    with pytest.raises(Error, match="_rowid"):
        compiled("select _rowid from heap")


def test_too_deep_for_the_stack_is_an_error_of_ours() -> None:
    with pytest.raises(Error) as caught:
        compiled("select " + "+".join(["1"] * 5000))
    assert caught.value.sqlstate == "54001"
    assert isinstance(output(" or ".join(["n = 1"] * 5000)), tree.Call)  # a chain is not deep


def test_names_fold_to_lower_case_unless_quoted() -> None:
    assert output("T.NAME") == output("name")
    with pytest.raises(Error, match='column "NAME" does not exist'):
        output('"NAME"')


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT * FORM t", 'at or near "FORM"', 'FROM instead of "FORM"'),
        ("SELECT 1 +", "at end of input", None),
        ("SELECT id FROM t WHRE id = 1", 'at or near "id"', 'WHERE instead of "WHRE"'),
    ],
)
def test_syntax_errors_are_told_kindly(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(Error) as caught:
        compile_sql(text, FixedCatalog(), None)
    assert message in caught.value.message
    assert caught.value.hint is None if hint is None else hint in str(caught.value.hint)


@pytest.mark.parametrize("stage", range(4))
def test_compiling_stops_between_its_stages(stage: int) -> None:
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) > stage:
            raise QueryCanceledError("late")

    with pytest.raises(QueryCanceledError):
        compile_sql("SELECT 1", FixedCatalog(), None, check)
    assert len(calls) == stage + 1
