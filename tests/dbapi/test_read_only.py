"""READ ONLY transactions and nested blocks, over every transport and both faces."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import herdpy

WRITES = {
    "INSERT": "INSERT INTO t VALUES (?, 'x')",
    "UPDATE": "UPDATE t SET v = 'y' WHERE id = ?",
    "DELETE": "DELETE FROM t WHERE id = ?",
}
OTHERS = {
    "INSERT": ("UPSERT INTO t VALUES (1, 'u')", "EXPLAIN ANALYZE INSERT INTO t VALUES (9, 'x')"),
    "DELETE": ("DELETE FROM t WHERE false",),
    "CREATE TABLE": ("CREATE TABLE u (id BIGINT)", "CREATE TABLE IF NOT EXISTS t (id BIGINT)"),
    "DROP TABLE": ("DROP TABLE t",),
    "TRUNCATE TABLE": ("TRUNCATE t",),
    "CREATE ROLE": ("CREATE USER bob PASSWORD 'a password of bob'",),
    "ALTER ROLE": ("ALTER USER ann SET lock_timeout = '1s'",),
    "GRANT": ("GRANT SELECT ON t TO ann",),
    "REVOKE": ("REVOKE SELECT ON t FROM ann",),
    "ALTER TABLE": ("ALTER TABLE t OWNER TO ann",),
    "DROP ROLE": ("DROP USER ann",),
}
ALL = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture
def conn(target: str) -> Iterator[Any]:
    with herdpy.connect(target, autocommit=True) as made:
        made.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        made.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        made.execute("CREATE ROLE ann")  # with a password clients would have to log in
        yield made


def rows(conn: Any) -> list[tuple[Any, ...]]:
    return conn.execute(ALL).fetchall()


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(herdpy.InternalError) as caught:
        call()
    assert caught.value.sqlstate == "25006", caught.value
    assert f"cannot execute {words} in a read-only transaction" in str(caught.value)
    assert caught.value.hint


def shown(conn: Any, name: str = "transaction_read_only") -> str:
    return conn.execute(f"SHOW {name}").fetchone()[0]


def check_all_refused(conn: Any) -> None:
    for words, text in WRITES.items():
        for _ in range(3):  # also by the plans of before
            refused(lambda text=text: conn.execute(text, (7,)), words)
        refused(lambda text=text: conn.executemany(text, [(7,), (8,)]), words)
    for words, texts in OTHERS.items():
        for text in texts:
            refused(lambda text=text: conn.execute(text), words)
    batch = pa.table({"id": [70], "v": ["x"]})
    for mode in ("append", "upsert", "replace"):
        refused(lambda mode=mode: conn.ingest("t", batch, mode=mode), "INGEST")


def warm(conn: Any) -> None:
    """Have plans and fast paths of the writes."""
    for number in (7, 8):
        for text in WRITES.values():
            conn.execute(text, (number,))


@pytest.mark.parametrize("begin", ["BEGIN READ ONLY", "START TRANSACTION READ ONLY"])
def test_a_transaction_writes_nothing(conn: Any, begin: str) -> None:
    warm(conn)
    conn.execute(begin)
    assert shown(conn) == "on"
    check_all_refused(conn)
    assert conn.in_transaction
    assert rows(conn) == [(1, "a"), (2, "b")]
    assert conn.execute("EXPLAIN INSERT INTO t VALUES (9, 'x')").fetchall()
    conn.execute("SET lock_timeout = '1s'")
    conn.commit()
    assert shown(conn) == "off"
    conn.execute("INSERT INTO t VALUES (3, 'c')")
    assert len(rows(conn)) == 3


def test_repeatable_read_read_only(conn: Any) -> None:
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    assert (shown(conn), shown(conn, "transaction_isolation")) == ("on", "repeatable read")
    assert rows(conn) == [(1, "a"), (2, "b")]
    refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
    conn.execute("ROLLBACK")


def test_set_transaction(conn: Any) -> None:
    for text, expected in (
        ("SET TRANSACTION READ ONLY", "on"),
        ("SET transaction_read_only = on", "on"),
        ("SET transaction_read_only TO 'off'", "off"),
        ("SET TRANSACTION READ ONLY, READ WRITE", "off"),
    ):
        conn.execute("BEGIN")
        conn.execute(text)
        assert shown(conn) == expected
        conn.execute("ROLLBACK")
        assert shown(conn) == "off"
    conn.execute("BEGIN READ ONLY")
    conn.execute("SET TRANSACTION READ WRITE")  # nothing has run yet
    conn.execute("INSERT INTO t VALUES (3, 'c')")
    conn.execute("SET TRANSACTION READ ONLY")  # at any time, for what comes behind it
    refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
    with pytest.raises(herdpy.InternalError) as late:
        conn.execute("SET TRANSACTION READ WRITE")
    assert late.value.sqlstate == "25001"
    conn.commit()
    assert len(rows(conn)) == 3
    conn.execute("BEGIN READ ONLY")
    rows(conn)
    for text in ("SET TRANSACTION READ WRITE", "SET transaction_read_only = off"):
        with pytest.raises(herdpy.InternalError) as late:
            conn.execute(text)
        assert late.value.sqlstate == "25001"
    with pytest.raises(herdpy.InternalError):  # all of it or nothing
        conn.execute("SET TRANSACTION READ WRITE, ISOLATION LEVEL REPEATABLE READ")
    assert (shown(conn), shown(conn, "transaction_isolation")) == ("on", "read committed")
    conn.execute("ROLLBACK")
    with pytest.raises(herdpy.InternalError) as outside:
        conn.execute("SET TRANSACTION READ ONLY")
    assert outside.value.sqlstate == "25P01"
    conn.execute("RESET transaction_read_only")
    with pytest.raises(herdpy.ProgrammingError) as wrong:
        conn.execute("SET default_transaction_read_only = 'maybe'")
    assert wrong.value.sqlstate == "22023"


def test_a_savepoint_has_the_mode_of_before(conn: Any) -> None:
    for end in ("ROLLBACK TO a", "RELEASE a"):
        conn.execute("BEGIN")
        conn.execute("SAVEPOINT a")
        conn.execute("SET TRANSACTION READ ONLY")
        refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
        with pytest.raises(herdpy.InternalError) as inside:
            conn.execute("SET TRANSACTION READ WRITE")
        assert inside.value.sqlstate == "25001"
        conn.execute(end)
        assert shown(conn) == "off"
        conn.execute("UPDATE t SET v = 'z' WHERE id = 1")
        conn.execute("ROLLBACK")
    conn.execute("BEGIN READ ONLY")
    conn.execute("SAVEPOINT a")
    conn.execute("ROLLBACK TO a")
    refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
    conn.execute("ROLLBACK")
    assert rows(conn) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "text",
    [
        "SET default_transaction_read_only = on",
        "SET default_transaction_read_only TO 'true'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    ],
)
def test_of_a_session(conn: Any, text: str) -> None:
    warm(conn)
    conn.execute(text)
    assert (conn.read_only, shown(conn), shown(conn, "default_transaction_read_only")) == (
        True,
        "on",
        "on",
    )
    check_all_refused(conn)  # autocommit statements are transactions, too
    refused(lambda: conn.execute("CREATE TABLESPACE sales"), "CREATE TABLESPACE")
    refused(lambda: conn.begin_staging("t"), "BEGIN STAGING")
    assert rows(conn) == [(1, "a"), (2, "b")]
    conn.execute("BEGIN READ WRITE")
    conn.execute("INSERT INTO t VALUES (3, 'c')")
    conn.commit()
    assert len(rows(conn)) == 3
    conn.autocommit = False
    refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
    conn.rollback()
    conn.autocommit = True
    conn.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
    assert not conn.read_only
    conn.execute("DELETE FROM t WHERE id = 3")
    conn.execute(text)
    conn.execute("RESET default_transaction_read_only")
    assert not conn.read_only
    conn.execute("INSERT INTO t VALUES (3, 'c')")


def test_characteristics_change_what_they_name(conn: Any) -> None:
    conn.execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    )
    assert (conn.isolation_level, conn.read_only) == ("REPEATABLE READ", True)
    conn.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
    assert (conn.isolation_level, conn.read_only) == ("REPEATABLE READ", False)
    conn.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert (conn.isolation_level, conn.read_only) == ("READ COMMITTED", False)


def test_the_attribute(conn: Any) -> None:
    assert conn.read_only is False
    conn.read_only = True
    assert conn.read_only is True
    refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
    conn.read_only = True
    conn.execute("BEGIN READ WRITE")
    with pytest.raises(herdpy.ProgrammingError) as inside:
        conn.read_only = False
    assert inside.value.sqlstate == "25001"
    conn.rollback()
    for value in (None, 1, "on"):
        with pytest.raises(herdpy.ProgrammingError) as wrong:
            conn.read_only = value
        assert wrong.value.sqlstate == "22023"
    conn.reset()
    assert conn.read_only is False
    conn.execute("DELETE FROM t")


def test_with_transaction_blocks(conn: Any) -> None:
    conn.read_only = True
    with pytest.raises(herdpy.InternalError), conn.transaction():
        conn.execute("DELETE FROM t")
    with conn.transaction():
        assert rows(conn) == [(1, "a"), (2, "b")]
    conn.read_only = False
    with conn.transaction():
        conn.execute("SET TRANSACTION READ ONLY")
        refused(lambda: conn.execute("DELETE FROM t"), "DELETE")
    conn.execute("DELETE FROM t")


def test_leases_and_backups_read(conn: Any, tmp_path: Path) -> None:
    conn.read_only = True
    with conn.lease() as lease:
        assert lease.id
    conn.backup(tmp_path / "a.backup")


@pytest.mark.sync_face("reaches into the connection")
def test_an_ingest_is_refused_before_rows_are_sent(conn: Any) -> None:
    conn.read_only = True
    refused(lambda: conn.live_session().begin_ingest("t", "append"), "INGEST")


# --- nested blocks -------------------------------------------------------------------------------


def put(conn: Any, number: int) -> None:
    conn.execute("INSERT INTO t VALUES (?, 'n')", (number,))


def ids(conn: Any) -> list[int]:
    return [row[0] for row in rows(conn)]


class OwnError(Exception):
    pass


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_block_in_a_block_is_a_savepoint(conn: Any, *, autocommit: bool) -> None:
    conn.autocommit = autocommit
    with conn.transaction():
        put(conn, 10)
        with pytest.raises(OwnError), conn.transaction():  # noqa: PT012 - a block
            put(conn, 11)
            raise OwnError
        with conn.transaction():
            put(conn, 12)
            with pytest.raises(herdpy.IntegrityError), conn.transaction():  # noqa: PT012
                put(conn, 13)
                put(conn, 10)
            with conn.transaction():
                put(conn, 14)
        assert conn.in_transaction
        put(conn, 15)
    assert not conn.in_transaction
    assert ids(conn) == [1, 2, 10, 12, 14, 15]


def test_the_outer_one_takes_back_all(conn: Any) -> None:
    with pytest.raises(OwnError), conn.transaction():  # noqa: PT012 - a block
        put(conn, 10)
        with conn.transaction():
            put(conn, 11)
        raise OwnError
    assert ids(conn) == [1, 2]
    with conn.transaction():  # nothing is left of the blocks before
        put(conn, 12)
    assert ids(conn) == [1, 2, 12]


def test_rollback(conn: Any) -> None:
    with conn.transaction():
        put(conn, 10)
        with conn.transaction():
            put(conn, 11)
            raise herdpy.Rollback
        put(conn, 12)
    assert ids(conn) == [1, 2, 10, 12]
    outer = conn.transaction()
    reached = []
    with outer:
        put(conn, 13)
        with conn.transaction():
            put(conn, 14)
            with conn.transaction():
                put(conn, 15)
                raise herdpy.Rollback(outer)
            reached.append("inner")
        reached.append("outer")
    assert reached == []
    assert ids(conn) == [1, 2, 10, 12]
    middle = conn.transaction()
    with conn.transaction():
        put(conn, 16)
        with middle:
            put(conn, 17)
            with conn.transaction():
                put(conn, 18)
                raise herdpy.Rollback(middle)
        put(conn, 19)
    assert ids(conn) == [1, 2, 10, 12, 16, 19]
    with pytest.raises(herdpy.Rollback), conn.transaction():  # of a block that is not open
        raise herdpy.Rollback(middle)


def test_force_rollback(conn: Any) -> None:
    with conn.transaction(force_rollback=True):
        put(conn, 10)
        with conn.transaction():
            put(conn, 11)
        assert ids(conn) == [1, 2, 10, 11]
    assert ids(conn) == [1, 2]
    with conn.transaction():
        put(conn, 10)
        with conn.transaction(force_rollback=True):
            put(conn, 11)
    assert ids(conn) == [1, 2, 10]


def test_names_of_savepoints(conn: Any) -> None:
    first = conn.transaction(savepoint_name='a "b"')
    second = conn.transaction()
    assert second.savepoint_name is None
    with first:
        put(conn, 10)
        with second:
            assert second.savepoint_name == "_herdpy_1"
            put(conn, 11)
        with conn.transaction(savepoint_name="mine"):
            put(conn, 12)
            conn.execute("ROLLBACK TO mine")
        conn.execute('ROLLBACK TO "a ""b"""')
        put(conn, 13)
    assert first.savepoint_name == 'a "b"'
    assert ids(conn) == [1, 2, 13]
    with pytest.raises(herdpy.ProgrammingError):
        conn.transaction(savepoint_name=7)


