"""Statements about access: CREATE, ALTER and DROP of ROLE and USER, GRANT, REVOKE, OWNER TO.

Read by recursive descent, as PostgreSQL writes them. What it knows and we do not have is 0A000.
"""

import datetime

from herdpy.errors import DataError, Error, ProgrammingError
from herdpy.model.access import CREATE, DELETE, INSERT, PUBLIC, SELECT, UPDATE, USAGE
from herdpy.model.python_values import shown
from herdpy.model.role_settings import CONNECTIONS, check_known, read_default, read_maximum
from herdpy.model.types import TEXT
from herdpy.sql import tree
from herdpy.sql.plan import Slot
from herdpy.sql.reading.tokens import Scanned
from herdpy.sql.reading.words import Words

_RIGHTS = {
    "SELECT": SELECT, "INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE, "CREATE": CREATE,
    "USAGE": USAGE,
}  # fmt: skip
_RIGHTS_REFUSED = (
    "ALTER", "CONNECT", "EXECUTE", "MAINTAIN", "REFERENCES", "SET", "TEMP", "TEMPORARY", "TRIGGER",
    "TRUNCATE",
)  # fmt: skip
_OBJECTS_REFUSED = (
    "ALL", "DATABASE", "DOMAIN", "FOREIGN", "FUNCTION", "LANGUAGE", "LARGE", "PARAMETER",
    "PROCEDURE", "ROUTINE", "SCHEMA", "TYPE",
)  # fmt: skip
_OPTIONS_REFUSED = (
    "ADMIN", "BYPASSRLS", "CREATEDB", "ENCRYPTED", "IN", "NOBYPASSRLS", "NOCREATEDB",
    "NOINHERIT", "NOREPLICATION", "REPLICATION", "ROLE", "SYSID", "UNENCRYPTED", "USER",
)  # fmt: skip
_FLAGS = {
    "LOGIN": ("can_login", True),
    "NOLOGIN": ("can_login", False),
    "SUPERUSER": ("is_superuser", True),
    "NOSUPERUSER": ("is_superuser", False),
    "CREATEROLE": ("can_create_roles", True),
    "NOCREATEROLE": ("can_create_roles", False),
}
_DIGITS_MAX = 12
_OWNER_MAX = 8
"""Behind ALTER TABLE IF EXISTS public.name."""
_OWN_USER = ("CURRENT_USER", "CURRENT_ROLE", "SESSION_USER")


def read_access_statement(scanned: Scanned) -> tuple[tree.AccessStatement, tuple[Slot, ...]] | None:
    """Return the statement and the slots of its parameters; None when it is none of ours."""
    reader = _Reader(scanned)
    statement = reader.statement()
    if statement is None:
        return None
    reader.expect_end()
    return statement, tuple(reader.slots)


