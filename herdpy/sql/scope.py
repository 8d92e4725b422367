"""What names and placeholders mean while a statement is bound.

StatementContext lasts for one statement: catalog, parameter types, slots, relation ids; the text of
a view has one of its own, which shares what is counted. A Scope is what one SELECT, UPDATE or
DELETE can name. Errors about names carry the position and a suggestion.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, takewhile
from typing import Protocol

from herdpy.errors import Error, NotSupportedError, ProgrammingError, closest, no_table
from herdpy.limits import statement_depth_max, statement_tokens_max, view_relations_max
from herdpy.model.schema import Column, Table
from herdpy.model.types import TEXT, TIMESTAMPTZ, Kind, SqlType
from herdpy.sql import conversions, tree
from herdpy.sql.functions import SETS
from herdpy.sql.plan import NOW, Numbers, Slot
from herdpy.sql.reading import syntax
from herdpy.sql.reading.extent import Budget, nesting, too_big
from herdpy.sql.reading.tokens import Scanned

_SET_WORDS = frozenset(name.upper() for name in SETS)


class Catalog(Protocol):
    """The tables one statement can see; never changes while it is held."""

    @property
    def version(self) -> int:
        """Grows with every change; part of the plan cache's key."""
        ...

    def table(self, name: str) -> Table | None:
        """Return the table of that folded name, or None."""
        ...

    def table_names(self) -> Sequence[str]:
        """Return the names, for hints; those of system tables, too."""
        ...


