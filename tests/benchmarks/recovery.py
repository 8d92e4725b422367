"""Our AutoRecovery against Apache's over the same Apache bookies: `make bench-recovery`.

Three of Apache's bookies, fsync on, and one worker process of each side. A bookie belongs to one
cluster: ours sees these three in a second one, where they are registered by this program, and their
garbage collection is off. Ledgers are written anew for every turn with two members, CRC32C; then
their metadata gets a third one that is nowhere registered, so that each worker has to make the same
copies on the same bookie. Tasks are published while AutoRecovery is disabled; the time is from
enabling it to the end of the last task. Sides take turns, the first by turns; figures are medians
of the rounds after one that warms up. Both have their defaults, but for the heap (512 MB each) and
our worker's poll_interval_s (0.1; Apache's is told by a watch); Apache's comes once more with
rereplicationEntryBatchSize 500.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bookie.admin.world import Cluster
from bookie.admin.zookeeper_process import start_zookeeper
from bookie.autorecovery.election import current_auditor
from bookie.autorecovery.tasks import TaskStore
from bookie.client.client import LedgerClient
from bookie.ledger import metadata_codec
from bookie.ledger.types import (
    BookieId,
    EntryId,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Segment,
)
from bookie.metadata.cluster import initialize, read_layout
from bookie.metadata.interfaces import Create, VersionedStore
from bookie.metadata.ledger_paths import AVAILABLE, COOKIES, ledger_path
from bookie.metadata.paths import parent_of
from bookie.runtime.os_child_process import ChildProcess, python_command
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_rng import OsRng
from tests.benchmarks.harness import Bench, busy_machine, fdatasync_us
from tests.benchmarks.ledger import STORAGE, our_client
from tests.fixtures.bookie_processes import in_loop, new_cluster, registered
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.interop.apache import (
    BENCH_JVM,
    CannotFetchError,
    Release,
    apache_bookies,
    release,
    server_conf,
)

PEER = "Apache's"
GHOST = BookieId("127.0.0.1:1")
"""Named by ledgers, registered nowhere."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.02
_LIMIT_S = 300.0
_NO_GC = "gcWaitTime=86400000\nminorCompactionInterval=0\nmajorCompactionInterval=0\n"
_QUIET_AUDITOR = "auditorPeriodicCheckInterval=0\nauditorPeriodicBookieCheckInterval=0\n"


@dataclass(frozen=True)
class Load:
    """Ledgers of one turn."""

    name: str
    ledgers: int
    entries: int
    """Of each ledger."""
    size: int
    """Bytes of an entry."""

    @property
    def megabytes(self) -> float:
        return self.ledgers * self.entries * self.size / 1e6


BULK = Load("1 KB entries, 2,000 a ledger", 20, 2000, 1024)
LARGE = Load("64 KiB entries, 100 a ledger", 10, 100, 65_536)
SMALL = Load("ledgers of 10 entries", 300, 10, 1024)
UNDER_LOAD = Load("beside a writer", 90, 2000, 1024)
LOADS = (BULK, LARGE, SMALL)
WRITER_SIZE = 1024
WRITER_SECONDS = 5
SETTLING = 3
LOOKS = 4
THROTTLED_MB = 4.0
AUDITS = 3
_NODES_AT_ONCE = 20
"""A ZooKeeper keeps its last 500 transactions in memory: larger ones fill it."""
_MULTIS_AT_ONCE = 50
PARTS = "copies,writers,audits"
Results = dict[str, tuple[list[dict[str, float]], list[dict[str, float]]]]


