"""Rights: what a statement needs, and the refusal (42501) of a user who does not have it.

A session without a user is the program's own: it may do everything. System tables of users and
rights may be read by every user, those of what others do by superusers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from herdpy.engine.state.error_messages import dropped_error
from herdpy.engine.state.system_tables import SYSTEM_TABLES
from herdpy.errors import Error, IntegrityError, ProgrammingError
from herdpy.model.access import SELECT, SPACE, UPDATE, USAGE, Access, Rights, User, right_names
from herdpy.model.schema import Table
from herdpy.sql import tree
from herdpy.sql.reading.extent import Budget

if TYPE_CHECKING:
    from herdpy.engine.state.locks import Resource
    from herdpy.engine.state.tablespace import Tablespace
    from herdpy.engine.state.transactions import Transaction

ACCESS_LOCK: "Resource" = (SPACE,)
"""Held by a statement that changes access; the table id that no table has."""
_AUTHORIZED_MAX = 1_000
_SUPERUSERS_ONLY = frozenset(
    SYSTEM_TABLES[name].id
    for name in (
        "sysclients",
        "sysstatements",
        "sysleases",
        "sysstagings",
        "syslimits",
        "syswaits",
        "systablespaces",
        "sysnodes",
        "systablespacereplicastate",
        "syslog",
        "sysmemory",
        "sysmaintenance",
        "sysdisks",
    )
)

_OF_CALLS = {"nextval": USAGE, "currval": SELECT, "setval": UPDATE}

Needs = tuple[tuple[Table | None, int, Table | None], ...]
"""(table, rights, view) each; without a table rights on the tablespace.

With a view it is read by that view's query: its owner has to have the rights.
"""


def needs_of(
    statement: tree.Statement, check_interrupt: Callable[[], object] = lambda: None
) -> Needs:
    """Return the rights that a statement takes: to change what it does, and to read the rest.

    check_interrupt is called every some thousand nodes of the statement.
    """
    found: dict[tuple[int, int], tuple[Table | None, int, Table | None]] = {}
    targets: dict[int, Table] = {}

    def add(table: Table | None, rights: int, view: Table | None = None) -> None:
        key = (SPACE if table is None else table.id, SPACE if view is None else view.id)
        found[key] = (table, rights | found.get(key, (None, 0))[1], view)

    for target, rights in statement.changed():
        if isinstance(target, tree.TableRef):
            targets[target.id] = target = target.table
        add(target, rights)
    budget = Budget(check_interrupt)
    for node in tree.nodes(statement):
        budget.spend()
        if isinstance(node, tree.TableRef) and node.id not in targets:
            add(node.table, SELECT, node.reader)
        elif isinstance(node, tree.Derived) and node.view is not None:
            add(node.view, SELECT, node.reader)
        elif isinstance(node, tree.ColumnRef) and node.relation in targets:
            add(targets[node.relation], SELECT)
        elif isinstance(node, tree.SequenceCall) and node.sequence is not None:
            add(node.sequence, _OF_CALLS[node.function])
    return tuple(found.values())


def check_needs(user: Rights, needs: Needs, access: Access) -> None:
    """Raise 42501 for the first right that is missing, of a user or of the owner of a view."""
    for table, wanted, view in needs:
        rights = user if view is None else _owner_rights(view, access)
        if rights is None or rights.is_superuser:
            continue
        if table is None:
            missing = wanted & ~rights.of(SPACE)
            where = "the tablespace"
        elif table.is_system:
            if table.id in _SUPERUSERS_ONLY:
                raise denied(f'read table "{table.name}"', "It takes SUPERUSER.")
            continue
        else:
            missing = wanted & ~_granted(rights, table)
            where = f'{table.kind} "{table.name}"'
        if missing:
            words = ", ".join(right_names(missing))
            who = f'user "{rights.name}"'
            if view is not None:
                who = f'"{rights.name}", the owner of view "{view.name}",'
            raise ProgrammingError(
                f"permission denied for {where}: {who} lacks {words}",
                sqlstate="42501",
                hint="Its owner or a superuser can GRANT it.",
            )


def _granted(rights: Rights, table: Table) -> int:
    """Return what is granted on a table; of a sequence, with what follows from that.

    UPDATE is enough for nextval(), which takes USAGE, and that for currval(), which takes SELECT.
    """
    found = rights.of(table.id)
    if table.sequence is not None:
        found |= USAGE if found & UPDATE else 0
        found |= SELECT if rights.of(table.id) & USAGE else 0
    return found


def _owner_rights(view: Table, access: Access) -> Rights | None:
    """Return the rights with which a view is read; None: it is the superusers'."""
    owner = access.owner(view.id)
    rights = None if owner is None else access.rights_of(owner)
    if owner is not None and rights is None:
        raise denied(f'read view "{view.name}"', f'Its owner, role "{owner}", does not exist.')
    return rights


class Planned(Protocol):
    """A planned statement: hashable, and the same object as long as the plan is."""

    @property
    def needs(self) -> Needs: ...


class Gate:
    """What one session's user is known to be allowed; under the session's mutex."""

    __slots__ = ("_access", "_authorized", "_user")

    def __init__(self, user: User | None) -> None:
        self._user = user
        self._access: Access | None = None
        self._authorized: set[Planned] = set()  # with that access

    def is_authorized(self, planned: Planned, access: Access) -> bool:
        """Tell whether check() would pass, if that is known without looking closer."""
        return self._user is None or (access is self._access and planned in self._authorized)

    def check(self, planned: Planned, access: Access) -> None:
        """Raise 42501 when the user may not run the statement, 57P01 when it was dropped."""
        if self.is_authorized(planned, access):
            return
        rights = rights_of(access, self._user)
        if rights is not None:
            check_needs(rights, planned.needs, access)
        if access is not self._access or len(self._authorized) >= _AUTHORIZED_MAX:
            self._authorized.clear()
            self._access = access
        self._authorized.add(planned)


def check_superuser(rights: Rights | None, what: str) -> None:
    """Raise 42501 for a user who is none."""
    if rights is not None and not rights.is_superuser:
        raise denied(what, "It takes SUPERUSER.")


def denied(what: str, hint: str) -> Error:
    return ProgrammingError(f"permission denied to {what}", sqlstate="42501", hint=hint)


def current_access(tablespace: "Tablespace", transaction: "Transaction | None") -> Access:
    catalog = tablespace.state.catalog
    if transaction is not None:
        own, access = transaction.catalog_changes, transaction.access_changes
        catalog = catalog.with_changes(own, access, version=-1)
    return catalog.access


def hide_values(
    error: IntegrityError, tablespace: "Tablespace", transaction: "Transaction | None", user: User
) -> None:
    """Take the values of a row out of an error's message if the user may not read the table."""
    if error.plain is None or error.table is None:
        return
    catalog = tablespace.state.catalog
    if transaction is not None:
        catalog = catalog.with_changes(transaction.catalog_changes, {}, version=-1)
    table, access = catalog.table(error.table), current_access(tablespace, transaction)
    rights = access.rights_of(user.name) if access.has(user) else None
    may_read = rights is not None and (
        rights.is_superuser
        or (table is not None and (rights.owns(table.id) or bool(rights.of(table.id) & SELECT)))
    )
    if not may_read:
        error.message, error.args = error.plain, (error.plain,)


def rights_of(access: Access, user: User | None) -> Rights | None:
    """Return the rights of a session's user, None for all rights; 57P01: the user was dropped."""
    if user is None:
        return None
    rights = access.rights_of(user.name) if access.has(user) else None
    if rights is None:
        raise dropped_error(user.name)
    return rights
