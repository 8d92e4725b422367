"""Batch write: tasks stage their rows on the server, the Spark driver commits them all at once.

The job is begun by __init__, once, in a process of the planner; write() runs in each task, again
when a task is repeated or doubled, under an attempt of its own; commit() names the attempts that
Spark took, and the server's transaction has their rows and no others. A job that dies between is
given up by the server after a time.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import herdpy
from pyspark_herdpy.again import connect_again
from pyspark_herdpy.batches import joined
from pyspark_herdpy.catalog import find_table, table_name
from pyspark_herdpy.exact import Target, check_exact
from pyspark_herdpy.mapping import create_table
from pyspark_herdpy.options import Options, known_name, near, wrong
from pyspark_herdpy.types import check_written
from pyspark_herdpy.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.staging import StageToken


_ROW = re.compile("row ([0-9,]+) of the data: ")
_VALUE_MAX = 80
_BATCH_ROWS = 65_536
_SHOWN_MAX = 500


@dataclass
class Staged(WriterCommitMessage):
    """What one attempt of a task staged."""

    token: "StageToken"


class HerdWriter(DataSourceArrowWriter):
    """Writes one DataFrame into one table. Picklable."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        """Begin the job; 42P01, 42703, 42804, 22023: it cannot be."""
        operation = options.operation or "append"
        if overwrite and operation != "append":
            raise wrong(
                f'mode("overwrite") replaces all rows: the option "operation" cannot be'
                f' "{operation}"',
                f'Use mode("append") with operation "{operation}".',
            )
        if not schema.fields:
            # Spark hands the rows of such a DataFrame to no task.
            raise wrong(
                "the DataFrame has no columns",
                "Select one, and its rows take the others' defaults.",
            )
        self._options = options
        with closing(options.connect()) as connection:
            table = _prepared_table(connection, options, schema)
            self.job = connection.begin_staging(
                table,
                operation="replace" if overwrite else operation,
                job=options.job,
                key_columns=options.key_columns,
            )
            try:
                self._targets = _checked_columns(table, self.job.description, schema)
            except BaseException:
                connection.abort_staging(self.job)  # this run of it
                raise

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Stage the rows of a task; errors name the row."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("herdpy writes in tasks of Spark only")
        # A server that knows no runs tells those of one jobId apart by this.
        attempt = f"{self.job.run}.{context.taskAttemptId()}"
        names = [target.name for target in self._targets]
        with (
            closing(connect_again(self._options)) as connection,
            connection.stage(self.job, context.partitionId(), attempt) as stage,
        ):
            for batch in joined(iterator, _BATCH_ROWS):
                first = stage.row_count
                try:
                    if not self._options.rounds:
                        check_exact(batch, self._targets, first)
                    stage.add(batch.rename_columns(names))
                except herdpy.Error as error:
                    raise _with_row(error, batch, first, context.partitionId()) from None
            token = stage.finish()
        settle()
        return Staged(token)

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Make the rows of these tasks one transaction; repeatable."""
        tokens = [message.token for message in messages if isinstance(message, Staged)]
        tokens = [token for token in tokens if token.row_count]
        with closing(connect_again(self._options)) as connection:
            connection.commit_staging(self.job, tokens)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Give this run of the job up, with what its tasks have staged; repeatable."""
        del messages
        with closing(connect_again(self._options)) as connection:
            connection.abort_staging(self.job)


def _with_row(error: herdpy.Error, batch: "pa.RecordBatch", first: int, task: int) -> herdpy.Error:
    """Return an error that shows the row it numbers: a task's rows have no other mark."""
    found = _ROW.match(error.message)
    if found is None:
        return error
    row = batch.slice(int(found[1].replace(",", "")) - 1 - first, 1)
    values = [
        f"{name}={_shown(column)}"
        for name, column in zip(row.schema.names, row.columns, strict=True)
    ]
    shown = ", ".join(values)
    error.message = f"task {task}: {error.message}, in ({shown[:_SHOWN_MAX]})"
    return error


def _shown(column: "pa.Array[Any]") -> str:
    try:
        return repr(column[0].as_py())[:_VALUE_MAX]
    except (ValueError, OverflowError):  # Python has no such date or text
        return "…"


def _prepared_table(connection: herdpy.Connection, options: Options, schema: StructType) -> str:
    """Return the table's name; make the table if it is missing and may be made."""
    given = options.table or ""
    if not options.creates_table or find_table(connection, given) is not None:
        return table_name(connection, given)
    connection.execute(create_table(given, schema, options.key_columns or ()))
    return given


def _checked_columns(
    table: str, description: Sequence[Sequence[Any]], schema: StructType
) -> list[Target]:
    """Return the columns that those of the DataFrame go to; 42703, 42804.

    `description` is that of begin_staging(), which takes no SELECT.
    """
    columns = {item[0]: Target(item[0], item[1], item[4], item[5]) for item in description}
    found: list[Target] = []
    for item in schema.fields:
        name = known_name(item.name, columns)
        if name is None:
            hint = near(item.name, list(columns))
            raise wrong(f'table "{table}" has no column "{item.name}"', hint, "42703")
        target = columns[name]
        if target in found:
            raise wrong(
                f'the DataFrame has column "{name}" of table "{table}" twice', None, "42701"
            )
        check_written(name, item.dataType, target.code)
        found.append(target)
    return found
