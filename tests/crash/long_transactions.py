"""Long transactions: drawn ones that change much, in tables they make or find, and partly fail.

Their statements go by parts or spill; some fail half way, behind others whose changes stay; and
COMMIT applies what is in memory by parts beside what is in stages. Source: ADR 0057.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.crash import operations
from tests.crash.model import SHAPES, RefusedError
from tests.crash.operations import Operation
from tests.crash.world import Connection, World

_SPILLS = 0.5
_CANCELS = 0.4
_CHECKPOINTS = 0.15
_CRASHES = 0.3


class _Step(NamedTuple):
    """A statement, made when its turn comes, and what is to become of it."""

    make: Callable[[], Operation]
    may_spill: bool = False
    is_to_fail: bool = False


def live(world: World, connection: Connection) -> None:
    """Run one transaction; it may stay open."""
    rng = world.parts.rng
    world.begin(connection)
    world.done["long transaction"] += 1
    for step in _drawn(world, connection, rng):
        if connection.work is None:
            return  # a deadlock, or a conflict, has ended it
        if world.levels.draw_savepoint():
            world.savepoint(connection)
        world.run(connection, step.make(), may_spill=step.may_spill, is_to_fail=step.is_to_fail)
        if rng.random() < _CHECKPOINTS:
            world.checkpoint()
        if connection.work is not None and world.levels.draw_savepoint():
            world.savepoint(connection)
    if connection.work is None:
        return
    chance = rng.random()
    if chance < 0.85:
        world.end(connection, is_commit=chance < 0.75)
    if rng.random() < _CRASHES:
        world.crash_soon(rng)


def _drawn(world: World, connection: Connection, rng: random.Random) -> list[_Step]:
    names = [rng.choice("ab")]
    drawn: list[_Step] = []
    if rng.random() < 0.4:
        name = rng.choice("cccd")
        try:
            world.model.table(name, connection.work)
            drawn.append(_Step(partial(operations.truncate, name)))
        except RefusedError:
            drawn.append(_Step(partial(operations.create, name)))
        drawn.append(_Step(partial(_filling, rng, name), may_spill=True))
        drawn.append(_Step(partial(_filling, rng, name)))
        names += [name, name]
    for _ in range(rng.choice((1, 2, 3))):
        name = rng.choice(names)
        if not SHAPES[name].is_heap and rng.random() < _CANCELS:
            drawn.append(_Step(partial(_many_rows, rng, name)))
            whole = partial(operations.update, rng, name, is_whole=True)
            drawn.append(_Step(whole, is_to_fail=True))
        else:
            may_spill = rng.random() < _SPILLS
            drawn.append(_Step(partial(_statement, rng, name), may_spill=may_spill))
    return drawn


def _filling(rng: random.Random, name: str) -> Operation:
    count = rng.choice((3, 6, 12))
    return operations.insert(rng, name, count=count, is_many=rng.random() < 0.5, is_upsert=False)


def _many_rows(rng: random.Random, name: str) -> Operation:
    if rng.random() < 0.5:
        return operations.update(rng, name, is_whole=True)
    return operations.insert(rng, name, count=12, is_many=True, is_upsert=True)


def _statement(rng: random.Random, name: str) -> Operation:
    if SHAPES[name].is_heap:
        return _filling(rng, name)
    chance = rng.random()
    if chance < 0.25:
        return operations.update(rng, name, is_whole=rng.random() < 0.5)
    if chance < 0.5:
        return operations.divide(rng, name)
    if chance < 0.65:
        return operations.copy(rng, name)
    if chance < 0.75:
        return operations.rekey(rng, name)
    if chance < 0.8:
        return operations.delete(rng, name)
    count = rng.choice((1, 2, 8, 12))
    return operations.insert(rng, name, count=count, is_many=count > 2, is_upsert=True)
