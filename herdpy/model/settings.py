"""Session settings under PostgreSQL's names: what SET accepts, what SHOW prints."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from herdpy.errors import DataError, NotSupportedError, ProgrammingError
from herdpy.limits import application_name_bytes_max, timeout_seconds_max
from herdpy.model.durability import Durability
from herdpy.model.isolation import Isolation, isolation_of
from herdpy.model.printable import masked

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d)?\s*")
_DURABILITY_WORDS = {
    **dict.fromkeys(("on", "true", "local"), Durability.SYNC),
    "os": Durability.OS,
    **dict.fromkeys(("off", "false"), Durability.NONE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one session. Times in seconds; 0 switches a limit off."""

    durability: Durability = Durability.SYNC
    lock_timeout_s: float = 0.0
    statement_timeout_s: float = 0.0
    idle_in_transaction_timeout_s: float = 0.0
    application_name: str = ""
    isolation: Isolation = Isolation.READ_COMMITTED
    """Of transactions that name no level."""
    is_read_only: bool = False
    """Of transactions that do not say which they are."""

    def __post_init__(self) -> None:
        for name in ("lock_timeout_s", "statement_timeout_s", "idle_in_transaction_timeout_s"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= timeout_seconds_max:
                raise ProgrammingError(
                    f"{name}: expected 0 to {timeout_seconds_max:,} seconds, found {value!r:.40}",
                    sqlstate="22023",
                )
        # Superusers see it in sysclients. As PostgreSQL does; the same number of bytes or fewer.
        object.__setattr__(self, "application_name", masked(self.application_name))
        byte_count = len(self.application_name.encode(errors="replace"))
        if byte_count > application_name_bytes_max:
            raise ProgrammingError(
                f"application_name: expected at most {application_name_bytes_max} bytes, found "
                f"{byte_count:,}",
                sqlstate="22023",
            )


def seconds(name: str, text: str) -> float:
    """Read a PostgreSQL duration: plain numbers are milliseconds, units us ms s min h d."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise DataError(
            f"{name}: expected a duration such as 500, '500ms' or '5s', found {text!r}",
            sqlstate="22023",
        )
    return float(match[1]) * _UNITS_S[match[2] or "ms"]


def show_seconds(value: float) -> str:
    """Return a duration in seconds as seconds() reads it."""
    if value == 0:
        return "0"
    if value == int(value):
        return f"{int(value)}s"
    return f"{value * 1000:.6f}".rstrip("0").rstrip(".") + "ms"


def _read_durability(text: str) -> Durability:
    durability = _DURABILITY_WORDS.get(text.lower())
    if durability is None:
        raise DataError(
            f"synchronous_commit: expected on, os or off, found {text!r}", sqlstate="22023"
        )
    return durability


@dataclass(frozen=True, slots=True)
class _Option:
    show: Callable[[Settings], str]
    change: Callable[[Settings, str], Settings] | None = None
    """None: the option can only have the value it has."""
    field: str | None = None
    """What holds it in Settings; None: it is always the same."""


def _duration(field: str, name: str) -> _Option:
    return _Option(
        lambda settings: show_seconds(getattr(settings, field)),
        lambda settings, text: replace(settings, **{field: seconds(name, text)}),
        field,
    )


def _fixed(value: str, change: Callable[[Settings, str], Settings] | None = None) -> _Option:
    return _Option(lambda _: value, change)


_UTC_NAMES = frozenset(
    ("utc", "gmt", "z", "zulu", "uct", "etc/utc", "etc/gmt", "0", "+0", "-0", "+00", "+00:00")
)


def _check_time_zone(settings: Settings, text: str) -> Settings:
    if text.lower() not in _UTC_NAMES:
        raise NotSupportedError(
            f"timezone is always 'UTC'; found {text!r}",
            hint="Give a zone with each value, as in '2024-01-31 12:00+02', or convert the results"
            " in the program: value.astimezone(zone).",
        )
    return settings


def _check_search_path(settings: Settings, text: str) -> Settings:
    names = {name.strip().strip('"').lower() for name in text.split(",")}
    if not names <= {"", "$user", "public", "pg_catalog"}:
        raise NotSupportedError(
            f"search_path is always 'public'; found {text!r:.60}",
            hint="There is no schema but public. Tablespaces keep tables apart.",
        )
    return settings


_TRUTHS = {
    **dict.fromkeys(("on", "true", "yes", "1"), True),
    **dict.fromkeys(("off", "false", "no", "0"), False),
}


def truth_of(text: str, what: str) -> bool:
    """Return what the words of a switch mean, in any case; 22023. `what` names the setting."""
    found = _TRUTHS.get(text.lower())
    if found is None:
        raise ProgrammingError(f"{what}: expected on or off, found {text!r:.60}", sqlstate="22023")
    return found


def show_truth(value: bool) -> str:
    """Return a switch as truth_of() reads it."""
    return "on" if value else "off"


def _switched_off(name: str) -> Callable[[Settings, str], Settings]:
    """Return what takes every word for off."""

    def change(settings: Settings, text: str) -> Settings:
        if truth_of(text, name):
            raise NotSupportedError(f"{name} is always 'off'; found {text!r:.60}")
        return settings

    return change


TRANSACTION_ISOLATION = "transaction_isolation"
TRANSACTION_READ_ONLY = "transaction_read_only"
OPTIONS: dict[str, _Option] = {
    "application_name": _Option(
        lambda settings: settings.application_name,
        lambda settings, text: replace(settings, application_name=text),
        "application_name",
    ),
    "check_function_bodies": _fixed("off", _switched_off("check_function_bodies")),
    "client_encoding": _fixed("UTF8"),
    "client_min_messages": _fixed("warning"),
    "default_table_access_method": _fixed("heap"),
    "default_tablespace": _fixed(""),
    "default_transaction_isolation": _Option(
        lambda settings: settings.isolation.value,
        lambda settings, text: replace(
            settings, isolation=isolation_of(text, "default_transaction_isolation")
        ),
        "isolation",
    ),
    "default_transaction_read_only": _Option(
        lambda settings: show_truth(settings.is_read_only),
        lambda settings, text: replace(
            settings, is_read_only=truth_of(text, "default_transaction_read_only")
        ),
        "is_read_only",
    ),
    "idle_in_transaction_session_timeout": _duration(
        "idle_in_transaction_timeout_s", "idle_in_transaction_session_timeout"
    ),
    "lock_timeout": _duration("lock_timeout_s", "lock_timeout"),
    "row_security": _fixed("off", _switched_off("row_security")),
    "search_path": _fixed("public", _check_search_path),
    "server_encoding": _fixed("UTF8"),
    "standard_conforming_strings": _fixed("on"),
    "statement_timeout": _duration("statement_timeout_s", "statement_timeout"),
    "synchronous_commit": _Option(
        lambda settings: {"sync": "on", "os": "os", "none": "off"}[settings.durability.value],
        lambda settings, text: replace(settings, durability=_read_durability(text)),
        "durability",
    ),
    "timezone": _fixed("UTC", _check_time_zone),
    "transaction_timeout": _fixed("0"),
    "xmloption": _fixed("content"),
    # Of a transaction, which its session shows and changes; here they are those of the next one.
    TRANSACTION_ISOLATION: _Option(lambda settings: settings.isolation.value),
    TRANSACTION_READ_ONLY: _Option(lambda settings: show_truth(settings.is_read_only)),
}


def change_option(settings: Settings, defaults: Settings, name: str, value: str | None) -> Settings:
    """Return the settings after SET name = value (None: DEFAULT)."""
    option = _find(name)
    if value is None:
        field = option.field
        return settings if field is None else replace(settings, **{field: getattr(defaults, field)})
    if option.change is None:
        if value.lower() != option.show(settings).lower():
            raise NotSupportedError(f"{name} is always {option.show(settings)!r}; found {value!r}")
        return settings
    return option.change(settings, value)


def show_option(settings: Settings, name: str) -> str:
    return _find(name).show(settings)


def _find(name: str) -> _Option:
    option = OPTIONS.get(name)
    if option is None:
        raise ProgrammingError(
            f'unrecognized configuration parameter "{name}"',
            sqlstate="42704",
            hint=f"Known: {', '.join(OPTIONS)}.",
        )
    return option
