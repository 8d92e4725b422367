"""A point reader beside each abuse of the security list: `make bench-neighbours`.

`herdpy serve` as a process. One connection reads rows by their keys, alone and beside a user that
does its worst on as many connections as its role may have (neighbours_client.py), in turns; an
administrator logs in, looks who runs what and ends it. Bars: the reader's median is at most 5 times
that alone, its 99th percentile 25 ms, the administrator needs 1 s, and the server's anonymous
memory is at most memory_bytes_max + 250 MB. --quick: a moment of each, without meaning.
"""

import argparse
import http.client
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter

import herdpy
from tests.benchmarks.harness import Bench
from tests.benchmarks.neighbours_client import ABUSES, CROSS, PASSWORD, Target
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.fixtures.served import Served

MEMORY_MB = 256
BESIDE_MB = 250
CONNECTIONS = 8
LIMITS = (
    f"CONNECTION LIMIT {CONNECTIONS}",
    "SET MAXIMUM running_statements = 2",
    "SET MAXIMUM statement_timeout = '10s'",
    "SET MAXIMUM open_results = 4",
    "SET MAXIMUM leases = 4",
)
_ROWS = 300_000
_STARVED_WORKERS = 4


class Abuser(LineProcess):
    """The other user, at one abuse."""

    def __init__(self, name: str, target: Target) -> None:
        module = "tests.benchmarks.neighbours_client"
        super().__init__([sys.executable, "-m", module, name, json.dumps(target._asdict())])
        self.until("begun", 60)


class World:
    """A server with its tables and users."""

    def __init__(self, directory: Path, rows: int, **settings: int) -> None:
        self.http_port, self.grpc_port = own_port(), own_port()
        chosen = {
            "database.memory_bytes_max": MEMORY_MB << 20,
            "server.http_port": self.http_port,
            "server.grpc_port": self.grpc_port,
            **{f"server.{name}": value for name, value in settings.items()},
        }
        self.served = Served(directory, [f"{name}={value}" for name, value in chosen.items()])
        self.served.start()
        self.url = self.served.url.partition("?")[0]
        self._fill(rows)

    def _fill(self, rows: int) -> None:
        import pyarrow as pa

        with herdpy.connect(self.url, autocommit=True) as first:
            for name in ("t", "u", "big", "few", "sink"):
                first.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v BIGINT)")
            for name, count in (("t", 10_000), ("u", 1_000), ("big", rows), ("few", 20)):
                numbers = pa.array(range(count), pa.int64())
                first.ingest(name, pa.table({"id": numbers, "v": numbers}))
            first.execute(f"CREATE USER root SUPERUSER PASSWORD '{PASSWORD}'")
            for name in ("reader", "other"):
                first.execute(f"CREATE USER {name} PASSWORD '{PASSWORD}'")
                first.execute(f"GRANT SELECT ON TABLESPACE default TO {name}")
            first.execute("GRANT INSERT, UPDATE ON TABLESPACE default TO other")
            for change in LIMITS:
                first.execute(f"ALTER ROLE other {change}")

    def log_in(self, name: str) -> herdpy.Connection:
        url = f"{self.url.replace('://', f'://{name}@')}/?retry_timeout_s=0"
        return herdpy.connect(url, password=PASSWORD, autocommit=True)

    def target(self, connections: int = CONNECTIONS) -> Target:
        return Target(self.url, self.grpc_port, self.http_port, "other", connections)

    def memory_mb(self) -> float:
        """Return the server's anonymous memory now."""
        return self.served.anonymous_bytes() / 2**20

    def is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        finally:
            connection.close()


@contextmanager
def world_of(rows: int, **settings: int) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "data", rows, **settings)
        try:
            yield world
        finally:
            world.served.stop(signal.SIGKILL)


