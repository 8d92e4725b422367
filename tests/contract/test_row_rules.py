"""One rule is one rule, whichever way a row is written: (rule, type, value) × way of writing.

Every cell is the same row, or the same SQLSTATE and message; where several rows are written the
message may begin with the row's number. A second table of tests takes each rule out at its one
place and sees that every way changes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import FunctionType
from typing import Any

import pyarrow as pa
import pytest

import herdpy
from herdpy.engine.session import ingest
from herdpy.engine.state import page_adoption
from herdpy.engine.state.commit_tokens import CommitTokens
from herdpy.engine.state.locks import LockTable
from herdpy.errors import SerializationError
from herdpy.exec import coerce
from herdpy.exec.row import row_check
from herdpy.limits import key_bytes_max, row_bytes_max
from tests.fixtures.servers import running_server
from tests.fixtures.targets import TRANSPORTS

Connection = Any

MILLI = pa.decimal128(8, 3)
_CELL_BYTES = 18
_TEXT_MAX = row_bytes_max - 2 * _CELL_BYTES


@dataclass(frozen=True)
class Case:
    """A value for column v, or a key, of one type; `found` is what is stored, or the SQLSTATE."""

    rule: str
    kind: str
    value: Any
    arrow: pa.DataType
    good: Any
    found: Any = None
    key: Any = None
    key_kind: str = "BIGINT"

    @property
    def is_of_key(self) -> bool:
        return self.key is not None

    @property
    def row(self) -> tuple[Any, Any]:
        return (7 if self.key is None else self.key), self.value

    def filler(self, number: int) -> tuple[Any, Any]:
        """Return a row that fits."""
        key = f"f{number}" if self.key_kind in ("TEXT", "BYTEA") else 100 + number
        return (key.encode() if self.key_kind == "BYTEA" and isinstance(key, str) else key), (
            self.good
        )

    def data(self, *rows: tuple[Any, Any]) -> pa.Table:
        key_types = {"TEXT": pa.string(), "BYTEA": pa.binary(), "BIGINT": pa.int64()}
        keys, values = zip(*rows, strict=True)
        return pa.table(
            {
                "id": pa.array(keys, key_types[self.key_kind]),
                "v": pa.array(values, self.arrow),
            }
        )


def _of_key(rule: str, kind: str, key: Any, found: Any) -> Case:
    return Case(rule, "INTEGER", 1, pa.int64(), 1, found, key, kind)


CASES = [
    Case("length", "VARCHAR(3)", "abc", pa.string(), "a", "abc"),
    Case("length", "VARCHAR(3)", "éàü", pa.large_string(), "a", "éàü"),
    Case("length", "VARCHAR(3)", "abcd", pa.string(), "a", "22001"),
    Case("length", "VARCHAR(3)", "a   ", pa.string(), "a", "22001"),
    Case("length", "VARCHAR(3)", "\U0001f600" * 4, pa.string(), "a", "22001"),
    Case("text", "TEXT", "a\0b", pa.string(), "a", "22021"),
    Case("not null", "INTEGER NOT NULL", None, pa.int64(), 1, "23502"),
    Case("not null", "TEXT NOT NULL", None, pa.string(), "a", "23502"),
    Case("not null", "BYTEA NOT NULL", None, pa.large_binary(), b"", "23502"),
    Case("not null", "DOUBLE NOT NULL DEFAULT 5", None, pa.float64(), 1.0, "23502"),
    Case("range", "INTEGER", 2**31 - 1, pa.int64(), 1, 2**31 - 1),
    Case("range", "INTEGER", 2**31, pa.int64(), 1, "22003"),
    Case("range", "INTEGER", -(2**31) - 1, pa.int64(), 1, "22003"),
    Case("range", "INTEGER", float("nan"), pa.float64(), 1.0, "22003"),
    Case("range", "BIGINT", Decimal(2**63), pa.decimal128(20, 0), Decimal(1), "22003"),
    Case("range", "DECIMAL(6,2)", Decimal("9999.995"), MILLI, Decimal(1), "22003"),
    Case("range", "DECIMAL(6,2)", Decimal("1.005"), MILLI, Decimal(1), Decimal("1.01")),
    Case("range", "DECIMAL(30,0)", 1e30, pa.float64(), 1.0, "22003"),
    Case("row", "TEXT", "x" * _TEXT_MAX, pa.string(), "a", "x" * _TEXT_MAX),
    Case("row", "TEXT", "x" * (_TEXT_MAX + 1), pa.string(), "a", "54000"),
    Case("row", "TEXT", "é" * (_TEXT_MAX // 2 + 1), pa.string(), "a", "54000"),
    Case("row", "BYTEA", b"\0" * (_TEXT_MAX + 1), pa.binary(), b"", "54000"),
    Case("row", "VARCHAR(2000000)", "x" * 1_900_000, pa.string(), "a", "54000"),
    _of_key("key", "TEXT", "k" * (key_bytes_max - 3), 1),
    _of_key("key", "TEXT", "k" * (key_bytes_max - 2), "54000"),
    _of_key("key", "TEXT", "k" * key_bytes_max, "54000"),
    _of_key("key", "BYTEA", b"\0" * (key_bytes_max // 2), "54000"),
    _of_key("key", "TEXT", "é" * (key_bytes_max // 2), "54000"),
    _of_key("duplicate", "BIGINT", 5, "23505"),
    _of_key("duplicate", "TEXT", "there", "23505"),
]  # fmt: skip


# --- ways of writing -----------------------------------------------------------------------------


def _insert(conn: Connection, row: tuple[Any, ...]) -> None:
    conn.execute("INSERT INTO t (id, v) VALUES (?, ?)", row)


def execute(conn: Connection, case: Case) -> None:
    _insert(conn, case.row)


def named(conn: Connection, case: Case) -> None:
    key, value = case.row
    conn.execute("INSERT INTO t VALUES (:id, :v)", {"id": key, "v": value})


def execute_again(conn: Connection, case: Case) -> None:
    """The plan's fast path."""
    for number in range(3):
        _insert(conn, case.filler(number))
    _insert(conn, case.row)


