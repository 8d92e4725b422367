"""Snapshots: a registered, consistent view of all tables, and its rows for the two executors.

A reader registers with position 0 (which stops pruning), reads the tablespace's State (one
immutable object), and then narrows its registration to the State's position. No lock is taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge, nsmallest
from itertools import chain, count, groupby, islice, takewhile
from operator import gt, itemgetter, lt
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.memtable import (
    TRIMMED,
    Memtable,
    SnapshotGoneError,
    Span,
    Version,
    visible,
)
from herdpy.engine.state.page_adoption import spilled_view
from herdpy.engine.state.state import State, TableState, new_table
from herdpy.engine.state.system_tables import SystemRows
from herdpy.engine.state.transactions import OwnVersion, own_visible
from herdpy.errors import ProgrammingError, SnapshotTooOldError
from herdpy.exec.interfaces import NO_NEGATIVE_ZEROS, ColumnRange
from herdpy.model.access import Changes
from herdpy.model.governor import Account
from herdpy.model.schema import Table, with_stores
from herdpy.model.types import Key, Row
from herdpy.storage.page import Columns
from herdpy.storage.table_pages import PageEntry, TablePages

if TYPE_CHECKING:
    import pyarrow as pa

    from herdpy.engine.state.transactions import Transaction


KeyRange = tuple[Key | None, Key | None]
"""Keys from the first on, those from the second on not among them; None: open."""
_OVERLAY_KEYS_COPIED = 256
_BLOCK_KEYS_FIRST, _BLOCK_KEYS_MAX = 16, 1024


_MANY_ENTRIES = 200
_MANY_ENTRIES_SHARE = 256
"""More entries than these, and than one of so many rows, cost more than a scan: a row by its key
takes some microseconds, a scan some nanoseconds of each row and a millisecond to begin."""


class PlanIsStaleError(ProgrammingError):
    """A statement planned for a table met a snapshot without it: it is planned and run again."""


class FixedState(Protocol):
    """A state that a transaction reads instead of the present. Any thread."""

    @property
    def state(self) -> State: ...

    @property
    def is_read_only(self) -> bool:
        """A transaction that reads it may write nothing."""
        ...

    @property
    def taken(self) -> State | None:
        """The state, once it is known which; None: `state` decides it, or says that it is gone."""
        ...

    @property
    def is_taken(self) -> bool:
        """It is known which state, also when that is gone."""
        ...

    def enter(self, token: int) -> None:
        """Note that a snapshot of it is open, under the registry's token."""
        ...

    def check(self) -> None:
        """Raise when it is kept no more; called behind enter(): from there on no version goes."""
        ...

    def leave(self, token: int) -> None:
        """Note that the snapshot is closed; repeatable."""
        ...

    def let_go(self) -> None:
        """Note that the transaction is over; repeatable."""
        ...


class EvictedHolder(Protocol):
    """Keeps a state beside the snapshots of statements; a weak reference to it must be possible."""

    def segments(self) -> frozenset[int]:
        """Return in which segments the pages lie that it keeps. Any thread."""
        ...

    def evicted(self) -> None:
        """Let the state go: nothing may be read of it any more. Any thread; never waits."""
        ...


