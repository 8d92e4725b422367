"""One seed: the life of a server and its clients, in a world that calms down.

Rough: clients do what they do, faults happen. Calm: faults end, the server comes up, clients end
their work; a last client reads everything. Then the server is closed and opened again: what is
there is what was there.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from tests.fixtures.small_sizes import small_sizes
from tests.sim.server.checkers import CheckError, Fate
from tests.sim.server.clients import Client, check_end, fill
from tests.sim.server.faults import Faults
from tests.sim.server.plan import draw_plan
from tests.sim.server.world import World
from tests.sim.simulation import Outcome, run_life
from tests.sim.switching import in_thread

_LIFE_S = 200.0
_ROUGH_S_MAX = 3.0
_CALM_S_MAX = 60.0
_STEP_S = 0.01


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when a checker found something."""
    rng = random.Random(f"server {seed}")
    plan = draw_plan(rng)
    if say is not None:
        say(f"seed {seed}: {plan}")
    with small_sizes() if plan.has_small_sizes else nullcontext():
        return run_life(seed, World(seed, plan, rng, say), _live, _LIFE_S)


async def _live(world: World) -> None:
    plan = world.plan
    world.host.start()
    first = world.loop.add_node("first")
    await in_thread(first, partial(fill, world))
    clients = [Client(world, number) for number in range(1, plan.client_count + 1)]
    world.loop.call_later(_ROUGH_S_MAX, world.calm)
    Faults(world, clients).plan()
    lives = [client.start() for client in clients]
    await asyncio.wait(lives, timeout=_ROUGH_S_MAX)
    world.calm()
    left = [life for life, client in zip(lives, clients, strict=True) if client.node.is_alive]
    _, pending = await asyncio.wait(left, timeout=_CALM_S_MAX)
    if pending:
        raise CheckError("liveness", f"{len(pending)} clients did not end in the calm")
    for life in left:
        life.result()
    await in_thread(first, partial(check_end, world))
    await world.host.stop()
    world.host.start()
    await in_thread(first, partial(check_end, world))
    await world.host.stop()
    for fate in (Fate.COMMITTED, Fate.REFUSED, Fate.UNKNOWN):
        if count := world.history.count(fate):
            world.happened[fate.value] = count
    if world.mutexes.preemption_count:
        world.happen("pre-emption")
    if world.lines.count:
        world.happen("pre-emption at lines")
    if plan.has_indexes:
        world.happen("indexes")
    if plan.has_small_sizes:
        world.happen("small sizes")
    if plan.tablespace != "default":
        world.happen("a second tablespace")
