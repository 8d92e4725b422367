"""What rows are said to take in memory against what tracemalloc sees, for every type (E4)."""

import datetime
import decimal
import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bookie.runtime.os_disk import OsDisk
from herdpy.config import Config
from herdpy.engine.session.session import Session
from herdpy.model.durability import Durability
from herdpy.model.types import Kind
from tests.fixtures.engines import Engine, engine, run

RNG = random.Random(7)
UTC = datetime.UTC
NEAR = 1.5

TYPES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "null": ("TEXT", lambda n: None),
    "boolean": ("BOOLEAN", lambda n: n % 2 == 0),
    "tiny": ("INTEGER", lambda n: n % 200),
    "integer": ("INTEGER", lambda n: RNG.randrange(2**20, 2**31)),
    "bigint": ("BIGINT", lambda n: RNG.randrange(2**40, 2**62)),
    "double": ("DOUBLE PRECISION", lambda n: RNG.random()),
    "decimal": (
        "NUMERIC(10, 2)",
        lambda n: decimal.Decimal(RNG.randrange(10**9, 10**10)).scaleb(-2),
    ),
    "long decimal": ("NUMERIC(38, 2)", lambda n: decimal.Decimal(RNG.randrange(10**33, 10**34))),
    "date": ("DATE", lambda n: datetime.date(1990, 1, 1) + datetime.timedelta(n)),
    "timestamp": (
        "TIMESTAMP",
        lambda n: datetime.datetime(2020, 1, 1) + datetime.timedelta(seconds=n),
    ),
    "timestamptz": (
        "TIMESTAMPTZ",
        lambda n: datetime.datetime(2020, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=n),
    ),
    "real": ("REAL", float),
    "smallint": ("SMALLINT", lambda n: n % 30_000),
    "letter": ("TEXT", lambda n: chr(97 + n % 26)),
    "text": ("TEXT", lambda n: f"{n:010}"),
    "varchar": ("VARCHAR(100)", lambda n: f"{n:0100}"),
    "long text": ("TEXT", lambda n: f"{n:05000}"),
    "cyrillic": ("TEXT", lambda n: "ж" * 50 + str(n)),
    "emoji": ("TEXT", lambda n: "😀" * 50 + str(n)),
    "one emoji": ("TEXT", lambda n: "a" * 300 + "😀" + str(n)),
    "bytes": ("BYTEA", lambda n: f"{n:020}".encode()),
    "a constant": ("TEXT", lambda n: CONSTANT),
}
CONSTANT = "the same text in each row"


