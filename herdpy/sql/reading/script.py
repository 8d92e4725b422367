"""Script: a text of several statements, cut at the semicolons that end them.

The cut is by tokens, so semicolons in strings, quoted names, comments and $$ bodies end nothing.
"""

from dataclasses import dataclass

from herdpy.errors import ProgrammingError
from herdpy.sql.reading.tokens import tokenize


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
    first: int | None = None
    for token in tokenize(text):
        if token.word != ";":
            first = token.start if first is None else first
        elif first is not None:
            pieces.append(Piece(text[first : token.start].rstrip(), first, True))
            first = None
    if first is not None:
        pieces.append(Piece(text[first:].rstrip(), first, False))
    return pieces


def is_complete(text: str) -> bool:
    """Tell whether every statement of the text has its semicolon and every quote its end."""
    try:
        pieces = split_statements(text)
    except ProgrammingError:
        return False
    return not pieces or pieces[-1].is_ended
