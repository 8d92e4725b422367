"""Faults: what goes wrong in a seed, when, and for which host.

Half of them happen at a message of the protocol (an add, a fence, a recovery read, an answer), just
before it arrives or while it is being handled; the others at any time. All end with World.calm().
"""

import random
from collections.abc import Callable

from tests.sim.ledger.wire import Message, Trigger
from tests.sim.ledger.world import SESSION_TIMEOUT_S, BookieHost, ClientHost, World

_MOMENTS = (
    ("add", 6),
    ("add reply", 6),
    ("fence", 5),
    ("fence reply", 4),
    ("recovery read", 4),
    ("recovery read reply", 4),
    ("recovery add", 6),
    ("recovery add reply", 3),
    ("long poll", 1),
)
_OF_RECOVERY = tuple(moment for moment in _MOMENTS if "fence" in moment[0] or "rec" in moment[0])
_WINDOW_S = 0.2
_CHURN_S = 0.008


class Faults:
    """Draws the faults of a seed and lets them happen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.wiped = 0
        rng = self.rng
        # A seed has a theme, so that its faults meet each other more often than by chance.
        self.kinds: list[Callable[[str | None, str | None], None]] = rng.choice(
            (
                [self.crash_bookie],
                [self.crash_bookie, self.crash_at_step],
                [self.crash_bookie, self.slow_disk, self.slow_link],
                [self.cut, self.block, self.slow_link],
                [self.block, self.slow_link],
                [self.crash_bookie, self.block, self.crash_client],
                [self.session, self.cut, self.crash_client],
                [self.full_disk, self.slow_disk, self.fail_disk],
                [self.pause, self.slow_link],
                [self.wipe, self.crash_bookie],
                [
                    self.crash_bookie,
                    self.cut,
                    self.block,
                    self.slow_link,
                    self.slow_disk,
                    self.full_disk,
                    self.fail_disk,
                    self.crash_client,
                    self.session,
                    self.pause,
                    self.wipe,
                    self.crash_at_step,
                ],
            )
        )

    def plan(self) -> None:
        """Arm what will happen; called when the bookies are up."""
        world, rng = self.world, self.rng
        if world.plan.churn:
            world.loop.call_later(_CHURN_S, self._churn)
        moments = _OF_RECOVERY if rng.random() < 0.4 else _MOMENTS
        for _ in range(world.plan.fault_count):
            kind = rng.choice(self.kinds)
            if rng.random() < 0.75:
                names, weights = zip(*moments, strict=True)
                moment = rng.choices(names, weights)[0]
                count = rng.choice((1, 1, 1, 2, 2, 3, 5, 8))
                delay_s = rng.choice((-1.0, 0.0, 0.000_3, 0.001, 0.003)) * rng.random()
                world.wire.triggers.append(
                    Trigger(moment, count, delay_s, lambda m, kind=kind: self._happen(kind, m))
                )
            else:
                world.loop.call_later(rng.random() * _WINDOW_S, self._happen, kind, None)

    def _churn(self) -> None:
        """Draw anew how some ways between clients and bookies are; again and again."""
        world, rng = self.world, self.rng
        if not world.is_rough:
            return
        network = world.loop.network
        for client in world.clients:
            if not client.node.is_alive or rng.random() > 0.5:
                continue
            for host in world.hosts:
                if rng.random() > world.plan.churn:
                    continue
                pair = (client.name, host.name)
                way = pair if rng.random() < 0.5 else pair[::-1]
                fate = rng.random()
                network.open(*way)
                if fate < 0.45:
                    network.link(*way).delay_s = 0.000_1
                elif fate < 0.7:
                    network.link(*way).delay_s = 0.03 * rng.random()
                elif fate < 0.9:
                    network.block(*way)
                else:
                    for transport in network.connections(*pair):
                        network.cut(transport)
        world.happen("churning network")
        world.loop.call_later(_CHURN_S * 2 * rng.random(), self._churn)

    def _happen(
        self, kind: Callable[[str | None, str | None], None], message: Message | None
    ) -> None:
        if not self.world.is_rough:
            return
        loop = self.world.loop
        if message is None:
            loop.world.run(kind, None, None)
        else:
            loop.world.run(kind, message.client, message.bookie)

    def _bookie(self, name: str | None) -> BookieHost:
        if name is not None and self.rng.random() < 0.7:
            return self.world.host(name)
        return self.rng.choice(self.world.hosts)

    def _client(self, name: str | None) -> ClientHost | None:
        alive = [client for client in self.world.clients if client.node.is_alive]
        for client in alive:
            if client.name == name:
                return client
        return self.rng.choice(alive) if alive else None

    def _pair(self, client: str | None, bookie: str | None) -> tuple[str, str] | None:
        found = self._client(client)
        if found is None:
            return None
        pair = (found.name, self._bookie(bookie).name)
        return pair if self.rng.random() < 0.5 else pair[::-1]

    # The kinds.

    def crash_bookie(self, client: str | None, bookie: str | None) -> None:
        host = self._bookie(bookie)
        if host.node is not None:
            power = self.rng.random() < 0.7
            self.world.happen("bookie crash")
            self.world.say(f"fault: {host.name} crashes, power {'lost' if power else 'kept'}")
            host.crash(power=power)

    def crash_at_step(self, client: str | None, bookie: str | None) -> None:
        """Let the power fail in one of the next steps of a disk."""
        disk = self._bookie(bookie).disk
        disk.crash_at = disk.step_count + self.rng.randint(1, 6)
        self.world.happen("bookie crash at a disk step")

    def crash_client(self, client: str | None, bookie: str | None) -> None:
        host = self._client(client)
        if host is not None:
            self.world.happen("client crash")
            self.world.say(f"fault: {host.name} crashes")
            host.crash()

    def cut(self, client: str | None, bookie: str | None) -> None:
        pair = self._pair(client, bookie)
        if pair is None:
            return
        for transport in self.world.loop.network.connections(*pair):
            is_silent = self.rng.random() < 0.3
            self.world.happen("connection cut")
            self.world.say(f"fault: {transport} is cut{', silently' if is_silent else ''}")
            self.world.loop.network.cut(transport, is_silent=is_silent)

    def block(self, client: str | None, bookie: str | None) -> None:
        """Partition, one way or both, for a while."""
        pair = self._pair(client, bookie)
        if pair is None:
            return
        network = self.world.loop.network
        ways = [pair] if self.rng.random() < 0.6 else [pair, pair[::-1]]
        seconds = self.rng.choice((0.005, 0.03, 0.15, 0.6)) * (0.5 + self.rng.random())
        self.world.happen("partition")
        self.world.say(f"fault: {ways} blocked for {seconds:.3f} s")
        for way in ways:
            network.block(*way)
            self.world.loop.call_later(seconds, network.open, *way)

    def slow_link(self, client: str | None, bookie: str | None) -> None:
        pair = self._pair(client, bookie)
        if pair is None:
            return
        link = self.world.loop.network.link(*pair)
        link.delay_s = self.rng.choice((0.002, 0.01, 0.05, 0.2)) * (0.5 + self.rng.random())
        self.world.happen("slow link")
        self.world.say(f"fault: {pair} takes {link.delay_s:.3f} s")

    def slow_disk(self, client: str | None, bookie: str | None) -> None:
        host = self._bookie(bookie)
        host.sync_s = self.rng.choice((0.005, 0.02, 0.1, 0.4))
        self.world.happen("slow disk")
        self.world.say(f"fault: the disk of {host.name} takes {host.sync_s} s")

    def full_disk(self, client: str | None, bookie: str | None) -> None:
        host = self._bookie(bookie)
        used = sum(len(data) for data in host.disk.contents().values())
        host.disk.capacity_bytes = used + self.rng.choice((0, 100, 5_000))
        self.world.happen("full disk")
        self.world.say(f"fault: the disk of {host.name} is full")
        if self.rng.random() < 0.5:
            self.world.loop.call_later(0.2 * self.rng.random(), host.have_room)

    def fail_disk(self, client: str | None, bookie: str | None) -> None:
        host = self._bookie(bookie)
        kind = self.rng.choice(("write", "sync", "sync", "read"))
        host.disk.fail(kind)
        self.world.happen("disk error")
        self.world.say(f"fault: the next {kind} of {host.name} fails")

    def session(self, client: str | None, bookie: str | None) -> None:
        """Suspend a session, let it expire, or let it read what is old."""
        server = self.world.store_server
        session_ids = server.session_ids
        if not session_ids:
            return
        session_id = self.rng.choice(session_ids)
        kind = self.rng.choice(("suspend", "long", "expire", "freeze"))
        self.world.say(f"fault: session {session_id:x}: {kind}")
        self.world.happen("session trouble")
        if kind == "freeze":
            server.freeze(session_id)
        elif kind == "expire":
            server.expire(session_id)
        else:
            longest = 0.2 if kind == "suspend" else 2 * SESSION_TIMEOUT_S
            server.disconnect(session_id, reconnect_s=self.rng.random() * longest)

    def pause(self, client: str | None, bookie: str | None) -> None:
        """Let a process stand still, and its session go on or not."""
        seconds = self.rng.choice((0.01, 0.1, 0.5)) * (0.5 + self.rng.random())
        host = self._client(client) if self.rng.random() < 0.5 else self._bookie(bookie)
        if host is not None and host.node is not None:
            self.world.happen("pause")
            self.world.say(f"fault: {host.name} stands still for {seconds:.3f} s")
            self.world.loop.pause(host.node, seconds)

    def wipe(self, client: str | None, bookie: str | None) -> None:
        """Take a bookie's disk away; not of more than the ledger survives."""
        host = self._bookie(bookie)
        if self.wiped < self.world.plan.lost_bookies_max and not host.is_wiped:
            self.wiped += 1
            self.world.happen("wiped bookie")
            self.world.say(f"fault: {host.name} loses its disk")
            host.wipe()


def rng_of(seed: int) -> random.Random:
    """Return the chance of a seed, apart from the loop's."""
    return random.Random(seed * 2 + 1)
