"""Leases: snapshots that the log keeps, over restarts, until a record ends them.

A lease is the state at the position of its own record, BEGIN LEASE. It is there as long as no END
LEASES has taken it away, which only the leader writes: when the owner lets go, or has not used it
for its seconds by the leader's monotonic clock. That clock begins anew wherever the tablespace is
opened, so a lease lives longer rather than shorter. A copy that follows tells the leader which are
used there (ADR 89), some time later: what was not used for its seconds ends when all that was used
in them is known. Until a checkpoint has made pages
of it (maintenance/checkpoint.py), its versions are held in the memtables, as for a reader that is
never evicted. Source: ADR 0024.

Changed under the monitor of the tablespace; find(), use(), used(), extend(), heard() and a lease's
fields by any thread.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from herdpy.engine.state.catalog import Catalog
from herdpy.engine.state.error_messages import check_share
from herdpy.engine.state.memtable import Memtable
from herdpy.engine.state.snapshots import SnapshotRegistry
from herdpy.engine.state.state import State, TableState
from herdpy.errors import OperationalError, Retry, SnapshotTooOldError
from herdpy.limits import leases_crowded_max, leases_max, leases_of_user_max
from herdpy.log.record import BeginLease, EndLeases
from herdpy.model.access import Access, User, plain_user
from herdpy.model.lsn import Lsn
from herdpy.model.types import Row
from herdpy.storage.table_pages import TablePages

BEHIND_ALL = 2**62
"""The position of a state that is all pages: behind every version of a memtable, it needs none."""

PlainLease = tuple[str, str | None, float, tuple[int, int, int], int, int]
"""Id, owner, seconds, Lsn, the wall clock at its beginning, and the id of the owner's role."""


class SnapshotLease:
    """One lease. `state` is replaced by an equal one of pages only, by one assignment.

    Implements FixedState, whose methods say what enter(), check() and leave() do.
    """

    def __init__(
        self,
        record: BeginLease,
        state: State,
        now_s: Callable[[], float],
        taken_at: int | None = None,
    ) -> None:
        # Constant after __init__.
        self.id = record.id
        self.owner = state.catalog.access.owner_of(record.owner, record.owner_id)
        """Whose it is; None: the program's own."""
        self.seconds = record.seconds
        self.at_us = record.at_us
        self.lsn = state.lsn
        self.taken_at = taken_at
        """State.position of then, equal as long as nothing was committed since; None: not known."""
        # Monitor.
        self.state = state
        self.token: int | None = None
        """In the registry while memtables hold its versions; None: it is pages only."""
        self.is_ended = False
        """Its end is in the log: no reader begins."""
        self.is_gone = False
        """Its end is applied, and its versions may go; set before they do."""
        # Any thread, one store each.
        self.used_s = now_s()
        self.read_s = -math.inf
        """When it was used last on this copy; used_s counts what others have reported, too."""
        self._now_s = now_s
        self._open: dict[int, None] = {}

    @property
    def position(self) -> str:
        return str(self.lsn)

    @property
    def is_pages(self) -> bool:
        """Nothing in memory is needed for it any more."""
        return self.state.position == BEHIND_ALL

    @property
    def is_read_only(self) -> bool:
        return True

    @property
    def taken(self) -> State:
        return self.state

    @property
    def is_taken(self) -> bool:
        return True

    def enter(self, token: int) -> None:
        self._open[token] = None

    def check(self) -> None:
        if self.is_gone:
            raise gone_error(self.id)

    def leave(self, token: int) -> None:
        if self._open.pop(token, token) is None:
            self.use()

    def use(self) -> None:
        """Note that it is used on this copy."""
        self.read_s = now_s = self._now_s()
        self.used_s = max(self.used_s, now_s)

    def was_used(self, since_s: float) -> bool:
        """Return whether it was used on this copy from then on, or is being read."""
        return bool(self._open) or self.read_s >= since_s

    def let_go(self) -> None:
        pass  # it is there for others, too

    def is_due(self, now_s: float) -> bool:
        """Return whether it was not used for its seconds; all uses until now_s are known."""
        return not self._open and now_s - self.used_s >= self.seconds

    def to_plain(self) -> PlainLease:
        lsn = (self.lsn.ledger_id, self.lsn.entry_id, self.lsn.index)
        name, role_id = plain_user(self.owner)
        return self.id, name, self.seconds, lsn, self.at_us, role_id


