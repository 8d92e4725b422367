"""One seed: the lives of a few ledgers, from create to the last read, in a world that calms down.

Rough: bookies start; each ledger gets a writer, recoverers and tailers; faults happen. Calm: faults
end, every bookie that has its disk comes up, a last recoverer opens each ledger, everything is read
and compared, and every call that was made has to end.
"""

import asyncio
from collections.abc import Callable

from tests.sim.ledger import operations, scripts
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.faults import Faults, rng_of
from tests.sim.ledger.plan import draw_plan
from tests.sim.ledger.world import ClientHost, Ledger, World
from tests.sim.loop import Node
from tests.sim.simulation import Outcome, run_life

_LIFE_S = 60.0
_ROUGH_S_MAX = 2.0
_CALM_S_MAX = 20.0


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when a checker found something."""
    rng = rng_of(seed)
    plan = draw_plan(rng)
    if say is not None:
        say(f"seed {seed}: {plan}")
    return run_life(seed, World(seed, plan, rng, say), _live, _LIFE_S)


async def _live(world: World) -> None:
    await world.format()
    for host in world.hosts:
        host.start()
    await world.wait_until(
        lambda: all(host.is_up for host in world.hosts), 10.0, "not all bookies started"
    )
    world.loop.call_later(_ROUGH_S_MAX, world.calm)
    faults = Faults(world)
    faults.plan()
    lives = [asyncio.ensure_future(_live_ledger(ledger)) for ledger in world.ledgers]
    await asyncio.wait(lives, timeout=_ROUGH_S_MAX * (0.1 + world.draw()))
    world.calm()
    await asyncio.gather(*lives)
    await asyncio.gather(*[_end_ledger(ledger) for ledger in world.ledgers])
    for client in world.clients:
        if client.node.is_alive:
            await world.act(client.node, client.close())
            check_nothing_left(world, client.node)
    for host in world.hosts:
        await host.stop()


async def _live_ledger(ledger: Ledger) -> None:
    """Let a ledger be written, tailed and recovered; what is still under way is in its jobs."""
    world, plan = ledger.world, ledger.plan
    await asyncio.sleep(plan.start_s)
    writer_host = ledger.new_client("w")
    writing = await world.act(writer_host.node, operations.create(ledger, writer_host))
    if ledger.history.ledger_id is None:
        world.happen("no ledger")  # its only writer died before
        return
    scripts.prepare(ledger)
    if writing is not None:
        ledger.jobs.append(world.act(writer_host.node, writing.run()))
    for number in range(plan.tailer_count):
        tailer = ledger.new_client(f"t{number}.")
        ledger.jobs.append(world.act(tailer.node, operations.tail(ledger, tailer)))
    await asyncio.gather(
        *[
            _come_to_recover(ledger, number, writer_host, writing)
            for number in range(plan.recoverer_count)
        ]
    )


async def _come_to_recover(
    ledger: Ledger, number: int, writer_host: ClientHost, writing: operations.Writing | None
) -> None:
    """Wait for the moment when a client thinks that the writer is gone, then recover."""
    world, plan = ledger.world, ledger.plan
    wanted = plan.recover_at * plan.entry_count
    if writing is not None:
        deadline = world.loop.time() + 0.5 * (0.2 + world.draw())
        while (  # noqa: ASYNC110 - several things are waited for
            writing.ack_count < wanted
            and writing.error is None
            and writer_host.node.is_alive
            and world.loop.time() < deadline
        ):
            await asyncio.sleep(0.000_5)
    if number:
        await asyncio.sleep(world.rng.choice((0.0, 0.001, 0.005, 0.02, 0.2)) * world.draw())
    elif plan.writer_dies and writer_host.node.is_alive:
        writer_host.crash()
    host = ledger.new_client(f"r{number}.")
    await world.act(host.node, operations.recover_and_read(ledger, host))


async def _end_ledger(ledger: Ledger) -> None:
    """In the calm: a last client recovers, and whatever is under way ends."""
    if ledger.history.ledger_id is None:
        return
    last = ledger.new_client("last")
    await ledger.world.act(last.node, operations.recover_and_read(ledger, last))
    if not ledger.jobs:
        return
    _, pending = await asyncio.wait(ledger.jobs, timeout=_CALM_S_MAX)
    if pending:
        raise CheckError("liveness", f"{len(pending)} calls did not end {_CALM_S_MAX} s after")
    for job in ledger.jobs:
        job.result()


def check_nothing_left(world: World, node: Node) -> None:
    """After its close() a client has no task that runs and no connection."""
    tasks = [task.get_name() for task in world.loop.pending_tasks(node)]
    if tasks:
        raise CheckError("errors", f"{node.name} is closed and leaves tasks: {tasks}")
    if node.transports:
        raise CheckError("errors", f"{node.name} is closed and leaves {node.transports}")
