"""Access: roles, settings, memberships, grants, owners as immutable facts, and what follows.

Access is replaced, never changed; any thread may read it. Role names are folded as tables' names
are. PUBLIC stands for every role.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from herdpy.model.role_settings import NO_MAXIMA, ROLE_SETTINGS, TIMEOUTS, Maxima

SELECT, INSERT, UPDATE, DELETE, CREATE, USAGE = 1, 2, 4, 8, 16, 32
TABLE_RIGHTS = SELECT | INSERT | UPDATE | DELETE
SEQUENCE_RIGHTS = USAGE | SELECT | UPDATE
SPACE_RIGHTS = TABLE_RIGHTS | CREATE
_OWNER_RIGHTS = TABLE_RIGHTS | SEQUENCE_RIGHTS
_ALL_RIGHTS = SPACE_RIGHTS | SEQUENCE_RIGHTS
RIGHT_NAMES = {
    SELECT: "SELECT",
    INSERT: "INSERT",
    UPDATE: "UPDATE",
    DELETE: "DELETE",
    CREATE: "CREATE",
    USAGE: "USAGE",
}
PUBLIC = "public"
SPACE = 0
"""In place of a table's id: the tablespace, and so every table in it, those to come included."""

FactKey = tuple[int | str, ...]
_ROLE, _MEMBER, _GRANT, _OWNER, _SECRET, _HANDED_ON, _SETTING = 1, 2, 3, 4, 5, 6, 7


class Role(msgspec.Struct, frozen=True):
    """A role; with can_login a user. The verifier is SCRAM's, None: no password, no login by one.

    valid_until_us: microseconds since 1970 from which on the password is refused.
    id: the same as long as the role is, however it is altered; another role that gets the name
    later has another one. 0: FORMAT 1 logged it, and with_role_ids() has not given it one yet.
    """

    name: str
    can_login: bool = False
    is_superuser: bool = False
    can_create_roles: bool = False
    verifier: str | None = None
    valid_until_us: int | None = None
    id: int = 0

    def __repr__(self) -> str:  # never shows the verifier
        return f"Role({self.name!r}, id={self.id}, …)"

    @property
    def key(self) -> FactKey:
        return role_key(self.name)


class User(NamedTuple):
    """The role that a session has the rights of, which no other role of its name is."""

    name: str
    id: int
    """Role.id."""


def plain_user(user: User | None) -> tuple[str | None, int]:
    """Return name and id as records have them; Access.owner_of() inverts it."""
    return (None, 0) if user is None else user


class Membership(msgspec.Struct, frozen=True):
    """`member` has what `role` has; is_admin: and may let others in."""

    role: str
    member: str
    is_admin: bool = False

    @property
    def key(self) -> FactKey:
        return member_key(self.role, self.member)


class Grant(msgspec.Struct, frozen=True):
    """Rights, as bits, of grantee on a table or (SPACE) on all; `grantable` may be handed on.

    `grantor` is who had them to hand on; "": the owner, a superuser or the program gave them.
    """

    table_id: int
    grantee: str
    rights: int
    grantable: int = 0
    grantor: str = ""

    @property
    def key(self) -> FactKey:
        return grant_key(self.table_id, self.grantee, self.grantor)


class Ownership(msgspec.Struct, frozen=True):
    """Who may do everything with a table, dropping it included, beside superusers."""

    table_id: int
    owner: str

    @property
    def key(self) -> FactKey:
        return owner_key(self.table_id)


class LoginSecret(msgspec.Struct, frozen=True):
    """What makes the salts of users who do not exist, the same ones on every server; 64 hex digits.

    It comes with the first password ever set, and stays when there is none any more: a database
    that has it does not go back to letting every client in.
    """

    text: str

    def __repr__(self) -> str:
        return "LoginSecret(…)"

    @property
    def key(self) -> FactKey:
        return (_SECRET,)


class RoleSetting(msgspec.Struct, frozen=True):
    """What sessions of a role begin with, and may have at most; see role_settings.py.

    None: there is none; one of the two is.
    """

    role: str
    setting: str
    default: int | None = None
    maximum: int | None = None

    @property
    def key(self) -> FactKey:
        return setting_key(self.role, self.setting)


Fact = Role | Membership | Grant | Ownership | LoginSecret | RoleSetting
Changes = Mapping[FactKey, Fact | None]
"""Facts made or replaced, by key; None: removed."""


