"""Users and rights: every kind of statement by a role that has the right for it, and by one not."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.catalog import Catalog
from herdpy.engine.checkpoint import restore_engine
from herdpy.engine.digest import state_digest
from herdpy.engine.recovery import replay_log
from herdpy.engine.session import Session
from herdpy.engine.settings import Settings
from herdpy.engine.state import State
from herdpy.engine.tablespace import Tablespace
from herdpy.errors import CorruptionError, Error, OperationalError, ProgrammingError
from herdpy.log.interfaces import Append
from herdpy.log.memory_log import MemoryLog
from herdpy.log.record import ChangeAccess, CreateTable, decode, encode
from herdpy.model.access import (
    Fact,
    Grant,
    Membership,
    Ownership,
    Role,
    changes_from_plain,
    changes_to_plain,
)
from herdpy.model.lsn import START_LSN
from herdpy.model.schema import table_to_plain
from herdpy.sql.script import split_statements
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    root = session_of(engine)
    run(root, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a')")
    run(root, "CREATE TABLE u (id INT PRIMARY KEY, v TEXT)", "CREATE USER ann")
    yield engine
    engine.database.close()


def session_of(engine: Engine, user: str | None = None) -> Session:
    return engine.database.session(Settings(), autocommit=True, user=user)


def run(session: Session, *texts: str) -> list[tuple[Any, ...]]:
    """Run statements; return the rows of the last."""
    rows: list[tuple[Any, ...]] = []
    for text in texts:
        result = session.execute(text)
        rows = list(result.rows()) if result.columns is not None else []
    return rows


def refusal(session: Session, text: str) -> Error:
    with pytest.raises(Error) as caught:
        run(session, text)
    return caught.value


STATEMENTS = [
    ("SELECT * FROM t", ["SELECT ON t"]),
    ("SELECT v FROM t WHERE id = 1", ["SELECT ON t"]),
    ("SELECT count(*) FROM t", ["SELECT ON t"]),
    ("SELECT 1 WHERE EXISTS (SELECT 1 FROM t)", ["SELECT ON t"]),
    ("WITH w AS (SELECT * FROM t) SELECT 1", ["SELECT ON t"]),
    ("SELECT * FROM t JOIN u ON t.id = u.id", ["SELECT ON t", "SELECT ON u"]),
    ("SELECT id FROM t UNION SELECT id FROM u", ["SELECT ON t", "SELECT ON u"]),
    ("SELECT (SELECT max(id) FROM u) FROM t", ["SELECT ON t", "SELECT ON u"]),
    ("SELECT id FROM t ORDER BY (SELECT max(id) FROM u)", ["SELECT ON t", "SELECT ON u"]),
    ("SELECT id FROM t LIMIT (SELECT max(id) FROM u)", ["SELECT ON t", "SELECT ON u"]),
    ("INSERT INTO t VALUES (2, 'b')", ["INSERT ON t"]),
    ("INSERT INTO t VALUES ((SELECT count(*) + 3 FROM u), 'b')", ["INSERT ON t", "SELECT ON u"]),
    ("INSERT INTO t SELECT * FROM u", ["INSERT ON t", "SELECT ON u"]),
    ("UPSERT INTO t VALUES (1, 'b')", ["INSERT ON t", "UPDATE ON t"]),
    ("UPDATE t SET v = 'x'", ["UPDATE ON t"]),
    ("UPDATE t SET v = v || 'x'", ["UPDATE ON t", "SELECT ON t"]),
    ("UPDATE t SET v = 'x' WHERE id = 1", ["UPDATE ON t", "SELECT ON t"]),
    ("UPDATE t SET v = (SELECT max(v) FROM u)", ["UPDATE ON t", "SELECT ON u"]),
    ("DELETE FROM t", ["DELETE ON t"]),
    ("DELETE FROM t WHERE id = 1", ["DELETE ON t", "SELECT ON t"]),
    ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM u)", ["DELETE ON t", "SELECT ON u"]),
    ("EXPLAIN SELECT * FROM t", ["SELECT ON t"]),
    ("EXPLAIN ANALYZE DELETE FROM t", ["DELETE ON t"]),
    ("CREATE TABLE n (id INT)", ["CREATE ON TABLESPACE default"]),
]


@pytest.mark.parametrize(("text", "needed"), STATEMENTS)
def test_a_statement_runs_with_just_its_rights(
    engine: Engine, text: str, needed: list[str]
) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    for right in needed:
        run(root, f"GRANT {right} TO ann")
    for right in needed:
        run(root, f"REVOKE {right} FROM ann")
        assert refusal(ann, text).sqlstate == "42501", f"without {right}"
        run(root, f"GRANT {right} TO ann")
    run(ann, text)


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE t",
        "CREATE USER x",
        "CREATE ROLE x",
        "ALTER USER ann SUPERUSER",
        "ALTER USER ann CREATEROLE",
        "ALTER USER ann VALID UNTIL 'infinity'",
        "ALTER USER root PASSWORD 'mine'",
        "DROP USER root",
        "GRANT SELECT ON t TO ann",
        "GRANT CREATE ON TABLESPACE default TO ann",
        "REVOKE SELECT ON t FROM ann",
        "GRANT root TO ann",
        "REVOKE root FROM ann",
        "ALTER TABLE t OWNER TO ann",
        "KILL 1",
        "KILL STATEMENT 1",
        "SELECT * FROM sysclients",
        "SELECT * FROM sysstatements",
        "INSERT INTO sysusers VALUES ('ann', true, true, true, NULL)",
        "UPDATE sysroles SET is_superuser = true",
        "DELETE FROM sysgrants",
        "DROP TABLE sysusers",
    ],
)
def test_what_no_right_on_a_table_gives(engine: Engine, text: str) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE USER root SUPERUSER", "GRANT ALL ON t TO ann")
    before = root_facts(engine)
    assert refusal(ann, text).sqlstate == "42501"
    assert root_facts(engine) == before


def root_facts(engine: Engine) -> Any:
    return engine.database.tablespace.state.catalog.access.facts


def test_a_user_may_do_what_touches_no_data(engine: Engine) -> None:
    ann = session_of(engine, "ann")
    run(ann, "BEGIN", "SELECT 1", "SET lock_timeout = '1s'", "SHOW lock_timeout", "COMMIT")
    run(ann, "ALTER USER ann PASSWORD 'new'", "ALTER USER CURRENT_USER PASSWORD 'newer'")
    with pytest.raises(ProgrammingError, match="permission denied to checkpoint"):
        ann.checkpoint()


def test_executemany_and_point_reads_are_checked(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    with pytest.raises(ProgrammingError, match="lacks INSERT"):
        ann.execute_many("INSERT INTO t VALUES (?, ?)", [(2, "b"), (3, "c")])
    text = "SELECT v FROM t WHERE id = ?"
    for _ in range(3):
        list(root.execute(text, (1,)).rows())
    assert root.read_row(text, (1,)) is not None
    assert ann.read_row(text, (1,)) is None
    with pytest.raises(ProgrammingError, match="lacks SELECT"):
        ann.execute(text, (1,))
    run(root, "GRANT SELECT ON t TO ann")
    assert list(ann.execute(text, (1,)).rows()) == [("a",)]
    assert ann.read_row(text, (1,)) is not None
    run(root, "REVOKE SELECT ON t FROM ann")
    assert ann.read_row(text, (1,)) is None
    with pytest.raises(ProgrammingError, match="lacks SELECT"):
        ann.execute(text, (1,))


def test_who_makes_a_table_owns_it(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE USER bob", "GRANT CREATE ON TABLESPACE default TO ann")
    run(ann, "CREATE TABLE mine (id INT)", "INSERT INTO mine VALUES (1)")
    bob = session_of(engine, "bob")
    assert refusal(bob, "SELECT * FROM mine").sqlstate == "42501"
    run(ann, "GRANT SELECT ON mine TO bob")
    assert run(bob, "SELECT * FROM mine") == [(1,)]
    assert refusal(bob, "DROP TABLE mine").sqlstate == "42501"
    assert refusal(root, "DROP USER ann").sqlstate == "2BP01"
    run(ann, "DROP TABLE mine")
    assert run(root, "SELECT * FROM sysgrants WHERE object_name = 'mine'") == []
    run(root, "CREATE TABLE mine (id INT)")
    assert refusal(ann, "SELECT * FROM mine").sqlstate == "42501"


def test_rights_come_through_roles_and_public(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE ROLE a", "CREATE ROLE b", "GRANT a TO b", "GRANT b TO ann")
    run(root, "GRANT SELECT ON t TO a")
    assert run(ann, "SELECT id FROM t") == [(1,)]
    run(root, "REVOKE b FROM ann")
    assert refusal(ann, "SELECT id FROM t").sqlstate == "42501"
    run(root, "GRANT SELECT ON t TO PUBLIC")
    assert run(ann, "SELECT id FROM t") == [(1,)]
    assert refusal(root, "GRANT b TO a").sqlstate == "0LP01"
    assert refusal(root, "GRANT b TO b").sqlstate == "0LP01"


def test_a_superuser_attribute_is_not_inherited(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE ROLE boss SUPERUSER CREATEROLE", "GRANT boss TO ann")
    assert refusal(ann, "SELECT id FROM t").sqlstate == "42501"
    assert refusal(ann, "CREATE ROLE x").sqlstate == "42501"


def test_the_grant_option_hands_on_no_more_than_it_has(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE USER bob", "GRANT SELECT, INSERT ON t TO ann")
    run(root, "GRANT SELECT ON t TO ann WITH GRANT OPTION")
    bob = session_of(engine, "bob")
    assert refusal(ann, "GRANT INSERT ON t TO bob").sqlstate == "42501"
    assert refusal(ann, "GRANT SELECT ON u TO bob").sqlstate == "42501"
    run(ann, "GRANT ALL ON t TO bob")
    assert run(bob, "SELECT id FROM t") == [(1,)]
    assert refusal(bob, "INSERT INTO t VALUES (2, 'b')").sqlstate == "42501"
    run(root, "REVOKE GRANT OPTION FOR SELECT ON t FROM ann")
    assert refusal(ann, "REVOKE SELECT ON t FROM bob").sqlstate == "42501"
    assert run(ann, "SELECT id FROM t") == [(1,)]


def test_createrole_administers_only_what_it_made(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "ALTER USER ann CREATEROLE", "CREATE ROLE other", "GRANT SELECT ON t TO other")
    run(ann, "CREATE ROLE own", "ALTER ROLE own LOGIN")
    assert refusal(ann, "GRANT other TO ann").sqlstate == "42501"
    assert refusal(ann, "ALTER ROLE other LOGIN").sqlstate == "42501"
    assert refusal(ann, "DROP ROLE other").sqlstate == "42501"
    assert refusal(ann, "CREATE ROLE big SUPERUSER").sqlstate == "42501"
    assert refusal(ann, "DROP ROLE ann").sqlstate == "55006"
    run(ann, "GRANT own TO ann WITH ADMIN OPTION", "REVOKE own FROM ann", "DROP ROLE IF EXISTS no")


def test_a_dropped_user_can_go_on_with_nothing(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(ann, "SELECT 1")
    run(root, "DROP USER ann")
    with pytest.raises(OperationalError, match="was dropped") as caught:
        run(ann, "SELECT 1")
    assert caught.value.sqlstate == "28000"


def test_tables_without_rights_are_not_listed(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT INSERT ON t TO ann")
    assert [table.name for table in ann.tables()] == ["t"]
    assert run(ann, "SHOW TABLES") == [("t",)]


def test_access_is_transactional(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "BEGIN", "CREATE USER bob", "GRANT SELECT ON t TO ann, bob")
    assert refusal(ann, "SELECT id FROM t").sqlstate == "42501"
    assert len(run(root, "SELECT * FROM sysgrants")) == 2
    assert run(ann, "SELECT user_name FROM sysusers") == [("ann",)]
    run(root, "ROLLBACK")
    assert run(root, "SELECT * FROM sysgrants") == []
    run(root, "BEGIN", "GRANT SELECT ON t TO ann", "COMMIT")
    assert run(ann, "SELECT id FROM t") == [(1,)]


def test_access_survives_replay_and_checkpoint(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "CREATE ROLE r", "GRANT r TO ann WITH ADMIN OPTION", "GRANT ALL ON t TO r")
    run(root, "CREATE USER bob CREATEROLE PASSWORD 'x' VALID UNTIL '2030-01-01'")
    run(root, "GRANT SELECT ON TABLESPACE default TO bob WITH GRANT OPTION", "DROP TABLE u")
    run(root, "ALTER TABLE t OWNER TO bob", "CREATE ROLE gone", "DROP ROLE gone")
    facts = root_facts(engine)
    assert len(facts) == 7
    for has_checkpoint in (False, True, True):
        if has_checkpoint:
            digest = state_digest(engine.database.tablespace)
            engine.database.run_checkpoint()
            assert state_digest(engine.database.tablespace) == digest
        engine.database.close()
        engine.open()
        assert root_facts(engine) == facts
    run(session_of(engine, "bob"), "SELECT * FROM t", "DROP TABLE t")


def test_the_digest_sees_every_fact(engine: Engine) -> None:
    root = session_of(engine)
    tablespace = engine.database.tablespace

    def digest_without_position() -> str:
        snapshot = tablespace.state
        tablespace.applier.state = snapshot._replace(lsn=first)
        try:
            return state_digest(tablespace)
        finally:
            tablespace.applier.state = snapshot

    first = tablespace.state.lsn
    seen = [digest_without_position()]
    for text in (
        "CREATE ROLE r",
        "ALTER ROLE r PASSWORD 'x'",
        "ALTER ROLE r PASSWORD 'y'",
        "GRANT r TO ann",
        "GRANT SELECT ON t TO r",
        "GRANT SELECT ON t TO r WITH GRANT OPTION",
        "ALTER TABLE t OWNER TO r",
    ):
        run(root, text)
        seen.append(digest_without_position())
    assert len(set(seen)) == len(seen)


def test_a_checkpoint_carries_access_of_open_transactions(engine: Engine) -> None:
    root, other = session_of(engine), session_of(engine)
    run(root, "BEGIN", "CREATE ROLE r", "GRANT SELECT ON t TO r")
    run(other, "INSERT INTO t VALUES (2, 'b')")
    engine.database.run_checkpoint()
    run(root, "GRANT UPDATE ON t TO r", "COMMIT")
    engine.database.close()
    engine.open()
    facts = root_facts(engine)
    assert [getattr(fact, "rights", None) for fact in facts] == [None, None, 1 | 4]


def test_one_changes_access_at_a_time(engine: Engine) -> None:
    root = session_of(engine)
    other = engine.database.session(Settings(lock_timeout_s=0.01), autocommit=True)
    run(root, "BEGIN", "CREATE ROLE r")
    assert refusal(other, "CREATE ROLE s").sqlstate == "55P03"
    run(root, "COMMIT")
    run(other, "CREATE ROLE s")


@pytest.mark.parametrize(
    ("mode", "rights"),
    [("append", ["INSERT"]), ("upsert", ["INSERT", "UPDATE"]), ("replace", ["INSERT", "DELETE"])],
)
def test_an_ingest_takes_rights(engine: Engine, mode: str, rights: list[str]) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    for right in rights:
        with pytest.raises(ProgrammingError, match="permission denied"):
            ann.begin_ingest("t", mode)
        run(root, f"GRANT {right} ON t TO ann")
    ann.begin_ingest("t", mode)


def test_a_password_is_kept_nowhere_but_as_its_verifier(engine: Engine) -> None:
    root, database = session_of(engine), engine.database
    run(root, "CREATE USER bob PASSWORD 'geheim1'", "ALTER USER bob PASSWORD 'geheim1'")
    root.execute("CREATE USER eve PASSWORD ?", ("geheim1",))
    assert "geheim1" not in repr(database.plans._entries)
    assert "geheim1" not in repr(database.plans.latest)
    engine.database.run_checkpoint()
    assert not [
        name
        for folder in ("default", "default/log", "default/segments")
        for name in engine.disk.list(folder)
        if engine.disk.exists(f"{folder}/{name}")
        and name not in ("log", "segments", "temp")
        and b"geheim1" in engine.disk.read(f"{folder}/{name}")
    ]
    for login in (database.login("bob"), database.login("eve")):
        assert login is not None
        assert login.verifier is not None
        assert login.verifier.startswith("SCRAM-SHA-256$15000:")
        assert login.verifier not in repr(login)
    for table in ("sysusers", "sysroles", "sysmembers", "sysgrants"):
        assert "SCRAM" not in repr(run(root, f"SELECT * FROM {table}"))


def test_how_a_user_may_log_in(engine: Engine) -> None:
    root, database = session_of(engine), engine.database
    assert not database.has_logins
    assert database.login("nobody") is None
    assert database.login("ann") == (None, True)
    run(root, "CREATE ROLE r PASSWORD 'x'")
    assert not database.has_logins
    run(root, "ALTER USER ann PASSWORD 'x'")
    assert database.has_logins
    for text, has_verifier, may_login in (
        ("VALID UNTIL '2001-01-01'", False, True),
        ("VALID UNTIL '2999-01-01 00:00+02:00'", True, True),
        ("VALID UNTIL 'infinity' NOLOGIN", True, False),
        ("LOGIN PASSWORD NULL", False, True),
    ):
        run(root, f"ALTER USER ann {text}")
        login = database.login("ann")
        assert login is not None
        assert (login.verifier is not None, login.may_login) == (has_verifier, may_login), text


def test_only_superusers_take_everything_away(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT ON TABLESPACE default TO ann")
    for kind in ("backup", "dump"):
        with pytest.raises(ProgrammingError, match="permission denied"):
            ann.export(kind)
    run(root, "ALTER USER ann SUPERUSER")
    for kind in ("backup", "dump"):
        ann.export(kind).close()


def test_a_dump_makes_access_again(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "CREATE USER \"B'o b\" CREATEROLE PASSWORD 'x' VALID UNTIL '2030-01-01 12:00'")
    run(root, "CREATE ROLE r SUPERUSER", "GRANT r TO ann WITH ADMIN OPTION")
    run(root, 'ALTER TABLE t OWNER TO "B\'o b"', "GRANT INSERT, SELECT ON u TO PUBLIC")
    run(root, "GRANT ALL ON TABLESPACE default TO ann", "GRANT SELECT, DELETE ON u TO ann")
    run(root, "GRANT DELETE ON u TO ann WITH GRANT OPTION")
    text = b"".join(root.export("dump").pieces()).decode()
    other = Engine()
    try:
        again = session_of(other)
        for piece in split_statements(text):
            run(again, piece.text)
        assert root_facts(other) == root_facts(engine)
        assert run(again, "SELECT * FROM t") == [(1, "a")]
    finally:
        other.database.close()


def test_a_backup_has_access(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "GRANT SELECT ON t TO ann", "ALTER USER ann PASSWORD 'x'")
    disk = MemoryDisk()
    restored(backed_up(engine.database), disk)
    other = Engine(disk=disk)
    try:
        assert root_facts(other) == root_facts(engine)
    finally:
        other.database.close()


def test_facts_about_a_table_go_with_it(engine: Engine) -> None:
    root = session_of(engine)
    before = root_facts(engine)
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")):
        run(root, "CREATE TABLE n (a INT)", begin, "GRANT SELECT ON n TO ann")
        run(root, "ALTER TABLE n OWNER TO ann", "DROP TABLE n", end)
        assert root_facts(engine) == before


def test_a_superuser_role_is_for_superusers_to_give(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE USER bob", "CREATE ROLE boss SUPERUSER", "ALTER USER ann CREATEROLE")
    run(root, "GRANT boss TO ann WITH ADMIN OPTION")
    assert refusal(ann, "GRANT boss TO bob").sqlstate == "42501"
    assert refusal(ann, "REVOKE boss FROM ann").sqlstate == "42501"
    assert refusal(ann, "ALTER ROLE boss PASSWORD 'mine'").sqlstate == "42501"
    assert refusal(ann, "DROP ROLE boss").sqlstate == "42501"


def test_what_was_written_before_there_was_access_is_read(engine: Engine) -> None:
    applier = engine.database.tablespace.applier
    facts = root_facts(engine)
    restore_engine(applier, msgspec.msgpack.encode([1, 2, {}, []]))
    assert root_facts(engine) == facts
    plain = table_to_plain(applier.state.tables[1].table)
    assert decode(msgspec.msgpack.encode([6, None, 1, plain])) == CreateTable(None, 1, plain)


FACTS: list[Fact] = [
    Role("a", True, True, True, "v", 1),
    Role("b"),
    Membership("a", "b", True),
    Grant(0, "public", 31, 1),
    Grant(7, "a", 1, 0),
    Ownership(7, "b"),
]


def test_facts_have_a_plain_form() -> None:
    changes = {fact.key: fact for fact in FACTS} | {Role("gone").key: None}
    plain = changes_to_plain(changes)
    assert changes_from_plain(msgspec.msgpack.decode(msgspec.msgpack.encode(plain))) == changes
    assert "'v'" not in repr(changes)


@pytest.mark.parametrize(
    "plain",
    [
        [1],
        [[]],
        [[[], None]],
        [[[9, "x"], None]],
        [[[[], "x"], None]],
        [[[1], None]],
        [[[1, 5], None]],
        [[[1, "x", "y"], None]],
        [[[1, "x"], []]],
        [[[1, "x"], [True, False, False, 5, None]]],
        [[[1, "x"], [1, False, False, None, None]]],
        [[[2, "x"], [True]]],
        [[[3, "x", "y"], [1, 1]]],
        [[[3, 1, "y"], [1]]],
        [[[4, 1], [None]]],
        [[[4, "x"], ["y"]]],
    ],
)
def test_malformed_changes_are_a_value_error(plain: list[Any]) -> None:
    with pytest.raises(ValueError, match="malformed change of access"):
        changes_from_plain(plain)


def test_a_record_that_cannot_be_read_is_named_at_recovery(engine: Engine) -> None:
    tablespace = engine.database.tablespace
    record = ChangeAccess(None, 1, [[[1, "x"], []]])
    log = MemoryLog(b"")
    log.append(Append((encode(record),)))
    log.sync()
    other = Tablespace("other", log, tablespace.clock, State(1, START_LSN, Catalog(1, ()), {}))
    with pytest.raises(CorruptionError, match="cannot be read"):
        replay_log(other, START_LSN)


def test_too_many_facts_are_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    root = session_of(engine)
    run(root, "CREATE ROLE a", "CREATE ROLE b")
    monkeypatch.setattr("herdpy.engine.roles.access_facts_max", 3)
    assert refusal(root, "CREATE ROLE c").sqlstate == "54000"
    run(root, "DROP ROLE a", "CREATE ROLE c")
    monkeypatch.setattr("herdpy.engine.roles.record_bytes_max", 50)
    assert refusal(root, "DROP ROLE b, c, ann").sqlstate == "54000"
    run(root, "DROP ROLE c")
