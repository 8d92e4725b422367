"""`python -m tests.kill_cluster --rounds 100 [--seed N] [--only "kill leader;kill bookie"]`.

A whole cluster (`herdpy cluster up`: ZooKeeper, three bookies, three nodes) under eight clients, to
which something is done again and again; then all rows are read on each node. The history is kept
in build/kill-cluster/, and `--check FILE` judges one again. It fails when a checker has found
something, and when clients hear nothing for longer than promised behind the death of a leader.
`--bookies apache`: the same nodes over bookies of Apache BookKeeper.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.fixtures.real_cluster import RealCluster
from tests.interop.apache import CannotFetchError, release
from tests.interop.apache_cluster import ApacheCluster
from tests.kill_cluster.campaign import OUTPUT, Campaign
from tests.kill_cluster.events import EVENTS
from tests.kill_cluster.history import read
from tests.kill_cluster.report import show, too_long
from tests.sim.server.checkers import CheckError

_FILE_COLUMNS = 140
"""Of what no terminal shows."""


def _over_ours(data: Path) -> RealCluster:
    return RealCluster(data)


def _over_apaches(data: Path) -> ApacheCluster:
    return ApacheCluster(data, release("current"))


BOOKIES: dict[str, Callable[[Path], RealCluster | ApacheCluster]] = {
    "ours": _over_ours,
    "apache": _over_apaches,
}


def run(bookies: str, rounds: int, seed: int, names: tuple[str, ...], console: Console) -> Path:
    """Play all events, and return the file of the history."""
    file = OUTPUT / f"{seed}-{bookies}.jsonl"
    folder = Path(tempfile.mkdtemp(prefix="herdpy-kill-cluster-"))
    try:
        with BOOKIES[bookies](folder / "cluster") as cluster:
            say = partial(console.print, soft_wrap=True)
            Campaign(cluster, file, rounds, seed, names, say).run()
    except BaseException:
        console.print(f"kept {folder}, and the history in {file}", style="red")
        raise
    shutil.rmtree(folder)
    return file


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill_cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=len(EVENTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="kinds, between semicolons", default=";".join(EVENTS))
    parser.add_argument("--check", type=Path, help="judge the history of this file, run nothing")
    parser.add_argument("--bookies", choices=BOOKIES, default="ours")
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    begun_s = time.monotonic()
    names = tuple(options.only.split(";"))
    try:
        file = options.check or run(options.bookies, options.rounds, options.seed, names, console)
    except CannotFetchError as error:
        console.print(f"no bookies of Apache BookKeeper: {error}", style="red", markup=False)
        return 1
    records = list(read(file))
    try:
        show(console, records)
    except CheckError as error:
        console.print(f"{file}: {error}", style="red", markup=False)
        return 1
    console.print(f"{file}; {time.monotonic() - begun_s:.0f} s")
    complaints = too_long(records)
    for complaint in complaints:
        console.print(complaint, style="red", markup=False)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
