"""Twenty minutes of ledgers rolled and deleted: memory and disk stay flat, cold reads harm little.

`make soak N=20` (minutes). Three bookies with small entry logs and frequent garbage collection; one
writer adds at a steady pace, rolls its ledger, and deletes ledgers beyond the newest KEPT; during
every second minute a reader goes through cold ledgers. Compared are the medians of memory and disk
in the last quarter with those of the second one, and the p99 of adds with cold reads and without.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bookie.admin.zookeeper_process import start_zookeeper
from bookie.client.client import LedgerClient
from bookie.client.writer import LedgerWriter
from bookie.runtime.os_executors import run
from tests.benchmarks.harness import Bench, busy_machine, fdatasync_us
from tests.fixtures.bookie_processes import OurBookie, client_of, new_cluster, our_bookies

ENTRY_BYTES = 1024
ENTRIES_PER_LEDGER = 10_000
ADDS_PER_S = 1000
ADDS_AT_ONCE = 50
KEPT = 6
"""Ledgers that are not deleted yet: what the disk has to hold is KEPT * 10 MB on each bookie."""
PHASE_S = 60.0
SETTINGS = (
    "gc_interval_s=15",
    "minor_compaction_interval_s=30",
    "major_compaction_interval_s=60",
    "entry_log_bytes_max=33554432",
    "journal_bytes_max=67108864",
    "write_cache_bytes_max=16777216",
    "read_cache_bytes_max=16777216",
    "flush_interval_s=2",
)
_MEMORY_BAR, _DISK_BAR, _P99_BAR = 1.15, 1.25, 1.5


@dataclass
class Samples:
    """What was seen."""

    add_ms: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    """By whether cold reads were going on."""
    memory_mb: list[float] = field(default_factory=list)
    disk_mb: list[float] = field(default_factory=list)
    ledgers: int = 0
    cold_reads: int = 0


class Soak:
    """One run."""

    def __init__(self, client: LedgerClient, bookies: list[OurBookie], seconds: float) -> None:
        self._client = client
        self._bookies = bookies
        self._end = time.monotonic() + seconds
        self._start = time.monotonic()
        self._closed: deque[int] = deque()
        self.samples = Samples()

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def _is_cold_phase(self) -> bool:
        return int((time.monotonic() - self._start) / PHASE_S) % 2 == 1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            group.create_task(self._read_cold())
            group.create_task(self._sample())

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        data = bytes(range(256)) * (ENTRY_BYTES // 256)
        next_at = loop.time()
        while not self._is_over:
            writer = await self._client.create_ledger(3, 3, 2)
            for _ in range(ENTRIES_PER_LEDGER // ADDS_AT_ONCE):
                next_at += ADDS_AT_ONCE / ADDS_PER_S
                await asyncio.sleep(max(0.0, next_at - loop.time()))
                await asyncio.gather(*(self._add(writer, data) for _ in range(ADDS_AT_ONCE)))
            await writer.close()
            self._closed.append(writer.ledger_id)
            self.samples.ledgers += 1
            while len(self._closed) > KEPT:
                await self._client.delete(self._closed.popleft())

    async def _add(self, writer: LedgerWriter, data: bytes) -> None:
        is_cold, start = self._is_cold_phase, time.perf_counter()
        await writer.add(data)
        self.samples.add_ms[is_cold].append((time.perf_counter() - start) * 1e3)

    async def _read_cold(self) -> None:
        """Read the older half of what is kept, 100 entries at a time, during every second phase."""
        turn = 0
        while not self._is_over:
            if not self._is_cold_phase or len(self._closed) < 4:
                await asyncio.sleep(0.2)
                continue
            # The oldest may be deleted under the reader; those after it are cold as well.
            ledger_id = self._closed[2 + turn % max(1, len(self._closed) // 2 - 2)]
            turn += 1
            reader = await self._client.open(ledger_id, recover=False)
            for first in range(0, ENTRIES_PER_LEDGER, 1000):
                if self._is_over or not self._is_cold_phase:
                    break
                self.samples.cold_reads += len(await reader.read(first, first + 99))
            await reader.close()

    async def _sample(self) -> None:
        while not self._is_over:
            await asyncio.sleep(2)
            self.samples.memory_mb.append(max(map(_memory_mb, self._bookies)))
            self.samples.disk_mb.append(max(map(_disk_mb, self._bookies)))


def _memory_mb(bookie: OurBookie) -> float:
    status = Path(f"/proc/{bookie.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _disk_mb(bookie: OurBookie) -> float:
    total = 0
    for path in bookie.directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # collected meanwhile
            pass
    return total / 1e6


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def growth(values: list[float]) -> tuple[float, float]:
    """Return the medians of the last quarter and of the second one."""
    quarter = len(values) // 4
    return median(values[-quarter:]), median(values[quarter : 2 * quarter])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, busy_machine():
        directory = Path(folder)
        bench = Bench("soak", 1)
        bench.fdatasync_us = fdatasync_us(directory)
        with start_zookeeper(directory / "zookeeper") as zookeeper:
            cluster = new_cluster(zookeeper, "/ledgers")
            with our_bookies(cluster, directory, 3, *SETTINGS) as bookies:

                async def soak() -> Samples:
                    async with client_of(cluster) as client:
                        work = Soak(client, bookies, options.minutes * 60)
                        await work.run()
                        return work.samples

                samples = run(soak())
    ledger_mb = ENTRIES_PER_LEDGER * ENTRY_BYTES / 1e6
    print(
        f"{options.minutes:g} minutes, {samples.ledgers} ledgers of {ledger_mb:.0f} MB, "
        f"{samples.cold_reads:,} cold reads\n"
    )
    early = "the second quarter"
    memory = growth(samples.memory_mb)
    bench.add("memory of a bookie, last quarter", "MB", *memory, early, _MEMORY_BAR)
    bench.add("disk of a bookie, last quarter", "MB", *growth(samples.disk_mb), early, _DISK_BAR)
    cold, warm = samples.add_ms[True], samples.add_ms[False]
    bench.add("add p99 with cold reads", "ms", p99(cold), p99(warm), "without", _P99_BAR)
    bench.write()
    if any(figure.ok is False for figure in bench.figures):
        sys.exit(1)


if __name__ == "__main__":
    main()
