"""The fast path of an INSERT of one row: what the general path does, or nothing at all."""

import datetime
from decimal import Decimal
from typing import Any

import pytest

from herdpy.engine.session.activity import killed_error
from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import UsedToken
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.writes import keyed
from herdpy.engine.writes.inserts import FreshInsert
from herdpy.errors import Error, OperationalError, SerializationError
from herdpy.limits import row_bytes_max
from herdpy.log.record import Begin, Commit, Record, Rows, decode
from herdpy.model.durability import Durability
from herdpy.model.lsn import Lsn
from herdpy.model.settings import Settings
from tests.crash.checks import read_log
from tests.fixtures.engines import Engine, attempt_and_wait, engine, rows, run

COLUMNS = (
    "a BIGINT, b VARCHAR(5), i INTEGER NOT NULL, x DOUBLE, d DECIMAL(6,2) DEFAULT 1.5, day DATE, "
    "at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, z TIMESTAMPTZ, f BOOLEAN, y BYTEA, t TEXT"
)
INSERT = "INSERT INTO t (a, b, i, x, d, day, z, f, y, t) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ALL = "SELECT a, b, i, x, d, day, z, f, y, t FROM t ORDER BY a, b"
DAY = datetime.date(2024, 2, 29)
AT = datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=datetime.UTC)
ROW: tuple[Any, ...] = (1, "ä", 2, 0.5, "1.25", DAY, AT, True, b"\0\xff", "text")
NAMES = ("a", "b", "i", "x", "d", "day", "z", "f", "y", "t")


def with_cell(**cells: Any) -> tuple[Any, ...]:
    return tuple(cells.get(name, value) for name, value in zip(NAMES, ROW, strict=True))


@pytest.fixture
def db() -> Any:
    with engine() as made:
        run(made.session(autocommit=True), f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (a, b))")
        yield made


def logged(db: Engine) -> list[Record]:
    start = Lsn(*db.database.replica.manifest.state.checkpoint_lsn)
    return [decode(data) for _, data in read_log(db.database, start)]


def told(step: Any) -> object:
    """Return a row count, or what the error says; None: not this way."""
    try:
        result = step()
    except Error as error:
        return (error.sqlstate, error.message, error.retry)
    return None if result is None else result.row_count