def test_what_a_block_refuses(conn: Any) -> None:
    block = conn.transaction()
    with block:
        with pytest.raises(herdpy.ProgrammingError) as twice, block:
            pass
        assert twice.value.sqlstate == "25001"
        put(conn, 10)
    assert ids(conn) == [1, 2, 10]
    with block:  # again, behind its end
        put(conn, 11)
    conn.execute("BEGIN")
    put(conn, 12)
    with pytest.raises(herdpy.InternalError) as inside, conn.transaction():
        pass  # its end would not be a COMMIT
    assert inside.value.sqlstate == "25001"
    conn.rollback()
    assert ids(conn) == [1, 2, 10, 11]


def test_what_could_not_be_taken_back_is_not_committed(conn: Any) -> None:
    """Also when the program has caught the error that left the inner block."""
    with pytest.raises(herdpy.ProgrammingError) as lost, conn.transaction():  # noqa: PT012
        put(conn, 10)
        with pytest.raises(OwnError), conn.transaction(savepoint_name="s"):  # noqa: PT012
            put(conn, 11)
            conn.execute("RELEASE s")
            raise OwnError
        put(conn, 12)
    assert lost.value.sqlstate == "3B001"
    assert not conn.in_transaction
    assert ids(conn) == [1, 2]
    with conn.transaction():  # of three blocks the middle one takes it back
        put(conn, 20)
        with pytest.raises(herdpy.ProgrammingError), conn.transaction():  # noqa: PT012
            put(conn, 21)
            with pytest.raises(OwnError), conn.transaction(savepoint_name="s"):  # noqa: PT012
                put(conn, 22)
                conn.execute("RELEASE s")
                raise OwnError
        put(conn, 23)
    assert ids(conn) == [1, 2, 20, 23]