def with_role_ids(
    changes: Changes, before: Callable[[FactKey], Fact | None], next_id: int
) -> tuple[Changes, int]:
    """Return changes in which every role has an id, and the next id that no role has had.

    A role without one, of FORMAT 1, is the one that it was before, or new. before(key) is the fact
    that a change replaces.
    """
    found = dict(changes)
    for key, fact in changes.items():
        if isinstance(fact, Role):
            if not fact.id:
                old = before(key)
                fact = replace(fact, id=old.id if isinstance(old, Role) else next_id)
                found[key] = fact
            next_id = max(next_id, fact.id + 1)
    return found, next_id


def role_key(name: str) -> FactKey:
    return (_ROLE, name)


def member_key(role: str, member: str) -> FactKey:
    return (_MEMBER, role, member)


def grant_key(table_id: int, grantee: str, grantor: str = "") -> FactKey:
    key = (table_id, grantee)
    return (_HANDED_ON, *key, grantor) if grantor else (_GRANT, *key)


def owner_key(table_id: int) -> FactKey:
    return (_OWNER, table_id)


def setting_key(role: str, setting: str) -> FactKey:
    return (_SETTING, role, setting)


class Rights(msgspec.Struct, frozen=True):
    """What one role may do, by itself and by all it is a member of."""

    name: str
    roles: frozenset[str]
    """The role, those it is in, at any depth, and PUBLIC."""
    administered: frozenset[str]
    """The roles whose membership it may give."""
    is_superuser: bool
    can_create_roles: bool
    granted: Mapping[int, int]
    """Rights by table id, SPACE among them; all of a table's for its owner."""
    grantable: Mapping[int, int]
    owned: frozenset[int]

    def of(self, table_id: int) -> int:
        return self.granted.get(table_id, 0) | self.granted.get(SPACE, 0)

    def may_grant(self, table_id: int) -> int:
        if self.is_superuser:
            return _ALL_RIGHTS
        return self.grantable.get(table_id, 0) | self.grantable.get(SPACE, 0)

    @property
    def may_read_any(self) -> bool:
        """There is a table that it may read, or may be."""
        return self.is_superuser or any(rights & SELECT for rights in self.granted.values())

    def owns(self, table_id: int) -> bool:
        return self.is_superuser or table_id in self.owned


