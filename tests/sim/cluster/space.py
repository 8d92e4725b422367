"""Space: one tablespace of the cluster, as its clients and the checkers have it.

It stands where tests/sim/server has its world: what belongs to all tablespaces is the world's.
"""

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bookie.metadata.memory import MemoryStore
from bookie.runtime.ticket import Ticket
from herdpy.aio.switching import wait_for
from herdpy.cluster.handover.wish import Wish, WishRecord
from herdpy.cluster.leader_lookup import LeaderLookup, NodePlace
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.driver.dsn import address_of
from herdpy.driver.remote.leaders import Told
from herdpy.driver.remote.locators import SharedLocators
from herdpy.errors import Error, OperationalError
from herdpy.model.lsn import Lsn
from tests.fixtures.digest import state_digest
from tests.sim.cluster.checkers import CheckError, check_chain
from tests.sim.cluster.machine import AGAIN_S
from tests.sim.cluster.node_host import NodeHost
from tests.sim.cluster.readers import TimedHistory
from tests.sim.ledger.world import PASSWORD, StoreLink
from tests.sim.loop import Node
from tests.sim.server.world import PORT, Telling
from tests.sim.switching import in_thread

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

T = TypeVar("T")
_PATIENCE_S = 3.0
_KILLED_S = 0.3
_LEVEL_S = 30.0
_ACKNOWLEDGED_AGAIN_MAX = 900
"""Transactions that a client begins, at the most: their numbers have so much room."""


class LeaderDirectory:
    """What a client asks where the leader is: a session of its own with the metadata store."""

    def __init__(self, world: "World", node: Node) -> None:
        self._world = world
        self._node = node
        self._lookup = LeaderLookup(self._open, "the metadata store", patience_s=_PATIENCE_S)

    async def _open(self) -> MemoryStore:
        world = self._world
        link = StoreLink(world, self._node.name)
        return MemoryStore(world.store_server, link, world.access_of_drivers)

    def find(self, root: str, tablespace: str, read: str, done: Callable[[Told], object]) -> None:
        def tell(found: list[NodePlace] | Error) -> None:
            if isinstance(found, Error):
                self._world.happen("a leader that the metadata store does not tell")
                done(found)
                return
            self._world.happen("a leader that the metadata store tells")
            done([address for each in found if (address := address_of(each.address)) is not None])

        self._node.run(self._lookup.begin, root, tablespace, read, tell)

    def close(self) -> Ticket[None]:
        closing: Ticket[None] = Ticket()

        async def close() -> None:
            await self._lookup.close()
            closing.complete(None)

        self._node.create_task(close())
        return closing


