"""CSV as PostgreSQL's COPY … CSV has it, one line and one record at a time.

NULL is an empty field without quotes, '' is "". A field that is empty, or has a comma, a quote, CR
or LF, is in quotes, and quotes in it are doubled. Lines end with LF; CRLF is read, too. The text of
a value is what CAST reads, so what was written is read again, whatever the type.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from herdpy.errors import DataError
from herdpy.limits import row_bytes_max

_SPECIAL = re.compile(r'[,"\r\n]')
_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|\Z)')
_RECORD_CHARACTERS_MAX = 2 * row_bytes_max  # a text of nothing but quotes is twice as long


def csv_line(fields: Iterable[str | None]) -> str:
    return ",".join(map(_quoted, fields)) + "\n"


def _quoted(field: str | None) -> str:
    if field is None:
        return ""
    if field and _SPECIAL.search(field) is None:
        return field
    doubled = field.replace('"', '""')
    return f'"{doubled}"'


def csv_records(lines: Iterable[str]) -> Iterator[tuple[int, Sequence[str | None]]]:
    """Yield (number of the record's first line, from 1; its fields) of lines with their ends.

    DataError 22P04, with the line, for what is no CSV. An empty line is a record of one NULL.
    """
    record, first, is_open = "", 1, False
    for number, line in enumerate(lines, 1):
        if not is_open:
            record, first = "", number
        record += line
        if len(record) > _RECORD_CHARACTERS_MAX:
            raise _malformed(first, f"a record is longer than {_RECORD_CHARACTERS_MAX} characters")
        is_open ^= line.count('"') % 2 == 1
        if not is_open:
            yield first, _fields(record, first)
    if is_open:
        raise _malformed(first, "a quote that opens here has no end")


def _fields(record: str, line: int) -> list[str | None]:
    fields: list[str | None] = []
    position, end = 0, ","
    while end == ",":
        found = _FIELD.match(record, position)
        if found is None:
            shown = record[position : position + 20].rstrip()
            raise _malformed(line, f"expected a field, or one in quotes, found {shown!r}")
        quoted, plain, end = found.groups()
        fields.append(quoted.replace('""', '"') if quoted is not None else plain or None)
        position = found.end()
    return fields


def _malformed(line: int, what: str) -> DataError:
    return DataError(
        f"line {line}: {what}",
        sqlstate="22P04",
        hint='A field with a comma, a quote or a line\'s end is in quotes: "5"" disk".',
    )
