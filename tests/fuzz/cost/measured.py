"""What one statement costs: calls or bytes of Python, characters for DuckDB, and how it ends.

A seed measures one family at one length and twice that, either its calls or its bytes. Most end
with the text for DuckDB, whose own work is counted by its characters, and takes most of the time.
"""

import gc
import math
import random
import sys
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import herdpy
from herdpy.driver.connection import Connection
from herdpy.engine.statements import explain
from herdpy.limits import identifier_bytes_max
from herdpy.model.role_settings import NO_MAXIMA
from herdpy.sql import duckdb_text
from herdpy.sql.macros import MACROS
from herdpy.sql.printed_size import printed_size
from tests.fixtures.counted_calls import count_calls
from tests.fuzz.cost.families import FAMILIES, SCHEMA, Pair

Unit = Literal["calls", "bytes"]
GROWTH_MAX = 2.3
"""Of a cost, when the text doubles."""
_FREE: dict[Unit, int] = {"calls": 50_000, "bytes": 500_000}
"""What may come in one step: a table of codes, another path, a buffer that doubles."""
_PRINTED_FREE = 4_000
_READ_FREE = 2_000
_PATHS = 2
"""A statement that is too long for the row path has what it took added to what DuckDB's takes."""
_KINDS = {
    "54": "a limit", "42": "refused", "53": "no memory", "22": "data", "0A": "not supported",
    "21": "several rows", "23": "constraint", "07": "parameters",
}  # fmt: skip
"""Classes of the SQLSTATEs with which a statement may end."""
_ROWS_MAX = 1_000  # of a result: a product of many tables has no end
DECADES = (1_000, 10_000, 100_000, 1 << 20, 1 << 23)
"""Lengths of texts: from each up to the next. Twice the last is statement_bytes_max."""
_DECADE_EVERY = 5
"""One in so many rounds of all families has texts of the next decade, ten times as long."""
_MUTATED_SHARE = 0.15
_FAR_LONGER = 10  # than what a limit has refused, which depends on the family's expressions, too
_EXECUTED_SHARE = 0.1
"""Of the statements with a text for DuckDB, those that DuckDB runs."""
_ENDED_WELL = ("rows", "printed")


class FindingError(Exception):
    """What a statement should not have done."""


class Drawn(NamedTuple):
    """Which statements a seed makes."""

    family: str
    decade: int
    """Of DECADES, by its index."""
    size: int
    unit: Unit
    is_executed: bool


class Cost(NamedTuple):
    counted: int
    unit: Unit
    printed: int
    read: int
    """Characters that DuckDB reads, its macros put into the text."""
    outcome: str
    """"rows", an SQLSTATE, or "printed": it was not to be executed."""

    def names(self) -> str:
        return f"{self.counted:,} {self.unit}, {self.printed:,} printed characters ({self.outcome})"


