"""World: bookies, clients, a metadata store and the network between them, on one simulated loop.

The product's own code runs: BookieNode on a SimulatedDisk and a MemoryIndex, LedgerClient over
AsyncioChannels, both over the simulated network. Replaced are clock, chance, disk, index, network
and the metadata store (MemoryStore, with faults by its link).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bookie.client.client import LedgerClient
from bookie.config import BookieConfig, ClientConfig
from bookie.errors import BookieError, BookieStartError
from bookie.ledger.types import Status
from bookie.metadata.acl import StoreAccess
from bookie.metadata.cluster import initialize
from bookie.metadata.interfaces import Create
from bookie.metadata.memory import Fate, MemoryStore, MemoryStoreServer
from bookie.metadata.memory import Plan as LinkPlan
from bookie.server.identity import BookieDirectories
from bookie.server.node import BookieNode
from bookie.server.storage.memory_index import MemoryIndex
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.sim.ledger.checkers import CheckError, History
from tests.sim.ledger.plan import LedgerPlan, WorldPlan
from tests.sim.ledger.wire import Message, Wire
from tests.sim.loop import Node, SimulatedExecutor, SimulatedLoop

T = TypeVar("T")

ROOT = "/ledgers"
PASSWORD = b"secret"
SESSION_TIMEOUT_S = 1.0
START_WALL_US = 1_700_000_000_000_000
PORT = 3181
_LAG_SHARE = 0.4
"""Of the broken connections to the metadata store: the next server shows what was before."""
LAG_S_MAX = 0.5


class LoopClock:
    """Clock of one node: the loop's time, the wall clock off by a little."""

    def __init__(self, loop: SimulatedLoop, skew_us: int = 0) -> None:
        self._loop = loop
        self._start_us = START_WALL_US + skew_us

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_us(self) -> int:
        return self._start_us + round(self._loop.time() * 1_000_000)


