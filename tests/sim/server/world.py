"""World: a server on a simulated disk, its clients, and the network between them.

The server is the product's: Database over the file log, with its threads as greenlets, Server on
the loop, executors as seeded events. Clients are the product's driver. What is replaced: disk,
clock, chance, sockets, threads.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from herdpy.aio.switching import can_wait, wait_for
from herdpy.config import Config, ServerConfig
from herdpy.driver.interfaces import Locators
from herdpy.engine.database import Database
from herdpy.engine.instance import Instance
from herdpy.errors import Error, InvariantViolation
from herdpy.model.lsn import Lsn
from herdpy.server.server import Server
from herdpy.storage.tablespace_list import DEFAULT
from tests.fixtures.digest import state_digest
from tests.fixtures.shared_plans import SharedPlans
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.sim.loop import Node, SimulatedLoop
from tests.sim.server.checkers import CheckError, History
from tests.sim.server.plan import WorldPlan
from tests.sim.switching import (
    LinePreemption,
    LoopClock,
    Mutexes,
    SwitchingDriver,
    SwitchingExecutor,
    in_thread,
)

HOST = "db.localhost"
PORT = 7000
_SMALL_DISK_BYTES = 1_200_000
_AGAIN_S = 0.05
_KEEP_ALIVE_S = 5.0
_SLOW_OPS = ("write", "sync", "sync_directory")


def new_plans_of(instance: Callable[[], Instance]) -> Callable[[object], Any]:
    """Return what makes the plan caches of an instance: their plans are those of all worlds."""

    def new_plans(_: object) -> Any:
        plans = SharedPlans(has_latest=True)

        def catalog() -> Any:
            databases = instance().tablespaces.databases()
            owner = next(each for each in databases if each.plans is plans)
            return owner.tablespace.state.catalog

        plans.catalog = catalog
        return plans

    return new_plans


def server_config(plan: WorldPlan) -> ServerConfig:
    """Return the settings of a simulated server."""
    return ServerConfig(
        workers=plan.worker_count,
        connections_max=plan.connections_max,
        superuser_reserved_connections=0,  # a full server has three places, for who comes
        spin_us=0,
        loop_sync_us=plan.loop_sync_us,
    )


Told = tuple[int, Lsn | None]
"""The newest position that a client knows: of which life of the server, and where."""


class World:
    """Everything of one seed."""

    def __init__(
        self, seed: int, plan: WorldPlan, rng: random.Random, say: Callable[[str], object] | None
    ) -> None:
        self.seed = seed
        self.plan = plan
        self.rng = rng
        self.loop = SimulatedLoop(rng.getrandbits(64))
        self.loop.trace = say
        self.loop.network.delay_s = plan.link_delay_s
        self.mutexes = Mutexes(self.loop, random.Random(rng.getrandbits(64)), plan.preemption)
        self.history = History()
        self.happened: Counter[str] = Counter()
        self.is_rough = True
        self.host = ServerHost(self)
        self.lines = LinePreemption(
            self.loop, random.Random(f"lines {seed}"), plan.line_share, plan.line_modules
        )
        self._placed = ExitStack()
        self._placed.enter_context(self.mutexes.placed())
        self._placed.enter_context(self.lines.placed())
        self.loop.world.run(self._probe)

    def _probe(self) -> None:
        self.loop.network.probe()
        self.loop.call_later(_KEEP_ALIVE_S, self._probe)

    def happen(self, name: str) -> None:
        """Count something that is worth a line in the table."""
        self.happened[name] += 1
        if self.loop.trace is not None:
            self.loop.say(f"*** {name}")

    def say(self, text: str) -> None:
        if self.loop.trace is not None:
            self.loop.say(text)

    def has_more(self, index: int) -> bool:
        """Return whether a client that has begun so many transactions is to begin another one."""
        return index < self.plan.transaction_count

    def acknowledge(self) -> None:
        """Take note of a transaction that was acknowledged: here they are as many as they are."""

    @property
    def makes_tablespace(self) -> bool:
        """The first client is to make the tablespace."""
        return self.plan.tablespace != DEFAULT

    def admit(self) -> None:
        """Let a client begin something: at once, here."""

    def places(self, number: int) -> str:
        """Return how the URL of a client begins."""
        return f"herd://{HOST}:{PORT}"

    def new_locators(self, node: Node) -> Locators | None:
        """Return what a client finds leaders with; None: it knows its server."""
        return None

    def new_rng(self) -> random.Random:
        """Return chance of its own, so that draws of one part do not change the others'."""
        return random.Random(self.rng.getrandbits(64))

    def calm(self) -> None:
        """End all faults."""
        if not self.is_rough:
            return
        self.is_rough = False
        self.say("calm")
        self.loop.network.open_all()
        self.loop.network.silent_death_chance = 0.0
        self.host.heal()

    def close(self) -> None:
        self.loop.close()
        self._placed.close()


