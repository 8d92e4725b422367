"""A replicated tablespace against HerdDB's, PostgreSQL's, and our own server: `make bench-cluster`.

On loopback, and by turns: our cluster (`herdpy cluster up`: ZooKeeper, three bookies,
three nodes), HerdDB's own (ZooKeeper, three of Apache's bookies, three nodes, its JDBC client),
PostgreSQL with one synchronous standby, and `herdpy serve` over its file log. Both clusters have
the same session time-out, copies, bookies and quorums (3, 3, 2), and all wait for fsync. Our
clients and psycopg's are processes (cluster_client.py), HerdDB's are threads of one, as it has it.
HerdDB runs in its own turn of each round alone; the others stand by, which costs nothing.

Behind the rounds: how far followers lag, how long the leader's clients hear nothing once it is
killed, and what an idle cluster asks of ZooKeeper and bookies. What the machine has not is left
out, aloud. --quick tries it, without peers.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

from bookie.admin.zookeeper_process import missing_for_zookeeper
from tests.benchmarks import herddb_cluster
from tests.benchmarks.cluster_curves import (
    CLIENTS_OF_ALL,
    Points,
    measure_copies,
    measure_tablespaces,
)
from tests.benchmarks.cluster_idle import Idle, measure_idle, with_metrics
from tests.benchmarks.cluster_plots import BY_COPIES, BY_TABLESPACES, draw_curves
from tests.benchmarks.cluster_sides import (
    ANSWER_S_MAX,
    CLIENTS,
    MODULE,
    OURS,
    HerdDbSide,
    ProcessSide,
    Side,
    Taken,
)
from tests.benchmarks.harness import Bench, fdatasync_us
from tests.benchmarks.herddb_cluster import HerdDbCluster
from tests.benchmarks.herddb_process import NoHerdDbError
from tests.benchmarks.ledger_plots import draw
from tests.benchmarks.network import Client, herdpy_server
from tests.fixtures.line_process import LineProcess
from tests.fixtures.postgres import NoPostgresError, running_pair, version
from tests.fixtures.real_cluster import RealCluster, addresses
from tests.interop.apache import CannotFetchError, release

FILE, POSTGRES = "herdpy serve", "PostgreSQL"
COPIES = 3
SESSION_TIMEOUT_S = 6.0
READERS = (1, 8)
_BEFORE_KILL_S = 2.0
_SETTLE_S = 10.0
_WARM_TURNS = 3
_AT_REST = 0.9
_REST_S = 0.5
_COMMIT_BARS = {
    (herddb_cluster.NAME, 1): 4.0,
    (herddb_cluster.NAME, 32): 2.0,
    (FILE, 1): 0.4,
    (FILE, 8): 0.4,
    (FILE, 32): 0.4,
    (POSTGRES, 32): 0.5,
}
_SILENCE_BAR = 0.5
_LAG_MS, _LAG_BESIDE_MS = 250.0, 2_000.0
_IDLE_PER_S = 1.0


class Sizes(NamedTuple):
    rounds: int
    rows: int
    seconds: float
    lag_s: float
    staged_rows: int
    kills: int
    idle_s: float


FULL = Sizes(3, 5_000, 3.0, 10.0, 1_000_000, 3, 30.0)
QUICK = Sizes(1, 2_000, 0.3, 0.5, 4_000, 1, 2.0)


# --- the rounds -----------------------------------------------------------------------------------

Found = dict[tuple[str, int, str], list[Taken]]
"""By what was done, the number of clients, and whose they were."""


def wait_for_rest(seconds_max: float) -> float:
    """Wait until what the turn before has left is done: nine tenths of the processors are idle.

    Returns the share that was idle in the end.
    """
    idle, end = 0.0, perf_counter() + seconds_max
    while idle < _AT_REST and perf_counter() < end:
        before, begun = _idle_s(), perf_counter()
        time.sleep(_REST_S)
        idle = (_idle_s() - before) / (perf_counter() - begun) / (os.cpu_count() or 1)
    return idle


def _idle_s() -> float:
    """Return the idle time of all processors since the machine started."""
    with open("/proc/uptime", encoding="ascii") as uptime:
        return float(uptime.read().split()[1])


def run_rounds(sides: Sequence[Side], apart: HerdDbSide | None, sizes: Sizes) -> Found:
    """Let all do the same by turns; round 0 warms up, and does not count.

    `apart` runs in a turn of each round behind it, in which it warms up, too.
    """
    found: Found = {}
    chance = Random(len(sides))
    for number in range(sizes.rounds + 1):
        print(f"round {number} of {sizes.rounds}{'' if number else ' (warm-up)'}", flush=True)
        _run_round(number, sides, sizes, chance, found)
        if number and apart is not None:
            with apart.running():
                apart.load(sizes.rows)
                for counts_as in (*(0 for _ in range(_WARM_TURNS)), number):
                    _run_round(counts_as, [apart], sizes, chance, found)
    return found


def _run_round(
    number: int, sides: Sequence[Side], sizes: Sizes, chance: Random, found: Found
) -> None:
    def turn(what: str, clients: int, do: Callable[[Side], Taken]) -> None:
        # By chance: what one leaves to its disk and its background would always hit the same next.
        for side in chance.sample(sides, len(sides)):
            if not isinstance(side, HerdDbSide):  # which never rests
                wait_for_rest(_SETTLE_S)
            taken = do(side)
            print(
                f"  {number} {what:8} {clients:2} clients {side.name:14} {taken.rate:10,.0f} 1/s, "
                f"p50 {taken.at(0.5):8.2f} ms, p99 {taken.at(0.99):8.2f} ms",
                flush=True,
            )
            if number:
                found.setdefault((what, clients, side.name), []).append(taken)

    for clients in CLIENTS:
        turn("commits", clients, lambda side, n=clients: side.commits(n, sizes.seconds))
    for clients in READERS:
        turn("reads", clients, lambda side, n=clients: side.reads(n, sizes.rows, sizes.seconds))


# --- followers ------------------------------------------------------------------------------------


class Lags(NamedTuple):
    """Milliseconds from the leader's acknowledgement to a follower that shows it, ascending."""

    loaded: list[float]
    loaded_rate: float
    """Commits a second meanwhile."""
    beside: list[float]
    """Of rows that were acknowledged while a COMMIT of many rows was under way, and its own."""
    commit_ms: float
    """How long that took."""


