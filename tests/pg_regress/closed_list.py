"""What of the closed list of deviations (tests/pg_oracle/deviations.py) statements of scripts meet.

The list says what differs by design; of generated expressions it also tells how that is seen. A
statement of a script is no expression whose parts are known: here its text and both answers tell.
Each rule here is named by how its text on the list begins; what is not on the list has none.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from herdpy.model.intervals import read_interval
from tests.pg_oracle.answers import Answer, Cell, Difference, is_same_value
from tests.pg_oracle.deviations import DEVIATIONS
from tests.pg_oracle.expressions import Node
from tests.pg_oracle.values import K
from tests.pg_regress.comparison import Reply, span_us
from tests.pg_regress.words import Words

FAILED_TRANSACTION = "A failed statement is undone alone"
_MOMENT = re.compile(
    r"invalid input syntax for type (date|timestamp)|(date|timestamp).* out of range"
)
_NO_DECIMAL = re.compile(r'for type (numeric|decimal\(.*\)): "\s*(nan|[+-]?inf(inity)?)\s*"', re.I)
_WIDE = re.compile(
    r"needs more than \d+ digits|^numeric\(.*expected a precision|DECIMAL.*out of range"
)
_YEARS_MONTHS = re.compile(r'type interval: "(?!P)[^"]*?(\d-\d|decade|centur|millenni)')
_OF_DOUBLES = re.compile(r"\^|\b(sqrt|exp|ln|log|log10|power|pow|stddev\w*|var\w*)\s*\(", re.I)
_BRANCHES = re.compile(r"\b(case|coalesce)\b", re.I)
_NEAR = 1e-6
"""Of what is computed in DOUBLE, from operands that were rounded to it."""


class Compared(NamedTuple):
    """A statement and both answers."""

    text: str
    words: Words
    ours: Reply
    theirs: Reply


def rule_of(compared: Compared) -> str | None:
    """Return how the rule begins that says why both answers differ; None: there is none."""
    found = next((rule for rule, is_met in RULES.items() if is_met(compared)), None)
    return found or _rule_of_columns(compared)


def _is_moment(compared: Compared) -> bool:
    ours = compared.ours
    return ours.sqlstate in ("22007", "22008") and bool(_MOMENT.search(ours.answer.message))


def _is_decimal(compared: Compared) -> bool:
    ours, theirs = compared.ours, compared.theirs
    message = ours.answer.message
    if ours.sqlstate == "22P02" and _NO_DECIMAL.search(message):
        return True
    is_wide = ours.sqlstate in ("22003", "22023") and bool(_WIDE.search(message))
    return is_wide and theirs.sqlstate is None


def _is_of_doubles(compared: Compared) -> bool:
    ours, theirs = compared.ours, compared.theirs
    if not _OF_DOUBLES.search(compared.text) or theirs.sqlstate is not None:
        return False
    if ours.sqlstate is not None:
        return ours.sqlstate == "22003" and "flow" in ours.answer.message
    columns = [*_differing(compared)]
    are_doubles = all(kinds[:2] == (K.DOUBLE, K.DECIMAL) for kinds in columns)
    return are_doubles and any(all(map(_is_near, left, right)) for _, _, left, right in columns)


def _is_near(ours: Cell, theirs: Cell) -> bool:
    if ours is None or theirs is None:
        return ours == theirs
    right = float(theirs)
    return right == 0 or abs(float(ours) - right) <= abs(right) * _NEAR


def _is_overflow(compared: Compared) -> bool:
    ours, theirs = compared.ours, compared.theirs
    if ours.sqlstate == "22012":
        return theirs.sqlstate is None and "nan" in compared.text.lower()
    is_infinite = any("Infinity" in str(cell) for row in ours.answer.rows for cell in row)
    return theirs.sqlstate == "22003" and K.DOUBLE in ours.answer.kinds and is_infinite


def _is_interval(compared: Compared) -> bool:
    """An interval of months as a timedelta; or one that is longer than a timedelta may be."""
    ours = compared.ours
    if ours.sqlstate is not None:
        return ours.sqlstate == "22008" and "292,000 years" in ours.answer.message
    columns = [*_differing(compared)]
    return bool(columns) and all(
        (mine, yours) == (K.INTERVAL, K.INTERVAL) and all(map(_is_span, left, right))
        for mine, yours, left, right in columns
    )


def _is_span(ours: Cell, theirs: Cell) -> bool:
    mine, yours = (read_interval(cell or "") for cell in (ours, theirs))
    if mine is None or yours is None:
        return ours is theirs
    return span_us(mine) == span_us(yours)


def _is_constant_unneeded(compared: Compared) -> bool:
    is_raised = (compared.theirs.sqlstate or "").startswith("22")
    is_answered = compared.ours.sqlstate is None and bool(compared.ours.names)
    return is_raised and is_answered and bool(_BRANCHES.search(compared.text))


RULES: dict[str, Callable[[Compared], bool]] = {
    "Text too long for varchar(n)": lambda each: (
        each.ours.sqlstate == "22001" and each.theirs.sqlstate is None
    ),
    "Dates and timestamps are of the years": _is_moment,
    "DECIMAL has at most 38 digits": _is_decimal,
    "sqrt, exp, ln, log, power": _is_of_doubles,
    "DOUBLE arithmetic that overflows": _is_overflow,
    "An interval is no type of a column": _is_interval,
    "A text that is computed reads as an interval": lambda each: (
        each.ours.sqlstate == "22007" and bool(_YEARS_MONTHS.search(each.ours.answer.message))
    ),
    "SET TRANSACTION outside of a transaction": lambda each: (
        each.ours.sqlstate == "25P01" and each.theirs.sqlstate is None
    ),
    "Whether an error of a part is raised": _is_constant_unneeded,
}


# --- by the list's own tests, a column at a time ---


def _differing(compared: Compared) -> Iterator[tuple[object, object, list[Cell], list[Cell]]]:
    """Yield the columns that differ: both kinds, and both values of each row."""
    ours, theirs = compared.ours.answer, compared.theirs.answer
    if len(ours.rows) != len(theirs.rows) or len(ours.kinds) != len(theirs.kinds):
        yield None, None, [], []
        return
    for place, kinds in enumerate(zip(ours.kinds, theirs.kinds, strict=True)):
        left, right = ([row[place] for row in each.rows] for each in (ours, theirs))
        if not all(is_same_value(kinds[1], *pair) for pair in zip(left, right, strict=True)):
            yield *kinds, left, right


def _rule_of_columns(compared: Compared) -> str | None:
    """Ask the list of each column, as if it were each operation that the statement names."""
    ours, theirs = compared.ours.answer, compared.theirs.answer
    if theirs.sqlstate is not None or ours.sqlstate not in (None, "22003"):
        return None
    labels = [f"{name}(" for name in sorted(compared.words.functions)]
    labels += [f" {mark} " for mark in "+-*/%" if mark in compared.text] or [""]
    found: str | None = None
    places = range(len(ours.kinds)) if ours.kinds and len(ours.kinds) == len(theirs.kinds) else (0,)
    for place in places:
        left, right = _column(ours, place), _column(theirs, place)
        if ours.kinds and left.rows == right.rows:
            continue
        differences = (
            Difference(label, Node(label, right.kinds[0] if right.kinds else K.UNKNOWN, ""),
                       compared.text, left, right)
            for label in labels
        )  # fmt: skip
        found = next(
            (
                each.rule
                for difference in differences
                for each in DEVIATIONS
                if each.matches(difference)
            ),
            None,
        )
        if found is None:
            return None
    return found


def _column(answer: Answer, place: int) -> Answer:
    return answer.columns(place) if answer.kinds and answer.sqlstate is None else answer
