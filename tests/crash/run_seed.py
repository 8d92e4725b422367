"""One seed: a history, a crash at a random step, recovery (perhaps crashed too), checks."""

import random
from collections.abc import Callable
from typing import NamedTuple

from herdpy.errors import Error
from herdpy.log.interfaces import Durability
from tests.crash import checks, operations
from tests.crash.model import Model
from tests.crash.world import World
from tests.sim.disk import SimulatedCrash, SimulatedDisk

STATEMENTS = 100
_STEPS_GUESS = 260
_DURABILITIES = (
    (Durability.SYNC,),
    (Durability.SYNC,),
    (Durability.SYNC, Durability.SYNC, Durability.OS, Durability.NONE),
    (Durability.OS, Durability.OS, Durability.SYNC),
)
KINDS = ("open", "write", "sync", "rename", "sync_directory", "unlink", "truncate")
ACTIVITIES = ("commit", "checkpoint", "compaction", "log roll", "rollback", "recovery")


class Outcome(NamedTuple):
    """What one run did: crashes as (kind of step, activity), and how often things happened."""

    crashes: list[tuple[str, str]]
    done: dict[str, int]
    steps: int


class Finding(Exception):
    """The run found a defect."""


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; Finding (with its cause) when something was not as it must be."""
    try:
        return _run(seed, say)
    except SimulatedCrash as error:
        raise Finding(f"seed {seed}: a crash where none was planned: {error}") from error
    except (Exception, AssertionError) as error:
        raise Finding(f"seed {seed}: {type(error).__name__}: {error}") from error


def _run(seed: int, say: Callable[[str], object] | None) -> Outcome:
    rng = random.Random(seed)
    disk = SimulatedDisk(rng.getrandbits(64))
    disk.trace = []
    model = Model()
    with_vector = rng.random() < 0.02
    durabilities = rng.choice(_DURABILITIES)
    crashes: list[tuple[str, str]] = []
    world = World(disk, rng, model, say, with_vector=with_vector, durabilities=durabilities)
    disk.crash_at = rng.randrange(1, _STEPS_GUESS)
    try:
        _live(world)
    except SimulatedCrash as error:
        crashes.append(_crash_site(world))
        if say is not None:
            say(f"*** {error}, during {' > '.join(world.activities)}")
    done = world.done
    steps = disk.step_count
    world = _recover(world, rng, crashes, say)
    _check(world, rng)
    for name in ("a", "b", "h"):
        if name not in model.visible.names:
            world.run(world.connections[0], operations.create(name))
    for _ in range(10):
        world.act()
    if rng.random() < 0.5:
        world.close()
        world.open()
        if model.visible.plain() != checks.found_content(world.database):
            raise AssertionError("a clean close and open changed the content")
    else:
        world.check_held(close_all=True)
        world = _recover(world, rng, crashes, say)
    _check(world, rng)
    world.close()
    return Outcome(crashes, dict(done), steps)


def _live(world: World) -> None:
    rng = world.rng
    world.open(session_count=rng.choice((2, 3)))
    first = world.connections[0]
    for name in ("a", "b", "h"):
        world.run(first, operations.create(name))
    count = 0
    while world.done["statement"] + world.done["commit"] + world.done["rollback"] < STATEMENTS:
        count += 1
        world.act()
        if count % 25 == 0:
            checks.check_open_transactions(world.database)
        if rng.random() < 0.01:
            world.close()
            world.open(session_count=rng.choice((2, 3)))
            found = checks.found_content(world.database)
            assert found == world.model.visible.plain(), "a clean close and open changed the content"
            checks.check_recovered(world.database)
    world.check_held()


def _recover(
    world: World,
    rng: random.Random,
    crashes: list[tuple[str, str]],
    say: Callable[[str], object] | None,
) -> World:
    """Return the world of the next process, which may crash while it recovers, twice at most."""
    crash_count = rng.choice((0, 0, 1, 2))
    while True:
        disk = world.disk.restart(rng.getrandbits(64), is_power_lost=rng.random() < 0.9)
        disk.trace = []
        world = World(
            disk,
            rng,
            world.model,
            say,
            with_vector=world.with_vector,
            durabilities=world.durabilities,
        )
        if crash_count:
            disk.crash_at = rng.randrange(1, 20)
        crash_count -= 1
        if say is not None:
            say("restart")
        try:
            world.open()
            disk.crash_at = None
            return world
        except SimulatedCrash as error:
            crashes.append(_crash_site(world))
            if say is not None:
                say(f"*** {error}, during {' > '.join(world.activities)}")


def _check(world: World, rng: random.Random) -> None:
    checks.check_recovered(world.database)
    world.model.survive(checks.found_content(world.database))
    checks.check_digest(world.database)
    checks.check_reads(world.database, rng, world.model, with_vector=world.with_vector)


def _crash_site(world: World) -> tuple[str, str]:
    assert world.disk.trace
    kind, path, _ = world.disk.trace[-1]
    activity = world.activities[-1] if world.activities else "statement"
    if activity == "commit" and world.has_rollback and "/log/" in path:
        activity = "rollback"
    return kind, activity


__all__ = ["ACTIVITIES", "KINDS", "Error", "Finding", "Outcome", "run_seed"]
