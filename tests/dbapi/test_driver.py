"""What herdpy's driver promises beyond the public suite. Runs in memory and on a directory."""

import datetime
import gc
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import herdpy
from tests.fixtures.ports import own_port
from tests.fixtures.targets import open_target


@pytest.fixture(params=["memory", "directory", "tcp", "grpc"])
def target(request, tmp_path) -> Iterator[str]:
    if request.param in ("tcp", "grpc"):
        with open_target(request.param) as url:
            yield url
    else:
        yield ":memory:" if request.param == "memory" else str(tmp_path / "data")


@pytest.fixture
def connection(target):
    connection = herdpy.connect(target)
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, x DOUBLE PRECISION)")
    connection.commit()
    yield connection
    try:
        connection.close()
    except herdpy.InterfaceError:
        pass


@pytest.fixture
def directory(tmp_path) -> str:
    return str(tmp_path / "data")


def count(connection) -> int:
    return connection.execute("SELECT count(*) FROM t").fetchone()[0]


# --- statements and results ----------------------------------------------------------------------


def test_round_trip(connection) -> None:
    cursor = connection.execute("INSERT INTO t VALUES (?, ?, ?)", (1, "ant", 0.5))
    assert cursor.rowcount == 1
    assert cursor.description is None
    found = connection.execute("SELECT id, name, x FROM t WHERE id = ?", [1])
    assert found.fetchone() == (1, "ant", 0.5)
    assert found.fetchone() is None
    assert [column[:2] for column in found.description] == [
        ("id", "BIGINT"), ("name", "TEXT"), ("x", "DOUBLE"),
    ]  # fmt: skip


def test_named_parameters(connection) -> None:
    connection.execute("INSERT INTO t VALUES (:id, :name, :x)", {"id": 1, "name": "a", "x": 1.0})
    found = connection.execute("SELECT name FROM t WHERE id = :id", {"id": 1})
    assert found.fetchall() == [("a",)]


@pytest.mark.parametrize("parameters", ["1", b"1", bytearray(b"1"), 1, {1}, iter([1]), 0, ""])
def test_parameters_must_be_a_sequence_or_mapping(connection, parameters) -> None:
    with pytest.raises(herdpy.ProgrammingError, match="parameters: expected") as caught:
        connection.execute("SELECT id FROM t WHERE id = ?", parameters)
    assert "(value,)" in caught.value.hint


def test_wrong_number_of_parameters(connection) -> None:
    for parameters in [None, (), (1, 2)]:
        with pytest.raises(herdpy.ProgrammingError) as caught:
            connection.execute("SELECT id FROM t WHERE id = ?", parameters)
        assert caught.value.sqlstate == "07001"


def test_executemany_is_all_or_nothing(connection) -> None:
    cursor = connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", ((n, str(n), None) for n in range(100))
    )
    assert cursor.rowcount == 100
    with pytest.raises(herdpy.IntegrityError) as caught:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(100, "", 0.0), (5, "", 0.0)])
    assert caught.value.sqlstate == "23505"
    assert count(connection) == 100
    assert connection.executemany("INSERT INTO t VALUES (?, ?, ?)", []).rowcount == 0


def test_a_script_is_run_in_the_transaction_that_is_open(connection) -> None:
    connection.execute("INSERT INTO t VALUES (1, 'ant', 0)")
    script = """-- a dump; of two rows
        INSERT INTO t VALUES (2, 'b;c', 1.5);
        INSERT INTO t VALUES (3, 'it''s', NULL); SELECT count(*) FROM t;
    """
    assert connection.executescript(script).fetchall() == [(3,)]
    connection.rollback()
    assert count(connection) == 0
    assert connection.cursor().executescript(" -- nothing").description is None


def test_a_script_ends_with_the_statement_that_fails(connection) -> None:
    script = "INSERT INTO t VALUES (1, 'a', 0);\n\nINSERT INTO t VALUES (1, 'b', 0);\nSELECT 1"
    with pytest.raises(herdpy.IntegrityError) as caught:
        connection.executescript(script)
    assert "line 3 of the script" in caught.value.__notes__[0]
    assert connection.execute("SELECT name FROM t").fetchall() == [("a",)]
    with pytest.raises(herdpy.ProgrammingError, match="no end"):
        connection.executescript("SELECT 'a")


