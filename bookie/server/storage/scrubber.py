"""Scrubber: reads every entry of a bookie in the background, and mends what is damaged.

A pass goes through the ledgers, ascending, and then through the logs. Of each ledger every entry
that the index locates is read and verified: the record's CRC, its ids, the writer's digest; and the
settled entries that metadata gives this bookie are looked for in the index. What is damaged or
missing is read from the other bookies, verified, and added as a recovery does: journal, write
cache, entry log, and then the index points there. Until then, and for good when no other bookie has
it, a read of it is an I/O error: the index goes on pointing to the damaged record, and to none for
a missing one (NOT_HERE). A read that meets damage has its entry mended out of turn.

Each log is read from front to end as well, as the index is made anew of it: records of ledgers, and
of entries that were mended elsewhere, are damaged there unseen. The collector compacts such logs.

Everything that is read from disks, from metadata or from other bookies is paid for from one budget
of bytes per second. A pass that was interrupted goes on where it was, in the next process, too:
one file says where, and what was found bad up to there.
Used on one loop. docs/adr/0050-scrub.md.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from bookie.config import BookieConfig
from bookie.errors import (
    BookieError,
    CorruptFileError,
    MetadataFormatError,
    NoSuchLedgerMetadataError,
)
from bookie.ledger.codec import EntryDigest
from bookie.ledger.types import Status
from bookie.runtime.files import replace_file
from bookie.runtime.interfaces import Clock, Disk, Rng
from bookie.server.metrics import Figure
from bookie.server.storage.bad_entries import BadLedger, Fate
from bookie.server.storage.entry_log import HEADER_BYTES
from bookie.server.storage.entry_reads import (
    MISSING,
    NOT_IN_INDEX,
    EntryCheck,
    LogStep,
    check_log,
    problem_of,
)
from bookie.server.storage.ledger_storage import LedgerStorage

_log = logging.getLogger(__name__)
T = TypeVar("T")
STATE_FILE = "SCRUB"
_STEP_BYTES = 256 * 1024
_METADATA_BYTES = 4096
"""What the budget pays for one ledger's metadata, and for a question to other bookies."""
_RETRY_S = 60.0
_SAVE_S = 60.0
_READ_QUEUE_MAX = 1000
_HEAL_AGAIN_S = 600.0
_BAD_LEDGERS_MAX = 10_000
_DAMAGED_LOGS_MAX = 1000
_LEDGERS_DONE = 1 << 63
"""Behind every ledger id."""
_REPORTED_MAX = 1000
_UNMENDED_AGAIN_S = 3600.0
_NEVER = float("inf")
_MENDED_TOGETHER = 32
_ADD_TRIES = 30
_ADD_PAUSE_S = 1.0


class Fetched(NamedTuple):
    """What the other bookies said of one entry."""

    packet: bytes | None
    """Verified by the ledger's digest."""
    fate: Fate = Fate.UNMENDED
    """Of an entry without a packet."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Duty:
    """What one ledger's metadata asks of this bookie."""

    ledger_id: int
    master_key: bytes
    digest: EntryDigest | None
    """None: metadata does not hold what verifies its entries."""
    required: Callable[[], Iterator[int]]
    """The settled entries that must be here, ascending."""
    is_mine: Callable[[int], bool]
    """Whether this bookie is in the entry's write set and the entry not behind a closed end."""
    is_settled: Callable[[int], bool]
    """Whether the entry is surely one of the ledger."""
    fetch: Callable[[int], Awaitable[Fetched]]
    """Ask the other bookies for an entry."""


