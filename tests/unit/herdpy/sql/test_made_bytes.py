"""What an expression makes for a row, as a sum of lengths; from which length on that is counted."""

import pytest

from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.made_bytes import BYTES, MadeBytes, Varying
from herdpy.sql.text_growth import Growth, GrowthOfQuery
from tests.fixtures.sql_catalog import FixedCatalog

_TABLE = 1


def _bound(text: str, *parameters: object) -> tree.Expression:
    statement = compile_sql(f"SELECT {text} FROM t", FixedCatalog(), parameters).statement
    assert isinstance(statement, tree.SelectStatement)
    body = statement.query.body
    assert isinstance(body, tree.Select)
    return body.outputs[0].expression


def _is_leaf(node: tree.Expression) -> bool:
    return isinstance(node, tree.Aggregate | tree.ScalarSubquery)


def _lengths(node: tree.Expression) -> str:
    match node:
        case tree.ColumnRef(ordinal=ordinal):
            return f"c{ordinal}"
        case tree.Parameter(index=index):
            return f"p{index}"
        case _:
            return type(node).__name__


_NAME, _CODE, _RAW = "c1", "c6", "c7"


@pytest.mark.parametrize(
    ("text", "value", "total"),
    [
        ("upper(name)", {_NAME: 1}, {_NAME: 1}),
        ("upper(?)", {"p0": 1}, {"p0": 1}),
        ("trim(upper(name))", {_NAME: 1}, {_NAME: 3}),  # one that is handed on
        ("name || 'ab'", {_NAME: 1, BYTES: 2}, {_NAME: 1, BYTES: 2}),
        ("name || code || name", {_NAME: 2, _CODE: 1}, {_NAME: 3, _CODE: 2}),
        ("concat(name, 'x', code)", {_NAME: 1, _CODE: 1, BYTES: 1}, None),
        ("concat_ws(code, name, name)", {_NAME: 2, _CODE: 2}, None),
        ("left(name, 3)", {BYTES: 12}, {BYTES: 12}),
        ("left(name, n)", {_NAME: 1}, {_NAME: 1}),
        ("substring(name, n)", {_NAME: 1}, {_NAME: 1}),
        ("substring(name, n, 2)", {BYTES: 8}, {BYTES: 8}),
        ("reverse(name)", {_NAME: 1}, {_NAME: 41}),
        ("split_part(name, ',', 1)", {_NAME: 1}, {_NAME: 18}),
        ("translate(name, 'a', 'b')", {_NAME: 1}, {_NAME: 1}),
        ("translate(name, 'a', 'é')", {_NAME: 4}, {_NAME: 4}),
        ("replace(name, ',', ' ')", {_NAME: 1}, {_NAME: 1}),
        ("replace(name, ',,', '12345')", {_NAME: 3}, {_NAME: 3}),
        ("repeat(name, 7)", {_NAME: 7}, {_NAME: 7}),
        ("lpad(name, 10, '.')", {BYTES: 40}, {BYTES: 40}),
        ("encode(raw, 'hex')", {_RAW: 2}, {_RAW: 4}),
        ("cast(raw AS text)", {_RAW: 2, BYTES: 2}, {_RAW: 6, BYTES: 6}),
        ("cast(name AS bytea)", {_NAME: 1}, {_NAME: 2}),
        ("md5(name)", {BYTES: 32}, {}),
        ("coalesce(upper(name), code)", {_NAME: 1, _CODE: 1}, {_NAME: 2}),
        ("greatest(name, name || 'x')", {_NAME: 1, BYTES: 1}, {_NAME: 2, BYTES: 2}),
        ("nullif(upper(name), 'q')", {_NAME: 1, BYTES: 0}, {_NAME: 2}),
        ("CASE WHEN n > 1 THEN upper(name) ELSE lower(name) END", {_NAME: 1}, {_NAME: 1}),
        ("CASE WHEN n > 1 THEN upper(name) ELSE code END", {_NAME: 1, _CODE: 1}, {_NAME: 1}),
    ],
)
def test_sizes(text: str, value: dict[str, int], total: dict[str, int] | None) -> None:
    made = MadeBytes(_lengths, _is_leaf).of(_bound(text, *["x"] * text.count("?")))
    assert made.value == value
    assert made.is_bounded
    if total is not None:
        assert made.total == total