@pytest.mark.parametrize("rows", ["abc", b"abc", {"a": 1}, 5, ["abc"], [5], [b"abc"]])
def test_executemany_wants_rows(connection, rows) -> None:
    with pytest.raises(herdpy.ProgrammingError):
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    assert count(connection) == 0


def test_executemany_goes_wrong_with_the_generator(connection) -> None:
    def rows():
        yield (1, "a", 0.0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows())
    assert count(connection) == 0


def test_cursors_stream_and_iterate(connection) -> None:
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, "", 0.0) for n in range(10)])
    cursor = connection.cursor()
    assert cursor.rowcount == -1
    assert cursor.execute("SELECT id FROM t ORDER BY id") is cursor
    assert next(cursor) == (0,)
    assert cursor.fetchmany(2) == [(1,), (2,)]
    assert cursor.fetchmany() == [(3,)]
    assert cursor.fetchmany(0) == []
    assert [row[0] for row in cursor] == [4, 5, 6, 7, 8, 9]
    assert cursor.fetchall() == []
    with pytest.raises(herdpy.ProgrammingError):
        cursor.fetchmany(-1)


def test_two_cursors_of_one_connection(connection) -> None:
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, "", 0.0) for n in range(4)])
    one = connection.execute("SELECT id FROM t ORDER BY id")
    two = connection.execute("SELECT id FROM t ORDER BY id DESC")
    assert [one.fetchone(), two.fetchone(), one.fetchone(), two.fetchone()] == [
        (0,), (3,), (1,), (2,),
    ]  # fmt: skip


def test_fetch_without_result(connection) -> None:
    cursor = connection.cursor()
    for statement in [None, "INSERT INTO t VALUES (1, 'a', 0.0)"]:
        if statement:
            cursor.execute(statement)
        for fetch in (
            cursor.fetchone,
            cursor.fetchmany,
            cursor.fetchall,
            cursor.fetch_arrow_table,
            cursor.fetch_record_batch,
            lambda: next(cursor),
        ):
            with pytest.raises(herdpy.ProgrammingError) as caught:
                fetch()
            assert caught.value.sqlstate == "24000"


def test_a_failed_statement_leaves_no_old_result(connection) -> None:
    cursor = connection.execute("SELECT id FROM t")
    with pytest.raises(herdpy.ProgrammingError):
        cursor.execute("SELECT no_such_column FROM t")
    assert cursor.description is None
    assert cursor.rowcount == -1
    with pytest.raises(herdpy.ProgrammingError):
        cursor.fetchone()


def test_cursor_close(connection) -> None:
    with connection.execute("SELECT id FROM t") as cursor:
        pass
    cursor.close()
    for use in (
        cursor.fetchone,
        cursor.fetchall,
        cursor.__enter__,
        lambda: cursor.execute("SELECT 1"),
        lambda: cursor.executemany("SELECT 1", []),
    ):
        with pytest.raises(herdpy.InterfaceError):
            use()


def test_arrow_and_pandas(connection) -> None:
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, "x", 0.5) for n in range(10)])
    table = connection.execute("SELECT id, name, x FROM t ORDER BY id").fetch_arrow_table()
    assert table.column_names == ["id", "name", "x"]
    assert table["id"].to_pylist() == list(range(10))
    reader = connection.execute("SELECT id FROM t").fetch_record_batch(rows=3)
    assert sum(batch.num_rows for batch in reader) == 10
    frame = connection.execute("SELECT sum(x) AS total FROM t").to_df()
    assert frame["total"].tolist() == [5.0]
    point = connection.execute("SELECT name FROM t WHERE id = 3").fetch_arrow_table()
    assert point.to_pydict() == {"name": ["x"]}


def test_arrow_takes_a_whole_result(connection) -> None:
    connection.execute("INSERT INTO t VALUES (1, 'a', 0.0)")
    cursor = connection.execute("SELECT id FROM t")
    cursor.fetchone()
    with pytest.raises(herdpy.ProgrammingError, match="fetched already"):
        cursor.fetch_arrow_table()
    cursor.execute("SELECT id FROM t").fetch_arrow_table()
    assert cursor.fetchone() is None
    with pytest.raises(herdpy.ProgrammingError):
        cursor.fetch_record_batch(0)


