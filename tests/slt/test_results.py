"""Values as sqllogictest writes them, their orders and digests."""

import hashlib
from decimal import Decimal
from typing import Any

import pytest

from tests.slt.results import difference, digest_of, digest_of_expected, in_order, texts_of


@pytest.mark.parametrize(
    ("kind", "value", "text", "is_coerced"),
    [
        ("I", 7, "7", False),
        ("I", 2**40, "1099511627776", False),
        ("I", True, "1", True),
        ("I", -2.5, "-2", True),
        ("I", Decimal("2.9"), "2", True),
        ("I", "-12ab", "-12", True),
        ("I", "ab", "0", True),
        ("R", 0.0625, "0.062", False),
        ("R", -0.0, "0.000", False),
        ("R", 2, "2.000", True),
        ("R", Decimal("0.1"), "0.100", True),
        ("R", "1e2x", "100.000", True),
        ("R", "x", "0.000", True),
        ("T", "some text", "some text", False),
        ("T", "", "(empty)", False),
        ("T", "a\tb\x7fé", "a@b@@@", False),
        ("T", 12, "12", True),
        ("T", False, "0", True),
        ("T", 2.0, "2.0", True),
        ("T", 1e20, "1e+20", True),
        ("T", Decimal("2.50"), "2.5", True),
        *((kind, None, "NULL", False) for kind in "IRT"),
    ],
)
def test_values(kind: str, value: Any, text: str, is_coerced: bool) -> None:
    assert texts_of([(value,)], kind) == ([text], is_coerced)


def test_rows_are_sorted_by_the_texts_of_their_columns() -> None:
    values, _ = texts_of([(10, "b"), (9, "a"), (10, "a")], "IT")
    assert values == ["10", "b", "9", "a", "10", "a"]
    assert in_order(values, 2, "nosort") == values
    assert in_order(values, 2, "rowsort") == ["10", "a", "10", "b", "9", "a"]
    assert in_order(values, 2, "valuesort") == ["10", "10", "9", "a", "a", "b"]


def test_the_end_of_a_column_is_no_character_of_the_order() -> None:
    assert in_order(["a", "z", "a b", "a"], 2, "rowsort") == ["a", "z", "a b", "a"]


def test_digests_are_of_lines() -> None:
    digest = hashlib.md5(b"1\nNULL\n").hexdigest()
    assert digest_of(["1", "NULL"]) == digest
    assert digest_of_expected(["1", "NULL"]) == digest
    assert digest_of_expected([f"2 values hashing to {digest}"]) == digest


@pytest.mark.parametrize(
    ("expected", "kind"),
    [
        (["1", "2"], None),
        (["2", "1"], "order"),
        (["1", "3"], "values"),
        (["1"], "number of rows"),
        ([], "number of rows"),
        ([f"2 values hashing to {digest_of(['1', '2'])}"], None),
        ([f"2 values hashing to {digest_of(['2', '1'])}"], "values (digest)"),
        ([f"3 values hashing to {digest_of(['1', '2'])}"], "number of rows"),
    ],
)
def test_differences(expected: list[str], kind: str | None) -> None:
    assert difference(["1", "2"], expected) == kind
