"""The writer's machine, plain path: adds, acks, order, limits, given ids, deferred sync, LAC."""

import pickle

import pytest

from bookie.errors import (
    AddEntryQuorumTimeoutError,
    DuplicateEntryIdError,
    IllegalOperationError,
    IncorrectParameterError,
    LedgerFencedError,
    Retry,
    TooManyRequestsError,
    UnauthorizedAccessError,
    WriteError,
)
from bookie.ledger.actions import Timer, WriterOptions
from bookie.ledger.types import LedgerState, Status
from bookie.ledger.writer import WriterMachine
from tests.fixtures.ledger_bookies import FirstPlacement, digest_of, ledger, names
from tests.fixtures.writer_desk import Desk

# --- §4.3: adds, acks, order ----------------------------------------------------------------------


def test_4_3_an_entry_goes_to_its_write_set() -> None:
    desk = Desk(quorums=(3, 2, 2))
    desk.add(b"a", b"b", b"c", b"d")
    assert desk.take_sent() == [
        (0, ("b1", "b2")),
        (1, ("b2", "b3")),
        (2, ("b3", "b1")),
        (3, ("b1", "b2")),
    ]


def test_4_3_packets_carry_the_lac_and_the_running_length() -> None:
    desk = Desk()
    desk.add(b"12345", b"678")
    assert (desk.lac_of(0), desk.length_of(0)) == (-1, 5)
    assert (desk.lac_of(1), desk.length_of(1)) == (-1, 8)
    desk.ok(0, "b1", "b2")
    desk.add(b"9")
    assert (desk.lac_of(2), desk.length_of(2)) == (0, 9)


def test_4_3_an_entry_completes_with_its_ack_quorum_and_not_before() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.ok(0, "b3")
    assert desk.added == []
    desk.ok(0, "b3")  # the same bookie again is no second ack
    assert desk.added == []
    desk.ok(0, "b1")
    assert desk.added == [0]
    assert desk.machine.lac == 0
    desk.ok(0, "b2")
    assert desk.added == [0]


def test_4_3_callbacks_come_strictly_in_order() -> None:
    desk = Desk()
    desk.add(b"a", b"b", b"c")
    desk.ok(2, "b1", "b2")
    desk.ok(1, "b1", "b2")
    assert desk.added == []
    assert desk.machine.lac == -1
    desk.ok(0, "b1", "b2")
    assert desk.added == [0, 1, 2]
    assert desk.machine.lac == 2


def test_4_3_a_reply_of_a_bookie_no_longer_at_that_index_is_ignored() -> None:
    """An ack of a replaced bookie, and of one that came back at an index outside the write set."""
    desk = Desk(quorums=(3, 2, 2))
    desk.add(b"a")  # b1, b2
    desk.bad(0, "b2")
    desk.written()  # b1, b4, b3
    desk.ok(0, "b2")
    desk.ok(0, "b1")
    assert desk.added == []
    desk.fire(Timer.RETRY)  # b2 has a new chance
    desk.add(b"b")  # b4, b3
    desk.bad(1, "b3")
    assert desk.written().last_segment.ensemble == ("b1", "b4", "b2")
    desk.ok(0, "b2")  # it holds entry 0, at an index that no reader asks for it
    assert desk.added == []
    desk.ok(0, "b4")
    assert desk.added == [0]


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.FENCED, LedgerFencedError), (Status.UNAUTHORIZED, UnauthorizedAccessError)],
)
def test_4_3_fenced_and_unauthorized_fail_all_pending_and_end_the_handle(
    status: Status, error: type[Exception]
) -> None:
    desk = Desk()
    desk.add(b"a", b"b", b"c")
    desk.ok(0, "b1", "b2")
    desk.bad(1, "b3", status)
    assert desk.added == [0]
    assert [type(e) for e in desk.failed.values()] == [error, error]
    assert list(desk.failed) == [b"b", b"c"]
    with pytest.raises(error):
        desk.add(b"d")
    assert desk.writes == []  # no bookie is replaced


