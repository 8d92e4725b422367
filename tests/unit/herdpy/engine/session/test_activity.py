"""sysclients, sysstatements and KILL: what they show, whom they stop, and what they refuse."""

from collections.abc import Iterator

import pytest

from herdpy.engine.session.activity import Client, shown_text
from herdpy.engine.session.session import Session
from herdpy.errors import (
    Error,
    LockTimeoutError,
    OperationalError,
    ProgrammingError,
    QueryCanceledError,
)
from tests.fixtures.counted_calls import count_calls
from tests.fixtures.engines import (
    Background,
    Engine,
    WatchedDriver,
    attempt,
    engine,
    rows,
    run,
    table,
)

CLIENTS = "SELECT id, protocol, client, in_transaction FROM sysclients"
STATEMENTS = "SELECT id, client_id, text FROM sysstatements"
UPDATE = "UPDATE t SET v = v + 1 WHERE id = 1"


@pytest.fixture
def database(driver: WatchedDriver) -> Iterator[Engine]:
    with engine(driver=driver, is_threaded=True) as made:
        yield made


def refused(session: Session, text: str) -> Error:
    with pytest.raises(Error) as caught:
        session.execute(text)
    return caught.value


def waiting(driver: WatchedDriver, name: str) -> None:
    """Wait until the thread of that name is about to wait."""
    while driver.waits.get(timeout=30) != name:
        pass


def test_clients_are_listed(database: Engine) -> None:
    first, second = database.session(application_name="one"), database.session(autocommit=True)
    run(first, "BEGIN")
    found = rows(second, CLIENTS + " ORDER BY id")
    assert found == [(first.id, "local", "one", True), (second.id, "local", "", False)]
    first.close()
    assert rows(second, CLIENTS) == [(second.id, "local", "", False)]


def test_a_statement_sees_itself(database: Engine) -> None:
    session = database.session(autocommit=True)
    ((number, client, text),) = rows(session, STATEMENTS)
    assert (client, text) == (session.id, STATEMENTS)
    assert rows(session, STATEMENTS)[0][0] > number
    found = rows(session, "SELECT started_at >= connected_at, running_s >= 0 FROM sysstatements s "
                          "JOIN sysclients c ON c.id = s.client_id")  # fmt: skip
    assert found == [(True, True)]


def test_rows_stay_for_one_statement(database: Engine) -> None:
    session = database.session(autocommit=True)
    for _ in range(5):
        database.session()
    query = "SELECT count(*) FROM sysclients a JOIN sysclients b USING (id, connected_at)"
    assert rows(session, query) == [(6,)]


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("INSERT INTO sysclients (id) VALUES (1)", "42501"),
        ("INSERT INTO sysstatements SELECT * FROM sysstatements", "42501"),
        ("UPSERT INTO sysclients (id) VALUES (1)", "42501"),
        ("UPDATE sysclients SET client = 'x'", "42501"),
        ("DELETE FROM sysclients", "42501"),
        ("DROP TABLE sysclients", "42501"),
        ("CREATE TABLE sysclients (id INTEGER)", "42P07"),
        ("KILL STATEMENT 999999", "42704"),
        ("KILL CONNECTION 999999", "42704"),
        ("KILL 999999", "42704"),
        ("KILL", "42601"),
        ("KILL '5'", "42601"),
        ("KILL -5", "42601"),
        ("KILL 1.5", "42601"),
        ("KILL 12345678901234567890", "42601"),
        ("KILL QUERY 5", "42601"),
        ("EXPLAIN KILL 5", "42601"),
    ],
)
def test_refused(database: Engine, text: str, sqlstate: str) -> None:
    session = database.session(autocommit=True)
    assert refused(session, text).sqlstate == sqlstate
    assert len(rows(session, CLIENTS)) == 1


def test_system_tables_are_not_among_the_users(database: Engine) -> None:
    session = database.session(autocommit=True)
    assert rows(session, "SHOW TABLES") == []
    assert session.tables() == []


def test_a_killed_statement_ends_and_its_session_goes_on(
    database: Engine, driver: WatchedDriver
) -> None:
    holder, killer = database.session(), database.session(autocommit=True)
    victim = database.session()
    table(holder, (1, 1), (2, 2))
    run(holder, UPDATE)
    with Background() as background:
        run(victim, "UPDATE t SET v = 9 WHERE id = 2")

        def wait_for_the_row() -> None:
            with pytest.raises(QueryCanceledError, match="KILL STATEMENT"):
                victim.execute(UPDATE)

        background.start(wait_for_the_row, "victim")
        waiting(driver, "victim")
        found = rows(killer, f"SELECT id FROM sysstatements WHERE text = '{UPDATE}'")
        run(killer, f"KILL STATEMENT {found[0][0]}")
    assert refused(killer, f"KILL STATEMENT {found[0][0]}").sqlstate == "42704"
    victim.commit()
    assert rows(killer, "SELECT v FROM t WHERE id = 2") == [(9,)]


