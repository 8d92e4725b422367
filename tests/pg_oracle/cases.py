"""The cases: a seed's expression in a statement, over tables of generated rows."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from herdpy.model.types import Kind
from tests.pg_oracle.dml import DML_KINDS, Change, write_change
from tests.pg_oracle.expressions import Node, Writer
from tests.pg_oracle.rules import (
    AGGREGATE_RULES,
    SCALARS,
    SUBQUERIES,
    WINDOW_RULES,
    Rule,
)
from tests.pg_oracle.values import DEFINITION, K, rows

SEEDS_OF_A_WORLD = 25
_NAMES = ("count(*)", "count(*) OVER")
ROOTS: tuple[Rule | str, ...] = (
    *SCALARS, *SUBQUERIES, *AGGREGATE_RULES, *WINDOW_RULES, *DML_KINDS,
)  # fmt: skip
"""What a case begins with: the seeds go through all of them, round after round."""
_STRIDE = 1_009
"""From the root of one seed to that of the next: a prime, so that all come in a round."""
_COMMON = tuple(rule for rule in SCALARS if not rule.is_rare)
RARE_ROUNDS = 12
"""In one of so many rounds a rare rule is what a case begins with."""


class Frame(NamedTuple):
    """A statement around expressions; its first column says which row it is."""

    name: str
    text: str
    """With {0} for the expressions."""
    by_rows: str | None = None
    """The same for herdpy's row path, where it may compute the expressions."""
    is_alone: bool = False
    """Whether one expression fits, and no more."""

    def statement(self, nodes: Sequence[str], *, by_rows: bool = False) -> str:
        text = self.by_rows if by_rows else self.text
        return (text or self.text).replace("{0}", ", ".join(nodes))


class World(NamedTuple):
    """What the cases of some seeds share: rows, and which of them, keys and windows are asked."""

    number: int
    fill: tuple[str, ...]
    """Statements that make the rows of v and w anew."""
    frames: dict[str, Frame]


class Case(NamedTuple):
    """A seed's case: an expression in a frame, or a change of rows."""

    seed: int
    frame: Frame | None
    node: Node | None
    tail: str = ""
    change: Change | None = None


TABLES = {"v": "rows with values at the edges", "w": "more rows", "x": "rows that are changed"}


def create_tables(kind: str) -> list[str]:
    """Return the statements that make the tables; kind: TABLE or TEMP TABLE."""
    return [f"CREATE {kind} {name} ({DEFINITION})" for name in ("v", "w")]


_WHERES = ("q.id = 1", "q.id = 2", "q.id = 3", "q.id <= 2", "q.id <= 4")
_KEYS = ("1", "q.b", "q.i % 3", "q.c", "CASE WHEN q.id > 4 THEN 'x' END", "q.m", "q.a")


def make_world(number: int) -> World:
    chance = random.Random(f"world {number}")
    fill: list[str] = []
    for name, count, edges in (("v", 4, 0.2), ("w", 9, 0.02)):
        fill += [
            f"DELETE FROM {name}",
            f"INSERT INTO {name} VALUES {', '.join(rows(chance, count, edges))}",
        ]
    where, key = chance.choice(_WHERES), chance.choice(_KEYS)
    by_rows = f"SELECT q.id, {{0}} FROM v AS q WHERE {where} ORDER BY q.id LIMIT 100"
    value = f"SELECT q.id, {{0}} FROM (SELECT * FROM v AS q WHERE {where}) AS q ORDER BY q.id"
    grouped = f"SELECT {key}, {{0}} FROM w AS q GROUP BY {key} ORDER BY 1 NULLS FIRST"
    if key == "1":
        grouped = "SELECT 1, {0} FROM w AS q"
    test = "SELECT q.id, 1 FROM w AS q WHERE {0} ORDER BY q.id LIMIT 100"
    by_vectors = "SELECT r.id, 1 FROM (SELECT * FROM w AS q WHERE {0}) AS r ORDER BY r.id"
    frames = (
        Frame("value", value, by_rows), Frame("constant", "SELECT 1, {0}"),
        Frame("aggregate", grouped), Frame("window", "SELECT q.id, {0} FROM w AS q ORDER BY q.id"),
        Frame("predicate", by_vectors, test, is_alone=True),
        Frame("changed", "SELECT q.id, {0} FROM (SELECT * FROM x AS q) AS q ORDER BY q.id"),
        Frame("argument", "SELECT q.id, {0} FROM (SELECT * FROM w AS q) AS q ORDER BY q.id"),
    )  # fmt: skip
    return World(number, tuple(fill), {frame.name: frame for frame in frames})


