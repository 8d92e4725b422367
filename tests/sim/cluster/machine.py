"""Machine: a node's disks, clock and process, one life after the other, and what its copies share.

A process has one session with the metadata store, one client of the bookies, one registration, one
port and one budget of memory, whatever number of tablespaces it has copies of
(herdpy/cluster/node.py).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.client.client import LedgerClient
from bookie.errors import BookieError
from bookie.metadata.interfaces import SessionState
from bookie.metadata.memory import MemoryStore
from bookie.metadata.memory_server import Session
from herdpy.aio.switching import wait_for
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.tablespace_nodes import TablespaceNodes
from herdpy.config import Config
from herdpy.engine.closing import run_all
from herdpy.engine.resources import Resources
from herdpy.errors import Error
from herdpy.server.common import Common
from herdpy.server.login.audit import Audit
from herdpy.server.shared_port import SharedPort
from tests.sim.cluster.checkers import check_closed
from tests.sim.ledger import world as ledger
from tests.sim.ledger.world import SeededRng, StoreLink
from tests.sim.loop import Node
from tests.sim.server.world import PORT, server_config
from tests.sim.switching import LoopClock, SwitchingDriver, SwitchingExecutor, in_thread

if TYPE_CHECKING:
    from tests.sim.cluster.node_host import NodeHost
    from tests.sim.cluster.world import World

T = TypeVar("T")
INACTIVITY_LIMIT_S = 1.0
AGAIN_S = 0.02
_CLOCK_RATE_MAX = 0.09
"""Clocks of two nodes run apart by less than a fifth, as the product takes for granted."""


CLOCKS_APART_S = 7 * 86_400
"""By how much, at the most, each node's clocks are ahead of the world's, or behind them."""


class NodeLoop:
    """The loop of a node's client of the bookies, as the threads of its log have it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return wait_for(self._node.create_task(coroutine))

    def post(self, function: Callable[[], object]) -> None:
        self._node.run(self._node.loop.call_soon, function)


class LateStore(MemoryStore):
    """A client of the metadata store that hears late that its connection is broken."""

    late_s = 0.0
    """By how much, the next time."""

    def on_disconnected(self, session: Session, reconnect_s: float | None) -> None:
        late_s, self.late_s = self.late_s, 0.0
        if not late_s:
            super().on_disconnected(session, reconnect_s)
            return
        left_s = None if reconnect_s is None else max(0.0, reconnect_s - late_s)
        hear = super().on_disconnected
        asyncio.get_running_loop().call_later(late_s, hear, session, left_s, context=self._context)


