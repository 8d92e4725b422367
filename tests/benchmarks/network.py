"""herdpy over TCP against PostgreSQL 15 through psycopg 3: `make bench-network`.

`herdpy serve` on a durable directory and a PostgreSQL with its default settings stand side by side
on loopback, and every case goes back and forth between them; figures are medians of the rounds.
Clients are processes of one thread and one connection each, the same program for both sides
(network_client.py), so that no client waits for another's interpreter, and once more threads of
one process, which do. The added latency is that against a client whose database is in its own
process. --awake: no processor sleeps (awake.py). --quick: a few rows, without PostgreSQL.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from bookie.runtime.os_executors import new_loop
from tests.benchmarks.awake import NoIdleGroupError, awake_processors
from tests.benchmarks.harness import Bench, fdatasync_us
from tests.benchmarks.ledger_plots import draw
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port
from tests.fixtures.postgres import NoPostgresError, running_postgres, version

PEER = "psycopg"
MANY = 8
_ANSWER_LIMIT_S = 600.0
_START_DELAY_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PEER_IDLE = 50
"""PostgreSQL allows 100 connections."""

Found = dict[str, tuple[list[Any], list[Any]]]


class Client(LineProcess):
    """A client process."""

    def __init__(
        self,
        kind: str,
        target: str,
        number: int,
        module: str = "tests.benchmarks.network_client",
    ) -> None:
        super().__init__([sys.executable, "-m", module, kind, target, str(number)])

    def begin(self, name: str, **arguments: Any) -> None:
        self.tell(json.dumps({"do": name, **arguments}))

    def end(self) -> Any:
        return self.until("answer", _ANSWER_LIMIT_S)

    def do(self, name: str, **arguments: Any) -> Any:
        self.begin(name, **arguments)
        return self.end()


class Side:
    """One contender: its clients, and the process whose children and itself are its server."""

    def __init__(self, clients: list[Client], server: int) -> None:
        self.clients = clients
        self.server = server

    def together(self, name: str, number: int, **arguments: Any) -> dict[str, Any]:
        """Let some of the clients do the same at the same time; rates are added up."""
        start = perf_counter() + _START_DELAY_S
        for client in self.clients[:number]:
            client.begin(name, start=start, **arguments)
        before = self._cpu_s()
        found = [client.end() for client in self.clients[:number]]
        rate = sum(each["rate"] for each in found)
        done = sum(each["count"] for each in found)
        return {
            "rate": rate,
            "p50_us": statistics.median(each["p50_us"] for each in found),
            "cpu_us": (self._cpu_s() - before) / done * 1e6,
        }

    def _cpu_s(self) -> float:
        """What the server's processes and the clients have used."""
        pids = [self.server, *_children(self.server), *(client.pid for client in self.clients)]
        return sum(map(_cpu_s, pids))

    def memory_bytes(self) -> int:
        """What the server's processes have for themselves."""
        return sum(map(_own_bytes, [self.server, *_children(self.server)]))


def _own_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0  # it ended
    return sum(
        int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:")
    )


def _cpu_s(pid: int) -> float:
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0  # it ended
    return (int(parts[11]) + int(parts[12])) / _TICKS_PER_S


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Cases:
    """The cases, each run once a round on either side."""

    def __init__(self, ours: Side, peer: Side | None, rows: int, *, quick: bool) -> None:
        self.found: Found = {}
        self._ours = ours
        self._peer = peer
        self._rows = rows
        self.seconds = 0.2 if quick else 2.0
        self.many = 500 if quick else 10_000

    def round(self, number: int) -> None:
        """Do everything once; round 0 warms up, and does not count."""
        rows, seconds = self._rows, self.seconds
        for clients in (1, MANY):
            self._both(f"points {clients}", number, "points", clients, rows=rows, seconds=seconds)
        for clients in (1, MANY):
            self._both(f"commits {clients}", number, "inserts", clients, seconds=seconds)
        self._both(
            f"commits {MANY} without", number, "inserts", MANY, seconds=seconds, durable=False
        )
        threads = {"threads": MANY, "seconds": seconds}
        self._both("points t", number, "in_threads", 1, what="points", rows=rows, **threads)
        self._both("commits t", number, "in_threads", 1, what="inserts", **threads)
        self._both("executemany", number, "execute_many", rows=self.many)
        self._both("pipelined", number, "pipelined_points", rows=rows, statements=self.many)
        self._both("pipelined inserts", number, "pipelined_inserts", statements=self.many)
        for form in ("rows", "arrow", "pandas"):
            self._both(f"fetch {form}", number, "fetch", rows=rows, form=form)
        self._both("ingest", number, "ingest")
        self._peer_only("fetch csv", number, "fetch", rows=rows, form="csv_arrow")
        self._peer_only("ingest rows", number, "ingest", form="copy_rows")

    def _both(
        self, title: str, number: int, name: str, clients: int | None = None, **arguments: Any
    ) -> None:
        both = [(0, self._ours)] + ([] if self._peer is None else [(1, self._peer)])
        for index, side in both if number % 2 else reversed(both):
            self._run(title, number, index, side, name, clients, arguments)

    def _peer_only(self, title: str, number: int, name: str, **arguments: Any) -> None:
        if self._peer is not None:
            self._run(title, number, 1, self._peer, name, None, arguments)

    def _run(
        self,
        title: str,
        number: int,
        index: int,
        side: Side,
        name: str,
        clients: int | None,
        arguments: dict[str, Any],
    ) -> None:
        if clients is None:
            answer = side.clients[0].do(name, **arguments)
            shown = f"{answer:8.3f} s"
        else:
            answer = side.together(name, clients, **arguments)
            shown = f"{answer['rate']:10,.0f} 1/s"
        print(f"  {'psycopg' if index else 'herdpy':8} {title:20} {shown}", flush=True)
        if number:
            self.found.setdefault(title, ([], []))[index].append(answer)