def read(connection: herdpy.Connection, seconds: float, world: World) -> tuple[list[float], float]:
    """Return how long each read took, in µs, and the most memory the server had."""
    times: list[float] = []
    memory_mb, number = 0.0, 0
    end = perf_counter() + seconds
    while (start := perf_counter()) < end:
        number = (number + 7_919) % 10_000
        row = connection.execute("SELECT v FROM t WHERE id = ?", (number,)).fetchone()
        times.append((perf_counter() - start) * 1e6)
        assert row == (number,), row
        if len(times) % 500 == 0 or times[-1] > 20_000:
            memory_mb = max(memory_mb, world.memory_mb())
    return times, memory_mb


def administer(world: World) -> float:
    """Return how long a login, a look at what runs and a KILL of it take, in seconds."""
    start = perf_counter()
    with world.log_in("root") as root:
        query = (
            "SELECT s.id FROM sysstatements AS s JOIN sysclients AS c ON s.client_id = c.id "
            "WHERE c.user_name = 'other'"
        )
        for (number,) in root.execute(query).fetchall():
            with suppress(herdpy.ProgrammingError):  # it has ended meanwhile
                root.execute(f"KILL STATEMENT {number}")
        root.execute("SELECT * FROM syswaits").fetchall()
    return perf_counter() - start


def beside(bench: Bench, world: World, name: str, seconds: float) -> None:
    """Measure the reader alone and beside one abuse, in turns."""
    alone: list[float] = []
    together: list[float] = []
    slowest_s = memory_mb = 0.0
    with world.log_in("reader") as reader:
        read(reader, 0.2, world)
        for _ in range(bench.rounds):
            alone += read(reader, seconds / 4, world)[0]
            with ExitStack() as stack:
                abuser = Abuser(name, world.target())
                stack.callback(abuser.kill)
                read(reader, 0.3, world)
                times, most_mb = read(reader, seconds, world)
                together += times
                memory_mb = max(memory_mb, most_mb)
                slowest_s = max(slowest_s, *(administer(world) for _ in range(3)))
                memory_mb = max(memory_mb, world.memory_mb())
    p50, p50_alone = statistics.median(together), statistics.median(alone)
    p99_ms = statistics.quantiles(together, n=100)[-1] / 1e3
    bench.add(f"{name}: p50", "µs", p50, p50_alone, "alone", 5)
    bench.add(f"{name}: p99", "ms", p99_ms, None, None, 25)
    bench.add(f"{name}: administrator", "s", slowest_s, None, None, 1)
    bench.add(f"{name}: memory", "MB", memory_mb, None, None, MEMORY_MB + BESIDE_MB)


def readiness(bench: Bench, rows: int) -> None:
    """Measure how soon /readyz says that no worker comes free, and that one has."""
    with world_of(rows, workers=_STARVED_WORKERS) as world, ExitStack() as stack:
        with world.log_in("root") as root:
            root.execute("ALTER ROLE other RESET MAXIMUM ALL")
        assert world.is_ready()
        abuser = Abuser("a cross join", world.target(2 * _STARVED_WORKERS))
        stack.callback(abuser.kill)
        with world.log_in("root") as root:
            count = f"SELECT count(*) FROM sysstatements WHERE text = '{CROSS}'"
            while root.execute(count).fetchone()[0] < _STARVED_WORKERS:
                pass
        start = perf_counter()
        while world.is_ready():
            pass
        bench.add("/readyz is 503 behind full workers", "s", perf_counter() - start, None, None, 3)
        abuser.kill()
        start = perf_counter()
        while not world.is_ready():
            pass
        bench.add("/readyz is 200 behind the end", "s", perf_counter() - start, None, None, 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", default="", help="abuses whose names have this in them")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds, seconds, rows = options.rounds, options.seconds, _ROWS
    if options.quick:
        rounds, seconds, rows = 1, 0.2, 2_000
    bench = Bench("neighbours-quick" if options.quick else "neighbours", rounds)
    with world_of(rows) as world:
        for name in ABUSES:
            if options.only in name:
                beside(bench, world, name, seconds)
    if not options.only:
        readiness(bench, rows)
    print(bench.write())
    bench.write_markdown()


if __name__ == "__main__":
    main()
