"""When a leader begins the next ledger, and when it gives its part away for want of one."""

import pytest

from herdpy.cluster.upkeep import Ledger, Limits, Upkeep
from herdpy.errors import OperationalError, Retry

LIMITS = Limits(look_s=1.0, age_s=100.0, missing_s=10.0, without_s=20.0)
AWAY = OperationalError("too few bookies", sqlstate="58030", retry=Retry.SAFE)


def ledger(
    ledger_id: int = 1, byte_count: int = 5, *, is_narrow: bool = False, is_missing: bool = False
) -> Ledger:
    return Ledger(ledger_id, byte_count, is_narrow=is_narrow, is_missing=is_missing)


def test_a_ledger_is_rolled_when_it_is_old_and_has_records() -> None:
    upkeep = Upkeep(LIMITS)
    assert not upkeep.is_due(ledger(), 5.0)
    assert not upkeep.is_due(ledger(), 104.9)
    assert not upkeep.is_due(ledger(byte_count=0), 105.0)
    assert upkeep.is_due(ledger(), 105.0)
    assert not upkeep.is_due(ledger(2), 105.1)  # its age begins anew
    assert not upkeep.is_due(ledger(2), 205.0)


def test_a_narrow_ledger_is_rolled_at_once() -> None:
    assert Upkeep(LIMITS).is_due(ledger(is_narrow=True), 1.0)


def test_a_ledger_is_rolled_when_a_bookie_of_it_is_missing_for_a_while() -> None:
    upkeep = Upkeep(LIMITS)
    assert not upkeep.is_due(ledger(is_missing=True), 1.0)
    assert not upkeep.is_due(ledger(is_missing=True), 10.9)
    assert not upkeep.is_due(ledger(), 11.0)  # it answers again
    assert not upkeep.is_due(ledger(is_missing=True), 20.9)
    assert upkeep.is_due(ledger(is_missing=True), 21.0)


@pytest.mark.parametrize("is_begun_between", [False, True])
def test_a_leader_without_a_ledger_for_long_gives_its_part_away(is_begun_between: bool) -> None:
    upkeep = Upkeep(LIMITS)
    assert upkeep.is_due(None, 1.0)
    assert upkeep.failed(AWAY, 1.5) is None
    assert upkeep.is_due(None, 2.0)
    if is_begun_between:
        assert not upkeep.is_due(ledger(), 3.0)
    assert upkeep.failed(AWAY, 21.4) is None
    assert (upkeep.failed(AWAY, 21.5) is AWAY) != is_begun_between
    assert upkeep.failed(AWAY, 41.4) is AWAY
