"""Isolation levels and savepoints, over every transport: how they are set, and what they promise.

The ten anomalies are Hermitage's (https://github.com/ept/hermitage), by its names; the table of
docs/guides/transactions.md says the same as this suite.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import herdpy
from tests.fixtures.engines import Background

COMMITTED, REPEATABLE = "READ COMMITTED", "REPEATABLE READ"
LEVELS = pytest.mark.parametrize("level", [COMMITTED, REPEATABLE])
ALL = "SELECT id, v FROM t ORDER BY id"
Connections = tuple[Any, Any, Any]


@pytest.fixture
def shared(target: str, tmp_path: Path) -> str:
    """Return what several connections share; a database in memory belongs to one."""
    return str(tmp_path / "data") if target == ":memory:" else target


@pytest.fixture
def three(shared: str) -> Iterator[Connections]:
    """Three connections; the table has (1, 10) and (2, 20), as Hermitage's."""
    with (
        herdpy.connect(shared) as a,
        herdpy.connect(shared) as b,
        herdpy.connect(shared) as c,
    ):
        a.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        a.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
        a.commit()
        yield a, b, c
        for conn in (a, b, c):
            conn.rollback()


def begin(level: str, *connections: Any) -> None:
    for conn in connections:
        conn.execute(f"BEGIN ISOLATION LEVEL {level}")


def rows(conn: Any, text: str = ALL) -> list[tuple[Any, ...]]:
    return conn.execute(text).fetchall()


def value(conn: Any, number: int) -> int:
    return conn.execute("SELECT v FROM t WHERE id = ?", (number,)).fetchone()[0]


def put(conn: Any, number: int, new: int) -> None:
    conn.execute("UPDATE t SET v = ? WHERE id = ?", (new, number))


def outcome(call: Callable[[], object]) -> str:
    """Return "" or the SQLSTATE of what was raised."""
    try:
        call()
    except herdpy.Error as error:
        return error.sqlstate
    return ""


def waiting(call: Callable[[], object], commit: Callable[[], object]) -> str:
    """Run what may wait for the end of another transaction, and that end; return what it gave.

    It is the same whether the end comes before or behind the beginning of the wait.
    """
    found: list[str] = []
    with Background() as background:
        background.start(lambda: found.append(outcome(call)))
        commit()
    return found[0]


# --- Hermitage -----------------------------------------------------------------------------------


@LEVELS
def test_g0_write_cycles(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a, b)
    rows(b)
    put(a, 1, 11)
    put(a, 2, 21)
    found = waiting(lambda: put(b, 1, 12), a.commit)
    assert found == ("" if level == COMMITTED else "40001")
    if not found:
        put(b, 2, 22)
        b.commit()
        assert rows(a) == [(1, 12), (2, 22)]
    else:
        b.rollback()
        assert rows(a) == [(1, 11), (2, 21)]


@LEVELS
def test_g1a_aborted_reads(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a, b)
    put(a, 1, 101)
    assert rows(b) == [(1, 10), (2, 20)]
    a.rollback()
    assert rows(b) == [(1, 10), (2, 20)]


@LEVELS
def test_g1b_intermediate_reads(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a, b)
    put(a, 1, 101)
    assert rows(b) == [(1, 10), (2, 20)]
    put(a, 1, 11)
    a.commit()
    assert rows(b) == [(1, 11 if level == COMMITTED else 10), (2, 20)]


@LEVELS
def test_g1c_circular_information_flow(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a, b)
    put(a, 1, 11)
    put(b, 2, 22)
    assert value(a, 2) == 20
    assert value(b, 1) == 10
    a.commit()
    b.commit()


