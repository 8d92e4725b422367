"""How long a log is silent: what proves it, what does not, and who is given more time."""

import math

import pytest

from herdpy.cluster.takeover.silence import Silence

LIMIT_S = 12.0
LOOK_S = 0.5


class Watch:
    """A clock, and a log whose end is looked at."""

    def __init__(self, limit_s: float = LIMIT_S, leader_limit_s: float = LIMIT_S) -> None:
        self.now_s = 100.0
        self.silence = Silence(limit_s, lambda: self.now_s)
        self.silence.led_by("n1", leader_limit_s)
        self.ledger, self.entry = 1, 0
        self.silence.saw((1, 0))

    def wait(self, seconds: float, *, looks: bool = True, tick_s: float = math.inf) -> float:
        """Let time go by, with looks and ticks; return how long it was until it was too long."""
        begun_s = ticked_s = self.now_s
        while self.now_s < begun_s + seconds and not self.silence.is_too_long:
            self.now_s += LOOK_S
            if self.now_s - ticked_s >= tick_s:
                ticked_s = self.now_s
                self.entry += 1
            if looks:
                self.silence.looked(self.now_s, (self.ledger, self.entry))
        return self.now_s - begun_s


def test_a_log_in_which_nothing_comes_for_the_limit_is_silent_for_too_long() -> None:
    watch = Watch()
    assert watch.wait(100) == LIMIT_S
    assert watch.silence.proven_s == LIMIT_S


def test_ticks_that_come_a_third_of_the_limit_apart_keep_a_leader() -> None:
    watch = Watch()
    watch.wait(1000, tick_s=LIMIT_S / 3)
    assert not watch.silence.is_too_long


def test_a_log_that_cannot_be_looked_at_proves_nothing() -> None:
    watch = Watch()
    watch.wait(1000, looks=False)
    assert watch.silence.proven_s == 0.0
    watch.silence.looked(watch.now_s, (1, 0))
    assert watch.silence.proven_s == LIMIT_S / 2  # it may have slept beside the leader
    watch.wait(LIMIT_S / 2 - LOOK_S)
    assert not watch.silence.is_too_long
    watch.wait(LOOK_S)
    assert watch.silence.is_too_long


def test_a_look_counts_from_its_sending() -> None:
    watch = Watch()
    sent_s = watch.now_s
    watch.now_s += 100
    watch.silence.looked(sent_s, (1, 0))
    assert watch.silence.proven_s == 0.0


def test_the_end_is_looked_for_often_once_a_tick_is_missing() -> None:
    watch = Watch()
    assert not watch.silence.is_suspicious
    watch.wait(LIMIT_S / 2 - LOOK_S, looks=False)
    assert not watch.silence.is_suspicious
    watch.wait(LOOK_S, looks=False)
    assert watch.silence.is_suspicious
    watch.silence.saw((1, 1))
    assert not watch.silence.is_suspicious


@pytest.mark.parametrize(("own_s", "leader_s"), [(math.inf, 12.0), (12.0, 0.0)])
def test_who_watches_nothing_or_follows_a_leader_that_does_not_tick_waits_for_ever(
    own_s: float, leader_s: float
) -> None:
    watch = Watch(own_s, leader_s)
    watch.wait(10_000)
    assert not watch.silence.is_too_long
    assert not watch.silence.is_suspicious


def test_the_longer_one_of_two_limits_counts() -> None:
    assert Watch(12.0, 60.0).wait(1000) == 60.0
    assert Watch(60.0, 12.0).wait(1000) == 60.0


def test_changes_of_leaders_that_do_no_good_are_ever_farther_apart() -> None:
    """As where bookies are what is slow: each leader writes its header, and no more."""
    watch = Watch()
    waited: list[float] = []
    for ledger in range(2, 10):
        watch.silence.changed()
        watch.silence.led_by(f"n{ledger % 2}", LIMIT_S)
        watch.ledger = ledger
        watch.silence.saw((ledger, 0))
        waited.append(watch.wait(10_000))
    assert waited == [2 * LIMIT_S, 4 * LIMIT_S, *[8 * LIMIT_S] * 6]
    watch.ledger = 20
    watch.silence.saw((20, 0))
    watch.wait(5 * LIMIT_S, tick_s=LIMIT_S / 3)
    assert watch.wait(10_000) == LIMIT_S  # ticks came: the change has done good


def test_another_leader_has_the_whole_limit() -> None:
    watch = Watch()
    watch.wait(LIMIT_S - LOOK_S)
    watch.silence.led_by("n2", LIMIT_S)
    watch.silence.led_by("n2", LIMIT_S)
    assert watch.wait(100) == LIMIT_S
