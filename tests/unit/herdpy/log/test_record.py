"""Records: golden bytes, splitting, wide decimals, and malformed input."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdpy import limits
from herdpy.errors import InvariantViolation
from herdpy.log import record as codec
from herdpy.log.record import (
    Begin,
    BeginSpill,
    ChangeAccess,
    Commit,
    CreateTable,
    DropTable,
    Expire,
    Noop,
    Record,
    Refuse,
    Reserve,
    Rollback,
    RollbackTo,
    Rows,
    SetSequence,
    decode,
    encode,
    encode_rows,
    rows_of,
)
from herdpy.model.schema import Column, Table, table_from_plain, table_to_plain
from herdpy.model.types import BIGINT, DOUBLE, TEXT, Row, decimal_type

PLAIN = Table(
    5,
    "t",
    (Column(1, "id", BIGINT), Column(2, "name", TEXT), Column(3, "x", DOUBLE)),
    key=(0,),
    version=3,
)
WIDE = Table(6, "w", (Column(1, "id", BIGINT), Column(2, "d", decimal_type(38, 2))), key=(0,))


def rows_records(table: Table, tx: Any, statement: int, inserts: Any, changes: Any) -> Any:
    record = Rows(tx, statement, 0, True, table.id, table.version, inserts, changes)
    return encode_rows(record, table)


GOLDEN: list[tuple[Record, str]] = [
    (Noop(), "9100"),
    (Begin((1, 2), 3), "9301920103".replace("920103", "92010203")),
    (
        Rows((1, 2), 4, 0, True, 5, 3, [(1, "a", 0.5)], [((1, None, None), None)]),
        "9b02920102040 0c3050391 9301a161cb3fe0000000000000 91 92 9301c0c0 c0c000".replace(" ", ""),
    ),
    (Rows(None, 1, 0, True, 5, 3, [], []), "9b02c00100c305039090c000"),
    (Rows(None, 1, 0, True, 5, 3, [], [], ("s", 9), 8), "9b02c00100c30503909092a1730908"),
    (Commit((1, 2)), "9403920102c000"),
    (Commit((1, 2), ("s", 9), 8), "940392010292a1730908"),
    (Rollback((1, 2)), "9204920102"),
    (RollbackTo((1, 2), 7), "930592010207"),
    (BeginSpill((1, 2), 7, 5, 3, 9, "upsert", True), "980b9201020705" + "0309a6757073657274c3"),
    (CreateTable(None, 1, [1, "t"]), "9506c0019201a174c0"),
    (CreateTable(None, 1, [1, "t"], "a"), "9506c0019201a174a161"),
    (DropTable((1, 2), 1, 5), "94079201020105"),
    (Reserve(5, 64), "93080540"),
    (SetSequence(5, 64, -3), "940c0540fd"),
    (ChangeAccess((1, 2), 1, [[[2, "a", "b"], [True]]]), "940a9201020191929302a161a16291c3"),
    (
        ChangeAccess((1, 2), 1, [[[7, "a", "lock_timeout"], [None, 9]]]),
        "940a9201020191929307a161ac6c6f636b5f74696d656f757492c009",
    ),
    (Refuse(("s", 9)), "921492a17309"),
    (Expire(["s"]), "921591a173"),
]


@pytest.mark.parametrize(("record", "data"), GOLDEN, ids=lambda item: str(item)[:12])
def test_golden_bytes(record: Record, data: str) -> None:
    assert encode(record).hex() == data
    assert decode(bytes.fromhex(data)) == record


def test_records_without_later_fields_are_read() -> None:
    assert decode(bytes.fromhex("9406c0019201a174")) == CreateTable(None, 1, [1, "t"])
    assert decode(bytes.fromhex("9902c00100c305039090")) == Rows(None, 1, 0, True, 5, 3, [], [])
    assert "a161" not in repr(ChangeAccess(None, 1, [[[1, "a161"], None]]))


def test_reserved_and_unknown_kinds_are_refused() -> None:
    for kind in (9, 10, 11, 99, -1, "x"):
        with pytest.raises(ValueError):
            decode(msgspec.msgpack.encode([kind, 1, 2]))


def test_every_cut_is_a_value_error() -> None:
    for _, text in GOLDEN:
        data = bytes.fromhex(text)
        for length in range(len(data)):
            with pytest.raises(ValueError):
                decode(data[:length])
        with pytest.raises(ValueError):
            decode(data + b"\0")


def test_nesting_without_end_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        decode(b"\x94\x06\xc0\x01" + b"\x91" * 100_000 + b"\xc0")


@given(st.binary(max_size=60))
def test_garbage_decodes_or_is_a_value_error(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        pass


def test_a_table_survives_create_table() -> None:
    record = decode(encode(CreateTable((1, 1), 1, table_to_plain(WIDE))))
    assert isinstance(record, CreateTable)
    assert table_from_plain(record.table) == WIDE


def rows_again(table: Table, data: tuple[bytes, ...]) -> tuple[list[Row], list[Any]]:
    inserts: list[Row] = []
    changes: list[Any] = []
    for part, item in enumerate(data):
        assert len(item) <= codec.record_bytes_max
        record = decode(item)
        assert isinstance(record, Rows)
        assert (record.part, record.is_last) == (part, part == len(data) - 1)
        more_inserts, more_changes = rows_of(record, table)
        assert not (more_inserts and changes)
        inserts += more_inserts
        changes += more_changes
    return inserts, changes


def test_a_batch_is_one_record() -> None:
    rows: list[Row] = [(number, f"name {number}", number / 3) for number in range(10_000)]
    data = rows_records(PLAIN, (1, 1), 1, rows, [])
    assert len(data) == 1
    assert rows_again(PLAIN, data) == (rows, [])


def test_a_statement_without_rows_is_one_record() -> None:
    data = rows_records(PLAIN, None, 1, [], [])
    assert len(data) == 1
    assert rows_again(PLAIN, data) == ([], [])


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=30), st.floats())),
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans())),
    st.integers(120, 400),
)
def test_rows_split_in_order(
    inserts: list[Row], picks: list[tuple[int, bool, bool]], bytes_max: int
) -> None:
    changes = [
        ((n, "old", 1.0) if has_old else None, (n, None, -0.0) if has_new or not has_old else None)
        for n, has_old, has_new in picks
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "record_bytes_max", bytes_max)
        try:
            found = rows_again(PLAIN, rows_records(PLAIN, (1, 1), 1, inserts, changes))
        except InvariantViolation:  # one row of 30 characters of four bytes is too long
            assert any(len(str(row[1]).encode()) > 60 for row in inserts)
            return
    assert [list(map(repr, row)) for row in found[0]] == [list(map(repr, row)) for row in inserts]
    assert repr(found[1]) == repr(changes)


def test_a_row_that_fits_in_no_record_is_an_invariant() -> None:
    with pytest.raises(InvariantViolation, match="'t'"):
        rows_records(PLAIN, None, 1, [(1, "x" * limits.record_bytes_max, 0.0)], [])


@given(st.integers(-(10**38) + 1, 10**38 - 1) | st.none())
def test_wide_decimals(value: int | None) -> None:
    inserts: list[Row] = [(1, value)]
    changes: list[Any] = [((1, value), None), ((1, 0), (1, value)), (None, (2, value))]
    assert rows_again(WIDE, rows_records(WIDE, None, 1, inserts, changes)) == (inserts, changes)


def test_doubles_keep_their_bits() -> None:
    rows: list[Row] = [(1, None, -0.0), (2, None, math.inf), (3, None, math.nan)]
    (found, _) = rows_again(PLAIN, rows_records(PLAIN, None, 1, rows, []))
    assert repr(found) == repr(rows)


def test_rows_of_another_definition_are_refused() -> None:
    record = decode(rows_records(PLAIN, None, 1, [(1, "a", 1.0)], [])[0])
    assert isinstance(record, Rows)
    with pytest.raises(InvariantViolation, match="version 3"):
        rows_of(record, WIDE)
    short = Rows(None, 1, 0, True, 5, 3, [(1, "a")], [])
    with pytest.raises(InvariantViolation, match="3 columns"):
        rows_of(short, PLAIN)
