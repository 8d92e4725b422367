"""Who may make, change, remove and back up tablespaces, and which role a new one begins with.

Superusers of `default` may, in a session of it. A tablespace has its own users: a new one gets the
role of its maker, or the one that OWNER names, with its password, as its first superuser.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from bookie.runtime.interfaces import Rng
from herdpy.engine.access.rights import Rights, check_superuser
from herdpy.errors import ProgrammingError
from herdpy.model.access import Access, Fact, LoginSecret, User
from herdpy.sql import tree
from herdpy.storage.tablespace_list import (
    DEFAULT,
    NO_LIMITS,
    TablespaceLimits,
)

if TYPE_CHECKING:
    from herdpy.engine.state.tablespace import Tablespace


class Tablespaces(Protocol):
    """Implemented by engine.tablespaces.Tablespaces, where each method says what it does."""

    def has(self, name: str) -> bool: ...
    def create(
        self, name: str, limits: TablespaceLimits, access: Sequence[Fact], *, if_not_exists: bool
    ) -> None: ...
    def alter(self, name: str, new_name: str | None, limits: Mapping[str, int | None]) -> None: ...
    def drop(self, name: str, *, is_forced: bool, if_exists: bool) -> None: ...


class TablespaceServices(Protocol):
    """The database of the session that asks."""

    @property
    def name(self) -> str: ...
    @property
    def tablespace(self) -> "Tablespace": ...
    @property
    def tablespaces(self) -> Tablespaces: ...
    @property
    def rng(self) -> Rng: ...


def check_all(database: TablespaceServices, rights: Rights | None, what: str) -> None:
    """Raise 42501 for who may not do what is about all tablespaces."""
    if database.name != DEFAULT:
        raise ProgrammingError(
            f'permission denied to {what} in a session of "{database.name}"',
            sqlstate="42501",
            hint=f"Superusers of {DEFAULT} may: connect to it without naming a tablespace.",
        )
    check_superuser(rights, what)


def change_tablespaces(
    database: TablespaceServices,
    statement: tree.TablespaceStatement,
    user: User | None,
    rights: Rights | None,
) -> None:
    """Carry a statement out; durable on return. Errors as those of Tablespaces; 42501."""
    check_all(database, rights, "change tablespaces")
    tablespaces = database.tablespaces
    match statement:
        case tree.CreateTablespace():
            if statement.if_not_exists and tablespaces.has(statement.name):
                return  # the role of OWNER is not looked for
            access = first_access(
                database.tablespace.state.catalog.access, user, statement.owner, database.rng
            )
            tablespaces.create(
                statement.name,
                replace(NO_LIMITS, **dict(statement.limits.values)),
                access,
                if_not_exists=statement.if_not_exists,
            )
        case tree.AlterTablespace():
            tablespaces.alter(statement.name, statement.new_name, dict(statement.limits.values))
        case tree.DropTablespace():
            tablespaces.drop(
                statement.name, is_forced=statement.is_forced, if_exists=statement.if_exists
            )
        case _:
            raise TypeError(type(statement).__name__)


def first_access(access: Access, user: User | None, owner: str | None, rng: Rng) -> list[Fact]:
    """Return the facts that a new tablespace begins with: its first role, and that it has logins.

    Of a session without a user and without OWNER none. 42704: there is no such role.
    """
    name = owner if owner is not None else None if user is None else user.name
    if name is None:
        return []
    role = access.role(name)
    if role is None:
        raise ProgrammingError(f'role "{name}" does not exist', sqlstate="42704")
    facts: list[Fact] = [replace(role, is_superuser=True, id=1)]
    if access.login_secret is not None:
        # One of its own: its superusers may read it, in a backup.
        facts.append(LoginSecret(rng.randbytes(len(access.login_secret)).hex()))
    return [*facts, *access.role_settings(name)]
