"""The options of spark.read and df.write: read from text once, checked, unknown ones refused."""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import herdpy

OPERATIONS = ("append", "upsert", "update", "delete", "ignore")
_OF_CATALOGS = "provider"  # what CREATE TABLE … USING herdpy says, beside the options
_BATCH_ROWS = 65_536
_BATCH_ROWS_MAX = 1_000_000
_PARTITIONS_MAX = 10_000
_LEASE_S_MAX = 7 * 24 * 3600
_OF_FOLLOWERS = ("read", "max_staleness_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a job was told; None: not given. Picklable. The password is in no repr."""

    url: str = field(repr=False)  # it may have a password in it
    password: str | None = field(default=None, repr=False)
    table: str | None = None
    query: str | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    partition_count: int | None = None
    batch_rows: int = _BATCH_ROWS
    lease_s: float = 600.0
    snapshot: str | None = None
    pushdown: str | None = None  # the file of pushing.py
    releases: bool = False
    operation: str | None = None
    key_columns: tuple[str, ...] | None = None
    creates_table: bool = False
    rounds: bool = False
    job: str | None = None

    def connect(self, *, reads: bool = False) -> herdpy.Connection:
        """Return a new connection, in autocommit; the caller closes it.

        reads: it does nothing but read at a lease, so it may be one to a node that follows.
        """
        url = self.url if reads else of_leader(self.url)
        return herdpy.connect(url, autocommit=True, password=self.password)


def of_leader(url: str) -> str:
    """Return a URL without what lets reads go to nodes that follow: leases and jobs are a leader's.

    A URL that cannot be read is returned as it is: connect() says what is wrong with it.
    """
    head, mark, query = url.partition("?")
    kept = [each for each in query.split("&") if each.partition("=")[0] not in _OF_FOLLOWERS]
    return f"{head}?{'&'.join(kept)}" if mark and kept != [""] and kept else head


def wrong(message: str, hint: str | None = None, sqlstate: str = "22023") -> herdpy.Error:
    """Return (not raise) the error of what the program asked for."""
    return herdpy.ProgrammingError(message, sqlstate=sqlstate, hint=hint)


def near(word: str, known: tuple[str, ...] | list[str]) -> str | None:
    """Return a hint that names what was probably meant; None: nothing is near."""
    by_folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return f"Did you mean {by_folded[found[0]]}?" if found else None


def known_name(given: str, known: Collection[str]) -> str | None:
    """Return the column that a name means in Spark, which does not mind case; None: none, or two.

    The one with just this name, or in lower case, comes before others.
    """
    for name in (given, given.lower()):
        if name in known:
            return name
    found = [name for name in known if name.lower() == given.lower()]
    return found[0] if len(found) == 1 else None


def split_names(text: str) -> tuple[str, ...]:
    """Read names between commas; "…" around one keeps commas, blanks and, doubled, quotes."""
    names: list[str] = []
    place, end = 0, len(text)
    while True:
        while place < end and text[place].isspace():
            place += 1
        if place < end and text[place] == '"':
            name, place = _quoted(text, place + 1)
            while place < end and text[place].isspace():
                place += 1
            if place < end and text[place] != ",":
                raise ValueError(f"a comma behind {name!r}")
        else:
            stop = text.find(",", place)
            stop = end if stop < 0 else stop
            name, place = text[place:stop].strip(), stop
        if not name:
            raise ValueError("a name")
        names.append(name)
        if place >= end:
            return tuple(names)
        place += 1


def _quoted(text: str, place: int) -> tuple[str, int]:
    parts: list[str] = []
    while (stop := text.find('"', place)) >= 0:
        parts.append(text[place:stop])
        if text[stop + 1 : stop + 2] != '"':
            return "".join(parts), stop + 1
        parts.append('"')
        place = stop + 2
    raise ValueError('a closing "')


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low:,} to {high:,}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds <= _LEASE_S_MAX:
        raise ValueError(f"1 to {_LEASE_S_MAX:,} seconds")
    return seconds


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _operation(text: str) -> str:
    if text.lower() not in OPERATIONS:
        raise ValueError(", ".join(OPERATIONS))
    return text.lower()


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("text")
    return text