class Telling:
    """What clients were told of how far the log is, by one life of their server after the other."""

    def __init__(self) -> None:
        self.life_count = 0
        self.told: Told = (0, None)
        self.heard: Lsn | None = None
        """The newest position that any client was told, in any life."""

    def begin_life(self) -> None:
        self.life_count += 1
        self.told = self.life_count, None

    def tell(self, lsn: Lsn, before: Told) -> None:
        """A client was told where the log is behind its COMMIT; `before`: told when it began."""
        if self.told[0] == before[0] and before[1] is not None and lsn <= before[1]:
            raise CheckError("position", f"a COMMIT is at {lsn}, {before[1]} was told before")
        self.hear(lsn)

    def hear(self, lsn: Lsn) -> None:
        """A client was told how far the log is, its own rows among what is there."""
        if self.heard is None or self.heard < lsn:
            self.heard = lsn
        life, last = self.told
        if life == self.life_count and (last is None or last < lsn):
            self.told = life, lsn


class ServerHost(Telling):
    """The machine of the server: its disk, and one life of the process after the other."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        plan = world.plan
        self.disk = SimulatedDisk(
            world.rng.getrandbits(64),
            capacity_bytes=_SMALL_DISK_BYTES if plan.is_small_disk else None,
        )
        self.clock = LoopClock(world.loop)
        self.slowness = 1.0
        self.node: Node | None = None
        self.database: Database | None = None
        self.server: Server | None = None
        self._rng = world.new_rng()
        self._latency = world.new_rng()

    @property
    def is_up(self) -> bool:
        return self.node is not None and self.node.is_alive and self.server is not None

    def start(self) -> None:
        """Begin a life; where it fails to, it is tried again soon."""
        self.begin_life()
        self.server = self.database = None
        self.node = node = self.world.loop.add_node(HOST)
        node.on_crash.append(self._crashed)
        self.disk.latency = self._wait_for_disk
        self.disk.on_end = self.fail_power
        node.create_task(self._live(node)).add_done_callback(raise_of)

    async def _live(self, node: Node) -> None:
        world = self.world
        while True:
            try:
                database = await in_thread(node, self._open)
                break
            except Error as error:
                if not world.is_rough and not self.disk_is_failing:
                    raise CheckError("liveness", f"the database does not open: {error}") from error
                world.happen("a start that failed")
                await asyncio.sleep(_AGAIN_S)
        config = server_config(world.plan)
        await in_thread(node, partial(self._check_digest, database))
        server = Server(database, name="simulated", config=config, executor=self._new_executor)
        await server.start(HOST, PORT)
        self.database, self.server = database, server
        self._check_position()
        world.say("the server is up")
        while self.server is server:
            if self._is_over(database):
                world.happen("restart of a database that stopped")
                world.loop.call_soon(self.kill)
                return
            await asyncio.sleep(_AGAIN_S)

    @property
    def served(self) -> Database | None:
        """The tablespace that the clients use; None: there is none now."""
        if self.database is None:
            return None
        states = self.database.instance.tablespaces.states()
        name = self.world.plan.tablespace
        return next((each.database for each in states if each.entry.name == name), None)

    def _is_over(self, database: Database) -> bool:
        """Return whether an operator has to start it again."""
        is_stopped = any(
            each.tablespace.failure is not None
            or each.tablespace.is_held
            or each.replica.manifest.failure is not None
            for each in database.instance.tablespaces.databases()
        )
        return is_stopped and not self._is_reopening

    def _new_executor(self, _: str, worker_count: int) -> Any:
        assert self.node is not None
        return SwitchingExecutor(self.node, self._rng, worker_count, self.world.plan.worker_pause_s)

    def _open(self) -> Database:
        plan, node = self.world.plan, self.node
        assert node is not None
        instance = Instance(
            disk=self.disk,
            clock=self.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            driver=SwitchingDriver(node),
            config=Config(
                log_file_bytes_first=plan.log_file_bytes,
                log_file_bytes_max=plan.log_file_bytes,
                checkpoint_log_bytes=plan.checkpoint_log_bytes,
                transaction_memory_bytes=plan.transaction_memory_bytes,
                disk_reserve_bytes=48 * 1024 if plan.is_small_disk else 0,
            ),
            where="the simulated disk",
            new_plans=new_plans_of(lambda: instance),
        )
        return instance.start()

    _digest: str | None = None

    def _check_digest(self, database: Database) -> None:
        """Compare the state after a start with that before the stop. In a thread of this node."""
        if self._digest is not None:
            served = database.instance.tablespaces.database(self.world.plan.tablespace)
            if state_digest(served.tablespace, has_position=False) != self._digest:
                raise CheckError("digest", "the state after a restart is not the one before it")
        self._digest = None

    _position = None

    def _check_position(self) -> None:
        """Compare the position after a start with that of all lives before."""
        name, database = self.world.plan.tablespace, self.database
        known = [each for each in (self._position, self.heard) if each is not None]
        if not known or database is None:
            return
        if not database.instance.tablespaces.has(name):
            raise CheckError("durability", f"tablespace {name} is gone")
        served = self.served
        if served is None:
            self.world.happen("a tablespace that does not open")
        elif (lsn := served.tablespace.state.lsn) < max(known):
            raise CheckError("position", f"opened at {lsn}, was at {max(known)} before")

    def note_position(self) -> None:
        """Remember how far the log is durable."""
        if (served := self.served) is not None:
            self._position = served.tablespace.durable_lsn

    def _wait_for_disk(self, op: str, path: str) -> None:
        if op in _SLOW_OPS and can_wait() and self.world.plan.sync_s:
            wait_for(asyncio.sleep(self._latency.random() * self.world.plan.sync_s * self.slowness))

    # --- faults ----------------------------------------------------------------------------------

    @property
    def disk_is_failing(self) -> bool:
        return bool(self.disk._faults)

    def heal(self) -> None:
        self.slowness = 1.0
        self.disk.heal()
        self.disk.capacity_bytes = None
        self.disk.crash_at = None

    def fail_power(self) -> None:
        """End this life; what was not synced may be lost, in parts."""
        if self.node is not None and self.node.is_alive:
            self.world.loop.crash(self.node)

    def kill(self) -> None:
        """End this life of the process; the system has all that was written."""
        if self.node is not None and self.node.is_alive:
            self._is_power_lost = False
            self.world.loop.crash(self.node)
            self._is_power_lost = True

    _is_power_lost = True

    def _crashed(self) -> None:
        """Be started again soon, with what the disk has kept."""
        world = self.world
        self.note_position()
        self._is_reopening = False  # or it died with the node
        self.server = self.database = None
        capacity = self.disk.capacity_bytes
        self.disk = self.disk.restart(world.rng.getrandbits(64), is_power_lost=self._is_power_lost)
        self.disk.capacity_bytes = capacity
        world.happen("power failure" if self._is_power_lost else "kill -9")
        world.loop.call_later(world.rng.choice((0.001, 0.02, 0.2)), self.start)

    def reopen(self) -> None:
        """Hold the log and open it anew. In a thread of this node."""
        database = self.served
        if database is None or self._is_reopening:
            return
        self._is_reopening = True
        was_rough = self.world.is_rough
        before = database.tablespace.state.lsn
        try:
            database.reopen()
            self.world.happen("log opened anew")
            if (now := database.tablespace.state.lsn) < before:
                raise CheckError("position", f"opened anew at {now}, was at {before} before")
        except InvariantViolation as error:
            raise CheckError("position", f"reopen: {error}") from error
        except Error as error:
            if not was_rough and not self.disk_is_failing:
                raise CheckError("errors", f"reopen: {error}") from error
            self.world.happen("log not opened anew")
            self.world.say(f"reopen: {error.sqlstate} {error.message}")
        finally:
            self._is_reopening = False

    _is_reopening = False

    # --- the end ---------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Close as an operator would, who first sees that all is well; note the state's digest."""
        while (  # noqa: ASYNC110 - several things are waited for
            (database := self.database) is None or self._is_reopening or self._is_over(database)
        ):
            await asyncio.sleep(_AGAIN_S)
        node, server, served = self.node, self.server, self.served
        assert node is not None
        assert server is not None
        assert served is not None
        self.server = self.database = None  # so that _live() looks after it no more

        async def end() -> None:
            await server.drain(1.0)
            await server.close()
            # As the housekeeper would, of transactions that a failing disk left open.
            await in_thread(node, served.tablespace.retry_rollbacks)
            self._digest = await in_thread(
                node, partial(state_digest, served.tablespace, has_position=False)
            )
            await in_thread(node, database.close)

        await node.create_task(end())


def raise_of(task: "asyncio.Task[None]") -> None:
    """Fail the run with what a task raised that is not awaited."""
    if not task.cancelled() and not isinstance(task.exception(), SimulatedCrash):
        task.result()
