"""The writer's machine when bookies fail: docs/protocols/writer.md, and its defects G7 to G11."""

from dataclasses import replace

import pytest

from bookie.errors import (
    AddInterruptedError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataStoreError,
    NoSuchLedgerMetadataError,
    Retry,
    WriteError,
)
from bookie.ledger.actions import Timer
from bookie.ledger.types import EntryId, LedgerState, Segment, Status
from tests.fixtures.writer_desk import Desk

# --- HandleFailuresTest ---------------------------------------------------------------------------


def test_4_4_one_failure_of_many_entries_is_one_change() -> None:
    """HandleFailuresTest.testChangeTriggeredOneTimeForOneFailure."""
    desk = Desk()
    desk.add(b"a", b"b", b"c")
    for entry_id in range(3):
        desk.bad(entry_id, "b1")
    written = desk.written()
    assert written.segments == (Segment(EntryId(0), ("b4", "b2", "b3")),)
    assert desk.writes == []
    for entry_id in range(3):
        desk.bad(entry_id, "b1")  # late news of one that is gone
    assert desk.writes == []


def test_4_4_a_second_failure_during_the_first_is_handled_after_it() -> None:
    """HandleFailuresTest.testSecondFailureOccursWhileFirstBeingHandled."""
    desk = Desk(bookie_count=5)
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.bad(0, "b2")
    assert desk.written().last_segment.ensemble == ("b4", "b2", "b3")
    desk.ok(0, "b3")
    assert desk.take_sent() == [(0, ("b1", "b2", "b3"))]  # nothing again before the second
    assert desk.written().last_segment.ensemble == ("b4", "b5", "b3")
    assert desk.take_sent() == [(0, ("b4", "b5"))]
    desk.ok(0, "b4")
    assert desk.added == [0]


def test_4_4_g8_no_add_completes_and_the_lac_stands_while_a_change_is_under_way() -> None:
    """HandleFailuresTest.testNoAddsAreCompletedWhileFailureHandlingInProgress."""
    desk = Desk()
    desk.add(b"a", b"b")
    desk.bad(0, "b1")
    desk.ok(0, "b2", "b3")
    desk.ok(1, "b2", "b3")
    assert desk.added == []
    assert desk.machine.lac == -1
    desk.add(b"c")
    assert desk.lac_of(2) == -1
    desk.written()
    assert desk.added == [0, 1]


def test_4_4_closed_by_another_during_a_change_fails_pending_adds() -> None:
    """HandleFailuresTest.testMetadataSetToClosedDuringFailureHandler."""
    desk = Desk()
    desk.add(b"a", b"b")
    desk.bad(0, "b1")
    desk.found(desk.metadata.closed(EntryId(-1), 0))
    assert list(desk.failed) == [b"a", b"b"]
    assert isinstance(desk.failed[b"a"], AddInterruptedError)
    assert desk.failed[b"a"].retry is Retry.UNKNOWN
    with pytest.raises(LedgerClosedError) as caught:
        desk.add(b"c")
    assert caught.value.retry is Retry.NEVER


def test_4_4_in_recovery_during_a_change_fails_pending_adds_as_fenced() -> None:
    """HandleFailuresTest.testMetadataSetToInRecoveryDuringFailureHandler."""
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.found(desk.metadata.with_state(LedgerState.IN_RECOVERY))
    assert isinstance(desk.failed[b"a"], LedgerFencedError)
    desk.ok(0, "b2", "b3")
    assert desk.added == []


def test_4_4_what_others_changed_in_older_segments_is_kept() -> None:
    """HandleFailuresTest.testOldEnsembleChangedDuringFailureHandler."""
    desk = Desk(bookie_count=5)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.add(b"b")
    desk.bad(1, "b1")
    desk.written()
    desk.ok(1, "b4", "b2")
    desk.add(b"c")
    desk.bad(2, "b4")
    [_, second] = desk.metadata.segments
    desk.found(
        replace(desk.metadata, segments=(Segment(EntryId(0), ("b9", "b2", "b3")), second)), 5
    )
    assert desk.writes[0].version == 5
    written = desk.written()
    assert [s.ensemble for s in written.segments] == [
        ("b9", "b2", "b3"),
        ("b4", "b2", "b3"),
        ("b5", "b2", "b3"),
    ]
    assert [s.first_entry_id for s in written.segments] == [0, 1, 2]


