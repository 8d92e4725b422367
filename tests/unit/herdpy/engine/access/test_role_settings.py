"""Defaults and maxima of roles: who may change them, what they do, and that they are kept."""

from collections.abc import Iterator

import pytest

from bookie.runtime.memory_disk import MemoryDisk
from herdpy.errors import Error
from herdpy.model.access import Access, RoleSetting
from herdpy.model.settings import Settings
from herdpy.sql.reading.script import split_statements
from tests.fixtures.access import facts_of, refusal, run, session_of, small_engine
from tests.fixtures.backups import backed_up, restored
from tests.fixtures.engines import Engine

ALL_SETTINGS = "SELECT setting, default_value, maximum FROM sysrolesettings ORDER BY setting"


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = small_engine()
    yield engine
    engine.database.close()


def settings_of(engine: Engine) -> list[RoleSetting]:
    return [fact for fact in facts_of(engine) if isinstance(fact, RoleSetting)]


def test_a_maximum_holds_for_set_and_for_what_was_set_before(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(ann, "SET statement_timeout = '5min'")
    run(root, "ALTER ROLE ann SET MAXIMUM statement_timeout = '10s'")
    for value in ("'11s'", "10001", "0"):
        error = refusal(ann, f"SET statement_timeout = {value}")
        assert (error.sqlstate, "maximum is 10s" in error.message) == ("42501", True)
    assert run(ann, "SHOW statement_timeout") == [("10s",)]
    run(ann, "SET statement_timeout = '9s'")
    assert run(ann, "SHOW statement_timeout") == [("9s",)]
    assert run(ann, "RESET statement_timeout", "SHOW statement_timeout") == [("10s",)]
    run(ann, "SET lock_timeout = 0")  # another one has none
    run(root, "ALTER ROLE ann RESET MAXIMUM statement_timeout")
    run(ann, "SET statement_timeout = 0")
    assert run(root, ALL_SETTINGS) == []


def test_superusers_and_the_program_have_no_maxima(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "ALTER ROLE ann SET MAXIMUM lock_timeout = '1s'", "ALTER USER ann SUPERUSER")
    run(ann, "SET lock_timeout = '1h'")
    run(root, "SET lock_timeout = '1h'", "ALTER USER ann NOSUPERUSER")
    assert run(ann, "SHOW lock_timeout") == [("1s",)]


def test_a_maximum_ends_an_idle_transaction(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT UPDATE ON t TO ann")
    run(ann, "BEGIN", "UPDATE t SET v = 'b'")
    ann.look_after(engine.clock.monotonic() + 3_600)
    assert ann.in_transaction
    assert refusal(session_of(engine, lock_timeout_s=0.01), "DROP TABLE t").sqlstate == "55P03"
    run(root, "ALTER ROLE ann SET MAXIMUM idle_in_transaction_session_timeout = '1min'")
    ann.look_after(engine.clock.monotonic() + 59)
    assert refusal(session_of(engine, lock_timeout_s=0.01), "DROP TABLE t").sqlstate == "55P03"
    ann.look_after(engine.clock.monotonic() + 61)
    assert refusal(ann, "COMMIT").sqlstate == "25P03"
    assert run(root, "SELECT v FROM t") == [("a",)]


@pytest.mark.parametrize(
    ("text", "may_administer", "may_own"),
    [
        ("ALTER ROLE ann SET lock_timeout = '1s'", True, True),
        ("ALTER ROLE ann RESET ALL", True, True),
        ("ALTER ROLE ann SET MAXIMUM lock_timeout = '1s'", True, False),
        ("ALTER ROLE ann RESET MAXIMUM ALL", True, False),
        ("ALTER ROLE ann CONNECTION LIMIT 3", True, False),
        ("ALTER ROLE CURRENT_USER SET lock_timeout = '1s'", True, True),
        ("ALTER ROLE boss SET lock_timeout = '1s'", False, False),
        ("ALTER ROLE boss SET MAXIMUM connections = 1", False, False),
    ],
)
def test_who_may_change_what(
    engine: Engine, text: str, *, may_administer: bool, may_own: bool
) -> None:
    root = session_of(engine)
    run(root, "CREATE USER boss SUPERUSER", "CREATE USER eve CREATEROLE", "GRANT ann TO eve")
    eve, ann = session_of(engine, "eve"), session_of(engine, "ann")
    if "CURRENT_USER" not in text:
        assert refusal(eve, text).sqlstate == "42501"
    run(root, "GRANT ann TO eve WITH ADMIN OPTION")
    for session, may in ((eve, may_administer), (ann, may_own)):
        if may:
            run(session, text)
        else:
            assert refusal(session, text).sqlstate == "42501"
    run(root, text.replace("CURRENT_USER", "ann"))


def test_a_default_beyond_the_maximum_is_refused(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "ALTER ROLE ann SET MAXIMUM lock_timeout = '5s'")
    for session in (root, ann):
        assert refusal(session, "ALTER ROLE ann SET lock_timeout = '6s'").sqlstate == "42501"
        assert refusal(session, "ALTER ROLE ann SET lock_timeout = 0").sqlstate == "42501"
    run(ann, "ALTER ROLE ann SET lock_timeout = '4s'")
    assert run(root, ALL_SETTINGS) == [("lock_timeout", "4s", "5s")]


def test_settings_survive_replay_checkpoint_backup_and_dump(engine: Engine) -> None:
    root = session_of(engine)
    run(root, 'CREATE USER "B\'o b" CONNECTION LIMIT 7', "CREATE USER gone CONNECTION LIMIT 1")
    run(root, "ALTER ROLE ann SET lock_timeout = '1500us'", "DROP USER gone")
    run(root, "ALTER ROLE ann SET MAXIMUM running_statements = 2")
    run(root, "ALTER ROLE ann SET MAXIMUM query_memory = '1536MB'")
    run(root, "ALTER ROLE ann SET MAXIMUM lock_timeout TO '90min'")
    expected = settings_of(engine)
    assert [(each.role, each.setting, each.default, each.maximum) for each in expected] == [
        ("B'o b", "connections", None, 7),
        ("ann", "lock_timeout", 1_500, 5_400_000_000),
        ("ann", "query_memory", None, 1_610_612_736),
        ("ann", "running_statements", None, 2),
    ]
    for has_checkpoint in (False, True):
        if has_checkpoint:
            engine.database.run_checkpoint()
        engine.reopen()
        assert settings_of(engine) == expected
    disk = MemoryDisk()
    restored(backed_up(engine.database), disk)
    text = b"".join(session_of(engine).export("dump").pieces()).decode()
    copy, other = Engine(disk=disk), Engine()
    try:
        assert settings_of(copy) == expected
        again = session_of(other)
        for piece in split_statements(text):
            run(again, piece.text)
        assert settings_of(other) == expected
    finally:
        copy.database.close()
        other.database.close()


def test_a_new_role_of_the_name_has_none_of_them(engine: Engine) -> None:
    root = session_of(engine)
    run(root, "ALTER ROLE ann CONNECTION LIMIT 1", "DROP USER ann", "CREATE USER ann")
    assert settings_of(engine) == []


def test_settings_are_transactional_and_counted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "BEGIN", "ALTER ROLE ann SET MAXIMUM lock_timeout = '1s'")
    run(ann, "SET lock_timeout = '2s'")
    run(root, "ROLLBACK", "CREATE ROLE a")
    assert settings_of(engine) == []
    monkeypatch.setattr("herdpy.engine.access.roles.access_facts_max", 2)
    assert refusal(root, "ALTER ROLE ann CONNECTION LIMIT 1").sqlstate == "54000"


def test_defaults_are_what_a_session_begins_with(engine: Engine) -> None:
    root, access = session_of(engine), engine.database.tablespace.state.catalog.access
    run(root, "ALTER ROLE ann SET lock_timeout = '4s'", "ALTER ROLE ann SET statement_timeout = 0")
    assert access.defaults_of("ann") == {}
    access = engine.database.tablespace.state.catalog.access
    assert access.defaults_of("ann") == {"statement_timeout": 0, "lock_timeout": 4_000_000}
    assert engine.database.session(Settings(), user="ann").settings.lock_timeout_s == 0


def test_leases_and_stagings_of_a_role_have_a_limit(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT, INSERT ON t TO ann", "ALTER ROLE ann SET MAXIMUM leases = 2")
    run(root, "ALTER ROLE ann SET MAXIMUM stagings = 2")
    leases = [ann.leasing.take(60).id for _ in range(2)]
    for number in range(2):
        ann.staging.begin("t", "append", f"job {number}")
    for attempt in range(3):
        with pytest.raises(Error, match="ann") as caught:
            ann.leasing.take(60)
        assert caught.value.sqlstate == "53400"
        with pytest.raises(Error, match="ann") as caught:
            ann.staging.begin("t", "append", f"another job {attempt}")
        assert caught.value.sqlstate == "53400"
    ann.staging.begin("t", "append", "job 0")  # it is there
    root.staging.begin("t", "append", "of others")
    root.leasing.take(60)
    ann.leasing.end(leases[0])
    ann.leasing.take(60)


def test_who_has_maxima_is_looked_up_once_for_each_change(engine: Engine) -> None:
    def access() -> Access:
        return engine.database.tablespace.state.catalog.access

    root = session_of(engine)
    run(root, "ALTER ROLE ann SET MAXIMUM leases = 3", "CREATE USER boss SUPERUSER")
    run(root, "ALTER ROLE boss SET MAXIMUM leases = 4")
    [(user, maxima)] = access().limited_users()
    assert (user.name, dict(maxima)) == ("ann", {"leases": 3})
    assert access().limited_users() is access().limited_users()
    run(root, "ALTER ROLE ann RESET MAXIMUM leases")
    assert access().limited_users() == []