class SnapshotRegistry:
    """The positions at which a session may still read. Dict stores only, so no lock is needed."""

    __slots__ = ("_held", "_holders", "_next", "_positions", "caches", "system")

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._held: dict[int, int] = {}  # those of them that are never evicted
        self._holders: dict[
            int, ref[EvictedHolder]
        ] = {}  # without a callback: it could lose a Ctrl-C
        self._next = count(1)
        self.caches: Account | None = None
        """Of what is kept for the vector path; None: nothing in Arrow. Set once, after open."""
        self.system: dict[int, SystemRows] = {}  # by id of the table; filled once, after open

    def new_token(self) -> int:
        """Return what enter() takes; apart from it, so that an interrupt leaks no entry."""
        return next(self._next)

    def enter(self, token: int) -> None:
        """Stop all pruning until narrow() or leave()."""
        self._positions[token] = 0

    def narrow(self, token: int, position: int) -> None:
        """Allow pruning of what `position` cannot see."""
        if token in self._positions:
            self._positions[token] = position

    def hold(self, token: int, position: int) -> None:
        """Register a position that is never evicted, nor those who read at it. Monitor held."""
        self._held[token] = position
        self._positions[token] = position

    def tell(self, token: int, holder: "EvictedHolder") -> None:
        """Have a holder told when its token is evicted, as long as it is there."""
        self._holders[token] = ref(holder)

    def leave(self, token: int) -> None:
        """Forget the token; repeatable."""
        self._positions.pop(token, None)
        self._held.pop(token, None)
        self._holders.pop(token, None)

    def is_registered(self, token: int) -> bool:
        return token in self._positions

    def horizon(self, newest: int) -> list[int] | None:
        """Return the ascending positions to keep, `newest` last; None while a reader enters."""
        positions = set(self._positions.copy().values())
        if 0 in positions:
            return None
        positions.add(newest)
        return sorted(position for position in positions if position <= newest)

    def evict_oldest(self, newest: int, count: int = 1) -> int:
        """Give up to `count` of the oldest snapshots before position `newest`; return how many.

        Their next read of a version that is given up fails with 72000. None while a reader enters:
        what is older than all positions left can be told by TRIMMED, what is between them cannot.
        """
        positions = self._positions.copy()
        if 0 in positions.values():
            return 0
        held = set(self._held.copy().values())
        items = [
            (position, token)
            for token, position in positions.items()
            if position < newest and position not in held
        ]
        oldest = nsmallest(count, items)
        for _, token in oldest:
            self._positions.pop(token, None)
            reference = self._holders.pop(token, None)
            holder = None if reference is None else reference()
            if holder is not None:
                holder.evicted()
        return len(oldest)

    def holders(self) -> "list[EvictedHolder]":
        """Return who keeps a state now. Any thread."""
        found = [reference() for reference in self._holders.copy().values()]
        return [holder for holder in found if holder is not None]

    def has_before(self, token: int) -> bool:
        """Return whether a reader is registered by an older token."""
        return any(other < token for other in self._positions.copy())

    def __len__(self) -> int:
        return len(self._positions)


def _never() -> None:
    """Let a reader go on: no statement can be cancelled."""