def make_case(seed: int, world: World) -> Case:
    chance = random.Random(f"case {seed}")
    place = seed * _STRIDE % len(ROOTS)
    round_number, root = seed // len(ROOTS), ROOTS[place]
    if not isinstance(root, str) and root.is_rare and (round_number + place) % RARE_ROUNDS:
        root = chance.choice(_COMMON)
    if isinstance(root, str):
        return Case(seed, None, None, change=write_change(chance, root))
    if root in WINDOW_RULES:
        return _window_case(seed, root, world, chance)
    if root in AGGREGATE_RULES:
        return _aggregate_case(seed, root, world, chance)
    is_query = root in SUBQUERIES
    name = "value"
    if root.result is K.BOOLEAN and chance.random() < 0.4:
        name = "predicate"
    elif not is_query and chance.random() < 0.2:
        name = "constant"
    edges = 0.03 if name == "predicate" else 0.12
    writer = Writer(chance, None if name == "constant" else "q", edges)
    return Case(seed, world.frames[name], writer.of_rule(root, chance.choice((0, 0, 1, 1, 2))))


def _aggregate_case(seed: int, root: Rule, world: World, chance: random.Random) -> Case:
    writer = Writer(chance, "q", 0.02)
    node = writer.of_rule(root, chance.choice((0, 0, 1)))
    tail = " FILTER (WHERE q.b)" if chance.random() < 0.2 else ""
    if chance.random() < 0.25:
        node = writer.around(node)
    return Case(seed, world.frames["aggregate"], node, tail)


_FRAMES = (
    "", "", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " ROWS UNBOUNDED PRECEDING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
)  # fmt: skip
_ORDERS = ("i", "s DESC", "n NULLS FIRST", "a DESC NULLS LAST", "d", "b", "i + 1", "z")


def _window_case(seed: int, root: Rule, world: World, chance: random.Random) -> Case:
    node = Writer(chance, "q", 0.02).of_rule(root, chance.choice((0, 0, 1)))
    parts = [f"PARTITION BY q.{chance.choice(('b', 'i', 'c'))}"] if chance.random() < 0.5 else []
    has_peers = root.label.startswith(("rank", "dense", "percent", "cume", *_NAMES))
    if root.label != "count(*) OVER" or chance.random() < 0.7:
        order = f"ORDER BY q.{chance.choice(_ORDERS)}"
        parts.append(order if has_peers else f"{order}, q.id")
    frame = (
        ""
        if root.label.startswith(("lag", "lead", "ntile", "row_number")) or has_peers
        else (chance.choice(_FRAMES))
    )
    return Case(seed, world.frames["window"], node, f" OVER ({' '.join(parts)}{frame})")


def kinds_of(case: Case) -> list[str]:
    """Return the kinds of expression and change that the case is made of."""
    if case.change is not None:
        return [case.change.label, *(n.label for node in case.change.nodes for n in node.walk())]
    return [node.label for node in case.node.walk()] if case.node is not None else []


def output_text(node: Node, tail: str, parameters: list[object] | None) -> str:
    """Return an output of a select list: an interval as text, for a timedelta has no months."""
    text = node.text(tail, parameters)
    return f"({text})::text" if node.kind is Kind.INTERVAL else text
