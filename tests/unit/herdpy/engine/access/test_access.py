"""Users and rights: every kind of statement by a role that has the right for it, and by one not."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from herdpy.engine.session.activity import killed_error
from herdpy.engine.session.session import Session
from herdpy.errors import OperationalError, ProgrammingError
from herdpy.limits import access_names_max
from herdpy.model.access import SELECT, Access, Changes, Grant
from tests.fixtures.access import facts_of, refusal, run, session_of, small_engine
from tests.fixtures.engines import Engine, attempt, begin_write


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = small_engine()
    yield engine
    engine.database.close()


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
    ("INSERT INTO t VALUES (1, 'b') ON CONFLICT DO NOTHING", ["INSERT ON t"]),
    ("UPSERT INTO t VALUES (1, 'b')", ["INSERT ON t", "UPDATE ON t"]),
    (
        "INSERT INTO t VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
        ["INSERT ON t", "UPDATE ON t"],
    ),
    (
        "INSERT INTO t VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET v = t.v || excluded.v",
        ["INSERT ON t", "UPDATE ON t", "SELECT ON t"],
    ),
    (
        "INSERT INTO t VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET v = 'x' WHERE t.id > 0",
        ["INSERT ON t", "UPDATE ON t", "SELECT ON t"],
    ),
    (
        "INSERT INTO t VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET v = (SELECT max(v) FROM u)",
        ["INSERT ON t", "UPDATE ON t", "SELECT ON u"],
    ),
    ("UPDATE t SET v = 'x' FROM u", ["UPDATE ON t", "SELECT ON u"]),
    ("UPDATE t SET v = u.v FROM u WHERE u.id = 1", ["UPDATE ON t", "SELECT ON u"]),
    (
        "UPDATE t SET v = u.v FROM u WHERE u.id = t.id",
        ["UPDATE ON t", "SELECT ON t", "SELECT ON u"],
    ),
    (
        "UPDATE t SET v = 'x' FROM t AS o WHERE o.id = 1",
        ["UPDATE ON t", "SELECT ON t"],
    ),
    ("DELETE FROM t USING u WHERE u.id = 1", ["DELETE ON t", "SELECT ON u"]),
    ("INSERT INTO t VALUES (2, 'b') RETURNING 1", ["INSERT ON t"]),
    ("INSERT INTO t VALUES (2, 'b') RETURNING id", ["INSERT ON t", "SELECT ON t"]),
    ("UPDATE t SET v = 'x' RETURNING *", ["UPDATE ON t", "SELECT ON t"]),
    ("DELETE FROM t RETURNING (SELECT max(id) FROM u)", ["DELETE ON t", "SELECT ON u"]),
    ("DELETE FROM t RETURNING upper(v)", ["DELETE ON t", "SELECT ON t"]),
    ("UPDATE t SET v = 'x'", ["UPDATE ON t"]),
    ("UPDATE t SET v = v || 'x'", ["UPDATE ON t", "SELECT ON t"]),
    ("UPDATE t SET v = 'x' WHERE id = 1", ["UPDATE ON t", "SELECT ON t"]),
    ("UPDATE t SET v = (SELECT max(v) FROM u)", ["UPDATE ON t", "SELECT ON u"]),
    ("DELETE FROM t", ["DELETE ON t"]),
    ("DELETE FROM t WHERE id = 1", ["DELETE ON t", "SELECT ON t"]),
    ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM u)", ["DELETE ON t", "SELECT ON u"]),
    ("TRUNCATE t", ["DELETE ON t"]),
    ("TRUNCATE t, u", ["DELETE ON t", "DELETE ON u"]),
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
    before = facts_of(engine)
    assert refusal(ann, text).sqlstate == "42501"
    assert facts_of(engine) == before


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
    assert attempt(root, text, (1,)) is not None
    assert attempt(ann, text, (1,)) is None
    with pytest.raises(ProgrammingError, match="lacks SELECT"):
        ann.execute(text, (1,))
    run(root, "GRANT SELECT ON t TO ann")
    assert list(ann.execute(text, (1,)).rows()) == [("a",)]
    assert attempt(ann, text, (1,)) is not None
    run(root, "REVOKE SELECT ON t FROM ann")
    assert attempt(ann, text, (1,)) is None
    with pytest.raises(ProgrammingError, match="lacks SELECT"):
        ann.execute(text, (1,))


def test_writes_that_begin_without_a_wait_are_checked(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    text = "INSERT INTO t VALUES (?, ?)"
    for number in range(2, 5):
        root.execute(text, (number, "x"))
    begun = begin_write(engine.database, root, text, (5, "x"))
    assert begun is not None
    root.end_write(begun)
    assert attempt(ann, text, (6, "x")) is None
    assert refusal(ann, "INSERT INTO t VALUES (6, 'x')").sqlstate == "42501"
    run(root, "GRANT INSERT ON t TO ann")
    assert attempt(ann, text, (6, "x")) is None  # it has not been looked at yet
    ann.execute(text, (6, "x"))
    begun = begin_write(engine.database, ann, text, (7, "x"))
    assert begun is not None
    ann.end_write(begun)
    run(root, "REVOKE INSERT ON t FROM ann")
    assert attempt(ann, text, (8, "x")) is None
    assert run(root, "SELECT count(*) FROM t") == [(7,)]


def test_who_is_gone_decides_nothing(engine: Engine) -> None:
    """A question about a commit that has not come refuses it, for good."""
    root, ann = session_of(engine), session_of(engine, "ann")
    name = root.token_session
    run(root, "DROP USER ann")
    with pytest.raises(OperationalError) as caught:
        ann.resolve(name, 1)
    assert caught.value.sqlstate == "57P01"
    other = session_of(engine)
    other.kill(killed_error())
    with pytest.raises(OperationalError) as caught:
        other.resolve(name, 1)
    assert caught.value.sqlstate == "57P01"
    assert engine.database.tablespace.applier.tokens.find((name, 1)) is None


def test_a_statement_names_so_many(engine: Engine) -> None:
    """While it is carried out, no other session can write."""
    root = session_of(engine)
    run(root, "CREATE USER bob")
    names = ", ".join(["ann"] * access_names_max)
    for text in (
        f"GRANT SELECT ON t TO {names}",
        f"REVOKE SELECT ON t FROM {names}",
        f"GRANT ann TO bob, {names}",
        f"DROP ROLE bob, {names}",
    ):
        assert refusal(root, text).sqlstate == "54000"
    names = ", ".join(["ann"] * (access_names_max - 1))
    run(root, f"GRANT ann TO {names.replace('ann', 'bob')}", "DROP ROLE IF EXISTS bob, bob, carl")


def test_many_names_do_not_take_long(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All facts were copied for every name: 4,000 names in a REVOKE stopped all for 99 s."""
    root = session_of(engine)
    run(root, "CREATE ROLE staff", "GRANT SELECT ON t TO ann WITH GRANT OPTION")
    for number in range(50):
        run(root, f"CREATE ROLE r{number}")
    copied = 0
    with_changes = Access.with_changes

    def counted(access: Access, changes: Changes) -> Access:
        nonlocal copied
        copied += bool(changes)
        return with_changes(access, changes)

    monkeypatch.setattr(Access, "with_changes", counted)
    names = ", ".join(f"r{number}" for number in range(50))
    ann = session_of(engine, "ann")
    for session, text in (
        (root, f"GRANT ALL ON t TO {names}"),
        (ann, f"GRANT SELECT ON t TO {names}"),
        (ann, f"REVOKE SELECT ON t FROM {names}"),
        (root, f"REVOKE ALL ON t FROM {names}"),
        (root, f"GRANT staff TO {names}"),
        (root, f"DROP ROLE {names}"),
    ):
        copied = 0
        run(session, text)
        assert copied < 10, text


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
    refused = refusal(root, "REVOKE GRANT OPTION FOR SELECT ON t FROM ann RESTRICT")
    assert refused.sqlstate == "2BP01"
    assert '"ann" has given "bob" SELECT on table t' in refused.message
    run(root, "REVOKE GRANT OPTION FOR SELECT ON t FROM ann CASCADE")
    assert refusal(bob, "SELECT id FROM t").sqlstate == "42501"
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
    assert caught.value.sqlstate == "57P01"


