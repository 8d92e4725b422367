"""Spinning goes on where it pays, and costs next to nothing where it does not."""

from itertools import count

from bookie.runtime.short_waits import PAUSE_MAX, Spinning


def attempts(spinning: Spinning, waits: int, *, pays: bool) -> int:
    """Return how many of so many waits are tried, all of which end as said."""
    tried = 0
    for _ in range(waits):
        if spinning.begin():
            tried += 1
            if not pays:
                spinning.fail()
    return tried


def waits_until_tried(spinning: Spinning) -> int:
    return next(number for number in count(1) if spinning.begin())


def test_what_pays_is_always_tried() -> None:
    assert attempts(Spinning(), 10_000, pays=True) == 10_000


def test_what_does_not_pay_is_tried_ever_more_rarely() -> None:
    spinning = Spinning()
    assert attempts(spinning, 2_000, pays=False) < 20
    assert attempts(spinning, 100 * PAUSE_MAX, pays=False) <= 100


def test_one_miss_of_five_is_put_up_with() -> None:
    spinning = Spinning()
    for number in range(10_000):
        assert spinning.begin()
        if number % 5 == 4:
            spinning.fail()


def test_every_other_miss_is_too_much() -> None:
    spinning, tried = Spinning(), 0
    for number in range(10_000):
        if spinning.begin():
            tried += 1
            if number % 2:
                spinning.fail()
    assert tried < 2_000


def test_it_comes_back_when_it_pays_again() -> None:
    spinning = Spinning()
    attempts(spinning, 10_000, pays=False)
    assert waits_until_tried(spinning) <= PAUSE_MAX
    assert attempts(spinning, 100, pays=True) == 100


def test_what_paid_for_long_has_a_short_pause_again() -> None:
    spinning = Spinning()
    attempts(spinning, 10_000, pays=False)
    waits_until_tried(spinning)
    attempts(spinning, 10, pays=True)
    assert attempts(spinning, 2, pays=False) == 2
    assert waits_until_tried(spinning) == 17
