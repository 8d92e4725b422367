"""World: machines with nodes, over the bookies and the metadata store of tests/sim/ledger.

Each node's code is the product's. Which node leads a tablespace they find out among themselves.
In some seeds the cluster has two tablespaces, each with leaders, clients and checkers of its own.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bookie.metadata.acl import Identity, StoreAccess
from herdpy.cluster.tablespace_nodes import readable
from herdpy.storage.tablespace_list import DEFAULT
from tests.sim.cluster.checkers import check_made
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.node_host import NodeHost
from tests.sim.cluster.plan import WorldPlan
from tests.sim.cluster.space import Space
from tests.sim.ledger import world as ledger
from tests.sim.ledger.world import SESSION_TIMEOUT_S
from tests.sim.switching import LinePreemption, Mutexes

ROOT = "/herd"
_NODES = Identity("digest", "herd:of nodes")
_DRIVERS = Identity("digest", "app:of drivers")
_KEEP_ALIVE_S = 5.0
_FAULTS_MIN = 3
"""Of a seed: its clients go on until they have happened."""


class World(ledger.World):
    """See the module."""

    plan: WorldPlan

    def __init__(
        self, seed: int, plan: WorldPlan, rng: random.Random, say: Callable[[str], object] | None
    ) -> None:
        super().__init__(seed, plan, rng, say)  # type: ignore[arg-type]
        self.seed = seed
        self.access_of_drivers = StoreAccess()
        if plan.is_secured:
            self._secure()
        self.loop.network.delay_s = plan.link_delay_s
        self.mutexes = Mutexes(self.loop, random.Random(rng.getrandbits(64)), plan.preemption)
        self.fault_count = 0
        """Of those that have happened."""
        self.is_filled = False
        """The tables are there: faults may begin."""
        names = (DEFAULT, "sales")[: plan.tablespace_count]
        each_min = plan.acknowledged_min // len(names)
        self.spaces = [Space(self, number, name, each_min) for number, name in enumerate(names, 1)]
        self.machines = [Machine(self, number) for number in range(1, plan.node_count + 1)]
        for machine in self.machines:
            for space in self.spaces:
                host = NodeHost(machine, space)
                machine.hosts.append(host)
                space.nodes.append(host)
        self._away: dict[str, float] = {}
        """Until when a node does not reach the metadata store."""
        self._losing: set[str] = set()
        """Nodes whose next change of a list of ledgers gets no answer."""
        self.lines = LinePreemption(self.loop, random.Random(f"lines {seed}"), plan.line_share)
        self._placed = ExitStack()
        self._placed.enter_context(self.mutexes.placed())
        self._placed.enter_context(self.lines.placed())
        self.loop.world.run(self._probe)

    def _secure(self) -> None:
        """Have all sessions log in: drivers as what may read a little, or as nodes do."""
        readers = (_DRIVERS,) if self.plan.has_readers else ()
        self.access = StoreAccess((_NODES,), is_secured=True, readable=readable(ROOT, readers))
        self.access_of_drivers = StoreAccess(readers or (_NODES,))
        self.store_server.on_made = lambda path: check_made(self.store_server, path, self.access)

    def _probe(self) -> None:
        self.loop.network.probe()
        self.loop.call_later(_KEEP_ALIVE_S, self._probe)

    def new_rng(self) -> random.Random:
        """Return chance of its own, so that draws of one part do not change the others'."""
        return random.Random(self.rng.getrandbits(64))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back as the world."""
        self.loop.world.run(self.loop.call_later, delay_s, callback, *args)

    @property
    def has_faults(self) -> bool:
        """Enough has gone wrong for one seed, or nothing will any more."""
        return self.fault_count >= _FAULTS_MIN or not self.is_rough

    def fault(self, name: str) -> None:
        """Count a fault that has happened."""
        self.fault_count += 1
        self.happen(name)

    def _heard(self, transport: Any, data: bytes) -> None:
        """Repeat some requests to bookies; what they say is read where there are scripts alone."""
        if transport.remote[1] == ledger.PORT:
            self.repeat_at_times(transport, data)

    def pause(self, machine: Machine, seconds: float) -> None:
        """Let a node's process stand still: what keeps its session alive does, too."""
        if machine.node is not None and machine.node.is_alive:
            self.loop.pause(machine.node, seconds)
            if seconds > SESSION_TIMEOUT_S:
                self.happen("a pause longer than a session")
            machine.store.late_s = seconds
            silent_s = seconds + 0.1 * machine.draw()  # its clients may come before the store
            self.store_server.disconnect(machine.store.session_id, reconnect_s=silent_s)

    def leave_store(self, machine: Machine, seconds: float) -> None:
        """Let a node reach the metadata store no more for a while; its session may end."""
        self._away[machine.name] = self.loop.time() + seconds
        # As long as a client may wait for an answer before it takes the connection for broken.
        machine.store.late_s = machine.draw() * min(seconds, 2 / 3 * SESSION_TIMEOUT_S)
        self.store_server.disconnect(machine.store.session_id, reconnect_s=seconds)

    def lose_listing(self, machine: Machine) -> None:
        """Have a node's next change of a list of ledgers get no answer, done or not."""
        self._losing.add(machine.name)

    def store_trouble(self, owner: str, path: str, *, is_write: bool) -> float:
        """Return how likely a request to the metadata store goes wrong now."""
        if self._away.get(owner, 0.0) > self.loop.time():
            return 1.0
        if is_write and owner in self._losing and path.startswith(f"{ROOT}/ledgers/"):
            self._losing.remove(owner)
            return 1.0
        is_trouble = self.is_rough and self.is_filled and owner.startswith(("n", "c"))
        return self.plan.store_trouble if is_trouble else 0.0

    def on_lost_write(self, owner: str, path: str) -> None:
        if path.startswith("/herd"):
            self.happen("lost answer of a compare-and-set")

    def calm(self) -> None:
        """End all faults."""
        if self.is_rough:
            super().calm()
            self._away.clear()
            self._losing.clear()
            self.loop.network.silent_death_chance = 0.0
            for machine in self.machines:
                machine.heal()

    def close(self) -> None:
        super().close()
        self._placed.close()
