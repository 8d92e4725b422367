"""Faults: what goes wrong in a seed, and when. All end with World.calm().

A seed draws two themes, so that faults that belong together meet, and takes some of its faults from
all of them.
"""

import math
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from herdpy.driver.connection import Connection
from herdpy.errors import Error, InterfaceError
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.node_host import HAND_OVER_STEPS, STEPS, NodeHost
from tests.sim.cluster.space import Space
from tests.sim.cluster.world import World
from tests.sim.ledger.world import SESSION_TIMEOUT_S
from tests.sim.server.clients import Awaiting, Client
from tests.sim.server.world import raise_of
from tests.sim.switching import in_thread

Theme = list[Callable[[], None]]
_GAPS_S = (0.03, 0.1, 0.3)
_TRIES = 20
"""For a fault that can happen: most need a leader, or a node that follows."""
_ANY_SHARES = (0.15, 0.3, 0.6)
"""Of the faults: they are of any theme."""
_REST_S = 0.4
_STEP_WEIGHTS = (3, 3, 3, 2, 2, 2)
"""Of the steps of a take-over: behind the first ones another node is often further already."""
_HAND_OVER_WEIGHTS = (2, 2, 2, 3, 3)
"""Of the steps of a hand-over: the last ones come late, if nothing else has come before."""
_PATIENT_S = (0.5, 1.5)
_BEGIN_SHARE = 0.3
"""Of the seeds: their first fault is in a hand-over, whose steps few come to later on."""
_ROLL_S = 0.012
"""Of which the most take less, where nothing is slow."""
_WITHOUT_BOOKIES_S = (0.6, 1.2)
"""Longer than adds may take, each at another bookie."""
_LONG_GAP_S = 0.5
_SLOW_S = 0.3
_MAINTENANCE, _MAINTAINED_S = 150, 0.01