def test_a_killed_session_gives_up_its_locks(database: Engine) -> None:
    victim, killer = database.session(), database.session(autocommit=True, lock_timeout_s=30)
    table(victim, (1, 1))
    run(victim, UPDATE)
    run(killer, f"KILL {victim.id}")
    assert run(killer, UPDATE) == 1
    assert rows(killer, "SELECT v FROM t") == [(2,)]
    for text in ("SELECT 1", "COMMIT", "ROLLBACK"):
        error = refused(victim, text)
        assert isinstance(error, OperationalError)
        assert error.sqlstate == "57P01"
    assert attempt(victim, "SELECT v FROM t WHERE id = ?", (1,)) is None
    victim.close()


def test_a_session_is_killed_while_it_waits(database: Engine, driver: WatchedDriver) -> None:
    holder, killer = database.session(), database.session(autocommit=True, lock_timeout_s=30)
    victim = database.session()
    table(holder, (1, 1), (2, 2))
    run(victim, "UPDATE t SET v = 9 WHERE id = 2")
    run(holder, UPDATE)
    with Background() as background:

        def wait_for_the_row() -> None:
            with pytest.raises(QueryCanceledError, match="KILL CONNECTION"):
                victim.execute(UPDATE)

        background.start(wait_for_the_row, "victim")
        waiting(driver, "victim")
        run(killer, f"KILL CONNECTION {victim.id}")
    # The maintenance thread ends what the victim left.
    assert run(killer, "UPDATE t SET v = v + 1 WHERE id = 2") == 1
    assert rows(killer, "SELECT v FROM t WHERE id = 2") == [(3,)]


def test_nobody_kills_itself(database: Engine) -> None:
    session = database.session(autocommit=True)
    assert refused(session, f"KILL {session.id}").sqlstate == "22023"
    assert rows(session, "SELECT 1") == [(1,)]


def test_a_kill_tells_the_connection(database: Engine) -> None:
    told: list[Error] = []
    client = Client("tcp", "far:1", told.append)
    victim = database.database.session(database.session().settings, client=client)
    killer = database.session(autocommit=True)
    found = rows(killer, "SELECT protocol, address FROM sysclients WHERE id = ?", victim.id)
    assert found == [("tcp", "far:1")]
    run(killer, f"KILL {victim.id}")
    assert [error.sqlstate for error in told] == ["57P01"]


def test_own_tables_of_such_names_go_on(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    session = database.session(autocommit=True)
    with monkeypatch.context() as patch:
        patch.setattr("herdpy.engine.state.catalog.SYSTEM_TABLES", {})  # as before there were any
        run(session, "CREATE TABLE sysclients (id INTEGER PRIMARY KEY)")
    run(session, "INSERT INTO sysclients VALUES (7)")
    database.reopen()
    session = database.session(autocommit=True)
    assert rows(session, "SELECT * FROM sysclients") == [(7,)]
    run(session, "DROP TABLE sysclients")
    assert rows(session, CLIENTS)[0][:2] == (session.id, "local")


def test_a_long_statement_costs_who_looks_at_it_no_more() -> None:
    def cost(length: int) -> int:
        text = "SELECT\n" + "'x', " * length
        return count_calls(lambda: shown_text(text))

    assert cost(300_000) == cost(3_000)


def test_shown_text_has_no_password_and_an_end() -> None:
    secret = "CREATE USER a PASSWORD 'geheim'; -- ' geheim"
    assert shown_text(secret) == "CREATE USER a PASSWORD ***"
    assert shown_text("ALTER USER a WITH password/**/E'geheim'") == "ALTER USER a WITH password ***"
    assert shown_text("CREATE USER a PASWORD 'geheim'") == "CREATE USER a ***"
    assert shown_text("CREATE USER a LOGIN PASWORD geheim") == "CREATE USER a LOGIN ***"
    assert (
        shown_text("CREATE USER IF NOT EXISTS a PASS geheim") == "CREATE USER IF NOT EXISTS a ***"
    )
    assert shown_text("alter/* * */--\nrole a geheim") == "alter/* * */--\nrole a ***"
    assert shown_text("CREATE USER a PASSWORD geheim") == "CREATE USER a PASSWORD ***"
    assert shown_text("CREATE ROLE a LOGIN SUPERUSER;") == "CREATE ROLE a LOGIN SUPERUSER;"
    assert shown_text("CREATE TABLE t (role INT, b INT)") == "CREATE TABLE t (role INT, b INT)"
    for part in ("/*", "/**/", "--", "--\n", " "):
        shown_text("create" + part * 900)  # it ends
    assert shown_text('/* \' */ alter\n role "a" $$geheim$$') == "/* ' */ alter\n role ***"
    assert shown_text("CREATE TABLE t (id INT)") == "CREATE TABLE t (id INT)"
    assert shown_text("SELECT 1") == "SELECT 1"
    assert len(shown_text("x" * 10_000)) == 2_000


def test_lock_timeouts_are_still_that(database: Engine) -> None:
    holder, other = database.session(), database.session(lock_timeout_s=0.01)
    table(holder, (1, 1))
    run(holder, UPDATE)
    with pytest.raises(LockTimeoutError):
        other.execute(UPDATE)
    with pytest.raises(ProgrammingError):
        other.execute("SELECT nothing FROM t")