@pytest.mark.parametrize(
    "values",
    [
        with_cell(a=2),
        with_cell(a=2, b="é" * 5),
        with_cell(a=2, x=None, d=None, day=None, z=None, f=None, y=None, t=None),
        ROW,  # is there
        with_cell(b=None),
        with_cell(i=None),
        with_cell(a=2**63),
        with_cell(a=2, i=2**31),
        with_cell(a=2, b="too long"),
        with_cell(a=2, b="x    "),
        with_cell(a=2, d=Decimal("12345.678")),
        with_cell(a=2, d=Decimal("1.005")),
        with_cell(a=2, d=1.5),
        with_cell(a=2, d="1.5"),
        with_cell(a=2, d="x"),
        with_cell(a=2, x=1),
        with_cell(a=2, x=float("nan")),
        with_cell(a="2"),
        with_cell(a=2.0),
        with_cell(a=2.5),
        with_cell(a=2, day="2024-02-30"),
        with_cell(a=2, day=AT),
        with_cell(a=2, z=AT.replace(tzinfo=None)),
        with_cell(a=2, f="yes"),
        with_cell(a=2, f=1),
        with_cell(a=2, y="x"),
        with_cell(a=2, t="\0"),
        with_cell(a=2, t="\ud800"),
        with_cell(a=2, t=b"x"),
        with_cell(a=2, t="x" * (row_bytes_max + 1)),
        with_cell(a=2)[:-1],
        (*with_cell(a=2), 1),
        list(with_cell(a=2)),
        None,
    ],
    ids=lambda values: repr(values)[:60],
)
@pytest.mark.parametrize("is_alone", [True, False])
def test_results_and_errors_are_those_of_the_general_path(
    db: Engine, values: Any, *, is_alone: bool
) -> None:
    session = db.session(autocommit=True)
    session.execute(INSERT, ROW)
    latest = db.database.plans.latest[INSERT]
    assert latest.new_write_row() is not None
    begin = "BEGIN" if not is_alone else "SHOW ALL"

    session.execute(begin)
    short = told(lambda: attempt_and_wait(session, INSERT, values))
    found = rows(session, ALL)
    session.rollback()
    run(session, "DELETE FROM t WHERE a = 2")

    latest.write_row = None
    session.execute(begin)
    long = told(lambda: session.execute(INSERT, values))
    expected = rows(session, ALL)
    assert session.in_transaction is not is_alone
    session.rollback()
    assert db.locks == {}
    assert repr(values) != repr(with_cell(a=2)) or short == 1
    if short is None:
        assert len(found) == 1, "it had an effect"
    else:
        assert repr((short, found)) == repr((long, expected))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t (a, b, i) VALUES (?, ?, ?)",
        "INSERT INTO t (a, b, i, t) VALUES ($1, $2, $3, $2)",
        "INSERT INTO t (a, b, i, t) VALUES (?, ?, ?, 'x')",
        "INSERT INTO t (a, b, i, x) VALUES (?, ?, ?, CURRENT_DATE - CURRENT_DATE)",
        "INSERT INTO t (a, b, i) VALUES (? + 0, ?, ?)",
        "INSERT INTO t (a, b, i) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        "UPSERT INTO t (a, b, i) VALUES (?, ?, ?)",
        "INSERT INTO heap VALUES (?, ?, ?)",
        "INSERT INTO wide VALUES (?, ?, ?)",
        "INSERT INTO t (a, b, i) SELECT ?, ?, ?",
    ],
)
def test_every_kind_of_insert_leaves_the_same_rows(db: Engine, text: str) -> None:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE heap (a BIGINT, b TEXT, i BIGINT)")
    run(session, "CREATE TABLE wide (a BIGINT PRIMARY KEY, b TEXT, i DECIMAL(38, 2))")
    table = text.split()[2]
    for key in (3, 1, 2, 2):
        for short in (True, False):
            values = (key + 10 * short, "k", 7)
            done = told(lambda v=values, s=short: (session.run if s else longer)(text, v))

            def longer(text: str, values: Any) -> Any:
                plans = db.database.plans.latest
                kept = plans.pop(text, None)
                try:
                    return session.execute(text, values)
                finally:
                    if kept is not None:
                        plans[text] = kept

            assert done is not None
    found = rows(session, f"SELECT * FROM {table} WHERE a < 10 ORDER BY a, b")
    again = rows(session, f"SELECT * FROM {table} WHERE a > 10 ORDER BY a, b")
    now = 6 if table == "t" else None  # its default is the time
    assert [[*row[:now]] for row in found] == [[row[0] - 10, *row[1:now]] for row in again]


def test_now_is_the_time_of_the_transaction(db: Engine) -> None:
    session = db.session(autocommit=True)
    text = "INSERT INTO t (a, b, i) VALUES (?, ?, ?)"
    run(session, text, 1, "k", 0)
    session.execute("BEGIN")
    for key in (3, 4):
        assert attempt_and_wait(session, text, (key, "k", 0)) is not None
    found = rows(session, "SELECT DISTINCT at FROM t WHERE a > 2")
    ((now,),) = rows(session, "SELECT CURRENT_TIMESTAMP")
    assert found == [(now.replace(tzinfo=None),)]
    session.rollback()


# --- when it is not for the fast path ------------------------------------------------------------

SIMPLE = "INSERT INTO s VALUES (?, ?)"
SIX = "(?, ?, ?, ?, ?, ?)"