class Side:
    """One contender: its cluster, and its worker's process."""

    def __init__(self, name: str, cluster: Cluster, store: VersionedStore, client: LedgerClient):
        self.name = name
        self.cluster = cluster
        self.client = client
        self.tasks = TaskStore(store, cluster.root)
        self.store = store

    async def prepare(self, load: Load, first_id: int) -> list[int]:
        """Write the ledgers and publish their tasks, AutoRecovery disabled; return their ids."""
        await self.tasks.disable()
        data = b"x" * load.size
        ledger_ids = list(range(first_id, first_id + load.ledgers))
        for ledger_id in ledger_ids:
            writer = await self.client.create_ledger(2, 2, 2, ledger_id=ledger_id)
            for start in range(0, load.entries, 500):
                count = min(500, load.entries - start)
                await asyncio.gather(*(writer.add(data) for _ in range(count)))
            await writer.close()
            await self._name_ghost(ledger_id)
        for ledger_id in ledger_ids:
            await self.tasks.publish(ledger_id, (GHOST,), int(time.time() * 1000), ())
        return ledger_ids

    async def _name_ghost(self, ledger_id: int) -> None:
        ledgers = self.client.services.ledgers
        metadata, version = await ledgers.read(ledger_id)
        (segment,) = metadata.segments
        # By turns: a worker asks the members in their order, and the lost one may be any of them.
        place = ledger_id % 3
        ensemble = (*segment.ensemble[:place], GHOST, *segment.ensemble[place:])
        changed = replace(
            metadata,
            ensemble_size=3,
            write_quorum_size=3,
            segments=(Segment(segment.first_entry_id, ensemble),),
        )
        await ledgers.write(changed, version)

    async def replicate(self) -> float:
        """Enable AutoRecovery and wait until no task is left; return the seconds."""
        begun_s = time.perf_counter()
        await self.tasks.enable()
        while await self.tasks_left():
            if time.perf_counter() - begun_s > _LIMIT_S:
                statuses = [one.reason for one in await self.tasks.statuses()]
                raise AssertionError(f"{self.name}: not replicated in {_LIMIT_S} s: {statuses}")
            await asyncio.sleep(_POLL_S)
        return time.perf_counter() - begun_s

    async def tasks_left(self) -> int:
        return len([ledger_id async for ledger_id in self.tasks.ledger_ids()])

    async def finish(self, ledger_ids: list[int]) -> None:
        """See that the ledgers name no lost bookie, and delete them."""
        for ledger_id in ledger_ids:
            metadata = await self.client.metadata(ledger_id)
            assert GHOST not in metadata.last_segment.ensemble, metadata
            await self.client.delete(ledger_id)


def _cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / _TICKS_PER_S


def _memory_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1e3
    raise AssertionError(f"process {pid} is gone")


@contextmanager
def our_recovery(cluster: Cluster, folder: Path, *settings: str) -> Generator[ChildProcess]:
    """Run `bookie autorecovery` for the block."""
    command = python_command(
        "bookie.admin.commands", "autorecovery", "--name", "ours",
        "--zookeeper", cluster.zookeeper, "--root", cluster.root,
        "--set", "poll_interval_s=0.1",
        *(part for setting in settings for part in ("--set", setting)),
    )  # fmt: skip
    child = ChildProcess(command, folder / "ours.log")
    try:
        yield child
    finally:
        child.stop(20)


@contextmanager
def apaches_recovery(
    java: Release, cluster: Cluster, folder: Path, settings: str = ""
) -> Generator[ChildProcess]:
    """Run Apache's AutoRecoveryMain for the block."""
    conf = folder / "autorecovery.conf"
    base = server_conf(cluster.zookeeper, folder / "none", own_port(), cluster.root)
    conf.write_text(base + _QUIET_AUDITOR + settings)
    main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
    command = java.command(main, "--conf", str(conf), jvm=BENCH_JVM)
    child = ChildProcess(command, folder / "apaches.log")
    try:
        yield child
    finally:
        child.stop(20)


async def until_elected(side: Side) -> None:
    """Wait until the side's process stands for auditor: its worker runs by then, too."""
    end_s = time.perf_counter() + 60
    while await current_auditor(side.store, side.tasks) is None:
        assert time.perf_counter() < end_s, f"{side.name}: no auditor"
        await asyncio.sleep(0.1)


async def show_bookies(store: VersionedStore, real: str, shadow: str) -> None:
    """Let a second cluster see the first one's bookies, as long as this session lives."""
    for name in (AVAILABLE, COOKIES):
        for bookie in await store.children(f"{real}/{name}"):
            if bookie != "readonly":
                data, _ = await store.read(f"{real}/{name}/{bookie}")
                is_ephemeral = name == AVAILABLE
                path = f"{shadow}/{name}/{bookie}"
                await store.create(path, data, is_ephemeral=is_ephemeral, make_parents=True)