class Faults:
    """Draws the faults of a seed and lets them happen."""

    def __init__(self, world: World, clients: list[Client]) -> None:
        self.world = world
        self.clients = clients
        self.rng = rng = world.new_rng()
        self._cancels = random.Random(f"cancels {world.seed}")
        self.space = world.spaces[0]
        """Of which the next fault is, where it is of one."""
        self.everything: Theme = [
            self.crash_leader,
            self.crash_follower,
            self.crash_leader_at_step,
            self.crash_in_take_over,
            self.crash_in_take_over,
            self.pause_in_take_over,
            self.crash_in_roll,
            self.roll_in_take_over,
            self.depose,
            self.isolate_leader,
            self.wipe,
            self.crash_bookie,
            self.crash_both,
            self.block_bookie,
            self.leave_bookies,
            self.cut_bookie,
            self.slow_bookie,
            self.full_bookie,
            self.slow_link,
            self.slow_disk,
            self.full_disk,
            self.jump_clock,
            self.pause_leader,
            self.roll,
            self.checkpoint,
            self.cut_client,
            self.lag,
            self.hang_leader,
            self.pause_follower,
            self.isolate_follower,
            self.delay_follower,
            self.hand_over,
            self.crash_in_hand_over,
            self.pause_in_hand_over,
            self.silence_leader,
            self.outrun_leader,
            self.lose_listing,
        ]
        themes = rng.choices(
            (self._take_overs(), self._hand_overs(), self._others()), (0.35, 0.45, 0.2)
        )[0]
        if world.plan.is_long:
            themes = self._long_ones()
        self.kinds = [kind for theme in rng.sample(themes, 2) for kind in theme]
        self._any_share = rng.choice(_ANY_SHARES)
        self._gap_s = _LONG_GAP_S if world.plan.is_long else rng.choice(_GAPS_S)
        self._rest_s = 0.0
        """Before the next fault, so that what was begun comes to where it is to fail."""
        self._left = world.plan.fault_count
        begins_so = rng.random() < _BEGIN_SHARE
        self._first = self.crash_in_hand_over if begins_so else None
        """What happens before all others."""

    def _take_overs(self) -> list[Theme]:
        return [
            [self.crash_leader, self.crash_in_take_over, self.crash_in_roll, self.crash_in_roll],
            [self.pause_in_take_over, self.crash_in_take_over],
            [self.pause_in_take_over, self.crash_in_roll, self.roll],
            [self.crash_in_take_over, self.crash_in_take_over, self.checkpoint],
            [self.lose_listing, self.crash_in_take_over],
            [self.crash_in_take_over, self.depose],
            [self.crash_in_take_over],
            [self.depose, self.roll, self.roll_in_take_over],
            [self.roll_in_take_over, self.lose_listing],
            [self.depose, self.pause_leader, self.pause_leader],
            [self.isolate_leader, self.outrun_leader, self.pause_leader],
            [self.hang_leader, self.hang_leader, self.cut_client],
            [self.hang_leader, self.crash_follower],
            [self.leave_bookies, self.leave_bookies, self.outrun_leader],
            [self.leave_bookies, self.crash_leader_at_step],
            [self.leave_bookies, self.leave_bookies, self.silence_leader],
            [self.silence_leader, self.crash_follower],
            [self.silence_leader, self.slow_bookie],
            [self.isolate_leader, self.isolate_leader, self.pause_in_take_over],
            [self.pause_in_take_over, self.pause_leader, self.wipe],
            [self.depose, self.block_bookie, self.crash_in_take_over],
            [self.lag, self.crash_leader, self.crash_in_take_over],
        ]

    def _hand_overs(self) -> list[Theme]:
        return [
            [self.hand_over],
            [self.hand_over, self.hand_over, self.roll, self.checkpoint],
            [self.hand_over, self.cut_client, self.lag],
            [self.crash_in_hand_over],
            [self.crash_in_hand_over],
            [self.crash_in_hand_over, self.cut_client],
            [self.crash_in_hand_over, self.crash_in_hand_over, self.roll],
            [self.hand_over, self.crash_in_hand_over, self.crash_in_hand_over],
            [self.crash_in_hand_over, self.pause_in_hand_over],
            [self.pause_in_hand_over],
            [self.hand_over, self.crash_in_take_over, self.depose],
            [self.pause_in_hand_over, self.isolate_leader, self.crash_bookie],
        ]

    def _others(self) -> list[Theme]:
        return [
            [self.crash_bookie, self.roll, self.crash_follower],
            [self.crash_follower, self.checkpoint, self.depose],
            [self.crash_bookie, self.crash_leader],
            [self.crash_both, self.crash_in_roll, self.crash_in_roll],
            [self.leave_bookies, self.crash_bookie, self.depose],
            [self.block_bookie, self.slow_link, self.slow_bookie],
            [self.leave_bookies, self.cut_bookie, self.depose],
            [self.slow_bookie, self.crash_leader, self.checkpoint],
            [self.full_bookie, self.roll, self.crash_in_take_over],
            [self.full_disk, self.slow_disk, self.checkpoint, self.depose],
            [self.slow_disk, self.crash_leader_at_step],
            [self.checkpoint, self.wipe, self.crash_leader_at_step],
            [self.lag, self.roll, self.depose],
            [self.cut_client, self.depose, self.crash_leader, self.jump_clock],
        ]

    def _long_ones(self) -> list[Theme]:
        return [
            [self.isolate_leader],
            [self.isolate_leader, self.lag, self.pause_leader],
            [self.hang_leader],
            [self.pause_leader, self.cut_client],
            [self.hand_over, self.pause_leader, self.hang_leader],
            [self.pause_in_hand_over, self.hand_over, self.isolate_leader],
            [self.crash_in_hand_over],
            [self.pause_follower, self.pause_follower, self.slow_bookie],
            [self.isolate_follower, self.isolate_follower, self.roll, self.roll],
            [self.isolate_follower, self.pause_follower, self.depose],
            [self.delay_follower, self.delay_follower, self.pause_follower],
            [self.silence_leader],
        ]

    def plan(self) -> None:
        """Arm what will happen."""
        self._happen_later()
        if self.world.plan.is_maintained:
            for machine in self.world.machines:
                for host in machine.hosts:
                    for number in range(_MAINTENANCE):
                        self.world.call_later(number * _MAINTAINED_S, host.maintain)

    def _happen_later(self) -> None:
        delay_s = self._rest_s + 2 * self.rng.random() * self._gap_s
        self._rest_s = 0.0
        self.world.call_later(delay_s, self._happen)

    def _happen(self) -> None:
        """Have one more fault happen, if one can now, and come back for the next."""
        world, rng = self.world, self.rng
        if not world.is_rough or not self._left:
            return
        before = world.fault_count
        for _ in range(_TRIES):
            self.space = rng.choice(world.spaces)
            kinds = self.everything if rng.random() < self._any_share else self.kinds
            (self._first or rng.choice(kinds))()
            if world.fault_count > before:
                self._first = None
                self._left -= 1
                break
        self._happen_later()

    @property
    def nodes(self) -> list[NodeHost]:
        """The copies of the tablespace that the fault is of."""
        return self.space.nodes

    def _ready(self) -> list[NodeHost]:
        return [host for host in self.nodes if host.is_ready]

    def _machine(self) -> Machine:
        return self.rng.choice(self.world.machines)

    def _leader(self) -> NodeHost | None:
        leader = self.space.leader
        return leader if leader is not None and leader.leads else None

    # --- nodes -----------------------------------------------------------------------------------

    def crash_leader(self) -> None:
        if (leader := self._leader()) is not None:
            self.world.fault("an end of the leader's process")
            leader.machine.crash(power=self.rng.random() < 0.6)

    def crash_follower(self) -> None:
        if ready := self._ready():
            self.world.fault("an end of a follower's process")
            self.rng.choice(ready).machine.crash(power=self.rng.random() < 0.6)

    def crash_leader_at_step(self) -> None:
        """Let the power fail in one of the next steps of its disk."""
        if (leader := self._leader()) is not None:
            leader.disk.crash_at = leader.disk.step_count + 1 + int(self.rng.random() * 20)
            self.world.fault("power failure at a step")

    def crash_in_take_over(self) -> None:
        """Have the next take-over end behind one of its steps, and begin one."""
        (step,) = self.rng.choices(STEPS, _STEP_WEIGHTS)
        for host in self.nodes:
            host.crash_after = step
        self._rest_s = _REST_S
        (self.depose if self.rng.random() < 0.5 else self.crash_leader)()

    def pause_in_take_over(self) -> None:
        """Have the next node that takes over stand still behind a step, while another does."""
        step = self.rng.choice(STEPS[:-1])
        for host in self.nodes:
            host.pause_after = step
        self.depose()

    def depose(self) -> None:
        """Have another node take over, though the leader lives."""
        if others := self._ready():
            self.world.fault("another node is wanted")
            self.rng.choice(others).want()

    def hand_over(self, keeps_s: tuple[float, ...] = (0.05, 0.5, 1.5)) -> None:
        """Have the leader give the part to another node, in good order, if it comes to that."""
        others = [host for host in self._ready() if not host.leads]
        if others:
            self.world.fault("a node is wanted as leader")
            host, keep_s = self.rng.choice(others), self.rng.choice(keeps_s)
            self.world.loop.world.create_task(self.space.hand_over(host, keep_s))

    def crash_in_hand_over(self) -> None:
        """Have a hand-over end behind one of its steps, at either side of it."""
        leader = self._leader()
        if leader is None or not self._ready():
            return
        (leader.crash_after,) = self.rng.choices(HAND_OVER_STEPS, _HAND_OVER_WEIGHTS)
        self._rest_s = 2 * _REST_S
        if self.rng.random() < 0.3:
            for host in self.nodes:
                host.crash_after = host.crash_after or self.rng.choice(STEPS)
        self.hand_over(_PATIENT_S)

    def pause_in_hand_over(self) -> None:
        """Have the leader stand still behind a step of a hand-over."""
        if (leader := self._leader()) is not None:
            leader.pause_after = self.rng.choice(HAND_OVER_STEPS)
            self._rest_s = 2 * _REST_S
        self.hand_over(_PATIENT_S)

    def isolate_leader(self) -> None:
        """Let the leader reach the metadata store no more, for longer than a session or not."""
        if (leader := self._leader()) is not None:
            self.world.fault("leader without the metadata store")
            self.world.leave_store(leader.machine, self.rng.choice((0.3, 1.5, 3.0)))
            self._cut_some_later()
            self._cancel_some_later()

    def outrun_leader(self) -> None:
        """Have another node take over, of which the leader does not hear in its tenure."""
        leader = self._leader()
        if leader is not None and self._ready():
            self.world.fault("a leader that is outrun")
            self.world.leave_store(leader.machine, self.rng.choice((0.3, 0.8, 1.5)))
            self.depose()

    def wipe(self) -> None:
        """Have a node lose its disk: the log has all."""
        self.world.fault("a node that lost its disk")
        self._machine().wipe()

    def slow_disk(self) -> None:
        """Have a node's disk be slow for a while."""
        machine = self._machine()
        machine.slowness = self.rng.choice((10.0, 50.0))
        self.world.fault("slow disk of a node")
        self.world.call_later(_SLOW_S, machine.be_fast)

    def full_disk(self) -> None:
        """Leave a few bytes free on the disk of a node's copy, for a while."""
        host = self.rng.choice(self.nodes)
        host.disk.capacity_bytes = host.disk.used_bytes + int(self.rng.random() * 20_000)
        self.world.fault("full disk of a node")
        self.world.call_later(_SLOW_S, host.have_room)

    def jump_clock(self) -> None:
        """Have a node's wall clock go forth or back; what rests on time goes by another clock."""
        clock = self._machine().clock
        clock.jump_us += self.rng.choice((-1, 1)) * int(self.rng.random() * 6e7)
        self.world.fault("clock jump")

    def pause_leader(self) -> None:
        leader = self._leader()
        if leader is not None and leader.node is not None:
            self.world.pause(leader.machine, self.rng.choice((0.01, 0.5, 1.5, 2.5)))
            self.world.fault("paused leader")

    def pause_follower(self) -> None:
        if ready := self._ready():
            machine = self.rng.choice(ready).machine
            self.world.pause(machine, self.rng.choice((0.2, 1.0, 2.0)))
            self.world.fault("paused follower")

    def delay_follower(self) -> None:
        """Have what bookies answer to a node that follows be long on its way, then stay out."""
        ready = self._ready()
        if not ready:
            return
        host, network, world = self.rng.choice(ready), self.world.loop.network, self.world

        def block(source: str, target: str) -> None:
            if world.is_rough:
                network.block(source, target)

        for bookie in world.hosts:
            way = (bookie.name, host.name)
            network.link(*way).delay_s = 0.2
            for number in range(1, 5):
                world.call_later(number, block, *way)
                world.call_later(number + 0.5, network.open, *way)
        world.fault("answers that are long on their way")

    def isolate_follower(self) -> None:
        """Let a node that follows hear no more of new ledgers."""
        if ready := self._ready():
            machine = self.rng.choice(ready).machine
            self.world.leave_store(machine, self.rng.choice((1.0, 2.0, 3.0)))
            self.world.fault("follower without the metadata store")

    def hang_leader(self) -> None:
        """Have the leader stand still for long, while its session is kept alive."""
        leader = self._leader()
        if leader is not None and leader.node is not None:
            self.depose()
            self.world.loop.pause(leader.node, self.rng.choice((1.0, 2.0, 3.0)))
            self.world.fault("a leader that hangs")
            self._cut_some_later()

    def silence_leader(self) -> None:
        """Have the leader's log hang, perhaps for good, though all else of it lives."""
        leader = self._leader()
        if leader is not None and leader.node is not None:
            self.world.fault("a leader that is silent")
            hangs_s = self.rng.choice((0.5, 2.0, math.inf, math.inf))
            until_s = self.world.loop.time() + hangs_s
            leader.log_hangs_until_s = max(leader.log_hangs_until_s, until_s)

    def _cut_some_later(self) -> None:
        """Have clients go to another leader while others stay, about when there may be one."""
        for _ in range(self.rng.choice((0, 1, 2, 4))):
            self.world.call_later(SESSION_TIMEOUT_S * (0.5 + self.rng.random()), self.cut_client)

    def roll(self) -> None:
        """End the leader's ledger, whatever it has."""
        leader = self._leader()
        if leader is None or leader.node is None:
            return
        log = leader.tablespace.log
        self.world.fault("a roll that is asked for")

        def run() -> None:
            with suppress(Error):  # it was deposed, or bookies are away
                log.roll()  # type: ignore[attr-defined]
                self.world.happen("roll")

        in_thread(leader.node, run).add_done_callback(raise_of)

    def roll_in_take_over(self) -> None:
        """Have another node take over, and the leader roll while it does."""
        if self._leader() is None or not self._ready():
            return
        for host in self.nodes:
            host.at_step = partial(self._roll_again, self.space)
        # A first one may come between the other node's reading of the list and its claim.
        self.roll()
        delay_s = self.rng.random() * _ROLL_S
        self.world.call_later(delay_s, self._of, self.space, self.depose)

    def lose_listing(self) -> None:
        """Have the leader not hear whether its next ledger is listed, while another node claims."""
        leader = self._leader()
        if leader is not None and self._ready():
            self.world.lose_listing(leader.machine)
            self.world.fault("a ledger that is listed without an answer")
            self.roll()
            self.depose()

    def _roll_again(self, space: Space) -> None:
        self.world.happen("roll in a take-over")
        for delay_s in (0.0, 0.001, 0.002, 0.004):
            self.world.call_later(delay_s, self._of, space, self.roll)

    def _of(self, space: Space, fault: Callable[[], None]) -> None:
        """Have a fault be of a tablespace, later."""
        before, self.space = self.space, space
        if self.world.is_rough:
            fault()
        self.space = before

    def crash_in_roll(self) -> None:
        """End the leader's life while it ends a ledger, or makes the next one."""
        self.roll()
        delay_s = self.rng.random() * 0.008
        self.world.call_later(delay_s, self._of, self.space, self.crash_leader)

    def checkpoint(self) -> None:
        leader = self._leader()
        if leader is None or leader.node is None or leader.copy is None:
            return
        database = leader.copy.database
        assert database is not None

        def run() -> None:
            with suppress(Error):
                database.run_checkpoint()
                self.world.happen("checkpoint")

        in_thread(leader.node, run).add_done_callback(raise_of)

    # --- bookies ---------------------------------------------------------------------------------

    def crash_bookie(self) -> None:
        bookie = self.rng.choice(self.world.hosts)
        if bookie.node is not None:
            self.world.fault("bookie crash")
            bookie.crash(power=self.rng.random() < 0.6)

    def crash_both(self) -> None:
        """A machine that has the leader and a bookie goes down."""
        if self._leader() is not None:
            self.world.happen("leader and bookie together")
            self.crash_bookie()
            self.crash_leader()

    def full_bookie(self) -> None:
        """Leave a few bytes free on a bookie's disk, for a while."""
        bookie = self.rng.choice(self.world.hosts)
        bookie.disk.capacity_bytes = bookie.disk.used_bytes + self.rng.choice((0, 100, 5_000))
        self.world.fault("full disk of a bookie")
        self.world.call_later(_SLOW_S, bookie.have_room)

    def _way(self) -> tuple[str, str]:
        node = self._leader()
        if node is None or self.rng.random() < 0.4:
            node = self.rng.choice(self.nodes)
        pair = (node.name, self.rng.choice(self.world.hosts).name)
        return pair if self.rng.random() < 0.5 else pair[::-1]

    def block_bookie(self) -> None:
        """Let nothing through one way, or both ways, for a while."""
        way, network = self._way(), self.world.loop.network
        ways = [way] if self.rng.random() < 0.5 else [way, way[::-1]]
        self.world.fault("one-way partition" if len(ways) == 1 else "partition")
        seconds = self.rng.choice((0.01, 0.1, 0.6)) * (0.5 + self.rng.random())
        for each in ways:
            network.block(*each)
            self.world.call_later(seconds, network.open, *each)

    def leave_bookies(self) -> None:
        """Let the leader reach one bookie alone for a while: what it appends is in no quorum."""
        leader, world = self._leader(), self.world
        if leader is None:
            return
        network, kept = world.loop.network, self.rng.choice(world.hosts)
        seconds = self.rng.choice(_WITHOUT_BOOKIES_S)
        for bookie in world.hosts:
            if bookie is not kept:
                for way in ((leader.name, bookie.name), (bookie.name, leader.name)):
                    network.block(*way)
                    world.call_later(seconds, network.open, *way)
        world.fault("a leader without bookies")

    def cut_bookie(self) -> None:
        network = self.world.loop.network
        for transport in network.connections(*self._way()):
            network.cut(transport, is_silent=self.rng.random() < 0.3)
            self.world.fault("cut")

    def slow_bookie(self) -> None:
        bookie = self.rng.choice(self.world.hosts)
        bookie.sync_s = self.rng.choice((0.005, 0.05, 0.2))
        self.world.fault("slow disk of a bookie")

    def slow_link(self) -> None:
        link = self.world.loop.network.link(*self._way())
        link.delay_s = self.rng.choice((0.005, 0.05, 0.2)) * self.rng.random()
        self.world.fault("slow link")

    # --- others ----------------------------------------------------------------------------------

    def cut_client(self) -> None:
        network, client = self.world.loop.network, self.rng.choice(self.clients)
        for machine in self.world.machines:
            for transport in network.connections(client.node.name, machine.name):
                network.cut(transport, is_silent=self.rng.random() < 0.3)
                self.world.fault("client cut")

    def _cancel_some_later(self) -> None:
        """Have clients wait no more, while a leader without the store holds its answers."""
        for _ in range(self._cancels.choice((0, 1, 4))):
            after_s = SESSION_TIMEOUT_S * (0.7 + 0.35 * self._cancels.random())
            self.world.call_later(after_s, self._cancel)

    def _cancel(self) -> None:
        for client in self.clients:
            for connection in (client.current, client.alone):
                if connection is None or not client.node.is_alive or self._cancels.random() < 0.3:
                    continue
                cancelling = in_thread(client.node, partial(_cancel, connection))
                cancelling.add_done_callback(raise_of)

    def lag(self) -> None:
        """Have the session of a node read what is old for a while, or be gone."""
        machine = self._machine()
        if machine.node is None:
            return
        server, session_id = self.world.store_server, machine.store.session_id
        if self.rng.random() < 0.6:
            server.freeze(session_id)
            self.world.fault("lagging session")
            self.world.call_later(self.rng.choice((0.02, 0.3)), server.thaw, session_id)
        else:
            # Silence alone ends a session: what leaders may answer meanwhile rests on it.
            server.disconnect(session_id, reconnect_s=1.01 * SESSION_TIMEOUT_S)
            self.world.fault("expired session")


def _cancel(connection: Connection | Awaiting) -> None:
    with suppress(InterfaceError):  # it is closed
        connection.cancel()
