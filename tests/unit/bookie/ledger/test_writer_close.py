"""The writer's machine when it closes: §4.5, G12, LedgerClose2Test, LedgerCloseTest, ADR 0012."""

import pytest

from bookie.errors import (
    AddInterruptedError,
    ClientClosedError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataStoreError,
    MetadataVersionError,
    NoSuchLedgerMetadataError,
    Retry,
)
from bookie.ledger.types import EntryId, LedgerState, Status
from tests.fixtures.writer_desk import Desk


def desk_with(*payloads: bytes) -> Desk:
    """Return a desk with these entries acknowledged."""
    desk = Desk()
    desk.add(*payloads)
    for entry_id in range(len(payloads)):
        desk.ok(entry_id, "b1", "b2")
    return desk


def test_4_5_close_writes_the_lac_and_the_length() -> None:
    desk = desk_with(b"12345", b"678")
    desk.close()
    written = desk.written()
    assert (written.state, written.last_entry_id, written.length) == (LedgerState.CLOSED, 1, 8)
    assert desk.done == ["close"]
    with pytest.raises(LedgerClosedError):
        desk.add(b"late")


def test_4_5_an_empty_ledger_closes_at_minus_one() -> None:
    desk = Desk()
    desk.close()
    written = desk.written()
    assert (written.last_entry_id, written.length) == (-1, 0)


def test_g12_close_fails_pending_adds_and_takes_their_length_off() -> None:
    """LedgerCloseTest.testLedgerCloseWithConsistentLength."""
    desk = desk_with(b"12345")
    desk.add(b"678", b"9")
    desk.ok(2, "b1", "b2")  # complete, but behind one that is not
    desk.close()
    assert list(desk.failed) == [b"678", b"9"]
    assert isinstance(desk.failed[b"9"], AddInterruptedError)
    assert desk.failed[b"9"].retry is Retry.UNKNOWN
    desk.ok(1, "b1", "b2", "b3")
    written = desk.written()
    assert (written.last_entry_id, written.length) == (0, 5)
    assert desk.added == [0]


def test_4_5_closing_twice_is_closing_once() -> None:
    desk = desk_with(b"a")
    desk.close()
    desk.run(desk.machine.close("again"))
    desk.written()
    assert desk.done == ["close", "again"]
    desk.run(desk.machine.close("third"))
    assert desk.done[-1] == "third"
    assert desk.writes == []


def test_4_5_closed_by_another_at_the_same_place_is_success() -> None:
    """LedgerClose2Test: same last entry and length; also our own write with a lost answer."""
    desk = desk_with(b"12345")
    desk.close()
    desk.found(desk.metadata.closed(EntryId(0), 5))
    assert desk.done == ["close"]


@pytest.mark.parametrize(("last", "length"), [(1, 5), (0, 6), (-1, 0)])
def test_4_5_closed_by_another_elsewhere_is_an_error(last: int, length: int) -> None:
    """LedgerClose2Test: another last entry, or another length."""
    desk = desk_with(b"12345")
    desk.close()
    desk.found(desk.metadata.closed(EntryId(last), length))
    assert isinstance(desk.failed["close"], MetadataVersionError)
    assert f"closed at {last} with {length}" in str(desk.failed["close"])


def test_4_5_metadata_that_changed_and_is_open_is_closed_at_its_new_version() -> None:
    """LedgerClose2Test: a segment was re-replicated meanwhile; that is kept."""
    desk = desk_with(b"a")
    desk.close()
    desk.found(desk.metadata.with_ensemble(EntryId(0), ("b9", "b2", "b3")), 4)
    assert desk.writes[0].version == 4
    written = desk.written()
    assert written.last_segment.ensemble == ("b9", "b2", "b3")
    assert desk.done == ["close"]


def test_adr_0012_a_ledger_in_recovery_is_not_closed_over_the_recoverer() -> None:
    """LedgerClose2Test.testMetadataCloseMarkedInRecoveryWhileClosing, decided the other way."""
    desk = desk_with(b"a")
    desk.close()
    desk.found(desk.metadata.with_state(LedgerState.IN_RECOVERY))
    assert desk.writes == []
    assert isinstance(desk.failed["close"], LedgerFencedError)
    # Asked again once the recoverer has finished at our own end, it is closed.
    desk.run(desk.machine.close("again"))
    assert (desk.writes, desk.reads) == ([], 1)
    desk.found(desk.metadata.closed(EntryId(0), 1))
    assert desk.done == ["again"]


@pytest.mark.parametrize("state", [LedgerState.CLOSED, LedgerState.IN_RECOVERY])
def test_what_another_decided_during_a_change_is_never_overwritten(state: LedgerState) -> None:
    desk = desk_with(b"a")
    desk.add(b"b")
    desk.bad(1, "b1")
    closed = desk.metadata.closed(EntryId(1), 2)
    desk.found(closed if state is LedgerState.CLOSED else desk.metadata.with_state(state))
    desk.close()
    assert desk.writes == []
    if state is LedgerState.IN_RECOVERY:
        desk.found(closed)
    assert isinstance(desk.failed["close"], MetadataVersionError)


def test_a_change_under_way_ends_before_the_close_begins() -> None:
    desk = desk_with(b"a")
    desk.add(b"b")
    desk.bad(1, "b1")
    desk.close()
    assert isinstance(desk.failed[b"b"], AddInterruptedError)
    changed = desk.written()
    assert not changed.is_closed
    closed = desk.written()
    assert (closed.last_entry_id, closed.length) == (0, 1)
    assert closed.segments == changed.segments
    assert desk.done == ["close"]


def test_a_fenced_handle_can_still_learn_that_its_end_stands() -> None:
    desk = desk_with(b"a")
    desk.add(b"b")
    desk.bad(1, "b1", Status.FENCED)
    desk.close()
    desk.found(desk.metadata.closed(EntryId(0), 1))
    assert desk.done == ["close"]


def test_a_close_whose_answer_stays_away_may_be_tried_again() -> None:
    desk = desk_with(b"a")
    desk.close()
    written = desk.take_write()
    desk.run(desk.machine.on_metadata_failed(MetadataStoreError("no answer")))
    assert desk.failed["close"].retry is Retry.UNKNOWN
    desk.run(desk.machine.close("again"))
    desk.found(written)
    assert desk.done == ["again"]


def test_closing_a_deleted_ledger_says_that_it_is_gone() -> None:
    desk = desk_with(b"a")
    desk.close()
    desk.take_write()
    desk.run(desk.machine.on_metadata_failed(NoSuchLedgerMetadataError("ledger 7")))
    assert isinstance(desk.failed["close"], NoSuchLedgerMetadataError)


def test_abandon_leaves_the_ledger_open() -> None:
    desk = desk_with(b"a")
    desk.add(b"b")
    desk.run(desk.machine.abandon())
    assert isinstance(desk.failed[b"b"], ClientClosedError)
    assert desk.writes == []
    desk.ok(1, "b1", "b2")
    assert desk.added == [0]
    with pytest.raises(ClientClosedError):  # no success: the ledger is open
        desk.close()


def test_abandon_during_a_close_says_that_it_may_have_happened() -> None:
    desk = desk_with(b"a")
    desk.close()
    desk.run(desk.machine.abandon())
    assert isinstance(desk.failed["close"], ClientClosedError)
    assert desk.failed["close"].retry is Retry.UNKNOWN


def test_abandon_after_close_is_nothing() -> None:
    desk = desk_with(b"a")
    desk.close()
    desk.written()
    desk.run(desk.machine.abandon())
    desk.run(desk.machine.close("again"))
    assert desk.done == ["close", "again"]
