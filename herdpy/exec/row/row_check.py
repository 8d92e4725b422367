"""What every row must fulfil before it is logged, whichever statement or call writes it.

compile_check_row() makes one function of a table's rules: NOT NULL (23502), ranges (22003), lengths
of texts (22001), CHECKs (23514), bytes of the key (54000), bytes of the row (54000). CHECKs that
the row path does not compute are left to a query: checks_by_query() says so. Duplicate keys (23505)
need the other rows and are checked by check_absent() and rows_by_key(). Whatever tests many values
at once instead, as an ingest does with Arrow's columns, asks must_be_set() and short_bytes() which
of them need no look by compile_check_row(). Physical values; any thread.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from herdpy.errors import Error, IntegrityError, OperationalError, loading
from herdpy.exec.coerce import (
    cast_physical,
    check_number,
    check_text,
)
from herdpy.exec.row.expressions import Writer
from herdpy.limits import key_bytes_max, record_bytes_max, row_bytes_max
from herdpy.model.keys import encode_key, float_from_order
from herdpy.model.python_values import shortened
from herdpy.model.schema import Column, IndexStore, Table
from herdpy.model.types import INTEGER_BOUNDS, TEXT, Key, Kind, Row

if TYPE_CHECKING:
    from herdpy.sql.plan import OverRows

CheckRow = Callable[[Row], None]

_CELL_BYTES_MAX = 18
"""What a value takes in a record of the log, beside the bytes of a text."""
_KEY_CELL_BYTES_MAX = 17
_CHARACTER_BYTES_MAX = 4
"""Of UTF-8; a byte of BYTEA takes at most two in a key."""


def compile_check_row(table: Table) -> CheckRow:
    """Return the function that raises unless a whole row fits its table.

    It runs last before the row is logged. The hidden row id is not looked at: it is given out when
    the row is logged.
    """
    writer = Writer(None)
    return writer.function("r", [*check_lines(writer, table), "return None"])


def check_lines(writer: Writer, table: Table, *, is_exact: bool = False) -> list[str]:
    """Return the lines of that function, for one that has a row `r` anyway.

    is_exact: its values were tested for the ranges and lengths of their types (EXACT_TESTS).
    """
    lines: list[str] = []
    for ordinal, column in enumerate(table.columns):
        if not column.hidden:
            lines += _null_lines(writer, table, ordinal)
            if not is_exact:
                lines += _value_lines(writer, column, f"r[{ordinal}]")
    if table.checks and not checks_by_query(table):
        lines.append(f"{writer.name(compile_checks(table))}(r)")
    lines += _key_lines(writer, table)
    lines += _row_lines(writer, table)
    return lines


# --- one value -----------------------------------------------------------------------------------


def must_be_set(table: Table, ordinal: int) -> bool:
    """Tell whether a column takes no NULL."""
    return table.columns[ordinal].not_null or ordinal in table.key


def _null_lines(writer: Writer, table: Table, ordinal: int) -> list[str]:
    if not must_be_set(table, ordinal):
        return []
    fail = writer.name(_null_error(table, table.columns[ordinal]))
    return [f"if r[{ordinal}] is None: {fail}()"]


def _null_error(table: Table, column: Column) -> Callable[[], None]:
    def fail() -> None:
        raise IntegrityError(
            f'null value in column "{column.name}" of table "{table.name}" violates NOT NULL',
            sqlstate="23502",
            hint="Give a value, or leave the column out when it has a DEFAULT.",
        )

    return fail


def _value_lines(writer: Writer, column: Column, item: str) -> list[str]:
    """Return the test of a value's range or length."""
    kind, check, test = column.type.kind, None, ""
    if kind in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[kind]
        test, check = f"not {low} <= {item} <= {high}", check_number
    elif kind is Kind.DECIMAL and column.type.precision is not None:
        limit = 10**column.type.precision
        test, check = f"not -{limit} < {item} < {limit}", check_number
    elif kind is Kind.TEXT and column.type.length is not None:
        test, check = f"len({item}) > {column.type.length}", check_text
    if check is None:
        return []
    names = f"{writer.name(column.type)}, {writer.name(f'column {column.name}')}"
    return [f"if {item} is not None and {test}: {writer.name(check)}({item}, {names})"]


# --- CHECK ---------------------------------------------------------------------------------------


def checks_by_query(table: Table) -> bool:
    """Tell whether CHECKs of a table have to be computed by a query: compile_checks() cannot."""
    return bool(table.checks) and _plan_checks(table).query is not None


def _plan_checks(table: Table) -> "OverRows":
    with loading():
        from herdpy.sql.definitions.checks import plan_checks

    return plan_checks(table)


