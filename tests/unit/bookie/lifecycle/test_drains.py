"""The auditor's machine for drains: admission, tasks, foreign removals, the two ends."""

from typing import Any

from bookie.ledger.types import BookieId
from bookie.lifecycle.drains import (
    CLEAN_SCANS,
    Decision,
    DrainMachine,
    Facts,
    Move,
    Publish,
    Report,
    Update,
    WriteList,
)
from bookie.lifecycle.states import DrainLedger, LifecycleRecord, LifecycleState, Step
from bookie.lifecycle.store import Found
from bookie.metadata.bookies import Mode

B1, B2 = BookieId("b1"), BookieId("b2")


class Desk:
    """The machine with a test in the place of the coordinator; b1 drains and is read-only."""

    def __init__(self, **record: Any) -> None:
        self.machine = DrainMachine(open_ledger_wait_s=30.0)
        self.facts = Facts(
            now_s=0.0,
            is_enabled=True,
            founds=[found(B1, is_admitted=True, ledgers_left=0, ledgers_total=0, **record)],
            modes={B1: Mode.READ_ONLY, B2: Mode.READ_ONLY},
            tasks=frozenset(),
            holders={},
            reports={},
            named={B1: (), B2: ()},
            open_last={B1: frozenset(), B2: frozenset()},
            unreadable={},
            waits={},
        )

    def decide(self, **facts: Any) -> list[Decision]:
        self.facts = self.facts._replace(**facts)
        for one in self.facts.founds:
            if not self.machine.knows(one):
                self.machine.restore(one, [], self.facts.now_s)
        decisions = self.machine.decide(self.facts)
        for decision in decisions:
            if isinstance(decision, Publish):
                self.machine.published(decision.bookie_id, decision.ledger_id)
            if isinstance(decision, Update):
                self.facts = self.facts._replace(
                    founds=[
                        one._replace(record=decision.record) if one == decision.found else one
                        for one in self.facts.founds
                    ]
                )
        return decisions

    def published(self, **facts: Any) -> list[int]:
        return [d.ledger_id for d in self.decide(**facts) if isinstance(d, Publish)]

    @property
    def record(self) -> LifecycleRecord:
        return self.facts.founds[0].record


def found(bookie_id: BookieId, **record: Any) -> Found:
    settings: dict[str, Any] = {"state": LifecycleState.DRAINING, "since_ms": 5} | record
    return Found(bookie_id, LifecycleRecord(**settings), 1, b"cookie", 3)


def steps(decisions: list[Decision]) -> list[Step]:
    return [one.step for one in decisions if isinstance(one, Move)]


def test_drained_takes_clean_scans_in_a_row() -> None:
    desk = Desk()
    for _ in range(CLEAN_SCANS - 1):
        assert steps(desk.decide()) == []
    assert steps(desk.decide(named={B1: (4,)})) == []
    for _ in range(CLEAN_SCANS - 1):
        assert steps(desk.decide(named={B1: ()})) == []
    assert steps(desk.decide()) == [Step.FINISH]


def test_a_writable_bookie_is_waited_for_and_its_clean_scans_do_not_count() -> None:
    desk = Desk()
    desk.decide()
    desk.decide(modes={B1: Mode.WRITABLE})
    assert "still writable" in desk.record.reason
    assert steps(desk.decide(modes={B1: Mode.READ_ONLY})) == []
    assert desk.record.reason == ""
    assert steps(desk.decide(modes={})) == [Step.FINISH]  # away counts as well


def test_a_state_that_was_set_anew_begins_anew() -> None:
    desk = Desk()
    desk.decide()
    again = desk.facts.founds[0]._replace(cookie_version=4)
    assert steps(desk.decide(founds=[again])) == []


def test_drains_are_admitted_one_by_one_the_oldest_first() -> None:
    desk = Desk()
    waiting = [found(B2, since_ms=1), found(B1, since_ms=2)]
    decisions = desk.decide(founds=waiting, waits={B1: "", B2: ""}, named={B1: (1, 2), B2: (3,)})
    records = {one.found.bookie_id: one.record for one in decisions if isinstance(one, Update)}
    assert records[B2].is_admitted
    assert (records[B2].ledgers_total, records[B2].ledgers_left) == (1, 1)
    assert not records[B1].is_admitted
    assert "one by one" in records[B1].reason
    # One that has to wait lets the next one pass.
    desk = Desk()
    decisions = desk.decide(founds=waiting, waits={B1: "", B2: "too few"})
    records = {one.found.bookie_id: one.record for one in decisions if isinstance(one, Update)}
    assert (records[B2].is_admitted, records[B2].reason) == (False, "too few")
    assert records[B1].is_admitted


