"""Changes of access: roles, settings, memberships, grants, owners; one record a statement.

Transactional, and one at a time: each holds an exclusive lock on the access of the tablespace, and
on the names of the tables it is about, until its transaction ends. Who may do what is decided under
that lock.
"""

from typing import NamedTuple

from msgspec.structs import replace

from herdpy.engine.access.rights import ACCESS_LOCK, current_access, denied, rights_of
from herdpy.engine.state.locks import Lock, Mode
from herdpy.engine.state.tablespace import Tablespace
from herdpy.engine.state.transactions import Transaction
from herdpy.errors import InternalError, OperationalError, ProgrammingError, no_table, not_a
from herdpy.limits import access_facts_max, access_names_max, record_bytes_max
from herdpy.log.record import ChangeAccess, encode
from herdpy.model import access as model
from herdpy.model.access import (
    PUBLIC,
    SPACE,
    Access,
    Fact,
    FactKey,
    Grant,
    LoginSecret,
    Membership,
    Ownership,
    Rights,
    Role,
    RoleSetting,
    User,
    grant_key,
    member_key,
    reached,
    right_names,
    role_key,
    setting_key,
)
from herdpy.model.role_settings import CONNECTIONS, ROLE_SETTINGS, check_within, with_defaults
from herdpy.model.schema import Table
from herdpy.model.settings import Settings
from herdpy.sql import tree

_LISTED_MAX = 5
_TRANSACTION_BYTES = 32  # more than the id of a transaction takes in a record


class Actor(NamedTuple):
    """Who runs the statement."""

    user: User | None
    """None: the program that has the database open."""
    verifier: str | None = None
    """What was made of the password in the statement."""
    new_secret: str | None = None
    """For the first of all passwords; see LoginSecret."""


def change_access(
    tablespace: Tablespace,
    transaction: Transaction,
    statement: tree.AccessStatement,
    actor: Actor,
    lock: Lock,
) -> None:
    """Log the change. Monitor held; what lock() raises, and LogSpaceError: nothing happened."""
    _check_count(statement)
    names: tuple[str, ...] = ()
    if isinstance(statement, tree.GrantRights):
        names = statement.tables
    elif isinstance(statement, tree.ChangeOwner):
        names = (statement.table,)
    for name in sorted(set(names)):
        lock((name,), Mode.EXCLUSIVE)
    lock(ACCESS_LOCK, Mode.EXCLUSIVE)
    changes = _Changes(tablespace, transaction, actor)
    changes.read(statement)
    if changes.made:
        _submit(tablespace, transaction, changes)


def _check_count(statement: tree.AccessStatement) -> None:
    """Raise 54000 for a statement that names too many: it is carried out under the monitor."""
    match statement:
        case tree.GrantRights():
            count = len(statement.tables) + len(statement.grantees)
        case tree.GrantRoles():
            count = len(statement.roles) + len(statement.grantees)
        case tree.DropRole():
            count = len(statement.names)
        case _:
            return
    if count > access_names_max:
        raise OperationalError(
            f"the statement names {count:,} roles and tables, at most {access_names_max:,} are "
            "allowed",
            sqlstate="54000",
            hint="Name fewer at a time.",
        )


