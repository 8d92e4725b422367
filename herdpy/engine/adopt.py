"""adopt(): what a commit of staged rows makes of its table; a part of apply(), by state alone.

Monitor of the tablespace; everything may be repeated for the same position.
"""

from collections.abc import Callable, Iterable, Sequence

from herdpy.engine.memtable import TRIMMED
from herdpy.engine.staged import Operation, Stage
from herdpy.engine.state import TableState
from herdpy.errors import InvariantViolation
from herdpy.model.types import Key, Row

_ROW_BYTES = 100


def adopt(
    table: TableState,
    stages: Sequence[Stage],
    operation: Operation,
    position: int,
    horizon: Callable[[], list[int] | None],
) -> TableState:
    """Return the table with the stages' rows as of `position`."""
    if any(stage.table != table.table for stage in stages):
        raise InvariantViolation(f"I4: stages of another version of table {table.table.id}")
    changes = net_changes(stages, operation)
    table.memtable.put_all(
        _effects(table, changes, stages, operation), position, _ROW_BYTES, horizon
    )
    return table


def net_changes(stages: Sequence[Stage], operation: Operation) -> dict[Key, Row]:
    """Return the staged row of each key: the last one, for IGNORE the first."""
    found: dict[Key, Row] = {}
    is_first = operation is Operation.IGNORE
    for stage in stages:
        for key, row in keyed_rows(stage):
            if not (is_first and key in found):
                found[key] = row
    return found


def keyed_rows(stage: Stage) -> Iterable[tuple[Key, Row]]:
    """Yield the rows of a stage, the later ones of a key behind the earlier ones."""
    from herdpy.storage.arrow_staged import staged_rows

    key_of = stage.table.key_of
    for level in (stage.pages.base, *stage.pages.runs):
        for entry in level:
            for row in entry.live_rows(0, entry.row_count):
                yield key_of(row), row
    for piece in stage.pieces:
        for row in staged_rows(stage.table, piece.data, piece.first_row_id):
            yield key_of(row), row


def newest_row(table: TableState, key: Key) -> Row | None:
    """Return the committed row of a key."""
    for memtable in (table.memtable, *table.frozen):
        version = memtable.chains.get(key)
        if version is not None:
            if version is TRIMMED:
                raise InvariantViolation("I4: a memtable of the state was given up")
            return version[1]
    return table.pages.get(key)


def _effects(
    table: TableState, changes: dict[Key, Row], stages: Sequence[Stage], operation: Operation
) -> Iterable[tuple[Key, Row | None]]:
    if operation in (Operation.APPEND, Operation.UPSERT):
        return changes.items()
    if operation is Operation.REPLACE:
        gone = [key for key in _keys(table) if key not in changes]
        return [*((key, None) for key in gone), *changes.items()]
    found = ((key, row, newest_row(table, key)) for key, row in changes.items())
    if operation is Operation.IGNORE:
        return [(key, row) for key, row, now in found if now is None]
    if operation is Operation.DELETE:
        return [(key, None) for key, _, now in found if now is not None]
    given = set(stages[0].ordinals) if stages else set[int]()
    return [
        (
            key,
            tuple(
                new if i in given else old
                for i, (new, old) in enumerate(zip(row, now, strict=True))
            ),
        )
        for key, row, now in found
        if now is not None
    ]


def _keys(table: TableState) -> Iterable[Key]:
    """Return the keys of all rows."""
    seen: dict[Key, bool] = {}
    for memtable in (table.memtable, *table.frozen):
        for key, version in memtable.chains.items():
            seen.setdefault(key, version[1] is not None)
    for key, _ in table.pages.range(None, None):
        seen.setdefault(key, True)
    return [key for key, is_there in seen.items() if is_there]
