"""Faults: what goes wrong in a seed, and when. All end with World.calm()."""

import math
from collections.abc import Callable
from contextlib import suppress

from herdpy.errors import Error
from tests.sim.cluster.world import HAND_OVER_STEPS, STEPS, NodeHost, World
from tests.sim.ledger.world import SESSION_TIMEOUT_S
from tests.sim.server.clients import Client
from tests.sim.server.world import raise_of
from tests.sim.switching import in_thread

WINDOW_S = 0.6
_MAINTENANCE, _MAINTAINED_S = 150, 0.01


class Faults:
    """Draws the faults of a seed and lets them happen."""

    def __init__(self, world: World, clients: list[Client]) -> None:
        self.world = world
        self.clients = clients
        self.rng = rng = world.new_rng()
        everything: list[Callable[[], None]] = [
            self.crash_leader,
            self.crash_follower,
            self.crash_leader_at_step,
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
            self.cut_bookie,
            self.slow_bookie,
            self.slow_link,
            self.pause_leader,
            self.roll,
            self.checkpoint,
            self.cut_client,
            self.lag,
            self.hang_leader,
            self.pause_follower,
            self.isolate_follower,
            self.hand_over,
            self.crash_in_hand_over,
            self.pause_in_hand_over,
            self.silence_leader,
        ]
        self.kinds = rng.choice(
            (
                [
                    self.crash_leader,
                    self.crash_in_take_over,
                    self.crash_in_roll,
                    self.crash_in_roll,
                ],
                [self.pause_in_take_over, self.crash_in_take_over],
                [self.pause_in_take_over, self.crash_in_roll, self.roll],
                [self.crash_in_take_over, self.crash_in_take_over, self.checkpoint],
                [self.crash_leader, self.crash_in_take_over],
                [self.crash_in_take_over, self.depose],
                [self.depose, self.roll, self.roll_in_take_over],
                [self.roll_in_take_over],
                [self.depose, self.pause_leader, self.pause_leader],
                [self.isolate_leader, self.pause_leader],
                [self.hang_leader, self.hang_leader, self.cut_client],
                [self.hang_leader, self.crash_follower],
                [self.silence_leader, self.crash_follower],
                [self.silence_leader, self.slow_bookie],
                [self.isolate_leader, self.isolate_leader, self.pause_in_take_over],
                [self.pause_in_take_over, self.pause_leader, self.wipe],
                [self.depose, self.block_bookie, self.crash_in_take_over],
                [self.crash_bookie, self.roll, self.crash_follower],
                [self.crash_follower, self.checkpoint, self.depose],
                [self.crash_bookie, self.crash_leader],
                [self.crash_both, self.crash_in_roll, self.crash_in_roll],
                [self.crash_bookie, self.crash_bookie, self.depose],
                [self.block_bookie, self.slow_link, self.slow_bookie],
                [self.block_bookie, self.cut_bookie, self.depose],
                [self.slow_bookie, self.crash_leader, self.checkpoint],
                [self.checkpoint, self.wipe, self.crash_leader_at_step],
                [self.lag, self.roll, self.depose],
                [self.lag, self.crash_leader, self.crash_in_take_over],
                [self.cut_client, self.depose, self.crash_leader],
                [self.hand_over],
                [self.hand_over, self.hand_over, self.roll, self.checkpoint],
                [self.hand_over, self.cut_client, self.lag],
                [self.crash_in_hand_over],
                [self.crash_in_hand_over],
                [self.crash_in_hand_over, self.crash_in_hand_over, self.roll],
                [self.hand_over, self.crash_in_hand_over, self.crash_in_hand_over],
                [self.crash_in_hand_over, self.pause_in_hand_over],
                [self.hand_over, self.crash_in_take_over, self.depose],
                [self.pause_in_hand_over, self.isolate_leader, self.crash_bookie],
                everything,
            )
        )
        if world.plan.is_long:
            self.kinds = rng.choice(
                (
                    [self.isolate_leader],
                    [self.isolate_leader, self.lag, self.pause_leader],
                    [self.hang_leader],
                    [self.pause_leader, self.cut_client],
                    [self.hand_over, self.pause_leader, self.hang_leader],
                    [self.pause_in_hand_over, self.hand_over, self.isolate_leader],
                    [self.pause_follower, self.pause_follower, self.slow_bookie],
                    [self.isolate_follower, self.isolate_follower, self.roll, self.roll],
                    [self.isolate_follower, self.pause_follower, self.depose],
                    [self.delay_follower, self.delay_follower, self.pause_follower],
                    [self.silence_leader],
                )
            )

    def plan(self) -> None:
        """Arm what will happen."""
        for _ in range(self.world.plan.fault_count):
            self.world.call_later(self.rng.random() * WINDOW_S, self._happen)
        if self.world.plan.is_maintained:
            for host in self.world.nodes:
                for number in range(_MAINTENANCE):
                    self.world.call_later(number * _MAINTAINED_S, host.maintain)

    def _happen(self) -> None:
        if self.world.is_rough:
            self.rng.choice(self.kinds)()

    def _leader(self) -> NodeHost | None:
        leader = self.world.leader
        return leader if leader is not None and leader.leads else None

    # --- nodes -----------------------------------------------------------------------------------

    def crash_leader(self) -> None:
        if (leader := self._leader()) is not None:
            leader.crash(power=self.rng.random() < 0.6)

    def crash_follower(self) -> None:
        ready = [host for host in self.world.nodes if host.is_ready]
        if ready:
            self.rng.choice(ready).crash(power=self.rng.random() < 0.6)

    def crash_leader_at_step(self) -> None:
        """Let the power fail in one of the next steps of its disk."""
        if (leader := self._leader()) is not None:
            leader.disk.crash_at = leader.disk.step_count + 1 + int(self.rng.random() * 20)

    def crash_in_take_over(self) -> None:
        """Have the next take-over end behind one of its steps, and begin one."""
        step = self.rng.choice(STEPS)
        for host in self.world.nodes:
            host.crash_after = step
        (self.depose if self.rng.random() < 0.5 else self.crash_leader)()

    def pause_in_take_over(self) -> None:
        """Have the next node that takes over stand still behind a step, while another does."""
        step = self.rng.choice(STEPS[:-1])
        for host in self.world.nodes:
            host.pause_after = step
        self.depose()

    def depose(self) -> None:
        """Have another node take over, though the leader lives."""
        others = [host for host in self.world.nodes if host.is_ready]
        if others:
            self.world.happen("another node is wanted")
            self.rng.choice(others).want()

    def hand_over(self) -> None:
        """Have the leader give the part to another node, in good order, if it comes to that."""
        others = [host for host in self.world.nodes if host.is_ready and not host.leads]
        if others:
            self.world.happen("a node is wanted as leader")
            host, keep_s = self.rng.choice(others), self.rng.choice((0.05, 0.5, 1.5))
            self.world.loop.world.create_task(self.world.hand_over(host, keep_s))

    def crash_in_hand_over(self) -> None:
        """Have a hand-over end behind one of its steps, at either side of it."""
        if (leader := self._leader()) is not None:
            leader.crash_after = self.rng.choice(HAND_OVER_STEPS)
        if self.rng.random() < 0.3:
            for host in self.world.nodes:
                host.crash_after = host.crash_after or self.rng.choice(STEPS)
        self.hand_over()

    def pause_in_hand_over(self) -> None:
        """Have the leader stand still behind a step of a hand-over."""
        if (leader := self._leader()) is not None:
            leader.pause_after = self.rng.choice(HAND_OVER_STEPS)
        self.hand_over()

    def isolate_leader(self) -> None:
        """Let the leader reach the metadata store no more, for longer than a session or not."""
        if (leader := self._leader()) is not None:
            self.world.happen("leader without the metadata store")
            self.world.leave_store(leader, self.rng.choice((0.3, 1.5, 3.0)))
            self._cut_some_later()

    def wipe(self) -> None:
        """Have a node lose its disk: the log has all."""
        host = self.rng.choice(self.world.nodes)
        self.world.happen("a node that lost its disk")
        host.wipe()

    def pause_leader(self) -> None:
        leader = self._leader()
        if leader is not None and leader.node is not None:
            self.world.pause(leader, self.rng.choice((0.01, 0.5, 1.5, 2.5)))
            self.world.happen("paused leader")

    def pause_follower(self) -> None:
        ready = [host for host in self.world.nodes if host.is_ready]
        if ready:
            self.world.pause(self.rng.choice(ready), self.rng.choice((0.2, 1.0, 2.0)))
            self.world.happen("paused follower")

    def delay_follower(self) -> None:
        """Have what bookies answer to a node that follows be long on its way, then stay out."""
        ready = [host for host in self.world.nodes if host.is_ready]
        if not ready:
            return
        host, network, world = self.rng.choice(ready), self.world.loop.network, self.world
        for bookie in world.hosts:
            way = (bookie.name, host.name)
            network.link(*way).delay_s = 0.2
            for number in range(1, 5):
                world.call_later(number, network.block, *way)
                world.call_later(number + 0.5, network.open, *way)
        world.happen("answers that are long on their way")

    def isolate_follower(self) -> None:
        """Let a node that follows hear no more of new ledgers."""
        ready = [host for host in self.world.nodes if host.is_ready]
        if ready:
            self.world.leave_store(self.rng.choice(ready), self.rng.choice((1.0, 2.0, 3.0)))
            self.world.happen("follower without the metadata store")

    def hang_leader(self) -> None:
        """Have the leader stand still for long, while its session is kept alive."""
        leader = self._leader()
        if leader is not None and leader.node is not None:
            self.depose()
            self.world.loop.pause(leader.node, self.rng.choice((1.0, 2.0, 3.0)))
            self.world.happen("a leader that hangs")
            self._cut_some_later()

    def silence_leader(self) -> None:
        """Have the leader's log hang, perhaps for good, though all else of it lives."""
        leader = self._leader()
        if leader is not None and leader.node is not None:
            self.world.happen("a leader that is silent")
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

        def run() -> None:
            with suppress(Error):  # it was deposed, or bookies are away
                log.roll()  # type: ignore[attr-defined]
                self.world.happen("roll")

        in_thread(leader.node, run).add_done_callback(raise_of)

    def roll_in_take_over(self) -> None:
        """Have another node take over, and the leader roll while it does."""
        for host in self.world.nodes:
            host.at_step = self._roll_again
        self.depose()

    def _roll_again(self) -> None:
        self.world.happen("roll in a take-over")
        for delay_s in (0.0, 0.001, 0.002, 0.004):
            self.world.call_later(delay_s, self.roll)

    def crash_in_roll(self) -> None:
        """End the leader's life while it ends a ledger, or makes the next one."""
        self.roll()
        self.world.call_later(self.rng.random() * 0.008, self.crash_leader)

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
            self.world.happen("bookie crash")
            bookie.crash(power=self.rng.random() < 0.6)

    def crash_both(self) -> None:
        """A machine that has the leader and a bookie goes down."""
        self.world.happen("leader and bookie together")
        self.crash_bookie()
        self.crash_leader()

    def _way(self) -> tuple[str, str]:
        node = self._leader()
        if node is None or self.rng.random() < 0.4:
            node = self.rng.choice(self.world.nodes)
        pair = (node.name, self.rng.choice(self.world.hosts).name)
        return pair if self.rng.random() < 0.5 else pair[::-1]

    def block_bookie(self) -> None:
        """Let nothing through one way, or both ways, for a while."""
        way, network = self._way(), self.world.loop.network
        ways = [way] if self.rng.random() < 0.6 else [way, way[::-1]]
        self.world.happen("one-way partition" if len(ways) == 1 else "partition")
        seconds = self.rng.choice((0.01, 0.1, 0.6)) * (0.5 + self.rng.random())
        for each in ways:
            network.block(*each)
            self.world.call_later(seconds, network.open, *each)

    def cut_bookie(self) -> None:
        network = self.world.loop.network
        for transport in network.connections(*self._way()):
            network.cut(transport, is_silent=self.rng.random() < 0.3)
            self.world.happen("cut")

    def slow_bookie(self) -> None:
        bookie = self.rng.choice(self.world.hosts)
        bookie.sync_s = self.rng.choice((0.005, 0.05, 0.2))
        self.world.happen("slow bookie")

    def slow_link(self) -> None:
        link = self.world.loop.network.link(*self._way())
        link.delay_s = self.rng.choice((0.005, 0.05, 0.2)) * self.rng.random()
        self.world.happen("slow link")

    # --- others ----------------------------------------------------------------------------------

    def cut_client(self) -> None:
        network, client = self.world.loop.network, self.rng.choice(self.clients)
        for host in self.world.nodes:
            for transport in network.connections(client.node.name, host.name):
                network.cut(transport, is_silent=self.rng.random() < 0.3)
                self.world.happen("client cut")

    def lag(self) -> None:
        """Have the session of a node read what is old for a while, or be gone."""
        host = self.rng.choice(self.world.nodes)
        if host.node is None:
            return
        server, session_id = self.world.store_server, host.store.session_id
        if self.rng.random() < 0.6:
            server.freeze(session_id)
            self.world.happen("lagging session")
            self.world.call_later(self.rng.choice((0.02, 0.3)), server.thaw, session_id)
        else:
            # Silence alone ends a session: what leaders may answer meanwhile rests on it.
            server.disconnect(session_id, reconnect_s=1.01 * SESSION_TIMEOUT_S)
            self.world.happen("expired session")
