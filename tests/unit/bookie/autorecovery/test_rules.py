"""Spans, pauses, grace periods, lost bookies and votes: the rules without anything around them."""

from dataclasses import replace

import pytest

from bookie.autorecovery.backoff import BackOff, GracePeriods
from bookie.autorecovery.election import winner
from bookie.autorecovery.loss_watch import LossWatch
from bookie.autorecovery.spans import (
    Span,
    ends_at,
    entries_at,
    members_of,
    missing_members,
    open_segment,
    replaced,
    spans_of,
)
from bookie.ledger.types import BookieId, EntryId, LedgerMetadata, LedgerState, Segment
from tests.fixtures.recovery_world import metadata_of

A, B, C = (BookieId(name) for name in "ABC")
FIRST = tuple(BookieId(f"b{n}") for n in range(3))
LATER = Segment(EntryId(10), (BookieId("b7"), BookieId("b1"), BookieId("b8")))


def closed(last: int, *later: Segment) -> LedgerMetadata:
    return metadata_of(3, 2, 2, *later).closed(EntryId(last), 100)


# --- spans ----------------------------------------------------------------------------------------


def test_the_last_segment_is_settled_only_when_closed() -> None:
    found = metadata_of(3, 2, 2, LATER)
    for state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
        assert spans_of(found.with_state(state)) == [Span(0, 9, FIRST)]
        assert open_segment(found.with_state(state)) == LATER
    assert spans_of(closed(12, LATER)) == [Span(0, 9, FIRST), Span(10, 12, LATER.ensemble)]
    assert open_segment(closed(12, LATER)) is None


def test_spans_of_a_ledger_that_ends_before_its_last_segment() -> None:
    assert spans_of(closed(9, LATER)) == [Span(0, 9, FIRST), Span(10, 9, LATER.ensemble)]
    assert spans_of(closed(4, LATER)) == [Span(0, 4, FIRST), Span(10, 4, LATER.ensemble)]
    assert spans_of(closed(-1)) == [Span(0, -1, FIRST)]


@pytest.mark.parametrize("last", range(-1, 8))
@pytest.mark.parametrize("sizes", [(3, 2), (3, 3), (5, 2), (1, 1), (4, 1)])
def test_ends_are_the_first_and_last_of_the_entries(last: int, sizes: tuple[int, int]) -> None:
    found = metadata_of(*sizes, 1)
    span = Span(2, last, found.last_segment.ensemble)
    for index in range(sizes[0]):
        entries = list(entries_at(found, span, index))
        expected = tuple(dict.fromkeys((entries[0], entries[-1]))) if entries else ()
        assert ends_at(found, span, index) == expected


def test_a_copy_changes_one_member_of_one_segment() -> None:
    found = closed(12, LATER)
    after = replaced(found, Span(0, 9, FIRST), BookieId("b1"), A)
    assert after is not None
    assert after.segments == (Segment(EntryId(0), (FIRST[0], A, FIRST[2])), LATER)
    assert (after.state, after.last_entry_id, after.length) == (LedgerState.CLOSED, 12, 100)


def test_a_copy_that_came_too_late_changes_nothing() -> None:
    span = Span(0, 9, FIRST)
    found = closed(12, LATER)
    assert replaced(found, span, A, B) is None, "A was replaced already"
    assert replaced(found, span, FIRST[0], FIRST[1]) is None, "b1 is a member already"
    assert replaced(found, Span(5, 9, FIRST), FIRST[0], A) is None, "there is no such segment"
    opened = metadata_of(3, 2, 2, LATER)
    assert replaced(opened, Span(10, 12, LATER.ensemble), BookieId("b7"), A) is None


def test_unknown_fields_of_a_segment_stay() -> None:
    first = Segment(EntryId(0), FIRST, b"\x50\x01")
    found = replace(closed(3), segments=(first,))
    after = replaced(found, Span(0, 3, FIRST), FIRST[0], A)
    assert after is not None
    assert after.segments[0].unknown_fields == b"\x50\x01"


def test_missing_members() -> None:
    found = closed(12, LATER)
    assert members_of(found) == (*FIRST, BookieId("b7"), BookieId("b8"))
    registered = {*FIRST, BookieId("b7")}
    assert missing_members(found, registered, ()) == ("b8",)
    assert missing_members(found, registered, {FIRST[0]}) == ("b0", "b8")


def test_an_open_last_segment_may_keep_spared_members() -> None:
    found = metadata_of(3, 2, 2, LATER)
    all_of = {*FIRST, *LATER.ensemble}
    left = {FIRST[0], FIRST[1], BookieId("b7")}
    assert missing_members(found, all_of, left) == ("b0", "b1", "b7")
    assert missing_members(found, all_of, left, left) == ("b0", "b1"), "they have settled entries"
    assert missing_members(found, all_of - left, left, left) == ("b0", "b1", "b7")
    assert missing_members(closed(12, LATER), all_of, left, left) == ("b0", "b1", "b7")


# --- pauses and grace periods ---------------------------------------------------------------------