class Turns:
    """Plays loads on both sides by turns."""

    def __init__(self, ours: Side, theirs: Side, rounds: int) -> None:
        self._ours = ours
        self._theirs = theirs
        self._rounds = rounds
        self._next_id = 1

    def next_ids(self, count: int) -> int:
        """Return the first of so many ids that no ledger had, in either cluster."""
        first = self._next_id
        self._next_id += count
        return first

    async def play(self, loads: tuple[Load, ...], pids: tuple[int, int]) -> Results:
        """Return seconds and the worker's processor time by load, for both sides."""
        found: Results = {}
        for number in range(self._rounds + 1):
            for load in loads:
                both = [(0, self._ours), (1, self._theirs)]
                for index, side in both if number % 2 else reversed(both):
                    ids = await side.prepare(load, self.next_ids(load.ledgers))
                    cpu_s = _cpu_s(pids[index])
                    seconds = await side.replicate()
                    cpu_s = _cpu_s(pids[index]) - cpu_s
                    await side.finish(ids)
                    warm = "" if number else " (warm-up)"
                    print(
                        f"  {side.name:8} {load.name:28} {seconds:7.2f} s, "
                        f"{load.megabytes / seconds:6.1f} MB/s, {load.ledgers / seconds:6.1f} "
                        f"ledgers/s, CPU {cpu_s:5.2f} s{warm}",
                        flush=True,
                    )
                    if number:
                        pair = found.setdefault(load.name, ([], []))
                        pair[index].append({"seconds": seconds, "cpu_s": cpu_s})
        return found


async def beside_a_writer(
    turns: Turns, side: Side, writer: LineProcess, rate: int
) -> tuple[list[float], list[float], float]:
    """Let a writer add at a rate; return its p99 alone, while ledgers are copied, and MB/s copied.

    By turns over the same ledgers: what their writing left to the bookies to do slows the writer,
    too, and is over after the first SETTLING runs, which count for nothing.
    """
    load = UNDER_LOAD
    ids = await side.prepare(load, turns.next_ids(load.ledgers))

    async def p99_ms() -> float:
        told = await asyncio.to_thread(ask, writer, f"paced {WRITER_SIZE} {rate} {WRITER_SECONDS}")
        return told["p99_ms"]

    for _ in range(SETTLING):
        await p99_ms()
    alone: list[float] = []
    beside: list[float] = []
    copied = 0
    for _ in range(LOOKS):
        alone.append(await p99_ms())
        before = await side.tasks_left()
        await side.tasks.enable()
        beside.append(await p99_ms())
        left = await side.tasks_left()
        assert left, "the copying ended before the writer: make UNDER_LOAD larger"
        copied += before - left
        await side.tasks.disable()
        end_s = time.perf_counter() + _LIMIT_S
        while await side.tasks.locked():  # it ends what it has begun
            assert time.perf_counter() < end_s, f"{side.name}: still copies"
            await asyncio.sleep(0.1)
    await side.replicate()
    await side.finish(ids)
    seconds = LOOKS * WRITER_SECONDS
    return alone, beside, copied * load.megabytes / load.ledgers / seconds


def ask(client: LineProcess, command: str) -> dict[str, Any]:
    client.tell(command)
    answer = client.next(_LIMIT_S)
    assert answer is not None, "\n".join(client.errors)
    return answer


# --- audits ---------------------------------------------------------------------------------------


async def make_ledgers(store: VersionedStore, root: str, count: int, members: list[str]) -> None:
    """Make the metadata of so many CLOSED ledgers; the last one names the lost bookie, too."""
    layout = await read_layout(store, root)

    def node(ledger_id: int) -> Create:
        ensemble = (*members[:2], GHOST if ledger_id == count - 1 else members[2])
        metadata = LedgerMetadata(
            ledger_id=LedgerId(ledger_id),
            ensemble_size=3,
            write_quorum_size=3,
            ack_quorum_size=2,
            segments=(Segment(EntryId(0), tuple(map(BookieId, ensemble))),),
            state=LedgerState.CLOSED,
            last_entry_id=EntryId(999),
            length=1_024_000,
        )
        return Create(ledger_path(root, layout, ledger_id), metadata_codec.encode(metadata))

    for start in range(0, count, _NODES_AT_ONCE * _MULTIS_AT_ONCE):
        end = min(count, start + _NODES_AT_ONCE * _MULTIS_AT_ONCE)
        nodes = [node(ledger_id) for ledger_id in range(start, end)]
        for parent in dict.fromkeys(parent_of(one.path) for one in nodes):
            if await store.exists(parent) is None:
                await store.create(parent, make_parents=True)
        await asyncio.gather(
            *(
                store.multi(nodes[place : place + _NODES_AT_ONCE])
                for place in range(0, len(nodes), _NODES_AT_ONCE)
            )
        )


