"""RecoveryWorld: the ledger world, with AutoRecovery processes and bookies that go for good.

The product's own code runs: auditors, workers, bookies, clients. What they write to the metadata
store is judged at the moment of writing, against what the world knows: which bookies are gone, or
read-only, which entries each bookie has taken.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bookie.config import AutoRecoveryConfig, BookieConfig
from bookie.ledger.distribution import write_set
from bookie.ledger.types import LedgerMetadata, LedgerState, Status
from bookie.lifecycle.codec import record_from_bytes
from bookie.lifecycle.states import ACTIVE, LifecycleRecord, LifecycleState
from bookie.metadata.interfaces import Check, Create, Delete, Write
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.memory import MemoryStore
from tests.sim.ledger.checkers import CheckError
from tests.sim.ledger.wire import Message
from tests.sim.ledger.world import ROOT, Ledger, LoopClock, WatchedStoreServer, World
from tests.sim.recovery.checkers import RecoveryHistory
from tests.sim.recovery.hosts import HealerHost, RecoveryBookieHost
from tests.sim.recovery.plan import RecoveryPlan

TASKS = f"{ROOT}/underreplication/ledgers/"
LOCKS = f"{ROOT}/underreplication/locks/"
VOTES = f"{ROOT}/underreplication/auditorelection/"
AVAILABLE = f"{ROOT}/available/"
READ_ONLY = f"{ROOT}/available/readonly/"
COOKIES = f"{ROOT}/cookies/"
NOTICE_S = 0.5
"""After so long every client that is connected knows of a change."""


class JudgingStoreServer(WatchedStoreServer):
    """Tells the world of each change, and of nodes that end with a session."""

    world: "RecoveryWorld"

    def change(self, session: Any, operations: Any, *, make_parents: bool = False) -> list[str]:
        world = self.world
        owner = getattr(session.store._link, "owner", "world")
        world.actor = owner
        is_leading = world.leads(session.session_id)
        locked = dict(world.locked)  # a task goes with its lock
        paths = super().change(session, operations, make_parents=make_parents)
        for path, operation in zip(paths, operations, strict=True):
            if isinstance(operation, Check):
                continue
            world.on_change(owner, path, operation, locked, is_leading=is_leading)
        return paths

    def _end(self, session: Any) -> None:
        gone = self.tree.ephemerals_of(session.session_id)
        super()._end(session)
        for path in gone:
            self.world.on_gone(path)


class RecoveryWorld(World):
    """See the module."""

    LOCKS = LOCKS
    hosts: list[RecoveryBookieHost]  # type: ignore[assignment]

    def __init__(
        self,
        seed: int,
        plan: RecoveryPlan,
        rng: random.Random,
        trace: Callable[[str], object] | None,
    ) -> None:
        self.recovery_plan = plan
        self.healers: list[HealerHost] = []
        super().__init__(seed, plan.world, rng, trace)
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
            poll_interval_s=plan.poll_interval_s,
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
        self.crippled: dict[str, None] = {}
        """Bookies of which a directory is lost: they do not say what they do not have."""
        self.cookieless: dict[str, None] = {}
        self.records: dict[str, LifecycleRecord] = {}
        """Of bookies that are not Active."""
        self.leaving: dict[str, float] = {}
        """Bookies for whose drain ledgers may be fenced, and since when they have to be left."""
        self.kept: dict[str, None] = {}
        """Drains that are going to be cancelled: their machines are not taken away."""
        self.given_up: dict[int, str] = {}
        """Ledgers of which an operator accepted the loss, and for which bookie."""
        self.copying: dict[tuple[str, str, int], None] = {}
        """Who copies to where, which ledger: until that is refused."""
        self.recovering: dict[tuple[str, int], None] = {}
        """Who has begun to recover which ledger."""
        self.awaited: list[tuple[str, str]] = []
        """Bookies and names of ledgers whose copies there are going to be collected."""
        self.by_hand: dict[str, bool] = {}
        """Processes that recover by hand, and whether they may fence."""
        self.on_recovery_added: list[Callable[[Message], object]] = []
        """Hear when a bookie has taken what a copy or a recovery adds."""
        self._healer_writes = 0

    # --- what is judged ---------------------------------------------------------------------------

    def leads(self, session_id: int) -> bool:
        """Whether a session has the lowest vote, or there is no vote at all."""
        votes = self._votes()
        if not votes:
            return False
        stat = self.store_server.tree.exists(VOTES + min(votes))
        return stat is not None and stat.ephemeral_owner == session_id

    def _votes(self) -> list[str]:
        """Return the names of the votes; their parent may not be there yet."""
        tree = self.store_server.tree
        return [] if tree.exists(VOTES[:-1]) is None else tree.children(VOTES[:-1])

    def on_change(
        self,
        owner: str,
        path: str,
        operation: Any,
        locked: Mapping[str, float],
        *,
        is_leading: bool,
    ) -> None:
        """Judge one operation of a change; locked: which ledgers were before it, since when."""
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
        elif path.startswith(COOKIES) and name == "state":
            self._on_state(owner, path, operation, is_leading=is_leading)
        elif path.startswith(COOKIES) and owner == "operator" and isinstance(operation, Delete):
            self._judge_left(name, "forgotten")
        elif path.startswith(LOCKS):
            if isinstance(operation, Create):
                self.locked[name] = now
                self.say(f"{owner} locks {name}")
                if b" collects " in operation.data:
                    self.happen("returned copy collected")
                    self._on_collection(owner, name)
            elif isinstance(operation, Delete):
                self.locked.pop(name, None)
        elif path.startswith(TASKS) and name.startswith("urL"):
            self.say(f"{owner}: task {name}: {type(operation).__name__}")
            if isinstance(operation, Create | Write):
                self.happen("task published")
                if not is_leading and not self._is_unsure(owner, int(name[3:])):
                    raise CheckError("auditor", f"{owner} publishes {name} and does not lead")
                self._lose_vote()
            elif isinstance(operation, Delete):
                self.happen("task done")
                self._judge_done(owner, int(name[3:]), locked.get(name, now))

    def _is_unsure(self, owner: str, ledger_id: int) -> bool:
        """Whether a worker wrote a ledger's metadata while it lost the lock: it publishes it."""
        services = (healer.service for healer in self.healers if healer.name == owner)
        found = any(s is not None and ledger_id in s.worker.unsure for s in services)
        if found:
            self.happen("published by a worker")
        return found

    def _on_collection(self, owner: str, name: str) -> None:
        """A bookie is about to remove a copy; slowly where an operator waits for that."""
        if (owner, name) in self.awaited:
            self.awaited.remove((owner, name))
            host = next(host for host in self.hosts if host.name == owner)
            host.storage_delay_s = 0.15

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
        votes = self._votes()
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
        metadata = self.metadata_of(ledger)
        for segment in metadata.segments:
            for bookie in segment.ensemble:
                if self.gone.get(bookie, float("inf")) < locked_at:
                    raise CheckError(
                        "task",
                        f"{owner} ends the task of {ledger_id}, but {bookie} is in {segment}",
                    )

    def is_copying(self, name: str) -> bool:
        """Whether a process copies ledgers: AutoRecovery, or an operator's."""
        return name.startswith("heal") or name in self.by_hand

    def judge_step(
        self, history: RecoveryHistory, before: LedgerMetadata, after: LedgerMetadata
    ) -> None:
        """Judge what a process that copies wrote to a ledger's metadata."""
        if before.state is not LedgerState.OPEN or after.state is LedgerState.OPEN:
            return
        may_fence = self.by_hand.get(self.actor)
        if may_fence is not None:
            self.happen("fenced by hand")
            if not may_fence:
                raise CheckError("grace", f"{self.actor} fences {before.ledger_id}: it may not")
            return
        now = self.loop.time()
        self.happen("fenced by a worker")
        # It decides by metadata read a moment ago; the writer may have replaced the bookie since.
        members = {
            bookie_id
            for ensemble, until in history.last_ensembles.items()
            if until > now - NOTICE_S
            for bookie_id in ensemble
        }
        since = [min(self.first_away.get(b, now), self.leaving.get(b, now)) for b in members]
        if now - min(since) < self.recovery_plan.grace_s * 0.99:
            raise CheckError(
                "grace",
                f"{self.actor} fences {before.ledger_id} {now - min(since):.3f} s after the first"
                " of its bookies was lost, or had to be left",
            )

    def _on_state(self, owner: str, path: str, operation: Any, *, is_leading: bool) -> None:
        """The lifecycle state of a bookie was written or removed."""
        bookie_id = path.split("/")[-2]
        if owner.startswith("heal") and not is_leading:
            raise CheckError("auditor", f"{owner} writes {path} and does not lead")
        if isinstance(operation, Delete):
            self.records.pop(bookie_id, None)
            return
        before = self.records.get(bookie_id, ACTIVE)
        record = self.records[bookie_id] = record_from_bytes(operation.data, path)
        self.say(f"{owner}: {bookie_id} is {record.state.value}: {record}")
        if before.state is LifecycleState.ACTIVE:
            self.happen("drain")
            others = [r for b, r in self.records.items() if b != bookie_id]
            if any(other.since_ms == record.since_ms for other in others):
                self.happen("two drains in one millisecond")
            if any(other.state is LifecycleState.DRAINING for other in others):
                self.happen("several drains at once")
        if record.is_admitted and not before.is_admitted and record.may_fence:
            self.leaving.setdefault(bookie_id, self.loop.time())
        if not record.is_admitted and record.reason:
            self.happen("drain that waits for others")
        if record.state is not before.state:
            if record.state is LifecycleState.DRAINING_FAILED:
                self.happen("drain failed")
            elif record.state is LifecycleState.DRAINED:
                self.happen("drained")
                for ledger_id in record.accepted_loss:
                    self.given_up[ledger_id] = bookie_id
                self._judge_drained(bookie_id)

    def _judge_left(self, bookie_id: str, what: str) -> None:
        """No ledger counts on what the bookie has."""
        for ledger in self.kept_ledgers():
            history = ledger.history
            for entry_id in history.entries_on(bookie_id):  # type: ignore[attr-defined]
                if self.counts_on(ledger, bookie_id, entry_id):
                    raise CheckError(
                        "drained",
                        f"{bookie_id} is {what}, and ledger {history.ledger_id} counts on its"
                        f" entry {entry_id}: {history.metadata}",
                    )

    def _judge_drained(self, bookie_id: str) -> None:
        """Nothing counts on the bookie; from here on its disk is as good as gone."""
        self._judge_left(bookie_id, "Drained")
        if bookie_id in self.kept:
            return
        for ledger in self.ledgers:
            ledger.history.forget(bookie_id)  # type: ignore[attr-defined]
        host = next(host for host in self.hosts if host.bookie_id == bookie_id)
        machine = host.machine_number

        def take_away() -> None:
            if host.machine_number == machine:
                self.take_away(host)

        self._call_later(self.rng.choice((0.0, 0.3, 0.8)), take_away)

    def counts_on(self, ledger: Ledger, bookie_id: str, entry_id: int) -> bool:
        """Whether the metadata says that an entry is to be read from a bookie."""
        metadata = self.metadata_of(ledger)
        if metadata.is_closed and entry_id > metadata.last_entry_id:
            return False
        ensemble = metadata.segment_of(entry_id).ensemble
        indexes = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
        return bookie_id in [ensemble[index] for index in indexes]

    # --- what is known ----------------------------------------------------------------------------

    def kept_ledgers(self) -> list[Ledger]:
        """Return the ledgers that there are: created, not deleted, and not given up."""
        return [
            ledger
            for ledger in self.ledgers
            if (ledger_id := ledger.history.ledger_id) is not None
            and ledger_id not in self.deleted
            and ledger_id not in self.given_up
        ]

    def metadata_of(self, ledger: Ledger) -> LedgerMetadata:
        """Return the truth about a ledger that there is."""
        metadata = ledger.history.metadata
        assert metadata is not None
        return metadata

    def state_of(self, bookie_id: str) -> LifecycleState:
        return self.records.get(bookie_id, ACTIVE).state

    def is_admitted(self, bookie_id: str) -> bool:
        """Whether the drain of a bookie goes on, and waits for no other."""
        return self.records.get(bookie_id, ACTIVE).is_admitted

    def names_loss(self, bookie_id: str) -> bool:
        """Whether a ledger that was given up for another bookie names this one, too."""
        return any(
            ledger.history.ledger_id in self.given_up
            and ledger.history.ledger_id not in self.deleted
            and any(bookie_id in s.ensemble for s in self.metadata_of(ledger).segments)
            for ledger in self.ledgers
        )

    def ledgers_naming(self, bookie_id: str) -> list[Ledger]:
        return [
            ledger
            for ledger in self.kept_ledgers()
            if any(bookie_id in s.ensemble for s in self.metadata_of(ledger).segments)
        ]

    def is_hopeless(self, ledger: Ledger) -> bool:
        """Whether too few members of an open last segment are left to recover it.

        Of a stale creator's ledger more may be gone than those that losses took: it may name
        bookies that were Drained before it was made.
        """
        metadata = self.metadata_of(ledger)
        if metadata.is_closed:
            return False
        ensemble = metadata.last_segment.ensemble
        gone = [b in self.lost or b in self.crippled for b in ensemble]
        return any(
            sum(gone[i] for i in write_set(e, len(ensemble), metadata.write_quorum_size))
            >= metadata.ack_quorum_size
            for e in range(len(ensemble))
        )

    def is_taken_out(self, bookie_id: str) -> bool:
        """Whether a bookie is Drained, or was forgotten: no ledger may come to count on it."""
        return not self.is_known(bookie_id) or self.state_of(bookie_id) is LifecycleState.DRAINED

    def is_known(self, bookie_id: str) -> bool:
        """Whether the cluster has a cookie of a bookie."""
        return self.store_server.tree.exists(COOKIES + bookie_id) is not None

    def store_of(self, name: str) -> MemoryStore | None:
        """Return the metadata client of a process that heals, recovers or writes."""
        for process in (*self.healers, *self.clients):
            if process.name == name:
                return process.store
        return None

    def may_be_left(self, ledger_id: int) -> bool:
        """Whether nothing is asked of a ledger any more."""
        ledger = self.ledgers_by_id[ledger_id]
        return ledger not in self.kept_ledgers() or self.is_hopeless(ledger)

    def can_be_left(self, bookie_id: str) -> bool:
        """Whether every ledger that names a bookie can be recovered."""
        return not any(map(self.is_hopeless, self.ledgers_naming(bookie_id)))

    def task_paths(self) -> list[str]:
        """Return the paths of all tasks."""
        tree = self.store_server.tree
        found: list[str] = []

        def walk(path: str) -> None:
            for name in tree.children(path):
                if name.startswith("urL"):
                    found.append(f"{path}/{name}")
                else:
                    walk(f"{path}/{name}")

        if tree.exists(TASKS[:-1]) is not None:
            walk(TASKS[:-1])
        return found

    def are_members_registered(self, ledger_id: int) -> bool:
        ledger = self.ledgers_by_id.get(ledger_id)
        if ledger is None or ledger.history.metadata is None:
            return False
        tree = self.store_server.tree
        members = {b for segment in ledger.history.metadata.segments for b in segment.ensemble}
        return all(any(tree.exists(p + b) for p in (AVAILABLE, READ_ONLY)) for b in members)

    # --- what happens -----------------------------------------------------------------------------

    def make_host(self, number: int) -> RecoveryBookieHost:
        return RecoveryBookieHost(self, number)

    def bookie_config(self, name: str) -> BookieConfig:
        plan = self.recovery_plan
        return replace(
            super().bookie_config(name),
            flush_interval_s=plan.flush_interval_s,
            gc_interval_s=plan.returned_copy_wait_s / 2,
            returned_copy_wait_s=plan.returned_copy_wait_s,
        )

    def store_trouble(self, owner: str, path: str, *, is_write: bool) -> float:
        if is_write and self.is_rough and owner.startswith("heal"):
            self._healer_writes += 1
            if self._healer_writes in self.recovery_plan.death_writes:
                healer = next(one for one in self.healers if one.name == owner)
                self.happen("auditor or worker dies at a write")
                self._call_later(0.002 * self.draw(), healer.crash)
        trouble = super().store_trouble(owner, path, is_write=is_write)
        return min(0.4, trouble * 4) if is_write and owner == "operator" else trouble

    def on_lost_write(self, owner: str, path: str) -> None:
        super().on_lost_write(owner, path)
        if owner == "operator":
            self.happen("lost answer to an operator")
        elif owner.startswith("heal"):
            self.happen("lost answer to an auditor or worker")

    def lose(self, host: RecoveryBookieHost) -> None:
        """Let a bookie and its disk go for good."""
        self.say(f"--- {host.name} is lost for good")
        self.happen("bookie lost for good")
        host.is_wanted = False
        self.lost[host.bookie_id] = None
        if host.bookie_id in self.away:
            self.gone[host.bookie_id] = self.away[host.bookie_id]
        host.crash(power=True)

    def lose_directory(self) -> None:
        """Let a disk fail, most of all where it has entries of a ledger that is not closed."""
        hosts = [host for host in self.hosts if host.is_up and host.bookie_id not in self.lost]
        open_ones = [
            self.metadata_of(ledger).last_segment.ensemble
            for ledger in self.kept_ledgers()
            if not self.metadata_of(ledger).is_closed and ledger.history.acknowledged
        ]
        open_ones.sort(key=len)  # of few members each counts most
        members = [host for host in hosts if host.bookie_id in (open_ones or [()])[0]]
        host = self.rng.choice(members or hosts)
        self.say(f"--- {host.name} loses a directory")
        self.happen("directory lost")
        self.crippled[host.bookie_id] = None
        host.restart_s = self.rng.choice((0.01, 0.3))
        host.lose_directory()

    def lose_cookie(self, host: RecoveryBookieHost) -> None:
        """A tool deletes the cookie of a bookie that runs: it must not go on, nor come back."""
        path = COOKIES + host.bookie_id
        if self.store_server.tree.children(path):
            return  # it drains: the tool is refused
        self.say(f"--- the cookie of {host.name} is deleted")
        self.happen("cookie deleted")
        self.lost[host.bookie_id] = self.cookieless[host.bookie_id] = None
        host.is_wiped = True
        if host.bookie_id in self.away:
            self.gone[host.bookie_id] = self.away[host.bookie_id]
        self._delete(path)

    def take_away(self, host: RecoveryBookieHost) -> None:
        """Take away the machine of a Drained bookie, and delete its disks."""
        self.say(f"--- the machine of {host.name} is taken away")
        host.is_wanted = False
        self.lost[host.bookie_id] = None
        self.crippled.pop(host.bookie_id, None)
        if host.bookie_id in self.away:
            self.gone[host.bookie_id] = self.away[host.bookie_id]
        host.crash(power=True)

    def install(self, host: RecoveryBookieHost) -> None:
        """Let a bookie that was removed come back as a new one with the same id.

        On another machine: what is left of the old one goes before.
        """
        self.take_away(host)
        self.say(f"--- {host.name} is installed anew")
        self.happen("removed bookie installed anew")
        for known in (self.lost, self.gone, self.leaving):
            known.pop(host.bookie_id, None)
        host.install()

    def set_switch(self, *, is_on: bool) -> None:
        path = f"{ROOT}/underreplication/disable"
        if is_on:
            self._delete(path)
        elif self.store_server.tree.exists(path) is None:
            self.happen("AutoRecovery off for a while")
            self._write([Create(path)], make_parents=True)

    def set_delay(self, delay_s: int) -> None:
        self.happen("lost bookies are waited for")
        path = f"{ROOT}/underreplication/lostBookieRecoveryDelay"
        self._write([Create(path, b"%d" % delay_s)], make_parents=True)

    def delete_ledger(self, ledger_id: int) -> None:
        self._delete(ledger_path(ROOT, Layout.HIERARCHICAL, ledger_id))

    def _on_message(self, message: Message) -> None:
        super()._on_message(message)
        if message.status is Status.OK and message.kind in ("add reply", "recovery add reply"):
            self._on_taken(message)
            if message.kind == "recovery add reply":
                for callback in list(self.on_recovery_added):
                    callback(message)
        elif message.status is Status.READ_ONLY and message.kind == "recovery add reply":
            bookie_id = self.host(message.bookie).bookie_id
            self.copying.pop((message.client, bookie_id, message.ledger_id), None)
        if message.kind == "fence" and self.is_copying(message.client):
            self.recovering[message.client, message.ledger_id] = None
        if message.kind == "recovery add" and self.is_copying(message.client):
            bookie_id = self.host(message.bookie).bookie_id
            since = self.read_only.get(bookie_id)
            ledger = self.ledgers_by_id.get(message.ledger_id)
            metadata = None if ledger is None else ledger.history.metadata
            # A recovery adds to the members that there are, although another one has closed the
            # ledger meanwhile; a copy chooses.
            is_copy = (
                ledger is not None
                and metadata is not None
                and metadata.is_closed
                and not (
                    (message.client, message.ledger_id) in self.recovering
                    and self.counts_on(ledger, bookie_id, message.entry_id)
                )
            )
            copy = (message.client, bookie_id, message.ledger_id)
            if since is None or self.loop.time() - since < NOTICE_S:
                self.copying[copy] = None
            elif is_copy and copy not in self.copying:
                raise CheckError("target", f"{message.client} copies to {bookie_id}: read-only")

    def _on_taken(self, message: Message) -> None:
        """A bookie took an entry: none does that is Drained."""
        bookie_id = self.host(message.bookie).bookie_id
        ledger = self.ledgers_by_id.get(message.ledger_id)
        if ledger is None or self.state_of(bookie_id) is not LifecycleState.DRAINED:
            return
        if self.counts_on(ledger, bookie_id, message.entry_id):
            raise CheckError(
                "drained",
                f"{bookie_id} is Drained, and takes entry {message.entry_id} of ledger"
                f" {message.ledger_id}",
            )
        if bookie_id not in self.kept:
            ledger.history.forget(bookie_id)  # type: ignore[attr-defined]
