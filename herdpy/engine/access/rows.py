"""The rows of sysusers, sysroles, sysmembers, sysgrants, sysrolesettings, sysviews, syssequences.

Who may do what, and which views and sequences there are with whose rights.

Never with a verifier.
"""

from collections.abc import Callable, Iterator

from herdpy.engine.state.catalog import Catalog
from herdpy.errors import loading
from herdpy.model.access import (
    RIGHT_NAMES,
    SEQUENCE_RIGHTS,
    SPACE,
    TABLE_RIGHTS,
    Grant,
    Membership,
    Ownership,
    Role,
    RoleSetting,
)
from herdpy.model.role_settings import show_value
from herdpy.model.schema import Table
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
    for fact in catalog.access.facts:
        if isinstance(fact, Membership):
            yield fact.role, fact.member, fact.is_admin


def role_setting_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the rows of sysrolesettings: defaults and maxima of roles."""
    for fact in catalog.access.facts:
        if isinstance(fact, RoleSetting):
            shown = (
                None if value is None else show_value(fact.setting, value)
                for value in (fact.default, fact.maximum)
            )
            yield fact.role, fact.setting, *shown


def grant_rows(catalog: Catalog, tablespace: str) -> Iterator[Row]:
    """Yield the rows of sysgrants, one for each right; an owner has all rights on its table."""
    names = {table.id: table.name for table in catalog.tables()} | {SPACE: tablespace}
    kinds = {table.id: table.kind for table in catalog.tables()} | {SPACE: "tablespace"}
    given: dict[tuple[int, str], tuple[int, int]] = {}  # by any grantor
    for fact in catalog.access.facts:
        if isinstance(fact, Grant) and fact.table_id in names:
            rights, grantable = given.get((fact.table_id, fact.grantee), (0, 0))
            changed = rights | fact.rights, grantable | fact.grantable
            given[fact.table_id, fact.grantee] = changed
    for (table_id, grantee), (rights, grantable) in given.items():
        kind = kinds[table_id]
        for right, word in RIGHT_NAMES.items():
            if rights & right:
                yield grantee, kind, names[table_id], word, bool(grantable & right), False
    for fact in catalog.access.facts:
        if isinstance(fact, Ownership) and fact.table_id in names:
            rights, _ = given.get((fact.table_id, fact.owner), (0, 0))
            for right, word in RIGHT_NAMES.items():
                kind = kinds[fact.table_id]
                own = SEQUENCE_RIGHTS if kind == "sequence" else TABLE_RIGHTS
                if right & own & ~rights:
                    yield fact.owner, kind, names[fact.table_id], word, True, True


def view_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the rows of sysviews."""
    for table in catalog.tables():
        if table.view is not None:
            with loading():
                from herdpy.engine.access.view_text import columns_text, query_text

            owner, text = catalog.access.owner(table.id), query_text(table, catalog)
            yield table.name, owner, columns_text(table), text


def sequence_rows(
    catalog: Catalog, last_value: Callable[[Table], tuple[int, bool]]
) -> Iterator[Row]:
    """Yield the rows of syssequences; last_value() says how far one is."""
    owners = {
        column.filling.sequence: f"{table.name}.{column.name}"
        for table in catalog.tables()
        for column in table.columns
        if column.filling is not None and column.filling.is_owner
    }
    for table in catalog.tables():
        found = table.sequence
        if found is not None:
            value, is_called = last_value(table)
            yield (
                table.name,
                catalog.access.owner(table.id),
                found.kind.name.lower(),
                found.start,
                found.minimum,
                found.maximum,
                found.increment,
                found.cycles,
                found.cache,
                value if is_called else None,
                owners.get(table.name),
            )


def _roles(catalog: Catalog) -> Iterator[Role]:
    for fact in catalog.access.facts:
        if isinstance(fact, Role):
            yield fact