class SeededRng:
    """Rng of one node."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.random = rng.random
        self.randbytes = rng.randbytes


class StoreLink:
    """The way of every client to the metadata store; loses what the world tells it to."""

    def __init__(self, world: "World", owner: str) -> None:
        self._world = world
        self.owner = owner

    def plan(self, session_id: int, path: str, *, is_write: bool) -> LinkPlan:
        world = self._world
        draw = world.draw
        request_s, answer_s = draw() * 0.001, draw() * 0.001
        if draw() >= world.store_trouble(self.owner, path, is_write=is_write):
            return LinkPlan(request_s, answer_s)
        fate = Fate.LOSE_ANSWER if draw() < 0.6 else Fate.LOSE_REQUEST
        if is_write:
            world.on_lost_write(self.owner, path)
        world.say(f"store: {self.owner} loses {fate.value} at {path}")
        late = draw()
        reconnect_s = draw() * 0.02 if late < 0.8 else draw() * 2 * SESSION_TIMEOUT_S
        lag_s = 0.0
        if world.draw_lag() < _LAG_SHARE:
            lag_s = world.draw_lag() * LAG_S_MAX
            world.happen("lagging metadata server")
        return LinkPlan(request_s, answer_s, fate, reconnect_s, lag_s)

    def event_s(self, session_id: int, path: str) -> float:
        return self._world.draw() * 0.002


class WatchedStoreServer(MemoryStoreServer):
    """Tells what is written to it."""

    on_data: Callable[[str, bytes], object] = staticmethod(lambda path, data: None)
    on_made: Callable[[str], object] = staticmethod(lambda path: None)

    def change(self, session: Any, operations: Any, *, make_parents: bool = False) -> list[str]:
        paths = super().change(session, operations, make_parents=make_parents)
        for path, operation in zip(paths, operations, strict=True):
            data = getattr(operation, "data", None)
            if data is not None:
                self.on_data(path, data)
            if isinstance(operation, Create):
                self.on_made(path)
        return paths


class BookieHost:
    """One machine with a bookie: its disk outlives the process."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.name = f"b{number}"
        self.bookie_id = f"{self.name}:{PORT}"
        self.disk = SimulatedDisk(world.rng.getrandbits(64))
        self.index = MemoryIndex()
        self.node: Node | None = None
        self.service: BookieNode | None = None
        self.is_wiped = False
        self.is_wanted = True
        """A supervisor starts it again when it is down."""
        self.sync_s = world.plan.sync_s
        """How long a job on its disk takes, on average."""
        self.fences_pending: dict[int, None] = {}
        """Ledgers that it was asked to fence by a recovery that has not ended."""
        self.restart_s: float | None = None
        """When it comes back after the next crash; None: by chance."""
        self.start_count = 0

    @property
    def is_up(self) -> bool:
        return self.service is not None

    @property
    def directory(self) -> str:
        """The root of its disk, as its cookie calls it."""
        return f"/{self.name}"

    def directories(self) -> BookieDirectories | None:
        """Return where it keeps what; None: all on the one disk."""
        return None

    def start(self) -> None:
        """Begin a life, if there is none."""
        if self.node is not None:
            return
        self.start_count += 1
        if self.start_count > 1 and self.fences_pending:
            self.fences_pending.clear()
            self.world.happen("restart in mid-fence")
        node = self.node = self.world.loop.add_node(self.name)
        node.on_crash.append(self._after_crash)
        self.world.say(f"{self.name} starts, life {self.start_count}")
        node.create_task(self._live(node))

    async def _live(self, node: Node) -> None:
        world = self.world
        store = MemoryStore(world.store_server, StoreLink(world, self.name), world.access)
        self.session_of_life = store
        is_rough = world.is_rough  # what went wrong before the faults ended may show afterwards
        try:
            service = await BookieNode.start(
                store,
                self.disk,
                self.index,
                LoopClock(world.loop, round(world.draw() * 1e6)),
                SeededRng(world.rng.getrandbits(64)),
                world.bookie_config(self.name),
                journal_executor=SimulatedExecutor(self._duration_s),  # type: ignore[arg-type]
                storage_executor=SimulatedExecutor(self._storage_duration_s),  # type: ignore[arg-type]
                directory=self.directory,
                directories=self.directories(),
            )
        except SimulatedCrash:
            self.crash(power=True)
            return
        except (BookieError, OSError) as error:
            world.say(f"{self.name} does not start: {type(error).__name__}: {error}")
            if isinstance(error, BookieStartError) and self.is_wiped:
                self.is_wanted = False
                world.happen("wiped bookie refused")
            elif self.is_wiped:
                pass
            elif not is_rough and not isinstance(error, BookieStartError):
                raise
            self.crash(power=False)
            return
        self.service = service
        try:
            await self._serve(service)
        except BookieError as error:
            world.say(f"{self.name} ended: {type(error).__name__}: {error}")
            world.happen("bookie ended by itself")
            self.crash(power=False)

    async def _serve(self, service: BookieNode) -> None:
        """Be at work until the bookie ends by itself; BookieError says why."""
        await service.wait()

    def _duration_s(self) -> float:
        return self.sync_s * (0.2 + 1.6 * self.world.draw())

    def _storage_duration_s(self) -> float:
        return self._duration_s()

    def crash(self, *, power: bool) -> None:
        """End the life, if there is one; without power what was not synced may be gone."""
        self._loses_power = power
        if self.node is not None:
            self.world.loop.crash(self.node)

    def _after_crash(self) -> None:
        world = self.world
        power = getattr(self, "_loses_power", True) or self.disk.crash_at is not None
        self._loses_power = True
        self.node = self.service = None
        seed = world.rng.getrandbits(64)
        self.disk = self.disk.crash(seed, is_power_lost=power)
        choose = (lambda n: world.rng.randint(0, n)) if power else (lambda n: n)
        self.index = self.index.crash(choose)
        world.store_server.disconnect(self.session_of_life.session_id)
        delay_s, self.restart_s = self.restart_s, None
        if delay_s is not None or world.wants_restart(self):
            if delay_s is None:
                delay_s = world.rng.choice((0.005, 0.05, 0.3, 1.5)) * (0.5 + world.draw())
            world.loop.call_later(delay_s, self.start_if_wanted)

    def start_if_wanted(self) -> None:
        if self.is_wanted:
            self.start()

    async def stop(self) -> None:
        """End the life in good order."""
        node, service = self.node, self.service
        self.is_wanted = False
        if node is None or service is None:
            return
        self.service = None

        async def close() -> None:
            await service.close()
            await self.session_of_life.close()

        await self.world.act(node, close())
        if self.node is node:
            self._loses_power = False
            self.world.loop.crash(node)

    def have_room(self) -> None:
        """Let its disk be full no more."""
        self.disk.capacity_bytes = None

    def wipe(self) -> None:
        """Lose the disk, and come back with an empty one."""
        self.is_wiped = True
        self.crash(power=True)
        self.disk = SimulatedDisk(self.world.rng.getrandbits(64))
        self.index = MemoryIndex()


