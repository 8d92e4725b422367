"""Lives of one bookie's storage: random work, power failures in any step of the disk, checks.

One seed is one history: a client's adds, fences, explicit LACs and reads, checkpoints, collection
and compaction, and in each life but the last a crash in a random step of the disk or the index.
After each crash the next life opens what is left and everything that was answered is asked for.

What must hold: an acknowledged entry is read back as one of the packets that were sent for it, and
never as anything else; an acknowledged fence holds, with the key it was made with; an acknowledged
explicit LAC is not forgotten; what a ledger's metadata still knows is never collected; the bookie
always opens.

Two seeds in three have several disks. One of them may be full or fail at any time: the bookie takes
adds all the same. One may be lost between two lives, the index sometimes with it: from then on an
entry that may have been there is never denied and a fence never forgotten, after later crashes,
too. Ledgers are taken away from the bookie and given back: a copy goes only when its ledger is
CLOSED and not this bookie's, and never by a metadata store that is older than the bookie.

In one seed in four records rot and locations vanish from the index, while a scrub runs beside all
else: after a whole pass what other bookies have is read here again, and what no bookie has is
reported and never denied.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from errno import EIO
from struct import pack
from typing import Any

from bookie.config import BookieConfig
from bookie.errors import NoSuchLedgerMetadataError
from bookie.ledger.codec import EntryDigest
from bookie.ledger.types import DigestType, Status
from bookie.server.bookie import Bookie
from bookie.server.interfaces import BytesLike
from bookie.server.storage.bad_entries import Fate
from bookie.server.storage.collector import Collector, Holding
from bookie.server.storage.entry_log import (
    NOT_HERE,
    EntryLogReader,
    RecordKind,
    path_of,
    split_location,
)
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.memory_index import MemoryIndex
from bookie.server.storage.recovery import LostDirectories, rebuild_index
from bookie.server.storage.scrubber import Duty, Fetched, Scrubber
from tests.fixtures.storages import FixedRng
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.loop import Node, SimulatedExecutor, SimulatedLoop
from tests.sim.storage.machine import Machine

CONFIG = BookieConfig(
    journal_bytes_max=1 << 20,
    journal_preallocation_bytes=1 << 15,
    write_cache_bytes_max=1 << 16,
    entry_log_bytes_max=1 << 17,
    read_cache_bytes_max=1 << 15,
    flush_interval_s=0.5,
    compaction_bytes_per_s=1 << 30,
    returned_copy_wait_s=1.0,
    scrub_interval_s=0,
    scrub_bytes_per_s=1 << 30,
)
LEDGERS = 6
_OPERATIONS = ["add"] * 60 + ["burst"] * 6 + ["fence"] * 2 + ["lac"] * 5 + ["read"] * 12
_OPERATIONS += ["checkpoint"] * 3 + ["delete"] * 2 + ["collect"] * 3 + ["compact"] * 3
_TROUBLES = ["full", "fail", "fail", "heal"]
_FAULTS = ["write", "sync", "open", "rename", "unlink", "sync_directory", "truncate"]
_OPERATIONS += ["deferred"] * 4 + ["force"] * 2 + ["rewrite"] * 4 + ["sleep"] * 10
_MORE_OPERATIONS = [*_OPERATIONS, *["trouble"] * 4, *["take away"] * 2, *["give back"] * 2]
_MORE_OPERATIONS += ["collect"] * 4
_OF_ROT = ["damage"] * 4 + ["begin scrub", "scrub", "compact damaged"]


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
        journal: Any = None,
    ) -> None:
        self.disk._step(
            "write", "index", lambda: MemoryIndex.put(self, locations, ledgers, journal)
        )

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
        # Of several disks:
        self.lost_entries: dict[tuple[int, int], None] = {}
        self.limbo: dict[int, None] = {}  # ledgers of which nothing may be denied
        self.maybe_limbo: dict[int, None] = {}  # the index alone knows whether they were there
        self.is_index_lost = False
        self.taken: dict[int, bool] = {}  # not this bookie's any more -> is it CLOSED?
        self.is_old = False
        # Of rot:
        self.damaged: dict[tuple[int, int], int | None] = {}  # by the location; None: not indexed
        self.denied: dict[tuple[int, int], None] = {}  # not indexed, and no pass came by since
        self.only_here: dict[tuple[int, int], None] = {}  # no other bookie has a copy
        self.is_silent = False  # other bookies did not answer in this pass
        self.is_reading_hard = False  # in this life logs may fail to be opened
        self.rng = random.Random(0)

    def count(self, what: str, count: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + count

    def is_gone(self, ledger_id: int) -> bool:
        """Tell whether nothing is expected of this ledger."""
        return ledger_id in self.deleted or ledger_id in self.taken

    def take(self, ledger_id: int, *, is_closed: bool) -> None:
        """Let metadata give no part of a ledger to this bookie: what it acknowledged is others'."""
        self.taken[ledger_id] = is_closed
        for ids in [ids for ids in self.acknowledged if ids[0] == ledger_id]:
            del self.acknowledged[ids]
        for one in (self.fenced, self.lacs):
            one.pop(ledger_id, None)

    @property
    def named(self) -> frozenset[int]:
        return frozenset(n for n in self.keys if not self.is_gone(n))

    # The API of a LedgerList: metadata knows every ledger that was not deleted.

    async def ledger_ids(self) -> AsyncIterator[int]:
        for ledger_id in list(self.keys):
            if ledger_id not in self.deleted and not self.is_old:
                yield ledger_id

    async def read(self, ledger_id: int) -> Holding:
        if ledger_id in self.deleted or ledger_id not in self.keys or self.is_old:
            raise NoSuchLedgerMetadataError(f"ledger {ledger_id}")
        is_taken = ledger_id in self.taken
        return Holding(is_closed=is_taken and self.taken[ledger_id], is_member=not is_taken)

    async def sync(self) -> None:
        pass

    async def fresh_id(self) -> int:
        return -1 if self.is_old else max(self.keys, default=0) + 1

    @asynccontextmanager
    async def task_lock(self, ledger_id: int) -> AsyncGenerator[bool]:
        dice = self.rng.random()
        if dice < 0.3:  # a worker came before us, and its copy counts
            self.taken.pop(ledger_id, None)
        yield not 0.3 <= dice < 0.5


