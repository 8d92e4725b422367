"""Real threads on a real directory: one wins a key, sums stay, a lost thread leaves no lock.

HERDPY_ROUNDS sets how often (`make threads` takes 10,000).
"""

import gc
import os
import threading
from pathlib import Path

import pytest

import herdpy
from tests.fixtures.engines import Background, race_of_inserts

pytestmark = pytest.mark.integration

ROUNDS = int(os.environ.get("HERDPY_ROUNDS", "300"))


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_of_32_threads_that_insert_one_key_one_wins(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "db")
    shared = herdpy.connect(":memory:" if kind == "memory" else path, durability="os")
    shared.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, winner BIGINT)")
    shared.commit()
    database = shared._claim._shared.database
    assert database is not None
    settings = shared._session.settings
    found = race_of_inserts(lambda: database.session(settings, autocommit=True), rounds=ROUNDS)
    assert shared.execute("SELECT id, winner FROM t WHERE id >= 0 ORDER BY id").fetchall() == found
    shared.close()
    if kind == "directory":
        with herdpy.connect(path) as again:
            rows = again.execute("SELECT id, winner FROM t WHERE id >= 0 ORDER BY id").fetchall()
            assert rows == found


def test_transfers_checkpoints_and_compactions_keep_the_sum(tmp_path: Path) -> None:
    path, accounts, transfers = str(tmp_path / "db"), 50, ROUNDS
    with herdpy.connect(path, durability="os") as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, 100) for i in range(accounts)])
    keeper = herdpy.connect(path, durability="os")
    database = keeper._claim._shared.database
    assert database is not None
    is_over = threading.Event()

    def transfer(first: int) -> None:
        with herdpy.connect(path, durability="os") as connection:
            done = 0
            while done < transfers:
                low, high = (first + done) % accounts, (first * 7 + 3 * done) % accounts
                done += 1
                try:  # any order: deadlocks are part of it
                    connection.execute("UPDATE t SET v = v - 1 WHERE id = ?", (low,))
                    connection.execute("UPDATE t SET v = v + 1 WHERE id = ?", (high,))
                except herdpy.OperationalError as error:
                    if error.sqlstate not in ("40P01", "40001"):
                        raise
                    connection.rollback()
                    continue
                connection.commit()

    def keep_house() -> None:
        while not is_over.is_set():
            database.run_checkpoint()
            database.run_compaction()

    def read() -> None:
        with herdpy.connect(path, durability="os", autocommit=True) as connection:
            while not is_over.is_set():
                rows = connection.execute("SELECT v FROM t WHERE id >= 0").fetchall()
                assert sum(v for (v,) in rows) == 100 * accounts

    with Background() as others, Background() as writers:
        others.start(keep_house)
        others.start(read)
        for first in range(4):
            writers.start(lambda first=first: transfer(first))
        try:
            writers.join()
        finally:
            is_over.set()
    keeper.close()
    with herdpy.connect(path) as connection:
        rows = connection.execute("SELECT v FROM t WHERE id >= 0").fetchall()
        assert sum(v for (v,) in rows) == 100 * accounts


@pytest.mark.filterwarnings("ignore:a herdpy connection to:ResourceWarning")
def test_a_thread_that_dies_with_a_transaction_leaves_no_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    other = herdpy.connect(path, autocommit=True, lock_timeout_s=10.0)
    other.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    other.execute("INSERT INTO t VALUES (1, 10)")

    def work() -> None:
        connection = herdpy.connect(path)
        connection.execute("UPDATE t SET v = 0 WHERE id = 1")
        raise SystemExit

    def die() -> None:
        try:
            work()
        except SystemExit:
            pass  # its frames go, and the connection with them

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    gc.collect()
    assert other.execute("UPDATE t SET v = v + 1 WHERE id = 1").rowcount == 1
    assert other.execute("SELECT v FROM t WHERE id = 1").fetchone() == (11,)
    other.close()


def test_threads_share_one_connection(tmp_path: Path) -> None:
    with herdpy.connect(str(tmp_path / "db"), durability="os") as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")

        def work(start: int) -> None:
            for key in range(start, start + ROUNDS):
                connection.execute("INSERT INTO t VALUES (?, ?)", (key, start))
                assert connection.execute("SELECT v FROM t WHERE id = ?", (key,)).fetchone()
                if key % 10 == 0:
                    connection.commit()

        with Background() as background:
            for number in range(4):
                background.start(lambda number=number: work(number * 1_000_000))
        connection.commit()
        assert len(connection.execute("SELECT id FROM t WHERE id >= 0").fetchall()) == 4 * ROUNDS