def latency(ours: Side, local: Client, rows: int, rounds: int, seconds: float) -> Any:
    """Return the medians of a point select over TCP and in process, in µs."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        here = {"rows": rows, "seconds": seconds}
        taken[0].append(ours.together("points", 1, **here)["p50_us"])
        taken[1].append(local.do("points", start=perf_counter(), **here)["p50_us"])
    return statistics.median(taken[0]), statistics.median(taken[1])


def idle_bytes(side: Side, number: int) -> float:
    """Return what the server's memory grows by for each of so many more connections."""
    opener = side.clients[0]
    opener.do("open_idle", number=10)  # what the first ones need is not theirs
    before = side.memory_bytes()
    opener.do("open_idle", number=number)
    found = (side.memory_bytes() - before) / number
    opener.do("close_idle")
    return found


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


def _serve_echo(say: Any) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
        say.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve())


def _ask_echo(port: int, seconds: float, together: Any, say: Any) -> None:
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        together.wait()
        count, data, end = 0, bytes(64), perf_counter() + seconds
        while perf_counter() < end:
            stream.sendall(data)
            stream.recv(4096)
            count += 1
    say.send(count)


def echo_rate(seconds: float, clients: int) -> float:
    """Return how often a second 64 bytes go to a server of Python's that does nothing, and back.

    The loop, the kind of socket and the processes of one connection are those that herdpy has: this
    is what is left of a round trip without a database.
    """
    context = multiprocessing.get_context("spawn")
    hear, say = context.Pipe(duplex=False)
    server = context.Process(target=_serve_echo, args=(say,), daemon=True)
    server.start()
    try:
        asked = hear.recv(), seconds, context.Barrier(clients, timeout=_ANSWER_LIMIT_S)
        ends = [context.Pipe(duplex=False) for _ in range(clients)]
        asking = [context.Process(target=_ask_echo, args=(*asked, end)) for _, end in ends]
        for process, (_, end) in zip(asking, ends, strict=True):
            process.start()
            end.close()  # so that one that died is told by EOFError
        count = sum(hear.recv() for hear, _ in ends)
        for process in asking:
            process.join()
    finally:
        server.terminate()
        server.join()
    return count / seconds


def report(bench: Bench, found: Found, rows: int, many: int) -> None:
    def add(
        name: str, title: str, bar: float | None = None, *, count: int = 1, peer: str = ""
    ) -> None:
        mine, theirs = found[title][0], found.get(peer or title, ([], []))[1]
        rate = _rate(theirs) * count if theirs else None
        bench.add(
            name, "1/s", _rate(mine) * count, rate, PEER, bar if theirs else None, better="higher"
        )

    add("point selects, 1 connection", "points 1", 2.0)
    add(f"point selects, {MANY} connections", f"points {MANY}", 1.2)
    add("durable commits, 1 connection", "commits 1")
    add(f"durable commits, {MANY} connections", f"commits {MANY}", 0.8)
    add(f"commits that do not wait, {MANY} connections", f"commits {MANY} without")
    add(f"point selects, {MANY} threads of one client", "points t", 1.2)
    add(f"durable commits, {MANY} threads of one client", "commits t", 0.8)
    add(f"rows by executemany, {many:,} each", "executemany", 1.5, count=many)
    add(f"point selects, {many:,} pipelined", "pipelined", count=many)
    add(f"INSERTs, {many:,} pipelined, one commit", "pipelined inserts", count=many)
    for title, name in ((f"points {MANY}", "point select"), (f"commits {MANY}", "durable commit")):
        mine, theirs = found[title]
        bench.add(
            f"CPU of a {name}, client and server, {MANY} connections",
            "µs",
            statistics.median(each["cpu_us"] for each in mine),
            statistics.median(each["cpu_us"] for each in theirs) if theirs else None,
            PEER,
        )
    add("rows to Arrow : rows fetched", "fetch arrow", 10, count=rows, peer="fetch rows")
    add("rows to Arrow", "fetch arrow", count=rows)
    add("rows to Arrow : COPY of CSV", "fetch arrow", count=rows, peer="fetch csv")
    add("rows to pandas", "fetch pandas", count=rows)
    add("rows fetched", "fetch rows", count=rows)
    add("rows ingested : COPY of CSV", "ingest", 1.0, count=rows)
    add("rows ingested : COPY of rows", "ingest", count=rows, peer="ingest rows")


