"""ALTER of tables, views and indexes: transactional, behind exclusive locks on their names.

A definition that leaves the rows as they are is a new version under the same id. One that does not
is a table of its own, which stands under a name of its own until the rows are there, and then in
the place of the other (ADR 96). Views follow what they read, or keep it from going. All with the
monitor held; errors as those of ddl.py.
"""

from collections.abc import Iterator
from dataclasses import replace

from herdpy.engine.access.rights import ACCESS_LOCK, current_access
from herdpy.engine.access.view_text import (
    check_reads_same,
    names_places,
    renamed,
    uses_columns,
)
from herdpy.engine.state.locks import Mode
from herdpy.engine.state.tablespace import Definition
from herdpy.engine.statements.ddl import (
    Definitions,
    check_constraints,
    exists,
    replacing,
)
from herdpy.errors import NotSupportedError, ProgrammingError
from herdpy.limits import altered_views_max
from herdpy.log.record import CreateTable as CreateRecord
from herdpy.log.record import DropTable as DropRecord
from herdpy.model.schema import Index, Table, View, table_to_plain
from herdpy.sql import tree
from herdpy.sql.definitions.checks import with_table_name


class Alterations(Definitions):
    """What a transaction of a session's user alters."""

    __slots__ = ()

    def define(self, statement: tree.Definition) -> None:
        if isinstance(statement, tree.RenameIndex):
            self._rename_index(statement)
        else:
            Definitions.define(self, statement)

    def begin(self, statement: tree.AlterTable) -> Table | None:
        """Log a table's new definition, of one that is made anew beside the old one; return it.

        None: there is nothing to do.
        """
        planned, made = statement.table, statement.made
        if planned is None or made is None:
            return None
        if statement.rows is not None:
            self.lock(ACCESS_LOCK, Mode.SHARED)  # who grants
        table = self._owned(planned, f'alter {planned.kind} "{planned.name}"')
        if table != planned:
            raise self._stale(table.name)
        if made.name != table.name:
            self._check_free_name(made.name)
        transaction = self.transaction
        number = self.tablespace.applier.next_table_id
        if statement.sequences:
            self.lock(ACCESS_LOCK, Mode.SHARED)  # who drops the owner
        owner = current_access(self.tablespace, transaction).owner(table.id)
        made, sequences = self._with_sequences(made, statement.sequences, number, owner, table)
        number += len(sequences)
        if statement.rows is None:
            if any(not index.id for index in made.indexes):
                self._check_unchanged(table)
            made = self._with_indexes(replace(made, version=table.version + 1), table, number)
            self._submit([*sequences, self._record(made), *self._views(statement, made)])
            return made
        self._check_unchanged(table)
        self._views(statement, made)  # which may refuse it
        made = self._with_indexes(replace(made, id=number, version=1), table, number + 1)
        beside = f"_altered_{number}"
        while self._find(beside) is not None or self._catalog().indexed_by(beside) is not None:
            beside += "_"
        self._check_free_name(beside)
        checks = (with_table_name(each, beside) for each in made.checks if each.is_valid)
        beside_made = replace(made, name=beside, checks=tuple(checks))
        self._submit([*sequences, self._record(beside_made)])
        return beside_made

    def finish(self, statement: tree.AlterTable, beside: Table) -> None:
        """Put a table that has its rows by now in the place of the old one."""
        table, wanted = statement.table, statement.made
        assert table is not None
        assert wanted is not None
        made = replace(beside, name=wanted.name, version=2, checks=wanted.checks)
        access = current_access(self.tablespace, self.transaction)
        records = replacing(table, made, access, self.transaction.statement)
        self._submit([*records, *self._views(statement, made), *self._sequences(statement)])

    def _sequences(self, statement: tree.AlterTable) -> Iterator[Definition]:
        """Yield the ends of the sequences that go with dropped columns; 2BP01."""
        table = statement.table
        assert table is not None
        for ordinal in statement.lost:
            filling = table.columns[ordinal].filling
            if filling is None or not filling.is_owner:
                continue
            self.lock((filling.sequence,), Mode.EXCLUSIVE)
            sequence = self._find(filling.sequence)
            for other in self._catalog().tables():
                names = (each.filling.sequence for each in other.columns if each.filling)
                if other.id != table.id and filling.sequence in names:
                    raise ProgrammingError(
                        f'cannot drop column "{table.columns[ordinal].name}": a column of table '
                        f'"{other.name}" takes values of its sequence "{filling.sequence}"',
                        sqlstate="2BP01",
                        hint="ALTER SEQUENCE … OWNED BY NONE keeps it.",
                    )
            if sequence is not None:
                yield DropRecord(None, self.transaction.statement, sequence.id)

    def _rename_index(self, statement: tree.RenameIndex) -> None:
        name, new_name = statement.name, statement.new_name
        found = self._catalog().indexed_by(name)
        if found is None:
            if statement.if_exists:
                return
            raise ProgrammingError(f'index "{name}" does not exist', sqlstate="42P01")
        table = self._owned(found, f'rename index "{name}"')
        self.lock((new_name,), Mode.EXCLUSIVE)
        self._check_new_index(new_name)
        indexes = (
            replace(each, name=new_name) if each.name == name else each for each in table.indexes
        )
        made = replace(table, version=table.version + 1, indexes=tuple(indexes))
        check_constraints(made)
        self._submit([self._record(made)])

    def _submit(self, records: list[Definition]) -> None:
        self.tablespace.submit_definitions(self.transaction, *records)

    def _record(self, table: Table) -> CreateRecord:
        return CreateRecord(None, self.transaction.statement, table_to_plain(table))

    def _check_new_index(self, name: str) -> None:
        """Raise 42P07 for a name of an index or table."""
        self._check_no_index(name)
        found = self._find(name)
        if found is not None:
            raise exists(found, None)

    def _with_indexes(self, made: Table, table: Table, number: int) -> Table:
        """Return what a table is to be, whose new indexes have names; and ids from number on.

        42P07: a name is another one's.
        """
        kept = {each.name for each in table.indexes}
        indexes: list[Index] = []
        known = replace(made, indexes=tuple(each for each in made.indexes if each.name))
        for index in made.indexes:
            named = index
            if not index.name:
                named = self._named(known, index)
                known = replace(known, indexes=(*known.indexes, named))
            if not index.id:
                named = replace(named, id=number)
                number += 1
            indexes.append(named)
        for index in indexes:
            if index.name not in kept:
                self.lock((index.name,), Mode.EXCLUSIVE)
                self._check_new_index(index.name)
        made = replace(made, indexes=tuple(indexes))
        check_constraints(made)
        return made

    # --- views -----------------------------------------------------------------------------------

    def _views(self, statement: tree.AlterTable, made: Table) -> list[Definition]:
        """Return what becomes of the views that read the table; 2BP01, 0A000."""
        table = statement.table
        assert table is not None
        names = [[column.name for column in each.columns] for each in (table, made)]
        is_renamed = statement.rows is None and names[0] != names[1]
        if not (statement.lost or statement.retyped or is_renamed or made.name != table.name):
            return []
        catalog, lost = self._catalog(), set(statement.lost)
        following: dict[str, Table] = {}
        going: list[Table] = []
        readers = list(self._readers(table))
        if len(readers) > altered_views_max:
            raise ProgrammingError(
                f'{len(readers)} views read table "{table.name}", more than {altered_views_max} '
                "cannot follow a change",
                sqlstate="54000",
                hint="DROP some of the views, and CREATE them behind the change.",
            )
        for view in readers:
            self.lock((view.name,), Mode.EXCLUSIVE)
            if uses_columns(view, catalog, table, set(statement.retyped)):
                raise NotSupportedError(
                    f'cannot alter type of a column used by a view: "{view.name}" reads it',
                    hint="DROP the view, and CREATE it behind the change.",
                )
            place = view, catalog, table, lost
            if lost and (names_places(*place) or uses_columns(*place)):
                going.append(view)
            elif lost or is_renamed or made.name != table.name:
                following[view.name] = self._following(view, table, made, lost)
        if going and not statement.is_cascade:
            raise ProgrammingError(
                f'cannot drop a column of table "{table.name}": '
                + " and ".join(f'view "{view.name}" reads it' for view in going),
                sqlstate="2BP01",
                hint="DROP … CASCADE drops the views, too.",
            )
        if not lost:
            named = {table.name: None, made.name: made, **following}
            changed = catalog.with_changes(named, {}, version=-1)
            for view in following.values():
                old = catalog.table(view.name)
                assert old is not None
                check_reads_same(old, catalog, view, changed)
        number = self.transaction.statement
        dropped, _ = self._with_readers(going, is_cascade=True)
        records: list[Definition] = list(map(self._record, following.values()))
        return [*records, *(DropRecord(None, number, view.id) for view in dropped)]

    def _readers(self, table: Table) -> Iterator[Table]:
        """Yield the views that read a table."""
        for view in self._catalog().tables():
            if view.view is not None and table.name in dict(view.view.relations):
                yield view

    def _following(self, view: Table, table: Table, made: Table, lost: set[int]) -> Table:
        """Return a view as it reads the altered table."""
        definition = view.view
        assert definition is not None
        if lost:
            counts = {
                name: count - sum(ordinal < count for ordinal in lost)
                if name == table.name
                else count
                for name, count in definition.relations
            }
            query = View(definition.text, tuple(counts.items()))
        else:
            query = renamed(view, self._catalog(), table, made)
        return replace(view, version=view.version + 1, view=query)
