"""Catalog: the tables by name at one moment, and a transaction's own changes laid over it.

System tables are found by name like others, but listed for hints alone.
"""

from collections.abc import Iterable, Mapping

from herdpy.engine.state.system_tables import SYSTEM_TABLES
from herdpy.model.access import NO_ACCESS, Access, Changes
from herdpy.model.schema import Table


class Catalog:
    """An immutable set of tables; implements sql.scope.Catalog.

    `access` is who may do what with them; plans do not depend on it, and so `version` does not.
    """

    __slots__ = ("_by_index", "_by_name", "access", "version")

    def __init__(self, version: int, tables: Iterable[Table], access: Access = NO_ACCESS) -> None:
        self.version = version
        self.access = access
        self._by_name = {table.name: table for table in tables}
        self._by_index = {
            index.name: table for table in self._by_name.values() for index in table.indexes
        }

    def table(self, name: str) -> Table | None:
        return self._by_name.get(name) or SYSTEM_TABLES.get(name)

    def indexed_by(self, name: str) -> Table | None:
        """Return the table that has an index of a name."""
        return self._by_index.get(name)

    def table_names(self) -> list[str]:
        return [*sorted(self._by_name), *SYSTEM_TABLES]

    def tables(self) -> list[Table]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    def with_changes(
        self, changes: Mapping[str, Table | None], access_changes: Changes, *, version: int
    ) -> "Catalog":
        """Return the catalog after creating (Table) and dropping (None) tables by name.

        What access says of a dropped table goes with it. The version counts for other tables only.
        """
        access = self.access.with_changes(access_changes)
        if not changes:
            return self.with_access(access)
        merged = {**self._by_name, **changes}
        tables = [table for table in merged.values() if table is not None]
        return Catalog(version, tables, access.only_tables(table.id for table in tables))

    def with_access(self, access: Access) -> "Catalog":
        """Return the same tables with other rights."""
        if access is self.access:
            return self
        return Catalog(self.version, self._by_name.values(), access)