def _rate(answers: list[Any]) -> float:
    return statistics.median(
        each["rate"] if isinstance(each, dict) else 1 / each for each in answers
    )


@contextmanager
def herdpy_server(directory: Path) -> Iterator[tuple[str, int]]:
    """Give the URL and the process of a server."""
    port = own_port()
    command = [sys.executable, "-m", "herdpy.cli", "serve", str(directory), "--port", str(port)]
    with (directory.parent / "herdpy.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--connections-max", "10000"], stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise RuntimeError((directory.parent / "herdpy.log").read_text())
        yield f"herd://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)


def measure(directory: Path, options: argparse.Namespace) -> Bench:
    rounds, rows, quick = options.rounds, options.rows, options.quick
    name = "network-awake" if options.awake else "network"
    bench = Bench("network-quick" if quick else name, rounds)
    calibrations = [fdatasync_us(directory)]
    with ExitStack() as stack:
        url, server = stack.enter_context(herdpy_server(directory / "herdpy"))
        ours = Side([stack.enter_context(Client("herdpy", url, n)) for n in range(MANY)], server)
        peer = None
        if not quick:
            conninfo, postmaster = stack.enter_context(running_postgres(directory / "postgres"))
            clients = [stack.enter_context(Client(PEER, conninfo, n)) for n in range(MANY)]
            peer = Side(clients, postmaster)
        local = stack.enter_context(Client("herdpy", str(directory / "local"), 0))
        for client in [ours.clients[0], *([peer.clients[0]] if peer else []), local]:
            client.do("load", rows=rows)
        cases = Cases(ours, peer, rows, quick=quick)
        for number in range(rounds + 1):
            print(f"round {number} of {rounds}{'' if number else ' (warm-up)'}", flush=True)
            cases.round(number)
        calibrations.append(fdatasync_us(directory))
        far_us, near_us = latency(ours, local, rows, rounds, cases.seconds)
        # Of a server that has done nothing yet: what one has freed would hide it.
        url, server = stack.enter_context(herdpy_server(directory / "idle"))
        opener = stack.enter_context(Client("herdpy", url, 0))
        idle = idle_bytes(Side([opener], server), options.idle)
        peer_idle = None if peer is None else idle_bytes(peer, PEER_IDLE)
        bare = [(clients, echo_rate(cases.seconds, clients)) for clients in (1, MANY)]
        calibrations.append(fdatasync_us(directory))
    bench.fdatasync_us = round(statistics.median(calibrations), 1)
    report(bench, cases.found, rows, cases.many)
    for clients, rate in bare:
        many = f"{clients} connection{'s' * (clients > 1)}"
        bench.add(f"the same bytes to a bare echo and back, {many}", "1/s", rate, None, None)
    bench.add("a point select's way to the server and back", "µs", far_us - near_us, None, None, 80)
    bench.add(
        f"memory of one of {options.idle:,} idle connections", "KB", idle / 1000, None, None, 200
    )
    if peer_idle is not None:
        bench.add("memory of an idle connection", "KB", idle / 1000, peer_idle / 1000, "PostgreSQL")
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the big table")
    parser.add_argument("--idle", type=int, default=2_000, help="connections")
    parser.add_argument("--quick", action="store_true", help="a few rows, without PostgreSQL")
    parser.add_argument("--awake", action="store_true", help="let no processor sleep; for root")
    parser.add_argument("--plot", type=Path, help="write the plot there, too")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.rows, options.idle = 1, 2_000, 20
    else:
        try:
            import psycopg

            print(
                f"peer: {version()} through psycopg {psycopg.__version__}; {os.cpu_count()} cores"
            )
        except (ImportError, NoPostgresError) as error:
            print(f"*** SKIPPED: {error}")
            return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-network-"))
        if options.awake:
            try:
                stack.enter_context(awake_processors())
            except NoIdleGroupError as error:
                print(f"*** SKIPPED: {error}")
                return
        bench = measure(Path(folder), options)
    document = bench.write()
    print(f"\nwrote {document}, {bench.write_markdown()}", end="\n" if options.quick else "")
    if options.quick:
        return
    for picture in draw(document, "psycopg's and PostgreSQL's"):
        print(f", {picture}", end="")
        if options.plot is not None:
            shutil.copyfile(picture, options.plot)
            print(f", {options.plot}", end="")
    print()
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