def test_types_out(connection) -> None:
    connection.execute(
        "CREATE TABLE v (id INTEGER PRIMARY KEY, b BOOLEAN, d DECIMAL(9,2), t VARCHAR(5),"
        " y BYTEA, day DATE, at TIMESTAMP)"
    )
    row = (
        1, True, Decimal("1.50"), "abc", b"\0\xff", datetime.date(2013, 1, 2),
        datetime.datetime(2013, 1, 2, 3, 4, 5, 6),
    )  # fmt: skip
    connection.execute("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    cursor = connection.execute("SELECT id, b, d, t, y, day, at FROM v WHERE id = 1")
    assert cursor.fetchone() == row
    objects = [
        herdpy.NUMBER, herdpy.NUMBER, herdpy.NUMBER, herdpy.STRING, herdpy.BINARY,
        herdpy.DATETIME, herdpy.DATETIME,
    ]  # fmt: skip
    assert [column[1] for column in cursor.description] == objects
    assert cursor.description[2][4:6] == (9, 2)
    assert cursor.description[3][3] == 5


@pytest.mark.sync_face("herdpy.aio has no sql()")
def test_sql_prints_a_box(connection, capsys) -> None:
    inserted = connection.sql("INSERT INTO t VALUES (1, 'ant', 0.5), (2, NULL, 1)")
    assert str(inserted) == "2 rows"
    box = connection.sql("SELECT id, name FROM t WHERE id <= ? ORDER BY id", (2,))
    box.show()
    assert "│      2 │ NULL │" in capsys.readouterr().out
    assert repr(box).endswith("2 rows")
    assert list(box) == [(1, "ant"), (2, None)]
    connection.executemany("INSERT INTO t VALUES (?, '', 0)", [(n,) for n in range(3, 100)])
    box = connection.sql("SELECT id FROM t ORDER BY id")
    assert str(box).endswith("the first 40 rows; there are more")
    assert len(box.fetchall()) == 99


# --- transactions --------------------------------------------------------------------------------


def test_the_first_statement_begins_a_transaction(connection) -> None:
    assert not connection.in_transaction
    connection.execute("INSERT INTO t VALUES (1, 'a', 0.0)")
    assert connection.in_transaction
    connection.rollback()
    assert not connection.in_transaction
    assert count(connection) == 0
    connection.rollback()
    connection.commit()
    connection.commit()
    connection.rollback()


def test_autocommit(connection) -> None:
    assert connection.autocommit is False
    connection.autocommit = True
    connection.execute("INSERT INTO t VALUES (1, 'a', 0.0)")
    assert not connection.in_transaction
    connection.rollback()
    assert count(connection) == 1
    connection.execute("BEGIN")
    for value in (False, 1, None):
        with pytest.raises(herdpy.ProgrammingError):
            connection.autocommit = value
    connection.execute("INSERT INTO t VALUES (2, 'a', 0.0)")
    connection.execute("ROLLBACK")
    assert count(connection) == 1
    connection.autocommit = False
    connection.execute("DELETE FROM t")
    connection.rollback()
    assert count(connection) == 1


@pytest.mark.parametrize("autocommit", [False, True])
def test_transaction_block(connection, autocommit) -> None:
    connection.autocommit = autocommit
    with connection.transaction() as same:
        assert same is connection
        connection.execute("INSERT INTO t VALUES (1, 'a', 0.0)")
    assert not connection.in_transaction
    with pytest.raises(ZeroDivisionError), connection.transaction("os"):  # noqa: PT012 - a block
        connection.execute("INSERT INTO t VALUES (2, 'a', 0.0)")
        raise ZeroDivisionError
    assert not connection.in_transaction
    assert count(connection) == 1
    connection.rollback()
    with connection.transaction(durability="none"):
        with pytest.raises(herdpy.Error) as caught, connection.transaction("os"):
            pass
        assert caught.value.sqlstate == "25001"
        connection.execute("INSERT INTO t VALUES (3, 'a', 0.0)")
    assert count(connection) == 2
    connection.rollback()
    with pytest.raises(herdpy.ProgrammingError), connection.transaction("maybe"):
        pass
    assert not connection.in_transaction


def test_with_commits_or_rolls_back_and_closes(directory) -> None:
    with herdpy.connect(directory) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(herdpy.InterfaceError):
        connection.execute("SELECT 1")
    with pytest.raises(ZeroDivisionError), herdpy.connect(directory) as failing:  # noqa: PT012
        failing.execute("INSERT INTO t VALUES (2)")
        raise ZeroDivisionError
    with herdpy.connect(directory) as connection:
        assert count(connection) == 1
        connection.close()


# --- life ----------------------------------------------------------------------------------------


def test_use_after_close(connection) -> None:
    cursor = connection.execute("SELECT id FROM t")
    connection.close()
    assert connection.is_closed
    connection.close()
    for use in (
        connection.commit,
        connection.rollback,
        connection.cursor,
        connection.cancel,
        connection.transaction,
        connection.__enter__,
        lambda: connection.autocommit,
        lambda: connection.in_transaction,
        lambda: connection.execute("SELECT 1"),
        lambda: connection.executemany("SELECT 1", []),
        cursor.fetchone,
        cursor.fetchall,
        cursor.fetchmany,
        cursor.fetch_arrow_table,
        lambda: cursor.execute("SELECT 1"),
    ):
        with pytest.raises(herdpy.InterfaceError, match="closed"):
            use()
    assert "closed" in repr(connection)
    cursor.close()


def test_close_rolls_back(directory) -> None:
    with herdpy.connect(directory) as keeper:
        keeper.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        keeper.commit()
        other = herdpy.connect(directory)
        other.execute("INSERT INTO t VALUES (1)")
        other.close()
        keeper.execute("INSERT INTO t VALUES (1)")  # no lock is left
        keeper.commit()
        assert count(keeper) == 1


def in_a_ring(connection) -> None:
    """Let the garbage collector alone find the connection."""
    ring = [connection]
    ring.append(ring)


@pytest.mark.sync_face("of a thread that holds it")
@pytest.mark.parametrize("is_cyclic", [False, True])
def test_a_collected_connection_rolls_back(directory, is_cyclic) -> None:
    with herdpy.connect(directory, lock_timeout_s=5) as keeper:
        keeper.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        keeper.commit()
        other = herdpy.connect(directory)
        other.execute("INSERT INTO t VALUES (1)")
        if is_cyclic:
            in_a_ring(other)
        with pytest.warns(ResourceWarning, match="open transaction"):  # noqa: PT031 - two steps
            del other
            gc.collect()
        keeper.execute("INSERT INTO t VALUES (1)")
        keeper.commit()
        assert count(keeper) == 1


@pytest.mark.sync_face("reaches into the connection")
@pytest.mark.timeout(60)
def test_a_connection_collected_under_the_monitor_does_not_block(directory) -> None:
    with herdpy.connect(directory, lock_timeout_s=30) as keeper:
        keeper.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        keeper.commit()
        other = herdpy.connect(directory)
        other.execute("INSERT INTO t VALUES (1)")
        in_a_ring(other)
        holder = [other]
        del other
        names = {
            "__name__": "herdpy.engine.imagined",  # a frame of the engine, in the middle of it
            "monitor": keeper._session.tablespace.monitor,
            "collect": lambda: (holder.clear(), gc.collect()),
        }
        with pytest.warns(ResourceWarning, match="open transaction"):
            exec("with monitor: collect()", names)
        keeper.execute("INSERT INTO t VALUES (1)")  # waits for the lock, if it comes first
        keeper.commit()
        assert count(keeper) == 1


def test_a_collected_connection_closes_the_database(directory) -> None:
    connection = herdpy.connect(directory)
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    connection.commit()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del connection
        gc.collect()
    # Another durability is refused while it is open.
    with herdpy.connect(directory, durability="none") as connection:
        assert count(connection) == 0


def test_connect_waits_for_the_close_of_collected_connections(directory) -> None:
    """Repeated, since the close runs on a thread of its own and is often there in time."""
    for _ in range(10):
        connection = herdpy.connect(directory)
        connection.execute("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY)")
        connection.commit()
        del connection
        with herdpy.connect(directory, durability="none") as other:
            assert count(other) == 0


def test_one_engine_per_directory(directory, tmp_path) -> None:
    with herdpy.connect(directory) as one:
        one.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        one.commit()
        (tmp_path / "link").symlink_to(directory)
        with herdpy.connect(tmp_path / "link", autocommit=True) as two:
            two.execute("INSERT INTO t VALUES (1)")
            assert count(one) == 1
        one.rollback()
        one.execute("INSERT INTO t VALUES (2)")
    with herdpy.connect(directory) as three:
        assert count(three) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("durability", "none"), ("memory_bytes_max", 64 * 1024 * 1024)]
)
def test_other_options_of_an_open_database(directory, name, value) -> None:
    with herdpy.connect(directory):
        with pytest.raises(herdpy.ProgrammingError) as caught:
            herdpy.connect(directory, **{name: value})
        assert caught.value.sqlstate == "55006"
        assert name in caught.value.message
        assert repr(value) in caught.value.message
    with herdpy.connect(directory, **{name: value}) as first:
        herdpy.connect(directory, **{name: value}).close()
        first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")


