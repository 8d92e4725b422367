"""Places of unfinished results: shares, waits, and who gives way."""

import gc
from typing import Any

import pytest

from herdpy.engine.statements.lock_wait import MustWaitError
from herdpy.engine.statements.refusals import Refusals
from herdpy.engine.statements.result_places import Holder, Place, ResultPlaces
from herdpy.errors import Error, OperationalError
from herdpy.model.access import User
from tests.fixtures.interrupts import LineInterrupter
from tests.sim.clock import SimulatedClock

UNREAD_S = 60.0
ANN, EVE = User("ann", 1), User("eve", 2)


class Result:
    """What a place is of; `error` is what it was ended with."""

    error: Error | None = None

    def end(self, error: Error) -> None:
        self.error = error


class World:
    def __init__(self, count_max: int = 8, unread_s: float = UNREAD_S) -> None:
        self.clock = SimulatedClock()
        self.refusals = Refusals()
        self.places = ResultPlaces(self.clock, count_max)
        self.places.unread_s = unread_s

    def take(self, user: User | None, session: int = 1, **options: Any) -> tuple[Place, Result]:
        is_administrator = options.pop("is_administrator", user is None)
        maximum = options.pop("maximum", None)
        holder = Holder(session, user, is_administrator, self.refusals, maximum)
        place = self.places.take(holder, may_wait=options.pop("may_wait", True))
        result = Result()
        place.watch(result)
        return place, result

    def refused(self, user: User | None, session: int = 1, **options: Any) -> str:
        with pytest.raises(Error) as caught:
            self.take(user, session, **options)
        return caught.value.sqlstate

    def wait(self, user: User | None, session: int) -> Any:
        """Begin to wait for a place; return the Ticket, awaited."""
        with pytest.raises(MustWaitError) as caught:
            self.take(user, session)
        caught.value.ticket.on_done(lambda: None)
        assert caught.value.late().sqlstate == "53200"
        return caught.value.ticket


def test_a_database_of_its_own_has_no_shares_and_no_waits() -> None:
    world = World(4, unread_s=0)
    held = [world.take(None) for _ in range(4)]
    world.clock.advance(1_000)
    assert world.refused(None) == "53200"
    held.pop()[0].close()
    held.append(world.take(None))
    assert world.places.used == 4
    assert not any(result.error for _, result in held)


def test_no_user_takes_the_places_of_others_or_of_superusers() -> None:
    world = World(8)
    ann = [world.take(ANN, n) for n in range(6)]
    assert world.refused(ANN, 7) == "53400"
    assert world.refused(ANN, 7, maximum=5) == "53400"
    waiting = world.wait(EVE, 8)
    root = [world.take(User("root", 3), 9, is_administrator=True) for _ in range(2)]
    world.wait(User("root", 3), 9)
    assert (world.places.used, world.places.refused, world.places.waits) == (8, 2, 2)
    assert world.places.waiting == [8, 9]
    root.pop()[0].close()
    assert not waiting.is_done  # the last places are not for eve
    ann.pop()[0].close()
    ann.pop()[0].close()
    assert waiting.is_done
    world.take(EVE, 8)


def test_a_role_may_have_less_or_more_than_its_share() -> None:
    world = World(8)
    kept = [world.take(ANN, maximum=1)]
    assert world.refused(ANN, maximum=1) == "53400"
    kept += [world.take(ANN, maximum=8) for _ in range(5)]
    with pytest.raises(MustWaitError):
        world.take(ANN, maximum=8)


def test_places_of_a_tablespace_that_is_closed_are_others() -> None:
    world = World(5)
    _, gone = world.take(ANN)
    other, world.refusals = world.refusals, Refusals()
    _, kept = world.take(ANN)
    root = world.take(None)
    waiting = world.wait(EVE, 7)
    error = OperationalError("closed", sqlstate="57P01")
    world.places.end_all(other, error)
    assert (gone.error, kept.error) == (error, None)
    assert world.places.used == 2
    assert other not in [each.refusals for each in world.places.holders]
    assert waiting.is_done  # the place is kept for who has waited
    world.places.end_all(other, error)
    assert world.places.used == 2
    root[0].close()


def test_what_nothing_is_read_of_gives_way_to_who_waits() -> None:
    world = World(4)
    ann = [world.take(ANN) for _ in range(2)]
    ticket = world.wait(EVE, 2)
    world.clock.advance(UNREAD_S - 1)
    ann[0][0].read()
    world.places.look_after()
    assert not ticket.is_done
    world.clock.advance(1)
    world.places.look_after()
    assert ticket.is_done
    eve = world.take(EVE, 2)
    ended = ann[1][1].error
    assert ended is not None
    assert ended.sqlstate == "53200"
    assert ann[0][1].error is None
    assert (world.places.used, world.places.ended) == (2, 1)
    ann[1][0].close()  # repeatable: its place is another one's
    assert world.places.used == 2
    eve[0].close()


def test_without_others_nothing_gives_way() -> None:
    world = World(4)
    kept = [world.take(ANN) for _ in range(2)]
    world.clock.advance(10 * UNREAD_S)
    world.places.look_after()
    assert not any(result.error for _, result in kept)
    newcomer = world.take(EVE, 2)  # who comes then does not wait
    assert [result.error is None for _, result in kept] == [False, True]
    newcomer[0].close()


def test_places_come_in_order_and_not_to_those_who_come_later() -> None:
    world = World(4)
    ann = [world.take(ANN) for _ in range(2)]
    first, second = world.wait(EVE, 2), world.wait(EVE, 3)
    ann[0][0].close()
    assert (first.is_done, second.is_done) == (True, False)
    world.wait(ANN, 4)
    kept = world.take(EVE, 2)
    ann[1][0].close()
    assert second.is_done
    assert world.take(EVE, 3)[0] is not kept[0]


def test_who_was_told_and_does_not_come_keeps_no_place() -> None:
    world = World(4)
    ann = [world.take(ANN) for _ in range(2)]
    first = world.wait(EVE, 2)
    with pytest.raises(MustWaitError) as caught:
        world.take(EVE, 3)  # and its statement is cancelled: no one awaits its ticket
    last = world.wait(EVE, 4)
    world.clock.advance(1)
    ann[0][0].close()
    assert first.is_done
    world.clock.advance(0.5)
    world.places.look_after()
    assert not last.is_done
    world.clock.advance(0.5)
    world.places.look_after()
    assert last.is_done
    assert not caught.value.ticket.is_done
    world.take(EVE, 4)


def test_a_forgotten_result_gives_its_place_back() -> None:
    world = World(4)
    world.take(ANN)
    world.take(ANN)
    gc.collect()
    world.take(ANN)
    assert world.places.used == 1


def test_no_interrupt_is_lost_while_a_result_is_collected() -> None:
    world = World(1)
    held = [world.take(None)]
    with LineInterrupter(1) as interrupter:
        held.clear()
        gc.collect()
    assert interrupter.where == ""  # there is no line of ours, where it would be dropped
    world.take(None)


def test_a_fetch_cannot_wait() -> None:
    world = World(3)
    kept = world.take(ANN)
    assert world.refused(EVE, 2, may_wait=False) == "53200"
    kept[0].close()