def test_nothing_is_admitted_or_published_while_auto_recovery_is_disabled() -> None:
    desk = Desk()
    decisions = desk.decide(
        founds=[*desk.facts.founds, found(B2)],
        waits={B2: ""},
        named={B1: (4,), B2: ()},
        is_enabled=False,
    )
    assert not [one for one in decisions if isinstance(one, Publish)]
    assert [one.record.reason for one in decisions if isinstance(one, Update)] == [
        "AutoRecovery is disabled: nothing is copied until it is enabled",
        "AutoRecovery is disabled",
    ]


def test_a_removed_task_is_published_again_later_each_time_and_named_after_the_third() -> None:
    desk = Desk()
    assert desk.published(named={B1: (4,)}) == [4]
    now_s, pauses = 0.0, []
    for _ in range(4):
        assert desk.published(now_s=now_s, tasks=frozenset([4]), holders={4: "foreign"}) == []
        gone_s = now_s
        while not desk.published(now_s=now_s, tasks=frozenset(), holders={}):
            now_s += 1.0
            assert now_s < gone_s + 1000
        pauses.append(now_s - gone_s)
    assert pauses == [10.0, 20.0, 40.0, 80.0]
    assert desk.machine.cleared_count == 4
    assert "foreign" in desk.record.reason


def test_a_task_that_was_never_there_is_no_removal() -> None:
    desk = Desk()
    assert desk.published(named={B1: (4, 5)}, tasks=frozenset([4])) == [5]
    assert desk.published(tasks=frozenset([4, 5])) == []
    assert desk.machine.cleared_count == 0


def test_a_later_auditor_goes_on_with_the_counts() -> None:
    desk = Desk()
    desk.machine.restore(desk.facts.founds[0], [DrainLedger(4, 3, "foreign", "")], 0.0)
    desk.decide(named={B1: (4,)})
    assert "foreign" in desk.record.reason


def test_it_fails_only_when_nothing_else_is_left() -> None:
    desk = Desk()
    bad = {4: Report("no copy", 3, 5), 5: Report("slow", 2, 5)}
    assert steps(desk.decide(named={B1: (4, 5)}, reports=bad)) == []
    rows = [one for one in desk.decide(named={B1: (4,)}) if isinstance(one, WriteList)]
    assert rows[0].ledgers == [DrainLedger(4, 0, "", "ledger 4: no copy")]
    decisions = desk.decide()
    assert steps(decisions) == [Step.FAIL]
    assert "ledger 4: no copy" in next(d for d in decisions if isinstance(d, Move)).record.reason


def test_what_failed_before_the_drain_does_not_count() -> None:
    desk = Desk()
    old = {4: Report("no copy", 3, 4)}
    assert steps(desk.decide(named={B1: (4,)}, reports=old)) == []
    assert steps(desk.decide(reports={4: Report("no copy", 3, 5)})) == [Step.FAIL]


def test_metadata_that_cannot_be_read_fails_the_drain() -> None:
    desk = Desk()
    decisions = desk.decide(named={B1: (4,)}, unreadable={4: "no metadata"})
    assert steps(decisions) == [Step.FAIL]


def test_an_open_ledger_is_listed_before_it_gets_a_task() -> None:
    desk = Desk()
    decisions = desk.decide(named={B1: (4,)}, open_last={B1: frozenset([4])})
    assert [one for one in decisions if isinstance(one, Publish)] == []
    rows = [one for one in decisions if isinstance(one, WriteList)]
    assert "its writer has time" in rows[0].ledgers[0].problem
    assert desk.published(now_s=29.0) == []
    assert desk.published(now_s=30.0) == [4]


def test_without_fencing_an_open_ledger_ends_in_a_failure() -> None:
    desk = Desk(may_fence=False)
    open_one = {"named": {B1: (4, 5)}, "open_last": {B1: frozenset([4])}}
    assert desk.published(**open_one) == [5]
    assert desk.published(now_s=40.0, tasks=frozenset([5])) == []
    decisions = desk.decide(now_s=41.0, named={B1: (4,)})
    assert steps(decisions) == [Step.FAIL]
    (move,) = [one for one in decisions if isinstance(one, Move)]
    assert move.record.reason.startswith("1 ledgers cannot be replicated: 4; the first: open: ")


def test_a_failed_drain_is_counted_and_listed_and_left_alone() -> None:
    desk = Desk(state=LifecycleState.DRAINING_FAILED, reason="why")
    decisions = desk.decide(named={B1: (4,)})
    assert [type(one) for one in decisions] == [WriteList, Update]
    assert (desk.record.ledgers_left, desk.record.reason) == (1, "why")
    assert desk.decide() == []
    desk.decide(named={B1: ()})
    assert steps(desk.decide()) == []  # by an operator's hand alone


def test_a_list_that_found_a_conflict_is_written_again() -> None:
    desk = Desk()
    decisions = desk.decide(named={B1: (4,)}, tasks=frozenset([4]))
    assert any(isinstance(one, WriteList) for one in decisions)
    assert not any(isinstance(one, WriteList) for one in desk.decide())
    desk.machine.list_refused(B1)
    assert any(isinstance(one, WriteList) for one in desk.decide())
    desk.machine.list_refused(B2)
