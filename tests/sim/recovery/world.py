"""RecoveryWorld: the ledger world, with AutoRecovery processes and bookies that go for good.

The product's own code runs: auditors, workers, bookies, clients. What they write to the metadata
store is judged at the moment of writing, against what the world knows: which bookies are gone, or
read-only, which entries each bookie has taken.
"""

import random
from collections.abc import Callable
from typing import Any

from bookie.autorecovery.service import AutoRecovery
from bookie.config import AutoRecoveryConfig
from bookie.errors import BookieError
from bookie.ledger.types import BookieId, LedgerMetadata, LedgerState
from bookie.metadata.interfaces import Create, Delete, Write
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.memory import MemoryStore
from tests.fixtures.metadata import SeededRng
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.wire import Message
from tests.sim.ledger.world import (
    ROOT,
    BookieHost,
    LoopClock,
    StoreLink,
    WatchedStoreServer,
    World,
)
from tests.sim.loop import Node
from tests.sim.recovery.checkers import RecoveryHistory
from tests.sim.recovery.plan import RecoveryPlan

TASKS = f"{ROOT}/underreplication/ledgers/"
LOCKS = f"{ROOT}/underreplication/locks/"
VOTES = f"{ROOT}/underreplication/auditorelection/"
AVAILABLE = f"{ROOT}/available/"
READ_ONLY = f"{ROOT}/available/readonly/"
NOTICE_S = 0.5
"""After so long every client that is connected knows of a change."""


class JudgingStoreServer(WatchedStoreServer):
    """Tells the world of each change, and of nodes that end with a session."""

    world: "RecoveryWorld"

    def change(self, session: Any, operations: Any, *, make_parents: bool = False) -> list[str]:
        world = self.world
        owner = session.store._link._owner if hasattr(session.store._link, "_owner") else "world"
        world.actor = owner
        is_leading = world.leads(session.session_id)
        paths = super().change(session, operations, make_parents=make_parents)
        for path, operation in zip(paths, operations, strict=True):
            world.on_change(owner, path, operation, is_leading=is_leading)
        return paths

    def _end(self, session: Any) -> None:
        gone = self.tree.ephemerals_of(session.session_id)
        super()._end(session)
        for path in gone:
            self.world.on_gone(path)


class HealerHost:
    """One process with AutoRecovery: alone, or beside a bookie of which it shares the fate."""

    def __init__(self, world: "RecoveryWorld", name: str, bookie: BookieHost | None) -> None:
        self.world = world
        self.name = name
        self.bookie = bookie
        self.node: Node | None = None
        self.service: AutoRecovery | None = None
        self.store: MemoryStore | None = None

    @property
    def is_wanted(self) -> bool:
        return self.bookie is None or self.bookie.is_up

    def start(self) -> None:
        if self.node is not None:
            return
        node = self.node = self.world.loop.add_node(self.name)
        node.on_crash.append(self._after_crash)
        node.create_task(self._live())

    async def _live(self) -> None:
        world = self.world
        store = self.store = MemoryStore(world.store_server, StoreLink(world, self.name))
        try:
            self.service = await AutoRecovery.start(
                store,
                ROOT,
                self.name,
                clock=LoopClock(world.loop, round(world.draw() * 1e6)),
                rng=SeededRng(world.rng.getrandbits(64)),
                config=world.healer_config,
                client_config=world.client_config,
                local=None if self.bookie is None else BookieId(self.bookie.bookie_id),
            )
        except BookieError as error:
            world.say(f"{self.name} does not start: {type(error).__name__}: {error}")
            self.crash()

    def crash(self) -> None:
        if self.node is not None:
            self.world.loop.crash(self.node)

    def _after_crash(self) -> None:
        world = self.world
        self.node = self.service = None
        if self.store is not None:
            world.store_server.disconnect(self.store.session_id)
        world.loop.call_later(0.05 + 0.3 * world.draw(), self.start_if_wanted)

    def start_if_wanted(self) -> None:
        if self.world.is_ending:
            return
        if self.is_wanted:
            self.start()
        else:
            self.world.loop.call_later(0.1, self.start_if_wanted)

    async def stop(self) -> None:
        node, service, store = self.node, self.service, self.store
        if node is None:
            return
        if service is None or store is None:
            self.world.loop.crash(node)  # it was just about to start
            return

        async def close() -> None:
            await service.close()
            await store.close()

        await self.world.act(node, close())
        tasks = [task.get_name() for task in self.world.loop.pending_tasks(node)]
        if tasks:
            raise CheckError("errors", f"{self.name} is closed and leaves tasks: {tasks}")
        self.world.loop.crash(node)