class _Changes:
    """The facts that one statement changes. Monitor held, so no fact is looked for in all."""

    def __init__(self, tablespace: Tablespace, transaction: Transaction, actor: Actor) -> None:
        self.made: dict[FactKey, Fact | None] = {}
        self._tablespace = tablespace
        self._transaction = transaction
        self._verifier = actor.verifier
        self._new_secret = actor.new_secret
        self._user = None if actor.user is None else actor.user.name
        self._before = current_access(tablespace, transaction)
        self._rights = rights_of(self._before, actor.user)

    @property
    def after(self) -> Access:
        return self._before.with_changes(self.made)

    def _fact(self, key: FactKey) -> Fact | None:
        return self.made[key] if key in self.made else self._before.fact(key)

    def read(self, statement: tree.AccessStatement) -> None:
        match statement:
            case tree.CreateRole():
                self._create(statement)
            case tree.AlterRole():
                self._alter(statement)
            case tree.ChangeRoleSetting():
                self._change_setting(statement)
            case tree.DropRole():
                self._drop(statement.names, if_exists=statement.if_exists)
            case tree.GrantRights():
                self._grant_rights(statement)
            case tree.GrantRoles():
                self._grant_roles(statement)
            case tree.ChangeOwner():
                self._change_owner(statement)
            case _:
                raise InternalError(f"no way to run {type(statement).__name__}")

    # --- roles -----------------------------------------------------------------------------------

    def _create(self, statement: tree.CreateRole) -> None:
        rights, name = self._rights, statement.name
        if rights is not None and not (rights.is_superuser or rights.can_create_roles):
            raise denied("create roles", "It takes CREATEROLE or SUPERUSER.")
        if self._before.role(name) is not None:
            if statement.if_not_exists:
                return
            raise ProgrammingError(
                f'role "{name}" exists already',
                sqlstate="42710",
                hint="Users are roles, too; ALTER USER changes one.",
            )
        if name == PUBLIC:
            raise ProgrammingError(f'the role name "{name}" is reserved', sqlstate="42939")
        self._set_options(Role(name, id=self._tablespace.applier.next_role_id), statement)
        if rights is not None and not rights.is_superuser:
            self._put(Membership(name, rights.name, is_admin=True))  # else no role could alter it

    def _alter(self, statement: tree.AlterRole) -> None:
        role = self._role(self._own(statement.name))
        options = statement.options
        rights = self._rights
        if rights is not None and not rights.is_superuser:
            is_own_password = role.name == rights.name and options == replace(
                type(options)(), password=options.password
            )
            if not is_own_password:
                self._check_administers(rights, role, "alter")
        self._set_options(role, statement)

    def _check_administers(self, rights: Rights, role: Role, verb: str) -> None:
        is_allowed = rights.can_create_roles and role.name in rights.administered
        if role.is_superuser or not is_allowed:
            raise denied(
                f'{verb} role "{role.name}"',
                "It takes SUPERUSER; or, for another role, CREATEROLE and the ADMIN OPTION.",
            )

    def _set_options(self, role: Role, statement: tree.CreateRole | tree.AlterRole) -> None:
        options, rights = statement.options, self._rights
        is_limited = rights is not None and not rights.is_superuser
        if is_limited and options.is_superuser is not None:
            raise denied("change SUPERUSER of a role", "It takes SUPERUSER.")
        for name in ("is_superuser", "can_create_roles", "can_login"):
            value = getattr(options, name)
            if value is not None:
                role = replace(role, **{name: value})
        if options.password is not None:
            role = replace(role, verifier=self._verifier)
            if self._verifier is not None and self._before.login_secret is None:
                assert self._new_secret is not None
                self._put(LoginSecret(self._new_secret))
        if options.valid_until_us is not None:
            moment = options.valid_until_us
            role = replace(role, valid_until_us=None if moment == tree.FOREVER else moment)
        self._put(role)
        if options.connections_max is not None:
            count = options.connections_max
            self._put_setting(role, CONNECTIONS, {"maximum": None if count < 0 else count})

    def _change_setting(self, statement: tree.ChangeRoleSetting) -> None:
        """Change defaults or maxima; of the own role a user changes the defaults only."""
        role, rights = self._role(self._own(statement.name)), self._rights
        is_own_default = rights is not None and role.name == rights.name
        is_own_default = is_own_default and not statement.is_maximum
        if not (is_own_default or rights is None or rights.is_superuser):
            self._check_administers(rights, role, "alter")
        field = "maximum" if statement.is_maximum else "default"
        for setting in ROLE_SETTINGS if statement.setting is None else (statement.setting,):
            self._put_setting(role, setting, {field: statement.value})

    def _put_setting(self, role: Role, setting: str, changed: dict[str, int | None]) -> None:
        """Change a default or a maximum; a default beyond the maximum is 42501."""
        old = self._fact(setting_key(role.name, setting)) or RoleSetting(role.name, setting)
        new = replace(old, **changed)
        assert isinstance(new, RoleSetting)
        if new.default is not None and "default" in changed and new.maximum is not None:
            value = with_defaults(Settings(), {setting: new.default})
            if not role.is_superuser:
                check_within(value, {setting: new.maximum})
        if new.default is None and new.maximum is None:
            self.made[new.key] = None
        else:
            self._put(new)

    def _drop(self, names: tuple[str, ...], *, if_exists: bool) -> None:
        rights = self._rights
        needs: dict[str, list[Ownership | Grant]] = {name: [] for name in names}
        memberships: list[Membership] = []
        settings: list[RoleSetting] = []
        for fact in self._before.facts:
            if isinstance(fact, Membership) and (fact.role in needs or fact.member in needs):
                memberships.append(fact)
            elif isinstance(fact, RoleSetting) and fact.role in needs:
                settings.append(fact)
            elif isinstance(fact, Ownership) and fact.owner in needs:
                needs[fact.owner].append(fact)
            elif isinstance(fact, Grant) and fact.grantee in needs:
                needs[fact.grantee].append(fact)
        for name in names:
            if if_exists and self._fact(role_key(name)) is None:
                continue
            role = self._role(name)
            if name == self._user:
                raise ProgrammingError("the session's own user cannot be dropped", sqlstate="55006")
            if rights is not None and not rights.is_superuser:
                self._check_administers(rights, role, "drop")
            if needs[name]:
                raise self._needed(name, needs[name])
            self.made[role.key] = None
        for each in memberships:
            if None in (self._fact(role_key(each.role)), self._fact(role_key(each.member))):
                self.made[each.key] = None
        for setting in settings:
            self.made[setting.key] = None

    def _needed(self, name: str, facts: list[Ownership | Grant]) -> ProgrammingError:
        shown: list[str] = []
        for fact in facts[:_LISTED_MAX]:
            where = self._name_of(fact.table_id)
            if isinstance(fact, Ownership):
                shown.append(f"it owns {where}")
            else:
                shown.append(f"it has {', '.join(right_names(fact.rights))} on {where}")
        more = f", and {len(facts) - _LISTED_MAX} more" if len(facts) > _LISTED_MAX else ""
        return ProgrammingError(
            f'role "{name}" is needed: {"; ".join(shown)}{more}',
            sqlstate="2BP01",
            hint="REVOKE what it has, and give its tables to another: ALTER TABLE … OWNER TO.",
        )

    # --- grants ----------------------------------------------------------------------------------

    def _grant_rights(self, statement: tree.GrantRights) -> None:
        what = "a table"
        if statement.tablespace is not None:
            name = self._tablespace.name
            if statement.tablespace != name:
                raise ProgrammingError(
                    f'tablespace "{statement.tablespace}" does not exist',
                    sqlstate="42704",
                    hint=f'This one is "{name}".',
                )
            objects, allowed = [SPACE], model.SPACE_RIGHTS
        else:
            tables = {table.id: table for table in map(self._table, statement.tables)}
            objects, allowed = list(tables), model.TABLE_RIGHTS
            others = [table for table in tables.values() if table.sequence is None]
            if statement.is_of_sequences and others:
                raise not_a("sequence", others[0].name)
            if not others:
                allowed, what = model.SEQUENCE_RIGHTS, "a sequence"
        rights = statement.rights or allowed
        if rights & ~allowed:
            words = ", ".join(right_names(rights & ~allowed))
            raise ProgrammingError(f"{words} is no right on {what}", sqlstate="0LP01")
        grantees = dict.fromkeys(self._grantee(name) for name in statement.grantees)
        if PUBLIC in grantees and statement.has_option and not statement.is_revoke:
            raise ProgrammingError("PUBLIC cannot have the GRANT OPTION", sqlstate="0LP01")
        for table_id in objects:
            self._check_may_grant(table_id, rights, is_all=not statement.rights)
        if statement.is_revoke:
            self._revoke(set(objects), set(grantees), rights, has_option=statement.has_option)
            self._settle_handed_on(is_cascade=statement.is_cascade)
        else:
            self._grant(objects, list(grantees), rights, has_option=statement.has_option)

    def _check_may_grant(self, table_id: int, rights: int, *, is_all: bool) -> None:
        mine = self._rights
        if mine is None or mine.owns(table_id):
            return
        missing = rights & ~mine.may_grant(table_id)
        if missing and not (is_all and missing != rights):
            raise denied(
                f"grant or revoke {', '.join(right_names(missing))} on {self._name_of(table_id)}",
                "It takes the owner, SUPERUSER, or the GRANT OPTION.",
            )

    def _grant(
        self, objects: list[int], grantees: list[str], rights: int, *, has_option: bool
    ) -> None:
        mine = self._rights
        options: dict[tuple[str, int], int] = {}
        grantors: list[str] = []
        if mine is not None:
            options = self._before.grantable_by(mine.roles - {PUBLIC})
            grantors = sorted(
                {name for name, _ in options}, key=lambda name: (name != mine.name, name)
            )
        for table_id in objects:
            if mine is None or mine.owns(table_id):
                found = {"": rights}
            else:
                found = _shares(grantors, options, table_id, rights)
            for grantor, some in found.items():
                for grantee in grantees:
                    old = self._found_grant(table_id, grantee, grantor)
                    grantable = old.grantable | (some if has_option else 0)
                    self._put(replace(old, rights=old.rights | some, grantable=grantable))

    def _found_grant(self, table_id: int, grantee: str, grantor: str = "") -> Grant:
        """Return the grant, one without rights where there is none."""
        found = self._fact(grant_key(table_id, grantee, grantor))
        return found if isinstance(found, Grant) else Grant(table_id, grantee, 0, 0, grantor)

    def _revoke(
        self, objects: set[int], grantees: set[str], rights: int, *, has_option: bool
    ) -> None:
        """Take away what the user gave; the owner, superusers and the program: of every grantor."""
        mine = self._rights
        for old in self._before.facts:
            if not isinstance(old, Grant):
                continue
            if old.table_id not in objects or old.grantee not in grantees:
                continue
            if mine is None or mine.owns(old.table_id) or old.grantor in mine.roles:
                kept = old.rights if has_option else old.rights & ~rights
                self._put_grant(replace(old, rights=kept, grantable=old.grantable & ~rights))

    def _settle_handed_on(self, *, is_cascade: bool) -> None:
        """Take away what was handed on of rights that are gone, or refuse (2BP01)."""
        lost = self.after.without_support()
        if lost and not is_cascade:
            shown = [
                f'"{grant.grantor}" has given "{grant.grantee}" {", ".join(right_names(rights))} '
                f"on {self._name_of(grant.table_id)}"
                for grant, rights in lost[:_LISTED_MAX]
            ]
            more = f", and {len(lost) - _LISTED_MAX} more" if len(lost) > _LISTED_MAX else ""
            raise ProgrammingError(
                f"others have these rights from them: {'; '.join(shown)}{more}",
                sqlstate="2BP01",
                hint="REVOKE … CASCADE takes them away, too.",
            )
        for grant, rights in lost:
            kept = replace(
                grant, rights=grant.rights & ~rights, grantable=grant.grantable & ~rights
            )
            self._put_grant(kept)

    def _put_grant(self, grant: Grant) -> None:
        self.made[grant.key] = grant if grant.rights else None

    def _grant_roles(self, statement: tree.GrantRoles) -> None:
        rights = self._rights
        grantees = list(dict.fromkeys(self._grantee(name) for name in statement.grantees))
        parents = self._before.parents()
        for name in dict.fromkeys(statement.roles):
            role = self._role(name)
            may_grant = not role.is_superuser and (rights is None or name in rights.administered)
            if not (may_grant or rights is None or rights.is_superuser):
                raise denied(
                    f'grant or revoke role "{name}"', "It takes SUPERUSER or the ADMIN OPTION."
                )
            # No new member of the role changes what the role itself is in.
            above = reached(parents, name)
            for grantee in grantees:
                if grantee == PUBLIC:
                    raise ProgrammingError("PUBLIC is no member of a role", sqlstate="0LP01")
                self._change_membership(name, grantee, statement, above)
                parents.setdefault(grantee, set()).add(name)

    def _change_membership(
        self, role: str, member: str, statement: tree.GrantRoles, above: frozenset[str]
    ) -> None:
        old = self._fact(member_key(role, member))
        assert old is None or isinstance(old, Membership)
        if statement.is_revoke:
            if old is not None:
                kept = replace(old, is_admin=False) if statement.has_option else None
                self.made[old.key] = kept
            return
        if member in above:
            raise ProgrammingError(
                f'role "{role}" is a member of role "{member}"', sqlstate="0LP01"
            )
        is_admin = statement.has_option or (old is not None and old.is_admin)
        self._put(Membership(role, member, is_admin))

    def _change_owner(self, statement: tree.ChangeOwner) -> None:
        table, owner, rights = self._table(statement.table), statement.owner, self._rights
        if statement.kind not in ("table", table.kind):
            raise not_a(statement.kind, table.name)
        what = f'{table.kind} "{table.name}"'
        if rights is not None and not rights.owns(table.id):
            raise denied(f"give away {what}", "It takes the owner or SUPERUSER.")
        name = self._own(owner)
        self._role(name)
        if not (rights is None or rights.is_superuser or name in rights.roles):
            raise denied(f'give {what} to role "{name}"', "It takes a membership in it.")
        before = self._before.owner(table.id)
        for grant in self._before.grants_on(table.id):
            if grant.grantor and grant.grantor in (before, name):  # an owner hands on nothing
                whole = self._found_grant(table.id, grant.grantee)
                rights, grantable = grant.rights | whole.rights, grant.grantable | whole.grantable
                self.made[grant.key] = None
                self._put(replace(whole, rights=rights, grantable=grantable))
        self._put(Ownership(table.id, name))

    # --- names -----------------------------------------------------------------------------------

    def _put(self, fact: Fact) -> None:
        self.made[fact.key] = fact

    def _own(self, name: str | None) -> str:
        """Return the name, or for CURRENT_USER the session's user."""
        if name is not None:
            return name
        if self._user is None:
            raise ProgrammingError(
                "this connection has no user", sqlstate="42704", hint="Name a role."
            )
        return self._user

    def _grantee(self, name: str | None) -> str:
        name = self._own(name)
        if name != PUBLIC:
            self._role(name)
        return name

    def _role(self, name: str) -> Role:
        role = self._fact(role_key(name))
        if not isinstance(role, Role):
            raise ProgrammingError(
                f'role "{name}" does not exist',
                sqlstate="42704",
                hint="SELECT * FROM sysroles lists them.",
            )
        return role

    def _table(self, name: str) -> Table:
        changes = self._transaction.catalog_changes
        catalog = self._tablespace.state.catalog
        table = changes[name] if name in changes else catalog.table(name)
        if table is None:
            raise no_table(name, (each.name for each in catalog.tables()))
        if table.is_system:
            raise ProgrammingError(
                f'"{name}" is a system table: every user may read it', sqlstate="42501"
            )
        return table

    def _name_of(self, table_id: int) -> str:
        if table_id == SPACE:
            return f"tablespace {self._tablespace.name}"
        table = self._tablespace.applier.find_table(table_id, self._transaction)
        return f"{table.kind} {table.name}"


def _shares(
    grantors: list[str], options: dict[tuple[str, int], int], table_id: int, rights: int
) -> dict[str, int]:
    """Return who of these hands on which of the rights: of ALL, what they may."""
    found: dict[str, int] = {}
    for name in grantors:
        some = rights & (options.get((name, table_id), 0) | options.get((name, SPACE), 0))
        if some:
            found[name] = some
            rights &= ~some
    return found


def _submit(tablespace: Tablespace, transaction: Transaction, changes: _Changes) -> None:
    if len(changes.after) > access_facts_max:
        raise OperationalError(
            f"roles, memberships and grants: at most {access_facts_max} are allowed",
            sqlstate="54000",
            hint="Grant to roles or on the tablespace, and make users members of roles.",
        )
    plain = model.changes_to_plain(changes.made)
    record = ChangeAccess(None, transaction.statement, plain)
    if len(encode(record)) > record_bytes_max - _TRANSACTION_BYTES:
        raise OperationalError(
            f"the statement changes {len(plain)} facts, more than one log record holds",
            sqlstate="54000",
            hint="Name fewer roles and tables at a time.",
        )
    tablespace.submit_definitions(transaction, record)