def measure_lags(cluster: RealCluster, side: ProcessSide, sizes: Sizes) -> Lags:
    follower = _follower_url(cluster)
    with ExitStack() as stack:
        probe, stager = (
            stack.enter_context(Client(OURS, f"herd://{cluster.leader().address}", 100 + n, MODULE))
            for n in range(2)
        )
        many = max(CLIENTS)
        side.begin_commits(many, sizes.lag_s)
        seen = probe.do(
            "lag", follower=follower, start=perf_counter() + 1.0, seconds=sizes.lag_s - 1
        )
        rate = side.end_commits(many).rate
        loaded = sorted((shown - acknowledged) * 1e3 for acknowledged, shown in seen)
        print(f"  lag under {rate:,.0f} commits/s: {len(loaded)} rows seen", flush=True)
        rows = stager.do("stage", rows=sizes.staged_rows)
        probe.begin("lag", follower=follower, start=perf_counter(), seconds=sizes.lag_s)
        time.sleep(min(1.0, sizes.lag_s / 2))
        begun, acknowledged, shown = stager.do("commit_staged", follower=follower, rows=rows)
        beside = [
            (seen_at - acknowledged_at) * 1e3
            for acknowledged_at, seen_at in probe.end()
            if acknowledged_at <= shown and seen_at >= begun
        ]
    own_ms = (shown - acknowledged) * 1e3
    print(
        f"  COMMIT of {rows:,} rows: {acknowledged - begun:.2f} s, shown {own_ms:.0f} ms behind "
        f"it; {len(beside)} rows beside it",
        flush=True,
    )
    return Lags(loaded, rate, sorted([*beside, own_ms]), (acknowledged - begun) * 1e3)


def _follower_url(cluster: RealCluster) -> str:
    return f"herd://{addresses(cluster)[1]}?read=follower"


# --- failover -------------------------------------------------------------------------------------