class Snapshot:
    """A view at one position, plus the changes its transaction made before one statement."""

    __slots__ = (
        "_access_changes",
        "_catalog_changes",
        "_fixed",
        "_has_spilled",
        "_parent",
        "_present",
        "_ranges",
        "_registry",
        "_savepoint",
        "_system",
        "_token",
        "_transaction",
        "_writes",
        "check_interrupt",
        "read_present",
        "shows_own_writes",
        "state",
        "statement",
    )

    def __init__(
        self,
        registry: SnapshotRegistry,
        read_state: Callable[[], State],
        transaction: "Transaction | None",
        *,
        parent: "Snapshot | None" = None,
        fixed: FixedState | None = None,
    ) -> None:
        """With `fixed` the tables are that state's; read_state() gives what is the present's."""
        self._parent = parent
        self.check_interrupt: Callable[[], object] = (
            _never if parent is None else (parent.check_interrupt)
        )
        """What long reads call every some thousand rows: of the statement that reads."""
        self.read_present = read_state if parent is None else parent.read_present
        self._registry = registry
        self._token = registry.new_token()
        self._fixed = fixed
        self._ranges: dict[int, KeyRange] = {}
        if parent is None:
            registry.enter(self._token)
        self.state = self._present = read_state()
        if fixed is not None:
            fixed.enter(self._token)
            self.state = fixed.state
            try:
                fixed.check()
            except BaseException:
                self.close()
                raise
        registry.narrow(self._token, self.state.position)
        self._transaction = transaction
        self.shows_own_writes = False
        """A source that it gave has what the transaction wrote, or defined, itself."""
        self._writes = transaction.writes if transaction is not None else None
        self._has_spilled = transaction is not None and transaction.has_spilled
        self._savepoint = transaction.savepoint if transaction is not None else None
        self._catalog_changes = transaction.catalog_changes if transaction is not None else {}
        self._access_changes: Changes = transaction.access_changes if transaction else {}
        self.statement = transaction.statement if transaction is not None else 0
        if transaction is not None and transaction.cut is not None:
            # A statement that is at work, or did not end well and is undone yet.
            self.statement = min(self.statement, transaction.cut)
        self._system: dict[int, dict[Key, OwnVersion]] | None = None

    def source(self, table: Table) -> "TableSnapshot":
        """Return the table's rows. PlanIsStaleError: this snapshot does not have the table."""
        if table.is_system:
            return self._system_source(table)
        table_state = self.state.tables.get(table.id)
        is_same = table_state is not None and table_state.table.version == table.version
        if not is_same and not self._has_made(table):
            raise PlanIsStaleError(
                f'table "{table.name}" was dropped, or changed, before the statement read it',
                sqlstate="42P01",
                hint="Run the statement again.",
            )
        own = self._writes.get(table.id) if self._writes is not None else None
        if own is not None:
            self.shows_own_writes = True
        if self._has_spilled:
            table_state = self._with_spilled(table, table_state)
        position, part = self.state.position, self._ranges.get(table.id)
        if part is None:
            return TableSnapshot(table, table_state, position, own, self.statement, self)
        from herdpy.engine.state.ranges import RangeSnapshot

        return RangeSnapshot(table, table_state, position, own, self.statement, self, part)

    def _has_made(self, table: Table) -> bool:
        """Return whether the transaction has made a table, or the index that it is kept in."""
        made = with_stores(filter(None, self._catalog_changes.values()))
        return any(each.id == table.id for each in made)

    def _with_spilled(self, table: Table, table_state: TableState | None) -> TableState | None:
        """Return a table with what earlier statements of the transaction have spilled."""
        transaction = self._transaction
        assert transaction is not None
        staged = self._present.staged
        stages = staged.spilled(
            transaction.id, table.id, self.statement, is_void=transaction.has_voided
        )
        if not stages:
            return table_state
        self.shows_own_writes = True
        # A spilling transaction has the table locked, and none had changed it since `state`.
        table_state = self._present.tables.get(table.id)
        known = transaction.views.get(table.id)
        seen = table_state or new_table(table)
        view = spilled_view(seen, stages, known)
        transaction.views[table.id] = view
        return seen._replace(pages=view.pages)

    def restrict(self, table: Table, low: Key | None, high: Key | None) -> None:
        """Show of this table only the rows with low <= key < high (None = open)."""
        self._ranges[table.id] = (low, high)

    def _system_source(self, table: Table) -> "TableSnapshot":
        """Return the rows of a system table as if the statement itself had written them before."""
        made = self._system = self._system or {}
        if self._catalog_changes or self._access_changes:
            self.shows_own_writes = True
        if table.id not in made:
            rows = self._registry.system[table.id](self._catalog())
            made[table.id] = {table.key_of(row): (-1, row, None) for row in rows}
        return TableSnapshot(table, None, self.state.position, made[table.id], 0, self)

    def _catalog(self) -> Catalog:
        """Return tables and rights as the transaction sees them."""
        return self._present.catalog.with_changes(
            self._catalog_changes, self._access_changes, version=-1
        )

    def layered(
        self, table: Table, made: dict[int, dict[Key, OwnVersion]] | None = None
    ) -> "tuple[Snapshot, dict[int, dict[Key, OwnVersion]]]":
        """Return the same view and the own writes of a table and its indexes that it alone has.

        It shares the registration, which this snapshot keeps: its position may be given up by now.
        `made` has the rows of tables that are made when they are read, by id.
        """
        layer = Snapshot(self._registry, lambda: self.state, None, parent=self)
        layer._token = self._token
        writes = self._writes or {}
        own = {each.id: writes.get(each.id, {}).copy() for each in with_stores([table])}
        layer._writes = {**writes, **own}
        layer._present = self._present
        layer._savepoint = self._savepoint
        layer._transaction, layer._has_spilled = self._transaction, self._has_spilled
        layer._catalog_changes = self._catalog_changes
        layer._access_changes = self._access_changes
        layer.statement = self.statement
        layer._system = made
        return layer, own

    def with_rows(self, table: Table, rows: Sequence[Row]) -> "Snapshot":
        """Return the same view, where a table of ROWS_AT_HAND has these rows, without numbers."""
        numbered = (((number,), (*row, number)) for number, row in enumerate(rows))
        made: dict[Key, OwnVersion] = {key: (-1, row, None) for key, row in numbered}
        return self.layered(table, {table.id: made})[0]

    @property
    def caches(self) -> Account | None:
        """What is charged with what is kept for the vector path."""
        return self._registry.caches

    def has_present(self, table_id: int, memtables: tuple[Memtable, ...]) -> bool:
        """Return whether these are a table's memtables now: what new snapshots read."""
        state = self.read_present().tables.get(table_id)
        return state is not None and state.memtables == memtables

    def check(self) -> None:
        """Raise 72000 when the snapshot was evicted."""
        if not self._registry.is_registered(self._token):
            raise snapshot_too_old()

    def check_not_undone(self) -> None:
        """Raise when what the transaction wrote, and this shows, was rolled back.

        24000; but why, where that is not the program's doing and it has not heard it yet: that
        says whether to run the transaction again.
        """
        transaction = self._transaction
        if transaction is None:
            return
        is_undone, reason = transaction.is_undone, transaction.abort_error
        if is_undone and reason is not None and not transaction.is_loss_told:
            transaction.is_loss_told = True
            raise reason
        savepoint = self._savepoint
        while savepoint is not None and not is_undone:
            is_undone = savepoint.is_undone and savepoint.statement < self.statement
            savepoint = savepoint.parent
        if is_undone:
            raise ProgrammingError(
                "the result shows rows that its transaction wrote, and that was rolled back "
                "before they were fetched",
                sqlstate="24000",
                hint="Run the query again, or fetch all rows before ROLLBACK.",
            )

    def close(self) -> None:
        """Let go of the versions; repeatable."""
        if self._parent is None:
            self._registry.leave(self._token)
            if self._fixed is not None:
                self._fixed.leave(self._token)

    def __del__(self) -> None:
        try:
            self.close()
        except AttributeError:  # interrupted before it had entered
            pass


