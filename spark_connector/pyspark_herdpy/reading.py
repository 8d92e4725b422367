"""Batch read: a table in ranges of its key, or a query, everything at one leased snapshot.

partitions() runs in a process of the planner: it takes the lease and cuts the table. Where Spark
plans a DataFrame several times, also at once, all plans read at the lease of the first. read() runs
in tasks, again for every action, each over a connection of its own. Which action is the last one is
not known, so the lease ends with the application, by herdpy.spark.release(), or, where no keeper
renews it (leases.py), when no task has used it for leaseSeconds.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import herdpy
from pyspark_herdpy import leases
from pyspark_herdpy.again import connect_again
from pyspark_herdpy.batches import joined
from pyspark_herdpy.catalog import lease_at, quoted, result_columns, seen_at, table_name
from pyspark_herdpy.options import Options, wrong
from pyspark_herdpy.types import chosen
from pyspark_herdpy.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.driver.leases import Partition

_PARTITION_BYTES = 32 * 1024 * 1024
_PARTITION_ROWS = 400_000
_PARTITIONS_MAX = 256
_RENEW_BYTES = 2 * 1024 * 1024
_TOO_OLD = "72000"


class HerdPartition(InputPartition):
    """A part of a table at a lease, or the whole of a query (`part` is None)."""

    def __init__(self, lease: str, part: "Partition | None") -> None:
        self.lease = lease
        self.part = part


class HerdReader(DataSourceReader):
    """Reads what options and schema say. Picklable."""

    def __init__(self, options: Options, schema: StructType, frame: str) -> None:
        """frame: the id of one load(), for which Spark may plan several times, also at once.

        42P01, 42703, 42804: the schema is none of the table's or the query's.
        """
        self._options = options
        self._frame = frame
        read_at = leases.agreed(frame, None) or options.snapshot
        with closing(connect_again(options)) as connection:  # DefaultSource.schema() reached it
            columns = result_columns(connection, replace(options, snapshot=read_at))
        what = "the query" if options.table is None else f'table "{options.table}"'
        self._names = chosen(columns, schema, what)
        self._shown = list(schema.names)
        self._where = options.where
        self._parameters: list[Any] = []  # of _where

    def partitions(self) -> Sequence[InputPartition]:
        """Take a lease and cut the table at it."""
        return self.planned(self._options.snapshot)[1]

    def planned(self, snapshot: str | None) -> tuple[str, Sequence[HerdPartition]]:
        """Cut the table at a snapshot: a lease or a position, None: the newest; 72000, 22023.

        Return the lease, too.
        """
        options = self._options
        with closing(connect_again(options)) as connection:
            kept_at = leases.agreed(self._frame, None)
            if kept_at is None and snapshot is not None:
                found = lease_at(connection, snapshot)
                if found is not None:
                    connection.renew_lease(found)
                    kept_at = leases.agreed(self._frame, found)
            if kept_at is not None:
                connection.renew_lease(kept_at)  # 72000: it is gone
                return kept_at, self._cut(connection, kept_at)
            lease, is_new = leases.take(connection, options, snapshot)
            try:
                partitions = self._cut(connection, lease.id)
            except BaseException:
                if is_new:  # else other DataFrames read at it
                    lease.release()
                raise
            first = leases.agreed(self._frame, lease.id) or lease.id
            if first != lease.id:  # another plan of this DataFrame was quicker
                connection.renew_lease(first)
                partitions = self._cut(connection, first)
            return first, partitions

    def _cut(self, connection: herdpy.Connection, lease: str) -> list[HerdPartition]:
        options = self._options
        if options.table is None:
            return [HerdPartition(lease, None)]
        with seen_at(connection, lease):
            table = table_name(connection, options.table)
        count = options.partition_count
        if count is None:
            (whole,) = connection.partitions(table, 1, lease=lease) or (None,)
            count = 1 if whole is None else _count_for(whole.rows, whole.byte_count)
        parts = connection.partitions(table, count, lease=lease)
        return [HerdPartition(lease, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:  # type: ignore[override]
        """Yield Arrow batches of at most fetchBatchRows rows."""
        if not isinstance(partition, HerdPartition):
            raise TypeError(f"expected a partition of herdpy, found {partition!r}")
        with closing(connect_again(self._options, reads=True)) as connection:
            try:
                yield from self._batches(connection, partition)
                settle()
            except herdpy.Error as error:
                if error.sqlstate != _TOO_OLD:
                    raise
                raise wrong(
                    f"the snapshot of this DataFrame is gone: {error.message}",
                    "load() it again; a greater leaseSeconds keeps it longer between actions.",
                    _TOO_OLD,
                ) from None

    def _batches(
        self, connection: herdpy.Connection, partition: HerdPartition
    ) -> Iterator["pa.RecordBatch"]:
        options = self._options
        if partition.part is not None:
            reader = connection.read_partition(
                partition.part,
                columns=self._names,
                where=self._where,
                parameters=self._parameters or None,
                rows=options.batch_rows,
            )
        else:
            connection.execute("BEGIN")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{partition.lease}'")
            names = ", ".join(map(quoted, self._names))
            text = f"SELECT {names} FROM (\n{options.query}\n) AS q"  # noqa: S608 - the user's own
            reader = connection.execute(text).fetch_record_batch(options.batch_rows)
        waiting = 0
        for batch in joined(reader, options.batch_rows):
            yield batch.rename_columns(self._shown)
            waiting += batch.nbytes
            if waiting >= _RENEW_BYTES:  # Spark took its time for them
                waiting = 0
                _renew(connection, partition.lease)
        _renew(connection, partition.lease)  # tasks that are to come have all their time


def _renew(connection: herdpy.Connection, lease: str) -> None:
    """Begin the lease's time anew; what is being read is there without it."""
    with suppress(herdpy.Error):
        connection.renew_lease(lease)


def _count_for(rows: int, byte_count: int) -> int:
    """Return into how many parts a table of that size is cut."""
    wanted = max(-(-byte_count // _PARTITION_BYTES), -(-rows // _PARTITION_ROWS), 1)
    return min(wanted, _PARTITIONS_MAX)
