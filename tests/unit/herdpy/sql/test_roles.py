"""What statements about roles and rights are read as, and what they are not."""

import pytest

from herdpy.engine.state.catalog import Catalog
from herdpy.errors import Error, NotSupportedError
from herdpy.model.access import CREATE, DELETE, INSERT, SELECT, UPDATE
from herdpy.model.types import TEXT
from herdpy.sql import tree
from herdpy.sql.compile import compile_sql
from herdpy.sql.plan import Slot
from herdpy.sql.tree import RoleOptions

NO_TABLES = Catalog(1, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE USER ann", tree.CreateRole("ann", RoleOptions(can_login=True), False)),
        ("create role Ann", tree.CreateRole("ann", RoleOptions(can_login=False), False)),
        (
            'CREATE ROLE IF NOT EXISTS "Ann" WITH LOGIN SUPERUSER INHERIT',
            tree.CreateRole("Ann", RoleOptions(can_login=True, is_superuser=True), True),
        ),
        (
            "ALTER USER ann NOLOGIN NOCREATEROLE VALID UNTIL '1970-01-01 00:00:01'",
            tree.AlterRole(
                "ann",
                RoleOptions(can_login=False, can_create_roles=False, valid_until_us=1_000_000),
            ),
        ),
        (
            "ALTER ROLE CURRENT_USER ENCRYPTED PASSWORD 'a''b'",
            tree.AlterRole(None, RoleOptions(password=tree.Literal(TEXT, "a'b"))),
        ),
        (
            "ALTER ROLE ann PASSWORD NULL VALID UNTIL 'infinity'",
            tree.AlterRole(
                "ann",
                RoleOptions(password=tree.Literal(TEXT, None), valid_until_us=tree.FOREVER),
            ),
        ),
        (
            "CREATE USER ann CONNECTION LIMIT 5 LOGIN",
            tree.CreateRole("ann", RoleOptions(can_login=True, connections_max=5), False),
        ),
        (
            "ALTER ROLE ann CONNECTION LIMIT -1",
            tree.AlterRole("ann", RoleOptions(connections_max=-1)),
        ),
        (
            "ALTER USER ann SET lock_timeout = '1500 us'",
            tree.ChangeRoleSetting("ann", "lock_timeout", 1_500, False),
        ),
        (
            "alter role Ann set maximum Lock_timeout to 2",
            tree.ChangeRoleSetting("ann", "lock_timeout", 2_000, True),
        ),
        (
            "ALTER ROLE CURRENT_USER SET statement_timeout TO DEFAULT",
            tree.ChangeRoleSetting(None, "statement_timeout", None, False),
        ),
        (
            "ALTER ROLE ann RESET MAXIMUM running_statements",
            tree.ChangeRoleSetting("ann", "running_statements", None, True),
        ),
        (
            "ALTER ROLE ann SET MAXIMUM query_memory = '64 MB'",
            tree.ChangeRoleSetting("ann", "query_memory", 64 * 1024 * 1024, True),
        ),
        (
            "ALTER ROLE ann SET MAXIMUM temp_file_limit = 20",
            tree.ChangeRoleSetting("ann", "temp_file_limit", 20 * 1024, True),
        ),
        ("ALTER ROLE ann RESET ALL", tree.ChangeRoleSetting("ann", None, None, False)),
        ("ALTER ROLE ann RESET MAXIMUM ALL", tree.ChangeRoleSetting("ann", None, None, True)),
        ("DROP USER IF EXISTS a, b", tree.DropRole(("a", "b"), True)),
        (
            "GRANT SELECT, INSERT ON TABLE t, u TO ann, PUBLIC WITH GRANT OPTION",
            tree.GrantRights(SELECT | INSERT, ("t", "u"), None, ("ann", "public"), False, True),
        ),
        (
            "GRANT ALL PRIVILEGES ON t TO CURRENT_USER",
            tree.GrantRights(0, ("t",), None, (None,), False, False),
        ),
        (
            "GRANT CREATE, UPDATE ON TABLESPACE default TO GROUP ann",
            tree.GrantRights(CREATE | UPDATE, (), "default", ("ann",), False, False),
        ),
        (
            "REVOKE GRANT OPTION FOR DELETE ON t FROM ann RESTRICT",
            tree.GrantRights(DELETE, ("t",), None, ("ann",), True, True),
        ),
        (
            "GRANT a, b TO ann WITH ADMIN OPTION",
            tree.GrantRoles(("a", "b"), ("ann",), False, True),
        ),
        (
            "REVOKE ADMIN OPTION FOR a FROM ann",
            tree.GrantRoles(("a",), ("ann",), True, True),
        ),
        ("ALTER TABLE t OWNER TO ann", tree.ChangeOwner("t", "ann")),
    ],
)
def test_what_is_read(text: str, expected: tree.AccessStatement) -> None:
    assert compile_sql(text, NO_TABLES, None).statement == expected