class World:
    """One database in memory whose statements are measured, each in a transaction given up."""

    def __init__(self) -> None:
        self.connection: Connection = herdpy.connect(":memory:")
        for statement in SCHEMA:
            self.connection.execute(statement)
        self.connection.commit()
        for text in ("SELECT s || 'a' FROM t ORDER BY upper(s)", "SELECT power(d, 2) FROM t"):
            self.connection.execute(text).fetchall()
        # DuckDB and its macros are there from here on: no statement that is measured makes one.
        engine = self.connection.live_session().database.vectors.of(None, NO_MAXIMA)
        engine._prepared(frozenset(MACROS))

    def close(self) -> None:
        self.connection.close()

    def cost(
        self, text: str, unit: Unit, *, is_executed: bool, takes_parameters: bool = False
    ) -> Cost:
        """Run a statement and count; FindingError for an end that it must not have.

        Unless it is to be executed it is cancelled as soon as there is a text for DuckDB.
        """
        count = text.count("?") if takes_parameters else 0
        parameters = tuple(range(count)) if count else None
        count_all = _calls if unit == "calls" else _peak
        with self._watched(is_executed=is_executed) as printed:
            outcome, counted = count_all(lambda: self._run(text, parameters))
        if outcome == "57014":
            if is_executed or not printed:
                raise FindingError("is cancelled, which nobody asked for")
            outcome = "printed"
        elif outcome != "rows" and outcome[:2] not in _KINDS:
            raise FindingError(f"ends in {outcome}"[:2_000])
        read = sum(map(printed_size, printed))
        return Cost(counted, unit, sum(map(len, printed)), read, outcome)

    @contextmanager
    def _watched(self, *, is_executed: bool) -> Generator[list[str]]:
        """Note the texts for DuckDB; cancel what makes one, unless it is executed."""
        printed: list[str] = []
        right = duckdb_text.print_query

        def print_query(*arguments: Any, **named: Any) -> duckdb_text.DuckText:
            made = right(*arguments, **named)
            printed.extend(text.sql for text in (made, *_deferred(made)))
            if not is_executed:
                self.connection.cancel()
            return made

        duckdb_text.print_query = explain.print_query = print_query
        try:
            yield printed
        finally:
            duckdb_text.print_query = explain.print_query = right

    def _run(self, text: str, parameters: object) -> str:
        """Return "rows", or the error's SQLSTATE, with its message where it is not to be."""
        connection = self.connection
        try:
            cursor = connection.execute(text, parameters)  # type: ignore[arg-type]
            if cursor.description is not None:
                cursor.fetchmany(_ROWS_MAX)
                cursor.close()
            return "rows"
        except herdpy.Error as error:
            state = error.sqlstate
            return state if state[:2] in _KINDS or state == "57014" else f"{state}: {error}"
        except (Exception, RecursionError, MemoryError) as error:
            raise FindingError(f"raises {type(error).__name__}: {error}"[:2_000]) from error
        finally:
            connection.rollback()


def _calls(run: Callable[[], str]) -> tuple[str, int]:
    """Return how it ends, and the calls of functions, Python's own included, on the way."""
    outcomes: list[str] = []
    count = count_calls(lambda: outcomes.append(run()))
    return outcomes[0], count


def _deferred(text: duckdb_text.DuckText) -> list[duckdb_text.DuckText]:
    found = [item.text for item in text.deferred]
    return found + [inner for each in found for inner in _deferred(each)]


def _peak(run: Callable[[], str]) -> tuple[str, int]:
    """Return how it ends, and the bytes that Python held more than before at the worst."""
    gc.disable()
    tracemalloc.start()
    try:
        outcome = run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    return outcome, peak


def drawn(seed: int) -> Drawn:
    """Return what a seed is about, before its texts are made, which takes the time."""
    chance = random.Random(seed)
    names = list(FAMILIES)
    round_, place = divmod(seed, len(names))
    decade, left = 0, round_ + 1
    while decade < len(DECADES) - 2 and left % _DECADE_EVERY == 0:
        decade, left = decade + 1, left // _DECADE_EVERY
    # The longer, the rarer: twice as long is an eighth as likely, as it takes twice the time.
    low, high = DECADES[decade], DECADES[decade + 1]
    size = math.floor(low / math.sqrt(1 - chance.random() * (1 - (low / high) ** 2)))
    unit: Unit = "calls" if chance.random() < 0.5 else "bytes"
    return Drawn(names[place], decade, size, unit, chance.random() < _EXECUTED_SHARE)


