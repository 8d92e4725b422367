"""A program's Arrow batches as records of one stage: converted and checked as INSERT does. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from herdpy.engine.state.applier import Applier
from herdpy.engine.state.staged import Operation, Stage
from herdpy.engine.writes.row_writes import ROW_ID_RESERVATION
from herdpy.errors import InvariantViolation, ProgrammingError
from herdpy.exec.interfaces import Numbers
from herdpy.limits import record_bytes_max
from herdpy.log.record import Record, Reserve, StageRows
from herdpy.model.schema import Table
from herdpy.model.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

_DATA_BYTES_MAX = record_bytes_max - 64 * 1024


def stage_records(
    number: int, stage: Stage, batch: "pa.RecordBatch", now_us: int, numbers: Numbers
) -> list[StageRows]:
    """Return the records of rows that follow those of a stage; errors name the row."""
    from herdpy.exec.vector.arrow_columns import RowMaker
    from herdpy.storage.arrow import rows_batch
    from herdpy.storage.arrow_staged import stored_batch

    table, first_row = stage.table, stage.row_count
    ordinals = _ordinals(stage, batch.schema.names)
    maker = RowMaker(_with_given(stage, ordinals), batch.schema, now_us, numbers)
    arrays = maker.arrays(batch)
    if arrays is None:
        whole = rows_batch(table, ordinals, maker.rows(batch, first_row + 1))
    else:
        whole = stored_batch(table, ordinals, arrays)
    return _cut(number, whole, ordinals, first_row)


def row_records(
    number: int, stage: Stage, rows: Sequence[Row], *, has_hidden: bool = False
) -> list[StageRows]:
    """Return the records of whole rows that are converted and checked.

    Of rows to be deleted, the keys. has_hidden: those of a table without key have their row ids.
    """
    from herdpy.storage.arrow import rows_batch

    table = stage.table
    if stage.operation is Operation.DELETE:
        ordinals = sorted(table.key)
    else:
        ordinals = [i for i, column in enumerate(table.columns) if has_hidden or not column.hidden]
    return _cut(number, rows_batch(table, ordinals, rows), ordinals, stage.row_count)


def numbered_rows(applier: Applier, table: Table, rows: StageRows) -> list[Record]:
    """Return the record of rows without key, with their row ids, behind their reservation.

    Monitor held; the counters move when the log has taken the records (Applier.fill).
    """
    table_id, count = table.id, rows.row_count
    row_id = applier.next_row_id.get(table_id, 1)
    numbered = StageRows(
        rows.stage, rows.first_row, count, rows.ordinals, rows.data, first_row_id=row_id
    )
    if row_id + count <= applier.reserved.get(table_id, 1):
        return [numbered]
    upto = row_id + max(ROW_ID_RESERVATION, count)
    return [Reserve(table_id=table_id, upto=upto), numbered]


def _ordinals(stage: Stage, names: Sequence[str]) -> list[int]:
    """Return the columns that a stage's records have."""
    table, operation = stage.table, stage.operation
    everything = [i for i, column in enumerate(table.columns) if not column.hidden]
    if operation not in (Operation.UPDATE, Operation.DELETE):
        return everything
    wanted = set(names) | {name.lower() for name in names}
    given = [ordinal for ordinal in everything if table.columns[ordinal].name in wanted]
    others = [ordinal for ordinal in given if ordinal not in table.key]
    if not set(table.key) <= set(given) or bool(others) is (operation is Operation.DELETE):
        rest = "and what changes" if operation is Operation.UPDATE else "and nothing else"
        raise ProgrammingError(
            f"staging: operation {operation.value!r}: expected the columns of the key "
            f"({', '.join(table.key_names)}) {rest}, found ({', '.join(names)})",
            sqlstate="42703",
        )
    if stage.ordinals and list(stage.ordinals) != given:
        raise ProgrammingError(
            "staging: expected the columns of the stage's first rows "
            f"({', '.join(table.columns[ordinal].name for ordinal in stage.ordinals)})",
            sqlstate="42804",
        )
    return given


def _with_given(stage: Stage, ordinals: Sequence[int]) -> Table:
    """Return the table as rows are checked: what they do not give may be missing."""
    table = stage.table
    if stage.operation in (Operation.UPDATE, Operation.DELETE):
        table = replace(table, checks=())  # of a whole row, which an UPDATE makes at the commit
    if len(ordinals) == len(table.columns) or table.is_heap:
        return table
    columns = tuple(
        column
        if ordinal in ordinals
        else replace(column, not_null=False, default=None, default_sql=None, filling=None)
        for ordinal, column in enumerate(table.columns)
    )
    return Table(table.id, table.name, columns, table.key, table.version)


def _cut(
    number: int, batch: "pa.RecordBatch", ordinals: list[int], first_row: int
) -> list[StageRows]:
    """Return records of at most record_bytes_max."""
    from herdpy.storage.arrow_staged import staged_bytes

    records: list[StageRows] = []
    pending = [batch]  # a stack: the rows that come first are on top
    while pending:
        part = pending.pop()
        count = part.num_rows
        data = staged_bytes(part) if part.nbytes <= _DATA_BYTES_MAX or count == 1 else b""
        if data and len(data) <= _DATA_BYTES_MAX:
            records.append(StageRows(number, first_row, count, ordinals, data))
            first_row += count
        elif count == 1:
            raise InvariantViolation(
                f"staging: row {first_row + 1:,} of the data takes {len(data):,} bytes, expected "
                f"at most {_DATA_BYTES_MAX:,}; rows are to be checked before they are staged"
            )
        else:
            pending += [part.slice(count // 2), part.slice(0, count // 2)]
    return records