def test_a_password_may_be_a_parameter() -> None:
    for text, parameters in (
        ("CREATE USER a PASSWORD ?", ("x",)),
        ("ALTER USER a PASSWORD :p", {"p": "x"}),
    ):
        found = compile_sql(text, NO_TABLES, parameters)
        assert isinstance(found.statement, tree.CreateRole | tree.AlterRole)
        assert found.statement.options.password == tree.Parameter(TEXT, 0)
        assert found.slots == (Slot("p" if isinstance(parameters, dict) else 0, TEXT),)


def test_a_password_is_in_no_repr() -> None:
    found = compile_sql("CREATE USER a PASSWORD 'geheim'", NO_TABLES, None)
    assert "geheim" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER",
        "CREATE USER public",
        "CREATE USER 'ann'",
        "CREATE USER ann, bob",
        "CREATE USER ann PASSWORD",
        "CREATE USER ann PASSWORD x",
        "CREATE USER ann LOGIN NOLOGIN NOLOGIN",
        "CREATE ROLE ann LOGIN NOLOGIN",
        "CREATE USER ann VALID '2030-01-01'",
        "CREATE USER ann ?",
        "ALTER USER ann WITH nonsense",
        "DROP USER",
        "DROP USER ann CASCADE",
        "GRANT",
        "GRANT SELECT TO ann",
        "GRANT SELECT ON t",
        "GRANT SELECT ON t FROM ann",
        "GRANT SELECT, ON t TO ann",
        "GRANT nonsense ON t TO ann",
        "GRANT SELECT ON t TO ann WITH OPTION",
        "GRANT GRANT OPTION FOR SELECT ON t TO ann",
        "REVOKE GRANT OPTION FOR a FROM ann",
        "REVOKE SELECT ON t TO ann",
        "GRANT SELECT ON t TO ann bob",
        "ALTER TABLE t OWNER ann",
        "ALTER TABLE t OWNER TO",
    ],
)
def test_what_is_no_statement(text: str) -> None:
    with pytest.raises(Error) as caught:
        compile_sql(text, NO_TABLES, ("x",) if "?" in text else None)
    assert caught.value.sqlstate == "42601"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE ROLE a IN ROLE b",
        "ALTER ROLE ALL SET lock_timeout = 1",
        "CREATE USER a CREATEDB",
        "CREATE USER a NOINHERIT",
        "CREATE USER a REPLICATION",
        "ALTER USER a RENAME TO b",
        "ALTER USER a IN DATABASE d SET lock_timeout = 1",
        "GRANT SELECT (id) ON t TO ann",
        "GRANT TRUNCATE ON t TO ann",
        "GRANT REFERENCES, SELECT ON t TO ann",
        "GRANT SELECT ON ALL TABLES IN SCHEMA s TO ann",
        "GRANT CREATE ON SCHEMA s TO ann",
        "GRANT CREATE ON DATABASE d TO ann",
        "GRANT a TO b GRANTED BY c",
        "REVOKE a FROM ann CASCADE",
        "ALTER TABLE IF EXISTS t OWNER TO ann",
    ],
)
def test_what_is_known_and_not_there(text: str) -> None:
    with pytest.raises(NotSupportedError):
        compile_sql(text, NO_TABLES, None)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER ann PASSWORD 'geheim' 'geheim'",
        "CREATE USER ann 'geheim'",
        "ALTER USER ann PASSWORD E'geheim' x",
        r"ALTER USER ann PASSWORD E'geheim\xff'",
        r"ALTER USER ann PASSWORD E'geheim\u12'",
        r"ALTER USER ann PASSWORD E'geheim\U00110000'",
        "ALTER USER ann PASSWORD $$geheim$$ x",
        "ALTER USER ann PASSWORD geheim",
        'ALTER USER ann PASSWORD "geheim"',
        "ALTER USER ann PASSWORD 'a' geheim",
        "ALTER USER ann LOGIN PASSWORD = geheim",
    ],
)
def test_an_error_never_shows_a_string(text: str) -> None:
    with pytest.raises(Error) as caught:
        compile_sql(text, NO_TABLES, None)
    assert "geheim" not in str(caught.value)


