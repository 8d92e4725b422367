"""Recovery by hand: what `bookie bookies recover` does, by a process that may die on the way.

The operator empties a bookie, lost or not, and repeats the command until nothing is left. Or he
takes a ledger from one bookie and back, just when what it left there is being collected.
"""

import asyncio
from collections.abc import Sequence

from bookie.autorecovery.manual import ledgers_naming, recover_ledgers
from bookie.autorecovery.repair import Repairer, Result
from bookie.autorecovery.tasks import TaskStore
from bookie.config import AutoRecoveryConfig
from bookie.errors import BookieError, NoSuchLedgerMetadataError
from bookie.ledger.types import BookieId
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.world import ROOT, ClientHost, Ledger, LoopClock
from tests.sim.recovery.plan import RecoveryByHand
from tests.sim.recovery.world import RecoveryWorld

_DONE_S_MAX = 30.0
_PAUSE_S = 0.3
_TRIES = 5
_LOOK_S = 0.005
_BOTH_WAYS_S_MAX = 3.0
"""So long a closed ledger is waited for."""


class RecoveringOperator:
    """See the module."""

    def __init__(self, world: RecoveryWorld, plan: RecoveryByHand) -> None:
        self._world = world
        self._plan = plan
        self._count = 0

    async def run(self) -> None:
        """Do what the plan says; CheckError when a bookie is not emptied in time."""
        await asyncio.sleep(self._plan.start_s)
        if self._plan.is_back_and_forth:
            await self._take_there_and_back()
        else:
            await self._empty()

    async def _empty(self) -> None:
        """Recover all that a bookie has; again until nothing is left."""
        world, plan = self._world, self._plan
        lost = [host for host in world.hosts if host.bookie_id in world.lost]
        sources = (BookieId(world.rng.choice(lost or world.hosts).bookie_id),)
        world.happen("recovery by hand")
        if not plan.will_fence:
            world.happen("recovery by hand that may not fence")
        dies = plan.dies
        since = world.loop.time()
        while (left := await self._command(sources, may_die=dies)) != []:
            dies = False
            if world.is_rough:
                since = world.loop.time()
            elif world.loop.time() - since > _DONE_S_MAX:
                raise CheckError("liveness", f"recovery by hand of {sources}: left is {left}")
            await asyncio.sleep(_PAUSE_S)

    async def _take_there_and_back(self) -> None:
        """Take a closed ledger from a bookie, and back to it, when it collects its copy."""
        world, plan = self._world, self._plan
        deadline = world.loop.time() + _BOTH_WAYS_S_MAX
        while not (ledgers := self._closed()):
            if world.loop.time() > deadline:
                return
            await asyncio.sleep(0.05)
        ledger = world.rng.choice(ledgers)
        ledger_id = ledger.history.ledger_id
        assert ledger_id is not None
        before = world.metadata_of(ledger).last_segment.ensemble
        first = world.rng.choice(before)
        for _ in range(_TRIES):
            if await self._command((first,), None, (ledger_id,)) == []:
                break
            await asyncio.sleep(_PAUSE_S)
        then = [b for b in world.metadata_of(ledger).last_segment.ensemble if b not in before]
        if len(then) != 1:
            return
        world.happen("ledger taken away by hand and back")
        rate = None
        wait_s = world.recovery_plan.returned_copy_wait_s
        if plan.is_back_slow:
            await asyncio.sleep(wait_s)
            byte_count = world.metadata_of(ledger).length + 100 * len(ledger.history.payloads)
            rate = max(1, round(byte_count / wait_s))
        else:
            await self._collection_of(first, ledger_id, 3 * wait_s)
        await self._command((then[0],), first, (ledger_id,), bytes_per_s=rate)
        for host in world.hosts:
            host.storage_delay_s = 0.0

    async def _collection_of(self, bookie_id: str, ledger_id: int, limit_s: float) -> None:
        """Wait until a bookie is about to remove its copy of a ledger."""
        world = self._world
        host = next(host for host in world.hosts if host.bookie_id == bookie_id)
        what = host.name, f"urL{ledger_id:010d}"
        world.awaited.append(what)
        for _ in range(round(limit_s / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            if what not in world.awaited:
                return
        world.awaited.remove(what)

    def _closed(self) -> list[Ledger]:
        world = self._world
        return [
            one
            for one in world.kept_ledgers()
            if world.metadata_of(one).is_closed and world.metadata_of(one).length
        ]

    async def _command(
        self,
        sources: tuple[BookieId, ...],
        target: BookieId | None = None,
        only: Sequence[int] = (),
        *,
        bytes_per_s: int | None = None,
        may_die: bool = False,
    ) -> list[str] | None:
        """Run the command once in a process of its own; return what is left, None if it died."""
        world = self._world
        host = world.new_client(f"hand{self._count}")
        self._count += 1
        world.by_hand[host.name] = self._plan.will_fence
        world.say(f"--- {host.name} recovers {sources} to {target}, {only or 'all'}")
        if may_die:
            world.happen("recovery by hand dies")
            world.loop.call_later(0.2 * world.draw(), host.crash)
        config = AutoRecoveryConfig(
            copy_bytes_per_s=bytes_per_s, copy_window=1 if bytes_per_s is not None else 100
        )
        left = await world.act(host.node, self._recover(host, sources, target, only, config))
        world.say(f"--- {host.name} leaves {left}")
        if host.node.is_alive:
            await world.act(host.node, host.close())
            world.loop.crash(host.node)
        return left

    async def _recover(
        self,
        host: ClientHost,
        sources: tuple[BookieId, ...],
        target: BookieId | None,
        only: Sequence[int],
        config: AutoRecoveryConfig,
    ) -> list[str]:
        world, plan = self._world, self._plan
        client = await host.connect()
        assert host.store is not None

        async def leaving() -> frozenset[BookieId]:
            return frozenset(sources)

        tasks = TaskStore(host.store, ROOT)
        repairer = Repairer(client, LoopClock(world.loop), config, local=target, leaving=leaving)
        left: list[str] = []
        done = [Result.WHOLE, Result.GONE]
        if not plan.will_fence:
            done.append(Result.OPEN)
        try:
            found = ledgers_naming(client.services.ledgers, sources, only, unreadable={})
            ids = [metadata.ledger_id async for metadata in found]
            async for ledger_id, outcome in recover_ledgers(
                tasks, repairer, ids, host.name, will_fence=plan.will_fence
            ):
                if outcome is None:
                    left.append(f"{ledger_id}: locked")
                elif outcome.result not in done and not world.may_be_left(ledger_id):
                    left.append(f"{ledger_id}: {outcome}")
                else:
                    world.happen("ledger recovered by hand")
        except NoSuchLedgerMetadataError as error:
            world.say(f"{host.name}: {error}")
        except BookieError as error:
            left.append(f"{type(error).__name__}: {error}")
        return left