class Access:
    """All facts of one tablespace at one moment."""

    __slots__ = ("_facts", "_limited", "_rights")

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._facts: dict[FactKey, Fact] = {fact.key: fact for fact in facts}
        self._rights: dict[str, Rights | None] = {}  # made on first use, of roles that exist
        self._limited: list[tuple[User, Maxima]] | None = None  # made on first use

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def facts(self) -> list[Fact]:
        """All facts, in the order of their keys."""
        return [self._facts[key] for key in sorted(self._facts, key=_order)]

    def fact(self, key: FactKey) -> Fact | None:
        return self._facts.get(key)

    def role(self, name: str) -> Role | None:
        found = self._facts.get(role_key(name))
        return found if isinstance(found, Role) else None

    def user(self, name: str) -> User | None:
        """Return the role of a name as the user of a session; None: there is none."""
        role = self.role(name)
        return None if role is None else User(name, role.id)

    def owner_of(self, name: str | None, role_id: int) -> User | None:
        """Return whose something is that a record names; None: the program's own.

        role_id 0: FORMAT 1 logged it, and it is the role's that has the name now.
        """
        if name is None:
            return None
        return User(name, role_id) if role_id else self.user(name) or User(name, role_id)

    def has(self, user: User) -> bool:
        """Return whether the role is still there, and no other one has its name."""
        role = self._facts.get(role_key(user.name))
        return isinstance(role, Role) and role.id == user.id

    def dropped_by(self, changes: Changes) -> list[str]:
        """Return the names of the roles that are no more behind these changes."""
        return [
            old.name
            for key, fact in changes.items()
            if isinstance(old := self._facts.get(key), Role)
            and (not isinstance(fact, Role) or fact.id != old.id)
        ]

    @property
    def has_logins(self) -> bool:
        """True when some role can log in and has a password."""
        roles = (fact for fact in self._facts.values() if isinstance(fact, Role))
        return any(role.can_login and role.verifier is not None for role in roles)

    @property
    def login_secret(self) -> bytes | None:
        """See LoginSecret; None: no password was ever set."""
        found = self._facts.get((_SECRET,))
        return bytes.fromhex(found.text) if isinstance(found, LoginSecret) else None

    def grantable_by(self, names: Container[str]) -> dict[tuple[str, int], int]:
        """Return what these roles, without those they are in, were given to hand on.

        By role and table, or SPACE.
        """
        found: dict[tuple[str, int], int] = {}
        for fact in self._facts.values():
            if isinstance(fact, Grant) and fact.grantable and fact.grantee in names:
                place = fact.grantee, fact.table_id
                found[place] = found.get(place, 0) | fact.grantable
        return found

    def without_support(self) -> list[tuple[Grant, int]]:
        """Return the grants, in order, with those of their rights that go no further.

        A right is supported that comes, from hand to hand, from "" or the table's owner; so grants
        in a circle do not support each other.
        """
        grants = [fact for fact in self.facts if isinstance(fact, Grant)]
        given: dict[tuple[str, int | None], list[Grant]] = {}  # by grantor and table; None: all
        for grant in grants:
            for table_id in (grant.table_id, None):
                given.setdefault((grant.grantor, table_id), []).append(grant)
        options: dict[tuple[str, int], int] = {
            (fact.owner, fact.table_id): _OWNER_RIGHTS
            for fact in self._facts.values()
            if isinstance(fact, Ownership)
        }

        def supported(grant: Grant) -> int:
            by = grant.grantor
            if not by:
                return _ALL_RIGHTS
            return options.get((by, grant.table_id), 0) | options.get((by, SPACE), 0)

        pending = list(grants)
        while pending:
            grant = pending.pop()
            place = (grant.grantee, grant.table_id)
            bits = options.get(place, 0) | (grant.grantable & supported(grant))
            if bits != options.get(place, 0):
                options[place] = bits
                table_id = None if grant.table_id == SPACE else grant.table_id
                pending += given.get((grant.grantee, table_id), ())
        lost = [(grant, grant.rights & ~supported(grant)) for grant in grants]
        return [(grant, rights) for grant, rights in lost if rights]

    def grants_on(self, table_id: int) -> list[Grant]:
        facts = (fact for fact in self._facts.values() if isinstance(fact, Grant))
        found = [fact for fact in facts if fact.table_id == table_id]
        return sorted(found, key=lambda grant: _order(grant.key))

    def role_settings(self, name: str) -> list[RoleSetting]:
        """Return the settings of a role, in the order of ROLE_SETTINGS."""
        found = (self._facts.get(setting_key(name, setting)) for setting in ROLE_SETTINGS)
        return [fact for fact in found if isinstance(fact, RoleSetting)]

    def defaults_of(self, name: str) -> Mapping[str, int]:
        """Return what sessions of a user begin with, by setting."""
        return {
            fact.setting: fact.default
            for fact in self.role_settings(name)
            if fact.default is not None
        }

    def maxima_of(self, name: str) -> Maxima:
        """Return what a user may have at most, by setting; superusers have no maxima."""
        role = self.role(name)
        if role is None or role.is_superuser:
            return NO_MAXIMA
        return {
            fact.setting: fact.maximum
            for fact in self.role_settings(name)
            if fact.maximum is not None
        }

    def limited_users(self) -> Sequence[tuple[User, Maxima]]:
        """Return the users that have a maximum of anything, by name, with their maxima.

        They are looked up once: a server's loop asks for them at each scrape.
        """
        if self._limited is None:
            facts = (fact for fact in self._facts.values() if isinstance(fact, RoleSetting))
            names = sorted({fact.role for fact in facts if fact.maximum is not None})
            found = ((self.user(name), self.maxima_of(name)) for name in names)
            self._limited = [(user, maxima) for user, maxima in found if user and maxima]
        return self._limited

    def owner(self, table_id: int) -> str | None:
        found = self._facts.get(owner_key(table_id))
        return found.owner if isinstance(found, Ownership) else None

    def with_changes(self, changes: Changes) -> "Access":
        if not changes:
            return self
        made = Access()
        made._facts = {**self._facts, **{key: fact for key, fact in changes.items() if fact}}
        for key, fact in changes.items():
            if fact is None:
                made._facts.pop(key, None)
        return made

    def only_tables(self, known: Iterable[int]) -> "Access":
        """Return the facts without those about tables that are no more."""
        ids = {SPACE, *known}
        gone: dict[FactKey, None] = {
            key: None
            for key, fact in self._facts.items()
            if isinstance(fact, Grant | Ownership) and fact.table_id not in ids
        }
        return self.with_changes(gone)

    def rights_of(self, name: str) -> Rights | None:
        """Return what the role may do; None when there is no such role."""
        found = self._rights.get(name)
        if found is None and role_key(name) in self._facts:
            found = self._rights[name] = self._make_rights(name)
        return found

    def parents(self) -> dict[str, set[str]]:
        """Return the roles that each role is in by itself."""
        found: dict[str, set[str]] = {}
        for fact in self._facts.values():
            if isinstance(fact, Membership):
                found.setdefault(fact.member, set()).add(fact.role)
        return found

    def _make_rights(self, name: str) -> Rights:
        role = self.role(name) or Role(name)
        roles = reached(self.parents(), name) | {PUBLIC}
        granted: dict[int, int] = {}
        grantable: dict[int, int] = {}
        owned: set[int] = set()
        administered: set[str] = set()
        for fact in self._facts.values():
            if isinstance(fact, Grant) and fact.grantee in roles:
                table_id = fact.table_id
                granted[table_id] = granted.get(table_id, 0) | fact.rights
                grantable[table_id] = grantable.get(table_id, 0) | fact.grantable
            elif isinstance(fact, Ownership) and fact.owner in roles:
                owned.add(fact.table_id)
            elif isinstance(fact, Membership) and fact.is_admin and fact.member in roles:
                administered.add(fact.role)
        for table_id in owned:
            granted[table_id] = grantable[table_id] = _OWNER_RIGHTS
        return Rights(
            name,
            roles,
            frozenset(administered),
            role.is_superuser,
            role.can_create_roles,
            granted,
            grantable,
            frozenset(owned),
        )


