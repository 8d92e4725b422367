"""One seed: the life of tablespaces whose logs are ledgers, in a world that calms down.

Rough: clients do what they do, nodes lead one after the other, faults happen. Calm: faults end,
a node leads, clients end their work; a last client reads everything. Then nodes lead once more, one
after the other, and each has what the one before it had.
"""

import asyncio
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from bookie.metadata.memory import MemoryStore
from herdpy.cluster import tail
from herdpy.engine.session.commit_outcomes import CommitOutcomes
from herdpy.engine.state.commit_tokens import Outcome as Fated
from tests.fixtures.small_sizes import small_sizes
from tests.sim.cluster.checkers import CheckError, check_access
from tests.sim.cluster.faults import Faults
from tests.sim.cluster.node_host import NodeHost
from tests.sim.cluster.plan import draw_plan
from tests.sim.cluster.readers import LOOK_S, Reader
from tests.sim.cluster.space import Space
from tests.sim.cluster.world import ROOT, World
from tests.sim.ledger.run_seed import check_nothing_left
from tests.sim.ledger.world import ROOT as LEDGERS
from tests.sim.server.checkers import Fate
from tests.sim.server.clients import Client, check_end, fill
from tests.sim.simulation import Outcome, run_life
from tests.sim.switching import STOP_S_MAX, in_thread

_LIFE_S = 300.0
_ROUGH_S_MAX = 6.0
_CALM_S_MAX = 60.0
_UP_S_MAX = 10.0
_WISHES, _WISH_S = 4, 1.0
_ROLLED_BACK_S = 0.2
"""For transactions of clients that are gone."""
_AGAIN = 2
"""So many nodes lead once more in the end."""
_CLIENTS_OF_EACH = 3
"""Where there are several tablespaces."""
ACKNOWLEDGED = "acknowledged transactions"
FAULTS = "faults"


def run_seed(
    seed: int, say: Callable[[str], object] | None = None, *, acknowledged_min: int = 300
) -> Outcome:
    """Run one seed; FindingError (with its cause) when a checker found something.

    acknowledged_min: how many transactions clients are told of before they end.
    """
    rng = random.Random(f"cluster {seed}")
    plan = replace(draw_plan(rng), acknowledged_min=acknowledged_min)
    if say is not None:
        say(f"seed {seed}: {plan}")
    with (
        patch.object(tail, "_LOOK_S", LOOK_S),
        small_sizes() if plan.has_small_sizes else nullcontext(),
    ):
        world = World(seed, plan, rng, say)
        with _counted_questions(world):
            return run_life(seed, world, _live, _LIFE_S)


@contextmanager
def _counted_questions(world: World) -> Generator[None]:
    """Count in the block what clients ask about commits whose answers were lost."""
    ask = CommitOutcomes.resolve

    def resolve(self: CommitOutcomes, token_session: str, counter: int) -> Fated:
        found = ask(self, token_session, counter)
        world.happen("a token question")
        world.happen(f"a token that was {found.value}")
        return found

    with patch.object(CommitOutcomes, "resolve", resolve):
        yield


async def _live(world: World) -> None:
    await world.format()
    for bookie in world.hosts:
        bookie.start()
    await world.wait_until(
        lambda: all(bookie.is_up for bookie in world.hosts), _UP_S_MAX, "not all bookies started"
    )
    for space in world.spaces:
        await space.make()
    for machine in world.machines:
        machine.start()
    first = world.loop.add_node("first")
    for space in world.spaces:
        await in_thread(first, partial(fill, space))
    world.is_filled = True
    await _work(world)
    for space in world.spaces:
        await in_thread(first, partial(check_end, space))
    await _lead_again(world)
    _count(world)
    for bookie in world.hosts:
        await bookie.stop()


async def _work(world: World) -> None:
    """Have clients do what they do, in rough times and then in the calm, until they end."""
    plan = world.plan
    clients: list[Client] = []
    readers: list[Reader] = []
    each = plan.client_count if len(world.spaces) == 1 else _CLIENTS_OF_EACH
    for space in world.spaces:
        first = space.first_client
        clients += [Client(space, number) for number in range(first, first + each)]
        readers += [Reader(space, first + number) for number in range(plan.reader_count)]
    world.call_later(_ROUGH_S_MAX, world.calm)
    Faults(world, clients).plan()
    lives = [client.start() for client in clients]
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


async def _lead_again(world: World) -> None:
    """Have some nodes lead once more: all have the same, and each what clients were told."""
    # A client gives a silent node up before TCP's keep-alive tells that one of the client.
    world.loop.network.probe()
    await asyncio.sleep(_ROLLED_BACK_S)
    for space in world.spaces:
        for host in world.rng.sample(space.nodes, _AGAIN // len(world.spaces)):
            await space.check_level()
            await _lead(space, host)
        await space.check_level()
        last = world.loop.add_node("last reader")
        await in_thread(last, partial(check_end, space))
    if world.plan.is_secured:
        store = MemoryStore(world.store_server, access=world.access)
        await check_access(store, ROOT, LEDGERS)
        await store.close()
    for machine in world.machines:
        assert machine.node is not None
        await world.act(machine.node, machine.close())
        # A thread that has told its end may be stopped before it is at its last statement.
        await asyncio.sleep(STOP_S_MAX)
        check_nothing_left(world, machine.node)
    for space in world.spaces:
        await space.check_chain()


async def _lead(space: Space, host: NodeHost) -> None:
    for _ in range(_WISHES):  # one that came before, of another node, may be granted first
        if host.leads:
            break
        if space.plan.hands_over:
            await space.hand_over(host, _WISH_S)
        else:
            host.want()
            await asyncio.sleep(_WISH_S)
    await space.world.wait_until(lambda: host.leads, _UP_S_MAX, "a node does not lead")


def _count(world: World) -> None:
    for fate in (Fate.COMMITTED, Fate.REFUSED, Fate.UNKNOWN):
        if count := sum(space.history.count(fate) for space in world.spaces):
            world.happened[fate.value] = count
    world.happened[ACKNOWLEDGED] = sum(space.acknowledged_count for space in world.spaces)
    world.happened[FAULTS] = world.fault_count
    if world.mutexes.preemption_count:
        world.happen("pre-emption")
    if world.lines.count:
        world.happen("pre-emption at lines")
    if len(world.spaces) > 1:
        world.happen("two tablespaces")
    if world.plan.is_secured:
        login = "their own login" if world.plan.has_readers else "the login of nodes"
        world.happen(f"a secured cluster, whose drivers have {login}")
