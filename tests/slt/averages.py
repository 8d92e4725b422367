"""Answers that differ from the corpus' because a column of ours has one type, as PostgreSQL's has.

The average of whole numbers is a DECIMAL, and so is each COALESCE, NULLIF or CASE that has it in
one of its parts, whichever it takes: 63 / COALESCE(2, avg(x)) is 31.5. SQLite, where the corpus is
from, divides the whole numbers that it has. An answer is this rule's if the statement gives what
is expected as soon as its averages are whole numbers; any other one is wrong.
"""

import re

_AVERAGE = re.compile(r"\bAVG\s*\(", re.IGNORECASE)


def with_whole_averages(text: str) -> str | None:
    """Return the statement with each average as an INTEGER; None where it has none.

    The texts of the corpus that have averages have no strings with parentheses.
    """
    matches = list(_AVERAGE.finditer(text))
    for match in reversed(matches):  # an inner one before that around it
        end = _closing(text, match.end())
        average = text[match.start() : end]
        text = f"{text[: match.start()]}CAST({average} AS INTEGER){text[end:]}"
    return text if matches else None


def _closing(text: str, place: int) -> int:
    """Return the place behind the parenthesis that closes the one which ends before `place`."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        place += 1
    return place