def silence_s(
    client: LineProcess, tell: Callable[[str], None], kill: Callable[[], object]
) -> float:
    """Return how long one client, which inserts without a pause, got no answer around a kill."""
    tell("insert")
    client.until("answer", ANSWER_S_MAX)
    time.sleep(_BEFORE_KILL_S)
    kill()
    killed = perf_counter()
    while True:
        last, first = client.until("gap", ANSWER_S_MAX)
        if first > killed:
            break
    tell("stop")
    client.until("answer", ANSWER_S_MAX)
    return first - last


def our_silence(cluster: RealCluster) -> float:
    """Kill the leader under one client, and start that node again."""
    leader = cluster.leader()
    with Client(OURS, _url(cluster), 200 + leader.epoch, MODULE) as client:
        found = silence_s(client, client.begin, lambda: cluster.kill(leader.node))
    cluster.start(leader.node)
    cluster.wait_ready(leader.node)
    return found


def herddb_silence(cluster: HerdDbCluster) -> float:
    """As our_silence()."""
    found = silence_s(cluster.client, cluster.client.tell, cluster.kill_leader)
    cluster.wait_for_copies()
    return found


def measure_silences(ours: RealCluster, kills: int) -> list[float]:
    """Return how long clients of ours heard nothing, in seconds."""
    found: list[float] = []
    for number in range(1, kills + 1):
        found.append(our_silence(ours))
        print(f"  {number} silence {OURS:14} {found[-1]:6.2f} s", flush=True)
    return found


class Peer(NamedTuple):
    """What is seen of HerdDB's cluster behind the rounds."""

    silences: list[float]
    """In seconds."""
    idle_processors: float
    """That it keeps busy when no client asks."""


def measure_peer(side: HerdDbSide, sizes: Sizes) -> Peer:
    """As measure_silences() and idle_processors(), of a cluster that runs for this."""
    found: list[float] = []
    with side.running():
        side.load(sizes.rows)
        time.sleep(_SETTLE_S)
        idle = idle_processors(sizes.idle_s)
        side.cluster.allow_failover()
        for number in range(1, sizes.kills + 1):
            found.append(herddb_silence(side.cluster))
            print(f"  {number} silence {side.name:14} {found[-1]:6.2f} s", flush=True)
    return Peer(found, idle)


def idle_processors(seconds: float) -> float:
    """Return how many processors are busy, as a mean over so many seconds."""
    before, begun = _idle_s(), perf_counter()
    time.sleep(seconds)
    return (os.cpu_count() or 1) - (_idle_s() - before) / (perf_counter() - begun)


def _url(cluster: RealCluster) -> str:
    return f"herd://{','.join(addresses(cluster))}"


# --- the report -----------------------------------------------------------------------------------


def report(bench: Bench, found: Found, names: Sequence[str]) -> None:
    """Add the figures of the rounds; names: ours first."""

    def median(what: str, clients: int, name: str, figure: Callable[[Taken], float]) -> float:
        return statistics.median(map(figure, found[what, clients, name]))

    def add(
        title: str,
        unit: str,
        what: str,
        clients: int,
        figure: Callable[[Taken], float],
        **bars: Any,
    ) -> None:
        mine = median(what, clients, OURS, figure)
        many = f"{title}, {clients} client{'s' * (clients > 1)}"
        for name in names[1:]:
            theirs = median(what, clients, name, figure)
            bench.add(
                f"{many} : {name}", unit, mine, theirs, name, bars.get(name), better=_BETTER[unit]
            )
        if not names[1:]:
            bench.add(many, unit, mine, None, None, better=_BETTER[unit])

    for what, title, all_clients in (
        ("commits", "replicated durable commits", CLIENTS),
        ("reads", "point reads at the leader", READERS),
    ):
        for clients in all_clients:
            bars = {name: _COMMIT_BARS.get((name, clients)) for name in names}
            add(
                title,
                "1/s",
                what,
                clients,
                lambda each: each.rate,
                **bars if what == "commits" else {},
            )
        for share in (0.5, 0.99):
            for clients in all_clients:
                add(
                    f"{title}, p{share * 100:.0f}", "ms", what, clients,
                    lambda each, at=share: each.at(at),
                )  # fmt: skip
        bench.curves[title] = {
            name: [
                [
                    n,
                    *(
                        median(what, n, name, f)
                        for f in (lambda t: t.rate, lambda t: t.at(0.5), lambda t: t.at(0.99))
                    ),
                ]
                for n in all_clients
            ]
            for name in names
        }


