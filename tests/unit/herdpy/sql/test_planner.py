"""The choice of path and access."""

import pytest

from herdpy.limits import interrupt_nodes, row_nodes_max
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.plan import (
    CountAccess,
    DeletePlan,
    FullAccess,
    InsertPlan,
    Plan,
    PointAccess,
    RangeAccess,
    RowFind,
    RowSelect,
    UpdatePlan,
    VectorFind,
    VectorSelect,
)
from herdpy.sql.planner import plan_statement
from tests.fixtures.sql_catalog import FixedCatalog


def planned(text: str, *parameters: object) -> Plan:
    return plan_statement(compile_sql(text, FixedCatalog(), parameters).statement)


def row_select(text: str, *parameters: object) -> RowSelect:
    plan = planned(text, *parameters)
    assert isinstance(plan, RowSelect)
    return plan


def test_point() -> None:
    plan = row_select("select name, n + 1 from t where ? = id and n > 3", 5)
    assert isinstance(plan.access, PointAccess)
    assert isinstance(plan.access.key[0], tree.Parameter)
    assert isinstance(plan.residual, tree.Call)
    assert plan.residual.function == ">"


def test_point_of_a_composite_key() -> None:
    plan = row_select(
        "select delay from leg where no = 5 and day = '2013-01-01' and origin = 'JFK'"
    )
    assert isinstance(plan.access, PointAccess)
    assert [part.value for part in plan.access.key if isinstance(part, tree.Literal)] == [
        "JFK", 15706, 5,
    ]  # fmt: skip
    assert plan.residual is None


def test_range() -> None:
    access = row_select("select id from t where id > 3 and id <= 9").access
    assert isinstance(access, RangeAccess)
    assert isinstance(access.low, tree.Literal)
    assert isinstance(access.high, tree.Literal)
    assert (access.low.value, access.low_inclusive) == (3, False)
    assert (access.high.value, access.high_inclusive) == (9, True)


def test_second_test_of_a_bound_stays_in_the_residual() -> None:
    plan = row_select("select id from t where id > 3 and id > 4 and id >= 5")
    assert isinstance(plan.residual, tree.Call)
    assert plan.residual.function == "and"
    assert len(plan.residual.arguments) == 2


def test_prefix_with_range_in_reverse() -> None:
    plan = row_select(
        "select no from leg where origin = 'JFK' and day >= '2013-01-01' order by day desc, no desc"
    )
    assert isinstance(plan.access, RangeAccess)
    assert len(plan.access.prefix) == 1
    assert plan.access.low is not None
    assert plan.is_reverse


@pytest.mark.parametrize(
    ("text", "is_ordered", "is_reverse"),
    [
        ("select * from t", False, False),
        ("select * from t order by id", True, False),
        ("select * from t order by id, name desc", True, False),
        ("select * from leg order by origin desc, day desc limit 5", True, True),
        ("select * from t where name = 'x' limit 1", False, False),
        ("select * from t limit ? offset ?", False, False),
    ],
)
def test_full(text: str, is_ordered: bool, is_reverse: bool) -> None:
    plan = row_select(text, *([1, 2] if "?" in text else []))
    assert plan.access == FullAccess(is_ordered)
    assert plan.is_reverse is is_reverse


@pytest.mark.parametrize("text", ["select count(*) from t", "select count(*) n from t limit ?"])
def test_count(text: str) -> None:
    plan = row_select(text, *([1] if "?" in text else []))
    assert plan.access == CountAccess()
    assert not plan.is_scan


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) from t where id > 1",
        "select count(*) from t order by 1",
        "select count(*), 1 from t",
        "select count(*) from t group by name",
        "select count(id) from t",
        "select count(*) filter (where id > 1) from t",
        "select count(*) over () from t",
        "select count(*) from t, heap",
        "select distinct name from t",
        "select name from t group by name",
        "select * from t order by name",
        "select * from leg order by day",
        "select * from leg order by origin, day desc",
        "select * from leg where origin = 'JFK' order by no",
        "select * from t where id = 1 and name like 'x%'",
        "select n / 2 from t where id = 1",
        "select price + 1 from t where id = 1",
        "select 1 from t join heap on a = id",
        "select * from t where id > 1.5",
        "select 1 from (select 2) as q",
        "values (1)",
    ],
)
def test_vector(text: str) -> None:
    assert isinstance(planned(text), VectorSelect)


