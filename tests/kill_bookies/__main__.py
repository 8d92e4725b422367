"""`python -m tests.kill_bookies --rounds 20 [--seed N] [--only kill,drain,disk]`.

Real bookies, AutoRecovery and ZooKeeper as processes. Each round has a cluster of its own, and
depends on the seed and its number: a bookie is killed for good with 200 ledgers, one of which is
being written; three of six are drained at once under load, and their disks deleted; one of a
bookie's ledger directories is lost. Afterwards every entry is read from every bookie that should
have it. What happened is written to build/kill-bookies.json, round by round.
"""

import argparse
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bookie.admin.zookeeper_process import start_zookeeper
from tests.fixtures.bookie_processes import new_cluster
from tests.kill_bookies.rounds import ROUNDS

OUTPUT = Path("build/kill-bookies.json")
LEDGERS = 200


def kind_of(number: int, seed: int, names: tuple[str, ...]) -> str:
    """Return what befalls a round: each block of rounds has all kinds, in an order of its own."""
    block, place = divmod(number, len(names))
    return random.Random(f"{seed} block {block}").sample(names, len(names))[place]


def play_round(
    folder: Path, number: int, seed: int, names: tuple[str, ...], ledgers: int
) -> dict[str, Any]:
    """Play one round and return its evidence; BrokenPromiseError."""
    kind = kind_of(number, seed, names)
    begun_s = time.monotonic()
    with start_zookeeper(folder / "zookeeper", tick_ms=200, is_durable=False) as zookeeper:
        cluster = new_cluster(zookeeper, "/ledgers")
        rng = random.Random(f"{seed} round {number}")
        evidence = ROUNDS[kind](cluster, folder, rng, ledgers)
    return {
        "round": number,
        "kind": kind,
        "took_s": round(time.monotonic() - begun_s, 1),
        **evidence,
    }


def run(rounds: int, seed: int, names: tuple[str, ...], console: Console) -> None:
    """Play all rounds and keep the evidence of each; BrokenPromiseError."""
    host = {"cores": os.cpu_count(), "python": platform.python_version()}
    document: dict[str, Any] = {"seed": seed, "ledgers": LEDGERS, "host": host, "rounds": []}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    for number in range(rounds):
        evidence: dict[str, Any] = {}
        folder = Path(tempfile.mkdtemp(prefix="herdpy-kill-bookies-"))
        try:
            evidence = play_round(folder, number, seed, names, LEDGERS)
        except BaseException as error:
            kind = kind_of(number, seed, names)
            evidence = {"round": number, "kind": kind, "error": str(error)}
            console.print(f"round {number}, {kind}: failed; kept {folder}", style="red")
            raise
        finally:
            document["rounds"].append(evidence)
            OUTPUT.write_text(json.dumps(document, indent=1) + "\n")
        shutil.rmtree(folder)
        console.print(line_of(evidence))


def line_of(evidence: dict[str, Any]) -> str:
    """Return a round in one line."""
    times = [
        f"{name.removesuffix('_s').replace('_', ' ')} after {evidence[name]} s"
        for name in ("replicated_s", "restored_s", "drained_s")
        if name in evidence
    ]
    worst = max(writer["since"].get("max_ms", 0) for writer in evidence["writers"])
    return (
        f"{evidence['round']:3} {evidence['kind']:5} {evidence['took_s']:5.1f} s: "
        f"{evidence['ledgers']} ledgers, {evidence['acknowledged']} entries acknowledged, 0 lost, "
        f"{evidence['checked']['replicas']} copies read; {', '.join(times)}; "
        f"slowest add {worst:.0f} ms, none failed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kill_bookies", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="kinds, between commas", default=",".join(ROUNDS))
    options = parser.parse_args()
    console = Console(highlight=False)
    run(options.rounds, options.seed, tuple(options.only.split(",")), console)
    console.print(f"wrote {OUTPUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