class Space:
    """See the module. What is asked of it and not here is the world's."""

    def __init__(self, world: "World", number: int, name: str, acknowledged_min: int) -> None:
        self.world = world
        self.name = name
        self.id = f"{number:x}" * 32
        self.plan = replace(world.plan, tablespace=name)
        self.seed = world.seed
        self.loop = world.loop
        self.happened = world.happened
        self.history = TimedHistory(world.loop.time)
        self.host = Telling()
        """What clients were told, by one leader after the other."""
        self.host_name = f"db{number}.localhost"
        self.first_client = 1 + 20 * (number - 1)
        """Numbers, which are names as well, are those of one client in the world."""
        self.nodes: list[NodeHost] = []
        """Its copies, one on each machine."""
        self.leader: NodeHost | None = None
        """The last node that came to lead."""
        self.epoch = 0
        """Under which it does."""
        self.acknowledged_min = acknowledged_min
        self.acknowledged_count = 0
        self._led_in: tuple[str, int] | None = None
        """The last leader, and which life of its machine that was."""
        self._position: Lsn | None = None

    # --- what clients have of a world (tests/sim/server/world.py) --------------------------------

    @property
    def is_rough(self) -> bool:
        return self.world.is_rough

    def happen(self, name: str) -> None:
        self.world.happen(name)

    def say(self, text: str) -> None:
        self.world.say(text)

    def new_rng(self) -> random.Random:
        return self.world.new_rng()

    def acknowledge(self) -> None:
        """Count a transaction that was acknowledged."""
        self.acknowledged_count += 1

    def has_more(self, index: int) -> bool:
        """Return whether a client that has begun so many transactions is to begin another one."""
        if index < self.plan.transaction_count:
            return True
        is_enough = self.acknowledged_count >= self.acknowledged_min
        return index < _ACKNOWLEDGED_AGAIN_MAX and not (is_enough and self.world.has_faults)

    @property
    def makes_tablespace(self) -> bool:
        """It is the cluster's to make, not the first client's."""
        return False

    def places(self, number: int) -> str:
        """Some clients know a name that leads to the leader, some the nodes, some the store."""
        if number % 3 == 1:
            first = number % len(self.nodes)
            nodes = self.nodes[first:] + self.nodes[:first]
            return "herd://" + ",".join(f"{host.name}:{PORT}" for host in nodes)
        return "herd+zk://store" if number % 3 == 2 else f"herd://{self.host_name}:{PORT}"

    def new_locators(self, node: Node) -> SharedLocators:
        return SharedLocators(lambda hosts: LeaderDirectory(self.world, node))

    def admit(self) -> None:
        """Let a client begin something as soon as a node leads, or it has waited for long."""
        end_s = self.loop.time() + _PATIENCE_S
        while self.loop.time() < end_s and not any(host.leads for host in self.nodes):
            wait_for(asyncio.sleep(AGAIN_S))

    # --- its leaders -----------------------------------------------------------------------------

    async def make(self) -> None:
        """Make it in the metadata store."""
        store = MemoryStore(self.world.store_server, access=self.world.access)
        nodes = TablespaceNodes(store)
        await nodes.initialize()
        names = tuple(host.name for host in self.nodes)
        record = TablespaceRecord(id=self.id, leader=names[0], replicas=names)
        await nodes.create(self.name, record, PASSWORD)
        await store.close()

    def led_by(self, host: NodeHost) -> None:
        """A node has come to lead: the clients' name for the server leads to it."""
        former, member = self.leader, host.member
        epoch = 0 if member is None else member.epoch
        if self.epoch > epoch:
            self.happen("a leader that comes too late")
            return
        self.epoch = epoch
        if former is not None and former is not host and former.leads:
            self.happen("a leader that was deposed alive")
        if former is not None and former is not host:
            self.happen("another leader")
            if former.log_hangs_until_s == math.inf:  # it does not even end: an operator kills it
                crash = partial(former.machine.crash, power=False)
                self.world.call_later(_KILLED_S, crash)
        life = host.name, host.machine.life_count
        if self._led_in == life:
            self.happen("a leader that takes over from itself")
        self._led_in = life
        self.leader = host
        self.host.begin_life()
        self.loop.network.names[self.host_name] = host.name
        known = [each for each in (self._position, self.host.heard) if each is not None]
        if known and (lsn := host.tablespace.state.lsn) < max(known):
            raise CheckError("position", f"{host.name} leads at {lsn}, {max(known)} was told")

    async def hand_over(self, host: NodeHost, keep_s: float) -> None:
        """Have a node be handed the part, by an operator whose patience is so long."""
        store = MemoryStore(self.world.store_server, access=self.world.access)
        wish = Wish(store, TablespaceNodes(store).wish_path(self.id))
        try:
            epoch = (await TablespaceNodes(store).read(self.name)).record.epoch
            with suppress(OperationalError):  # there is another wish
                await wish.make(WishRecord(leader=host.name, epoch=epoch))
            await asyncio.sleep(keep_s)
        finally:
            await store.close()

    def note_position(self, host: NodeHost) -> None:
        """Remember how far the log was durable, as a leader knew."""
        if host.copy is not None and host.copy.database is not None:
            tablespace = host.tablespace
            if not tablespace.follows:
                durable = tablespace.log.durable_lsn
                self._position = max(self._position or durable, durable)

    # --- what is there in the end ----------------------------------------------------------------

    async def check_level(self) -> NodeHost:
        """Wait until a node leads, and every other one has what it has; return the leader.

        CheckError as well when a transaction of a client that is gone is open still.
        """
        while True:
            await self.world.wait_until(
                lambda: sum(host.leads for host in self.nodes) == 1, _LEVEL_S, "no node leads alone"
            )
            leader = next(host for host in self.nodes if host.leads)
            others = [host for host in self.nodes if host is not leader]
            if await self._is_rolled_back(leader) and all(
                [await self._is_level(host, leader) for host in others]
            ):
                return leader

    async def _is_rolled_back(self, leader: NodeHost) -> bool:
        if not leader.leads:
            return False
        tablespace, node = leader.tablespace, leader.node
        assert node is not None
        await self.world.act(node, _threaded(node, tablespace.retry_rollbacks))
        found = list(tablespace.applier.transactions)
        if found and leader.leads:  # clients have ended theirs, or were rolled back
            raise CheckError("content", f"{leader.name} has transactions {found} open at rest")
        return leader.leads

    async def _is_level(self, host: NodeHost, leader: NodeHost) -> bool:
        """Compare a node that follows with the leader at one position; False: something moved."""
        if not leader.leads:
            return False
        tablespace = leader.tablespace
        await self.world.wait_until(
            lambda: (
                not leader.leads
                or (host.is_ready and host.tablespace.state.lsn == tablespace.state.lsn)
            ),
            _LEVEL_S,
            f"{host.name} is not level with the leader",
        )
        if not leader.leads or not host.is_ready:
            return False
        lsn, copy = tablespace.state.lsn, host.tablespace
        found = [
            await self.world.act(node, _threaded(node, partial(state_digest, each)))
            for node, each in ((leader.node, tablespace), (host.node, copy))
            if node is not None
        ]
        if tablespace.state.lsn != lsn or not leader.leads or None in found:
            return False
        if found[0] != found[1]:
            raise CheckError("digest", f"{host.name} has not the state that the leader has")
        return True

    async def check_chain(self) -> None:
        """Look at all ledgers, when every node has closed its own."""
        host = self.world.new_client(f"last{self.first_client}")

        async def check() -> None:
            client = await host.connect()
            assert host.store is not None
            path = TablespaceNodes(host.store).ledgers_path(self.id)
            info = await LedgerListing(host.store, path).read()
            for _ in range(await check_chain(client, info, self.id.encode(), PASSWORD)):
                self.happen("unlisted ledger")
            await host.close()

        await self.world.act(host.node, check())


async def _threaded(node: Node, function: Callable[[], Any]) -> Any:
    return await in_thread(node, function)
