"""Rows of a CSV file into a table, as one statement: all of them, or none.

The first record has the columns' names; those of the table that it does not name take their
defaults. Rows stream: neither the file nor its rows are ever whole in memory here.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from herdpy.cli.csv_text import csv_records
from herdpy.driver.connection import Connection
from herdpy.errors import DataError, Error, OperationalError, ProgrammingError, did_you_mean
from herdpy.exec.coerce import cast_physical, output_converter
from herdpy.model.schema import Column, Table
from herdpy.model.types import TEXT


def import_csv(connection: Connection, path: str, table: Table, check: Callable[[], object]) -> int:
    """Insert the records of a file; return how many.

    check() is called for each record, and may raise. Errors of a record name file and line; of
    what only the whole statement shows, as a key that is there already, the key.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            return connection.ingest(table.name, _rows(file, path, table, check))
    except OSError as error:
        reason = error.strerror or str(error)
        raise OperationalError(f".import: {path}: {reason}", sqlstate="58P01") from error


def _rows(
    file: Any, path: str, table: Table, check: Callable[[], object]
) -> Iterator[dict[str, Any]]:
    line = 0

    def lines() -> Iterator[str]:
        nonlocal line
        for line, text in enumerate(file, 1):  # noqa: B007 - read outside
            yield text

    try:
        records = csv_records(lines())
        header = next(records, None)
        if header is None:
            raise DataError("line 1: expected the columns' names, found nothing", sqlstate="22P04")
        columns = _columns(table, header[1])
        for first, fields in records:
            check()
            if len(fields) != len(columns):
                raise DataError(
                    f"line {first}: expected {len(columns)} fields, found {len(fields)}",
                    sqlstate="22P04",
                )
            yield _row(columns, fields, first)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: behind line {line}: the file is not UTF-8: {error.reason}", sqlstate="22021"
        ) from error
    except (DataError, ProgrammingError) as error:
        raise _placed(error, path) from error


def _columns(table: Table, names: Sequence[str | None]) -> list[Column]:
    known = {column.name: column for column in table.visible_columns}
    columns: list[Column] = []
    for name in names:
        column = known.get(name or "") or known.get((name or "").lower())
        if column is None:
            raise ProgrammingError(
                f'line 1: table "{table.name}" has no column {name!r}',
                sqlstate="42703",
                hint=did_you_mean(
                    name or "", known, "The first line has the names of the columns."
                ),
            )
        if column in columns:
            raise ProgrammingError(f"line 1: column {name!r} is named twice", sqlstate="42701")
        columns.append(column)
    return columns


def _row(columns: list[Column], fields: Sequence[str | None], line: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, field in zip(columns, fields, strict=True):
        try:
            value: Any = cast_physical(
                field, TEXT, column.type, is_assignment=True, what=column.name
            )
        except Error as error:
            raise _placed(error, f"line {line}") from error
        convert = output_converter(column.type)
        row[column.name] = value if value is None or convert is None else convert(value)
    return row


def _placed(error: Error, where: str) -> Error:
    return type(error)(
        f"{where}: {error.message}", sqlstate=error.sqlstate, retry=error.retry, hint=error.hint
    )
