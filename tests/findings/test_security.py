"""Findings about security: an ordinary login must not stop the server or outlive its rights."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import herdpy

WAITERS = 64  # as many as there are workers by default
_PATIENCE_S = 20.0
"""How long the old code is given to answer; nothing is measured by it."""


def connected(url: str, **options: Any) -> herdpy.Connection:
    separator = "&" if "?" in url else "?"
    return herdpy.connect(f"{url}{separator}retry_timeout_s=0", autocommit=True, **options)


def answered(question: Callable[[], Any]) -> Any:
    """Return the answer of a call in a thread; None: there is none."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(question()), daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return found[0] if found else None


@pytest.mark.finding("S4")
def test_waits_for_one_row_lock_do_not_stop_the_server(serve: Callable[..., Any]) -> None:
    server = serve()
    root = connected(server.url)
    root.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    root.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    holder = herdpy.connect(server.url)
    holder.execute("UPDATE t SET v = 100 WHERE id = 1")
    waiters = [connected(server.url) for _ in range(WAITERS)]
    errors: list[Exception] = []

    def update(waiter: herdpy.Connection) -> None:
        try:
            waiter.execute("UPDATE t SET v = v + 1 WHERE id = 1")
        except herdpy.Error as error:
            errors.append(error)

    threads = [threading.Thread(target=update, args=(each,), daemon=True) for each in waiters]
    for thread in threads:
        thread.start()
    # Inside a transaction statements had workers of their own before, too.
    count = "SELECT count(*) FROM sysstatements WHERE text LIKE 'UPDATE t SET v = v%'"
    while holder.execute(count).fetchone() != (WAITERS,):
        pass

    query = "SELECT id FROM sysstatements WHERE text LIKE 'UPDATE t SET v = v%' ORDER BY id DESC"
    found = answered(lambda: root.execute(query).fetchall())
    assert found is not None, "sysstatements did not answer"
    assert len(found) == WAITERS
    read = connected(server.url)
    assert answered(lambda: read.execute("SELECT v FROM t WHERE id = 2").fetchall()) == [(0,)]

    def new_transaction() -> str:
        other = herdpy.connect(server.url)
        other.execute("UPDATE t SET v = 5 WHERE id = 2")
        other.commit()
        return "committed"

    assert answered(new_transaction) == "committed"
    number = found[0][0]
    assert answered(lambda: root.execute(f"KILL STATEMENT {number}").rowcount) is not None
    holder.rollback()
    for thread in threads:
        thread.join(_PATIENCE_S)
    assert [getattr(error, "sqlstate", None) for error in errors] == ["57014"]
    assert root.execute("SELECT v FROM t ORDER BY id").fetchall() == [(WAITERS - 1,), (5,)]