class StatementContext:
    """One statement being bound; one thread."""

    def __init__(
        self,
        scanned: Scanned,
        catalog: Catalog,
        types: Mapping[int | str, SqlType],
        check_interrupt: Callable[[], object] = lambda: None,
        value_of: Callable[[int | str], object] = lambda _: None,
    ) -> None:
        """value_of gives a parameter's value, whose digits count where it is a text."""
        self.budget = Budget(check_interrupt)
        self.scanned = scanned
        self.catalog = catalog
        self._types = types
        self._value_of = value_of
        self._slots: dict[Slot, int] = {}
        self._numbers: dict[tuple[int | str, SqlType, SqlType], None] = {}
        self._relation_ids = count(1)
        self._cte_ids = count(1)
        self.view: Table | None = None
        """The view whose text is bound; None: it is the statement's own."""
        self.named: dict[int, tuple[syntax.TableName, Table]] = {}
        """Where the text names tables so far, and which, by 0-based character; no WITH items."""
        self.view_names: set[str] = set()
        """The views that stand in the statement, those in views among them."""
        self.recursive: set[int] = set()
        """The WITH items that name themselves and are just being bound."""
        self.known: Mapping[str, int] | None = None
        """By table that the text names, how many of its columns it knows; None: all."""
        self.depth = 0
        """How deep in the statement the text stands."""
        self._view_words = Budget(check_interrupt, statement_tokens_max, "words and signs in views")
        self._view_relations = Budget(check_interrupt, view_relations_max, "tables in its views")

    def inside(self, view: Table, scanned: Scanned, start: int) -> "StatementContext":
        """Return the context of a view's text; the view is named at a 0-based character of this.

        54001: the statement is too big or nested too deep with what its views stand for.
        """
        definition = view.view
        assert definition is not None
        before = takewhile(lambda token: token.start < start, self.scanned.tokens)
        _, depth = nesting(token.word for token in before)
        deepest, _ = nesting(token.word for token in scanned.tokens)
        self._view_words.spend(len(scanned.tokens))
        self._view_relations.spend(len(definition.relations) or 1)
        self.view_names.add(view.name)
        inner = copy(self)
        inner.scanned, inner.view, inner.named = scanned, view, {}
        inner.__dict__.pop("names_sets", None)
        inner.known = dict(definition.relations)
        inner.depth = self.depth + depth + 1
        if inner.depth + deepest > statement_depth_max:
            raise too_big(statement_depth_max, "levels, with those of its views")
        return inner

    @cached_property
    def names_sets(self) -> bool:
        """Whether the text has a word that may be a function which gives rows."""
        tokens = self.scanned.tokens
        return any(token.word in _SET_WORDS or token.text in SETS for token in tokens)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    @property
    def numbers(self) -> Numbers:
        return tuple(self._numbers)

    def beside(self, target: SqlType, untyped: tree.Expression) -> SqlType:
        """Return the type of an untyped operand beside one of target: beside a DECIMAL its digits.

        A parameter is of target where that holds its digits.
        """
        if isinstance(untyped, tree.Literal):
            return conversions.untyped_number(untyped.value, target)
        if target.kind is not Kind.DECIMAL or not isinstance(untyped, tree.Parameter):
            return target
        source = self.scanned.placeholders[-1 - untyped.index]
        own = conversions.text_number(self._value_of(source), target)
        self._numbers[source, target, own] = None
        return own

    def next_relation(self) -> int:
        return next(self._relation_ids)

    def position(self, node: syntax.Node) -> int | None:
        """Return the 1-based character of the statement where a node begins; None: in a view."""
        start = syntax.start_of(node)
        return None if start is None or self.view is not None else start + 1

    def next_cte(self) -> int:
        return next(self._cte_ids)

    def now(self, sql_type: SqlType = TIMESTAMPTZ) -> tree.Parameter:
        """Return the slot of the transaction's time, a TIMESTAMPTZ or TIMESTAMP."""
        slot = Slot(NOW, sql_type)
        return tree.Parameter(sql_type, self._slots.setdefault(slot, len(self._slots)))

    def is_now(self, parameter: tree.Parameter) -> bool:
        """Tell whether it stands for the transaction's time."""
        return self._slots.get(Slot(NOW, parameter.type)) == parameter.index

    # Parameters: an occurrence stays pending (its index is below 0) until its type is settled,
    # since str and None, like untyped literals, get their type from what stands around them.

    def parameter(self, node: syntax.Placeholder) -> tree.Parameter:
        source = self.scanned.placeholders[node.index]
        return tree.Parameter(self._types[source], -1 - node.index)

    def settle(
        self, expression: tree.Expression, wanted: SqlType | None = None, column: str | None = None
    ) -> tree.Expression:
        """Give a pending parameter its slot, an untyped literal its type (by default TEXT).

        column: the one that the value is stored in.
        22003 for a number of more digits than a DECIMAL has.
        """
        if isinstance(expression, tree.Parameter) and expression.index < 0:
            found = TEXT if expression.type.kind is Kind.UNKNOWN else expression.type
            source = self.scanned.placeholders[-1 - expression.index]
            slot = Slot(source, wanted or found, column)
            return tree.Parameter(slot.type, self._slots.setdefault(slot, len(self._slots)))
        if isinstance(expression, tree.Literal) and expression.type.kind is Kind.UNKNOWN:
            return tree.Literal(wanted or TEXT, expression.value)
        if isinstance(expression, tree.Literal) and conversions.is_wide(expression.type):
            raise conversions.too_wide()
        return expression

    def table(self, node: syntax.TableName) -> Table:
        """Return the table of that name; 42P01."""
        table = self.catalog.table(node.name)
        if table is None:
            raise no_table(node.name, self.catalog.table_names(), self.position(node))
        self.named[node.start] = node, table
        return table

    def columns(self, table: Table) -> Sequence[tuple[int, Column]]:
        """Return (ordinal, column) of the columns of a table that the text knows."""
        found = [item for item in enumerate(table.columns) if not item[1].hidden]
        return found if self.known is None else found[: self.known[table.name]]

    def error(
        self, sqlstate: str, message: str, node: syntax.Node | None = None, hint: str | None = None
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


@dataclass(frozen=True, slots=True)
class Visible:
    """One column that * shows and that a bare name means; merged by USING or of one relation."""

    name: str
    expression: tree.Expression


@dataclass(slots=True)
class Scope:
    """The relations in reach, and what may stand here.

    `clause` says where aggregates may not stand, `has_windows` where window functions may.
    `outer` is the scope around a subquery, `windows` are the WINDOW clause's nodes. `subqueries`
    are those of a SELECT with GROUP BY, by tree.shape(): None elsewhere. `sets` are the columns of
    functions that give rows, by where in the text their calls in the select list begin.
    """

    context: StatementContext
    relations: list[Named] = field(default_factory=list[Named])
    clause: str | None = None
    has_aggregates: bool = False
    outer: "Scope | None" = None
    ctes: dict[str, tree.Cte] = field(default_factory=dict[str, tree.Cte])
    visible: list[Visible] = field(default_factory=list[Visible])
    allows_windows: bool = False
    windows: dict[str, syntax.Window] = field(default_factory=dict[str, syntax.Window])
    subqueries: dict[tuple[object, ...], tree.Expression] | None = None
    sets: dict[int, tree.Expression] = field(default_factory=dict[int, tree.Expression])

    def error(
        self, sqlstate: str, message: str, node: syntax.Node | None = None, hint: str | None = None
    ) -> Error:
        return self.context.error(sqlstate, message, node, hint)

    def settle(self, expression: tree.Expression) -> tree.Expression:
        return self.context.settle(expression)

    def cte(self, name: str) -> tree.Cte | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.outer
        return None

    def add_table(self, node: syntax.TableName) -> tree.TableRef:
        """Bring a table in reach under its alias; 42712 when the alias is taken."""
        table = self.context.table(node)
        alias = node.alias or table.name
        context = self.context
        ref = tree.TableRef(context.next_relation(), table, alias, context.view)
        columns = [
            (column.name, column.type, ordinal) for ordinal, column in context.columns(table)
        ]
        for position, name in enumerate(self.renamed(node.columns, len(columns), node)):
            columns[position] = (name, *columns[position][1:])
        self.add(Named(ref.id, alias, tuple(columns), table), node)
        return ref

    def add(self, named: Named, node: syntax.Node) -> None:
        """Bring a relation in reach; 42712 when its alias is taken."""
        if named.alias and any(other.alias == named.alias for other in self.relations):
            raise self.error("42712", f'table name "{named.alias}" is used twice', node)
        self.relations.append(named)
        self.visible += [
            Visible(name, tree.ColumnRef(kind, named.id, ordinal, name))
            for name, kind, ordinal in named.columns
        ]

    def renamed(self, names: Sequence[str], count: int, node: syntax.Node) -> Sequence[str]:
        """Return the names of an alias's column list; 42P10 when there are too many."""
        if len(names) > count:
            raise self.error(
                "42P10", f"the alias names {len(names)} columns, there are {count}", node
            )
        return names

    def column(self, node: syntax.Column) -> tree.Expression:
        """Return what a column name means; 42703, 42P01, 42702."""
        name = node.name
        scope: Scope | None = self
        while scope is not None:
            found = scope.find(name, node)
            if found is not None:
                return found
            scope = scope.outer
        if node.table is not None:
            relation = self.relation(node.table, node)
            known = [column for column, _, _ in relation.columns]
            raise self.error(
                "42703",
                f'column "{relation.alias}.{name}" does not exist',
                node,
                suggestion(name, known),
            )
        known = [visible.name for visible in self.visible]
        raise self.error("42703", f'column "{name}" does not exist', node, suggestion(name, known))

    def find(self, name: str, node: syntax.Column) -> tree.Expression | None:
        """Return what a column name means in this scope alone; 42702."""
        if node.table is not None:
            found: list[tree.Expression] = [
                tree.ColumnRef(kind, named.id, ordinal, name)
                for named in self.relations
                for column, kind, ordinal in named.columns
                if named.alias == node.table and column == name
            ]
        else:
            found = [visible.expression for visible in self.visible if visible.name == name]
        if len(found) > 1:
            owners = ", ".join(f"{n.alias}.{name}" for n in self.relations if _has(n, name))
            raise self.error(
                "42702", f'column "{name}" is ambiguous', node, f"Write one of {owners}."
            )
        return found[0] if found else None

    def relation(self, alias: str, node: syntax.Node) -> Named:
        """Return the relation of an alias, here or around; 42P01."""
        scope: Scope | None = self
        while scope is not None:
            for named in scope.relations:
                if named.alias == alias:
                    return named
            scope = scope.outer
        raise self.error(
            "42P01",
            f'no table "{alias}" in FROM',
            node,
            suggestion(alias, [named.alias for named in self.relations]),
        )


def _has(named: Named, name: str) -> bool:
    return any(column == name for column, _, _ in named.columns)


def suggestion(name: str, known: Sequence[str]) -> str | None:
    """Return "Did you mean …?" for a name that looks like a known one."""
    close = closest(name, known)
    return f'Did you mean "{close}"?' if close else None