def test_g13_fenced_is_like_a_time_out_the_entry_may_be_recovered() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1", Status.FENCED)
    assert desk.failed[b"a"].retry is Retry.UNKNOWN
    desk.ok(0, "b1", "b2", "b3")
    assert desk.added == []


def test_g21_the_last_entry_is_beyond_the_lac_that_bookies_know() -> None:
    """Readers that trust the LAC of entries see one less than what was acknowledged."""
    desk = Desk()
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    assert desk.machine.lac == 0
    assert desk.lac_of(0) == -1


def test_a_metadata_that_is_not_open_is_not_written() -> None:
    metadata = ledger(state=LedgerState.IN_RECOVERY)
    with pytest.raises(IllegalOperationError, match="expected OPEN to write, found IN_RECOVERY"):
        WriterMachine(metadata, 0, digest_of(metadata), FirstPlacement(), (), WriterOptions())


# --- limits ---------------------------------------------------------------------------------------


def test_the_window_of_adds_is_bounded() -> None:
    desk = Desk(pending_adds_max=2)
    desk.add(b"a", b"b")
    assert desk.machine.is_full
    with pytest.raises(TooManyRequestsError) as caught:
        desk.add(b"c")
    assert caught.value.retry is Retry.SAFE
    desk.ok(0, "b1", "b2")
    desk.add(b"c")
    assert desk.machine.pending_count == 2


def test_the_window_of_bytes_is_bounded_and_lets_one_entry_in() -> None:
    desk = Desk(pending_bytes_max=10)
    desk.add(b"x" * 100)
    with pytest.raises(TooManyRequestsError):
        desk.add(b"y")
    desk.ok(0, "b1", "b2")
    desk.add(b"y")


def test_an_entry_that_is_too_large_is_refused_with_its_size() -> None:
    desk = Desk(payload_bytes_max=100)
    with pytest.raises(IncorrectParameterError, match="at most 100 bytes, found 101"):
        desk.add(b"x" * 101)
    desk.add(memoryview(b"x" * 100).tobytes())
    assert desk.machine.length == 0
    assert desk.length_of(0) == 100


def test_the_add_quorum_time_out_fails_what_waits_and_ends_the_handle() -> None:
    desk = Desk(quorum_ticks_max=4)
    desk.add(b"a")
    desk.ok(0, "b1")
    for _ in range(4):
        desk.fire(Timer.QUORUM)
    assert not desk.failed
    desk.add(b"b")
    desk.fire(Timer.QUORUM)
    assert list(desk.failed) == [b"a", b"b"]
    assert isinstance(desk.failed[b"a"], AddEntryQuorumTimeoutError)
    assert desk.failed[b"a"].retry is Retry.UNKNOWN


def test_the_quorum_timer_runs_only_while_something_is_pending() -> None:
    desk = Desk(quorum_ticks_max=4)
    assert desk.timers == []
    desk.add(b"a", b"b")
    assert desk.timers == [Timer.QUORUM]
    desk.ok(0, "b1", "b2")
    desk.ok(1, "b1", "b2")
    desk.fire(Timer.QUORUM)
    assert desk.timers == []


# --- §4.8: given ids ------------------------------------------------------------------------------


def test_4_8_given_ids_may_come_out_of_order_and_gaps_block() -> None:
    """BookWriteLedgerTest: random order; callbacks come in sequence."""
    desk = Desk(are_ids_given=True)
    desk.add(b"c", b"a", ids=(2, 0))
    desk.ok(2, "b1", "b2")
    desk.ok(0, "b1", "b2")
    assert desk.added == [0]
    assert desk.machine.lac == 0
    desk.add(b"b", ids=(1,))
    desk.ok(1, "b1", "b3")
    assert desk.added == [0, 1, 2]


def test_4_8_a_duplicate_id_is_refused_pending_or_done() -> None:
    desk = Desk(are_ids_given=True)
    desk.add(b"a", ids=(0,))
    with pytest.raises(DuplicateEntryIdError):
        desk.add(b"again", ids=(0,))
    desk.ok(0, "b1", "b2")
    with pytest.raises(DuplicateEntryIdError):
        desk.add(b"again", ids=(0,))
    with pytest.raises(IncorrectParameterError):
        desk.add(b"negative", ids=(-2,))