async def audits(side: Side, pid: int, ledger_id: int, rounds: int) -> tuple[float, float, float]:
    """Let the auditor look at all ledgers; return seconds, and MB that it grew by.

    The last is what it grew by since the first audit.
    """
    before_mb = _memory_mb(pid)
    taken: list[float] = []
    first_mb = 0.0
    # A worker that takes the task would find no bookie to ask.
    assert await side.tasks.lock(ledger_id, "bench")
    for _ in range(rounds):
        begun_s = time.perf_counter()
        await side.tasks.request_audit()
        while (found := await side.tasks.read(ledger_id)) is None:
            assert time.perf_counter() - begun_s < _LIMIT_S, f"{side.name}: no audit"
            await asyncio.sleep(_POLL_S)
        taken.append(time.perf_counter() - begun_s)
        first_mb = first_mb or _memory_mb(pid)
        print(f"  {side.name:8} audit {taken[-1]:.2f} s, {_memory_mb(pid):.0f} MB", flush=True)
        await side.store.delete(side.tasks.task_path(ledger_id), found[1])
    await side.tasks.unlock(ledger_id, "bench")
    return statistics.median(taken), _memory_mb(pid) - before_mb, _memory_mb(pid) - first_mb


# --- the whole ------------------------------------------------------------------------------------


@asynccontextmanager
async def side_of(name: str, cluster: Cluster) -> AsyncGenerator[Side]:
    async with cluster.session() as store:
        client = await LedgerClient.connect(store, root=cluster.root, rng=OsRng(), clock=OsClock())
        side = Side(name, cluster, store, client)
        await side.tasks.prepare()
        try:
            yield side
        finally:
            await client.close()


