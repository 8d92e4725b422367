"""World: nodes with a database, over the bookies and the metadata store of tests/sim/ledger.

Each node's code is the product's: a database over a log of ledgers, its threads as greenlets, a
server on the loop. One node leads at a time; which one, and when, is this world's to say, as an
operator would (`Election`). Clients know the server by one name, which leads to the last leader.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from bookie.client.client import LedgerClient
from bookie.errors import BookieError
from bookie.metadata.memory import MemoryStore
from herdpy.aio.switching import can_wait, wait_for
from herdpy.cluster.blocking_chain import BlockingChain
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.tablespace_nodes import TablespaceNodes, TablespaceRecord
from herdpy.cluster.tail import LedgerTail
from herdpy.config import Config, ServerConfig
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.errors import Error
from herdpy.log.followed_log import FollowedLog
from herdpy.log.ledger_log import LedgerLog
from herdpy.model.lsn import Lsn
from herdpy.server.server import Server
from herdpy.storage.manifest import LEDGER_LOG
from tests.fixtures.digest import state_digest
from tests.sim.cluster.checkers import CheckError, check_chain
from tests.sim.cluster.plan import WorldPlan
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.sim.ledger import world as ledger
from tests.sim.ledger.world import PASSWORD, SeededRng, StoreLink
from tests.sim.loop import Node
from tests.sim.server.checkers import History
from tests.sim.server.world import HOST, PORT, Telling, new_plans_of
from tests.sim.switching import (
    LoopClock,
    Mutexes,
    SwitchingDriver,
    SwitchingExecutor,
    in_thread,
)

T = TypeVar("T")

NAME = "sales"
"""Of the tablespace, in the metadata store."""
ID = "0123456789abcdef0123456789abcdef"
STEPS = ("epoch", "claimed", "replayed", "opened", "served")
"""Of a take-over, told when they are done."""
_AGAIN_S = 0.02
_KEEP_ALIVE_S = 5.0
_BACK_S = 5.0
_SLOW_OPS = ("write", "sync", "sync_directory")


class NodeLoop:
    """The loop of a node's client of the bookies, as the threads of its log have it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return wait_for(self._node.create_task(coroutine))

    def post(self, function: Callable[[], object]) -> None:
        self._node.run(self._node.loop.call_soon, function)


class SteppedChain(BlockingChain):
    """Tells its node of each step of a take-over."""

    def __init__(self, host: "NodeHost", loop: NodeLoop, chain: LedgerChain) -> None:
        super().__init__(loop, chain)
        self.ledgers = chain
        self._host = host

    def claim(self, epoch: int) -> None:
        super().claim(epoch)
        self._host.step("claimed")

    def replay(self, after: Lsn) -> Any:
        yield from super().replay(after)
        self._host.step("replayed")


