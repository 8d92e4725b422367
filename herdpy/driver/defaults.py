"""What columns have that an INSERT does not name, for programs that build rows by themselves."""

from typing import Any, NamedTuple

from herdpy.driver.interfaces import DriverSession
from herdpy.errors import no_table
from herdpy.exec.coerce import output_converter
from herdpy.features import TABLES
from herdpy.model.schema import Column


class ColumnDefault(NamedTuple):
    """The DEFAULT of one column."""

    value: Any
    """As a query returns it; None where is_now."""
    is_now: bool = False
    """It is the time of the statement, in the column's type."""


def column_defaults(session: DriverSession, table: str) -> dict[str, ColumnDefault]:
    """Return the defaults of a table's columns by their names; those without are left out."""
    tables = {each.name: each for each in session.perform(TABLES)}
    found = tables.get(table)
    if found is None:
        raise no_table(table, tables)
    return {
        column.name: _default_of(column)
        for column in found.visible_columns
        if column.default is not None or column.default_sql is not None
    }


def _default_of(column: Column) -> ColumnDefault:
    if column.default_sql is not None:
        return ColumnDefault(None, is_now=True)
    convert = output_converter(column.type)
    return ColumnDefault(column.default if convert is None else convert(column.default))