def compile_checks(
    table: Table, error_of: "Callable[[Table, str], IntegrityError] | None" = None
) -> CheckRow:
    """Return the function that raises 23514 for a row that violates a CHECK of its table.

    error_of: what it raises by table and name of the CHECK; None: violated_check().

    Of a table whose CHECKs the row path computes. It has a budget of operators of its own.
    """
    writer, lines = Writer(table), list[str]()
    plan = _plan_checks(table)
    for output, condition in zip(plan.outputs, plan.values, strict=True):
        fail = writer.name(partial(_fail, error_of or violated_check, table, output.name))
        lines.append(f"if {writer.falsity(condition)}: {fail}()")
    return writer.function("r", [*lines, "return None"])


def _fail(error_of: Callable[[Table, str], IntegrityError], table: Table, name: str) -> None:
    raise error_of(table, name)


def violated_check(table: Table, name: str) -> IntegrityError:
    """Return the error of a row that violates a CHECK; it shows no value of the row.

    A user who may write it need not be one who may read it.
    """
    (check,) = (each for each in table.checks if each.name == name)
    return IntegrityError(
        f'new row for relation "{table.name}" violates check constraint "{name}"',
        sqlstate="23514",
        hint=f"It demands that this is not false: {shortened(check.text)}",
    )


def present_check(table: Table, name: str) -> IntegrityError:
    """Return the error of a row that is there and does not fulfil a CHECK that is new."""
    return IntegrityError(
        f'check constraint "{name}" of relation "{table.name}" is violated by some row',
        sqlstate="23514",
        hint="Change such rows first, or ADD CONSTRAINT … NOT VALID for rows to come.",
    )


def present_null(table: Table, ordinal: int) -> IntegrityError:
    """Return the error of a row that is there and has a NULL where there is to be none."""
    return IntegrityError(
        f'column "{table.columns[ordinal].name}" of relation "{table.name}" contains null values',
        sqlstate="23502",
    )


# --- bytes of the key and of the row -------------------------------------------------------------


def short_bytes(table: Table, ordinal: int) -> int | None:
    """Return how many characters or bytes of a column are surely not too long for its row.

    None: any number that the column's type takes.
    """
    column = table.columns[ordinal]
    if not _is_text(column):
        return None
    short = _row_share(table)
    if ordinal in table.key:
        short = min(short, _key_share(table))
    for store in table.stores:
        if ordinal in store.index.columns or ordinal in table.key:
            short = min(short, _key_share(store.table))
    length = column.type.length
    return short if length is None or length > short else None


def _is_text(column: Column) -> bool:
    return column.type.kind in (Kind.TEXT, Kind.BYTEA)


