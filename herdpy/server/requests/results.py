"""OpenResult: a statement's result on its way to the driver, in pieces that fit the wire.

One thread at a time: that which runs the connection's request. A result that ends within the first
piece goes with the answer; any other stays open, and no row leaves before the driver says whether
it wants rows or Arrow.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from herdpy.engine.session.activity import Running
from herdpy.errors import ProgrammingError
from herdpy.exec.result import Result
from herdpy.proto.values import RowsEncoder, encode_rows

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 1024 * 1024
INLINE_ROWS_MAX = 1000
INLINE_BYTES_MAX = 64 * 1024
_ARROW_ROWS = 65_536
_ARROW_PIECE_BYTES = 2 * 1024 * 1024
"""So much at least, and less than twice as much."""


class OpenResult:
    def __init__(self, result: Result, statement: Running | None = None) -> None:
        self.statement = statement
        """What makes the rows, as the session shows it."""
        self._result = result
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._arrow: tuple[pa.Schema, Iterator[pa.RecordBatch]] | None = None

    def inline(self) -> bytes | None:
        """Return all rows if they are few, or a write's; else None: they wait for a fetch."""
        if self._result.makes_arrow:
            return None
        rows = self._result.rows()
        if self._result.is_whole:
            return encode_rows(list(rows))
        taken: list[tuple[Any, ...]] = []
        encoder = RowsEncoder(INLINE_BYTES_MAX, INLINE_ROWS_MAX, taken)
        is_last = encoder.take(rows)
        if is_last:
            return encoder.finish()
        self._rows = chain(taken, rows)
        return None

    def rows(self, rows_max: int) -> tuple[bytes, bool]:
        """Return the next rows, at most so many, and whether they are the last."""
        if self._arrow is not None:
            raise ProgrammingError("rows of a result that is being read as Arrow", sqlstate="24000")
        if self._rows is None:
            self._rows = self._result.rows()
        self._result.check()  # of rows that inline() has taken already, too
        encoder = RowsEncoder(PIECE_BYTES, rows_max)
        is_last = encoder.take(self._rows)
        return encoder.finish(), is_last

    def arrow(self, rows_max: int) -> tuple[memoryview, bool]:
        """Return the next of the rows left, as next_stream() does."""
        from herdpy.exec.vector.arrow_stream import cut, next_stream

        self._result.check()
        if self._arrow is None:
            self._result.put_back(self._rows)
            reader = self._result.arrow_batches(min(rows_max, _ARROW_ROWS))
            self._arrow = reader.schema, cut(reader, _ARROW_PIECE_BYTES)
        return next_stream(*self._arrow, _ARROW_PIECE_BYTES)

    def close(self) -> None:
        """Let the snapshot go; repeatable."""
        self._result.close()
