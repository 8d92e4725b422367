"""Power failures in a bookie's disk: python -m tests.sim.storage --runs 2000 --plant all."""

import argparse
import logging
import sys
from collections import Counter

from tests.sim.storage.plants import PLANTS, planted
from tests.sim.storage.world import World


def run(seed: int) -> tuple[World, BaseException | None]:
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        return world, error.__cause__ or error
    return world, None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.storage")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="one seed only")
    parser.add_argument("--plant", help="a planted fault, or all: each has to be found")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.plant:
        names = list(PLANTS) if arguments.plant == "all" else [arguments.plant]
        return max(_search(name, arguments.runs) for name in names)
    seeds = [arguments.seed] if arguments.seed is not None else range(arguments.runs)
    counts: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        world, error = run(seed)
        counts.update(world.facts.counts)
        steps.update(
            f"{step} {''.join(c for c in path if not c.isdigit())}"
            for step, path in world.crash_steps
        )
        if error is not None:
            failed += 1
            print(f"seed {seed}: {error}  (python -m tests.sim.storage --seed {seed})")
    print(f"{len(seeds)} histories, {counts['crashes']} crashes, {failed} failed")
    print("  " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print("crashes by step:")
    for name, count in sorted(steps.items()):
        print(f"  {count:6} {name}")
    return int(failed > 0)


def _search(name: str, runs: int) -> int:
    for seed in range(runs):
        with planted(name):
            _, error = run(seed)
        if error is not None:
            print(f"{name}: found by seed {seed}: {str(error)[:120]}")
            return 0
    print(f"{name}: NOT FOUND in {runs} seeds")
    return 1


if __name__ == "__main__":
    sys.exit(main())