class _Reader(Words):
    def __init__(self, scanned: Scanned) -> None:
        super().__init__(scanned)
        self.slots: list[Slot] = []
        self._has_password = False

    def unexpected(self, expected: str | None = None) -> Error:
        """Return the error; behind PASSWORD without what is there: it may be one without quotes."""
        if not self._has_password:
            return super().unexpected(expected)
        wanted = f", expected {expected}" if expected else ""
        return ProgrammingError(
            f"syntax error behind PASSWORD{wanted}",
            sqlstate="42601",
            position=self.scanned.position(self.index),
            hint="PASSWORD 'text', with any quote in it doubled; or PASSWORD ? and a parameter.",
        )

    def statement(self) -> tree.AccessStatement | None:
        first, second = self.word(), self.word(1)
        if first in ("GRANT", "REVOKE"):
            self.index += 1
            return self._grant(is_revoke=first == "REVOKE")
        if second in ("ROLE", "USER") and first in ("CREATE", "ALTER", "DROP"):
            self.index += 2
            if first == "DROP":
                if_exists = self.accept_all("IF", "EXISTS")
                return tree.DropRole(self.names("a role"), if_exists)
            return self._role(is_new=first == "CREATE", is_user=second == "USER")
        is_known = first == "ALTER" and second in ("TABLE", "VIEW", "SEQUENCE")
        if is_known and "OWNER" in self.words[3:_OWNER_MAX]:
            return self._owner(second)
        return None

    # --- roles -----------------------------------------------------------------------------------

    def _role(self, *, is_new: bool, is_user: bool) -> tree.AccessStatement:
        if is_new:
            if_not_exists = self.accept_all("IF", "NOT", "EXISTS")
            name = self.new_name()
            return tree.CreateRole(name, self._options(can_login=is_user), if_not_exists)
        if self.word() == "ALL":
            raise self.refused("ALTER ROLE ALL")
        name = None if self.accept(*_OWN_USER) else self.name("a role")
        for word in ("RENAME", "IN"):
            if self.word() == word:
                raise self.refused(f"ALTER ROLE … {word}")
        if self.word() in ("SET", "RESET"):
            return self._setting(name, is_reset=self.take() == "RESET")
        return tree.AlterRole(name, self._options(can_login=None))

    def _setting(self, role: str | None, *, is_reset: bool) -> tree.ChangeRoleSetting:
        """Read a setting, and what it is set to."""
        is_maximum = self.word() == "MAXIMUM" and self.word(1) not in ("", "TO", "=")
        self.index += is_maximum
        if is_reset and self.accept("ALL"):
            return tree.ChangeRoleSetting(role, None, None, is_maximum)
        position = self.scanned.position(self.index)
        name = self.name("a setting")
        text = None
        if not is_reset:
            if not self.accept("TO", "="):
                raise self.unexpected('"="')
            text = self.setting_value()
        try:
            check_known(name)
            read = read_maximum if is_maximum else read_default
            value = None if text is None else read(name, text)
        except Error as error:
            error.position = position
            raise
        return tree.ChangeRoleSetting(role, name, value, is_maximum)

    def new_name(self) -> str:
        is_reserved = self.word().lower() == PUBLIC or self.word() in _OWN_USER
        if is_reserved:
            raise self.unexpected("the name of a role")
        return self.name("a role")

    def _options(self, *, can_login: bool | None) -> tree.RoleOptions:
        found: dict[str, object] = {} if can_login is None else {"can_login": can_login}
        seen: set[str] = set()
        self.accept("WITH")
        while not self.is_at_end:
            word = self.word()
            if word == "ENCRYPTED" and self.word(1) == "PASSWORD":
                self.index += 1
                word = "PASSWORD"
            if word in _OPTIONS_REFUSED:
                raise self.refused(f"the option {word} of a role")
            name = _FLAGS.get(word, (word, True))[0]
            if name in seen:
                raise self.unexpected("another option")
            if word in _FLAGS:
                found[name] = _FLAGS[word][1]
                self.index += 1
            elif word == "PASSWORD":
                self.index += 1
                found["password"] = self._password()
            elif word == "VALID":
                self.index += 1
                self.expect("UNTIL")
                found["valid_until_us"] = self._moment()
            elif word == "CONNECTION":
                self.index += 1
                self.expect("LIMIT")
                found["connections_max"] = self._connections_max()
            elif word == "INHERIT":  # as it is anyway
                self.index += 1
            else:
                raise self.unexpected("an option such as PASSWORD 'text'")
            seen.add(name)
        return tree.RoleOptions(**found)  # pyright: ignore[reportArgumentType]

    def _connections_max(self) -> int:
        is_negative = self.accept("-")
        position = self.scanned.position(self.index)
        count = self.number("a number, or -1", _DIGITS_MAX)
        if is_negative and count == 1:
            return -1
        try:
            return read_maximum(CONNECTIONS, f"{'-' * is_negative}{count}")
        except Error as error:
            error.position = position
            raise

    def _password(self) -> tree.Literal | tree.Parameter:
        self._has_password = True
        if self.accept("NULL"):
            return tree.Literal(TEXT, None)
        placeholder = self.placeholder()
        if placeholder is not None:
            self.slots.append(Slot(self.scanned.placeholders[placeholder], TEXT))
            return tree.Parameter(TEXT, len(self.slots) - 1)
        return tree.Literal(TEXT, self.string("a string"))

    def _moment(self) -> int:
        """Read a time in UTC, or one that names its offset; 22007."""
        position = self.scanned.position(self.index)
        text = self.string("a string")
        if text.strip().lower() == "infinity":
            return tree.FOREVER
        try:
            moment = datetime.datetime.fromisoformat(text.strip())
        except ValueError:
            raise DataError(
                f"VALID UNTIL: expected a time such as '2030-12-31 23:59' or 'infinity', "
                f"found {shown(text)}",
                sqlstate="22007",
                position=position,
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        since = moment - datetime.datetime.fromtimestamp(0, datetime.UTC)
        return max(0, since // datetime.timedelta(microseconds=1))

    # --- rights ----------------------------------------------------------------------------------

    def _grant(self, *, is_revoke: bool) -> tree.GrantRights | tree.GrantRoles:
        has_grant_option = is_revoke and self.accept_all("GRANT", "OPTION", "FOR")
        has_admin_option = is_revoke and self.accept_all("ADMIN", "OPTION", "FOR")
        if not has_admin_option and self._is_right():
            rights = self._rights()
            self.expect("ON")
            is_of_sequences = self.word() == "SEQUENCE" and self.word(1) not in ("TO", "FROM", ",")
            tables, tablespace = self._objects()
            grantees = self._grantees(is_revoke)
            if not is_revoke:
                has_grant_option = self.accept_all("WITH", "GRANT", "OPTION")
            is_cascade = is_revoke and self.accept("CASCADE")
            statement = tree.GrantRights(
                rights,
                tables,
                tablespace,
                grantees,
                is_revoke,
                has_grant_option,
                is_cascade,
                is_of_sequences,
            )
        else:
            if has_grant_option:
                raise self.unexpected("a privilege")
            roles = self.names("a privilege or a role")
            grantees = self._grantees(is_revoke)
            if not is_revoke:
                has_admin_option = self.accept_all("WITH", "ADMIN", "OPTION")
            statement = tree.GrantRoles(roles, grantees, is_revoke, has_admin_option)
        if self.word() == "GRANTED":
            raise self.refused("GRANTED BY")
        if isinstance(statement, tree.GrantRoles) and self.word() == "CASCADE":
            raise self.refused("REVOKE of a role … CASCADE")
        if is_revoke and not getattr(statement, "is_cascade", False):
            self.accept("RESTRICT")
        return statement

    def _is_right(self) -> bool:
        """Tell whether rights are granted here, and no roles: roles have no ON behind them."""
        if self.word() in (*_RIGHTS, "ALL"):
            return True
        is_known = self.word() in _RIGHTS_REFUSED
        if is_known and self.word(1) in ("ON", ",", "("):
            raise self.refused(f"the privilege {self.word()}")
        return False

    def _rights(self) -> int:
        if self.accept("ALL"):
            self.accept("PRIVILEGES")
            self._no_columns()
            return 0
        rights = 0
        while True:
            word = self.word()
            if word in _RIGHTS_REFUSED:
                raise self.refused(f"the privilege {word}")
            if word not in _RIGHTS:
                raise self.unexpected("a privilege")
            self.index += 1
            rights |= _RIGHTS[word]
            self._no_columns()
            if not self.accept(","):
                return rights

    def _no_columns(self) -> None:
        if self.word() == "(":
            raise self.refused("a privilege on columns")

    def _objects(self) -> tuple[tuple[str, ...], str | None]:
        if self.accept("TABLESPACE"):
            return (), self.name("a tablespace")
        if self.word() in _OBJECTS_REFUSED and self.word(1) not in ("TO", "FROM", ",", ""):
            raise self.refused(f"GRANT or REVOKE ON {self.word()}")
        if self.word(1) not in ("TO", "FROM", ","):
            self.accept("TABLE", "SEQUENCE")
        tables = [self._relation("a table")]
        while self.accept(","):
            tables.append(self._relation("a table"))
        return tuple(tables), None

    def _relation(self, what: str) -> str:
        """Read the name of a table, view or sequence."""
        name = self.name(what)
        if self.word() == ".":
            self.expect_public(name, "a table name")
            name = self.name(what)
        return name

    def _grantees(self, is_revoke: bool) -> tuple[str | None, ...]:
        self.expect("FROM" if is_revoke else "TO")
        found: list[str | None] = []
        while True:
            if self.word() == "GROUP" and self.word(1) not in (",", ""):
                self.index += 1
            found.append(None if self.accept(*_OWN_USER) else self.name("a role"))
            if not self.accept(","):
                return tuple(found)

    def _owner(self, kind: str) -> tree.ChangeOwner | None:
        """Read ALTER … OWNER TO role; None: it is another ALTER."""
        self.index += 2
        if_exists = self.accept_all("IF", "EXISTS")
        if kind == "TABLE":
            self.accept("ONLY")
        table = self._relation(f"a {kind.lower()}")
        if not self.accept("OWNER"):
            return None
        self.expect("TO")
        if if_exists:
            raise self.refused(f"ALTER {kind} IF EXISTS … OWNER TO")
        owner = None if self.accept(*_OWN_USER) else self.name("a role")
        return tree.ChangeOwner(table, owner, kind.lower())
