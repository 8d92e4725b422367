"""Ctrl-C before any line of a statement that spills, or of its commit: wholly or not at all."""

from itertools import count

import pytest

from herdpy.config import Config
from herdpy.engine.session.session import Session
from herdpy.engine.writes import row_writes, spilled_writes
from tests.fixtures.engines import Engine, engine, rows, run
from tests.fixtures.interrupts import LineInterrupter
from tests.unit.herdpy.engine.test_keyboard_interrupt import FIRST_LINE, STRIDE

_LITTLE = Config(transaction_memory_bytes=3000, log_file_bytes_first=64 * 1024)
_OLD = [(number, number) for number in range(6)]
_SMALL = [(number, 5 if number == 3 else v) for number, v in _OLD]
_NEW = [(number + 1, v + 1) for number, v in _SMALL]
_TEXT = "UPDATE t SET id = id + 1, v = v + 1"


def _content(session: Session) -> list[tuple[object, ...]]:
    return rows(session, "SELECT id, v FROM t ORDER BY id")


def _filled(db: Engine, *, autocommit: bool) -> Session:
    session = db.session(autocommit=autocommit)
    run(session, "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    session.execute_many("INSERT INTO t VALUES (?, ?)", _OLD)
    session.commit()
    run(session, "UPDATE t SET v = 5 WHERE id = 3")
    return session


@pytest.mark.exhaustive
@pytest.mark.parametrize("act", ["statement", "autocommit", "commit", "rollback"])
def test_an_interrupt_at_any_line(monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    monkeypatch.setattr(row_writes, "_LOOK_ROWS", 2)
    monkeypatch.setattr(spilled_writes, "_PIECE_ROWS", 3)
    for number in count(FIRST_LINE, STRIDE):
        with engine(config=_LITTLE) as db:
            session = _filled(db, autocommit=act == "autocommit")
            if act in ("commit", "rollback"):
                run(session, _TEXT)
            interrupter = LineInterrupter(number)
            try:
                with interrupter:
                    if act == "commit":
                        session.commit()
                    elif act == "rollback":
                        session.rollback()
                    else:
                        run(session, _TEXT)
            except KeyboardInterrupt:
                pass
            try:
                _check(db, session, act)
            except BaseException as error:
                error.add_note(f"interrupted at line {number}: {interrupter.where}")
                raise
        if not interrupter.where:
            break


def _check(db: Engine, session: Session, act: str) -> None:
    if act == "rollback":  # the program does it again
        session.rollback()
    own, other = _content(session), db.session(autocommit=True)
    # A COMMIT that was interrupted has happened, or its transaction goes on.
    expected = {"rollback": (_OLD,), "commit": (_NEW,)}.get(act, (_SMALL, _NEW))
    assert own in expected
    if act == "statement":
        assert _content(other) == _OLD
    run(session, "INSERT INTO t VALUES (100, 1)")
    run(session, "UPDATE t SET v = v + 0 WHERE id < 50")
    assert _content(session) == [*own, (100, 1)]
    session.commit()
    assert _content(other) == [*own, (100, 1)]
    tablespace = db.database.tablespace
    tablespace.run(lambda: None)
    assert tablespace.state.staged.stages == {}
    assert tablespace.locks.held() == {}
    db.database.run_checkpoint()
    db.reopen()
    assert _content(db.session()) == [*own, (100, 1)]
