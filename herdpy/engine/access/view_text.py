"""Views as SQL: the statements that make them again, in an order in which they can.

The text of a view is the one that it was made by. It knows no columns that what it names has got
since (ADR 94), but whoever runs it again would: there a query of the known ones takes their place.
"""

from collections.abc import Iterable, Iterator

from herdpy.model.schema import Table
from herdpy.sql.bind_query import bind_query
from herdpy.sql.reading import syntax
from herdpy.sql.reading.reader import read
from herdpy.sql.reading.tokens import scan
from herdpy.sql.scope import Catalog, StatementContext
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
    context = StatementContext(scan(view.text), catalog, {}).inside(table, scan(view.text), 0)
    query = read(context.scanned)
    assert isinstance(query, syntax.Query)
    bind_query(query, context)
    text = view.text
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
