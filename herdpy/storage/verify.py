"""Verify: reads pages as no query does, all of them and all that is in them; changes nothing.

Checksums alone prove that a file holds what was written; check_rows() also looks whether what was
written makes sense. Any thread may call; CorruptionError names file and offset.
"""

from itertools import pairwise

from herdpy.errors import CorruptionError
from herdpy.storage.table_pages import PageEntry


def check_sums(entry: PageEntry) -> None:
    """Verify every checksum of a page; its bitmap was verified when the entry was made."""
    entry.page.verify()


def check_rows(entry: PageEntry) -> int:
    """Decode a page and look whether rows, keys and zones agree; return the live rows."""
    page, table = entry.page, entry.page.table
    count = page.row_count
    rows = page.rows(0, count)
    keys = [table.key_of(row) for row in rows]
    if not all(low < high for low, high in pairwise(keys)):
        raise _damage(entry, "its keys do not ascend")
    if (keys[0], keys[-1]) != (entry.low, entry.high):
        raise _damage(entry, "its first and last keys are not those that the manifest names")
    if any(page.find(key) != index for index, key in enumerate(keys)):
        raise _damage(entry, "its index of keys does not find every row")
    for ordinal, column in enumerate(table.columns):
        values = [row[ordinal] for row in rows]
        missing = values.count(None)
        if missing != page.null_count(ordinal) or (missing and column.not_null):
            raise _damage(entry, f'column "{column.name}" has {missing} NULLs, it must not')
        if not all(page.may_hold(ordinal, v, v) for v in values if v is not None and v == v):
            raise _damage(entry, f'column "{column.name}" has values outside of its zone')
    return count - entry.dead_count


def _damage(entry: PageEntry, problem: str) -> CorruptionError:
    return CorruptionError(
        f"page in {entry.page.where} at offset {entry.ref.offset}: {problem}",
        hint="the checksums are right, so a broken herdpy wrote it: restore a backup",
    )