def test_a_time_that_is_none() -> None:
    with pytest.raises(Error) as caught:
        compile_sql("ALTER USER ann VALID UNTIL 'soon'", NO_TABLES, None)
    assert caught.value.sqlstate == "22007"


def test_a_word_nearly_written_is_suggested() -> None:
    with pytest.raises(Error) as caught:
        compile_sql("GRNAT SELECT ON t TO ann", NO_TABLES, None)
    assert caught.value.hint == "Did you mean GRANT?"


@pytest.mark.parametrize(
    ("text", "sqlstate"),
    [
        ("ALTER ROLE a SET lock_timeout", "42601"),
        ("ALTER ROLE a SET MAXIMUM lock_timeout 5", "42601"),
        ("ALTER ROLE a SET lock_timeout = ?", "42601"),
        ("ALTER ROLE a CONNECTION LIMIT -2", "22023"),
        ("ALTER ROLE a CONNECTION 5", "42601"),
        ("ALTER ROLE a CONNECTION LIMIT 5 CONNECTION LIMIT 6", "42601"),
        ("ALTER ROLE a CONNECTION LIMIT 1000001", "22023"),
        ("ALTER ROLE a SET lock_timeouts = 1", "42704"),
        ("ALTER ROLE a SET timezone = 'UTC'", "42704"),
        ("ALTER ROLE a RESET MAXIMUM timezone", "42704"),
        ("ALTER ROLE a SET connections = 5", "42704"),
        ("ALTER ROLE a SET lock_timeout = 'soon'", "22023"),
        ("ALTER ROLE a SET lock_timeout = '1000000h'", "22023"),
        ("ALTER ROLE a SET MAXIMUM lock_timeout = 0", "22023"),
        ("ALTER ROLE a SET MAXIMUM running_statements = 0", "22023"),
        ("ALTER ROLE a SET MAXIMUM connections = '5.5'", "22023"),
        ("ALTER ROLE a SET MAXIMUM connections = 1000001", "22023"),
        ("ALTER ROLE a SET MAXIMUM query_memory = '15MB'", "22023"),
        ("ALTER ROLE a SET MAXIMUM query_memory = '64MiB'", "22023"),
        ("ALTER ROLE a SET MAXIMUM temp_file_limit = '999999999999TB'", "22023"),
        ("ALTER ROLE a SET query_memory = '64MB'", "42704"),
    ],
)
def test_settings_that_no_role_has(text: str, sqlstate: str) -> None:
    with pytest.raises(Error) as caught:
        compile_sql(text, NO_TABLES, ("x",) if "?" in text else None)
    assert caught.value.sqlstate == sqlstate
    assert caught.value.position is not None
