"""Seeds of the oracle: chunks of cases in a process, and one alone with what both servers say."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import NamedTuple

from tests.fixtures.plants import planted
from tests.pg_oracle.answers import Difference
from tests.pg_oracle.cases import SEEDS_OF_A_WORLD, kinds_of, make_case
from tests.pg_oracle.comparison import Comparison
from tests.pg_oracle.deviations import reason_of
from tests.pg_oracle.plants import PLANTS


class FindingError(AssertionError):
    """A difference that no entry of the list explains."""


class Chunk(NamedTuple):
    """What some seeds did: kinds of expression, documented differences by rule, and findings."""

    runs: int
    kinds: Counter[str]
    documented: Counter[str]
    findings: dict[int, str]


@cache
def _comparison(conninfo: str) -> Comparison:
    """Return the sessions of this process."""
    return Comparison(conninfo)


def run_chunk(conninfo: str, first: int, count: int) -> Chunk:
    """Run seeds first, first + 1, …"""
    return judge(_comparison(conninfo), first, count)


def search(conninfo: str, first: int, count: int, plant: str) -> Chunk:
    """Run seeds with a planted fault until one finds it, in sessions that begin with the fault."""
    done = Chunk(0, Counter(), Counter(), {})
    with planted(PLANTS, plant), closing(Comparison(conninfo)) as comparison:
        for start in range(first, first + count, SEEDS_OF_A_WORLD):
            chunk = judge(comparison, start, min(SEEDS_OF_A_WORLD, first + count - start))
            done = chunk._replace(runs=done.runs + chunk.runs)
            if done.findings:
                break
    return done


def judge(comparison: Comparison, first: int, count: int) -> Chunk:
    """Run the seeds in these sessions."""
    kinds: Counter[str] = Counter()
    documented: Counter[str] = Counter()
    findings: dict[int, str] = {}
    seeds = range(first, first + count)
    for number in dict.fromkeys(seed // SEEDS_OF_A_WORLD for seed in seeds):
        world = comparison.enter(number)
        own = [seed for seed in seeds if seed // SEEDS_OF_A_WORLD == number]
        cases = [make_case(seed, world) for seed in own]
        for case in cases:
            kinds.update(kinds_of(case))
        for seed, found in comparison.examine(cases).items():
            unexplained, rules = _judged(found)
            if unexplained:
                findings[seed] = "\n".join(map(str, unexplained))
            elif rules:
                documented[" + ".join(sorted(rules))] += 1
    return Chunk(count, kinds, documented, findings)


def _judged(found: list[Difference]) -> tuple[list[Difference], set[str]]:
    """Return the differences that are not documented, and the rules of the others."""
    unexplained: list[Difference] = []
    rules: set[str] = set()
    for difference in found:
        reason = reason_of(difference)
        if reason is None:
            unexplained.append(difference)
        else:
            rules.add(reason.rule)
    return unexplained, rules


def run_alone(conninfo: str, seed: int, say: Callable[..., None]) -> str:
    """Run one seed and say what it differs in; an undocumented difference is a FindingError."""
    with closing(Comparison(conninfo)) as comparison:
        case = make_case(seed, comparison.enter(seed // SEEDS_OF_A_WORLD))
        for text in comparison.statements(case):
            say(text)
        ((_, found),) = comparison.examine([case]).items()
        for difference in found:
            reason = reason_of(difference)
            say(str(difference))
            say(f"  documented: {reason.rule}" if reason else "  not documented")
            if reason is None:
                raise FindingError(f"seed {seed}: {difference}")
        return f"{len(found)} documented differences"