def test_4_8_given_ids_fail_in_the_order_of_the_ids() -> None:
    desk = Desk(are_ids_given=True)
    desk.add(b"c", b"a", b"b", ids=(2, 0, 1))
    desk.bad(0, "b1", Status.FENCED)
    assert list(desk.failed) == [b"a", b"b", b"c"]


def test_4_8_the_length_counts_in_the_order_of_arrival() -> None:
    desk = Desk(are_ids_given=True)
    desk.add(b"333", b"1", b"22", ids=(2, 0, 1))
    assert [desk.length_of(i) for i in (2, 0, 1)] == [3, 4, 6]
    desk.ok(0, "b1", "b2")
    assert desk.machine.length == 1


def test_given_ids_the_entry_that_all_wait_for_is_let_into_a_full_window() -> None:
    desk = Desk(are_ids_given=True, pending_adds_max=2)
    desk.add(b"b", b"c", ids=(1, 2))
    with pytest.raises(TooManyRequestsError):
        desk.add(b"d", ids=(3,))
    desk.add(b"a", ids=(0,))
    for entry_id in (0, 1, 2):
        desk.ok(entry_id, "b1", "b2")
    assert desk.added == [0, 1, 2]


def test_a_handle_that_numbers_itself_takes_no_ids() -> None:
    with pytest.raises(IllegalOperationError):
        Desk().add(b"a", ids=(0,))


# --- §4.8: deferred sync and force ----------------------------------------------------------------


def test_4_8_deferred_sync_the_lac_moves_by_force_only() -> None:
    """DeferredSyncTest: up to the last entry acknowledged before the force, with its length."""
    desk = Desk(is_deferred_sync=True)
    desk.add(b"aa", b"bb", b"cc")
    desk.ok(0, "b1", "b2")
    desk.ok(1, "b1", "b2")
    assert desk.added == [0, 1]
    assert desk.machine.lac == -1
    desk.run(desk.machine.force("force"))
    assert desk.forces[0].bookies == ("b1", "b2", "b3")
    desk.ok(2, "b1", "b2")
    for bookie in desk.forces[0].bookies:
        assert desk.done == []
        desk.run(desk.machine.on_force_reply(desk.forces[0].request, bookie, Status.OK))
    assert desk.done == ["force"]
    assert (desk.machine.lac, desk.machine.length) == (1, 4)
    desk.add(b"dd")
    assert desk.lac_of(3) == 1


def test_4_8_force_needs_every_bookie_of_the_ensemble() -> None:
    desk = Desk(is_deferred_sync=True)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.run(desk.machine.force("force"))
    request = desk.forces[0].request
    for bookie, status in (("b1", Status.OK), ("b2", Status.TIMED_OUT), ("b3", Status.OK)):
        desk.run(desk.machine.on_force_reply(request, names(3)[int(bookie[1]) - 1], status))
    assert isinstance(desk.failed["force"], WriteError)
    assert desk.machine.lac == -1


def test_4_8_two_forces_that_overtake_each_other_never_take_the_lac_back() -> None:
    desk = Desk(is_deferred_sync=True)
    desk.add(b"a", b"b")
    desk.ok(0, "b1", "b2")
    desk.run(desk.machine.force("first"))
    desk.ok(1, "b1", "b2")
    desk.run(desk.machine.force("second"))
    for force in reversed(desk.forces):
        for bookie in force.bookies:
            desk.run(desk.machine.on_force_reply(force.request, bookie, Status.OK))
    assert desk.done == ["second", "first"]
    assert desk.machine.lac == 1


def test_4_8_deferred_sync_any_failure_is_fatal() -> None:
    """DeferredSyncTest: no ensemble change, not even with bookies to spare."""
    desk = Desk(is_deferred_sync=True)
    desk.add(b"a", b"b")
    desk.ok(0, "b1", "b2")
    desk.bad(1, "b3")
    assert desk.writes == []
    assert isinstance(desk.failed[b"b"], WriteError)
    with pytest.raises(WriteError):
        desk.add(b"c")