class Owed:
    """Duties: of every ledger that is not gone this bookie owes what it acknowledged."""

    def __init__(self, facts: Facts, rng: random.Random) -> None:
        self.facts = facts
        self.rng = rng

    def ledger_ids(self) -> AsyncIterator[int]:
        return self.facts.ledger_ids()

    async def read(self, ledger_id: int) -> Duty:
        facts = self.facts
        await facts.read(ledger_id)

        def required() -> Iterator[int]:
            is_mine = not facts.is_gone(ledger_id)
            return iter(sorted(n for one, n in facts.acknowledged if is_mine and one == ledger_id))

        async def fetch(entry_id: int) -> Fetched:
            ids = (ledger_id, entry_id)
            await asyncio.sleep(self.rng.choice([0.0, 0.002, 0.05]))
            if self.rng.random() < 0.02:
                facts.is_silent = True
                return Fetched(None, reason="silence")
            if ids in facts.only_here:
                return Fetched(None, Fate.LOST, "all deny it")
            return Fetched(facts.sent[ids][-1])

        return Duty(
            ledger_id=ledger_id,
            master_key=facts.keys[ledger_id],
            digest=EntryDigest.of(DigestType.DUMMY, b""),
            required=required,
            is_mine=lambda _: not facts.is_gone(ledger_id),
            is_settled=lambda entry_id: (ledger_id, entry_id) in facts.acknowledged,
            fetch=fetch,
        )