class RecoveryWorld(World):
    """See the module."""

    def __init__(
        self,
        seed: int,
        plan: RecoveryPlan,
        rng: random.Random,
        trace: Callable[[str], object] | None,
    ) -> None:
        super().__init__(seed, plan.world, rng, trace)
        self.recovery_plan = plan
        self.is_ending = False
        self.actor = "world"
        """Who writes to the metadata store just now."""
        server = JudgingStoreServer(LoopClock(self.loop), session_timeout_s=1.0)
        server.world = self
        server.on_data = self._stored
        self.store_server = server
        for ledger in self.ledgers:
            ledger.history = RecoveryHistory(self)
        self.healer_config = AutoRecoveryConfig(
            bookie_check_interval_s=plan.bookie_check_interval_s,
            ledger_check_interval_s=0,
            entry_check_interval_s=1.0 if plan.are_entries_checked else 0,
            open_ledger_grace_s=plan.grace_s,
            copy_window=rng.choice((1, 3, 100)),
            copy_bytes_per_s=plan.copy_bytes_per_s,
            poll_interval_s=0.05,
            failure_pause_s=rng.choice((0.2, 1.0)),
            ledgers_at_once=rng.choice((1, 2, 32)),
        )
        self.healers = [
            HealerHost(self, f"heal-{host.name}", host)
            for host in self.hosts
            if plan.has_local_healers
        ]
        self.healers += [
            HealerHost(self, f"heal{number}", None) for number in range(plan.lone_healer_count)
        ]
        self.gone: dict[str, float] = {}
        """Bookies that never come back, and since when they are not registered."""
        self.away: dict[str, float] = {}
        """Bookies that are not registered, and since when."""
        self.first_away: dict[str, float] = {}
        """The same, kept when they return."""
        self.lost: dict[str, None] = {}
        """Bookies that never come back."""
        self.read_only: dict[str, float] = {}
        self.locked: dict[str, float] = {}
        """Names of locked ledgers, and since when."""
        self.vote_loss_at = 0
        """Remove the acting auditor's vote at its task after so many; 0: no more."""
        self.deleted: dict[int, None] = {}

    # --- what is judged ---------------------------------------------------------------------------

    def leads(self, session_id: int) -> bool:
        """Whether a session has the lowest vote, or there is no vote at all."""
        tree = self.store_server.tree
        if tree.exists(VOTES[:-1]) is None:
            return False
        votes = tree.children(VOTES[:-1])
        if not votes:
            return False
        stat = tree.exists(VOTES + min(votes))
        return stat is not None and stat.ephemeral_owner == session_id

    def on_change(self, owner: str, path: str, operation: Any, *, is_leading: bool) -> None:
        now = self.loop.time()
        name = path.rpartition("/")[2]
        if path.startswith(READ_ONLY):
            if isinstance(operation, Create):
                self.read_only[name] = now
                self.away.pop(name, None)
            elif isinstance(operation, Delete):
                self.on_gone(path)
        elif path.startswith(AVAILABLE):
            if isinstance(operation, Create):
                self.away.pop(name, None)
            elif isinstance(operation, Delete):
                self.on_gone(path)
        elif path.startswith(LOCKS):
            if isinstance(operation, Create):
                self.locked[name] = now
                self.say(f"{owner} locks {name}")
            elif isinstance(operation, Delete):
                self.locked.pop(name, None)
        elif path.startswith(TASKS) and name.startswith("urL"):
            self.say(f"{owner}: task {name}: {type(operation).__name__}")
            if isinstance(operation, Create | Write):
                self.happen("task published")
                if not is_leading:
                    raise CheckError("auditor", f"{owner} publishes {name} and does not lead")
                self._lose_vote()
            elif isinstance(operation, Delete):
                self.happen("task done")
                self._judge_done(owner, int(name[3:]), self.locked.get(name, now))

    def on_gone(self, path: str) -> None:
        """A node is gone, deleted or with its session."""
        name = path.rpartition("/")[2]
        self.locked.pop(name, None)
        tree = self.store_server.tree
        if path.startswith(READ_ONLY):
            self.read_only.pop(name, None)
        if path.startswith(AVAILABLE) and not any(
            tree.exists(prefix + name) for prefix in (AVAILABLE, READ_ONLY)
        ):
            now = self.away[name] = self.loop.time()
            self.first_away.setdefault(name, now)
            if name in self.lost:
                self.gone[name] = now

    def _lose_vote(self) -> None:
        """An operator removes the acting auditor's vote while it publishes."""
        if self.vote_loss_at and self.is_rough:
            self.vote_loss_at -= 1
            if self.vote_loss_at == 0:
                self.remove_vote()

    def remove_vote(self) -> None:
        votes = self.store_server.tree.children(VOTES[:-1])
        if votes:
            self.say(f"an operator removes {min(votes)}")
            self.happen("auditor deposed")
            self._call_later(0.0, lambda: self._delete(VOTES + min(votes)))

    def _delete(self, path: str) -> None:
        if self.store_server.tree.exists(path) is not None:
            self._write([Delete(path)])

    def _write(self, operations: list[Any], *, make_parents: bool = False) -> None:
        server = self.store_server
        store = MemoryStore(server)
        server.change(store.session, operations, make_parents=make_parents)
        server.close_session(store.session)

    def _judge_done(self, owner: str, ledger_id: int, locked_at: float) -> None:
        """A task is removed: no bookie that was gone when its ledger was locked is named."""
        ledger = self.ledgers_by_id.get(ledger_id)
        if ledger is None or ledger_id in self.deleted:
            return
        metadata = ledger.history.metadata
        assert metadata is not None
        for segment in metadata.segments:
            for bookie in segment.ensemble:
                if self.gone.get(bookie, float("inf")) < locked_at:
                    raise CheckError(
                        "task",
                        f"{owner} ends the task of {ledger_id}, but {bookie} is in {segment}",
                    )

    def judge_step(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Judge what an AutoRecovery process wrote to a ledger's metadata."""
        now = self.loop.time()
        last = before.last_segment
        if before.state is LedgerState.OPEN and after.state is not LedgerState.OPEN:
            self.happen("fenced by a worker")
            waited = [self.first_away.get(b, now) for b in last.ensemble]
            if now - min(waited) < self.recovery_plan.grace_s * 0.99:
                raise CheckError(
                    "grace", f"{self.actor} fences {before.ledger_id} {now - min(waited):.3f} s"
                    " after the first of its bookies was lost"
                )  # fmt: skip

    # --- what happens -----------------------------------------------------------------------------

    def lose(self, host: BookieHost) -> None:
        """Let a bookie and its disk go for good."""
        self.say(f"--- {host.name} is lost for good")
        self.happen("bookie lost for good")
        host.is_wanted = False
        self.lost[host.bookie_id] = None
        if host.bookie_id in self.away:
            self.gone[host.bookie_id] = self.away[host.bookie_id]
        self.crash_bookie(host)

    def crash_bookie(self, host: BookieHost) -> None:
        """Let the machine of a bookie fail, and with it the worker beside the bookie."""
        host.crash(power=True)
        for healer in self.healers:
            if healer.bookie is host:
                healer.crash()

    def set_switch(self, *, is_on: bool) -> None:
        path = f"{ROOT}/underreplication/disable"
        if is_on:
            self._delete(path)
        elif self.store_server.tree.exists(path) is None:
            self.happen("AutoRecovery off for a while")
            self._write([Create(path)])

    def set_delay(self, delay_s: int) -> None:
        self.happen("lost bookies are waited for")
        path = f"{ROOT}/underreplication/lostBookieRecoveryDelay"
        self._write([Create(path, b"%d" % delay_s)], make_parents=True)

    def delete_ledger(self, ledger_id: int) -> None:
        self._delete(ledger_path(ROOT, Layout.HIERARCHICAL, ledger_id))

    def _on_message(self, message: Message) -> None:
        super()._on_message(message)
        if message.kind == "recovery add" and message.client.startswith("heal"):
            bookie_id = self.host(message.bookie).bookie_id
            since = self.read_only.get(bookie_id)
            ledger = self.ledgers_by_id.get(message.ledger_id)
            metadata = None if ledger is None else ledger.history.metadata
            # A recovery adds to the members that there are; a copy chooses.
            is_copy = metadata is not None and metadata.is_closed
            if is_copy and since is not None and self.loop.time() - since > NOTICE_S:
                raise CheckError("target", f"{message.client} copies to {bookie_id}: read-only")