@LEVELS
def test_otv_observed_transaction_vanishes(three: Connections, level: str) -> None:
    a, b, c = three
    begin(level, a, b, c)
    rows(b)
    put(a, 1, 11)
    put(a, 2, 19)
    is_committed = level == COMMITTED
    found = waiting(lambda: put(b, 1, 12), a.commit)
    assert found == ("" if is_committed else "40001")
    assert rows(c) == [(1, 11), (2, 19)]
    if is_committed:
        put(b, 2, 18)
        assert rows(c) == [(1, 11), (2, 19)]
        b.commit()
    assert rows(c) == ([(1, 12), (2, 18)] if is_committed else [(1, 11), (2, 19)])


@LEVELS
def test_pmp_predicate_many_preceders(three: Connections, level: str) -> None:
    """READ COMMITTED has it."""
    a, b, _ = three
    begin(level, a, b)
    assert rows(a, "SELECT * FROM t WHERE v = 30") == []
    b.execute("INSERT INTO t VALUES (3, 30)")
    b.commit()
    found = rows(a, "SELECT * FROM t WHERE v % 3 = 0")
    assert found == ([(3, 30)] if level == COMMITTED else [])


@LEVELS
def test_pmp_of_a_writer(three: Connections, level: str) -> None:
    """A predicate of a write sees what was committed before it; or 40001."""
    a, b, _ = three
    begin(level, a, b)
    assert rows(b) == [(1, 10), (2, 20)]
    a.execute("UPDATE t SET v = v + 10")
    found = waiting(lambda: b.execute("DELETE FROM t WHERE v = 20"), a.commit)
    assert found == ("" if level == COMMITTED else "40001")
    if not found:
        b.commit()
        assert rows(a) == [(2, 30)]  # the row that has 20 by now


@LEVELS
def test_p4_lost_update(three: Connections, level: str) -> None:
    """READ COMMITTED has it, where a program writes what it has read."""
    a, b, _ = three
    begin(level, a, b)
    assert (value(a, 1), value(b, 1)) == (10, 10)
    put(a, 1, 11)
    found = waiting(lambda: put(b, 1, 11), a.commit)
    assert found == ("" if level == COMMITTED else "40001")


@LEVELS
def test_g_single_read_skew(three: Connections, level: str) -> None:
    """READ COMMITTED has it."""
    a, b, _ = three
    begin(level, a, b)
    assert value(a, 1) == 10
    assert (value(b, 1), value(b, 2)) == (10, 20)
    put(b, 1, 12)
    put(b, 2, 18)
    b.commit()
    assert value(a, 2) == (18 if level == COMMITTED else 20)


@LEVELS
def test_g_single_of_a_writer(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a, b)
    assert value(a, 1) == 10
    assert rows(b) == [(1, 10), (2, 20)]
    put(b, 1, 12)
    put(b, 2, 18)
    b.commit()
    found = outcome(lambda: a.execute("DELETE FROM t WHERE v = 20"))
    assert found == ("" if level == COMMITTED else "40001")
    if not found:
        assert rows(a) == [(1, 12), (2, 18)]


@LEVELS
def test_g2_item_write_skew(three: Connections, level: str) -> None:
    """Both levels have it: SERIALIZABLE would not."""
    a, b, c = three
    begin(level, a, b)
    assert rows(a) == rows(b) == [(1, 10), (2, 20)]
    put(a, 1, 11)
    put(b, 2, 21)
    a.commit()
    b.commit()
    assert rows(c) == [(1, 11), (2, 21)]


@LEVELS
def test_g2_anti_dependency_cycles(three: Connections, level: str) -> None:
    """Both levels have it: SERIALIZABLE would not."""
    a, b, c = three
    begin(level, a, b)
    found = "SELECT * FROM t WHERE v % 3 = 0"
    assert rows(a, found) == rows(b, found) == []
    a.execute("INSERT INTO t VALUES (3, 30)")
    b.execute("INSERT INTO t VALUES (4, 42)")
    a.commit()
    b.commit()
    assert rows(c, f"{found} ORDER BY id") == [(3, 30), (4, 42)]


# --- REPEATABLE READ -----------------------------------------------------------------------------