class ClientHost:
    """One process with a client."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.node = world.loop.add_node(name)
        self.store: MemoryStore | None = None
        self.client: LedgerClient | None = None
        self.before_close: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.node.on_crash.append(self._after_crash)

    async def connect(self) -> LedgerClient:
        """Return the client; to be called on its node."""
        world = self.world
        while self.client is None:
            if self.store is None:
                link = StoreLink(world, self.name)
                self.store = MemoryStore(world.store_server, link, world.access)
            try:
                self.client = await LedgerClient.connect(
                    self.store,
                    config=world.client_config,
                    rng=SeededRng(world.rng.getrandbits(64)),
                    clock=LoopClock(world.loop),
                )
            except BookieError as error:
                world.say(f"{self.name}: connect: {type(error).__name__}: {error}")
                await asyncio.sleep(0.05)
        return self.client

    async def close(self) -> None:
        for end in self.before_close:
            await end()
        if self.client is not None:
            await self.client.close()
        if self.store is not None:
            await self.store.close()

    def crash(self) -> None:
        self.world.loop.crash(self.node)

    def _after_crash(self) -> None:
        if self.store is not None:
            self.world.store_server.disconnect(self.store.session_id)


class LogToTrace(logging.Handler):
    """What the product logs becomes a part of the trace."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(f"log: {record.levelname}: {record.getMessage()}")


class Ledger:
    """One ledger of the world: its plan, its history, its clients by name."""

    def __init__(self, world: "World", number: int, plan: LedgerPlan) -> None:
        self.world = world
        self.number = number
        self.plan = plan
        self.history = History(world.say, world.loop.time, world.happen)
        self.jobs: list[asyncio.Future[None]] = []
        """What has to end."""

    def new_client(self, role: str) -> ClientHost:
        return self.world.new_client(f"{role}{self.number}")


