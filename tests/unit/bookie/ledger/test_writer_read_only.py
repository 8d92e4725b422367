"""Members that turn read-only: the writer replaces them before an add has to fail."""

from bookie.ledger.actions import Timer
from bookie.ledger.types import Status
from tests.fixtures.ledger_bookies import names
from tests.fixtures.writer_desk import Desk


def turn(desk: Desk, writable: str, read_only: str) -> None:
    """Let these be registered: numbers of bookies."""
    desk.run(
        desk.machine.on_bookies(
            tuple(f"b{n}" for n in sorted(writable)),  # type: ignore[arg-type]
            tuple(f"b{n}" for n in sorted(read_only)),  # type: ignore[arg-type]
        )
    )


def ensembles(desk: Desk) -> list[tuple[int, tuple[str, ...]]]:
    return [(one.first_entry_id, one.ensemble) for one in desk.machine.metadata.segments]


def test_an_idle_writer_leaves_a_read_only_member() -> None:
    desk = Desk()
    desk.add(b"a")
    desk.ok(0, "b1", "b2", "b3")
    turn(desk, "134", "2")
    assert [write.metadata.last_segment.ensemble for write in desk.writes] == [("b1", "b4", "b3")]
    desk.written()
    assert ensembles(desk) == [(0, ("b1", "b2", "b3")), (1, ("b1", "b4", "b3"))]
    assert desk.machine.error is None
    desk.take_sent()
    desk.add(b"b")
    assert desk.take_sent() == [(1, ("b4", "b3", "b1"))]


def test_what_is_pending_is_sent_to_the_new_member_and_its_ack_does_not_count_before() -> None:
    desk = Desk(quorums=(3, 3, 3))
    desk.add(b"a")
    desk.ok(0, "b1", "b2")
    turn(desk, "134", "2")
    desk.ok(0, "b3")
    assert desk.added == []
    desk.take_sent()
    desk.written()
    assert desk.take_sent() == [(0, ("b4",))]
    assert desk.added == []
    desk.ok(0, "b4")
    assert desk.added == [0]


def test_without_another_bookie_it_stays_and_goes_when_one_comes() -> None:
    desk = Desk(bookie_count=3)
    turn(desk, "13", "2")
    assert desk.writes == []
    assert desk.machine.missing_bookies == ()
    desk.add(b"a")
    assert desk.take_sent() == [(0, ("b1", "b2", "b3"))]
    desk.ok(0, "b1", "b3")
    assert desk.added == [0]
    turn(desk, "134", "2")
    desk.written()
    assert desk.machine.ensemble == ("b1", "b4", "b3")


def test_of_two_as_many_go_as_there_are_others() -> None:
    desk = Desk()
    turn(desk, "34", "12")
    desk.written()
    assert desk.machine.ensemble == ("b4", "b2", "b3")
    assert desk.machine.missing_bookies == ()
    assert desk.machine.error is None
    turn(desk, "345", "12")
    desk.written()
    assert desk.machine.ensemble == ("b4", "b5", "b3")


def test_a_gap_has_the_first_claim_on_others() -> None:
    desk = Desk(bookie_count=3)
    desk.add(b"a")
    desk.bad(0, "b1", Status.READ_ONLY)
    assert desk.machine.missing_bookies == ("b1",)
    turn(desk, "34", "12")  # one other for a gap and a member that leaves
    desk.written()
    assert desk.machine.ensemble == ("b4", "b2", "b3")
    assert desk.machine.missing_bookies == ()
    assert desk.machine.error is None


def test_one_that_turns_during_a_change_goes_after_it() -> None:
    desk = Desk(bookie_count=5)
    desk.add(b"a")
    desk.bad(0, "b1")
    assert len(desk.writes) == 1
    turn(desk, "345", "2")
    assert len(desk.writes) == 1
    desk.written()
    assert len(desk.writes) == 1
    desk.written()
    assert sorted(desk.machine.ensemble) == ["b3", "b4", "b5"]


def test_a_deferred_sync_ledger_keeps_its_members() -> None:
    desk = Desk(is_deferred_sync=True)
    turn(desk, "134", "2")
    assert desk.writes == []


def test_changes_that_nothing_forces_never_use_up_the_last_one() -> None:
    desk = Desk(ensemble_changes_max=0)
    turn(desk, "134", "2")
    assert desk.writes == []
    assert desk.machine.error is None


def test_a_bookie_that_is_writable_again_is_an_other_again() -> None:
    desk = Desk(bookie_count=3)
    turn(desk, "13", "2")
    turn(desk, "123", "")
    assert desk.writes == []
    assert desk.machine.ensemble == names(3)
    assert Timer.RETRY not in desk.timers