def in_transaction(conn: Connection, case: Case) -> None:
    with conn.transaction():
        _insert(conn, case.filler(0))
        _insert(conn, case.row)


def executemany(conn: Connection, case: Case) -> None:
    rows = [case.filler(0), case.filler(1), case.row]
    conn.executemany("INSERT INTO t (id, v) VALUES (?, ?)", rows)


def executemany_after_none(conn: Connection, case: Case) -> None:
    key, _ = case.filler(0)
    conn.executemany("INSERT INTO t (id, v) VALUES (?, ?)", [(key, None), case.row])


def values_of_three(conn: Connection, case: Case) -> None:
    parameters = (*case.filler(0), *case.filler(1), *case.row)
    conn.execute("INSERT INTO t (id, v) VALUES (?, ?), (?, ?), (?, ?)", parameters)


def select(conn: Connection, case: Case) -> None:
    conn.execute("INSERT INTO t (id, v) SELECT ?, ?", case.row)


def select_by_vector(conn: Connection, case: Case) -> None:
    conn.execute(
        "INSERT INTO t (id, v) SELECT ?, ? FROM (VALUES (1), (2)) AS x (n) WHERE abs(n) = 1",
        case.row,
    )


def upsert(conn: Connection, case: Case) -> None:
    conn.execute("UPSERT INTO t (id, v) VALUES (?, ?)", case.row)


def upsert_many(conn: Connection, case: Case) -> None:
    conn.executemany("UPSERT INTO t (id, v) VALUES (?, ?)", [case.filler(0), case.row])


def update(conn: Connection, case: Case) -> None:
    _insert(conn, (old := case.filler(0)[0], case.good))
    conn.execute("UPDATE t SET id = ?, v = ? WHERE id = ?", (*case.row, old))