def _key_share(table: Table) -> int:
    return (key_bytes_max // len(table.key) - _KEY_CELL_BYTES_MAX) // _CHARACTER_BYTES_MAX


def _row_share(table: Table) -> int:
    return (row_bytes_max // len(table.columns) - _CELL_BYTES_MAX) // _CHARACTER_BYTES_MAX


def _long_lines(
    table: Table, ordinals: Iterable[int], share: int, call: str, *, is_key: bool = False
) -> list[str]:
    """Return the call for rows in which one of the texts is longer than its share."""
    tests: list[str] = []
    for ordinal in ordinals:
        column = table.columns[ordinal]
        length = column.type.length
        if _is_text(column) and (length is None or length > share):
            test = f"len(r[{ordinal}]) > {share}"
            is_set = is_key or must_be_set(table, ordinal)
            tests.append(test if is_set else f"r[{ordinal}] is not None and {test}")
    return [f"if {' or '.join(tests)}: {call}"] if tests else []


def _key_lines(writer: Writer, table: Table) -> list[str]:
    call = f"{writer.name(_key_check(table))}(r)"
    lines = _long_lines(table, table.key, _key_share(table), call, is_key=True)
    for store in table.stores:
        ordinals = dict.fromkeys((*store.index.columns, *table.key))
        call = f"{writer.name(_entry_check(table, store))}(r)"
        lines += _long_lines(table, ordinals, _key_share(store.table), call)
    return lines


def _entry_check(table: Table, store: IndexStore) -> CheckRow:
    kinds = store.table.key_kinds
    key_of, entry_of = store.table.key_of, store.entry_of

    def check(row: Row) -> None:
        whole = (*row[:-1], 0) if table.is_heap else row
        byte_count = len(encode_key(key_of(entry_of(whole)), kinds))
        if byte_count > key_bytes_max:
            raise OperationalError(
                f'index "{store.index.name}" of table "{store.table_name}": expected at most '
                f"{key_bytes_max} bytes of a row, found {byte_count}",
                sqlstate="54000",
                hint="Index a shorter value, for example a digest of the long one.",
            )

    return check


def _key_check(table: Table) -> CheckRow:
    kinds = [table.columns[ordinal].type.kind for ordinal in table.key]
    names = ", ".join(table.key_names)

    def check(row: Row) -> None:
        byte_count = len(encode_key(table.key_of(row), kinds))
        if byte_count > key_bytes_max:
            raise OperationalError(
                f'key of table "{table.name}" ({names}): expected at most'
                f" {key_bytes_max} bytes, found {byte_count}",
                sqlstate="54000",
                hint="Use a shorter key, for example a digest of the long value.",
            )

    return check


def _row_lines(writer: Writer, table: Table) -> list[str]:
    call = f"{writer.name(_row_bytes_check(table))}(r)"
    return _long_lines(table, range(len(table.columns)), _row_share(table), call)


def _row_bytes_check(table: Table) -> CheckRow:
    def check(row: Row) -> None:
        byte_count = row_bytes(row)
        if byte_count > row_bytes_max:
            raise OperationalError(
                f'a row of table "{table.name}" takes about {byte_count} bytes, expected at most '
                f"{row_bytes_max}",
                sqlstate="54000",
                hint="Split long values over several rows, or keep them in files.",
            )

    return check


def row_bytes(row: Row) -> int:
    """Return how many bytes a row takes at most in a record of the log."""
    texts = (value for value in row if isinstance(value, str | bytes))
    byte_count = sum(len(v.encode() if isinstance(v, str) else v) for v in texts)
    return byte_count + _CELL_BYTES_MAX * len(row)


def too_long_change(table: Table, old: Row, new: Row | None) -> OperationalError:
    """Return the error of a row that is there, too long to be logged beside what it becomes.

    Earlier versions staged such rows.
    """
    byte_count = row_bytes(old) + (0 if new is None else row_bytes(new))
    return OperationalError(
        f'a row of table "{table.name}" before and after its change takes about {byte_count} '
        f"bytes, expected at most {record_bytes_max}",
        sqlstate="54000",
        hint="DELETE the row and INSERT it anew, in two statements.",
    )


# --- duplicate keys ------------------------------------------------------------------------------


def check_absent(table: Table, key: Key, there: object) -> None:
    """Raise 23505 when a row with the key of a new one is there (None: there is none)."""
    if there is not None:
        raise _duplicate_key(table, key)


def rows_by_key(table: Table, rows: Iterable[Row]) -> dict[Key, Row]:
    """Return new rows of a table with a key by their keys; 23505 when two have the same."""
    found: dict[Key, Row] = {}
    key_of = table.key_of
    for row in rows:
        key = key_of(row)
        if key in found:
            check_absent(table, key, found[key])
        found[key] = row
    return found


def _duplicate_key(table: Table, key: Key) -> IntegrityError:
    if table.store is not None:
        return _duplicate_entry(table.store, key)
    names = ", ".join(table.key_names)
    values = ", ".join(map(shortened, _key_texts(table, key)))
    what = f'duplicate key: table "{table.name}" has a row with'
    error = IntegrityError(
        f"{what} key ({names})=({values})",
        sqlstate="23505",
        hint="INSERT … ON CONFLICT DO NOTHING leaves out rows whose key is there.",
    )
    error.table, error.plain = table.name, f"{what} this key ({names})"
    return error


def _duplicate_entry(store: IndexStore, key: Key) -> IntegrityError:
    """Return the error of a second row with the key of an entry of a unique index."""
    texts = list(_key_texts(store.table, key))
    values: list[str] = []
    is_null = False
    for place, part in enumerate(store.parts):
        if part.is_flag:
            is_null = bool(key[place])
            continue
        values.append("NULL" if is_null else shortened(texts[place]))
        is_null = False
    names = ", ".join(store.column_names)
    what, by = f'duplicate key: table "{store.table_name}" has a row with', store.index.name
    error = IntegrityError(
        f'{what} ({names})=({", ".join(values)}), which are unique by "{by}"', sqlstate="23505"
    )
    error.table = store.table_name
    error.plain = f'{what} these values of ({names}), which are unique by "{by}"'
    return error


def _key_texts(table: Table, key: Key) -> Iterator[str]:
    """Yield the values of a key as CAST to TEXT writes them."""
    for ordinal, value in zip(table.key, key, strict=True):
        column = table.columns[ordinal]
        physical: Any = value
        if column.type.is_float:
            physical = float_from_order(physical)
        yield str(cast_physical(physical, column.type, TEXT, is_assignment=False, what=column.name))


# --- several rows --------------------------------------------------------------------------------


def each_row(items: Iterable[Any], step: Callable[[Any], object], first_row: int) -> None:
    """Run a step for each row of the data, or a value of it; its errors say at which row."""
    for index, item in enumerate(items):
        try:
            step(item)
        except Error as error:
            name_row(error, first_row + index)
            raise


def name_row(error: Error, number: int) -> None:
    """Have an error say at which row of the data it was found, counted from 1."""
    error.message = f"row {number:,} of the data: {error.message}"