def test_4_4_a_failure_outside_an_entrys_write_set_sends_it_nowhere_else() -> None:
    """HandleFailuresTest.testHandleFailureBookieNotInWriteSet."""
    desk = Desk(quorums=(3, 2, 1))
    desk.add(b"a", b"b")  # b1 b2, and b2 b3
    desk.take_sent()
    desk.bad(0, "b1")
    desk.written()
    assert desk.take_sent() == [(0, ("b4",))]
    desk.ok(0, "b2")
    desk.ok(1, "b3")
    assert desk.added == [0, 1]


# --- segments -------------------------------------------------------------------------------------


def test_4_4_a_segment_begins_behind_the_lac() -> None:
    desk = Desk()
    desk.add(b"a", b"b", b"c")
    desk.ok(0, "b1", "b2")
    desk.ok(1, "b1", "b3")
    desk.bad(2, "b2")
    written = desk.written()
    assert written.segments == (
        Segment(EntryId(0), ("b1", "b2", "b3")),
        Segment(EntryId(2), ("b1", "b4", "b3")),
    )


def test_4_4_a_segment_that_would_begin_where_the_last_does_replaces_it() -> None:
    desk = Desk(bookie_count=5)
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.written()
    desk.bad(0, "b4")
    assert desk.written().segments == (Segment(EntryId(0), ("b5", "b2", "b3")),)


# --- gotchas --------------------------------------------------------------------------------------


def test_g7_nothing_is_applied_before_the_metadata_is_written() -> None:
    """#1591: acknowledged entries on bookies that no stored metadata names."""
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    assert desk.machine.ensemble == ("b1", "b2", "b3")
    desk.take_sent()
    desk.add(b"b")
    assert desk.take_sent() == [(1, ("b2", "b3"))]  # to those that stay, and no new one
    desk.ok(1, "b4")
    desk.written()
    assert desk.machine.ensemble == ("b4", "b2", "b3")
    assert desk.take_sent() == [(0, ("b4",)), (1, ("b4",))]
    desk.ok(0, "b4")
    assert desk.added == []


def test_g8_all_acks_of_replaced_indexes_are_unset_before_any_entry_completes() -> None:
    """#3005: entry 0 must not complete by the ack of a bookie that is no longer named for it."""
    desk = Desk(quorums=(3, 3, 2))
    desk.add(b"a", b"b")
    desk.ok(0, "b1")
    desk.ok(1, "b1", "b2")
    desk.bad(1, "b1", Status.READ_ONLY)
    desk.bad(0, "b1")
    desk.add(b"c")  # the late failure of entry 1 is applied, too
    desk.ok(0, "b2")
    assert desk.added == []
    desk.written()
    assert desk.added == []  # b2's ack alone is left for both
    desk.ok(0, "b4")
    assert desk.added == [0]
    desk.ok(1, "b4")
    assert desk.added == [0, 1]


def test_g9_metadata_claims_no_entry_for_a_new_bookie_that_only_an_old_one_holds() -> None:
    """#4651, #4097: E2 W2 A1, acks in flight while the segment that begins at LAC + 1 changes."""
    desk = Desk(bookie_count=4, quorums=(2, 2, 1))
    desk.add(b"5", b"6", b"7")
    desk.bad(2, "b1")
    desk.bad(2, "b2")
    desk.ok(0, "b1")
    desk.ok(1, "b2")
    assert desk.added == []
    desk.written()
    written = desk.written()
    assert written.segments == (Segment(EntryId(0), ("b3", "b4")),)
    assert desk.added == []
    assert desk.take_sent()[3:] == [(i, ("b3", "b4")) for i in range(3)]
    for entry_id in range(3):
        desk.ok(entry_id, "b4")
    assert desk.added == [0, 1, 2]


