"""Cursor: runs a statement on its connection's session and hands out the rows as they stream.

One thread at a time uses a cursor; other cursors of the same connection may be used by other
threads. Rows are not read ahead: what has not been fetched has not been made. A fetch that fails
or is interrupted gives the result up, so that the next fetch cannot mistake it for the end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from herdpy.driver.arguments import checked_text
from herdpy.driver.attributes import Foreign
from herdpy.driver.types import Description, describe
from herdpy.errors import Error, InterfaceError, NotSupportedError, ProgrammingError, loading
from herdpy.exec.result import Result

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from herdpy.driver.connection import Connection
    from herdpy.driver.interfaces import DriverSession, PointRows

Parameters = Sequence[Any] | Mapping[str, Any]
ARROW_BATCH_ROWS = 65_536


def checked_parameters(parameters: object) -> Parameters:
    """Return what can be bound: a sequence for `?`, a mapping for `:name`.

    A string is a sequence too, and binding its characters is never meant; sets have no order.
    """
    kind = type(parameters)
    if kind is tuple or kind is list or kind is dict:
        return parameters  # type: ignore[return-value]  # the three usual kinds, at once
    if isinstance(parameters, Mapping):
        return parameters
    if isinstance(parameters, Sequence) and not isinstance(
        parameters, (str, bytes, bytearray, memoryview)
    ):
        return parameters
    raise ProgrammingError(
        f"parameters: expected a sequence for ? or a mapping for :name, found {kind.__name__}",
        sqlstate="07001",
        hint="a single value is passed as (value,)",
    )


class Cursor:
    """PEP 249's cursor. `arraysize` is what fetchmany() takes by default, 1."""

    __slots__ = (
        "_connection",
        "_is_closed",
        "_last_row_id",
        "_point",
        "_result",
        "_rows",
        "arraysize",
    )

    row_factory = Foreign()

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._is_closed = False
        self._result: Result | None = None
        self._point: PointRows | None = None  # instead of _result
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._last_row_id: int | None = None
        self.arraysize = 1

    # Statements.

    def execute(self, text: str, parameters: Parameters | None = None) -> "Cursor":
        """Run one statement and return this cursor. A result not yet fetched is dropped first."""
        if self._is_closed:
            self._check()
        session = self._connection.live_session()
        if self._result is not None:
            self._forget_result()
        self._point = self._rows = None
        if text.__class__ is not str or not text.isascii():
            checked_text("the statement", text)
        if parameters is not None and parameters.__class__ is not tuple:
            parameters = checked_parameters(parameters)
        found = session.run(text, parameters)
        if isinstance(found, Result):
            self._result = found
            if found.last_row_id is not None:
                self._last_row_id = found.last_row_id
        else:
            self._point = found
        return self

    def executemany(self, text: str, rows: Iterable[Parameters]) -> "Cursor":
        """Run one statement for each row of parameters; all of them or, on an error, none.

        `rows` may be a generator and is read once. `rowcount` is the sum. Each row sees what those
        before it have changed; keys and unique values of UPDATE are compared when all are done.
        """
        session = self._ready()
        checked_text("the statement", text)
        if isinstance(rows, (str, bytes, bytearray, Mapping)) or not isinstance(rows, Iterable):
            raise ProgrammingError(
                f"executemany: expected rows of parameters, found {type(rows).__name__}",
                sqlstate="07001",
            )
        items = [row if row.__class__ is tuple else checked_parameters(row) for row in rows]
        self._result = session.execute_many(text, items)
        return self

    def executescript(self, text: str) -> "Cursor":
        """Run the statements of a script, each as execute() does, and return this cursor.

        The result is the last one's. An error ends the script, and names the line in a note; what
        came before is the transaction's, or with autocommit is committed. Nothing is committed
        before the first statement.
        """
        self._ready()
        checked_text("the script", text)
        with loading():
            from herdpy.sql.reading.script import split_statements
        for piece in split_statements(text):
            try:
                self.execute(piece.text)
            except Error as error:
                line = 1 + text.count("\n", 0, piece.start)
                error.add_note(f"In the statement that begins in line {line} of the script.")
                raise
        return self

    def take(self, result: Result) -> None:
        """Have the result of a statement that ran elsewhere: in a pipeline."""
        self._ready()
        self._result = result
        if result.last_row_id is not None:
            self._last_row_id = result.last_row_id

    # Results.

    @property
    def connection(self) -> "Connection":
        return self._connection

    @property
    def description(self) -> tuple[Description, ...] | None:
        """One 7-tuple for each column; None before execute and for statements without rows."""
        point, result = self._point, self._result
        columns = point[0] if point is not None else result.columns if result is not None else None
        if columns is None:
            return None
        return tuple(describe(name, sql_type) for name, sql_type in columns)

    @property
    def rowcount(self) -> int:
        """Rows written; -1 before execute and for SELECT, whose rows stream."""
        return -1 if self._result is None else self._result.row_count

    @property
    def lastrowid(self) -> int | None:
        """The last row of the last INSERT by execute(): its column that a sequence fills.

        None before the first. Other statements and executemany() leave it.
        """
        return self._last_row_id

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None behind the last."""
        rows, point = self._rows, self._point
        if rows is None and point is not None and not self._is_closed:
            self._connection.live_session()  # the first of a point read, as _streaming() does
            self._rows = rows = iter(point[1])
        else:
            rows = self._streaming()
        try:
            return next(rows, None)
        except BaseException:
            self._forget_result()
            raise

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return up to size (arraysize) rows; an empty list behind the last."""
        rows = self._streaming()
        count = self.arraysize if size is None else size
        if count < 0:
            raise ProgrammingError(f"fetchmany: expected 0 rows or more, found {count}")
        try:
            return list(islice(rows, count))
        except BaseException:
            self._forget_result()
            raise

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left, at once, in memory."""
        rows = self._streaming()
        try:
            return list(rows)
        except BaseException:
            self._forget_result()
            raise

    def __iter__(self) -> "Cursor":
        return self

    def __next__(self) -> tuple[Any, ...]:
        rows, result = self._rows, self._result
        if rows is None or self._is_closed or (result is not None and result.ended):
            rows = self._streaming()
        else:
            self._connection.live_session()  # as _streaming() does; a call less for each row
        try:
            row = next(rows, None)
        except BaseException:
            self._forget_result()
            raise
        if row is None:
            raise StopIteration
        return row

    def fetch_record_batch(self, rows: int = ARROW_BATCH_ROWS) -> "pa.RecordBatchReader":
        """Return a reader that streams Arrow batches of at most `rows` rows; takes the result."""
        if rows < 1:
            raise ProgrammingError(f"fetch_record_batch: expected 1 row or more, found {rows}")
        self._check()
        point, result = self._point, self._result
        if point is not None:
            result = Result(point[0], iter(point[1]))
        if result is None or result.columns is None:
            raise self._no_result()
        if self._rows is not None:
            raise ProgrammingError(
                "rows of this result were fetched already; Arrow takes a whole result",
                hint="execute the statement again",
            )
        self._rows = iter(())
        return result.arrow_batches(rows)

    def fetch_arrow_table(self) -> "pa.Table":
        """Return the whole result as a pyarrow.Table."""
        return self.fetch_record_batch().read_all()

    def to_df(self) -> "pd.DataFrame":
        """Return the whole result as a pandas.DataFrame; ImportError without pandas."""
        return self.fetch_arrow_table().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return the whole result as a polars.DataFrame; ImportError without polars."""
        with loading():
            import polars as pl

        # from_arrow() gives a DataFrame for a table, a Series for an array.
        return pl.DataFrame(pl.from_arrow(self.fetch_arrow_table()))

    # The rest of PEP 249.

    def close(self) -> None:
        """Drop the result; the cursor cannot be used afterwards. May be called again."""
        self._is_closed = True
        self._forget_result()

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def nextset(self) -> None:
        """Refuse: a statement has one result."""
        raise NotSupportedError("nextset: a statement has one result; execute them one by one")

    def __enter__(self) -> "Cursor":
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside.

    def _check(self) -> None:
        if self._is_closed:
            raise InterfaceError("the cursor is closed", hint="ask the connection for a new one")
        self._connection.live_session()

    def _ready(self) -> "DriverSession":
        if self._is_closed:
            self._check()
        session = self._connection.live_session()
        self._forget_result()
        return session

    def _streaming(self) -> Iterator[tuple[Any, ...]]:
        if self._is_closed:
            self._check()
        self._connection.live_session()
        rows, result = self._rows, self._result
        if result is not None and result.ended:
            result.check()
        if rows is not None:
            return rows
        if self._point is not None:
            self._rows = rows = iter(self._point[1])
            return rows
        if result is None or result.columns is None:
            raise self._no_result()
        rows = result.rows()
        self._rows = rows
        return rows

    def _no_result(self) -> ProgrammingError:
        return ProgrammingError(
            "there is no result to fetch from: nothing was executed, the statement has no rows, "
            "or an earlier fetch failed",
            sqlstate="24000",
        )

    def _forget_result(self) -> None:
        result, self._result = self._result, None
        self._rows = self._point = None
        if result is not None and result.columns is not None:
            result.close()
