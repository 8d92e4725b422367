"""What execution needs of the engine: tables as one snapshot sees them, and a way to be stopped."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from herdpy.model.schema import Table
from herdpy.model.types import Key, Physical, Row

if TYPE_CHECKING:
    import pyarrow as pa


NO_NEGATIVE_ZEROS = {b"negative zeros": b"none"}
"""Metadata of a table of RowSource.arrow()."""


class ColumnRange(NamedTuple):
    """A conjunct that provably holds for every row wanted: low <= column <= high (None = open).

    Values are physical. Used to leave out pages by zone map; never to filter rows exactly.
    """

    ordinal: int
    low: Physical
    high: Physical


class Numbers(Protocol):
    """The sequences as one session sees them, by name. The session's thread."""

    def next_value(self, name: str) -> int:
        """Give away the next value; 2200H: there is none."""
        ...

    def current_value(self, name: str) -> int:
        """Return what next_value() gave the session last; 55000: it has not."""
        ...

    def last_value(self) -> int:
        """Return what next_value() gave the session last, of any sequence; 55000."""
        ...

    def set_value(self, name: str, value: int | None, is_called: bool | None = True) -> int | None:
        """Have the sequence go on behind the value, with is_called False from it on; None: not."""
        ...


class RowSource(Protocol):
    """One table at one snapshot, the transaction's own writes included. Any one thread at a time.

    Rows are physical. SnapshotTooOldError when the snapshot's versions were given up.
    """

    @property
    def table(self) -> Table: ...

    @property
    def row_count_guess(self) -> int:
        """About how many rows; from page counts and memtable sizes."""
        ...

    def get(self, key: Key) -> Row | None:
        """Return the row of a whole canonical key, None when there is none."""
        ...

    def range(
        self,
        low: Key | None,
        high: Key | None,
        *,
        low_inclusive: bool = True,
        high_inclusive: bool = True,
        is_reverse: bool = False,
        columns: frozenset[int] | None = None,
    ) -> Iterator[Row]:
        """Yield rows in key order between canonical keys or key prefixes (None = open).

        A prefix as an inclusive bound takes in all keys that begin with it, as an exclusive one
        none of them. With `columns` (ordinals) the caller looks at these and the key's only: what
        stands in the places of the others is not said.
        """
        ...

    def index(self, number: int) -> "RowSource":
        """Return the entries of an index, by its place in Table.stores, at the same snapshot."""
        ...

    def has_many(self, entries: "RowSource", low: Key | None, high: Key | None) -> bool:
        """Tell whether between bounds are so many entries that a scan of the rows is better."""
        ...

    def count(self) -> int:
        """Return how many rows there are."""
        ...

    def rows(self, columns: frozenset[int] | None = None) -> Iterator[Row]:
        """Yield every row, in storage order; columns as in range()."""
        ...

    def arrow(
        self,
        ordinals: Sequence[int],
        prune: Sequence[ColumnRange],
        summed: Sequence[int] = (),
    ) -> "pa.Table":
        """Return a table of columns c<ordinal> and, last, `__live` (bool; may be all true).

        Rows with __live false are no rows of the table. Streams nothing: pages are mapped. Its
        metadata are NO_NEGATIVE_ZEROS only if surely no DOUBLE of the columns `summed` is -0.0.
        Types: bool, int32, int64, float64, decimal128/decimal64(p,s), string or
        dictionary<int32,string>, binary, date32, timestamp[us].
        """
        ...


class Snapshot(Protocol):
    """A consistent view of all tables."""

    def source(self, table: Table) -> RowSource: ...


class Interrupt(Protocol):
    """Cancellation and time-outs of the running statement."""

    def check(self) -> None:
        """Raise QueryCanceledError when the statement is to stop; called about every 1,000 rows."""
        ...

    def on_cancel(self, callback: Callable[[], object] | None) -> None:
        """Have callback() run by the cancelling thread (DuckDB's interrupt); None unregisters."""
        ...