@pytest.fixture
def simple(db: Engine) -> Session:
    session = db.session(autocommit=True)
    run(session, "CREATE TABLE s (id BIGINT PRIMARY KEY, v BIGINT)")
    run(session, SIMPLE, 1, 10)
    return session


@pytest.mark.parametrize("place", ["memtable", "frozen", "pages", "own writes", "deleted by it"])
def test_a_key_that_somebody_had(db: Engine, simple: Session, place: str) -> None:
    if place in ("frozen", "pages"):
        db.database.run_checkpoint()
    simple.execute("BEGIN")
    if place == "own writes":
        run(simple, SIMPLE, 2, 20)
    if place == "deleted by it":
        run(simple, "DELETE FROM s WHERE id = 1")
    key = 2 if place == "own writes" else 1
    assert attempt_and_wait(simple, SIMPLE, (key, 0)) is None
    if place == "deleted by it":
        assert run(simple, SIMPLE, key, 0) == 1
    else:
        with pytest.raises(Error, match="duplicate key"):
            run(simple, SIMPLE, key, 0)
    assert attempt_and_wait(simple, SIMPLE, (3, 0)) is not None
    simple.rollback()
    assert db.locks == {}


def test_a_lock_of_somebody_else_is_not_waited_for_here(db: Engine, simple: Session) -> None:
    for text in (
        "INSERT INTO s VALUES (2, 0)",
        "DROP TABLE s",
        "UPDATE s SET id = 2",
    ):
        other = db.session()
        run(other, text)
        assert attempt_and_wait(simple, SIMPLE, (2, 0)) is None, text
        waiting = db.session(autocommit=True, lock_timeout_s=0.01)
        with pytest.raises(OperationalError) as caught:
            waiting.execute(SIMPLE, (2, 0))
        assert caught.value.sqlstate == "55P03"
        other.rollback()
        other.close()
    assert attempt_and_wait(simple, SIMPLE, (2, 0)) is not None
    assert db.locks == {}


@pytest.mark.parametrize("is_same", [True, False])
def test_what_commits_between_the_look_and_the_lock_is_seen(
    db: Engine, simple: Session, monkeypatch: pytest.MonkeyPatch, *, is_same: bool
) -> None:
    looked, other = keyed._is_fresh, db.session(autocommit=True)
    seen: list[bool] = []

    def look(*arguments: Any) -> bool:
        found = looked(*arguments)
        seen.append(found)
        if len(seen) == 1:
            run(other, "UPSERT INTO s VALUES (?, 0)", 5 if is_same else 6)
        return found

    monkeypatch.setattr(keyed, "_is_fresh", look)
    done = attempt_and_wait(simple, SIMPLE, (5, 50))
    assert (done is None) == is_same
    assert seen == [True, not is_same]
    monkeypatch.setattr(keyed, "_is_fresh", looked)
    assert rows(simple, "SELECT v FROM s WHERE id = 5") == [(0 if is_same else 50,)]