class World:
    """See the module. Everything is drawn from `rng`; `close()` it in the end."""

    def __init__(
        self, seed: int, plan: WorldPlan, rng: random.Random, trace: Callable[[str], object] | None
    ) -> None:
        self.plan = plan
        self.rng = rng
        self.draw = rng.random
        self.draw_lag = random.Random(f"lag {seed}").random
        """Apart from `rng`, so that a seed keeps what else it draws."""
        self.loop_sync_us = random.Random(f"loop sync {seed}").choice((0, 1_000))
        self.loop = SimulatedLoop(seed)
        self.loop.trace = trace
        self.happened: dict[str, int] = {}
        self.ledgers = [Ledger(self, number, ledger) for number, ledger in enumerate(plan.ledgers)]
        self.ledgers_by_id: dict[int, Ledger] = {}
        self.ledgers_by_path: dict[str, Ledger] = {}
        self.store_server = WatchedStoreServer(
            LoopClock(self.loop), session_timeout_s=SESSION_TIMEOUT_S
        )
        self.store_server.on_data = self._stored
        self.access = StoreAccess()
        """Of all sessions with the metadata store that are the cluster's own."""
        self.is_rough = True
        """Faults may happen still."""
        self.wire = Wire(
            self._call_later, self._on_message, self.say if trace is not None else None
        )
        self.loop.network.on_write = self._heard
        self.loop.network.silent_death_chance = rng.choice((0.0, 0.1, 0.5))
        self.loop.network.split_chance = rng.choice((0.0, 0.02, 0.2))
        self.client_config = ClientConfig(
            add_timeout_s=plan.timeout_s,
            read_timeout_s=plan.timeout_s,
            connect_timeout_s=0.3,
            speculative_read_s=plan.speculative_read_s,
            is_ensemble_change_delayed=plan.is_change_delayed,
            explicit_lac_interval_s=0.01 if plan.explicit_lac else 0.0,
            recovery_read_ahead=plan.recovery_read_ahead,
        )
        self._log = logging.getLogger("bookie")
        self._log_handler = LogToTrace(self.say)
        self._log.addHandler(self._log_handler)
        self._log.propagate = False
        if trace is not None:
            self._log.setLevel(logging.INFO)
        self.hosts = [self.make_host(number) for number in range(plan.bookie_count)]
        self.clients: list[ClientHost] = []
        self._by_name = {host.name: host for host in self.hosts}

    def make_host(self, number: int) -> BookieHost:
        return BookieHost(self, number)

    def say(self, text: str) -> None:
        self.loop.say(text)

    def on_lost_write(self, owner: str, path: str) -> None:
        """A write to the metadata store, or its answer, is lost."""
        if path in self.ledgers_by_path:
            self.happen("lost metadata answer")

    def happen(self, what: str) -> None:
        """Count something that is worth a line in the table."""
        self.happened[what] = self.happened.get(what, 0) + 1

    def created(self, ledger: Ledger, ledger_id: int, path: str) -> None:
        """A ledger has its id; from here on all that is heard of it goes into its history."""
        ledger.history.ledger_id = ledger_id
        self.ledgers_by_id[ledger_id] = ledger
        self.ledgers_by_path[path] = ledger
        ledger.history.stored(self.store_server.tree.read(path)[0])

    def _stored(self, path: str, data: bytes) -> None:
        ledger = self.ledgers_by_path.get(path)
        if ledger is not None:
            ledger.history.stored(data)

    def _call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Call back as the world, not as the node that runs now and may soon be dead."""
        self.loop.world.run(self.loop.call_later, delay_s, callback)

    def bookie_config(self, name: str) -> BookieConfig:
        """Everything small, so that files end and timers ring within a seed."""
        return BookieConfig(
            host=name,
            port=PORT,
            advertised_address=name,
            journal_bytes_max=1 << 20,
            journal_preallocation_bytes=16 * 1024,
            journal_loop_sync_us=self.loop_sync_us,
            flush_interval_s=0.2,
            gc_interval_s=5.0,
            disk_check_interval_s=0.1,
            close_timeout_s=0.2,
            registration_timeout_s=3.0,
        )

    def store_trouble(self, owner: str, path: str, *, is_write: bool) -> float:
        """Return how likely a request to the metadata store goes wrong now."""
        if not self.is_rough:
            return 0.0
        trouble = self.plan.store_trouble
        return min(0.4, trouble * 4) if is_write and path in self.ledgers_by_path else trouble

    def wants_restart(self, host: BookieHost) -> bool:
        """Whether a crashed bookie comes back by itself before the faults end."""
        return host.is_wanted and (not self.is_rough or self.draw() < 0.8)

    def host(self, name: str) -> BookieHost:
        return self._by_name[name]

    def new_client(self, name: str) -> ClientHost:
        client = ClientHost(self, name)
        self.clients.append(client)
        for host in self.hosts:
            for way in ((name, host.name), (host.name, name)):
                if self.draw() < self.plan.slow_link_share and self.is_rough:
                    link = self.loop.network.link(*way)
                    link.delay_s = self.rng.choice((0.001, 0.005, 0.02, 0.08)) * self.draw()
                    link.jitter_s = link.delay_s * self.draw()
        return client

    def act(self, node: Node, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Future[T | None]":
        """Run a coroutine on a node; the future is done when it is, None if the node crashes."""
        done: asyncio.Future[T | None] = self.loop.create_future()
        task = node.create_task(coroutine)

        def finish(task: "asyncio.Task[T]") -> None:
            if done.done():
                if not task.cancelled():
                    task.exception()
            elif task.cancelled():
                done.set_result(None)
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(task.result())

        def crashed() -> None:
            if not done.done():
                done.set_result(None)

        task.add_done_callback(finish, context=self.loop.world.context)
        node.on_crash.append(crashed)
        if not node.is_alive:
            crashed()
        return done

    async def format(self) -> None:
        """Make the cluster in the metadata store."""
        store = MemoryStore(self.store_server, access=self.access)
        await initialize(store, ROOT, rng=SeededRng(self.rng.getrandbits(64)))
        await store.close()

    async def wait_until(
        self, is_true: Callable[[], bool], limit_s: float, what: str, checker: str = "liveness"
    ) -> None:
        """Wait for something of the world; a checker's finding if it does not come."""
        deadline = self.loop.time() + limit_s
        while not is_true():
            if self.loop.time() > deadline:
                self.loop.check_tasks()  # a task that died says more
                raise CheckError(checker, f"{what}: not within {limit_s} s")
            await asyncio.sleep(0.005)

    def calm(self) -> None:
        """End all faults; every bookie that has its disk comes up."""
        if not self.is_rough:
            return
        self.is_rough = False
        self.wire.triggers.clear()
        self.loop.network.open_all()
        self.say("--- the faults end")
        for host in self.hosts:
            host.sync_s = self.plan.sync_s
            host.disk.heal()
            host.have_room()
            host.disk.crash_at = None
            host.start_if_wanted()
        for session_id in self.store_server.session_ids:
            self.store_server.thaw(session_id)

    def close(self) -> None:
        self._log.removeHandler(self._log_handler)
        self._log.propagate = True
        self._log.setLevel(logging.NOTSET)
        self.loop.close()

    def _heard(self, transport: Any, data: bytes) -> None:
        self.wire.heard(transport, data)
        self.repeat_at_times(transport, data)

    def repeat_at_times(self, transport: Any, data: bytes) -> None:
        """Have some of what clients send come a second time, later."""
        share = self.plan.repeat_share
        if share and self.is_rough and not transport.is_accepted and self.draw() < share:
            delay_s = self.rng.choice((0.0, 0.001, 0.01, 0.1)) * self.draw()
            self.happen("request repeated")
            self.loop.world.run(
                self.loop.call_later, delay_s, self.loop.network.repeat, transport, data
            )

    def _on_message(self, message: Message) -> None:
        ledger = self.ledgers_by_id.get(message.ledger_id)
        if ledger is None:
            return
        if message.kind in ("add reply", "recovery add reply"):
            if message.status is Status.OK:
                bookie_id = self.host(message.bookie).bookie_id
                ledger.history.taken(bookie_id, message.ledger_id, message.entry_id)
        elif message.kind == "fence":
            self.host(message.bookie).fences_pending[message.ledger_id] = None
