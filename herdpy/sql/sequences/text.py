"""Sequences as SQL: the statements that make them again, as far as they are."""

from collections.abc import Callable, Iterable, Iterator

from herdpy.model.schema import Table
from herdpy.model.types import TEXT, Kind
from herdpy.sql.text import literal_text, name_text, options_text


def create_sequence_texts(tables: Iterable[Table]) -> Iterator[str]:
    """Yield CREATE SEQUENCE of those that no identity column makes, without semicolon."""
    found = list(tables)
    made = {
        column.filling.sequence
        for table in found
        for column in table.columns
        if column.filling is not None and column.filling.is_identity
    }
    for table in found:
        if table.sequence is not None and table.name not in made:
            options = options_text(table.sequence, Kind.BIGINT)
            yield f"CREATE SEQUENCE {name_text(table.name)}{options and ' '}{options}"


def set_sequence_texts(
    tables: Iterable[Table], last_value: Callable[[Table], tuple[int, bool]]
) -> Iterator[str]:
    """Yield what gives sequences to their columns, and sets them to where they are."""
    found = list(tables)
    names: dict[str, str] = {}
    for table in found:
        for column in table.columns:
            filling = column.filling
            if filling is None or not filling.is_owner:
                continue
            if filling.is_identity:
                name = literal_text(name_text(table.name), TEXT)
                place = literal_text(column.name, TEXT)
                names[filling.sequence] = f"pg_get_serial_sequence({name}, {place})"
            else:
                place = f"{name_text(table.name)}.{name_text(column.name)}"
                yield f"ALTER SEQUENCE {name_text(filling.sequence)} OWNED BY {place}"
    for table in found:
        if table.sequence is not None:
            value, is_called = last_value(table)
            name = names.get(table.name) or literal_text(name_text(table.name), TEXT)
            yield f"SELECT setval({name}, {value}, {'true' if is_called else 'false'})"
