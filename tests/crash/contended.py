"""Contended: drawn transactions that meet what random ones seldom do.

One that has one snapshot for all its statements writes what others may have changed since, over
checkpoints, and waits for those that are about to; one writes rows at once on both sides of
savepoints, which the log gets later.
"""

from functools import partial

from tests.crash import operations
from tests.crash.operations import Operation
from tests.crash.world import Connection, World


def live(world: World, connection: Connection) -> None:
    """Run one transaction; it may stay open."""
    if world.levels.rng.random() < 0.4:
        _rows_at_once(world, connection)
    else:
        _on_one_snapshot(world, connection)


def _on_one_snapshot(world: World, connection: Connection) -> None:
    rng = world.levels.rng
    name = rng.choice("ab")
    others = [each for each in world.connections if not each.is_busy and each.work is None]
    others = [each for each in others if each is not connection]
    # Rows that the snapshot has in memory alone, and that are in no page when they are deleted.
    is_deleted = rng.random() < 0.3
    if is_deleted and others:
        insert = operations.insert(rng, name, count=3, is_many=False, is_upsert=True)
        world.run(rng.choice(others), insert)
    if connection.is_busy or connection.work is not None:
        return  # it came in between two parts of that statement
    world.begin(connection, is_repeatable=True)
    world.run(connection, operations.select(rng, name))
    for _ in range(rng.choice((1, 2, 4))):
        if is_deleted:
            world.checkpoint()
        if others:
            change = operations.delete(rng, name) if is_deleted else _change(world, name)
            world.run(rng.choice(others), change)
        if rng.random() < 0.4:
            world.checkpoint()
        if rng.random() < 0.1:
            world.compact()
    idle = [each for each in others if not each.is_busy and each.work is None]
    if idle and rng.random() < 0.5:
        world.begin(idle[0])
        world.run(idle[0], _change(world, name))
    world.done["on one snapshot"] += 1
    for _ in range(rng.choice((1, 2))):
        if connection.work is not None:
            world.run(connection, _change(world, name), may_spill=rng.random() < 0.1)
    _end(world, connection)


def _rows_at_once(world: World, connection: Connection) -> None:
    rng = world.levels.rng
    name = rng.choice("ab")
    world.begin(connection, is_repeatable=False)
    for verb in ("", "SAVEPOINT", rng.choice(("", "SAVEPOINT")), "ROLLBACK TO", ""):
        if connection.work is None:
            return
        if verb:
            world.savepoint(connection, verb, "x")
        for _ in range(rng.choice((0, 1, 2))):
            if connection.work is not None:
                world.run(connection, _row(world, name), may_spill=False, is_again=True)
        if rng.random() < 0.1:
            world.checkpoint()
    world.done["rows at once beside savepoints"] += 1
    _end(world, connection)


def _end(world: World, connection: Connection) -> None:
    rng = world.levels.rng
    chance = rng.random()
    if connection.work is not None and chance < 0.9:
        world.end(connection, is_commit=chance < 0.8)
    if rng.random() < 0.2:
        world.crash_soon(rng)


def _change(world: World, name: str) -> Operation:
    rng = world.levels.rng
    insert = partial(operations.insert, rng, name, is_many=False)
    return rng.choice(
        (
            lambda: operations.update(rng, name),
            lambda: operations.update(rng, name, is_whole=True),
            lambda: operations.delete(rng, name),
            lambda: insert(count=1, is_upsert=True),
            lambda: insert(count=3, is_upsert=True),
            lambda: insert(count=1, is_upsert=False),
            lambda: insert(count=1, is_upsert=False, skips_conflicts=True),
        )
    )()


def _row(world: World, name: str) -> Operation:
    return operations.insert(world.levels.rng, name, count=1, is_many=False, is_upsert=False)
