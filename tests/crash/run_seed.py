"""One seed: a history, a crash at a random step, recovery (perhaps crashed too), checks."""

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.crash import checks, contended, long_transactions, operations
from tests.crash.levels import Levels
from tests.crash.model import Model
from tests.crash.parts import Parts
from tests.crash.world import STYLES, LifeOver, Spills, World
from tests.fixtures.small_sizes import small_sizes
from tests.sim.disk import SimulatedCrash, SimulatedDisk

STATEMENTS = 100
_STEPS_GUESS = 260
KINDS = ("open", "write", "sync", "rename", "sync_directory", "unlink", "truncate")
ACTIVITIES = ("commit", "checkpoint", "compaction", "log roll", "rollback", "recovery")


class Outcome(NamedTuple):
    """What one run did: crashes as (kind of step, activity), and how often things happened."""

    crashes: list[tuple[str, str]]
    done: dict[str, int]


class FindingError(Exception):
    """The run found a defect."""


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when something was not as it must be."""
    try:
        parts = Parts(seed)
        with small_sizes(), parts.placed():
            return _run(seed, say, parts)
    except SimulatedCrash as error:
        raise FindingError(f"seed {seed}: a crash where none was planned: {error}") from error
    except (Exception, AssertionError) as error:
        raise FindingError(f"seed {seed}: {type(error).__name__}: {error}") from error


def _run(seed: int, say: Callable[[str], object] | None, parts: Parts) -> Outcome:
    rng = random.Random(seed)
    disk = SimulatedDisk(rng.getrandbits(64))
    style = rng.choice(STYLES)
    crashes: list[tuple[str, str]] = []
    world = World(
        disk,
        rng,
        Model(),
        say,
        style=style,
        with_vector=rng.random() < 0.02,
        spills=Spills(seed),
        parts=parts,
        levels=Levels(seed),
    )
    disk.crash_at = rng.randrange(1, _STEPS_GUESS)
    _until_crash(world, crashes, lambda: _live(world))
    done = world.done
    for _ in range(style.short_lives):
        world = _recover(world, crashes)
        _check(world)
        if rng.random() < 0.5:
            world.disk.crash_at = world.disk.step_count + rng.randrange(1, 40)
        _until_crash(world, crashes, lambda world=world: _live_on(world))
        done.update(world.done)
    world = _recover(world, crashes)
    _check(world)
    content = world.model.visible.plain()
    world.close()
    world.open()
    assert checks.found_content(world.database) == content, "a close and open changed the content"
    assert checks.found_tokens(world.database) == world.model.visible.tokens
    checks.check_recovered(world)
    world.leases.check(world.database)
    world.close()
    return Outcome(crashes, dict(done))


def _until_crash(world: World, crashes: list[tuple[str, str]], life: Callable[[], object]) -> None:
    """Run a life to its end or to the planned crash. Either way the power goes off then."""
    try:
        life()
    except LifeOver as error:
        world.say(f"*** the life ends: {error}")
    except SimulatedCrash as error:
        assert world.disk.crash_at is not None
        crashes.append(world.crash_site())
        world.say(f"*** {error}, during {' > '.join(world.activities)}")


def _live_on(world: World) -> None:
    """Live a short life after recovery."""
    for name in ("a", "b", "h"):
        if name not in world.model.visible.names:
            world.run(world.connections[0], operations.create(name))
    for _ in range(world.rng.randrange(12)):
        _act(world)
    world.check_held()


def _act(world: World) -> None:
    """Do one random thing; a long transaction is many."""
    free = [each for each in world.connections if not each.is_busy and each.work is None]
    if world.parts.draw_long() and free:
        long_transactions.live(world, world.parts.rng.choice(free))
    elif world.levels.draw_contended() and free:
        contended.live(world, world.levels.rng.choice(free))
    else:
        world.act()


def _live(world: World) -> None:
    rng = world.rng
    world.open(session_count=rng.choice((2, 3)))
    first = world.connections[0]
    for name in ("a", "b", "h"):
        world.run(first, operations.create(name))
    count = 0
    while world.done["statement"] + world.done["commit"] + world.done["rollback"] < STATEMENTS:
        count += 1
        try:
            _act(world)
        except LifeOver as error:
            if rng.random() < 0.5:
                raise
            world.say(f"*** the log failed: {error}")
            _reopen(world)
        if count % 25 == 0:
            world.disk.heal()
            if world.database.tablespace.log.failure is None:
                checks.check_open_transactions(world.database)
                checks.check_locks(world)
        if rng.random() < 0.01:
            _reopen(world)
        if rng.random() < 0.01:
            world.close()
            world.open(session_count=rng.choice((2, 3)))
            found = checks.found_content(world.database)
            assert found == world.model.visible.plain(), (
                "a clean close and open changed the content"
            )
            checks.check_recovered(world)
    world.check_held()


def _reopen(world: World) -> None:
    world.reopen()
    _check(world)


def _recover(world: World, crashes: list[tuple[str, str]]) -> World:
    """Return the world of the next process, which may itself crash while it recovers."""
    rng = world.rng
    crash_count = rng.choice((0, 0, 1, 2))
    while True:
        world = world.restart()
        if crash_count:
            world.disk.crash_at = rng.randrange(1, 20)
        crash_count -= 1
        try:
            world.open()
            world.disk.crash_at = None
            return world
        except SimulatedCrash as error:
            crashes.append(world.crash_site())
            world.say(f"*** {error}, during {' > '.join(world.activities)}")


def _check(world: World) -> None:
    checks.check_recovered(world)
    world.leases.survive(world.database)
    database = world.database
    world.model.survive(checks.found_content(database), checks.found_tokens(database))
    checks.check_digest(world.database)
    checks.check_reads(world.database, world.rng, world.model, with_vector=world.with_vector)