def _url(text: str) -> str:
    """Take no directory: Spark's processes are many, and each would open it for itself."""
    if "://" not in text:
        raise ValueError("the URL of a server, herd://host:port/tablespace")
    return text


def _pushdown(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError("what herdpy.spark.with_pushdown(spark, url=…, table=…) sets by itself")
    return text


def _query(text: str) -> str:
    return _text(text.strip().removesuffix(";"))


_BOTH: dict[str, tuple[str, Callable[[str], Any]]] = {
    "url": ("url", _url),
    "password": ("password", str),
    "table": ("table", _text),
    "tablespace": ("tablespace", _text),
}
_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "query": ("query", _query),
    "columns": ("columns", split_names),
    "where": ("where", _text),
    "numPartitions": ("partition_count", _number(1, _PARTITIONS_MAX)),
    "fetchBatchRows": ("batch_rows", _number(1, _BATCH_ROWS_MAX)),
    "leaseSeconds": ("lease_s", _seconds),
    "snapshot": ("snapshot", _text),
    "pushdown": ("pushdown", _pushdown),
    "release": ("releases", _truth),
}
_WRITE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "operation": ("operation", _operation),
    "keyColumns": ("key_columns", split_names),
    "createTable": ("creates_table", _truth),
    "rounding": ("rounds", _truth),
    "jobId": ("job", _text),
}


def read_options(given: Mapping[str, str]) -> Options:
    """Return the options of spark.read; ProgrammingError (22023) for what they cannot be."""
    options = _options(given, _READ, _WRITE, "writing")
    if options.releases:
        return options
    if (options.table is None) == (options.query is None):
        raise wrong('expected one of the options "table" and "query"')
    if options.query is not None:
        for name in ("columns", "where", "numPartitions", "pushdown"):
            if getattr(options, _READ[name][0]) is not None:
                raise wrong(
                    f'option "{name}" goes with "table"', "Write it into the query instead."
                )
    return options


def write_options(given: Mapping[str, str]) -> Options:
    """Return the options of df.write; ProgrammingError (22023) for what they cannot be."""
    options = _options(given, _WRITE, _READ, "reading")
    if options.table is None:
        raise wrong('expected the option "table"')
    return options


def _options(
    given: Mapping[str, str],
    own: dict[str, tuple[str, Callable[[str], Any]]],
    others: dict[str, tuple[str, Callable[[str], Any]]],
    other_use: str,
) -> Options:
    known = {**_BOTH, **own}
    by_folded = {name.lower(): name for name in known}
    elsewhere = {name.lower(): name for name in others}
    if _OF_CATALOGS in given:
        raise wrong(
            "a table of Spark's catalog cannot be one of herdpy: Spark forgets its options",
            "CREATE TEMPORARY VIEW … USING herdpy OPTIONS (…) keeps them for the session.",
            "0A000",
        )
    values: dict[str, Any] = {}
    for key, text in given.items():
        name = by_folded.get(key.lower())
        if name is None and key.lower() in elsewhere:
            raise wrong(f'option "{elsewhere[key.lower()]}" is one of {other_use}')
        if name is None:
            hint = near(key, list(known)) or f"Known: {', '.join(known)}."
            if key.lower() == "path":
                hint = 'Name the table with option("table", …), and give load() and save() nothing.'
            raise wrong(f'unknown option "{key}"', hint)
        target, read = known[name]
        try:
            values[target] = read(text)
        except ValueError as error:
            shown = "…" if name in ("url", "password") else repr(text)
            raise wrong(f'option "{name}": expected {error}, found {shown}') from None
    if "url" not in values:
        raise wrong('expected the option "url"', 'As in "herd://localhost:7000/default".')
    tablespace = values.pop("tablespace", None)
    if tablespace is not None:
        values["url"] = _in_tablespace(values["url"], tablespace)
    return Options(**values)


def _in_tablespace(url: str, tablespace: str) -> str:
    """Return the URL with this path: leases, tasks and commits know a database by its URL."""
    parts = urlsplit(url)
    path = f"/{quote(tablespace, safe='')}"
    if parts.path not in ("", "/", "/default", path):
        named = unquote(parts.path[1:])
        raise wrong(
            f'option "tablespace": the URL names {named!r} already, found {tablespace!r}',
            "Name it once.",
        )
    return urlunsplit(parts._replace(path=path))
