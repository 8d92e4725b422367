"""One seed: ledgers are written while bookies and AutoRecovery processes come and go; then calm.

Rough: writers write, bookies are lost for good, return or turn read-only, auditors and workers die,
votes and locks are lost. Calm: nothing fails any more; what was lost stays lost. Then every ledger
has to become whole by itself, every task has to go, and each entry is read from every bookie that
the metadata names for it.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from bookie.errors import BookieError
from bookie.ledger.codec import EntryDigest
from bookie.ledger.distribution import write_set
from bookie.ledger.types import Status
from tests.sim.ledger import operations
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.faults import rng_of
from tests.sim.ledger.wire import Message, Trigger
from tests.sim.ledger.world import PASSWORD, ClientHost, Ledger
from tests.sim.recovery.by_hand import RecoveringOperator
from tests.sim.recovery.hosts import RecoveryBookieHost
from tests.sim.recovery.operators import ApacheWorker, Operator
from tests.sim.recovery.plan import Choice, DrainPlan, Loss, draw_plan
from tests.sim.recovery.reads import read_from
from tests.sim.recovery.rot import rot
from tests.sim.recovery.world import LOCKS, RecoveryWorld
from tests.sim.simulation import Outcome, run_life

_LIFE_S = 120.0
_ROUGH_S = 1.5
_WHOLE_S_MAX = 40.0
_STOPPED_S_MAX = 5.0
_TARGET_S_MAX = 1.2
_NAMING_MAX = 3
"""So many ledgers may name a bookie whose drain is to end soon."""
_CHECKED_S = 6.0
"""After the last ledger was closed, until the auditor has asked every bookie for its entries."""


def run_seed(seed: int, say: Callable[[str], object] | None = None) -> Outcome:
    """Run one seed; FindingError (with its cause) when a checker found something."""
    rng = rng_of(seed)
    plan = draw_plan(rng)
    if say is not None:
        say(f"seed {seed}: {plan}")
    return run_life(seed, RecoveryWorld(seed, plan, rng, say), _live, _LIFE_S)


async def _live(world: RecoveryWorld) -> None:
    await world.format()
    for host in world.hosts:
        host.start()
    await world.wait_until(
        lambda: all(host.is_up for host in world.hosts), 10.0, "not all bookies started"
    )
    for healer in world.healers:
        healer.start()
    operator = Operator(world)
    operators = _plan_faults(world, operator)
    lives = [asyncio.ensure_future(_live_ledger(ledger)) for ledger in world.ledgers]
    await asyncio.sleep(_ROUGH_S)
    world.calm()
    for healer in world.healers:
        healer.start_if_wanted()
    await world.wait_until(
        lambda: not any(host.is_up for host in world.hosts if host.bookie_id in world.cookieless),
        _STOPPED_S_MAX,
        "a bookie without a cookie runs",
        "cookie",
    )
    await asyncio.gather(*lives)
    await _wait(world, lambda: not _unfinished(world), "not every ledger became whole")
    await _wait(
        world, lambda: all(one.done() for one in operators), "not every drain or recovery ended"
    )
    for one in operators:
        one.result()
    for ledger in world.ledgers:
        await _end_ledger(world, ledger)
    if world.recovery_plan.are_entries_checked:
        await asyncio.sleep(_CHECKED_S)
    await _wait(world, lambda: not _unfinished(world), "not every ledger stayed whole")
    await world.wait_until(
        lambda: all(host.is_up for host in world.hosts if host.bookie_id not in world.lost),
        10.0,
        "not all bookies came back",
    )
    await _check_every_copy(world)
    world.is_ending = True
    await world.act(operator.node, operator.close())
    for healer in world.healers:
        await healer.stop()
    for client in world.clients:
        if client.node.is_alive:
            await world.act(client.node, client.close())
    for host in world.hosts:
        await host.stop()


async def _wait(world: RecoveryWorld, is_true: Callable[[], bool], what: str) -> None:
    deadline = world.loop.time() + _WHOLE_S_MAX
    while not is_true():
        if world.loop.time() > deadline:
            world.loop.check_tasks()  # a task that died says more
            left = ", ".join(_unfinished(world))
            raise CheckError("liveness", f"{what}: not within {_WHOLE_S_MAX} s: {left}")
        await asyncio.sleep(0.05)


# --- what happens ---------------------------------------------------------------------------------


def _plan_faults(world: RecoveryWorld, operator: Operator) -> list[asyncio.Future[None]]:
    """Let things happen in their time; return what operators do, which ends after the faults."""
    plan, rng, loop = world.recovery_plan, world.rng, world.loop

    def later(function: Callable[[], object], span_s: float = _ROUGH_S * 0.7) -> None:
        def happen() -> None:
            if world.is_rough:
                function()

        loop.call_later(0.05 + rng.random() * span_s, happen)

    hosts = rng.sample(world.hosts, len(world.hosts))
    lost, hosts = hosts[: len(plan.losses)], hosts[len(plan.losses) :]
    losses: list[Callable[[], object]] = []
    for loss, host in zip(plan.losses, lost, strict=True):
        match loss:
            case Loss.MACHINE:
                losses.append(partial(world.lose, host))
            case Loss.COOKIE:
                losses.append(partial(world.lose_cookie, host))
            case Loss.DIRECTORY:
                losses.append(world.lose_directory)
    if len(losses) > 1:
        world.happen("several bookies lost")
    if plan.is_lost_at_once and len(losses) > 1:
        later(lambda: [one() for one in losses])
    else:
        for one in losses:
            later(one)
    for host in hosts[: plan.read_only_count]:
        later(partial(_turn_read_only, world, host))
    for host in hosts[plan.read_only_count :][: plan.returning_count]:
        later(partial(_crash, world, host))
    for _ in range(plan.healer_crash_count):
        later(lambda: _crash_healer(world, rng), _ROUGH_S)
    for _ in range(plan.lock_loss_count):
        later(lambda: _lose_lock(world, rng), _ROUGH_S)
    world.vote_loss_at = rng.choice((1, 2, 3)) if plan.vote_loss_count else 0
    if plan.vote_loss_count > 1:
        later(world.remove_vote)
    for _ in range(plan.delete_count):
        later(lambda: _delete_ledger(world, rng))
    if plan.switch_is_used:
        later(lambda: world.set_switch(is_on=False), 0.2)
        loop.call_later(_ROUGH_S * 0.9, partial(world.set_switch, is_on=True))
    if plan.lost_bookie_delay_s:
        world.set_delay(plan.lost_bookie_delay_s)
    if plan.has_apache_worker:
        worker = ApacheWorker(world)
        world.act(worker.node, worker.run())
    # Of those that lose something, too; a cookie that goes is another way to leave.
    going = [
        host
        for host in (*hosts, *lost)
        if host not in lost or plan.losses[lost.index(host)] is not Loss.COOKIE
    ]
    jobs = [_drain(world, operator, going, drain) for drain in plan.drains]
    if plan.by_hand is not None:
        jobs.append(RecoveringOperator(world, plan.by_hand).run())
    if plan.is_decommissioned:
        host = lost[plan.losses.index(Loss.MACHINE)]
        jobs.append(_decommission(world, operator, host))
    if plan.rot is not None:
        jobs.append(rot(world, plan.rot))
    return [asyncio.ensure_future(job) for job in jobs]


async def _drain(
    world: RecoveryWorld, operator: Operator, hosts: list[RecoveryBookieHost], plan: DrainPlan
) -> None:
    """Drain one of these bookies, which is then none of them any more."""
    await asyncio.sleep(plan.start_s)
    host = None
    if plan.choice is Choice.TARGET:
        host = await _target(world, hosts, is_recoverers=plan.is_recoverers_target)
    if host is None:
        host = _choose(world, hosts, plan.choice)
        hosts.remove(host)
    await world.act(operator.node, operator.drain(host, plan))


async def _target(
    world: RecoveryWorld, hosts: list[RecoveryBookieHost], *, is_recoverers: bool
) -> RecoveryBookieHost | None:
    """Take one out that is added to and not named yet; cut off the process that adds there."""
    found: asyncio.Future[RecoveryBookieHost] = asyncio.get_running_loop().create_future()

    def on_added(message: Message) -> None:
        host = next((host for host in hosts if host.name == message.bookie), None)
        store = world.store_of(message.client)
        if found.done() or host is None or store is None or world.leads(store.session_id):
            return
        naming = world.ledgers_naming(host.bookie_id)
        is_named = message.ledger_id in [ledger.history.ledger_id for ledger in naming]
        if host.bookie_id in world.lost or is_named or len(naming) > _NAMING_MAX:
            return
        if world.is_copying(message.client) is is_recoverers:
            return
        world.happen("copier or recoverer cut off before it names its target")
        reconnect_s = world.rng.choice((0.9, 2.5, 2.5))  # before the end of its session, or after
        world.store_server.disconnect(store.session_id, reconnect_s=reconnect_s)
        hosts.remove(host)
        found.set_result(host)

    world.on_recovery_added.append(on_added)
    try:
        async with asyncio.timeout(_TARGET_S_MAX):
            await asyncio.wait([found])
    except TimeoutError:
        pass
    finally:
        world.on_recovery_added.remove(on_added)
    return found.result() if found.done() else None


async def _decommission(world: RecoveryWorld, operator: Operator, host: RecoveryBookieHost) -> None:
    """Forget a bookie once it is lost."""
    await world.wait_until(
        lambda: host.bookie_id in world.lost or not world.is_rough, 10.0, "the faults do not end"
    )
    if host.bookie_id in world.lost:
        await world.act(operator.node, operator.decommission(host))


def _choose(
    world: RecoveryWorld, hosts: list[RecoveryBookieHost], choice: Choice
) -> RecoveryBookieHost:
    def count(host: RecoveryBookieHost) -> int:
        return len(world.ledgers_naming(host.bookie_id))

    kept = world.kept_ledgers()
    match choice:
        case Choice.EMPTIEST:
            return min(hosts, key=count)
        case Choice.NEWEST if kept:
            newest = max(kept, key=lambda ledger: ledger.history.ledger_id or 0)
            ensemble = world.metadata_of(newest).last_segment.ensemble
            return world.rng.choice([h for h in hosts if h.bookie_id in ensemble] or hosts)
        case Choice.OPEN:
            open_ones = [one for one in kept if not world.metadata_of(one).is_closed]
            left = [one for one in open_ones if one.plan.writer_dies] or open_ones
            ensembles = [world.metadata_of(one).last_segment.ensemble for one in left]
            mixed = world.rng.sample(hosts, len(hosts))
            return max(mixed, key=lambda host: sum(host.bookie_id in e for e in ensembles))
        case _:
            return world.rng.choice(hosts)


def _turn_read_only(world: RecoveryWorld, host: Any) -> None:
    if host.service is not None:
        world.happen("bookie read-only")
        host.node.run(partial(host.service.serving.set_read_only, is_read_only=True))


def _crash(world: RecoveryWorld, host: Any) -> None:
    world.happen("bookie returns")
    host.restart_s = world.rng.choice((0.05, 0.6, 1.6))
    host.crash(power=True)


def _crash_healer(world: RecoveryWorld, rng: random.Random) -> None:
    alive = [healer for healer in world.healers if healer.node is not None]
    if alive:
        world.happen("worker dies")
        rng.choice(alive).crash()


def _lose_lock(world: RecoveryWorld, rng: random.Random) -> None:
    """End the session of a worker that holds a lock; of any one when none does."""
    tree = world.store_server.tree
    names = tree.children(LOCKS[:-1]) if tree.exists(LOCKS[:-1]) is not None else []
    sessions = [s.ephemeral_owner for name in names if (s := tree.exists(LOCKS + name))]
    if not sessions:
        sessions = [
            healer.store.session_id
            for healer in world.healers
            if healer.node is not None and healer.store is not None
        ]
    if sessions:
        world.happen("session of a worker lost")
        world.store_server.expire(rng.choice(sessions))


def _delete_ledger(world: RecoveryWorld, rng: random.Random) -> None:
    known = [ledger for ledger in world.ledgers if ledger.history.ledger_id is not None]
    if known:
        ledger = rng.choice(known)
        assert ledger.history.ledger_id is not None
        world.happen("ledger deleted")
        world.deleted[ledger.history.ledger_id] = None
        world.delete_ledger(ledger.history.ledger_id)


async def _live_ledger(ledger: Ledger) -> None:
    world: Any = ledger.world
    plan = ledger.plan
    await asyncio.sleep(plan.start_s)
    host = ledger.new_client("w")
    if ledger.number in world.recovery_plan.stale_ledgers:
        await world.act(host.node, _lag(world, host))
    writing = await world.act(host.node, operations.create(ledger, host))
    if writing is None:
        return
    ledger.jobs.append(world.act(host.node, writing.run()))
    if plan.writer_dies:
        world.loop.call_later(world.draw(), host.crash)
    if plan.recoverer_count:
        if world.recovery_plan.is_first_left_open and not ledger.number:
            await _leave_alone(world, ledger)
        else:
            await asyncio.sleep(world.draw())
        other = ledger.new_client("r")
        if world.recovery_plan.is_first_recovered_slowly and not ledger.number:
            _slow_down(world, ledger, other)
        ledger.jobs.append(world.act(other.node, _recover(ledger, other)))
    await asyncio.gather(*ledger.jobs)


async def _lag(world: RecoveryWorld, host: ClientHost) -> None:
    """Let a creator know the bookies of some time ago only."""
    await host.connect()
    assert host.store is not None
    world.happen("stale creator")
    world.store_server.freeze(host.store.session_id)
    await asyncio.sleep(world.rng.choice((0.1, 0.5, 1.0)))


def _slow_down(world: RecoveryWorld, ledger: Ledger, recoverer: ClientHost) -> None:
    """Slow the recoverer's links; let a member crash when it takes what is recovered."""
    world.happen("slow recovery")
    delay_s = 0.04 + 0.03 * world.draw()
    for host in world.hosts:
        for way in ((recoverer.name, host.name), (host.name, recoverer.name)):
            world.loop.network.link(*way).delay_s = delay_s

    def crash(message: Message) -> None:
        if message.client == recoverer.name and world.is_rough:
            host = world.host(message.bookie)
            host.restart_s = 0.8
            host.crash(power=True)

    world.wire.triggers.append(
        Trigger("recovery add", 1, 0.0, crash, ledger_id=ledger.history.ledger_id)
    )


