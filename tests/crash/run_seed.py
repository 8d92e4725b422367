"""One seed: a history, a crash at a random step, recovery (perhaps crashed too), checks."""

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.crash import checks, contended, long_transactions, operations
from tests.crash.levels import Levels
from tests.crash.model import Model
from tests.crash.parts import Parts
from tests.crash.tablespaces import CHANGES, Tablespaces
from tests.crash.world import STYLES, LifeOver, Spills, World
from tests.fixtures.engines import TABLESPACE
from tests.fixtures.small_sizes import small_sizes
from tests.sim.disk import SimulatedCrash, SimulatedDisk

STATEMENTS = 100
_STEPS_GUESS = 260
KINDS = ("open", "write", "sync", "rename", "sync_directory", "unlink", "truncate")
ACTIVITIES = ("commit", "checkpoint", "compaction", "log roll", "rollback", "recovery")
if TABLESPACE is None:
    ACTIVITIES += CHANGES


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
    others = Tablespaces(seed)
    disk.crash_at = rng.randrange(1, _STEPS_GUESS)
    _until_crash(world, crashes, lambda: _live(world, others))
    done = world.done
    for _ in range(style.short_lives + others.more_lives):
        world = _recover(world, others, crashes)
        if rng.random() < 0.5:
            world.disk.crash_at = world.disk.step_count + rng.randrange(1, 40)
        _until_crash(world, crashes, lambda world=world: _live_on(world, others))
        done.update(world.done)
    world = _recover(world, others, crashes)
    others.open_all()
    listing = others.listing()
    world.close()
    others.open(world, check=checks.check_unchanged)
    others.open_all()
    assert others.listing() == listing, "a close and open changed the directory"
    world.close()
    done.update(others.done)
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
        world.say(f"*** {error}, during {' > '.join(world.shared.activities)}")


def _live_on(world: World, others: Tablespaces) -> None:
    """Live a short life after recovery."""
    for name in ("a", "b", "h"):
        if name not in world.model.visible.names:
            world.run(world.connections[0], operations.create(name))
    for _ in range(world.rng.randrange(12)):
        _act(world, others)
    world.check_held()


def _act(world: World, others: Tablespaces) -> None:
    """Do one random thing; a long transaction is many."""
    free = [each for each in world.connections if not each.is_busy and each.work is None]
    if others.draw():
        others.live()
    elif world.parts.draw_long() and free:
        long_transactions.live(world, world.parts.rng.choice(free))
    elif world.levels.draw_contended() and free:
        contended.live(world, world.levels.rng.choice(free))
    else:
        world.act()


def _live(world: World, others: Tablespaces) -> None:
    rng = world.rng
    others.open(world, session_count=rng.choice((2, 3)))
    first = world.connections[0]
    for name in ("a", "b", "h"):
        world.run(first, operations.create(name))
    others.begin()
    count = 0
    while world.done["statement"] + world.done["commit"] + world.done["rollback"] < STATEMENTS:
        count += 1
        try:
            _act(world, others)
        except LifeOver as error:
            if rng.random() < 0.5:
                raise
            world.say(f"*** the log failed: {error}")
            _reopen(world)
        if count % 25 == 0:
            world.disk.heal()
            for each in world.shared.worlds.values():
                if each.database.tablespace.log.failure is None:
                    checks.check_open_transactions(each.database)
                    checks.check_locks(each)
        if rng.random() < 0.01:
            _reopen(world)
        if rng.random() < 0.01:
            world.close()
            session_count = rng.choice((2, 3))
            others.open(world, session_count=session_count, check=checks.check_unchanged)
    world.check_held()


def _reopen(world: World) -> None:
    world.reopen()
    for each in world.shared.worlds.values():
        checks.check_survived(each)


def _recover(world: World, others: Tablespaces, crashes: list[tuple[str, str]]) -> World:
    """Return the world of the next process, which may itself crash while it recovers."""
    rng = world.rng
    crash_count = rng.choice((0, 0, 1, 2))
    while True:
        world = world.restart(is_power_lost=others.draw_power_loss())
        if crash_count:
            world.disk.crash_at = rng.randrange(1, 20) + others.draw_later()
        crash_count -= 1
        try:
            others.open(world)
            world.disk.crash_at = None
            return world
        except SimulatedCrash as error:
            crashes.append(world.crash_site())
            world.say(f"*** {error}, during {' > '.join(world.shared.activities)}")
