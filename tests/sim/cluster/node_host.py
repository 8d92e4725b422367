"""NodeHost: a machine's copy of one tablespace: its disk, its member, its server.

All are the product's code: a database over a log of ledgers, its threads as greenlets, a server on
the loop, behind the port that it shares with those of other tablespaces of the machine.
"""

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from errno import EIO
from functools import partial
from typing import TYPE_CHECKING, Any

from bookie.client.client import LedgerClient
from bookie.errors import BookieError
from bookie.metadata.interfaces import SessionState
from herdpy.aio.switching import can_wait, wait_for
from herdpy.cluster.blocking_chain import BlockingChain
from herdpy.cluster.chain import LedgerChain
from herdpy.cluster.database_copy import DatabaseCopy
from herdpy.cluster.listing import LedgerListing
from herdpy.cluster.member import Member
from herdpy.cluster.part import State, Waits
from herdpy.cluster.registration import Registration
from herdpy.cluster.served_part import ServedPart
from herdpy.cluster.tablespace_nodes import HandedOver, TablespaceNodes, Versioned
from herdpy.cluster.tail import Run
from herdpy.cluster.tenure import Tenure
from herdpy.cluster.upkeep import Limits
from herdpy.engine.instance import Instance
from herdpy.engine.maintenance.file_logs import LogSource
from herdpy.engine.resources import Tenant
from herdpy.engine.state.tablespace import Tablespace
from herdpy.errors import CorruptionError, Error, OperationalError
from herdpy.log.ledger_log import LedgerLog, OnAdded
from herdpy.model.lsn import Lsn
from herdpy.server.server import Server
from tests.sim.cluster.checkers import CheckError, check_copy_closed, check_memory
from tests.sim.cluster.machine import AGAIN_S, INACTIVITY_LIMIT_S, Machine, NodeLoop
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.sim.ledger.world import PASSWORD, SESSION_TIMEOUT_S
from tests.sim.loop import Node
from tests.sim.server.world import PORT, new_plans_of, raise_of, server_config
from tests.sim.switching import SwitchingDriver, in_thread

if TYPE_CHECKING:
    from tests.sim.cluster.space import Space

STEPS = ("named", "claimed", "replayed", "leading", "alone", "serving")
"""Of a take-over, told when they are done."""
HAND_OVER_STEPS = ("draining", "drained", "closed", "left", "told")
"""Of a hand-over: told where the first begins, and when each is done."""
_ONE_BY_ONE_S = 1e-6
_SLOW_OPS = ("write", "sync", "sync_directory")


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

    def close(self) -> None:
        database = self.database
        super().close()
        if database is not None:
            self._host.checked(partial(check_copy_closed, database))

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
        self._at_s = 0.0

    def replay(self, after: Lsn) -> Any:
        yield from super().replay(after)
        self._host.step("replayed")

    def end(self) -> int:
        last = super().end()
        self._host.ended(last)
        return last

    def send(self, payload: bytes, on_added: OnAdded) -> None:
        """Send an entry, when the log hangs no more that it is of."""
        host, loop = self._host, self._host.world.loop
        at_s = max(host.log_hangs_until_s, self._at_s)
        if loop.time() >= at_s:
            super().send(payload, on_added)
            return
        self._at_s = at_s + _ONE_BY_ONE_S  # in their order
        if at_s < math.inf:
            loop.call_at(at_s, super().send, payload, on_added)