class Machine:
    """See the module. Its disks are those of its copies."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.name = f"n{number}.localhost"
        self._clock_rate = rate = 1 + _CLOCK_RATE_MAX * (2 * world.rng.random() - 1)
        self.clock_ahead_s = CLOCKS_APART_S * (rate - 1) / _CLOCK_RATE_MAX
        self.clock = LoopClock(world.loop)
        self.clock.jump_us = round(self.clock_ahead_s * 1e6)
        self.slowness = 1.0
        """Of its disks."""
        self.node: Node | None = None
        self.client: LedgerClient | None = None
        self.registration: Registration | None = None
        self.hosts: list[NodeHost] = []
        """A copy of each tablespace."""
        self.life_count = 0
        self._is_power_lost = True
        self._is_suspended = False
        self._rng = world.new_rng()

    def draw(self) -> float:
        """Return chance of this machine's own."""
        return self._rng.random()

    @property
    def is_up(self) -> bool:
        return self.node is not None and self.node.is_alive

    def now_s(self) -> float:
        """Return seconds of its own clock, which runs faster or slower than others', and apart."""
        return self.world.loop.time() * self._clock_rate + self.clock_ahead_s

    def start(self) -> None:
        """Begin a life."""
        world = self.world
        self.life_count += 1
        self.node = node = world.loop.add_node(self.name)
        node.on_crash.append(self._crashed)
        for host in self.hosts:
            host.disk.latency = host.wait_for_disk
            host.disk.on_end = partial(self.crash, power=True)
        self._is_suspended = False
        link = StoreLink(world, self.name)
        self.store = node.run(LateStore, world.store_server, link, world.access)
        self.store.on_session(self._on_session)
        self.common = node.run(Common, server_config(world.plan), self.clock, self._new_executor)
        self.port = node.run(SharedPort, self.common, Audit(self.clock))
        self.resources = node.run(self._new_resources, node)
        node.create_task(self._live(node))

    def _new_resources(self, node: Node) -> Resources:
        return Resources(
            clock=self.clock,
            driver=SwitchingDriver(node),
            config=self.database_config,
            where=f"the memory of {self.name}",
            title="the node",
        )

    @property
    def database_config(self) -> Config:
        """Return the settings of all its copies."""
        plan = self.world.plan
        return Config(
            checkpoint_log_bytes=plan.checkpoint_log_bytes,
            checkpoint_interval_s=plan.checkpoint_interval_s,
            transaction_memory_bytes=plan.transaction_memory_bytes,
            disk_reserve_bytes=0,
        )

    def _new_executor(self, _: str, worker_count: int) -> Any:
        assert self.node is not None
        return SwitchingExecutor(self.node, self._rng, worker_count, self.world.plan.worker_pause_s)

    async def _live(self, node: Node) -> None:
        world = self.world
        await self.port.open(self.name, PORT)
        while self.client is None:
            with suppress(BookieError):
                self.client = await LedgerClient.connect(
                    self.store,
                    config=world.client_config,
                    rng=SeededRng(world.rng.getrandbits(64)),
                    clock=ledger.LoopClock(world.loop),
                )
            await asyncio.sleep(AGAIN_S)
        record = NodeRecord(
            id=self.name,
            life=str(world.rng.getrandbits(64)),
            addresses={"herd": f"{self.name}:{PORT}"},
            inactivity_limit_s=INACTIVITY_LIMIT_S,
        )
        registration = Registration(
            self.store, TablespaceNodes(self.store), record, now_s=self.now_s
        )
        while self.registration is None:
            with suppress(BookieError, Error):
                await registration.start()
                self.registration = registration
        for host in self.hosts:
            self.port.carry(host.space.name)
            host.tenant = self.resources.carry(host.space.id, host.space.name)
        for host in self.hosts:
            node.create_task(host.live(node, self.client, registration))

    def _on_session(self, state: SessionState) -> None:
        """Count what becomes of sessions that were suspended."""
        world = self.world
        if state is SessionState.SUSPENDED:
            self._is_suspended = True
        elif state is SessionState.LOST:
            world.happen("a session that ended")
            self._is_suspended = False
        elif self._is_suspended:
            world.happen("a session that was suspended and lives on")
            self._is_suspended = False

    def crash(self, *, power: bool) -> None:
        """End this life; without power what was not synced may be gone."""
        if self.node is not None and self.node.is_alive:
            self._is_power_lost = power
            self.world.loop.crash(self.node)
            self._is_power_lost = True

    def _crashed(self) -> None:
        """Be started again soon, with what the disks have kept."""
        world = self.world
        world.happen("a node without power" if self._is_power_lost else "a node that is killed")
        for host in self.hosts:
            host.crashed(is_power_lost=self._is_power_lost)
        self.client = self.registration = None
        world.store_server.disconnect(self.store.session_id)
        world.call_later(world.rng.choice((0.001, 0.02, 0.2)), self.start)

    def wipe(self) -> None:
        """Lose the disks with this life, and come back with empty ones."""
        self.crash(power=True)
        for host in self.hosts:
            host.lose_disk()

    def be_fast(self) -> None:
        self.slowness = 1.0

    def heal(self) -> None:
        """Let its disks be well."""
        self.be_fast()
        for host in self.hosts:
            host.heal()

    async def close(self) -> None:
        """End in good order; it is not started again. On its node."""
        assert self.node is not None
        for host in self.hosts:
            assert host.member is not None
            await host.member.close()
            self.port.forget(host.space.name)
            assert host.tenant is not None
            self.resources.forget(host.tenant)
        check_closed(self.resources)
        await in_thread(self.node, partial(run_all, self.resources.closing_steps()))
        assert self.registration is not None
        assert self.client is not None
        await self.port.close()
        self.common.close()
        await self.registration.close()
        await self.client.close()
        await self.store.close()