async def _leave_alone(world: RecoveryWorld, ledger: Ledger) -> None:
    """Wait until a member has lost a directory and is back; let the others crash then."""

    def crippled() -> list[RecoveryBookieHost]:
        return [host for host in world.hosts if host.bookie_id in world.crippled]

    await world.wait_until(
        lambda: not world.is_rough or any(host.is_up for host in crippled()),
        10.0,
        "the faults do not end",
    )
    if world.is_rough:
        ensemble = world.metadata_of(ledger).last_segment.ensemble
        for host in world.hosts:
            if host.bookie_id in ensemble and host.bookie_id not in world.crippled:
                host.restart_s = 0.5
                host.crash(power=True)


async def _recover(ledger: Ledger, host: ClientHost) -> None:
    try:
        await operations.recover(ledger, host)
    except CheckError:
        if ledger in ledger.world.kept_ledgers():  # type: ignore[attr-defined]
            raise


# --- what is true in the end ----------------------------------------------------------------------


def _unfinished(world: RecoveryWorld) -> list[str]:
    """Return what is not whole yet."""
    found: list[str] = []
    hopeless = [f"urL{ledger_id:010d}" for ledger_id in world.given_up]
    for ledger in world.kept_ledgers():
        metadata = world.metadata_of(ledger)
        if world.is_hopeless(ledger):
            hopeless.append(f"urL{ledger.history.ledger_id:010d}")
            continue
        named = {b for segment in metadata.segments for b in segment.ensemble}
        found += [f"ledger {ledger.history.ledger_id} names {b}" for b in named & set(world.lost)]
    tasks = [path.rpartition("/")[2] for path in world.task_paths()]
    found += [f"task {name}" for name in tasks if name not in hopeless]
    tree = world.store_server.tree
    locks = tree.children(LOCKS[:-1]) if tree.exists(LOCKS[:-1]) is not None else []
    return found + [f"lock {name}" for name in locks if name not in hopeless]


