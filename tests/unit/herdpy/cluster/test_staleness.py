"""How old what a copy shows may be, as it knows."""

import math

import pytest

from herdpy.cluster.served_part import Leader, ServedPart
from herdpy.cluster.staleness import Staleness
from herdpy.cluster.tenure import Tenure
from herdpy.errors import OperationalError, Retry


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def staleness(clock: Clock) -> Staleness:
    return Staleness(clock)


def test_at_first_it_is_not_known(staleness: Staleness) -> None:
    assert staleness.lag_s() == math.inf
    staleness.took((3, 10))
    assert staleness.lag_s() == math.inf


def test_it_counts_from_the_sending_of_a_look(clock: Clock, staleness: Staleness) -> None:
    staleness.took((3, 10))
    staleness.saw_end(95.0, (3, 10))
    assert staleness.lag_s() == 5.0
    clock.now_s = 102.5
    assert staleness.lag_s() == 7.5
    staleness.saw_end(94.0, (3, 9))  # an answer that comes late
    assert staleness.lag_s() == 7.5


def test_an_end_that_is_not_reached_counts_when_it_is(clock: Clock, staleness: Staleness) -> None:
    staleness.took((3, 10))
    staleness.saw_end(98.0, (3, 12))
    staleness.saw_end(99.0, (4, 0))
    assert staleness.lag_s() == math.inf
    staleness.took((3, 11))
    assert staleness.lag_s() == math.inf
    staleness.took((3, 12))
    assert staleness.lag_s() == 2.0
    staleness.took((4, -1))
    assert staleness.lag_s() == 2.0
    staleness.took((4, 0))
    assert staleness.lag_s() == 1.0


def test_a_copy_that_is_far_behind_keeps_few_looks(clock: Clock, staleness: Staleness) -> None:
    for number in range(1000):
        staleness.saw_end(float(number), (0, number))
    staleness.took((0, 5))
    assert staleness.lag_s() == 95.0
    staleness.took((0, 999))
    assert staleness.lag_s() == 100.0 - 63
    staleness.saw_end(99.0, (0, 999))
    assert staleness.lag_s() == 1.0


@pytest.fixture
def part(staleness: Staleness) -> ServedPart:
    return ServedPart("sales", "n2", staleness)


def test_what_a_node_that_follows_refuses(part: ServedPart, staleness: Staleness) -> None:
    for read in ("", "leader"):
        with pytest.raises(
            OperationalError, match="no node is known to lead it; node n2"
        ) as caught:
            part.check_hello(read, 10.0)
        assert (caught.value.sqlstate, caught.value.retry) == ("25006", Retry.SAFE)
        assert caught.value.leader is None
    part.leader = Leader("n1", "h:7000")
    with pytest.raises(OperationalError, match="node n1 at h:7000 leads it") as caught:
        part.check_hello("", 10.0)
    assert caught.value.leader == "h:7000"
    with pytest.raises(OperationalError, match="of an age that is not known"):
        part.check_hello("follower", 10.0)
    staleness.saw_end(90.5, (-1, -1))
    part.check_hello("follower", 10.0)
    part.check_hello("nearest", 10.0)
    with pytest.raises(OperationalError, match=r"may be 9\.5 s old: at most 9 s") as caught:
        part.check_lag(9.0)
    assert (caught.value.sqlstate, caught.value.retry) == ("25006", Retry.SAFE)


def test_no_answer_leaves_from_where_it_may_write_until_it_leads(
    part: ServedPart, clock: Clock
) -> None:
    told: list[str] = []
    assert part.holds()
    part.hold()
    assert not part.holds()
    assert not part.follows
    with pytest.raises(OperationalError, match="of an age that is not known"):
        part.check_lag(10.0)  # it does not have the rest of the log yet
    part.wait(lambda: told.append("leads"))
    tenure = Tenure(clock)
    tenure.renew(100.0, 2.0)
    part.lead(tenure)
    assert told == ["leads"]
    assert part.holds()
    assert part.lag_s() == 0.0
    part.check_hello("", 1.0)
    part.check_hello("nearest", 1.0)
    part.check_lag(0.0)
    with pytest.raises(OperationalError, match="node n2 leads it, and a node that follows"):
        part.check_hello("follower", 1.0)
    clock.now_s = 102.0  # the tenure is over
    assert not part.holds()
    part.wait(lambda: told.append("again"))
    tenure.renew(102.0, 2.0)
    assert told == ["leads", "again"]
