"""What one statement costs: calls and bytes of Python, characters for DuckDB, and how it ends."""

import gc
import random
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import herdpy
from herdpy.driver.connection import Connection
from herdpy.limits import identifier_bytes_max
from herdpy.sql import duckdb_text
from tests.fuzz.cost.families import FAMILIES, SCHEMA, Pair

GROWTH_MAX = 2.3
"""Of a cost, when the text doubles."""
_CALLS_FREE, _BYTES_FREE, _PRINTED_FREE = 50_000, 500_000, 4_000
"""What may come in one step: a table of codes, another path, a buffer that doubles."""
_KINDS = {
    "54": "a limit", "42": "refused", "53": "no memory", "22": "data", "0A": "not supported",
    "21": "several rows", "23": "constraint", "07": "parameters",
}  # fmt: skip
"""Classes of the SQLSTATEs with which a statement may end."""
_ROWS_MAX = 1_000  # of a result: a product of many tables has no end
_SIZE_MIN, _SIZE_MAX = 1_000, 1 << 20
_MUTATED_SHARE = 0.15


class FindingError(Exception):
    """What a statement should not have done."""


class Cost(NamedTuple):
    calls: int
    byte_count: int
    printed: int
    outcome: str

    def names(self) -> str:
        return (
            f"{self.calls:,} calls, {self.byte_count:,} bytes, {self.printed:,} printed characters"
            f" ({self.outcome})"
        )


class World:
    """One database in memory whose statements are measured, each in a transaction given up."""

    def __init__(self) -> None:
        self.connection: Connection = herdpy.connect(":memory:")
        for statement in SCHEMA:
            self.connection.execute(statement)
        self.connection.commit()
        for text in ("SELECT s || 'a' FROM t ORDER BY upper(s)", "SELECT power(d, 2) FROM t"):
            self.connection.execute(text).fetchall()  # DuckDB and its macros are there from here on

    def close(self) -> None:
        self.connection.close()

    def cost(self, text: str, *, takes_parameters: bool = False) -> Cost:
        """Run a statement twice, and count; FindingError for an end that it must not have."""
        count = text.count("?") if takes_parameters else 0
        parameters = tuple(range(count)) if count else None
        printed: list[int] = []
        run = self._runner(parameters)
        outcome, calls = _calls(lambda: run(text), printed)
        again, byte_count = _peak(lambda: run(f"{text} "))  # another text: no plan is kept of it
        if again != outcome:
            raise FindingError(f"ends in {outcome}, and another time in {again}")
        return Cost(calls, byte_count, sum(printed), outcome)

    def _runner(self, parameters: object) -> Callable[[str], str]:
        connection = self.connection

        def run(text: str) -> str:
            try:
                cursor = connection.execute(text, parameters)  # type: ignore[arg-type]
                if cursor.description is not None:
                    cursor.fetchmany(_ROWS_MAX)
                    cursor.close()
                return "rows"
            except herdpy.Error as error:
                if error.sqlstate[:2] not in _KINDS:
                    raise FindingError(f"ends in {error.sqlstate}: {error}"[:2_000]) from error
                return error.sqlstate
            except (Exception, RecursionError, MemoryError) as error:
                raise FindingError(f"raises {type(error).__name__}: {error}"[:2_000]) from error
            finally:
                connection.rollback()

        return run


def _calls(run: Callable[[], str], printed: list[int]) -> tuple[str, int]:
    """Return how it ends, and the calls of functions, Python's own included, on the way."""
    count = 0
    print_query = duckdb_text.print_query.__code__

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
        elif event == "return" and frame.f_code is print_query and argument is not None:
            printed.append(sum(len(text.sql) for text in (argument, *_deferred(argument))))

    gc.disable()
    sys.setprofile(profile)
    try:
        outcome = run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return outcome, count


def _deferred(text: duckdb_text.DuckText) -> list[duckdb_text.DuckText]:
    found = [item.text for item in text.deferred]
    return found + [inner for each in found for inner in _deferred(each)]


def _peak(run: Callable[[], str]) -> tuple[str, int]:
    """Return how it ends, and the bytes that Python held more than before at the worst."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        outcome = run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    return outcome, peak


def size_of(chance: random.Random) -> int:
    """Draw a length: twice as long is a third as likely."""
    size = _SIZE_MIN
    while size < _SIZE_MAX and chance.random() < 1 / 3:
        size *= 2
    return size


def check_growth(pair: Pair, small: Cost, large: Cost) -> None:
    """Raise FindingError where the longer statement costs more than in proportion."""
    ratio = GROWTH_MAX / 2 * (len(pair.large) - pair.fixed) / (len(pair.small) - pair.fixed)
    for name, before, after, free in (
        ("calls", small.calls, large.calls, _CALLS_FREE),
        ("bytes", small.byte_count, large.byte_count, _BYTES_FREE),
        ("printed characters", small.printed, large.printed, _PRINTED_FREE),
    ):
        # Of one that ended early what it would have taken is not known.
        if small.outcome == "rows" and after > ratio * before + free:
            raise FindingError(
                f"{name}: {before:,} for {len(pair.small):,} bytes of text and {after:,} for"
                f" {len(pair.large):,}; {small.names()}; {large.names()}"
            )


def mutated(chance: random.Random, text: str) -> str:
    """Return a statement with a piece cut out, doubled, or moved."""
    first = chance.randrange(len(text))
    length = chance.choice((1, 1, 2, 5, identifier_bytes_max, len(text) // 3))
    piece = text[first : first + length]
    rest = text[:first] + text[first + length :]
    if chance.random() < 0.4:
        return rest
    place = chance.randrange(len(rest) + 1)
    return (
        rest[:place] + piece + rest[place:]
        if chance.random() < 0.5
        else (text[:place] + piece + text[place:])
    )


def run_seed(world: World, seed: int) -> tuple[str, int, list[Cost]]:
    """Run a seed's statements; return its family, its size and what they cost."""
    chance = random.Random(seed)
    names = list(FAMILIES)
    name = names[seed % len(names)]
    size = size_of(chance)
    state = chance.getstate()
    pair = FAMILIES[name](chance, size)
    takes = pair.takes_parameters
    try:
        costs = [world.cost(text, takes_parameters=takes) for text in (pair.small, pair.large)]
        if bool(costs[0].printed) != bool(costs[1].printed) and costs[1].outcome == "rows":
            # The row path is left where a statement is long: on the other one it may double, too.
            chance.setstate(state)
            pair = FAMILIES[name](chance, 2 * size)
            # With blanks: there are plans of what has run already.
            costs = [
                world.cost(f"{text}  ", takes_parameters=takes) for text in (pair.small, pair.large)
            ]
        if bool(costs[0].printed) == bool(costs[1].printed) or costs[1].outcome != "rows":
            check_growth(pair, *costs)
        if chance.random() < _MUTATED_SHARE:
            costs.append(world.cost(mutated(chance, pair.small), takes_parameters=takes))
    except FindingError as finding:
        raise FindingError(f"seed {seed}: {name} of {size:,} bytes: {finding}") from finding
    return name, size, costs