_BETTER = {"1/s": "higher", "ms": "lower"}


def report_lags(bench: Bench, lags: Lags, rows: int) -> None:
    for name, times, bar in (
        ("while 32 clients commit", lags.loaded, _LAG_MS),
        (f"beside a COMMIT of {rows:,} rows", lags.beside, _LAG_BESIDE_MS),
    ):
        taken = Taken(0.0, times)
        bench.add(f"follower's lag {name}, p50", "ms", taken.at(0.5), None, None)
        bench.add(f"follower's lag {name}, p99", "ms", taken.at(0.99), None, None, bar)
    bench.add("commits meanwhile, 32 clients", "1/s", lags.loaded_rate, None, None, better="higher")
    bench.add(f"COMMIT of {rows:,} staged rows", "ms", lags.commit_ms, None, None)


def report_silences(bench: Bench, ours: list[float], theirs: list[float]) -> None:
    mine = statistics.median(ours)
    name, bar = (herddb_cluster.NAME, _SILENCE_BAR) if theirs else (None, None)
    peer = statistics.median(theirs) if theirs else None
    bench.add("silence of a killed leader", "s", mine, peer, name)
    bench.add(
        "silence of a killed leader beyond the session's time-out",
        "s",
        max(0.0, mine - SESSION_TIMEOUT_S),
        None if peer is None else peer - SESSION_TIMEOUT_S,
        name,
        bar,
    )


def report_idle(bench: Bench, idle: Idle, processors: float, peer: float | None) -> None:
    """Add requests a second of an idle cluster, for each node; and what it keeps busy, in all."""
    name = None if peer is None else herddb_cluster.NAME
    bench.add("processors that an idle cluster keeps busy", "", processors, peer, name)
    for title, rate in (
        ("renewals of tenures", idle.renewals),
        ("looks and watches, to ZooKeeper", idle.looks_store),
        ("long polls, to bookies", idle.polls),
        ("looks, to bookies", idle.looks_bookies),
        ("ticks", idle.ticks),
        ("others, to bookies", idle.others),
    ):
        bench.add(f"idle, of a node: {title}", "1/s", rate / COPIES, None, None)
    title = "idle, of a node: all but renewals, polls and ticks"
    bench.add(title, "1/s", idle.counted / COPIES, None, None, _IDLE_PER_S)


def report_curves(bench: Bench, copies: dict[int, Points], tablespaces: Points) -> None:
    for number, points in copies.items():
        for clients, taken in points:
            many = (
                f"{clients} client{'s' * (clients > 1)}, {number} cop{'ies' if number > 1 else 'y'}"
            )
            bench.add(f"commits, {many}", "1/s", taken.rate, None, None, better="higher")
    for spaces, taken in tablespaces:
        many = f"{CLIENTS_OF_ALL} clients over {spaces} tablespace{'s' * (spaces > 1)}"
        bench.add(f"commits, {many}", "1/s", taken.rate, None, None, better="higher")

    def curve(points: Points) -> list[list[float]]:
        return [[n, taken.rate, taken.at(0.5), taken.at(0.99)] for n, taken in points]

    bench.curves[BY_COPIES] = {
        f"{n} cop{'ies' if n > 1 else 'y'}": curve(points) for n, points in copies.items()
    }
    bench.curves[BY_TABLESPACES] = {OURS: curve(tablespaces)}


# --- all of it ------------------------------------------------------------------------------------