@pytest.mark.parametrize(
    "options",
    [
        {"durability": "fsync"},
        {"durability": None},
        {"autocommit": 1},
        {"memory_bytes_max": 5},
        {"memory_bytes_max": "1G"},
        {"lock_timeout_s": -1},
        {"statement_timeout_s": "5s"},
        {"idle_in_transaction_timeout_s": float("nan")},
    ],
)
def test_bad_options_open_nothing(directory, options) -> None:
    with pytest.raises(herdpy.ProgrammingError) as caught:
        herdpy.connect(directory, **options)
    assert caught.value.sqlstate == "22023"
    assert next(iter(options)) in caught.value.message
    assert not os.path.exists(directory)


def test_memory_databases_are_private() -> None:
    with herdpy.connect() as one, herdpy.connect(":memory:") as two:
        one.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        one.commit()
        with pytest.raises(herdpy.ProgrammingError) as caught:
            two.execute("SELECT id FROM t")
        assert caught.value.sqlstate == "42P01"


def test_threads_share_a_connection(connection) -> None:
    errors: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for n in range(start, start + 50):
                connection.execute("INSERT INTO t VALUES (?, '', 0.0)", (n,))
                assert connection.execute("SELECT id FROM t WHERE id = ?", (n,)).fetchone() == (n,)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n * 1000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert count(connection) == 200


