"""Result: what a statement gives back; rows stream, and the snapshot lives as long as they do."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from herdpy.errors import Error, ProgrammingError, loading
from herdpy.model.types import SqlType

if TYPE_CHECKING:
    import pyarrow as pa

Columns = tuple[tuple[str, SqlType], ...]
LogicalRow = tuple[Any, ...]
T = TypeVar("T")


class Result:
    """Columns and rows of a query, or the count of a write, perhaps both. One thread at a time."""

    __slots__ = (
        "_check",
        "_close",
        "_iterator",
        "_make_reader",
        "columns",
        "ended",
        "is_whole",
        "last_row_id",
        "row_count",
    )

    def __init__(
        self,
        columns: Columns | None = None,
        rows: Iterator[LogicalRow] | None = None,
        *,
        row_count: int = -1,
        close: Callable[[], object] | None = None,
        make_reader: "Callable[[int], pa.RecordBatchReader] | None" = None,
        check: Callable[[], object] | None = None,
        is_whole: bool = False,
    ) -> None:
        """make_reader(rows per batch) gives Arrow directly; it is used before the first row.

        check() raises when the rows that are left may not be shown any more; it is asked before
        each row, or batch, is given. is_whole: the rows go with the acknowledgement of a write.
        """
        self.columns = columns
        self.row_count = row_count
        self.is_whole = is_whole
        self.last_row_id: int | None = None
        self._iterator = rows if rows is None or check is None else _checked(rows, check)
        self._check = check
        self._close = close
        self._make_reader = make_reader
        self.ended: list[Error] | None = None
        """Of its session: empty, or why it was ended; looked at before each read."""

    def rows(self) -> Iterator[LogicalRow]:
        """Return the one iterator over the rows that are left."""
        if self._iterator is None:
            raise ProgrammingError("the statement has no rows", sqlstate="HY010")
        return self._iterator

    @property
    def makes_arrow(self) -> bool:
        """True: Arrow costs less than rows, as long as no row was taken."""
        return self._make_reader is not None

    def put_back(self, rows: Iterator[LogicalRow] | None) -> None:
        """Go on with these rows, which begin with some that were taken; None: with what is left."""
        if rows is not None:
            self._iterator = rows

    def check(self) -> None:
        """Raise when the rows that are left may not be shown any more."""
        if self.ended:
            raise copy(self.ended[0])
        if self._check is not None:
            self._check()

    def fetch_many(self, count: int) -> list[LogicalRow]:
        return list(islice(self.rows(), count))

    def arrow_batches(self, rows_per_batch: int) -> "pa.RecordBatchReader":
        """Return the rows that are left as Arrow batches of at most so many rows."""
        with loading():
            from herdpy.exec.vector.arrow_rows import rows_reader
            from herdpy.exec.vector.arrow_stream import reader_of

        make_reader, self._make_reader = self._make_reader, None
        if make_reader is not None:
            reader = make_reader(rows_per_batch)
        else:
            reader = rows_reader(self.columns or (), self.rows(), rows_per_batch)
        if self._check is None and self.ended is None:
            return reader
        return reader_of(reader.schema, _checked(reader, self.check))

    def close(self) -> None:
        """Let the snapshot go; repeatable."""
        self._iterator = iter(()) if self._iterator is not None else None
        close, self._close = self._close, None
        if close is not None:
            close()


def _checked(items: Iterable[T], check: Callable[[], object]) -> Iterator[T]:
    for item in items:
        check()
        yield item
