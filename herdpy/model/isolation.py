"""Isolation: the levels of transactions that there are, under SQL's names."""

from enum import Enum

from herdpy.errors import NotSupportedError, ProgrammingError


class Isolation(Enum):
    """What a transaction sees of those that commit while it is open."""

    READ_COMMITTED = "read committed"
    """Each statement sees what was committed before it began."""
    REPEATABLE_READ = "repeatable read"
    """All statements see what was committed before the first of them; own changes besides."""


_LEVELS = {
    "read uncommitted": Isolation.READ_COMMITTED,  # as in PostgreSQL, which shows no more
    "read committed": Isolation.READ_COMMITTED,
    "repeatable read": Isolation.REPEATABLE_READ,
}


def isolation_of(text: str, what: str, position: int | None = None) -> Isolation:
    """Return the level of a name, in words of any case; 0A000 for SERIALIZABLE, else 22023.

    `what` names the setting in messages.
    """
    name = " ".join(text.lower().split())
    if name == "serializable":
        raise NotSupportedError(
            "isolation level serializable is not supported",
            position=position,
            hint="One snapshot for all of a transaction is REPEATABLE READ; two transactions that "
            "each read what the other one writes are not noticed there.",
        )
    level = _LEVELS.get(name)
    if level is None:
        raise ProgrammingError(
            f"{what}: expected 'read committed' or 'repeatable read', found {text!r:.60}",
            sqlstate="22023",
        )
    return level