def test_threads_open_and_close_one_directory(directory) -> None:
    with herdpy.connect(directory) as first:
        first.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    errors: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for n in range(start, start + 10):
                with herdpy.connect(directory) as connection:
                    connection.execute("INSERT INTO t VALUES (?)", (n,))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n * 1000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with herdpy.connect(directory) as last:
        assert count(last) == 40


@pytest.mark.sync_face("a fork has no loop")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_can_use_nothing(directory) -> None:
    # Garbage of other tests is not collected in the child: gRPC would join threads that it lacks.
    gc.collect()
    gc.freeze()
    connection = herdpy.connect(directory)
    connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    connection.commit()
    connection.execute("INSERT INTO t VALUES (1)")
    cursor = connection.execute("SELECT id FROM t")
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(100)  # it would outlive the process that pytest-timeout ends
        try:
            before = bytes_written()
            uses = [
                connection.commit, connection.close, connection.cursor, cursor.fetchone,
                lambda: connection.execute("INSERT INTO t VALUES (2)"),
            ]  # fmt: skip
            for use in uses:
                with pytest.raises(herdpy.InterfaceError, match="fork"):
                    use()
            with pytest.raises(herdpy.OperationalError, match=str(os.getppid())):
                herdpy.connect(directory)  # the parent holds the directory
            del connection, cursor
            gc.collect()
            assert bytes_written() == before
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert cursor.fetchone() == (1,)
    connection.commit()
    connection.close()
    with herdpy.connect(directory) as again:
        assert again.execute("SELECT id FROM t").fetchall() == [(1,)]
    gc.unfreeze()


