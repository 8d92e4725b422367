"""Every kind of statement and of request, by users with and without its right, over the wire.

The kinds are those of the product: one that is new fails here until its rights are written here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args

import pyarrow as pa
import pytest

import herdpy
from herdpy.engine.state.system_tables import SYSTEM_TABLES
from herdpy.proto import messages
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from tests.fixtures.engines import run
from tests.fixtures.servers import RunningServer, running_server
from tests.unit.herdpy.server.login.test_login_rules import PROTOCOLS, url

PASSWORD = "long enough"
ROOT = "SUPERUSER"


class Case(NamedTuple):
    text: str
    needed: tuple[str, ...] = ()
    """Statements that a superuser runs for ann, SUPERUSER, or nothing: every user may."""


def grants(*rights: str) -> tuple[str, ...]:
    return tuple(f"GRANT {right} TO ann" for right in rights)


OWNER = ("ALTER TABLE t OWNER TO ann",)  # it had no owner before
ROLES = ("ALTER USER ann CREATEROLE", "GRANT clerks TO ann WITH ADMIN OPTION")
STATEMENTS: dict[str, list[Case]] = {
    "SelectStatement": [
        Case("SELECT 1"),
        Case("SELECT * FROM t", grants("SELECT ON t")),
        Case("SELECT v FROM t WHERE id = 1", grants("SELECT ON t")),
        Case("SELECT 1 WHERE 1 IN (SELECT id FROM u)", grants("SELECT ON u")),
        Case("SELECT * FROM sysusers"),
        Case("SELECT * FROM sysroles"),
        Case("SELECT * FROM sysmembers"),
        Case("SELECT * FROM sysgrants"),
        Case("SELECT * FROM sysrolesettings"),
        Case("SELECT * FROM sysclients", (ROOT,)),
        Case("SELECT * FROM sysstatements", (ROOT,)),
        Case("SELECT * FROM sysleases", (ROOT,)),
        Case("SELECT * FROM sysstagings", (ROOT,)),
        Case("SELECT * FROM sysdisks", (ROOT,)),
        Case("SELECT * FROM syslimits", (ROOT,)),
        Case("SELECT * FROM syswaits", (ROOT,)),
        Case("SELECT * FROM sysmemory", (ROOT,)),
        Case("SELECT * FROM sysmaintenance", (ROOT,)),
        Case("SELECT * FROM systablespaces", (ROOT,)),
        Case("SELECT * FROM sysnodes", (ROOT,)),
        Case("SELECT * FROM systablespacereplicastate", (ROOT,)),
        Case("SELECT * FROM syslog", (ROOT,)),
        Case("SELECT * FROM sysviews"),
        Case("SELECT * FROM syssequences"),
        Case("SELECT nextval('s')", grants("USAGE ON SEQUENCE s")),
        Case("SELECT nextval('s')", grants("UPDATE ON s")),
        Case("SELECT nextval('s')", grants("UPDATE ON TABLESPACE default")),
        Case("SELECT setval('s', 5)", grants("UPDATE ON SEQUENCE s")),
        Case("SELECT * FROM w", grants("SELECT ON w")),  # its owner may read u
        Case("SELECT 1 FROM t WHERE id IN (SELECT id FROM w)",
             grants("SELECT ON t", "SELECT ON w")),
        Case("SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM sysclients)", (ROOT,)),
    ],
    "Insert": [
        Case("INSERT INTO t VALUES (9, 'b')", grants("INSERT ON t")),
        Case("INSERT INTO t SELECT id + 50, v FROM u", grants("INSERT ON t", "SELECT ON u")),
        Case("UPSERT INTO t VALUES (1, 'b')", grants("INSERT ON t", "UPDATE ON t")),
        Case("INSERT INTO t VALUES (9, 'b')", grants("INSERT ON TABLESPACE default")),
        Case("INSERT INTO identity (v) VALUES (1)", grants("INSERT ON identity")),
        Case("INSERT INTO serial (v) VALUES (1)",
             grants("INSERT ON serial", "USAGE ON serial_id_seq")),
        Case("INSERT INTO serial VALUES (DEFAULT, 1)",
             grants("INSERT ON serial", "USAGE ON serial_id_seq")),
        Case("INSERT INTO serial VALUES (-1, 1)", grants("INSERT ON serial")),
    ],
    "CreateSequence": [Case("CREATE SEQUENCE n", grants("CREATE ON TABLESPACE default"))],
    "AlterSequence": [
        Case("ALTER SEQUENCE s RESTART", ("ALTER SEQUENCE s OWNER TO ann",)),
        Case("ALTER SEQUENCE s CACHE 5", ("ALTER SEQUENCE s OWNER TO ann",)),
    ],
    "Update": [
        Case("UPDATE t SET v = 'x'", grants("UPDATE ON t")),
        Case("UPDATE t SET v = 'x' WHERE id = 1", grants("UPDATE ON t", "SELECT ON t")),
        Case("UPDATE t SET v = (SELECT min(v) FROM u)", grants("UPDATE ON t", "SELECT ON u")),
    ],
    "Delete": [
        Case("DELETE FROM t", grants("DELETE ON t")),
        Case("DELETE FROM t WHERE id = 1", grants("DELETE ON t", "SELECT ON t")),
    ],
    "CreateTable": [
        Case("CREATE TABLE n (id BIGINT)", grants("CREATE ON TABLESPACE default")),
        Case("CREATE TABLE IF NOT EXISTS t (id BIGINT)", grants("CREATE ON TABLESPACE default")),
    ],
    "CreateTableAs": [
        Case(
            "CREATE TABLE n AS SELECT * FROM t",
            grants("CREATE ON TABLESPACE default", "SELECT ON t"),
        ),
        Case("CREATE TABLE n AS SELECT 1 WITH NO DATA", grants("CREATE ON TABLESPACE default")),
    ],
    "CreateView": [
        Case("CREATE VIEW n AS SELECT * FROM t", grants("CREATE ON TABLESPACE default")),
        Case("CREATE OR REPLACE VIEW n AS SELECT 1", grants("CREATE ON TABLESPACE default")),
        Case(
            "CREATE OR REPLACE VIEW w AS SELECT id, v, 1 AS x FROM u",
            (*grants("CREATE ON TABLESPACE default"), "ALTER VIEW w OWNER TO ann"),
        ),
    ],
    "CreateTablespace": [Case("CREATE TABLESPACE IF NOT EXISTS n", (ROOT,))],
    "AlterTablespace": [Case("ALTER TABLESPACE missing RENAME TO n", (ROOT,))],
    "DropTablespace": [Case("DROP TABLESPACE IF EXISTS n", (ROOT,))],
    "CreateIndex": [
        Case("CREATE INDEX ON t (v)", OWNER),
        Case("CREATE UNIQUE INDEX ON t (v, id)", OWNER),
    ],
    "AlterTable": [
        Case("ALTER TABLE t ADD COLUMN x INTEGER", OWNER),
        Case("ALTER TABLE t ADD CHECK (id > 0), ALTER v SET NOT NULL", OWNER),
        Case("ALTER TABLE t RENAME TO n", OWNER),
        Case("ALTER TABLE u RENAME v TO x", ("ALTER TABLE u OWNER TO ann",)),
        Case("ALTER VIEW w RENAME TO n", ("ALTER VIEW w OWNER TO ann",)),
    ],
    "RenameIndex": [Case("ALTER INDEX u_v RENAME TO n", ("ALTER TABLE u OWNER TO ann",))],
    "DropIndexes": [Case("DROP INDEX u_v", ("ALTER TABLE u OWNER TO ann",))],
    "DropTables": [
        Case("DROP TABLE t", OWNER),
        Case("DROP TABLE IF EXISTS t", OWNER),
        Case("DROP TABLE t, u CASCADE", (*OWNER, "ALTER TABLE u OWNER TO ann")),
        Case("DROP VIEW w", ("ALTER VIEW w OWNER TO ann",)),
        Case("DROP VIEW IF EXISTS w", ("ALTER VIEW w OWNER TO ann",)),
        Case("DROP SEQUENCE s", ("ALTER SEQUENCE s OWNER TO ann",)),
    ],
    "TruncateTables": [
        Case("TRUNCATE t", grants("DELETE ON t")),
        Case("TRUNCATE t, u", grants("DELETE ON t", "DELETE ON u")),
    ],
    "Begin": [Case("BEGIN")],
    "Commit": [Case("COMMIT")],
    "Rollback": [Case("ROLLBACK")],
    "SetTransaction": [],  # within a transaction alone, as what follows: tests of levels
    "MakeSavepoint": [],  # within a transaction alone: tests of savepoints
    "RollbackTo": [],
    "Release": [],
    "SetOption": [Case("SET lock_timeout = '1s'"), Case("RESET lock_timeout")],
    "SetConfig": [Case("SELECT set_config('lock_timeout', '1s', false)")],
    "SetCharacteristics": [Case("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")],
    "ShowOption": [
        Case("SHOW lock_timeout"),
        Case("SHOW TABLES"),
        Case("SHOW ALL"),
        Case("SHOW session_authorization"),
    ],
    "SetSnapshot": [],  # of a lease, which has its owner: tests of leases
    "Kill": [
        Case("KILL STATEMENT 123456789", (ROOT,)),
        Case("KILL CONNECTION 123456789", (ROOT,)),
    ],
    "CreateRole": [
        Case("CREATE ROLE x", ("ALTER USER ann CREATEROLE",)),
        Case("CREATE USER x PASSWORD 'long'", ("ALTER USER ann CREATEROLE",)),
        Case("CREATE ROLE x SUPERUSER", (ROOT,)),
    ],
    "AlterRole": [
        Case("ALTER USER CURRENT_USER PASSWORD 'longer'"),
        Case("ALTER USER ann VALID UNTIL 'infinity'", (ROOT,)),
        Case("ALTER USER ann CREATEROLE", (ROOT,)),
        Case("ALTER USER ann SUPERUSER", (ROOT,)),
        Case("ALTER ROLE clerks LOGIN", ROLES),
        Case("ALTER USER root PASSWORD 'mine'", (ROOT,)),
    ],
    "ChangeRoleSetting": [
        Case("ALTER USER ann SET lock_timeout = '1s'"),
        Case("ALTER USER ann SET MAXIMUM lock_timeout = '1s'", (ROOT,)),
        Case("ALTER ROLE clerks RESET MAXIMUM ALL", ROLES),
    ],
    "DropRole": [Case("DROP ROLE clerks", ROLES), Case("DROP ROLE IF EXISTS bob", (ROOT,))],
    "GrantRights": [
        Case("GRANT SELECT ON t TO clerks", OWNER),
        Case("GRANT SELECT ON t TO clerks", ("GRANT SELECT ON t TO ann WITH GRANT OPTION",)),
        Case("GRANT SELECT ON t TO ann", OWNER),
        Case("GRANT ALL ON t TO PUBLIC", OWNER),
        Case("GRANT ALL ON SEQUENCE s TO clerks", ("ALTER SEQUENCE s OWNER TO ann",)),
        Case("GRANT USAGE ON s TO clerks", ("GRANT USAGE ON s TO ann WITH GRANT OPTION",)),
        Case("REVOKE SELECT ON t FROM clerks", OWNER),
        Case("REVOKE GRANT OPTION FOR SELECT ON t FROM clerks", OWNER),
        Case(
            "GRANT CREATE ON TABLESPACE default TO clerks",
            ("GRANT CREATE ON TABLESPACE default TO ann WITH GRANT OPTION",),
        ),
    ],
    "GrantRoles": [
        Case("GRANT clerks TO ann", ("GRANT clerks TO ann WITH ADMIN OPTION",)),
        Case("REVOKE clerks FROM bob", ("GRANT clerks TO ann WITH ADMIN OPTION",)),
        Case("GRANT root TO ann", (ROOT,)),
    ],
    "ChangeOwner": [
        Case("ALTER TABLE t OWNER TO ann", OWNER),
        Case("ALTER TABLE t OWNER TO bob", (*OWNER, "GRANT bob TO ann")),
        Case("ALTER VIEW w OWNER TO ann", ("ALTER VIEW w OWNER TO ann",)),
        Case("ALTER SEQUENCE s OWNER TO ann", ("ALTER SEQUENCE s OWNER TO ann",)),
    ],
    "Explain": [
        Case("EXPLAIN SELECT * FROM t", grants("SELECT ON t")),
        Case("EXPLAIN UPDATE t SET v = 'x'", grants("UPDATE ON t")),
        Case("EXPLAIN ANALYZE DELETE FROM t", grants("DELETE ON t")),
        Case("EXPLAIN ANALYZE INSERT INTO t SELECT * FROM u WHERE id > 9",
             grants("INSERT ON t", "SELECT ON u")),
    ],
}  # fmt: skip
UNKNOWN_NUMBER = "42704"  # who may KILL is told that there is no such number


def kinds(base: Any) -> set[str]:
    """Return the names of all classes in a union or below a base that have none below them."""
    is_union = isinstance(base, UnionType)
    parts: Sequence[Any] = get_args(base) if is_union else base.__subclasses__()
    return {name for part in parts for name in kinds(part)} if parts else {base.__name__}


def test_every_kind_of_statement_says_what_it_takes() -> None:
    missing = kinds(tree.Statement) - STATEMENTS.keys()
    assert not missing, f"say in STATEMENTS what rights these take: {missing}"


def test_every_system_table_says_who_may_read_it() -> None:
    texts = {case.text for case in STATEMENTS["SelectStatement"]}
    missing = [name for name in SYSTEM_TABLES if f"SELECT * FROM {name}" not in texts]
    assert not missing, f"say in STATEMENTS who may read these: {missing}"


@contextmanager
def many_users() -> Iterator[RunningServer]:
    """Give a server with two tables and the users root, ann and bob, who may do nothing."""
    with running_server(login_failure_delay_s=0) as server:
        session = server.engine.session(autocommit=True)
        for text in (
            "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)",
            "CREATE TABLE u (id BIGINT PRIMARY KEY, v TEXT)",
            "CREATE INDEX u_v ON u (v)",
            "INSERT INTO t VALUES (1, 'a')",
            "INSERT INTO u VALUES (1, 'a')",
            "CREATE VIEW w AS SELECT * FROM u",
            "CREATE SEQUENCE s",
            "CREATE TABLE identity (id BIGINT GENERATED ALWAYS AS IDENTITY, v BIGINT)",
            "CREATE TABLE serial (id BIGSERIAL, v BIGINT)",
            f"CREATE USER root PASSWORD '{PASSWORD}' SUPERUSER",
            f"CREATE USER ann PASSWORD '{PASSWORD}'",
            f"CREATE USER bob PASSWORD '{PASSWORD}'",
            "CREATE ROLE clerks",
        ):
            run(session, text)
        session.close()
        yield server


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with many_users() as found:
        yield found


@contextmanager
def allowed(server: RunningServer, needed: tuple[str, ...]) -> Iterator[None]:
    """Let ann have something for a while, and then nothing again."""
    session = server.engine.session(autocommit=True)
    try:
        for text in needed:
            run(session, "ALTER USER ann SUPERUSER" if text == ROOT else text)
        yield
    finally:
        for text in (
            "ALTER USER ann NOSUPERUSER NOCREATEROLE",
            "ALTER TABLE t OWNER TO root",
            "ALTER TABLE u OWNER TO root",
            "ALTER VIEW w OWNER TO root",
            "ALTER SEQUENCE s OWNER TO root",
            "REVOKE ALL ON t, u, w, identity, serial FROM ann",
            "REVOKE ALL ON SEQUENCE s, serial_id_seq FROM ann",
            "REVOKE ALL ON TABLESPACE default FROM ann",
            "REVOKE clerks, bob FROM ann",
        ):
            run(session, text)
        session.close()


def state_of(server: RunningServer) -> Any:
    """Return what no refused statement may change."""
    tablespace = server.engine.database.tablespace
    session = server.engine.session(autocommit=True)
    try:
        tables = [run(session, f"SELECT * FROM {name} ORDER BY id") for name in ("t", "u")]
        return tablespace.state.catalog.access.facts, session.tables(), tables
    finally:
        session.close()


def outcome(server: RunningServer, protocol: str, user: str, text: str) -> str | None:
    """Run a statement in a transaction that is rolled back; return its SQLSTATE, None: it ran."""
    with herdpy.connect(url(server, protocol, user), password=PASSWORD) as connection:
        try:
            connection.execute(text)
        except herdpy.Error as error:
            return error.sqlstate
        finally:
            connection.rollback()
    return None


OUTCOMES = {"Kill": UNKNOWN_NUMBER, "AlterTablespace": "3D000"}
"""Of who may, where what is named is not there."""
KINDS = sorted(kinds(tree.Statement) & STATEMENTS.keys())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_statements(server: RunningServer, protocol: str, kind: str) -> None:
    for case in STATEMENTS[kind]:
        check_statement(server, protocol, case, OUTCOMES.get(kind))


def check_statement(server: RunningServer, protocol: str, case: Case, works: str | None) -> None:
    text, needed = case
    before = state_of(server)
    if needed:
        assert outcome(server, protocol, "ann", text) == "42501", text
        assert state_of(server) == before, text
        for left_out in needed if len(needed) > 1 else ():
            with allowed(server, tuple(each for each in needed if each != left_out)):
                assert outcome(server, protocol, "ann", text) == "42501", (text, left_out)
    with allowed(server, needed):
        assert outcome(server, protocol, "ann", text) == works, text
    assert outcome(server, protocol, "root", text) == works, text
    if "CURRENT_USER" in text:  # which the program's own session has not
        return
    session = server.engine.session()
    try:
        run(session, text)  # a program that has the database open may do everything
        assert works is None, text
    except herdpy.Error as error:
        assert error.sqlstate == works, text  # noqa: PT017 - it may fail, but only so
    finally:
        session.rollback()
        session.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_cases_are_of_their_kind(server: RunningServer, kind: str) -> None:
    catalog = server.engine.database.tablespace.state.catalog
    for case in STATEMENTS[kind]:
        statement = compile_sql(case.text, catalog, None, lambda: None).statement
        assert type(statement).__name__ == kind


# --- requests ------------------------------------------------------------------------------------

BATCH = pa.table({"id": pa.array([7], pa.int64()), "v": pa.array(["x"])})
Act = Callable[[herdpy.Connection, Path], object]


class Request(NamedTuple):
    act: Act
    needed: tuple[str, ...]


def ingest(mode: str) -> Act:
    return lambda connection, _: connection.ingest("t", BATCH, mode=mode)


def stage(operation: str) -> Act:
    return lambda connection, _: connection.abort_staging(
        connection.begin_staging("t", operation=operation)
    )


def _pipelined(connection: herdpy.Connection) -> None:
    with connection.pipeline() as pipe:
        pipe.execute("SELECT * FROM t")


REQUESTS: dict[str, list[Request]] = {
    "Execute": [Request(lambda c, _: c.execute("SELECT * FROM t"), grants("SELECT ON t"))],
    "ExecuteMany": [
        Request(
            lambda c, _: c.executemany("INSERT INTO t VALUES (?, ?)", [(7, "x"), (8, "y")]),
            grants("INSERT ON t"),
        )
    ],
    "ExecuteAll": [Request(lambda c, _: _pipelined(c), grants("SELECT ON t"))],
    "Checkpoint": [Request(lambda c, _: c.checkpoint(), (ROOT,))],
    "BeginIngest": [
        Request(ingest("append"), grants("INSERT ON t")),
        Request(ingest("upsert"), grants("INSERT ON t", "UPDATE ON t")),
        Request(ingest("replace"), grants("INSERT ON t", "DELETE ON t")),
    ],
    "Export": [
        Request(lambda c, path: c.backup(path / "b", overwrite=True), (ROOT,)),
        Request(lambda c, path: c.dump(path / "d", overwrite=True), (ROOT,)),
    ],
    "BeginStaging": [Request(stage("append"), grants("INSERT ON t"))],
    "ListPartitions": [
        Request(lambda c, _: c.partitions("t", 2), grants("SELECT ON t")),
    ],
}
OF_ANOTHER = {
    "ExecuteKept": "Execute",
    "IngestRows": "BeginIngest", "FinishIngest": "BeginIngest", "DropIngest": "BeginIngest",
    "NextPiece": "Export", "CloseExport": "Export",
    "Fetch": "Execute", "CloseResult": "Execute",
    "BeginStage": "BeginStaging", "StageRows": "BeginStaging", "EndStage": "BeginStaging",
    "SettleStaging": "BeginStaging",
    "UseLease": "TakeLease", "EndLease": "TakeLease", "ReadPartition": "ListPartitions",
}  # fmt: skip
"""What can only go on with what another request began, by the one who did."""
FREE = {
    "Hello", "ScramStart", "ScramProof", "Ping", "Cancel", "Begin", "Commit", "Rollback",
    "SetAutocommit", "ListTables", "Resolve", "TakeLease", "WaitFor",
}  # fmt: skip
"""What takes no right: it is about the connection itself, shows only what its user may see,
or names what only its owner knows."""


def test_every_kind_of_request_says_what_it_takes() -> None:
    missing = kinds(messages.ToServer) - REQUESTS.keys() - OF_ANOTHER.keys() - FREE
    assert not missing, f"say in REQUESTS, OF_ANOTHER or FREE what these take: {missing}"


def request_cases() -> Iterator[Any]:
    known = kinds(messages.ToServer)
    for kind, found in REQUESTS.items():
        if kind in known:
            for number, request in enumerate(found):
                yield pytest.param(request, id=f"{kind}-{number}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("request_case", list(request_cases()))
def test_requests(
    server: RunningServer, protocol: str, request_case: Request, tmp_path: Path
) -> None:
    act, needed = request_case

    def outcome(user: str) -> str | None:
        with herdpy.connect(url(server, protocol, user), password=PASSWORD) as connection:
            try:
                act(connection, tmp_path)
            except herdpy.Error as error:
                return error.sqlstate
            finally:
                connection.rollback()
        return None

    before = state_of(server)
    assert outcome("ann") == "42501"
    assert state_of(server) == before
    for left_out in needed if len(needed) > 1 else ():
        with allowed(server, tuple(text for text in needed if text != left_out)):
            assert outcome("ann") == "42501", f"no {left_out}"
    with allowed(server, needed):
        assert outcome("ann") is None
    assert outcome("root") is None