def test_force_of_an_empty_ledger_asks_no_bookie() -> None:
    desk = Desk()
    desk.run(desk.machine.force("force"))
    assert desk.done == ["force"]
    assert desk.forces == []


# --- §2.4: explicit LAC ---------------------------------------------------------------------------


def test_2_4_explicit_lac_is_written_when_nothing_else_carries_it() -> None:
    """ExplicitLacTest: to the write set of the entry; an ack quorum is enough."""
    desk = Desk(quorums=(3, 2, 2), is_lac_explicit=True)
    desk.add(b"a", b"b")
    desk.ok(0, "b1", "b2")
    assert desk.timers == []  # entry 1 is under way
    desk.ok(1, "b2", "b3")
    assert desk.timers == [Timer.EXPLICIT_LAC]
    desk.fire(Timer.EXPLICIT_LAC)
    [send] = desk.lacs
    assert (send.lac, send.bookies) == (1, ("b2", "b3"))
    assert digest_of(desk.metadata).open_lac(send.packet, 7) == 1


def test_2_4_explicit_lac_is_not_written_when_an_entry_carried_it() -> None:
    desk = Desk(is_lac_explicit=True)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.add(b"b")  # carries LAC 0
    desk.fire(Timer.EXPLICIT_LAC)
    assert desk.lacs == []
    desk.ok(1, "b1", "b2")
    desk.fire(Timer.EXPLICIT_LAC)
    assert [send.lac for send in desk.lacs] == [1]


def test_2_4_explicit_lac_is_not_written_when_it_was_written_by_hand() -> None:
    desk = Desk(is_lac_explicit=True)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.run(desk.machine.write_lac("lac"))
    for bookie in desk.lacs[0].bookies:
        desk.run(desk.machine.on_lac_reply(desk.lacs[0].request, bookie, Status.OK))
    desk.fire(Timer.EXPLICIT_LAC)
    assert len(desk.lacs) == 1


def _with_a_lone_lac_answered(status: Status) -> Desk:
    desk = Desk(is_lac_explicit=True)
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.fire(Timer.EXPLICIT_LAC)
    for bookie in desk.lacs[0].bookies:
        desk.run(desk.machine.on_lac_reply(desk.lacs[0].request, bookie, status))
    return desk


def test_2_4_a_failed_explicit_lac_fails_nothing() -> None:
    desk = _with_a_lone_lac_answered(Status.IO_ERROR)
    assert desk.failed == {}
    desk.add(b"b")
    desk.ok(1, "b1", "b2")
    assert desk.added == [0, 1]


def test_2_4_a_failed_explicit_lac_is_written_again() -> None:
    """Readers would else wait for the next entry, which may be long in coming."""
    desk = _with_a_lone_lac_answered(Status.IO_ERROR)
    desk.fire(Timer.EXPLICIT_LAC)
    assert [send.lac for send in desk.lacs] == [0, 0]


@pytest.mark.parametrize("status", [Status.OK, Status.FENCED, Status.UNAUTHORIZED])
def test_2_4_an_explicit_lac_is_not_written_again(status: Status) -> None:
    """It is there, or no other try would help."""
    assert Timer.EXPLICIT_LAC not in _with_a_lone_lac_answered(status).timers


def test_write_lac_answers_at_an_ack_quorum() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    desk.run(desk.machine.write_lac("lac"))
    for bookie, status in zip(names(3), (Status.IO_ERROR, Status.OK, Status.OK), strict=True):
        desk.run(desk.machine.on_lac_reply(desk.lacs[0].request, bookie, status))
    assert desk.done == ["lac"]


def test_errors_of_pending_adds_survive_pickling() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.bad(0, "b1", Status.FENCED)
    again = pickle.loads(pickle.dumps(desk.failed[b"a"]))
    assert str(again) == str(desk.failed[b"a"])
