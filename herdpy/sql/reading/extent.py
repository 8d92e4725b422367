"""How deep, long and big a statement may be, and how often its passes look up."""

from collections.abc import Callable, Iterable
from typing import Final

from herdpy.errors import OperationalError
from herdpy.limits import (
    interrupt_nodes,
    statement_chain_max,
    statement_conditions_max,
    statement_depth_max,
    statement_nodes_max,
)

_OPERATOR, _CONDITION, _QUERY, _OPENING, _CLOSING, _BEGINNING = range(6)
_MAXIMA = (
    (statement_chain_max, "operators in one expression"),
    (statement_conditions_max, "conditions in one expression"),
    (statement_chain_max, "queries in one UNION"),
)
OTHER_SIGNS = frozenset(
    ("||", "&", "|", "#", "<<", ">>", "~", "~*", "!~", "!~*", "~~", "!~~", "~~*", "!~~*", "->",
     "->>", "#>", "#>>", "@>", "<@", "&&", "^@", "@@", "-|-", "<->", "&<", "&>")
)  # fmt: skip
"""Operators that PostgreSQL's grammar has no level of their own for."""
_PREFIXES = frozenset(("NOT", "-", "+", "~"))
_EFFECTS: Final[dict[str, int]] = {
    **dict.fromkeys(("AND", "OR"), _CONDITION),
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT"), _QUERY),
    **dict.fromkeys(("(", "[", "CASE"), _OPENING),
    **dict.fromkeys((")", "]", "END"), _CLOSING),
    **dict.fromkeys(
        (",", "WHEN", "THEN", "ELSE", "SELECT", "FROM", "WHERE", "ON", "HAVING", "GROUP", "ORDER",
         "LIMIT"),
        _BEGINNING,
    ),
    **dict.fromkeys(
        ("NOT", "IS", "IN", "LIKE", "ILIKE", "SIMILAR", "BETWEEN", "COLLATE", "AT", "ISNULL",
         "NOTNULL", "INTERVAL"),
        _OPERATOR,
    ),
    **dict.fromkeys(
        ("::", "=", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%", "^", *OTHER_SIGNS),
        _OPERATOR,
    ),
}  # fmt: skip


class Budget:
    """Counts the nodes of one statement in one pass, and asks every so often for a cancel.

    spend() raises 54001 above `maximum`, and what check_interrupt raises. One thread.
    """

    __slots__ = ("_maximum", "_next", "_what", "check_interrupt", "count")

    def __init__(
        self,
        check_interrupt: Callable[[], object],
        maximum: int = statement_nodes_max,
        what: str = "expressions",
    ) -> None:
        self.count = 0
        self.check_interrupt = check_interrupt
        self._maximum = maximum
        self._what = what
        self._next = 0

    def spend(self, count: int = 1) -> None:
        self.count += count
        if self.count < self._next:
            return
        self.check_interrupt()
        if self.count > self._maximum:
            raise too_big(self._maximum, self._what)
        self._next = min(self.count + interrupt_nodes, self._maximum + 1)


class Extent:
    """How deep and long a statement is up to the token that is read; knows no grammar."""

    __slots__ = ("_counts", "_outer", "_prefixes")

    def __init__(self) -> None:
        self._counts = [0, 0, 0]
        self._outer: list[list[int]] = []  # those of the levels around
        self._prefixes = 0

    def add(self, word: str, start: int) -> None:
        """Count a word or sign at a 0-based character; 54001 where it is one too many."""
        effect = _EFFECTS.get(word)
        if effect is None:
            self._prefixes = 0
            return
        self._prefixes = self._prefixes + 1 if word in _PREFIXES else 0
        if self._prefixes > statement_depth_max:
            raise too_deep_at(start)
        if effect <= _QUERY:
            counts = self._counts
            counts[effect] += 1
            if effect == _CONDITION:
                counts[_OPERATOR] = 0
            maximum, what = _MAXIMA[effect]
            if counts[effect] > maximum:
                raise _too_long_at(start, maximum, what)
        elif effect == _OPENING:
            self._outer.append(self._counts)
            self._counts = [0, 0, 0]
            if len(self._outer) > statement_depth_max:
                raise too_deep_at(start)
        elif effect == _BEGINNING:
            self._counts[_OPERATOR] = self._counts[_CONDITION] = 0
        elif self._outer:
            self._counts = self._outer.pop()


def nesting(words: Iterable[str]) -> tuple[int, int]:
    """Return how deep words and signs nest at the most, and how deep they are at their end."""
    deepest = depth = 0
    for word in words:
        effect = _EFFECTS.get(word)
        if effect == _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif effect == _CLOSING:
            depth -= 1
    return deepest, depth


def too_big(maximum: int, what: str) -> OperationalError:
    return OperationalError(
        f"statement is too big: more than {maximum:,} {what}",
        sqlstate="54001",
        hint="Run it in parts, or put rows into a table and join it.",
    )


def too_deep() -> OperationalError:
    return OperationalError(
        "statement is nested too deep for the stack that is left", sqlstate="54001"
    )


def too_deep_at(start: int) -> OperationalError:
    return OperationalError(
        f"statement is nested more than {statement_depth_max} deep",
        sqlstate="54001",
        position=start + 1,
    )


def _too_long_at(start: int, maximum: int, what: str) -> OperationalError:
    return OperationalError(
        f"statement has more than {maximum:,} {what}",
        sqlstate="54001",
        position=start + 1,
        hint="Compare with a list: IN (…), or with the rows of a table.",
    )