def bytes_written() -> int:
    """Return how many this process has, where the platform tells it.

    The files would not do: the parent's threads go on, and an idle log marks itself.
    """
    path = Path("/proc/self/io")
    return int(path.read_text().split("wchar: ")[1].split()[0]) if path.exists() else 0


def test_errors_are_attributes_and_picklable(connection) -> None:
    with pytest.raises(connection.ProgrammingError) as caught:
        connection.execute("SELECT nope FROM t")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value)
    assert (copy.sqlstate, copy.retry, copy.hint, copy.position) == (
        caught.value.sqlstate, caught.value.retry, caught.value.hint, caught.value.position,
    )  # fmt: skip
    assert copy.sqlstate == "42703"
    assert copy.position is not None


def test_cancel_from_another_thread(connection) -> None:
    connection.executemany("INSERT INTO t VALUES (?, '', 0.0)", [(n,) for n in range(5000)])
    connection.cancel()  # nothing runs: nothing happens
    assert count(connection) == 5000


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(herdpy.OperationalError, match="cannot be reached") as caught:
        herdpy.connect(f"herd://127.0.0.1:{own_port()}")
    assert caught.value.sqlstate == "08001"
    assert caught.value.retry is herdpy.Retry.SAFE
    assert "herdpy serve" in caught.value.hint


@pytest.mark.parametrize("autocommit", [True, False])
def test_autocommit_may_be_set_to_what_it_is_in_a_transaction(autocommit: bool) -> None:
    with herdpy.connect(":memory:", autocommit=autocommit) as connection:
        connection.execute("BEGIN")
        connection.autocommit = connection.autocommit
        assert connection.in_transaction
        with pytest.raises(herdpy.ProgrammingError) as caught:
            connection.autocommit = not autocommit
        assert caught.value.sqlstate == "25001"


# --- others' statements and connections ----------------------------------------------------------


def test_a_connection_is_killed_by_its_number(server) -> None:
    victim, killer = herdpy.connect(server.url), herdpy.connect(server.url, autocommit=True)
    with killer:
        killer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        victim.execute("INSERT INTO t VALUES (1)")
        query = "SELECT id, protocol FROM sysclients WHERE in_transaction"
        ((number, protocol),) = killer.execute(query).fetchall()
        assert protocol == "tcp"
        killer.execute(f"KILL CONNECTION {number}")
        with pytest.raises(herdpy.OperationalError) as caught:
            victim.execute("SELECT 1")
        assert caught.value.sqlstate in ("57P01", "08006")
        killer.execute("INSERT INTO t VALUES (1)")  # waits for the lock of what is rolled back
        listed = "SELECT count(*) FROM sysclients WHERE id = ?"
        while killer.execute(listed, (number,)).fetchone() != (0,):  # it ends behind its ROLLBACK
            pass
        with pytest.raises(herdpy.Error) as caught:
            killer.execute(f"KILL {number}")
        assert caught.value.sqlstate == "42704"
    try:
        victim.close()
    except herdpy.Error:
        pass  # it is gone


@pytest.mark.parametrize(
    "fetch", ["fetchone", "fetchmany", "fetchall", "fetch_arrow_table", "__next__"]
)
def test_an_open_result_of_a_killed_connection_is_not_read_on(fetch: str, tmp_path: Path) -> None:
    with herdpy.connect(tmp_path / "data", autocommit=True) as killer:
        victim = herdpy.connect(tmp_path / "data")
        killer.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        killer.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(50)])
        whole = victim.execute("SELECT id FROM t ORDER BY id")
        begun = victim.execute("SELECT id FROM t ORDER BY id")
        assert begun.fetchone() == (0,)
        batches = victim.execute("SELECT id FROM t ORDER BY id").fetch_record_batch(10)
        assert batches.read_next_batch().num_rows == 10
        query = "SELECT id FROM sysclients WHERE in_transaction"
        ((number,),) = killer.execute(query).fetchall()
        killer.execute(f"KILL CONNECTION {number}")
        cursor = whole if fetch == "fetch_arrow_table" else begun
        for read in (getattr(cursor, fetch), batches.read_next_batch):
            with pytest.raises(herdpy.OperationalError) as caught:
                read()
            assert caught.value.sqlstate == "57P01"
        victim.close()