def test_a_checkpoint_between_the_look_and_the_lock(
    db: Engine, simple: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, other = keyed._is_fresh, db.session(autocommit=True)
    is_first = True

    def look(*arguments: Any) -> bool:
        nonlocal is_first
        found = looked(*arguments)
        if is_first:
            is_first = False
            run(other, "UPSERT INTO s VALUES (5, 0)")
            db.database.run_checkpoint()
        return found

    monkeypatch.setattr(keyed, "_is_fresh", look)
    assert attempt_and_wait(simple, SIMPLE, (5, 50)) is None
    with pytest.raises(Error, match="duplicate key"):
        simple.execute(SIMPLE, (5, 50))


def test_a_transaction_that_changed_tables_or_was_lost_or_reads_the_past(
    db: Engine, simple: Session
) -> None:
    simple.execute("BEGIN")
    run(simple, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
    assert attempt_and_wait(simple, SIMPLE, (2, 0)) is None
    simple.rollback()
    lease = simple.leasing.take(60.0)
    simple.execute("BEGIN")
    run(simple, f"SET TRANSACTION SNAPSHOT '{lease.id}'")
    assert attempt_and_wait(simple, SIMPLE, (2, 0)) is None
    with pytest.raises(Error) as caught:
        run(simple, SIMPLE, 2, 0)
    assert caught.value.sqlstate == "25006"
    simple.rollback()
    simple.execute("BEGIN")
    transaction = simple.transaction
    assert transaction is not None
    db.database.tablespace.rollback(transaction, SerializationError("lost"))
    assert attempt_and_wait(simple, SIMPLE, (2, 0)) is None
    with pytest.raises(SerializationError, match="lost"):
        run(simple, SIMPLE, 2, 0)
    simple.rollback()
    assert rows(simple, "SELECT * FROM s") == [(1, 10)]


def test_a_table_made_anew_is_another(db: Engine, simple: Session) -> None:
    run(simple, "DROP TABLE s")
    assert attempt_and_wait(simple, SIMPLE, (2, 0)) is None
    with pytest.raises(Error) as caught:
        run(simple, SIMPLE, 2, 0)
    assert caught.value.sqlstate == "42P01"
    run(simple, "CREATE TABLE s (id TEXT PRIMARY KEY, v BIGINT)")
    assert attempt_and_wait(simple, SIMPLE, (2, 0)) is None
    run(simple, SIMPLE, "2", 0)
    assert rows(simple, "SELECT * FROM s") == [("2", 0)]


def test_who_may_not_insert_is_told_so_and_who_was_looked_at_takes_the_fast_path(
    db: Engine, simple: Session
) -> None:
    run(simple, "CREATE USER u PASSWORD 'a secret of u'")
    user = db.database.session(Settings(), autocommit=True, user="u")
    assert attempt_and_wait(user, SIMPLE, (2, 0)) is None
    with pytest.raises(Error) as caught:
        run(user, SIMPLE, 2, 0)
    assert caught.value.sqlstate == "42501"
    run(simple, "GRANT INSERT ON s TO u")
    run(user, SIMPLE, 2, 0)
    assert attempt_and_wait(user, SIMPLE, (3, 0)) is not None
    run(simple, "REVOKE INSERT ON s FROM u")
    assert attempt_and_wait(user, SIMPLE, (4, 0)) is None
    with pytest.raises(Error):
        run(user, SIMPLE, 4, 0)


def test_ends_of_sessions(db: Engine, simple: Session) -> None:
    simple.kill(killed_error())
    with pytest.raises(OperationalError) as caught:
        simple.run(SIMPLE, (2, 0))
    assert caught.value.sqlstate == "57P01"
    other = db.session(autocommit=True)
    other.close()
    with pytest.raises(Error, match="closed"):
        other.run(SIMPLE, (2, 0))


def test_it_is_no_statement_that_is_audited(db: Engine, simple: Session) -> None:
    run(simple, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
    assert simple.is_audited
    run(simple, SIMPLE, 2, 0)
    assert not simple.is_audited


# --- the log -------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_token", [False, True])
@pytest.mark.parametrize("is_short", [False, True])
def test_a_statement_that_stands_alone_is_one_record(
    db: Engine, simple: Session, monkeypatch: pytest.MonkeyPatch, *, has_token: bool, is_short: bool
) -> None:
    taken: list[object] = []
    attempt = FreshInsert.attempt
    monkeypatch.setattr(
        FreshInsert, "attempt", lambda write: (taken.append(write), attempt(write))[1]
    )
    before = len(logged(db))
    token = (simple.token_session, 7)
    simple.token = UsedToken(token, 6) if has_token else None
    if is_short:
        simple.run(SIMPLE, (2, 20))
    else:
        simple.execute_many(SIMPLE, [(2, 20), (3, 30)])
    assert len(taken) == (not is_short)
    (record,) = logged(db)[before:]
    assert isinstance(record, Rows)
    assert (record.tx, record.token) == (None, token if has_token else None)
    assert record.acknowledged == (6 if has_token else 0)


def test_a_transaction_begins_and_ends_in_the_log(db: Engine, simple: Session) -> None:
    before = len(logged(db))
    simple.begin()
    simple.run(SIMPLE, (2, 20))
    simple.run(SIMPLE, (3, 30))
    simple.commit()
    kinds = [type(record) for record in logged(db)[before:]]
    assert kinds == [Begin, Rows, Commit]


@pytest.mark.parametrize(
    "values",
    [
        (2, 3, "x", 1.5, True, b"y"),
        (2, None, None, None, None, None),
        (None, 3, "x", 1.5, True, b"y"),
        (2, 2**31, "x", 1.5, True, b"y"),
        (2**63, 3, "x", 1.5, True, b"y"),
        (2, 3, "ä", 1, 0, b"y"),
        (2, 3, "three", 1.5, True, b"y"),
        (2, 3, "x\0", 1.5, True, b"y"),
        (2, 3, "x", 1.5, True, b"y" * (row_bytes_max + 1)),
        (2, 3, "x", "nan", "no", "y"),
        (2, 3, "x", 1.5, True),
    ],
    ids=lambda values: repr(values)[:60],
)
def test_many_rows_that_need_no_conversion(db: Engine, values: tuple[Any, ...]) -> None:
    """A tuple that is its own row is taken as it is; a list, and any other tuple, is converted."""
    session = db.session(autocommit=True)
    columns = "a BIGINT PRIMARY KEY, i INTEGER, t VARCHAR(4), x DOUBLE, f BOOLEAN, y BYTEA"
    run(session, f"CREATE TABLE m ({columns})")
    found: list[object] = []
    for kind in (tuple, list):
        items = [kind((1, 1, "one", 0.0, False, b"")), kind(values)]
        told_of = told(
            lambda items=items: session.execute_many(f"INSERT INTO m VALUES {SIX}", items)
        )
        found.append((told_of, rows(session, "SELECT * FROM m ORDER BY a")))
        run(session, "DELETE FROM m")
    assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("durability", list(Durability))
def test_every_durability(db: Engine, durability: Durability) -> None:
    session = db.session(autocommit=True, durability=durability)
    run(session, "CREATE TABLE s (id BIGINT PRIMARY KEY, v BIGINT)")
    for key in range(5):
        run(session, SIMPLE, key, 0)
    assert rows(session, "SELECT count(*) FROM s") == [(5,)]
    db.reopen()
    assert rows(db.session(), "SELECT count(*) FROM s") == [(5,)]


def test_a_transaction_that_is_full_spills(db: Engine, simple: Session) -> None:
    simple.begin()
    transaction = simple.transaction
    assert transaction is not None
    transaction.byte_count = db.database.config.transaction_bytes_max
    assert attempt_and_wait(simple, SIMPLE, (2, 20)) is None
    assert simple.execute(SIMPLE, (2, 20)).row_count == 1
    assert transaction.has_spilled
    simple.rollback()
    assert db.locks == {}


@pytest.mark.parametrize("place", ["none", "frozen", "given up"])
def test_where_a_key_may_stand(db: Engine, simple: Session, place: str) -> None:
    """A checkpoint is under way, or ended while a statement looked at what it made pages of."""
    state = db.database.tablespace.state
    table = next(item for item in state.tables.values() if item.table.name == "s")
    memtable = Memtable()
    memtable.put_all([((7,), (7, 0))], 1, 10, lambda: None)
    if place == "frozen":
        table = table._replace(frozen=(memtable,))
    if place == "given up":
        memtable.give_up()
        table = table._replace(memtable=memtable)
    assert keyed._is_fresh((7,), table, None) == (place == "none")
    assert keyed._is_fresh((8,), table, None) == (place != "given up")
    assert keyed._is_fresh((8,), table, {(8,): (1, (8, 0), None)}) is False