def test_a_filter_over_every_row_may_go_either_way() -> None:
    plan = planned("select * from t where name = 'x'")
    assert isinstance(plan, RowSelect)
    assert plan.is_scan
    for text in ("select * from t", "select * from t where name = 'x' limit 5"):
        plan = planned(text)
        assert isinstance(plan, RowSelect)
        assert not plan.is_scan
    deletion = planned("delete from t where name = 'x'")
    assert isinstance(deletion, DeletePlan)
    assert isinstance(deletion.find, RowFind)
    assert isinstance(deletion.find.by_vector, VectorFind)


def test_update_by_row_path() -> None:
    plan = planned("update t set n = n + 1, x = 5, name = ? where id = ?", "a", 5)
    assert isinstance(plan, UpdatePlan)
    assert isinstance(plan.find, RowFind)
    assert isinstance(plan.find.access, PointAccess)


def test_update_whose_values_need_the_vector_path() -> None:
    plan = planned("update leg set delay = delay / 2, day = '2024-01-01' where no = 5")
    assert isinstance(plan, UpdatePlan)
    assert isinstance(plan.find, VectorFind)
    assert plan.find.value_count == 2
    kinds = [str(kind) for _, kind in plan.find.query.columns]
    assert kinds == ["TEXT", "DATE", "INTEGER", "BIGINT", "DATE"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("delete from t", RowFind),
        ("delete from t where id = 5 and flag", RowFind),
        ("delete from leg where origin = 'JFK'", RowFind),
        ("delete from t where name = 'x'", RowFind),
        ("delete from t where id = 5 and name like 'x%'", VectorFind),
    ],
)
def test_delete(text: str, kind: type) -> None:
    plan = planned(text)
    assert isinstance(plan, DeletePlan)
    assert isinstance(plan.find, kind)


def test_insert() -> None:
    rows = planned("insert into t (id, name, x) values (?, 'a', 1.5), (2, ?, 7)", 1, "b")
    assert isinstance(rows, InsertPlan)
    assert rows.source is None
    computed = planned("insert into t (id, name) values (1, 'a' || 'b')")
    assert isinstance(computed, InsertPlan)
    assert isinstance(computed.source, VectorSelect)
    copied = planned("insert into heap select id from t")
    assert isinstance(copied, InsertPlan)
    assert isinstance(copied.source, RowSelect)


def test_what_takes_too_long_to_compile_is_for_the_vector_path() -> None:
    def condition(count: int) -> str:
        return " or ".join(f"n + 1 = {number}" for number in range(count // 3))

    for count, is_row in ((row_nodes_max - 10, True), (row_nodes_max + 10, False)):
        found = planned(f"select id from t where {condition(count)}")
        assert isinstance(found, RowSelect) is is_row
        deleted = planned(f"delete from t where {condition(count)}")
        assert isinstance(deleted, DeletePlan)
        assert isinstance(deleted.find, RowFind) is is_row
        changed = planned(f"update t set n = 1 where {condition(count)}")
        assert isinstance(changed, UpdatePlan)
        assert isinstance(changed.find, RowFind) is is_row
    rows = ", ".join(f"({key}, {key} + 1 + 2)" for key in range(row_nodes_max))
    inserted = planned(f"insert into t (id, n) values {rows}")  # by several functions
    assert isinstance(inserted, InsertPlan)
    assert inserted.source is None


def test_planning_a_long_insert_looks_at_the_interrupt() -> None:
    rows = ", ".join(f"({key})" for key in range(10 * interrupt_nodes))
    statement = compile_sql(f"insert into t (id) values {rows}", FixedCatalog(), ()).statement
    looks: list[int] = []
    plan_statement(statement, lambda: looks.append(1))
    assert len(looks) == 10
