"""Lives of one bookie's storage: random work, power failures in any step of the disk, checks.

One seed is one history: a client's adds, fences, explicit LACs and reads, checkpoints, collection
and compaction, and in each life but the last a crash in a random step of the disk or the index.
After each crash the next life opens what is left and everything that was answered is asked for.

What must hold: an acknowledged entry is read back as one of the packets that were sent for it, and
never as anything else; an acknowledged fence holds, with the key it was made with; an acknowledged
explicit LAC is not forgotten; what a ledger's metadata still knows is never collected; the bookie
always opens.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from struct import pack
from typing import Any

from bookie.config import BookieConfig
from bookie.errors import NoSuchLedgerMetadataError
from bookie.ledger.types import Status
from bookie.server.bookie import Bookie
from bookie.server.interfaces import BytesLike
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.memory_index import MemoryIndex
from bookie.server.storage.recovery import rebuild_index
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.loop import Node, SimulatedExecutor, SimulatedLoop

CONFIG = BookieConfig(
    journal_bytes_max=1 << 20,
    journal_preallocation_bytes=1 << 15,
    write_cache_bytes_max=1 << 16,
    entry_log_bytes_max=1 << 17,
    read_cache_bytes_max=1 << 15,
    flush_interval_s=0.5,
    compaction_bytes_per_s=1 << 30,
)
LEDGERS = 6
_OPERATIONS = ["add"] * 60 + ["burst"] * 6 + ["fence"] * 2 + ["lac"] * 5 + ["read"] * 12
_OPERATIONS += ["checkpoint"] * 3 + ["delete"] * 2 + ["collect"] * 3 + ["compact"] * 3
_OPERATIONS += ["deferred"] * 4 + ["force"] * 2 + ["rewrite"] * 4 + ["sleep"] * 10


class LostError(AssertionError):
    """The bookie broke a promise."""


class SteppedIndex(MemoryIndex):
    """A MemoryIndex whose writes are steps of the disk, so that a crash may come between them."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__()
        self.disk = disk

    def put(
        self,
        locations: Any,
        ledgers: Any = (),
    ) -> None:
        self.disk._step("write", "index", lambda: MemoryIndex.put(self, locations, ledgers))

    def delete_ledger(self, ledger_id: int) -> None:
        self.disk._step("write", "index", lambda: MemoryIndex.delete_ledger(self, ledger_id))

    def sync(self) -> None:
        self.disk._step("sync", "index", lambda: MemoryIndex.sync(self))

    def after_crash(self, disk: SimulatedDisk, rng: random.Random) -> "SteppedIndex":
        crashed = self.crash(lambda count: rng.randrange(count + 1))
        fresh = SteppedIndex(disk)
        vars(fresh).update(vars(crashed))
        return fresh