def test_g10_an_ensemble_equal_to_the_old_one_does_not_get_stuck() -> None:
    """#4459: the bookie that failed is taken back; what it missed is sent to it again."""
    desk = Desk(bookie_count=3, quorums=(3, 3, 2))
    desk.add(b"a")
    desk.ok(0, "b3")
    desk.bad(0, "b1")
    assert desk.machine.missing_bookies == ("b1",)
    desk.take_sent()
    desk.fire(Timer.RETRY)
    assert desk.writes == []
    assert desk.machine.missing_bookies == ()
    assert desk.take_sent() == [(0, ("b1",))]
    desk.ok(0, "b1")
    assert desk.added == [0]


def test_g10_a_change_that_another_made_already_sends_again() -> None:
    """Our write's answer was lost, or another client replaced the bookie: the entry goes there."""
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.take_sent()
    desk.found(desk.metadata.with_ensemble(EntryId(0), ("b9", "b2", "b3")))
    assert desk.writes == []
    assert desk.take_sent() == [(0, ("b9",))]
    desk.ok(0, "b9", "b2")
    assert desk.added == [0]


def test_g11_acks_are_recorded_after_completion() -> None:
    """A change may undo completion: then the third ack counts."""
    desk = Desk(quorums=(3, 3, 2))
    desk.add(b"a", b"b")
    desk.ok(1, "b1", "b2")
    desk.ok(1, "b3")  # complete before
    desk.bad(0, "b1")
    desk.written()
    desk.ok(0, "b2", "b3")
    assert desk.added == [0, 1]


# --- late errors ----------------------------------------------------------------------------------


def test_4_3_an_error_after_completion_is_handled_at_the_next_add() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.bad(0, "b3")
    assert desk.writes == []
    desk.take_sent()
    desk.add(b"b")
    assert desk.take_sent() == [(1, ("b2", "b1"))]
    assert desk.written().last_segment == Segment(EntryId(1), ("b1", "b2", "b4"))
    assert desk.take_sent() == [(1, ("b4",))]


def test_an_error_after_completion_is_handled_by_an_idle_writer_too() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.bad(0, "b3")
    desk.take_sent()
    desk.fire(Timer.RETRY)
    assert desk.written().last_segment == Segment(EntryId(1), ("b1", "b2", "b4"))
    assert desk.take_sent() == []
    desk.add(b"b")
    assert desk.take_sent() == [(1, ("b2", "b4", "b1"))]
    assert desk.timers == []


# --- lost answers ---------------------------------------------------------------------------------


def test_a_lost_answer_of_a_write_that_was_applied_is_decided_by_re_reading() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.take_sent()
    desk.found(desk.take_write())
    assert desk.writes == []
    assert desk.take_sent() == [(0, ("b4",))]


def test_a_lost_answer_of_a_write_that_was_not_applied_is_written_again() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.found(desk.metadata, 0)
    assert desk.written().last_segment.ensemble == ("b4", "b2", "b3")
    desk.ok(0, "b4", "b2")
    assert desk.added == [0]


def test_a_write_that_may_still_land_is_kept_out_before_anything_completes() -> None:
    """Its segment begins behind the LAC of then, and the bookies that it names get no entries."""
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.take_write()
    desk.register(1, 2, 3)  # b4, which that write names, is gone
    desk.found(desk.metadata, 0)  # not applied so far
    desk.ok(0, "b2", "b3")
    assert desk.added == []
    assert desk.written() == desk.metadata  # the same again: a version that makes it impossible
    assert desk.added == [0]
    assert desk.machine.missing_bookies == ("b1",)


def test_g7_the_write_that_keeps_another_out_is_repeated_until_it_is_in_the_store() -> None:
    """It equals what is there, so content does not tell that it was applied; its version does."""
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    adrift = desk.take_write()
    desk.register(1, 2, 3)  # b4, which that write names, is gone
    desk.found(desk.metadata, 0)
    desk.ok(0, "b2", "b3")
    desk.found(desk.metadata, 0)  # its answer was lost as well, and it was not applied either
    assert desk.added == []
    assert desk.writes[0].version == 0
    desk.found(adrift, 1)  # the first one landed after all
    assert desk.take_sent()[-1] == (0, ("b4",))
    assert desk.machine.ensemble == ("b4", "b2", "b3")
    assert desk.added == [0]


