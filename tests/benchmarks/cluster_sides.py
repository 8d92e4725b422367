"""The contenders of `make bench-cluster`: what their clients do together, and how long that took.

Ours and psycopg's clients are processes (cluster_client.py), HerdDB's are threads of one.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from tests.benchmarks import herddb_cluster
from tests.benchmarks.herddb_cluster import HerdDbCluster
from tests.benchmarks.network import Client

OURS = "herdpy"
MODULE = "tests.benchmarks.cluster_client"
CLIENTS = (1, 8, 32)
ANSWER_S_MAX = 600.0
_START_DELAY_S = 0.2


class Taken(NamedTuple):
    """What the clients of one contender have done together."""

    rate: float
    times_ms: list[float]
    """Of each operation, ascending."""

    def at(self, share: float) -> float:
        return self.times_ms[min(int(len(self.times_ms) * share), len(self.times_ms) - 1)]


class Side(Protocol):
    """A contender."""

    name: str

    def load(self, rows: int) -> object: ...

    def commits(self, clients: int, seconds: float) -> Taken: ...

    def reads(self, clients: int, rows: int, seconds: float) -> Taken: ...


class ProcessSide:
    """Ours, or PostgreSQL: a process for each client."""

    def __init__(self, stack: ExitStack, name: str, kind: str, target: str) -> None:
        self.name = name
        self.clients: list[Client] = []
        self._stack = stack
        self._words = kind, target

    def load(self, rows: int, clients: int = max(CLIENTS)) -> object:
        """Let the first client load; the others come behind it, which keep the machine busy."""
        self._start(1)
        found = self.clients[0].do("load", rows=rows)
        self._start(clients)
        return found

    def _start(self, number: int) -> None:
        more = [Client(*self._words, each, MODULE) for each in range(len(self.clients), number)]
        for client in more:
            self.clients.append(self._stack.enter_context(client))
        for client in more:
            client.until("ready", ANSWER_S_MAX)

    def commits(self, clients: int, seconds: float) -> Taken:
        return taken_together([self], clients, seconds)

    def reads(self, clients: int, rows: int, seconds: float) -> Taken:
        start = perf_counter() + _START_DELAY_S
        for client in self.clients[:clients]:
            client.begin("reads", start=start, rows=rows, seconds=seconds)
        return self._end(clients)

    def begin_commits(self, clients: int, seconds: float, start: float | None = None) -> None:
        """Let them begin, now or then; end_commits() waits for them."""
        start = start or perf_counter() + _START_DELAY_S
        for client in self.clients[:clients]:
            client.begin("commits", start=start, seconds=seconds)

    def end_commits(self, clients: int) -> Taken:
        return self._end(clients)

    def _end(self, clients: int) -> Taken:
        return _taken([client.end() for client in self.clients[:clients]])


def taken_together(sides: "Sequence[ProcessSide]", clients: int, seconds: float) -> Taken:
    """Let so many clients of each side commit at the same time."""
    start = perf_counter() + _START_DELAY_S
    for side in sides:
        side.begin_commits(clients, seconds, start)
    found = [side.end_commits(clients) for side in sides]
    times = sorted(each for taken in found for each in taken.times_ms)
    return Taken(sum(taken.rate for taken in found), times)


class HerdDbSide:
    """HerdDB: a thread for each client.

    It runs for its own turns alone: its followers ask for entries all the time, so that idle it
    keeps more than one processor from all others. What it begins with in a turn does not count,
    while its virtual machines compile.
    """

    name = herddb_cluster.NAME

    def __init__(self, start: Callable[[], AbstractContextManager[HerdDbCluster]]) -> None:
        self._start = start
        self._cluster: HerdDbCluster | None = None

    @contextmanager
    def running(self) -> Generator[None]:
        """Have a new one run in the block."""
        with self._start() as self._cluster:
            yield
        self._cluster = None

    @property
    def cluster(self) -> HerdDbCluster:
        assert self._cluster is not None, "outside of running()"
        return self._cluster

    def load(self, rows: int) -> object:
        return self.cluster.ask(f"load {rows}")

    def commits(self, clients: int, seconds: float) -> Taken:
        return _taken([self.cluster.ask(f"commits {clients} {seconds}")])

    def reads(self, clients: int, rows: int, seconds: float) -> Taken:
        return _taken([self.cluster.ask(f"reads {rows} {clients} {seconds}")])


def _taken(answers: Sequence[Any]) -> Taken:
    times = sorted(each / 1000 for answer in answers for each in answer["taken_us"])
    failed = sum(each.get("failed", 0) for each in answers)
    if failed:
        print(f"  {failed} failed", flush=True)
    return Taken(sum(len(each["taken_us"]) / each["seconds"] for each in answers), times)