class NodeHost:
    """See the module. Its disk outlives the process."""

    def __init__(self, machine: Machine, space: "Space") -> None:
        self.machine = machine
        self.space = space
        self.world = machine.world
        self.disk = SimulatedDisk(self.world.rng.getrandbits(64))
        self.copy: SteppedCopy | None = None
        self.member: Member | None = None
        self.server: Server | None = None
        self.tenure: Tenure | None = None
        self.part: ServedPart | None = None
        self.tenant: Tenant | None = None
        """What it has of its machine's memory, in this life."""
        self.crash_after: str | None = None
        """The step of a take-over behind which its process is killed, once."""
        self.pause_after: str | None = None
        """The step behind which it stands still for a while, once."""
        self.log_hangs_until_s = 0.0
        """Until then nothing that it appends leaves, though all else of it lives."""
        self.at_step: Callable[[], object] | None = None
        """Called behind the next step of a take-over."""
        self._was: State | None = None
        """What it was for the tablespace before the last change."""
        self._rng = self.world.new_rng()
        self._latency = self.world.new_rng()

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def node(self) -> Node | None:
        return self.machine.node

    @property
    def store(self) -> Any:
        return self.machine.store

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

    async def live(self, node: Node, client: LedgerClient, registration: Registration) -> None:
        """Begin its part in a life of the machine."""
        plan = self.world.plan
        self.copy = copy = SteppedCopy(
            self,
            self._new_instance,
            partial(self._new_chain, client),
            SwitchingDriver(node),
            ledger_bytes_max=plan.ledger_bytes_max,
        )
        nodes = SteppedNodes(self)
        while self.member is None:
            member = Member(
                self.space.name,
                self.name,
                copy,
                self,
                client=client,
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
                inactivity_limit_s=INACTIVITY_LIMIT_S,
                on_state=self._on_state,
            )
            try:
                await member.start()
                self.member = member
            except BookieError:
                await member.close()
                await asyncio.sleep(AGAIN_S)

    def _new_chain(self, client: LedgerClient) -> SteppedChain:
        node, space = self.node, self.space
        assert node is not None
        listing = LedgerListing(self.store, TablespaceNodes(self.store).ledgers_path(space.id))
        chain = LedgerChain(client, listing, tablespace=space.id.encode(), password=PASSWORD)
        return SteppedChain(self, NodeLoop(node), chain)

    def _new_instance(self, logs: LogSource) -> Instance:
        node = self.node
        assert node is not None
        instance = Instance(
            disk=self.disk,
            clock=self.machine.clock,
            rng=random.Random(self._rng.getrandbits(64)),
            driver=SwitchingDriver(node),
            config=self.machine.database_config,
            where=f"the disk of {self.name}",
            logs=logs,
            new_plans=new_plans_of(lambda: instance),
            tenant=self.tenant,
        )
        return instance

    def _on_state(self, state: State) -> None:
        world, was, self._was = self.world, self._was, state
        world.say(f"{self.name} {self.space.name}: {state.value}")
        is_forced = self.member is not None and self.member.machine.is_forced
        if state is State.TAKING_OVER and is_forced:
            world.happen("a take-over from a silent leader")
        reason = None if self.member is None else self.member.machine.reason
        if isinstance(reason, CorruptionError):
            error = CheckError("chain", f"{self.name} finds a damaged log: {reason}")
            world.call_later(0.0, _raise, error)
        if was is State.LEADING and state is State.RESIGNING:
            if self.store.state is not SessionState.CONNECTED:
                world.happen("a leader that ends by itself, without a session")
            else:
                world.happen("a leader whose log or tenure was taken")

    # --- the service of its member ---------------------------------------------------------------

    async def begin(self, part: ServedPart) -> None:
        """Let clients in, to read."""
        assert self.copy is not None
        assert self.copy.database is not None
        self.part = part
        server = self.server = Server(
            self.copy.database,
            name=self.name,
            config=server_config(self.world.plan),
            part=part,
            tablespace=self.space.name,
            port=self.machine.port,
        )
        await server.start(self.name, PORT)

    async def serve(self, tenure: Tenure) -> None:
        """Let them in to a leader."""
        self.step("alone")
        self.tenure = tenure
        self.space.led_by(self)
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
            self.space.note_position(self)
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
        self.checked(lambda: check_memory(self.tablespace))

    def checked(self, check: Callable[[], object]) -> None:
        """Have what a check has found end the life, wherever it was made."""
        try:
            check()
        except CheckError as error:
            self.world.call_later(0.0, _raise, error)

    def ended(self, last: int) -> None:
        """A ledger that it wrote ends with an entry; what is behind was never told."""
        database = None if self.copy is None else self.copy.database
        tenure = self.tenure
        if database is None or tenure is None or not tenure.holds():
            return
        log = database.tablespace.log
        if isinstance(log, LedgerLog) and any(each.entry_id > last for each in log._in_flight):
            self.world.happen("entries that a ledger leaves out, in a tenure")

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
        world.say(f"{self.name} {self.space.name}: {name}")
        if self.at_step is not None:
            at_step, self.at_step = self.at_step, None
            world.loop.world.run(at_step)
        if self.pause_after == name and node is not None:
            self.pause_after = None
            world.happen("pause in a take-over" if name in STEPS else "pause in a hand-over")
            world.call_later(0.0, world.pause, self.machine, 0.2 + 2 * self._rng.random())
        if self.crash_after == name:
            self.crash_after = None
            world.happen(f"crash behind step {name}")
            self.machine.crash(power=True)
            if can_wait():
                raise SimulatedCrash(f"behind step {name}")

    def wait_for_disk(self, op: str, path: str) -> None:
        """Take the time that a step of its disk takes, in a thread."""
        if op in _SLOW_OPS and can_wait() and self.world.plan.sync_s:
            slowness = self.machine.slowness
            wait_for(asyncio.sleep(self._latency.random() * self.world.plan.sync_s * slowness))

    # --- ends ------------------------------------------------------------------------------------

    def have_room(self) -> None:
        self.disk.capacity_bytes = None

    def heal(self) -> None:
        """Let its disk be well, and have it do what is under way."""
        self.disk.heal()
        self.have_room()
        self.disk.crash_at = None
        self.crash_after = self.pause_after = None

    def crashed(self, *, is_power_lost: bool) -> None:
        """Take note that the machine's process has ended."""
        world = self.world
        if self.leads:
            world.happen("crash of the leader")
        elif self.is_ready:
            world.happen("crash of a follower")
        self.space.note_position(self)
        self.copy = self.member = self.server = self._was = None
        self.log_hangs_until_s = 0.0
        self.disk = self.disk.restart(world.rng.getrandbits(64), is_power_lost=is_power_lost)

    def lose_disk(self) -> None:
        self.disk = SimulatedDisk(self.world.rng.getrandbits(64))

    def want(self) -> None:
        """Have it lead as soon as it can."""
        if self.node is not None and self.member is not None:
            self.node.run(self.world.loop.call_soon, self.member.want)


def _raise(error: CheckError) -> None:
    raise error