def grows_too_fast(
    pair: Pair, small: Cost, large: Cost, innermost: Cost | None = None
) -> str | None:
    """Tell what the longer statement costs more of than in proportion; None: of nothing.

    Of forms in one another the innermost, of a column, may cost less than each around it, of what
    is computed: with `innermost`, of pair.innermost, the forms around it alone are compared.
    """
    fixed = pair.fixed if innermost is None else len(pair.innermost or "")
    ratio = GROWTH_MAX / 2 * (len(pair.large) - fixed) / (len(pair.small) - fixed)
    if small.outcome == "rows" and not small.printed and large.outcome.startswith("54"):
        ratio *= _PATHS  # a limit of what is printed may have ended the other path
    for name, free, cost_of in (
        (small.unit, _FREE[small.unit], attrgetter("counted")),
        ("printed characters", _PRINTED_FREE, attrgetter("printed")),
        ("characters that DuckDB reads", _READ_FREE, attrgetter("read")),
    ):
        before, after = cost_of(small), cost_of(large)
        least = 0 if innermost is None else cost_of(innermost)
        # Of one that ended early what it would have taken is not known.
        if small.outcome in _ENDED_WELL and after - least > ratio * (before - least) + free:
            return (
                f"{name}: {before:,} for {len(pair.small):,} bytes of text and {after:,} for"
                f" {len(pair.large):,}; {small.names()}; {large.names()}"
            )
    return None


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


def run_seed(
    world: World, seed: int, limits_met: dict[str, int] | None = None
) -> tuple[Drawn, list[Cost]]:
    """Run a seed's statements; return what it was about and what they cost.

    Of a text that a limit refuses there is no longer one: one cost alone. `limits_met` has and
    gets the shortest of those by family: for what is far longer nothing is run, nothing returned.
    """
    about = drawn(seed)
    limits_met = {} if limits_met is None else limits_met
    if about.size > _FAR_LONGER * limits_met.get(about.family, sys.maxsize):
        return about, []
    chance = random.Random(f"{seed} texts")
    make = FAMILIES[about.family]
    pair = make(chance, about.size)
    takes = pair.takes_parameters

    def cost(text: str) -> Cost:
        text = f"{text} --{seed}"  # there may be a plan of what another seed has run
        return world.cost(text, about.unit, is_executed=about.is_executed, takes_parameters=takes)

    def again(size: int) -> tuple[Pair, list[Cost]]:
        """Measure the same at another length; with blanks, as there are plans of what has run."""
        same = random.Random(f"{seed} texts")
        made, blanks = make(same, size), " " * (1 + size % 1_000)
        return made, [cost(f"{made.small}{blanks}"), cost(f"{made.large}{blanks}")]

    def too_fast(pair: Pair, small: Cost, large: Cost) -> str | None:
        finding = grows_too_fast(pair, small, large)
        if finding is None or pair.innermost is None:
            return finding
        innermost = cost(pair.innermost)
        # What takes another path, or ends otherwise, is nothing to go by.
        is_alike = innermost.outcome == small.outcome and bool(innermost.printed) == bool(
            small.printed
        )
        return grows_too_fast(pair, small, large, innermost) if is_alike else finding

    try:
        costs = [cost(pair.small)]
        if costs[0].outcome.startswith("54"):
            shortest = min(about.size, limits_met.get(about.family, about.size))
            limits_met[about.family] = shortest
        else:
            costs.append(cost(pair.large))
            if _leaves_row_path(*costs):
                pair, costs = again(2 * about.size)
            finding = None if _leaves_row_path(*costs) else too_fast(pair, *costs)
            if finding is not None:
                # From some length on it may be done, or tested, in another way, that costs more:
                # what is superlinear grows too fast at another length, too.
                other, others = again(2 * len(pair.small))
                if others[1].outcome not in _ENDED_WELL:
                    other, others = again(len(pair.small) // 2)
                if too_fast(other, *others) is not None:
                    raise FindingError(finding)
        if chance.random() < _MUTATED_SHARE:
            text = mutated(chance, pair.small)
            costs.append(world.cost(text, about.unit, is_executed=True, takes_parameters=takes))
    except FindingError as finding:
        raise FindingError(
            f"seed {seed}: {about.family} of {about.size:,} bytes: {finding}"
        ) from finding
    return about, costs


def _leaves_row_path(small: Cost, large: Cost) -> bool:
    return bool(small.printed) != bool(large.printed) and large.outcome in _ENDED_WELL
