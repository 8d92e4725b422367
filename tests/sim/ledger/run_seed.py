"""One seed: a ledger's life from create to the last read, in a rough world that calms down.

Rough: bookies start, a writer writes, recoverers and tailers come, faults happen. Calm: faults
end, every bookie that has its disk comes up, a last recoverer opens the ledger, everything is read
and compared, and every call that was made has to end.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from bookie.ledger import metadata_codec
from bookie.ledger.types import LedgerId
from bookie.metadata.ledger_paths import Layout, ledger_path
from tests.sim.ledger import operations
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.faults import Faults, rng_of
from tests.sim.ledger.plan import draw_plan
from tests.sim.ledger.world import ROOT, ClientHost, World
from tests.sim.loop import Node, SimulationError

_LIFE_S = 60.0
_ROUGH_S_MAX = 3.0
_CALM_S_MAX = 20.0


class Outcome(NamedTuple):
    """What one seed did."""

    trace_hash: int
    happened: dict[str, int]
    callback_count: int
    virtual_s: float


class FindingError(Exception):
    """A checker found something; `checker` is its name."""

    def __init__(self, seed: int, checker: str, message: str) -> None:
        super().__init__(f"seed {seed}: {message}")
        self.seed = seed
        self.checker = checker


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when a checker found something."""
    rng = rng_of(seed)
    plan = draw_plan(rng)
    if say is not None:
        say(f"seed {seed}: {plan}")
    world = World(seed, plan, rng, say)
    try:
        try:
            world.loop.run_until_complete(_live(world), time_limit_s=_LIFE_S)
            world.loop.check_tasks()
        finally:
            world.close()
    except CheckError as error:
        raise FindingError(seed, error.checker, str(error)) from error
    except SimulationError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, CheckError):
                raise FindingError(seed, cause.checker, str(cause)) from error
            cause = cause.__cause__
        kind = "liveness" if "not done after" in str(error) else "errors"
        raise FindingError(seed, kind, f"[{kind}] {error}") from error
    except Exception as error:
        message = f"[errors] {type(error).__name__}: {error}"
        raise FindingError(seed, "errors", message) from error
    loop = world.loop
    return Outcome(loop.trace_hash, world.history.happened, loop.callback_count, loop.time())


async def _live(world: World) -> None:
    plan, history, loop = world.plan, world.history, world.loop
    await world.format()
    for host in world.hosts:
        host.start()
    await world.wait_until(
        lambda: all(host.is_up for host in world.hosts), 10.0, "not all bookies started"
    )
    loop.call_later(_ROUGH_S_MAX, world.calm)
    writer_host = world.new_client("w")
    faults = Faults(world)
    faults.plan()
    writing = await world.act(writer_host.node, _begin(world, writer_host))
    jobs: list[asyncio.Future[None]] = []
    if writing is not None:
        jobs.append(world.act(writer_host.node, writing.run()))
    if history.ledger_id is None:
        world.calm()  # the only writer died before there was a ledger
        history.happen("no ledger")
        return
    for number in range(plan.tailer_count):
        tailer = world.new_client(f"t{number}")
        jobs.append(world.act(tailer.node, operations.tail(world, tailer)))
    recovery = [
        loop.world.create_task(_come_to_recover(world, number, writer_host, writing))
        for number in range(plan.recoverer_count)
    ]
    await asyncio.wait(recovery, timeout=_ROUGH_S_MAX * (0.1 + world.draw()))
    world.calm()
    last = world.new_client("last")
    await world.act(last.node, operations.recover_and_read(world, last))
    _, pending = await asyncio.wait([*jobs, *recovery], timeout=_CALM_S_MAX)
    if pending:
        raise CheckError("liveness", f"{len(pending)} calls did not end {_CALM_S_MAX} s after")
    for job in [*jobs, *recovery]:
        job.result()
    for client in world.clients:
        if client.node.is_alive:
            await world.act(client.node, client.close())
            _check_nothing_left(world, client.node)
    for host in world.hosts:
        await host.stop()


def _check_nothing_left(world: World, node: Node) -> None:
    """After its close() a client has no task that runs and no connection."""
    tasks = [task.get_name() for task in world.loop.pending_tasks(node)]
    if tasks:
        raise CheckError("errors", f"{node.name} is closed and leaves tasks: {tasks}")
    if node.transports:
        raise CheckError("errors", f"{node.name} is closed and leaves {node.transports}")


async def _begin(world: World, host: ClientHost) -> operations.Writing:
    writer = await operations.create(world, host)
    history = world.history
    ledger_id = LedgerId(writer.ledger_id)
    history.ledger_id = ledger_id
    history.path = ledger_path(ROOT, Layout.HIERARCHICAL, ledger_id)
    data, _ = world.store_server.tree.read(history.path)
    history.metadata = metadata_codec.decode(ledger_id, data, 0)
    return operations.Writing(world, host, writer)


async def _come_to_recover(
    world: World, number: int, writer_host: ClientHost, writing: operations.Writing | None
) -> None:
    """Wait for the moment when somebody thinks that the writer is gone, then recover."""
    plan = world.plan
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
    host = world.new_client(f"r{number}")
    await world.act(host.node, operations.recover_and_read(world, host))