class Facts:
    """What the outside knows: what was sent, and what was answered."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, int], list[bytes]] = {}
        self.acknowledged: dict[tuple[int, int], None] = {}
        self.fenced: dict[int, None] = {}
        self.fence_sent: dict[int, None] = {}
        self.lacs: dict[int, int] = {}
        self.keys: dict[int, bytes] = {}
        self.next_entry: dict[int, int] = {}
        self.deleted: dict[int, None] = {}
        self.deleted_before: dict[int, None] = {}  # this life: their fences may be forgotten (G17)
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # The API of a LedgerList: metadata knows every ledger that was not deleted.

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in list(self.keys):
            if ledger_id not in self.deleted:
                yield ledger_id

    async def read(self, ledger_id: int) -> object:
        if ledger_id in self.deleted or ledger_id not in self.keys:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        return self


class World:
    """One seed."""

    def __init__(self, seed: int, *, lives: int = 4, operations: int = 120) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.facts = Facts()
        self.lives = lives
        self.operations = operations
        self.first_ledger = 1
        self.config = replace(CONFIG, entry_log_bytes_max=1 << self.rng.choice([16, 17]))
        self.disk = SimulatedDisk(self.rng.getrandbits(64))
        self.index = SteppedIndex(self.disk)
        self.crash_steps: list[tuple[str, str]] = []
        self.step_counts: list[int] = []

    def run(self, crash_at: int | None = None) -> None:
        """Live all lives; crash_at: the step of the first life's crash, else random ones."""
        for life in range(self.lives):
            is_last = life == self.lives - 1
            disk = self.disk
            disk.trace = []
            if crash_at is not None and life == 0:
                disk.crash_at = crash_at
            elif not is_last and crash_at is None:
                # Some crashes come early, in the recovery from the crash before.
                most = self.rng.choice([12, 60, 250, 800])
                disk.crash_at = 1 + self.rng.randrange(most)
            self._live(is_last=is_last)
            self.step_counts.append(disk.step_count)
            if disk.open_paths and disk._end is None:
                raise LostError(f"files left open: {disk.open_paths}")
            if disk._end is not None:
                self.crash_steps.append(disk.trace[-1][:2])
                self.facts.count("crashes")
            is_power_lost = self.rng.random() < 0.8
            self.disk = disk.restart(is_power_lost=is_power_lost)
            if not is_power_lost:
                kept = SteppedIndex(self.disk)
                kept.__dict__.update({k: v for k, v in self.index.__dict__.items() if k != "disk"})
                self.index = kept
            else:
                self.index = self.index.after_crash(self.disk, self.rng)
            self.index.disk = self.disk
        self._check_rebuilt()

    def _check_rebuilt(self) -> None:
        """Compare the index with one that is made of the entry logs alone."""
        facts = self.facts
        rebuilt = MemoryIndex()
        report = rebuild_index([LedgerDirectory(self.disk)], rebuilt)
        if report.damage:
            raise LostError(f"rebuilding the index found damage: {report.damage}")
        logs = EntryLogs([LedgerDirectory(self.disk)])
        logs.open()
        for ids in facts.acknowledged:
            if ids[0] in facts.deleted:
                continue
            location = rebuilt.get(*ids)
            if location is None:
                raise LostError(f"the rebuilt index has no {ids}")
            # An unacknowledged packet of the same entry may be the newer one in the logs.
            if logs.read((location,))[0].body not in facts.sent[ids]:
                raise LostError(f"the rebuilt index points to bytes of {ids} that were never sent")
        for ledger_id in facts.keys:
            if ledger_id in facts.deleted or self.index.ledger(ledger_id) is None:
                continue
            record, known = rebuilt.ledger(ledger_id), self.index.ledger(ledger_id)
            if (
                record is None
                or record.master_key != known.master_key
                or record.is_fenced < known.is_fenced
                or record.last_add_confirmed < known.last_add_confirmed
            ):
                raise LostError(f"the rebuilt index says of ledger {ledger_id}: {record}")
        logs.close()

    def _live(self, *, is_last: bool) -> None:
        loop = SimulatedLoop(self.rng.getrandbits(64))
        try:
            node = loop.add_node("bookie")
            ended = loop.create_future()
            node.on_crash.append(lambda: ended.done() or ended.set_result(None))

            async def main() -> None:
                task = node.create_task(self._life(node, is_last=is_last))
                task.add_done_callback(lambda _: ended.done() or ended.set_result(None))
                await ended
                if node.is_alive:
                    task.result()

            loop.run_until_complete(main(), time_limit_s=3600)
        finally:
            loop.close()

    async def _life(self, node: Node, *, is_last: bool) -> None:
        rng = random.Random(self.rng.getrandbits(64))
        journal = SimulatedExecutor(lambda: rng.choice([0.0001, 0.001, 0.01]))
        storage = SimulatedExecutor(lambda: rng.choice([0.0, 0.001, 0.02]), 2)
        bookie = await Bookie.open(
            self.disk,
            self.index,
            SimulatedClock(),
            rng,  # type: ignore[arg-type]
            self.config,
            journal_executor=journal,  # type: ignore[arg-type]
            storage_executor=storage,  # type: ignore[arg-type]
        )
        self.facts.deleted_before = dict(self.facts.deleted)
        await self._check(bookie)
        if not is_last:
            for _ in range(self.operations):
                await self._operate(bookie, rng, node.loop)
        await asyncio.sleep(0.1)
        await bookie.close()

    # --- operations ------------------------------------------------------------------------------

    async def _operate(self, bookie: Bookie, rng: random.Random, loop: SimulatedLoop) -> None:
        facts = self.facts
        operation = rng.choice(_OPERATIONS)
        facts.count(operation)
        ledger_id = self.first_ledger + rng.randrange(LEDGERS)
        if operation in ("add", "deferred"):
            self._add(bookie, rng, ledger_id, is_deferred=operation == "deferred")
            if rng.random() < 0.5:
                await asyncio.sleep(0)
        elif operation == "burst":
            for _ in range(rng.randrange(60)):
                self._add(bookie, rng, ledger_id)
        elif operation == "rewrite":
            if facts.next_entry.get(ledger_id):
                entry_id = rng.randrange(facts.next_entry[ledger_id])
                self._add(bookie, rng, ledger_id, entry_id)
        elif operation == "fence":
            self._fence(bookie, ledger_id)
        elif operation == "lac":
            self._lac(bookie, rng, ledger_id)
        elif operation == "read":
            self._read(bookie, rng, ledger_id)
        elif operation == "force":
            bookie.force(ledger_id, lambda _: None)
        elif operation == "checkpoint":
            await bookie.checkpoint()
        elif operation == "delete":
            if rng.random() < 0.3 and ledger_id in facts.keys:
                facts.deleted[ledger_id] = None
                self.first_ledger = max(self.first_ledger, ledger_id - LEDGERS + 2)
        elif operation == "collect":
            gone = await bookie.collect(facts)  # type: ignore[arg-type]
            wrong = [n for n in gone if n in facts.keys and n not in facts.deleted]
            if wrong:
                raise LostError(f"collected although metadata knows them: {wrong}")
        elif operation == "compact":
            collector = bookie.collector(facts)  # type: ignore[arg-type]
            await collector.compact(rng.choice([0.3, 0.8, 1.01]))
            if collector.kept_logs:
                raise LostError(f"logs without damage are kept: {collector.kept_logs}")
        else:
            await asyncio.sleep(rng.choice([0.001, 0.01, 0.3]))

    def _key(self, ledger_id: int) -> bytes:
        return self.facts.keys.setdefault(ledger_id, b"key of ledger %07d" % ledger_id)

    def _add(
        self,
        bookie: Bookie,
        rng: random.Random,
        ledger_id: int,
        entry_id: int | None = None,
        *,
        is_deferred: bool = False,
    ) -> None:
        facts = self.facts
        if entry_id is None:
            entry_id = facts.next_entry.get(ledger_id, 0)
            facts.next_entry[ledger_id] = entry_id + 1
        ids = (ledger_id, entry_id)
        payload = rng.randbytes(
            rng.choice([0, 10, 100, 1000, 6000, 20_000 if rng.random() < 0.2 else 300])
        )
        packet = pack(">qqqq", ledger_id, entry_id, entry_id - 1, len(payload)) + payload
        is_fenced = ledger_id in facts.fenced
        is_recovery = rng.random() < 0.1
        facts.sent.setdefault(ids, []).append(packet)

        def on_done(status: Status) -> None:
            facts.count(f"add {status.name}")
            if status is Status.OK:
                if is_fenced and not is_recovery and ledger_id not in facts.deleted_before:
                    raise LostError(f"ledger {ledger_id}: an add passed an acknowledged fence")
                if not is_deferred:
                    facts.acknowledged[ids] = None
            elif status not in (Status.FENCED, Status.TOO_MANY_REQUESTS):
                raise LostError(f"add of {ids}: {status.name}")

        bookie.add(
            packet,
            self._key(ledger_id),
            on_done,
            is_recovery=is_recovery,
            is_deferred_sync=is_deferred,
        )

    def _fence(self, bookie: Bookie, ledger_id: int) -> None:
        facts = self.facts
        key = self._key(ledger_id)
        facts.fence_sent[ledger_id] = None

        def on_done(status: Status) -> None:
            if status is not Status.OK:
                raise LostError(f"fence of {ledger_id}: {status.name}")
            facts.fenced[ledger_id] = None

        bookie.fence(ledger_id, key, on_done)

    def _lac(self, bookie: Bookie, rng: random.Random, ledger_id: int) -> None:
        facts = self.facts
        lac = rng.randrange(100)

        def on_done(status: Status) -> None:
            if status is Status.OK:
                facts.lacs[ledger_id] = max(lac, facts.lacs.get(ledger_id, -1))
            elif ledger_id not in facts.deleted:
                raise LostError(f"explicit LAC of {ledger_id}: {status.name}")

        bookie.write_lac(ledger_id, self._key(ledger_id), pack(">qq", ledger_id, lac), on_done)

    def _read(self, bookie: Bookie, rng: random.Random, ledger_id: int) -> None:
        entry_id = rng.randrange(-1, self.facts.next_entry.get(ledger_id, 0) + 2)
        is_acknowledged = (ledger_id, entry_id) in self.facts.acknowledged
        bookie.read(
            ledger_id,
            entry_id,
            lambda status, data: self._read_done(
                ledger_id, entry_id, status, data, is_acknowledged=is_acknowledged
            ),
        )

    def _read_done(
        self,
        ledger_id: int,
        entry_id: int,
        status: Status,
        data: BytesLike,
        *,
        is_acknowledged: bool,
    ) -> None:
        facts = self.facts
        facts.count(f"read {status.name}")
        if status is Status.OK:
            if entry_id < 0:
                entry_id = int.from_bytes(bytes(data[8:16]), "big")
            if bytes(data) not in facts.sent.get((ledger_id, entry_id), []):
                raise LostError(f"ledger {ledger_id} entry {entry_id}: bytes that were never sent")
        elif status not in (Status.NO_ENTRY, Status.NO_LEDGER):
            raise LostError(f"read of ledger {ledger_id} entry {entry_id}: {status.name}")
        elif is_acknowledged and ledger_id not in facts.deleted:
            raise LostError(f"ledger {ledger_id} entry {entry_id}: lost ({status.name})")

    # --- after a crash ---------------------------------------------------------------------------

    async def _check(self, bookie: Bookie) -> None:
        facts = self.facts
        waiting = [0]

        def reader(ledger_id: int, entry_id: int) -> Any:
            def on_read(status: Status, data: BytesLike) -> None:
                waiting[0] -= 1
                is_acknowledged = (ledger_id, entry_id) in facts.acknowledged
                self._read_done(ledger_id, entry_id, status, data, is_acknowledged=is_acknowledged)

            return on_read

        for ledger_id, entry_id in list(facts.sent):
            waiting[0] += 1
            bookie.read(ledger_id, entry_id, reader(ledger_id, entry_id))
        await _until(lambda: not waiting[0])
        listed: dict[int, list[int]] = {}
        for ledger_id in facts.keys:
            bookie.list_entries(
                ledger_id, lambda _, ids, key=ledger_id: listed.update({key: list(ids)})
            )
        await _until(lambda: len(listed) == len(facts.keys))
        for ledger_id, entry_id in facts.acknowledged:
            if ledger_id not in facts.deleted and entry_id not in listed[ledger_id]:
                raise LostError(f"ledger {ledger_id} entry {entry_id}: not listed")
        for ledger_id, lac in facts.lacs.items():
            found = bookie.last_add_confirmed(ledger_id)
            if ledger_id not in facts.deleted and (found is None or found < lac):
                raise LostError(f"ledger {ledger_id}: explicit LAC {lac} forgotten, found {found}")
        self._check_fences(bookie)

    def _check_fences(self, bookie: Bookie) -> None:
        facts = self.facts
        for ledger_id in facts.fenced:
            if ledger_id in facts.deleted:
                continue
            statuses: list[Status] = []
            packet = pack(">qqqq", ledger_id, 1 << 40, -1, 0)
            bookie.add(packet, b"another key.........", statuses.append)
            bookie.add(packet, self._key(ledger_id), statuses.append)
            if statuses != [Status.UNAUTHORIZED, Status.FENCED]:
                found = [status.name for status in statuses]
                raise LostError(f"ledger {ledger_id}: the fence is lost, or its key: {found}")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)