NO_ACCESS = Access()


def reached(parents: Mapping[str, Iterable[str]], name: str) -> frozenset[str]:
    """Return the name and all that are reached from it, at any depth."""
    found, pending = {name}, [name]
    while pending:
        new = set(parents.get(pending.pop(), ())) - found
        found |= new
        pending += new
    return frozenset(found)


def right_names(rights: int) -> list[str]:
    """Return the words of the bits, in the order of the bits."""
    return [name for right, name in RIGHT_NAMES.items() if rights & right]


def changes_to_plain(changes: Changes) -> list[Any]:
    """Return lists, numbers and strings only, for msgpack; see docs/formats/record.md."""
    return [
        [list(key), None if fact is None else [getattr(fact, n) for n in _VALUES[type(fact)]]]
        for key, fact in sorted(changes.items(), key=lambda item: _order(item[0]))
    ]


def changes_from_plain(plain: list[Any]) -> dict[FactKey, Fact | None]:
    """Invert changes_to_plain; any malformed input is a ValueError."""
    try:
        changes: dict[FactKey, Fact | None] = {}
        for key, values in plain:
            kind, *parts = key
            make, key_shape, value_shape = _SHAPES[kind]
            checked = msgspec.convert(parts, key_shape)
            if values is None:
                changes[kind, *checked] = None
            else:
                fact = make(*checked, *msgspec.convert(values, value_shape))
                changes[fact.key] = fact
        return changes
    except (TypeError, ValueError, KeyError, msgspec.ValidationError) as error:
        # Without the cause: its text may have a verifier.
        raise ValueError(f"malformed change of access: {type(error).__name__}") from None


def facts_to_plain(facts: Iterable[Fact]) -> list[Any]:
    return changes_to_plain({fact.key: fact for fact in facts})


def _handed_on(table_id: int, grantee: str, grantor: str, rights: int, grantable: int) -> Grant:
    return Grant(table_id, grantee, rights, grantable, grantor)


def _role_setting(role: str, setting: str, default: Any, maximum: Any) -> RoleSetting:
    if setting not in ROLE_SETTINGS or (default is None and maximum is None):
        raise ValueError("a setting of a role that is not known, or has no value")
    if default is not None and setting not in TIMEOUTS:
        raise ValueError("a default of a setting that has none")
    return RoleSetting(role, setting, default, maximum)


class _PlainRole(NamedTuple):
    can_login: bool
    is_superuser: bool
    can_create_roles: bool
    verifier: str | None
    valid_until_us: int | None
    id: Annotated[int, msgspec.Meta(ge=0)] = 0


_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_SHAPES: dict[Any, tuple[Any, Any, Any]] = {
    _ROLE: (Role, tuple[str], _PlainRole),
    _MEMBER: (Membership, tuple[str, str], tuple[bool]),
    _GRANT: (Grant, tuple[int, str], tuple[int, int]),
    _OWNER: (Ownership, tuple[int], tuple[str]),
    _SECRET: (LoginSecret, tuple[()], tuple[_Hex]),
    _HANDED_ON: (_handed_on, tuple[int, str, _Name], tuple[int, int]),
    _SETTING: (_role_setting, tuple[_Name, _Name], tuple[_Natural | None, _Natural | None]),
}
"""By kind: what makes the fact, and the types of key and value in its plain form."""
_VALUES: dict[type[Fact], tuple[str, ...]] = {
    Role: _PlainRole._fields,
    Membership: ("is_admin",),
    Grant: ("rights", "grantable"),
    Ownership: ("owner",),
    LoginSecret: ("text",),
    RoleSetting: ("default", "maximum"),
}
"""What stands in the value of a fact's plain form, in this order."""


def _order(key: FactKey) -> tuple[int, tuple[tuple[int, int, str], ...]]:
    """Order keys whose parts are numbers and texts."""
    parts = [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in key]
    return len(parts), tuple(parts)