class Duties(Protocol):
    """What the scrubber asks of metadata (autorecovery/replicas.py)."""

    def ledger_ids(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers, in any order; MetadataStoreError."""
        ...

    async def read(self, ledger_id: int) -> Duty:
        """NoSuchLedgerMetadataError when there is no such ledger; MetadataStoreError."""
        ...


class Add(Protocol):
    """Bookie.add()."""

    def __call__(
        self,
        packet: bytes,
        master_key: bytes,
        on_done: Callable[[Status], None],
        *,
        is_recovery: bool,
        is_high_priority: bool,
    ) -> None: ...


@dataclass(slots=True)
class Tally:
    """What was checked and found."""

    entries: int = 0
    bytes: int = 0
    damaged: int = 0
    missing: int = 0
    unneeded: int = 0
    """Damaged, but not this bookie's to keep: behind a closed ledger's end, or moved away."""
    mended: int = 0


class Scrubber:
    """See the module. The owner awaits close()."""

    def __init__(
        self,
        storage: LedgerStorage,
        duties: Duties,
        add: Add,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        config: BookieConfig,
    ) -> None:
        # Constant.
        self._loop = asyncio.get_running_loop()
        self._storage = storage
        self._duties = duties
        self._add = add
        self._disk = disk
        """Where the state file lies."""
        self._clock = clock
        self._rng = rng
        self._config = config
        # Of the pass.
        self._began_us = 0
        """When the pass under way began, or the last one; 0: none has."""
        self._next_ledger_id: int | None = None
        """Where the pass goes on; None: none is under way."""
        self._next_log_number = 0
        """Where it goes on when all ledgers are done."""
        self._ledgers_done = 0
        self._ledgers_total = 0
        self._logs_done = 0
        self._logs_total = 0
        self._pass = Tally()
        self._saved_at = 0.0
        self._saved = b""
        self._save_lock = asyncio.Lock()
        self._pass_at = _NEVER
        """When the next pass begins, by the loop's time."""
        self._again_at = _NEVER
        """When entries that could not be copied are tried again, by the loop's time."""
        # Since the start.
        self.total = Tally()
        self._bad: dict[int, BadLedger] = {}
        self._pass_count = 0
        self._failed_pass_count = 0
        self._owed_bytes = 0
        self._pay_lock = asyncio.Lock()
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # Entries that reads found damaged.
        self._reads: dict[tuple[int, int], None] = {}
        self._tried: dict[tuple[int, int], float] = {}
        self._read_found = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Go on with the pass that was interrupted, or begin one when it is due."""
        self._load()
        self._plan()
        self._set_timer()
        self._storage.on_damaged_read = self._damaged_read
        self._tasks = [
            self._loop.create_task(self._run()),
            self._loop.create_task(self._mend_reads()),
        ]

    def begin(self) -> bool:
        """Begin a pass now; False: one is under way, and goes on where it is.

        At once, if it waits because an error stopped it.
        """
        is_new = self._next_ledger_id is None
        if is_new or self._pass_at < _NEVER:
            self._pass_at = self._loop.time()
            self._set_timer()
        return is_new

    async def close(self) -> None:
        """Stop, and remember where; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            self._storage.on_damaged_read = lambda ledger_id, entry_id: None
            await self._save()

    # --- when -------------------------------------------------------------------------------------

    def _load(self) -> None:
        try:
            found = json.loads(self._disk.read(STATE_FILE))
            began_us, next_ledger_id = found["began_us"], found["next_ledger_id"]
            if type(began_us) is not int or type(next_ledger_id) not in (int, type(None)):
                raise ValueError(f"expected two numbers, found {found}")
            bad = {one["ledger_id"]: BadLedger.of_record(one) for one in found["bad_ledgers"]}
            logs = {int(number): str(problem) for number, problem in found["damaged_logs"].items()}
            self._next_log_number = int(found["next_log_number"])
            self._began_us, self._next_ledger_id, self._bad = began_us, next_ledger_id, bad
            self._storage.damaged_logs |= logs
        except FileNotFoundError:
            self._began_us = self._clock.wall_us()  # a fresh bookie has nothing to check yet
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s cannot be read, the next pass begins anew: %s", STATE_FILE, error)

    async def _save(self) -> None:
        """Write where the pass is and what is bad, if that changed."""
        async with self._save_lock:
            self._saved_at = self._clock.monotonic()
            state = {
                "began_us": self._began_us,
                "next_ledger_id": self._next_ledger_id,
                "next_log_number": self._next_log_number,
                "damaged_logs": self._storage.damaged_logs,
                "bad_ledgers": [bad.record(ledger_id) for ledger_id, bad in self._bad.items()],
            }
            data = json.dumps(state).encode()
            if data == self._saved:
                return
            try:
                await self._on_disk(partial(replace_file, self._disk, STATE_FILE, data))
                self._saved = data
            except OSError as error:
                _log.warning("%s cannot be written: %s", STATE_FILE, error)

    def _set_timer(self) -> None:
        """Wake for what is due first: a pass, or entries that wait for other bookies."""
        if self._again_at == _NEVER and any(b.count(Fate.UNMENDED) for b in self._bad.values()):
            self._again_at = self._loop.time() + _UNMENDED_AGAIN_S
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = min(self._pass_at, self._again_at)
        if wake_at < _NEVER:
            self._timer = self._loop.call_at(wake_at, self._due.set)

    def _plan(self) -> None:
        """Say when the next pass begins; bookies that start together do not go together."""
        interval_s, now = self._config.scrub_interval_s, self._loop.time()
        if self._next_ledger_id is not None:
            self._pass_at = now + _RETRY_S
        elif interval_s > 0:
            age_s = max(0.0, (self._clock.wall_us() - self._began_us) / 1e6)
            wait_s = interval_s * (1.5 - self._rng.random()) - age_s
            self._pass_at = now + max(_RETRY_S, wait_s)

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            now = self._loop.time()
            try:
                if now >= self._pass_at:
                    self._pass_at = self._again_at = _NEVER
                    await self._go_through()
                elif now >= self._again_at:
                    self._again_at = _NEVER
                    await self._try_again()
            except (BookieError, OSError) as error:
                self._failed_pass_count += 1
                _log.warning("the scrub goes on in %.0f s, it was stopped by: %s", _RETRY_S, error)
            if self._pass_at == _NEVER:
                self._plan()
            self._set_timer()

    async def _try_again(self) -> None:
        """Check the ledgers anew that other bookies may be able to help with by now."""
        for ledger_id, bad in list(self._bad.items()):
            if bad.count(Fate.UNMENDED):
                await self._check_ledger(ledger_id)
        await self._save()

    # --- one pass ---------------------------------------------------------------------------------

    async def _go_through(self) -> None:
        if self._next_ledger_id is None:
            self._next_ledger_id = 0
            self._began_us = self._clock.wall_us()
            self._pass = Tally()
        first = self._next_ledger_id
        ids = dict.fromkeys(await self._storage.local_ledger_ids())
        async for ledger_id in self._duties.ledger_ids():
            ids[ledger_id] = None
        todo = sorted(ledger_id for ledger_id in ids if ledger_id >= first)
        self._ledgers_total, self._ledgers_done = len(ids), len(ids) - len(todo)
        for ledger_id in [n for n in self._bad if n not in ids]:
            del self._bad[ledger_id]
        for ledger_id in todo:
            self._next_ledger_id = ledger_id
            await self._save_at_times()
            await self._check_ledger(ledger_id)
            self._ledgers_done += 1
        self._next_ledger_id = _LEDGERS_DONE
        await self._check_logs()
        self._next_ledger_id, self._next_log_number = None, 0
        self._pass_count += 1
        await self._save()
        done = self._pass
        _log.info(
            "scrub: %d ledgers, %d entries, %d damaged, %d missing, %d mended; %d ledgers are bad",
            len(todo), done.entries, done.damaged, done.missing, done.mended, len(self._bad),
        )  # fmt: skip

    async def _save_at_times(self) -> None:
        if self._clock.monotonic() - self._saved_at >= _SAVE_S:
            await self._save()

    async def _check_logs(self) -> None:
        storage, damaged = self._storage, self._storage.damaged_logs
        numbers = sorted([*await storage.closed_log_numbers(), *storage.logs.numbers("compacted")])
        for number in damaged.keys() - set(numbers):
            damaged.pop(number, None)
        self._logs_done, self._logs_total = 0, len(numbers)
        for number in numbers:
            if number >= self._next_log_number:
                self._next_log_number = number
                await self._save_at_times()
                try:
                    problem = await self._problem_of_log(number)
                except OSError as error:  # of this process: it says nothing of the log
                    _log.warning("entry log %d was not checked: %s", number, error)
                    problem = damaged.get(number)
                if problem is None:
                    damaged.pop(number, None)
                elif number in damaged or len(damaged) < _DAMAGED_LOGS_MAX:
                    damaged[number] = problem
                    _log.error("%s; the log is compacted once all its entries are mended", problem)
            self._logs_done += 1

    async def _problem_of_log(self, number: int) -> str | None:
        step = LogStep(0, HEADER_BYTES, None)
        while step.next_offset:
            step = await self._on_disk(
                partial(check_log, self._storage.logs, number, step.next_offset, _STEP_BYTES)
            )
            for tally in (self._pass, self.total):
                tally.bytes += step.byte_count
            await self._pay(step.byte_count)
        return step.problem

    async def _check_ledger(self, ledger_id: int) -> None:
        await self._pay(_METADATA_BYTES)
        found = BadLedger()
        mended = 0
        try:
            duty = await self._duties.read(ledger_id)
            check = await self._on_disk(partial(self._check, duty))
            is_last = False
            while not is_last:
                step = await self._on_disk(partial(check.step, _STEP_BYTES))
                for tally in (self._pass, self.total):
                    tally.entries += step.entry_count
                    tally.bytes += step.byte_count
                await self._storage.note_missing(ledger_id, step.missing)
                mended += await self._mend_all(duty, (*step.damaged, *step.missing), found)
                await self._pay(step.byte_count)
                is_last = step.is_last
        except NoSuchLedgerMetadataError:  # what is still here of it is the collector's
            self._bad.pop(ledger_id, None)
            return
        except (MetadataFormatError, CorruptFileError, OSError) as error:
            found.count_one(str(error), Fate.UNMENDED)  # of this ledger alone: others are checked
        self._note(ledger_id, found, mended)

    def _check(self, duty: Duty) -> EntryCheck:
        storage = self._storage
        return EntryCheck(
            storage.index,
            storage.logs,
            duty.ledger_id,
            required=duty.required(),
            digest=duty.digest,
        )

    async def _mend_all(self, duty: Duty, entry_ids: Sequence[int], bad: BadLedger) -> int:
        """Mend entries, some at a time; return how many were."""
        mended = 0
        for start in range(0, len(entry_ids), _MENDED_TOGETHER):
            some = entry_ids[start : start + _MENDED_TOGETHER]
            ended = await asyncio.gather(
                *(self._mend(duty, entry_id, bad) for entry_id in some), return_exceptions=True
            )
            for result in ended:
                if isinstance(result, BaseException):
                    raise result
                mended += result
        return mended

    def _note(self, ledger_id: int, found: BadLedger, mended: int) -> None:
        """Remember what a check of a whole ledger left, and tell of it once."""
        if found.is_empty:
            self._bad.pop(ledger_id, None)
        elif ledger_id in self._bad or len(self._bad) < _BAD_LEDGERS_MAX:
            self._bad[ledger_id] = found
        for fate, say in _SAID.items():
            if found.count(fate):
                say(
                    "ledger %d: %d entries are %s, from %d on: %s",
                    ledger_id, found.count(fate), _MEANT[fate], found.first(fate), found.reason,
                )  # fmt: skip
        if found.is_empty and mended:
            _log.warning(
                "ledger %d: %d entries were damaged or missing here, and were copied from other "
                "bookies", ledger_id, mended,
            )  # fmt: skip

    async def _mend(self, duty: Duty, entry_id: int, bad: BadLedger) -> bool:
        """Look again at an entry, and put it in place; True: it was mended."""
        storage, ledger_id = self._storage, duty.ledger_id
        if storage.unflushed(ledger_id, entry_id) is not None:
            return False  # what the index locates is about to be replaced
        problem = await self._on_disk(
            partial(problem_of, storage.index, storage.logs, ledger_id, entry_id, duty.digest)
        )
        is_missing = problem in (NOT_IN_INDEX, MISSING)
        if problem is None or (problem == NOT_IN_INDEX and not duty.is_settled(entry_id)):
            return False
        is_mine = duty.is_mine(entry_id)
        for tally in (self._pass, self.total):
            tally.damaged += not is_missing
            tally.missing += is_missing
            tally.unneeded += not is_mine
        if not is_mine:
            return False
        await self._pay(_METADATA_BYTES)
        fetched = await duty.fetch(entry_id)
        if fetched.packet is None and fetched.fate is not Fate.UNMENDED:
            # The ledger may have moved, or gone, since its metadata was read.
            await self._pay(2 * _METADATA_BYTES)
            duty = await self._duties.read(ledger_id)
            if not duty.is_mine(entry_id):
                return False
            fetched = await duty.fetch(entry_id)
        if fetched.packet is None:
            fate = fetched.fate if duty.is_settled(entry_id) else Fate.UNMENDED
            bad.note(entry_id, f"{problem}; {fetched.reason}", fate)
            return False
        status = await self._put(fetched.packet, duty.master_key)
        await self._pay(len(fetched.packet))
        if status is not Status.OK:
            reason = f"{problem}; this bookie does not take the copy ({status.name})"
            bad.note(entry_id, reason, Fate.UNMENDED)
            return False
        bad.clear(entry_id)
        for tally in (self._pass, self.total):
            tally.mended += 1
        return True

    async def _put(self, packet: bytes, master_key: bytes) -> Status:
        """Add the packet as a recovery of high priority does; wait while there is no room."""
        status = Status.TOO_MANY_REQUESTS
        for _ in range(_ADD_TRIES):
            done: asyncio.Future[Status] = self._loop.create_future()
            self._add(packet, master_key, _setter(done), is_recovery=True, is_high_priority=True)
            status = await done
            if status is not Status.TOO_MANY_REQUESTS:
                break
            await asyncio.sleep(_ADD_PAUSE_S)
        return status

    async def _pay(self, byte_count: int) -> None:
        """Wait until the budget has so many bytes more; small sums are paid together."""
        self._owed_bytes += byte_count
        async with self._pay_lock:
            if self._owed_bytes >= _STEP_BYTES:
                owed, self._owed_bytes = self._owed_bytes, 0
                await asyncio.sleep(owed / self._config.scrub_bytes_per_s)

    async def _on_disk(self, job: Callable[[], T]) -> T:
        """Run a job to its end, though this is cancelled: the storage does not close before."""
        return await asyncio.shield(self._storage.submit(job))

    # --- entries that reads found damaged -------------------------------------------------------

    def _damaged_read(self, ledger_id: int, entry_id: int) -> None:
        ids, now = (ledger_id, entry_id), self._loop.time()
        if now - self._tried.get(ids, -_HEAL_AGAIN_S) < _HEAL_AGAIN_S:
            return
        if len(self._reads) < _READ_QUEUE_MAX:  # else the next pass finds it
            self._tried[ids] = now
            self._reads[ids] = None
            self._read_found.set()
        if len(self._tried) > 10 * _READ_QUEUE_MAX:
            del self._tried[next(iter(self._tried))]

    async def _mend_reads(self) -> None:
        while True:
            await self._read_found.wait()
            self._read_found.clear()
            while self._reads:
                ledger_id, entry_id = next(iter(self._reads))
                del self._reads[ledger_id, entry_id]
                try:
                    await self._mend_read(ledger_id, entry_id)
                except NoSuchLedgerMetadataError:
                    pass
                except (BookieError, OSError) as error:
                    _log.warning("ledger %d entry %d: not mended: %s", ledger_id, entry_id, error)
            await self._save()

    async def _mend_read(self, ledger_id: int, entry_id: int) -> None:
        await self._pay(_METADATA_BYTES)
        duty = await self._duties.read(ledger_id)
        known = self._bad.get(ledger_id)
        found = BadLedger() if known is None else known
        is_mended = await self._mend(duty, entry_id, found)
        if known is None:
            self._note(ledger_id, found, is_mended)
        elif found.is_empty and self._bad.get(ledger_id) is found:
            del self._bad[ledger_id]
        self._set_timer()

    # --- what is known ----------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Return progress and results as JSON: this pass, or the last one, and the bad ledgers."""
        done = self._pass
        return {
            "is_checking": self._next_ledger_id is not None,
            "began_us": self._began_us,
            "passes": self._pass_count,
            "ledgers_done": self._ledgers_done,
            "ledgers_total": self._ledgers_total,
            "logs_done": self._logs_done,
            "logs_total": self._logs_total,
            "entries": done.entries,
            "bytes": done.bytes,
            "damaged": done.damaged,
            "missing": done.missing,
            "unneeded": done.unneeded,
            "mended": done.mended,
            "damaged_logs": [
                {"log_number": number, "problem": problem}
                for number, problem in sorted(self._storage.damaged_logs.items())
            ],
            "bad_ledger_count": len(self._bad),
            "bad_ledgers": [
                bad.record(ledger_id)
                for ledger_id, bad in sorted(self._bad.items())[:_REPORTED_MAX]
            ],
        }

    def figures(self) -> list[Figure]:
        """Return what is counted, for the metrics of the process."""
        total, bad = self.total, self._bad.values()
        share = self._ledgers_done / self._ledgers_total if self._ledgers_total else 0.0
        values = (
            total.damaged + total.missing,
            self._failed_pass_count,
            self._pass_count,
            share,
            total.entries,
            total.bytes,
            total.mended,
            *(sum(one.count(fate) for one in bad) for fate in Fate),
            len(self._bad),
            len(self._storage.damaged_logs),
        )
        return [
            Figure(name, meaning, float(value))
            for (name, meaning), value in zip(MEANINGS.items(), values, strict=True)
        ]


_SAID = {Fate.LOST: _log.critical, Fate.UNREADABLE: _log.critical, Fate.UNMENDED: _log.error}
_MEANT = {
    Fate.LOST: "lost",
    Fate.UNREADABLE: "on no bookie that can read them",
    Fate.UNMENDED: "damaged or missing here and could not be copied yet",
}


def _setter(done: asyncio.Future[Status]) -> Callable[[Status], None]:
    def on_done(status: Status) -> None:
        if not done.done():
            done.set_result(status)

    return on_done


MEANINGS = {
    "scrubber_detectedScrubErrors": "entries found damaged or missing since the start",
    "scrubber_detectedFatalScrubErrors": "passes that an error stopped for a while",
    "bookie_scrub_passes": "passes that came to their end since the start",
    "bookie_scrub_progress": "share of the ledgers that the pass has gone through",
    "bookie_scrub_entries": "entries checked since the start",
    "bookie_scrub_bytes": "bytes read from entry logs by the scrub since the start",
    "bookie_scrub_mended_entries": "entries put in place again since the start",
    "bookie_scrub_lost_entries": "entries that are known to be on no bookie any more",
    "bookie_scrub_unreadable_entries": "entries of which no bookie has a copy that can be read",
    "bookie_scrub_unmended_entries": "entries that are damaged here and could not be copied yet",
    "bookie_scrub_bad_ledgers": "ledgers with such entries",
    "bookie_scrub_damaged_logs": "entry logs that wait to be compacted because of damage in them",
}
"""The first names are Apache BookKeeper's."""
