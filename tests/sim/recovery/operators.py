"""Those who act from outside: an operator who drains bookies, and a worker like Apache's.

The operator uses the product's own Operations. He takes a bookie's machine away when its state is
Drained, as the promise is, forgets it, and may install it anew. Apache's worker is not the
product's: it takes a task, finds every member registered, and removes the task without a copy.
"""

import asyncio
from typing import TYPE_CHECKING

from bookie.autorecovery.manual import decommission
from bookie.autorecovery.operations import ReplicationOperations
from bookie.errors import (
    BookieError,
    IllegalOperationError,
    MetadataVersionError,
    NoSuchBookieError,
)
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.lifecycle.states import LifecycleState
from bookie.metadata.cookies import CookieStore
from bookie.metadata.memory import MemoryStore
from tests.fixtures.metadata import SeededRng
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.world import ROOT, LoopClock, StoreLink
from tests.sim.recovery.hosts import RecoveryBookieHost
from tests.sim.recovery.plan import DrainPlan

if TYPE_CHECKING:
    from tests.sim.recovery.world import RecoveryWorld

_REMOVED_S_MAX = 30.0


class Operator:
    """See the module."""

    def __init__(self, world: "RecoveryWorld") -> None:
        self._world = world
        self.node = world.loop.add_node("operator")
        self._store = MemoryStore(world.store_server, StoreLink(world, "operator"))
        self._operations = Operations(
            self._store, ROOT, SeededRng(world.rng.getrandbits(64)), LoopClock(world.loop)
        )

    async def drain(self, host: RecoveryBookieHost, plan: DrainPlan) -> None:
        """Drain a bookie to the end that the plan says; CheckError when it does not come."""
        world, ask = self._world, self._operations
        bookie_id = BookieId(host.bookie_id)
        if plan.is_down and host.node is not None:
            world.happen("drain of a bookie that is down")
            host.restart_s = world.rng.choice((0.3, 0.8))
            host.crash(power=True)
        elif plan.is_slow and host.node is not None:
            world.happen("bookie that hears late of its drain")
            # Shorter than a session's timeout: it stays registered, and takes adds.
            session_id = host.session_of_life.session_id
            world.store_server.disconnect(session_id, reconnect_s=plan.slow_s)
        if plan.is_cancelled:
            world.kept[bookie_id] = None
        world.say(f"--- the operator drains {bookie_id}")
        try:
            await ask.drain(bookie_id, "operator", may_fence=plan.may_fence)
        except NoSuchBookieError:
            if world.is_known(bookie_id):
                raise
            world.happen("drain of a bookie that was forgotten, refused")
            world.kept.pop(bookie_id, None)
            return
        if plan.is_cancelled:
            await asyncio.sleep(plan.cancel_after_s)
            await ask.cancel(bookie_id)
            world.say(f"--- the operator cancels the drain of {bookie_id}")
            world.kept.pop(bookie_id, None)
            world.happen("drain cancelled")
            return
        while (state := world.state_of(bookie_id)) is not LifecycleState.DRAINED:
            await asyncio.sleep(0.05)
            has_failed = state is LifecycleState.DRAINING_FAILED
            if has_failed and plan.accepts_loss and await self._accept_loss(bookie_id):
                continue
            if world.is_rough:
                continue
            if (has_failed or not world.is_admitted(bookie_id)) and world.names_loss(bookie_id):
                world.happen("drain that waits for a ledger that was given up")
                return
            if has_failed:
                if not world.can_be_left(bookie_id):
                    world.happen("drain that cannot end")
                    return
                world.happen("failed drain tried again")
                await ask.drain(bookie_id, "operator")
        if plan.is_removed:
            await self._remove(host, will_return=plan.is_installed)

    async def _accept_loss(self, bookie_id: BookieId) -> bool:
        """Name the ledgers that are left as lost; one of them too few is refused."""
        world, ask = self._world, self._operations
        for left_out in (1, 0):
            listed = (await ask.status(bookie_id))["ledgers"]
            ledger_ids = [int(one["ledger_id"]) for one in listed]
            if left_out and len(ledger_ids) < 2:
                continue
            world.say(f"--- the operator gives up {ledger_ids[left_out:]} for {bookie_id}")
            try:
                await ask.mark_drained(bookie_id, "operator", ledger_ids[left_out:])
            except IllegalOperationError as error:
                world.say(f"operator: {error}")
                if left_out:
                    world.happen("loss of too few ledgers accepted, refused")
            else:
                world.happen("loss accepted")
                return True
        return False

    async def _remove(self, host: RecoveryBookieHost, *, will_return: bool) -> None:
        """Forget the bookie as soon as no session registers it, and no stale ledger names it."""
        world = self._world
        bookie_id = BookieId(host.bookie_id)
        deadline = world.loop.time() + _REMOVED_S_MAX
        while True:
            try:
                await self._operations.remove(bookie_id)
                break
            except IllegalOperationError as error:
                if not world.can_be_left(bookie_id):
                    return
                if world.loop.time() > deadline:
                    raise CheckError("liveness", f"{bookie_id} is not removed: {error}") from error
            await asyncio.sleep(0.2)
        world.say(f"--- {bookie_id} is removed")
        world.happen("drained bookie removed")
        if will_return:
            world.install(host)

    async def decommission(self, host: RecoveryBookieHost) -> None:
        """Forget a lost bookie that was not drained as soon as its ledgers are elsewhere."""
        world, ask = self._world, self._operations
        bookie_id = BookieId(host.bookie_id)
        replication = ReplicationOperations(self._store, ROOT, ask)
        cookies = CookieStore(self._store, ROOT)
        deadline = world.loop.time() + _REMOVED_S_MAX
        while bookie_id in world.lost and bookie_id not in world.records:
            try:
                await decommission(
                    ask,
                    replication,
                    cookies,
                    bookie_id,
                    LoopClock(world.loop),
                    5.0,
                    on_left=lambda _: None,
                    on_warning=world.say,
                )
            except NoSuchBookieError:
                return  # its drain ended, and it was removed
            except (IllegalOperationError, MetadataVersionError) as error:
                world.say(f"operator: {error}")
                if not world.can_be_left(bookie_id):
                    return
                if world.given_up and await self._forget_with_loss(cookies, bookie_id):
                    return
                if world.loop.time() > deadline:
                    raise CheckError("liveness", f"{bookie_id}: not forgotten: {error}") from error
            else:
                world.happen("lost bookie decommissioned")
                return
            await asyncio.sleep(0.2)

    async def _forget_with_loss(self, cookies: CookieStore, bookie_id: BookieId) -> bool:
        """Forget it although ledgers name it whose loss was accepted for another bookie.

        As `bookie cookie delete --accept-loss` does; refused while other ledgers name it.
        """
        world, ask = self._world, self._operations
        cookie = await cookies.read(bookie_id)
        accepted = [one for one in await ask.naming(bookie_id) if one in world.given_up]
        if cookie is None or not accepted:
            return False
        world.say(f"--- the operator forgets {bookie_id}, and gives up {accepted}")
        try:
            await ask.expect_forgettable(bookie_id)
            await ask.expect_given_up(bookie_id, accepted)
            await cookies.delete(bookie_id, cookie[1])
        except (IllegalOperationError, MetadataVersionError) as error:
            world.say(f"operator: {error}")
            return False
        world.happen("lost bookie forgotten with an accepted loss")
        return True

    async def close(self) -> None:
        await self._store.close()


class ApacheWorker:
    """See the module; stopped by the operator when the faults end."""

    def __init__(self, world: "RecoveryWorld") -> None:
        self._world = world
        self.node = world.loop.add_node("apache")
        self._store = MemoryStore(world.store_server, StoreLink(world, "apache"))

    async def run(self) -> None:
        world = self._world
        while world.is_rough:
            await asyncio.sleep(0.02 + 0.1 * world.draw())
            paths = world.task_paths()
            if not paths:
                continue
            path = world.rng.choice(paths)
            lock = f"{world.LOCKS}{path.rpartition('/')[2]}"
            try:
                _, stat = await self._store.read(path)
                await self._store.create(lock, b'bookieId: "apache"\n', is_ephemeral=True)
                if world.are_members_registered(int(path.rpartition("urL")[2])):
                    await self._store.delete(path, stat.version)
                    world.happen("task cleared by a foreign worker")
                await self._store.delete(lock)
            except BookieError as error:
                world.say(f"apache: {type(error).__name__}: {error}")
        await self._store.close()