def test_an_error_shows_values_to_who_may_read_them(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE TABLE pay (k INT PRIMARY KEY, a INT, pin TEXT, UNIQUE (a, pin))")
    run(root, "INSERT INTO pay VALUES (1, 1, 'p-4711'), (2, 2, 'p-4711')")
    run(root, "GRANT INSERT, UPDATE ON pay TO ann")
    again = "INSERT INTO pay VALUES (1, 7, 'x')"
    moved = f"{again} ON CONFLICT (k) DO UPDATE SET a = 2"
    for text in ("UPDATE pay SET a = 2", moved, again):
        error = refusal(ann, text)
        assert error.sqlstate == "23505"
        assert "4711" not in str(error)
        assert "=(" not in str(error)
    run(root, "GRANT SELECT ON pay TO ann")
    for text, values in ((moved, "(a, pin)=(2, p-4711)"), (again, "(k)=(1)")):
        assert values in refusal(ann, text).message
        assert values in refusal(root, text).message


def test_tables_without_rights_are_not_listed(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT INSERT ON t TO ann")
    assert [table.name for table in ann.tables()] == ["t"]
    assert run(ann, "SHOW TABLES") == [("t",)]


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


def test_only_superusers_take_everything_away(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT SELECT ON TABLESPACE default TO ann")
    for kind in ("backup", "dump"):
        with pytest.raises(ProgrammingError, match="permission denied"):
            ann.export(kind)
    run(root, "ALTER USER ann SUPERUSER")
    for kind in ("backup", "dump"):
        ann.export(kind).close()


def test_a_superuser_role_is_for_superusers_to_give(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "CREATE USER bob", "CREATE ROLE boss SUPERUSER", "ALTER USER ann CREATEROLE")
    run(root, "GRANT boss TO ann WITH ADMIN OPTION")
    assert refusal(ann, "GRANT boss TO bob").sqlstate == "42501"
    assert refusal(ann, "REVOKE boss FROM ann").sqlstate == "42501"
    assert refusal(ann, "ALTER ROLE boss PASSWORD 'mine'").sqlstate == "42501"
    assert refusal(ann, "DROP ROLE boss").sqlstate == "42501"


def test_an_ingest_looks_at_rights_again_when_it_writes(engine: Engine) -> None:
    root, ann = session_of(engine), session_of(engine, "ann")
    run(root, "GRANT INSERT ON t TO ann")
    ingest = ann.begin_ingest("t", "append")
    schema = pa.schema([("id", pa.int32()), ("v", pa.string())])
    ingest.add(pa.RecordBatch.from_pylist([{"id": 5, "v": "x"}], schema=schema))
    run(root, "REVOKE INSERT ON t FROM ann")
    with pytest.raises(ProgrammingError, match="lacks INSERT"):
        ingest.finish()
    assert run(root, "SELECT id FROM t") == [(1,)]


class TestHandedOn:
    """Rights that were given by those who had them to hand on."""

    @pytest.fixture
    def root(self, engine: Engine) -> Session:
        root = session_of(engine)
        run(root, "CREATE USER bob", "CREATE USER carl", "CREATE ROLE team", "GRANT team TO ann")
        run(root, "GRANT SELECT ON t TO ann WITH GRANT OPTION")
        return root

    def may_read(self, engine: Engine) -> list[str]:
        found: list[str] = []
        for user in ("ann", "bob", "carl"):
            try:
                run(session_of(engine, user), "SELECT id FROM t")
                found.append(user)
            except ProgrammingError as error:
                assert error.sqlstate == "42501"  # noqa: PT017 - some may, some not
        return found

    def test_all_that_comes_of_a_right_goes_with_it(self, engine: Engine, root: Session) -> None:
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO bob WITH GRANT OPTION")
        run(session_of(engine, "bob"), "GRANT SELECT ON t TO carl")
        before = facts_of(engine)
        for text in ("REVOKE SELECT ON t FROM ann", "REVOKE ALL ON t FROM ann RESTRICT"):
            assert refusal(root, text).sqlstate == "2BP01"
        assert facts_of(engine) == before
        run(root, "REVOKE SELECT ON t FROM ann CASCADE")
        assert self.may_read(engine) == []
        assert run(root, "SELECT * FROM sysgrants") == []

    def test_who_has_it_from_two_keeps_it(self, engine: Engine, root: Session) -> None:
        run(root, "GRANT SELECT ON t TO bob WITH GRANT OPTION")
        for user in ("ann", "bob"):
            run(session_of(engine, user), "GRANT SELECT ON t TO carl")
        run(root, "REVOKE SELECT ON t FROM ann CASCADE")
        assert self.may_read(engine) == ["bob", "carl"]
        rows = run(root, "SELECT grantee, privilege FROM sysgrants ORDER BY grantee")
        assert rows == [("bob", "SELECT"), ("carl", "SELECT")]

    def test_a_circle_does_not_support_itself(self, engine: Engine, root: Session) -> None:
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO bob WITH GRANT OPTION")
        run(session_of(engine, "bob"), "GRANT SELECT ON t TO ann WITH GRANT OPTION")
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO ann WITH GRANT OPTION")
        run(session_of(engine, "bob"), "GRANT SELECT ON t TO carl")
        run(session_of(engine, "bob"), "REVOKE SELECT ON t FROM ann")
        assert self.may_read(engine) == ["ann", "bob", "carl"]
        run(session_of(engine, "bob"), "GRANT SELECT ON t TO ann WITH GRANT OPTION")
        [given] = [f for f in facts_of(engine) if f == Grant(1, "ann", SELECT, SELECT)]
        taken = {given.key: None}
        access = engine.database.tablespace.state.catalog.access.with_changes(taken)
        assert len(access.without_support()) == 4
        run(root, "REVOKE SELECT ON t FROM ann CASCADE")
        assert self.may_read(engine) == []

    def test_one_takes_away_only_what_one_gave(self, engine: Engine, root: Session) -> None:
        run(root, "GRANT SELECT ON t TO carl", "GRANT SELECT ON t TO bob WITH GRANT OPTION")
        ann, bob = session_of(engine, "ann"), session_of(engine, "bob")
        run(bob, "GRANT SELECT ON t TO carl")
        run(ann, "REVOKE SELECT ON t FROM carl CASCADE", "REVOKE SELECT ON t FROM bob CASCADE")
        assert self.may_read(engine) == ["ann", "bob", "carl"]
        run(bob, "REVOKE SELECT ON t FROM carl")
        assert self.may_read(engine) == ["ann", "bob", "carl"]  # root gave it, too
        run(root, "REVOKE SELECT ON t FROM carl, bob")
        assert self.may_read(engine) == ["ann"]

    def test_a_role_hands_on_for_its_members(self, engine: Engine, root: Session) -> None:
        run(root, "REVOKE SELECT ON t FROM ann", "GRANT SELECT ON t TO team WITH GRANT OPTION")
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO bob")
        run(root, "REVOKE team FROM ann")
        assert self.may_read(engine) == ["bob"]  # the role has given it
        assert refusal(root, "REVOKE SELECT ON t FROM team").sqlstate == "2BP01"
        run(root, "REVOKE SELECT ON t FROM team CASCADE")
        assert self.may_read(engine) == []

    def test_the_tablespace_supports_its_tables(self, engine: Engine, root: Session) -> None:
        run(root, "REVOKE SELECT ON t FROM ann")
        run(root, "GRANT SELECT ON TABLESPACE default TO ann WITH GRANT OPTION")
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO bob")
        text = "REVOKE SELECT ON TABLESPACE default FROM ann"
        assert refusal(root, text).sqlstate == "2BP01"
        run(root, f"{text} CASCADE")
        assert self.may_read(engine) == []

    def test_a_new_owner_stands_for_what_was_given(self, engine: Engine, root: Session) -> None:
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO bob")
        run(root, "ALTER TABLE t OWNER TO ann", "REVOKE SELECT ON t FROM ann")
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO carl")
        run(root, "ALTER TABLE t OWNER TO team", "REVOKE team FROM ann")
        assert self.may_read(engine) == ["bob", "carl"]
        run(root, "REVOKE INSERT ON t FROM carl", "DROP USER ann")
        assert self.may_read_of(engine, "bob", "carl") == ["bob", "carl"]

    def may_read_of(self, engine: Engine, *users: str) -> list[str]:
        return [user for user in users if run(session_of(engine, user), "SELECT id FROM t")]

    def test_it_survives_replay_and_checkpoint(self, engine: Engine, root: Session) -> None:
        run(session_of(engine, "ann"), "GRANT SELECT ON t TO bob")
        facts = facts_of(engine)
        assert Grant(1, "bob", SELECT, 0, "ann") in facts
        for has_checkpoint in (False, True):
            if has_checkpoint:
                engine.database.run_checkpoint()
            engine.database.close()
            engine.open()
            assert facts_of(engine) == facts
        assert refusal(session_of(engine), "REVOKE SELECT ON t FROM ann").sqlstate == "2BP01"
