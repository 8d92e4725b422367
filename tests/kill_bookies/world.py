"""One cluster of bookie processes with AutoRecovery, ledgers on it, and what must be true of them.

A writer's entries are made from the ledger's id and their number, so whatever comes back can be
judged. `acknowledged` counts what a writer was told is durable: all of that has to stay.
"""

import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bookie.admin.world import Cluster
from bookie.autorecovery.tasks import TaskStore
from bookie.client.client import LedgerClient
from bookie.client.interfaces import ReadReply
from bookie.client.writer import LedgerWriter
from bookie.errors import BookieError, DigestMismatchError, NoSuchLedgerMetadataError
from bookie.ledger.codec import EntryDigest
from bookie.ledger.distribution import write_set
from bookie.ledger.types import BookieId, DigestType, LedgerMetadata, Status
from bookie.lifecycle.operations import Operations
from bookie.runtime.os_child_process import ChildProcess, python_command
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from tests.fixtures.bookie_processes import OurBookie, registered

SESSION_S = 3.0
LIMIT_S = 180.0
READS_AT_ONCE = 500
RECOVERY_SETTINGS = ("poll_interval_s=0.2", "open_ledger_grace_s=1", "failure_pause_s=8")
DIGEST = EntryDigest.of(DigestType.CRC32C, b"")


class BrokenPromiseError(AssertionError):
    """A ledger is not what was promised."""


