"""Settings of roles: the defaults that a user's sessions begin with, and the maxima they have.

A default is what SET would have set; SET may change it. A maximum is what no SET may exceed
(42501), or how much of something all sessions of the user may have together (53xxx). Both are
whole numbers: microseconds, bytes or a count. Superusers have no maxima.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from herdpy.errors import DataError, Error, ProgrammingError, did_you_mean
from herdpy.limits import role_count_max, timeout_seconds_max
from herdpy.model.settings import Settings, seconds, show_seconds

TIMEOUTS: Final[Mapping[str, str]] = {
    "statement_timeout": "statement_timeout_s",
    "lock_timeout": "lock_timeout_s",
    "idle_in_transaction_session_timeout": "idle_in_transaction_timeout_s",
}
"""Settings of a session that a role may have a default and a maximum of, and their fields."""
CONNECTIONS: Final = "connections"
RUNNING_STATEMENTS: Final = "running_statements"
OPEN_RESULTS: Final = "open_results"
LEASES: Final = "leases"
STAGINGS: Final = "stagings"
COUNTS: Final = (CONNECTIONS, RUNNING_STATEMENTS, OPEN_RESULTS, LEASES, STAGINGS)
"""What a role may have a maximum of, over all sessions of the user."""
QUERY_MEMORY: Final = "query_memory"
TEMP_FILE_LIMIT: Final = "temp_file_limit"
SIZES: Final = (QUERY_MEMORY, TEMP_FILE_LIMIT)
"""What DuckDB may take for all queries of the user: memory, and disk to spill to."""
ROLE_SETTINGS: Final = (*TIMEOUTS, *COUNTS, *SIZES)
_US = 1_000_000
_BYTES: Final = {"kB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SIZE: Final = re.compile(r"\s*(\d{1,12})\s*(kB|MB|GB|TB)?\s*")
_SIZE_MAX: Final = 2**46
_QUERY_MEMORY_MIN: Final = 16 * 1024**2

Maxima = Mapping[str, int]
"""By the names of ROLE_SETTINGS; there is none of what is not in it."""
NO_MAXIMA: Final[Maxima] = {}


def read_default(name: str, text: str) -> int:
    """Return the default that a text means; 42704, 0A000 of what has none, 22023."""
    if name not in TIMEOUTS:
        check_known(name)
        raise ProgrammingError(
            f"{name} has a maximum, and no default",
            sqlstate="42704",
            hint=f"ALTER ROLE … SET MAXIMUM {name} = …",
        )
    value_s = seconds(name, text)
    replace(Settings(), **{TIMEOUTS[name]: value_s})  # checks it
    return round(value_s * _US)


def read_maximum(name: str, text: str) -> int:
    """Return the maximum that a text means; 42704, 22023."""
    check_known(name)
    if name in TIMEOUTS:
        value_s = seconds(name, text)
        if not 0 < value_s <= timeout_seconds_max:
            raise DataError(
                f"{name}: expected a maximum above 0 and up to {timeout_seconds_max:,} s, "
                f"found {text!r}",
                sqlstate="22023",
                hint=f"RESET MAXIMUM {name} takes the maximum away.",
            )
        return max(1, round(value_s * _US))
    if name in SIZES:
        return _read_size(name, text)
    low = 1 if name == RUNNING_STATEMENTS else 0
    is_number = text.isascii() and text.isdecimal()
    if not is_number or not low <= int(text[:12]) <= role_count_max:
        raise DataError(
            f"{name}: expected a whole number of {low} to {role_count_max:,}, found {text[:40]!r}",
            sqlstate="22023",
        )
    return int(text)


def _read_size(name: str, text: str) -> int:
    """Read a size as PostgreSQL does: plain numbers are kB, units kB MB GB TB."""
    match = _SIZE.fullmatch(text)
    low = _QUERY_MEMORY_MIN if name == QUERY_MEMORY else 0
    value = -1 if match is None else int(match[1]) * _BYTES[match[2] or "kB"]
    if not low <= value <= _SIZE_MAX:
        raise DataError(
            f"{name}: expected a size of {low // _BYTES['kB']}kB to {_SIZE_MAX // _BYTES['TB']}TB, "
            f"such as '64MB', found {text[:40]!r}",
            sqlstate="22023",
        )
    return value


def check_known(name: str) -> None:
    """Raise 42704 for a name that is no setting of roles."""
    if name not in ROLE_SETTINGS:
        raise ProgrammingError(
            f'roles have no setting "{name}"',
            sqlstate="42704",
            hint=did_you_mean(name, ROLE_SETTINGS) or f"Known: {', '.join(ROLE_SETTINGS)}.",
        )


def show_value(name: str, value: int) -> str:
    """Return a default or maximum as ALTER ROLE … SET takes it."""
    if name in TIMEOUTS:
        return show_seconds(value / _US)
    if name not in SIZES or value == 0:
        return str(value)
    unit = next(unit for unit in ("TB", "GB", "MB", "kB") if value % _BYTES[unit] == 0)
    return f"{value // _BYTES[unit]}{unit}"


def with_defaults(settings: Settings, defaults: Mapping[str, int]) -> Settings:
    """Return the settings with a role's defaults in them."""
    found = {TIMEOUTS[name]: value / _US for name, value in defaults.items()}
    return replace(settings, **found) if found else settings


def capped(settings: Settings, maxima: Maxima) -> Settings:
    """Return the settings with no time-out beyond its maximum."""
    found = {
        field: maxima[name] / _US
        for name, field in TIMEOUTS.items()
        if name in maxima and _is_beyond(getattr(settings, field), maxima[name])
    }
    return replace(settings, **found) if found else settings


def check_within(settings: Settings, maxima: Maxima) -> None:
    """Raise 42501 for a time-out beyond its maximum; 0, no limit, is beyond every one."""
    for name, field in TIMEOUTS.items():
        value_s = getattr(settings, field)
        if name in maxima and _is_beyond(value_s, maxima[name]):
            raise beyond_error(name, show_seconds(value_s), maxima[name])


def beyond_error(name: str, shown: str, maximum: int) -> Error:
    """Return the refusal of a value beyond the maximum of the user."""
    return ProgrammingError(
        f"permission denied to set {name} to {shown}: the user's maximum is "
        f"{show_value(name, maximum)}",
        sqlstate="42501",
        hint="Who administers the role may change it: ALTER ROLE … SET MAXIMUM.",
    )


def _is_beyond(value_s: float, maximum: int) -> bool:
    return value_s == 0 or value_s * _US > maximum
