"""Literals: a statement's text with placeholders where they stood, and the values that they mean.

For texts that come by the thousand and differ in values alone. What is split here has only words,
names in quotes, strings, numbers and a few signs, which tokens.py reads in no other way; whatever
else a text has, it is left as it is.
"""

import re
from decimal import Decimal
from typing import Final, NamedTuple

from herdpy.limits import shared_text_max

_PIECE: Final = re.compile(
    r"""( (?: [ \t\r\n\f\v]++ | [A-Za-z_][A-Za-z_0-9]*+ | "[^"\0]*+" | [(),.;=<>*] | (?!) )*+ )
    (?: (?<![A-Za-z_0-9.])
        (?: ( -?[0-9]{1,18}+ (?: \.[0-9]{1,18}+ )? )(?![A-Za-z_0-9.$\x80-\U0010ffff])
        |   ( '[^'\0]*+ (?: ''[^'\0]*+ )*+ )' )
    |   \Z
    |   (.) )""",
    re.VERBOSE | re.DOTALL,
)
"""What stands before a literal; a number, or a string but for its last quote; or another sign.

(?!): before Python 3.11.5 a possessive group whose last alternative fails after some characters
goes on behind them (gh-106052); this alternative fails without any.
"""
_BEGINNINGS: Final = frozenset("IiUuDdSs")
"""Of INSERT, UPSERT, UPDATE, DELETE and SELECT."""


class Split(NamedTuple):
    """A text with ? in the place of each literal, and what these mean, in order."""

    text: str
    values: tuple[int | Decimal | str, ...]


def split_literals(text: str) -> Split | None:
    """Return a statement with its numbers and strings apart; None: it has others, or none.

    Whether they mean there what parameters do is for who knows the plan to say.
    """
    if text[:1] not in _BEGINNINGS or len(text) > shared_text_max:
        return None
    parts: list[str] = []
    values: list[int | Decimal | str] = []
    for before, number, string, other in _PIECE.findall(text):
        if other:
            return None
        parts.append(before)
        if number:
            values.append(_decimal(number) if "." in number else int(number))
        elif string:
            values.append(string[1:].replace("''", "'"))
    if not values:
        return None
    return Split("?".join(parts[: len(values) + 1]), tuple(values))


def _decimal(number: str) -> Decimal:
    value = Decimal(number)
    return value if value else value.copy_abs()  # a DECIMAL's zero has no sign
