"""make bench-herddb: herdpy against HerdDB 0.29.0, in one process and over TCP.

HerdDB is embedded in a Java process of ours through JDBC, or a server with our program as its
client (java/HerdDb.java); herdpy is embedded in a Python process, or `herdpy serve` with one
(herddb_client.py). Both do the same and wait for fsync at every commit. Each figure goes back and
forth between the two, the first by turns; what counts are medians of the rounds after one that
warms up. Connections are threads of one process, on both sides.

Opening after kill -9 is of a directory whose log has rows that were inserted one by one, copied for
every round; it is timed until the rows are counted, in process from the call that opens it and over
TCP from the start of the server's process. --quick tries it with a few rows, --ours without HerdDB.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from tests.benchmarks.harness import Bench, fdatasync_us
from tests.benchmarks.herddb_process import VERSION, HerdDb, NoHerdDbError
from tests.benchmarks.ledger_plots import draw
from tests.benchmarks.network import herdpy_server
from tests.fixtures.line_process import LineProcess
from tests.fixtures.ports import own_port

PEER = f"HerdDB {VERSION}"
PLACES = ("in process", "over TCP")
_ANSWER_S_MAX = 900.0
_FILLING_THREADS = 32
_OPEN_RATIO_MAX = 0.35


class Case(NamedTuple):
    name: str
    words: str
    unit: str
    bar: float | None = None


class Sizes(NamedTuple):
    rows: int
    log_rows: int
    seconds: float
    batch: int
    rounds: int

    def cases(self) -> list[Case]:
        return [
            Case("point selects, 1 connection", f"points 1 {self.seconds}", "1/s"),
            Case("point selects, 8 connections", f"points 8 {self.seconds}", "1/s"),
            Case("durable INSERTs, 1 thread", f"inserts 1 {self.seconds}", "1/s"),
            Case("durable INSERTs, 8 threads", f"inserts 8 {self.seconds}", "1/s"),
            Case("durable INSERTs, 32 threads", f"inserts 32 {self.seconds}", "1/s", 1.0),
            Case("durable UPDATEs by key, 1 thread", f"updates 1 {self.seconds}", "1/s"),
            Case(f"rows in batches of {self.batch:,} and commit", f"batch {self.batch}", "1/s"),
            Case("group by, 100 groups", "group", "1/s"),
            Case("two columns of all rows", "columns", "1/s", 1.2),
        ]


FULL = Sizes(rows=200_000, log_rows=290_000, seconds=2.0, batch=1_000, rounds=3)
QUICK = Sizes(rows=2_000, log_rows=1_000, seconds=0.1, batch=100, rounds=1)


def ask(process: LineProcess, words: str) -> float:
    process.tell(words)
    return process.until("answer", _ANSWER_S_MAX)


def client_of(target: object) -> LineProcess:
    return LineProcess([sys.executable, "-m", "tests.benchmarks.herddb_client", str(target)])


class Contender(NamedTuple):
    """How one of the two is started."""

    name: str
    embedded: Callable[[Path], LineProcess]
    served: Callable[[ExitStack, Path], LineProcess]
    """Start a server, which the stack ends, and return a client of it."""


def _ours_served(stack: ExitStack, directory: Path) -> LineProcess:
    url, _ = stack.enter_context(herdpy_server(directory))
    return stack.enter_context(client_of(url))


def ours() -> Contender:
    return Contender("herdpy", client_of, _ours_served)


def herddb(program: HerdDb) -> Contender:
    def served(stack: ExitStack, directory: Path) -> LineProcess:
        port = own_port()
        server = stack.enter_context(program.start("server", directory, port))
        server.until("ready", _ANSWER_S_MAX)
        return stack.enter_context(program.start("client", port))

    return Contender(PEER, lambda directory: program.start("embedded", directory), served)


@contextmanager
def running(contender: Contender, place: str, directory: Path) -> Iterator[LineProcess]:
    """Give a client that is connected, in process or over TCP."""
    with ExitStack() as stack:
        if place == PLACES[0]:
            client = stack.enter_context(contender.embedded(directory))
        else:
            client = contender.served(stack, directory)
        client.until("ready", _ANSWER_S_MAX)
        yield client


class Taken:
    """What was measured: name and place of a figure → figures of each contender."""

    def __init__(self) -> None:
        self._found: dict[str, list[list[float]]] = {}

    def add(self, title: str, index: int, value: float) -> None:
        self._found.setdefault(title, [[], []])[index].append(value)

    def medians(self, title: str) -> tuple[float, float | None]:
        mine, theirs = self._found[title]
        return statistics.median(mine), statistics.median(theirs) if theirs else None


def by_turns(number: int, contenders: list[Contender]) -> list[tuple[int, Contender]]:
    both = list(enumerate(contenders))
    return both if number % 2 else both[::-1]


def measure_cases(place: str, contenders: list[Contender], sizes: Sizes, folder: Path) -> Taken:
    taken = Taken()
    with ExitStack() as stack:
        clients = [
            stack.enter_context(running(each, place, folder / f"{each.name} {place}"))
            for each in contenders
        ]
        for client in clients:
            ask(client, f"load {sizes.rows}")
        for number in range(sizes.rounds + 1):
            for case in sizes.cases():
                for index, contender in by_turns(number, contenders):
                    value = ask(clients[index], case.words)
                    print(
                        f"  {number} {place:10} {contender.name:14} {case.name:36} {value:12,.1f}"
                    )
                    if number:
                        taken.add(case.name, index, value)
    return taken


def fill(contender: Contender, sizes: Sizes, directory: Path) -> None:
    """Leave a directory as kill -9 does after so many single INSERTs."""
    with running(contender, PLACES[0], directory) as client:
        ask(client, "load 0")
        written = ask(client, f"singles {_FILLING_THREADS} {sizes.log_rows}")
        assert written == sizes.log_rows, f"{written} rows were written"
        client.kill()


def open_s(contender: Contender, place: str, directory: Path, log_rows: int) -> float:
    """Return the seconds until a program has opened a directory and counted its rows."""
    start = perf_counter()
    if place == PLACES[0]:
        with contender.embedded(directory) as client:
            opening = client.until("ready", _ANSWER_S_MAX)
            begun = perf_counter()
            found = ask(client, "count")
            taken = opening + perf_counter() - begun
    else:
        with running(contender, place, directory) as client:
            found = ask(client, "count")
            taken = perf_counter() - start
    assert found == log_rows, f"{contender.name}: {found} rows of {log_rows} are there"
    return taken


def measure_opening(contenders: list[Contender], sizes: Sizes, folder: Path) -> Taken:
    taken = Taken()
    for contender in contenders:
        fill(contender, sizes, folder / f"{contender.name} killed")
    for number in range(1, sizes.rounds + 1):
        for place in PLACES:
            for index, contender in by_turns(number, contenders):
                copy = folder / "copy" / "data"
                shutil.copytree(folder / f"{contender.name} killed", copy)
                value = open_s(contender, place, copy, sizes.log_rows)
                shutil.rmtree(copy.parent)
                print(f"  {number} {place:10} {contender.name:14} {'open':36} {value:12,.2f} s")
                taken.add(place, index, value)
    return taken


def measure(name: str, contenders: list[Contender], sizes: Sizes, folder: Path) -> Bench:
    bench = Bench(name, sizes.rounds)
    calibrations = [fdatasync_us(folder)]
    found = {place: measure_cases(place, contenders, sizes, folder) for place in PLACES}
    calibrations.append(fdatasync_us(folder))
    opening = measure_opening(contenders, sizes, folder)
    calibrations.append(fdatasync_us(folder))
    bench.fdatasync_us = round(statistics.median(calibrations), 1)
    for place in PLACES:
        for case in sizes.cases():
            mine, theirs = found[place].medians(case.name)
            bar = None if theirs is None else case.bar
            title = f"{case.name}, {place}"
            bench.add(title, case.unit, mine, theirs, PEER, bar, better="higher")
    for place in PLACES:
        mine, theirs = opening.medians(place)
        title = f"open after kill -9, {sizes.log_rows:,} single rows in the log, {place}"
        bench.add(title, "s", mine, theirs, PEER, None if theirs is None else _OPEN_RATIO_MAX)
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--rows", type=int, help=f"of the table; default {FULL.rows:,}")
    parser.add_argument("--log-rows", type=int, help=f"in the log; default {FULL.log_rows:,}")
    parser.add_argument("--seconds", type=float, help=f"of a rate; default {FULL.seconds}")
    parser.add_argument("--quick", action="store_true", help="a few rows, one round")
    parser.add_argument("--ours", action="store_true", help="without HerdDB")
    parser.add_argument("--plot", type=Path, help="write the plot there, too")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    given = {
        name: value
        for name in ("rounds", "rows", "log_rows", "seconds")
        if (value := getattr(options, name)) is not None
    }
    sizes = sizes._replace(**given)
    contenders = [ours()]
    if not options.ours:
        try:
            contenders.append(herddb(HerdDb()))
        except NoHerdDbError as error:
            print(f"*** SKIPPED: {error}")
            return
    print(f"peer: {PEER}; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}; {sizes}")
    with tempfile.TemporaryDirectory(prefix="bench-herddb-") as folder:
        # Modules come compiled, as those of an installed package and HerdDB's classes do.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
        name = "herddb-quick" if options.quick else "herddb"
        bench = measure(name, contenders, sizes, Path(folder))
    document = bench.write()
    print(f"\nwrote {document}, {bench.write_markdown()}")
    if len(contenders) == 1 or options.quick:
        return
    for picture in draw(document, "HerdDB's"):
        print(f"drawn: {picture}")
        if options.plot is not None:
            shutil.copyfile(picture, options.plot)
    missed = [figure.name for figure in bench.figures if figure.ok is False]
    if missed:
        print(f"*** bars missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
