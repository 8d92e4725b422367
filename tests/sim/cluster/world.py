"""World: nodes with a database, over the bookies and the metadata store of tests/sim/ledger.

Each node's code is the product's: a database over a log of ledgers, its threads as greenlets, a
server on the loop. Which node leads they find out among themselves. Clients know the server by one
name, which leads to the last leader.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from errno import EIO
from functools import partial
from typing import Any, TypeVar

from bookie.client.client import LedgerClient
from bookie.errors import BookieError
from bookie.metadata.memory import MemoryStore
from bookie.metadata.memory_server import Session
from bookie.runtime.ticket import Ticket
from herdpy.aio.switching import can_wait, wait_for
from herdpy.cluster.blocking_chain import BlockingChain
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.handover.wish import Wish, WishRecord
from herdpy.cluster.leader_lookup import LeaderLookup, NodePlace
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.member import Member
from herdpy.cluster.part import State, Waits
from herdpy.cluster.registration import NodeRecord, Registration
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tablespace_nodes import (
    HandedOver,
    TablespaceNodes,
    TablespaceRecord,
    Versioned,
)
from herdpy.cluster.tail import Run
from herdpy.cluster.tenure import Tenure
from herdpy.cluster.upkeep import Limits
from herdpy.config import Config
from herdpy.driver.dsn import address_of
from herdpy.driver.remote.leaders import Told
from herdpy.driver.remote.locators import SharedLocators
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import Error, OperationalError
from herdpy.model.lsn import Lsn
from herdpy.server.server import Server
from herdpy.storage.tablespace_list import DEFAULT
from tests.fixtures.digest import state_digest
from tests.sim.cluster.checkers import CheckError, check_chain, check_memory
from tests.sim.cluster.plan import WorldPlan
from tests.sim.cluster.readers import TimedHistory
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.sim.ledger import world as ledger
from tests.sim.ledger.world import PASSWORD, SESSION_TIMEOUT_S, SeededRng, StoreLink
from tests.sim.loop import Node
from tests.sim.server.world import HOST, PORT, Telling, new_plans_of, raise_of, server_config
from tests.sim.switching import (
    LoopClock,
    Mutexes,
    SwitchingDriver,
    SwitchingExecutor,
    in_thread,
)

T = TypeVar("T")

NAME = DEFAULT
"""Of the tablespace, in the metadata store, as in URLs."""
ID = "0123456789abcdef0123456789abcdef"
STEPS = ("named", "claimed", "replayed", "leading", "alone", "serving")
"""Of a take-over, told when they are done."""
HAND_OVER_STEPS = ("draining", "drained", "closed", "left", "told")
"""Of a hand-over: told where the first begins, and when each is done."""
CLOCKS_APART_S = 7 * 86_400
"""By how much, at the most, each node's clocks are ahead of the world's, or behind them."""
_DRIFT = 0.09
"""By how much they run faster or slower."""
_AGAIN_S = 0.02
_KEEP_ALIVE_S = 5.0
_PATIENCE_S = 3.0
_LEVEL_S = 30.0
_SLOW_OPS = ("write", "sync", "sync_directory")


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


class LeaderDirectory:
    """What a client asks where the leader is: a session of its own with the metadata store."""

    def __init__(self, world: "World", node: Node) -> None:
        self._world = world
        self._node = node
        self._lookup = LeaderLookup(self._open, "the metadata store", patience_s=_PATIENCE_S)

    async def _open(self) -> MemoryStore:
        return MemoryStore(self._world.store_server, StoreLink(self._world, self._node.name))

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


class SteppedCopy(DatabaseCopy):
    """Tells its node of each step of a take-over."""

    def __init__(self, host: "NodeHost", *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._host = host

    def follow(self, run: Run) -> None:
        commits = self._host.tablespace.state.staged.commits
        super().follow(run)
        self._host.followed(has_job=self._host.tablespace.state.staged.commits is not commits)

    def claim(self, epoch: int) -> None:
        self._host.step("named")
        super().claim(epoch)
        self._host.step("claimed")

    def lead(self, end: Lsn | None) -> None:
        super().lead(end)
        self._host.step("leading")

    def end_log(self) -> Lsn:
        end = super().end_log()
        self._host.step("closed")
        return end


class SteppedNodes(TablespaceNodes):
    """Tells its node of the step of a hand-over behind which another one may lead."""

    def __init__(self, host: "NodeHost") -> None:
        super().__init__(host.store)
        self._host = host

    async def hand_over(self, name: str, found: Versioned, handed_over: HandedOver) -> bool:
        has_done_so = await super().hand_over(name, found, handed_over)
        self._host.step("left")
        return has_done_so


class SteppedChain(BlockingChain):
    """Tells its node that the log is replayed."""

    def __init__(self, host: "NodeHost", loop: NodeLoop, chain: LedgerChain) -> None:
        super().__init__(loop, chain)
        self._host = host

    def replay(self, after: Lsn) -> Any:
        yield from super().replay(after)
        self._host.step("replayed")


class NodeHost:
    """The machine of a node: its disk, and one life of the process after the other."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.name = f"n{number}.localhost"
        self.disk = SimulatedDisk(world.rng.getrandbits(64))
        self._clock_rate = rate = 1 + _DRIFT * (2 * world.rng.random() - 1)
        self.clock_ahead_s = CLOCKS_APART_S * (rate - 1) / _DRIFT
        self.clock = LoopClock(world.loop)
        self.clock.jump_us = round(self.clock_ahead_s * 1e6)
        self.slowness = 1.0
        self.node: Node | None = None
        self.copy: SteppedCopy | None = None
        self.member: Member | None = None
        self.server: Server | None = None
        self.client: LedgerClient | None = None
        self.registration: Registration | None = None
        self.tenure: Tenure | None = None
        self.part: ServedPart | None = None
        self.crash_after: str | None = None
        """The step of a take-over behind which its process is killed, once."""
        self.pause_after: str | None = None
        """The step behind which it stands still for a while, once."""
        self.at_step: Callable[[], object] | None = None
        """Called behind the next step of a take-over."""
        self._is_power_lost = True
        self._rng = world.new_rng()
        self._latency = world.new_rng()

    def draw(self) -> float:
        """Return chance of this node's own."""
        return self._rng.random()

    @property
    def state(self) -> State | None:
        """What it is for the tablespace; None: it does not run."""
        return None if self.member is None else self.member.machine.state

    @property
    def is_ready(self) -> bool:
        """It follows, and could be asked to lead."""
        return self.state is State.FOLLOWING

    @property
    def leads(self) -> bool:
        """It serves, as far as it knows."""
        return self.state is State.LEADING

    @property
    def tablespace(self) -> Tablespace:
        """That of its copy, which is open."""
        assert self.copy is not None
        assert self.copy.database is not None
        return self.copy.database.tablespace

    def start(self) -> None:
        """Begin a life."""
        world = self.world
        self.node = node = world.loop.add_node(self.name)
        node.on_crash.append(self._crashed)
        self.disk.latency = self._wait_for_disk
        self.store = node.run(LateStore, world.store_server, StoreLink(world, self.name))
        node.create_task(self._live(node))

    async def _live(self, node: Node) -> None:
        world, plan = self.world, self.world.plan
        while self.client is None:
            with suppress(BookieError):
                self.client = await LedgerClient.connect(
                    self.store,
                    config=world.client_config,
                    rng=SeededRng(world.rng.getrandbits(64)),
                    clock=ledger.LoopClock(world.loop),
                )
            await asyncio.sleep(_AGAIN_S)
        self.copy = copy = SteppedCopy(
            self,
            self._new_instance,
            self._new_chain,
            SwitchingDriver(node),
            ledger_bytes_max=plan.ledger_bytes_max,
        )
        nodes = SteppedNodes(self)
        registration = Registration(
            self.store,
            nodes,
            NodeRecord(
                id=self.name,
                life=str(world.rng.getrandbits(64)),
                addresses={"herd": f"{self.name}:{PORT}"},
            ),
            now_s=lambda: world.loop.time() * self._clock_rate + self.clock_ahead_s,
        )
        while self.registration is None:
            with suppress(BookieError, Error):
                await registration.start()
                self.registration = registration
        while self.member is None:
            member = Member(
                NAME,
                self.name,
                copy,
                self,
                client=self.client,
                store=self.store,
                nodes=nodes,
                registration=registration,
                in_thread=partial(in_thread, node),
                draw=self._rng.random,
                waits=Waits(
                    candidate_s=0.05,
                    other_s=0.4 * SESSION_TIMEOUT_S,
                    other_max_s=3.0,
                    successor_s=0.2,
                    session_s=SESSION_TIMEOUT_S,
                    hang_timeouts=0.3,
                    again_max_s=1.0,
                ),
                ledger_limits=Limits(
                    look_s=0.1, age_s=plan.ledger_age_s, missing_s=0.4, without_s=1.0
                ),
                handover_drain_s=plan.handover_drain_s,
                on_state=lambda state: world.say(f"{self.name}: {state.value}"),
            )
            try:
                await member.start()
                self.member = member
            except BookieError:
                await member.close()
                await asyncio.sleep(_AGAIN_S)

    def _new_chain(self) -> SteppedChain:
        node, client = self.node, self.client
        assert node is not None
        assert client is not None
        listing = LedgerListing(self.store, TablespaceNodes(self.store).ledgers_path(ID))
        chain = LedgerChain(client, listing, tablespace=ID.encode(), password=PASSWORD)
        return SteppedChain(self, NodeLoop(node), chain)

    def _new_instance(self, logs: LogSource) -> Instance:
        plan, node = self.world.plan, self.node
        assert node is not None
        instance = Instance(
            disk=self.disk,
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            driver=SwitchingDriver(node),
            config=Config(
                checkpoint_log_bytes=plan.checkpoint_log_bytes,
                checkpoint_interval_s=plan.checkpoint_interval_s,
                transaction_memory_bytes=plan.transaction_memory_bytes,
                disk_reserve_bytes=0,
            ),
            where=f"the disk of {self.name}",
            logs=logs,
            new_plans=new_plans_of(lambda: instance),
        )
        return instance

    # --- the service of its member ---------------------------------------------------------------

    async def begin(self, part: ServedPart) -> None:
        """Let clients in, to read."""
        assert self.copy is not None
        assert self.copy.database is not None
        self.part = part
        config = server_config(self.world.plan)
        server = self.server = Server(
            self.copy.database,
            name=self.name,
            config=config,
            executor=self._new_executor,
            part=part,
        )
        await server.start(self.name, PORT)

    async def serve(self, tenure: Tenure) -> None:
        """Let them in to a leader."""
        self.step("alone")
        self.tenure = tenure
        self.world.led_by(self)
        self.step("serving")

    async def drain(self, timeout_s: float, check: Callable[[], object]) -> None:
        """Let what is open end."""
        assert self.server is not None
        self.step("draining")
        await self.server.drain_transactions(timeout_s, check)
        self.step("drained")

    async def stop(self) -> None:
        """Let no client in any more."""
        if self.server is not None:
            if self.part is not None and self.part.end_error() is not None:
                self.world.happen("a part handed over")
                self.step("told")
            self.world.note_position(self)
            if self.tenure is not None and self.tenure.held_count:
                self.world.happen("an answer that waited for a tenure")
            self.tenure = None
            await self.server.drain(0.0)
            await self.server.close()
            self.server = None

    def followed(self, *, has_job: bool) -> None:
        """It has taken in a part of the log, perhaps with the commit of a staged job."""
        if has_job and self.world.plan.is_maintained:
            self.world.happen("a commit of pages on a follower")
        try:
            check_memory(self.tablespace)
        except CheckError as error:
            self.world.call_later(0.0, _raise, error)

    def maintain(self) -> None:
        """Checkpoint and compact as long as it follows; the disk fails at times."""
        node, world = self.node, self.world
        if not (world.is_rough and self.is_ready) or node is None or self.copy is None:
            return
        database = self.copy.database
        assert database is not None
        if self._rng.random() < 0.3:
            self.disk.fail("open", EIO, path="/segments/", times=1)

        def run() -> None:
            with suppress(Error, OSError):
                try:
                    database.run_checkpoint()
                    world.happen("checkpoint of a follower")
                    if database.run_compaction():
                        world.happen("compaction of a follower")
                except OperationalError:
                    world.happen("failed checkpoint of a follower")

        in_thread(node, run).add_done_callback(raise_of)

    def step(self, name: str) -> None:
        """A step of a take-over is done."""
        world, node = self.world, self.node
        world.say(f"{self.name}: {name}")
        if self.at_step is not None:
            at_step, self.at_step = self.at_step, None
            world.loop.world.run(at_step)
        if self.pause_after == name and node is not None:
            self.pause_after = None
            world.happen("pause in a take-over")
            world.call_later(0.0, world.pause, self, 0.2 + 2 * self._rng.random())
        if self.crash_after == name:
            self.crash_after = None
            world.happen(f"crash behind step {name}")
            if name in HAND_OVER_STEPS:
                world.happen("crash in a hand-over")
            if can_wait():
                raise SimulatedCrash(f"behind step {name}")
            self.crash(power=True)

    def _new_executor(self, _: str, worker_count: int) -> Any:
        assert self.node is not None
        return SwitchingExecutor(self.node, self._rng, worker_count, self.world.plan.worker_pause_s)

    def _wait_for_disk(self, op: str, path: str) -> None:
        if op in _SLOW_OPS and can_wait() and self.world.plan.sync_s:
            wait_for(asyncio.sleep(self._latency.random() * self.world.plan.sync_s * self.slowness))

    # --- ends ------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.slowness = 1.0
        self.disk.heal()
        self.disk.crash_at = None
        self.crash_after = self.pause_after = None

    def crash(self, *, power: bool) -> None:
        """End this life; without power what was not synced may be gone."""
        if self.node is not None and self.node.is_alive:
            self._is_power_lost = power
            self.world.loop.crash(self.node)
            self._is_power_lost = True

    def _crashed(self) -> None:
        """Be started again soon, with what the disk has kept."""
        world = self.world
        if self.leads:
            world.happen("crash of the leader")
        elif self.is_ready:
            world.happen("crash of a follower")
        world.note_position(self)
        self.copy = self.member = self.server = self.client = self.registration = None
        self.disk = self.disk.restart(world.rng.getrandbits(64), is_power_lost=self._is_power_lost)
        world.store_server.disconnect(self.store.session_id)
        world.call_later(world.rng.choice((0.001, 0.02, 0.2)), self.start)

    def wipe(self) -> None:
        """Lose the disk with this life, and come back with an empty one."""
        self.crash(power=True)
        self.disk = SimulatedDisk(self.world.rng.getrandbits(64))

    def want(self) -> None:
        """Have it lead as soon as it can."""
        if self.node is not None and self.member is not None:
            self.node.run(self.member.want)

    async def close(self) -> None:
        """End in good order; it is not started again. On its node."""
        assert self.member is not None
        assert self.client is not None
        await self.member.close()
        assert self.registration is not None
        await self.registration.close()
        await self.client.close()
        await self.store.close()


