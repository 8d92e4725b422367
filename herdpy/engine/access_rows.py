"""The rows of sysusers, sysroles, sysmembers and sysgrants: who there is and may do what.

Never with a verifier.
"""

from collections.abc import Iterator

from herdpy.engine.catalog import Catalog
from herdpy.model.access import (
    RIGHT_NAMES,
    SPACE,
    TABLE_RIGHTS,
    Grant,
    Membership,
    Ownership,
    Role,
)
from herdpy.model.types import Row


def user_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the rows of sysusers: the roles that can log in."""
    for role in _roles(catalog):
        if role.can_login:
            yield (
                role.name,
                role.is_superuser,
                role.can_create_roles,
                role.verifier is not None,
                role.valid_until_us,
            )


def role_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the rows of sysroles: users and other roles."""
    for role in _roles(catalog):
        yield role.name, role.can_login, role.is_superuser, role.can_create_roles


def member_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the rows of sysmembers."""
    for fact in catalog.access.facts:
        if isinstance(fact, Membership):
            yield fact.role, fact.member, fact.is_admin


def grant_rows(catalog: Catalog, tablespace: str) -> Iterator[Row]:
    """Yield the rows of sysgrants, one for each right; an owner has all rights on its table."""
    names = {table.id: table.name for table in catalog.tables()}
    for fact in catalog.access.facts:
        if isinstance(fact, Grant):
            kind = "tablespace" if fact.table_id == SPACE else "table"
            name = tablespace if fact.table_id == SPACE else names.get(fact.table_id)
            for right, word in RIGHT_NAMES.items():
                if name is not None and fact.rights & right:
                    yield fact.grantee, kind, name, word, bool(fact.grantable & right), False
        elif isinstance(fact, Ownership) and fact.table_id in names:
            given = catalog.access.grant(fact.table_id, fact.owner).rights
            for right, word in RIGHT_NAMES.items():
                if right & TABLE_RIGHTS & ~given:
                    yield fact.owner, "table", names[fact.table_id], word, True, True


def _roles(catalog: Catalog) -> Iterator[Role]:
    for fact in catalog.access.facts:
        if isinstance(fact, Role):
            yield fact
