"""Where ledgers lie: the paths of the four layouts, forth and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.errors import IncorrectParameterError
from bookie.metadata.ledger_paths import (
    LONG,
    LONG_ID_LIMIT,
    SHORT,
    SHORT_ID_LIMIT,
    SPECIAL_NAMES,
    UNSPLIT,
    Layout,
    ledger_id_of,
    ledger_path,
    shapes_of,
)

ROOT = "/ledgers"


@pytest.mark.parametrize(
    ("layout", "ledger_id", "path"),
    [
        (Layout.HIERARCHICAL, 0, "/ledgers/00/0000/L0000"),
        (Layout.HIERARCHICAL, 7, "/ledgers/00/0000/L0007"),
        (Layout.HIERARCHICAL, 1234567890, "/ledgers/12/3456/L7890"),
        (Layout.HIERARCHICAL, 2**31 - 2, "/ledgers/21/4748/L3646"),
        (Layout.HIERARCHICAL, 2**31 - 1, "/ledgers/000/0000/0021/4748/L3647"),
        (Layout.HIERARCHICAL, 1 << 32, "/ledgers/000/0000/0042/9496/L7296"),
        (Layout.HIERARCHICAL, 2**63 - 1, "/ledgers/922/3372/0368/5477/L5807"),
        (Layout.LONG_HIERARCHICAL, 7, "/ledgers/000/0000/0000/0000/L0007"),
        (Layout.LEGACY_HIERARCHICAL, 7, "/ledgers/00/0000/L0007"),
        (Layout.FLAT, 7, "/ledgers/L0000000007"),
    ],
)
def test_paths(layout: Layout, ledger_id: int, path: str) -> None:
    assert ledger_path(ROOT, layout, ledger_id) == path


@pytest.mark.parametrize(
    ("layout", "ledger_id"),
    [
        (Layout.HIERARCHICAL, -1),
        (Layout.HIERARCHICAL, LONG_ID_LIMIT),
        (Layout.LEGACY_HIERARCHICAL, SHORT_ID_LIMIT),
        (Layout.FLAT, SHORT_ID_LIMIT),
    ],
)
def test_ids_that_a_layout_has_no_place_for(layout: Layout, ledger_id: int) -> None:
    with pytest.raises(IncorrectParameterError, match=str(ledger_id)):
        ledger_path(ROOT, layout, ledger_id)


@given(st.sampled_from(list(Layout)), st.integers(0, LONG_ID_LIMIT - 1))
def test_a_path_spells_its_ledger_and_no_other_shape_reads_it(
    layout: Layout, ledger_id: int
) -> None:
    shapes = shapes_of(layout)
    ledger_id %= shapes[-1].limit
    parts = tuple(ledger_path(ROOT, layout, ledger_id).removeprefix(f"{ROOT}/").split("/"))
    read = [ledger_id_of(parts, shape) for shape in shapes]
    assert [found for found in read if found is not None] == [ledger_id]


@pytest.mark.parametrize(
    "text",
    [
        "00/0000/0007",
        "00/0000/L007",
        "00/0000/L00007",
        "0/0000/L0007",
        "00/000x/L0007",
        "00/0000/L٠٠٠٧",
        "00/0000/L-007",
        "00/0000",
        "99/9999/L9999",
        "idgen/ID-0000000001",
        "ID-0000000001",
    ],
)
def test_what_spells_no_ledger(text: str) -> None:
    parts = tuple(text.split("/"))
    assert [ledger_id_of(parts, shape) for shape in (SHORT, LONG, UNSPLIT)] == [None] * 3


@pytest.mark.parametrize("name", SPECIAL_NAMES)
def test_special_names_are_no_ledgers(name: str) -> None:
    assert [ledger_id_of((name,), shape) for shape in (SHORT, LONG, UNSPLIT)] == [None] * 3
