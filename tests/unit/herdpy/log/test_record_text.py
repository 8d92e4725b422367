"""What a person reads of log records: one line each, bounded, without values of rows."""

import typing

import pytest

from herdpy.log import record as records
from herdpy.log.record import (
    BeginLedger,
    ChangeAccess,
    Commit,
    CreateTable,
    EndLeases,
    Record,
    Rows,
    StageRows,
)
from herdpy.log.record_text import record_text

SECRET = "told to no operator"


def of_type(kind: type) -> Record:
    """Return a record of a kind, of any values."""
    values: dict[object, object] = {
        int: 7, float: 1.5, bool: True, str: "a\x1b", bytes: b"x", records.TransactionId: (2, 1),
    }  # fmt: skip
    fields = {}
    for name, hint in typing.get_type_hints(kind).items():
        if hint == records.TransactionId | None or hint == records.TransactionId:
            fields[name] = (2, 1)
        elif hint in (records.CommitToken | None, records.CommitToken):
            fields[name] = ("session", 3)
        elif typing.get_origin(hint) is list:
            fields[name] = ["b"] if typing.get_args(hint) == (str,) else []
        else:
            fields[name] = values[next(each for each in typing.get_args(hint) or (hint,))]
    return kind(**fields)


def test_each_kind_has_a_line() -> None:
    lines = {record_text(of_type(kind)) for kind in typing.get_args(Record)}
    assert len(lines) == len(typing.get_args(Record))
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (BeginLedger(3, -1, -1), "begin ledger of epoch 3, the first"),
        (BeginLedger(3, 8, 12), "begin ledger of epoch 3, behind entry 12 of ledger 8"),
        (Commit((2, 1), ("s", 4)), "commit of 2.1, token s.4"),
        (CreateTable((2, 1), 1, [5, "a\x1b[2J", 1]), "create table 5 a\\x1b[2J of 2.1"),
        (ChangeAccess(None, 1, [[SECRET]]), "change access by itself: 1 changes"),
        (StageRows(9, 0, 2, [1], b"xyz"), "stage rows 9: 2 from row 0, 3 bytes"),
        (EndLeases([str(each) for each in range(7)]), "end leases 0, 1, 2, 3, 4 and 2 more"),
    ],
)
def test_what_it_says(record: Record, text: str) -> None:
    assert record_text(record) == text


def test_rows_are_counted_and_not_shown() -> None:
    old, new = (1, SECRET), (1, "new")
    record = Rows((2, 1), 3, 0, True, 5, 2, [old], [(old, new), (old, None), (None, new)])
    assert record_text(record) == (
        "rows of 2.1 table 5 (version 2): 2 inserted, 1 updated, 1 deleted, statement 3"
    )
    part = Rows((2, 1), 3, 1, False, 5, 2, [old], [])
    assert record_text(part).endswith(", statement 3, part 1, more to come")


def test_long_names_are_cut() -> None:
    assert len(record_text(CreateTable(None, 1, [5, "n" * 10_000]))) < 200