def test_every_type_is_measured() -> None:
    names = " ".join(type_name for type_name, _ in TYPES.values())
    known = {"BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "TEXT", "BYTEA", "DATE", "TIMESTAMP"}
    known |= {"TIMESTAMPTZ", "REAL", "SMALLINT"}
    of_expressions = {Kind.INTERVAL, Kind.UNKNOWN}
    assert {kind.name for kind in set(Kind) - of_expressions} == known | {"DECIMAL"}
    assert all(name in names for name in known | {"NUMERIC"})


@contextmanager
def table_of(tmp_path: Path, name: str, column_count: int) -> Iterator[tuple[Engine, Session, str]]:
    type_name = TYPES[name][0]
    with engine(disk=OsDisk(str(tmp_path)), config=Config(log_file_bytes_first=2**20)) as db:
        session = db.session(durability=Durability.NONE)
        columns = ", ".join(f"c{n} {type_name}" for n in range(column_count))
        run(session, f"CREATE TABLE t (id BIGINT PRIMARY KEY, {columns})")
        run(session, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
        session.commit()
        marks = ", ".join("?" * (column_count + 1))
        insert = f"INSERT INTO t VALUES ({marks})"
        session.execute_many(insert, rows_of(name, column_count, range(-5, 0)))
        session.commit()
        db.database.run_checkpoint()
        yield db, session, insert


def rows_of(name: str, column_count: int, numbers: Any) -> list[tuple[Any, ...]]:
    make = TYPES[name][1]
    return [
        (n + 10**6, *(make(abs(n) * column_count + place) for place in range(column_count)))
        for n in numbers
    ]


def taken(db: Engine, step: Callable[[], object]) -> int:
    """Return how many bytes a step leaves behind, but for what the log keeps of its last frame."""
    displace_log(db)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        step()
        displace_log(db)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def displace_log(db: Engine) -> None:
    """Have the log write what it has, and remember something short."""
    other = db.session(autocommit=True)
    run(other, "UPSERT INTO u VALUES (1)")
    run(other, "UPSERT INTO u VALUES (1)")
    other.close()


def is_near(estimate: int, found: int) -> bool:
    return found / NEAR <= estimate <= found * NEAR


@pytest.mark.exhaustive
@pytest.mark.parametrize("column_count", [1, 20])
@pytest.mark.parametrize("name", TYPES)
def test_rows_of_a_statement(tmp_path: Path, name: str, column_count: int) -> None:
    count = 200 if "long text" in name else 800
    with table_of(tmp_path, name, column_count) as (db, session, insert):

        def write() -> None:
            session.execute_many(insert, rows_of(name, column_count, range(count)))

        found = taken(db, write)
        transaction = session.transaction
        assert transaction is not None
        assert is_near(transaction.byte_count, found), f"{transaction.byte_count / found:.2f}"
        estimate = transaction.byte_count
        session.commit()
        space = db.database.tablespace
        assert abs(space.memtable_bytes() - estimate) < count + 1000  # and the rows of u


@pytest.mark.exhaustive
@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("name", [name for name in TYPES if name != "a constant"])
def test_rows_one_by_one(tmp_path: Path, name: str, *, autocommit: bool) -> None:
    count = 600
    with table_of(tmp_path, name, 10) as (db, session, insert):
        session.autocommit = autocommit

        def write() -> None:
            for row in rows_of(name, 10, range(count)):
                session.run(insert, row)

        found = taken(db, write)
        transaction = session.transaction
        if autocommit:
            assert transaction is None
            estimate = db.database.tablespace.memtable_bytes()
        else:
            assert transaction is not None
            estimate = transaction.byte_count
        assert is_near(estimate, found), f"{estimate / found:.2f}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["integer", "text", "varchar", "emoji", "null"])
def test_rows_that_are_changed(tmp_path: Path, name: str) -> None:
    count = 1500
    with table_of(tmp_path, name, 10) as (db, session, insert):
        rows = rows_of(name, 10, range(count))
        session.execute_many(insert, rows)
        session.commit()
        db.database.run_checkpoint()
        del rows
        for text in ("UPDATE t SET c0 = c1 WHERE id > 0", "DELETE FROM t WHERE id > 0"):
            found = taken(db, lambda text=text: run(session, text))
            transaction = session.transaction
            assert transaction is not None
            estimate = transaction.byte_count
            assert is_near(estimate, found), f"{text}: {estimate / found:.2f}"
            session.rollback()


def test_a_long_row_among_short_ones_counts(tmp_path: Path) -> None:
    with table_of(tmp_path, "text", 1) as (_, session, insert):
        for place in (0, 1, 777):
            rows = [(n, "x" * 1_000_000 if n == place else str(n)) for n in range(1000)]
            session.execute_many(insert, rows)
            transaction = session.transaction
            assert transaction is not None
            assert 1_000_000 < transaction.byte_count < 2_000_000
            session.rollback()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["integer", "text", "varchar"])
def test_rows_that_recovery_finds(tmp_path: Path, name: str) -> None:
    with table_of(tmp_path, name, 10) as (db, session, insert):
        rows = rows_of(name, 10, range(2000))
        session.execute_many(insert, rows[:1500])
        session.commit()
        session.autocommit = True
        for row in rows[1500:]:
            session.run(insert, row)
        before = db.database.tablespace.memtable_bytes()
        db.database.tablespace.log.sync()
        db.reopen()
        assert is_near(db.database.tablespace.memtable_bytes(), before)