def snapshot_too_old() -> SnapshotTooOldError:
    return SnapshotTooOldError(
        "snapshot too old: the row versions this statement reads were given up for memory",
        hint="Run the statement again; read faster or give the database more memory_bytes_max.",
    )


class TableRows:
    """Rows of one table at one position, by key and in the order of keys."""

    __slots__ = ("_own", "_statement", "memtables", "pages", "position", "table")

    def __init__(
        self,
        table: Table,
        state: TableState | None,
        position: int,
        own: dict[Key, OwnVersion] | None,
        statement: int,
    ) -> None:
        self.table = table
        self.memtables: tuple[Memtable, ...] = state.memtables if state is not None else ()
        """The newest first."""
        self.pages: TablePages | None = state.pages if state is not None else None
        self.position = position
        self._own = own
        self._statement = statement

    def check(self) -> None:
        """Raise 72000 when what was read is not to be relied on: its snapshot was evicted."""

    @property
    def row_count_guess(self) -> int:
        pages = self.pages.live_count if self.pages is not None else 0
        return pages + sum(len(m) for m in self.memtables) + len(self._own or ())

    def get(self, key: Key) -> Row | None:
        version = self.version(key)
        if version is not None:
            return version[1]
        return self.pages.get(key) if self.pages is not None else None

    def version(self, key: Key) -> "OwnVersion | Version | None":
        """Return what decides about a key above the pages: an own change, else a memtable's.

        Its row is at [1]. 72000: it was given up.
        """
        own = own_visible(self._own.get(key), self._statement) if self._own else None
        if own is not None:
            return own
        position = self.position
        for memtable in self.memtables:
            version = newest = memtable.chains.get(key)
            if newest is None:
                continue
            if newest[0] > position or newest is TRIMMED:
                version = visible(newest, position)
                if version is TRIMMED:
                    raise snapshot_too_old()
                self.check()  # afterwards: it is given up before its versions
            if version is not None:
                return version
        return None

    def _overlay_keys(
        self, low: Key | None, high: Key | None, *, low_open: bool, high_open: bool, reverse: bool
    ) -> Iterator[Key]:
        """Yield the keys that do not only stand in pages, in order.

        Little is copied for a long range: a cursor that is not read costs a few hundred bytes.
        """
        spans: list[Span] = []
        try:
            for memtable in self.memtables:
                if memtable.chains:
                    spans += memtable.spans(low, high, low_open=low_open, high_open=high_open)
        except SnapshotGoneError:
            raise snapshot_too_old() from None
        if self._own:
            own = [k for k in self._own.copy() if _within(k, low, high, low_open, high_open)]
            own.sort()
            spans.append((own, 0, len(own)))
        if len(spans) > 1 and sum(stop - start for _, start, stop in spans) <= _OVERLAY_KEYS_COPIED:
            copied = [key for keys, start, stop in spans for key in keys[start:stop]]
            copied.sort(reverse=reverse)
            joined = iter(copied)
        else:
            parts = [chain.from_iterable(_blocks(span, is_reverse=reverse)) for span in spans]
            if len(parts) == 1:
                return parts[0]
            joined = merge(*parts, reverse=reverse)
        return map(itemgetter(0), groupby(joined))

    def range(
        self,
        low: Key | None,
        high: Key | None,
        *,
        low_inclusive: bool = True,
        high_inclusive: bool = True,
        is_reverse: bool = False,
        columns: Columns | None = None,
    ) -> Iterator[Row]:
        keys = self._overlay_keys(
            low, high, low_open=not low_inclusive, high_open=not high_inclusive, reverse=is_reverse
        )
        chunks = (
            self.pages.range(
                low,
                high,
                low_inclusive=low_inclusive,
                high_inclusive=high_inclusive,
                is_reverse=is_reverse,
                columns=columns,
            )
            if self.pages is not None
            else iter(())
        )
        return chain.from_iterable(self._merge(chunks, keys, is_reverse=is_reverse))

    def _merge(
        self, chunks: Iterator[list[Row]], keys: Iterator[Key], *, is_reverse: bool
    ) -> Iterator[Iterable[Row]]:
        """Yield the rows of pages in chunks, and in their places what is decided above them.

        A chunk that no such key lies in is passed on as it is; others get many keys at once.
        """
        key_of, is_beyond = self.table.key_of, lt if is_reverse else gt
        key = next(keys, None)
        for chunk in chunks:
            rest = chunk
            while rest and key is not None and not is_beyond(key, last := key_of(rest[-1])):
                block: list[Key] = []
                while key is not None and not is_beyond(key, last) and len(block) < _BLOCK_KEYS_MAX:
                    block.append(key)
                    key = next(keys, None)
                rows = rest
                if key is not None and not is_beyond(key, last):
                    bound = block[-1]
                    rows = list(takewhile(lambda row: not is_beyond(key_of(row), bound), rest))  # noqa: B023 - used at once
                rest = rest[len(rows) :]
                yield self._merged(rows, block, is_reverse=is_reverse)
            if rest:
                yield rest
        size, keys = _BLOCK_KEYS_FIRST, keys if key is None else chain((key,), keys)
        while block := list(islice(keys, size)):
            yield filter(None, self._decided(block)[1])
            size = min(2 * size, _BLOCK_KEYS_MAX)

    def _merged(self, rows: list[Row], block: list[Key], *, is_reverse: bool) -> list[Row]:
        """Return rows of pages with what is decided above them about keys."""
        decided = dict(zip(*self._decided(block), strict=True))
        pairs = zip(self.table.keys_of(rows), rows, strict=True)
        merged = list(filter(None, [decided.pop(key, row) for key, row in pairs]))
        new = list(filter(None, decided.values()))
        if new:
            merged += new
            merged.sort(key=self.table.key_of, reverse=is_reverse)
        return merged

    def _decided(self, keys: list[Key]) -> tuple[list[Key], list[Row | None]]:
        """Return the keys that something above the pages decides about, with rows; None: deleted.

        At once if that is the newest version of each, in one memtable, as it nearly always is.
        """
        if not self._own and len(self.memtables) == 1:
            versions, position = list(map(self.memtables[0].chains.get, keys)), self.position
            rows = [v[1] for v in versions if v is not None and 0 <= v[0] <= position]
            if len(rows) == len(keys):
                return keys, rows
        found = [(key, v[1]) for key in keys if (v := self.version(key)) is not None]
        return [key for key, _ in found], [row for _, row in found]


