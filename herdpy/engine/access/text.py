"""Access as SQL: the statements that make roles and rights again, verifiers included."""

import datetime
from collections.abc import Iterator

from herdpy.engine.state.catalog import Catalog
from herdpy.model.access import SPACE, Grant, Membership, Ownership, Role, RoleSetting, right_names
from herdpy.model.role_settings import show_value
from herdpy.model.types import TEXT
from herdpy.sql.text import literal_text, name_text

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC).replace(tzinfo=None)


def role_texts(catalog: Catalog) -> Iterator[str]:
    """Yield what makes the roles and who is in which; before the tables.

    A role that is there already, as the one who runs the statements may be, stays as it is.
    """
    facts = catalog.access.facts
    for fact in facts:
        if isinstance(fact, Role):
            yield _role_text(fact)
        elif isinstance(fact, RoleSetting):
            yield from _setting_texts(fact)
    for fact in facts:
        if isinstance(fact, Membership):
            option = " WITH ADMIN OPTION" if fact.is_admin else ""
            yield f"GRANT {name_text(fact.role)} TO {name_text(fact.member)}{option}"


def right_texts(catalog: Catalog, tablespace: str) -> Iterator[str]:
    """Yield what gives tables their owners and roles their rights; behind the tables."""
    names = {table.id: name_text(table.name) for table in catalog.tables()}
    names[SPACE] = f"TABLESPACE {name_text(tablespace)}"
    for fact in catalog.access.facts:
        if isinstance(fact, Ownership) and fact.table_id in names:
            yield f"ALTER TABLE {names[fact.table_id]} OWNER TO {name_text(fact.owner)}"
        elif isinstance(fact, Grant) and fact.table_id in names:
            for rights, option in (
                (fact.rights & ~fact.grantable, ""),
                (fact.rights & fact.grantable, " WITH GRANT OPTION"),
            ):
                if rights:
                    words = ", ".join(right_names(rights))
                    where, grantee = names[fact.table_id], name_text(fact.grantee)
                    yield f"GRANT {words} ON {where} TO {grantee}{option}"


def _setting_texts(fact: RoleSetting) -> Iterator[str]:
    for word, value in (("", fact.default), ("MAXIMUM ", fact.maximum)):
        if value is not None:
            text = literal_text(show_value(fact.setting, value), TEXT)
            yield f"ALTER ROLE {name_text(fact.role)} SET {word}{fact.setting} = {text}"


def _role_text(role: Role) -> str:
    words = [f"CREATE ROLE IF NOT EXISTS {name_text(role.name)}"]
    flags = (
        ("LOGIN", role.can_login),
        ("SUPERUSER", role.is_superuser),
        ("CREATEROLE", role.can_create_roles),
    )
    words += [word for word, is_set in flags if is_set]
    if role.verifier is not None:
        words.append(f"PASSWORD {literal_text(role.verifier, TEXT)}")
    if role.valid_until_us is not None:
        moment = _EPOCH + datetime.timedelta(microseconds=role.valid_until_us)
        words.append(f"VALID UNTIL '{moment.isoformat(' ')}'")
    return " ".join(words)
