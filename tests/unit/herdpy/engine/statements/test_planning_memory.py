"""What is made of a statement's text is charged to the database before it is taken."""

from collections.abc import Callable, Iterator

import pytest

from herdpy.config import Config
from herdpy.engine.session.session import Session
from herdpy.engine.statements.planning_memory import PlanningMemory
from herdpy.errors import Error, MemoryLimitError, QueryCanceledError
from herdpy.limits import look_bytes
from tests.fixtures.engines import Engine, engine

MIB = 1024 * 1024
_ROWS = ", ".join(f"({n}, 'a')" for n in range(40_000))
STATEMENTS = {
    "read": f"INSERT INTO t VALUES {_ROWS}",
    "bound": f"SELECT 1 WHERE 1 IN ({', '.join(map(str, range(100_000)))})",
    "not read": f"INSERT INTO t VALUES {_ROWS}, ((",
}


@pytest.fixture
def db() -> Iterator[Engine]:
    with engine(config=Config(memory_bytes_max=16 * MIB)) as made:
        session = made.session(autocommit=True)
        session.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        yield made


def held(db: Engine) -> tuple[int, int]:
    """Return the bytes of statements now, and at the most so far."""
    account = db.database.memory.statements
    return account.bytes_used, account.bytes_peak


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_text_for_which_there_is_no_room_is_refused(db: Engine, name: str) -> None:
    session = db.session(autocommit=True)
    with pytest.raises(MemoryLimitError) as caught:
        session.execute(STATEMENTS[name])
    assert caught.value.sqlstate == "53200"
    assert "a statement that is read and planned found no memory" in caught.value.message
    used, peak = held(db)
    assert used == 0
    assert 8 * MIB < peak <= 16 * MIB
    assert list(session.execute("SELECT count(*) FROM t").rows()) == [(0,)]


def test_what_others_hold_leaves_less(db: Engine) -> None:
    text = STATEMENTS["read"][: len(STATEMENTS["read"]) // 8].rpartition(", (")[0]
    session = db.session(autocommit=True)
    others = db.database.memory.transactions.reserve("others")
    assert others.grow_to(8 * MIB)
    rest = db.database.memory.caches.reserve("others")
    rest.hold(7 * MIB)
    with pytest.raises(MemoryLimitError):
        session.execute(text)
    others.close()
    rest.close()
    assert session.execute(text).row_count > 1_000
    used, peak = held(db)
    assert (used, peak > 100 * look_bytes) == (0, True)


def test_a_small_statement_asks_for_nothing(db: Engine) -> None:
    session = db.session(autocommit=True)
    session.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    list(session.execute("SELECT id, upper(s) FROM t WHERE id IN (1, 2) ORDER BY s").rows())
    assert held(db) == (0, 0)


def failing(session: Session) -> None:
    session.execute(f"SELECT nothing FROM ({STATEMENTS['read'][len('INSERT INTO t ') : 40_000]}")


def cancelled(session: Session) -> None:
    class Cancelling(PlanningMemory):
        def look(self) -> None:
            super().look()
            if self.looks == 50:
                session.cancel()

    session.planning = Cancelling(session.database.memory.statements, "cancelled")
    session.execute(STATEMENTS["read"])


@pytest.mark.parametrize(
    ("call", "error"), [(failing, Error), (cancelled, QueryCanceledError)], ids=["error", "cancel"]
)
def test_everything_is_given_back(
    db: Engine, call: Callable[[Session], None], error: type[Error]
) -> None:
    session = db.session(autocommit=True)
    with pytest.raises(error):
        call(session)
    used, peak = held(db)
    assert used == 0
    assert peak > 0
    assert not db.database.memory.statements.reservations
