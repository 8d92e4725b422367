"""Views as SQL: the statements that make them again, in an order in which they can.

The text of a view is the one that it was made by. It knows no columns that what it names has got
since (ADR 94), but whoever runs it again would: there a query of the known ones takes their place.
"""

from collections.abc import Container, Iterable, Iterator

from herdpy.engine.state.catalog import Catalog
from herdpy.errors import NotSupportedError
from herdpy.model.schema import Table, View
from herdpy.sql import tree
from herdpy.sql.bind import bind_query
from herdpy.sql.reading import syntax
from herdpy.sql.reading.reader import read
from herdpy.sql.reading.tokens import scan
from herdpy.sql.scope import StatementContext
from herdpy.sql.text import name_text


def create_view_text(table: Table, catalog: Catalog) -> str:
    """Return the CREATE VIEW that makes an equal view in the catalog, without semicolon."""
    return (
        f"CREATE VIEW {name_text(table.name)} ({columns_text(table)}) AS\n"
        f"{query_text(table, catalog)}"
    )


def columns_text(table: Table) -> str:
    return ", ".join(name_text(column.name) for column in table.visible_columns)


def query_text(table: Table, catalog: Catalog) -> str:
    """Return the text of a view's query, as it means the same in the catalog now."""
    view = table.view
    assert view is not None
    known = dict(view.relations)
    grown = {name for name in known if _width(catalog, name) > known[name]}
    if not grown:
        return view.text
    context, text = _bound(table, view.text, catalog), view.text
    for start in sorted(context.named, reverse=True):
        node, found = context.named[start]
        if found.name in grown:
            text = _with_known_columns(text, node, found, context)
    return text


def _width(catalog: Catalog, name: str) -> int:
    table = catalog.table(name)
    return 0 if table is None else len(table.visible_columns)


def _with_known_columns(
    text: str, node: syntax.TableName, table: Table, context: StatementContext
) -> str:
    """Return a text with a query of the known columns where a table is named."""
    tokens = context.scanned.tokens
    index = next(number for number, token in enumerate(tokens) if token.start == node.start)
    columns = ", ".join(name_text(column.name) for _, column in context.columns(table))
    name, start = name_text(table.name), node.start
    query = f"(SELECT {columns} FROM {name})"  # noqa: S608 - names of the catalog, quoted
    before = [tokens[place].word if place >= 0 else "" for place in (index - 1, index - 2)]
    end = index
    if before[0] == "TABLE":
        query, start = f"SELECT * FROM {query}", tokens[index - 1].start  # noqa: S608 - as above
    elif before[0] == "ONLY":
        start = tokens[index - 1].start
    elif before == ["(", "ONLY"]:
        start, end = tokens[index - 2].start, index + 1
    elif index + 1 < len(tokens) and tokens[index + 1].word == "*":
        end = index + 1
    alias = "" if node.alias is not None else f" AS {name}"
    return f"{text[:start]}{query}{alias}{text[tokens[end].end :]}"


def renamed(view: Table, catalog: Catalog, old: Table, new: Table) -> View:
    """Return a view's query as it is when a table that it reads has other names.

    The text goes on to call the table and its columns as it did, by an alias.
    """
    definition = view.view
    assert definition is not None
    context, text = _bound(view, definition.text, catalog), definition.text
    for start in sorted(context.named, reverse=True):
        node, found = context.named[start]
        if found.id == old.id:
            text = _with_new_names(text, node, new, context)
    names = {old.name: new.name}
    return View(text, tuple((names.get(name, name), count) for name, count in definition.relations))


def check_reads_same(old: Table, catalog: Catalog, new: Table, changed: Catalog) -> None:
    """Raise 0A000 for a view that would read others in the changed catalog than it does."""
    before, after = _bound(old, _text_of(old), catalog), _bound(new, _text_of(new), changed)
    if _read_by(before) != _read_by(after):
        raise NotSupportedError(
            f'view "{old.name}" would read something else behind the change',
            hint="DROP the view, and CREATE it behind the change.",
        )


def names_places(view: Table, catalog: Catalog, table: Table, ordinals: Iterable[int]) -> bool:
    """Tell whether a view's query gives names to some columns of a table by their places."""
    context = _bound(view, _text_of(view), catalog)
    nodes = (node for node, found in context.named.values() if found.id == table.id)
    named = max((len(node.columns) for node in nodes), default=0)
    return any(ordinal < named for ordinal in ordinals)


def uses_columns(view: Table, catalog: Catalog, table: Table, ordinals: Container[int]) -> bool:
    """Tell whether the query of a view computes something of some columns of a table."""
    text = _text_of(view)
    context = StatementContext(scan(text), catalog, {}).inside(view, scan(text), 0)
    query = bind_query(_query_of(context), context)
    relations = {
        part.id
        for part in tree.nodes(query)
        if isinstance(part, tree.TableRef) and part.table.id == table.id
    }
    return any(
        isinstance(part, tree.ColumnRef) and part.relation in relations and part.ordinal in ordinals
        for part in tree.nodes(query)
    )


def _text_of(view: Table) -> str:
    assert view.view is not None
    return view.view.text


def _query_of(context: StatementContext) -> syntax.Query:
    query = read(context.scanned)
    assert isinstance(query, syntax.Query)
    return query


def _bound(view: Table, text: str, catalog: Catalog) -> StatementContext:
    """Return what a view's text has named, once it is bound."""
    context = StatementContext(scan(text), catalog, {}).inside(view, scan(text), 0)
    bind_query(_query_of(context), context)
    return context


def _read_by(context: StatementContext) -> list[int]:
    """Return the tables that a text names, by id, in its order."""
    return [context.named[start][1].id for start in sorted(context.named)]


def _with_new_names(
    text: str, node: syntax.TableName, new: Table, context: StatementContext
) -> str:
    """Return a text with a table's new name where it is named, under an alias of the old names."""
    tokens = context.scanned.tokens
    first = next(number for number, token in enumerate(tokens) if token.start == node.start)
    last = first
    if node.alias is not None:
        last += 1 + (tokens[first + 1].word == "AS")
    if node.columns:
        last += 2 * len(node.columns) + 1
    known = [column.name for _, column in context.columns(context.named[node.start][1])]
    names = [*node.columns, *known[len(node.columns) :]]
    alias = f"{name_text(new.name)} AS {name_text(node.alias or node.name)}"
    if node.columns or names != [column.name for column in new.visible_columns[: len(names)]]:
        alias += f" ({', '.join(map(name_text, names))})"
    start = node.start
    if first and tokens[first - 1].word == "TABLE":
        alias, start = f"SELECT * FROM {alias}", tokens[first - 1].start  # noqa: S608 - names
    return f"{text[:start]}{alias}{text[tokens[last].end :]}"


def in_order(tables: Iterable[Table]) -> Iterator[Table]:
    """Yield the views among tables, each behind those that it reads."""
    waiting = {table.name: table for table in tables if table.view is not None}
    for name in list(waiting):
        pending = [name]
        while pending:
            table = waiting.get(pending[-1])
            before = () if table is None or table.view is None else table.view.relations
            missing = [other for other, _ in before if other in waiting]
            if missing:
                pending += missing
                continue
            pending.pop()
            if table is not None:
                del waiting[table.name]
                yield table
