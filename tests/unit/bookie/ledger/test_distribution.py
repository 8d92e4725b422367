"""Write sets and coverage, by hand and against the definition over all small quorums."""

from itertools import product

import pytest

from bookie.errors import IncorrectParameterError
from bookie.ledger.distribution import (
    Coverage,
    absent_threshold,
    check_quorums,
    count_of,
    entries_of,
    failures_max,
    holds,
    no_news_threshold,
    runs_of,
    write_set,
)
from bookie.ledger.types import Status

QUORUMS = [(e, qw, qa) for e in range(1, 6) for qw in range(1, e + 1) for qa in range(1, qw + 1)]


def test_4_1_write_sets_by_hand() -> None:
    assert write_set(0, 5, 3) == (0, 1, 2)
    assert write_set(3, 5, 3) == (3, 4, 0)
    assert write_set(4, 5, 3) == (4, 0, 1)
    assert write_set(5, 5, 3) == (0, 1, 2)
    assert write_set(2**63 - 1, 5, 3) == (2, 3, 4)
    assert write_set(7, 3, 3) == (1, 2, 0)
    assert write_set(7, 1, 1) == (0,)


@pytest.mark.parametrize(("e", "qw", "qa"), QUORUMS)
def test_every_bookie_has_its_share(e: int, qw: int, qa: int) -> None:
    counts = [0] * e
    for entry_id in range(e * 4):
        indexes = write_set(entry_id, e, qw)
        assert indexes == tuple((entry_id + i) % e for i in range(qw))
        for index in range(e):
            assert holds(index, entry_id, e, qw) == (index in indexes)
            counts[index] += index in indexes
    assert counts == [4 * qw] * e
    for index in range(e):
        expected = [n for n in range(3, 20) if index in write_set(n, e, qw)]
        assert list(entries_of(index, 3, 19, e, qw)) == expected
        for first, last in product(range(7), range(-1, 15)):
            entries = list(entries_of(index, first, last, e, qw))
            assert count_of(index, first, last, e, qw) == len(entries)


def test_entries_striped_to_one_bookie_by_hand() -> None:
    # Ensemble of 5, three copies: entry n lies on n, n+1 and n+2 (mod 5).
    assert list(entries_of(0, 0, 9, 5, 3)) == [0, 3, 4, 5, 8, 9]
    assert list(entries_of(4, 0, 9, 5, 3)) == [2, 3, 4, 7, 8, 9]
    assert list(entries_of(1, 100, 102, 3, 3)) == [100, 101, 102]
    assert list(entries_of(1, 5, 4, 3, 2)) == []


def test_entries_of_a_huge_ledger_are_counted_and_taken_as_runs() -> None:
    assert count_of(1, 0, 10**15 - 1, 3, 2) == 666_666_666_666_667
    assert list(runs_of(1, 5, 10**15, 3, 3)) == [range(5, 10**15 + 1)]
    assert list(runs_of(0, 0, 9, 5, 3)) == [range(1), range(3, 6), range(8, 10)]


@pytest.mark.parametrize(("e", "qw", "qa"), QUORUMS)
def test_g3_coverage_is_per_write_set_with_wrap_around(e: int, qw: int, qa: int) -> None:
    """Covered exactly when no entry could have Qa copies among the silent bookies alone."""
    for is_known in product((False, True), repeat=e):
        coverage = Coverage(e, qw, qa)
        for index in range(e):
            if is_known[index]:
                coverage.record(index, Status.NO_ENTRY)
        hidden = max(
            sum(not is_known[index] for index in write_set(entry_id, e, qw))
            for entry_id in range(e)
        )
        assert coverage.is_covered == (hidden < qa), is_known


@pytest.mark.parametrize("status", Status)
def test_g3_only_ok_no_entry_and_no_ledger_are_answers(status: Status) -> None:
    coverage = Coverage(1, 1, 1)
    assert not coverage.is_covered
    assert not coverage.is_complete
    coverage.record(0, status)
    assert coverage.is_covered == (status in (Status.OK, Status.NO_ENTRY, Status.NO_LEDGER))
    assert coverage.is_complete
    assert coverage.statuses == (status,)


def test_g3_coverage_by_hand() -> None:
    """E5 Qw3 Qa2: neighbours 4, 0 and 1 are a write set, too."""
    coverage = Coverage(5, 3, 2)
    for index in (1, 2, 3):
        coverage.record(index, Status.OK)
    assert not coverage.is_covered  # 4 and 0 may have acknowledged entry 4 between them
    coverage.record(0, Status.TIMED_OUT)
    assert not coverage.is_covered
    coverage.record(4, Status.NO_LEDGER)
    assert coverage.is_covered
    assert coverage.is_complete


@pytest.mark.parametrize(("e", "qw", "qa"), QUORUMS)
def test_g4_absent_leaves_fewer_than_an_ack_quorum(e: int, qw: int, qa: int) -> None:
    """With one negative answer less, the others could still be an ack quorum."""
    assert qw - absent_threshold(qw, qa) == qa - 1
    assert qw - failures_max(qw, qa) == qa
    assert e - no_news_threshold(e, qa) == qa - 1


@pytest.mark.parametrize(
    ("e", "qw", "qa"), [(2, 3, 1), (3, 2, 3), (3, 3, 0), (0, 0, 0), (3, 3, -1)]
)
def test_quorums_out_of_order(e: int, qw: int, qa: int) -> None:
    with pytest.raises(IncorrectParameterError, match=f"{e}, {qw}, {qa}"):
        check_quorums(e, qw, qa)
    with pytest.raises(IncorrectParameterError):
        Coverage(e, qw, qa)