def test_an_undecided_answer_fails_pending_adds_as_unknown() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.writes.clear()
    desk.run(desk.machine.on_metadata_failed(MetadataStoreError("no answer for 30 s")))
    assert isinstance(desk.failed[b"a"], WriteError)
    assert desk.failed[b"a"].retry is Retry.UNKNOWN


def test_a_ledger_that_was_deleted_says_so() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.writes.clear()
    desk.run(desk.machine.on_metadata_failed(NoSuchLedgerMetadataError("ledger 7 is gone")))
    assert isinstance(desk.failed[b"a"], NoSuchLedgerMetadataError)


# --- going on without a replacement -----------------------------------------------------------


def test_cluster_3_without_a_replacement_adds_go_on_while_they_reach_the_quorum() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.bad(0, "b3")
    desk.take_sent()
    assert desk.writes == []
    desk.ok(0, "b1", "b2")
    desk.add(b"b")
    assert desk.take_sent() == [(1, ("b2", "b1"))]
    desk.ok(1, "b1", "b2")
    assert desk.added == [0, 1]
    assert desk.machine.missing_bookies == ("b3",)


def test_cluster_3_a_bookie_that_is_registered_later_fills_the_gap() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.bad(0, "b3")
    desk.ok(0, "b1", "b2")
    desk.register(1, 2)
    assert desk.writes == []
    desk.register(1, 2, 5)
    assert desk.written().last_segment == Segment(EntryId(1), ("b1", "b2", "b5"))
    assert desk.machine.missing_bookies == ()


def test_cluster_3_the_bookie_itself_may_come_back() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.bad(0, "b3")
    desk.register(1, 2)
    desk.take_sent()
    desk.register(1, 2, 3)
    assert desk.writes == []
    assert desk.take_sent() == [(0, ("b3",))]
    assert desk.machine.missing_bookies == ()


def test_cluster_3_a_bookie_that_failed_after_it_had_left_comes_back_too() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.register(1, 2)
    desk.bad(0, "b3")
    assert desk.machine.missing_bookies == ("b3",)
    desk.register(1, 2, 3)
    assert desk.machine.missing_bookies == ()


def test_cluster_3_too_few_left_ends_the_handle_and_says_how_many() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a", b"b")
    desk.register(1, 2)
    desk.bad(0, "b3")
    desk.bad(0, "b2")
    assert list(desk.failed) == [b"a", b"b"]
    with pytest.raises(WriteError, match=r"1 of the 3 bookies .* 0 other writable .* needs 2"):
        desk.add(b"c")


def test_rather_than_give_up_each_bookie_that_failed_gets_one_last_chance() -> None:
    """One each: two that are down and still registered must not take turns for ever."""
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.bad(0, "b3")
    desk.take_sent()
    desk.bad(0, "b2")
    assert desk.take_sent() == [(0, ("b3",))]
    desk.bad(0, "b3")
    assert desk.take_sent() == [(0, ("b2",))]
    desk.bad(0, "b2")
    assert list(desk.failed) == [b"a"]


def test_last_chances_of_replacements_end_too() -> None:
    desk = Desk(bookie_count=4, quorums=(2, 2, 2))
    desk.add(b"a")
    writes = 0
    while not desk.failed:
        desk.bad(0, desk.machine.ensemble[0])
        if desk.writes:
            desk.written()
            writes += 1
    assert writes <= 2 * 3


def test_a_last_chance_that_holds_keeps_the_handle_alive() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.bad(0, "b3")
    desk.bad(0, "b2")
    desk.ok(0, "b3", "b1")
    assert desk.added == [0]
    assert desk.machine.missing_bookies == ("b2",)


def test_a_late_error_of_long_ago_is_forgiven_where_no_bookie_can_stand_in() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.bad(0, "b3")
    desk.fire(Timer.RETRY)
    desk.take_sent()
    desk.add(b"b")
    assert desk.machine.missing_bookies == ()
    assert desk.take_sent() == [(1, ("b2", "b3", "b1"))]