def update_again(conn: Connection, case: Case) -> None:
    """The plan's fast path, unless the key changes."""
    key, value = case.row
    if case.is_of_key:
        update(conn, case)
        return
    _insert(conn, (key, case.good))
    for item in (case.good, case.good, value):
        conn.execute("UPDATE t SET v = ? WHERE id = ?", (item, key))


def update_many(conn: Connection, case: Case) -> None:
    olds = [case.filler(number)[0] for number in range(2)]
    for old in olds:
        _insert(conn, (old, case.good))
    parameters = [(olds[0], case.good, olds[0]), (*case.row, olds[1])]
    conn.executemany("UPDATE t SET id = ?, v = ? WHERE id = ?", parameters)


def update_by_vector(conn: Connection, case: Case) -> None:
    _insert(conn, (old := case.filler(0)[0], case.good))
    conn.execute(
        "UPDATE t SET id = ?, v = ? WHERE length(CAST(id AS TEXT)) > 0 AND id = ?",
        (*case.row, old),
    )


def small_ingest(conn: Connection, case: Case) -> None:
    conn.ingest("t", case.data(case.filler(0), case.row))


def large_ingest(conn: Connection, case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (page_adoption, ingest):
            patch.setattr(module, "FEW_ROWS", 1)
        conn.ingest("t", case.data(case.filler(0), case.row))


def staged(conn: Connection, case: Case) -> None:
    job = conn.begin_staging("t")
    with conn.stage(job, 0) as stage:
        stage.add(case.data(case.filler(0), case.row))
        token = stage.finish()
    conn.commit_staging(job, [token])


Way = Callable[[Connection, Case], None]
REPLACING: list[Way] = [upsert, upsert_many]
"""To these no row is a duplicate."""
WAYS: list[Way] = [
    execute, named, execute_again, in_transaction, executemany, executemany_after_none,
    values_of_three, select, select_by_vector, update, update_again, update_many,
    update_by_vector, small_ingest, large_ingest, staged, *REPLACING,
]  # fmt: skip


def ways_of(rule: str) -> list[Way]:
    return [way for way in WAYS if rule != "duplicate" or way not in REPLACING]


# --- the matrix ----------------------------------------------------------------------------------


@pytest.fixture(params=TRANSPORTS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "data")
    else:
        with running_server() as server:
            yield server.url if request.param == "tcp" else server.grpc_url


@pytest.fixture
def conn(target: str) -> Iterator[Connection]:
    with herdpy.connect(target, autocommit=True) as opened:
        yield opened


def new_table(conn: Connection, case: Case) -> None:
    conn.execute("DROP TABLE IF EXISTS t")
    conn.execute(f"CREATE TABLE t (id {case.key_kind} PRIMARY KEY, v {case.kind})")
    if case.rule == "duplicate":
        _insert(conn, (case.key, 0))


def outcome(conn: Connection, way: Way, case: Case) -> Any:
    """Return (SQLSTATE, message), or what is stored."""
    new_table(conn, case)
    try:
        way(conn, case)
    except herdpy.Error as error:
        return error.sqlstate, re.sub(r"^row [\d,]+ of the data: ", "", error.message)
    except pa.ArrowInvalid as error:  # what a page cannot hold, when a rule is taken out
        return "", str(error)
    return conn.execute("SELECT v FROM t WHERE id = ?", (case.row[0],)).fetchall()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.kind}-{case.key_kind}")
def test_every_way_has_the_rule(conn: Connection, case: Case) -> None:
    found = {way.__name__: outcome(conn, way, case) for way in ways_of(case.rule)}
    first = found["execute"]
    if isinstance(case.found, str) and re.fullmatch(r"[0-9A-Z]{5}", case.found):
        assert first[0] == case.found
    else:
        assert first == [(case.found,)]
    assert found == dict.fromkeys(found, first)


# --- each rule has one place ---------------------------------------------------------------------