class Measurement:
    """All of it; run() once."""

    def __init__(
        self, bench: Bench, java: Release, folder: Path, mine: Cluster, peers: Cluster
    ) -> None:
        self._bench = bench
        self._java = java
        self._folder = folder
        self._mine = mine
        self._peers = peers

    async def run(self, parts: list[str], audited: int) -> None:
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(side_of("ours", self._mine))
            theirs = await stack.enter_async_context(side_of("Apache's", self._peers))
            await show_bookies(ours.store, self._peers.root, self._mine.root)
            await ours.client.bookies.refresh()
            turns = Turns(ours, theirs, self._bench.rounds)
            for name, part in (
                ("copies", lambda: self._copies(turns, ours, theirs)),
                ("writers", lambda: self._beside_writers(turns, ours, theirs)),
                ("audits", lambda: self._audits(audited)),
            ):
                if name in parts:
                    await part()
                    self._bench.write()

    async def _copies(self, turns: Turns, ours: Side, theirs: Side) -> None:
        for title, settings, bar in (
            ("defaults", "", 1.0),
            ("its batch at 500", "rereplicationEntryBatchSize=500\n", 0.7),
        ):
            print(f"Apache's AutoRecovery: {title}", flush=True)
            with (
                our_recovery(self._mine, self._folder) as mine,
                apaches_recovery(self._java, self._peers, self._folder, settings) as peer,
            ):
                await until_elected(ours)
                await until_elected(theirs)
                self._report(title, bar, await turns.play(LOADS, (mine.pid, peer.pid)))

    def _report(self, title: str, bar: float, found: Results) -> None:
        for load in LOADS:
            mine, peer = found[load.name]
            amount = load.ledgers if load is SMALL else load.megabytes
            unit = "1/s" if load is SMALL else "MB/s"

            def rate(answers: list[dict[str, float]], amount: float = amount) -> float:
                return amount / statistics.median(one["seconds"] for one in answers)

            def cpu(answers: list[dict[str, float]], amount: float = amount) -> float:
                return statistics.median(one["cpu_s"] for one in answers) / amount * 1e3

            name = f"{load.name}; {title}"
            self._bench.add(name, unit, rate(mine), rate(peer), PEER, bar, better="higher")
            per = "ledger" if load is SMALL else "MB"
            self._bench.add(f"{name}: worker's CPU per {per}", "ms", cpu(mine), cpu(peer), PEER)

    async def _beside_writers(self, turns: Turns, ours: Side, theirs: Side) -> None:
        """Time a writer at half its rate, alone and while ledgers are copied."""
        with our_client(self._mine) as writer:
            writer.until("ready")
            most = [ask(writer, f"add {WRITER_SIZE} 20000 1000")["adds_per_s"] for _ in range(3)]
            rate = int(statistics.median(most) / 2)
            print(f"a writer at half its rate: {rate} adds/s", flush=True)
            for title, settings, bar in (
                ("unthrottled", (), None),
                (
                    f"at {THROTTLED_MB:g} MB/s",
                    (f"copy_bytes_per_s={int(THROTTLED_MB * 1e6)}",),
                    1.5,
                ),
            ):
                with our_recovery(self._mine, self._folder, *settings):
                    await until_elected(ours)
                    await self._beside(turns, ours, writer, rate, f"ours {title}", bar)
            throttle = f"replicationRateByBytes={int(THROTTLED_MB * 1e6)}\n"
            for title, settings in (("unthrottled", ""), (f"at {THROTTLED_MB:g} MB/s", throttle)):
                with (
                    our_client(self._peers) as beside,
                    apaches_recovery(self._java, self._peers, self._folder, settings),
                ):
                    beside.until("ready")
                    await until_elected(theirs)
                    await self._beside(turns, theirs, beside, rate, f"Apache's {title}", None)

    async def _beside(
        self, turns: Turns, side: Side, writer: LineProcess, rate: int, title: str,
        bar: float | None,
    ) -> None:  # fmt: skip
        alone: list[float] = []
        beside: list[float] = []
        copied: list[float] = []
        for _ in range(self._bench.rounds):
            found = await beside_a_writer(turns, side, writer, rate)
            alone += found[0]
            beside += found[1]
            copied.append(found[2])
        print(
            f"  {title}: copied at {statistics.median(copied):.1f} MB/s meanwhile; ms alone "
            f"{[round(one) for one in alone]}, beside {[round(one) for one in beside]}",
            flush=True,
        )
        self._bench.add(
            f"a writer's p99 while {title} copies : alone", "ms",
            statistics.median(beside), statistics.median(alone), "alone", bar,
        )  # fmt: skip

    async def _audits(self, count: int) -> None:
        """Compare an audit of many ledgers, of the same nodes."""
        cluster = replace(self._mine, root="/audited")
        async with cluster.session() as store:
            await initialize(store, cluster.root, rng=OsRng())
            members = await store.children(f"{self._peers.root}/{AVAILABLE}")
            members.remove("readonly")
            await make_ledgers(store, cluster.root, count, members)
        found: list[tuple[float, float, float]] = []
        async with side_of("ours", cluster) as side:
            await show_bookies(side.store, self._peers.root, cluster.root)
            # No bookie has their entries: as Apache's, it looks at the metadata only.
            with our_recovery(cluster, self._folder, "ledger_check_interval_s=0") as child:
                await until_elected(side)
                found.append(await audits(side, child.pid, count - 1, AUDITS))
            side.name = "Apache's"
            with apaches_recovery(self._java, cluster, self._folder) as child:
                await until_elected(side)
                found.append(await audits(side, child.pid, count - 1, AUDITS))
        (mine_s, mine_mb, mine_leak_mb), (peer_s, peer_mb, peer_leak_mb) = found
        self._bench.add(f"audit of {count:,} ledgers", "s", mine_s, peer_s, PEER)
        self._bench.add("memory that grew by audits", "MB", mine_mb, peer_mb, PEER)
        self._bench.add(
            f"of that since the first of {AUDITS}", "MB", mine_leak_mb, peer_leak_mb, PEER
        )


def measure(java: Release, folder: Path, rounds: int, parts: list[str], audited: int) -> Bench:
    bench = Bench("recovery", rounds)
    calibrations = [fdatasync_us(folder)]
    with start_zookeeper(folder / "zookeeper") as zookeeper:
        mine = new_cluster(zookeeper, "/ours")
        peers = new_cluster(zookeeper, "/theirs")
        with apache_bookies(
            java, zookeeper.hosts, folder, 3, jvm=BENCH_JVM, root=peers.root, storage=STORAGE,
            more=_NO_GC,
        ) as bookies:  # fmt: skip
            registered(peers, bookies)
            in_loop(lambda: Measurement(bench, java, folder, mine, peers).run(parts, audited))
        calibrations.append(fdatasync_us(folder))
    bench.fdatasync_us = statistics.median(calibrations)
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default=PARTS, help="what is measured, between commas")
    parser.add_argument("--audited", type=int, default=100_000)
    options = parser.parse_args()
    try:
        java = release("current")
    except CannotFetchError as error:
        print(f"*** SKIPPED: {error}")
        return
    print(f"peer: Apache BookKeeper {java.version}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as folder, busy_machine():
        bench = measure(
            java, Path(folder), options.rounds, options.parts.split(","), options.audited
        )
    document = bench.write()
    print(f"\nwrote {document} and {bench.write_markdown()}")
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
