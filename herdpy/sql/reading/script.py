"""Script: a text of several statements, cut at the semicolons that end them.

The cut is by tokens, so semicolons in strings, quoted names, comments and $$ bodies end nothing.
Statements that have neither comments, E'…' nor $$ are cut without looking at each token.
"""

import re
from dataclasses import dataclass
from typing import Final

from herdpy.errors import ProgrammingError
from herdpy.sql.reading.tokens import tokenize

_PLAIN: Final = re.compile(
    r"""(?: [ \t\r\n\f\v]++ | --[^\n\r]*+ )*+
    ( (?: [^;'"$/\-eE]++ | [eE](?!') | '[^']*+' | "[^"]*+" | -(?!-) | /(?!\*) | (?!) )*+ );""",
    re.VERBOSE,
)
"""A statement behind comments, up to its semicolon; what tokens.py reads otherwise has no match.

(?!): see literals.py.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement, without its semicolon; `start` is its first character in the script, from 0.

    Only the last piece of a script may be without a semicolon (is_ended False).
    """

    text: str
    start: int
    is_ended: bool


def split_statements(text: str) -> list[Piece]:
    """Return the statements of a script; empty ones are left out.

    ProgrammingError 42601 when a quote or a comment has no end.
    """
    pieces: list[Piece] = []
    position = 0
    while (found := _PLAIN.match(text, position)) is not None:
        if found[1]:
            pieces.append(Piece(found[1].rstrip(), found.start(1), True))
        position = found.end()
    first: int | None = None
    for token in tokenize(text, position):
        if token.word != ";":
            first = token.start if first is None else first
        elif first is not None:
            pieces.append(Piece(text[first : token.start].rstrip(), first, True))
            first = None
    if first is not None:
        pieces.append(Piece(text[first:].rstrip(), first, False))
    return pieces


def complete_statements(text: str) -> list[Piece] | None:
    """Return the statements of a script; None: the last one, or a quote, goes on behind it."""
    try:
        pieces = split_statements(text)
    except ProgrammingError:
        return None
    return pieces if not pieces or pieces[-1].is_ended else None
