"""How deep and how long a statement is, before anything expensive reads it.

One pass over the text, a twentieth of the parser's time: what would be too deep for it (54001) is
not tokenized first, which takes seconds for a million parentheses. It knows strings, comments,
brackets and operators, and no grammar: what is wrong in another way is left to those who say it
better. Without state.
"""

import re
from typing import Final

from herdpy.errors import OperationalError
from herdpy.limits import (
    statement_chain_max,
    statement_conditions_max,
    statement_depth_max,
)

_SHORT_CHARACTERS: Final = 2_000
"""Texts up to here are tokenized in some milliseconds, whatever they hold."""

_PIECES = re.compile(
    r"""[eE]'[^'\\]*(?:\\.[^'\\]*)*'|'[^']*'|"[^"]*"|--[^\n]*|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"""
    r"""|(?P<comment>/\*)|(?P<word>\w+)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)"""
    r"""|(?P<operator>::|[|<>=!&]{1,3}|[-+*/%^#~@])|(?P<unended>['"])""",
    re.DOTALL,
)
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


def check_extent(text: str) -> None:
    """Raise OperationalError 54001 for a text whose statement is too deep or too long a chain."""
    if len(text) <= _SHORT_CHARACTERS:
        return
    counts = [0, 0, 0]
    outer: list[list[int]] = []  # those of the levels around
    position = 0
    while (piece := _PIECES.search(text, position)) is not None:
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
            position = _end_of_comment(text, position)
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


def _end_of_comment(text: str, position: int) -> int:
    """Return where a comment ends, in which others may lie; the end of the text if it has none."""
    depth = 1
    while depth:
        mark = _COMMENT_MARKS.search(text, position)
        if mark is None:
            return len(text)
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
    return position
