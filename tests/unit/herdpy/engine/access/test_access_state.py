"""What is known of users and rights, in transactions, log, checkpoint, dump and backup."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.engine.maintenance.checkpoint import restore_engine
from herdpy.engine.maintenance.recovery import apply_records
from herdpy.engine.state.applier import Applier
from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.state import State
from herdpy.errors import CorruptionError
from herdpy.log.record import ChangeAccess, CreateTable, decode, encode
from herdpy.model.access import (
    Fact,
    Grant,
    LoginSecret,
    Membership,
    Ownership,
    Role,
    RoleSetting,
    changes_from_plain,
    changes_to_plain,
)
from herdpy.model.lsn import START_LSN
from herdpy.model.schema import table_to_plain
from herdpy.sql.reading.script import split_statements
from tests.fixtures.access import facts_of, refusal, run, session_of, small_engine
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.digest import state_digest
from tests.fixtures.engines import Engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = small_engine()
    yield engine
    engine.database.close()


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
    facts = facts_of(engine)
    assert len(facts) == 8
    for has_checkpoint in (False, True, True):
        if has_checkpoint:
            digest = state_digest(engine.database.tablespace)
            engine.database.run_checkpoint()
            assert state_digest(engine.database.tablespace) == digest
        engine.database.close()
        engine.open()
        assert facts_of(engine) == facts
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
        "ALTER ROLE r SET lock_timeout = 5",
        "ALTER ROLE r SET MAXIMUM lock_timeout = 5",
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
    facts = facts_of(engine)
    assert [getattr(fact, "rights", None) for fact in facts] == [None, None, 1 | 4]


def test_one_changes_access_at_a_time(engine: Engine) -> None:
    root = session_of(engine)
    other = session_of(engine, lock_timeout_s=0.01)
    run(root, "BEGIN", "CREATE ROLE r")
    assert refusal(other, "CREATE ROLE s").sqlstate == "55P03"
    run(root, "COMMIT")
    run(other, "CREATE ROLE s")


def test_a_user_is_not_dropped_under_the_table_it_makes(engine: Engine) -> None:
    root, ann = session_of(engine, lock_timeout_s=0.01), session_of(engine, "ann")
    run(root, "GRANT CREATE ON TABLESPACE default TO ann")
    run(ann, "BEGIN", "CREATE TABLE n (a INT)")
    run(root, "SELECT 1")
    assert refusal(root, "DROP USER ann").sqlstate == "55P03"
    run(ann, "COMMIT")
    assert refusal(root, "DROP USER ann").sqlstate == "2BP01"


def test_a_grant_waits_for_the_drop_of_its_table(engine: Engine) -> None:
    root, other = session_of(engine, lock_timeout_s=0.01), session_of(engine)
    run(other, "BEGIN", "DROP TABLE t")
    assert refusal(root, "GRANT SELECT ON t TO ann").sqlstate == "55P03"
    run(other, "COMMIT")
    assert refusal(root, "GRANT SELECT ON t TO ann").sqlstate == "42P01"


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
    ann = database.login("ann")
    assert ann is not None
    assert (ann.verifier, ann.may_login, ann.user.name) == (None, True, "ann")
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
        assert without_secret(other) == without_secret(engine)
        assert run(again, "SELECT * FROM t") == [(1, "a")]
    finally:
        other.database.close()


def without_secret(engine: Engine) -> list[Fact]:
    """Return all facts but the secret, and but for the ids of roles: a dump has neither."""
    facts = [replace(f, id=0) if isinstance(f, Role) else f for f in facts_of(engine)]
    [secret] = [fact for fact in facts if isinstance(fact, LoginSecret)]
    facts.remove(secret)
    return facts


def test_a_backup_has_access(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "GRANT SELECT ON t TO ann", "ALTER USER ann PASSWORD 'x'")
    disk = MemoryDisk()
    restored(backed_up(engine.database), disk)
    other = Engine(disk=disk)
    try:
        assert without_secret(other) == without_secret(engine)
    finally:
        other.database.close()


def test_facts_about_a_table_go_with_it(engine: Engine) -> None:
    root = session_of(engine)
    before = facts_of(engine)
    for begin, end in (("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT")):
        run(root, "CREATE TABLE n (a INT)", begin, "GRANT SELECT ON n TO ann")
        run(root, "ALTER TABLE n OWNER TO ann", "DROP TABLE n", end)
        assert facts_of(engine) == before


def test_what_was_written_before_there_was_access_is_read(engine: Engine) -> None:
    applier = engine.database.tablespace.applier
    facts = facts_of(engine)
    restore_engine(applier, msgspec.msgpack.encode([1, 2, {}, []]))
    assert facts_of(engine) == facts
    plain = table_to_plain(applier.state.tables[1].table)
    assert decode(msgspec.msgpack.encode([6, None, 1, plain])) == CreateTable(None, 1, plain)


FACTS: list[Fact] = [
    Role("a", True, True, True, "v", 1),
    Role("b"),
    Membership("a", "b", True),
    Grant(0, "public", 31, 1),
    Grant(7, "a", 1, 0),
    Ownership(7, "b"),
    LoginSecret("0f" * 32),
    RoleSetting("a", "lock_timeout", 0, 5),
    RoleSetting("b", "connections", None, 0),
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
        [[[5], [None]]],
        [[[5], ["f" * 63]]],
        [[[5], ["x" * 64]]],
        [[[5, 1], ["f" * 64]]],
        [[[7, "x"], [1, None]]],
        [[[7, "x", "lock_timeout"], [None, None]]],
        [[[7, "x", "lock_timeout"], [-1, None]]],
        [[[7, "x", "lock_timeout"], [1.5, None]]],
        [[[7, "x", "lock_timeout"], [1]]],
        [[[7, "x", "connections"], [1, None]]],
        [[[7, "x", "of a newer herdpy"], [None, 1]]],
        [[[7, "", "connections"], [None, 1]]],
    ],
)
def test_malformed_changes_are_a_value_error(plain: list[Any]) -> None:
    with pytest.raises(ValueError, match="malformed change of access"):
        changes_from_plain(plain)


def test_a_record_that_cannot_be_read_is_named_at_recovery(engine: Engine) -> None:
    record = ChangeAccess(None, 1, [[[1, "x"], []]])
    applier = Applier(State(1, START_LSN, Catalog(1, ()), {}), SnapshotRegistry())
    with pytest.raises(CorruptionError, match="cannot be read"):
        apply_records(applier, [(START_LSN._replace(entry_id=1), encode(record))])


def test_too_many_facts_are_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    root = session_of(engine)
    run(root, "CREATE ROLE a", "CREATE ROLE b")
    monkeypatch.setattr("herdpy.engine.access.roles.access_facts_max", 3)
    assert refusal(root, "CREATE ROLE c").sqlstate == "54000"
    run(root, "DROP ROLE a", "CREATE ROLE c")
    monkeypatch.setattr("herdpy.engine.access.roles.record_bytes_max", 50)
    assert refusal(root, "DROP ROLE b, c, ann").sqlstate == "54000"
    run(root, "DROP ROLE c")