def test_one_snapshot_for_all_statements_and_own_changes_besides(three: Connections) -> None:
    a, b, c = three
    begin(REPEATABLE, a)
    assert rows(a, "SELECT count(*) FROM t") == [(2,)]
    b.execute("INSERT INTO t VALUES (3, 30)")
    b.commit()
    b.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    b.commit()
    assert rows(a) == [(1, 10), (2, 20)]
    assert value(a, 1) == 10
    assert outcome(lambda: a.execute("SELECT * FROM u")) == "42P01"
    a.execute("INSERT INTO t VALUES (4, 40)")
    put(a, 1, 11)
    a.execute("CREATE TABLE w (id BIGINT PRIMARY KEY)")
    assert rows(a) == [(1, 11), (2, 20), (4, 40)]
    assert rows(a, "SELECT sum(v) OVER () FROM t LIMIT 1") == [(71,)]
    assert rows(a, "SELECT * FROM w") == []
    a.commit()
    assert rows(a) == [(1, 11), (2, 20), (3, 30), (4, 40)]
    assert rows(c) == [(1, 11), (2, 20), (3, 30), (4, 40)]


def test_the_snapshot_is_that_of_the_first_statement(three: Connections) -> None:
    a, b, _ = three
    begin(REPEATABLE, a)
    assert rows(a, "SHOW transaction_isolation") == [("repeatable read",)]
    put(b, 1, 11)
    b.commit()
    assert value(a, 1) == 11
    put(b, 1, 12)
    b.commit()
    assert value(a, 1) == 11


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = 12 WHERE id = 1"),
        ("UPDATE t SET v = 11 WHERE id = 1", "DELETE FROM t WHERE id = 1"),
        ("DELETE FROM t WHERE id = 1", "UPDATE t SET v = v + 1"),
        ("DELETE FROM t WHERE id = 1", "DELETE FROM t WHERE v < 15"),
        ("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 1)"),
        ("INSERT INTO t VALUES (3, 30)", "INSERT INTO t VALUES (3, 31)"),
        ("INSERT INTO t VALUES (3, 30)", "UPSERT INTO t VALUES (3, 31)"),
        ("INSERT INTO t VALUES (3, 30)", "INSERT INTO t VALUES (3, 31) ON CONFLICT DO NOTHING"),
        (
            "INSERT INTO t VALUES (3, 30)",
            "INSERT INTO t VALUES (3, 31) ON CONFLICT (id) DO UPDATE SET v = 0",
        ),
        (
            "UPDATE t SET v = 11 WHERE id = 1",
            "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = 0 WHERE t.v > 99",
        ),
        ("UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = 0 FROM t AS o WHERE o.id = t.id"),
        ("INSERT INTO t VALUES (3, 30)", "UPDATE t SET id = 3 WHERE id = 1"),
        ("UPDATE t SET v = 11 WHERE id = 1", "INSERT INTO t VALUES (1, 1) ON CONFLICT DO NOTHING"),
        ("UPDATE t SET id = 3 WHERE id = 1", "INSERT INTO t SELECT 3, v FROM t WHERE id = 2"),
        ("DROP TABLE t", "UPDATE t SET v = 12 WHERE id = 1"),
        ("DROP TABLE t", "DROP TABLE t"),
        ("TRUNCATE t", "INSERT INTO t VALUES (3, 31)"),
        ("TRUNCATE t", "TRUNCATE t"),
        ("CREATE TABLE u (id INT)", "CREATE TABLE u (id INT)"),
    ],
)
def test_what_was_changed_since_is_40001_and_read_as_it_was(
    three: Connections, theirs: str, ours: str
) -> None:
    a, b, _ = three
    begin(REPEATABLE, a)
    assert rows(a) == [(1, 10), (2, 20)]
    b.execute(theirs)
    b.commit()
    assert rows(a) == [(1, 10), (2, 20)]
    with pytest.raises(herdpy.OperationalError) as caught:
        a.execute(ours)
    assert (caught.value.sqlstate, caught.value.retry) == ("40001", herdpy.Retry.SAFE)
    assert outcome(lambda: rows(a)) == "25P02"
    assert outcome(lambda: a.execute("ROLLBACK TO s")) == "25P02"
    a.rollback()
    if theirs != "DROP TABLE t":
        rows(a)


