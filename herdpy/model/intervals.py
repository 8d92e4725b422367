"""INTERVAL: its parts, and their text as PostgreSQL reads and writes it. Pure.

An interval is (months, days, microseconds), three numbers with signs of their own: a month has as
many days as the date it is added to says, a day as many hours as its zone. In comparisons, and as
Python's timedelta, which knows neither, a month is 30 days and a day 24 hours. No column has the
type; DuckDB computes with its own (sql/duckdb_text.py).
"""

import datetime
import re

from herdpy.model.types import DAY_US

Interval = tuple[int, int, int]

_MONTH_DAYS = 30
_PARTS_MAX = 2**31
_MICROSECONDS_MAX = 2**62

_PART = re.compile(
    r"""\s*(?<![^\s](?=[+-]))(?:
    (?P<sign>[+-]?)(?P<hour>\d{1,9}):(?P<minute>[0-5]?\d)
        (?::(?P<second>[0-5]?\d)(?:\.(?P<fraction>\d{1,6}))?)?(?![\w.:])
    | (?P<number>[+-]?\d{1,18}(?:\.\d{1,6})?)(?![\d.:])(?:\s*(?P<unit>(?!ago)[a-z]+)(?![a-z.:]))?
    )\s*""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_AGO = re.compile(r"\s+ago\s*\Z", re.ASCII | re.IGNORECASE)
# P1Y2M3W4DT5H6M7.8S
_ISO = re.compile(
    r"\s*P(?=[-+T\d])" + "".join(rf"(?:([-+]?\d{{1,18}}){unit})?" for unit in "YMWD")
    + r"(?:T(?=[-+\d])(?:([-+]?\d{1,18})H)?(?:([-+]?\d{1,18})M)?"
    r"(?:([-+]?\d{1,18})(?:\.(\d{1,6}))?S)?)?\s*",
    re.ASCII,
)  # fmt: skip
# Unit: what it counts, how many of them it is, and its name, as it may stand but once.
_UNITS: dict[str, tuple[int, int, str]] = {
    word: (part, size, words.split()[0])
    for part, size, words in (
        (0, 12, "year years yr yrs y"), (0, 1, "month months mon mons"),
        (1, 7, "week weeks w"), (1, 1, "day days d"),
        (2, 3_600_000_000, "hour hours hr hrs h"), (2, 60_000_000, "minute minutes min mins m"),
        (2, 1_000_000, "second seconds sec secs s"),
        (2, 1_000, "millisecond milliseconds msec msecs ms"),
        (2, 1, "microsecond microseconds usec usecs us"),
    )
    for word in words.split()
}  # fmt: skip
_SECONDS = {"second", "millisecond", "microsecond"}  # what a fraction of seconds stands for


def read_interval(text: str) -> Interval | None:
    """Return the interval of "1 year 2 days 03:04:05" or "P1Y2DT3H4M5S", None when it is none.

    A number alone counts seconds, before a clock days; "ago" at the end turns all signs.
    """
    iso = _ISO.fullmatch(text)
    found = _read_words(text) if iso is None else _iso_parts(iso)
    if found is None or max(map(abs, found[:2])) >= _PARTS_MAX:
        return None
    return found if abs(found[2]) < _MICROSECONDS_MAX else None


def _iso_parts(match: re.Match[str]) -> Interval:
    years, months, weeks, days, hours, minutes, seconds = (int(match[n] or 0) for n in range(1, 8))
    rest = int((match[8] or "").ljust(6, "0"))
    clock = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    clock += -rest if (match[7] or "").startswith("-") else rest
    return years * 12 + months, weeks * 7 + days, clock


def _read_words(text: str) -> Interval | None:
    parts = [0, 0, 0]
    seen: set[str] = set()
    ago = _AGO.search(text)
    end, place = ago.start() if ago else len(text), 0
    while place < end:
        match = _PART.match(text, place, end)
        if match is None:
            return None
        place = match.end()
        if match["hour"]:
            names = {"hour", "minute", *_SECONDS}
            seconds = (int(match["hour"]) * 60 + int(match["minute"])) * 60
            seconds += int(match["second"] or 0)
            clock = seconds * 1_000_000 + int((match["fraction"] or "").ljust(6, "0"))
            parts[2] += -clock if match["sign"] == "-" else clock
        else:
            default = "second" if place == end else "day"
            found = _UNITS.get((match["unit"] or default).lower())
            if found is None or not (match["unit"] or place == end or ":" in text[place:end]):
                return None
            part, size, name = found
            if not match["unit"] and ago:
                return None
            names = _SECONDS if name == "second" and "." in match["number"] else {name}
            for index, amount in enumerate(_amounts(match["number"], part, size)):
                parts[index] += amount
        if seen & names:
            return None
        seen |= names
    if not seen:
        return None
    months, days, microseconds = (-part for part in parts) if ago else parts
    return months, days, microseconds


def _amounts(number: str, part: int, size: int) -> Interval:
    """Return what a number of units adds; a fraction of months goes on in days, of days in time."""
    whole, _, digits = number.partition(".")
    sign = -1 if whole.startswith("-") else 1
    amounts = [0, 0, 0]
    amounts[part] = int(whole) * size
    count, unit = int(digits or 0) * size, 10 ** len(digits)
    if part == 0 and size > 1:  # of years: to whole months
        count, unit = _rounded(count, unit), 1
    for index, smaller in ((0, _MONTH_DAYS), (1, DAY_US)):
        if index >= part:
            amounts[index] += sign * (count // unit)
            count = count % unit * smaller
    amounts[2] += sign * _rounded(count, unit)
    return amounts[0], amounts[1], amounts[2]


def _rounded(count: int, unit: int) -> int:
    return round(count / unit)


def interval_text(interval: Interval) -> str:
    """Return the text of an interval: 1 year 2 mons -3 days +04:05:06.7."""
    months, days, microseconds = interval
    years, rest = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    words: list[str] = []
    is_before = False
    for value, unit in ((sign * years, "year"), (sign * rest, "mon"), (days, "day")):
        if value:
            plus = "+" if is_before and value > 0 else ""
            words.append(f"{plus}{value} {unit}{'' if value == 1 else 's'}")
            is_before = value < 0
    if microseconds or not words:
        seconds, fraction = divmod(abs(microseconds), 1_000_000)
        mark = "-" if microseconds < 0 else "+" if is_before else ""
        clock = f"{mark}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        words.append(clock + (f".{fraction:06}".rstrip("0") if fraction else ""))
    return " ".join(words)


def of_timedelta(value: datetime.timedelta) -> Interval:
    """Return its days as days, the rest as time: as psycopg sends one."""
    return 0, value.days, value.seconds * 1_000_000 + value.microseconds