async def _end_ledger(world: RecoveryWorld, ledger: Ledger) -> None:
    """Close it as a client does, and read all of it."""
    if ledger in world.kept_ledgers():
        if world.is_hopeless(ledger):
            world.happen("stale ledger of which too few bookies are left")
            return
        last = ledger.new_client("last")
        await world.act(last.node, operations.recover_and_read(ledger, last))


async def _check_every_copy(world: RecoveryWorld) -> None:
    reader = world.new_client("checker")
    await world.act(reader.node, _read_every_copy(world, reader))


async def _read_every_copy(world: RecoveryWorld, host: ClientHost) -> None:
    """Read each entry from each bookie of its write set."""
    client = await host.connect()
    for ledger in world.kept_ledgers():
        history, plan = ledger.history, ledger.plan
        metadata = history.metadata
        assert metadata is not None
        assert metadata.digest_type is not None
        digest = EntryDigest.of(metadata.digest_type, PASSWORD)
        for entry_id in range(metadata.last_entry_id + 1):
            # A member may be replaced meanwhile, and its copies collected.
            ensemble = world.metadata_of(ledger).segment_of(entry_id).ensemble
            for index in write_set(entry_id, plan.ensemble_size, plan.write_quorum_size):
                reply = await read_from(client, ensemble[index], metadata.ledger_id, entry_id)
                where = f"entry {entry_id} of ledger {metadata.ledger_id} on {ensemble[index]}"
                if reply.status is not Status.OK:
                    is_promised = history.is_promised(entry_id, ensemble[index])  # type: ignore[attr-defined]
                    if is_promised or world.recovery_plan.are_entries_checked:
                        raise CheckError("whole", f"{where}: {reply.status.name}")
                    world.happen("copy that was never made")
                    continue
                try:
                    entry = digest.open(reply.body, metadata.ledger_id, entry_id)
                except BookieError as error:
                    raise CheckError("whole", f"{where}: {error}") from error
                history.read("checker", entry_id, bytes(entry.payload))
