"""What goes with bookies that go: against a count of every single entry."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.ledger.at_risk import LEDGERS_NAMED_MAX, DrainCheck, Risk, RiskReport
from bookie.ledger.types import BookieId, LedgerId, LedgerMetadata, LedgerState, Segment
from tests.fixtures.metadata import metadata

B = [BookieId(f"b{i}") for i in range(6)]


def ledger(
    number: int, qw: int, qa: int, *segments: tuple[int, list[int]], last: int | None
) -> LedgerMetadata:
    made = metadata(
        *(B[i] for i in segments[0][1]),
        ledger_id=LedgerId(number),
        write_quorum_size=qw,
        ack_quorum_size=qa,
        segments=tuple(Segment(first, tuple(B[i] for i in at)) for first, at in segments),  # type: ignore[arg-type]
    )
    return made if last is None else replace(made, state=LedgerState.CLOSED, last_entry_id=last)


def report(going: str, lost: str, *ledgers: LedgerMetadata) -> RiskReport:
    made = RiskReport(
        [B[int(i)] for i in going], [b for i, b in enumerate(B) if str(i) not in lost], B
    )
    for one in ledgers:
        made.add(one)
    return made


def test_three_copies_two_of_them_gone() -> None:
    closed = ledger(7, 3, 2, (0, [0, 1, 2]), last=9)
    one = report("0", "", closed)
    assert one.tallies[Risk.UNDER_REPLICATED].entries == 10
    assert one.tallies[Risk.UNDER_REPLICATED].write_sets == 3
    assert one.tallies[Risk.ACK_QUORUM].ledgers == 0
    two = report("0", "1", closed)
    assert two.tallies[Risk.ACK_QUORUM].entries == 10
    assert two.tallies[Risk.ACK_QUORUM].ledger_ids == [7]
    assert two.before[Risk.UNDER_REPLICATED].entries == 10
    three = report("02", "1", closed)
    assert three.tallies[Risk.LAST_COPY].entries == 10
    assert report("5", "", closed).tallies[Risk.UNDER_REPLICATED].ledgers == 0


def test_a_stopped_bookie_that_goes_is_not_lost_before() -> None:
    only_copy = ledger(7, 1, 1, (0, [0]), last=9)
    stopped = report("0", "0", only_copy)
    assert stopped.tallies[Risk.LAST_COPY].ledger_ids == [7]
    assert stopped.before[Risk.LAST_COPY].ledgers == 0
    assert (stopped.going, stopped.lost) == ({B[0]}, set())


def test_an_open_last_segment_counts_write_sets_and_no_entries() -> None:
    found = report("0", "", ledger(1, 2, 2, (0, [0, 1, 2]), (4, [3, 1, 2]), last=None))
    tally = found.tallies[Risk.ACK_QUORUM]
    assert (tally.segments, tally.write_sets, tally.entries) == (1, 2, 3)  # 0 and 3, 2 of 0 to 3
    open_one = report("3", "", ledger(1, 2, 2, (0, [0, 1, 2]), (4, [3, 1, 2]), last=None))
    tally = open_one.tallies[Risk.ACK_QUORUM]
    assert (tally.segments, tally.write_sets, tally.entries) == (1, 2, 0)


def test_segments_without_entries_lose_nothing() -> None:
    empty = ledger(1, 2, 2, (0, [0, 1, 2]), last=-1)
    assert report("012", "", empty).tallies[Risk.LAST_COPY].ledgers == 0
    beyond = ledger(1, 2, 2, (0, [0, 1, 2]), (5, [3, 4, 5]), last=4)
    assert report("345", "", beyond).tallies[Risk.LAST_COPY].ledgers == 0


def test_destinations_are_counted_outside_of_each_ensemble() -> None:
    made = ledger(1, 3, 2, (0, [0, 1, 2]), last=9)
    found = RiskReport([B[0]], B, B[:4])
    found.add(made)
    assert found.segments_without_destination == 0
    found = RiskReport([B[0]], B, B[:3])
    found.add(made)
    assert found.segments_without_destination == 1


def test_many_ledgers_are_counted_and_some_named() -> None:
    found = report("0", "", *(ledger(i, 1, 1, (0, [0]), last=0) for i in range(250)))
    tally = found.tallies[Risk.LAST_COPY]
    assert tally.ledgers == 250
    assert tally.ledger_ids == list(range(LEDGERS_NAMED_MAX))


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 5))
    qw = draw(st.integers(1, size))
    firsts = sorted({0, *draw(st.lists(st.integers(1, 20), max_size=3))})
    segments = [(first, draw(st.permutations(range(6)))[:size]) for first in firsts]
    last = draw(st.none() | st.integers(-1, 25))
    return ledger(draw(st.integers(0, 99)), qw, draw(st.integers(1, qw)), *segments, last=last)


def counted(
    made: list[LedgerMetadata], gone: set[BookieId]
) -> dict[Risk, tuple[set[int], set[object], set[object], set[object]]]:
    """Look at every entry by itself: ledgers, segments, write sets and entries of each risk.

    Of an open segment one entry for each write set is thought of, which counts as no entry.
    """
    found: dict[Risk, tuple[set[int], set[object], set[object], set[object]]] = {
        risk: (set(), set(), set(), set()) for risk in Risk
    }
    for number, one in enumerate(made):
        size = one.ensemble_size
        for place, segment in enumerate(one.segments):
            ends = [later.first_entry_id for later in one.segments[place + 1 :]]
            ends += [one.last_entry_id + 1] if one.is_closed else []
            is_open = not ends
            end = segment.first_entry_id + size if is_open else min(ends)
            for entry_id in range(segment.first_entry_id, end):
                copies = [
                    segment.ensemble[(entry_id + i) % size] for i in range(one.write_quorum_size)
                ]
                left = [bookie for bookie in copies if bookie not in gone]
                if len(left) == len(copies):
                    continue
                if not left:
                    risk = Risk.LAST_COPY
                elif len(left) < one.ack_quorum_size:
                    risk = Risk.ACK_QUORUM
                else:
                    risk = Risk.UNDER_REPLICATED
                of_ledgers, of_segments, of_sets, of_entries = found[risk]
                of_ledgers.add(number)
                of_segments.add((number, place))
                of_sets.add((number, place, entry_id % size))
                if not is_open:
                    of_entries.add((number, entry_id))
    return found


@pytest.mark.hypothesis
@given(
    made=st.lists(ledgers(), max_size=4),
    going=st.sets(st.sampled_from(B), max_size=3),
    lost=st.sets(st.sampled_from(B), max_size=3),
)
def test_against_a_count_of_every_entry(
    made: list[LedgerMetadata], going: set[BookieId], lost: set[BookieId]
) -> None:
    found = RiskReport(going, [b for b in B if b not in lost], B)
    for one in made:
        found.add(one)
    # One that is stopped and goes still has its copies before.
    for tallies, gone in ((found.tallies, going | lost), (found.before, lost - going)):
        for risk, wanted in counted(made, gone).items():
            tally = tallies[risk]
            numbers = (tally.ledgers, tally.segments, tally.write_sets, tally.entries)
            assert numbers == tuple(map(len, wanted)), risk
            assert tally.ledger_ids == [made[number].ledger_id for number in sorted(wanted[0])]


def check(bookie: int, staying: str, writable: str, *ledgers: LedgerMetadata) -> str:
    made = DrainCheck(B[bookie], [B[int(i)] for i in staying], [B[int(i)] for i in writable])
    for one in ledgers:
        made.add(one)
    return made.reason()


def test_a_drain_alone_may_begin_whatever_its_quorums() -> None:
    for qw, qa in ((3, 3), (3, 2), (2, 2), (1, 1)):
        assert check(0, "12345", "12345", ledger(1, qw, qa, (0, [0, 1, 2]), last=9)) == ""


def test_beside_another_it_waits_where_they_share_a_quorum() -> None:
    shared = ledger(1, 3, 2, (0, [0, 1, 2]), last=9)
    assert check(0, "2345", "2345", shared) == (
        "3 write sets would fall below their ack quorum together with b1, which drain or are "
        "lost: waits until no ledger names both"
    )
    assert check(0, "2345", "2345", ledger(1, 3, 2, (0, [0, 2, 3]), last=9)) == ""
    assert check(0, "2345", "2345", ledger(1, 3, 1, (0, [0, 1, 2]), last=9)) == ""


def test_it_waits_for_bookies_that_can_take_its_copies() -> None:
    made = ledger(1, 3, 2, (0, [0, 1, 2]), last=9)
    assert "1 segments find too few other bookies" in check(0, "12", "12", made)
    assert check(0, "123", "123", made) == ""
    assert "1 segments find" in check(0, "123", "12", made)  # 3 is read-only


def test_it_waits_for_bookies_that_open_ledgers_need() -> None:
    other = ledger(2, 3, 2, (0, [1, 2, 3]), last=None)
    assert "2 bookies would be writable, open ledgers need 3" in check(0, "123", "12", other)
    assert check(0, "123", "123", other) == ""
    assert check(0, "123", "12", replace(other, state=LedgerState.CLOSED)) == ""