def test_cluster_3_striped_write_sets_need_their_quorum_each() -> None:
    """E3 W2 A2: without one bookie two of three write sets cannot complete."""
    desk = Desk(bookie_count=3, quorums=(3, 2, 2))
    desk.add(b"a")
    desk.bad(0, "b1")
    assert isinstance(desk.failed[b"a"], WriteError)


def test_two_failures_and_one_replacement_replace_one() -> None:
    """4.4: too few bookies is fatal only when none is replaced, and the quorum is out of reach."""
    desk = Desk(bookie_count=6, quorums=(5, 5, 2), is_change_delayed=True)
    desk.register(1, 2, 3, 4, 5, 6)
    desk.add(b"a")
    for bookie in ("b1", "b2", "b3"):
        desk.bad(0, bookie)
    assert desk.writes == []
    desk.bad(0, "b4")
    assert desk.written().last_segment.ensemble == ("b6", "b2", "b3", "b4", "b5")
    assert desk.machine.missing_bookies == ("b2", "b3", "b4")
    desk.ok(0, "b5", "b6")
    assert desk.added == [0]


def test_rather_than_give_up_a_bookie_that_failed_before_is_tried_again() -> None:
    desk = Desk(bookie_count=3, quorums=(2, 2, 2))
    desk.add(b"a")
    desk.bad(0, "b1")
    assert desk.written().last_segment.ensemble == ("b3", "b2")
    desk.bad(0, "b2")
    assert desk.written().last_segment.ensemble == ("b3", "b1")


# --- delayed ensemble change ----------------------------------------------------------------------


def test_delayed_change_bears_what_leaves_the_quorum_in_reach() -> None:
    """TestDelayEnsembleChange: no change while failures are at most Qw - Qa."""
    desk = Desk(bookie_count=6, quorums=(5, 5, 3), is_change_delayed=True)
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.bad(0, "b2")
    assert desk.writes == []
    desk.bad(0, "b3")
    # All that failed are replaced as far as there are bookies.
    assert desk.written().last_segment.ensemble == ("b6", "b2", "b3", "b4", "b5")
    desk.ok(0, "b4", "b5", "b6")
    assert desk.added == [0]


def test_delayed_change_still_sends_to_the_bookie_that_failed() -> None:
    desk = Desk(is_change_delayed=True)
    desk.add(b"a")
    desk.bad(0, "b1")
    desk.take_sent()
    desk.add(b"b")
    assert desk.take_sent() == [(1, ("b2", "b3", "b1"))]


def test_delayed_change_replaces_a_read_only_bookie_at_once() -> None:
    desk = Desk(is_change_delayed=True)
    desk.add(b"a")
    desk.bad(0, "b1", Status.READ_ONLY)
    assert desk.written().last_segment.ensemble == ("b4", "b2", "b3")


def test_delayed_change_does_not_hold_old_failures_against_new_bookies() -> None:
    desk = Desk(bookie_count=6, is_change_delayed=True)
    desk.add(b"a")
    desk.bad(0, "b1")  # borne
    desk.bad(0, "b2", Status.READ_ONLY)
    assert desk.written().last_segment.ensemble == ("b4", "b5", "b3")
    desk.bad(0, "b4")  # the first of the new ones: borne
    assert desk.writes == []
    desk.ok(0, "b5", "b3")
    assert desk.added == [0]


def test_delayed_change_forgets_late_errors() -> None:
    desk = Desk(is_change_delayed=True)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.bad(0, "b3")
    desk.add(b"b")
    assert desk.writes == []


# --- the number of changes ------------------------------------------------------------------------


def test_the_number_of_changes_is_bounded() -> None:
    """TestMaxEnsembleChangeNum."""
    desk = Desk(bookie_count=6, ensemble_changes_max=2)
    desk.add(b"a")
    for bookie in ("b1", "b2"):
        desk.bad(0, bookie)
        desk.written()
    desk.bad(0, "b3")
    assert desk.writes == []
    assert "more than 2 ensemble changes" in str(desk.failed[b"a"])
