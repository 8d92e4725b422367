"""A server that is killed, or restarted, under clients of a pool: everything happens once.

The pools of both faces; also where each life is at another address, as a cluster has its leaders.
make restarts N=10 gives the server N more lives.
"""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import herdpy
from herdpy.driver.connection import Connection
from tests.fixtures.engines import Background
from tests.fixtures.faces import open_face
from tests.fixtures.served import Served
from tests.fixtures.served import served as serving

CLIENTS = 4
LIVES = int(os.environ.get("HERDPY_RESTARTS", "2"))
STEPS = 12
"""Of each client in each life of the server, at least."""


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", port_count=getattr(request, "param", 1)) as made:
        yield made


@pytest.fixture
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with open_face(request.param, monkeypatch):
        yield request.param


@pytest.mark.parametrize(
    ("number", "face", "served"),
    [
        (signal.SIGKILL, "sync", 1),
        (signal.SIGTERM, "sync", 1),
        (signal.SIGTERM, "async", 1),
        (signal.SIGKILL, "sync", 3),
        (signal.SIGKILL, "async", 3),
    ],
    ids=["killed", "drained", "drained-async", "moved", "moved-async"],
    indirect=["face", "served"],
)
def test_everything_happens_once(served: Served, number: signal.Signals, face: str) -> None:
    """Rows go into a table without a key: one that came twice, or not at all, would show."""
    with herdpy.connect(served.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE done (client BIGINT, step BIGINT)")
        conn.execute("CREATE TABLE accounts (id BIGINT PRIMARY KEY, cents BIGINT)")
        conn.executemany("INSERT INTO accounts VALUES (?, 100)", [(n,) for n in range(CLIENTS)])
    steps = [0] * CLIENTS
    has_moved = threading.Condition()
    is_over = threading.Event()

    def client(me: int, pool: herdpy.Pool) -> None:
        def transfer(conn: Connection) -> None:
            conn.execute("INSERT INTO done VALUES (?, ?)", (me, steps[me]))
            conn.execute("UPDATE accounts SET cents = cents - 1 WHERE id = ?", (me,))
            other = (me + 1) % CLIENTS
            conn.execute("UPDATE accounts SET cents = cents + 1 WHERE id = ?", (other,))

        while not is_over.is_set():
            if steps[me] % 2:
                pool.run(transfer, retry_timeout_s=120)
            else:
                with pool.connection() as conn:
                    conn.autocommit = True
                    # Outside transactions no statement fails.
                    conn.execute("INSERT INTO done VALUES (?, ?)", (me, steps[me]))
            with has_moved:
                steps[me] += 1
                has_moved.notify_all()

    def wait_for_steps() -> None:
        goal = [count + STEPS for count in steps]
        with has_moved:
            assert has_moved.wait_for(
                lambda: all(now >= then for now, then in zip(steps, goal, strict=True)), 120
            )

    with herdpy.Pool(served.url, connections_max=CLIENTS, timeout_s=120) as pool:
        with Background() as background:
            for me in range(CLIENTS):
                background.start(lambda me=me: client(me, pool))
            try:
                for life in range(LIVES):
                    wait_for_steps()
                    if life == 1:
                        with herdpy.connect(served.url) as conn:
                            conn.checkpoint()
                    served.stop(number)
                    served.start()
                wait_for_steps()
            finally:
                is_over.set()
        with pool.connection() as conn:
            found = conn.execute("SELECT client, step FROM done ORDER BY client, step").fetchall()
            total = conn.execute("SELECT sum(cents) FROM accounts").fetchone()
    assert found == [(me, step) for me in range(CLIENTS) for step in range(steps[me])]
    assert total is not None
    assert total[0] == 100 * CLIENTS
