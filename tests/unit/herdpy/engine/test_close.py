"""close() beside other threads: it waits for no lock that its own sessions hold."""

import queue
from typing import Any

import pytest

from herdpy.errors import InterfaceError, QueryCanceledError
from herdpy.model.settings import Settings
from tests.fixtures.engines import Background, Engine, WatchedDriver, rows, run, table

ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.mark.parametrize("whole", ["database", "sessions"])
def test_a_statement_that_waits_for_a_lock_of_a_session_closed_later(whole: str) -> None:
    driver = WatchedDriver()
    db = Engine(driver=driver)
    waiter, holder = db.session(autocommit=True), db.session()
    table(holder, (1, 1))
    run(holder, "UPDATE t SET v = 2 WHERE id = 1")
    outcomes: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def wait() -> None:
        try:
            run(waiter, "UPDATE t SET v = 3 WHERE id = 1")
        except Exception as error:
            outcomes.put(error)
        else:
            outcomes.put(None)

    with Background() as background:
        background.start(wait, "waiter")
        assert driver.waits.get() == "waiter"
        if whole == "sessions":
            waiter.close()
            holder.close()
        db.database.close()
        assert isinstance(outcomes.get(), QueryCanceledError)
    db.open()
    assert rows(db.session(), ALL) == [(1, 1)]
    db.database.close()


def test_no_session_begins_while_the_database_closes() -> None:
    db = Engine()
    database = db.database
    last = db.session(autocommit=True)
    table(last)
    refused: list[Exception] = []

    class Late:
        """Tries to get a session when close() has listed them; put among them."""

        def cancel(self) -> None:
            try:
                database.session(Settings(), autocommit=True)
            except InterfaceError as error:
                refused.append(error)

        def close(self) -> None:
            self.cancel()

    late: Any = Late()
    database._sessions[-1] = late
    database.close()
    assert len(refused) == 2
    with pytest.raises(InterfaceError):
        run(last, "INSERT INTO t VALUES (1, 1)")