class Leases:
    def __init__(self, registry: SnapshotRegistry, now_s: Callable[[], float]) -> None:
        self._registry = registry
        self._now_s = now_s
        self._by_id: dict[str, SnapshotLease] = {}  # replaced, never changed
        self._coming: dict[str, User | None] = {}  # owners of those in the log, not applied
        self._heard_s = math.inf
        """When other copies were asked last which are used there; infinite: there are none."""
        self._reported_s: Callable[[float], float] | None = None

    def __iter__(self) -> Iterator[SnapshotLease]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, number: str) -> SnapshotLease | None:
        return self._by_id.get(number)

    def use(self, number: str) -> SnapshotLease:
        """Return a lease that is there, and note the use; SnapshotTooOldError."""
        lease = self._by_id.get(number)
        if lease is None or lease.is_ended:
            raise gone_error(number)
        lease.use()
        return lease

    def used(self, since_s: float) -> dict[str, float]:
        """Return those that were used on this copy from then on, with their seconds."""
        return {each.id: each.seconds for each in self if each.was_used(since_s)}

    def extend(self, ids: Iterable[str]) -> None:
        """Let the time of these begin anew: another copy says that they are used there."""
        now_s = self._now_s()
        for number in ids:
            lease = self._by_id.get(number)
            if lease is not None:
                lease.used_s = max(lease.used_s, now_s)

    def await_reports(self, reported_s: Callable[[float], float]) -> None:
        """End none whose use on other copies is not known, from now on: heard() tells of that.

        reported_s: how long behind it a use is reported at the latest, of a lease's seconds.
        """
        self._reported_s, self._heard_s = reported_s, -math.inf

    def heard(self, age_s: float | None) -> None:
        """Take in that all is taken in that was reported so many seconds ago.

        None: there are no other copies.
        """
        self._heard_s = math.inf if age_s is None else self._now_s() - age_s

    def _known_s(self, lease: SnapshotLease) -> float:
        """Return up to when all uses of a lease are known."""
        reported_s = self._reported_s
        delay_s = 0.0 if reported_s is None else reported_s(lease.seconds)
        return min(self._now_s(), self._heard_s - delay_s)

    # --- the leader: monitor ---------------------------------------------------------------------

    def check_room(self, owner: User | None, maximum: int | None = None) -> None:
        """Raise 53400 when there are as many as may be, in all or of one user.

        While few are left, they are for users who have hardly any. `maximum` is of the user's role.
        """
        owners = [lease.owner for lease in self._by_id.values()] + list(self._coming.values())
        is_crowded = len(owners) >= leases_of_user_max
        of_user_max = leases_crowded_max if is_crowded else leases_of_user_max
        check_share(
            "{:,} snapshot leases are held",
            owners,
            owner,
            leases_max,
            of_user_max if maximum is None else min(of_user_max, maximum),
            hint="release those that are not needed; SELECT * FROM sysleases shows them",
        )

    def due(self, ids: Collection[str] | None) -> list[str]:
        """Return those to end.

        `ids`: those that their owners let go; None: those that were not used for so long.
        """
        return [
            lease.id
            for lease in self._by_id.values()
            if not lease.is_ended
            and (lease.is_due(self._known_s(lease)) if ids is None else lease.id in ids)
        ]

    # --- records: monitor ------------------------------------------------------------------------

    def fill(self, record: BeginLease | EndLeases, access: Access) -> None:
        """Note what is in the log and not applied; repeatable."""
        if isinstance(record, EndLeases):
            for number in record.ids:
                if (lease := self._by_id.get(number)) is not None:
                    lease.is_ended = True
        elif record.id not in self._by_id:
            self._coming[record.id] = access.owner_of(record.owner, record.owner_id)

    def apply(self, record: BeginLease | EndLeases, state: State) -> None:
        """Begin a lease of `state`, or end some; repeatable."""
        if isinstance(record, EndLeases):
            self._end(record.ids)
            return
        lease = self._by_id.get(record.id)
        if lease is None:
            seen = State(state.position, state.lsn, state.catalog, state.tables)
            lease = SnapshotLease(record, seen, self._now_s, state.position)
            lease.token = self._registry.new_token()
            self._by_id = {**self._by_id, lease.id: lease}
        if lease.token is not None:  # also when an interrupt came before it
            self._registry.hold(lease.token, lease.state.position)
        self._coming.pop(record.id, None)

    def _end(self, ids: Sequence[str]) -> None:
        for number in ids:
            lease = self._by_id.get(number)
            if lease is not None:
                lease.is_ended = lease.is_gone = True
                self._let_go(lease)
                self._by_id = {key: each for key, each in self._by_id.items() if key != number}

    def _let_go(self, lease: SnapshotLease) -> None:
        if lease.token is not None:
            self._registry.leave(lease.token)
            lease.token = None

    def take_over(self, former: "Leases") -> None:
        """Go on with the leases of the same log's former state: readers keep theirs. Repeatable."""
        for lease in former:
            found = self._by_id.get(lease.id)
            if found is lease:
                continue
            token, lease.token = lease.token, None
            if found is None:  # its beginning did not reach the log
                lease.is_ended = lease.is_gone = True
            else:
                lease.state, lease.token = found.state, found.token
                self._by_id = {**self._by_id, lease.id: lease}
            if token is not None:
                self._registry.leave(token)

    def begin_anew(self) -> None:
        """Give every lease its whole time: who led before knows when each was used last."""
        now_s = self._now_s()
        for lease in self:
            lease.used_s = now_s

    def let_go(self) -> None:
        """Hold no versions any more: the state is given up before it was used. Repeatable."""
        for lease in self:
            self._let_go(lease)

    # --- pages: monitor --------------------------------------------------------------------------

    @property
    def has_versions(self) -> bool:
        """Some lease needs what memtables hold."""
        return any(not lease.is_pages for lease in self._by_id.values())

    def in_pages(self, before: TableState, pages: TablePages) -> None:
        """Let leases see the pages that have those of `before` and its frozen memtables in them."""
        done = before.frozen
        for lease, item in self._of_table(before.table.id):
            if item.pages is before.pages and all(memtable in item.frozen for memtable in done):
                kept = tuple(memtable for memtable in item.frozen if memtable not in done)
                self._replace(lease, TableState(item.table, item.memtable, kept, pages))

    def moved(self, table_id: int, before: TablePages, pages: TablePages) -> None:
        """Let leases see the pages into which a compaction wrote the rows of `before`."""
        for lease, item in self._of_table(table_id):
            if item.pages is before:
                self._replace(lease, item._replace(pages=pages))

    def _of_table(self, table_id: int) -> Iterator[tuple[SnapshotLease, TableState]]:
        for lease in self._by_id.values():
            item = lease.state.tables.get(table_id)
            if item is not None and not lease.is_pages:
                yield lease, item

    def _replace(self, lease: SnapshotLease, item: TableState) -> None:
        tables = {**lease.state.tables, item.table.id: item}
        lease.state = lease.state._replace(tables=tables)

    def settle(self, number: str, pages: dict[int, TablePages]) -> None:
        """Let a lease see pages only: these, which are durable; its versions may go. Repeatable."""
        lease = self._by_id.get(number)
        if lease is None:
            return
        state = lease.state
        tables = {
            table_id: TableState(item.table, Memtable(), (), pages[table_id])
            for table_id, item in state.tables.items()
        }
        lease.state = state._replace(position=BEHIND_ALL, tables=tables)
        self._let_go(lease)  # behind it: who reads the state of before has entered by now

    # --- checkpoints -----------------------------------------------------------------------------

    def to_plain(self) -> list[PlainLease]:
        """Return all, for a checkpoint or a digest."""
        return [lease.to_plain() for lease in self._by_id.values()]

    def restore(
        self,
        plain: Sequence[Any],
        pinned: Mapping[str, dict[int, TableState]],
        access: Access,
    ) -> None:
        """Invert to_plain(); `pinned` are the tables of each. ValueError for what is no lease."""
        for number, owner, seconds, lsn, at_us, *ids in plain:
            if number not in pinned:
                raise ValueError(f"lease {number} without its pages")
            tables = pinned[number]
            made = Catalog(-1, (item.table for item in tables.values()))
            catalog = made.with_access(access)
            state = State(BEHIND_ALL, Lsn(*lsn), catalog, tables)
            record = BeginLease(number, owner, seconds, at_us, *ids)
            lease = SnapshotLease(record, state, self._now_s)
            self._by_id = {**self._by_id, number: lease}


def lease_rows(leases: Leases, now_s: float) -> Iterator[Row]:
    for lease in leases:
        left_s = max(0.0, lease.seconds - (now_s - lease.used_s))
        yield (
            lease.id,
            plain_user(lease.owner)[0],
            lease.position,
            lease.at_us,
            lease.seconds,
            left_s,
            lease.is_pages,
        )


def gone_error(number: str) -> SnapshotTooOldError:
    """Return what a statement says whose lease is none, or none any more."""
    return SnapshotTooOldError(
        f"snapshot lease {number!r}: it has ended, or never was: it was released, or was "
        "not used for its seconds",
        retry=Retry.NEVER,
        hint="take a new lease, for more seconds or renewed in time, and begin again",
    )


def not_here_error(number: str) -> OperationalError:
    """Return what a statement says on a copy that follows, and does not know of its lease."""
    return OperationalError(
        f"snapshot lease {number!r}: this node follows, and has no such lease: it has ended, or "
        "its beginning has not come here yet",
        sqlstate="25006",
        retry=Retry.SAFE,
        hint="ask again, or the leader: by a connection without read=follower or read=nearest",
    )