def measure(folder: Path, sizes: Sizes, *, is_quick: bool, without: Sequence[str]) -> Bench:
    bench = Bench("cluster-quick" if is_quick else "cluster", sizes.rounds)
    calibrations = [fdatasync_us(folder)]
    timeout = ("--session-timeout", str(SESSION_TIMEOUT_S))
    with ExitStack() as stack:
        cluster = stack.enter_context(
            RealCluster(
                folder / "cluster",
                *timeout,
                nodes=COPIES,
                bookies=COPIES,
                start_s_max=ANSWER_S_MAX,
            )
        )
        metrics = with_metrics(cluster)
        herddb = None if HERDDB in without else new_herddb(folder)
        with ExitStack() as of_rounds:
            ours = ProcessSide(of_rounds, OURS, OURS, _url(cluster))
            sides: list[Side] = [ours]
            if POSTGRES.lower() not in without:
                sides += start_postgres(of_rounds, folder / "postgres")
            url, _ = of_rounds.enter_context(herdpy_server(folder / "served"))
            sides.append(ProcessSide(of_rounds, FILE, OURS, url))
            for side in sides:
                side.load(sizes.rows)
                print(f"  {side.name}: {sizes.rows:,} rows are there", flush=True)
            found = run_rounds(sides, herddb, sizes)
            calibrations.append(fdatasync_us(folder))
            lags = measure_lags(cluster, ours, sizes)
        silences = measure_silences(cluster, sizes.kills)
        print(f"  idle for {sizes.idle_s:g} s", flush=True)
        time.sleep(min(_SETTLE_S, sizes.idle_s))
        processors = idle_processors(sizes.idle_s)
        idle = measure_idle(cluster, metrics, sizes.idle_s)
        tablespaces = measure_tablespaces(cluster, sizes.rounds, sizes.seconds)
        calibrations.append(fdatasync_us(folder))
    copies = measure_copies(folder, timeout, range(1, COPIES + 1), sizes.rounds, sizes.seconds)
    peer = None if herddb is None else measure_peer(herddb, sizes)
    names = [OURS, *([] if herddb is None else [herddb.name]), *(side.name for side in sides[1:])]
    bench.fdatasync_us = round(statistics.median(calibrations), 1)
    print()
    report(bench, found, names)
    report_lags(bench, lags, sizes.staged_rows)
    report_silences(bench, silences, [] if peer is None else peer.silences)
    report_idle(bench, idle, processors, None if peer is None else peer.idle_processors)
    report_curves(bench, copies, tablespaces)
    return bench


def new_herddb(folder: Path) -> HerdDbSide | None:
    try:
        program, java = herddb_cluster.new_program(), release("current")
    except (NoHerdDbError, CannotFetchError) as error:
        print(f"*** SKIPPED: without HerdDB: {error}", flush=True)
        return None
    print(f"peer: {herddb_cluster.NAME} on bookies of Apache BookKeeper {java.version}", flush=True)
    numbers = count(1)

    def start() -> AbstractContextManager[HerdDbCluster]:
        place = folder / f"herddb{next(numbers)}"
        return herddb_cluster.herddb_cluster(program, java, place, COPIES, SESSION_TIMEOUT_S)

    return HerdDbSide(start)


def start_postgres(stack: ExitStack, folder: Path) -> list[Side]:
    try:
        import psycopg

        conninfo = stack.enter_context(running_pair(folder))
    except (ImportError, NoPostgresError) as error:
        print(f"*** SKIPPED: without PostgreSQL: {error}", flush=True)
        return []
    print(f"peer: {version()}, one standby, through psycopg {psycopg.__version__}", flush=True)
    return [ProcessSide(stack, POSTGRES, "psycopg", conninfo)]


HERDDB = "herddb"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--seconds", type=float, help=f"of a rate; default {FULL.seconds}")
    parser.add_argument("--kills", type=int, help=f"of a leader; default {FULL.kills}")
    parser.add_argument("--quick", action="store_true", help="a few rows, without peers")
    parser.add_argument(
        "--without", action="append", default=[], choices=(HERDDB, POSTGRES.lower()),
        help="leave a peer out; may be repeated",
    )  # fmt: skip
    parser.add_argument("--plots", type=Path, help="write the plots into this folder, too")
    options = parser.parse_args()
    missing = missing_for_zookeeper()
    if missing is not None:
        print(f"*** SKIPPED: {missing}")
        return
    given = {
        name: value
        for name in ("rounds", "seconds", "kills")
        if (value := getattr(options, name)) is not None
    }
    sizes = (QUICK if options.quick else FULL)._replace(**given)
    print(f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}; {sizes}", flush=True)
    without = (HERDDB, POSTGRES.lower()) if options.quick else options.without
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        bench = measure(Path(folder), sizes, is_quick=options.quick, without=without)
    document = bench.write()
    print(f"\nwrote {document}, {bench.write_markdown()}")
    if options.quick:
        return
    for picture in [*draw(document, "the peer's"), *draw_curves(document, bench.curves)]:
        print(f"drawn: {picture}")
        if options.plots is not None:
            shutil.copy(picture, options.plots)
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
