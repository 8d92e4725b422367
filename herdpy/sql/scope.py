"""What names and placeholders mean while a statement is bound.

StatementContext lasts for one statement: catalog, parameter types, slots, relation ids. A Scope is
what one SELECT, UPDATE or DELETE can name. Errors about names carry the position and a suggestion.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from herdpy.errors import Error, NotSupportedError, ProgrammingError
from herdpy.model.schema import Table
from herdpy.model.types import TEXT, Kind, SqlType
from herdpy.sql import tree
from herdpy.sql.interfaces import Catalog
from herdpy.sql.parse import fold_name, placeholder_index, require_only, start_of
from herdpy.sql.plan import Slot
from herdpy.sql.tokens import Scanned


class StatementContext:
    """One statement being bound; one thread."""

    def __init__(
        self, scanned: Scanned, catalog: Catalog, types: Mapping[int | str, SqlType]
    ) -> None:
        self.scanned = scanned
        self.catalog = catalog
        self._types = types
        self._slots: dict[Slot, int] = {}
        self._relation_count = 0

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    def next_relation(self) -> int:
        self._relation_count += 1
        return self._relation_count

    def position(self, node: exp.Expr) -> int | None:
        return start_of(node, self.scanned)

    def only(self, node: exp.Expr, allowed: Iterable[str], what: str) -> None:
        require_only(node, allowed, self.scanned, what)

    # Parameters: an occurrence stays pending (its index is below 0) until its type is settled,
    # since str and None, like untyped literals, get their type from what stands around them.

    def parameter(self, node: exp.Placeholder) -> tree.Parameter:
        occurrence = placeholder_index(node)
        source = self.scanned.placeholders[occurrence]
        return tree.Parameter(self._types[source], -1 - occurrence)

    def settle(self, expression: tree.Expression, wanted: SqlType | None = None) -> tree.Expression:
        """Give a pending parameter its slot, an untyped literal its type (by default TEXT)."""
        if isinstance(expression, tree.Parameter) and expression.index < 0:
            found = TEXT if expression.type.kind is Kind.UNKNOWN else expression.type
            slot = Slot(self.scanned.placeholders[-1 - expression.index], wanted or found)
            return tree.Parameter(slot.type, self._slots.setdefault(slot, len(self._slots)))
        if isinstance(expression, tree.Literal) and expression.type.kind is Kind.UNKNOWN:
            return tree.Literal(wanted or TEXT, expression.value)
        return expression

    def table(self, node: exp.Expr) -> Table:
        """Return the table that an exp.Table names; 42P01."""
        self.only(node, ("this", "alias"), "a table name")
        name = fold_name(node.this)
        table = self.catalog.table(name)
        if table is None:
            raise ProgrammingError(
                f'table "{name}" does not exist',
                sqlstate="42P01",
                position=self.position(node),
                hint=suggestion(name, self.catalog.table_names()),
            )
        return table

    def error(
        self,
        sqlstate: str,
        message: str,
        node: exp.Expr | None = None,
        hint: str | None = None,
    ) -> Error:
        """Return (not raise) the error of a wrong statement; 0A000 for what is not supported."""
        kind = NotSupportedError if sqlstate == "0A000" else ProgrammingError
        position = self.position(node) if node is not None else None
        return kind(message, sqlstate=sqlstate, position=position, hint=hint)


@dataclass(frozen=True, slots=True)
class Named:
    """A relation that a scope can name: columns are (name, type, ordinal) as * shows them."""

    id: int
    alias: str
    columns: tuple[tuple[str, SqlType, int], ...]
    table: Table | None = None


@dataclass(slots=True)
class Scope:
    """The relations in reach, and whether aggregates may stand here (`clause` says where not)."""

    context: StatementContext
    relations: list[Named] = field(default_factory=list[Named])
    clause: str | None = None
    has_aggregates: bool = False

    def add_table(self, node: exp.Expr) -> tree.TableRef:
        """Bring an exp.Table in reach under its alias; 42712 when the alias is taken."""
        table = self.context.table(node)
        alias_node = node.args.get("alias")
        alias = table.name
        if alias_node is not None:
            self.context.only(alias_node, ("this",), "a table alias")
            alias = fold_name(alias_node.this)
        if any(named.alias == alias for named in self.relations):
            raise self.context.error("42712", f'table name "{alias}" is used twice', node)
        ref = tree.TableRef(self.context.next_relation(), table, alias)
        columns = tuple(
            (column.name, column.type, ordinal)
            for ordinal, column in enumerate(table.columns)
            if not column.hidden
        )
        self.relations.append(Named(ref.id, alias, columns, table))
        return ref

    def column(self, node: exp.Column) -> tree.ColumnRef:
        """Return what a column name means; 42703, 42P01, 42702."""
        self.context.only(node, ("this", "table"), "a column name")
        name = fold_name(node.this)
        relations = self.relations
        if node.args.get("table") is not None:
            relations = [self.relation(node.args["table"])]
        found = [
            tree.ColumnRef(type=kind, relation=named.id, ordinal=ordinal, name=name)
            for named in relations
            for column, kind, ordinal in named.columns
            if column == name
        ]
        if len(found) == 1:
            return found[0]
        if found:
            owners = ", ".join(f"{n.alias}.{name}" for n in relations if _has(n, name))
            raise self.context.error(
                "42702", f'column "{name}" is ambiguous', node, f"Write one of {owners}."
            )
        known = [column for named in relations for column, _, _ in named.columns]
        raise self.context.error(
            "42703", f'column "{name}" does not exist', node, suggestion(name, known)
        )

    def relation(self, node: exp.Expr) -> Named:
        """Return the relation of an alias; 42P01."""
        alias = fold_name(node)
        for named in self.relations:
            if named.alias == alias:
                return named
        raise self.context.error(
            "42P01",
            f'no table "{alias}" in FROM',
            node,
            suggestion(alias, [named.alias for named in self.relations]),
        )


def _has(named: Named, name: str) -> bool:
    return any(column == name for column, _, _ in named.columns)


def suggestion(name: str, known: Sequence[str]) -> str | None:
    """Return "Did you mean …?" for a name that looks like a known one."""
    close = difflib.get_close_matches(name, known, n=1)
    return f'Did you mean "{close[0]}"?' if close else None