class NodeHost:
    """The machine of a node: its disk, and one life of the process after the other."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.name = f"n{number}.localhost"
        self.disk = SimulatedDisk(world.rng.getrandbits(64))
        self.clock = LoopClock(world.loop)
        self.slowness = 1.0
        self.node: Node | None = None
        self.client: LedgerClient | None = None
        self.database: Database | None = None
        self.server: Server | None = None
        self.chain: LedgerChain | None = None
        self.epoch = 0
        """Under which it leads, or is about to."""
        self.crash_after: str | None = None
        """The step of a take-over behind which its process is killed, once."""
        self.pause_after: str | None = None
        """The step behind which it stands still for a while, once."""
        self._tail: LedgerTail | None = None
        self._following: asyncio.Task[None] | None = None
        self._taking_in: asyncio.Task[None] | None = None
        self._is_taking_over = False
        self._is_power_lost = True
        self._rng = world.new_rng()
        self._latency = world.new_rng()

    @property
    def is_ready(self) -> bool:
        """It follows, and could be asked to lead."""
        return self.database is not None and self.server is None and not self._is_taking_over

    @property
    def leads(self) -> bool:
        """It serves, and is not known to be deposed."""
        database = self.database
        return self.server is not None and database is not None and not _is_over(database)

    @property
    def is_deposed(self) -> bool:
        """It led, or was about to, and its log has failed: another one leads, or is to."""
        database = self.database
        return database is not None and not database.tablespace.follows and _is_over(database)

    def start(self) -> None:
        """Begin a life, which follows until it is asked to lead."""
        world = self.world
        self.node = node = world.loop.add_node(self.name)
        node.on_crash.append(self._crashed)
        self.disk.latency = self._wait_for_disk
        self.store = MemoryStore(world.store_server, StoreLink(world, self.name))
        node.create_task(self._live(node))

    async def _live(self, node: Node) -> None:
        world = self.world
        while True:
            try:
                self.client = client = await LedgerClient.connect(
                    self.store,
                    config=world.client_config,
                    rng=SeededRng(world.rng.getrandbits(64)),
                    clock=ledger.LoopClock(world.loop),
                )
                break
            except BookieError:
                await asyncio.sleep(_AGAIN_S)
        try:
            database = await in_thread(node, self._open)
            self.database = database
            self._tail = LedgerTail(client, self.store, self._listing(), password=PASSWORD)
            self._following = node.create_task(self._follow(node, database, self._tail))
        except Error as error:
            if world.is_calm:
                raise CheckError("liveness", f"{self.name} does not open: {error}") from error
            world.happen("a node that did not open")
            world.loop.call_soon(partial(self.crash, power=False))

    async def _follow(self, node: Node, database: Database, tail: LedgerTail) -> None:
        """Take in what the log has, until it is cancelled."""
        runs = tail.runs(database.tablespace.state.lsn)
        while True:
            run = await anext(runs)
            # To the end of it, also when this is cancelled meanwhile.
            self._taking_in = in_thread(node, partial(database.replica.follow, run))
            await asyncio.shield(self._taking_in)

    async def _stop_following(self) -> None:
        following, tail = self._following, self._tail
        assert following is not None
        assert tail is not None
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        if self._taking_in is not None:
            await self._taking_in
        await tail.close()

    def _listing(self) -> LedgerListing:
        return LedgerListing(self.store, TablespaceNodes(self.store).ledgers_path(ID))

    # --- leading ---------------------------------------------------------------------------------

    async def lead(self) -> None:
        """Take the tablespace over, and serve it; the errors of what it meets. On its node."""
        node, database = self.node, self.database
        assert node is not None
        assert database is not None
        self._is_taking_over = True
        nodes = TablespaceNodes(self.store)
        while True:
            taken = await nodes.take_over(NAME, await nodes.read(NAME), self.name)
            if taken is not None:
                break
        self.epoch = taken.record.epoch
        self.step("epoch")
        await self._stop_following()
        await in_thread(node, partial(self._take_over, database))
        self.step("opened")
        await in_thread(node, partial(self.world.check_opened, database))
        plan = self.world.plan
        config = ServerConfig(
            workers=plan.worker_count,
            connections_max=plan.connections_max,
            superuser_reserved_connections=0,
            spin_us=0,
            loop_sync_us=plan.loop_sync_us,
        )
        server = Server(database, name=self.name, config=config, executor=self._new_executor)
        await server.start(self.name, PORT)
        self.server = server
        self._is_taking_over = False
        self.world.led_by(self)
        self.step("served")

    def step(self, name: str) -> None:
        """A step of a take-over is done."""
        world, node = self.world, self.node
        world.say(f"{self.name}: {name}")
        if self.pause_after == name and node is not None:
            self.pause_after = None
            world.happen("pause in a take-over")
            world.loop.pause(node, 0.2 + self._rng.random())
        if self.crash_after == name:
            self.crash_after = None
            world.happen(f"crash behind step {name}")
            raise SimulatedCrash(f"behind step {name}")

    def _new_executor(self, _: str, worker_count: int) -> Any:
        assert self.node is not None
        return SwitchingExecutor(self.node, self._rng, worker_count, self.world.plan.worker_pause_s)

    def _take_over(self, database: Database) -> None:
        """Claim the log, and lead behind it. In a thread of this node."""
        node, client, plan = self.node, self.client, self.world.plan
        assert node is not None
        assert client is not None
        self.chain = LedgerChain(client, self._listing(), tablespace=ID.encode(), password=PASSWORD)
        chain = SteppedChain(self, NodeLoop(node), self.chain)
        chain.claim(self.epoch)
        driver = SwitchingDriver(node)
        log = LedgerLog(chain, driver, ledger_bytes_max=plan.ledger_bytes_max)
        database.replica.take_over(log, self.epoch)

    def _open(self) -> Database:
        plan, node = self.world.plan, self.node
        assert node is not None
        instance = Instance(
            disk=self.disk,
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            driver=SwitchingDriver(node),
            config=Config(
                checkpoint_log_bytes=plan.checkpoint_log_bytes,
                transaction_memory_bytes=plan.transaction_memory_bytes,
                disk_reserve_bytes=0,
            ),
            where=f"the disk of {self.name}",
            logs=LogSource(LEDGER_LOG, lambda _: FollowedLog(), leads=False),
            new_plans=new_plans_of(lambda: instance),
        )
        return instance.start()

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
        self.client = self.database = self.server = self.chain = None
        self._tail = self._following = self._taking_in = None
        self._is_taking_over = False
        self.disk = self.disk.restart(world.rng.getrandbits(64), is_power_lost=self._is_power_lost)
        world.store_server.disconnect(self.store.session_id)
        world.call_later(world.rng.choice((0.001, 0.02, 0.2)), self.start)

    def wipe(self) -> None:
        """Lose the disk with this life, and come back with an empty one."""
        self.crash(power=True)
        self.disk = SimulatedDisk(self.world.rng.getrandbits(64))

    async def stop(self) -> str:
        """Close the database, and return the digest of its state then. On its node."""
        node, server, database, client = self.node, self.server, self.database, self.client
        assert node is not None
        assert server is not None
        assert database is not None
        assert client is not None
        self.server = self.database = None
        await server.drain(1.0)
        await server.close()
        await in_thread(node, database.tablespace.retry_rollbacks)
        digest = await in_thread(
            node, partial(state_digest, database.tablespace, has_position=False)
        )
        await in_thread(node, database.close)
        return digest


def _is_over(database: Database) -> bool:
    """Return whether its log has failed: another node leads, or it has to be opened again."""
    return database.failure is not None or database.instance.is_closed


class Election:
    """Has one node lead at a time, as far as it can know."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng = world.new_rng()
        self.is_over = False
        self.wanted: NodeHost | None = None
        """Is to lead next, though another one does."""
        self._try: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Have a node lead whenever none does, one at a time, until `is_over`."""
        world = self.world
        while not self.is_over:
            for host in world.nodes:
                if host.is_deposed:
                    world.happen("restart of a node that was deposed, or whose log failed")
                    host.crash(power=False)
            leading = world.leader is not None and world.leader.leads
            wanted, self.wanted = self.wanted, None
            if wanted is not None and wanted.is_ready:
                await self._have(wanted)
            elif not leading:
                ready = [host for host in world.nodes if host.is_ready]
                if ready:
                    await self._have(self.rng.choice(ready))
            await asyncio.sleep(_AGAIN_S * self.rng.random())

    async def _have(self, host: NodeHost) -> None:
        """Have a node lead; one that fails to is started again, or is left behind when it is late.

        One that is late may come to lead beside the next one: the log has to see to that.
        """
        world, node = self.world, host.node
        assert node is not None
        done = world.act(node, host.lead())
        await asyncio.wait([done], timeout=self.rng.choice((0.02, 0.1, 5.0)))
        if done.done():
            self._after(host, node, done)
        else:
            world.happen("a take-over beside another")
            done.add_done_callback(partial(self._after, host, node))

    def _after(self, host: NodeHost, node: Node, done: "asyncio.Future[None]") -> None:
        try:
            done.result()
        except (Error, BookieError) as error:
            self.world.say(f"{host.name} does not come to lead: {error}")
            if self.world.is_calm:
                raise CheckError(
                    "liveness", f"{host.name} does not come to lead: {error}"
                ) from error
            self.world.happen("a take-over that failed")
            if host.node is node:
                host.crash(power=False)
        except SimulatedCrash:
            if host.node is node:
                host.crash(power=self.world.draw() < 0.5)


class World(ledger.World):
    """See the module."""

    plan: WorldPlan

    def __init__(
        self, seed: int, plan: WorldPlan, rng: random.Random, say: Callable[[str], object] | None
    ) -> None:
        super().__init__(seed, plan, rng, say)  # type: ignore[arg-type]
        self.loop.network.delay_s = plan.link_delay_s
        self.mutexes = Mutexes(self.loop, random.Random(rng.getrandbits(64)), plan.preemption)
        self.history = History()
        self.host = Telling()
        """What clients were told, by one leader after the other."""
        self.nodes = [NodeHost(self, number) for number in range(1, plan.node_count + 1)]
        self.election = Election(self)
        self.leader: NodeHost | None = None
        """The last node that came to lead."""
        self.epoch = 0
        """Under which it does."""
        self.is_filled = False
        """The tables are there: faults may begin."""
        self.digest: str | None = None
        """Of the state of the log, as the last leader that was closed had it."""
        self._position: Lsn | None = None
        self._calm_s: float | None = None
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

    def store_trouble(self, owner: str, path: str, *, is_write: bool) -> float:
        """Return how likely a request to the metadata store goes wrong now."""
        is_trouble = self.is_rough and self.is_filled and owner.startswith("n")
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
        await nodes.create(NAME, TablespaceRecord(id=ID, leader=names[0], replicas=names))
        await store.close()

    def led_by(self, host: NodeHost) -> None:
        """A node has come to lead: the clients' name for the server leads to it."""
        former = self.leader
        if self.epoch > host.epoch:
            self.happen("a leader that comes too late")
            return
        self.epoch = host.epoch
        if former is not None and former is not host and former.leads:
            self.happen("a leader that was deposed alive")
        if former is not None and former is not host:
            self.happen("another leader")
        self.leader = host
        self.host.begin_life()
        self.loop.network.names[HOST] = host.name
        assert host.database is not None
        known = [each for each in (self._position, self.host.heard) if each is not None]
        if known and (lsn := host.database.tablespace.state.lsn) < max(known):
            raise CheckError("position", f"{host.name} leads at {lsn}, {max(known)} was told")

    def check_opened(self, database: Database) -> None:
        """Compare the state that a node begins with, behind a leader that was closed."""
        if self.digest is not None:
            if state_digest(database.tablespace, has_position=False) != self.digest:
                raise CheckError("digest", "a node has not the state that the last leader had")
            self.digest = None

    async def check_level(self, leader: NodeHost) -> None:
        """Wait until every node that follows has what the leader has: it is the same.

        CheckError as well when a transaction of a client that is gone is open still.
        """
        assert leader.database is not None
        assert leader.node is not None
        tablespace = leader.database.tablespace
        await in_thread(leader.node, tablespace.retry_rollbacks)
        if tablespace.applier.transactions:  # clients have ended theirs, or were rolled back
            found = list(tablespace.applier.transactions)
            raise CheckError("content", f"{leader.name} has transactions {found} open at rest")
        for host in self.nodes:
            while host is not leader and not await self._is_level(host, leader):
                pass

    async def _is_level(self, host: NodeHost, leader: NodeHost) -> bool:
        """Compare a node that follows with the leader at one position; False: it went on."""
        tablespace = leader.database.tablespace  # type: ignore[union-attr]
        await self.wait_until(
            lambda: host.is_ready and host.database.tablespace.state.lsn == tablespace.state.lsn,
            30.0,
            f"{host.name} is not level with the leader",
        )
        lsn = tablespace.state.lsn
        found = [
            await in_thread(each.node, partial(state_digest, each.database.tablespace))
            for each in (leader, host)
        ]
        if tablespace.state.lsn != lsn:
            return False
        if found[0] != found[1]:
            raise CheckError("digest", f"{host.name} has not the state that the leader has")
        return True

    def note_position(self, host: NodeHost) -> None:
        """Remember how far the log was durable, as a leader knew."""
        if host.database is not None and not host.database.tablespace.follows:
            durable = host.database.tablespace.log.durable_lsn
            self._position = max(self._position or durable, durable)

    async def check_chain(self, host: NodeHost) -> None:
        """Look at all ledgers, when every node has closed its own. On a node."""
        assert host.client is not None
        path = TablespaceNodes(host.store).ledgers_path(ID)
        info = await LedgerListing(host.store, path).read()
        for _ in range(await check_chain(host.client, info, ID.encode(), PASSWORD)):
            self.happen("unlisted ledger")

    @property
    def is_calm(self) -> bool:
        """The faults have ended, and bookies and sessions have had time to come back."""
        return self._calm_s is not None and self.loop.time() > self._calm_s + _BACK_S

    def calm(self) -> None:
        """End all faults."""
        if self.is_rough:
            self._calm_s = self.loop.time()
            super().calm()
            self.loop.network.silent_death_chance = 0.0
            for host in self.nodes:
                host.heal()

    def close(self) -> None:
        super().close()
        self._placed.__exit__(None, None, None)
