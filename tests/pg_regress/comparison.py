"""How herdpy's answer to a statement of a script compares with PostgreSQL's."""

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import NamedTuple

from herdpy.model.intervals import Interval, read_interval
from herdpy.model.types import DAY_US, Kind
from tests.pg_oracle.answers import Answer, Cell, Row, is_same_value
from tests.pg_oracle.values import K
from tests.pg_regress.words import Word, Words

_LACKS = ("0A000", "42601", "42704", "42883")
"""SQLSTATEs of what herdpy does not have, cannot read, and of types and functions unknown to it."""
_CATALOG = ('table "pg_', 'table "information_schema')
"""How the message of a system table begins that herdpy does not have."""
_NUMBERS = (K.INTEGER, K.BIGINT, K.DECIMAL)


class Verdict(Enum):
    EQUAL = "equal"
    EQUAL_ERROR = "equal errors"
    """Both raise the same SQLSTATE."""
    NAMES = "column names"
    """Equal but for the names of columns."""
    DOCUMENTED = "by design"
    """Different as the closed list says."""
    REFUSED = "refused"
    """PostgreSQL answers; herdpy says that it has no such thing."""
    REFUSED_ERROR = "refused too"
    """PostgreSQL raises an error; herdpy says that it has no such thing."""
    CONSEQUENCE = "consequences"
    """Different since an earlier statement was refused or different."""
    DIFFERENT = "different"
    INTERNAL = "internal"
    """XX000, or an exception that is no herdpy.Error."""


class Reply(NamedTuple):
    """An answer with the names of its columns."""

    answer: Answer
    names: tuple[str, ...] = ()

    @property
    def sqlstate(self) -> str | None:
        return self.answer.sqlstate

    def __str__(self) -> str:
        if self.answer.sqlstate is not None or not self.names:
            return str(self.answer)
        rows = (
            " | ".join("NULL" if cell is None else cell for cell in row) for row in self.answer.rows
        )
        return "\n".join((" | ".join(self.names), *rows))


def compare(words: Words, ours: Reply, theirs: Reply) -> Verdict:
    """Compare two answers by themselves, whatever was before."""
    mine, yours = ours.sqlstate, theirs.sqlstate
    if mine is not None and mine.startswith("XX"):
        return Verdict.INTERNAL
    if mine is not None and mine == yours:
        return Verdict.EQUAL_ERROR
    if mine is not None and yours is not None:
        is_lack = mine in _LACKS or ours.answer.message.startswith(_CATALOG)
        return Verdict.REFUSED_ERROR if is_lack else Verdict.DIFFERENT
    if mine is not None:
        return Verdict.REFUSED if mine[:2] in ("0A", "42", "54") else Verdict.DIFFERENT
    if yours is not None or not has_same_rows(words, ours, theirs):
        return Verdict.DIFFERENT
    return Verdict.EQUAL if ours.names == theirs.names else Verdict.NAMES


def has_same_rows(words: Words, ours: Reply, theirs: Reply) -> bool:
    """Tell whether rows and, as far as ORDER BY gives one, their order are the same."""
    mine, yours = ours.answer, theirs.answer
    if len(ours.names) != len(theirs.names):
        return False
    if not theirs.names:
        return mine.row_count in (-1, yours.row_count)  # -1: of DDL
    if len(mine.rows) != len(yours.rows):
        return False
    kinds = tuple(map(_common_kind, mine.kinds, yours.kinds))
    if _are_same(kinds, mine.rows, yours.rows):
        return True
    places = _key_columns(words, theirs.names)
    if places is None or not _are_same(kinds, *(_sorted(kinds, x.rows) for x in (mine, yours))):
        return False
    columns = (tuple(tuple(row[at] for at in places) for row in x.rows) for x in (mine, yours))
    return _are_same([kinds[at] for at in places], *columns)


def _key_columns(words: Words, names: Sequence[str]) -> list[int] | None:
    """Return the places of the columns that ORDER BY names; [] without one.

    None where a key is no column of the result: then nothing tells which rows have one key.
    """
    places: list[int] = []
    for key in words.order or ():
        place = _place(key, names)
        if place is None and key in words.outputs and len(words.outputs) == len(names):
            place = words.outputs.index(key)  # an expression that is shown, too
        if place is None:
            return None
        places.append(place)
    return places


def _place(key: tuple[Word, ...], names: Sequence[str]) -> int | None:
    if len(key) == 1 and key[0].kind == "number":
        return int(key[0].text) - 1
    is_column = len(key) == 1 or (len(key) == 3 and key[1].text == ".")
    if not is_column or names.count(key[-1].name) != 1:
        return None
    return names.index(key[-1].name)


def _common_kind(ours: Kind | None, theirs: Kind | None) -> Kind | None:
    """Return the kind by which values are compared: numbers by what they count."""
    if ours is theirs is K.INTERVAL:
        return K.INTERVAL
    if K.DOUBLE in (ours, theirs):
        return K.DOUBLE
    return K.DECIMAL if theirs in _NUMBERS else theirs


def _are_same(kinds: Sequence[Kind | None], ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    return all(
        is_same_value(kind, mine, yours) or (kind is K.INTERVAL and is_same_span(mine, yours))
        for left, right in zip(ours, theirs, strict=True)
        for kind, mine, yours in zip(kinds, left, right, strict=True)
    )


def is_same_span(ours: Cell, theirs: Cell) -> bool:
    """Tell whether an interval without months is the same, as a timedelta holds it."""
    mine, yours = (read_interval(cell or "") for cell in (ours, theirs))
    if mine is None or yours is None or yours[0]:
        return False
    return span_us(mine) == span_us(yours)


def span_us(interval: Interval) -> int:
    """Return how many microseconds an interval has whose months have 30 days."""
    months, days, microseconds = interval
    return (months * 30 + days) * DAY_US + microseconds


def _sorted(kinds: Sequence[Kind | None], rows: Sequence[Row]) -> list[Row]:
    """Return the rows in an order that is the same for rows that are."""
    return sorted(
        rows, key=lambda row: [(x is None, _one_form(kinds[at], x)) for at, x in enumerate(row)]
    )


def _one_form(kind: Kind | None, cell: Cell) -> str:
    if cell is None:
        return ""
    try:
        if kind is K.DECIMAL:
            return str(Decimal(cell).normalize())
        if kind is K.DOUBLE and math.isfinite(float(cell)):
            return f"{float(cell):.9e}"
    except (InvalidOperation, ValueError):
        pass
    return cell
