"""INSERT finds a key that is there wherever it stands, and takes one that is gone."""

import threading
from collections.abc import Iterator

import pytest

import herdpy
from tests.fixtures.engines import engine, run, table

TEXT = "INSERT INTO t VALUES (?, ?)"


@pytest.fixture
def connection() -> Iterator[herdpy.Connection]:
    with herdpy.connect(":memory:", autocommit=True) as opened:
        opened.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, v TEXT)")
        yield opened


def checkpoint(connection: herdpy.Connection) -> None:
    connection._session.database.run_checkpoint()


def rows(connection: herdpy.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT * FROM t ORDER BY a").fetchall()


@pytest.mark.parametrize("place", ["memtable", "pages", "run", "own writes", "own statement"])
def test_a_key_that_is_there_is_a_duplicate(connection: herdpy.Connection, place: str) -> None:
    connection.executemany(TEXT, [(1, "one"), (9, "nine")])
    if place in ("pages", "run"):
        checkpoint(connection)
    if place == "run":
        connection.execute(TEXT, (5, "five"))
        checkpoint(connection)
    if place == "own writes":
        connection.execute("BEGIN")
        connection.execute(TEXT, (5, "five"))
    before = rows(connection)
    taken = {"own writes": 5, "run": 5}.get(place, 9)
    batch = [(2, "two"), (taken, "again")]
    if place == "own statement":
        batch = [(2, "two"), (3, "three"), (2, "again")]
    with pytest.raises(herdpy.IntegrityError, match=r"\(a\)=\(") as caught:
        connection.executemany(TEXT, batch)
    assert caught.value.sqlstate == "23505"
    assert rows(connection) == before
    if place != "own statement":
        with pytest.raises(herdpy.IntegrityError, match=rf"\(a\)=\({taken}\)"):
            connection.execute(TEXT, batch[-1])
        assert rows(connection) == before


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("DOUBLE", "-1.5", "-1.5"),
        ("DECIMAL(8, 2)", "1.25", "1.25"),
        ("DATE", "DATE '2020-01-02'", "2020-01-02"),
        ("TIMESTAMP", "TIMESTAMP '2020-01-02 03:04:05'", "2020-01-02 03:04:05"),
        ("BYTEA", "decode('00ff', 'hex')", r"\x00ff"),
        ("BOOLEAN", "true", "true"),
    ],
)
def test_the_duplicate_is_shown_as_a_value_of_its_type(kind: str, value: str, shown: str) -> None:
    with herdpy.connect(":memory:", autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t (a {kind}, b TEXT, PRIMARY KEY (b, a))")
        connection.execute(f"INSERT INTO t VALUES ({value}, 'x')")
        with pytest.raises(herdpy.IntegrityError) as caught:
            connection.execute(f"INSERT INTO t VALUES ({value}, 'x')")
    assert f"(b, a)=(x, {shown})" in str(caught.value)


@pytest.mark.parametrize("place", ["memtable", "pages", "own writes"])
def test_a_deleted_key_is_free(connection: herdpy.Connection, place: str) -> None:
    connection.execute(TEXT, (1, "one"))
    if place == "pages":
        checkpoint(connection)
    if place == "own writes":
        connection.execute("BEGIN")
    connection.execute("DELETE FROM t WHERE a = ?", (1,))
    connection.execute(TEXT, (1, "again"))
    assert rows(connection) == [(1, "again")]


def test_an_insert_that_spills_leaves_no_rows_in_its_transaction() -> None:
    with engine() as db:
        session = db.session()
        table(session, (1, 1))
        run(session, "INSERT INTO t VALUES (2, 2)")
        transaction = session.transaction
        assert transaction is not None
        transaction.byte_count = db.config.transaction_bytes_max
        session.execute_many(TEXT, [(3, 3), (4, 4)])
        assert transaction.has_spilled
        assert transaction.fresh == ((), ())


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_insert_waits_for_another_of_its_key(
    connection: herdpy.Connection, is_committed: bool
) -> None:
    database = connection._session.database
    other = database.session(connection._session.defaults, autocommit=True)
    connection.execute("BEGIN")
    connection.execute(TEXT, (1, "first"))
    found: list[object] = []

    def insert() -> None:
        try:
            found.append(other.execute(TEXT, (1, "second")).row_count)
        except herdpy.IntegrityError as error:
            found.append(error.sqlstate)

    thread = threading.Thread(target=insert)
    thread.start()
    while not database.tablespace.locks._queues:
        pass
    connection.execute("COMMIT" if is_committed else "ROLLBACK")
    thread.join()
    assert found == (["23505"] if is_committed else [1])
    assert rows(connection) == [(1, "first" if is_committed else "second")]
    other.close()


def test_32_threads_insert_one_key_and_one_wins(connection: herdpy.Connection) -> None:
    database = connection._session.database
    sessions = [database.session(connection._session.defaults, autocommit=True) for _ in range(32)]
    for key in range(30):
        outcomes: list[str] = []

        def insert(number: int, key: int = key, outcomes: list[str] = outcomes) -> None:
            try:
                sessions[number].execute(TEXT, (key, str(number)))
                outcomes.append(str(number))
            except herdpy.IntegrityError:
                outcomes.append("")

        threads = [threading.Thread(target=insert, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [outcome for outcome in outcomes if outcome]
        assert (len(outcomes), len(winners)) == (32, 1)
        assert connection.execute("SELECT v FROM t WHERE a = ?", (key,)).fetchall() == [
            (winners[0],)
        ]
    for session in sessions:
        session.close()
