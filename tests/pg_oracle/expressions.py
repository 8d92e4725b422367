"""Generated expressions as trees: written for either server, taken apart where they differ."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from string import Formatter

from herdpy.model.types import FLOAT_KINDS, MOMENT_KINDS, NUMERIC_KINDS, Kind
from tests.pg_oracle.rules import (
    AGGREGATE_RULES,
    SCALARS,
    Choice,
    Rule,
)
from tests.pg_oracle.values import (
    COLUMNS,
    NAMES,
    K,
    as_python,
    cast,
    constant,
    quoted,
)


@dataclass(frozen=True, slots=True)
class Node:
    """An expression: a rule's template over parts, or a leaf, which has none."""

    label: str
    kind: Kind
    template: str
    parts: tuple["Node", ...] = ()
    is_row: bool = True
    parameter: tuple[Kind, str] | None = None
    """Of a leaf that is handed to herdpy as a parameter: what it is a text of."""
    is_untyped: bool = False
    """A leaf that is 'text' or NULL without a type: alone it means something else."""

    def walk(self) -> Iterator["Node"]:
        """Yield the parts before what they are parts of."""
        for part in self.parts:
            yield from part.walk()
        yield self

    def text(self, tail: str = "", parameters: list[object] | None = None) -> str:
        """Return SQL; a list of parameters collects those that herdpy is to be handed."""
        if self.parameter is not None and parameters is not None:
            parameters.append(as_python(*self.parameter))
            return self.template.partition("\0")[2]
        template = self.template.partition("\0")[0]
        if not self.parts and "{tail}" not in template:
            return template
        shown: list[str] = []
        for before, name, _, _ in Formatter().parse(template):  # as parameters stand in the text
            shown.append(before)
            if name is not None:
                is_part = name.isdecimal()
                shown.append(self.parts[int(name)].text(tail, parameters) if is_part else tail)
        return "".join(shown)

    def replaced(self, old: "Node", new: "Node") -> "Node":
        """Return it with `new` wherever `old` stands (by identity)."""
        if self is old:
            return new
        if not self.parts:
            return self
        parts = tuple(part.replaced(old, new) for part in self.parts)
        return self if parts == self.parts else replace(self, parts=parts)


def leaf(label: str, kind: Kind, template: str) -> Node:
    return Node(label, kind, template)


VALUE = "value of "
"""What the labels of constants begin with that stand for what PostgreSQL has shown."""
_BY_RESULT: dict[Kind, tuple[Rule, ...]] = {
    kind: tuple(rule for rule in SCALARS if rule.result is kind) for kind in Kind
}
_TYPED = ("CAST(", "CASE of (", "first_value", "last_value", "nth_value", "lag", "lead")
_ARRAY = "(ARRAY of "
_RARE_AGAIN_SHARE = 0.95
_UNTYPED_SHARE, _PARAMETER_SHARE, _COLUMN_SHARE = 0.08, 0.12, 0.6