# By the rule: the function that has it, and what stands in its place when the rule is taken out.
# Its code is replaced, so that it changes under whatever name it was imported.
OWNERS: dict[str, tuple[FunctionType, Callable[..., Any]]] = {
    "length": (coerce.check_text, lambda value, sql_type, what: value),
    "not null": (row_check.must_be_set, lambda table, ordinal: False),
    "range": (coerce.check_number, lambda value, sql_type, what: value),
    "row": (row_check._row_lines, lambda writer, table: []),
    "key": (row_check._key_lines, lambda writer, table: []),
    "duplicate": (row_check.check_absent, lambda table, key, there: None),
}


@pytest.mark.parametrize("rule", OWNERS)
def test_every_way_loses_the_rule_with_its_one_place(
    conn: Connection, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(
        c for c in CASES if c.rule == rule and isinstance(c.found, str) and c.found[0] in "25"
    )
    right = outcome(conn, execute, case)
    owner, without = OWNERS[rule]
    monkeypatch.setattr(owner, "__code__", without.__code__)
    found = {way.__name__: outcome(conn, way, case) for way in ways_of(rule)}
    assert [name for name, what in found.items() if what == right] == []


LOCK_CASE = Case("lock", "INTEGER", 1, pa.int64(), 1, key=5)


def _outcome_beside_a_lock(conn: Connection, other: Connection, way: Way) -> Any:
    """Return what a way finds whose row another transaction has written, and keeps locked."""
    new_table(conn, LOCK_CASE)
    with other.transaction():
        _insert(other, (LOCK_CASE.key, 3))
        try:
            way(conn, LOCK_CASE)
        except herdpy.Error as error:
            return error.sqlstate
        return ""


def test_every_way_takes_the_lock(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        herdpy.connect(target, autocommit=True) as conn,
        herdpy.connect(target, autocommit=True) as other,
    ):
        conn.execute("SET lock_timeout = '1ms'")
        found = {way.__name__: _outcome_beside_a_lock(conn, other, way) for way in WAYS}
        assert found == dict.fromkeys(found, "55P03")
        for name in ("acquire", "acquire_rows"):
            monkeypatch.setattr(LockTable, name, lambda *_: None)
        monkeypatch.setattr(LockTable, "acquire_row_if_free", lambda *_: True)
        found = {way.__name__: _outcome_beside_a_lock(conn, other, way) for way in WAYS}
        assert [name for name, what in found.items() if what == "55P03"] == []


class _Refusing:
    """A connection whose commits are refused from the first statement of one kind on."""

    def __init__(self, conn: Connection, patch: pytest.MonkeyPatch, first_word: str) -> None:
        self._conn = conn
        self._patch = patch
        self._first_word = first_word

    def __getattr__(self, name: str) -> Any:
        if name == self._first_word:
            self._refuse()
        return getattr(self._conn, name)

    def execute(self, text: str, *arguments: Any) -> Any:
        return self._called(self._conn.execute, text, *arguments)

    def executemany(self, text: str, *arguments: Any) -> Any:
        return self._called(self._conn.executemany, text, *arguments)

    def _called(self, call: Callable[..., Any], text: str, *arguments: Any) -> Any:
        if text.startswith(self._first_word):
            self._refuse()
        return call(text, *arguments)

    def _refuse(self) -> None:
        def refuse(*_: object) -> None:
            raise SerializationError("decided", sqlstate="40000")

        self._patch.setattr(CommitTokens, "check_commit", refuse)


def _first_word(way: Way) -> str:
    if way in (small_ingest, large_ingest):
        return "ingest"
    if way in REPLACING:
        return "UPSERT"
    return "UPDATE" if way.__name__.startswith("update") else "INSERT"


@pytest.mark.parametrize("way", [way for way in WAYS if way is not staged])
def test_every_way_asks_whether_its_token_is_decided(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the network each commit has a token; staging has the name of its job instead."""
    case = CASES[0]
    with running_server() as server, herdpy.connect(server.url, autocommit=True) as conn:
        new_table(conn, case)
        with monkeypatch.context() as patch, pytest.raises(herdpy.Error) as caught:
            way(_Refusing(conn, patch, _first_word(way)), case)
        assert caught.value.sqlstate == "40000"
