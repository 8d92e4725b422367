"""What a statement makes, changes, names and is sorted by, by its words alone."""

import pytest

from tests.pg_regress.words import Made, Words


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("select 1", "SELECT"),
        ("(select 1) union (select 2)", "SELECT"),
        ("with a as (insert into t values (1)) select 1", "SELECT"),
        ("with a as (select 1) insert into t select 1", "WITH … INSERT"),
        ("create temp table t ()", "CREATE TABLE"),
        ("create or replace function f() returns int", "CREATE FUNCTION"),
        ("create unique index i on t (a)", "CREATE INDEX"),
        ("create materialized view v as select 1", "CREATE VIEW"),
        ("create foreign data wrapper w", "CREATE FOREIGN DATA"),
        ("create operator class c for type t", "CREATE OPERATOR CLASS"),
        ("drop table if exists t", "DROP TABLE"),
        ("set local a = 1", "SET LOCAL"),
        ("comment on column t.a is ''", "COMMENT ON COLUMN"),
    ],
)
def test_a_statement_has_a_kind(text: str, head: str) -> None:
    assert Words(text).head == head


@pytest.mark.parametrize(
    ("text", "made", "changed"),
    [
        ("create table if not exists s.T (a int)", [Made("relation", "t")], set()),
        ('create temp view "V" as select 1', [Made("relation", "V")], set()),
        ("create function f(a int) returns int", [Made("function", "f")], set()),
        ("create domain d as int", [Made("type", "d")], set()),
        ("create role r", [Made("other", "r")], set()),
        ("create unique index i on only t (a)", [], {"t"}),
        ("create index i on t (a)", [], set()),
        ("alter table t attach partition u default", [], {"t", "u"}),
        ("create table t (a int references u)", [Made("relation", "t")], {"u"}),
        ("create rule r as on update to t do nothing", [], {"t", "update"}),
        ("drop table a, s.b cascade", [Made("relation", "a"), Made("relation", "b")], {"a"}),
        ("select 1 as a into temp table t from u", [Made("relation", "t")], set()),
        ("insert into t select * from u", [], {"t"}),
        ("update only t set a = 1", [], {"t"}),
        ("delete from t using u", [], {"t"}),
        ("merge into t using u on true when matched then delete", [], {"t"}),
        ("with a as (update t set b = 1 returning *) select * from a", [], {"t"}),
        ("alter table if exists only t add column a int", [], {"t"}),
        ("truncate a, b", [], {"a", "b"}),
        ("copy t (a) from stdin", [], {"t"}),
        ("select 1 from t for update of t", [], set()),
        ("insert into t values (1) on conflict (a) do update set b = 1", [], {"t"}),
    ],
)
def test_what_a_statement_makes_and_changes(text: str, made: list[Made], changed: set[str]) -> None:
    words = Words(text)
    assert (words.made, words.changed) == (made, changed)


@pytest.mark.parametrize(
    ("text", "relations"),
    [
        ("select a, b from t", {"t"}),
        ("select a from t x, u as y where z in (select c from v), w", {"t", "u", "v"}),
        ("select * from (t join u on true) cross join lateral f(t.a)", {"t", "u", "f"}),
        ("select * from (select 1 as a, b) x, t", {"t"}),
        ("select extract(year from d), t.a from only s.t order by u, v", {"t", "d"}),
        ("table t", {"t"}),
        ("select * from f(a, b), t", {"f", "t"}),
        ("create table t (a int references u) inherits (v, w)", {"t", "u", "v", "w"}),
    ],
)
def test_names_of_relations_are_found(text: str, relations: set[str]) -> None:
    assert Words(text).relations == relations


def test_functions_stand_before_parentheses() -> None:
    assert Words("select f(1), g, s.h (2) from t").functions == {"f", "h"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("select a from t", None),
        ("select a from (select 1 order by b) x", None),
        ("select sum(a) over (order by b) from t", None),
        ("select a from t order by b", ["B"]),
        ("select a from t order by 1 desc nulls last, t.b asc limit 3", ["1", "T . B"]),
        ("(select a from t order by b using >)", ["B"]),
        ("(select a from t) union (select b from u) order by a + 1, f(a, b) for update",
         ["A + 1", "F ( A , B )"]),
        ("insert into t select a from u order by a", None),
        ("with x as (select 1 order by 2) select a from x order by a", ["A"]),
    ],
)  # fmt: skip
def test_the_outermost_order_is_found(text: str, keys: list[str] | None) -> None:
    found = Words(text).order
    made = None if found is None else [" ".join(word.text for word in key) for key in found]
    assert made == keys


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("set a to 1", "a"),
        ("set local a.b = 1", "a.b"),
        ("reset a", "a"),
        ("set time zone 'UTC'", "timezone"),
        ("set session authorization u", "session_authorization"),
        ("set session characteristics as transaction read only", None),
        ("set transaction read only", None),
        ("set constraints all deferred", None),
        ("select 1", None),
    ],
)
def test_a_setting_has_a_name(text: str, setting: str | None) -> None:
    assert Words(text).setting == setting
