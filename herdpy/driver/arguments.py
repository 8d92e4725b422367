"""What a program passes to the driver's calls, checked before a session of any kind sees it.

Else each transport would have its own opinion: a session of this process may not mind, and a
server ends a connection that sends what is no message. Any thread.
"""

from collections.abc import Iterable

from herdpy.errors import ProgrammingError
from herdpy.model.python_values import unicode_text

_INTEGER_MAX = 2**63 - 1


def checked_text(what: str, value: object) -> str:
    """Return text as it is; 22023 for none, 22021 for what has no UTF-8."""
    if not isinstance(value, str):
        raise ProgrammingError(
            f"{what}: expected text, found {type(value).__name__}", sqlstate="22023"
        )
    return value if value.isascii() else unicode_text(value, what)


def checked_texts(what: str, values: object) -> list[str]:
    """Return texts as a list; a text alone is no list of them (22023)."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        found = repr(values) if isinstance(values, str) else type(values).__name__
        raise ProgrammingError(f"{what}: expected a list, found {found:.100}", sqlstate="22023")
    return [checked_text(what, value) for value in values]


def checked_count(what: str, value: object) -> int:
    """Return a whole number of 1 or more, of at most 64 bits; 22023 for what is none."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _INTEGER_MAX:
        return value
    raise ProgrammingError(
        f"{what}: expected a whole number of 1 or more, found {value!r:.40}", sqlstate="22023"
    )


def checked_seconds(what: str, value: object) -> float:
    """Return seconds; 22023 for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProgrammingError(
            f"{what}: expected seconds, found {type(value).__name__}", sqlstate="22023"
        )
    try:
        return float(value)
    except OverflowError:
        return float("inf")