def _raise(error: CheckError) -> None:
    raise error


async def _threaded(node: Node, function: Callable[[], T]) -> T:
    return await in_thread(node, function)


class World(ledger.World):
    """See the module."""

    plan: WorldPlan

    def __init__(
        self, seed: int, plan: WorldPlan, rng: random.Random, say: Callable[[str], object] | None
    ) -> None:
        super().__init__(seed, plan, rng, say)  # type: ignore[arg-type]
        self.loop.network.delay_s = plan.link_delay_s
        self.mutexes = Mutexes(self.loop, random.Random(rng.getrandbits(64)), plan.preemption)
        self.history = TimedHistory(self.loop.time)
        self.host = Telling()
        """What clients were told, by one leader after the other."""
        self.nodes = [NodeHost(self, number) for number in range(1, plan.node_count + 1)]
        self.leader: NodeHost | None = None
        """The last node that came to lead."""
        self.epoch = 0
        """Under which it does."""
        self.is_filled = False
        """The tables are there: faults may begin."""
        self._position: Lsn | None = None
        self._away: dict[str, float] = {}
        """Until when a node does not reach the metadata store."""
        self._placed = self.mutexes.placed()
        self._placed.__enter__()
        self.loop.world.run(self._probe)

    def _probe(self) -> None:
        self.loop.network.probe()
        self.loop.call_later(_KEEP_ALIVE_S, self._probe)

    def new_rng(self) -> random.Random:
        """Return chance of its own, so that draws of one part do not change the others'."""
        return random.Random(self.rng.getrandbits(64))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back as the world."""
        self.loop.world.run(self.loop.call_later, delay_s, callback, *args)

    def _heard(self, transport: Any, data: bytes) -> None:
        if ledger.PORT in (transport.local[1], transport.remote[1]):
            super()._heard(transport, data)

    def pause(self, host: NodeHost, seconds: float) -> None:
        """Let a node's process stand still: what keeps its session alive does, too."""
        if host.node is not None and host.node.is_alive:
            self.loop.pause(host.node, seconds)
            host.store.late_s = seconds
            silent_s = seconds + 0.1 * host.draw()  # then its clients may come before the store
            self.store_server.disconnect(host.store.session_id, reconnect_s=silent_s)

    def leave_store(self, host: NodeHost, seconds: float) -> None:
        """Let a node reach the metadata store no more for a while; its session may end."""
        self._away[host.name] = self.loop.time() + seconds
        # As long as a client may wait for an answer before it takes the connection for broken.
        host.store.late_s = host.draw() * min(seconds, 2 / 3 * SESSION_TIMEOUT_S)
        self.store_server.disconnect(host.store.session_id, reconnect_s=seconds)

    def store_trouble(self, owner: str, path: str, *, is_write: bool) -> float:
        """Return how likely a request to the metadata store goes wrong now."""
        if self._away.get(owner, 0.0) > self.loop.time():
            return 1.0
        is_trouble = self.is_rough and self.is_filled and owner.startswith(("n", "c"))
        return self.plan.store_trouble if is_trouble else 0.0

    def on_lost_write(self, owner: str, path: str) -> None:
        if path.startswith("/herd"):
            self.happen("lost answer of a compare-and-set")

    async def make_tablespace(self) -> None:
        """Make the cluster's nodes in the metadata store, and the one tablespace."""
        store = MemoryStore(self.store_server)
        nodes = TablespaceNodes(store)
        await nodes.initialize()
        names = tuple(host.name for host in self.nodes)
        record = TablespaceRecord(id=ID, leader=names[0], replicas=names)
        await nodes.create(NAME, record, PASSWORD)
        await store.close()

    def places(self, number: int) -> str:
        """Some clients know a name that leads to the leader, some the nodes, some the store."""
        if number % 3 == 1:
            first = number % len(self.nodes)
            nodes = self.nodes[first:] + self.nodes[:first]
            return "herd://" + ",".join(f"{host.name}:{PORT}" for host in nodes)
        return "herd+zk://store" if number % 3 == 2 else f"herd://{HOST}:{PORT}"

    def new_locators(self, node: Node) -> SharedLocators:
        return SharedLocators(lambda hosts: LeaderDirectory(self, node))

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
        self.leader = host
        self.host.begin_life()
        self.loop.network.names[HOST] = host.name
        known = [each for each in (self._position, self.host.heard) if each is not None]
        if known and (lsn := host.tablespace.state.lsn) < max(known):
            raise CheckError("position", f"{host.name} leads at {lsn}, {max(known)} was told")

    def admit(self) -> None:
        """Let a client begin something as soon as a node leads, or it has waited for long."""
        end_s = self.loop.time() + _PATIENCE_S
        while self.loop.time() < end_s and not any(host.leads for host in self.nodes):
            wait_for(asyncio.sleep(_AGAIN_S))

    async def hand_over(self, host: NodeHost, keep_s: float) -> None:
        """Have a node be handed the part, by an operator whose patience is so long."""
        store = MemoryStore(self.store_server)
        wish = Wish(store, TablespaceNodes(store).wish_path(ID))
        try:
            epoch = (await TablespaceNodes(store).read(NAME)).record.epoch
            with suppress(OperationalError):  # there is another wish
                await wish.make(WishRecord(leader=host.name, epoch=epoch))
            await asyncio.sleep(keep_s)
        finally:
            await store.close()

    async def check_level(self) -> NodeHost:
        """Wait until a node leads, and every other one has what it has; return the leader.

        CheckError as well when a transaction of a client that is gone is open still.
        """
        while True:
            await self.wait_until(
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
        await self.act(node, _threaded(node, tablespace.retry_rollbacks))
        found = list(tablespace.applier.transactions)
        if found and leader.leads:  # clients have ended theirs, or were rolled back
            raise CheckError("content", f"{leader.name} has transactions {found} open at rest")
        return leader.leads

    async def _is_level(self, host: NodeHost, leader: NodeHost) -> bool:
        """Compare a node that follows with the leader at one position; False: something moved."""
        if not leader.leads:
            return False
        tablespace = leader.tablespace
        await self.wait_until(
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
            await self.act(node, _threaded(node, partial(state_digest, each)))
            for node, each in ((leader.node, tablespace), (host.node, copy))
            if node is not None
        ]
        if tablespace.state.lsn != lsn or not leader.leads or None in found:
            return False
        if found[0] != found[1]:
            raise CheckError("digest", f"{host.name} has not the state that the leader has")
        return True

    def note_position(self, host: NodeHost) -> None:
        """Remember how far the log was durable, as a leader knew."""
        if host.copy is not None and host.copy.database is not None:
            tablespace = host.tablespace
            if not tablespace.follows:
                durable = tablespace.log.durable_lsn
                self._position = max(self._position or durable, durable)

    async def check_chain(self) -> None:
        """Look at all ledgers, when every node has closed its own."""
        host = self.new_client("last")

        async def check() -> None:
            client = await host.connect()
            assert host.store is not None
            path = TablespaceNodes(host.store).ledgers_path(ID)
            info = await LedgerListing(host.store, path).read()
            for _ in range(await check_chain(client, info, ID.encode(), PASSWORD)):
                self.happen("unlisted ledger")
            await host.close()

        await self.act(host.node, check())

    def calm(self) -> None:
        """End all faults."""
        if self.is_rough:
            super().calm()
            self._away.clear()
            self.loop.network.silent_death_chance = 0.0
            for host in self.nodes:
                host.heal()

    def close(self) -> None:
        super().close()
        self._placed.__exit__(None, None, None)
