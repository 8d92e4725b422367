"""DrainCoordinator: carries out the rounds of a DrainMachine for an auditor, and its decisions.

The order of a round is what Drained rests on: states, registrations and tasks are read first, the
scan of all ledgers begins after that and after a sync(). Every write goes with the auditor's guard,
so that a deposed one decides nothing. Used on one asyncio loop.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

from bookie.errors import CorruptFileError
from bookie.ledger.at_risk import DrainCheck
from bookie.ledger.types import BookieId
from bookie.lifecycle.drains import (
    Decision,
    DrainMachine,
    Facts,
    Move,
    Publish,
    Report,
    Update,
    WriteList,
)
from bookie.lifecycle.scan import OpenLedgers, scan
from bookie.lifecycle.states import LifecycleState
from bookie.lifecycle.store import Found, LifecycleStore
from bookie.metadata.bookies import Mode, read_modes
from bookie.metadata.interfaces import Check, VersionedStore
from bookie.metadata.ledgers import LedgerManager
from bookie.runtime.interfaces import Clock, Rng

_log = logging.getLogger(__name__)
OPEN = (LifecycleState.DRAINING, LifecycleState.DRAINING_FAILED)


class Status(Protocol):
    """Why a ledger is not replicated, as workers report it."""

    @property
    def ledger_id(self) -> int: ...

    @property
    def reason(self) -> str: ...

    @property
    def failure_count(self) -> int: ...

    @property
    def time_ms(self) -> int: ...


class Tasks(Protocol):
    """What is needed of the store of replication tasks."""

    async def is_enabled(self) -> bool:
        """Tell whether auditors may publish and workers copy."""
        ...

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ledgers that have a task."""
        ...

    async def statuses(self) -> Sequence[Status]:
        """Return why ledgers could not be replicated."""
        ...

    async def holders(self, ledger_ids: Collection[int]) -> Mapping[int, str]:
        """Return what the locks that there are for these ledgers call their owners."""
        ...

    async def publish(
        self, ledger_id: int, missing: Sequence[BookieId], now_ms: int, guard: Sequence[Check]
    ) -> None:
        """Make a task, or add to the one there is, together with the guard's checks."""
        ...


class DrainCoordinator:
    """See the module. Made for one term of an auditor; its owner calls round() again and again."""

    def __init__(
        self,
        store: VersionedStore,
        root: str,
        tasks: Tasks,
        guard: Sequence[Check],
        rng: Rng,
        clock: Clock,
        *,
        open_ledger_wait_s: float = 30.0,
    ) -> None:
        self._store = store
        self._root = root
        self._tasks = tasks
        self._guard = tuple(guard)
        self._clock = clock
        self._ledgers = LedgerManager(store, root, rng, clock)
        self._states = LifecycleStore(store, root)
        self._machine = DrainMachine(open_ledger_wait_s)

    @property
    def cleared_count(self) -> int:
        """Tasks that were removed without a copy, in this term; for metrics."""
        return self._machine.cleared_count

    async def round(self) -> bool:
        """Look at all drains once and act; False: there is none, and nothing was scanned.

        Errors: MetadataStoreError; the error of the guard's check when the auditor was deposed.
        """
        states = await self._states.all()
        founds = [found for found in states.founds if found.record.state in OPEN]
        if not founds:
            return False
        now_s = asyncio.get_running_loop().time()
        for found in founds:
            if not self._machine.knows(found):
                ledgers = await self._states.ledgers(found.bookie_id)
                self._machine.restore(found, ledgers, now_s)
        for decision in self._machine.decide(await self._facts(founds, states.unreadable)):
            await self._do(decision)
        return True

    async def _facts(
        self, founds: Sequence[Found], states_unreadable: Collection[BookieId]
    ) -> Facts:
        bookie_ids = [found.bookie_id for found in founds]
        modes = await read_modes(self._store, self._root)
        is_enabled = await self._tasks.is_enabled()
        tasks = frozenset([ledger_id async for ledger_id in self._tasks.ledger_ids()])
        reports = {
            status.ledger_id: Report(status.reason, status.failure_count, status.time_ms)
            for status in await self._tasks.statuses()
        }
        waiting = [found for found in founds if not found.record.is_admitted]
        # One that waits and is away counts as lost for none: two of them would wait for each other.
        staying = {*modes, *(found.bookie_id for found in waiting)}
        staying -= {found.bookie_id for found in founds if found.record.is_admitted}
        staying -= {*states_unreadable}  # they may drain
        writable = [bookie_id for bookie_id, mode in modes.items() if mode is Mode.WRITABLE]
        checks = {
            found.bookie_id: DrainCheck(found.bookie_id, staying, writable) for found in waiting
        }
        open_ledgers = OpenLedgers(bookie_ids)
        seen = await scan(self._ledgers, bookie_ids, [*checks.values(), open_ledgers])
        named = {bookie_id: seen.naming(bookie_id) for bookie_id in bookie_ids}
        wanted = {ledger_id for ledgers in named.values() for ledger_id in ledgers}
        return Facts(
            now_s=asyncio.get_running_loop().time(),
            is_enabled=is_enabled,
            founds=founds,
            modes=modes,
            tasks=tasks,
            holders=await self._tasks.holders(tasks & wanted),
            reports=reports,
            named=named,
            open_last={b: frozenset(ids) for b, ids in open_ledgers.found.items()},
            unreadable=seen.unreadable,
            waits={bookie_id: check.reason() for bookie_id, check in checks.items()},
        )

    async def _do(self, decision: Decision) -> None:
        match decision:
            case Publish(ledger_id, bookie_id):
                now_ms = self._clock.wall_us() // 1000
                try:
                    await self._tasks.publish(ledger_id, [bookie_id], now_ms, self._guard)
                except CorruptFileError as error:
                    _log.error("ledger %d: its task cannot be renewed: %s", ledger_id, error)
                    return
                self._machine.published(bookie_id, ledger_id)
            case WriteList(found, ledgers):
                if not await self._states.write_ledgers(found, ledgers, guard=self._guard):
                    self._machine.list_refused(found.bookie_id)
            case Update(found, record):
                await self._states.update(found, record, guard=self._guard)
            case Move(found, step, record):
                await self._states.finish(found, step, record, guard=self._guard)
