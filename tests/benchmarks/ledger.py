"""Ours on ours against Apache's Java client on Apache's bookies: `make bench-ledger`.

Both clusters run side by side over one ZooKeeper, three bookies each, E3 Qw3 Qa2, CRC32C, fsync on;
ours scrub and have AutoRecovery beside them, which find nothing to do. Rounds are interleaved, the
figures are medians. Each client is one warm process that keeps a window
of adds under way. Apache's bookies and client have their defaults but for the heap (512 MB each)
and no client throttle. One spinner of the lowest priority runs all the
while (an idle virtual machine syncs slowly); fdatasync is timed before, in the middle and after.
"""

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from bookie.admin.world import Cluster
from bookie.admin.zookeeper_process import start_zookeeper
from tests.benchmarks.harness import Bench, busy_machine, fdatasync_us
from tests.benchmarks.ledger_plots import draw
from tests.fixtures.bookie_processes import new_cluster, our_bookies, registered
from tests.fixtures.line_process import LineProcess
from tests.interop.apache import (
    BENCH_JVM,
    CannotFetchError,
    Program,
    Release,
    apache_bookies,
    release,
)

PEER = "Apache BookKeeper"
STORAGE = "SortedLedgerStorage"
"""Apache's default."""
SIZES = ((100, 20_000, 1000), (1024, 20_000, 1000), (65_536, 1000, 64))
"""(entry bytes, adds of one round, window)."""
RECORDS = 200_000
RECORD_BYTES = 200
TAIL_ADDS = 200
RECOVERED_ENTRIES = 100_000
_ANSWER_LIMIT_S = 300.0
_BAR_64K, _BAR_1K, _BAR_100, _BAR_RECORDS = 0.8, 0.53, 0.46, 1.5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class HasPid(Protocol):
    """A bookie of either kind."""

    @property
    def pid(self) -> int: ...


class Side:
    """One contender: its client process and its bookies."""

    def __init__(self, client: LineProcess, bookies: list[Any]) -> None:
        self._client = client
        self._bookies: list[HasPid] = bookies
        client.until("ready")

    def ask(self, command: str) -> dict[str, Any]:
        self._client.tell(command)
        answer = self._client.next(_ANSWER_LIMIT_S)
        assert answer is not None, "\n".join(self._client.errors)
        return answer

    def add(self, command: str, adds: int) -> dict[str, Any]:
        """Run a command of adds; the answer with the bookies' processor time beside it."""
        before = self._bookies_cpu_s()
        answer = self.ask(command)
        answer["bookie_cpu_us_per_add"] = (self._bookies_cpu_s() - before) * 1e6 / adds
        return answer

    def _bookies_cpu_s(self) -> float:
        return sum(_cpu_s(bookie.pid) for bookie in self._bookies)


def _cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / _TICKS_PER_S


Rounds = dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]


def run_rounds(ours: Side, theirs: Side, rounds: int) -> Rounds:
    """Return, by name, the answers of both sides; the first round warms up and does not count."""
    found: Rounds = {}
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}{' (warm-up)' if not number else ''}", flush=True)
        pairs: list[tuple[str, str, str, int]] = [
            (f"add {size} B", f"add {size} {count} {window}", "", count)
            for size, count, window in SIZES
        ]
        pairs.append(
            (f"records {RECORD_BYTES} B", f"records {RECORD_BYTES} {RECORDS}",
             f"add {RECORD_BYTES} {SIZES[0][1]} {SIZES[0][2]}", RECORDS)
        )  # fmt: skip
        pairs.append(("tail 100 B", f"tail 100 {TAIL_ADDS}", "", TAIL_ADDS))
        for name, our_command, their_command, adds in pairs:
            both = [(0, ours, our_command), (1, theirs, their_command or our_command)]
            for index, side, command in both if number % 2 else reversed(both):
                answer = side.add(command, adds if index == 0 else _adds_of(command))
                who = "Apache" if index else "ours"
                print(f"  {who:6} {command:24} {answer['seconds']:8.2f} s", flush=True)
                if number:
                    found.setdefault(name, ([], []))[index].append(answer)
    return found


def _adds_of(command: str) -> int:
    return int(command.split()[2])