def test_what_was_changed_there_and_back_was_changed(three: Connections) -> None:
    a, b, _ = three
    begin(REPEATABLE, a)
    rows(a)
    for new in (11, 10):
        put(b, 1, new)
        b.commit()
    assert outcome(lambda: put(a, 1, 12)) == "40001"


def test_what_others_write_and_roll_back_is_no_change(three: Connections) -> None:
    a, b, _ = three
    begin(REPEATABLE, a)
    rows(a)
    put(b, 1, 11)
    b.rollback()
    put(b, 2, 21)
    b.commit()
    put(a, 1, 12)
    a.execute("INSERT INTO t VALUES (3, 30)")
    put(a, 1, 13)
    a.commit()
    assert rows(a) == [(1, 13), (2, 21), (3, 30)]


@LEVELS
def test_many_rows_by_parameters(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a)
    rows(a)
    b.execute("INSERT INTO t VALUES (50, 0)")
    b.commit()
    a.executemany("INSERT INTO t VALUES (?, ?)", [(number, 1) for number in range(10, 20)])
    a.executemany("UPDATE t SET v = ? WHERE id = ?", [(5, 1), (6, 2), (7, 1)])
    assert value(a, 1) == 7

    def insert() -> None:
        a.executemany("INSERT INTO t VALUES (?, ?)", [(number, 1) for number in range(45, 55)])

    assert outcome(insert) == ("23505" if level == COMMITTED else "40001")


@pytest.mark.parametrize(
    ("mode", "rows_given", "sqlstate"),
    [
        ("append", [{"id": 3, "v": 1}], "40001"),
        ("append", [{"id": 4, "v": 1}], ""),
        ("upsert", [{"id": 2, "v": 1}, {"id": 3, "v": 1}], "40001"),
        ("replace", [{"id": 1, "v": 1}], "40001"),
    ],
)
def test_an_ingest_is_a_statement(
    three: Connections, mode: str, rows_given: list[dict[str, int]], sqlstate: str
) -> None:
    a, b, _ = three
    begin(REPEATABLE, a)
    rows(a)
    b.execute("INSERT INTO t VALUES (3, 30)")
    b.commit()
    assert outcome(lambda: a.ingest("t", rows_given, mode=mode)) == sqlstate


