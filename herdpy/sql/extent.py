"""How deep, long and big a statement is, before anything expensive reads it.

One pass over the text, a twentieth of the parser's time: what would be too deep for it (54001) is
not tokenized first, which takes seconds for a million parentheses. It knows strings, comments,
brackets and operators, and no grammar: what is wrong in another way is left to those who say it
better. Without state.
"""

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from herdpy.errors import OperationalError
from herdpy.limits import (
    interrupt_nodes,
    statement_chain_max,
    statement_conditions_max,
    statement_depth_max,
    statement_nodes_max,
)

_SHORT_CHARACTERS: Final = 2_000
"""Texts up to here are tokenized in some milliseconds, whatever they hold."""

_PIECES = re.compile(
    r"""[eE]'[^'\\]*(?:\\.[^'\\]*)*'|'[^']*'|"[^"]*"|--[^\n]*|(?P<dollar>\$\w*\$)"""
    r"""|(?P<comment>/\*)|(?P<word>\w+)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)"""
    r"""|(?P<operator>::|[|<>=!&]{1,3}|[-+*/%^#~@])|(?P<unended>['"])""",
    re.DOTALL,
)
_DOLLAR_MARKS = re.compile(r"\$(?=(\w*)\$)")
_COMMENT_MARKS = re.compile(r"/\*|\*/")
_OPERATOR, _CONDITION, _QUERY = range(3)
_MAXIMA = (
    (statement_chain_max, "operators in one expression"),
    (statement_conditions_max, "conditions in one expression"),
    (statement_chain_max, "queries in one UNION"),
)
_COUNTED = {
    **dict.fromkeys(("AND", "OR"), _CONDITION),
    **dict.fromkeys(("UNION", "INTERSECT", "EXCEPT"), _QUERY),
    **dict.fromkeys(
        ("NOT", "IS", "IN", "LIKE", "ILIKE", "SIMILAR", "BETWEEN", "COLLATE", "AT", "ISNULL",
         "NOTNULL", "INTERVAL"),
        _OPERATOR,
    ),
}  # fmt: skip
# What begins another expression. (All words that count for something are short.)
_BEGINNINGS = frozenset(
    ("WHEN", "THEN", "ELSE", "SELECT", "FROM", "WHERE", "ON", "HAVING", "GROUP", "ORDER", "LIMIT")
)
_WORD_CHARACTERS_MAX = max(map(len, _COUNTED))


class Budget:
    """Counts the nodes of one statement in one pass, and asks every so often for a cancel.

    spend() raises 54001 above `maximum`, and what check_interrupt raises. One thread.
    """

    __slots__ = ("_check_interrupt", "_maximum", "_next", "count")

    def __init__(
        self, check_interrupt: Callable[[], object], maximum: int = statement_nodes_max
    ) -> None:
        self.count = 0
        self._check_interrupt = check_interrupt
        self._maximum = maximum
        self._next = 0

    def spend(self, count: int = 1) -> None:
        self.count += count
        if self.count < self._next:
            return
        self._check_interrupt()
        if self.count > self._maximum:
            raise OperationalError(
                f"statement is too big: more than {self._maximum:,} expressions",
                sqlstate="54001",
                hint="Run it in parts, or put rows into a table and join it.",
            )
        self._next = min(self.count + interrupt_nodes, self._maximum + 1)


class DollarStrings:
    """Where the $tag$ … $tag$ strings of one text end, found in one pass over its $ signs."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, list[int]] | None = None

    def end(self, start: int, opening: str) -> int | None:
        """Return where the string that begins with `opening` at start ends; None: it does not."""
        if self._places is None:
            self._places = {}
            for mark in _DOLLAR_MARKS.finditer(self._text):
                self._places.setdefault(f"${mark[1]}$", []).append(mark.start())
        places = self._places.get(opening, [])
        index = bisect_left(places, start + len(opening))
        return places[index] + len(opening) if index < len(places) else None


def check_extent(text: str, check_interrupt: Callable[[], object] = lambda: None) -> None:
    """Raise OperationalError 54001 for a text whose statement is too deep or too long a chain."""
    if len(text) <= _SHORT_CHARACTERS:
        return
    counts = [0, 0, 0]
    outer: list[list[int]] = []  # those of the levels around
    dollars = DollarStrings(text)
    budget = Budget(check_interrupt, len(text))
    position = 0
    while (piece := _PIECES.search(text, position)) is not None:
        budget.spend()
        position = piece.end()
        kind = piece.lastgroup
        counted = _OPERATOR if kind == "operator" else None
        if kind == "word":
            kind, counted = _meaning(piece[0])
        if counted is not None:
            counts[counted] += 1
            if counted == _CONDITION:
                counts[_OPERATOR] = 0
            maximum, what = _MAXIMA[counted]
            if counts[counted] > maximum:
                raise _too_long(maximum, what, piece.start())
        elif kind == "comma":
            counts[_OPERATOR] = counts[_CONDITION] = 0
        elif kind == "open":
            outer.append(counts)
            counts = [0, 0, 0]
            if len(outer) > statement_depth_max:
                raise too_deep_at(piece.start())
        elif kind == "close":
            if outer:
                counts = outer.pop()
        elif kind == "comment":
            position = end_of_comment(text, position) or len(text)
        elif kind == "dollar":
            # Without an end only the $ is read, as the next one may begin a string that has one.
            position = dollars.end(piece.start(), piece[0]) or piece.start() + 1
        elif kind == "unended":
            return


def _meaning(word: str) -> tuple[str | None, int | None]:
    """Return as what kind of piece a word counts, and what it adds to."""
    if len(word) > _WORD_CHARACTERS_MAX:
        return None, None
    word = word.upper()
    if word == "CASE":
        return "open", None
    if word == "END":
        return "close", None
    return "comma" if word in _BEGINNINGS else None, _COUNTED.get(word)


def too_deep_at(start: int) -> OperationalError:
    """Return the error of a statement that is nested too deep from this 0-based character on."""
    return OperationalError(
        f"statement is nested more than {statement_depth_max} deep",
        sqlstate="54001",
        position=start + 1,
    )


def _too_long(maximum: int, what: str, start: int) -> OperationalError:
    return OperationalError(
        f"statement has more than {maximum:,} {what}",
        sqlstate="54001",
        position=start + 1,
        hint="Compare with a list: IN (…), or with the rows of a table.",
    )


def end_of_comment(text: str, position: int) -> int | None:
    """Return where a comment ends, in which others may lie; None if it has no end."""
    depth = 1
    while depth:
        mark = _COMMENT_MARKS.search(text, position)
        if mark is None:
            return None
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
    return position
