"""Drains of a small cluster from one seed: bookies, writers, workers, auditors and operators.

The product's own parts run unmodified: Registration, LifecycleWatch, the rule of what a bookie
takes, LedgerWriter, LedgerManager, DrainCoordinator, Operations. Simulated are the bookies' disks
(a dict), the way to them, and the workers that copy. The checker asks no machine: it deletes the
disk of each bookie when its state becomes Drained, and in the end reads every acknowledged entry of
every ledger from the bookies that its metadata names.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bookie.autorecovery.tasks import TaskStore
from bookie.client.writer import LedgerWriter
from bookie.config import ClientConfig
from bookie.errors import (
    BadVersionError,
    BookieError,
    IllegalOperationError,
    MetadataVersionError,
    NodeExistsError,
    NoNodeError,
)
from bookie.ledger.codec import EntryDigest, header_of
from bookie.ledger.distribution import write_set
from bookie.ledger.metadata_codec import decode
from bookie.ledger.placement import RandomPlacement
from bookie.ledger.types import (
    BookieId,
    DigestType,
    EntryId,
    LedgerId,
    LedgerMetadata,
    Segment,
    Status,
)
from bookie.lifecycle.codec import record_from_bytes
from bookie.lifecycle.coordinator import DrainCoordinator
from bookie.lifecycle.operations import Operations
from bookie.lifecycle.states import LifecycleRecord, LifecycleState
from bookie.lifecycle.store import LifecycleStore
from bookie.metadata.bookies import BookieDirectory
from bookie.metadata.cluster import initialize
from bookie.metadata.cookies import Cookie, CookieStore
from bookie.metadata.interfaces import Check, Create
from bookie.metadata.ledger_paths import Layout, ledger_path
from bookie.metadata.ledgers import LedgerManager
from bookie.metadata.memory import Fate, MemoryStore, MemoryStoreServer, Plan
from bookie.metadata.registration import Registration
from bookie.metadata.service_info import ServiceInfo
from bookie.server.bookie import Admission
from bookie.server.lifecycle_watch import LifecycleWatch
from bookie.server.serving import admission_of
from tests.fixtures.metadata import SeededRng
from tests.sim.ledger.world import LoopClock
from tests.sim.loop import SimulatedLoop

ROOT = "/ledgers"
BOOKIES = 7
CHAOS_S = 14.0
CALM_S = 200.0
_TASKS = f"{ROOT}/underreplication/ledgers"
_LOCKS = f"{ROOT}/underreplication/locks"
_VOTE = f"{ROOT}/underreplication/auditorelection/V_0"


class BrokenPromiseError(AssertionError):
    """What the checkers raise."""


class Link:
    """The way of one client to the metadata store."""

    def __init__(self, rng: random.Random, broken: float, slow_s: float) -> None:
        self._rng = rng
        self.broken = broken
        self._slow_s = slow_s

    def plan(self, session_id: int, path: str, *, is_write: bool) -> Plan:
        fate = Fate.ANSWERED
        if self._rng.random() < self.broken:
            fate = self._rng.choice([Fate.LOSE_ANSWER, Fate.LOSE_REQUEST])
        return Plan(
            request_s=self._rng.random() * 0.003,
            answer_s=self._rng.random() * 0.003,
            fate=fate,
            reconnect_s=self._rng.random() * 0.2,
            lag_s=self._rng.choice([0.0, 1.0, 20.0]),
        )

    def event_s(self, session_id: int, path: str) -> float:
        return self._rng.random() * self._slow_s


class SimBookie:
    """One bookie: the product's registration and lifecycle watch over a dict of entries."""

    def __init__(self, world: "World", bookie_id: BookieId) -> None:
        self.world = world
        self.bookie_id = bookie_id
        self.entries: dict[tuple[int, int], bytes] = {}
        self.is_up = False
        self.is_gone = False
        self.admission = Admission.NONE
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closers: list[Any] = []

    async def start(self) -> None:
        """Start with what the disk has; the cookie is there or made."""
        world = self.world
        store = world.client(slow_s=world.rng.choice([0.01, 0.5, 3.0]))
        self.is_gone = False
        self.admission = Admission.NONE
        if not self.entries:
            cookie = Cookie(self.bookie_id, ("/j",), ("/l",), None)
            try:
                await CookieStore(store, ROOT).write(self.bookie_id, cookie, None)
            except MetadataVersionError:
                pass  # it has one
        watch = LifecycleWatch(store, ROOT, self.bookie_id, None, self._on_state, self._on_gone)
        await watch.start()
        registration = Registration(store, ROOT, self.bookie_id, ServiceInfo(()), owner_wait_s=30.0)
        self._closers = [watch.close, registration.close, store.close]
        if self.is_gone:
            await self._close()
            return
        self.is_up = True
        await registration.start(is_read_only=self.admission is not Admission.ALL)
        self._tasks = [world.loop.create_task(self._follow(registration))]

    def _on_state(self, record: LifecycleRecord | None) -> None:
        self.admission = admission_of(record)
        self._changed.set()

    def _on_gone(self) -> None:
        self.is_gone = True
        self.admission = Admission.NONE
        self.world.say("gone", self.bookie_id)
        if self.is_up:
            self.world.tasks.append(self.world.loop.create_task(self.stop()))

    async def _follow(self, registration: Registration) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await registration.set_read_only(self.admission is not Admission.ALL)

    async def stop(self) -> None:
        if not self.is_up:
            return
        self.is_up = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        for close in self._closers:
            await close()
        self._closers = []

    def add(self, ledger_id: int, entry_id: int, packet: bytes) -> Status:
        """Take an ordinary add, or refuse it."""
        if not self.is_up:
            return Status.UNAVAILABLE
        if self.admission is not Admission.ALL:
            return Status.READ_ONLY
        self.world.took(self)
        self.entries[ledger_id, entry_id] = packet
        return Status.OK