@LEVELS
def test_a_lease_is_read_only_in_any_level(target: str, level: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with conn.lease() as lease:
            conn.execute("INSERT INTO t VALUES (1)")
            begin(level, conn)
            conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
            assert rows(conn, "SELECT * FROM t") == []
            assert outcome(lambda: conn.execute("INSERT INTO t VALUES (2)")) == "25006"
            conn.rollback()


# --- how it is set -------------------------------------------------------------------------------


def level_of(conn: Any) -> str:
    return rows(conn, "SHOW transaction_isolation")[0][0]


def test_statements_that_set_the_level(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("BEGIN")
        assert level_of(conn) == "read committed"
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert level_of(conn) == "repeatable read"
        conn.execute("SET transaction_isolation = 'read committed'")
        assert level_of(conn) == "read committed"
        conn.rollback()
        for text in ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN"):
            conn.execute(text)
            expected = "repeatable read" if "REPEATABLE" in text else "read committed"
            assert level_of(conn) == expected
            conn.execute("COMMIT")
        conn.execute("BEGIN ISOLATION LEVEL READ UNCOMMITTED")
        assert level_of(conn) == "read committed"


def test_the_level_of_transactions_to_come(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        conn.execute("SET default_transaction_isolation = 'Repeatable Read'")
        assert rows(conn, "SHOW default_transaction_isolation") == [("repeatable read",)]
        assert dict(rows(conn, "SHOW ALL"))["transaction_isolation"] == "repeatable read"
        assert conn.isolation_level == "REPEATABLE READ"
        conn.execute("BEGIN")
        assert level_of(conn) == "repeatable read"
        conn.execute("SET default_transaction_isolation = DEFAULT")
        assert level_of(conn) == "repeatable read"
        conn.rollback()
        assert level_of(conn) == "read committed"
        conn.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with conn.transaction():
            assert level_of(conn) == "repeatable read"
        assert conn.isolation_level == "REPEATABLE READ"
        conn.execute("RESET default_transaction_isolation")
        assert conn.isolation_level == "READ COMMITTED"


def test_the_attribute(shared: str) -> None:
    with herdpy.connect(shared) as conn, herdpy.connect(shared, autocommit=True) as other:
        assert conn.isolation_level == COMMITTED
        conn.isolation_level = "repeatable read"
        assert conn.isolation_level == REPEATABLE
        assert not conn.in_transaction
        other.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        for number in range(3):
            other.execute("INSERT INTO t VALUES (?, ?)", (number, number))
            assert rows(conn, "SELECT count(*) FROM t") == [(1,)]
            assert conn.execute("SELECT v FROM t WHERE id = 2").fetchall() == []
        with pytest.raises(herdpy.ProgrammingError) as caught:
            conn.isolation_level = COMMITTED
        assert caught.value.sqlstate == "25001"
        conn.isolation_level = REPEATABLE  # which it is
        conn.rollback()
        assert rows(conn, "SELECT count(*) FROM t") == [(3,)]
        conn.rollback()
        conn.isolation_level = "READ UNCOMMITTED"
        assert conn.isolation_level == COMMITTED
        conn.isolation_level = REPEATABLE
        conn.reset()
        assert conn.isolation_level == COMMITTED
        assert level_of(conn) == "read committed"


@pytest.mark.parametrize(
    ("wrong", "sqlstate"),
    [
        (None, "22023"),
        (1, "22023"),
        ("", "22023"),
        ("IMMEDIATE", "22023"),
        ("serializable", "0A000"),
    ],
)
def test_what_is_no_level(target: str, wrong: Any, sqlstate: str) -> None:
    with herdpy.connect(target) as conn:
        with pytest.raises(herdpy.Error) as caught:
            conn.isolation_level = wrong
        assert caught.value.sqlstate == sqlstate
        assert conn.isolation_level == COMMITTED


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET default_transaction_isolation = 'serializable'",
        "SET transaction_isolation = 'serializable'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    ],
)
def test_serializable_is_never_taken_for_less(target: str, text: str) -> None:
    with herdpy.connect(target) as conn:
        conn.execute("SELECT 1")
        conn.rollback()
        assert outcome(lambda: conn.execute(text)) == "0A000"
        conn.rollback()
        assert level_of(conn) == "read committed"
        assert conn.isolation_level == COMMITTED


@pytest.mark.parametrize(
    "first",
    [
        "SELECT 1",
        "SELECT v FROM t WHERE id = 1",
        "SELECT count(*) FROM t",
        "INSERT INTO t VALUES (9, 9)",
        "UPDATE t SET v = 0 WHERE id = 99",
        "CREATE TABLE u (id INT)",
        "SAVEPOINT s",
    ],
)
@LEVELS
def test_set_transaction_comes_first(three: Connections, first: str, level: str) -> None:
    a, *_ = three
    other = COMMITTED if level == REPEATABLE else REPEATABLE
    for _ in range(2):  # for the second time by the plan of the first
        begin(level, a)
        a.execute(first)
        for text in (
            f"SET TRANSACTION ISOLATION LEVEL {other}",
            f"SET transaction_isolation = '{other}'",
        ):
            assert outcome(lambda text=text: a.execute(text)) == "25001"
        a.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")  # which it is
        assert level_of(a) == level.lower()
        a.rollback()


def test_outside_of_a_transaction(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        for text in (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET transaction_isolation = 'repeatable read'",
        ):
            assert outcome(lambda text=text: conn.execute(text)) == "25P01"
        conn.execute("RESET transaction_isolation")
        assert outcome(lambda: conn.execute("SET default_transaction_isolation = 'x'")) == "22023"
        conn.autocommit = False
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert conn.in_transaction
        assert level_of(conn) == "repeatable read"


def test_a_pipeline_is_a_transaction_of_the_level(shared: str) -> None:
    with herdpy.connect(shared, autocommit=True) as a, herdpy.connect(shared, autocommit=True) as b:
        a.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        a.execute("INSERT INTO t VALUES (1, 10)")
        a.isolation_level = REPEATABLE
        with a.pipeline() as pipe:
            first = pipe.execute("SELECT v FROM t")
            pipe.sync()
            assert first.fetchall() == [(10,)]
            b.execute("UPDATE t SET v = 11")
            second = pipe.execute("SELECT v FROM t")
        assert second.fetchall() == [(10,)]


# --- savepoints ----------------------------------------------------------------------------------


def test_savepoints(three: Connections) -> None:
    a, b, _ = three
    put(a, 1, 11)
    a.execute("SAVEPOINT one")
    put(a, 1, 12)
    a.execute("INSERT INTO t VALUES (3, 30)")
    a.execute("SAVEPOINT two")
    a.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    a.execute("DELETE FROM t")
    assert rows(a) == []
    a.execute("ROLLBACK TO two")
    assert rows(a) == [(1, 12), (2, 20), (3, 30)]
    assert outcome(lambda: a.execute("SELECT * FROM u")) == "42P01"
    a.execute("ROLLBACK TO SAVEPOINT one")
    assert outcome(lambda: a.execute("ROLLBACK TO two")) == "3B001"
    assert rows(a) == [(1, 11), (2, 20)]
    assert a.in_transaction
    a.execute("RELEASE SAVEPOINT one")
    assert outcome(lambda: a.execute("RELEASE one")) == "3B001"
    put(a, 2, 21)
    a.commit()
    assert rows(b) == [(1, 11), (2, 21)]


@LEVELS
def test_savepoints_in_both_levels(three: Connections, level: str) -> None:
    a, b, _ = three
    begin(level, a)
    a.execute("SAVEPOINT s")
    put(a, 1, 11)
    put(b, 2, 21)
    b.commit()
    a.execute("ROLLBACK TO s")
    assert rows(a) == [(1, 10), (2, 21 if level == COMMITTED else 20)]
    put(a, 1, 12)
    a.commit()
    assert rows(b) == [(1, 12), (2, 21)]


def test_savepoints_need_a_transaction(target: str) -> None:
    with herdpy.connect(target, autocommit=True) as conn:
        for text in ("SAVEPOINT s", "ROLLBACK TO s", "RELEASE SAVEPOINT s"):
            assert outcome(lambda text=text: conn.execute(text)) == "25P01"
            assert not conn.in_transaction
        conn.autocommit = False
        assert outcome(lambda: conn.execute("ROLLBACK TO s")) == "25P01"
        conn.execute("SAVEPOINT s")
        assert conn.in_transaction
        conn.execute("ROLLBACK TO s")
        conn.commit()
        assert not conn.in_transaction


def test_a_cursor_that_shows_what_is_undone_ends(three: Connections, target: str) -> None:
    """Of a server's result some rows are under way already; they were right when they left."""
    a, *_ = three
    a.executemany("INSERT INTO t VALUES (?, 0)", [(number,) for number in range(3, 5000)])
    before = a.execute(ALL)
    assert before.fetchone() == (1, 10)
    a.execute("SAVEPOINT s")
    a.execute("UPDATE t SET v = 7")
    behind = a.execute(ALL)
    assert behind.fetchone() == (1, 7)
    a.execute("ROLLBACK TO s")
    assert before.fetchmany(2) == [(2, 20), (3, 0)]
    assert len(before.fetchall()) == 4996
    assert outcome(behind.fetchall) == "24000" or target != ":memory:"
