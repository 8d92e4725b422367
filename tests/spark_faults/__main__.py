"""`python -m tests.spark_faults --rounds 20 [--seed N] [--only a,b] [--on cluster]`: a real Spark
under faults.

Spark runs on `local-cluster[2,1,1024]`, whose executors are processes; the server is a process,
too, or the leader of a cluster of three nodes, which another one follows when it is killed. Each
fault comes at a random moment of each of its rounds. Whatever happens, every row counts
once, and neither staging nor lease stays. A round depends on the seed, the fault's name and its
number only, and may be played alone.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rich.console import Console

from tests.spark_faults import faults
from tests.spark_faults.serving import PLACES
from tests.spark_faults.world import Missed, World

FAULTS: dict[str, Callable[[World], str]] = {
    "executor-in-write": faults.executor_in_write,
    "executor-in-read": faults.executor_in_read,
    "server-in-write": faults.server_in_write,
    "server-in-read": faults.server_in_read,
    "duplicate": faults.duplicate,
    "driver-before-commit": faults.driver_before_commit,
    "driver-after-commit": faults.driver_after_commit,
}
_TRIES = 8


def play(world: World, name: str, number: int, seed: int) -> str:
    """Play a round until the fault comes while the job runs; return the moment."""
    for attempt in range(_TRIES):
        world.rng = random.Random(f"{seed} {name} {number} {attempt}")
        try:
            return FAULTS[name](world)
        except Missed:
            world.finish()
    raise AssertionError(f"{name}: the job was always over before its moment came")


def run(place: str, names: list[str], rounds: int, seed: int, console: Console) -> None:
    """Play all rounds."""
    with (
        tempfile.TemporaryDirectory(prefix="herdpy-spark-faults-") as folder,
        PLACES[place](Path(folder)) as server,
        closing(World(Path(folder), server)) as world,
    ):
        for number in range(rounds):
            for name in names:
                begun_s = time.monotonic()
                try:
                    moment = play(world, name, number, seed)
                except BaseException:
                    console.print(f"{name}, round {number}: failed", style="red")
                    console.print(world.state(), markup=False)
                    raise
                taken_s = time.monotonic() - begun_s
                console.print(f"{number:3} {name:20} {taken_s:5.1f} s  {moment}")
        world.check_nothing_left_at_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", help="names of faults, between commas", default=",".join(FAULTS))
    parser.add_argument("--on", choices=PLACES, default="server")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    console = Console(highlight=False)
    console.print(f"on a {arguments.on}, seed {arguments.seed}")
    begun_s = time.monotonic()
    run(arguments.on, names, arguments.rounds, arguments.seed, console)
    taken_s = time.monotonic() - begun_s
    console.print(
        f"{arguments.rounds} rounds of {', '.join(names)} in {taken_s:.0f} s:"
        " every row once, no staging and no lease left"
    )
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
