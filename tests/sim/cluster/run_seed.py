"""One seed: the life of a tablespace whose log is ledgers, in a world that calms down.

Rough: clients do what they do, nodes lead one after the other, faults happen. Calm: faults end,
a node leads, clients end their work; a last client reads everything. Then each node leads once
more, and has what the one before it had.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from unittest.mock import patch

from herdpy.cluster import tail
from tests.fixtures.small_sizes import small_sizes
from tests.sim.cluster.checkers import CheckError
from tests.sim.cluster.faults import Faults
from tests.sim.cluster.plan import draw_plan
from tests.sim.cluster.readers import LOOK_S, Reader
from tests.sim.cluster.world import World
from tests.sim.ledger.run_seed import check_nothing_left
from tests.sim.server.checkers import Fate
from tests.sim.server.clients import Client, check_end, fill
from tests.sim.simulation import Outcome, run_life
from tests.sim.switching import in_thread

_LIFE_S = 300.0
_ROUGH_S_MAX = 6.0
_CALM_S_MAX = 60.0
_UP_S_MAX = 10.0
_WISHES, _WISH_S = 4, 1.0
_ROLLED_BACK_S = 0.2
"""For transactions of clients that are gone."""


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when a checker found something."""
    rng = random.Random(f"cluster {seed}")
    plan = draw_plan(rng)
    if say is not None:
        say(f"seed {seed}: {plan}")
    often = patch.object(tail, "_LOOK_S", LOOK_S)
    with often, small_sizes() if plan.has_small_sizes else nullcontext():
        return run_life(seed, World(seed, plan, rng, say), _live, _LIFE_S)


async def _live(world: World) -> None:
    plan = world.plan
    await world.format()
    for bookie in world.hosts:
        bookie.start()
    await world.wait_until(
        lambda: all(bookie.is_up for bookie in world.hosts), _UP_S_MAX, "not all bookies started"
    )
    await world.make_tablespace()
    for host in world.nodes:
        host.start()
    first = world.loop.add_node("first")
    await in_thread(first, partial(fill, world))
    world.is_filled = True
    clients = [Client(world, number) for number in range(1, plan.client_count + 1)]
    world.call_later(_ROUGH_S_MAX, world.calm)
    Faults(world, clients).plan()
    lives = [client.start() for client in clients]
    readers = [Reader(world, number) for number in range(plan.reader_count)]
    reading = [reader.start() for reader in readers]
    await asyncio.wait(lives, timeout=_ROUGH_S_MAX)
    world.calm()
    for reader in readers:
        reader.is_over = True
    left = [life for life, client in zip(lives, clients, strict=True) if client.node.is_alive]
    left += reading
    _, pending = await asyncio.wait(left, timeout=_CALM_S_MAX)
    if pending:
        raise CheckError("liveness", f"{len(pending)} clients did not end in the calm")
    for life in left:
        life.result()
    await in_thread(first, partial(check_end, world))
    await _each_leads(world)
    for fate in (Fate.COMMITTED, Fate.REFUSED, Fate.UNKNOWN):
        if count := world.history.count(fate):
            world.happened[fate.value] = count
    if world.mutexes.preemption_count:
        world.happen("pre-emption")
    for bookie in world.hosts:
        await bookie.stop()


async def _each_leads(world: World) -> None:
    """Have each node lead once more: all have the same, and each what clients were told."""
    # A client gives a silent node up before TCP's keep-alive tells that one of the client.
    world.loop.network.probe()
    await asyncio.sleep(_ROLLED_BACK_S)
    for host in [*world.nodes]:
        await world.check_level()
        for _ in range(_WISHES):  # one that came before, of another node, may be granted first
            if host.leads:
                break
            if world.plan.hands_over:
                await world.hand_over(host, _WISH_S)
            else:
                host.want()
                await asyncio.sleep(_WISH_S)
        await world.wait_until(lambda host=host: host.leads, _UP_S_MAX, "a node does not lead")
    await world.check_level()
    last = world.loop.add_node("last reader")
    await in_thread(last, partial(check_end, world))
    for host in world.nodes:
        assert host.node is not None
        await world.act(host.node, host.close())
        check_nothing_left(world, host.node)
    await world.check_chain()