class SimChannels:
    """What a LedgerWriter needs of Channels: adds, each with delays of its own."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def add(
        self,
        bookies: tuple[BookieId, ...],
        ledger_id: int,
        entry_id: int,
        master_key: bytes,
        packet: Any,
        on_done: Callable[[BookieId, Status], None],
        *,
        is_recovery: bool = False,
        is_deferred_sync: bool = False,
    ) -> None:
        world = self._world

        def arrive(name: BookieId) -> None:
            status = world.bookies[name].add(ledger_id, entry_id, bytes(packet))
            world.loop.call_later(world.rng.random() * 0.02, on_done, name, status)

        for name in bookies:
            world.loop.call_later(world.rng.random() * 0.02, arrive, name)

    def break_count(self, bookie: BookieId, ledger_id: int) -> int:
        return 0


class SimStatus(NamedTuple):
    ledger_id: int
    reason: str
    is_loss: bool
    failure_count: int
    time_ms: int


class SimTasks:
    """Tasks in the store, one flat node for each ledger: what a DrainCoordinator needs."""

    def __init__(self, store: MemoryStore, reports: dict[int, SimStatus]) -> None:
        self._store = store
        self._reports = reports

    async def is_enabled(self) -> bool:
        return True

    async def ledger_ids(self) -> AsyncIterator[int]:
        while True:
            try:
                names = await self._store.children(_TASKS)
                break
            except BookieError:
                await asyncio.sleep(0.1)
        for name in names:
            yield int(name.removeprefix("urL"))

    async def statuses(self) -> Sequence[SimStatus]:
        return list(self._reports.values())

    async def holders(self, ledger_ids: Collection[int]) -> Mapping[int, str]:
        return await TaskStore(self._store, ROOT).holders(ledger_ids)

    async def publish(
        self, ledger_id: int, missing: Sequence[BookieId], now_ms: int, guard: Sequence[Check]
    ) -> None:
        try:
            await self._store.multi([*guard, Create(f"{_TASKS}/urL{ledger_id:010d}", b"x")])
        except NodeExistsError:
            pass


class World:
    """One seed; run() raises what the checkers find."""

    def __init__(self, seed: int, say: Callable[[str], object] | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self._say = say
        self.counts: dict[str, int] = {}
        self.trace: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.alive_writers: set[int] = set()
        self.reports: dict[int, SimStatus] = {}
        """Ledgers of which a worker found no copy of some entry."""
        self.drained: dict[BookieId, None] = {}
        self.kept: set[BookieId] = set()
        """Drains that an operator may cancel: their disks are not deleted."""
        self.cookieless_since: dict[BookieId, float] = {}
        self.is_calm = False

    def say(self, what: str, *about: object) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        line = f"{self.loop.time():9.3f} {what} {' '.join(map(str, about))}"
        self.trace.append(line)
        if self._say is not None:
            self._say(line)

    def run(self) -> None:
        self.loop = SimulatedLoop(self.seed)
        try:
            self.loop.run_until_complete(self._main(), time_limit_s=3600)
        finally:
            self.loop.close()

    def client(self, slow_s: float = 0.05) -> MemoryStore:
        broken = 0.0 if self.is_calm else self.rng.choice([0.0, 0.002, 0.01])
        link = Link(random.Random(self.rng.getrandbits(64)), broken, slow_s)
        self.links.append(link)
        store = MemoryStore(self.server, link)
        self.stores.append(store)
        return store

    async def _main(self) -> None:
        self.clock = LoopClock(self.loop)
        self.server = MemoryStoreServer(self.clock, session_timeout_s=4.0)
        self.links: list[Link] = []
        self.stores: list[MemoryStore] = []
        self.direct = MemoryStore(self.server)
        await initialize(self.direct, rng=SeededRng(1))
        for path in (_TASKS, _LOCKS, _VOTE):
            await self.direct.create(path, make_parents=True)
        names = [BookieId(f"b{i}:3181") for i in range(BOOKIES)]
        self.bookies = {name: SimBookie(self, name) for name in names}
        for bookie in self.bookies.values():
            await bookie.start()
        create = self.loop.create_task
        self.tasks += [create(self._writer(i)) for i in range(4)]
        self.tasks += [create(self._worker(i)) for i in range(2)]
        if self.rng.random() < 0.4:
            self.tasks.append(create(self._foreign_worker()))
        self.tasks += [create(self._auditors()), create(self._operator()), create(self._watch())]
        await asyncio.sleep(CHAOS_S)
        self.is_calm = True
        for link in self.links:
            link.broken = 0.0
        end_s = self.loop.time() + CALM_S
        await asyncio.sleep(15)
        is_draining = True
        while is_draining and self.loop.time() < end_s:
            await asyncio.sleep(1)
            is_draining = "Draining" in map(self.state, self.bookies)
        await asyncio.sleep(5)
        self._check()
        await self._read_all()
        for task in self.tasks:
            task.cancel()
        for result in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
                raise result
        for bookie in self.bookies.values():
            await bookie.stop()
        for store in [*self.stores, self.direct]:
            await store.close()

    # --- writers ----------------------------------------------------------------------------------

    async def _writer(self, number: int) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        store = self.client(slow_s=rng.choice([0.05, 1.0, 4.0]))
        directory = BookieDirectory(store, ROOT)
        await directory.start()
        ledgers = LedgerManager(store, ROOT, SeededRng(rng.getrandbits(32)), self.clock)
        while not self.is_calm:
            writable = directory.writable
            await asyncio.sleep(rng.choice([0.0, 0.1, 2.0]))  # a stale creator
            try:
                await self._write_ledger(rng, ledgers, directory, writable)
            except (BookieError, ValueError) as error:
                self.say("writer failed", number, type(error).__name__)
                await asyncio.sleep(0.5)
        await directory.close()

    async def _write_ledger(
        self,
        rng: random.Random,
        ledgers: LedgerManager,
        directory: BookieDirectory,
        writable: tuple[BookieId, ...],
    ) -> None:
        quorums = rng.choice([(3, 3, 2), (3, 2, 2), (2, 2, 1)])
        metadata, version = await ledgers.create(
            LedgerMetadata(
                ledger_id=LedgerId(-1),
                ensemble_size=quorums[0],
                write_quorum_size=quorums[1],
                ack_quorum_size=quorums[2],
                segments=(Segment(EntryId(0), tuple(rng.sample(writable, quorums[0]))),),
            )
        )
        ledger_id = metadata.ledger_id
        self.alive_writers.add(ledger_id)
        writer = LedgerWriter(
            SimChannels(self),  # type: ignore[arg-type]
            ledgers,
            directory,
            RandomPlacement(SeededRng(rng.getrandbits(32))),
            metadata,
            version,
            EntryDigest.of(DigestType.CRC32C, b""),
            ClientConfig(bookie_retry_s=1.0),
        )
        try:
            for _ in range(rng.randrange(1, 12)):
                entry_id = await writer.add(rng.randbytes(8))
                self.acknowledged[ledger_id, entry_id] = b""
                await asyncio.sleep(rng.choice([0.0, 0.05, 0.5]))
            if rng.random() < 0.7:
                await writer.close()
                self.say("closed", ledger_id)
            else:
                self.say("left open", ledger_id)
        finally:
            await writer.abandon()
            self.alive_writers.discard(ledger_id)

    # --- workers ----------------------------------------------------------------------------------

    async def _worker(self, number: int) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        store = self.client()
        ledgers = LedgerManager(store, ROOT, SeededRng(rng.getrandbits(32)), self.clock)
        states = LifecycleStore(store, ROOT)
        directory = BookieDirectory(store, ROOT)
        await directory.start()
        while True:
            await asyncio.sleep(rng.random() * 0.5)
            try:
                names = await store.children(_TASKS)
                if not names:
                    continue
                name = rng.choice(names)
                path = f"{_LOCKS}/{name}"
                stat = await store.exists(path)
                if stat is None:
                    await store.create(path, b'bookieId: "w"\n', is_ephemeral=True)
                elif stat.ephemeral_owner != store.session_id:
                    continue
            except BookieError:
                continue
            try:
                ledger_id = int(name.removeprefix("urL"))
                registered = {*directory.writable, *directory.read_only}
                leaving = await states.leaving() | self.bookies.keys() - registered
                if await self._replicate(rng, ledgers, directory, ledger_id, leaving):
                    await store.delete(f"{_TASKS}/{name}")
                    self.say("replicated", ledger_id)
            except BookieError as error:
                self.say("worker failed", number, type(error).__name__)
            finally:
                try:
                    await store.delete(f"{_LOCKS}/{name}")
                except BookieError:
                    pass

    async def _replicate(
        self,
        rng: random.Random,
        ledgers: LedgerManager,
        directory: BookieDirectory,
        ledger_id: int,
        leaving: frozenset[BookieId],
    ) -> bool:
        """Copy what the leaving bookies have; True: none of them is named any more."""
        metadata, version = await ledgers.read(ledger_id)
        if not metadata.is_closed:
            if ledger_id in self.alive_writers:
                return False  # its writer replaces the bookie
            last = max((e for n, e in self.acknowledged if n == ledger_id), default=-1)
            metadata = metadata.closed(EntryId(last), 8 * (last + 1))
            version = await ledgers.write(metadata, version)
        for number, segment in enumerate(metadata.segments):
            for index, bookie in enumerate(segment.ensemble):
                if bookie not in leaving:
                    continue
                others = [
                    name
                    for name in directory.writable
                    if name not in segment.ensemble and name not in leaving
                ]
                if not others:
                    return False
                target = rng.choice(others)
                if not await self._copy(metadata, number, index, target):
                    return False
                ensemble = list(segment.ensemble)
                ensemble[index] = target
                segment = Segment(segment.first_entry_id, tuple(ensemble))
                segments = list(metadata.segments)
                segments[number] = segment
                metadata = replace(metadata, segments=tuple(segments))
                version = await ledgers.write(metadata, version)
        self.reports.pop(ledger_id, None)
        return True

    async def _copy(
        self, metadata: LedgerMetadata, number: int, index: int, target: BookieId
    ) -> bool:
        segments = metadata.segments
        segment = segments[number]
        end = metadata.last_entry_id
        if number + 1 < len(segments):
            end = EntryId(min(end, segments[number + 1].first_entry_id - 1))
        for entry_id in range(segment.first_entry_id, end + 1):
            members = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
            if index not in members:
                continue
            packet = None
            for i in members:
                source = self.bookies[segment.ensemble[i]]
                if source.is_up:
                    packet = source.entries.get((metadata.ledger_id, entry_id), packet)
            await asyncio.sleep(0.005)
            if packet is None:
                reason = f"no bookie that answers has entry {entry_id}"
                ledger_id = metadata.ledger_id
                before = self.reports.get(ledger_id)
                count = 1 if before is None else before.failure_count + 1
                now_ms = self.clock.wall_us() // 1000
                self.reports[ledger_id] = SimStatus(ledger_id, reason, True, count, now_ms)
                return False
            if self.bookies[target].add(metadata.ledger_id, entry_id, packet) is not Status.OK:
                return False
        return True

    async def _foreign_worker(self) -> None:
        """Take copies on read-only bookies for good, as Apache's worker does: remove the task."""
        rng = random.Random(self.rng.getrandbits(64))
        for _ in range(rng.randrange(1, 6)):
            await asyncio.sleep(rng.random() * 8)
            names = self.server.tree.children(_TASKS)
            if names:
                name = rng.choice(names)
                try:
                    await self.direct.delete(f"{_TASKS}/{name}")
                    self.say("cleared", name)
                except NoNodeError:
                    pass

    # --- auditors ---------------------------------------------------------------------------------

    async def _auditors(self) -> None:
        """One after the other, each for a while, as the vote's version says."""
        rng = random.Random(self.rng.getrandbits(64))
        while True:
            stat = await self.direct.write(_VOTE, b"", -1)
            store = self.client()
            coordinator = DrainCoordinator(
                store,
                ROOT,
                SimTasks(store, self.reports),
                [Check(_VOTE, stat.version)],
                SeededRng(rng.getrandbits(32)),
                self.clock,
                open_ledger_wait_s=2.0,
            )
            end_s = self.loop.time() + rng.choice([3.0, 15.0, 1000.0])
            while self.loop.time() < end_s:
                try:
                    async with asyncio.timeout_at(end_s):
                        await coordinator.round()
                        await self._publish_lost(store, stat.version)
                except TimeoutError:
                    self.say("auditor died")
                    break
                except BadVersionError as error:
                    raise BrokenPromiseError("an auditor was deposed by none") from error
                except BookieError as error:
                    self.say("round failed", type(error).__name__)
                await asyncio.sleep(1.0 if self.is_calm else rng.choice([0.05, 0.2, 1.0]))
            await store.close()

    async def _publish_lost(self, store: MemoryStore, version: int) -> None:
        """Do what an auditor does about bookies that are not registered."""
        directory = BookieDirectory(store, ROOT)
        try:
            await directory.start()
            registered = {*directory.writable, *directory.read_only}
        finally:
            await directory.close()
        ledgers = LedgerManager(store, ROOT, SeededRng(5), self.clock)
        tasks = SimTasks(store, self.reports)
        async for ledger_id in ledgers.ledger_ids():
            metadata, _ = await ledgers.read(ledger_id)
            members = {b for segment in metadata.segments for b in segment.ensemble}
            if not members <= registered:
                await tasks.publish(ledger_id, [], 0, [Check(_VOTE, version)])

    # --- operators --------------------------------------------------------------------------------

    async def _operator(self) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        asked = Operations(self.direct, ROOT, SeededRng(2), self.clock)
        names = list(self.bookies)
        await asyncio.sleep(rng.random() * 6)
        count = rng.choice([1, 1, 2, 2, 3])
        going = rng.sample(names, count)
        self.tasks += [self.loop.create_task(self._drain(asked, rng, name)) for name in going]
        if rng.random() < 0.15:
            # A cookie that a tool deletes under a running bookie.
            name = rng.choice([name for name in names if name not in going])
            await asyncio.sleep(rng.random() * 6)
            await self.direct.delete(f"{ROOT}/cookies/{name}")
            self.cookieless_since[name] = self.loop.time()
            self.say("cookie deleted", name)

    async def _drain(self, asked: Operations, rng: random.Random, name: BookieId) -> None:
        bookie = self.bookies[name]
        if rng.random() < 0.3:
            await bookie.stop()
            self.say("down", name)
        is_cancelled = rng.random() < 0.2
        if is_cancelled:
            self.kept.add(name)
        await asked.drain(name, "operator")
        self.say("drain", name)
        if not bookie.is_up and (rng.random() < 0.7 or name in self.kept):
            await asyncio.sleep(rng.random() * 5)
            await bookie.start()
            self.say("up", name)
        if is_cancelled:
            await asyncio.sleep(rng.random() * 4)
            await asked.cancel(name)
            self.kept.discard(name)
            self.say("cancel", name)
            return
        while name not in self.drained:
            if self.state(name) == "DrainingFailed":
                if not bookie.is_up:
                    await bookie.start()  # what only it has can be read again
                await asked.drain(name, "operator")
                self.say("retry", name)
            await asyncio.sleep(0.1)
        if rng.random() < 0.5:
            await bookie.stop()
            try:
                await asked.remove(name)
            except IllegalOperationError as error:
                self.say("not removed", name, error)
                return
            self.say("removed", name)
            if rng.random() < 0.5:
                del self.drained[name]
                self.bookies[name] = fresh = SimBookie(self, name)
                await fresh.start()
                self.say("reinstalled", name)

    # --- checkers ---------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Delete the disk of each bookie in the moment in which it is Drained."""
        while True:
            for name, bookie in self.bookies.items():
                if name in self.drained or name in self.kept or self.state(name) != "Drained":
                    continue
                self.drained[name] = None
                self.say("drained", name, len(bookie.entries))
                self._check_unnamed(name)
                bookie.entries.clear()
            await asyncio.sleep(0.02)

    def _check_unnamed(self, name: BookieId) -> None:
        """Check that no ledger counts on what a bookie has that has just become Drained."""
        held = self.bookies[name].entries
        for ledger_id, entry_id in self.acknowledged:
            if (ledger_id, entry_id) not in held:
                continue
            path = ledger_path(ROOT, Layout.HIERARCHICAL, ledger_id)
            data, stat = self.server.tree.read(path)
            metadata = decode(LedgerId(ledger_id), data, stat.ctime_ms)
            segment = metadata.segment_of(entry_id)
            members = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
            if name in [segment.ensemble[i] for i in members]:
                raise BrokenPromiseError(
                    f"{name} is Drained, and ledger {ledger_id} counts on its entry {entry_id}"
                )

    def state(self, name: BookieId) -> str:
        path = f"{ROOT}/cookies/{name}/state"
        try:
            data, _ = self.server.tree.read(path)
        except NoNodeError:
            return LifecycleState.ACTIVE.value
        return record_from_bytes(data, path).state.value

    def took(self, bookie: SimBookie) -> None:
        """Check that a bookie may take an add now."""
        since = self.cookieless_since.get(bookie.bookie_id)
        if since is not None and self.loop.time() - since > 20.0:
            raise BrokenPromiseError(f"{bookie.bookie_id} takes adds long after its cookie went")

    def _check(self) -> None:
        for name, bookie in self.bookies.items():
            if name in self.cookieless_since and bookie.is_up:
                raise BrokenPromiseError(f"{name} runs although its cookie is gone")
            state = self.state(name)
            if state in ("Draining", "DrainingFailed"):
                data, _ = self.server.tree.read(f"{ROOT}/cookies/{name}/state")
                if any(lost in data.decode() for lost in self.cookieless_since):
                    self.say("waits for a lost one", name)
                    continue
                raise BrokenPromiseError(f"{name} drains for ever: {data.decode()}")
            self.say(f"ends {state}")

    async def _read_all(self) -> None:
        ledgers = LedgerManager(self.direct, ROOT, SeededRng(3), self.clock)
        for ledger_id, entry_id in self.acknowledged:
            metadata, _ = await ledgers.read(ledger_id)
            segment = metadata.segment_of(entry_id)
            members = write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size)
            copies = [self.bookies[segment.ensemble[i]].entries for i in members]
            packets = [
                held[ledger_id, entry_id] for held in copies if (ledger_id, entry_id) in held
            ]
            if not packets or header_of(packets[0]).entry_id != entry_id:
                raise BrokenPromiseError(
                    f"ledger {ledger_id} entry {entry_id} is lost: {segment.ensemble}"
                )
