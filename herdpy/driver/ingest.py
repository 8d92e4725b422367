"""conn.ingest(): a program's data into one table, over any transport, all rows or none."""

from collections.abc import Callable
from typing import Any

from herdpy.driver.interfaces import DriverSession
from herdpy.errors import loading

Progress = Callable[[int], object]
"""Gets the number of rows taken so far, after each batch."""


def ingest(
    session: DriverSession, table: str, data: Any, mode: str, progress: Progress | None
) -> int:
    """Write the data as one statement; return the number of rows."""
    with loading():
        from herdpy.exec.vector.arrow_input import check_input, input_batches

    check_input(data)
    target = session.begin_ingest(table, mode)
    try:
        taken = 0
        for batch in input_batches(data, target.table):
            target.add(batch)
            taken += batch.num_rows
            if progress is not None:
                progress(taken)
        return target.finish()
    finally:
        target.abort()  # nothing to do behind finish()