def test_pauses_double_up_to_the_longest() -> None:
    back_off = BackOff(320.0)
    now_s, pauses = 0.0, []
    for _ in range(8):
        back_off.failed(7, now_s)
        begun = now_s
        while not back_off.is_due(7, now_s):
            now_s += 10.0
        pauses.append(now_s - begun)
    assert pauses == [10, 20, 40, 80, 160, 320, 320, 320]
    assert back_off.count_of(7) == 8
    back_off.succeeded(7)
    assert (back_off.count_of(7), back_off.is_due(7, now_s)) == (0, True)


def test_failures_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookie.autorecovery.backoff.LEDGERS_MAX", 2)
    back_off = BackOff(320.0)
    for ledger_id in range(3):
        back_off.failed(ledger_id, 0.0)
    assert [back_off.count_of(ledger_id) for ledger_id in range(3)] == [0, 1, 1]


def test_a_grace_period_begins_anew_with_another_segment() -> None:
    grace = GracePeriods(30.0)
    old, new = Segment(EntryId(0), FIRST), LATER
    grace.begin(7, old, 0.0)
    grace.begin(7, old, 20.0)
    assert grace.due(29.0) == {}
    assert grace.due(30.0) == {7: old}
    grace.begin(7, new, 30.0)
    assert grace.due(59.0) == {}
    assert 7 in grace
    assert grace.due(60.0) == {7: new}
    grace.end(7)
    assert (grace.due(99.0), grace.ledger_ids) == ({}, ())


# --- lost bookies ---------------------------------------------------------------------------------


def watch(delay_s: float) -> LossWatch:
    """Return one that has looked at 0 and found nothing lost."""
    made = LossWatch(1000.0, delay_s, 0.0)
    assert made.due_s == 0.0, "a new auditor looks at once"
    made.looked((), 0.0)
    assert made.due_s == 1000.0
    return made


def test_one_lost_bookie_is_waited_for() -> None:
    made = watch(30.0)
    made.on_bookies({A}, 5.0)
    made.on_bookies({A}, 20.0)
    assert made.due_s == 35.0
    made.looked(made.lost, 35.0)
    made.on_bookies({A}, 40.0)
    assert made.due_s == 1035.0


def test_one_that_returns_is_not_lost() -> None:
    made = watch(30.0)
    made.on_bookies({A}, 5.0)
    made.on_bookies((), 20.0)
    assert made.due_s == 1000.0
    made.on_bookies({A}, 50.0)
    assert made.due_s == 80.0, "the wait begins anew"


def test_several_are_not_waited_for() -> None:
    made = watch(30.0)
    made.on_bookies({A}, 5.0)
    made.on_bookies({A, B}, 6.0)
    assert made.due_s == 6.0


def test_one_beside_those_that_were_looked_for_is_waited_for() -> None:
    made = watch(30.0)
    made.on_bookies({A, B}, 5.0)
    made.looked({A, B}, 6.0)
    made.on_bookies({A, B, C}, 10.0)
    assert made.due_s == 40.0


def test_one_that_is_lost_as_another_returns_is_waited_for_from_then_on() -> None:
    made = watch(30.0)
    made.on_bookies({A}, 5.0)
    made.on_bookies({B}, 34.0)
    assert made.due_s == 64.0
    made.on_bookies({B}, 50.0)
    assert made.due_s == 64.0


def test_one_that_the_look_found_returned_is_waited_for_anew() -> None:
    made = watch(30.0)
    made.on_bookies({A}, 5.0)
    made.looked((), 35.0)
    assert made.due_s == 65.0


def test_without_a_delay_the_look_is_due_at_once() -> None:
    made = watch(0.0)
    made.on_bookies({A}, 5.0)
    assert made.due_s == 5.0


def test_a_delay_that_is_written_asks_for_a_look() -> None:
    made = watch(3000.0)
    made.on_bookies({A}, 5.0)
    made.on_delay(3000.0, 7.0)
    assert made.due_s == 7.0


def test_one_that_was_lost_returned_and_is_lost_again_is_new() -> None:
    made = watch(0.0)
    made.on_bookies({A}, 5.0)
    made.looked({A}, 6.0)
    made.on_bookies((), 7.0)
    made.on_bookies({A}, 8.0)
    assert made.due_s == 8.0


def test_one_that_is_lost_during_the_look_is_new() -> None:
    made = watch(0.0)
    made.on_bookies({A}, 5.0)
    made.on_bookies({A, C}, 6.0)
    made.looked({A}, 7.0)
    assert made.due_s == 7.0


def test_one_that_the_look_found_lost_first_is_not_new() -> None:
    made = watch(0.0)
    made.on_bookies({A}, 5.0)
    made.looked({A, B}, 6.0)
    made.on_bookies({A, B}, 7.0)
    assert made.due_s == 1006.0


# --- votes ----------------------------------------------------------------------------------------


def test_the_lowest_vote_wins() -> None:
    assert winner(["V_0000000012", "V_0000000003", "V_0000000100", "other"]) == "V_0000000003"
    assert winner(["other"]) is None
