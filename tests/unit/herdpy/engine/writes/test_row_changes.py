"""The fast path of UPDATE and DELETE of a row by its key: as the general path, or nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from herdpy.engine.session.session import Session
from herdpy.engine.state.commit_tokens import UsedToken
from herdpy.engine.writes.row_writes import Write
from herdpy.errors import Error, OperationalError
from herdpy.log.record import Begin, Commit, Record, Rows, decode
from herdpy.model.lsn import START_LSN, Lsn
from tests.crash.checks import read_log
from tests.fixtures.engines import Engine, attempt_and_wait, engine, rows, run

TABLE = (
    "CREATE TABLE t (a BIGINT, b VARCHAR(3), i INTEGER NOT NULL, x DOUBLE, d DECIMAL(6, 2), "
    "PRIMARY KEY (a, b))"
)
ALL = "SELECT * FROM t ORDER BY a, b"


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine() as made:
        session = made.session(autocommit=True)
        run(session, TABLE)
        for a in (1, 2, 3):
            run(session, "INSERT INTO t VALUES (?, 'k', 0, 0.5, 1.25)", a)
        yield made


def told(step: Callable[[], Any]) -> object:
    """Return a row count, or what the error says; None: not on this path."""
    try:
        result = step()
    except Error as error:
        return (error.sqlstate, error.message, error.retry)
    return None if result is None else result.row_count


def known(db: Engine, session: Session, text: str, parameters: tuple[Any, ...]) -> None:
    """Have the plan of a text in the cache, without any effect."""
    session.execute("BEGIN")
    told(lambda: session.execute(text, parameters))
    session.rollback()
    assert db.database.plans.latest[text] is not None


BY_KEY = " WHERE a = ? AND b = ?"
UPDATES: list[tuple[str, tuple[Any, ...], bool]] = [
    ("UPDATE t SET i = ?, x = ?" + BY_KEY, (7, 2.5, 1, "k"), True),
    ("UPDATE t SET i = i + ?" + BY_KEY, (7, 1, "k"), True),
    ("UPDATE t SET i = i + ?" + BY_KEY, (2**31 - 1, 1, "k"), True),
    ("UPDATE t SET i = i * ?, x = x" + BY_KEY, (2**31 - 1, 1, "k"), True),
    ("UPDATE t SET i = ?" + BY_KEY, (2**31, 1, "k"), True),
    ("UPDATE t SET i = ?" + BY_KEY, (None, 1, "k"), True),
    ("UPDATE t SET d = ?" + BY_KEY, ("12345.678", 1, "k"), True),
    ("UPDATE t SET d = ?" + BY_KEY, (1.5, 1, "k"), True),
    ("UPDATE t SET x = ?" + BY_KEY, (float("nan"), 1, "k"), True),
    ("UPDATE t SET x = i" + BY_KEY, (1, "k"), True),
    ("UPDATE t SET i = ?" + BY_KEY, (7, 9, "k"), False),  # no such row
    ("UPDATE t SET i = ?" + BY_KEY, (7, None, "k"), False),
    ("UPDATE t SET i = ?" + BY_KEY, (7, 1.0, "k"), False),  # another comparison
    ("UPDATE t SET i = ?" + BY_KEY, (7, "1", "k"), True),
    ("UPDATE t SET a = ?" + BY_KEY, (7, 1, "k"), False),  # the key moves
    ("UPDATE t SET b = ?" + BY_KEY, ("k", 1, "k"), False),
    ("UPDATE t SET i = ?" + BY_KEY + " AND i = 0", (7, 1, "k"), False),
    ("UPDATE t SET i = length(b)" + BY_KEY, (1, "k"), False),  # not cheap
    ("DELETE FROM t" + BY_KEY, (1, "k"), True),
    ("DELETE FROM t" + BY_KEY, (9, "k"), False),
    ("DELETE FROM t WHERE a = ?", (1,), False),
]


@pytest.mark.parametrize("place", ["memtable", "frozen", "pages", "own writes"])
@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize(("text", "parameters", "_"), UPDATES, ids=lambda item: repr(item)[:50])
def test_results_and_errors_are_those_of_the_general_path(
    db: Engine, text: str, parameters: tuple[Any, ...], _: bool, *, is_alone: bool, place: str
) -> None:
    session = db.session(autocommit=True)
    known(db, session, text, parameters)
    if place in ("frozen", "pages"):
        db.database.run_checkpoint()
    outcomes: list[Any] = []
    for step in (session.run, session.execute):
        if place == "own writes" or not is_alone:
            session.execute("BEGIN")
        if place == "own writes":
            run(session, "UPDATE t SET i = 5")
        count = told(lambda step=step: step(text, parameters))
        outcomes.append((count, rows(session, ALL)))
        session.rollback()
        run(session, "DELETE FROM t")
        for a in (1, 2, 3):
            run(session, "INSERT INTO t VALUES (?, 'k', 0, 0.5, 1.25)", a)
        if place in ("frozen", "pages"):
            db.database.run_checkpoint()
        assert db.locks == {}
    assert repr(outcomes[0]) == repr(outcomes[1])


@pytest.mark.parametrize(("text", "parameters", "is_fast"), UPDATES, ids=lambda i: repr(i)[:50])
def test_which_writes_take_the_fast_path(
    db: Engine,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    parameters: tuple[Any, ...],
    is_fast: bool,
) -> None:
    session = db.session(autocommit=True)
    known(db, session, text, parameters)
    general: list[object] = []
    attempt = Write.attempt
    monkeypatch.setattr(Write, "attempt", lambda write: (general.append(write), attempt(write))[1])
    outcome = told(lambda: session.run(text, parameters))
    if is_fast:
        assert not general
    elif isinstance(outcome, int):
        assert general


@pytest.mark.parametrize("text", ["UPDATE t SET i = i + ?" + BY_KEY, "DELETE FROM t" + BY_KEY])
@pytest.mark.parametrize("meanwhile", ["same row", "other row", "gone", "checkpoint", "new table"])
def test_what_commits_between_the_look_and_the_lock_is_seen(
    db: Engine, text: str, meanwhile: str
) -> None:
    session, other = db.session(autocommit=True), db.session(autocommit=True)
    parameters = (100, 1, "k") if "UPDATE" in text else (1, "k")
    known(db, session, text, parameters)
    is_first = True

    def change() -> None:
        if meanwhile == "same row":
            run(other, "UPDATE t SET i = i + 10 WHERE a = 1")
        elif meanwhile == "other row":
            run(other, "UPDATE t SET i = i + 10 WHERE a = 2")
        elif meanwhile == "gone":
            run(other, "DELETE FROM t WHERE a = 1")
        elif meanwhile == "checkpoint":
            run(other, "UPDATE t SET i = i + 10 WHERE a = 1")
            db.database.run_checkpoint()
        else:
            run(other, "DROP TABLE t")
            run(other, TABLE)

    prepared = db.database.plans.latest[text]
    write: Any = prepared.new_write_row()
    table, look = write.args

    def looking(*arguments: Any) -> Any:
        nonlocal is_first
        found = look(*arguments)
        if is_first:
            is_first = False
            change()
        return found

    prepared.write_row = type(write)(write.func, table, looking)
    done = session.run(text, parameters)
    assert not is_first
    if meanwhile in ("gone", "new table"):
        assert getattr(done, "row_count", None) == 0
        return
    assert getattr(done, "row_count", None) == 1
    found = rows(session, "SELECT i FROM t WHERE a = 1")
    added = 0 if meanwhile == "other row" else 10
    assert found == ([] if "DELETE" in text else [(100 + added,)])


def test_a_row_that_another_transaction_has_is_not_waited_for_here(db: Engine) -> None:
    text = "UPDATE t SET i = ?" + BY_KEY
    session, other = db.session(autocommit=True), db.session()
    known(db, session, text, (1, 1, "k"))
    run(other, "UPDATE t SET i = 5 WHERE a = 1")
    assert attempt_and_wait(session, text, (1, 1, "k")) is None
    waiting = db.session(autocommit=True, lock_timeout_s=0.01)
    with pytest.raises(OperationalError) as caught:
        waiting.run(text, (1, 1, "k"))
    assert caught.value.sqlstate == "55P03"
    other.rollback()
    assert attempt_and_wait(session, text, (1, 1, "k")) is not None
    assert db.locks == {}


def logged(db: Engine) -> list[Record]:
    start = Lsn(*db.database.replica.manifest.state.checkpoint_lsn)
    return [decode(data) for _, data in read_log(db.database, start)]


@pytest.mark.parametrize("has_token", [True, False])
def test_a_statement_that_stands_alone_is_one_record(db: Engine, *, has_token: bool) -> None:
    text, session = "UPDATE t SET i = ?" + BY_KEY, db.session(autocommit=True)
    known(db, session, text, (1, 1, "k"))
    before = len(logged(db))
    token = (session.token_session, 7)
    session.token = UsedToken(token, 6) if has_token else None
    session.run(text, (9, 1, "k"))
    (record,) = logged(db)[before:]
    assert isinstance(record, Rows)
    assert (record.tx, record.token) == (None, token if has_token else None)
    assert [(old and old[2], new and new[2]) for old, new in record.changes] == [(0, 9)]


def test_a_transaction_keeps_what_it_changed_after_a_restart(db: Engine) -> None:
    text, session = "UPDATE t SET i = i + ?" + BY_KEY, db.session()
    known(db, session, text, (1, 1, "k"))
    for _ in range(3):
        for a in (1, 2):
            session.run(text, (1, a, "k"))
        session.commit()
    before = rows(session, ALL)
    assert [row[2] for row in before] == [3, 3, 0]
    kinds = [type(record) for record in logged(db)[-3:]]
    assert kinds == [Begin, Rows, Commit]
    session.rollback()
    db.reopen()
    assert rows(db.session(), ALL) == before
    assert db.database.tablespace.state.lsn > START_LSN
