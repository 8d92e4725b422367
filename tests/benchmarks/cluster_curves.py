"""Commits of our cluster by the number of its copies, and by the number of its tablespaces.

Of 1, 2 and 3 copies each in a cluster of as many nodes, always three bookies; of tablespaces on the
three nodes of one cluster, over which the same number of clients is spread, their leaders on nodes
in turn.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import herdpy
from tests.benchmarks.cluster_sides import (
    ANSWER_S_MAX,
    CLIENTS,
    OURS,
    ProcessSide,
    Taken,
    taken_together,
)
from tests.fixtures.real_cluster import RealCluster, addresses, wait_for

TABLESPACES = (1, 2, 4, 8)
CLIENTS_OF_ALL = 32
_SETTLE_S = 1.0

Points = list[tuple[int, Taken]]
"""By the number of what is varied."""


def measure_copies(
    folder: Path, options: Sequence[str], all_copies: Sequence[int], rounds: int, seconds: float
) -> dict[int, Points]:
    """Commit with clusters of so many nodes, one cluster behind the other.

    By the number of copies: the best round of each number of clients.
    """
    found: dict[int, Points] = {}
    for copies in all_copies:
        with (
            RealCluster(
                folder / f"copies-{copies}",
                *options,
                nodes=copies,
                bookies=3,
                start_s_max=ANSWER_S_MAX,
            ) as cluster,
            ExitStack() as stack,
        ):
            side = ProcessSide(stack, OURS, OURS, f"herd://{','.join(addresses(cluster))}")
            side.load(1)
            time.sleep(_SETTLE_S)
            found[copies] = [
                (each, _best([side.commits(each, seconds) for _ in range(rounds)]))
                for each in CLIENTS
            ]
        for clients, taken in found[copies]:
            print(f"  {copies} copies, {clients:2} clients {taken.rate:10,.0f} 1/s", flush=True)
    return found


def measure_tablespaces(cluster: RealCluster, rounds: int, seconds: float) -> Points:
    """Commit into more and more tablespaces with the same clients; the best round of each."""
    nodes = sorted(each.name for each in cluster.programs.values() if each.kind == "node")
    url = f"herd://{','.join(addresses(cluster))}"
    found: Points = []
    with ExitStack() as stack:
        sides: list[ProcessSide] = []
        for count in TABLESPACES:
            while len(sides) < count:
                number = len(sides)
                first = number % len(nodes)
                name = f"curve{number}"
                replicas = ",".join(nodes[first:] + nodes[:first])
                made = cluster.command("cluster", "create", name, "--replicas", replicas)
                assert made.returncode == 0, made.stderr
                _wait_for_leader(f"{url}/{name}")
                sides.append(ProcessSide(stack, name, OURS, f"{url}/{name}"))
                sides[-1].load(1, clients=CLIENTS_OF_ALL // (1 if number == 0 else 2))
            each = CLIENTS_OF_ALL // count
            rates = [taken_together(sides[:count], each, seconds) for _ in range(rounds)]
            found.append((count, _best(rates)))
            print(f"  {count} tablespaces {found[-1][1].rate:10,.0f} 1/s", flush=True)
    return found


def _wait_for_leader(url: str) -> None:
    def find() -> bool:
        try:
            herdpy.connect(url).close()
        except herdpy.OperationalError:
            return False
        return True

    wait_for(find, f"{url} has no leader", [])


def _best(rounds: Sequence[Taken]) -> Taken:
    return max(rounds, key=lambda each: each.rate)