class Writer:
    """Writes random expressions; `columns` is the prefix of their columns, None for none."""

    def __init__(self, chance: random.Random, columns: str | None, edges: float) -> None:
        self._chance = chance
        self._columns = columns
        self._edges = edges

    def of_rule(
        self, rule: Rule, depth: int, operand: Callable[[Kind, int], Node] | None = None
    ) -> Node:
        """Return an expression of that rule whose operands are at most `depth` deep."""
        operand = operand or (lambda kind, deep: self.expression(kind, deep))
        parts: list[Node] = []
        for argument in rule.arguments:
            if isinstance(argument, Choice):
                text = self._chance.choice(argument.texts)
                parts.append(Node("text", K.TEXT, text.replace("{", "{{"), is_untyped=True))
            elif self._may_be_untyped(rule):
                parts.append(self._untyped(argument))
            else:
                parts.append(operand(argument, depth))
        is_row = rule.is_row and all(part.is_row for part in parts)
        return Node(rule.label, rule.result, rule.template, tuple(parts), is_row)

    def _may_be_untyped(self, rule: Rule) -> bool:
        if len(rule.arguments) < 2 or rule.label.startswith(_TYPED) or _ARRAY in rule.label:
            return False
        kinds = {argument for argument in rule.arguments if isinstance(argument, Kind)}
        is_mixed = any(
            len(kinds.intersection(group)) > 1 for group in (NUMERIC_KINDS, MOMENT_KINDS)
        )
        return not is_mixed and self._chance.random() < _UNTYPED_SHARE

    def _untyped(self, kind: Kind) -> Node:
        if self._chance.random() < 0.3:
            return Node("untyped NULL", kind, "NULL", is_untyped=True)
        text = quoted(constant(self._chance, kind, self._edges))
        return Node("untyped constant", kind, _braced(text), is_untyped=True)

    def expression(self, kind: Kind, depth: int) -> Node:
        """Return an expression of that kind."""
        if depth <= 0 or self._chance.random() < 0.25:
            return self._leaf(kind)
        return self.of_rule(self._one_of(_BY_RESULT[kind]), depth - 1)

    def _one_of(self, rules: Sequence[Rule]) -> Rule:
        rule = self._chance.choice(rules)
        while rule.is_rare and self._chance.random() < _RARE_AGAIN_SHARE:
            rule = self._chance.choice(rules)
        return rule

    def _leaf(self, kind: Kind) -> Node:
        chance, name = self._chance, NAMES[kind]
        columns = [column for column, (found, _) in COLUMNS.items() if found is kind]
        if self._columns is not None and columns and chance.random() < _COLUMN_SHARE:
            column = chance.choice(columns)
            return Node(f"column {name}", kind, f"{self._columns}.{column}")
        if chance.random() < 0.08:
            return Node(f"NULL {name}", kind, cast(None, _type_name(kind, None)))
        text = constant(chance, kind, self._edges)
        type_name = _type_name(kind, text)
        if kind is not K.INTERVAL and chance.random() < _PARAMETER_SHARE:
            both = f"{_braced(cast(text, type_name))}\0CAST(? AS {type_name})"
            return Node(f"parameter {name}", kind, both, parameter=(kind, text))
        forms = [cast(text, type_name), f"{quoted(text)}::{type_name}"]
        if kind is K.INTEGER or (kind is K.DECIMAL and "." in text):
            forms += [text if text[0] != "-" else f"({text})"] * 2
        elif kind is K.BOOLEAN:
            forms += [text.upper()] * 2
        elif kind not in (K.BIGINT, K.DECIMAL, *FLOAT_KINDS):
            forms.append(f"{type_name} {quoted(text)}")
        return Node(f"constant {name}", kind, _braced(chance.choice(forms)))

    def around(self, aggregate: Node) -> Node:
        """Return an expression over the aggregate, and others."""
        rules = [
            rule
            for rule in SCALARS
            if rule.allows_aggregates and aggregate.kind in rule.arguments[:2]
        ]
        waiting = [aggregate]

        def operand(kind: Kind, depth: int) -> Node:
            if waiting and waiting[0].kind is kind:
                return waiting.pop()
            return self._aggregate(kind, depth)

        return self.of_rule(self._one_of(rules), 1, operand)

    def _aggregate(self, kind: Kind, depth: int) -> Node:
        rules = [rule for rule in AGGREGATE_RULES if rule.result is kind]
        if not rules or self._chance.random() < 0.2:
            text = constant(self._chance, kind, 0)
            return Node(
                f"constant {NAMES[kind]}", kind, _braced(cast(text, _type_name(kind, text)))
            )
        return self.of_rule(self._one_of(rules), depth - 1)


def _type_name(kind: Kind, text: str | None) -> str:
    """Return the name of a type that holds the text."""
    if kind is not K.DECIMAL:
        return NAMES[kind]
    whole, _, fraction = (text or "0").lstrip("-").partition(".")
    return f"numeric({max(len(whole) + len(fraction), 1)},{len(fraction)})"


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def value_leaf(kind: Kind, text: str | None) -> Node:
    """Return a constant of a kind for a value that PostgreSQL has shown."""
    return Node(f"{VALUE}{NAMES[kind]}", kind, _braced(cast(text, _type_name(kind, text))))