@pytest.mark.parametrize(
    "text", ["repeat(name, n)", "rpad(name, n, ' ')", "replace(name, code, ?)"]
)
def test_a_length_that_others_do_not_tell(text: str) -> None:
    bound = _bound(f"upper({text})", *["x"] * text.count("?"))
    assert not MadeBytes(_lengths, _is_leaf).of(bound).is_bounded


def test_what_may_be_another_value_in_each_row() -> None:
    found = list(Varying(_is_leaf).of(_bound("upper(?) || n || random() || name", "x")))
    assert [type(part).__name__ for part in found] == ["ColumnRef", "Call", "ColumnRef"]
    assert not list(Varying(_is_leaf).of(_bound("upper(?) || 'x'", "x")))
    case = _bound("CASE n WHEN 1 THEN upper(?) ELSE code END", "x")
    columns = {part for part in Varying(_is_leaf).of(case) if isinstance(part, tree.ColumnRef)}
    assert {column.ordinal for column in columns} == {3, 6}


def _growth(*texts: str, tables: frozenset[int] = frozenset({_TABLE})) -> Growth | None:
    found = GrowthOfQuery()
    for text in texts:
        found.add(_bound(text), _is_leaf, tables)
    return found.growth()


@pytest.mark.parametrize(
    ("text", "longest"),
    [("upper(name)", 32_768), ("name || name || name", 6_553), ("repeat(name, 100)", 327)],
)
def test_from_which_length_on_it_matters(text: str, longest: int) -> None:
    growth = _growth(text)
    assert growth is not None
    assert not growth.is_wide(longest)
    assert growth.is_wide(longest + 1)


def test_what_makes_nothing_never_matters() -> None:
    assert GrowthOfQuery().growth() is None
    assert _growth("repeat(name, n)") is None  # which its own macro counts


@pytest.mark.parametrize(
    "text", ["upper(repeat(name, n))", "string_agg(name, ',') || 'x'", "repeat('x', 40000) || n"]
)
def test_what_may_be_long_of_short_texts(text: str) -> None:
    growth = _growth(text)
    assert growth is not None
    assert growth.is_wide(0)


def test_what_is_made_of_texts_that_a_subquery_has_made() -> None:
    twice = _growth("encode(raw, 'hex')", "encode(raw, 'hex')", tables=frozenset())
    once = _growth("encode(raw, 'hex')", "encode(raw, 'hex')")
    assert twice is not None
    assert once is not None
    assert (once.factor, twice.factor) == (8, 32)
    unbounded = _growth("repeat(name, n)", "upper(name)", tables=frozenset())
    assert unbounded is not None
    assert unbounded.is_wide(0)


def test_a_join_matters_from_one_long_text_on() -> None:
    found = GrowthOfQuery()
    found.add_join()
    growth = found.growth()
    assert growth is not None
    assert not growth.is_wide(32_768)
    assert growth.is_wide(32_769)


def test_a_text_that_is_only_read_matters_where_it_is_a_table_s() -> None:
    growth = GrowthOfQuery().growth(reads_texts=True)
    assert growth is not None
    assert not growth.is_wide(10**6, 32_768)
    assert growth.is_wide(32_769, 32_769)
    made = GrowthOfQuery()
    made.add(_bound("upper(name)"), _is_leaf, {_TABLE})
    both = made.growth(reads_texts=True)
    assert both is not None
    assert both.is_wide(32_769)


def test_a_constant_is_as_long_as_a_column() -> None:
    found = GrowthOfQuery()
    found.add_constant("x" * 10_000)
    found.add(_bound("upper(name)"), _is_leaf, {_TABLE})
    growth = found.growth()
    assert growth is not None
    assert growth.is_wide(0)