class PresentRows(TableRows):
    """A few rows of a State that nobody has registered, read at once, by an index.

    Versions may be given up meanwhile: what was read counts if the newest State is at the same
    position afterwards. Without what a transaction wrote itself.
    """

    __slots__ = ("_state",)

    def __init__(self, table: Table, state: State) -> None:
        super().__init__(table, state.tables.get(table.id), state.position, None, 0)
        self._state = state

    def index(self, number: int) -> "PresentRows":
        """Return the entries of an index, as RowSource has it."""
        return PresentRows(self.table.stores[number].table, self._state)

    def has_many(self, _entries: TableRows, _low: Key | None, _high: Key | None) -> bool:
        """Tell that there are few: who reads stops at some number of rows."""
        return False


class TableSnapshot(TableRows):
    """One table at one snapshot; implements exec.interfaces.RowSource."""

    __slots__ = ("snapshot",)

    def __init__(
        self,
        table: Table,
        state: TableState | None,
        position: int,
        own: dict[Key, OwnVersion] | None,
        statement: int,
        snapshot: Snapshot,
    ) -> None:
        super().__init__(table, state, position, own, statement)
        self.snapshot = snapshot  # keeps the registration alive as long as a row is read

    def check(self) -> None:
        self.snapshot.check()

    def index(self, number: int) -> "TableSnapshot":
        """Return the entries of an index, as RowSource has it."""
        return self.snapshot.source(self.table.stores[number].table)

    def has_many(self, entries: "TableSnapshot", low: Key | None, high: Key | None) -> bool:
        """Tell whether there are so many entries that a scan is better, as RowSource has it."""
        many = _MANY_ENTRIES + self.row_count_guess // _MANY_ENTRIES_SHARE
        return entries.count_guess(low, high, many) > many

    def count_guess(self, low: Key | None, high: Key | None, enough: int) -> int:
        """Return about how many rows are between bounds, which may be prefixes; or `enough`."""
        found = len(self._own or ())
        try:
            for memtable in self.memtables:
                if memtable.chains and found <= enough:
                    spans = memtable.spans(low, high, low_open=False, high_open=False)
                    found += sum(stop - start for _, start, stop in spans)
        except SnapshotGoneError:
            raise snapshot_too_old() from None
        if self.pages is not None and found <= enough:
            found += self.pages.count_range(low, high)
        return found

    def own_rows(self) -> dict[Key, Row | None]:
        """Return what the transaction's earlier statements made of the rows that they wrote."""
        found: dict[Key, Row | None] = {}
        for key, newest in (self._own.copy() if self._own else {}).items():
            version = own_visible(newest, self._statement)
            if version is not None:
                found[key] = version[1]
        return found

    def rows(self, columns: Columns | None = None) -> Iterator[Row]:
        return self.range(None, None, columns=columns)

    def arrow(
        self,
        ordinals: Sequence[int],
        prune: Sequence[ColumnRange],
        summed: Sequence[int] = (),
    ) -> "pa.Table":
        from herdpy.storage.arrow import has_negative_zero, scan_table

        ordinals = ordinals or self.table.key[:1]  # a batch without columns would have no rows
        entries = [
            entry
            for entry in self.entries()
            if entry.dead_count < entry.row_count
            and all(entry.page.may_hold(item.ordinal, item.low, item.high) for item in prune)
        ]
        try:
            live, batches = self.above_pages(ordinals, entries)
        except SnapshotGoneError:
            raise snapshot_too_old() from None
        self.check()
        found = scan_table(self.table, entries, batches, ordinals, live=live)
        if any(has_negative_zero(entries, batches, ordinal) for ordinal in summed):
            return found
        return found.replace_schema_metadata(NO_NEGATIVE_ZEROS) if summed else found

    def count(self) -> int:
        """Return how many rows there are."""
        from herdpy.engine.state.overlay import count

        try:
            found = count(self)
        except SnapshotGoneError:
            raise snapshot_too_old() from None
        self.check()
        return found

    def entries(self) -> Iterator[PageEntry]:
        """Yield the pages that may have a row."""
        yield from self.pages.entries() if self.pages is not None else ()

    def above_pages(
        self, ordinals: Sequence[int], entries: Sequence[PageEntry]
    ) -> "tuple[Mapping[PageEntry, pa.Array], list[pa.RecordBatch]]":
        """Return (live rows of the pages not wholly as they lie, batches with a __live column)."""
        from herdpy.engine.state.overlay import above_pages

        return above_pages(self, ordinals)


def _blocks(span: Span, *, is_reverse: bool) -> Iterator[list[Key]]:
    keys, start, stop = span
    size = _BLOCK_KEYS_MAX
    if is_reverse:
        return (keys[max(end - size, start) : end][::-1] for end in range(stop, start, -size))
    return (keys[begin : min(begin + size, stop)] for begin in range(start, stop, size))


def _within(key: Key, low: Key | None, high: Key | None, low_open: bool, high_open: bool) -> bool:
    if low is not None:
        part = key[: len(low)]
        if part < low or (low_open and part == low):
            return False
    if high is not None:
        part = key[: len(high)]
        if part > high or (high_open and part == high):
            return False
    return True