def payload(ledger_id: int, number: int) -> bytes:
    """Return what entry `number` holds: 20 to 2,000 bytes."""
    size = 20 + (ledger_id * 7919 + number * 104_729) % 1981
    text = b"ledger %d entry %d;" % (ledger_id, number)
    return (text * (size // len(text) + 1))[:size]


@dataclass(slots=True)
class Written:
    """A ledger, and how many of its first entries were acknowledged."""

    ledger_id: int
    acknowledged: int = 0


@dataclass(slots=True)
class Checked:
    """What check_whole() has read."""

    ledgers: int = 0
    entries: int = 0
    replicas: int = 0


class Load:
    """A writer at work: a few adds under way all the time, until end()."""

    WINDOW = 8
    PAUSE_S = 0.004

    def __init__(self, writer: LedgerWriter) -> None:
        self.written = Written(writer.ledger_id)
        self.writer = writer
        self.failures: list[str] = []
        self._taken: list[tuple[float, float]] = []
        """(when it began, seconds) of each acknowledged add."""
        self._is_over = False
        self._window = asyncio.Semaphore(self.WINDOW)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while not self._is_over and not self.failures:
            await self._window.acquire()
            begun_s = time.monotonic()

            def on_added(
                entry_id: int, error: BookieError | None, begun_s: float = begun_s
            ) -> None:
                self._window.release()
                if error is not None:
                    self.failures.append(f"{type(error).__name__}: {error}")
                    return
                assert entry_id == self.written.acknowledged
                self.written.acknowledged += 1
                self._taken.append((begun_s, time.monotonic() - begun_s))

            try:
                self.writer.add_nowait(payload(self.writer.ledger_id, number), on_added)
            except BookieError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                return
            number += 1
            await asyncio.sleep(self.PAUSE_S)

    async def end(self) -> None:
        """Wait for what is under way and close the ledger; BrokenPromiseError if an add failed."""
        self._is_over = True
        await self._task
        for _ in range(self.WINDOW):
            await self._window.acquire()
        if self.failures:
            raise BrokenPromiseError(
                f"a writer was disturbed, ledger {self.writer.ledger_id}: {self.failures[0]}"
            )
        await self.writer.close()

    def told(self, fault_s: float) -> dict[str, Any]:
        """Return counts, and the times of adds before and since the fault."""
        return {
            "ledger_id": self.writer.ledger_id,
            "adds": self.written.acknowledged,
            "failed": len(self.failures),
            "segments": len(self.writer.metadata.segments),
            "before": _latency([taken for begun, taken in self._taken if begun < fault_s]),
            "since": _latency([taken for begun, taken in self._taken if begun >= fault_s]),
        }


def _latency(taken_s: list[float]) -> dict[str, float]:
    if not taken_s:
        return {"adds": 0}
    taken_s.sort()
    return {
        "adds": len(taken_s),
        "p50_ms": round(statistics.median(taken_s) * 1e3, 2),
        "p99_ms": round(taken_s[len(taken_s) * 99 // 100] * 1e3, 2),
        "max_ms": round(taken_s[-1] * 1e3, 2),
    }


@dataclass
class World:
    """See the module. Used on one loop."""

    cluster: Cluster
    bookies: dict[BookieId, OurBookie]
    client: LedgerClient
    tasks: TaskStore
    operations: Operations
    rng: random.Random
    written: list[Written] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)

    # --- ledgers ----------------------------------------------------------------------------------

    async def write_ledgers(self, count: int, shapes: Iterable[tuple[int, int, int]]) -> int:
        """Make ledgers, one in ten left open as by a writer that died; return how many are."""
        chosen = list(shapes)
        open_count = 0
        for start in range(0, count, 10):
            group = [self.rng.choice(chosen) for _ in range(min(10, count - start))]
            left_open = self.rng.randrange(len(group))
            open_count += 1
            await asyncio.gather(
                *(self._write(shape, index == left_open) for index, shape in enumerate(group))
            )
        return open_count

    async def _write(self, shape: tuple[int, int, int], is_left_open: bool) -> None:
        entries = self.rng.choice((0, 1, 2, self.rng.randrange(40), self.rng.randrange(40)))
        writer = await self.client.create_ledger(*shape)
        written = Written(writer.ledger_id)
        self.written.append(written)
        for number in range(entries):
            await writer.add(payload(writer.ledger_id, number))
            written.acknowledged += 1
        await (writer.abandon() if is_left_open else writer.close())

    async def start_load(self, shape: tuple[int, int, int], adds: int) -> Load:
        """Return a writer at work that has `adds` entries acknowledged."""
        load = Load(await self.client.create_ledger(*shape))
        self.loads.append(load)
        self.written.append(load.written)
        await self.until(
            lambda: _true(load.written.acknowledged >= adds or bool(load.failures)),
            lambda: _text(f"a writer has {load.written.acknowledged} of {adds} adds"),
        )
        return load

    async def end(self, load: Load) -> None:
        """End a load before the round's fault; it is among the ledgers, not the writers."""
        await load.end()
        self.loads.remove(load)

    async def recover_abandoned(self) -> None:
        """Close the ledgers whose writers died."""
        at_work = {load.writer.ledger_id for load in self.loads}
        for metadata in await self.metadata():
            if not metadata.is_closed and metadata.ledger_id not in at_work:
                await self.client.recover(metadata.ledger_id)

    async def metadata(self) -> list[LedgerMetadata]:
        """Return what all ledgers of the cluster are, without those deleted meanwhile."""
        ledger_ids = [ledger_id async for ledger_id in self.client.ledger_ids()]
        found: list[LedgerMetadata] = []
        for start in range(0, len(ledger_ids), 50):
            part = ledger_ids[start : start + 50]
            answers = await asyncio.gather(*map(self._metadata_of, part))
            found += [one for one in answers if one is not None]
        return found

    async def _metadata_of(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            return await self.client.metadata(ledger_id)
        except NoSuchLedgerMetadataError:
            return None

    async def naming(self, bookie_ids: Collection[str]) -> list[int]:
        """Return the ledgers that name one of these."""
        return [
            one.ledger_id
            for one in await self.metadata()
            if any(b in bookie_ids for segment in one.segments for b in segment.ensemble)
        ]

    # --- waiting ----------------------------------------------------------------------------------

    async def until(
        self, is_true: Callable[[], Awaitable[bool]], state: Callable[[], Awaitable[str]]
    ) -> None:
        """Ask until it is so; BrokenPromiseError with the state after LIMIT_S."""
        end_s = time.monotonic() + LIMIT_S
        while not await is_true():
            if time.monotonic() > end_s:
                raise BrokenPromiseError(f"after {LIMIT_S:.0f} s: {await state()}")
            await asyncio.sleep(0.1)

    async def until_replicated(self, lost: Collection[str]) -> None:
        """Wait until no ledger names a lost bookie and no task is left."""

        async def is_replicated() -> bool:
            return not await self.naming(lost) and not await self._task_ids()

        async def state() -> str:
            statuses = [f"{one.ledger_id}: {one.reason}" for one in await self.tasks.statuses()]
            return f"{await self.naming(lost)} name {lost}; tasks {await self._task_ids()}; " + (
                "; ".join(statuses) or "no status says why"
            )

        await self.until(is_replicated, state)

    async def _task_ids(self) -> list[int]:
        return [ledger_id async for ledger_id in self.tasks.ledger_ids()]

    async def until_away(self, bookie_id: str) -> None:
        await self.until(
            lambda: _true(bookie_id not in self.client.bookies.registered),
            lambda: _text(f"{bookie_id} is still registered"),
        )

    async def until_serving(self, bookie: OurBookie) -> None:
        def is_serving() -> bool:
            bookie.check_alive()
            return bookie.has_started() and bookie.bookie_id in self.client.bookies.writable

        await self.until(
            lambda: _true(is_serving()), lambda: _text(f"{bookie.bookie_id} does not serve")
        )

    # --- commands ---------------------------------------------------------------------------------

    async def command(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command of `bookie`; return its lines of JSON. BrokenPromiseError if it fails."""
        process = await asyncio.create_subprocess_exec(
            *python_command("bookie.admin.commands", *arguments),
            "--zookeeper", self.cluster.zookeeper, "--root", self.cluster.root, "--json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        printed, errors = await process.communicate()
        if process.returncode:
            raise BrokenPromiseError(f"bookie {' '.join(arguments)}: {errors.decode()}")
        return [json.loads(line) for line in printed.splitlines()]

    # --- checks -----------------------------------------------------------------------------------

    async def replicas(self, metadata: LedgerMetadata) -> list[tuple[int, BookieId, ReadReply]]:
        """Read each entry of a CLOSED ledger from each bookie of its write set."""
        asked: list[tuple[int, BookieId]] = []
        for number in range(metadata.last_entry_id + 1):
            ensemble = metadata.segment_of(number).ensemble
            places = write_set(number, metadata.ensemble_size, metadata.write_quorum_size)
            asked += [(number, ensemble[place]) for place in places]
        found: list[tuple[int, BookieId, ReadReply]] = []
        for start in range(0, len(asked), READS_AT_ONCE):
            part = asked[start : start + READS_AT_ONCE]
            replies = await asyncio.gather(
                *(self._read(bookie, metadata.ledger_id, number) for number, bookie in part)
            )
            found += [(*one, reply) for one, reply in zip(part, replies, strict=True)]
        return found

    async def _read(self, bookie: BookieId, ledger_id: int, number: int) -> ReadReply:
        answered: asyncio.Future[ReadReply] = asyncio.get_running_loop().create_future()
        self.client.services.channels.read(bookie, ledger_id, number, answered.set_result)
        return await answered

    async def check_whole(self) -> Checked:
        """Read all there is from every bookie that should have it, and as a reader does.

        BrokenPromiseError: an acknowledged entry is not in its ledger, or one of its copies is
        missing or is not what was written.
        """
        checked = Checked()
        for written in self.written:
            where = f"ledger {written.ledger_id}"
            metadata = await self.client.recover(written.ledger_id)
            if metadata.last_entry_id + 1 < written.acknowledged:
                raise BrokenPromiseError(
                    f"{where}: {written.acknowledged} entries were acknowledged, it was closed "
                    f"at {metadata.last_entry_id}"
                )
            for number, bookie, reply in await self.replicas(metadata):
                check_copy(written.ledger_id, number, bookie, reply)
                checked.replicas += 1
            await self._check_reading(metadata)
            checked.ledgers += 1
            checked.entries += metadata.last_entry_id + 1
        return checked

    async def _check_reading(self, metadata: LedgerMetadata) -> None:
        ledger_id, last = metadata.ledger_id, metadata.last_entry_id
        reader = await self.client.open(ledger_id)
        number = 0
        if last >= 0:
            async for entry in reader.entries(0, last):
                if entry.payload != payload(ledger_id, number):
                    raise BrokenPromiseError(f"ledger {ledger_id}: entry {number} is another")
                number += 1
        if number != last + 1:
            raise BrokenPromiseError(f"ledger {ledger_id}: {number} of {last + 1} entries read")
        await reader.close()


def check_copy(ledger_id: int, number: int, bookie: str, reply: ReadReply) -> None:
    """BrokenPromiseError unless a bookie's answer holds the entry that was written."""
    where = f"ledger {ledger_id}, entry {number}, on {bookie}"
    if reply.status is not Status.OK:
        raise BrokenPromiseError(f"{where}: expected a copy, found {reply.status.name}")
    try:
        found = DIGEST.open(reply.body, ledger_id, number).payload
    except DigestMismatchError as error:
        raise BrokenPromiseError(f"{where}: {error}") from error
    if found != payload(ledger_id, number):
        raise BrokenPromiseError(f"{where}: another payload")


async def _true(value: bool) -> bool:
    return value


async def _text(value: str) -> str:
    return value


# --- processes ------------------------------------------------------------------------------------


class Recovery:
    """`bookie autorecovery` alone; started when made."""

    def __init__(self, cluster: Cluster, folder: Path, *settings: str) -> None:
        command = python_command(
            "bookie.admin.commands", "autorecovery", "--name", "alone",
            "--zookeeper", cluster.zookeeper, "--root", cluster.root,
            "--session-timeout", str(SESSION_S),
            *(part for setting in settings for part in ("--set", setting)),
        )  # fmt: skip
        environment = {**os.environ, "PYTHONWARNINGS": "error"}
        self._child = ChildProcess(command, folder / "autorecovery.log", environment)

    def kill(self) -> None:
        self._child.kill()


@contextmanager
def processes(
    cluster: Cluster,
    folder: Path,
    count: int,
    beside: int,
    recovery_settings: tuple[str, ...] = RECOVERY_SETTINGS,
    bookie_settings: tuple[str, ...] = (),
    ledger_directories: int = 0,
) -> Generator[dict[BookieId, OurBookie]]:
    """Start bookies, AutoRecovery beside some of them and once alone; kill all at the end.

    ledger_directories: how many each bookie has, `<directory>-0` and so on; 0: those of --data.
    """
    settings = [part for one in recovery_settings for part in ("--set-autorecovery", one)]
    bookies: list[OurBookie] = []
    alone: Recovery | None = None
    try:
        for number in range(count):
            directory = folder / f"bookie-{number}"
            places = [f"{directory}-{place}" for place in range(ledger_directories)]
            options = [part for place in places for part in ("--ledgers", place)]
            if number < beside:
                options += ["--autorecovery", *settings]
            bookie = OurBookie(
                cluster, directory, *bookie_settings,
                session_timeout_s=SESSION_S, options=tuple(options),
            )  # fmt: skip
            bookies.append(bookie)
            bookie.start()
        alone = Recovery(cluster, folder, *recovery_settings)
        registered(cluster, bookies)
        yield {BookieId(bookie.bookie_id): bookie for bookie in bookies}
    finally:
        for bookie in bookies:
            bookie.kill()
        if alone is not None:
            alone.kill()


@asynccontextmanager
async def opened(
    cluster: Cluster, bookies: dict[BookieId, OurBookie], rng: random.Random
) -> AsyncGenerator[World]:
    """Connect to the cluster for the block."""
    async with cluster.existing() as store:
        client = await LedgerClient.connect(store, root=cluster.root, rng=OsRng(), clock=OsClock())
        try:
            tasks = TaskStore(store, cluster.root)
            operations = Operations(store, cluster.root, OsRng(), OsClock())
            yield World(cluster, bookies, client, tasks, operations, rng)
        finally:
            await client.close()