class World:
    """One seed."""

    def __init__(self, seed: int, *, lives: int = 4, operations: int = 120) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.facts = Facts()
        self.lives = lives
        self.operations = operations
        self.first_ledger = 1
        self.config = replace(
            CONFIG,
            entry_log_bytes_max=1 << self.rng.choice([16, 17]),
            journal_loop_sync_us=random.Random(f"loop sync {seed}").choice((0, 1_000)),
        )
        self.disk = SimulatedDisk(self.rng.getrandbits(64))
        self.index = SteppedIndex(self.disk)
        disks, ledgers = [self.disk], [0]
        if seed % 3:
            disks += [SimulatedDisk(self.rng.getrandbits(64)) for _ in range(2 + seed % 2)]
            ledgers = list(range(seed % 2, len(disks)))
        self.machine = Machine(disks, ledgers)
        self.is_loss_pending = False
        self.is_troubled = False
        self.is_rotting = seed % 4 == 2
        self.scrubber: Scrubber | None = None
        self.facts.rng = random.Random(seed)
        self._collector: tuple[Bookie, Collector] | None = None
        self.crash_steps: list[tuple[str, str]] = []
        self.step_counts: list[int] = []

    def run(self, crash_at: int | None = None) -> None:
        """Live all lives; crash_at: the step of the first life's crash, else random ones."""
        for life in range(self.lives):
            is_last = life == self.lives - 1
            machine = self.machine
            for disk in machine.disks:
                disk.trace = []
            if crash_at is not None and life == 0:
                machine.crash_at = crash_at
            elif not is_last and crash_at is None:
                # Some crashes come early, in the recovery from the crash before.
                most = self.rng.choice([12, 60, 250, 800])
                machine.crash_at = 1 + self.rng.randrange(most)
            self._live(is_last=is_last)
            self.step_counts.append(machine.step_count)
            crashed = machine.crashed
            if machine.open_paths and crashed is None:
                raise LostError(f"files left open: {machine.open_paths}")
            if crashed is not None:
                assert crashed.trace is not None
                self.crash_steps.append(crashed.trace[-1][:2])
                self.facts.count("crashes")
            self._restart()
            if not is_last and self.machine.mortal and self.rng.random() < 0.3:
                self._lose_directory()
        self._check_rebuilt()

    def _restart(self) -> None:
        is_power_lost = self.rng.random() < 0.8
        self.facts.is_reading_hard = False
        self.machine = self.machine.restart(is_power_lost=is_power_lost)
        self.disk = self.machine.disks[0]
        if not is_power_lost:
            kept = SteppedIndex(self.disk)
            kept.__dict__.update({k: v for k, v in self.index.__dict__.items() if k != "disk"})
            self.index = kept
        else:
            self.index = self.index.after_crash(self.disk, self.rng)
        self.index.disk = self.disk
        if self.is_rotting:
            self._damage_switch(random.Random(self.rng.getrandbits(64)))

    def _lose_directory(self) -> None:
        facts = self.facts
        position = self.rng.choice(self.machine.mortal)
        gone = self.machine.entries_on(position)
        self.machine = self.machine.lose(position, self.rng)
        self.is_loss_pending = True
        facts.count("directories lost")
        facts.lost_entries.update(dict.fromkeys(sorted(gone)))
        facts.limbo.update(dict.fromkeys(sorted({ledger_id for ledger_id, _ in gone})))
        if facts.counts.get("damage"):  # a log is not read on behind a damaged frame
            facts.lost_entries.update(facts.acknowledged)
            facts.limbo.update(dict.fromkeys(sorted(facts.named)))
            facts.maybe_limbo.update(dict.fromkeys(facts.keys))
        if self.rng.random() < 0.4:
            facts.count("indexes lost, too")
            facts.is_index_lost = True
            facts.limbo.update(dict.fromkeys(sorted(facts.named)))
            self.index = SteppedIndex(self.disk)

    def _check_rebuilt(self) -> None:
        """Compare the index with one that is made of the entry logs alone."""
        facts = self.facts
        if facts.counts.get("damage"):
            return  # behind a damaged frame the logs do not say what there is
        rebuilt = MemoryIndex()
        directories = self.machine.directories()
        report = rebuild_index(directories, rebuilt)
        if report.damage and not self.is_troubled:
            raise LostError(f"rebuilding the index found damage: {report.damage}")
        logs = EntryLogs(directories)
        logs.open()
        for ids in facts.acknowledged:
            if facts.is_gone(ids[0]) or ids in facts.lost_entries:
                continue
            location = rebuilt.get(*ids)
            if location is None:
                raise LostError(f"the rebuilt index has no {ids}")
            # An unacknowledged packet of the same entry may be the newer one in the logs.
            if logs.read((location,))[0].body not in facts.sent[ids]:
                raise LostError(f"the rebuilt index points to bytes of {ids} that were never sent")
        for ledger_id in facts.keys:
            if facts.is_gone(ledger_id) or self.index.ledger(ledger_id) is None:
                continue
            if ledger_id in facts.limbo:
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
        is_loss_known = self.is_loss_pending
        bookie = await Bookie.open(
            self.disk,
            self.index,
            SimulatedClock(),
            rng,  # type: ignore[arg-type]
            self.config,
            journal_executor=journal,  # type: ignore[arg-type]
            storage_executor=storage,  # type: ignore[arg-type]
            ledgers=self.machine.directories(),
            lost=LostDirectories(self.facts.named) if is_loss_known else None,
        )
        self.is_loss_pending = False
        self.facts.deleted_before = dict(self.facts.deleted)
        await self._check(bookie)
        self.scrubber = None
        if self.is_rotting:
            owed = Owed(self.facts, random.Random(self.seed))
            self.scrubber = bookie.scrubber(owed, self.disk, FixedRng())
            self.scrubber.start()
        if not is_last:
            for _ in range(self.operations):
                await self._operate(bookie, rng, node.loop)
        elif self.is_rotting:
            await self._scrub(bookie)
            await self._check(bookie)
            self.facts.count("damaged logs replaced", await self._compact_damaged(bookie))
            await self._check(bookie)
        await asyncio.sleep(0.1)
        if self.scrubber is not None:
            await self.scrubber.close()
        await bookie.close()

    # --- operations ------------------------------------------------------------------------------

    async def _operate(self, bookie: Bookie, rng: random.Random, loop: SimulatedLoop) -> None:
        facts = self.facts
        operation = rng.choice(_MORE_OPERATIONS if self.machine.mortal else _OPERATIONS)
        if self.is_rotting and rng.random() < 0.1:
            operation = rng.choice(_OF_ROT)
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
            facts.is_old = bool(facts.keys) and rng.random() < 0.1
            try:
                gone = await self.collector(bookie).collect()
            finally:
                is_old, facts.is_old = facts.is_old, False
            facts.count(f"collected {'by older metadata' if is_old else 'ledgers'}")
            wrong = [
                n
                for n in gone
                if is_old or (n in facts.keys and n not in facts.deleted and not facts.taken.get(n))
            ]
            if wrong:
                raise LostError(f"collected although metadata knows them: {wrong}")
            for ledger_id in gone:
                facts.count("copies collected" if ledger_id in facts.taken else "collected")
        elif operation == "compact":
            collector = bookie.collector(facts)
            try:
                await collector.compact(rng.choice([0.3, 0.8, 1.01]))
            except OSError:
                if not self.is_troubled:
                    raise
            if collector.kept_logs and not self.is_troubled and not facts.counts.get("damage"):
                raise LostError(f"logs without damage are kept: {collector.kept_logs}")
        elif operation == "compact damaged":
            facts.count("damaged logs replaced", await self._compact_damaged(bookie))
        elif operation == "damage":
            self._damage(bookie, rng)
        elif operation == "begin scrub":
            assert self.scrubber is not None
            self.scrubber.begin()
        elif operation == "scrub":
            await self._scrub(bookie)
        elif operation == "trouble":
            self._trouble(rng)
        elif operation == "take away":
            if ledger_id in facts.keys and ledger_id not in facts.deleted:
                facts.take(ledger_id, is_closed=rng.random() < 0.7)
        elif operation == "give back":
            facts.taken.pop(ledger_id, None)
        else:
            await asyncio.sleep(rng.choice([0.001, 0.01, 0.3]))

    def collector(self, bookie: Bookie) -> Collector:
        """Return this life's collector: it remembers since when a copy is not needed."""
        if self._collector is None or self._collector[0] is not bookie:
            self._collector = (bookie, bookie.collector(self.facts))
        return self._collector[1]

    def _trouble(self, rng: random.Random) -> None:
        """Let one disk be full or fail, or none; never all of them."""
        if len(self.machine.ledgers) < 2:
            return
        for disk in self.machine.disks:
            disk.capacity_bytes = None
            disk.heal()
        disk = self.machine.disks[rng.choice(self.machine.mortal)]
        trouble = rng.choice(_TROUBLES)
        self.facts.count(f"disk: {trouble}")
        if trouble == "full":
            self.is_troubled = True
            total, free = disk.space()
            disk.capacity_bytes = total - free + rng.choice([0, 100, 5000, 60_000])
        elif trouble == "fail":
            self.is_troubled = True
            times = rng.choice([1, 3, 1 << 30])
            kind = rng.choice(_FAULTS)
            self.facts.is_reading_hard = self.facts.is_reading_hard or kind == "open"
            disk.fail(kind, EIO, after=rng.randrange(4), times=times)

    # --- rot ------------------------------------------------------------------------------------

    def _damage(self, bookie: Bookie, rng: random.Random) -> None:
        """Change a byte of an acknowledged entry's record, or let the index forget the entry."""
        facts, logs = self.facts, bookie._storage.logs
        candidates = [ids for ids in facts.acknowledged if not facts.is_gone(ids[0])]
        ids = rng.choice(candidates) if candidates else (0, 0)
        location = self.index.get(*ids)
        if location is None or facts.damaged.get(ids) == location:
            return
        number, offset = split_location(location)
        if rng.random() < 0.25:
            del self.index._locations[ids[0]][ids[1]]
            facts.damaged[ids] = None
            facts.denied[ids] = None
        elif number in logs._places:
            directory, suffix = logs._places[number]
            at = rng.choice([-1, -9, -13, -20, 0, 9, 17, 31])
            directory.disk.flip(path_of(number, suffix), offset + at, 1 << rng.randrange(8))
            facts.damaged[ids] = location
        if rng.random() < 0.2:
            facts.only_here[ids] = None

    def _damage_switch(self, rng: random.Random) -> None:
        """Damage a record of a log to which the next start would switch the index."""
        facts = self.facts
        for disk in self.machine.disks:
            for path in [path for path in disk.contents() if path.endswith(".compacted")]:
                number = int(path.rpartition("/")[2].partition(".")[0])
                reader = EntryLogReader(disk, number, "compacted")
                records = [one for one in reader.records() if one.kind == RecordKind.ENTRY]
                reader.close()
                record = rng.choice(records[: len(records) // 2 + 1]) if records else None
                if record is not None and record.ids in facts.acknowledged:
                    facts.count("damage")
                    facts.count("damaged log of a switch")
                    facts.damaged.setdefault(record.ids, record.location)
                    at = rng.choice([-24, -20, -13, -9, 0, 31])
                    offset = split_location(record.location)[1] + at
                    disk.flip(path, offset, 1 << rng.randrange(8))

    async def _compact_damaged(self, bookie: Bookie) -> int:
        try:
            return await bookie.collector(self.facts).compact_damaged()
        except OSError:
            if not self.is_troubled:
                raise
            return 0

    async def _scrub(self, bookie: Bookie) -> None:
        """Wait for a whole pass, and compare what it says with what was damaged before it."""
        facts, scrubber = self.facts, self.scrubber
        assert scrubber is not None
        await self._pass(scrubber)  # one that began before
        damaged = dict(facts.damaged)
        facts.is_silent = False
        status = await self._pass(scrubber)
        for disk in self.machine.disks:  # what is known now is to be known after a crash
            disk.capacity_bytes = None
            disk.heal()
        await bookie.checkpoint()
        bad: dict[Fate, set[tuple[int, int]]] = {
            kind: {(one["ledger_id"], n) for one in status["bad_ledgers"] for n in one[kind.value]}
            for kind in Fate
        }
        if bad[Fate.UNMENDED].difference(facts.only_here) and not facts.is_silent:
            raise LostError(f"not mended, though others have them: {bad[Fate.UNMENDED]}")
        for ids, location in damaged.items():
            if facts.is_gone(ids[0]) or ids not in facts.acknowledged:
                continue
            facts.denied.pop(ids, None)
            if ids in bad[Fate.UNMENDED]:
                continue
            if ids not in facts.only_here:
                facts.damaged.pop(ids, None)
                facts.count("entries mended")
            elif self.index.get(*ids) == (NOT_HERE if location is None else location):
                facts.count("entries lost")
                if ids not in bad[Fate.LOST]:
                    raise LostError(f"{ids} is on no bookie, and nothing was said of it")

    async def _pass(self, scrubber: Scrubber) -> Any:
        passes = scrubber.status()["passes"]
        scrubber.begin()
        await _until(lambda: scrubber.status()["passes"] != passes)
        return scrubber.status()

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
                if (
                    is_fenced
                    and ledger_id in facts.fenced
                    and not is_recovery
                    and ledger_id not in facts.deleted_before
                ):
                    raise LostError(f"ledger {ledger_id}: an add passed an acknowledged fence")
                if not is_deferred and ledger_id not in facts.taken:
                    facts.acknowledged[ids] = None
                    facts.lost_entries.pop(ids, None)
            elif (
                status is Status.IO_ERROR
                and (ledger_id in facts.limbo or ledger_id in facts.maybe_limbo)
                and not is_recovery
            ):
                facts.count("adds refused in limbo")
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
            if ledger_id not in facts.taken:
                facts.fenced[ledger_id] = None

        bookie.fence(ledger_id, key, on_done)

    def _lac(self, bookie: Bookie, rng: random.Random, ledger_id: int) -> None:
        facts = self.facts
        lac = rng.randrange(100)

        def on_done(status: Status) -> None:
            if status is Status.OK:
                if ledger_id not in facts.taken:
                    facts.lacs[ledger_id] = max(lac, facts.lacs.get(ledger_id, -1))
            elif not facts.is_gone(ledger_id) and ledger_id not in facts.limbo:
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
        elif status is Status.IO_ERROR and (
            (ledger_id, entry_id) in facts.lost_entries
            or (ledger_id, entry_id) in facts.damaged
            or (entry_id < 0 and any(one == ledger_id for one, _ in facts.damaged))
            or (ledger_id in facts.limbo and not is_acknowledged)
            or facts.is_gone(ledger_id)
            or facts.is_reading_hard
        ):
            facts.count("reads of what is lost")
        elif status not in (Status.NO_ENTRY, Status.NO_LEDGER):
            raise LostError(f"read of ledger {ledger_id} entry {entry_id}: {status.name}")
        elif (
            is_acknowledged
            and not facts.is_gone(ledger_id)
            and (ledger_id, entry_id) not in facts.denied
        ):
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
            is_expected = not facts.is_gone(ledger_id) and ledger_id not in facts.limbo
            is_expected = is_expected and (ledger_id, entry_id) not in facts.damaged
            if is_expected and entry_id not in listed[ledger_id]:
                raise LostError(f"ledger {ledger_id} entry {entry_id}: not listed")
        for ledger_id, lac in facts.lacs.items():
            found = bookie.last_add_confirmed(ledger_id)
            is_expected = not facts.is_gone(ledger_id) and not facts.is_index_lost
            if is_expected and (found is None or found < lac):
                raise LostError(f"ledger {ledger_id}: explicit LAC {lac} forgotten, found {found}")
        self._check_fences(bookie)

    def _check_fences(self, bookie: Bookie) -> None:
        facts = self.facts
        for ledger_id in facts.fenced:
            if facts.is_gone(ledger_id):
                continue
            statuses: list[Status] = []
            packet = pack(">qqqq", ledger_id, 1 << 40, -1, 0)
            bookie.add(packet, b"another key.........", statuses.append)
            bookie.add(packet, self._key(ledger_id), statuses.append)
            if facts.is_index_lost and ledger_id in facts.limbo and Status.OK not in statuses:
                continue
            if statuses != [Status.UNAUTHORIZED, Status.FENCED]:
                found = [status.name for status in statuses]
                raise LostError(f"ledger {ledger_id}: the fence is lost, or its key: {found}")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)