def recoveries(ours: Side, theirs: Side, rounds: int, entries: int) -> tuple[list[float], ...]:
    """Return how long each side took to recover a ledger that it left open."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        both = [(0, ours), (1, theirs)]
        for index, side in both if number % 2 else reversed(both):
            ledger = side.ask(f"left 100 {entries}")["ledger"]
            answer = side.ask(f"recover {ledger}")
            assert answer["last"] == entries - 1, answer
            taken[index].append(answer["seconds"])
    return taken


def report(bench: Bench, found: Rounds) -> None:
    def pair(name: str, field: str) -> tuple[float, float]:
        mine, peer = found[name]
        return (
            statistics.median(answer[field] for answer in mine),
            statistics.median(answer[field] for answer in peer),
        )

    for size, _, _ in SIZES:
        name = f"add {size} B"
        bar = {100: _BAR_100, 1024: _BAR_1K}.get(size)
        mine, peer = pair(name, "adds_per_s")
        bench.add(f"adds of {size} B", "1/s", mine, peer, PEER, bar, better="higher")
        bar = {65_536: _BAR_64K}.get(size)
        scale = size / 1e6
        bench.add(
            f"bytes in entries of {size} B", "MB/s", mine * scale, peer * scale, PEER, bar,
            better="higher",
        )  # fmt: skip
        for field, title in (("p50_ms", "p50"), ("p99_ms", "p99")):
            bench.add(f"add {size} B, {title}, full window", "ms", *pair(name, field), PEER)
        bench.add(f"client CPU per add of {size} B", "µs", *pair(name, "cpu_us_per_add"), PEER)
        bench.add(
            f"bookies' CPU per add of {size} B", "µs", *pair(name, "bookie_cpu_us_per_add"), PEER
        )
    name = f"records {RECORD_BYTES} B"
    bench.add(
        f"records of {RECORD_BYTES} B by append_many", "1/s", *pair(name, "adds_per_s"),
        f"{PEER}'s adds", _BAR_RECORDS, better="higher",
    )  # fmt: skip
    bench.add("tail latency, p50", "ms", *pair("tail 100 B", "p50_ms"), PEER)
    bench.add("tail latency, p99", "ms", *pair("tail 100 B", "p99_ms"), PEER)


def our_client(cluster: Cluster) -> LineProcess:
    return LineProcess(
        [sys.executable, "-m", "tests.benchmarks.ledger_client", cluster.zookeeper, cluster.root]
    )


def measure(java: Release, directory: Path, rounds: int, recovered: int) -> Bench:
    bench = Bench("ledger", rounds)
    calibrations = [fdatasync_us(directory)]
    with ExitStack() as stack:
        zookeeper = stack.enter_context(start_zookeeper(directory / "zookeeper"))
        mine = new_cluster(zookeeper, "/ours")
        peers = new_cluster(zookeeper, "/theirs")
        bookies = stack.enter_context(our_bookies(mine, directory, 3, options=("--autorecovery",)))
        apaches = stack.enter_context(
            apache_bookies(
                java, zookeeper.hosts, directory, 3, jvm=BENCH_JVM, root=peers.root, storage=STORAGE
            )
        )
        registered(peers, apaches)
        client = stack.enter_context(our_client(mine))
        java_client = stack.enter_context(Program(java, "Bench", jvm=BENCH_JVM, uri=peers.uri))
        ours, theirs = Side(client, bookies), Side(java_client, apaches)
        found = run_rounds(ours, theirs, rounds)
        calibrations.append(fdatasync_us(directory))
        times = recoveries(ours, theirs, max(1, rounds // 2), recovered)
        calibrations.append(fdatasync_us(directory))
    bench.fdatasync_us = statistics.median(calibrations)
    print(
        "write of 128 B with fdatasync, before, between, after: "
        f"{', '.join(f'{value:.0f}' for value in calibrations)} µs\n"
    )
    report(bench, found)
    bench.add(f"recovery of {recovered:,} entries", "s", *map(statistics.median, times), PEER)
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recovered", type=int, default=RECOVERED_ENTRIES)
    options = parser.parse_args()
    try:
        java = release("current")
    except CannotFetchError as error:
        print(f"*** SKIPPED: {error}")
        return
    print(f"peer: Apache BookKeeper {java.version}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="bench-ledger-") as folder, busy_machine():
        bench = measure(java, Path(folder), options.rounds, options.recovered)
    document = bench.write()
    print(f"\nwrote {document}", *(f"and {path}" for path in draw(document, "Apache BookKeeper's")))
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
